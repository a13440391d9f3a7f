//! A namespace that is being deleted loses its content, then its finalizer, then itself; its conditions name what is left.
//!
//! Implements: Namespaces Walkthrough, "Deleting a namespace", and the conditions of `pkg/controller/namespace/deletion`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

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
        if young {
            continue;
        }
        let left = empty(api, stored.name()).await;
        if left.is_nothing() {
            remove(api, entry, &stored, namespace).await;
        } else {
            report(api, entry, &stored, namespace, &left).await;
        }
    }
    busy
}

/// What keeps a namespace from going.
#[derive(Debug, Default)]
struct Remains {
    /// How many objects there still are, by resource and group.
    objects: BTreeMap<String, usize>,
    /// On how many of them each finalizer is.
    finalizers: BTreeMap<String, usize>,
    /// Why objects could not be deleted.
    failures: Vec<String>,
}

impl Remains {
    fn is_nothing(&self) -> bool {
        self.objects.is_empty() && self.failures.is_empty()
    }

    /// Upstream's conditions: type, reason and message; the message of a condition that is true names what remains.
    fn conditions(&self) -> [(&'static str, bool, &'static str, String); 5] {
        let listed = |counts: &BTreeMap<String, usize>, join: &str| {
            let entries =
                counts.iter().map(|(name, count)| format!("{name}{join}{count} resource instances"));
            entries.collect::<Vec<_>>().join(", ")
        };
        let condition = |kind, failed: Option<(&'static str, String)>, reason, message: &str| match failed {
            Some((reason, message)) => (kind, true, reason, message),
            None => (kind, false, reason, message.to_owned()),
        };
        let failures = (!self.failures.is_empty()).then(|| {
            let count = self.failures.len();
            let text = format!(
                "Failed to delete all resource types, {count} remaining: {}",
                self.failures.join(", ")
            );
            ("ContentDeletionFailed", text)
        });
        let objects = (!self.objects.is_empty()).then(|| {
            (
                "SomeResourcesRemain",
                format!("Some resources are remaining: {}", listed(&self.objects, " has ")),
            )
        });
        let finalizers = (!self.finalizers.is_empty()).then(|| {
            let list = listed(&self.finalizers, " in ");
            (
                "SomeFinalizersRemain",
                format!("Some content in the namespace has finalizers remaining: {list}"),
            )
        });
        [
            condition(
                "NamespaceDeletionDiscoveryFailure",
                None,
                "ResourcesDiscovered",
                "All resources successfully discovered",
            ),
            condition(
                "NamespaceDeletionGroupVersionParsingFailure",
                None,
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed",
            ),
            condition(
                "NamespaceDeletionContentFailure",
                failures,
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization",
            ),
            condition(
                "NamespaceContentRemaining",
                objects,
                "ContentRemoved",
                "All content successfully removed",
            ),
            condition(
                "NamespaceFinalizersRemaining",
                finalizers,
                "ContentHasNoFinalizers",
                "All content-preserving finalizers finished",
            ),
        ]
    }
}

/// Deletes what is in a namespace and returns what is left. Since v1.33, pods go first: while they run, the policies that confine them
/// stay.
async fn empty(api: &Arc<Api>, namespace: &str) -> Remains {
    if api.version.at_least(33) {
        let pods = delete_all(api, namespace, is_pod).await;
        if !pods.is_nothing() {
            return pods;
        }
    }
    delete_all(api, namespace, |_| true).await
}

fn is_pod(entry: &Entry) -> bool {
    entry.kind.group.is_empty() && entry.kind.plural == "pods"
}

