//! What to write into `PSAEnforcementConfig`.

use std::collections::BTreeSet;

use palisade_policy::{
    enforcement::{
        conditions::{Condition, Troubles, conditions},
        instances::NAMESPACE,
        ledger,
        level::LevelSource,
        mode::{Release, SpecMode, StatusMode},
        state::{EnforceLabels, Evaluation, Inputs, Instances, Outputs, decide},
        violations::{Entry, MOST_SHOWN, State, merge, order, update},
        waves::Rollout,
    },
    standards::level::Level,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cluster::{Cluster, NamespaceRecord};

/// Everything the decision depends on besides the cluster's objects.
#[derive(Debug, Clone, Copy)]
pub struct Observed<'o> {
    /// The release.
    pub release: Release,
    /// The feature gate.
    pub gate: bool,
    /// The `PSAEnforcementConfig`; null if there is none.
    pub config: &'o Value,
    /// Whether the kind exists at all. Without it no administrator can have opted out, so nothing changes.
    pub is_config_served: bool,
    /// Violating namespaces that do not fit into the status.
    pub remembered: &'o [Entry],
    /// What the API servers do.
    pub instances: Instances,
    /// What the global configuration requests now.
    pub requested: Level,
    /// Whether the cluster's objects have all been seen once.
    pub has_synced: bool,
    /// What is wrong besides the namespaces.
    pub troubles: Troubles<'o>,
    /// The time, RFC 3339.
    pub now: &'o str,
    /// The waves, if there are any.
    pub rollout: Option<&'o Rollout>,
}

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadinessPlan {
    /// What the other controllers are to do.
    pub outputs: Outputs,
    /// The mode to write into the spec.
    pub spec: Option<SpecMode>,
    /// The status to write; `None` if the one that is there is right.
    pub status: Option<Value>,
    /// Violating namespaces that the status shows.
    pub shown: Vec<Entry>,
    /// Violating namespaces that do not fit into the status.
    pub remembered: Vec<Entry>,
}

/// What the rollout depends on.
fn inputs(observed: &Observed<'_>, cluster: &Cluster) -> Inputs {
    let mode = |pointer: &str| observed.config.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    Inputs {
        release: observed.release,
        gate: observed.gate,
        // What the API would refuse cannot be requested.
        spec: mode("/spec/enforcementMode").parse().unwrap_or_default(),
        status: StatusMode::read(mode("/status/enforcementMode")),
        evaluation: if observed.has_synced { cluster.evaluation() } else { Evaluation::NotEvaluated },
        labels_done: observed.has_synced
            && cluster.unlabelled().len() == 0
            && observed.rollout.is_none_or(Rollout::is_done),
        instances: observed.instances,
        restricted_requested: observed.requested == Level::Restricted,
        rollback: observed.rollout.is_some_and(Rollout::is_rolled_back),
    }
}

/// What should be: all that the other controllers need.
#[must_use]
pub fn outputs(observed: &Observed<'_>, cluster: &Cluster) -> Outputs {
    if observed.is_config_served {
        return decide(inputs(observed, cluster));
    }
    Outputs {
        spec_write: None,
        status: None,
        enforce_labels: EnforceLabels::Keep,
        default_enforce: observed.requested,
    }
}

