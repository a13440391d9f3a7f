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
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
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
use tracing::{debug, info, warn};

use super::plan::{Observed, Preemption, SCHEDULER, SchedulingDecision, is_lost, name, nominated, plan};
use super::preemption::{DISRUPTION_TARGET, PREEMPTED, Victim};
use crate::workloads::lease;

/// The Lease of upstream's scheduler, in `kube-system`.
const KUBE_SCHEDULER: &str = "kube-scheduler";

/// Where kubelets renew their leases.
const HEARTBEATS: &str = "kube-node-lease";

/// Changes come in bursts; what can wait this long is decided together.
const BURST: Duration = Duration::from_millis(20);

/// How often a plan is made although nothing changed: a missing heartbeat is no event.
const RESYNC: Duration = Duration::from_secs(10);

/// Schedules until it is dropped, whenever no kube-scheduler does: two would preempt more than one.
pub async fn run(client: Client) {
    wait_for_a_node(&client).await;
    let api = crate::api::Api::new(client.clone());
    let (watching, mut lease) = lease::watch(&api, KUBE_SCHEDULER);
    let running = async {
        loop {
            lease.is_free().await;
            tokio::select! {
                () = schedule(client.clone()) => return,
                () = lease.is_held() => info!("kube-scheduler leads: the built-in scheduler pauses"),
            }
        }
    };
    tokio::select! {
        () = watching => {}
        () = running => {}
    }
}

async fn schedule(client: Client) {
    let changed = Arc::new(Notify::new());
    let (pods, nodes) = (ApiResource::erase::<Pod>(&()), ApiResource::erase::<Node>(&()));
    let (pods, watching_pods) = reflected(Api::all_with(client.clone(), &pods), pods, &changed);
    let (nodes, watching_nodes) = reflected(Api::all_with(client.clone(), &nodes), nodes, &changed);
    let budgets = ApiResource::erase::<PodDisruptionBudget>(&());
    let (budgets, watching_budgets) = reflected(Api::all_with(client.clone(), &budgets), budgets, &changed);
    let heartbeats: Api<Lease> = Api::namespaced(client.clone(), HEARTBEATS);
    let (leases, watching_leases) = reflected(heartbeats, (), &changed);
    let deciding = async {
        if pods.wait_until_ready().await.is_err()
            || nodes.wait_until_ready().await.is_err()
            || leases.wait_until_ready().await.is_err()
            || serves_budgets(&client).await && budgets.wait_until_ready().await.is_err()
        {
            return;
        }
        let mut reported = BTreeMap::new();
        loop {
            let seen = Seen {
                pods: &pods.state(),
                nodes: &nodes.state(),
                budgets: &budgets.state(),
                leases: &leases.state(),
            };
            decide(&client, &seen, &mut reported).await;
            let _ = tokio::time::timeout(RESYNC, changed.notified()).await;
            tokio::time::sleep(BURST).await;
        }
    };
    tokio::select! {
        () = deciding => {}
        () = watching_pods.for_each(|()| async {}) => {}
        () = watching_nodes.for_each(|()| async {}) => {}
        () = watching_leases.for_each(|()| async {}) => {}
        () = watching_budgets.for_each(|()| async {}) => {}
    }
}

/// Releases before v1.21 do not have this version of budgets.
async fn serves_budgets(client: &Client) -> bool {
    !matches!(client.list_api_group_resources("policy/v1").await, Err(kube::Error::Api(status)) if status.code == 404)
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

/// What the watches have delivered.
struct Seen<'s> {
    pods: &'s [Arc<DynamicObject>],
    nodes: &'s [Arc<DynamicObject>],
    budgets: &'s [Arc<DynamicObject>],
    leases: &'s [Arc<Lease>],
}

