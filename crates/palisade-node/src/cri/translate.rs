//! An effective security context, in the runtime's words.
//!
//! Implements: how a kubelet fills CRI's `LinuxContainerSecurityContext` and `LinuxSandboxSecurityContext`, release by
//! release (`pkg/kubelet/kuberuntime/security_context*.go`), and the per-container groups of the pod-security-context
//! proposal. Pure: the caller finds a profile's bytes, and nothing is read or checked here.

use palisade_base::version::KubeVersion;
use palisade_model::{
    compat::Compat,
    effective::EffectiveContext,
    node::{ImageUser, NodeError, masked_paths, readonly_paths},
    prepare::Prepared,
    profile::ProfileRef,
    text::Text,
};
use thiserror::Error;

use super::proto::{
    Capability, Int64Value, LinuxContainerSecurityContext, LinuxSandboxSecurityContext, NamespaceMode,
    NamespaceOption, ProfileType, SeLinuxOption, SecurityProfile, SupplementalGroupsPolicy,
};
use crate::{kernel::probe::NodeFeatures, runner::id_ranges::IdRange};

/// Why there is no context to send.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TranslateError {
    /// The profile cannot be resolved.
    #[error(transparent)]
    Profile(#[from] NodeError),
    /// A policy for supplemental groups that CRI has no word for.
    #[error("unsupported supplementalGroupsPolicy: {0}")]
    SupplementalGroupsPolicy(String),
}

/// What is known only when a container is about to be created.
#[derive(Debug, Clone, Copy)]
pub struct Circumstances<'a> {
    /// Whose rules apply.
    pub compat: &'a Compat,
    /// What the node can do.
    pub features: &'a NodeFeatures,
    /// The user the image requests.
    pub image_user: &'a ImageUser,
    /// Where the runtime finds the seccomp profile, for the types that have one.
    pub seccomp_path: Option<&'a str>,
    /// Whether that is the profile of a recorder, for a container of any type.
    pub is_recorded: bool,
    /// The id of the container whose processes an ephemeral container targets.
    pub target: Option<&'a str>,
    /// The ids of the pod on the node, if it has a user namespace of its own.
    pub ids: Option<IdRange>,
}

/// The security context of a container.
pub fn container_context(
    context: &EffectiveContext<'_>,
    around: &Circumstances<'_>,
) -> Result<LinuxContainerSecurityContext, TranslateError> {
    let minor = around.compat.kubelet.minor();
    let declared = context.seccomp.profile.clone()?;
    let recorder = || ProfileRef::Localhost(Text::borrowed(""));
    let profile = if around.is_recorded { recorder() } else { declared };
    let seccomp = seccomp_profile(&profile, around.seccomp_path);
    let app_armor = context.app_armor.profile.clone().transpose()?;
    let unmasked = context.proc_mount.value == "Unmasked";
    let (run_as_user, run_as_username) = match (context.run_as_user.value, around.image_user) {
        (Some(user), _) => (Some(user), String::new()),
        (None, ImageUser::Uid(user)) => (Some(*user), String::new()),
        (None, ImageUser::Name(name)) => (None, name.clone()),
    };
    let capabilities = &context.capabilities;
    Ok(LinuxContainerSecurityContext {
        capabilities: capabilities.source.path().is_some().then(|| Capability {
            add_capabilities: capabilities.value.add.iter().map(ToString::to_string).collect(),
            drop_capabilities: capabilities.value.drop.iter().map(ToString::to_string).collect(),
            add_ambient_capabilities: Vec::new(),
        }),
        privileged: context.privileged.value,
        namespace_options: Some(namespaces(context, around.target, around.ids)),
        selinux_options: se_linux(context),
        run_as_user: run_as_user.map(int64),
        run_as_group: context.run_as_group.value.map(int64),
        run_as_username,
        readonly_rootfs: context.read_only_root_filesystem.value,
        supplemental_groups: context.groups.value.clone(),
        supplemental_groups_policy: groups_policy(context)?,
        no_new_privs: context.no_new_privs.value,
        masked_paths: if unmasked {
            Vec::new()
        } else {
            let of_cpus = around.features.thermal_throttle.iter().filter(|_| minor >= 34);
            let paths = masked_paths(around.compat.kubelet).into_iter().map(str::to_owned);
            paths.chain(of_cpus.cloned()).collect()
        },
        readonly_paths: if unmasked { Vec::new() } else { strings(&readonly_paths(around.compat.kubelet)) },
        seccomp_profile_path: if minor <= 27 { legacy_seccomp(&seccomp) } else { String::new() },
        // The structured profile came with v1.20; before, the string was all a runtime got.
        seccomp: (minor >= 20).then_some(seccomp),
        apparmor_profile: app_armor.as_ref().map(ProfileRef::to_annotation).unwrap_or_default(),
        apparmor: app_armor.as_ref().filter(|_| minor >= 30).map(app_armor_profile),
    })
}

