//! An outage of all replicas: only what would have been judged waits for them.

use palisade_apiserver::Server;
use palisade_policy::resources;
use palisade_testkit::outage_cases::{NAMESPACE, cases, objects};
use serde_json::json;

use crate::support::{cluster, eventually, install, registered, start};

#[tokio::test]
async fn only_what_is_judged_waits_for_a_webhook_that_does_not_answer() {
    let cluster = cluster(Server::builder().disable_plugins(["ServiceAccount".to_owned()])).await;
    install(&cluster, resources::PROFILE_POLICIES).await;
    let webhook = start(&cluster, registered()).await;
    for (path, object) in objects() {
        cluster.make(&path, &object).await;
    }
    webhook.shutdown().await;
    for case in cases() {
        let sent = cluster.send(case.method, &case.path, &case.body).await;
        match (&sent, case.passes) {
            (Ok(_), true) => {}
            (Err(error), false) if error.contains("failed calling webhook") => {}
            _ => panic!("{}: {sent:?}", case.name),
        }
    }
    eventually("the namespace to end", async || {
        cluster
            .get(&format!("/api/v1/namespaces/{NAMESPACE}"))
            .await
            .is_none_or(|namespace| namespace == json!(null))
    })
    .await;
}
