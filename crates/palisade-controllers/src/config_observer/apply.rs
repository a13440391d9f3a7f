//! Writes the global configuration, and forgets instances that are long gone.

use std::{sync::Arc, time::Duration};

use palisade_policy::enforcement::instances::{CONFIG_MAP, CONFIG_MAP_MANAGER, NAMESPACE, config_map};
use serde_json::Value;

use super::plan::configuration;
use crate::{
    api::{Api, ApiError, CONFIG_MAPS, LEASES, Patch},
    backoff::Backoff,
    context::{Context, Turns},
    leader::ensure_namespace,
    metrics::WriteOutcome,
    observe::SeenReport,
    time,
};

/// The name of the controller.
pub const NAME: &str = "config-observer";

/// After how many of its own durations the Lease of an instance is removed. It has not counted since the first.
const FORGET_AFTER: i64 = 10;

/// Runs until dropped.
pub async fn run(context: Arc<Context>) {
    let mut turns = Turns::begin(&context, NAME).await;
    let mut backoff = Backoff::default();
    loop {
        let again = match turn(&context).await {
            Ok(()) => {
                backoff.reset();
                context.report(NAME, None);
                None
            }
            Err(error) => {
                tracing::warn!(%error, "cannot write the global configuration");
                context.metrics.wrote(NAME, WriteOutcome::Failed);
                context.report(NAME, Some(format!("cannot write the global configuration: {error}")));
                tokio::time::sleep(backoff.next()).await;
                Some(Duration::ZERO)
            }
        };
        turns.next(again).await;
    }
}

async fn turn(context: &Context) -> Result<(), ApiError> {
    let (wanted, forgotten) = {
        let state = context.observed.lock();
        let wanted = configuration(context.outputs(&state), state.configuration.as_ref());
        let long_gone = |seen: &&SeenReport| {
            let ago = time::seconds_since(&seen.report.renewed);
            !seen.is_alive() && ago.is_none_or(|ago| ago > i64::from(seen.report.lasts) * FORGET_AFTER)
        };
        let reports = state.reports.values().filter(long_gone);
        (wanted, reports.map(|seen| seen.report.name.clone()).collect::<Vec<_>>())
    };
    if let Some(wanted) = wanted {
        let answer = write(&context.api, &config_map(&wanted)).await?;
        context.metrics.wrote(NAME, WriteOutcome::Done);
        tracing::info!(revision = wanted.revision, "the global configuration was written");
        context.observed.lock().set_configuration(&answer);
        context.observed.notify();
    }
    for name in forgotten {
        context.api.delete(&LEASES.object(Some(NAMESPACE), &name)).await?;
    }
    Ok(())
}

async fn write(api: &Api, object: &Value) -> Result<Value, ApiError> {
    let path = CONFIG_MAPS.object(Some(NAMESPACE), CONFIG_MAP);
    let how = Patch::Apply { force: true };
    match api.patch(&path, CONFIG_MAP_MANAGER, how, object).await {
        Err(error) if error.is_not_found() => {
            ensure_namespace(api).await?;
            api.patch(&path, CONFIG_MAP_MANAGER, how, object).await
        }
        other => other,
    }
}
