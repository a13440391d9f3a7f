//! What must pass, and what must not, while no replica of the webhook answers. For the embedded and for a real API server.

use serde_json::{Value, json};

/// The namespace of the objects.
pub const NAMESPACE: &str = "outage";

/// A write while no replica answers.
#[derive(Debug)]
pub struct OutageCase {
    /// What is written.
    pub name: &'static str,
    /// The HTTP method.
    pub method: &'static str,
    /// The path of the request.
    pub path: String,
    /// The body of the request.
    pub body: Value,
    /// Whether the API server accepts it.
    pub passes: bool,
}

fn at(path: &str) -> String {
    path.replace("NS", NAMESPACE)
}

/// The objects that are there before, and where they are created. The namespace comes first.
#[must_use]
pub fn objects() -> Vec<(String, Value)> {
    let containers = json!([{"name": "c", "image": "registry.k8s.io/pause:3.10"}]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one", "labels": {"a": "b"},
            "annotations": {"seccomp.palisade.dev/other": "kept"}, "finalizers": ["example.com/wait"]},
        "spec": {"containers": containers, "tolerations": [], "automountServiceAccountToken": false}});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers, "restartPolicy": "Never"}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job", "finalizers": ["example.com/wait"]},
        "spec": {"suspend": true, "template": template}});
    let mut always = template;
    always["spec"]["restartPolicy"] = json!("Always");
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "deployment"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": always}});
    vec![
        (
            "/api/v1/namespaces".to_owned(),
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE,
                "labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}),
        ),
        (at("/api/v1/namespaces/NS/pods"), pod),
        (at("/apis/batch/v1/namespaces/NS/jobs"), job),
        (at("/apis/apps/v1/namespaces/NS/deployments"), deployment),
        (
            "/apis/palisade.dev/v1alpha1/profilepolicies".to_owned(),
            json!({"apiVersion": "palisade.dev/v1alpha1", "kind": "ProfilePolicy", "metadata": {"name": "outage",
                "finalizers": ["example.com/wait"]}, "spec": {"namespaceSelector": {"matchLabels": {"x": "y"}},
                "seccomp": {"defaultProfile": {"type": "RuntimeDefault"}}}}),
        ),
    ]
}

/// The writes, in order: deletions come last.
#[must_use]
pub fn cases() -> Vec<OutageCase> {
    let mut cases = Vec::new();
    let mut case = |passes: bool, name, method, path: &str, body: Value| {
        cases.push(OutageCase { name, method, path: at(path), body, passes });
    };
    let (pod, namespace) = ("/api/v1/namespaces/NS/pods/one", "/api/v1/namespaces/NS");
    let policy = "/apis/palisade.dev/v1alpha1/profilepolicies/outage";
    let (job, deployment) =
        ("/apis/batch/v1/namespaces/NS/jobs/job", "/apis/apps/v1/namespaces/NS/deployments/deployment");
    let metadata = |field: &str, value: Value| json!({"metadata": {field: value}});
    let spec = |field: &str, value: Value| json!({"spec": {field: value}});
    let container = json!([{"name": "c", "image": "registry.k8s.io/pause:3.9"}]);

    case(
        false,
        "a new pod",
        "POST",
        "/api/v1/namespaces/NS/pods",
        json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "two"}, "spec": {"containers": container}}),
    );
    case(false, "another image", "PATCH", pod, spec("containers", container));
    case(
        false,
        "an ephemeral container",
        "PATCH",
        "/api/v1/namespaces/NS/pods/one/ephemeralcontainers",
        spec("ephemeralContainers", json!([{"name": "debug", "image": "registry.k8s.io/pause:3.10"}])),
    );
    for (name, key) in [
        ("an annotation of a profile", "seccomp.palisade.dev/pod"),
        ("an annotation of a container's profile", "container.seccomp.palisade.dev/c"),
        ("the annotation of a constraint", "openshift.io/scc"),
    ] {
        case(false, name, "PATCH", pod, metadata("annotations", json!({key: "x"})));
    }
    case(
        false,
        "the removal of a judged annotation",
        "PATCH",
        pod,
        metadata("annotations", json!({"seccomp.palisade.dev/other": null})),
    );
    case(
        false,
        "the level of a namespace",
        "PATCH",
        namespace,
        metadata("labels", json!({"pod-security.kubernetes.io/enforce": "privileged"})),
    );
    case(
        false,
        "the removal of a namespace's level",
        "PATCH",
        namespace,
        metadata("labels", json!({"pod-security.kubernetes.io/enforce": null})),
    );
    case(
        false,
        "a warning level",
        "PATCH",
        namespace,
        metadata("labels", json!({"pod-security.kubernetes.io/warn": "restricted"})),
    );
    case(
        false,
        "a new namespace with a level",
        "POST",
        "/api/v1/namespaces",
        json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "outage-level", "labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}),
    );
    case(
        false,
        "the rules of a policy",
        "PATCH",
        policy,
        spec("seccomp", json!({"defaultProfile": {"type": "Unconfined"}})),
    );

    case(true, "a label of a pod", "PATCH", pod, metadata("labels", json!({"more": "labels", "a": null})));
    case(
        true,
        "an annotation that no policy looks at",
        "PATCH",
        pod,
        metadata("annotations", json!({"example.com/note": "x"})),
    );
    case(
        true,
        "another finalizer",
        "PATCH",
        pod,
        metadata("finalizers", json!(["example.com/wait", "example.com/more"])),
    );
    case(
        true,
        "a toleration",
        "PATCH",
        pod,
        spec(
            "tolerations",
            json!([
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        {"key": "more", "operator": "Exists"}]),
        ),
    );
    case(true, "a deadline", "PATCH", pod, spec("activeDeadlineSeconds", json!(3600)));
    case(
        true,
        "the status of a pod",
        "PATCH",
        "/api/v1/namespaces/NS/pods/one/status",
        json!({"status": {"phase": "Running"}}),
    );
    case(true, "a label of a namespace", "PATCH", namespace, metadata("labels", json!({"team": "x"})));
    case(
        true,
        "an annotation of a namespace",
        "PATCH",
        namespace,
        metadata("annotations", json!({"note": "x"})),
    );
    case(
        true,
        "a new namespace",
        "POST",
        "/api/v1/namespaces",
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "outage-plain"}}),
    );
    case(true, "a finalizer of a job is removed", "PATCH", job, metadata("finalizers", Value::Null));
    case(true, "a label of a deployment", "PATCH", deployment, metadata("labels", json!({"team": "x"})));
    case(true, "the template of a deployment", "PATCH", deployment, spec("paused", json!(true)));
    case(true, "a label of a policy", "PATCH", policy, metadata("labels", json!({"team": "x"})));
    case(true, "a policy is deleted", "DELETE", policy, Value::Null);
    case(true, "its finalizer is removed", "PATCH", policy, metadata("finalizers", Value::Null));
    case(true, "a pod is deleted", "DELETE", pod, Value::Null);
    case(true, "its finalizers are removed", "PATCH", pod, metadata("finalizers", Value::Null));
    case(true, "the namespace is deleted", "DELETE", namespace, Value::Null);
    cases
}
