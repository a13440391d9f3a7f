//! `palisade controller`: the controllers of a cluster, on the one process that leads.
//!
//! The controllers themselves are `palisade-controllers`; here their options are read and they are tied to a cluster.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc, time::Duration};

use clap::{ArgAction, Args};
use palisade_controllers::{
    api::Api,
    crds, profile_publisher,
    runner::{Hosted, Options, ROLLOUT, Runner, stopped},
};
use palisade_policy::enforcement::mode::Release;
use palisade_serve::status::{self, Status};
use tokio::sync::watch;

use crate::{
    Exit,
    args::FeatureGate,
    cluster::ClusterArgs,
    service::{self, fail},
    terminal::Terminal,
};

/// The publisher of seccomp profiles from ConfigMaps.
pub const PROFILE_PUBLISHER: &str = "profile-publisher";

/// How the rollout to enforced Pod Security is run, by `controller` and by `up --openshift`.
#[derive(Debug, Clone, Default, Args)]
pub struct RolloutRunArgs {
    /// Release of the rollout: n-1 (introduce), n (evaluate) or n+1 (enforce) [default: n]
    #[arg(long, value_name = "RELEASE")]
    pub release: Option<Release>,
    /// Controllers to run: label-syncer, readiness, config-observer, namespace-ranges, profile-publisher, or none
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub controllers: Option<Vec<String>>,
    /// How often all namespaces are evaluated anew, besides on every change [default: 4h]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub evaluation_interval: Option<Duration>,
}

impl RolloutRunArgs {
    /// Whether one of the options was given.
    #[must_use]
    pub const fn is_given(&self) -> bool {
        self.release.is_some() || self.controllers.is_some() || self.evaluation_interval.is_some()
    }

    /// The options of the runner, or what is wrong with them. `default` is what runs if nobody says.
    pub fn options(&self, gates: &[FeatureGate], default: &[&'static str]) -> Result<Options, String> {
        let known = || ROLLOUT.into_iter().chain([PROFILE_PUBLISHER]);
        let controllers: BTreeSet<&'static str> = match &self.controllers {
            None => default.iter().copied().collect(),
            Some(names) if names.iter().all(|name| name == "none" || name.is_empty()) => BTreeSet::new(),
            Some(names) => names
                .iter()
                .map(|name| {
                    known().find(|known| known == name).ok_or_else(|| {
                        let known: Vec<&str> = known().collect();
                        format!("there is no controller {name:?}: they are {}, or none", known.join(", "))
                    })
                })
                .collect::<Result<_, _>>()?,
        };
        let mut options = Options {
            release: self.release.unwrap_or(Release::Evaluate),
            gate: FeatureGate::enforcement(gates),
            controllers,
            hosted: hosted(profile_publisher::Options::default()),
            ..Options::default()
        };
        if let Some(interval) = self.evaluation_interval {
            options.evaluation_interval = interval;
        }
        Ok(options)
    }
}

/// Controllers that need nothing of the rollout.
fn hosted(publisher: profile_publisher::Options) -> Vec<Hosted> {
    vec![Hosted::new(PROFILE_PUBLISHER, move |client, shutdown| {
        profile_publisher::run(client, publisher, stopped(shutdown))
    })]
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed: Result<jiff::SignedDuration, _> = text.parse();
    let duration = parsed.map_err(|_| "write it as 4h, 30m or 10s".to_owned())?;
    Duration::try_from(duration)
        .ok()
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| "must be longer than nothing".to_owned())
}

/// `palisade controller`
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct ControllerArgs {
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// How the rollout is run.
    #[command(flatten)]
    pub rollout: RolloutRunArgs,
    /// Switches: OpenShiftPodSecurityAdmission=false is the break-glass [default: on in release n+1]
    #[arg(long, value_name = "GATE=BOOL", value_delimiter = ',')]
    pub feature_gates: Vec<FeatureGate>,
    /// How long a published seccomp profile stays that no pod refers to
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1h")]
    pub profile_grace_period: Duration,
    /// Install the kinds of Palisade and, where they are missing, SecurityContextConstraints
    #[arg(long)]
    pub install_crds: bool,
    /// Where to serve /metrics, /healthz and /readyz, over plain HTTP
    #[arg(long, value_name = "ADDRESS")]
    pub metrics_listen: Option<SocketAddr>,
    /// Stand for election, so that of several controllers one works
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = true, hide_possible_values = true)]
    pub leader_elect: bool,
}

