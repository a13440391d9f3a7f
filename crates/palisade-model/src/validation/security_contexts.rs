//! Users, groups, mounts and combinations in security contexts.
//!
//! Implements: `ValidateSecurityContext` and `ValidatePodSecurityContext`.

use std::fmt::Write as _;

use palisade_base::{
    field_error::{BadValue, FieldError},
    field_path::FieldPath,
    go::JsonQuoted,
};

use super::{named_string, profiles};
use crate::{
    compat::Compat,
    pod::PodSpec,
    security_context::{PodSecurityContext, SecurityContext, Sysctl},
};

const MAX_ID: i64 = 2_147_483_647;
const ID_RANGE: &str = "must be between 0 and 2147483647, inclusive";
const MAX_SYSCTL_NAME: usize = 253;

pub(super) fn validate_container(
    context: &SecurityContext<'_>,
    path: &FieldPath,
    spec: &PodSpec<'_>,
    compat: &Compat,
    problems: &mut Vec<FieldError>,
) {
    validate_id(context.run_as_user, path, "runAsUser", problems);
    validate_id(context.run_as_group, path, "runAsGroup", problems);
    for (index, &group) in context.run_with_supplemental_groups.iter().flatten().enumerate() {
        if !(0..=MAX_ID).contains(&group) {
            let at = path.clone().field("runWithSupplementalGroups").index(index);
            problems.push(FieldError::invalid(at, group, ID_RANGE));
        }
    }
    if let Some(mount) = context.proc_mount.as_deref() {
        let at = path.clone().field("procMount");
        if !matches!(mount, "Default" | "Unmasked") {
            let value = named_string(mount, compat);
            problems.push(FieldError::not_supported(at.clone(), value, &["Default", "Unmasked"]));
        }
        if mount == "Unmasked" && compat.api_minor() >= 30 && !spec.has_user_namespace() {
            let value = named_string(mount, compat);
            problems.push(FieldError::invalid(at, value, "`hostUsers` must be false to use `Unmasked`"));
        }
    }
    if let Some(profile) = &context.seccomp_profile {
        profiles::validate_seccomp(profile, &path.clone().field("seccompProfile"), compat, problems);
    }
    if context.allow_privilege_escalation == Some(false) {
        if context.privileged == Some(true) {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            problems.push(FieldError::invalid(path.clone(), print_context(context, compat), detail));
        }
        let adds = context.capabilities.iter().flat_map(|capabilities| &capabilities.add);
        for _ in adds.filter(|capability| **capability == "CAP_SYS_ADMIN") {
            let detail =
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            problems.push(FieldError::invalid(path.clone(), print_context(context, compat), detail));
        }
    }
    if let Some(profile) = &context.app_armor_profile {
        profiles::validate_app_armor(profile, &path.clone().field("appArmorProfile"), compat, problems);
    }
}

pub(super) fn validate_pod(
    context: &PodSecurityContext<'_>,
    path: &FieldPath,
    spec: &PodSpec<'_>,
    compat: &Compat,
    problems: &mut Vec<FieldError>,
) {
    validate_id(context.fs_group, path, "fsGroup", problems);
    validate_id(context.run_as_user, path, "runAsUser", problems);
    validate_id(context.run_as_group, path, "runAsGroup", problems);
    for (index, &group) in context.supplemental_groups.iter().flatten().enumerate() {
        if !(0..=MAX_ID).contains(&group) {
            let at = path.clone().field("supplementalGroups").index(index);
            problems.push(FieldError::invalid(at, group, ID_RANGE));
        }
    }
    if spec.share_process_namespace == Some(true) && spec.host_pid == Some(true) {
        // Up to v1.36 the field is looked for where the internal type has it.
        let of_pod = path.parent().filter(|_| compat.api_minor() >= 37);
        let base = of_pod.unwrap_or_else(|| path.clone());
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        problems.push(FieldError::invalid(base.field("shareProcessNamespace"), true, detail));
    }
    validate_sysctls(&context.sysctls, path, spec, compat, problems);
    for (name, value, supported) in [
        ("fsGroupChangePolicy", &context.fs_group_change_policy, ["Always", "OnRootMismatch"]),
        ("supplementalGroupsPolicy", &context.supplemental_groups_policy, ["Merge", "Strict"]),
        ("seLinuxChangePolicy", &context.se_linux_change_policy, ["MountOption", "Recursive"]),
    ] {
        if let Some(value) = value.as_deref()
            && !supported.contains(&value)
        {
            let at = path.clone().field(name);
            problems.push(FieldError::not_supported(at, named_string(value, compat), &supported));
        }
    }
    if let Some(profile) = &context.seccomp_profile {
        profiles::validate_seccomp(profile, &path.clone().field("seccompProfile"), compat, problems);
    }
    if let Some(profile) = &context.app_armor_profile {
        profiles::validate_app_armor(profile, &path.clone().field("appArmorProfile"), compat, problems);
    }
}

