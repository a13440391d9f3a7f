//! Watches pods, nodes and heartbeats, and makes the plan true: bindings, conditions, events.
//!
//! Nothing happens before the first heartbeat of a node: in a cluster without nodes, pods stay pending and no event
//! reports it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{Stream, StreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, Pod},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    core::{ApiResource, DynamicObject},
    runtime::{
        WatchStreamExt as _, reflector,
        watcher::{self, watcher},
    },
};
use palisade_base::{causes::root_cause, time::rfc3339};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tracing::{debug, warn};

use super::plan::{Observed, SCHEDULER, SchedulingDecision, is_lost, name, plan};

/// Where kubelets renew their leases.
const HEARTBEATS: &str = "kube-node-lease";

/// Changes come in bursts; what can wait this long is decided together.
const BURST: Duration = Duration::from_millis(20);

/// How often a plan is made although nothing changed: a missing heartbeat is no event.
const RESYNC: Duration = Duration::from_secs(10);

/// Schedules until it is dropped.
pub async fn run(client: Client) {
    wait_for_a_node(&client).await;
    let changed = Arc::new(Notify::new());
    let (pods, nodes) = (ApiResource::erase::<Pod>(&()), ApiResource::erase::<Node>(&()));
    let (pods, watching_pods) = reflected(Api::all_with(client.clone(), &pods), pods, &changed);
    let (nodes, watching_nodes) = reflected(Api::all_with(client.clone(), &nodes), nodes, &changed);
    let heartbeats: Api<Lease> = Api::namespaced(client.clone(), HEARTBEATS);
    let (leases, watching_leases) = reflected(heartbeats, (), &changed);
    let deciding = async {
        if pods.wait_until_ready().await.is_err()
            || nodes.wait_until_ready().await.is_err()
            || leases.wait_until_ready().await.is_err()
        {
            return;
        }
        let mut reported = BTreeMap::new();
        loop {
            decide(&client, &pods.state(), &nodes.state(), &leases.state(), &mut reported).await;
            let _ = tokio::time::timeout(RESYNC, changed.notified()).await;
            tokio::time::sleep(BURST).await;
        }
    };
    tokio::select! {
        () = deciding => {}
        () = watching_pods.for_each(|()| async {}) => {}
        () = watching_nodes.for_each(|()| async {}) => {}
        () = watching_leases.for_each(|()| async {}) => {}
    }
}

async fn wait_for_a_node(client: &Client) {
    let leases: Api<Lease> = Api::namespaced(client.clone(), HEARTBEATS);
    let mut events = watcher(leases, watcher::Config::default()).default_backoff().applied_objects().boxed();
    while let Some(event) = events.next().await {
        // A lease that was restored from a dump is stale.
        let renewed = event.ok().as_ref().and_then(heartbeat);
        if renewed.is_some_and(|renewed| !is_lost(renewed, Timestamp::now())) {
            return;
        }
    }
}

fn heartbeat(lease: &Lease) -> Option<Timestamp> {
    Some(lease.spec.as_ref()?.renew_time.as_ref()?.0)
}

/// A mirror of a kind, and the stream that keeps it.
fn reflected<K>(
    api: Api<K>,
    kind: K::DynamicType,
    changed: &Arc<Notify>,
) -> (reflector::Store<K>, impl Stream<Item = ()> + Unpin)
where
    K: kube::Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Clone + Eq + std::hash::Hash + Send + Sync,
{
    let writer = reflector::store::Writer::new(kind);
    let store = writer.as_reader();
    let changed = Arc::clone(changed);
    let events = watcher(api, watcher::Config::default()).default_backoff().reflect(writer);
    let stream = events.map(move |event| match event {
        Ok(_) => changed.notify_one(),
        Err(error) => debug!(error = %root_cause(&error), "watch interrupted"),
    });
    (store, stream.boxed())
}

