//! Declared security against what the kernel enforces.
//!
//! For every running container: the effective context of its pod on one side, `/proc/PID` on the other. A runtime that
//! silently ignores a profile (row 1 of the failure tables) is found out here. Stricter than declared is no mismatch: a
//! process may always give up more.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

use palisade_base::sha256;
use palisade_model::{
    effective::{EffectiveContext, effective_context},
    node::ImageUser,
    profile::ProfileRef,
};
use serde::Serialize;
use serde_json::Value;

use crate::{
    api::{PodKey, PodSource},
    cri::{
        client::{Runtime, RuntimeError},
        proto::ContainerState,
    },
    kernel::process::{IdMapLine, ProcessSecurity, capability_bit, capability_names},
    node::NodeConfig,
    pod::RunPod,
    profiles::config_map_profile,
    runner::observed::{Instance, Observed, labels},
};

/// One thing compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// What is compared.
    pub check: &'static str,
    /// What the pod requests.
    pub declared: String,
    /// What the kernel reports.
    pub kernel: String,
    /// Whether the kernel enforces what was requested.
    pub ok: bool,
    /// Why they differ, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// What was found about one container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerReport {
    /// The container.
    pub container: String,
    /// What the runtime calls it; none if it was never created.
    #[serde(skip)]
    pub id: Option<String>,
    /// Its process on the node; none if it does not run.
    pub pid: Option<u32>,
    /// Why there is nothing to compare: it does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// Why it was not compared although it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unverified: Option<String>,
    /// What was compared.
    pub rows: Vec<Row>,
    /// SHA-256 of the seccomp profile it was created with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seccomp_profile_hash: Option<String>,
    /// SHA-256 of what its source held, where the profile was combined with a baseline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seccomp_source_hash: Option<String>,
    /// What the ConfigMap or file now holds is another profile, or there is none any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale_profile: Option<String>,
}

/// What was found about one pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodReport {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its containers, in the order of the pod.
    pub containers: Vec<ContainerReport>,
}

impl ContainerReport {
    /// Whether the kernel's view of it was compared with the declaration.
    #[must_use]
    pub const fn is_compared(&self) -> bool {
        self.skipped.is_none() && self.unverified.is_none()
    }
}

impl PodReport {
    /// Whether something is not enforced that was requested.
    #[must_use]
    pub fn has_mismatch(&self) -> bool {
        self.containers.iter().flat_map(|container| &container.rows).any(|row| !row.ok)
    }

    /// Whether every container that runs was compared, and has everything that was requested.
    #[must_use]
    pub fn is_enforced(&self) -> bool {
        !self.has_mismatch() && self.containers.iter().all(|container| container.unverified.is_none())
    }

    /// Lines for people: pod, container, check, declared, kernel, verdict.
    #[must_use]
    pub fn lines(&self) -> Vec<[String; 6]> {
        let pod = format!("{}/{}", self.namespace, self.name);
        let mut lines = Vec::new();
        for container in &self.containers {
            let mut line = |check: &str, declared: &str, kernel: &str, verdict: String| {
                let name = container.container.clone();
                lines.push([
                    pod.clone(),
                    name,
                    check.to_owned(),
                    declared.to_owned(),
                    kernel.to_owned(),
                    verdict,
                ]);
            };
            for row in &container.rows {
                let verdict = match (&row.note, row.ok) {
                    (Some(note), true) => format!("ok ({note})"),
                    (None, true) => "ok".to_owned(),
                    (Some(note), false) => format!("MISMATCH ({note})"),
                    (None, false) => "MISMATCH".to_owned(),
                };
                line(row.check, &row.declared, &row.kernel, verdict);
            }
            if let Some(stale) = &container.stale_profile {
                let hash = container.seccomp_source_hash.as_ref().or(container.seccomp_profile_hash.as_ref());
                let hash = hash.map_or("-", String::as_str);
                line("seccompProfileHash", stale, hash, "older profile: restart to apply".to_owned());
            }
            if let Some(why) = &container.skipped {
                line("-", "-", "-", why.clone());
            }
            if let Some(why) = &container.unverified {
                line("-", "-", "-", format!("NOT COMPARED ({why})"));
            }
        }
        lines
    }
}

