//! What may change in a pod after it was created.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use palisade_base::field_error::BadValue;
use palisade_base::field_path::Path;
use serde_json::{Value, json};

use super::validate::{MIRROR, validate_annotations, validate_metadata_and_spec};
use crate::kinds::internal;
use crate::rest::meta;
use crate::rest::names;
use crate::rest::path::{Errors, Get};
use crate::scheme::Kind;

pub(super) fn validate_update(new: &Value, old: &Value, subresource: &str, _: &Kind, errors: &mut Errors) {
    match subresource {
        "status" => validate_status(new, old, errors),
        "ephemeralcontainers" => validate_ephemeral(new, old, errors),
        "resize" => validate_resize(new, old, errors),
        _ => validate_main(new, old, errors),
    }
}

const SPEC: Path<'static> = Path::Root("spec");

fn validate_main(new: &Value, old: &Value, errors: &mut Errors) {
    meta::validate_update(new, old, errors);
    validate_metadata_and_spec(new, errors);
    validate_mirror(new, old, errors);
    let empty = Value::Null;
    let (spec, old_spec) = (new.get("spec").unwrap_or(&empty), old.get("spec").unwrap_or(&empty));
    for field in ["containers", "initContainers"] {
        let at = SPEC.field(field);
        let (containers, old_containers) = (spec.list(field), old_spec.list(field));
        if containers.len() != old_containers.len() {
            errors.forbidden(&at, "pod updates may not add or remove containers");
            return;
        }
        for (i, container) in containers.iter().enumerate() {
            let image = container.text("image");
            if image.is_empty() {
                errors.required(&at.index(i).field("image"), "");
            }
            if image.trim() != image {
                errors.invalid(
                    &at.index(i).field("image"),
                    image,
                    "must not have leading or trailing whitespace",
                );
            }
        }
    }
    let at = SPEC.field("activeDeadlineSeconds");
    match (spec.int("activeDeadlineSeconds"), old_spec.int("activeDeadlineSeconds")) {
        (Some(seconds), before) => {
            let most = i64::from(i32::MAX);
            if !(0..=most).contains(&seconds) {
                errors.invalid(&at, seconds, names::inclusive_range(0, most));
                return;
            }
            if before.is_some_and(|before| before < seconds) {
                errors.invalid(&at, seconds, "must be less than or equal to previous value");
                return;
            }
        }
        (None, Some(_)) => {
            errors.invalid(&at, BadValue::Nil, "must not update from a positive integer to nil value");
        }
        (None, None) => {}
    }
    validate_added_tolerations(spec.list("tolerations"), old_spec.list("tolerations"), errors);
    validate_gates(spec, old_spec, errors);
    let munged = munge(spec, old_spec, errors.version);
    if munged != *old_spec {
        errors.forbidden(&SPEC, unchangeable(&munged, old_spec, errors.version));
    }
}

/// Nothing but the CPU and memory of containers may change.
fn validate_resize(new: &Value, old: &Value, errors: &mut Errors) {
    meta::validate_update(new, old, errors);
    validate_metadata_and_spec(new, errors);
    let empty = Value::Null;
    let (spec, old_spec) = (new.get("spec").unwrap_or(&empty), old.get("spec").unwrap_or(&empty));
    for field in ["containers", "initContainers"] {
        if spec.list(field).len() != old_spec.list(field).len() {
            let why = format!("{field} may not be added or removed on resize");
            errors.forbidden(&SPEC.field(field), why);
            return;
        }
    }
    if super::qos::class(new) != super::qos::class(old) {
        let shown = new.pointer("/status/qosClass").and_then(Value::as_str).unwrap_or_default();
        errors.invalid(&SPEC, shown, "Pod QOS Class may not change as a result of resizing");
    }
    let mut munged = spec.clone();
    for field in ["containers", "initContainers"] {
        let at = SPEC.field(field);
        let containers = super::defaults::list_mut(&mut munged, field);
        for (i, (container, before)) in containers.iter_mut().zip(old_spec.list(field)).enumerate() {
            if container.text("name") != before.text("name") {
                let why = format!("{field} may not be renamed or reordered on resize");
                errors.forbidden(&at.index(i).field("name"), why);
                return;
            }
            restore_cpu_and_memory(container, before);
        }
    }
    if munged != *old_spec {
        errors.forbidden(&SPEC, "only cpu and memory resources are mutable");
    }
}

