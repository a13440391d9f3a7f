//! Objects of a running cluster, checked and explained like files.
//!
//! Each object becomes a text of its own, named `cluster:<namespace>/<kind>/<name>`, in the YAML that `kubectl get` prints,
//! without what the API server adds for itself. What another workload controls is checked through that workload, if it exists,
//! is the one that the owner reference names, and has the same findings: every user can write an owner reference.

use std::collections::HashMap;

use clap::Args;
use palisade_base::version::KubeVersion;
use palisade_model::{
    compat::Compat,
    server_version::kubelet_of,
    workload::{WORKLOADS, WorkloadKind, group_of},
};
use palisade_yaml::to_yaml;
use serde_json::{Value, json};

use crate::{
    cluster::{Cluster, ClusterArgs, ClusterError},
    failure::Failure,
    input::Input,
};

/// Which objects of which cluster `check` checks.
#[derive(Debug, Args)]
pub struct LiveArgs {
    /// Check the pods and workloads of a cluster instead of files
    #[arg(long, conflicts_with_all = ["fix", "unsafe_fixes", "fix_partial", "diff"])]
    pub cluster: bool,
    /// Which cluster.
    #[command(flatten)]
    pub connection: ClusterArgs,
    /// With --cluster: all namespaces instead of that of --namespace or of the context
    #[arg(long, short = 'A', requires = "cluster", conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// With --cluster: also objects that a workload controls and that have the same findings as the workload
    #[arg(long, requires = "cluster")]
    pub owned: bool,
}

/// As many objects as one answer holds.
const PAGE: usize = 500;

fn listed() -> impl Iterator<Item = &'static WorkloadKind> {
    WORKLOADS.iter().filter(|kind| kind.built_in && kind.group != "extensions")
}

fn collection(kind: &WorkloadKind, namespace: Option<&str>) -> String {
    let root = if kind.group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{}/v1", kind.group) };
    namespace.map_or_else(
        || format!("{root}/{}", kind.resource),
        |namespace| format!("{root}/namespaces/{namespace}/{}", kind.resource),
    )
}

/// An object of the cluster.
#[derive(Debug)]
pub struct LiveObject {
    /// The object as a text.
    pub input: Input,
    /// The object that controls it, as a position in the same list: it exists, and nothing controls it in turn.
    pub controller: Option<usize>,
}

/// What a cluster has.
#[derive(Debug)]
pub struct LiveWorkloads {
    /// Pods and workloads.
    pub objects: Vec<LiveObject>,
    /// Whose rules the API server applies to them.
    pub compat: Compat,
    /// The namespace that was listed; all without one.
    pub namespace: Option<String>,
    /// `Namespace` and `SecurityException` objects, as far as they can be read.
    pub facts: Vec<Value>,
    /// Why namespaces could not be read.
    pub unreadable_namespaces: Option<ClusterError>,
    /// Why exceptions could not be read.
    pub unreadable_exceptions: Option<ClusterError>,
}

/// Objects that the user may not read are not known; every other error ends the command.
fn readable(
    result: Result<Vec<Value>, ClusterError>,
) -> Result<(Vec<Value>, Option<ClusterError>), ClusterError> {
    match result {
        Ok(objects) => Ok((objects, None)),
        Err(error) if error.is_forbidden() => Ok((Vec::new(), Some(error))),
        Err(error) => Err(error),
    }
}

/// All objects at a path, with the kind that lists leave out; none where the API server does not have the kind.
async fn all(
    cluster: &Cluster,
    path: &str,
    api_version: &str,
    kind: &str,
) -> Result<Vec<Value>, ClusterError> {
    let mut objects = Vec::new();
    let mut token = String::new();
    loop {
        let page = cluster.send("GET", &format!("{path}?limit={PAGE}&continue={token}"), None).await?;
        let Some(mut page) = page else { return Ok(objects) };
        page["metadata"]["continue"].as_str().unwrap_or_default().clone_into(&mut token);
        let Value::Array(items) = page["items"].take() else {
            return Err(cluster.not_an_api_server(format!("the list at {path} has no items")));
        };
        objects.extend(items.into_iter().map(|item| named_kind(item, api_version, kind)));
        if token.is_empty() {
            return Ok(objects);
        }
    }
}

fn named_kind(mut object: Value, api_version: &str, kind: &str) -> Value {
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    object
}

async fn namespaces(cluster: &Cluster, scope: Option<&str>) -> Result<Vec<Value>, ClusterError> {
    let Some(name) = scope else { return all(cluster, "/api/v1/namespaces", "v1", "Namespace").await };
    let found = cluster.send("GET", &format!("/api/v1/namespaces/{name}"), None).await?;
    Ok(found.into_iter().map(|object| named_kind(object, "v1", "Namespace")).collect())
}

