//! Container logs: files the runtime writes, as `kubectl logs` reads them.
//!
//! Implements: the CRI log format (`<time> <stream> <P|F> <text>`) and the options of the pod's `log` subresource. Files
//! are `<log-dir>/<namespace>_<name>_<uid>/<container>/<restart>.log`, the kubelet's layout.

use std::{
    fs::{self, File},
    io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt as _, stream::BoxStream};
use jiff::Timestamp;
use serde_json::Value;
use thiserror::Error;

use crate::{
    api::PodKey,
    cri::{
        client::{Runtime, RuntimeError},
        proto::ContainerState,
    },
    node::NodeConfig,
    runner::{config::PodPaths, observed::Observed},
};

/// What of a log is wanted.
#[derive(Debug, Clone, Default)]
pub struct LogOptions {
    /// Wait for more until the container stops.
    pub follow: bool,
    /// Of the run before the current one.
    pub previous: bool,
    /// The last lines only.
    pub tail_lines: Option<usize>,
    /// Nothing older.
    pub since: Option<Timestamp>,
    /// With the time of every line.
    pub timestamps: bool,
    /// No more than this.
    pub limit_bytes: Option<u64>,
}

/// Why there is no log.
#[derive(Debug, Error)]
pub enum LogError {
    /// The container has not run, or not often enough.
    #[error("{what} container {container:?} in pod {pod:?} not found")]
    NotFound {
        /// `previous terminated`, or nothing.
        what: &'static str,
        /// The container.
        container: String,
        /// The pod.
        pod: String,
    },
    /// The file cannot be read.
    #[error("cannot read the log of container {container:?}")]
    Unreadable {
        /// The container.
        container: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The runtime no longer has the container, or keeps its log elsewhere.
    #[error("unable to retrieve container logs for {id}")]
    NotRetrievable {
        /// As the status of the pod has it.
        id: String,
    },
    /// The pod's status has no run to read the log of.
    #[error("container {container:?} in pod {pod:?} is {state}")]
    NoRun {
        /// The container.
        container: String,
        /// The pod.
        pod: String,
        /// Where the container is instead.
        state: String,
    },
}

/// The lines of a container's log, in pieces.
pub fn container_logs(
    config: &NodeConfig,
    runtime: Option<Runtime>,
    pod: &PodKey,
    container: &str,
    options: LogOptions,
) -> Result<BoxStream<'static, io::Result<Bytes>>, LogError> {
    let not_found =
        |what| LogError::NotFound { what, container: container.to_owned(), pod: pod.name.clone() };
    if container.contains(['/', '\0']) || container == ".." {
        return Err(not_found(""));
    }
    let folder = PodPaths::of(pod, &config.root_dir, &config.logs()).logs.join(container);
    let mut runs = log_files(&folder);
    let (_, path) = if options.previous {
        runs.pop();
        runs.pop().ok_or_else(|| not_found("previous terminated"))?
    } else {
        runs.pop().ok_or_else(|| not_found(""))?
    };
    let follow = Follow { runtime, uid: pod.uid.clone(), container: container.to_owned(), id: None };
    open(&path, follow, options)
}

/// The log of a pod as stored in an API server, whose status has the run.
pub async fn pod_logs(
    config: &NodeConfig,
    runtime: &Runtime,
    pod: &Value,
    container: &str,
    options: LogOptions,
) -> Result<BoxStream<'static, io::Result<Bytes>>, LogError> {
    let id = container_of_log(pod, container, options.previous)?;
    let bare = id.split_once("://").map_or(id.as_str(), |(_, bare)| bare);
    let gone = || LogError::NotRetrievable { id: id.clone() };
    let status = runtime
        .container_status(bare, false)
        .await
        .map_err(|_: RuntimeError| gone())?
        .status
        .unwrap_or_default();
    let path = PathBuf::from(&status.log_path);
    // The runtime reports the path; only what this node configured is read.
    if !path.starts_with(config.logs()) {
        return Err(gone());
    }
    let uid = pod.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned();
    let follow = Follow {
        runtime: Some(runtime.clone()),
        uid,
        container: container.to_owned(),
        id: Some(bare.to_owned()),
    };
    open(&path, follow, options)
}

