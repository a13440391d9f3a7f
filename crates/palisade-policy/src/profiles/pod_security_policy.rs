//! The seccomp and AppArmor strategies of `policy/v1beta1` PodSecurityPolicy.
//!
//! Implements: the annotations that v1.19 to v1.24 read, with their exact texts, and `spec.seccomp` of the seccomp
//! design, which no release had. With Palisade's extensions both forms are read into [`ProfileRules`]; a release checks one
//! value per subject, the annotation before the field for a pod and the field before the annotation for a container.

use palisade_base::{field_error::FieldError, field_path::FieldPath, go::Quoted};
use palisade_model::{
    change::{Change, NewValue},
    compat::Compat,
    pod_view::PodView,
    prepare::Prepared,
    profile::{ProfileRef, apparmor, seccomp},
    security_context::ProfileField,
};
use serde::Deserialize;
use serde_json::Value;

use super::rules::{DefaultProfile, Mechanism, ProfileRules, ProfileSet, ProfileViolation};

const SECCOMP_ALLOWED: &str = "seccomp.security.alpha.kubernetes.io/allowedProfileNames";
const SECCOMP_DEFAULT: &str = "seccomp.security.alpha.kubernetes.io/defaultProfileName";
const APP_ARMOR_ALLOWED: &str = "apparmor.security.beta.kubernetes.io/allowedProfileNames";
const APP_ARMOR_DEFAULT: &str = "apparmor.security.beta.kubernetes.io/defaultProfileName";

/// The rules of a PodSecurityPolicy for profiles.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProfileStrategies {
    name: String,
    seccomp_allowed: Option<String>,
    seccomp_default: Option<String>,
    app_armor_allowed: Option<String>,
    app_armor_default: Option<String>,
    seccomp_field: Option<ProfileRules>,
}

