//! What the node applies: the profile a kubelet of a given release applies, and what it refuses.
//!
//! Implements: the kubelet's profile resolution (seccomp design, "Kubelet Backwards compatibility"; AppArmor
//! design, likewise) and what each release made of it, masked paths, and the check of `runAsNonRoot` against the
//! image. Reading files, querying the kernel and calling the runtime are the node agent's.

use std::fmt;

use palisade_base::{field_path::FieldPath, version::KubeVersion};
use thiserror::Error;

use crate::{
    compat::Compat,
    effective::container_source,
    pod_view::ContainerRef,
    prepare::Prepared,
    profile::{ProfileRef, apparmor, artifact, kind, seccomp},
    security_context::ProfileField,
    sync::app_armor_from_annotation,
};

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The container itself.
    Container(FieldPath),
    /// The pod, for all its containers.
    Pod(FieldPath),
    /// An annotation.
    Annotation(FieldPath),
    /// Not set; this is the default.
    Default(&'static str),
}

impl Source {
    /// The field behind the value, if there is one.
    #[must_use]
    pub const fn path(&self) -> Option<&FieldPath> {
        match self {
            Self::Container(path) | Self::Pod(path) | Self::Annotation(path) => Some(path),
            Self::Default(_) => None,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Container(path) | Self::Pod(path) | Self::Annotation(path) => path.fmt(f),
            Self::Default(why) => f.write_str(why),
        }
    }
}

/// Why a kubelet does not start the container.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NodeError {
    /// `Localhost` without a file. The full stop is upstream's.
    #[error("localhostProfile must be set if seccompProfile type is Localhost.")]
    SeccompPathMissing,
    /// The kubelet is older than the API server that let the profile through.
    #[error("unknown seccomp profile option: {0}")]
    UnknownSeccompOption(String),
    /// `Localhost` without a profile name.
    #[error("missing localhost apparmor profile name")]
    AppArmorNameMissing,
    /// A type the kubelet does not support.
    #[error("unknown apparmor profile type: {0:?}")]
    UnknownAppArmorType(String),
}

/// What a kubelet makes of a container's seccomp settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeccompResolution<'a> {
    /// The profile it requests from the runtime, or why it does not start the container.
    pub profile: Result<ProfileRef<'a>, NodeError>,
    /// Where that came from.
    pub source: Source,
    /// An annotation that has a value and no effect.
    pub ignored: Option<FieldPath>,
}

/// What a kubelet makes of a container's AppArmor settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppArmorResolution<'a> {
    /// The profile it requests from the runtime; `None` leaves it to the runtime.
    pub profile: Option<Result<ProfileRef<'a>, NodeError>>,
    /// Where that came from.
    pub source: Source,
}

/// Whether a kubelet reads seccomp annotations at all. The seccomp design resolves annotations in the API server when a pod is
/// created; its kubelet ignores them, so that an annotation written later changes nothing.
#[must_use]
pub const fn honours_seccomp_annotations(kubelet: KubeVersion) -> bool {
    match kubelet {
        KubeVersion::Designs => false,
        KubeVersion::Release { minor, .. } => minor <= 19,
    }
}

const fn honours_seccomp_fields(kubelet: KubeVersion) -> bool {
    match kubelet {
        KubeVersion::Designs => true,
        KubeVersion::Release { minor, .. } => minor >= 19,
    }
}

/// The seccomp profile of a container: container field, container annotation, pod field, pod annotation, as far as
/// the kubelet looks at them. From v1.20 on the structured CRI field, which has no annotations, decides.
#[must_use]
pub fn resolve_seccomp<'p, 'a>(
    prepared: &'p Prepared<'a>,
    container: &ContainerRef<'p, 'a>,
    compat: &Compat,
) -> SeccompResolution<'p>
where
    'a: 'p,
{
    let view = &prepared.view();
    let kubelet = compat.kubelet;
    let annotations = &view.metadata().annotations;
    let container_key = seccomp::container_annotation(container.name());
    let fields = honours_seccomp_fields(kubelet);
    let listens = honours_seccomp_annotations(kubelet);
    let of_container = container.security_context().and_then(|context| context.seccomp_profile.as_ref());
    let of_pod = view.security_context().and_then(|context| context.seccomp_profile.as_ref());
    let container_path = || container.path(view).fields(&["securityContext", "seccompProfile"]);
    let pod_path = || view.path(&["spec", "securityContext", "seccompProfile"]);

    let ignored = || {
        let keys = [container_key.as_str(), seccomp::POD_ANNOTATION];
        let present = keys.into_iter().find(|key| annotations.contains(key));
        present.filter(|_| !listens).map(|key| view.annotation_path(key))
    };
    let resolved = |profile, source| SeccompResolution { profile, source, ignored: None };

    if let Some(field) = of_container.filter(|_| fields) {
        let source = container_source(prepared, container_path());
        return resolved(seccomp_field(field, compat), source);
    }
    if let Some(value) = annotations.get(&container_key).filter(|_| listens) {
        let source = Source::Annotation(view.annotation_path(&container_key));
        return resolved(seccomp_annotation(value, compat), source);
    }
    if let Some(field) = of_pod.filter(|_| fields) {
        return SeccompResolution {
            ignored: ignored(),
            ..resolved(seccomp_field(field, compat), Source::Pod(pod_path()))
        };
    }
    if let Some(value) = annotations.get(seccomp::POD_ANNOTATION).filter(|_| listens) {
        let source = Source::Annotation(view.annotation_path(seccomp::POD_ANNOTATION));
        return resolved(seccomp_annotation(value, compat), source);
    }
    let (profile, why) = if compat.seccomp_default && kubelet.minor() >= 22 {
        (ProfileRef::RuntimeDefault, "the kubelet runs with --seccomp-default")
    } else {
        (ProfileRef::Unconfined, "nothing set: a kubelet leaves the container unconfined")
    };
    SeccompResolution { ignored: ignored(), ..resolved(Ok(profile), Source::Default(why)) }
}

