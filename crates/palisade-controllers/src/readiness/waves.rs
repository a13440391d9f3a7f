//! What to write into the status of the `PodSecurityRollout`.

use palisade_base::time::rfc3339;
use palisade_policy::enforcement::{
    level::LevelSource,
    state::{EnforceLabels, Outputs},
    waves::{Rollout, WaveFacts, advance, status},
};
use serde_json::Value;

use crate::cluster::{Cluster, NamespaceRecord};

/// The status to write; `None` if the one that is there is right. `now` is in seconds since 1970.
#[must_use]
pub fn plan(object: &Value, outputs: Outputs, cluster: &Cluster, now: i64) -> Option<Value> {
    let rollout = Rollout::read(object);
    let before = &object["status"];
    let waves = match &rollout.spec {
        Ok(spec) => {
            let facts = facts(&rollout, spec.waves.len(), cluster);
            let active = matches!(outputs.enforce_labels, EnforceLabels::Set | EnforceLabels::Loosen);
            advance(spec, &rollout.waves, &facts, active, now)
        }
        // Nothing moves until the spec is right.
        Err(_) => rollout.waves.clone(),
    };
    let wanted = status(&rollout, &waves, before, &object["metadata"]["generation"], &rfc3339(now));
    (wanted != *before).then_some(wanted)
}

/// What is observed of each wave.
fn facts(rollout: &Rollout, waves: usize, cluster: &Cluster) -> Vec<WaveFacts> {
    let mut facts = vec![WaveFacts::default(); waves];
    for namespace in cluster.namespaces().filter(|namespace| counts(namespace, cluster.levels())) {
        let wave = rollout.wave_of(namespace.labels()).and_then(|wave| facts.get_mut(wave));
        let Some(wave) = wave else { continue };
        wave.namespaces += 1;
        wave.missing += usize::from(!cluster.has_label(namespace.name()));
        wave.rejected.extend(cluster.rejections(namespace.name()).cloned());
    }
    facts
}

/// Whether a namespace gets a label: others are not waited for in a wave.
fn counts(namespace: &NamespaceRecord, levels: LevelSource) -> bool {
    let has_level = levels == LevelSource::Workloads || namespace.level().level.is_some();
    namespace.is_managed() && !namespace.is_terminating() && has_level
}
