//! An administrator moves a cluster from Legacy to Restricted, and back, and nothing breaks.

use palisade_controllers::readiness::report::report;
use palisade_policy::enforcement::mode::Release;
use serde_json::{Value, json};

use crate::world::World;

const OPENSHIFT: &str = "PSAConfig: Misconfigured OpenShift Namespace";
const SYNCER_OFF: &str = "PSAConfig: PSA label syncer disabled";
const ACCOUNT: &str = "PSALabel: ServiceAccount with insufficient SCCs";
const SYNC: &str = "security.openshift.io/scc.podSecurityLabelSync";

fn privileged_pod() -> Value {
    json!({"containers": [{"name": "app", "image": "i", "securityContext": {"privileged": true}}]})
}

fn by_user(constraint: &str) -> Value {
    json!({"openshift.io/scc": constraint, "security.openshift.io/validated-scc-subject-type": "user"})
}

/// A cluster with a violating namespace for each of the three reasons, one that needs baseline, one that is fine.
fn cluster() -> World {
    let mut world = World::new();
    for name in ["default", "kube-system", "fine", "by-account", "by-user", "openshift-guide"] {
        world.namespace(name, json!({}));
    }
    world.namespace("opted-out", json!({SYNC: "false"}));
    world.pod("kube-system", "agent", json!({}), privileged_pod());
    world.grant_account("by-account", "privileged");
    world.pod("by-account", "agent", json!({"openshift.io/scc": "privileged"}), privileged_pod());
    world.pod("by-user", "debug", by_user("privileged"), privileged_pod());
    world.pod("openshift-guide", "demo", by_user("privileged"), privileged_pod());
    world.pod("opted-out", "old", by_user("privileged"), privileged_pod());
    world
}

fn entry(name: &str, reason: &str, state: &str, at: u32) -> (String, String, String, String) {
    (name.to_owned(), reason.to_owned(), state.to_owned(), format!("2026-01-01T00:00:{at:02}Z"))
}

