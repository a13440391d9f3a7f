//! What a workload calls, as it was recorded, and the profile that allows it.
//!
//! A recorded container runs with the profile that it would have without, in which every call that is allowed is left to a
//! listener ([`notifying`]): the kernel itself denies what the profile denies, and the listener lets the rest pass after it is
//! written down. What was recorded makes a profile that allows these calls and nothing that the container was denied
//! ([`Recording::profile`]), and a statement of what is known to be missing ([`Recording::statement`]).
//!
//! A [`Recording`] is also kept as a journal, one JSON object per line, so that a recorder that ends early leaves behind what it
//! has seen, and the fact that it ended early. It grows with what is new only: a container that is started again and again, or
//! that is denied again and again, adds no lines.
//!
//! A profile is tried out in the same way: what it would deny is left to the listener and lets the container pass ([`complaining`]).
//!
//! Leaves to others: receiving notifications, and in which phase a container is (the node); recordings as documents that nodes send
//! ([`document`]).

pub mod document;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use thiserror::Error;

use super::{
    algebra::{AlgebraError, Strictness},
    architecture::Architecture,
    decision::{Arguments, TooComplex},
    filter::{Action, Answer, Call, Filter, FilterError},
    json::{self as strict_json, JsonError},
    syscalls::Syscall,
};

/// What a container does while it calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// The container runtime has installed the filter and not yet executed the program.
    Runtime,
    /// An init container runs.
    Init,
    /// The container has started and is not yet ready.
    Start,
    /// It is ready.
    Run,
    /// A command of a probe.
    Probe,
    /// A command that somebody executes in the container.
    Exec,
    /// It is being stopped.
    Shutdown,
}

impl Phase {
    /// All of them, in the order of a container's life.
    pub const ALL: [Self; 7] =
        [Self::Runtime, Self::Init, Self::Start, Self::Run, Self::Probe, Self::Exec, Self::Shutdown];

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Runtime => "runtime",
            Self::Init => "init",
            Self::Start => "start",
            Self::Run => "run",
            Self::Probe => "probe",
            Self::Exec => "exec",
            Self::Shutdown => "shutdown",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.as_str() == name)
    }
}

/// Calls whose meaning is in one argument, and which one that is.
const SELECTED: &[(&str, u8)] = &[
    ("clone", 0),
    ("ioctl", 1),
    ("personality", 0),
    ("prctl", 0),
    ("socket", 0),
    ("socketpair", 0),
    ("unshare", 0),
];

/// The argument that is recorded of a call.
fn selected(syscall: Syscall, architecture: Architecture) -> Option<u8> {
    let (name, index) = SELECTED.iter().find(|(name, _)| *name == syscall.name())?;
    // s390 has the stack first.
    let swapped = *name == "clone" && architecture.token().starts_with("SCMP_ARCH_S390");
    Some(if swapped { 1 } else { *index })
}

/// A call as it is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordedCall {
    /// The convention it was made by.
    pub architecture: Architecture,
    /// Which one.
    pub syscall: Syscall,
    /// The argument that matters; none for a call of which no argument does, or that was made with too many values.
    pub argument: Option<u64>,
}

impl RecordedCall {
    /// What the kernel reports to a listener; none for a number that no table has.
    #[must_use]
    pub fn reported(audit: u32, number: u32, arguments: &Arguments) -> Option<Self> {
        let (architecture, syscall) = Syscall::reported(audit, number)?;
        let index = selected(syscall, architecture);
        let argument = index.and_then(|index| arguments.get(usize::from(index)).copied());
        Some(Self { architecture, syscall, argument })
    }

    fn example(self) -> Call {
        let mut arguments = [0; 6];
        if let (Some(index), Some(value)) = (selected(self.syscall, self.architecture), self.argument)
            && let Some(argument) = arguments.get_mut(usize::from(index))
        {
            *argument = value;
        }
        Call { architecture: self.architecture, syscall: Some(self.syscall), arguments }
    }
}

