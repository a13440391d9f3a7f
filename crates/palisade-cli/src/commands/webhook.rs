//! `palisade webhook`: serves the admission reviews of a real cluster, until SIGTERM or Ctrl-C.
//!
//! The webhook itself is `palisade-webhook`; here its options are read.

use std::{fmt::Write as _, net::SocketAddr, path::PathBuf, time::Duration};

use clap::{ArgGroup, Args};
use palisade_model::compat::Compat;
use palisade_policy::{enforcement::instances, scc::mode::ConstraintMode};
use palisade_webhook::{
    Options, StartError, Webhook,
    fail_fast::FailFastMode,
    options::{
        CertificateSource, Clients, ConfigurationSource, Endpoint, FailurePolicy, Limits, Managed,
        Registration,
    },
};

use crate::{
    args::{Emulated, FeatureGate, ValueError, duration},
    cluster::ClusterArgs,
    commands::up::pod_security_configuration,
    failure::{Exit, Failure},
    service::{self, stopped},
    terminal::Terminal,
};

/// `palisade webhook`
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("reached").args(["url", "service"]))]
pub struct WebhookArgs {
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Address for admission reviews, over TLS; port 0 selects a free port
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:8443")]
    pub listen: SocketAddr,
    /// Additional address for /metrics, /healthz and /readyz, over plain HTTP
    #[arg(long, value_name = "ADDR")]
    pub metrics_listen: Option<SocketAddr>,
    /// Namespace that the webhook runs in; its pods are never sent to the webhook
    #[arg(long, value_name = "NAMESPACE", env = "POD_NAMESPACE", default_value = instances::NAMESPACE)]
    pub namespace: String,
    /// Name of this replica [default: the host name]
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    pub identity: Option<String>,
    /// PodSecurityConfiguration, bare or in an AdmissionConfiguration; reloaded when it changes
    #[arg(long, alias = "config", value_name = "FILE", conflicts_with = "admission_config_map")]
    pub admission_config: Option<PathBuf>,
    /// The same in a ConfigMap, watched [default: palisade-system/pod-security-configuration]
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = pair)]
    pub admission_config_map: Option<(String, String)>,
    /// Security context constraints: off, audit (report what they would do) or enforce, which is also what the option without a
    /// mode means; not for OpenShift, where the API server enforces them
    #[arg(long, value_name = "MODE", num_args = 0..=1, require_equals = true, default_value_t = ConstraintMode::Off, default_missing_value = "enforce")]
    pub security_context_constraints: ConstraintMode,
    /// Respond as a whole API server of this release, instead of adding what the requesting one lacks: v1.19 to v1.37
    #[arg(long, value_name = "VERSION")]
    pub emulate_kubernetes: Option<Emulated>,
    /// Feature gates: SeccompConfigMaps=true resolves profiles in ConfigMaps, AppArmor=false sets no AppArmor defaults
    #[arg(long, value_name = "GATE=BOOL", value_delimiter = ',')]
    pub feature_gates: Vec<FeatureGate>,
    /// Try the pods of written workloads as a dry run: off, warn or refuse; the label palisade.dev/fail-fast of a namespace decides
    #[arg(long, value_name = "MODE", value_parser = fail_fast_mode)]
    pub fail_fast: Option<FailFastMode>,
    /// CA of client certificates, PEM; reviews are then answered only for clients with one
    #[arg(long, value_name = "FILE")]
    pub client_ca: Option<PathBuf>,
    /// Name that a client certificate must have, as common name or subject alternative name; may be repeated [default: any]
    #[arg(long, value_name = "NAME", requires = "client_ca")]
    pub client_name: Vec<String>,
    /// Create and maintain the MutatingWebhookConfiguration and the ValidatingWebhookConfiguration
    #[arg(long, requires = "reached")]
    pub register: bool,
    /// URL of this webhook outside the cluster, such as https://10.0.0.5:8443
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Service of this webhook inside the cluster
    #[arg(long, value_name = "NAMESPACE/NAME[:PORT]", value_parser = service_name)]
    pub service: Option<Endpoint>,
    /// Name of both webhook configurations
    #[arg(long, value_name = "NAME", default_value = "palisade")]
    pub name: String,
    /// Failure policy of the webhooks: Fail or Ignore for all, or mutate=Ignore,validate=Fail
    #[arg(long, value_name = "POLICY", value_delimiter = ',', value_parser = failure_policy, default_value = "Fail")]
    pub failure_policy: Vec<(Part, FailurePolicy)>,
    /// Namespaces that are excluded, in addition to the webhook's own; may be repeated
    #[arg(long, value_name = "NAMESPACE", value_delimiter = ',', default_value = "kube-system")]
    pub exclude_namespace: Vec<String>,
    /// Service account of this webhook; its requests are excluded
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = pair)]
    pub service_account: Option<(String, String)>,
    /// Timeout of the webhooks, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=30))]
    pub timeout_seconds: u8,
    /// Serving certificate, PEM; reloaded when it changes [default: signed by a CA that the webhook creates]
    #[arg(long, alias = "tls-cert-file", value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, alias = "tls-private-key-file", value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// CA of the serving certificate for the API server, PEM [default: the CAs of the API server's host]
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub ca: Option<PathBuf>,
    /// Additional names in the created certificate; may be repeated
    #[arg(long, value_name = "NAME", conflicts_with = "tls_cert")]
    pub tls_name: Vec<String>,
    /// Secret in which replicas share CA and certificate
    #[arg(long, value_name = "NAME", default_value = "palisade-webhook-certificates")]
    pub certificate_secret: String,
    /// Validity of a created CA
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "3650d")]
    pub ca_validity: Duration,
    /// Validity of a created certificate
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "90d")]
    pub certificate_validity: Duration,
    /// How long a new CA is published before it signs, and an old one after it signed last
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10m")]
    pub rotation_overlap: Duration,
    /// Size in bytes from which on a request is rejected
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().body)]
    pub max_request_bytes: usize,
    /// Maximum number of connections
    #[arg(long, value_name = "N", default_value_t = palisade_serve::Limits::default().connections)]
    pub max_connections: usize,
    /// How long reviews are still served after SIGTERM
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5s")]
    pub shutdown_delay: Duration,
}

