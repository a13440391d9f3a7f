//! Admission webhooks: other servers that change objects and judge them.
//!
//! Implements: Dynamic Admission Control, with upstream's error texts and order of things.
//! <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/>
//!
//! | module | job |
//! | --- | --- |
//! | `config` | which webhooks are registered |
//! | `matching` | which of them match a request |
//! | `conditions` | CEL expressions that narrow that down |
//! | `review` | the question and the answer |
//! | `client`, `errors` | the way there and back, and what went wrong on it |
//! | `dispatch` | in which order, how often, and what a failure means |
//!
//! What the objects that register webhooks must look like is `palisade-apimachinery`'s.

pub(crate) mod client;
mod conditions;
mod config;
mod dispatch;
mod errors;
pub(crate) mod matching;
mod review;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

pub(crate) use conditions::compile_errors;
pub(crate) use dispatch::{Dispatch, options};
use palisade_base::metrics::{Metric, Registry};
use serde_json::Value;

use self::client::{Clients, Endpoint};
use self::config::Hook;
use crate::storage::{Bucket, Range, Store, read, write};

/// Upstream's name of the plugin that lets webhooks change objects.
pub const MUTATING: &str = "MutatingAdmissionWebhook";
/// Upstream's name of the plugin that lets webhooks judge objects.
pub const VALIDATING: &str = "ValidatingAdmissionWebhook";

/// The webhooks of one kind of configuration, in the order they are called.
pub(crate) type Hooks = Arc<[Arc<Hook>]>;

/// Every registered webhook.
#[derive(Debug)]
pub struct Webhooks {
    mutating: Registered,
    validating: Registered,
    clients: Arc<Clients>,
    /// Upstream's counters of the calls.
    pub(crate) metrics: Registry,
}

impl Webhooks {
    /// The webhooks registered in a store, unless their plugins are disabled.
    #[must_use]
    pub fn new(store: &Store, disabled: &[String]) -> Self {
        let clients = Arc::new(Clients::new(store.clone()));
        let registered = |plugin: &str, resource: &str, mutating| Registered {
            enabled: !disabled.iter().any(|name| name == plugin),
            mutating,
            bucket: store.bucket(&format!("{resource}.admissionregistration.k8s.io")),
            clients: clients.clone(),
            none_at: AtomicU64::new(u64::MAX),
            current: RwLock::new((u64::MAX, Vec::new().into())),
        };
        Self {
            mutating: registered(MUTATING, "mutatingwebhookconfigurations", true),
            validating: registered(VALIDATING, "validatingwebhookconfigurations", false),
            clients,
            metrics: Registry::default(),
        }
    }

    /// Those that change objects, if there are any.
    pub(crate) fn mutating(&self) -> Option<Hooks> {
        self.mutating.hooks()
    }

    /// The place that a `clientConfig` describes.
    pub(crate) fn endpoint(&self, config: &Value) -> Arc<Endpoint> {
        self.clients.endpoint(config)
    }

    /// Those that judge objects, if there are any.
    pub(crate) fn validating(&self) -> Option<Hooks> {
        self.validating.hooks()
    }
}

/// The configurations of one kind, read once for each change of them.
#[derive(Debug)]
struct Registered {
    enabled: bool,
    mutating: bool,
    bucket: Arc<Bucket>,
    clients: Arc<Clients>,
    /// The change after which there were none, so that servers without webhooks only look here.
    none_at: AtomicU64,
    current: RwLock<(u64, Hooks)>,
}

impl Registered {
    fn hooks(&self) -> Option<Hooks> {
        let at = self.bucket.changed_at();
        if !self.enabled || self.none_at.load(Ordering::Acquire) == at {
            return None;
        }
        let (read_at, hooks) = read(&self.current).clone();
        let hooks = if read_at == at { hooks } else { self.reread(at) };
        (!hooks.is_empty()).then_some(hooks)
    }

    /// Reads the configurations again. Buckets are ordered by name, and so are upstream's webhooks.
    fn reread(&self, at: u64) -> Hooks {
        let stored = self.bucket.list(&Range::All).objects;
        let hooks: Hooks = stored
            .iter()
            .flat_map(|object| config::hooks(object, self.mutating, &self.clients))
            .map(Arc::new)
            .collect();
        *write(&self.current) = (at, hooks.clone());
        if hooks.is_empty() {
            self.none_at.store(at, Ordering::Release);
        }
        hooks
    }
}

static REQUESTS: Metric =
    Metric::counter("apiserver_admission_webhook_request_total", "Responses of admission webhooks.");
static REJECTIONS: Metric = Metric::counter(
    "apiserver_admission_webhook_rejection_count",
    "Requests rejected by admission webhooks.",
);
static FAILED_OPEN: Metric = Metric::counter(
    "apiserver_admission_webhook_fail_open_count",
    "Failed calls of admission webhooks that did not reject the request.",
);
