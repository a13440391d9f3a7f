//! What every workload controller works with: the mirrors of all kinds, and its own identity at the API server.

use std::{future::Future, sync::Arc, time::Duration};

use futures::{StreamExt as _, future::join_all, stream::FuturesUnordered};
use serde_json::{Value, json};

use super::{
    events::{About, MANAGER, Recorder},
    kind::Kind,
    meta::{Key, Meta},
    mirror::{Mirror, Mirrored},
    object::{Object, is_equal, list},
    pod::Pod,
    queue::Queue,
};
use crate::{
    api::{Api, ApiError, Resource},
    observe::watch::{Target, follow},
};

/// Pods.
pub const PODS: Resource = Resource::new("", "v1", "pods");
/// Deployments.
pub const DEPLOYMENTS: Resource = Resource::new("apps", "v1", "deployments");
/// ReplicaSets.
pub const REPLICA_SETS: Resource = Resource::new("apps", "v1", "replicasets");
/// ReplicationControllers.
pub const REPLICATION_CONTROLLERS: Resource = Resource::new("", "v1", "replicationcontrollers");

/// DaemonSets.
pub const DAEMON_SETS: Resource = Resource::new("apps", "v1", "daemonsets");
/// StatefulSets.
pub const STATEFUL_SETS: Resource = Resource::new("apps", "v1", "statefulsets");
/// ControllerRevisions.
pub const CONTROLLER_REVISIONS: Resource = Resource::new("apps", "v1", "controllerrevisions");
/// Jobs.
pub const JOBS: Resource = Resource::new("batch", "v1", "jobs");
/// CronJobs.
pub const CRON_JOBS: Resource = Resource::new("batch", "v1", "cronjobs");
/// Nodes.
pub const NODES: Resource = Resource::new("", "v1", "nodes");
/// Claims of persistent volumes.
pub const CLAIMS: Resource = Resource::new("", "v1", "persistentvolumeclaims");

/// Services.
pub const SERVICES: Resource = Resource::new("", "v1", "services");
/// Endpoints.
pub const ENDPOINTS: Resource = Resource::new("", "v1", "endpoints");
/// EndpointSlices.
pub const ENDPOINT_SLICES: Resource = Resource::new("discovery.k8s.io", "v1", "endpointslices");
/// PodDisruptionBudgets.
pub const PDBS: Resource = Resource::new("policy", "v1", "poddisruptionbudgets");

/// How many objects of a kind are worked on at the same time, as in kube-controller-manager.
const CONCURRENT: usize = 5;

