//! Runs controllers, on the one process that leads.
//!
//! Watches run only while this process leads: what a standby would hold in memory is of no use. Controllers are
//! dropped where they stand, at shutdown as at the loss of the lead; each of them can be killed at any call.

use std::{
    collections::BTreeSet,
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use kube::Client;
use palisade_model::compat::Compat;
use palisade_policy::enforcement::{level::LevelSource, mode::Release, platform::Platform};
use tokio::{sync::watch, task::JoinSet};

use crate::{
    api::Api,
    backoff::Backoff,
    config_observer,
    context::Context,
    label_syncer,
    leader::{Candidate, Timing},
    metrics::Metrics,
    observe::{Observed, Scope},
    range_allocator, readiness, rejected_pods, reports,
};

/// Turns true when everything is to end.
pub type Shutdown = watch::Receiver<bool>;

/// The controllers of the rollout.
pub const ROLLOUT: [&str; 5] = [
    label_syncer::apply::NAME,
    readiness::apply::NAME,
    config_observer::apply::NAME,
    range_allocator::apply::NAME,
    rejected_pods::apply::NAME,
];

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A controller that needs nothing of the rollout, only a client, and the lead.
#[derive(Clone)]
pub struct Hosted {
    /// The name.
    pub name: &'static str,
    run: Arc<dyn Fn(Client, Shutdown) -> Running + Send + Sync>,
}

impl Hosted {
    /// A controller. It is started anew each time this process comes to lead.
    pub fn new<F>(name: &'static str, run: impl Fn(Client, Shutdown) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self { name, run: Arc::new(move |client, shutdown| Box::pin(run(client, shutdown))) }
    }
}

impl fmt::Debug for Hosted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hosted").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What to run, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// The release.
    pub release: Release,
    /// The feature gate `OpenShiftPodSecurityAdmission`, for clusters without a `FeatureGate` object; `None`: the release's default.
    pub gate: Option<bool>,
    /// Where levels come from, on a cluster that is not OpenShift.
    pub levels: LevelSource,
    /// Whether what exceptions accept counts as compliant: nothing but Palisade enforces Pod Security.
    pub count_exceptions: bool,
    /// What the cluster is; `None`: what its API groups show.
    pub platform: Option<Platform>,
    /// Whether controllers that OpenShift has itself are left to it, although they are in the list.
    pub leave_to_openshift: bool,
    /// The names of the controllers to run, of the rollout and hosted.
    pub controllers: BTreeSet<&'static str>,
    /// Controllers besides those of the rollout.
    pub hosted: Vec<Hosted>,
    /// How often everything is evaluated anew.
    pub evaluation_interval: Duration,
    /// Whose rules apply; `None`: those that the API server announces.
    pub compat: Option<Compat>,
    /// The name to stand for election with; without one, this process leads.
    pub identity: Option<String>,
    /// How long things take in the election.
    pub timing: Timing,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            release: Release::default(),
            gate: None,
            levels: LevelSource::default(),
            count_exceptions: false,
            platform: None,
            leave_to_openshift: true,
            controllers: ROLLOUT.into_iter().collect(),
            hosted: Vec::new(),
            evaluation_interval: Duration::from_hours(4),
            compat: None,
            identity: None,
            timing: Timing::default(),
        }
    }
}

/// Controllers, and what they count.
pub struct Runner {
    client: Client,
    options: Options,
    metrics: Arc<Metrics>,
    current: Mutex<Arc<Observed>>,
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Runner {
    /// Controllers that do not run yet.
    #[must_use]
    pub fn new(client: Client, options: Options) -> Arc<Self> {
        let scope = scope(options.levels, options.platform.unwrap_or_default(), options.count_exceptions);
        let observed = Observed::new(options.compat.unwrap_or_default(), scope);
        Arc::new(Self { client, options, metrics: Arc::default(), current: Mutex::new(observed) })
    }

    /// What they count, in the format of Prometheus.
    #[must_use]
    pub fn metrics(&self) -> String {
        let observed = self.observed();
        let state = observed.lock();
        self.metrics.text(&state)
    }

    /// Whether there is nothing to wait for: this process leads and has seen everything, or is a standby.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        !self.metrics.is_leader() || self.observed().lock().has_synced()
    }

