//! Makes the plan true: creates, deletes and counts the pods of Jobs, and writes the status.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::join_all;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    account::{finish, settle},
    plan::{Changed, Failures, Observed, PodChange, is_finished},
    pods::{TRACKING, is_tracked, pod},
};
use crate::{
    api::ApiError,
    workloads::{
        context::{Claim, Context, JOBS},
        events::About,
        kind::JOB,
        meta::Key,
        object::{Object, is_equal},
        pod::Pod,
    },
};

/// The controllers of other programs are named in `spec.managedBy`.
const OWN_NAME: &str = "kubernetes.io/job-controller";

/// What is remembered about Jobs: their failures, which no status has.
type Record = Mutex<HashMap<Key, Failures>>;

/// Runs the controller, and never returns.
pub async fn run(context: Arc<Context>) {
    context.follow_owners(JOB).await;
    // Pods whose Job is gone wait for their finalizer to be removed.
    for pod in context.mirrors.pods.all().iter().filter(|pod| is_tracked(pod)) {
        if let Some(owner) = pod.meta.controller() {
            context.queue.add(Key::new(&pod.meta.namespace, &owner.name));
        }
    }
    let (context, record) = (&context, &Record::default());
    context.work(|key| async move { sync(context, record, &key).await }).await;
}

async fn sync(context: &Context, record: &Record, key: &Key) -> Result<Option<Duration>, ApiError> {
    let found = context.mirrors.jobs.get(key);
    release_orphans(context, key, found.as_deref()).await?;
    let Some(job) = found.filter(|job| !is_finished(job)) else {
        lock(record).remove(key);
        return Ok(None);
    };
    let job = &*job;
    if !matches!(job.text("/spec/managedBy"), "" | OWN_NAME) {
        return Ok(None);
    }
    let about = JOB.about(&job.meta);
    let selector = job.selector();
    context.claim_pods(Claim { about, selector: &selector }, Some(TRACKING)).await?;
    let pods = context.mirrors.pods.controlled_by(&job.meta.uid);
    let known = lock(record).get(key).cloned().unwrap_or_default();
    let now = Timestamp::now();
    let observed = Observed::of(job, pods.iter().map(AsRef::as_ref).collect(), &known, now);
    let (change, again) = observed.change();
    let (changed, failed) = make(context, about, job, &change).await;
    let account = observed.account(changed);
    let written = write(context, job, &account.status).await?;
    lock(record).insert(key.clone(), observed.failures.clone());
    match account.suspension {
        Some(true) => context.recorder.normal(about, "Suspended", "Job suspended").await,
        Some(false) => context.recorder.normal(about, "Resumed", "Job resumed").await,
        None => {}
    }
    let (mut with_finalizer, mut kept) = (account.with_finalizer, Ok(()));
    let releasing = account.release.iter().map(|pod| async move { (pod, untrack(context, pod).await) });
    for (pod, result) in join_all(releasing).await {
        match result {
            Ok(()) => {
                with_finalizer.remove(&*pod.meta.uid);
            }
            Err(error) => kept = Err(error),
        }
    }
    let job = written.as_deref().unwrap_or(job);
    let mut status = account.status;
    settle(&mut status, &with_finalizer);
    let ending = account.ending.filter(|_| kept.is_ok());
    let is_over = ending.as_ref().is_some_and(|ending| finish(&mut status, ending, now));
    write(context, job, &status).await?;
    kept?;
    if let Some(ending) = ending.filter(|_| is_over) {
        lock(record).remove(key);
        if ending.is_success() {
            let succeeded = status.get("succeeded").and_then(Value::as_i64);
            if job.int("/spec/completions").is_some_and(|wanted| succeeded > Some(wanted)) {
                let text = "Too many succeeded pods running after completion count reached";
                context.recorder.warning(about, "TooManySucceededPods", text).await;
            }
            context.recorder.normal(about, "Completed", "Job completed").await;
        } else {
            context.recorder.warning(about, &ending.reason, &ending.message).await;
        }
    }
    match failed {
        Some(error) => Err(error),
        None => Ok(again.and_then(|again| Duration::try_from(again).ok())),
    }
}

/// Creates or deletes pods; how far that went, and what failed.
async fn make(
    context: &Context,
    about: About<'_>,
    job: &Object,
    change: &PodChange<'_>,
) -> (Changed, Option<ApiError>) {
    match change {
        PodChange::None => (Changed::default(), None),
        PodChange::Create(pods) => {
            let make = |at: usize| {
                let (index, replaced) = pods.get(at).copied().unwrap_or_default();
                pod(job, index, replaced)
            };
            let (created, result) = context.create_pods(about, pods.len(), make).await;
            (Changed { created, ..Changed::default() }, result.err())
        }
        PodChange::Remove(pods) => delete(context, about, pods, false).await,
        PodChange::End(pods) => delete(context, about, pods, true).await,
    }
}

async fn delete(
    context: &Context,
    about: About<'_>,
    pods: &[&Pod],
    is_counted: bool,
) -> (Changed, Option<ApiError>) {
    let deleting = pods.iter().map(|pod| async move {
        if !is_counted {
            untrack(context, pod).await?;
        }
        context.delete_pod_of(about, pod).await
    });
    let (mut changed, mut failed) = (Changed::default(), None);
    for (pod, result) in pods.iter().zip(join_all(deleting).await) {
        match result {
            Ok(()) => {
                changed.deleted += 1;
                changed.deleted_ready += i64::from(pod.is_ready);
            }
            Err(error) => failed = Some(error),
        }
    }
    (changed, failed)
}

/// Takes the finalizer from a pod.
async fn untrack(context: &Context, pod: &Pod) -> Result<(), ApiError> {
    if !is_tracked(pod) {
        return Ok(());
    }
    let change = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [TRACKING]}});
    match context.patch_pod(pod, &change).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

/// Pods of a Job that is gone or finished lose their finalizer.
async fn release_orphans(context: &Context, key: &Key, job: Option<&Object>) -> Result<(), ApiError> {
    // One that has started has no orphans of an earlier Job of its name.
    if job.is_some_and(|job| !is_finished(job) && !job.at("/status/startTime").is_null()) {
        return Ok(());
    }
    let is_over = |uid: &str| job.is_none_or(|job| &*job.meta.uid != uid || is_finished(job));
    let pods = context.mirrors.pods.in_namespace(&key.namespace);
    let orphans = pods.iter().filter(|pod| {
        let owner = pod.meta.controller().filter(|owner| &*owner.kind == "Job" && owner.name == key.name);
        is_tracked(pod) && owner.is_some_and(|owner| is_over(&owner.uid))
    });
    join_all(orphans.map(|pod| untrack(context, pod))).await.into_iter().collect()
}

/// Writes the status, if it has changed.
async fn write(
    context: &Context,
    job: &Object,
    status: &Map<String, Value>,
) -> Result<Option<Arc<Object>>, ApiError> {
    let status = Value::Object(status.clone());
    if is_equal(&status, job.at("/status")) {
        return Ok(None);
    }
    let path = format!("{}/status", JOBS.object(Some(&job.meta.namespace), &job.meta.name));
    context.replace(&context.mirrors.jobs, &path, &job.with_status(status)).await.map(Some)
}

fn lock(record: &Record) -> std::sync::MutexGuard<'_, HashMap<Key, Failures>> {
    record.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
