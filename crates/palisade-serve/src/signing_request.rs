//! Certificate signing requests and other PEM that clients send: reading, verifying and signing.
//!
//! Implements: PKCS #10 (RFC 2986) as far as Kubernetes' signers need it.
//! <https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/>

use std::net::IpAddr;
use std::time::Duration;

use rcgen::{
    CertificateSigningRequestParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::CertificateSigningRequestDer;
use thiserror::Error;
use x509_parser::certificate::X509Certificate;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME};
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer as _;

use crate::certificate::{self, IssueError, Pair};

/// The label of a signing request in PEM.
const REQUEST: &str = "CERTIFICATE REQUEST";
/// The label of a certificate in PEM.
pub const CERTIFICATE: &str = "CERTIFICATE";

/// Why a signing request cannot be read.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum RequestError {
    /// No PEM, or another block.
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    Block,
    /// The block is not one.
    #[error("asn1: structure error: malformed certificate request")]
    Malformed,
    /// An attribute of its subject is no text, or in an encoding that is not read: another reader may take it for a group.
    #[error("x509: invalid RDNSequence: invalid attribute value: unsupported string type")]
    Subject,
    /// The signature is not that of its key, or its algorithm is not known.
    #[error("x509: signature of the certificate request is not valid")]
    Signature,
}

/// What a signing request requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SigningRequest {
    /// Common name of the subject.
    pub common_name: String,
    /// Organizations of the subject.
    pub organizations: Vec<String>,
    /// DNS names.
    pub dns_names: Vec<String>,
    /// Addresses.
    pub addresses: Vec<IpAddr>,
    /// Whether it has names of other types, such as email addresses.
    pub other_names: bool,
    /// The public key, in DER.
    pub public_key: Vec<u8>,
}

/// A block of PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// What it is: `CERTIFICATE`.
    pub label: String,
    /// Whether it has headers.
    pub headers: bool,
    /// Its bytes.
    pub der: Vec<u8>,
}

/// The blocks of a text; what is between them is ignored, and what is malformed ends them.
#[must_use]
pub fn blocks(pem: &[u8]) -> Vec<Block> {
    let read = Pem::iter_from_buffer(pem).map_while(Result::ok);
    let texts = String::from_utf8_lossy(pem);
    let mut bodies = texts.split("-----BEGIN ").skip(1);
    let block = |block: Pem| {
        let body = bodies.next().and_then(|text| text.split_once("-----END ")).map_or("", |(body, _)| body);
        let headers = body.lines().skip(1).any(|line| line.contains(':'));
        Block { label: block.label, headers, der: block.contents }
    };
    read.map(block).collect()
}

/// A certificate as the API server judges one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFacts {
    /// Whether it is an authority's.
    pub is_authority: bool,
    /// Beginning of its validity, in seconds since 1970.
    pub not_before: i64,
    /// End of its validity.
    pub not_after: i64,
    /// The public key, in DER.
    pub public_key: Vec<u8>,
}

/// Reads a certificate; nothing if it is none.
#[must_use]
pub fn certificate_facts(der: &[u8]) -> Option<CertificateFacts> {
    let (rest, read) = X509Certificate::from_der(der).ok()?;
    if !rest.is_empty() {
        return None;
    }
    Some(CertificateFacts {
        is_authority: read.is_ca(),
        not_before: read.validity().not_before.timestamp(),
        not_after: read.validity().not_after.timestamp(),
        public_key: read.public_key().raw.to_vec(),
    })
}

impl SigningRequest {
    /// Reads a request in PEM and verifies that it was signed with the key it is for.
    pub fn from_pem(pem: &[u8]) -> Result<Self, RequestError> {
        Self::from_der(&request_block(pem)?)
    }

