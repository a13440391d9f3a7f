//! Lets claims and volumes go that are being deleted and that nothing uses.
//!
//! Implements: Persistent Volumes, "Storage Object in Use Protection".
//! <https://kubernetes.io/docs/concepts/storage/persistent-volumes/#storage-object-in-use-protection>

use std::sync::Arc;

use palisade_apimachinery::rest::path::Get as _;
use serde_json::Value;

use crate::api::Api;
use crate::auth::node::{Referent, references};
use crate::meta;
use crate::plugins::defaults::{CLAIM_FINALIZER, VOLUME_FINALIZER};
use crate::registry::Entry;
use crate::storage::{Expect, Object, Range};
use crate::verbs::write;

/// Removes the finalizers that no longer hold anything.
pub(super) async fn run(api: &Arc<Api>) {
    let served = api.registry.served();
    if let Some(claims) = served.find("", "v1", "persistentvolumeclaims") {
        for (stored, claim) in leaving(claims, CLAIM_FINALIZER) {
            if !is_mounted(api, &claim) {
                release(api, claims, &stored, claim, CLAIM_FINALIZER).await;
            }
        }
    }
    if let Some(volumes) = served.find("", "v1", "persistentvolumes") {
        for (stored, volume) in leaving(volumes, VOLUME_FINALIZER) {
            if volume.pointer("/status/phase").and_then(Value::as_str) != Some("Bound") {
                release(api, volumes, &stored, volume, VOLUME_FINALIZER).await;
            }
        }
    }
}

/// The objects that are on their way out and have the finalizer.
fn leaving(entry: &Entry, finalizer: &str) -> Vec<(Arc<Object>, Value)> {
    let objects = entry.bucket.list(&Range::All).objects.into_iter();
    let objects = objects.filter(|object| object.mentions("deletionTimestamp"));
    let read = objects.map(|object| {
        let value = entry.typed(object.parse());
        (object, value)
    });
    read.filter(|(_, value)| {
        meta::is_deleting(value) && meta::finalizers(value).iter().any(|f| f == finalizer)
    })
    .collect()
}

/// Whether a pod that has not ended mounts a claim.
fn is_mounted(api: &Arc<Api>, claim: &Value) -> bool {
    let (namespace, name) = (meta::meta_text(claim, "namespace"), meta::meta_text(claim, "name"));
    let pods = api.store.bucket("pods").list(&Range::Namespace(namespace.to_owned()));
    pods.objects.iter().any(|pod| {
        let pod = Value::Object(pod.parse());
        let ended = pod.get("status").is_some_and(|s| matches!(s.text("phase"), "Succeeded" | "Failed"));
        !ended && references(&pod).iter().any(|(kind, known)| *kind == Referent::Claim && known == name)
    })
}

async fn release(api: &Arc<Api>, entry: &Entry, stored: &Object, mut object: Value, finalizer: &str) {
    let left: Vec<String> =
        meta::finalizers(&object).into_iter().filter(|known| known != finalizer).collect();
    meta::set_finalizers(&mut object, &left);
    let gone = left.is_empty();
    // A change meanwhile is seen in the next round.
    let _ = write::commit(api, entry, stored.key(), Expect::Revision(stored.revision), object, gone).await;
}
