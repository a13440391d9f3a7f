//! Which pod of a StatefulSet is next, and the status. Pure.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};

use super::pods::{identity, ordinal};
use crate::workloads::{
    deployment::plan::scaled,
    object::{Object, set_count},
    pod::{Phase, Pod},
    revisions::HASH,
};

/// Something to do about a pod.
#[derive(Debug, Clone, PartialEq)]
pub enum PodStep<'p> {
    /// Create the pod of an ordinal, with the current template or with the new one.
    Create {
        /// The ordinal.
        ordinal: i64,
        /// Whether it gets the new template.
        is_updated: bool,
    },
    /// Delete a pod.
    Delete(&'p Pod),
    /// Give a pod back the labels that it has lost.
    Label(&'p Pod, Value),
    /// Create the claims of a pod that waits for them.
    Claim(i64),
}

/// A StatefulSet with its pods.
#[derive(Debug)]
pub struct Observed<'s> {
    set: &'s Object,
    current: &'s str,
    update: &'s str,
    /// The pods of the ordinals that the StatefulSet has.
    replicas: BTreeMap<i64, &'s Pod>,
    /// The others, the highest ordinals first.
    pub condemned: Vec<&'s Pod>,
    now: Timestamp,
}

fn revision(pod: &Pod) -> &str {
    pod.meta.label(HASH).unwrap_or_default()
}

