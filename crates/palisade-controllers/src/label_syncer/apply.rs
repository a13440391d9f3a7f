//! Makes the labels so.
//!
//! Server-side apply to the version that was looked at: a namespace that changes in between is looked at again, never
//! overwritten. The answer to a write is observed at once, so that nothing is written twice while a watch is slow.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt as _, stream};
use palisade_policy::enforcement::ownership::FORMER_SYNCER;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::plan::{LabelPolicy, Write, namespace_labels};
use crate::{
    api::{ApiError, NAMESPACES, Patch},
    backoff::Failures,
    context::{Context, Turns},
    metrics::WriteOutcome,
};

/// The name of the controller.
pub const NAME: &str = "label-syncer";

/// How many namespaces are written at a time.
const AT_A_TIME: usize = 8;

/// Runs until dropped.
pub async fn run(context: Arc<Context>) {
    let mut turns = Turns::begin(&context, NAME).await;
    let mut syncer = Syncer { policy: None, full_pass: Instant::now(), failures: Failures::default() };
    loop {
        let again = syncer.turn(&context).await;
        turns.next(again).await;
    }
}

struct Syncer {
    /// What was to be done about enforce labels when all namespaces were last looked at.
    policy: Option<LabelPolicy>,
    full_pass: Instant,
    failures: Failures,
}

impl Syncer {
    async fn turn(&mut self, context: &Context) -> Option<Duration> {
        let writes = self.plan(context);
        if writes.is_empty() {
            return self.failures.wait();
        }
        let outcomes: Vec<(Write, Result<Value, ApiError>)> = stream::iter(writes)
            .map(|write| async {
                let answer = apply(context, &write).await;
                (write, answer)
            })
            .buffer_unordered(AT_A_TIME)
            .collect()
            .await;
        for (write, answer) in outcomes {
            let (outcome, failure) = match answer {
                Ok(answer) => {
                    context.observed.lock().cluster.set_namespace(&answer);
                    (WriteOutcome::Done, None)
                }
                // The watch reports it.
                Err(error) if error.is_conflict() => (WriteOutcome::Conflict, None),
                Err(error) if error.is_not_found() => (WriteOutcome::Gone, None),
                Err(error) => {
                    tracing::warn!(namespace = write.namespace, %error, "cannot label");
                    (
                        WriteOutcome::Failed,
                        Some(format!("cannot label namespace {}: {error}", write.namespace)),
                    )
                }
            };
            self.failures.note(write.namespace, failure);
            context.metrics.wrote(NAME, outcome);
        }
        context.observed.notify();
        self.failures.settle(|why| context.report(NAME, why))
    }

    /// What to write on namespaces that changed, or on all if what is to be done about them did.
    fn plan(&mut self, context: &Context) -> Vec<Write> {
        let mut state = context.observed.lock();
        state.catch_up();
        let policy = context.label_policy(&state);
        if self.policy.as_ref() != Some(&policy) || self.full_pass.elapsed() >= context.evaluation_interval {
            state.cluster.touch_all();
            self.full_pass = Instant::now();
        }
        for name in self.failures.due() {
            state.cluster.touch(&name);
        }
        let names = state.cluster.take_touched();
        let touched = names.iter().filter_map(|name| state.cluster.namespace(name));
        let writes =
            touched.flat_map(|namespace| namespace_labels(namespace, policy.of(namespace))).collect();
        self.policy = Some(policy);
        writes
    }
}

async fn apply(context: &Context, write: &Write) -> Result<Value, ApiError> {
    let path = NAMESPACES.object(None, &write.namespace);
    let how = Patch::Apply { force: true };
    let answer = context.api.patch(&path, write.manager, how, &write.to_object()).await?;
    match without_former_owner(&answer, &write.apply.hand_over) {
        Some(change) => context.api.patch(&path, write.manager, Patch::Json, &change).await,
        None => Ok(answer),
    }
}

/// The patch that ends the former syncer's ownership of labels. Only the list of owners changes: taking the labels away
/// and putting them back would leave a moment without them.
fn without_former_owner(namespace: &Value, labels: &[&str]) -> Option<Value> {
    if labels.is_empty() {
        return None;
    }
    let mut entries = namespace["metadata"]["managedFields"].as_array()?.clone();
    for entry in entries.iter_mut().filter(|entry| entry["manager"] == FORMER_SYNCER) {
        let Some(metadata) = entry.pointer_mut("/fieldsV1/f:metadata").and_then(Value::as_object_mut) else {
            continue;
        };
        if let Some(owned) = metadata.get_mut("f:labels").and_then(Value::as_object_mut) {
            owned.retain(|key, _| !labels.iter().any(|label| key.strip_prefix("f:") == Some(label)));
            if owned.keys().all(|key| key == ".") {
                metadata.remove("f:labels");
            }
        }
    }
    // An owner of nothing is none.
    entries.retain(|entry| {
        entry["fieldsV1"].as_object().is_none_or(|fields| {
            fields.iter().any(|(key, value)| {
                key != "f:metadata" || value.as_object().is_some_and(|own| !own.is_empty())
            })
        })
    });
    Some(json!([
        {"op": "test", "path": "/metadata/resourceVersion", "value": namespace["metadata"]["resourceVersion"]},
        {"op": "replace", "path": "/metadata/managedFields", "value": entries},
    ]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{FORMER_SYNCER, without_former_owner};

    #[test]
    fn the_former_owner_keeps_all_but_the_labels() {
        let entry = |manager: &str, metadata: serde_json::Value| json!({"manager": manager, "operation": "Update", "fieldsV1": {"f:metadata": metadata}});
        let namespace = json!({"metadata": {"resourceVersion": "7", "managedFields": [
            entry(FORMER_SYNCER, json!({"f:labels": {".": {}, "f:a": {}}, "f:annotations": {"f:range": {}}})),
            entry(FORMER_SYNCER, json!({"f:labels": {"f:a": {}}})),
            entry("kubectl", json!({"f:labels": {"f:a": {}}})),
        ]}});
        assert_eq!(without_former_owner(&namespace, &[]), None);
        let patch = without_former_owner(&namespace, &["a"]).unwrap();
        assert_eq!(patch[0]["value"], "7");
        assert_eq!(
            patch[1]["value"],
            json!([
                entry(FORMER_SYNCER, json!({"f:annotations": {"f:range": {}}})),
                entry("kubectl", json!({"f:labels": {"f:a": {}}})),
            ])
        );
    }
}
