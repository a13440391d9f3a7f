//! Who may approve, sign and attest certificates, and for whom none is requested.
//!
//! Implements: Certificates and Certificate Signing Requests, "Authorization", and the plugins CertificateApproval,
//! CertificateSigning, CertificateSubjectRestriction and ClusterTrustBundleAttest.
//! <https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/#authorization>

use palisade_apimachinery::rest::path::Get as _;
use serde_json::Value;

use crate::admission_chain::{Admission, Notes, Operation, Plugin, Request};
use crate::auth::MASTERS;
use crate::auth::rbac::Attributes;
use crate::certificates;

const GROUP: &str = "certificates.k8s.io";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// Whether the user has a verb on a signer, by its name or by its domain.
fn may(request: &Request<'_>, verb: &str, signer: &str) -> bool {
    let wildcard = signer.split_once('/').map(|(domain, _)| format!("{domain}/*"));
    let allowed = |name: &str| {
        let attributes = Attributes {
            verb,
            group: GROUP,
            version: "*",
            resource: "signers",
            name,
            ..Attributes::default()
        };
        request.cluster.authorized(request.user, &attributes)
    };
    allowed(signer) || wildcard.is_some_and(|wildcard| allowed(&wildcard))
}

fn signer(object: Option<&Value>) -> &str {
    object.and_then(|object| object.pointer("/spec/signerName")).and_then(Value::as_str).unwrap_or_default()
}

fn writes(request: &Request<'_>, resource: &str, subresource: &str) -> bool {
    request.kind.group == GROUP && request.kind.plural == resource && request.subresource == subresource
}

/// Approving is a right on the signer.
#[derive(Debug, Clone, Copy)]
pub struct CertificateApproval;

impl Plugin for CertificateApproval {
    fn name(&self) -> &'static str {
        "CertificateApproval"
    }

    fn validate(&self, request: &Request<'_>, _: Option<&Value>, _: &mut Notes) -> Admission {
        if !writes(request, "certificatesigningrequests", "approval") {
            return Ok(());
        }
        // The stored one: the signer cannot be changed.
        let signer = signer(request.old_object);
        if may(request, "approve", signer) {
            return Ok(());
        }
        Err(request.forbidden(&format!("user not permitted to approve requests with signerName {signer:?}")))
    }
}

/// Issuing a certificate, or failing to, is a right on the signer.
#[derive(Debug, Clone, Copy)]
pub struct CertificateSigning;

impl Plugin for CertificateSigning {
    fn name(&self) -> &'static str {
        "CertificateSigning"
    }

    fn validate(&self, request: &Request<'_>, object: Option<&Value>, _: &mut Notes) -> Admission {
        if !writes(request, "certificatesigningrequests", "status") {
            return Ok(());
        }
        let part = |object: Option<&Value>, field: &str| {
            let part = object.and_then(|object| object.get("status")).and_then(|status| status.get(field));
            part.cloned().unwrap_or_default()
        };
        let same = |field: &str| part(object, field) == part(request.old_object, field);
        if same("certificate") && same("conditions") {
            return Ok(());
        }
        let signer = signer(request.old_object);
        if may(request, "sign", signer) {
            return Ok(());
        }
        Err(request.forbidden(&format!("user not permitted to sign requests with signerName {signer:?}")))
    }
}

/// No client certificate for the group that may do everything.
#[derive(Debug, Clone, Copy)]
pub struct CertificateSubjectRestriction;

impl Plugin for CertificateSubjectRestriction {
    fn name(&self) -> &'static str {
        "CertificateSubjectRestriction"
    }

    fn validate(&self, request: &Request<'_>, object: Option<&Value>, _: &mut Notes) -> Admission {
        let Some(object) = object.filter(|_| request.operation == Operation::Create) else { return Ok(()) };
        if !writes(request, "certificatesigningrequests", "") || signer(Some(object)) != CLIENT_SIGNER {
            return Ok(());
        }
        let Some(requested) = certificates::requested(object) else {
            return Err(request.forbidden("failed to parse CSR"));
        };
        if requested.organizations.iter().any(|group| group == MASTERS) {
            return Err(request
                .forbidden(&format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed")));
        }
        Ok(())
    }
}

/// A trust bundle of a signer needs the right to attest for it.
#[derive(Debug, Clone, Copy)]
pub struct ClusterTrustBundleAttest;

impl Plugin for ClusterTrustBundleAttest {
    fn name(&self) -> &'static str {
        "ClusterTrustBundleAttest"
    }

    fn validate(&self, request: &Request<'_>, object: Option<&Value>, _: &mut Notes) -> Admission {
        let Some(object) = object else { return Ok(()) };
        if !writes(request, "clustertrustbundles", "") {
            return Ok(());
        }
        // As upstream, an update that changes nothing, and one on the way out, needs no right.
        if let Some(old) = request.old_object {
            let deleting =
                !object.get("metadata").map_or("", |meta| meta.text("deletionTimestamp")).is_empty();
            if deleting || old.get("spec") == object.get("spec") {
                return Ok(());
            }
        }
        let signer = signer(Some(object));
        if signer.is_empty() || may(request, "attest", signer) {
            return Ok(());
        }
        Err(request.forbidden(&format!("user not permitted to attest for signerName {signer:?}")))
    }
}
