//! Jobs and cron jobs.
//!
//! Implements: `pkg/apis/batch/v1/defaults.go`, `pkg/apis/batch/validation`, `pkg/registry/batch/*/strategy.go`.

use palisade_base::cron::Schedule;
use palisade_base::field_error::BadValue;
use palisade_base::field_path::Path;
use palisade_base::label_selector::LabelSelector;
use palisade_base::version::KubeVersion;
use serde_json::{Map, Value, json};

use super::pod::{default_template, spec_selector, validate_template};
use super::workload::reset_status;
use super::{Strategy, internal, section, set_default, set_generation, update_spec_or_status};
use crate::apply::ResetFields;
use crate::rest::meta::{self, NameRule};
use crate::rest::names;
use crate::rest::path::{Errors, Get};
use crate::scheme::Kind;

pub(crate) static JOB: Strategy = Strategy {
    default: default_job,
    prepare_create: create_job,
    prepare_update: update_spec_or_status,
    validate: validate_job,
    validate_update: validate_job_update,
    reset_fields: |subresource| match subresource {
        "status" => ResetFields::Exclude(&[&["spec"]]),
        other => reset_status(other),
    },
};

pub(crate) static CRON_JOB: Strategy = Strategy {
    default: default_cron_job,
    prepare_create: |object, _| {
        if let Some(map) = object.as_object_mut() {
            map.insert("status".into(), Value::Object(Map::new()));
        }
        set_generation(object);
    },
    prepare_update: update_spec_or_status,
    validate: validate_cron_job,
    validate_update: |new, old, subresource, _, errors| {
        meta::validate_update(new, old, errors);
        if subresource != "status" {
            validate_cron_job_spec(new, Some(old), errors);
        }
    },
    reset_fields: |subresource| match subresource {
        "status" => ResetFields::Exclude(&[&["spec"]]),
        other => reset_status(other),
    },
};

fn default_job(object: &mut Value, version: KubeVersion) {
    if let Some(labels) = object.pointer("/spec/template/metadata/labels").cloned()
        && let Some(meta) = crate::apply::metadata_mut(object)
        && meta.get("labels").and_then(Value::as_object).is_none_or(Map::is_empty)
    {
        meta.insert("labels".into(), labels);
    }
    let Some(spec) = section(object, "spec") else { return };
    if spec.child("completions").is_none() && spec.child("parallelism").is_none() {
        set_default(spec, "completions", 1);
    }
    set_default(spec, "parallelism", 1);
    let per_index = spec.child("backoffLimitPerIndex").is_some();
    set_default(spec, "backoffLimit", if per_index { i32::MAX } else { 6 });
    if version.at_least(21) {
        if spec.text("completionMode").is_empty() {
            spec["completionMode"] = "NonIndexed".into();
        }
        set_default(spec, "suspend", false);
    }
    if version.at_least(29) && spec.text("podReplacementPolicy").is_empty() {
        let policy = if spec.child("podFailurePolicy").is_some() { "Failed" } else { "TerminatingOrFailed" };
        spec["podReplacementPolicy"] = policy.into();
    }
    if version.at_least(32) {
        set_default(spec, "manualSelector", false);
    }
    default_template(spec.get_mut("template"), version);
}

fn default_cron_job(object: &mut Value, version: KubeVersion) {
    let Some(spec) = section(object, "spec") else { return };
    if spec.text("concurrencyPolicy").is_empty() {
        spec["concurrencyPolicy"] = "Allow".into();
    }
    set_default(spec, "suspend", false);
    set_default(spec, "successfulJobsHistoryLimit", 3);
    set_default(spec, "failedJobsHistoryLimit", 1);
    default_template(spec.pointer_mut("/jobTemplate/spec/template"), version);
}

fn create_job(object: &mut Value, version: KubeVersion) {
    if let Some(map) = object.as_object_mut() {
        map.insert("status".into(), Value::Object(Map::new()));
    }
    set_generation(object);
    generate_selector(object, version);
}