impl ProfileStrategies {
    /// Reads the policy object. `spec.seccomp` that cannot be read is the error.
    pub fn read(policy: &Value) -> Result<Self, serde_json::Error> {
        let annotation = |key: &str| {
            policy
                .pointer("/metadata/annotations")
                .and_then(|map| map.get(key))
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        let seccomp_field = match policy.pointer("/spec/seccomp") {
            None | Some(Value::Null) => None,
            Some(strategy) => Some(ProfileRules::deserialize(strategy)?),
        };
        Ok(Self {
            name: policy.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned(),
            seccomp_allowed: annotation(SECCOMP_ALLOWED),
            seccomp_default: annotation(SECCOMP_DEFAULT).filter(|value| !value.is_empty()),
            app_armor_allowed: annotation(APP_ARMOR_ALLOWED),
            app_armor_default: annotation(APP_ARMOR_DEFAULT).filter(|value| !value.is_empty()),
            seccomp_field,
        })
    }

    /// What an API server refuses in the policy object itself. That a default must be allowed is the design's rule; the
    /// releases store such a policy, and it admits nothing.
    #[must_use]
    pub fn problems(&self, compat: &Compat) -> Vec<FieldError> {
        let mut problems = Vec::new();
        let at = |key: &str| FieldPath::of(&["metadata", "annotations"]).key(key);
        let mut seccomp_names = |key: &str, names: &str| {
            for name in names.split(',').filter(|name| *name != "*") {
                let path = name.strip_prefix("localhost/");
                if let Some(path) = path {
                    if path.starts_with('/') {
                        problems.push(FieldError::invalid(at(key), Quoted(path), "must be a relative path"));
                    }
                    if path.split('/').any(|element| element == "..") {
                        problems.push(FieldError::invalid(at(key), Quoted(path), "must not contain '..'"));
                    }
                } else if !matches!(name, "unconfined" | "runtime/default" | "docker/default") {
                    problems.push(FieldError::invalid(
                        at(key),
                        Quoted(name),
                        "must be a valid seccomp profile",
                    ));
                }
            }
        };
        if let Some(name) = &self.seccomp_default {
            seccomp_names(SECCOMP_DEFAULT, name);
        }
        if let Some(names) = self.seccomp_allowed.as_deref().filter(|names| !names.is_empty()) {
            seccomp_names(SECCOMP_ALLOWED, names);
        }
        for (key, names) in
            [(APP_ARMOR_DEFAULT, &self.app_armor_default), (APP_ARMOR_ALLOWED, &self.app_armor_allowed)]
        {
            let Some(names) = names.as_deref().filter(|names| !names.is_empty()) else { continue };
            for name in names.split(',').filter(|name| !apparmor::is_valid_annotation(name)) {
                let detail = format!("invalid AppArmor profile name: {}", Quoted(name));
                problems.push(FieldError::invalid(at(key), Quoted(names), detail));
            }
        }
        if let Some(rules) = &self.seccomp_field {
            let path = FieldPath::of(&["spec", "seccomp"]);
            problems.extend(rules.problems(Mechanism::Seccomp, &path));
            if self.annotated_seccomp_rules().is_some_and(|annotated| annotated != *rules) {
                problems.push(FieldError::forbidden(path, "seccomp in annotations and field must match"));
            }
        }
        if compat.is_designs() && problems.is_empty() {
            let seccomp = self.seccomp_default.as_ref().filter(|_| self.seccomp_field.is_none());
            for (key, default, rules) in [
                (SECCOMP_DEFAULT, seccomp, self.seccomp_rules()),
                (APP_ARMOR_DEFAULT, self.app_armor_default.as_ref(), self.app_armor_rules()),
            ] {
                let Some(default) = default else { continue };
                if let Some(detail) = rules.refuses_default() {
                    problems.push(FieldError::invalid(at(key), Quoted(default), detail));
                }
            }
        }
        problems
    }

    /// The rules with Palisade's extensions: the field, or the annotations.
    #[must_use]
    pub fn seccomp_rules(&self) -> ProfileRules {
        let nothing_may_be_set =
            || ProfileRules { allowed_profiles: Some(ProfileSet::default()), ..ProfileRules::default() };
        self.seccomp_field
            .clone()
            .or_else(|| self.annotated_seccomp_rules())
            .unwrap_or_else(nothing_may_be_set)
    }

    fn annotated_seccomp_rules(&self) -> Option<ProfileRules> {
        if self.seccomp_allowed.is_none() && self.seccomp_default.is_none() {
            return None;
        }
        let default = self.seccomp_default.as_deref().and_then(seccomp::from_annotation);
        Some(ProfileRules {
            default_profile: default.map(|reference| DefaultProfile::of(&reference)),
            allowed_profiles: rules_of_names(
                self.seccomp_allowed.as_deref().unwrap_or_default(),
                seccomp::from_annotation,
            ),
            baseline: None,
        })
    }

    /// The same for AppArmor.
    #[must_use]
    pub fn app_armor_rules(&self) -> ProfileRules {
        let default = self.app_armor_default.as_deref().and_then(apparmor::from_annotation);
        ProfileRules {
            default_profile: default.map(|reference| DefaultProfile::of(&reference)),
            allowed_profiles: self
                .app_armor_allowed
                .as_deref()
                .and_then(|names| rules_of_names(names, apparmor::from_annotation)),
            baseline: None,
        }
    }

    /// The writes that give a pod its defaults: fields with Palisade's extensions, annotations in a release.
    #[must_use]
    pub fn defaults(&self, pod: &Prepared<'_>) -> Vec<Change> {
        let (view, compat) = (&pod.view(), pod.compat());
        if compat.is_designs() {
            return [
                (Mechanism::Seccomp, self.seccomp_rules()),
                (Mechanism::AppArmor, self.app_armor_rules()),
            ]
            .into_iter()
            .filter_map(|(mechanism, rules)| rules.defaults(mechanism, pod))
            .collect();
        }
        let mut changes = Vec::new();
        let annotations = &view.metadata().annotations;
        let empty = |key: &str| annotations.get(key).is_none_or(str::is_empty);
        let annotate =
            |key: &str, value: String| Change { at: view.annotation_path(key), to: NewValue::Text(value) };
        if empty(seccomp::POD_ANNOTATION) {
            let of_field = view
                .security_context()
                .and_then(|context| context.seccomp_profile.as_ref())
                .and_then(ProfileField::reference)
                .map(|reference| reference.to_annotation());
            if let Some(value) = of_field.or_else(|| self.seccomp_default.clone()) {
                changes.push(annotate(seccomp::POD_ANNOTATION, value));
            }
        }
        if let Some(default) = &self.app_armor_default {
            for container in view.containers() {
                let key = apparmor::annotation(container.name());
                if empty(&key) {
                    changes.push(annotate(&key, default.clone()));
                }
            }
        }
        changes
    }

    /// What the policy refuses in a pod. The paths begin with `pod`, as upstream's do.
    #[must_use]
    pub fn violations(&self, pod: &Prepared<'_>) -> Vec<FieldError> {
        let (view, compat) = (&pod.view(), pod.compat());
        if compat.is_designs() {
            let name = format!("PodSecurityPolicy {:?}", self.name);
            let rules =
                [(Mechanism::Seccomp, self.seccomp_rules()), (Mechanism::AppArmor, self.app_armor_rules())];
            return rules
                .iter()
                .flat_map(|(mechanism, rules)| rules.violations(*mechanism, pod, &name))
                .map(|ProfileViolation { at, message }| FieldError::forbidden(at, message))
                .collect();
        }
        let mut problems = Vec::new();
        self.release_seccomp(view, &mut problems);
        self.release_app_armor(view, &mut problems);
        problems
    }

    fn release_seccomp(&self, view: &PodView<'_, '_>, problems: &mut Vec<FieldError>) {
        let annotations = &view.metadata().annotations;
        let of_field = |field: Option<&ProfileField<'_>>| {
            field.and_then(ProfileField::reference).map(|reference| reference.to_annotation())
        };
        let of_pod = of_field(view.security_context().and_then(|context| context.seccomp_profile.as_ref()));
        let pod_annotation = annotations.get(seccomp::POD_ANNOTATION).filter(|value| !value.is_empty());
        let mut check = |key: &str, value: &str| {
            if let Some(detail) = self.refuses_seccomp(value) {
                problems.push(forbidden_annotation(view, key, detail));
            }
        };
        check(
            seccomp::POD_ANNOTATION,
            &pod_annotation.map(str::to_owned).or_else(|| of_pod.clone()).unwrap_or_default(),
        );
        for container in view.containers() {
            let key = seccomp::container_annotation(container.name());
            let field =
                of_field(container.security_context().and_then(|context| context.seccomp_profile.as_ref()));
            let value = field
                .or_else(|| annotations.get(&key).map(str::to_owned))
                .or_else(|| of_pod.clone())
                .or_else(|| annotations.get(seccomp::POD_ANNOTATION).map(str::to_owned))
                .unwrap_or_default();
            check(&key, &value);
        }
    }

