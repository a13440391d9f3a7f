//! A running server: options, start, what clients need to connect, and the end.

pub(crate) mod bootstrap;
mod builder;
mod kubeconfig;
mod limits;
mod snapshot;

use std::net::SocketAddr;
use std::sync::Arc;

use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::api::Api;
use crate::auth::token::KeyError;
use crate::http::tls::TlsError;
use crate::router::Router;
use crate::storage::OpenError;
use crate::streaming::KubeletClientError;

pub use builder::Builder;
pub use kubeconfig::kubeconfig;
pub use snapshot::{SnapshotError, SnapshotReport};

/// Why the server did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The data directory.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// Keys and certificates.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The certificate for kubelets.
    #[error(transparent)]
    Kubelets(#[from] KubeletClientError),
    /// The key of service-account tokens.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The address.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address requested.
        address: SocketAddr,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The audit log.
    #[error("cannot open the audit log {path}")]
    Audit {
        /// The file.
        path: String,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// A file of objects to start with.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// An option that makes no sense.
    #[error("unknown admission plugin {0:?}")]
    UnknownPlugin(String),
}

/// A running server. Dropping it does not stop it; [`Server::shutdown`] does.
#[derive(Debug)]
pub struct Server {
    /// What answers requests.
    pub api: Arc<Api>,
    /// Where it listens.
    pub address: SocketAddr,
    /// The CA certificate, as PEM.
    pub ca: String,
    /// A kubeconfig for the administrator.
    pub kubeconfig: String,
    /// The administrator's bearer token.
    pub token: String,
    /// What became of the snapshots it was started with.
    pub snapshots: Vec<SnapshotReport>,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Server {
    /// The options of a server.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// `https://127.0.0.1:6443`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The server as a service in this process, with the rights of its administrator: a `kube::Client` needs no socket.
    #[must_use]
    pub fn router(&self) -> Router {
        Router::of_running(self.api.clone())
    }

    /// Ends watches, lets running requests finish, and returns when all is done.
    pub async fn shutdown(self) {
        self.api.health.set_stopping();
        // Without a receiver everything has ended already.
        let _ = self.stop.send(true);
        for task in self.tasks {
            let _ = task.await;
        }
    }
}
