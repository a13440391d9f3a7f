//! Probes and hooks of a container, as the API has them.
//!
//! Field names, meaning and defaults: Kubernetes API, core/v1 `Probe` and `Lifecycle`. Probing is
//! [`crate::runner::probes`]'s.

use std::time::Duration;

use serde::Deserialize;

use crate::pod::nullable;

/// A probe of a container.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct Probe {
    pub exec: Option<ExecAction>,
    pub http_get: Option<HttpGet>,
    pub tcp_socket: Option<TcpSocket>,
    pub grpc: Option<GrpcAction>,
    pub initial_delay_seconds: Option<u32>,
    pub period_seconds: Option<u32>,
    pub timeout_seconds: Option<u32>,
    pub success_threshold: Option<u32>,
    pub failure_threshold: Option<u32>,
    pub termination_grace_period_seconds: Option<u32>,
}

impl Probe {
    /// How long after the start the first probe.
    #[must_use]
    pub fn initial_delay(&self) -> Duration {
        Duration::from_secs(self.initial_delay_seconds.unwrap_or_default().into())
    }

    /// How often it is probed.
    #[must_use]
    pub fn period(&self) -> Duration {
        Duration::from_secs(self.period_seconds.filter(|&seconds| seconds > 0).unwrap_or(10).into())
    }

    /// How long an answer may take.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds.filter(|&seconds| seconds > 0).unwrap_or(1).into())
    }

    /// How many good answers in a row count.
    #[must_use]
    pub fn successes(&self) -> u32 {
        self.success_threshold.unwrap_or(1).max(1)
    }

    /// How many bad answers in a row count.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failure_threshold.filter(|&times| times > 0).unwrap_or(3)
    }
}

/// `lifecycle` of a container.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct Lifecycle {
    pub post_start: Option<Handler>,
    pub pre_stop: Option<Handler>,
}

/// A hook of a container.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct Handler {
    pub exec: Option<ExecAction>,
    pub http_get: Option<HttpGet>,
    pub sleep: Option<SleepAction>,
}

/// A command to run in the container.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct ExecAction {
    #[serde(deserialize_with = "nullable")]
    pub command: Vec<String>,
}

/// A page to request.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct HttpGet {
    #[serde(deserialize_with = "nullable")]
    pub path: String,
    pub port: PortRef,
    #[serde(deserialize_with = "nullable")]
    pub host: String,
    #[serde(deserialize_with = "nullable")]
    pub scheme: String,
    #[serde(deserialize_with = "nullable")]
    pub http_headers: Vec<HttpHeader>,
}

/// A header of a request.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct HttpHeader {
    pub name: String,
    #[serde(deserialize_with = "nullable")]
    pub value: String,
}

/// A port to connect to.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct TcpSocket {
    pub port: PortRef,
    #[serde(deserialize_with = "nullable")]
    pub host: String,
}

/// A gRPC server whose health is checked.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct GrpcAction {
    pub port: i32,
    #[serde(deserialize_with = "nullable")]
    pub service: String,
}

/// A while to wait.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct SleepAction {
    pub seconds: i64,
}

/// A port by its number or by its name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
#[allow(missing_docs, reason = "the names are the API's own")]
pub enum PortRef {
    Number(i32),
    Name(String),
}

impl Default for PortRef {
    fn default() -> Self {
        Self::Number(0)
    }
}
