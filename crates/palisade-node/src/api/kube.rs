//! Pods from any Kubernetes API server, the embedded one included.
//!
//! Objects are read and written as JSON ([`DynamicObject`]): a typed client would drop `configMapProfile` on the way in and
//! `seccompProfileHash` on the way out. Every write names the pod's identity, so that a pod of the same name made anew is
//! never touched.

use std::{collections::BTreeMap, sync::Arc};

use base64::Engine as _;
use futures::{
    FutureExt as _, StreamExt as _,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use jiff::Timestamp;
use kube::{
    Api, Client,
    api::{
        ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions,
    },
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event},
    },
};
use palisade_base::{
    causes::root_cause,
    time::{rfc3339, rfc3339_micro},
};
use palisade_model::profile_recording::{PART_KIND, PART_RESOURCE};
use serde_json::{Map, Value, json};
use tracing::warn;

use super::{ApiError, CertificateWish, ConfigMap, PodChange, PodKey, PodSource, Secret};
use crate::{
    events::EventRecord,
    guards::{GuardChange, watch::guard_changes},
    pod::RunPod,
    recording::{
        objects::{Part, RecordingChange},
        watch::recording_changes,
    },
};

/// The pods of one node on an API server.
#[derive(Clone)]
pub struct KubeSource {
    client: Client,
    node: Arc<str>,
}

impl std::fmt::Debug for KubeSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KubeSource").field("node", &self.node).finish_non_exhaustive()
    }
}

