//! Seccomp profiles of every type, down to the syscall.

use std::{fs, path::Path, process::Command, time::Duration};

use palisade_base::sha256;
use palisade_base::version::KubeVersion;
use palisade_model::{
    prepare::{Prepared, Subject},
    profile::ProfileRef,
};
use palisade_node::{
    api::ConfigMap,
    kernel::{memfd::SealedFile, probe::NodeFeatures},
    pod::RunPod,
    profiles::{Sources, artifacts::Artifacts, baseline::Bounds, deliver, localhost::ProfileFolder},
    verify::verify_pod,
};
use serde_json::{Value, json};

use crate::lab::{DENY_MKDIR, Lab, designs, sleeper};

/// As much as a profile can allow that denies anything.
pub(crate) const ALLOW_ALL_BUT_ONE: &str =
    r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["sysfs"],"action":"SCMP_ACT_ERRNO"}]}"#;

/// What bounds a container without capabilities on the containerd of these tests; a container that sets none has the default ones.
fn bounds() -> Bounds {
    let features = NodeFeatures {
        runtime_name: "containerd".to_owned(),
        runtime_version: "1.6.20".to_owned(),
        ..NodeFeatures::of_kernel(Path::new("/proc"), Path::new("/sys"))
    };
    Bounds::of_node(&features)
}

fn localhost(name: &str) -> Value {
    json!({"seccompProfile": {"type": "Localhost", "localhostProfile": name}})
}

fn config_map(reference: &str) -> Value {
    json!({"seccompProfile": {"type": "ConfigMap", "configMapProfile": reference}})
}

