//! Which kinds of volumes a pod may use.
//!
//! Implements: `volumes`. A projected volume that holds nothing but an injected token counts as a secret.

use palisade_base::{field_error::FieldError, field_path::FieldPath, go::Quoted};
use palisade_model::volume::{Volume, VolumeSource};

use crate::scc::constraint::Constraint;

/// What constraints call a kind of volume: mostly the name of the field.
#[must_use]
pub const fn fs_type(source: VolumeSource) -> &'static str {
    match source {
        VolumeSource::Cephfs => "cephFS",
        VolumeSource::VsphereVolume => "vsphere",
        VolumeSource::Storageos => "storageOS",
        source => source.as_str(),
    }
}

/// The kind of a volume; one that names none is an `emptyDir` to the API server.
fn kind_of(volume: &Volume<'_>) -> VolumeSource {
    volume.sources().next().unwrap_or(VolumeSource::EmptyDir)
}

pub(in crate::scc) fn validate(
    constraint: &Constraint,
    volumes: &[Volume<'_>],
    problems: &mut Vec<FieldError>,
) {
    if constraint.allows_all_volumes() {
        return;
    }
    for (index, volume) in volumes.iter().enumerate() {
        let source = kind_of(volume);
        let kind = fs_type(source);
        let injected = source == VolumeSource::Projected && volume.is_service_account_token;
        if constraint.allows_volume(kind) || (injected && constraint.allows_volume("secret")) {
            continue;
        }
        let detail = format!("{kind} volumes are not allowed to be used");
        let at = FieldPath::of(&["spec", "volumes"]).index(index);
        problems.push(FieldError::invalid(at, Quoted(kind), detail));
    }
}