/// The whole in a sentence; `unverified` containers run and were not compared, those of the reports among them.
#[must_use]
pub fn summary(reports: &[PodReport], unverified: usize) -> String {
    let all = || reports.iter().flat_map(|report| &report.containers);
    let count = |test: fn(&ContainerReport) -> bool| all().filter(|container| test(container)).count();
    let plural = |count: usize| if count == 1 { "container" } else { "containers" };
    let compared = count(ContainerReport::is_compared);
    let unverified = unverified.max(count(|container| container.unverified.is_some()));
    let broken = count(|container| container.rows.iter().any(|row| !row.ok));
    let mut text = match (compared, broken) {
        (0, _) if unverified > 0 => {
            format!("{unverified} {} not compared: what the kernel enforces is not known", plural(unverified))
        }
        (0, _) => "no container runs, so there is nothing to compare".to_owned(),
        (_, 0) if unverified > 0 => format!("{compared} {} compared, {unverified} not", plural(compared)),
        (_, 0) => format!("{compared} {} compared: everything declared is enforced", plural(compared)),
        _ => format!("{compared} {} compared: {broken} without something declared", plural(compared)),
    };
    for (count, what) in [
        (count(|container| container.stale_profile.is_some()), "with an older profile"),
        (if compared == 0 { 0 } else { count(|container| container.skipped.is_some()) }, "not running"),
    ] {
        if count > 0 {
            text = format!("{text}, {count} {what}");
        }
    }
    text
}

/// Compares every running container of a pod.
pub async fn verify_pod(
    config: &NodeConfig,
    runtime: &Runtime,
    source: Option<&dyn PodSource>,
    pod: &RunPod,
) -> Result<PodReport, RuntimeError> {
    let observed = Observed::of_pod(runtime, &pod.key.uid).await?;
    let host = config.host_process.unwrap_or_else(std::process::id);
    let host = ProcessSecurity::read(&config.proc, host)
        .map_err(|error| format!("the security of the node itself cannot be read: {error}"));
    let mut containers = Vec::new();
    let prepared = pod.prepared(&config.compat);
    for reference in prepared.view().containers() {
        let run = observed.latest(reference.name());
        let mut report = ContainerReport {
            container: reference.name().to_owned(),
            id: run.map(|run| run.id.clone()),
            pid: None,
            skipped: None,
            unverified: None,
            rows: Vec::new(),
            seccomp_profile_hash: run.and_then(|run| run.seccomp_profile_hash.clone()),
            seccomp_source_hash: run.and_then(|run| run.seccomp_source_hash.clone()),
            stale_profile: None,
        };
        match (run, &host) {
            (None, _) => report.skipped = Some("not created".to_owned()),
            (Some(run), _) if run.state != ContainerState::Running => {
                report.skipped = Some("not running".to_owned());
            }
            (Some(_), Err(why)) => report.unverified = Some(why.clone()),
            (Some(run), Ok(host)) => match process(config, runtime, &run.id).await {
                Ok((pid, process)) => {
                    let image = image_user(runtime, &run.image_ref, &run.image).await;
                    let context = effective_context(&prepared, &reference);
                    let facts = KernelFacts { process: &process, host, image_user: image.as_ref() };
                    report.pid = Some(pid);
                    report.rows = compare(&context, &facts);
                    report.stale_profile = stale_profile(config, source, &pod.key, &context, run).await;
                }
                // swallowed: a container that has ended cannot be read
                Err(_) if !still_runs(runtime, &run.id).await => {
                    report.skipped = Some("ended before it was compared".to_owned());
                }
                Err(error) => report.unverified = Some(error.to_string()),
            },
        }
        containers.push(report);
    }
    Ok(PodReport { namespace: pod.key.namespace.clone(), name: pod.key.name.clone(), containers })
}

/// Why the security of a container's process is not known.
#[derive(Debug, thiserror::Error)]
enum ProcessError {
    /// The runtime does not respond.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The runtime responds without one.
    #[error("the runtime does not report its process")]
    NotReported,
    /// The kernel does not report it.
    #[error("process {pid} cannot be read: {source}")]
    Unreadable { pid: u32, source: io::Error },
}

