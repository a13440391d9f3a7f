//! A pod may not mount folders of the node.
//!
//! Implements: Pod Security Standards, Baseline, "HostPath Volumes".

use palisade_model::volume::VolumeSource;

use super::super::cel::{self, CelRules};
use super::{Check, CheckVersion, Finding, Level, Options, PodView, Remedy, Violation, message};

pub(super) static CHECK: Check = Check {
    id: "hostPathVolumes",
    level: Level::Baseline,
    title: "HostPath Volumes",
    why: "a folder of the node is a way out of the container",
    versions: &[CheckVersion { since: 0, overrides: &[], run: since_v1_0, cel: cel_since_v1_0 }],
};

fn since_v1_0(pod: &PodView<'_, '_>, _: Options) -> Option<Violation> {
    let bad: Vec<_> = pod
        .spec()
        .volumes
        .iter()
        .enumerate()
        .filter(|(_, volume)| volume.has(VolumeSource::HostPath))
        .collect();
    if bad.is_empty() {
        return None;
    }
    let names: Vec<_> = bad.iter().map(|(_, volume)| volume.name.as_str()).collect();
    let detail = format!("{} {}", message::plural("volume", "volumes", bad.len()), message::quoted(&names));
    let findings = bad
        .iter()
        .map(|(index, volume)| Finding {
            path: pod.path(&["spec", "volumes"]).index(*index).field("hostPath"),
            container: None,
            value: Some(volume.host_path.as_str().to_owned()),
            summary: format!("volume \"{}\" is a hostPath volume", volume.name),
            allowed: "any other volume type",
            remedy: Remedy::Manual(
                "what the workload reads or writes on the node must be provided another way",
            ),
        })
        .collect();
    Some(Violation { check: CHECK.id, reason: "hostPath volumes", detail, findings, masked: Vec::new() })
}

fn cel_since_v1_0(rules: &mut CelRules) -> String {
    let field = VolumeSource::HostPath.as_str();
    let names =
        rules.define("hostPathVolumeNames", format!("variables.volumes.map(v, has(v.{field}), v.name)"));
    let detail = format!("{} + {}", cel::plural("volume ", "volumes ", &names), cel::quoted(&names));
    cel::violation(&cel::some(&names), "hostPath volumes", &detail)
}