/// Values of one argument that are kept apart; a call with more is recorded with any value.
const MAX_VALUES: usize = 64;
/// Containers of one recording.
const MAX_CONTAINERS: usize = 64;
/// Calls of one recording, each with a value of its argument; a machine has far fewer.
const MAX_CALLS: usize = 8192;

/// Calls that are not left to the listener and that every profile allows as far as the container has them, and why.
pub const ASSUMED: &[(&[&str], &str)] = &[
    (&["write"], "runc leaves no call of write to a listener: it writes while it hands the listener over"),
    (
        &["restart_syscall", "rt_sigreturn"],
        "programs that are interrupted by a signal make these calls, and fail if a signal interrupts these calls themselves",
    ),
    (
        &["fork", "vfork"],
        "a new process without namespaces of its own; a signal while it waits would make it fail",
    ),
    (
        &[
            "clock_nanosleep",
            "close",
            "epoll_ctl",
            "epoll_pwait",
            "exit_group",
            "futex",
            "getpid",
            "gettid",
            "madvise",
            "mmap",
            "mprotect",
            "munmap",
            "nanosleep",
            "read",
            "rseq",
            "rt_sigaction",
            "rt_sigprocmask",
            "sched_yield",
            "set_robust_list",
            "sigaltstack",
            "tgkill",
        ],
        "runc is a Go program, whose runtime makes these calls or not before the container's program is executed",
    ),
];

/// The flags of `clone` that make namespaces. Without them it is assumed, as `fork` is.
const NAMESPACES: u64 = 0x7e02_0000;

/// Whether a call is one of those.
#[must_use]
pub fn is_assumed(name: &str) -> bool {
    ASSUMED.iter().any(|(names, _)| names.contains(&name))
}

/// Why a recording makes no profile.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RecordingError {
    /// No container was recorded.
    #[error("no container was recorded")]
    Empty,
    /// The profile of a recorded container has a listener of its own.
    #[error("the container's own profile has a listener")]
    Listener,
    /// A profile that cannot be read.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The algebra has no exact result.
    #[error(transparent)]
    Algebra(#[from] AlgebraError),
    /// The result allows what the container was denied.
    #[error("the profile would allow {0}, which the container was denied")]
    Exceeds(Box<Call>),
    /// The result does not allow what was recorded.
    #[error("the profile would deny {0}, which was recorded")]
    Denies(Box<Call>),
}

impl From<TooComplex> for RecordingError {
    fn from(error: TooComplex) -> Self {
        Self::Algebra(error.into())
    }
}

/// Why a journal cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum JournalError {
    /// A line that is not JSON.
    #[error("line {line} {source}")]
    Json {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        source: JsonError,
    },
    /// A line that is no entry.
    #[error("line {line} is not an entry of a recording")]
    Entry {
        /// Counted from 1.
        line: usize,
    },
    /// A profile that cannot be read.
    #[error("line {line}: the profile {source}")]
    Filter {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        source: FilterError,
    },
    /// Nothing is in it.
    #[error("the journal is empty")]
    Empty,
}

/// The profile of a container without one: everything is allowed, of every architecture that the machine runs.
pub fn unconfined(machine: Architecture) -> Result<Filter, FilterError> {
    let tokens: Vec<&str> =
        Architecture::all().filter(|known| known.runs_on(machine)).map(Architecture::token).collect();
    Filter::read(&json!({"defaultAction": "SCMP_ACT_ALLOW", "architectures": tokens}))
}

/// The profile for a recorded container: what `base` denies is denied by the kernel, in the same way, and every other call but
/// those that are [`ASSUMED`] is left to the listener. A call that no table has fails with ENOSYS if `base` allows it.
pub fn notifying(
    base: &Filter,
    machine: Architecture,
    listener: &str,
    metadata: &str,
) -> Result<Filter, RecordingError> {
    Ok(base.intersection(&everything(base, machine, listener, metadata)?)?)
}