async fn decide(
    client: &Client,
    pods: &[Arc<DynamicObject>],
    nodes: &[Arc<DynamicObject>],
    leases: &[Arc<Lease>],
    reported: &mut BTreeMap<String, String>,
) {
    let pods: Vec<&DynamicObject> = pods.iter().map(AsRef::as_ref).collect();
    let mut nodes: Vec<&DynamicObject> = nodes.iter().map(AsRef::as_ref).collect();
    nodes.sort_by_key(|node| &node.metadata.name);
    let heartbeats =
        leases.iter().filter_map(|lease| Some((lease.metadata.name.clone()?, heartbeat(lease)?))).collect();
    let now = Timestamp::now();
    let decisions = plan(&Observed { pods: &pods, nodes: &nodes, heartbeats: &heartbeats, now });
    reported.retain(|pod, _| decisions.contains_key(pod));
    for pod in pods {
        match decisions.get(&name(pod)) {
            Some(SchedulingDecision::Bind(node)) => bind(client, pod, node).await,
            // The same reason is reported once.
            Some(SchedulingDecision::Unschedulable(why)) if reported.get(&name(pod)) != Some(why) => {
                report_unschedulable(client, pod, why).await;
                reported.insert(name(pod), why.clone());
            }
            Some(SchedulingDecision::Unschedulable(_)) | None => {}
        }
    }
}

async fn bind(client: &Client, pod: &DynamicObject, node: &str) {
    let (namespace, pod_name) = names(pod);
    let binding = json!({"apiVersion": "v1", "kind": "Binding",
        "metadata": {"namespace": namespace, "name": pod_name, "uid": pod.metadata.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
    let path = format!("/api/v1/namespaces/{namespace}/pods/{pod_name}/binding");
    match post(client, &path, &binding).await {
        Ok(()) => {
            let text = format!("Successfully assigned {namespace}/{pod_name} to {node}");
            record_event(client, pod, "Normal", "Scheduled", &text).await;
        }
        // It was assigned or deleted meanwhile; the watch delivers its new state.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
        Err(error) => warn!(error = %root_cause(&error), pod = name(pod), "failed to bind pod"),
    }
}

async fn report_unschedulable(client: &Client, pod: &DynamicObject, why: &str) {
    record_event(client, pod, "Warning", "FailedScheduling", why).await;
    let (namespace, pod_name) = names(pod);
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let now = rfc3339(Timestamp::now().as_second());
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why,
        "lastProbeTime": null, "lastTransitionTime": now});
    let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}});
    // Strategic merge: conditions are merged by their type.
    let written = api.patch_status(pod_name, &PatchParams::default(), &Patch::Strategic(patch)).await;
    if let Err(error) = written {
        debug!(error = %root_cause(&error), pod = name(pod), "failed to update pod condition");
    }
}

async fn record_event(client: &Client, pod: &DynamicObject, kind: &str, reason: &str, message: &str) {
    let (namespace, pod_name) = names(pod);
    let now = Timestamp::now();
    let time = rfc3339(now.as_second());
    let event = json!({"apiVersion": "v1", "kind": "Event",
        "metadata": {"namespace": namespace, "name": format!("{pod_name}.{:x}", now.as_nanosecond())},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": pod_name,
            "uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version},
        "type": kind, "reason": reason, "message": message, "count": 1, "firstTimestamp": time,
        "lastTimestamp": time, "source": {"component": SCHEDULER}, "reportingComponent": SCHEDULER});
    if let Err(error) = post(client, &format!("/api/v1/namespaces/{namespace}/events"), &event).await {
        debug!(error = %root_cause(&error), pod = name(pod), "failed to record event");
    }
}

fn names(pod: &DynamicObject) -> (&str, &str) {
    let metadata = &pod.metadata;
    (metadata.namespace.as_deref().unwrap_or("default"), metadata.name.as_deref().unwrap_or_default())
}

async fn post(client: &Client, path: &str, object: &Value) -> Result<(), kube::Error> {
    let request = http::Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(object.to_string().into_bytes())
        .map_err(kube::Error::HttpError)?;
    client.request::<Value>(request).await.map(drop)
}
