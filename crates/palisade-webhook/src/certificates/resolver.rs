//! The certificate in use, replaced while connections are open: a handshake takes what is there when it comes.

use std::sync::Arc;

use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use thiserror::Error;

use crate::{metrics::Metrics, shared::Shared};

use super::issue::{self, IssueError, Pair};

/// Why a certificate cannot be served.
#[derive(Debug, Error)]
pub enum ServeError {
    /// One of the two is not PEM.
    #[error("not PEM")]
    Pem(#[from] rustls::pki_types::pem::Error),
    /// There is no certificate in it.
    #[error("there is no certificate")]
    Empty,
    /// TLS does not take them, or they do not belong together.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// It cannot be read.
    #[error(transparent)]
    Issue(#[from] IssueError),
}

/// Holds the certificate in use.
#[derive(Debug)]
pub struct Resolver {
    current: Shared<CertifiedKey>,
}

fn certified(pair: &Pair) -> Result<CertifiedKey, ServeError> {
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(pair.certificate.as_bytes()).collect::<Result<_, _>>()?;
    if chain.is_empty() {
        return Err(ServeError::Empty);
    }
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes())?;
    let certified = CertifiedKey::new(chain, ring::sign::any_supported_type(&key)?);
    match certified.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => Ok(certified),
        Err(error) => Err(error.into()),
    }
}

impl Resolver {
    /// Serves a certificate.
    pub fn new(pair: &Pair) -> Result<Self, ServeError> {
        Ok(Self { current: Shared::new(certified(pair)?) })
    }

    /// Serves another from now on.
    pub fn replace(&self, pair: &Pair, authority: Option<i64>, metrics: &Metrics) -> Result<(), ServeError> {
        let certified = certified(pair)?;
        metrics.certificates(issue::about(&pair.certificate)?.not_after, authority);
        self.current.set(certified);
        Ok(())
    }

    /// The TLS configuration of a server that serves it.
    pub fn server_config(self: &Arc<Self>) -> Result<ServerConfig, rustls::Error> {
        let provider = Arc::new(ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(self.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // An API server comes back often: a ticket saves both sides the signatures, and us keeping sessions.
        config.ticketer = ring::Ticketer::new()?;
        config.send_tls13_tickets = 1;
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        Ok(config)
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.get())
    }
}
