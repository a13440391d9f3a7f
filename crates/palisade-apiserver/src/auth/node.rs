//! What kubelets may do: read what the pods of their node refer to, and write what is their own.
//!
//! Implements: Using Node Authorization. <https://kubernetes.io/docs/reference/access-authn-authz/node/>
//!
//! What a pod refers to is read from the stored pods for each request, so that nothing has to agree with them. Requests that
//! are not about objects of pods follow the rules of the role `system:node`, whatever the stored role says. What a kubelet may
//! write is narrowed further by the plugin NodeRestriction.

use std::sync::OnceLock;

use palisade_apimachinery::rest::path::Get as _;
use serde_json::Value;

use super::node_denials::denial;
use super::rbac::{AccessDecision, Attributes, PolicyRule};
use super::{UserInfo, bootstrap};
use crate::meta;
use crate::storage::{Range, Store};

/// The group of kubelets.
pub(crate) const NODES: &str = "system:nodes";
const USER_PREFIX: &str = "system:node:";
/// Where the Leases of nodes are.
pub(crate) const LEASES: &str = "kube-node-lease";
/// Marks the API's picture of a static pod, which refers to nothing.
pub(crate) const MIRROR: &str = "kubernetes.io/config.mirror";

/// The node that a user is the kubelet of; `None` if the user is no kubelet. The name may be empty.
#[must_use]
pub(crate) fn node_of(user: &UserInfo) -> Option<&str> {
    user.name.strip_prefix(USER_PREFIX).filter(|_| user.in_group(NODES))
}

/// Something that a pod refers to by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Referent {
    /// A Secret.
    Secret,
    /// A ConfigMap.
    ConfigMap,
    /// A PersistentVolumeClaim.
    Claim,
    /// A ServiceAccount.
    Account,
    /// A ResourceClaim.
    ResourceClaim,
}

