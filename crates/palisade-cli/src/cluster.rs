//! A client for the cluster that the user means, and what is wrong if a request fails.
//!
//! The same order as kubectl: `--kubeconfig`, `KUBECONFIG`, `~/.kube/config`; inside a pod, its service account.

use std::{error::Error, io, path::PathBuf, time::Duration};

use clap::Args;
use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use palisade_base::causes::{causes, root_cause};
use palisade_controllers::api::ApiError;
use palisade_model::{compat::Compat, server_version::announced};
use serde_json::Value;
use thiserror::Error;
use tower::{BoxError, util::MapErrLayer};

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
        let builder = ClientBuilder::try_from(config).map_err(|error| of_kube(&server, error))?;
        Ok(Cluster { client: builder.with_layer(&naming(&server)).build(), server })
    }

    async fn config(&self) -> Result<Config, ClusterError> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        if let Some(file) = &self.kubeconfig {
            let unusable = |error| of_kubeconfig(format!("kubeconfig {}", file.display()), &error);
            let read = Kubeconfig::read_from(file).map_err(unusable)?;
            return Config::from_custom_kubeconfig(read, &options).await.map_err(unusable);
        }
        if self.context.is_none()
            && std::env::var_os("KUBECONFIG").is_none()
            && let Ok(config) = Config::incluster()
        {
            return Ok(config);
        }
        let found = "the kubeconfig of KUBECONFIG or ~/.kube/config";
        Config::from_kubeconfig(&options).await.map_err(|error| of_kubeconfig(found.to_owned(), &error))
    }
}

/// Puts the address of the API server, and what to do, into every error of the way to it. The parts that run for long log errors
/// of their clients and do not know the address.
fn naming(server: &str) -> MapErrLayer<impl Fn(BoxError) -> BoxError + Clone + Send + Sync + use<>> {
    let server = server.to_owned();
    MapErrLayer::new(move |error: BoxError| match error.downcast::<kube::Error>() {
        Ok(error) => of_kube(&server, *error).into(),
        Err(error) => of_kube(&server, kube::Error::Service(error)).into(),
    })
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
        response.map_err(|error| of_kube(&self.server, error))
    }

    /// Sends a request; nothing if there is no such object or no such kind. A body is a merge patch.
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Option<Value>, ClusterError> {
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = hyper::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/merge-patch+json")
            .body(body)
            .map_err(kube::Error::HttpError);
        let response = match request {
            Ok(request) => self.client.request(request).await,
            Err(error) => Err(error),
        };
        match response {
            Ok(value) => Ok(Some(value)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(of_kube(&self.server, error)),
        }
    }

    /// Whose rules the API server applies.
    pub async fn compat(&self) -> Result<Compat, ClusterError> {
        let version = self.get("/version").await?;
        announced(&version).map_err(|error| self.fail(UNSUPPORTED, error.to_string()))
    }

    /// What the error of a request by the controllers' client means for the user.
    #[must_use]
    pub fn error(&self, error: ApiError) -> ClusterError {
        match error {
            ApiError::Refused { code, message, .. } => of_status(&self.server, code, message),
            ApiError::Unreachable(error) => of_kube(&self.server, *error),
        }
    }

    /// The response is not what an API server returns.
    #[must_use]
    pub fn not_an_api_server(&self, reason: String) -> ClusterError {
        self.fail(NO_API_SERVER, reason)
    }

    /// Some objects cannot be listed or watched.
    #[must_use]
    pub fn not_watched(&self, reason: String) -> ClusterError {
        self.fail(NOT_WATCHED, reason)
    }

    /// No response in time.
    #[must_use]
    pub fn timeout(&self, after: Duration) -> ClusterError {
        self.fail(TIMEOUT, format!("nothing within {} s", after.as_secs()))
    }

    fn fail(&self, problem: Problem, reason: String) -> ClusterError {
        ClusterError { problem, place: self.server.clone(), reason }
    }
}

/// Why a cluster cannot be used: one sentence with the address and what to do.
#[derive(Debug, Clone, Error)]
#[error("{} {place}: {reason}; {}", .problem.0, .problem.1)]
pub struct ClusterError {
    problem: Problem,
    /// The address of the API server, or the kubeconfig.
    place: String,
    reason: String,
}

/// What is wrong, and what to do.
type Problem = (&'static str, &'static str);

const KUBECONFIG: Problem =
    ("cannot use", "name another file with --kubeconfig or another context with --context");
