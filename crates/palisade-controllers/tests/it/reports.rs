//! Reports on the embedded API server, with each of the kinds that others install.

use std::time::Duration;

use palisade_controllers::{
    api::{CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, Patch, Resource},
    crds,
    reports::{apply::NAME, kind::ReportKind},
    runner::Options,
};
use palisade_policy::enforcement::level::LevelSource;
use serde_json::{Value, json};

use crate::live::{Controllers, Fate, Live};

const OPEN_REPORTS: &str = include_str!("../../../../tests/data/reports/openreports.json");
const POLICY_REPORTS: &str = include_str!("../../../../tests/data/reports/policyreports.json");
const EXCEPTIONS: Resource = Resource::new("palisade.dev", "v1alpha1", "securityexceptions");

/// More than the time between two reports of a namespace.
const INTERVAL: Duration = Duration::from_secs(40);

async fn install(live: &Live, definition: &str) {
    let definition: Value = serde_json::from_str(definition).unwrap();
    live.create(CUSTOM_RESOURCE_DEFINITIONS, None, definition).await;
}

fn start(live: &Live, fate: &Fate) -> Controllers {
    let controllers = [NAME].into_iter().collect();
    live.run(Options { controllers, levels: LevelSource::Workloads, ..Options::default() }, fate)
}

async fn after_interval(live: &Live) {
    tokio::time::sleep(INTERVAL).await;
    live.settle().await;
}

/// The report of namespace `team`.
async fn report(live: &Live, kind: ReportKind) -> Option<Value> {
    let path = kind.resource().object(Some("team"), "palisade-pod-security");
    live.api.get(&path).await.unwrap()
}

/// A namespace that is held to baseline, with a privileged pod that was there before.
async fn fill(live: &Live) {
    live.namespace("team", json!({})).await;
    live.pod("team", "root", json!({"privileged": true})).await;
    live.namespace("empty", json!({})).await;
    live.label("team", "pod-security.kubernetes.io/enforce", json!("baseline")).await;
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_report_is_written_kept_and_removed() {
    for (definition, kind) in
        [(OPEN_REPORTS, ReportKind::OpenReports), (POLICY_REPORTS, ReportKind::PolicyReport)]
    {
        let live = Live::plain().await;
        install(&live, definition).await;
        fill(&live).await;
        let fate = Fate::default();
        let controllers = start(&live, &fate);
        live.settle().await;
        let written = report(&live, kind).await.unwrap();
        assert_eq!(
            written["summary"],
            json!({"pass": 0, "fail": 1, "warn": 4, "error": 0, "skip": 0}),
            "{written}"
        );
        let first = &written["results"][0];
        let field = "spec.containers[0].securityContext.privileged";
        for (key, expected) in [
            ("result", json!("fail")),
            ("policy", json!("pod-security-baseline")),
            ("rule", json!("privileged")),
            ("severity", json!("high")),
            ("resources", json!([{"apiVersion": "v1", "kind": "Pod", "namespace": "team", "name": "root"}])),
            ("properties", json!({"field": field})),
        ] {
            assert_eq!(first[key], expected, "{kind:?} {key}");
        }
        assert!(first["message"].as_str().unwrap().starts_with(field), "{first}");
        let metrics = controllers.runner.metrics();
        let series = format!(
            "palisade_pod_security_violation{{namespace=\"team\",kind=\"Pod\",name=\"root\",policy=\"pod-security-baseline\",rule=\"privileged\",field=\"{field}\"}} 1"
        );
        assert!(metrics.lines().any(|line| line == series), "{metrics}");
        assert!(metrics.contains("palisade_pod_security_findings{result=\"warn\"} 4"), "{metrics}");
        let empty = kind.resource().object(Some("empty"), "palisade-pod-security");
        assert_eq!(live.api.get(&empty).await.unwrap(), None, "nothing was judged there");

        // What changes nothing in a report is not written.
        let writes = fate.writes();
        let annotate = json!({"metadata": {"annotations": {"note": "1"}}});
        live.api.patch("/api/v1/namespaces/team/pods/root", "test", Patch::Merge, &annotate).await.unwrap();
        after_interval(&live).await;
        assert_eq!(fate.writes(), writes, "{kind:?}");

        // Others may delete it: it is back after a while.
        let path = kind.resource().object(Some("team"), "palisade-pod-security");
        live.api.delete(&path).await.unwrap();
        tokio::time::sleep(Duration::from_mins(11)).await;
        live.settle().await;
        assert_eq!(report(&live, kind).await.unwrap()["results"], written["results"]);

        // A second process finds it as it is.
        drop(controllers);
        let again = Fate::default();
        let _controllers = start(&live, &again);
        live.settle().await;
        assert_eq!(again.writes(), 0, "{kind:?}");

        live.api.delete("/api/v1/namespaces/team/pods/root").await.unwrap();
        after_interval(&live).await;
        assert_eq!(report(&live, kind).await, None, "nothing is left to report");
        live.api.delete(&NAMESPACES.object(None, "team")).await.unwrap();
        after_interval(&live).await;
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_kind_of_report_nothing_is_written_until_there_is_one() {
    let live = Live::plain().await;
    fill(&live).await;
    let fate = Fate::default();
    let controllers = start(&live, &fate);
    live.settle().await;
    assert_eq!(fate.writes(), 0);
    assert!(controllers.runner.metrics().contains("palisade_pod_security_findings{result=\"fail\"} 1"));
    install(&live, OPEN_REPORTS).await;
    tokio::time::sleep(Duration::from_mins(11)).await;
    live.settle().await;
    assert!(report(&live, ReportKind::OpenReports).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn an_exception_is_a_skip_as_long_as_it_is_there() {
    let live = Live::plain().await;
    crds::install(&live.api, false).await.unwrap();
    install(&live, OPEN_REPORTS).await;
    fill(&live).await;
    let exception = json!({"apiVersion": "palisade.dev/v1alpha1", "kind": "SecurityException", "metadata": {"name": "accepted"}, "spec": {
        "namespaces": ["team"], "workloads": [{"kind": "Pod", "name": "root"}],
        "allow": [{"control": "privileged", "field": "spec.containers[*].securityContext.privileged", "values": ["true"]}],
        "reason": "r", "owner": "o", "ticket": "t", "until": "2999-01-01T00:00:00Z"}});
    live.create(EXCEPTIONS, None, exception).await;
    let _controllers = start(&live, &Fate::default());
    live.settle().await;
    let counts = async || {
        let report = report(&live, ReportKind::OpenReports).await.unwrap();
        (report["summary"]["fail"].clone(), report["summary"]["skip"].clone())
    };
    assert_eq!(counts().await, (json!(0), json!(1)));
    live.api.delete(&EXCEPTIONS.object(None, "accepted")).await.unwrap();
    after_interval(&live).await;
    assert_eq!(counts().await, (json!(1), json!(0)));
}
