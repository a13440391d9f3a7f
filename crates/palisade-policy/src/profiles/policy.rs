//! `ProfilePolicy`, our cluster-scoped resource: rules for the namespaces its selector picks.

use std::collections::{BTreeMap, BTreeSet};

use palisade_base::{field_error::FieldError, field_path::FieldPath, go::Quoted};
use palisade_model::{
    change::Change,
    metadata::StringMap,
    prepare::Prepared,
    profile::{baseline::Baseline, kind},
};
use serde::Deserialize;

use super::rules::{Mechanism, ProfileRules, ProfileViolation};

/// Group and version of the resource.
pub const API_VERSION: &str = "palisade.dev/v1alpha1";
/// Kind of the resource.
pub const KIND: &str = "ProfilePolicy";

/// The resource, as far as it decides anything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ProfilePolicy {
    /// Its name.
    pub metadata: PolicyMeta,
    /// Its rules.
    pub spec: ProfilePolicySpec,
}

/// Metadata of a policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PolicyMeta {
    /// Its name.
    pub name: String,
}

/// `spec` of a [`ProfilePolicy`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ProfilePolicySpec {
    /// The namespaces it is for; no selector means all.
    pub namespace_selector: Option<LabelSelector>,
    /// Rules for seccomp.
    pub seccomp: Option<ProfileRules>,
    /// Rules for AppArmor.
    pub app_armor: Option<ProfileRules>,
}

/// Kubernetes' label selector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LabelSelector {
    /// Labels that must have these values.
    pub match_labels: BTreeMap<String, String>,
    /// Further demands on labels.
    pub match_expressions: Vec<Requirement>,
}

/// One demand on a label.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Requirement {
    /// The label.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// Values for the first two.
    pub values: Vec<String>,
}

/// Of a selector that no namespace can match: the policy would never be applied.
const NOT_A_LABEL: &str = "must be the key of a label: letters, digits, '-', '_' or '.', at most 63, after an optional DNS subdomain and '/'";
const NOT_A_VALUE: &str = "must be the value of a label: letters, digits, '-', '_' or '.', at most 63, with a letter or digit at either end";

fn is_label_key(key: &str) -> bool {
    let is_subdomain = |prefix: &str| {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let part = |part: &str| {
            let bytes = part.as_bytes();
            bytes.first().is_some_and(|&b| plain(b))
                && bytes.last().is_some_and(|&b| plain(b))
                && bytes.iter().all(|&b| plain(b) || b == b'-')
        };
        prefix.len() <= 253 && prefix.split('.').all(part)
    };
    match key.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && !name.is_empty() && is_label_value(name),
        None => !key.is_empty() && is_label_value(key),
    }
}

