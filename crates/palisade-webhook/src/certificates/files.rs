//! A certificate from files, which are read again when they change.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use palisade_serve::{certificate::Pair, file_watch, tls::Resolver};
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

impl Files {
    /// Reads certificate and key.
    pub fn pair(&self) -> Result<Pair, String> {
        Ok(Pair { certificate: read(&self.certificate)?, key: read(&self.key)? })
    }

    /// Reads what the API server shall trust.
    pub fn trust(&self) -> Result<Trust, String> {
        let authorities = self.authority.as_deref().map(read).transpose()?;
        Ok(Trust { authorities: authorities.into_iter().collect(), signer: None })
    }

    /// Follows the files. While they do not belong together, as in the middle of a change, the last good pair stays.
    pub async fn follow(self, resolver: Arc<Resolver>, trust: watch::Sender<Trust>, metrics: Arc<Metrics>) {
        let files: Vec<PathBuf> =
            [&self.certificate, &self.key].into_iter().chain(&self.authority).cloned().collect();
        file_watch::follow(&files, || {
            let replaced = self.pair().and_then(|pair| {
                replace(&resolver, &pair, None, &metrics).map_err(|error| error.to_string())
            });
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
                    tracing::warn!(why, "certificate not replaced");
                    false
                }
            }
        })
        .await;
    }
}

fn read(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}
