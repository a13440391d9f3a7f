//! Pods: defaults, preparation, validation, warnings.
//!
//! Implements: `pkg/apis/core/v1/defaults.go`, `pkg/registry/core/pod/strategy.go` and the pod half of
//! `pkg/apis/core/validation/validation.go`.
//! Leaves to others: security contexts, seccomp and AppArmor (fields and annotations) and Pod Security, whose errors and
//! warnings arrive through [`crate::rest::Extra`].

mod containers;
mod defaults;
mod env;
mod qos;
mod resources;
mod scheduling;
mod update;
mod validate;
mod volumes;
pub mod warnings;

use palisade_base::version::KubeVersion;
use serde_json::{Value, json};

use super::{Strategy, bump_generation, keep, set_generation};
use crate::apply::ResetFields;
use crate::rest::path::Get;

pub(crate) use defaults::default_template;
pub(crate) use resources::validate_list as validate_amounts;
pub(crate) use scheduling::spec_selector;
pub(crate) use validate::{validate_template, validate_tolerations};

pub(crate) static POD: Strategy = Strategy {
    default: defaults::default_pod,
    prepare_create,
    prepare_update,
    validate: validate::validate_pod,
    validate_update: update::validate_update,
    reset_fields,
};

fn reset_fields(subresource: &str) -> ResetFields {
    match subresource {
        "" => ResetFields::Exclude(&[&["status"]]),
        "status" => ResetFields::Exclude(&[
            &["spec"],
            &["metadata", "deletionTimestamp"],
            &["metadata", "ownerReferences"],
        ]),
        "ephemeralcontainers" => ResetFields::Include(&[&["spec", "ephemeralContainers"]]),
        "resize" => ResetFields::Include(&[&["spec", "containers"], &["spec", "initContainers"]]),
        _ => ResetFields::NONE,
    }
}

fn prepare_create(pod: &mut Value, version: KubeVersion) {
    let mut status = json!({"phase": "Pending", "qosClass": qos::class(pod)});
    if !pod.get("spec").is_some_and(|s| s.list("schedulingGates").is_empty()) {
        status["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null, "lastTransitionTime": null,
        }]);
    }
    if let Some(map) = pod.as_object_mut() {
        map.insert("status".into(), status);
    }
    if version.at_least(33) {
        set_generation(pod);
    } else if let Some(meta) = crate::apply::metadata_mut(pod) {
        meta.remove("generation");
    }
}

fn prepare_update(new: &mut Value, old: &Value, subresource: &str, version: KubeVersion) {
    match subresource {
        "status" => {
            keep(new, old, "spec");
            keep_meta(new, old, "deletionTimestamp");
            keep_meta(new, old, "ownerReferences");
            // Since v1.32 a class that was changed is rejected.
            let given = new.get("status").map_or("", |status| status.text("qosClass"));
            if given.is_empty() || !version.at_least(32) {
                keep_status(new, old, "qosClass");
            }
            sync_addresses(new);
        }
        "ephemeralcontainers" => {
            let wanted = new.pointer("/spec/ephemeralContainers").cloned();
            keep(new, old, "spec");
            keep(new, old, "status");
            keep_all_meta(new, old);
            if let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) {
                match wanted {
                    Some(list) => spec.insert("ephemeralContainers".into(), list),
                    None => spec.remove("ephemeralContainers"),
                };
            }
        }
        "resize" => {
            let wanted = ["containers", "initContainers"].map(|field| (field, containers(new, field)));
            keep(new, old, "spec");
            keep(new, old, "status");
            keep_all_meta(new, old);
            for (field, wanted) in wanted {
                keep_only_resources(new, field, &wanted);
            }
        }
        _ => keep(new, old, "status"),
    }
    if version.at_least(33) && subresource != "status" {
        let changed = new.get("spec") != old.get("spec");
        bump_generation(new, old, changed);
    }
}

/// The two forms of a pod's addresses, as upstream's conversion aligns them: of two that differ, `podIP` counts.
fn sync_addresses(pod: &mut Value) {
    let Some(status) = pod.get_mut("status") else { return };
    let first = status.list("podIPs").first().map(|entry| entry.text("ip").to_owned());
    let own = status.text("podIP").to_owned();
    let Some(status) = status.as_object_mut() else { return };
    match first {
        Some(first) if own.is_empty() && !first.is_empty() => {
            status.insert("podIP".to_owned(), first.into());
        }
        first if !own.is_empty() && first.as_ref() != Some(&own) => {
            status.insert("podIPs".to_owned(), json!([{"ip": own}]));
        }
        _ => {}
    }
}

fn containers(pod: &Value, field: &str) -> Vec<Value> {
    pod.get("spec").map(|spec| spec.list(field).to_vec()).unwrap_or_default()
}

/// Nothing of a container but its resources and what a change of them does is taken over. Containers that come, go, move or
/// get another name are left for validation to reject.
fn keep_only_resources(pod: &mut Value, field: &str, wanted: &[Value]) {
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let stored = spec.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
    let same = |(before, container): (&Value, &Value)| before.text("name") == container.text("name");
    if stored.len() != wanted.len() || !stored.iter().zip(wanted).all(same) {
        spec.insert(field.to_owned(), wanted.into());
        return;
    }
    let resized = stored.into_iter().zip(wanted).map(|(mut after, container)| {
        for part in ["resources", "resizePolicy"] {
            match (container.get(part), after.as_object_mut()) {
                (Some(value), Some(after)) => after.insert(part.to_owned(), value.clone()),
                (None, Some(after)) => after.remove(part),
                (_, None) => None,
            };
        }
        after
    });
    let resized: Vec<Value> = resized.collect();
    if !resized.is_empty() || spec.contains_key(field) {
        spec.insert(field.to_owned(), resized.into());
    }
}

fn keep_meta(new: &mut Value, old: &Value, field: &str) {
    let stored = old.get("metadata").and_then(|m| m.get(field)).cloned();
    let Some(meta) = crate::apply::metadata_mut(new) else { return };
    match stored {
        Some(value) => meta.insert(field.to_owned(), value),
        None => meta.remove(field),
    };
}

/// Everything in metadata but the managed fields comes from the old object.
fn keep_all_meta(new: &mut Value, old: &Value) {
    let managed = new.pointer("/metadata/managedFields").cloned();
    let version = new.pointer("/metadata/resourceVersion").cloned();
    keep(new, old, "metadata");
    let Some(meta) = crate::apply::metadata_mut(new) else { return };
    meta.remove("managedFields");
    if let Some(managed) = managed {
        meta.insert("managedFields".into(), managed);
    }
    if let Some(version) = version {
        meta.insert("resourceVersion".into(), version);
    }
}

fn keep_status(new: &mut Value, old: &Value, field: &str) {
    let stored = old.get("status").and_then(|s| s.get(field)).cloned();
    if let (Some(value), Some(status)) = (stored, super::section(new, "status"))
        && let Some(map) = status.as_object_mut()
    {
        map.insert(field.to_owned(), value);
    }
}
