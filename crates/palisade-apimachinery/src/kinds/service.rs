//! Services: defaults, the fields that depend on the type, and validation.
//!
//! Implements: the defaults, the strategy and the validation of Services in `pkg/apis/core` and `pkg/registry/core/service`.
//! <https://kubernetes.io/docs/reference/kubernetes-api/service-resources/service-v1/>
//!
//! The cluster has one family of addresses, IPv4. Addresses and node ports are allocated by the API server.

use std::net::IpAddr;

use palisade_base::field_error::BadValue;
use palisade_base::field_path::Path;
use palisade_base::version::KubeVersion;
use serde_json::{Map, Value, json};

use super::{Strategy, keep, section, set_default};
use crate::apply::ResetFields;
use crate::rest::meta::{self, NameRule};
use crate::rest::names;
use crate::rest::path::{Errors, Get};
use crate::scheme::Kind;

pub(crate) static SERVICE: Strategy = Strategy {
    default,
    prepare_create: |object, version| {
        if let Some(map) = object.as_object_mut() {
            map.insert("status".into(), json!({"loadBalancer": {}}));
        }
        if let Some(spec) = section(object, "spec") {
            if spec.list("clusterIPs").is_empty()
                && !spec.text("clusterIP").is_empty()
                && has_families(version)
            {
                spec["clusterIPs"] = json!([spec.text("clusterIP")]);
            }
            set_families(spec, version);
        }
    },
    prepare_update,
    validate: |object, _, errors| {
        validate_meta(object, errors);
        validate(object, errors);
    },
    validate_update: |new, old, subresource, _: &Kind, errors| {
        meta::validate_update(new, old, errors);
        if subresource == "status" {
            return;
        }
        validate_addresses_kept(new, old, errors);
        validate(new, errors);
    },
    reset_fields: |subresource| match subresource {
        "" => ResetFields::Exclude(&[&["status"]]),
        "status" => ResetFields::Exclude(&[&["spec"]]),
        _ => ResetFields::NONE,
    },
};

/// The first release whose Services have families of addresses.
fn has_families(version: KubeVersion) -> bool {
    version.at_least(23)
}

fn default(object: &mut Value, version: KubeVersion) {
    let Some(spec) = section(object, "spec") else { return };
    for (field, value) in [("sessionAffinity", "None"), ("type", "ClusterIP")] {
        if spec.text(field).is_empty() {
            spec[field] = value.into();
        }
    }
    if spec.text("sessionAffinity") == "None" {
        if let Some(spec) = spec.as_object_mut() {
            spec.remove("sessionAffinityConfig");
        }
    } else if spec.text("sessionAffinity") == "ClientIP"
        && let Some(config) = section(spec, "sessionAffinityConfig")
        && let Some(client) = section(config, "clientIP")
    {
        set_default(client, "timeoutSeconds", 10_800);
    }
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        if port.text("protocol").is_empty() {
            port["protocol"] = "TCP".into();
        }
        let unset = match port.get("targetPort") {
            None | Some(Value::Null) => true,
            Some(Value::String(text)) => text.is_empty(),
            Some(number) => number.as_i64() == Some(0),
        };
        if unset {
            port["targetPort"] = port.int("port").unwrap_or(0).into();
        }
    }
    let kind = spec.text("type").to_owned();
    if version.at_least(22) && kind != "ExternalName" {
        set_default(spec, "internalTrafficPolicy", "Cluster");
    }
    if (kind == "NodePort" || kind == "LoadBalancer") && spec.text("externalTrafficPolicy").is_empty() {
        spec["externalTrafficPolicy"] = "Cluster".into();
    }
    if kind == "LoadBalancer" && version.at_least(22) {
        set_default(spec, "allocateLoadBalancerNodePorts", true);
    }
}

