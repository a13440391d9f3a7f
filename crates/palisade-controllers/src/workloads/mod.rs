//! The controllers that make pods, for the embedded cluster: Deployment, ReplicaSet, ReplicationController, StatefulSet, DaemonSet,
//! Job and CronJob, and those that follow pods: endpoints, disruption budgets and evictions by taints.
//!
//! ```text
//!  watches ─► Mirrors ─► Queue ─► <controller>::plan ─► <controller>::apply ─► API server
//!             one for all          pure                  as its own service account
//! ```
//!
//! They act as kube-controller-manager does and never beside it: while another process holds its Lease, they do not run.

pub mod context;
pub mod cron_job;
pub mod daemon_set;
pub mod deployment;
pub mod disruption;
pub mod endpoints;
pub mod events;
pub mod job;
pub mod kind;
pub(crate) mod lease;
pub mod meta;
pub mod mirror;
pub mod object;
pub mod pod;
pub mod queue;
pub mod replica_set;
pub mod revisions;
pub mod selection;
pub mod stateful_set;
pub mod taint_eviction;

use std::sync::Arc;

use futures::{FutureExt as _, future::BoxFuture};
use kube::Client;

use self::{
    context::{Context, Mirrors},
    events::Recorder,
    kind::Kind,
    queue::Queue,
    selection::Selection,
};
use crate::api::Api;

/// Runs the controllers whenever no kube-controller-manager does, and never returns. `client` returns the client of a service
/// account in `kube-system`; the empty name is that of the administrator.
pub async fn run(client: impl Fn(&str) -> Client, selection: Selection) {
    let api = Api::new(client(""));
    let (watching, mut lease) = lease::watch(&api, events::MANAGER);
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
    // A controller that is selected, as its service account.
    let context = |name: &str, account: &'static str| {
        selection.contains(name).then(|| {
            let api = Api::new(client(account));
            let recorder = Recorder::new(api.clone(), account);
            Arc::new(Context { api, recorder, mirrors: mirrors.clone(), queue: Arc::new(Queue::default()) })
        })
    };
    let replicas = async |name: &str, account: &'static str, kind: Kind| {
        if let Some(context) = context(name, account) {
            replica_set::run(context, kind).await;
        }
    };
    let one = async |name: &str, account: &'static str, run: fn(Arc<Context>) -> BoxFuture<'static, ()>| {
        if let Some(context) = context(name, account) {
            run(context).await;
        }
    };
    tokio::join!(
        mirrors.run(api),
        replicas(selection::REPLICA_SET, "replicaset-controller", kind::REPLICA_SET),
        replicas(selection::REPLICATION_CONTROLLER, "replication-controller", kind::REPLICATION_CONTROLLER),
        one(selection::CRON_JOB, "cronjob-controller", |context| cron_job::run(context).boxed()),
        one(selection::DAEMON_SET, "daemon-set-controller", |context| daemon_set::run(context).boxed()),
        one(selection::DEPLOYMENT, "deployment-controller", |context| deployment::run(context).boxed()),
        one(selection::DISRUPTION, "disruption-controller", |context| disruption::run(context).boxed()),
        one(selection::ENDPOINTS, "endpoint-controller", |context| endpoints::run_endpoints(context).boxed()),
        one(selection::ENDPOINT_SLICE, "endpointslice-controller", |context| endpoints::run_slices(context)
            .boxed()),
        one(selection::ENDPOINT_SLICE_MIRRORING, "endpointslicemirroring-controller", |context| {
            endpoints::run_mirroring(context).boxed()
        }),
        one(selection::JOB, "job-controller", |context| job::run(context).boxed()),
        one(selection::STATEFUL_SET, "statefulset-controller", |context| stateful_set::run(context).boxed()),
        // The account is that of the node controller, of which this one was a part.
        one(selection::TAINT_EVICTION, "node-controller", |context| taint_eviction::run(context).boxed()),
        one(selection::TTL_AFTER_FINISHED, "ttl-after-finished-controller", |context| job::ttl::run(context)
            .boxed()),
    );
}
