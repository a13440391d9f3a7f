//! What to run of a pod, and how: commands, images, mounts, restarts.
//!
//! The security part stays with `palisade-model`, which reads the same JSON; [`RunPod::prepared`] gives its view. Field
//! names and meaning: Kubernetes API, core/v1 `Pod`. Defaults are those of the API server, for pods that never saw one.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use palisade_base::sha256;
use palisade_model::{compat::Compat, pod::Pod, pod_view::ContainerKind, prepare::Prepared};
use self_cell::self_cell;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use thiserror::Error;

use crate::{
    api::PodKey,
    lifecycle::{Lifecycle, Probe},
};

/// Why an object is not a pod that can be run.
#[derive(Debug, Error)]
pub enum PodError {
    /// It does not read as a pod.
    #[error("not a pod: {0}")]
    Shape(#[from] serde_json::Error),
    /// It has no name.
    #[error("the pod has no metadata.name")]
    NameMissing,
    /// A name that would lead out of the folder the node gives to it.
    #[error("{0:?} is not a name")]
    BadName(String),
    /// Two containers have one name: the security of one would be taken for that of the other.
    #[error("two containers have the name {0:?}")]
    DuplicateName(String),
    /// It has nothing to run.
    #[error("the pod has no containers")]
    Empty,
    /// A request or limit that is not a quantity: without it the container would run unlimited.
    #[error("container {container:?}: {resource} {value} is not a quantity")]
    BadQuantity {
        /// The container.
        container: String,
        /// The resource.
        resource: String,
        /// What was given, as JSON.
        value: String,
    },
}

/// A pod to be run.
#[derive(Debug, Clone)]
pub struct RunPod {
    /// Which one.
    pub key: PodKey,
    /// Labels, annotations, deletion.
    pub metadata: Metadata,
    /// What to run.
    pub spec: Spec,
    /// The whole object.
    pub object: Value,
    reading: Arc<SecurityReading>,
}

self_cell! {
    /// The model's reading of the object, which borrows from its text.
    struct SecurityReading {
        owner: String,
        #[covariant]
        dependent: Pod,
    }

    impl {Debug}
}

/// `metadata` of a pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct Metadata {
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    #[serde(deserialize_with = "nullable")]
    pub namespace: String,
    #[serde(deserialize_with = "nullable")]
    pub uid: String,
    #[serde(deserialize_with = "nullable")]
    pub labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "nullable")]
    pub annotations: BTreeMap<String, String>,
    pub deletion_timestamp: Option<String>,
    pub deletion_grace_period_seconds: Option<i64>,
}

/// `spec` of a pod, without its security.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct Spec {
    #[serde(deserialize_with = "nullable")]
    pub init_containers: Vec<Container>,
    #[serde(deserialize_with = "nullable")]
    pub containers: Vec<Container>,
    #[serde(deserialize_with = "nullable")]
    pub ephemeral_containers: Vec<Container>,
    #[serde(deserialize_with = "nullable")]
    pub volumes: Vec<Value>,
    #[serde(deserialize_with = "nullable")]
    pub restart_policy: RestartPolicy,
    pub termination_grace_period_seconds: Option<i64>,
    pub active_deadline_seconds: Option<i64>,
    #[serde(deserialize_with = "nullable")]
    pub node_name: String,
    #[serde(deserialize_with = "nullable")]
    pub service_account_name: String,
    #[serde(deserialize_with = "nullable")]
    pub hostname: String,
    #[serde(deserialize_with = "nullable")]
    pub dns_policy: String,
    pub dns_config: Option<DnsConfig>,
    pub runtime_class_name: Option<String>,
    #[serde(deserialize_with = "nullable")]
    pub host_aliases: Vec<HostAlias>,
    #[serde(deserialize_with = "nullable")]
    pub image_pull_secrets: Vec<PullSecret>,
}

/// An entry of `spec.imagePullSecrets`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct PullSecret {
    #[serde(deserialize_with = "nullable")]
    pub name: String,
}

