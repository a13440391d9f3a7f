//! The configuration of a sandbox and of a container, put together from pod, node and profile.
//!
//! Implements: the kubelet's `generatePodSandboxConfig` and `generateContainerConfig`. Labels and annotations are those of
//! [`super::observed::labels`]; the security part comes from [`crate::cri::translate`].

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use palisade_model::pod_view::ContainerKind;

use super::{
    environment::expand, hosts_file, id_ranges::IdRange, observed::labels, resources::linux_resources,
};
use crate::{
    api::PodKey,
    cri::proto::{
        ContainerConfig, ContainerMetadata, DnsConfig, ImageSpec, KeyValue, LinuxContainerConfig,
        LinuxContainerSecurityContext, LinuxPodSandboxConfig, LinuxSandboxSecurityContext, Mount,
        MountPropagation, PodSandboxConfig, PodSandboxMetadata, PortMapping, Protocol,
    },
    node::NodeConfig,
    pod::{Container, RunPod, VolumeMount},
    volumes::{HostVolume, VolumeProblem, mount_source},
};

/// Where things of a pod are on the node.
#[derive(Debug, Clone)]
pub struct PodPaths {
    /// The pod's own folder.
    pub folder: PathBuf,
    /// The folder of its logs.
    pub logs: PathBuf,
}

impl PodPaths {
    /// The paths of a pod below the agent's root and log folders.
    #[must_use]
    pub fn of(pod: &PodKey, root: &Path, logs: &Path) -> Self {
        Self {
            folder: root.join("pods").join(&pod.uid),
            logs: logs.join(format!("{}_{}_{}", pod.namespace, pod.name, pod.uid)),
        }
    }

    /// Where a container leaves its last message.
    #[must_use]
    pub fn termination_message(&self, container: &str, restart_count: u32) -> PathBuf {
        self.folder.join("containers").join(container).join(restart_count.to_string())
    }
}

fn pod_labels(pod: &RunPod, manager: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        (labels::POD_NAME.to_owned(), pod.key.name.clone()),
        (labels::POD_NAMESPACE.to_owned(), pod.key.namespace.clone()),
        (labels::POD_UID.to_owned(), pod.key.uid.clone()),
        (labels::MANAGED_BY.to_owned(), manager.to_owned()),
    ])
}

/// The configuration of a sandbox.
#[must_use]
pub fn sandbox_config(
    pod: &RunPod,
    attempt: u32,
    paths: &PodPaths,
    security_context: LinuxSandboxSecurityContext,
    sysctls: BTreeMap<String, String>,
    node: &NodeConfig,
) -> PodSandboxConfig {
    let host_network = is_host_network(pod);
    // In the node's network there is no name to set: the namespace that holds it is the node's.
    let hostname = if host_network {
        ""
    } else if pod.spec.hostname.is_empty() {
        &pod.key.name
    } else {
        &pod.spec.hostname
    };
    let mut all_labels = pod.metadata.labels.clone();
    all_labels.append(&mut pod_labels(pod, &node.manager));
    let mut annotations = pod.metadata.annotations.clone();
    // What the author of the pod writes there is neither the node's nor a kubelet's.
    annotations.remove(labels::MADE_BY_KUBELET);
    annotations.insert(labels::DECLARED.to_owned(), pod.declared().to_string());
    PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: pod.key.name.clone(),
            uid: pod.key.uid.clone(),
            namespace: pod.key.namespace.clone(),
            attempt,
        }),
        // The kernel takes no more than 63 characters.
        hostname: hostname.chars().take(63).collect::<String>().trim_end_matches(['-', '.']).to_owned(),
        log_directory: paths.logs.to_string_lossy().into_owned(),
        dns_config: dns_config(pod),
        port_mappings: if host_network { Vec::new() } else { port_mappings(pod) },
        labels: all_labels,
        annotations,
        linux: Some(LinuxPodSandboxConfig {
            cgroup_parent: String::new(),
            security_context: Some(security_context),
            sysctls,
        }),
    }
}

/// Whether the pod lives in the node's network.
#[must_use]
pub fn is_host_network(pod: &RunPod) -> bool {
    pod.object.pointer("/spec/hostNetwork").and_then(serde_json::Value::as_bool) == Some(true)
}

