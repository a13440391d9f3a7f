//! The agent beside a kubelet: profiles on a tmpfs of its own, containers on a real runtime and kernel.

use std::{fs, path::Path};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use palisade_base::sha256;
use palisade_model::compat::Compat;
use palisade_node::agent::{metrics::DRIFT, published_name};
use palisade_testkit::agent_world::{World, condition, until};
use rustix::mount::{UnmountFlags, unmount};
use serde_json::{Value, json};

use crate::lab::{DENY_MKDIR, Lab, sleeper};

fn is_mounted(folder: &Path) -> bool {
    fs::read_to_string("/proc/mounts").unwrap().contains(&format!("{} tmpfs", folder.display()))
}

/// The same pod at the API server and at the lab's agent, which stands for the kubelet.
async fn both(world: &World, lab: &Lab, stored: Value, run: Value) -> palisade_node::pod::RunPod {
    let mut stored = stored;
    stored["spec"]["nodeName"] = json!("n1");
    let pods: Api<Pod> = Api::default_namespaced(world.client.clone());
    let made = pods.create(&PostParams::default(), &serde_json::from_value(stored).unwrap()).await.unwrap();
    let mut run = run;
    run["metadata"]["uid"] = json!(made.metadata.uid.unwrap());
    let pod = lab.apply(run);
    lab.until_running(&pod).await;
    pod
}

#[tokio::test(flavor = "multi_thread")]
async fn profiles_reach_containers_and_what_the_kernel_does_is_reported() {
    let world = World::new().await;
    let lab = Lab::new(Compat::kubernetes(31));
    let folder = lab.root.join("seccomp/palisade");
    let running = world.start_on(&lab.root, &lab.node.config.runtime_endpoint, 1 << 20);
    let hash = world.publish(DENY_MKDIR).await;
    let confined =
        json!({"seccompProfile": {"type": "Localhost", "localhostProfile": published_name(&hash)}});
    let honest = sleeper("honest", confined, json!({}));
    let pod = both(&world, &lab, honest.clone(), honest).await;
    assert!(is_mounted(&folder), "nothing reaches a disk");
    assert_eq!(lab.exec(&pod, "c", "mkdir /tmp/x").await.0, 1);
    // The profile allows a new user namespace; the default of the runtime does not.
    assert_ne!(lab.exec(&pod, "c", "unshare -U true").await.0, 0);
    let open = sleeper("open", json!({"seccompProfile": {"type": "Unconfined"}}), json!({}));
    let open = both(&world, &lab, open.clone(), open).await;
    assert_eq!(lab.exec(&open, "c", "unshare -U true").await.0, 0, "without a profile it works");
    world
        .until_status("compared", |status| {
            status["verified"]["containers"] == 2
                && condition(status, "DeclarationsEnforced") == "True NoDrift"
        })
        .await;

    // A runtime that ignores what was declared is found out.
    let declared = sleeper("ignored", json!({"seccompProfile": {"type": "RuntimeDefault"}}), json!({}));
    both(&world, &lab, declared, sleeper("ignored", json!({}), json!({}))).await;
    let status = world.until_status("drift", |status| status["driftCount"] == 1).await;
    let row = &status["drift"][0];
    assert_eq!(
        (&row["pod"], &row["check"], &row["declared"]),
        (&json!("ignored"), &json!("seccomp"), &json!("RuntimeDefault"))
    );
    assert_eq!(condition(&status, "DeclarationsEnforced"), "False Drift");
    until("an alarm", || async { world.events().await.contains_key("SecurityDrift").then_some(()) }).await;
    assert_eq!(running.metrics.get(&DRIFT, &[]), 1);

    // Two differences of one pod are two events.
    let context = json!({"seccompProfile": {"type": "RuntimeDefault"}});
    let declared = sleeper("twice", context, json!({"capabilities": {"drop": ["ALL"]}}));
    both(&world, &lab, declared, sleeper("twice", json!({}), json!({}))).await;
    let status =
        world.until_status("both differences", |status| status["driftCount"].as_u64() > Some(2)).await;
    let count = usize::try_from(status["driftCount"].as_u64().unwrap()).unwrap();
    until("an event for each", || async {
        (world.events().await.get("SecurityDrift") == Some(&count)).then_some(())
    })
    .await;

    // The tmpfs is unmounted: it comes back, with everything in it.
    unmount(&folder, UnmountFlags::DETACH).unwrap();
    until("mounted and filled again", || async {
        let back = fs::read(folder.join(format!("{hash}.json")));
        let applied = world.applied(&hash).unwrap();
        (is_mounted(&folder) && back.is_ok_and(|text| sha256::hex(&text) == applied)).then_some(())
    })
    .await;
    world
        .until_status("reported", |status| {
            let rows = status["tampering"].as_array().unwrap();
            rows.iter().any(|row| row["found"] == "Unmounted" && row["repaired"] == true)
        })
        .await;
    running.stop().await;
    unmount(&folder, UnmountFlags::DETACH).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_tmpfs_is_reported_and_profiles_of_pods_come_first() {
    let world = World::new().await;
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("seccomp/palisade");
    let texts: Vec<String> = (0..40).map(|n| format!("{}{DENY_MKDIR}", " ".repeat(n))).collect();
    let mut hashes = Vec::new();
    for text in &texts {
        hashes.push(world.publish(text).await);
    }
    let applied = world.applied(&hashes[0]).unwrap();
    let held = || -> Vec<String> {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let held: Vec<String> =
            names.filter_map(|name| name.strip_suffix(".json").map(str::to_owned)).collect();
        for hash in &held {
            if let Ok(content) = fs::read(folder.join(format!("{hash}.json"))) {
                assert_eq!(sha256::hex(&content), applied, "a torn file");
            }
        }
        held
    };
    let running = world.start_on(root.path(), "/nonexistent/runtime.sock", 256 << 10);
    let status =
        world.until_status("full", |status| condition(status, "ProfilesReady") == "False NoSpace").await;
    assert_eq!(status["profiles"]["wanted"], 40);
    assert!((7..40).contains(&held().len()), "{}", held().len());
    until("an event of the node", || async {
        world.events().await.contains_key("SeccompProfilesFull").then_some(())
    })
    .await;
    let nodes: Api<Node> = Api::all(world.client.clone());
    // No pod of the node waits for one that does not fit: what other nodes have keeps this one from nothing.
    until("taint lifted", || async {
        (nodes.get("n1").await.unwrap().spec.unwrap().taints.unwrap().len() == 1).then_some(())
    })
    .await;

    // A pod comes whose profile does not fit: it replaces one that no pod waits for.
    let needed = hashes.iter().find(|hash| !held().contains(hash)).unwrap().clone();
    world.put_pod("waiting", &needed).await;
    until("replaced", || async { held().contains(&needed).then_some(()) }).await;

    // Others are withdrawn: what is left fits, without further action.
    for hash in hashes.iter().filter(|hash| **hash != needed).skip(6) {
        world.profiles().delete(hash, &DeleteParams::default()).await.unwrap();
    }
    world.until_status("in place", |status| condition(status, "ProfilesReady") == "True InPlace").await;
    until("seven in place", || async { (held().len() == 7).then_some(()) }).await;
    running.stop().await;
    unmount(&folder, UnmountFlags::DETACH).unwrap();
}