/// The first process of a container with its security.
async fn process(
    config: &NodeConfig,
    runtime: &Runtime,
    id: &str,
) -> Result<(u32, ProcessSecurity), ProcessError> {
    let pid = container_pid(runtime, id).await?.ok_or(ProcessError::NotReported)?;
    let process = ProcessSecurity::read(&config.proc, pid)
        .map_err(|source| ProcessError::Unreadable { pid, source })?;
    Ok((pid, process))
}

/// Whether a container runs, or may run: a runtime that does not respond does not prove the opposite.
async fn still_runs(runtime: &Runtime, id: &str) -> bool {
    let status = runtime.container_status(id, false).await;
    !status.is_ok_and(|answer| answer.status.is_some_and(|status| status.state() != ContainerState::Running))
}

/// The running containers that no report compares, each in a sentence: those of unknown pods, those that a pod does not name,
/// and those whose process could not be read.
pub async fn unverified_containers(
    runtime: &Runtime,
    reports: &[(&PodKey, &PodReport)],
) -> Result<Vec<(PodKey, String)>, RuntimeError> {
    let containers = runtime.list_containers(&[]).await?;
    let running = containers.into_iter().filter(|container| container.state() == ContainerState::Running);
    let running = running.map(|container| {
        let label = |key: &str| container.labels.get(key).cloned().unwrap_or_default();
        RunningContainer {
            pod: PodKey {
                namespace: label(labels::POD_NAMESPACE),
                name: label(labels::POD_NAME),
                uid: label(labels::POD_UID),
            },
            name: label(labels::CONTAINER_NAME),
            id: container.id.clone(),
        }
    });
    Ok(not_compared(running.collect(), reports))
}

/// A container that the runtime runs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct RunningContainer {
    pod: PodKey,
    name: String,
    id: String,
}

fn not_compared(
    mut running: Vec<RunningContainer>,
    reports: &[(&PodKey, &PodReport)],
) -> Vec<(PodKey, String)> {
    running.sort();
    let mut found = Vec::new();
    for RunningContainer { pod, name, id } in running {
        let mut of_pod = reports.iter().filter(|(key, _)| key.uid == pod.uid).peekable();
        let known = of_pod.peek().is_some();
        let report = of_pod
            .flat_map(|(_, report)| &report.containers)
            .find(|report| report.id.as_deref() == Some(id.as_str()));
        // A container that was compared and has since been replaced has another id.
        if report.is_some_and(ContainerReport::is_compared) {
            continue;
        }
        let short = id.get(..12).unwrap_or(&id);
        let of = format!("{}/{}", pod.namespace, pod.name);
        let why = report.and_then(|report| report.unverified.as_deref());
        let text = match why {
            _ if pod.uid.is_empty() => format!("container {short} runs without a pod"),
            Some(why) => format!("container {name:?} ({short}) of pod {of} could not be compared: {why}"),
            None if known => {
                format!("container {name:?} ({short}) of pod {of} runs and could not be compared")
            }
            None => format!(
                "container {name:?} ({short}) runs for pod {of}, which is not a known pod of this node"
            ),
        };
        found.push((pod, text));
    }
    found
}

/// The pods of the runtime, each with what its node noted about it; a pod that a kubelet runs has no such note.
pub async fn declared_pods(runtime: &Runtime) -> Result<Vec<(PodKey, Option<RunPod>)>, RuntimeError> {
    let mut sandboxes = runtime.list_pod_sandboxes(&[]).await?;
    // The newest of a pod comes first.
    sandboxes.sort_by_key(|sandbox| std::cmp::Reverse(sandbox.created_at));
    let mut found: Vec<(PodKey, Option<RunPod>)> = Vec::new();
    for sandbox in sandboxes {
        let get = |key: &str| sandbox.labels.get(key).cloned().unwrap_or_default();
        let key = PodKey {
            namespace: get(labels::POD_NAMESPACE),
            name: get(labels::POD_NAME),
            uid: get(labels::POD_UID),
        };
        if key.uid.is_empty() || found.iter().any(|(known, _)| known.uid == key.uid) {
            continue;
        }
        let pod = noted_pod(&sandbox.annotations, &key);
        found.push((key, pod));
    }
    Ok(found)
}

