//! Reads the objects of a range: selected, in pages, at a revision.
//!
//! Implements: Kubernetes API Concepts, "Retrieving large results sets in chunks" and "Semantics for get and list".
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#retrieving-large-results-sets-in-chunks>

use std::sync::Arc;

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD, URL_SAFE_NO_PAD};
use palisade_apimachinery::Status;
use palisade_apimachinery::status::Cause;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::api::{Api, Call};
use crate::conversion::{self, FormError};
use crate::http::Reply;
use crate::options::{At, ListOptions};
use crate::registry::Entry;
use crate::render;
use crate::selection::Selection;
use crate::storage::{Listing, Object, Range, RevisionError};

/// Go does not look at the bits left over at the end.
const GO_BASE64: GeneralPurpose =
    GeneralPurpose::new(&URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

/// The version of our continue tokens, upstream's.
const TOKEN_VERSION: &str = "meta.k8s.io/v1";

#[derive(Debug, Serialize, Deserialize)]
struct Token {
    #[serde(default)]
    v: String,
    #[serde(default)]
    rv: i64,
    #[serde(default)]
    start: String,
}

/// The objects a request is about.
#[must_use]
pub fn range(call: &Call<'_>, entry: &Entry, selection: &Selection) -> Range {
    let namespace = if entry.kind.namespaced { call.info.namespace.as_str() } else { "" };
    // The old way to watch one object has its name in the path.
    let named = call.info.named.then_some(call.info.name.as_str());
    match (named.or_else(|| selection.name()), entry.kind.namespaced, namespace) {
        (Some(name), false, _) => Range::One(name.to_owned()),
        (Some(name), true, namespace) if !namespace.is_empty() => Range::One(entry.key(namespace, name)),
        (_, true, namespace) if !namespace.is_empty() => Range::Namespace(namespace.to_owned()),
        _ => Range::All,
    }
}

/// Answers with a list.
pub async fn list(call: &Call<'_>, entry: &Arc<Entry>) -> Result<Reply, Box<Status>> {
    let output = render::output(call, entry)?;
    let options = ListOptions::parse(call.query, false, call.api.version)?;
    let selection = Selection::parse(&entry.kind, call.query)?;
    let page = page(call.api, entry, &range(call, entry, &selection), &selection, &options).await?;
    let mut metadata = Map::new();
    metadata.insert("resourceVersion".to_owned(), page.revision.to_string().into());
    if let Some(token) = page.continue_token {
        metadata.insert("continue".to_owned(), token.into());
        if let Some(remaining) = page.remaining {
            metadata.insert("remainingItemCount".to_owned(), remaining.into());
        }
    }
    Ok(render::list(entry, page.objects, &Value::Object(metadata), output, call.query))
}

/// Part of a list.
#[derive(Debug)]
pub struct Page {
    /// Its objects.
    pub objects: Vec<Arc<Object>>,
    /// The revision it is true for.
    pub revision: u64,
    /// Where the next page begins.
    pub continue_token: Option<String>,
    /// How many objects are left, where that is known.
    pub remaining: Option<usize>,
}

/// Reads a page.
pub async fn page(
    api: &Api,
    entry: &Entry,
    range: &Range,
    selection: &Selection,
    options: &ListOptions,
) -> Result<Page, Box<Status>> {
    let Listing { objects, revision } = match (&options.continue_token, options.at) {
        (Some(token), _) => {
            let Position { from, at } = decode_token(token, &range.prefix())?;
            match at {
                None => entry.bucket.list_from(range, &from),
                Some(at) => {
                    let listing = entry.bucket.list_at(range, Some(&from), at);
                    listing.map_err(|error| continue_error(&error, range, &from))?
                }
            }
        }
        (None, At::Latest | At::Any) => entry.bucket.list(range),
        (None, At::Exact(at)) => entry.bucket.list_at(range, None, at).map_err(|e| revision_error(&e))?,
        (None, At::NotOlderThan(at)) => {
            let listing = entry.bucket.list(range);
            if listing.revision < at {
                return Err(revision_error(&RevisionError::TooLarge(at, listing.revision)));
            }
            listing
        }
    };
    // Answers from upstream's cache are not cut.
    let limit = if options.at == At::Any && options.continue_token.is_none() { 0 } else { options.limit };
    let presented =
        async |objects| conversion::present_all(api, entry, objects).await.map_err(FormError::into_status);
    if limit == 0 {
        let objects = presented(objects).await?;
        let objects = if selection.is_empty() {
            objects
        } else {
            objects.into_iter().filter(|o| selection.matches(o)).collect()
        };
        return Ok(Page { objects, revision, continue_token: None, remaining: None });
    }
    let total = objects.len();
    let mut taken = Vec::with_capacity(limit.min(total));
    let mut seen = 0;
    let mut rest = objects.into_iter().peekable();
    while taken.len() < limit && rest.peek().is_some() {
        // No more than what is missing: what is read beyond the page would be read again for the next one.
        let next: Vec<Arc<Object>> = rest.by_ref().take(limit - taken.len()).collect();
        seen += next.len();
        taken.extend(presented(next).await?.into_iter().filter(|object| selection.matches(object)));
    }
    let last = taken.last().map(|o: &Arc<Object>| o.key().to_owned());
    let continue_token = match (rest.peek(), last) {
        (Some(_), Some(last)) => Some(encode_token(range, &format!("{last}\0"), Some(revision))),
        _ => None,
    };
    let remaining = (selection.is_empty() && continue_token.is_some()).then_some(total.saturating_sub(seen));
    Ok(Page { objects: taken, revision, continue_token, remaining })
}

/// Where a list goes on.
struct Position {
    /// The first key that may be in it.
    from: String,
    /// The revision of the pages before; without one the list goes on with what is there now.
    at: Option<u64>,
}

/// A token for a key of a range. The key is given relative to the range, as upstream does.
fn encode_token(range: &Range, from: &str, at: Option<u64>) -> String {
    let prefix = range.prefix();
    let token = Token {
        v: TOKEN_VERSION.to_owned(),
        rv: at.map_or(-1, |revision| i64::try_from(revision).unwrap_or(i64::MAX)),
        start: from.strip_prefix(&prefix).unwrap_or(from).to_owned(),
    };
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).unwrap_or_default())
}

