//! Makes authorities, serving and client certificates, and reads what was made.

use std::{
    net::IpAddr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use x509_parser::{extensions::GeneralName, prelude::X509Certificate};

/// Clocks differ a little.
const SKEW: Duration = Duration::from_mins(5);

/// Why a certificate could not be made or read.
#[derive(Debug, Error)]
pub enum IssueError {
    /// It could not be made.
    #[error("cannot make a certificate")]
    Make(#[from] rcgen::Error),
    /// It is no certificate.
    #[error("not a certificate in PEM")]
    Unreadable,
    /// A name under which we are called cannot be one.
    #[error("{0:?} cannot be the name in a certificate")]
    Name(String),
}

/// A certificate and its key, as PEM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

/// The fields of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// Common name of the subject.
    pub subject: String,
    /// Common name of the issuer.
    pub issuer: String,
    /// Beginning of its validity, in seconds since 1970.
    pub not_before: i64,
    /// End of its validity, in seconds since 1970.
    pub not_after: i64,
    /// DNS names and addresses.
    pub names: Vec<String>,
}

impl Pair {
    /// Whether both parts can be read.
    pub fn check(&self) -> Result<(), IssueError> {
        about(&self.certificate)?;
        KeyPair::from_pem(&self.key)?;
        Ok(())
    }
}

/// Seconds since 1970.
#[must_use]
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

fn moment(seconds: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}

pub(crate) fn seconds(time: Duration) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

/// A new authority. Each has a name of its own, so that a chain leads to exactly one.
pub fn authority(prefix: &str, now: i64, validity: Duration) -> Result<Pair, IssueError> {
    let key = KeyPair::generate()?;
    let last = key.public_key_raw().iter().rev().take(4);
    let id = last.fold(0_u32, |id, byte| id << 8 | u32::from(*byte));
    let mut params = authority_params(&format!("{prefix}-{id:08x}"))?;
    limit(&mut params, now, seconds(validity));
    let certificate = params.self_signed(&key)?;
    Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
}

pub(crate) fn limit(params: &mut CertificateParams, now: i64, seconds_left: i64) {
    params.not_before = moment(now.saturating_sub(seconds(SKEW))).into();
    params.not_after = moment(now.saturating_add(seconds_left)).into();
}

/// Signs a certificate, valid no longer than its authority.
fn signed(
    signer: &Pair,
    mut params: CertificateParams,
    usage: ExtendedKeyUsagePurpose,
    now: i64,
    validity: Duration,
) -> Result<Pair, IssueError> {
    let about = about(&signer.certificate)?;
    let issuer = Issuer::new(authority_params(&about.subject)?, KeyPair::from_pem(&signer.key)?);
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    limit(&mut params, now, seconds(validity).min(about.not_after.saturating_sub(now)));
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &issuer)?;
    Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
}

pub(crate) fn authority_params(name: &str) -> Result<CertificateParams, IssueError> {
    let mut params = CertificateParams::new(Vec::<String>::new())?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    Ok(params)
}

/// A serving certificate for DNS names and addresses.
pub fn serving(
    signer: &Pair,
    common_name: &str,
    names: &[String],
    now: i64,
    validity: Duration,
) -> Result<Pair, IssueError> {
    let mut params = CertificateParams::new(Vec::<String>::new())?;
    for name in names {
        let san = match name.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(name.clone().try_into().map_err(|_| IssueError::Name(name.clone()))?),
        };
        params.subject_alt_names.push(san);
    }
    params.distinguished_name.push(DnType::CommonName, common_name);
    signed(signer, params, ExtendedKeyUsagePurpose::ServerAuth, now, validity)
}

/// A client certificate for a user with groups.
pub fn client(
    signer: &Pair,
    user: &str,
    groups: &[&str],
    now: i64,
    validity: Duration,
) -> Result<Pair, IssueError> {
    let mut params = CertificateParams::new(Vec::<String>::new())?;
    params.distinguished_name.push(DnType::CommonName, user);
    for group in groups {
        params.distinguished_name.push(DnType::OrganizationName, *group);
    }
    signed(signer, params, ExtendedKeyUsagePurpose::ClientAuth, now, validity)
}

/// The first certificate of a PEM text.
pub fn first(pem: &str) -> Result<CertificateDer<'static>, IssueError> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|_| IssueError::Unreadable)
}

/// Reads the first certificate of a PEM text.
pub fn about(pem: &str) -> Result<About, IssueError> {
    about_der(&first(pem)?)
}

/// Reads a certificate as TLS has it.
pub fn about_der(der: &CertificateDer<'_>) -> Result<About, IssueError> {
    let (_, read) = x509_parser::parse_x509_certificate(der).map_err(|_| IssueError::Unreadable)?;
    let common = |name: &x509_parser::x509::X509Name<'_>| {
        name.iter_common_name().next().and_then(|cn| cn.as_str().ok()).unwrap_or_default().to_owned()
    };
    Ok(About {
        subject: common(read.subject()),
        issuer: common(read.issuer()),
        not_before: read.validity().not_before.timestamp(),
        not_after: read.validity().not_after.timestamp(),
        names: names(&read),
    })
}

fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(extension)) = certificate.subject_alternative_name() else { return Vec::new() };
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes).ok().map(|octets| IpAddr::from(octets).to_string()),
            16 => <[u8; 16]>::try_from(*bytes).ok().map(|octets| IpAddr::from(octets).to_string()),
            _ => None,
        },
        _ => None,
    };
    extension.value.general_names.iter().filter_map(name).collect()
}
