//! The objects of one resource, sorted, and the log of their changes that watches and older lists are served from.
//!
//! Fan-out costs a watcher one cursor: the log is shared, an event is serialised once, and a watcher that falls
//! behind the log gets an error instead of memory.

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
    /// An event that is not in the log, such as one for an object that already exists.
    #[must_use]
    pub fn new(kind: EventKind, object: Arc<Object>) -> Self {
        Self { kind, revision: object.revision, object, previous: None, line: OnceLock::new() }
    }

    /// The same event about the object in another form.
    pub(crate) fn in_form(&self, object: Arc<Object>, previous: Option<Arc<Object>>) -> Self {
        Self { kind: self.kind, revision: self.revision, object, previous, line: OnceLock::new() }
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

    /// What comes before the part of a key that distinguishes the objects of this range. A continue token is relative to
    /// it, so that no token leads out of the range it is used with.
    #[must_use]
    pub fn prefix(&self) -> String {
        match self {
            Self::All => String::new(),
            Self::Namespace(namespace) => format!("{namespace}/"),
            Self::One(one) => one.clone(),
        }
    }

    /// The objects of this range from a key on. Whatever the key is, the answer is a part of the range: a start behind
    /// the end is nothing, where `BTreeMap::range` would panic.
    fn select<'a>(
        &self,
        objects: &'a BTreeMap<Box<str>, Arc<Object>>,
        from: Option<&str>,
    ) -> impl Iterator<Item = (&'a Box<str>, &'a Arc<Object>)> + use<'a> {
        // '0' follows '/' in ASCII.
        let (first, end) = match self {
            Self::All => (String::new(), None),
            Self::Namespace(namespace) => (format!("{namespace}/"), Some(format!("{namespace}0"))),
            Self::One(one) => (one.clone(), Some(format!("{one}\0"))),
        };
        let start = match from {
            Some(from) if from > first.as_str() => from,
            _ => first.as_str(),
        };
        objects
            .range::<str, _>((Bound::Included(start), Bound::Unbounded))
            .take_while(move |(key, _)| end.as_deref().is_none_or(|end| &***key < end))
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
    /// The newest revision that the log no longer contains.
    compacted: u64,
}

/// Part of what happened.
#[derive(Debug)]
pub struct Changes {
    /// In order.
    pub events: Vec<Arc<Event>>,
    /// The revision up to which they are complete.
    pub upto: u64,
    /// Whether there are more already.
    pub more: bool,
}

impl State {
    fn forget_oldest(&mut self) {
        if let Some(oldest) = self.log.pop_front() {
            self.log_bytes = self.log_bytes.saturating_sub(oldest.object.json.len());
            self.compacted = oldest.revision;
        }
    }