/// Labels and selector that tie the pods to this job and no other.
fn generate_selector(object: &mut Value, version: KubeVersion) {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (uid, name) = (text("/metadata/uid"), text("/metadata/name"));
    let Some(spec) = section(object, "spec") else { return };
    if spec.flag("manualSelector") == Some(true) {
        return;
    }
    let Some(meta) = section(spec, "template").and_then(|t| section(t, "metadata")) else { return };
    let Some(labels) = section(meta, "labels").and_then(Value::as_object_mut) else { return };
    let prefixed = version.at_least(27);
    let mut wanted = vec![("job-name", name.clone()), ("controller-uid", uid.clone())];
    if prefixed {
        wanted.push(("batch.kubernetes.io/job-name", name));
        wanted.push(("batch.kubernetes.io/controller-uid", uid.clone()));
    }
    for (key, value) in wanted {
        labels.entry(key).or_insert_with(|| value.into());
    }
    let key = if prefixed { "batch.kubernetes.io/controller-uid" } else { "controller-uid" };
    if let Some(selector) = section(spec, "selector")
        && let Some(labels) = section(selector, "matchLabels").and_then(Value::as_object_mut)
    {
        labels.entry(key).or_insert_with(|| uid.into());
    }
}

const SPEC: Path<'static> = Path::Root("spec");

fn validate_job(object: &Value, kind: &Kind, errors: &mut Errors) {
    meta::validate(object, kind.namespaced, NameRule::Subdomain, errors);
    let empty = Value::Null;
    let spec = object.get("spec").unwrap_or(&empty);
    validate_generated(object, spec, errors);
    validate_job_spec_with_selector(spec, errors);
    let indexed = spec.text("completionMode") == "Indexed";
    if indexed && let Some(completions) = spec.int("completions").filter(|c| *c > 0) {
        // The name of the last pod must still be a DNS label.
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let pod = format!("{name}-{}", completions - 1);
        for message in names::dns1123_label(&pod) {
            errors.invalid(
                &Path::Root("metadata").field("name"),
                name,
                format!("will not able to create pod with invalid DNS label {pod}: {message}"),
            );
        }
    }
}

fn validate_generated(object: &Value, spec: &Value, errors: &mut Errors) {
    if spec.flag("manualSelector") == Some(true) || spec.child("selector").is_none() {
        return;
    }
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (uid, name) = (text("/metadata/uid"), text("/metadata/name"));
    let prefixed = errors.version.at_least(27);
    let template = SPEC.field("template");
    let at = template.field("metadata");
    let mut expected = vec![("controller-uid", uid.as_str()), ("job-name", name.as_str())];
    if prefixed {
        expected.push(("batch.kubernetes.io/controller-uid", uid.as_str()));
        expected.push(("batch.kubernetes.io/job-name", name.as_str()));
    }
    let labels = spec.pointer("/template/metadata/labels");
    for (key, value) in &expected {
        let found = labels.and_then(|l| l.get(key)).and_then(Value::as_str);
        match found {
            None => errors.required(&at.field("labels").key(key), format!("must be '{value}'")),
            Some(found) if found != *value => errors.invalid(
                &at.field("labels").key(key),
                labels.cloned().map_or(BadValue::Nil, BadValue::Json),
                format!("must be '{value}'"),
            ),
            Some(_) => {}
        }
    }
    let expected: Map<String, Value> = expected.into_iter().map(|(k, v)| (k.to_owned(), json!(v))).collect();
    if let Some(selector) = spec.child("selector")
        && !LabelSelector::from_object(selector).matches_labels(Some(&Value::Object(expected)))
    {
        errors.invalid(
            &SPEC.field("selector"),
            BadValue::selector(selector),
            "`selector` not auto-generated",
        );
    }
}

fn validate_job_spec_with_selector(spec: &Value, errors: &mut Errors) {
    validate_job_spec(spec, &SPEC, errors);
    match spec.child("selector") {
        None => errors.required(&SPEC.field("selector"), ""),
        Some(selector) => {
            spec_selector(selector, &SPEC.field("selector"), errors);
            let labels = spec.pointer("/template/metadata/labels");
            if !LabelSelector::from_object(selector).matches_labels(labels) {
                let template = SPEC.field("template");
                let metadata = template.field("metadata");
                errors.invalid(
                    &metadata.field("labels"),
                    labels.cloned().map_or(BadValue::Nil, BadValue::Json),
                    "`selector` does not match template `labels`",
                );
            }
        }
    }
}

