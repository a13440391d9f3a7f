//! What an API server does to a pod between reading and judging it: unknown and gated fields go, defaults come.
//!
//! Implements: the part of `SetDefaults_PodSpec` and of the pod strategy's `PrepareForCreate` that decides the
//! outcome of security checks. The designs keep the fields of their own; a release forgets what it never had.

use crate::{
    change::{Change, NewValue},
    compat::{ApiServer, Compat},
    pod::{Container, Pod},
    pod_view::{ContainerKind, ContainerRef, PodView},
    profile::apparmor,
    security_context::ProfileField,
    text::Text,
    volume::VolumeSource,
};

/// Where a pod comes from: some defaults are for pods alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// A pod of its own.
    Pod,
    /// The template inside a workload.
    Template(&'static [&'static str]),
}

impl Subject {
    /// The view of a pod or template.
    #[must_use]
    pub const fn view<'p, 'a>(self, pod: &'p Pod<'a>) -> PodView<'p, 'a> {
        match self {
            Self::Pod => PodView::of_pod(pod),
            Self::Template(base) => PodView::of_template(pod, base),
        }
    }
}

/// Prepares a new pod or template. The changes returned are those that an API server makes to the stored object
/// because of feature gates; defaults and forgotten fields are made in `pod` alone.
pub fn prepare_for_create(pod: &mut Pod<'_>, subject: Subject, compat: &Compat) -> Vec<Change> {
    forget_unknown_fields(pod, compat);
    set_defaults(pod, subject, compat);
    let mut changes = Vec::new();
    drop_app_armor(pod, subject, compat, &mut changes);
    reset_proc_mount(pod, subject, compat, &mut changes);
    changes
}

/// Prepares the new version of a pod: gated fields stay if the old version used them.
pub fn prepare_for_update(
    pod: &mut Pod<'_>,
    old: &Pod<'_>,
    subject: Subject,
    compat: &Compat,
) -> Vec<Change> {
    forget_unknown_fields(pod, compat);
    set_defaults(pod, subject, compat);
    let mut changes = Vec::new();
    if !uses_app_armor(old) {
        drop_app_armor(pod, subject, compat, &mut changes);
    }
    if !uses_proc_mount(old) {
        reset_proc_mount(pod, subject, compat, &mut changes);
    }
    changes
}

/// Fields that the release does not know are never stored, and so never judged.
fn forget_unknown_fields(pod: &mut Pod<'_>, compat: &Compat) {
    let designs = matches!(compat.api, ApiServer::Designs);
    let forget_profile = |profile: &mut Option<ProfileField<'_>>| {
        if let Some(profile) = profile
            && !compat.has_config_map_profiles()
        {
            profile.config_map_profile = None;
        }
    };
    if let Some(context) = &mut pod.spec.security_context {
        if !compat.has_app_armor_fields() {
            context.app_armor_profile = None;
        }
        forget_profile(&mut context.seccomp_profile);
        if compat.api_minor() < 33 {
            // The gate SupplementalGroupsPolicy is on by default since v1.33.
            context.supplemental_groups_policy = None;
        }
        if compat.api_minor() < 33 {
            // The gate SELinuxChangePolicy is on by default since v1.33.
            context.se_linux_change_policy = None;
        }
        if !designs {
            context.container_defaults = None;
            context.host_network = None;
            context.host_ipc = None;
        }
    }
    if !compat.keeps_host_users() {
        pod.spec.host_users = None;
    }
    if compat.api_minor() < 24 {
        // The gate IdentifyPodOS is on by default since v1.24.
        pod.spec.os = None;
    }
    if compat.api_minor() < 31 {
        for volume in &mut pod.spec.volumes {
            volume.forget(VolumeSource::Image);
        }
    }
    if compat.api_minor() < 23 {
        pod.spec.ephemeral_containers.clear();
    }
    for container in all_containers(pod) {
        if let Some(context) = &mut container.security_context {
            if !compat.has_app_armor_fields() {
                context.app_armor_profile = None;
            }
            forget_profile(&mut context.seccomp_profile);
            if !designs {
                context.run_with_supplemental_groups = None;
            }
        }
    }
}

