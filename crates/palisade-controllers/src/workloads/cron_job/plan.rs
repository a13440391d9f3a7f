//! Which Jobs of a CronJob to start and to delete, and its status. Pure.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::schedule::{ZonedSchedule, time_zone};
use crate::workloads::{
    job::plan::is_finished,
    meta::controller_reference,
    object::{Object, list, stamp},
};

/// The annotation with the moment at which a Job was due.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// More missed moments than this are reported.
const MANY: i64 = 100;
/// A Job is started so long after it is due.
const DELTA: SignedDuration = SignedDuration::from_millis(100);

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Whether it is a warning.
    pub is_warning: bool,
    /// The reason.
    pub reason: &'static str,
    /// The message.
    pub message: String,
}

impl Note {
    fn normal(reason: &'static str, message: String) -> Self {
        Self { is_warning: false, reason, message }
    }

    fn warning(reason: &'static str, message: String) -> Self {
        Self { is_warning: true, reason, message }
    }
}

fn has_ended(job: &Object, kind: &str) -> bool {
    job.list("/status/conditions").iter().any(|one| one["type"] == kind && one["status"] == "True")
}

/// Takes over in the status what has become of the Jobs.
#[must_use]
pub fn observe(cron_job: &Object, jobs: &[&Object]) -> (Map<String, Value>, Vec<Note>) {
    let mut status: Map<String, Value> = cron_job.at("/status").as_object().cloned().unwrap_or_default();
    let mut active = list(status.get("active").unwrap_or(&Value::Null)).to_vec();
    let mut notes = Vec::new();
    for job in jobs {
        let name = &job.meta.name;
        let is_listed = active.iter().any(|one| one["uid"] == *job.meta.uid);
        if !is_finished(job) {
            if !is_listed {
                let text = format!("Saw a job that the controller did not create or forgot: {name}");
                notes.push(Note::warning("UnexpectedJob", text));
            }
            continue;
        }
        if is_listed {
            active.retain(|one| one["uid"] != *job.meta.uid);
            let end = if has_ended(job, "Complete") { "Complete" } else { "Failed" };
            notes.push(Note::normal(
                "SawCompletedJob",
                format!("Saw completed job: {name}, condition: {end}"),
            ));
        }
        let completed = job.text("/status/completionTime");
        let known = status.get("lastSuccessfulTime").and_then(Value::as_str).unwrap_or_default();
        if has_ended(job, "Complete") && completed.parse::<Timestamp>().ok() > known.parse::<Timestamp>().ok()
        {
            status.insert("lastSuccessfulTime".to_owned(), json!(completed));
        }
    }
    active.retain(|one| {
        let is_there = jobs.iter().any(|job| one["uid"] == *job.meta.uid);
        if !is_there {
            let name = one["name"].as_str().unwrap_or_default();
            notes.push(Note::normal("MissingJob", format!("Active job went missing: {name}")));
        }
        is_there
    });
    set_active(&mut status, active);
    (status, notes)
}

/// Writes the list of Jobs that run.
pub fn set_active(status: &mut Map<String, Value>, active: Vec<Value>) {
    if active.is_empty() {
        status.remove("active");
    } else {
        status.insert("active".to_owned(), active.into());
    }
}

/// The reference of a Job in the list of those that run.
#[must_use]
pub fn reference(job: &Object) -> Value {
    json!({"kind": "Job", "namespace": job.meta.namespace, "name": job.meta.name, "uid": job.meta.uid,
        "apiVersion": "batch/v1", "resourceVersion": job.meta.revision.to_string()})
}

/// The finished Jobs beyond the limits of the history, the oldest ones.
#[must_use]
pub fn expired<'j>(cron_job: &Object, jobs: &[&'j Object]) -> Vec<&'j Object> {
    let beyond = |kind: &str, limit: &str| {
        let Some(limit) = cron_job.int(limit).and_then(|limit| usize::try_from(limit).ok()) else {
            return Vec::new();
        };
        let mut ended: Vec<&Object> = jobs.iter().copied().filter(|job| has_ended(job, kind)).collect();
        ended.sort_by_key(|job| {
            let start = job.text("/status/startTime").parse::<Timestamp>().ok();
            (start.is_none(), start, job.meta.name.clone())
        });
        ended.truncate(ended.len().saturating_sub(limit));
        ended
    };
    let mut all = beyond("Complete", "/spec/successfulJobsHistoryLimit");
    all.extend(beyond("Failed", "/spec/failedJobsHistoryLimit"));
    all
}

