//! Evicts a pod: `pods/eviction`, unless a disruption budget holds it back.
//!
//! Implements: API-initiated Eviction, and `pkg/registry/core/pod/storage/eviction.go`. Keeping the status of budgets up
//! to date is a controller's job. <https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/>

use std::sync::Arc;

use palisade_apimachinery::rest::path::Get as _;
use palisade_apimachinery::status::{Cause, GroupName};
use palisade_apimachinery::{Decoded, Status, Typed, kinds, rest};
use palisade_base::label_selector::LabelSelector;
use serde_json::{Map, Value, json};

use crate::admission_chain::Operation;
use crate::api::Call;
use crate::http::Reply;
use crate::meta;
use crate::options::{DeleteOptions, WriteOptions};
use crate::registry::Entry;
use crate::storage::{CommitError, Expect, Range};
use crate::verbs::delete::delete_object;
use crate::verbs::write::{self, Writer, untyped_body};

/// How often the budget is read again when others write it.
const RETRIES: usize = 8;

/// Answers with success.
pub(super) async fn create(call: &Call<'_>, entry: &Arc<Entry>) -> Result<Reply, Box<Status>> {
    let (eviction, warnings) = read(call)?;
    let name = meta::meta_text(&eviction, "name");
    if name != call.info.name {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    let mut options = DeleteOptions::parse(call.query, eviction.get("deleteOptions"), call.api.version)?;
    options.dry_run |= call.query.get("dryRun").is_some();
    let mut writer = Writer::new(call, entry, "eviction", WriteOptions::without_body(options.dry_run));
    writer.notes.warnings.extend(warnings);
    let key = entry.key(&call.info.namespace, name);
    if let Err(status) = writer.judge(Operation::Create, Some(&eviction), None).await {
        return Ok(writer.error(status));
    }
    if let Err(status) = spend_budget(call, entry, &key, options.dry_run).await {
        return Ok(writer.error(status));
    }
    if !options.dry_run
        && let Err(status) = mark_disrupted(call, entry, &key).await
    {
        return Ok(writer.error(status));
    }
    // As upstream, the right to evict is checked for the eviction and not about the deletion.
    match delete_object(call.api, entry, &key, &options, None).await {
        Ok(_) => {
            let mut reply = super::binding::created(call);
            writer.annotate(&mut reply);
            Ok(reply)
        }
        Err(status) => Ok(writer.error(status)),
    }
}

/// The eviction in the body, in either version, with warnings about unknown fields.
fn read(call: &Call<'_>) -> Result<(Typed, Vec<String>), Box<Status>> {
    let options = WriteOptions::parse(call.query, "CreateOptions", call.api.version, false)?;
    // A body that cannot be read is rejected below, in the words of the decoder.
    let named = untyped_body(call).map(|body| body.text("apiVersion").to_owned());
    let kind = kinds::eviction_kind(named.as_deref().unwrap_or(""), call.api.version);
    let Decoded { mut object, warnings } = write::decode_body(call, &kind, options.validation)?;
    rest::ensure_namespace(&kind, &mut object, &call.info.namespace)?;
    let eviction = kind.read(object).map_err(|error| error.into_status(&kind, &call.info.name))?;
    Ok((eviction, warnings))
}

/// Counts the eviction against the budget of the pod, if it has one and still counts itself.
async fn spend_budget(call: &Call<'_>, entry: &Entry, key: &str, dry_run: bool) -> Result<(), Box<Status>> {
    let api = call.api;
    let served = api.registry.served();
    let Some(budgets) = served.find("policy", "v1", "poddisruptionbudgets") else { return Ok(()) };
    for _ in 0..RETRIES {
        let Some(pod) = entry.bucket.get(key).map(|pod| Value::Object(pod.parse())) else { return Ok(()) };
        let phase = pod.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
        if meta::is_deleting(&pod) || matches!(phase, "Succeeded" | "Failed" | "Pending") {
            return Ok(());
        }
        let labels = pod.pointer("/metadata/labels");
        let range = Range::Namespace(call.info.namespace.clone());
        let mut guarding = budgets.bucket.list(&range).objects.into_iter().filter(|budget| {
            let budget = Value::Object(budget.parse());
            let selector = budget.pointer("/spec/selector").filter(|selector| selector.is_object());
            selector.is_some_and(|selector| LabelSelector::from_object(selector).matches_labels(labels))
        });
        let Some(stored) = guarding.next() else { return Ok(()) };
        if guarding.next().is_some() {
            return Err(Status::unknown_error(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ));
        }
        let mut budget = budgets.typed(stored.parse());
        if !is_ready(&pod) && tolerates_unready(&budget) {
            return Ok(());
        }
        decrement(&mut budget, &call.info.name)?;
        if dry_run {
            return Ok(());
        }
        let budget_key = budgets.key(&call.info.namespace, stored.name());
        let expected = Expect::Revision(stored.revision);
        match write::commit(api, budgets, &budget_key, expected, budget, false).await {
            Ok(_) => return Ok(()),
            Err(CommitError::Conflict | CommitError::Exists) => {}
            Err(error) => return Err(write::unavailable(&error)),
        }
    }
    Err(Status::modified(budgets.kind.resource_name(), ""))
}

/// Sets the condition that tells controllers that the pod did not fail by itself.
async fn mark_disrupted(call: &Call<'_>, entry: &Entry, key: &str) -> Result<(), Box<Status>> {
    let version = call.api.version;
    if !version.at_least(26) {
        return Ok(());
    }
    for _ in 0..RETRIES {
        let Some(stored) = entry.bucket.get(key) else { return Ok(()) };
        let mut pod = entry.typed(stored.parse());
        if meta::is_deleting(&pod) {
            return Ok(());
        }
        let mut condition = json!({"type": "DisruptionTarget", "status": "True", "lastProbeTime": null,
            "lastTransitionTime": meta::now(), "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"});
        if version.at_least(34) {
            condition["observedGeneration"] =
                pod.pointer("/metadata/generation").cloned().unwrap_or(Value::Null);
        }
        let conditions = pod.pointer("/status/conditions").and_then(Value::as_array).cloned();
        let mut conditions = conditions.unwrap_or_default();
        conditions.retain(|known| known.text("type") != "DisruptionTarget");
        conditions.push(condition);
        pod["status"]["conditions"] = conditions.into();
        match write::commit(call.api, entry, key, Expect::Revision(stored.revision), pod, false).await {
            Ok(_) => return Ok(()),
            Err(CommitError::Conflict | CommitError::Exists) => {}
            Err(error) => return Err(write::unavailable(&error)),
        }
    }
    Err(Status::modified(entry.kind.resource_name(), key))
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    conditions.is_some_and(|all| all.iter().any(|c| c.text("type") == "Ready" && c.text("status") == "True"))
}

/// Pods that do not run anyway may go if the budget allows it, or while enough others are healthy.
fn tolerates_unready(budget: &Value) -> bool {
    let always = budget.pointer("/spec/unhealthyPodEvictionPolicy").and_then(Value::as_str);
    let count = |field: &str| budget.get("status").and_then(|status| status.int(field)).unwrap_or(0);
    let (current, desired) = (count("currentHealthy"), count("desiredHealthy"));
    always == Some("AlwaysAllow") || (desired > 0 && current >= desired)
}

/// Takes one disruption out of a budget.
fn decrement(budget: &mut Value, pod: &str) -> Result<(), Box<Status>> {
    let name = meta::meta_text(budget, "name").to_owned();
    let refused = |retry_after: u32, why: String| {
        let mut status = Status::too_many_requests(
            "Cannot evict pod as it would violate the pod's disruption budget.",
            retry_after,
        );
        let cause = Cause { reason: "DisruptionBudget".into(), message: why, field: String::new() };
        status.details.get_or_insert_default().causes.push(cause);
        Err(status)
    };
    let generation = budget.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(0);
    let count = |field: &str| budget.get("status").and_then(|status| status.int(field)).unwrap_or(0);
    let (observed, allowed) = (count("observedGeneration"), count("disruptionsAllowed"));
    let (desired, current) = (count("desiredHealthy"), count("currentHealthy"));
    if observed < generation {
        return refused(10, format!("The disruption budget {name} is still being processed by the server."));
    }
    if allowed < 0 {
        let resource = GroupName::new("policy", "poddisruptionbudget");
        return Err(Status::forbidden(resource, &name, "pdb disruptions allowed is negative"));
    }
    if allowed == 0 {
        return refused(
            0,
            format!("The disruption budget {name} needs {desired} healthy pods and has {current} currently"),
        );
    }
    if let Some(status) = budget.get_mut("status").and_then(Value::as_object_mut) {
        status.insert("disruptionsAllowed".to_owned(), (allowed - 1).into());
        let disrupted = status.entry("disruptedPods").or_insert_with(|| Value::Object(Map::new()));
        if let Some(disrupted) = disrupted.as_object_mut() {
            disrupted.insert(pod.to_owned(), meta::now().into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn budgets_hold_pods_back() {
        let budget = |status: Value| json!({"metadata": {"name": "b", "generation": 1}, "status": status});
        for (case, status, expected) in [
            (
                "not looked at yet",
                json!({}),
                Err("The disruption budget b is still being processed by the server."),
            ),
            (
                "spent",
                json!({"observedGeneration": 1, "desiredHealthy": 2, "currentHealthy": 1}),
                Err("The disruption budget b needs 2 healthy pods and has 1 currently"),
            ),
            ("some left", json!({"observedGeneration": 1, "disruptionsAllowed": 2}), Ok(1)),
        ] {
            let mut budget = budget(status);
            let outcome = decrement(&mut budget, "p").map_err(|status| {
                status.details.and_then(|d| d.causes.first().map(|c| c.message.clone())).unwrap_or_default()
            });
            let left = outcome.map(|()| budget["status"]["disruptionsAllowed"].as_i64().unwrap_or(0));
            assert_eq!(left.as_ref().map_err(String::as_str).copied(), expected, "{case}");
        }
    }
}