#[test]
fn the_whole_way_and_back() {
    let mut world = cluster();

    // n-1: labels advise, nothing is enforced, no status is written.
    world.settle();
    assert_eq!(world.mode(), ("", "<none>"));
    assert_eq!(world.enforce_label("fine"), None);
    assert_eq!(world.enforce_label("kube-system"), Some("privileged"), "always");
    let labels = &world.namespaces["by-account"]["metadata"]["labels"];
    assert_eq!(labels["pod-security.kubernetes.io/warn"], "privileged");

    // n: violations are found, and the cluster stays behind.
    world.release = Release::Evaluate;
    world.clock = 1;
    world.settle();
    assert_eq!(world.mode(), ("Legacy", ""));
    assert_eq!(
        world.violating(),
        [
            entry("by-user", ACCOUNT, "Current", 1),
            entry("openshift-guide", OPENSHIFT, "Current", 1),
            entry("opted-out", SYNCER_OFF, "Current", 1),
        ]
    );
    assert_eq!(world.condition("Ready"), ("True".to_owned(), "Legacy".to_owned()));

    // Fixed one by one, each its own way. Times move only for the one that was fixed.
    world.clock = 2;
    world.grant_account("by-user", "privileged");
    world.settle();
    assert_eq!(world.violating()[2], entry("by-user", ACCOUNT, "Previous", 2));
    world.clock = 3;
    world.label("openshift-guide", "pod-security.kubernetes.io/enforce", "privileged");
    world.settle();
    world.clock = 4;
    world.label("opted-out", SYNC, "true");
    world.grant_account("opted-out", "privileged");
    world.settle();
    assert_eq!(
        world.violating(),
        [
            entry("by-user", ACCOUNT, "Previous", 2),
            entry("openshift-guide", OPENSHIFT, "Previous", 3),
            entry("opted-out", SYNCER_OFF, "Previous", 4),
        ]
    );
    assert_eq!(world.mode(), ("Legacy", ""), "what the controller opted out of, a person opts back into");

    // n+1: still opted out.
    world.release = Release::Enforce;
    world.gate = true;
    world.settle();
    assert_eq!(world.mode(), ("Legacy", "Legacy"));
    assert_eq!(world.enforce_label("fine"), None);

    // Opting in: labels first, then API servers.
    world.config["spec"]["enforcementMode"] = json!("Restricted");
    world.turn();
    assert_eq!(world.mode(), ("Restricted", "Progressing"));
    assert_eq!(world.global["defaults"]["enforce"], "privileged");
    assert_eq!(world.enforce_label("fine"), Some("restricted"));
    world.turn();
    assert_eq!(world.global["defaults"]["enforce"], "restricted");
    assert_eq!(world.mode(), ("Restricted", "Progressing"), "servers have to follow");
    assert_eq!(world.condition("Progressing"), ("True".to_owned(), "RollingOut".to_owned()));
    world.settle();
    assert_eq!(world.mode(), ("Restricted", "Restricted"));
    assert_eq!(world.condition("Ready"), ("True".to_owned(), "Enforcing".to_owned()));
    for (namespace, level) in [
        ("fine", "restricted"),
        ("by-account", "privileged"),
        ("by-user", "privileged"),
        ("opted-out", "privileged"),
    ] {
        assert_eq!(world.enforce_label(namespace), Some(level), "{namespace}");
    }

    // A new namespace gets its label, and the mode stays.
    world.namespace("new", json!({}));
    world.turn();
    assert_eq!(world.mode(), ("Restricted", "Restricted"));
    world.settle();
    assert_eq!(world.enforce_label("new"), Some("restricted"));

    // Break-glass: the configuration goes back first, labels stay until every server follows.
    world.gate = false;
    world.turn();
    assert_eq!(world.mode(), ("Restricted", ""));
    assert_eq!(world.global["defaults"]["enforce"], "privileged");
    assert_eq!(world.enforce_label("by-account"), Some("privileged"));
    assert_eq!(world.condition("Progressing"), ("True".to_owned(), "RollingBack".to_owned()));
    world.settle();
    assert_eq!(world.enforce_label("by-account"), None);
    assert_eq!(world.enforce_label("openshift-guide"), Some("privileged"), "not ours");
    assert_eq!(world.condition("Ready"), ("True".to_owned(), "GateOff".to_owned()));

    // The glass is mended; then a downgrade.
    world.gate = true;
    world.settle();
    assert_eq!(world.mode(), ("Restricted", "Restricted"));
    world.release = Release::Evaluate;
    world.gate = false;
    world.settle();
    assert_eq!(world.mode(), ("Restricted", ""));
    assert_eq!(world.enforce_label("fine"), None);
    assert!(world.running.iter().all(|running| running["defaults"]["enforce"] == "privileged"));
}

#[test]
fn a_fast_double_upgrade_goes_on_unchecked_and_can_be_stopped() {
    let mut world = cluster();
    world.release = Release::Enforce;
    world.gate = true;
    world.settle();
    assert_eq!(world.mode(), ("", "Restricted"));
    world.config["spec"]["enforcementMode"] = json!("Legacy");
    world.settle();
    assert_eq!(world.mode(), ("Legacy", "Legacy"));
    assert_eq!(world.enforce_label("by-account"), None);
}

#[test]
fn an_explicit_restricted_mode_is_kept() {
    let mut world = cluster();
    world.release = Release::Evaluate;
    world.config["spec"]["enforcementMode"] = json!("Restricted");
    world.settle();
    assert_eq!(world.mode(), ("Restricted", ""));
    assert_eq!(world.violating().len(), 3);
}