/// What is to be done now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Due {
    /// Nothing until the CronJob changes.
    Nothing,
    /// Nothing for now.
    Wait,
    /// Start the Job of this moment.
    Start(Timestamp),
    /// Delete the Jobs that run, and start the Job of this moment.
    Replace(Timestamp),
}

/// What is to be done now, with events, and when to look again.
#[must_use]
pub fn due(
    cron_job: &Object,
    status: &Map<String, Value>,
    now: Timestamp,
) -> (Due, Vec<Note>, Option<SignedDuration>) {
    let nothing = |note: Option<Note>| (Due::Nothing, note.into_iter().collect(), None);
    let zone = cron_job.at("/spec/timeZone").as_str();
    if let Some(zone) = zone.filter(|zone| time_zone(zone).is_none()) {
        let text = format!("invalid timeZone: {}: unknown time zone {zone}", palisade_base::go::quote(zone));
        return nothing(Some(Note::warning("UnknownTimeZone", text)));
    }
    if cron_job.at("/spec/suspend") == true || cron_job.meta.is_deleting() {
        return nothing(None);
    }
    let text = cron_job.text("/spec/schedule");
    let mut notes = Vec::new();
    if text.contains("TZ") {
        let quoted = palisade_base::go::quote(text);
        let why = format!(
            "CRON_TZ or TZ used in schedule {quoted} is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
        );
        notes.push(Note::warning("UnsupportedSchedule", why));
    }
    let schedule = match ZonedSchedule::read(text, zone) {
        Ok(schedule) => schedule,
        Err(error) => {
            let why = format!("unparseable schedule: {} : {error}", palisade_base::go::quote(text));
            return nothing(Some(Note::warning("UnparseableSchedule", why)));
        }
    };
    let deadline = cron_job.int("/spec/startingDeadlineSeconds").map(SignedDuration::from_secs);
    let earliest = earliest(cron_job, status, now);
    let since = deadline
        .and_then(|deadline| now.checked_sub(deadline).ok())
        .map_or(earliest, |since| since.max(earliest));
    let (moment, missed) = match recent(&schedule, since, now) {
        Ok(found) => found,
        Err(why) => {
            return nothing(Some(Note::warning(
                "InvalidSchedule",
                format!("invalid schedule: {text} : {why}"),
            )));
        }
    };
    if missed > MANY {
        let why =
            "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        notes.push(Note::warning("TooManyMissedTimes", why.to_owned()));
    }
    let again = schedule
        .next(moment.unwrap_or(now).max(earliest).min(now))
        .map(|next| next.duration_since(now) + DELTA);
    let Some(moment) = moment else { return (Due::Wait, notes, again) };
    if deadline.is_some_and(|deadline| now.duration_since(moment) > deadline) {
        let at = moment.strftime("%a, %d %b %Y %H:%M:%S +0000");
        notes.push(Note::warning("MissSchedule", format!("Missed scheduled time to start a job: {at}")));
        return (Due::Wait, notes, again);
    }
    let active = list(status.get("active").unwrap_or(&Value::Null));
    let name = job_name(cron_job, moment);
    let last = status.get("lastScheduleTime").and_then(Value::as_str);
    if active.iter().any(|one| one["name"] == name) || last == Some(&stamp(moment)) {
        return (Due::Wait, notes, again);
    }
    match cron_job.text("/spec/concurrencyPolicy") {
        "Forbid" if !active.is_empty() => {
            let why = "Not starting job because prior execution is running and concurrency policy is Forbid";
            notes.push(Note::normal("JobAlreadyActive", why.to_owned()));
            (Due::Wait, notes, again)
        }
        "Replace" if !active.is_empty() => (Due::Replace(moment), notes, again),
        _ => (Due::Start(moment), notes, again),
    }
}

/// Nothing is due before this: the last moment, or the creation of the CronJob.
fn earliest(cron_job: &Object, status: &Map<String, Value>, now: Timestamp) -> Timestamp {
    let last = status.get("lastScheduleTime").and_then(Value::as_str).and_then(|last| last.parse().ok());
    last.or(cron_job.meta.created).unwrap_or(now)
}

