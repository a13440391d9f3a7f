//! Writes the `PSAEnforcementConfig`, and records events about what changed.
//!
//! Events come before the status they follow from: killed in between, the controller repeats itself, and the event is
//! there already. Every write is bound to the version that was looked at.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use palisade_policy::enforcement::{
    mode::{Release, SpecMode},
    resource,
    violations::{Entry, merge},
    waves::{KIND, NAME as NAME_OF_ROLLOUT},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    events::{self, transitions},
    ledger::{self, Ledger},
    plan::ReadinessPlan,
    waves,
};
use crate::{
    api::{ApiError, Patch},
    backoff::Backoff,
    context::{Context, Turns},
    event_recorder::{About, News, record},
    metrics::WriteOutcome,
    observe::{CONFIG, CONSTRAINTS, ROLLOUT},
};

/// The name of the controller.
pub const NAME: &str = "readiness";
/// The field manager, and who events come from.
pub const MANAGER: &str = "pod-security-readiness-controller";

/// How often a write that came too late is tried again before others have their turn.
const TRIES: usize = 4;

/// Runs until dropped.
pub async fn run(context: Arc<Context>) {
    let mut turns = Turns::begin(&context, NAME).await;
    let mut controller = Controller::default();
    loop {
        let again = controller.turn(&context).await;
        turns.next(again).await;
    }
}

#[derive(Default)]
struct Controller {
    /// Violating namespaces that do not fit into the status.
    remembered: Vec<Entry>,
    /// Where those are kept; `None` until it is read, and after a conflict.
    ledger: Option<Ledger>,
    /// Invalid constraints that have an event.
    recorded: BTreeSet<(String, String)>,
    evaluated: Option<Instant>,
    backoff: Backoff,
}

