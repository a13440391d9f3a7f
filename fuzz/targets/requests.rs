#![no_main]
//! Any requests through the router, in process, by an editor of a restricted namespace: nothing panics, nothing
//! is stored that the decoder of its kind refuses, and every pod stored in the namespace is one that a reading of the
//! standard allows which shares no code with the server (`oracle/restricted.rs`).
//!
//! An input is either text (`# ` and then requests as people write them, divided by lines of `---`: the seeds) or bytes
//! that choose from tables of methods, paths, headers and bodies and change the bodies at any place.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use palisade_apimachinery::{Typed, decode::DecodeError};
use palisade_apiserver::auth::UserInfo;
use palisade_apiserver::http::Body;
use palisade_apiserver::storage::{Expect, Range, Write};
use palisade_apiserver::{Router, Server, registry};
use palisade_model::compat::Compat;
use serde_json::{Value, json};
use tower::Service as _;

const MOST_REQUESTS: usize = 6;

const METHODS: &[&str] = &["POST", "PUT", "PATCH", "PATCH", "GET", "DELETE", "HEAD"];

const PATHS: &[&str] = &[
    "/api/v1/namespaces/r/pods",
    "/api/v1/namespaces/r/pods/p",
    "/api/v1/namespaces/r/pods/q",
    "/api/v1/namespaces/r/pods/p/status",
    "/api/v1/namespaces/r/pods/p/ephemeralcontainers",
    "/api/v1/namespaces/r/pods/p/resize",
    "/api/v1/namespaces/r/pods/p/binding",
    "/api/v1/namespaces/r/pods/p/eviction",
    "/api/v1/namespaces/r/pods/p/log",
    "/api/v1/namespaces/r/pods/p/exec",
    "/api/v1/namespaces/r/bindings",
    "/api/v1/pods",
    "/api/v1/watch/namespaces/r/pods",
    "/api/v1/namespaces/r",
    "/api/v1/namespaces/r/finalize",
    "/api/v1/namespaces/r/configmaps",
    "/api/v1/namespaces/r/configmaps/m",
    "/api/v1/namespaces/r/secrets/s",
    "/api/v1/namespaces/r/services/s",
    "/api/v1/namespaces/r/serviceaccounts/default/token",
    "/api/v1/namespaces/r/podtemplates",
    "/api/v1/namespaces/r/replicationcontrollers",
    "/api/v1/namespaces/r/events",
    "/apis/events.k8s.io/v1/namespaces/r/events",
    "/apis/apps/v1/namespaces/r/deployments",
    "/apis/apps/v1/namespaces/r/deployments/d",
    "/apis/apps/v1/namespaces/r/deployments/d/scale",
    "/apis/apps/v1/namespaces/r/replicasets/d",
    "/apis/apps/v1/namespaces/r/statefulsets/d",
    "/apis/apps/v1/namespaces/r/daemonsets/d",
    "/apis/batch/v1/namespaces/r/jobs/j",
    "/apis/batch/v1/namespaces/r/cronjobs/j",
    "/apis/example.com/v1/namespaces/r/widgets",
    "/apis/example.com/v1/namespaces/r/widgets/w",
    "/apis/example.com/v1/namespaces/r/widgets/w/status",
    "/apis/example.com/v1/namespaces/r/widgets/w/scale",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/r/roles/x",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/r/rolebindings/x",
    "/apis/coordination.k8s.io/v1/namespaces/r/leases/l",
    "/apis/policy/v1beta1/podsecuritypolicies/psp",
    "/apis/palisade.dev/v1alpha1/profilepolicies/pp",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    "/apis/authorization.k8s.io/v1/namespaces/r/localsubjectaccessreviews",
    "/apis/authentication.k8s.io/v1/selfsubjectreviews",
    "/apis",
    "/openapi/v3/api/v1",
    "/readyz",
    "/metrics",
    "/palisade/set-aside",
    "/palisade/set-aside/x",
];

const QUERIES: &[&str] = &[
    "",
    "fieldManager=x",
    "fieldManager=y&force=true",
    "fieldValidation=Strict",
    "fieldValidation=Ignore",
    "dryRun=All",
    "limit=1",
    "limit=-1&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0Ijoienp6L3p6eiJ9",
    "limit=9223372036854775807&resourceVersion=1",
    "resourceVersion=0",
    "resourceVersion=18446744073709551615&resourceVersionMatch=NotOlderThan",
    "watch=true&timeoutSeconds=1",
    "watch=true&resourceVersion=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
    "labelSelector=a%20in%20(b)",
    "fieldSelector=metadata.name%3Dp",
    "gracePeriodSeconds=9223372036854775807",
    "gracePeriodSeconds=-1&propagationPolicy=Foreground",
    "tailLines=-1&sinceSeconds=9223372036854775807&limitBytes=0",
];

