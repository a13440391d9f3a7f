//! The alerts and the Grafana dashboard ask for nothing that the components do not export: every metric, label and value in
//! their queries is looked up in what the components' own code writes.

use std::{collections::BTreeMap, time::Duration};

use palisade_base::metrics::Registry;
use palisade_controllers::{
    metrics::{Metrics as ControllerMetrics, WriteOutcome},
    observe::{SeenReport, State},
    reports::plan::{ClusterFindings, Counts, NamespaceFindings, Row, rows},
    time::micros,
};
use palisade_model::workload::workload_kind;
use palisade_node::agent::metrics as node_metrics;
use palisade_policy::{
    enforcement::instances::{Configuration, instance_lease, read_report},
    standards::level::Level,
};
use palisade_webhook::{
    answer::Route,
    metrics::{Metrics as WebhookMetrics, ReviewOutcome},
};
use promql_parser::{
    label::MatchOp,
    parser::{AggregateExpr, Expr, VectorSelector, parse},
    util::{ExprVisitor, walk_expr},
};
use serde_json::{Value, json};

use crate::install::installed;

/// The labels that Prometheus itself adds to every series.
const OF_TARGET: &[&str] = &["instance", "job", "pod", "container"];

/// Labels of each metric, with the values of each.
type Exported = BTreeMap<String, BTreeMap<String, Vec<String>>>;

/// What the controllers, the webhook and the node agent export in a cluster where there is something to report.
fn exported() -> Exported {
    let mut text = controller_text();
    let webhook = WebhookMetrics::default();
    for route in [Route::Mutate, Route::Validate] {
        webhook.review(route, ReviewOutcome::Denied, Duration::from_millis(1));
    }
    webhook.certificates(1, Some(1));
    text.push_str(&webhook.text(Some("revision"), 1, true));
    let node = Registry::default();
    node_metrics::declare(&node);
    text.push_str(&node.text());
    let mut found = Exported::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let series = line.rsplit_once(' ').unwrap().0;
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let own = found.entry(name.to_owned()).or_default();
        let mut rest = labels.trim_end_matches('}');
        while let Some((label, after)) = rest.split_once("=\"") {
            let (value, after) = after.split_once('"').unwrap();
            own.entry(label.to_owned()).or_default().push(value.to_owned());
            rest = after.trim_start_matches(',');
        }
    }
    found
}

