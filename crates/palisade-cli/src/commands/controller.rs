//! `palisade controller`: the controllers of a cluster, on the one process that leads.
//!
//! The controllers themselves are `palisade-controllers`; here their options are read and they are tied to a cluster.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc, time::Duration};

use clap::{ArgAction, Args};
use palisade_controllers::{
    api::Api,
    crds, guards, profile_publisher, recordings, reports,
    runner::{Hosted, Options, ROLLOUT, Runner, stopped},
};
use palisade_policy::{
    enforcement::{level::LevelSource, mode::Release, platform::Platform},
    scc::mode::ConstraintMode,
};
use palisade_serve::status::Status;
use tokio::sync::watch;

use crate::{
    args::{FeatureGate, positive_duration},
    cluster::ClusterArgs,
    failure::{Exit, Failure},
    service,
    terminal::Terminal,
};

/// The publisher of seccomp profiles from ConfigMaps.
pub const PROFILE_PUBLISHER: &str = "profile-publisher";

/// Options of the rollout to enforced Pod Security, for `controller` and `up`.
#[derive(Debug, Clone, Default, Args)]
pub struct RolloutRunArgs {
    /// Release of the rollout: n-1 (introduce), n (evaluate) or n+1 (enforce) [default: n]
    #[arg(long, value_name = "RELEASE")]
    pub release: Option<Release>,
    /// Controllers to run: label-syncer, readiness, config-observer, namespace-ranges, rejected-pods, profile-publisher, reports, or none. `up`
    /// also runs those of workloads, such as deployment-controller and job-controller: `*` for all, `-name` for all but one
    #[arg(long, value_name = "NAME", value_delimiter = ',', allow_hyphen_values = true)]
    pub controllers: Option<Vec<String>>,
    /// How often all namespaces are evaluated again, in addition to every change [default: 4h]
    #[arg(long, value_name = "DURATION", value_parser = positive_duration)]
    pub evaluation_interval: Option<Duration>,
}

fn known() -> impl Iterator<Item = &'static str> {
    ROLLOUT.into_iter().chain([PROFILE_PUBLISHER, guards::NAME, recordings::NAME, reports::apply::NAME])
}

impl RolloutRunArgs {
    /// Whether one of the options was given.
    #[must_use]
    pub const fn is_given(&self) -> bool {
        self.release.is_some() || self.controllers.is_some() || self.evaluation_interval.is_some()
    }

    /// The options of the runner. `default` is what runs without `--controllers`.
    pub fn options(&self, gates: &[FeatureGate], default: &[&'static str]) -> Result<Options, Failure> {
        let controllers: BTreeSet<&'static str> = match &self.controllers {
            None => default.iter().copied().collect(),
            Some(names) if names.iter().all(|name| name == "none" || name.is_empty()) => BTreeSet::new(),
            Some(names) => names
                .iter()
                .map(|name| {
                    known().find(|known| known == name).ok_or_else(|| {
                        let known: Vec<&str> = known().collect();
                        let known = known.join(", ");
                        Failure::input(format!(
                            "unknown controller {name:?}: controllers are {known}, or none"
                        ))
                    })
                })
                .collect::<Result<_, _>>()?,
        };
        let mut options = Options {
            release: self.release.unwrap_or(Release::Evaluate),
            gate: FeatureGate::enforcement(gates),
            controllers,
            leave_to_openshift: self.controllers.is_none(),
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
    vec![
        Hosted::new(PROFILE_PUBLISHER, move |client, shutdown| {
            profile_publisher::run(client, publisher, stopped(shutdown))
        }),
        Hosted::new(guards::NAME, |client, shutdown| guards::run(client, stopped(shutdown))),
        Hosted::new(recordings::NAME, |client, shutdown| recordings::run(client, stopped(shutdown))),
    ]
}

/// `palisade controller`
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct ControllerArgs {
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Options of the rollout.
    #[command(flatten)]
    pub rollout: RolloutRunArgs,
    /// Feature gates: OpenShiftPodSecurityAdmission=false is the break-glass [default: true in release n+1]
    #[arg(long, value_name = "GATE=BOOL", value_delimiter = ',')]
    pub feature_gates: Vec<FeatureGate>,
    /// Security context constraints, as in the webhook: off, audit or enforce. With enforce, the level of a namespace comes from
    /// the constraints that its service accounts may use, otherwise from what its workloads need
    #[arg(long, value_name = "MODE", default_value_t = ConstraintMode::Off)]
    pub security_context_constraints: ConstraintMode,
    /// Count what SecurityExceptions accept as compliant in the rollout. Only for clusters where nothing but the webhook enforces Pod
    /// Security: the plugin that is built into kube-apiserver rejects what an exception accepts
    #[arg(long)]
    pub count_exceptions: bool,
    /// Platform: kubernetes or openshift [default: detected]
    #[arg(long, value_name = "PLATFORM")]
    pub platform: Option<Platform>,
    /// How long a published seccomp profile is kept after the last pod that refers to it
    #[arg(long, value_name = "DURATION", value_parser = positive_duration, default_value = "1h")]
    pub profile_grace_period: Duration,
    /// Write what the standards find in each namespace into OpenReports or PolicyReports, whichever the cluster has, and into metrics
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = true, hide_possible_values = true)]
    pub reports: bool,
    /// Install the CRDs of Palisade and, if constraints are not off and it is missing, the CRD of SecurityContextConstraints
    #[arg(long)]
    pub install_crds: bool,
    /// Address for /metrics, /healthz and /readyz, over plain HTTP
    #[arg(long, value_name = "ADDRESS")]
    pub metrics_listen: Option<SocketAddr>,
    /// Elect a leader, so that one of several replicas is active
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = true, hide_possible_values = true)]
    pub leader_elect: bool,
}

