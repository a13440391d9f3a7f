//! Recording what containers call.
//!
//! A recorded container gets a profile that denies what its own profile denies and leaves every other call to a listener
//! ([`palisade_model::profile::recording::notifying`]). The runtime hands the listener to the [`Recorder`]'s socket when it starts
//! the container and whenever it executes a command in it; the recorder writes each call down, in memory and in a journal, and then
//! lets it continue. So a call that was made is recorded, and what is not recorded is reported: a runtime that hands nothing over,
//! a journal that cannot be written, a recorder that ended early.
//!
//! The recorder decides nothing: calls that the profile denies are denied by the kernel. Its socket is in a folder that only root
//! may enter, takes connections of its own user alone, and serves containers that it planned itself.
//!
//! Leaves to others: which pods are recorded, and what becomes of the result.

mod journal;
mod session;

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::{
        fs::DirBuilderExt as _,
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use palisade_model::{
    effective::EffectiveContext,
    pod_view::ContainerKind,
    profile::{
        ProfileRef,
        architecture::Architecture,
        filter::{Filter, FilterError},
        recording::{Phase, RecordedCall, Recording, RecordingError, notifying, unconfined},
    },
};
use thiserror::Error;
use tracing::warn;

use self::journal::Journal;
use crate::{
    kernel::notify::Notification,
    node_object::machine,
    pod::{Container, RunPod},
    profiles::{
        Delivery, ProfileError,
        baseline::{BaselineError, Bounds},
        sealed,
    },
};

/// How long a container without probes counts as starting.
const START: Duration = Duration::from_secs(5);

/// Why nothing can be recorded.
#[derive(Debug, Error)]
pub enum RecorderError {
    /// The machine is none of those that profiles have names for.
    #[error("the machine {0:?} is not known: its system calls cannot be recorded")]
    Machine(&'static str),
    /// The folder of the socket.
    #[error("cannot listen at {path}: {source}")]
    Socket {
        /// Where.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The journal.
    #[error("cannot write the journal {path}: {source}")]
    Journal {
        /// Where.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The journal of a recording that did not end.
    #[error(
        "{path} is the journal of a recording that did not end: read it with `palisade profile recorded {path}`, and remove it"
    )]
    Unfinished {
        /// Where.
        path: String,
    },
}

/// Why one container is not recorded.
#[derive(Debug, Error)]
enum PlanError {
    #[error("runtimes apply no profile to privileged containers")]
    Privileged,
    #[error("its profile cannot be read: {0}")]
    Read(#[from] io::Error),
    #[error("its profile {0}")]
    Filter(#[from] FilterError),
    #[error(transparent)]
    Baseline(#[from] BaselineError),
    #[error(transparent)]
    Recording(#[from] RecordingError),
    #[error(transparent)]
    Delivery(#[from] ProfileError),
}

/// One run of a container.
#[derive(Debug)]
struct Run {
    container: String,
    kind: ContainerKind,
    has_probes: bool,
    /// When the runtime handed its listener over.
    began: Option<Instant>,
    /// The runtime's id of it.
    id: Option<String>,
    is_started: bool,
    is_ready: bool,
    is_stopping: bool,
    /// Commands that the node itself is about to execute in it.
    expected: Vec<Phase>,
    /// Listeners that are served.
    open: usize,
}

impl Run {
    /// The phase of its own processes.
    fn phase(&self) -> Phase {
        let is_late = || !self.has_probes && self.began.is_some_and(|began| began.elapsed() > START);
        if self.is_stopping {
            Phase::Shutdown
        } else if self.kind == ContainerKind::Init {
            Phase::Init
        } else if self.is_ready || is_late() {
            Phase::Run
        } else {
            Phase::Start
        }
    }
}

#[derive(Debug)]
struct State {
    recording: Recording,
    journal: Journal,
    /// By the token that the runtime hands over with the listener.
    runs: BTreeMap<String, Run>,
    /// Whether calls are still written down.
    is_open: bool,
}

impl State {
    fn write(&mut self, line: &str) {
        if let Err(error) = self.journal.append(line) {
            // The journal has no room for the reason; what is in memory has it.
            self.recording.lose(&format!("the journal could not be written: {error}"));
        }
    }

    fn lose(&mut self, reason: &str) {
        if self.is_open {
            let line = self.recording.lose(reason);
            self.write(&line);
        }
    }

    /// Runs of which nothing was received although they began.
    fn find_missing(&mut self) {
        let mut reasons = Vec::new();
        for run in self.runs.values_mut().filter(|run| run.is_started && run.began.is_none()) {
            // Once is enough.
            run.is_started = false;
            reasons.push(format!("the runtime handed over no listener for container {:?}", run.container));
        }
        for reason in reasons {
            self.lose(&reason);
        }
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    is_closed: AtomicBool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lose(&self, reason: &str) {
        self.lock().lose(reason);
    }

    fn interrupted(&self) {
        let mut state = self.lock();
        if state.is_open {
            state.recording.interrupt();
        }
    }

    /// Writes a call down; `phase` is that of the process where it is not that of the container.
    fn write_down(&self, token: &str, phase: Option<Phase>, call: &Notification) {
        let mut state = self.lock();
        if !state.is_open {
            return;
        }
        let Some(run) = state.runs.get(token) else { return };
        let phase = phase.unwrap_or_else(|| run.phase());
        let container = run.container.clone();
        let Some(recorded) = RecordedCall::reported(call.audit, call.number, &call.arguments) else {
            let (number, audit) = (call.number, call.audit);
            state.lose(&format!(
                "container {container:?} made call {number} of architecture {audit:#x}, which is not known"
            ));
            return;
        };
        if let Some(line) = state.recording.note(&container, recorded, phase) {
            state.write(&line);
        }
    }
}

/// Receives listeners from the runtime and writes down what they report.
#[derive(Debug)]
pub struct Recorder {
    shared: Arc<Shared>,
    machine: Architecture,
    socket: PathBuf,
}

impl Recorder {
    /// Listens on a socket of its own in `folder`, and keeps its journal in a new file.
    pub fn start(folder: &Path, journal: &Path) -> Result<Self, RecorderError> {
        let machine = Architecture::of_go(machine()).ok_or(RecorderError::Machine(machine()))?;
        let journal = Journal::create(journal)?;
        let socket = folder.join(format!("{}.sock", uuid::Uuid::new_v4().simple()));
        let failed = |source| RecorderError::Socket { path: socket.display().to_string(), source };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        let listener = UnixListener::bind(&socket).map_err(failed)?;
        let state =
            State { recording: Recording::new(machine), journal, runs: BTreeMap::new(), is_open: true };
        let shared = Arc::new(Shared { state: Mutex::new(state), is_closed: AtomicBool::new(false) });
        let own = Arc::clone(&shared);
        thread::Builder::new()
            .name("recorder".to_owned())
            .spawn(move || session::accept(&listener, &own))
            .map_err(failed)?;
        Ok(Self { shared, machine, socket })
    }

    /// Where the runtime hands listeners over.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The profile of a container that is about to be created, and the token of its run.
    pub fn plan(
        &self,
        container: &str,
        kind: ContainerKind,
        has_probes: bool,
        base: &Filter,
    ) -> Result<(Filter, String), RecordingError> {
        let token = uuid::Uuid::new_v4().simple().to_string();
        let profile = notifying(base, self.machine, &self.socket.to_string_lossy(), &token)?;
        let mut state = self.shared.lock();
        state.find_missing();
        state.runs.retain(|_, run| run.container != container || run.open > 0);
        let line = state.recording.begin(container, base);
        state.write(&line);
        let run = Run {
            container: container.to_owned(),
            kind,
            has_probes,
            began: None,
            id: None,
            is_started: false,
            is_ready: false,
            is_stopping: false,
            expected: Vec::new(),
            open: 0,
        };
        state.runs.insert(token.clone(), run);
        Ok((profile, token))
    }

    /// Writes down that something is missing.
    pub fn lose(&self, reason: &str) {
        self.shared.lose(reason);
    }

    fn change(&self, id: &str, change: impl FnOnce(&mut Run)) {
        let mut state = self.shared.lock();
        if let Some(run) = state.runs.values_mut().find(|run| run.id.as_deref() == Some(id)) {
            change(run);
        }
    }

    /// Writes no more calls down, and returns what was recorded. Calls of containers that still run continue.
    #[must_use]
    pub fn finish(&self) -> Recording {
        let mut state = self.shared.lock();
        if state.is_open {
            state.find_missing();
            let line = state.recording.end();
            state.write(&line);
            state.is_open = false;
        }
        state.recording.clone()
    }

    /// What was recorded so far.
    #[must_use]
    pub fn so_far(&self) -> Recording {
        self.shared.lock().recording.clone()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::SeqCst);
        // Ends the wait for a connection; listeners that are served stay served.
        UnixStream::connect(&self.socket).ok();
        fs::remove_file(&self.socket).ok();
    }
}

/// The recordings of a node.
#[derive(Debug, Clone, Default)]
pub struct Recordings(Arc<RwLock<Vec<Arc<Recorder>>>>);

impl Recordings {
    /// Records every pod from now on.
    pub fn record_all(&self, recorder: Arc<Recorder>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).push(recorder);
    }

    /// Records no more pods; containers that run are served until they end.
    pub fn stop(&self, recorder: &Arc<Recorder>) {
        let mut recorders = self.0.write().unwrap_or_else(PoisonError::into_inner);
        recorders.retain(|known| !Arc::ptr_eq(known, recorder));
    }

    /// What records a pod.
    #[must_use]
    pub fn of_pod(&self, _pod: &RunPod) -> Option<Arc<Recorder>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).first().cloned()
    }

    fn each(&self, act: impl Fn(&Recorder)) {
        for recorder in self.0.read().unwrap_or_else(PoisonError::into_inner).iter() {
            act(recorder);
        }
    }

    /// A container's probes succeed.
    pub(crate) fn ready(&self, id: &str) {
        self.each(|recorder| recorder.change(id, |run| run.is_ready = true));
    }

    /// A container is about to be stopped.
    pub(crate) fn stopping(&self, id: &str) {
        self.each(|recorder| recorder.change(id, |run| run.is_stopping = true));
    }

    /// The node executes a command in a container until the result is dropped.
    pub(crate) fn executing(&self, id: &str, phase: Phase) -> Executing {
        self.each(|recorder| recorder.change(id, |run| run.expected.push(phase)));
        Executing { recordings: self.clone(), id: id.to_owned(), phase }
    }
}

/// A command that the node executes.
#[derive(Debug)]
pub(crate) struct Executing {
    recordings: Recordings,
    id: String,
    phase: Phase,
}

impl Drop for Executing {
    fn drop(&mut self) {
        let phase = self.phase;
        self.recordings.each(|recorder| {
            recorder.change(&self.id, |run| {
                if let Some(position) = run.expected.iter().position(|known| *known == phase) {
                    run.expected.swap_remove(position);
                }
            });
        });
    }
}

/// A container that is recorded.
#[derive(Debug)]
pub(crate) struct Recorded {
    recorder: Arc<Recorder>,
    token: String,
}

impl Recorded {
    /// The runtime started it.
    pub(crate) fn started(&self) {
        if let Some(run) = self.recorder.shared.lock().runs.get_mut(&self.token) {
            run.is_started = true;
        }
    }
}

/// What the runtime is given for a container that may be recorded. A container that cannot be recorded runs as it would without,
/// and the recording is lossy.
pub(crate) fn deliver(
    recorder: Arc<Recorder>,
    delivery: Option<Delivery>,
    (kind, container): (ContainerKind, &Container),
    context: &EffectiveContext<'_>,
    bounds: &Bounds,
) -> (Option<Delivery>, Option<Recorded>) {
    match plan(&recorder, delivery.as_ref(), (kind, container), context, bounds) {
        Ok((planned, token)) => (Some(planned), Some(Recorded { recorder, token })),
        Err(error) => {
            let reason = format!("container {:?} is not recorded: {error}", container.name);
            warn!(%reason, "recording");
            recorder.lose(&reason);
            (delivery, None)
        }
    }
}

fn plan(
    recorder: &Recorder,
    delivery: Option<&Delivery>,
    (kind, container): (ContainerKind, &Container),
    context: &EffectiveContext<'_>,
    bounds: &Bounds,
) -> Result<(Delivery, String), PlanError> {
    if context.privileged.value {
        return Err(PlanError::Privileged);
    }
    let base = match (delivery, &context.seccomp.profile) {
        (Some(delivery), _) => Filter::parse(&fs::read_to_string(&delivery.path)?)?,
        (None, Ok(ProfileRef::Unconfined)) => {
            let machine = Architecture::of_go(machine()).ok_or(BaselineError::Machine(machine()))?;
            unconfined(machine)?
        }
        (None, _) => bounds.runtime_default()?,
    };
    let (profile, token) = recorder.plan(&container.name, kind, container.has_probes(), &base)?;
    let shown = delivery.map_or_else(|| "the recorder's profile".to_owned(), |own| own.shown.clone());
    let text = profile.to_oci().to_string();
    let own = sealed(shown.clone(), text.as_bytes(), &shown)?;
    // What the profile was made of stays what its user knows.
    let source_hash = delivery.and_then(|own| own.source_hash.clone().or_else(|| own.hash.clone()));
    Ok((own.made_of(source_hash), token))
}
