//! Resources that change while a pod runs: whether the node has them, what is changed in place, and what the status reports.
//!
//! Implements: in-place resize of the kubelet (`pkg/kubelet/allocation`, `doPodResizeAction`), from v1.33 on.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{
    observed::{Instance, Observed},
    plan::Reason,
    resources::linux_resources,
    worker::Life,
};
use crate::{
    cri::proto::{ContainerState, LinuxContainerResources},
    node_object,
    pod::{Container, Resources, RunPod},
};

/// The first release whose kubelets resize pods.
pub(super) const SINCE: u16 = 33;

/// How far a resize has come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resizing {
    /// Why the node does not have what the pod declares.
    pub refused: Option<Reason>,
    /// Containers that do not have yet what the pod declares.
    pub pending: BTreeSet<String>,
    /// Why the runtime did not change the last one.
    pub error: Option<String>,
}

/// What a running container needs to get the resources that it declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    None,
    InPlace,
    Restart,
}

/// Compares what a container has with what it declares.
pub(super) fn change(pod: &RunPod, container: &Container, has: &LinuxContainerResources) -> Change {
    let wanted = linux_resources(pod, container, 0);
    let cpu = (has.cpu_shares, has.cpu_quota.max(0)) != (wanted.cpu_shares, wanted.cpu_quota);
    let memory = has.memory_limit_in_bytes.max(0) != wanted.memory_limit_in_bytes;
    let changes = |resource: &str| cpu && resource == "cpu" || memory && resource == "memory";
    let restarts = container
        .resize_policy
        .iter()
        .any(|policy| policy.restart_policy == "RestartContainer" && changes(&policy.resource_name));
    match (cpu || memory, restarts) {
        (false, _) => Change::None,
        (true, false) => Change::InPlace,
        (true, true) => Change::Restart,
    }
}

/// What each container of a pod declares.
pub(super) fn declared(pod: &RunPod) -> BTreeMap<String, Resources> {
    pod.containers().map(|(_, container)| (container.name.clone(), container.resources.clone())).collect()
}

/// The pod with other resources than it declares. Its security is not read from them.
fn with_resources(pod: &RunPod, resources: &BTreeMap<String, Resources>) -> RunPod {
    let mut pod = pod.clone();
    for container in pod.spec.init_containers.iter_mut().chain(&mut pod.spec.containers) {
        if let Some(known) = resources.get(&container.name) {
            container.resources = known.clone();
        }
    }
    for list in ["initContainers", "containers"] {
        let list = pod.object.pointer_mut(&format!("/spec/{list}")).and_then(Value::as_array_mut);
        for container in list.into_iter().flatten() {
            let name = container.get("name").and_then(Value::as_str).unwrap_or_default();
            if let (Some(resources), Value::Object(fields)) = (resources.get(name), container) {
                fields.insert("resources".to_owned(), amounts(resources).into());
            }
        }
    }
    pod
}

fn amounts(resources: &Resources) -> Map<String, Value> {
    [("limits", &resources.limits), ("requests", &resources.requests)]
        .into_iter()
        .filter(|(_, amounts)| !amounts.is_empty())
        .map(|(field, amounts)| (field.to_owned(), as_object(amounts)))
        .collect()
}

