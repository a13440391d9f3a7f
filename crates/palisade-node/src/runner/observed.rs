//! What the runtime has of a pod, as one snapshot.
//!
//! Everything the agent needs after a restart is in labels and annotations, under the names the kubelet uses, so that
//! pods are adopted by looking, not by remembering.

use std::collections::BTreeMap;

use crate::cri::{
    client::{Runtime, RuntimeError},
    proto::{self, ContainerState, LinuxContainerResources, LinuxContainerUser, PodSandboxState},
};

/// Labels and annotations on sandboxes and containers.
pub mod labels {
    /// The pod's name.
    pub const POD_NAME: &str = "io.kubernetes.pod.name";
    /// The pod's namespace.
    pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
    /// The pod's identity.
    pub const POD_UID: &str = "io.kubernetes.pod.uid";
    /// The container's name.
    pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
    /// Which version of the container this is.
    pub const CONTAINER_HASH: &str = "io.kubernetes.container.hash";
    /// How often the container was started before.
    pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
    /// Where in the container a last message may be left.
    pub const TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
    /// Whether the log serves as last message.
    pub const TERMINATION_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
    /// How long the pod may take to stop.
    pub const GRACE_PERIOD: &str = "io.kubernetes.pod.terminationGracePeriod";
    /// SHA-256 of the seccomp profile the container was created with.
    pub const SECCOMP_PROFILE_HASH: &str = "palisade.dev/seccomp-profile-hash";
    /// SHA-256 of what its source held, where that was combined with a baseline.
    pub const SECCOMP_SOURCE_HASH: &str = "palisade.dev/seccomp-profile-source-hash";
    /// The calls of the container wait for a recorder of the node.
    pub const RECORDED: &str = "palisade.dev/recorded";
    /// The security part of the pod as the node was given it, so that it can be compared without an API server.
    pub const DECLARED: &str = "palisade.dev/declared";
    /// Where a kubelet got a pod from; it is on every sandbox that a kubelet makes, whatever the pod's author writes.
    pub const MADE_BY_KUBELET: &str = "kubernetes.io/config.source";
    /// The owner of a sandbox: a node touches no other.
    pub const MANAGED_BY: &str = "palisade.dev/managed-by";
}

/// What the runtime has of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    /// Sandboxes, newest first.
    pub sandboxes: Vec<Sandbox>,
    /// Containers, newest first.
    pub containers: Vec<Instance>,
}

/// A sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are CRI's own")]
pub struct Sandbox {
    pub id: String,
    pub attempt: u32,
    pub ready: bool,
    pub created_at: i64,
    /// Addresses in the pod's network; empty in the node's.
    pub ips: Vec<String>,
}

/// One run of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are CRI's own")]
pub struct Instance {
    pub id: String,
    pub sandbox: String,
    pub name: String,
    pub restart_count: u32,
    pub state: ContainerState,
    pub created_at: i64,
    pub started_at: i64,
    pub finished_at: i64,
    pub exit_code: i32,
    pub reason: String,
    pub message: String,
    pub image: String,
    pub image_ref: String,
    pub hash: String,
    pub seccomp_profile_hash: Option<String>,
    pub seccomp_source_hash: Option<String>,
    pub log_path: String,
    /// What it has of the node, if the runtime reports it.
    pub resources: Option<LinuxContainerResources>,
    /// Who its first process was started as, if the runtime reports it.
    pub user: Option<LinuxContainerUser>,
}

impl Default for Instance {
    fn default() -> Self {
        Self {
            id: String::new(),
            sandbox: String::new(),
            name: String::new(),
            restart_count: 0,
            state: ContainerState::Unknown,
            created_at: 0,
            started_at: 0,
            finished_at: 0,
            exit_code: 0,
            reason: String::new(),
            message: String::new(),
            image: String::new(),
            image_ref: String::new(),
            hash: String::new(),
            seccomp_profile_hash: None,
            seccomp_source_hash: None,
            log_path: String::new(),
            resources: None,
            user: None,
        }
    }
}

impl Observed {
    /// Reads what the runtime has of a pod, of any owner.
    pub async fn of_pod(runtime: &Runtime, uid: &str) -> Result<Self, RuntimeError> {
        Self::look(runtime, uid, true).await
    }

