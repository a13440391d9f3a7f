//! kill -9 in the middle of writes: whatever was acknowledged is there afterwards, and no revision comes twice.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use palisade_apiserver::storage::{Expect, Range, Store, Write};
use serde_json::json;
use std::io::{BufRead as _, BufReader, Write as _};

use crate::support;

const CHILD: &str = "PALISADE_TEST_CRASH_DIRECTORY";
const ROUNDS: usize = 50;

/// Not a test of its own: the process that is killed. It writes as fast as it can and prints what was acknowledged.
#[test]
fn writer_process() {
    let Ok(directory) = std::env::var(CHILD) else { return };
    let runtime = tokio::runtime::Runtime::new().expect("runtime");
    runtime.block_on(async {
        let store = Store::open(Path::new(&directory)).expect("store");
        let mut tasks = Vec::new();
        for writer in 0..8 {
            let store = store.clone();
            tasks.push(tokio::spawn(async move {
                let round = store.revision();
                for n in 0_u64.. {
                    let key = format!("default/{round}-{writer}-{n}");
                    let value = json!({"metadata": {"name": key, "uid": key}});
                    let (bucket, object) = (store.bucket("things"), support::typed(value));
                    let write = Write::store(bucket, &key, Expect::Absent, object, Vec::new());
                    let Ok(object) = store.commit(write).await else { return };
                    let mut out = std::io::stdout().lock();
                    let _ = writeln!(out, "\nACK {key} {}", object.revision);
                    let _ = out.flush();
                }
            }));
        }
        for task in tasks {
            let _ = task.await;
        }
    });
}

fn spawn(directory: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this test"))
        .args(["crash::writer_process", "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("child")
}

#[test]
fn a_crash_while_the_store_is_made_harms_nothing() {
    for round in 0..30 {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("data");
        let mut child = spawn(&path);
        std::thread::sleep(Duration::from_millis(3 + round));
        child.kill().expect("killed");
        child.wait().expect("reaped");
        Store::open(&path).expect("opens after a crash");
    }
}

#[test]
fn acknowledged_writes_survive_kill_9() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("data");
    let mut acknowledged: BTreeMap<String, u64> = BTreeMap::new();
    let mut highest = 0;
    for round in 0..ROUNDS {
        let mut child = spawn(&path);
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let (first, writes) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            let lines = lines.map_while(Result::ok);
            let acks = lines.filter_map(|line| {
                let (key, revision) = line.strip_prefix("ACK ")?.split_once(' ')?;
                Some((key.to_owned(), revision.parse::<u64>().ok()?))
            });
            // The receiver is gone after the first.
            acks.inspect(|_| first.send(()).unwrap_or_default()).collect::<Vec<_>>()
        });
        // However slow the machine is, the process is killed while it writes: not before its first acknowledged write, and
        // each round at another moment after it.
        writes.recv().expect("the child writes");
        std::thread::sleep(Duration::from_millis(7 * u64::try_from(round % 10).expect("small")));
        child.kill().expect("killed");
        child.wait().expect("reaped");
        for (key, revision) in reader.join().expect("joined") {
            assert!(revision > highest, "round {round}: revision {revision} of {key} was used before");
            assert!(acknowledged.insert(key, revision).is_none());
        }
        let store = Store::open(&path).expect("opens after a crash");
        let stored = store.bucket("things").list(&Range::All);
        let stored: BTreeMap<&str, u64> = stored.objects.iter().map(|o| (o.key(), o.revision)).collect();
        for (key, revision) in &acknowledged {
            assert_eq!(stored.get(key.as_str()), Some(revision), "round {round}: {key} is lost");
        }
        highest = store.revision();
        assert!(stored.values().all(|revision| *revision <= highest));
    }
    assert!(acknowledged.len() > ROUNDS, "only {} writes", acknowledged.len());
}
