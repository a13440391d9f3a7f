//! What to do next for a pod: a pure decision.
//!
//! Implements: the kubelet's `computePodActions` (`pkg/kubelet/kuberuntime/kuberuntime_manager.go`): sandbox first, init
//! containers in order, sidecars kept running, app containers by restart policy; and, with Palisade's extensions, "retry respecting
//! RestartPolicy and back-off delay" for containers that never came to be. Carrying it out is [`super::worker`]'s.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use palisade_model::pod_view::ContainerKind;

use super::{
    backoff::{BackOff, in_go},
    observed::{Instance, Observed},
    probes::{Health, Kind},
    resize::{Change, change},
};
use crate::{
    cri::proto::{ContainerState, LinuxContainerResources},
    pod::{Container, RestartPolicy, RunPod},
};

/// The kubelet's retry of what could not be created: flat, whatever the restart policy.
pub const FLAT_RETRY: Duration = Duration::from_secs(10);

/// Why a container is not running, in the API's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// CamelCase word for machines.
    pub reason: String,
    /// Sentence for people.
    pub message: String,
}

/// A container that could not be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The message.
    pub reason: Reason,
    /// When it was tried last.
    pub at: Timestamp,
    /// How it is tried again.
    pub retry: Retry,
}

/// How a container that could not be created is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Every ten seconds, forever: what kubelets do.
    Flat,
    /// As if it had run and failed, as Palisade's extensions treat profiles.
    ByRestartPolicy,
}

/// What the agent remembers about a pod besides what the runtime has.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    /// Containers that could not be created.
    pub failures: BTreeMap<String, Failure>,
    /// Waits, by container and version.
    pub back_off: BackOff,
    /// What probes found about running containers, by the runtime's id.
    pub health: BTreeMap<String, Health>,
    /// What running containers have of the node, by the runtime's id.
    pub resources: BTreeMap<String, LinuxContainerResources>,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodStep {
    /// Stop everything and make a new sandbox.
    NewSandbox {
        /// Its number.
        attempt: u32,
        /// Whether there was one before.
        replaces: bool,
    },
    /// Remove a container that was created and never started: an agent was killed in between.
    Remove {
        /// The runtime's id.
        id: String,
    },
    /// Stop a container whose definition changed.
    Stop {
        /// The runtime's id.
        id: String,
    },
    /// Change what a running container has of the node.
    Resize {
        /// The runtime's id.
        id: String,
        /// Its name.
        name: String,
    },
    /// Stop a container that is not well; what follows is seen when it has stopped.
    Kill {
        /// The runtime's id.
        id: String,
        /// Which probe gave it up.
        failed: Kind,
    },
    /// Create and start a container.
    Start {
        /// Its name.
        name: String,
        /// Its list.
        kind: ContainerKind,
        /// How often it was started before.
        restart_count: u32,
    },
    /// Report that a container waits for its next start.
    Wait {
        /// Its name.
        name: String,
        /// The wait in force.
        wait: Duration,
    },
    /// Stop the sidecars and the sandbox: nothing is left to run.
    Finish,
}

/// What to do, and when to look again at the latest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodPlan {
    /// In this order.
    pub steps: Vec<PodStep>,
    /// `None`: when something changes.
    pub again_at: Option<Timestamp>,
}

/// The next steps for a pod that is not being deleted.
#[must_use]
pub fn plan(pod: &RunPod, observed: &Observed, memory: &Memory, now: Timestamp) -> PodPlan {
    let mut planner = Planner { pod, observed, memory, now, plan: PodPlan::default() };
    planner.run();
    planner.plan
}

struct Planner<'a> {
    pod: &'a RunPod,
    observed: &'a Observed,
    memory: &'a Memory,
    now: Timestamp,
    plan: PodPlan,
}

/// What a container that has a status needs.
enum Need {
    Nothing,
    Start(u32),
    Later,
    Never,
}

