//! Whether running containers can make a system call, proven from the kernel.
//!
//! The filters of every thread of a container are read back and evaluated for a pattern. What cannot be read or evaluated is
//! undecided, never a denial. Filters are only ever added to a thread, so that those of a thread with the same identity and the same
//! number of filters need not be read twice; a thread is stopped once, not at every look.
//!
//! Leaves to others: the evaluation (`palisade_model::profile::reach`), stopping and reading threads ([`crate::kernel::filters`]), and
//! whatever else denies a call: capabilities, AppArmor, SELinux.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use palisade_model::profile::{
    architecture::Architecture,
    call_pattern::CallPattern,
    filter::Action,
    reach::{Filters, Reach, ReachError, Witness, reach, reach_strict},
};
use serde::Serialize;
use thiserror::Error;

use crate::{
    api::PodKey,
    cri::{
        client::{Runtime, RuntimeError},
        proto::ContainerState,
    },
    kernel::filters,
    node_object::machine,
    runner::observed::labels,
    verify::container_pid,
};

/// What a container can do about a pattern.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "camelCase")]
pub enum Verdict {
    /// A call gets through.
    Can {
        /// The process that can make it.
        pid: u32,
        /// The call, with values that get through.
        call: String,
        /// What happens to it.
        action: String,
        /// Why it is another call than the pattern names.
        #[serde(skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// No call gets through.
    Cannot {
        /// What happens instead.
        actions: Vec<String>,
    },
    /// It is not known.
    Undecided {
        /// Why.
        reason: String,
    },
}

/// Why the first process of a container is not known.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct NoProcess(pub String);

/// A running container, and its processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningContainer {
    /// Its pod; without names if it has none.
    pub pod: PodKey,
    /// Its name in the pod.
    pub name: String,
    /// What the runtime calls it.
    pub id: String,
    /// The labels of its pod, as far as the runtime has them.
    pub labels: BTreeMap<String, String>,
    /// Its first process, or why there is none.
    pub pid: Result<u32, NoProcess>,
}

/// The running containers of a runtime, by pod and name.
pub async fn running_containers(runtime: &Runtime) -> Result<Vec<RunningContainer>, RuntimeError> {
    let mut found = Vec::new();
    // A kubelet writes the labels of a pod on its sandbox only.
    let sandboxes = runtime.list_pod_sandboxes(&[]).await?;
    let sandboxes: BTreeMap<String, BTreeMap<String, String>> =
        sandboxes.into_iter().map(|sandbox| (sandbox.id, sandbox.labels)).collect();
    for container in runtime.list_containers(&[]).await? {
        if container.state() != ContainerState::Running {
            continue;
        }
        let label = |key: &str| container.labels.get(key).cloned().unwrap_or_default();
        let pid = match container_pid(runtime, &container.id).await {
            Ok(Some(pid)) => Ok(pid),
            Ok(None) => Err(NoProcess("the runtime does not report its process".to_owned())),
            // It has ended since.
            Err(error) if error.is_not_found() => continue,
            Err(error) => Err(NoProcess(error.to_string())),
        };
        let pod = PodKey {
            namespace: label(labels::POD_NAMESPACE),
            name: label(labels::POD_NAME),
            uid: label(labels::POD_UID),
        };
        let name = label(labels::CONTAINER_NAME);
        let labels = sandboxes.get(&container.pod_sandbox_id).cloned().unwrap_or_default();
        found.push(RunningContainer { pod, name, id: container.id, labels, pid });
    }
    found.sort_by(|a, b| (&a.pod, &a.name, &a.id).cmp(&(&b.pod, &b.name, &b.id)));
    Ok(found)
}

/// Why the processes of a container, or what confines one, are not known.
#[derive(Debug, Error)]
enum ProcessError {
    /// The kernel's view cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is not as the kernel writes it.
    #[error("{} has no line {line}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// What is missing.
        line: &'static str,
    },
    /// Its processes cannot be distinguished from those of others.
    #[error(
        "its processes cannot be distinguished from those of the node: it has neither a cgroup nor a PID namespace of its own"
    )]
    Indistinct,
    /// There are more than are looked at.
    #[error("it has more than {MAX_THREADS} threads")]
    TooMany,
}

/// How many threads of a container are looked at.
const MAX_THREADS: usize = 32_768;

fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> ProcessError {
    move |source| ProcessError::Unreadable { path: path.to_owned(), source }
}

