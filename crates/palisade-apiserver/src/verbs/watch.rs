//! Watches: the changes of a collection as a stream.
//!
//! Implements: Kubernetes API Concepts, "Efficient detection of changes", "Watch bookmarks" and "Streaming lists".
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes>

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use palisade_apimachinery::Status;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, sleep_until};

use crate::api::{Api, Call};
use crate::conversion;
use crate::http::body::{Body, Piece};
use crate::http::negotiate::{Encoding, Form};
use crate::http::{Query, Reply, protobuf, reply};
use crate::meta;
use crate::metrics::WatchGuard;
use crate::options::{At, ListOptions};
use crate::registry::Entry;
use crate::render;
use crate::selection::Selection;
use crate::storage::{Event, EventKind, Object, Range, RevisionError};
use crate::verbs::list;

/// A watch without `timeoutSeconds` lasts between this and twice this.
const TIMEOUT: u64 = 1800;
/// How often a quiet watcher gets a bookmark.
const BOOKMARKS: Duration = Duration::from_mins(1);
/// Bytes that may wait for a client before it holds up its own watch (and nothing else). A larger piece waits alone.
const MOST_UNSENT: u32 = 128 << 10;
/// Lines are sent together up to this size.
const PIECE: usize = 32 << 10;
/// What a piece takes at least, so that their number is bounded as well.
const SMALLEST: u32 = 1 << 10;
/// Bytes of objects or changes that are taken from the store at a time.
const CHUNK: usize = 256 << 10;
/// A client that takes nothing for so long while there is something to send has its watch ended, as upstream does.
const STALLED: Duration = Duration::from_secs(30);
/// Events taken from the log at a time.
const BATCH: usize = 256;

/// Answers with a stream of events.
pub fn watch(call: &Call<'_>, entry: &Arc<Entry>) -> Result<Reply, Box<Status>> {
    let output = render::output(call, entry)?;
    let options = ListOptions::parse(call.query, true, call.api.version)?;
    let selection = Selection::parse(&entry.kind, call.query)?;
    let range = list::range(call, entry, &selection);
    // swallowed: a negative timeout is none, as upstream has it
    let timeout = match options.timeout_seconds.and_then(|s| u64::try_from(s).ok()) {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds.min(TIMEOUT * 48)),
        // Spread, so that clients which came together do not all come back together.
        _ => Duration::from_secs(TIMEOUT + meta::unix_now().unsigned_abs() % TIMEOUT),
    };
    let (sender, receiver) = mpsc::unbounded_channel();
    let watcher = Watcher {
        api: call.api.clone(),
        entry: entry.clone(),
        range,
        selection,
        form: output.form,
        in_protobuf: output.encoding == Encoding::Protobuf,
        query: call.query.clone(),
        columns: true,
        bookmarks: options.bookmarks,
        deadline: Instant::now() + timeout,
        stop: call.api.stop.clone(),
        permits: Arc::new(Semaphore::new(MOST_UNSENT as usize)),
        sender,
        _guard: call.api.metrics.watch(),
    };
    tokio::spawn(watcher.run(options));
    let in_protobuf = output.encoding == Encoding::Protobuf;
    let media_type = if in_protobuf { protobuf::WATCH_MEDIA_TYPE } else { reply::JSON };
    Ok(Reply::bytes(200, media_type, Body::Watch(receiver)))
}

/// Why a watch ended.
enum Ended {
    /// The client has gone, the server stops, or the time is over.
    Gone,
    /// The client takes nothing.
    Stalled,
    /// The client must start again.
    Refused(Box<Status>),
}

struct Watcher {
    api: Arc<Api>,
    entry: Arc<Entry>,
    range: Range,
    selection: Selection,
    form: Form,
    in_protobuf: bool,
    query: Query,
    /// Whether the next table still has to name its columns.
    columns: bool,
    bookmarks: bool,
    deadline: Instant,
    stop: watch::Receiver<bool>,
    /// What may still wait for the client.
    permits: Arc<Semaphore>,
    sender: mpsc::UnboundedSender<Piece>,
    _guard: WatchGuard,
}

