//! A certificate from files, which are read again when they change.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use palisade_serve::{
    certificate::{IssueError, Pair},
    file_watch,
    tls::{Resolver, ServeError},
};
use thiserror::Error;
use tokio::sync::watch;

use super::{Trust, replace};
use crate::metrics::Metrics;

/// The three files.
#[derive(Debug, Clone)]
pub struct Files {
    /// The certificate and those that lead to its root.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
    /// What the API server shall trust.
    pub authority: Option<PathBuf>,
}

/// Why a certificate cannot be used.
#[derive(Debug, Error)]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("{}: {source}", .file.display())]
    Read {
        /// Which.
        file: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// What was read is not a certificate with its key.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// None can be made.
    #[error(transparent)]
    Issue(#[from] IssueError),
}

impl Files {
    /// Reads certificate and key.
    pub fn pair(&self) -> Result<Pair, CertificateError> {
        Ok(Pair { certificate: read(&self.certificate)?, key: read(&self.key)? })
    }

    /// Reads what the API server shall trust.
    pub fn trust(&self) -> Result<Trust, CertificateError> {
        let authorities = self.authority.as_deref().map(read).transpose()?;
        Ok(Trust { authorities: authorities.into_iter().collect(), signer: None })
    }

    /// Follows the files. While they do not belong together, as in the middle of a change, the last good pair stays.
    pub async fn follow(self, resolver: Arc<Resolver>, trust: watch::Sender<Trust>, metrics: Arc<Metrics>) {
        let files: Vec<PathBuf> =
            [&self.certificate, &self.key].into_iter().chain(&self.authority).cloned().collect();
        file_watch::follow(&files, || {
            let replaced = self.pair().and_then(|pair| Ok(replace(&resolver, &pair, None, &metrics)?));
            match replaced.and_then(|()| self.trust()) {
                Ok(read) => {
                    trust.send_if_modified(|current| {
                        let changed = *current != read;
                        *current = read;
                        changed
                    });
                    tracing::info!(file = %self.certificate.display(), "certificate in use");
                    true
                }
                Err(why) => {
                    tracing::warn!(%why, "certificate not replaced");
                    false
                }
            }
        })
        .await;
    }
}

fn read(file: &Path) -> Result<String, CertificateError> {
    std::fs::read_to_string(file).map_err(|source| CertificateError::Read { file: file.to_owned(), source })
}
