//! What verdicts depend on: namespaces, policies, exceptions, constraints, ConfigMaps.
//!
//! Everything but ConfigMaps comes from watches. While a watch has not seen everything yet, and for a namespace it does not
//! know, is read from the API server; if it does not answer in time, that is the answer.

mod constraints;
mod exceptions;
mod namespaces;
mod policies;
mod profiles;
mod reading;
mod watch;

use std::{sync::Arc, time::Duration};

use kube::Client;
use palisade_admission::profile_policies::StoredPolicy;
use palisade_model::metadata::ObjectMeta;
use palisade_policy::{exceptions::set::ExceptionSet, scc::mode::ConstraintMode};
use tokio::{task::JoinSet, time::Instant};

pub use constraints::ConstraintFacts;
use constraints::ConstraintWatch;
use exceptions::Exceptions;
use namespaces::Namespaces;
use policies::Policies;
use profiles::ProfileReader;
pub use reading::LookupError;
use reading::Reader;
pub(crate) use watch::{Change, Keep, Status, follow_in};

/// What is known of the cluster.
#[derive(Debug)]
pub struct ClusterFacts {
    reader: Reader,
    namespaces: Arc<Namespaces>,
    policies: Arc<Policies>,
    exceptions: Arc<Exceptions>,
    constraints: Option<Arc<ConstraintWatch>>,
    /// Whether constraints are in force, or only report.
    pub(crate) constraint_mode: ConstraintMode,
    /// Profiles in ConfigMaps.
    pub(crate) profiles: ProfileReader,
}

impl ClusterFacts {
    /// Nothing known yet.
    #[must_use]
    pub fn new(client: Client, constraints: ConstraintMode) -> Self {
        let reader = Reader::new(client);
        Self {
            namespaces: Arc::new(Namespaces::default()),
            policies: Arc::new(Policies::default()),
            exceptions: Arc::new(Exceptions::default()),
            constraints: (constraints != ConstraintMode::Off).then(Arc::default),
            constraint_mode: constraints,
            profiles: ProfileReader::new(reader.clone()),
            reader,
        }
    }

    /// Starts watching.
    pub fn watch(&self, tasks: &mut JoinSet<()>) {
        let client = self.reader.client();
        tasks.spawn(watch::follow(client.clone(), namespaces::resource(), self.namespaces.clone()));
        tasks.spawn(watch::follow(client.clone(), policies::resource(), self.policies.clone()));
        tasks.spawn(watch::follow(client.clone(), exceptions::resource(), self.exceptions.clone()));
        if let Some(constraints) = &self.constraints {
            constraints.watch(client, tasks);
        }
    }

    /// Whether every watch has seen everything there is. Namespaces are what upstream waits for; the rest must be known
    /// before anything that depends on it can be let through.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.waits_for().is_none()
    }

    /// The first thing that is not known yet.
    #[must_use]
    pub fn waits_for(&self) -> Option<&'static str> {
        if !self.namespaces.status.is_ready() {
            return Some("namespaces");
        }
        if !self.policies.status.is_ready() {
            return Some("profilepolicies");
        }
        if !self.exceptions.status.is_ready() {
            return Some("securityexceptions");
        }
        // Nothing waits for what only reports.
        let in_force = self.constraints.as_ref().filter(|_| self.constraint_mode == ConstraintMode::Enforce);
        in_force.and_then(|constraints| constraints.waits_for())
    }

    /// How many namespaces are known.
    #[must_use]
    pub fn known_namespaces(&self) -> usize {
        self.namespaces.len()
    }

    /// A namespace, or why it cannot be had.
    pub async fn namespace(
        &self,
        name: &str,
        deadline: Instant,
    ) -> Result<Arc<ObjectMeta<'static>>, LookupError> {
        match self.namespaces.get(name) {
            Some(known) => Ok(known),
            None => self.reader.namespace(name, deadline).await,
        }
    }

    /// All policies, or why they cannot be had.
    pub async fn policies(&self, deadline: Instant) -> Result<Arc<Vec<StoredPolicy>>, LookupError> {
        if self.policies.status.is_ready() {
            return Ok(self.policies.all());
        }
        self.reader.policies(deadline).await.map(Arc::new)
    }

    /// All exceptions that are known.
    #[must_use]
    pub fn exceptions(&self) -> Arc<ExceptionSet> {
        self.exceptions.all()
    }

    /// The constraints and who may use them; `None` where they are not in force.
    pub fn constraints(&self) -> Result<Option<Arc<ConstraintFacts>>, LookupError> {
        self.constraints.as_ref().map(|constraints| constraints.current()).transpose()
    }

    /// The pods of a namespace as the API server lists them, within a time.
    pub async fn pods(&self, namespace: &str, budget: Duration) -> Result<String, LookupError> {
        self.reader.pods(namespace, Instant::now() + budget).await
    }
}
