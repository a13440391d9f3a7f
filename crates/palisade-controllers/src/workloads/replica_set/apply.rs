//! Makes the plan true: adopts, creates and deletes pods, and writes the status.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::join_all;
use jiff::Timestamp;
use palisade_base::label_selector::LabelSelector;

use super::plan::{ReplicaChange, change, pod_of, status};
use crate::{
    api::ApiError,
    workloads::{
        context::{Claim, Context},
        events::About,
        kind::Kind,
        meta::{Key, Meta, controller_reference},
        object::Object,
        pod::Pod,
    },
};

/// Runs the controller of one of the two kinds, and never returns.
pub async fn run(context: Arc<Context>, kind: Kind) {
    context.follow_owners(kind).await;
    let context = &context;
    context.work(|key| async move { sync(context, kind, &key).await }).await;
}

async fn sync(context: &Context, kind: Kind, key: &Key) -> Result<Option<Duration>, ApiError> {
    let Some(set) = (kind.mirror)(&context.mirrors).get(key) else { return Ok(None) };
    let about = kind.about(&set.meta);
    let selector = (kind.selector)(&set);
    context.claim_pods(Claim { about, selector: &selector }, None).await?;
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
    context.write_status(kind, &set, wanted).await?;
    match failed {
        Some(error) => Err(error),
        None => Ok(again.and_then(|again| Duration::try_from(again).ok())),
    }
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
            let (_, created) = context.create_pods(about, count, |_| pod.clone()).await;
            created.map_err(|error| ("FailedCreate", error))
        }
        ReplicaChange::Delete(surplus) => {
            let deleting = surplus.into_iter().map(|pod| context.delete_pod_of(about, pod));
            let deleted: Result<(), ApiError> = join_all(deleting).await.into_iter().collect();
            deleted.map_err(|error| ("FailedDelete", error))
        }
    }
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