/// The last moment that was due, and how many were, about.
fn recent(
    schedule: &ZonedSchedule,
    since: Timestamp,
    now: Timestamp,
) -> Result<(Option<Timestamp>, i64), &'static str> {
    let never = "time difference between two schedules is less than 1 second";
    let Some(first) = schedule.next(since) else { return Err(never) };
    if now < first {
        return Ok((None, 0));
    }
    let second = schedule.next(first);
    let Some(second) = second.filter(|second| *second <= now) else { return Ok((Some(first), 1)) };
    let between = second.duration_since(first).as_secs().max(1);
    let missed = now.duration_since(first).as_secs() / between + 1;
    // Regular schedules are not followed step by step.
    let skipped = SignedDuration::from_secs((missed - 2).max(0).saturating_mul(between));
    let start = first.checked_add(skipped).map_or(first, |start| start.min(now));
    let mut found = first;
    let mut next = schedule.next(start.max(first));
    if next.is_none_or(|next| next > now) {
        // An irregular schedule: the estimate went too far.
        next = Some(second);
    }
    while let Some(at) = next.filter(|at| *at <= now) {
        found = at;
        next = schedule.next(at);
    }
    Ok((Some(found), missed))
}

fn job_name(cron_job: &Object, moment: Timestamp) -> String {
    format!("{}-{}", cron_job.meta.name, moment.as_second() / 60)
}

