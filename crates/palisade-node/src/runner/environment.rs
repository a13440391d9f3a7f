//! The environment of a container.
//!
//! Implements: `env`, `envFrom`, `valueFrom` and `$(NAME)` references of the Kubernetes API
//! (`pkg/kubelet/kubelet_pods.go`, `third_party/forked/golang/expansion`).

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    api::{ApiError, PodSource},
    pod::{Container, RunPod},
};

/// What field references can request besides the pod itself.
#[derive(Debug, Clone, Copy)]
pub struct Surroundings<'a> {
    /// The node's name.
    pub node_name: &'a str,
    /// The node's address.
    pub host_ip: &'a str,
    /// The pod's addresses.
    pub pod_ips: &'a [String],
    /// What the node has for pods.
    pub allocatable: Allocatable,
}

/// What a node has for pods: the limits of containers that set none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Allocatable {
    /// CPU, in thousandths.
    pub cpu: i64,
    /// Memory, in bytes.
    pub memory: i64,
    /// Storage of containers and logs, in bytes.
    pub ephemeral_storage: i64,
}

impl Allocatable {
    /// A resource in thousandths.
    fn milli(self, name: &str) -> i64 {
        match name {
            "cpu" => self.cpu,
            "memory" => self.memory.saturating_mul(1000),
            "ephemeral-storage" => self.ephemeral_storage.saturating_mul(1000),
            _ => 0,
        }
    }
}

/// What a container finds in its environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// Names and values, in order.
    pub variables: Vec<(String, String)>,
    /// What was left out, in the words of an event.
    pub skipped: Vec<String>,
}

/// What a volume or variable refers to and cannot have, in the kubelet's words.
#[derive(Debug, thiserror::Error)]
pub enum ReferenceError {
    /// The API does not respond.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// There is no such ConfigMap.
    #[error("configmap {0:?} not found")]
    NoConfigMap(String),
    /// There is no such Secret.
    #[error("secret {0:?} not found")]
    NoSecret(String),
    /// The object is there, the key is not.
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    NoKey {
        /// `ConfigMap` or `Secret`.
        kind: &'static str,
        /// Of the object.
        namespace: String,
        /// Of the object.
        name: String,
        /// What it does not have.
        key: String,
    },
    /// The downward API has no such field.
    #[error("unsupported fieldPath: {0}")]
    FieldPath(String),
    /// The downward API has no such resource.
    #[error("unsupported container resource : {0}")]
    Resource(String),
}

/// The environment of a container; the error is what the container waits for.
pub async fn environment(
    pod: &RunPod,
    container: &Container,
    source: &dyn PodSource,
    around: &Surroundings<'_>,
    minor: u16,
) -> Result<Environment, ReferenceError> {
    let mut skipped = Vec::new();
    // Which keys are names of variables, and a sentence about those which are not.
    let mut sift = |keys: Vec<String>, kind: &str, name: &str| -> Vec<String> {
        let (good, bad): (Vec<_>, Vec<_>) = keys.into_iter().partition(|key| is_variable_name(key, minor));
        if !bad.is_empty() {
            skipped.push(format!(
                "Keys [{}] from the EnvFrom {kind} {}/{name} were skipped since they are considered invalid environment variable \
                 names.",
                bad.join(", "),
                pod.key.namespace
            ));
        }
        good
    };
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    let mut order: Vec<String> = Vec::new();
    let mut set = |known: &mut BTreeMap<String, String>, name: String, value: String| {
        if !known.contains_key(&name) {
            order.push(name.clone());
        }
        known.insert(name, value);
    };
    let namespace = &pod.key.namespace;
    for from in &container.env_from {
        if let Some(reference) = &from.config_map_ref {
            match source.config_map(namespace, &reference.name).await? {
                Some(map) => {
                    let values: BTreeMap<String, String> = map
                        .data
                        .into_iter()
                        .map(|(key, value)| (format!("{}{key}", from.prefix), value))
                        .collect();
                    for key in sift(values.keys().cloned().collect(), "configMap", &reference.name) {
                        let value = values.get(&key).cloned().unwrap_or_default();
                        set(&mut known, key, value);
                    }
                }
                None if reference.optional => {}
                None => return Err(ReferenceError::NoConfigMap(reference.name.clone())),
            }
        }
        if let Some(reference) = &from.secret_ref {
            match source.secret(namespace, &reference.name).await? {
                Some(secret) => {
                    let values: BTreeMap<String, Vec<u8>> = secret
                        .data
                        .into_iter()
                        .map(|(key, value)| (format!("{}{key}", from.prefix), value))
                        .collect();
                    for key in sift(values.keys().cloned().collect(), "secret", &reference.name) {
                        let text = values.get(&key).map(|value| String::from_utf8_lossy(value).into_owned());
                        set(&mut known, key, text.unwrap_or_default());
                    }
                }
                None if reference.optional => {}
                None => return Err(ReferenceError::NoSecret(reference.name.clone())),
            }
        }
    }
    let services = services(pod, source).await?;
    for variable in &container.env {
        let value = match &variable.value_from {
            // A reference may name a service's variable, which comes last in the environment.
            None => Some(expand(&variable.value, &with(&services, &known))),
            Some(from) => value_from(pod, container, from, source, around).await?,
        };
        if let Some(value) = value {
            set(&mut known, variable.name.clone(), value);
        }
    }
    for (name, value) in services {
        if !known.contains_key(&name) {
            set(&mut known, name, value);
        }
    }
    let variables = order
        .into_iter()
        .filter_map(|name| known.get(&name).map(|value| (name.clone(), value.clone())))
        .collect();
    Ok(Environment { variables, skipped })
}

