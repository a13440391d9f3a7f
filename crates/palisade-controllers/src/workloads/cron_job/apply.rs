//! Makes the plan true: starts and deletes the Jobs of CronJobs, and writes the status.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::plan::{Due, Note, due, expired, job, observe, reference, set_active};
use crate::{
    api::ApiError,
    workloads::{
        context::{CRON_JOBS, Context, JOBS, unreadable},
        events::{About, MANAGER},
        meta::Key,
        object::{Object, is_equal, list, stamp},
    },
};

/// Runs the controller, and never returns.
pub async fn run(context: Arc<Context>) {
    let queue = context.queue.clone();
    context.mirrors.cron_jobs.on_change(move |before, after| {
        if let Some(cron_job) = after.or(before) {
            queue.add(cron_job.meta.key());
        }
    });
    let queue = context.queue.clone();
    context.mirrors.jobs.on_change(move |before, after| {
        let owner = after.or(before).and_then(|job| Some((&job.meta.namespace, job.meta.controller()?)));
        if let Some((namespace, owner)) = owner.filter(|(_, owner)| &*owner.kind == "CronJob") {
            queue.add(Key::new(namespace, &owner.name));
        }
    });
    context.mirrors.synced().await;
    for cron_job in context.mirrors.cron_jobs.all() {
        context.queue.add(cron_job.meta.key());
    }
    let context = &context;
    context.work(|key| async move { sync(context, &key).await }).await;
}

async fn sync(context: &Context, key: &Key) -> Result<Option<Duration>, ApiError> {
    let Some(cron_job) = context.mirrors.cron_jobs.get(key) else { return Ok(None) };
    let cron_job = &*cron_job;
    let about = About { api_version: "batch/v1", kind: "CronJob", meta: &cron_job.meta };
    let jobs = context.mirrors.jobs.controlled_by(&cron_job.meta.uid);
    let jobs: Vec<&Object> = jobs.iter().map(AsRef::as_ref).collect();
    let (mut status, notes) = observe(cron_job, &jobs);
    record(context, about, &notes).await;
    let (due, notes, again) = due(cron_job, &status, Timestamp::now());
    record(context, about, &notes).await;
    let result = start(context, about, cron_job, due, &mut status).await;
    for job in expired(cron_job, &jobs) {
        delete(context, about, job).await?;
    }
    let status = Value::Object(status);
    if !is_equal(&status, cron_job.at("/status")) {
        let path = format!("{}/status", CRON_JOBS.object(Some(&key.namespace), &key.name));
        context.replace(&context.mirrors.cron_jobs, &path, &cron_job.with_status(status)).await?;
    }
    result?;
    Ok(again.and_then(|again| Duration::try_from(again).ok()))
}

async fn record(context: &Context, about: About<'_>, notes: &[Note]) {
    for note in notes {
        if note.is_warning {
            context.recorder.warning(about, note.reason, &note.message).await;
        } else {
            context.recorder.normal(about, note.reason, &note.message).await;
        }
    }
}

/// Starts the Job that is due. Its name is the lock: there is one for each moment.
async fn start(
    context: &Context,
    about: About<'_>,
    cron_job: &Object,
    due: Due,
    status: &mut Map<String, Value>,
) -> Result<(), ApiError> {
    let moment = match due {
        Due::Nothing | Due::Wait => return Ok(()),
        Due::Start(moment) => moment,
        Due::Replace(moment) => {
            for active in list(status.get("active").unwrap_or(&Value::Null)).to_vec() {
                let name = active["name"].as_str().unwrap_or_default();
                if let Some(job) = context.mirrors.jobs.get(&Key::new(&about.meta.namespace, name)) {
                    delete(context, about, &job).await?;
                }
            }
            set_active(status, Vec::new());
            moment
        }
    };
    let wanted = job(cron_job, moment);
    let made = match context.api.create(&JOBS.collection(Some(&about.meta.namespace)), MANAGER, &wanted).await
    {
        Ok(made) => {
            let made = context.mirrors.jobs.put(Object::of(made).map_err(unreadable)?);
            let text = format!("Created job {}", made.meta.name);
            context.recorder.normal(about, "SuccessfulCreate", &text).await;
            made
        }
        Err(error) if error.is_terminating() => return Ok(()),
        Err(error) if error.is_already_exists() => {
            // It was started, and the status was not written.
            let name = wanted["metadata"]["name"].as_str().unwrap_or_default();
            let known = context.mirrors.jobs.get(&Key::new(&about.meta.namespace, name));
            match known.filter(|job| job.meta.is_controlled_by(&about.meta.uid)) {
                Some(job) => job,
                None => return Ok(()),
            }
        }
        Err(error) => {
            let text = format!("Error creating job: {error}");
            context.recorder.warning(about, "FailedCreate", &text).await;
            return Err(error);
        }
    };
    let mut active = list(status.get("active").unwrap_or(&Value::Null)).to_vec();
    active.push(reference(&made));
    set_active(status, active);
    status.insert("lastScheduleTime".to_owned(), json!(stamp(moment)));
    Ok(())
}

async fn delete(context: &Context, about: About<'_>, job: &Object) -> Result<(), ApiError> {
    if job.meta.is_deleting() {
        return Ok(());
    }
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
        "preconditions": {"uid": job.meta.uid}});
    let path = JOBS.object(Some(&job.meta.namespace), &job.meta.name);
    match context.api.delete_with(&path, &options).await {
        Err(error) if !error.is_not_found() => {
            let text = format!("Deleted job: {error}");
            context.recorder.warning(about, "FailedDelete", &text).await;
            Err(error)
        }
        _ => {
            context.mirrors.jobs.forget(&job.meta);
            let text = format!("Deleted job {}", job.meta.name);
            context.recorder.normal(about, "SuccessfulDelete", &text).await;
            Ok(())
        }
    }
}
