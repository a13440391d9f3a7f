//! Removes an object: at once, after its grace period, or when its finalizers have done their work.
//!
//! Implements: Kubernetes API Concepts, "Resource deletion", and Garbage Collection, "Cascading deletion".
//! <https://kubernetes.io/docs/concepts/architecture/garbage-collection/#cascading-deletion>

use std::sync::Arc;

use palisade_apimachinery::status::GroupName;
use palisade_apimachinery::{Kind, Status};
use serde_json::{Value, json};

use crate::api::{Api, Call};
use crate::conversion::{self, FormError};
use crate::http::{Reply, negotiate};
use crate::meta;
use crate::options::{DeleteOptions, Propagation, WriteOptions};
use crate::registry::Entry;
use crate::render;
use crate::storage::{CommitError, Expect, Object};
use crate::strategy;
use crate::verbs::write::{self, Writer, unavailable};

/// Dependents keep living.
pub const ORPHAN: &str = "orphan";
/// Dependents go first.
pub const FOREGROUND: &str = "foregroundDeletion";

/// What became of the object.
#[derive(Debug)]
pub enum Deleted {
    /// It is gone; this was its last state.
    Gone(Value),
    /// It is on its way out.
    Pending(Value),
}

/// Reads the options from body or query.
pub fn options(call: &Call<'_>) -> Result<DeleteOptions, Box<Status>> {
    if call.body.is_empty() {
        return DeleteOptions::parse(call.query, None, call.api.version);
    }
    let body = write::delete_options(call)?;
    DeleteOptions::parse(call.query, Some(&body), call.api.version)
}

/// Answers with what became of the object.
pub async fn delete(call: &Call<'_>, entry: &Arc<Entry>) -> Result<Reply, Box<Status>> {
    let output = render::output(call, entry)?;
    let options = options(call)?;
    let mut writer = Writer::new(call, entry, "", WriteOptions::without_body(options.dry_run));
    let key = entry.key(&call.info.namespace, &call.info.name);
    let deleted = delete_object(call.api, entry, &key, &options, Some(&mut writer)).await;
    match deleted {
        Ok(Deleted::Gone(object)) if !strategy::returns_deleted_object(&entry.kind) => {
            let name = meta::meta_text(&object, "name");
            let status = Status::deleted(entry.kind.resource_name(), name, meta::meta_text(&object, "uid"));
            let mut reply = if output.encoding == negotiate::Encoding::Json && !output.pretty {
                Reply::json(200, &status)
            } else {
                let output = negotiate::Output { form: negotiate::Form::Object, ..output };
                render::document(200, &json!(status), output)
            };
            writer.annotate(&mut reply);
            Ok(reply)
        }
        Ok(Deleted::Gone(object)) => {
            let mut reply = render::value(200, entry, &object, output, call.query);
            writer.annotate(&mut reply);
            Ok(reply)
        }
        Ok(Deleted::Pending(object)) => {
            // A client that used the old field to wait for dependents gets 202 until they are gone.
            let code = if options.orphan_dependents == Some(false) { 202 } else { 200 };
            let mut reply = render::value(code, entry, &object, output, call.query);
            writer.annotate(&mut reply);
            Ok(reply)
        }
        Err(status) => Ok(writer.error(status)),
    }
}

/// Removes an object, or begins to. A request of a client passes admission through its `writer`.
pub async fn delete_object(
    api: &Api,
    entry: &Entry,
    key: &str,
    options: &DeleteOptions,
    mut writer: Option<&mut Writer<'_>>,
) -> Result<Deleted, Box<Status>> {
    let kind = &entry.kind;
    let name = key.rsplit('/').next().unwrap_or(key);
    // Others may write while we read: their change must not be lost, so it is all done again.
    for _ in 0..64 {
        let Some(stored) = entry.bucket.get(key) else {
            return Err(Status::not_found(kind.resource_name(), name));
        };
        check_preconditions(kind, &stored, options)?;
        let live = if let Some(writer) = writer.as_deref_mut() {
            let presented = conversion::present(api, entry, stored.clone()).await;
            let live = entry.typed(presented.map_err(FormError::into_status)?.parse());
            writer.admit_delete(name, &live).await?;
            live
        } else {
            // The server itself needs no other version than the one that is stored.
            entry.as_stored(&stored)
        };
        match step(api, entry, key, &stored, live, options).await {
            Ok(deleted) => return Ok(deleted),
            Err(CommitError::Conflict | CommitError::Exists) => {}
            Err(error) => return Err(unavailable(&error)),
        }
    }
    Err(Status::modified(kind.resource_name(), name))
}

