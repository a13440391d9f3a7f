//! Warnings about pods that are not about security.
//!
//! Implements: the general part of `pkg/api/pod/warnings.go`.

use std::fmt;

use palisade_base::go;
use palisade_base::quantity::Quantity;
use palisade_base::version::KubeVersion;
use serde_json::Value;

use crate::rest::names;
use crate::rest::path::Get;

/// Warnings on making a pod. Changes of pods are let pass without, because upstream keeps them fast.
pub(crate) fn of_pod(pod: &Value, old: Option<&Value>, version: KubeVersion) -> Vec<String> {
    if old.is_some() {
        return Vec::new();
    }
    let mut out = Vec::new();
    if version.at_least(27) {
        of_name(pod, "the Pod's hostname", &mut out);
    }
    of_template_at(pod, "", version, &mut out);
    out
}

/// Warnings on writing something with a pod template; on update only if the specification changed.
pub(crate) fn of_workload(
    object: &Value,
    old: Option<&Value>,
    pointer: &str,
    named_after: bool,
    version: KubeVersion,
) -> Vec<String> {
    let generation = |object: &Value| object.pointer("/metadata/generation").and_then(Value::as_i64);
    if old.is_some_and(|old| generation(old) == generation(object)) {
        return Vec::new();
    }
    let mut out = Vec::new();
    if old.is_none() && named_after && version.at_least(27) {
        of_name(object, "Pod names and hostnames", &mut out);
    }
    let path = pointer.trim_start_matches('/').replace('/', ".");
    if let Some(template) = object.pointer(pointer) {
        of_template_at(template, &format!("{path}."), version, &mut out);
    }
    out
}

fn of_name(object: &Value, used_in: &str, out: &mut Vec<String>) {
    let name = object.at(&["metadata", "name"]).and_then(Value::as_str).unwrap_or_default();
    let messages = names::dns1123_label(name);
    if !messages.is_empty() {
        out.push(format!(
            "metadata.name: this is used in {used_in}, which can result in surprising behavior; a DNS label is \
             recommended: [{}]",
            messages.join(" ")
        ));
    }
}

/// `path` is empty or ends in a dot.
fn of_template_at(template: &Value, path: &str, version: KubeVersion, out: &mut Vec<String>) {
    let Some(spec) = template.get("spec").filter(|_| version.at_least(21)) else { return };
    let at = format!("{path}spec");
    of_node_labels(spec, &at, version, out);
    let annotations = template.at(&["metadata", "annotations"]);
    for (key, instead) in DEPRECATED_ANNOTATIONS {
        if annotations.is_some_and(|annotations| annotations.get(key).is_some()) {
            out.push(format!("{path}metadata.annotations[{key}]: non-functional in {instead} field instead"));
        }
    }
    of_volumes(spec, &at, version, out);
    of_repeated(spec, "hostAliases", "ip", &at, out);
    of_repeated(spec, "imagePullSecrets", "name", &at, out);
    for (i, secret) in spec.list("imagePullSecrets").iter().enumerate() {
        if secret.text("name").is_empty() {
            out.push(format!("{at}.imagePullSecrets[{i}].name: invalid empty name \"\""));
        }
    }
    if let Some(overhead) = spec.child("overhead") {
        of_fractions(overhead, &format!("{at}.overhead"), out);
    }
    for (field, containers) in visited(spec) {
        for (i, container) in containers.iter().enumerate() {
            of_container(container, &format!("{at}.{field}[{i}]"), out);
        }
    }
    if version.at_least(29) {
        of_ports(spec, &at, version, out);
    }
    if version.at_least(30) && spec.int("terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
        out.push(format!(
            "{at}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
        ));
    }
    if version.at_least(28) {
        of_pod_affinity(spec, &at, out);
    }
}