/// The families of a Service that names none: those of the cluster, and both where nothing selects pods.
fn set_families(spec: &mut Value, version: KubeVersion) {
    if !has_families(version) || !needs_address(spec) {
        return;
    }
    let policy = spec.text("ipFamilyPolicy").to_owned();
    if is_headless(spec) && spec.entries("selector").next().is_none() {
        if policy.is_empty() {
            spec["ipFamilyPolicy"] = "RequireDualStack".into();
        }
        if spec.list("ipFamilies").is_empty() {
            let both = spec.text("ipFamilyPolicy") != "SingleStack";
            spec["ipFamilies"] = if both { json!(["IPv4", "IPv6"]) } else { json!(["IPv4"]) };
        }
        return;
    }
    if policy.is_empty() {
        spec["ipFamilyPolicy"] = "SingleStack".into();
    }
    if spec.list("ipFamilies").is_empty() {
        spec["ipFamilies"] = json!(["IPv4"]);
    }
}

fn prepare_update(new: &mut Value, old: &Value, subresource: &str, version: KubeVersion) {
    if subresource == "status" {
        keep(new, old, "spec");
        return;
    }
    keep(new, old, "status");
    let empty = Value::Null;
    let before = old.get("spec").unwrap_or(&empty);
    let Some(spec) = section(new, "spec") else { return };
    if has_families(version) {
        keep_primary_address(spec, before);
    }
    drop_fields_of_old_type(spec, before);
    if needs_address(before) && needs_address(spec) {
        if spec.text("clusterIP").is_empty() {
            keep(spec, before, "clusterIP");
        }
        if spec.list("clusterIPs").is_empty() && spec.text("clusterIP") == before.text("clusterIP") {
            keep(spec, before, "clusterIPs");
        }
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            if spec.get(field).is_none_or(|value| value.is_null() || value == &json!([])) {
                keep(spec, before, field);
            }
        }
    }
    if needs_node_ports(before) && needs_node_ports(spec) {
        keep_node_ports(spec, before);
    }
    if needs_health_port(before)
        && needs_health_port(spec)
        && spec.int("healthCheckNodePort").unwrap_or(0) == 0
    {
        keep(spec, before, "healthCheckNodePort");
    }
    set_families(spec, version);
    let balanced = spec.text("type") == "LoadBalancer";
    if !balanced && let Some(status) = section(new, "status") {
        status["loadBalancer"] = json!({});
    }
}

/// The old field and the list of addresses are one: a change of one of them is a change of both.
fn keep_primary_address(spec: &mut Value, before: &Value) {
    let same = spec.get("clusterIPs") == before.get("clusterIPs");
    if spec.text("clusterIP") == before.text("clusterIP") || !same {
        return;
    }
    if spec.text("clusterIP").is_empty() {
        if let Some(spec) = spec.as_object_mut() {
            spec.remove("clusterIPs");
        }
        return;
    }
    let mut addresses = spec.list("clusterIPs").to_vec();
    let primary = Value::from(spec.text("clusterIP"));
    match addresses.first_mut() {
        Some(first) => *first = primary,
        None => addresses.push(primary),
    }
    spec["clusterIPs"] = addresses.into();
}

/// Fields that the new type does not have are dropped where the client left them as they were.
fn drop_fields_of_old_type(spec: &mut Value, before: &Value) {
    let drop = |spec: &mut Value, field: &str| {
        if spec.get(field) == before.get(field)
            && let Some(spec) = spec.as_object_mut()
        {
            spec.remove(field);
        }
    };
    if needs_address(before) && !needs_address(spec) {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            drop(spec, field);
        }
    }
    if needs_node_ports(before) && !needs_node_ports(spec) {
        let old_ports = before.list("ports").to_vec();
        for (i, port) in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten().enumerate()
        {
            let same = old_ports.get(i).is_some_and(|old| old.get("nodePort") == port.get("nodePort"));
            if let (true, Some(port)) = (same, port.as_object_mut()) {
                port.remove("nodePort");
            }
        }
    }
    if needs_health_port(before) && !needs_health_port(spec) {
        drop(spec, "healthCheckNodePort");
    }
    if before.text("type") == "LoadBalancer" && spec.text("type") != "LoadBalancer" {
        drop(spec, "allocateLoadBalancerNodePorts");
        drop(spec, "loadBalancerClass");
    }
    if is_external(before) && !is_external(spec) {
        drop(spec, "externalTrafficPolicy");
    }
    if needs_address(before) && !needs_address(spec) {
        drop(spec, "internalTrafficPolicy");
    }
}

