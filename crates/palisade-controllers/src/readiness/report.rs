//! What stands in the way, in full: for people who ask.
//!
//! The status names the worst hundred namespaces; this names every one, its cause and the command that would label it.

use std::collections::BTreeMap;

use palisade_policy::{enforcement::classify::Class, standards::level::Level};
use serde_json::Value;

use crate::cluster::{Blocker, Cluster, NamespaceRecord};

/// What is known of a namespace.
#[derive(Debug, Clone)]
pub struct NamespaceReport {
    /// The name.
    pub name: String,
    /// The level it would be held to; `None` if its owner decided.
    pub level: Option<Level>,
    /// The strictest level that all that is in it complies with.
    pub complies: Level,
    /// Why it would suffer; `None` if it would not.
    pub class: Option<Class>,
    /// Constraints that keep the level from being stricter, with the fields in them that do.
    pub because: Vec<(String, Vec<&'static str>)>,
    /// What would be refused.
    pub blockers: Vec<Blocker>,
    /// Since when it would suffer, if the status says so.
    pub since: Option<String>,
}

impl NamespaceReport {
    fn of(namespace: &NamespaceRecord) -> Self {
        let complies = [Level::Restricted, Level::Baseline]
            .into_iter()
            .find(|&level| namespace.violating(level) == 0)
            .unwrap_or(Level::Privileged);
        let because = namespace.level().because.iter().map(|(constraint, causes)| {
            (constraint.clone(), causes.iter().map(|cause| cause.field).collect())
        });
        Self {
            name: namespace.name().to_owned(),
            level: namespace.level_to_test(),
            complies,
            class: namespace.class(),
            because: because.collect(),
            blockers: namespace.blockers(),
            since: None,
        }
    }

    /// The command that would let what runs go on running.
    #[must_use]
    pub fn label_command(&self) -> String {
        format!(
            "kubectl label --overwrite namespace {} pod-security.kubernetes.io/enforce={}",
            self.name, self.complies
        )
    }
}

/// All namespaces, by name, with what the status of a `PSAEnforcementConfig` knows of them.
#[must_use]
pub fn report_with_times(cluster: &Cluster, config: &Value) -> Vec<NamespaceReport> {
    let entries = config["status"]["violatingNamespaces"].as_array();
    let since: BTreeMap<&str, &str> = entries
        .into_iter()
        .flatten()
        .filter(|entry| entry["state"] == "Current")
        .filter_map(|entry| Some((entry["name"].as_str()?, entry["lastTransitionTime"].as_str()?)))
        .collect();
    report(cluster)
        .map(|namespace| {
            let known = since.get(namespace.name.as_str()).filter(|_| namespace.class.is_some());
            NamespaceReport { since: known.map(|time| (*time).to_owned()), ..namespace }
        })
        .collect()
}

/// All namespaces, by name.
pub fn report(cluster: &Cluster) -> impl Iterator<Item = NamespaceReport> {
    cluster.namespaces().map(NamespaceReport::of)
}