fn check_preconditions(kind: &Kind, stored: &Object, options: &DeleteOptions) -> Result<(), Box<Status>> {
    let conflict = |why: String| {
        // Upstream names the kind here, not the resource.
        Err(Status::conflict(GroupName::new(&kind.group, &kind.kind), stored.name(), &why))
    };
    if let Some(uid) = &options.uid
        && uid != stored.uid()
    {
        return conflict(format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been \
             deleted and then recreated",
            stored.uid()
        ));
    }
    if let Some(version) = &options.resource_version
        && *version != stored.revision.to_string()
    {
        return conflict(format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). \
             The object might have been modified",
            stored.revision
        ));
    }
    Ok(())
}

async fn step(
    api: &Api,
    entry: &Entry,
    key: &str,
    stored: &Arc<Object>,
    mut object: Value,
    options: &DeleteOptions,
) -> Result<Deleted, CommitError> {
    if entry.kind.group.is_empty() && entry.kind.plural == "namespaces" {
        return delete_namespace(api, entry, key, stored, object, options).await;
    }
    let is_definition = &**entry.bucket.name() == crate::registry::CRDS;
    if is_definition && !meta::is_deleting(&object) {
        crate::crd::begin_deletion(&mut object);
        return mark(api, entry, key, stored, object, options).await;
    }
    let graceful = if entry.kind.group.is_empty() && entry.kind.plural == "pods" {
        grace(&mut object, options)
    } else {
        Grace::None
    };
    if let Grace::AlreadyPending = graceful {
        return Ok(Deleted::Pending(object));
    }
    let finalizers = wanted_finalizers(&object, options);
    let changes_finalizers = finalizers != meta::finalizers(&object);
    meta::set_finalizers(&mut object, &finalizers);
    if let Grace::Set(seconds) = graceful {
        let stays = seconds > 0 || !finalizers.is_empty();
        if options.dry_run {
            return Ok(if stays { Deleted::Pending(object) } else { Deleted::Gone(object) });
        }
        let marked = write::commit(api, entry, key, Expect::Revision(stored.revision), object, false).await?;
        if stays {
            return Ok(Deleted::Pending(entry.typed(marked.parse())));
        }
        return remove(api, entry, key, &marked, entry.typed(marked.parse())).await;
    }
    if !finalizers.is_empty() {
        if meta::is_deleting(&object) && !changes_finalizers {
            return Ok(Deleted::Pending(object));
        }
        mark_as_deleting(&mut object);
        return mark(api, entry, key, stored, object, options).await;
    }
    if options.dry_run {
        return Ok(Deleted::Gone(object));
    }
    remove(api, entry, key, stored, object).await
}

async fn mark(
    api: &Api,
    entry: &Entry,
    key: &str,
    stored: &Object,
    object: Value,
    options: &DeleteOptions,
) -> Result<Deleted, CommitError> {
    if options.dry_run {
        return Ok(Deleted::Pending(object));
    }
    let version = api_version(&object);
    let marked = write::commit(api, entry, key, Expect::Revision(stored.revision), object, false).await?;
    Ok(Deleted::Pending(shown(api, entry, marked, &version).await?))
}

/// What is stored in the version that was requested.
async fn shown(api: &Api, entry: &Entry, stored: Arc<Object>, version: &str) -> Result<Value, CommitError> {
    if version != entry.kind.api_version() {
        return Ok(entry.as_stored(&stored));
    }
    Ok(entry.typed(conversion::present(api, entry, stored).await?.parse()))
}

fn api_version(object: &Value) -> String {
    object.get("apiVersion").and_then(Value::as_str).unwrap_or_default().to_owned()
}

async fn remove(
    api: &Api,
    entry: &Entry,
    key: &str,
    stored: &Object,
    object: Value,
) -> Result<Deleted, CommitError> {
    let version = api_version(&object);
    let last = write::commit(api, entry, key, Expect::Revision(stored.revision), object, true).await?;
    Ok(Deleted::Gone(shown(api, entry, last, &version).await?))
}

