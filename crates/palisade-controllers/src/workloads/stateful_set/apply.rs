//! Makes the plan true: creates and deletes pods of StatefulSets with their claims, keeps their revisions, and writes the status.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;

use super::{
    plan::{Observed, PodStep},
    pods::{claim_name, claims, owned_claim, pod},
};
use crate::{
    api::ApiError,
    workloads::{
        context::{CLAIMS, Claim, Context, unreadable},
        events::{About, MANAGER},
        kind::STATEFUL_SET,
        meta::Key,
        object::Object,
        pod::Pod,
        revisions::{self, HASH},
    },
};

/// Runs the controller, and never returns.
pub async fn run(context: Arc<Context>) {
    context.follow_owners(STATEFUL_SET).await;
    let context = &context;
    context.work(|key| async move { sync(context, &key).await }).await;
}

async fn sync(context: &Context, key: &Key) -> Result<Option<Duration>, ApiError> {
    let Some(set) = context.mirrors.stateful_sets.get(key) else { return Ok(None) };
    let set = &*set;
    let about = STATEFUL_SET.about(&set.meta);
    let selector = set.selector();
    let claim = Claim { about, selector: &selector };
    // A pod whose name is not one of this StatefulSet is not adopted.
    context.claim_pods_if(claim, None, |pod| super::pods::ordinal(set, pod).is_some()).await?;
    let known = revisions::claim(context, claim).await?;
    let update = revisions::current(context, STATEFUL_SET, set, &known).await?;
    let known = context.mirrors.revisions.controlled_by(&set.meta.uid);
    let named = |name: &str| known.iter().find(|revision| &*revision.meta.name == name).cloned();
    let current = named(set.text("/status/currentRevision")).unwrap_or_else(|| update.clone());
    let now = Timestamp::now();
    let pods = context.mirrors.pods.controlled_by(&set.meta.uid);
    let pods: Vec<&Pod> = pods.iter().map(AsRef::as_ref).collect();
    let observed = Observed::of(set, &pods, &current.meta.name, &update.meta.name, now);
    let mut result = retain(context, set, &observed).await;
    for step in observed.steps() {
        let done = match step {
            PodStep::Create { ordinal, is_updated } => {
                let revision = if is_updated { &update } else { &current };
                create(context, about, set, revision, ordinal).await
            }
            PodStep::Delete(pod) => delete(context, about, pod).await,
            PodStep::Label(pod, change) => context.patch_pod(pod, &change).await,
            PodStep::Claim(ordinal) => create_claims(context, about, set, ordinal).await,
        };
        result = result.and(done);
    }
    let pods = context.mirrors.pods.controlled_by(&set.meta.uid);
    let pods: Vec<&Pod> = pods.iter().map(AsRef::as_ref).collect();
    let (status, again) = Observed::of(set, &pods, &current.meta.name, &update.meta.name, now).status();
    context.write_status(STATEFUL_SET, set, status).await?;
    result?;
    let mut live: BTreeSet<&str> = pods.iter().filter_map(|pod| pod.meta.label(HASH)).collect();
    live.extend([&*current.meta.name, &*update.meta.name]);
    revisions::delete(context, &revisions::expired(set, &known, &live)).await?;
    Ok(again.and_then(|again| Duration::try_from(again).ok()))
}

async fn create(
    context: &Context,
    about: About<'_>,
    set: &Object,
    revision: &Object,
    ordinal: i64,
) -> Result<(), ApiError> {
    create_claims(context, about, set, ordinal).await?;
    let name = format!("{}-{ordinal}", set.meta.name);
    let place = format!("Pod {name} in StatefulSet {}", set.meta.name);
    match context.create_pod(&set.meta.namespace, &pod(set, revision, ordinal)).await {
        Ok(_) => {
            context.recorder.normal(about, "SuccessfulCreate", &format!("create {place} successful")).await;
            Ok(())
        }
        // Its namespace is being deleted.
        Err(error) if error.is_terminating() => Ok(()),
        Err(error) => {
            let text = format!("create {place} failed error: {error}");
            context.recorder.warning(about, "FailedCreate", &text).await;
            Err(error)
        }
    }
}

async fn delete(context: &Context, about: About<'_>, pod: &Pod) -> Result<(), ApiError> {
    let place = format!("Pod {} in StatefulSet {}", pod.meta.name, about.meta.name);
    let deleted = context.delete_pod(pod).await;
    match &deleted {
        Ok(()) => {
            context.recorder.normal(about, "SuccessfulDelete", &format!("delete {place} successful")).await;
        }
        Err(error) => {
            let text = format!("delete {place} failed error: {error}");
            context.recorder.warning(about, "FailedDelete", &text).await;
        }
    }
    deleted
}

/// Creates the claims of an ordinal that are missing.
async fn create_claims(
    context: &Context,
    about: About<'_>,
    set: &Object,
    ordinal: i64,
) -> Result<(), ApiError> {
    for wanted in claims(set, ordinal) {
        let name = wanted["metadata"]["name"].as_str().unwrap_or_default();
        if context.mirrors.claims.get(&Key::new(&set.meta.namespace, name)).is_some() {
            continue;
        }
        let place = format!("Claim {name} Pod {}-{ordinal} in StatefulSet {}", set.meta.name, set.meta.name);
        match context.api.create(&CLAIMS.collection(Some(&set.meta.namespace)), MANAGER, &wanted).await {
            Ok(made) => {
                context.mirrors.claims.put(Object::of(made).map_err(unreadable)?);
                context.recorder.normal(about, "SuccessfulCreate", &format!("create {place} success")).await;
            }
            Err(error) if error.is_already_exists() || error.is_terminating() => {}
            Err(error) => {
                let text = format!("create {place} failed error: {error}");
                context.recorder.warning(about, "FailedCreate", &text).await;
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Writes the owners of claims as the retention policy wants them.
async fn retain(context: &Context, set: &Object, observed: &Observed<'_>) -> Result<(), ApiError> {
    let condemned =
        observed.condemned.iter().filter_map(|pod| Some((super::pods::ordinal(set, pod)?, *pod, true)));
    for (ordinal, pod, is_condemned) in
        observed.replicas().map(|(ordinal, pod)| (ordinal, pod, false)).chain(condemned)
    {
        for template in set.list("/spec/volumeClaimTemplates") {
            let key = Key::new(&set.meta.namespace, &claim_name(set, template, ordinal));
            let Some(claim) = context.mirrors.claims.get(&key).filter(|claim| !claim.meta.is_deleting())
            else {
                continue;
            };
            if let Some(changed) = owned_claim(set, &claim, pod, is_condemned) {
                let path = CLAIMS.object(Some(&key.namespace), &key.name);
                context.replace(&context.mirrors.claims, &path, &changed).await?;
            }
        }
    }
    Ok(())
}
