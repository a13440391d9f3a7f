//! What keeps a cluster tidy: namespaces are emptied, dependents follow their owners, pods find a service account.
//!
//! As in a real cluster, controllers act a moment after the change that calls for them: a client that looks at
//! once sees an object on its way out. Those that kube-controller-manager has as well pause while it holds its Lease: two that do
//! the same would run into each other's writes.

mod garbage;
mod namespace;
mod protection;
mod roles;
pub(crate) mod service_account;
mod signer;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::api::Api;
use crate::plugins::quota;
use crate::{crd, services, system_objects};

/// The component that has these controllers in a real cluster.
const MANAGER: &str = "kube-controller-manager";
/// How long controllers wait after a change.
pub(crate) const DELAY: Duration = Duration::from_millis(1500);
/// How often the status of quotas is computed at most, where there are any.
const QUOTAS: Duration = Duration::from_millis(200);
/// How often they look even if nothing seems to happen: grace periods end without a change.
const RESYNC: Duration = Duration::from_secs(10);

/// Runs until `stop` turns true.
pub(crate) async fn run(api: Arc<Api>, mut stop: watch::Receiver<bool>) {
    let mut changed = api.store.subscribe();
    let mut collector = garbage::Collector::default();
    let mut roles_seen = 0;
    let mut addresses_seen = [0; 2];
    let mut requests_seen = 0;
    let mut services_seen = 0;
    let mut accounts = service_account::Keeper::default();
    let mut slow_at = Instant::now();
    let mut quotas_at = Instant::now();
    loop {
        changed.mark_unchanged();
        let leads = !system_objects::is_renewed(&api, MANAGER);
        // What people wait for comes at once.
        if leads {
            accounts.run(&api).await;
            roles::aggregate(&api, &mut roles_seen).await;
            protection::run(&api).await;
        }
        services::sync_addresses(&api, &mut addresses_seen).await;
        crd::finish_deletions(&api).await;
        signer::run(&api, &mut requests_seen).await;
        system_objects::follow(&api, &mut services_seen).await;
        let mut again = RESYNC;
        if leads && Instant::now() >= quotas_at && quota::sync(&api).await {
            quotas_at = Instant::now() + QUOTAS;
        }
        if Instant::now() >= slow_at {
            collector.observe(&api);
            let busy = leads && (collector.collect(&api).await | namespace::finish(&api).await);
            slow_at = Instant::now() + DELAY;
            if busy {
                again = DELAY;
            }
        } else {
            again = slow_at - Instant::now();
        }
        if let Some(left) = quotas_at.checked_duration_since(Instant::now()) {
            again = again.min(left);
        }
        tokio::select! {
            () = async { let _ = stop.wait_for(|stop| *stop).await; } => return,
            more = changed.changed() => if more.is_err() { return },
            () = sleep_until(Instant::now() + again) => {}
        }
        // Many changes together are looked at once.
        sleep(Duration::from_millis(5)).await;
    }
}
