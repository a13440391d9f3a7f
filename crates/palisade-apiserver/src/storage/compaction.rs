//! Lets revisions expire with time, as the API server of Kubernetes compacts etcd: a continue token or a resource version from before stays
//! good for five to ten minutes, and the memory of old states is bounded by time as well as by the size of the logs.
//!
//! Implements: `--etcd-compaction-interval` of kube-apiserver, with its default.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::Store;

/// How often revisions expire: those that were old already one interval before.
pub(crate) const INTERVAL: Duration = Duration::from_mins(5);

/// Runs until `stop` turns true.
pub(crate) async fn run(store: Store, mut stop: watch::Receiver<bool>) {
    let mut ticks = interval_at(Instant::now() + INTERVAL, INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = store.revision();
    loop {
        tokio::select! {
            () = async { let _ = stop.wait_for(|stop| *stop).await; } => return,
            _ = ticks.tick() => {}
        }
        store.compact(before);
        before = store.revision();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{Range, RevisionError};

    #[tokio::test(start_paused = true)]
    async fn a_revision_expires_after_one_to_two_intervals() {
        let store = Store::in_memory();
        let (_keep, stop) = watch::channel(false);
        let compaction = tokio::spawn(run(store.clone(), stop));
        let things = store.bucket("things");
        let read = |at| things.list_at(&Range::All, None, at).map(|listing| listing.revision);
        tokio::time::sleep(INTERVAL / 2).await;
        let then = store.revision();
        store.advance(then + 5);
        tokio::time::sleep(INTERVAL).await;
        assert_eq!(read(then), Ok(then), "after one interval");
        tokio::time::sleep(INTERVAL).await;
        assert_eq!(read(then), Err(RevisionError::TooOld(then, then + 5)), "after two");
        assert_eq!(read(then + 5), Ok(then + 5), "the newest stays");
        compaction.abort();
    }
}