/// `spec.dnsConfig`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct DnsConfig {
    #[serde(deserialize_with = "nullable")]
    pub nameservers: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub searches: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub options: Vec<DnsOption>,
}

/// An entry of `spec.dnsConfig.options`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct DnsOption {
    pub name: String,
    pub value: Option<String>,
}

/// An entry of `spec.hostAliases`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct HostAlias {
    pub ip: String,
    #[serde(deserialize_with = "nullable")]
    pub hostnames: Vec<String>,
}

/// When a container that stopped is started again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[allow(missing_docs, reason = "the names are the API's own")]
pub enum RestartPolicy {
    #[default]
    Always,
    OnFailure,
    Never,
}

/// A container of any list.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct Container {
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    #[serde(deserialize_with = "nullable")]
    pub image: String,
    #[serde(deserialize_with = "nullable")]
    pub image_pull_policy: String,
    #[serde(deserialize_with = "nullable")]
    pub command: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub args: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub working_dir: String,
    #[serde(deserialize_with = "nullable")]
    pub env: Vec<EnvVar>,
    #[serde(deserialize_with = "nullable")]
    pub env_from: Vec<EnvFrom>,
    #[serde(deserialize_with = "nullable")]
    pub volume_mounts: Vec<VolumeMount>,
    #[serde(deserialize_with = "nullable")]
    pub resources: Resources,
    #[serde(deserialize_with = "nullable")]
    pub resize_policy: Vec<ResizePolicy>,
    #[serde(deserialize_with = "nullable")]
    pub ports: Vec<Port>,
    pub restart_policy: Option<String>,
    #[serde(deserialize_with = "nullable")]
    pub target_container_name: String,
    #[serde(deserialize_with = "nullable")]
    pub termination_message_path: String,
    #[serde(deserialize_with = "nullable")]
    pub termination_message_policy: String,
    pub startup_probe: Option<Probe>,
    pub liveness_probe: Option<Probe>,
    pub readiness_probe: Option<Probe>,
    pub lifecycle: Option<Lifecycle>,
    #[serde(deserialize_with = "nullable")]
    pub stdin: bool,
    #[serde(deserialize_with = "nullable")]
    pub stdin_once: bool,
    #[serde(deserialize_with = "nullable")]
    pub tty: bool,
}

/// An entry of `env`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct EnvVar {
    pub name: String,
    #[serde(deserialize_with = "nullable")]
    pub value: String,
    pub value_from: Option<Value>,
}

/// An entry of `envFrom`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct EnvFrom {
    #[serde(deserialize_with = "nullable")]
    pub prefix: String,
    pub config_map_ref: Option<ObjectRef>,
    pub secret_ref: Option<ObjectRef>,
}

/// The name of another object.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct ObjectRef {
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    #[serde(deserialize_with = "nullable")]
    pub optional: bool,
}

/// An entry of `volumeMounts`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct VolumeMount {
    pub name: String,
    pub mount_path: String,
    #[serde(deserialize_with = "nullable")]
    pub read_only: bool,
    #[serde(deserialize_with = "nullable")]
    pub sub_path: String,
    #[serde(deserialize_with = "nullable")]
    pub sub_path_expr: String,
    #[serde(deserialize_with = "nullable")]
    pub mount_propagation: String,
}

/// An entry of `ports`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct Port {
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    #[serde(deserialize_with = "nullable")]
    pub container_port: i32,
    #[serde(deserialize_with = "nullable")]
    pub host_port: i32,
    #[serde(deserialize_with = "nullable")]
    pub protocol: String,
    #[serde(rename = "hostIP", deserialize_with = "nullable")]
    pub host_ip: String,
}

/// `resources` of a container; quantities are strings, or numbers that mean the same.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct Resources {
    #[serde(deserialize_with = "nullable")]
    pub limits: BTreeMap<String, Value>,
    #[serde(deserialize_with = "nullable")]
    pub requests: BTreeMap<String, Value>,
}

