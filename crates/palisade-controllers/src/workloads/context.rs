//! What every workload controller works with: the mirrors of all kinds, and its own identity at the API server.

use std::{future::Future, sync::Arc, time::Duration};

use futures::{StreamExt as _, stream::FuturesUnordered};
use serde_json::{Value, json};

use super::{
    events::{About, MANAGER, Recorder},
    meta::{Key, Meta},
    mirror::{Mirror, Mirrored},
    object::Object,
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

/// How many objects of a kind are worked on at the same time, as in kube-controller-manager.
const CONCURRENT: usize = 5;

/// The mirrors, one for each kind.
#[derive(Debug, Default)]
pub struct Mirrors {
    /// Pods.
    pub pods: Mirror<Pod>,
    /// Deployments.
    pub deployments: Mirror<Object>,
    /// ReplicaSets.
    pub replica_sets: Mirror<Object>,
    /// ReplicationControllers.
    pub replication_controllers: Mirror<Object>,
}

impl Mirrors {
    /// Keeps the mirrors up to date, and never returns.
    pub async fn run(&self, api: &Api) {
        tokio::join!(
            mirror(api, PODS, &self.pods),
            mirror(api, DEPLOYMENTS, &self.deployments),
            mirror(api, REPLICA_SETS, &self.replica_sets),
            mirror(api, REPLICATION_CONTROLLERS, &self.replication_controllers),
        );
    }

    /// Returns once all kinds have been listed.
    pub async fn synced(&self) {
        self.pods.synced().await;
        self.deployments.synced().await;
        self.replica_sets.synced().await;
        self.replication_controllers.synced().await;
    }
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

    /// Changes the owners of a pod.
    pub async fn patch_pod(&self, pod: &Pod, change: &Value) -> Result<(), ApiError> {
        let path = PODS.object(Some(&pod.meta.namespace), &pod.meta.name);
        let patched = self.api.patch(&path, MANAGER, crate::api::Patch::Strategic, change).await?;
        self.keep_pod(&patched)?;
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
        let owner = self.about.meta;
        let fits = object.is_selected_by(self.selector);
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