fn validate_id(id: Option<i64>, path: &FieldPath, field: &'static str, problems: &mut Vec<FieldError>) {
    if let Some(id) = id
        && !(0..=MAX_ID).contains(&id)
    {
        problems.push(FieldError::invalid(path.clone().field(field), id, ID_RANGE));
    }
}

fn validate_sysctls(
    sysctls: &[Sysctl<'_>],
    path: &FieldPath,
    spec: &PodSpec<'_>,
    compat: &Compat,
    problems: &mut Vec<FieldError>,
) {
    let mut seen: Vec<String> = Vec::new();
    for (index, sysctl) in sysctls.iter().enumerate() {
        let at = path.clone().field("sysctls").index(index).field("name");
        let name = sysctl.name.as_str();
        if name.is_empty() {
            problems.push(FieldError::required(at, ""));
            continue;
        }
        if !is_sysctl_name(name) {
            let detail = format!(
                "must have at most {MAX_SYSCTL_NAME} characters and match regex {SYSCTL_NAME_PATTERN}"
            );
            problems.push(FieldError::invalid(at, name, detail));
            continue;
        }
        let dotted = dotted_sysctl(name);
        if seen.contains(&dotted) {
            problems.push(FieldError::duplicate(at.clone(), name));
        } else {
            // Sysctls of a namespace that the pod shares with the node would change the node; refused since v1.31.
            if compat.api_minor() >= 31 {
                for (flag, shared, owned) in [
                    ("hostNetwork", spec.host_network, dotted.starts_with("net.")),
                    ("hostIPC", spec.host_ipc, is_ipc_sysctl(&dotted)),
                ] {
                    if shared == Some(true) && owned {
                        let detail = format!("may not be specified when '{flag}' is true");
                        problems.push(FieldError::invalid(at.clone(), name, detail));
                    }
                }
            }
            seen.push(dotted);
        }
    }
}

const SYSCTL_NAME_PATTERN: &str = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

fn is_sysctl_name(name: &str) -> bool {
    let segment = |segment: &str| {
        let edge = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let bytes = segment.as_bytes();
        bytes.first().is_some_and(|&b| edge(b))
            && bytes.last().is_some_and(|&b| edge(b))
            && bytes.iter().all(|&b| edge(b) || b == b'-' || b == b'_')
    };
    name.len() <= MAX_SYSCTL_NAME && name.split(['.', '/']).all(segment)
}

/// `kernel/msgmax` and `kernel.msgmax` are one sysctl; in the slash form dots belong to the name.
fn dotted_sysctl(name: &str) -> String {
    match name.find(['.', '/']) {
        Some(first) if name.as_bytes().get(first) == Some(&b'/') => name
            .chars()
            .map(|c| match c {
                '/' => '.',
                '.' => '/',
                c => c,
            })
            .collect(),
        _ => name.to_owned(),
    }
}

fn is_ipc_sysctl(name: &str) -> bool {
    name == "kernel.sem"
        || ["kernel.shm", "kernel.msg", "fs.mqueue."].iter().any(|prefix| name.starts_with(prefix))
}

/// Upstream prints the whole internal struct when two of its fields contradict each other.
fn print_context(context: &SecurityContext<'_>, compat: &Compat) -> BadValue {
    BadValue::Plain(if compat.prints_values_as_json() { print_json(context) } else { print_go(context) })
}

fn print_json(context: &SecurityContext<'_>) -> String {
    fn plain<T: ToString>(value: Option<T>) -> String {
        value.map_or_else(|| "null".to_owned(), |value| value.to_string())
    }
    let list = |items: &[crate::text::Text<'_>]| {
        if items.is_empty() {
            return "null".to_owned();
        }
        let items: Vec<_> = items.iter().map(|item| JsonQuoted(item).to_string()).collect();
        format!("[{}]", items.join(","))
    };
    let profile = |profile: &Option<crate::security_context::ProfileField<'_>>| match profile {
        None => "null".to_owned(),
        Some(profile) => format!(
            "{{\"Type\":{},\"LocalhostProfile\":{}}}",
            JsonQuoted(&profile.kind),
            plain(profile.localhost_profile.as_ref().map(|name| JsonQuoted(name))),
        ),
    };
    let mut out = String::from("{");
    let capabilities = context.capabilities.as_ref().map(|capabilities| {
        format!("{{\"Add\":{},\"Drop\":{}}}", list(&capabilities.add), list(&capabilities.drop))
    });
    let se_linux = context.se_linux_options.as_ref().map(|options| {
        format!(
            "{{\"User\":{},\"Role\":{},\"Type\":{},\"Level\":{}}}",
            JsonQuoted(&options.user),
            JsonQuoted(&options.role),
            JsonQuoted(&options.kind),
            JsonQuoted(&options.level)
        )
    });
    let windows = context.windows_options.as_ref().map(|options| {
        format!(
            "{{\"GMSACredentialSpecName\":{},\"GMSACredentialSpec\":{},\"RunAsUserName\":{},\"HostProcess\":{}}}",
            plain(options.gmsa_credential_spec_name.as_ref().map(|text| JsonQuoted(text))),
            plain(options.gmsa_credential_spec.as_ref().map(|text| JsonQuoted(text))),
            plain(options.run_as_user_name.as_ref().map(|text| JsonQuoted(text))),
            plain(options.host_process)
        )
    });
    for (name, value) in [
        ("Capabilities", plain(capabilities)),
        ("Privileged", plain(context.privileged)),
        ("SELinuxOptions", plain(se_linux)),
        ("WindowsOptions", plain(windows)),
        ("RunAsUser", plain(context.run_as_user)),
        ("RunAsGroup", plain(context.run_as_group)),
        ("RunAsNonRoot", plain(context.run_as_non_root)),
        ("ReadOnlyRootFilesystem", plain(context.read_only_root_filesystem)),
        ("AllowPrivilegeEscalation", plain(context.allow_privilege_escalation)),
        ("ProcMount", plain(context.proc_mount.as_ref().map(|mount| JsonQuoted(mount)))),
        ("SeccompProfile", profile(&context.seccomp_profile)),
        ("AppArmorProfile", profile(&context.app_armor_profile)),
    ] {
        if out.len() > 1 {
            out.push(',');
        }
        let _ = write!(out, "\"{name}\":{value}");
    }
    out.push('}');
    out
}

