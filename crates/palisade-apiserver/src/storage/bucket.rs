//! The objects of one resource, sorted, and the log of their changes that watches and older lists are served from.
//!
//! Fan-out costs a watcher one cursor: the log is shared, an event is serialised once, and a watcher that falls
//! behind the log is told so instead of being given memory.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, RwLock};

use bytes::Bytes;
use tokio::sync::watch;

use super::{Clock, Object, RevisionError, read, write};

/// Changes kept for watches and for lists at an older revision.
const LOG_EVENTS: usize = 16_384;
/// Bytes of objects kept alive by the log.
const LOG_BYTES: usize = 64 << 20;

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// It was not there before.
    Added,
    /// It changed.
    Modified,
    /// It went.
    Deleted,
}

impl EventKind {
    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One change.
#[derive(Debug)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// When.
    pub revision: u64,
    /// The object after the change; the last state of a deleted one.
    pub object: Arc<Object>,
    /// The object before.
    pub previous: Option<Arc<Object>>,
    /// The event as sent to plain watchers, made by the first of them.
    line: OnceLock<(Box<str>, Bytes)>,
}

impl Event {
    /// An event that is not in the log, such as one that tells what already exists.
    #[must_use]
    pub fn new(kind: EventKind, object: Arc<Object>) -> Self {
        Self { kind, revision: object.revision, object, previous: None, line: OnceLock::new() }
    }

    /// The event as a line of a watch stream. `prefix` is the start of the object up to and including its
    /// `apiVersion` and `kind`, ending in a comma.
    #[must_use]
    pub fn line(&self, prefix: &str) -> Bytes {
        let (made_for, line) =
            self.line.get_or_init(|| (prefix.into(), render_line(self.kind, prefix, &self.object.json)));
        if **made_for == *prefix { line.clone() } else { render_line(self.kind, prefix, &self.object.json) }
    }
}

