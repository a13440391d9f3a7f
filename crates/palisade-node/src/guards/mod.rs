//! `SyscallGuard` objects on a node: who they are for, what they make of a profile, and which containers they do not cover.
//!
//! One value is shared by whatever applies guards (the node's own runner, the plugin of the runtime) and by what reports. A guard
//! reaches a container while it is created; containers that ran before, or that were created without it, are exposed until they are
//! restarted. Which ones those are is not remembered but proven: the filters that the kernel has are evaluated ([`crate::reach`]).
//!
//! Leaves to others: reading the objects (`palisade_model::guard`), combining profiles (`palisade_model::profile::guard`).

pub mod report;
pub mod watch;

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use jiff::Timestamp;
use palisade_base::{metrics::Registry, time::Time};
use palisade_model::{
    guard::{GuardSubject, SyscallGuard},
    profile::{
        architecture::Architecture,
        call_pattern::CallPattern,
        guard::{GuardError, guarded},
    },
};
use serde_json::Value;
use tokio::sync::{Notify, watch::Sender};
use tracing::warn;

use crate::{
    agent::metrics,
    node_object::machine,
    nri::{
        plugin::Adjuster,
        proto::{CreateContainerRequest, LinuxSeccomp},
    },
};

/// Why an object is no guard, in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnreadableGuard(pub String);

/// A guard as it was last read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownGuard {
    /// Which version of the object.
    pub generation: i64,
    /// The guard, or why it is none.
    pub read: Result<SyscallGuard, UnreadableGuard>,
}

/// A change among guards or namespaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardChange {
    /// All guards there are, by name: the start of a watch, or its restart.
    All(BTreeMap<String, KnownGuard>),
    /// One is new or changed.
    Set(String, Box<KnownGuard>),
    /// One is gone.
    Gone(String),
    /// All namespaces with their labels.
    AllNamespaces(BTreeMap<String, BTreeMap<String, String>>),
    /// A namespace is new or changed.
    Namespace(String, BTreeMap<String, String>),
    /// A namespace is gone.
    NamespaceGone(String),
    /// The guards cannot be watched at the moment; what was known stays.
    Unavailable,
}

#[derive(Debug, Default)]
struct State {
    guards: BTreeMap<String, KnownGuard>,
    is_known: bool,
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// The runtime that the plugin is registered with.
    plugin: Option<String>,
    /// Why guards could not be applied to a container, by pod and name; the newest of each.
    failures: BTreeMap<(String, String), String>,
}

/// How many containers are remembered to which a guard could not be applied.
const MOST_FAILURES: usize = 512;

/// The guards of a node.
#[derive(Debug, Default)]
pub struct Guards {
    state: RwLock<State>,
    changed: Notify,
    /// Whether guards were listed, or could not be.
    ready: Sender<bool>,
    metrics: Option<Arc<Registry>>,
}

/// The guards that are for a container, without those that excuse it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Applicable {
    /// Their names, each with its calls.
    pub guards: Vec<(String, Vec<CallPattern>)>,
    /// The names of guards with an exception for it.
    pub exempt: Vec<String>,
}

impl Applicable {
    /// All calls, each once.
    #[must_use]
    pub fn calls(&self) -> Vec<CallPattern> {
        let mut calls: Vec<CallPattern> = self.guards.iter().flat_map(|(_, calls)| calls).cloned().collect();
        calls.sort();
        calls.dedup();
        calls
    }
}

/// This moment.
#[must_use]
pub fn now() -> Time {
    let now = Timestamp::now();
    Time { seconds: now.as_second(), micros: now.subsec_microsecond().unsigned_abs() }
}

