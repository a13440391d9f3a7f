//! A running webhook: start, and the end without losing a review.

use std::{collections::BTreeSet, io, net::SocketAddr, sync::Arc, time::Duration};

use kube::Client;
use palisade_base::version::{NEWEST_MINOR, OLDEST_MINOR};
use palisade_model::compat::Compat;
use palisade_policy::scc::mode::ConstraintMode;
use palisade_serve::{
    certificate::now,
    serve,
    status::StatusOnly,
    tls::{Resolver, ServeError},
};
use rustls::{
    pki_types::{CertificateDer, pem::PemObject as _},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use thiserror::Error;
use tokio::{
    net::TcpListener,
    sync::watch,
    task::{JoinHandle, JoinSet},
};
use tokio_rustls::TlsAcceptor;

use crate::{
    answer::Answerer,
    calls::in_words,
    certificates::{
        self, Trust,
        files::{CertificateError, Files},
        keeper,
    },
    configuration::{ApplyError, Follower},
    facts::ClusterFacts,
    fail_fast::FailFast,
    http::Routes,
    instance,
    metrics::Metrics,
    options::{CertificateSource, Clients, ConfigurationSource, Options},
    registration,
};

/// How often an API server is requested its version: it may be upgraded.
const VERSION_EVERY: Duration = Duration::from_mins(5);
/// How long to wait before the next attempt.
const RETRY: Duration = Duration::from_secs(1);
/// How often it is looked whether everything is known.
const READY_EVERY: Duration = Duration::from_millis(50);
/// Validity of the first, untrusted certificate: health can be requested over TLS from the start.
const PROVISIONAL: Duration = Duration::from_hours(24);

/// Why a webhook does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The address.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address requested.
        address: SocketAddr,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The configuration of Pod Security Admission.
    #[error("{source}: {why}", source = .file)]
    Configuration {
        /// The file.
        file: String,
        /// What is wrong in it.
        why: ApplyError,
    },
    /// The certificate.
    #[error("cannot serve the certificate: {0}")]
    Certificate(#[from] CertificateError),
    /// The authorities of clients.
    #[error("{file}: {why}")]
    Clients {
        /// The file.
        file: String,
        /// What is wrong in it.
        why: String,
    },
    /// TLS.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

impl From<ServeError> for StartError {
    fn from(error: ServeError) -> Self {
        Self::Certificate(error.into())
    }
}

/// A running webhook. [`Webhook::shutdown`] ends it gracefully; dropped, it continues to answer.
pub struct Webhook {
    /// Where reviews are taken.
    pub address: SocketAddr,
    /// Where metrics are served in plain HTTP.
    pub metrics_address: Option<SocketAddr>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// What the API server shall trust, and every change of it.
    pub trust: watch::Receiver<Trust>,
    /// Whether reviews can be answered.
    pub ready: watch::Receiver<bool>,
    routes: Arc<Routes>,
    drain: watch::Sender<bool>,
    servers: Vec<JoinHandle<()>>,
    background: JoinSet<()>,
    options: Options,
    client: Client,
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhook").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Webhook {
    /// Starts a webhook. It listens when this returns; [`Webhook::ready`] turns true when it can respond.
    pub async fn start(options: Options, client: Client) -> Result<Self, StartError> {
        let metrics = Arc::new(Metrics::default());
        let configuration = follower(&options, &metrics)?;
        let facts = ClusterFacts::new(client.clone(), options.constraints);
        let fail_fast = options.fail_fast.map(|mode| FailFast::new(client.clone(), mode));
        let answerer =
            Answerer::new(facts, configuration.clone(), metrics.clone(), options.emulate, options.gates);
        let answerer = Arc::new(answerer.with_fail_fast(fail_fast));
        let (verifier, client_names) = match &options.clients {
            None => (WebPkiClientVerifier::no_client_auth(), None),
            Some(clients) => (verifier(clients)?, Some(clients.names.clone())),
        };
        // Without a registration of ours it is not observed whom the API server can call.
        let (callable, callable_seen) = watch::channel(options.registration.is_none());
        let routes = Arc::new(Routes::new(answerer.clone(), options.limits, callable_seen, client_names));

        let listener = listen(options.listen).await?;
        let plain = match options.metrics_listen {
            Some(address) => Some(listen(address).await?),
            None => None,
        };
        let address = listener.local_addr().unwrap_or(options.listen);
        let metrics_address = plain.as_ref().and_then(|plain| plain.local_addr().ok());

        let mut background = JoinSet::new();
        let (trust, trust_seen) = watch::channel(Trust::default());
        let (trusted, trusted_seen) = watch::channel(BTreeSet::new());
        let (resolver, foreign) = match &options.certificate {
            CertificateSource::Files { certificate, key, authority } => {
                let files = Files {
                    certificate: certificate.clone(),
                    key: key.clone(),
                    authority: authority.clone(),
                };
                let pair = files.pair()?;
                let resolver = Arc::new(Resolver::new(&pair)?);
                trust.send_replace(files.trust()?);
                background.spawn(files.follow(resolver.clone(), trust, metrics.clone()));
                (resolver, true)
            }
            CertificateSource::Managed(managed) => {
                let now = now();
                let provisional = certificates::authority(now, PROVISIONAL)
                    .and_then(|authority| certificates::serving(&authority, &managed.names, now, PROVISIONAL))
                    .map_err(CertificateError::from)?;
                let resolver = Arc::new(Resolver::new(&provisional)?);
                let keeper = keeper::Keeper {
                    client: client.clone(),
                    namespace: options.namespace.clone(),
                    options: managed.clone(),
                    resolver: resolver.clone(),
                    trust,
                    trusted: options.registration.is_some().then_some(trusted_seen),
                    metrics: metrics.clone(),
                };
                background.spawn(keeper.run());
                (resolver, false)
            }
        };

        answerer.facts.watch(&mut background);
        match &options.configuration {
            ConfigurationSource::File(file) => {
                background.spawn(configuration.clone().follow_file(file.clone()));
            }
            ConfigurationSource::ConfigMap { namespace, name } => {
                let following =
                    configuration.clone().follow_config_map(client.clone(), namespace.clone(), name.clone());
                background.spawn(following);
            }
        }
        let identity = options.identity.clone();
        background.spawn(instance::report(client.clone(), identity, configuration.subscribe()));
        let (minor, minor_seen) = watch::channel(None);
        background.spawn(follow_version(client.clone(), answerer.clone(), minor));
        let (ready, ready_seen) = watch::channel(false);
        background.spawn(follow_readiness(answerer, ready));
        if let Some(registration) = &options.registration {
            let keeper = registration::keeper::Keeper {
                client: client.clone(),
                options: registration.clone(),
                namespace: options.namespace.clone(),
                constraints: options.constraints == ConstraintMode::Enforce,
                minor: minor_seen,
                trust: trust_seen.clone(),
                foreign,
                overlap: match &options.certificate {
                    CertificateSource::Managed(managed) => managed.overlap,
                    CertificateSource::Files { .. } => Duration::ZERO,
                },
                trusted,
                callable,
                ready: ready_seen.clone(),
                metrics: metrics.clone(),
            };
            background.spawn(keeper.run());
        }

        let (drain, draining) = watch::channel(false);
        let acceptor = TlsAcceptor::from(Arc::new(resolver.server_config_with_tickets(verifier)?));
        let limits = options.limits.connection;
        let serving = serve(listener, Some(acceptor), limits, routes.clone(), draining.clone());
        let mut servers = vec![tokio::spawn(serving)];
        if let Some(plain) = plain {
            let status = Arc::new(StatusOnly(routes.clone()));
            servers.push(tokio::spawn(serve(plain, None, limits, status, draining)));
        }
        Ok(Self {
            address,
            metrics_address,
            metrics,
            trust: trust_seen,
            ready: ready_seen,
            routes,
            drain,
            servers,
            background,
            options,
            client,
        })
    }

    /// Stops: readiness fails first, then running reviews end, then everything else.
    pub async fn shutdown(mut self) {
        self.routes.stop();
        tokio::time::sleep(self.options.shutdown_delay).await;
        // Without a receiver everything has ended already.
        let _ = self.drain.send(true);
        for server in self.servers {
            let _ = server.await;
        }
        self.background.shutdown().await;
        instance::withdraw(self.client, &self.options.identity).await;
    }
}

fn follower(options: &Options, metrics: &Arc<Metrics>) -> Result<Arc<Follower>, StartError> {
    let release = options.emulate.unwrap_or_else(|| Compat::kubernetes(NEWEST_MINOR));
    let follower =
        Follower::new(&options.configuration, options.read_configuration, release, metrics.clone());
    if let ConfigurationSource::File(file) = &options.configuration {
        let fail = |why: ApplyError| StartError::Configuration { file: file.display().to_string(), why };
        let text = std::fs::read_to_string(file).map_err(|error| fail(error.into()))?;
        follower.apply(&text).map_err(fail)?;
    }
    Ok(Arc::new(follower))
}

/// Verifies the certificates of clients. One that presents none may request health and metrics, as kubelets do.
fn verifier(clients: &Clients) -> Result<Arc<dyn ClientCertVerifier>, StartError> {
    let file = clients.authorities.display().to_string();
    let fail = |why: String| StartError::Clients { file: file.clone(), why };
    let mut roots = rustls::RootCertStore::empty();
    let read =
        CertificateDer::pem_file_iter(&clients.authorities).map_err(|error| fail(error.to_string()))?;
    for certificate in read {
        let certificate = certificate.map_err(|error| fail(error.to_string()))?;
        roots.add(certificate).map_err(|error| fail(error.to_string()))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .allow_unauthenticated()
        .build()
        .map_err(|error| fail(error.to_string()))
}

async fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|source| StartError::Listen { address, source })
}

/// Finds out beside which release we are, again and again.
async fn follow_version(client: Client, answerer: Arc<Answerer>, minor: watch::Sender<Option<u16>>) {
    loop {
        let pause = match client.apiserver_version().await {
            Ok(version) => {
                // Distributions write "27+".
                let digits = version.minor.trim_end_matches(|c: char| !c.is_ascii_digit());
                let known = digits.parse::<u16>().ok();
                if let Some(known) = known {
                    answerer.serve_beside(known);
                }
                // Without a version, the registration is one that every release accepts.
                let found = known.unwrap_or(OLDEST_MINOR);
                minor.send_if_modified(|minor| minor.replace(found) != Some(found));
                VERSION_EVERY
            }
            Err(error) => {
                let error = in_words(&error);
                tracing::debug!(error, "the version of the API server is not known yet");
                RETRY
            }
        };
        tokio::time::sleep(pause).await;
    }
}

async fn follow_readiness(answerer: Arc<Answerer>, ready: watch::Sender<bool>) {
    while !(answerer.facts.is_ready() && answerer.configuration.current().is_ok()) {
        tokio::time::sleep(READY_EVERY).await;
    }
    ready.send_replace(true);
    // Receivers see an error once the sender is dropped.
    std::future::pending::<()>().await;
}