fn restore_cpu_and_memory(container: &mut Value, before: &Value) {
    let Some(container) = container.as_object_mut() else { return };
    let mut resources = container.get("resources").cloned().unwrap_or_else(|| json!({}));
    let stored = before.get("resources").cloned().unwrap_or_else(|| json!({}));
    let Some(fields) = resources.as_object_mut() else { return };
    for list in ["limits", "requests"] {
        let amounts = fields.entry(list).or_insert_with(|| json!({}));
        let Some(amounts) = amounts.as_object_mut() else { continue };
        for name in ["cpu", "memory"] {
            match stored.get(list).and_then(|amounts| amounts.get(name)) {
                Some(amount) => amounts.insert(name.to_owned(), amount.clone()),
                None => amounts.remove(name),
            };
        }
        if amounts.is_empty() && stored.get(list).is_none() {
            fields.remove(list);
        }
    }
    if before.get("resources").is_some() || fields.values().any(|value| !value.is_null()) {
        container.insert("resources".to_owned(), resources);
    } else {
        container.remove("resources");
    }
}

/// The new spec with everything that may change set back.
fn munge(spec: &Value, old: &Value, version: palisade_base::version::KubeVersion) -> Value {
    let mut munged = spec.clone();
    for field in ["containers", "initContainers"] {
        for (container, before) in
            super::defaults::list_mut(&mut munged, field).iter_mut().zip(old.list(field))
        {
            if let (Some(map), Some(image)) = (container.as_object_mut(), before.get("image")) {
                map.insert("image".into(), image.clone());
            }
        }
    }
    let Some(map) = munged.as_object_mut() else { return munged };
    let mut restore = |field: &str| match old.get(field) {
        Some(value) => {
            map.insert(field.to_owned(), value.clone());
        }
        None => {
            map.remove(field);
        }
    };
    restore("activeDeadlineSeconds");
    restore("tolerations");
    if version.at_least(27) {
        restore("schedulingGates");
        // A pod that waits for its gates may still have its placement narrowed.
        if !old.list("schedulingGates").is_empty() {
            restore("nodeSelector");
            restore("affinity");
        }
    }
    let (grace, before) =
        (spec.int("terminationGracePeriodSeconds"), old.int("terminationGracePeriodSeconds"));
    if grace == Some(1) && before.is_some_and(|before| before < 0) {
        restore("terminationGracePeriodSeconds");
    }
    munged
}

fn unchangeable(munged: &Value, old: &Value, version: palisade_base::version::KubeVersion) -> String {
    let head = if version.at_least(28) {
        "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,\
         `spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),\
         `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
    } else if version.at_least(24) {
        "pod updates may not change fields other than `spec.containers[*].image`, `spec.initContainers[*].image`, \
         `spec.activeDeadlineSeconds`, `spec.tolerations` (only additions to existing tolerations) or \
         `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
    } else {
        "pod updates may not change fields other than `spec.containers[*].image`, `spec.initContainers[*].image`, \
         `spec.activeDeadlineSeconds` or `spec.tolerations` (only additions to existing tolerations)"
    };
    format!("{head}\n{}", internal::diff("PodSpec", old, munged, version))
}

fn validate_added_tolerations(new: &[Value], old: &[Value], errors: &mut Errors) {
    let at = SPEC.field("tolerations");
    for before in old {
        // The seconds may change, for NoExecute tolerations.
        let same = |t: &&Value| {
            let same_taint =
                ["key", "operator", "value", "effect"].iter().all(|f| t.text(f) == before.text(f));
            *t == before || (same_taint && before.text("effect") == "NoExecute")
        };
        if !new.iter().any(|t| same(&t)) {
            errors.forbidden(&at, "existing toleration can not be modified except its tolerationSeconds");
            return;
        }
    }
}

fn validate_gates(spec: &Value, old: &Value, errors: &mut Errors) {
    if !errors.version.at_least(27) {
        return;
    }
    let before = old.list("schedulingGates");
    for gate in spec.list("schedulingGates") {
        if !before.iter().any(|b| b.text("name") == gate.text("name")) {
            errors.forbidden(
                &SPEC.field("schedulingGates"),
                "only deletion is allowed, but found new scheduling gate",
            );
            return;
        }
    }
}