const TYPES: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "application/vnd.kubernetes.protobuf",
    "text/plain",
];

const ACCEPTS: &[&str] = &[
    "",
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
];

/// Names that mean something somewhere.
const KEYS: &[&str] = &[
    "securityContext",
    "containerDefaults",
    "privileged",
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "hostUsers",
    "capabilities",
    "add",
    "drop",
    "procMount",
    "seccompProfile",
    "appArmorProfile",
    "type",
    "localhostProfile",
    "configMap",
    "runAsUser",
    "runAsGroup",
    "runAsNonRoot",
    "allowPrivilegeEscalation",
    "seLinuxOptions",
    "user",
    "role",
    "windowsOptions",
    "hostProcess",
    "sysctls",
    "volumes",
    "hostPath",
    "path",
    "ports",
    "hostPort",
    "containerPort",
    "containers",
    "initContainers",
    "ephemeralContainers",
    "targetContainerName",
    "annotations",
    "labels",
    "ownerReferences",
    "finalizers",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
    "uid",
    "managedFields",
    "fieldsV1",
    "livenessProbe",
    "httpGet",
    "host",
    "lifecycle",
    "postStart",
    "os",
    "name",
    "namespace",
    "generateName",
    "status",
    "spec",
    "template",
    "metadata",
    "restartPolicy",
    "resources",
    "limits",
    "memory",
    "supplementalGroups",
    "runWithSupplementalGroups",
    "fsGroup",
    "runtimeClassName",
    "nodeName",
    "env",
    "value",
    "container.seccomp.security.alpha.kubernetes.io/c",
    "seccomp.security.alpha.kubernetes.io/pod",
    "container.apparmor.security.beta.kubernetes.io/c",
    "pod-security.kubernetes.io/enforce",
    "op",
    "replicas",
    "data",
    "$patch",
    "$retainKeys",
    "$setElementOrder/containers",
    "items",
    "apiVersion",
    "kind",
];

/// Values that mean something somewhere, as JSON.
static VALUES: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let texts = [
        "null",
        "true",
        "false",
        "0",
        "-1",
        "1",
        "1.5",
        "0.0",
        "1e3",
        "18446744073709551615",
        "9223372036854775808",
        "-9223372036854775809",
        "\"\"",
        "\"unconfined\"",
        "\"Unconfined\"",
        "\"RuntimeDefault\"",
        "\"Localhost\"",
        "\"ConfigMap\"",
        "\"runtime/default\"",
        "\"localhost/x\"",
        "\"ALL\"",
        "\"SYS_ADMIN\"",
        "\"NET_BIND_SERVICE\"",
        "\"Unmasked\"",
        "\"Default\"",
        "\"windows\"",
        "\"replace\"",
        "\"delete\"",
        "\"merge\"",
        "\"a\\u0000b\"",
        "\"129e6\"",
        "\"2026-01-01T00:00:00Z\"",
        "[]",
        "[null]",
        "{}",
        "{\"a\":null}",
        "{\"type\":\"Unconfined\"}",
        "{\"type\":\"RuntimeDefault\"}",
        "{\"type\":\"Localhost\",\"localhostProfile\":\"x\"}",
        "{\"privileged\":true}",
        "{\"privileged\":true,\"runAsUser\":0}",
        "{\"add\":[\"SYS_ADMIN\"]}",
        "{\"drop\":[\"ALL\"]}",
        "{\"containerDefaults\":{\"privileged\":true}}",
        "{\"hostNetwork\":true}",
        "{\"hostProcess\":true}",
        "{\"path\":\"/\"}",
        "[{\"name\":\"kernel.msgmax\",\"value\":\"1\"}]",
        "[{\"name\":\"h\",\"hostPath\":{\"path\":\"/\"}}]",
        "[{\"name\":\"d\",\"image\":\"i\"}]",
        "[{\"containerPort\":80,\"hostPort\":80}]",
        "{\"httpGet\":{\"host\":\"a\",\"port\":80}}",
    ];
    texts.iter().filter_map(|text| serde_json::from_str(text).ok()).collect()
});

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "r", "labels": {"a": "b"}, "annotations": {"k": "v"}},
        "spec": template_spec()})
}

fn template_spec() -> Value {
    let context = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    json!({"securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "c", "image": "i", "securityContext": context, "ports": [{"containerPort": 80}],
            "resources": {"limits": {"memory": "1Gi"}}}],
        "volumes": [{"name": "v", "emptyDir": {}}]})
}

