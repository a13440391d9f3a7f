//! Which seccomp profile a pod and its containers may name.
//!
//! Implements: `seccompProfiles`. Profiles are compared in the form of the old annotations, and the pod's own is
//! written in both forms. `docker/default` and `runtime/default` are one profile.

use palisade_base::field_error::FieldError;
use palisade_model::{
    pod::{Container, Pod},
    pod_view::PodView,
    profile::{ProfileRef, kind, seccomp},
    security_context::ProfileField,
};

use crate::scc::constraint::ANY;

/// The profiles a constraint allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strategy<'s> {
    profiles: &'s [String],
    /// Whether a profile in a ConfigMap is a profile; upstream has none.
    config_maps: bool,
    /// Whether one in a registry is; no release has them.
    oci: bool,
}

impl<'s> Strategy<'s> {
    /// The strategy of a constraint.
    #[must_use]
    pub const fn new(profiles: &'s [String], config_maps: bool, oci: bool) -> Self {
        Self { profiles, config_maps, oci }
    }

    const fn knows(self, profile: &ProfileRef<'_>) -> bool {
        match profile {
            ProfileRef::ConfigMap { .. } => self.config_maps,
            ProfileRef::Oci(_) => self.oci,
            _ => true,
        }
    }

    /// The profile of the pod: its own, or the constraint's first.
    #[must_use]
    pub fn assign(&self, pod: &Pod<'_>) -> Option<String> {
        let profile = match pod.metadata.annotations.get(seccomp::POD_ANNOTATION) {
            Some(annotation) if !annotation.is_empty() => annotation.to_owned(),
            _ => match pod.spec.security_context.as_ref().and_then(|c| c.seccomp_profile.as_ref()) {
                Some(field) => {
                    self.reference(field).map(|profile| profile.to_annotation()).unwrap_or_default()
                }
                None => self.allowed().next().unwrap_or_default().to_owned(),
            },
        };
        (!profile.is_empty()).then_some(profile)
    }

    /// The field equal to an annotation; nothing for text that names no profile.
    #[must_use]
    pub fn to_field(&self, annotation: &str) -> Option<ProfileField<'static>> {
        seccomp::from_annotation(annotation)
            .filter(|profile| self.knows(profile))
            .map(|profile| profile.to_field())
    }

    fn reference<'a>(&self, field: &ProfileField<'a>) -> Option<ProfileRef<'a>> {
        field.reference().filter(|profile| self.knows(profile))
    }

    /// The value of a field, to be compared with what is allowed. A field of an unknown type is shown by its type: it is not the same
    /// as no field. Upstream takes it for that, and leaves it to validation, as a `Localhost` without a file still is here.
    fn to_annotation(self, field: &ProfileField<'_>) -> String {
        match self.reference(field) {
            Some(profile) => profile.to_annotation(),
            None if field.kind.as_str() == kind::LOCALHOST => String::new(),
            None if field.kind.is_empty() => "\"\"".to_owned(),
            None => field.kind.to_string(),
        }
    }

    /// `annotation` and `field` are those of the pod after assignment.
    pub(in crate::scc) fn validate_pod(
        &self,
        annotation: Option<&str>,
        field: Option<&ProfileField<'_>>,
        problems: &mut Vec<FieldError>,
    ) {
        let profile = match annotation {
            Some(annotation) if !annotation.is_empty() => annotation.to_owned(),
            _ => field.map(|field| self.to_annotation(field)).unwrap_or_default(),
        };
        problems.extend(self.check(&profile, || seccomp::POD_ANNOTATION.to_owned()));
    }

    /// `container_field`, `pod_field` and `pod_annotation` are those after assignment.
    pub(in crate::scc) fn validate_container(
        &self,
        pod: &Pod<'_>,
        container: &Container<'_>,
        container_field: Option<&ProfileField<'_>>,
        pod_field: Option<&ProfileField<'_>>,
        pod_annotation: Option<&str>,
        problems: &mut Vec<FieldError>,
    ) {
        let profile = match (container_field, container_annotation(pod, &container.name), pod_field) {
            (Some(field), _, _) | (None, None, Some(field)) => self.to_annotation(field),
            (None, Some(annotation), _) => annotation.to_owned(),
            (None, None, None) => pod_annotation.unwrap_or_default().to_owned(),
        };
        problems.extend(self.check(&profile, || seccomp::container_annotation(&container.name)));
    }

    fn allowed(&self) -> impl Iterator<Item = &'s str> + use<'s> {
        self.profiles.iter().map(String::as_str).filter(|&profile| profile != ANY)
    }

    fn check(&self, profile: &str, key: impl FnOnce() -> String) -> Option<FieldError> {
        let is_default = |profile: &str| matches!(profile, "runtime/default" | "docker/default");
        let is_listed = |own: &str| own == profile || (is_default(own) && is_default(profile));
        let any = self.profiles.iter().any(|own| own == ANY);
        let detail = if self.allowed().next().is_none() {
            if any || profile.is_empty() {
                return None;
            }
            "seccomp may not be set".to_owned()
        } else {
            if any || self.allowed().any(is_listed) {
                return None;
            }
            let list = self.allowed().collect::<Vec<_>>().join(" ");
            format!("{profile} is not an allowed seccomp profile. Valid values are [{list}]")
        };
        let key = key();
        let called = format!("pod.metadata.annotations[{key}]");
        let at = PodView::of_pod(&Pod::default()).annotation_path(&key);
        Some(FieldError::forbidden(at, detail).called(called))
    }
}