fn set_defaults(pod: &mut Pod<'_>, subject: Subject, compat: &Compat) {
    for volume in &mut pod.spec.volumes {
        volume.set_default_source();
    }
    pod.spec.security_context.get_or_insert_default();
    for container in all_containers(pod) {
        for port in &mut container.ports {
            if port.protocol.is_empty() {
                port.protocol = Text::borrowed("TCP");
            }
        }
    }
    // Templates had their host ports filled in as well until v1.28.
    let fills_host_ports = subject == Subject::Pod || compat.api_minor() < 28;
    if pod.spec.host_network == Some(true) && fills_host_ports {
        for container in pod.spec.init_containers.iter_mut().chain(&mut pod.spec.containers) {
            for port in &mut container.ports {
                if port.host_port == 0 {
                    port.host_port = port.container_port;
                }
            }
        }
    }
}

fn drop_app_armor(pod: &mut Pod<'_>, subject: Subject, compat: &Compat, changes: &mut Vec<Change>) {
    if compat.keeps_app_armor() {
        return;
    }
    let view = subject.view(pod);
    for (_, key, _) in view.metadata().annotations.with_prefix(apparmor::ANNOTATION_PREFIX) {
        changes.push(Change { at: view.annotation_path(key), to: NewValue::Removed });
    }
    if view.security_context().is_some_and(|context| context.app_armor_profile.is_some()) {
        let at = view.path(&["spec", "securityContext", "appArmorProfile"]);
        changes.push(Change { at, to: NewValue::Removed });
    }
    for container in view.containers() {
        if container.security_context().is_some_and(|context| context.app_armor_profile.is_some()) {
            let at = container.path(&view).fields(&["securityContext", "appArmorProfile"]);
            changes.push(Change { at, to: NewValue::Removed });
        }
    }
    pod.metadata.annotations.retain(|key, _| !apparmor::is_annotation(key));
    if let Some(context) = &mut pod.spec.security_context {
        context.app_armor_profile = None;
    }
    for container in all_containers(pod) {
        if let Some(context) = &mut container.security_context {
            context.app_armor_profile = None;
        }
    }
}

fn reset_proc_mount(pod: &mut Pod<'_>, subject: Subject, compat: &Compat, changes: &mut Vec<Change>) {
    if compat.keeps_proc_mount() {
        return;
    }
    let view = subject.view(pod);
    for container in view.containers() {
        let set = container.security_context().and_then(|context| context.proc_mount.as_ref());
        if set.is_some_and(|value| *value != "Default") {
            let at = container.path(&view).fields(&["securityContext", "procMount"]);
            changes.push(Change { at, to: NewValue::Text("Default".to_owned()) });
        }
    }
    for container in all_containers(pod) {
        if let Some(value) =
            container.security_context.as_mut().and_then(|context| context.proc_mount.as_mut())
        {
            *value = Text::borrowed("Default");
        }
    }
}

fn uses_app_armor(pod: &Pod<'_>) -> bool {
    pod.metadata.annotations.iter().any(|(key, _)| apparmor::is_annotation(key))
        || pod.spec.security_context.as_ref().is_some_and(|context| context.app_armor_profile.is_some())
        || PodView::of_pod(pod)
            .containers()
            .any(|container| container.security_context().is_some_and(|c| c.app_armor_profile.is_some()))
}

fn uses_proc_mount(pod: &Pod<'_>) -> bool {
    PodView::of_pod(pod).containers().any(|container: ContainerRef<'_, '_>| {
        container
            .security_context()
            .and_then(|context| context.proc_mount.as_ref())
            .is_some_and(|value| *value != "Default")
    })
}

pub(crate) fn all_containers<'p, 'a>(pod: &'p mut Pod<'a>) -> impl Iterator<Item = &'p mut Container<'a>> {
    let spec = &mut pod.spec;
    spec.init_containers.iter_mut().chain(&mut spec.containers).chain(&mut spec.ephemeral_containers)
}

pub(crate) fn container_mut<'p, 'a>(
    pod: &'p mut Pod<'a>,
    kind: ContainerKind,
    index: usize,
) -> Option<&'p mut Container<'a>> {
    let list = match kind {
        ContainerKind::Init => &mut pod.spec.init_containers,
        ContainerKind::App => &mut pod.spec.containers,
        ContainerKind::Ephemeral => &mut pod.spec.ephemeral_containers,
    };
    list.get_mut(index)
}