static BODIES: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let meta = |name: &str| json!({"name": name, "namespace": "r"});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": template_spec()});
    let selector = json!({"matchLabels": {"a": "b"}});
    let workload = |kind: &str| {
        json!({"apiVersion": "apps/v1", "kind": kind, "metadata": meta("d"),
            "spec": {"replicas": 1, "serviceName": "s", "selector": selector, "template": template}})
    };
    let context = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    vec![
        pod("p"),
        pod("q"),
        json!({"spec": {"ephemeralContainers": [{"name": "e", "image": "i", "securityContext": context}]}}),
        json!({"apiVersion": "v1", "kind": "EphemeralContainers", "metadata": meta("p"),
            "ephemeralContainers": [{"name": "e", "image": "i", "securityContext": context}]}),
        json!({"metadata": {"annotations": {"container.seccomp.security.alpha.kubernetes.io/c": "unconfined"}}}),
        json!({"spec": {"securityContext": {"containerDefaults": {"privileged": false}}}}),
        json!({"spec": {"containers": [{"name": "c", "image": "j"}]}}),
        json!([{"op": "replace", "path": "/spec/containers/0/image", "value": "j"}]),
        json!([{"op": "add", "path": "/metadata/labels/x", "value": "y"}, {"op": "test", "path": "/spec/nodeName", "value": null}]),
        json!([{"op": "copy", "from": "/metadata", "path": "/metadata/annotations/x"}]),
        json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}),
        json!({"apiVersion": "v1", "kind": "Binding", "metadata": meta("p"), "target": {"kind": "Node", "name": "n"}}),
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta("p"), "deleteOptions": {"gracePeriodSeconds": 1}}),
        json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background", "preconditions": {"uid": "u"}}),
        json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": meta("d"), "spec": {"replicas": 2}}),
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["a"], "expirationSeconds": 600}}),
        workload("Deployment"),
        workload("ReplicaSet"),
        workload("StatefulSet"),
        workload("DaemonSet"),
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta("j"), "spec": {"template": template}}),
        json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": meta("j"),
            "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template}}}}),
        json!({"apiVersion": "v1", "kind": "PodTemplate", "metadata": meta("t"), "template": template}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("m"), "data": {"k": "v"}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta("s"), "data": {"k": "dg=="}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": meta("s"), "spec": {"ports": [{"port": 80}]}}),
        json!({"apiVersion": "v1", "kind": "Event", "metadata": meta("e"), "involvedObject": {"kind": "Pod", "namespace": "r", "name": "p"}}),
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "labels": null}, "spec": {"replicas": 1}}),
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta("l"), "spec": {"leaseDurationSeconds": 1}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta("x"),
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"namespace": "r", "verb": "get", "resource": "pods"}}}),
        json!({"apiVersion": "palisade.dev/v1alpha1", "kind": "ProfilePolicy", "metadata": {"name": "pp"},
            "spec": {"seccomp": {"defaultProfile": {"type": "RuntimeDefault"}, "allowedProfiles": {"types": ["RuntimeDefault"]}}}}),
        json!({"apiVersion": "policy/v1beta1", "kind": "PodSecurityPolicy", "metadata": {"name": "psp"},
            "spec": {"seLinux": {"rule": "RunAsAny"}, "runAsUser": {"rule": "RunAsAny"}, "fsGroup": {"rule": "RunAsAny"},
                "supplementalGroups": {"rule": "RunAsAny"}, "volumes": ["*"]}}),
    ]
});

fn definition() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}]}})
}