/// What a failure policy is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Both.
    All,
    /// `/mutate`.
    Mutate,
    /// `/validate`.
    Validate,
}

/// Serves until SIGTERM or Ctrl-C.
pub fn run(args: &WebhookArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    service::run(terminal, serve(args, terminal))
}

async fn serve(args: &WebhookArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let options = args.options()?;
    let cluster = args.cluster.connect().await.map_err(Failure::input)?;
    let webhook = Webhook::start(options, cluster.client).await.map_err(|error| match error {
        StartError::Configuration { .. } | StartError::Certificate(_) | StartError::Clients { .. } => {
            Failure::input(error)
        }
        StartError::Listen { .. } | StartError::Tls(_) => Failure::incomplete(error),
    })?;
    let mut announced = format!("palisade serves admission reviews on https://{}\n", webhook.address);
    if let Some(address) = webhook.metrics_address {
        let _ = writeln!(announced, "metrics on http://{address}/metrics");
    }
    terminal.report_text(&announced);
    stopped().await;
    webhook.shutdown().await;
    Ok(Exit::Clean)
}

impl WebhookArgs {
    /// The options of the webhook.
    pub fn options(&self) -> Result<Options, Failure> {
        let endpoint = match (&self.url, &self.service) {
            (Some(url), _) => Some(Endpoint::Url(url.clone())),
            (None, service) => service.clone(),
        };
        let host = match &endpoint {
            Some(Endpoint::Url(url)) => Some(host_of(url)?),
            _ => None,
        };
        let policy = |part: Part| {
            let named = self.failure_policy.iter().rev().find(|(of, _)| *of == part || *of == Part::All);
            named.map_or(FailurePolicy::Fail, |(_, policy)| *policy)
        };
        let registration = match &endpoint {
            Some(endpoint) if self.register => Some(Registration {
                name: self.name.clone(),
                endpoint: endpoint.clone(),
                excluded_namespaces: self
                    .exclude_namespace
                    .iter()
                    .filter(|name| !name.is_empty())
                    .cloned()
                    .collect(),
                service_account: self
                    .service_account
                    .as_ref()
                    .map(|(namespace, name)| format!("system:serviceaccount:{namespace}:{name}")),
                mutate: policy(Part::Mutate),
                validate: policy(Part::Validate),
                timeout_seconds: self.timeout_seconds,
            }),
            _ => None,
        };
        let configuration = match (&self.admission_config, &self.admission_config_map) {
            (Some(file), _) => ConfigurationSource::File(file.clone()),
            (None, Some((namespace, name))) => {
                ConfigurationSource::ConfigMap { namespace: namespace.clone(), name: name.clone() }
            }
            (None, None) => ConfigurationSource::default(),
        };
        FeatureGate::refuse_registries(&self.feature_gates)?;
        Ok(Options {
            listen: self.listen,
            metrics_listen: self.metrics_listen,
            namespace: self.namespace.clone(),
            identity: self.identity(),
            emulate: self
                .emulate_kubernetes
                .map(|Emulated(compat)| FeatureGate::apply(&self.feature_gates, compat)),
            gates: FeatureGate::apply(&self.feature_gates, Compat::designs()).gates,
            constraints: self.security_context_constraints,
            fail_fast: self.fail_fast,
            clients: self
                .client_ca
                .as_ref()
                .map(|file| Clients { authorities: file.clone(), names: self.client_name.clone() }),
            configuration,
            read_configuration: |text| Ok(pod_security_configuration(text)?),
            certificate: self.certificate(endpoint.as_ref(), host),
            registration,
            limits: Limits {
                body: self.max_request_bytes,
                connection: palisade_serve::Limits {
                    connections: self.max_connections.max(1),
                    ..Default::default()
                },
                ..Limits::default()
            },
            shutdown_delay: self.shutdown_delay,
        })
    }

