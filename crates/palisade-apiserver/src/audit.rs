//! The audit log: one `audit.k8s.io/v1` event a line, at the level of metadata.
//!
//! Implements: Auditing. <https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/>

use std::fs::File;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc;

use http::request::Parts;
use serde_json::{Map, Value, json};

use crate::auth::UserInfo;
use crate::http::{Reply, RequestInfo};
use crate::meta;

/// Events waiting to be written; beyond, requests are held up rather than go unrecorded.
const QUEUE: usize = 4096;

/// The log.
#[derive(Debug)]
pub struct AuditLog {
    lines: mpsc::SyncSender<Vec<u8>>,
}

/// What is recorded about a request.
#[derive(Debug)]
pub struct Record<'a> {
    /// The audit id.
    pub id: &'a str,
    /// Method, path, headers.
    pub parts: &'a Parts,
    /// What was requested.
    pub info: &'a RequestInfo,
    /// The user.
    pub user: Option<&'a UserInfo>,
    /// As whom.
    pub impersonated: Option<&'a UserInfo>,
    /// From where.
    pub address: Option<SocketAddr>,
    /// What was answered.
    pub reply: &'a Reply,
    /// Why it was allowed.
    pub reason: &'a str,
}

/// The stage of a request that an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The answer has begun, and goes on: a connection into a container.
    ResponseStarted,
    /// The request is over.
    ResponseComplete,
}

impl Stage {
    const fn as_str(self) -> &'static str {
        match self {
            Self::ResponseStarted => "ResponseStarted",
            Self::ResponseComplete => "ResponseComplete",
        }
    }
}

/// The event about the end of a request that goes on after its answer.
#[derive(Debug)]
pub struct LaterEvent(Value);

impl LaterEvent {
    /// Of a request whose answer has begun.
    #[must_use]
    pub fn of(record: &Record<'_>) -> Self {
        Self(event(record, Stage::ResponseComplete))
    }
}

impl AuditLog {
    /// Appends to a file.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let file = File::options().append(true).create(true).mode(0o600).open(path)?;
        let (lines, waiting) = mpsc::sync_channel::<Vec<u8>>(QUEUE);
        std::thread::Builder::new().name("audit".to_owned()).spawn(move || {
            let mut file = std::io::BufWriter::new(file);
            while let Ok(line) = waiting.recv() {
                let mut written = file.write_all(&line);
                while let Ok(line) = waiting.try_recv() {
                    written = written.and_then(|()| file.write_all(&line));
                }
                if let Err(error) = written.and_then(|()| file.flush()) {
                    tracing::error!(%error, "cannot write the audit log");
                }
            }
        })?;
        Ok(Self { lines })
    }

    /// Records a request that was answered.
    pub fn record(&self, record: &Record<'_>, stage: Stage) {
        self.write(&event(record, stage));
    }

    /// Records the end of a request that went on after its answer.
    pub fn record_end(&self, LaterEvent(mut event): LaterEvent) {
        if let Some(fields) = event.as_object_mut() {
            let now = meta::format_micro_time(jiff::Timestamp::now());
            fields.insert("stageTimestamp".to_owned(), now.into());
        }
        self.write(&event);
    }

    fn write(&self, event: &Value) {
        let mut line = serde_json::to_vec(event).unwrap_or_default();
        line.push(b'\n');
        // The writer only ends with the process.
        let _ = self.lines.send(line);
    }
}

fn event(record: &Record<'_>, stage: Stage) -> Value {
    let Record { info, parts, reply, .. } = record;
    let now = meta::format_micro_time(jiff::Timestamp::now());
    let mut event = json!({
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": record.id,
        "stage": stage.as_str(),
        "requestURI": parts.uri.path_and_query().map_or("", |p| p.as_str()),
        "verb": info.verb,
        "user": record.user.map_or_else(|| json!({}), UserInfo::to_value),
        "requestReceivedTimestamp": now,
        "stageTimestamp": now,
    });
    let Value::Object(fields) = &mut event else { return event };
    let mut set = |key: &str, value: Value| fields.insert(key.to_owned(), value);
    if let Some(user) = record.impersonated {
        set("impersonatedUser", user.to_value());
    }
    if let Some(address) = record.address {
        set("sourceIPs", json!([address.ip().to_string()]));
    }
    if let Some(agent) = parts.headers.get(http::header::USER_AGENT).and_then(|a| a.to_str().ok()) {
        set("userAgent", agent.into());
    }
    if info.is_resource {
        let mut reference = Map::new();
        for (key, text) in [
            ("resource", &info.resource),
            ("namespace", &info.namespace),
            ("name", &info.name),
            ("apiGroup", &info.group),
            ("apiVersion", &info.version),
            ("subresource", &info.subresource),
        ] {
            if !text.is_empty() {
                reference.insert(key.to_owned(), text.as_str().into());
            }
        }
        set("objectRef", Value::Object(reference));
    }
    let mut status = json!({"metadata": {}, "code": reply.code});
    if let (Some(failure), Value::Object(status)) = (&reply.status, &mut status) {
        status.insert("status".to_owned(), "Failure".into());
        status.insert("message".to_owned(), failure.message.as_str().into());
        status.insert("reason".to_owned(), (&*failure.reason).into());
    }
    set("responseStatus", status);
    let mut annotations = Map::new();
    if record.user.is_some() {
        let decision = if reply.code == 403 && reply.audit.is_empty() { "forbid" } else { "allow" };
        annotations.insert("authorization.k8s.io/decision".to_owned(), decision.into());
        annotations.insert("authorization.k8s.io/reason".to_owned(), record.reason.into());
    }
    for (key, value) in &reply.audit {
        // The first value of a key stays.
        annotations.entry(key.as_str()).or_insert_with(|| value.as_str().into());
    }
    set("annotations", Value::Object(annotations));
    event
}
