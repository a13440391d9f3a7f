//! The label syncer on the embedded API server: users, constraints, former owners, and no flapping.

use std::{collections::BTreeSet, time::Duration};

use palisade_controllers::{
    api::{NAMESPACES, Patch, Resource},
    label_syncer::plan::Write,
    runner::Options,
};
use palisade_policy::enforcement::{labels::Apply, mode::Release};
use serde_json::{Value, json};

use crate::live::{Fate, Live};

const LEVEL: &str = "security.openshift.io/MinimallySufficientPodSecurityStandard";
const WARN: &str = "pod-security.kubernetes.io/warn";
const AUDIT: &str = "pod-security.kubernetes.io/audit";
const FORMER: &str = "cluster-policy-controller";
const CONSTRAINTS: Resource = Resource::new("security.openshift.io", "v1", "securitycontextconstraints");

async fn level(live: &Live, namespace: &str) -> String {
    let object = live.get_namespace(namespace).await;
    object["metadata"]["annotations"][LEVEL].as_str().unwrap_or("<none>").to_owned()
}

async fn change(live: &Live, namespace: &str, manager: &str, change: Value) {
    let path = NAMESPACES.object(None, namespace);
    live.api.patch(&path, manager, Patch::Merge, &change).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_edited_annotation_is_taken_back_and_labels_of_users_are_left_alone() {
    let live = Live::start().await;
    live.namespace("team", json!({})).await;
    let _controllers = live.controllers(Release::Evaluate, None);
    live.settle().await;
    assert_eq!(level(&live, "team").await, "restricted");
    let edit = json!({"metadata": {"annotations": {LEVEL: "privileged"}, "labels": {WARN: "baseline"}}});
    change(&live, "team", "kubectl-edit", edit).await;
    live.settle().await;
    assert_eq!(level(&live, "team").await, "restricted", "taken back");
    let labels = live.get_namespace("team").await["metadata"]["labels"].clone();
    assert_eq!((&labels[WARN], &labels[AUDIT]), (&json!("baseline"), &json!("restricted")));
    change(&live, "team", "kubectl-edit", json!({"metadata": {"annotations": {LEVEL: null}}})).await;
    live.settle().await;
    assert_eq!(level(&live, "team").await, "restricted", "put back");
}

#[tokio::test(start_paused = true)]
async fn a_constraint_that_changes_shows_at_once_and_nothing_flaps() {
    let live = Live::start().await;
    for name in ["one", "two"] {
        live.namespace(name, json!({})).await;
    }
    let fate = Fate::default();
    let evaluation_interval = Duration::from_mins(5);
    let options = Options {
        release: Release::Evaluate,
        evaluation_interval,
        levels: palisade_policy::enforcement::level::LevelSource::Constraints,
        ..Options::default()
    };
    let _controllers = live.run(options, &fate);
    live.settle().await;
    let (before, began) = (fate.writes(), tokio::time::Instant::now());
    let path = CONSTRAINTS.object(None, "restricted-v2");
    let wider = json!({"allowPrivilegeEscalation": true});
    live.api.patch(&path, "kubectl", Patch::Merge, &wider).await.unwrap();
    while level(&live, "one").await != "baseline" {
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(began.elapsed() < Duration::from_secs(1), "not at once");
    }
    live.settle().await;
    // Each managed namespace is written once, and then not again, however often everything is evaluated anew.
    let managed = live.list(NAMESPACES, None).await;
    let managed = managed.iter().filter(|own| own["metadata"]["annotations"][LEVEL] == "baseline").count();
    assert_eq!(fate.writes() - before, managed);
    tokio::time::sleep(Duration::from_mins(21)).await;
    assert_eq!(fate.writes() - before, managed, "flaps");
}

#[tokio::test(start_paused = true)]
async fn a_malformed_constraint_is_skipped_and_reported() {
    let live = Live::start().await;
    live.namespace("team", json!({})).await;
    let controllers = live.controllers(Release::Evaluate, None);
    live.settle().await;
    let mut broken = live.api.get(&CONSTRAINTS.object(None, "restricted-v2")).await.unwrap().unwrap();
    broken["metadata"] = json!({"name": "broken"});
    broken["runAsUser"] = json!({"type": "MustRunAs"});
    broken["groups"] = json!(["system:authenticated"]);
    live.create(CONSTRAINTS, None, broken).await;
    live.settle().await;
    assert_eq!(level(&live, "team").await, "restricted", "the others decide");
    assert_eq!(live.condition("Degraded").await, ("True".to_owned(), "ConstraintsSkipped".to_owned()));
    assert_eq!(live.condition("Ready").await.0, "True", "nothing waits for it");
    let reported = live.reported().await;
    assert!(
        reported.iter().any(|(name, reason, _)| name == "broken" && reason == "MalformedConstraint"),
        "{reported:?}"
    );
    let metrics = controllers.runner.metrics();
    assert!(metrics.contains("palisade_rollout_skipped_constraints 1"), "{metrics}");
    live.api.delete(&CONSTRAINTS.object(None, "broken")).await.unwrap();
    live.settle().await;
    assert_eq!(live.condition("Degraded").await.0, "False");
}

#[tokio::test(start_paused = true)]
async fn labels_of_the_former_syncer_change_hands_without_a_gap() {
    let live = Live::start().await;
    live.namespace("team", json!({})).await;
    let old = json!({"metadata": {"labels": {WARN: "baseline", AUDIT: "restricted"}}});
    change(&live, "team", FORMER, old).await;
    let _controllers = live.controllers(Release::Evaluate, None);
    live.settle().await;
    let namespace = live.get_namespace("team").await;
    assert_eq!(namespace["metadata"]["labels"][WARN], "restricted");
    let owners: BTreeSet<String> = namespace["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["fieldsV1"]["f:metadata"]["f:labels"].get(format!("f:{AUDIT}")).is_some())
        .map(|entry| entry["manager"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(owners, ["pod-security-admission-label-synchronization-controller".to_owned()].into());
}

#[tokio::test(start_paused = true)]
async fn the_status_stays_small_and_forgets_no_time() {
    let live = Live::start().await;
    for index in 0..130 {
        let name = format!("ns-{index:03}");
        live.namespace(&name, json!({"security.openshift.io/scc.podSecurityLabelSync": "false"})).await;
        live.pod(&name, "agent", json!({"privileged": true})).await;
    }
    let _controllers = live.controllers(Release::Evaluate, None);
    live.settle().await;
    let config = live.config().await;
    let entries = |config: &Value| config["status"]["violatingNamespaces"].as_array().unwrap().clone();
    assert_eq!((entries(&config).len(), &config["status"]["violatingNamespaceCount"]), (100, &json!(130)));
    let first_seen = entries(&config)[0]["lastTransitionTime"].clone();
    // The clock of entries is the real one, in seconds.
    let seen: jiff::Timestamp = first_seen.as_str().unwrap().parse().unwrap();
    while jiff::Timestamp::now().as_second() <= seen.as_second() {
        std::thread::yield_now();
    }
    for index in 0..60 {
        let name = format!("ns-{index:03}");
        live.label(&name, "pod-security.kubernetes.io/enforce", json!("privileged")).await;
    }
    live.settle().await;
    let config = live.config().await;
    assert_eq!(config["status"]["violatingNamespaceCount"], json!(70));
    let entries = entries(&config);
    assert_eq!(entries.len(), 100);
    let last = entries.iter().find(|entry| entry["name"] == "ns-129").unwrap();
    assert_eq!((&last["state"], &last["lastTransitionTime"]), (&json!("Current"), &first_seen));
    let fixed = entries.iter().find(|entry| entry["name"] == "ns-000").unwrap();
    assert_eq!(fixed["state"], "Previous");
    assert_ne!(fixed["lastTransitionTime"], first_seen);
}

#[tokio::test(start_paused = true)]
async fn namespaces_without_ranges_get_them() {
    let live = Live::plain_allocation().await;
    for name in ["one", "two", "three"] {
        live.namespace(name, json!({})).await;
    }
    let _controllers = live.controllers(Release::Evaluate, None);
    live.settle().await;
    let mut ranges = BTreeSet::new();
    for name in ["one", "two", "three"] {
        let namespace = live.get_namespace(name).await;
        let annotations = &namespace["metadata"]["annotations"];
        ranges.insert(annotations["openshift.io/sa.scc.uid-range"].as_str().unwrap().to_owned());
        assert_eq!(level(&live, name).await, "restricted");
    }
    assert_eq!(ranges.len(), 3, "{ranges:?}");
    assert!(
        live.reported().await.iter().any(|(name, reason, _)| name == "one" && reason == "CreatedSCCRanges")
    );
}

#[tokio::test(start_paused = true)]
async fn each_controller_can_be_left_out() {
    let live = Live::start().await;
    live.namespace("team", json!({})).await;
    live.pod("team", "agent", json!({"privileged": true})).await;
    let options = Options {
        release: Release::Evaluate,
        controllers: ["readiness"].into(),
        levels: palisade_policy::enforcement::level::LevelSource::Constraints,
        ..Options::default()
    };
    let _controllers = live.run(options, &Fate::default());
    live.settle().await;
    assert_eq!(live.mode().await, ("Legacy".to_owned(), String::new()));
    assert_eq!(level(&live, "team").await, "<none>", "no syncer");
    assert_eq!(live.requested().await, None, "no observer");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_was_deleted_in_the_meantime_is_not_made_anew() {
    let live = Live::start().await;
    let labels = std::collections::BTreeMap::from([(WARN, "baseline".to_owned())]);
    // What was planned for a namespace that is no longer there.
    let write = Write {
        namespace: "team".to_owned(),
        uid: "0b6d4a2e-5d0c-4f3a-9a53-3f6d0f4f2d11".to_owned(),
        resource_version: "7".to_owned(),
        manager: "syncer",
        apply: Apply { labels, ..Apply::default() },
    };
    let path = NAMESPACES.object(None, "team");
    let applied = live.api.patch(&path, "syncer", Patch::Apply { force: true }, &write.to_object()).await;
    assert!(applied.is_err_and(|error| error.is_conflict()));
    assert_eq!(live.api.get(&path).await.unwrap(), None);
}
