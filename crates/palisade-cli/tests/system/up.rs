//! `palisade up --node` and `palisade node`, as kubectl sees them.

use std::process::Command;

use palisade_testkit::containerd::IMAGE;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::world::{DENY_MKDIR, World, output};

const SLEEP: &str = "trap 'exit 0' TERM; sleep 600 & wait";

fn pod(name: &str, context: Value, script: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "terminationGracePeriodSeconds": 1, "securityContext": context,
        "containers": [{"name": "c", "image": IMAGE, "command": ["sh", "-c", script]}]}})
}

fn sleeper(name: &str, context: Value) -> Value {
    pod(name, context, SLEEP)
}

#[test]
fn applies_a_profile_from_a_config_map_and_reports_its_hash() {
    let mut world = World::new();
    world.up(&["--feature-gates", "SeccompConfigMaps=true"]);
    let map = |text: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}, "data": {"p.json": text}});
    let context = json!({"seccompProfile": {"type": "ConfigMap", "configMapProfile": "web/p.json"}});
    let script = format!("mkdir /tmp/x; echo rc=$?; {SLEEP}");
    world.apply(&[map(DENY_MKDIR), pod("web", context, &script)]);
    let pod = world.until_ready("web");
    let recorded = pod["status"]["containerStatuses"][0]["securityContext"]["seccompProfileSourceHash"]
        .as_str()
        .unwrap();
    let sum = output(Command::new("sh").args(["-c", &format!("printf %s '{DENY_MKDIR}' | sha256sum")]));
    assert_eq!(Some(recorded), sum.out.split(' ').next());
    world.until("log", || world.kubectl(&["logs", "web"]).out.contains("rc=1\n").then_some(()));

    // With the cluster's word, and with what the node noted at the runtime.
    let kubeconfig = world.path("kubeconfig");
    let with_cluster = || {
        let mut command = world.on_node(&["verify", "-o", "json"]);
        command.arg("--kubeconfig").arg(&kubeconfig);
        output(&mut command)
    };
    let found = with_cluster();
    assert_eq!(found.code, 0, "{found:?}");
    let value: Value = serde_json::from_str(&found.out).unwrap();
    assert_eq!(value["summary"], json!({"pods": 1, "mismatches": 0, "stale": 0, "unverified": 0}));
    assert_eq!(value["pods"][0]["containers"][0]["rows"][0]["declared"], "ConfigMap web/p.json");
    let found = output(&mut world.on_node(&["verify", "--pod", "default/web"]));
    assert_eq!(found.code, 0, "{found:?}");
    assert!(found.out.contains("ConfigMap web/p.json  filter, 1 filter  ok"), "{found:?}");

    // The ConfigMap changes: the container goes on under the old profile, and verify reports it.
    world.apply(&[map(&DENY_MKDIR.replacen('{', "{ ", 1))]);
    let found = with_cluster();
    let value: Value = serde_json::from_str(&found.out).unwrap();
    assert_eq!((found.code, &value["summary"]["stale"]), (0, &json!(1)), "{found:?}");
    let found = output(&mut world.on_node(&["verify", "--pod", "default/absent"]));
    assert_eq!(found.code, 2, "{found:?}");

    // Rows 5 and 6 of the seccomp design's table, 4 and 5 of the AppArmor design's: such pods are not even created.
    let annotated = |key: &str, value: &str| {
        let mut object = sleeper("refused", json!({}));
        object["metadata"]["annotations"] = json!({key: value});
        object
    };
    let file = world.path("refused.json");
    for (object, why) in [
        (
            annotated("seccomp.security.alpha.kubernetes.io/pod", "runtime/default-audit"),
            "must be a valid seccomp profile",
        ),
        (
            sleeper(
                "refused",
                json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "/etc/profilename"}}),
            ),
            "must be a relative path",
        ),
        (
            annotated("container.apparmor.security.beta.kubernetes.io/c", "runtime/default-audit"),
            "must be a valid AppArmor profile",
        ),
        (
            sleeper(
                "refused",
                json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": " padded"}}),
            ),
            "must not be padded with whitespace",
        ),
    ] {
        std::fs::write(&file, object.to_string()).unwrap();
        let refused = world.kubectl(&["create", "-f", file.to_str().unwrap()]);
        assert_eq!(refused.code, 1, "{refused:?}");
        assert!(refused.err.contains(why), "{why}: {refused:?}");
    }
    // Row 6 of the AppArmor design's table, on machines such as most that run tests.
    if !std::path::Path::new("/sys/kernel/security/apparmor").exists() {
        world.apply(&[sleeper("blocked", json!({"appArmorProfile": {"type": "RuntimeDefault"}}))]);
        let blocked = world.until_pod("blocked", |pod| pod["status"]["reason"] == "AppArmor");
        assert_eq!(blocked["status"]["containerStatuses"][0]["state"]["waiting"]["reason"], "Blocked");
        assert_eq!(blocked["status"]["phase"], "Pending");
    }

    // The laptop is closed: in memory, the pods would be lost.
    world.kill(Signal::TERM);
    let left = output(Command::new("ctr").arg("-a").arg(&world.containerd.socket).args([
        "-n",
        "k8s.io",
        "containers",
        "ls",
        "-q",
    ]));
    assert_eq!((left.code, left.out.as_str()), (0, ""), "{left:?}");
}

