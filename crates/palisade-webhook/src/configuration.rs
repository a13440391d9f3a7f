//! The configuration of Pod Security Admission, kept up to date.
//!
//! Implements: `PodSecurityConfiguration` from a file or a ConfigMap, read again whenever it changes. One that cannot be used
//! changes nothing and is reported. Reviews under way end with the configuration they began with.

use std::{error::Error as StdError, io, path::PathBuf, sync::Arc};

use kube::{
    Api, Client,
    core::{ApiResource, DynamicObject, GroupVersionKind},
    runtime::watcher,
};
use palisade_admission::{
    configuration::{ConfigurationError, GROUP, PodSecurityConfiguration},
    pod_security::PodSecurity,
};
use palisade_model::compat::Compat;
use palisade_policy::{
    enforcement::instances::{CONFIG_MAP_KEY, Configuration},
    standards::evaluator::Evaluator,
};
use palisade_serve::file_watch;
use serde_json::json;
use thiserror::Error;
use tokio::sync::watch;

use crate::{
    facts::{Change, Keep, Status, follow_in},
    metrics::{CONFIGURATION_ERRORS, Metrics},
    options::{ConfigurationSource, ReadConfiguration},
    shared::Shared,
};

/// A configuration in force.
#[derive(Debug)]
pub struct Configured {
    /// What judges.
    pub security: PodSecurity,
    /// The document, and its revision.
    pub document: Configuration,
}

/// Why no configuration is in force.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NoConfiguration {
    /// Its source was not read yet.
    #[error("the PodSecurity configuration in {0} is not known yet")]
    Pending(String),
    /// The first one cannot be used.
    #[error("the PodSecurity configuration in {origin} cannot be used: {why}")]
    Unusable {
        /// The file or ConfigMap.
        origin: String,
        /// What is wrong with it.
        why: String,
    },
}

/// Why a configuration cannot be put in force.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] io::Error),
    /// The ConfigMap is empty.
    #[error("it has no data")]
    NoData,
    /// The text has no configuration.
    #[error(transparent)]
    Text(#[from] Box<dyn StdError + Send + Sync>),
    /// The document has another form.
    #[error(transparent)]
    Document(#[from] serde_json::Error),
    /// A value makes no sense. Upstream's webhook begins these sentences in another way than its API server does.
    #[error("{}", match .0 {
        ConfigurationError::Defaults(text) => format!("configuration error: {text}"),
        ConfigurationError::Invalid(text) => format!("invalid configuration: {text}"),
        other @ ConfigurationError::WrongKind { .. } => other.to_string(),
    })]
    Value(#[from] ConfigurationError),
}

/// What is in force, if anything is known.
pub type Current = Result<Arc<Configured>, NoConfiguration>;

/// Follows the source of the configuration.
#[derive(Debug)]
pub struct Follower {
    read: ReadConfiguration,
    release: Shared<Compat>,
    metrics: Arc<Metrics>,
    current: watch::Sender<Current>,
    status: Status,
    source: String,
    /// Whether the source is the config observer's ConfigMap, whose version the report names.
    is_observed: bool,
}

/// What a ConfigMap holds, and its version.
#[derive(Debug)]
pub(crate) struct Held {
    text: Option<String>,
    version: String,
}

impl Follower {
    /// Nothing known yet.
    #[must_use]
    pub fn new(
        source: &ConfigurationSource,
        read: ReadConfiguration,
        release: Compat,
        metrics: Arc<Metrics>,
    ) -> Self {
        let is_observed = *source == ConfigurationSource::default();
        let source = match source {
            ConfigurationSource::File(file) => file.display().to_string(),
            ConfigurationSource::ConfigMap { namespace, name } => format!("ConfigMap {namespace}/{name}"),
        };
        let unknown = Err(NoConfiguration::Pending(source.clone()));
        Self {
            read,
            release: Shared::new(release),
            metrics,
            current: watch::Sender::new(unknown),
            status: Status::default(),
            source,
            is_observed,
        }
    }

    /// What is in force now.
    pub fn current(&self) -> Current {
        self.current.borrow().clone()
    }

