//! The TLS configuration of a server, and its certificate, which may be replaced while connections are open.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::{ClientHello, ResolvesServerCert, danger::ClientCertVerifier},
    sign::CertifiedKey,
};
use thiserror::Error;

use crate::certificate::{IssueError, Pair};

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
    current: RwLock<Arc<CertifiedKey>>,
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
        Ok(Self { current: RwLock::new(Arc::new(certified(pair)?)) })
    }

    /// Serves another from now on.
    pub fn replace(&self, pair: &Pair) -> Result<(), ServeError> {
        let certified = Arc::new(certified(pair)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = certified;
        Ok(())
    }

    /// The TLS configuration of a server that serves it, without session tickets: clients such as kubectl connect once
    /// for each command.
    pub fn server_config(
        self: &Arc<Self>,
        clients: Arc<dyn ClientCertVerifier>,
    ) -> Result<ServerConfig, rustls::Error> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(clients)
            .with_cert_resolver(self.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    /// The same for clients that come back often: a ticket saves both sides the signatures, and us keeping sessions.
    pub fn server_config_with_tickets(
        self: &Arc<Self>,
        clients: Arc<dyn ClientCertVerifier>,
    ) -> Result<ServerConfig, rustls::Error> {
        let mut config = self.server_config(clients)?;
        config.ticketer = ring::Ticketer::new()?;
        config.send_tls13_tickets = 1;
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        Ok(config)
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}
