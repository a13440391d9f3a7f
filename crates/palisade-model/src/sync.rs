//! Field and annotation of a new pod: which wins, and what must be copied.
//!
//! Implements: "Pod Creation" of the seccomp and AppArmor designs, and what shipped releases made of it
//! (`applySeccompVersionSkew`, `applyAppArmorVersionSkew`). Written when a pod is created, never for templates;
//! ephemeral containers never take part. [`crate::prepare`] calls both halves, with the projection of `containerDefaults`
//! between them. That both agree is checked by [`crate::validation`].

use palisade_base::version::NEWEST_MINOR;

use crate::{
    change::{Change, NewValue},
    compat::{Compat, SyncDirection},
    pod::Pod,
    pod_view::{ContainerKind, PodView},
    prepare::{Subject, container_mut},
    profile::{ProfileRef, apparmor, seccomp},
    security_context::ProfileField,
};

/// What bringing annotations and fields together did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Synced {
    /// What was written into the pod.
    pub changes: Vec<Change>,
    /// The warning for the user.
    pub warnings: Vec<String>,
}

/// The first half: an annotation without a field becomes the field.
pub(crate) fn fill_fields(pod: &mut Pod<'_>, subject: Subject, compat: &Compat, synced: &mut Synced) {
    fill_seccomp_fields(pod, subject, compat, &mut synced.changes);
    fill_app_armor_fields(pod, subject, compat, synced);
}

/// The second half, for two-way sync: a field without an annotation becomes the annotation.
pub(crate) fn annotate_fields(
    pod: &mut Pod<'_>,
    subject: Subject,
    compat: &Compat,
    changes: &mut Vec<Change>,
) {
    annotate_seccomp(pod, subject, compat, changes);
    annotate_app_armor(pod, subject, compat, changes);
}

/// Legacy seccomp annotations become fields, for an API server that no longer does it (v1.27 and later).
pub fn fill_seccomp(pod: &mut Pod<'_>) -> Vec<Change> {
    let mut changes = Vec::new();
    fill_seccomp_fields(pod, Subject::Pod, &Compat::kubernetes(LAST_TO_FILL_SECCOMP), &mut changes);
    changes
}

/// AppArmor annotations become fields, for an API server that no longer does it.
pub fn fill_app_armor(pod: &mut Pod<'_>) -> Synced {
    let mut synced = Synced::default();
    fill_app_armor_fields(pod, Subject::Pod, &Compat::kubernetes(NEWEST_MINOR), &mut synced);
    synced
}

/// The last release that filled seccomp fields from annotations.
const LAST_TO_FILL_SECCOMP: u16 = 26;

const SYNCED_KINDS: [ContainerKind; 2] = [ContainerKind::Init, ContainerKind::App];

/// Pods without any of these annotations have nothing to copy, which is nearly all of them.
fn has_annotations(pod: &Pod<'_>, prefixes: &[&str]) -> bool {
    let annotations = &pod.metadata.annotations;
    prefixes.iter().any(|prefix| annotations.with_prefix(prefix).next().is_some())
}

fn fill_seccomp_fields(pod: &mut Pod<'_>, subject: Subject, compat: &Compat, changes: &mut Vec<Change>) {
    let keys = [seccomp::POD_ANNOTATION, seccomp::CONTAINER_ANNOTATION_PREFIX];
    if compat.seccomp_sync() == SyncDirection::None || !has_annotations(pod, &keys) {
        return;
    }
    let field_of = |annotation: &str| {
        let reference = seccomp::from_annotation(annotation)?;
        reference.exists_in(compat).then(|| reference.to_field())
    };
    let unset = pod.spec.security_context.as_ref().is_none_or(|context| context.seccomp_profile.is_none());
    if unset && let Some(field) = pod.metadata.annotations.get(seccomp::POD_ANNOTATION).and_then(field_of) {
        let at = subject.path(&["spec", "securityContext", "seccompProfile"]);
        changes.push(Change { at, to: NewValue::Profile(field.clone()) });
        pod.spec.security_context.get_or_insert_default().seccomp_profile = Some(field);
    }
    for (kind, index) in synced_containers(pod) {
        let Some(container) = container_mut(pod, kind, index) else { continue };
        let key = seccomp::container_annotation(&container.name);
        if container.security_context.as_ref().is_some_and(|context| context.seccomp_profile.is_some()) {
            continue;
        }
        let Some(field) = pod.metadata.annotations.get(&key).and_then(field_of) else { continue };
        changes.push(fill(subject, kind, index, "seccompProfile", &field));
        if let Some(container) = container_mut(pod, kind, index) {
            container.security_context.get_or_insert_default().seccomp_profile = Some(field);
        }
    }
}