impl Controller {
    async fn turn(&mut self, context: &Context) -> Option<Duration> {
        if self.evaluated.is_none_or(|at| at.elapsed() >= context.evaluation_interval) {
            // The first time everything has just been seen.
            if self.evaluated.is_some() {
                context.observed.lock().cluster.evaluate_anew();
            }
            self.evaluated = Some(Instant::now());
            context.metrics.evaluated(jiff::Timestamp::now().as_second());
        }
        self.record_invalid_constraints(context).await;
        for _ in 0..TRIES {
            let done = self.step(context).await;
            if done.is_err() {
                // Another process may have written there.
                self.ledger = None;
            }
            match done {
                Ok(true) => {}
                Ok(false) => {
                    self.backoff.reset();
                    context.report(NAME, None);
                    return None;
                }
                Err(error) if error.is_conflict() => {
                    context.metrics.wrote(NAME, WriteOutcome::Conflict);
                    if let Ok(Some(fresh)) = context.api.get(&CONFIG.object(None, resource::NAME)).await {
                        context.observed.lock().set_config(fresh);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot keep the PSAEnforcementConfig up to date");
                    context.metrics.wrote(NAME, WriteOutcome::Failed);
                    context
                        .report(NAME, Some(format!("cannot keep PSAEnforcementConfig up to date: {error}")));
                    tokio::time::sleep(self.backoff.next()).await;
                    return Some(Duration::ZERO);
                }
            }
        }
        Some(Duration::ZERO)
    }

    /// One write; whether there may be more to do.
    async fn step(&mut self, context: &Context) -> Result<bool, ApiError> {
        if !context.observed.lock().is_config_served || context.release == Release::Introduce {
            return Ok(false);
        }
        self.read_ledger(context).await?;
        let (config, plan, namespaces) = {
            let mut state = context.observed.lock();
            state.catch_up();
            let plan = context.plan(&state, &self.remembered);
            let before = state.config.get("status").unwrap_or(&Value::Null);
            let namespaces: Vec<(events::Event, String)> = plan
                .status
                .iter()
                .flat_map(|status| transitions(before, status))
                .map(|event| {
                    let namespace = event.namespace.as_deref().and_then(|name| state.cluster.namespace(name));
                    let uid = namespace.map_or_else(String::new, |namespace| namespace.uid().to_owned());
                    (event.with_cause(namespace), uid)
                })
                .collect();
            (state.config.clone(), plan, namespaces)
        };
        let ReadinessPlan { spec, status, shown, remembered, .. } = plan;
        if config.is_null() {
            let made = context.api.create(&CONFIG.collection(None), MANAGER, &resource::new_object()).await;
            return match made {
                Err(error) if error.is_already_exists() => Ok(true),
                made => {
                    done(context, made?);
                    Ok(true)
                }
            };
        }
        if let Some(mode) = spec {
            record_opt_out(context, &config, mode).await;
            let change = json!({
                "metadata": {"resourceVersion": config["metadata"]["resourceVersion"]},
                "spec": {"enforcementMode": mode.as_str()},
            });
            let path = CONFIG.object(None, resource::NAME);
            done(context, context.api.patch(&path, MANAGER, Patch::Merge, &change).await?);
            return Ok(true);
        }
        let wanted = ledger::wanted(shown, &remembered);
        // What the status will no longer show is kept before it goes; what it shows again is forgotten afterwards.
        if let Some(ledger) = &mut self.ledger
            && (status.is_none() || !wanted.is_empty())
        {
            for _ in 0..ledger.write(&context.api, &wanted).await? {
                context.metrics.wrote(NAME, WriteOutcome::Done);
            }
        }
        let Some(status) = status else {
            self.remembered = remembered;
            return move_waves(context).await;
        };
        for (event, uid) in &namespaces {
            record_event(context, &config, event, uid).await;
        }
        let mut object = config;
        object["status"] = status;
        let path = format!("{}/status", CONFIG.object(None, resource::NAME));
        let answer = context.api.replace(&path, MANAGER, &object).await?;
        self.remembered = remembered;
        done(context, answer);
        Ok(true)
    }

    async fn read_ledger(&mut self, context: &Context) -> Result<(), ApiError> {
        if self.ledger.is_none() {
            let ledger = Ledger::read(&context.api).await?;
            self.remembered = merge(ledger.entries().chain(std::mem::take(&mut self.remembered)));
            self.ledger = Some(ledger);
        }
        Ok(())
    }

    /// An invalid constraint gets one event for each reason.
    async fn record_invalid_constraints(&mut self, context: &Context) {
        let skipped: BTreeSet<(String, String)> = {
            let state = context.observed.lock();
            let skipped = state.cluster.skipped_constraints();
            skipped.into_iter().map(|(name, why)| (name.to_owned(), why)).collect()
        };
        for (name, why) in skipped.difference(&self.recorded) {
            let path = CONSTRAINTS.object(None, name);
            let uid = match context.api.get(&path).await {
                Ok(Some(object)) => object["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
                _ => continue,
            };
            let about = About {
                api_version: "security.openshift.io/v1",
                kind: "SecurityContextConstraints",
                namespace: None,
                name,
                uid: &uid,
            };
            let message = format!("skipped by admission and by the label syncer: {why}");
            let news = News {
                component: MANAGER,
                is_warning: true,
                reason: "MalformedConstraint",
                message: &message,
                occasion: "",
            };
            record(&context.api, about, news).await;
        }
        self.recorded = skipped;
    }
}

/// Moves the waves on; returns whether there may be more to do. A wave is written down before its first label is set.
async fn move_waves(context: &Context) -> Result<bool, ApiError> {
    let (object, status) = {
        let state = context.observed.lock();
        let object = state.rollout.clone();
        let now = jiff::Timestamp::now().as_second();
        let status = (!object.is_null())
            .then(|| waves::plan(&object, context.outputs(&state), &state.cluster, now))
            .flatten();
        (object, status)
    };
    let Some(status) = status else { return Ok(false) };
    let stopped = |status: &Value| {
        let conditions = status["conditions"].as_array();
        conditions
            .into_iter()
            .flatten()
            .find(|own| own["type"] == "Stopped" && own["status"] == "True")
            .cloned()
    };
    if let (Some(condition), None) = (stopped(&status), stopped(&object["status"])) {
        let about = About {
            api_version: "palisade.dev/v1alpha1",
            kind: KIND,
            namespace: None,
            name: NAME_OF_ROLLOUT,
            uid: object["metadata"]["uid"].as_str().unwrap_or_default(),
        };
        let news = News {
            component: MANAGER,
            is_warning: true,
            reason: "WaveStopped",
            message: condition["message"].as_str().unwrap_or_default(),
            occasion: condition["lastTransitionTime"].as_str().unwrap_or_default(),
        };
        record(&context.api, about, news).await;
    }
    let mut object = object;
    object["status"] = status;
    let path = format!("{}/status", ROLLOUT.object(None, NAME_OF_ROLLOUT));
    match context.api.replace(&path, MANAGER, &object).await {
        Ok(answer) => {
            context.metrics.wrote(NAME, WriteOutcome::Done);
            context.observed.lock().set_rollout(answer);
        }
        // The administrator changed or removed it: what is there now decides.
        Err(error) if error.is_conflict() || error.is_not_found() => {
            context.metrics.wrote(NAME, WriteOutcome::Conflict);
            let fresh = context.api.get(&ROLLOUT.object(None, NAME_OF_ROLLOUT)).await?;
            context.observed.lock().rollout = fresh.unwrap_or_default();
        }
        Err(error) => return Err(error),
    }
    context.observed.notify();
    Ok(true)
}

/// Takes note of an answer.
fn done(context: &Context, answer: Value) {
    context.metrics.wrote(NAME, WriteOutcome::Done);
    context.observed.lock().set_config(answer);
    context.observed.notify();
}

fn about_config(config: &Value) -> About<'_> {
    About {
        api_version: "config.openshift.io/v1alpha1",
        kind: resource::KIND,
        namespace: None,
        name: resource::NAME,
        uid: config["metadata"]["uid"].as_str().unwrap_or_default(),
    }
}

/// Records a transition, on the object it is about.
async fn record_event(context: &Context, config: &Value, event: &events::Event, uid: &str) {
    let about = match event.namespace.as_deref() {
        Some(name) => About { api_version: "v1", kind: "Namespace", namespace: None, name, uid },
        None => about_config(config),
    };
    let news = News {
        component: MANAGER,
        is_warning: event.is_warning,
        reason: event.reason,
        message: &event.message,
        occasion: &event.occasion,
    };
    record(&context.api, about, news).await;
}

async fn record_opt_out(context: &Context, config: &Value, mode: SpecMode) {
    let message = format!(
        "namespaces would violate enforcement, so spec.enforcementMode becomes {}; set it to Restricted to \
         enforce all the same",
        mode.as_str()
    );
    let generation = config["metadata"]["generation"].to_string();
    let news = News {
        component: MANAGER,
        is_warning: true,
        reason: "EnforcementOptedOut",
        message: &message,
        occasion: &generation,
    };
    record(&context.api, about_config(config), news).await;
}
