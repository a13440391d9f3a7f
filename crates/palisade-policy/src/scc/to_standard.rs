//! The Pod Security level that a constraint implies in a namespace, and why.
//!
//! Implements: the mapping of OpenShift's label syncer. It looks at what a constraint lets through, not at pods, and
//! it uses the standards as they were in v1.0: sysctls allowed later and `container_engine_t` still count as
//! privileged. [`proven_level`] adds what the mapping leaves out of a constraint: the capabilities that it adds by default. What no
//! constraint looks at (AppArmor, `procMount`, probe hosts) can make a pod violate the level inferred here;
//! `tests/it/scc_level_proof.rs` proves the rest.

use thiserror::Error;

use super::{
    constraint::{ANY, Constraint},
    namespace_ranges::{BlockError, NamespaceRanges, RangeError, UID_RANGE},
};
use crate::standards::{
    checks::{capabilities_baseline, sysctls},
    level::Level,
};

/// The level a constraint implies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Implied {
    /// The strictest level that a pod admitted by the constraint keeps to.
    pub level: Level,
    /// The fields that keep the level from being restricted, in a fixed order.
    pub causes: Vec<Cause>,
}

/// A field of a constraint that lets through what a level forbids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cause {
    /// The level that remains.
    pub level: Level,
    /// The field.
    pub field: &'static str,
    /// Why, in a clause.
    pub why: &'static str,
}

/// Why no level follows.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("failed to convert SCC {constraint:?} in namespace {namespace:?}: {kind}")]
pub struct ImplyError {
    /// The constraint.
    pub constraint: String,
    /// The namespace.
    pub namespace: String,
    /// What stands in the way.
    pub kind: ImplyErrorKind,
}

/// What stands in the way.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ImplyErrorKind {
    /// No such kinds of volumes are known; upstream names the first one.
    #[error("unknown volume type: {}", .0.first().map(String::as_str).unwrap_or_default())]
    UnknownVolumes(Vec<String>),
    /// No such way to choose a user is known.
    #[error("unknown strategy: {0}")]
    UnknownStrategy(String),
    /// The user ids come from the namespace, and it has none.
    #[error(
        "the namespace {namespace:?} has no valid {UID_RANGE:?} label or the label's missing value, even though the \
         SCC requires it"
    )]
    RangeMissing {
        /// The namespace.
        namespace: String,
    },
    /// The user ids come from the namespace, and cannot be read.
    #[error("failed to parse uid block for the {namespace:?} namespace: {source}")]
    RangeMalformed {
        /// The namespace.
        namespace: String,
        /// What is wrong with them.
        source: BlockError,
    },
}

/// Volumes of restricted, and names that stand for none.
const RESTRICTED_VOLUMES: [&str; 11] = [
    "configMap",
    "downwardAPI",
    "emptyDir",
    "projected",
    "secret",
    "csi",
    "persistentVolumeClaim",
    "ephemeral",
    "none",
    "image",
    "serviceAccountToken",
];

/// All other volumes but those of the host.
const BASELINE_VOLUMES: [&str; 20] = [
    "azureFile",
    "azureDisk",
    "flocker",
    "flexVolume",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "cinder",
    "cephFS",
    "fc",
    "vsphere",
    "quobyte",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageOS",
];

const HOST_PATH: &str = "hostPath";

/// The level a constraint implies in a namespace.
pub fn implied_level(
    constraint: &Constraint,
    namespace: &NamespaceRanges<'_>,
) -> Result<Implied, ImplyError> {
    let fail = |kind| ImplyError {
        constraint: constraint.name().to_owned(),
        namespace: namespace.name.to_owned(),
        kind,
    };
    let mut causes = Vec::new();
    let mut cause = |level, field, why, when: bool| {
        if when {
            causes.push(Cause { level, field, why });
        }
    };
    let Constraint { seccomp_profiles, allowed_unsafe_sysctls, .. } = constraint;
    let host_volumes = constraint.volumes().iter().any(|volume| volume == HOST_PATH || volume == ANY);
    let is_host = |volume: &&String| [HOST_PATH, ANY].contains(&volume.as_str());
    let is_unknown = |volume: &&String| {
        !RESTRICTED_VOLUMES.contains(&volume.as_str()) && !BASELINE_VOLUMES.contains(&volume.as_str())
    };
    // Upstream looks no further than the first volume that settles the matter.
    let looked_at = constraint.volumes().iter().take_while(|volume| !is_host(volume));
    let unknown: Vec<_> = looked_at.filter(is_unknown).cloned().collect();
    if !unknown.is_empty() {
        return Err(fail(ImplyErrorKind::UnknownVolumes(unknown)));
    }
    let may_be_root = may_be_root(constraint, namespace).map_err(fail)?;

    let privileged = Level::Privileged;
    cause(
        privileged,
        "allowHostDirVolumePlugin",
        "pods may mount folders of the node",
        constraint.allow_host_dir_volume_plugin,
    );
    cause(privileged, "allowHostIPC", "pods may share the node's IPC namespace", constraint.allow_host_ipc);
    cause(privileged, "allowHostNetwork", "pods may share the node's network", constraint.allow_host_network);
    cause(privileged, "allowHostPID", "pods may see the node's processes", constraint.allow_host_pid);
    cause(privileged, "allowHostPorts", "containers may listen on the node", constraint.allow_host_ports);
    cause(
        Level::Baseline,
        "allowPrivilegeEscalation",
        "processes may gain privileges",
        constraint.allow_privilege_escalation != Some(false),
    );
    cause(
        privileged,
        "allowPrivilegedContainer",
        "containers may be privileged",
        constraint.allow_privileged_container,
    );
    match capability_level(constraint) {
        Level::Privileged => cause(privileged, "allowedCapabilities", "baseline forbids one of them", true),
        Level::Baseline => {
            cause(
                Level::Baseline,
                "requiredDropCapabilities",
                "ALL need not be dropped, or more than NET_BIND_SERVICE may be added",
                true,
            );
        }
        Level::Restricted => {}
    }
    cause(
        privileged,
        "allowedUnsafeSysctls",
        "baseline forbids one of them",
        allowed_unsafe_sysctls.iter().any(|sysctl| !sysctls::SINCE_V1_0.contains(&sysctl.as_str())),
    );
    cause(privileged, "volumes", "pods may mount folders of the node", host_volumes);
    cause(
        Level::Baseline,
        "volumes",
        "restricted forbids one of them",
        constraint.volumes().iter().any(|volume| BASELINE_VOLUMES.contains(&volume.as_str())),
    );
    cause(
        privileged,
        "seLinuxContext",
        "containers may run under a label that baseline forbids",
        is_label_free(constraint),
    );
    match seccomp_level(seccomp_profiles) {
        Level::Privileged => cause(privileged, "seccompProfiles", "a pod may be unconfined", true),
        Level::Baseline => cause(Level::Baseline, "seccompProfiles", "no profile is demanded", true),
        Level::Restricted => {}
    }
    cause(Level::Baseline, "runAsUser", "containers may run as root", may_be_root);

    let level = causes.iter().map(|cause| cause.level).min().unwrap_or(Level::Restricted);
    Ok(Implied { level, causes })
}