fn validate_job_spec(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
    ] {
        errors.non_negative(&at.field(field), spec.int(field));
    }
    if spec.child("completionMode").is_some() {
        let mode = spec.text("completionMode");
        if mode != "NonIndexed" && mode != "Indexed" {
            errors.not_supported(&at.field("completionMode"), mode, &["Indexed", "NonIndexed"]);
        }
        if mode == "Indexed" {
            if spec.child("completions").is_none() {
                errors.required(&at.field("completions"), "when completion mode is Indexed");
            }
            if let Some(parallelism) = spec.int("parallelism").filter(|p| *p > 100_000) {
                errors.invalid(
                    &at.field("parallelism"),
                    parallelism,
                    "must be less than or equal to 100000 when completion mode is Indexed",
                );
            }
        }
    }
    validate_template(spec.get("template"), &at.field("template"), errors);
    let policy = spec.pointer("/template/spec/restartPolicy").and_then(Value::as_str).unwrap_or_default();
    let template = at.field("template");
    let template_spec = template.field("spec");
    let policy_at = template_spec.field("restartPolicy");
    match policy {
        "Always" | "" => errors.required(&policy_at, "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" | "Never" => {}
        other => errors.not_supported(&policy_at, other, &["OnFailure", "Never"]),
    }
}

fn validate_job_update(new: &Value, old: &Value, subresource: &str, _: &Kind, errors: &mut Errors) {
    meta::validate_update(new, old, errors);
    if subresource == "status" {
        return;
    }
    let empty = Value::Null;
    let (spec, old_spec) = (new.get("spec").unwrap_or(&empty), old.get("spec").unwrap_or(&empty));
    validate_job_spec_with_selector(spec, errors);
    let indexed = spec.text("completionMode") == "Indexed";
    let resized = indexed
        && spec.int("completions") == spec.int("parallelism")
        && old_spec.int("completions") == old_spec.int("parallelism");
    if !resized {
        errors.immutable(&SPEC.field("completions"), spec.get("completions"), old_spec.get("completions"));
    }
    errors.immutable(&SPEC.field("selector"), spec.get("selector"), old_spec.get("selector"));
    let waiting = old_spec.flag("suspend") == Some(true) && old.pointer("/status/startTime").is_none();
    let (template, before) = (spec.get("template"), old_spec.get("template"));
    // A job that has stopped is like one that was never started.
    let stopped = errors.version.at_least(36)
        && old_spec.flag("suspend") == Some(true)
        && old.pointer("/status").is_some_and(|status| {
            let mut conditions = status.list("conditions").iter();
            status.int("active").unwrap_or_default() == 0
                && conditions.any(|one| one.text("type") == "Suspended" && one.text("status") == "True")
        });
    let resources = stopped || (waiting && errors.version.at_least(36));
    let may_change = (waiting || stopped) && only_scheduling_changed(template, before, resources);
    if template != before && !may_change {
        let shown =
            template.map_or(BadValue::Nil, |t| BadValue::Plain(internal::pod_template(t, errors.version)));
        errors.invalid(&SPEC.field("template"), shown, "field is immutable");
    }
    for field in ["completionMode", "backoffLimitPerIndex", "managedBy"] {
        errors.immutable(&SPEC.field(field), spec.get(field), old_spec.get(field));
    }
    for field in ["podFailurePolicy", "successPolicy"] {
        let (new, before) = (spec.child(field), old_spec.child(field));
        if new != before {
            let shown = new.map_or(BadValue::Nil, |policy| BadValue::Plain(internal_policy(policy)));
            errors.invalid(&SPEC.field(field), shown, "field is immutable");
        }
    }
}

/// A policy as upstream's internal type prints it: every field, in the order of its declaration.
fn internal_policy(policy: &Value) -> String {
    let or_null = |value: &Value, field: &str| value.get(field).unwrap_or(&Value::Null).to_string();
    let rules = policy.list("rules").iter().map(|rule| {
        if rule.child("action").is_none() {
            let (indexes, count) = (or_null(rule, "succeededIndexes"), or_null(rule, "succeededCount"));
            return format!("{{\"SucceededIndexes\":{indexes},\"SucceededCount\":{count}}}");
        }
        let codes = rule.child("onExitCodes").map_or("null".to_owned(), |codes| {
            format!(
                "{{\"ContainerName\":{},\"Operator\":{},\"Values\":{}}}",
                or_null(codes, "containerName"),
                or_null(codes, "operator"),
                or_null(codes, "values")
            )
        });
        let patterns = rule.list("onPodConditions").iter().map(|pattern| {
            format!("{{\"Type\":{},\"Status\":{}}}", or_null(pattern, "type"), or_null(pattern, "status"))
        });
        let patterns: Vec<String> = patterns.collect();
        let conditions =
            if patterns.is_empty() { "null".to_owned() } else { format!("[{}]", patterns.join(",")) };
        let action = or_null(rule, "action");
        format!("{{\"Action\":{action},\"OnExitCodes\":{codes},\"OnPodConditions\":{conditions}}}")
    });
    let rules: Vec<String> = rules.collect();
    format!("{{\"Rules\":[{}]}}", rules.join(","))
}

