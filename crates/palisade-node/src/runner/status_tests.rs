//! Tables for the status: what the runtime has and what is reported.

use serde_json::{Value, json};

use std::collections::BTreeSet;

use super::*;
use crate::{cri::proto::LinuxContainerUser, runner::observed::Sandbox};

fn pod(policy: &str) -> RunPod {
    RunPod::from_object(json!({"metadata": {"name": "p", "uid": "u"}, "spec": {"restartPolicy": policy,
        "hostNetwork": true, "containers": [{"name": "c", "image": "i:1"}]}}))
    .unwrap()
}

fn run(state: ContainerState, exit_code: i32, reason: &str) -> Instance {
    Instance {
        id: "id".to_owned(),
        name: "c".to_owned(),
        state,
        exit_code,
        reason: reason.to_owned(),
        image: "i:1".to_owned(),
        image_ref: "sha256:x".to_owned(),
        ..Instance::default()
    }
}

#[test]
fn readiness_gates_close_the_pod_and_conditions_of_others_stay() {
    let case = Case::new(vec![run(ContainerState::Running, 0, "")]);
    let messages = BTreeMap::new();
    let of_gate = |status: &str| json!({"type": "example.com/gate", "status": status});
    for (case_name, conditions, ready, message) in [
        (
            "absent",
            json!([]),
            "False",
            Some("corresponding condition of pod readiness gate \"example.com/gate\" does not exist."),
        ),
        ("true", json!([of_gate("True")]), "True", None),
        (
            "false",
            json!([of_gate("False")]),
            "False",
            Some("the status of pod readiness gate \"example.com/gate\" is not \"True\", but False"),
        ),
    ] {
        let pod = RunPod::from_object(json!({"metadata": {"name": "p", "uid": "u"}, "spec": {"hostNetwork": true,
            "readinessGates": [{"conditionType": "example.com/gate"}], "containers": [{"name": "c", "image": "i:1"}]},
            "status": {"conditions": conditions}}))
        .unwrap();
        let (found, _) = status(&pod, &Value::Null, &case.facts(&messages));
        let row = condition(&found, "Ready").unwrap();
        assert_eq!(row["status"], ready, "{case_name}");
        assert_eq!(row.get("message").and_then(Value::as_str), message, "{case_name}");
        assert_eq!(condition(&found, "ContainersReady").unwrap()["status"], "True", "{case_name}");
        // What others wrote is written back.
        assert_eq!(condition(&found, "example.com/gate"), conditions.get(0), "{case_name}");
    }
}

static NO_RESIZE: Resizing = Resizing { refused: None, pending: BTreeSet::new(), error: None };

struct Case {
    observed: Observed,
    waiting: BTreeMap<String, Reason>,
    failed: BTreeMap<String, (Reason, Timestamp)>,
    health: BTreeMap<String, Health>,
    minor: u16,
}

impl Case {
    fn new(runs: Vec<Instance>) -> Self {
        let sandbox = Sandbox { id: "s".into(), ready: true, ..Sandbox::default() };
        let observed = Observed { sandboxes: vec![sandbox], containers: runs };
        let (waiting, failed, health) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { observed, waiting, failed, health, minor: 31 }
    }

    fn waits(mut self, reason: &str) -> Self {
        self.waiting.insert("c".into(), Reason { reason: reason.into(), message: "m".into() });
        self
    }

    fn facts<'a>(&'a self, messages: &'a BTreeMap<String, String>) -> StatusFacts<'a> {
        StatusFacts {
            observed: &self.observed,
            waiting: &self.waiting,
            failed: &self.failed,
            health: &self.health,
            messages,
            resizing: &NO_RESIZE,
            host_ip: "10.0.0.1",
            start_time: Timestamp::UNIX_EPOCH,
            runtime_name: "containerd",
            minor: self.minor,
            now: Timestamp::UNIX_EPOCH,
        }
    }

