//! Certificates of a pod in a `projected` volume: keys that the node makes, and the chains that a signer issues for them.
//!
//! Implements: `pkg/kubelet/podcertificate` of Kubernetes v1.37. A key is in memory and on the tmpfs of the volume, nowhere else: an
//! agent that starts anew requests another certificate. The API server checks that a chain is for the key that was requested.
//!
//! Keys of RSA and of the curve P-521 are not made; a volume that requests one is reported.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use rcgen::{
    CertificateParams, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384,
    PKCS_ED25519, SignatureAlgorithm,
};
use serde_json::Value;

use super::VolumeProblem;
use crate::{
    api::{CertificateWish, PodSource},
    pod::RunPod,
    runner::environment::ReferenceError,
};

/// What certificates of a pod there are, by volume and the number of the source in it.
#[derive(Debug, Default)]
pub struct PodCertificates {
    known: BTreeMap<(String, usize), Credential>,
}

#[derive(Debug, Default)]
struct Credential {
    issued: Option<Issued>,
    /// The first certificate, or the one that will replace it.
    requested: Option<Requested>,
}

/// A key whose certificate a signer has not issued yet.
#[derive(Debug)]
struct Requested {
    request: String,
    key: String,
}

#[derive(Debug, Clone)]
struct Issued {
    key: String,
    chain: String,
    refresh_at: Timestamp,
}

/// What became of a request.
enum Outcome {
    Pending,
    Issued { chain: String, refresh_at: Timestamp },
    Refused(String),
}

impl PodCertificates {
    /// The files of a source: the key with its chain, or each of them.
    pub(super) async fn files(
        &mut self,
        pod: &RunPod,
        volume: &str,
        index: usize,
        wanted: &Value,
        source: &dyn PodSource,
    ) -> Result<Vec<(String, Vec<u8>)>, VolumeProblem> {
        let credential = self.known.entry((volume.to_owned(), index)).or_default();
        let is_current = |issued: &Issued| Timestamp::now() < issued.refresh_at;
        if !credential.issued.as_ref().is_some_and(is_current) {
            let progress = credential.proceed(pod, wanted, source).await;
            // The certificate that there is stays until it is replaced.
            if credential.issued.is_none() {
                progress?;
            }
        }
        let Some(issued) = &credential.issued else { return Err(VolumeProblem::CertificatePending) };
        let bundle = || format!("{}{}", issued.key, issued.chain);
        let files = [
            ("credentialBundlePath", bundle()),
            ("keyPath", issued.key.clone()),
            ("certificateChainPath", issued.chain.clone()),
        ];
        let path = |field: &str| wanted.get(field).and_then(Value::as_str).filter(|path| !path.is_empty());
        let files = files
            .into_iter()
            .filter_map(|(field, content)| Some((path(field)?.to_owned(), content.into_bytes())));
        Ok(files.collect())
    }
}

impl Credential {
    /// Requests a certificate, or takes the one that was requested.
    async fn proceed(
        &mut self,
        pod: &RunPod,
        wanted: &Value,
        source: &dyn PodSource,
    ) -> Result<(), VolumeProblem> {
        let Some(requested) = &self.requested else {
            let (key, request) = new_key(wanted.get("keyType").and_then(Value::as_str).unwrap_or_default())?;
            let made = source.request_certificate(pod, wish(wanted, &request)).await;
            self.requested = Some(Requested { request: made.map_err(ReferenceError::Api)?, key });
            return Err(VolumeProblem::CertificatePending);
        };
        let found = source.certificate_request(&pod.key.namespace, &requested.request).await;
        let Some(found) = found.map_err(ReferenceError::Api)? else {
            // It expired before it was issued: the next look makes another one.
            self.requested = None;
            return Err(VolumeProblem::CertificatePending);
        };
        match outcome(&found) {
            Outcome::Pending => Err(VolumeProblem::CertificatePending),
            Outcome::Refused(why) => Err(VolumeProblem::CertificateRefused(why)),
            Outcome::Issued { chain, refresh_at } => {
                self.issued = Some(Issued { key: requested.key.clone(), chain, refresh_at });
                self.requested = None;
                Ok(())
            }
        }
    }
}

fn wish(wanted: &Value, request: &[u8]) -> CertificateWish {
    let annotations = wanted.get("userAnnotations").and_then(Value::as_object).into_iter().flatten();
    CertificateWish {
        signer: wanted.get("signerName").and_then(Value::as_str).unwrap_or_default().to_owned(),
        max_expiration_seconds: wanted.get("maxExpirationSeconds").and_then(Value::as_i64),
        annotations: annotations
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect(),
        request: STANDARD.encode(request),
    }
}

/// A key in PEM, and a request without a subject that is signed with it: what the certificate is for is up to the signer.
fn new_key(kind: &str) -> Result<(String, Vec<u8>), VolumeProblem> {
    let algorithm: &SignatureAlgorithm = match kind {
        "ED25519" => &PKCS_ED25519,
        "ECDSAP256" => &PKCS_ECDSA_P256_SHA256,
        "ECDSAP384" => &PKCS_ECDSA_P384_SHA384,
        other => return Err(VolumeProblem::KeyType(other.to_owned())),
    };
    let key = KeyPair::generate_for(algorithm)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key)?;
    Ok((key.serialize_pem(), request.der().to_vec()))
}

