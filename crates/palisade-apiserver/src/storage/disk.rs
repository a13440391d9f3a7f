//! Durable commits through an embedded database, many writes to one sync.
//!
//! A single thread takes whatever writes are waiting, checks their preconditions, commits them in one
//! transaction, and only then makes them visible. So no reader sees a revision that a crash could take back,
//! and none is used twice.
//!
//! A record that cannot be read is moved to a table of its own when the database is opened: the server starts without
//! it, and a later write under its key does not replace it.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;

use bytes::Bytes;
use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition, TableError};
use tokio::sync::oneshot;

use crate::private_file;

use super::{Clock, CommitError, Object, OpenError, Readable, RecordError, SetAside, Write, check};

/// The format this version writes. A newer one is refused, an older one would be converted on opening.
pub const FORMAT: u64 = 1;

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const OBJECTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("objects");
/// Records that cannot be read, by their id.
const SET_ASIDE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("set_aside");
/// Writes taken into one transaction at most.
const BATCH: usize = 512;
/// Neither a resource nor a name can contain it.
const SEPARATOR: char = '\0';

pub(super) struct Opened {
    pub(super) database: Database,
    /// Held as long as the database is open.
    pub(super) lock: File,
    pub(super) objects: BTreeMap<String, Vec<Object>>,
    pub(super) revision: u64,
    pub(super) set_aside: Vec<SetAside>,
}

/// Opens or makes the database in a directory, and reads all of it.
pub(super) fn open(directory: &Path, readable: &Readable<'_>) -> Result<Opened, OpenError> {
    let path = directory.display().to_string();
    let unreadable = |source: Box<dyn std::error::Error + Send + Sync>| OpenError::Unreadable {
        path: path.clone(),
        source,
    };
    std::fs::create_dir_all(directory).map_err(|e| unreadable(e.into()))?;
    restrict_directory(directory).map_err(|e| unreadable(e.into()))?;
    let lock = private_file::open(&directory.join("lock")).map_err(|e| unreadable(e.into()))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(OpenError::Locked { path }),
        Err(TryLockError::Error(error)) => return Err(unreadable(error.into())),
    }
    let file = directory.join("objects.redb");
    if !file.exists() {
        make(&file).map_err(unreadable)?;
    }
    if std::fs::symlink_metadata(&file).is_ok_and(|found| !found.is_file()) {
        return Err(unreadable("objects.redb is not a regular file".into()));
    }
    let database = match Database::open(&file) {
        Ok(database) => database,
        Err(DatabaseError::DatabaseAlreadyOpen) => return Err(OpenError::Locked { path }),
        Err(error) => return Err(unreadable(error.into())),
    };
    let found = stored_format(&database).map_err(|e| unreadable(e.into()))?;
    if found > FORMAT {
        return Err(OpenError::NewerFormat { path, found });
    }
    let Loaded { objects, revision, set_aside } = load(&database, readable).map_err(unreadable)?;
    Ok(Opened { database, lock, objects, revision, set_aside })
}

/// Secrets are in there: only the owner may read them.
fn restrict_directory(directory: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700))
}

/// Makes the database under another name: a crash in the middle leaves nothing that looks like a database.
fn make(file: &Path) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let temporary = private_file::create_beside(file)?;
    let database = Database::builder().create_file(temporary.as_file().try_clone()?)?;
    let transaction = database.begin_write()?;
    {
        let mut meta = transaction.open_table(META)?;
        meta.insert("format", FORMAT)?;
        meta.insert("revision", 1)?;
        transaction.open_table(OBJECTS)?;
        transaction.open_table(SET_ASIDE)?;
    }
    transaction.commit()?;
    drop(database);
    Ok(private_file::replace(temporary, file)?)
}

fn stored_format(database: &Database) -> Result<u64, redb::Error> {
    let meta = database.begin_read()?.open_table(META)?;
    Ok(meta.get("format")?.map_or(0, |found| found.value()))
}

struct Loaded {
    objects: BTreeMap<String, Vec<Object>>,
    revision: u64,
    set_aside: Vec<SetAside>,
}

