//! Everything that can be chosen about a webhook. Reading it from a command line is left to the command line.

use std::{error::Error, net::SocketAddr, path::PathBuf, time::Duration};

use palisade_model::compat::{Compat, FeatureGates};
use palisade_policy::{enforcement::instances, scc::mode::ConstraintMode};
use serde_json::Value;

use crate::fail_fast::FailFastMode;

/// Reads a `PodSecurityConfiguration` out of a text, YAML or JSON, bare or inside an `AdmissionConfiguration`.
pub type ReadConfiguration = fn(&str) -> Result<Value, Box<dyn Error + Send + Sync>>;

/// The options of a webhook.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where reviews are taken, over TLS.
    pub listen: SocketAddr,
    /// Where metrics and health are served in plain HTTP as well.
    pub metrics_listen: Option<SocketAddr>,
    /// The namespace that the webhook itself runs in.
    pub namespace: String,
    /// The name of this replica among the others.
    pub identity: String,
    /// Whose rules apply; `None`: what the API server that calls does not do itself.
    pub emulate: Option<Compat>,
    /// Feature gates; those of `emulate` are its own.
    pub gates: FeatureGates,
    /// Whether security context constraints are in force, or only report.
    pub constraints: ConstraintMode,
    /// Whether and how the pods of written workloads are tried; `None`: never, and labels of namespaces do not count.
    pub fail_fast: Option<FailFastMode>,
    /// Who may send reviews; `None`: every client.
    pub clients: Option<Clients>,
    /// Where the configuration of Pod Security Admission comes from.
    pub configuration: ConfigurationSource,
    /// How a configuration is read.
    pub read_configuration: ReadConfiguration,
    /// Where the certificate comes from.
    pub certificate: CertificateSource,
    /// How the webhook registers itself; `None`: it does not.
    pub registration: Option<Registration>,
    /// The limits of the server.
    pub limits: Limits,
    /// How long reviews are still served after SIGTERM, until endpoints are updated and no more are sent.
    pub shutdown_delay: Duration,
}

/// Who may send reviews.
#[derive(Debug, Clone)]
pub struct Clients {
    /// The file with the authorities of their certificates, PEM.
    pub authorities: PathBuf,
    /// Common names and subject alternative names, one of which a certificate must have; empty: any.
    pub names: Vec<String>,
}

/// Where a `PodSecurityConfiguration` comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigurationSource {
    /// A file, read again whenever it changes.
    File(PathBuf),
    /// A ConfigMap, watched. All its keys are tried, the config observer's first; no such ConfigMap means the defaults.
    ConfigMap {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

impl Default for ConfigurationSource {
    fn default() -> Self {
        Self::ConfigMap { namespace: instances::NAMESPACE.to_owned(), name: instances::CONFIG_MAP.to_owned() }
    }
}

/// Where the serving certificate comes from.
#[derive(Debug, Clone)]
pub enum CertificateSource {
    /// Files, read again whenever they change.
    Files {
        /// The certificate and those that lead to its root.
        certificate: PathBuf,
        /// The private key.
        key: PathBuf,
        /// What the API server shall trust; `None`: what it trusts anyway.
        authority: Option<PathBuf>,
    },
    /// An authority of our own, in a Secret that all replicas share.
    Managed(Managed),
}

/// The authority of our own.
#[derive(Debug, Clone)]
pub struct Managed {
    /// The Secret, in the webhook's namespace.
    pub secret: String,
    /// Names and addresses under which the API server calls us.
    pub names: Vec<String>,
    /// How long an authority is valid.
    pub authority_validity: Duration,
    /// How long a serving certificate is valid.
    pub certificate_validity: Duration,
    /// How long an authority must have been announced before certificates signed by it are served, and how long a
    /// replaced one is still announced.
    pub overlap: Duration,
}

impl Managed {
    /// The usual times: an authority for ten years, certificates for ninety days, an overlap of ten minutes.
    #[must_use]
    pub fn new(names: Vec<String>) -> Self {
        Self {
            secret: "palisade-webhook-certificates".to_owned(),
            names,
            authority_validity: Duration::from_hours(10 * 365 * 24),
            certificate_validity: Duration::from_hours(90 * 24),
            overlap: Duration::from_mins(10),
        }
    }
}

/// How the webhook registers itself.
#[derive(Debug, Clone)]
pub struct Registration {
    /// Name of both webhook configurations.
    pub name: String,
    /// How the API server reaches us.
    pub endpoint: Endpoint,
    /// Namespaces whose pods are never sent to us, besides our own.
    pub excluded_namespaces: Vec<String>,
    /// The service account this webhook runs as, `system:serviceaccount:…`; its requests are not sent back to it.
    pub service_account: Option<String>,
    /// What happens to pods while `/mutate` is unavailable.
    pub mutate: FailurePolicy,
    /// What happens to pods and namespaces while `/validate` is unavailable.
    pub validate: FailurePolicy,
    /// How long the API server waits for an answer, in seconds.
    pub timeout_seconds: u8,
}

/// How the API server reaches a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// At an address; the path is added.
    Url(String),
    /// Through a Service.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its port.
        port: u16,
    },
}

/// What the API server does while a webhook does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailurePolicy {
    /// Refuses the request.
    Fail,
    /// Goes on without.
    Ignore,
}

impl FailurePolicy {
    /// Kubernetes' word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "Fail",
            Self::Ignore => "Ignore",
        }
    }
}

/// Limits against slow or greedy clients.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Of connections.
    pub connection: palisade_serve::Limits,
    /// A body of this many bytes or more is refused.
    pub body: usize,
    /// A client must have sent a whole body in this time.
    pub body_time: Duration,
    /// How long a review may take that names no time of its own.
    pub review: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connection: palisade_serve::Limits::default(),
            body: 3 << 20,
            body_time: Duration::from_secs(5),
            review: Duration::from_secs(10),
        }
    }
}
