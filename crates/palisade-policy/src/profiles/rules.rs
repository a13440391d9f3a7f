//! A default profile and a set of allowed ones, whatever they were read from.

use std::fmt;

use palisade_base::{field_error::FieldError, field_path::FieldPath, go::Quoted};
use palisade_model::{
    change::{Change, NewValue},
    pod_view::{ContainerKind, ContainerRef, PodView},
    prepare::Prepared,
    profile::{ProfileRef, apparmor, baseline::BaselineProfile, kind, seccomp},
    security_context::ProfileField,
};
use serde::Deserialize;

/// Seccomp or AppArmor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mechanism {
    /// System call filters.
    Seccomp,
    /// Mandatory access control by AppArmor.
    AppArmor,
}

impl Mechanism {
    /// The field's name.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Self::Seccomp => "seccompProfile",
            Self::AppArmor => "appArmorProfile",
        }
    }

    /// The types a profile may have.
    const fn types(self) -> &'static [&'static str] {
        match self {
            Self::Seccomp => {
                &[kind::CONFIG_MAP, kind::LOCALHOST, kind::OCI, kind::RUNTIME_DEFAULT, kind::UNCONFINED]
            }
            Self::AppArmor => &[kind::LOCALHOST, kind::RUNTIME_DEFAULT, kind::UNCONFINED],
        }
    }

    /// The types that a default may have. One that must be pulled would make every pod of a namespace depend on a registry.
    const fn default_types(self) -> &'static [&'static str] {
        match self {
            Self::Seccomp => &[kind::CONFIG_MAP, kind::LOCALHOST, kind::RUNTIME_DEFAULT, kind::UNCONFINED],
            Self::AppArmor => self.types(),
        }
    }

    /// What a container runs with that names nothing.
    const fn unset(self) -> ProfileRef<'static> {
        match self {
            Self::Seccomp => ProfileRef::Unconfined,
            Self::AppArmor => ProfileRef::RuntimeDefault,
        }
    }

    fn read_annotation(self, value: &str) -> Option<ProfileRef<'_>> {
        match self {
            Self::Seccomp => seccomp::from_annotation(value),
            Self::AppArmor => apparmor::from_annotation(value),
        }
    }

    fn of_pod<'p, 'a>(self, view: &PodView<'p, 'a>) -> Option<&'p ProfileField<'a>> {
        let context = view.security_context()?;
        match self {
            Self::Seccomp => context.seccomp_profile.as_ref(),
            Self::AppArmor => context.app_armor_profile.as_ref(),
        }
    }

    fn of_container<'p, 'a>(self, container: &ContainerRef<'p, 'a>) -> Option<&'p ProfileField<'a>> {
        let context = container.security_context()?;
        match self {
            Self::Seccomp => context.seccomp_profile.as_ref(),
            Self::AppArmor => context.app_armor_profile.as_ref(),
        }
    }

    /// There is no pod-level AppArmor annotation.
    const fn pod_annotation(self) -> Option<&'static str> {
        match self {
            Self::Seccomp => Some(seccomp::POD_ANNOTATION),
            Self::AppArmor => None,
        }
    }

    fn container_annotation(self, container: &str) -> String {
        match self {
            Self::Seccomp => seccomp::container_annotation(container),
            Self::AppArmor => apparmor::annotation(container),
        }
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Seccomp => "seccomp",
            Self::AppArmor => "AppArmor",
        })
    }
}

/// A set of profiles: the plural of a profile. A type that is not listed excludes every profile of that type, and so
/// does a list of names that is not given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ProfileSet {
    /// Profile types.
    pub types: Vec<String>,
    /// Localhost profiles; a trailing `*` means a prefix, `*` alone means all.
    pub localhost_profiles: Vec<String>,
    /// ConfigMaps by name; a trailing `*` means a prefix, `*` alone means all.
    pub config_maps: Vec<String>,
    /// Repositories of profiles in registries, `<registry>/<repository>`; a trailing `*` means a prefix, `*` alone means all.
    pub oci_repositories: Vec<String>,
}

