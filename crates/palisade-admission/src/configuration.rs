//! `PodSecurityConfiguration`: defaults and exemptions of Pod Security Admission.
//!
//! Implements: `pod-security.admission.config.k8s.io` in its three versions, which have the same shape. Reading is
//! strict, as upstream's is; the texts of errors are upstream's.

use std::collections::BTreeSet;

use palisade_base::{
    field_error::{FieldError, aggregate},
    field_path::FieldPath,
    go::Quoted,
};
use palisade_policy::standards::{
    level::{Level, LevelVersion, Version},
    policy::{Exemptions, Policy},
};
use serde::Deserialize;
use thiserror::Error;

/// The API group of the configuration.
pub const GROUP: &str = "pod-security.admission.config.k8s.io";
const KIND: &str = "PodSecurityConfiguration";

/// Why a configuration cannot be used.
#[derive(Debug, Error)]
pub enum ConfigurationError {
    /// Not the kind of document it should be.
    #[error("expected {GROUP}/v1 {KIND}, found apiVersion {api_version:?} and kind {kind:?}")]
    WrongKind {
        /// The `apiVersion` found.
        api_version: String,
        /// The `kind` found.
        kind: String,
    },
    /// A level or version of the defaults cannot be read.
    #[error("PodSecurity configuration error: {0}")]
    Defaults(String),
    /// An exemption is not a name.
    #[error("PodSecurity invalid: {0}")]
    Invalid(String),
}

/// The document as written.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodSecurityConfiguration {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    defaults: Defaults,
    #[serde(default)]
    exemptions: ExemptionLists,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct Defaults {
    enforce: String,
    enforce_version: String,
    audit: String,
    audit_version: String,
    warn: String,
    warn_version: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ExemptionLists {
    usernames: Vec<String>,
    namespaces: Vec<String>,
    runtime_classes: Vec<String>,
}

impl PodSecurityConfiguration {
    /// The policy and the exemptions, if everything in the document can be read.
    pub fn resolve(&self) -> Result<(Policy, Exemptions), ConfigurationError> {
        let version = self.api_version.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix('/'));
        if self.kind != KIND || !matches!(version, Some("v1" | "v1beta1" | "v1alpha1")) {
            return Err(ConfigurationError::WrongKind {
                api_version: self.api_version.clone(),
                kind: self.kind.clone(),
            });
        }
        let policy = self.defaults.policy()?;
        let problems = self.exemptions.problems();
        if !problems.is_empty() {
            return Err(ConfigurationError::Invalid(aggregate(&problems)));
        }
        let exemptions = Exemptions {
            usernames: self.exemptions.usernames.clone(),
            namespaces: self.exemptions.namespaces.clone(),
            runtime_classes: self.exemptions.runtime_classes.clone(),
        };
        Ok((policy, exemptions))
    }
}

impl Defaults {
    fn policy(&self) -> Result<Policy, ConfigurationError> {
        let mut errors = Vec::new();
        let mut mode = |name: &str, level: &str, version: &str| {
            let level = if level.is_empty() { Ok(Level::Privileged) } else { level.parse() };
            let level = level.unwrap_or_else(|error| {
                errors.push(format!("{name}: {error}"));
                Level::Restricted
            });
            let version = if version.is_empty() { Ok(Version::Latest) } else { version.parse() };
            let version = version.unwrap_or_else(|error| {
                errors.push(format!("{name}-version: {error}"));
                Version::Latest
            });
            LevelVersion::new(level, version)
        };
        let policy = Policy {
            enforce: mode("enforce", &self.enforce, &self.enforce_version),
            audit: mode("audit", &self.audit, &self.audit_version),
            warn: mode("warn", &self.warn, &self.warn_version),
        };
        if errors.is_empty() { Ok(policy) } else { Err(ConfigurationError::Defaults(aggregate(&errors))) }
    }
}

