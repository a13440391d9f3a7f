//! Calls to a container runtime over its Unix socket.
//!
//! Implements: CRI v1, `runtime.v1.RuntimeService` and `runtime.v1.ImageService`. Every call has a deadline, because a
//! runtime that hangs must not take the agent with it. What to request is decided elsewhere.

use std::{
    error::Error as _,
    path::{Path, PathBuf},
    time::Duration,
};

use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use prost::Message;
use thiserror::Error;
use tokio::net::UnixStream;
use tonic::{
    Code, Request, Status,
    client::Grpc,
    transport::{Channel, Endpoint, Uri},
};
use tonic_prost::ProstCodec;

use super::proto::{
    AttachRequest, Container, ContainerConfig, ContainerFilter, ContainerStatusRequest,
    ContainerStatusResponse, CreateContainerRequest, CreateContainerResponse, Empty, ExecRequest,
    ExecSyncRequest, ExecSyncResponse, Image, ImageSpec, ImageStatusRequest, ImageStatusResponse,
    LinuxContainerResources, ListContainersRequest, ListContainersResponse, ListPodSandboxRequest,
    ListPodSandboxResponse, PodSandbox, PodSandboxConfig, PodSandboxFilter, PodSandboxStatus,
    PodSandboxStatusRequest, PodSandboxStatusResponse, PortForwardRequest, PullImageRequest,
    PullImageResponse, RemoveContainerRequest, RemovePodSandboxRequest, RunPodSandboxRequest,
    RunPodSandboxResponse, StartContainerRequest, StatusRequest, StatusResponse, StopContainerRequest,
    StopPodSandboxRequest, StreamResponse, UpdateContainerResourcesRequest, VersionRequest, VersionResponse,
};

/// The socket of Debian's and most other containerd installations.
pub const DEFAULT_ENDPOINT: &str = "/run/containerd/containerd.sock";

/// The default deadline of a call; the kubelet's `--runtime-request-timeout`.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_mins(2);

/// A runtime that does not report its version within this time hangs.
const GREETING: Duration = Duration::from_secs(10);

// A node with hundreds of containers answers a list with more than tonic's 4 MiB; the kubelet takes 16 MiB.
const MAX_MESSAGE: usize = 16 << 20;

/// Why a call to the runtime failed.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
#[error("rpc error: code = {code} desc = {message}")]
pub struct RuntimeError {
    /// gRPC's word for the kind of failure.
    pub code: String,
    /// The runtime's own words, or what went wrong on the way to it.
    pub message: String,
}

impl RuntimeError {
    /// Whether the thing requested does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.code == "NotFound"
    }

    /// Whether the runtime could not be reached, or did not answer.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        self.code == "Unavailable" || self.code == "DeadlineExceeded"
    }

    fn deadline(after: Duration) -> Self {
        Self {
            code: "DeadlineExceeded".to_owned(),
            message: format!("the runtime did not answer within {}s", after.as_secs_f32()),
        }
    }
}

impl From<Status> for RuntimeError {
    fn from(status: Status) -> Self {
        let code = match status.code() {
            // Go spells it with one l.
            Code::Cancelled => "Canceled".to_owned(),
            code => format!("{code:?}"),
        };
        // A broken connection has the message "transport error", and the reason in its sources.
        let mut messages = vec![status.message().to_owned()];
        let mut source = status.source();
        while let Some(cause) = source {
            let text = cause.to_string();
            if !messages.iter().any(|known| known.contains(&text)) {
                messages.push(text);
            }
            source = cause.source();
        }
        if messages.len() > 1 {
            messages.retain(|text| text != "transport error");
        }
        let message = messages.join(": ");
        let broken = status.source().is_some() && status.code() == Code::Unknown;
        Self { code: if broken { "Unavailable".to_owned() } else { code }, message }
    }
}

/// An endpoint that is not a Unix socket.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
#[error("runtime endpoint {given:?} is not a Unix socket: write it as a path or as unix:///path")]
pub struct EndpointError {
    /// What was given.
    pub given: String,
}

/// A connection to a runtime, made when first used and again when it breaks.
#[derive(Debug, Clone)]
pub struct Runtime {
    channel: Channel,
    socket: PathBuf,
    timeout: Duration,
}

type Result<T> = std::result::Result<T, RuntimeError>;

