//! What to write into `PSAEnforcementConfig`.

use palisade_policy::{
    enforcement::{
        conditions::{Condition, conditions},
        mode::{Release, SpecMode, StatusMode},
        state::{Evaluation, Inputs, Instances, Outputs, decide},
        violations::{Entry, bounded, update},
    },
    standards::level::Level,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cluster::Cluster;

/// Everything the decision depends on besides the cluster's objects.
#[derive(Debug, Clone, Copy)]
pub struct Observed<'o> {
    /// The release.
    pub release: Release,
    /// The feature gate.
    pub gate: bool,
    /// The `PSAEnforcementConfig`; null if there is none.
    pub config: &'o Value,
    /// What the API servers do.
    pub instances: Instances,
    /// What the global configuration asks for now.
    pub requested: Level,
    /// Whether the cluster's objects have all been seen once.
    pub has_synced: bool,
    /// What keeps the controllers from working, if anything.
    pub degraded: Option<&'o str>,
    /// The time, RFC 3339.
    pub now: &'o str,
}

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// What the other controllers are to do.
    pub outputs: Outputs,
    /// The mode to write into the spec.
    pub spec: Option<SpecMode>,
    /// The status to write; `None` if the one that is there is right.
    pub status: Option<Value>,
}

/// Decides.
#[must_use]
pub fn plan(observed: &Observed<'_>, cluster: &Cluster) -> Plan {
    let mode = |pointer: &str| observed.config.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let inputs = Inputs {
        release: observed.release,
        gate: observed.gate,
        // What the API would refuse cannot be asked for.
        spec: mode("/spec/enforcementMode").parse().unwrap_or_default(),
        status: StatusMode::read(mode("/status/enforcementMode")),
        evaluation: if observed.has_synced { cluster.evaluation() } else { Evaluation::NotEvaluated },
        labels_done: observed.has_synced && cluster.unlabelled().len() == 0,
        instances: observed.instances,
        restricted_requested: observed.requested == Level::Restricted,
    };
    let outputs = decide(inputs);
    let status = outputs.status.map(|mode| status(observed, cluster, inputs, outputs, mode));
    let current = observed.config.get("status").unwrap_or(&Value::Null);
    Plan { outputs, spec: outputs.spec_write, status: status.filter(|status| status != current) }
}

fn status(
    observed: &Observed<'_>,
    cluster: &Cluster,
    inputs: Inputs,
    outputs: Outputs,
    mode: StatusMode,
) -> Value {
    let current = observed.config.get("status").unwrap_or(&Value::Null);
    let entries = read_list::<Entry>(&current["violatingNamespaces"]);
    // Once enforcement has begun, violations decide nothing, and the list stays as evidence of why it began or not.
    let frozen = observed.instances != Instances::None || inputs.restricted_requested;
    let entries = if frozen || !observed.has_synced {
        entries
    } else {
        update(&entries, &cluster.verdicts(), observed.now)
    };
    let (shown, mut count) = bounded(entries);
    if frozen || !observed.has_synced {
        count = current["violatingNamespaceCount"]
            .as_u64()
            .and_then(|n| usize::try_from(n).ok())
            .unwrap_or(count);
    }
    let mut status = json!({
        "enforcementMode": mode.as_str(),
        "violatingNamespaceCount": count,
        "conditions": conditions_with_times(
            &conditions(inputs, outputs, count, observed.degraded),
            &current["conditions"],
            observed.now,
        ),
    });
    if !shown.is_empty() {
        status["violatingNamespaces"] = json!(shown);
    }
    status
}

fn read_list<T: for<'de> Deserialize<'de>>(value: &Value) -> Vec<T> {
    value.as_array().into_iter().flatten().filter_map(|item| T::deserialize(item).ok()).collect()
}

/// A condition's time moves only when its status does.
fn conditions_with_times(conditions: &[Condition], current: &Value, now: &str) -> Vec<Value> {
    let before = |kind: &str| current.as_array().into_iter().flatten().find(|own| own["type"] == kind);
    conditions
        .iter()
        .map(|condition| {
            let status = if condition.status { "True" } else { "False" };
            let since = before(condition.kind)
                .filter(|own| own["status"] == status)
                .and_then(|own| own["lastTransitionTime"].as_str())
                .unwrap_or(now);
            json!({"type": condition.kind, "status": status, "reason": condition.reason,
                   "message": condition.message, "lastTransitionTime": since})
        })
        .collect()
}