    /// The objects of a range from a key on, as they were at a revision that the log reaches back to, until they have
    /// so many bytes; then also the key to go on with.
    fn read_at(
        &self,
        range: &Range,
        from: Option<&str>,
        at: u64,
        bytes: usize,
    ) -> (Vec<Arc<Object>>, Option<String>) {
        let newer = self.log.iter().rev().take_while(|event| event.revision > at);
        let newer = newer.filter(|event| {
            let key = event.object.key();
            range.covers(key) && from.is_none_or(|from| key >= from)
        });
        // What a changed object was at the revision: the state before the first change after it.
        let undo: BTreeMap<&str, Option<&Arc<Object>>> =
            newer.map(|event| (event.object.key(), event.previous.as_ref())).collect();
        let now = range.select(&self.objects, from).map(|(key, object)| (&**key, object));
        let mut now = now.filter(|(key, _)| !undo.contains_key(key)).peekable();
        let mut then = undo.iter().filter_map(|(key, object)| object.map(|object| (*key, object))).peekable();
        let (mut objects, mut size) = (Vec::new(), 0_usize);
        loop {
            let next = match (now.peek(), then.peek()) {
                (Some((key, _)), Some((older, _))) if older < key => then.next(),
                (Some(_), _) => now.next(),
                (None, _) => then.next(),
            };
            let Some((key, object)) = next else { return (objects, None) };
            if size >= bytes {
                return (objects, Some(key.to_owned()));
            }
            size = size.saturating_add(object.json.len());
            objects.push(object.clone());
        }
    }
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
        let objects = range.select(&state.objects, None).map(|(_, o)| o.clone()).collect();
        Listing { objects, revision: self.clock.revision.load(Ordering::Acquire) }
    }

    /// The objects of a range from a key on, as they are now.
    #[must_use]
    pub fn list_from(&self, range: &Range, from: &str) -> Listing {
        let state = read(&self.state);
        let objects = range.select(&state.objects, Some(from)).map(|(_, o)| o.clone()).collect();
        Listing { objects, revision: self.clock.revision.load(Ordering::Acquire) }
    }

    /// The objects of a range from a key on, as they were at a revision.
    pub fn list_at(&self, range: &Range, from: Option<&str>, at: u64) -> Result<Listing, RevisionError> {
        let state = read(&self.state);
        let current = self.clock.revision.load(Ordering::Acquire);
        if at > current {
            return Err(RevisionError::TooLarge(at, current));
        }
        let oldest = state.compacted.max(self.clock.expired.load(Ordering::Acquire));
        if at < oldest {
            return Err(RevisionError::TooOld(at, oldest));
        }
        let (objects, next) = state.read_at(range, from, at, usize::MAX);
        debug_assert!(next.is_none(), "a list is complete");
        Ok(Listing { objects, revision: at })
    }

    /// Some objects of a range from a key on, as they were at a revision: about `bytes` of them, and the key to go on
    /// with. A slow reader holds no more than these.
    pub fn chunk_at(
        &self,
        range: &Range,
        from: Option<&str>,
        at: u64,
        bytes: usize,
    ) -> Result<(Vec<Arc<Object>>, Option<String>), RevisionError> {
        let state = read(&self.state);
        if at < state.compacted {
            return Err(RevisionError::TooOld(at, state.compacted));
        }
        Ok(state.read_at(range, from, at, bytes))
    }

    /// The changes of a range after a revision, at most `limit` of them, and the revision up to which they are complete.
    pub fn changes(
        &self,
        range: &Range,
        after: u64,
        limit: usize,
    ) -> Result<(Vec<Arc<Event>>, u64), RevisionError> {
        self.changes_within(range, after, limit, usize::MAX).map(|changes| (changes.events, changes.upto))
    }

    /// The same, of no more than about `bytes`.
    pub fn changes_within(
        &self,
        range: &Range,
        after: u64,
        limit: usize,
        bytes: usize,
    ) -> Result<Changes, RevisionError> {
        let state = read(&self.state);
        if after < state.compacted {
            return Err(RevisionError::TooOld(after, state.compacted));
        }
        let start = state.log.partition_point(|event| event.revision <= after);
        let upto = self.clock.revision.load(Ordering::Acquire).max(after);
        let mut changes = Changes { events: Vec::new(), upto, more: false };
        let mut size = 0_usize;
        for event in state.log.range(start..) {
            if range.covers(event.object.key()) {
                if changes.events.len() == limit || size >= bytes {
                    changes.upto = changes.events.last().map_or(after, |e| e.revision);
                    changes.more = true;
                    break;
                }
                size = size.saturating_add(event.object.json.len());
                changes.events.push(event.clone());
            }
        }
        Ok(changes)
    }

    /// Whether the log still contains everything after a revision.
    pub fn reaches_back_to(&self, revision: u64) -> Result<(), RevisionError> {
        let compacted = read(&self.state).compacted;
        if revision < compacted { Err(RevisionError::TooOld(revision, compacted)) } else { Ok(()) }
    }

    /// Forgets the changes up to a revision.
    pub(super) fn compact(&self, revision: u64) {
        let mut state = write(&self.state);
        while state.log.front().is_some_and(|event| event.revision <= revision) {
            state.forget_oldest();
        }
        // The memory of a burst goes with it.
        if state.log.len() < state.log.capacity() / 4 {
            state.log.shrink_to_fit();
        }
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
        while !state.log.is_empty() && (state.log.len() > LOG_EVENTS || state.log_bytes > LOG_BYTES) {
            state.forget_oldest();
        }
        self.clock.revision.store(revision, Ordering::Release);
        drop(state);
        self.changed.send_replace(revision);
        self.clock.changed.send_replace(revision);
    }
}
