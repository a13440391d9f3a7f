//! Defaults of pods and pod templates.

use palisade_base::quantity::Quantity;
use palisade_base::version::KubeVersion;
use serde_json::{Map, Value, json};

use crate::kinds::set_default;
use crate::rest::path::Get;

/// Volume sources of a [`default_template`] volume; without any the volume becomes an `emptyDir`.
const NOT_A_SOURCE: &[&str] = &["name"];

pub(crate) fn default_pod(pod: &mut Value, version: KubeVersion) {
    let Some(spec) = pod.get_mut("spec") else { return };
    default_spec(spec, version, true);
    set_default(spec, "enableServiceLinks", true);
    for field in ["containers", "initContainers"] {
        for container in list_mut(spec, field) {
            if let Some(resources) = container.get_mut("resources") {
                default_requests(resources);
            }
        }
    }
    if version.at_least(34)
        && let Some(resources) = spec.get_mut("resources")
    {
        default_requests(resources);
    }
}

/// Requests that are not set are those of the limits.
fn default_requests(resources: &mut Value) {
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else { return };
    if limits.is_empty() {
        return;
    }
    let Some(requests) = crate::kinds::section(resources, "requests").and_then(Value::as_object_mut) else {
        return;
    };
    for (name, limit) in limits {
        requests.entry(name).or_insert(limit);
    }
}

/// Defaults of `spec.template` and the like.
pub(crate) fn default_template(template: Option<&mut Value>, version: KubeVersion) {
    if let Some(spec) = template.and_then(|t| t.get_mut("spec")) {
        default_spec(spec, version, false);
    }
}

pub(super) fn list_mut<'v>(value: &'v mut Value, key: &str) -> &'v mut [Value] {
    value.get_mut(key).and_then(Value::as_array_mut).map_or(&mut [], Vec::as_mut_slice)
}

fn set_text(value: &mut Value, key: &str, default: &str) {
    if value.text(key).is_empty()
        && let Some(map) = value.as_object_mut()
    {
        map.insert(key.to_owned(), default.into());
    }
}

fn set_number(value: &mut Value, key: &str, default: i64) {
    if value.int(key).unwrap_or(0) == 0
        && let Some(map) = value.as_object_mut()
    {
        map.insert(key.to_owned(), default.into());
    }
}

fn default_spec(spec: &mut Value, version: KubeVersion, is_pod: bool) {
    for volume in list_mut(spec, "volumes") {
        default_volume(volume);
    }
    // Pod templates were defaulted as well before v1.28.
    let host_ports = spec.flag("hostNetwork") == Some(true) && (is_pod || !version.at_least(28));
    for field in ["containers", "initContainers", "ephemeralContainers"] {
        for container in list_mut(spec, field) {
            default_container(container);
            if host_ports && field != "ephemeralContainers" {
                for port in list_mut(container, "ports") {
                    let number = port.int("containerPort").unwrap_or(0);
                    set_number(port, "hostPort", number);
                }
            }
        }
    }
    set_text(spec, "dnsPolicy", "ClusterFirst");
    set_text(spec, "restartPolicy", "Always");
    set_default(spec, "securityContext", Value::Object(Map::new()));
    set_default(spec, "terminationGracePeriodSeconds", 30);
    set_text(spec, "schedulerName", "default-scheduler");
    // The old name of the field is kept in step with the new one.
    let account = spec.text("serviceAccountName").to_owned();
    let old = spec.text("serviceAccount").to_owned();
    if let Some(map) = spec.as_object_mut() {
        if account.is_empty() && !old.is_empty() {
            map.insert("serviceAccountName".into(), old.into());
        } else if !account.is_empty() {
            map.insert("serviceAccount".into(), account.into());
        }
    }
    if let Some(overhead) = spec.get_mut("overhead") {
        round_resource_list(overhead);
    }
    if let Some(resources) = spec.get_mut("resources") {
        round_resources(resources);
    }
}

fn round_resources(resources: &mut Value) {
    for field in ["limits", "requests"] {
        if let Some(list) = resources.get_mut(field) {
            round_resource_list(list);
        }
    }
}

/// Quantities finer than a thousandth are rounded up.
pub(crate) fn round_resource_list(list: &mut Value) {
    let Some(map) = list.as_object_mut() else { return };
    for value in map.values_mut() {
        let Some(quantity) = value.as_str().and_then(|text| Quantity::parse(text).ok()) else { continue };
        if !quantity.is_multiple_of(3) {
            *value = Value::String(format!("{}m", quantity.milli()));
        }
    }
}

fn default_container(container: &mut Value) {
    let policy = pull_policy(container.text("image"));
    set_text(container, "imagePullPolicy", policy);
    set_text(container, "terminationMessagePath", "/dev/termination-log");
    set_text(container, "terminationMessagePolicy", "File");
    for port in list_mut(container, "ports") {
        set_text(port, "protocol", "TCP");
    }
    for variable in list_mut(container, "env") {
        if let Some(from) = variable.get_mut("valueFrom") {
            default_field_ref(from);
            if let Some(file) = from.get_mut("fileKeyRef") {
                set_default(file, "optional", false);
            }
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.get_mut(probe).filter(|p| p.is_object()) else { continue };
        default_http_get(probe);
        if let Some(grpc) = probe.get_mut("grpc").filter(|g| g.is_object()) {
            set_default(grpc, "service", "");
        }
        set_number(probe, "timeoutSeconds", 1);
        set_number(probe, "periodSeconds", 10);
        set_number(probe, "successThreshold", 1);
        set_number(probe, "failureThreshold", 3);
    }
    if let Some(lifecycle) = container.get_mut("lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(hook) = lifecycle.get_mut(hook) {
                default_http_get(hook);
            }
        }
    }
    if let Some(resources) = container.get_mut("resources") {
        round_resources(resources);
    }
}

