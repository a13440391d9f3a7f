//! The controllers that make pods, for the embedded cluster: Deployment, ReplicaSet and ReplicationController.
//!
//! ```text
//!  watches ─► Mirrors ─► Queue ─► <controller>::plan ─► <controller>::apply ─► API server
//!             one for all          pure                  as its own service account
//! ```
//!
//! They act as kube-controller-manager does and never beside it: while another process holds its Lease, they do not run.

pub mod context;
pub mod deployment;
pub mod events;
mod lease;
pub mod meta;
pub mod mirror;
pub mod object;
pub mod pod;
pub mod queue;
pub mod replica_set;
pub mod selection;

use std::sync::Arc;

use kube::Client;

use self::{
    context::{Context, Mirrors},
    events::Recorder,
    queue::Queue,
    selection::Selection,
};
use crate::api::Api;

/// Runs the controllers whenever no kube-controller-manager does, and never returns. `client` returns the client of a service
/// account in `kube-system`; the empty name is that of the administrator.
pub async fn run(client: impl Fn(&str) -> Client, selection: Selection) {
    let api = Api::new(client(""));
    let (watching, mut lease) = lease::watch(&api);
    let running = async {
        loop {
            lease.is_free().await;
            tracing::info!("no kube-controller-manager leads: the built-in controllers run");
            tokio::select! {
                () = controllers(&api, &client, &selection) => {}
                () = lease.is_held() => tracing::info!("kube-controller-manager leads: the built-in controllers pause"),
            }
        }
    };
    tokio::join!(watching, running);
}

async fn controllers(api: &Api, client: &impl Fn(&str) -> Client, selection: &Selection) {
    let mirrors = Arc::new(Mirrors::default());
    let replicas = async |name: &str, account: &'static str, flavor| {
        if selection.contains(name) {
            let api = Api::new(client(account));
            let recorder = Recorder::new(api.clone(), account);
            let queue = Arc::new(Queue::default());
            let context = Context { api, recorder, mirrors: mirrors.clone(), queue };
            replica_set::run(Arc::new(context), flavor).await;
        }
    };
    let deployments = async {
        if selection.contains(selection::DEPLOYMENT) {
            let api = Api::new(client("deployment-controller"));
            let recorder = Recorder::new(api.clone(), "deployment-controller");
            let queue = Arc::new(Queue::default());
            let context = Context { api, recorder, mirrors: mirrors.clone(), queue };
            deployment::run(Arc::new(context)).await;
        }
    };
    tokio::join!(
        mirrors.run(api),
        deployments,
        replicas(selection::REPLICA_SET, "replicaset-controller", replica_set::REPLICA_SET),
        replicas(
            selection::REPLICATION_CONTROLLER,
            "replication-controller",
            replica_set::REPLICATION_CONTROLLER
        ),
    );
}
