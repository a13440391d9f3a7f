//! `palisade install`: everything a cluster needs, as manifests on stdout.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use clap::{ArgAction, Args, ValueEnum};
use palisade_base::version::NEWEST_MINOR;
use palisade_model::compat::Compat;
use palisade_policy::scc::mode::ConstraintMode;
use serde_json::{Value, json};

use crate::{
    args::{ApiVersion, FeatureGate},
    cluster::ClusterArgs,
    failure::{Exit, Failure},
    install::{
        Parts, default_values, manifests,
        template::{COORDINATION, Choices},
    },
    service,
    terminal::Terminal,
};

/// The oldest release that is installed on.
const OLDEST_CLUSTER: u16 = 24;

/// How long the current cluster may take to report its release, if no option is about it.
const REPORTS_WITHIN: Duration = Duration::from_secs(5);

/// `palisade install`
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct InstallArgs {
    /// Namespace to install into
    #[arg(long, short, value_name = "NAMESPACE", default_value = COORDINATION)]
    pub namespace: String,
    /// Image of all components [default: palisade with this version]
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// Components: crds, webhook, controller, node, constraints [default: the first four]
    #[arg(long, value_name = "NAME", value_enum, value_delimiter = ',', hide_possible_values = true)]
    pub components: Vec<Component>,
    /// Add the rollout to enforced Pod Security
    #[arg(long)]
    pub rollout: bool,
    /// Let the rollout count what SecurityExceptions accept as compliant: only where nothing but the webhook enforces Pod Security
    #[arg(long, requires = "rollout")]
    pub count_exceptions: bool,
    /// Write OpenReports or PolicyReports, whichever the cluster has, and count their findings in metrics
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = true, hide_possible_values = true)]
    pub reports: bool,
    /// Add PodMonitors, alerts (PrometheusRule) and a Grafana dashboard, for the Prometheus operator
    #[arg(long)]
    pub monitoring: bool,
    /// Feature gates: SeccompConfigMaps=true, AppArmor=false; OpenShiftPodSecurityAdmission is the controller's
    #[arg(long, value_name = "GATE=BOOL", value_delimiter = ',')]
    pub feature_gates: Vec<FeatureGate>,
    /// Security context constraints: off, audit (report what they would do) or enforce
    #[arg(long, value_name = "MODE", default_value_t = ConstraintMode::Off)]
    pub security_context_constraints: ConstraintMode,
    /// Let the webhook try the pods of written workloads: off, warn or refuse; off can be changed by a label of a namespace
    #[arg(long, value_name = "MODE", value_parser = ["off", "warn", "refuse"], hide_possible_values = true)]
    pub fail_fast: Option<String>,
    /// Address range of the API servers; adds a NetworkPolicy that admits only it to the webhook; may be repeated
    #[arg(long, value_name = "CIDR")]
    pub api_server_cidr: Vec<String>,
    /// Oldest release of the API server to support: v1.24 to v1.37 [default: that of the current cluster, v1.24 if there is none]
    #[arg(long, value_name = "VERSION", conflicts_with_all = ["cluster", "kubeconfig", "context"])]
    pub kubernetes_version: Option<ApiVersion>,
    /// Fail if the API server does not report its release; --kubeconfig and --context imply it
    #[arg(long)]
    pub cluster: bool,
    /// Which cluster.
    #[command(flatten)]
    pub connection: ClusterArgs,
}

const AFTER_HELP: &str = "\
    palisade install | kubectl apply -f -

With --security-context-constraints, apply the CRDs before the objects of their kinds:
    palisade install --security-context-constraints=audit --components crds | kubectl apply -f -
    palisade install --security-context-constraints=audit --components constraints,webhook,controller,node | kubectl apply -f -";

/// A part of an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Component {
    /// The kinds.
    Crds,
    /// The admission webhook.
    Webhook,
    /// The controllers.
    Controller,
    /// The agent on every node.
    Node,
    /// OpenShift's built-in constraints, for clusters that are none.
    Constraints,
}

impl InstallArgs {
    /// Whose API server must understand the manifests.
    fn compat(&self, terminal: &Terminal) -> Result<Compat, Failure> {
        if let Some(ApiVersion(compat)) = self.kubernetes_version {
            return Ok(compat);
        }
        if self.cluster || self.connection.kubeconfig.is_some() || self.connection.context.is_some() {
            return service::block_on(async { Ok(self.connection.connect().await?.compat().await?) });
        }
        let requested = service::block_on(async {
            let reported = async { Ok::<_, Failure>(self.connection.connect().await?.compat().await?) };
            match tokio::time::timeout(REPORTS_WITHIN, reported).await {
                Ok(reported) => reported,
                Err(_) => Err(Failure::incomplete("the API server does not respond".to_owned())),
            }
        });
        let why = match requested {
            // palisade up with its extensions reports no release.
            Ok(compat) if compat.is_designs() => "the API server reports no release of Kubernetes".to_owned(),
            Ok(compat) => return Ok(compat),
            Err(failure) => failure.to_string(),
        };
        terminal.report(format!(
            "the manifests are for v1.{OLDEST_CLUSTER}, without the policy that restricts each node agent to its node: {why}. \
             Set --kubernetes-version"
        ));
        Ok(Compat::kubernetes(OLDEST_CLUSTER))
    }