impl Watcher {
    async fn run(mut self, options: ListOptions) {
        match self.follow(&options).await {
            Err(Ended::Refused(status)) => {
                // If the client has gone as well, the status has no reader.
                let _ = self.send(self.event("ERROR", &status.to_value())).await;
            }
            Err(Ended::Stalled) => {
                let kind = &self.entry.kind;
                tracing::warn!(resource = %kind.resource_name(), "watch ended: the client takes nothing");
                self.api.metrics.terminated_watch(&kind.group, &kind.plural);
            }
            Ok(()) | Err(Ended::Gone) => {}
        }
    }

    async fn follow(&mut self, options: &ListOptions) -> Result<(), Ended> {
        let deadline = self.deadline;
        let mut changed = self.entry.bucket.subscribe();
        let mut stop = self.stop.clone();
        let mut seen = self.begin(options).await?;
        let mut next_bookmark = Instant::now() + BOOKMARKS;
        loop {
            changed.mark_unchanged();
            seen = self.send_changes(seen).await?;
            let wake = if self.bookmarks { next_bookmark.min(deadline) } else { deadline };
            tokio::select! {
                biased;
                more = changed.changed() => if more.is_err() { return Ok(()) },
                () = self.sender.closed() => return Err(Ended::Gone),
                () = stopped(&mut stop) => return Ok(()),
                () = sleep_until(wake) => {
                    if self.bookmarks {
                        // The log is read before the bookmark is sent: nothing at or before it is still to come.
                        seen = self.send_changes(seen).await?;
                        self.send(self.bookmark(seen, false)).await?;
                    }
                    if Instant::now() >= deadline {
                        return Ok(());
                    }
                    next_bookmark = Instant::now() + BOOKMARKS;
                }
            }
        }
    }

    /// Sends the initial events; everything after the revision returned is still to be sent.
    async fn begin(&mut self, options: &ListOptions) -> Result<u64, Ended> {
        let too_large = |at, now| Ended::Refused(list::revision_error(&RevisionError::TooLarge(at, now)));
        let wants_state = match (options.send_initial_events, options.at) {
            (Some(requested), _) => requested,
            (None, At::Latest | At::Any) => true,
            (None, At::Exact(_) | At::NotOlderThan(_)) => false,
        };
        if !wants_state {
            return match options.at {
                At::Latest | At::Any => Ok(self.api.store.revision()),
                At::Exact(at) | At::NotOlderThan(at) => {
                    let reached = self.entry.bucket.reaches_back_to(at);
                    reached.map(|()| at).map_err(|e| Ended::Refused(list::revision_error(&e)))
                }
            };
        }
        // The state at this moment, in chunks: a slow client does not keep objects alive that have been replaced since.
        // If the log no longer reaches back to the moment, the client must list again.
        let revision = self.api.store.revision();
        if let At::NotOlderThan(at) = options.at
            && revision < at
        {
            return Err(too_large(at, revision));
        }
        let mut from: Option<String> = None;
        loop {
            let chunk = self.entry.bucket.chunk_at(&self.range, from.as_deref(), revision, CHUNK);
            let (objects, next) = chunk.map_err(|e| Ended::Refused(list::revision_error(&e)))?;
            let mut batch = Batch::default();
            let objects = conversion::present_all(&self.api, &self.entry, objects).await;
            for object in objects.map_err(|error| Ended::Refused(error.into_status()))? {
                if self.selection.matches(&object) {
                    batch.push(self.line(&Event::new(EventKind::Added, object)));
                    self.send_full(&mut batch).await?;
                }
            }
            self.send(batch.take()).await?;
            if next.is_none() {
                break;
            }
            from = next;
        }
        if options.send_initial_events == Some(true) && options.bookmarks {
            self.send(self.bookmark(revision, true)).await?;
        }
        Ok(revision)
    }