/// Ports keep the node ports that they have.
fn keep_node_ports(spec: &mut Value, before: &Value) {
    let key = |port: &Value| (port.text("protocol").to_owned(), port.int("port").unwrap_or(0));
    let used: Vec<i64> = spec.list("ports").iter().filter_map(|port| port.int("nodePort")).collect();
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        if port.int("nodePort").unwrap_or(0) != 0 {
            continue;
        }
        let known = before.list("ports").iter().find(|old| key(old) == key(port));
        if let Some(kept) = known.and_then(|old| old.int("nodePort")).filter(|kept| !used.contains(kept)) {
            port["nodePort"] = kept.into();
        }
    }
}

/// Whether a Service of this spec has addresses of its own.
#[must_use]
pub fn needs_address(spec: &Value) -> bool {
    matches!(spec.text("type"), "ClusterIP" | "NodePort" | "LoadBalancer")
}

/// Whether the ports of a Service of this spec are opened on the nodes.
#[must_use]
pub fn needs_node_ports(spec: &Value) -> bool {
    let balanced = spec.text("type") == "LoadBalancer";
    spec.text("type") == "NodePort" || (balanced && spec.flag("allocateLoadBalancerNodePorts") != Some(false))
}

/// Whether nodes report the health of a Service of this spec on a port of its own.
#[must_use]
pub fn needs_health_port(spec: &Value) -> bool {
    spec.text("type") == "LoadBalancer" && spec.text("externalTrafficPolicy") == "Local"
}

/// Whether a Service has no address on purpose.
#[must_use]
pub fn is_headless(spec: &Value) -> bool {
    spec.text("clusterIP") == "None" || spec.list("clusterIPs").first().is_some_and(|ip| ip == "None")
}

fn is_external(spec: &Value) -> bool {
    matches!(spec.text("type"), "NodePort" | "LoadBalancer") || !spec.list("externalIPs").is_empty()
}

fn validate_meta(object: &Value, errors: &mut Errors) {
    let rule = if errors.version.at_least(34) { NameRule::Label } else { NameRule::Label1035 };
    meta::validate(object, true, rule, errors);
}

const NO_ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

fn validate(object: &Value, errors: &mut Errors) {
    let empty = Value::Null;
    let spec = object.get("spec").unwrap_or(&empty);
    let root = Path::Root("spec");
    let kind = spec.text("type");
    if spec.list("ports").is_empty() && !is_headless(spec) && kind != "ExternalName" {
        errors.required(&root.field("ports"), "");
    }
    match kind {
        "ExternalName" if spec.text("externalName").is_empty() => {
            errors.required(&root.field("externalName"), "");
        }
        "ExternalName" => {
            let name = spec.text("externalName").trim_end_matches('.');
            errors.format(&root.field("externalName"), name, names::dns1123_subdomain(name));
        }
        "NodePort" | "LoadBalancer" if is_headless(spec) => {
            let at = root.field("clusterIPs");
            errors.invalid(&at.index(0), "None", format!("may not be set to 'None' for {kind} services"));
        }
        "ClusterIP" | "NodePort" | "LoadBalancer" => {}
        _ => {
            let kinds = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
            errors.not_supported(&root.field("type"), kind, kinds);
        }
    }
    validate_ports(spec, errors);
    let selector = root.field("selector");
    for (key, value) in spec.entries("selector") {
        let version = errors.version;
        errors.format(&selector, key, names::qualified_name(key, version));
        let value = value.as_str().unwrap_or_default();
        errors.format(&selector, value, names::label_value(value, version));
    }
    validate_affinity(spec, errors);
    validate_external(spec, errors);
    validate_families(spec, errors);
}