/// An entry of `resizePolicy`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct ResizePolicy {
    pub resource_name: String,
    pub restart_policy: String,
}

pub(crate) fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[derive(Deserialize)]
struct Object {
    #[serde(default, deserialize_with = "nullable")]
    metadata: Metadata,
    #[serde(default, deserialize_with = "nullable")]
    spec: Spec,
}

impl RunPod {
    /// The service account it runs as.
    #[must_use]
    pub fn service_account(&self) -> &str {
        let name = self.spec.service_account_name.as_str();
        if name.is_empty() { "default" } else { name }
    }

    /// Reads a pod. One without an identity gets one from its name, so that running it twice is the same pod.
    pub fn from_object(mut object: Value) -> Result<Self, PodError> {
        let Object { mut metadata, spec } = Object::deserialize(&object)?;
        if metadata.name.is_empty() {
            return Err(PodError::NameMissing);
        }
        if spec.containers.is_empty() {
            return Err(PodError::Empty);
        }
        if metadata.namespace.is_empty() {
            "default".clone_into(&mut metadata.namespace);
        }
        if metadata.uid.is_empty() {
            let digest = sha256::hex(format!("{}/{}", metadata.namespace, metadata.name).as_bytes());
            let part = |range: std::ops::Range<usize>| digest.get(range).unwrap_or_default();
            metadata.uid =
                format!("{}-{}-{}-{}-{}", part(0..8), part(8..12), part(12..16), part(16..20), part(20..32));
        }
        // Names become folders on the node; an API server has seen to this already, a file on disk has not.
        let names = [&metadata.name, &metadata.namespace, &metadata.uid];
        let lists = [&spec.init_containers, &spec.containers, &spec.ephemeral_containers];
        let of_containers = lists.into_iter().flatten().map(|container| &container.name);
        if let Some(bad) = names.into_iter().chain(of_containers).find(|name| !is_plain_name(name)) {
            return Err(PodError::BadName(bad.clone()));
        }
        let mut seen = BTreeSet::new();
        for container in
            [&spec.init_containers, &spec.containers, &spec.ephemeral_containers].into_iter().flatten()
        {
            if !seen.insert(&container.name) {
                return Err(PodError::DuplicateName(container.name.clone()));
            }
            let Resources { limits, requests } = &container.resources;
            if let Some((resource, value)) = limits
                .iter()
                .chain(requests)
                .find(|(_, value)| crate::runner::resources::milli(value).is_none())
            {
                let (container, resource) = (container.name.clone(), resource.clone());
                return Err(PodError::BadQuantity { container, resource, value: value.to_string() });
            }
        }
        if let Some(Value::Object(fields)) = object.get_mut("metadata") {
            fields.insert("namespace".to_owned(), metadata.namespace.clone().into());
            fields.insert("uid".to_owned(), metadata.uid.clone().into());
        }
        let key = PodKey {
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
            uid: metadata.uid.clone(),
        };
        let reading = SecurityReading::try_new(object.to_string(), |text| serde_json::from_str(text))?;
        Ok(Self { key, metadata, spec, object, reading: Arc::new(reading) })
    }

    /// Reads a pod as an API server hands it out. One that was stored before its API server projected the extensions onto the
    /// fields that Kubernetes has is read as if it had been.
    pub fn from_stored(object: Value, compat: &Compat) -> Result<Self, PodError> {
        let mut pod = Self::from_object(object)?;
        let changes = pod.prepared(compat).changes().to_vec();
        if changes.is_empty() {
            return Ok(pod);
        }
        for change in &changes {
            change.apply(&mut pod.object);
        }
        Self::from_object(pod.object)
    }

