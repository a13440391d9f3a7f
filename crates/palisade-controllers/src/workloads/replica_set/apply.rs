//! Makes the plan true: adopts, creates and deletes pods, and writes the status.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::join_all;
use jiff::Timestamp;
use palisade_base::label_selector::LabelSelector;
use serde_json::Value;

use super::plan::{ReplicaChange, change, pod_of, status};
use crate::{
    api::{ApiError, Resource},
    workloads::{
        context::{Claim, Context, Mirrors, REPLICA_SETS, REPLICATION_CONTROLLERS},
        events::About,
        meta::{Key, Meta, controller_reference},
        mirror::Mirror,
        object::{Object, is_equal},
        pod::Pod,
    },
};

/// One of the two kinds.
#[derive(Debug, Clone, Copy)]
pub struct Flavor {
    api_version: &'static str,
    kind: &'static str,
    resource: Resource,
    mirror: fn(&Mirrors) -> &Mirror<Object>,
}

/// ReplicaSets.
pub const REPLICA_SET: Flavor = Flavor {
    api_version: "apps/v1",
    kind: "ReplicaSet",
    resource: REPLICA_SETS,
    mirror: |mirrors| &mirrors.replica_sets,
};

/// ReplicationControllers.
pub const REPLICATION_CONTROLLER: Flavor = Flavor {
    api_version: "v1",
    kind: "ReplicationController",
    resource: REPLICATION_CONTROLLERS,
    mirror: |mirrors| &mirrors.replication_controllers,
};

impl Flavor {
    fn selector(&self, set: &Object) -> LabelSelector {
        if self.kind == "ReplicaSet" {
            set.selector()
        } else {
            LabelSelector::from_labels(set.at("/spec/selector"))
        }
    }
}

/// Runs the controller of one kind, and never returns.
pub async fn run(context: Arc<Context>, flavor: Flavor) {
    let queue = context.queue.clone();
    (flavor.mirror)(&context.mirrors).on_change(move |before, after| {
        if let Some(set) = after.or(before) {
            queue.add(set.meta.key());
        }
    });
    let (queue, mirrors) = (context.queue.clone(), Arc::downgrade(&context.mirrors));
    context.mirrors.pods.on_change(move |before, after| {
        for pod in [before, after].into_iter().flatten() {
            if let Some(owner) = pod.meta.controller() {
                if &*owner.kind == flavor.kind {
                    queue.add(Key::new(&pod.meta.namespace, &owner.name));
                }
            } else if !pod.meta.is_deleting()
                && !pod.meta.labels.is_empty()
                && let Some(mirrors) = mirrors.upgrade()
            {
                // An orphan: who may adopt it?
                for set in (flavor.mirror)(&mirrors).in_namespace(&pod.meta.namespace) {
                    if pod.meta.is_selected_by(&flavor.selector(&set)) {
                        queue.add(set.meta.key());
                    }
                }
            }
        }
    });
    context.mirrors.synced().await;
    for set in (flavor.mirror)(&context.mirrors).all() {
        context.queue.add(set.meta.key());
    }
    let context = &context;
    context.work(|key| async move { sync(context, flavor, &key).await }).await;
}

async fn sync(context: &Context, flavor: Flavor, key: &Key) -> Result<Option<Duration>, ApiError> {
    let mirror = (flavor.mirror)(&context.mirrors);
    let Some(set) = mirror.get(key) else { return Ok(None) };
    let about = About { api_version: flavor.api_version, kind: flavor.kind, meta: &set.meta };
    let selector = flavor.selector(&set);
    claim(context, Claim { about, selector: &selector }).await?;
    let mut failure = None;
    let mut failed = None;
    if !set.meta.is_deleting()
        && let Err((reason, error)) = manage(context, &set, about).await
    {
        failure = Some((reason, error.to_string()));
        failed = Some(error);
    }
    let pods = context.mirrors.pods.controlled_by(&set.meta.uid);
    let pods: Vec<&Pod> = pods.iter().map(AsRef::as_ref).collect();
    let labels = LabelSelector::from_labels(set.at("/spec/template/metadata/labels"));
    let (wanted, again) = status(&set, &pods, &labels, failure, Timestamp::now());
    if !is_equal(&wanted, set.at("/status")) {
        let path = format!("{}/status", flavor.resource.object(Some(&key.namespace), &key.name));
        context.replace(mirror, &path, &set.with_status(wanted)).await?;
    }
    match failed {
        Some(error) => Err(error),
        None => Ok(again.and_then(|again| Duration::try_from(again).ok())),
    }
}

