//! Durable commits through an embedded database, many writes to one sync.
//!
//! A single thread takes whatever writes are waiting, checks their preconditions, commits them in one
//! transaction, and only then makes them visible. So nobody ever sees a revision that a crash could take back,
//! and none is used twice.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;

use bytes::Bytes;
use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition};
use tokio::sync::oneshot;

use crate::private_file;

use super::{Clock, CommitError, Object, OpenError, Write, check};

/// The format this version writes. A newer one is refused, an older one would be converted on opening.
pub const FORMAT: u64 = 1;

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const OBJECTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("objects");
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
}

/// Opens or makes the database in a directory, and reads all of it.
pub(super) fn open(directory: &Path) -> Result<Opened, OpenError> {
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
    let (objects, revision) = load(&database).map_err(unreadable)?;
    Ok(Opened { database, lock, objects, revision })
}

/// Secrets are in there: nobody but the owner looks in.
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
    }
    transaction.commit()?;
    drop(database);
    Ok(private_file::replace(temporary, file)?)
}

fn stored_format(database: &Database) -> Result<u64, redb::Error> {
    let meta = database.begin_read()?.open_table(META)?;
    Ok(meta.get("format")?.map_or(0, |found| found.value()))
}

type Loaded = (BTreeMap<String, Vec<Object>>, u64);

fn load(database: &Database) -> Result<Loaded, Box<dyn std::error::Error + Send + Sync>> {
    let transaction = database.begin_read()?;
    let revision = transaction.open_table(META)?.get("revision")?.map_or(1, |found| found.value());
    let mut objects: BTreeMap<String, Vec<Object>> = BTreeMap::new();
    for row in transaction.open_table(OBJECTS)?.iter()? {
        let (key, record) = row?;
        let Some((bucket, name)) = key.value().split_once(SEPARATOR) else {
            return Err(format!("key {:?} has no resource", key.value()).into());
        };
        let object = decode(name, record.value())?;
        objects.entry(bucket.to_owned()).or_default().push(object);
    }
    Ok((objects, revision))
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

fn decode(key: &str, record: &[u8]) -> Result<Object, Box<dyn std::error::Error + Send + Sync>> {
    let (length, rest) = record.split_first_chunk::<4>().ok_or("record is too short")?;
    let length = usize::try_from(u32::from_le_bytes(*length))?;
    let (fields, json) = rest.split_at_checked(length).ok_or("record is too short")?;
    Ok(Object::restore(key, Bytes::copy_from_slice(json), serde_json::from_slice(fields)?)?)
}

struct Pending {
    write: Write,
    answer: oneshot::Sender<Result<Arc<Object>, CommitError>>,
}

/// The thread that commits.
#[derive(Debug)]
pub(super) struct Writer {
    queue: Option<mpsc::Sender<Pending>>,
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
            .ok();
        Self { queue: Some(queue), thread }
    }

    pub(super) async fn commit(&self, write: Write) -> Result<Arc<Object>, CommitError> {
        let stopped = || CommitError::Unavailable("the store has stopped".to_owned());
        let (answer, answered) = oneshot::channel();
        let queue = self.queue.as_ref().ok_or_else(stopped)?;
        queue.send(Pending { write, answer }).map_err(|_| stopped())?;
        answered.await.map_err(|_| stopped())?
    }
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

fn run(database: &Database, clock: &Clock, waiting: &mpsc::Receiver<Pending>) {
    while let Ok(first) = waiting.recv() {
        let mut batch = vec![first];
        while batch.len() < BATCH {
            let Ok(next) = waiting.try_recv() else { break };
            batch.push(next);
        }
        commit_batch(database, clock, batch);
    }
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
    // What this batch has already done to a key, before anyone else can see it.
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
        next = next.saturating_add(1);
        let object = Arc::new(Object::build(write.key, next, write.draft));
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