    fn status(&self, pod: &RunPod) -> Value {
        let messages = BTreeMap::new();
        status(pod, &Value::Null, &self.facts(&messages)).0
    }
}

#[test]
fn phase_and_state_follow_the_containers() {
    use ContainerState::{Exited, Running};
    let crash = || run(Exited, 3, "Error");
    for (case, policy, facts, phase, state) in [
        (
            "nothing yet",
            "Always",
            Case::new(vec![]),
            "Pending",
            json!({"waiting": {"reason": "ContainerCreating"}}),
        ),
        (
            "runs",
            "Always",
            Case::new(vec![run(Running, 0, "")]),
            "Running",
            json!({"running": {"startedAt": "1970-01-01T00:00:00Z"}}),
        ),
        (
            "cannot be created",
            "Always",
            Case::new(vec![]).waits("CreateContainerError"),
            "Pending",
            json!({"waiting": {"reason": "CreateContainerError", "message": "m"}}),
        ),
        (
            "in a loop",
            "Always",
            Case::new(vec![crash()]).waits("CrashLoopBackOff"),
            "Running",
            json!({"waiting": {"reason": "CrashLoopBackOff", "message": "m"}}),
        ),
        ("failed", "Never", Case::new(vec![crash()]).waits("CrashLoopBackOff"), "Failed", Value::Null),
        ("done", "OnFailure", Case::new(vec![run(Exited, 0, "Completed")]), "Succeeded", Value::Null),
        ("will be tried again", "OnFailure", Case::new(vec![crash()]), "Running", Value::Null),
    ] {
        let found = facts.status(&pod(policy));
        assert_eq!(found["phase"], phase, "{case}");
        if !state.is_null() {
            assert_eq!(found["containerStatuses"][0]["state"], state, "{case}");
        }
    }
}

#[test]
fn what_ran_before_is_remembered() {
    let facts = Case::new(vec![run(ContainerState::Exited, 3, "Error")]).waits("CrashLoopBackOff");
    let found = facts.status(&pod("Always"));
    assert_eq!(
        found["containerStatuses"][0]["lastState"],
        json!({"terminated": {"exitCode": 3, "reason": "Error", "containerID": "containerd://id",
            "startedAt": "1970-01-01T00:00:00Z", "finishedAt": "1970-01-01T00:00:00Z"}})
    );
}

#[test]
fn the_status_has_the_hash_of_the_profile() {
    let mut running = run(ContainerState::Running, 0, "");
    running.seccomp_profile_hash = Some("abc".to_owned());
    let found = Case::new(vec![running]).status(&pod("Always"));
    assert_eq!(found["containerStatuses"][0]["securityContext"], json!({"seccompProfileHash": "abc"}));
    let mut combined = run(ContainerState::Running, 0, "");
    combined.seccomp_profile_hash = Some("abc".to_owned());
    combined.seccomp_source_hash = Some("def".to_owned());
    let found = Case::new(vec![combined]).status(&pod("Always"));
    assert_eq!(
        found["containerStatuses"][0]["securityContext"],
        json!({"seccompProfileHash": "abc", "seccompProfileSourceHash": "def"})
    );
}

#[test]
fn the_status_has_the_users_that_the_runtime_reports() {
    let user =
        |groups: &[i64]| LinuxContainerUser { uid: 1000, gid: 3000, supplemental_groups: groups.to_vec() };
    for (minor, reported, expected) in [
        (33, None, Value::Null),
        (32, Some(user(&[3000])), Value::Null),
        (33, Some(user(&[])), json!({"linux": {"uid": 1000, "gid": 3000}})),
        (
            33,
            Some(user(&[3000, 60000])),
            json!({"linux": {"uid": 1000, "gid": 3000, "supplementalGroups": [3000, 60000]}}),
        ),
    ] {
        let running = Instance { user: reported, ..run(ContainerState::Running, 0, "") };
        let mut case = Case::new(vec![running]);
        case.minor = minor;
        assert_eq!(case.status(&pod("Always"))["containerStatuses"][0]["user"], expected, "v1.{minor}");
    }
}