    /// Sends the changes after a revision; returns the revision up to which all were sent.
    async fn send_changes(&mut self, mut seen: u64) -> Result<u64, Ended> {
        loop {
            let changes = self.entry.bucket.changes_within(&self.range, seen, BATCH, CHUNK);
            let changes = changes.map_err(|e| Ended::Refused(list::revision_error(&e)))?;
            let mut batch = Batch::default();
            for event in &changes.events {
                let event = &self.presented(event).await?;
                if let Some(line) = self.selected(event) {
                    batch.push(line);
                    self.send_full(&mut batch).await?;
                }
            }
            self.send(batch.take()).await?;
            seen = changes.upto;
            if !changes.more {
                return Ok(seen);
            }
        }
    }

    /// The event about the object in the version that is watched.
    async fn presented(&self, event: &Arc<Event>) -> Result<Arc<Event>, Ended> {
        if self.entry.versions.is_none() && !self.entry.kind.is_stored_otherwise() {
            return Ok(event.clone());
        }
        // What the object was before matters only to selectors.
        let previous = event.previous.clone().filter(|_| !self.selection.is_empty());
        let objects = std::iter::once(event.object.clone()).chain(previous).collect();
        let presented = conversion::present_all(&self.api, &self.entry, objects).await;
        let mut presented = presented.map_err(|error| Ended::Refused(error.into_status()))?.into_iter();
        let object = presented.next().unwrap_or_else(|| event.object.clone());
        let previous = presented.next();
        if Arc::ptr_eq(&object, &event.object) && self.selection.is_empty() {
            return Ok(event.clone());
        }
        Ok(Arc::new(event.in_form(object, previous)))
    }

    /// The event as this watcher sees it: an object that begins to match appears, one that ceases to match goes.
    fn selected(&mut self, event: &Arc<Event>) -> Option<Bytes> {
        if self.selection.is_empty() {
            return Some(self.line(event));
        }
        let before = event.previous.as_ref().is_some_and(|object| self.selection.matches(object));
        let after = event.kind != EventKind::Deleted && self.selection.matches(&event.object);
        match (before, after) {
            (true, true) => Some(self.line(event)),
            (false, true) => Some(self.line(&Event::new(EventKind::Added, event.object.clone()))),
            (true, false) if event.kind == EventKind::Deleted => Some(self.line(event)),
            (true, false) => {
                let previous = event.previous.as_ref()?;
                Some(self.render(EventKind::Deleted, &self.at_revision(previous, event.revision)))
            }
            (false, false) => None,
        }
    }

    fn at_revision(&self, object: &Object, revision: u64) -> Value {
        let mut object = self.entry.typed(object.parse());
        meta::edit_metadata(&mut object, |metadata| {
            metadata.insert("resourceVersion".to_owned(), revision.to_string().into());
        });
        object
    }

    fn line(&mut self, event: &Event) -> Bytes {
        if self.form == Form::Object && !self.in_protobuf {
            return event.line(&self.entry.prefix);
        }
        let object = self.entry.typed(event.object.parse());
        self.render(event.kind, &object)
    }

    fn render(&mut self, kind: EventKind, object: &Value) -> Bytes {
        let document = match self.form {
            Form::Object => object.clone(),
            Form::Metadata(version) => render::partial(object, version),
            Form::Table(version) => {
                let revision = json!({"resourceVersion": meta::meta_text(object, "resourceVersion")});
                let columns = std::mem::take(&mut self.columns);
                let object = std::slice::from_ref(object);
                render::table_of(&self.entry, object, &revision, version, &self.query, columns)
            }
        };
        self.event(kind.as_str(), &document)
    }

    /// An event as it is sent.
    fn event(&self, kind: &str, object: &Value) -> Bytes {
        if !self.in_protobuf {
            return event_line(kind, object);
        }
        let encoded = protobuf::encode(object).or_else(|error| {
            tracing::error!(%error, "event cannot be encoded");
            protobuf::encode(&Status::internal(error.to_string()).to_value())
        });
        // A `Status` has a protobuf form; without one the client reads an event without an object.
        protobuf::encode_event(kind, &encoded.unwrap_or_default())
    }

