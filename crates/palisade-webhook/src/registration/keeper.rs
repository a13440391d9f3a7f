//! Keeps the webhook configurations: created when the webhook is ready, restored when they are edited.
//!
//! Every replica applies the same, so it does not matter which one does. Nothing is registered before reviews can be
//! answered: a webhook that refuses everything because it has just begun would stop the cluster. An authority in a
//! configuration that this replica does not have is kept for the overlap: another replica may serve by it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::Request;
use kube::{
    Api, Client,
    core::{ApiResource, DynamicObject, GroupVersionKind},
    runtime::watcher,
};
use palisade_serve::certificate;
use serde_json::Value;
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::Instant,
};

use super::objects::{Kind, Surroundings, UNINSTALLING, configuration, has_fields};
use crate::{
    calls::{MANAGER, in_words},
    certificates::{Trust, authorities_in},
    facts::{Change, Keep, Status, follow_in},
    metrics::{Metrics, REGISTRATIONS},
    options::Registration,
};

/// An API server that leaves something out of what it was given is not written to again at once.
const PAUSE: Duration = Duration::from_secs(1);
/// Everything is looked at again this often.
const LOOK_EVERY: Duration = Duration::from_mins(1);
/// No more authorities of other replicas than these are kept.
const MOST_OTHERS: usize = 4;

/// Keeps the registration.
pub struct Keeper {
    /// The API server.
    pub client: Client,
    /// How the webhook is registered.
    pub options: Registration,
    /// The webhook's own namespace.
    pub namespace: String,
    /// Whether constraints are in force.
    pub constraints: bool,
    /// The minor version of the API server, once it is known.
    pub minor: watch::Receiver<Option<u16>>,
    /// What the API server shall trust; `None` until there is a certificate to serve.
    pub trust: watch::Receiver<Trust>,
    /// Whether the certificate comes from files: the API server may trust its authority anyway.
    pub foreign: bool,
    /// How long an authority that only other replicas have stays in the configurations.
    pub overlap: Duration,
    /// The authorities that both configurations are seen to hold.
    pub trusted: watch::Sender<BTreeSet<String>>,
    /// Whether the API server, as far as it is seen, can call this replica.
    pub callable: watch::Sender<bool>,
    /// Whether reviews can be answered.
    pub ready: watch::Receiver<bool>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keeper").field("options", &self.options).finish_non_exhaustive()
    }
}

/// What an API server made of what it was given: it may leave out a field that it does not have, or whose feature is
/// switched off, and need not be given it again and again.
struct Accepted {
    wanted: Value,
    webhooks: Value,
}

impl Accepted {
    fn is(&self, wanted: &Value, live: &Value) -> bool {
        self.wanted == *wanted && live["webhooks"] == self.webhooks
    }
}

/// A configuration as the API server has it.
#[derive(Default)]
struct Live {
    object: Mutex<Option<Value>>,
    uninstalled: AtomicBool,
    status: Status,
    changed: Arc<Notify>,
}

impl Live {
    fn set(&self, object: Option<Value>) {
        *self.object.lock().unwrap_or_else(PoisonError::into_inner) = object;
        self.changed.notify_one();
    }