const AFTER_HELP: &str = "\
An OpenShift cluster has a label syncer and gives namespaces their ranges by itself:
    palisade controller --controllers=readiness,config-observer,profile-publisher

Exit status: 0 told to stop, 2 wrong usage, 3 could not start.";

struct Reported(Arc<Runner>);

impl Status for Reported {
    fn metrics(&self) -> String {
        self.0.metrics()
    }

    fn waits_for(&self) -> Option<String> {
        (!self.0.is_ready()).then(|| "the watches have not synced".to_owned())
    }
}

/// Runs until interrupted.
#[must_use]
pub fn run(args: &ControllerArgs, terminal: &Terminal) -> Exit {
    let defaults: Vec<&'static str> = ROLLOUT.into_iter().chain([PROFILE_PUBLISHER]).collect();
    match args.rollout.options(&args.feature_gates, &defaults) {
        Ok(mut options) => {
            options.hosted = hosted(profile_publisher::Options {
                grace_period: args.profile_grace_period,
                ..profile_publisher::Options::default()
            });
            service::run(terminal, control(args, options, terminal))
        }
        Err(why) => fail(terminal, &why, Exit::Input),
    }
}

async fn control(args: &ControllerArgs, mut options: Options, terminal: &Terminal) -> Exit {
    let client = match args.cluster.connect().await {
        Ok(client) => client,
        Err(why) => return fail(terminal, &why, Exit::Incomplete),
    };
    if args.install_crds
        && let Err(error) = crds::install(&Api::new(client.clone())).await
    {
        return fail(terminal, &format!("the kinds cannot be installed: {error}"), Exit::Incomplete);
    }
    if args.leader_elect {
        options.identity = Some(identity());
    }
    let names: Vec<&str> = options.controllers.iter().copied().collect();
    let gate = options.gate.unwrap_or_else(|| options.release.gate_default());
    let started = format!(
        "running {} in release {}, OpenShiftPodSecurityAdmission={gate}",
        if names.is_empty() { "no controllers".to_owned() } else { names.join(", ") },
        options.release
    );
    let runner = Runner::new(client, options);
    if let Some(address) = args.metrics_listen {
        match status::listen(address, Arc::new(Reported(Arc::clone(&runner)))).await {
            Ok((address, _)) => terminal.say(format!("metrics on http://{address}/metrics")),
            Err(error) => {
                return fail(terminal, &format!("cannot listen on {address}: {error}"), Exit::Incomplete);
            }
        }
    }
    terminal.say(started);
    let (stop, shutdown) = watch::channel(false);
    let running = tokio::spawn(runner.run(shutdown));
    service::stopped().await;
    // Nobody listening any more means that everything has ended already.
    let _ = stop.send(true);
    let _ = running.await;
    Exit::Clean
}

/// What tells this process from others that stand for election.
fn identity() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}_{}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::{FeatureGate, Release, RolloutRunArgs, duration};

    #[test]
    fn controllers_are_chosen_by_name() {
        let chosen = |names: Option<&[&str]>| {
            let controllers = names.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
            let args = RolloutRunArgs { controllers, ..RolloutRunArgs::default() };
            args.options(&[], &["readiness"])
                .map(|options| options.controllers.into_iter().collect::<Vec<_>>())
        };
        assert_eq!(chosen(None).unwrap(), ["readiness"]);
        assert_eq!(chosen(Some(&["none"])).unwrap(), [""; 0]);
        assert_eq!(
            chosen(Some(&["label-syncer", "profile-publisher"])).unwrap(),
            ["label-syncer", "profile-publisher"]
        );
        assert!(chosen(Some(&["syncer"])).unwrap_err().contains("label-syncer, readiness"));
    }

    #[test]
    fn the_gate_is_the_releases_unless_someone_says() {
        let options = |gates: &[FeatureGate]| RolloutRunArgs::default().options(gates, &[]).unwrap();
        assert_eq!((options(&[]).gate, options(&[]).release), (None, Release::Evaluate));
        let off = [FeatureGate::OpenShiftPodSecurityAdmission(false)];
        assert_eq!(options(&off).gate, Some(false));
    }

    #[test]
    fn durations_are_positive() {
        assert_eq!(duration("4h").unwrap().as_secs(), 14400);
        assert!(duration("0s").is_err() && duration("-1h").is_err() && duration("soon").is_err());
    }
}