async fn decide(client: &Client, seen: &Seen<'_>, reported: &mut BTreeMap<String, String>) {
    let pods: Vec<&DynamicObject> = seen.pods.iter().map(AsRef::as_ref).collect();
    let mut nodes: Vec<&DynamicObject> = seen.nodes.iter().map(AsRef::as_ref).collect();
    nodes.sort_by_key(|node| &node.metadata.name);
    let mut budgets: Vec<&DynamicObject> = seen.budgets.iter().map(AsRef::as_ref).collect();
    budgets.sort_by_key(|budget| (&budget.metadata.namespace, &budget.metadata.name));
    let heartbeats = seen
        .leases
        .iter()
        .filter_map(|lease| Some((lease.metadata.name.clone()?, heartbeat(lease)?)))
        .collect();
    let now = Timestamp::now();
    let decisions =
        plan(&Observed { pods: &pods, budgets: &budgets, nodes: &nodes, heartbeats: &heartbeats, now });
    reported.retain(|pod, _| decisions.contains_key(pod));
    for pod in pods {
        match decisions.get(&name(pod)) {
            Some(SchedulingDecision::Bind(node)) => bind(client, pod, node).await,
            Some(SchedulingDecision::Preempt(preemption)) => {
                preempt(client, pod, preemption).await;
                reported.insert(name(pod), preemption.why.clone());
            }
            // The same reason is reported once.
            Some(SchedulingDecision::Unschedulable { why, nominated: node })
                if reported.get(&name(pod)) != Some(why) || nominated(pod) != node.as_deref() =>
            {
                report_unschedulable(client, pod, why, node.as_deref()).await;
                reported.insert(name(pod), why.clone());
            }
            Some(SchedulingDecision::Unschedulable { .. }) | None => {}
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

/// Ends the victims, and lets the pod wait for their node. Who has read an older state ends nothing more: a victim that is
/// ending, or has been replaced, is left alone.
async fn preempt(client: &Client, pod: &DynamicObject, preemption: &Preemption) {
    for other in &preemption.outranked {
        let patch = json!({"metadata": {"uid": other.uid}, "status": {"nominatedNodeName": null}});
        if let Err(error) = patch_status(client, &other.name, &patch).await {
            debug!(error = %root_cause(&error), pod = other.name, "failed to clear the nominated node");
        }
    }
    // The node is promised before it is freed: otherwise another pod may take it.
    report_unschedulable(client, pod, &preemption.why, Some(&preemption.node)).await;
    for victim in &preemption.victims {
        if let Err(error) = end(client, victim).await {
            // It is a victim again in the next plan, unless it is gone.
            debug!(error = %root_cause(&error), pod = victim.name, "failed to preempt pod");
            continue;
        }
        let (uid, node) = (pod.metadata.uid.as_deref().unwrap_or_default(), &preemption.node);
        let text = format!("Preempted by pod {uid} on node {node}");
        record_event_about(client, victim, "Preempted", &text).await;
    }
}

async fn end(client: &Client, victim: &Victim) -> Result<(), kube::Error> {
    let condition = json!({"type": DISRUPTION_TARGET, "status": "True", "reason": PREEMPTED,
        "message": format!("{SCHEDULER}: preempting to accommodate a higher priority pod"),
        "lastProbeTime": null, "lastTransitionTime": rfc3339(Timestamp::now().as_second())});
    let patch = json!({"metadata": {"uid": victim.uid}, "status": {"conditions": [condition]}});
    patch_status(client, &victim.name, &patch).await?;
    let (namespace, name) = victim.name.split_once('/').unwrap_or_default();
    let preconditions = Preconditions { uid: Some(victim.uid.clone()), resource_version: None };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &ApiResource::erase::<Pod>(&()))
        .delete(name, &parameters)
        .await
        .map(drop)
}

/// Strategic merge: conditions are merged by their type.
async fn patch_status(client: &Client, pod: &str, patch: &Value) -> Result<(), kube::Error> {
    let (namespace, name) = pod.split_once('/').unwrap_or_default();
    let api: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<Pod>(&()));
    api.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await.map(drop)
}

async fn report_unschedulable(client: &Client, pod: &DynamicObject, why: &str, node: Option<&str>) {
    record_event(client, pod, "Warning", "FailedScheduling", why).await;
    let now = rfc3339(Timestamp::now().as_second());
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why,
        "lastProbeTime": null, "lastTransitionTime": now});
    let patch = json!({"metadata": {"uid": pod.metadata.uid},
        "status": {"conditions": [condition], "nominatedNodeName": node}});
    if let Err(error) = patch_status(client, &name(pod), &patch).await {
        debug!(error = %root_cause(&error), pod = name(pod), "failed to update pod condition");
    }
}

async fn record_event_about(client: &Client, pod: &Victim, reason: &str, message: &str) {
    let (namespace, pod_name) = pod.name.split_once('/').unwrap_or_default();
    let about =
        json!({"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": pod_name, "uid": pod.uid});
    post_event(client, about, "Normal", reason, message).await;
}

async fn record_event(client: &Client, pod: &DynamicObject, kind: &str, reason: &str, message: &str) {
    let (namespace, pod_name) = names(pod);
    let about = json!({"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": pod_name,
        "uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version});
    post_event(client, about, kind, reason, message).await;
}

async fn post_event(client: &Client, about: Value, kind: &str, reason: &str, message: &str) {
    let text = |key: &str| about[key].as_str().unwrap_or_default().to_owned();
    let (namespace, pod_name) = (text("namespace"), text("name"));
    let now = Timestamp::now();
    let time = rfc3339(now.as_second());
    let event = json!({"apiVersion": "v1", "kind": "Event",
        "metadata": {"namespace": namespace, "name": format!("{pod_name}.{:x}", now.as_nanosecond())},
        "involvedObject": about, "type": kind, "reason": reason, "message": message, "count": 1, "firstTimestamp": time,
        "lastTimestamp": time, "source": {"component": SCHEDULER}, "reportingComponent": SCHEDULER});
    if let Err(error) = post(client, &format!("/api/v1/namespaces/{namespace}/events"), &event).await {
        debug!(error = %root_cause(&error), pod = pod_name, "failed to record event");
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