fn seccomp_field<'p>(field: &'p ProfileField<'_>, compat: &Compat) -> Result<ProfileRef<'p>, NodeError> {
    match field.kind.as_str() {
        kind::RUNTIME_DEFAULT => Ok(ProfileRef::RuntimeDefault),
        kind::LOCALHOST => match field.localhost_profile.as_deref() {
            Some(file) if !file.is_empty() => Ok(ProfileRef::Localhost(file.into())),
            _ if rejects_empty_localhost(compat.kubelet) => Err(NodeError::SeccompPathMissing),
            // CVE-2023-2431: older kubelets ran such a container without any confinement.
            _ => Ok(ProfileRef::Unconfined),
        },
        kind::CONFIG_MAP => {
            let reference = field.config_map_profile.as_deref().unwrap_or_default();
            match seccomp::config_map_reference(reference) {
                Some((name, key)) if reads_config_maps(compat) => {
                    Ok(ProfileRef::ConfigMap { name: name.into(), key: key.into() })
                }
                _ => Err(unknown_option(reference)),
            }
        }
        kind::OCI if matches!(compat.kubelet, KubeVersion::Designs) => match field.oci.as_ref() {
            Some(oci) if pulls_artifacts(compat) => match oci.profile() {
                Some(profile) => Ok(ProfileRef::Oci(profile.into_owned())),
                None => {
                    Err(NodeError::UnknownSeccompOption(format!("{}{}", artifact::SCHEME, oci.reference)))
                }
            },
            _ => Err(NodeError::UnknownSeccompOption(kind::OCI.to_owned())),
        },
        kind::UNCONFINED => Ok(ProfileRef::Unconfined),
        // Upstream's kubelets leave a container unconfined whose profile type they do not support.
        _ if matches!(compat.kubelet, KubeVersion::Release { .. }) => Ok(ProfileRef::Unconfined),
        other => Err(NodeError::UnknownSeccompOption(other.to_owned())),
    }
}

fn seccomp_annotation<'p>(value: &'p str, compat: &Compat) -> Result<ProfileRef<'p>, NodeError> {
    match seccomp::from_annotation(value) {
        Some(ProfileRef::ConfigMap { .. }) if !reads_config_maps(compat) => {
            Err(unknown_option(value.strip_prefix("configmap/").unwrap_or(value)))
        }
        Some(ProfileRef::Oci(_)) if !pulls_artifacts(compat) => {
            Err(NodeError::UnknownSeccompOption(value.to_owned()))
        }
        Some(reference) => Ok(reference),
        None if value == "localhost/" => Err(NodeError::SeccompPathMissing),
        None => Err(NodeError::UnknownSeccompOption(value.to_owned())),
    }
}

const fn reads_config_maps(compat: &Compat) -> bool {
    matches!(compat.kubelet, KubeVersion::Designs) && compat.gates.seccomp_config_maps
}

const fn pulls_artifacts(compat: &Compat) -> bool {
    matches!(compat.kubelet, KubeVersion::Designs) && compat.gates.security_profile_oci_artifact
}

// The ConfigMap design names the reference without its key.
fn unknown_option(reference: &str) -> NodeError {
    let name = reference.split('/').next().unwrap_or_default();
    NodeError::UnknownSeccompOption(format!("configmap/{name}"))
}

const fn rejects_empty_localhost(kubelet: KubeVersion) -> bool {
    let KubeVersion::Release { minor, patch } = kubelet else { return true };
    match minor {
        28.. => true,
        27 => patch >= 2,
        26 => patch >= 5,
        25 => patch >= 10,
        24 => patch >= 14,
        _ => false,
    }
}

