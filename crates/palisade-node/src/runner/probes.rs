//! Whether running containers are well: startup, liveness and readiness probes.
//!
//! Implements: the kubelet's prober (`pkg/kubelet/prober`). Every running container with probes has a task that runs them, and
//! reports to the pod's worker by waking it; what follows from it is decided by [`super::plan`] and
//! [`super::status`].

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use palisade_model::{pod_view::ContainerKind, profile::recording::Phase};
use tokio::sync::Notify;

use super::{
    handlers::{Answer, ExecError, Target},
    observed::{Instance, Observed},
    plan::time,
    start::field_path,
};
use crate::{
    api::PodKey,
    cri::proto::ContainerState,
    events::{EventType, Recorder},
    lifecycle::Probe,
    node::Node,
    pod::{Container, RunPod},
};

/// What probes found about a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Health {
    /// Its startup probe succeeded, or it has none.
    pub started: bool,
    /// Its readiness probe succeeds, or it has none.
    pub ready: bool,
    /// It must be stopped.
    pub failed: Option<Kind>,
}

impl Default for Health {
    /// Of a container without probes.
    fn default() -> Self {
        Self { started: true, ready: true, failed: None }
    }
}

impl Health {
    /// Of a container that has just begun to run.
    #[must_use]
    pub const fn before_first_probe(container: &Container) -> Self {
        Self {
            started: container.startup_probe.is_none(),
            ready: container.readiness_probe.is_none(),
            failed: None,
        }
    }
}

/// The kinds of probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the API's own")]
pub enum Kind {
    Startup,
    Liveness,
    Readiness,
}

impl Kind {
    /// As it begins an event.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }
}

type Shared = Arc<Mutex<Health>>;

/// The probes of a pod.
#[derive(Debug, Default)]
pub(super) struct Probes {
    running: BTreeMap<String, Prober>,
}

#[derive(Debug)]
struct Prober {
    health: Shared,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Probes {
    /// Probes the running containers and no others; returns the results by the runtime's id.
    pub(super) fn keep(
        &mut self,
        node: &Node,
        pod: &RunPod,
        observed: &Observed,
        ips: &[String],
        wake: &Arc<Notify>,
    ) -> BTreeMap<String, Health> {
        let is_running = |run: &&Instance| run.state == ContainerState::Running;
        self.running.retain(|id, _| observed.containers.iter().filter(is_running).any(|run| run.id == *id));
        for run in observed.containers.iter().filter(is_running) {
            let Some((kind, container)) = pod.container(&run.name) else { continue };
            if !container.has_probes() || self.running.contains_key(&run.id) {
                continue;
            }
            let health: Shared = Arc::new(Mutex::new(Health::before_first_probe(container)));
            let probing = Probing {
                target: Target {
                    runtime: node.runtime.clone(),
                    id: run.id.clone(),
                    ip: ips.first().cloned().unwrap_or_default(),
                    minor: node.config.compat.kubelet.minor(),
                    recordings: node.recordings.clone(),
                    phase: Phase::Probe,
                },
                recorder: node.recorder.clone(),
                pod: pod.key.clone(),
                kind,
                container: container.clone(),
                started_at: time(run.started_at),
                health: Arc::clone(&health),
                wake: Arc::clone(wake),
            };
            let task = tokio::spawn(probing.run());
            self.running.insert(run.id.clone(), Prober { health, task });
        }
        self.running
            .iter()
            .map(|(id, prober)| (id.clone(), *prober.health.lock().unwrap_or_else(PoisonError::into_inner)))
            .inspect(|(id, health)| {
                if health.started && health.ready {
                    node.recordings.ready(id);
                }
            })
            .collect()
    }
}

struct Probing {
    target: Target,
    recorder: Recorder,
    pod: PodKey,
    kind: ContainerKind,
    container: Container,
    started_at: Timestamp,
    health: Shared,
    wake: Arc<Notify>,
}

impl Probing {
    async fn run(self) {
        if let Some(probe) = &self.container.startup_probe
            && !self.until_started(probe).await
        {
            return;
        }
        let liveness = async {
            if let Some(probe) = &self.container.liveness_probe {
                self.while_alive(probe).await;
            }
        };
        let readiness = async {
            if let Some(probe) = &self.container.readiness_probe {
                self.readiness(probe).await;
            }
        };
        tokio::join!(liveness, readiness);
    }

    fn note(&self, change: impl FnOnce(&mut Health)) {
        let mut health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *health;
        change(&mut health);
        if *health != before {
            self.wake.notify_one();
        }
    }