fn has_ended(error: &ProcessError) -> bool {
    matches!(error, ProcessError::Unreadable { source, .. }
        if source.kind() == io::ErrorKind::NotFound || source.raw_os_error() == Some(libc::ESRCH))
}

/// What `/proc` reports about a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ThreadState {
    mode: u32,
    filters: Option<u32>,
    has_exited: bool,
}

impl ThreadState {
    fn read(folder: &Path) -> Result<Self, ProcessError> {
        let path = folder.join("status");
        let text = fs::read_to_string(&path).map_err(unreadable(&path))?;
        let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
        let missing = |line| ProcessError::Line { path: path.clone(), line };
        // swallowed: a line that is no number is as good as none
        let number = |name: &str| line(name).and_then(|text| text.trim().parse::<u32>().ok());
        Ok(Self {
            mode: number("Seccomp").ok_or_else(|| missing("Seccomp"))?,
            filters: number("Seccomp_filters"),
            has_exited: line("State").ok_or_else(|| missing("State"))?.starts_with(['Z', 'X']),
        })
    }

    /// When the thread was started, in the kernel's own unit: with its number, its identity.
    fn started(folder: &Path) -> Result<u64, ProcessError> {
        let path = folder.join("stat");
        let text = fs::read_to_string(&path).map_err(unreadable(&path))?;
        // The name in parentheses may hold anything.
        let after = text.rsplit_once(')').map(|(_, after)| after);
        // swallowed: a line that is no number is as good as none
        let started = after.and_then(|after| after.split_ascii_whitespace().nth(19)?.parse().ok());
        started.ok_or(ProcessError::Line { path, line: "starttime" })
    }
}

