//! The `--openshift` part of `palisade up`: the rollout, in the same process as the API server it is about.
//!
//! The server is an instance like any other: it applies the ConfigMap that the config observer writes, and reports what it
//! runs in a Lease, so that the rollout needs no special case for it.

use std::sync::Arc;

use kube::Client;
use palisade_admission::configuration::PodSecurityConfiguration;
use palisade_apiserver::{Server, pod_security::PodSecurityPlugin};
use palisade_controllers::{
    api::Api,
    instance::{ApplyError, Instance},
    runner::{Options, Runner},
};
use palisade_policy::{
    enforcement::instances::{APISERVER, Configuration},
    standards::level::Level,
};
use serde_json::Value;
use tokio::{sync::watch, task::JoinHandle};

/// The name of the one server there is. It stays the same from one start to the next, as its data does.
const IDENTITY: &str = "embedded";

/// The rollout at work.
#[derive(Debug)]
pub struct Rollout {
    stop_controllers: watch::Sender<bool>,
    controllers: JoinHandle<()>,
    stop_instance: watch::Sender<bool>,
    instance: Option<JoinHandle<()>>,
}

impl Rollout {
    /// Starts it. If the server `follows` the configuration, it has applied it when this returns.
    pub async fn start(server: &Server, options: Options, follows: bool) -> Self {
        let client = Client::new(server.router(), "default");
        let (stop_instance, instance_shutdown) = watch::channel(false);
        let mut instance = None;
        if follows {
            let (api, apply) = (Api::new(client.clone()), applying(server.api.pod_security.clone()));
            let running = Configuration::of(Level::Privileged);
            let mut own = Instance { component: APISERVER, identity: IDENTITY.to_owned(), running };
            // Before the controllers look: a server that has just started must not seem to have left the rollout.
            own.catch_up(&api, &apply).await;
            instance = Some(tokio::spawn(own.run(api, apply, instance_shutdown)));
        }
        let (stop_controllers, shutdown) = watch::channel(false);
        let controllers = tokio::spawn(Runner::new(client, options).run(shutdown));
        Self { stop_controllers, controllers, stop_instance, instance }
    }

    /// Ends it, controllers first.
    pub async fn stop(self) {
        let _ = self.stop_controllers.send(true);
        let _ = self.controllers.await;
        let _ = self.stop_instance.send(true);
        if let Some(instance) = self.instance {
            let _ = instance.await;
        }
    }
}

/// Applies a configuration to the server's own Pod Security Admission.
fn applying(
    plugin: Arc<PodSecurityPlugin>,
) -> impl Fn(&Value) -> Result<(), ApplyError> + Send + Sync + 'static {
    move |value| {
        let configuration: PodSecurityConfiguration = serde_json::from_value(value.clone())?;
        let (defaults, exemptions) = configuration.resolve()?;
        plugin.configure(defaults, exemptions);
        Ok(())
    }
}