#[tokio::test(flavor = "multi_thread")]
async fn every_type_denies_and_allows_what_it_declares() {
    let lab = Lab::new(designs());
    lab.put_profile("web", "block.json", DENY_MKDIR);
    lab.put_profile("web-open", "p.json", ALLOW_ALL_BUT_ONE);
    let annotated = |name: &str, key: &str, value: &str| {
        let mut pod = sleeper(name, json!({}), json!({}));
        pod["metadata"]["annotations"] = json!({key: value});
        pod
    };
    // The API server has made fields of annotations before a node sees the pod.
    let created = |mut pod: Value| {
        let text = pod.to_string();
        let prepared = Prepared::new(serde_json::from_str(&text).unwrap(), Subject::Pod, &designs());
        prepared.changes().iter().for_each(|change| change.apply(&mut pod));
        pod
    };
    let ignored = "seccomp.security.alpha.kubernetes.io/pod";
    // mkdir is denied by our own profiles alone, a new user namespace by the runtime's default alone.
    let cases = [
        (sleeper("unset", json!({}), json!({})), 0, 0, 0),
        (sleeper("unconfined", json!({"seccompProfile": {"type": "Unconfined"}}), json!({})), 0, 0, 0),
        (sleeper("default", json!({"seccompProfile": {"type": "RuntimeDefault"}}), json!({})), 2, 0, 1),
        (sleeper("localhost", localhost("ok.json"), json!({})), 2, 1, 0),
        // What a tenant brings can only restrict: what the default denies stays denied.
        (sleeper("configmap", config_map("web/block.json"), json!({})), 2, 1, 1),
        (sleeper("configmap-open", config_map("web-open/p.json"), json!({})), 2, 0, 1),
        (
            sleeper(
                "container-wins",
                localhost("ok.json"),
                json!({"seccompProfile": {"type": "Unconfined"}}),
            ),
            0,
            0,
            0,
        ),
        (created(annotated("annotated", ignored, "localhost/ok.json")), 2, 1, 0),
        (
            created(annotated(
                "annotated-map",
                "container.seccomp.security.alpha.kubernetes.io/c",
                "configmap/web/block.json",
            )),
            2,
            1,
            1,
        ),
        // An annotation that was added later: what was decided at creation stays decided.
        (annotated("annotated-later", ignored, "localhost/ok.json"), 0, 0, 0),
        (sleeper("unknown-call", localhost("badcall.json"), json!({})), 2, 0, 0),
    ];
    let pods: Vec<_> =
        cases.into_iter().map(|(pod, mode, mkdir, unshare)| (lab.apply(pod), mode, mkdir, unshare)).collect();
    for (pod, mode, mkdir, unshare) in &pods {
        lab.until_running(pod).await;
        let name = &pod.key.name;
        let kernel = lab.kernel(pod, "c").await;
        assert_eq!(kernel.seccomp_mode, *mode, "{name}");
        assert_eq!(kernel.seccomp_filters, Some(u32::from(*mode == 2)), "{name}");
        let (code, text) = lab.exec(pod, "c", "mkdir /tmp/x").await;
        assert_eq!(code, *mkdir, "{name}: {text}");
        let (code, text) = lab.exec(pod, "c", "unshare -U true").await;
        assert_eq!(i32::from(code != 0), *unshare, "{name}: {text}");
        let report = verify_pod(&lab.node.config, &lab.node.runtime, Some(&lab.source), pod).await.unwrap();
        assert!(!report.has_mismatch(), "{name}: {:#?}", report.lines());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_map_profile_leaves_its_hash_and_nothing_else() {
    let lab = Lab::new(designs());
    // Spelled so that no re-serialisation could produce it.
    let text = DENY_MKDIR.replacen('{', "{ \"comment\" :  \"marker-7f3a\", ", 1);
    lab.put_profile("web", "block.json", &text);
    let bare = json!({"capabilities": {"drop": ["ALL"]}});
    let pod = lab.apply(sleeper("hashed", config_map("web/block.json"), bare.clone()));
    let two = lab.apply({
        let mut pod = sleeper("shared", config_map("web/block.json"), bare);
        let mut second = pod["spec"]["containers"][0].clone();
        second["name"] = json!("d");
        pod["spec"]["containers"].as_array_mut().unwrap().push(second);
        pod
    });
    let status = lab.until_running(&pod).await;
    let both = lab.until_running(&two).await;

    let file = lab.folder.path().join("profile");
    fs::write(&file, &text).unwrap();
    let sum = Command::new("sha256sum").arg(&file).output().unwrap();
    fs::remove_file(&file).unwrap();
    let sum = String::from_utf8(sum.stdout).unwrap().split(' ').next().unwrap().to_owned();
    let hashes = &status["containerStatuses"][0]["securityContext"];
    assert_eq!(hashes["seccompProfileSourceHash"], sum);
    let applied = bounds().combine(&text, &ProfileFolder::new("/nonexistent")).unwrap();
    assert_eq!(hashes["seccompProfileHash"], applied.sha256, "the hash of what the runtime was given");
    assert_ne!(hashes["seccompProfileHash"], sum);
    for container in both["containerStatuses"].as_array().unwrap() {
        assert_eq!(container["securityContext"], *hashes, "two containers share one profile");
    }

    let mut looked_at = 0;
    for entry in walkdir::WalkDir::new(lab.folder.path()).same_file_system(false).into_iter().flatten() {
        if entry.file_type().is_file()
            && let Ok(content) = fs::read(entry.path())
        {
            looked_at += 1;
            // A runtime keeps the rules of its containers; the text of the tenant is kept nowhere.
            let needle = b"marker-7f3a";
            assert!(
                !content.windows(needle.len()).any(|part| part == needle),
                "{} holds it",
                entry.path().display()
            );
        }
    }
    assert!(looked_at > 50, "the search saw only {looked_at} files");
    assert_eq!(open_memory_files(), 0, "what the runtime has read is closed");
}

/// Memory files with profiles that this process, the agent, still has open.
pub(crate) fn open_memory_files() -> usize {
    let links =
        fs::read_dir("/proc/self/fd").unwrap().flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    links.filter(|link| link.to_string_lossy().contains("memfd:seccomp-profile")).count()
}

#[tokio::test]
async fn what_the_runtime_reads_is_sealed() {
    let source = palisade_node::api::local::LocalSource::default();
    let mut map = ConfigMap::default();
    map.data.insert("k".into(), DENY_MKDIR.into());
    source.put_config_map("default", "m", map);
    let profile = ProfileRef::ConfigMap { name: "m".into(), key: "k".into() };
    let folder = ProfileFolder::new("/nonexistent");
    let artifacts = Artifacts::default();
    let sources = Sources { api: &source, artifacts: &artifacts, pull_secrets: &[] };
    let delivered = deliver(&profile, "default", &folder, &sources, KubeVersion::Designs, &bounds()).await;
    let delivery = delivered.unwrap().unwrap();
    let applied = bounds().combine(DENY_MKDIR, &folder).unwrap();
    assert_eq!(delivery.sealed().unwrap().seals().unwrap(), SealedFile::SEALS);
    assert_eq!(delivery.source_hash.as_deref(), Some(sha256::hex(DENY_MKDIR.as_bytes()).as_str()));
    assert_eq!(delivery.hash.as_deref(), Some(applied.sha256.as_str()));
    // Another process, root as we are, reads it and cannot change it.
    let shell = |script: &str| Command::new("sh").args(["-c", script]).output().unwrap();
    assert_eq!(shell(&format!("cat {}", delivery.path)).stdout, applied.text.as_bytes());
    assert!(!shell(&format!("echo x > {}", delivery.path)).status.success());
    assert!(!shell(&format!("echo x >> {}", delivery.path)).status.success());
    assert_eq!(fs::read_to_string(&delivery.path).unwrap(), applied.text);
    let path = delivery.path.clone();
    drop(delivery);
    assert!(!Path::new(&path).exists() || open_memory_files() == 0);
}

async fn kill(lab: &Lab, pod: &RunPod) {
    let pid = i32::try_from(lab.pid(pod, "c").await).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_the_profile_waits_for_the_restart() {
    let lab = Lab::new(designs());
    lab.put_profile("web", "p.json", DENY_MKDIR);
    lab.put_profile("broken", "p.json", DENY_MKDIR);
    let pod = lab.apply(sleeper("rolling", config_map("web/p.json"), json!({})));
    let broken = lab.apply(sleeper("broken", config_map("broken/p.json"), json!({})));
    lab.until_running(&broken).await;
    // Nonsense takes the place of a profile: running containers keep running, restarted ones do not start.
    lab.put_profile("broken", "p.json", "{ nonsense");
    assert_eq!(lab.exec(&broken, "c", "mkdir /tmp/x").await.0, 1);
    kill(&lab, &broken).await;
    let status = lab.until_waiting(&broken, "CreateContainerConfigError").await;
    let message = crate::lab::waiting(&status)["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("seccomp profile configmap/broken/p.json is not valid JSON: "), "{message}");
    let status = lab.until_running(&pod).await;
    let first = status["containerStatuses"][0]["securityContext"]["seccompProfileHash"].clone();
    let fresh = r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["chmod","fchmodat"],"action":"SCMP_ACT_ERRNO"}]}"#;
    let stale = || async {
        let report = verify_pod(&lab.node.config, &lab.node.runtime, Some(&lab.source), &pod).await.unwrap();
        report.containers[0].stale_profile.clone()
    };
    assert_eq!(stale().await, None);

    lab.put_profile("web", "p.json", fresh);
    assert_eq!(lab.exec(&pod, "c", "mkdir /tmp/x").await.0, 1, "the running container keeps its profile");
    assert_eq!(stale().await, Some(sha256::hex(fresh.as_bytes())), "and verify reports it");
    // The container ends; its successor gets what the ConfigMap holds now.
    let before = lab.container_id(&pod, "c").await;
    kill(&lab, &pod).await;
    let status = lab
        .until(&pod, "restarted", |status| {
            let one = &status["containerStatuses"][0];
            one["restartCount"] == 1 && one["state"]["running"].is_object()
        })
        .await;
    assert_ne!(lab.container_id(&pod, "c").await, before);
    assert_ne!(status["containerStatuses"][0]["securityContext"]["seccompProfileHash"], first);
    assert_eq!(lab.exec(&pod, "c", "mkdir /tmp/x").await.0, 0);
    assert_eq!(lab.exec(&pod, "c", "chmod 700 /tmp/x").await.0, 1);

    lab.source.remove_config_map("default", "web");
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(lab.exec(&pod, "c", "chmod 700 /tmp/x").await.0, 1, "deleting it changes nothing either");
    assert!(stale().await.unwrap().starts_with("gone: "));
    kill(&lab, &pod).await;
    // Second restart: ten seconds of back-off first, then the failure.
    let status = lab.until_waiting(&pod, "CreateContainerConfigError").await;
    assert_eq!(
        crate::lab::waiting(&status)["message"],
        "configmap \"web\" not found in namespace \"default\": it holds seccomp profile configmap/web/p.json"
    );
    lab.put_profile("web", "p.json", DENY_MKDIR);
    lab.until_running(&pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_profiles_are_reported_and_affect_no_other_pod() {
    let lab = Lab::new(designs());
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    let large = format!("\"{}\"", "x".repeat(1 << 20));
    let mut map = ConfigMap::default();
    for (key, text) in [
        ("json", "{ not json"),
        ("large", &large),
        ("deep", &deep),
        ("nul", "{\0}"),
        ("escaped-nul", r#"{"defaultAction":"SCMP_ACT_ALLOW","x":"\u0000"}"#),
        ("action", r#"{"defaultAction":"SCMP_ACT_NOPE"}"#),
        (
            "call",
            r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["nosuchcall","mkdir"],"action":"SCMP_ACT_ERRNO"}]}"#,
        ),
        ("list", "[]"),
        ("listener", r#"{"defaultAction":"SCMP_ACT_ERRNO","listenerPath":"/run/a.sock"}"#),
        ("log", r#"{"defaultAction":"SCMP_ACT_LOG"}"#),
        ("none", "{}"),
        ("twice", r#"{"defaultAction":"SCMP_ACT_ERRNO","defaultAction":"SCMP_ACT_ALLOW"}"#),
    ] {
        map.data.insert(key.to_owned(), text.to_owned());
    }
    map.binary_data.insert("binary".to_owned(), DENY_MKDIR.as_bytes().to_vec());
    lab.source.put_config_map("default", "bad", map);
    let neighbour = lab.apply(sleeper("neighbour", json!({}), json!({})));
    let config = "CreateContainerConfigError";
    let cases = [
        (
            "json",
            config,
            "seccomp profile configmap/bad/json is not valid JSON: key must be a string at line 1 column 3",
        ),
        (
            "large",
            config,
            "seccomp profile configmap/bad/large has 1048578 bytes, more than the 1048576 a profile may have",
        ),
        (
            "deep",
            config,
            "seccomp profile configmap/bad/deep is nested more than 127 levels deep, where a profile has five",
        ),
        ("nul", config, "seccomp profile configmap/bad/nul has a NUL character"),
        ("escaped-nul", config, "seccomp profile configmap/bad/escaped-nul has a NUL character"),
        (
            "binary",
            config,
            "key binary of ConfigMap default/bad is in binaryData: a seccomp profile is text and belongs in data",
        ),
        ("absent", config, "couldn't find key absent in ConfigMap default/bad"),
        ("log", config, "seccomp profile configmap/bad/log confines nothing: no system call is denied"),
        (
            "none",
            config,
            "seccomp profile configmap/bad/none is not a seccomp profile: has neither defaultAction nor syscalls: a runtime applies no profile at all",
        ),
        (
            "twice",
            config,
            "seccomp profile configmap/bad/twice sets the key \"defaultAction\" twice, and readers disagree about which one counts",
        ),
        ("list", config, "seccomp profile configmap/bad/list is not a seccomp profile: is not a JSON object"),
        (
            "action",
            config,
            "seccomp profile configmap/bad/action is not a seccomp profile: defaultAction: \"SCMP_ACT_NOPE\" is not an action",
        ),
        (
            "listener",
            config,
            "seccomp profile configmap/bad/listener leaves system calls to a listener: listenerPath: use SCMP_ACT_ERRNO or SCMP_ACT_LOG, and no listenerPath or listenerMetadata",
        ),
    ];
    let pods: Vec<_> = cases
        .iter()
        .map(|(key, _, _)| {
            lab.apply(sleeper(&format!("bad-{key}"), config_map(&format!("bad/{key}")), json!({})))
        })
        .collect();
    let climbing = lab.apply(sleeper("climbing", config_map("../bad/json"), json!({})));
    let traversing = lab.apply(sleeper("traversing", localhost("../../../etc/passwd"), json!({})));
    for (pod, (key, reason, message)) in pods.iter().zip(cases) {
        let status = lab.until_waiting(pod, reason).await;
        assert_eq!(crate::lab::waiting(&status)["message"], message, "{key}");
        let warned =
            lab.events(pod).contains(&("Warning".into(), "Failed".into(), format!("Error: {message}")));
        assert!(warned, "{key}: {:?}", lab.events(pod));
        assert_eq!(status["phase"], "Pending", "{key}");
    }
    let status = lab.until_waiting(&climbing, config).await;
    assert_eq!(crate::lab::waiting(&status)["message"], "unknown seccomp profile option: configmap/..");
    let status = lab.until_waiting(&traversing, "CreateContainerError").await;
    assert_eq!(
        crate::lab::waiting(&status)["message"],
        "seccomp profile \"../../../etc/passwd\" leaves the profile directory"
    );
    let call = lab.apply(sleeper("call", config_map("bad/call"), json!({})));
    lab.until_running(&call).await;
    lab.until_running(&neighbour).await;
    assert_eq!(lab.status(&neighbour)["containerStatuses"][0]["restartCount"], 0);
}