impl Runtime {
    /// A client of the runtime at `endpoint`: a path, or `unix://` and a path. Nothing is connected yet.
    pub fn new(endpoint: &str, timeout: Duration) -> std::result::Result<Self, EndpointError> {
        let socket = Self::check(endpoint)?;
        let target = socket.clone();
        // The address is never looked up: the connector below uses the socket alone.
        let channel = Endpoint::from_static("http://localhost")
            .connect_timeout(Duration::from_secs(5))
            .connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
                let target = target.clone();
                async move {
                    let stream = UnixStream::connect(&target).await.map_err(|error| {
                        std::io::Error::new(error.kind(), format!("dial unix {}: {error}", target.display()))
                    })?;
                    Ok::<_, std::io::Error>(TokioIo::new(stream))
                }
            }));
        Ok(Self { channel, socket, timeout })
    }

    /// The socket an endpoint means.
    pub fn check(endpoint: &str) -> std::result::Result<PathBuf, EndpointError> {
        let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
        if path.starts_with('/') {
            Ok(PathBuf::from(path))
        } else {
            Err(EndpointError { given: endpoint.to_owned() })
        }
    }

    /// The socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    async fn call<Q, A>(&self, path: &'static str, request: Q, timeout: Duration) -> Result<A>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let mut grpc = Grpc::new(self.channel.clone())
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE);
        let answer = async {
            grpc.ready().await.map_err(|error| {
                let mut message = error.to_string();
                let mut source = error.source();
                while let Some(cause) = source {
                    message = format!("{message}: {cause}");
                    source = cause.source();
                }
                RuntimeError { code: "Unavailable".to_owned(), message }
            })?;
            let codec = ProstCodec::<Q, A>::default();
            let answer = grpc.unary(Request::new(request), PathAndQuery::from_static(path), codec).await?;
            Ok(answer.into_inner())
        };
        let begun = tokio::time::Instant::now();
        let answer = tokio::time::timeout(timeout, answer).await;
        let microseconds = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        tracing::debug!(call = path, microseconds, "called the runtime");
        answer.unwrap_or_else(|_| Err(RuntimeError::deadline(timeout)))
    }

    /// Name and version of the runtime.
    pub async fn version(&self) -> Result<VersionResponse> {
        let request = VersionRequest { version: "0.1.0".to_owned() };
        self.call("/runtime.v1.RuntimeService/Version", request, self.timeout.min(GREETING)).await
    }

    /// Conditions and features; with `verbose`, the runtime's configuration.
    pub async fn status(&self, verbose: bool) -> Result<StatusResponse> {
        self.call("/runtime.v1.RuntimeService/Status", StatusRequest { verbose }, self.timeout).await
    }

    /// Creates and starts a sandbox.
    pub async fn run_pod_sandbox(&self, config: PodSandboxConfig, handler: &str) -> Result<String> {
        let request = RunPodSandboxRequest { config: Some(config), runtime_handler: handler.to_owned() };
        // As the kubelet does: setting up a network may take long.
        let timeout = self.timeout * 2;
        let answer: RunPodSandboxResponse =
            self.call("/runtime.v1.RuntimeService/RunPodSandbox", request, timeout).await?;
        Ok(answer.pod_sandbox_id)
    }

    /// Stops everything in a sandbox.
    pub async fn stop_pod_sandbox(&self, id: &str) -> Result<()> {
        let request = StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
        self.call::<_, Empty>("/runtime.v1.RuntimeService/StopPodSandbox", request, self.timeout).await?;
        Ok(())
    }

    /// Removes a sandbox and what is left in it.
    pub async fn remove_pod_sandbox(&self, id: &str) -> Result<()> {
        let request = RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
        self.call::<_, Empty>("/runtime.v1.RuntimeService/RemovePodSandbox", request, self.timeout).await?;
        Ok(())
    }

    /// Network addresses and state of a sandbox.
    pub async fn pod_sandbox_status(&self, id: &str) -> Result<PodSandboxStatus> {
        let request = PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: false };
        let answer: PodSandboxStatusResponse =
            self.call("/runtime.v1.RuntimeService/PodSandboxStatus", request, self.timeout).await?;
        Ok(answer.status.unwrap_or_default())
    }

    /// The sandboxes with these labels.
    pub async fn list_pod_sandboxes(&self, labels: &[(&str, &str)]) -> Result<Vec<PodSandbox>> {
        let filter = PodSandboxFilter { id: String::new(), label_selector: owned(labels) };
        let request = ListPodSandboxRequest { filter: Some(filter) };
        let answer: ListPodSandboxResponse =
            self.call("/runtime.v1.RuntimeService/ListPodSandbox", request, self.timeout).await?;
        Ok(answer.items)
    }

    /// Creates a container in a sandbox.
    pub async fn create_container(
        &self,
        sandbox: &str,
        config: ContainerConfig,
        sandbox_config: PodSandboxConfig,
    ) -> Result<String> {
        let request = CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(config),
            sandbox_config: Some(sandbox_config),
        };
        let answer: CreateContainerResponse =
            self.call("/runtime.v1.RuntimeService/CreateContainer", request, self.timeout).await?;
        Ok(answer.container_id)
    }

    /// Starts a created container.
    pub async fn start_container(&self, id: &str) -> Result<()> {
        let request = StartContainerRequest { container_id: id.to_owned() };
        self.call::<_, Empty>("/runtime.v1.RuntimeService/StartContainer", request, self.timeout).await?;
        Ok(())
    }

    /// Stops a container: politely, and after the grace period for good.
    pub async fn stop_container(&self, id: &str, grace: Duration) -> Result<()> {
        let seconds = i64::try_from(grace.as_secs()).unwrap_or(i64::MAX);
        let request = StopContainerRequest { container_id: id.to_owned(), timeout: seconds };
        let timeout = self.timeout.saturating_add(grace);
        self.call::<_, Empty>("/runtime.v1.RuntimeService/StopContainer", request, timeout).await?;
        Ok(())
    }

    /// Changes what a running container has of the node.
    pub async fn update_container(&self, id: &str, resources: LinuxContainerResources) -> Result<()> {
        let request = UpdateContainerResourcesRequest { container_id: id.to_owned(), linux: Some(resources) };
        let path = "/runtime.v1.RuntimeService/UpdateContainerResources";
        self.call::<_, Empty>(path, request, self.timeout).await?;
        Ok(())
    }

    /// Removes a container.
    pub async fn remove_container(&self, id: &str) -> Result<()> {
        let request = RemoveContainerRequest { container_id: id.to_owned() };
        self.call::<_, Empty>("/runtime.v1.RuntimeService/RemoveContainer", request, self.timeout).await?;
        Ok(())
    }

    /// The containers with these labels.
    pub async fn list_containers(&self, labels: &[(&str, &str)]) -> Result<Vec<Container>> {
        let filter = ContainerFilter { label_selector: owned(labels), ..ContainerFilter::default() };
        let request = ListContainersRequest { filter: Some(filter) };
        let answer: ListContainersResponse =
            self.call("/runtime.v1.RuntimeService/ListContainers", request, self.timeout).await?;
        Ok(answer.containers)
    }

    /// State of a container; with `verbose`, further details of the runtime, its process id among it.
    pub async fn container_status(&self, id: &str, verbose: bool) -> Result<ContainerStatusResponse> {
        let request = ContainerStatusRequest { container_id: id.to_owned(), verbose };
        self.call("/runtime.v1.RuntimeService/ContainerStatus", request, self.timeout).await
    }

    /// Runs a command in a container and waits for it.
    pub async fn exec_sync(&self, id: &str, command: &[&str], timeout: Duration) -> Result<ExecSyncResponse> {
        let request = ExecSyncRequest {
            container_id: id.to_owned(),
            cmd: command.iter().map(|&word| word.to_owned()).collect(),
            timeout: i64::try_from(timeout.as_secs().max(1)).unwrap_or(i64::MAX),
        };
        let deadline = timeout.saturating_add(Duration::from_secs(5));
        self.call("/runtime.v1.RuntimeService/ExecSync", request, deadline).await
    }

    /// The address of a stream to a command in a container.
    pub async fn exec(&self, request: ExecRequest) -> Result<String> {
        let answer: StreamResponse =
            self.call("/runtime.v1.RuntimeService/Exec", request, self.timeout).await?;
        Ok(answer.url)
    }

    /// The address of a stream to the first process of a container.
    pub async fn attach(&self, request: AttachRequest) -> Result<String> {
        let answer: StreamResponse =
            self.call("/runtime.v1.RuntimeService/Attach", request, self.timeout).await?;
        Ok(answer.url)
    }

    /// The address of a stream to ports in a sandbox's network.
    pub async fn port_forward(&self, sandbox: &str, ports: &[u16]) -> Result<String> {
        let port = ports.iter().map(|&port| i32::from(port)).collect();
        let request = PortForwardRequest { pod_sandbox_id: sandbox.to_owned(), port };
        let answer: StreamResponse =
            self.call("/runtime.v1.RuntimeService/PortForward", request, self.timeout).await?;
        Ok(answer.url)
    }

    /// The image, if it is there.
    pub async fn image_status(&self, image: &str) -> Result<Option<Image>> {
        let request = ImageStatusRequest { image: Some(image_spec(image)), verbose: false };
        let answer: ImageStatusResponse =
            self.call("/runtime.v1.ImageService/ImageStatus", request, self.timeout).await?;
        Ok(answer.image)
    }

    /// Pulls an image; there is no deadline but the runtime's own.
    pub async fn pull_image(&self, image: &str, sandbox_config: PodSandboxConfig) -> Result<String> {
        let request =
            PullImageRequest { image: Some(image_spec(image)), sandbox_config: Some(sandbox_config) };
        let timeout = Duration::from_hours(1);
        let answer: PullImageResponse =
            self.call("/runtime.v1.ImageService/PullImage", request, timeout).await?;
        Ok(answer.image_ref)
    }
}

fn image_spec(image: &str) -> ImageSpec {
    ImageSpec { image: image.to_owned(), ..ImageSpec::default() }
}

fn owned(labels: &[(&str, &str)]) -> std::collections::BTreeMap<String, String> {
    labels.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::{DEFAULT_TIMEOUT, Runtime};

    #[tokio::test]
    async fn takes_paths_and_unix_addresses_only() {
        for (endpoint, socket) in [
            ("/run/x.sock", Some("/run/x.sock")),
            ("unix:///run/x.sock", Some("/run/x.sock")),
            ("tcp://127.0.0.1:1", None),
            ("run/x.sock", None),
            ("", None),
        ] {
            let runtime = Runtime::new(endpoint, DEFAULT_TIMEOUT).ok();
            let found = runtime.as_ref().map(|runtime| runtime.socket().display().to_string());
            assert_eq!(found.as_deref(), socket, "{endpoint}");
        }
    }
}