fn annotate_seccomp(pod: &mut Pod<'_>, subject: Subject, compat: &Compat, changes: &mut Vec<Change>) {
    if compat.seccomp_sync() != SyncDirection::TwoWay {
        return;
    }
    let annotation_of = |field: &ProfileField<'_>| {
        let reference = field.reference()?;
        reference.exists_in(compat).then(|| reference.to_annotation())
    };
    let field = pod.spec.security_context.as_ref().and_then(|context| context.seccomp_profile.as_ref());
    if let Some(value) = field.and_then(annotation_of) {
        annotate(pod, subject, seccomp::POD_ANNOTATION.to_owned(), value, changes);
    }
    for (kind, index) in synced_containers(pod) {
        let Some(container) = container_mut(pod, kind, index) else { continue };
        let field = container.security_context.as_ref().and_then(|context| context.seccomp_profile.as_ref());
        if let Some(value) = field.and_then(annotation_of) {
            let key = seccomp::container_annotation(&container.name);
            annotate(pod, subject, key, value, changes);
        }
    }
}

fn syncs_app_armor(pod: &Pod<'_>, compat: &Compat) -> bool {
    compat.app_armor_sync() != SyncDirection::None && compat.keeps_app_armor() && !pod.spec.is_windows()
}

fn fill_app_armor_fields(pod: &mut Pod<'_>, subject: Subject, compat: &Compat, synced: &mut Synced) {
    if !syncs_app_armor(pod, compat) || !has_annotations(pod, &[apparmor::ANNOTATION_PREFIX]) {
        return;
    }
    let pod_field = pod.spec.security_context.as_ref().and_then(|context| context.app_armor_profile.clone());
    for (kind, index) in synced_containers(pod) {
        let Some(container) = container_mut(pod, kind, index) else { continue };
        let key = apparmor::annotation(&container.name);
        if container.security_context.as_ref().is_some_and(|context| context.app_armor_profile.is_some()) {
            continue;
        }
        let Some(annotation) = pod.metadata.annotations.get(&key) else { continue };
        let derived = app_armor_from_annotation(annotation, compat).map(|reference| reference.to_field());
        if derived.is_some() && derived == pod_field {
            continue;
        }
        synced
            .warnings
            .push(format!("metadata.annotations[{key}]: {}", compat.app_armor_annotation_warning()));
        if let Some(field) = derived {
            synced.changes.push(fill(subject, kind, index, "appArmorProfile", &field));
            if let Some(container) = container_mut(pod, kind, index) {
                container.security_context.get_or_insert_default().app_armor_profile = Some(field);
            }
        }
    }
}

fn annotate_app_armor(pod: &mut Pod<'_>, subject: Subject, compat: &Compat, changes: &mut Vec<Change>) {
    if compat.app_armor_sync() != SyncDirection::TwoWay || !syncs_app_armor(pod, compat) {
        return;
    }
    let pod_field = pod.spec.security_context.as_ref().and_then(|context| context.app_armor_profile.clone());
    for (kind, index) in synced_containers(pod) {
        let Some(container) = container_mut(pod, kind, index) else { continue };
        let own = container.security_context.as_ref().and_then(|context| context.app_armor_profile.as_ref());
        // There is no pod-level annotation: the pod's profile is written for every container.
        let reference = own.or(pod_field.as_ref()).and_then(app_armor_reference);
        if let Some(value) = reference.map(|reference| reference.to_annotation()) {
            let key = apparmor::annotation(&container.name);
            annotate(pod, subject, key, value, changes);
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
    field.reference().filter(|reference| !reference.is_of_tenant())
}

fn synced_containers(pod: &Pod<'_>) -> Vec<(ContainerKind, usize)> {
    PodView::of_pod(pod)
        .containers()
        .filter(|container| SYNCED_KINDS.contains(&container.kind))
        .map(|container| (container.kind, container.index))
        .collect()
}

fn annotate(pod: &mut Pod<'_>, subject: Subject, key: String, value: String, changes: &mut Vec<Change>) {
    if pod.metadata.annotations.contains(&key) {
        return;
    }
    let at = subject.path(&["metadata", "annotations"]).key(&key);
    changes.push(Change { at, to: NewValue::Text(value.clone()) });
    pod.metadata.annotations.insert(key, value);
}

fn fill(
    subject: Subject,
    kind: ContainerKind,
    index: usize,
    field: &'static str,
    profile: &ProfileField<'static>,
) -> Change {
    let at = subject.path(&["spec", kind.field()]).index(index).fields(&["securityContext", field]);
    Change { at, to: NewValue::Profile(profile.clone()) }
}
