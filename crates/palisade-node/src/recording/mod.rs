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
//! A profile is tried out in the same way: the calls that it would deny are counted and continue.
//!
//! Leaves to others: which pods are recorded ([`objects`]), and what becomes of the result.

mod journal;
pub mod objects;
pub mod report;
mod session;
pub mod watch;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::{
        fs::DirBuilderExt as _,
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
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
        filter::{Action, Answer, Call, Filter, FilterError},
        recording::{
            Phase, RecordedCall, Recording, RecordingError, complaining, notifying, unconfined, unseen,
        },
    },
};
use thiserror::Error;
use tracing::warn;

use self::journal::Journal;
pub use self::objects::Recordings;
use crate::{
    api::PodKey,
    kernel::notify::Notification,
    node_object::machine,
    pod::Container,
    profiles::{
        Delivery, ProfileError,
        baseline::{BaselineError, Bounds},
        sealed,
    },
};

/// How long a container without probes counts as starting.
const START: Duration = Duration::from_secs(5);
/// How long a runtime may take to hand a listener over after it started a container.
const HANDED_OVER_WITHIN: Duration = Duration::from_secs(10);
/// Containers that one recorder serves at a time. Each takes a thread of the node, and so does each command that is executed in one.
const MAX_RUNS: usize = 128;
/// Commands that are executed at a time in one of them.
const MAX_COMMANDS: usize = 32;
/// Calls of containers that are counted apart where a profile is tried out.
const MAX_DENIALS: usize = 1024;
/// Ids of containers that are remembered.
const MAX_SEEN: usize = 4096;

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
#[allow(missing_docs, reason = "the texts are what there is to know")]
pub enum PlanError {
    #[error("runtimes apply no profile to privileged containers")]
    Privileged,
    #[error("the node records {MAX_RUNS} containers for it already")]
    TooManyRuns,
    #[error("its recording has too many containers with different names")]
    TooManyNames,
    #[error("the profile to try out {0}")]
    Candidate(#[source] FilterError),
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

/// A container that is about to be recorded.
#[derive(Debug, Clone, Copy)]
pub struct Recordable<'a> {
    /// Its pod.
    pub pod: &'a PodKey,
    /// Its name.
    pub container: &'a str,
    /// Its list.
    pub kind: ContainerKind,
    /// Whether probes decide when it is ready.
    pub has_probes: bool,
}

/// A call that a profile would deny, and who makes it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Denial {
    /// The pod.
    pub pod: PodKey,
    /// The container.
    pub container: String,
    /// The call.
    pub call: RecordedCall,
}

/// One run of a container.
#[derive(Debug)]
struct Run {
    pod: PodKey,
    container: String,
    kind: ContainerKind,
    has_probes: bool,
    /// The profile that is tried out.
    candidate: Option<Arc<Filter>>,
    planned: Instant,
    /// When the runtime handed its listener over.
    began: Option<Instant>,
    /// The runtime's id of it.
    id: Option<String>,
    started: Option<Instant>,
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
    /// Ids of containers that are or were served, or of which the loss is known.
    seen: BTreeSet<String>,
    /// How often calls were made that a profile would deny.
    denials: BTreeMap<Denial, u64>,
    /// Whether calls are still written down.
    is_open: bool,
}

impl State {
    fn write(&mut self, line: Option<String>) {
        if let Some(line) = line
            && let Err(error) = self.journal.append(&line)
        {
            // The journal has no room for the reason; what is in memory has it.
            self.recording.lose(&format!("the journal could not be written: {error}"));
        }
    }

    fn lose(&mut self, reason: &str) {
        if self.is_open {
            let line = self.recording.lose(reason);
            self.write(line);
        }
    }

    fn see(&mut self, id: &str) {
        if self.seen.len() >= MAX_SEEN {
            self.seen.pop_first();
        }
        self.seen.insert(id.to_owned());
    }

    /// Runs of which nothing was received although they began this long ago.
    fn find_missing(&mut self, patience: Duration) {
        let mut reasons = Vec::new();
        for run in self.runs.values_mut().filter(|run| run.began.is_none()) {
            if run.started.is_some_and(|started| started.elapsed() >= patience) {
                // Once is enough.
                run.started = None;
                reasons
                    .push(format!("the runtime handed over no listener for container {:?}", run.container));
            }
        }
        for reason in reasons {
            self.lose(&reason);
        }
    }