/// The security context of the sandbox; `contexts` are those of all the pod's containers.
pub fn sandbox_context(
    contexts: &[EffectiveContext<'_>],
    pod: &PodSettings<'_>,
    kubelet: KubeVersion,
) -> Result<LinuxSandboxSecurityContext, TranslateError> {
    // Whatever the pod requests its containers, the sandbox itself runs the runtime's own program.
    let seccomp = SecurityProfile { profile_type: ProfileType::RuntimeDefault.into(), ..Default::default() };
    let Some(first) = contexts.first() else {
        return Ok(LinuxSandboxSecurityContext { seccomp: Some(seccomp), ..Default::default() });
    };
    Ok(LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces(first, None, pod.ids)),
        selinux_options: pod.se_linux_options.clone(),
        run_as_user: pod.run_as_user.map(int64),
        run_as_group: pod.run_as_group.map(int64),
        readonly_rootfs: false,
        supplemental_groups: pod.fs_group.into_iter().chain(pod.groups.iter().copied()).collect(),
        supplemental_groups_policy: groups_policy(first)?,
        privileged: contexts.iter().any(|context| context.privileged.value),
        seccomp_profile_path: match kubelet.minor() {
            19..=26 => "runtime/default".to_owned(),
            _ => String::new(),
        },
        seccomp: Some(seccomp),
        apparmor: None,
    })
}

/// The settings of the pod itself: the sandbox has no others.
#[derive(Debug, Clone, Default, PartialEq)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct PodSettings<'a> {
    pub run_as_user: Option<i64>,
    pub run_as_group: Option<i64>,
    pub fs_group: Option<i64>,
    pub groups: &'a [i64],
    pub se_linux_options: Option<SeLinuxOption>,
    /// The ids of the pod on the node, if it has a user namespace of its own.
    pub ids: Option<IdRange>,
}

impl<'a> PodSettings<'a> {
    /// The settings of a pod.
    #[must_use]
    pub fn of(pod: &'a Prepared<'_>) -> Self {
        let Some(context) = &pod.spec().security_context else { return Self::default() };
        Self {
            run_as_user: context.run_as_user,
            run_as_group: context.run_as_group,
            fs_group: context.fs_group,
            groups: context.supplemental_groups.as_deref().unwrap_or_default(),
            se_linux_options: context.se_linux_options.as_ref().map(se_linux_option),
            ids: None,
        }
    }
}

fn namespaces(context: &EffectiveContext<'_>, target: Option<&str>, ids: Option<IdRange>) -> NamespaceOption {
    let node_or_pod = |node: bool| if node { NamespaceMode::Node } else { NamespaceMode::Pod };
    let pid = if context.host_pid.value {
        NamespaceMode::Node
    } else if context.share_process_namespace.value {
        NamespaceMode::Pod
    } else if target.is_some() {
        NamespaceMode::Target
    } else {
        NamespaceMode::Container
    };
    NamespaceOption {
        network: node_or_pod(context.host_network.value).into(),
        pid: pid.into(),
        ipc: node_or_pod(context.host_ipc.value).into(),
        target_id: target.filter(|_| pid == NamespaceMode::Target).unwrap_or_default().to_owned(),
        userns_options: ids.map(|ids| ids.user_namespace()),
    }
}