    /// What was chosen, or what is wrong with it.
    pub fn choices(&self, compat: Compat) -> Result<(Choices, Parts), Failure> {
        let minor = compat.api_minor();
        if compat.is_designs() || minor < OLDEST_CLUSTER {
            return Err(Failure::input(format!(
                "--kubernetes-version: Palisade runs on v1.{OLDEST_CLUSTER} to v1.{NEWEST_MINOR}"
            )));
        }
        if !is_label(&self.namespace) {
            let message = format!("--namespace {:?} is not a valid name of a namespace", self.namespace);
            return Err(Failure::input(message));
        }
        if self.rollout && self.namespace != COORDINATION {
            return Err(Failure::input(format!(
                "--rollout requires the namespace {COORDINATION}, where its leases and its configuration are"
            )));
        }
        let image = self.image.clone().unwrap_or_else(|| format!("palisade:{}", env!("CARGO_PKG_VERSION")));
        let usable = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/:@".contains(&byte);
        if image.is_empty() || !image.bytes().all(usable) {
            return Err(Failure::input(format!("--image {image:?} is not a valid name of an image")));
        }
        let chosen: BTreeSet<Component> = if self.components.is_empty() {
            [Component::Crds, Component::Webhook, Component::Controller, Component::Node].into()
        } else {
            self.components.iter().copied().collect()
        };
        let mut values = default_values();
        for (name, component) in [
            ("webhook", Component::Webhook),
            ("controller", Component::Controller),
            ("node", Component::Node),
        ] {
            values[name]["enabled"] = Value::Bool(chosen.contains(&component));
        }
        values["namespace"]["create"] = Value::Bool(true);
        values["rollout"]["enabled"] = Value::Bool(self.rollout);
        values["rollout"]["countExceptions"] = Value::Bool(self.count_exceptions);
        values["reports"]["enabled"] = Value::Bool(self.reports);
        values["monitoring"]["enabled"] = Value::Bool(self.monitoring);
        if let Some(mode) = &self.fail_fast {
            values["webhook"]["failFast"] = mode.as_str().into();
        }
        let is_range = |range: &String| {
            let parts = range.split_once('/');
            parts.is_some_and(|(address, bits)| {
                address.parse::<IpAddr>().is_ok() && bits.parse::<u8>().is_ok_and(|bits| bits <= 128)
            })
        };
        if let Some(range) = self.api_server_cidr.iter().find(|range| !is_range(range)) {
            return Err(Failure::input(format!(
                "--api-server-cidr {range:?} is not an address range such as 10.0.0.0/24"
            )));
        }
        let ranges = self.api_server_cidr.iter().map(|range| json!({"ipBlock": {"cidr": range}}));
        values["webhook"]["networkPolicy"]["from"] = ranges.collect();
        FeatureGate::refuse_registries(&self.feature_gates)?;
        for gate in &self.feature_gates {
            match *gate {
                FeatureGate::SecurityProfileOciArtifact(_) => {}
                FeatureGate::SeccompConfigMaps(on) => values["featureGates"]["SeccompConfigMaps"] = on.into(),
                FeatureGate::AppArmor(on) => values["featureGates"]["AppArmor"] = on.into(),
                FeatureGate::OpenShiftPodSecurityAdmission(on) => {
                    // Unset, its default depends on the release, so it is no value of the chart.
                    values["controller"]["extraArgs"] =
                        json!([format!("--feature-gates=OpenShiftPodSecurityAdmission={on}")]);
                }
            }
        }
        let constraints = self.security_context_constraints;
        values["constraints"]["enabled"] = Value::Bool(constraints != ConstraintMode::Off);
        values["constraints"]["mode"] = Value::from(constraints.as_str());
        let workloads = [Component::Webhook, Component::Controller, Component::Node];
        let parts = Parts {
            crds: chosen.contains(&Component::Crds),
            components: workloads.iter().any(|component| chosen.contains(component)),
            constraints: chosen.contains(&Component::Constraints),
        };
        Ok((Choices { values, namespace: self.namespace.clone(), image, minor }, parts))
    }
}

fn is_label(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len())
        && name.bytes().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// Prints the manifests.
pub fn run(args: &InstallArgs, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let (choices, parts) = args.choices(args.compat(terminal)?)?;
    terminal.print(manifests(&choices, parts))?;
    Ok(Exit::Clean)
}
