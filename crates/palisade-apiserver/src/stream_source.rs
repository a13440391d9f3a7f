//! Where streams into containers lead: a container runtime, if a node runs in this process.
//!
//! A port, so that this crate does not depend on a runtime. The node answers with the address of its runtime's streaming
//! server, as the kubelet's `GetExec`, `GetAttach` and `GetPortForward` do; who may have a stream was decided before.

use std::future::Future;
use std::pin::Pin;

use http::Uri;
use serde_json::Value;
use thiserror::Error;

/// The streams of a command or of a container's first process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Streams {
    /// From the client.
    pub stdin: bool,
    /// To the client.
    pub stdout: bool,
    /// To the client, apart from the output.
    pub stderr: bool,
    /// Through a terminal, which has no standard error of its own.
    pub tty: bool,
}

/// What a stream is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamTarget {
    /// A command in a container.
    Exec {
        /// The container.
        container: String,
        /// The command and its arguments.
        command: Vec<String>,
        /// Its streams.
        streams: Streams,
    },
    /// The first process of a container.
    Attach {
        /// The container.
        container: String,
        /// Its streams.
        streams: Streams,
    },
    /// Ports in the pod's network.
    PortForward {
        /// The ports, where the client names them before it opens streams.
        ports: Vec<u16>,
    },
}

/// A stream that is wanted.
#[derive(Debug, Clone)]
pub struct StreamRequest {
    /// The pod, as stored.
    pub pod: Value,
    /// What for.
    pub target: StreamTarget,
}

/// Where a stream is, and which parts of it the runtime expects.
#[derive(Debug, Clone)]
pub struct StreamAddress {
    /// An `http` address. It is a secret: whoever has it has the stream.
    pub uri: Uri,
    /// As the runtime was given them.
    pub streams: Streams,
}

/// Why there is no stream, as the kubelet reports it.
#[derive(Debug, Error)]
#[error("{message}")]
pub struct StreamError {
    /// The HTTP status.
    pub code: u16,
    /// The reason.
    pub message: String,
}

/// The address, or the error of the node.
pub type StreamAnswer<'a> = Pin<Box<dyn Future<Output = Result<StreamAddress, StreamError>> + Send + 'a>>;

/// A node, or several, into whose containers streams lead.
pub trait StreamSource: Send + Sync {
    /// Whether this source has the containers of a node.
    fn serves(&self, node: &str) -> bool;

    /// Prepares a stream.
    fn open(&self, request: StreamRequest) -> StreamAnswer<'_>;
}
