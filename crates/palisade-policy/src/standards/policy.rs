//! What the labels of a namespace request.
//!
//! Implements: Pod Security Admission, namespace labels and the defaults and exemptions of
//! `PodSecurityConfiguration`.

use palisade_base::{field_error::FieldError, field_path::FieldPath, go::Quoted};
use palisade_model::metadata::StringMap;

use super::level::{Level, LevelVersion, Version};

/// Prefix of every label.
pub const LABEL_PREFIX: &str = "pod-security.kubernetes.io/";

/// What to do with a pod that violates a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Refuse it.
    Enforce,
    /// Note it in the audit log.
    Audit,
    /// Warn the user.
    Warn,
}

impl Mode {
    /// All modes, in the order of their labels.
    pub const ALL: [Self; 3] = [Self::Enforce, Self::Audit, Self::Warn];

    /// As labels and configuration write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Audit => "audit",
            Self::Warn => "warn",
        }
    }

    /// The label of the level.
    #[must_use]
    pub const fn level_label(self) -> &'static str {
        match self {
            Self::Enforce => "pod-security.kubernetes.io/enforce",
            Self::Audit => "pod-security.kubernetes.io/audit",
            Self::Warn => "pod-security.kubernetes.io/warn",
        }
    }

    /// The label of the version.
    #[must_use]
    pub const fn version_label(self) -> &'static str {
        match self {
            Self::Enforce => "pod-security.kubernetes.io/enforce-version",
            Self::Audit => "pod-security.kubernetes.io/audit-version",
            Self::Warn => "pod-security.kubernetes.io/warn-version",
        }
    }
}

/// The level and version of every mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// What is refused.
    pub enforce: LevelVersion,
    /// What is noted.
    pub audit: LevelVersion,
    /// What is reported.
    pub warn: LevelVersion,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            enforce: LevelVersion::PRIVILEGED,
            audit: LevelVersion::PRIVILEGED,
            warn: LevelVersion::PRIVILEGED,
        }
    }
}

impl Policy {
    /// The level and version of a mode.
    #[must_use]
    pub const fn mode(&self, mode: Mode) -> LevelVersion {
        match mode {
            Mode::Enforce => self.enforce,
            Mode::Audit => self.audit,
            Mode::Warn => self.warn,
        }
    }

    /// Whether no mode requests anything.
    #[must_use]
    pub fn is_privileged(&self) -> bool {
        Mode::ALL.iter().all(|&mode| self.mode(mode).level == Level::Privileged)
    }

    /// Whether both allow the same in every mode.
    #[must_use]
    pub fn is_equivalent(&self, other: &Self) -> bool {
        Mode::ALL.iter().all(|&mode| self.mode(mode).is_equivalent(&other.mode(mode)))
    }

    /// Reads the labels of a namespace over the configured defaults. There is always a policy: a level that
    /// cannot be read fails closed for enforcing and open for warning, and is reported.
    #[must_use]
    pub fn from_labels(labels: &StringMap<'_>, defaults: &Self) -> (Self, Vec<FieldError>) {
        let mut policy = *defaults;
        let mut problems = Vec::new();
        for mode in Mode::ALL {
            let entry = match mode {
                Mode::Enforce => &mut policy.enforce,
                Mode::Audit => &mut policy.audit,
                Mode::Warn => &mut policy.warn,
            };
            if let Some(text) = labels.get(mode.level_label()) {
                entry.level = text.parse().unwrap_or_else(|error| {
                    problems.push(label_problem(mode.level_label(), text, &error));
                    if mode == Mode::Enforce { Level::Restricted } else { Level::Privileged }
                });
            }
            if let Some(text) = labels.get(mode.version_label()) {
                entry.version = text.parse().unwrap_or_else(|error| {
                    problems.push(label_problem(mode.version_label(), text, &error));
                    Version::Latest
                });
            }
        }
        // A level that is enforced is also warned about where it is not enforced: on workloads.
        // swallowed: a level that cannot be read is among the problems already
        let enforced =
            labels.get(Mode::Enforce.level_label()).is_some_and(|text| text.parse::<Level>().is_ok());
        let silent = !labels.contains(Mode::Warn.level_label());
        if enforced && silent && policy.enforce.level > policy.warn.level {
            policy.warn.level = policy.enforce.level;
            if !labels.contains(Mode::Warn.version_label()) {
                policy.warn.version = policy.enforce.version;
            }
        }
        (policy, problems)
    }
}

fn label_problem(label: &str, value: &str, error: &dyn std::fmt::Display) -> FieldError {
    let at = FieldPath::of(&["metadata", "labels"]).key(label);
    FieldError::invalid(at, Quoted(value), error.to_string())
}

/// Who and what is never judged. Names match exactly; an empty name never matches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exemptions {
    /// Users.
    pub usernames: Vec<String>,
    /// Namespaces.
    pub namespaces: Vec<String>,
    /// Runtime classes.
    pub runtime_classes: Vec<String>,
}

impl Exemptions {
    /// Whether a user is exempt.
    #[must_use]
    pub fn user(&self, name: &str) -> bool {
        contains(&self.usernames, name)
    }

    /// Whether a namespace is exempt.
    #[must_use]
    pub fn namespace(&self, name: &str) -> bool {
        contains(&self.namespaces, name)
    }

    /// Whether a runtime class is exempt.
    #[must_use]
    pub fn runtime_class(&self, name: Option<&str>) -> bool {
        name.is_some_and(|name| contains(&self.runtime_classes, name))
    }
}

fn contains(list: &[String], name: &str) -> bool {
    !name.is_empty() && list.iter().any(|entry| entry == name)
}

#[cfg(test)]
mod tests {
    use palisade_model::metadata::StringMap;

    use super::Policy;

    #[test]
    fn labels_become_a_policy() {
        for (labels, enforce, warn, audit, errors) in [
            ("", "privileged:latest", "privileged:latest", "privileged:latest", 0),
            ("enforce=baseline", "baseline:latest", "baseline:latest", "privileged:latest", 0),
            ("warn=restricted", "privileged:latest", "restricted:latest", "privileged:latest", 0),
            (
                "enforce=baseline,enforce-version=v1.22",
                "baseline:v1.22",
                "baseline:v1.22",
                "privileged:latest",
                0,
            ),
            (
                "enforce=baseline,enforce-version=v1.22,warn-version=latest",
                "baseline:v1.22",
                "baseline:latest",
                "privileged:latest",
                0,
            ),
            (
                "enforce=baseline,warn-version=v1.23",
                "baseline:latest",
                "baseline:v1.23",
                "privileged:latest",
                0,
            ),
            (
                "enforce=baseline,warn=privileged",
                "baseline:latest",
                "privileged:latest",
                "privileged:latest",
                0,
            ),
            ("enforce=baseline,warn=foo", "baseline:latest", "privileged:latest", "privileged:latest", 1),
            ("enforce=foo", "restricted:latest", "privileged:latest", "privileged:latest", 1),
            ("audit=x,audit-version=v2.0", "privileged:latest", "privileged:latest", "privileged:latest", 2),
        ] {
            let map: StringMap<'_> = labels
                .split(',')
                .filter_map(|label| label.split_once('='))
                .map(|(key, value)| (format!("pod-security.kubernetes.io/{key}").into(), value.into()))
                .collect();
            let (policy, problems) = Policy::from_labels(&map, &Policy::default());
            let texts = [policy.enforce, policy.warn, policy.audit].map(|entry| entry.to_string());
            assert_eq!(
                (texts, problems.len()),
                ([enforce, warn, audit].map(str::to_owned), errors),
                "{labels}"
            );
        }
    }
}