/// The profile for a container in which `candidate` is tried out: what `base` denies is denied by the kernel, and every call that
/// `candidate` denies is left to the listener, except those that are [`ASSUMED`], which are allowed unseen. Calls that `candidate` allows
/// may be left to the listener too, which evaluates it: no document has other rules for each architecture.
pub fn complaining(
    base: &Filter,
    candidate: &Filter,
    machine: Architecture,
    listener: &str,
    metadata: &str,
) -> Result<Filter, RecordingError> {
    if candidate.notifies() {
        return Err(RecordingError::Listener);
    }
    let everything = everything(base, machine, listener, metadata)?;
    let relaxed = everything.union(candidate).and_then(|relaxed| base.intersection(&relaxed));
    match relaxed {
        Err(AlgebraError::Inexpressible { .. }) => Ok(base.intersection(&everything)?),
        relaxed => Ok(relaxed?),
    }
}

/// The names of assumed calls that `candidate` denies and `base` allows, at least with some arguments: nobody sees whether they are made.
#[must_use]
pub fn unseen(base: &Filter, candidate: &Filter, machine: Architecture) -> BTreeSet<&'static str> {
    let made = |filter: &Filter, call: &Call| {
        matches!(filter.answer(call, machine), Answer::Action(Action::Allow | Action::Log))
    };
    Syscall::all()
        .filter(|syscall| is_assumed(syscall.name()))
        .filter(|syscall| {
            let call = Call { architecture: machine, syscall: Some(*syscall), arguments: [0; 6] };
            made(base, &call) && !made(candidate, &call)
        })
        .map(Syscall::name)
        .collect()
}

/// Every call is left to the listener but those that are assumed; one that no table has fails with ENOSYS.
fn everything(
    base: &Filter,
    machine: Architecture,
    listener: &str,
    metadata: &str,
) -> Result<Filter, RecordingError> {
    if base.notifies() {
        return Err(RecordingError::Listener);
    }
    let (assumed, others): (Vec<&str>, Vec<&str>) =
        Syscall::all().map(Syscall::name).partition(|name| is_assumed(name));
    let document = |rules: Value| {
        json!({"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 38, "architectures": base.tokens(),
            "listenerPath": listener, "listenerMetadata": metadata, "syscalls": rules})
    };
    let all = Filter::read(&document(json!([
        {"names": others, "action": "SCMP_ACT_NOTIFY"},
        {"names": assumed, "action": "SCMP_ACT_ALLOW"},
    ])))?;
    let clone = Filter::read(&document(json!([plain_clone(machine)])))?;
    Ok(all.union(&clone)?)
}

/// The rule for `clone` without new namespaces.
fn plain_clone(machine: Architecture) -> Value {
    // swallowed: every machine has the call
    let index = Syscall::named("clone").and_then(|clone| selected(clone, machine)).unwrap_or_default();
    json!({"names": ["clone"], "action": "SCMP_ACT_ALLOW",
        "args": [{"index": index, "op": "SCMP_CMP_MASKED_EQ", "value": NAMESPACES, "valueTwo": 0}]})
}

/// One container of a recording; its restarts and replicas are the same one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RecordedContainer {
    /// The profile that it has without the recording.
    base: Filter,
    calls: BTreeMap<RecordedCall, BTreeSet<Phase>>,
    /// The values of each call's argument.
    values: BTreeMap<(Architecture, Syscall), usize>,
}

/// What was recorded of the containers of a workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    machine: Architecture,
    containers: BTreeMap<String, RecordedContainer>,
    losses: BTreeSet<String>,
    interrupted: u64,
    /// How many calls the containers have together.
    calls: usize,
}

/// Reasons of losses that are kept; there are few kinds of them.
const MAX_LOSSES: usize = 64;
/// The last of them says that there are more.
const LAST_LOSS: usize = MAX_LOSSES - 1;