/// Containers of every kind, in the order upstream visits them.
fn visited(spec: &Value) -> [(&'static str, &[Value]); 3] {
    ["initContainers", "containers", "ephemeralContainers"].map(|field| (field, spec.list(field)))
}

fn of_node_labels(spec: &Value, at: &str, version: KubeVersion, out: &mut Vec<String>) {
    for key in spec.entries("nodeSelector").map(|(k, _)| k.as_str()) {
        if let Some(instead) = deprecated_label(key) {
            out.push(format!("{at}.nodeSelector[{key}]: {instead}"));
        }
    }
    let empty = Value::Null;
    let affinity = spec.pointer("/affinity/nodeAffinity").unwrap_or(&empty);
    let mut terms = Vec::new();
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    for (i, term) in
        affinity.child(required).map_or(&[][..], |r| r.list("nodeSelectorTerms")).iter().enumerate()
    {
        terms.push((term, format!("{required}.nodeSelectorTerms[{i}]")));
    }
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    for (i, term) in affinity.list(preferred).iter().enumerate() {
        if let Some(preference) = term.child("preference") {
            terms.push((preference, format!("{preferred}[{i}].preference")));
        }
    }
    for (term, path) in terms {
        for (i, expression) in term.list("matchExpressions").iter().enumerate() {
            let key = expression.text("key");
            if let Some(instead) = deprecated_label(key) {
                out.push(format!(
                    "{at}.affinity.nodeAffinity.{path}.matchExpressions[{i}].key: {key} is {instead}"
                ));
            }
        }
    }
    for (i, constraint) in spec.list("topologySpreadConstraints").iter().enumerate() {
        let key = constraint.text("topologyKey");
        if let Some(instead) = deprecated_label(key) {
            out.push(format!("{at}.topologySpreadConstraints[{i}].topologyKey: {key} is {instead}"));
        }
        if version.at_least(27) && constraint.child("labelSelector").is_none() {
            out.push(format!(
                "{at}.topologySpreadConstraints[{i}].labelSelector: a null labelSelector results in matching no pod"
            ));
        }
    }
}

fn of_pod_affinity(spec: &Value, at: &str, out: &mut Vec<String>) {
    let null = "a null labelSelector results in matching no pod";
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(affinity) = spec.child("affinity").and_then(|a| a.child(kind)) else { continue };
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        for (i, term) in affinity.list(required).iter().enumerate() {
            if term.child("labelSelector").is_none() {
                out.push(format!("{at}.affinity.{kind}.{required}[{i}].labelSelector: {null}"));
            }
        }
        let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
        for (i, term) in affinity.list(preferred).iter().enumerate() {
            if term.child("podAffinityTerm").is_none_or(|t| t.child("labelSelector").is_none()) {
                let path = format!("{at}.affinity.{kind}.{preferred}[{i}].podAffinityTerm.labelSelector");
                out.push(format!("{path}: {null}"));
            }
        }
    }
}

fn of_volumes(spec: &Value, at: &str, version: KubeVersion, out: &mut Vec<String>) {
    let git = if version.at_least(33) {
        "deprecated in v1.11, and disabled by default in v1.33+"
    } else {
        "deprecated in v1.11"
    };
    let plugins = [
        ("photonPersistentDisk", 21, "deprecated in v1.11, non-functional in v1.16+"),
        ("gitRepo", 21, git),
        ("scaleIO", 21, "deprecated in v1.16, non-functional in v1.22+"),
        ("flocker", 22, "deprecated in v1.22, non-functional in v1.25+"),
        ("storageOS", 22, "deprecated in v1.22, non-functional in v1.25+"),
        ("quobyte", 22, "deprecated in v1.22, non-functional in v1.25+"),
        ("glusterfs", 25, "deprecated in v1.25, non-functional in v1.26+"),
        ("cephfs", 28, "deprecated in v1.28, non-functional in v1.31+"),
        ("rbd", 28, "deprecated in v1.28, non-functional in v1.31+"),
    ];
    for (i, volume) in spec.list("volumes").iter().enumerate() {
        for (plugin, since, fate) in plugins {
            if volume.child(plugin).is_some() && version.at_least(since) {
                out.push(format!("{at}.volumes[{i}].{plugin}: {fate}"));
            }
        }
    }
}