/// The variables of the services that the pod sees.
async fn services(pod: &RunPod, source: &dyn PodSource) -> Result<BTreeMap<String, String>, ReferenceError> {
    let links = pod.object.pointer("/spec/enableServiceLinks").and_then(Value::as_bool) != Some(false);
    let found = source.services(&pod.key.namespace, links).await?;
    Ok(super::services::variables(&found))
}

/// What references know: the container's own variables hide those of services.
fn with(services: &BTreeMap<String, String>, known: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    services.iter().chain(known).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Whether a key can name a variable. Since v1.32 nearly anything can.
fn is_variable_name(key: &str, minor: u16) -> bool {
    if minor >= 32 {
        return !key.is_empty() && key.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'=');
    }
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || matches!(byte, b'-' | b'.' | b'_');
    key.bytes().next().is_some_and(is_letter)
        && key.bytes().all(|byte| is_letter(byte) || byte.is_ascii_digit())
        && key != "."
        && !key.starts_with("..")
}

async fn value_from(
    pod: &RunPod,
    container: &Container,
    from: &Value,
    source: &dyn PodSource,
    around: &Surroundings<'_>,
) -> Result<Option<String>, ReferenceError> {
    let text = |path: &str| from.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let optional =
        |kind: &str| from.pointer(&format!("/{kind}/optional")).and_then(Value::as_bool) == Some(true);
    let namespace = &pod.key.namespace;
    let no_key = |kind: &'static str, name: &str, key: &str| ReferenceError::NoKey {
        kind,
        namespace: namespace.clone(),
        name: name.to_owned(),
        key: key.to_owned(),
    };
    if from.get("fieldRef").is_some() {
        let path = text("/fieldRef/fieldPath");
        return field(pod, path, around).map(Some).ok_or_else(|| ReferenceError::FieldPath(path.to_owned()));
    }
    if from.get("resourceFieldRef").is_some() {
        let resource = text("/resourceFieldRef/resource");
        let name = text("/resourceFieldRef/containerName");
        let of = if name.is_empty() { Some(container) } else { pod.container(name).map(|(_, found)| found) };
        let divisor = text("/resourceFieldRef/divisor");
        let value = of.and_then(|of| resource_field(of, resource, divisor, around.allocatable));
        return value.map(Some).ok_or_else(|| ReferenceError::Resource(resource.to_owned()));
    }
    if from.get("configMapKeyRef").is_some() {
        let (name, key) = (text("/configMapKeyRef/name"), text("/configMapKeyRef/key"));
        let found = source.config_map(namespace, name).await?;
        return match found.as_ref().map(|map| map.data.get(key)) {
            Some(Some(value)) => Ok(Some(value.clone())),
            _ if optional("configMapKeyRef") => Ok(None),
            None => Err(ReferenceError::NoConfigMap(name.to_owned())),
            Some(None) => Err(no_key("ConfigMap", name, key)),
        };
    }
    if from.get("secretKeyRef").is_some() {
        let (name, key) = (text("/secretKeyRef/name"), text("/secretKeyRef/key"));
        let found = source.secret(namespace, name).await?;
        return match found.as_ref().map(|secret| secret.data.get(key)) {
            Some(Some(value)) => Ok(Some(String::from_utf8_lossy(value).into_owned())),
            _ if optional("secretKeyRef") => Ok(None),
            None => Err(ReferenceError::NoSecret(name.to_owned())),
            Some(None) => Err(no_key("Secret", name, key)),
        };
    }
    Ok(None)
}

