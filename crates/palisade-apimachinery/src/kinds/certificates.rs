//! Certificate signing requests, trust bundles and certificate requests of pods.
//!
//! Implements: the strategies and the validation of `pkg/apis/certificates` and `pkg/registry/certificates`.
//! <https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/>
//!
//! Leaves to the API server: what needs to read certificates and keys, the user of a request, times of conditions, and who
//! may approve, sign and attest.

use palisade_base::field_path::Path;
use palisade_base::go;
use serde_json::{Value, json};

use super::{Strategy, keep, no_default, no_prepare_create, no_prepare_update, no_reset, set_default};
use crate::apply::ResetFields;
use crate::rest::meta::{self, NameRule};
use crate::rest::names;
use crate::rest::path::{Errors, Get};

/// The conditions that decide about a signing request, and the one of its signer.
const APPROVED: &str = "Approved";
const DENIED: &str = "Denied";
const FAILED: &str = "Failed";

const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";

const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

pub(crate) static SIGNING_REQUEST: Strategy = Strategy {
    default: no_default,
    prepare_create: |object, _| {
        if let Some(object) = object.as_object_mut() {
            object.insert("status".to_owned(), json!({}));
        }
    },
    prepare_update: |new, old, subresource, _| {
        keep(new, old, "spec");
        match subresource {
            // Approval and signing are separate: each keeps what the other writes.
            "approval" => keep_in_status(new, old, "certificate"),
            "status" => keep_decisions(new, old),
            _ => keep(new, old, "status"),
        }
    },
    validate: |object, _, errors| {
        meta::validate(object, false, NameRule::PathSegment, errors);
        validate_request(object, None, errors);
    },
    validate_update: |new, old, subresource, _, errors| {
        validate_request(new, Some(old), errors);
        validate_decisions(new, old, subresource, errors);
        meta::validate_update(new, old, errors);
    },
    reset_fields: |subresource| match subresource {
        "" => ResetFields::Exclude(&[&["spec"], &["status"]]),
        "approval" => ResetFields::Exclude(&[&["spec"], &["status", "certificate"]]),
        _ => ResetFields::Exclude(&[&["spec"]]),
    },
};

fn keep_in_status(new: &mut Value, old: &Value, field: &str) {
    let Some(status) = super::section(new, "status") else { return };
    keep(status, old.get("status").unwrap_or(&Value::Null), field);
}

fn conditions(object: &Value) -> &[Value] {
    object.get("status").map_or(&[], |status| status.list("conditions"))
}

fn condition<'v>(object: &'v Value, kind: &str) -> Option<&'v Value> {
    conditions(object).iter().find(|condition| condition.text("type") == kind)
}

/// Puts the conditions of approval back as they are stored.
fn keep_decisions(new: &mut Value, old: &Value) {
    let decides = |condition: &Value| [APPROVED, DENIED].contains(&condition.text("type"));
    if !conditions(new).iter().chain(conditions(old)).any(decides) {
        return;
    }
    let mut kept: Vec<Value> = Vec::new();
    for written in conditions(new) {
        if !decides(written) {
            kept.push(written.clone());
        } else if let Some(stored) = condition(old, written.text("type")) {
            kept.push(stored.clone());
        }
    }
    for stored in conditions(old).iter().filter(|stored| decides(stored)) {
        if !kept.iter().any(|condition| condition.text("type") == stored.text("type")) {
            kept.push(stored.clone());
        }
    }
    if let Some(status) = super::section(new, "status") {
        status["conditions"] = kept.into();
    }
}

