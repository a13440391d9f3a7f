//! Pods on a real kubelet.

use palisade_testkit::kubernetes::{Cluster, Parts};
use serde_json::json;

use crate::support::restricted_pod;

#[test]
fn a_pod_runs_on_a_stock_kubelet() {
    let Some(cluster) = Cluster::start(Parts::Node) else { return };
    let mut pod = restricted_pod("client");
    let script = "echo started; sleep 3600";
    pod["spec"]["containers"][0]["command"] = json!(["sh", "-c", script]);
    cluster.apply(&pod.to_string());
    cluster.until("the log of a running pod", || {
        cluster.kubectl(&["logs", "client"]).out.contains("started").then_some(())
    });
    let status = cluster.get(&["pod", "client"]);
    assert_eq!(status["spec"]["nodeName"], "node1");
}
