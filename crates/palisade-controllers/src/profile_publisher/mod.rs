//! Brings seccomp profiles from ConfigMaps to where nodes find them: one `PublishedProfile` for each hash.
//!
//! Implements: ConfigMap profiles with a stock kubelet. The webhook writes nothing while it
//! reviews: what is published follows from pods that exist, and comes from the ConfigMap in a pod's own namespace. This
//! controller makes what is missing, counts the pods that refer to each profile, reports which ConfigMaps hold another one by
//! now (from a watch, and at an interval in case there is none), and removes what no pod has referred to for a grace period.
//! The time is written on the object, so that a restart forgets nothing. There are no finalizers: nothing waits for us.
//!
//! A profile is checked before it is published, whatever the webhook answered: a pod can name a hash that no webhook has seen.
//!
//! Leaves to others: writing files (the node agent).

pub mod apply;
pub mod bounds;
pub mod observe;
pub mod plan;
mod source_watch;

use std::{collections::BTreeSet, future::Future, pin::Pin, time::Duration};

use futures::{Stream, StreamExt as _};
use jiff::Timestamp;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event},
    },
};
use palisade_base::causes::root_cause;
use serde_json::Value;
use tokio::time::Instant;
use tracing::warn;

use self::{
    apply::Writer,
    bounds::ProfileLimits,
    observe::{Index, SourceKey},
    plan::PublishStep,
    source_watch::{SourceWatch, Touched},
};

/// How the publisher works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// How long a profile stays that no pod refers to.
    pub grace_period: Duration,
    /// How often ConfigMaps are compared with what pods run with, besides on a watch event.
    pub resync: Duration,
    /// How much is published.
    pub limits: ProfileLimits,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            grace_period: Duration::from_hours(1),
            resync: Duration::from_mins(1),
            limits: ProfileLimits::default(),
        }
    }
}

/// Changes that come together are answered together.
const GATHER: Duration = Duration::from_millis(50);
/// After a failure, the first and the longest wait.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// Publishes until `shutdown`.
pub async fn run(client: Client, options: Options, shutdown: impl Future<Output = ()>) {
    let mut publisher = Publisher {
        index: Index::default(),
        listed: Index::default(),
        touched: BTreeSet::new(),
        writer: Writer::new(client.clone()),
        options,
    };
    let mut sources = SourceWatch::new(client.clone());
    let mut pods = changes(&client, &apply::pods());
    let mut profiles = changes(&client, &apply::published_profiles());
    let (mut seen_pods, mut seen_profiles) = (false, false);
    let mut wait = RETRY.0;
    let mut next_read = Instant::now();
    let mut wake_at = Instant::now() + options.resync;
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => return,
            Some(change) = pods.next() => {
                seen_pods |= publisher.take_pod(change);
                wake_at = wake_at.min(Instant::now() + GATHER);
            }
            Some(change) = profiles.next() => {
                seen_profiles |= publisher.take_profile(change);
                wake_at = wake_at.min(Instant::now() + GATHER);
            }
            touched = sources.next() => {
                if publisher.take_touched(&touched) {
                    wake_at = wake_at.min(Instant::now() + GATHER);
                }
            }
            () = tokio::time::sleep_until(wake_at) => {
                // Before both lists are known, everything would look unreferenced.
                if !(seen_pods && seen_profiles) {
                    wake_at = Instant::now() + options.resync;
                    continue;
                }
                let everything = next_read <= Instant::now();
                sources.cover(&publisher.index.source_namespaces());
                let Round { again, failed, progress } = publisher.reconcile(everything).await;
                if failed {
                    // What could not be read is among what may have changed and is dropped.
                    next_read = Instant::now();
                } else if everything {
                    next_read = Instant::now() + options.resync;
                }
                let pause = if failed { wait } else { again.unwrap_or(options.resync).min(options.resync) };
                // A server that does some of it is not the one to be patient with.
                wait = if failed && !progress { (wait * 2).min(RETRY.1) } else { RETRY.0 };
                wake_at = Instant::now() + pause;
            }
        }
    }
}

/// How a round went.
struct Round {
    /// When something falls due.
    again: Option<Duration>,
    /// Something could not be done.
    failed: bool,
    /// Something could.
    progress: bool,
}

struct Publisher {
    index: Index,
    /// A list on its way: it replaces what is known when it is whole.
    listed: Index,
    /// Sources that may hold something else by now.
    touched: BTreeSet<SourceKey>,
    writer: Writer,
    options: Options,
}