fn validate_request(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let empty = Value::Null;
    let spec = object.get("spec").unwrap_or(&empty);
    let root = Path::Root("spec");
    let (usages, at) = (spec.list("usages"), root.field("usages"));
    if usages.is_empty() {
        errors.required(&at, "");
    }
    for (i, usage) in usages.iter().enumerate() {
        let name = usage.as_str().unwrap_or_default();
        if !USAGES.contains(&name) {
            errors.not_supported(&at.index(i), name, USAGES);
        }
    }
    for (i, usage) in usages.iter().enumerate() {
        if usages.iter().take(i).any(|other| other == usage) {
            errors.duplicate(&at.index(i), usage);
        }
    }
    let signer = spec.text("signerName");
    let legacy =
        old.and_then(|old| old.get("spec")).is_some_and(|spec| spec.text("signerName") == LEGACY_SIGNER);
    if signer == LEGACY_SIGNER && !legacy {
        let why = "the legacy signerName is not allowed via this API version";
        errors.invalid(&root.field("signerName"), signer, why);
    } else {
        validate_signer_name(&root.field("signerName"), signer, errors);
    }
    if let Some(seconds) = spec.int("expirationSeconds").filter(|seconds| *seconds < 600) {
        let why = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.invalid(&root.field("expirationSeconds"), seconds, why);
    }
    validate_conditions(conditions(object), errors);
}

fn validate_conditions(conditions: &[Value], errors: &mut Errors) {
    let root = Path::Root("status");
    let at = root.field("conditions");
    let (mut approved, mut denied) = (false, false);
    for (i, condition) in conditions.iter().enumerate() {
        let (kind, status) = (condition.text("type"), condition.text("status"));
        let here = at.index(i);
        if kind.is_empty() {
            errors.required(&here.field("type"), "");
        }
        let allowed: &[&str] = if [APPROVED, DENIED, FAILED].contains(&kind) {
            &["True"]
        } else {
            &["False", "True", "Unknown"]
        };
        if status.is_empty() {
            errors.required(&here.field("status"), "");
        } else if !allowed.contains(&status) {
            errors.not_supported(&here.field("status"), status, allowed);
        }
        approved |= kind == APPROVED;
        denied |= kind == DENIED;
        if approved && denied && [APPROVED, DENIED].contains(&kind) {
            errors.invalid(&at, kind, "Approved and Denied conditions are mutually exclusive");
        }
        if conditions.iter().take(i).any(|other| other.text("type") == kind) {
            errors.duplicate(&here.field("type"), kind);
        }
    }
}

