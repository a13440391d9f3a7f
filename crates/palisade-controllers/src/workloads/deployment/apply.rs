//! Makes the plan true: creates, scales and deletes ReplicaSets, and writes revisions and status.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    plan::{
        Bounds, DESIRED, MAX, REVISION, Scale, Sets, annotations, expired, is_scaled, new_set, roll, share,
    },
    status::{deadline, is_complete, set_condition, status},
};
use crate::{
    api::{ApiError, Patch},
    workloads::{
        context::{Claim, Context, DEPLOYMENTS, REPLICA_SETS, unreadable},
        events::{About, MANAGER},
        meta::Key,
        object::{Object, is_equal},
    },
};

/// Runs the controller, and never returns.
pub async fn run(context: Arc<Context>) {
    let queue = context.queue.clone();
    context.mirrors.deployments.on_change(move |before, after| {
        if let Some(deployment) = after.or(before) {
            queue.add(deployment.meta.key());
        }
    });
    let (queue, mirrors) = (context.queue.clone(), Arc::downgrade(&context.mirrors));
    context.mirrors.replica_sets.on_change(move |before, after| {
        for set in [before, after].into_iter().flatten() {
            if let Some(owner) = set.meta.controller() {
                if &*owner.kind == "Deployment" {
                    queue.add(Key::new(&set.meta.namespace, &owner.name));
                }
            } else if let Some(mirrors) = mirrors.upgrade() {
                for deployment in mirrors.deployments.in_namespace(&set.meta.namespace) {
                    if set.meta.is_selected_by(&deployment.selector()) {
                        queue.add(deployment.meta.key());
                    }
                }
            }
        }
    });
    // Recreate waits until the last old pod is gone.
    let (queue, mirrors) = (context.queue.clone(), Arc::downgrade(&context.mirrors));
    context.mirrors.pods.on_change(move |before, after| {
        let (Some(pod), None, Some(mirrors)) = (before, after, mirrors.upgrade()) else { return };
        let Some(owner) = pod.meta.controller().filter(|owner| &*owner.kind == "ReplicaSet") else { return };
        let set = mirrors.replica_sets.get(&Key::new(&pod.meta.namespace, &owner.name));
        let owner = set.as_ref().and_then(|set| set.meta.controller());
        if let Some(owner) = owner.filter(|owner| &*owner.kind == "Deployment") {
            queue.add(Key::new(&pod.meta.namespace, &owner.name));
        }
    });
    context.mirrors.synced().await;
    for deployment in context.mirrors.deployments.all() {
        context.queue.add(deployment.meta.key());
    }
    let context = &context;
    context.work(|key| async move { sync(context, &key).await }).await;
}