#[test]
fn kubectl_reads_logs_and_the_reason_if_there_are_none() {
    let mut world = World::new();
    world.up(&["--emulate-kubernetes", "v1.31"]);
    let mut two = pod("two", json!({}), &format!("for i in 1 2 3; do echo a$i; done; {SLEEP}"));
    two["spec"]["containers"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "d", "image": IMAGE, "command": ["sh", "-c", format!("echo d; {SLEEP}")]}));
    let mut never = sleeper("never", json!({}));
    never["spec"]["containers"][0]["image"] = json!("localhost/absent:1");
    never["spec"]["containers"][0]["imagePullPolicy"] = json!("Never");
    let mut nowhere = sleeper("nowhere", json!({}));
    nowhere["spec"]["nodeSelector"] = json!({"moon": "full"});
    world.apply(&[
        two,
        never,
        nowhere,
        pod("crash", json!({}), "echo words; exit 1"),
        pod("counts", json!({}), "for i in 1 2 3 4 5; do echo $i; sleep 0.5; done"),
    ]);
    let followed = world.until("following", || {
        let output = world.kubectl(&["logs", "-f", "counts"]);
        (output.code == 0).then_some(output)
    });
    assert!(followed.out.contains("4\n5\n"), "{followed:?}");
    world.until_pod("crash", |pod| pod["status"]["containerStatuses"][0]["restartCount"].as_u64() >= Some(1));
    world.until_ready("two");
    world.until_pod("never", |pod| {
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "ErrImageNeverPull"
    });
    for (arguments, out) in [
        (&["logs", "two", "-c", "d"][..], "d\n"),
        (&["logs", "two", "--tail=2"], "a2\na3\n"),
        (&["logs", "two", "--limit-bytes=4"], "a1\na"),
        (&["logs", "crash", "--previous"], "words\n"),
        (&["logs", "nowhere"], ""),
    ] {
        let output = world.until("log", || Some(world.kubectl(arguments)).filter(|output| output.code == 0));
        assert_eq!(output.out, out, "{arguments:?}: {output:?}");
    }
    // kubectl requests them in no particular order.
    let all = world.kubectl(&["logs", "two", "--all-containers"]).out;
    assert!(["a1\na2\na3\nd\n", "d\na1\na2\na3\n"].contains(&all.as_str()), "{all}");
    let stamped = world.kubectl(&["logs", "two", "--tail=1", "--timestamps"]);
    assert!(stamped.out.ends_with("Z a3\n"), "{stamped:?}");
    assert_eq!(world.kubectl(&["logs", "two", "--since=1h", "--tail=1"]).out, "a3\n");
    for (arguments, err) in [
        (&["logs", "never"][..], "container \"c\" in pod \"never\" is waiting to start: ErrImageNeverPull"),
        (&["logs", "two", "--previous"], "previous terminated container \"c\" in pod \"two\" not found"),
        (&["logs", "two", "-c", "x"], "container x is not valid for pod two"),
        (&["logs", "gone"], "pods \"gone\" not found"),
    ] {
        let output = world.kubectl(arguments);
        assert_eq!(output.code, 1, "{arguments:?}: {output:?}");
        assert!(output.err.contains(err), "{arguments:?}: {output:?}");
    }
    let events = world.get(&["events", "--field-selector=involvedObject.name=nowhere"]);
    assert_eq!(
        events["items"][0]["message"],
        "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    );
    // The node gets what the pod requests.
    let name = world.get(&["nodes"])["items"][0]["metadata"]["name"].as_str().unwrap().to_owned();
    assert_eq!(world.kubectl(&["label", "node", &name, "moon=full"]).code, 0);
    world.until_ready("nowhere");
    let output = world.kubectl(&["delete", "pod", "--all", "--wait=true"]);
    assert_eq!(output.code, 0, "{output:?}");
}

