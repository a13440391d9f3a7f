//! What stands in the way of enforcement, in full.
//!
//! The status names the worst hundred namespaces; this names every one, its cause and the command that would label it.
//! Since when it violates comes from the status and from the ledger beside it.

use std::collections::{BTreeMap, BTreeSet};

use palisade_policy::{
    enforcement::{
        classify::Class,
        level::LevelSource,
        violations::{Entry, State, merge},
    },
    scc::built_in,
    standards::level::Level,
};
use serde_json::Value;

use super::{ledger::Ledger, plan::read_list};
use crate::cluster::{Blocker, Cluster, NamespaceRecord, Undecided};

/// What is known of a namespace.
#[derive(Debug, Clone)]
pub struct NamespaceReport {
    /// The name.
    pub name: String,
    /// The level it would be held to; `None` if its owner decided.
    pub level: Option<Level>,
    /// The level that its enforce label sets now.
    pub own_level: Level,
    /// The strictest level that all that is in it complies with; `None` if not all of it can be judged.
    pub complies: Option<Level>,
    /// Why it would violate; `None` if it would not.
    pub class: Option<Class>,
    /// Why it is not known whether it would violate; `None` if that is known.
    pub undecided: Option<&'static str>,
    /// What in it cannot be judged.
    pub doubts: Vec<Undecided>,
    /// The level that its service accounts need, which is what the label syncer would set.
    pub needed: Option<Level>,
    /// Where its level comes from.
    pub levels: LevelSource,
    /// Workloads that keep the level from being stricter, such as `Deployment/web`, where a label follows from them.
    pub needing: Vec<String>,
    /// Constraints that keep the level from being stricter, with the fields in them that do.
    pub because: Vec<(String, Vec<&'static str>)>,
    /// What would be refused.
    pub blockers: Vec<Blocker>,
    /// Since when it would violate, if that is known.
    pub since: Option<String>,
    /// Since when it would no longer violate, if it would have before.
    pub resolved: Option<String>,
}

impl NamespaceReport {
    fn of(namespace: &NamespaceRecord) -> Self {
        let undecided = namespace.undecided();
        let doubts = if namespace.is_terminating() { Vec::new() } else { namespace.doubts() };
        let complies = (undecided.is_none() && doubts.is_empty()).then(|| {
            [Level::Restricted, Level::Baseline]
                .into_iter()
                .find(|&level| namespace.violating(level) == 0)
                .unwrap_or(Level::Privileged)
        });
        let because = namespace.level().because.iter().map(|(constraint, causes)| {
            (constraint.clone(), causes.iter().map(|cause| cause.field).collect())
        });
        Self {
            name: namespace.name().to_owned(),
            level: namespace.level_to_test(),
            own_level: namespace.enforced(),
            complies,
            class: namespace.class(),
            undecided,
            doubts,
            needed: namespace.needed(),
            levels: namespace.levels(),
            needing: if namespace.needed().is_some() {
                namespace.needing().map(str::to_owned).collect()
            } else {
                Vec::new()
            },
            because: because.collect(),
            blockers: namespace.blockers(),
            since: None,
            resolved: None,
        }
    }

    /// The command that would let what runs go on running. What cannot be judged may need anything.
    #[must_use]
    pub fn label_command(&self) -> String {
        format!(
            "kubectl label --overwrite namespace {} pod-security.kubernetes.io/enforce={}",
            self.name,
            self.complies.unwrap_or(Level::Privileged)
        )
    }
}

impl NamespaceReport {
    /// Whether everything in it was judged, and nothing of it would be refused.
    #[must_use]
    pub const fn is_compliant(&self) -> bool {
        self.class.is_none() && self.undecided.is_none() && self.doubts.is_empty()
    }

    /// The commands that would each fix it, the best first; the last is [`Self::label_command`]. None if nothing is wrong, or
    /// if a label would change nothing: pods that are rejected now are rejected for another reason.
    #[must_use]
    pub fn commands(&self) -> Vec<String> {
        let mut commands = Vec::new();
        match self.class {
            None => return commands,
            Some(_) if self.blockers.iter().all(|blocker| blocker.rejection.is_some()) => return commands,
            // What the user may use, the service account may then use as well, and the label follows.
            Some(Class::UserScc) => {
                let grants: Option<BTreeSet<(&str, &str)>> = self.blockers.iter().map(grant).collect();
                commands.extend(
                    grants
                        .into_iter()
                        .flatten()
                        .map(|(constraint, account)| self.grant_command(constraint, account)),
                );
            }
            // Only where the syncer would choose a level that all comply with.
            Some(Class::DisabledSyncer)
                if self.needed.zip(self.complies).is_some_and(|(needed, complies)| needed <= complies) =>
            {
                let label = "security.openshift.io/scc.podSecurityLabelSync=true";
                commands.push(format!("kubectl label --overwrite namespace {} {label}", self.name));
            }
            Some(_) => {}
        }
        commands.push(self.label_command());
        commands
    }

    fn grant_command(&self, constraint: &str, account: &str) -> String {
        let namespace = &self.name;
        let binding = format!("kubectl create rolebinding {constraint}-{account} --namespace={namespace}");
        let subject = format!("--serviceaccount={namespace}:{account}");
        if built_in::is_built_in(constraint) {
            return format!("{binding} --clusterrole={} {subject}", built_in::cluster_role(constraint));
        }
        format!(
            "kubectl create role use-{constraint} --namespace={namespace} --verb=use \
             --resource=securitycontextconstraints.security.openshift.io --resource-name={constraint} && \
             {binding} --role=use-{constraint} {subject}"
        )
    }
}

/// The constraint that a service account would have to be granted for a blocker; `None` if that would not help.
fn grant(blocker: &Blocker) -> Option<(&str, &str)> {
    // Those that everyone may use it has already: what is wrong is nothing that a constraint covers.
    let constraint = blocker.constraint.as_deref().filter(|name| !built_in::FOR_EVERYONE.contains(name))?;
    blocker.is_by_user.then_some((constraint, blocker.service_account.as_str()))
}

/// All namespaces, by name, with their entries in the status of a `PSAEnforcementConfig` and the ledger beside it.
#[must_use]
pub fn report_with_times(cluster: &Cluster, config: &Value, ledger: &Ledger) -> Vec<NamespaceReport> {
    let listed = read_list::<Entry>(&config["status"]["violatingNamespaces"]);
    let known = merge(ledger.entries().chain(listed));
    let known: BTreeMap<&str, &Entry> = known.iter().map(|entry| (entry.name.as_str(), entry)).collect();
    report(cluster)
        .map(|namespace| {
            let entry = known.get(namespace.name.as_str());
            // What was written may be older than what is seen here.
            let at = |state: State, holds: bool| {
                let entry = entry.filter(|entry| holds && entry.state == Some(state))?;
                entry.last_transition_time.clone()
            };
            let violates = namespace.class.is_some();
            let (since, resolved) = (at(State::Current, violates), at(State::Previous, !violates));
            NamespaceReport { since, resolved, ..namespace }
        })
        .collect()
}

/// All namespaces, by name.
pub fn report(cluster: &Cluster) -> impl Iterator<Item = NamespaceReport> {
    cluster.namespaces().map(NamespaceReport::of)
}