const CREDENTIALS: Problem =
    ("cannot use the credentials for", "check the user and the cluster of the kubeconfig's context");
const UNREACHABLE: Problem =
    ("cannot connect to", "check that the API server runs and that the kubeconfig has its address");
const TLS: Problem =
    ("cannot establish TLS with", "check certificate-authority-data and the address in the kubeconfig");
const UNAUTHORIZED: Problem =
    ("cannot log in to", "check the credentials, or use another context with --context");
const FORBIDDEN: Problem =
    ("access denied by", "grant the permission with RBAC, or use another context with --context");
const NOT_FOUND: Problem = ("cannot read from", "check the name and the namespace");
const ERROR_STATUS: Problem = ("error response from", "check the API server and the proxies in front of it");
const NO_API_SERVER: Problem = ("no Kubernetes API server at", "check the address in the kubeconfig");
const UNSUPPORTED: Problem = ("unsupported API server at", "check the address in the kubeconfig");
const NOT_WATCHED: Problem = ("cannot watch objects of", FORBIDDEN.1);
const TIMEOUT: Problem = ("no response from", "check that the API server is not overloaded, and try again");

impl ClusterError {
    /// Whether the user may not send the request; another one may work.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        self.problem == FORBIDDEN
    }
}

impl From<ClusterError> for Failure {
    fn from(error: ClusterError) -> Self {
        Self::incomplete(error)
    }
}

fn of_kube(server: &str, error: kube::Error) -> ClusterError {
    // The client has put it into words already.
    if let Some(known) = causes(&error).find_map(|cause| cause.downcast_ref::<ClusterError>()) {
        return known.clone();
    }
    let (problem, reason) = match error {
        kube::Error::Api(status) => return of_status(server, status.code, status.message),
        kube::Error::SerdeError(error) => (NO_API_SERVER, error.to_string()),
        kube::Error::FromUtf8(error) => (NO_API_SERVER, error.to_string()),
        kube::Error::Auth(_) | kube::Error::RustlsTls(_) | kube::Error::TlsRequired => {
            (CREDENTIALS, reason(root_cause(&error)))
        }
        error if causes(&error).any(is_tls) => (TLS, reason(root_cause(&error))),
        error => (UNREACHABLE, reason(root_cause(&error))),
    };
    ClusterError { problem, place: server.to_owned(), reason }
}

fn of_status(server: &str, code: u16, message: String) -> ClusterError {
    let (problem, reason) = match code {
        401 => (UNAUTHORIZED, message),
        403 => (FORBIDDEN, message),
        404 => (NOT_FOUND, message),
        _ => (ERROR_STATUS, format!("status {code}: {message}")),
    };
    ClusterError { problem, place: server.to_owned(), reason }
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

fn of_kubeconfig(place: String, error: &KubeconfigError) -> ClusterError {
    let reason = match error {
        KubeconfigError::CurrentContextNotSet => "it has no current context".to_owned(),
        KubeconfigError::LoadContext(name) => format!("it has no context {name:?}"),
        KubeconfigError::LoadClusterOfContext(name) => format!("it has no cluster {name:?}"),
        KubeconfigError::FindPath => "there is no home directory".to_owned(),
        KubeconfigError::ReadConfig(error, _) => reason(error),
        KubeconfigError::MissingClusterUrl => "the cluster has no server address".to_owned(),
        error => error.to_string().lines().next().unwrap_or_default().to_owned(),
    };
    ClusterError { problem: KUBECONFIG, place, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The controllers, the webhook and the agent log errors of this client.
    #[tokio::test]
    async fn errors_of_the_connection_name_the_api_server() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
        let text = format!(
            "{{clusters: [{{name: c, cluster: {{server: 'http://{free}'}}}}], users: [{{name: u, user: {{}}}}], \
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}], current-context: c}}"
        );
        std::fs::write(&file, text).unwrap();
        let args = ClusterArgs { kubeconfig: Some(file), context: None };
        let cluster = args.connect().await.unwrap();
        let expected = format!(
            "cannot connect to http://{free}: connection refused; check that the API server runs and that the kubeconfig \
             has its address"
        );
        let error = cluster.client.apiserver_version().await.unwrap_err();
        assert_eq!(root_cause(&error).to_string(), expected);
        assert_eq!(ApiError::from(error).to_string(), expected);
        assert_eq!(cluster.get("/version").await.unwrap_err().to_string(), expected);
    }
}
