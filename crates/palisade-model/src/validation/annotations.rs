//! The format of seccomp and AppArmor annotations.
//!
//! Implements: `ValidateSeccompPodAnnotations` and `ValidateAppArmorPodAnnotations`. A seccomp annotation for a
//! container that does not exist is accepted, an AppArmor one is not; both are upstream's choices.

use palisade_base::{field_error::FieldError, go::Quoted};

use super::{annotation_called, profiles::validate_local_path};
use crate::{
    compat::Compat,
    pod_view::PodView,
    profile::{apparmor, seccomp},
};

pub(super) fn validate(view: &PodView<'_, '_>, compat: &Compat, problems: &mut Vec<FieldError>) {
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
            problems.push(FieldError::invalid(at, container, "container not found").called(called()));
        }
        if !apparmor::is_valid_annotation(value) {
            let detail = if compat.is_designs() {
                "must be a valid AppArmor profile".to_owned()
            } else {
                format!("invalid AppArmor profile name: {}", Quoted(value))
            };
            problems.push(FieldError::invalid(view.annotation_path(key), value, detail).called(called()));
        }
    }
}

fn validate_seccomp(
    view: &PodView<'_, '_>,
    key: &str,
    value: &str,
    compat: &Compat,
    problems: &mut Vec<FieldError>,
) {
    let called = annotation_called(view, key, false);
    if let Some(path) = value.strip_prefix("localhost/") {
        validate_local_path(path, &view.annotation_path(key), Some(&called), problems);
        return;
    }
    let known = seccomp::from_annotation(value).is_some_and(|reference| reference.exists_in(compat));
    if !known {
        let problem =
            FieldError::invalid(view.annotation_path(key), value, "must be a valid seccomp profile");
        problems.push(problem.called(called));
    }
}
