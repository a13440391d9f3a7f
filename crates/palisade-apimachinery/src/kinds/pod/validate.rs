//! Validation of pods and pod templates.

use std::collections::BTreeSet;

use palisade_base::field_error::BadValue;
use palisade_base::field_path::Path;
use serde_json::{Map, Value};

use super::{containers, resources, scheduling, volumes};
use crate::decode::syntax_error;
use crate::kinds::internal;
use crate::rest::meta::{self, NameRule};
use crate::rest::names;
use crate::rest::path::{Errors, Get};
use crate::scheme::Kind;

/// Rules that differ between a pod and a template.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context<'a> {
    /// The spec belongs to a pod.
    pub(super) is_pod: bool,
    /// Name of the pod, if it has one.
    pub(super) pod_name: &'a str,
}

pub(super) fn validate_pod(pod: &Value, _: &Kind, errors: &mut Errors) {
    validate_metadata_and_spec(pod, errors);
    if !pod.get("spec").is_some_and(|s| s.list("ephemeralContainers").is_empty()) {
        errors.forbidden(&Path::Root("spec").field("ephemeralContainers"), "cannot be set on create");
    }
}

pub(super) fn validate_metadata_and_spec(pod: &Value, errors: &mut Errors) {
    meta::validate(pod, true, NameRule::Subdomain, errors);
    let empty = Value::Null;
    let (metadata, spec) = (pod.get("metadata").unwrap_or(&empty), pod.get("spec").unwrap_or(&empty));
    validate_annotations(metadata, spec, &Path::Root("metadata"), errors);
    let at = Path::Root("spec");
    let name = pod.at(&["metadata", "name"]).and_then(Value::as_str).unwrap_or_default();
    validate_spec(spec, &at, Context { is_pod: true, pod_name: name }, errors);
    if spec.text("serviceAccountName").is_empty() {
        for (i, volume) in spec.list("volumes").iter().enumerate() {
            for (j, source) in
                volume.child("projected").map_or(&[][..], |p| p.list("sources")).iter().enumerate()
            {
                if source.child("serviceAccountToken").is_some() {
                    let volumes = at.field("volumes");
                    let volume = volumes.index(i);
                    let projected = volume.field("projected");
                    let sources = projected.field("sources");
                    errors.forbidden(
                        &sources.index(j).field("serviceAccountToken"),
                        "must not be specified when serviceAccountName is not set",
                    );
                }
            }
        }
    }
    for field in ["containers", "initContainers"] {
        for (i, container) in spec.list(field).iter().enumerate() {
            let image = container.text("image");
            if image.trim() != image {
                errors.invalid(
                    &at.field(field).index(i).field("image"),
                    image,
                    "must not have leading or trailing whitespace",
                );
            }
        }
    }
}

/// The annotation of a pod that a kubelet runs from a file: this pod only mirrors it.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";
const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";

/// Annotations with a meaning, apart from security profiles.
pub(super) fn validate_annotations(meta: &Value, spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    let at = at.field("annotations");
    let Some(annotations) = meta.get("annotations") else { return };
    if let Some(mirrored) = annotations.get(MIRROR).and_then(Value::as_str)
        && spec.text("nodeName").is_empty()
    {
        errors.invalid(&at.key(MIRROR), mirrored, "must set spec.nodeName if mirror pod annotation is set");
    }
    let tolerations = annotations.text(TOLERATIONS);
    if !tolerations.is_empty()
        && let Err(error) = serde_json::from_str::<Vec<Map<String, Value>>>(tolerations)
    {
        errors.invalid(&at, TOLERATIONS, syntax_error(tolerations.as_bytes(), &error.to_string()));
    }
    let cost = annotations.get("controller.kubernetes.io/pod-deletion-cost").and_then(Value::as_str);
    if let Some(cost) = cost {
        let digits = cost.strip_prefix('-').unwrap_or(cost);
        let canonical = !digits.is_empty()
            && digits.bytes().all(|b| b.is_ascii_digit())
            && (digits == "0" || !digits.starts_with('0'))
            && cost != "-0";
        if !canonical || cost.parse::<i32>().is_err() {
            errors.invalid(
                &at.key("controller.kubernetes.io/pod-deletion-cost"),
                cost,
                "must be a 32bit integer",
            );
        }
    }
}