/// What the node noted about a pod when it made the sandbox. A kubelet copies the annotations of a pod as its author wrote them, so
/// nothing of what its sandboxes declare is the node's word.
fn noted_pod(annotations: &BTreeMap<String, String>, key: &PodKey) -> Option<RunPod> {
    if annotations.contains_key(labels::MADE_BY_KUBELET) {
        return None;
    }
    let text = annotations.get(labels::DECLARED)?;
    // swallowed: without a declaration the containers of the pod are reported as not compared
    let object = serde_json::from_str(text).ok()?;
    // swallowed: as above
    RunPod::from_object(object).ok().filter(|pod| pod.key == *key)
}

/// The process of a container on the node: both containerd and CRI-O have it in the verbose status.
pub async fn container_pid(runtime: &Runtime, id: &str) -> Result<Option<u32>, RuntimeError> {
    let answer = runtime.container_status(id, true).await?;
    // swallowed: a container without a process is reported as not compared
    let info: Option<Value> = answer.info.get("info").and_then(|text| serde_json::from_str(text).ok());
    let pid = info.as_ref().and_then(|info| info.get("pid")).and_then(Value::as_u64);
    // swallowed: as above
    Ok(pid.and_then(|pid| u32::try_from(pid).ok()).filter(|&pid| pid > 0))
}

async fn image_user(runtime: &Runtime, image_ref: &str, image: &str) -> Option<ImageUser> {
    for name in [image_ref, image] {
        // swallowed: without the image's user the kernel's is compared with runAsNonRoot alone
        if let Ok(Some(found)) = runtime.image_status(name).await {
            return Some(match (found.uid, found.username.as_str()) {
                (Some(uid), _) => ImageUser::Uid(uid.value),
                (None, "") => ImageUser::Uid(0),
                (None, name) => ImageUser::Name(name.to_owned()),
            });
        }
    }
    None
}

/// What the profile's source holds now, if that is not what the container runs.
async fn stale_profile(
    config: &NodeConfig,
    source: Option<&dyn PodSource>,
    pod: &PodKey,
    context: &EffectiveContext<'_>,
    run: &Instance,
) -> Option<String> {
    let applied = run.seccomp_source_hash.as_ref().or(run.seccomp_profile_hash.as_ref())?;
    // swallowed: the comparison of seccomp reports it
    let now = match context.seccomp.profile.as_ref().ok()? {
        ProfileRef::ConfigMap { name, key } => {
            match config_map_profile(&pod.namespace, name, key, source?).await {
                Ok(text) => sha256::hex(text.as_bytes()),
                Err(error) if error.is_lasting() => return Some(format!("gone: {error}")),
                // swallowed: what the container runs is compared; only its age is not known
                Err(_) => return None,
            }
        }
        ProfileRef::Localhost(path) => match config.profile_folder().read(path) {
            Ok(text) => sha256::hex(&text),
            Err(error) => return Some(format!("gone: {error}")),
        },
        // Its content never changes.
        ProfileRef::Unconfined | ProfileRef::RuntimeDefault | ProfileRef::Oci(_) => return None,
    };
    (now != *applied).then_some(now)
}

/// What the kernel reports, and what it takes to read it.
#[derive(Debug, Clone, Copy)]
pub struct KernelFacts<'a> {
    /// The container's first process.
    pub process: &'a ProcessSecurity,
    /// A process of the node itself.
    pub host: &'a ProcessSecurity,
    /// The user of the image, if it is known.
    pub image_user: Option<&'a ImageUser>,
}

/// Stands for a group of the node that has no id in the container.
const UNMAPPED: i64 = -1;

/// What containerd and Docker give a container that requests nothing.
pub const DEFAULT_CAPABILITIES: u64 = 0xa804_25fb;

/// Every capability there is.
pub const ALL_CAPABILITIES: u64 = (1 << crate::kernel::process::CAPABILITIES.len()) - 1;

