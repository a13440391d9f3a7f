//! The body of a request, within bounds of size and time.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

/// Why there is no body to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyError {
    /// Nothing came.
    Empty,
    /// The connection broke.
    Unreadable,
    /// As large as the limit, or larger.
    TooLarge,
    /// It did not come in time.
    TooSlow,
}

/// Reads a body. One that comes in one piece is not copied.
pub(super) async fn read(body: Incoming, limit: usize, time: Duration) -> Result<Bytes, BodyError> {
    if body.size_hint().lower() >= u64::try_from(limit).unwrap_or(u64::MAX) {
        return Err(BodyError::TooLarge);
    }
    match tokio::time::timeout(time, collect(body, limit)).await {
        Ok(read) => read,
        Err(_) => Err(BodyError::TooSlow),
    }
}

async fn collect(mut body: Incoming, limit: usize) -> Result<Bytes, BodyError> {
    let expected = usize::try_from(body.size_hint().lower()).unwrap_or(limit).min(limit);
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(frame) = body.frame().await {
        // swallowed: a frame of trailers has no data
        let Ok(data) = frame.map_err(|_| BodyError::Unreadable)?.into_data() else { continue };
        if first.is_empty() {
            first = data;
        } else {
            if rest.is_empty() {
                rest.reserve(expected.max(first.len() + data.len()));
                rest.extend_from_slice(&first);
            }
            rest.extend_from_slice(&data);
        }
        if first.len().max(rest.len()) >= limit {
            return Err(BodyError::TooLarge);
        }
    }
    let whole = if rest.is_empty() { first } else { rest.freeze() };
    if whole.is_empty() { Err(BodyError::Empty) } else { Ok(whole) }
}