impl Publisher {
    /// One round: look, decide, write.
    async fn reconcile(&mut self, read_everything: bool) -> Round {
        let (mut failed, mut progress) = (false, false);
        let mut note = |what: &str, result: Result<(), kube::Error>| match result {
            Ok(()) => progress = true,
            Err(error) => {
                let error = root_cause(&error);
                warn!(%error, "{what}");
                failed = true;
            }
        };
        let touched = std::mem::take(&mut self.touched);
        let is_stale = |source: &SourceKey| read_everything || touched.contains(source);
        match self.writer.read_sources(&mut self.index, is_stale).await {
            Ok(0) => {}
            read => note("sources of profiles not read", read.map(drop)),
        }
        let now = Timestamp::now();
        let limits = self.options.limits;
        let plan = plan::plan(&self.index, now, self.options.grace_period, &limits);
        self.writer.begin(&self.index);
        let mut still_referenced = None;
        if plan.steps.iter().any(|step| matches!(step, PublishStep::Delete { .. })) {
            match self.writer.references_now().await {
                Ok(found) => still_referenced = Some(found),
                Err(error) => note("pods not listed", Err(error)),
            }
        }
        for step in &plan.steps {
            if let PublishStep::Delete { sha256, .. } = step
                && still_referenced.as_ref().is_none_or(|found| found.contains(sha256))
            {
                continue;
            }
            note("profile not published", self.writer.apply(step, &self.index, &limits).await);
        }
        self.writer.forget_others(&self.index);
        let again = plan.again_at.and_then(|at| Duration::try_from(at.duration_since(now)).ok());
        Round { again: again.map(|wait| wait + GATHER), failed, progress }
    }

    /// Takes note of what may have changed; whether pods name any of it.
    fn take_touched(&mut self, touched: &Touched) -> bool {
        let is_touched = |source: &SourceKey| match touched {
            Touched::One { namespace, name } => source.namespace == *namespace && source.config_map == *name,
            Touched::AllIn(namespace) => namespace.as_ref().is_none_or(|own| source.namespace == *own),
        };
        let sources: Vec<SourceKey> =
            self.index.named_sources().filter(|source| is_touched(source)).cloned().collect();
        let any = !sources.is_empty();
        self.touched.extend(sources);
        any
    }

    fn take_pod(&mut self, change: Change) -> bool {
        match change {
            Change::Begin => self.listed.pods.clear(),
            Change::Listed(pod) => self.listed.set_pod(&pod),
            Change::Done => {
                self.index.pods = std::mem::take(&mut self.listed.pods);
                return true;
            }
            Change::Set(pod) => self.index.set_pod(&pod),
            Change::Gone(pod) => self.index.remove_pod(&pod),
        }
        false
    }

    fn take_profile(&mut self, change: Change) -> bool {
        match change {
            Change::Begin => self.listed.profiles.clear(),
            Change::Listed(profile) => self.listed.set_profile(&profile),
            Change::Done => {
                self.index.profiles = std::mem::take(&mut self.listed.profiles);
                return true;
            }
            Change::Set(profile) => self.index.set_profile(&profile),
            Change::Gone(profile) => self.index.remove_profile(&profile),
        }
        false
    }
}

enum Change {
    Begin,
    Listed(Value),
    Done,
    Set(Value),
    Gone(Value),
}

/// Everything there is, then each change; whatever goes wrong is tried again.
fn changes(client: &Client, resource: &ApiResource) -> Pin<Box<dyn Stream<Item = Change> + Send>> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    let plural = resource.plural.clone();
    let mut logged = None;
    let plain = |object: &DynamicObject| serde_json::to_value(object).unwrap_or(Value::Null);
    watcher::watcher(api, watcher::Config::default())
        .default_backoff()
        .filter_map(move |event| {
            let change = match event {
                Ok(Event::Init) => Some(Change::Begin),
                Ok(Event::InitApply(object)) => Some(Change::Listed(plain(&object))),
                Ok(Event::InitDone) => {
                    logged = None;
                    Some(Change::Done)
                }
                Ok(Event::Apply(object)) => Some(Change::Set(plain(&object))),
                Ok(Event::Delete(object)) => Some(Change::Gone(plain(&object))),
                Err(error) => {
                    // Once is enough while it stays the same: a kind may be missing for good.
                    let text = error.to_string();
                    if logged.as_ref() != Some(&text) {
                        warn!(error = text, plural, "cannot be watched yet");
                        logged = Some(text);
                    }
                    None
                }
            };
            std::future::ready(change)
        })
        .boxed()
}
