//! Follows nodes with taints and the pods on them, and deletes the pods that are to leave.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use palisade_base::time::rfc3339;
use serde_json::{Value, json};

use super::plan::{Leaving, Schedule, is_tainted, items, plan};
use crate::{
    api::{ApiError, Patch, encoded},
    workloads::{
        context::{Context, PODS},
        events::{About, MANAGER},
        meta::{Key, Meta},
        object::Object,
    },
};

/// When the pods of each node leave.
type Schedules = Mutex<BTreeMap<Key, Schedule>>;

/// Runs the controller, and never returns.
pub async fn run(context: Arc<Context>) {
    let tainted = |node: Option<&Object>| node.is_some_and(|node| is_tainted(&node.value));
    let queue = context.queue.clone();
    context.mirrors.nodes.on_change(move |before, after| {
        if let Some(node) = after.or(before).filter(|_| tainted(before) || tainted(after)) {
            queue.add(node.meta.key());
        }
    });
    let (queue, mirrors) = (context.queue.clone(), Arc::downgrade(&context.mirrors));
    context.mirrors.pods.on_change(move |_, after| {
        let Some(pod) = after.filter(|pod| !pod.node.is_empty()) else { return };
        let key = Key::new("", &pod.node);
        if let Some(mirrors) = mirrors.upgrade()
            && tainted(mirrors.nodes.get(&key).as_deref())
        {
            queue.add(key);
        }
    });
    context.mirrors.synced().await;
    for node in context.mirrors.nodes.all() {
        if is_tainted(&node.value) {
            context.queue.add(node.meta.key());
        }
    }
    let (context, schedules) = (&context, &Schedules::default());
    context.work(|key| async move { sync(context, schedules, &key).await }).await;
}

async fn sync(context: &Context, schedules: &Schedules, key: &Key) -> Result<Option<Duration>, ApiError> {
    let before = schedules.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned();
    let node = context.mirrors.nodes.get(key);
    if before.is_none() && !node.as_ref().is_some_and(|node| is_tainted(&node.value)) {
        return Ok(None);
    }
    let before = before.unwrap_or_default();
    let selected = encoded(&format!("spec.nodeName={}", key.name)).to_string();
    let path = format!("{}?fieldSelector={selected}", PODS.collection(None));
    // The pods are listed and not mirrored: tolerations of all pods are much, and nodes with such a taint are few.
    let pods = context.api.get(&path).await?.unwrap_or_default();
    // A node that is gone has no taint.
    let node = node.map(|node| node.value.clone()).unwrap_or_default();
    let now = Timestamp::now();
    let found = plan(&node, items(&pods), &before, now);
    let next = found.schedule.values().map(|(_, at)| *at).min();
    {
        let mut schedules = schedules.lock().unwrap_or_else(PoisonError::into_inner);
        if found.schedule.is_empty() {
            schedules.remove(key);
        } else {
            schedules.insert(key.clone(), found.schedule);
        }
    }
    for pod in &found.cancelled {
        record(context, pod, "Cancelling deletion of Pod").await;
    }
    let mut failed = None;
    for pod in &found.evicted {
        record(context, pod, "Marking for deletion Pod").await;
        match evict(context, pod, now).await {
            // It was deleted, or made anew, meanwhile.
            Err(error) if error.is_not_found() || error.is_conflict() => {}
            Err(error) => failed = Some(error),
            Ok(()) => {}
        }
    }
    match failed {
        Some(error) => Err(error),
        None => Ok(next.and_then(|at| Duration::try_from(at.duration_since(now)).ok())),
    }
}

async fn record(context: &Context, pod: &Leaving, what: &str) {
    let meta = Meta {
        namespace: pod.namespace.as_str().into(),
        name: pod.name.as_str().into(),
        uid: pod.uid.as_str().into(),
        ..Meta::default()
    };
    let about = About { api_version: "v1", kind: "Pod", meta: &meta };
    let text = format!("{what} {}/{}", pod.namespace, pod.name);
    context.recorder.normal(about, "TaintManagerEviction", &text).await;
}

async fn evict(context: &Context, pod: &Leaving, now: Timestamp) -> Result<(), ApiError> {
    let path = PODS.object(Some(&pod.namespace), &pod.name);
    let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint", "lastProbeTime": Value::Null,
        "lastTransitionTime": rfc3339(now.as_second())});
    let change = json!({"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}});
    match context.api.patch(&format!("{path}/status"), MANAGER, Patch::Strategic, &change).await {
        // Releases without the condition do not let this account write the status.
        Ok(_) | Err(ApiError::Refused { code: 403, .. }) => {}
        Err(error) => return Err(error),
    }
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": pod.uid}});
    context.api.delete_with(&path, &options).await.map(drop)
}