/// The Job of a moment.
#[must_use]
pub fn job(cron_job: &Object, moment: Timestamp) -> Value {
    let template = cron_job.at("/spec/jobTemplate");
    let zone = cron_job.at("/spec/timeZone").as_str();
    let at =
        ZonedSchedule::read("@daily", zone).map_or_else(|_| stamp(moment), |schedule| schedule.stamp(moment));
    let mut annotations = template["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    annotations.insert(SCHEDULED.to_owned(), json!(at));
    let mut metadata = json!({"name": job_name(cron_job, moment), "namespace": cron_job.meta.namespace,
        "annotations": annotations, "ownerReferences": [controller_reference("batch/v1", "CronJob", &cron_job.meta)]});
    if template["metadata"]["labels"].is_object() {
        metadata["labels"] = template["metadata"]["labels"].clone();
    }
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": template["spec"]})
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::{Due, due, expired, job, observe};
    use crate::workloads::object::Object;

    fn cron_job(spec: &Value, status: &Value) -> Object {
        Object::of(json!({"metadata": {"name": "c", "namespace": "n", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": spec, "status": status}))
        .unwrap()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn jobs_start_when_they_are_due_and_not_twice() {
        let hourly = |more: Value| {
            let mut spec = json!({"schedule": "0 * * * *", "concurrencyPolicy": "Allow"});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            spec
        };
        let active = |last: &str| json!({"lastScheduleTime": last, "active": [{"name": "c-1", "uid": "1"}]});
        let (one, two) = ("2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z");
        for (case, spec, status, now, expected, events, again) in [
            ("not yet", hourly(json!({})), json!({}), "2026-01-01T00:59:00Z", Due::Wait, "", Some(60)),
            ("due", hourly(json!({})), json!({}), one, Due::Start(at(one)), "", Some(3600)),
            (
                "done",
                hourly(json!({})),
                json!({"lastScheduleTime": one}),
                "2026-01-01T01:00:05Z",
                Due::Wait,
                "",
                Some(3595),
            ),
            (
                "the last of several",
                hourly(json!({})),
                json!({}),
                "2026-01-01T02:10:00Z",
                Due::Start(at(two)),
                "",
                Some(3000),
            ),
            (
                "very many",
                hourly(json!({})),
                json!({}),
                "2026-02-01T02:10:00Z",
                Due::Start(at("2026-02-01T02:00:00Z")),
                "TooManyMissedTimes",
                Some(3000),
            ),
            (
                "beyond the deadline",
                hourly(json!({"startingDeadlineSeconds": 60})),
                json!({}),
                "2026-01-01T01:30:00Z",
                Due::Wait,
                "",
                Some(1800),
            ),
            (
                "within the deadline",
                hourly(json!({"startingDeadlineSeconds": 60})),
                json!({}),
                "2026-01-01T01:00:30Z",
                Due::Start(at(one)),
                "",
                Some(3570),
            ),
            (
                "forbidden",
                hourly(json!({"concurrencyPolicy": "Forbid"})),
                active(one),
                two,
                Due::Wait,
                "JobAlreadyActive",
                Some(3600),
            ),
            (
                "replaced",
                hourly(json!({"concurrencyPolicy": "Replace"})),
                active(one),
                two,
                Due::Replace(at(two)),
                "",
                Some(3600),
            ),
            ("beside", hourly(json!({})), active(one), two, Due::Start(at(two)), "", Some(3600)),
            ("suspended", hourly(json!({"suspend": true})), json!({}), one, Due::Nothing, "", None),
            (
                "a zone",
                hourly(json!({"timeZone": "Asia/Kolkata"})),
                json!({}),
                "2026-01-01T00:30:00Z",
                Due::Start(at("2026-01-01T00:30:00Z")),
                "",
                Some(3600),
            ),
            (
                "no zone",
                hourly(json!({"timeZone": "Nowhere"})),
                json!({}),
                one,
                Due::Nothing,
                "UnknownTimeZone",
                None,
            ),
            (
                "no schedule",
                json!({"schedule": "x"}),
                json!({}),
                one,
                Due::Nothing,
                "UnparseableSchedule",
                None,
            ),
            (
                "a day that never comes",
                json!({"schedule": "0 0 31 2 *"}),
                json!({}),
                one,
                Due::Nothing,
                "InvalidSchedule",
                None,
            ),
        ] {
            let cron_job = cron_job(&spec, &status);
            let (found, notes, wait) = due(&cron_job, status.as_object().unwrap(), at(now));
            let reasons: Vec<&str> = notes.iter().map(|note| note.reason).collect();
            assert_eq!((found, reasons.join(",").as_str()), (expected, events), "{case}");
            assert_eq!(wait.map(|wait| wait.as_secs()), again, "{case}");
        }
    }

    fn ended(name: &str, kind: &str, start: &str) -> Object {
        Object::of(json!({"metadata": {"name": name, "uid": name}, "status": {"startTime": start, "completionTime": start,
            "conditions": [{"type": kind, "status": "True"}]}}))
        .unwrap()
    }

    #[test]
    fn the_status_follows_the_jobs() {
        let known = json!({"active": [{"name": "a", "uid": "a"}, {"name": "gone", "uid": "gone"}, {"name": "r", "uid": "r"}]});
        let cron_job = cron_job(&json!({}), &known);
        let running = |name: &str| Object::of(json!({"metadata": {"name": name, "uid": name}})).unwrap();
        let jobs = [ended("a", "Complete", "2026-01-01T00:00:09Z"), running("r"), running("x")];
        let (status, notes) = observe(&cron_job, &jobs.iter().collect::<Vec<_>>());
        assert_eq!(status["active"], json!([{"name": "r", "uid": "r"}]));
        assert_eq!(status["lastSuccessfulTime"], "2026-01-01T00:00:09Z");
        let reasons: Vec<&str> = notes.iter().map(|note| note.reason).collect();
        assert_eq!(reasons, ["SawCompletedJob", "UnexpectedJob", "MissingJob"]);
        assert_eq!(notes[0].message, "Saw completed job: a, condition: Complete");
    }

    #[test]
    fn each_kind_of_history_has_its_limit() {
        let cron_job =
            cron_job(&json!({"successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 0}), &json!({}));
        let jobs = [
            ended("new", "Complete", "2026-01-02T00:00:00Z"),
            ended("old", "Complete", "2026-01-01T00:00:00Z"),
            ended("failed", "Failed", "2026-01-03T00:00:00Z"),
        ];
        let expired = expired(&cron_job, &jobs.iter().collect::<Vec<_>>());
        assert_eq!(expired.iter().map(|job| &*job.meta.name).collect::<Vec<_>>(), ["old", "failed"]);
    }

    #[test]
    fn a_job_is_named_after_its_moment() {
        let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"template": {}}});
        let cron_job = cron_job(&json!({"timeZone": "Asia/Tokyo", "jobTemplate": template}), &json!({}));
        let job = job(&cron_job, at("2026-01-01T00:00:00Z"));
        assert_eq!(job["metadata"]["name"], "c-29453760");
        assert_eq!(
            job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"],
            "2026-01-01T09:00:00+09:00"
        );
        assert_eq!(job["metadata"]["labels"], json!({"a": "b"}));
    }
}
