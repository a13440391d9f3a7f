//! The life of a pod: init containers, sidecars, restarts, messages, logs, volumes, the end.

use std::{fs, os::unix::fs::MetadataExt as _, time::Duration};

use futures::TryStreamExt as _;
use palisade_node::{
    api::{ConfigMap, Secret},
    logs::{LogOptions, container_logs},
};
use serde_json::{Value, json};

use crate::lab::{IMAGE, Lab, designs, pod, sleeper, waiting};

async fn logs(lab: &Lab, pod: &palisade_node::pod::RunPod, container: &str, options: LogOptions) -> String {
    let runtime = Some(lab.node.runtime.clone());
    let stream = container_logs(&lab.node.config, runtime, &pod.key, container, options).unwrap();
    let pieces: Vec<_> = stream.try_collect().await.unwrap();
    String::from_utf8(pieces.concat()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn init_containers_sidecars_and_ephemeral_containers() {
    let lab = Lab::new(designs());
    let container = |name: &str, script: &str| {
        json!({"name": name, "image": IMAGE, "command": ["sh", "-c", script],
        "volumeMounts": [{"name": "v", "mountPath": "/v"}]})
    };
    let mut side = container(
        "side",
        "echo side >> /v/order; trap 'echo stopped >> /v/order; exit 0' TERM; sleep 600 & wait",
    );
    side["restartPolicy"] = json!("Always");
    // Containers that are running have not necessarily done anything.
    side["startupProbe"] =
        json!({"exec": {"command": ["grep", "-q", "side", "/v/order"]}, "periodSeconds": 1});
    let object = json!({"metadata": {"name": "ordered"}, "spec": {"hostNetwork": true, "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 2, "volumes": [{"name": "v", "emptyDir": {}}],
        "initContainers": [container("first", "echo first >> /v/order"), side, container("second", "echo second >> /v/order")],
        "containers": [container("main", "echo main >> /v/order; while [ ! -e /v/stop ]; do sleep 0.1; done")]}});
    let pod = lab.apply(object.clone());
    let status = lab.until_running(&pod).await;
    let inits: Vec<_> =
        status["initContainerStatuses"].as_array().unwrap().iter().map(|one| one["ready"].clone()).collect();
    assert_eq!(inits, [json!(true), json!(true), json!(true)]);
    let volume = lab.root.join("pods").join(&pod.key.uid).join("volumes/kubernetes.io~empty-dir/v");
    let order = || fs::read_to_string(volume.join("order")).unwrap();
    lab.until(&pod, "all have written", |_| order().ends_with("main\n")).await;
    assert_eq!(order(), "first\nside\nsecond\nmain\n");

    // Look inside the container.
    let mut with_ephemeral = object;
    with_ephemeral["spec"]["ephemeralContainers"] = json!([{"name": "debug", "image": IMAGE,
        "command": ["sh", "-c", "cat /proc/1/cmdline | grep -c stop; sleep 600"], "targetContainerName": "main"}]);
    let pod = lab.apply(with_ephemeral);
    lab.until(&pod, "debugged", |status| {
        status["ephemeralContainerStatuses"][0]["state"]["running"].is_object()
    })
    .await;
    assert_eq!(
        lab.kernel(&pod, "debug").await.namespaces["pid"],
        lab.kernel(&pod, "main").await.namespaces["pid"]
    );

    fs::write(volume.join("stop"), "").unwrap();
    let status = lab.until_phase(&pod, "Succeeded").await;
    assert_eq!(status["containerStatuses"][0]["state"]["terminated"]["reason"], "Completed");
    lab.until(&pod, "without sidecar", |_| order().ends_with("stopped\n")).await;
    assert_eq!(logs(&lab, &pod, "debug", LogOptions::default()).await, "1\n");
    lab.delete(&pod).await;
    assert!(!lab.root.join("pods").join(&pod.key.uid).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn restarts_messages_and_logs() {
    let lab = Lab::new(designs());
    let object = pod(
        "writes",
        json!({}),
        json!({}),
        "echo out; echo err >&2; echo last words > /dev/termination-log; exit 3",
    );
    let crashing = lab.apply(object);
    let status = lab.until_waiting(&crashing, "CrashLoopBackOff").await;
    let one = &status["containerStatuses"][0];
    assert_eq!(one["lastState"]["terminated"]["message"], "last words\n");
    assert_eq!(one["restartCount"], 1, "the first restart is immediate");
    let text = logs(&lab, &crashing, "c", LogOptions::default()).await;
    // Two streams through two pipes: the runtime may read the later one first.
    assert!(["out\nerr\n", "err\nout\n"].contains(&text.as_str()), "{text}");
    let previous = LogOptions { previous: true, timestamps: true, ..LogOptions::default() };
    assert!(logs(&lab, &crashing, "c", previous).await.contains("Z out\n"));

    let mut object = pod("falls-back", json!({}), json!({}), "echo reason; exit 1");
    object["spec"]["restartPolicy"] = json!("Never");
    object["spec"]["containers"][0]["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
    let falls_back = lab.apply(object);
    let status = lab.until_phase(&falls_back, "Failed").await;
    assert_eq!(status["containerStatuses"][0]["state"]["terminated"]["message"], "reason\n");

    let followed =
        lab.apply(pod("followed", json!({}), json!({}), "for i in 1 2 3; do echo $i; sleep 0.3; done"));
    lab.until(&followed, "started", |status| status["containerStatuses"][0]["containerID"].is_string()).await;
    let follow = LogOptions { follow: true, ..LogOptions::default() };
    let text =
        tokio::time::timeout(Duration::from_secs(20), logs(&lab, &followed, "c", follow)).await.unwrap();
    assert!(text.starts_with("1\n2\n3\n"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn grace_periods_are_kept_and_cut_short() {
    let lab = Lab::new(designs());
    let mut object = pod("stubborn", json!({}), json!({}), "trap '' TERM; while :; do sleep 1; done");
    object["spec"]["terminationGracePeriodSeconds"] = json!(3);
    let stubborn = lab.apply(object);
    lab.until_running(&stubborn).await;
    let begun = std::time::Instant::now();
    lab.source.delete(&stubborn.key.uid, None);
    lab.until_gone(&stubborn).await;
    let took = begun.elapsed();
    assert!((Duration::from_secs(3)..Duration::from_secs(15)).contains(&took), "{took:?}");
    assert!(
        lab.events(&stubborn)
            .iter()
            .any(|(_, reason, text)| reason == "Killing" && text == "Stopping container c")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn deadlines_end_a_pod() {
    let lab = Lab::new(designs());
    let mut object = sleeper("late", json!({}), json!({}));
    object["spec"]["activeDeadlineSeconds"] = json!(3);
    let late = lab.apply(object);
    lab.until_running(&late).await;
    let status = lab.until_phase(&late, "Failed").await;
    assert_eq!(status["reason"], "DeadlineExceeded");
    let running = lab.node.runtime.list_pod_sandboxes(&[]).await.unwrap();
    assert!(running.iter().all(|sandbox| sandbox.state == 1), "nothing runs any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_and_environment() {
    let lab = Lab::new(designs());
    let mut object = sleeper("mounted", json!({"fsGroup": 4000, "runAsUser": 1000}), json!({}));
    object["metadata"]["labels"] = json!({"app": "web"});
    object["spec"]["volumes"] = json!([{"name": "e", "emptyDir": {}}, {"name": "m", "emptyDir": {"medium": "Memory"}},
        {"name": "c", "configMap": {"name": "settings"}}, {"name": "s", "secret": {"secretName": "token"}},
        {"name": "p", "projected": {"sources": [{"configMap": {"name": "settings"}},
            {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}}]}},
        {"name": "h", "hostPath": {"path": lab.folder.path().join("host"), "type": "DirectoryOrCreate"}}]);
    object["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "e", "mountPath": "/e"}, {"name": "m", "mountPath": "/m"},
        {"name": "c", "mountPath": "/c"}, {"name": "s", "mountPath": "/s", "readOnly": true}, {"name": "p", "mountPath": "/p"},
        {"name": "h", "mountPath": "/h"}, {"name": "c", "mountPath": "/one", "subPath": "key"},
        {"name": "e", "mountPath": "/own", "subPathExpr": "of/$(POD)"}]);
    object["spec"]["containers"][0]["env"] = json!([{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "key"}}},
        {"name": "B", "value": "$(A)-$(POD)"}, {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]);
    let pod = lab.apply(object);
    // The pod waits for what is missing, and reports it.
    lab.until(&pod, "an event", |_| lab.events(&pod).iter().any(|(_, reason, _)| reason == "FailedMount"))
        .await;
    let mut map = ConfigMap::default();
    map.data.insert("key".into(), "value".into());
    lab.source.put_config_map("default", "settings", map);
    lab.source.put_secret("default", "token", Secret { data: [("t".to_owned(), b"hush".to_vec())].into() });
    lab.until_running(&pod).await;
    for (script, expected) in [
        ("cat /c/key /one /s/t", "valuevaluehush"),
        ("ls /e/of", "mounted\n"),
        ("cat /p/labels", "app=\"web\""),
        ("echo $A $B", "value value-$(POD)\n"),
        ("touch /e/x /m/x && stat -c %g /e/x /m/x", "4000\n4000\n"),
        ("touch /s/x 2>&1 | grep -c -i read-only", "1\n"),
        ("grep -c ' /s tmpfs' /proc/mounts", "1\n"),
    ] {
        let (_, text) = lab.exec(&pod, "c", script).await;
        assert_eq!(text, expected, "{script}");
    }
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    assert!(mounts.contains(&pod.key.uid));
    lab.delete(&pod).await;
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    assert!(!mounts.contains(&pod.key.uid), "nothing stays mounted");
    assert!(fs::metadata(lab.folder.path().join("host")).unwrap().uid() == 0, "the node's folder stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn images_that_cannot_be_had() {
    let lab = Lab::new(designs());
    let with = |name: &str, image: &str, policy: &str| {
        let mut object: Value = sleeper(name, json!({}), json!({}));
        object["spec"]["containers"][0]["image"] = json!(image);
        object["spec"]["containers"][0]["imagePullPolicy"] = json!(policy);
        object
    };
    let never = lab.apply(with("never", "localhost/absent:1", "Never"));
    let status = lab.until_waiting(&never, "ErrImageNeverPull").await;
    assert_eq!(
        waiting(&status)["message"],
        "Container image \"localhost/absent:1\" is not present with pull policy of Never"
    );
    let invalid = lab.apply(with("invalid", "Not An Image", "Never"));
    lab.until_waiting(&invalid, "InvalidImageName").await;
    // Connections there are refused: the pull fails at once.
    let pulled = lab.apply(with("pulled", "localhost:1/absent:1", "IfNotPresent"));
    lab.until(&pulled, "failing to pull", |status| {
        ["ErrImagePull", "ImagePullBackOff"].contains(&waiting(status)["reason"].as_str().unwrap_or_default())
    })
    .await;
}