/// `{"type":"ADDED","object":{…}}` and a line feed.
pub(crate) fn render_line(kind: EventKind, prefix: &str, json: &[u8]) -> Bytes {
    let body = json.get(1..).unwrap_or_default();
    let mut line = Vec::with_capacity(prefix.len() + body.len() + 40);
    line.extend_from_slice(br#"{"type":""#);
    line.extend_from_slice(kind.as_str().as_bytes());
    line.extend_from_slice(br#"","object":"#);
    line.extend_from_slice(prefix.as_bytes());
    line.extend_from_slice(body);
    line.extend_from_slice(b"}\n");
    line.into()
}

/// Which keys a list or watch covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Range {
    /// Every object.
    All,
    /// The objects of a namespace.
    Namespace(String),
    /// One object, by its key.
    One(String),
}

impl Range {
    /// Whether a key is covered.
    #[must_use]
    pub fn covers(&self, key: &str) -> bool {
        match self {
            Self::All => true,
            Self::Namespace(namespace) => {
                key.strip_prefix(namespace.as_str()).is_some_and(|rest| rest.starts_with('/'))
            }
            Self::One(one) => key == one,
        }
    }

    fn bounds(&self, after: Option<&str>) -> (Bound<Box<str>>, Bound<Box<str>>) {
        let (low, high): (Bound<Box<str>>, Bound<Box<str>>) = match self {
            Self::All => (Bound::Unbounded, Bound::Unbounded),
            // '0' follows '/' in ASCII.
            Self::Namespace(namespace) => (
                Bound::Included(format!("{namespace}/").into()),
                Bound::Excluded(format!("{namespace}0").into()),
            ),
            Self::One(one) => (Bound::Included(one.as_str().into()), Bound::Included(one.as_str().into())),
        };
        match (after, &low) {
            (Some(after), Bound::Included(first)) if after < &**first => (low, high),
            (Some(after), _) => (Bound::Excluded(after.into()), high),
            (None, _) => (low, high),
        }
    }
}

/// A consistent reading of a range.
#[derive(Debug)]
pub struct Listing {
    /// The objects in key order.
    pub objects: Vec<Arc<Object>>,
    /// The revision the reading is true for.
    pub revision: u64,
}

/// The objects of one group resource.
#[derive(Debug)]
pub struct Bucket {
    name: Arc<str>,
    state: RwLock<State>,
    clock: Arc<Clock>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<Box<str>, Arc<Object>>,
    log: VecDeque<Arc<Event>>,
    log_bytes: usize,
    /// The newest revision the log no longer tells about.
    compacted: u64,
}

impl Bucket {
    pub(super) fn new(name: Arc<str>, clock: Arc<Clock>) -> Self {
        Self { name, state: RwLock::default(), clock, changed: watch::Sender::new(0) }
    }

    /// Fills a new bucket. Changes before `revision` cannot be watched.
    pub(super) fn load(&self, objects: Vec<Object>, revision: u64) {
        let mut state = write(&self.state);
        state.objects = objects.into_iter().map(|o| (o.key().into(), Arc::new(o))).collect();
        state.compacted = revision;
    }

    /// The group resource, such as `deployments.apps`.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The object under a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Arc<Object>> {
        read(&self.state).objects.get(key).cloned()
    }

    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        read(&self.state).objects.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The newest revision at which something changed here.
    #[must_use]
    pub fn changed_at(&self) -> u64 {
        *self.changed.borrow()
    }

    /// The objects of a range as they are now.
    #[must_use]
    pub fn list(&self, range: &Range) -> Listing {
        let state = read(&self.state);
        let objects = state.objects.range(range.bounds(None)).map(|(_, o)| o.clone()).collect();
        Listing { objects, revision: self.clock.revision.load(Ordering::Acquire) }
    }

    /// The objects of a range after a key, as they were at a revision.
    pub fn list_at(&self, range: &Range, after: Option<&str>, at: u64) -> Result<Listing, RevisionError> {
        let state = read(&self.state);
        let current = self.clock.revision.load(Ordering::Acquire);
        if at > current {
            return Err(RevisionError::TooLarge(at, current));
        }
        if at < state.compacted {
            return Err(RevisionError::TooOld(at, state.compacted));
        }
        let bounds = range.bounds(after);
        let now = state.objects.range(bounds);
        let newer = state.log.iter().rev().take_while(|event| event.revision > at);
        let mut undo = newer
            .filter(|e| range.covers(e.object.key()) && after.is_none_or(|after| e.object.key() > after))
            .peekable();
        if undo.peek().is_none() {
            return Ok(Listing { objects: now.map(|(_, o)| o.clone()).collect(), revision: at });
        }
        let mut then: BTreeMap<&str, &Arc<Object>> = now.map(|(k, o)| (&**k, o)).collect();
        for event in undo {
            match &event.previous {
                Some(previous) => then.insert(event.object.key(), previous),
                None => then.remove(event.object.key()),
            };
        }
        Ok(Listing { objects: then.into_values().cloned().collect(), revision: at })
    }

    /// The changes of a range after a revision, at most `limit` of them, and the revision up to which they are complete.
    pub fn changes(
        &self,
        range: &Range,
        after: u64,
        limit: usize,
    ) -> Result<(Vec<Arc<Event>>, u64), RevisionError> {
        let state = read(&self.state);
        if after < state.compacted {
            return Err(RevisionError::TooOld(after, state.compacted));
        }
        let start = state.log.partition_point(|event| event.revision <= after);
        let mut upto = self.clock.revision.load(Ordering::Acquire).max(after);
        let mut found = Vec::new();
        for event in state.log.range(start..) {
            if range.covers(event.object.key()) {
                if found.len() == limit {
                    upto = found.last().map_or(after, |e: &Arc<Event>| e.revision);
                    break;
                }
                found.push(event.clone());
            }
        }
        Ok((found, upto))
    }

    /// Whether the log still tells everything after a revision.
    pub fn reaches_back_to(&self, revision: u64) -> Result<(), RevisionError> {
        let compacted = read(&self.state).compacted;
        if revision < compacted { Err(RevisionError::TooOld(revision, compacted)) } else { Ok(()) }
    }

    /// Wakes on every change.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Makes a write visible: the object, the event, and the revision, in one step.
    pub(super) fn publish(
        &self,
        object: Arc<Object>,
        previous: Option<Arc<Object>>,
        delete: bool,
        revision: u64,
    ) {
        let mut state = write(&self.state);
        let kind = match (&previous, delete) {
            (_, true) => EventKind::Deleted,
            (None, false) => EventKind::Added,
            (Some(_), false) => EventKind::Modified,
        };
        if delete {
            state.objects.remove(object.key());
        } else {
            state.objects.insert(object.key().into(), object.clone());
        }
        let event = Event { kind, revision, object, previous, line: OnceLock::new() };
        state.log_bytes = state.log_bytes.saturating_add(event.object.json.len());
        state.log.push_back(Arc::new(event));
        while state.log.len() > LOG_EVENTS || state.log_bytes > LOG_BYTES {
            let Some(oldest) = state.log.pop_front() else { break };
            state.log_bytes = state.log_bytes.saturating_sub(oldest.object.json.len());
            state.compacted = oldest.revision;
        }
        self.clock.revision.store(revision, Ordering::Release);
        drop(state);
        self.changed.send_replace(revision);
        self.clock.changed.send_replace(revision);
    }
}