/// A pod template inside another object.
pub(crate) fn validate_template(template: Option<&Value>, at: &Path<'_>, errors: &mut Errors) {
    let empty = Value::Null;
    let template = template.unwrap_or(&empty);
    let meta = template.get("metadata").unwrap_or(&empty);
    // Upstream leaves `metadata` out of these paths.
    meta::validate_labels(meta, "labels", at, errors);
    meta::validate_annotations(meta, at, errors);
    let spec_at = at.field("spec");
    let spec = template.get("spec").unwrap_or(&empty);
    validate_annotations(meta, spec, at, errors);
    validate_spec(spec, &spec_at, Context { is_pod: false, pod_name: "" }, errors);
    if !spec.list("ephemeralContainers").is_empty() {
        errors.forbidden(
            &spec_at.field("ephemeralContainers"),
            "ephemeral containers not allowed in pod template",
        );
    }
}

fn validate_spec(spec: &Value, at: &Path<'_>, context: Context<'_>, errors: &mut Errors) {
    let known = volumes::validate(spec.list("volumes"), &at.field("volumes"), context, errors);
    validate_resource_claims(spec.list("resourceClaims"), &at.field("resourceClaims"), errors);
    containers::validate(spec, at, &known, context, errors);
    let version = errors.version;
    one_of(spec, "restartPolicy", at, &["Always", "OnFailure", "Never"], errors);
    one_of(spec, "dnsPolicy", at, &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"], errors);
    meta::validate_labels(spec, "nodeSelector", at, errors);
    if let Some(affinity) = spec.child("affinity") {
        scheduling::validate_affinity(affinity, &at.field("affinity"), errors);
    }
    validate_dns_config(spec, &at.field("dnsConfig"), errors);
    for (i, gate) in spec.list("readinessGates").iter().enumerate() {
        let name = gate.text("conditionType");
        let gates = at.field("readinessGates");
        errors.format(&gates.index(i).field("conditionType"), name, names::qualified_name(name, version));
    }
    let mut seen: Vec<&str> = Vec::new();
    for (i, gate) in spec.list("schedulingGates").iter().enumerate() {
        let name = gate.text("name");
        let gates = at.field("schedulingGates");
        errors.format(&gates.index(i), name, names::qualified_name(name, version));
        if seen.contains(&name) {
            errors.duplicate(&gates.index(i), name);
        }
        seen.push(name);
    }
    scheduling::validate_spread(
        spec.list("topologySpreadConstraints"),
        &at.field("topologySpreadConstraints"),
        errors,
    );
    validate_host_users(spec, at, errors);
    validate_hostname_override(spec, &at.field("hostnameOverride"), errors);
    for field in ["serviceAccountName", "nodeName", "priorityClassName"] {
        if field == "priorityClassName" {
            validate_middle(spec, at, errors);
        }
        let name = spec.text(field);
        if !name.is_empty() {
            errors.format(&at.field(field), name, names::dns1123_subdomain(name));
        }
    }
    let class = spec.text("runtimeClassName");
    if spec.child("runtimeClassName").is_some() {
        errors.format(&at.field("runtimeClassName"), class, names::dns1123_subdomain(class));
    }
    if let Some(policy) = spec.child("preemptionPolicy").and_then(Value::as_str) {
        let at = at.field("preemptionPolicy");
        match policy {
            "PreemptLowerPriority" | "Never" => {}
            "" => errors.required(&at, ""),
            other => errors.not_supported(&at, other, &["PreemptLowerPriority", "Never"]),
        }
    }
    if let Some(overhead) = spec.child("overhead") {
        resources::validate_list(overhead, &at.field("overhead").field("limits"), errors);
    }
    if let Some(os) = spec.child("os") {
        let name = os.text("name");
        let at = at.field("os");
        match name {
            "linux" | "windows" => {}
            "" => errors.required(&at.field("name"), "cannot be empty"),
            other => errors.not_supported(&at, other, &["linux", "windows"]),
        }
    }
}

fn validate_resource_claims(claims: &[Value], at: &Path<'_>, errors: &mut Errors) {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for (i, claim) in claims.iter().enumerate() {
        let at = at.index(i);
        let name = claim.text("name");
        if name.is_empty() {
            errors.required(&at.field("name"), "");
        } else if seen.insert(name) {
            errors.format(&at.field("name"), name, names::dns1123_label(name));
        } else {
            errors.duplicate(&at.field("name"), name);
        }
        let sources = ["resourceClaimName", "resourceClaimTemplateName"];
        let given = sources.map(|source| claim.child(source).and_then(Value::as_str));
        let problem = match given {
            [Some(_), Some(_)] => {
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            }
            [None, None] => "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            _ => "",
        };
        if !problem.is_empty() {
            let shown = internal::print("PodResourceClaim", claim, false, errors.version);
            errors.invalid(&at, BadValue::Plain(shown), problem);
        }
        for (source, name) in sources.into_iter().zip(given) {
            if let Some(name) = name {
                errors.format(&at.field(source), name, names::dns1123_subdomain(name));
            }
        }
    }
}