impl ProfileSet {
    fn problems(&self, mechanism: Mechanism, at: &FieldPath, problems: &mut Vec<FieldError>) {
        for (index, name) in self.types.iter().enumerate() {
            if !mechanism.types().contains(&name.as_str()) {
                let at = at.clone().field("types").index(index);
                problems.push(FieldError::not_supported(at, Quoted(name), mechanism.types()));
            }
        }
        let mut names = |field: &'static str, of_type: &str, names: &[String]| {
            for (index, name) in names.iter().enumerate() {
                let problem = match mechanism {
                    Mechanism::Seccomp if of_type == kind::LOCALHOST => path_problem(name),
                    _ => name.is_empty().then_some("must not be empty"),
                };
                let at = at.clone().field(field).index(index);
                problems.extend(problem.map(|detail| FieldError::invalid(at, Quoted(name), detail)));
            }
        };
        names("localhostProfiles", kind::LOCALHOST, &self.localhost_profiles);
        names("configMaps", kind::CONFIG_MAP, &self.config_maps);
        for (index, pattern) in self.oci_repositories.iter().enumerate() {
            let at = at.clone().field("ociRepositories").index(index);
            let problem = repository_problem(pattern);
            problems.extend(problem.map(|detail| FieldError::invalid(at, Quoted(pattern), detail)));
        }
    }

    /// Whether the set has this profile.
    #[must_use]
    pub fn contains(&self, profile: &ProfileRef<'_>) -> bool {
        if !self.types.iter().any(|kind| kind == profile.kind()) {
            return false;
        }
        match profile {
            ProfileRef::Unconfined | ProfileRef::RuntimeDefault => true,
            ProfileRef::Localhost(path) => matches_any(&self.localhost_profiles, path),
            ProfileRef::ConfigMap { name, .. } => matches_any(&self.config_maps, name),
            ProfileRef::Oci(profile) => profile
                .artifact()
                .is_ok_and(|artifact| matches_any(&self.oci_repositories, &artifact.repository.to_string())),
        }
    }
}

/// What is wrong with a pattern of repositories. A prefix that ends inside the name of a registry would allow others with longer
/// names, which may be anybody's.
fn repository_problem(pattern: &str) -> Option<&'static str> {
    if pattern == "*" {
        return None;
    }
    let name = pattern.strip_suffix('*').unwrap_or(pattern);
    match name.split_once('/') {
        _ if name.contains(['*', '@']) || name.contains("://") => {
            Some("must be <registry>/<repository> without tag and digest; only the end may be *")
        }
        Some((registry, path)) if !registry.is_empty() && (!path.is_empty() || name != pattern) => None,
        _ => Some("must begin with a registry and a slash: <registry>/<repository>"),
    }
}

/// What is wrong with the path of a seccomp profile.
fn path_problem(path: &str) -> Option<&'static str> {
    if path.is_empty() {
        Some("must not be empty")
    } else if path.starts_with('/') {
        Some("must be a relative path")
    } else if path.split('/').any(|element| element == "..") {
        Some("must not contain '..'")
    } else {
        None
    }
}

fn matches_any(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
        // A path that climbs out of the folder only begins like those in it.
        Some(prefix) => name.starts_with(prefix) && !name.split('/').any(|element| element == ".."),
        None => pattern == name,
    })
}

impl fmt::Display for ProfileSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.types.is_empty() {
            return f.write_str("none");
        }
        for (position, name) in self.types.iter().enumerate() {
            if position > 0 {
                f.write_str(", ")?;
            }
            f.write_str(name)?;
            let patterns = match name.as_str() {
                kind::LOCALHOST => &self.localhost_profiles,
                kind::CONFIG_MAP => &self.config_maps,
                kind::OCI => &self.oci_repositories,
                _ => continue,
            };
            write!(f, " ({})", if patterns.is_empty() { "none".to_owned() } else { patterns.join(" ") })?;
        }
        Ok(())
    }
}

/// The rules for one mechanism.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ProfileRules {
    /// What a pod gets that names nothing. Must be allowed.
    pub default_profile: Option<DefaultProfile>,
    /// What a pod may name; no set allows everything.
    pub allowed_profiles: Option<ProfileSet>,
    /// What profiles from ConfigMaps and registries are combined with: the default of the node's runtime, or a file on the node.
    pub baseline: Option<DefaultProfile>,
}

/// The field form of the default profile.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DefaultProfile {
    #[serde(rename = "type")]
    kind: String,
    localhost_profile: Option<String>,
    config_map_profile: Option<String>,
}