impl Planner<'_> {
    fn run(&mut self) {
        if self.is_finished() {
            self.plan.steps.push(PodStep::Finish);
            return;
        }
        let Some(sandbox) = self.observed.ready_sandbox() else {
            let last = self.observed.sandboxes.first();
            let attempt = last.map_or(0, |sandbox| sandbox.attempt.saturating_add(1));
            self.plan.steps.push(PodStep::NewSandbox { attempt, replaces: last.is_some() });
            return;
        };
        let sandbox = sandbox.id.clone();
        if self.initialise(&sandbox) {
            for container in &self.pod.spec.containers {
                self.keep(ContainerKind::App, container, self.pod.spec.restart_policy);
            }
        }
        for container in &self.pod.spec.ephemeral_containers {
            // They are started once; whatever became of them stays.
            let failed = self.memory.failures.get(&container.name);
            if self.observed.latest(&container.name).is_none()
                && failed.is_none_or(|failure| self.may_retry(failure))
            {
                self.start(ContainerKind::Ephemeral, container, 0);
            } else if let Some(failure) = failed {
                self.look_again(failure.at + FLAT_RETRY);
            }
        }
    }

    /// Whether every app container is done for good.
    fn is_finished(&self) -> bool {
        let policy = self.pod.spec.restart_policy;
        let init_failed = policy == RestartPolicy::Never
            && self.pod.spec.init_containers.iter().filter(|container| !container.is_sidecar()).any(
                |container| {
                    self.has_failed_for_good(container, policy)
                        || self
                            .observed
                            .latest(&container.name)
                            .is_some_and(|run| run.state == ContainerState::Exited && run.exit_code != 0)
                },
            );
        init_failed
            || self.pod.spec.containers.iter().all(|container| {
                self.observed.latest(&container.name).map_or_else(
                    || self.has_failed_for_good(container, policy),
                    |run| run.state == ContainerState::Exited && !restarts(policy, run.exit_code),
                )
            })
    }

    /// With Palisade's extensions, a container whose profile cannot be used counts as one that ran and failed.
    fn has_failed_for_good(&self, container: &Container, policy: RestartPolicy) -> bool {
        policy == RestartPolicy::Never
            && self
                .memory
                .failures
                .get(&container.name)
                .is_some_and(|failure| failure.retry == Retry::ByRestartPolicy)
    }

    /// Runs the init containers; whether the app containers may run.
    fn initialise(&mut self, sandbox: &str) -> bool {
        // Once an app container ran in this sandbox, initialisation is over, even if its containers were removed.
        let over = self.pod.spec.containers.iter().any(|container| {
            self.memory.failures.contains_key(&container.name)
                || self.observed.runs(&container.name).any(|run| run.sandbox == sandbox)
        });
        for container in &self.pod.spec.init_containers {
            let run = self.observed.runs(&container.name).find(|run| run.sandbox == sandbox);
            if container.is_sidecar() {
                self.keep(ContainerKind::Init, container, RestartPolicy::Always);
                // Who comes next may rely on it, so it must not only run but have started.
                let unasked = Health::before_first_probe(container);
                let started = |run: &Instance| self.memory.health.get(&run.id).unwrap_or(&unasked).started;
                let running = run.is_some_and(|run| run.state == ContainerState::Running && started(run));
                if !running && !over {
                    return false;
                }
                continue;
            }
            if over {
                continue;
            }
            match run {
                Some(run) if run.state == ContainerState::Exited && run.exit_code == 0 => {}
                Some(run) if run.state == ContainerState::Running => return false,
                _ => {
                    let policy = match self.pod.spec.restart_policy {
                        // An init container that did its work is never repeated.
                        RestartPolicy::Always => RestartPolicy::OnFailure,
                        policy => policy,
                    };
                    let failure = self.memory.failures.get(&container.name);
                    let need = match (run, failure) {
                        (Some(_), _) => self.need(ContainerKind::Init, container, policy),
                        // What an older sandbox did is done again.
                        (None, None) => Need::Start(self.next_count(&container.name)),
                        (None, Some(failure)) => {
                            let count = self.next_count(&container.name);
                            self.after_failure(failure, container, ContainerKind::Init, policy, count)
                        }
                    };
                    if let Need::Start(count) = need {
                        self.start(ContainerKind::Init, container, count);
                    }
                    return false;
                }
            }
        }
        true
    }

    fn keep(&mut self, kind: ContainerKind, container: &Container, policy: RestartPolicy) {
        match self.need(kind, container, policy) {
            Need::Nothing | Need::Never | Need::Later => {}
            Need::Start(count) => self.start(kind, container, count),
        }
    }

    fn need(&mut self, kind: ContainerKind, container: &Container, policy: RestartPolicy) -> Need {
        let failure = self.memory.failures.get(&container.name);
        let Some(run) = self.observed.latest(&container.name) else {
            return match failure {
                None => Need::Start(0),
                Some(failure) => self.after_failure(failure, container, kind, policy, 0),
            };
        };
        match run.state {
            ContainerState::Running => {
                if let Some(failed) = self.memory.health.get(&run.id).and_then(|health| health.failed) {
                    self.plan.steps.push(PodStep::Kill { id: run.id.clone(), failed });
                    return Need::Nothing;
                }
                let declares_more = self
                    .memory
                    .resources
                    .get(&run.id)
                    .map_or(Change::None, |has| change(self.pod, container, has));
                if run.hash == self.pod.container_hash(kind, &container.name)
                    && declares_more != Change::Restart
                {
                    if declares_more == Change::InPlace {
                        let (id, name) = (run.id.clone(), container.name.clone());
                        self.plan.steps.push(PodStep::Resize { id, name });
                    }
                    return Need::Nothing;
                }
                self.plan.steps.push(PodStep::Stop { id: run.id.clone() });
                Need::Start(run.restart_count.saturating_add(1))
            }
            ContainerState::Exited => {
                let next = run.restart_count.saturating_add(1);
                if !restarts(policy, run.exit_code) {
                    return Need::Never;
                }
                if let Some(failure) = failure.filter(|failure| failure.at > time(run.finished_at)) {
                    return self.after_failure(failure, container, kind, policy, next);
                }
                self.in_turn(
                    &container.name,
                    &self.back_off_key(kind, &container.name),
                    time(run.finished_at),
                    next,
                )
            }
            ContainerState::Created | ContainerState::Unknown => {
                self.plan.steps.push(PodStep::Remove { id: run.id.clone() });
                Need::Start(run.restart_count)
            }
        }
    }

    fn after_failure(
        &mut self,
        failure: &Failure,
        container: &Container,
        kind: ContainerKind,
        policy: RestartPolicy,
        count: u32,
    ) -> Need {
        match failure.retry {
            Retry::Flat if self.may_retry(failure) => Need::Start(count),
            Retry::Flat => {
                self.look_again(failure.at + FLAT_RETRY);
                Need::Later
            }
            Retry::ByRestartPolicy if policy == RestartPolicy::Never => Need::Never,
            Retry::ByRestartPolicy => {
                let key = self.back_off_key(kind, &container.name);
                self.in_turn(&container.name, &key, failure.at, count)
            }
        }
    }

    /// Starts it now, or reports that it waits.
    fn in_turn(&mut self, name: &str, key: &str, failed: Timestamp, count: u32) -> Need {
        match self.memory.back_off.waiting(key, failed, self.now) {
            None => Need::Start(count),
            Some((wait, until)) => {
                self.plan.steps.push(PodStep::Wait { name: name.to_owned(), wait });
                self.look_again(until);
                Need::Later
            }
        }
    }

    fn may_retry(&self, failure: &Failure) -> bool {
        failure.at + FLAT_RETRY <= self.now
    }

    fn look_again(&mut self, at: Timestamp) {
        self.plan.again_at = Some(self.plan.again_at.map_or(at, |known| known.min(at)));
    }

    fn next_count(&self, name: &str) -> u32 {
        self.observed.latest(name).map_or(0, |run| run.restart_count.saturating_add(1))
    }

    fn start(&mut self, kind: ContainerKind, container: &Container, restart_count: u32) {
        self.plan.steps.push(PodStep::Start { name: container.name.clone(), kind, restart_count });
    }

    fn back_off_key(&self, kind: ContainerKind, name: &str) -> String {
        back_off_key(self.pod, kind, name)
    }
}