/// Deletes the objects of some kinds and returns what is left of them.
async fn delete_all(api: &Arc<Api>, namespace: &str, is_meant: impl Fn(&Entry) -> bool) -> Remains {
    let served = api.registry.served();
    let range = Range::Namespace(namespace.to_owned());
    let mut remains = Remains::default();
    for entry in served.stored().filter(|e| e.kind.namespaced && is_meant(e)) {
        for object in entry.bucket.list(&range).objects {
            let Some(options) = options_for(entry, &object) else { continue };
            // Another client may delete it first, or change it meanwhile.
            if let Err(status) = delete_object(api, entry, object.key(), &options, None).await
                && ![404, 409].contains(&status.code)
            {
                remains.failures.push(status.message.clone());
            }
        }
        let left = entry.bucket.list(&range).objects;
        if left.is_empty() {
            continue;
        }
        remains.objects.insert(format!("{}.{}", entry.kind.plural, entry.kind.group), left.len());
        for object in left {
            for finalizer in meta::finalizers(&Value::Object(object.parse())) {
                *remains.finalizers.entry(finalizer).or_default() += 1;
            }
        }
    }
    remains
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

/// Writes the conditions, if they say anything else than before.
async fn report(api: &Arc<Api>, entry: &Entry, stored: &Object, mut namespace: Value, left: &Remains) {
    let before = namespace.pointer("/status/conditions").and_then(Value::as_array).cloned();
    let before = before.unwrap_or_default();
    let after = updated(&before, left, &meta::now());
    if before == after {
        return;
    }
    if let Some(status) = namespace.get_mut("status").and_then(Value::as_object_mut) {
        status.insert("conditions".to_owned(), after.into());
        // A change meanwhile is seen in the next round.
        let _ = write::commit(api, entry, stored.key(), Expect::Revision(stored.revision), namespace, false)
            .await;
    }
}

/// The conditions of a namespace after a round: those of others stay, and a status that stays keeps its time.
fn updated(before: &[Value], left: &Remains, now: &str) -> Vec<Value> {
    let mut conditions = before.to_vec();
    for (kind, failed, reason, message) in left.conditions() {
        let status = if failed { "True" } else { "False" };
        let known = conditions.iter_mut().find(|condition| condition.get("type") == Some(&kind.into()));
        let time = known.as_ref().filter(|known| known.get("status") == Some(&status.into()));
        let time = time.and_then(|known| known.get("lastTransitionTime").cloned());
        let condition = json!({"type": kind, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": time.unwrap_or_else(|| now.into())});
        match known {
            Some(known) => *known = condition,
            None => conditions.push(condition),
        }
    }
    conditions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remains(objects: &[(&str, usize)], finalizers: &[(&str, usize)], failures: &[&str]) -> Remains {
        let counts =
            |list: &[(&str, usize)]| list.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        Remains {
            objects: counts(objects),
            finalizers: counts(finalizers),
            failures: failures.iter().map(|text| (*text).to_owned()).collect(),
        }
    }

    #[test]
    fn conditions_name_what_remains_in_upstreams_words() {
        for (case, left, expected) in [
            ("nothing", remains(&[], &[], &[]), vec![]),
            (
                "pods that stop",
                remains(&[("pods.", 2)], &[], &[]),
                vec![("SomeResourcesRemain", "Some resources are remaining: pods. has 2 resource instances")],
            ),
            (
                "finalizers",
                remains(&[("jobs.batch", 1), ("pods.", 1)], &[("example.com/a", 2)], &[]),
                vec![
                    (
                        "SomeResourcesRemain",
                        "Some resources are remaining: jobs.batch has 1 resource instances, pods. has 1 resource instances",
                    ),
                    (
                        "SomeFinalizersRemain",
                        "Some content in the namespace has finalizers remaining: example.com/a in 2 resource instances",
                    ),
                ],
            ),
            (
                "failures",
                remains(&[], &[], &["disk full"]),
                vec![(
                    "ContentDeletionFailed",
                    "Failed to delete all resource types, 1 remaining: disk full",
                )],
            ),
        ] {
            let conditions = left.conditions();
            let failed: Vec<_> = conditions
                .iter()
                .filter(|(_, failed, ..)| *failed)
                .map(|(_, _, reason, message)| (*reason, message.as_str()))
                .collect();
            assert_eq!(failed, expected, "{case}");
        }
    }

    #[test]
    fn a_condition_that_stays_keeps_its_time_and_those_of_others_stay() {
        let other = json!({"type": "Example", "status": "True"});
        let first = updated(std::slice::from_ref(&other), &remains(&[("pods.", 2)], &[], &[]), "then");
        assert_eq!(first.len(), 6);
        let second = updated(&first, &remains(&[("pods.", 1)], &[("a/b", 1)], &[]), "now");
        assert_eq!(second[0], other);
        for condition in &second[1..] {
            let is_new = condition["type"] == "NamespaceFinalizersRemaining";
            assert_eq!(condition["lastTransitionTime"], if is_new { "now" } else { "then" }, "{condition}");
        }
        assert!(second.iter().any(|c| c["message"].as_str().is_some_and(|m| m.contains("pods. has 1"))));
        assert_eq!(updated(&second, &remains(&[("pods.", 1)], &[("a/b", 1)], &[]), "later"), second);
    }
}
