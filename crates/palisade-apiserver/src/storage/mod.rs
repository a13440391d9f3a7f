//! The object store: every object as serialised JSON under (group resource, namespace/name), with one global,
//! ever-rising resourceVersion and optimistic concurrency.
//!
//! Implements: Kubernetes API Concepts, "Resource versions".
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions>
//!
//! The store has neither kinds nor verbs: it keeps bytes, the few facts that selectors need, and the log
//! that watches read. `disk.rs` makes commits durable before they become visible.

mod bucket;
pub(crate) mod compaction;
mod disk;
mod object;
mod set_aside;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use palisade_apimachinery::decode::DecodeError;
use palisade_apimachinery::{Kind, TypeError, Typed};
use serde_json::{Map, Value};
use thiserror::Error;
use tokio::sync::watch;

use crate::conversion::FormError;

pub use bucket::{Bucket, Changes, Event, EventKind, Listing, Range};
pub use disk::FORMAT;
pub(crate) use object::nullable;
pub use object::{Object, Part, RecordError};
pub use set_aside::SetAside;
pub(crate) use set_aside::id as set_aside_id;

/// Why the store could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Another process has the directory.
    #[error("data directory {path} is in use by another process")]
    Locked {
        /// The directory.
        path: String,
    },
    /// Written by a newer version.
    #[error(
        "data directory {path} has format {found}, this version reads up to {FORMAT}; use a newer version"
    )]
    NewerFormat {
        /// The directory.
        path: String,
        /// The format found there.
        found: u64,
    },
    /// Not a data directory, or a damaged one.
    #[error("data directory {path} cannot be read")]
    Unreadable {
        /// The directory.
        path: String,
        /// The error of the embedded database.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Why a write was not made.
#[derive(Debug, Error)]
pub enum CommitError {
    /// The object exists already.
    #[error("key exists")]
    Exists,
    /// The object changed, or went, since it was read.
    #[error("the object has been modified")]
    Conflict,
    /// The object cannot be read as its kind; nothing was changed.
    #[error("the object cannot be decoded: {0}")]
    Unreadable(#[from] TypeError),
    /// The object could not be read again at the next start; nothing was changed.
    #[error("the object cannot be stored: {0}")]
    Unstorable(#[from] RecordError),
    /// The object cannot be converted to the version that is stored, or back; with the latter, it is stored.
    #[error(transparent)]
    Conversion(#[from] FormError),
    /// The object is larger than upstream's storage takes; nothing was changed.
    #[error("the object is too large")]
    TooLarge,
    /// The disk refused; nothing was changed.
    #[error("storage is unavailable: {0}")]
    Unavailable(String),
}

/// Why a list or watch at a resourceVersion cannot be served.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum RevisionError {
    /// Compacted; the second number is the oldest one that could be served.
    #[error("too old resource version: {0} ({1})")]
    TooOld(u64, u64),
    /// From the future.
    #[error("Too large resource version: {0}, current: {1}")]
    TooLarge(u64, u64),
}

/// What must be true of the stored object for a write to go through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// Nothing is stored under the key.
    Absent,
    /// The object stored has this revision.
    Revision(u64),
}

/// An object on its way into the store. `apiVersion` and `kind` are left out: they depend on the request.
#[derive(Debug)]
struct Draft {
    /// The object without `apiVersion` and `kind`.
    value: Map<String, Value>,
    /// Values of the resource's selectable fields, in the order of its table entry.
    fields: Vec<String>,
    /// What takes the place of a null in the value.
    part: Option<Part>,
    /// Whose stored form is measured; without a kind, the JSON is.
    kind: Option<Arc<Kind>>,
}

impl Draft {
    fn new(object: Value, fields: Vec<String>) -> Self {
        let mut value = if let Value::Object(value) = object { value } else { Map::new() };
        value.remove("apiVersion");
        value.remove("kind");
        Self { value, fields, part: None, kind: None }
    }
}

/// One write: [`Write::store`] or [`Write::remove`]. Nothing is stored that its kind's decoder has not read.
#[derive(Debug)]
pub struct Write {
    bucket: Arc<Bucket>,
    key: String,
    expect: Expect,
    draft: Draft,
    delete: bool,
}

impl Write {
    /// A new state. `key` is `namespace/name`, or `name` for cluster-scoped objects; `fields` are the values of the
    /// resource's selectable fields, in the order of its table entry.
    #[must_use]
    pub fn store(bucket: Arc<Bucket>, key: &str, expect: Expect, object: Typed, fields: Vec<String>) -> Self {
        Self {
            bucket,
            key: key.to_owned(),
            expect,
            draft: Draft::new(object.into_value(), fields),
            delete: false,
        }
    }

    /// The same, with its size measured in the form in which upstream stores objects of the kind.
    #[must_use]
    pub fn measured_as(mut self, kind: Arc<Kind>) -> Self {
        self.draft.kind = Some(kind);
        self
    }

    /// A new state of a stored object in which `part`, taken from that object, stays as it is.
    #[must_use]
    pub fn store_around(
        bucket: Arc<Bucket>,
        stored: &Object,
        object: Typed,
        part: Part,
        fields: Vec<String>,
    ) -> Self {
        let expect = Expect::Revision(stored.revision);
        let mut write = Self::store(bucket, stored.key(), expect, object, fields);
        write.draft.part = Some(part);
        write
    }

    /// The last state of an object that goes. It was stored before, and can be removed whatever it is.
    #[must_use]
    pub fn remove(
        bucket: Arc<Bucket>,
        key: &str,
        expect: Expect,
        object: Value,
        fields: Vec<String>,
    ) -> Self {
        Self { bucket, key: key.to_owned(), expect, draft: Draft::new(object, fields), delete: true }
    }
}

/// The object store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

/// The newest revision, and a wake-up for those who follow everything.
#[derive(Debug)]
pub(crate) struct Clock {
    /// The revision of the last visible write.
    pub(crate) revision: AtomicU64,
    pub(crate) changed: watch::Sender<u64>,
    /// States before this revision have expired with time.
    pub(crate) expired: AtomicU64,
}

impl Clock {
    fn new(revision: u64) -> Arc<Self> {
        Arc::new(Self {
            revision: AtomicU64::new(revision),
            changed: watch::Sender::new(revision),
            expired: AtomicU64::new(0),
        })
    }
}

#[derive(Debug)]
struct Inner {
    buckets: RwLock<BTreeMap<Arc<str>, Arc<Bucket>>>,
    clock: Arc<Clock>,
    /// Serialises writers of the in-memory form: revisions become visible in order.
    commit: Mutex<()>,
    /// The revision at which this process began to keep logs.
    began: u64,
    disk: Option<disk::Writer>,
    /// Records that could not be read when the store was opened, by their id.
    set_aside: RwLock<BTreeMap<String, Arc<SetAside>>>,
}

/// Whether a record can be read as an object of its resource: its place such as `pods` or `deployments.apps`, and its
/// JSON. The store has no kinds; the caller that opens it may.
pub type Readable<'a> = dyn Fn(&str, &[u8]) -> Result<(), DecodeError> + Sync + 'a;

impl Default for Store {
    fn default() -> Self {
        Self::in_memory()
    }
}

impl Store {
    /// A store that forgets everything with the process.
    #[must_use]
    pub fn in_memory() -> Self {
        Self {
            inner: Arc::new(Inner {
                buckets: RwLock::default(),
                clock: Clock::new(1),
                commit: Mutex::default(),
                began: 0,
                disk: None,
                set_aside: RwLock::default(),
            }),
        }
    }

    /// A store in a directory: every commit is on disk before it is answered or seen.
    pub fn open(directory: &Path) -> Result<Self, OpenError> {
        Self::open_checked(directory, &|_, _| Ok(()))
    }

    /// The same; records that are not `readable` are set aside as those are that cannot be read at all.
    pub fn open_checked(directory: &Path, readable: &Readable<'_>) -> Result<Self, OpenError> {
        let opened = disk::open(directory, readable)?;
        let clock = Clock::new(opened.revision);
        let mut buckets: BTreeMap<Arc<str>, Arc<Bucket>> = BTreeMap::new();
        for (name, objects) in opened.objects {
            let name: Arc<str> = name.into();
            let bucket = Bucket::new(name.clone(), clock.clone());
            bucket.load(objects, opened.revision);
            buckets.insert(name, Arc::new(bucket));
        }
        let disk = disk::Writer::start(opened.database, opened.lock, clock.clone());
        Ok(Self {
            inner: Arc::new(Inner {
                buckets: RwLock::new(buckets),
                clock,
                commit: Mutex::default(),
                began: opened.revision,
                disk: Some(disk),
                set_aside: RwLock::new(
                    opened
                        .set_aside
                        .into_iter()
                        .map(|record| (record.id.clone(), Arc::new(record)))
                        .collect(),
                ),
            }),
        })
    }

    /// The revision of the newest visible write.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.inner.clock.revision.load(Ordering::Acquire)
    }

    /// Lets the states before a revision expire, and forgets the changes up to it. Lists at an older revision fail from then on; so do
    /// watches that would need a forgotten change.
    pub fn compact(&self, revision: u64) {
        self.inner.clock.expired.fetch_max(revision.min(self.revision()), Ordering::AcqRel);
        for bucket in self.buckets() {
            bucket.compact(revision);
        }
    }

    /// Wakes on every change of anything.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.inner.clock.changed.subscribe()
    }

    /// The place of a group resource such as `pods` or `deployments.apps`, made on first use.
    #[must_use]
    pub fn bucket(&self, group_resource: &str) -> Arc<Bucket> {
        if let Some(found) = read(&self.inner.buckets).get(group_resource) {
            return found.clone();
        }
        let mut buckets = write(&self.inner.buckets);
        let name: Arc<str> = group_resource.into();
        buckets
            .entry(name.clone())
            .or_insert_with(|| {
                let bucket = Bucket::new(name, self.inner.clock.clone());
                bucket.load(Vec::new(), self.inner.began);
                Arc::new(bucket)
            })
            .clone()
    }

    /// Every place that was ever used.
    #[must_use]
    pub fn buckets(&self) -> Vec<Arc<Bucket>> {
        read(&self.inner.buckets).values().cloned().collect()
    }

    /// Records of the data directory that cannot be read, sorted by id. They are kept until they are discarded.
    #[must_use]
    pub fn set_aside(&self) -> Vec<Arc<SetAside>> {
        read(&self.inner.set_aside).values().cloned().collect()
    }

    /// Removes a record that was set aside. False if there is none of this id.
    pub async fn discard(&self, id: &str) -> Result<bool, CommitError> {
        let Some(disk) = &self.inner.disk else { return Ok(false) };
        if !read(&self.inner.set_aside).contains_key(id) {
            return Ok(false);
        }
        disk.discard(id.to_owned()).await?;
        Ok(write(&self.inner.set_aside).remove(id).is_some())
    }

    /// Lets revisions go on above another store's: objects that come from there have none that is still to come here.
    pub fn advance(&self, revision: u64) {
        let _order = lock(&self.inner.commit);
        self.inner.clock.revision.fetch_max(revision, Ordering::AcqRel);
    }

    /// Makes one write, and notifies the watchers. With a data directory it is durable when this returns.
    pub async fn commit(&self, write: Write) -> Result<Arc<Object>, CommitError> {
        match &self.inner.disk {
            Some(disk) => disk.commit(write).await,
            None => self.commit_in_memory(write),
        }
    }

    fn commit_in_memory(&self, write: Write) -> Result<Arc<Object>, CommitError> {
        let _order = lock(&self.inner.commit);
        let previous = write.bucket.get(&write.key);
        check(write.expect, previous.as_deref())?;
        let revision = self.revision().saturating_add(1);
        let object = Object::build(&write.key, revision, write.draft, write.delete)?;
        let object = Arc::new(object);
        write.bucket.publish(object.clone(), previous, write.delete, revision);
        Ok(object)
    }
}

/// Whether a precondition holds.
fn check(expect: Expect, stored: Option<&Object>) -> Result<(), CommitError> {
    match (expect, stored) {
        (Expect::Absent, None) => Ok(()),
        (Expect::Absent, Some(_)) => Err(CommitError::Exists),
        (Expect::Revision(wanted), Some(object)) if object.revision == wanted => Ok(()),
        (Expect::Revision(_), _) => Err(CommitError::Conflict),
    }
}

/// A poisoned lock means that a thread died while holding it; the maps behind are replaced in single steps
/// and stay whole, so going on is right.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// See [`lock`].
pub(crate) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// See [`lock`].
pub(crate) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
