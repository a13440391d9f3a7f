//! Settings of one operating system in a pod for the other.
//!
//! Implements: `validateWindows` and `validateLinux` of pod validation. A pod that does not name its OS is not
//! checked.

use palisade_base::{field_error::FieldError, field_path::FieldPath};

use crate::{compat::Compat, pod_view::PodView};

pub(super) fn validate(view: &PodView<'_, '_>, compat: &Compat, problems: &mut Vec<FieldError>) {
    let Some(os) = &view.spec().os else { return };
    match os.name.as_str() {
        "windows" => validate_windows(view, compat, problems),
        "linux" => validate_linux(view, problems),
        _ => {}
    }
}

fn forbid(fields: &[(&'static str, bool)], path: &FieldPath, problems: &mut Vec<FieldError>) {
    for &(field, set) in fields {
        if set {
            problems
                .push(FieldError::forbidden(path.clone().field(field), "cannot be set for a windows pod"));
        }
    }
}

fn validate_windows(view: &PodView<'_, '_>, compat: &Compat, problems: &mut Vec<FieldError>) {
    let spec = view.spec();
    if let Some(context) = view.security_context() {
        forbid(
            &[
                ("appArmorProfile", context.app_armor_profile.is_some()),
                ("seLinuxOptions", context.se_linux_options.is_some()),
                ("seccompProfile", context.seccomp_profile.is_some()),
                ("fsGroup", context.fs_group.is_some()),
                ("fsGroupChangePolicy", context.fs_group_change_policy.is_some()),
                ("sysctls", !context.sysctls.is_empty()),
                ("runAsUser", context.run_as_user.is_some()),
                ("runAsGroup", context.run_as_group.is_some()),
                ("supplementalGroups", context.supplemental_groups.is_some()),
                ("supplementalGroupsPolicy", context.supplemental_groups_policy.is_some()),
                ("seLinuxChangePolicy", context.se_linux_change_policy.is_some()),
            ],
            &view.path(&["spec", "securityContext"]),
            problems,
        );
    }
    forbid(
        &[
            ("hostUsers", spec.host_users.is_some() && compat.keeps_host_users()),
            ("hostPID", spec.host_pid == Some(true)),
            ("hostIPC", spec.host_ipc == Some(true)),
            ("shareProcessNamespace", spec.share_process_namespace.is_some()),
        ],
        &view.path(&["spec"]),
        problems,
    );
    for container in view.containers() {
        let Some(context) = container.security_context() else { continue };
        forbid(
            &[
                ("appArmorProfile", context.app_armor_profile.is_some()),
                ("seLinuxOptions", context.se_linux_options.is_some()),
                ("seccompProfile", context.seccomp_profile.is_some()),
                ("capabilities", context.capabilities.is_some()),
                ("readOnlyRootFilesystem", context.read_only_root_filesystem.is_some()),
                ("privileged", context.privileged.is_some()),
                ("allowPrivilegeEscalation", context.allow_privilege_escalation.is_some()),
                ("procMount", context.proc_mount.is_some()),
                ("runAsUser", context.run_as_user.is_some()),
                ("runAsGroup", context.run_as_group.is_some()),
            ],
            &container.path(view).field("securityContext"),
            problems,
        );
    }
}

fn validate_linux(view: &PodView<'_, '_>, problems: &mut Vec<FieldError>) {
    const DETAIL: &str = "windows options cannot be set for a linux pod";
    if view.security_context().is_some_and(|context| context.windows_options.is_some()) {
        problems
            .push(FieldError::forbidden(view.path(&["spec", "securityContext", "windowsOptions"]), DETAIL));
    }
    for container in view.containers() {
        if container.security_context().is_some_and(|context| context.windows_options.is_some()) {
            let at = container.path(view).fields(&["securityContext", "windowsOptions"]);
            problems.push(FieldError::forbidden(at, DETAIL));
        }
    }
}