    /// An event with the revision that the stream has reached.
    fn bookmark(&self, revision: u64, initial_end: bool) -> Bytes {
        let mut object = self.entry.kind.zero().clone();
        if let Value::Object(object) = &mut object {
            object.insert("apiVersion".to_owned(), self.entry.kind.api_version().into());
            object.insert("kind".to_owned(), self.entry.kind.kind.as_str().into());
        }
        meta::edit_metadata(&mut object, |metadata| {
            metadata.insert("resourceVersion".to_owned(), revision.to_string().into());
            if initial_end {
                metadata.insert("annotations".to_owned(), json!({"k8s.io/initial-events-end": "true"}));
            }
        });
        let document = match self.form {
            Form::Metadata(version) => render::partial(&object, version),
            Form::Table(version) => {
                let list = json!({"resourceVersion": revision.to_string()});
                let objects = std::slice::from_ref(&object);
                render::table_of(&self.entry, objects, &list, version, &self.query, false)
            }
            Form::Object => object,
        };
        self.event("BOOKMARK", &document)
    }

    async fn send_full(&mut self, batch: &mut Batch) -> Result<(), Ended> {
        if batch.is_full() { self.send(batch.take()).await } else { Ok(()) }
    }

    /// Sends a piece when enough of the earlier ones are sent. Whatever the client does, no more than [`MOST_UNSENT`] waits for it.
    async fn send(&mut self, bytes: Bytes) -> Result<(), Ended> {
        if bytes.is_empty() {
            return Ok(());
        }
        let wanted = u32::try_from(bytes.len()).unwrap_or(MOST_UNSENT).clamp(SMALLEST, MOST_UNSENT);
        let permits = match self.permits.clone().try_acquire_many_owned(wanted) {
            Ok(permits) => permits,
            // swallowed: no permits are free: the next line waits for it
            Err(_) => self.wait_for_permits(wanted).await?,
        };
        self.sender.send(Piece { bytes, permits }).map_err(|_| Ended::Gone)
    }

    async fn wait_for_permits(&mut self, wanted: u32) -> Result<tokio::sync::OwnedSemaphorePermit, Ended> {
        let stalled = Instant::now() + STALLED;
        tokio::select! {
            biased;
            permits = self.permits.clone().acquire_many_owned(wanted) => permits.map_err(|_| Ended::Gone),
            () = self.sender.closed() => Err(Ended::Gone),
            () = stopped(&mut self.stop) => Err(Ended::Gone),
            () = sleep_until(self.deadline.min(stalled)) => {
                Err(if stalled <= self.deadline { Ended::Stalled } else { Ended::Gone })
            }
        }
    }
}

/// Returns when the server stops.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the server has gone altogether, or that there is none, only a router in this process.
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn event_line(kind: &str, object: &Value) -> Bytes {
    let mut line = serde_json::to_vec(&json!({"type": kind, "object": object})).unwrap_or_default();
    line.push(b'\n');
    line.into()
}

/// Lines on their way to one piece. A single line is passed on without copying.
#[derive(Default)]
struct Batch {
    single: Option<Bytes>,
    many: BytesMut,
}

impl Batch {
    fn push(&mut self, line: Bytes) {
        if self.many.is_empty() && self.single.is_none() {
            self.single = Some(line);
            return;
        }
        if let Some(first) = self.single.take() {
            self.many.extend_from_slice(&first);
        }
        self.many.extend_from_slice(&line);
    }

    fn is_full(&self) -> bool {
        self.many.len() > PIECE || self.single.as_ref().is_some_and(|line| line.len() > PIECE)
    }

    fn take(&mut self) -> Bytes {
        match self.single.take() {
            Some(line) => line,
            None => self.many.split().freeze(),
        }
    }
}
