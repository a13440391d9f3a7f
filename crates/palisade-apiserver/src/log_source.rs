//! Where the logs of pods come from: a node, if one runs in this process.
//!
//! A port, so that this crate depends on neither files nor runtimes. The options are those of the pod's `log` subresource
//! (core/v1 `PodLogOptions`), read and checked by `subresources/log.rs`.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;
use thiserror::Error;
use tokio::sync::mpsc;

/// What of which log is wanted.
#[derive(Debug, Clone, Default)]
pub struct LogRequest {
    /// The pod, as stored: its status names the run.
    pub pod: Value,
    /// One of its containers.
    pub container: String,
    /// Wait for more until the container stops.
    pub follow: bool,
    /// Of the run before the current one.
    pub previous: bool,
    /// With the time of every line.
    pub timestamps: bool,
    /// Nothing older.
    pub since: Option<Timestamp>,
    /// The last lines only.
    pub tail_lines: Option<usize>,
    /// No more than this.
    pub limit_bytes: Option<u64>,
}

/// Why a node does not open a log, in the node's own words: what it can report is its own affair.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct LogError(pub String);

/// The pieces of a log as they come, or the error of the node.
pub type LogAnswer<'a> = Pin<Box<dyn Future<Output = Result<mpsc::Receiver<Bytes>, LogError>> + Send + 'a>>;

/// A node, or several, whose logs can be read.
pub trait LogSource: Send + Sync {
    /// Whether this source has the logs of a node.
    fn serves(&self, node: &str) -> bool;

    /// Opens a log; the error is the node's sentence, which becomes a 400.
    fn open(&self, request: LogRequest) -> LogAnswer<'_>;
}
