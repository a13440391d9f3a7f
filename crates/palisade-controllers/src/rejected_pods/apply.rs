//! Records the events.

use std::{sync::Arc, time::Duration};

use super::plan::{Events, MOST_AT_ONCE, Recorded, due};
use crate::{
    context::{Context, Turns},
    event_recorder::{About, News, Recording, record_again},
    metrics::WriteOutcome,
};

/// The name of the controller.
pub const NAME: &str = "rejected-pods";
/// Who events come from.
const COMPONENT: &str = "palisade-rejected-pods";
/// The reason of the events.
pub const REASON: &str = "PodsRejected";

/// Runs until dropped.
pub async fn run(context: Arc<Context>) {
    let mut turns = Turns::begin(&context, NAME).await;
    let mut recorded = Events::new();
    loop {
        let again = turn(&context, &mut recorded).await;
        turns.next(again).await;
    }
}

async fn turn(context: &Context, recorded: &mut Events) -> Option<Duration> {
    let rejected = context.observed.lock().cluster.rejected_workloads();
    recorded.retain(|uid, _| rejected.iter().any(|workload| workload.uid == *uid));
    let now = jiff::Timestamp::now().as_second();
    let due = due(&rejected, recorded, now);
    let is_part = due.len() == MOST_AT_ONCE;
    for workload in due {
        let about = About {
            api_version: &workload.api_version,
            kind: workload.kind,
            namespace: Some(&workload.namespace),
            name: &workload.name,
            uid: &workload.uid,
        };
        let news = News {
            component: COMPONENT,
            is_warning: true,
            reason: REASON,
            message: &workload.message,
            occasion: "",
        };
        let outcome = match record_again(&context.api, about, news).await {
            Recording::Done => WriteOutcome::Done,
            Recording::Gone => WriteOutcome::Gone,
            Recording::Failed => WriteOutcome::Failed,
        };
        context.metrics.wrote(NAME, outcome);
        // One that failed is tried again when it is due, as with every other event: nothing waits for events.
        recorded.insert(workload.uid.clone(), Recorded { message: workload.message.clone(), at: now });
    }
    is_part.then_some(Duration::from_secs(1))
}