const AFTER_HELP: &str = "\
On OpenShift, which has its own label syncer and its own controller for namespace ranges, those two do not run unless
--controllers names them, levels come from constraints, and the condition Progressing names the component that is waited for.

Exit status: 0 stopped by a signal, 2 wrong usage, 3 could not start.";

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
pub fn run(args: &ControllerArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let defaults: Vec<&'static str> = known().collect();
    let mut options = args.rollout.options(&args.feature_gates, &defaults)?;
    if !args.reports {
        options.controllers.remove(reports::apply::NAME);
    }
    options.platform = args.platform;
    options.count_exceptions = args.count_exceptions;
    options.levels = match args.security_context_constraints {
        ConstraintMode::Off | ConstraintMode::Audit => LevelSource::Workloads,
        ConstraintMode::Enforce => LevelSource::Constraints,
    };
    options.hosted = hosted(profile_publisher::Options {
        grace_period: args.profile_grace_period,
        ..profile_publisher::Options::default()
    });
    service::run(terminal, control(args, options, terminal))
}

async fn control(args: &ControllerArgs, mut options: Options, terminal: &Terminal) -> Result<Exit, Failure> {
    let cluster = args.cluster.connect().await?;
    if args.install_crds {
        let constraints = args.security_context_constraints != ConstraintMode::Off;
        let installed = crds::install(&Api::new(cluster.client.clone()), constraints).await;
        installed.map_err(|error| {
            Failure::incomplete(format!("cannot install the CRDs: {}", cluster.error(error)))
        })?;
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
    let runner = Runner::new(cluster.client, options);
    if let Some(address) = args.metrics_listen {
        service::serve_status(address, Arc::new(Reported(Arc::clone(&runner))), terminal).await?;
    }
    terminal.report(started);
    let (stop, shutdown) = watch::channel(false);
    let running = tokio::spawn(runner.run(shutdown));
    service::stopped().await;
    // A closed channel means that the runner has ended already.
    let _ = stop.send(true);
    let _ = running.await;
    Ok(Exit::Clean)
}

/// The identity of this process in the election.
fn identity() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}_{}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::{FeatureGate, Release, RolloutRunArgs};

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
        assert!(chosen(Some(&["syncer"])).unwrap_err().to_string().contains("label-syncer, readiness"));
    }

    #[test]
    fn the_gate_has_the_default_of_the_release_unless_it_is_set() {
        let options = |gates: &[FeatureGate]| RolloutRunArgs::default().options(gates, &[]).unwrap();
        assert_eq!((options(&[]).gate, options(&[]).release), (None, Release::Evaluate));
        let off = [FeatureGate::OpenShiftPodSecurityAdmission(false)];
        assert_eq!(options(&off).gate, Some(false));
    }
}
