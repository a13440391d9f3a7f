//! Validation of containers.

use std::collections::BTreeSet;

use palisade_base::field_error::BadValue;
use palisade_base::field_path::Path;
use serde_json::Value;

use super::validate::{Context, one_of};
use super::volumes::Known;
use super::{env, resources};
use crate::rest::names;
use crate::rest::path::{Errors, Get};

pub(super) fn validate(
    spec: &Value,
    at: &Path<'_>,
    volumes: &[Known<'_>],
    context: Context<'_>,
    errors: &mut Errors,
) {
    let containers = spec.list("containers");
    let list_at = at.field("containers");
    if containers.is_empty() {
        errors.required(&list_at, "");
    }
    let claims = spec.list("resourceClaims").iter().map(|claim| claim.text("name"));
    let claims: BTreeSet<&str> = claims.filter(|name| !name.is_empty()).collect();
    let mut names_seen: BTreeSet<&str> = BTreeSet::new();
    for (i, container) in containers.iter().enumerate() {
        let at = list_at.index(i);
        validate_common(container, &at, volumes, &claims, errors);
        let name = container.text("name");
        if !names_seen.insert(name) {
            errors.duplicate(&at.field("name"), name);
        }
        validate_lifecycle_and_probes(container, &at, errors);
        if let Some(policy) = container.child("restartPolicy").and_then(Value::as_str) {
            let (at, policies) = (at.field("restartPolicy"), ["Always", "Never", "OnFailure"]);
            if !errors.version.at_least(34) {
                errors.forbidden(&at, "may not be set for non-init containers");
            } else if !policies.contains(&policy) {
                errors.not_supported(&at, policy, &policies);
            }
        }
    }
    check_host_ports(containers, &list_at, errors);
    resources::validate_pod_level(spec, &claims, at, errors);
    validate_init(spec, at, volumes, &claims, &mut names_seen, errors);
    validate_ephemeral(spec, at, volumes, &names_seen, errors);
    if spec.flag("hostNetwork") == Some(true) {
        for (i, container) in containers.iter().enumerate() {
            for (j, port) in container.list("ports").iter().enumerate() {
                let (host, own) = (port.int("hostPort").unwrap_or(0), port.int("containerPort").unwrap_or(0));
                if (context.is_pod || host != 0) && host != own {
                    let container_at = list_at.index(i);
                    let ports = container_at.field("ports");
                    let port_at = ports.index(j);
                    errors.invalid(
                        &port_at.field("hostPort"),
                        host,
                        "must match `containerPort` when `hostNetwork` is true",
                    );
                }
            }
        }
    }
}

fn validate_init<'v>(
    spec: &'v Value,
    at: &Path<'_>,
    volumes: &[Known<'_>],
    claims: &BTreeSet<&str>,
    names_seen: &mut BTreeSet<&'v str>,
    errors: &mut Errors,
) {
    let list_at = at.field("initContainers");
    for (i, container) in spec.list("initContainers").iter().enumerate() {
        let at = list_at.index(i);
        validate_common(container, &at, volumes, claims, errors);
        let policy = container.child("restartPolicy").and_then(Value::as_str);
        if let Some(policy) = policy
            && policy != "Always"
            && !(errors.version.at_least(34) && ["Never", "OnFailure"].contains(&policy))
        {
            errors.not_supported(&at.field("restartPolicy"), policy, &["Always"]);
        }
        let name = container.text("name");
        if names_seen.contains(name) {
            errors.duplicate(&at.field("name"), name);
        } else if !name.is_empty() {
            names_seen.insert(name);
        }
        check_host_ports(std::slice::from_ref(container), &list_at, errors);
        if policy == Some("Always") {
            validate_lifecycle_and_probes(container, &at, errors);
        } else {
            for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if container.child(field).is_some() {
                    let rule = if errors.version.at_least(28) {
                        "may not be set for init containers without restartPolicy=Always"
                    } else {
                        "must not be set for init containers"
                    };
                    if errors.version.at_least(28) {
                        errors.forbidden(&at.field(field), rule);
                    } else {
                        errors.invalid(
                            &at.field(field),
                            container.get(field).map_or(BadValue::Nil, BadValue::from),
                            rule,
                        );
                    }
                }
            }
        }
    }
}