impl<'s> Observed<'s> {
    /// Sorts the pods of a StatefulSet; `current` and `update` are the names of its revisions.
    #[must_use]
    pub fn of(set: &'s Object, pods: &[&'s Pod], current: &'s str, update: &'s str, now: Timestamp) -> Self {
        let mut observed =
            Self { set, current, update, replicas: BTreeMap::new(), condemned: Vec::new(), now };
        let range = observed.range();
        let mut numbered: Vec<(i64, &Pod)> =
            pods.iter().filter_map(|pod| Some((ordinal(set, pod)?, *pod))).collect();
        numbered.sort_by_key(|(ordinal, _)| std::cmp::Reverse(*ordinal));
        for (ordinal, pod) in numbered {
            if range.contains(&ordinal) {
                observed.replicas.insert(ordinal, pod);
            } else {
                observed.condemned.push(pod);
            }
        }
        observed
    }

    /// The ordinals that the StatefulSet has.
    #[must_use]
    pub fn range(&self) -> std::ops::Range<i64> {
        let start = self.set.count("/spec/ordinals/start");
        start..start.saturating_add(self.set.replicas())
    }

    /// The pods that are to be there.
    pub fn replicas(&self) -> impl Iterator<Item = (i64, &'s Pod)> + '_ {
        self.replicas.iter().map(|(ordinal, pod)| (*ordinal, *pod))
    }

    fn is_ready(pod: &Pod) -> bool {
        pod.phase == Phase::Running && pod.is_ready
    }

    fn is_available(&self, pod: &Pod) -> bool {
        Self::is_ready(pod) && pod.is_available(self.set.count("/spec/minReadySeconds"), self.now)
    }

    fn is_healthy(pod: &Pod) -> bool {
        Self::is_ready(pod) && !pod.meta.is_deleting()
    }

    fn is_rolling(&self) -> bool {
        self.set.text("/spec/updateStrategy/type") != "OnDelete"
    }

    fn partition(&self) -> i64 {
        self.set.count("/spec/updateStrategy/rollingUpdate/partition")
    }

    /// Whether a new pod of an ordinal gets the new template.
    fn is_updated(&self, ordinal: i64) -> bool {
        !(self.is_rolling() && ordinal < self.range().start.saturating_add(self.partition()))
    }

    /// What is next: one thing after the other, or all at once if pods are managed in parallel.
    #[must_use]
    pub fn steps(&self) -> Vec<PodStep<'s>> {
        if self.set.meta.is_deleting() {
            return Vec::new();
        }
        let is_ordered = self.set.text("/spec/podManagementPolicy") != "Parallel";
        let mut steps = Vec::new();
        let mut is_blocked = false;
        for ordinal in self.range() {
            let Some(pod) = self.replicas.get(&ordinal).copied() else {
                steps.push(PodStep::Create { ordinal, is_updated: self.is_updated(ordinal) });
                is_blocked = true;
                if is_ordered {
                    return steps;
                }
                continue;
            };
            if pod.is_finished() {
                // It is created again once it is gone.
                if !pod.meta.is_deleting() {
                    steps.push(PodStep::Delete(pod));
                }
                if is_ordered {
                    return steps;
                }
                continue;
            }
            if pod.phase == Phase::Pending && !pod.meta.is_deleting() {
                steps.push(PodStep::Claim(ordinal));
            }
            if let Some(change) = identity(pod, ordinal) {
                steps.push(PodStep::Label(pod, change));
            }
            if is_ordered && (pod.meta.is_deleting() || !self.is_available(pod)) {
                return steps;
            }
        }
        let first_unhealthy = self.replicas.values().find(|pod| !Self::is_healthy(pod));
        let first_unhealthy =
            first_unhealthy.or_else(|| self.condemned.iter().rev().find(|pod| !Self::is_healthy(pod)));
        for pod in &self.condemned {
            if pod.meta.is_deleting() {
                if is_ordered {
                    return steps;
                }
                continue;
            }
            let is_first = first_unhealthy.is_some_and(|first| first.meta.uid == pod.meta.uid);
            if is_ordered && !self.is_available(pod) && !is_first {
                return steps;
            }
            steps.push(PodStep::Delete(pod));
            if is_ordered {
                return steps;
            }
        }
        if !is_blocked && self.is_rolling() {
            steps.extend(self.roll());
        }
        steps
    }

    /// Deletes pods with an old template, the highest ordinals first.
    fn roll(&self) -> Vec<PodStep<'s>> {
        let first = self.range().start.saturating_add(self.partition());
        let most = self.set.at("/spec/updateStrategy/rollingUpdate/maxUnavailable");
        let most = if most.is_null() { 1 } else { scaled(most, self.set.replicas(), true).max(1) };
        let is_old = |pod: &Pod| revision(pod) != self.update && !pod.meta.is_deleting();
        let candidates = self.replicas.range(first..).rev().map(|(_, pod)| *pod);
        if most == 1 {
            for pod in candidates {
                if is_old(pod) {
                    return vec![PodStep::Delete(pod)];
                }
                if !Self::is_healthy(pod) {
                    return Vec::new();
                }
            }
            return Vec::new();
        }
        let is_missing = |pod: &Pod| pod.meta.is_deleting() || !self.is_available(pod);
        let missing = self.replicas.values().filter(|pod| is_missing(pod)).count();
        let mut free = usize::try_from(most).unwrap_or(usize::MAX).saturating_sub(missing);
        let mut steps = Vec::new();
        for pod in candidates.filter(|pod| is_old(pod)) {
            // One that is missing already costs nothing.
            if is_missing(pod) {
                steps.push(PodStep::Delete(pod));
            } else if free > 0 {
                free -= 1;
                steps.push(PodStep::Delete(pod));
            }
        }
        steps
    }

    /// The status, and when it changes without an event.
    #[must_use]
    pub fn status(&self) -> (Value, Option<SignedDuration>) {
        let all: Vec<&Pod> = self.replicas.values().chain(&self.condemned).copied().collect();
        let count = |of: &dyn Fn(&Pod) -> bool| {
            i64::try_from(all.iter().filter(|pod| of(pod)).count()).unwrap_or(i64::MAX)
        };
        let has = |name: &str| count(&|pod| revision(pod) == name && !pod.meta.is_deleting());
        let (replicas, ready) = (count(&|_| true), count(&Self::is_ready));
        let updated = has(self.update);
        let is_complete = self.is_rolling()
            && updated == self.set.replicas()
            && ready == self.set.replicas()
            && replicas == self.set.replicas();
        let (current, current_replicas) =
            if is_complete { (self.update, updated) } else { (self.current, has(self.current)) };
        let mut status: Map<String, Value> = self.set.at("/status").as_object().cloned().unwrap_or_default();
        status.insert("observedGeneration".to_owned(), self.set.meta.generation.into());
        status.insert("replicas".to_owned(), replicas.into());
        set_count(&mut status, "readyReplicas", ready);
        set_count(&mut status, "currentReplicas", current_replicas);
        set_count(&mut status, "updatedReplicas", updated);
        status.insert("currentRevision".to_owned(), current.into());
        status.insert("updateRevision".to_owned(), self.update.into());
        let collisions = self.set.count("/status/collisionCount");
        status.insert("collisionCount".to_owned(), collisions.into());
        let available = count(&|pod| self.is_available(pod));
        status.insert("availableReplicas".to_owned(), available.into());
        let min_ready = self.set.count("/spec/minReadySeconds");
        let next = all.iter().filter_map(|pod| pod.available_in(min_ready, self.now)).min();
        (Value::Object(status), next)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::{Observed, PodStep};
    use crate::workloads::{mirror::Mirrored as _, object::Object, pod::Pod};

    fn now() -> Timestamp {
        "2026-01-01T01:00:00Z".parse().unwrap()
    }

    fn set(replicas: i64, more: &Value) -> Object {
        let mut set = json!({"metadata": {"name": "web", "namespace": "n", "uid": "u", "generation": 1},
            "spec": {"replicas": replicas, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}}});
        for (key, value) in more.as_object().into_iter().flatten() {
            set["spec"][key] = value.clone();
        }
        Object::of(set).unwrap()
    }

    /// Pods as `ORDINAL:REVISION:STATE`, where the state is Ready, Pending, Failed, or Gone for one on its way out.
    fn pods(text: &str) -> Vec<Pod> {
        let read = |one: &str| {
            let parts: Vec<&str> = one.split(':').collect();
            let name = format!("web-{}", parts[0]);
            let (phase, ready) = match parts[2] {
                "Ready" | "Gone" => ("Running", "True"),
                phase => (phase, "False"),
            };
            let mut metadata = json!({"name": name, "uid": name, "labels": {"controller-revision-hash": parts[1],
                "statefulset.kubernetes.io/pod-name": name, "apps.kubernetes.io/pod-index": parts[0]}});
            if parts[2] == "Gone" {
                metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            let status = json!({"phase": phase, "conditions": [{"type": "Ready", "status": ready,
                "lastTransitionTime": "2026-01-01T00:59:50Z"}]});
            Pod::read(&json!({"metadata": metadata, "status": status}).to_string()).unwrap()
        };
        text.split_whitespace().map(read).collect()
    }

    fn short(steps: &[PodStep<'_>]) -> String {
        let one = |step: &PodStep<'_>| match step {
            PodStep::Create { ordinal, is_updated } => {
                format!("+{ordinal}{}", if *is_updated { "" } else { " old" })
            }
            PodStep::Delete(pod) => format!("-{}", pod.meta.name),
            PodStep::Label(pod, _) => format!("label {}", pod.meta.name),
            PodStep::Claim(ordinal) => format!("claim {ordinal}"),
        };
        steps.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn pods_come_and_go_in_order_unless_they_are_parallel() {
        let plain = json!({});
        let parallel = json!({"podManagementPolicy": "Parallel"});
        for (case, replicas, spec, known, expected) in [
            ("the first", 3, &plain, "", "+0"),
            ("waits for the first", 3, &plain, "0:b:Pending", "claim 0"),
            ("the second", 3, &plain, "0:b:Ready", "+1"),
            ("a gap is filled first", 3, &plain, "0:b:Ready 2:b:Ready", "+1"),
            ("a failed one goes", 2, &plain, "0:b:Ready 1:b:Failed", "-web-1"),
            ("one on its way out holds up the rest", 2, &plain, "0:b:Gone", ""),
            ("scaled down, the highest first", 1, &plain, "0:b:Ready 1:b:Ready 2:b:Ready", "-web-2"),
            ("not while one is on its way out", 1, &plain, "0:b:Ready 1:b:Ready 2:b:Gone", ""),
            ("not while another is not ready", 1, &plain, "0:b:Pending 1:b:Ready", "claim 0"),
            (
                "nor before one that is not ready itself",
                1,
                &plain,
                "0:b:Ready 1:b:Pending 2:b:Ready",
                "-web-2",
            ),
            ("but that one goes", 1, &plain, "0:b:Ready 1:b:Pending", "-web-1"),
            ("all at once", 3, &parallel, "", "+0, +1, +2"),
            ("all at once, down", 0, &parallel, "0:b:Ready 1:b:Pending", "-web-1, -web-0"),
            ("another start", 2, &json!({"ordinals": {"start": 5}}), "5:b:Ready", "+6"),
            ("not long enough ready", 2, &json!({"minReadySeconds": 30}), "0:b:Ready", ""),
        ] {
            let (set, known) = (set(replicas, spec), pods(known));
            let known: Vec<&Pod> = known.iter().collect();
            assert_eq!(short(&Observed::of(&set, &known, "b", "b", now()).steps()), expected, "{case}");
        }
    }

    #[test]
    fn an_update_goes_from_the_highest_ordinal_to_the_partition() {
        let rolling =
            |more: Value| json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": more}});
        let all = "0:a:Ready 1:a:Ready 2:a:Ready";
        for (case, spec, known, expected) in [
            ("the highest first", rolling(json!({})), all, "-web-2"),
            ("created anew", rolling(json!({})), "0:a:Ready 1:a:Ready", "+2"),
            ("waits for it", rolling(json!({})), "0:a:Ready 1:a:Ready 2:b:Pending", "claim 2"),
            ("the next", rolling(json!({})), "0:a:Ready 1:a:Ready 2:b:Ready", "-web-1"),
            ("down to the partition", rolling(json!({"partition": 2})), "0:a:Ready 1:a:Ready 2:b:Ready", ""),
            ("below it, the old template", rolling(json!({"partition": 2})), "0:a:Ready 2:b:Ready", "+1 old"),
            ("two at a time", rolling(json!({"maxUnavailable": 2})), all, "-web-2, -web-1"),
            ("no more than two", rolling(json!({"maxUnavailable": 2})), "0:a:Ready 1:a:Ready 2:b:Gone", ""),
            ("only by hand", json!({"updateStrategy": {"type": "OnDelete"}}), all, ""),
        ] {
            let (set, known) = (set(3, &spec), pods(known));
            let known: Vec<&Pod> = known.iter().collect();
            assert_eq!(short(&Observed::of(&set, &known, "a", "b", now()).steps()), expected, "{case}");
        }
    }

    #[test]
    fn the_new_revision_becomes_current_when_every_pod_has_it() {
        let set = set(2, &json!({}));
        for (case, known, expected) in [
            ("half", "0:a:Ready 1:b:Ready", ("a", json!(1), json!(1))),
            ("not ready", "0:b:Pending 1:b:Ready", ("a", json!(null), json!(2))),
            ("complete", "0:b:Ready 1:b:Ready", ("b", json!(2), json!(2))),
        ] {
            let known = pods(known);
            let known: Vec<&Pod> = known.iter().collect();
            let (status, _) = Observed::of(&set, &known, "a", "b", now()).status();
            let found = (status["currentRevision"].as_str().unwrap(), status["currentReplicas"].clone());
            assert_eq!((found.0, found.1, status["updatedReplicas"].clone()), expected, "{case}");
        }
    }

    #[test]
    fn pods_get_back_the_labels_that_they_have_lost() {
        let mut known = pods("0:b:Ready");
        known[0].meta.labels.remove("apps.kubernetes.io/pod-index");
        let known: Vec<&Pod> = known.iter().collect();
        assert_eq!(short(&Observed::of(&set(1, &json!({})), &known, "b", "b", now()).steps()), "label web-0");
    }
}