    fn get(&self) -> Option<Value> {
        self.object.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Keep for Live {
    type Item = Value;

    fn read(&self, object: DynamicObject) -> Value {
        serde_json::to_value(object).unwrap_or_default()
    }

    fn take(&self, change: Change<Value>) {
        // The last state of a configuration that is gone shows whether it was removed for good.
        let last = match &change {
            Change::Put(seen) | Change::Gone(seen) => Some(seen),
            Change::All(items) => items.first(),
        };
        if let Some(last) = last {
            let marked = last["metadata"]["annotations"].get(UNINSTALLING).is_some();
            self.uninstalled.store(marked, Ordering::Release);
        }
        self.set(match change {
            Change::All(items) => items.into_iter().next(),
            Change::Put(item) => Some(item),
            Change::Gone(_) => None,
        });
    }

    fn status(&self) -> &Status {
        &self.status
    }
}

/// Authorities in the configurations that this replica does not have, and since when.
#[derive(Default)]
struct Others {
    since: BTreeMap<String, Instant>,
    own: BTreeSet<String>,
}

impl Others {
    /// Those that are still to be kept. What this replica had once and has no longer was replaced on purpose.
    fn keep(&mut self, own: &Trust, live: &BTreeSet<String>, overlap: Duration) -> Vec<String> {
        self.own.extend(own.authorities.iter().cloned());
        self.since.retain(|pem, _| live.contains(pem));
        for pem in live.iter().filter(|pem| !self.own.contains(*pem)) {
            self.since.entry(pem.clone()).or_insert_with(Instant::now);
        }
        self.since
            .iter()
            .filter(|(pem, since)| since.elapsed() < overlap && !self.own.contains(*pem))
            .take(MOST_OTHERS)
            .map(|(pem, _)| pem.clone())
            .collect()
    }
}

/// The authorities of ours that a configuration has in all of its webhooks.
fn trusted_by(object: &Value) -> BTreeSet<String> {
    let now = certificate::now();
    let bundles = object["webhooks"].as_array().into_iter().flatten().map(|webhook| {
        let text = webhook["clientConfig"]["caBundle"].as_str().unwrap_or_default();
        let decoded = BASE64_STANDARD.decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        decoded.map_or_else(BTreeSet::new, |bundle| authorities_in(&bundle, now))
    });
    bundles.reduce(|all, one| all.intersection(&one).cloned().collect()).unwrap_or_default()
}

impl Keeper {
    /// Keeps it until the end of the webhook.
    pub async fn run(mut self) {
        let changed = Arc::new(Notify::new());
        let mut watches = JoinSet::new();
        let mut live =
            Kind::ALL.map(|kind| (kind, self.follow(kind, &changed, &mut watches), None::<Accepted>));
        let mut others = Others::default();
        loop {
            let mut pause = LOOK_EVERY;
            let own = self.trust.borrow_and_update().clone();
            let seen: Vec<BTreeSet<String>> =
                live.iter().filter_map(|(_, live, _)| live.get()).map(|object| trusted_by(&object)).collect();
            let known = live.iter().all(|(_, live, _)| live.status.is_ready());
            let lacks = |signer: &String| seen.iter().any(|trusted| !trusted.contains(signer));
            let callable = known && (self.foreign || !own.signer.as_ref().is_some_and(lacks));
            self.callable.send_if_modified(|current| std::mem::replace(current, callable) != callable);
            let able = self.minor.borrow_and_update().is_some()
                && *self.ready.borrow_and_update()
                && (self.foreign || !own.authorities.is_empty());
            if able {
                let all: BTreeSet<String> = seen.into_iter().flatten().collect();
                let kept = if self.foreign { Vec::new() } else { others.keep(&own, &all, self.overlap) };
                if !kept.is_empty() {
                    pause = pause.min(self.overlap);
                }
                let wanted_trust = own.with(kept);
                if self.correct(&mut live, &wanted_trust).await {
                    let set = wanted_trust.set();
                    self.trusted.send_if_modified(|current| {
                        let changed = *current != set;
                        *current = set;
                        changed
                    });
                } else {
                    pause = pause.min(PAUSE);
                }
            }
            // A closed channel is the end of the webhook.
            let ended = tokio::select! {
                () = tokio::time::sleep(pause) => false,
                () = changed.notified() => false,
                end = self.trust.changed() => end.is_err(),
                end = self.minor.changed() => end.is_err(),
                end = self.ready.changed() => end.is_err(),
            };
            if ended {
                return;
            }
        }
    }

    /// Writes what differs; whether both configurations are as they shall be.
    async fn correct(&self, live: &mut [(Kind, Arc<Live>, Option<Accepted>)], wanted_trust: &Trust) -> bool {
        let mut settled = true;
        for (kind, live, accepted) in live {
            if !live.status.is_ready() {
                settled = false;
                continue;
            }
            if live.uninstalled.load(Ordering::Acquire) {
                tracing::debug!(kind = kind.name(), "uninstalled; not registered again");
                settled = false;
                continue;
            }
            let wanted = self.wanted(*kind, wanted_trust);
            let as_accepted =
                |object: &Value| accepted.as_ref().is_some_and(|accepted| accepted.is(&wanted, object));
            if live.get().is_some_and(|live| has_fields(&live, &wanted) || as_accepted(&live)) {
                continue;
            }
            settled = false;
            match self.apply(*kind, &wanted).await {
                Ok(made) => {
                    *accepted = Some(Accepted { wanted, webhooks: made["webhooks"].clone() });
                    self.metrics.count(&REGISTRATIONS);
                    tracing::info!(kind = kind.name(), name = self.options.name, "registered");
                }
                Err(error) => {
                    let why = in_words(&error);
                    tracing::warn!(kind = kind.name(), why, "cannot register; trying again");
                }
            }
        }
        settled
    }

    fn follow(&self, kind: Kind, changed: &Arc<Notify>, watches: &mut JoinSet<()>) -> Arc<Live> {
        let live = Arc::new(Live { changed: changed.clone(), ..Live::default() });
        let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind.name());
        let resource = ApiResource::from_gvk_with_plural(&gvk, kind.plural());
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let config = watcher::Config::default().fields(&format!("metadata.name={}", self.options.name));
        let kept = live.clone();
        watches.spawn(async move { follow_in(api, config, kind.plural(), kept).await });
        live
    }

    fn wanted(&self, kind: Kind, trust: &Trust) -> Value {
        let around = Surroundings {
            namespace: &self.namespace,
            minor: self.minor.borrow().unwrap_or_default(),
            constraints: self.constraints,
            trust,
        };
        configuration(kind, &self.options, &around)
    }

    async fn apply(&self, kind: Kind, wanted: &Value) -> Result<Value, kube::Error> {
        let (plural, name) = (kind.plural(), &self.options.name);
        let path = format!(
            "/apis/admissionregistration.k8s.io/v1/{plural}/{name}?fieldManager={MANAGER}&force=true"
        );
        let request = Request::patch(path)
            .header("content-type", "application/apply-patch+yaml")
            .body(wanted.to_string().into_bytes())
            .map_err(kube::Error::HttpError)?;
        self.client.request::<Value>(request).await
    }
}
