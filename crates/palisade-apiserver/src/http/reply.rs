//! An answer on its way out: code, content type, body, warnings, and what the audit log records.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use palisade_apimachinery::Status;
use serde::Serialize;

use super::Body;
use super::warning::Warnings;
use crate::streaming::Session;

/// What a handler answers.
#[derive(Debug)]
pub struct Reply {
    /// HTTP status code.
    pub code: u16,
    /// Media type; empty for an answer that has no body.
    pub content_type: &'static str,
    /// Body.
    pub body: Body,
    /// Warnings for the person at the other end.
    pub warnings: Warnings,
    /// Annotations for the audit log.
    pub audit: Vec<(String, String)>,
    /// More headers.
    pub headers: Vec<(header::HeaderName, HeaderValue)>,
    /// The `Status` behind an error, for the audit log.
    pub status: Option<Box<Status>>,
    /// What becomes of the connection after a 101.
    pub session: Option<Session>,
}

/// The media type of nearly everything.
pub const JSON: &str = "application/json";

impl Reply {
    /// Bytes of a type.
    #[must_use]
    pub fn bytes(code: u16, content_type: &'static str, body: impl Into<Body>) -> Self {
        Self {
            code,
            content_type,
            body: body.into(),
            warnings: Warnings::default(),
            audit: Vec::new(),
            headers: Vec::new(),
            status: None,
            session: None,
        }
    }

    /// A JSON document.
    #[must_use]
    pub fn json(code: u16, value: &impl Serialize) -> Self {
        let mut body = serde_json::to_vec(value).unwrap_or_default();
        body.push(b'\n');
        Self::bytes(code, JSON, body)
    }

    /// Plain text.
    #[must_use]
    pub fn text(code: u16, text: impl Into<String>) -> Self {
        Self::bytes(code, "text/plain; charset=utf-8", Bytes::from(text.into()))
    }

    /// An error.
    #[must_use]
    pub fn error(status: Box<Status>) -> Self {
        let mut reply = Self::json(status.code, &*status);
        if let Some(seconds) = status.details.as_ref().map(|d| d.retry_after_seconds).filter(|s| *s > 0) {
            reply.headers.push((header::RETRY_AFTER, HeaderValue::from(seconds)));
        }
        reply.status = Some(status);
        reply
    }

    /// With a header.
    #[must_use]
    pub fn with_header(mut self, name: header::HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// The response.
    #[must_use]
    pub fn into_response(self, audit_id: &str) -> Response<Body> {
        let mut response = Response::new(self.body);
        *response.status_mut() = StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        if !self.content_type.is_empty() {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        }
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        if let Ok(id) = HeaderValue::from_str(audit_id) {
            headers.insert("audit-id", id);
        }
        let mut written = Vec::with_capacity(self.headers.len());
        for (name, value) in self.headers {
            // The first value of a name replaces a default, the next ones stand beside it.
            if written.contains(&name) {
                headers.append(name, value);
            } else {
                headers.insert(name.clone(), value);
                written.push(name);
            }
        }
        self.warnings.write(headers);
        response
    }
}

impl From<Box<Status>> for Reply {
    fn from(status: Box<Status>) -> Self {
        Self::error(status)
    }
}

impl Reply {}
