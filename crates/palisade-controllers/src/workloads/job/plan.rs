//! Which pods of a Job to create and delete, which ones are counted, and the status. Pure.
//!
//! A pod is counted in three writes, so that none is lost or counted twice: its uid goes to `status.uncountedTerminatedPods`, its
//! finalizer goes, and its uid moves to the counter.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::{
    account::{Account, KEYS, count, set_condition, settle, write_uncounted},
    indexes::Indexes,
    pods::{all_failures, ended, failures, index, is_failed, is_tracked, replaces_failed_only},
    policy::{Failure, failure, success},
};
use crate::workloads::{
    object::{Object, set_count, stamp},
    pod::{Phase, Pod},
};

/// At most so many pods are made or deleted at a time.
const BURST: i64 = 500;
/// At most so many pods are counted at a time.
const MOST_UNCOUNTED: usize = 500;
const FIRST_BACKOFF: i64 = 10;
const LONGEST_BACKOFF: i64 = 600;

/// A condition that is to be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// `FailureTarget` or `SuccessCriteriaMet`.
    pub kind: &'static str,
    /// The reason.
    pub reason: String,
    /// The message.
    pub message: String,
}

impl Ending {
    const TARGET: &'static str = "FailureTarget";
    const CRITERIA: &'static str = "SuccessCriteriaMet";

    fn failed(reason: &str, message: &str) -> Self {
        Self { kind: Self::TARGET, reason: reason.to_owned(), message: message.to_owned() }
    }

    /// Whether the Job succeeds.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.kind == Self::CRITERIA
    }

    /// The final condition.
    #[must_use]
    pub fn last(&self) -> &'static str {
        if self.is_success() { "Complete" } else { "Failed" }
    }
}

fn condition<'c>(job: &'c Object, kind: &str) -> Option<&'c Value> {
    job.list("/status/conditions").iter().find(|one| one["type"] == kind && one["status"] == "True")
}

/// Whether a Job has completed or failed.
#[must_use]
pub fn is_finished(job: &Object) -> bool {
    condition(job, "Complete").is_some() || condition(job, "Failed").is_some()
}

/// When a Job completed or failed.
#[must_use]
pub fn finish_time(job: &Object) -> Option<Timestamp> {
    let last = condition(job, "Complete").or_else(|| condition(job, "Failed"))?;
    last["lastTransitionTime"].as_str()?.parse().ok()
}

/// Whether no pods are to run for now.
#[must_use]
pub fn is_suspended(job: &Object) -> bool {
    job.at("/spec/suspend") == true
}

fn is_indexed(job: &Object) -> bool {
    job.text("/spec/completionMode") == "Indexed"
}

/// Failures since the last success, which delay the next pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failures {
    /// How many.
    pub count: u32,
    /// The last one.
    pub last: Option<Timestamp>,
}

impl Failures {
    fn and(&self, succeeded: &[&Pod], failed: &[&Pod]) -> Self {
        let since = succeeded.iter().filter_map(|pod| ended(pod)).max();
        let mut record = if since.is_some() { Self::default() } else { self.clone() };
        for at in
            failed.iter().filter_map(|pod| ended(pod)).filter(|at| since.is_none_or(|since| *at > since))
        {
            record.count = record.count.saturating_add(1);
            record.last = record.last.max(Some(at));
        }
        record
    }

    /// How long until the next pod.
    fn left(&self, now: Timestamp) -> Option<SignedDuration> {
        let doublings = self.count.checked_sub(1)?.min(10);
        let wait = (FIRST_BACKOFF << doublings).min(LONGEST_BACKOFF);
        let left = SignedDuration::from_secs(wait) - now.duration_since(self.last?);
        left.is_positive().then_some(left)
    }
}