/// The numbers in a folder of `/proc`.
fn numbers(folder: &Path) -> Result<Vec<u32>, ProcessError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable(folder))? {
        let entry = entry.map_err(unreadable(folder))?;
        // swallowed: other files
        if let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
            found.push(number);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// The cgroups of a process by hierarchy.
fn cgroups(proc: &Path, pid: u32) -> Result<BTreeMap<String, String>, ProcessError> {
    let path = proc.join(pid.to_string()).join("cgroup");
    let text = fs::read_to_string(&path).map_err(unreadable(&path))?;
    let lines = text.lines().filter_map(|line| {
        let (hierarchy, rest) = line.split_once(':')?;
        Some((hierarchy.to_owned(), rest.split_once(':')?.1.to_owned()))
    });
    Ok(lines.collect())
}

fn pid_namespace(proc: &Path, pid: u32) -> Result<PathBuf, ProcessError> {
    let path = proc.join(pid.to_string()).join("ns/pid");
    fs::read_link(&path).map_err(unreadable(&path))
}

/// Whether a process is the first one of its PID namespace, so that everything in the namespace is of its container. Containers of a
/// pod may share one, whose first process is that of the sandbox.
fn is_first(proc: &Path, pid: u32) -> Result<bool, ProcessError> {
    let path = proc.join(pid.to_string()).join("status");
    let text = fs::read_to_string(&path).map_err(unreadable(&path))?;
    let line = text.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let numbers = line.ok_or(ProcessError::Line { path, line: "NSpid" })?;
    Ok(numbers.split_ascii_whitespace().last() == Some("1"))
}

/// The processes of the container whose first one is `init`: those of its cgroups and of cgroups below, and those of its PID namespace
/// if that is neither the node's nor shared.
fn processes(proc: &Path, init: u32, host: u32) -> Result<BTreeSet<u32>, ProcessError> {
    let node = cgroups(proc, host)?;
    // What the node's own processes are in as well says nothing.
    let own: BTreeMap<String, String> = cgroups(proc, init)?
        .into_iter()
        .filter(|(hierarchy, path)| path != "/" && node.get(hierarchy) != Some(path))
        .collect();
    let namespace = pid_namespace(proc, init)?;
    let is_own = namespace != pid_namespace(proc, host)? && is_first(proc, init)?;
    let namespace = is_own.then_some(namespace);
    if own.is_empty() && namespace.is_none() {
        return Err(ProcessError::Indistinct);
    }
    let belongs = |pid: u32| -> Result<bool, ProcessError> {
        if pid == init {
            return Ok(true);
        }
        let found = cgroups(proc, pid)?;
        let is_below = |(hierarchy, path): (&String, &String)| {
            found
                .get(hierarchy)
                .and_then(|found| found.strip_prefix(path.as_str()))
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if own.iter().any(is_below) {
            return Ok(true);
        }
        if namespace.is_none() {
            return Ok(false);
        }
        match pid_namespace(proc, pid) {
            Ok(found) => Ok(namespace.as_ref() == Some(&found)),
            // A process of the node that has more rights; those of the container have its cgroup.
            Err(ProcessError::Unreadable { source, .. })
                if source.kind() == io::ErrorKind::PermissionDenied && !own.is_empty() =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    };
    let mut members = BTreeSet::new();
    for pid in numbers(proc)? {
        match belongs(pid) {
            Ok(true) => drop(members.insert(pid)),
            Ok(false) => {}
            Err(error) if has_ended(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(members)
}

/// Who a thread is: its number, and when it was started.
type Identity = (u32, u64);

/// The filters of threads, and how many each had when they were read.
type KnownFilters = HashMap<Identity, (u32, Arc<Filters>)>;

/// A thread whose filters are to be read.
struct Unread {
    thread: u32,
    pid: u32,
    /// Who it is, and how many filters it has, if the kernel reports that.
    identity: Option<(Identity, u32)>,
}

/// What confines a thread.
#[derive(Debug, Clone)]
enum Confinement {
    None,
    Strict,
    Filters(Arc<Filters>),
    Unknown(String),
}

/// Reads what confines containers. One value remembers what was read.
#[derive(Debug, Clone)]
pub struct Prober {
    proc: PathBuf,
    host: u32,
    known: Arc<Mutex<KnownFilters>>,
}

impl Prober {
    /// With the kernel's view of processes at `proc`, and a process of the node itself.
    #[must_use]
    pub fn new(proc: &Path, host: Option<u32>) -> Self {
        let host = host.unwrap_or_else(std::process::id);
        Self { proc: proc.to_owned(), host, known: Arc::default() }
    }

    /// What a container can do about each of the patterns, in their order. Stops the threads of the container for a moment.
    pub async fn probe(&self, container: &RunningContainer, patterns: &[CallPattern]) -> Vec<Verdict> {
        let undecided = |reason: String| {
            patterns.iter().map(|_| Verdict::Undecided { reason: reason.clone() }).collect::<Vec<_>>()
        };
        let pid = match &container.pid {
            Ok(pid) => *pid,
            Err(why) => return undecided(why.to_string()),
        };
        let prober = self.clone();
        let owned = patterns.to_vec();
        let done = tokio::task::spawn_blocking(move || prober.verdicts(pid, &owned)).await;
        done.unwrap_or_else(|error| undecided(error.to_string()))
    }

    /// Forgets threads that are gone.
    pub fn forget_ended(&self) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(thread, started), _| {
            ThreadState::started(&self.proc.join(thread.to_string())).is_ok_and(|now| now == *started)
        });
        known.shrink_to_fit();
    }

    fn verdicts(&self, init: u32, patterns: &[CallPattern]) -> Vec<Verdict> {
        let undecided = |reason: &str| {
            patterns.iter().map(|_| Verdict::Undecided { reason: reason.to_owned() }).collect()
        };
        let Some(machine) = Architecture::of_go(machine()) else {
            return undecided("the architecture of the machine is not known");
        };
        match self.confinements(init) {
            Ok(found) => patterns.iter().map(|pattern| judge(&found, pattern, machine)).collect(),
            Err(error) if has_ended(&error) => undecided("it ended before it was read"),
            Err(error) => undecided(&error.to_string()),
        }
    }

    /// What confines the threads of a container: each with its process.
    fn confinements(&self, init: u32) -> Result<Vec<(u32, Confinement)>, ProcessError> {
        let mut found = Vec::new();
        let mut unread: Vec<Unread> = Vec::new();
        let mut count = 0;
        for pid in processes(&self.proc, init, self.host)? {
            let tasks = self.proc.join(pid.to_string()).join("task");
            let threads = match numbers(&tasks) {
                Ok(threads) => threads,
                Err(error) if has_ended(&error) => continue,
                Err(error) => return Err(error),
            };
            for thread in threads {
                count += 1;
                if count > MAX_THREADS {
                    return Err(ProcessError::TooMany);
                }
                let folder = tasks.join(thread.to_string());
                let state =
                    ThreadState::read(&folder).and_then(|state| Ok((state, ThreadState::started(&folder)?)));
                let (state, started) = match state {
                    Ok((state, _)) if state.has_exited => continue,
                    Ok(read) => read,
                    Err(error) if has_ended(&error) => continue,
                    Err(error) => return Err(error),
                };
                match (state.mode, state.filters) {
                    (0, _) => found.push((pid, Confinement::None)),
                    (1, _) => found.push((pid, Confinement::Strict)),
                    (_, filters) => {
                        let identity = filters.map(|filters| ((thread, started), filters));
                        match identity.and_then(|(identity, filters)| self.remembered(identity, filters)) {
                            Some(known) => found.push((pid, Confinement::Filters(known))),
                            None => unread.push(Unread { thread, pid, identity }),
                        }
                    }
                }
            }
        }
        let read = filters::read(unread.iter().map(|one| one.thread).collect());
        for (Unread { pid, identity, .. }, result) in unread.into_iter().zip(read) {
            let confinement = match result {
                Ok(filters) if filters.is_empty() => {
                    Confinement::Unknown("the kernel reports a filter and returns none".to_owned())
                }
                Ok(filters) => {
                    let filters = self.shared(filters);
                    if let Some((identity, count)) =
                        identity.filter(|(_, count)| filters_count(&filters) == *count)
                    {
                        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
                        known.insert(identity, (count, Arc::clone(&filters)));
                    }
                    Confinement::Filters(filters)
                }
                Err(filters::FilterReadError::Ended { .. }) => continue,
                Err(error) => Confinement::Unknown(error.to_string()),
            };
            found.push((pid, confinement));
        }
        Ok(found)
    }

    fn remembered(&self, identity: Identity, count: u32) -> Option<Arc<Filters>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&identity).filter(|(known, _)| *known == count).map(|(_, filters)| Arc::clone(filters))
    }

    /// Equal filters are kept once: the threads of a container nearly always have the same.
    fn shared(&self, filters: Filters) -> Arc<Filters> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let same = known.values().find(|(_, known)| **known == filters).map(|(_, known)| Arc::clone(known));
        same.unwrap_or_else(|| Arc::new(filters))
    }
}

fn filters_count(filters: &Filters) -> u32 {
    u32::try_from(filters.len()).unwrap_or(u32::MAX)
}

/// The verdict about a container from those about its threads: one that can is enough.
fn judge(threads: &[(u32, Confinement)], pattern: &CallPattern, machine: Architecture) -> Verdict {
    if threads.is_empty() {
        return Verdict::Undecided { reason: "it ended before it was read".to_owned() };
    }
    let mut undecided: Option<String> = None;
    let mut denials: BTreeSet<Action> = BTreeSet::new();
    let mut evaluated: Vec<(&Arc<Filters>, Result<Reach, ReachError>)> = Vec::new();
    for (pid, confinement) in threads {
        let result = match confinement {
            Confinement::Unknown(why) => {
                undecided.get_or_insert_with(|| why.clone());
                continue;
            }
            Confinement::None => reach(&[], pattern, machine),
            Confinement::Strict => Ok(reach_strict(pattern, machine)),
            Confinement::Filters(filters) => {
                let same = |known: &&Arc<Filters>| Arc::ptr_eq(known, filters) || *known == filters;
                if let Some((_, result)) = evaluated.iter().find(|(known, _)| same(known)) {
                    result.clone()
                } else {
                    let result = reach(filters, pattern, machine);
                    evaluated.push((filters, result.clone()));
                    result
                }
            }
        };
        match result {
            Ok(Reach::Can(Witness { call, action, because })) => {
                return Verdict::Can {
                    pid: *pid,
                    call: call.to_string(),
                    action: action.to_string(),
                    note: because.map(str::to_owned),
                };
            }
            Ok(Reach::Delegated(Witness { call, action, .. })) => {
                undecided.get_or_insert_with(|| format!("another process decides about {call}: {action}"));
            }
            Ok(Reach::Cannot(actions)) => denials.extend(actions),
            Err(error) => {
                undecided.get_or_insert_with(|| error.to_string());
            }
        }
    }
    match undecided {
        Some(reason) => Verdict::Undecided { reason },
        None => Verdict::Cannot { actions: denials.iter().map(ToString::to_string).collect() },
    }
}

#[cfg(test)]
#[path = "reach_tests.rs"]
mod tests;
