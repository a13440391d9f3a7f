//! A namespace that is being deleted loses its content, then its finalizer, then itself.
//!
//! Implements: Namespaces Walkthrough, "Deleting a namespace".

use std::sync::Arc;

use serde_json::Value;

use super::DELAY;
use crate::api::Api;
use crate::meta;
use crate::options::DeleteOptions;
use crate::registry::Entry;
use crate::storage::{Expect, Object, Range};
use crate::verbs::delete::delete_object;
use crate::verbs::write;

/// Works on every namespace that is on its way out. True if there is more to do.
pub(super) async fn finish(api: &Arc<Api>) -> bool {
    let served = api.registry.served();
    let Some(entry) = served.find("", "v1", "namespaces") else { return false };
    let mut busy = false;
    for stored in entry.bucket.list(&Range::All).objects {
        if !stored.mentions("deletionTimestamp") {
            continue;
        }
        let namespace = entry.typed(stored.parse());
        if !meta::is_deleting(&namespace) {
            continue;
        }
        busy = true;
        let since = meta::meta_text(&namespace, "deletionTimestamp").parse::<jiff::Timestamp>();
        let young = since.is_ok_and(|since| {
            jiff::Timestamp::now().duration_since(since)
                < jiff::SignedDuration::try_from(DELAY).unwrap_or_default()
        });
        if !young && empty(api, stored.name()).await {
            remove(api, entry, &stored, namespace).await;
        }
    }
    busy
}

/// Deletes what is in a namespace; true when nothing is left. Since v1.33, pods go first: while they run, the policies that confine them
/// stay.
async fn empty(api: &Arc<Api>, namespace: &str) -> bool {
    if api.version.at_least(33) && !delete_all(api, namespace, is_pod).await {
        return false;
    }
    delete_all(api, namespace, |_| true).await
}

fn is_pod(entry: &Entry) -> bool {
    entry.kind.group.is_empty() && entry.kind.plural == "pods"
}

/// Deletes the objects of some kinds; true when none is left.
async fn delete_all(api: &Arc<Api>, namespace: &str, is_meant: impl Fn(&Entry) -> bool) -> bool {
    let served = api.registry.served();
    let range = Range::Namespace(namespace.to_owned());
    let mut left = false;
    for entry in served.stored().filter(|e| e.kind.namespaced && is_meant(e)) {
        for object in entry.bucket.list(&range).objects {
            let options = options_for(entry, &object);
            if let Some(options) = options {
                // Another client may delete it first.
                let _ = delete_object(api, entry, object.key(), &options, None).await;
            }
        }
        left |= !entry.bucket.list(&range).objects.is_empty();
    }
    !left
}

/// Pods get their grace period; when it is over, a pod that no kubelet has stopped is removed.
fn options_for(entry: &Entry, object: &Object) -> Option<DeleteOptions> {
    let value = Value::Object(object.parse());
    if !meta::is_deleting(&value) {
        return Some(DeleteOptions::default());
    }
    let until = meta::meta_text(&value, "deletionTimestamp").parse::<jiff::Timestamp>().ok()?;
    (is_pod(entry) && until < jiff::Timestamp::now())
        .then(|| DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() })
}

async fn remove(api: &Arc<Api>, entry: &Entry, stored: &Object, mut namespace: Value) {
    if let Some(spec) = namespace.get_mut("spec").and_then(Value::as_object_mut) {
        let others = spec.get("finalizers").and_then(Value::as_array).cloned().unwrap_or_default();
        let others: Vec<Value> = others.into_iter().filter(|f| f.as_str() != Some("kubernetes")).collect();
        if others.is_empty() {
            spec.remove("finalizers");
        } else {
            spec.insert("finalizers".to_owned(), others.into());
        }
    }
    let content = namespace.pointer("/spec/finalizers").is_some();
    let gone = !content && meta::finalizers(&namespace).is_empty();
    // A change meanwhile is seen in the next round.
    let _ = write::commit(api, entry, stored.key(), Expect::Revision(stored.revision), namespace, gone).await;
}