/// Whether and how a pod stops gracefully.
enum Grace {
    /// It does not: the object just goes.
    None,
    /// It is already being deleted, and nothing changes.
    AlreadyPending,
    /// It has this many seconds to stop, from now.
    Set(i64),
}

fn grace(pod: &mut Value, options: &DeleteOptions) -> Grace {
    if meta::is_deleting(pod) {
        let current = pod.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64);
        let Some(current) = current.filter(|seconds| *seconds != 0) else { return Grace::None };
        let Some(wanted) = options.grace_period_seconds.filter(|wanted| *wanted < current) else {
            return Grace::AlreadyPending;
        };
        let until = meta::meta_text(pod, "deletionTimestamp").to_owned();
        meta::edit_metadata(pod, |metadata| {
            let sooner = meta::time_after(&until, wanted.saturating_sub(current));
            metadata.insert("deletionTimestamp".to_owned(), sooner.into());
            metadata.insert("deletionGracePeriodSeconds".to_owned(), wanted.into());
        });
        return Grace::Set(wanted);
    }
    let specified = pod.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64);
    let mut seconds = options.grace_period_seconds.or(specified).unwrap_or(30);
    let unbound = pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default().is_empty();
    let phase = pod.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
    // It does not run, or it has ended: there is nothing to wait for.
    if unbound || matches!(phase, "Failed" | "Succeeded") {
        seconds = 0;
    }
    if seconds < 0 {
        seconds = 1;
    }
    meta::edit_metadata(pod, |metadata| {
        let at = meta::time_after(&meta::now(), seconds);
        metadata.insert("deletionTimestamp".to_owned(), at.into());
        metadata.insert("deletionGracePeriodSeconds".to_owned(), seconds.into());
        if let Some(generation) = metadata.get("generation").and_then(Value::as_i64) {
            metadata.insert("generation".to_owned(), generation.saturating_add(1).into());
        }
    });
    Grace::Set(seconds)
}

/// Begins the deletion of an object that has finalizers.
fn mark_as_deleting(object: &mut Value) {
    let first = !meta::is_deleting(object);
    meta::edit_metadata(object, |metadata| {
        if first {
            metadata.insert("deletionTimestamp".to_owned(), meta::now().into());
            if let Some(generation) = metadata.get("generation").and_then(Value::as_i64).filter(|g| *g > 0) {
                metadata.insert("generation".to_owned(), generation.saturating_add(1).into());
            }
        }
        metadata.insert("deletionGracePeriodSeconds".to_owned(), 0.into());
    });
}

/// The finalizers that the client's options for dependents lead to.
fn wanted_finalizers(object: &Value, options: &DeleteOptions) -> Vec<String> {
    let present = meta::finalizers(object);
    let has = |name: &str| present.iter().any(|f| f == name);
    let (orphan, foreground) = match options.propagation {
        Some(Propagation::Orphan) => (true, false),
        Some(Propagation::Foreground) => (false, true),
        Some(Propagation::Background) => (false, false),
        None => (has(ORPHAN), has(FOREGROUND)),
    };
    let mut wanted: Vec<String> = present.into_iter().filter(|f| f != ORPHAN && f != FOREGROUND).collect();
    if orphan {
        wanted.push(ORPHAN.to_owned());
    }
    if foreground {
        wanted.push(FOREGROUND.to_owned());
    }
    wanted
}

/// A namespace stays until its content has gone.
async fn delete_namespace(
    api: &Api,
    entry: &Entry,
    key: &str,
    stored: &Object,
    mut object: Value,
    options: &DeleteOptions,
) -> Result<Deleted, CommitError> {
    if !meta::is_deleting(&object) {
        meta::edit_metadata(&mut object, |metadata| {
            metadata.insert("deletionTimestamp".to_owned(), meta::now().into());
        });
        if let Some(namespace) = object.as_object_mut() {
            let status = namespace.entry("status").or_insert_with(|| json!({}));
            if let Some(status) = status.as_object_mut() {
                status.insert("phase".to_owned(), "Terminating".into());
            }
        }
        return mark(api, entry, key, stored, object, options).await;
    }
    let content = object.pointer("/spec/finalizers").and_then(Value::as_array);
    if content.is_some_and(|finalizers| !finalizers.is_empty()) || !meta::finalizers(&object).is_empty() {
        return Ok(Deleted::Pending(object));
    }
    if options.dry_run {
        return Ok(Deleted::Gone(object));
    }
    remove(api, entry, key, stored, object).await
}
