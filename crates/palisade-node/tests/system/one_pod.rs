//! `palisade run`, below the command line.

use std::time::Duration;

use palisade_base::sha256;
use palisade_node::run::{RunOutcome, RunningPod};
use serde_json::json;

use crate::lab::{DENY_MKDIR, Lab, designs, pod, sleeper};

#[tokio::test(flavor = "multi_thread")]
async fn one_pod_runs_and_is_compared_with_the_kernel() {
    let lab = Lab::new(designs());
    let config = lab.node.config.as_ref().clone();
    let map = json!({"kind": "ConfigMap", "metadata": {"name": "web"}, "data": {"p": DENY_MKDIR}});
    let mut object = sleeper(
        "one",
        json!({"seccompProfile": {"type": "ConfigMap", "configMapProfile": "web/p"}}),
        json!({}),
    );
    object["metadata"]["annotations"] =
        json!({"container.apparmor.security.beta.kubernetes.io/c": "unconfined"});
    let running = RunningPod::start(config.clone(), object, &[map]).await.unwrap();
    assert_eq!(running.warnings.len(), 1, "the annotation is deprecated: {:?}", running.warnings);
    assert_eq!(running.settled(Duration::from_mins(1)).await, RunOutcome::Running, "{:#}", running.status());
    let report = running.report().await.unwrap();
    assert!(!report.verified.has_mismatch(), "{:#?}", report.verified.lines());
    assert_eq!(
        report.status["containerStatuses"][0]["securityContext"]["seccompProfileSourceHash"],
        sha256::hex(DENY_MKDIR.as_bytes())
    );
    let uid = running.pod.key.uid.clone();
    // An agent on the same runtime leaves it alone, and it leaves nothing behind.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(running.outcome(), RunOutcome::Running);
    running.stop(Some(0)).await;
    assert!(lab.node.runtime.list_pod_sandboxes(&[]).await.unwrap().is_empty());
    assert!(!config.root_dir.join("run/pods").join(uid).exists());

    let mut done = pod("done", json!({}), json!({}), "exit 0");
    done["spec"]["restartPolicy"] = json!("Never");
    let running = RunningPod::start(config.clone(), done, &[]).await.unwrap();
    assert_eq!(running.finished().await, RunOutcome::Succeeded, "{:#}", running.status());
    running.stop(Some(0)).await;

    let missing = sleeper(
        "missing",
        json!({"seccompProfile": {"type": "ConfigMap", "configMapProfile": "no/p"}}),
        json!({}),
    );
    let running = RunningPod::start(config, missing, &[]).await.unwrap();
    assert_eq!(running.settled(Duration::from_secs(3)).await, RunOutcome::Waiting);
    running.stop(Some(0)).await;
}