fn is_label_value(value: &str) -> bool {
    let (bytes, edge) = (value.as_bytes(), |b: Option<&u8>| b.is_none_or(u8::is_ascii_alphanumeric));
    value.len() <= 63
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|&b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

impl LabelSelector {
    /// What is wrong with the selector. Implements: `ValidateLabelSelector` of apimachinery.
    pub fn problems(&self, at: &FieldPath, problems: &mut Vec<FieldError>) {
        for (key, value) in &self.match_labels {
            let at = at.clone().field("matchLabels");
            if !is_label_key(key) {
                problems.push(FieldError::invalid(at.clone(), Quoted(key), NOT_A_LABEL));
            }
            if !is_label_value(value) {
                problems.push(FieldError::invalid(at.key(key), Quoted(value), NOT_A_VALUE));
            }
        }
        for (index, Requirement { key, operator, values }) in self.match_expressions.iter().enumerate() {
            let at = at.clone().field("matchExpressions").index(index);
            if key.is_empty() {
                problems.push(FieldError::required(at.clone().field("key"), ""));
            } else if !is_label_key(key) {
                problems.push(FieldError::invalid(at.clone().field("key"), Quoted(key), NOT_A_LABEL));
            }
            for (index, value) in values.iter().enumerate().filter(|(_, value)| !is_label_value(value)) {
                let at = at.clone().field("values").index(index);
                problems.push(FieldError::invalid(at, Quoted(value), NOT_A_VALUE));
            }
            match operator.as_str() {
                "In" | "NotIn" if values.is_empty() => problems.push(FieldError::required(
                    at.field("values"),
                    "must be specified when `operator` is 'In' or 'NotIn'",
                )),
                "Exists" | "DoesNotExist" if !values.is_empty() => problems.push(FieldError::forbidden(
                    at.field("values"),
                    "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                )),
                "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
                other => problems.push(FieldError::invalid(
                    at.field("operator"),
                    Quoted(other),
                    "not a valid selector operator",
                )),
            }
        }
    }

    /// Whether labels meet every demand; an operator that does not exist matches nothing.
    #[must_use]
    pub fn matches(&self, labels: &StringMap<'_>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value.as_str()))
            && self.match_expressions.iter().all(|requirement| {
                let value = labels.get(&requirement.key);
                let listed = value.is_some_and(|value| requirement.values.iter().any(|entry| entry == value));
                match requirement.operator.as_str() {
                    "In" => listed,
                    "NotIn" => !listed,
                    "Exists" => value.is_some(),
                    "DoesNotExist" => value.is_none(),
                    _ => false,
                }
            })
    }
}

/// What profiles from ConfigMaps are combined with in a namespace with these policies: everything that they name. `None` if no
/// policy lists the type `ConfigMap`: then such profiles are not allowed at all.
#[must_use]
pub fn config_map_baseline(policies: &[&ProfilePolicy]) -> Option<Baseline> {
    baseline_of(policies, &[kind::CONFIG_MAP])
}

/// The same for every profile that users of a namespace choose the content of. `None` if no policy lists one of their types.
#[must_use]
pub fn tenant_baseline(policies: &[&ProfilePolicy]) -> Option<Baseline> {
    baseline_of(policies, &[kind::CONFIG_MAP, kind::OCI])
}

fn baseline_of(policies: &[&ProfilePolicy], kinds: &[&str]) -> Option<Baseline> {
    let rules: Vec<&ProfileRules> =
        policies.iter().filter_map(|policy| policy.spec.seccomp.as_ref()).collect();
    let allowed = rules.iter().any(|rules| kinds.iter().any(|kind| rules.allows(kind)));
    let profiles: BTreeSet<_> = rules.iter().filter_map(|rules| rules.baseline_profile()).collect();
    allowed.then(|| Baseline::of(profiles))
}

impl ProfilePolicy {
    /// Whether the policy is for a namespace with these labels.
    #[must_use]
    pub fn selects(&self, namespace_labels: &StringMap<'_>) -> bool {
        self.spec.namespace_selector.as_ref().is_none_or(|selector| selector.matches(namespace_labels))
    }

    /// What is wrong with the policy itself. A policy with a problem is rejected when it is written, and one that is stored
    /// all the same rejects the pods it is for: a rule that cannot be applied must not count as a rule that allows.
    #[must_use]
    pub fn problems(&self) -> Vec<FieldError> {
        let spec = FieldPath::of(&["spec"]);
        let mut problems = Vec::new();
        if let Some(selector) = &self.spec.namespace_selector {
            selector.problems(&spec.clone().field("namespaceSelector"), &mut problems);
        }
        for (mechanism, rules) in self.rules() {
            let field = match mechanism {
                Mechanism::Seccomp => "seccomp",
                Mechanism::AppArmor => "appArmor",
            };
            problems.extend(rules.problems(mechanism, &spec.clone().field(field)));
        }
        problems
    }

    /// The writes that give a pod its defaults.
    #[must_use]
    pub fn defaults(&self, pod: &Prepared<'_>) -> Vec<Change> {
        self.rules().filter_map(|(mechanism, rules)| rules.defaults(mechanism, pod)).collect()
    }

    /// Every profile of a pod that the policy does not allow.
    #[must_use]
    pub fn violations(&self, pod: &Prepared<'_>) -> Vec<ProfileViolation> {
        let name = format!("ProfilePolicy {:?}", self.metadata.name);
        self.rules().flat_map(|(mechanism, rules)| rules.violations(mechanism, pod, &name)).collect()
    }

    fn rules(&self) -> impl Iterator<Item = (Mechanism, &ProfileRules)> {
        [(Mechanism::Seccomp, &self.spec.seccomp), (Mechanism::AppArmor, &self.spec.app_armor)]
            .into_iter()
            .filter_map(|(mechanism, rules)| Some((mechanism, rules.as_ref()?)))
    }
}
