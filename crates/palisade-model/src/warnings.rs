//! Warnings of an API server about a pod it accepts.
//!
//! Implements: `GetWarningsForPod` and `GetWarningsForPodTemplate` as far as they concern profiles and ports.
//! Warnings about AppArmor annotations of a pod are made by [`crate::sync`], as upstream makes them there.

use palisade_base::{field_path::FieldPath, version::KubeVersion};

use crate::{
    compat::Compat,
    pod::ContainerPort,
    pod_view::PodView,
    prepare::Prepared,
    profile::{apparmor, seccomp},
    sync::app_armor_from_annotation,
};

/// Warnings about a new pod or a written template that was accepted, in upstream's order. Those of [`Prepared::warnings`] come
/// before them.
#[must_use]
pub fn warnings(pod: &Prepared<'_>) -> Vec<String> {
    let (view, compat) = (pod.view(), pod.compat());
    // Palisade's extensions honour the annotations, so they were found before the sync; releases warn about what remains after it.
    let mut warnings =
        if compat.is_designs() { pod.deprecated().to_vec() } else { deprecated_annotations(&view, compat) };
    if compat.api_minor() >= 27 {
        port_warnings(&view, &mut warnings);
    }
    warnings
}

/// Warnings about annotations that should be fields.
#[must_use]
pub fn deprecated_annotations(view: &PodView<'_, '_>, compat: &Compat) -> Vec<String> {
    let mut warnings = Vec::new();
    let annotations = &view.metadata().annotations;
    if annotations.is_empty() {
        return warnings;
    }
    if let Some(text) = compat.seccomp_annotation_warning() {
        let unset = view.security_context().is_none_or(|context| context.seccomp_profile.is_none());
        if unset && annotations.contains(seccomp::POD_ANNOTATION) {
            warnings.push(format!("{}: {text}", view.annotation_path(seccomp::POD_ANNOTATION)));
        }
    }
    for container in view.containers() {
        let context = container.security_context();
        if let Some(text) = compat.seccomp_annotation_warning() {
            let key = seccomp::container_annotation(container.name());
            let unset = context.is_none_or(|context| context.seccomp_profile.is_none());
            if unset && annotations.contains(&key) {
                warnings.push(format!("{}: {text}", view.annotation_path(&key)));
            }
        }
        if !view.is_pod() && compat.has_app_armor_fields() {
            let key = apparmor::annotation(container.name());
            let own = context.and_then(|context| context.app_armor_profile.as_ref());
            let of_pod = view.security_context().and_then(|context| context.app_armor_profile.as_ref());
            if let (None, Some(value)) = (own, annotations.get(&key)) {
                // From v1.34 on a pod field with another value no longer silences the warning.
                let silenced = match (of_pod, compat.api) {
                    (None, _) => false,
                    (Some(_), KubeVersion::Release { minor: ..=33, .. }) => true,
                    (Some(field), _) => app_armor_from_annotation(value, compat)
                        .is_some_and(|reference| reference.to_field() == *field),
                };
                if !silenced {
                    let text = compat.app_armor_annotation_warning();
                    warnings.push(format!("{}: {text}", view.annotation_path(&key)));
                }
            }
        }
    }
    warnings
}

fn port_warnings(view: &PodView<'_, '_>, warnings: &mut Vec<String>) {
    let mut seen: Vec<(FieldPath, &ContainerPort<'_>)> = Vec::new();
    for container in view.containers() {
        for (index, port) in container.container.ports.iter().enumerate() {
            let at = container.path(view).field("ports").index(index);
            for (other_at, other) in &seen {
                if (port.container_port, &port.protocol) != (other.container_port, &other.protocol) {
                    continue;
                }
                let same_host_port = port.host_port == other.host_port;
                let what = if same_host_port && port.host_ip == other.host_ip {
                    "duplicate"
                } else if port.host_port == 0 || other.host_port == 0 {
                    "overlapping"
                } else if same_host_port && port.host_ip.is_empty() != other.host_ip.is_empty() {
                    "dangerously ambiguous"
                } else {
                    continue;
                };
                warnings.push(format!("{at}: {what} port definition with {other_at}"));
            }
            seen.push((at, port));
        }
    }
}
