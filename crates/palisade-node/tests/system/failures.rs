//! The failure tables of the seccomp and AppArmor designs, row by row.
//!
//! Rows 5 and 6 of the seccomp table and rows 4 and 5 of the AppArmor table are the API server's: such pods never reach a
//! node, and its tests show that.

use std::{fs, path::Path, time::Duration};

use palisade_model::compat::Compat;
use palisade_node::verify::verify_pod;
use palisade_testkit::containerd::runc_without_seccomp;
use serde_json::{Value, json};

use crate::lab::{DENY_MKDIR, Lab, designs, sleeper, waiting};

fn localhost(name: &str) -> Value {
    json!({"seccompProfile": {"type": "Localhost", "localhostProfile": name}})
}

fn with_policy(mut pod: Value, policy: &str) -> Value {
    pod["spec"]["restartPolicy"] = json!(policy);
    pod
}

#[tokio::test(flavor = "multi_thread")]
async fn seccomp_row_1_a_runtime_that_ignores_profiles_is_found_out() {
    let lab = Lab::with_runc(designs(), |folder| Some(runc_without_seccomp(folder)));
    let ignored = lab.apply(sleeper("ignored", localhost("ok.json"), json!({})));
    lab.until_running(&ignored).await;
    assert_eq!(lab.exec(&ignored, "c", "mkdir /tmp/x").await.0, 0, "nothing is enforced");
    let report = verify_pod(&lab.node.config, &lab.node.runtime, Some(&lab.source), &ignored).await.unwrap();
    assert!(report.has_mismatch());
    let row = report.containers[0].rows.iter().find(|row| row.check == "seccomp").unwrap();
    assert_eq!(
        (row.declared.as_str(), row.kernel.as_str(), row.note.as_deref()),
        ("Localhost ok.json", "none, 0 filters", Some("the runtime ignored the profile"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn seccomp_row_2_a_profile_that_denies_too_much() {
    let lab = Lab::new(designs());
    let misbehaves = lab.apply(sleeper("misbehaves", localhost("ok.json"), json!({})));
    lab.until_running(&misbehaves).await;
    assert_eq!(lab.exec(&misbehaves, "c", "mkdir /tmp/x").await.0, 1);
    let fails = lab.apply(sleeper("fails", localhost("denyall.json"), json!({})));
    let status = lab
        .until(&fails, "failing to start", |status| {
            status["containerStatuses"][0]["lastState"]["terminated"]["reason"] == "StartError"
        })
        .await;
    assert_eq!(status["phase"], "Running");
    let never = lab.apply(with_policy(sleeper("never", localhost("denyall.json"), json!({})), "Never"));
    let status = lab.until_phase(&never, "Failed").await;
    assert_eq!(status["containerStatuses"][0]["state"]["terminated"]["exitCode"], 128);
}

#[tokio::test(flavor = "multi_thread")]
async fn seccomp_row_3_an_unknown_action() {
    let lab = Lab::new(designs());
    let always = lab.apply(sleeper("always", localhost("badaction.json"), json!({})));
    let never = lab.apply(with_policy(sleeper("never", localhost("badaction.json"), json!({})), "Never"));
    let status = lab.until_waiting(&always, "CrashLoopBackOff").await;
    let text = waiting(&status)["message"].as_str().unwrap().to_owned();
    assert_eq!(text, format!("back-off 10s restarting failed container=c pod={}", always.key));
    assert!(lab.events(&always).iter().any(|(kind, reason, _)| kind == "Warning" && reason == "BackOff"));
    let status = lab.until_phase(&never, "Failed").await;
    let terminated = &status["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(terminated["reason"], "StartError");
    assert!(
        terminated["message"].as_str().unwrap().contains("SCMP_ACT_NOPE is not a valid action for seccomp")
    );
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(lab.status(&never)["containerStatuses"][0]["restartCount"], 0, "not tried again");
}

#[tokio::test(flavor = "multi_thread")]
async fn seccomp_row_4_a_profile_that_is_not_there() {
    let lab = Lab::new(designs());
    let always = lab.apply(sleeper("always", localhost("late.json"), json!({})));
    let on_failure =
        lab.apply(with_policy(sleeper("on-failure", localhost("late.json"), json!({})), "OnFailure"));
    let never = lab.apply(with_policy(sleeper("never", localhost("late.json"), json!({})), "Never"));
    let path = lab.root.join("seccomp/late.json");
    let text =
        format!("cannot load seccomp profile \"{0}\": open {0}: no such file or directory", path.display());
    for pod in [&always, &on_failure] {
        let status = lab.until_waiting(pod, "CreateContainerError").await;
        assert_eq!(waiting(&status)["message"], text);
    }
    let status = lab.until_phase(&never, "Failed").await;
    let terminated = &status["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(
        (&terminated["reason"], &terminated["message"]),
        (&json!("CreateContainerError"), &json!(text))
    );
    // The administrator brings it; the next try, ten seconds later, succeeds.
    fs::write(path, DENY_MKDIR).unwrap();
    for pod in [&always, &on_failure] {
        lab.until_running(pod).await;
    }
    assert_eq!(lab.status(&never)["phase"], "Failed", "what may not be retried is not");
}

/// A runtime takes such a document for "no profile" and starts the container unconfined.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_makes_no_filter_starts_nothing() {
    let lab = Lab::new(designs());
    let twin = lab.apply(sleeper("twin", localhost("ok.json"), json!({})));
    for (name, text) in
        [("object", "{}"), ("nothing", "null"), ("blank", r#"{"defaultAction":"","syscalls":null}"#)]
    {
        fs::write(lab.root.join(format!("seccomp/{name}.json")), text).unwrap();
        let pod = lab.apply(sleeper(name, localhost(&format!("{name}.json")), json!({})));
        let status = lab.until_waiting(&pod, "CreateContainerError").await;
        let message = waiting(&status)["message"].as_str().unwrap().to_owned();
        assert!(message.contains("a runtime applies no profile at all"), "{name}: {message}");
    }
    lab.until_running(&twin).await;
    assert_eq!(lab.kernel(&twin, "c").await.seccomp_mode, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn emulated_kubelets_retry_whatever_the_policy() {
    let lab = Lab::new(Compat::kubernetes(31));
    let never = lab.apply(with_policy(sleeper("never", localhost("late.json"), json!({})), "Never"));
    lab.until_waiting(&never, "CreateContainerError").await;
    assert_eq!(lab.status(&never)["phase"], "Pending");
    fs::write(lab.root.join("seccomp/late.json"), DENY_MKDIR).unwrap();
    lab.until_running(&never).await;
}

/// A /sys with the AppArmor state that the test sets.
fn pretend_app_armor(sys: &Path, on: bool, profiles: &str) {
    let folder = sys.join("kernel/security/apparmor");
    fs::create_dir_all(&folder).unwrap();
    fs::create_dir_all(sys.join("module/apparmor/parameters")).unwrap();
    fs::write(sys.join("module/apparmor/parameters/enabled"), if on { "Y\n" } else { "N\n" }).unwrap();
    fs::write(folder.join("profiles"), profiles).unwrap();
}

async fn lab_with_sys(compat: Compat, on: bool) -> Lab {
    let mut lab = Lab::new(compat);
    lab.stop_agent().await;
    let sys = lab.folder.path().join("sys");
    pretend_app_armor(&sys, on, "");
    let config = palisade_node::node::NodeConfig { sys, ..lab.node.config.as_ref().clone() };
    lab.node = palisade_node::node::Node::new(config, std::sync::Arc::new(lab.source.clone())).unwrap();
    lab.start_agent();
    lab
}

fn app_armor(profile: Value) -> Value {
    json!({"appArmorProfile": profile})
}

#[tokio::test(flavor = "multi_thread")]
async fn app_armor_row_6_a_host_without_it_blocks() {
    let lab = lab_with_sys(designs(), false).await;
    let blocked = lab.apply(sleeper("blocked", json!({}), app_armor(json!({"type": "RuntimeDefault"}))));
    let unconfined = lab.apply(sleeper("unconfined", json!({}), app_armor(json!({"type": "Unconfined"}))));
    let plain = lab.apply(sleeper("plain", json!({}), json!({})));
    let status = lab.until_waiting(&blocked, "Blocked").await;
    assert_eq!(
        (&status["phase"], &status["reason"], &status["message"]),
        (
            &json!("Pending"),
            &json!("AppArmor"),
            &json!("Cannot enforce AppArmor: AppArmor is not enabled on the host")
        )
    );
    lab.until_running(&plain).await;
    lab.until_running(&unconfined).await;
    // The host gets AppArmor: the pod is no longer blocked. (This runtime then reports that it has none: row 1.)
    pretend_app_armor(&lab.folder.path().join("sys"), true, "");
    let status = lab.until_waiting(&blocked, "CreateContainerError").await;
    assert_eq!(status["reason"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn app_armor_row_6_emulated_kubelets_fail_the_pod() {
    let lab = lab_with_sys(Compat::kubernetes(31), false).await;
    let failed = lab.apply(sleeper(
        "failed",
        json!({}),
        app_armor(json!({"type": "Localhost", "localhostProfile": "x"})),
    ));
    let status = lab.until_phase(&failed, "Failed").await;
    assert_eq!(
        status["message"],
        "Pod was rejected: Cannot enforce AppArmor: AppArmor is not enabled on the host"
    );
    let older = lab_with_sys(Compat::kubernetes(30), false).await;
    let blocked = older.apply(sleeper("blocked", json!({}), app_armor(json!({"type": "RuntimeDefault"}))));
    older.until_waiting(&blocked, "Blocked").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn app_armor_rows_1_and_3_runtime_without_it_and_profile_missing() {
    // Whether the kernel here has AppArmor or not, the agent takes it as present; the runtime decides.
    let lab = lab_with_sys(designs(), true).await;
    let missing = || app_armor(json!({"type": "Localhost", "localhostProfile": "absent"}));
    let row_3 = lab.apply(sleeper("row-3", json!({}), missing()));
    let never = lab.apply(with_policy(sleeper("row-3-never", json!({}), missing()), "Never"));
    let text = "failed to get container spec opts: failed to generate apparmor spec opts: apparmor profile not found absent";
    let status = lab.until_waiting(&row_3, "CreateContainerError").await;
    assert_eq!(waiting(&status)["message"], text);
    let status = lab.until_phase(&never, "Failed").await;
    assert_eq!(status["containerStatuses"][0]["state"]["terminated"]["message"], text);
    if !Path::new("/sys/kernel/security/apparmor").exists() {
        let row_1 = lab.apply(sleeper("row-1", json!({}), app_armor(json!({"type": "RuntimeDefault"}))));
        let status = lab.until_waiting(&row_1, "CreateContainerError").await;
        let message = waiting(&status)["message"].as_str().unwrap().to_owned();
        assert!(message.contains("apparmor is not supported"), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn version_skew_is_reported_with_the_texts_of_the_design() {
    // The API server let a ConfigMap profile through; this node does not support the feature.
    let lab = Lab::new(Compat::designs());
    lab.put_profile("web", "p.json", DENY_MKDIR);
    let profile = json!({"seccompProfile": {"type": "ConfigMap", "configMapProfile": "web/p.json"}});
    let pod = lab.apply(sleeper("skewed", profile, json!({})));
    let status = lab.until_waiting(&pod, "CreateContainerConfigError").await;
    assert_eq!(waiting(&status)["message"], "unknown seccomp profile option: configmap/web");
}
