//! Approves the client certificates of kubelets and signs the requests for Kubernetes' own signers.
//!
//! Implements: Certificate Signing Requests, "Kubernetes signers", with the authority of this server.
//! <https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/#kubernetes-signers>
//!
//! `kubernetes.io/legacy-unknown` is not signed: nothing says what such a certificate is for.

use std::sync::Arc;
use std::time::Duration;

use palisade_apimachinery::rest::path::Get as _;
use palisade_serve::certificate::Pair;
use palisade_serve::signing_request::{self, SigningRequest};
use serde_json::{Value, json};

use crate::api::Api;
use crate::auth::UserInfo;
use crate::auth::node::NODES;
use crate::auth::rbac::Attributes;
use crate::certificates::{self, REQUESTS};
use crate::meta;
use crate::registry::Entry;
use crate::storage::{Expect, Object, Range};
use crate::verbs::write;

const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
/// A year, as upstream, unless the request wants less.
const LONGEST: u64 = 365 * 24 * 3600;
const SHORTEST: u64 = 600;

/// What happens to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    /// Nothing, now.
    Wait,
    /// It is approved.
    Approve,
    /// It is signed.
    Sign,
    /// It is not what its signer signs.
    Fail(&'static str),
}

/// Works on the requests that changed.
pub(super) async fn run(api: &Arc<Api>, seen: &mut u64) {
    let now = api.store.bucket(REQUESTS).changed_at();
    if std::mem::replace(seen, now) == now {
        return;
    }
    let Some(authority) = &api.authority else { return };
    let served = api.registry.served();
    let Some(entry) = served.find("certificates.k8s.io", "v1", "certificatesigningrequests") else { return };
    for stored in entry.bucket.list(&Range::All).objects {
        let request = entry.typed(stored.parse());
        let may = |user: &UserInfo, subresource: &str| {
            let attributes = Attributes {
                verb: "create",
                group: "certificates.k8s.io",
                version: "*",
                resource: "certificatesigningrequests",
                subresource,
                ..Attributes::default()
            };
            api.authorizer.authorize(user, &attributes).allowed
        };
        let verdict = verdict(&request, may);
        act(api, entry, &stored, request, &verdict, authority).await;
    }
}

fn verdict(request: &Value, may: impl Fn(&UserInfo, &str) -> bool) -> Verdict {
    let empty = Value::Null;
    let spec = request.get("spec").unwrap_or(&empty);
    let signer = spec.text("signerName");
    let issued = request.get("status").is_some_and(|status| !status.text("certificate").is_empty());
    let ended = ["Denied", "Failed"].iter().any(|kind| certificates::has_condition(request, kind));
    if issued || ended || ![CLIENT, KUBELET_CLIENT, KUBELET_SERVING].contains(&signer) {
        return Verdict::Wait;
    }
    let usages: Vec<&str> = spec.list("usages").iter().filter_map(Value::as_str).collect();
    let Some(requested) = certificates::requested(request) else {
        return Verdict::Fail("the certificate request cannot be read");
    };
    let fits = fits(signer, &requested, &usages);
    if certificates::has_condition(request, "Approved") {
        return fits.map_or_else(Verdict::Fail, |()| Verdict::Sign);
    }
    if signer != KUBELET_CLIENT || fits.is_err() {
        return Verdict::Wait;
    }
    let author = author(spec);
    // A kubelet renews its own certificate; one that joins has a right to one for any node.
    let own = author.name == requested.common_name && may(&author, "selfnodeclient");
    if own || may(&author, "nodeclient") { Verdict::Approve } else { Verdict::Wait }
}

fn author(spec: &Value) -> UserInfo {
    let texts = |list: &[Value]| list.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let extra = spec
        .entries("extra")
        .map(|(key, values)| (key.clone(), texts(values.as_array().map_or(&[], Vec::as_slice))));
    UserInfo {
        name: spec.text("username").to_owned(),
        uid: spec.text("uid").to_owned(),
        groups: texts(spec.list("groups")),
        extra: extra.collect(),
    }
}

