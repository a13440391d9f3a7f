//! What may not change once a pod exists.
//!
//! Implements: `ValidatePodUpdate`, `ValidatePodSpecificAnnotationUpdates` and
//! `ValidatePodEphemeralContainersUpdate`. Seccomp annotations may change and change nothing, as the seccomp
//! design specifies; AppArmor annotations may not.

use palisade_base::{field_error::FieldError, field_path::FieldPath, go::Quoted};
use serde_json::Value;

use super::{Scope, annotations, validate_spec};
use crate::{
    compat::Compat,
    pod::Pod,
    prepare::Prepared,
    profile::{apparmor, published::BASELINE_ANNOTATION},
};

/// Every problem of the new version of a pod. `spec_changes` comes from [`immutable_spec_changes`].
#[must_use]
pub fn validate_update(new: &Prepared<'_>, old: &Prepared<'_>, spec_changes: &[String]) -> Vec<FieldError> {
    let mut problems = update_problems(Scope::Whole, new, old);
    let compat = new.kept();

    for (field, new_count, old_count) in [
        ("containers", new.spec().containers.len(), old.spec().containers.len()),
        ("initContainers", new.spec().init_containers.len(), old.spec().init_containers.len()),
    ] {
        if new_count != old_count {
            let at = FieldPath::of(&["spec"]).field(field);
            problems.push(FieldError::forbidden(at, "pod updates may not add or remove containers"));
            return problems;
        }
    }
    if !spec_changes.is_empty() {
        let detail = format!("{}\n{}", immutable_text(compat), spec_changes.join("\n"));
        problems.push(FieldError::forbidden(FieldPath::of(&["spec"]), detail));
    }
    problems
}

/// Every problem of the profiles and security contexts of a pod's new version.
#[must_use]
pub fn validate_update_security_contexts(new: &Prepared<'_>, old: &Prepared<'_>) -> Vec<FieldError> {
    update_problems(Scope::SecurityContexts, new, old)
}

/// Every problem of the profiles and security contexts after a write to the `ephemeralcontainers` subresource.
#[must_use]
pub fn validate_ephemeral_security_contexts(new: &Prepared<'_>) -> Vec<FieldError> {
    let mut problems = Vec::new();
    validate_spec(Scope::SecurityContexts, &new.view(), new.kept(), &mut problems);
    problems
}

/// Every problem of the profile annotations after a write to the `status` subresource, which may change annotations.
#[must_use]
pub fn validate_annotation_updates(new: &Prepared<'_>, old: &Prepared<'_>) -> Vec<FieldError> {
    let mut problems = Vec::new();
    app_armor_annotation_updates(new.pod(), old.pod(), &mut problems);
    baseline_updates(new, old, &mut problems);
    annotations::validate(&new.view(), new.kept(), &mut problems);
    problems
}

fn update_problems(scope: Scope, new: &Prepared<'_>, old: &Prepared<'_>) -> Vec<FieldError> {
    let mut problems = Vec::new();
    let (view, compat) = (new.view(), new.kept());
    app_armor_annotation_updates(new.pod(), old.pod(), &mut problems);
    baseline_updates(new, old, &mut problems);
    // Up to v1.33 the format of annotations is checked twice on update, and every problem reported twice.
    if compat.api_minor() < 34 {
        annotations::validate(&view, compat, &mut problems);
    }
    annotations::validate(&view, compat, &mut problems);
    validate_spec(scope, &view, compat, &mut problems);
    problems
}

/// Every problem of a write to the `ephemeralcontainers` subresource. Everything but the ephemeral containers
/// of `new` must have been reset to the stored pod.
#[must_use]
pub fn validate_ephemeral_containers_update(new: &Prepared<'_>, old: &Prepared<'_>) -> Vec<FieldError> {
    let mut problems = Vec::new();
    let compat = new.kept();
    if compat.api_minor() >= 27 && old.pod().metadata.annotations.contains("kubernetes.io/config.mirror") {
        let detail = "static pods do not support ephemeral containers";
        return vec![FieldError::forbidden(FieldPath::root(), detail)];
    }
    validate_spec(Scope::Whole, &new.view(), compat, &mut problems);
    let at = FieldPath::of(&["spec", "ephemeralContainers"]);
    for container in &old.spec().ephemeral_containers {
        let kept = new.spec().ephemeral_containers.iter().find(|candidate| candidate.name == container.name);
        let what = match kept {
            None => "removed",
            Some(kept) if kept != container => "changed",
            Some(_) => continue,
        };
        let detail = format!("existing ephemeral containers {} may not be {what}\n", Quoted(&container.name));
        problems.push(FieldError::forbidden(at.clone(), detail));
    }
    problems
}

fn app_armor_annotation_updates(new: &Pod<'_>, old: &Pod<'_>, problems: &mut Vec<FieldError>) {
    let path = |key: &str| FieldPath::of(&["metadata", "annotations"]).key(key);
    for (_, key, value) in old.metadata.annotations.with_prefix(apparmor::ANNOTATION_PREFIX) {
        if new.metadata.annotations.get(key) != Some(value) {
            problems.push(FieldError::forbidden(path(key), "may not remove or update AppArmor annotations"));
        }
    }
    for (_, key, _) in new.metadata.annotations.with_prefix(apparmor::ANNOTATION_PREFIX) {
        if !old.metadata.annotations.contains(key) {
            problems.push(FieldError::forbidden(path(key), "may not add AppArmor annotations"));
        }
    }
}

