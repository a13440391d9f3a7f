//! Makes the plan true: creates and deletes pods of DaemonSets, keeps their revisions, and writes the status.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use futures::future::join_all;
use jiff::Timestamp;

use super::{
    plan::{DaemonChange, by_node, ended, manage, pod, status},
    rollout::roll,
};
use crate::{
    api::ApiError,
    workloads::{
        context::{Claim, Context},
        events::About,
        kind::DAEMON_SET,
        meta::Key,
        object::Object,
        pod::Pod,
        revisions::{self, HASH},
    },
};

/// At most so many pods are made or deleted at a time.
const BURST: usize = 250;
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_mins(15);

/// When pods that failed may be replaced, by DaemonSet and node: a kubelet that rejects a pod rejects the next one too.
#[derive(Debug, Default)]
struct FailedPods(Mutex<HashMap<Place, (Instant, Duration)>>);

/// The uid of a DaemonSet, and a node.
type Place = (Box<str>, Box<str>);

impl FailedPods {
    /// Whether a failed pod may be deleted now, or how long that takes.
    fn may_go(&self, set: &str, node: &str) -> Result<(), Duration> {
        let now = Instant::now();
        let mut known = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        known.retain(|_, (at, wait)| now < *at + LONGEST + *wait);
        let entry = known.entry((set.into(), node.into()));
        let (at, wait) = entry.or_insert((now, Duration::ZERO));
        let left = (*at + *wait).saturating_duration_since(now);
        if !left.is_zero() {
            return Err(left);
        }
        *wait = (*wait * 2).clamp(FIRST, LONGEST);
        *at = now;
        Ok(())
    }
}

/// Runs the controller, and never returns.
pub async fn run(context: Arc<Context>) {
    let (queue, mirrors) = (context.queue.clone(), Arc::downgrade(&context.mirrors));
    context.mirrors.nodes.on_change(move |before, after| {
        // Its heartbeats change nothing.
        let matters =
            |node: Option<&Object>| node.map(|node| (node.meta.labels.clone(), node.at("/spec").clone()));
        let Some(mirrors) = mirrors.upgrade().filter(|_| matters(before) != matters(after)) else { return };
        for set in mirrors.daemon_sets.all() {
            queue.add(set.meta.key());
        }
    });
    context.follow_owners(DAEMON_SET).await;
    let (context, failed) = (&context, &FailedPods::default());
    context.work(|key| async move { sync(context, failed, &key).await }).await;
}

async fn sync(context: &Context, failed: &FailedPods, key: &Key) -> Result<Option<Duration>, ApiError> {
    let Some(set) = context.mirrors.daemon_sets.get(key) else { return Ok(None) };
    let set = &*set;
    let about = DAEMON_SET.about(&set.meta);
    let selector = set.selector();
    if selector.is_empty() {
        let text = "This daemon set is selecting all pods. A non-empty selector is required.";
        context.recorder.warning(about, "SelectingAll", text).await;
        return Ok(None);
    }
    let claim = Claim { about, selector: &selector };
    context.claim_pods(claim, None).await?;
    if set.meta.is_deleting() {
        return Ok(None);
    }
    let known = revisions::claim(context, claim).await?;
    let current = revisions::current(context, DAEMON_SET, set, &known).await?;
    let hash = current.meta.label(HASH).unwrap_or(&current.meta.name);
    let nodes = context.mirrors.nodes.all();
    let nodes: Vec<&Object> = nodes.iter().map(AsRef::as_ref).collect();
    let pods = context.mirrors.pods.controlled_by(&set.meta.uid);
    let pods: Vec<&Pod> = pods.iter().map(AsRef::as_ref).collect();
    let now = Timestamp::now();
    let mut change = manage(set, &nodes, &by_node(&pods), hash, now);
    let mut again = Vec::new();
    for (pod, node) in std::mem::take(&mut change.ended) {
        if let Err(wait) = failed.may_go(&set.meta.uid, node) {
            again.push(wait);
            continue;
        }
        let (is_warning, reason, text) = ended(pod, node);
        if is_warning {
            context.recorder.warning(about, reason, &text).await;
        } else {
            context.recorder.normal(about, reason, &text).await;
        }
        change.delete.push(pod);
    }
    let is_steady = change.create.is_empty() && change.delete.is_empty();
    let mut result = make(context, about, set, hash, &change).await;
    if is_steady && set.text("/spec/updateStrategy/type") == "RollingUpdate" {
        let step = roll(set, &nodes, &by_node(&pods), hash, now);
        result = make(context, about, set, hash, &step).await;
    }
    let pods = context.mirrors.pods.controlled_by(&set.meta.uid);
    let pods: Vec<&Pod> = pods.iter().map(AsRef::as_ref).collect();
    let (wanted, next) = status(set, &nodes, &by_node(&pods), hash, now);
    context.write_status(DAEMON_SET, set, wanted).await?;
    result?;
    let mut live: BTreeSet<&str> = pods.iter().filter_map(|pod| pod.meta.label(HASH)).collect();
    live.insert(hash);
    let known = context.mirrors.revisions.controlled_by(&set.meta.uid);
    revisions::delete(context, &revisions::expired(set, &known, &live)).await?;
    again.extend(next.and_then(|next| Duration::try_from(next).ok()));
    Ok(again.into_iter().min())
}

async fn make(
    context: &Context,
    about: About<'_>,
    set: &Object,
    hash: &str,
    change: &DaemonChange<'_>,
) -> Result<(), ApiError> {
    let create: Vec<&str> = change.create.iter().copied().take(BURST).collect();
    let make = |at: usize| pod(set, hash, create.get(at).copied().unwrap_or_default());
    let (_, created) = context.create_pods(about, create.len(), make).await;
    let deleting = change.delete.iter().take(BURST).map(|pod| context.delete_pod_of(about, pod));
    let deleted: Result<(), ApiError> = join_all(deleting).await.into_iter().collect();
    created.and(deleted)
}
