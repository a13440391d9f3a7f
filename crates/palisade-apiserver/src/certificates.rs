//! What the API server alone knows about the kinds of `certificates.k8s.io`: the user of a request, the time, and whether
//! keys and certificates can be read.
//!
//! Implements: the parts of the strategies and of the validation in `pkg/apis/certificates` that read PEM and DER.
//! The other rules are in `palisade-apimachinery`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use palisade_apimachinery::Kind;
use palisade_apimachinery::rest::path::Get as _;
use palisade_base::field_error::{BadValue, FieldError};
use palisade_base::time;
use palisade_serve::signing_request::{
    Block, CERTIFICATE, CertificateFacts, SigningRequest, blocks, certificate_facts,
};
use serde_json::{Value, json};

use crate::auth::UserInfo;
use crate::meta;

const GROUP: &str = "certificates.k8s.io";
/// The group resource of signing requests.
pub(crate) const REQUESTS: &str = "certificatesigningrequests.certificates.k8s.io";
/// Upstream's limits.
const LARGEST_BUNDLE: usize = 1 << 20;
const LARGEST_CHAIN: usize = 10 << 10;
const LARGEST_STUB: usize = 10 << 10;

fn is(kind: &Kind, name: &str) -> bool {
    kind.group == GROUP && kind.kind == name && !kind.is_custom()
}

/// A signing request states who made it, whatever its author wrote there.
pub(crate) fn before_create(kind: &Kind, object: &mut Value, user: &UserInfo) {
    if !is(kind, "CertificateSigningRequest") {
        return;
    }
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    for field in ["username", "uid", "groups", "extra"] {
        spec.remove(field);
    }
    for (field, value) in user.to_value().as_object().into_iter().flatten() {
        spec.insert(field.clone(), value.clone());
    }
}

/// Completes the times of conditions.
pub(crate) fn before_update(kind: &Kind, object: &mut Value, old: &Value) {
    if !is(kind, "CertificateSigningRequest") {
        return;
    }
    let before = old.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let conditions = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        if condition.text("lastUpdateTime").is_empty() {
            condition["lastUpdateTime"] = meta::now().into();
        }
        if condition.text("lastTransitionTime").is_empty() {
            let same = |known: &&Value| {
                ["type", "status"].iter().all(|field| known.text(field) == condition.text(field))
            };
            let known = before.iter().find(same).map(|known| known.text("lastTransitionTime").to_owned());
            let known = known.filter(|time| !time.is_empty());
            condition["lastTransitionTime"] = known.unwrap_or_else(meta::now).into();
        }
    }
}

/// What is wrong with the keys and certificates of an object; those that were stored before are let be.
pub(crate) fn errors(kind: &Kind, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    if kind.group != GROUP || kind.is_custom() {
        return Vec::new();
    }
    let changed = |pointer: &str| old.is_none_or(|old| old.pointer(pointer) != object.pointer(pointer));
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let mut errors = Vec::new();
    match kind.kind.as_str() {
        "CertificateSigningRequest" => {
            if changed("/spec/request") {
                errors.extend(request_error(text("/spec/request")));
            }
            if changed("/status/certificate")
                && let Err(why) = check_certificates(text("/status/certificate"))
            {
                errors.push(FieldError::invalid("status.certificate", "<certificate data>", why));
            }
        }
        "ClusterTrustBundle" if changed("/spec/trustBundle") => {
            errors.extend(bundle_errors(text("/spec/trustBundle")));
        }
        "PodCertificateRequest" => {
            if changed("/spec/stubPKCS10Request") {
                errors.extend(stub_error(text("/spec/stubPKCS10Request")));
            }
            if old.is_some() && changed("/status") {
                errors.extend(issued_error(object));
            }
        }
        _ => {}
    }
    errors
}

/// Base64 as the decoder has checked it.
fn bytes(base64: &str) -> Vec<u8> {
    // swallowed: the decoder rejects what is not base64; nothing is no request and no certificate
    STANDARD.decode(base64).unwrap_or_default()
}

fn request_error(request: &str) -> Option<FieldError> {
    let pem = bytes(request);
    let error = SigningRequest::from_pem(&pem).err()?;
    Some(FieldError::invalid("spec.request", BadValue::Plain(format!("{request:?}")), error.to_string()))
}