impl ExemptionLists {
    fn problems(&self) -> Vec<FieldError> {
        let mut problems = Vec::new();
        let mut look = |list: &[String], field: &'static str, check: fn(&str) -> Option<String>| {
            let mut seen = BTreeSet::new();
            for (index, name) in list.iter().enumerate() {
                let at = FieldPath::of(&["exemptions"]).field(field).index(index);
                if let Some(text) = check(name) {
                    problems.push(FieldError::invalid(at, Quoted(name), text));
                } else if !seen.insert(name.as_str()) {
                    problems.push(FieldError::duplicate(at, Quoted(name)));
                }
            }
        };
        look(&self.namespaces, "namespaces", namespace_error);
        look(&self.runtime_classes, "runtimeClasses", |name| {
            let mut texts = Vec::new();
            if name.len() > 253 {
                texts.push("must be no more than 253 characters");
            }
            if !is_subdomain(name) {
                texts.push(SUBDOMAIN_TEXT);
            }
            (!texts.is_empty()).then(|| texts.join(", "))
        });
        look(&self.usernames, "usernames", |name| {
            name.is_empty().then(|| "username must not be empty".to_owned())
        });
        problems
    }
}

const LABEL_TEXT: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN_TEXT: &str = r"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

fn namespace_error(name: &str) -> Option<String> {
    let mut texts = Vec::new();
    if name.len() > 63 {
        texts.push("must be no more than 63 characters");
    }
    if !is_label(name) {
        texts.push(if is_subdomain(name) { "must not contain dots" } else { LABEL_TEXT });
    }
    (!texts.is_empty()).then(|| texts.join(", "))
}

fn is_label(text: &str) -> bool {
    let edge = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(edge)
        && bytes.last().is_some_and(edge)
        && bytes.iter().all(|b| edge(b) || *b == b'-')
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::PodSecurityConfiguration;

    fn resolve(body: &str) -> Result<String, String> {
        let text = format!(
            r#"{{"apiVersion":"pod-security.admission.config.k8s.io/v1","kind":"PodSecurityConfiguration"{body}}}"#
        );
        let config: PodSecurityConfiguration =
            serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let (policy, exemptions) = config.resolve().map_err(|error| error.to_string())?;
        Ok(format!("{} {} {} {exemptions:?}", policy.enforce, policy.audit, policy.warn))
    }

    #[test]
    fn reads_defaults_and_exemptions() {
        let text = resolve(
            r#","defaults":{"enforce":"baseline","enforce-version":"v1.30"},"exemptions":{"namespaces":["kube-system"]}"#,
        );
        let expected = r#"baseline:v1.30 privileged:latest privileged:latest Exemptions { usernames: [], namespaces: ["kube-system"], runtime_classes: [] }"#;
        assert_eq!(text.as_deref(), Ok(expected));
    }

    #[test]
    fn reports_what_is_wrong() {
        for (body, expected) in [
            (
                r#","defaults":{"enforce":"x"}"#,
                "PodSecurity configuration error: enforce: must be one of privileged, baseline, restricted",
            ),
            (
                r#","defaults":{"enforce":"x","warn-version":"y"}"#,
                "PodSecurity configuration error: [enforce: must be one of privileged, baseline, restricted, warn-version: must be \"latest\" or \"v1.x\"]",
            ),
            (
                r#","exemptions":{"namespaces":["a.b"]}"#,
                "PodSecurity invalid: exemptions.namespaces[0]: Invalid value: \"a.b\": must not contain dots",
            ),
            (
                r#","exemptions":{"usernames":["a","a"]}"#,
                "PodSecurity invalid: exemptions.usernames[1]: Duplicate value: \"a\"",
            ),
            (
                r#","exemptions":{"usernames":[""]}"#,
                "PodSecurity invalid: exemptions.usernames[0]: Invalid value: \"\": username must not be empty",
            ),
        ] {
            assert_eq!(resolve(body), Err(expected.to_owned()), "{body}");
        }
        assert!(resolve(r#","extra":1"#).is_err());
    }
}
