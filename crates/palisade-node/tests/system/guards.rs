//! Guards on running nodes: in each container the call is tried, and the report says what happens.

use std::{collections::BTreeMap, time::Instant};

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams, PostParams},
};
use palisade_model::compat::Compat;
use palisade_node::pod::RunPod;
use palisade_testkit::{
    agent_world::{World, kind, until},
    programs::{SUCCEEDED, SocketCall},
};
use serde_json::{Value, json};

use crate::lab::{Lab, designs, sleeper};

/// Only the call itself fails like this: the kernel of the machine has no such sockets.
const REACHED: i32 = 97;
/// Not permitted; and through `socketcall`, which programs go on without, not there.
const DENIED: [i32; 3] = [1, 1, 38];
/// By SIGSYS.
const ENDED: i32 = 128 + 31;

fn guard(name: &str, calls: &[&str], until: &str) -> Value {
    json!({"apiVersion": "palisade.dev/v1alpha1", "kind": "SyscallGuard", "metadata": {"name": name}, "spec": {
        "calls": calls, "reason": "CVE-2026-0001", "until": until,
        "exceptions": [{"namespaces": ["default"], "podSelector": {"matchLabels": {"crypto": "kernel"}}, "reason": "needs it"}]}})
}

const FUTURE: &str = "2999-01-01T00:00:00Z";

/// How each way of making the call ends in a container.
async fn tries(lab: &Lab, pod: &RunPod) -> [i32; 3] {
    let mut found = [0; 3];
    for (code, call) in
        found.iter_mut().zip([SocketCall::Plain, SocketCall::UpperBit, SocketCall::Multiplexed])
    {
        *code = lab.exec(pod, "c", &call.command()).await.0;
    }
    found
}

/// Every kind of container that a guard may meet.
fn pods() -> Vec<(&'static str, Value, bool)> {
    vec![
        ("default", json!({"seccompProfile": {"type": "RuntimeDefault"}}), false),
        ("unconfined", json!({"seccompProfile": {"type": "Unconfined"}}), false),
        ("unset", json!({}), false),
        ("localhost", json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "ok.json"}}), false),
        ("privileged", json!({}), true),
    ]
}

fn row<'r>(rows: &'r [Value], name: &str) -> &'r Value {
    rows.iter().find(|row| row["name"] == name).unwrap_or(&Value::Null)
}

