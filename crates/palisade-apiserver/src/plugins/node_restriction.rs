//! What a kubelet may write: its own Node, Lease and CSINode, the status of its pods, and tokens for them.
//!
//! Implements: Admission Control in Kubernetes, "NodeRestriction".
//! <https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction>
//!
//! It narrows what the Node authorizer allows; who is no kubelet is not restricted.

use std::collections::BTreeSet;

use palisade_apimachinery::rest::path::Get as _;
use serde_json::Value;
use thiserror::Error;

use crate::admission_chain::{Admission, Notes, Operation, Plugin, Request};
use crate::auth::node::{LEASES, MIRROR, Referent, node_of, references};
use crate::auth::rbac::Attributes;
use crate::auth::token::ISSUER;
use crate::certificates;
use crate::meta::{self, meta_text};

/// Labels of Kubernetes that a kubelet sets on its Node, besides those below `kubelet.kubernetes.io` and `node.kubernetes.io`.
const KUBELET_LABELS: &[&str] = &[
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.kubernetes.io/region",
    "failure-domain.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// The plugin.
#[derive(Debug, Clone, Copy)]
pub struct NodeRestriction;

impl Plugin for NodeRestriction {
    fn name(&self) -> &'static str {
        "NodeRestriction"
    }

    fn validate(&self, request: &Request<'_>, object: Option<&Value>, _: &mut Notes) -> Admission {
        let Some(node) = node_of(request.user) else { return Ok(()) };
        if node.is_empty() {
            let why = format!("could not determine node from user {:?}", request.user.name);
            return Err(request.forbidden(&why));
        }
        let kubelet = Kubelet { node, request, object };
        let judged = match (request.kind.group.as_str(), request.kind.plural.as_str(), request.subresource) {
            ("", "pods", "") => kubelet.pod(),
            ("", "pods", "status") => kubelet.pod_status(),
            ("", "pods", "eviction") => kubelet.eviction(),
            ("", "pods", other) => reject(format!(
                "unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed"
            )),
            ("", "nodes", _) => kubelet.node_object(),
            ("", "persistentvolumeclaims", "status") => kubelet.claim_status(),
            ("", "persistentvolumeclaims", _) => reject("may only update PVC status"),
            ("", "serviceaccounts", "token") => kubelet.token(),
            ("coordination.k8s.io", "leases", _) => kubelet.lease(),
            ("storage.k8s.io", "csinodes", _) => kubelet.csi_node(),
            ("resource.k8s.io", "resourceslices", _) => kubelet.resource_slice(),
            ("certificates.k8s.io", "certificatesigningrequests", "") => kubelet.signing_request(),
            ("certificates.k8s.io", "podcertificaterequests", "") => kubelet.pod_certificate(),
            _ => Ok(()),
        };
        judged.map_err(|violation| request.forbidden(&violation.to_string()))
    }
}

/// Why a write of a kubelet is rejected, in upstream's words.
#[derive(Debug, Error)]
#[error("{0}")]
struct Violation(String);

type Judged = Result<(), Violation>;

fn reject(why: impl Into<String>) -> Judged {
    Err(Violation(why.into()))
}

/// A write of a kubelet.
struct Kubelet<'a> {
    node: &'a str,
    request: &'a Request<'a>,
    object: Option<&'a Value>,
}

fn is_on(pod: &Value, node: &str) -> bool {
    pod.get("spec").is_some_and(|spec| spec.text("nodeName") == node)
}

fn labels(object: Option<&Value>) -> BTreeSet<(String, String)> {
    let labels = object.and_then(meta::metadata).and_then(|metadata| metadata.get("labels"));
    let labels = labels.and_then(Value::as_object).into_iter().flatten();
    labels.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect()
}

fn below(domain: &str, parent: &str) -> bool {
    domain == parent || domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'))
}

/// Whether a kubelet may set or remove a label of its Node.
fn may_label(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    if below(domain, "node-restriction.kubernetes.io") {
        return false;
    }
    let reserved = below(domain, "kubernetes.io") || below(domain, "k8s.io");
    let own = KUBELET_LABELS.contains(&key)
        || below(domain, "kubelet.kubernetes.io")
        || below(domain, "node.kubernetes.io");
    !reserved || own
}