/// The opt-out is permanent, so nothing may cause it that only looks like a violation because others are not done yet.
#[test]
fn no_opt_out_before_ranges_and_labels_exist() {
    let mut world = World::new();
    world.release = Release::Evaluate;
    for name in ["kube-system", "team"] {
        world.namespace(name, json!({}));
        world.pod(name, "agent", json!({"openshift.io/scc": "privileged"}), privileged_pod());
    }
    world.grant_account("team", "privileged");
    assert_eq!(world.plan().spec, None);
    world.settle();
    assert_eq!(world.mode(), ("", ""));
    assert_eq!(world.violating(), []);
}

#[test]
fn users_decide_over_their_own_labels() {
    let mut world = cluster();
    world.label("fine", "pod-security.kubernetes.io/enforce", "baseline");
    world.release = Release::Enforce;
    world.gate = true;
    world.settle();
    assert_eq!(world.mode(), ("", "Restricted"));
    assert_eq!(world.enforce_label("fine"), Some("baseline"));
    world.gate = false;
    world.settle();
    assert_eq!(world.enforce_label("fine"), Some("baseline"));
}

#[test]
fn a_change_of_a_constraint_shows_at_once() {
    let mut world = cluster();
    world.settle();
    let level = |world: &World| {
        world.namespaces["fine"]["metadata"]["annotations"]
            ["security.openshift.io/MinimallySufficientPodSecurityStandard"]
            .clone()
    };
    assert_eq!(level(&world), "restricted");
    for mut object in palisade_policy::scc::built_in::objects() {
        if object["metadata"]["name"] == "restricted-v2" {
            object["allowPrivilegeEscalation"] = json!(true);
        }
        world.cluster.set_constraint(&object);
    }
    world.cluster.set_constraint(&json!({"metadata": {"name": "broken"}, "volumes": 7}));
    assert_eq!(world.cluster.skipped_constraints().into_keys().collect::<Vec<_>>(), ["broken"]);
    world.settle();
    assert_eq!(level(&world), "baseline");
}

#[test]
fn the_report_names_workload_field_and_command() {
    let mut world = cluster();
    world.settle();
    let found: Vec<_> = report(&world.cluster).filter(|namespace| namespace.class.is_some()).collect();
    let names: Vec<_> = found.iter().map(|namespace| namespace.name.as_str()).collect();
    assert_eq!(names, ["by-user", "openshift-guide", "opted-out"]);
    let by_user = &found[0];
    assert_eq!(
        by_user.label_command(),
        "kubectl label --overwrite namespace by-user pod-security.kubernetes.io/enforce=privileged"
    );
    let blocker = &by_user.blockers[0];
    assert_eq!((&*blocker.kind, blocker.name.as_str()), ("Pod", "debug"));
    assert_eq!(blocker.constraint.as_deref(), Some("privileged"));
    assert!(blocker.causes.iter().any(|cause| cause.path == "spec.containers[0].securityContext.privileged"));
}

/// Killed at any write, and started anew, the controllers come to the same end: on the way in and on the way out.
#[test]
fn a_controller_killed_at_any_write_converges() {
    let way_in = |world: &mut World| {
        world.release = Release::Enforce;
        world.gate = true;
    };
    let way_out = |world: &mut World| world.config["spec"]["enforcementMode"] = json!("Legacy");
    let steps: [&dyn Fn(&mut World); 2] = [&way_in, &way_out];
    let end = |kill_at: Option<usize>, step_to_kill: usize| {
        let mut world = cluster();
        for (index, step) in steps.iter().enumerate() {
            step(&mut world);
            world.budget = kill_at.filter(|_| index == step_to_kill);
            world.settle();
            world.restart();
            world.settle();
        }
        let strip = |object: &Value| {
            let mut object = object.clone();
            object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
            object
        };
        let namespaces: Vec<_> = world.namespaces.values().map(strip).collect();
        (world.config.clone(), world.global.clone(), namespaces)
    };
    let expected = end(None, 0);
    assert_eq!(expected.0["status"]["enforcementMode"], "Legacy");
    for step in 0..steps.len() {
        for kill_at in 0..30 {
            assert_eq!(end(Some(kill_at), step), expected, "killed in step {step} after {kill_at} writes");
        }
    }
}