/// The AppArmor profile of a container: container field, container annotation, pod field. The design's kubelet reads fields alone.
#[must_use]
pub fn resolve_app_armor<'p, 'a>(
    prepared: &'p Prepared<'a>,
    container: &ContainerRef<'p, 'a>,
    compat: &Compat,
) -> AppArmorResolution<'p>
where
    'a: 'p,
{
    let view = &prepared.view();
    let annotations = &view.metadata().annotations;
    let key = apparmor::annotation(container.name());
    let fields = compat.kubelet.minor() >= 30;
    let of_container = container.security_context().and_then(|context| context.app_armor_profile.as_ref());
    if let Some(field) = of_container.filter(|_| fields) {
        let path = container.path(view).fields(&["securityContext", "appArmorProfile"]);
        let source = container_source(prepared, path);
        return AppArmorResolution { profile: Some(app_armor_field(field)), source };
    }
    // What an empty annotation means is the kubelet's to decide here, not the API server's.
    let reader = Compat::kubernetes(compat.kubelet.minor());
    let reference = annotations
        .get(&key)
        .filter(|_| compat.kubelet != KubeVersion::Designs)
        .and_then(|value| app_armor_from_annotation(value, &reader));
    if let Some(reference) = reference {
        let source = Source::Annotation(view.annotation_path(&key));
        return AppArmorResolution { profile: Some(Ok(reference)), source };
    }
    let of_pod = view.security_context().and_then(|context| context.app_armor_profile.as_ref());
    if let Some(field) = of_pod.filter(|_| fields) {
        let path = view.path(&["spec", "securityContext", "appArmorProfile"]);
        return AppArmorResolution { profile: Some(app_armor_field(field)), source: Source::Pod(path) };
    }
    let why = "nothing set: the runtime applies its own profile where the host has AppArmor";
    AppArmorResolution { profile: None, source: Source::Default(why) }
}

fn app_armor_field<'p>(field: &'p ProfileField<'_>) -> Result<ProfileRef<'p>, NodeError> {
    match field.kind.as_str() {
        kind::RUNTIME_DEFAULT => Ok(ProfileRef::RuntimeDefault),
        kind::UNCONFINED => Ok(ProfileRef::Unconfined),
        kind::LOCALHOST => match field.localhost_profile.as_deref() {
            Some(name) if !name.is_empty() => Ok(ProfileRef::Localhost(name.into())),
            _ => Err(NodeError::AppArmorNameMissing),
        },
        other => Err(NodeError::UnknownAppArmorType(other.to_owned())),
    }
}

/// Joins a profile path to the seccomp folder the way the kubelet does: lexically cleaned. Whether the result
/// stays inside the folder is the node agent's to check.
#[must_use]
pub fn join_clean(root: &str, path: &str) -> String {
    let mut elements: Vec<&str> = Vec::new();
    let joined = format!("{root}/{path}");
    for element in joined.split('/') {
        match element {
            "" | "." => {}
            ".." => {
                elements.pop();
            }
            element => elements.push(element),
        }
    }
    format!("/{}", elements.join("/"))
}

/// What a container cannot see of /proc and /sys.
#[must_use]
pub fn masked_paths(kubelet: KubeVersion) -> Vec<&'static str> {
    let minor = kubelet.minor();
    let mut paths = Vec::with_capacity(12);
    if minor >= 27 {
        paths.push("/proc/asound");
    }
    paths.push("/proc/acpi");
    if minor >= 34 {
        paths.push("/proc/interrupts");
    }
    paths.extend([
        "/proc/kcore",
        "/proc/keys",
        "/proc/latency_stats",
        "/proc/timer_list",
        "/proc/timer_stats",
        "/proc/sched_debug",
        "/proc/scsi",
        "/sys/firmware",
    ]);
    if minor >= 31 {
        paths.push("/sys/devices/virtual/powercap");
    }
    paths
}

/// What a container can see of /proc and not write.
#[must_use]
pub fn readonly_paths(kubelet: KubeVersion) -> Vec<&'static str> {
    let mut paths = Vec::with_capacity(6);
    if kubelet.minor() < 27 {
        paths.push("/proc/asound");
    }
    paths.extend(["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]);
    paths
}

/// The user an image requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageUser {
    /// A number, or none at all, which is 0.
    Uid(i64),
    /// A name, which only the image itself could resolve.
    Name(String),
}

/// The text a kubelet refuses a container with that must not run as root and would, or may.
#[must_use]
pub fn non_root_violation(
    run_as_non_root: bool,
    run_as_user: Option<i64>,
    image: &ImageUser,
    pod: &str,
    container: &str,
    kubelet: KubeVersion,
) -> Option<String> {
    const MAX_ID: i64 = 2_147_483_647;
    if !run_as_non_root {
        return None;
    }
    let text = match (run_as_user, image) {
        (Some(0), _) => "container's runAsUser breaks non-root policy".to_owned(),
        (None, ImageUser::Uid(0)) => "container has runAsNonRoot and image will run as root".to_owned(),
        (None, ImageUser::Uid(id)) if kubelet.minor() >= 34 && !(0..=MAX_ID).contains(id) => format!(
            "container has runAsNonRoot and image has an invalid user id ({id}). (Must be 1-({MAX_ID})): must be between 0 and {MAX_ID}, inclusive"
        ),
        (Some(_), _) | (None, ImageUser::Uid(_)) => return None,
        (None, ImageUser::Name(name)) => format!(
            "container has runAsNonRoot and image has non-numeric user ({name}), cannot verify user is non-root"
        ),
    };
    if kubelet.minor() < 20 {
        return Some(text);
    }
    Some(format!("{text} (pod: \"{pod}\", container: {container})"))
}
