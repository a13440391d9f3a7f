//! The options of a server, and its start.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use palisade_base::version::{KubeVersion, NEWEST_MINOR};
use palisade_model::compat::Compat;
use palisade_policy::standards::policy::{Exemptions, Policy};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use super::{Server, StartError, bootstrap, kubeconfig, limits, snapshot};
use crate::admission_chain::{Chain, ObjectRules, Plugin};
use crate::admission_policies::{self, AdmissionPolicies};
use crate::api::{Api, LIMITS};
use crate::audit::AuditLog;
use crate::auth::authenticate::Authenticator;
use crate::auth::rbac::Authorizer;
use crate::auth::token::TokenKey;
use crate::auth::{MASTERS, UserInfo};
use crate::health::Health;
use crate::http::tls::{Authority, write_private};
use crate::log_source::LogSource;
use crate::metrics::Metrics;
use crate::pod_security::{
    AppArmorProfilePlugin, PodRules, PodSecurityPlugin, PodSecurityPolicyPlugin, ProfilePolicyPlugin,
    SecurityExceptionPlugin,
};
use crate::registry::{self, Registry};
use crate::router::Router;
use crate::storage::{Store, compaction};
use crate::stream_source::StreamSource;
use crate::webhooks::{self, Webhooks};
use crate::{controllers, meta, openshift, plugins, set_aside, streaming};

/// The administrator's certificate outlives a working day, and a working year.
const ADMIN_VALIDITY: Duration = Duration::from_hours(8760);

/// Resources of our own, there from the start with Palisade's extensions.
const DESIGN_MANIFESTS: &[(&str, &str)] = &[
    ("profilepolicies.json", palisade_policy::resources::PROFILE_POLICIES),
    ("securityexceptions.json", palisade_policy::resources::SECURITY_EXCEPTIONS),
    ("syscallguards.json", palisade_policy::resources::SYSCALL_GUARDS),
    ("apparmorprofiles.json", palisade_policy::resources::APP_ARMOR_PROFILES),
    ("profilerecordings.json", palisade_policy::resources::PROFILE_RECORDINGS),
    ("noderecordings.json", palisade_policy::resources::NODE_RECORDINGS),
    ("nodesecurityreports.json", palisade_policy::resources::NODE_SECURITY_REPORTS),
];

/// The options of a server. Everything has a default.
pub struct Builder {
    listen: SocketAddr,
    kubeconfig: Option<PathBuf>,
    data_dir: Option<PathBuf>,
    version: KubeVersion,
    enabled_plugins: Vec<String>,
    disabled_plugins: Vec<String>,
    openshift: bool,
    plugins: Vec<Arc<dyn Plugin>>,
    rules: Option<Arc<dyn ObjectRules>>,
    compat: Compat,
    pod_security: Option<(Policy, Exemptions)>,
    snapshots: Vec<PathBuf>,
    audit_log: Option<PathBuf>,
    controllers: bool,
    logs: Option<Arc<dyn LogSource>>,
    streams: Option<Arc<dyn StreamSource>>,
    store: Option<Store>,
    loopback_kubelets: bool,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("listen", &self.listen)
            .field("version", &self.version)
            .field("data_dir", &self.data_dir)
            .finish_non_exhaustive()
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            kubeconfig: None,
            data_dir: None,
            version: KubeVersion::LATEST,
            enabled_plugins: Vec::new(),
            disabled_plugins: Vec::new(),
            openshift: false,
            plugins: Vec::new(),
            rules: None,
            compat: Compat::kubernetes(NEWEST_MINOR),
            pod_security: None,
            snapshots: Vec::new(),
            audit_log: None,
            controllers: true,
            logs: None,
            streams: None,
            store: None,
            loopback_kubelets: false,
        }
    }
}

impl Builder {
    /// Where to listen; port 0 takes a free one.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// Where to write a kubeconfig for the administrator.
    #[must_use]
    pub fn kubeconfig(mut self, path: impl Into<PathBuf>) -> Self {
        self.kubeconfig = Some(path.into());
        self
    }