/// Declares the mirrors, one for each kind.
macro_rules! mirrors {
    ($($(#[$doc:meta])* $name:ident: $object:ty = $resource:expr,)*) => {
        /// The mirrors, one for each kind.
        #[derive(Debug, Default)]
        pub struct Mirrors {
            $($(#[$doc])* pub $name: Mirror<$object>,)*
        }

        impl Mirrors {
            /// Keeps the mirrors up to date, and never returns.
            pub async fn run(&self, api: &Api) {
                tokio::join!($(mirror(api, $resource, &self.$name)),*);
            }

            /// Returns once all kinds have been listed.
            pub async fn synced(&self) {
                $(self.$name.synced().await;)*
            }
        }
    };
}

mirrors! {
    /// Pods.
    pods: Pod = PODS,
    /// Deployments.
    deployments: Object = DEPLOYMENTS,
    /// ReplicaSets.
    replica_sets: Object = REPLICA_SETS,
    /// ReplicationControllers.
    replication_controllers: Object = REPLICATION_CONTROLLERS,
    /// DaemonSets.
    daemon_sets: Object = DAEMON_SETS,
    /// StatefulSets.
    stateful_sets: Object = STATEFUL_SETS,
    /// ControllerRevisions.
    revisions: Object = CONTROLLER_REVISIONS,
    /// Jobs.
    jobs: Object = JOBS,
    /// CronJobs.
    cron_jobs: Object = CRON_JOBS,
    /// Nodes.
    nodes: Object = NODES,
    /// Claims of persistent volumes.
    claims: Object = CLAIMS,
    /// Services.
    services: Object = SERVICES,
    /// Endpoints.
    endpoints: Object = ENDPOINTS,
    /// EndpointSlices.
    slices: Object = ENDPOINT_SLICES,
    /// PodDisruptionBudgets.
    budgets: Object = PDBS,
}

async fn mirror<K: Mirrored>(api: &Api, resource: Resource, mirror: &Mirror<K>) {
    let target = Target { path: resource.collection(None), ..Target::default() };
    follow(api, &target, |event| mirror.apply(event)).await;
}

/// A controller at work.
#[derive(Debug)]
pub struct Context {
    /// The API server, as this controller.
    pub api: Api,
    /// Its events.
    pub recorder: Recorder,
    /// What the cluster has.
    pub mirrors: Arc<Mirrors>,
    /// What it is to look at.
    pub queue: Arc<Queue>,
}

impl Context {
    /// Works on the queue, and never returns.
    pub async fn work<F, R>(&self, sync: F)
    where
        F: Fn(Key) -> R,
        R: Future<Output = Result<Option<Duration>, ApiError>>,
    {
        let mut running = FuturesUnordered::new();
        loop {
            tokio::select! {
                key = self.queue.next(), if running.len() < CONCURRENT => {
                    let result = sync(key.clone());
                    running.push(async move { (key, result.await) });
                }
                Some((key, result)) = running.next() => match result {
                    Ok(again) => {
                        self.queue.done(key.clone(), false);
                        if let Some(after) = again {
                            self.queue.add_after(key, after);
                        }
                    }
                    Err(error) => {
                        // A conflict means that something newer is on its way.
                        tracing::debug!(%key, %error, "sync failed; it is retried");
                        self.queue.done(key, true);
                    }
                },
            }
        }
    }

    /// Follows the objects of a kind and their pods, and adds the keys of the objects to the queue.
    pub async fn follow_owners(&self, kind: Kind) {
        let queue = self.queue.clone();
        (kind.mirror)(&self.mirrors).on_change(move |before, after| {
            if let Some(owner) = after.or(before) {
                queue.add(owner.meta.key());
            }
        });
        let (queue, mirrors) = (self.queue.clone(), Arc::downgrade(&self.mirrors));
        self.mirrors.pods.on_change(move |before, after| {
            for pod in [before, after].into_iter().flatten() {
                if let Some(owner) = pod.meta.controller() {
                    if &*owner.kind == kind.kind {
                        queue.add(Key::new(&pod.meta.namespace, &owner.name));
                    }
                } else if !pod.meta.is_deleting()
                    && !pod.meta.labels.is_empty()
                    && let Some(mirrors) = mirrors.upgrade()
                {
                    // An orphan: who may adopt it?
                    for owner in (kind.mirror)(&mirrors).in_namespace(&pod.meta.namespace) {
                        if pod.meta.is_selected_by(&(kind.selector)(&owner)) {
                            queue.add(owner.meta.key());
                        }
                    }
                }
            }
        });
        self.mirrors.synced().await;
        for owner in (kind.mirror)(&self.mirrors).all() {
            self.queue.add(owner.meta.key());
        }
    }

    /// Adopts orphans that fit and releases pods that fit no longer. With a finalizer, adopted pods get it and released ones lose it.
    pub async fn claim_pods(&self, claim: Claim<'_>, finalizer: Option<&str>) -> Result<(), ApiError> {
        self.claim_pods_if(claim, finalizer, |_| true).await
    }

    /// Claims only the pods that pass a test; the others are released.
    pub async fn claim_pods_if(
        &self,
        claim: Claim<'_>,
        finalizer: Option<&str>,
        test: impl Fn(&Pod) -> bool,
    ) -> Result<(), ApiError> {
        let owner = claim.about.meta;
        let mut pods = self.mirrors.pods.controlled_by(&owner.uid);
        pods.extend(self.mirrors.pods.without_controller(&owner.namespace));
        for pod in pods.iter().filter(|pod| pod.is_active() || pod.meta.is_controlled_by(&owner.uid)) {
            let Some(mut change) = claim.change_if(&pod.meta, test(pod)) else { continue };
            if let Some(finalizer) = finalizer {
                let is_release = pod.meta.is_controlled_by(&owner.uid);
                let key = if is_release { "$deleteFromPrimitiveList/finalizers" } else { "finalizers" };
                change["metadata"][key] = json!([finalizer]);
            }
            match self.patch_pod(pod, &change).await {
                Ok(()) => {}
                // It is gone, or another pod has its name.
                Err(error) if error.is_not_found() || error.is_conflict() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Creates pods in batches that double, so that what is rejected is rejected once and not a hundred times. How many were created,
    /// and why not all.
    pub async fn create_pods(
        &self,
        about: About<'_>,
        count: usize,
        pod: impl Fn(usize) -> Value,
    ) -> (i64, Result<(), ApiError>) {
        let (mut done, mut batch, mut created) = (0, 1, 0);
        while done < count {
            let size = batch.min(count - done);
            let creating = (done..done + size).map(|at| {
                let pod = pod(at);
                async move { self.create_pod_of(about, &pod).await }
            });
            let mut result = Ok(());
            for answer in join_all(creating).await {
                match answer {
                    Ok(made) => created += i64::from(made),
                    Err(error) => result = Err(error),
                }
            }
            if result.is_err() {
                return (created, result);
            }
            done += size;
            batch *= 2;
        }
        (created, Ok(()))
    }

    /// Creates a pod and records that; false if its namespace is being deleted.
    pub async fn create_pod_of(&self, about: About<'_>, pod: &Value) -> Result<bool, ApiError> {
        match self.create_pod(&about.meta.namespace, pod).await {
            Ok(made) => {
                let text = format!("Created pod: {}", made.meta.name);
                self.recorder.normal(about, "SuccessfulCreate", &text).await;
                Ok(true)
            }
            // Its owner is going away with the namespace.
            Err(error) if error.is_terminating() => Ok(false),
            Err(error) => {
                let text = format!("Error creating: {error}");
                self.recorder.warning(about, "FailedCreate", &text).await;
                Err(error)
            }
        }
    }

    /// Deletes a pod and records that.
    pub async fn delete_pod_of(&self, about: About<'_>, pod: &Pod) -> Result<(), ApiError> {
        match self.delete_pod(pod).await {
            Ok(()) => {
                let text = format!("Deleted pod: {}", pod.meta.name);
                self.recorder.normal(about, "SuccessfulDelete", &text).await;
                Ok(())
            }
            Err(error) => {
                let text = format!("Error deleting: {error}");
                self.recorder.warning(about, "FailedDelete", &text).await;
                Err(error)
            }
        }
    }

    /// Writes the status of an object, unless it has it already.
    pub async fn write_status(&self, kind: Kind, object: &Object, status: Value) -> Result<(), ApiError> {
        if !is_equal(&status, object.at("/status")) {
            let path =
                format!("{}/status", kind.resource.object(Some(&object.meta.namespace), &object.meta.name));
            self.replace((kind.mirror)(&self.mirrors), &path, &object.with_status(status)).await?;
        }
        Ok(())
    }

    /// Makes a pod, and keeps it in the mirror.
    pub async fn create_pod(&self, namespace: &str, pod: &Value) -> Result<Arc<Pod>, ApiError> {
        let made = self.api.create(&PODS.collection(Some(namespace)), MANAGER, pod).await?;
        self.keep_pod(&made)
    }

    /// Deletes a pod, unless another one has taken its name.
    pub async fn delete_pod(&self, pod: &Pod) -> Result<(), ApiError> {
        let path = PODS.object(Some(&pod.meta.namespace), &pod.meta.name);
        let options =
            json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": pod.meta.uid}});
        let answer = self.api.delete_with(&path, &options).await;
        match answer {
            Ok(left) if left["kind"] == "Pod" && left["metadata"]["deletionTimestamp"].is_string() => {
                self.keep_pod(&left)?;
            }
            Ok(_) => self.mirrors.pods.forget(&pod.meta),
            Err(error) if error.is_not_found() => self.mirrors.pods.forget(&pod.meta),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Changes the owners, labels or finalizers of a pod.
    pub async fn patch_pod(&self, pod: &Pod, change: &Value) -> Result<(), ApiError> {
        let path = PODS.object(Some(&pod.meta.namespace), &pod.meta.name);
        let patched = self.api.patch(&path, MANAGER, crate::api::Patch::Strategic, change).await?;
        let metadata = &patched["metadata"];
        if metadata["deletionGracePeriodSeconds"] == 0 && list(&metadata["finalizers"]).is_empty() {
            // That was the last finalizer, and with it the pod is gone.
            self.mirrors.pods.forget(&pod.meta);
        } else {
            self.keep_pod(&patched)?;
        }
        Ok(())
    }

    fn keep_pod(&self, value: &Value) -> Result<Arc<Pod>, ApiError> {
        let pod = Pod::read(&value.to_string()).map_err(unreadable)?;
        Ok(self.mirrors.pods.put(pod))
    }

    /// Writes an object, or its status, and keeps what the API server returns.
    pub async fn replace(
        &self,
        mirror: &Mirror<Object>,
        path: &str,
        object: &Value,
    ) -> Result<Arc<Object>, ApiError> {
        let written = self.api.replace(path, MANAGER, object).await?;
        Ok(mirror.put(Object::of(written).map_err(unreadable)?))
    }
}

/// What an object owns is claimed: adopted if it fits and has no controller, released if it fits no longer.
#[derive(Debug, Clone, Copy)]
pub struct Claim<'o> {
    /// What claims.
    pub about: About<'o>,
    /// What fits.
    pub selector: &'o palisade_base::label_selector::LabelSelector,
}

impl Claim<'_> {
    /// What is to be written to the owners of an object, if anything. Pure.
    #[must_use]
    pub fn change(&self, object: &Meta) -> Option<Value> {
        self.change_if(object, true)
    }

    fn change_if(&self, object: &Meta, passes: bool) -> Option<Value> {
        let owner = self.about.meta;
        let fits = passes && object.is_selected_by(self.selector);
        match object.controller() {
            Some(controller) if controller.uid != owner.uid => None,
            Some(_) if fits || owner.is_deleting() => None,
            Some(_) => Some(json!({"metadata": {"uid": object.uid,
                "ownerReferences": [{"$patch": "delete", "uid": owner.uid}]}})),
            None if !fits || owner.is_deleting() || object.is_deleting() => None,
            None => Some(json!({"metadata": {"uid": object.uid,
                "ownerReferences": [super::meta::controller_reference(self.about.api_version, self.about.kind, owner)]}})),
        }
    }
}

/// What the API server returned is no object.
pub(super) fn unreadable(error: serde_json::Error) -> ApiError {
    ApiError::Unreachable(Box::new(kube::Error::SerdeError(error)))
}