    /// Counts a call that a profile would deny.
    fn count(&mut self, pod: PodKey, container: String, call: RecordedCall) {
        let denial = Denial { pod, container, call };
        if let Some(count) = self.denials.get_mut(&denial) {
            *count = count.saturating_add(1);
        } else if self.denials.len() < MAX_DENIALS {
            self.denials.insert(denial, 1);
        } else {
            self.lose(&format!(
                "more than {MAX_DENIALS} different calls would be denied: others are not counted"
            ));
        }
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    is_closed: AtomicBool,
    machine: Architecture,
    /// Whether its threads run before those without a real-time priority.
    is_first: bool,
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
        let tried = run.candidate.as_ref().map(|candidate| (run.pod.clone(), Arc::clone(candidate)));
        let Some(recorded) = RecordedCall::reported(call.audit, call.number, &call.arguments) else {
            let (number, audit) = (call.number, call.audit);
            state.lose(&format!(
                "container {container:?} made call {number} of architecture {audit:#x}, which is not known"
            ));
            return;
        };
        if let Some((pod, candidate)) = tried {
            let (architecture, syscall) = (recorded.architecture, Some(recorded.syscall));
            let made = Call { architecture, syscall, arguments: call.arguments };
            if matches!(candidate.answer(&made, self.machine), Answer::Action(Action::Allow | Action::Log)) {
                return;
            }
            state.count(pod, container.clone(), recorded);
        }
        let line = state.recording.note(&container, recorded, phase);
        state.write(line);
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
    /// Listens on a socket of its own in `folder`, and keeps its journal in a new file. Its threads run before others, because
    /// whoever runs the workload waits for it.
    pub fn start(folder: &Path, journal: &Path) -> Result<Self, RecorderError> {
        let machine = Architecture::of_go(machine()).ok_or(RecorderError::Machine(machine()))?;
        Self::begin(folder, Journal::create(journal)?, Recording::new(machine), machine, true)
    }

    /// The same for a workload of somebody else, whose calls must not take the processors of a node from others. A journal that is
    /// there was left by a recorder that did not end: what it holds is a part of the recording, and the rest is reported as lost.
    pub fn resume(folder: &Path, journal: &Path) -> Result<Self, RecorderError> {
        let machine = Architecture::of_go(machine()).ok_or(RecorderError::Machine(machine()))?;
        let recording = match Journal::read(journal)? {
            None => Recording::new(machine),
            // No container had begun.
            Some(text) if text.is_empty() => Recording::new(machine),
            Some(text) => Recording::replay(&text).unwrap_or_else(|error| {
                let mut recording = Recording::new(machine);
                recording.lose(&format!("the journal of the recorder before cannot be read: {error}"));
                recording
            }),
        };
        let journal = Journal::rewrite(journal, &recording.journal())?;
        Self::begin(folder, journal, recording, machine, false)
    }

    fn begin(
        folder: &Path,
        journal: Journal,
        recording: Recording,
        machine: Architecture,
        is_first: bool,
    ) -> Result<Self, RecorderError> {
        let socket = folder.join(format!("{}.sock", uuid::Uuid::new_v4().simple()));
        let failed = |source| RecorderError::Socket { path: socket.display().to_string(), source };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        let listener = UnixListener::bind(&socket).map_err(failed)?;
        let state = State {
            recording,
            journal,
            runs: BTreeMap::new(),
            seen: BTreeSet::new(),
            denials: BTreeMap::new(),
            is_open: true,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            is_closed: AtomicBool::new(false),
            machine,
            is_first,
        });
        let own = Arc::clone(&shared);
        thread::Builder::new()
            .name("recorder".to_owned())
            .stack_size(session::STACK)
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
    pub fn plan(&self, what: Recordable<'_>, base: &Filter) -> Result<(Filter, String), PlanError> {
        let token = uuid::Uuid::new_v4().simple().to_string();
        self.expect(what, base, token.clone(), None)?;
        let profile = notifying(base, self.machine, &self.socket.to_string_lossy(), &token);
        Ok((profile.inspect_err(|_| self.forget(&token))?, token))
    }

    /// The same for a container in which a profile is tried out.
    pub fn try_out(
        &self,
        what: Recordable<'_>,
        base: &Filter,
        candidate: &Filter,
    ) -> Result<(Filter, String), PlanError> {
        let token = uuid::Uuid::new_v4().simple().to_string();
        let socket = self.socket.to_string_lossy();
        self.expect(what, base, token.clone(), Some(Arc::new(candidate.clone())))?;
        let profile = complaining(base, candidate, self.machine, &socket, &token);
        let profile = profile.inspect_err(|_| self.forget(&token))?;
        let unseen: Vec<&str> = unseen(base, candidate, self.machine).into_iter().collect();
        if !unseen.is_empty() {
            self.lose(&format!(
                "the profile denies {} to container {:?}, and no listener sees whether they are made",
                unseen.join(", "),
                what.container
            ));
        }
        Ok((profile, token))
    }

    /// A run that does not come after all.
    fn forget(&self, token: &str) {
        self.shared.lock().runs.remove(token);
    }

    /// Makes room for a run; before its profile is made, which takes longer.
    fn expect(
        &self,
        what: Recordable<'_>,
        base: &Filter,
        token: String,
        candidate: Option<Arc<Filter>>,
    ) -> Result<(), PlanError> {
        let mut state = self.shared.lock();
        state.find_missing(HANDED_OVER_WITHIN);
        // One that was not created after all is planned again.
        state.runs.retain(|_, run| {
            let is_replaced = run.container == what.container && run.pod.uid == what.pod.uid;
            run.open > 0 || !(is_replaced || run.planned.elapsed() > Duration::from_mins(10))
        });
        if state.runs.len() >= MAX_RUNS {
            return Err(PlanError::TooManyRuns);
        }
        let (is_begun, line) = state.recording.begin(what.container, base);
        state.write(line);
        if !is_begun {
            return Err(PlanError::TooManyNames);
        }
        let run = Run {
            pod: what.pod.clone(),
            container: what.container.to_owned(),
            kind: what.kind,
            has_probes: what.has_probes,
            candidate,
            planned: Instant::now(),
            began: None,
            id: None,
            started: None,
            is_ready: false,
            is_stopping: false,
            expected: Vec::new(),
            open: 0,
        };
        state.runs.insert(token, run);
        Ok(())
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
            state.find_missing(Duration::ZERO);
            let line = state.recording.end();
            state.write(Some(line));
            state.is_open = false;
        }
        state.recording.clone()
    }

