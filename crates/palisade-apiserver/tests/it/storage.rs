//! The store by itself: concurrency, lists at a revision, durability, formats.

use std::sync::Arc;

use palisade_apiserver::storage::{
    CommitError, EventKind, Expect, Object, OpenError, Range, RevisionError, Store, Write,
};
use serde_json::json;

use crate::support;

async fn put(store: &Store, key: &str, expect: Expect, text: &str) -> Result<Arc<Object>, CommitError> {
    commit(store, key, expect, text, false).await
}

async fn commit(
    store: &Store,
    key: &str,
    expect: Expect,
    text: &str,
    delete: bool,
) -> Result<Arc<Object>, CommitError> {
    let value = json!({"metadata": {"name": key, "uid": key, "labels": {"l": text}}, "data": {"k": text}});
    let (bucket, fields) = (store.bucket("things"), vec![text.to_owned()]);
    let object = support::typed(value);
    let write = if delete {
        Write::remove(bucket, key, expect, object.into_value(), fields)
    } else {
        Write::store(bucket, key, expect, object, fields)
    };
    store.commit(write).await
}

fn names(store: &Store, range: &Range) -> Vec<String> {
    store.bucket("things").list(range).objects.iter().map(|o| o.key().to_owned()).collect()
}

#[tokio::test]
async fn a_write_needs_its_precondition() {
    let store = Store::in_memory();
    let first = put(&store, "a/x", Expect::Absent, "1").await.expect("new");
    assert!(matches!(put(&store, "a/x", Expect::Absent, "2").await, Err(CommitError::Exists)));
    assert!(matches!(put(&store, "a/y", Expect::Revision(1), "2").await, Err(CommitError::Conflict)));
    let second = put(&store, "a/x", Expect::Revision(first.revision), "2").await.expect("current");
    assert!(second.revision > first.revision);
    assert!(matches!(
        put(&store, "a/x", Expect::Revision(first.revision), "3").await,
        Err(CommitError::Conflict)
    ));
    assert_eq!(second.label("l"), Some("2"));
    assert_eq!(store.revision(), second.revision);
}

#[tokio::test]
async fn namespaces_do_not_run_into_each_other() {
    let store = Store::in_memory();
    for key in ["a/x", "a-b/x", "a/y", "ab/x", "b/x"] {
        put(&store, key, Expect::Absent, "").await.expect("new");
    }
    assert_eq!(names(&store, &Range::Namespace("a".to_owned())), ["a/x", "a/y"]);
    assert_eq!(names(&store, &Range::All), ["a-b/x", "a/x", "a/y", "ab/x", "b/x"]);
    assert_eq!(names(&store, &Range::One("a/y".to_owned())), ["a/y"]);
}

#[tokio::test]
async fn compaction_ends_old_lists_and_only_watches_that_would_miss_a_change() {
    let store = Store::in_memory();
    let x = put(&store, "a/x", Expect::Absent, "1").await.expect("new");
    let old = store.revision();
    put(&store, "a/x", Expect::Revision(x.revision), "2").await.expect("changed");
    let kept = store.revision();
    put(&store, "a/y", Expect::Absent, "1").await.expect("new");
    let (things, quiet) = (store.bucket("things"), store.bucket("quiet"));
    store.compact(kept);
    for bucket in [&things, &quiet] {
        let refused = bucket.list_at(&Range::All, None, old).expect_err("expired");
        assert_eq!(refused, RevisionError::TooOld(old, kept), "{}", bucket.name());
        assert!(bucket.list_at(&Range::All, None, kept).is_ok(), "{}", bucket.name());
    }
    assert_eq!(
        things.changes(&Range::All, old, 9).expect_err("a change is forgotten"),
        RevisionError::TooOld(old, kept)
    );
    assert_eq!(things.changes(&Range::All, kept, 9).expect("complete").0.len(), 1);
    assert_eq!(quiet.changes(&Range::All, old, 9).expect("nothing is missing").0.len(), 0);
}

#[tokio::test]
async fn lists_can_look_back() {
    let store = Store::in_memory();
    let x = put(&store, "a/x", Expect::Absent, "1").await.expect("new");
    let then = store.revision();
    let x = put(&store, "a/x", Expect::Revision(x.revision), "2").await.expect("changed");
    put(&store, "a/y", Expect::Absent, "1").await.expect("new");
    commit(&store, "a/x", Expect::Revision(x.revision), "2", true).await.expect("deleted");
    let bucket = store.bucket("things");
    let past = bucket.list_at(&Range::All, None, then).expect("still known");
    let seen: Vec<(&str, Option<&str>)> = past.objects.iter().map(|o| (o.key(), o.label("l"))).collect();
    assert_eq!(seen, [("a/x", Some("1"))]);
    assert_eq!(names(&store, &Range::All), ["a/y"]);
    let future = store.revision() + 1;
    let refused = bucket.list_at(&Range::All, None, future).expect_err("future");
    assert_eq!(refused, RevisionError::TooLarge(future, future - 1));
}

