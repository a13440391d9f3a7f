//! Why a kubelet may not do something, in the words of kube-apiserver v1.37, which appends them to a rejection and to the answer of a
//! SubjectAccessReview.
//!
//! Only words: [`NodeAuthorizer`](super::node::NodeAuthorizer) decides. What only the rules of `system:node` are about has no reason.

use super::rbac::Attributes;

/// The name of the authorizer, before each of its reasons.
const AUTHORIZER: &str = "node";

/// The reason for a request of a node's kubelet that was denied; empty without one.
pub(super) fn denial(node: &str, request: &Attributes<'_>) -> String {
    let Attributes { verb, group, resource, subresource, namespace, name, .. } = *request;
    let whole = subresource.is_empty();
    let lists = matches!(verb, "list" | "watch");
    let unrelated = || match name {
        "" => "No Object name found".to_owned(),
        _ => format!("no relationship found between node '{node}' and this object"),
    };
    let individual = || match (verb, whole) {
        ("get", true) => unrelated(),
        ("get", false) => "cannot get subresource".to_owned(),
        _ => "can only get individual resources of this type".to_owned(),
    };
    let selected = |verbs: &str| format!("can only {verbs} {resource} with nodeName field selector");
    let own = |what: &str, whose: &str| match verb {
        "get" | "create" | "update" | "patch" | "delete" => {
            format!("can only access {whose} with the same name as the requesting node")
        }
        _ => format!("can only get, create, update, patch, or delete a {what}"),
    };
    let reason = match (group, resource) {
        ("", "secrets" | "configmaps") => match (verb == "get" || lists, whole, namespace) {
            (false, ..) => "can only read resources of this type".to_owned(),
            (true, false, _) => "cannot read subresource".to_owned(),
            (true, true, "") => "can only read namespaced object of this type".to_owned(),
            (true, true, _) => unrelated(),
        },
        ("", "persistentvolumeclaims") if subresource == "status" => match verb {
            "update" | "patch" => unrelated(),
            _ => "can only get/update/patch this type".to_owned(),
        },
        ("", "persistentvolumeclaims" | "persistentvolumes")
        | ("resource.k8s.io", "resourceclaims")
        | ("storage.k8s.io", "volumeattachments") => individual(),
        ("", "serviceaccounts") => match (verb, subresource) {
            ("get", "") | ("create", "token") => unrelated(),
            _ => "can only create tokens for individual service accounts".to_owned(),
        },
        ("", "nodes") if whole && (verb == "get" || lists) => match name {
            "" => format!("node '{node}' cannot read all nodes, only its own Node object"),
            _ => format!("node '{node}' cannot read '{name}', only its own Node object"),
        },
        ("", "pods") if whole && verb == "get" => unrelated(),
        ("", "pods") if whole && lists => {
            "can only list/watch pods with spec.nodeName field selector".to_owned()
        }
        ("resource.k8s.io", "resourceslices") => match verb {
            _ if !whole => "cannot authorize ResourceSlice subresources".to_owned(),
            "list" | "watch" | "deletecollection" => selected("list/watch/deletecollection"),
            _ => unrelated(),
        },
        ("certificates.k8s.io", "podcertificaterequests") if whole => match verb {
            "list" | "watch" => selected("list/watch"),
            "get" => unrelated(),
            _ => String::new(),
        },
        ("storage.k8s.io", "csinodes") if !whole => "cannot authorize CSINode subresources".to_owned(),
        ("storage.k8s.io", "csinodes") => own("CSINode", "CSINode"),
        ("coordination.k8s.io", "leases") if namespace != super::node::LEASES => {
            format!("can only access leases in the {:?} system namespace", super::node::LEASES)
        }
        ("coordination.k8s.io", "leases") => own("node lease", "node lease"),
        _ => String::new(),
    };
    if reason.is_empty() { reason } else { format!("{AUTHORIZER}: {reason}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denials_have_the_reasons_of_kube_apiserver() {
        const UNRELATED: &str = "node: no relationship found between node 'node1' and this object";
        for (request, expected) in [
            ("get /pods a/gone", UNRELATED),
            ("list /pods a/", "node: can only list/watch pods with spec.nodeName field selector"),
            ("get /pods/log a/p", ""),
            ("create /secrets a/s", "node: can only read resources of this type"),
            ("get /secrets/x a/s", "node: cannot read subresource"),
            ("get /secrets /s", "node: can only read namespaced object of this type"),
            ("list /secrets a/s", UNRELATED),
            ("list /secrets a/", "node: No Object name found"),
            ("get /configmaps a/", "node: No Object name found"),
            ("list /persistentvolumeclaims a/", "node: can only get individual resources of this type"),
            ("get /persistentvolumeclaims/status a/c", "node: can only get/update/patch this type"),
            ("patch /persistentvolumeclaims/status a/c", UNRELATED),
            ("update /persistentvolumes /v", "node: can only get individual resources of this type"),
            ("get /serviceaccounts a/s", UNRELATED),
            ("list /serviceaccounts a/", "node: can only create tokens for individual service accounts"),
            ("create /serviceaccounts/token a/s", UNRELATED),
            (
                "update /serviceaccounts/token a/s",
                "node: can only create tokens for individual service accounts",
            ),
            ("get /nodes /node2", "node: node 'node1' cannot read 'node2', only its own Node object"),
            ("watch /nodes /", "node: node 'node1' cannot read all nodes, only its own Node object"),
            ("delete /nodes /node1", ""),
            ("get /nodes/proxy /node1", ""),
            (
                "create coordination.k8s.io/leases a/node1",
                "node: can only access leases in the \"kube-node-lease\" system namespace",
            ),
            (
                "get coordination.k8s.io/leases kube-node-lease/l",
                "node: can only access node lease with the same name as the requesting node",
            ),
            (
                "list coordination.k8s.io/leases kube-node-lease/",
                "node: can only get, create, update, patch, or delete a node lease",
            ),
            (
                "get storage.k8s.io/csinodes /node2",
                "node: can only access CSINode with the same name as the requesting node",
            ),
            (
                "list storage.k8s.io/csinodes /",
                "node: can only get, create, update, patch, or delete a CSINode",
            ),
            ("get storage.k8s.io/csinodes/x /node1", "node: cannot authorize CSINode subresources"),
            ("get storage.k8s.io/volumeattachments /v", UNRELATED),
            (
                "list resource.k8s.io/resourceslices /",
                "node: can only list/watch/deletecollection resourceslices with nodeName field selector",
            ),
            ("get resource.k8s.io/resourceslices /s", UNRELATED),
            (
                "update resource.k8s.io/resourceslices/status /s",
                "node: cannot authorize ResourceSlice subresources",
            ),
            (
                "list certificates.k8s.io/podcertificaterequests a/",
                "node: can only list/watch podcertificaterequests with nodeName field selector",
            ),
            ("get apps/deployments a/d", ""),
        ] {
            let (verb, rest) = request.split_once(' ').unwrap();
            let (kind, object) = rest.split_once(' ').unwrap();
            let mut kind = kind.split('/');
            let (namespace, name) = object.split_once('/').unwrap();
            let attributes = Attributes {
                verb,
                group: kind.next().unwrap(),
                resource: kind.next().unwrap(),
                subresource: kind.next().unwrap_or_default(),
                namespace,
                name,
                ..Attributes::default()
            };
            assert_eq!(denial("node1", &attributes), expected, "{request}");
        }
    }
}
