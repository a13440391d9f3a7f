//! `SyscallGuard`, our cluster-scoped resource: system calls that no container may make.
//!
//! A guard closes a hole of the kernel on running clusters, without changes to workloads: calls with arguments, a reason, an end, and
//! exceptions. It counts from when it is written to its end; a guard that cannot be read never counts as one that is in force. What it
//! does to a profile is in [`crate::profile::guard`], who applies it in `palisade-node`.

use std::collections::BTreeMap;

use palisade_base::{
    label_selector::{LabelSelector, Operator},
    time::{self, Time, TimeError},
};
use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use crate::{
    json::from_value,
    profile::call_pattern::{CallPattern, PatternError},
};

/// Group and version of the resource.
pub const API_VERSION: &str = "palisade.dev/v1alpha1";
/// Kind of the resource.
pub const KIND: &str = "SyscallGuard";
/// Name of the resource in requests.
pub const RESOURCE: &str = "syscallguards";

/// The longest list in a guard.
const MOST: usize = 64;
/// The longest text in a guard.
const LONGEST: usize = 1024;

/// Calls that no container may make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyscallGuard {
    /// Its name.
    pub name: String,
    /// What is forbidden.
    pub calls: Vec<CallPattern>,
    /// Why, such as a CVE.
    pub reason: String,
    /// The moment it stops counting.
    pub until: Time,
    /// Containers it is not for.
    pub exceptions: Vec<GuardException>,
}

/// Containers that a guard is not for. Everything that is set must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardException {
    /// Namespaces by name; empty: the selector alone decides.
    pub namespaces: Vec<String>,
    /// Namespaces by label.
    pub namespace_selector: Option<LabelSelector>,
    /// Labels of the pod. They are its author's, so this narrows an exception without guarding it.
    pub pod_selector: Option<LabelSelector>,
    /// Why.
    pub reason: String,
}

/// What decides whether a guard is for a container.
#[derive(Debug, Clone, Copy)]
pub struct GuardSubject<'a> {
    /// The namespace of its pod.
    pub namespace: &'a str,
    /// The labels of that; none if they are not known, so that no exception by label holds.
    pub namespace_labels: Option<&'a BTreeMap<String, String>>,
    /// The labels of its pod.
    pub pod_labels: &'a BTreeMap<String, String>,
}