    /// Whether the container is up; it is given up otherwise.
    async fn until_started(&self, probe: &Probe) -> bool {
        self.delay(probe).await;
        let mut row = Row::default();
        loop {
            match row.count(self.probe_once(Kind::Startup, probe).await) {
                Some((true, successes)) if successes >= probe.successes() => {
                    self.note(|health| health.started = true);
                    return true;
                }
                Some((false, failures)) if failures >= probe.failures() => {
                    self.note(|health| health.failed = Some(Kind::Startup));
                    return false;
                }
                _ => {}
            }
            tokio::time::sleep(probe.period()).await;
        }
    }

    async fn while_alive(&self, probe: &Probe) {
        self.delay(probe).await;
        let mut row = Row::default();
        loop {
            if let Some((false, failures)) = row.count(self.probe_once(Kind::Liveness, probe).await)
                && failures >= probe.failures()
            {
                self.note(|health| health.failed = Some(Kind::Liveness));
                return;
            }
            tokio::time::sleep(probe.period()).await;
        }
    }

    async fn readiness(&self, probe: &Probe) {
        self.delay(probe).await;
        let mut row = Row::default();
        loop {
            match row.count(self.probe_once(Kind::Readiness, probe).await) {
                Some((true, times)) if times >= probe.successes() => self.note(|health| health.ready = true),
                Some((false, times)) if times >= probe.failures() => self.note(|health| health.ready = false),
                _ => {}
            }
            tokio::time::sleep(probe.period()).await;
        }
    }

    /// The delay counts from the container's start, which may be long ago for an agent that adopted it.
    async fn delay(&self, probe: &Probe) {
        let over = Timestamp::now().duration_since(self.started_at);
        let over = Duration::try_from(over).unwrap_or_default();
        tokio::time::sleep(probe.initial_delay().saturating_sub(over)).await;
    }

    /// One probe; a failure is recorded.
    async fn probe_once(&self, kind: Kind, probe: &Probe) -> Option<bool> {
        let record = |text: String| {
            let path = field_path(self.kind, &self.container.name);
            self.recorder.record(&self.pod, &path, EventType::Warning, "Unhealthy", &text);
        };
        match self.answer(probe).await {
            Answer::Success => Some(true),
            Answer::Failure(output) => {
                record(format!("{} probe failed: {output}", kind.as_str()));
                Some(false)
            }
            // A probe that could not be run proves nothing about the container.
            Answer::Unknown(why) => {
                let state = if self.target.minor >= 33 { " and resulted in unknown state" } else { "" };
                record(format!("{} probe errored{state}: {why}", kind.as_str()));
                None
            }
        }
    }

    async fn answer(&self, probe: &Probe) -> Answer {
        let timeout = probe.timeout();
        let (target, container) = (&self.target, &self.container);
        if let Some(exec) = &probe.exec {
            return match target.exec(&exec.command, timeout).await {
                Ok(()) => Answer::Success,
                Err(ExecError::Exit { output, .. }) => Answer::Failure(output),
                Err(ExecError::TimedOut) => {
                    let command = exec.command.join(" ");
                    Answer::Failure(format!("command {command:?} timed out after {}s", timeout.as_secs()))
                }
                Err(ExecError::Runtime(error)) => Answer::Unknown(error.to_string()),
            };
        }
        if let Some(get) = &probe.http_get {
            return match target.http_get(container, get, timeout).await {
                Ok(200..=399) => Answer::Success,
                Ok(code) => Answer::Failure(format!("HTTP probe failed with statuscode: {code}")),
                Err(error) => Answer::Failure(error.to_string()),
            };
        }
        if let Some(tcp) = &probe.tcp_socket {
            return match target.connect(container, &tcp.host, &tcp.port, timeout).await {
                Ok(()) => Answer::Success,
                Err(error) => Answer::Failure(error.to_string()),
            };
        }
        if let Some(grpc) = &probe.grpc {
            let port = u16::try_from(grpc.port).unwrap_or_default();
            return target.grpc(port, &grpc.service, timeout).await;
        }
        Answer::Unknown("missing probe handler".to_owned())
    }
}

/// The same answer several times in a row.
#[derive(Default)]
struct Row {
    last: Option<bool>,
    times: u32,
}

impl Row {
    fn count(&mut self, answer: Option<bool>) -> Option<(bool, u32)> {
        let answer = answer?;
        self.times = if self.last == Some(answer) { self.times.saturating_add(1) } else { 1 };
        self.last = Some(answer);
        Some((answer, self.times))
    }
}

#[cfg(test)]
mod tests {
    use super::Row;

    #[test]
    fn answers_count_in_a_row() {
        let mut row = Row::default();
        let counted: Vec<_> = [Some(true), Some(true), None, Some(false), Some(false), Some(true)]
            .map(|answer| row.count(answer))
            .into();
        assert_eq!(
            counted,
            [Some((true, 1)), Some((true, 2)), None, Some((false, 1)), Some((false, 2)), Some((true, 1))]
        );
    }
}