/// The run whose log is meant: the kubelet's `validateContainerLogStatus`.
fn container_of_log(pod: &Value, container: &str, previous: bool) -> Result<String, LogError> {
    let name = pod.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let no_run =
        |state: String| LogError::NoRun { container: container.to_owned(), pod: name.to_owned(), state };
    let lists = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
    let status = lists
        .iter()
        .filter_map(|list| pod.pointer(&format!("/status/{list}"))?.as_array())
        .flatten()
        .find(|status| status.get("name").and_then(Value::as_str) == Some(container))
        .ok_or_else(|| no_run("not available".to_owned()))?;
    let id = |path: &str| status.pointer(path).and_then(Value::as_str).filter(|id| !id.is_empty());
    let last = id("/lastState/terminated/containerID");
    let terminated = || no_run("terminated".to_owned());
    let found = if previous {
        last.ok_or_else(|| LogError::NotFound {
            what: "previous terminated",
            container: container.to_owned(),
            pod: name.to_owned(),
        })
    } else if status.pointer("/state/running").is_some() {
        id("/containerID").ok_or_else(terminated)
    } else if status.pointer("/state/terminated").is_some() {
        id("/state/terminated/containerID").or(last).ok_or_else(terminated)
    } else if status.pointer("/lastState/terminated").is_some() {
        last.ok_or_else(terminated)
    } else {
        let why = match status.pointer("/state/waiting/reason").and_then(Value::as_str) {
            Some("ErrImagePull") => ": image can't be pulled".to_owned(),
            Some("ImagePullBackOff") => ": trying and failing to pull image".to_owned(),
            Some(reason) => format!(": {reason}"),
            None => " - no logs yet".to_owned(),
        };
        Err(no_run(format!("waiting to start{why}")))
    };
    found.map(str::to_owned)
}

fn open(
    path: &Path,
    follow: Follow,
    options: LogOptions,
) -> Result<BoxStream<'static, io::Result<Bytes>>, LogError> {
    let unreadable = |source| LogError::Unreadable { container: follow.container.clone(), source };
    let mut file = File::open(path).map_err(unreadable)?;
    if let Some(lines) = options.tail_lines {
        let start = tail_start(&mut file, lines).map_err(unreadable)?;
        file.seek(SeekFrom::Start(start)).map_err(unreadable)?;
    }
    let reader = Reader {
        file: BufReader::new(file),
        partial: Vec::new(),
        left: options.limit_bytes.unwrap_or(u64::MAX),
        follow: (options.follow && !options.previous).then_some(follow),
        options,
    };
    Ok(futures::stream::unfold(Some(reader), |reader| async move {
        let mut reader = reader?;
        match reader.next().await {
            Ok(Some(piece)) => Some((Ok(piece), Some(reader))),
            Ok(None) => None,
            Err(error) => Some((Err(error), None)),
        }
    })
    .boxed())
}

fn log_files(folder: &Path) -> Vec<(u32, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            Some((name.strip_suffix(".log")?.parse().ok()?, entry.path()))
        })
        .collect();
    files.sort();
    files
}

struct Follow {
    runtime: Option<Runtime>,
    uid: String,
    container: String,
    /// The run, where it is known; the newest otherwise.
    id: Option<String>,
}

struct Reader {
    file: BufReader<File>,
    partial: Vec<u8>,
    left: u64,
    follow: Option<Follow>,
    options: LogOptions,
}

impl Reader {
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        const PIECE: usize = 32 << 10;
        let mut piece = Vec::new();
        let mut last_chance = false;
        loop {
            let mut line = std::mem::take(&mut self.partial);
            self.file.read_until(b'\n', &mut line)?;
            if line.last() == Some(&b'\n') {
                self.take(&line, &mut piece);
                if self.left == 0 || piece.len() >= PIECE {
                    break;
                }
                continue;
            }
            // The end, or half a line that is still being written.
            self.partial = line;
            if !piece.is_empty() {
                break;
            }
            let Some(follow) = &self.follow else { break };
            if last_chance {
                break;
            }
            // Whatever it wrote before it stopped is read once more.
            last_chance = !follow.still_running().await;
            if !last_chance {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
        Ok((!piece.is_empty()).then(|| Bytes::from(piece)))
    }

    fn take(&mut self, line: &[u8], piece: &mut Vec<u8>) {
        let Some(entry) = parse(line) else { return };
        if let (Some(since), Some(at)) = (self.options.since, entry.at)
            && at < since
        {
            return;
        }
        let start = piece.len();
        if self.options.timestamps {
            piece.extend_from_slice(entry.time);
            piece.push(b' ');
        }
        piece.extend_from_slice(entry.text);
        if entry.whole {
            piece.push(b'\n');
        }
        let added = (piece.len() - start) as u64;
        if added > self.left {
            let keep = usize::try_from(self.left).unwrap_or(usize::MAX);
            piece.truncate(start.saturating_add(keep));
        }
        self.left = self.left.saturating_sub(added);
        if self.left == 0 {
            self.follow = None;
        }
    }
}

impl Follow {
    async fn still_running(&self) -> bool {
        let Some(runtime) = &self.runtime else { return false };
        let goes_on = |state| matches!(state, ContainerState::Running | ContainerState::Created);
        if let Some(id) = &self.id {
            return match runtime.container_status(id, false).await {
                Ok(answer) => answer.status.is_some_and(|status| goes_on(status.state())),
                Err(error) => error.is_unreachable(),
            };
        }
        match Observed::of_pod(runtime, &self.uid).await {
            Ok(observed) => observed.latest(&self.container).is_some_and(|run| goes_on(run.state)),
            // A runtime that restarts does not end the log.
            Err(error) => error.is_unreachable(),
        }
    }
}

struct Entry<'a> {
    time: &'a [u8],
    at: Option<Timestamp>,
    whole: bool,
    text: &'a [u8],
}