/// The scheduling directives of a job that does not run may change; and its resources, since they may.
fn only_scheduling_changed(new: Option<&Value>, old: Option<&Value>, resources: bool) -> bool {
    let strip = |template: Option<&Value>| {
        let mut template = template.cloned().unwrap_or(Value::Null);
        if let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) {
            for field in ["nodeSelector", "affinity", "tolerations", "schedulingGates"] {
                spec.remove(field);
            }
            for list in ["containers", "initContainers"].into_iter().filter(|_| resources) {
                for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                    if let Some(container) = container.as_object_mut() {
                        container.remove("resources");
                    }
                }
            }
        }
        if let Some(meta) = template.get_mut("metadata").and_then(Value::as_object_mut) {
            meta.remove("labels");
            meta.remove("annotations");
        }
        template
    };
    strip(new) == strip(old)
}

fn validate_cron_job(object: &Value, kind: &Kind, errors: &mut Errors) {
    meta::validate(object, kind.namespaced, NameRule::Subdomain, errors);
    validate_cron_job_spec(object, None, errors);
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    if name.len() > 52 {
        errors.invalid(&Path::Root("metadata").field("name"), name, "must be no more than 52 characters");
    }
}

/// Whether a time zone is one of the IANA database, by its exact name.
fn is_time_zone(name: &str) -> bool {
    jiff::tz::TimeZone::get(name).is_ok_and(|zone| zone.iana_name() == Some(name))
}

