//! Fixes that cannot hurt: what is safe and what is not, and what stays as it is.

use palisade_base::sha256;
use serde_json::json;

use crate::support::{PRIVILEGED, Project};

/// A pod that runs as another user and cannot gain privileges: everything that is missing can be added without a change.
const HARMLESS: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  securityContext: {runAsUser: 1000}
  containers:
  - name: web
    image: nginx
    securityContext: {allowPrivilegeEscalation: false}
";

/// A pod that says nothing.
const SILENT: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: web
    image: nginx:1.27
";

#[test]
fn safe_fixes_are_made_and_explained() {
    let project = Project::with(HARMLESS);
    insta::assert_snapshot!(project.run(&["check", "--diff", "--fix", "pod.yaml"]), @r#"
    # Pod web
    #   safe: add `spec.securityContext.runAsNonRoot: true`; container "web" runs as user 1000
    #   safe: add `spec.securityContext.seccompProfile: {type: RuntimeDefault}`; no profile was chosen, and the runtime's own blocks what the container has no capability for, and little else
    #   safe: add `securityContext.capabilities.drop: [ALL]` in container "web"; the container runs as another user than root and cannot gain privileges, and so has no capabilities to lose
    --- a/pod.yaml
    +++ b/pod.yaml
    @@ -2,8 +2,8 @@
     kind: Pod
     metadata: {name: web}
     spec:
    -  securityContext: {runAsUser: 1000}
    +  securityContext: {runAsUser: 1000, runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
       containers:
       - name: web
         image: nginx
    -    securityContext: {allowPrivilegeEscalation: false}
    +    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
    1 object in 1 file checked at restricted:latest: 0 allowed, 1 denied; 3 errors
    exit status: 1
    "#);
    let run = project.run(&["check", "--fix", "pod.yaml"]);
    assert_eq!(run.status, 0, "{run}");
    let fixed = project.read("pod.yaml");
    let run = project.run(&["check", "--fix", "--unsafe-fixes", "pod.yaml"]);
    assert_eq!((run.status, project.read("pod.yaml")), (0, fixed));
}

#[test]
fn what_may_change_behaviour_is_left_to_the_user() {
    let project = Project::with(PRIVILEGED);
    insta::assert_snapshot!(project.run(&["check", "--fix", "--level=baseline", "."]), @r#"
    error[pss/privileged]: container "web" is privileged
      --> pod.yaml:10:21
       |
    10 |         privileged: true
       |                     ^^^^ baseline allows false, or no value
       = because: Pod Security Standards v1.37, Baseline, "Privileged Containers": a privileged container is root on the node
       = help: set `securityContext.privileged: false` in container "web"

    pod.yaml: not fixed: Pod shop/bad: 1 fix may change its behaviour, which --unsafe-fixes allows
    1 object in 1 file checked at baseline:latest: 0 allowed, 1 denied; 1 error
    exit status: 1
    "#);
    assert_eq!(project.read("pod.yaml"), PRIVILEGED);
    let run = project.run(&["check", "--unsafe-fixes", "--level=baseline", "."]);
    assert_eq!(run.status, 0, "{run}");
}

#[test]
fn an_object_that_stays_refused_is_not_edited_unless_asked() {
    let text = HARMLESS.replace("spec:\n", "spec:\n  hostPID: true\n");
    let project = Project::with(&text);
    insta::assert_snapshot!(project.run(&["check", "--fix", "--level=restricted", "."]).stderr, @r#"
    pod.yaml: not fixed: Pod web: it would still be refused, because pod sets hostPID; --fix-partial edits what can be fixed
    1 object in 1 file checked at restricted:latest: 0 allowed, 1 denied; 4 errors
    "#);
    assert_eq!(project.read("pod.yaml"), text);
    let run = project.run(&["check", "--fix", "--fix-partial", "."]);
    assert!(run.status == 1 && project.read("pod.yaml").contains("RuntimeDefault"), "{run}");
    assert!(project.read("pod.yaml").contains("hostPID: true"));
}

#[test]
fn one_object_does_not_hold_up_another() {
    let refused =
        HARMLESS.replace("spec:\n", "spec:\n  hostPID: true\n").replace("name: web}", "name: host}");
    let project = Project::with(&format!("{HARMLESS}---\n{refused}"));
    let run = project.run(&["check", "--fix", ".", "-o", "json"]);
    let allowed: Vec<bool> =
        run.json()["objects"].as_array().unwrap().iter().map(|o| o["allowed"] == true).collect();
    assert_eq!(allowed, [true, false], "{run}");
    assert!(project.read("pod.yaml").ends_with(&refused), "{}", project.read("pod.yaml"));
}

#[test]
fn nothing_is_written_that_no_api_server_accepts() {
    let bidirectional = "\
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: csi}
spec:
  selector: {matchLabels: {app: csi}}
  template:
    metadata: {labels: {app: csi}}
    spec:
      volumes: [{name: pods, emptyDir: {}}]
      containers:
      - name: csi
        image: csi
        securityContext: {privileged: true}
        volumeMounts: [{name: pods, mountPath: /pods, mountPropagation: Bidirectional}]
";
    let project = Project::with(bidirectional);
    let run = project.run(&["check", "--unsafe-fixes", "--level=baseline", "."]);
    assert!(
        run.status == 1 && run.stdout.contains("API servers accept in privileged containers alone"),
        "{run}"
    );
    assert_eq!(project.read("pod.yaml"), bidirectional);

    // An object that is rejected for another reason is not made acceptable by a fix.
    for (case, text, reason) in [
        ("no image", HARMLESS.replace("    image: nginx\n", ""), "spec.containers[0].image: Required value"),
        (
            "no name",
            HARMLESS.replace("metadata: {name: web}", "metadata: {}"),
            "name or generateName is required",
        ),
    ] {
        let project = Project::with(&text);
        let run = project.run(&["check", "--fix", "."]);
        assert!(run.stderr.contains(reason), "{case}: {run}");
        assert_eq!(project.read("pod.yaml"), text, "{case}");
    }
}

#[test]
fn the_name_of_all_capabilities_is_corrected_where_it_stands() {
    let text = HARMLESS.replace("Escalation: false", "Escalation: false, capabilities: {drop: [all]}");
    let project = Project::with(&text);
    let run = project.run(&["check", "--fix", "."]);
    let fixed = project.read("pod.yaml");
    assert!(run.status == 0 && fixed.contains("drop: [ALL]"), "{run}{fixed}");
}

#[test]
fn a_pod_that_runs_as_root_gets_a_user_namespace_where_there_is_one() {
    let root = SILENT.replace("spec:\n", "spec:\n  securityContext: {runAsUser: 0}\n");
    for (case, arguments, expected, unexpected) in [
        ("v1.37", &[][..], "hostUsers: false", "runAsNonRoot"),
        ("a policy without it", &["--policy-version=v1.34"][..], "runAsNonRoot: true", "hostUsers"),
        ("a release without it", &["--kubernetes-version=v1.30"][..], "runAsNonRoot: true", "hostUsers"),
    ] {
        let project = Project::with(&root);
        let run = project.run(&[&["check", "--unsafe-fixes", "."][..], arguments].concat());
        let fixed = project.read("pod.yaml");
        assert_eq!(run.status, 0, "{case}: {run}{fixed}");
        assert!(fixed.contains(expected) && !fixed.contains(unexpected), "{case}: {fixed}");
    }
    // A silent pod may well run as another user.
    let project = Project::with(SILENT);
    project.run(&["check", "--unsafe-fixes", "."]);
    assert!(project.read("pod.yaml").contains("runAsNonRoot: true"));
}

/// A layout with one image, as `skopeo` and `buildah` write it.
fn layout(project: &Project, user: &str, annotations: &serde_json::Value) {
    let blob = |value: serde_json::Value| {
        let bytes = value.to_string();
        let hex = sha256::hex(bytes.as_bytes());
        project.file(&format!("layout/blobs/sha256/{hex}"), &bytes);
        json!({"digest": format!("sha256:{hex}"), "size": bytes.len()})
    };
    let config = blob(json!({"architecture": "amd64", "os": "linux", "config": {"User": user}}));
    let mut manifest = blob(json!({"schemaVersion": 2, "config": config, "layers": []}));
    manifest["mediaType"] = json!("application/vnd.oci.image.manifest.v1+json");
    manifest["annotations"] = annotations.clone();
    project.file("layout/oci-layout", "{\"imageLayoutVersion\": \"1.0.0\"}");
    project.file("layout/index.json", json!({"schemaVersion": 2, "manifests": [manifest]}).to_string());
}

#[test]
fn the_user_of_the_image_decides_about_non_root() {
    let named = json!({"io.containerd.image.name": "docker.io/library/nginx:1.27"});
    for (user, fix, message) in [
        ("101:101", "--fix", None),
        ("0", "--unsafe-fixes", Some("the image nginx:1.27 of container \"web\" runs as root")),
        ("", "--unsafe-fixes", Some("the image nginx:1.27 of container \"web\" runs as root")),
        ("nginx", "--unsafe-fixes", Some("runs as the user nginx, and the kubelet needs its number")),
    ] {
        let text = SILENT.replace(
            "nginx:1.27\n",
            "nginx:1.27\n    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}\n",
        );
        let project = Project::with(&text);
        layout(&project, user, &named);
        let arguments = ["check", fix, "--image-layout=layout", "--policy-version=v1.30", "pod.yaml"];
        let run = project.run(&arguments);
        match message {
            None => assert!(
                run.status == 0 && project.read("pod.yaml").contains("runAsNonRoot: true"),
                "{user}: {run}"
            ),
            Some(message) => {
                assert!(run.status == 1 && run.stdout.contains(message), "{user}: {run}");
                assert_eq!(project.read("pod.yaml"), text, "{user}");
            }
        }
    }
    // A layout for another image says nothing about this one, and a diff says so.
    let project = Project::with(SILENT);
    layout(&project, "101", &json!({"io.containerd.image.name": "docker.io/library/redis:7"}));
    let run = project.run(&["check", "--diff", "--image-layout=layout", "pod.yaml"]);
    assert!(run.stdout.contains("which user the image of container \"web\" runs as is not known"), "{run}");
}

#[test]
fn a_layout_that_cannot_be_trusted_is_an_error() {
    let project = Project::with(SILENT);
    layout(&project, "101", &json!({"org.opencontainers.image.ref.name": "1.27"}));
    let run = |layout: &str| project.run(&["check", "--image-layout", layout, "pod.yaml"]);
    let unnamed = run("layout");
    assert!(unnamed.status == 2 && unnamed.stderr.contains("--image-layout IMAGE=layout"), "{unnamed}");
    assert_eq!(run("nginx:1.27=layout").status, 1);
    for blob in std::fs::read_dir(project.path("layout/blobs/sha256")).unwrap() {
        let path = blob.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap().replace("101", "0");
        std::fs::write(path, text).unwrap();
    }
    let forged = run("nginx:1.27=layout");
    assert!(forged.status == 2 && forged.stderr.contains("does not have the content"), "{forged}");
    assert_eq!(run("nowhere").status, 2);
}
