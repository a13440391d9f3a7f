//! `palisade run` and `palisade verify` without any API server.

use std::fs;

use palisade_testkit::containerd::IMAGE;
use serde_json::{Value, json};

use crate::world::{DENY_MKDIR, World, output};

fn pod(name: &str, context: Value, script: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1, "securityContext": context,
        "containers": [{"name": "c", "image": IMAGE, "command": ["sh", "-c", script]}]}})
}

#[test]
fn run_shows_what_the_kernel_enforces_and_leaves_nothing() {
    let world = World::new();
    let manifest = world.path("pod.yaml");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}, "data": {"p": DENY_MKDIR}});
    let profile =
        json!({"runAsUser": 1000, "seccompProfile": {"type": "ConfigMap", "configMapProfile": "web/p"}});
    let sleeper = "trap 'exit 0' TERM; sleep 600 & wait";
    fs::write(&manifest, format!("{map}\n---\n{}\n", pod("one", profile, sleeper))).unwrap();
    let file = manifest.to_str().unwrap();

    let ran = output(&mut world.on_node(&["run", "-f", file]));
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.starts_with("pod default/one is Running\n"), "{}", ran.out);
    let line = "seccomp                 ConfigMap web/p  filter, 1 filter  ok";
    assert!(ran.out.contains(line), "{}", ran.out);
    let ran = output(&mut world.on_node(&["run", "-f", file, "-o", "json"]));
    let value: Value = serde_json::from_str(&ran.out).unwrap();
    let hash = &value["status"]["containerStatuses"][0]["securityContext"]["seccompProfileSourceHash"];
    assert_eq!(
        (&value["enforced"], hash),
        (&json!(true), &json!(palisade_base::sha256::hex(DENY_MKDIR.as_bytes())))
    );
    assert!(fs::read_dir(world.path("agent/run/pods")).unwrap().next().is_none(), "nothing is left");

    for (case, object, expected, code) in [
        ("it ends well", pod("done", json!({}), "echo done"), "pod default/done is Succeeded\n", 0),
        (
            "a call is denied",
            pod(
                "denied",
                json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "ok.json"}}),
                "mkdir /tmp/x 2> /dev/null || echo denied",
            ),
            "log of c:\ndenied\n",
            0,
        ),
        ("it fails", pod("fails", json!({}), "exit 3"), "c ended with exit code 3: Error\n", 1),
        (
            "no such profile",
            pod(
                "lost",
                json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "no.json"}}),
                "true",
            ),
            "pod default/lost is Failed\n",
            1,
        ),
        (
            "root is not wanted",
            pod("rootless", json!({"runAsNonRoot": true}), "true"),
            "c waits: CreateContainerConfigError: container has runAsNonRoot and image will run as root",
            1,
        ),
    ] {
        fs::write(&manifest, object.to_string()).unwrap();
        // What ends is waited for, what never begins is not.
        let arguments: &[&str] = if code == 0 || case == "it fails" {
            &["run", "--follow", "-f", file]
        } else {
            &["run", "-f", file]
        };
        let ran = output(&mut world.on_node(arguments));
        assert_eq!(ran.code, code, "{case}: {ran:?}");
        assert!(ran.out.contains(expected), "{case}: {ran:?}");
    }
    fs::write(&manifest, "kind: ConfigMap\napiVersion: v1\nmetadata: {name: m}\n").unwrap();
    let ran = output(&mut world.on_node(&["run", "-f", file]));
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("the manifests have no pod"), "{ran:?}");
    fs::write(&manifest, pod("x", json!({}), "true").to_string()).unwrap();
    let ran = output(&mut world.palisade(&["run", "-f", file, "--runtime-endpoint", "/nonexistent.sock"]));
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.err.contains("the container runtime does not answer"), "{ran:?}");
    let ran = output(&mut world.palisade(&["run", "-f", file, "--runtime-endpoint", "tcp://127.0.0.1:1"]));
    assert_eq!(ran.code, 2, "{ran:?}");
}

#[test]
fn reports_a_runtime_that_ignores_a_profile() {
    let world = World::without_seccomp();
    let manifest = world.path("pod.yaml");
    let object = pod(
        "ignored",
        json!({"seccompProfile": {"type": "RuntimeDefault"}}),
        "trap 'exit 0' TERM; sleep 600 & wait",
    );
    fs::write(&manifest, object.to_string()).unwrap();
    let ran = output(&mut world.on_node(&["run", "-f", manifest.to_str().unwrap()]));
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(
        ran.out.contains("RuntimeDefault  none, 0 filters  MISMATCH (the runtime ignored the profile)"),
        "{}",
        ran.out
    );
}

#[test]
fn run_records_a_profile_with_which_the_pod_runs() {
    let world = World::new();
    let manifest = world.path("pod.yaml");
    let context = json!({"seccompProfile": {"type": "RuntimeDefault"}, "runAsUser": 1000});
    let object = pod("worker", context.clone(), "ls -d /tmp/.. | cat; id; echo worked");
    fs::write(&manifest, object.to_string()).unwrap();
    let profile = world.path("p.json");
    let record = format!("--record={}", profile.display());
    let file = manifest.to_str().unwrap();
    let ran = output(&mut world.on_node(&["run", "-f", file, &record]));
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.err.contains("system calls of c in the phases runtime, start"), "{}", ran.err);
    let statement: Value =
        serde_json::from_str(&fs::read_to_string(world.path("p.statement.json")).unwrap()).unwrap();
    assert_eq!((&statement["complete"], &statement["beyondRuntimeDefault"]), (&json!(true), &json!([])));
    assert!(!world.path("p.journal").exists());

    let text = fs::read_to_string(&profile).unwrap();
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}, "data": {"p": text}});
    for (case, script, expected) in [
        ("what was recorded", "ls -d /tmp/.. | cat; id; echo worked", "worked"),
        ("and nothing else", "id; mkdir /tmp/x 2> /dev/null || echo denied", "denied"),
    ] {
        let profile =
            json!({"runAsUser": 1000, "seccompProfile": {"type": "ConfigMap", "configMapProfile": "web/p"}});
        fs::write(&manifest, format!("{map}\n---\n{}\n", pod("worker", profile, script))).unwrap();
        let ran = output(&mut world.on_node(&["run", "-f", file]));
        assert_eq!(ran.code, 0, "{case}: {ran:?}");
        assert!(ran.out.trim_end().ends_with(expected), "{case}: {}", ran.out);
    }
}
