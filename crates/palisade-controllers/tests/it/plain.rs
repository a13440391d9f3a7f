//! The rollout on a Kubernetes without constraints: levels come from what workloads need.

use palisade_controllers::readiness::report::report;
use palisade_policy::enforcement::mode::Release;
use serde_json::{Value, json};

use crate::world::World;

const SYNC: &str = "security.openshift.io/scc.podSecurityLabelSync";
const LEVEL: &str = "security.openshift.io/MinimallySufficientPodSecurityStandard";
const MEMORY: &str = "palisade.dev/workload-levels";

/// The spec of a pod that needs a level.
pub(crate) fn spec(level: &str) -> Value {
    match level {
        "restricted" => json!({"securityContext": {"runAsNonRoot": true, "runAsUser": 1000,
                                                   "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "c", "image": "i", "securityContext": {
                "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]}),
        "baseline" => json!({"containers": [{"name": "c", "image": "i"}]}),
        _ => json!({"hostNetwork": true, "containers": [{"name": "c", "image": "i"}]}),
    }
}

/// A workload without pods.
pub(crate) fn workload(kind: &str, namespace: &str, name: &str, level: &str) -> (&'static str, Value) {
    let template = json!({"spec": spec(level)});
    let (api_version, spec) = match kind {
        "Job" => ("batch/v1", json!({"template": template})),
        "CronJob" => ("batch/v1", json!({"jobTemplate": {"spec": {"template": template}}})),
        _ => ("apps/v1", json!({"template": template})),
    };
    (api_version, json!({"metadata": {"name": name, "namespace": namespace, "uid": name}, "spec": spec}))
}

fn set(world: &mut World, kind: &str, namespace: &str, name: &str, level: &str) {
    let (api_version, object) = workload(kind, namespace, name, level);
    world.workload(api_version, kind, object);
}

fn enforcing() -> World {
    let mut world = World::plain();
    world.release = Release::Enforce;
    world.gate = true;
    world
}

fn annotation(world: &World, namespace: &str, key: &str) -> String {
    world.namespaces[namespace]["metadata"]["annotations"][key].as_str().unwrap_or("<none>").to_owned()
}

#[test]
fn a_namespace_gets_the_level_that_its_workloads_need() {
    let mut world = enforcing();
    for (namespace, kind, level) in [
        ("a", "Deployment", "privileged"),
        ("b", "DaemonSet", "baseline"),
        ("c", "StatefulSet", "restricted"),
        ("d", "CronJob", "baseline"),
        ("e", "Job", "privileged"),
    ] {
        world.namespace(namespace, json!({}));
        set(&mut world, kind, namespace, "web", level);
        world.pod(namespace, "fine", json!({}), spec("restricted"));
    }
    world.namespace("empty", json!({}));
    world.namespace("kube-system", json!({}));
    world.pod("kube-system", "agent", json!({}), spec("privileged"));
    world.settle();
    assert_eq!(world.mode(), ("", "Restricted"));
    for (namespace, level) in [
        ("a", "privileged"),
        ("b", "baseline"),
        ("c", "restricted"),
        ("d", "baseline"),
        ("e", "privileged"),
        ("empty", "restricted"),
        ("kube-system", "privileged"),
    ] {
        assert_eq!(world.enforce_label(namespace), Some(level), "{namespace}");
    }
    assert_eq!(annotation(&world, "a", LEVEL), "privileged");
    assert_eq!(annotation(&world, "a", MEMORY), "Deployment/web=privileged");
    assert_eq!(world.config["status"]["levels"], "Workloads");
}

#[test]
fn what_cannot_be_judged_gets_no_label_that_could_reject_it() {
    let mut world = enforcing();
    world.namespace("odd", json!({}));
    world.cluster.set_undecided("example.com/v1", "Robot", "odd", "r2", "its kind is not known");
    world.settle();
    assert_eq!(world.enforce_label("odd"), Some("privileged"));
    let odd = report(&world.cluster).find(|namespace| namespace.name == "odd").unwrap();
    assert!(!odd.is_compliant(), "it is never called ready");
}

/// The label of a namespace is not what its next workload happens to request.
#[test]
fn a_workload_that_is_rejected_does_not_loosen_the_label_that_rejects_it() {
    for is_restricted in [false, true] {
        let mut world = enforcing();
        world.namespace("team", json!({}));
        if !is_restricted {
            // The label is there, and the global configuration is not.
            world.namespace("waits", json!({SYNC: "false"}));
            world.pod("waits", "old", json!({}), spec("privileged"));
        }
        world.settle();
        assert_eq!(world.mode().1, if is_restricted { "Restricted" } else { "Progressing" });
        assert_eq!(world.enforce_label("team"), Some("restricted"));
        set(&mut world, "Deployment", "team", "attacker", "privileged");
        world.settle();
        world.restart();
        world.settle();
        assert_eq!(world.enforce_label("team"), Some("restricted"));
        // A new namespace is labelled by what was there when nothing rejected it, which is nothing.
        if is_restricted {
            world.namespace("new", json!({}));
            set(&mut world, "Deployment", "new", "attacker", "privileged");
            world.settle();
            assert_eq!(world.enforce_label("new"), Some("restricted"));
        }
    }
}

#[test]
fn a_workload_that_is_deleted_and_made_again_finds_its_level() {
    for restart in [false, true] {
        let mut world = enforcing();
        world.namespace("team", json!({}));
        // Something else holds the rollout up, so that it stays on its way.
        world.namespace("waits", json!({SYNC: "false"}));
        world.pod("waits", "old", json!({}), spec("privileged"));
        set(&mut world, "Deployment", "team", "web", "privileged");
        world.settle();
        assert_eq!(world.enforce_label("team"), Some("privileged"));
        world.remove("Deployment", "team", "web");
        world.settle();
        if restart {
            world.restart();
            world.settle();
        }
        assert_eq!(world.enforce_label("team"), Some("privileged"));
        let remembered = annotation(&world, "team", MEMORY);
        assert!(remembered.starts_with("Deployment/web=privileged until "), "{remembered}");
        set(&mut world, "Deployment", "team", "web", "privileged");
        world.settle();
        assert_eq!(annotation(&world, "team", MEMORY), "Deployment/web=privileged");
    }
}

#[test]
fn a_namespace_that_nobody_labels_holds_the_rollout_and_its_reason_names_workload_and_field() {
    let mut world = enforcing();
    world.release = Release::Evaluate;
    world.gate = false;
    world.namespace("opted-out", json!({SYNC: "false"}));
    world.namespace("openshift-mine", json!({SYNC: "true"}));
    set(&mut world, "Deployment", "opted-out", "web", "privileged");
    world.pod("openshift-mine", "tool", json!({}), spec("privileged"));
    world.settle();
    assert_eq!(world.mode(), ("Legacy", ""));
    let reasons: Vec<String> =
        world.violating().into_iter().map(|(name, reason, ..)| format!("{name}: {reason}")).collect();
    assert_eq!(
        reasons,
        [
            "openshift-mine: PSAConfig: Misconfigured OpenShift Namespace; Pod tool: spec.hostNetwork and 4 more",
            "opted-out: PSAConfig: PSA label syncer disabled; Deployment web: spec.template.spec.hostNetwork and 4 more",
        ]
    );
    assert_eq!(world.condition("Upgradeable"), ("True".to_owned(), "AsExpected".to_owned()));

    // A namespace that opts in all the same breaks nothing: the global configuration waits.
    world.release = Release::Enforce;
    world.gate = true;
    world.settle();
    assert_eq!(world.condition("Upgradeable"), ("False".to_owned(), "Legacy".to_owned()));
    world.config["spec"]["enforcementMode"] = json!("Restricted");
    world.settle();
    assert_eq!(world.mode(), ("Restricted", "Progressing"));
    assert_eq!(world.global["defaults"]["enforce"], "privileged");
    world.label("opted-out", "pod-security.kubernetes.io/enforce", "privileged");
    world.label("openshift-mine", "pod-security.kubernetes.io/enforce", "privileged");
    world.settle();
    assert_eq!(world.mode(), ("Restricted", "Restricted"));
}

#[test]
fn a_fixed_workload_tightens_its_namespace_once_everything_is_enforced() {
    let mut world = enforcing();
    world.namespace("team", json!({}));
    set(&mut world, "Deployment", "team", "web", "baseline");
    world.settle();
    assert_eq!((world.mode().1, world.enforce_label("team")), ("Restricted", Some("baseline")));
    set(&mut world, "Deployment", "team", "web", "restricted");
    world.settle();
    assert_eq!(world.enforce_label("team"), Some("baseline"), "what admission makes of it is not known yet");
    world.workload(
        "v1",
        "Pod",
        json!({"metadata": {"name": "web-1", "namespace": "team", "uid": "1", "ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "controller": true}]},
        "spec": spec("restricted"), "status": {"phase": "Running"}}),
    );
    world.settle();
    assert_eq!(world.enforce_label("team"), Some("restricted"));
}

#[test]
fn waves_come_one_after_another_and_can_be_taken_back() {
    let mut world = enforcing();
    for (namespace, tier) in [("a", "dev"), ("b", "prod"), ("c", "none")] {
        world.namespace(namespace, json!({"tier": tier}));
        set(&mut world, "Deployment", namespace, "web", "baseline");
    }
    let wave = |name: &str| json!({"name": name, "soak": "10s", "namespaceSelector": {"matchLabels": {"tier": name}}});
    world.rollout = json!({"metadata": {"name": "cluster", "generation": 1}, "spec": {"waves": [wave("dev"), wave("prod")]}});
    let labels =
        |world: &World| ["a", "b", "c"].map(|name| world.enforce_label(name).unwrap_or("-").to_owned());
    world.settle();
    assert_eq!(labels(&world), ["baseline", "-", "-"]);
    assert_eq!((world.mode().1, world.condition("Progressing").1.as_str()), ("Progressing", "WaveSoaking"));
    world.clock += 10;
    world.settle();
    assert_eq!(labels(&world), ["baseline", "baseline", "-"]);

    // Pods are rejected in the second wave: it stops by itself.
    let event = json!({"reason": "FailedCreate", "message": "pods \"x\" is forbidden: violates PodSecurity \"baseline:latest\"",
        "firstTimestamp": "1970-01-01T00:00:11Z", "involvedObject": {"kind": "Deployment", "name": "web"}});
    world.cluster.set_event("b", "e", Some(&event));
    world.clock += 20;
    world.settle();
    assert_eq!(world.rollout["status"]["waves"][1]["state"], "Stopped");
    assert_eq!(world.rollout["status"]["waves"][1]["rejected"][0]["workload"], "Deployment/web");
    assert_eq!(world.condition("Progressing").1, "WaveStopped");
    assert_eq!(labels(&world), ["baseline", "baseline", "-"]);

    // Taken back, and then again.
    world.rollout["spec"]["rollback"] = json!("prod");
    world.settle();
    assert_eq!(labels(&world), ["baseline", "-", "-"]);
    world.cluster.set_event("b", "e", None);
    world.rollout["spec"]["rollback"] = json!("");
    world.settle();
    assert_eq!(labels(&world), ["baseline", "baseline", "-"]);
    world.rollout["spec"]["paused"] = json!(true);
    world.clock += 15;
    world.settle();
    assert_eq!(labels(&world), ["baseline", "baseline", "-"]);
    world.rollout["spec"]["paused"] = json!(false);
    world.settle();
    assert_eq!(labels(&world), ["baseline"; 3]);
    assert_eq!(world.mode().1, "Restricted");

    // After all: the global configuration goes back before the labels do.
    world.rollout["spec"]["rollback"] = json!("dev");
    world.turn();
    assert_eq!(
        (world.global["defaults"]["enforce"].as_str(), world.enforce_label("a")),
        (Some("privileged"), Some("baseline"))
    );
    world.settle();
    assert_eq!((world.mode().1, labels(&world)), ("Progressing", ["-", "-", "-"].map(str::to_owned)));
}

#[test]
fn without_a_label_syncer_the_rollout_ends_if_nothing_needs_a_label() {
    let mut world = enforcing();
    world.namespace("team", json!({}));
    world.pod("team", "fine", json!({}), spec("restricted"));
    world.cluster.without_own_label_syncer();
    assert_eq!(world.cluster.unlabelled().count(), 0);
    world.pod("team", "other", json!({}), spec("baseline"));
    assert_eq!(
        world.cluster.unlabelled().collect::<Vec<_>>(),
        ["team"],
        "it would be rejected by the default"
    );
}
