//! Users, groups, capabilities, namespaces and roots, as the kernel has them.

use palisade_node::{
    node::NodeConfig,
    verify::{unverified_containers, verify_pod},
};
use serde_json::{Value, json};

use crate::lab::{IMAGE_NAMED, IMAGE_UID, Lab, designs, sleeper, waiting};

fn with_image(mut pod: Value, image: &str) -> Value {
    pod["spec"]["containers"][0]["image"] = json!(image);
    pod
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kernel_has_what_was_declared() {
    let lab = Lab::new(designs());
    let groups =
        json!({"runAsUser": 1000, "runAsGroup": 2000, "fsGroup": 4000, "supplementalGroups": [3000]});
    let mut own_namespaces = sleeper("namespaces", json!({}), json!({}));
    own_namespaces["spec"]["hostNetwork"] = json!(false);
    let mut host_namespaces = sleeper("host", json!({}), json!({}));
    host_namespaces["spec"]["hostPID"] = json!(true);
    host_namespaces["spec"]["hostIPC"] = json!(true);
    let pods = [
        sleeper("plain", json!({}), json!({})),
        sleeper("groups", groups.clone(), json!({})),
        sleeper("own-groups", groups, json!({"runAsUser": 7, "runWithSupplementalGroups": [5000]})),
        sleeper(
            "dropped",
            json!({}),
            json!({"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true}),
        ),
        sleeper("privileged", json!({}), json!({"privileged": true})),
        with_image(sleeper("image-uid", json!({"runAsNonRoot": true}), json!({})), IMAGE_UID),
        with_image(sleeper("image-name", json!({}), json!({})), IMAGE_NAMED),
        own_namespaces,
        host_namespaces,
        sleeper(
            "defaults",
            json!({"containerDefaults": {"runAsUser": 42, "capabilities": {"drop": ["KILL"]}}}),
            json!({}),
        ),
    ];
    let pods: Vec<_> = pods.into_iter().map(|pod| lab.apply(pod)).collect();
    for pod in &pods {
        lab.until_running(pod).await;
        let report = verify_pod(&lab.node.config, &lab.node.runtime, Some(&lab.source), pod).await.unwrap();
        assert!(!report.has_mismatch(), "{:#?}", report.lines());
    }
    // And by hand, so that the comparison itself cannot be what is wrong.
    let find = |name: &str| pods.iter().find(|pod| pod.key.name == name).unwrap();
    let kernel = lab.kernel(find("groups"), "c").await;
    assert_eq!((kernel.uid[1], kernel.gid[1], kernel.groups), (1000, 2000, vec![2000, 3000, 4000]));
    let kernel = lab.kernel(find("own-groups"), "c").await;
    assert_eq!((kernel.uid[1], kernel.groups), (7, vec![2000, 4000, 5000]));
    let kernel = lab.kernel(find("dropped"), "c").await;
    assert_eq!((kernel.cap_bounding, kernel.cap_effective, kernel.no_new_privs), (1 << 10, 1 << 10, true));
    assert!(kernel.root_read_only);
    assert_eq!(lab.exec(find("dropped"), "c", "touch /file").await.0, 1);
    let kernel = lab.kernel(find("image-uid"), "c").await;
    assert_eq!((kernel.uid[1], kernel.gid[1]), (1234, 5678));
    let kernel = lab.kernel(find("image-name"), "c").await;
    assert_eq!((kernel.uid[1], kernel.groups), (1234, vec![777, 5678]));
    let kernel = lab.kernel(find("defaults"), "c").await;
    assert_eq!((kernel.uid[1], kernel.cap_bounding & 1 << 5), (42, 0));
    let (_, network) = lab.exec(find("namespaces"), "c", "cat /proc/net/dev").await;
    assert!(network.contains("lo:"), "{network}");
}

#[tokio::test(flavor = "multi_thread")]
async fn root_is_refused_where_it_must_not_run() {
    let lab = Lab::new(designs());
    let error = "CreateContainerConfigError";
    for (name, image, context, message) in [
        ("image-root", crate::lab::IMAGE, json!({}), "container has runAsNonRoot and image will run as root"),
        (
            "requests-root",
            crate::lab::IMAGE,
            json!({"runAsUser": 0}),
            "container's runAsUser breaks non-root policy",
        ),
        (
            "named",
            IMAGE_NAMED,
            json!({}),
            "container has runAsNonRoot and image has non-numeric user (web), cannot verify user is non-root",
        ),
    ] {
        let pod = lab.apply(with_image(sleeper(name, json!({"runAsNonRoot": true}), context), image));
        let status = lab.until_waiting(&pod, error).await;
        let expected = format!("{message} (pod: \"{}\", container: c)", pod.key);
        assert_eq!(waiting(&status)["message"], expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_cannot_be_read_is_not_called_enforced() {
    let lab = Lab::new(designs());
    let pod = lab.apply(sleeper("plain", json!({}), json!({})));
    lab.until_running(&pod).await;
    let whole = verify_pod(&lab.node.config, &lab.node.runtime, Some(&lab.source), &pod).await.unwrap();
    assert!(whole.is_enforced(), "{:#?}", whole.lines());
    assert_eq!(unverified_containers(&lab.node.runtime, &[(&pod.key, &whole)]).await.unwrap(), []);

    // A node whose own process is readable and the container's is not.
    let proc = lab.folder.path().join("proc");
    std::fs::create_dir(&proc).unwrap();
    let own = std::process::id();
    std::os::unix::fs::symlink(format!("/proc/{own}"), proc.join(own.to_string())).unwrap();
    let config = NodeConfig { proc, ..lab.node.config.as_ref().clone() };
    let blind = verify_pod(&config, &lab.node.runtime, Some(&lab.source), &pod).await.unwrap();
    assert!(!blind.is_enforced() && !blind.has_mismatch(), "{:#?}", blind.lines());
    let left = unverified_containers(&lab.node.runtime, &[(&pod.key, &blind)]).await.unwrap();
    assert!(left.len() == 1 && left[0].1.contains("cannot be read"), "{left:?}");
}
