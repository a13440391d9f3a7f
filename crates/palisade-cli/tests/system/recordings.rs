//! `ProfileRecording` on `palisade up --node`, as kubectl sees it: recorded, tried out, enforced; and what is lost when the node is
//! killed.

use palisade_testkit::containerd::IMAGE;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::world::World;

const FUTURE: &str = "2999-01-01T00:00:00Z";

/// A server with an init container, a probe that executes a command, and work at its end.
fn server(name: &str, replicas: u32, profile: Value) -> Value {
    let restricted = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    let mount = json!([{"name": "www", "mountPath": "/www"}]);
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}}, "spec": {
                "terminationGracePeriodSeconds": 5,
                "securityContext": {"seccompProfile": profile, "runAsUser": 1000, "runAsNonRoot": true},
                "volumes": [{"name": "www", "emptyDir": {}}],
                "initContainers": [{"name": "i", "image": IMAGE, "securityContext": restricted, "volumeMounts": mount,
                    "command": ["sh", "-c", "echo served > /www/index.html; chmod 644 /www/index.html"]}],
                "containers": [{"name": "c", "image": IMAGE, "securityContext": restricted, "volumeMounts": mount,
                    "command": ["sh", "-c", "httpd -p 8080 -h /www; trap 'touch /www/end; exit 0' TERM; sleep 600 & wait"],
                    "readinessProbe": {"periodSeconds": 1, "exec": {"command":
                        ["wget", "-q", "-O", "/dev/null", "http://127.0.0.1:8080/index.html"]}}}]}}}})
}

fn recording(name: &str, app: &str, more: Value) -> Value {
    let mut object = json!({"apiVersion": "palisade.dev/v1alpha1", "kind": "ProfileRecording", "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": app}}, "until": FUTURE}});
    object["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    object
}

/// The pods of a workload that are ready and stay.
fn ready(world: &World, app: &str, count: usize) -> Vec<String> {
    world.until("ready", || {
        let pods = world.get(&["pods", "-l", &format!("app={app}")]);
        let names: Vec<String> = pods["items"]
            .as_array()?
            .iter()
            .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null())
            .filter(|pod| pod["status"]["containerStatuses"][0]["ready"] == true)
            .map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned())
            .collect();
        (names.len() == count).then_some(names)
    })
}

/// The test of the workload.
fn serves(world: &World, pod: &str) {
    let page = world.kubectl(&[
        "exec",
        pod,
        "-c",
        "c",
        "--",
        "wget",
        "-q",
        "-O",
        "-",
        "http://127.0.0.1:8080/index.html",
    ]);
    assert_eq!((page.code, page.out.as_str()), (0, "served\n"), "{page:?}");
}

/// Ends a recording now, and waits for what becomes of it.
fn end(world: &World, name: &str) -> Value {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let patch = json!({"spec": {"until": now}}).to_string();
    let output = world.kubectl(&["patch", "profilerecording", name, "--type=merge", "-p", &patch]);
    assert_eq!(output.code, 0, "{output:?}");
    world.until("recorded", || {
        let found = world.get(&["profilerecording", name]);
        matches!(condition(&found, "Recorded").0.as_str(), "True" | "False").then_some(found)
    })
}

fn condition(object: &Value, kind: &str) -> (String, String) {
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default();
    let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"))
}

fn is(object: &Value, kind: &str, status: &str, reason: &str) {
    assert_eq!(condition(object, kind), (status.to_owned(), reason.to_owned()), "{:#}", object["status"]);
}

