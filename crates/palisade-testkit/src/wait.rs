//! Waiting for a condition instead of for a time.

use std::future::Future;
use std::time::{Duration, Instant};

/// How long a condition may take on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);

/// What `condition` returns as soon as it returns something.
///
/// # Panics
///
/// If it takes too long; `what` is what was waited for.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut condition: impl FnMut() -> F) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = condition().await {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "waited in vain: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}
