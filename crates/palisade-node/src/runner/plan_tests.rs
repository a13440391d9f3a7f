//! Tables for the plan: what the runtime has, what is remembered, and what follows.

use jiff::Timestamp;
use palisade_model::pod_view::ContainerKind;
use serde_json::{Value, json};

use super::*;
use crate::runner::observed::Sandbox;

fn pod(policy: &str, spec: &Value) -> RunPod {
    let mut object = json!({"metadata": {"name": "p"}, "spec": {"restartPolicy": policy}});
    for (key, value) in spec.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    RunPod::from_object(object).unwrap()
}

fn one(policy: &str) -> RunPod {
    pod(policy, &json!({"containers": [{"name": "c", "image": "i"}]}))
}

fn now() -> Timestamp {
    Timestamp::from_second(1_000_000).unwrap()
}

fn ago(seconds: i64) -> i64 {
    (1_000_000 - seconds) * 1_000_000_000
}

fn run(pod: &RunPod, name: &str, state: ContainerState, exit_code: i32) -> Instance {
    let (kind, _) = pod.container(name).unwrap();
    Instance {
        id: format!("id-{name}"),
        sandbox: "s".to_owned(),
        name: name.to_owned(),
        state,
        exit_code,
        hash: pod.container_hash(kind, name),
        finished_at: ago(1),
        ..Instance::default()
    }
}

fn observed(containers: Vec<Instance>) -> Observed {
    let sandbox = Sandbox { id: "s".to_owned(), ready: true, ..Sandbox::default() };
    Observed { sandboxes: vec![sandbox], containers }
}

/// A plan in words.
fn words(pod: &RunPod, observed: &Observed, memory: &Memory) -> String {
    let plan = plan(pod, observed, memory, now());
    let steps: Vec<_> = plan
        .steps
        .iter()
        .map(|step| match step {
            PodStep::NewSandbox { attempt, replaces } => {
                format!("sandbox {attempt}{}", if *replaces { " again" } else { "" })
            }
            PodStep::Stop { id } => format!("stop {id}"),
            PodStep::Kill { id, failed } => format!("kill {id} for {}", failed.as_str()),
            PodStep::Remove { id } => format!("remove {id}"),
            PodStep::Start { name, restart_count, .. } => format!("start {name}#{restart_count}"),
            PodStep::Wait { name, wait } => format!("wait {name} {}", in_go(*wait)),
            PodStep::Resize { id, .. } => format!("resize {id}"),
            PodStep::Finish => "finish".to_owned(),
        })
        .collect();
    steps.join(", ")
}

#[test]
fn exited_containers_follow_the_restart_policy() {
    for (policy, code, expected) in [
        ("Always", 0, "start c#1"),
        ("Always", 3, "start c#1"),
        ("OnFailure", 0, "finish"),
        ("OnFailure", 3, "start c#1"),
        ("Never", 0, "finish"),
        ("Never", 3, "finish"),
    ] {
        let pod = one(policy);
        let seen = observed(vec![run(&pod, "c", ContainerState::Exited, code)]);
        assert_eq!(words(&pod, &seen, &Memory::default()), expected, "{policy} {code}");
    }
}

#[test]
fn a_pod_begins_with_its_sandbox() {
    let pod = one("Always");
    assert_eq!(words(&pod, &Observed::default(), &Memory::default()), "sandbox 0");
    assert_eq!(words(&pod, &observed(vec![]), &Memory::default()), "start c#0");
    let mut lost = observed(vec![run(&pod, "c", ContainerState::Exited, 137)]);
    lost.sandboxes[0].ready = false;
    lost.sandboxes[0].attempt = 2;
    assert_eq!(words(&pod, &lost, &Memory::default()), "sandbox 3 again");
    let pod = one("Never");
    assert_eq!(words(&pod, &lost, &Memory::default()), "finish", "nothing would run in a new one");
}

#[test]
fn a_failing_container_waits_longer_each_time() {
    let pod = one("Always");
    let seen = observed(vec![run(&pod, "c", ContainerState::Exited, 1)]);
    let mut memory = Memory::default();
    let key = back_off_key(&pod, ContainerKind::App, "c");
    memory.back_off.tried(&key, now(), now());
    assert_eq!(words(&pod, &seen, &memory), "wait c 10s");
    memory.back_off.tried(&key, now(), now());
    let plan = plan(&pod, &seen, &memory, now());
    assert_eq!(plan.steps, [PodStep::Wait { name: "c".to_owned(), wait: Duration::from_secs(20) }]);
    assert_eq!(plan.again_at, Some(now() + Duration::from_secs(19)), "from the exit, not from now");
}

#[test]
fn what_could_not_be_created_is_retried_by_whose_rules_apply() {
    let failure = |retry, ago: i64| Failure {
        reason: Reason { reason: "CreateContainerError".into(), message: String::new() },
        at: Timestamp::from_second(1_000_000 - ago).unwrap(),
        retry,
    };
    for (case, policy, retry, ago, expected) in [
        ("kubelet waits ten seconds", "Never", Retry::Flat, 9, ""),
        ("and tries whatever the policy", "Never", Retry::Flat, 10, "start c#0"),
        ("designs give up", "Never", Retry::ByRestartPolicy, 99, "finish"),
        ("designs wait", "OnFailure", Retry::ByRestartPolicy, 5, "wait c 10s"),
        ("designs try", "Always", Retry::ByRestartPolicy, 11, "start c#0"),
    ] {
        let pod = one(policy);
        let mut memory = Memory::default();
        let failure = failure(retry, ago);
        memory.back_off.tried(&back_off_key(&pod, ContainerKind::App, "c"), failure.at, failure.at);
        memory.failures.insert("c".to_owned(), failure);
        assert_eq!(words(&pod, &observed(vec![]), &memory), expected, "{case}");
    }
}