fn as_object(amounts: &BTreeMap<String, Value>) -> Value {
    Value::Object(amounts.iter().map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// The resources of a container's status: those it has, which are those it declares unless a resize is not done.
pub(super) fn report(
    fields: &mut Map<String, Value>,
    container: &Container,
    resizing: &Resizing,
    previous: Option<&Value>,
) {
    if let (true, Some(previous)) = (resizing.pending.contains(&container.name), previous) {
        for field in ["resources", "allocatedResources"] {
            if let Some(value) = previous.get(field) {
                fields.insert(field.to_owned(), value.clone());
            }
        }
        return;
    }
    fields.insert("resources".to_owned(), amounts(&container.resources).into());
    let requests = &container.resources.requests;
    if !requests.is_empty() {
        fields.insert("allocatedResources".to_owned(), as_object(requests));
    }
}

impl Life {
    /// The pod as the node gives it resources: as it declares them, unless a resize does not fit.
    pub(super) async fn allocate(&mut self, pod: &RunPod) -> Option<RunPod> {
        let minor = self.node.config.compat.kubelet.minor();
        let declared = declared(pod);
        let known = declared.iter().all(|(name, resources)| {
            // An ephemeral container that is new has no resources.
            self.allocated
                .get(name)
                .map_or_else(|| resources == &Resources::default(), |has| has == resources)
        });
        if minor < SINCE || self.allocated.is_empty() || known || self.reservation.is_none() {
            self.allocated = declared;
            self.resizing.refused = None;
            return None;
        }
        let read = self.node.source.read_node(&self.node.config.node_name).await;
        // Before its first heartbeat a node is known to itself alone.
        let object = read
            .ok()
            .flatten()
            .unwrap_or_else(|| node_object::node_object(&self.node, true, &[], jiff::Timestamp::now()));
        match self.node.allocations.resize(pod, &object, minor) {
            Ok(()) => {
                self.allocated = declared;
                self.resizing.refused = None;
                None
            }
            Err(refused) => {
                self.resizing.refused = Some(refused);
                Some(with_resources(pod, &self.allocated))
            }
        }
    }

    /// Keeps what running containers have of the node: the runtime reports it, and the node changes it.
    pub(super) fn note_resources(&mut self, pod: &RunPod, observed: &Observed) {
        if self.node.config.compat.kubelet.minor() < SINCE {
            return;
        }
        let running = |run: &&Instance| run.state == ContainerState::Running;
        let known = &mut self.memory.resources;
        known.retain(|id, _| observed.containers.iter().filter(running).any(|run| run.id == *id));
        self.resizing.pending.clear();
        for run in observed.containers.iter().filter(running) {
            let Some((_, container)) = pod.container(&run.name) else { continue };
            let has = known.entry(run.id.clone()).or_insert_with(|| {
                run.resources.clone().unwrap_or_else(|| linux_resources(pod, container, 0))
            });
            if change(pod, container, has) != Change::None {
                self.resizing.pending.insert(run.name.clone());
            }
        }
        if self.resizing.pending.is_empty() {
            self.resizing.error = None;
        }
    }

    /// Changes what a running container has; whether the runtime did.
    pub(super) async fn resize(&mut self, pod: &RunPod, id: &str, name: &str) -> bool {
        let Some((_, container)) = pod.container(name) else { return false };
        let wanted = linux_resources(pod, container, self.node.memory());
        match self.node.runtime.update_container(id, wanted.clone()).await {
            Ok(()) => {
                self.memory.resources.insert(id.to_owned(), wanted);
                true
            }
            Err(error) => {
                tracing::warn!(%error, container = name, "container not resized");
                self.resizing.error = Some(format!("failed to resize container {name}: {error}"));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(resources: &Value, policy: &Value) -> RunPod {
        RunPod::from_object(json!({"metadata": {"name": "p"}, "spec": {"containers":
            [{"name": "c", "image": "i", "resources": resources, "resizePolicy": policy}]}}))
        .unwrap()
    }

    #[test]
    fn changes_in_place_unless_the_policy_restarts() {
        let before = json!({"requests": {"cpu": "100m", "memory": "10Mi"}, "limits": {"cpu": "200m", "memory": "20Mi"}});
        let has = linux_resources(&pod(&before, &json!([])), &pod(&before, &json!([])).spec.containers[0], 0);
        let restart_for = |name: &str| json!([{"resourceName": name, "restartPolicy": "RestartContainer"}]);
        let with = |cpu: &str, memory: &str| json!({"requests": {"cpu": "100m", "memory": "10Mi"}, "limits": {"cpu": cpu, "memory": memory}});
        for (case, resources, policy, expected) in [
            ("the same", before.clone(), json!([]), Change::None),
            ("the same in other words", with("0.2", "20480Ki"), json!([]), Change::None),
            ("more processor", with("300m", "20Mi"), json!([]), Change::InPlace),
            ("less memory", with("200m", "15Mi"), json!([]), Change::InPlace),
            ("memory restarts", with("200m", "15Mi"), restart_for("memory"), Change::Restart),
            ("another restarts", with("300m", "20Mi"), restart_for("memory"), Change::InPlace),
        ] {
            let pod = pod(&resources, &policy);
            assert_eq!(change(&pod, &pod.spec.containers[0], &has), expected, "{case}");
        }
    }

    #[test]
    fn a_pod_that_may_not_grow_keeps_what_it_has() {
        let small = pod(&json!({"requests": {"cpu": "100m"}}), &json!([]));
        let large = pod(&json!({"requests": {"cpu": "4"}}), &json!([]));
        let kept = with_resources(&large, &declared(&small));
        assert_eq!(declared(&kept), declared(&small));
        assert_eq!(kept.object["spec"]["containers"][0]["resources"], json!({"requests": {"cpu": "100m"}}));
    }

    #[test]
    fn reports_what_a_container_has_until_the_resize_is_done() {
        let pod = pod(&json!({"requests": {"cpu": "4"}}), &json!([]));
        let previous = json!({"resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "1"}});
        let container = &pod.spec.containers[0];
        let reported = |pending: bool| {
            let pending = pending.then(|| "c".to_owned()).into_iter().collect();
            let mut fields = Map::new();
            let resizing = Resizing { pending, ..Resizing::default() };
            report(&mut fields, container, &resizing, Some(&previous));
            Value::Object(fields)
        };
        assert_eq!(reported(true), previous);
        let done = json!({"resources": {"requests": {"cpu": "4"}}, "allocatedResources": {"cpu": "4"}});
        assert_eq!(reported(false), done);
    }
}