/// A list whose items should differ in a field.
fn of_repeated(spec: &Value, list: &str, field: &str, at: &str, out: &mut Vec<String>) {
    let mut seen: Vec<&str> = Vec::new();
    for (i, item) in spec.list(list).iter().enumerate() {
        let text = item.text(field);
        if seen.contains(&text) {
            out.push(format!("{at}.{list}[{i}].{field}: duplicate {field} {}", go::quote(text)));
        } else {
            seen.push(text);
        }
    }
}

fn of_container(container: &Value, at: &str, out: &mut Vec<String>) {
    // Memory of limits and requests comes before storage.
    for name in ["memory", "ephemeral-storage"] {
        for kind in ["limits", "requests"] {
            if let Some(resources) = container.child("resources").and_then(|r| r.child(kind)) {
                of_fraction(resources, name, format_args!("{at}.resources.{kind}"), out);
            }
        }
    }
    let mut seen: Vec<&str> = Vec::new();
    for (i, variable) in container.list("env").iter().enumerate() {
        let name = variable.text("name");
        if !seen.contains(&name) {
            seen.push(name);
            continue;
        }
        // `X=abc`, `X=$(X)123` keeps the first definition in the second.
        let (value, reference) = (variable.text("value"), format!("$({name})"));
        if variable.child("valueFrom").is_some() || value == reference || !value.contains(&reference) {
            out.push(format!(
                "{at}.env[{i}]: hides previous definition of {}, which may be dropped when using apply",
                go::quote(name)
            ));
        }
    }
}

fn of_fractions(resources: &Value, at: &str, out: &mut Vec<String>) {
    for name in ["memory", "ephemeral-storage"] {
        of_fraction(resources, name, format_args!("{at}"), out);
    }
}

fn of_fraction(resources: &Value, name: &str, at: fmt::Arguments<'_>, out: &mut Vec<String>) {
    if let Some(quantity) = resources.get(name).and_then(Value::as_str).and_then(|t| Quantity::parse(t).ok())
        && !quantity.is_multiple_of(0)
    {
        out.push(format!(
            "{at}[{name}]: fractional byte value {} is invalid, must be an integer",
            go::quote(&quantity.to_string())
        ));
    }
}

fn of_ports(spec: &Value, at: &str, version: KubeVersion, out: &mut Vec<String>) {
    let mut seen: Vec<(&Value, String)> = Vec::new();
    for (field, containers) in visited(spec) {
        for (i, container) in containers.iter().enumerate() {
            for (j, port) in container.list("ports").iter().enumerate() {
                let path = format!("{at}.{field}[{i}].ports[{j}]");
                let number = |port: &Value, key: &str| port.int(key).unwrap_or(0);
                if version.at_least(32) && !port.text("hostIP").is_empty() && number(port, "hostPort") == 0 {
                    out.push(format!(
                        "{path}: hostIP set without hostPort: {{Name:{} HostPort:0 ContainerPort:{} Protocol:{} HostIP:{}}}",
                        port.text("name"),
                        number(port, "containerPort"),
                        port.text("protocol"),
                        port.text("hostIP"),
                    ));
                }
                let alike = seen.iter().filter(|(other, _)| {
                    number(other, "containerPort") == number(port, "containerPort")
                        && other.text("protocol") == port.text("protocol")
                });
                for (other, there) in alike {
                    let (host, other_host) = (number(port, "hostPort"), number(other, "hostPort"));
                    let (ip, other_ip) = (port.text("hostIP"), other.text("hostIP"));
                    let problem = if ip == other_ip && host == other_host {
                        "duplicate"
                    } else if host == 0 || other_host == 0 {
                        "overlapping"
                    } else if host == other_host && ip.is_empty() != other_ip.is_empty() {
                        "dangerously ambiguous"
                    } else {
                        continue;
                    };
                    out.push(format!("{path}: {problem} port definition with {there}"));
                }
                seen.push((port, path));
            }
        }
    }
}

