//! The agent beside a kubelet, against our own API server in process, with files on a real tmpfs.

use std::{
    collections::BTreeMap,
    fs,
    io::Read as _,
    os::unix::fs::{PermissionsExt as _, symlink},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use palisade_base::sha256;
use palisade_model::profile::baseline::{Baseline, published_sha256};
use palisade_node::agent::metrics::{PROFILE_INCIDENTS, PROFILES_READY};
use palisade_testkit::agent_world::{OTHER_PROFILE, PROFILE, World, condition, kind, until};
use rustix::fs::{Mode, OFlags, open};
use serde_json::{Value, json};

#[tokio::test]
async fn a_node_becomes_ready_when_its_profiles_are_in_place() {
    let world = World::new().await;
    let needed = world.publish(PROFILE).await;
    let published = world.publish(OTHER_PROFILE).await;
    world.put_pod("waiting", &needed).await;
    let running = world.start();
    world.until_held(&needed).await;
    world.until_held(&published).await;
    let nodes: Api<Node> = Api::all(world.client.clone());
    let node = until("the taint lifted", || async {
        let node = nodes.get("n1").await.unwrap();
        let taints = node.spec.clone().unwrap().taints.unwrap_or_default();
        (taints.len() == 1 && taints[0].key == "example.com/own").then_some(node)
    })
    .await;
    until("labels", || async {
        let labels = nodes.get("n1").await.unwrap().metadata.labels.unwrap_or_default();
        labels.contains_key("node.palisade.dev/seccomp").then_some(())
    })
    .await;
    let status = world.until_status("a report", |status| status["profiles"]["count"] == 2).await;
    assert_eq!(condition(&status, "ProfilesReady"), "True InPlace");
    assert_eq!(condition(&status, "RuntimeAnswers"), "False NoAnswer");
    assert!(status["kernel"]["release"].as_str().unwrap().contains('.'));
    assert_eq!(status["profiles"]["held"].as_array().unwrap().len(), 2);
    let reports: Api<DynamicObject> =
        Api::all_with(world.client.clone(), &kind("NodeSecurityReport", "nodesecurityreports"));
    let report = reports.get("n1").await.unwrap().metadata;
    assert_eq!(report.owner_references.unwrap()[0].uid, node.metadata.uid.unwrap(), "it goes with its node");
    assert_eq!(report.finalizers, None);

    // What is no longer published is removed, unless a pod of this node has it.
    for hash in [&needed, &published] {
        world.profiles().delete(hash, &DeleteParams::default()).await.unwrap();
    }
    until("the other one removed", || async { (!world.path(&published).exists()).then_some(()) }).await;
    assert!(world.holds(&needed), "its containers may be started again");
    assert_eq!(running.metrics.get(&PROFILES_READY, &[]), 1);
    assert_eq!(world.events().await, BTreeMap::new());
    running.stop().await;
}

#[tokio::test]
async fn tampering_is_reverted_and_reported() {
    let world = World::new().await;
    let hash = world.publish(PROFILE).await;
    let running = world.start();
    world.until_held(&hash).await;
    let path = world.path(&hash);
    let trap = world.root.path().join("trap");
    fs::write(&trap, "{}").unwrap();
    let tampers: [(&'static str, &dyn Fn()); 5] = [
        ("Deleted", &|| fs::remove_file(&path).unwrap()),
        ("Changed", &|| fs::write(&path, "{}").unwrap()),
        ("Changed", &|| {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        }),
        ("Replaced", &|| {
            fs::remove_file(&path).unwrap();
            symlink(&trap, &path).unwrap();
        }),
        ("Replaced", &|| {
            fs::remove_file(&path).unwrap();
            fs::create_dir_all(path.join("deep/folder")).unwrap();
        }),
    ];
    for (found, tamper) in tampers {
        let before = running.metrics.get(&PROFILE_INCIDENTS, &[("found", found)]);
        tamper();
        until(found, || async {
            let counted = running.metrics.get(&PROFILE_INCIDENTS, &[("found", found)]) > before;
            (counted && world.holds(&hash)).then_some(())
        })
        .await;
    }
    assert_eq!(fs::read(&trap).unwrap(), b"{}", "nothing was written through the link");
    fs::write(world.folder().join("stranger.json"), "{}").unwrap();
    until("strangers removed", || async { (world.names().len() == 1).then_some(()) }).await;
    let status = world
        .until_status("reported and repaired", |status| {
            let rows = status["tampering"].as_array().unwrap();
            rows.len() == 4 && rows.iter().all(|row| row["repaired"] == true)
        })
        .await;
    assert_eq!(condition(&status, "ProfilesIntact"), "True Verified");
    let rows: BTreeMap<&str, u64> = status["tampering"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["found"].as_str().unwrap(), row["count"].as_u64().unwrap()))
        .collect();
    assert!(
        rows["Deleted"] >= 1 && rows["Changed"] >= 2 && rows["Replaced"] >= 1 && rows["Unexpected"] == 1,
        "{rows:?}"
    );
    // Each of them is an event of its own, those that look alike too.
    let incidents = usize::try_from(rows.values().sum::<u64>()).unwrap();
    until("an event for each incident", || async {
        (world.events().await.get("SeccompProfileTampered") == Some(&incidents)).then_some(())
    })
    .await;
    assert!(incidents >= 6, "{rows:?}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_profiles_survive_a_restart_of_the_node_and_no_reader_sees_half_of_one() {
    let world = World::new().await;
    let mut hashes = Vec::new();
    for number in 0..100 {
        let filler = " ".repeat(number * 40);
        hashes.push(world.publish(&format!("{{\"defaultAction\": \"SCMP_ACT_ERRNO\"{filler}}}")).await);
    }
    // A reader that never stops looking.
    let (folder, done) = (world.folder(), Arc::new(AtomicBool::new(false)));
    let applied = world.applied(&hashes[0]).unwrap();
    let reader = std::thread::spawn({
        let done = Arc::clone(&done);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        move || {
            let mut read = 0_u64;
            while !done.load(Ordering::Relaxed) {
                for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                    let name = entry.file_name().to_string_lossy().into_owned();
                    // A link may take the place of a file between the list and the look; it is not followed.
                    if name.strip_suffix(".json").is_some()
                        && let Ok(file) = open(entry.path(), flags, Mode::empty())
                        && let mut content = Vec::new()
                        && fs::File::from(file).read_to_end(&mut content).is_ok()
                    {
                        assert_eq!(sha256::hex(&content), applied, "a torn file");
                        read += 1;
                    }
                }
            }
            read
        }
    });
    let running = world.start();
    let all = || async { hashes.iter().all(|hash| world.holds(hash)).then_some(()) };
    until("100 profiles", all).await;
    world.until_status("100 reported", |status| status["profiles"]["count"] == 100).await;
    running.stop().await;
    // The machine starts anew: the tmpfs is empty. One file of another life is in the way.
    fs::remove_dir_all(world.folder()).unwrap();
    fs::create_dir_all(world.folder()).unwrap();
    symlink("/etc/passwd", world.path(&hashes[7])).unwrap();
    let running = world.start();
    until("100 profiles again", all).await;
    running.stop().await;
    done.store(true, Ordering::Relaxed);
    assert!(reader.join().expect("no file was torn") > 100);
    // Killed in the middle of a write: what it left goes.
    fs::write(world.folder().join(format!(".{}", "a".repeat(32))), "{").unwrap();
    fs::write(world.path(&hashes[3]), "{").ok();
    let running = world.start();
    until("as before", || async { (world.names().len() == 100 && world.holds(&hashes[3])).then_some(()) })
        .await;
    running.stop().await;
}

#[tokio::test]
async fn bytes_that_do_not_match_their_name_reach_no_node() {
    let world = World::new().await;
    let bad = sha256::hex(b"what was promised");
    world.publish_as(&bad, PROFILE).await;
    let text = "no JSON";
    let nonsense = world.publish(text).await;
    let absent = sha256::hex(b"not published");
    world.put_pod("waiting", &absent).await;
    let running = world.start();
    let status = world
        .until_status("reported", |status| {
            status["profiles"]["missing"].as_array().is_some_and(|rows| rows.len() == 3)
        })
        .await;
    let reason = |hash: &str| {
        let rows = status["profiles"]["missing"].as_array().unwrap();
        let row = rows.iter().find(|row| row["sha256"] == hash).unwrap();
        format!("{} {}", row["neededBy"], row["reason"].as_str().unwrap())
    };
    let unusable = "0 what is published under this name cannot be used:";
    assert_eq!(reason(&bad), format!("{unusable} the bytes have another hash than their name"));
    assert_eq!(
        reason(&nonsense),
        format!("{unusable} it is not valid JSON: expected ident at line 1 column 2")
    );
    assert_eq!(reason(&absent), "1 there is no PublishedProfile of this name");
    assert_eq!(
        condition(&status, "ProfilesReady"),
        "True InPlace",
        "none of it is for this node to make good"
    );
    assert_eq!(world.names(), Vec::<String>::new());
    until("an event of the pod", || async {
        world.events().await.contains_key("SeccompProfileMissing").then_some(())
    })
    .await;
    running.stop().await;
}

#[tokio::test]
async fn containers_with_an_older_profile_are_reported() {
    let world = World::new().await;
    let hash = world.publish(PROFILE).await;
    world.put_pod("old", &hash).await;
    let running = world.start();
    world
        .until_status("current", |status| {
            status["profiles"]["count"] == 1 && status["olderProfileCount"] == 0
        })
        .await;
    let aged = |value: Value| {
        Patch::Merge(json!({"metadata": {"annotations": {"palisade.dev/changed-sources": value}}}))
    };
    let patch = aged(json!("default/other/p.json,default/web/p.json"));
    world.profiles().patch(&hash, &PatchParams::default(), &patch).await.unwrap();
    let status = world.until_status("aged", |status| status["olderProfileCount"] == 1).await;
    assert_eq!(
        status["olderProfiles"][0],
        json!({"namespace": "default", "pod": "old", "container": "c", "sha256": hash, "source": "configmap/web/p.json"})
    );
    world.profiles().patch(&hash, &PatchParams::default(), &aged(Value::Null)).await.unwrap();
    world.until_status("current again", |status| status["olderProfileCount"] == 0).await;
    running.stop().await;
}

#[tokio::test]
async fn an_api_server_that_is_away_takes_nothing_from_the_node() {
    let world = World::new().await;
    let (first, second) = (world.publish(PROFILE).await, world.publish(OTHER_PROFILE).await);
    let running = world.start();
    world.until_held(&first).await;
    world.until_held(&second).await;
    world.until_status("reported", |status| status["profiles"]["count"] == 2).await;
    world.away.store(true, Ordering::Relaxed);
    fs::remove_file(world.path(&first)).unwrap();
    until("noticed", || async {
        (running.metrics.get(&PROFILE_INCIDENTS, &[("found", "Deleted")]) == 1).then_some(())
    })
    .await;
    until("not ready meanwhile", || async { (running.metrics.get(&PROFILES_READY, &[]) == 0).then_some(()) })
        .await;
    assert!(world.holds(&second));
    world.away.store(false, Ordering::Relaxed);
    world.until_held(&first).await;
    world
        .until_status("repaired", |status| {
            status["tampering"][0]["repaired"] == true && condition(status, "ProfilesReady") == "True InPlace"
        })
        .await;
    running.stop().await;
}

#[tokio::test]
async fn a_profile_is_combined_with_the_baseline_that_it_was_published_with() {
    let world = World::new().await;
    let running = world.start();
    let source = sha256::hex(PROFILE.as_bytes());
    let publish = async |name: &str, baseline: &str| {
        let object = json!({"apiVersion": "palisade.dev/v1alpha1", "kind": "PublishedProfile",
            "metadata": {"name": name}, "spec": {"profile": PROFILE, "baseline": baseline}});
        let object = serde_json::from_value(object).unwrap();
        world.profiles().create(&PostParams::default(), &object).await.unwrap();
    };
    let named = |baseline: &str| published_sha256(&source, &Baseline::parse(baseline).unwrap());
    let baseline = "localhost/team/base.json";
    let name = named(baseline);
    publish(&name, baseline).await;
    // Under the name of its source alone, and with another baseline than its name stands for.
    publish(&source, baseline).await;
    publish(&named("localhost/strict.json"), baseline).await;
    let status = world
        .until_status("three are missing", |status| {
            status["profiles"]["missing"].as_array().is_some_and(|missing| missing.len() == 3)
        })
        .await;
    let reason = |status: &Value, name: &str| {
        let rows = status["profiles"]["missing"].as_array().unwrap();
        rows.iter().find(|row| row["sha256"] == name).map(|row| row["reason"].as_str().unwrap().to_owned())
    };
    assert!(reason(&status, &name).unwrap().contains("baseline localhost/team/base.json: "), "{status}");
    for other in [source.clone(), named("localhost/strict.json")] {
        assert!(reason(&status, &other).unwrap().contains("another hash than their name"), "{status}");
    }
    // The administrator puts the file in place: the agent retries.
    let folder = world.folder().parent().unwrap().join("team");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("base.json"), r#"{"defaultAction":"SCMP_ACT_ERRNO","defaultErrnoRet":13}"#)
        .unwrap();
    let status = world
        .until_status("in place", |status| {
            status["profiles"]["applied"]
                .as_array()
                .is_some_and(|rows| rows.iter().any(|row| row["sha256"] == name))
        })
        .await;
    let row =
        status["profiles"]["applied"].as_array().unwrap().iter().find(|row| row["sha256"] == name).unwrap();
    let content = fs::read_to_string(world.path(&name)).unwrap();
    assert_eq!((&row["source"], &row["applied"]), (&json!(source), &json!(sha256::hex(content.as_bytes()))));
    assert!(!content.contains("SCMP_ACT_ALLOW"), "nothing that the baseline denies is allowed: {content}");
    running.stop().await;
}