/// Sources of volumes whose Secret is in `secretRef`.
const SECRET_REFS: &[&str] = &["cephfs", "cinder", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos"];
/// Secrets of CSI volumes that the kubelet uses; the others are for controllers.
const CSI_SECRETS: &[&str] = &["nodeExpandSecretRef", "nodePublishSecretRef", "nodeStageSecretRef"];

fn is_mirror(pod: &Value) -> bool {
    pod.pointer("/metadata/annotations").is_some_and(|annotations| annotations.get(MIRROR).is_some())
}

/// What a pod refers to, in its own namespace.
pub(crate) fn references(pod: &Value) -> Vec<(Referent, String)> {
    let empty = Value::Null;
    let spec = pod.get("spec").unwrap_or(&empty);
    let mut found: Vec<(Referent, &str)> = Vec::new();
    let mut own = Vec::new();
    let account = spec.text("serviceAccountName");
    found.push((Referent::Account, account));
    found.extend(spec.list("imagePullSecrets").iter().map(|secret| (Referent::Secret, secret.text("name"))));
    for list in ["containers", "ephemeralContainers", "initContainers"] {
        for container in spec.list(list) {
            for variable in container.list("env") {
                let Some(source) = variable.child("valueFrom") else { continue };
                found.push((Referent::Secret, source.get("secretKeyRef").unwrap_or(&empty).text("name")));
                found.push((
                    Referent::ConfigMap,
                    source.get("configMapKeyRef").unwrap_or(&empty).text("name"),
                ));
            }
            for source in container.list("envFrom") {
                found.push((Referent::Secret, source.get("secretRef").unwrap_or(&empty).text("name")));
                found.push((Referent::ConfigMap, source.get("configMapRef").unwrap_or(&empty).text("name")));
            }
        }
    }
    for volume in spec.list("volumes") {
        let source = |name: &str| volume.get(name).unwrap_or(&empty);
        found.push((Referent::Secret, source("secret").text("secretName")));
        found.push((Referent::Secret, source("azureFile").text("secretName")));
        let csi = source("csi").get("nodePublishSecretRef").unwrap_or(&empty);
        found.push((Referent::Secret, csi.text("name")));
        for name in SECRET_REFS {
            found.push((Referent::Secret, source(name).get("secretRef").unwrap_or(&empty).text("name")));
        }
        found.push((Referent::ConfigMap, source("configMap").text("name")));
        for projected in source("projected").list("sources") {
            found.push((Referent::Secret, projected.get("secret").unwrap_or(&empty).text("name")));
            found.push((Referent::ConfigMap, projected.get("configMap").unwrap_or(&empty).text("name")));
        }
        found.push((Referent::Claim, source("persistentVolumeClaim").text("claimName")));
        if volume.child("ephemeral").is_some() {
            let name = format!("{}-{}", meta::meta_text(pod, "name"), volume.text("name"));
            own.push((Referent::Claim, name));
        }
    }
    let status = pod.get("status").unwrap_or(&empty);
    let extended = status.get("extendedResourceClaimStatus").unwrap_or(&empty);
    found.push((Referent::ResourceClaim, extended.text("resourceClaimName")));
    let statuses = status.list("resourceClaimStatuses");
    for claim in spec.list("resourceClaims").iter().chain(statuses) {
        found.push((Referent::ResourceClaim, claim.text("resourceClaimName")));
    }
    let named = found.into_iter().filter(|(_, name)| !name.is_empty());
    own.extend(named.map(|(referent, name)| (referent, name.to_owned())));
    own
}

/// The Secrets that a kubelet needs for a volume: namespace and name.
fn volume_secrets(volume: &Value) -> Vec<(String, String)> {
    let empty = Value::Null;
    let spec = volume.get("spec").unwrap_or(&empty);
    let home = spec.get("claimRef").unwrap_or(&empty).text("namespace");
    let mut secrets = Vec::new();
    let mut add = |namespace: &str, name: &str| {
        if !name.is_empty() {
            let namespace = if namespace.is_empty() { home } else { namespace };
            secrets.push((namespace.to_owned(), name.to_owned()));
        }
    };
    let file = spec.get("azureFile").unwrap_or(&empty);
    add(file.text("secretNamespace"), file.text("secretName"));
    let references = SECRET_REFS.iter().map(|name| (*name, "secretRef"));
    for (source, field) in references.chain(CSI_SECRETS.iter().map(|field| ("csi", *field))) {
        let reference = spec.get(source).and_then(|source| source.get(field)).unwrap_or(&empty);
        add(reference.text("namespace"), reference.text("name"));
    }
    secrets
}

/// Decides about the requests of kubelets.
#[derive(Debug)]
pub(crate) struct NodeAuthorizer {
    store: Store,
    rules: OnceLock<Vec<PolicyRule>>,
}

impl NodeAuthorizer {
    pub(crate) fn new(store: &Store) -> Self {
        Self { store: store.clone(), rules: OnceLock::new() }
    }

    /// Whether a kubelet may do this; what is not allowed here may still be by a role.
    pub(crate) fn authorize(&self, user: &UserInfo, attributes: &Attributes<'_>) -> AccessDecision {
        let Some(node) = node_of(user).filter(|node| !node.is_empty()) else {
            return AccessDecision::default();
        };
        let allowed = self.allows(node, attributes);
        let reason = if allowed { String::new() } else { denial(node, attributes) };
        AccessDecision { allowed, reason }
    }

    fn allows(&self, node: &str, request: &Attributes<'_>) -> bool {
        let Attributes { verb, group, resource, subresource, namespace, name, .. } = *request;
        let whole = subresource.is_empty();
        let reads_one = whole && verb == "get";
        let refers = |referent| self.refers(node, referent, namespace, name);
        match (group, resource) {
            ("", "secrets" | "configmaps") => {
                let reads = whole && matches!(verb, "get" | "list" | "watch");
                if !reads || namespace.is_empty() || name.is_empty() {
                    return false;
                }
                let secret = resource == "secrets";
                refers(if secret { Referent::Secret } else { Referent::ConfigMap })
                    || (secret && self.volume_needs(node, namespace, name))
            }
            ("", "persistentvolumeclaims") => {
                let writes_status = subresource == "status" && matches!(verb, "update" | "patch");
                (reads_one || writes_status) && refers(Referent::Claim)
            }
            ("", "persistentvolumes") => reads_one && self.uses_volume(node, name),
            ("", "serviceaccounts") => {
                let requests_token = subresource == "token" && verb == "create";
                (reads_one || requests_token) && refers(Referent::Account)
            }
            ("", "nodes") => match (subresource, verb) {
                ("", "create" | "update" | "patch") | ("status", "update" | "patch") => true,
                ("", "get" | "list" | "watch") => name == node,
                _ => false,
            },
            ("", "pods") => match (subresource, verb) {
                ("", "get") => self.runs(node, namespace, name),
                ("", "list" | "watch") => request.node == node,
                ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => true,
                _ => false,
            },
            ("resource.k8s.io", "resourceclaims") => reads_one && refers(Referent::ResourceClaim),
            ("resource.k8s.io", "resourceslices") => match (whole, verb) {
                (true, "create") => true,
                (true, "list" | "watch" | "deletecollection") => request.node == node,
                (true, "get" | "update" | "patch" | "delete") => {
                    self.names(node, "resourceslices.resource.k8s.io", name)
                }
                _ => false,
            },
            ("storage.k8s.io", "volumeattachments") => {
                reads_one && self.names(node, "volumeattachments.storage.k8s.io", name)
            }
            ("storage.k8s.io", "csinodes") => {
                let verbs = matches!(verb, "get" | "create" | "update" | "patch" | "delete");
                // A create has no name in its path; NodeRestriction checks it.
                whole && verbs && (verb == "create" || name == node)
            }
            ("coordination.k8s.io", "leases") => {
                let verbs = matches!(verb, "get" | "create" | "update" | "patch" | "delete");
                whole && verbs && namespace == LEASES && (verb == "create" || name == node)
            }
            ("certificates.k8s.io", "podcertificaterequests") => match (whole, verb) {
                (true, "create") => true,
                (true, "list" | "watch") => request.node == node,
                (true, "get") => {
                    let key = meta::key(true, namespace, name);
                    self.names(node, "podcertificaterequests.certificates.k8s.io", &key)
                }
                _ => false,
            },
            _ => self.rules().iter().any(|rule| rule.allows(request)),
        }
    }

    /// The rules of `system:node` as the release has them.
    fn rules(&self) -> &[PolicyRule] {
        self.rules.get_or_init(|| {
            let role = bootstrap::objects()
                .into_iter()
                .find(|role| role.resource == "clusterroles" && role.name == "system:node");
            let rules = role.map(|mut role| role.object["rules"].take()).unwrap_or_default();
            // swallowed: the table is ours, and a test reads it; without rules nothing is allowed
            serde_json::from_value(rules).unwrap_or_default()
        })
    }

    /// An object of a bucket, by its key.
    fn object(&self, resource: &str, key: &str) -> Option<Value> {
        self.store.bucket(resource).get(key).map(|object| Value::Object(object.parse()))
    }

    /// Whether an object has the node in its `spec.nodeName`.
    fn names(&self, node: &str, resource: &str, key: &str) -> bool {
        self.object(resource, key).is_some_and(|object| is_on(&object, node))
    }

    fn runs(&self, node: &str, namespace: &str, name: &str) -> bool {
        self.names(node, "pods", &meta::key(true, namespace, name))
    }

    /// Whether a pod of the node refers to an object of its namespace.
    fn refers(&self, node: &str, referent: Referent, namespace: &str, name: &str) -> bool {
        if namespace.is_empty() || name.is_empty() {
            return false;
        }
        let pods = self.store.bucket("pods").list(&Range::Namespace(namespace.to_owned()));
        // The name stands in the pod as it is, except in the claim of an ephemeral volume, which begins with the pod's.
        pods.objects.iter().filter(|pod| pod.mentions("nodeName")).any(|pod| {
            let pod = Value::Object(pod.parse());
            is_on(&pod, node)
                && !is_mirror(&pod)
                && references(&pod).iter().any(|(kind, known)| *kind == referent && known == name)
        })
    }

    /// Whether a pod of the node uses the claim that a volume is bound to.
    fn uses(&self, node: &str, volume: &Value) -> bool {
        let claim = volume.pointer("/spec/claimRef").cloned().unwrap_or_default();
        self.refers(node, Referent::Claim, claim.text("namespace"), claim.text("name"))
    }

    fn uses_volume(&self, node: &str, name: &str) -> bool {
        self.object("persistentvolumes", name).is_some_and(|volume| self.uses(node, &volume))
    }

    /// Whether a volume that a pod of the node uses needs a Secret.
    fn volume_needs(&self, node: &str, namespace: &str, name: &str) -> bool {
        self.store.bucket("persistentvolumes").list(&Range::All).objects.iter().any(|volume| {
            let volume = Value::Object(volume.parse());
            let needs = |(home, secret): &(String, String)| home == namespace && secret == name;
            volume_secrets(&volume).iter().any(needs) && self.uses(node, &volume)
        })
    }
}

fn is_on(object: &Value, node: &str) -> bool {
    !node.is_empty() && object.get("spec").is_some_and(|spec| spec.text("nodeName") == node)
}

#[cfg(test)]
mod tests {
    use palisade_base::version::KubeVersion;
    use serde_json::json;

    use super::*;
    use crate::registry::Registry;
    use crate::storage::{Expect, Write};

    async fn put(store: &Store, resource: &str, kind: (&str, &str, &str), object: Value) {
        let registry = Registry::new(KubeVersion::LATEST, store);
        let served = registry.served();
        let entry = served.find(kind.0, kind.1, kind.2).unwrap();
        let key = entry.key(meta::meta_text(&object, "namespace"), meta::meta_text(&object, "name"));
        let typed = entry.kind.read(object).unwrap();
        let bucket = store.bucket(resource);
        store.commit(Write::store(bucket, &key, Expect::Absent, typed, Vec::new())).await.unwrap();
    }

    fn pod(name: &str, node: &str, suffix: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "a"}, "spec": {"nodeName": node,
            "serviceAccountName": format!("sa{suffix}"), "imagePullSecrets": [{"name": format!("pull{suffix}")}],
            "containers": [{"name": "c", "image": "i",
                "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": format!("env{suffix}"), "key": "k"}}}],
                "envFrom": [{"configMapRef": {"name": format!("from{suffix}")}}]}],
            "volumes": [
                {"name": "s", "secret": {"secretName": format!("vol{suffix}")}},
                {"name": "p", "projected": {"sources": [{"configMap": {"name": format!("proj{suffix}")}}]}},
                {"name": "c", "persistentVolumeClaim": {"claimName": format!("claim{suffix}")}},
                {"name": "e", "ephemeral": {}}]}})
    }

    fn volume(name: &str, claim: &str) -> Value {
        json!({"metadata": {"name": name}, "spec": {"claimRef": {"namespace": "a", "name": claim},
            "csi": {"driver": "d", "volumeHandle": "h", "nodeStageSecretRef": {"namespace": "b", "name": format!("{name}-node")},
                    "controllerPublishSecretRef": {"namespace": "b", "name": format!("{name}-controller")}}}})
    }

    async fn authorizer() -> NodeAuthorizer {
        let store = Store::in_memory();
        for object in [pod("mine", "one", ""), pod("theirs", "two", "-2")] {
            put(&store, "pods", ("", "v1", "pods"), object).await;
        }
        let mut mirror = pod("static", "one", "-mirror");
        mirror["metadata"]["annotations"] = json!({MIRROR: "x"});
        put(&store, "pods", ("", "v1", "pods"), mirror).await;
        for object in [volume("v", "claim"), volume("v-2", "claim-2")] {
            put(&store, "persistentvolumes", ("", "v1", "persistentvolumes"), object).await;
        }
        NodeAuthorizer::new(&store)
    }

    /// `verb group/resource/subresource namespace/name`, with `@node` for a field selector.
    fn may(authorizer: &NodeAuthorizer, user: &UserInfo, request: &str) -> bool {
        let (request, node) = request.split_once(" @").unwrap_or((request, ""));
        let parts: Vec<&str> = request.split(' ').collect();
        let mut path = parts[1].split('/');
        let (group, resource) = (path.next().unwrap(), path.next().unwrap());
        let (namespace, name) = parts.get(2).map_or(("", ""), |object| object.split_once('/').unwrap());
        let subresource = path.next().unwrap_or("");
        let attributes = Attributes {
            verb: parts[0],
            group,
            resource,
            subresource,
            namespace,
            name,
            node,
            ..Attributes::default()
        };
        authorizer.authorize(user, &attributes).allowed
    }

    #[tokio::test]
    async fn a_kubelet_reads_what_its_pods_refer_to_and_nothing_else() {
        let authorizer = authorizer().await;
        let kubelet = UserInfo::new("system:node:one", &[NODES]);
        for (attack, twin) in [
            ("get /secrets a/env-2", "get /secrets a/env"),
            ("get /secrets a/pull-2", "get /secrets a/pull"),
            ("get /secrets a/vol-2", "get /secrets a/vol"),
            ("get /secrets b/env", "list /secrets a/env"),
            ("get /secrets a/env-mirror", "watch /secrets a/env"),
            ("list /secrets a/", "get /configmaps a/from"),
            ("list /secrets", "get /configmaps a/proj"),
            ("update /secrets a/env", "get /persistentvolumeclaims a/claim"),
            ("get /configmaps a/env", "get /persistentvolumeclaims a/mine-e"),
            ("get /configmaps a/proj-2", "update /persistentvolumeclaims/status a/claim"),
            ("update /persistentvolumeclaims a/claim", "get /persistentvolumes /v"),
            ("get /persistentvolumes /v-2", "get /secrets b/v-node"),
            ("get /secrets b/v-controller", "create /serviceaccounts/token a/sa"),
            ("create /serviceaccounts/token a/sa-2", "get /nodes /one"),
            ("get /secrets b/v-2-node", "watch /nodes /one"),
            ("list /nodes", "patch /nodes/status /one"),
            ("get /nodes /two", "get /pods a/mine"),
            ("delete /nodes /one", "list /pods @one"),
            ("get /pods a/theirs", "watch /pods a/ @one"),
            ("list /pods", "create /pods/eviction a/mine"),
            ("list /pods @two", "update coordination.k8s.io/leases kube-node-lease/one"),
            (
                "update coordination.k8s.io/leases kube-node-lease/two",
                "create coordination.k8s.io/leases kube-node-lease/",
            ),
            ("update coordination.k8s.io/leases kube-system/one", "get storage.k8s.io/csinodes /one"),
            ("list coordination.k8s.io/leases kube-node-lease/", "list /services"),
            ("get storage.k8s.io/csinodes /two", "create certificates.k8s.io/certificatesigningrequests"),
            (
                "deletecollection resource.k8s.io/resourceslices",
                "deletecollection resource.k8s.io/resourceslices @one",
            ),
            ("create /pods/exec a/mine", "create /pods a/"),
            ("get /namespaces /a", "list node.k8s.io/runtimeclasses"),
            (
                "create rbac.authorization.k8s.io/clusterrolebindings",
                "create authorization.k8s.io/subjectaccessreviews",
            ),
        ] {
            assert!(!may(&authorizer, &kubelet, attack), "{attack}");
            assert!(may(&authorizer, &kubelet, twin), "{twin}");
        }
    }

    #[tokio::test]
    async fn only_members_of_the_group_are_kubelets() {
        let authorizer = authorizer().await;
        for (user, group) in [
            ("system:node:one", "users"),
            ("one", NODES),
            ("system:node:", NODES),
            ("system:node:two", NODES),
        ] {
            let user = UserInfo::new(user, &[group]);
            assert!(!may(&authorizer, &user, "get /secrets a/env"), "{user:?}");
        }
        assert!(may(&authorizer, &UserInfo::new("system:node:one", &[NODES]), "get /secrets a/env"));
    }
}
