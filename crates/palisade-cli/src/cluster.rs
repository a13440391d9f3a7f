//! A client for the cluster that the user means, and what is wrong if a request fails.
//!
//! The same order as kubectl: `--kubeconfig`, `KUBECONFIG`, `~/.kube/config`; inside a pod, its service account.

use std::{
    error::Error,
    fmt, io,
    path::{Path, PathBuf},
};

use clap::Args;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use palisade_controllers::api::ApiError;
use palisade_model::{
    compat::Compat,
    server_version::{ServerVersionError, announced},
};
use serde_json::Value;
use thiserror::Error;

use crate::failure::Failure;

/// Which cluster.
#[derive(Debug, Clone, Default, Args)]
pub struct ClusterArgs {
    /// Kubeconfig of the cluster [default: KUBECONFIG, ~/.kube/config, or the service account inside a pod]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: the current context]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

impl ClusterArgs {
    /// A client for the cluster. Nothing is requested yet.
    pub async fn connect(&self) -> Result<Cluster, ClusterError> {
        let config = self.config().await?;
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let client = Client::try_from(config).map_err(|error| ClusterError::of(&server, error))?;
        Ok(Cluster { client, server })
    }

    async fn config(&self) -> Result<Config, ClusterError> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        if let Some(file) = &self.kubeconfig {
            let unusable = |error: KubeconfigError| ClusterError::Kubeconfig {
                kubeconfig: Named(Some(file.clone())),
                reason: kubeconfig_reason(&error),
            };
            let read = Kubeconfig::read_from(file).map_err(unusable)?;
            return Config::from_custom_kubeconfig(read, &options).await.map_err(unusable);
        }
        if self.context.is_none()
            && std::env::var_os("KUBECONFIG").is_none()
            && let Ok(config) = Config::incluster()
        {
            return Ok(config);
        }
        Config::from_kubeconfig(&options).await.map_err(|error| ClusterError::Kubeconfig {
            kubeconfig: Named(None),
            reason: kubeconfig_reason(&error),
        })
    }
}

/// A cluster that can be sent requests.
#[derive(Clone)]
pub struct Cluster {
    /// The client.
    pub client: Client,
    /// The address of the API server.
    pub server: String,
}

impl Cluster {
    /// What the API server has at a path.
    pub async fn get(&self, path: &str) -> Result<Value, ClusterError> {
        let request = hyper::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError);
        let response = match request {
            Ok(request) => self.client.request(request).await,
            Err(error) => Err(error),
        };
        response.map_err(|error| ClusterError::of(&self.server, error))
    }

    /// Whose rules the API server applies.
    pub async fn compat(&self) -> Result<Compat, ClusterError> {
        let version = self.get("/version").await?;
        announced(&version).map_err(|source| ClusterError::Version { server: self.server.clone(), source })
    }

    /// What the error of a request by the controllers' client means for the user.
    #[must_use]
    pub fn error(&self, error: ApiError) -> ClusterError {
        match error {
            ApiError::Refused { code, message, .. } => ClusterError::rejected(&self.server, code, message),
            ApiError::Unreachable(error) => ClusterError::of(&self.server, *error),
        }
    }
}

/// The kubeconfig in use: the file of `--kubeconfig`, or the one found in the usual places.
#[derive(Debug)]
pub struct Named(Option<PathBuf>);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(file) => write!(f, "kubeconfig {}", Path::display(file)),
            None => f.write_str("the kubeconfig of KUBECONFIG or ~/.kube/config"),
        }
    }
}