fn validate_ports(spec: &Value, errors: &mut Errors) {
    let root = Path::Root("spec");
    let list = root.field("ports");
    let ports = spec.list("ports");
    let in_range = "must be between 1 and 65535, inclusive";
    for (i, port) in ports.iter().enumerate() {
        let at = list.index(i);
        let name = port.text("name");
        if name.is_empty() && ports.len() > 1 {
            errors.required(&at.field("name"), "");
        } else if !name.is_empty() {
            errors.format(&at.field("name"), name, names::dns1123_label(name));
            if ports.iter().take(i).any(|other| other.text("name") == name) {
                errors.duplicate(&at.field("name"), name);
            }
        }
        let number = port.int("port").unwrap_or(0);
        if !(1..=65_535).contains(&number) {
            errors.invalid(&at.field("port"), number, in_range);
        }
        let protocol = port.text("protocol");
        if !matches!(protocol, "SCTP" | "TCP" | "UDP") {
            errors.not_supported(&at.field("protocol"), protocol, &["SCTP", "TCP", "UDP"]);
        }
        match port.get("targetPort") {
            Some(Value::String(name)) => {
                errors.format(&at.field("targetPort"), name, names::port_name(name));
            }
            Some(target) if !target.as_i64().is_some_and(|number| (1..=65_535).contains(&number)) => {
                errors.invalid(&at.field("targetPort"), target, in_range);
            }
            _ => {}
        }
        let node_port = port.int("nodePort").unwrap_or(0);
        if node_port != 0 && spec.text("type") == "ClusterIP" {
            errors.forbidden(&at.field("nodePort"), "may not be used when `type` is 'ClusterIP'");
        }
        let same =
            |other: &&Value| other.int("port").unwrap_or(0) == number && other.text("protocol") == protocol;
        if ports.iter().take(i).any(|other| same(&other)) {
            let shown = format!(
                "{{\"Name\":\"\",\"Protocol\":\"{protocol}\",\"AppProtocol\":null,\"Port\":{number},\"TargetPort\":0,\"NodePort\":0}}"
            );
            errors.duplicate(&at, BadValue::Plain(shown));
        }
    }
}

fn validate_affinity(spec: &Value, errors: &mut Errors) {
    let root = Path::Root("spec");
    let affinity = spec.text("sessionAffinity");
    if !matches!(affinity, "ClientIP" | "None") {
        errors.not_supported(&root.field("sessionAffinity"), affinity, &["ClientIP", "None"]);
    }
    if let Some(seconds) =
        spec.pointer("/sessionAffinityConfig/clientIP/timeoutSeconds").and_then(Value::as_i64)
        && !(1..=86_400).contains(&seconds)
    {
        let (config, why) =
            (root.field("sessionAffinityConfig"), "must be greater than 0 and less than 86400");
        errors.invalid(&config.field("clientIP").field("timeoutSeconds"), seconds, why);
    }
}