/// The checks between `nodeName` and `priorityClassName`, in upstream's order.
fn validate_middle(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    if let Some(seconds) = spec.int("activeDeadlineSeconds") {
        let most = i64::from(i32::MAX);
        if !(1..=most).contains(&seconds) {
            errors.invalid(&at.field("activeDeadlineSeconds"), seconds, names::inclusive_range(1, most));
        }
    }
    for field in ["hostname", "subdomain"] {
        let name = spec.text(field);
        if !name.is_empty() {
            errors.format(&at.field(field), name, names::dns1123_label(name));
        }
    }
    validate_tolerations(spec.list("tolerations"), &at.field("tolerations"), errors);
    for (i, alias) in spec.list("hostAliases").iter().enumerate() {
        let aliases = at.field("hostAliases");
        let at = aliases.index(i);
        validate_ip(alias.text("ip"), &at.field("ip"), errors);
        for (j, name) in alias.list("hostnames").iter().enumerate() {
            let name = name.as_str().unwrap_or_default();
            errors.format(&at.field("hostnames").index(j), name, names::dns1123_subdomain(name));
        }
    }
}

pub(super) fn one_of(owner: &Value, field: &str, at: &Path<'_>, supported: &[&str], errors: &mut Errors) {
    match owner.text(field) {
        "" => errors.required(&at.field(field), ""),
        value if supported.contains(&value) => {}
        other => errors.not_supported(&at.field(field), other, supported),
    }
}

fn validate_ip(text: &str, at: &Path<'_>, errors: &mut Errors) {
    if text.parse::<std::net::IpAddr>().is_err() {
        let rule = if errors.version.at_least(28) {
            "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
        } else {
            "must be valid IP address"
        };
        errors.invalid(at, text, rule);
    }
}

fn validate_host_users(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    // Before v1.33 its gate is off by default and the field is dropped.
    if !errors.version.at_least(33) || spec.flag("hostUsers") != Some(false) {
        return;
    }
    for (field, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec.flag(field) == Some(true) {
            errors.forbidden(&at.field(shown), "when `hostUsers` is false");
        }
    }
}

fn validate_hostname_override(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    let Some(name) = spec.child("hostnameOverride").and_then(Value::as_str) else { return };
    for (field, rule) in [
        ("setHostnameAsFQDN", "may not be specified when setHostnameAsFQDN is true"),
        ("hostNetwork", "may not be specified when hostNetwork is true"),
    ] {
        if spec.flag(field) == Some(true) {
            errors.forbidden(at, rule);
        }
    }
    if name.len() > 64 {
        errors.too_long(at, 64);
    }
    errors.format(at, name, names::dns1123_subdomain(name));
}

