//! Streams into containers: the address that the runtime gives for one.
//!
//! Implements: the kubelet's `GetExec`, `GetAttach` and `GetPortForward`. The runtime's streaming server moves the bytes; who may
//! have them was decided by the API server.

use palisade_base::go;
use serde_json::Value;
use thiserror::Error;

use crate::{
    cri::{
        client::{Runtime, RuntimeError},
        proto::{AttachRequest, ContainerState, ExecRequest},
    },
    runner::observed::Observed,
};

/// The streams that are wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Streams {
    /// To the process.
    pub stdin: bool,
    /// From the process.
    pub stdout: bool,
    /// From the process, apart from its output.
    pub stderr: bool,
    /// Through a terminal.
    pub tty: bool,
}

/// Why there is no stream.
#[derive(Debug, Error)]
pub enum StreamError {
    /// The container does not run.
    #[error("container not found ({})", go::quote(.0))]
    NoContainer(String),
    /// The pod has no sandbox that is ready.
    #[error("sandbox of pod {} is not running", go::quote(.0))]
    NoSandbox(String),
    /// The runtime rejects it, or does not respond.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

fn text<'p>(pod: &'p Value, path: &str) -> &'p str {
    pod.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// The run of a container that goes on.
async fn running(runtime: &Runtime, pod: &Value, container: &str) -> Result<String, StreamError> {
    let observed = Observed::of_pod(runtime, text(pod, "/metadata/uid")).await?;
    let latest = observed.latest(container).filter(|run| run.state == ContainerState::Running);
    latest.map(|run| run.id.clone()).ok_or_else(|| StreamError::NoContainer(container.to_owned()))
}

/// The address of a command in a container.
pub async fn exec(
    runtime: &Runtime,
    pod: &Value,
    container: &str,
    command: Vec<String>,
    streams: Streams,
) -> Result<String, StreamError> {
    let Streams { stdin, stdout, stderr, tty } = streams;
    let container_id = running(runtime, pod, container).await?;
    Ok(runtime.exec(ExecRequest { container_id, cmd: command, tty, stdin, stdout, stderr }).await?)
}

/// The address of a container's first process, and the streams that it has: a terminal is a property of the container.
pub async fn attach(
    runtime: &Runtime,
    pod: &Value,
    container: &str,
    wanted: Streams,
) -> Result<(String, Streams), StreamError> {
    let container_id = running(runtime, pod, container).await?;
    let tty = has_terminal(pod, container);
    let streams = Streams { tty, stderr: wanted.stderr && !tty, ..wanted };
    let Streams { stdin, stdout, stderr, .. } = streams;
    let url = runtime.attach(AttachRequest { container_id, stdin, tty, stdout, stderr }).await?;
    Ok((url, streams))
}

fn has_terminal(pod: &Value, container: &str) -> bool {
    let lists = ["containers", "initContainers", "ephemeralContainers"];
    let all = lists.iter().filter_map(|list| pod.pointer(&format!("/spec/{list}"))?.as_array()).flatten();
    all.filter(|one| text(one, "/name") == container).any(|one| one.get("tty") == Some(&Value::Bool(true)))
}

/// The address of ports in the pod's network.
pub async fn port_forward(runtime: &Runtime, pod: &Value, ports: &[u16]) -> Result<String, StreamError> {
    let observed = Observed::of_pod(runtime, text(pod, "/metadata/uid")).await?;
    let sandbox = observed.ready_sandbox();
    let sandbox = sandbox.ok_or_else(|| StreamError::NoSandbox(text(pod, "/metadata/name").to_owned()))?;
    Ok(runtime.port_forward(&sandbox.id, ports).await?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_terminal_is_the_containers() {
        let pod = json!({"spec": {"containers": [{"name": "a", "tty": true}, {"name": "b"}],
            "ephemeralContainers": [{"name": "d", "tty": true}]}});
        for (container, expected) in [("a", true), ("b", false), ("d", true), ("x", false)] {
            assert_eq!(has_terminal(&pod, container), expected, "{container}");
        }
    }
}
