//! The format of seccomp and AppArmor annotations.
//!
//! Implements: `ValidateSeccompPodAnnotations` and `ValidateAppArmorPodAnnotations`. A seccomp annotation for a
//! container that does not exist is accepted, an AppArmor one is not; both are upstream's choices.

use super::{annotation_called, profiles::validate_local_path, quoted};
use crate::{
    compat::Compat,
    pod_view::PodView,
    problem::Problem,
    profile::{ProfileRef, apparmor, seccomp},
};

pub(super) fn validate(view: &PodView<'_, '_>, compat: &Compat, problems: &mut Vec<Problem>) {
    let annotations = &view.metadata().annotations;
    if let Some(value) = annotations.get(seccomp::POD_ANNOTATION) {
        validate_seccomp(view, seccomp::POD_ANNOTATION, value, compat, problems);
    }
    for (_, key, value) in annotations.with_prefix(seccomp::CONTAINER_ANNOTATION_PREFIX) {
        validate_seccomp(view, key, value, compat, problems);
    }
    for (container, key, value) in annotations.with_prefix(apparmor::ANNOTATION_PREFIX) {
        let called = || annotation_called(view, key, true);
        if view.container(container).is_none() {
            let at = view.annotation_path(key);
            problems.push(Problem::invalid(at, quoted(container), "container not found").called(called()));
        }
        if !apparmor::is_valid_annotation(value) {
            let detail = if compat.is_designs() {
                "must be a valid AppArmor profile".to_owned()
            } else {
                format!("invalid AppArmor profile name: {}", quoted(value))
            };
            problems
                .push(Problem::invalid(view.annotation_path(key), quoted(value), detail).called(called()));
        }
    }
}

fn validate_seccomp(
    view: &PodView<'_, '_>,
    key: &str,
    value: &str,
    compat: &Compat,
    problems: &mut Vec<Problem>,
) {
    let called = annotation_called(view, key, false);
    if let Some(path) = value.strip_prefix("localhost/") {
        validate_local_path(path, &view.annotation_path(key), Some(&called), problems);
        return;
    }
    let known = match seccomp::from_annotation(value) {
        Some(ProfileRef::ConfigMap { .. }) => compat.has_config_map_profiles(),
        Some(_) => true,
        None => false,
    };
    if !known {
        let problem =
            Problem::invalid(view.annotation_path(key), quoted(value), "must be a valid seccomp profile");
        problems.push(problem.called(called));
    }
}