fn validate_dns_config(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    let config = spec.child("dnsConfig");
    if spec.text("dnsPolicy") == "None" {
        let Some(config) = config else {
            errors.required(at, "must provide `dnsConfig` when `dnsPolicy` is None");
            return;
        };
        if config.list("nameservers").is_empty() {
            errors.required(
                &at.field("nameservers"),
                "must provide at least one DNS nameserver when `dnsPolicy` is None",
            );
            return;
        }
    }
    let Some(config) = config else { return };
    let servers = config.list("nameservers");
    let shown = |list: &[Value]| BadValue::Json(Value::Array(list.to_vec()));
    if servers.len() > 3 {
        errors.invalid(&at.field("nameservers"), shown(servers), "must not have more than 3 nameservers");
    }
    for (i, server) in servers.iter().enumerate() {
        validate_ip(server.as_str().unwrap_or_default(), &at.field("nameservers").index(i), errors);
    }
    let searches = config.list("searches");
    let (most, longest) = if errors.version.at_least(26) { (32, 2048) } else { (6, 256) };
    if searches.len() > most {
        errors.invalid(
            &at.field("searches"),
            shown(searches),
            format!("must not have more than {most} search paths"),
        );
    }
    let length = searches.iter().filter_map(Value::as_str).map(|s| s.len() + 1).sum::<usize>();
    if length.saturating_sub(1) > longest {
        errors.invalid(
            &at.field("searches"),
            shown(searches),
            format!("must not have more than {longest} characters (including spaces) in the search list"),
        );
    }
    for (i, search) in searches.iter().enumerate() {
        let name = search.as_str().unwrap_or_default();
        let name = name.strip_suffix('.').unwrap_or(name);
        errors.format(&at.field("searches").index(i), name, names::dns1123_subdomain(name));
    }
    for (i, option) in config.list("options").iter().enumerate() {
        if option.text("name").is_empty() {
            errors.required(&at.field("options").index(i), "must not be empty");
        }
    }
}

/// Tolerations of a pod.
pub(crate) fn validate_tolerations(tolerations: &[Value], at: &Path<'_>, errors: &mut Errors) {
    for (i, toleration) in tolerations.iter().enumerate() {
        let at = at.index(i);
        let version = errors.version;
        let (key, operator) = (toleration.text("key"), toleration.text("operator"));
        if !key.is_empty() {
            errors.format(&at.field("key"), key, names::qualified_name(key, version));
        } else if operator != "Exists" {
            errors.invalid(
                &at.field("operator"),
                operator,
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            );
        }
        let effect = toleration.text("effect");
        if toleration.child("tolerationSeconds").is_some() && effect != "NoExecute" {
            errors.invalid(
                &at.field("effect"),
                effect,
                "effect must be 'NoExecute' when `tolerationSeconds` is set",
            );
        }
        match operator {
            "Equal" | "" => {
                let value = toleration.text("value");
                let messages = names::label_value(value, version);
                if !messages.is_empty() {
                    errors.invalid(&at.field("operator"), value, messages.join(";"));
                }
            }
            "Exists" => {
                if !toleration.text("value").is_empty() {
                    let shown = internal::toleration(toleration, version);
                    errors.invalid(
                        &at.field("operator"),
                        BadValue::Plain(shown),
                        "value must be empty when `operator` is 'Exists'",
                    );
                }
            }
            // Known since v1.35, and behind a gate that is off.
            other @ ("Lt" | "Gt") if version.at_least(35) => {
                errors.not_supported(&at.field("operator"), other, &["Equal", "Exists", "Lt", "Gt"]);
            }
            other => errors.not_supported(&at.field("operator"), other, &["Equal", "Exists"]),
        }
        if !effect.is_empty() && !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
            errors.not_supported(
                &at.field("effect"),
                effect,
                &["NoSchedule", "PreferNoSchedule", "NoExecute"],
            );
        }
    }
}
