//! Where annotation and field are both given, they must agree.
//!
//! Implements: `validateSeccompAnnotationsAndFieldsMatch` and `validateAppArmorAnnotationsAndFieldsMatchOnCreate`.
//! Checked when a pod is created and, despite the second name, whenever a template is written; never when a pod
//! is updated.

use palisade_base::{field_error::FieldError, field_path::FieldPath};

use crate::{
    compat::Compat,
    pod_view::{ContainerKind, PodView},
    profile::{apparmor, artifact, kind, seccomp},
    security_context::ProfileField,
};

const ORDER: [ContainerKind; 3] = [ContainerKind::Init, ContainerKind::App, ContainerKind::Ephemeral];

pub(super) fn validate_seccomp(view: &PodView<'_, '_>, compat: &Compat, problems: &mut Vec<FieldError>) {
    let annotations = &view.metadata().annotations;
    if let (Some(field), Some(annotation)) = (
        view.security_context().and_then(|context| context.seccomp_profile.as_ref()),
        annotations.get(seccomp::POD_ANNOTATION),
    ) {
        let path = view.path(&["spec", "securityContext", "seccompProfile"]);
        compare(field, annotation, &path, "seccomp", compat, problems);
    }
    for kind in ORDER {
        for container in view.containers().filter(|container| container.kind == kind) {
            let field = container.security_context().and_then(|context| context.seccomp_profile.as_ref());
            let Some(field) = field else { continue };
            let key = seccomp::container_annotation(container.name());
            if let Some(annotation) = annotations.get(&key) {
                let path = container.path(view).fields(&["securityContext", "seccompProfile"]);
                compare(field, annotation, &path, "seccomp", compat, problems);
            }
        }
    }
}

pub(super) fn validate_app_armor(view: &PodView<'_, '_>, compat: &Compat, problems: &mut Vec<FieldError>) {
    if view.spec().is_windows() || !compat.has_app_armor_fields() {
        return;
    }
    let pod_field = view.security_context().and_then(|context| context.app_armor_profile.as_ref());
    for kind in ORDER {
        for container in view.containers().filter(|container| container.kind == kind) {
            let own = container.security_context().and_then(|context| context.app_armor_profile.as_ref());
            let Some(field) = own.or(pod_field) else { continue };
            let key = apparmor::annotation(container.name());
            if let Some(annotation) = view.metadata().annotations.get(&key) {
                // The container's path is named even where the value comes from the pod.
                let path = container.path(view).fields(&["securityContext", "appArmorProfile"]);
                compare(field, annotation, &path, "apparmor", compat, problems);
            }
        }
    }
}

fn compare(
    field: &ProfileField<'_>,
    annotation: &str,
    path: &FieldPath,
    what: &str,
    compat: &Compat,
    problems: &mut Vec<FieldError>,
) {
    let seccomp = what == "seccomp";
    let mut type_differs = || {
        let detail = format!("{what} type in annotation and field must match");
        problems.push(FieldError::forbidden(path.clone().field("type"), detail));
    };
    match field.kind.as_str() {
        kind::UNCONFINED if annotation != "unconfined" => type_differs(),
        kind::RUNTIME_DEFAULT => {
            let alias = if seccomp {
                annotation == "docker/default"
            } else {
                compat.is_designs() && annotation.is_empty()
            };
            if annotation != "runtime/default" && !alias {
                type_differs();
            }
        }
        kind::LOCALHOST => match annotation.strip_prefix("localhost/") {
            None => type_differs(),
            Some(path_in_annotation) => {
                if field.localhost_profile.as_deref() != Some(path_in_annotation) {
                    let detail = format!("{what} profile in annotation and field must match");
                    problems.push(FieldError::forbidden(path.clone().field("localhostProfile"), detail));
                }
            }
        },
        kind::CONFIG_MAP if seccomp && compat.has_config_map_profiles() => {
            match annotation.strip_prefix("configmap/") {
                None => type_differs(),
                Some(reference) => {
                    if field.config_map_profile.as_deref() != Some(reference) {
                        let detail = format!("{what} profile in annotation and field must match");
                        problems.push(FieldError::forbidden(path.clone().field("configMapProfile"), detail));
                    }
                }
            }
        }
        kind::OCI if seccomp && compat.has_oci_profiles() => {
            if !annotation.starts_with(artifact::SCHEME) {
                type_differs();
            } else if field.reference().is_none_or(|reference| reference.to_annotation() != annotation) {
                let detail = format!("{what} profile in annotation and field must match");
                problems.push(FieldError::forbidden(path.clone().field("oci"), detail));
            }
        }
        _ => {}
    }
}