/// The line of a call in a journal.
fn noted(container: &str, call: RecordedCall, phase: Phase) -> String {
    let mut line = json!({"container": container, "call": call.syscall.name(),
        "architecture": call.architecture.token(), "phase": phase.as_str()});
    if let (Some(argument), Some(fields)) = (call.argument, line.as_object_mut()) {
        fields.insert("argument".to_owned(), argument.into());
    }
    line.to_string()
}

/// The line of a loss in a journal.
fn lost(reason: &str) -> String {
    json!({"lost": reason}).to_string()
}

impl Recording {
    /// An empty one.
    #[must_use]
    pub const fn new(machine: Architecture) -> Self {
        Self { machine, containers: BTreeMap::new(), losses: BTreeSet::new(), interrupted: 0, calls: 0 }
    }

    /// Takes what another recorder has of the same workload. The profiles of two recordings are not combined in this way but each
    /// made of its own (`combined_profile`), because a node may bound a container by another profile.
    pub fn absorb(&mut self, other: &Self) {
        for (name, container) in &other.containers {
            if !self.containers.contains_key(name) && !self.begin(name, &container.base).0 {
                continue;
            }
            for (call, phases) in &container.calls {
                for phase in phases {
                    self.note(name, *call, *phase);
                }
            }
        }
        for reason in &other.losses {
            self.lose(reason);
        }
        self.interrupted = self.interrupted.saturating_add(other.interrupted);
    }

    /// Begins with a container; the lines for the journal. The profile of a container that was recorded before stays what it
    /// was, and if it differs the recording is lossy: the calls were not bounded by the same profile. False if there are too many.
    pub fn begin(&mut self, container: &str, base: &Filter) -> (bool, Option<String>) {
        match self.containers.get(container) {
            Some(known) if known.base != *base => {
                let reason = format!("container {container:?} did not have the same profile all the time");
                (true, self.lose(&reason))
            }
            Some(_) => (true, None),
            None if self.containers.len() >= MAX_CONTAINERS => {
                let reason = format!("there are more than {MAX_CONTAINERS} containers with different names");
                (false, self.lose(&reason))
            }
            None => {
                let own =
                    RecordedContainer { base: base.clone(), calls: BTreeMap::new(), values: BTreeMap::new() };
                self.containers.insert(container.to_owned(), own);
                (true, Some(self.beginning(container, base)))
            }
        }
    }

    fn beginning(&self, container: &str, base: &Filter) -> String {
        json!({"container": container, "machine": self.machine.token(), "base": base.to_oci()}).to_string()
    }

    /// Writes a call down; the line for the journal if it is new.
    pub fn note(&mut self, container: &str, call: RecordedCall, phase: Phase) -> Option<String> {
        let own = self.containers.get_mut(container)?;
        let mut call = call;
        if !own.calls.contains_key(&call) {
            if self.calls >= MAX_CALLS {
                return self.lose(&format!("there are more than {MAX_CALLS} different calls"));
            }
            if call.argument.is_some() {
                let values = own.values.entry((call.architecture, call.syscall)).or_default();
                if *values >= MAX_VALUES {
                    call.argument = None;
                } else {
                    *values += 1;
                }
            }
        }
        let phases = own.calls.entry(call).or_insert_with(|| {
            self.calls += 1;
            BTreeSet::new()
        });
        phases.insert(phase).then(|| noted(container, call, phase))
    }

    /// Writes down that something is missing; the line for the journal if it is news.
    pub fn lose(&mut self, reason: &str) -> Option<String> {
        let reason = match self.losses.len() {
            MAX_LOSSES.. => return None,
            LAST_LOSS if !self.losses.contains(reason) => "there are further reasons",
            _ => reason,
        };
        self.losses.insert(reason.to_owned()).then(|| lost(reason))
    }

    /// Counts a call that a signal interrupted while it waited.
    pub const fn interrupt(&mut self) {
        self.interrupted = self.interrupted.saturating_add(1);
    }

    /// The last line of a journal.
    #[must_use]
    pub fn end(&self) -> String {
        json!({"end": true, "interrupted": self.interrupted}).to_string()
    }