/// Whether a signer signs such a request.
fn fits(signer: &str, requested: &SigningRequest, usages: &[&str]) -> Result<(), &'static str> {
    let purpose = if signer == KUBELET_SERVING { "server auth" } else { "client auth" };
    let known = |usage: &&str| [purpose, "digital signature", "key encipherment"].contains(usage);
    if !usages.contains(&purpose) || !usages.iter().all(known) {
        return Err("the usages are not those of the signer");
    }
    if signer == CLIENT {
        return Ok(());
    }
    if !usages.contains(&"digital signature") {
        return Err("the usage digital signature is required");
    }
    if requested.organizations != [NODES] {
        return Err("the organization must be system:nodes, and nothing else");
    }
    if requested.common_name.strip_prefix("system:node:").is_none_or(str::is_empty) {
        return Err("the common name must begin with system:node:");
    }
    let named = !requested.dns_names.is_empty() || !requested.addresses.is_empty();
    match (signer == KUBELET_SERVING, named, requested.other_names) {
        (_, _, true) => Err("names of other types than DNS names and addresses are not allowed"),
        (true, false, _) => Err("a DNS name or an address is required"),
        (false, true, _) => Err("DNS names and addresses are not allowed"),
        _ => Ok(()),
    }
}

async fn act(
    api: &Arc<Api>,
    entry: &Entry,
    stored: &Object,
    mut request: Value,
    verdict: &Verdict,
    authority: &Pair,
) {
    let condition = match verdict {
        Verdict::Wait => return,
        Verdict::Approve => {
            let why = "Auto approving kubelet client certificate after SubjectAccessReview.";
            Some(certificates::condition("Approved", "AutoApproved", why))
        }
        Verdict::Fail(why) => Some(certificates::condition("Failed", "SignerValidationFailure", why)),
        Verdict::Sign => match sign(&request, authority) {
            Ok(certificate) => {
                request["status"]["certificate"] = certificate.into();
                None
            }
            Err(error) => {
                tracing::warn!(request = stored.name(), %error, "cannot sign a certificate request");
                Some(certificates::condition("Failed", "SigningFailed", "the request cannot be signed"))
            }
        },
    };
    if let Some(condition) = condition {
        let conditions = request.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
        match conditions {
            Some(conditions) => conditions.push(condition),
            None => request["status"]["conditions"] = json!([condition]),
        }
    }
    // A change meanwhile is seen in the next round.
    let _ = write::commit(api, entry, stored.key(), Expect::Revision(stored.revision), request, false).await;
}

fn sign(request: &Value, authority: &Pair) -> Result<String, palisade_serve::certificate::IssueError> {
    use base64::Engine as _;
    let empty = Value::Null;
    let spec = request.get("spec").unwrap_or(&empty);
    let usages: Vec<&str> = spec.list("usages").iter().filter_map(Value::as_str).collect();
    let seconds = spec.get("expirationSeconds").and_then(Value::as_u64).unwrap_or(LONGEST);
    let validity = Duration::from_secs(seconds.clamp(SHORTEST, LONGEST));
    let pem = certificates::request_pem(request);
    let signed = signing_request::sign(authority, &pem, &usages, meta::unix_now(), validity)?;
    Ok(base64::engine::general_purpose::STANDARD.encode(signed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(name: &str, organizations: &[&str], dns: &[&str]) -> SigningRequest {
        let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        SigningRequest {
            common_name: name.to_owned(),
            organizations: owned(organizations),
            dns_names: owned(dns),
            ..SigningRequest::default()
        }
    }

    #[test]
    fn each_signer_signs_its_own_kind_of_request() {
        let (client, server) = (["client auth", "digital signature"], ["server auth", "digital signature"]);
        let node = "system:node:a";
        for (case, signer, request, usages, expected) in [
            ("a client", CLIENT, request("eve", &["users"], &[]), &client[..], true),
            ("a client that serves", CLIENT, request("eve", &[], &[]), &server[..], false),
            ("a kubelet", KUBELET_CLIENT, request(node, &[NODES], &[]), &client[..], true),
            (
                "another group",
                KUBELET_CLIENT,
                request(node, &[NODES, "system:masters"], &[]),
                &client[..],
                false,
            ),
            ("no node", KUBELET_CLIENT, request("admin", &[NODES], &[]), &client[..], false),
            (
                "a node without a name",
                KUBELET_CLIENT,
                request("system:node:", &[NODES], &[]),
                &client[..],
                false,
            ),
            ("a name to serve under", KUBELET_CLIENT, request(node, &[NODES], &["a"]), &client[..], false),
            ("a kubelet's port", KUBELET_SERVING, request(node, &[NODES], &["a"]), &server[..], true),
            ("a port without a name", KUBELET_SERVING, request(node, &[NODES], &[]), &server[..], false),
            (
                "a port that signs",
                KUBELET_SERVING,
                request(node, &[NODES], &["a"]),
                &["server auth", "cert sign"][..],
                false,
            ),
        ] {
            assert_eq!(fits(signer, &request, usages).is_ok(), expected, "{case}");
        }
    }
}