/// The level a constraint implies in a namespace, where the capabilities that it adds by default count as well.
pub fn proven_level(constraint: &Constraint, namespace: &NamespaceRanges<'_>) -> Result<Implied, ImplyError> {
    let mut implied = implied_level(constraint, namespace)?;
    let mut added = constraint.default_add_capabilities.iter().map(String::as_str);
    let level = if added.clone().any(|name| !capabilities_baseline::ALLOWED.contains(&name)) {
        Level::Privileged
    } else if added.any(|name| name != "NET_BIND_SERVICE") {
        Level::Baseline
    } else {
        Level::Restricted
    };
    if level < Level::Restricted {
        let why = "containers get one by default that the level forbids";
        implied.causes.push(Cause { level, field: "defaultAddCapabilities", why });
        implied.level = implied.level.min(level);
    }
    Ok(implied)
}

fn capability_level(constraint: &Constraint) -> Level {
    let allowed = &constraint.allowed_capabilities;
    if allowed.iter().any(|name| !capabilities_baseline::ALLOWED.contains(&name.as_str())) {
        return Level::Privileged;
    }
    let drops_all = constraint.required_drop_capabilities.iter().any(|name| name == "ALL");
    if drops_all && allowed.iter().all(|name| name == "NET_BIND_SERVICE") {
        Level::Restricted
    } else {
        Level::Baseline
    }
}

fn is_label_free(constraint: &Constraint) -> bool {
    const TYPES: [&str; 4] = ["", "container_t", "container_init_t", "container_kvm_t"];
    let context = &constraint.se_linux_context;
    context.kind != "MustRunAs"
        || context.se_linux_options.as_ref().is_some_and(|label| {
            !TYPES.contains(&label.kind.as_str()) || !label.user.is_empty() || !label.role.is_empty()
        })
}

fn seccomp_level(profiles: &[String]) -> Level {
    let confines = |profile: &String| {
        matches!(profile.as_str(), "runtime/default" | "docker/default") || profile.starts_with("localhost/")
    };
    if profiles.is_empty() {
        Level::Baseline
    } else if profiles.iter().all(confines) {
        Level::Restricted
    } else {
        Level::Privileged
    }
}

fn may_be_root(constraint: &Constraint, namespace: &NamespaceRanges<'_>) -> Result<bool, ImplyErrorKind> {
    let options = &constraint.run_as_user;
    match options.kind.as_str() {
        "MustRunAsNonRoot" => Ok(false),
        "RunAsAny" => Ok(true),
        "MustRunAs" => Ok(options.uid.is_none_or(|uid| uid <= 0)),
        "MustRunAsRange" => {
            if let (Some(min), Some(_)) = (options.uid_range_min, options.uid_range_max) {
                return Ok(min <= 0);
            }
            let name = || namespace.name.to_owned();
            namespace.uid_range().map(|block| block.start == 0).map_err(|error| match error {
                RangeError::Block(source) => ImplyErrorKind::RangeMalformed { namespace: name(), source },
                _ => ImplyErrorKind::RangeMissing { namespace: name() },
            })
        }
        kind => Err(ImplyErrorKind::UnknownStrategy(kind.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use palisade_model::metadata::StringMap;
    use serde_json::json;

    use super::{Constraint, Level, NamespaceRanges, implied_level};

    #[test]
    fn an_unknown_volume_counts_only_before_one_that_settles_the_matter() {
        for (volumes, expected) in [
            (&["secret", "foo"][..], Err("unknown volume type: foo")),
            (&["foo", "hostPath"], Err("unknown volume type: foo")),
            (&["hostPath", "foo"], Ok(Level::Privileged)),
            (&["*", "foo"], Ok(Level::Privileged)),
        ] {
            let object = json!({"metadata": {"name": "x"}, "volumes": volumes,
                "runAsUser": {"type": "RunAsAny"}, "seLinuxContext": {"type": "RunAsAny"}});
            let constraint = Constraint::read(&object).unwrap();
            let annotations = StringMap::default();
            let found = implied_level(&constraint, &NamespaceRanges::new("ns", &annotations));
            let found = found.map(|implied| implied.level).map_err(|error| error.kind.to_string());
            assert_eq!(found, expected.map_err(str::to_owned), "{volumes:?}");
        }
    }
}