fn parse(line: &[u8]) -> Option<Entry<'_>> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let mut parts = line.splitn(4, |&byte| byte == b' ');
    let time = parts.next()?;
    let _stream = parts.next()?;
    let tag = parts.next()?;
    let text = parts.next().unwrap_or_default();
    let at = std::str::from_utf8(time).ok().and_then(|text| text.parse().ok());
    // Tags are separated by colons; the first marks whether the line is whole.
    Some(Entry { time, at, whole: tag.first() != Some(&b'P'), text })
}

/// Where the last `lines` lines begin.
fn tail_start(file: &mut File, lines: usize) -> io::Result<u64> {
    const BLOCK: u64 = 4096;
    let end = file.seek(SeekFrom::End(0))?;
    let mut wanted = lines;
    let mut at = end;
    let mut block = vec![0; usize::try_from(BLOCK).unwrap_or_default()];
    while at > 0 {
        let size = at.min(BLOCK);
        at -= size;
        file.seek(SeekFrom::Start(at))?;
        let Some(part) = block.get_mut(..usize::try_from(size).unwrap_or_default()) else { break };
        file.read_exact(part)?;
        for (offset, _) in part.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            let position = at + offset as u64;
            // The newline that ends the file ends its last line, it does not begin another.
            if position + 1 == end {
                continue;
            }
            if wanted <= 1 {
                return Ok(if lines == 0 { end } else { position + 1 });
            }
            wanted -= 1;
        }
    }
    Ok(if lines == 0 { end } else { 0 })
}

/// The first bytes of a file.
pub(crate) fn head(path: &Path, most: usize) -> Vec<u8> {
    let mut content = Vec::new();
    if let Ok(file) = File::open(path) {
        file.take(most as u64).read_to_end(&mut content).ok();
    }
    content
}