fn core(kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: String::new(),
        version: "v1".to_owned(),
        api_version: "v1".to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

fn runtime_class_resource() -> ApiResource {
    ApiResource {
        group: "node.k8s.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "node.k8s.io/v1".to_owned(),
        kind: "RuntimeClass".to_owned(),
        plural: "runtimeclasses".to_owned(),
    }
}

fn trust_bundle_resource() -> ApiResource {
    ApiResource {
        group: "certificates.k8s.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "certificates.k8s.io/v1".to_owned(),
        kind: "ClusterTrustBundle".to_owned(),
        plural: "clustertrustbundles".to_owned(),
    }
}

fn certificate_request_resource() -> ApiResource {
    ApiResource {
        group: "certificates.k8s.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "certificates.k8s.io/v1".to_owned(),
        kind: "PodCertificateRequest".to_owned(),
        plural: "podcertificaterequests".to_owned(),
    }
}

fn lease_resource() -> ApiResource {
    ApiResource {
        group: "coordination.k8s.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "coordination.k8s.io/v1".to_owned(),
        kind: "Lease".to_owned(),
        plural: "leases".to_owned(),
    }
}

fn part_resource() -> ApiResource {
    ApiResource { kind: PART_KIND.to_owned(), plural: PART_RESOURCE.to_owned(), ..report_resource() }
}

fn report_resource() -> ApiResource {
    ApiResource {
        group: "palisade.dev".to_owned(),
        version: "v1alpha1".to_owned(),
        api_version: "palisade.dev/v1alpha1".to_owned(),
        kind: "NodeSecurityReport".to_owned(),
        plural: "nodesecurityreports".to_owned(),
    }
}

const LEASE_NAMESPACE: &str = "kube-node-lease";

fn from_kube_error(error: kube::Error) -> ApiError {
    match error {
        kube::Error::Api(status) => match status.code {
            404 => ApiError::NotFound(status.message.clone()),
            409 => ApiError::Conflict(status.message.clone()),
            _ => ApiError::Other(status.message.clone()),
        },
        other => ApiError::Other(root_cause(&other).to_string()),
    }
}

fn object(value: Value) -> Result<DynamicObject, ApiError> {
    serde_json::from_value(value).map_err(|error| ApiError::Other(error.to_string()))
}

fn plain(found: &DynamicObject) -> Value {
    serde_json::to_value(found).unwrap_or(Value::Null)
}

impl KubeSource {
    /// The pods bound to a node.
    #[must_use]
    pub fn new(client: Client, node: &str) -> Self {
        Self { client, node: node.into() }
    }

    fn namespaced(&self, namespace: &str, resource: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, resource)
    }

    fn all(&self, resource: &ApiResource) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), resource)
    }

    /// The pods of the node as they are now.
    pub async fn list(&self) -> Result<Vec<Value>, ApiError> {
        let params = ListParams::default().fields(&format!("spec.nodeName={}", self.node));
        let list = self.all(&core("Pod", "pods")).list(&params).await.map_err(from_kube_error)?;
        Ok(list.items.iter().map(plain).collect())
    }

    async fn try_write_event(&self, event: &EventRecord) -> Result<(), ApiError> {
        let api = self.namespaced(&event.pod.namespace, &core("Event", "events"));
        let whole = event.object(&self.node);
        if event.count > 1 {
            let count = json!({"count": event.count, "lastTimestamp": whole["lastTimestamp"]});
            match api
                .patch(&event.name, &PatchParams::default(), &Patch::Merge(count))
                .await
                .map_err(from_kube_error)
            {
                // It expired, or was never written.
                Err(ApiError::NotFound(_)) => {}
                result => return result.map(drop),
            }
        }
        match api.create(&PostParams::default(), &object(whole.clone())?).await.map_err(from_kube_error) {
            // An agent before this one wrote it.
            Err(ApiError::Conflict(_)) => {
                let count = json!({"count": event.count, "lastTimestamp": whole["lastTimestamp"]});
                api.patch(&event.name, &PatchParams::default(), &Patch::Merge(count))
                    .await
                    .map_err(from_kube_error)
                    .map(drop)
            }
            result => result.map(drop),
        }
    }

    async fn try_write_node(&self, mut node: Value) -> Result<(), ApiError> {
        let api = self.all(&core("Node", "nodes"));
        let name = node.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        match api.get_opt(&name).await.map_err(from_kube_error)? {
            None => {
                api.create(&PostParams::default(), &object(node.clone())?).await.map_err(from_kube_error)?;
            }
            Some(known) => {
                keep_transition_times(&mut node, &plain(&known));
                let metadata = json!({"metadata": {"labels": node.pointer("/metadata/labels"),
                    "annotations": node.pointer("/metadata/annotations")}});
                api.patch(&name, &PatchParams::default(), &Patch::Merge(metadata))
                    .await
                    .map_err(from_kube_error)?;
            }
        }
        let status = json!({"status": node.get("status")});
        api.patch_status(&name, &PatchParams::default(), &Patch::Merge(status))
            .await
            .map_err(from_kube_error)?;
        Ok(())
    }

    async fn try_request_certificate(&self, pod: &RunPod, wish: CertificateWish) -> Result<String, ApiError> {
        let key = &pod.key;
        let account = pod.service_account();
        let of_account = self.namespaced(&key.namespace, &core("ServiceAccount", "serviceaccounts"));
        let of_account = of_account.get(account).await.map_err(from_kube_error)?;
        let of_node = self.all(&core("Node", "nodes")).get(&self.node).await.map_err(from_kube_error)?;
        let request = object(json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "PodCertificateRequest",
            "metadata": {"generateName": "req-", "namespace": key.namespace, "ownerReferences":
                [{"apiVersion": "v1", "kind": "Pod", "name": key.name, "uid": key.uid}]},
            "spec": {
                "signerName": wish.signer, "maxExpirationSeconds": wish.max_expiration_seconds,
                "podName": key.name, "podUID": key.uid,
                "serviceAccountName": account, "serviceAccountUID": of_account.metadata.uid,
                "nodeName": &*self.node, "nodeUID": of_node.metadata.uid,
                "stubPKCS10Request": wish.request, "unverifiedUserAnnotations": wish.annotations,
            },
        }))?;
        let api = self.namespaced(&key.namespace, &certificate_request_resource());
        let made = api.create(&PostParams::default(), &request).await.map_err(from_kube_error)?;
        made.metadata.name.ok_or_else(|| ApiError::Other("the request has no name".to_owned()))
    }

    async fn try_renew_lease(&self, node: &str, seconds: u32) -> Result<(), ApiError> {
        let api = self.namespaced(LEASE_NAMESPACE, &lease_resource());
        let now = rfc3339_micro(Timestamp::now().as_microsecond());
        let spec = json!({"holderIdentity": node, "leaseDurationSeconds": seconds, "renewTime": now});
        let patch = json!({"spec": spec});
        match api.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await.map_err(from_kube_error) {
            Err(ApiError::NotFound(_)) => {}
            result => return result.map(drop),
        }
        let lease = || {
            object(json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": node, "namespace": LEASE_NAMESPACE}, "spec": spec}))
        };
        match api.create(&PostParams::default(), &lease()?).await.map_err(from_kube_error) {
            Err(ApiError::NotFound(_)) => {}
            result => return result.map(drop),
        }
        // A server that is new has not even the namespace.
        let namespaces = self.all(&core("Namespace", "namespaces"));
        let namespace =
            object(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEASE_NAMESPACE}}))?;
        namespaces
            .create(&PostParams::default(), &namespace)
            .await
            .map_err(from_kube_error)
            .map(drop)
            .or_else(conflict_is_fine)?;
        api.create(&PostParams::default(), &lease()?)
            .await
            .map_err(from_kube_error)
            .map(drop)
            .or_else(conflict_is_fine)
    }
}