/// Reads everything. What cannot be read is set aside; what was set aside and can be read now comes back.
fn load(
    database: &Database,
    readable: &Readable<'_>,
) -> Result<Loaded, Box<dyn std::error::Error + Send + Sync>> {
    let transaction = database.begin_read()?;
    let mut revision = transaction.open_table(META)?.get("revision")?.map_or(1, |found| found.value());
    let mut rows = Vec::new();
    for row in transaction.open_table(OBJECTS)?.iter()? {
        let (place, record) = row?;
        rows.push((place.value().to_owned(), record.value().to_vec()));
    }
    // Data directories of earlier versions have no such table.
    let mut kept = Vec::new();
    match transaction.open_table(SET_ASIDE) {
        Err(TableError::TableDoesNotExist(_)) => {}
        Err(error) => return Err(error.into()),
        Ok(table) => {
            for row in table.iter()? {
                let (id, record) = row?;
                kept.push(SetAside::decode(id.value(), record.value()));
            }
        }
    }
    drop(transaction);
    let mut objects: BTreeMap<String, Vec<Object>> = BTreeMap::new();
    let mut moves = Moves::default();
    for ((place, record), read) in rows.iter().zip(read_all(&rows, readable)) {
        match read {
            Ok((bucket, object)) => {
                revision = revision.max(object.revision);
                objects.entry(bucket).or_default().push(object);
            }
            Err(error) => {
                let reason = error.to_string();
                let (resource, key) = place.split_once(SEPARATOR).unwrap_or(("", place));
                tracing::error!(resource, key, reason, "a record cannot be read and is set aside");
                moves.aside.push((place.clone(), SetAside::new(resource, key, reason, record.clone())));
            }
        }
    }
    let mut set_aside: Vec<SetAside> = moves.aside.iter().map(|(_, record)| record.clone()).collect();
    for record in kept {
        let place = format!("{}{SEPARATOR}{}", record.resource, record.key);
        let taken = rows.binary_search_by(|(other, _)| other.cmp(&place)).is_ok();
        match read_record(&place, &record.record, readable) {
            Ok((bucket, object)) if !taken && !record.resource.is_empty() => {
                tracing::warn!(
                    resource = bucket,
                    key = record.key,
                    "a record that was set aside can be read again"
                );
                objects.entry(bucket).or_default().push(object);
                moves.back.push((place, record));
            }
            _ => {
                let (resource, key) = (&record.resource, &record.key);
                tracing::error!(
                    resource,
                    key,
                    reason = record.reason,
                    id = record.id,
                    "a record is set aside"
                );
                set_aside.push(record);
            }
        }
    }
    moves.make(database)?;
    Ok(Loaded { objects, revision, set_aside })
}

/// Records that change their table.
#[derive(Default)]
struct Moves {
    aside: Vec<(String, SetAside)>,
    back: Vec<(String, SetAside)>,
}

impl Moves {
    fn make(&self, database: &Database) -> Result<(), redb::Error> {
        if self.aside.is_empty() && self.back.is_empty() {
            return Ok(());
        }
        let transaction = database.begin_write()?;
        {
            let mut objects = transaction.open_table(OBJECTS)?;
            let mut set_aside = transaction.open_table(SET_ASIDE)?;
            for (place, record) in &self.aside {
                set_aside.insert(record.id.as_str(), record.encode().as_slice())?;
                objects.remove(place.as_str())?;
            }
            for (place, record) in &self.back {
                objects.insert(place.as_str(), record.record.as_slice())?;
                set_aside.remove(record.id.as_str())?;
            }
        }
        transaction.commit()?;
        Ok(())
    }
}

/// The resource of a record and its object, or why it cannot be read.
type ReadRecord = Result<(String, Object), RecordError>;

/// Reads records on every core, in order.
fn read_all(rows: &[(String, Vec<u8>)], readable: &Readable<'_>) -> Vec<ReadRecord> {
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let part = rows.len().div_ceil(cores).max(1000);
    let read = |part: &[(String, Vec<u8>)]| -> Vec<ReadRecord> {
        part.iter().map(|(place, record)| read_record(place, record, readable)).collect()
    };
    thread::scope(|scope| {
        let parts: Vec<_> = rows.chunks(part).map(|rows| (rows, scope.spawn(move || read(rows)))).collect();
        // A part whose thread panicked is read again on this one.
        parts.into_iter().flat_map(|(rows, part)| part.join().unwrap_or_else(|_| read(rows))).collect()
    })
}

fn read_record(place: &str, record: &[u8], readable: &Readable<'_>) -> ReadRecord {
    let (bucket, key) =
        place.split_once(SEPARATOR).ok_or_else(|| RecordError::NoResource(place.to_owned()))?;
    let object = decode(key, record)?;
    readable(bucket, &object.json)?;
    Ok((bucket.to_owned(), object))
}

/// A record is the length of the selectable fields, the fields as a JSON list, and the object.
fn encode(object: &Object) -> Vec<u8> {
    let fields = serde_json::to_vec(object.fields()).unwrap_or_default();
    let mut record = Vec::with_capacity(4 + fields.len() + object.json.len());
    record.extend_from_slice(&u32::try_from(fields.len()).unwrap_or_default().to_le_bytes());
    record.extend_from_slice(&fields);
    record.extend_from_slice(&object.json);
    record
}

fn decode(key: &str, record: &[u8]) -> Result<Object, RecordError> {
    let (length, rest) = record.split_first_chunk::<4>().ok_or(RecordError::TooShort)?;
    let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| RecordError::TooShort)?;
    let (fields, json) = rest.split_at_checked(length).ok_or(RecordError::TooShort)?;
    Object::restore(key, Bytes::copy_from_slice(json), serde_json::from_slice(fields)?)
}

struct Pending {
    write: Write,
    answer: oneshot::Sender<Result<Arc<Object>, CommitError>>,
}

/// What the thread that commits is requested.
enum Job {
    Commit(Pending),
    /// Forget a record that was set aside.
    Discard {
        id: String,
        answer: oneshot::Sender<Result<(), CommitError>>,
    },
}