/// The last lines of a log without times, for a last message.
pub(crate) fn tail_text(path: &Path, lines: usize, most: usize) -> String {
    let Ok(mut file) = File::open(path) else { return String::new() };
    let Ok(start) = tail_start(&mut file, lines) else { return String::new() };
    if file.seek(SeekFrom::Start(start)).is_err() {
        return String::new();
    }
    let mut text = Vec::new();
    for line in BufReader::new(file).split(b'\n').map_while(Result::ok) {
        if let Some(entry) = parse(&line) {
            text.extend_from_slice(entry.text);
            if entry.whole {
                text.push(b'\n');
            }
        }
    }
    let from = text.len().saturating_sub(most);
    String::from_utf8_lossy(text.get(from..).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt as _;

    use super::*;

    async fn read(content: &str, options: LogOptions) -> String {
        let temp = tempfile::tempdir().unwrap();
        let config = NodeConfig { root_dir: temp.path().to_owned(), ..NodeConfig::default() };
        let pod = PodKey { namespace: "n".into(), name: "p".into(), uid: "u".into() };
        let folder = temp.path().join("logs/n_p_u/c");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("9.log"), "2026-01-01T00:00:00Z stdout F old\n").unwrap();
        fs::write(folder.join("10.log"), content).unwrap();
        let stream = container_logs(&config, None, &pod, "c", options).unwrap();
        let pieces: Vec<Bytes> = stream.try_collect().await.unwrap();
        String::from_utf8(pieces.concat()).unwrap()
    }

    const TEXT: &str = "2026-01-01T00:00:00Z stdout F one\n2026-01-01T00:00:01Z stderr P tw\n\
                        2026-01-01T00:00:01Z stderr F o\n2026-01-01T00:00:02Z stdout F \nhalf a li";

    #[tokio::test]
    async fn reads_as_kubectl_does() {
        let options = LogOptions::default;
        for (case, options, expected) in [
            ("all", options(), "one\ntwo\n\n"),
            ("previous", LogOptions { previous: true, ..options() }, "old\n"),
            ("tail", LogOptions { tail_lines: Some(2), ..options() }, "\n"),
            ("tail of nothing", LogOptions { tail_lines: Some(0), ..options() }, ""),
            ("tail of more than there is", LogOptions { tail_lines: Some(99), ..options() }, "one\ntwo\n\n"),
            ("bytes", LogOptions { limit_bytes: Some(5), ..options() }, "one\nt"),
            ("since", LogOptions { since: "2026-01-01T00:00:01Z".parse().ok(), ..options() }, "two\n\n"),
            (
                "times",
                LogOptions { timestamps: true, limit_bytes: Some(25), ..options() },
                "2026-01-01T00:00:00Z one\n",
            ),
        ] {
            assert_eq!(read(TEXT, options).await, expected, "{case}");
        }
    }

    #[test]
    fn selects_the_run_or_returns_the_reason() {
        let pod = |state: &str| -> Value {
            let text = format!(
                r#"{{"metadata":{{"name":"p"}},"status":{{"containerStatuses":[{{"name":"c",{state}}}]}}}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        let running = r#""state":{"running":{}},"containerID":"r://1","lastState":{"terminated":{"containerID":"r://0"}}"#;
        let waiting = |reason: &str| format!(r#""state":{{"waiting":{{"reason":"{reason}"}}}}"#);
        let looping = format!(
            r#"{},"lastState":{{"terminated":{{"containerID":"r://7"}}}}"#,
            waiting("CrashLoopBackOff")
        );
        let never = r#""state":{"terminated":{"exitCode":128}}"#;
        for (case, state, previous, expected) in [
            ("running", running, false, Ok("r://1")),
            ("the one before", running, true, Ok("r://0")),
            ("in a loop", &looping, false, Ok("r://7")),
            ("never created", never, false, Err("container \"c\" in pod \"p\" is terminated")),
            ("none before", never, true, Err("previous terminated container \"c\" in pod \"p\" not found")),
            (
                "creating",
                &waiting("ContainerCreating"),
                false,
                Err("container \"c\" in pod \"p\" is waiting to start: ContainerCreating"),
            ),
            (
                "pulling",
                &waiting("ImagePullBackOff"),
                false,
                Err("container \"c\" in pod \"p\" is waiting to start: trying and failing to pull image"),
            ),
            (
                "unknown",
                r#""state":{}"#,
                false,
                Err("container \"c\" in pod \"p\" is waiting to start - no logs yet"),
            ),
        ] {
            let found = container_of_log(&pod(state), "c", previous);
            let found = found.map_err(|error| error.to_string());
            assert_eq!(found, expected.map(str::to_owned).map_err(str::to_owned), "{case}");
        }
        let error = container_of_log(&pod(running), "d", false).unwrap_err();
        assert_eq!(error.to_string(), "container \"d\" in pod \"p\" is not available");
    }

    #[test]
    fn a_last_message_is_exactly_what_was_written() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("0.log");
        for (log, expected) in [
            ("2026-01-01T00:00:00Z stdout P DONE\n", "DONE"),
            ("2026-01-01T00:00:00Z stdout F DONE\n", "DONE\n"),
            ("2026-01-01T00:00:00Z stdout P a\n2026-01-01T00:00:00Z stdout F b\n", "ab\n"),
        ] {
            fs::write(&file, log).unwrap();
            assert_eq!(tail_text(&file, 80, 2048), expected, "{log}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_line_makes_it_panic(line in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let _ = parse(&line);
        }
    }

    #[test]
    fn reports_a_missing_log() {
        let pod = PodKey { namespace: "n".into(), name: "p".into(), uid: "u".into() };
        let config = NodeConfig { root_dir: "/nonexistent".into(), ..NodeConfig::default() };
        let previous = LogOptions { previous: true, ..LogOptions::default() };
        let error = container_logs(&config, None, &pod, "c", previous).err().unwrap();
        assert_eq!(error.to_string(), "previous terminated container \"c\" in pod \"p\" not found");
        assert!(container_logs(&config, None, &pod, "../../x", LogOptions::default()).is_err());
    }
}
