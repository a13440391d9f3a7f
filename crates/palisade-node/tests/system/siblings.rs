//! Pods like the recorded ones, on v1.31: what a kubelet makes of them by upstream's sources, and the kernel with it.

use std::{
    collections::BTreeSet,
    fs,
    time::{Duration, Instant},
};

use palisade_model::compat::Compat;
use palisade_node::pod::RunPod;
use serde_json::{Value, json};

use crate::lab::{IMAGE, IMAGE_NAMED, IMAGE_UID, Lab};

/// What is expected of a pod: a part of its status, its warnings, and lines of `/proc/PID/status` by container.
struct Expected {
    status: Value,
    warnings: Vec<(&'static str, String)>,
    kernel: Vec<(&'static str, &'static str, &'static str)>,
}

fn expect(status: Value) -> Expected {
    Expected { status, warnings: Vec::new(), kernel: Vec::new() }
}

impl Expected {
    fn warning(mut self, reason: &'static str, message: impl Into<String>) -> Self {
        self.warnings.push((reason, message.into()));
        self
    }

    fn kernel(mut self, lines: &[(&'static str, &'static str)]) -> Self {
        self.kernel.extend(lines.iter().map(|&(key, value)| ("c", key, value)));
        self
    }
}

fn running() -> Expected {
    expect(json!({"phase": "Running", "containerStatuses": [{"name": "c", "ready": true, "started": true,
        "state": {"running": {}}}]}))
}

fn waits(phase: &str, reason: &str, message: &str) -> Expected {
    expect(json!({"phase": phase, "containerStatuses": [{"name": "c", "ready": false, "started": false,
        "state": {"waiting": {"reason": reason, "message": message}}}]}))
}

/// A container that cannot be made reports why, and so does an event.
fn refused(reason: &str, message: &str) -> Expected {
    waits("Pending", reason, message).warning("Failed", format!("Error: {message}"))
}

fn ended(phase: &str, code: i32, reason: &str) -> Expected {
    expect(json!({"phase": phase, "containerStatuses": [{"name": "c", "ready": false, "started": false,
        "restartCount": 0, "state": {"terminated": {"exitCode": code, "reason": reason}}}]}))
}

fn rejected(reason: &'static str, message: &str) -> Expected {
    let status =
        json!({"phase": "Failed", "reason": reason, "message": format!("Pod was rejected: {message}")});
    expect(status).warning(reason, message)
}

fn pod(pod_context: Value, context: Value) -> Value {
    json!({"hostNetwork": true, "securityContext": pod_context, "terminationGracePeriodSeconds": 1, "containers": [
        {"name": "c", "image": IMAGE, "command": ["sh", "-c", "id; mkdir /tmp/x; echo rc=$?; sleep 600"],
         "securityContext": context}]})
}

fn with(mut spec: Value, path: &str, value: Value) -> Value {
    let (parent, key) = path.rsplit_once('/').unwrap();
    spec.pointer_mut(parent).unwrap()[key] = value;
    spec
}

fn runs(command: Value, policy: &str) -> Value {
    let spec = with(pod(json!({}), json!({})), "/containers/0/command", command);
    with(spec, "/restartPolicy", json!(policy))
}

fn localhost(path: &str) -> Value {
    json!({"seccompProfile": {"type": "Localhost", "localhostProfile": path}})
}

fn seccomp(kind: &str) -> Value {
    json!({"seccompProfile": {"type": kind}})
}

const UNCONFINED: &[(&str, &str)] = &[("Seccomp", "0"), ("Seccomp_filters", "0")];
const FILTERED: &[(&str, &str)] = &[("Seccomp", "2"), ("Seccomp_filters", "1")];

fn profiles() -> Vec<(&'static str, Value, Expected)> {
    let none = || json!({});
    let absent = "failed to create containerd container: cannot load seccomp profile \"<ROOT>/seccomp/absent.json\": \
                  open <ROOT>/seccomp/absent.json: no such file or directory";
    let initial = |context: Value| {
        let init = json!([{"name": "i", "image": IMAGE, "command": ["true"], "securityContext": context}]);
        with(pod(none(), none()), "/initContainers", init)
    };
    let initializing = json!([{"name": "c", "state": {"waiting": {"reason": "PodInitializing"}}}]);
    vec![
        ("unconfined", pod(seccomp("Unconfined"), none()), running().kernel(UNCONFINED)),
        ("container-wins", pod(localhost("ok.json"), seccomp("Unconfined")), running().kernel(UNCONFINED)),
        ("container-alone", pod(none(), localhost("ok.json")), running().kernel(FILTERED)),
        ("container-missing", pod(seccomp("RuntimeDefault"), localhost("absent.json")), {
            refused("CreateContainerError", absent)
        }),
        ("in-a-folder", pod(localhost("./sub//ok.json"), none()), running().kernel(FILTERED)),
        ("through-a-link", pod(localhost("link.json"), none()), running().kernel(FILTERED)),
        (
            "below-a-file",
            pod(localhost("ok.json/x"), none()),
            refused(
                "CreateContainerError",
                "failed to create containerd container: cannot load seccomp profile \"<ROOT>/seccomp/ok.json/x\": open \
                 <ROOT>/seccomp/ok.json/x: not a directory",
            ),
        ),
        ("privileged-missing", pod(localhost("absent.json"), json!({"privileged": true})), {
            running().kernel(UNCONFINED)
        }),
        (
            "init-missing",
            initial(localhost("absent.json")),
            expect(json!({"phase": "Pending", "containerStatuses": initializing, "initContainerStatuses": [
                {"name": "i", "state": {"waiting": {"reason": "CreateContainerError", "message": absent}}}]}))
            .warning("Failed", format!("Error: {absent}")),
        ),
        (
            "two-containers",
            with(
                pod(none(), none()),
                "/containers",
                json!([{"name": "z", "image": IMAGE, "command": ["sleep", "600"]},
                    {"name": "a", "image": IMAGE, "command": ["sleep", "600"], "securityContext": localhost("absent.json")}]),
            ),
            // By name, as upstream sorts them.
            expect(json!({"phase": "Pending", "containerStatuses": [
                {"name": "a", "state": {"waiting": {"reason": "CreateContainerError", "message": absent}}},
                {"name": "z", "state": {"running": {}}}]}))
            .warning("Failed", format!("Error: {absent}")),
        ),
        (
            "bad-action-never",
            with(pod(localhost("badaction.json"), none()), "/restartPolicy", json!("Never")),
            ended("Failed", 128, "StartError").warning(
                "Failed",
                "Error: failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create \
                 failed: string SCMP_ACT_NOPE is not a valid action for seccomp: unknown",
            ),
        ),
    ]
}

fn contexts() -> Vec<(&'static str, Value, Expected)> {
    let none = || json!({});
    let own = |context: Value| pod(json!({}), context);
    let of_image = |image: &str| {
        with(pod(json!({"runAsNonRoot": true}), json!({})), "/containers/0/image", json!(image))
    };
    vec![
        ("non-root-overridden", pod(json!({"runAsNonRoot": true}), json!({"runAsNonRoot": false})), {
            running().kernel(&[("Uid", "0\t0\t0\t0")])
        }),
        ("non-root-number", of_image(IMAGE_UID), running().kernel(&[("Uid", "1234\t1234\t1234\t1234")])),
        (
            "non-root-name",
            of_image(IMAGE_NAMED),
            refused(
                "CreateContainerConfigError",
                "container has runAsNonRoot and image has non-numeric user (web), cannot verify user is non-root (pod: \
                 \"non-root-name_default(<UID>)\", container: c)",
            ),
        ),
        (
            "non-root-zero",
            pod(json!({"runAsNonRoot": true, "runAsUser": 5}), json!({"runAsUser": 0})),
            refused(
                "CreateContainerConfigError",
                "container's runAsUser breaks non-root policy (pod: \"non-root-zero_default(<UID>)\", container: c)",
            ),
        ),
        ("one-capability", own(json!({"capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]}})), {
            running().kernel(&[("CapEff", "0000000000001000"), ("CapBnd", "0000000000001000")])
        }),
        (
            "capability-of-a-user",
            pod(json!({"runAsUser": 1000}), json!({"capabilities": {"add": ["NET_ADMIN"]}})),
            running().kernel(&[("CapEff", "0000000000000000"), ("CapBnd", "00000000a80435fb")]),
        ),
        ("unknown-capability", own(json!({"capabilities": {"add": ["NOPE"]}})), {
            running().kernel(&[("CapEff", "00000000a80425fb")])
        }),
        ("no-new-privs", own(json!({"allowPrivilegeEscalation": false})), {
            running().kernel(&[("NoNewPrivs", "1")])
        }),
        (
            "group-without-user",
            pod(json!({"runAsGroup": 7}), none()),
            expect(json!({"phase": "Pending", "containerStatuses": [{"name": "c", "state": {"waiting":
                {"reason": "ContainerCreating"}}}]}))
            .warning(
                "FailedCreatePodSandBox",
                "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to generate sanbdox container spec \
                 options: failed to generate user string: user group \"7\" is specified without user",
            ),
        ),
        ("volume-group", pod(json!({"fsGroup": 7}), none()), running().kernel(&[("Groups", "0 7")])),
        (
            "sysctl-of-the-node",
            pod(json!({"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}), none()),
            rejected("SysctlForbidden", "forbidden sysctl: \"kernel.msgmax\" not allowlisted"),
        ),
        (
            "app-armor-of-the-pod",
            pod(json!({"appArmorProfile": {"type": "RuntimeDefault"}}), none()),
            rejected("AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host"),
        ),
        (
            "another-system",
            with(own(none()), "/os", json!({"name": "windows"})),
            rejected("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"),
        ),
    ]
}

fn lives() -> Vec<(&'static str, Value, Expected)> {
    let plain = || pod(json!({}), json!({}));
    let placed = |path: &str, value: Value| with(with(plain(), "/nodeName", json!("lab")), path, value);
    let no_command = "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create \
                      failed: unable to start container process: exec: \"nosuch\": executable file not found in $PATH: unknown";
    let lower = "Failed to apply default image tag \"BusyBox\": couldn't parse image name \"BusyBox\": invalid reference \
                 format: repository name (library/BusyBox) must be lowercase";
    let not_there = "Container image \"localhost/nosuch:1\" is not present with pull policy of Never";
    vec![
        ("done", runs(json!(["true"]), "Never"), ended("Succeeded", 0, "Completed")),
        ("done-on-failure", runs(json!(["true"]), "OnFailure"), ended("Succeeded", 0, "Completed")),
        (
            "done-again",
            runs(json!(["true"]), "Always"),
            expect(json!({"phase": "Running", "containerStatuses": [{"restartCount": 1,
                "state": {"waiting": {"reason": "CrashLoopBackOff",
                    "message": "back-off 10s restarting failed container=c pod=done-again_default(<UID>)"}},
                "lastState": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]}))
            .warning("BackOff", "Back-off restarting failed container c in pod done-again_default(<UID>)"),
        ),
        ("no-command", runs(json!(["nosuch"]), "Never"), {
            ended("Failed", 128, "StartError").warning("Failed", format!("Error: {no_command}"))
        }),
        (
            "init-fails",
            with(
                with(plain(), "/restartPolicy", json!("Never")),
                "/initContainers",
                json!([{"name": "i", "image": IMAGE, "command": ["false"]}]),
            ),
            expect(json!({"phase": "Failed",
                "containerStatuses": [{"name": "c", "state": {"waiting": {"reason": "PodInitializing"}}}],
                "initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]})),
        ),
        (
            "never-pulled",
            with(
                with(plain(), "/containers/0/image", json!("localhost/nosuch:1")),
                "/containers/0/imagePullPolicy",
                json!("Never"),
            ),
            waits("Pending", "ErrImageNeverPull", not_there)
                .warning("ErrImageNeverPull", not_there)
                .warning("Failed", "Error: ErrImageNeverPull"),
        ),
        (
            "no-such-name",
            with(plain(), "/containers/0/image", json!("BusyBox")),
            waits("Pending", "InvalidImageName", lower)
                .warning("InspectFailed", lower)
                .warning("Failed", "Error: InvalidImageName"),
        ),
        (
            "deadline",
            with(pod(localhost("absent.json"), json!({})), "/activeDeadlineSeconds", json!(2)),
            expect(json!({"phase": "Failed", "reason": "DeadlineExceeded",
                "message": "Pod was active on the node longer than the specified deadline",
                "containerStatuses": [{"state": {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown",
                    "message": "The container could not be located when the pod was terminated"}}}]}))
            .warning(
                "Failed",
                "Error: failed to create containerd container: cannot load seccomp profile \"<ROOT>/seccomp/absent.json\": open \
                 <ROOT>/seccomp/absent.json: no such file or directory",
            ),
        ),
        (
            "link-out-of-the-volume",
            with(
                with(plain(), "/volumes", json!([{"name": "v", "hostPath": {"path": "/proc/self"}}])),
                "/containers/0/volumeMounts",
                json!([{"name": "v", "mountPath": "/v", "subPath": "root"}]),
            ),
            refused(
                "CreateContainerConfigError",
                "failed to prepare subPath for volumeMount \"v\" of container \"c\"",
            ),
        ),
        (
            "elsewhere",
            placed("/nodeSelector", json!({"disk": "ssd"})),
            rejected(
                "NodeAffinity",
                "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
            ),
        ),
        (
            "too-large",
            placed("/containers/0/resources", json!({"requests": {"hugepages-1Gi": "1Gi"}})),
            rejected(
                "OutOfhugepages-1Gi",
                "Node didn't have enough resource: hugepages-1Gi, requested: 1073741824, used: 0, capacity: 0",
            ),
        ),
        ("here", placed("/nodeSelector", json!({"kubernetes.io/os": "linux"})), running()),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn profiles_come_out_as_in_a_kubelet() {
    all_come_out(profiles()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn contexts_come_out_as_in_a_kubelet() {
    all_come_out(contexts()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lives_come_out_as_in_a_kubelet() {
    all_come_out(lives()).await;
}

async fn all_come_out(rows: Vec<(&'static str, Value, Expected)>) {
    let lab = Lab::new(Compat::kubernetes(31));
    let folder = lab.root.join("seccomp");
    std::os::unix::fs::symlink("ok.json", folder.join("link.json")).unwrap();
    fs::create_dir_all(folder.join("sub")).unwrap();
    fs::copy(folder.join("ok.json"), folder.join("sub/ok.json")).unwrap();
    let has_app_armor = lab.node.app_armor.is_enabled();
    let mut started = Vec::new();
    for (name, spec, expected) in rows {
        if has_app_armor && name.starts_with("app-armor") {
            continue;
        }
        let pod = lab.apply(json!({"metadata": {"name": name}, "spec": spec}));
        started.push((pod, expected));
    }
    let deadline = Instant::now() + Duration::from_mins(2);
    while !started.is_empty() {
        let mut left = Vec::new();
        let mut failures = Vec::new();
        for (pod, expected) in started {
            let found = differences(&lab, &pod, &expected).await;
            if !found.is_empty() {
                failures.extend(found);
                left.push((pod, expected));
            }
        }
        assert!(Instant::now() < deadline, "{}", failures.join("\n"));
        started = left;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Every field of `expected` is in `found`.
fn holds(found: &Value, expected: &Value, plain: &impl Fn(&str) -> String) -> bool {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            expected.iter().all(|(key, value)| found.get(key).is_some_and(|found| holds(found, value, plain)))
        }
        (Value::Array(found), Value::Array(expected)) => {
            found.len() == expected.len()
                && found.iter().zip(expected).all(|(found, expected)| holds(found, expected, plain))
        }
        (Value::String(found), Value::String(expected)) => plain(found) == *expected,
        (found, expected) => found == expected,
    }
}

async fn differences(lab: &Lab, pod: &RunPod, expected: &Expected) -> Vec<String> {
    let (root, uid, name) = (lab.root.display().to_string(), &pod.key.uid, &pod.key.name);
    let plain = |text: &str| text.replace(&root, "<ROOT>").replace(uid, "<UID>");
    let mut failures = Vec::new();
    let status = lab.status(pod);
    if !holds(&status, &expected.status, &plain) {
        failures.push(format!("{name}: {status} instead of {}", expected.status));
    }
    let found: BTreeSet<(String, String)> = lab
        .events(pod)
        .into_iter()
        .filter(|(kind, ..)| kind == "Warning")
        .map(|(_, reason, message)| (reason, plain(&message)))
        .collect();
    let wanted: BTreeSet<(String, String)> =
        expected.warnings.iter().map(|(reason, message)| ((*reason).to_owned(), message.clone())).collect();
    if found != wanted {
        failures.push(format!("{name}: warnings {found:?} instead of {wanted:?}"));
    }
    for (container, key, value) in &expected.kernel {
        let pid = lab.find_pid(pod, container).await.unwrap_or_default();
        let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{key}:"))).unwrap_or_default();
        if line.trim() != *value {
            failures.push(format!("{name}: {key} is {line} instead of {value}"));
        }
    }
    failures
}