fn validate_external(spec: &Value, errors: &mut Errors) {
    let root = Path::Root("spec");
    let at = root.field("externalIPs");
    for (i, address) in spec.list("externalIPs").iter().enumerate() {
        let text = address.as_str().unwrap_or_default();
        // swallowed: what is no address is an error
        let why = match text.parse::<IpAddr>().ok() {
            None => NO_ADDRESS,
            Some(address) if address.is_unspecified() => "may not be unspecified (0.0.0.0 or ::)",
            Some(address) if address.is_loopback() => {
                "may not be in the loopback range (127.0.0.0/8, ::1/128)"
            }
            Some(address) if address.is_multicast() => "may not be in the multicast range",
            Some(_) => continue,
        };
        errors.invalid(&at.index(i), text, why);
    }
    let balanced = spec.text("type") == "LoadBalancer";
    for (field, called) in [
        ("loadBalancerSourceRanges", "LoadBalancerSourceRanges"),
        ("allocateLoadBalancerNodePorts", "allocateLoadBalancerNodePorts"),
        ("loadBalancerClass", "loadBalancerClass"),
    ] {
        let set =
            spec.child(field).is_some_and(|value| !matches!(value, Value::Array(list) if list.is_empty()));
        if set && !balanced {
            errors.forbidden(&root.field(called), "may only be used when `type` is 'LoadBalancer'");
        }
    }
    let policy = spec.text("externalTrafficPolicy");
    let policy_at = root.field("externalTrafficPolicy");
    if !policy.is_empty() && !is_external(spec) {
        errors.invalid(&policy_at, policy, "may only be set for externally-accessible services");
    } else if is_external(spec) && !matches!(policy, "" | "Cluster" | "Local") {
        errors.not_supported(&policy_at, policy, &["Cluster", "Local"]);
    }
    let health = spec.int("healthCheckNodePort").unwrap_or(0);
    if health != 0 && !needs_health_port(spec) {
        let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.invalid(&root.field("healthCheckNodePort"), health, why);
    }
    let internal = spec.text("internalTrafficPolicy");
    if !matches!(internal, "" | "Cluster" | "Local") {
        errors.not_supported(&root.field("internalTrafficPolicy"), internal, &["Cluster", "Local"]);
    }
    let distribution = spec.text("trafficDistribution");
    let distributions = &["PreferClose", "PreferSameZone", "PreferSameNode"];
    if !distribution.is_empty() && !distributions.contains(&distribution) {
        errors.not_supported(&root.field("trafficDistribution"), distribution, distributions);
    }
}

fn validate_families(spec: &Value, errors: &mut Errors) {
    let root = Path::Root("spec");
    let list = root.field("clusterIPs");
    let addresses = spec.list("clusterIPs");
    if spec.text("type") == "ExternalName" {
        if !addresses.is_empty() || !spec.text("clusterIP").is_empty() {
            errors.forbidden(&list, "may not be set for ExternalName services");
        }
        return;
    }
    if let Some(first) = addresses.first()
        && first.as_str() != Some(spec.text("clusterIP"))
    {
        errors.invalid(&list, &spec["clusterIPs"], "first value must match `clusterIP`");
        return;
    }
    if spec.text("clusterIP") == "None" {
        if addresses.len() > 1 {
            errors.invalid(&list, &spec["clusterIPs"], "'None' must be the first and only value");
        }
    } else {
        for (i, address) in addresses.iter().enumerate() {
            let text = address.as_str().unwrap_or_default();
            match text.parse::<IpAddr>() {
                Err(_) => errors.invalid(&list.index(i), text, NO_ADDRESS),
                Ok(IpAddr::V6(_)) => {
                    let why = "IPv6 is not configured on this cluster";
                    errors.invalid(&list.index(i), &spec["clusterIPs"], why);
                }
                Ok(IpAddr::V4(_)) => {}
            }
        }
    }
    let families = spec.list("ipFamilies");
    let at = root.field("ipFamilies");
    let selects_none = is_headless(spec) && spec.entries("selector").next().is_none();
    for (i, family) in families.iter().enumerate() {
        match family.as_str().unwrap_or_default() {
            "IPv6" if !is_headless(spec) => {
                errors.invalid(&at.index(i), "IPv6", "not configured on this cluster");
            }
            "IPv4" | "IPv6" => {}
            other => errors.not_supported(&at.index(i), other, &["IPv4", "IPv6"]),
        }
        if families.iter().take(i).any(|other| other == family) {
            errors.duplicate(&at.index(i), family);
        }
    }
    let policy = spec.text("ipFamilyPolicy");
    let policy_at = root.field("ipFamilyPolicy");
    match policy {
        "SingleStack" if families.len() > 1 => {
            let why =
                "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified";
            errors.invalid(&policy_at, policy, why);
        }
        "RequireDualStack" if !selects_none => {
            errors.invalid(&policy_at, policy, "this cluster is not configured for dual-stack services");
        }
        "" | "PreferDualStack" | "RequireDualStack" | "SingleStack" => {}
        _ => {
            let policies = &["PreferDualStack", "RequireDualStack", "SingleStack"];
            errors.not_supported(&policy_at, policy, policies);
        }
    }
}