/// A container's waits are forgotten when its definition changes.
#[must_use]
pub fn back_off_key(pod: &RunPod, kind: ContainerKind, name: &str) -> String {
    format!("{name}_{}", pod.container_hash(kind, name))
}

/// Whether a container that exited is started again.
#[must_use]
pub const fn restarts(policy: RestartPolicy, exit_code: i32) -> bool {
    match policy {
        RestartPolicy::Always => true,
        RestartPolicy::OnFailure => exit_code != 0,
        RestartPolicy::Never => false,
    }
}

/// Nanoseconds since 1970, as CRI has them.
#[must_use]
pub fn time(nanoseconds: i64) -> Timestamp {
    Timestamp::from_nanosecond(i128::from(nanoseconds)).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// The kubelet's sentence about a wait.
#[must_use]
pub fn waiting_message(wait: Duration, container: &str, pod: &crate::api::PodKey) -> String {
    format!("back-off {} restarting failed container={container} pod={pod}", in_go(wait))
}

/// Runs that are not needed any more: all but the newest and the one before it.
#[must_use]
pub fn superfluous<'a>(pod: &'a RunPod, observed: &'a Observed) -> Vec<&'a Instance> {
    let mut found = Vec::new();
    for (_, container) in pod.containers() {
        let runs = observed.runs(&container.name).filter(|run| run.state != ContainerState::Running);
        let newest_runs =
            observed.latest(&container.name).is_some_and(|run| run.state == ContainerState::Running);
        found.extend(runs.skip(if newest_runs { 1 } else { 2 }));
    }
    found
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