/// The pods and workloads of a namespace, or of all.
pub async fn workloads(args: &LiveArgs, namespace: Option<&str>) -> Result<LiveWorkloads, Failure> {
    let cluster = args.connection.connect().await?;
    let compat = cluster.compat().await?;
    let scope = match (args.all_namespaces, namespace) {
        (true, _) => None,
        (false, Some(namespace)) => Some(namespace.to_owned()),
        (false, None) => Some(cluster.client.default_namespace().to_owned()),
    };
    let mut objects = Vec::new();
    for kind in listed() {
        let mut token = String::new();
        loop {
            let path = format!("{}?limit={PAGE}&continue={token}", collection(kind, scope.as_deref()));
            let mut page = cluster.get(&path).await?;
            // Tokens are opaque, and made of what a query takes.
            page["metadata"]["continue"].as_str().unwrap_or_default().clone_into(&mut token);
            let Value::Array(items) = page["items"].take() else {
                let reason = format!("the list of {} has no items", kind.resource);
                return Err(cluster.not_an_api_server(reason).into());
            };
            objects.extend(items.into_iter().map(|object| (kind, object)));
            if token.is_empty() {
                break;
            }
        }
    }
    let controllers = controllers(&objects);
    let made = objects.into_iter().zip(controllers);
    let live = made
        .map(|((kind, object), controller)| LiveObject { input: input(object, kind), controller })
        .collect();
    let (mut facts, unreadable_namespaces) = readable(namespaces(&cluster, scope.as_deref()).await)?;
    let exceptions = "/apis/palisade.dev/v1alpha1/securityexceptions";
    let exceptions = all(&cluster, exceptions, "palisade.dev/v1alpha1", "SecurityException").await;
    let (mut exceptions, unreadable_exceptions) = readable(exceptions)?;
    facts.append(&mut exceptions);
    let namespace = scope;
    Ok(LiveWorkloads {
        objects: live,
        compat,
        namespace,
        facts,
        unreadable_namespaces,
        unreadable_exceptions,
    })
}

fn text<'o>(object: &'o Value, pointer: &str) -> &'o str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// For each object the one at the top of what controls it. An owner reference counts only if it names an object that exists, by
/// identity, kind, group, namespace and name; a chain that leads back to itself leads nowhere.
fn controllers(objects: &[(&'static WorkloadKind, Value)]) -> Vec<Option<usize>> {
    let by_uid: HashMap<&str, usize> = objects
        .iter()
        .enumerate()
        .map(|(at, (_, object))| (text(object, "/metadata/uid"), at))
        .filter(|(uid, _)| !uid.is_empty())
        .collect();
    let direct = |at: usize| -> Option<usize> {
        let (_, object) = objects.get(at)?;
        let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array)?;
        let owner = owners.iter().find(|owner| owner["controller"] == true)?;
        let found = *by_uid.get(owner["uid"].as_str()?)?;
        let (kind, controller) = objects.get(found)?;
        let same = owner["kind"] == kind.kind
            && group_of(owner["apiVersion"].as_str()?) == kind.group
            && text(controller, "/metadata/name") == owner["name"].as_str()?
            && text(controller, "/metadata/namespace") == text(object, "/metadata/namespace");
        same.then_some(found)
    };
    let top = |at: usize| {
        let mut controller = direct(at)?;
        // A pod of a CronJob has two above it; nothing has more than a few.
        for _ in 0..8 {
            match direct(controller) {
                None => return Some(controller),
                Some(next) => controller = next,
            }
        }
        None
    };
    (0..objects.len()).map(top).collect()
}

/// An object as a text.
fn input(mut object: Value, kind: &WorkloadKind) -> Input {
    let name = format!(
        "cluster:{}/{}/{}",
        text(&object, "/metadata/namespace"),
        kind.kind.to_ascii_lowercase(),
        text(&object, "/metadata/name")
    );
    let api_version = if kind.group.is_empty() { "v1".to_owned() } else { format!("{}/v1", kind.group) };
    let mut whole = json!({"apiVersion": api_version, "kind": kind.kind});
    if let (Value::Object(fields), Value::Object(whole)) = (&mut object, &mut whole) {
        fields.remove("status");
        if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
            metadata.remove("managedFields");
            if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
                annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
            }
        }
        whole.append(fields);
    }
    Input::Live { name: name.into(), text: to_yaml(&whole, 0).into() }
}

/// Short names people use.
const SHORT_NAMES: &[(&str, &str)] = &[
    ("po", "pods"),
    ("deploy", "deployments"),
    ("ds", "daemonsets"),
    ("sts", "statefulsets"),
    ("rs", "replicasets"),
    ("cj", "cronjobs"),
    ("rc", "replicationcontrollers"),
];

fn kind_named(word: &str) -> Option<&'static WorkloadKind> {
    let word = word.to_ascii_lowercase();
    let resource =
        SHORT_NAMES.iter().find(|(short, _)| *short == word).map_or(word.as_str(), |(_, long)| long);
    listed().find(|kind| kind.resource == resource || kind.kind.eq_ignore_ascii_case(resource))
}

