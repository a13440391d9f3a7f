//! More violating namespaces than the status can hold: their times outlive the controller that wrote them.

use std::collections::BTreeMap;

use palisade_controllers::{
    api::{CONFIG_MAPS, NAMESPACES, Patch},
    cluster::Cluster,
    readiness::{ledger::Ledger, report::report_with_times},
};
use palisade_policy::enforcement::{
    instances::NAMESPACE,
    ledger::{KEY, LABEL},
    mode::Release,
    violations::MOST_SHOWN,
};
use serde_json::{Value, json};

use crate::{
    live::{CONFIG, Fate, Kill, Live},
    live_rollout::SYNC,
};

const LONG_AGO: &str = "2020-02-02T02:02:02Z";
/// Beyond what the status shows.
const LAST: &str = "team-119";

/// More violating namespaces than the status shows. Only the readiness controller writes about them.
async fn crowded() -> Live {
    let live = Live::start().await;
    for number in 0..MOST_SHOWN + 20 {
        let name = format!("team-{number:03}");
        live.namespace(&name, json!({SYNC: "false"})).await;
        live.pod(&name, "agent", json!({"privileged": true})).await;
    }
    live
}

/// The parts of the ledger, by name.
async fn parts(live: &Live) -> BTreeMap<String, Value> {
    let maps = live.list(CONFIG_MAPS, Some(NAMESPACE)).await;
    let parts = maps.into_iter().filter(|map| map["metadata"]["labels"].get(LABEL).is_some());
    parts.map(|map| (map["metadata"]["name"].as_str().unwrap().to_owned(), map)).collect()
}

/// State and time of every namespace in the ledger.
async fn kept(live: &Live) -> BTreeMap<String, (String, String)> {
    let ledger = Ledger::read(&live.api).await.unwrap();
    ledger
        .entries()
        .map(|entry| {
            (entry.name, (format!("{:?}", entry.state.unwrap()), entry.last_transition_time.unwrap()))
        })
        .collect()
}

/// Puts all times that were written into the past, so that every one that moves is seen to.
async fn long_ago(live: &Live) {
    for (name, map) in parts(live).await {
        let lines = map["data"][KEY].as_str().unwrap().lines().map(|line| {
            let mut entry: Value = serde_json::from_str(line).unwrap();
            entry["lastTransitionTime"] = json!(LONG_AGO);
            format!("{entry}\n")
        });
        let change = json!({"data": {KEY: lines.collect::<String>()}});
        let path = CONFIG_MAPS.object(Some(NAMESPACE), &name);
        live.api.patch(&path, "test", Patch::Merge, &change).await.unwrap();
    }
    let mut config = live.config().await;
    for entry in config["status"]["violatingNamespaces"].as_array_mut().unwrap() {
        entry["lastTransitionTime"] = json!(LONG_AGO);
    }
    let path = format!("{}/status", CONFIG.object(None, "cluster"));
    live.api.replace(&path, "test", &config).await.unwrap();
}