impl DefaultProfile {
    fn problems(&self, mechanism: Mechanism, at: &FieldPath, problems: &mut Vec<FieldError>) {
        let types = mechanism.default_types();
        if !types.contains(&self.kind.as_str()) {
            let at = at.clone().field("type");
            problems.push(FieldError::not_supported(at, Quoted(&self.kind), types));
            return;
        }
        let mut name = |field: &'static str,
                        of_type: &str,
                        value: Option<&str>,
                        check: &dyn Fn(&str) -> Option<&'static str>| {
            let at = at.clone().field(field);
            match value {
                Some(_) if self.kind != of_type => {
                    problems
                        .push(FieldError::forbidden(at, format!("may only be set when type is {of_type}")));
                }
                None if self.kind == of_type => {
                    problems.push(FieldError::required(at, format!("must be set when type is {of_type}")));
                }
                Some(value) => {
                    problems
                        .extend(check(value).map(|detail| FieldError::invalid(at, Quoted(value), detail)));
                }
                None => {}
            }
        };
        let file = |value: &str| match mechanism {
            Mechanism::Seccomp => path_problem(value),
            Mechanism::AppArmor => (value.trim().is_empty()).then_some("must not be empty"),
        };
        name("localhostProfile", kind::LOCALHOST, self.localhost_profile.as_deref(), &file);
        let reference = |value: &str| {
            seccomp::config_map_reference(value).is_none().then_some("must be <name>/<key> of a ConfigMap")
        };
        name("configMapProfile", kind::CONFIG_MAP, self.config_map_profile.as_deref(), &reference);
    }

    fn baseline_problems(&self, mechanism: Mechanism, at: &FieldPath, problems: &mut Vec<FieldError>) {
        const TYPES: &[&str] = &[kind::LOCALHOST, kind::RUNTIME_DEFAULT];
        if mechanism != Mechanism::Seccomp {
            problems.push(FieldError::forbidden(
                at.clone(),
                "only seccomp profiles are combined with a baseline",
            ));
        } else if !TYPES.contains(&self.kind.as_str()) {
            problems.push(FieldError::not_supported(at.clone().field("type"), Quoted(&self.kind), TYPES));
        } else {
            self.problems(mechanism, at, problems);
            if let Some(path) = self.localhost_profile.as_deref().filter(|path| path_problem(path).is_none())
            {
                let at = at.clone().field("localhostProfile");
                let problem = BaselineProfile::path_problem(path);
                problems.extend(problem.map(|detail| FieldError::invalid(at, Quoted(path), detail)));
            }
        }
    }

    /// As a part of a baseline.
    fn to_baseline(&self) -> BaselineProfile {
        match &self.localhost_profile {
            Some(path) if self.kind == kind::LOCALHOST => BaselineProfile::Localhost(path.clone()),
            _ => BaselineProfile::RuntimeDefault,
        }
    }

    /// As the field is written into pods.
    #[must_use]
    pub fn to_field(&self) -> ProfileField<'static> {
        ProfileField {
            kind: self.kind.clone().into(),
            localhost_profile: self.localhost_profile.clone().map(Into::into),
            config_map_profile: self.config_map_profile.clone().map(Into::into),
            oci: None,
        }
    }

    /// From a reference.
    #[must_use]
    pub fn of(reference: &ProfileRef<'_>) -> Self {
        let field = reference.to_field();
        Self {
            kind: field.kind.to_string(),
            localhost_profile: field.localhost_profile.map(|path| path.to_string()),
            config_map_profile: field.config_map_profile.map(|path| path.to_string()),
        }
    }
}

/// A profile that is not allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileViolation {
    /// Where it is named; for a container that names nothing, where it should.
    pub at: FieldPath,
    /// What is wrong.
    pub message: String,
}

impl ProfileRules {
    /// Whether profiles of a type are allowed at all, by name.
    pub(super) fn allows(&self, kind: &str) -> bool {
        let listed = self.allowed_profiles.as_ref().map(|set| set.types.iter().any(|name| name == kind));
        listed.unwrap_or_else(|| self.default_profile.as_ref().is_some_and(|default| default.kind == kind))
    }

    /// What the rules add to the baseline of their namespaces.
    pub(super) fn baseline_profile(&self) -> Option<BaselineProfile> {
        if let Some(baseline) = &self.baseline {
            return Some(baseline.to_baseline());
        }
        let of_tenants = self.allows(kind::CONFIG_MAP) || self.allows(kind::OCI);
        of_tenants.then_some(BaselineProfile::RuntimeDefault)
    }

    /// What is wrong with the rules themselves, which stand at `at`. Rules with a problem cannot be applied.
    #[must_use]
    pub fn problems(&self, mechanism: Mechanism, at: &FieldPath) -> Vec<FieldError> {
        let mut problems = Vec::new();
        if let Some(allowed) = &self.allowed_profiles {
            allowed.problems(mechanism, &at.clone().field("allowedProfiles"), &mut problems);
        }
        if let Some(baseline) = &self.baseline {
            baseline.baseline_problems(mechanism, &at.clone().field("baseline"), &mut problems);
        }
        let Some(default) = &self.default_profile else { return problems };
        let at = at.clone().field("defaultProfile");
        let before = problems.len();
        default.problems(mechanism, &at, &mut problems);
        let incomplete = problems.len() > before;
        match default.to_field().reference() {
            _ if incomplete => {}
            None => problems.push(FieldError::invalid(
                at,
                Quoted(&default.kind),
                "must be a complete reference to a profile",
            )),
            Some(reference) => {
                let refused = self.refuses_default();
                problems.extend(
                    refused.map(|detail| FieldError::invalid(at, Quoted(&reference.to_string()), detail)),
                );
            }
        }
        problems
    }

