//! `palisade run` and `palisade node`, below the command line.

use std::{fs, sync::Arc, time::Duration};

use palisade_node::{
    api::{ConfigMap, local::LocalSource},
    companion::{self, PublishedProfiles, published_name},
    node::{Node, NodeConfig},
    pod::RunPod,
    profiles::sha256_hex,
    run::{Outcome, RunningPod},
};
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
    assert_eq!(running.settled(Duration::from_secs(30)).await, Outcome::Running);
    let report = running.report().await.unwrap();
    assert!(!report.verified.has_mismatch(), "{:#?}", report.verified.lines());
    assert_eq!(
        report.status["containerStatuses"][0]["securityContext"]["seccompProfileHash"],
        sha256_hex(DENY_MKDIR.as_bytes())
    );
    let uid = running.pod.key.uid.clone();
    // An agent on the same runtime leaves it alone, and it leaves nothing behind.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(running.outcome(), Outcome::Running);
    running.stop(Some(0)).await;
    assert!(lab.node.runtime.list_pod_sandboxes(&[]).await.unwrap().is_empty());
    assert!(!config.root_dir.join("pods").join(uid).exists());

    let mut done = pod("done", json!({}), json!({}), "exit 0");
    done["spec"]["restartPolicy"] = json!("Never");
    let running = RunningPod::start(config.clone(), done, &[]).await.unwrap();
    assert_eq!(running.finished().await, Outcome::Succeeded, "{:#}", running.status());
    running.stop(Some(0)).await;

    let missing = sleeper(
        "missing",
        json!({"seccompProfile": {"type": "ConfigMap", "configMapProfile": "no/p"}}),
        json!({}),
    );
    let running = RunningPod::start(config, missing, &[]).await.unwrap();
    assert_eq!(running.settled(Duration::from_secs(3)).await, Outcome::Waiting);
    running.stop(Some(0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn profiles_are_published_beside_a_kubelet() {
    // The lab's own agent stands for the kubelet: it runs what the webhook has rewritten.
    let lab = Lab::new(palisade_model::compat::Compat::kubernetes(31));
    let seccomp = lab.root.join("seccomp");
    let source = LocalSource::default();
    let mut map = ConfigMap::default();
    map.data.insert("p".into(), DENY_MKDIR.into());
    source.put_config_map("default", "web", map);
    let config = NodeConfig { ..lab.node.config.as_ref().clone() };
    let node = Node::new(config, Arc::new(source.clone())).unwrap();
    let companion = tokio::spawn(companion::run(node, std::future::pending()));
    let hash = sha256_hex(DENY_MKDIR.as_bytes());
    let profile = json!({"seccompProfile": {"type": "Localhost", "localhostProfile": published_name(&hash)}});
    let object = sleeper("rewritten", profile, json!({}));
    let pod = lab.apply(object.clone());
    source.apply(&RunPod::from_object(object).unwrap());
    lab.until_running(&pod).await;
    assert_eq!(lab.exec(&pod, "c", "mkdir /tmp/x").await.0, 1);
    let path = seccomp.join(published_name(&hash));
    assert_eq!(fs::read_to_string(&path).unwrap(), DENY_MKDIR);
    let on_tmpfs = fs::read_to_string("/proc/mounts").unwrap();
    assert!(on_tmpfs.contains(&format!("{} tmpfs", seccomp.join("palisade").display())));

    let orphan = lab.apply(sleeper(
        "orphan",
        json!({"seccompProfile": {"type": "Localhost", "localhostProfile": published_name(&"0".repeat(64))}}),
        json!({}),
    ));
    source.apply(&orphan);
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while !source.events(&orphan.key.uid).iter().any(|event| event.reason == "SeccompProfileMissing") {
        assert!(std::time::Instant::now() < deadline, "whoever waits for a profile that nobody has is told");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    companion.abort();
    companion.await.ok();
    drop(PublishedProfiles::mount(&seccomp).unwrap());
    rustix::mount::unmount(seccomp.join("palisade"), rustix::mount::UnmountFlags::DETACH).unwrap();
}