/// The value of a field path of the downward API.
#[must_use]
pub fn field(pod: &RunPod, path: &str, around: &Surroundings<'_>) -> Option<String> {
    let subscript = |prefix: &str| path.strip_prefix(prefix)?.strip_suffix("']");
    if let Some(key) = subscript("metadata.labels['") {
        return Some(pod.metadata.labels.get(key).cloned().unwrap_or_default());
    }
    if let Some(key) = subscript("metadata.annotations['") {
        return Some(pod.metadata.annotations.get(key).cloned().unwrap_or_default());
    }
    let lines = |map: &BTreeMap<String, String>| {
        map.iter().map(|(key, value)| format!("{key}={value:?}")).collect::<Vec<_>>().join("\n")
    };
    Some(match path {
        "metadata.name" => pod.key.name.clone(),
        "metadata.namespace" => pod.key.namespace.clone(),
        "metadata.uid" => pod.key.uid.clone(),
        "metadata.labels" => lines(&pod.metadata.labels),
        "metadata.annotations" => lines(&pod.metadata.annotations),
        "spec.nodeName" => around.node_name.to_owned(),
        "spec.serviceAccountName" => pod.spec.service_account_name.clone(),
        "status.hostIP" | "status.hostIPs" => around.host_ip.to_owned(),
        "status.podIP" => around.pod_ips.first().cloned().unwrap_or_default(),
        "status.podIPs" => around.pod_ips.join(","),
        _ => return None,
    })
}

/// A limit or request, in units of the divisor, rounded up. A limit that is not set is what the node has.
#[must_use]
pub fn resource_field(
    container: &Container,
    resource: &str,
    divisor: &str,
    allocatable: Allocatable,
) -> Option<String> {
    let (list, name) = resource.split_once('.')?;
    let map = match list {
        "limits" => &container.resources.limits,
        "requests" => &container.resources.requests,
        _ => return None,
    };
    let milli = |value: &Value| super::resources::milli(value);
    let set = map.get(name).and_then(milli).unwrap_or_default();
    let amount = if set == 0 && list == "limits" { allocatable.milli(name) } else { set };
    let unit = match divisor {
        "" | "0" => 1000,
        text => milli(&Value::String(text.to_owned())).filter(|&unit| unit > 0)?,
    };
    Some((amount.saturating_add(unit - 1) / unit).to_string())
}