/// Without a word of the pod's own the runtime gives it the node's name servers.
fn dns_config(pod: &RunPod) -> Option<DnsConfig> {
    let config = pod.spec.dns_config.as_ref()?;
    (pod.spec.dns_policy == "None" || !config.nameservers.is_empty()).then(|| DnsConfig {
        servers: config.nameservers.clone(),
        searches: config.searches.clone(),
        options: config
            .options
            .iter()
            .map(|option| match &option.value {
                Some(value) => format!("{}:{value}", option.name),
                None => option.name.clone(),
            })
            .collect(),
    })
}

fn port_mappings(pod: &RunPod) -> Vec<PortMapping> {
    pod.containers()
        .flat_map(|(_, container)| &container.ports)
        .filter(|port| port.host_port > 0)
        .map(|port| PortMapping {
            protocol: match port.protocol.as_str() {
                "UDP" => Protocol::Udp,
                "SCTP" => Protocol::Sctp,
                _ => Protocol::Tcp,
            }
            .into(),
            container_port: port.container_port,
            host_port: port.host_port,
            host_ip: port.host_ip.clone(),
        })
        .collect()
}

/// What a container's configuration is made of.
#[derive(Debug)]
pub struct ContainerParts<'a> {
    /// The pod.
    pub pod: &'a RunPod,
    /// The container.
    pub container: &'a Container,
    /// Its list.
    pub kind: ContainerKind,
    /// How often it was started before.
    pub restart_count: u32,
    /// The image, by the runtime's id.
    pub image_ref: &'a str,
    /// Its environment.
    pub environment: Vec<(String, String)>,
    /// The pod's volumes.
    pub volumes: &'a BTreeMap<String, HostVolume>,
    /// Its security, as the runtime takes it.
    pub security_context: LinuxContainerSecurityContext,
    /// SHA-256 of its seccomp profile, if the node read it.
    pub seccomp_profile_hash: Option<&'a str>,
    /// SHA-256 of what its source held, if it was combined with a baseline.
    pub seccomp_source_hash: Option<&'a str>,
    /// Whether its calls wait for a recorder.
    pub is_recorded: bool,
    /// Where things are.
    pub paths: &'a PodPaths,
    /// The file for `/etc/hosts`, if the container gets one.
    pub hosts_file: Option<&'a Path>,
    /// Memory of the node, in bytes.
    pub node_memory: i64,
    /// Who manages the pod.
    pub manager: &'a str,
    /// The ids of the pod on the node, if it has a user namespace of its own.
    pub ids: Option<IdRange>,
}

/// What a container waits for, in the kubelet's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MountError {
    /// The pod has no such volume.
    #[error("cannot find volume {volume:?} to mount into container {container:?}")]
    NoVolume {
        /// The name of the mount.
        volume: String,
        /// Which container.
        container: String,
    },
    /// A part of a volume cannot be made visible. A pod must not learn what is on the node, so the reason is only logged.
    #[error("failed to prepare subPath for volumeMount {volume:?} of container {container:?}")]
    SubPath {
        /// The name of the mount.
        volume: String,
        /// Which container.
        container: String,
    },
    /// A part of a volume is named by a variable that does not exist.
    #[error("failed to expand subPath for volumeMount {volume:?} of container {container:?}")]
    SubPathExpression {
        /// The name of the mount.
        volume: String,
        /// Which container.
        container: String,
    },
}