    fn certificate(&self, endpoint: Option<&Endpoint>, host: Option<String>) -> CertificateSource {
        if let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) {
            let (certificate, key, authority) = (certificate.clone(), key.clone(), self.ca.clone());
            return CertificateSource::Files { certificate, key, authority };
        }
        let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        if let Some(Endpoint::Service { namespace, name, .. }) = endpoint {
            for suffix in ["", ".svc", ".svc.cluster.local"] {
                names.push(format!("{name}.{namespace}{suffix}"));
            }
        }
        names.extend(host);
        if !self.listen.ip().is_unspecified() {
            names.push(self.listen.ip().to_string());
        }
        names.extend(self.tls_name.iter().cloned());
        names.sort_unstable();
        names.dedup();
        CertificateSource::Managed(Managed {
            secret: self.certificate_secret.clone(),
            authority_validity: self.ca_validity,
            certificate_validity: self.certificate_validity,
            overlap: self.rotation_overlap,
            ..Managed::new(names)
        })
    }

    /// A name that can be part of a Lease's name.
    fn identity(&self) -> String {
        let system = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        let raw = self.identity.clone().filter(|name| !name.is_empty()).unwrap_or_else(system);
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        let name: String = raw.chars().map(plain).take(63).collect();
        match name.trim_matches('-') {
            "" => "webhook".to_owned(),
            name => name.to_owned(),
        }
    }
}

/// The host in a URL that an API server may call: https, and nothing after the path.
fn host_of(url: &str) -> Result<String, Failure> {
    let wrong = || Failure::input(format!("--url {url:?}: write it as https://HOST[:PORT][/PATH]"));
    let rest = url.strip_prefix("https://").ok_or_else(wrong)?;
    let authority = rest.split('/').next().unwrap_or_default();
    if rest.contains(['?', '#', '@']) || authority.is_empty() {
        return Err(wrong());
    }
    if let Some(address) = authority.strip_prefix('[') {
        return address.split_once(']').map(|(address, _)| address.to_owned()).ok_or_else(wrong);
    }
    Ok(authority.split(':').next().unwrap_or_default().to_owned())
}

fn pair(text: &str) -> Result<(String, String), ValueError> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err(ValueError::Form("write it as NAMESPACE/NAME")),
    }
}

fn service_name(text: &str) -> Result<Endpoint, ValueError> {
    let (rest, port) = match text.rsplit_once(':') {
        Some((rest, port)) => {
            let port = port.parse::<u16>().ok().filter(|port| *port > 0);
            (rest, port.ok_or(ValueError::Form("the port must be a number from 1 to 65535"))?)
        }
        None => (text, 443),
    };
    let (namespace, name) = pair(rest)?;
    Ok(Endpoint::Service { namespace, name, port })
}

/// Reads `off`, `warn` or `refuse`.
pub fn fail_fast_mode(text: &str) -> Result<FailFastMode, ValueError> {
    FailFastMode::parse(text).ok_or(ValueError::Form("the mode must be off, warn or refuse"))
}

fn failure_policy(text: &str) -> Result<(Part, FailurePolicy), ValueError> {
    let (part, policy) = match text.split_once('=') {
        Some(("mutate", policy)) => (Part::Mutate, policy),
        Some(("validate", policy)) => (Part::Validate, policy),
        Some((part, _)) => {
            return Err(ValueError::Neither { given: part.to_owned(), expected: ("mutate", "validate") });
        }
        None => (Part::All, text),
    };
    match policy {
        "Fail" => Ok((part, FailurePolicy::Fail)),
        "Ignore" => Ok((part, FailurePolicy::Ignore)),
        _ => Err(ValueError::Form("the failure policy must be Fail or Ignore")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use palisade_webhook::options::{Endpoint, FailurePolicy};

    use super::{Failure, WebhookArgs, host_of, service_name};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: WebhookArgs,
    }

    fn options(line: &str) -> Result<palisade_webhook::Options, Failure> {
        let parsed = Line::try_parse_from(std::iter::once("webhook").chain(line.split_whitespace()));
        parsed.map_err(Failure::input)?.args.options()
    }

    #[test]
    fn registers_a_service_or_a_url() {
        let registered = options("--register --service a/b:8443 --failure-policy mutate=Ignore").unwrap();
        let registration = registered.registration.unwrap();
        assert_eq!(
            (registration.mutate, registration.validate),
            (FailurePolicy::Ignore, FailurePolicy::Fail)
        );
        assert_eq!(registration.excluded_namespaces, ["kube-system"]);
        assert!(options("--url https://h:1").unwrap().registration.is_none());
        for wrong in
            ["--register", "--register --url http://x", "--url https://x --service a/b", "--tls-cert x"]
        {
            assert!(options(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn reads_urls_and_services() {
        assert_eq!(host_of("https://[::1]:8443/x").unwrap(), "::1");
        assert_eq!(host_of("https://web.example:8443").unwrap(), "web.example");
        assert!(host_of("https://user@x").is_err() && host_of("http://x").is_err());
        let service = Endpoint::Service { namespace: "a".into(), name: "b".into(), port: 443 };
        assert_eq!(service_name("a/b"), Ok(service));
        assert!(service_name("a/b:x").is_err() && service_name("b").is_err());
    }
}
