//! A session with the Python client from PyPI, with nothing but the kubeconfig.

use std::process::Command;

use palisade_apiserver::Server;

use crate::support::start;

const SESSION: &str = r#"
import threading
from kubernetes import client, config, watch

config.load_kube_config()
core, apps = client.CoreV1Api(), client.AppsV1Api()
assert "default" in [ns.metadata.name for ns in core.list_namespace().items]

seen = []
begin = core.list_namespaced_config_map("default").metadata.resource_version
def follow():
    for event in watch.Watch().stream(core.list_namespaced_config_map, "default", label_selector="py", timeout_seconds=60, resource_version=begin):
        seen.append((event["type"], event["object"].metadata.name))
        if event["type"] == "DELETED":
            return
follower = threading.Thread(target=follow)
follower.start()

meta = client.V1ObjectMeta(name="a", labels={"py": "1"})
made = core.create_namespaced_config_map("default", client.V1ConfigMap(metadata=meta, data={"k": "1"}))
assert made.metadata.uid and made.data == {"k": "1"}
assert core.patch_namespaced_config_map("a", "default", {"data": {"k": "2"}}).data == {"k": "2"}
made = core.read_namespaced_config_map("a", "default")
made.data["l"] = "3"
assert core.replace_namespaced_config_map("a", "default", made).data == {"k": "2", "l": "3"}
try:
    made.metadata.resource_version = "1"
    core.replace_namespaced_config_map("a", "default", made)
    raise SystemExit("an old version was accepted")
except client.ApiException as error:
    assert error.status == 409, error
assert [m.metadata.name for m in core.list_namespaced_config_map("default", label_selector="py").items] == ["a"]
core.delete_namespaced_config_map("a", "default")
try:
    core.read_namespaced_config_map("a", "default")
    raise SystemExit("it was not deleted")
except client.ApiException as error:
    assert error.status == 404, error
follower.join(30)
assert seen == [("ADDED", "a"), ("MODIFIED", "a"), ("MODIFIED", "a"), ("DELETED", "a")], seen

container = client.V1Container(name="c", image="nginx", security_context=client.V1SecurityContext(privileged=True))
pod = client.V1Pod(metadata=client.V1ObjectMeta(name="p"), spec=client.V1PodSpec(containers=[container]))
core.patch_namespace("default", {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}})
try:
    core.create_namespaced_pod("default", pod)
    raise SystemExit("a privileged pod was let in")
except client.ApiException as error:
    assert error.status == 403 and "violates PodSecurity" in error.body, error
container.security_context = None
assert core.create_namespaced_pod("default", pod, dry_run="All").spec.containers[0].image_pull_policy == "Always"
labels = {"app": "d"}
template = client.V1PodTemplateSpec(metadata=client.V1ObjectMeta(labels=labels), spec=client.V1PodSpec(containers=[container]))
spec = client.V1DeploymentSpec(selector=client.V1LabelSelector(match_labels=labels), template=template)
apps.create_namespaced_deployment("default", client.V1Deployment(metadata=client.V1ObjectMeta(name="d"), spec=spec))
assert apps.patch_namespaced_deployment_scale("d", "default", {"spec": {"replicas": 3}}).spec.replicas == 3
apps.delete_namespaced_deployment("d", "default")
assert apps.list_namespaced_deployment("default").items == []
print("done")
"#;

/// Runs a program; what it printed if it failed.
fn run(command: &mut Command) -> String {
    let output = command.output().expect("python3 and python3-venv are installed: cargo xtask setup");
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{command:?}\n{printed}");
    printed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_watches_creates_patches_and_deletes() {
    let folder = tempfile::tempdir().expect("folder");
    let path = |name: &str| folder.path().join(name);
    let server = start(Server::builder().kubeconfig(path("config"))).await;
    std::fs::write(path("session.py"), SESSION).expect("session");
    let printed = tokio::task::spawn_blocking(move || {
        let path = |name: &str| folder.path().join(name);
        run(Command::new("python3").args(["-m", "venv"]).arg(path("venv")));
        let mut pip = Command::new(path("venv/bin/python"));
        run(pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-compile",
            "--disable-pip-version-check",
            "kubernetes",
        ]));
        let mut session = Command::new(path("venv/bin/python"));
        run(session.arg(path("session.py")).env("KUBECONFIG", path("config")))
    })
    .await
    .expect("the session ends");
    assert!(printed.contains("done"), "{printed}");
    server.shutdown().await;
}