    /// The journal of what it has by now, without a last line: what a recorder goes on with.
    #[must_use]
    pub fn journal(&self) -> String {
        let mut lines = Vec::new();
        for (name, container) in &self.containers {
            lines.push(self.beginning(name, &container.base));
            let calls = container.calls.iter();
            lines.extend(
                calls.flat_map(|(call, phases)| phases.iter().map(|phase| noted(name, *call, *phase))),
            );
        }
        lines.extend(self.losses.iter().map(|reason| lost(reason)));
        if self.interrupted > 0 {
            let interrupted = json!({"interrupted": self.interrupted}).to_string();
            lines.insert(lines.len().min(1), interrupted);
        }
        lines.iter().flat_map(|line| [line, "\n"]).collect()
    }

    /// Reads a journal again. One that does not end with [`Recording::end`] is lossy.
    pub fn replay(journal: &str) -> Result<Self, JournalError> {
        let mut recording: Option<Self> = None;
        let mut has_ended = false;
        let mut is_cut = false;
        let mut lines = journal.lines().enumerate().peekable();
        while let Some((index, text)) = lines.next() {
            let line = index + 1;
            // A recorder that was killed may have left half a line.
            let is_half = lines.peek().is_none() && !journal.ends_with('\n');
            let value = match strict_json::read(text) {
                Err(_) if is_half => {
                    is_cut = true;
                    break;
                }
                read => read.map_err(|source| JournalError::Json { line, source })?,
            };
            has_ended = value.get("end").is_some();
            Self::replay_entry(&mut recording, &value, line)?;
        }
        let mut recording = recording.ok_or(JournalError::Empty)?;
        if !has_ended || is_cut {
            recording
                .lose("the recorder ended before the containers did: their later calls failed with ENOSYS");
        }
        Ok(recording)
    }

    fn replay_entry(recording: &mut Option<Self>, value: &Value, line: usize) -> Result<(), JournalError> {
        let wrong = || JournalError::Entry { line };
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        if let Some(base) = value.get("base") {
            let machine = text("machine").and_then(Architecture::named).ok_or_else(wrong)?;
            let base = Filter::read(base).map_err(|source| JournalError::Filter { line, source })?;
            let recording = recording.get_or_insert_with(|| Self::new(machine));
            recording.begin(text("container").ok_or_else(wrong)?, &base);
            return Ok(());
        }
        let recording = recording.as_mut().ok_or_else(wrong)?;
        if let Some(reason) = text("lost") {
            recording.lose(reason);
        } else if let Some(name) = text("call") {
            let call = RecordedCall {
                architecture: text("architecture").and_then(Architecture::named).ok_or_else(wrong)?,
                syscall: Syscall::named(name).ok_or_else(wrong)?,
                argument: match value.get("argument") {
                    None => None,
                    Some(argument) => Some(argument.as_u64().ok_or_else(wrong)?),
                },
            };
            let phase = text("phase").and_then(Phase::named).ok_or_else(wrong)?;
            let container = text("container").ok_or_else(wrong)?;
            if !recording.containers.contains_key(container) {
                return Err(wrong());
            }
            recording.note(container, call, phase);
        } else if value.get("interrupted").is_some() {
            recording.interrupted = value.get("interrupted").and_then(Value::as_u64).ok_or_else(wrong)?;
        } else {
            return Err(wrong());
        }
        Ok(())
    }