#[test]
fn init_containers_go_one_by_one() {
    let spec = json!({"initContainers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}],
        "containers": [{"name": "c", "image": "i"}]});
    let exited = |pod: &RunPod, name: &str, code| run(pod, name, ContainerState::Exited, code);
    let pod_always = pod("Always", &spec);
    let p = &pod_always;
    for (case, runs, expected) in [
        ("first", vec![], "start a#0"),
        ("runs", vec![run(p, "a", ContainerState::Running, 0)], ""),
        ("done", vec![exited(p, "a", 0)], "start b#0"),
        ("failed", vec![exited(p, "a", 1)], "start a#1"),
        ("all done", vec![exited(p, "b", 0), exited(p, "a", 0)], "start c#0"),
        ("removed after the app began", vec![run(p, "c", ContainerState::Running, 0)], ""),
    ] {
        assert_eq!(words(p, &observed(runs), &Memory::default()), expected, "{case}");
    }
    let never = pod("Never", &spec);
    assert_eq!(words(&never, &observed(vec![exited(&never, "a", 1)]), &Memory::default()), "finish");
    let mut other = observed(vec![exited(p, "b", 0), exited(p, "a", 0)]);
    for run in &mut other.containers {
        run.sandbox = "older".to_owned();
    }
    assert_eq!(words(p, &other, &Memory::default()), "start a#1", "a new sandbox is initialised anew");
}

#[test]
fn sidecars_start_first_and_never_stop() {
    let pod = pod(
        "Never",
        &json!({"initContainers": [{"name": "side", "image": "i", "restartPolicy": "Always"}],
        "containers": [{"name": "c", "image": "i"}]}),
    );
    let side = |state, code| run(&pod, "side", state, code);
    for (case, runs, expected) in [
        ("first", vec![], "start side#0"),
        ("then the app", vec![side(ContainerState::Running, 0)], "start c#0"),
        (
            "restarts beside the app",
            vec![run(&pod, "c", ContainerState::Running, 0), side(ContainerState::Exited, 0)],
            "start side#1",
        ),
        (
            "ends with the app",
            vec![run(&pod, "c", ContainerState::Exited, 0), side(ContainerState::Running, 0)],
            "finish",
        ),
    ] {
        assert_eq!(words(&pod, &observed(runs), &Memory::default()), expected, "{case}");
    }
}

#[test]
fn ephemeral_containers_start_once() {
    let pod = pod(
        "Always",
        &json!({"containers": [{"name": "c", "image": "i"}], "ephemeralContainers": [{"name": "e", "image": "i"}]}),
    );
    let c = run(&pod, "c", ContainerState::Running, 0);
    assert_eq!(words(&pod, &observed(vec![c.clone()]), &Memory::default()), "start e#0");
    let done = observed(vec![run(&pod, "e", ContainerState::Exited, 1), c]);
    assert_eq!(words(&pod, &done, &Memory::default()), "");
}

#[test]
fn a_changed_definition_is_a_restart() {
    let pod = one("Always");
    let mut old = run(&pod, "c", ContainerState::Running, 0);
    old.hash = "other".to_owned();
    assert_eq!(words(&pod, &observed(vec![old]), &Memory::default()), "stop id-c, start c#1");
    let created = run(&pod, "c", ContainerState::Created, 0);
    assert_eq!(words(&pod, &observed(vec![created]), &Memory::default()), "remove id-c, start c#0");
}

#[test]
fn one_old_run_is_kept() {
    let pod = one("Always");
    let exited = |id: &str| Instance { id: id.to_owned(), ..run(&pod, "c", ContainerState::Exited, 1) };
    let ids = |observed: &Observed| {
        superfluous(&pod, observed).iter().map(|run| run.id.clone()).collect::<Vec<_>>()
    };
    let running = run(&pod, "c", ContainerState::Running, 0);
    assert_eq!(ids(&observed(vec![running, exited("3"), exited("2"), exited("1")])), ["2", "1"]);
    assert_eq!(ids(&observed(vec![exited("3"), exited("2"), exited("1")])), ["1"]);
}

#[test]
fn failed_probes_stop_containers_and_delay_their_dependents() {
    let sick = |failed| Health { failed: Some(failed), ..Health::default() };
    let pod_always = one("Always");
    let running = observed(vec![run(&pod_always, "c", ContainerState::Running, 0)]);
    let mut memory = Memory::default();
    assert_eq!(words(&pod_always, &running, &memory), "");
    memory.health.insert("id-c".to_owned(), sick(Kind::Liveness));
    assert_eq!(words(&pod_always, &running, &memory), "kill id-c for Liveness");
    assert_eq!(words(&one("Never"), &running, &memory), "kill id-c for Liveness", "whatever the policy");

    let beside = pod(
        "Always",
        &json!({"initContainers": [{"name": "s", "restartPolicy": "Always"}], "containers": [{"name": "c"}]}),
    );
    let side = observed(vec![run(&beside, "s", ContainerState::Running, 0)]);
    let mut memory = Memory::default();
    memory.health.insert("id-s".to_owned(), Health { started: false, ..Health::default() });
    assert_eq!(words(&beside, &side, &memory), "", "the sidecar has not started");
    memory.health.insert("id-s".to_owned(), Health { ready: false, ..Health::default() });
    assert_eq!(words(&beside, &side, &memory), "start c#0", "readiness is not awaited");
}