/// Certificates in PEM, and nothing else.
fn check_certificates(base64: &str) -> Result<(), &'static str> {
    if base64.is_empty() {
        return Ok(());
    }
    let found = blocks(&bytes(base64));
    if found.is_empty() {
        return Err("must contain at least one CERTIFICATE PEM block");
    }
    for block in &found {
        if block.label != CERTIFICATE {
            return Err("only CERTIFICATE PEM blocks are allowed");
        }
        if block.headers {
            return Err("no PEM block headers are permitted");
        }
        if certificate_facts(&block.der).is_none() {
            return Err("x509: malformed certificate");
        }
    }
    Ok(())
}

fn bundle_errors(bundle: &str) -> Vec<FieldError> {
    const FIELD: &str = "spec.trustBundle";
    if bundle.len() > LARGEST_BUNDLE {
        return vec![FieldError::too_long(FIELD, LARGEST_BUNDLE)];
    }
    let invalid = |why: String| FieldError::invalid(FIELD, "<value omitted>", why);
    let found = blocks(bundle.as_bytes());
    let problem = |(i, block): (usize, &Block)| {
        let why = if block.label != CERTIFICATE {
            format!("entry {i} has bad block type: {}", block.label)
        } else if block.headers {
            format!("entry {i} has PEM block headers")
        } else {
            match certificate_facts(&block.der) {
                None => format!("entry {i} does not parse as X.509"),
                Some(CertificateFacts { is_authority: false, .. }) => {
                    format!("entry {i} does not have the CA bit set")
                }
                Some(_) => return None,
            }
        };
        Some(invalid(why))
    };
    let mut errors: Vec<FieldError> = found.iter().enumerate().filter_map(problem).collect();
    if !errors.is_empty() {
        return errors;
    }
    if found.is_empty() {
        return vec![invalid("at least one trust anchor must be provided".to_owned())];
    }
    for (i, block) in found.iter().enumerate() {
        let same: Vec<usize> = (0..found.len()).filter(|j| found[*j].der == block.der).collect();
        if same.first() == Some(&i) && same.len() > 1 {
            let indices: Vec<String> = same.iter().map(ToString::to_string).collect();
            errors.push(invalid(format!("duplicate trust anchor (indices [{}])", indices.join(" "))));
        }
    }
    errors
}

fn stub_error(stub: &str) -> Option<FieldError> {
    const FIELD: &str = "spec.stubPKCS10Request";
    let der = bytes(stub);
    if der.len() > LARGEST_STUB {
        return Some(FieldError::too_long(FIELD, LARGEST_STUB));
    }
    let why = match SigningRequest::from_der(&der) {
        Ok(_) => return None,
        Err(error) => format!("must be a valid PKCS#10 certificate signing request: {error}"),
    };
    Some(FieldError::invalid(FIELD, BadValue::Omitted, why))
}

