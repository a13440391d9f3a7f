//! A pod may use only volumes whose content the cluster controls.
//!
//! Implements: Pod Security Standards, Restricted, "Volume Types".

use palisade_model::volume::{Volume, VolumeSource};

use super::super::cel::{self, CelRules};
use super::{Check, CheckVersion, Finding, Level, Options, PodView, Remedy, Violation, message};

const ALLOWED: &[VolumeSource] = &[
    VolumeSource::ConfigMap,
    VolumeSource::Csi,
    VolumeSource::DownwardApi,
    VolumeSource::EmptyDir,
    VolumeSource::Ephemeral,
    VolumeSource::PersistentVolumeClaim,
    VolumeSource::Projected,
    VolumeSource::Secret,
];

pub(super) static CHECK: Check = Check {
    id: "restrictedVolumes",
    level: Level::Restricted,
    title: "Volume Types",
    why: "volumes defined inside a pod bypass the cluster's storage administration",
    versions: &[CheckVersion {
        since: 0,
        overrides: &["hostPathVolumes"],
        run: since_v1_0,
        cel: cel_since_v1_0,
    }],
};

fn since_v1_0(pod: &PodView<'_, '_>, options: Options) -> Option<Violation> {
    let is_allowed = |volume: &Volume<'_>| {
        ALLOWED.iter().any(|&source| volume.has(source))
            || (options.knows_image_volumes && volume.has(VolumeSource::Image))
    };
    let bad: Vec<_> =
        pod.spec().volumes.iter().enumerate().filter(|(_, volume)| !is_allowed(volume)).collect();
    if bad.is_empty() {
        return None;
    }
    let kind = |volume: &Volume<'_>| {
        volume.sources().find(|&source| source != VolumeSource::Image).map_or("unknown", VolumeSource::as_str)
    };
    let names: Vec<_> = bad.iter().map(|(_, volume)| volume.name.as_str()).collect();
    let kinds = message::sorted_unique(bad.iter().map(|(_, volume)| kind(volume)).collect());
    let detail = format!(
        "{} {} {} {} {}",
        message::plural("volume", "volumes", names.len()),
        message::quoted(&names),
        message::plural("uses", "use", names.len()),
        message::plural("restricted volume type", "restricted volume types", kinds.len()),
        message::quoted(&kinds)
    );
    let findings = bad
        .iter()
        .map(|(index, volume)| {
            let path = pod.path(&["spec", "volumes"]).index(*index);
            let kind = kind(volume);
            Finding {
                path: if kind == "unknown" { path } else { path.field(kind) },
                container: None,
                value: (kind == "hostPath").then(|| volume.host_path.as_str().to_owned()),
                summary: format!("volume \"{}\" is of the type {kind}", volume.name),
                allowed: "configMap, csi, downwardAPI, emptyDir, ephemeral, image, persistentVolumeClaim, projected or secret",
                remedy: Remedy::Manual("the data must be provided through an allowed volume type, such as a persistentVolumeClaim"),
            }
        })
        .collect();
    Some(Violation {
        check: CHECK.id,
        reason: "restricted volume types",
        detail,
        findings,
        masked: Vec::new(),
    })
}

/// Whether a volume has no source that is allowed.
pub(in crate::standards) fn cel_is_bad(volume: &str, options: Options) -> String {
    let image = options.knows_image_volumes.then_some(&VolumeSource::Image);
    let allowed = ALLOWED.iter().chain(image).map(|source| format!("has({volume}.{})", source.as_str()));
    format!("!({})", allowed.collect::<Vec<_>>().join(" || "))
}

/// The sources that make a volume a restricted one, in upstream's order.
pub(in crate::standards) fn forbidden() -> impl Iterator<Item = VolumeSource> {
    let others = VolumeSource::ALL.iter().copied();
    others.filter(|source| !ALLOWED.contains(source) && *source != VolumeSource::Image)
}

/// The type of a restricted volume.
pub(in crate::standards) fn cel_kind(volume: &str) -> String {
    let kinds = forbidden().map(|source| format!("has({volume}.{0}) ? '{0}' : ", source.as_str()));
    kinds.collect::<String>() + "'unknown'"
}

fn cel_since_v1_0(rules: &mut CelRules) -> String {
    let bad = cel_is_bad("v", rules.options());
    let names = rules.define("restrictedVolumeNames", format!("variables.volumes.map(v, {bad}, v.name)"));
    let kind = cel_kind("v");
    let kinds = rules.sorted_unique(&format!("variables.volumes.map(v, {bad}, {kind})"));
    let kinds = rules.define("restrictedVolumeTypes", kinds);
    let detail = format!(
        "{} + {} + {} + {} + {}",
        cel::plural("volume ", "volumes ", &names),
        cel::quoted(&names),
        cel::plural(" uses ", " use ", &names),
        cel::plural("restricted volume type ", "restricted volume types ", &kinds),
        cel::quoted(&kinds)
    );
    cel::violation(&cel::some(&names), "restricted volume types", &detail)
}