async fn sync(context: &Context, key: &Key) -> Result<Option<Duration>, ApiError> {
    let Some(deployment) = context.mirrors.deployments.get(key) else { return Ok(None) };
    let deployment = &*deployment;
    let about = About { api_version: "apps/v1", kind: "Deployment", meta: &deployment.meta };
    let selector = deployment.selector();
    if selector.is_empty() {
        let text = "This deployment is selecting all pods. A non-empty selector is required.";
        context.recorder.warning(about, "SelectingAll", text).await;
        return Ok(None);
    }
    claim(context, Claim { about, selector: &selector }).await?;
    let owned = context.mirrors.replica_sets.controlled_by(&deployment.meta.uid);
    let owned: Vec<&Object> = owned.iter().map(AsRef::as_ref).collect();
    let sets = Sets::of(deployment, &owned);
    if deployment.meta.is_deleting() {
        return write_status(context, deployment, &sets, false).await;
    }
    if let Some(conditions) = paused(deployment) {
        return begin(context, deployment, None, conditions).await;
    }
    if let Some(new) = sets.new {
        let revision = sets.next_revision();
        if let Some(changed) = annotations(deployment, new, revision) {
            let path = REPLICA_SETS.object(Some(&key.namespace), &new.meta.name);
            context.replace(&context.mirrors.replica_sets, &path, &changed).await?;
            context.queue.add(key.clone());
            return Ok(None);
        }
        let revision = new.meta.annotation(REVISION);
        let mut conditions = deployment.list("/status/conditions").to_vec();
        let is_known = conditions.iter().any(|one| one["type"] == "Progressing");
        if deadline(deployment).is_some() && !is_known {
            let text = format!("Found new replica set \"{}\"", new.meta.name);
            set_condition(
                &mut conditions,
                "Progressing",
                ("True", "FoundNewReplicaSet", &text),
                Timestamp::now(),
            );
        }
        if revision != deployment.meta.annotation(REVISION) || (deadline(deployment).is_some() && !is_known) {
            return begin(context, deployment, revision, conditions).await;
        }
    }
    let is_paused = deployment.at("/spec/paused") == true;
    if is_paused || is_scaled(deployment, &sets) {
        for one in share(deployment, &sets) {
            scale(context, about, deployment, one).await?;
        }
        if is_paused {
            clean(context, deployment, &sets).await?;
        }
        return write_status(context, deployment, &sets, false).await;
    }
    let is_recreated = deployment.text("/spec/strategy/type") == "Recreate";
    let mut steps = Vec::new();
    if is_recreated {
        steps.extend(sets.old.iter().filter(|set| set.replicas() > 0).map(|set| Scale { set, to: 0 }));
        let has_pods = |set: &&Object| {
            let pods = context.mirrors.pods.controlled_by(&set.meta.uid);
            set.count("/status/replicas") > 0 || pods.iter().any(|pod| !pod.is_finished())
        };
        if steps.is_empty() && sets.old.iter().any(has_pods) {
            return write_status(context, deployment, &sets, true).await;
        }
    }
    let Some(new) = sets.new else {
        if steps.is_empty() {
            return create(context, about, deployment, &sets).await;
        }
        for step in steps {
            scale(context, about, deployment, step).await?;
        }
        return write_status(context, deployment, &sets, true).await;
    };
    if !is_recreated {
        steps = roll(deployment, &sets);
    } else if steps.is_empty() && new.replicas() != deployment.replicas() {
        steps.push(Scale { set: new, to: deployment.replicas() });
    }
    for step in &steps {
        scale(context, about, deployment, *step).await?;
    }
    if steps.is_empty() && is_complete(deployment) {
        clean(context, deployment, &sets).await?;
    }
    write_status(context, deployment, &sets, true).await
}

