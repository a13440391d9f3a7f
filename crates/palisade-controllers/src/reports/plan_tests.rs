//! What is in a report: outcomes, exceptions, bounds.

use palisade_model::workload::workload_kind;
use palisade_policy::{
    enforcement::level::LevelSource,
    exceptions::set::{ExceptionSet, NamespaceExceptions},
};
use serde_json::{Value, json};

use super::{
    ClusterFindings, Counts, MOST_RESULTS, MOST_SERIES, NOT_LISTED, NamespaceFindings, Outcome, report, rows,
};
use crate::{
    cluster::{Cluster, Excused, ExcusedObjects, Undecided},
    reports::kind::ReportKind,
};
use palisade_base::time::Time;
use palisade_policy::standards::level::Level;

fn container(security_context: &Value) -> Value {
    json!({"name": "app", "image": "i", "securityContext": security_context})
}

/// What is restricted, but for some fields.
fn spec(change: &Value) -> Value {
    let mut security_context = json!({"allowPrivilegeEscalation": false, "runAsNonRoot": true,
        "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}});
    for (field, value) in change.as_object().into_iter().flatten() {
        security_context[field] = value.clone();
    }
    json!({"containers": [container(&security_context)]})
}

fn deployment(name: &str, spec: &Value) -> Value {
    json!({"metadata": {"name": name, "namespace": "team", "uid": name}, "spec": {"template": {"spec": spec}}})
}

fn namespace(objects: &[Value], held_to: Level) -> NamespaceFindings {
    let mut cluster = Cluster::with_levels(palisade_model::compat::Compat::default(), LevelSource::Workloads);
    cluster.set_namespace(&json!({"metadata": {"name": "team", "uid": "u"}}));
    for object in objects {
        if object["spec"]["template"].is_null() {
            cluster.set_pod(&object.to_string()).unwrap();
        } else {
            cluster.set_workload(workload_kind("apps/v1", "Deployment").unwrap(), object);
        }
    }
    let record = cluster.namespace("team").unwrap();
    NamespaceFindings {
        namespace: "team".to_owned(),
        uid: "u".to_owned(),
        held_to,
        objects: record.findings(),
        undecided: record.doubts(),
        rejected: Vec::new(),
        compliant: record.compliant(),
    }
}

fn lines(found: &NamespaceFindings, excused: &ExcusedObjects) -> Vec<String> {
    rows(found, excused)
        .iter()
        .map(|row| format!("{} {} {} {}", row.outcome.as_str(), row.policy, row.rule, row.field))
        .collect()
}

#[test]
fn a_finding_fails_if_the_level_of_the_namespace_forbids_it() {
    let at = |field: &str| format!("spec.template.spec.containers[0].securityContext.{field}");
    let privileged = spec(&json!({"privileged": true, "allowPrivilegeEscalation": true}));
    let baseline = format!("pod-security-baseline privileged {}", at("privileged"));
    let restricted =
        format!("pod-security-restricted allowPrivilegeEscalation {}", at("allowPrivilegeEscalation"));
    for (case, held_to, expected) in [
        ("nothing is enforced", Level::Privileged, [("warn", &baseline), ("warn", &restricted)]),
        ("baseline", Level::Baseline, [("fail", &baseline), ("warn", &restricted)]),
        ("restricted", Level::Restricted, [("fail", &baseline), ("fail", &restricted)]),
    ] {
        let found = namespace(&[deployment("web", &privileged)], held_to);
        let expected = expected.map(|(outcome, what)| format!("{outcome} {what}"));
        assert_eq!(lines(&found, &ExcusedObjects::new()), expected, "{case}");
    }
    // A field that both levels forbid is one finding.
    let capable = spec(&json!({"capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]}}));
    let found = namespace(&[deployment("web", &capable)], Level::Restricted);
    let add = at("capabilities.add[0]");
    let listed = lines(&found, &ExcusedObjects::new());
    assert_eq!(listed, [format!("fail pod-security-baseline capabilities_baseline {add}")]);
}

fn exception(control: &str, field: &str, values: &Value) -> Value {
    json!({"apiVersion": "palisade.dev/v1alpha1", "kind": "SecurityException", "metadata": {"name": "accepted"}, "spec": {
        "namespaces": ["team"], "workloads": [{"kind": "Deployment", "name": "web"}],
        "allow": [{"control": control, "field": field, "values": values}],
        "reason": "r", "owner": "o", "ticket": "t", "until": "2999-01-01T00:00:00Z"}})
}

fn excused(exception: &Value, objects: &[Value]) -> ExcusedObjects {
    let set = ExceptionSet::read([exception]);
    assert_eq!(set.readable().len(), 1, "{:?}", set.unreadable());
    let now = Time { seconds: 1, micros: 0 };
    let own = NamespaceExceptions { set: &set, namespace: "team", labels: None, now };
    let kind = workload_kind("apps/v1", "Deployment").unwrap();
    let compat = palisade_model::compat::Compat::default();
    let of = |object: &Value| {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        Some((("Deployment".to_owned(), name), Excused::of_object(kind, object, &compat, &own)?))
    };
    objects.iter().filter_map(of).collect()
}

#[test]
fn what_an_exception_accepts_is_skipped_and_nothing_else() {
    let container = "spec.containers[*].securityContext";
    let add = exception(
        "capabilities_baseline",
        &format!("{container}.capabilities.add[*]"),
        &json!(["NET_ADMIN"]),
    );
    let capable = |capability: &str| spec(&json!({"capabilities": {"add": [capability], "drop": ["ALL"]}}));
    for (case, name, capability, expected) in [
        (
            "accepted for the lower level alone",
            "web",
            "NET_ADMIN",
            ["fail restricted", "skip baseline"].as_slice(),
        ),
        ("another value", "web", "SYS_ADMIN", &["fail baseline"]),
        ("another workload", "api", "NET_ADMIN", &["fail baseline"]),
    ] {
        let objects = [deployment(name, &capable(capability))];
        let found = namespace(&objects, Level::Restricted);
        let rows = rows(&found, &excused(&add, &objects));
        let short: Vec<_> = rows
            .iter()
            .map(|row| format!("{} {}", row.outcome.as_str(), row.policy.trim_start_matches("pod-security-")))
            .collect();
        assert_eq!(short, expected, "{case}");
    }
    let both = exception(
        "capabilities_restricted",
        &format!("{container}.capabilities.add[*]"),
        &json!(["NET_ADMIN"]),
    );
    let objects = [deployment("web", &capable("NET_ADMIN"))];
    let found = namespace(&objects, Level::Restricted);
    let skipped = rows(&found, &excused(&both, &objects));
    assert!(skipped.iter().all(|row| row.outcome == Outcome::Skip), "{skipped:?}");
    let written = report(ReportKind::OpenReports, &found, &skipped).unwrap();
    assert_eq!(written["results"][0]["properties"]["exception"], "accepted");
    assert_eq!((&written["summary"]["skip"], &written["summary"]["fail"]), (&json!(1), &json!(0)));
}

#[test]
fn what_another_finding_masked_is_reported_once_that_one_is_accepted() {
    // Upstream reports the container that sets false, and not the one that sets nothing.
    let mut pod = spec(&json!({"runAsNonRoot": false}));
    let mut silent = pod["containers"][0].clone();
    silent["name"] = json!("silent");
    silent["securityContext"].as_object_mut().unwrap().remove("runAsNonRoot");
    pod["containers"].as_array_mut().unwrap().push(silent);
    let objects = [deployment("web", &pod)];
    let field = "spec.containers[*].securityContext.runAsNonRoot";
    let accepted = excused(&exception("runAsNonRoot", field, &json!(["false"])), &objects);
    let found = namespace(&objects, Level::Restricted);
    let listed: Vec<_> = lines(&found, &accepted);
    assert!(listed[0].starts_with("fail pod-security-restricted runAsNonRoot"), "{listed:#?}");
    assert!(listed.iter().any(|line| line.starts_with("skip")), "{listed:#?}");
}

#[test]
fn what_cannot_be_judged_is_an_error_and_never_passes() {
    let mut found = namespace(&[deployment("fine", &spec(&json!({})))], Level::Restricted);
    assert_eq!((found.compliant, found.objects.len()), (1, 0));
    let reason = "it cannot be decoded".to_owned();
    found.undecided.push(Undecided { kind: "Pod".into(), name: "odd".to_owned(), reason });
    let all = rows(&found, &ExcusedObjects::new());
    let written = report(ReportKind::PolicyReport, &found, &all).unwrap();
    assert_eq!(written["summary"], json!({"pass": 1, "fail": 0, "warn": 0, "error": 1, "skip": 0}));
    assert_eq!(
        written["results"][0]["resources"][0],
        json!({"apiVersion": "v1", "kind": "Pod", "namespace": "team", "name": "odd"})
    );
    // The older kind has fewer fields.
    assert!(written.get("source").is_none() && written.get("configuration").is_none(), "{written}");
    assert_eq!(written["results"][0]["source"], "palisade");
    let nothing = NamespaceFindings { undecided: Vec::new(), compliant: 0, ..found };
    assert_eq!(report(ReportKind::PolicyReport, &nothing, &[]), None);
}

#[test]
fn a_report_is_bounded_and_its_summary_is_not() {
    let pod = |number: usize| {
        json!({"metadata": {"name": format!("pod-{number:04}"), "namespace": "team"}, "spec": {"hostNetwork": number < 5,
            "containers": [{"name": "c", "image": "i"}]}})
    };
    let pods: Vec<Value> = (0..1000).map(pod).collect();
    let found = namespace(&pods, Level::Baseline);
    let all = rows(&found, &ExcusedObjects::new());
    let written = report(ReportKind::OpenReports, &found, &all).unwrap();
    let results = written["results"].as_array().unwrap();
    assert_eq!(results.len(), MOST_RESULTS);
    assert_eq!(written["summary"]["fail"], 5);
    assert_eq!(written["summary"]["warn"], 4000);
    assert_eq!(written["metadata"]["annotations"][NOT_LISTED], "3805 warn");
    // What fails is never among the rest.
    assert!(results[..5].iter().all(|result| result["result"] == "fail"), "{:#?}", &results[..6]);
    assert!(written.to_string().len() < 200_000);
    let same = rows(
        &namespace(&pods.into_iter().rev().collect::<Vec<_>>(), Level::Baseline),
        &ExcusedObjects::new(),
    );
    assert!(same == all, "the order of events does not matter");
}

#[test]
fn a_long_message_is_shortened() {
    let volume = "v".repeat(5000);
    let mut pod = spec(&json!({}));
    pod["volumes"] = json!([{"name": volume, "hostPath": {"path": format!("/{volume}")}}]);
    let found = namespace(&[deployment("web", &pod)], Level::Restricted);
    let written = report(ReportKind::OpenReports, &found, &rows(&found, &ExcusedObjects::new())).unwrap();
    assert!(written.to_string().len() < 4000, "{written}");
}

#[test]
fn the_series_of_a_cluster_are_bounded_and_its_counts_are_not() {
    let found = namespace(&[deployment("web", &spec(&json!({"privileged": true})))], Level::Baseline);
    let all = rows(&found, &ExcusedObjects::new());
    let names: Vec<String> = (0..1000).map(|number| format!("team-{number:04}")).collect();
    let cluster = ClusterFindings::of(names.iter().map(|name| (name, (Counts::count(&all), all.as_slice()))));
    assert_eq!(cluster.violations.len(), MOST_SERIES);
    assert_eq!(cluster.violations[0].0, "team-0000");
    assert_eq!(cluster.counts.of(Outcome::Fail), 1000);
}
