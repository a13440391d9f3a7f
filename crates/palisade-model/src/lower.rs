//! The pod-security-context proposal, turned into the fields that Kubernetes has.
//!
//! Implements: `containerDefaults`, `runAsGroup`, `runWithSupplementalGroups`, and `hostNetwork`/`hostIPC` inside the
//! pod's security context. What the v1 API knows at pod level goes there; capabilities and `privileged` go to every
//! container that does not say otherwise. Groups of a single container have no v1 field and are reported.

use serde_json::{Value, json};

use crate::{
    field_path::FieldPath, pod::Pod, pod_view::PodView, prepare::all_containers,
    security_context::SecurityContext,
};

/// One step of the lowering.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lowering {
    /// Put this value there.
    Set(FieldPath, Value),
    /// Take this field away.
    Remove(FieldPath),
    /// This cannot be said in v1.
    Impossible(FieldPath, &'static str),
}

/// What must be written to say the same in v1 fields; empty if nothing of the proposal is used.
#[must_use]
pub fn lower(view: &PodView<'_, '_>) -> Vec<Lowering> {
    let mut steps = Vec::new();
    let Some(context) = view.security_context() else { return steps };
    let context_path = |field: &'static str| view.path(&["spec", "securityContext", field]);

    for (field, proposed, current) in [
        ("hostNetwork", context.host_network, view.spec().host_network),
        ("hostIPC", context.host_ipc, view.spec().host_ipc),
    ] {
        let Some(value) = proposed else { continue };
        if current.is_none() && value {
            steps.push(Lowering::Set(view.path(&["spec", field]), json!(value)));
        }
        steps.push(Lowering::Remove(context_path(field)));
    }

    if let Some(defaults) = context.container_defaults.as_deref() {
        for (field, value, current) in [
            ("runAsUser", defaults.run_as_user.map(|v| json!(v)), context.run_as_user.is_some()),
            ("runAsGroup", defaults.run_as_group.map(|v| json!(v)), context.run_as_group.is_some()),
            ("runAsNonRoot", defaults.run_as_non_root.map(|v| json!(v)), context.run_as_non_root.is_some()),
            (
                "seLinuxOptions",
                defaults.se_linux_options.as_ref().map(|v| json!(v)),
                context.se_linux_options.is_some(),
            ),
            (
                "supplementalGroups",
                defaults.run_with_supplemental_groups.as_ref().map(|v| json!(v)),
                context.supplemental_groups.is_some(),
            ),
        ] {
            match value {
                Some(value) if !current => steps.push(Lowering::Set(context_path(field), value)),
                Some(_) => steps.push(Lowering::Impossible(
                    context_path(field),
                    "the pod already says something else; keep one of the two",
                )),
                None => {}
            }
        }
        copy_to_containers(view, defaults, &mut steps);
        steps.push(Lowering::Remove(context_path("containerDefaults")));
    }
    for container in view.containers() {
        if container.security_context().is_some_and(|own| own.run_with_supplemental_groups.is_some()) {
            let at = container.path(view).fields(&["securityContext", "runWithSupplementalGroups"]);
            steps.push(Lowering::Impossible(at, "Kubernetes has supplementalGroups for the whole pod only"));
        }
    }
    steps
}

fn copy_to_containers(view: &PodView<'_, '_>, defaults: &SecurityContext<'_>, steps: &mut Vec<Lowering>) {
    for container in view.containers() {
        let own = container.security_context();
        for (field, value, set) in [
            (
                "capabilities",
                defaults.capabilities.as_ref().map(|v| json!(v)),
                own.is_some_and(|own| own.capabilities.is_some()),
            ),
            (
                "privileged",
                defaults.privileged.map(|v| json!(v)),
                own.is_some_and(|own| own.privileged.is_some()),
            ),
            (
                "readOnlyRootFilesystem",
                defaults.read_only_root_filesystem.map(|v| json!(v)),
                own.is_some_and(|own| own.read_only_root_filesystem.is_some()),
            ),
            (
                "allowPrivilegeEscalation",
                defaults.allow_privilege_escalation.map(|v| json!(v)),
                own.is_some_and(|own| own.allow_privilege_escalation.is_some()),
            ),
        ] {
            if let (Some(value), false) = (value, set) {
                let at = container.path(view).fields(&["securityContext", field]);
                steps.push(Lowering::Set(at, value));
            }
        }
    }
}

/// Makes the proposal's settings the pod's own, in place, so that policies need not know of them. For judging only:
/// what is stored stays as the user wrote it.
pub fn absorb(pod: &mut Pod<'_>) {
    let Some(context) = &mut pod.spec.security_context else { return };
    pod.spec.host_network = pod.spec.host_network.or(context.host_network.take());
    pod.spec.host_ipc = pod.spec.host_ipc.or(context.host_ipc.take());
    let Some(defaults) = context.container_defaults.take() else { return };
    for container in all_containers(pod) {
        let own = container.security_context.get_or_insert_default();
        let defaults = (*defaults).clone();
        own.capabilities = own.capabilities.take().or(defaults.capabilities);
        own.privileged = own.privileged.or(defaults.privileged);
        own.se_linux_options = own.se_linux_options.take().or(defaults.se_linux_options);
        own.windows_options = own.windows_options.take().or(defaults.windows_options);
        own.run_as_user = own.run_as_user.or(defaults.run_as_user);
        own.run_as_group = own.run_as_group.or(defaults.run_as_group);
        own.run_as_non_root = own.run_as_non_root.or(defaults.run_as_non_root);
        own.read_only_root_filesystem = own.read_only_root_filesystem.or(defaults.read_only_root_filesystem);
        own.allow_privilege_escalation =
            own.allow_privilege_escalation.or(defaults.allow_privilege_escalation);
        own.proc_mount = own.proc_mount.take().or(defaults.proc_mount);
        own.seccomp_profile = own.seccomp_profile.take().or(defaults.seccomp_profile);
        own.app_armor_profile = own.app_armor_profile.take().or(defaults.app_armor_profile);
        own.run_with_supplemental_groups =
            own.run_with_supplemental_groups.take().or(defaults.run_with_supplemental_groups);
    }
}
