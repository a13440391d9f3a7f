//! One of several controllers leads, by a Lease.
//!
//! Implements: the leader election of Kubernetes' client library. A candidate takes a Lease that has no holder, or whose
//! holder has not renewed it for its duration *as this candidate has observed it*, so that clocks need not agree. A leader
//! that cannot renew in time steps down before others may take over. On shutdown the Lease is given up at once.

use std::time::Duration;

use palisade_policy::enforcement::instances::NAMESPACE;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    api::{Api, ApiError, LEASES, NAMESPACES},
    time,
};

/// The name of the Lease, and of the field manager that writes it.
pub const LEASE: &str = "palisade-controller";

/// How long things take.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// How long a Lease holds without being renewed.
    pub lease_duration: Duration,
    /// How long a leader tries to renew before it steps down; shorter than the duration.
    pub renew_deadline: Duration,
    /// How long between tries.
    pub retry_period: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// What a candidate does about a Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ElectionStep {
    /// There is none: make it.
    Create,
    /// Take it, or renew it.
    Write { is_transition: bool },
    /// Another candidate holds it.
    Wait,
}

/// What a candidate has seen of the Lease.
#[derive(Debug, Default)]
struct Seen {
    record: Value,
    at: Option<Instant>,
}

impl Seen {
    /// Notes what was read; the time counts from when it last changed.
    fn note(&mut self, lease: Option<&Value>, now: Instant) {
        let record = lease.map_or(Value::Null, |lease| lease["spec"].clone());
        if self.at.is_none() || self.record != record {
            (self.record, self.at) = (record, Some(now));
        }
    }

    fn step(&self, identity: &str, now: Instant) -> ElectionStep {
        if self.record.is_null() {
            return ElectionStep::Create;
        }
        let holder = self.record["holderIdentity"].as_str().unwrap_or_default();
        if holder == identity {
            return ElectionStep::Write { is_transition: false };
        }
        let lasts = Duration::from_secs(self.record["leaseDurationSeconds"].as_u64().unwrap_or(15));
        let is_over = self.at.is_none_or(|at| now.duration_since(at) >= lasts);
        if holder.is_empty() || is_over {
            ElectionStep::Write { is_transition: true }
        } else {
            ElectionStep::Wait
        }
    }
}

/// A candidate.
#[derive(Debug)]
pub struct Candidate {
    api: Api,
    identity: String,
    timing: Timing,
    seen: Seen,
}

impl Candidate {
    /// A candidate of this name; no two may have the same.
    #[must_use]
    pub fn new(api: Api, identity: impl Into<String>, timing: Timing) -> Self {
        Self { api, identity: identity.into(), timing, seen: Seen::default() }
    }