/// A Deployment that violates the level of its namespace, and whose pods are rejected for that.
fn controller_text() -> String {
    let mut state = State::default();
    state.cluster.set_namespace(&json!({"metadata": {"name": "team", "uid": "u",
        "labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}));
    let message = "pods \"web-x\" is forbidden: violates PodSecurity \"baseline:latest\": host namespaces";
    let deployment = json!({"metadata": {"name": "web", "namespace": "team", "uid": "w"},
        "spec": {"replicas": 1, "template": {"spec": {"hostNetwork": true, "containers": [{"name": "c", "image": "i"}]}}},
        "status": {"conditions": [{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message}]}});
    assert!(state.cluster.set_workload(workload_kind("apps/v1", "Deployment").unwrap(), &deployment));
    let record = state.cluster.namespace("team").unwrap();
    let findings = NamespaceFindings {
        namespace: "team".to_owned(),
        uid: "u".to_owned(),
        held_to: Level::Baseline,
        objects: record.findings(),
        undecided: record.doubts(),
        rejected: state.cluster.rejected_workloads(),
        compliant: record.compliant(),
    };
    let rows: Vec<Row> = rows(&findings, &BTreeMap::new());
    let metrics = ControllerMetrics::default();
    let name = "team".to_owned();
    metrics.set_findings(Some(ClusterFindings::of([(&name, (Counts::count(&rows), rows.as_slice()))])));
    for outcome in [WriteOutcome::Done, WriteOutcome::Failed] {
        metrics.wrote("reports", outcome);
    }
    metrics.turn("reports", Duration::from_millis(1));
    metrics.lead(true);
    let report = instance_lease("webhook", "one", &Configuration::of(Level::Privileged), &micros());
    state.reports.insert("one".to_owned(), SeenReport::now(read_report(&report).unwrap()));
    metrics.text(&state)
}

/// Every query of the alerts and of the dashboard, with where it is.
fn queries() -> Vec<(String, String)> {
    let (_, objects) = installed(&["--monitoring"]);
    let mut found = Vec::new();
    let rules = objects.iter().find(|object| object["kind"] == "PrometheusRule").unwrap();
    for rule in rules["spec"]["groups"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap())
    {
        let name = rule["alert"].as_str().unwrap();
        found.push((name.to_owned(), rule["expr"].as_str().unwrap().to_owned()));
    }
    let dashboard = objects.iter().find(|object| object["metadata"]["name"] == "palisade-dashboard").unwrap();
    let dashboard: Value =
        serde_json::from_str(dashboard["data"]["palisade.json"].as_str().unwrap()).unwrap();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().unwrap().replace("$__rate_interval", "5m");
            found.push((panel["title"].as_str().unwrap().to_owned(), expression));
        }
    }
    assert!(found.len() > 40, "{}", found.len());
    found
}

/// What a query asks for that is not exported.
struct Lookup<'e> {
    exported: &'e Exported,
    missing: Vec<String>,
}

impl Lookup<'_> {
    fn selector(&mut self, selector: &VectorSelector) {
        let name = selector.name.clone().unwrap_or_default();
        let Some(labels) = self.exported.get(&name) else {
            return self.missing.push(format!("metric {name:?}"));
        };
        for matcher in &selector.matchers.matchers {
            match labels.get(&matcher.name) {
                None => self.missing.push(format!("label {:?} of {name}", matcher.name)),
                Some(values) if matcher.op == MatchOp::Equal && !values.contains(&matcher.value) => {
                    self.missing.push(format!("{}={:?} of {name}", matcher.name, matcher.value));
                }
                Some(_) => {}
            }
        }
    }

    /// The labels that an aggregation keeps must be those of every metric in it.
    fn aggregate(&mut self, aggregate: &AggregateExpr) {
        let Some(modifier) = &aggregate.modifier else { return };
        let mut names = Names::default();
        let _: Result<bool, ()> = walk_expr(&mut names, &aggregate.expr);
        for name in names.0 {
            let labels = self.exported.get(&name);
            for label in &modifier.labels().labels {
                let is_known = labels.is_some_and(|labels| labels.contains_key(label));
                if !is_known && !OF_TARGET.contains(&label.as_str()) {
                    self.missing.push(format!("label {label:?} of {name}"));
                }
            }
        }
    }
}

#[derive(Default)]
struct Names(Vec<String>);

impl ExprVisitor for Names {
    type Error = ();

    fn pre_visit(&mut self, expression: &Expr) -> Result<bool, ()> {
        match expression {
            Expr::VectorSelector(selector) => self.0.extend(selector.name.clone()),
            Expr::MatrixSelector(matrix) => self.0.extend(matrix.vs.name.clone()),
            _ => {}
        }
        Ok(true)
    }
}

impl ExprVisitor for Lookup<'_> {
    type Error = ();

    fn pre_visit(&mut self, expression: &Expr) -> Result<bool, ()> {
        match expression {
            Expr::VectorSelector(selector) => self.selector(selector),
            Expr::MatrixSelector(matrix) => self.selector(&matrix.vs),
            Expr::Aggregate(aggregate) => self.aggregate(aggregate),
            _ => {}
        }
        Ok(true)
    }
}

fn missing(query: &str, exported: &Exported) -> Vec<String> {
    let expression = parse(query).unwrap_or_else(|error| panic!("{query}: {error}"));
    let mut lookup = Lookup { exported, missing: Vec::new() };
    let _: Result<bool, ()> = walk_expr(&mut lookup, &expression);
    lookup.missing
}

#[test]
fn every_query_asks_for_what_is_exported() {
    let exported = exported();
    for (place, query) in queries() {
        assert_eq!(missing(&query, &exported), [""; 0], "{place}: {query}\n{exported:#?}");
    }
}