    /// Keep objects and keys here.
    #[must_use]
    pub fn data_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(path.into());
        self
    }

    /// Proxy requests to kubelets that state a loopback address, such as those of tests. A node says where its kubelet is: what else
    /// listens on the machine of the server is then in the reach of every node.
    #[must_use]
    pub fn loopback_kubelets(mut self, proxied: bool) -> Self {
        self.loopback_kubelets = proxied;
        self
    }

    /// Keep objects in a store that is open already.
    #[must_use]
    pub fn store(mut self, store: Store) -> Self {
        self.store = Some(store);
        self
    }

    /// The release to emulate.
    #[must_use]
    pub fn version(mut self, version: KubeVersion) -> Self {
        self.version = version;
        self.compat = Compat { gates: self.compat.gates, ..Compat::kubernetes(version.minor()) };
        self
    }

    /// Whose rules apply to the security of pods, if not those of the emulated release: Palisade's extensions, or other gates.
    #[must_use]
    pub fn compat(mut self, compat: Compat) -> Self {
        self.compat = compat;
        if compat.is_designs() {
            self.version = KubeVersion::Designs;
        }
        self
    }

    /// The defaults and exemptions of Pod Security Admission to start with.
    #[must_use]
    pub fn pod_security(mut self, defaults: Policy, exemptions: Exemptions) -> Self {
        self.pod_security = Some((defaults, exemptions));
        self
    }

    /// Whether this is an OpenShift cluster: constraints with their admission plugins, and `PSAEnforcementConfig`.
    #[must_use]
    pub fn openshift(mut self, on: bool) -> Self {
        self.openshift = on;
        self
    }

    /// Admission plugins to have besides those that are on anyway. One of OpenShift's brings its kinds along.
    #[must_use]
    pub fn enable_plugins(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.enabled_plugins.extend(names);
        self
    }

    /// Admission plugins to leave out.
    #[must_use]
    pub fn disable_plugins(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.disabled_plugins.extend(names);
        self
    }

    /// An admission plugin, after the built-in ones.
    #[must_use]
    pub fn plugin(mut self, plugin: Arc<dyn Plugin>) -> Self {
        self.plugins.push(plugin);
        self
    }

    /// Other rules about objects than those of pod security.
    #[must_use]
    pub fn rules(mut self, rules: Arc<dyn ObjectRules>) -> Self {
        self.rules = Some(rules);
        self
    }

    /// A file of objects to start with.
    #[must_use]
    pub fn snapshot(mut self, path: impl Into<PathBuf>) -> Self {
        self.snapshots.push(path.into());
        self
    }

    /// Where to write the audit log.
    #[must_use]
    pub fn audit_log(mut self, path: impl Into<PathBuf>) -> Self {
        self.audit_log = Some(path.into());
        self
    }

    /// Whether namespaces are emptied, garbage collected and service accounts made.
    #[must_use]
    pub fn controllers(mut self, on: bool) -> Self {
        self.controllers = on;
        self
    }

    /// Where the logs of pods come from: a node in this process.
    #[must_use]
    pub fn log_source(mut self, source: Arc<dyn LogSource>) -> Self {
        self.logs = Some(source);
        self
    }

    /// Where streams into containers lead: a node in this process.
    #[must_use]
    pub fn stream_source(mut self, source: Arc<dyn StreamSource>) -> Self {
        self.streams = Some(source);
        self
    }

    /// The plugins of the server, Pod Security Admission once more by itself, or what is wrong with the options.
    fn check(&self) -> Result<Plugins, StartError> {
        let pod_security = Arc::new(PodSecurityPlugin::new(self.compat));
        if let Some((defaults, exemptions)) = &self.pod_security {
            pod_security.configure(*defaults, exemptions.clone());
        }
        let mut all = plugins::builtin();
        all.push(Arc::new(PodSecurityPolicyPlugin { compat: self.compat }));
        all.push(Arc::new(ProfilePolicyPlugin { compat: self.compat }));
        all.push(Arc::new(SecurityExceptionPlugin));
        all.push(Arc::new(AppArmorProfilePlugin { compat: self.compat }));
        all.push(pod_security.clone());
        let optional = openshift::plugins(&self.compat);
        let unknown = self.enabled_plugins.iter().chain(&self.disabled_plugins).find(|name| {
            !all.iter().chain(&optional).chain(&self.plugins).any(|p| p.name() == *name)
                && !plugins::KNOWN_ELSEWHERE.contains(&name.as_str())
                && ![webhooks::MUTATING, webhooks::VALIDATING].contains(&name.as_str())
                && ![admission_policies::MUTATING, admission_policies::VALIDATING].contains(&name.as_str())
        });
        if let Some(name) = unknown {
            return Err(StartError::UnknownPlugin(name.clone()));
        }
        let wanted = |plugin: &Arc<dyn Plugin>| {
            self.openshift || self.enabled_plugins.iter().any(|name| name == plugin.name())
        };
        let optional: Vec<_> = optional.into_iter().filter(wanted).collect();
        let openshift = self.openshift || !optional.is_empty();
        all.extend(optional);
        all.extend(self.plugins.iter().cloned());
        Ok(Plugins { all, pod_security, openshift })
    }

    fn api(self, parts: Parts) -> Result<Api, StartError> {
        let Plugins { all: plugins, pod_security, openshift } = self.check()?;
        let store = parts.store;
        let audit = match &self.audit_log {
            None => None,
            Some(path) => Some(
                AuditLog::open(path)
                    .map_err(|source| StartError::Audit { path: path.display().to_string(), source })?,
            ),
        };
        Ok(Api {
            registry: Registry::new(self.version, &store),
            authenticator: Authenticator::new(parts.key, parts.tokens, store.clone()),
            authorizer: Authorizer::new(&store),
            chain: Chain::new(plugins, &self.disabled_plugins),
            policies: AdmissionPolicies::new(&store, &self.disabled_plugins),
            webhooks: Webhooks::new(&store, &self.disabled_plugins),
            rules: self.rules.unwrap_or_else(|| Arc::new(PodRules { compat: self.compat })),
            pod_security,
            openshift,
            version: self.version,
            compat: self.compat,
            metrics: Metrics::default(),
            audit,
            health: Health::default(),
            address: parts.address,
            ca: parts.ca,
            authority: parts.authority,
            logs: self.logs,
            quotas: plugins::quota::Pending::default(),
            enforces_quotas: !self.disabled_plugins.iter().any(|name| name == plugins::quota::NAME),
            services: crate::services::Allocator::default(),
            streams: self.streams,
            kubelets: parts.kubelets,
            loopback_kubelets: self.loopback_kubelets,
            sessions: Arc::new(Semaphore::new(streaming::MOST_SESSIONS)),
            verifier: parts.verifier,
            stop: parts.stop,
            store,
        })
    }

    /// The server as a service in this process, without sockets, certificates and controllers.
    pub fn router(mut self) -> Result<Router, StartError> {
        let store = self.store.take().unwrap_or_default();
        let (_, stop) = watch::channel(false);
        let parts = Parts {
            store,
            key: TokenKey::open(None)?,
            tokens: Vec::new(),
            address: "localhost".to_owned(),
            ca: String::new(),
            authority: None,
            verifier: None,
            kubelets: None,
            stop,
        };
        Ok(Router::new(Arc::new(self.api(parts)?)))
    }

    /// Starts the server. It is ready when this returns.
    pub async fn start(mut self) -> Result<Server, StartError> {
        self.check()?;
        limits::raise_open_files();
        let directory = self.data_dir.clone();
        let store = match (self.store.take(), &directory) {
            (Some(store), _) => store,
            (None, Some(directory)) => Store::open_checked(directory, &registry::readable(self.version))?,
            (None, None) => Store::in_memory(),
        };
        let authority = Authority::open(directory.as_deref())?;
        let listening = TcpListener::bind(self.listen).await;
        let failed = |source| StartError::Listen { address: self.listen, source };
        let listener = listening.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let acceptor = TlsAcceptor::from(Arc::new(authority.server_config(address.ip())?));
        let admin = authority.client("kubernetes-admin", &[MASTERS], ADMIN_VALIDITY)?;
        let advertised = advertised(address);
        let kubeconfig = kubeconfig(&format!("https://{advertised}"), &authority.certificate, &admin);
        if let Some(path) = &self.kubeconfig {
            write_private(path, kubeconfig.as_bytes())?;
        }
        let kubelet_client = authority.client(streaming::KUBELET_CLIENT, &[MASTERS], ADMIN_VALIDITY)?;
        let token = meta::random_token();
        let (stop_sender, stop) = watch::channel(false);
        let parts = Parts {
            store,
            key: TokenKey::open(directory.as_deref())?,
            tokens: vec![(token.clone(), UserInfo::new("kubernetes-admin", &[MASTERS]))],
            address: advertised.to_string(),
            ca: authority.certificate.clone(),
            authority: Some(authority.pair().clone()),
            verifier: Some(authority.verifier()?),
            kubelets: Some(streaming::kubelet_client_config(&kubelet_client)?),
            stop: stop.clone(),
        };
        let (snapshots, controllers_on) = (self.snapshots.clone(), self.controllers);
        let designs = self.compat.is_designs();
        let api = Arc::new(self.api(parts)?);
        // Kinds first, then what a snapshot brings, then what is still missing: an object of a snapshot is as it was
        // even where the server would have made one of that name.
        if designs {
            for (name, manifest) in DESIGN_MANIFESTS {
                snapshot::load_text(&api, manifest, Path::new(name)).await?;
            }
        }
        if api.openshift && !snapshots.is_empty() {
            openshift::install_definitions(&api).await;
        }
        let mut reports = Vec::with_capacity(snapshots.len());
        for path in &snapshots {
            reports.push(snapshot::load(&api, path).await?);
        }
        bootstrap::run(&api).await;
        set_aside::report_unserved(&api);
        let serving = palisade_serve::serve(listener, Some(acceptor), LIMITS, api.clone(), stop.clone());
        let compacting = compaction::run(api.store.clone(), stop.clone());
        let mut tasks = vec![tokio::spawn(serving), tokio::spawn(compacting)];
        if controllers_on {
            tasks.push(tokio::spawn(controllers::run(api.clone(), stop)));
        }
        Ok(Server {
            api,
            address,
            ca: authority.certificate,
            kubeconfig,
            token,
            snapshots: reports,
            stop: stop_sender,
            tasks,
        })
    }
}

/// What [`Builder::check`] found to be in order.
struct Plugins {
    all: Vec<Arc<dyn Plugin>>,
    pod_security: Arc<PodSecurityPlugin>,
    openshift: bool,
}

/// The address clients on this machine should use.
fn advertised(address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), address.port())
    } else {
        address
    }
}

struct Parts {
    store: Store,
    key: TokenKey,
    tokens: Vec<(String, UserInfo)>,
    address: String,
    ca: String,
    authority: Option<palisade_serve::certificate::Pair>,
    verifier: Option<crate::http::tls::ClientVerifier>,
    kubelets: Option<Arc<rustls::ClientConfig>>,
    stop: watch::Receiver<bool>,
}