#[test]
fn a_profile_that_cannot_be_used_fails_a_pod_that_never_restarts() {
    let mut facts = Case::new(vec![]);
    let reason = Reason { reason: "CreateContainerError".into(), message: "m".into() };
    facts.failed.insert("c".into(), (reason, Timestamp::UNIX_EPOCH));
    let found = facts.status(&pod("Never"));
    assert_eq!(found["phase"], "Failed");
    let terminated = &found["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(
        (&terminated["reason"], &terminated["exitCode"]),
        (&json!("CreateContainerError"), &json!(128))
    );
}

#[test]
fn a_rejected_pod_is_blocked_or_failed() {
    let facts = Case::new(vec![]);
    let messages = BTreeMap::new();
    let reject = |soft| Rejection { reason: "AppArmor".into(), message: "Cannot".into(), soft };
    let blocked = rejected(&pod("Always"), &reject(true), &Value::Null, &facts.facts(&messages));
    assert_eq!((&blocked["phase"], &blocked["reason"]), (&json!("Pending"), &json!("AppArmor")));
    assert_eq!(blocked["containerStatuses"][0]["state"]["waiting"]["reason"], "Blocked");
    let failed = rejected(&pod("Always"), &reject(false), &Value::Null, &facts.facts(&messages));
    assert_eq!((&failed["phase"], &failed["message"]), (&json!("Failed"), &json!("Cannot")));
    assert!(failed.get("containerStatuses").is_none());
}

#[test]
fn conditions_keep_their_time_until_they_change() {
    let facts = Case::new(vec![run(ContainerState::Running, 0, "")]);
    let messages = BTreeMap::new();
    let before = json!({"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "then"},
        {"type": "Initialized", "status": "False", "lastTransitionTime": "then"}]});
    let (found, _) = status(&pod("Always"), &before, &facts.facts(&messages));
    let time = |kind: &str| {
        let all = found["conditions"].as_array().unwrap();
        all.iter().find(|condition| condition["type"] == kind).unwrap()["lastTransitionTime"].clone()
    };
    assert_eq!(time("Ready"), "then");
    assert_eq!(time("Initialized"), "1970-01-01T00:00:00Z");
    assert_eq!(found["podIP"], "10.0.0.1");
}

#[test]
fn init_containers_hold_the_pod_back() {
    let pod = RunPod::from_object(json!({"metadata": {"name": "p"}, "spec": {"restartPolicy": "Never",
        "initContainers": [{"name": "a", "image": "i"}], "containers": [{"name": "c", "image": "i"}]}}))
    .unwrap();
    let init = |state, code| Instance { name: "a".to_owned(), ..run(state, code, "") };
    for (case, runs, phase, waits) in [
        ("runs", vec![init(ContainerState::Running, 0)], "Pending", "PodInitializing"),
        ("done", vec![init(ContainerState::Exited, 0)], "Pending", "PodInitializing"),
        ("failed", vec![init(ContainerState::Exited, 1)], "Failed", "PodInitializing"),
    ] {
        let found = Case::new(runs).status(&pod);
        assert_eq!(found["phase"], phase, "{case}");
        assert_eq!(found["containerStatuses"][0]["state"]["waiting"]["reason"], waits, "{case}");
    }
}

#[test]
fn probes_decide_what_is_started_and_ready() {
    let pod = pod("Always");
    for (case, health, ready, started) in [
        ("no probes", None, true, true),
        ("not started", Some(Health { started: false, ready: true, failed: None }), false, false),
        ("not ready", Some(Health { started: true, ready: false, failed: None }), false, true),
        ("well", Some(Health::default()), true, true),
    ] {
        let mut case_facts = Case::new(vec![run(ContainerState::Running, 0, "")]);
        let id = case_facts.observed.containers[0].id.clone();
        case_facts.health.extend(health.map(|health| (id, health)));
        let status = case_facts.status(&pod);
        let one = &status["containerStatuses"][0];
        assert_eq!((&one["ready"], &one["started"]), (&json!(ready), &json!(started)), "{case}");
        let condition =
            status["conditions"].as_array().unwrap().iter().find(|one| one["type"] == "Ready").unwrap();
        assert_eq!(condition["status"], if ready { "True" } else { "False" }, "{case}");
    }
}