/// Compares one container. Pure.
#[must_use]
pub fn compare(context: &EffectiveContext<'_>, facts: &KernelFacts<'_>) -> Vec<Row> {
    let kernel = facts.process;
    let mut rows = Vec::with_capacity(15);
    let mut row = |check: &'static str, declared: String, kernel: String, ok: bool, note: Option<&str>| {
        rows.push(Row { check, declared, kernel, ok, note: note.map(str::to_owned) });
    };
    let privileged = context.privileged.value;

    let filters = kernel
        .seccomp_filters
        .map_or_else(String::new, |count| format!(", {count} filter{}", if count == 1 { "" } else { "s" }));
    let mode = match kernel.seccomp_mode {
        0 => "none",
        1 => "strict",
        _ => "filter",
    };
    let (declared, confined) = match &context.seccomp.profile {
        Ok(profile) => (profile.to_string(), !matches!(profile, ProfileRef::Unconfined)),
        Err(error) => (error.to_string(), true),
    };
    let enforced = kernel.seccomp_mode == 2 && kernel.seccomp_filters != Some(0);
    let note = match (confined, enforced) {
        (true, false) if privileged => Some("runtimes apply no seccomp profile to privileged containers"),
        (true, false) => Some("the runtime ignored the profile"),
        (false, true) => Some("stricter than declared"),
        _ => None,
    };
    row("seccomp", declared, format!("{mode}{filters}"), enforced || !confined, note);

    let label = kernel.app_armor.as_deref().unwrap_or("none");
    let profile = kernel.app_armor_profile();
    let loaded_in = kernel.app_armor_mode();
    let denies = matches!(loaded_in, Some("enforce" | "kill"));
    let confined_by = profile.filter(|&profile| profile != "unconfined" && denies);
    match &context.app_armor.profile {
        None => row("appArmor", "not set".to_owned(), label.to_owned(), true, None),
        Some(Err(error)) => row("appArmor", error.to_string(), label.to_owned(), false, None),
        Some(Ok(wanted)) => {
            let ok = match wanted {
                ProfileRef::Unconfined => true,
                ProfileRef::RuntimeDefault => confined_by.is_some(),
                ProfileRef::Localhost(name) => confined_by == Some(name.as_str()),
                ProfileRef::ConfigMap { .. } | ProfileRef::Oci(_) => false,
            };
            let note = match (ok, confined_by) {
                (false, None) if loaded_in.is_some() => {
                    Some("the profile is loaded in a mode that denies nothing")
                }
                (false, None) => Some("the runtime ignored the profile"),
                (true, Some(_)) if matches!(wanted, ProfileRef::Unconfined) => Some("stricter than declared"),
                _ => None,
            };
            row("appArmor", wanted.to_string(), label.to_owned(), ok, note);
        }
    }

    if let Some(options) = &context.se_linux_options.value {
        let wanted = [&options.user, &options.role, &options.kind, &options.level]
            .map(palisade_model::text::Text::as_str);
        let mut label = kernel.se_linux.as_deref().unwrap_or_default().splitn(4, ':');
        let ok =
            wanted.iter().all(|part| label.next().is_some_and(|given| part.is_empty() || given == *part))
                || wanted.iter().all(|part| part.is_empty());
        let declared = wanted.map(|part| if part.is_empty() { "*" } else { part }).join(":");
        let shown = kernel.se_linux.clone().unwrap_or_else(|| "none".to_owned());
        let note = (!ok && kernel.se_linux.is_none()).then_some("SELinux is not enabled on the node");
        row("seLinuxOptions", declared, shown, ok, note);
    }

    let own_users = kernel.namespaces.get("user") != facts.host.namespaces.get("user");
    let ids = Ids { own_users, kernel };
    let [_, uid, _, _] = kernel.uid;
    let (uid, shown_user) = ids.user(uid);
    let image_uid = match facts.image_user {
        Some(ImageUser::Uid(uid)) => Some(*uid),
        _ => None,
    };
    if let Some(wanted) = context.run_as_user.value.or(image_uid) {
        row("uid", wanted.to_string(), shown_user, uid.map(i64::from) == Some(wanted), None);
    } else {
        let root_refused = context.run_as_non_root.value == Some(true) && uid == Some(0);
        row("uid", "the image's".to_owned(), shown_user, uid.is_some() && !root_refused, None);
    }
    let [_, gid, _, _] = kernel.gid;
    let (gid, its_group) = ids.group(gid);
    match context.run_as_group.value {
        Some(wanted) => {
            row("gid", wanted.to_string(), its_group, gid.map(i64::from) == Some(wanted), None);
        }
        None => row("gid", "the image's".to_owned(), its_group, gid.is_some(), None),
    }
    groups(context, &ids, gid, &mut row);
    capabilities(context, facts, uid == Some(0), &mut row);

    let yes = |flag: bool| if flag { "yes" } else { "no" }.to_owned();
    let wanted = context.no_new_privs.value;
    let note = (kernel.no_new_privs && !wanted).then_some("stricter than declared");
    row("noNewPrivs", yes(wanted), yes(kernel.no_new_privs), kernel.no_new_privs || !wanted, note);
    for (check, kind, shares) in [
        ("hostNetwork", "net", context.host_network.value),
        ("hostPID", "pid", context.host_pid.value),
        ("hostIPC", "ipc", context.host_ipc.value),
    ] {
        match (kernel.namespaces.get(kind), facts.host.namespaces.get(kind)) {
            (Some(own), Some(host)) => {
                let same = own == host;
                row(check, yes(shares), yes(same), same == shares, None);
            }
            _ => row(check, yes(shares), "unknown".to_owned(), false, None),
        }
    }
    // A kernel without user namespaces has one set of users. A namespace whose users are users of the node is none of its own.
    let maps = || kernel.uid_map.iter().chain(&kernel.gid_map);
    let reaches = maps().any(IdMapLine::reaches_the_node) || maps().next().is_none();
    let apart = own_users && !reaches;
    let wanted = context.host_users.value;
    let note = match (apart, wanted) {
        (true, true) => Some("stricter than declared"),
        (false, false) if own_users => Some("users of the namespace are users of the node"),
        _ => None,
    };
    row("hostUsers", yes(wanted), yes(!apart), wanted || apart, note);
    // Runtimes hide nothing from privileged containers, as their pods request.
    let masks = context.proc_mount.value != "Unmasked" && !privileged;
    let declared = if masks { "Default" } else { "Unmasked" };
    let shown = match kernel.unmasked.as_slice() {
        [] => "Default".to_owned(),
        [path] => format!("sees {path}"),
        [path, others @ ..] => format!("sees {path} and {} more", others.len()),
    };
    let note = (kernel.unmasked.is_empty() && !masks).then_some("stricter than declared");
    row("procMount", declared.to_owned(), shown, kernel.unmasked.is_empty() || !masks, note);
    if let [first, others @ ..] = context.sysctls.value {
        let rest = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
        let note = "the runtime makes no sandbox without it";
        row(
            "sysctls",
            format!("{}={}{rest}", first.name, first.value),
            "not read".to_owned(),
            true,
            Some(note),
        );
    }
    let (read_only, wanted) = (kernel.root_read_only, context.read_only_root_filesystem.value);
    let note = (read_only && !wanted).then_some("stricter than declared");
    row("readOnlyRootFilesystem", yes(wanted), yes(read_only), read_only || !wanted, note);
    rows
}