/// Why a cluster cannot be used: one sentence with the address and what to do.
#[derive(Debug, Error)]
pub enum ClusterError {
    /// The kubeconfig is missing, broken, or names something it does not have.
    #[error(
        "cannot use {kubeconfig}: {reason}; name another file with --kubeconfig or another context with --context"
    )]
    Kubeconfig {
        /// Which one.
        kubeconfig: Named,
        /// Why.
        reason: String,
    },
    /// The certificates, keys or credentials of the kubeconfig cannot be loaded.
    #[error(
        "cannot use the credentials for {server}: {reason}; check the user and the cluster of the kubeconfig's context"
    )]
    Credentials {
        /// The address.
        server: String,
        /// Why.
        reason: String,
    },
    /// No connection.
    #[error(
        "cannot connect to {server}: {reason}; check that the API server runs and that the kubeconfig has its address"
    )]
    Unreachable {
        /// The address.
        server: String,
        /// Why.
        reason: String,
    },
    /// A connection that cannot be trusted, or that the server ends because it does not trust the client.
    #[error(
        "cannot establish TLS with {server}: {reason}; check certificate-authority-data and the address in the kubeconfig"
    )]
    Tls {
        /// The address.
        server: String,
        /// Why.
        reason: String,
    },
    /// 401.
    #[error(
        "{server} does not accept the credentials: {reason}; log in again, or use another context with --context"
    )]
    Unauthorized {
        /// The address.
        server: String,
        /// The message of the API server.
        reason: String,
    },
    /// 403.
    #[error(
        "{server} denies access: {reason}; grant the permission with RBAC, or use another context with --context"
    )]
    Forbidden {
        /// The address.
        server: String,
        /// The message of the API server.
        reason: String,
    },
    /// 404.
    #[error("{reason} on {server}; check the name and the namespace")]
    NotFound {
        /// The address.
        server: String,
        /// The message of the API server.
        reason: String,
    },
    /// Any other error status.
    #[error("{server} returned status {code}: {reason}")]
    Status {
        /// The address.
        server: String,
        /// The HTTP status.
        code: u16,
        /// The message of the API server.
        reason: String,
    },
    /// Whatever is there is not an API server.
    #[error(
        "{server} does not respond as a Kubernetes API server: {reason}; check the address in the kubeconfig"
    )]
    Protocol {
        /// The address.
        server: String,
        /// What is wrong with the response.
        reason: String,
    },
    /// The version of the API server cannot be used.
    #[error("cannot use the version of {server}")]
    Version {
        /// The address.
        server: String,
        /// Why.
        #[source]
        source: ServerVersionError,
    },
    /// Some objects cannot be listed or watched.
    #[error("{reason} on {server}; grant the permission with RBAC, or use another context with --context")]
    Watch {
        /// The address.
        server: String,
        /// Which ones, and the message of the API server.
        reason: String,
    },
    /// No response in time.
    #[error(
        "{server} has not responded within {seconds} s; check that the API server is not overloaded, and try again"
    )]
    Timeout {
        /// The address.
        server: String,
        /// How long the command waited.
        seconds: u64,
    },
}

impl From<ClusterError> for Failure {
    fn from(error: ClusterError) -> Self {
        Self::incomplete(error)
    }
}

impl ClusterError {
    fn of(server: &str, error: kube::Error) -> Self {
        let server = server.to_owned();
        match error {
            kube::Error::Api(status) => Self::rejected(&server, status.code, status.message),
            kube::Error::SerdeError(error) => Self::Protocol { server, reason: error.to_string() },
            kube::Error::FromUtf8(_) => Self::Protocol { server, reason: "the body is not text".to_owned() },
            kube::Error::Auth(_) | kube::Error::RustlsTls(_) | kube::Error::TlsRequired => {
                Self::Credentials { server, reason: root_cause(&error).to_string() }
            }
            error => {
                let reason = reason(root_cause(&error));
                if causes(&error).any(is_tls) {
                    Self::Tls { server, reason }
                } else {
                    Self::Unreachable { server, reason }
                }
            }
        }
    }

    fn rejected(server: &str, code: u16, message: String) -> Self {
        let (server, reason) = (server.to_owned(), message);
        match code {
            401 => Self::Unauthorized { server, reason },
            403 => Self::Forbidden { server, reason },
            404 => Self::NotFound { server, reason },
            _ => Self::Status { server, code, reason },
        }
    }
}

/// An error and everything that caused it, the outermost first.
fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

fn root_cause<'e>(error: &'e (dyn Error + 'static)) -> &'e (dyn Error + 'static) {
    causes(error).last().unwrap_or(error)
}

/// Whether an error is one of TLS; errors of IO hide what they wrap, and may wrap another one.
fn is_tls(error: &(dyn Error + 'static)) -> bool {
    let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    error.is::<rustls::Error>() || wrapped.is_some_and(|wrapped| is_tls(wrapped))
}

/// An error of the operating system without its number, and any other as it is.
fn reason(error: &(dyn Error + 'static)) -> String {
    match error.downcast_ref::<io::Error>() {
        Some(error) if error.kind() == io::ErrorKind::NotFound => "no such file".to_owned(),
        Some(error) if error.raw_os_error().is_some() => error.kind().to_string(),
        _ => error.to_string(),
    }
}

/// What is wrong with a kubeconfig, in one line.
fn kubeconfig_reason(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::CurrentContextNotSet => "it has no current context".to_owned(),
        KubeconfigError::LoadContext(name) => format!("it has no context {name:?}"),
        KubeconfigError::LoadClusterOfContext(name) => format!("it has no cluster {name:?}"),
        KubeconfigError::FindPath => "there is no home directory".to_owned(),
        KubeconfigError::ReadConfig(error, _) => reason(error),
        KubeconfigError::MissingClusterUrl => "the cluster has no server address".to_owned(),
        error => error.to_string().lines().next().unwrap_or_default().to_owned(),
    }
}
