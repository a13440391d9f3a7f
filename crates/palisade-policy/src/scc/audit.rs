//! What SCC admission notes in the audit log.
//!
//! Implements: the audit annotations of OpenShift's SCC admission. The first value of a key stays, also over several
//! passes of one request, as in the API server's audit event.

use std::collections::BTreeMap;

use palisade_base::go::Quoted;

/// Annotations of an audit event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Audit(BTreeMap<String, String>);

/// Upstream's spelling, which differs from all the others.
const DENIED: &str = "securityserviceconstraints.admission.openshift.io/denied";
const PREFIX: &str = "securitycontextconstraints.admission.openshift.io/";

/// The API server takes no longer name than this after the slash.
const LONGEST_NAME: usize = 63;

impl Audit {
    /// The annotations by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// The annotations of a later pass of the same request join those of an earlier one.
    pub fn merge(&mut self, later: Self) {
        for (key, value) in later.0 {
            self.0.entry(key).or_insert(value);
        }
    }

    fn add(&mut self, name: &str, value: String) {
        if name.len() <= LONGEST_NAME {
            self.0.entry(format!("{PREFIX}{name}")).or_insert(value);
        }
    }

    pub(super) fn denied(&mut self, constraints: &[&str]) {
        self.0.entry(DENIED.to_owned()).or_insert_with(|| constraints.join(","));
    }

    pub(super) fn too_restrictive(&mut self, constraint: &str, why: String) {
        self.add(&format!("too-restrictive-{constraint}"), why);
    }

    pub(super) fn reason(&mut self, reason: String) {
        self.add("reason", reason);
    }

    pub(super) fn denied_validation(&mut self, hint: &str, rest: &str) {
        let chosen = Quoted(hint);
        self.add(
            "denied-validation",
            format!(
                "originally chosen {chosen} got denied in final validation after mutating admission{rest}"
            ),
        );
    }

    pub(super) fn reason_validation(&mut self, hint: &str, instead: &str) {
        self.add(
            "reason-validation",
            format!(
                "originally chosen {} did not pass final validation after mutating admission, but {} did instead",
                Quoted(hint),
                Quoted(instead)
            ),
        );
    }

    pub(super) fn chosen(&mut self, constraint: &str) {
        self.add("chosen", constraint.to_owned());
    }
}