/// The thread that commits.
#[derive(Debug)]
pub(super) struct Writer {
    queue: Option<mpsc::Sender<Job>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(database: Database, lock: File, clock: Arc<Clock>) -> Self {
        let (queue, waiting) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || {
                run(&database, &clock, &waiting);
                drop(database);
                drop(lock);
            })
            // swallowed: without the thread every commit fails, with an error
            .ok();
        Self { queue: Some(queue), thread }
    }

    pub(super) async fn commit(&self, write: Write) -> Result<Arc<Object>, CommitError> {
        let (answer, answered) = oneshot::channel();
        self.send(Job::Commit(Pending { write, answer }))?;
        answered.await.map_err(|_| stopped())?
    }

    pub(super) async fn discard(&self, id: String) -> Result<(), CommitError> {
        let (answer, answered) = oneshot::channel();
        self.send(Job::Discard { id, answer })?;
        answered.await.map_err(|_| stopped())?
    }

    fn send(&self, job: Job) -> Result<(), CommitError> {
        let queue = self.queue.as_ref().ok_or_else(stopped)?;
        queue.send(job).map_err(|_| stopped())
    }
}

fn stopped() -> CommitError {
    CommitError::Unavailable("the store has stopped".to_owned())
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            // The database is closed, and its lock released, when the thread ends.
            let _ = thread.join();
        }
    }
}

fn run(database: &Database, clock: &Clock, waiting: &mpsc::Receiver<Job>) {
    // swallowed: no sender is left that could send a job
    while let Ok(first) = waiting.recv() {
        let mut batch = Vec::new();
        let mut discards = Vec::new();
        let mut next = Some(first);
        while let Some(job) = next.take() {
            match job {
                Job::Commit(pending) => batch.push(pending),
                Job::Discard { id, answer } => discards.push((id, answer)),
            }
            if batch.len() < BATCH {
                // swallowed: an empty queue ends the batch
                next = waiting.try_recv().ok();
            }
        }
        commit_batch(database, clock, batch);
        for (id, answer) in discards {
            let done = discard(database, &id).map_err(|error| CommitError::Unavailable(error.to_string()));
            // A client that has gone does not need the answer.
            let _ = answer.send(done);
        }
    }
}

fn discard(database: &Database, id: &str) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    transaction.open_table(SET_ASIDE)?.remove(id)?;
    transaction.commit()?;
    Ok(())
}

struct Accepted {
    bucket: Arc<super::Bucket>,
    object: Arc<Object>,
    previous: Option<Arc<Object>>,
    delete: bool,
    answer: oneshot::Sender<Result<Arc<Object>, CommitError>>,
}

fn commit_batch(database: &Database, clock: &Clock, batch: Vec<Pending>) {
    let mut next = clock.revision.load(Ordering::Acquire);
    // What this batch has already done to a key, before other requests can see it.
    let mut overlay: BTreeMap<String, Option<Arc<Object>>> = BTreeMap::new();
    let mut accepted = Vec::with_capacity(batch.len());
    for Pending { write, answer } in batch {
        let place = format!("{}{SEPARATOR}{}", write.bucket.name(), write.key);
        let previous = match overlay.get(&place) {
            Some(seen) => seen.clone(),
            None => write.bucket.get(&write.key),
        };
        if let Err(refusal) = check(write.expect, previous.as_deref()) {
            // A client that has gone does not need the answer.
            let _ = answer.send(Err(refusal));
            continue;
        }
        let object = match Object::build(&write.key, next.saturating_add(1), write.draft, write.delete) {
            Ok(object) => Arc::new(object),
            Err(why) => {
                let _ = answer.send(Err(why));
                continue;
            }
        };
        next = next.saturating_add(1);
        overlay.insert(place, (!write.delete).then(|| object.clone()));
        accepted.push(Accepted { bucket: write.bucket, object, previous, delete: write.delete, answer });
    }
    if accepted.is_empty() {
        return;
    }
    match persist(database, &accepted, next) {
        Ok(()) => {
            for Accepted { bucket, object, previous, delete, answer } in accepted {
                let revision = object.revision;
                bucket.publish(object.clone(), previous, delete, revision);
                let _ = answer.send(Ok(object));
            }
        }
        Err(error) => {
            tracing::error!(%error, writes = accepted.len(), "commit failed");
            for refused in accepted {
                let _ = refused.answer.send(Err(CommitError::Unavailable(error.to_string())));
            }
        }
    }
}

fn persist(database: &Database, accepted: &[Accepted], revision: u64) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut objects = transaction.open_table(OBJECTS)?;
        for write in accepted {
            let place = format!("{}{SEPARATOR}{}", write.bucket.name(), write.object.key());
            if write.delete {
                objects.remove(place.as_str())?;
            } else {
                objects.insert(place.as_str(), encode(&write.object).as_slice())?;
            }
        }
        transaction.open_table(META)?.insert("revision", revision)?;
    }
    transaction.commit()?;
    Ok(())
}
