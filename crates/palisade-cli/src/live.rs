//! Objects of a running cluster, judged and explained like files.
//!
//! Each object becomes a text of its own, named `cluster:<namespace>/<kind>/<name>`, in the YAML that `kubectl get` prints,
//! without what the API server adds for itself. What another workload controls is judged through that workload.

use clap::Args;
use kube::Client;
use palisade_model::{
    compat::{Compat, Kubelet, KubernetesVersion, NEWEST_MINOR, OLDEST_MINOR},
    workload::{WORKLOADS, WorkloadKind},
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

/// The pods and workloads of a namespace, or of all.
pub async fn workloads(args: &LiveArgs, namespace: Option<&str>) -> Result<Vec<Input>, String> {
    let client = args.connection.connect().await?;
    let scope = match (args.all_namespaces, namespace) {
        (true, _) => None,
        (false, Some(namespace)) => Some(namespace.to_owned()),
        (false, None) => Some(client.default_namespace().to_owned()),
    };
    let mut inputs = Vec::new();
    for kind in listed() {
        let mut token = String::new();
        loop {
            let path = format!("{}?limit={PAGE}&continue={token}", collection(kind, scope.as_deref()));
            let page = get(&client, &path)
                .await
                .map_err(|error| format!("cannot list {} of the cluster: {error}", kind.resource))?;
            for object in page["items"].as_array().into_iter().flatten() {
                if args.owned || !is_controlled(object) {
                    inputs.push(input(object.clone(), kind));
                }
            }
            // Tokens are opaque, and made of what a query takes.
            page["metadata"]["continue"].as_str().unwrap_or_default().clone_into(&mut token);
            if token.is_empty() {
                break;
            }
        }
    }
    inputs.sort();
    Ok(inputs)
}

/// Whether a workload that is judged itself made the object.
fn is_controlled(object: &Value) -> bool {
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners.into_iter().flatten().any(|owner| {
        let known = listed().any(|kind| owner["kind"] == kind.kind);
        owner["controller"] == true && known
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
    let version = get(&client, "/version")
        .await
        .map_err(|error| format!("the cluster does not tell its version: {error}"))?;
    let minor = version["gitVersion"].as_str().and_then(|text| text.parse::<KubernetesVersion>().ok());
    let minor = minor.map_or(NEWEST_MINOR, |version| version.minor).clamp(OLDEST_MINOR, NEWEST_MINOR);
    let mut compat = Compat::kubernetes(minor);
    if let Some(version) = kubelet(&client, found.pointer("/spec/nodeName").and_then(Value::as_str)).await {
        compat.kubelet = Kubelet::Kubernetes(version);
    }
    Ok((input(found, kind), compat))
}

/// The kubelet of a node; without a node, the oldest there is: that is where a pod may land.
async fn kubelet(client: &Client, node: Option<&str>) -> Option<KubernetesVersion> {
    let read = |node: &Value| {
        let version = node.pointer("/status/nodeInfo/kubeletVersion")?.as_str()?;
        version.parse::<KubernetesVersion>().ok()
    };
    if let Some(node) = node {
        return read(&get(client, &format!("/api/v1/nodes/{node}")).await.ok()?);
    }
    let nodes = get(client, "/api/v1/nodes").await.ok()?;
    nodes["items"].as_array()?.iter().filter_map(read).min_by_key(|version| (version.minor, version.patch))
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
    fn what_a_workload_made_is_judged_through_it() {
        let owned = |kind: &str, controller: bool| {
            is_controlled(
                &json!({"metadata": {"ownerReferences": [{"kind": kind, "controller": controller}]}}),
            )
        };
        assert!(owned("ReplicaSet", true) && !owned("ReplicaSet", false) && !owned("Rollout", true));
        assert!(!is_controlled(&json!({"metadata": {}})));
    }
}