/// The address of a Service stays as long as it needs one.
fn validate_addresses_kept(new: &Value, old: &Value, errors: &mut Errors) {
    let empty = Value::Object(Map::new());
    let (new, old) = (new.get("spec").unwrap_or(&empty), old.get("spec").unwrap_or(&empty));
    if !needs_address(new) || !needs_address(old) || old.text("clusterIP").is_empty() {
        return;
    }
    if new.text("clusterIP") != old.text("clusterIP") {
        let at = Path::Root("spec");
        let shown = new.get("clusterIPs").cloned().unwrap_or_else(|| json!([new.text("clusterIP")]));
        errors.invalid(&at.field("clusterIPs").index(0), &shown, "may not change once set");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::scheme::LATEST;

    /// What is wrong with a spec, by the rules of a create.
    fn problems(spec: &Value) -> Vec<String> {
        let mut service = json!({"metadata": {"name": "a", "namespace": "b"}, "spec": spec});
        default(&mut service, KubeVersion::LATEST);
        (SERVICE.prepare_create)(&mut service, KubeVersion::LATEST);
        let mut errors = Errors::new(KubeVersion::LATEST);
        let kind = LATEST.by_kind("", "v1", "Service").unwrap();
        (SERVICE.validate)(&service, kind, &mut errors);
        errors.list.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn services_are_validated_as_kubernetes_validates_them() {
        let ports = json!([{"port": 80}]);
        for (spec, expected) in [
            (json!({"ports": ports}), &[][..]),
            (json!({}), &["spec.ports: Required value"]),
            (json!({"clusterIP": "None"}), &[]),
            (json!({"type": "ExternalName", "externalName": "a.example.com"}), &[]),
            (json!({"type": "ExternalName"}), &["spec.externalName: Required value"]),
            (
                json!({"type": "ExternalName", "externalName": "a.b", "clusterIP": "10.99.0.9"}),
                &["spec.clusterIPs: Forbidden: may not be set for ExternalName services"],
            ),
            (
                json!({"type": "X", "ports": ports}),
                &["spec.type: Unsupported value: \"X\": supported values: \"ClusterIP\", \"ExternalName\", \
                   \"LoadBalancer\", \"NodePort\""],
            ),
            (
                json!({"clusterIP": "x", "ports": ports}),
                &["spec.clusterIPs[0]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or \
                   2001:db8::ffff)"],
            ),
            (
                json!({"clusterIP": "fd00::1", "ports": ports}),
                &["spec.clusterIPs[0]: Invalid value: [\"fd00::1\"]: IPv6 is not configured on this cluster"],
            ),
            (
                json!({"ipFamilies": ["IPv6"], "ports": ports}),
                &["spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster"],
            ),
            (
                json!({"ipFamilyPolicy": "RequireDualStack", "ports": ports}),
                &[
                    "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for \
                   dual-stack services",
                ],
            ),
            (json!({"ipFamilyPolicy": "PreferDualStack", "ports": ports}), &[]),
            (
                json!({"clusterIP": "10.99.0.7", "clusterIPs": ["10.99.0.8"], "ports": ports}),
                &["spec.clusterIPs: Invalid value: [\"10.99.0.8\"]: first value must match `clusterIP`"],
            ),
            (
                json!({"ports": [{"port": 80, "nodePort": 30101}]}),
                &["spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"],
            ),
            (
                json!({"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 80}]}),
                &[
                    "spec.ports[1]: Duplicate value: {\"Name\":\"\",\"Protocol\":\"TCP\",\"AppProtocol\":null,\"Port\":80,\
                   \"TargetPort\":0,\"NodePort\":0}",
                ],
            ),
            (
                json!({"ports": [{"port": 80}, {"port": 81}]}),
                &["spec.ports[0].name: Required value", "spec.ports[1].name: Required value"],
            ),
            (
                json!({"ports": [{"port": 0}]}),
                &[
                    "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
                    "spec.ports[0].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive",
                ],
            ),
            (
                json!({"ports": ports, "sessionAffinity": "ClientIP",
                    "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 100_000}}}),
                &[
                    "spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 100000: must be greater than 0 \
                   and less than 86400",
                ],
            ),
            (
                json!({"ports": ports, "externalTrafficPolicy": "Local"}),
                &[
                    "spec.externalTrafficPolicy: Invalid value: \"Local\": may only be set for externally-accessible \
                   services",
                ],
            ),
            (
                json!({"ports": ports, "healthCheckNodePort": 30200}),
                &[
                    "spec.healthCheckNodePort: Invalid value: 30200: may only be set when `type` is 'LoadBalancer' and \
                   `externalTrafficPolicy` is 'Local'",
                ],
            ),
            (
                json!({"ports": ports, "loadBalancerClass": "a/b"}),
                &["spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'"],
            ),
            (
                json!({"type": "NodePort", "clusterIP": "None", "ports": ports}),
                &[
                    "spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for NodePort services",
                ],
            ),
            (
                json!({"clusterIP": "None", "ports": ports, "ipFamilies": ["IPv4", "IPv6"], "selector": {"a": "b"}}),
                &["spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or \
                   'PreferDualStack' when multiple IP families are specified"],
            ),
        ] {
            assert_eq!(problems(&spec), expected, "{spec}");
        }
    }

    #[test]
    fn an_update_keeps_what_was_allocated_and_drops_what_the_type_does_not_have() {
        let stored = json!({"spec": {"type": "NodePort", "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"],
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "externalTrafficPolicy": "Cluster",
            "internalTrafficPolicy": "Cluster",
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80, "nodePort": 30100}]}});
        let spec = |change: &dyn Fn(&mut Value)| {
            let mut new = stored.clone();
            change(&mut new["spec"]);
            prepare_update(&mut new, &stored, "", KubeVersion::LATEST);
            new["spec"].clone()
        };
        let replaced =
            spec(&|spec| *spec = json!({"type": "NodePort", "ports": [{"port": 80, "protocol": "TCP"}]}));
        assert_eq!(
            (&replaced["clusterIP"], &replaced["ports"][0]["nodePort"]),
            (&json!("10.96.0.9"), &json!(30100))
        );
        let inner = spec(&|spec| spec["type"] = "ClusterIP".into());
        assert_eq!(
            (&inner["ports"][0]["nodePort"], &inner["externalTrafficPolicy"]),
            (&Value::Null, &Value::Null)
        );
        let external = spec(&|spec| spec["type"] = "ExternalName".into());
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"] {
            assert!(external.get(field).is_none(), "{field}: {external}");
        }
        let moved = spec(&|spec| spec["clusterIP"] = "10.96.0.10".into());
        let mut errors = Errors::new(KubeVersion::LATEST);
        validate_addresses_kept(&json!({"spec": moved}), &stored, &mut errors);
        assert_eq!(
            errors.list.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["spec.clusterIPs[0]: Invalid value: [\"10.96.0.10\"]: may not change once set"]
        );
    }
}