fn groups_policy(context: &EffectiveContext<'_>) -> Result<i32, TranslateError> {
    match context.supplemental_groups_policy.value {
        None | Some("Merge") => Ok(SupplementalGroupsPolicy::Merge.into()),
        Some("Strict") => Ok(SupplementalGroupsPolicy::Strict.into()),
        Some(other) => Err(TranslateError::SupplementalGroupsPolicy(other.to_owned())),
    }
}

fn seccomp_profile(profile: &ProfileRef<'_>, path: Option<&str>) -> SecurityProfile {
    let (kind, reference) = match profile {
        // What guards made of the runtime's own, or of none.
        ProfileRef::RuntimeDefault | ProfileRef::Unconfined if path.is_some() => {
            (ProfileType::Localhost, path.unwrap_or_default())
        }
        ProfileRef::RuntimeDefault => (ProfileType::RuntimeDefault, ""),
        ProfileRef::Unconfined => (ProfileType::Unconfined, ""),
        ProfileRef::Localhost(_) | ProfileRef::ConfigMap { .. } | ProfileRef::Oci(_) => {
            (ProfileType::Localhost, path.unwrap_or_default())
        }
    };
    SecurityProfile { profile_type: kind.into(), localhost_ref: reference.to_owned() }
}

fn legacy_seccomp(profile: &SecurityProfile) -> String {
    match profile.profile_type() {
        ProfileType::RuntimeDefault => "runtime/default".to_owned(),
        ProfileType::Unconfined => "unconfined".to_owned(),
        ProfileType::Localhost => format!("localhost/{}", profile.localhost_ref),
    }
}

fn app_armor_profile(profile: &ProfileRef<'_>) -> SecurityProfile {
    let (kind, name) = match profile {
        ProfileRef::RuntimeDefault => (ProfileType::RuntimeDefault, String::new()),
        ProfileRef::Unconfined | ProfileRef::ConfigMap { .. } | ProfileRef::Oci(_) => {
            (ProfileType::Unconfined, String::new())
        }
        ProfileRef::Localhost(name) => (ProfileType::Localhost, name.to_string()),
    };
    SecurityProfile { profile_type: kind.into(), localhost_ref: name }
}

fn se_linux(context: &EffectiveContext<'_>) -> Option<SeLinuxOption> {
    context.se_linux_options.value.as_ref().map(se_linux_option)
}

fn se_linux_option(options: &palisade_model::security_context::SeLinuxOptions<'_>) -> SeLinuxOption {
    SeLinuxOption {
        user: options.user.to_string(),
        role: options.role.to_string(),
        r#type: options.kind.to_string(),
        level: options.level.to_string(),
    }
}

