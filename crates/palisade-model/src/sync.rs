//! Field and annotation of a new pod: which wins, and what must be copied.
//!
//! Implements: "Pod Creation" of the seccomp and AppArmor designs, and what shipped releases made of it
//! (`applySeccompVersionSkew`, `applyAppArmorVersionSkew`). Runs when a pod is created and never for templates;
//! ephemeral containers never take part. That both agree is checked by [`crate::validation`].

use crate::{
    change::{Change, NewValue},
    compat::{Compat, NEWEST_MINOR, SyncDirection},
    pod::Pod,
    pod_view::{ContainerKind, PodView},
    prepare::container_mut,
    profile::{ProfileRef, apparmor, seccomp},
    security_context::ProfileField,
};

/// What bringing annotations and fields together did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Synced {
    /// What was written into the pod.
    pub changes: Vec<Change>,
    /// What the user should hear.
    pub warnings: Vec<String>,
}

/// Brings the annotations and fields of a new pod together, in place.
pub fn sync(pod: &mut Pod<'_>, compat: &Compat) -> Synced {
    let mut synced = Synced::default();
    sync_seccomp(pod, compat, &mut synced.changes);
    sync_app_armor(pod, compat, &mut synced);
    synced
}

/// Legacy seccomp annotations become fields, for an API server that no longer does it (v1.27 and later).
pub fn fill_seccomp(pod: &mut Pod<'_>) -> Vec<Change> {
    let mut changes = Vec::new();
    sync_seccomp(pod, &Compat::kubernetes(LAST_TO_FILL_SECCOMP), &mut changes);
    changes
}

/// AppArmor annotations become fields, for an API server that no longer does it.
pub fn fill_app_armor(pod: &mut Pod<'_>) -> Synced {
    let mut synced = Synced::default();
    sync_app_armor(pod, &Compat::kubernetes(NEWEST_MINOR), &mut synced);
    synced
}

/// The last release that filled seccomp fields from annotations.
const LAST_TO_FILL_SECCOMP: u16 = 26;

const SYNCED_KINDS: [ContainerKind; 2] = [ContainerKind::Init, ContainerKind::App];

fn sync_seccomp(pod: &mut Pod<'_>, compat: &Compat, changes: &mut Vec<Change>) {
    let direction = compat.seccomp_sync();
    if direction == SyncDirection::None {
        return;
    }
    let has_config_maps = compat.has_config_map_profiles();
    let decide = |field: Option<&ProfileField<'_>>, annotation: Option<&str>| match (field, annotation) {
        (Some(field), None) if direction == SyncDirection::TwoWay => {
            let reference = field.reference().filter(|r| has_config_maps || !is_config_map(r))?;
            Some(Decision::Annotate(reference.to_annotation()))
        }
        (None, Some(annotation)) => {
            let reference =
                seccomp::from_annotation(annotation).filter(|r| has_config_maps || !is_config_map(r))?;
            Some(Decision::Fill(reference.to_field()))
        }
        _ => None,
    };

    let context = pod.spec.security_context.as_ref();
    let decision = decide(
        context.and_then(|context| context.seccomp_profile.as_ref()),
        pod.metadata.annotations.get(seccomp::POD_ANNOTATION),
    );
    match decision {
        Some(Decision::Annotate(value)) => annotate(pod, seccomp::POD_ANNOTATION.to_owned(), value, changes),
        Some(Decision::Fill(field)) => {
            let at = PodView::of_pod(pod).path(&["spec", "securityContext", "seccompProfile"]);
            changes.push(Change { at, to: NewValue::Profile(field.clone()) });
            pod.spec.security_context.get_or_insert_default().seccomp_profile = Some(field);
        }
        None => {}
    }

    for (kind, index) in synced_containers(pod) {
        let Some(container) = container_mut(pod, kind, index) else { continue };
        let key = seccomp::container_annotation(&container.name);
        let field = container.security_context.as_ref().and_then(|c| c.seccomp_profile.as_ref()).cloned();
        match decide(field.as_ref(), pod.metadata.annotations.get(&key)) {
            Some(Decision::Annotate(value)) => annotate(pod, key, value, changes),
            Some(Decision::Fill(field)) => {
                fill(pod, kind, index, "seccompProfile", &field, changes);
                if let Some(container) = container_mut(pod, kind, index) {
                    container.security_context.get_or_insert_default().seccomp_profile = Some(field);
                }
            }
            None => {}
        }
    }
}