/// What profiles from ConfigMaps are combined with is decided when a pod is created: the node reads it at each start.
fn baseline_updates(new: &Prepared<'_>, old: &Prepared<'_>, problems: &mut Vec<FieldError>) {
    let stated =
        |pod: &Prepared<'_>| pod.pod().metadata.annotations.get(BASELINE_ANNOTATION).map(str::to_owned);
    if new.kept().is_designs() && stated(new) != stated(old) {
        let at = FieldPath::of(&["metadata", "annotations"]).key(BASELINE_ANNOTATION);
        problems.push(FieldError::forbidden(at, "may not be added, removed or updated"));
    }
}

const fn immutable_text(compat: &Compat) -> &'static str {
    match compat.api_minor() {
        ..=21 => {
            "pod updates may not change fields other than `spec.containers[*].image`, \
             `spec.initContainers[*].image`, `spec.activeDeadlineSeconds` or `spec.tolerations` \
             (only additions to existing tolerations)"
        }
        22..=26 => {
            "pod updates may not change fields other than `spec.containers[*].image`, \
             `spec.initContainers[*].image`, `spec.activeDeadlineSeconds`, `spec.tolerations` \
             (only additions to existing tolerations) or `spec.terminationGracePeriodSeconds` \
             (allow it to be set to 1 if it was previously negative)"
        }
        _ => {
            "pod updates may not change fields other than `spec.containers[*].image`,\
             `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` \
             (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` \
             (allow it to be set to 1 if it was previously negative)"
        }
    }
}

/// The paths below `spec` that differ between two versions of a pod although they must not. Both must be whole
/// objects as stored, defaults included.
#[must_use]
pub fn immutable_spec_changes(new: &Value, old: &Value) -> Vec<String> {
    let mut changes = Vec::new();
    let (new_spec, old_spec) = (new.get("spec"), old.get("spec"));
    compare(new_spec, old_spec, "spec", &mut changes);
    changes.retain(|path| !may_change(path, new_spec, old_spec));
    changes
}

fn may_change(path: &str, new: Option<&Value>, old: Option<&Value>) -> bool {
    let field = |spec: Option<&Value>, name: &str| spec.and_then(|spec| spec.get(name)).cloned();
    let image = |list: &str| {
        path.strip_prefix("spec.")
            .and_then(|rest| rest.strip_prefix(list))
            .and_then(|rest| rest.strip_prefix('['))
            .and_then(|rest| rest.split_once(']'))
            .is_some_and(|(_, rest)| rest == ".image")
    };
    if image("containers") || image("initContainers") {
        return true;
    }
    if path.starts_with("spec.tolerations") {
        let list = |value: Option<Value>| match value {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        };
        let (new, old) = (list(field(new, "tolerations")), list(field(old, "tolerations")));
        return old.iter().all(|toleration| new.contains(toleration));
    }
    let number = |value: Option<Value>| value.and_then(|value| value.as_i64());
    match path {
        // A deadline may be set or shortened, never lifted.
        "spec.activeDeadlineSeconds" => {
            match (number(field(new, "activeDeadlineSeconds")), number(field(old, "activeDeadlineSeconds"))) {
                (Some(new), Some(old)) => new <= old && new >= 0,
                (Some(new), None) => new >= 0,
                (None, _) => false,
            }
        }
        "spec.terminationGracePeriodSeconds" => {
            number(field(old, "terminationGracePeriodSeconds")).is_some_and(|old| old < 0)
                && number(field(new, "terminationGracePeriodSeconds")) == Some(1)
        }
        _ => false,
    }
}

fn compare(new: Option<&Value>, old: Option<&Value>, path: &str, changes: &mut Vec<String>) {
    // To Go's decoder an absent field is the same as a null, as an empty list and as an empty map. An empty struct is
    // not: a pointer to nothing differs from no pointer. The pod's own context is always there by default.
    let is_map = matches!(path, "spec.securityContext" | "spec.nodeSelector" | "spec.overhead");
    let present = |value: Option<&Value>| {
        value.is_some_and(|value| match value {
            Value::Null => false,
            Value::Array(items) => !items.is_empty(),
            Value::Object(fields) => !fields.is_empty() || !is_map,
            _ => true,
        })
    };
    match (new, old) {
        (Some(Value::Object(new)), Some(Value::Object(old))) => {
            for key in new.keys().chain(old.keys().filter(|key| !new.contains_key(*key))) {
                compare(new.get(key), old.get(key), &format!("{path}.{key}"), changes);
            }
        }
        (Some(Value::Array(new)), Some(Value::Array(old))) if new.len() == old.len() => {
            for (index, (new, old)) in new.iter().zip(old).enumerate() {
                compare(Some(new), Some(old), &format!("{path}[{index}]"), changes);
            }
        }
        (new, old) if new == old || (!present(new) && !present(old)) => {}
        _ => changes.push(path.to_owned()),
    }
}
