//! Keeps the webhook configurations: created when the webhook is ready, restored when they are edited.
//!
//! Every replica applies the same, so it does not matter which one does. Nothing is registered before reviews can be
//! answered: a webhook that refuses everything because it has just begun would stop the cluster.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::Request;
use kube::{
    Api, Client,
    core::{ApiResource, DynamicObject, GroupVersionKind},
    runtime::watcher,
};
use serde_json::Value;
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
};

use super::objects::{Kind, Surroundings, configuration, has_fields};
use crate::{
    calls::{MANAGER, in_words},
    certificates::Trust,
    facts::{Change, Keep, Status, follow_in},
    metrics::{Metrics, REGISTRATIONS},
    options::Registration,
};

/// An API server that leaves something out of what it was given is not written to again at once.
const PAUSE: Duration = Duration::from_secs(1);
/// Everything is looked at again this often.
const LOOK_EVERY: Duration = Duration::from_mins(1);

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
    /// The authorities that both configurations are seen to hold.
    pub trusted: watch::Sender<BTreeSet<String>>,
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

impl Keeper {
    /// Keeps it until the end of the webhook.
    pub async fn run(mut self) {
        // A closed channel is the end of the webhook.
        let known = self.minor.wait_for(Option::is_some).await.is_ok()
            && self.ready.wait_for(|ready| *ready).await.is_ok()
            && (self.foreign || self.trust.wait_for(|trust| !trust.authorities.is_empty()).await.is_ok());
        if !known {
            return;
        }
        let changed = Arc::new(Notify::new());
        let mut watches = JoinSet::new();
        let mut live =
            Kind::ALL.map(|kind| (kind, self.follow(kind, &changed, &mut watches), None::<Accepted>));
        loop {
            let mut pause = LOOK_EVERY;
            let wanted_trust = self.trust.borrow_and_update().clone();
            let mut settled = true;
            for (kind, live, accepted) in &mut live {
                if !live.status.is_ready() {
                    settled = false;
                    continue;
                }
                let wanted = self.wanted(*kind, &wanted_trust);
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
                    Err(why) => tracing::warn!(kind = kind.name(), why, "cannot register; trying again"),
                }
                pause = PAUSE;
            }
            if settled {
                self.trusted.send_replace(wanted_trust.set());
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = changed.notified() => {}
                ended = self.trust.changed() => if ended.is_err() { return },
            }
        }
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

    async fn apply(&self, kind: Kind, wanted: &Value) -> Result<Value, String> {
        let (plural, name) = (kind.plural(), &self.options.name);
        let path = format!(
            "/apis/admissionregistration.k8s.io/v1/{plural}/{name}?fieldManager={MANAGER}&force=true"
        );
        let request = Request::patch(path)
            .header("content-type", "application/apply-patch+yaml")
            .body(wanted.to_string().into_bytes())
            .map_err(|error| error.to_string())?;
        self.client.request::<Value>(request).await.map_err(|error| in_words(&error))
    }
}