/// Decisions are final, and only the subresource made for it takes one.
fn validate_decisions(new: &Value, old: &Value, subresource: &str, errors: &mut Errors) {
    let root = Path::Root("status");
    let at = root.field("conditions");
    for kind in [APPROVED, DENIED, FAILED] {
        if condition(old, kind).is_some() && condition(new, kind).is_none() {
            errors.forbidden(&at, format!("updates may not remove a condition of type {}", go::quote(kind)));
        }
    }
    if subresource != "approval" {
        for kind in [APPROVED, DENIED] {
            match (condition(old, kind), condition(new, kind)) {
                (None, Some(_)) => {
                    let why = format!("updates may not add a condition of type {}", go::quote(kind));
                    errors.forbidden(&at, why);
                }
                (Some(stored), Some(written)) if stored != written => {
                    let why = format!("updates may not modify a condition of type {}", go::quote(kind));
                    errors.forbidden(&at, why);
                }
                _ => {}
            }
        }
    }
    let certificate = |object: &Value| {
        object.pointer("/status/certificate").and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let (before, after) = (certificate(old), certificate(new));
    if before != after {
        if subresource != "status" {
            errors.forbidden(&root.field("certificate"), "updates may not set certificate content");
        } else if !before.is_empty() {
            errors
                .forbidden(&root.field("certificate"), "updates may not modify existing certificate content");
        }
    }
}

/// A signer is named by a domain and a path.
pub(super) fn validate_signer_name(at: &Path<'_>, signer: &str, errors: &mut Errors) {
    if signer.is_empty() {
        errors.required(at, "");
        return;
    }
    let (Some((domain, path)), 1) = (signer.split_once('/'), signer.matches('/').count()) else {
        let why = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        errors.invalid(at, signer, why);
        return;
    };
    if domain.len() > 253 {
        errors.too_long(at, 253);
    }
    validate_segment(at, domain, names::dns1123_label, errors);
    if !domain.contains('.') {
        errors.invalid(at, domain, "should be a domain with at least two segments separated by dots");
    }
    validate_segment(at, path, names::dns1123_subdomain, errors);
    if signer.len() > 571 {
        errors.too_long(at, 571);
    }
}

/// Checks the parts of a segment between dots; the first mistake is enough.
fn validate_segment(
    at: &Path<'_>,
    segment: &str,
    rule: impl Fn(&str) -> names::Messages,
    errors: &mut Errors,
) {
    for label in segment.split('.') {
        let messages = rule(label);
        if !messages.is_empty() {
            for message in messages {
                errors.invalid(at, segment, format!("validating label {}: {message}", go::quote(label)));
            }
            return;
        }
    }
}

pub(crate) static TRUST_BUNDLE: Strategy = Strategy {
    default: no_default,
    prepare_create: no_prepare_create,
    prepare_update: no_prepare_update,
    validate: |object, _, errors| {
        meta::validate(object, false, NameRule::PathSegment, errors);
        validate_bundle(object, errors);
    },
    validate_update: |new, old, _, _, errors| {
        validate_bundle(new, errors);
        meta::validate_update(new, old, errors);
        let signer = |object: &Value| object.pointer("/spec/signerName").cloned();
        let spec = Path::Root("spec");
        errors.immutable(&spec.field("signerName"), signer(new).as_ref(), signer(old).as_ref());
    },
    reset_fields: no_reset,
};

fn validate_bundle(object: &Value, errors: &mut Errors) {
    let empty = Value::Null;
    let signer = object.get("spec").unwrap_or(&empty).text("signerName");
    let metadata = Path::Root("metadata");
    let at = metadata.field("name");
    let name = object.get("metadata").unwrap_or(&empty).text("name");
    let rest = if signer.is_empty() {
        if name.contains(':') {
            let why = "ClusterTrustBundle without signer name must not have \":\" in its name";
            errors.invalid(&at, name, why);
            return;
        }
        name
    } else {
        let spec = Path::Root("spec");
        validate_signer_name(&spec.field("signerName"), signer, errors);
        let prefix = format!("{}:", signer.replace('/', ":"));
        let Some(rest) = name.strip_prefix(&prefix) else {
            let why =
                format!("ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}");
            errors.invalid(&at, name, why);
            return;
        };
        rest
    };
    errors.format(&at, name, names::dns1123_subdomain(rest));
}

/// The conditions that end a certificate request of a pod.
const OUTCOMES: &[&str] = &["Denied", "Failed", "Issued"];
const DAY: i64 = 86_400;

pub(crate) static POD_REQUEST: Strategy = Strategy {
    default: |object, _| {
        if let Some(spec) = super::section(object, "spec") {
            set_default(spec, "maxExpirationSeconds", DAY);
        }
    },
    prepare_create: |object, _| {
        if let Some(object) = object.as_object_mut() {
            object.insert("status".to_owned(), json!({}));
        }
    },
    prepare_update: |new, old, subresource, _| {
        keep(new, old, if subresource == "status" { "spec" } else { "status" });
    },
    validate: |object, _, errors| {
        meta::validate(object, true, NameRule::Subdomain, errors);
        validate_pod_request(object, errors);
    },
    validate_update: |new, old, subresource, _, errors| {
        meta::validate_update(new, old, errors);
        if subresource == "status" {
            validate_outcome(new, old, errors);
        } else {
            errors.immutable(&Path::Root("spec"), new.get("spec"), old.get("spec"));
        }
    },
    reset_fields: |subresource| match subresource {
        "status" => ResetFields::Exclude(&[&["spec"], &["metadata"]]),
        _ => ResetFields::Exclude(&[&["status"]]),
    },
};

/// How long a certificate of a pod may be valid at most, in seconds: Kubernetes' own signers issue short ones.
pub(super) fn longest_certificate(signer: &str) -> i64 {
    let host = signer.split('/').next().unwrap_or_default();
    if host == "kubernetes.io" || host.ends_with(".kubernetes.io") { DAY } else { 91 * DAY }
}

fn validate_pod_request(object: &Value, errors: &mut Errors) {
    let empty = Value::Null;
    let spec = object.get("spec").unwrap_or(&empty);
    let root = Path::Root("spec");
    let signer = spec.text("signerName");
    validate_signer_name(&root.field("signerName"), signer, errors);
    for (name, uid) in
        [("podName", "podUID"), ("serviceAccountName", "serviceAccountUID"), ("nodeName", "nodeUID")]
    {
        let text = spec.text(name);
        errors.format(&root.field(name), text, names::dns1123_subdomain(text));
        let text = spec.text(uid);
        if text.is_empty() {
            errors.invalid(&root.field(uid), text, "must not be empty");
        } else if text.len() > 128 {
            errors.too_long(&root.field(uid), 128);
        }
    }
    let annotations = root.field("unverifiedUserAnnotations");
    for (key, _) in spec.entries("unverifiedUserAnnotations") {
        errors.format(&annotations, key, names::qualified_name(&key.to_lowercase(), errors.version));
        if !key.contains('/') {
            errors.invalid(&annotations, key.as_str(), "must be a domain-prefixed key");
        }
    }
    let most = longest_certificate(signer);
    let seconds = spec.int("maxExpirationSeconds").unwrap_or(0);
    if !(3600..=most).contains(&seconds) {
        let why = format!("must be in the range [3600, {most}]");
        errors.invalid(&root.field("maxExpirationSeconds"), seconds, why);
    }
}

/// A status is written once, with what ends the request.
fn validate_outcome(new: &Value, old: &Value, errors: &mut Errors) {
    let before = errors.list.len();
    let root = Path::Root("status");
    let at = root.field("conditions");
    let mut outcomes = 0;
    for (i, condition) in conditions(new).iter().enumerate() {
        let (kind, status, here) = (condition.text("type"), condition.text("status"), at.index(i));
        if !OUTCOMES.contains(&kind) {
            errors.not_supported(&here.field("type"), kind, &["Denied", "Failed", "Issued"]);
            continue;
        }
        outcomes += 1;
        if outcomes > 1 {
            let why = r#"There may be at most one condition with type "Issued", "Denied", or "Failed""#;
            errors.invalid(&here.field("type"), kind, why);
        }
        if status != "True" {
            errors.not_supported(&here.field("status"), status, &["True"]);
        }
        for field in ["lastTransitionTime", "reason"] {
            if condition.text(field).is_empty() {
                errors.required(&here.field(field), if field == "reason" { "" } else { "must be set" });
            }
        }
    }
    if errors.list.len() > before || new.get("status") == old.get("status") {
        return;
    }
    let ended = |object: &Value, kinds: &[&str]| {
        conditions(object).iter().any(|c| kinds.contains(&c.text("type")) && c.text("status") == "True")
    };
    let omitted = || palisade_base::field_error::BadValue::Omitted;
    if ended(old, OUTCOMES) {
        let why = "immutable after PodCertificateRequest is issued, denied, or failed";
        errors.invalid(&root, omitted(), why);
    } else if ended(new, &["Denied", "Failed"]) {
        let others = new.get("status").and_then(Value::as_object).into_iter().flatten();
        let mut set = others.filter(|(field, value)| {
            field.as_str() != "conditions" && !value.is_null() && value.as_str() != Some("")
        });
        if set.next().is_some() {
            let why =
                "non-condition status fields must be empty when denying or failing the PodCertificateRequest";
            errors.invalid(&root, omitted(), why);
        }
    } else if !ended(new, &["Issued"]) {
        let why = r#"status is immutable unless transitioning to "Issued", "Denied", or "Failed""#;
        errors.invalid(&root, omitted(), why);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use palisade_base::version::KubeVersion;

    fn messages(check: impl FnOnce(&mut Errors)) -> Vec<String> {
        let mut errors = Errors::new(KubeVersion::LATEST);
        check(&mut errors);
        errors.list.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_of_signers() {
        let at = Path::Root("s");
        for (signer, problems) in [
            ("example.com/signer", 0),
            ("kubernetes.io/kube-apiserver-client", 0),
            ("example.com/a.b", 0),
            ("", 1),
            ("example.com", 1),
            ("example.com/a/b", 1),
            ("localhost/a", 1),
            ("Example.com/a", 1),
            ("example.com/", 1),
        ] {
            let found = messages(|errors| validate_signer_name(&at, signer, errors));
            assert_eq!(found.len(), problems, "{signer}: {found:?}");
        }
    }

    fn request(status: &Value) -> Value {
        json!({"metadata": {"name": "r"}, "spec": {"signerName": "example.com/s", "usages": ["client auth"]},
               "status": status})
    }

    fn decided(kind: &str) -> Value {
        json!({"conditions": [{"type": kind, "status": "True"}]})
    }

    #[test]
    fn each_subresource_writes_its_own_part() {
        let update = SIGNING_REQUEST.prepare_update;
        let stored = request(&decided(APPROVED));
        for (subresource, written, kept) in [
            ("", json!({}), decided(APPROVED)),
            ("status", json!({}), decided(APPROVED)),
            ("status", decided(DENIED), decided(APPROVED)),
            ("approval", json!({"conditions": [], "certificate": "eA=="}), json!({"conditions": []})),
        ] {
            let mut new = request(&written);
            new["spec"]["signerName"] = "example.com/other".into();
            update(&mut new, &stored, subresource, KubeVersion::LATEST);
            assert_eq!(new["status"], kept, "{subresource} {written}");
            assert_eq!(new["spec"], stored["spec"], "{subresource}");
        }
    }

    #[test]
    fn decisions_are_final() {
        for (case, subresource, before, after, problems) in [
            ("approve", "approval", json!({}), decided(APPROVED), 0),
            ("approve elsewhere", "status", json!({}), decided(APPROVED), 1),
            ("take back", "approval", decided(APPROVED), json!({}), 1),
            ("sign and take back", "status", decided(APPROVED), json!({"certificate": "eA=="}), 1),
            ("sign through approval", "approval", json!({}), json!({"certificate": "eA=="}), 1),
            ("sign again", "status", json!({"certificate": "eA=="}), json!({"certificate": "eQ=="}), 1),
        ] {
            let (before, after) = (request(&before), request(&after));
            let found = messages(|errors| validate_decisions(&after, &before, subresource, errors));
            assert_eq!(found.len(), problems, "{case}: {found:?}");
        }
        let both = json!([{"type": "Approved", "status": "True"}, {"type": "Denied", "status": "True"}]);
        let found = messages(|errors| validate_conditions(both.as_array().unwrap(), errors));
        assert!(found[0].contains("mutually exclusive"), "{found:?}");
    }

    #[test]
    fn trust_bundles_are_named_after_their_signer() {
        for (name, signer, problems) in [
            ("plain", "", 0),
            ("a:b", "", 1),
            ("example.com:signer:one", "example.com/signer", 0),
            ("one", "example.com/signer", 1),
            ("other.com:signer:one", "example.com/signer", 1),
        ] {
            let bundle = json!({"metadata": {"name": name}, "spec": {"signerName": signer}});
            let found = messages(|errors| validate_bundle(&bundle, errors));
            assert_eq!(found.len(), problems, "{name} {signer}: {found:?}");
        }
    }
}