#[tokio::test]
async fn the_log_is_bounded_and_reports_what_it_dropped() {
    let store = Store::in_memory();
    let mut revision = put(&store, "a/x", Expect::Absent, "").await.expect("new").revision;
    let start = revision;
    for n in 0..17_000 {
        let expect = Expect::Revision(revision);
        revision = put(&store, "a/x", expect, &n.to_string()).await.expect("changed").revision;
    }
    let bucket = store.bucket("things");
    let refused = bucket.changes(&Range::All, start, 10).expect_err("compacted");
    assert!(matches!(refused, RevisionError::TooOld(at, oldest) if at == start && oldest > start));
    assert!(refused.to_string().starts_with(&format!("too old resource version: {start} (")));
    let (recent, upto) = bucket.changes(&Range::All, revision - 3, 2).expect("recent");
    assert_eq!(
        recent.iter().map(|e| (e.kind, e.revision)).collect::<Vec<_>>(),
        [(EventKind::Modified, revision - 2), (EventKind::Modified, revision - 1)]
    );
    assert_eq!(upto, revision - 1, "not further than what was returned");
}

#[tokio::test]
async fn a_data_directory_keeps_objects_and_revisions() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("data");
    let last = {
        let store = Store::open(&path).expect("new store");
        let second = Store::open(&path).expect_err("locked");
        assert!(matches!(second, OpenError::Locked { .. }), "{second}");
        let x = put(&store, "a/x", Expect::Absent, "1").await.expect("new");
        put(&store, "a/y", Expect::Absent, "2").await.expect("new");
        commit(&store, "a/x", Expect::Revision(x.revision), "1", true).await.expect("deleted");
        store.revision()
    };
    let store = Store::open(&path).expect("same store");
    assert_eq!(store.revision(), last);
    assert_eq!(names(&store, &Range::All), ["a/y"]);
    let y = store.bucket("things").get("a/y").expect("kept");
    assert_eq!((y.label("l"), y.uid(), &*y.fields()[0]), (Some("2"), "a/y", "2"));
    let refused = store.bucket("things").changes(&Range::All, last - 1, 1).expect_err("before this process");
    assert_eq!(refused, RevisionError::TooOld(last - 1, last));
    let next = put(&store, "a/z", Expect::Absent, "3").await.expect("new");
    assert_eq!(next.revision, last + 1);
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).expect("there").permissions());
    assert_eq!(mode & 0o777, 0o700);
}

#[tokio::test]
async fn a_newer_format_is_refused() {
    let directory = tempfile::tempdir().expect("directory");
    drop(Store::open(directory.path()).expect("new store"));
    {
        let database = redb::Database::open(directory.path().join("objects.redb")).expect("database");
        let transaction = database.begin_write().expect("transaction");
        {
            let table = redb::TableDefinition::<&str, u64>::new("meta");
            transaction.open_table(table).expect("table").insert("format", 99).expect("written");
        }
        transaction.commit().expect("committed");
    }
    let refused = Store::open(directory.path()).expect_err("newer");
    assert!(refused.to_string().contains("has format 99, this version reads up to 1"), "{refused}");
}

#[tokio::test]
async fn many_writers_are_committed_together() {
    let directory = tempfile::tempdir().expect("directory");
    let store = Store::open(directory.path()).expect("new store");
    let writers: Vec<_> = (0..200)
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move {
                put(&store, &format!("a/{n}"), Expect::Absent, "").await.map(|o| o.revision)
            })
        })
        .collect();
    let mut revisions = Vec::new();
    for writer in writers {
        revisions.push(writer.await.expect("joined").expect("written"));
    }
    revisions.sort_unstable();
    revisions.dedup();
    assert_eq!(revisions.len(), 200, "every write has its own revision");
    // Of two writers with the same precondition exactly one wins, even inside one batch.
    let at = store.bucket("things").get("a/0").expect("there").revision;
    let race: Vec<_> = (0..20)
        .map(|n: i32| {
            let store = store.clone();
            tokio::spawn(
                async move { put(&store, "a/0", Expect::Revision(at), &n.to_string()).await.is_ok() },
            )
        })
        .collect();
    let mut won = 0;
    for writer in race {
        won += usize::from(writer.await.expect("joined"));
    }
    assert_eq!(won, 1);
}