    /// Why a pod that gets the default would be refused.
    #[must_use]
    pub fn refuses_default(&self) -> Option<String> {
        let (default, allowed) = (self.default_profile.as_ref()?, self.allowed_profiles.as_ref()?);
        let usable = default.to_field().reference().is_some_and(|reference| allowed.contains(&reference));
        (!usable).then(|| format!("must be allowed by allowedProfiles, which has {allowed}"))
    }

    /// The writes that give a pod its default: the pod's field, if neither the pod names a profile nor all its
    /// containers do.
    #[must_use]
    pub fn defaults(&self, mechanism: Mechanism, pod: &Prepared<'_>) -> Option<Change> {
        let view = &pod.view();
        let profile = self.default_profile.as_ref()?.to_field();
        let annotations = &view.metadata().annotations;
        let named_by_pod = mechanism.of_pod(view).is_some()
            || mechanism.pod_annotation().is_some_and(|key| annotations.contains(key));
        let all_named = view.containers().all(|container| {
            mechanism.of_container(&container).is_some()
                || annotations.contains(&mechanism.container_annotation(container.name()))
        });
        let windows = view.spec().is_windows();
        if named_by_pod || windows || (all_named && view.containers().next().is_some()) {
            return None;
        }
        let at = view.path(&["spec", "securityContext", mechanism.field()]);
        Some(Change { at, to: NewValue::Profile(profile) })
    }

    /// Every profile of a pod that is not allowed, in fields and annotations alike, and every container that would
    /// run with one because nothing is named.
    #[must_use]
    pub fn violations(
        &self,
        mechanism: Mechanism,
        pod: &Prepared<'_>,
        policy: &str,
    ) -> Vec<ProfileViolation> {
        let (view, compat) = (&pod.view(), pod.compat());
        let Some(allowed) = &self.allowed_profiles else { return Vec::new() };
        if view.spec().is_windows() {
            return Vec::new();
        }
        let mut found = Vec::new();
        let mut check = |at: FieldPath, profile: Option<ProfileRef<'_>>, raw: &str| {
            // What cannot be read is refused by validation; here it only must not count as allowed.
            let shown = profile.as_ref().map_or_else(|| raw.to_owned(), ToString::to_string);
            if !profile.is_some_and(|profile| allowed.contains(&profile)) {
                let message =
                    format!("{mechanism} profile {shown} is not allowed by {policy}: allowed is {allowed}");
                found.push(ProfileViolation { at, message });
            }
        };
        let annotations = &view.metadata().annotations;
        let of_pod = mechanism.of_pod(view);
        if let Some(field) = of_pod {
            check(view.path(&["spec", "securityContext", mechanism.field()]), field.reference(), &field.kind);
        }
        let pod_annotation = mechanism.pod_annotation().and_then(|key| Some((key, annotations.get(key)?)));
        if let Some((key, value)) = pod_annotation {
            check(view.annotation_path(key), mechanism.read_annotation(value), value);
        }
        for container in view.containers() {
            let field = mechanism.of_container(&container);
            let path = || container.path(view).fields(&["securityContext", mechanism.field()]);
            if let Some(field) = field {
                check(path(), field.reference(), &field.kind);
            }
            let key = mechanism.container_annotation(container.name());
            let annotation = annotations.get(&key);
            if let Some(value) = annotation {
                let empty_default =
                    mechanism == Mechanism::AppArmor && value.is_empty() && compat.is_designs();
                let reference = if empty_default {
                    Some(ProfileRef::RuntimeDefault)
                } else {
                    mechanism.read_annotation(value)
                };
                check(view.annotation_path(&key), reference, value);
            }
            // Seccomp annotations have become fields when the pod was created; those that were added later, those of ephemeral
            // containers and those that are not read confine nothing. AppArmor annotations are the setting where there is no field yet.
            let annotated = mechanism == Mechanism::AppArmor
                && annotation.is_some()
                && container.kind != ContainerKind::Ephemeral;
            if field.is_none() && of_pod.is_none() && !annotated {
                check(path(), Some(mechanism.unset()), "");
            }
        }
        found
    }
}
