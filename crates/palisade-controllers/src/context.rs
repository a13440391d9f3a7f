//! What every controller of the rollout has: a client, what was observed, and the release it is to be.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use palisade_policy::enforcement::{
    conditions::Troubles, feature_gate, mode::Release, platform::Platform, state::Outputs, violations::Entry,
    waves::Rollout,
};
use tokio::{sync::watch as channel, time::sleep};

use crate::{
    api::Api,
    cluster::NamespaceRecord,
    config_observer::plan::{instances, requested, waiting_for},
    label_syncer::plan::LabelPolicy,
    metrics::Metrics,
    observe::{Observed, State},
    readiness::plan::{self, ReadinessPlan},
    rejected_pods, time,
};

/// Many changes together are looked at once.
const SETTLE: Duration = Duration::from_millis(20);
/// How often controllers look even if nothing seems to happen: Leases run out without a change.
const TICK: Duration = Duration::from_secs(5);

/// What the controllers of a rollout share.
#[derive(Debug)]
pub struct Context {
    /// The API server.
    pub api: Api,
    /// What is known.
    pub observed: Arc<Observed>,
    /// The release.
    pub release: Release,
    /// The feature gate `OpenShiftPodSecurityAdmission`, for clusters without a `FeatureGate` object.
    pub gate: bool,
    /// How often everything is evaluated anew.
    pub evaluation_interval: Duration,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Whether Palisade's own label syncer runs.
    pub has_label_syncer: bool,
    troubles: Mutex<BTreeMap<&'static str, String>>,
}

impl Context {
    /// A rollout.
    #[must_use]
    pub fn new(
        api: Api,
        observed: Arc<Observed>,
        release: Release,
        gate: bool,
        evaluation_interval: Duration,
        metrics: Arc<Metrics>,
        has_label_syncer: bool,
    ) -> Self {
        let troubles = Mutex::default();
        Self { api, observed, release, gate, evaluation_interval, metrics, has_label_syncer, troubles }
    }

    /// What the controllers are to do.
    pub(crate) fn outputs(&self, state: &State) -> Outputs {
        self.with_observation(state, &[], |observation| plan::outputs(observation, &state.cluster))
    }

    /// What each namespace is to have.
    pub(crate) fn label_policy(&self, state: &State) -> LabelPolicy {
        let rollout = state.waves();
        self.with_observation(state, &[], |observation| {
            let outputs = plan::outputs(observation, &state.cluster);
            LabelPolicy::new(
                outputs,
                state.cluster.levels(),
                observation.instances,
                observation.requested,
                rollout,
            )
        })
    }

    /// What the readiness controller is to write.
    pub(crate) fn plan(&self, state: &State, remembered: &[Entry]) -> ReadinessPlan {
        self.with_observation(state, remembered, |observation| plan::plan(observation, &state.cluster))
    }