    fn refuses_seccomp(&self, value: &str) -> Option<String> {
        let list = self.seccomp_allowed.as_deref().unwrap_or_default();
        if list.is_empty() {
            return (!value.is_empty()).then(|| "seccomp may not be set".to_owned());
        }
        let same = |a: &str, b: &str| {
            let canonical = |name: &str| {
                if name == "docker/default" { "runtime/default".to_owned() } else { name.to_owned() }
            };
            canonical(a) == canonical(b)
        };
        let allowed = list.split(',').any(|entry| entry == "*" || same(entry, value));
        (!allowed).then(|| format!("{value} is not an allowed seccomp profile. Valid values are {list}"))
    }

    fn release_app_armor(&self, view: &PodView<'_, '_>, problems: &mut Vec<FieldError>) {
        let Some(list) = &self.app_armor_allowed else { return };
        for container in view.containers() {
            let key = apparmor::annotation(container.name());
            let value = view.metadata().annotations.get(&key).unwrap_or_default();
            if value.is_empty() {
                problems.push(forbidden_annotation(view, &key, "AppArmor profile must be set".to_owned()));
            } else if !list.split(',').any(|entry| entry == value) {
                let detail = format!("{value} is not an allowed profile. Allowed values: {}", Quoted(list));
                problems.push(forbidden_annotation(view, &key, detail));
            }
        }
    }
}

fn forbidden_annotation(view: &PodView<'_, '_>, key: &str, detail: String) -> FieldError {
    FieldError::forbidden(view.annotation_path(key), detail)
        .called(format!("pod.metadata.annotations[{key}]"))
}

/// A list of annotation values as a set of profiles; `*` allows everything, which is no set at all.
fn rules_of_names(list: &str, read: fn(&str) -> Option<ProfileRef<'_>>) -> Option<ProfileSet> {
    let names: Vec<&str> = list.split(',').filter(|name| !name.is_empty()).collect();
    if names.contains(&"*") {
        return None;
    }
    let mut set = ProfileSet::default();
    // swallowed: a name of no profile allows none
    for reference in names.iter().filter_map(|name| read(name)) {
        if !set.types.iter().any(|known| known == reference.kind()) {
            set.types.push(reference.kind().to_owned());
        }
        match reference {
            ProfileRef::Localhost(path) => set.localhost_profiles.push(path.to_string()),
            ProfileRef::ConfigMap { name, .. } => set.config_maps.push(name.to_string()),
            // Sets have repositories, and a name is of one artifact: it would allow others.
            ProfileRef::Oci(_) | ProfileRef::Unconfined | ProfileRef::RuntimeDefault => {}
        }
    }
    Some(set)
}