    /// Returns when this candidate leads.
    pub async fn acquire(&mut self) {
        loop {
            match self.attempt().await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "failed to acquire the lease"),
            }
            sleep(self.timing.retry_period).await;
        }
    }

    /// Renews the Lease for as long as that works; returns when this candidate must no longer lead.
    pub async fn hold(&mut self) {
        let mut renewed = Instant::now();
        loop {
            sleep(self.timing.retry_period).await;
            let left = self.timing.renew_deadline.saturating_sub(renewed.elapsed());
            match timeout(left, self.attempt()).await {
                Ok(Ok(true)) => renewed = Instant::now(),
                Ok(Ok(false)) => {
                    tracing::warn!("another process leads");
                    return;
                }
                Ok(Err(error)) => tracing::warn!(%error, "failed to renew the lease"),
                Err(_) => {}
            }
            if renewed.elapsed() >= self.timing.renew_deadline {
                tracing::error!("the lease was not renewed in time: stepping down");
                return;
            }
        }
    }

    /// Gives the Lease up, so that the next one need not wait.
    pub async fn release(&mut self) {
        let path = LEASES.object(Some(NAMESPACE), LEASE);
        let Ok(Some(mut lease)) = self.api.get(&path).await else { return };
        if lease["spec"]["holderIdentity"] != self.identity.as_str() {
            return;
        }
        lease["spec"]["holderIdentity"] = json!("");
        lease["spec"]["leaseDurationSeconds"] = json!(1);
        lease["spec"]["renewTime"] = json!(time::micros());
        if let Err(error) = self.api.replace(&path, LEASE, &lease).await {
            tracing::warn!(%error, "failed to release the lease");
        }
    }

    /// Tries to take or renew the Lease; whether it is this candidate's now.
    async fn attempt(&mut self) -> Result<bool, ApiError> {
        let path = LEASES.object(Some(NAMESPACE), LEASE);
        let lease = self.api.get(&path).await?;
        let now = Instant::now();
        self.seen.note(lease.as_ref(), now);
        let written = match (self.seen.step(&self.identity, now), lease) {
            (ElectionStep::Wait, _) => return Ok(false),
            (ElectionStep::Write { is_transition }, Some(mut lease)) => {
                let spec = &mut lease["spec"];
                if is_transition {
                    let transitions = spec["leaseTransitions"].as_u64().unwrap_or_default() + 1;
                    spec["leaseTransitions"] = json!(transitions);
                    spec["acquireTime"] = json!(time::micros());
                }
                self.fill(spec);
                self.api.replace(&path, LEASE, &lease).await
            }
            (ElectionStep::Create | ElectionStep::Write { .. }, _) => {
                let mut spec = json!({"acquireTime": time::micros(), "leaseTransitions": 0});
                self.fill(&mut spec);
                let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                                   "metadata": {"name": LEASE, "namespace": NAMESPACE}, "spec": spec});
                let collection = LEASES.collection(Some(NAMESPACE));
                match self.api.create(&collection, LEASE, &lease).await {
                    // The namespace comes with the first controller.
                    Err(error) if error.is_not_found() => {
                        ensure_namespace(&self.api).await?;
                        self.api.create(&collection, LEASE, &lease).await
                    }
                    other => other,
                }
            }
        };
        match written {
            Ok(lease) => {
                self.seen.note(Some(&lease), now);
                Ok(true)
            }
            Err(error) if error.is_conflict() || error.is_already_exists() => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn fill(&self, spec: &mut Value) {
        spec["holderIdentity"] = json!(self.identity);
        spec["leaseDurationSeconds"] = json!(self.timing.lease_duration.as_secs().max(1));
        spec["renewTime"] = json!(time::micros());
    }
}

/// Makes the namespace of the controllers where there is none.
pub(crate) async fn ensure_namespace(api: &Api) -> Result<(), ApiError> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    match api.create(&NAMESPACES.collection(None), LEASE, &namespace).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_already_exists() => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};
    use tokio::time::Instant;

    use super::{ElectionStep, Seen};

    fn lease(holder: &str, renewed: &str) -> Value {
        json!({"spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}})
    }

    #[test]
    fn a_lease_is_taken_only_when_it_has_been_seen_to_be_over() {
        let start = Instant::now();
        let later = |seconds| start + Duration::from_secs(seconds);
        let write = |is_transition| ElectionStep::Write { is_transition };
        let mut seen = Seen::default();
        seen.note(None, start);
        assert_eq!(seen.step("me", start), ElectionStep::Create);
        // However old its time is: only what was observed counts.
        seen.note(Some(&lease("other", "1999-01-01T00:00:00.000000Z")), start);
        assert_eq!(seen.step("me", later(14)), ElectionStep::Wait);
        assert_eq!(seen.step("me", later(15)), write(true));
        seen.note(Some(&lease("other", "1999-01-01T00:00:02.000000Z")), later(14));
        assert_eq!(seen.step("me", later(20)), ElectionStep::Wait, "renewed");
        seen.note(Some(&lease("me", "x")), later(21));
        assert_eq!(seen.step("me", later(60)), write(false), "one's own");
        seen.note(Some(&lease("", "x")), later(61));
        assert_eq!(seen.step("me", later(61)), write(true), "given up");
    }
}