/// Reads a token, which a client may have made up: the key it names is below the prefix in any case.
fn decode_token(token: &str, prefix: &str) -> Result<Position, Box<Status>> {
    let bad =
        |why: &str| Status::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
    let bytes = GO_BASE64.decode(token).map_err(|error| {
        let at = match error {
            base64::DecodeError::InvalidByte(at, _) => at,
            _ => token.len().saturating_sub(1),
        };
        bad(&format!("illegal base64 data at input byte {at}"))
    })?;
    let read: Token = serde_json::from_slice(&bytes)
        .map_err(|error| bad(&palisade_apimachinery::decode::syntax_error(&bytes, &error.to_string())))?;
    if read.v != TOKEN_VERSION {
        let version = palisade_base::go::quote(&read.v);
        return Err(bad(&format!("server does not recognize this encoded version {version}")));
    }
    if read.rv == 0 {
        return Err(bad(&format!("incorrect encoded start resourceVersion (version {TOKEN_VERSION})")));
    }
    if read.start.is_empty() {
        return Err(bad(&format!("encoded start key empty (version {TOKEN_VERSION})")));
    }
    let key = read.start.strip_prefix('/').unwrap_or(&read.start);
    if !is_clean(key) {
        return Err(bad(&read.start));
    }
    // Minus one is upstream's word for "now"; etcd reads every other negative revision in the same way.
    // swallowed: a negative revision means now
    Ok(Position { from: format!("{prefix}{key}"), at: u64::try_from(read.rv).ok() })
}

/// Whether Go's `path.Clean` would leave `/<key>` as it is: no empty segment, none of `.` and `..`.
fn is_clean(key: &str) -> bool {
    key.is_empty() || key.split('/').all(|segment| !matches!(segment, "" | "." | ".."))
}

/// A list that has expired can go on with what is there now.
fn continue_error(error: &RevisionError, range: &Range, from: &str) -> Box<Status> {
    match error {
        RevisionError::TooOld(..) => {
            let mut status = Status::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new \
                 list without the continue parameter, or use the continue token in this response to retrieve the \
                 remainder of the results. Continuing with the provided token results in an inconsistent list - objects \
                 that were created, modified, or deleted between the time the first chunk was returned and now may show \
                 up in the list.",
            );
            status.continue_token = encode_token(range, from, None);
            status
        }
        RevisionError::TooLarge(..) => revision_error(error),
    }
}

/// The error for a revision that cannot be served.
#[must_use]
pub fn revision_error(error: &RevisionError) -> Box<Status> {
    match error {
        RevisionError::TooOld(..) => Status::expired(error.to_string()),
        RevisionError::TooLarge(..) => {
            let mut status = Status::timeout("", 1);
            status.message = format!("Timeout: {error}");
            if let Some(details) = &mut status.details {
                details.causes.push(Cause {
                    reason: "ResourceVersionTooLarge".into(),
                    message: "Too large resource version".to_owned(),
                    field: String::new(),
                });
            }
            status
        }
    }
}
