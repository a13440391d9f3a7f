//! A pod, reduced to what decides its security. A pod template has the same shape.

use serde::Deserialize;

use crate::{
    metadata::ObjectMeta,
    reading::{list, nullable},
    security_context::{PodSecurityContext, SecurityContext},
    text::Text,
    volume::Volume,
};

/// A `v1` Pod or the template of a workload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Pod<'a> {
    /// Name, labels and annotations.
    #[serde(borrow, deserialize_with = "nullable")]
    pub metadata: ObjectMeta<'a>,
    /// What to run.
    #[serde(borrow, deserialize_with = "nullable")]
    pub spec: PodSpec<'a>,
}

/// `spec` of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct PodSpec<'a> {
    #[serde(borrow, deserialize_with = "list")]
    pub init_containers: Vec<Container<'a>>,
    #[serde(borrow, deserialize_with = "list")]
    pub containers: Vec<Container<'a>>,
    #[serde(borrow, deserialize_with = "list")]
    pub ephemeral_containers: Vec<Container<'a>>,
    #[serde(borrow, deserialize_with = "list")]
    pub volumes: Vec<Volume<'a>>,
    #[serde(borrow)]
    pub security_context: Option<PodSecurityContext<'a>>,
    pub host_network: Option<bool>,
    #[serde(rename = "hostPID")]
    pub host_pid: Option<bool>,
    #[serde(rename = "hostIPC")]
    pub host_ipc: Option<bool>,
    pub host_users: Option<bool>,
    pub share_process_namespace: Option<bool>,
    #[serde(borrow)]
    pub os: Option<PodOs<'a>>,
    #[serde(borrow, deserialize_with = "nullable")]
    pub restart_policy: Text<'a>,
    #[serde(borrow)]
    pub runtime_class_name: Option<Text<'a>>,
    #[serde(borrow, deserialize_with = "nullable")]
    pub service_account_name: Text<'a>,
    /// The older name of `serviceAccountName`.
    #[serde(borrow, rename = "serviceAccount", deserialize_with = "nullable")]
    pub deprecated_service_account: Text<'a>,
}

/// `spec.os`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct PodOs<'a> {
    #[serde(borrow, deserialize_with = "nullable")]
    pub name: Text<'a>,
}

/// A container of any of the three kinds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct Container<'a> {
    #[serde(borrow, deserialize_with = "nullable")]
    pub name: Text<'a>,
    #[serde(borrow, deserialize_with = "nullable")]
    pub image: Text<'a>,
    #[serde(borrow, deserialize_with = "list")]
    pub ports: Vec<ContainerPort<'a>>,
    #[serde(borrow)]
    pub security_context: Option<SecurityContext<'a>>,
    #[serde(borrow)]
    pub liveness_probe: Option<Handler<'a>>,
    #[serde(borrow)]
    pub readiness_probe: Option<Handler<'a>>,
    #[serde(borrow)]
    pub startup_probe: Option<Handler<'a>>,
    #[serde(borrow)]
    pub lifecycle: Option<Lifecycle<'a>>,
    #[serde(borrow)]
    pub restart_policy: Option<Text<'a>>,
    #[serde(borrow, deserialize_with = "nullable")]
    pub target_container_name: Text<'a>,
}

/// An entry of `ports`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct ContainerPort<'a> {
    #[serde(borrow, deserialize_with = "nullable")]
    pub name: Text<'a>,
    #[serde(deserialize_with = "nullable")]
    pub container_port: i32,
    #[serde(deserialize_with = "nullable")]
    pub host_port: i32,
    #[serde(borrow, deserialize_with = "nullable")]
    pub protocol: Text<'a>,
    #[serde(borrow, rename = "hostIP", deserialize_with = "nullable")]
    pub host_ip: Text<'a>,
}

/// `lifecycle` of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct Lifecycle<'a> {
    #[serde(borrow)]
    pub post_start: Option<Handler<'a>>,
    #[serde(borrow)]
    pub pre_stop: Option<Handler<'a>>,
}

/// A probe or lifecycle handler: only the actions that name a host matter here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct Handler<'a> {
    #[serde(borrow)]
    pub http_get: Option<NetworkAction<'a>>,
    #[serde(borrow)]
    pub tcp_socket: Option<NetworkAction<'a>>,
}

/// `httpGet` or `tcpSocket`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct NetworkAction<'a> {
    #[serde(borrow, deserialize_with = "nullable")]
    pub host: Text<'a>,
}

impl PodSpec<'_> {
    /// Whether the manifest declares the pod for Windows nodes.
    #[must_use]
    pub fn is_windows(&self) -> bool {
        self.os.as_ref().is_some_and(|os| os.name == "windows")
    }

    /// The service account, under either name; empty until the API server fills it in.
    #[must_use]
    pub fn service_account(&self) -> &str {
        if self.service_account_name.is_empty() {
            &self.deprecated_service_account
        } else {
            &self.service_account_name
        }
    }

    /// Whether the pod requests a user namespace of its own.
    #[must_use]
    pub fn has_user_namespace(&self) -> bool {
        self.host_users == Some(false)
    }
}