#[test]
fn pods_outlive_a_killed_up_and_another_node_joins() {
    let mut world = World::new();
    let data = world.path("data").to_str().unwrap().to_owned();
    world.up(&["--data-dir", &data]);
    world.apply(&[sleeper(
        "steady",
        json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "ok.json"}}),
    )]);
    let before = world.until_ready("steady");
    let id = |pod: &Value| pod["status"]["containerStatuses"][0]["containerID"].as_str().unwrap().to_owned();
    world.kill(Signal::KILL);

    // The control plane alone, and the node as a process of its own.
    let mut command = world.palisade(&["up"]);
    command.arg("--data-dir").arg(&data);
    world.spawn(command);
    let mut command = world.on_node(&["node"]);
    command.arg("--kubeconfig").arg(world.path("kubeconfig"));
    let mut agent = command.spawn().unwrap();
    world.apply(&[sleeper("late", json!({}))]);
    world.until_ready("late");
    let after = world.until_ready("steady");
    assert_eq!(id(&after), id(&before), "the same container, not another");
    assert_eq!(after["status"]["containerStatuses"][0]["restartCount"], 0);
    let output = world.kubectl(&["delete", "pod", "steady", "late"]);
    assert_eq!(output.code, 0, "{output:?}");
    agent.kill().unwrap();
    agent.wait().unwrap();
}

#[test]
fn runs_probes_and_hooks() {
    let mut world = World::new();
    world.up(&["--emulate-kubernetes", "v1.31"]);
    let with = |name: &str, script: &str, more: Value| {
        let mut object = pod(name, json!({}), script);
        for (key, value) in more.as_object().unwrap() {
            object["spec"]["containers"][0][key] = value.clone();
        }
        object
    };
    let exec = |script: &str| json!({"exec": {"command": ["sh", "-c", script]}});
    let probe = |script: &str| json!({"exec": {"command": ["sh", "-c", script]}, "periodSeconds": 1, "failureThreshold": 1});
    world.apply(&[
        with("ready", &format!("sleep 2; echo > /tmp/up; {SLEEP}"), json!({"readinessProbe": probe("test -e /tmp/up || { echo not yet; exit 1; }")})),
        with("sick", SLEEP, json!({"livenessProbe": probe("echo ill; exit 1")})),
        with("refused", SLEEP, json!({"readinessProbe": {"tcpSocket": {"port": 1}, "periodSeconds": 1}})),
        with("hooked", SLEEP, json!({"lifecycle": {"postStart": exec("echo began > /proc/1/fd/1"), "preStop": exec("echo ends > /proc/1/fd/1")}})),
        with("unhooked", SLEEP, json!({"lifecycle": {"postStart": exec("echo secret; exit 3")}})),
    ]);
    let has_event = |name: &str, reason: &str, text: &str| {
        world.until(&format!("{name}: {reason}: {text}"), || {
            let events = world
                .get(&["events", &format!("--field-selector=involvedObject.name={name},reason={reason}")]);
            events["items"]
                .as_array()?
                .iter()
                .any(|event| event["message"].as_str().unwrap().contains(text))
                .then_some(())
        });
    };
    has_event("ready", "Unhealthy", "Readiness probe failed: not yet\n");
    let pod = world.until_ready("ready");
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0);
    has_event("sick", "Unhealthy", "Liveness probe failed: ill\n");
    has_event("sick", "Killing", "Container c failed liveness probe, will be restarted");
    world.until_pod("sick", |pod| pod["status"]["containerStatuses"][0]["restartCount"].as_u64() >= Some(1));
    has_event("refused", "Unhealthy", ":1: connect: connection refused");
    let refused = world.get(&["pod", "refused"])["status"].clone();
    let state = &refused["containerStatuses"][0];
    assert_eq!(
        (&state["ready"], &state["started"], &refused["phase"]),
        (&json!(false), &json!(true), &json!("Running")),
        "{refused:#}"
    );
    world.until("hook", || world.kubectl(&["logs", "hooked"]).out.contains("began").then_some(()));
    has_event("unhooked", "FailedPostStartHook", "PostStartHook failed");
    let log = std::thread::scope(|scope| {
        let follow = scope.spawn(|| world.kubectl(&["logs", "-f", "hooked"]));
        assert_eq!(world.kubectl(&["delete", "pod", "hooked"]).code, 0);
        follow.join().unwrap()
    });
    assert!(log.out.contains("began\nends\n"), "{log:?}");
}
