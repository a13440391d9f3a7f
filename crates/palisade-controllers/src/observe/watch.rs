//! One list and watch over the bytes of objects, for as long as it is wanted.
//!
//! The one exception to `kube::runtime::watcher` in this crate. A pod is read from the bytes of its event into the index, and no
//! more of it than counts: 6.5 us a pod, see "1,000,000 pods" in BENCHMARKS.md and `examples/rollout_measure.rs`, where kube's
//! watcher first makes an owned object of every pod. The mirrors of `workloads` read pods
//! the same way. The other kinds of the index come the same way, because the index also needs what kube's watcher does not
//! report: that a kind does not exist, and that a broken watch works again.
//!
//! Implements: Kubernetes API Concepts, "Efficient detection of changes" and "Retrieving large results sets in chunks".
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/>
//! Ended watches go on where they were; a version that is no longer known (410) begins anew; an API server that is away is
//! retried, ever more rarely; a kind that does not exist counts as one without objects, and is looked for again.

use std::{fmt::Write as _, time::Duration};

use bytes::BytesMut;
use http_body_util::BodyExt as _;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, timeout_at};

use crate::{
    api::{Api, ApiError, encoded},
    backoff::Backoff,
};

/// Objects of a page.
const PAGE: usize = 500;
/// The `timeoutSeconds` of a watch. Whatever goes wrong in silence is over then.
const WATCH_SECONDS: u64 = 290;
/// How often a kind that does not exist is looked for.
const MISSING_RETRY: Duration = Duration::from_secs(10);
/// How often in a row a kind that did exist must be missing: a server that has just started may not serve it yet.
const MISSING_FOR_SURE: u32 = 3;

/// What to list and watch.
#[derive(Debug, Clone, Default)]
pub(crate) struct Target {
    /// The path of the collection.
    pub(crate) path: String,
    /// Only these labels.
    pub(crate) label_selector: Option<String>,
    /// Only these fields.
    pub(crate) field_selector: Option<String>,
}

impl Target {
    fn query(&self) -> String {
        let mut query = String::new();
        for (key, value) in [("labelSelector", &self.label_selector), ("fieldSelector", &self.field_selector)]
        {
            if let Some(value) = value {
                let _ = write!(query, "&{key}={}", encoded(value));
            }
        }
        query
    }
}