/// The exposed containers of a guard by pod.
fn exposed(row: &Value) -> BTreeMap<String, String> {
    let containers = row["containers"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    containers.map(|row| (text(&row["pod"]), text(&row["reason"]))).collect()
}

async fn until_rows(lab: &Lab, what: &str, wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    until(what, || async { Some(lab.source.guard_rows()).filter(|rows| wanted(rows)) }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_applies_a_guard_to_new_containers_and_lists_the_others() {
    let lab = Lab::new(designs());
    let mut running = Vec::new();
    for (name, context, privileged) in pods() {
        let pod = lab.apply(sleeper(name, context, json!({"privileged": privileged})));
        lab.until_running(&pod).await;
        running.push(pod);
    }
    lab.source.put_guard(&guard("alg", &["socket(AF_ALG, *, *)"], FUTURE)).unwrap();
    let rows = until_rows(&lab, "all exposed", |rows| row(rows, "alg")["exposed"] == 5).await;
    assert_eq!(row(&rows, "alg")["covered"], 0, "{rows:#?}");
    for pod in &running {
        assert_eq!(tries(&lab, pod).await[0], REACHED, "{}", pod.key);
        assert!(exposed(row(&rows, "alg"))[&pod.key.name].contains("restart"), "{rows:#?}");
    }
    // New ones, and a twin with an exception. A runtime drops the profile of a privileged container.
    for (name, context, privileged) in pods() {
        let name = format!("new-{name}");
        let pod = lab.apply(sleeper(&name, context.clone(), json!({"privileged": privileged})));
        lab.until_running(&pod).await;
        let found = tries(&lab, &pod).await;
        // A profile that does not list the convention of 32-bit programs ends them.
        let expected = match name.as_str() {
            "new-privileged" => [REACHED; 3],
            "new-localhost" => [1, 1, ENDED],
            _ => DENIED,
        };
        assert_eq!(found, expected, "{name}");
        let (code, text) = lab.exec(&pod, "c", &SocketCall::Internet.command()).await;
        assert!(code >= SUCCEEDED, "other families work: {name}: {code} {text}");
    }
    let mut excused = sleeper("excused", json!({"seccompProfile": {"type": "RuntimeDefault"}}), json!({}));
    excused["metadata"]["labels"] = json!({"crypto": "kernel"});
    let excused = lab.apply(excused);
    lab.until_running(&excused).await;
    assert_eq!(tries(&lab, &excused).await[0], REACHED);
    let rows = until_rows(&lab, "all judged", |rows| {
        let row = row(rows, "alg");
        (&row["covered"], &row["exempt"], &row["exposed"]) == (&json!(4), &json!(1), &json!(6))
    })
    .await;
    assert!(exposed(row(&rows, "alg")).contains_key("new-privileged"), "{rows:#?}");
    // A guard that has ended forbids nothing, and is reported as such.
    lab.source.put_guard(&guard("over", &["mkdir", "mkdirat"], "2020-01-01T00:00:00Z")).unwrap();
    let rows = until_rows(&lab, "expired", |rows| row(rows, "over")["state"] == "Expired").await;
    assert_eq!(row(&rows, "over")["exposed"], 0);
}

async fn put_guard(world: &World, object: &Value) {
    let api: Api<DynamicObject> = Api::all_with(world.client.clone(), &kind("SyscallGuard", "syscallguards"));
    let name = object["metadata"]["name"].as_str().unwrap();
    api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(object)).await.unwrap();
}

/// The pod at the API server, as the agent sees it, and at the lab's own runner, which stands for the kubelet.
async fn run(world: &World, lab: &Lab, pod: Value) -> RunPod {
    let mut stored = pod.clone();
    stored["spec"]["nodeName"] = json!("n1");
    let pods: Api<Pod> = Api::default_namespaced(world.client.clone());
    let made = pods.create(&PostParams::default(), &serde_json::from_value(stored).unwrap()).await.unwrap();
    let mut own = pod;
    own["metadata"]["uid"] = json!(made.metadata.uid.unwrap());
    let pod = lab.apply(own);
    lab.until_running(&pod).await;
    pod
}

fn guards(status: &Value) -> Vec<Value> {
    status["guards"].as_array().cloned().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_guards_every_container_through_the_runtime() {
    let Some(lab) = Lab::with_plugins(Compat::kubernetes(31)) else { return };
    let world = World::new().await;
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    assert!(namespaces.get_opt("default").await.unwrap().is_some());
    let nri = lab.containerd.nri_socket.clone();
    let endpoint = lab.node.config.runtime_endpoint.clone();
    let agent = world.start_with_plugin(&lab.root, &endpoint, 1 << 20, nri.clone());
    world
        .until_status("the plugin is registered", |status| {
            status["guardPlugin"].as_str().is_some_and(|runtime| runtime.starts_with("containerd v2.3"))
        })
        .await;
    let mut before = Vec::new();
    for (name, context, privileged) in pods() {
        before.push(run(&world, &lab, sleeper(name, context, json!({"privileged": privileged}))).await);
    }
    put_guard(&world, &guard("alg", &["socket(AF_ALG, *, *)"], FUTURE)).await;
    let written = Instant::now();
    let status = world
        .until_status("every container listed", |status| row(&guards(status), "alg")["exposed"] == 5)
        .await;
    let listed = exposed(row(&guards(&status), "alg"));
    for pod in &before {
        // The default profile of this release denies the plain call, and not all of its forms.
        assert!(tries(&lab, pod).await.contains(&REACHED), "{}", pod.key);
        assert!(listed.contains_key(&pod.key.name), "{listed:?}");
    }
    // Every kind of container, the privileged one included, and one with an exception.
    for (name, context, privileged) in pods() {
        let name = format!("new-{name}");
        let pod = run(&world, &lab, sleeper(&name, context, json!({"privileged": privileged}))).await;
        let found = tries(&lab, &pod).await;
        let expected = if name == "new-localhost" { [1, 1, ENDED] } else { DENIED };
        assert_eq!(found, expected, "{name}, {:?} after the guard", written.elapsed());
        let (code, text) = lab.exec(&pod, "c", &SocketCall::Internet.command()).await;
        assert!(code >= SUCCEEDED, "other families work: {name}: {code} {text}");
        let can_mount = lab.exec(&pod, "c", "mount -t tmpfs none /tmp").await.0 == 0;
        assert_eq!(can_mount, privileged, "{name}: nothing else changes");
    }
    let mut excused = sleeper("excused", json!({"seccompProfile": {"type": "RuntimeDefault"}}), json!({}));
    excused["metadata"]["labels"] = json!({"crypto": "kernel"});
    let excused = run(&world, &lab, excused).await;
    assert!(tries(&lab, &excused).await.contains(&REACHED));
    world
        .until_status("covered, exempt and exposed", |status| {
            let rows = guards(status);
            let row = row(&rows, "alg");
            (&row["covered"], &row["exempt"], &row["exposed"]) == (&json!(5), &json!(1), &json!(5))
        })
        .await;

    // Guards that cannot be applied are reported, and cover nothing.
    put_guard(&world, &guard("broken", &["sockett(AF_ALG)"], FUTURE)).await;
    put_guard(&world, &guard("over", &["mkdir"], "2020-01-01T00:00:00Z")).await;
    let status = world
        .until_status("both reported", |status| {
            let rows = guards(status);
            row(&rows, "broken")["state"] == "Invalid" && row(&rows, "over")["state"] == "Expired"
        })
        .await;
    let rows = guards(&status);
    assert_eq!(row(&rows, "broken")["exposed"], 11, "{rows:#?}");
    assert!(row(&rows, "broken")["message"].as_str().unwrap().contains("did you mean \"socket\""));

    // Without the agent the runtime goes on, and what it creates meanwhile is found out.
    agent.stop().await;
    let missed = run(&world, &lab, sleeper("missed", json!({}), json!({}))).await;
    assert_eq!(tries(&lab, &missed).await[0], REACHED);
    let agent = world.start_with_plugin(&lab.root, &endpoint, 1 << 20, nri);
    let status = world
        .until_status("the one that was missed", |status| {
            exposed(row(&guards(status), "alg")).contains_key("missed")
        })
        .await;
    assert_eq!(row(&guards(&status), "alg")["exposed"], 6);
    agent.stop().await;
}