    /// Every change of the configuration in force.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Current> {
        self.current.subscribe()
    }

    /// Puts a configuration in force, or returns what is wrong with it.
    pub fn apply(&self, text: &str) -> Result<(), ApplyError> {
        self.apply_version(text, "")
    }

    fn apply_version(&self, text: &str, version: &str) -> Result<(), ApplyError> {
        let document = self.versioned(Configuration::new((self.read)(text)?), version);
        let configured = self.configure(document)?;
        self.enforce(configured);
        Ok(())
    }

    /// The version of the ConfigMap that is in force, for the observer; other sources have none.
    fn versioned(&self, document: Configuration, version: &str) -> Configuration {
        Configuration { version: self.is_observed.then(|| version.to_owned()), ..document }
    }

    fn configure(&self, document: Configuration) -> Result<Configured, ApplyError> {
        let read: PodSecurityConfiguration = serde_json::from_value(document.value.clone())?;
        let (defaults, exemptions) = read.resolve()?;
        // The same texts as the API server's own plugin: clients drop warnings that they have seen.
        let evaluator = Evaluator::of(&self.release.get());
        Ok(Configured { security: PodSecurity { evaluator, defaults, exemptions }, document })
    }

    fn enforce(&self, configured: Configured) {
        let (is_new, is_same) = match &*self.current.borrow() {
            Ok(current) => {
                let (known, new) = (&current.document, &configured.document);
                (
                    known.revision != new.revision,
                    known.revision == new.revision && known.version == new.version,
                )
            }
            Err(_) => (true, false), // swallowed: without a configuration any is new
        };
        if is_new {
            let revision = configured.document.revision.clone();
            tracing::info!(source = self.source, revision, "Pod Security configuration applied");
        }
        // The same content in a newer ConfigMap is sent as well: the report names the version this replica has applied.
        if !is_same {
            let _ = self.current.send_replace(Ok(Arc::new(configured)));
        }
    }

    /// Judges as a release does from now on.
    pub fn judge_as(&self, release: Compat) {
        if *self.release.get() == release {
            return;
        }
        self.release.set(release);
        // swallowed: without a configuration there is nothing to read again, and reviews of pods are rejected
        let document = self.current.borrow().as_ref().ok().map(|configured| configured.document.clone());
        match document.map(|document| self.configure(document)) {
            Some(Ok(configured)) => drop(self.current.send_replace(Ok(Arc::new(configured)))),
            Some(Err(why)) => self.refuse(&why),
            None => {}
        }
    }

    fn refuse(&self, error: &ApplyError) {
        let why = error.to_string();
        self.metrics.count(&CONFIGURATION_ERRORS);
        tracing::error!(source = self.source, why, "Pod Security configuration not applied");
        if self.current.borrow().is_err() {
            let unusable = NoConfiguration::Unusable { origin: self.source.clone(), why };
            let _ = self.current.send_replace(Err(unusable));
        }
    }

    /// No configuration: upstream's defaults, which leave everything to the labels of namespaces.
    fn apply_defaults(&self) {
        let document = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "PodSecurityConfiguration"});
        match self.configure(self.versioned(Configuration::new(document), "")) {
            Ok(configured) => self.enforce(configured),
            Err(why) => self.refuse(&why),
        }
    }

    /// Follows a file.
    pub async fn follow_file(self: Arc<Self>, file: PathBuf) {
        file_watch::follow(std::slice::from_ref(&file), || {
            let applied = std::fs::read_to_string(&file).map_err(ApplyError::File);
            if let Err(why) = applied.and_then(|text| self.apply(&text)) {
                self.refuse(&why);
            }
            true
        })
        .await;
    }

    /// Follows a ConfigMap.
    pub async fn follow_config_map(self: Arc<Self>, client: Client, namespace: String, name: String) {
        let kind = GroupVersionKind::gvk("", "v1", "ConfigMap");
        let resource = ApiResource::from_gvk_with_plural(&kind, "configmaps");
        let api: Api<DynamicObject> = Api::namespaced_with(client, &namespace, &resource);
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        follow_in(api, config, "pod security configuration", self).await;
    }
}

impl Keep for Follower {
    type Item = Held;

    /// The text in the ConfigMap: the config observer's key, or else the first.
    fn read(&self, object: DynamicObject) -> Held {
        let data = object.data.get("data").and_then(|data| data.as_object());
        let value = data.and_then(|data| data.get(CONFIG_MAP_KEY).or_else(|| data.values().next()));
        let text = value.and_then(|value| value.as_str()).map(str::to_owned);
        Held { text, version: object.metadata.resource_version.unwrap_or_default() }
    }

    fn take(&self, change: Change<Held>) {
        match change {
            Change::All(items) => match items.into_iter().next() {
                Some(item) => self.put(item),
                None => self.apply_defaults(),
            },
            Change::Put(item) => self.put(item),
            Change::Gone(_) => {
                tracing::warn!(
                    source = self.source,
                    "the Pod Security configuration is gone; the defaults are in force"
                );
                self.apply_defaults();
            }
        }
    }

    fn status(&self) -> &Status {
        &self.status
    }
}

impl Follower {
    fn put(&self, Held { text, version }: Held) {
        let text = text.ok_or(ApplyError::NoData);
        if let Err(why) = text.and_then(|text| self.apply_version(&text, &version)) {
            self.refuse(&why);
        }
    }
}