    /// What was recorded so far.
    #[must_use]
    pub fn so_far(&self) -> Recording {
        self.shared.lock().recording.clone()
    }

    /// How often each call was made that a profile would deny.
    #[must_use]
    pub fn denials(&self) -> BTreeMap<Denial, u64> {
        self.shared.lock().denials.clone()
    }

    /// Whether it serves no container and expects none. Commands cannot be executed in a container whose recorder is gone.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.shared.lock().runs.is_empty()
    }

    /// Whether it serves or served a container, or the loss of it is known.
    #[must_use]
    pub fn has_seen(&self, id: &str) -> bool {
        self.shared.lock().seen.contains(id)
    }

    /// Reports a running container that it does not serve, once.
    fn miss(&self, id: &str, reason: &str) {
        let mut state = self.shared.lock();
        state.see(id);
        state.lose(reason);
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

/// A container that is recorded.
#[derive(Debug)]
pub(crate) struct Recorded {
    recorder: Arc<Recorder>,
    token: String,
}

impl Recorded {
    /// The runtime created it.
    pub(crate) fn created(&self, id: &str) {
        let mut state = self.recorder.shared.lock();
        state.see(id);
        if let Some(run) = state.runs.get_mut(&self.token) {
            run.id = Some(id.to_owned());
        }
    }

    /// The runtime started it.
    pub(crate) fn started(&self) {
        if let Some(run) = self.recorder.shared.lock().runs.get_mut(&self.token) {
            run.started = Some(Instant::now());
        }
    }
}

/// What the runtime is given for a container that may be recorded. A container that cannot be recorded runs as it would without,
/// and the recording is lossy.
pub(crate) fn deliver(
    plan: RecordingPlan,
    delivery: Option<Delivery>,
    (pod, kind, container): (&PodKey, ContainerKind, &Container),
    context: &EffectiveContext<'_>,
    bounds: &Bounds,
) -> (Option<Delivery>, Option<Recorded>) {
    let RecordingPlan { recorder, candidate } = plan;
    let what = Recordable { pod, container: &container.name, kind, has_probes: container.has_probes() };
    match planned(&recorder, candidate, delivery.as_ref(), what, context, bounds) {
        Ok((planned, token)) => (Some(planned), Some(Recorded { recorder, token })),
        Err(error) => {
            let reason = format!("container {:?} is not recorded: {error}", container.name);
            warn!(%reason, "recording");
            recorder.lose(&reason);
            (delivery, None)
        }
    }
}

/// Who records a container, and for what.
#[derive(Debug)]
pub(crate) struct RecordingPlan {
    pub(crate) recorder: Arc<Recorder>,
    /// The profile that is tried out, if one is, or why there is none.
    pub(crate) candidate: Option<Result<Delivery, ProfileError>>,
}

fn planned(
    recorder: &Recorder,
    candidate: Option<Result<Delivery, ProfileError>>,
    delivery: Option<&Delivery>,
    what: Recordable<'_>,
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
    let (profile, token) = match candidate {
        None => recorder.plan(what, &base)?,
        Some(candidate) => {
            let text = fs::read_to_string(&candidate?.path)?;
            let candidate = Filter::parse(&text).map_err(PlanError::Candidate)?;
            recorder.try_out(what, &base, &candidate)?
        }
    };
    let shown = delivery.map_or_else(|| "the recorder's profile".to_owned(), |own| own.shown.clone());
    let text = profile.to_oci().to_string();
    let own = sealed(shown.clone(), text.as_bytes(), &shown)?;
    // What the profile was made of stays what its user knows.
    let source_hash = delivery.and_then(|own| own.source_hash.clone().or_else(|| own.hash.clone()));
    Ok((own.made_of(source_hash), token))
}