const DEPRECATED_ANNOTATIONS: &[(&str, &str)] = &[
    ("scheduler.alpha.kubernetes.io/critical-pod", "v1.16+; use the \"priorityClassName\""),
    ("security.alpha.kubernetes.io/sysctls", "v1.11+; use the \"sysctls\""),
    ("security.alpha.kubernetes.io/unsafe-sysctls", "v1.11+; use the \"sysctls\""),
];

fn deprecated_label(key: &str) -> Option<&'static str> {
    Some(match key {
        "beta.kubernetes.io/arch" => "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
        "beta.kubernetes.io/os" => "deprecated since v1.14; use \"kubernetes.io/os\" instead",
        "failure-domain.beta.kubernetes.io/region" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead"
        }
        "failure-domain.beta.kubernetes.io/zone" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"
        }
        "beta.kubernetes.io/instance-type" => {
            "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(spec: &Value) -> Vec<String> {
        of_pod(&json!({"metadata": {"name": "p"}, "spec": spec}), None, KubeVersion::LATEST)
    }

    #[test]
    fn what_works_and_yet_surprises() {
        let container = |fields: Value| json!({"containers": [fields]});
        for (case, spec, expected) in [
            ("no warning", container(json!({"env": [{"name": "A", "value": "1"}]})), &[][..]),
            (
                "a variable twice",
                container(json!({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]})),
                &[
                    "spec.containers[0].env[1]: hides previous definition of \"A\", which may be dropped when using apply",
                ],
            ),
            (
                "a variable that extends itself",
                container(json!({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}]})),
                &[],
            ),
            (
                "ports",
                container(
                    json!({"ports": [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 80, "protocol": "TCP"},
                                           {"containerPort": 80, "protocol": "UDP"},
                                           {"containerPort": 80, "protocol": "UDP", "hostPort": 8080}]}),
                ),
                &[
                    "spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]",
                    "spec.containers[0].ports[3]: overlapping port definition with spec.containers[0].ports[2]",
                ],
            ),
            (
                "names twice, and none",
                json!({"imagePullSecrets": [{"name": "a"}, {"name": "a"}, {"name": ""}],
                       "hostAliases": [{"ip": "1.1.1.1"}, {"ip": "1.1.1.1"}]}),
                &[
                    "spec.hostAliases[1].ip: duplicate ip \"1.1.1.1\"",
                    "spec.imagePullSecrets[1].name: duplicate name \"a\"",
                    "spec.imagePullSecrets[2].name: invalid empty name \"\"",
                ],
            ),
            (
                "constraints that match nothing",
                json!({"topologySpreadConstraints": [{"topologyKey": "beta.kubernetes.io/os"}]}),
                &[
                    "spec.topologySpreadConstraints[0].topologyKey: beta.kubernetes.io/os is deprecated since v1.14; use \
                     \"kubernetes.io/os\" instead",
                    "spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod",
                ],
            ),
            (
                "volumes that are no longer served",
                json!({"volumes": [{"name": "v", "rbd": {}}]}),
                &["spec.volumes[0].rbd: deprecated in v1.28, non-functional in v1.31+"],
            ),
        ] {
            assert_eq!(of(&spec), expected, "{case}");
        }
    }

    #[test]
    fn names_become_hostnames() {
        let named = |name: &str| json!({"metadata": {"name": name, "generation": 1}, "spec": {"template": {"spec": {}}}});
        let dotted = of_workload(&named("a.b"), None, "/spec/template", true, KubeVersion::LATEST);
        assert_eq!(
            dotted,
            [
                "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label \
              is recommended: [must not contain dots]"
            ]
        );
        let long = "x".repeat(64);
        assert_eq!(
            of_pod(&named(&long), None, KubeVersion::LATEST),
            [
                "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is \
              recommended: [must be no more than 63 characters]"
            ]
        );
        assert_eq!(of_pod(&named("a.b"), Some(&named("a.b")), KubeVersion::LATEST), [""; 0]);
        assert_eq!(of_workload(&named("a.b"), None, "/spec/template", false, KubeVersion::LATEST), [""; 0]);
    }
}