/// Decides.
#[must_use]
pub fn plan(observed: &Observed<'_>, cluster: &Cluster) -> ReadinessPlan {
    let (inputs, outputs) = (inputs(observed, cluster), outputs(observed, cluster));
    let current = observed.config.get("status").unwrap_or(&Value::Null);
    let Some(mode) = outputs.status else {
        let (shown, remembered) = (Vec::new(), Vec::new());
        return ReadinessPlan { outputs, spec: outputs.spec_write, status: None, shown, remembered };
    };
    let Listed { shown, remembered, count } = listed(observed, cluster, inputs);
    let mut status = json!({
        "enforcementMode": mode.as_str(),
        "violatingNamespaceCount": count,
        "conditions": conditions_with_times(
            &conditions(inputs, outputs, count, observed.troubles),
            observed,
        ),
    });
    status["levels"] = json!(match cluster.levels() {
        LevelSource::Workloads => "Workloads",
        LevelSource::Constraints => "Constraints",
    });
    if cluster.counts_exceptions() {
        status["exceptions"] = json!("Counted");
    }
    if !shown.is_empty() {
        status["violatingNamespaces"] = json!(shown);
    }
    if !remembered.is_empty() {
        // Every one of them can be found from here.
        let all = merge(remembered.iter().cloned().chain(shown.iter().cloned()));
        let parts = ledger::parts(&all).into_keys();
        let parts = parts.map(|part| json!({"namespace": NAMESPACE, "name": ledger::name(part)}));
        status["violatingNamespacesIn"] = parts.collect();
    }
    let status = (status != *current).then_some(status);
    ReadinessPlan { outputs, spec: outputs.spec_write, status, shown, remembered }
}

/// The violating namespaces: those in the status, those that do not fit into it, and how many violate now.
struct Listed {
    shown: Vec<Entry>,
    remembered: Vec<Entry>,
    count: usize,
}

fn listed(observed: &Observed<'_>, cluster: &Cluster, inputs: Inputs) -> Listed {
    let current = observed.config.get("status").unwrap_or(&Value::Null);
    let shown = read_list::<Entry>(&current["violatingNamespaces"]);
    // Once enforcement has begun, violations decide nothing, and the list stays as evidence of why it began or not.
    let is_frozen = observed.instances != Instances::None || inputs.restricted_requested;
    if is_frozen || !observed.has_synced {
        let count = current["violatingNamespaceCount"].as_u64().and_then(|count| usize::try_from(count).ok());
        let count = count
            .unwrap_or_else(|| shown.iter().filter(|entry| entry.state != Some(State::Previous)).count());
        let names: BTreeSet<&str> = shown.iter().map(|entry| entry.name.as_str()).collect();
        let others = observed.remembered.iter().filter(|entry| !names.contains(entry.name.as_str()));
        let remembered = others.cloned().collect();
        return Listed { shown, remembered, count };
    }
    let known = merge(observed.remembered.iter().cloned().chain(shown));
    let exists = |name: &str| cluster.namespace(name).is_some();
    let mut entries = update(&known, cluster.not_clean(), exists, observed.now);
    let count = order(&mut entries);
    let remembered = entries.split_off(entries.len().min(MOST_SHOWN));
    if cluster.levels() == LevelSource::Workloads {
        for entry in entries.iter_mut().filter(|entry| entry.state == Some(State::Current)) {
            let cause = cluster.namespace(&entry.name).and_then(NamespaceRecord::first_cause);
            if let (Some(reason), Some(cause)) = (&mut entry.reason, cause) {
                *reason = format!("{reason}; {cause}");
            }
        }
    }
    Listed { shown: entries, remembered, count }
}

pub(super) fn read_list<T: for<'de> Deserialize<'de>>(value: &Value) -> Vec<T> {
    value.as_array().into_iter().flatten().filter_map(|item| T::deserialize(item).ok()).collect()
}

/// A condition's time moves only when its status does. The generation names the spec it is about.
fn conditions_with_times(conditions: &[Condition], observed: &Observed<'_>) -> Vec<Value> {
    let current = observed.config.pointer("/status/conditions").and_then(Value::as_array);
    let before = |kind: &str| current.into_iter().flatten().find(|own| own["type"] == kind);
    conditions
        .iter()
        .map(|condition| {
            let status = if condition.status { "True" } else { "False" };
            let since = before(condition.kind)
                .filter(|own| own["status"] == status)
                .and_then(|own| own["lastTransitionTime"].as_str())
                .unwrap_or(observed.now);
            let mut shown = json!({"type": condition.kind, "status": status, "reason": condition.reason,
                                   "message": condition.message, "lastTransitionTime": since});
            if let Some(generation) = observed.config.pointer("/metadata/generation").and_then(Value::as_i64)
            {
                shown["observedGeneration"] = json!(generation);
            }
            shown
        })
        .collect()
}
