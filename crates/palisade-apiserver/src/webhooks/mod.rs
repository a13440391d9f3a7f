//! Admission webhooks: other servers that change objects and judge them.
//!
//! Implements: Dynamic Admission Control, with upstream's error texts and order of things.
//! <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/>
//!
//! | room | answers |
//! | --- | --- |
//! | `config` | which webhooks are registered |
//! | `matching` | which of them want to know about a request |
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
mod matching;
mod review;

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

pub(crate) use conditions::compile_errors;
pub(crate) use dispatch::{Dispatch, options};

use self::client::Clients;
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
    counters: Counters,
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
            counters: Counters::default(),
        }
    }

    /// Those that change objects, if there are any.
    pub(crate) fn mutating(&self) -> Option<Hooks> {
        self.mutating.hooks()
    }

    /// Those that judge objects, if there are any.
    pub(crate) fn validating(&self) -> Option<Hooks> {
        self.validating.hooks()
    }

    /// Upstream's counters in Prometheus' text format.
    pub fn metrics(&self, out: &mut String) {
        self.counters.write(out);
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

/// What became of the calls, by webhook.
#[derive(Debug, Default)]
struct Counters(Mutex<std::collections::BTreeMap<Counted, u64>>);

/// One counter: its name, the webhook, and upstream's further labels.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Counted {
    metric: &'static str,
    webhook: String,
    kind: &'static str,
    operation: &'static str,
    more: String,
}

const REQUESTS: &str = "apiserver_admission_webhook_request_total";
const REJECTIONS: &str = "apiserver_admission_webhook_rejection_count";
const FAILED_OPEN: &str = "apiserver_admission_webhook_fail_open_count";

impl Counters {
    fn add(&self, counted: Counted) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(counted).or_default();
        *count = count.saturating_add(1);
    }

    fn write(&self, out: &mut String) {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut last = "";
        for (counted, count) in counts.iter() {
            if last != counted.metric {
                last = counted.metric;
                let _ = writeln!(out, "# TYPE {last} counter");
            }
            let Counted { metric, webhook, kind, operation, more } = counted;
            let operation =
                if operation.is_empty() { String::new() } else { format!(",operation=\"{operation}\"") };
            let _ = writeln!(out, "{metric}{{name=\"{webhook}\",type=\"{kind}\"{operation}{more}}} {count}");
        }
    }
}