/// Why an object is no guard that can be applied.
#[derive(Debug, Error)]
pub enum GuardObjectError {
    /// Not of the shape of the resource.
    #[error("cannot be decoded: {0}")]
    Undecodable(#[source] serde_json::Error),
    /// A field is empty.
    #[error("{0}: is required")]
    Required(String),
    /// A list or a text is too long.
    #[error("{0}: is too long")]
    TooLong(String),
    /// A call is no pattern.
    #[error("spec.calls[{index}]: {source}")]
    Call {
        /// Its position.
        index: usize,
        /// Why.
        source: PatternError,
    },
    /// The end is no time.
    #[error("spec.until: {0}")]
    Until(#[from] TimeError),
    /// An exception that selects no namespaces would be for every pod whose author wants it.
    #[error("spec.exceptions[{0}]: namespaces or a namespaceSelector with requirements must be set")]
    Everywhere(usize),
    /// A selector with an unknown operator, or with values that do not belong to it.
    #[error("{at}: {operator:?} is not an operator with {values} values")]
    Selector {
        /// The field.
        at: String,
        /// The operator.
        operator: String,
        /// How many values it has.
        values: usize,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Object {
    metadata: Metadata,
    spec: Spec,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Spec {
    calls: Vec<String>,
    reason: String,
    until: String,
    #[serde(default)]
    exceptions: Vec<SpecException>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SpecException {
    #[serde(default)]
    namespaces: Vec<String>,
    namespace_selector: Option<Value>,
    pod_selector: Option<Value>,
    reason: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct SpecSelector {
    match_labels: BTreeMap<String, String>,
    match_expressions: Vec<SpecRequirement>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SpecRequirement {
    key: String,
    operator: String,
    #[serde(default)]
    values: Vec<String>,
}

fn text(at: &str, text: &str) -> Result<(), GuardObjectError> {
    match text.trim() {
        "" => Err(GuardObjectError::Required(at.to_owned())),
        _ if text.len() > LONGEST => Err(GuardObjectError::TooLong(at.to_owned())),
        _ => Ok(()),
    }
}

fn count(at: &str, count: usize) -> Result<(), GuardObjectError> {
    if count > MOST { Err(GuardObjectError::TooLong(at.to_owned())) } else { Ok(()) }
}

/// A selector all of whose parts have a meaning.
pub(crate) fn selector(at: &str, object: Option<&Value>) -> Result<Option<LabelSelector>, GuardObjectError> {
    let Some(object) = object else { return Ok(None) };
    let read: SpecSelector = from_value(object).map_err(GuardObjectError::Undecodable)?;
    count(at, read.match_labels.len() + read.match_expressions.len())?;
    for SpecRequirement { key, operator, values } in &read.match_expressions {
        text(&format!("{at}.matchExpressions.key"), key)?;
        let wants_values = match Operator::of_labels(operator) {
            Some(Operator::In | Operator::NotIn) => Some(true),
            Some(_) => Some(false),
            None => None,
        };
        if wants_values != Some(!values.is_empty()) {
            let (at, operator) = (at.to_owned(), operator.clone());
            return Err(GuardObjectError::Selector { at, operator, values: values.len() });
        }
    }
    Ok(Some(LabelSelector::from_object(object)))
}

impl SyscallGuard {
    /// Reads an object of the API.
    pub fn read(object: &Value) -> Result<Self, GuardObjectError> {
        let Object { metadata, spec } = from_value(object).map_err(GuardObjectError::Undecodable)?;
        if spec.calls.is_empty() {
            return Err(GuardObjectError::Required("spec.calls".to_owned()));
        }
        count("spec.calls", spec.calls.len())?;
        count("spec.exceptions", spec.exceptions.len())?;
        text("spec.reason", &spec.reason)?;
        let mut calls = Vec::with_capacity(spec.calls.len());
        for (index, call) in spec.calls.iter().enumerate() {
            calls.push(CallPattern::parse(call).map_err(|source| GuardObjectError::Call { index, source })?);
        }
        let mut exceptions = Vec::with_capacity(spec.exceptions.len());
        for (index, exception) in spec.exceptions.into_iter().enumerate() {
            let at = format!("spec.exceptions[{index}]");
            text(&format!("{at}.reason"), &exception.reason)?;
            count(&format!("{at}.namespaces"), exception.namespaces.len())?;
            for name in &exception.namespaces {
                text(&format!("{at}.namespaces"), name)?;
            }
            let namespace_selector =
                selector(&format!("{at}.namespaceSelector"), exception.namespace_selector.as_ref())?;
            let pod_selector = selector(&format!("{at}.podSelector"), exception.pod_selector.as_ref())?;
            if exception.namespaces.is_empty()
                && namespace_selector.as_ref().is_none_or(LabelSelector::is_empty)
            {
                return Err(GuardObjectError::Everywhere(index));
            }
            exceptions.push(GuardException {
                namespaces: exception.namespaces,
                namespace_selector,
                pod_selector,
                reason: exception.reason,
            });
        }
        let until = time::parse(&spec.until)?;
        Ok(Self { name: metadata.name, calls, reason: spec.reason, until, exceptions })
    }

    /// Whether the guard counts at a moment. At its end it does not count any more.
    #[must_use]
    pub fn counts_at(&self, now: Time) -> bool {
        now < self.until
    }

    /// The exception that a container has, if it has one.
    #[must_use]
    pub fn exception(&self, subject: &GuardSubject<'_>) -> Option<&GuardException> {
        self.exceptions.iter().find(|exception| exception.holds(subject))
    }
}

impl GuardException {
    fn holds(&self, subject: &GuardSubject<'_>) -> bool {
        let fits = |selector: &LabelSelector, labels: &BTreeMap<String, String>| {
            selector.matches_with(|key| labels.get(key).map(String::as_str))
        };
        let by_name =
            self.namespaces.is_empty() || self.namespaces.iter().any(|name| name == subject.namespace);
        let by_label = self
            .namespace_selector
            .as_ref()
            .is_none_or(|selector| subject.namespace_labels.is_some_and(|labels| fits(selector, labels)));
        by_name
            && by_label
            && self.pod_selector.as_ref().is_none_or(|selector| fits(selector, subject.pod_labels))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn guard(spec: &Value) -> Value {
        json!({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "g"}, "spec": spec})
    }

    fn spec(change: impl FnOnce(&mut Value)) -> Value {
        let mut spec = json!({"calls": ["socket(AF_ALG, *, *)"], "reason": "CVE-2026-0001", "until": "2030-01-01T00:00:00Z",
            "exceptions": [{"namespaces": ["storage"], "reason": "encrypts"}]});
        change(&mut spec);
        spec
    }

    #[test]
    fn a_guard_that_is_not_whole_is_an_error() {
        let read = |spec: &Value| SyscallGuard::read(&guard(spec)).map_err(|error| error.to_string());
        assert_eq!(read(&spec(|_| ())).unwrap().calls.len(), 1);
        for (expected, spec) in [
            (
                "cannot be decoded: missing field `until`",
                spec(|spec| drop(spec.as_object_mut().unwrap().remove("until"))),
            ),
            ("cannot be decoded: unknown field `call`", spec(|spec| spec["call"] = json!("x"))),
            ("spec.calls: is required", spec(|spec| spec["calls"] = json!([]))),
            ("spec.calls: is too long", spec(|spec| spec["calls"] = json!(vec!["ptrace"; 65]))),
            (
                "spec.calls[1]: \"sockett\" is not a system call",
                spec(|spec| spec["calls"] = json!(["ptrace", "sockett(1)"])),
            ),
            ("spec.reason: is required", spec(|spec| spec["reason"] = json!(" "))),
            ("spec.until: parsing time \"soon\"", spec(|spec| spec["until"] = json!("soon"))),
            (
                "spec.exceptions[0].reason: is required",
                spec(|spec| spec["exceptions"][0]["reason"] = json!("")),
            ),
            (
                "spec.exceptions[0]: namespaces or",
                spec(|spec| spec["exceptions"][0]["namespaces"] = json!([])),
            ),
            (
                "spec.exceptions[0]: namespaces or",
                spec(|spec| {
                    spec["exceptions"][0] =
                        json!({"namespaceSelector": {}, "podSelector": {}, "reason": "r"});
                }),
            ),
            (
                "spec.exceptions[0].podSelector: \"Near\" is not an operator",
                spec(|spec| {
                    spec["exceptions"][0]["podSelector"] =
                        json!({"matchExpressions": [{"key": "a", "operator": "Near"}]});
                }),
            ),
            (
                "spec.exceptions[0].namespaceSelector: \"In\" is not an operator with 0 values",
                spec(|spec| {
                    spec["exceptions"][0]["namespaceSelector"] =
                        json!({"matchExpressions": [{"key": "a", "operator": "In"}]});
                }),
            ),
            (
                "cannot be decoded",
                spec(|spec| spec["exceptions"][0]["podSelector"] = json!({"matchLabel": {}})),
            ),
        ] {
            let error = read(&spec).unwrap_err();
            assert!(error.starts_with(expected), "{expected}: {error}");
        }
    }

    #[test]
    fn an_exception_holds_where_everything_it_names_holds() {
        let exception = |exception: Value| {
            SyscallGuard::read(&guard(&spec(|spec| spec["exceptions"] = json!([exception])))).unwrap()
        };
        let labels = |text: &str| BTreeMap::from([("team".to_owned(), text.to_owned())]);
        let by_label = json!({"namespaceSelector": {"matchLabels": {"team": "a"}}, "reason": "r"});
        let by_both = json!({"namespaces": ["n"], "podSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]},
            "reason": "r"});
        for (case, object, namespace, of_namespace, of_pod, expected) in [
            ("by name", json!({"namespaces": ["n"], "reason": "r"}), "n", None, "", true),
            ("another name", json!({"namespaces": ["n"], "reason": "r"}), "m", None, "", false),
            ("by label", by_label.clone(), "n", Some("a"), "", true),
            ("another label", by_label.clone(), "n", Some("b"), "", false),
            ("labels that are not known", by_label, "n", None, "", false),
            ("by both", by_both.clone(), "n", None, "x", true),
            ("not without the label of the pod", by_both.clone(), "n", None, "", false),
            ("not in another namespace", by_both, "m", None, "x", false),
        ] {
            let (namespaced, pod) =
                (of_namespace.map(labels), if of_pod.is_empty() { BTreeMap::new() } else { labels(of_pod) });
            let subject = GuardSubject { namespace, namespace_labels: namespaced.as_ref(), pod_labels: &pod };
            assert_eq!(exception(object).exception(&subject).is_some(), expected, "{case}");
        }
    }

    #[test]
    fn a_guard_ends_at_its_end() {
        let guard = SyscallGuard::read(&guard(&spec(|_| ()))).unwrap();
        let end = time::parse("2030-01-01T00:00:00Z").unwrap();
        assert!(!guard.counts_at(end) && guard.counts_at(Time { seconds: end.seconds - 1, ..end }));
    }
}