fn validate_cron_job_spec(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let empty = Value::Null;
    let spec = object.get("spec").unwrap_or(&empty);
    let schedule = spec.text("schedule");
    let at = SPEC.field("schedule");
    if schedule.is_empty() {
        errors.required(&at, "");
    } else {
        let (zone, rest) = Schedule::split_zone(schedule);
        if let Some(zone) = zone.filter(|zone| !is_time_zone(zone)) {
            errors.invalid(&at, schedule, format!("provided bad location {zone}: unknown time zone {zone}"));
        } else if let Err(why) = Schedule::read(rest) {
            errors.invalid(&at, schedule, why.to_string());
        }
        // What was stored before may stay.
        let had_zone = old.is_some_and(|old| {
            old.pointer("/spec/schedule")
                .and_then(Value::as_str)
                .is_some_and(|schedule| schedule.contains("TZ"))
        });
        if schedule.contains("TZ") && !had_zone && errors.version.at_least(25) {
            errors.invalid(&at, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
        }
    }
    let is_new = |zone: &&str| {
        let known = old.and_then(|old| old.pointer("/spec/timeZone"));
        known.and_then(Value::as_str) != Some(*zone)
    };
    if let Some(zone) = spec.child("timeZone").and_then(Value::as_str).filter(is_new) {
        let at = SPEC.field("timeZone");
        if zone.is_empty() {
            errors.invalid(&at, zone, "timeZone must be nil or non-empty string");
        } else if zone.eq_ignore_ascii_case("Local") {
            let why = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
            errors.invalid(&at, zone, why);
        } else if !is_time_zone(zone) {
            errors.invalid(&at, zone, format!("unknown time zone {zone}"));
        }
    }
    errors.non_negative(&SPEC.field("startingDeadlineSeconds"), spec.int("startingDeadlineSeconds"));
    match spec.text("concurrencyPolicy") {
        "Allow" | "Forbid" | "Replace" => {}
        "" => errors.required(&SPEC.field("concurrencyPolicy"), ""),
        other => {
            errors.not_supported(&SPEC.field("concurrencyPolicy"), other, &["Allow", "Forbid", "Replace"]);
        }
    }
    let template_at = SPEC.field("jobTemplate");
    let job_at = template_at.field("spec");
    let job = spec.pointer("/jobTemplate/spec").unwrap_or(&empty);
    validate_job_spec(job, &job_at, errors);
    if let Some(selector) = job.child("selector") {
        errors.invalid(
            &job_at.field("selector"),
            BadValue::selector(selector),
            "`selector` will be auto-generated",
        );
    }
    if job.flag("manualSelector") == Some(true) {
        errors.not_supported(&job_at.field("manualSelector"), true, &["nil", "false"]);
    }
    errors.non_negative(&SPEC.field("successfulJobsHistoryLimit"), spec.int("successfulJobsHistoryLimit"));
    errors.non_negative(&SPEC.field("failedJobsHistoryLimit"), spec.int("failedJobsHistoryLimit"));
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{CRON_JOB, JOB};
    use crate::rest::path::Errors;
    use crate::scheme::Scheme;
    use palisade_base::version::KubeVersion;

    #[test]
    fn the_resources_of_a_job_that_does_not_run_may_change() {
        let suspended = json!({"startTime": "2026-01-01T00:00:00Z", "conditions": [{"type": "Suspended", "status": "True"}]});
        let job = |cpu: &str, image: &str, suspend: bool, status: &Value| {
            let container = json!({"name": "c", "image": image, "imagePullPolicy": "Always",
                "terminationMessagePolicy": "File", "resources": {"requests": {"cpu": cpu}}});
            let template = json!({"spec": {"restartPolicy": "Never", "dnsPolicy": "ClusterFirst",
                "terminationGracePeriodSeconds": 30, "containers": [container]}});
            json!({"metadata": {"name": "j", "namespace": "n", "resourceVersion": "1"}, "spec": {"suspend": suspend, "template": template}, "status": status})
        };
        for (case, release, suspend, status, image, expected) in [
            ("never started", 37, true, json!({}), "i", true),
            ("stopped", 37, true, suspended.clone(), "i", true),
            ("stopped, another image", 37, true, suspended.clone(), "j", false),
            (
                "not stopped yet",
                37,
                true,
                json!({"startTime": "2026-01-01T00:00:00Z", "active": 1}),
                "i",
                false,
            ),
            ("running", 37, false, json!({}), "i", false),
            ("an earlier release", 35, true, suspended, "i", false),
        ] {
            let version = KubeVersion::v1(release);
            let scheme = Scheme::new(version);
            let kind = scheme.by_kind("batch", "v1", "Job").unwrap();
            let mut errors = Errors::new(version);
            let (old, new) = (job("1", "i", suspend, &status), job("2", image, suspend, &status));
            (JOB.validate_update)(&new, &old, "", kind, &mut errors);
            let is_rejected = errors.list.iter().any(|error| error.field() == "spec.template");
            assert_eq!(!is_rejected, expected, "{case}: {:?}", errors.list);
        }
    }

    fn cron_job(schedule: &str, zone: &Value) -> Value {
        let template = json!({"spec": {"restartPolicy": "Never", "dnsPolicy": "ClusterFirst",
            "terminationGracePeriodSeconds": 30, "containers": [{"name": "c", "image": "i", "imagePullPolicy": "Always",
            "terminationMessagePolicy": "File"}]}});
        json!({"metadata": {"name": "c", "namespace": "n", "resourceVersion": "1"}, "spec": {"schedule": schedule, "timeZone": zone,
            "concurrencyPolicy": "Allow", "jobTemplate": {"spec": {"template": template}}}})
    }

    #[test]
    fn time_zones_are_those_of_the_iana_database() {
        let version = KubeVersion::v1(37);
        let scheme = Scheme::new(version);
        let kind = scheme.by_kind("batch", "v1", "CronJob").unwrap();
        for (case, schedule, zone, expected) in [
            ("none", "0 * * * *", json!(null), &[][..]),
            ("one", "0 * * * *", json!("Europe/Berlin"), &[]),
            (
                "in another case",
                "0 * * * *",
                json!("europe/berlin"),
                &["spec.timeZone: Invalid value: \"europe/berlin\": unknown time zone europe/berlin"],
            ),
            (
                "in the schedule",
                "TZ=UTC 0 * * * *",
                json!(null),
                &[
                    "spec.schedule: Invalid value: \"TZ=UTC 0 * * * *\": cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
                ],
            ),
        ] {
            let object = cron_job(schedule, &zone);
            let mut errors = Errors::new(version);
            (CRON_JOB.validate)(&object, kind, &mut errors);
            let found: Vec<String> = errors
                .list
                .iter()
                .map(|error| format!("{}: {}", error.field(), error.body(version)))
                .collect();
            assert_eq!(found, expected, "{case}");
            // What is stored already may stay.
            let mut errors = Errors::new(version);
            (CRON_JOB.validate_update)(&object, &object, "", kind, &mut errors);
            assert!(errors.list.is_empty(), "{case}: {:?}", errors.list);
        }
    }
}
