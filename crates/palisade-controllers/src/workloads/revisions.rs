//! ControllerRevisions: the templates that a DaemonSet or StatefulSet has had, so that `kubectl rollout undo` finds them.
//!
//! Implements: `k8s.io/kubernetes/pkg/controller/history`. The names have another hash than upstream's, see `deployment::plan`; a
//! revision is found by its content.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::{Value, json};

use super::{
    context::{CONTROLLER_REVISIONS, Claim, Context, unreadable},
    deployment::plan::template_hash,
    events::MANAGER,
    kind::Kind,
    meta::{Key, controller_reference},
    object::{Object, is_equal},
};
use crate::api::{ApiError, Patch};

/// The label of pods with the revision that they have.
pub const HASH: &str = "controller-revision-hash";
/// A name is so long at most without its hash.
const LONGEST_PREFIX: usize = 223;

/// The content of a revision: a patch that brings the template back.
#[must_use]
pub fn content(owner: &Object) -> Value {
    let mut template = owner.at("/spec/template").clone();
    template["$patch"] = json!("replace");
    json!({"spec": {"template": template}})
}

fn number(revision: &Object) -> i64 {
    revision.count("/revision")
}

/// What is to be done about the revisions. Pure.
#[derive(Debug, Clone, PartialEq)]
pub enum RevisionChange {
    /// The current one is there.
    Keep(Arc<Object>),
    /// The current one is an older one, and gets a new number.
    Renumber(Arc<Object>, i64),
    /// A revision of this number is to be created.
    Create(i64),
}

/// Finds the revision of the template. Pure.
#[must_use]
pub fn change(owner: &Object, revisions: &[Arc<Object>]) -> RevisionChange {
    let wanted = content(owner);
    let (same, others): (Vec<_>, Vec<_>) =
        revisions.iter().partition(|revision| is_equal(revision.at("/data"), &wanted));
    let next = others.iter().map(|revision| number(revision)).max().unwrap_or_default() + 1;
    match same.into_iter().max_by_key(|revision| (number(revision), revision.meta.created)) {
        None => RevisionChange::Create(next),
        Some(found) if number(found) < next => RevisionChange::Renumber(found.clone(), next),
        Some(found) => RevisionChange::Keep(found.clone()),
    }
}

/// A new revision. Pure.
#[must_use]
pub fn new(kind: Kind, owner: &Object, number: i64) -> Value {
    let hash = template_hash(owner.at("/spec/template"), owner.int("/status/collisionCount"));
    let mut labels = owner.at("/spec/template/metadata/labels").as_object().cloned().unwrap_or_default();
    let key = if kind.kind == "DaemonSet" { HASH } else { "controller.kubernetes.io/hash" };
    labels.insert(key.to_owned(), json!(hash));
    let name = &owner.meta.name;
    let prefix = name.get(..LONGEST_PREFIX).unwrap_or(name);
    json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": format!("{prefix}-{hash}"),
        "namespace": owner.meta.namespace, "labels": labels, "annotations": owner.meta.annotations,
        "ownerReferences": [controller_reference(kind.api_version, kind.kind, &owner.meta)]},
        "data": content(owner), "revision": number})
}

/// The revisions beyond the limit that nothing has, the oldest ones. Pure.
#[must_use]
pub fn expired<'r>(owner: &Object, revisions: &'r [Arc<Object>], live: &BTreeSet<&str>) -> Vec<&'r Object> {
    let Some(limit) = owner.int("/spec/revisionHistoryLimit").and_then(|limit| usize::try_from(limit).ok())
    else {
        return Vec::new();
    };
    let is_live = |revision: &Object| {
        live.contains(&*revision.meta.name)
            || revision.meta.label(HASH).is_some_and(|hash| live.contains(hash))
    };
    let mut unused: Vec<&Object> =
        revisions.iter().map(AsRef::as_ref).filter(|revision| !is_live(revision)).collect();
    unused.sort_by_key(|revision| number(revision));
    unused.truncate(unused.len().saturating_sub(limit));
    unused
}