/// Deletes a namespace, and does what the namespace controller does then.
async fn remove(live: &Live, name: &str) {
    let path = NAMESPACES.object(None, name);
    live.api.delete(&path).await.unwrap();
    let mut namespace = live.get_namespace(name).await;
    namespace["spec"]["finalizers"] = json!([]);
    live.api.replace(&format!("{path}/finalize"), "test", &namespace).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn times_of_namespaces_beyond_the_status_survive_a_restart() {
    let live = crowded().await;
    live.phase(Release::Evaluate, None, &Fate::default()).await;
    let config = live.config().await;
    assert_eq!(config["status"]["violatingNamespaces"].as_array().unwrap().len(), MOST_SHOWN);
    assert_eq!(config["status"]["violatingNamespaceCount"], MOST_SHOWN + 20);
    assert_eq!(kept(&live).await.len(), MOST_SHOWN + 20);
    long_ago(&live).await;

    // A restart alone writes nothing.
    let before = (live.config().await, parts(&live).await);
    live.phase(Release::Evaluate, None, &Fate::default()).await;
    assert_eq!((live.config().await, parts(&live).await), before);

    // One beyond the list is fixed: only its part and the count change, and only its time moves.
    live.api.delete(&format!("/api/v1/namespaces/{LAST}/pods/agent")).await.unwrap();
    live.phase(Release::Evaluate, None, &Fate::default()).await;
    let after = parts(&live).await;
    assert_eq!(after.iter().filter(|(name, map)| before.1[*name] != **map).count(), 1);
    for (name, (state, at)) in kept(&live).await {
        let expected = if name == LAST { "Previous" } else { "Current" };
        assert_eq!((state.as_str(), at == LONG_AGO), (expected, name != LAST), "{name} {at}");
    }
    let config = live.config().await;
    assert_eq!(config["status"]["violatingNamespaceCount"], MOST_SHOWN + 19);
    assert_eq!(config["status"]["violatingNamespaces"], before.0["status"]["violatingNamespaces"]);

    // Namespaces of the list go: others move up, with the times they had, fixed ones last.
    for number in 0..19 {
        let name = format!("team-{number:03}");
        live.api.delete(&format!("/api/v1/namespaces/{name}/pods/agent")).await.unwrap();
        remove(&live, &name).await;
    }
    live.phase(Release::Evaluate, None, &Fate::default()).await;
    let config = live.config().await;
    let shown = config["status"]["violatingNamespaces"].as_array().unwrap();
    assert_eq!((shown.len(), &shown[99]["name"]), (MOST_SHOWN, &json!("team-118")));
    assert!(shown.iter().all(|entry| entry["lastTransitionTime"] == LONG_AGO), "{shown:#?}");
    assert_eq!(kept(&live).await.len(), MOST_SHOWN + 1, "and the one that was fixed");

    // When all fit into the status, nothing else is needed.
    remove(&live, LAST).await;
    live.phase(Release::Evaluate, None, &Fate::default()).await;
    assert_eq!(kept(&live).await, BTreeMap::new());
    let config = live.config().await;
    assert_eq!(config["status"]["violatingNamespaces"].as_array().unwrap().len(), MOST_SHOWN);
}

#[tokio::test(start_paused = true)]
async fn killed_at_any_write_no_time_is_forgotten() {
    let write = async |kill: Option<Kill>| {
        let live = crowded().await;
        live.phase(Release::Evaluate, None, &Fate::default()).await;
        long_ago(&live).await;
        // One of the list is fixed and the first of the others takes its place.
        live.api.delete("/api/v1/namespaces/team-000/pods/agent").await.unwrap();
        let fate = Fate::with(kill);
        live.phase(Release::Evaluate, None, &fate).await;
        (live, fate.writes())
    };
    let (_, writes) = write(None).await;
    for kill in (0..writes).map(Kill::After) {
        let (live, _) = write(Some(kill)).await;
        for (name, (state, at)) in kept(&live).await {
            let is_fixed = name == "team-000";
            let expected = if is_fixed { "Previous" } else { "Current" };
            assert_eq!((state.as_str(), at != LONG_AGO), (expected, is_fixed), "{name}, {kill:?}");
        }
        let config = live.config().await;
        let shown = config["status"]["violatingNamespaces"].as_array().unwrap();
        assert_eq!((&shown[0]["name"], &shown[99]["name"]), (&json!("team-001"), &json!("team-100")));
        assert!(shown.iter().all(|entry| entry["lastTransitionTime"] == LONG_AGO), "{kill:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn foreign_writes_to_the_ledger_are_reverted() {
    let live = crowded().await;
    let _controllers = live.controllers(Release::Evaluate, None);
    live.settle().await;
    let all = kept(&live).await;
    for name in parts(&live).await.keys() {
        live.api.delete(&CONFIG_MAPS.object(Some(NAMESPACE), name)).await.unwrap();
    }
    live.api.delete(&format!("/api/v1/namespaces/{LAST}/pods/agent")).await.unwrap();
    live.settle().await;
    let after = kept(&live).await;
    assert_eq!(after.keys().collect::<Vec<_>>(), all.keys().collect::<Vec<_>>());
    assert_eq!(after[LAST].0, "Previous");
}

/// What is reported of a namespace that the status does not show.
#[tokio::test(start_paused = true)]
async fn the_report_knows_since_when_beyond_the_list() {
    let live = crowded().await;
    live.phase(Release::Evaluate, None, &Fate::default()).await;
    long_ago(&live).await;
    let mut cluster = Cluster::default();
    for (index, name) in ["team-000", "team-118", LAST].into_iter().enumerate() {
        cluster.observe(&json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "labels": {SYNC: "false"}}}));
        if index > 0 {
            cluster.observe(&json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "agent", "namespace": name},
                "spec": {"containers": [{"name": "c", "image": "i", "securityContext": {"privileged": true}}]}}));
        }
    }
    let ledger = Ledger::read(&live.api).await.unwrap();
    let report = report_with_times(&cluster, &live.config().await, &ledger);
    let times: Vec<(&str, Option<&str>)> =
        report.iter().map(|namespace| (namespace.name.as_str(), namespace.since.as_deref())).collect();
    assert_eq!(times, [("team-000", None), ("team-118", Some(LONG_AGO)), (LAST, Some(LONG_AGO))]);
}