/// Adopts ReplicaSets that fit and releases those that fit no longer.
async fn claim(context: &Context, claim: Claim<'_>) -> Result<(), ApiError> {
    let owner = claim.about.meta;
    let mut sets = context.mirrors.replica_sets.controlled_by(&owner.uid);
    sets.extend(context.mirrors.replica_sets.without_controller(&owner.namespace));
    for set in sets {
        let Some(change) = claim.change(&set.meta) else { continue };
        let path = REPLICA_SETS.object(Some(&set.meta.namespace), &set.meta.name);
        match context.api.patch(&path, MANAGER, Patch::Strategic, &change).await {
            Ok(changed) => {
                context.mirrors.replica_sets.put(Object::of(changed).map_err(unreadable)?);
            }
            // It is gone, or another one has its name.
            Err(error) if error.is_not_found() || error.is_conflict() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The conditions after the Deployment was paused or resumed: a pause is not a lack of progress.
fn paused(deployment: &Object) -> Option<Vec<Value>> {
    deadline(deployment)?;
    let mut conditions = deployment.list("/status/conditions").to_vec();
    let known = conditions.iter().find(|one| one["type"] == "Progressing");
    let reason = known.and_then(|known| known["reason"].as_str()).unwrap_or_default();
    let change = match (deployment.at("/spec/paused") == true, reason) {
        (_, "ProgressDeadlineExceeded") | (true, "DeploymentPaused") => return None,
        (true, _) => ("Unknown", "DeploymentPaused", "Deployment is paused"),
        (false, "DeploymentPaused") => ("Unknown", "DeploymentResumed", "Deployment is resumed"),
        (false, _) => return None,
    };
    set_condition(&mut conditions, "Progressing", change, Timestamp::now());
    Some(conditions)
}

/// Writes the revision and conditions with which a rollout goes on.
async fn begin(
    context: &Context,
    deployment: &Object,
    revision: Option<&str>,
    conditions: Vec<Value>,
) -> Result<Option<Duration>, ApiError> {
    let mut object = deployment.value.clone();
    object["status"]["conditions"] = conditions.into();
    if let Some(revision) = revision {
        object["metadata"]["annotations"][REVISION] = json!(revision);
    }
    put_status(context, deployment, &object).await?;
    context.queue.add(deployment.meta.key());
    Ok(None)
}

async fn put_status(context: &Context, deployment: &Object, object: &Value) -> Result<(), ApiError> {
    let Key { namespace, name } = deployment.meta.key();
    let path = format!("{}/status", DEPLOYMENTS.object(Some(&namespace), &name));
    context.replace(&context.mirrors.deployments, &path, object).await?;
    Ok(())
}

async fn write_status(
    context: &Context,
    deployment: &Object,
    sets: &Sets<'_>,
    is_rollout: bool,
) -> Result<Option<Duration>, ApiError> {
    let (wanted, again) = status(deployment, sets, is_rollout, Timestamp::now());
    if !is_equal(&wanted, deployment.at("/status")) {
        put_status(context, deployment, &deployment.with_status(wanted)).await?;
    }
    Ok(again.and_then(|again| Duration::try_from(again).ok()))
}

/// Creates the new ReplicaSet. A name that is taken by another template is a collision, which changes the hash.
async fn create(
    context: &Context,
    about: About<'_>,
    deployment: &Object,
    sets: &Sets<'_>,
) -> Result<Option<Duration>, ApiError> {
    let set = new_set(deployment, sets);
    let name = set["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let mut conditions = deployment.list("/status/conditions").to_vec();
    let made = context.api.create(&REPLICA_SETS.collection(Some(&about.meta.namespace)), MANAGER, &set).await;
    let made = match made {
        Ok(made) => context.mirrors.replica_sets.put(Object::of(made).map_err(unreadable)?),
        Err(error) if error.is_terminating() => return Ok(None),
        Err(error) if error.is_already_exists() => {
            let taken = context.mirrors.replica_sets.get(&Key::new(&about.meta.namespace, &name));
            // One of its own with this template comes with the next event.
            let is_own = |taken: &Arc<Object>| {
                taken.meta.is_controlled_by(&about.meta.uid) && Sets::of(deployment, &[taken]).new.is_some()
            };
            if taken.as_ref().is_some_and(|taken| !is_own(taken)) {
                let mut object = deployment.value.clone();
                object["status"]["collisionCount"] = json!(deployment.count("/status/collisionCount") + 1);
                put_status(context, deployment, &object).await?;
            }
            return Err(error);
        }
        Err(error) => {
            let text = format!("Failed to create new replica set \"{name}\": {error}");
            if deadline(deployment).is_some() {
                let is = ("False", "ReplicaSetCreateError", text.as_str());
                set_condition(&mut conditions, "Progressing", is, Timestamp::now());
                let mut object = deployment.value.clone();
                object["status"]["conditions"] = conditions.into();
                put_status(context, deployment, &object).await?;
            }
            context.recorder.warning(about, "ReplicaSetCreateError", &text).await;
            return Err(error);
        }
    };
    if made.replicas() > 0 {
        let text = format!("Scaled up replica set {name} from 0 to {}", made.replicas());
        context.recorder.normal(about, "ScalingReplicaSet", &text).await;
    }
    if deadline(deployment).is_some() {
        let text = format!("Created new replica set \"{name}\"");
        set_condition(
            &mut conditions,
            "Progressing",
            ("True", "NewReplicaSetCreated", &text),
            Timestamp::now(),
        );
    }
    begin(context, deployment, made.meta.annotation(REVISION), conditions).await
}

async fn scale(
    context: &Context,
    about: About<'_>,
    deployment: &Object,
    step: Scale<'_>,
) -> Result<(), ApiError> {
    let Scale { set, to } = step;
    let wanted = deployment.replicas();
    let most = wanted + Bounds::of(deployment).surge;
    let mut object = set.value.clone();
    object["spec"]["replicas"] = json!(to);
    object["metadata"]["annotations"][DESIRED] = json!(wanted.to_string());
    object["metadata"]["annotations"][MAX] = json!(most.to_string());
    if object == set.value {
        return Ok(());
    }
    let path = REPLICA_SETS.object(Some(&set.meta.namespace), &set.meta.name);
    context.replace(&context.mirrors.replica_sets, &path, &object).await?;
    let from = set.replicas();
    if from != to {
        let direction = if from < to { "up" } else { "down" };
        let text = format!("Scaled {direction} replica set {} from {from} to {to}", set.meta.name);
        context.recorder.normal(about, "ScalingReplicaSet", &text).await;
    }
    Ok(())
}

/// Deletes the ReplicaSets beyond the history limit.
async fn clean(context: &Context, deployment: &Object, sets: &Sets<'_>) -> Result<(), ApiError> {
    for set in expired(deployment, sets) {
        let path = REPLICA_SETS.object(Some(&set.meta.namespace), &set.meta.name);
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
            "preconditions": {"uid": set.meta.uid}});
        match context.api.delete_with(&path, &options).await {
            Ok(_) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