/// A request as it is sent.
struct Step {
    method: String,
    uri: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// What was there at the beginning, and is there again after each input.
struct Kept {
    object: Typed,
    fields: Vec<String>,
    revision: u64,
}

struct World {
    runtime: tokio::runtime::Runtime,
    user: Router,
    kept: BTreeMap<(String, String), Kept>,
    readable: Box<dyn Fn(&str, &[u8]) -> std::result::Result<(), DecodeError>>,
    inputs: usize,
}

impl World {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let router = Server::builder().compat(Compat::designs()).router().expect("a router");
        let user = router.as_user(UserInfo::new("fuzz", &["system:authenticated"]));
        let restricted = json!({"pod-security.kubernetes.io/enforce": "restricted"});
        let subjects = json!([{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "fuzz"}]);
        let more = json!([
            {"apiGroups": ["apiextensions.k8s.io", "palisade.dev", "policy", "example.com"], "resources": ["*"], "verbs": ["*"]},
            {"apiGroups": [""], "resources": ["pods/*", "bindings"], "verbs": ["*"]},
            {"nonResourceURLs": ["*"], "verbs": ["*"]},
        ]);
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        let role = |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
        for (path, body) in [
            ("/api/v1/namespaces".to_owned(), json!({"metadata": {"name": "r", "labels": restricted}})),
            (format!("{rbac}/clusterroles"), json!({"metadata": {"name": "more"}, "rules": more})),
            (
                format!("{rbac}/clusterrolebindings"),
                json!({"metadata": {"name": "more"}, "subjects": subjects, "roleRef": role("more")}),
            ),
            (
                format!("{rbac}/namespaces/r/rolebindings"),
                json!({"metadata": {"name": "edit"}, "subjects": subjects, "roleRef": role("edit")}),
            ),
            ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned(), definition()),
            ("/api/v1/namespaces/r/pods".to_owned(), pod("p")),
        ] {
            let step = Step {
                method: "POST".to_owned(),
                uri: path.clone(),
                headers: vec![("content-type".to_owned(), "application/json".to_owned())],
                body: body.to_string().into_bytes(),
            };
            let code = runtime.block_on(send(&router, step));
            assert_eq!(code, Some(201), "{path}");
        }
        let mut kept = BTreeMap::new();
        for entry in user.api().registry.served().stored() {
            for object in entry.bucket.list(&Range::All).objects {
                let fields = object.fields().iter().map(ToString::to_string).collect();
                let typed = entry.kind.read(entry.typed(object.parse())).expect("readable");
                let kept_object = Kept { object: typed, fields, revision: object.revision };
                kept.insert((entry.bucket.name().to_string(), object.key().to_owned()), kept_object);
            }
        }
        let readable = Box::new(registry::readable(user.api().version));
        Self { runtime, user, kept, readable, inputs: 0 }
    }

    /// Every object that is new is readable, every pod of the namespace allowed.
    fn check(&self, after: u64) {
        for bucket in self.user.api().store.buckets() {
            for object in bucket.list(&Range::All).objects.iter().filter(|object| object.revision > after) {
                let shown = || {
                    format!("{} {}: {}", bucket.name(), object.key(), String::from_utf8_lossy(&object.json))
                };
                if let Err(why) = (self.readable)(bucket.name(), &object.json) {
                    panic!("stored, and cannot be read: {why}\n{}", shown());
                }
                if &**bucket.name() == "pods" && object.namespace() == "r" {
                    let problems = restricted::problems(&Value::Object(object.parse()));
                    assert!(problems.is_empty(), "a wrong yes: {problems:?}\n{}", shown());
                }
            }
        }
    }

    /// Puts everything back.
    fn reset(&mut self) {
        let store = &self.user.api().store;
        let mut writes = Vec::new();
        for bucket in store.buckets() {
            for object in bucket.list(&Range::All).objects {
                let place = (bucket.name().to_string(), object.key().to_owned());
                let expect = Expect::Revision(object.revision);
                let write = match self.kept.get(&place) {
                    Some(kept) if kept.revision == object.revision => continue,
                    Some(kept) => {
                        Write::store(bucket.clone(), object.key(), expect, kept.object.clone(), kept.fields.clone())
                    }
                    None => {
                        let last = Value::Object(object.parse());
                        Write::remove(bucket.clone(), object.key(), expect, last, Vec::new())
                    }
                };
                writes.push((place, write));
            }
        }
        for (place, kept) in &self.kept {
            let bucket = store.bucket(&place.0);
            if bucket.get(&place.1).is_none() {
                let write = Write::store(bucket, &place.1, Expect::Absent, kept.object.clone(), kept.fields.clone());
                writes.push((place.clone(), write));
            }
        }
        for (place, write) in writes {
            let object = self.runtime.block_on(store.commit(write)).expect("put back");
            if let Some(kept) = self.kept.get_mut(&place) {
                kept.revision = object.revision;
            }
        }
    }

    fn run(&mut self, steps: Vec<Step>) {
        for step in steps {
            let before = self.user.api().store.revision();
            self.runtime.block_on(send(&self.user, step));
            self.check(before);
        }
        self.reset();
        self.inputs += 1;
    }
}

/// Sends a request and reads the answer, unless it is a watch; none where it cannot even be built.
async fn send(router: &Router, step: Step) -> Option<u16> {
    let mut request = Request::builder().method(step.method.as_str()).uri(step.uri.as_str());
    for (name, value) in &step.headers {
        request = request.header(name.as_str(), value.as_str());
    }
    let request = request.body(Full::new(Bytes::from(step.body))).ok()?;
    let response = router.clone().call(request).await.ok()?;
    let code = response.status().as_u16();
    let body = response.into_body();
    if !matches!(body, Body::Watch(_) | Body::Stream(_)) {
        let _ = body.collect().await;
    } else {
        // The watch begins while this is polled, and ends when it is dropped.
        let mut body = body;
        let _ = tokio::time::timeout(std::time::Duration::from_millis(1), body.frame()).await;
    }
    Some(code)
}