/// An event of a list or watch. Objects are JSON.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WatchEvent<'j> {
    /// All objects are about to come.
    Begin,
    /// An object is there, or has changed.
    Present(&'j str),
    /// An object is gone.
    Gone(&'j str),
    /// All objects have come; after [`WatchEvent::Begin`] what did not come is gone.
    End,
    /// There is no such kind.
    Missing,
    /// The API server is unreachable, or rejects the request.
    Failing(&'j ApiError),
    /// It can again.
    Working,
}

#[derive(Deserialize)]
struct Page<'j> {
    #[serde(borrow, default)]
    metadata: PageMeta<'j>,
    #[serde(borrow, default)]
    items: Option<Vec<&'j RawValue>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct PageMeta<'j> {
    resource_version: std::borrow::Cow<'j, str>,
    #[serde(rename = "continue")]
    continue_token: String,
}

#[derive(Deserialize)]
struct Line<'j> {
    #[serde(rename = "type")]
    kind: std::borrow::Cow<'j, str>,
    #[serde(borrow)]
    object: &'j RawValue,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Versioned {
    metadata: Version,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Version {
    resource_version: String,
}

/// Lists and watches a collection, and never returns.
pub(crate) async fn follow(api: &Api, target: &Target, mut apply: impl FnMut(WatchEvent<'_>) + Send) {
    let mut backoff = Backoff::default();
    let (mut has_listed, mut missing) = (false, 0_u32);
    let mut version = None;
    loop {
        let (began, is_watch) = (Instant::now(), version.is_some());
        let outcome = match version.take() {
            None => list(api, target, &mut apply).await,
            Some(from) => watch(api, target, from, &mut apply).await,
        };
        match outcome {
            Ok(next) => {
                (has_listed, missing) = (true, 0);
                apply(WatchEvent::Working);
                if is_watch && began.elapsed() < Duration::from_secs(1) {
                    // A server on its way out ends watches as fast as they come.
                    sleep(backoff.next()).await;
                } else {
                    backoff.reset();
                }
                version = Some(next);
            }
            Err(Ended { error, .. }) if error.is_gone() => {
                tracing::debug!(path = target.path, "resource version expired; listing again");
            }
            Err(Ended { error, .. }) if error.is_not_found() => {
                missing += 1;
                if !has_listed || missing >= MISSING_FOR_SURE {
                    apply(WatchEvent::Missing);
                }
                sleep(if has_listed { backoff.next() } else { MISSING_RETRY }).await;
            }
            Err(Ended { error, at }) => {
                tracing::warn!(path = target.path, %error, "watch failed");
                apply(WatchEvent::Failing(&error));
                version = at;
                sleep(backoff.next()).await;
            }
        }
    }
}

/// Why a list or watch ended, and the version to go on from.
struct Ended {
    error: ApiError,
    at: Option<String>,
}

impl From<ApiError> for Ended {
    fn from(error: ApiError) -> Self {
        Self { error, at: None }
    }
}

fn unreadable(error: serde_json::Error) -> ApiError {
    ApiError::Unreachable(Box::new(kube::Error::SerdeError(error)))
}

async fn list(
    api: &Api,
    target: &Target,
    apply: &mut (impl FnMut(WatchEvent<'_>) + Send),
) -> Result<String, Ended> {
    let mut token = String::new();
    apply(WatchEvent::Begin);
    loop {
        let mut path = format!("{}?limit={PAGE}{}", target.path, target.query());
        if !token.is_empty() {
            let _ = write!(path, "&continue={}", encoded(&token));
        }
        let bytes = api.read(&path).await?;
        let page: Page<'_> = serde_json::from_slice(&bytes).map_err(unreadable)?;
        for item in page.items.into_iter().flatten() {
            apply(WatchEvent::Present(item.get()));
        }
        if page.metadata.continue_token.is_empty() {
            apply(WatchEvent::End);
            return Ok(page.metadata.resource_version.into_owned());
        }
        token = page.metadata.continue_token;
    }
}

/// Follows changes; returns the version to go on from when the server ends the watch.
async fn watch(
    api: &Api,
    target: &Target,
    mut from: String,
    apply: &mut (impl FnMut(WatchEvent<'_>) + Send),
) -> Result<String, Ended> {
    let path = format!(
        "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={}{}",
        target.path,
        encoded(&from),
        target.query()
    );
    let fail = |error: ApiError, from: &str| Ended { error, at: Some(from.to_owned()) };
    let mut body = api.open(&path).await.map_err(|error| fail(error, &from))?.into_body();
    apply(WatchEvent::Working);
    let deadline = Instant::now() + Duration::from_secs(WATCH_SECONDS + 20);
    let mut rest = BytesMut::new();
    loop {
        let frame = match timeout_at(deadline, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => return Err(fail(error.into(), &from)),
            // Ended by the server, or silent for longer than the watch was to last.
            Ok(None) | Err(_) => return Ok(from),
        };
        let Ok(data) = frame.into_data() else { continue };
        rest.extend_from_slice(&data);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line = rest.split_to(end + 1);
            let line: Line<'_> =
                serde_json::from_slice(&line).map_err(|error| fail(unreadable(error), &from))?;
            let object = line.object.get();
            match &*line.kind {
                "ERROR" => return Err(Ended { error: refusal(object), at: None }),
                kind => {
                    match kind {
                        "DELETED" => apply(WatchEvent::Gone(object)),
                        "BOOKMARK" => {}
                        _ => apply(WatchEvent::Present(object)),
                    }
                    let versioned: Versioned = serde_json::from_str(object).unwrap_or_default();
                    if !versioned.metadata.resource_version.is_empty() {
                        from = versioned.metadata.resource_version;
                    }
                }
            }
        }
    }
}

/// The error that a watch ends with.
fn refusal(object: &str) -> ApiError {
    let status: serde_json::Value = serde_json::from_str(object).unwrap_or_default();
    let text = |key: &str| status[key].as_str().unwrap_or_default().to_owned();
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(500);
    ApiError::Refused { code, reason: text("reason"), message: text("message") }
}
