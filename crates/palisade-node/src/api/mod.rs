//! The Kubernetes API, as far as a node needs it.
//!
//! [`PodSource`] is a port: [`local`] serves `palisade run`, which has no API server, and [`kube`] any API server, the
//! embedded one included. Objects travel as JSON, because typed clients drop the fields of Palisade's extensions.

pub mod kube;
pub mod local;

use std::collections::BTreeMap;

use futures::{future::BoxFuture, stream::BoxStream};
use serde::Serialize;
use serde_json::Value;
use thiserror::Error;

use crate::{
    guards::GuardChange,
    pod::RunPod,
    recording::objects::{Part, RecordingChange},
};

/// Why the API server did not answer as hoped.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub enum ApiError {
    /// The object changed or went away meanwhile: look again.
    #[error("conflict: {0}")]
    Conflict(String),
    /// No such object.
    #[error("not found: {0}")]
    NotFound(String),
    /// Anything else: refused, unreachable, garbled.
    #[error("{0}")]
    Other(String),
}

/// Data of a ConfigMap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct ConfigMap {
    pub data: BTreeMap<String, String>,
    pub binary_data: BTreeMap<String, Vec<u8>>,
}

/// Data of a Secret, decoded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct Secret {
    pub data: BTreeMap<String, Vec<u8>>,
}

/// A certificate that a pod needs, and the request that its key has signed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CertificateWish {
    /// Who is to issue it.
    pub signer: String,
    /// How long it may be valid at most; the API server has a default.
    pub max_expiration_seconds: Option<i64>,
    /// What the author of the pod has for the signer.
    pub annotations: BTreeMap<String, String>,
    /// A PKCS #10 request in base64.
    pub request: String,
}

/// A change among the pods of this node.
#[derive(Debug, Clone, PartialEq)]
pub enum PodChange {
    /// Every pod there is: the start of a watch, or its restart.
    All(Vec<Value>),
    /// A pod is new or changed.
    Applied(Value),
    /// A pod is gone from the API.
    Gone {
        /// Its identity.
        uid: String,
    },
}

/// Which pod a status or event is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct PodKey {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

impl std::fmt::Display for PodKey {
    /// As kubelets write it into messages.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}_{}({})", self.name, self.namespace, self.uid)
    }
}

/// The source of pods, and the sink of their status and events.
pub trait PodSource: Send + Sync + 'static {
    /// The pods of this node, first all of them, then each change. The stream ends only with the source.
    fn pods(&self) -> BoxStream<'static, PodChange>;

    /// The guards of the cluster and the labels of its namespaces, first all of them, then each change.
    fn guards(&self) -> BoxStream<'static, GuardChange>;

    /// Writes which containers of a node each guard covers.
    fn write_guard_rows<'a>(&'a self, node: &'a str, rows: Vec<Value>)
    -> BoxFuture<'a, Result<(), ApiError>>;

    /// The recordings of the cluster, first all of them, then each change.
    fn recordings(&self) -> BoxStream<'static, RecordingChange>;

    /// Writes what this node has recorded for a recording.
    fn write_recording(&self, part: Part) -> BoxFuture<'_, Result<(), ApiError>>;

    /// A ConfigMap, fresh from the API.
    fn config_map<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<ConfigMap>, ApiError>>;

    /// Every ConfigMap of a namespace.
    fn config_maps<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Result<Vec<ConfigMap>, ApiError>>;

    /// A Secret, fresh from the API.
    fn secret<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Secret>, ApiError>>;

    /// Every ClusterTrustBundle.
    fn trust_bundles(&self) -> BoxFuture<'_, Result<Vec<Value>, ApiError>>;

    /// The Service `default/kubernetes`, and those of a namespace if they are wanted.
    fn services<'a>(
        &'a self,
        namespace: &'a str,
        of_namespace: bool,
    ) -> BoxFuture<'a, Result<Vec<Value>, ApiError>>;

    /// A token of a service account, bound to the pod.
    fn service_account_token<'a>(
        &'a self,
        pod: &'a PodKey,
        account: &'a str,
        audience: Option<&'a str>,
        expiration_seconds: i64,
    ) -> BoxFuture<'a, Result<String, ApiError>>;

    /// Requests a certificate for a pod; the name of the request.
    fn request_certificate<'a>(
        &'a self,
        pod: &'a RunPod,
        wish: CertificateWish,
    ) -> BoxFuture<'a, Result<String, ApiError>>;

    /// A request for a certificate, as it is now.
    fn certificate_request<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Value>, ApiError>>;

    /// Writes `status` of a pod.
    fn write_status<'a>(&'a self, pod: &'a PodKey, status: Value) -> BoxFuture<'a, Result<(), ApiError>>;

    /// Writes an event, anew or with a higher count.
    fn write_event(&self, event: crate::events::EventRecord) -> BoxFuture<'_, Result<(), ApiError>>;

    /// Confirms that a deleted pod has stopped, so that the object is removed.
    fn finish_deletion<'a>(&'a self, pod: &'a PodKey) -> BoxFuture<'a, Result<(), ApiError>>;

    /// Creates or updates the node object: labels and annotations are merged, `status` is written as given.
    fn write_node(&self, node: Value) -> BoxFuture<'_, Result<(), ApiError>>;

    /// The Node as it is stored, with the fields of others.
    fn read_node<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<Option<Value>, ApiError>>;

    /// The handler of a RuntimeClass; none if there is no such class.
    fn runtime_handler<'a>(&'a self, class: &'a str) -> BoxFuture<'a, Result<Option<String>, ApiError>>;

    /// Adds labels to a Node that another kubelet owns.
    fn label_node<'a>(
        &'a self,
        node: &'a str,
        labels: BTreeMap<String, String>,
    ) -> BoxFuture<'a, Result<(), ApiError>>;

    /// Renews the node's lease.
    fn renew_lease<'a>(&'a self, node: &'a str, seconds: u32) -> BoxFuture<'a, Result<(), ApiError>>;
}