/// Fields an ephemeral container may have.
const EPHEMERAL_FIELDS: &[&str] = &[
    "name",
    "image",
    "command",
    "args",
    "workingDir",
    "envFrom",
    "env",
    "volumeMounts",
    "volumeDevices",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "imagePullPolicy",
    "securityContext",
    "stdin",
    "stdinOnce",
    "tty",
    "targetContainerName",
];

pub(super) fn validate_ephemeral(
    spec: &Value,
    at: &Path<'_>,
    volumes: &[Known<'_>],
    others: &BTreeSet<&str>,
    errors: &mut Errors,
) {
    const RULE: &str = "cannot be set for an Ephemeral Container";
    let list_at = at.field("ephemeralContainers");
    let mut own: BTreeSet<&str> = BTreeSet::new();
    for (i, container) in spec.list("ephemeralContainers").iter().enumerate() {
        let at = list_at.index(i);
        validate_common(container, &at, volumes, &BTreeSet::new(), errors);
        let image = container.text("image");
        if image.trim() != image {
            errors.invalid(&at.field("image"), image, "must not have leading or trailing whitespace");
        }
        let name = container.text("name");
        if others.contains(name) || !own.insert(name) {
            errors.duplicate(&at.field("name"), name);
        }
        let target = container.text("targetContainerName");
        if !target.is_empty() && !others.contains(target) {
            errors.not_found(&at.field("targetContainerName"), target);
        }
        for (field, value) in container.as_object().into_iter().flatten() {
            // An empty list or `resources` without content is as good as none; a pointer to an empty struct is set.
            let empty = value.is_null()
                || (field == "resources" && value.as_object().is_some_and(serde_json::Map::is_empty))
                || value.as_array().is_some_and(Vec::is_empty);
            if !EPHEMERAL_FIELDS.contains(&field.as_str()) && !empty {
                errors.forbidden(&at.field(field), RULE);
            }
        }
        for (j, mount) in container.list("volumeMounts").iter().enumerate() {
            for field in ["subPath", "subPathExpr"] {
                if !mount.text(field).is_empty() {
                    let mounts = at.field("volumeMounts");
                    errors.forbidden(&mounts.index(j).field(field), RULE);
                }
            }
        }
    }
}

fn validate_common(
    container: &Value,
    at: &Path<'_>,
    volumes: &[Known<'_>],
    claims: &BTreeSet<&str>,
    errors: &mut Errors,
) {
    let name = container.text("name");
    if name.is_empty() {
        errors.required(&at.field("name"), "");
    } else {
        errors.format(&at.field("name"), name, names::dns1123_label(name));
    }
    if container.text("image").is_empty() {
        errors.required(&at.field("image"), "");
    }
    match container.text("terminationMessagePolicy") {
        "File" | "FallbackToLogsOnError" => {}
        "" => errors
            .required(&at.field("terminationMessagePolicy"), "must be 'File' or 'FallbackToLogsOnError'"),
        other => {
            if errors.version.at_least(27) {
                errors.not_supported(
                    &at.field("terminationMessagePolicy"),
                    other,
                    &["FallbackToLogsOnError", "File"],
                );
            } else {
                errors.invalid(
                    &at.field("terminationMessagePolicy"),
                    other,
                    "must be 'File' or 'FallbackToLogsOnError'",
                );
            }
        }
    }
    validate_ports(container.list("ports"), &at.field("ports"), errors);
    env::validate(container.list("env"), &at.field("env"), errors);
    env::validate_from(container.list("envFrom"), &at.field("envFrom"), errors);
    validate_mounts(container, &at.field("volumeMounts"), volumes, errors);
    validate_devices(container, &at.field("volumeDevices"), volumes, errors);
    one_of(container, "imagePullPolicy", at, &["Always", "IfNotPresent", "Never"], errors);
    if let Some(resources) = container.child("resources") {
        resources::validate(resources, claims, &at.field("resources"), errors);
    }
}

fn validate_ports(ports: &[Value], at: &Path<'_>, errors: &mut Errors) {
    let mut seen: Vec<&str> = Vec::new();
    for (i, port) in ports.iter().enumerate() {
        let at = at.index(i);
        let name = port.text("name");
        if !name.is_empty() {
            let messages = names::port_name(name);
            if !messages.is_empty() {
                errors.format(&at.field("name"), name, messages);
            } else if seen.contains(&name) {
                errors.duplicate(&at.field("name"), name);
            } else {
                seen.push(name);
            }
        }
        match port.int("containerPort").unwrap_or(0) {
            0 => errors.required(&at.field("containerPort"), ""),
            number => {
                for message in names::port_number(number) {
                    errors.invalid(&at.field("containerPort"), number, message);
                }
            }
        }
        let host = port.int("hostPort").unwrap_or(0);
        if host != 0 {
            for message in names::port_number(host) {
                errors.invalid(&at.field("hostPort"), host, message);
            }
        }
        one_of(port, "protocol", &at, &["SCTP", "TCP", "UDP"], errors);
        let ip = port.text("hostIP");
        if !ip.is_empty() && errors.version.at_least(22) && ip.parse::<std::net::IpAddr>().is_err() {
            errors.invalid(
                &at.field("hostIP"),
                ip,
                "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            );
        }
    }
}

fn check_host_ports(containers: &[Value], at: &Path<'_>, errors: &mut Errors) {
    let mut seen: Vec<String> = Vec::new();
    for (i, container) in containers.iter().enumerate() {
        for (j, port) in container.list("ports").iter().enumerate() {
            let host = port.int("hostPort").unwrap_or(0);
            if host == 0 {
                continue;
            }
            let key = format!("{}/{}/{host}", port.text("protocol"), port.text("hostIP"));
            if seen.contains(&key) {
                let container_at = at.index(i);
                let ports = container_at.field("ports");
                errors.duplicate(&ports.index(j).field("hostPort"), key);
            } else {
                seen.push(key);
            }
        }
    }
}

/// A path that stays below where it starts.
pub(super) fn validate_descending_path(path: &str, at: &Path<'_>, errors: &mut Errors) {
    if path.starts_with('/') {
        errors.invalid(at, path, "must be a relative path");
    }
    if path.split('/').any(|part| part == "..") {
        errors.invalid(at, path, "must not contain '..'");
    }
}

const PROPAGATIONS: &[&str] = &["Bidirectional", "HostToContainer", "None"];

fn validate_mounts(container: &Value, at: &Path<'_>, volumes: &[Known<'_>], errors: &mut Errors) {
    let mut seen: Vec<&str> = Vec::new();
    let devices = container.list("volumeDevices");
    for (i, mount) in container.list("volumeMounts").iter().enumerate() {
        let here = at.index(i);
        let (name, path) = (mount.text("name"), mount.text("mountPath"));
        if name.is_empty() {
            errors.required(&here.field("name"), "");
        }
        if !volumes.iter().any(|v| v.name == name) {
            errors.not_found(&here.field("name"), name);
        }
        if path.is_empty() {
            errors.required(&here.field("mountPath"), "");
        }
        if seen.contains(&path) {
            errors.invalid(&here.field("mountPath"), path, "must be unique");
        }
        seen.push(path);
        if devices.iter().any(|d| d.text("name") == name) {
            errors.invalid(&here.field("name"), name, "must not already exist in volumeDevices");
        }
        if devices.iter().any(|d| d.text("devicePath") == path) {
            errors.invalid(
                &here.field("mountPath"),
                path,
                "must not already exist as a path in volumeDevices",
            );
        }
        let sub_path = mount.text("subPath");
        if !sub_path.is_empty() {
            validate_descending_path(sub_path, &at.field("subPath"), errors);
        }
        let expression = mount.text("subPathExpr");
        if !expression.is_empty() {
            if !sub_path.is_empty() {
                errors.invalid(
                    &here.field("subPathExpr"),
                    expression,
                    "subPathExpr and subPath are mutually exclusive",
                );
            }
            validate_descending_path(expression, &at.field("subPathExpr"), errors);
        }
        if let Some(propagation) = mount.child("mountPropagation").and_then(Value::as_str) {
            let at = at.field("mountPropagation");
            if !PROPAGATIONS.contains(&propagation) {
                errors.not_supported(&at, propagation, PROPAGATIONS);
            }
            let privileged = container.pointer("/securityContext/privileged") == Some(&Value::Bool(true));
            if propagation == "Bidirectional" && !privileged {
                errors.forbidden(
                    &at,
                    "Bidirectional mount propagation is available only to privileged containers",
                );
            }
        }
    }
}

fn validate_devices(container: &Value, at: &Path<'_>, volumes: &[Known<'_>], errors: &mut Errors) {
    let mounts = container.list("volumeMounts");
    let (mut names_seen, mut paths_seen): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for (i, device) in container.list("volumeDevices").iter().enumerate() {
        let here = at.index(i);
        let (name, path) = (device.text("name"), device.text("devicePath"));
        let volume = volumes.iter().find(|v| v.name == name);
        if name.is_empty() {
            errors.required(&here.field("name"), "");
        }
        if names_seen.contains(&name) {
            errors.invalid(&here.field("name"), name, "must be unique");
        }
        match volume {
            Some(volume) if !volume.is_claim => errors.invalid(
                &here.field("name"),
                name,
                "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
            ),
            Some(_) => {}
            None => errors.not_found(&here.field("name"), name),
        }
        if path.is_empty() {
            errors.required(&here.field("devicePath"), "");
        }
        if paths_seen.contains(&path) {
            errors.invalid(&here.field("devicePath"), path, "must be unique");
        }
        if path.split('/').any(|part| part == "..") {
            errors.invalid(&here.field("devicePath"), path, "can not contain backsteps ('..')");
        } else {
            paths_seen.push(path);
        }
        if mounts.iter().any(|m| m.text("name") == name) {
            errors.invalid(&here.field("name"), name, "must not already exist in volumeMounts");
        }
        if mounts.iter().any(|m| m.text("mountPath") == path) {
            errors.invalid(
                &here.field("devicePath"),
                path,
                "must not already exist as a path in volumeMounts",
            );
        }
        if !name.is_empty() {
            names_seen.push(name);
        }
    }
}

fn validate_lifecycle_and_probes(container: &Value, at: &Path<'_>, errors: &mut Errors) {
    if let Some(lifecycle) = container.child("lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(handler) = lifecycle.child(hook) {
                validate_handler(handler, &at.field("lifecycle").field(hook), errors);
            }
        }
    }
    for (field, one_success) in [("livenessProbe", true), ("readinessProbe", false), ("startupProbe", true)] {
        let Some(probe) = container.child(field) else { continue };
        let at = at.field(field);
        validate_handler(probe, &at, errors);
        for number in
            ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
        {
            errors.non_negative(&at.field(number), probe.int(number));
        }
        let grace = probe.int("terminationGracePeriodSeconds");
        if one_success {
            if let Some(seconds) = grace.filter(|s| *s <= 0) {
                errors.invalid(&at.field("terminationGracePeriodSeconds"), seconds, "must be greater than 0");
            }
            let successes = probe.int("successThreshold").unwrap_or(0);
            if successes != 1 {
                errors.invalid(&at.field("successThreshold"), successes, "must be 1");
            }
        } else if let Some(seconds) = grace {
            errors.invalid(
                &at.field("terminationGracePeriodSeconds"),
                seconds,
                "must not be set for readinessProbes",
            );
        }
    }
}