    /// Reads a request in DER and verifies that it was signed with the key it is for.
    pub fn from_der(der: &[u8]) -> Result<Self, RequestError> {
        let (rest, request) = X509CertificationRequest::from_der(der).map_err(|_| RequestError::Malformed)?;
        if !rest.is_empty() {
            return Err(RequestError::Malformed);
        }
        request.verify_signature().map_err(|_| RequestError::Signature)?;
        let info = &request.certification_request_info;
        let mut read = Self { public_key: info.subject_pki.raw.to_vec(), ..Self::default() };
        for attribute in info.subject.iter_attributes() {
            let text = attribute.as_str().map_err(|_| RequestError::Subject)?;
            let kind = attribute.attr_type();
            if *kind == OID_X509_COMMON_NAME {
                // The last one counts, as in Go.
                text.clone_into(&mut read.common_name);
            } else if *kind == OID_X509_ORGANIZATION_NAME {
                read.organizations.push(text.to_owned());
            }
        }
        for extension in request.requested_extensions().into_iter().flatten() {
            let names = match extension {
                ParsedExtension::SubjectAlternativeName(names) => names,
                ParsedExtension::ParseError { .. } => return Err(RequestError::Malformed),
                _ => continue,
            };
            for name in &names.general_names {
                match name {
                    GeneralName::DNSName(name) => read.dns_names.push((*name).to_owned()),
                    GeneralName::IPAddress(bytes) => match address(bytes) {
                        Some(address) => read.addresses.push(address),
                        None => return Err(RequestError::Malformed),
                    },
                    _ => read.other_names = true,
                }
            }
        }
        Ok(read)
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    // swallowed: an address has four or sixteen bytes
    let short = <[u8; 4]>::try_from(bytes).map(IpAddr::from).ok();
    short.or_else(|| <[u8; 16]>::try_from(bytes).map(IpAddr::from).ok())
}

fn request_block(pem: &[u8]) -> Result<Vec<u8>, RequestError> {
    let first = blocks(pem).into_iter().next().filter(|block| block.label == REQUEST);
    first.map(|block| block.der).ok_or(RequestError::Block)
}

/// Signs a request: its subject and names, the usages that are given, and never an authority.
pub fn sign(
    authority: &Pair,
    request_pem: &[u8],
    usages: &[&str],
    now: i64,
    validity: Duration,
) -> Result<String, IssueError> {
    let der = request_block(request_pem).map_err(|_| IssueError::Unreadable)?;
    let mut request = CertificateSigningRequestParams::from_der(&CertificateSigningRequestDer::from(der))?;
    let params = &mut request.params;
    params.is_ca = IsCa::ExplicitNoCa;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = usages.iter().filter_map(|usage| key_usage(usage)).collect();
    params.extended_key_usages = usages.iter().filter_map(|usage| extended_usage(usage)).collect();
    let about = certificate::about(&authority.certificate)?;
    certificate::limit(params, now, certificate::seconds(validity).min(about.not_after.saturating_sub(now)));
    let issuer =
        Issuer::new(certificate::authority_params(&about.subject)?, KeyPair::from_pem(&authority.key)?);
    Ok(request.signed_by(&issuer)?.pem())
}

fn key_usage(usage: &str) -> Option<KeyUsagePurpose> {
    Some(match usage {
        "signing" | "digital signature" => KeyUsagePurpose::DigitalSignature,
        "content commitment" => KeyUsagePurpose::ContentCommitment,
        "key encipherment" => KeyUsagePurpose::KeyEncipherment,
        "key agreement" => KeyUsagePurpose::KeyAgreement,
        "data encipherment" => KeyUsagePurpose::DataEncipherment,
        "encipher only" => KeyUsagePurpose::EncipherOnly,
        "decipher only" => KeyUsagePurpose::DecipherOnly,
        _ => return None,
    })
}

fn extended_usage(usage: &str) -> Option<ExtendedKeyUsagePurpose> {
    Some(match usage {
        "any" => ExtendedKeyUsagePurpose::Any,
        "server auth" => ExtendedKeyUsagePurpose::ServerAuth,
        "client auth" => ExtendedKeyUsagePurpose::ClientAuth,
        "code signing" => ExtendedKeyUsagePurpose::CodeSigning,
        "email protection" => ExtendedKeyUsagePurpose::EmailProtection,
        "timestamping" => ExtendedKeyUsagePurpose::TimeStamping,
        "ocsp signing" => ExtendedKeyUsagePurpose::OcspSigning,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, DnType};

    use super::*;

    fn request(change: impl FnOnce(&mut CertificateParams)) -> String {
        let mut params = CertificateParams::new(vec!["web".to_owned(), "10.0.0.1".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "system:node:a");
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        change(&mut params);
        params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap()
    }

    #[test]
    fn reads_who_and_what_is_requested() {
        let read = SigningRequest::from_pem(request(|_| ()).as_bytes()).unwrap();
        assert_eq!(read.common_name, "system:node:a");
        assert_eq!(read.organizations, ["system:nodes"]);
        assert_eq!(read.dns_names, ["web"]);
        assert_eq!(read.addresses, [IpAddr::from([10, 0, 0, 1])]);
    }

    #[test]
    fn rejects_a_subject_that_other_readers_read_as_text() {
        use rcgen::DnValue;
        let with = |value: DnValue| {
            request(|params| params.distinguished_name.push(DnType::OrganizationName, value))
        };
        let masters = "system:masters";
        for (encoding, value) in [
            ("T61String", DnValue::TeletexString(masters.try_into().unwrap())),
            ("BMPString", DnValue::BmpString(masters.try_into().unwrap())),
            ("UniversalString", DnValue::UniversalString(masters.try_into().unwrap())),
        ] {
            let read = SigningRequest::from_pem(with(value).as_bytes());
            assert_eq!(read, Err(RequestError::Subject), "{encoding}");
        }
        for (encoding, value) in [
            ("PrintableString", DnValue::PrintableString(masters.try_into().unwrap())),
            ("UTF8String", DnValue::Utf8String(masters.to_owned())),
        ] {
            let read = SigningRequest::from_pem(with(value).as_bytes()).unwrap();
            assert_eq!(read.organizations, [masters], "{encoding}");
        }
    }

    #[test]
    fn rejects_what_is_no_request_of_its_key() {
        let good = request(|_| ());
        let mut der = blocks(good.as_bytes())[0].der.clone();
        let last = der.len() - 1;
        der[last] ^= 1;
        assert_eq!(SigningRequest::from_der(&der), Err(RequestError::Signature), "another signature");
        assert_eq!(SigningRequest::from_pem(b"hello"), Err(RequestError::Block));
        let authority = certificate::authority("a", 0, Duration::from_hours(1)).unwrap();
        assert_eq!(SigningRequest::from_pem(authority.certificate.as_bytes()), Err(RequestError::Block));
        assert!(SigningRequest::from_pem(good.as_bytes()).is_ok(), "the harmless twin");
    }

    #[test]
    fn signs_no_authorities() {
        let now = certificate::now();
        let authority = certificate::authority("a", now, Duration::from_hours(100)).unwrap();
        let wants_ca = request(|params| {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        });
        for pem in [wants_ca, request(|_| ())] {
            let usages = ["client auth", "digital signature"];
            let signed = sign(&authority, pem.as_bytes(), &usages, now, Duration::from_hours(1)).unwrap();
            let facts = certificate_facts(&blocks(signed.as_bytes())[0].der).unwrap();
            assert!(!facts.is_authority);
            assert_eq!(facts.not_after, now + 3600);
            assert_eq!(facts.not_before, now - 300);
        }
    }
}