fn conflict_is_fine(error: ApiError) -> Result<(), ApiError> {
    if matches!(error, ApiError::Conflict(_)) { Ok(()) } else { Err(error) }
}

/// A condition that did not change keeps the time at which it last did.
fn keep_transition_times(node: &mut Value, known: &Value) {
    let before = known.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let now = node.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in now.into_iter().flatten() {
        let same = before.iter().find(|known| {
            known.get("type") == condition.get("type") && known.get("status") == condition.get("status")
        });
        if let (Some(same), Value::Object(fields)) =
            (same.and_then(|same| same.get("lastTransitionTime")), condition)
        {
            fields.insert("lastTransitionTime".to_owned(), same.clone());
        }
    }
}

fn config_map(found: &Value) -> ConfigMap {
    let data = found.get("data").and_then(Value::as_object).into_iter().flatten();
    let data = data.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect();
    ConfigMap { data, binary_data: decoded(found, "binaryData") }
}

fn decoded(found: &Value, field: &str) -> BTreeMap<String, Vec<u8>> {
    let engine = base64::engine::general_purpose::STANDARD;
    let entries = found.get(field).and_then(Value::as_object).into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), engine.decode(value.as_str()?).ok()?))).collect()
}

impl PodSource for KubeSource {
    fn pods(&self) -> BoxStream<'static, PodChange> {
        let config = watcher::Config::default().fields(&format!("spec.nodeName={}", self.node));
        let events = watcher::watcher(self.all(&core("Pod", "pods")), config).default_backoff();
        let uid = |pod: &DynamicObject| pod.metadata.uid.clone().unwrap_or_default();
        // Between the start of a list and its end, pods are gathered.
        stream::unfold((events.boxed(), Vec::new()), move |(mut events, mut list)| async move {
            loop {
                let change = match events.next().await? {
                    Ok(Event::Init) => {
                        list.clear();
                        continue;
                    }
                    Ok(Event::InitApply(pod)) => {
                        list.push(plain(&pod));
                        continue;
                    }
                    Ok(Event::InitDone) => PodChange::All(std::mem::take(&mut list)),
                    Ok(Event::Apply(pod)) => PodChange::Applied(plain(&pod)),
                    Ok(Event::Delete(pod)) => PodChange::Gone { uid: uid(&pod) },
                    Err(error) => {
                        warn!(error = %root_cause(&error), "cannot watch pods");
                        continue;
                    }
                };
                return Some((change, (events, list)));
            }
        })
        .boxed()
    }

    fn guards(&self) -> BoxStream<'static, GuardChange> {
        guard_changes(self.client.clone()).boxed()
    }

    fn recordings(&self) -> BoxStream<'static, RecordingChange> {
        recording_changes(self.client.clone()).boxed()
    }

    fn write_recording(&self, part: Part) -> BoxFuture<'_, Result<(), ApiError>> {
        async move {
            let api = self.namespaced(&part.namespace, &part_resource());
            let params = PatchParams::apply("palisade-kubelet").force();
            let result = api.patch(&part.name, &params, &Patch::Apply(part.object)).await;
            result.map(drop).map_err(from_kube_error)
        }
        .boxed()
    }

    fn write_guard_rows<'a>(
        &'a self,
        node: &'a str,
        rows: Vec<Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        async move {
            let api = self.all(&report_resource());
            let now = rfc3339(Timestamp::now().as_second());
            let kind = json!({"apiVersion": "palisade.dev/v1alpha1", "kind": "NodeSecurityReport", "metadata": {"name": node}});
            let mut report = kind.clone();
            if let Some(fields) = report.as_object_mut() {
                let status = json!({"observedAt": now, "agentVersion": env!("CARGO_PKG_VERSION"), "guards": rows});
                fields.insert("status".to_owned(), status);
            }
            let params = PatchParams::apply("palisade-kubelet").force();
            let patch = Patch::Apply(report);
            match api.patch_status(node, &params, &patch).await.map_err(from_kube_error) {
                Err(ApiError::NotFound(_)) => {}
                result => return result.map(drop),
            }
            let made = api.create(&PostParams::default(), &object(kind)?).await;
            made.map(drop).map_err(from_kube_error).or_else(conflict_is_fine)?;
            api.patch_status(node, &params, &patch).await.map(drop).map_err(from_kube_error)
        }
        .boxed()
    }

    fn config_map<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<ConfigMap>, ApiError>> {
        async move {
            let api = self.namespaced(namespace, &core("ConfigMap", "configmaps"));
            Ok(api.get_opt(name).await.map_err(from_kube_error)?.map(|found| config_map(&plain(&found))))
        }
        .boxed()
    }

    fn config_maps<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Result<Vec<ConfigMap>, ApiError>> {
        async move {
            let api = self.namespaced(namespace, &core("ConfigMap", "configmaps"));
            let list = api.list(&ListParams::default()).await.map_err(from_kube_error)?;
            Ok(list.items.iter().map(|found| config_map(&plain(found))).collect())
        }
        .boxed()
    }

    fn secret<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Secret>, ApiError>> {
        async move {
            let api = self.namespaced(namespace, &core("Secret", "secrets"));
            let found = api.get_opt(name).await.map_err(from_kube_error)?;
            Ok(found.map(|found| Secret { data: decoded(&plain(&found), "data") }))
        }
        .boxed()
    }

    fn trust_bundles(&self) -> BoxFuture<'_, Result<Vec<Value>, ApiError>> {
        async move {
            let list = self.all(&trust_bundle_resource()).list(&ListParams::default()).await;
            Ok(list.map_err(from_kube_error)?.items.iter().map(plain).collect())
        }
        .boxed()
    }

    fn services<'a>(
        &'a self,
        namespace: &'a str,
        of_namespace: bool,
    ) -> BoxFuture<'a, Result<Vec<Value>, ApiError>> {
        const MASTER: (&str, &str) = ("default", "kubernetes");
        async move {
            let resource = core("Service", "services");
            let master =
                self.namespaced(MASTER.0, &resource).get_opt(MASTER.1).await.map_err(from_kube_error)?;
            let mut found: Vec<Value> = master.iter().map(plain).collect();
            if of_namespace {
                let list = self.namespaced(namespace, &resource).list(&ListParams::default()).await;
                found.extend(list.map_err(from_kube_error)?.items.iter().map(plain));
            }
            Ok(found)
        }
        .boxed()
    }

    fn service_account_token<'a>(
        &'a self,
        pod: &'a PodKey,
        account: &'a str,
        audience: Option<&'a str>,
        expiration_seconds: i64,
    ) -> BoxFuture<'a, Result<String, ApiError>> {
        async move {
            let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid});
            let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                "spec": {"audiences": audience.into_iter().collect::<Vec<_>>(),
                    "expirationSeconds": expiration_seconds, "boundObjectRef": bound}});
            let path = format!("/api/v1/namespaces/{}/serviceaccounts/{account}/token", pod.namespace);
            let request = http::Request::post(path)
                .header(http::header::CONTENT_TYPE, "application/json")
                .body(request.to_string().into_bytes())
                .map_err(|error| ApiError::Other(error.to_string()))?;
            let answer: Value = self.client.request(request).await.map_err(from_kube_error)?;
            let token = answer.pointer("/status/token").and_then(Value::as_str);
            token.map(str::to_owned).ok_or_else(|| ApiError::Other("the answer holds no token".to_owned()))
        }
        .boxed()
    }

    fn request_certificate<'a>(
        &'a self,
        pod: &'a RunPod,
        wish: CertificateWish,
    ) -> BoxFuture<'a, Result<String, ApiError>> {
        self.try_request_certificate(pod, wish).boxed()
    }

    fn certificate_request<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Value>, ApiError>> {
        async move {
            let api = self.namespaced(namespace, &certificate_request_resource());
            Ok(api.get_opt(name).await.map_err(from_kube_error)?.as_ref().map(plain))
        }
        .boxed()
    }

    fn write_status<'a>(&'a self, pod: &'a PodKey, status: Value) -> BoxFuture<'a, Result<(), ApiError>> {
        async move {
            let mut fields = match status {
                Value::Object(fields) => fields,
                _ => Map::new(),
            };
            // What is no longer from_kube_error must be taken back.
            for field in ["reason", "message", "podIP", "podIPs"] {
                fields.entry(field).or_insert(Value::Null);
            }
            let patch = json!({"metadata": {"uid": pod.uid}, "status": fields});
            let api = self.namespaced(&pod.namespace, &core("Pod", "pods"));
            let result = api.patch_status(&pod.name, &PatchParams::default(), &Patch::Merge(patch)).await;
            result.map(drop).map_err(from_kube_error)
        }
        .boxed()
    }

    fn write_event(&self, event: EventRecord) -> BoxFuture<'_, Result<(), ApiError>> {
        async move { self.try_write_event(&event).await }.boxed()
    }

    fn finish_deletion<'a>(&'a self, pod: &'a PodKey) -> BoxFuture<'a, Result<(), ApiError>> {
        async move {
            let api = self.namespaced(&pod.namespace, &core("Pod", "pods"));
            let preconditions = Preconditions { uid: Some(pod.uid.clone()), resource_version: None };
            let params = DeleteParams {
                grace_period_seconds: Some(0),
                preconditions: Some(preconditions),
                ..Default::default()
            };
            api.delete(&pod.name, &params).await.map(drop).map_err(from_kube_error)
        }
        .boxed()
    }

    fn write_node(&self, node: Value) -> BoxFuture<'_, Result<(), ApiError>> {
        async move { self.try_write_node(node).await }.boxed()
    }

    fn read_node<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<Option<Value>, ApiError>> {
        async move {
            let found = self.all(&core("Node", "nodes")).get_opt(node).await.map_err(from_kube_error)?;
            Ok(found.as_ref().map(plain))
        }
        .boxed()
    }

    fn runtime_handler<'a>(&'a self, class: &'a str) -> BoxFuture<'a, Result<Option<String>, ApiError>> {
        async move {
            let found = self.all(&runtime_class_resource()).get_opt(class).await.map_err(from_kube_error)?;
            Ok(found.and_then(|class| class.data.get("handler")?.as_str().map(str::to_owned)))
        }
        .boxed()
    }

    fn label_node<'a>(
        &'a self,
        node: &'a str,
        labels: BTreeMap<String, String>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        async move {
            let api = self.all(&core("Node", "nodes"));
            let patch = json!({"metadata": {"labels": labels}});
            api.patch(node, &PatchParams::default(), &Patch::Merge(patch))
                .await
                .map(drop)
                .map_err(from_kube_error)
        }
        .boxed()
    }

    fn renew_lease<'a>(&'a self, node: &'a str, seconds: u32) -> BoxFuture<'a, Result<(), ApiError>> {
        async move { self.try_renew_lease(node, seconds).await }.boxed()
    }
}