/// Ids as the container sees them: the kernel reports those of the node.
struct Ids<'a> {
    own_users: bool,
    kernel: &'a ProcessSecurity,
}

impl Ids<'_> {
    fn user(&self, id: u32) -> (Option<u32>, String) {
        self.inside(&self.kernel.uid_map, id)
    }

    fn group(&self, id: u32) -> (Option<u32>, String) {
        self.inside(&self.kernel.gid_map, id)
    }

    fn inside(&self, map: &[IdMapLine], id: u32) -> (Option<u32>, String) {
        if !self.own_users {
            return (Some(id), id.to_string());
        }
        match map.iter().find_map(|line| line.inside(id)) {
            Some(inside) => (Some(inside), format!("{inside} ({id} on the node)")),
            None => (None, format!("{id} on the node, not mapped")),
        }
    }
}

fn shown_group(id: i64) -> String {
    if id == UNMAPPED { "not mapped".to_owned() } else { id.to_string() }
}

fn groups(
    context: &EffectiveContext<'_>,
    ids: &Ids<'_>,
    gid: Option<u32>,
    row: &mut impl FnMut(&'static str, String, String, bool, Option<&str>),
) {
    // A group that is not mapped is one that the pod did not declare.
    let found: BTreeSet<i64> =
        ids.kernel.groups.iter().map(|&id| ids.group(id).0.map_or(UNMAPPED, i64::from)).collect();
    let gid = gid.map_or(UNMAPPED, i64::from);
    let wanted: BTreeSet<i64> = context.groups.value.iter().copied().collect();
    let shown = |groups: &BTreeSet<i64>| match groups.len() {
        0 => "-".to_owned(),
        _ => groups.iter().map(|&id| shown_group(id)).collect::<Vec<_>>().join(" "),
    };
    let strict = context.supplemental_groups_policy.value == Some("Strict");
    let missing = wanted.iter().any(|group| !found.contains(group) && *group != gid);
    let extra = found.iter().any(|group| !wanted.contains(group) && *group != gid);
    let foreign = found.contains(&UNMAPPED);
    let note = match (missing, extra, strict) {
        _ if foreign => Some("a group of the node that the namespace does not map"),
        (false, true, false) => Some("the image adds groups of its own"),
        (false, true, true) => Some("the policy is Strict"),
        _ => None,
    };
    row("groups", shown(&wanted), shown(&found), !(missing || foreign || strict && extra), note);
}

fn capabilities(
    context: &EffectiveContext<'_>,
    facts: &KernelFacts<'_>,
    root: bool,
    row: &mut impl FnMut(&'static str, String, String, bool, Option<&str>),
) {
    let kernel = facts.process;
    let allowed = if context.privileged.value {
        // A runtime cannot give what the node does not have.
        facts.host.cap_bounding
    } else {
        declared_capabilities(context)
    };
    let shown = |set: u64| shown_capabilities(set, facts.host.cap_bounding);
    let added: u64 = context
        .capabilities
        .value
        .add
        .iter()
        .filter_map(|name| capability_bit(name))
        .fold(0, |set, bit| set | bit);
    // What is dropped as well is not there.
    let added = added & allowed & facts.host.cap_bounding;
    let drops_unknown = context
        .capabilities
        .value
        .drop
        .iter()
        .any(|name| !name.eq_ignore_ascii_case("ALL") && capability_bit(name).is_none());
    let bounding_ok = kernel.cap_bounding & !allowed == 0 && kernel.cap_bounding & added == added;
    let note = drops_unknown.then_some("a name in capabilities.drop is not a capability and drops nothing");
    row("capBounding", shown(allowed), shown(kernel.cap_bounding), bounding_ok && !drops_unknown, note);
    let effective = if root { allowed } else { 0 };
    // What a process may raise, pass on to programs it executes, or has raised already.
    let held = kernel.cap_effective | kernel.cap_permitted | kernel.cap_inheritable | kernel.cap_ambient;
    let exceeds = held & !allowed != 0;
    let note = (exceeds).then_some("more than the bounding set declares");
    row(
        "capEffective",
        shown(effective),
        shown(if exceeds { held } else { kernel.cap_effective }),
        !exceeds,
        note,
    );
}

/// A set in words that fit into a column: whole sets by name, larger ones as a difference from the default.
#[must_use]
pub fn shown_capabilities(set: u64, all: u64) -> String {
    let missing = DEFAULT_CAPABILITIES & !set;
    match set {
        0 => "none".to_owned(),
        DEFAULT_CAPABILITIES => "default".to_owned(),
        _ if set & all == all => "all".to_owned(),
        _ if missing.count_ones() < set.count_ones() => {
            let added =
                capability_names(set & !DEFAULT_CAPABILITIES).into_iter().map(|name| format!(" +{name}"));
            let dropped = capability_names(missing).into_iter().map(|name| format!(" -{name}"));
            format!("default{}", added.chain(dropped).collect::<String>())
        }
        _ => capability_names(set).join(","),
    }
}

/// The set a container may have at most: the runtime's default, with what it adds and without what it drops.
#[must_use]
pub fn declared_capabilities(context: &EffectiveContext<'_>) -> u64 {
    const ALL: u64 = ALL_CAPABILITIES;
    let is_all = |name: &str| name.eq_ignore_ascii_case("ALL");
    let capabilities = &context.capabilities.value;
    let mut set = DEFAULT_CAPABILITIES;
    if capabilities.add.iter().any(|name| is_all(name)) {
        set = ALL;
    }
    if capabilities.drop.iter().any(|name| is_all(name)) {
        set = 0;
    }
    for bit in capabilities.add.iter().filter_map(|name| capability_bit(name)) {
        set |= bit;
    }
    for bit in capabilities.drop.iter().filter_map(|name| capability_bit(name)) {
        set &= !bit;
    }
    set
}

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;