/// The configuration of a container; the error is what it waits for.
pub fn container_config(parts: ContainerParts<'_>) -> Result<ContainerConfig, MountError> {
    let ContainerParts { pod, container, kind, restart_count, .. } = parts;
    let known: BTreeMap<String, String> = parts.environment.iter().cloned().collect();
    let expanded = |words: &[String]| words.iter().map(|word| expand(word, &known)).collect();

    let mut mounts = Vec::new();
    for (index, mount) in container.volume_mounts.iter().enumerate() {
        let names = || (mount.name.clone(), container.name.clone());
        let volume = parts.volumes.get(&mount.name).ok_or_else(|| {
            let (volume, container) = names();
            MountError::NoVolume { volume, container }
        })?;
        let place = parts.paths.folder.join("volume-subpaths").join(&container.name).join(index.to_string());
        let unprepared = |why: VolumeProblem| {
            tracing::warn!(%why, volume = mount.name, container = container.name, "subPath not prepared");
            let (volume, container) = names();
            MountError::SubPath { volume, container }
        };
        let source = if mount.sub_path_expr.is_empty() {
            mount_source(volume, mount, &place).map_err(unprepared)?
        } else {
            let sub_path = expand(&mount.sub_path_expr, &known);
            if sub_path.contains("$(") {
                let (volume, container) = names();
                return Err(MountError::SubPathExpression { volume, container });
            }
            mount_source(volume, &VolumeMount { sub_path, ..mount.clone() }, &place).map_err(unprepared)?
        };
        mounts.push(Mount {
            container_path: if mount.mount_path.starts_with('/') {
                mount.mount_path.clone()
            } else {
                format!("/{}", mount.mount_path)
            },
            host_path: source.to_string_lossy().into_owned(),
            readonly: mount.read_only || volume.read_only,
            selinux_relabel: false,
            propagation: match mount.mount_propagation.as_str() {
                "HostToContainer" => MountPropagation::HostToContainer,
                "Bidirectional" => MountPropagation::Bidirectional,
                _ => MountPropagation::Private,
            }
            .into(),
            ..Mount::default()
        });
    }
    if let Some(file) = parts.hosts_file {
        mounts.push(Mount {
            container_path: hosts_file::PATH.to_owned(),
            host_path: file.to_string_lossy().into_owned(),
            ..Mount::default()
        });
    }
    let message_path = message_path(container);
    mounts.push(Mount {
        container_path: message_path.to_owned(),
        host_path: parts
            .paths
            .termination_message(&container.name, restart_count)
            .to_string_lossy()
            .into_owned(),
        ..Mount::default()
    });

    // Files belong to the same user inside and outside: the mounts map ids as the namespace does.
    if let Some(ids) = parts.ids {
        for mount in &mut mounts {
            mount.uid_mappings = vec![ids.mapping()];
            mount.gid_mappings = vec![ids.mapping()];
        }
    }

    let mut container_labels = pod_labels(pod, parts.manager);
    container_labels.insert(labels::CONTAINER_NAME.to_owned(), container.name.clone());
    let mut annotations = BTreeMap::from([
        (labels::CONTAINER_HASH.to_owned(), pod.container_hash(kind, &container.name)),
        (labels::RESTART_COUNT.to_owned(), restart_count.to_string()),
        (labels::TERMINATION_MESSAGE_PATH.to_owned(), message_path.to_owned()),
        (labels::TERMINATION_MESSAGE_POLICY.to_owned(), container.termination_message_policy.clone()),
        (labels::GRACE_PERIOD.to_owned(), pod.grace_period().as_secs().to_string()),
    ]);
    if let Some(hash) = parts.seccomp_profile_hash {
        annotations.insert(labels::SECCOMP_PROFILE_HASH.to_owned(), hash.to_owned());
    }
    if let Some(hash) = parts.seccomp_source_hash {
        annotations.insert(labels::SECCOMP_SOURCE_HASH.to_owned(), hash.to_owned());
    }
    if parts.is_recorded {
        annotations.insert(labels::RECORDED.to_owned(), String::new());
    }
    Ok(ContainerConfig {
        metadata: Some(ContainerMetadata { name: container.name.clone(), attempt: restart_count }),
        image: Some(ImageSpec {
            image: parts.image_ref.to_owned(),
            user_specified_image: container.image.clone(),
            ..ImageSpec::default()
        }),
        command: expanded(&container.command),
        args: expanded(&container.args),
        working_dir: container.working_dir.clone(),
        envs: parts.environment.into_iter().map(|(key, value)| KeyValue { key, value }).collect(),
        mounts,
        labels: container_labels,
        annotations,
        log_path: format!("{}/{restart_count}.log", container.name),
        stdin: container.stdin,
        stdin_once: container.stdin_once,
        tty: container.tty,
        linux: Some(LinuxContainerConfig {
            resources: Some(linux_resources(pod, container, parts.node_memory)),
            security_context: Some(parts.security_context),
        }),
    })
}

/// Where in a container its last message is read from.
#[must_use]
pub fn message_path(container: &Container) -> &str {
    match container.termination_message_path.as_str() {
        "" => "/dev/termination-log",
        path => path,
    }
}