/// `Always` for `:latest` or no tag, else `IfNotPresent`.
fn pull_policy(image: &str) -> &'static str {
    if image.contains('@') {
        // A digest pins the image; a tag beside it still counts.
        let before = image.split('@').next().unwrap_or_default();
        let name = before.rsplit('/').next().unwrap_or_default();
        return if name.ends_with(":latest") { "Always" } else { "IfNotPresent" };
    }
    let name = image.rsplit('/').next().unwrap_or_default();
    match name.rsplit_once(':') {
        None | Some((_, "latest" | "")) => "Always",
        Some(_) => "IfNotPresent",
    }
}

fn default_http_get(handler: &mut Value) {
    if let Some(get) = handler.get_mut("httpGet").filter(|g| g.is_object()) {
        set_text(get, "path", "/");
        set_text(get, "scheme", "HTTP");
    }
}

fn default_field_ref(owner: &mut Value) {
    if let Some(field) = owner.get_mut("fieldRef").filter(|f| f.is_object()) {
        set_text(field, "apiVersion", "v1");
    }
}

fn default_volume(volume: &mut Value) {
    let has_source = volume
        .as_object()
        .is_some_and(|map| map.iter().any(|(k, v)| !NOT_A_SOURCE.contains(&k.as_str()) && !v.is_null()));
    if !has_source && let Some(map) = volume.as_object_mut() {
        map.insert("emptyDir".into(), Value::Object(Map::new()));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        let Some(source) = volume.get_mut(source).filter(|s| s.is_object()) else { continue };
        set_default(source, "defaultMode", 0o644);
        for item in list_mut(source, "items") {
            default_field_ref(item);
        }
        for projection in list_mut(source, "sources") {
            if let Some(token) = projection.get_mut("serviceAccountToken").filter(|t| t.is_object()) {
                set_default(token, "expirationSeconds", 3600);
            }
            if let Some(api) = projection.get_mut("downwardAPI") {
                for item in list_mut(api, "items") {
                    default_field_ref(item);
                }
            }
        }
    }
    let with = |source: &mut Value, defaults: &[(&str, Value)]| {
        for (key, value) in defaults {
            if source.get(key).is_none_or(|v| v.is_null() || v.as_str() == Some("")) {
                set_default(source, key, value.clone());
                if let Some(map) = source.as_object_mut() {
                    map.insert((*key).to_owned(), value.clone());
                }
            }
        }
    };
    for (source, defaults) in [
        ("iscsi", &[("iscsiInterface", json!("default"))][..]),
        ("rbd", &[("pool", json!("rbd")), ("user", json!("admin")), ("keyring", json!("/etc/ceph/keyring"))]),
        ("scaleIO", &[("storageMode", json!("ThinProvisioned")), ("fsType", json!("xfs"))]),
        (
            "azureDisk",
            &[
                ("cachingMode", json!("ReadWrite")),
                ("kind", json!("Shared")),
                ("fsType", json!("ext4")),
                ("readOnly", json!(false)),
            ],
        ),
    ] {
        if let Some(source) = volume.get_mut(source).filter(|s| s.is_object()) {
            with(source, defaults);
        }
    }
    if let Some(path) = volume.get_mut("hostPath").filter(|s| s.is_object()) {
        set_default(path, "type", "");
    }
    if let Some(image) = volume.get_mut("image").filter(|s| s.is_object()) {
        let policy = pull_policy(image.text("reference"));
        set_text(image, "pullPolicy", policy);
    }
    if let Some(spec) = volume.pointer_mut("/ephemeral/volumeClaimTemplate/spec") {
        set_default(spec, "volumeMode", "Filesystem");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_decides_the_pull_policy() {
        for (image, expected) in [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("nginx:1", "IfNotPresent"),
            ("host:5000/nginx", "Always"),
            ("host:5000/nginx:2", "IfNotPresent"),
            ("nginx@sha256:0123", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), expected, "{image}");
        }
    }

    #[test]
    fn requests_follow_limits_and_volumes_get_a_source() {
        let mut pod = json!({"spec": {"containers": [{"name": "c", "image": "i:1", "resources": {"limits": {"cpu": "1"}}}],
                                      "volumes": [{"name": "v"}, {"name": "s", "secret": {"secretName": "x"}}]}});
        default_pod(&mut pod, KubeVersion::LATEST);
        assert_eq!(pod["spec"]["containers"][0]["resources"]["requests"], json!({"cpu": "1"}));
        assert_eq!(pod["spec"]["volumes"][0], json!({"name": "v", "emptyDir": {}}));
        assert_eq!(pod["spec"]["volumes"][1]["secret"]["defaultMode"], 420);
    }
}