    /// Reads a pod's state from the runtime; in the node's network it has no addresses of its own.
    pub async fn look(runtime: &Runtime, uid: &str, own_network: bool) -> Result<Self, RuntimeError> {
        let selector = [(labels::POD_UID, uid)];
        let mut found = Self::default();
        for sandbox in runtime.list_pod_sandboxes(&selector).await? {
            let ready = sandbox.state() == PodSandboxState::Ready;
            let ips = if ready && own_network { addresses(runtime, &sandbox.id).await } else { Vec::new() };
            found.sandboxes.push(Sandbox {
                attempt: sandbox.metadata.as_ref().map_or(0, |metadata| metadata.attempt),
                ready,
                created_at: sandbox.created_at,
                ips,
                id: sandbox.id,
            });
        }
        found.sandboxes.sort_by_key(|sandbox| std::cmp::Reverse((sandbox.created_at, sandbox.attempt)));
        for container in runtime.list_containers(&selector).await? {
            match runtime.container_status(&container.id, false).await {
                Ok(answer) => {
                    found
                        .containers
                        .push(instance(container.pod_sandbox_id, answer.status.unwrap_or_default()));
                }
                // It was removed in between.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        found.containers.sort_by_key(|one| std::cmp::Reverse((one.created_at, one.restart_count)));
        Ok(found)
    }

    /// Adds a sandbox that was just made.
    pub async fn add_sandbox(&mut self, runtime: &Runtime, id: String, attempt: u32, own_network: bool) {
        let ips = if own_network { addresses(runtime, &id).await } else { Vec::new() };
        self.sandboxes.insert(0, Sandbox { id, attempt, ready: true, created_at: 0, ips });
    }

    /// Adds a container that was just made.
    pub async fn add_container(
        &mut self,
        runtime: &Runtime,
        sandbox: &str,
        id: &str,
    ) -> Result<(), RuntimeError> {
        let answer = runtime.container_status(id, false).await?;
        self.containers.insert(0, instance(sandbox.to_owned(), answer.status.unwrap_or_default()));
        Ok(())
    }

    /// The sandbox in which containers can run.
    #[must_use]
    pub fn ready_sandbox(&self) -> Option<&Sandbox> {
        self.sandboxes.first().filter(|sandbox| sandbox.ready)
    }

    /// The runs of a container, newest first.
    pub fn runs<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Instance> {
        self.containers.iter().filter(move |instance| instance.name == name)
    }

    /// The newest run of a container.
    #[must_use]
    pub fn latest(&self, name: &str) -> Option<&Instance> {
        self.containers.iter().find(|instance| instance.name == name)
    }
}

async fn addresses(runtime: &Runtime, sandbox: &str) -> Vec<String> {
    let Ok(status) = runtime.pod_sandbox_status(sandbox).await else { return Vec::new() };
    let Some(network) = status.network else { return Vec::new() };
    std::iter::once(network.ip)
        .chain(network.additional_ips.into_iter().map(|address| address.ip))
        .filter(|ip| !ip.is_empty())
        .collect()
}

fn instance(sandbox: String, status: proto::ContainerStatus) -> Instance {
    let get = |map: &BTreeMap<String, String>, key: &str| map.get(key).cloned().unwrap_or_default();
    let annotations = &status.annotations;
    Instance {
        name: get(&status.labels, labels::CONTAINER_NAME),
        restart_count: get(annotations, labels::RESTART_COUNT).parse().unwrap_or_default(),
        hash: get(annotations, labels::CONTAINER_HASH),
        seccomp_profile_hash: annotations.get(labels::SECCOMP_PROFILE_HASH).cloned(),
        seccomp_source_hash: annotations.get(labels::SECCOMP_SOURCE_HASH).cloned(),
        state: status.state(),
        created_at: status.created_at,
        started_at: status.started_at,
        finished_at: status.finished_at,
        exit_code: status.exit_code,
        reason: status.reason,
        message: status.message,
        image: status.image.map(|image| image.image).unwrap_or_default(),
        image_ref: status.image_ref,
        log_path: status.log_path,
        resources: status.resources.and_then(|resources| resources.linux),
        user: status.user.and_then(|user| user.linux),
        sandbox,
        id: status.id,
    }
}