fn outcome(request: &Value) -> Outcome {
    let text =
        |value: &Value, field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let empty = Value::Null;
    let status = request.get("status").unwrap_or(&empty);
    let conditions = status.get("conditions").and_then(Value::as_array).into_iter().flatten();
    for condition in conditions.filter(|condition| text(condition, "status") == "True") {
        match text(condition, "type").as_str() {
            "Issued" => {
                // swallowed: the API server requires the time; without one, the certificate is replaced at the next look
                let refresh_at = text(status, "beginRefreshAt").parse().unwrap_or(Timestamp::UNIX_EPOCH);
                return Outcome::Issued { chain: text(status, "certificateChain"), refresh_at };
            }
            kind @ ("Denied" | "Failed") => {
                let name = request.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
                let (reason, message) = (text(condition, "reason"), text(condition, "message"));
                let verb = if kind == "Denied" { "was denied" } else { "failed" };
                return Outcome::Refused(format!(
                    "PodCertificateRequest {name:?} {verb} ({reason}): {message}"
                ));
            }
            _ => {}
        }
    }
    Outcome::Pending
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::local::LocalSource;

    const CHAIN: &str = "-----BEGIN CERTIFICATE-----\nQQ==\n-----END CERTIFICATE-----\n";

    fn pod() -> RunPod {
        RunPod::from_object(json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}))
        .unwrap()
    }

    fn issued(refresh_at: &str) -> Value {
        json!({"status": {"certificateChain": CHAIN, "beginRefreshAt": refresh_at,
            "conditions": [{"type": "Issued", "status": "True"}]}})
    }

    fn wanted() -> Value {
        json!({"signerName": "a.example/s", "keyType": "ED25519", "credentialBundlePath": "both", "keyPath": "key",
            "userAnnotations": {"a.example/k": "v"}, "maxExpirationSeconds": 7200})
    }

    #[tokio::test]
    async fn requests_once_and_writes_the_key_with_its_chain() {
        let (source, pod, wanted) = (LocalSource::default(), pod(), wanted());
        let mut certificates = PodCertificates::default();
        for _ in 0..3 {
            let waiting = certificates.files(&pod, "v", 0, &wanted, &source).await.unwrap_err();
            assert!(matches!(waiting, VolumeProblem::CertificatePending), "{waiting}");
        }
        let wishes = source.certificate_wishes();
        assert_eq!(wishes.len(), 1);
        assert_eq!(
            (wishes[0].signer.as_str(), wishes[0].max_expiration_seconds),
            ("a.example/s", Some(7200))
        );
        assert_eq!(wishes[0].annotations["a.example/k"], "v");

        source.answer_certificate(0, issued("2999-01-01T00:00:00Z"));
        let files: BTreeMap<_, _> =
            certificates.files(&pod, "v", 0, &wanted, &source).await.unwrap().into_iter().collect();
        let key = String::from_utf8(files["key"].clone()).unwrap();
        assert!(key.starts_with("-----BEGIN PRIVATE KEY-----\n"), "{key}");
        assert_eq!(files["both"], format!("{key}{CHAIN}").into_bytes());
        assert_eq!(files.len(), 2, "a file that is not wanted is not written");
        let again: BTreeMap<_, _> =
            certificates.files(&pod, "v", 0, &wanted, &source).await.unwrap().into_iter().collect();
        assert_eq!(again, files);
        assert_eq!(source.certificate_wishes().len(), 1);
    }

    #[tokio::test]
    async fn a_certificate_stays_until_it_is_replaced() {
        let (source, pod, wanted) = (LocalSource::default(), pod(), wanted());
        let mut certificates = PodCertificates::default();
        certificates.files(&pod, "v", 0, &wanted, &source).await.unwrap_err();
        source.answer_certificate(0, issued("2001-01-01T00:00:00Z"));
        let first = certificates.files(&pod, "v", 0, &wanted, &source).await.unwrap();
        // The time to refresh it is over: another one is requested, and refused.
        assert_eq!(certificates.files(&pod, "v", 0, &wanted, &source).await.unwrap(), first);
        assert_eq!(source.certificate_wishes().len(), 2);
        let refused = json!({"status": {"conditions": [{"type": "Denied", "status": "True"}]}});
        source.answer_certificate(1, refused);
        assert_eq!(certificates.files(&pod, "v", 0, &wanted, &source).await.unwrap(), first);
        source.answer_certificate(1, issued("2999-01-01T00:00:00Z"));
        assert_ne!(certificates.files(&pod, "v", 0, &wanted, &source).await.unwrap(), first);
    }

    #[tokio::test]
    async fn reports_why_there_is_no_certificate() {
        let pod = pod();
        let refused = |kind: &str| {
            json!({"metadata": {"name": "r"}, "status": {"conditions": [{"type": kind, "status": "True",
                "reason": "Why", "message": "because"}]}})
        };
        for (kind, expected) in [
            ("Denied", r#"PodCertificateRequest "r" was denied (Why): because"#),
            ("Failed", r#"PodCertificateRequest "r" failed (Why): because"#),
        ] {
            let source = LocalSource::default();
            let mut certificates = PodCertificates::default();
            certificates.files(&pod, "v", 0, &wanted(), &source).await.unwrap_err();
            source.answer_certificate(0, refused(kind));
            let error = certificates.files(&pod, "v", 0, &wanted(), &source).await.unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
        let mut rsa = wanted();
        rsa["keyType"] = "RSA4096".into();
        let error =
            PodCertificates::default().files(&pod, "v", 0, &rsa, &LocalSource::default()).await.unwrap_err();
        assert_eq!(error.to_string(), "this node does not make keys of type \"RSA4096\"");
    }

    #[test]
    fn requests_are_signed_and_name_nobody() {
        for kind in ["ED25519", "ECDSAP256", "ECDSAP384"] {
            let (key, request) = new_key(kind).unwrap();
            assert!(KeyPair::from_pem(&key).is_ok(), "{kind}");
            // The subject: a sequence without an element after the version.
            assert!(request.windows(5).any(|bytes| bytes == [2, 1, 0, 0x30, 0]), "{kind}: {request:?}");
        }
    }
}