/// What is to be done about the pods.
#[derive(Debug, Clone, PartialEq)]
pub enum PodChange<'p> {
    /// Nothing.
    None,
    /// Create these; each with its index, if there are indexes, and the pod that it replaces.
    Create(Vec<(Option<i64>, Option<&'p Pod>)>),
    /// Delete these, which are too many: they are not counted.
    Remove(Vec<&'p Pod>),
    /// Delete all that run: the Job ends, and they are counted.
    End(Vec<&'p Pod>),
}

/// What came of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Changed {
    /// How many were created.
    pub created: i64,
    /// How many were deleted.
    pub deleted: i64,
    /// How many of these were ready.
    pub deleted_ready: i64,
}

/// A Job with its pods, as they are.
#[derive(Debug)]
pub struct Observed<'j> {
    job: &'j Object,
    pods: Vec<&'j Pod>,
    active: Vec<&'j Pod>,
    ready: i64,
    terminating: i64,
    succeeded: i64,
    uncounted: [BTreeSet<&'j str>; 2],
    known: Indexes,
    succeeded_indexes: Indexes,
    failed_indexes: Option<Indexes>,
    delayed: BTreeMap<i64, &'j Pod>,
    /// Failures with those of this round.
    pub failures: Failures,
    /// Why the Job ends, if it does.
    pub ending: Option<Ending>,
    now: Timestamp,
}

const SUCCEEDED: usize = 0;
const FAILED: usize = 1;

impl<'j> Observed<'j> {
    /// Counts the pods of a Job.
    #[must_use]
    pub fn of(job: &'j Object, pods: Vec<&'j Pod>, record: &Failures, now: Timestamp) -> Self {
        let uids = |key: &str| -> BTreeSet<&'j str> {
            job.at("/status/uncountedTerminatedPods")[key]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect()
        };
        let mut pods = pods;
        // Indexes are counted in their order.
        pods.sort_by_key(|pod| index(pod));
        let active: Vec<&Pod> = pods.iter().copied().filter(|pod| pod.is_active()).collect();
        let mut observed = Self {
            job,
            ready: count(active.iter().filter(|pod| pod.is_ready)),
            terminating: count(pods.iter().filter(|pod| pod.meta.is_deleting() && !pod.is_finished())),
            active,
            pods,
            succeeded: 0,
            uncounted: KEYS.map(uids),
            known: Indexes::default(),
            succeeded_indexes: Indexes::default(),
            failed_indexes: None,
            delayed: BTreeMap::new(),
            failures: Failures::default(),
            ending: None,
            now,
        };
        let succeeded = observed.finished(SUCCEEDED);
        let failed = observed.finished(FAILED);
        observed.failures = record.and(&succeeded, &failed);
        let uncounted = |which: usize| count(observed.uncounted[which].iter());
        observed.succeeded = job.count("/status/succeeded") + count(succeeded.iter()) + uncounted(SUCCEEDED);
        let counted = failed.iter().filter(|pod| failure(job, pod).is_counted());
        let failed = job.count("/status/failed") + count(counted) + uncounted(FAILED);
        if is_indexed(job) {
            observed.count_indexes();
        }
        observed.ending = observed.ends(failed);
        observed
    }

    fn completions(&self) -> Option<i64> {
        self.job.int("/spec/completions")
    }

    /// The index of a pod, if the Job has it.
    fn valid_index(&self, pod: &Pod) -> Option<i64> {
        index(pod).filter(|index| self.completions().is_some_and(|completions| *index < completions))
    }

    /// Pods that have ended and are not in the status yet.
    fn finished(&self, which: usize) -> Vec<&'j Pod> {
        let is_new = |pod: &&&Pod| {
            is_tracked(pod)
                && !self.uncounted[which].contains(&*pod.meta.uid)
                && (!is_indexed(self.job) || self.valid_index(pod).is_some())
        };
        let is_it = |pod: &Pod| match which {
            SUCCEEDED => pod.phase == Phase::Succeeded,
            _ => is_failed(self.job, pod),
        };
        self.pods.iter().filter(is_new).copied().filter(|pod| is_it(pod)).collect()
    }

    fn count_indexes(&mut self) {
        let job = self.job;
        let completions = self.completions().unwrap_or_default();
        self.known = Indexes::read(job.text("/status/completedIndexes"), completions);
        self.succeeded_indexes = self.known.clone();
        let tracked: Vec<(i64, &Pod)> = self
            .pods
            .iter()
            .filter(|pod| is_tracked(pod))
            .filter_map(|pod| Some((self.valid_index(pod)?, *pod)))
            .collect();
        for (index, _) in tracked.iter().filter(|(_, pod)| pod.phase == Phase::Succeeded) {
            self.succeeded_indexes.insert(*index);
        }
        self.succeeded = self.succeeded_indexes.len();
        let Some(limit) = job.int("/spec/backoffLimitPerIndex") else { return };
        let mut failed_indexes = Indexes::read(job.text("/status/failedIndexes"), completions);
        for (index, pod) in tracked.iter().filter(|(_, pod)| is_failed(job, pod)) {
            let is_over = match failure(job, pod) {
                Failure::Index => true,
                Failure::Ignore => false,
                Failure::Count | Failure::Job(_) => failures(pod) >= limit,
            };
            if is_over {
                failed_indexes.insert(*index);
            }
        }
        let active: BTreeSet<i64> = self.active.iter().filter_map(|pod| index(pod)).collect();
        for (index, pod) in tracked.into_iter().filter(|(_, pod)| is_failed(job, pod)) {
            let is_over = active.contains(&index)
                || self.succeeded_indexes.contains(index)
                || failed_indexes.contains(index);
            let rank = |pod: &Pod| (all_failures(pod), ended(pod));
            if !is_over && self.delayed.get(&index).is_none_or(|known| rank(known) <= rank(pod)) {
                // It passes its failures on to the pod that replaces it.
                self.delayed.insert(index, pod);
            }
        }
        self.failed_indexes = Some(failed_indexes);
    }

    /// Why the Job ends, if it does.
    fn ends(&self, failed: i64) -> Option<Ending> {
        let job = self.job;
        for kind in [Ending::CRITERIA, Ending::TARGET] {
            if let Some(known) = condition(job, kind) {
                let text = |key: &str| known[key].as_str().unwrap_or_default().to_owned();
                return Some(Ending { kind, reason: text("reason"), message: text("message") });
            }
        }
        let fails =
            self.pods.iter().filter(|pod| is_failed(job, pod)).find_map(|pod| match failure(job, pod) {
                Failure::Job(why) => Some(why),
                _ => None,
            });
        if let Some(why) = fails {
            return Some(Ending::failed("PodFailurePolicy", &why));
        }
        let limit = job.int("/spec/backoffLimit").unwrap_or(6);
        if failed > limit || self.restarts_exceed(limit) {
            return Some(Ending::failed(
                "BackoffLimitExceeded",
                "Job has reached the specified backoff limit",
            ));
        }
        if self.deadline_in().is_some_and(|left| !left.is_positive()) {
            return Some(Ending::failed("DeadlineExceeded", "Job was active longer than specified deadline"));
        }
        if !is_indexed(job) {
            return None;
        }
        let completions = self.completions().unwrap_or_default();
        if let Some(failed) = &self.failed_indexes {
            if job.int("/spec/maxFailedIndexes").is_some_and(|most| failed.len() > most) {
                let text = "Job has exceeded the specified maximal number of failed indexes";
                return Some(Ending::failed("MaxFailedIndexesExceeded", text));
            }
            if !failed.is_empty() && failed.len() + self.succeeded_indexes.len() >= completions {
                return Some(Ending::failed("FailedIndexes", "Job has failed indexes"));
            }
        }
        let met = success(job, &self.succeeded_indexes, completions)?;
        Some(Ending { kind: Ending::CRITERIA, reason: "SuccessPolicy".to_owned(), message: met })
    }

    fn restarts_exceed(&self, limit: i64) -> bool {
        if self.job.text("/spec/template/spec/restartPolicy") != "OnFailure" {
            return false;
        }
        let running = self.pods.iter().filter(|pod| matches!(pod.phase, Phase::Running | Phase::Pending));
        let restarts: i64 = running.map(|pod| pod.all_restarts).sum();
        if limit == 0 { restarts > 0 } else { restarts >= limit }
    }

    /// How long the Job may still be active.
    #[must_use]
    pub fn deadline_in(&self) -> Option<SignedDuration> {
        let seconds = self.job.int("/spec/activeDeadlineSeconds")?;
        if is_suspended(self.job) {
            return None;
        }
        let since = self.job.text("/status/startTime").parse().unwrap_or(self.now);
        Some(SignedDuration::from_secs(seconds) - self.now.duration_since(since))
    }

    /// What is to be done about the pods, and when to look again.
    #[must_use]
    pub fn change(&self) -> (PodChange<'j>, Option<SignedDuration>) {
        let (change, again) = match &self.ending {
            Some(_) if self.active.is_empty() => (PodChange::None, None),
            Some(_) => (PodChange::End(self.active.clone()), None),
            None if self.job.meta.is_deleting() => (PodChange::None, None),
            None => self.manage(),
        };
        (change, again.into_iter().chain(self.deadline_in().filter(SignedDuration::is_positive)).min())
    }

    fn manage(&self) -> (PodChange<'j>, Option<SignedDuration>) {
        let active = count(self.active.iter());
        let parallelism = self.job.int("/spec/parallelism").unwrap_or(1);
        let wanted = match self.completions() {
            _ if is_suspended(self.job) => 0,
            None if self.succeeded > 0 => active,
            None => parallelism,
            Some(completions) => (completions - self.succeeded).clamp(0, parallelism.max(0)),
        };
        let surplus = self.surplus((active - wanted).max(0));
        if !surplus.is_empty() {
            return (PodChange::Remove(surplus), None);
        }
        let held = if replaces_failed_only(self.job) { self.terminating } else { 0 };
        let missing = (wanted - held - active).min(BURST);
        if missing <= 0 || is_suspended(self.job) {
            return (PodChange::None, None);
        }
        let is_per_index = self.failed_indexes.is_some();
        if !is_per_index && let Some(left) = self.failures.left(self.now) {
            return (PodChange::None, Some(left));
        }
        if !is_indexed(self.job) {
            let none = usize::try_from(missing).unwrap_or_default();
            return (PodChange::Create(vec![(None, None); none]), None);
        }
        let mut taken = self.succeeded_indexes.clone();
        let replaces_failed_only = replaces_failed_only(self.job);
        for pod in &self.pods {
            let holds =
                pod.is_active() || (replaces_failed_only && pod.meta.is_deleting() && !pod.is_finished());
            if let Some(index) = index(pod).filter(|_| holds) {
                taken.insert(index);
            }
        }
        let is_failed =
            |index: &i64| self.failed_indexes.as_ref().is_some_and(|failed| failed.contains(*index));
        let free = taken.missing(self.completions().unwrap_or_default()).filter(|index| !is_failed(index));
        let free: Vec<i64> = free.take(usize::try_from(missing).unwrap_or_default()).collect();
        let (mut create, mut waits) = (Vec::new(), Vec::new());
        for index in free {
            let replaced = self.delayed.get(&index).copied();
            let wait = replaced.and_then(|pod| {
                let count = u32::try_from(all_failures(pod) + 1).unwrap_or(u32::MAX);
                Failures { count, last: ended(pod) }.left(self.now)
            });
            match wait {
                Some(wait) => waits.push(wait),
                None => create.push((Some(index), replaced)),
            }
        }
        (PodChange::Create(create), waits.into_iter().min())
    }

    /// The pods to delete: those of an index that the Job does not have or has already, and the ones that are worth least.
    fn surplus(&self, least: i64) -> Vec<&'j Pod> {
        let (mut surplus, mut left) = (Vec::new(), self.active.clone());
        left.sort_by_key(|pod| {
            (
                !pod.node.is_empty(),
                pod.phase != Phase::Pending,
                pod.is_ready,
                pod.meta.created.map(std::cmp::Reverse),
            )
        });
        if is_indexed(self.job) && !is_suspended(self.job) {
            // Of two pods of an index, the one that is worth more stays.
            let mut seen = BTreeSet::new();
            let mut kept = Vec::new();
            for pod in left.iter().rev() {
                match self.valid_index(pod) {
                    Some(index) if seen.insert(index) => kept.push(*pod),
                    _ => surplus.push(*pod),
                }
            }
            kept.reverse();
            left = kept;
        }
        let more = usize::try_from(least).unwrap_or_default().saturating_sub(surplus.len());
        surplus.extend(left.into_iter().take(more));
        surplus.truncate(usize::try_from(BURST).unwrap_or(usize::MAX));
        surplus
    }

    /// The status before finalizers are removed, the pods to remove them from, and how the Job ends.
    #[must_use]
    pub fn account(&self, changed: Changed) -> Account<'j> {
        let job = self.job;
        let mut status: Map<String, Value> = job.at("/status").as_object().cloned().unwrap_or_default();
        let active = count(self.active.iter()) + changed.created - changed.deleted;
        let mut ending = self.ending.clone();
        let mut suspension = None;
        let mut conditions = job.list("/status/conditions").to_vec();
        let mut start = job.at("/status/startTime").clone();
        if start.is_null() && !is_suspended(job) {
            start = json!(stamp(self.now));
        }
        if ending.is_some() {
            // Pods that could not be deleted may still run.
            ending = ending.filter(|_| active == 0);
        } else if active == 0 && self.completions().map_or(self.succeeded > 0, |all| self.succeeded >= all) {
            ending = Some(Ending {
                kind: Ending::CRITERIA,
                reason: "CompletionsReached".to_owned(),
                message: "Reached expected number of succeeded pods".to_owned(),
            });
        } else if !job.meta.is_deleting() {
            let is_suspended = is_suspended(job);
            let is = if is_suspended {
                ("True", "JobSuspended", "Job suspended")
            } else {
                ("False", "JobResumed", "Job resumed")
            };
            if set_condition(&mut conditions, "Suspended", is, self.now) {
                suspension = Some(is_suspended);
                if !is_suspended {
                    start = json!(stamp(self.now));
                }
            }
        }
        status.insert("startTime".to_owned(), start);
        set_count(&mut status, "active", active);
        status.insert("ready".to_owned(), json!(self.ready - changed.deleted_ready));
        let terminating = self.terminating + changed.deleted;
        status.insert("terminating".to_owned(), json!(terminating));
        let (release, is_all) = self.release(&mut status, ending.as_ref());
        if let Some(ending) = &ending
            && condition(job, ending.kind).is_none()
        {
            let is = ("True", ending.reason.as_str(), ending.message.as_str());
            set_condition(&mut conditions, ending.kind, is, self.now);
        }
        if conditions.is_empty() {
            status.remove("conditions");
        } else {
            status.insert("conditions".to_owned(), conditions.into());
        }
        if status.get("startTime").is_some_and(Value::is_null) {
            status.remove("startTime");
        }
        let with_finalizer =
            self.pods.iter().filter(|pod| is_tracked(pod)).map(|pod| pod.meta.uid.to_string()).collect();
        Account {
            status,
            release,
            ending: ending.filter(|_| is_all && terminating == 0),
            suspension,
            with_finalizer,
        }
    }

    /// Counts the pods that have ended; those that may go, and whether they are all of them.
    fn release(&self, status: &mut Map<String, Value>, ending: Option<&Ending>) -> (Vec<&'j Pod>, bool) {
        let is_indexed = is_indexed(self.job);
        let with_finalizer: BTreeSet<String> =
            self.pods.iter().filter(|pod| is_tracked(pod)).map(|pod| pod.meta.uid.to_string()).collect();
        settle(status, &with_finalizer);
        let mut uncounted: [Vec<Value>; 2] =
            KEYS.map(|key| status["uncountedTerminatedPods"][key].as_array().cloned().unwrap_or_default());
        let mut completed = self.known.clone();
        let (mut new_indexes, mut is_all, mut release) = (0, true, Vec::new());
        for pod in self.pods.iter().copied().filter(|pod| is_tracked(pod)) {
            let has_failed = is_failed(self.job, pod);
            let is_delayed = || {
                let last = index(pod).and_then(|index| self.delayed.get(&index));
                last.is_some_and(|last| last.meta.uid == pod.meta.uid)
            };
            let may_go = self.job.meta.is_deleting()
                || ending.is_some()
                || pod.phase == Phase::Succeeded
                || (has_failed && !is_delayed());
            if !may_go {
                continue;
            }
            release.push(pod);
            let uid = json!(pod.meta.uid);
            let index = self.valid_index(pod);
            if pod.phase == Phase::Succeeded && !self.uncounted[FAILED].contains(&*pod.meta.uid) {
                if is_indexed {
                    if let Some(index) = index.filter(|index| !self.known.contains(*index)) {
                        completed.insert(index);
                        new_indexes += 1;
                    }
                } else if !uncounted[SUCCEEDED].contains(&uid) {
                    uncounted[SUCCEEDED].push(uid);
                }
            } else if (has_failed || ending.is_some_and(|ending| !ending.is_success()))
                && !uncounted[FAILED].contains(&uid)
                && (!is_indexed || index.is_some())
                && failure(self.job, pod).is_counted()
            {
                uncounted[FAILED].push(uid);
            }
            if new_indexes + uncounted[SUCCEEDED].len() + uncounted[FAILED].len() >= MOST_UNCOUNTED {
                is_all = false;
                break;
            }
        }
        if is_indexed {
            set_count(status, "succeeded", completed.len());
            status.insert("completedIndexes".to_owned(), json!(completed.to_string()));
            if completed.is_empty() {
                status.remove("completedIndexes");
            }
            if let Some(failed) = &self.failed_indexes {
                status.insert("failedIndexes".to_owned(), json!(failed.to_string()));
            }
        }
        write_uncounted(status, uncounted);
        (release, is_all)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::{Changed, Failures, Observed, PodChange};
    use crate::workloads::{
        job::account::{finish, settle},
        mirror::Mirrored as _,
        object::Object,
        pod::Pod,
    };

    const NOW: &str = "2026-01-01T01:00:00Z";

    fn now() -> Timestamp {
        NOW.parse().unwrap()
    }

    fn job(spec: &Value, status: &Value) -> Object {
        Object::of(
            json!({"metadata": {"name": "j", "namespace": "n", "uid": "u"}, "spec": spec, "status": status}),
        )
        .unwrap()
    }

    /// A pod that ended, if it did, so many seconds ago.
    fn pod(name: &str, phase: &str, index: Option<i64>, ago: i64, more: &Value) -> Pod {
        let ended = now() - jiff::SignedDuration::from_secs(ago);
        let state = match phase {
            "Succeeded" => json!({"terminated": {"exitCode": 0, "finishedAt": ended.to_string()}}),
            "Failed" => json!({"terminated": {"exitCode": 1, "finishedAt": ended.to_string()}}),
            _ => json!({}),
        };
        let mut metadata = json!({"name": name, "namespace": "n", "uid": name, "finalizers": ["batch.kubernetes.io/job-tracking"],
            "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {}});
        if let Some(index) = index {
            metadata["annotations"]["batch.kubernetes.io/job-completion-index"] = json!(index.to_string());
        }
        for (key, value) in more.as_object().into_iter().flatten() {
            if key == "failures" {
                metadata["annotations"]["batch.kubernetes.io/job-index-failure-count"] = value.clone();
            } else {
                metadata[key] = value.clone();
            }
        }
        let text = json!({"metadata": metadata, "status": {"phase": phase, "containerStatuses": [{"name": "c", "state": state}]}});
        Pod::read(&text.to_string()).unwrap()
    }

    fn plain(name: &str, phase: &str) -> Pod {
        pod(name, phase, None, 3600, &json!({}))
    }

    /// The change in short: `+2`, `+[0, 3]`, `-[a]`, `end [a]`.
    fn short(change: &PodChange<'_>) -> String {
        let names =
            |pods: &[&Pod]| pods.iter().map(|pod| pod.meta.name.to_string()).collect::<Vec<_>>().join(",");
        match change {
            PodChange::None => String::new(),
            PodChange::Create(pods) => match pods.first() {
                Some((Some(_), _)) => {
                    format!("+{:?}", pods.iter().filter_map(|(index, _)| *index).collect::<Vec<_>>())
                }
                _ => format!("+{}", pods.len()),
            },
            PodChange::Remove(pods) => format!("-[{}]", names(pods)),
            PodChange::End(pods) => format!("end [{}]", names(pods)),
        }
    }

    #[test]
    fn pods_are_created_and_deleted_as_the_job_wants_them() {
        let indexed = |more: Value| {
            let mut spec = json!({"completionMode": "Indexed", "completions": 5, "parallelism": 3});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            spec
        };
        let deleting = json!({"deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30});
        for (case, spec, status, pods, expected) in [
            (
                "as many as run in parallel",
                json!({"completions": 5, "parallelism": 2}),
                json!({}),
                vec![],
                "+2",
            ),
            (
                "no more than are left",
                json!({"completions": 5, "parallelism": 4}),
                json!({"succeeded": 4}),
                vec![],
                "+1",
            ),
            (
                "pods that are not counted yet count",
                json!({"completions": 2, "parallelism": 2}),
                json!({}),
                vec![plain("a", "Succeeded"), plain("b", "Running")],
                "",
            ),
            (
                "a queue: nothing more after a success",
                json!({"parallelism": 3}),
                json!({"succeeded": 1}),
                vec![plain("a", "Running")],
                "",
            ),
            (
                "fewer in parallel",
                json!({"completions": 5, "parallelism": 1}),
                json!({}),
                vec![plain("a", "Running"), plain("b", "Pending")],
                "-[b]",
            ),
            (
                "suspended",
                json!({"completions": 5, "parallelism": 2, "suspend": true}),
                json!({}),
                vec![plain("a", "Running")],
                "-[a]",
            ),
            (
                "a failed pod is replaced",
                json!({"completions": 1, "parallelism": 1}),
                json!({}),
                vec![plain("a", "Failed")],
                "+1",
            ),
            (
                "but not at once",
                json!({"completions": 1, "parallelism": 1}),
                json!({}),
                vec![pod("a", "Failed", None, 5, &json!({}))],
                "",
            ),
            (
                "too many failures",
                json!({"completions": 1, "parallelism": 2, "backoffLimit": 0}),
                json!({}),
                vec![plain("a", "Failed"), plain("b", "Running")],
                "end [b]",
            ),
            (
                "a pod on its way out is replaced",
                json!({"completions": 1, "parallelism": 1}),
                json!({}),
                vec![pod("a", "Running", None, 0, &deleting)],
                "+1",
            ),
            (
                "unless only failed ones are",
                json!({"completions": 1, "parallelism": 1, "podReplacementPolicy": "Failed"}),
                json!({}),
                vec![pod("a", "Running", None, 0, &deleting)],
                "",
            ),
            (
                "the first free indexes",
                indexed(json!({})),
                json!({"completedIndexes": "0,2"}),
                vec![pod("a", "Running", Some(1), 0, &json!({}))],
                "+[3, 4]",
            ),
            (
                "an index twice",
                indexed(json!({})),
                json!({}),
                vec![
                    pod("a", "Running", Some(1), 0, &json!({})),
                    pod("b", "Pending", Some(1), 0, &json!({})),
                ],
                "-[b]",
            ),
            (
                "an index too high",
                indexed(json!({})),
                json!({}),
                vec![pod("a", "Running", Some(9), 0, &json!({}))],
                "-[a]",
            ),
            (
                "failed indexes are left out",
                indexed(json!({"backoffLimitPerIndex": 1})),
                json!({"failedIndexes": "0"}),
                vec![pod("a", "Failed", Some(1), 3600, &json!({"failures": "1"}))],
                "+[2, 3, 4]",
            ),
            (
                "the backoff of an index holds up no other",
                indexed(json!({"backoffLimitPerIndex": 2})),
                json!({}),
                vec![pod("a", "Failed", Some(0), 1, &json!({}))],
                "+[1, 2]",
            ),
            (
                "a target stays",
                json!({"completions": 1, "parallelism": 1}),
                json!({"conditions": [{"type": "FailureTarget", "status": "True"}]}),
                vec![plain("b", "Running")],
                "end [b]",
            ),
        ] {
            let job = job(&spec, &status);
            let observed = Observed::of(&job, pods.iter().collect(), &Failures::default(), now());
            assert_eq!(short(&observed.change().0), expected, "{case}");
        }
    }

    #[test]
    fn a_job_ends_for_one_reason() {
        let running = |restarts: i64| {
            let status =
                json!({"phase": "Running", "containerStatuses": [{"name": "c", "restartCount": restarts}]});
            Pod::read(&json!({"metadata": {"name": "r", "uid": "r"}, "status": status}).to_string()).unwrap()
        };
        let policy =
            json!({"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}]});
        let indexed = json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimitPerIndex": 0});
        let with = |key: &str, value: Value| {
            let mut spec = indexed.clone();
            spec[key] = value;
            spec
        };
        let (first, second) =
            (pod("a", "Failed", Some(0), 9, &json!({})), pod("b", "Succeeded", Some(1), 9, &json!({})));
        for (case, spec, status, pods, expected) in [
            (
                "pod failure policy",
                json!({"backoffLimit": 0, "podFailurePolicy": policy}),
                json!({}),
                vec![plain("a", "Failed")],
                Some("PodFailurePolicy"),
            ),
            (
                "backoff limit",
                json!({"backoffLimit": 1}),
                json!({"failed": 1}),
                vec![plain("a", "Failed")],
                Some("BackoffLimitExceeded"),
            ),
            (
                "within the limit",
                json!({"backoffLimit": 2}),
                json!({"failed": 1}),
                vec![plain("a", "Failed")],
                None,
            ),
            (
                "restarts",
                json!({"backoffLimit": 2, "template": {"spec": {"restartPolicy": "OnFailure"}}}),
                json!({}),
                vec![running(2)],
                Some("BackoffLimitExceeded"),
            ),
            (
                "deadline",
                json!({"activeDeadlineSeconds": 60}),
                json!({"startTime": "2026-01-01T00:59:00Z"}),
                vec![],
                Some("DeadlineExceeded"),
            ),
            (
                "before the deadline",
                json!({"activeDeadlineSeconds": 61}),
                json!({"startTime": "2026-01-01T00:59:00Z"}),
                vec![],
                None,
            ),
            (
                "no deadline while suspended",
                json!({"activeDeadlineSeconds": 1, "suspend": true}),
                json!({"startTime": "2026-01-01T00:00:00Z"}),
                vec![],
                None,
            ),
            (
                "all other indexes succeeded",
                indexed.clone(),
                json!({}),
                vec![first.clone(), second.clone()],
                Some("FailedIndexes"),
            ),
            ("an index may still run", indexed.clone(), json!({}), vec![first.clone()], None),
            (
                "too many failed indexes",
                with("maxFailedIndexes", json!(0)),
                json!({}),
                vec![first.clone()],
                Some("MaxFailedIndexesExceeded"),
            ),
            (
                "success policy",
                with("successPolicy", json!({"rules": [{"succeededIndexes": "1"}]})),
                json!({}),
                vec![second.clone()],
                Some("SuccessPolicy"),
            ),
        ] {
            let job = job(&spec, &status);
            let observed = Observed::of(&job, pods.iter().collect(), &Failures::default(), now());
            assert_eq!(observed.ending.as_ref().map(|ending| ending.reason.as_str()), expected, "{case}");
        }
    }

    #[test]
    fn every_pod_is_counted_once() {
        let job = job(
            &json!({"completions": 2, "parallelism": 2}),
            &json!({"succeeded": 1, "uncountedTerminatedPods": {"succeeded": ["gone"], "failed": ["a"]}}),
        );
        let pods = [plain("a", "Failed"), plain("b", "Failed")];
        let observed = Observed::of(&job, pods.iter().collect(), &Failures::default(), now());
        let account = observed.account(Changed::default());
        let status = Value::Object(account.status.clone());
        assert_eq!(status["succeeded"], 2, "its pod has lost the finalizer");
        assert_eq!(status["uncountedTerminatedPods"], json!({"failed": ["a", "b"]}));
        assert_eq!(account.release.len(), 2);
        let ending = account.ending.unwrap();
        assert_eq!((ending.last(), ending.reason.as_str()), ("Complete", "CompletionsReached"));
        let mut status = account.status;
        assert!(!finish(&mut status, &ending, now()), "not before all are counted");
        settle(&mut status, &["b".to_owned()].into());
        assert_eq!(
            (&status["failed"], &status["uncountedTerminatedPods"]),
            (&json!(1), &json!({"failed": ["b"]}))
        );
        settle(&mut status, &std::collections::BTreeSet::new());
        assert!(finish(&mut status, &ending, now()));
        assert_eq!((&status["failed"], &status["completionTime"]), (&json!(2), &json!(NOW)));
    }

    #[test]
    fn pods_that_the_end_of_the_job_stops_count_as_failed() {
        let job = job(&json!({"completions": 2, "parallelism": 2, "backoffLimit": 0}), &json!({}));
        let pods = [plain("a", "Failed"), plain("b", "Running")];
        let observed = Observed::of(&job, pods.iter().collect(), &Failures::default(), now());
        let account = observed.account(Changed { deleted: 1, ..Changed::default() });
        let status = Value::Object(account.status);
        assert_eq!(status["uncountedTerminatedPods"], json!({"failed": ["a", "b"]}));
        assert_eq!((&status["terminating"], account.ending), (&json!(1), None), "it ends with its last pod");
        assert_eq!(status["conditions"][0]["type"], "FailureTarget");
    }

    #[test]
    fn suspending_and_resuming_is_a_condition_and_restarts_the_clock() {
        let started = "2026-01-01T00:00:00Z";
        let suspended = json!({"startTime": started, "conditions": [{"type": "Suspended", "status": "True",
            "reason": "JobSuspended", "message": "Job suspended"}]});
        for (case, suspend, status, expected, start) in [
            ("runs", false, json!({}), None, json!(NOW)),
            ("suspended from the start", true, json!({}), Some(true), json!(null)),
            ("suspended still", true, suspended.clone(), None, json!(started)),
            ("resumed", false, suspended, Some(false), json!(NOW)),
        ] {
            let job = job(&json!({"completions": 1, "parallelism": 1, "suspend": suspend}), &status);
            let observed = Observed::of(&job, vec![], &Failures::default(), now());
            let account = observed.account(Changed::default());
            assert_eq!(account.suspension, expected, "{case}");
            assert_eq!(Value::Object(account.status)["startTime"], start, "{case}");
        }
    }
}
