//! `palisade install`: everything a cluster needs, as manifests on stdout.

use std::{collections::BTreeSet, io::Write as _};

use clap::{Args, ValueEnum};
use palisade_base::version::{NEWEST_MINOR, OLDEST_MINOR};
use serde_json::Value;

use crate::{
    Exit,
    args::ApiVersion,
    install::{
        Parts, default_values, manifests,
        template::{COORDINATION, Choices},
    },
    service::fail,
    terminal::Terminal,
};

/// The oldest release that is installed on.
const OLDEST_CLUSTER: u16 = 24;

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
    /// What to install: crds, webhook, controller, node, constraints [default: the first four]
    #[arg(long, value_name = "NAME", value_enum, value_delimiter = ',', hide_possible_values = true)]
    pub components: Vec<Component>,
    /// Security context constraints and the rollout to enforced Pod Security as well
    #[arg(long)]
    pub rollout: bool,
    /// Oldest API server that must understand the manifests: v1.24 to v1.37 [default: v1.24]
    #[arg(long, value_name = "VERSION")]
    pub kubernetes_version: Option<ApiVersion>,
}

const AFTER_HELP: &str = "\
    palisade install | kubectl apply -f -

With --rollout, kinds must be there before objects of them:
    palisade install --rollout --components crds | kubectl apply -f -
    palisade install --rollout --components constraints,webhook,controller,node | kubectl apply -f -";

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
    /// What was chosen, or what is wrong with it.
    pub fn choices(&self) -> Result<(Choices, Parts), String> {
        let ApiVersion(compat) = self
            .kubernetes_version
            .unwrap_or(ApiVersion(palisade_model::compat::Compat::kubernetes(OLDEST_CLUSTER)));
        let minor = compat.api_minor();
        if compat.is_designs() || minor < OLDEST_CLUSTER {
            return Err(format!(
                "--kubernetes-version: Palisade is installed on v1.{OLDEST_CLUSTER} to v1.{NEWEST_MINOR} (it judges for v1.{OLDEST_MINOR} and later)"
            ));
        }
        if !is_label(&self.namespace) {
            return Err(format!("--namespace {:?} is not the name of a namespace", self.namespace));
        }
        if self.rollout && self.namespace != COORDINATION {
            return Err(format!(
                "--rollout needs the namespace {COORDINATION}: leases and configuration are there"
            ));
        }
        let image = self.image.clone().unwrap_or_else(|| format!("palisade:{}", env!("CARGO_PKG_VERSION")));
        let usable = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/:@".contains(&byte);
        if image.is_empty() || !image.bytes().all(usable) {
            return Err(format!("--image {image:?} is not the name of an image"));
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
pub fn run(args: &InstallArgs, terminal: &mut Terminal) -> Exit {
    match args.choices() {
        Ok((choices, parts)) => match terminal.out.write_all(manifests(&choices, parts).as_bytes()) {
            Ok(()) => Exit::Clean,
            Err(error) => terminal.cannot_write(&error),
        },
        Err(why) => fail(terminal, &why, Exit::Input),
    }
}