    /// The model's reading of the pod.
    #[must_use]
    pub fn security(&self) -> &Pod<'_> {
        self.reading.borrow_dependent()
    }

    /// The pod as policy judged it: its security is read from nothing else.
    #[must_use]
    pub fn prepared(&self, compat: &Compat) -> Prepared<'_> {
        Prepared::stored(self.security().clone(), compat)
    }

    /// What the pod declares about its security, and nothing else: no command, no environment, no volume.
    #[must_use]
    pub fn declared(&self) -> Value {
        const OF_SPEC: [&str; 6] =
            ["securityContext", "hostNetwork", "hostPID", "hostIPC", "hostUsers", "shareProcessNamespace"];
        let spec = self.object.get("spec");
        let mut declared = serde_json::Map::new();
        for field in OF_SPEC {
            if let Some(value) = spec.and_then(|spec| spec.get(field)) {
                declared.insert(field.to_owned(), value.clone());
            }
        }
        for kind in [ContainerKind::Init, ContainerKind::App, ContainerKind::Ephemeral] {
            let list = spec.and_then(|spec| spec.get(kind.field())).and_then(Value::as_array);
            let Some(list) = list else { continue };
            let reduced = |container: &Value| {
                let keep = ["name", "image", "restartPolicy", "securityContext"];
                let fields = keep
                    .iter()
                    .filter_map(|field| Some(((*field).to_owned(), container.get(*field)?.clone())));
                Value::Object(fields.collect())
            };
            declared.insert(kind.field().to_owned(), list.iter().map(reduced).collect());
        }
        let is_security = |key: &str| key.contains("seccomp.") || key.contains("apparmor.");
        let annotations: serde_json::Map<String, Value> = self
            .metadata
            .annotations
            .iter()
            .filter(|(key, _)| is_security(key))
            .map(|(key, value)| (key.clone(), value.clone().into()))
            .collect();
        let metadata = serde_json::json!({"name": self.key.name, "namespace": self.key.namespace,
            "uid": self.key.uid, "annotations": annotations});
        serde_json::json!({"metadata": metadata, "spec": declared})
    }

    /// Every container with its list: init, then app, then ephemeral ones.
    pub fn containers(&self) -> impl Iterator<Item = (ContainerKind, &Container)> {
        let kind = |kind: ContainerKind, list: &'_ [Container]| -> Vec<(ContainerKind, usize)> {
            (0..list.len()).map(|index| (kind, index)).collect()
        };
        let spec = &self.spec;
        kind(ContainerKind::Init, &spec.init_containers)
            .into_iter()
            .chain(kind(ContainerKind::App, &spec.containers))
            .chain(kind(ContainerKind::Ephemeral, &spec.ephemeral_containers))
            .filter_map(|(kind, index)| self.list(kind).get(index).map(|container| (kind, container)))
    }

    /// One of the lists.
    #[must_use]
    pub fn list(&self, kind: ContainerKind) -> &[Container] {
        match kind {
            ContainerKind::Init => &self.spec.init_containers,
            ContainerKind::App => &self.spec.containers,
            ContainerKind::Ephemeral => &self.spec.ephemeral_containers,
        }
    }

    /// The container of that name.
    #[must_use]
    pub fn container(&self, name: &str) -> Option<(ContainerKind, &Container)> {
        self.containers().find(|(_, container)| container.name == name)
    }

    /// Whether the pod is being deleted.
    #[must_use]
    pub const fn is_deleted(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// How long its processes may take to stop.
    #[must_use]
    pub fn grace_period(&self) -> Duration {
        let seconds = self
            .metadata
            .deletion_grace_period_seconds
            .or(self.spec.termination_grace_period_seconds)
            .unwrap_or(30);
        Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
    }

    /// `status.phase` as the API has it; an agent that restarts does not start finished pods again.
    #[must_use]
    pub fn recorded_phase(&self) -> &str {
        self.object.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default()
    }

    /// Distinguishes versions of a container that need a restart to take effect.
    #[must_use]
    pub fn container_hash(&self, kind: ContainerKind, name: &str) -> String {
        let list = self.object.pointer(&format!("/spec/{}", kind.field())).and_then(Value::as_array);
        let container = list.and_then(|list| {
            list.iter().find(|container| container.get("name").and_then(Value::as_str) == Some(name))
        });
        // Resources change while it runs.
        let mut container = container.cloned().unwrap_or_default();
        if let Value::Object(fields) = &mut container {
            fields.remove("resources");
        }
        let text = if container.is_null() { String::new() } else { container.to_string() };
        sha256::hex(text.as_bytes()).get(..8).unwrap_or_default().to_owned()
    }
}