const fn int64(value: i64) -> Int64Value {
    Int64Value { value }
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use palisade_model::{compat::Compat, effective::effective_contexts, node::ImageUser, prepare::Subject};

    use super::*;

    fn designs() -> Compat {
        let mut compat = Compat::designs();
        compat.gates.seccomp_config_maps = true;
        compat
    }

    fn translated(
        spec: &str,
        compat: &Compat,
        image_user: &ImageUser,
    ) -> Result<LinuxContainerSecurityContext, TranslateError> {
        translated_with(spec, compat, image_user, Some("/profiles/p"))
    }

    fn translated_with(
        spec: &str,
        compat: &Compat,
        image_user: &ImageUser,
        seccomp_path: Option<&str>,
    ) -> Result<LinuxContainerSecurityContext, TranslateError> {
        let pod = Prepared::new(serde_json::from_str(spec).unwrap(), Subject::Pod, compat);
        let contexts = effective_contexts(&pod);
        let features = NodeFeatures { thermal_throttle: vec!["/sys/cpu0".to_owned()], ..Default::default() };
        let around = Circumstances {
            compat,
            features: &features,
            image_user,
            seccomp_path,
            is_recorded: false,
            target: None,
            ids: None,
        };
        container_context(&contexts[0], &around)
    }

    fn context(spec: &str) -> LinuxContainerSecurityContext {
        translated(spec, &designs(), &ImageUser::Uid(0)).unwrap()
    }

    fn pod(pod_part: &str, container_part: &str) -> String {
        format!(
            r#"{{"spec":{{{pod_part}{}"containers":[{{"name":"c","securityContext":{container_part}}}]}}}}"#,
            if pod_part.is_empty() { "" } else { "," }
        )
    }

    #[test]
    fn users_come_from_the_container_then_the_pod_then_the_image() {
        let id = ImageUser::Uid(7);
        let name = ImageUser::Name("web".to_owned());
        for (case, pod_part, own, image, user, username) in [
            ("container", r#""securityContext":{"runAsUser":1}"#, r#"{"runAsUser":2}"#, &id, Some(2), ""),
            ("pod", r#""securityContext":{"runAsUser":1}"#, "{}", &name, Some(1), ""),
            ("root is a user too", r#""securityContext":{"runAsUser":0}"#, "{}", &id, Some(0), ""),
            ("image id", "", "{}", &id, Some(7), ""),
            ("image name", "", "{}", &name, None, "web"),
        ] {
            let context = translated(&pod(pod_part, own), &designs(), image).unwrap();
            assert_eq!(context.run_as_user.map(|user| user.value), user, "{case}");
            assert_eq!(context.run_as_username, username, "{case}");
        }
    }

    #[test]
    fn groups_are_the_volume_group_and_then_the_declared_ones() {
        for (case, pod_part, own, expected) in [
            ("none", "", "{}", &[][..]),
            (
                "volume group first",
                r#""securityContext":{"fsGroup":4,"supplementalGroups":[3,5]}"#,
                "{}",
                &[4, 3, 5],
            ),
            (
                "the proposal's groups of one container",
                r#""securityContext":{"fsGroup":4,"supplementalGroups":[3]}"#,
                r#"{"runWithSupplementalGroups":[9]}"#,
                &[4, 9],
            ),
        ] {
            assert_eq!(context(&pod(pod_part, own)).supplemental_groups, expected, "{case}");
        }
        let grouped = context(&pod(r#""securityContext":{"runAsGroup":8}"#, "{}"));
        assert_eq!(grouped.run_as_group, Some(int64(8)));
    }

    #[test]
    fn policies_for_groups_are_those_of_cri() {
        for (value, expected) in [("Merge", Ok(0)), ("Strict", Ok(1)), ("Other", Err(()))] {
            let spec = pod(&format!(r#""securityContext":{{"supplementalGroupsPolicy":"{value}"}}"#), "{}");
            let got = translated(&spec, &designs(), &ImageUser::Uid(0));
            assert_eq!(got.map(|c| c.supplemental_groups_policy).map_err(|_| ()), expected, "{value}");
        }
    }

    #[test]
    fn privileges_are_passed_on_as_they_are() {
        let plain = context(&pod("", "{}"));
        assert_eq!(plain.capabilities, None, "absent is the runtime's default, not an empty list");
        assert!(!plain.privileged && !plain.no_new_privs && !plain.readonly_rootfs);
        let full = context(&pod(
            "",
            r#"{"privileged":true,"allowPrivilegeEscalation":false,"readOnlyRootFilesystem":true,
                "capabilities":{"add":["NET_ADMIN"],"drop":["ALL"]},
                "seLinuxOptions":{"user":"u","role":"r","type":"t","level":"s0"}}"#,
        ));
        let capabilities = full.capabilities.unwrap();
        assert_eq!(capabilities.add_capabilities, ["NET_ADMIN"]);
        assert_eq!(capabilities.drop_capabilities, ["ALL"]);
        assert!(full.privileged && full.no_new_privs && full.readonly_rootfs);
        let selinux = full.selinux_options.unwrap();
        assert_eq!(
            (selinux.user, selinux.role, selinux.r#type, selinux.level),
            ("u".into(), "r".into(), "t".into(), "s0".into())
        );
    }

    #[test]
    fn seccomp_types_become_the_three_of_cri() {
        use ProfileType::{Localhost, RuntimeDefault, Unconfined};
        let file = Some("/profiles/p");
        for (profile, path, kind, reference) in [
            (r#"{"type":"RuntimeDefault"}"#, None, RuntimeDefault, ""),
            (r#"{"type":"Unconfined"}"#, None, Unconfined, ""),
            (r#"{"type":"Localhost","localhostProfile":"p"}"#, file, Localhost, "/profiles/p"),
            (r#"{"type":"ConfigMap","configMapProfile":"m/k"}"#, file, Localhost, "/profiles/p"),
            // A guard replaces what the runtime would apply by itself.
            (r#"{"type":"RuntimeDefault"}"#, file, Localhost, "/profiles/p"),
            (r#"{"type":"Unconfined"}"#, file, Localhost, "/profiles/p"),
        ] {
            let spec = pod("", &format!(r#"{{"seccompProfile":{profile}}}"#));
            let context = translated_with(&spec, &designs(), &ImageUser::Uid(0), path).unwrap();
            let seccomp = context.seccomp.unwrap();
            assert_eq!(
                (seccomp.profile_type(), seccomp.localhost_ref.as_str()),
                (kind, reference),
                "{profile}"
            );
            assert_eq!(context.seccomp_profile_path, "", "{profile}");
        }
        let unset = translated_with(&pod("", "{}"), &designs(), &ImageUser::Uid(0), None).unwrap();
        assert_eq!(unset.seccomp.unwrap().profile_type(), Unconfined, "no profile is no confinement");
    }

    #[test]
    fn older_kubelets_use_the_older_fields() {
        let spec = pod(
            "",
            r#"{"seccompProfile":{"type":"Localhost","localhostProfile":"p"},"appArmorProfile":{"type":"Localhost","localhostProfile":"a"}}"#,
        );
        for (minor, structured, legacy, app_armor, legacy_app_armor) in [
            (19, false, "localhost//profiles/p", false, ""),
            (20, true, "localhost//profiles/p", false, ""),
            (27, true, "localhost//profiles/p", false, ""),
            (28, true, "", false, ""),
            (30, true, "", true, "localhost/a"),
            (37, true, "", true, "localhost/a"),
        ] {
            let context = translated(&spec, &Compat::kubernetes(minor), &ImageUser::Uid(0)).unwrap();
            assert_eq!(context.seccomp.is_some(), structured, "v1.{minor}");
            assert_eq!(context.seccomp_profile_path, legacy, "v1.{minor}");
            assert_eq!(context.apparmor.is_some(), app_armor, "v1.{minor}");
            assert_eq!(context.apparmor_profile, legacy_app_armor, "v1.{minor}");
        }
    }

    #[test]
    fn app_armor_is_left_to_the_runtime_unless_declared() {
        assert_eq!(context(&pod("", "{}")).apparmor, None);
        for (profile, kind, name) in [
            (r#"{"type":"RuntimeDefault"}"#, ProfileType::RuntimeDefault, ""),
            (r#"{"type":"Unconfined"}"#, ProfileType::Unconfined, ""),
            (
                r#"{"type":"Localhost","localhostProfile":"/usr/sbin/ntpd"}"#,
                ProfileType::Localhost,
                "/usr/sbin/ntpd",
            ),
        ] {
            let found = context(&pod("", &format!(r#"{{"appArmorProfile":{profile}}}"#))).apparmor.unwrap();
            assert_eq!((found.profile_type(), found.localhost_ref.as_str()), (kind, name), "{profile}");
        }
    }

    #[test]
    fn paths_are_masked_unless_proc_is_to_be_seen() {
        let masked = context(&pod("", "{}"));
        assert!(masked.masked_paths.iter().any(|path| path == "/proc/kcore"));
        assert!(masked.masked_paths.iter().any(|path| path == "/sys/cpu0"), "{:?}", masked.masked_paths);
        assert!(masked.readonly_paths.iter().any(|path| path == "/proc/sys"));
        let older = translated(&pod("", "{}"), &Compat::kubernetes(33), &ImageUser::Uid(0)).unwrap();
        assert!(!older.masked_paths.iter().any(|path| path == "/sys/cpu0"));
        let unmasked = context(&pod(r#""hostUsers":false"#, r#"{"procMount":"Unmasked"}"#));
        assert_eq!((unmasked.masked_paths.len(), unmasked.readonly_paths.len()), (0, 0));
    }

    #[test]
    fn namespaces_are_the_pods_the_nodes_or_the_targets() {
        use NamespaceMode::{Container, Node, Pod, Target};
        for (case, spec, target, expected) in [
            ("plain", "", None, (Pod, Container, Pod)),
            ("host", r#""hostNetwork":true,"hostPID":true,"hostIPC":true"#, None, (Node, Node, Node)),
            ("shared", r#""shareProcessNamespace":true"#, None, (Pod, Pod, Pod)),
            ("target", "", Some("id"), (Pod, Target, Pod)),
            ("target in a shared namespace", r#""shareProcessNamespace":true"#, Some("id"), (Pod, Pod, Pod)),
        ] {
            let text = pod(spec, "{}");
            let parsed = Prepared::new(serde_json::from_str(&text).unwrap(), Subject::Pod, &designs());
            let contexts = effective_contexts(&parsed);
            let found = namespaces(&contexts[0], target, None);
            assert_eq!(found.userns_options, None, "{case}");
            assert_eq!((found.network(), found.pid(), found.ipc()), expected, "{case}");
            assert_eq!(found.target_id.is_empty(), expected.1 != Target, "{case}");
        }
    }

    #[test]
    fn sandbox_and_containers_have_the_ids_of_the_pod() {
        let text = pod(r#""hostUsers":false"#, "{}");
        let parsed = Prepared::new(serde_json::from_str(&text).unwrap(), Subject::Pod, &designs());
        let contexts = effective_contexts(&parsed);
        let ids = IdRange::starting_at(131_072);
        let settings = PodSettings { ids, ..PodSettings::of(&parsed) };
        let sandbox = sandbox_context(&contexts, &settings, designs().kubelet).unwrap();
        let features = NodeFeatures::default();
        let around = Circumstances {
            compat: &designs(),
            features: &features,
            image_user: &ImageUser::Uid(0),
            seccomp_path: None,
            target: None,
            is_recorded: false,
            ids,
        };
        let container = container_context(&contexts[0], &around).unwrap();
        let mapping = [crate::cri::proto::IdMapping { host_id: 131_072, container_id: 0, length: 65_536 }];
        for options in [sandbox.namespace_options, container.namespace_options] {
            let users = options.unwrap().userns_options.unwrap();
            assert_eq!(users.mode(), NamespaceMode::Pod);
            assert_eq!((users.uids.as_slice(), users.gids.as_slice()), (&mapping[..], &mapping[..]));
        }
    }

    #[test]
    fn the_sandbox_listens_to_the_pod_alone() {
        let text = r#"{"spec":{"securityContext":{"runAsUser":5,"runAsGroup":6,"fsGroup":4,"supplementalGroups":[3],
            "seccompProfile":{"type":"Unconfined"}},
            "containers":[{"name":"a","securityContext":{"runAsUser":9}},{"name":"b","securityContext":{"privileged":true}}]}}"#;
        let parsed = Prepared::new(serde_json::from_str(text).unwrap(), Subject::Pod, &designs());
        let contexts = effective_contexts(&parsed);
        let sandbox = sandbox_context(&contexts, &PodSettings::of(&parsed), designs().kubelet).unwrap();
        assert_eq!(sandbox.run_as_user, Some(int64(5)));
        assert_eq!(sandbox.run_as_group, Some(int64(6)));
        assert_eq!(sandbox.supplemental_groups, [4, 3]);
        assert!(sandbox.privileged, "one privileged container makes the sandbox privileged");
        assert_eq!(sandbox.seccomp.unwrap().profile_type(), ProfileType::RuntimeDefault);
        assert_eq!(sandbox.apparmor, None);
    }
}