/// A request that turns issued has a certificate for its key, and times that agree with it.
fn issued_error(object: &Value) -> Option<FieldError> {
    let empty = Value::Null;
    let (spec, status) = (object.get("spec").unwrap_or(&empty), object.get("status").unwrap_or(&empty));
    let issued = |c: &Value| c.text("type") == "Issued" && c.text("status") == "True";
    if !status.list("conditions").iter().any(issued) {
        return None;
    }
    let chain = status.text("certificateChain");
    let field = |name: &str, why: &'static str| {
        Some(FieldError::invalid(format!("status.{name}"), BadValue::Omitted, why))
    };
    if chain.len() > LARGEST_CHAIN {
        return Some(FieldError::too_long("status.certificateChain", LARGEST_CHAIN));
    }
    let found = blocks(chain.as_bytes());
    if found.is_empty() {
        return field("certificateChain", "issued certificate chain must contain at least one certificate");
    }
    if found.iter().any(|block| block.label != CERTIFICATE) {
        let why = "issued certificate chain must consist entirely of CERTIFICATE PEM blocks";
        return field("certificateChain", why);
    }
    let facts: Option<Vec<CertificateFacts>> =
        found.iter().map(|block| certificate_facts(&block.der)).collect();
    let Some(leaf) = facts.and_then(|all| all.into_iter().next()) else {
        return field("certificateChain", "leaf certificate does not parse as valid X.509");
    };
    let key = SigningRequest::from_der(&bytes(spec.text("stubPKCS10Request"))).map(|stub| stub.public_key);
    if key.as_deref() != Ok(&*leaf.public_key) {
        return field("certificateChain", "leaf certificate was not issued to the requested public key");
    }
    let mut times = [0; 3];
    for (at, name) in times.iter_mut().zip(["notBefore", "notAfter", "beginRefreshAt"]) {
        let Ok(time) = time::parse(status.text(name)) else {
            let why = "must be present and consistent with the issued certificate";
            return Some(FieldError::required(format!("status.{name}"), why));
        };
        *at = time.seconds;
    }
    let [not_before, not_after, refresh] = times;
    let lifetime = leaf.not_after.saturating_sub(leaf.not_before);
    if not_before != leaf.not_before {
        field("notBefore", "must be set to the NotBefore time encoded in the leaf certificate")
    } else if (not_before - meta::unix_now()).abs() >= 300 {
        field("notBefore", "must be set to within 5 minutes of kube-apiserver's current time")
    } else if not_after != leaf.not_after {
        field("notAfter", "must be set to the NotAfter time encoded in the leaf certificate")
    } else if lifetime < 3600 {
        field("certificateChain", "leaf certificate lifetime must be >= 1 hour")
    } else if lifetime > spec.int("maxExpirationSeconds").unwrap_or(0) {
        field("certificateChain", "leaf certificate lifetime must be <= spec.maxExpirationSeconds")
    } else if refresh < not_before.saturating_add(600) {
        field("beginRefreshAt", "must be at least 10 minutes after status.notBefore")
    } else if refresh > not_after.saturating_sub(600) {
        field("beginRefreshAt", "must be at least 10 minutes before status.notAfter")
    } else {
        None
    }
}

/// Who requests what, as the plugins and the signer judge it; nothing if the request cannot be read.
pub(crate) fn requested(object: &Value) -> Option<SigningRequest> {
    let request = object.pointer("/spec/request").and_then(Value::as_str)?;
    SigningRequest::from_pem(&bytes(request)).ok()
}

/// The PEM of a signing request.
pub(crate) fn request_pem(object: &Value) -> Vec<u8> {
    bytes(object.pointer("/spec/request").and_then(Value::as_str).unwrap_or_default())
}

/// A condition of a signing request.
pub(crate) fn condition(kind: &str, reason: &str, message: &str) -> Value {
    let now = meta::now();
    json!({"type": kind, "status": "True", "reason": reason, "message": message,
           "lastUpdateTime": now, "lastTransitionTime": now})
}

/// Whether a signing request has a condition.
pub(crate) fn has_condition(object: &Value, kind: &str) -> bool {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|c| c.text("type") == kind && c.text("status") == "True")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use palisade_serve::certificate;

    use super::*;

    #[test]
    fn trust_bundles_are_authorities_in_pem() {
        let now = certificate::now();
        let hour = Duration::from_hours(1);
        let one = certificate::authority("one", now, hour).unwrap();
        let leaf = certificate::client(&one, "a", &[], now, hour).unwrap();
        let (ca, leaf) = (one.certificate.as_str(), leaf.certificate.as_str());
        for (case, bundle, problem) in [
            ("an authority", ca.to_owned(), None),
            ("text around it", format!("hello\n{ca}bye\n"), None),
            ("nothing", String::new(), Some("at least one trust anchor")),
            ("a leaf", leaf.to_owned(), Some("CA bit")),
            ("a key", one.key.clone(), Some("bad block type")),
            ("twice", format!("{ca}{ca}"), Some("duplicate trust anchor (indices [0 1])")),
        ] {
            let found = bundle_errors(&bundle);
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            assert_eq!(found.len(), usize::from(problem.is_some()), "{case}: {found:?}");
            if let Some(problem) = problem {
                assert!(found[0].contains(problem), "{case}: {found:?}");
            }
        }
    }

    #[test]
    fn a_signing_request_states_who_made_it() {
        let kind =
            palisade_apimachinery::scheme::LATEST.by_kind(GROUP, "v1", "CertificateSigningRequest").unwrap();
        let mut object = json!({"spec": {"username": "admin", "groups": ["system:masters"], "uid": "1"}});
        before_create(kind, &mut object, &UserInfo::new("eve", &["users"]));
        assert_eq!(object["spec"], json!({"username": "eve", "groups": ["users"]}));
    }
}