fn sync_app_armor(pod: &mut Pod<'_>, compat: &Compat, synced: &mut Synced) {
    let direction = compat.app_armor_sync();
    if direction == SyncDirection::None || !compat.keeps_app_armor() || pod.spec.is_windows() {
        return;
    }
    let pod_field = pod.spec.security_context.as_ref().and_then(|context| context.app_armor_profile.clone());

    for (kind, index) in synced_containers(pod) {
        let Some(container) = container_mut(pod, kind, index) else { continue };
        let key = apparmor::annotation(&container.name);
        let field = container.security_context.as_ref().and_then(|c| c.app_armor_profile.clone());
        let annotation = pod.metadata.annotations.get(&key);
        match (&field, annotation) {
            (_, None) if direction == SyncDirection::TwoWay => {
                // There is no pod-level annotation: the pod's profile is written for every container.
                let reference = field.as_ref().or(pod_field.as_ref()).and_then(app_armor_reference);
                if let Some(reference) = reference {
                    let value = reference.to_annotation();
                    annotate(pod, key, value, &mut synced.changes);
                }
            }
            (None, Some(annotation)) => {
                let derived =
                    app_armor_from_annotation(annotation, compat).map(|reference| reference.to_field());
                if derived.is_some() && derived == pod_field {
                    continue;
                }
                synced.warnings.push(format!(
                    "metadata.annotations[{key}]: deprecated since v1.30; use the \"appArmorProfile\" field instead"
                ));
                if let Some(field) = derived {
                    fill(pod, kind, index, "appArmorProfile", &field, &mut synced.changes);
                    if let Some(container) = container_mut(pod, kind, index) {
                        container.security_context.get_or_insert_default().app_armor_profile = Some(field);
                    }
                }
            }
            _ => {}
        }
    }
}

/// What an AppArmor annotation refers to. The design gives the empty value a meaning that releases never had.
pub(crate) fn app_armor_from_annotation<'v>(value: &'v str, compat: &Compat) -> Option<ProfileRef<'v>> {
    if value.is_empty() && compat.is_designs() {
        return Some(ProfileRef::RuntimeDefault);
    }
    apparmor::from_annotation(value)
}

fn app_armor_reference<'a>(field: &ProfileField<'a>) -> Option<ProfileRef<'a>> {
    field.reference().filter(|reference| !is_config_map(reference))
}

enum Decision {
    Annotate(String),
    Fill(ProfileField<'static>),
}

const fn is_config_map(reference: &ProfileRef<'_>) -> bool {
    matches!(reference, ProfileRef::ConfigMap { .. })
}

fn synced_containers(pod: &Pod<'_>) -> Vec<(ContainerKind, usize)> {
    PodView::of_pod(pod)
        .containers()
        .filter(|container| SYNCED_KINDS.contains(&container.kind))
        .map(|container| (container.kind, container.index))
        .collect()
}

fn annotate(pod: &mut Pod<'_>, key: String, value: String, changes: &mut Vec<Change>) {
    let at = PodView::of_pod(pod).annotation_path(&key);
    changes.push(Change { at, to: NewValue::Text(value.clone()) });
    pod.metadata.annotations.insert(key, value);
}

fn fill(
    pod: &Pod<'_>,
    kind: ContainerKind,
    index: usize,
    field: &'static str,
    profile: &ProfileField<'static>,
    changes: &mut Vec<Change>,
) {
    let path = PodView::of_pod(pod).path(&["spec", kind.field()]).index(index);
    let at = path.fields(&["securityContext", field]);
    changes.push(Change { at, to: NewValue::Profile(profile.clone()) });
}