fn validate_handler(handler: &Value, at: &Path<'_>, errors: &mut Errors) {
    let mut found = false;
    for kind in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        let Some(action) = handler.child(kind) else { continue };
        let at = at.field(kind);
        if found {
            errors.forbidden(&at, "may not specify more than 1 handler type");
            continue;
        }
        found = true;
        match kind {
            "exec" if action.list("command").is_empty() => {
                errors.required(&at.field("command"), "");
            }
            "httpGet" => {
                if action.text("path").is_empty() {
                    errors.required(&at.field("path"), "");
                }
                validate_port(action.get("port"), &at.field("port"), errors);
                let scheme = action.text("scheme");
                if scheme != "HTTP" && scheme != "HTTPS" {
                    errors.not_supported(&at.field("scheme"), scheme, &["HTTP", "HTTPS"]);
                }
                for header in action.list("httpHeaders") {
                    let name = header.text("name");
                    errors.format(&at.field("httpHeaders"), name, names::http_header_name(name));
                }
            }
            "tcpSocket" | "grpc" => validate_port(action.get("port"), &at.field("port"), errors),
            _ => {}
        }
    }
    if !found {
        errors.required(at, "must specify a handler type");
    }
}

fn validate_port(port: Option<&Value>, at: &Path<'_>, errors: &mut Errors) {
    match port {
        Some(Value::String(name)) => errors.format(at, name, names::port_name(name)),
        other => {
            let number = other.and_then(Value::as_i64).unwrap_or(0);
            for message in names::port_number(number) {
                errors.invalid(at, number, message);
            }
        }
    }
}