fn validate_ephemeral(new: &Value, old: &Value, errors: &mut Errors) {
    meta::validate_update(new, old, errors);
    validate_metadata_and_spec(new, errors);
    let empty = Value::Null;
    let (spec, old_spec) = (new.get("spec").unwrap_or(&empty), old.get("spec").unwrap_or(&empty));
    let at = SPEC.field("ephemeralContainers");
    for before in old_spec.list("ephemeralContainers") {
        let name = palisade_base::go::quote(before.text("name"));
        let after = spec.list("ephemeralContainers").iter().find(|c| c.text("name") == before.text("name"));
        match after {
            None => {
                errors.forbidden(&at, format!("existing ephemeral containers {name} may not be removed\n"));
            }
            Some(after) if after != before => {
                let diff = internal::diff("EphemeralContainer", before, after, errors.version);
                errors.forbidden(
                    &at,
                    format!("existing ephemeral containers {name} may not be changed\n{diff}"),
                );
            }
            Some(_) => {}
        }
    }
}

/// Whether a pod mirrors one that the kubelet runs by itself is decided when it is created.
fn validate_mirror(new: &Value, old: &Value, errors: &mut Errors) {
    let mirrored = |pod: &'_ Value| {
        let annotations = pod.pointer("/metadata/annotations");
        annotations.and_then(|annotations| annotations.get(MIRROR)).cloned()
    };
    let at = Path::Root("metadata");
    let at = at.field("annotations");
    match (mirrored(old), mirrored(new)) {
        (None, Some(_)) => errors.forbidden(&at.key(MIRROR), "may not add mirror pod annotation"),
        (before @ Some(_), after) if before != after => {
            errors.forbidden(&at.key(MIRROR), "may not remove or update mirror pod annotation");
        }
        _ => {}
    }
}

fn validate_status(new: &Value, old: &Value, errors: &mut Errors) {
    meta::validate_update(new, old, errors);
    validate_mirror(new, old, errors);
    let at = Path::Root("status");
    let empty = Value::Null;
    let (metadata, spec) = (new.get("metadata").unwrap_or(&empty), old.get("spec").unwrap_or(&empty));
    validate_annotations(metadata, spec, &Path::Root("metadata"), errors);
    let (status, old_status) = (new.get("status").unwrap_or(&empty), old.get("status").unwrap_or(&empty));
    validate_conditions(status.list("conditions"), &at.field("conditions"), errors);
    let nominated = status.text("nominatedNodeName");
    if nominated != old_status.text("nominatedNodeName") && !nominated.is_empty() {
        errors.format(&at.field("nominatedNodeName"), nominated, names::dns1123_subdomain(nominated));
    }
    if let Some(generation) = status.int("observedGeneration").filter(|generation| *generation < 0) {
        errors.invalid(&at.field("observedGeneration"), generation, "must be a non-negative integer");
    }
    if errors.version.at_least(32) {
        errors.immutable(&at.field("qosClass"), status.get("qosClass"), old_status.get("qosClass"));
    }
    let policy = old.pointer("/spec/restartPolicy").and_then(Value::as_str).unwrap_or_default();
    for field in ["containerStatuses", "initContainerStatuses"] {
        if policy == "Always" {
            continue;
        }
        for (i, before) in old_status.list(field).iter().enumerate() {
            let Some(terminated) = before.pointer("/state/terminated").filter(|t| !t.is_null()) else {
                continue;
            };
            let failed = terminated.int("exitCode").unwrap_or(0) != 0;
            if failed && policy == "OnFailure" {
                continue;
            }
            let after = status.list(field).iter().find(|s| s.text("name") == before.text("name"));
            if after.is_some_and(|a| a.pointer("/state/terminated").is_none_or(Value::is_null)) {
                errors.forbidden(
                    &at.field(field).index(i).field("state"),
                    "may not be transitioned to non-terminated state",
                );
            }
        }
    }
    validate_claim_statuses(status, old.get("spec").unwrap_or(&empty), &at, errors);
    validate_addresses(status, old_status, &at, errors);
    for field in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
        for (i, container) in status.list(field).iter().enumerate() {
            if let Some(user) = container.pointer("/user/linux") {
                let statuses = at.field(field);
                let container = statuses.index(i);
                validate_container_user(user, &container.field("user").field("linux"), errors);
            }
        }
    }
}

fn validate_conditions(conditions: &[Value], at: &Path<'_>, errors: &mut Errors) {
    for (i, condition) in conditions.iter().enumerate() {
        let (at, name) = (at.index(i), condition.text("type"));
        if let Some(generation) = condition.int("observedGeneration").filter(|generation| *generation < 0) {
            errors.invalid(&at.field("observedGeneration"), generation, "must be a non-negative integer");
        }
        if !["PodScheduled", "Ready", "Initialized"].contains(&name) {
            // Upstream writes the name of the Go field.
            errors.format(&at.field("Type"), name, names::qualified_name(name, errors.version));
        }
    }
}

