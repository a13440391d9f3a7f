//! Whether an upstream component leads, from its Lease: kube-controller-manager or kube-scheduler.
//!
//! The Lease is watched and not polled: an idle cluster has nothing to do.

use std::time::Duration;

use serde_json::Value;
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use crate::{
    api::{Api, LEASES},
    observe::watch::{Target, WatchEvent, follow},
};

/// How long a Lease lasts that does not give a time, as in client-go.
const DEFAULT_SECONDS: u64 = 15;

/// Who leads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Lead {
    /// The Lease has not been read.
    #[default]
    Unknown,
    /// No such component.
    Free,
    /// The component, unless it fails to renew its Lease.
    HeldUntil(Instant),
}

/// The specification of a Lease, and what follows from it.
#[derive(Debug, Default)]
struct Seen {
    spec: Value,
    lead: Lead,
}

impl Seen {
    /// Takes over a state of the Lease. Its time runs from when the state is seen first: clocks differ.
    fn see(&mut self, lease: Option<&Value>, now: Instant) -> Lead {
        let spec = lease.map_or(Value::Null, |lease| lease["spec"].clone());
        if self.lead == Lead::Unknown || spec != self.spec {
            let is_held = spec["holderIdentity"].as_str().is_some_and(|holder| !holder.is_empty());
            let lasts = Duration::from_secs(spec["leaseDurationSeconds"].as_u64().unwrap_or(DEFAULT_SECONDS));
            self.lead = if is_held { Lead::HeldUntil(now + lasts) } else { Lead::Free };
            self.spec = spec;
        }
        self.lead
    }
}

/// The Lease, as it is watched.
#[derive(Debug)]
pub(crate) struct Watched(watch::Receiver<Lead>);

impl Watched {
    /// Returns once the component does not lead.
    pub(crate) async fn is_free(&mut self) {
        loop {
            let lead = *self.0.borrow_and_update();
            match lead {
                Lead::Free => return,
                Lead::HeldUntil(end) if end <= Instant::now() => return,
                Lead::HeldUntil(end) => {
                    let _ = timeout_at(end, self.0.changed()).await;
                }
                Lead::Unknown => self.changed().await,
            }
        }
    }

    /// Returns once the component leads.
    pub(crate) async fn is_held(&mut self) {
        loop {
            let lead = *self.0.borrow_and_update();
            match lead {
                Lead::HeldUntil(end) if end > Instant::now() => return,
                _ => self.changed().await,
            }
        }
    }

    async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // Nothing watches any more, and nothing is known any more.
            std::future::pending::<()>().await;
        }
    }
}

/// Watches the Lease of a component: the future never returns.
pub(crate) fn watch(api: &Api, component: &'static str) -> (impl Future<Output = ()>, Watched) {
    let (sender, receiver) = watch::channel(Lead::Unknown);
    let target = Target {
        path: LEASES.collection(Some("kube-system")),
        field_selector: Some(format!("metadata.name={component}")),
        ..Target::default()
    };
    let following = async move {
        let (mut seen, mut is_listed) = (Seen::default(), false);
        follow(api, &target, |event| {
            let lease = match event {
                WatchEvent::Begin => {
                    is_listed = false;
                    return;
                }
                WatchEvent::Present(json) => {
                    is_listed = true;
                    match serde_json::from_str(json) {
                        Ok(lease) => Some(lease),
                        Err(error) => {
                            tracing::warn!(%error, component, "the lease of a component cannot be read");
                            return;
                        }
                    }
                }
                WatchEvent::End if is_listed => return,
                WatchEvent::Gone(_) | WatchEvent::End | WatchEvent::Missing => None,
                WatchEvent::Failing(_) | WatchEvent::Working => return,
            };
            sender.send_replace(seen.see(lease.as_ref(), Instant::now()));
        })
        .await;
    };
    (following, Watched(receiver))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use tokio::time::Instant;

    use super::{Lead, Seen};

    #[test]
    fn a_lease_is_held_until_it_is_released_or_not_renewed() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let lease = |holder: &str, renewed: u32| json!({"spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}});
        let mut seen = Seen::default();
        for (case, found, at, expected) in [
            ("none", None, 0, Lead::Free),
            ("taken", Some(lease("kcm", 1)), 1, Lead::HeldUntil(after(16))),
            ("renewed", Some(lease("kcm", 2)), 14, Lead::HeldUntil(after(29))),
            ("listed again", Some(lease("kcm", 2)), 28, Lead::HeldUntil(after(29))),
            ("renewed again", Some(lease("kcm", 3)), 30, Lead::HeldUntil(after(45))),
            ("released", Some(lease("", 3)), 31, Lead::Free),
            ("no duration", Some(json!({"spec": {"holderIdentity": "kcm"}})), 40, Lead::HeldUntil(after(55))),
            ("deleted", None, 41, Lead::Free),
        ] {
            assert_eq!(seen.see(found.as_ref(), after(at)), expected, "{case}");
        }
    }
}
