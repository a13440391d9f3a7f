//! Writes the ranges of namespaces.

use std::{sync::Arc, time::Duration};

use palisade_policy::scc::allocate::Ranges;
use serde_json::{Map, Value, json};

use super::plan::{MANAGER, allocations};
use crate::{
    api::{NAMESPACES, Patch},
    backoff::Failures,
    context::{Context, Turns},
    event_recorder::{About, News, record},
    metrics::WriteOutcome,
};

/// The name of the controller.
pub const NAME: &str = "namespace-ranges";

/// Runs until dropped.
pub async fn run(context: Arc<Context>) {
    let mut turns = Turns::begin(&context, NAME).await;
    let mut failures = Failures::default();
    loop {
        let again = turn(&context, &mut failures).await;
        turns.next(again).await;
    }
}

/// A namespace and what it is to get.
struct Write {
    name: String,
    uid: String,
    resource_version: String,
    ranges: Ranges,
}

async fn turn(context: &Context, failures: &mut Failures) -> Option<Duration> {
    failures.due();
    let writes: Vec<Write> = {
        let state = context.observed.lock();
        if state.cluster.constraints().is_empty() {
            // Nothing would read them.
            return None;
        }
        let namespaces = allocations(&state.cluster).into_iter();
        namespaces
            .filter(|(name, _)| !failures.is_waiting(name))
            .filter_map(|(name, ranges)| {
                let record = state.cluster.namespace(name)?;
                Some(Write {
                    name: name.to_owned(),
                    uid: record.uid().to_owned(),
                    resource_version: record.resource_version().to_owned(),
                    ranges,
                })
            })
            .collect()
    };
    if writes.is_empty() {
        return failures.wait();
    }
    for write in writes {
        let path = NAMESPACES.object(None, &write.name);
        let how = Patch::Apply { force: false };
        let (outcome, failure) = match context.api.patch(&path, MANAGER, how, &object(&write)).await {
            Ok(answer) => {
                context.observed.lock().cluster.set_namespace(&answer);
                record_event(context, &write).await;
                (WriteOutcome::Done, None)
            }
            Err(error) if error.is_conflict() => (WriteOutcome::Conflict, None),
            Err(error) if error.is_not_found() => (WriteOutcome::Gone, None),
            Err(error) => {
                tracing::warn!(namespace = write.name, %error, "cannot give a namespace its ranges");
                (
                    WriteOutcome::Failed,
                    Some(format!("cannot give namespace {} its ranges: {error}", write.name)),
                )
            }
        };
        failures.note(write.name, failure);
        context.metrics.wrote(NAME, outcome);
    }
    context.observed.notify();
    failures.settle(|why| context.report(NAME, why))
}

fn object(write: &Write) -> Value {
    let annotations: Map<String, Value> =
        write.ranges.annotations().map(|(key, value)| (key.to_owned(), value.into())).collect();
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
        // Without the uid an apply makes a namespace that was deleted in the meantime anew.
        "name": write.name, "uid": write.uid, "resourceVersion": write.resource_version, "annotations": annotations,
    }})
}

async fn record_event(context: &Context, write: &Write) {
    let about =
        About { api_version: "v1", kind: "Namespace", namespace: None, name: &write.name, uid: &write.uid };
    let news = News {
        component: MANAGER,
        is_warning: false,
        reason: "CreatedSCCRanges",
        message: "created SCC ranges",
        occasion: "",
    };
    record(&context.api, about, news).await;
}