/// Replaces `$(NAME)` by what is known and `$$` by `$`; what is not known stays as it is.
#[must_use]
pub fn expand(text: &str, known: &BTreeMap<String, String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        let after = after.get(1..).unwrap_or_default();
        if let Some(tail) = after.strip_prefix('$') {
            out.push('$');
            rest = tail;
        } else if let Some((name, tail)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            if let Some(value) = known.get(name) {
                out.push_str(value);
            } else {
                out.push_str("$(");
                out.push_str(name);
                out.push(')');
            }
            rest = tail;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::{ConfigMap, Secret, local::LocalSource};

    #[test]
    fn references_are_replaced_where_known() {
        let known = BTreeMap::from([("A".to_owned(), "1".to_owned())]);
        for (text, expected) in [
            ("$(A)", "1"),
            ("x$(A)y$(A)", "x1y1"),
            ("$$(A)", "$(A)"),
            ("$(B)", "$(B)"),
            ("$", "$"),
            ("$(A", "$(A"),
            ("$A", "$A"),
            ("ä$(A)ö", "ä1ö"),
        ] {
            assert_eq!(expand(text, &known), expected, "{text}");
        }
    }

    #[tokio::test]
    async fn every_source_of_a_value() {
        let source = LocalSource::default();
        let map = ConfigMap { data: BTreeMap::from([("k".into(), "v".into())]), ..ConfigMap::default() };
        source.put_config_map("default", "m", map);
        source.put_secret("default", "s", Secret { data: BTreeMap::from([("p".into(), b"q".to_vec())]) });
        let with = |env: Value, from: Value| {
            RunPod::from_object(
                json!({"metadata": {"name": "web", "labels": {"a": "b"}}, "spec": {"containers":
                [{"name": "c", "image": "i", "env": env, "envFrom": from,
                  "resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}}}]}}),
            )
            .unwrap()
        };
        let around = Surroundings {
            node_name: "n",
            host_ip: "1.2.3.4",
            pod_ips: &["5.6.7.8".to_owned()],
            allocatable: Allocatable { cpu: 2000, memory: 8 << 30, ephemeral_storage: 9 << 30 },
        };
        for (case, env, from, expected) in [
            (
                "plain and reference",
                json!([{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)2"}]),
                json!([]),
                Ok("A=1 B=12"),
            ),
            ("from a map", json!([]), json!([{"prefix": "X_", "configMapRef": {"name": "m"}}]), Ok("X_k=v")),
            (
                "missing map",
                json!([]),
                json!([{"configMapRef": {"name": "no"}}]),
                Err("configmap \"no\" not found"),
            ),
            ("optional map", json!([]), json!([{"configMapRef": {"name": "no", "optional": true}}]), Ok("")),
            (
                "secret key",
                json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "p"}}}]),
                json!([]),
                Ok("A=q"),
            ),
            (
                "missing key",
                json!([{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "no"}}}]),
                json!([]),
                Err("couldn't find key no in ConfigMap default/m"),
            ),
            (
                "field",
                json!([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a']"}}}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]),
                json!([]),
                Ok("A=b B=5.6.7.8"),
            ),
            (
                "unknown field",
                json!([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}]),
                json!([]),
                Err("unsupported fieldPath: spec.x"),
            ),
            (
                "resources",
                json!([{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}, {"name": "B", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}}]),
                json!([]),
                Ok("A=2 B=1024"),
            ),
            (
                "limits that are not set",
                json!([{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.ephemeral-storage", "divisor": "1Gi"}}},
                    {"name": "B", "valueFrom": {"resourceFieldRef": {"resource": "requests.ephemeral-storage"}}}]),
                json!([]),
                Ok("A=9 B=0"),
            ),
        ] {
            let pod = with(env, from);
            let found = environment(&pod, &pod.spec.containers[0], &source, &around, 31).await;
            let found = found.map(|found| {
                found
                    .variables
                    .iter()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect::<Vec<_>>()
                    .join(" ")
            });
            let found = found.map_err(|error| error.to_string());
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{case}");
        }
    }

    #[tokio::test]
    async fn keys_that_name_no_variable_are_dropped_and_reported() {
        let source = LocalSource::default();
        let data = ["A", "1b", "c.d", "e f"].map(|key| (key.to_owned(), "v".to_owned()));
        source.put_config_map("default", "m", ConfigMap { data: data.into(), ..ConfigMap::default() });
        let pod = |prefix: &str| {
            RunPod::from_object(
                json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i",
                "envFrom": [{"prefix": prefix, "configMapRef": {"name": "m"}}]}]}}),
            )
            .unwrap()
        };
        let around =
            Surroundings { node_name: "n", host_ip: "", pod_ips: &[], allocatable: Allocatable::default() };
        let text = |keys: &str| {
            vec![format!(
                "Keys [{keys}] from the EnvFrom configMap default/m were skipped since they are considered invalid environment \
                 variable names."
            )]
        };
        for (prefix, minor, names, skipped) in [
            ("", 31, "A c.d", text("1b, e f")),
            ("X_", 31, "X_1b X_A X_c.d", text("X_e f")),
            ("", 32, "1b A c.d e f", vec![]),
        ] {
            let pod = pod(prefix);
            let found = environment(&pod, &pod.spec.containers[0], &source, &around, minor).await.unwrap();
            let found_names: Vec<_> = found.variables.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(found_names.join(" "), names, "{prefix} v1.{minor}");
            assert_eq!(found.skipped, skipped, "{prefix} v1.{minor}");
        }
    }
}
