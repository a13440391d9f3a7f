//! Objects of a running cluster, judged and explained like files.
//!
//! Each object becomes a text of its own, named `cluster:<namespace>/<kind>/<name>`, in the YAML that `kubectl get` prints,
//! without what the API server adds for itself. What another workload of the cluster controls is judged through that workload.

use std::collections::BTreeSet;

use clap::Args;
use kube::Client;
use palisade_model::{
    compat::{Compat, Kubelet},
    server_version::{announced, kubelet_of},
    workload::{WORKLOADS, WorkloadKind, group_of},
};
use serde_json::{Value, json};

use crate::{cluster::ClusterArgs, input::Input, install::yaml_text::block};

/// Which objects of which cluster `check` judges.
#[derive(Debug, Args)]
pub struct LiveArgs {
    /// Judge the pods and workloads of a cluster instead of files
    #[arg(long, conflicts_with_all = ["fix", "diff"])]
    pub cluster: bool,
    /// Which cluster.
    #[command(flatten)]
    pub connection: ClusterArgs,
    /// With --cluster: every namespace, not only the one of --namespace or of the context
    #[arg(long, short = 'A', requires = "cluster", conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// With --cluster: also pods and others that a workload controls, which are judged through it otherwise
    #[arg(long, requires = "cluster")]
    pub owned: bool,
}

/// As many objects as one answer holds.
const PAGE: usize = 500;

fn listed() -> impl Iterator<Item = &'static WorkloadKind> {
    WORKLOADS.iter().filter(|kind| kind.built_in && kind.group != "extensions")
}

async fn get(client: &Client, path: &str) -> Result<Value, kube::Error> {
    let request = hyper::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    client.request(request).await
}

fn collection(kind: &WorkloadKind, namespace: Option<&str>) -> String {
    let root = if kind.group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{}/v1", kind.group) };
    namespace.map_or_else(
        || format!("{root}/{}", kind.resource),
        |namespace| format!("{root}/namespaces/{namespace}/{}", kind.resource),
    )
}

/// Whose rules the API server applies.
async fn compat(client: &Client) -> Result<Compat, String> {
    let version = get(client, "/version")
        .await
        .map_err(|error| format!("cannot read /version of the cluster: {error}"))?;
    announced(&version).map_err(|error| error.to_string())
}

/// The pods and workloads of a namespace, or of all, and whose rules the API server applies to them.
pub async fn workloads(args: &LiveArgs, namespace: Option<&str>) -> Result<(Vec<Input>, Compat), String> {
    let client = args.connection.connect().await?;
    let compat = compat(&client).await?;
    let scope = match (args.all_namespaces, namespace) {
        (true, _) => None,
        (false, Some(namespace)) => Some(namespace.to_owned()),
        (false, None) => Some(client.default_namespace().to_owned()),
    };
    let mut found = Vec::new();
    for kind in listed() {
        let mut token = String::new();
        loop {
            let path = format!("{}?limit={PAGE}&continue={token}", collection(kind, scope.as_deref()));
            let page = get(&client, &path)
                .await
                .map_err(|error| format!("cannot list {} of the cluster: {error}", kind.resource))?;
            let items = page["items"].as_array().into_iter().flatten();
            found.extend(items.map(|object| (kind, object.clone())));
            // Tokens are opaque, and made of what a query takes.
            page["metadata"]["continue"].as_str().unwrap_or_default().clone_into(&mut token);
            if token.is_empty() {
                break;
            }
        }
    }
    let controllers: BTreeSet<Controller> =
        found.iter().map(|(kind, object)| Controller::of(kind, object)).collect();
    let mut inputs: Vec<Input> = found
        .into_iter()
        .filter(|(_, object)| args.owned || !is_controlled(object, &controllers))
        .map(|(kind, object)| input(object, kind))
        .collect();
    inputs.sort();
    Ok((inputs, compat))
}

/// What identifies a workload to the objects that it controls. A reference to anything else hides nothing.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Controller {
    group: String,
    kind: String,
    namespace: String,
    name: String,
    uid: String,
}

