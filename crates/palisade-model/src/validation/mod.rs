//! What a real API server would refuse in the security part of a pod or template.
//!
//! Implements: `ValidatePodCreate`, `ValidatePodTemplateSpec` and `ValidatePodUpdate` as far as they concern
//! security: profile annotations and fields, security contexts, host namespaces and ports, the pod's OS.
//! Everything else about a pod (images, probes, resources, names) is left to the API server's own validation.

mod annotations;
mod matching;
mod operating_system;
mod pod_level;
mod profiles;
mod security_contexts;
mod update;

use palisade_base::{
    field_error::{BadValue, FieldError},
    field_path::FieldPath,
    go::JsonQuoted,
};
pub use update::{
    immutable_spec_changes, validate_annotation_updates, validate_ephemeral_containers_update,
    validate_ephemeral_security_contexts, validate_update, validate_update_security_contexts,
};

use crate::{
    compat::Compat,
    pod_view::{ContainerKind, PodView},
    prepare::Prepared,
};

/// How much of a pod is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Everything this crate validates.
    Whole,
    /// Profiles and security contexts alone: for an API server that validates the rest of a pod itself.
    SecurityContexts,
}

/// Every problem of a new pod, or of a template on create and update, in upstream's order.
#[must_use]
pub fn validate_create(pod: &Prepared<'_>) -> Vec<FieldError> {
    validate_create_in(Scope::Whole, pod)
}

/// The same for a part of the pod.
#[must_use]
pub fn validate_create_in(scope: Scope, pod: &Prepared<'_>) -> Vec<FieldError> {
    let (view, compat) = (&pod.view(), pod.kept());
    let mut problems = Vec::new();
    annotations::validate(view, compat, &mut problems);
    validate_spec(scope, view, compat, &mut problems);
    if scope == Scope::Whole && !view.spec().ephemeral_containers.is_empty() {
        let at = view.path(&["spec", ContainerKind::Ephemeral.field()]);
        problems.push(if view.is_pod() {
            FieldError::forbidden(at, "cannot be set on create")
        } else {
            FieldError::forbidden(at, "ephemeral containers not allowed in pod template")
        });
    }
    // The designs leave templates alone: annotation and field meet when a pod is made of one.
    if view.is_pod() || !compat.is_designs() {
        matching::validate_seccomp(view, compat, &mut problems);
        matching::validate_app_armor(view, compat, &mut problems);
    }
    problems
}

fn validate_spec(scope: Scope, view: &PodView<'_, '_>, compat: &Compat, problems: &mut Vec<FieldError>) {
    if scope == Scope::Whole {
        pod_level::validate_volume_sources(view, problems);
    }
    let defaults_at = view.path(&["spec", "securityContext", "containerDefaults"]);
    let mut of_defaults = Vec::new();
    if let Some(defaults) = view.security_context().and_then(|c| c.container_defaults.as_deref()) {
        security_contexts::validate_container(defaults, &defaults_at, view.spec(), compat, &mut of_defaults);
    }
    for kind in [ContainerKind::App, ContainerKind::Init, ContainerKind::Ephemeral] {
        for container in view.containers().filter(|container| container.kind == kind) {
            let Some(context) = container.security_context() else { continue };
            let path = container.path(view).field("securityContext");
            // Up to v1.25 an ephemeral container's index is printed twice.
            let doubled = kind == ContainerKind::Ephemeral && compat.api_minor() <= 25;
            let first = problems.len();
            security_contexts::validate_container(context, &path, view.spec(), compat, problems);
            profiles::validate_privileged(view, &container, compat, problems);
            // A mistake in the defaults is reported once, where it was made, not again for every container.
            if !of_defaults.is_empty() {
                let mut index = 0;
                problems.retain(|problem| {
                    index += 1;
                    index <= first || !of_defaults.iter().any(|d| same_below(problem, &path, d, &defaults_at))
                });
            }
            if doubled {
                for problem in problems.iter_mut().skip(first) {
                    let once = format!("{}[{}].", kind.field(), container.index);
                    let twice = format!("{}[{i}][{i}].", kind.field(), i = container.index);
                    let called = problem.field().replacen(&once, &twice, 1);
                    problem.called = Some(called);
                }
            }
        }
        if scope == Scope::Whole && kind == ContainerKind::App {
            pod_level::validate_host_ports(view, problems);
        }
    }
    if let Some(context) = view.security_context() {
        let path = view.path(&["spec", "securityContext"]);
        security_contexts::validate_pod(context, &path, view.spec(), compat, problems);
    }
    problems.append(&mut of_defaults);
    if scope == Scope::Whole {
        pod_level::validate_host_users(view, problems);
    }
    pod_level::validate_windows_host_process(view, compat, problems);
    operating_system::validate(view, compat, problems);
}

/// Whether two problems differ only in the security context they were found in.
fn same_below(a: &FieldError, a_base: &FieldPath, b: &FieldError, b_base: &FieldPath) -> bool {
    let (a_rest, b_rest) =
        (a.at.steps().get(a_base.steps().len()..), b.at.steps().get(b_base.steps().len()..));
    a_rest == b_rest && (a.kind, &a.detail) == (b.kind, &b.detail)
}

/// Prints a value of a named string type (a profile type, a mount type) the way the release does.
fn named_string(text: &str, compat: &Compat) -> BadValue {
    if compat.prints_values_as_json() { BadValue::Plain(JsonQuoted(text).to_string()) } else { text.into() }
}

/// `<annotations path>.<key>`: upstream writes a dot where a bracket belongs, and leaves `metadata` out for
/// templates.
fn annotation_called(view: &PodView<'_, '_>, key: &str, bracket: bool) -> String {
    let annotations = if view.is_pod() {
        FieldPath::of(&["metadata", "annotations"])
    } else {
        view.base().field("annotations")
    };
    if bracket { format!("{annotations}[{key}]") } else { format!("{annotations}.{key}") }
}
