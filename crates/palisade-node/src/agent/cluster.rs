//! The agent's requests to the API server.
//!
//! Every call it can make is here, so that its role can be compared with it. Profiles are watched by their metadata and
//! read one by one when they are needed: a node does not hold the bytes of every profile in memory.

use futures::{StreamExt as _, stream::BoxStream};
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt as _,
        events::{Event, EventType, Recorder, Reporter},
        watcher::{self, Event as WatchEvent},
    },
};
use palisade_base::causes::root_cause;
use palisade_model::profile::published::{CHANGED_SOURCES_ANNOTATION, GROUP, VERSION};
use serde_json::{Value, json};
use tracing::{debug, warn};

use crate::{
    api::PodKey,
    guards::{GuardChange, watch::guard_changes},
};

/// The start-up taint: nodes that register with it take no pods before their profiles are in place.
pub const NOT_READY_TAINT: &str = "palisade.dev/profiles-not-ready";
/// Who writes.
pub const FIELD_MANAGER: &str = "palisade-node";

fn resource(kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: GROUP.to_owned(),
        version: VERSION.to_owned(),
        api_version: format!("{GROUP}/{VERSION}"),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

/// A change among the published profiles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PublishedChange {
    /// A list begins.
    Begin,
    /// One is there, with the sources that hold another profile by now.
    Set { sha256: String, changed_sources: Vec<String> },
    /// The list is whole.
    Done,
    /// One is gone.
    Gone { sha256: String },
}

/// The part of a published profile that decides what a node writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PublishedText {
    /// The source.
    pub(super) profile: String,
    /// What it is combined with, if not with the default of the runtime.
    pub(super) baseline: Option<String>,
}

/// The API server, as far as the agent needs it.
pub(super) struct Cluster {
    client: Client,
    node: String,
}

impl Cluster {
    pub(super) fn new(client: Client, node: &str) -> Self {
        Self { client, node: node.to_owned() }
    }

    fn profiles(&self) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &resource("PublishedProfile", "publishedprofiles"))
    }

    /// Every published profile, then each change.
    pub(super) fn published(&self) -> BoxStream<'static, PublishedChange> {
        let api: Api<PartialObjectMeta<DynamicObject>> =
            Api::all_with(self.client.clone(), &resource("PublishedProfile", "publishedprofiles"));
        watcher::watcher(api, watcher::Config::default())
            .default_backoff()
            .filter_map(|event| {
                let set = |object: &dyn Fn() -> (String, Option<String>)| {
                    let (sha256, changed) = object();
                    let changed_sources =
                        changed.iter().flat_map(|list| list.split(',')).map(str::to_owned).collect();
                    PublishedChange::Set { sha256, changed_sources }
                };
                std::future::ready(match event {
                    Ok(WatchEvent::Init) => Some(PublishedChange::Begin),
                    Ok(WatchEvent::InitApply(found) | WatchEvent::Apply(found)) => Some(set(&|| {
                        (found.name_any(), found.annotations().get(CHANGED_SOURCES_ANNOTATION).cloned())
                    })),
                    Ok(WatchEvent::InitDone) => Some(PublishedChange::Done),
                    Ok(WatchEvent::Delete(found)) => Some(PublishedChange::Gone { sha256: found.name_any() }),
                    Err(error) => {
                        warn!(error = %root_cause(&error), "published profiles cannot be watched");
                        None
                    }
                })
            })
            .boxed()
    }

    /// Every guard and the labels of every namespace, then each change.
    pub(super) fn guards(&self) -> BoxStream<'static, GuardChange> {
        guard_changes(self.client.clone()).boxed()
    }

    /// What is published under a name; none if there is no such object.
    pub(super) async fn profile(&self, sha256: &str) -> Result<Option<PublishedText>, kube::Error> {
        let found = self.profiles().get_opt(sha256).await?;
        Ok(found.map(|found| {
            let text = |pointer: &str| found.data.pointer(pointer).and_then(Value::as_str);
            PublishedText {
                profile: text("/spec/profile").unwrap_or_default().to_owned(),
                baseline: text("/spec/baseline").map(str::to_owned),
            }
        }))
    }

    /// The node this agent is on.
    pub(super) async fn node(&self) -> Result<Option<Node>, kube::Error> {
        Api::<Node>::all(self.client.clone()).get_opt(&self.node).await
    }

    /// Puts labels on the node.
    pub(super) async fn label(
        &self,
        labels: &std::collections::BTreeMap<String, String>,
    ) -> Result<(), kube::Error> {
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        Api::<Node>::all(self.client.clone()).patch(&self.node, &params, &patch).await.map(drop)
    }

    /// Takes the start-up taint from the node, if it has it, and leaves the others.
    pub(super) async fn lift_taint(&self) -> Result<bool, kube::Error> {
        let Some(node) = self.node().await? else { return Ok(false) };
        let Some(taints) = without_taint(&node) else { return Ok(false) };
        // A taint that is added meanwhile must not be lost: the version makes the server reject the write.
        let patch = json!({"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": taints}});
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        Api::<Node>::all(self.client.clone()).patch(&self.node, &params, &Patch::Merge(patch)).await?;
        Ok(true)
    }

    /// Writes the status of the node's report.
    pub(super) async fn write_report(&self, status: &Value) -> Result<(), kube::Error> {
        write_report(&self.client, &self.node, FIELD_MANAGER, status).await
    }

    /// Records an event on a pod that is never joined with another one: a pod can differ in more than one check.
    pub(super) async fn record_pod_event(&self, pod: &PodKey, reason: &str, note: String) {
        let regarding = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(pod.namespace.clone()),
            name: Some(pod.name.clone()),
            uid: Some(pod.uid.clone()),
            ..ObjectReference::default()
        };
        self.record(&regarding, reason, note).await;
    }

    /// Records an event on the node that is never joined with another one.
    pub(super) async fn record_on_node(&self, uid: &str, reason: &str, note: String) {
        let regarding = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(self.node.clone()),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        };
        self.record(&regarding, reason, note).await;
    }

    async fn record(&self, regarding: &ObjectReference, reason: &str, mut note: String) {
        // The API takes no longer ones.
        while note.len() > 1000 {
            note.pop();
        }
        let event = Event {
            type_: EventType::Warning,
            reason: reason.to_owned(),
            note: Some(note),
            action: "Verifying".to_owned(),
            secondary: None,
        };
        // A recorder joins what has the same reason, whatever its note: a new one has nothing to join with.
        let reporter = Reporter { controller: FIELD_MANAGER.to_owned(), instance: Some(self.node.clone()) };
        let recorder = Recorder::new(self.client.clone(), reporter);
        if let Err(error) = recorder.publish(&event, regarding).await {
            // An event that is lost is also in the report.
            debug!(error = %root_cause(&error), "failed to record an event");
        }
    }
}