impl Kubelet<'_> {
    fn operation(&self) -> Operation {
        self.request.operation
    }

    /// The object as written, or as stored where it goes.
    fn subject(&self) -> &Value {
        self.object.or(self.request.old_object).unwrap_or(&Value::Null)
    }

    fn unexpected(&self) -> String {
        format!("unexpected operation {:?}", self.operation().as_str())
    }

    /// The pod of the request, as it is stored.
    fn stored_pod(&self, name: &str) -> Option<Value> {
        let pod = self.request.cluster.get("pods", self.request.namespace, name)?;
        Some(Value::Object(pod.parse()))
    }

    fn pod(&self) -> Judged {
        let node = self.node;
        match self.operation() {
            Operation::Create => self.mirror_pod(),
            Operation::Delete => {
                let own = self.request.old_object.is_some_and(|pod| is_on(pod, node));
                let why = format!("node {node:?} can only delete pods with spec.nodeName set to itself");
                if own { Ok(()) } else { reject(why) }
            }
            _ => {
                reject(format!("{}, node {node:?} can only create and delete mirror pods", self.unexpected()))
            }
        }
    }

    /// A kubelet makes pods only as the picture of its static ones, which refer to nothing of the API.
    fn mirror_pod(&self) -> Judged {
        let (node, pod) = (self.node, self.subject());
        let empty = Value::Null;
        let metadata = pod.get("metadata").unwrap_or(&empty);
        if metadata.get("annotations").is_none_or(|annotations| annotations.get(MIRROR).is_none()) {
            return reject(format!(
                "pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods"
            ));
        }
        if !is_on(pod, node) {
            return reject(format!("node {node:?} can only create pods with spec.nodeName set to itself"));
        }
        let [owner] = metadata.list("ownerReferences") else {
            return reject(format!(
                "node {node:?} can only create pods with a single owner reference set to itself"
            ));
        };
        let stored = self.request.cluster.get("nodes", "", node);
        let is_self = owner.text("apiVersion") == "v1"
            && owner.text("kind") == "Node"
            && owner.text("name") == node
            && stored.is_some_and(|stored| stored.uid() == owner.text("uid"));
        if !is_self
            || owner.flag("controller") != Some(true)
            || owner.flag("blockOwnerDeletion") == Some(true)
        {
            return reject(format!(
                "node {node:?} can only create pods with an owner reference set to itself as the controller"
            ));
        }
        let spec = pod.get("spec").unwrap_or(&empty);
        if let Some((referent, _)) = references(pod).first() {
            let what = match referent {
                Referent::Account => "a service account",
                Referent::Secret => "secrets",
                Referent::ConfigMap => "configmaps",
                Referent::Claim => "persistentvolumeclaims",
                Referent::ResourceClaim => "resourceclaims",
            };
            return reject(format!("node {node:?} can not create pods that reference {what}"));
        }
        let sources = spec.list("volumes").iter().filter_map(|volume| volume.get("projected"));
        let mut sources = sources.flat_map(|projected| projected.list("sources"));
        let other = ["serviceAccountToken", "clusterTrustBundle", "podCertificate"];
        if sources.any(|source| other.iter().any(|name| source.child(name).is_some()))
            || !spec.list("resourceClaims").is_empty()
        {
            return reject(format!("node {node:?} can not create pods that reference objects of the API"));
        }
        Ok(())
    }

    fn pod_status(&self) -> Judged {
        let node = self.node;
        if self.operation() != Operation::Update {
            return reject(format!("{}, node {node:?} can only update pod status", self.unexpected()));
        }
        let old = self.request.old_object.unwrap_or(&Value::Null);
        if !is_on(old, node) {
            return reject(format!(
                "node {node:?} can only update pod status for pods with spec.nodeName set to itself"
            ));
        }
        if labels(self.object) != labels(Some(old)) {
            return reject(format!("node {node:?} cannot update labels through pod status"));
        }
        for (field, what) in [
            ("resourceClaimStatuses", "resource claim statuses"),
            ("extendedResourceClaimStatus", "extended resource claim status"),
        ] {
            let claims = |pod: &Value| pod.get("status").and_then(|status| status.get(field)).cloned();
            if claims(self.subject()) != claims(old) {
                return reject(format!("node {node:?} cannot update {what}"));
            }
        }
        Ok(())
    }

    fn eviction(&self) -> Judged {
        let node = self.node;
        if self.operation() != Operation::Create {
            return reject(self.unexpected());
        }
        match self.stored_pod(self.request.name) {
            Some(pod) if !is_on(&pod, node) => {
                reject(format!("node {node:?} can only evict pods with spec.nodeName set to itself"))
            }
            _ => Ok(()),
        }
    }

    fn node_object(&self) -> Judged {
        let node = self.node;
        let named = match self.operation() {
            Operation::Create => meta_text(self.subject(), "name"),
            _ => self.request.name,
        };
        if named != node {
            return reject(format!("node {node:?} is not allowed to modify node {named:?}"));
        }
        let old = match self.operation() {
            Operation::Create => None,
            Operation::Update => self.request.old_object,
            _ => return Ok(()),
        };
        let empty = Value::Null;
        let part = |object: Option<&Value>, pointer: &str| {
            object.and_then(|object| object.pointer(pointer)).filter(|v| **v != empty).cloned()
        };
        for (pointer, what, on_create) in [
            ("/spec/configSource", "configSource", true),
            ("/metadata/ownerReferences", "ownerReferences", true),
            ("/spec/taints", "taints", false),
        ] {
            let judged = on_create || self.operation() == Operation::Update;
            if judged && part(self.object, pointer) != part(old, pointer) {
                return reject(format!("node {node:?} is not allowed to modify {what}"));
            }
        }
        let (before, after) = (labels(old), labels(self.object));
        let changed = before.symmetric_difference(&after).map(|(key, _)| key.as_str());
        let forbidden: BTreeSet<&str> = changed.filter(|key| !may_label(key)).collect();
        if forbidden.is_empty() {
            return Ok(());
        }
        let list: Vec<&str> = forbidden.into_iter().collect();
        let what = if old.is_none() { "set the following labels" } else { "modify labels" };
        reject(format!("node {node:?} is not allowed to {what}: {}", list.join(", ")))
    }

    fn claim_status(&self) -> Judged {
        if self.operation() != Operation::Update {
            return reject(format!("{}, may only update PVC status", self.unexpected()));
        }
        let spec = |object: Option<&Value>| object.and_then(|object| object.get("spec")).cloned();
        if spec(self.object) != spec(self.request.old_object)
            || labels(self.object) != labels(self.request.old_object)
        {
            return reject(format!("node {:?} is not allowed to update fields other than status", self.node));
        }
        Ok(())
    }

    /// A token is for a pod of the node that runs as the account, and for an audience that the pod names.
    fn token(&self) -> Judged {
        if self.operation() != Operation::Create {
            return reject(self.unexpected());
        }
        let empty = Value::Null;
        let spec = self.subject().get("spec").unwrap_or(&empty);
        let bound = spec.get("boundObjectRef").unwrap_or(&empty);
        if bound.text("kind") != "Pod" || bound.text("apiVersion") != "v1" || bound.text("name").is_empty() {
            return reject("node requested token not bound to a pod");
        }
        if bound.text("uid").is_empty() {
            return reject("node requested token with a pod binding without a uid");
        }
        let Some(pod) = self.stored_pod(bound.text("name")) else {
            return reject("node requested token for a pod that does not exist");
        };
        if meta_text(&pod, "uid") != bound.text("uid") {
            return reject("the UID in the bound object reference does not match the UID in record");
        }
        if !is_on(&pod, self.node) {
            return reject("node requested token bound to a pod scheduled on a different node");
        }
        // Upstream restricts audiences by default from v1.33 on.
        if !self.request.kind.emulated.at_least(33) {
            return Ok(());
        }
        let requested = spec.list("audiences").iter().filter_map(Value::as_str);
        for audience in requested.filter(|audience| !audience.is_empty()) {
            if !self.pod_names_audience(&pod, audience) && !self.may_request(audience) {
                return reject(format!(
                    "audience {audience:?} not found in pod spec volume, system:node:{} is not authorized to request \
                     tokens for this audience",
                    self.node
                ));
            }
        }
        Ok(())
    }

    fn pod_names_audience(&self, pod: &Value, audience: &str) -> bool {
        let volumes = pod.get("spec").map_or(&[][..], |spec| spec.list("volumes"));
        volumes.iter().any(|volume| {
            let sources = volume.get("projected").map_or(&[][..], |projected| projected.list("sources"));
            let tokens = sources.iter().filter_map(|source| source.child("serviceAccountToken"));
            let mut named = tokens.map(|token| token.text("audience"));
            named.any(|named| named == audience || (named.is_empty() && audience == ISSUER))
                || self.driver_of(volume).is_some_and(|driver| self.driver_requests(&driver, audience))
        })
    }

    /// The CSI driver of a volume of the pod, also through its claim.
    fn driver_of(&self, volume: &Value) -> Option<String> {
        if let Some(csi) = volume.child("csi") {
            return Some(csi.text("driver").to_owned());
        }
        let claim = volume.child("persistentVolumeClaim")?.text("claimName");
        let claim = self.request.cluster.get("persistentvolumeclaims", self.request.namespace, claim)?;
        let claim = Value::Object(claim.parse());
        let bound =
            self.request.cluster.get("persistentvolumes", "", claim.get("spec")?.text("volumeName"))?;
        let bound = Value::Object(bound.parse());
        Some(bound.pointer("/spec/csi")?.text("driver").to_owned())
    }

    fn driver_requests(&self, driver: &str, audience: &str) -> bool {
        let Some(driver) = self.request.cluster.get("csidrivers.storage.k8s.io", "", driver) else {
            return false;
        };
        let driver = Value::Object(driver.parse());
        let requests = driver.get("spec").map_or(&[][..], |spec| spec.list("tokenRequests"));
        requests.iter().any(|request| request.text("audience") == audience)
    }

    fn may_request(&self, audience: &str) -> bool {
        let attributes = Attributes {
            verb: "request-serviceaccounts-token-audience",
            version: "v1",
            resource: audience,
            name: self.request.name,
            namespace: self.request.namespace,
            ..Attributes::default()
        };
        self.request.cluster.authorized(self.request.user, &attributes)
    }

    fn lease(&self) -> Judged {
        if self.request.namespace != LEASES {
            return reject(format!("can only access leases in the {LEASES:?} system namespace"));
        }
        self.own_name("can only access node lease with the same name as the requesting node")
    }

    fn csi_node(&self) -> Judged {
        self.own_name("can only access CSINode with the same name as the requesting node")
    }

    fn own_name(&self, why: &str) -> Judged {
        let name = match self.operation() {
            Operation::Create => meta_text(self.subject(), "name"),
            _ => self.request.name,
        };
        if name == self.node { Ok(()) } else { reject(why.to_owned()) }
    }

    fn resource_slice(&self) -> Judged {
        let own = |object: Option<&Value>| object.is_some_and(|object| is_on(object, self.node));
        match self.operation() {
            Operation::Create if !own(self.object) => {
                reject("can only create ResourceSlice with the same NodeName as the requesting node")
            }
            Operation::Delete if !own(self.request.old_object) => {
                reject("can only delete ResourceSlice with the same NodeName as the requesting node")
            }
            Operation::Update if !own(self.request.old_object) => {
                reject("can only update ResourceSlice with the same NodeName as the requesting node")
            }
            _ => Ok(()),
        }
    }

    /// A certificate of a node is for the node that requests it.
    fn signing_request(&self) -> Judged {
        if self.operation() != Operation::Create {
            return Ok(());
        }
        let signer = self.subject().get("spec").map_or("", |spec| spec.text("signerName"));
        if !["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"].contains(&signer)
        {
            return Ok(());
        }
        let Some(requested) = certificates::requested(self.subject()) else {
            return reject("unable to parse csr");
        };
        let own = format!("system:node:{}", self.node);
        if requested.common_name == own {
            return Ok(());
        }
        reject(format!("can only create a node CSR with CN={own}"))
    }

    /// A certificate of a pod is for one that runs on the node, as the account that the request names.
    fn pod_certificate(&self) -> Judged {
        if self.operation() != Operation::Create {
            return reject(format!("{}, nodes may only create PodCertificateRequests", self.unexpected()));
        }
        let empty = Value::Null;
        let spec = self.subject().get("spec").unwrap_or(&empty);
        if spec.text("nodeName") != self.node {
            return reject(format!(
                "PodCertificateRequest.Spec.NodeName={:?}, which is not the requesting node {:?}",
                spec.text("nodeName"),
                self.node
            ));
        }
        let known = |resource: &str, namespace: &str, name: &str, uid: &str| {
            let found = self.request.cluster.get(resource, namespace, spec.text(name));
            found.filter(|found| found.uid() == spec.text(uid))
        };
        if known("nodes", "", "nodeName", "nodeUID").is_none() {
            return reject("the node of the PodCertificateRequest does not exist");
        }
        let namespace = self.request.namespace;
        let Some(pod) = known("pods", namespace, "podName", "podUID") else {
            return reject("the pod of the PodCertificateRequest does not exist");
        };
        let pod = Value::Object(pod.parse());
        let account = pod.get("spec").map_or("", |spec| spec.text("serviceAccountName"));
        if !is_on(&pod, self.node)
            || pod.pointer("/metadata/annotations").is_some_and(|a| a.get(MIRROR).is_some())
        {
            return reject("the pod of the PodCertificateRequest does not run on the requesting node");
        }
        if account != spec.text("serviceAccountName")
            || known("serviceaccounts", namespace, "serviceAccountName", "serviceAccountUID").is_none()
        {
            return reject("the pod of the PodCertificateRequest does not run as its service account");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_nodes() {
        for (key, expected) in [
            ("kubernetes.io/hostname", true),
            ("node.kubernetes.io/anything", true),
            ("sub.kubelet.kubernetes.io/a", true),
            ("team", true),
            ("example.com/team", true),
            ("mykubernetes.io/team", true),
            ("node-restriction.kubernetes.io/pci", false),
            ("a.node-restriction.kubernetes.io/pci", false),
            ("node-role.kubernetes.io/control-plane", false),
            ("kubernetes.io/other", false),
            ("x.k8s.io/a", false),
        ] {
            assert_eq!(may_label(key), expected, "{key}");
        }
    }
}
