//! Finished Jobs are deleted when their time to live is over.
//!
//! Implements: "Automatic Cleanup for Finished Jobs", <https://kubernetes.io/docs/concepts/workloads/controllers/ttlafterfinished/>.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::plan::{finish_time, is_finished};
use crate::{
    api::ApiError,
    workloads::{
        context::{Context, JOBS},
        meta::Key,
        object::Object,
    },
};

/// How long a Job may stay; zero or less if it is to be deleted. Pure.
#[must_use]
pub fn left(job: &Object, now: Timestamp) -> Option<SignedDuration> {
    let ttl = job.int("/spec/ttlSecondsAfterFinished")?;
    if !is_finished(job) || job.meta.is_deleting() {
        return None;
    }
    Some(SignedDuration::from_secs(ttl) - now.duration_since(finish_time(job)?))
}

/// Runs the controller, and never returns.
pub async fn run(context: Arc<Context>) {
    let queue = context.queue.clone();
    context.mirrors.jobs.on_change(move |_, after| {
        if let Some(job) = after.filter(|job| left(job, Timestamp::now()).is_some()) {
            queue.add(job.meta.key());
        }
    });
    context.mirrors.synced().await;
    for job in context.mirrors.jobs.all() {
        context.queue.add(job.meta.key());
    }
    let context = &context;
    context.work(|key| async move { sync(context, &key).await }).await;
}

async fn sync(context: &Context, key: &Key) -> Result<Option<Duration>, ApiError> {
    let Some(job) = context.mirrors.jobs.get(key) else { return Ok(None) };
    let Some(left) = left(&job, Timestamp::now()) else { return Ok(None) };
    if left.is_positive() {
        return Ok(Duration::try_from(left).ok());
    }
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground",
        "preconditions": {"uid": job.meta.uid, "resourceVersion": job.meta.revision.to_string()}});
    match context.api.delete_with(&JOBS.object(Some(&key.namespace), &key.name), &options).await {
        Ok(_) => Ok(None),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::left;
    use crate::workloads::object::Object;

    #[test]
    fn only_finished_jobs_with_a_time_to_live_end() {
        let finished =
            json!([{"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        for (case, ttl, conditions, expected) in [
            ("no time to live", json!(null), finished.clone(), None),
            ("not finished", json!(60), json!([]), None),
            ("in time", json!(60), finished.clone(), Some(20)),
            ("over", json!(10), finished, Some(-30)),
        ] {
            let job = json!({"metadata": {}, "spec": {"ttlSecondsAfterFinished": ttl}, "status": {"conditions": conditions}});
            let found = left(&Object::of(job).unwrap(), "2026-01-01T00:00:40Z".parse().unwrap());
            assert_eq!(found.map(|left| left.as_secs()), expected, "{case}");
        }
    }
}