    /// Whether nothing is known to be missing.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.losses.is_empty() && !self.containers.is_empty()
    }

    /// Why it is not complete.
    pub fn losses(&self) -> impl Iterator<Item = &str> {
        self.losses.iter().map(String::as_str)
    }

    /// The names of the containers.
    pub fn containers(&self) -> impl Iterator<Item = &str> {
        self.containers.keys().map(String::as_str)
    }

    /// The names of the calls that were recorded.
    #[must_use]
    pub fn calls(&self) -> BTreeSet<&'static str> {
        self.all().map(|(call, _)| call.syscall.name()).collect()
    }

    /// The names of the calls that were recorded in a phase.
    #[must_use]
    pub fn calls_in(&self, phase: Phase) -> BTreeSet<&'static str> {
        let within = self.all().filter(|(_, phases)| phases.contains(&phase));
        within.map(|(call, _)| call.syscall.name()).collect()
    }

    fn all(&self) -> impl Iterator<Item = (&RecordedCall, &BTreeSet<Phase>)> {
        self.containers.values().flat_map(|container| &container.calls)
    }

    /// The smallest profile that allows what was recorded and assumed, and no call that the container which made it was denied.
    /// What the containers were denied is denied in the same way.
    pub fn profile(&self) -> Result<Filter, RecordingError> {
        let architectures: BTreeSet<Architecture> =
            self.all().map(|(call, _)| call.architecture).chain([self.machine]).collect();
        let mut result: Option<Filter> = None;
        for container in self.containers.values() {
            let own = container.profile(self.machine, &architectures)?;
            result = Some(match result {
                None => own,
                Some(before) => before.union(&own)?,
            });
        }
        let result = result.ok_or(RecordingError::Empty)?;
        for (call, _) in self.all() {
            let call = call.example();
            if result.answer(&call, self.machine) != Answer::Action(Action::Allow) {
                return Err(RecordingError::Denies(Box::new(call)));
            }
        }
        Ok(result)
    }

    /// The recorded calls that another profile, such as the runtime's default, does not allow.
    #[must_use]
    pub fn beyond(&self, bound: &Filter) -> BTreeSet<String> {
        let made = |answer: &Answer| matches!(answer, Answer::Action(Action::Allow | Action::Log));
        let exceeding = self.all().map(|(call, _)| call.example());
        exceeding
            .filter(|call| !made(&bound.answer(call, self.machine)))
            .map(|call| call.to_string())
            .collect()
    }

    /// What the recording holds and what it does not.
    #[must_use]
    pub fn statement(&self, runtime_default: Option<&Filter>) -> Value {
        let mut phases = Map::new();
        let mut missing = Vec::new();
        for phase in Phase::ALL {
            match self.calls_in(phase).len() {
                0 => missing.push(phase.as_str()),
                calls => {
                    phases.insert(phase.as_str().to_owned(), calls.into());
                }
            }
        }
        let mut arguments: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for (call, _) in self.all().filter(|(call, _)| selected(call.syscall, call.architecture).is_some()) {
            let value = call.argument.map_or_else(|| "any".to_owned(), |value| format!("{value:#x}"));
            arguments.entry(call.syscall.name()).or_default().insert(value);
        }
        let mut assumed: Vec<Value> =
            ASSUMED.iter().map(|(names, reason)| json!({"calls": names, "reason": reason})).collect();
        let plain = format!("clone(flags & {NAMESPACES:#x} == 0x0)");
        assumed.push(
            json!({"calls": [plain], "reason": "a new process or thread without namespaces of its own"}),
        );
        let mut statement = json!({
            "complete": self.is_complete(),
            "lossy": self.losses,
            "containers": self.containers.keys().collect::<Vec<_>>(),
            "calls": self.calls().len(),
            "interrupted": self.interrupted,
            "phases": phases,
            "phasesNotSeen": missing,
            "arguments": arguments,
            "assumed": assumed,
        });
        if let (Some(bound), Some(fields)) = (runtime_default, statement.as_object_mut()) {
            fields.insert("beyondRuntimeDefault".to_owned(), self.beyond(bound).into_iter().collect());
        }
        statement
    }
}

/// How the argument of a call is written in a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Precision {
    /// Equal to the value.
    Equal,
    /// Its lower half, which is all that these calls read, is equal to that of the value.
    LowerHalf,
    /// Any value.
    Any,
}

