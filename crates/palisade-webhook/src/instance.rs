//! Reports the configuration this replica enforces in a Lease of its own.
//!
//! Implements: the report that the config observer reads (`palisade_policy::enforcement::instances`). A replica that ends
//! takes its Lease along; one that is killed is counted out when the Lease runs out.

use std::time::Duration;

use http::Request;
use kube::Client;
use palisade_base::time::rfc3339_micro;
use palisade_policy::enforcement::instances::{
    NAMESPACE, RENEW_SECONDS, WEBHOOK, instance_lease, lease_name,
};
use tokio::sync::watch;

use crate::{
    calls::{MANAGER, in_words},
    configuration::Current,
};

/// A report that could not be made is tried again after this time.
const RETRY: Duration = Duration::from_secs(3);
/// A Lease is given up if it cannot be removed in this time.
const REMOVE: Duration = Duration::from_secs(2);

fn path(identity: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{}", lease_name(WEBHOOK, identity))
}

/// Reports until the end of the webhook: at every change, and often enough to count as alive.
pub async fn report(client: Client, identity: String, mut current: watch::Receiver<Current>) {
    let mut logged = None;
    loop {
        let configured = current.borrow_and_update().clone();
        let mut pause = Duration::from_secs(u64::from(RENEW_SECONDS));
        if let Ok(configured) = configured {
            let now = rfc3339_micro(jiff::Timestamp::now().as_microsecond());
            let lease = instance_lease(WEBHOOK, &identity, &configured.document, &now);
            let request = Request::patch(format!("{}?fieldManager={MANAGER}&force=true", path(&identity)))
                .header("content-type", "application/apply-patch+yaml")
                .body(lease.to_string().into_bytes());
            let sent = match request {
                Ok(request) => {
                    client.request_text(request).await.map(|_| ()).map_err(|error| in_words(&error))
                }
                Err(error) => Err(error.to_string()),
            };
            if let Err(why) = &sent {
                pause = RETRY;
                // Once is enough while it stays the same.
                if logged.as_ref() != Some(why) {
                    tracing::warn!(why, "cannot report the configuration in force");
                }
            }
            logged = sent.err();
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            changed = current.changed() => if changed.is_err() { return },
        }
    }
}

/// Takes the report back.
pub async fn withdraw(client: Client, identity: &str) {
    if let Ok(request) = Request::delete(path(identity)).body(Vec::new()) {
        let _ = tokio::time::timeout(REMOVE, client.request_text(request)).await;
    }
}
