//! Writes the status of PodDisruptionBudgets.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use palisade_base::label_selector::LabelSelector;

use super::plan::{ExpectedScale, needs_scale, status};
use crate::{
    api::ApiError,
    workloads::{
        context::{Context, PDBS},
        events::About,
        meta::{Key, Meta},
        object::{Object, is_equal},
        pod::Pod,
    },
};

/// Whether a budget selects a pod. A selector without requirements selects every pod, and none selects none.
fn selects(budget: &Object, selector: &LabelSelector, pod: &Meta) -> bool {
    budget.at("/spec/selector").is_object() && pod.is_selected_by(selector)
}

/// Runs the controller, and never returns.
pub async fn run(context: Arc<Context>) {
    let queue = context.queue.clone();
    context.mirrors.budgets.on_change(move |before, after| {
        if let Some(budget) = after.or(before) {
            queue.add(budget.meta.key());
        }
    });
    let (queue, mirrors) = (context.queue.clone(), Arc::downgrade(&context.mirrors));
    context.mirrors.pods.on_change(move |before, after| {
        let (Some(pod), Some(mirrors)) = (after.or(before), mirrors.upgrade()) else { return };
        for budget in mirrors.budgets.in_namespace(&pod.meta.namespace) {
            let selector = budget.selector();
            if [before, after].into_iter().flatten().any(|pod| selects(&budget, &selector, &pod.meta)) {
                queue.add(budget.meta.key());
            }
        }
    });
    // The size of an owner counts, not only its pods.
    let sizes =
        |mirror: fn(&crate::workloads::context::Mirrors) -> &crate::workloads::mirror::Mirror<Object>| {
            let (queue, mirrors) = (context.queue.clone(), Arc::downgrade(&context.mirrors));
            mirror(&context.mirrors).on_change(move |before, after| {
                let size = |object: Option<&Object>| object.map(Object::replicas);
                let (Some(owner), Some(mirrors)) = (after.or(before), mirrors.upgrade()) else { return };
                if size(before) != size(after) {
                    for budget in mirrors.budgets.in_namespace(&owner.meta.namespace) {
                        queue.add(budget.meta.key());
                    }
                }
            });
        };
    sizes(|mirrors| &mirrors.deployments);
    sizes(|mirrors| &mirrors.replica_sets);
    sizes(|mirrors| &mirrors.replication_controllers);
    sizes(|mirrors| &mirrors.stateful_sets);
    context.mirrors.synced().await;
    for budget in context.mirrors.budgets.all() {
        context.queue.add(budget.meta.key());
    }
    let context = &context;
    context.work(|key| async move { sync(context, &key).await }).await;
}

async fn sync(context: &Context, key: &Key) -> Result<Option<Duration>, ApiError> {
    let Some(budget) = context.mirrors.budgets.get(key) else { return Ok(None) };
    let budget = &*budget;
    let about = About { api_version: "policy/v1", kind: "PodDisruptionBudget", meta: &budget.meta };
    let selector = budget.selector();
    let mut pods = context.mirrors.pods.in_namespace(&key.namespace);
    pods.retain(|pod| selects(budget, &selector, &pod.meta) && !pod.is_finished());
    let pods: Vec<&Pod> = pods.iter().map(AsRef::as_ref).collect();
    if pods.is_empty() {
        context.recorder.normal(about, "NoPods", "No matching pods found").await;
    }
    let scale = expected_scale(context, &pods);
    match &scale {
        _ if !needs_scale(budget) => {}
        ExpectedScale::Known(_, unmanaged) if !unmanaged.is_empty() => {
            let text = "Pods selected by this PodDisruptionBudget were found to be unmanaged. As a result, the status of the PDB cannot be \
                        calculated correctly, which may result in undefined behavior. To account for these pods please set \
                        \".spec.minAvailable\" field of the PDB to an integer value.";
            context.recorder.warning(about, "UnmanagedPods", text).await;
        }
        ExpectedScale::Unknown(why) => {
            let text = format!("Failed to calculate the number of expected pods: {why}");
            context.recorder.warning(about, "CalculateExpectedPodCountFailed", &text).await;
        }
        ExpectedScale::Known(..) => {}
    }
    let found = status(budget, &pods, &scale, Timestamp::now());
    for pod in &found.not_deleted {
        let text = format!(
            "Pod {}/{pod} was expected by PDB {}/{} to be deleted but it wasn't",
            key.namespace, key.namespace, key.name
        );
        context.recorder.warning(about, "NotDeleted", &text).await;
    }
    if !is_equal(&found.status, budget.at("/status")) {
        let path = format!("{}/status", PDBS.object(Some(&key.namespace), &key.name));
        context.replace(&context.mirrors.budgets, &path, &budget.with_status(found.status)).await?;
    }
    Ok(found.again.and_then(|again| Duration::try_from(again).ok()))
}

/// How many pods the owners of these pods want, each owner once.
fn expected_scale(context: &Context, pods: &[&Pod]) -> ExpectedScale {
    let (mut seen, mut sum, mut unmanaged) = (BTreeSet::new(), 0, Vec::new());
    for pod in pods {
        let Some(owner) = pod.meta.controller() else {
            unmanaged.push(pod.meta.name.to_string());
            continue;
        };
        let key = Key::new(&pod.meta.namespace, &owner.name);
        let mirrors = &context.mirrors;
        let found = match &*owner.kind {
            "ReplicaSet" => mirrors.replica_sets.get(&key).map(|set| {
                let parent = set.meta.controller().filter(|parent| &*parent.kind == "Deployment");
                let parent = parent.map(|parent| Key::new(&pod.meta.namespace, &parent.name));
                parent.and_then(|parent| mirrors.deployments.get(&parent)).unwrap_or(set)
            }),
            "ReplicationController" => mirrors.replication_controllers.get(&key),
            "StatefulSet" => mirrors.stateful_sets.get(&key),
            _ => None,
        };
        let Some(found) = found else {
            return ExpectedScale::Unknown(format!("found no controllers for pod \"{}\"", pod.meta.name));
        };
        if seen.insert(found.meta.uid.clone()) {
            sum += found.replicas();
        }
    }
    ExpectedScale::Known(sum, unmanaged)
}
