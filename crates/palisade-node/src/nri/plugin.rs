//! A plugin on the socket of a runtime.
//!
//! The connection is made again whenever it breaks; until then the runtime creates containers without the plugin, which is for the
//! caller to notice. Calls are answered one after the other, in the order of the runtime.

use std::{
    io,
    path::Path,
    time::{Duration, Instant},
};

use prost::Message;
use thiserror::Error;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
};

use super::{
    frame::{Decoder, Frame, FrameError, PLUGIN_CONNECTION, REQUEST, RESPONSE, RUNTIME_CONNECTION},
    proto::{
        ConfigureRequest, ConfigureResponse, ContainerAdjustment, CreateContainerRequest,
        CreateContainerResponse, LinuxContainerAdjustment, LinuxSeccomp, RegisterPluginRequest, Request,
        Response, Status, SynchronizeRequest, SynchronizeResponse,
    },
};

/// Where runtimes have their socket unless they are configured otherwise.
pub const DEFAULT_SOCKET: &str = "/var/run/nri/nri.sock";

const RUNTIME_SERVICE: &str = "nri.pkg.api.v1alpha1.Runtime";
const PLUGIN_SERVICE: &str = "nri.pkg.api.v1alpha1.Plugin";
const NAME: &str = "palisade";
/// Plugins are called in this order: after those that adjust what a container runs.
const INDEX: &str = "90";
/// `CREATE_CONTAINER` is the fourth event.
const CREATE_CONTAINER: i32 = 1 << 3;
/// How long a runtime may take to accept the registration.
const REGISTERED_WITHIN: Duration = Duration::from_secs(10);
const UNIMPLEMENTED: i32 = 12;
const INVALID_ARGUMENT: i32 = 3;

/// Why a connection ended.
#[derive(Debug, Error)]
pub enum PluginError {
    /// The socket is not there, or broke.
    #[error(transparent)]
    Socket(#[from] io::Error),
    /// The runtime closed it.
    #[error("the runtime closed the connection")]
    Closed,
    /// The runtime does not respond.
    #[error("the runtime does not respond to the registration")]
    Silent,
    /// Not the protocol.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// Not the protocol.
    #[error("a message cannot be decoded: {0}")]
    Decode(#[from] prost::DecodeError),
    /// The runtime does not accept the plugin.
    #[error("the runtime rejects the registration: {0}")]
    Rejected(String),
}

/// What a plugin does.
pub trait Adjuster: Send + Sync {
    /// The plugin is registered with this runtime.
    fn registered(&self, runtime: &str, version: &str);

    /// The seccomp policy that a container gets in place of its own; none leaves it as it is.
    fn seccomp_policy(&self, request: &CreateContainerRequest) -> Option<LinuxSeccomp>;

    /// A container was answered in this time.
    fn answered(&self, took: Duration);
}

/// Serves one connection until it ends.
pub async fn serve(socket: &Path, adjuster: &dyn Adjuster) -> PluginError {
    match serve_connection(socket, adjuster).await {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

async fn serve_connection(
    socket: &Path,
    adjuster: &dyn Adjuster,
) -> Result<std::convert::Infallible, PluginError> {
    let mut stream = UnixStream::connect(socket).await?;
    let register = RegisterPluginRequest { plugin_name: NAME.to_owned(), plugin_idx: INDEX.to_owned() };
    let request = Request {
        service: RUNTIME_SERVICE.to_owned(),
        method: "RegisterPlugin".to_owned(),
        payload: register.encode_to_vec(),
        timeout_nano: i64::try_from(REGISTERED_WITHIN.as_nanos()).unwrap_or(i64::MAX),
    };
    let frame =
        Frame { connection: RUNTIME_CONNECTION, stream: 1, kind: REQUEST, data: request.encode_to_vec() };
    stream.write_all(&frame.encode()?).await?;
    let deadline = tokio::time::Instant::now() + REGISTERED_WITHIN;
    let mut is_registered = false;
    let mut decoder = Decoder::default();
    let mut buffer = vec![0_u8; 8192];
    loop {
        let read = stream.read(&mut buffer);
        let count = if is_registered {
            read.await?
        } else {
            tokio::time::timeout_at(deadline, read).await.map_err(|_| PluginError::Silent)??
        };
        let bytes = buffer.get(..count).filter(|bytes| !bytes.is_empty()).ok_or(PluginError::Closed)?;
        decoder.push(bytes)?;
        while let Some(frame) = decoder.next_frame()? {
            match (frame.connection, frame.kind) {
                (RUNTIME_CONNECTION, RESPONSE) => {
                    let response = Response::decode(frame.data.as_slice())?;
                    match response.status {
                        Some(status) if status.code != 0 => {
                            return Err(PluginError::Rejected(status.message));
                        }
                        _ => is_registered = true,
                    }
                }
                (PLUGIN_CONNECTION, REQUEST) => {
                    let response = answer(&Request::decode(frame.data.as_slice())?, adjuster);
                    let data = response.encode_to_vec();
                    let answer = Frame { kind: RESPONSE, data, ..frame };
                    stream.write_all(&answer.encode()?).await?;
                }
                _ => {}
            }
        }
    }
}

fn answer(request: &Request, adjuster: &dyn Adjuster) -> Response {
    if request.service != PLUGIN_SERVICE {
        return failed(UNIMPLEMENTED, format!("unknown service {}", request.service));
    }
    let payload = request.payload.as_slice();
    let answered = match request.method.as_str() {
        "Configure" => ConfigureRequest::decode(payload).map(|request| {
            adjuster.registered(&request.runtime_name, &request.runtime_version);
            ConfigureResponse { events: CREATE_CONTAINER }.encode_to_vec()
        }),
        // The containers that run are found out by what the kernel enforces on them.
        "Synchronize" => SynchronizeRequest::decode(payload)
            .map(|request| SynchronizeResponse { more: request.more }.encode_to_vec()),
        "CreateContainer" => {
            let begun = Instant::now();
            CreateContainerRequest::decode(payload).map(|request| {
                let policy = adjuster.seccomp_policy(&request);
                let linux = policy.map(|policy| LinuxContainerAdjustment { seccomp_policy: Some(policy) });
                let adjust = linux.map(|linux| ContainerAdjustment { linux: Some(linux) });
                let response = CreateContainerResponse { adjust }.encode_to_vec();
                adjuster.answered(begun.elapsed());
                response
            })
        }
        "Shutdown" | "StateChange" => Ok(Vec::new()),
        other => return failed(UNIMPLEMENTED, format!("method {other} is not subscribed")),
    };
    match answered {
        Ok(payload) => Response { status: None, payload },
        Err(error) => failed(INVALID_ARGUMENT, format!("cannot decode {}: {error}", request.method)),
    }
}

fn failed(code: i32, message: String) -> Response {
    Response { status: Some(Status { code, message }), payload: Vec::new() }
}
