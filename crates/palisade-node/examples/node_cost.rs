//! What the agent adds to the start of a pod, and its memory without the rest of the program.
//!
//! `node_cost SOCKET IMAGE` prints one JSON object. The runtime must hold the image; nothing else may use it meanwhile.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a measuring tool prints to its terminal")]

use std::{
    error::Error,
    fs,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use palisade_node::{
    api::{PodSource, local::LocalSource},
    kubelet,
    node::{Node, NodeConfig},
    pod::RunPod,
};
use serde_json::{Value, json};
use tracing::field::{Field, Visit};
use tracing_subscriber::{Layer, layer::SubscriberExt as _, util::SubscriberInitExt as _};

/// Microseconds spent in the calls without which no pod starts, by any caller.
static RUNTIME: AtomicU32 = AtomicU32::new(0);

/// Adds up the durations in the spans of the client's calls.
struct Calls;

#[derive(Default)]
struct Call {
    path: String,
    microseconds: u32,
}

impl Visit for Call {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "microseconds" {
            self.microseconds = u32::try_from(value).unwrap_or(u32::MAX);
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "call" {
            value.clone_into(&mut self.path);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

impl<S: tracing::Subscriber> Layer<S> for Calls {
    fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        let mut call = Call::default();
        event.record(&mut call);
        if ["/RunPodSandbox", "/CreateContainer", "/StartContainer"]
            .iter()
            .any(|end| call.path.ends_with(end))
        {
            RUNTIME.fetch_add(call.microseconds, Ordering::Relaxed);
        }
    }
}

const STARTS: usize = 11;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, image] = arguments.as_slice() else {
        eprintln!("usage: node_cost SOCKET IMAGE");
        return ExitCode::from(2);
    };
    match measure(socket, image).await {
        Ok(found) => {
            println!("{found}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("node_cost: {error}");
            ExitCode::from(3)
        }
    }
}

async fn measure(socket: &str, image: &str) -> Result<Value, Box<dyn Error>> {
    let filter = tracing_subscriber::EnvFilter::new("palisade_node=debug");
    tracing_subscriber::registry().with(Calls.with_filter(filter)).init();
    let root = std::env::temp_dir().join(format!("node-cost-{}", std::process::id()));
    let source = LocalSource::default();
    let config =
        NodeConfig { runtime_endpoint: socket.to_owned(), root_dir: root.clone(), ..NodeConfig::default() };
    let shared: Arc<dyn PodSource> = Arc::new(source.clone());
    let node = Node::new(config, shared)?;
    tokio::spawn(kubelet::run(node.clone(), std::future::pending()));
    tokio::time::sleep(Duration::from_secs(3)).await;
    let idle = resident_kilobytes();

    let mut whole = Vec::new();
    let mut added = Vec::new();
    for number in 0..STARTS {
        RUNTIME.store(0, Ordering::Relaxed);
        let took = start(&source, &pod(&format!("one-{number}"), image)?).await;
        whole.push(took);
        added.push(took - f64::from(RUNTIME.load(Ordering::Relaxed)) / 1000.0);
    }
    fs::remove_dir_all(root).ok();
    Ok(json!({"idleMemoryKB": idle, "startMs": median(whole), "addedStartMs": median(added)}))
}

fn pod(name: &str, image: &str) -> Result<RunPod, Box<dyn Error>> {
    let script = "trap 'exit 0' TERM; sleep 600 & wait";
    Ok(RunPod::from_object(json!({"metadata": {"name": name}, "spec": {"hostNetwork": true,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "c", "image": image, "command": ["sh", "-c", script]}]}}))?)
}

/// Starts a pod and removes it; how long the start took.
async fn start(source: &LocalSource, pod: &RunPod) -> f64 {
    let begun = Instant::now();
    source.apply(pod);
    until_running(source, pod).await;
    let took = begun.elapsed();
    source.delete(&pod.key.uid, Some(0));
    while source.has_pod(&pod.key.uid) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    milliseconds(took)
}

async fn until_running(source: &LocalSource, pod: &RunPod) {
    let mut changes = source.changes();
    while source.status(&pod.key.uid).is_none_or(|status| status["phase"] != "Running") {
        if changes.changed().await.is_err() {
            return;
        }
    }
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn resident_kilobytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}