fn validate_claim_statuses(status: &Value, spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    let at = at.field("resourceClaimStatuses");
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for (i, claim) in status.list("resourceClaimStatuses").iter().enumerate() {
        let (at, name) = (at.index(i), claim.text("name"));
        if !spec.list("resourceClaims").iter().any(|own| own.text("name") == name) {
            let why = "must match the name of an entry in `spec.resourceClaims`";
            errors.invalid(&at.field("name"), name, why);
        }
        if !seen.insert(name) {
            errors.duplicate(&at.field("name"), name);
        }
        if let Some(name) = claim.child("resourceClaimName").and_then(Value::as_str) {
            errors.format(&at.field("resourceClaimName"), name, names::dns1123_subdomain(name));
        }
    }
}

/// The addresses of the pod and of its node: one of each family, and the single field is the first of the list.
fn validate_addresses(status: &Value, old: &Value, at: &Path<'_>, errors: &mut Errors) {
    for (single, plural) in [("podIP", "podIPs"), ("hostIP", "hostIPs")] {
        let (addresses, at) = (status.list(plural), at.field(plural));
        let first = addresses.first().map(|entry| entry.text("ip"));
        if plural == "hostIPs"
            && let Some(first) = first
            && first != status.text(single)
        {
            errors.invalid(&at.index(0).field("ip"), first, "must be equal to `hostIP`");
        }
        let mut families = Vec::new();
        for (i, entry) in addresses.iter().enumerate() {
            let text = entry.text("ip");
            // What was stored before may stay.
            if !old.list(plural).iter().any(|known| known.text("ip") == text) {
                validate_address(text, &at.index(i), errors);
            }
            families.extend(parsed_sloppily(text).map(|address| address.is_ipv4()));
        }
        let shown = || {
            let listed: Vec<Value> = addresses.iter().map(|entry| json!({"IP": entry.text("ip")})).collect();
            BadValue::Json(listed.into())
        };
        if addresses.len() > 1 {
            let dual = matches!(families.as_slice(), [one, other] if one != other);
            if !dual || addresses.len() > 2 {
                errors.invalid(&at, shown(), "may specify no more than one IP for each IP family");
            }
        }
        if plural == "podIPs" && first.is_some() && status.text(single).is_empty() {
            errors.invalid(&at, shown(), "podIP and podIPs must either both be set or both be unset");
        }
    }
}

/// An address as Go's older parser reads it: numbers of IPv4 may begin with zeros.
fn parsed_sloppily(text: &str) -> Option<IpAddr> {
    let trimmed: Vec<&str> = text
        .split('.')
        .map(|part| match part.trim_start_matches('0') {
            "" if !part.is_empty() => "0",
            rest => rest,
        })
        .collect();
    // swallowed: the other form is tried, and a text that is no address is reported by the caller
    text.parse().ok().or_else(|| trimmed.join(".").parse::<Ipv4Addr>().ok().map(IpAddr::V4))
}

fn validate_address(text: &str, at: &Path<'_>, errors: &mut Errors) {
    let Some(address) = parsed_sloppily(text) else {
        let rule = if errors.version.at_least(28) {
            "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
        } else {
            "must be valid IP address"
        };
        errors.invalid(at, text, rule);
        return;
    };
    // Before v1.36 the stricter rules are behind a gate that is off.
    if !errors.version.at_least(36) {
        return;
    }
    if text.parse::<IpAddr>().is_err() {
        errors.invalid(at, text, "must not have leading 0s");
    }
    if matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()) {
        errors.invalid(at, text, "must not be an IPv4-mapped IPv6 address");
    }
}

fn validate_container_user(user: &Value, at: &Path<'_>, errors: &mut Errors) {
    let mut within = |field: &Path<'_>, value: Option<i64>, most: i64| {
        if let Some(value) = value.filter(|value| !(0..=most).contains(value)) {
            errors.invalid(field, value, names::inclusive_range(0, most));
        }
    };
    within(&at.field("uid"), user.int("uid"), i64::from(u32::MAX));
    within(&at.field("gid"), user.int("gid"), i64::from(i32::MAX));
    for (i, group) in user.list("supplementalGroups").iter().enumerate() {
        within(&at.field("supplementalGroups").index(i), group.as_i64(), i64::from(i32::MAX));
    }
}