impl Guards {
    /// Guards that count in these metrics.
    #[must_use]
    pub fn new(metrics: Option<Arc<Registry>>) -> Self {
        Self { metrics, ..Self::default() }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a change over.
    pub fn take(&self, change: GuardChange) {
        if matches!(change, GuardChange::All(_) | GuardChange::Unavailable) {
            self.ready.send_replace(true);
        }
        {
            let mut state = self.write();
            match change {
                GuardChange::All(guards) => {
                    state.guards = guards;
                    state.is_known = true;
                }
                GuardChange::Set(name, guard) => drop(state.guards.insert(name, *guard)),
                GuardChange::Gone(name) => drop(state.guards.remove(&name)),
                GuardChange::AllNamespaces(namespaces) => state.namespaces = namespaces,
                GuardChange::Namespace(name, labels) => drop(state.namespaces.insert(name, labels)),
                GuardChange::NamespaceGone(name) => drop(state.namespaces.remove(&name)),
                GuardChange::Unavailable => return,
            }
        }
        self.changed.notify_one();
    }

    /// Something changed that a report depends on, such as the containers of the node.
    pub fn touch(&self) {
        self.changed.notify_one();
    }

    /// Waits until guards were listed, or could not be.
    pub async fn until_ready(&self) {
        // swallowed: the sender is here
        let _ = self.ready.subscribe().wait_for(|ready| *ready).await;
    }

    /// Waits until something changes that a report depends on.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The guards there are, once they are known.
    #[must_use]
    pub fn known(&self) -> Option<BTreeMap<String, KnownGuard>> {
        let state = self.read();
        state.is_known.then(|| state.guards.clone())
    }

    /// The runtime that has the plugin.
    #[must_use]
    pub fn plugin(&self) -> Option<String> {
        self.read().plugin.clone()
    }

    /// The connection of the plugin has ended.
    pub fn plugin_left(&self) {
        let had = self.write().plugin.take().is_some();
        if had {
            self.changed.notify_one();
        }
    }

    /// Why guards could not be applied to a container.
    #[must_use]
    pub fn failure(&self, uid: &str, container: &str) -> Option<String> {
        self.read().failures.get(&(uid.to_owned(), container.to_owned())).cloned()
    }

    fn note_failure(&self, uid: &str, container: &str, failure: Option<String>) {
        let key = (uid.to_owned(), container.to_owned());
        let mut state = self.write();
        match failure {
            None => drop(state.failures.remove(&key)),
            Some(failure) => {
                if state.failures.len() >= MOST_FAILURES {
                    state.failures.pop_first();
                }
                state.failures.insert(key, failure);
            }
        }
    }

    /// The guards that count now for a container.
    #[must_use]
    pub fn applicable(
        &self,
        namespace: &str,
        pod_labels: &BTreeMap<String, String>,
        now: Time,
    ) -> Applicable {
        let state = self.read();
        let namespace_labels = state.namespaces.get(namespace);
        let subject = GuardSubject { namespace, namespace_labels, pod_labels };
        let mut applicable = Applicable::default();
        // swallowed: those that cannot be read are reported as such
        let readable = state.guards.values().filter_map(|guard| guard.read.as_ref().ok());
        for guard in readable.filter(|guard| guard.counts_at(now)) {
            if guard.exception(&subject).is_some() {
                applicable.exempt.push(guard.name.clone());
            } else {
                applicable.guards.push((guard.name.clone(), guard.calls.clone()));
            }
        }
        applicable
    }

    /// The profile that a container gets in place of its own: none if no guard is for it.
    pub fn compose(
        &self,
        applicable: &Applicable,
        profile: Option<&Value>,
    ) -> Result<Option<Value>, ComposeError> {
        let calls = applicable.calls();
        if calls.is_empty() {
            return Ok(None);
        }
        let machine = Architecture::of_go(machine()).ok_or(ComposeError::Machine(machine()))?;
        Ok(Some(guarded(profile, &calls, machine)?))
    }

    /// The same, with the result noted for the report of the container.
    pub fn compose_for(
        &self,
        (uid, container): (&str, &str),
        applicable: &Applicable,
        profile: Option<&Value>,
    ) -> Option<Value> {
        match self.compose(applicable, profile) {
            Ok(composed) => {
                self.note_failure(uid, container, None);
                composed
            }
            Err(error) => {
                warn!(uid, container, %error, "a container is created without the guards for it");
                self.note_failure(uid, container, Some(error.to_string()));
                None
            }
        }
    }

    /// Notes that guards were applied to a container, or that none is for it.
    pub fn applied(&self, uid: &str, container: &str) {
        self.note_failure(uid, container, None);
    }

    /// Notes why no guard could be applied to a container.
    pub fn not_applied(&self, uid: &str, container: &str, why: String) {
        warn!(uid, container, why, "a container is created without the guards for it");
        self.note_failure(uid, container, Some(why));
    }
}

/// Why a container gets no guard.
#[derive(Debug, thiserror::Error)]
pub enum ComposeError {
    /// There is no name for the machine.
    #[error("the machine {0:?} is not known")]
    Machine(&'static str),
    /// The profiles cannot be combined.
    #[error(transparent)]
    Guard(#[from] GuardError),
}

impl Adjuster for Guards {
    fn registered(&self, runtime: &str, version: &str) {
        tracing::info!(runtime, version, "registered as a plugin of the container runtime");
        self.write().plugin = Some(format!("{runtime} {version}"));
        self.changed.notify_one();
    }

    fn seccomp_policy(&self, request: &CreateContainerRequest) -> Option<LinuxSeccomp> {
        let (Some(pod), Some(container)) = (&request.pod, &request.container) else { return None };
        let applicable = self.applicable(&pod.namespace, &pod.labels, now());
        if applicable.guards.is_empty() {
            return None;
        }
        let policy = container.linux.as_ref().and_then(|linux| linux.seccomp_policy.as_ref());
        let profile = policy.map(LinuxSeccomp::to_document);
        let document = self.compose_for((&pod.uid, &container.name), &applicable, profile.as_ref())?;
        match LinuxSeccomp::from_document(&document) {
            Ok(policy) => Some(policy),
            Err(error) => {
                self.not_applied(&pod.uid, &container.name, error.to_string());
                None
            }
        }
    }

    fn answered(&self, took: Duration) {
        if let Some(registry) = &self.metrics {
            let microseconds = usize::try_from(took.as_micros()).unwrap_or(usize::MAX);
            registry.increment(&metrics::GUARDED_CONTAINERS, &[]);
            registry.set(&metrics::GUARD_MICROSECONDS, &[], microseconds);
        }
        // A container that was created starts to run: the report follows.
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use palisade_model::profile::filter::Filter;
    use serde_json::json;

    use super::*;
    use crate::nri::proto::{Container, LinuxContainer, PodSandbox};

    fn known(name: &str, call: &str, until: &str) -> (String, KnownGuard) {
        let object = json!({"metadata": {"name": name}, "spec": {"calls": [call], "reason": "r", "until": until,
            "exceptions": [{"namespaceSelector": {"matchLabels": {"trusted": "yes"}}, "reason": "r"}]}});
        let read = SyscallGuard::read(&object).map_err(|error| UnreadableGuard(error.to_string()));
        (name.to_owned(), KnownGuard { generation: 1, read })
    }

    fn request(namespace: &str, policy: Option<&Value>) -> CreateContainerRequest {
        let policy = policy.map(|policy| LinuxSeccomp::from_document(policy).unwrap());
        CreateContainerRequest {
            pod: Some(PodSandbox {
                uid: "u".to_owned(),
                namespace: namespace.to_owned(),
                ..PodSandbox::default()
            }),
            container: Some(Container {
                name: "c".to_owned(),
                linux: Some(LinuxContainer { seccomp_policy: policy }),
                ..Container::default()
            }),
        }
    }

    #[test]
    fn guards_that_count_are_in_the_policy_of_every_container_they_are_for() {
        let guards = Guards::default();
        assert_eq!(guards.seccomp_policy(&request("n", None)), None, "no guard, no change");
        guards.take(GuardChange::All(BTreeMap::from([
            known("alg", "socket(AF_ALG)", "2999-01-01T00:00:00Z"),
            known("trace", "ptrace", "2999-01-01T00:00:00Z"),
            known("over", "mount", "2020-01-01T00:00:00Z"),
            known("broken", "mountt", "2999-01-01T00:00:00Z"),
        ])));
        guards.take(GuardChange::AllNamespaces(BTreeMap::from([
            ("n".to_owned(), BTreeMap::new()),
            ("t".to_owned(), BTreeMap::from([("trusted".to_owned(), "yes".to_owned())])),
        ])));
        let profile = json!({"defaultAction": "SCMP_ACT_ERRNO",
            "syscalls": [{"names": ["socket", "ptrace", "mount", "read"], "action": "SCMP_ACT_ALLOW"}]});
        let names = |policy: &LinuxSeccomp| {
            let rules =
                policy.syscalls.iter().filter(|rule| rule.action == "SCMP_ACT_ALLOW" && rule.args.is_empty());
            rules.flat_map(|rule| rule.names.clone()).collect::<Vec<_>>()
        };
        let policy = guards.seccomp_policy(&request("n", Some(&profile))).unwrap();
        assert_eq!(names(&policy), ["mount", "read"]);
        let unconfined = guards.seccomp_policy(&request("n", None)).unwrap();
        assert_eq!(unconfined.default_action, "SCMP_ACT_ALLOW");
        assert!(Filter::read(&unconfined.to_document()).is_ok());
        assert_eq!(guards.seccomp_policy(&request("t", Some(&profile))), None, "an exception");
        assert!(
            guards.seccomp_policy(&request("elsewhere", None)).is_some(),
            "a namespace whose labels are not known"
        );
        assert_eq!(guards.applicable("t", &BTreeMap::new(), now()).exempt, ["alg", "trace"]);
        // What cannot be combined is created as it is, and remembered.
        let unusable = json!({"defaultAction": "SCMP_ACT_NOPE"});
        assert_eq!(guards.seccomp_policy(&request("n", Some(&unusable))), None);
        assert!(guards.failure("u", "c").unwrap().contains("SCMP_ACT_NOPE"));
        assert!(guards.seccomp_policy(&request("n", None)).is_some());
        assert_eq!(guards.failure("u", "c"), None);
    }
}