/// Writes the part of a status that one component has to report; the object is made if it is not there, and goes with the node.
pub(crate) async fn write_report(
    client: &Client,
    node: &str,
    manager: &str,
    status: &Value,
) -> Result<(), kube::Error> {
    let reports: Api<DynamicObject> =
        Api::all_with(client.clone(), &resource("NodeSecurityReport", "nodesecurityreports"));
    let apply = async || {
        let report = json!({"apiVersion": format!("{GROUP}/{VERSION}"), "kind": "NodeSecurityReport",
            "metadata": {"name": node}, "status": status});
        let params = PatchParams::apply(manager).force();
        reports.patch_status(node, &params, &Patch::Apply(report)).await.map(drop)
    };
    match apply().await {
        Err(kube::Error::Api(answer)) if answer.code == 404 => {}
        result => return result,
    }
    let mut report = json!({"apiVersion": format!("{GROUP}/{VERSION}"), "kind": "NodeSecurityReport",
        "metadata": {"name": node}});
    let owner = Api::<Node>::all(client.clone()).get_opt(node).await?;
    if let Some(uid) = owner.and_then(|owner| owner.metadata.uid) {
        report["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}]);
    }
    let report = serde_json::from_value(report).map_err(kube::Error::SerdeError)?;
    match reports.create(&PostParams::default(), &report).await {
        Err(kube::Error::Api(answer)) if answer.code == 409 => {}
        result => drop(result?),
    }
    apply().await
}

/// The node's taints without ours; `None` if it does not have ours.
fn without_taint(node: &Node) -> Option<Vec<Value>> {
    let taints = node.spec.as_ref()?.taints.as_ref()?;
    taints.iter().find(|taint| taint.key == NOT_READY_TAINT)?;
    let others = taints.iter().filter(|taint| taint.key != NOT_READY_TAINT);
    Some(others.filter_map(|taint| serde_json::to_value(taint).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_taint_is_lifted() {
        let node = |taints: Value| -> Node {
            serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": {"taints": taints}})).unwrap()
        };
        let ours = json!({"key": NOT_READY_TAINT, "effect": "NoSchedule"});
        let other = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"});
        assert_eq!(without_taint(&node(json!([ours, other]))), Some(vec![other.clone()]));
        assert_eq!(without_taint(&node(json!([ours]))), Some(vec![]));
        assert_eq!(without_taint(&node(json!([other]))), None);
        assert_eq!(without_taint(&node(Value::Null)), None);
    }
}