fn print_go(context: &SecurityContext<'_>) -> String {
    let pointer = |set: bool| if set { "0xPTR" } else { "nil" };
    format!(
        "core.SecurityContext{{Capabilities:(*core.Capabilities)({}), Privileged:(*bool)({}), \
         SELinuxOptions:(*core.SELinuxOptions)({}), WindowsOptions:(*core.WindowsSecurityContextOptions)({}), \
         RunAsUser:(*int64)({}), RunAsGroup:(*int64)({}), RunAsNonRoot:(*bool)({}), \
         ReadOnlyRootFilesystem:(*bool)({}), AllowPrivilegeEscalation:(*bool)({}), \
         ProcMount:(*core.ProcMountType)({}), SeccompProfile:(*core.SeccompProfile)({})}}",
        pointer(context.capabilities.is_some()),
        pointer(context.privileged.is_some()),
        pointer(context.se_linux_options.is_some()),
        pointer(context.windows_options.is_some()),
        pointer(context.run_as_user.is_some()),
        pointer(context.run_as_group.is_some()),
        pointer(context.run_as_non_root.is_some()),
        pointer(context.read_only_root_filesystem.is_some()),
        pointer(context.allow_privilege_escalation.is_some()),
        pointer(context.proc_mount.is_some()),
        pointer(context.seccomp_profile.is_some()),
    )
}
