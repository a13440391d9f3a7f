//! An instance that enforces: applies the global configuration, and reports what it runs.
//!
//! Implements: the other half of the config observer, see `palisade_policy::enforcement::instances`. A configuration that
//! cannot be applied changes nothing, and the report stays, so that the rollout waits.

use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::{
    WatchStreamExt as _,
    watcher::{self, Event},
};
use palisade_policy::enforcement::instances::{
    CONFIG_MAP, Configuration, NAMESPACE, RENEW_SECONDS, instance_lease, lease_name, read_config_map,
};
use serde_json::{Value, json};
use tokio::{sync::watch as channel, time::sleep};

use crate::{
    api::{Api, ApiError, CONFIG_MAPS, LEASES, Patch},
    leader::ensure_namespace,
    runner::{Shutdown, stopped},
    time,
};

/// How soon a report that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Why an instance cannot use a configuration: what can go wrong there is its own affair.
pub type ApplyError = Box<dyn std::error::Error + Send + Sync>;

/// An instance.
#[derive(Debug, Clone)]
pub struct Instance {
    /// What it is, such as `apiserver`.
    pub component: &'static str,
    /// Its name among others of its kind; part of the name of a Lease.
    pub identity: String,
    /// What it runs before the first configuration.
    pub running: Configuration,
}

impl Instance {
    /// Reads the configuration once, applies and reports it: what an instance does before it serves requests.
    pub async fn catch_up(&mut self, api: &Api, apply: &impl Fn(&Value) -> Result<(), ApplyError>) {
        let path = CONFIG_MAPS.object(Some(NAMESPACE), CONFIG_MAP);
        match api.get(&path).await {
            Ok(Some(object)) => self.apply(&object, apply),
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "the global configuration cannot be read"),
        }
        if let Err(error) = self.report(api).await {
            tracing::warn!(%error, "cannot report which configuration runs");
        }
    }

    /// Applies and reports until `shutdown` turns true, then takes its report back.
    pub async fn run(
        mut self,
        api: Api,
        apply: impl Fn(&Value) -> Result<(), ApplyError> + Send + Sync,
        shutdown: Shutdown,
    ) {
        tokio::select! {
            () = self.serve(&api, &apply) => {}
            () = stopped(shutdown) => {}
        }
        let path = LEASES.object(Some(NAMESPACE), &lease_name(self.component, &self.identity));
        if let Err(error) = api.delete(&path).await {
            tracing::warn!(%error, "the report cannot be taken back");
        }
    }

    async fn serve(&mut self, api: &Api, apply: &(impl Fn(&Value) -> Result<(), ApplyError> + Sync)) {
        let (sender, mut news) = channel::channel(Value::Null);
        let maps: kube::Api<ConfigMap> = kube::Api::namespaced(api.client().clone(), NAMESPACE);
        let config = watcher::Config::default().fields(&format!("metadata.name={CONFIG_MAP}"));
        let watching = watcher::watcher(maps, config).default_backoff().for_each(|event| {
            if let Ok(Event::InitApply(map) | Event::Apply(map)) = event {
                sender.send_replace(json!(map));
            }
            std::future::ready(())
        });
        let reporting = async {
            let mut wait = Duration::ZERO;
            loop {
                tokio::select! {
                    more = news.changed() => if more.is_err() { return },
                    () = sleep(wait) => {}
                }
                let object = news.borrow_and_update().clone();
                if !object.is_null() {
                    self.apply(&object, apply);
                }
                wait = match self.report(api).await {
                    Ok(()) => Duration::from_secs(RENEW_SECONDS.into()),
                    Err(error) => {
                        tracing::warn!(%error, "cannot report which configuration runs");
                        RETRY
                    }
                };
            }
        };
        tokio::select! {
            () = watching => {}
            () = reporting => {}
        }
    }

    fn apply(&mut self, object: &Value, apply: &impl Fn(&Value) -> Result<(), ApplyError>) {
        let configuration = match read_config_map(object) {
            Ok(configuration) => configuration,
            Err(error) => return tracing::error!(%error, "the last configuration stays in force"),
        };
        if configuration.revision != self.running.revision {
            if let Err(why) = apply(&configuration.value) {
                return tracing::error!(
                    %why,
                    "the configuration cannot be applied; the last one stays in force"
                );
            }
            tracing::info!(revision = configuration.revision, "Pod Security configuration applied");
        }
        self.running = configuration;
    }

    async fn report(&self, api: &Api) -> Result<(), ApiError> {
        let name = lease_name(self.component, &self.identity);
        // Before there is a ConfigMap, that is what it has come to.
        let version = Some(self.running.version.clone().unwrap_or_default());
        let running = Configuration { version, ..self.running.clone() };
        let lease = instance_lease(self.component, &self.identity, &running, &time::micros());
        let path = LEASES.object(Some(NAMESPACE), &name);
        let manager = format!("palisade-{}", self.component);
        let how = Patch::Apply { force: true };
        match api.patch(&path, &manager, how, &lease).await {
            Err(error) if error.is_not_found() => {
                ensure_namespace(api).await?;
                api.patch(&path, &manager, how, &lease).await.map(|_| ())
            }
            answer => answer.map(|_| ()),
        }
    }
}