/// Requests as people write them.
fn from_text(text: &str) -> Vec<Step> {
    let requests = text.split("\n---\n").take(MOST_REQUESTS);
    requests
        .filter_map(|request| {
            let (head, body) = request.split_once("\n\n").unwrap_or((request, ""));
            let mut lines = head.lines().filter(|line| !line.starts_with('#'));
            let (method, uri) = lines.next()?.split_once(' ')?;
            let headers = lines.filter_map(|line| line.split_once(": "));
            let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            Some(Step {
                method: method.to_owned(),
                uri: uri.to_owned(),
                headers,
                body: body.as_bytes().to_vec(),
            })
        })
        .collect()
}

fn choose<'a>(u: &mut Unstructured<'_>, from: &[&'a str]) -> Result<&'a str> {
    u.choose(from).copied()
}

/// Every place in a value.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, item)| places(item, &format!("{at}/{i}"), found))
        }
        Value::Object(fields) => {
            for (key, field) in fields {
                places(field, &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), found);
            }
        }
        _ => {}
    }
}

fn change(body: &mut Value, u: &mut Unstructured<'_>) -> Result<()> {
    let mut found = Vec::new();
    places(body, "", &mut found);
    let place = u.choose(&found)?.clone();
    let value = u.choose(&VALUES)?.clone();
    let key = choose(u, KEYS)?;
    let Some(target) = body.pointer_mut(&place) else { return Ok(()) };
    match (u.int_in_range(0..=3_u8)?, target) {
        (0, target) => *target = value,
        (1, Value::Object(fields)) => {
            fields.insert(key.to_owned(), value);
        }
        (1, Value::Array(items)) => items.push(value),
        (2, Value::Object(fields)) => {
            fields.remove(key);
        }
        (2, Value::Array(items)) => {
            items.pop();
        }
        (_, Value::Array(items)) => {
            if let Some(last) = items.last().cloned() {
                items.push(last);
            }
        }
        (_, Value::Object(fields)) => {
            fields.insert(key.to_owned(), json!({key: value}));
        }
        (_, target) => *target = value,
    }
    Ok(())
}

fn from_bytes(u: &mut Unstructured<'_>) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for _ in 0..u.int_in_range(1..=MOST_REQUESTS)? {
        let method = choose(u, METHODS)?.to_owned();
        let path = if u.ratio(15_u8, 16_u8)? {
            choose(u, PATHS)?.to_owned()
        } else {
            format!("/{}", u.arbitrary::<&str>()?)
        };
        let query = if u.ratio(15_u8, 16_u8)? {
            choose(u, QUERIES)?.to_owned()
        } else {
            u.arbitrary::<&str>()?.to_owned()
        };
        let uri = if query.is_empty() { path } else { format!("{path}?{query}") };
        let content_type = choose(u, TYPES)?.to_owned();
        let mut headers = vec![
            ("content-type".to_owned(), content_type),
            ("accept".to_owned(), choose(u, ACCEPTS)?.to_owned()),
        ];
        if u.ratio(1_u8, 32_u8)? {
            headers.push((u.arbitrary::<&str>()?.to_owned(), u.arbitrary::<&str>()?.to_owned()));
        }
        let body = if u.ratio(31_u8, 32_u8)? {
            let mut body = u.choose(&BODIES)?.clone();
            for _ in 0..u.int_in_range(0..=4_u8)? {
                change(&mut body, u)?;
            }
            body.to_string().into_bytes()
        } else {
            u.arbitrary::<&[u8]>()?.to_vec()
        };
        steps.push(Step { method, uri, headers, body });
    }
    Ok(steps)
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

fuzz_target!(|bytes: &[u8]| {
    let steps = match std::str::from_utf8(bytes) {
        Ok(text) if text.starts_with('#') => from_text(text),
        _ => match from_bytes(&mut Unstructured::new(bytes)) {
            Ok(steps) => steps,
            Err(_) => return,
        },
    };
    WORLD.with_borrow_mut(|world| {
        // A server does not live for ever: its logs and caches begin anew now and then.
        if world.as_ref().is_some_and(|world| world.inputs >= 5000) {
            *world = None;
        }
        world.get_or_insert_with(World::new).run(steps);
    });
});