/// The annotation of a container, without building its key where the pod has none of them.
pub(in crate::scc) fn container_annotation<'p>(pod: &'p Pod<'_>, container: &str) -> Option<&'p str> {
    pod.metadata
        .annotations
        .with_prefix(seccomp::CONTAINER_ANNOTATION_PREFIX)
        .find(|(name, _, _)| *name == container)
        .map(|(_, _, value)| value)
}

#[cfg(test)]
mod tests {
    use super::{Container, Pod, ProfileField, Strategy};

    #[test]
    fn judges_by_the_table() {
        let forbidden = |list: &str, profile: &str| {
            Some(format!("{profile} is not an allowed seccomp profile. Valid values are [{list}]"))
        };
        for (allowed, profile, expected) in [
            (&[][..], "runtime/default", Some("seccomp may not be set".to_owned())),
            (&[], "", None),
            (&["*"], "", None),
            (&["*"], "anything", None),
            (&["*", "x"], "anything", None),
            (&["x"], "x", None),
            (&["runtime/default"], "docker/default", None),
            (&["docker/default"], "runtime/default", None),
            (&["x", "y"], "z", forbidden("x y", "z")),
            (&["x"], "", forbidden("x", "")),
        ] {
            let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
            let problem = Strategy::new(&allowed, false, false).check(profile, || "k".to_owned());
            assert_eq!(problem.map(|problem| problem.detail.into_owned()), expected, "{allowed:?} {profile}");
        }
    }

    #[test]
    fn a_config_map_is_a_profile_only_where_it_is_switched_on() {
        assert_eq!(Strategy::new(&[], false, false).to_field("configmap/a/b"), None);
        let field = Strategy::new(&[], true, false).to_field("configmap/a/b").unwrap();
        assert_eq!(Strategy::new(&[], true, false).to_annotation(&field), "configmap/a/b");
        assert_eq!(Strategy::new(&[], false, false).to_annotation(&field), "ConfigMap");
        let artifact = format!("oci://registry.example.com/a@sha256:{},runtime/default", "0".repeat(64));
        assert_eq!(Strategy::new(&[], true, false).to_field(&artifact), None);
        let field = Strategy::new(&[], false, true).to_field(&artifact).unwrap();
        assert_eq!(Strategy::new(&[], false, true).to_annotation(&field), artifact, "with its base profile");
        assert_eq!(Strategy::new(&[], true, false).to_annotation(&field), "OCI");
    }

    #[test]
    fn a_profile_that_cannot_be_read_is_not_no_profile() {
        let pod = Pod::default();
        let field = |kind: &'static str| ProfileField { kind: kind.into(), ..ProfileField::default() };
        for (kind, allowed, refused) in [
            ("Bogus", &[][..], true),
            ("Localhost", &[], false),
            ("", &[], true),
            ("ConfigMap", &["runtime/default"], true),
            ("RuntimeDefault", &["runtime/default"], false),
            ("Bogus", &["*"], false),
        ] {
            let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
            let strategy = Strategy::new(&allowed, false, false);
            let mut problems = Vec::new();
            strategy.validate_pod(None, Some(&field(kind)), &mut problems);
            assert_eq!(!problems.is_empty(), refused, "pod {kind:?} {allowed:?}");
            problems.clear();
            strategy.validate_container(
                &pod,
                &Container::default(),
                Some(&field(kind)),
                None,
                None,
                &mut problems,
            );
            assert_eq!(!problems.is_empty(), refused, "container {kind:?} {allowed:?}");
        }
        // No profile where none may be set is all that such a constraint admits.
        let mut problems = Vec::new();
        Strategy::new(&[], false, false).validate_pod(None, None, &mut problems);
        assert_eq!(problems, []);
    }
}
