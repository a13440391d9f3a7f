//! What a replica reports about the configuration it runs, which is what the rollout counts.

use palisade_apiserver::Server;
use palisade_policy::{
    enforcement::instances::{
        CONFIG_MAP_KEY, Configuration, Report, WEBHOOK, config_map, lease_name, read_report,
    },
    standards::level::Level,
};
use palisade_webhook::{Options, metrics::CONFIGURATION_ERRORS, options::ConfigurationSource};
use serde_json::{Value, json};

use crate::support::{Cluster, OWN, cluster, eventually, options, start};

const MAPS: &str = "/api/v1/namespaces/palisade-system/configmaps";

/// The report, once it has the expected content.
async fn reported(cluster: &Cluster, what: &str, holds: impl Fn(&Report) -> bool) -> Report {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{OWN}/leases/{}", lease_name(WEBHOOK, "one"));
    let mut last = None;
    eventually(what, async || {
        last = cluster.get(&path).await.and_then(|lease| read_report(&lease));
        last.as_ref().is_some_and(&holds)
    })
    .await;
    last.unwrap()
}

fn version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap()
}

#[tokio::test]
async fn a_replica_reports_which_version_of_the_configuration_it_runs() {
    let cluster = cluster(Server::builder()).await;
    let webhook = start(&cluster, options()).await;
    let before = reported(&cluster, "a report without a ConfigMap", |_| true).await;
    assert_eq!((before.observed.as_deref(), before.enforce), (Some(""), Some(Level::Privileged)));

    let restricted = Configuration::of(Level::Restricted);
    let made = cluster.make(MAPS, &config_map(&restricted)).await;
    let seen = |object: &Value| {
        let version = version(object).to_owned();
        move |report: &Report| report.observed.as_deref() == Some(version.as_str())
    };
    let applied = reported(&cluster, "the configuration to be reported", seen(&made)).await;
    assert_eq!((applied.revision, applied.enforce), (restricted.revision.clone(), Some(Level::Restricted)));

    // Nothing to apply, but the replica has come to a newer version.
    let path = format!("{MAPS}/pod-security-configuration");
    let touched = json!({"metadata": {"labels": {"touched": "yes"}}});
    let touched = cluster.send("PATCH", &path, &touched).await.unwrap();
    let again = reported(&cluster, "the newer version to be reported", seen(&touched)).await;
    assert_eq!(again.revision, restricted.revision);

    // What cannot be applied is not come to: the report still names what runs.
    let broken = json!({"data": {CONFIG_MAP_KEY: "{"}});
    cluster.send("PATCH", &path, &broken).await.unwrap();
    eventually("the complaint", async || webhook.metrics.get(&CONFIGURATION_ERRORS) > 0).await;
    let privileged = Configuration::of(Level::Privileged);
    let kept = reported(&cluster, "the report to stay", |_| true).await;
    assert_eq!((kept.observed.as_deref(), kept.enforce), (Some(version(&touched)), Some(Level::Restricted)));

    let repaired = json!({"data": {CONFIG_MAP_KEY: privileged.value.to_string()}});
    let repaired = cluster.send("PATCH", &path, &repaired).await.unwrap();
    let back = reported(&cluster, "the way back to be reported", seen(&repaired)).await;
    assert_eq!(back.enforce, Some(Level::Privileged));
    webhook.shutdown().await;
}

#[tokio::test]
async fn a_replica_with_a_configuration_of_its_own_names_no_version() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("configuration.json");
    std::fs::write(&file, Configuration::of(Level::Baseline).value.to_string()).unwrap();
    let other = ConfigurationSource::ConfigMap { namespace: OWN.to_owned(), name: "mine".to_owned() };
    for configuration in [ConfigurationSource::File(file), other] {
        let cluster = cluster(Server::builder()).await;
        let mut map = config_map(&Configuration::of(Level::Baseline));
        map["metadata"]["name"] = json!("mine");
        cluster.make(MAPS, &map).await;
        let webhook = start(&cluster, Options { configuration, ..options() }).await;
        let report = reported(&cluster, "a report", |_| true).await;
        assert_eq!((report.observed, report.enforce), (None, Some(Level::Baseline)));
        webhook.shutdown().await;
    }
}