    fn with_observation<T>(
        &self,
        state: &State,
        remembered: &[Entry],
        then: impl FnOnce(&plan::Observed<'_>) -> T,
    ) -> T {
        let configuration = state.configuration.as_ref();
        let alive = || state.reports.values().filter(|seen| seen.is_alive()).map(|seen| &seen.report);
        let (failing, skipped) = (self.failing(state), skipped(state));
        let waiting_for = waiting_for(alive(), configuration);
        let (labels_by, rollout) = (self.labels_by(state), state.waves());
        let waves = rollout.as_ref().and_then(Rollout::describe);
        let rejected = rejected_pods::plan::describe(&state.cluster.rejected_workloads());
        then(&plan::Observed {
            release: self.release,
            gate: state.gate.unwrap_or(self.gate),
            config: &state.config,
            is_config_served: state.is_config_served,
            remembered,
            instances: instances(alive(), configuration),
            requested: requested(configuration),
            has_synced: state.has_synced(),
            troubles: Troubles {
                failing: failing.as_deref(),
                skipped: skipped.as_deref(),
                waiting_for: waiting_for.as_deref(),
                labels_by: labels_by.as_deref(),
                waves: waves.as_ref().map(|(reason, message)| (*reason, message.as_str())),
                rejected: rejected.as_deref(),
            },
            rollout: rollout.as_ref(),
            now: &time::seconds(),
        })
    }

    /// Who is to set the labels that are missing, and where; `None` if none is.
    fn labels_by(&self, state: &State) -> Option<String> {
        const MOST: usize = 5;
        let listed = |names: &[&str]| {
            let more = names.len().saturating_sub(MOST);
            let mut shown = names.iter().take(MOST).copied().collect::<Vec<_>>().join(", ");
            if more > 0 {
                shown = format!("{shown} and {more} more");
            }
            shown
        };
        let is_managed = |name: &&str| state.cluster.namespace(name).is_some_and(NamespaceRecord::is_managed);
        let (managed, others): (Vec<&str>, Vec<&str>) = state.cluster.unlabelled().partition(is_managed);
        let waiting = match (self.has_label_syncer, state.platform) {
            _ if managed.is_empty() => None,
            (true, _) => Some(format!("enforce labels are being set by label-syncer: {}", listed(&managed))),
            (false, Platform::OpenShift) => Some(format!(
                "waiting for the label syncer of OpenShift (cluster-policy-controller), which sets enforce labels while {} is \
                 enabled: {}",
                feature_gate::GATE,
                listed(&managed)
            )),
            (false, Platform::Kubernetes) => Some(format!(
                "the controller label-syncer does not run, and these namespaces need an enforce label: {}",
                listed(&managed)
            )),
        };
        let unmanaged = (!others.is_empty()).then(|| {
            format!(
                "these namespaces need less than restricted and are not managed, so that you set their enforce label \
                 (\"palisade rollout plan\" prints it): {}",
                listed(&others)
            )
        });
        match (waiting, unmanaged) {
            (Some(waiting), Some(unmanaged)) => Some(format!("{waiting}; {unmanaged}")),
            (waiting, unmanaged) => waiting.or(unmanaged),
        }
    }

    /// What keeps a controller from working; `None` if nothing does any more.
    pub(crate) fn report(&self, controller: &'static str, trouble: Option<String>) {
        let mut troubles = self.troubles.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let changed = match trouble {
            Some(trouble) => troubles.insert(controller, trouble.clone()) != Some(trouble),
            None => troubles.remove(controller).is_some(),
        };
        drop(troubles);
        if changed {
            self.observed.notify();
        }
    }

    fn failing(&self, state: &State) -> Option<String> {
        let troubles = self.troubles.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let own = troubles.first_key_value().map(|(controller, why)| format!("{controller}: {why}"));
        own.or_else(|| state.failing())
    }
}

/// When a controller looks: whenever something changed, and now and then.
#[derive(Debug)]
pub(crate) struct Turns {
    context: Arc<Context>,
    controller: &'static str,
    changes: channel::Receiver<u64>,
    began: Instant,
}

impl Turns {
    /// The first turn, once everything has been seen.
    pub(crate) async fn begin(context: &Arc<Context>, controller: &'static str) -> Self {
        context.observed.synced().await;
        let changes = context.observed.subscribe();
        Self { context: Arc::clone(context), controller, changes, began: Instant::now() }
    }

    /// The next turn, after `again` at the latest.
    pub(crate) async fn next(&mut self, again: Option<Duration>) {
        self.context.metrics.turn(self.controller, self.began.elapsed());
        tokio::select! {
            more = self.changes.changed() => if more.is_err() { std::future::pending::<()>().await },
            () = sleep(again.unwrap_or(TICK).min(TICK)) => {}
        }
        sleep(SETTLE).await;
        self.changes.mark_unchanged();
        self.began = Instant::now();
    }
}

/// Constraints that are left out, in a sentence of bounded length.
fn skipped(state: &State) -> Option<String> {
    const MOST: usize = 5;
    let skipped = state.cluster.skipped_constraints();
    let mut named: Vec<String> =
        skipped.iter().take(MOST).map(|(name, why)| format!("{name} ({why})")).collect();
    if skipped.len() > MOST {
        named.push(format!("and {} more", skipped.len() - MOST));
    }
    (!named.is_empty())
        .then(|| format!("invalid SecurityContextConstraints are skipped: {}", named.join(", ")))
}