/// Whether a name is one path element, and one that leads nowhere else.
fn is_plain_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    (1..=253).contains(&name.len()) && name.bytes().all(allowed) && !name.contains("..") && name != "."
}

impl Container {
    /// Whether this init container is to run beside the others for the whole life of the pod.
    #[must_use]
    pub fn is_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }

    /// Whether the container has probes.
    #[must_use]
    pub const fn has_probes(&self) -> bool {
        self.startup_probe.is_some() || self.liveness_probe.is_some() || self.readiness_probe.is_some()
    }

    /// The image with a tag, as the kubelet requests it.
    #[must_use]
    pub fn tagged_image(&self) -> String {
        let name = self.image.rsplit('/').next().unwrap_or(&self.image);
        if name.contains(':') || name.contains('@') {
            self.image.clone()
        } else {
            format!("{}:latest", self.image)
        }
    }

    /// The pull policy, with the API server's default.
    #[must_use]
    pub fn pull_policy(&self) -> &str {
        match self.image_pull_policy.as_str() {
            "" if self.tagged_image().ends_with(":latest") => "Always",
            "" => "IfNotPresent",
            policy => policy,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(object: Value) -> Result<RunPod, PodError> {
        RunPod::from_object(object)
    }

    #[test]
    fn reads_what_is_there_and_defaults_the_rest() {
        let read = pod(json!({"metadata": {"name": "p", "labels": null}, "spec": {"restartPolicy": null,
            "initContainers": null, "containers": [{"name": "c", "image": "i"}]}}))
        .unwrap();
        assert_eq!(read.key.namespace, "default");
        assert_eq!(read.key.uid.len(), 36);
        assert_eq!(read.spec.restart_policy, RestartPolicy::Always);
        assert_eq!(read.grace_period().as_secs(), 30);
        assert_eq!(read.object.pointer("/metadata/uid").unwrap(), &json!(read.key.uid));
    }

    #[test]
    fn refuses_what_cannot_be_run() {
        for (object, expected) in [
            (json!({"spec": {"containers": [{"name": "c"}]}}), "the pod has no metadata.name"),
            (json!({"metadata": {"name": "p"}, "spec": {}}), "the pod has no containers"),
            (json!({"metadata": {"name": "p"}, "spec": {"containers": 1}}), "not a pod: "),
            (json!([]), "the pod has no metadata.name"),
            (json!("x"), "not a pod: "),
            (
                json!({"metadata": {"name": "../p"}, "spec": {"containers": [{"name": "c"}]}}),
                "\"../p\" is not a name",
            ),
            (
                json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a/b"}]}}),
                "\"a/b\" is not a name",
            ),
            (
                json!({"metadata": {"name": "p"}, "spec": {"initContainers": [{"name": "c"}], "containers": [{"name": "c"}]}}),
                "two containers have the name \"c\"",
            ),
            (
                json!({"metadata": {"name": "p", "uid": ".."}, "spec": {"containers": [{"name": "c"}]}}),
                "\"..\" is not a name",
            ),
        ] {
            let error = pod(object.clone()).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{object}: {error}");
        }
    }

    #[test]
    fn images_get_a_tag_and_a_policy() {
        for (image, policy, tagged, expected) in [
            ("a", "", "a:latest", "Always"),
            ("r:5000/a", "", "r:5000/a:latest", "Always"),
            ("a:1", "", "a:1", "IfNotPresent"),
            ("a@sha256:0", "", "a@sha256:0", "IfNotPresent"),
            ("a:latest", "Never", "a:latest", "Never"),
        ] {
            let container =
                Container { image: image.into(), image_pull_policy: policy.into(), ..Container::default() };
            assert_eq!(container.tagged_image(), tagged, "{image}");
            assert_eq!(container.pull_policy(), expected, "{image}");
        }
    }
}