#[test]
fn a_deployment_is_recorded_tried_out_and_enforced() {
    let mut world = World::new();
    world.up(&["--feature-gates", "SeccompConfigMaps=true"]);
    let default = json!({"type": "RuntimeDefault"});
    world.apply(&[recording("web", "web", json!({}))]);
    world.until("accepted", || {
        (condition(&world.get(&["profilerecording", "web"]), "Accepted").0 == "True").then_some(())
    });
    world.apply(&[server("web", 2, default.clone())]);
    for pod in ready(&world, "web", 2) {
        serves(&world, &pod);
    }
    // A restart in place, and a replacement.
    let pods = ready(&world, "web", 2);
    // The container may end before the command does.
    world.kubectl(&["exec", &pods[0], "-c", "c", "--", "kill", "1"]);
    world.until_pod(&pods[0], |pod| pod["status"]["containerStatuses"][0]["restartCount"] == 1);
    assert_eq!(world.kubectl(&["delete", "pod", &pods[1]]).code, 0);
    ready(&world, "web", 2);

    let recorded = end(&world, "web");
    is(&recorded, "Recorded", "True", "Complete");
    let status = &recorded["status"];
    assert_eq!(status["pods"].as_array().unwrap().len(), 3, "{status:#}");
    assert!(status["pods"].as_array().unwrap().iter().all(|pod| pod["recorded"] == true), "{status:#}");
    assert_eq!((&status["lossy"], &status["containers"]), (&json!([]), &json!(["c", "i"])));
    let map = world.get(&["configmap", "web"]);
    let statement: Value = serde_json::from_str(map["data"]["statement.json"].as_str().unwrap()).unwrap();
    for phase in ["runtime", "init", "start", "run", "probe", "exec", "shutdown"] {
        assert!(statement["phases"][phase].as_u64() > Some(0), "{phase}: {statement:#}");
    }
    assert_eq!(statement["complete"], true, "{statement:#}");
    assert!(statement["arguments"]["socket"].as_array().is_some_and(|families| !families.is_empty()));
    println!("{} calls of {} pods: {}", status["calls"], 3, statement["phases"]);

    // Tried out: a call that was not recorded is made, and the owner learns of it.
    world.apply(&[
        recording("try", "tried", json!({"mode": "Complain", "profile": "web/profile.json"})),
        recording("untried", "tried", json!({})),
        server("tried", 1, default),
    ]);
    let pod = ready(&world, "tried", 1).remove(0);
    serves(&world, &pod);
    let mkdir = world.kubectl(&["exec", &pod, "-c", "c", "--", "mkdir", "/www/x"]);
    assert_eq!(mkdir.code, 0, "a profile that is tried out denies nothing: {mkdir:?}");
    let message = world.until("an event on the Deployment", || {
        let events = world.get(&["events", "--field-selector=reason=SeccompProfileWouldDeny"]);
        let events = events["items"].as_array()?.clone();
        let event = events
            .iter()
            .find(|event| event["message"].as_str().is_some_and(|text| text.contains("mkdir")))?;
        assert_eq!(
            (&event["involvedObject"]["kind"], &event["involvedObject"]["name"], &event["count"]),
            (&json!("Deployment"), &json!("tried"), &json!(1))
        );
        Some(event["message"].as_str()?.to_owned())
    });
    assert_eq!(
        message,
        format!("profile web/profile.json would deny mkdir to container \"c\" of pod {pod}: 1 calls")
    );
    let tried = end(&world, "try");
    is(&tried, "Recorded", "True", "Complete");
    is(&tried, "Enforceable", "False", "Denials");
    let denials = tried["status"]["denials"].as_array().unwrap();
    assert!(denials.iter().any(|denial| denial["call"] == "mkdir" && denial["count"] == 1), "{denials:#?}");
    // A container has one recorder only, and the other recording says so.
    let untried = end(&world, "untried");
    let lossy = untried["status"]["lossy"].to_string();
    assert!(lossy.contains("a container has one recorder only"), "{lossy}");

    // Enforced: the workload's test passes, and nothing else does.
    world.apply(&[server(
        "enforced",
        1,
        json!({"type": "ConfigMap", "configMapProfile": "web/profile.json"}),
    )]);
    let pod = ready(&world, "enforced", 1).remove(0);
    serves(&world, &pod);
    let mkdir = world.kubectl(&["exec", &pod, "-c", "c", "--", "mkdir", "/www/x"]);
    assert!(mkdir.code != 0 && mkdir.err.contains("not permitted"), "{mkdir:?}");
}

#[test]
fn a_node_that_is_killed_in_the_middle_reports_the_loss() {
    let mut world = World::new();
    let data = world.path("data").to_str().unwrap().to_owned();
    world.up(&["--data-dir", &data]);
    // It runs already: what it has called until now is not recorded.
    world.apply(&[server("early", 1, json!({"type": "RuntimeDefault"}))]);
    let early = ready(&world, "early", 1).remove(0);
    world.apply(&[
        recording("early", "early", json!({})),
        recording("web", "web", json!({"configMap": "web-profile"})),
        server("web", 1, json!({"type": "RuntimeDefault"})),
    ]);
    let pod = ready(&world, "web", 1).remove(0);
    serves(&world, &pod);
    world.kill(Signal::KILL);
    world.up(&["--data-dir", &data]);
    // Every call of the container has failed since: it is started again, with a recorder.
    world.until_pod(&pod, |pod| {
        let status = &pod["status"]["containerStatuses"][0];
        status["restartCount"].as_u64() > Some(0) && status["ready"] == true
    });
    serves(&world, &pod);
    let recorded = end(&world, "web");
    is(&recorded, "Recorded", "False", "Lossy");
    let lossy = recorded["status"]["lossy"].to_string();
    assert!(lossy.contains("the recorder ended before the containers did"), "{lossy}");
    let map = world.get(&["configmap", "web-profile"]);
    let statement: Value = serde_json::from_str(map["data"]["statement.json"].as_str().unwrap()).unwrap();
    assert_eq!(statement["complete"], false);
    assert!(
        statement["phases"]["init"].as_u64() > Some(0),
        "what was recorded before is kept: {statement:#}"
    );
    let early_status = end(&world, "early");
    let lossy = early_status["status"]["lossy"].to_string();
    assert!(lossy.contains(&format!("of pod {early} runs without a recorder: restart it")), "{lossy}");
}