/// The revisions of an owner, adopted ones too.
pub async fn claim(context: &Context, claim: Claim<'_>) -> Result<Vec<Arc<Object>>, ApiError> {
    let owner = claim.about.meta;
    for revision in context.mirrors.revisions.without_controller(&owner.namespace) {
        let Some(change) = claim.change(&revision.meta) else { continue };
        let path = CONTROLLER_REVISIONS.object(Some(&owner.namespace), &revision.meta.name);
        match context.api.patch(&path, MANAGER, Patch::Strategic, &change).await {
            Ok(changed) => {
                context.mirrors.revisions.put(Object::of(changed).map_err(unreadable)?);
            }
            Err(error) if error.is_not_found() || error.is_conflict() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(context.mirrors.revisions.controlled_by(&owner.uid))
}

/// The revision of the template, which is created or gets a new number if need be.
pub async fn current(
    context: &Context,
    kind: Kind,
    owner: &Object,
    revisions: &[Arc<Object>],
) -> Result<Arc<Object>, ApiError> {
    let namespace = Some(&*owner.meta.namespace);
    let number = match change(owner, revisions) {
        RevisionChange::Keep(found) => return Ok(found),
        RevisionChange::Renumber(found, number) => {
            let mut object = found.value.clone();
            object["revision"] = json!(number);
            let path = CONTROLLER_REVISIONS.object(namespace, &found.meta.name);
            return context.replace(&context.mirrors.revisions, &path, &object).await;
        }
        RevisionChange::Create(number) => number,
    };
    let wanted = new(kind, owner, number);
    match context.api.create(&CONTROLLER_REVISIONS.collection(namespace), MANAGER, &wanted).await {
        Ok(made) => Ok(context.mirrors.revisions.put(Object::of(made).map_err(unreadable)?)),
        Err(error) if error.is_already_exists() => {
            // One of its own comes with the next event; another one is a collision, which changes the hash.
            let name = wanted["metadata"]["name"].as_str().unwrap_or_default();
            let taken = context.mirrors.revisions.get(&Key::new(&owner.meta.namespace, name));
            if taken.is_some_and(|taken| !taken.meta.is_controlled_by(&owner.meta.uid)) {
                let mut status = owner.at("/status").clone();
                status["collisionCount"] = json!(owner.count("/status/collisionCount") + 1);
                context.write_status(kind, owner, status).await?;
            }
            Err(error)
        }
        Err(error) => Err(error),
    }
}

/// Deletes revisions.
pub async fn delete(context: &Context, revisions: &[&Object]) -> Result<(), ApiError> {
    for revision in revisions {
        let path = CONTROLLER_REVISIONS.object(Some(&revision.meta.namespace), &revision.meta.name);
        context.api.delete(&path).await?;
        context.mirrors.revisions.forget(&revision.meta);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, sync::Arc};

    use serde_json::json;

    use super::{RevisionChange, change, expired, new};
    use crate::workloads::{kind::DAEMON_SET, object::Object};

    fn owner(image: &str) -> Object {
        Object::of(json!({"metadata": {"name": "d", "namespace": "n", "uid": "u"}, "spec": {"revisionHistoryLimit": 1,
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"image": image}}}}))
        .unwrap()
    }

    fn revision(image: &str, number: i64) -> Arc<Object> {
        Arc::new(Object::of(new(DAEMON_SET, &owner(image), number)).unwrap())
    }

    #[test]
    fn a_template_that_comes_back_gets_a_new_number() {
        let (a, b) = (revision("a", 1), revision("b", 2));
        for (case, image, known, expected) in [
            ("the first", "a", vec![], RevisionChange::Create(1)),
            ("no change", "b", vec![a.clone(), b.clone()], RevisionChange::Keep(b.clone())),
            ("a new one", "c", vec![a.clone(), b.clone()], RevisionChange::Create(3)),
            ("back", "a", vec![a.clone(), b], RevisionChange::Renumber(a, 3)),
        ] {
            assert_eq!(change(&owner(image), &known), expected, "{case}");
        }
    }

    #[test]
    fn the_history_keeps_what_pods_have() {
        let all = [revision("c", 3), revision("a", 1), revision("b", 2), revision("d", 4)];
        let name = |at: usize| all[at].meta.name.to_string();
        let live = [name(0), name(1)];
        let live: BTreeSet<&str> = live.iter().map(String::as_str).collect();
        let found = expired(&owner("c"), &all, &live);
        assert_eq!(found.iter().map(|one| one.meta.name.to_string()).collect::<Vec<_>>(), [name(2)]);
    }

    #[test]
    fn a_revision_is_a_patch_that_replaces_the_template() {
        let made = revision("a", 7);
        assert_eq!(made.at("/data/spec/template/$patch"), "replace");
        assert_eq!((made.count("/revision"), made.meta.label("a")), (7, Some("b")));
        assert_eq!(*made.meta.name, format!("d-{}", made.meta.label("controller-revision-hash").unwrap()));
    }
}