/// The lookup itself can fail.
#[test]
fn a_query_for_what_is_not_exported_is_found() {
    let exported = exported();
    for (query, expected) in [
        ("sum(palisade_webhook_review_total)", "metric \"palisade_webhook_review_total\""),
        (
            "rate(palisade_webhook_reviews_total{answer=\"refused\"}[5m])",
            "answer=\"refused\" of palisade_webhook_reviews_total",
        ),
        ("palisade_node_drift{pod_name=\"x\"}", "label \"pod_name\" of palisade_node_drift"),
        (
            "sum by (workload) (palisade_pod_security_violation)",
            "label \"workload\" of palisade_pod_security_violation",
        ),
        ("palisade_node_drift > 0", ""),
    ] {
        let found = missing(query, &exported);
        assert_eq!(found.first().map_or("", String::as_str), expected, "{query}");
    }
}

/// An alert can only name labels that its query keeps.
#[test]
fn alerts_name_the_workload_and_the_field() {
    let exported = exported();
    let (_, objects) = installed(&["--monitoring"]);
    let rules = objects.iter().find(|object| object["kind"] == "PrometheusRule").unwrap();
    let mut seen = 0;
    for rule in rules["spec"]["groups"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap())
    {
        let query = rule["expr"].as_str().unwrap();
        let kept: Vec<String> = match &parse(query).unwrap() {
            Expr::Binary(binary) => kept_by(&binary.lhs, &exported),
            other => kept_by(other, &exported),
        };
        for text in rule["annotations"].as_object().unwrap().values().map(|text| text.as_str().unwrap()) {
            for used in text.split("$labels.").skip(1) {
                let label: String = used.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                assert!(
                    kept.contains(&label) || OF_TARGET.contains(&label.as_str()),
                    "{label} in {text}: {query}"
                );
                seen += 1;
            }
        }
        if rule["alert"] == "PodSecurityViolation" {
            for label in ["namespace", "kind", "name", "field"] {
                assert!(
                    rule["annotations"]["summary"].as_str().unwrap().contains(&format!("$labels.{label}")),
                    "{label}"
                );
            }
        }
    }
    assert!(seen > 10, "{seen}");
}

fn kept_by(expression: &Expr, exported: &Exported) -> Vec<String> {
    match expression {
        Expr::Aggregate(aggregate) => {
            aggregate.modifier.as_ref().map(|modifier| modifier.labels().labels.clone()).unwrap_or_default()
        }
        Expr::Binary(binary) => kept_by(&binary.lhs, exported),
        Expr::Paren(paren) => kept_by(&paren.expr, exported),
        _ => {
            let mut names = Names::default();
            let _: Result<bool, ()> = walk_expr(&mut names, expression);
            let labels = names.0.first().and_then(|name| exported.get(name));
            labels.into_iter().flat_map(|labels| labels.keys().cloned()).collect()
        }
    }
}

/// A container of the chart has the ports that the PodMonitor names.
#[test]
fn every_component_has_the_port_that_is_scraped() {
    let (_, objects) = installed(&["--monitoring"]);
    let monitor = objects.iter().find(|object| object["kind"] == "PodMonitor").unwrap();
    let port = &monitor["spec"]["podMetricsEndpoints"][0]["port"];
    let wanted = &monitor["spec"]["selector"]["matchLabels"];
    let workloads: Vec<&Value> = objects
        .iter()
        .filter(|object| matches!(object["kind"].as_str(), Some("Deployment" | "DaemonSet")))
        .collect();
    assert_eq!(workloads.len(), 3);
    for workload in workloads {
        let template = &workload["spec"]["template"];
        for (label, value) in wanted.as_object().unwrap() {
            assert_eq!(&template["metadata"]["labels"][label], value, "{label}");
        }
        let ports = template["spec"]["containers"][0]["ports"].as_array().unwrap();
        assert!(ports.iter().any(|own| own["name"] == *port), "{ports:?}");
    }
}
