//! `ProfilePolicy`: pods get the default profile of their namespace's policies and may name only allowed ones.
//!
//! A policy that cannot be read, or makes no sense, rejects the pods of the namespaces it selects; if its selector cannot be
//! read either, the pods of all namespaces. What it would have refused is not known.

use palisade_base::{
    field_error::{BadValue, FieldError, aggregate},
    field_path::FieldPath,
};
use palisade_model::{
    change::Change,
    compat::Compat,
    json::from_value,
    metadata::StringMap,
    pod::Pod,
    prepare::{Prepared, Subject},
};
use palisade_policy::profiles::policy::{LabelSelector, ProfilePolicy};
use serde_json::Value;
use thiserror::Error;

/// A stored policy, as far as it could be read.
#[derive(Debug, Clone)]
pub struct StoredPolicy {
    /// The namespaces it is for; `None` if it is for all, or if that cannot be read.
    selector: Option<LabelSelector>,
    read: Result<ProfilePolicy, UnusablePolicy>,
}

/// A policy that cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("ProfilePolicy {name:?} cannot be applied: {why}")]
pub struct UnusablePolicy {
    name: String,
    why: PolicyProblem,
}

/// Why a policy cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
enum PolicyProblem {
    /// The object cannot be read: as the reader reports it.
    #[error("{0}")]
    Unreadable(String),
    /// What is read makes no sense.
    #[error("{}", aggregate(.0))]
    Invalid(Vec<FieldError>),
}

impl StoredPolicy {
    /// Reads an object of the API.
    #[must_use]
    pub fn read(name: &str, object: &Value) -> Self {
        let why = match from_value::<ProfilePolicy>(object) {
            Ok(policy) => match policy.problems() {
                problems if problems.is_empty() => {
                    return Self { selector: policy.spec.namespace_selector.clone(), read: Ok(policy) };
                }
                problems => PolicyProblem::Invalid(problems),
            },
            Err(error) => PolicyProblem::Unreadable(error.to_string()),
        };
        let unusable = UnusablePolicy { name: name.to_owned(), why };
        Self { selector: selector(object), read: Err(unusable) }
    }

    /// A policy whose object is not even JSON.
    #[must_use]
    pub fn unreadable(name: &str, error: &str) -> Self {
        let why = PolicyProblem::Unreadable(error.to_owned());
        Self { selector: None, read: Err(UnusablePolicy { name: name.to_owned(), why }) }
    }
}

/// The selector of a policy that cannot be used as a whole, if it has one that can be.
fn selector(object: &Value) -> Option<LabelSelector> {
    let selector: LabelSelector = match object.pointer("/spec/namespaceSelector").map(from_value) {
        Some(Ok(selector)) => selector,
        // swallowed: a selector that cannot be read selects every namespace, whose pods are rejected
        None | Some(Err(_)) => return None,
    };
    let mut problems = Vec::new();
    selector.problems(&FieldPath::default(), &mut problems);
    problems.is_empty().then_some(selector)
}

/// What is wrong with a policy that is written.
#[must_use]
pub fn problems(object: &Value) -> Vec<FieldError> {
    match from_value::<ProfilePolicy>(object) {
        Ok(policy) => policy.problems(),
        Err(error) => {
            let shown = BadValue::Plain(object.get("spec").unwrap_or(&Value::Null).to_string());
            vec![FieldError::invalid(FieldPath::of(&["spec"]), shown, error.to_string())]
        }
    }
}

/// The policies for a namespace.
#[derive(Debug, Default)]
pub struct Selection<'p> {
    /// Those that can be applied, in the given order.
    pub policies: Vec<&'p ProfilePolicy>,
    /// What is wrong with the others: no pod is admitted as long as there are any.
    pub unusable: Vec<&'p UnusablePolicy>,
}

impl Selection<'_> {
    /// Why no pod can be admitted; `None` if every policy can be applied.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        let texts = || self.unusable.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        (!self.unusable.is_empty()).then(texts)
    }
}

/// The policies for a namespace.
#[must_use]
pub fn select<'p>(
    stored: impl IntoIterator<Item = &'p StoredPolicy>,
    namespace_labels: &StringMap<'_>,
) -> Selection<'p> {
    let mut selection = Selection::default();
    for StoredPolicy { selector, read } in stored {
        if selector.as_ref().is_some_and(|selector| !selector.matches(namespace_labels)) {
            continue;
        }
        match read {
            Ok(policy) => selection.policies.push(policy),
            Err(error) => selection.unusable.push(error),
        }
    }
    selection
}

/// What the policies write into a new pod.
pub fn defaults(
    policies: &[&ProfilePolicy],
    object: &Value,
    compat: &Compat,
) -> Result<Vec<Change>, serde_json::Error> {
    let mut changes = Vec::new();
    let mut object = object.clone();
    for policy in policies {
        let made = {
            let pod = from_value::<Pod<'_>>(&object)?;
            policy.defaults(&Prepared::new(pod, Subject::Pod, compat))
        };
        for change in &made {
            change.apply(&mut object);
        }
        changes.extend(made);
    }
    Ok(changes)
}

/// Why the policies refuse a pod; `None` if they do not.
#[must_use]
pub fn refusal(policies: &[&ProfilePolicy], pod: &Prepared<'_>) -> Option<String> {
    let violations: Vec<String> = policies
        .iter()
        .flat_map(|policy| policy.violations(pod))
        .map(|violation| format!("{}: {}", violation.at, violation.message))
        .collect();
    (!violations.is_empty()).then(|| violations.join(", "))
}