/// Adopts orphans that fit and releases pods that fit no longer.
async fn claim(context: &Context, claim: Claim<'_>) -> Result<(), ApiError> {
    let owner = claim.about.meta;
    let mut pods = context.mirrors.pods.controlled_by(&owner.uid);
    pods.extend(context.mirrors.pods.without_controller(&owner.namespace));
    for pod in pods.iter().filter(|pod| pod.is_active() || pod.meta.is_controlled_by(&owner.uid)) {
        let Some(change) = claim.change(&pod.meta) else { continue };
        match context.patch_pod(pod, &change).await {
            Ok(()) => {}
            // It is gone, or another pod has its name.
            Err(error) if error.is_not_found() || error.is_conflict() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Creates or deletes pods; what failed, with the reason of the condition.
async fn manage(context: &Context, set: &Object, about: About<'_>) -> Result<(), (&'static str, ApiError)> {
    let pods = context.mirrors.pods.controlled_by(&set.meta.uid);
    let pods: Vec<&Pod> = pods.iter().map(AsRef::as_ref).collect();
    match change(set.replicas(), &pods, &related(context, &set.meta), Timestamp::now()) {
        ReplicaChange::None => Ok(()),
        ReplicaChange::Create(count) => {
            let reference = controller_reference(about.api_version, about.kind, about.meta);
            let pod = pod_of(set.at("/spec/template"), &set.meta, &reference);
            create(context, about, &pod, count).await.map_err(|error| ("FailedCreate", error))
        }
        ReplicaChange::Delete(surplus) => {
            let deleting = surplus.into_iter().map(|pod| async move {
                match context.delete_pod(pod).await {
                    Ok(()) => {
                        let text = format!("Deleted pod: {}", pod.meta.name);
                        context.recorder.normal(about, "SuccessfulDelete", &text).await;
                        Ok(())
                    }
                    Err(error) => {
                        let text = format!("Error deleting: {error}");
                        context.recorder.warning(about, "FailedDelete", &text).await;
                        Err(error)
                    }
                }
            });
            let deleted: Result<(), ApiError> = join_all(deleting).await.into_iter().collect();
            deleted.map_err(|error| ("FailedDelete", error))
        }
    }
}

/// Creates pods in batches that double, so that what is rejected is rejected once and not a hundred times.
pub(crate) async fn create(
    context: &Context,
    about: About<'_>,
    pod: &Value,
    count: usize,
) -> Result<(), ApiError> {
    let (mut left, mut batch) = (count, 1);
    while left > 0 {
        let size = batch.min(left);
        let creating = (0..size).map(|_| async {
            match context.create_pod(&about.meta.namespace, pod).await {
                Ok(made) => {
                    let text = format!("Created pod: {}", made.meta.name);
                    context.recorder.normal(about, "SuccessfulCreate", &text).await;
                    Ok(())
                }
                // Its owner is going away with the namespace.
                Err(error) if error.is_terminating() => Ok(()),
                Err(error) => {
                    let text = format!("Error creating: {error}");
                    context.recorder.warning(about, "FailedCreate", &text).await;
                    Err(error)
                }
            }
        });
        join_all(creating).await.into_iter().collect::<Result<(), ApiError>>()?;
        left -= size;
        batch *= 2;
    }
    Ok(())
}

/// Active pods by node, of the ReplicaSets with the same controller.
fn related(context: &Context, set: &Meta) -> BTreeMap<Box<str>, usize> {
    let mut nodes = BTreeMap::new();
    let uids: Vec<Box<str>> = match set.controller() {
        None => vec![set.uid.clone()],
        Some(owner) => {
            let siblings = context.mirrors.replica_sets.controlled_by(&owner.uid);
            siblings.iter().map(|sibling| sibling.meta.uid.clone()).collect()
        }
    };
    for uid in uids {
        for pod in context.mirrors.pods.controlled_by(&uid).iter().filter(|pod| pod.is_active()) {
            *nodes.entry(pod.node.clone()).or_default() += 1;
        }
    }
    nodes
}