    /// The state of the controllers.
    #[must_use]
    pub fn observed(&self) -> Arc<Observed> {
        Arc::clone(&self.current.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// Runs until `shutdown` turns true.
    pub async fn run(self: Arc<Self>, shutdown: Shutdown) {
        let Some(identity) = self.options.identity.clone() else {
            loop {
                tokio::select! {
                    () = self.lead(&shutdown) => {}
                    () = stopped(shutdown.clone()) => return,
                }
            }
        };
        let mut candidate = Candidate::new(Api::new(self.client.clone()), identity, self.options.timing);
        loop {
            tokio::select! {
                () = candidate.acquire() => {}
                () = stopped(shutdown.clone()) => return,
            }
            tracing::info!("this process leads");
            tokio::select! {
                () = self.lead(&shutdown) => {}
                () = candidate.hold() => self.metrics.lead(false),
                () = stopped(shutdown.clone()) => {
                    self.metrics.lead(false);
                    candidate.release().await;
                    return;
                }
            }
        }
    }

    /// Runs controllers; returns only if one of them ends, which none should.
    async fn lead(&self, shutdown: &Shutdown) {
        let Options { release, gate, evaluation_interval, .. } = self.options;
        let api = Api::new(self.client.clone());
        let compat = match self.options.compat {
            Some(compat) => compat,
            None => announced(&api).await,
        };
        let platform = match self.options.platform {
            Some(platform) => platform,
            None => recognised(&api).await,
        };
        let scope = scope(self.options.levels, platform, self.options.count_exceptions);
        let wants = |name: &&str| self.options.controllers.contains(*name);
        // No other controller of the list needs more than workloads and their events.
        let workloads_only =
            ROLLOUT.iter().filter(|name| wants(name)).all(|name| *name == rejected_pods::apply::NAME);
        let count_exceptions = scope.count_exceptions && !workloads_only;
        let reports = wants(&reports::apply::NAME);
        let scope = Scope { workloads_only, reports, count_exceptions, ..scope };
        let observed = Observed::new(compat, scope);
        *self.current.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Arc::clone(&observed);
        self.metrics.lead(true);
        let is_theirs = |name: &str| {
            let theirs = [label_syncer::apply::NAME, range_allocator::apply::NAME];
            platform == Platform::OpenShift && self.options.leave_to_openshift && theirs.contains(&name)
        };
        // Without constraints there are no ranges to assign.
        let is_idle =
            |name: &str| name == range_allocator::apply::NAME && scope.levels == LevelSource::Workloads;
        let wanted =
            |name: &str| self.options.controllers.contains(name) && !is_theirs(name) && !is_idle(name);
        if !wanted(label_syncer::apply::NAME) {
            observed.lock().cluster.without_own_label_syncer();
        }
        let context = Arc::new(Context::new(
            api.clone(),
            Arc::clone(&observed),
            release,
            gate.unwrap_or_else(|| release.gate_default()),
            evaluation_interval,
            Arc::clone(&self.metrics),
            wanted(label_syncer::apply::NAME),
        ));
        let mut tasks = JoinSet::new();
        let context = || Arc::clone(&context);
        if wanted(label_syncer::apply::NAME) {
            tasks.spawn(label_syncer::apply::run(context()));
        }
        if wanted(readiness::apply::NAME) {
            tasks.spawn(readiness::apply::run(context()));
        }
        if wanted(config_observer::apply::NAME) {
            tasks.spawn(config_observer::apply::run(context()));
        }
        if wanted(range_allocator::apply::NAME) {
            tasks.spawn(range_allocator::apply::run(context()));
        }
        if wanted(rejected_pods::apply::NAME) {
            tasks.spawn(rejected_pods::apply::run(context()));
        }
        if scope.reports {
            tasks.spawn(reports::apply::run(context()));
        }
        // Without a controller of the rollout, and without reports, there is no state.
        let _watches =
            (scope.reports || ROLLOUT.iter().any(|name| wanted(name))).then(|| observed.watch(&api));
        for hosted in self.options.hosted.iter().filter(|hosted| wanted(hosted.name)) {
            tasks.spawn((hosted.run)(self.client.clone(), shutdown.clone()));
        }
        match tasks.join_next().await {
            Some(Err(error)) => tracing::error!(%error, "a controller ended; restarting all"),
            Some(Ok(())) => tracing::warn!("a controller ended; restarting all"),
            None => std::future::pending().await,
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// What a cluster is watched for. OpenShift enforces constraints whatever was chosen.
#[must_use]
pub const fn scope(levels: LevelSource, platform: Platform, count_exceptions: bool) -> Scope {
    let levels = match platform {
        Platform::OpenShift => LevelSource::Constraints,
        Platform::Kubernetes => levels,
    };
    Scope { levels, platform, workloads_only: false, reports: false, count_exceptions }
}

/// What the cluster is, by its API groups. Nothing is written before that is known.
async fn recognised(api: &Api) -> Platform {
    let mut backoff = Backoff::default();
    loop {
        match api.get("/apis").await {
            Ok(groups) => return Platform::of(&groups.unwrap_or_default()),
            Err(error) => tracing::warn!(%error, "cannot list the API groups"),
        }
        tokio::time::sleep(backoff.next()).await;
    }
}

/// Whose rules the API server applies. Nothing is judged before that is known.
async fn announced(api: &Api) -> Compat {
    let mut backoff = Backoff::default();
    loop {
        match api.compat().await {
            Ok(compat) => return compat,
            Err(error) => tracing::warn!(%error, "the version of the API server is not known yet"),
        }
        tokio::time::sleep(backoff.next()).await;
    }
}

/// Returns when everything is to end.
pub async fn stopped(mut shutdown: Shutdown) {
    // A sender that is gone is the end as well.
    let _ = shutdown.wait_for(|stop| *stop).await;
}