/// What `--live` names: `POD`, `NAMESPACE/POD`, `KIND/NAME` or `NAMESPACE/KIND/NAME`.
fn named<'a>(words: &'a str, namespace: &'a str) -> Option<(&'a str, &'static WorkloadKind, &'a str)> {
    let pod = kind_named("pod")?;
    let parts: Vec<&str> = words.split('/').collect();
    if parts.iter().any(|part| part.is_empty()) {
        return None;
    }
    match parts.as_slice() {
        [name] => Some((namespace, pod, name)),
        [first, name] => Some(kind_named(first).map_or((first, pod, name), |kind| (namespace, kind, name))),
        [namespace, kind, name] => Some((namespace, kind_named(kind)?, name)),
        _ => None,
    }
}

/// One object, and whose rules apply to it: the API server's, and its node's kubelet's.
pub async fn object(
    cluster: &ClusterArgs,
    words: &str,
    namespace: Option<&str>,
) -> Result<(Input, Compat), Failure> {
    let cluster = cluster.connect().await?;
    let fallback = namespace.unwrap_or_else(|| cluster.client.default_namespace()).to_owned();
    let (namespace, kind, name) = named(words, &fallback).ok_or_else(|| {
        Failure::input(format!(
            "--live {words:?}: write NAMESPACE/POD, or KIND/NAME with --namespace, or NAMESPACE/KIND/NAME"
        ))
    })?;
    let path = format!("{}/{name}", collection(kind, Some(namespace)));
    let found = cluster.get(&path).await?;
    let mut compat = cluster.compat().await?;
    if let Some(kubelet) = kubelet(&cluster, found.pointer("/spec/nodeName").and_then(Value::as_str)).await {
        compat.kubelet = kubelet;
    }
    Ok((input(found, kind), compat))
}

/// The kubelet of a node; without a node, the oldest there is: that is where a pod may land.
async fn kubelet(cluster: &Cluster, node: Option<&str>) -> Option<KubeVersion> {
    let read = |node: &Value| kubelet_of(node.pointer("/status/nodeInfo/kubeletVersion")?.as_str()?);
    if let Some(node) = node {
        return read(&cluster.get(&format!("/api/v1/nodes/{node}")).await.ok()?);
    }
    let nodes = cluster.get("/api/v1/nodes").await.ok()?;
    nodes["items"].as_array()?.iter().filter_map(read).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_names_of_objects_as_kubectl_does() {
        for (words, expected) in [
            ("web", Some("here/pods/web")),
            ("shop/web", Some("shop/pods/web")),
            ("deploy/web", Some("here/deployments/web")),
            ("StatefulSet/db", Some("here/statefulsets/db")),
            ("shop/cj/nightly", Some("shop/cronjobs/nightly")),
            ("shop/secret/x", None),
            ("a/b/c/d", None),
            ("/x", None),
        ] {
            let found = named(words, "here")
                .map(|(namespace, kind, name)| format!("{namespace}/{}/{name}", kind.resource));
            assert_eq!(found.as_deref(), expected, "{words}");
        }
    }

    #[test]
    fn only_existing_controllers_that_match_the_reference_are_considered() {
        let [pod, set] = ["pods", "replicasets"].map(|word| kind_named(word).unwrap());
        let owner = |uid: &str, kind: &str, name: &str| json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": true}]);
        let object = |uid: &str, name: &str, owners: Value| json!({"metadata": {"uid": uid, "name": name, "namespace": "shop", "ownerReferences": owners}});
        for (case, owners, expected) in [
            ("its replica set", owner("1", "ReplicaSet", "web"), Some(0)),
            ("none", json!([]), None),
            ("one that does not exist", owner("9", "ReplicaSet", "web"), None),
            ("another name", owner("1", "ReplicaSet", "other"), None),
            ("another kind", owner("1", "DaemonSet", "web"), None),
            ("itself", owner("2", "Pod", "pod"), None),
            (
                "not as controller",
                json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1"}]),
                None,
            ),
        ] {
            let objects = [(set, object("1", "web", json!([]))), (pod, object("2", "pod", owners))];
            assert_eq!(controllers(&objects), [None, expected], "{case}");
        }
        let circle = [
            (set, object("1", "a", owner("2", "ReplicaSet", "b"))),
            (set, object("2", "b", owner("1", "ReplicaSet", "a"))),
        ];
        assert_eq!(controllers(&circle), [None, None]);
        let mut elsewhere = object("1", "web", json!([]));
        elsewhere["metadata"]["namespace"] = "other".into();
        let objects = [(set, elsewhere), (pod, object("2", "pod", owner("1", "ReplicaSet", "web")))];
        assert_eq!(controllers(&objects), [None, None], "another namespace");
    }
}
