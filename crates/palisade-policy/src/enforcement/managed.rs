//! Which namespaces the label syncer takes care of.
//!
//! Implements: `PSAEnforcementConfig`, "PodSecurityAdmissionLabelSynchronizationController". The names `openshift-...` are
//! OpenShift's own: such a namespace is never managed, even if it opts in; OpenShift's label syncer lets some of them.

use palisade_model::metadata::StringMap;

use super::ownership::Ownership;
use crate::standards::policy::Mode;

/// Label of a namespace: `true` or `false` set whether its labels are synced; anything else is ignored.
pub const SYNC_LABEL: &str = "security.openshift.io/scc.podSecurityLabelSync";

/// The value of the sync label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncChoice {
    /// Sync, even labels that others own.
    Always,
    /// Do not sync.
    Never,
    /// Not set.
    Unset,
}

impl SyncChoice {
    /// Reads the label.
    #[must_use]
    pub fn of(labels: &StringMap<'_>) -> Self {
        match labels.get(SYNC_LABEL) {
            Some("true") => Self::Always,
            Some("false") => Self::Never,
            _ => Self::Unset,
        }
    }
}

/// Whether a namespace is never synced, whatever its labels are.
#[must_use]
pub fn is_exempt(namespace: &str) -> bool {
    matches!(namespace, "default" | "kube-node-lease" | "kube-public" | "kube-system" | "openshift")
        || namespace.starts_with("openshift-")
}

/// Whether the label syncer takes care of a namespace.
#[must_use]
pub fn is_managed(namespace: &str, labels: &StringMap<'_>, ownership: &Ownership) -> bool {
    if is_exempt(namespace) {
        return false;
    }
    match SyncChoice::of(labels) {
        SyncChoice::Always => return true,
        _ if ownership.is_malformed => return false,
        SyncChoice::Never => return false,
        SyncChoice::Unset => {}
    }
    Mode::ALL
        .iter()
        .flat_map(|mode| [mode.level_label(), mode.version_label()])
        .any(|key| !labels.contains(key) || !ownership.is_foreign(key))
}

#[cfg(test)]
mod tests {
    use palisade_model::metadata::StringMap;
    use serde_json::{Value, json};

    use super::{Ownership, is_exempt, is_managed};

    const ALL: [&str; 6] = ["enforce", "enforce-version", "warn", "warn-version", "audit", "audit-version"];

    fn owned_by(manager: &str, modes: &[&str]) -> Value {
        let fields: serde_json::Map<_, _> =
            modes.iter().map(|mode| (format!("f:pod-security.kubernetes.io/{mode}"), json!({}))).collect();
        json!([{"manager": manager, "operation": "Update", "fieldsV1": {"f:metadata": {"f:labels": fields}}}])
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let with = |sync: &str, modes: &[&str]| {
            let mut labels = StringMap::default();
            for mode in modes {
                labels.insert(format!("pod-security.kubernetes.io/{mode}"), "baseline".to_owned());
            }
            if !sync.is_empty() {
                labels.insert("security.openshift.io/scc.podSecurityLabelSync", sync.to_owned());
            }
            labels
        };
        for (case, name, labels, owners, expected) in [
            ("plain", "team-a", with("", &[]), json!(null), true),
            ("exempt, even if it opts in", "openshift-etcd", with("true", &[]), json!(null), false),
            (
                "opted in, all labels the user's",
                "team-a",
                with("true", &ALL),
                owned_by("kubectl", &ALL),
                true,
            ),
            ("a name like ours", "openshift-custom", with("", &[]), json!(null), false),
            ("a name like ours, opted in", "openshift-operators", with("true", &[]), json!(null), false),
            ("unreadable owners", "team-a", with("", &[]), json!("?"), false),
            ("unreadable owners, opted in", "team-a", with("true", &[]), json!("?"), true),
            ("all labels the user's", "team-a", with("", &ALL), owned_by("kubectl", &ALL), false),
            ("one label missing", "team-a", with("", &ALL[1..]), owned_by("kubectl", &ALL), true),
            ("one label without an owner", "team-a", with("", &ALL), owned_by("kubectl", &ALL[1..]), true),
            (
                "labels of the former syncer",
                "team-a",
                with("", &ALL),
                owned_by("cluster-policy-controller", &ALL),
                true,
            ),
            ("opted out", "team-a", with("false", &[]), json!(null), false),
            ("neither true nor false", "team-a", with("no", &[]), json!(null), true),
        ] {
            assert_eq!(is_managed(name, &labels, &Ownership::read(&owners)), expected, "{case}");
        }
    }

    #[test]
    fn names_of_openshift_are_exempt() {
        for (name, expected) in [
            ("openshift", true),
            ("openshift-vsphere-infra", true),
            ("openshift-operators", true),
            ("openshiftish", false),
            ("config", false),
            ("kube-node-lease", true),
        ] {
            assert_eq!(is_exempt(name), expected, "{name}");
        }
    }
}
