//! The server's own certificate authority, its serving certificate, the administrator's client certificate, and
//! the check of other people's.
//!
//! Implements: Authenticating, "X509 client certificates".
//! <https://kubernetes.io/docs/reference/access-authn-authz/authentication/#x509-client-certificates>
//!
//! As upstream, a bad client certificate does not fail the handshake: the request is answered with 401.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use palisade_serve::certificate::{self, IssueError, Pair};
use palisade_serve::tls::{Resolver, ServeError};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme};
use thiserror::Error;

use crate::auth::UserInfo;
use crate::private_file;

/// Why keys or certificates could not be made, read or written.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A certificate could not be made.
    #[error(transparent)]
    Make(#[from] IssueError),
    /// The certificate cannot be served.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// TLS does not take the certificate.
    #[error("cannot use a certificate")]
    Use(#[from] rustls::Error),
    /// The verifier of client certificates could not be built.
    #[error("cannot verify client certificates")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
    /// A file of the data directory.
    #[error("{path}")]
    File {
        /// Which.
        path: PathBuf,
        /// What happened.
        #[source]
        source: std::io::Error,
    },
    /// A file of the data directory that is not what it should be.
    #[error("{path} is damaged; remove it to have it made again")]
    Damaged {
        /// Which.
        path: PathBuf,
    },
}

/// The certificate authority.
#[derive(Debug)]
pub struct Authority {
    /// The CA certificate, as PEM.
    pub certificate: String,
    pair: Pair,
}

const YEAR: Duration = Duration::from_hours(8760);

impl Authority {
    /// Makes a new one, or reads the one kept in a directory.
    pub fn open(directory: Option<&Path>) -> Result<Self, TlsError> {
        let made = || certificate::authority("palisade-ca", certificate::now(), YEAR * 10);
        let Some(directory) = directory else { return Ok(Self::of(made()?)) };
        let (key_file, certificate_file) = (directory.join("ca.key"), directory.join("ca.crt"));
        if let (Some(key), Some(certificate)) = (read_pem(&key_file)?, read_pem(&certificate_file)?) {
            let pair = Pair { certificate, key };
            return match pair.check() {
                Ok(()) => Ok(Self::of(pair)),
                Err(IssueError::Make(_)) => Err(TlsError::Damaged { path: key_file }),
                Err(_) => Err(TlsError::Damaged { path: certificate_file }),
            };
        }
        let made = made()?;
        write_private(&key_file, made.key.as_bytes())?;
        write_private(&certificate_file, made.certificate.as_bytes())?;
        Ok(Self::of(made))
    }

    fn of(pair: Pair) -> Self {
        Self { certificate: pair.certificate.clone(), pair }
    }

    /// The certificate and the key.
    #[must_use]
    pub fn pair(&self) -> &Pair {
        &self.pair
    }

    /// A client certificate for a user.
    pub fn client(&self, user: &str, groups: &[&str], validity: Duration) -> Result<Pair, TlsError> {
        Ok(certificate::client(&self.pair, user, groups, certificate::now(), validity)?)
    }

    /// The TLS configuration of a server that listens on an address.
    pub fn server_config(&self, address: IpAddr) -> Result<ServerConfig, TlsError> {
        let loopback = [IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]), address];
        let names: Vec<String> =
            ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "palisade"]
                .into_iter()
                .map(str::to_owned)
                .chain(loopback.map(|address| address.to_string()))
                .collect();
        let mut pair =
            certificate::serving(&self.pair, "palisade-apiserver", &names, certificate::now(), YEAR)?;
        pair.certificate.push_str(&self.certificate);
        let provider = Arc::new(ring::default_provider());
        Ok(Arc::new(Resolver::new(&pair)?).server_config(Arc::new(RequestOnly { provider }))?)
    }

    /// The check of client certificates against this authority.
    pub fn verifier(&self) -> Result<ClientVerifier, TlsError> {
        let mut roots = RootCertStore::empty();
        roots.add(certificate::first(&self.certificate)?)?;
        let provider = Arc::new(ring::default_provider());
        let inner = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
        Ok(ClientVerifier { inner })
    }
}

fn read_pem(path: &Path) -> Result<Option<String>, TlsError> {
    let damaged = |_| TlsError::Damaged { path: path.to_owned() };
    read_private(path)?.map(|bytes| String::from_utf8(bytes).map_err(damaged)).transpose()
}

/// Writes a file that only its owner may read, replacing an older one in one step.
pub fn write_private(path: &Path, content: &[u8]) -> Result<(), TlsError> {
    private_file::write(path, content).map_err(|source| TlsError::File { path: path.to_owned(), source })
}

/// Reads what [`write_private`] wrote; `None` if there is none.
pub fn read_private(path: &Path) -> Result<Option<Vec<u8>>, TlsError> {
    private_file::read(path).map_err(|source| TlsError::File { path: path.to_owned(), source })
}

/// Requests a client certificate and lets the handshake go on with any: the signature proves possession of the
/// key, and [`ClientVerifier`] decides afterwards whether the certificate means anything.
#[derive(Debug)]
struct RequestOnly {
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for RequestOnly {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// The client certificate of a connection.
#[derive(Debug, Clone)]
pub enum PeerCertificate {
    /// Signed by our authority: this is who it names, until this time (seconds since 1970).
    Valid {
        /// Common name and organisations.
        user: UserInfo,
        /// End of validity.
        not_after: i64,
    },
    /// Expired, foreign, or not meant for clients.
    Invalid,
}

/// The check of client certificates.
#[derive(Debug)]
pub struct ClientVerifier {
    inner: Arc<dyn ClientCertVerifier>,
}

impl ClientVerifier {
    /// Reads the certificates a client presented.
    #[must_use]
    pub fn verify(&self, chain: &[CertificateDer<'_>]) -> Option<PeerCertificate> {
        let (end_entity, intermediates) = chain.split_first()?;
        if self.inner.verify_client_cert(end_entity, intermediates, UnixTime::now()).is_err() {
            return Some(PeerCertificate::Invalid);
        }
        let Ok((_, certificate)) = x509_parser::parse_x509_certificate(end_entity) else {
            return Some(PeerCertificate::Invalid);
        };
        let subject = certificate.subject();
        // The last one counts, as in Go and where requests for certificates are judged.
        let name = subject.iter_common_name().last().and_then(|cn| cn.as_str().ok()).unwrap_or_default();
        // The server itself has the certificate for kubelets. Who makes it connect to itself, by the address that a node states,
        // is none of its users.
        if name.is_empty() || name == crate::streaming::KUBELET_CLIENT {
            return Some(PeerCertificate::Invalid);
        }
        let groups = subject.iter_organization().filter_map(|o| o.as_str().ok()).map(str::to_owned).collect();
        let user = UserInfo { name: name.to_owned(), groups, ..UserInfo::default() };
        Some(PeerCertificate::Valid { user, not_after: certificate.validity().not_after.timestamp() })
    }
}