impl Controller {
    fn of(kind: &WorkloadKind, object: &Value) -> Self {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        Self {
            group: kind.group.to_owned(),
            kind: kind.kind.to_owned(),
            namespace: text("namespace"),
            name: text("name"),
            uid: text("uid"),
        }
    }
}

/// Whether a workload that is judged itself controls the object.
fn is_controlled(object: &Value, controllers: &BTreeSet<Controller>) -> bool {
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners.into_iter().flatten().filter(|owner| owner["controller"] == true).any(|owner| {
        let text = |field: &str| owner[field].as_str().unwrap_or_default().to_owned();
        let uid = text("uid");
        !uid.is_empty()
            && controllers.contains(&Controller {
                group: group_of(&text("apiVersion")).to_owned(),
                kind: text("kind"),
                namespace: object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned(),
                name: text("name"),
                uid,
            })
    })
}

/// An object as a text.
fn input(mut object: Value, kind: &WorkloadKind) -> Input {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let name = format!(
        "cluster:{}/{}/{}",
        text("/metadata/namespace"),
        kind.kind.to_ascii_lowercase(),
        text("/metadata/name")
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
    let mut text = String::new();
    block(&whole, 0, &mut text);
    Input::Live { name: name.into(), text: text.into() }
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
) -> Result<(Input, Compat), String> {
    let client = cluster.connect().await?;
    let fallback = namespace.unwrap_or_else(|| client.default_namespace()).to_owned();
    let (namespace, kind, name) = named(words, &fallback).ok_or_else(|| {
        format!(
            "--live {words:?}: write NAMESPACE/POD, or KIND/NAME with --namespace, or NAMESPACE/KIND/NAME"
        )
    })?;
    let path = format!("{}/{name}", collection(kind, Some(namespace)));
    let found = get(&client, &path).await.map_err(|error| match error {
        kube::Error::Api(status) => status.message,
        other => other.to_string(),
    })?;
    let mut compat = compat(&client).await?;
    if let Some(kubelet) = kubelet(&client, found.pointer("/spec/nodeName").and_then(Value::as_str)).await {
        compat.kubelet = kubelet;
    }
    Ok((input(found, kind), compat))
}

/// The kubelet of a node; without a node, the oldest there is: that is where a pod may land.
async fn kubelet(client: &Client, node: Option<&str>) -> Option<Kubelet> {
    let read = |node: &Value| kubelet_of(node.pointer("/status/nodeInfo/kubeletVersion")?.as_str()?);
    if let Some(node) = node {
        return read(&get(client, &format!("/api/v1/nodes/{node}")).await.ok()?);
    }
    let nodes = get(client, "/api/v1/nodes").await.ok()?;
    nodes["items"].as_array()?.iter().filter_map(read).min_by_key(|kubelet| match kubelet {
        Kubelet::Kubernetes(version) => (version.minor, version.patch),
        Kubelet::Designs => (u16::MAX, u16::MAX),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_named_as_people_name_them() {
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
    fn only_a_workload_that_exists_hides_what_it_controls() {
        let kind = kind_named("rs").unwrap();
        let set = json!({"metadata": {"name": "web", "namespace": "shop", "uid": "1"}});
        let known = BTreeSet::from([Controller::of(kind, &set)]);
        let good = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1", "controller": true});
        let owned = |namespace: &str, change: Value| {
            let mut owner = good.clone();
            for (field, value) in change.as_object().unwrap() {
                owner[field] = value.clone();
            }
            is_controlled(&json!({"metadata": {"namespace": namespace, "ownerReferences": [owner]}}), &known)
        };
        assert!(owned("shop", json!({})));
        for change in [
            json!({"controller": false}),
            json!({"name": "other"}),
            json!({"uid": "2"}),
            json!({"uid": ""}),
            json!({"kind": "Deployment"}),
            json!({"apiVersion": "example.com/v1"}),
        ] {
            assert!(!owned("shop", change.clone()), "{change}");
        }
        assert!(!owned("other", json!({})));
        assert!(!is_controlled(&json!({"metadata": {}}), &known));
    }
}
