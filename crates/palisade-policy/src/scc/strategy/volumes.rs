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

pub(in crate::scc) fn validate(
    constraint: &Constraint,
    volumes: &[Volume<'_>],
    problems: &mut Vec<FieldError>,
) {
    if constraint.allows_all_volumes() {
        return;
    }
    for (index, volume) in volumes.iter().enumerate() {
        let allows = |source: VolumeSource| {
            let injected = source == VolumeSource::Projected && volume.is_service_account_token;
            constraint.allows_volume(fs_type(source)) || (injected && constraint.allows_volume("secret"))
        };
        // An API server stores one source for each volume, and an `emptyDir` where none is named. A source that is not known is
        // not allowed, and neither is a second one beside one that is.
        let refused = volume.sources().find(|&source| !allows(source)).map(fs_type);
        let Some(kind) = refused.or_else(|| volume.has_unknown_source().then_some("unknown")) else {
            continue;
        };
        let detail = format!("{kind} volumes are not allowed to be used");
        let at = FieldPath::of(&["spec", "volumes"]).index(index);
        problems.push(FieldError::invalid(at, Quoted(kind), detail));
    }
}

#[cfg(test)]
mod tests {
    use palisade_model::{compat::Compat, pod::Pod, prepare::Prepared};
    use serde_json::json;

    use super::{Constraint, validate};

    #[test]
    fn every_source_of_a_volume_must_be_allowed() {
        let constraint = Constraint::read(&json!({"volumes": ["emptyDir", "secret"]})).unwrap();
        for (volume, refused) in [
            (r#"{"name":"v"}"#, None),
            (r#"{"name":"v","emptyDir":{}}"#, None),
            (r#"{"name":"v","hostPath":null,"secret":{}}"#, None),
            (r#"{"name":"v","projected":{"sources":[{"serviceAccountToken":{"path":"token"}}]}}"#, None),
            (r#"{"name":"v","hostPath":{}}"#, Some("hostPath")),
            (r#"{"name":"v","emptyDir":{},"hostPath":{}}"#, Some("hostPath")),
            (r#"{"name":"v","secret":{},"cephfs":{}}"#, Some("cephFS")),
            (r#"{"name":"v","futureVolume":{}}"#, Some("unknown")),
            (r#"{"name":"v","emptyDir":{},"futureVolume":{}}"#, Some("unknown")),
        ] {
            let text = format!(r#"{{"spec":{{"volumes":[{volume}],"containers":[]}}}}"#);
            let pod = Prepared::stored(serde_json::from_str::<Pod<'_>>(&text).unwrap(), &Compat::designs());
            let mut problems = Vec::new();
            validate(&constraint, &pod.spec().volumes, &mut problems);
            let expected: Vec<_> = refused
                .map(|kind| format!("{kind} volumes are not allowed to be used"))
                .into_iter()
                .collect();
            let found: Vec<_> = problems.iter().map(|problem| problem.detail.to_string()).collect();
            assert_eq!(found, expected, "{volume}");
        }
    }
}