impl Precision {
    const fn coarser(self) -> Self {
        match self {
            Self::Equal => Self::LowerHalf,
            Self::LowerHalf | Self::Any => Self::Any,
        }
    }
}

impl RecordedContainer {
    fn profile(
        &self,
        machine: Architecture,
        architectures: &BTreeSet<Architecture>,
    ) -> Result<Filter, RecordingError> {
        let mut precision: BTreeMap<Syscall, Precision> = BTreeMap::new();
        for call in self.calls.keys() {
            let needed = match call.argument {
                _ if selected(call.syscall, call.architecture).is_none() => continue,
                None => Precision::Any,
                Some(value) if value > u64::from(u32::MAX) => Precision::LowerHalf,
                Some(_) => Precision::Equal,
            };
            let known = precision.entry(call.syscall).or_insert(needed);
            if *known == Precision::Equal || needed == Precision::Any {
                *known = needed;
            }
        }
        loop {
            let wanted = self.document(machine, architectures, &precision);
            // What the container was denied keeps its number.
            match self.base.intersection(&Filter::read(&wanted)?) {
                Ok(result) => return self.checked(result),
                Err(AlgebraError::Inexpressible { call }) => {
                    let coarser = call.syscall.and_then(|syscall| precision.get_mut(&syscall));
                    match coarser {
                        Some(known) if *known != Precision::Any => *known = known.coarser(),
                        _ => return Err(AlgebraError::Inexpressible { call }.into()),
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn checked(&self, result: Filter) -> Result<Filter, RecordingError> {
        match result.at_least_as_strict_as(&self.base, Strictness::Access)? {
            Some(found) => Err(RecordingError::Exceeds(Box::new(found.call))),
            None => Ok(result),
        }
    }

    fn document(
        &self,
        machine: Architecture,
        architectures: &BTreeSet<Architecture>,
        precision: &BTreeMap<Syscall, Precision>,
    ) -> Value {
        let assumed = ASSUMED.iter().flat_map(|(names, _)| names.iter().copied());
        let plain = self.calls.keys().filter(|call| match selected(call.syscall, call.architecture) {
            None => true,
            Some(_) => precision.get(&call.syscall) == Some(&Precision::Any),
        });
        let names: BTreeSet<&str> = plain.map(|call| call.syscall.name()).chain(assumed).collect();
        let mut rules = vec![json!({"names": names, "action": "SCMP_ACT_ALLOW"})];
        if !self.calls.keys().any(|call| call.syscall.name() == "clone3") {
            // Its flags are in memory, where no filter sees them; the C library then makes a call of clone.
            rules.push(json!({"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38}));
        }
        if precision.iter().all(|(call, known)| call.name() != "clone" || *known != Precision::Any) {
            rules.push(plain_clone(machine));
        }
        let values: BTreeSet<(Syscall, u8, u64)> = self
            .calls
            .keys()
            .filter_map(|call| {
                let index = selected(call.syscall, call.architecture)?;
                Some((call.syscall, index, call.argument? & u64::from(u32::MAX)))
            })
            .filter(|(call, _, value)| call.name() != "clone" || value & NAMESPACES != 0)
            .collect();
        for (syscall, index, value) in values {
            let condition = match precision.get(&syscall) {
                Some(Precision::Equal) | None => json!({"index": index, "op": "SCMP_CMP_EQ", "value": value}),
                Some(Precision::LowerHalf) => {
                    json!({"index": index, "op": "SCMP_CMP_MASKED_EQ", "value": u32::MAX, "valueTwo": value})
                }
                Some(Precision::Any) => continue,
            };
            rules.push(json!({"names": [syscall.name()], "action": "SCMP_ACT_ALLOW", "args": [condition]}));
        }
        let tokens: Vec<&str> = architectures.iter().map(|known| known.token()).collect();
        json!({"defaultAction": "SCMP_ACT_ERRNO", "architectures": tokens, "syscalls": rules})
    }
}

#[cfg(test)]
#[path = "recording_tests.rs"]
mod tests;