#[test]
fn what_never_came_to_be_has_failed_when_the_pod_ends() {
    let init = json!([{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]);
    let of = |init: Value| {
        RunPod::from_object(json!({"metadata": {"name": "p"}, "spec": {"initContainers": init,
            "containers": [{"name": "c", "image": "i"}]}}))
        .unwrap()
    };
    let named =
        |name: &str, code| Instance { name: name.into(), ..run(ContainerState::Exited, code, "Error") };
    let unknown = "ContainerStatusUnknown";
    for (case, init, runs, expected) in [
        ("never created", json!([]), vec![], vec![unknown]),
        ("ran", json!([]), vec![named("c", 137)], vec!["Error"]),
        ("first init container", init.clone(), vec![], vec![unknown, "PodInitializing", "PodInitializing"]),
        (
            "second init container",
            init.clone(),
            vec![named("a", 0), named("b", 1)],
            vec!["Error", "Error", "PodInitializing"],
        ),
        ("initialised", init, vec![named("a", 0), named("b", 0)], vec!["Error", "Error", unknown]),
    ] {
        let facts = Case::new(runs);
        let messages = BTreeMap::new();
        let found = ended(&of(init), &Value::Null, &facts.facts(&messages), "DeadlineExceeded", "too long");
        let reasons: Vec<&str> = ["initContainerStatuses", "containerStatuses"]
            .iter()
            .filter_map(|list| found[*list].as_array())
            .flatten()
            .filter_map(|one| {
                let state = one["state"].as_object()?.values().next()?;
                state["reason"].as_str()
            })
            .collect();
        assert_eq!(reasons, expected, "{case}");
    }
}

#[test]
fn sidecars_count_while_they_run_and_not_when_they_end() {
    use ContainerState::{Exited, Running};
    let pod = |policy: &str| {
        RunPod::from_object(json!({"metadata": {"name": "p"}, "spec": {"restartPolicy": policy,
            "initContainers": [{"name": "s", "image": "i", "restartPolicy": "Always"}],
            "containers": [{"name": "c", "image": "i"}]}}))
        .unwrap()
    };
    let named =
        |name: &str, state, code| Instance { id: name.into(), name: name.into(), ..run(state, code, "") };
    for (case, policy, runs, phase) in [
        ("nothing yet", "Never", vec![], "Pending"),
        ("only the sidecar", "Never", vec![named("s", Running, 0)], "Pending"),
        ("both", "Never", vec![named("s", Running, 0), named("c", Running, 0)], "Running"),
        ("the sidecar is left", "Never", vec![named("s", Running, 0), named("c", Exited, 0)], "Running"),
        ("all ended", "Never", vec![named("s", Exited, 137), named("c", Exited, 0)], "Succeeded"),
        ("the sidecar died", "Always", vec![named("s", Exited, 1), named("c", Running, 0)], "Running"),
    ] {
        assert_eq!(Case::new(runs).status(&pod(policy))["phase"], phase, "{case}");
    }
}

#[test]
fn statuses_are_sorted_by_name_and_init_containers_in_their_order() {
    let one = |name: &str| json!({"name": name, "image": "i"});
    let pod = RunPod::from_object(json!({"metadata": {"name": "p"}, "spec": {
        "initContainers": [one("z"), one("y")], "containers": [one("c"), one("a"), one("b")]}}))
    .unwrap();
    let found = Case::new(vec![]).status(&pod);
    let names = |list: &str| -> Vec<String> {
        found[list].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names("initContainerStatuses"), ["z", "y"]);
    assert_eq!(names("containerStatuses"), ["a", "b", "c"]);
}
