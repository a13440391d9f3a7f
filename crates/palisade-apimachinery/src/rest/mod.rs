//! What happens around create and update: metadata the server owns, the kind's strategy, validation, warnings.
//!
//! Implements: `k8s.io/apiserver/pkg/registry/rest` (`BeforeCreate`, `BeforeUpdate`) and the checks the generic handlers
//! make on names and namespaces.
//! Leaves to others: storage, admission, and the security rules of pods ([`Extra`]).

pub mod meta;
pub mod names;
pub mod path;

use serde_json::{Map, Value};

use crate::apply::metadata_mut;
use crate::kinds;
use crate::scheme::{Body, Kind};
use crate::status::{GroupName, Result, Status};
use palisade_base::field_error::FieldError;
use path::{Errors, Get};

/// What a create needs from outside.
#[derive(Debug, Clone, Copy)]
pub struct CreateContext<'a> {
    /// The namespace of the request, empty for cluster-scoped kinds.
    pub namespace: &'a str,
    /// The time, RFC 3339 in UTC with seconds.
    pub now: &'a str,
    /// A fresh UUID.
    pub uid: &'a str,
    /// Five random characters for `generateName`; see [`GENERATED_ALPHABET`].
    pub suffix: &'a str,
}

/// The characters upstream generates names from: no vowels, so no words.
pub const GENERATED_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Field errors and warnings from rules outside this crate, put in where upstream reports them.
#[derive(Debug, Clone, Default)]
pub struct Extra {
    /// Errors about the pod spec or template, reported after those of this crate.
    pub errors: Vec<FieldError>,
    /// Warnings, reported before those of this crate.
    pub warnings: Vec<String>,
}

/// Removes what only the server may set, before admission sees a created object: upstream's
/// `WipeObjectMetaSystemFields`, plus the check that the namespace fits the request.
pub fn on_create_request(kind: &Kind, object: &mut Value, namespace: &str) -> Result<()> {
    if let Some(meta) = metadata_mut(object) {
        for field in
            ["creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"]
        {
            meta.remove(field);
        }
    }
    ensure_namespace(kind, object, namespace)
}

/// The namespace of the object must be that of the request; an empty one is filled in.
pub fn ensure_namespace(kind: &Kind, object: &mut Value, namespace: &str) -> Result<()> {
    let expected = if kind.namespaced { namespace } else { "" };
    let Some(meta) = metadata_mut(object) else { return Ok(()) };
    let found = meta.get("namespace").and_then(Value::as_str).unwrap_or_default();
    if found == expected {
        return Ok(());
    }
    if found.is_empty() {
        meta.insert("namespace".into(), expected.into());
        return Ok(());
    }
    if expected.is_empty() {
        // A namespace on a cluster-scoped object is dropped, as upstream does.
        meta.remove("namespace");
        return Ok(());
    }
    Err(wrong_namespace())
}

fn wrong_namespace() -> Box<Status> {
    Status::bad_request(
        "the namespace of the provided object does not match the namespace sent on the request",
    )
}

/// The name and namespace of the object must be those of the path.
pub fn check_name(object: &Value, name: &str, namespace: &str) -> Result<()> {
    let empty = Value::Null;
    let meta = object.get("metadata").unwrap_or(&empty);
    let found = meta.text("name");
    if found.is_empty() {
        return Err(Status::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )));
    }
    if found != name {
        return Err(Status::bad_request(format!(
            "the name of the object ({found}) does not match the name on the URL ({name})"
        )));
    }
    let found = meta.text("namespace");
    if !namespace.is_empty() && !found.is_empty() && found != namespace {
        return Err(wrong_namespace());
    }
    Ok(())
}

/// Sets the metadata of a new object, prepares and validates it; returns warnings for the client.
///
/// The object is defaulted, has its managed fields and has been through mutating admission.
pub fn before_create(
    kind: &Kind,
    object: &mut Value,
    context: &CreateContext<'_>,
    extra: &Extra,
) -> Result<Vec<String>> {
    ensure_namespace(kind, object, context.namespace)?;
    let Some(meta) = metadata_mut(object) else { return Err(Status::bad_request("object expected")) };
    meta.insert("creationTimestamp".into(), context.now.into());
    meta.insert("uid".into(), context.uid.into());
    meta.remove("deletionTimestamp");
    meta.remove("deletionGracePeriodSeconds");
    meta.remove("resourceVersion");
    generate_name(meta, context.suffix);
    let mut errors = Errors::new(kind.emulated);
    match &kind.body {
        Body::Builtin(builtin) => {
            (builtin.strategy.prepare_create)(object, kind.emulated);
            (builtin.strategy.validate)(object, kind, &mut errors);
        }
        Body::Custom(custom) => {
            custom.prepare_create(object);
            custom.validate(kind, object, &mut errors);
        }
    }
    errors.list.extend(extra.errors.iter().cloned());
    let name = object.at(&["metadata", "name"]).and_then(Value::as_str).unwrap_or_default();
    if errors.list.is_empty() {
        meta::validate_general(object, kind.namespaced, meta::NameRule::PathSegment, &mut errors);
    }
    if !errors.list.is_empty() {
        return Err(Status::invalid(kind.kind_name(), name, &errors.list, kind.emulated));
    }
    let mut warnings = extra.warnings.clone();
    warnings.extend(kinds::warnings(kind, object, None));
    settle(kind, object);
    Ok(warnings)
}

/// Upstream cuts the prefix so that the whole name has at most 63 characters.
fn generate_name(meta: &mut Map<String, Value>, suffix: &str) {
    const LONGEST_PREFIX: usize = 58;
    let text = |key: &str| meta.get(key).and_then(Value::as_str).unwrap_or_default();
    if !text("name").is_empty() || text("generateName").is_empty() {
        return;
    }
    let prefix = text("generateName");
    let mut end = prefix.len().min(LONGEST_PREFIX);
    while !prefix.is_char_boundary(end) {
        end -= 1;
    }
    let name = format!("{}{suffix}", &prefix[..end]);
    meta.insert("name".into(), name.into());
}

/// Carries over what an update cannot change, prepares and validates it; returns warnings for the client.
///
/// `object` is defaulted, has its managed fields and has been through mutating admission; `old` is what is stored.
/// `subresource` is empty for the object itself.
pub fn before_update(
    kind: &Kind,
    object: &mut Value,
    old: &Value,
    subresource: &str,
    extra: &Extra,
) -> Result<Vec<String>> {
    let namespace = old.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
    ensure_namespace(kind, object, namespace)?;
    carry(object, old, "generation", true);
    match &kind.body {
        Body::Builtin(builtin) => {
            (builtin.strategy.prepare_update)(object, old, subresource, kind.emulated);
        }
        Body::Custom(custom) => custom.prepare_update(object, old, subresource),
    }
    carry(object, old, "uid", false);
    carry(object, old, "creationTimestamp", true);
    if old.pointer("/metadata/deletionTimestamp").is_some() {
        carry(object, old, "deletionTimestamp", true);
        carry(object, old, "deletionGracePeriodSeconds", false);
    }
    let mut errors = Errors::new(kind.emulated);
    meta::validate_general(object, kind.namespaced, meta::NameRule::PathSegment, &mut errors);
    meta::validate_general_update(object, old, &mut errors);
    match &kind.body {
        Body::Builtin(builtin) => {
            (builtin.strategy.validate_update)(object, old, subresource, kind, &mut errors);
        }
        Body::Custom(custom) => custom.validate_update(kind, object, old, subresource, &mut errors),
    }
    errors.list.extend(extra.errors.iter().cloned());
    if !errors.list.is_empty() {
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        return Err(Status::invalid(own_kind(kind, object), name, &errors.list, kind.emulated));
    }
    let mut warnings = extra.warnings.clone();
    warnings.extend(kinds::warnings(kind, object, Some(old)));
    settle(kind, object);
    Ok(warnings)
}

/// Takes a metadata field from the old object: always, or only if the new one has none.
fn carry(object: &mut Value, old: &Value, field: &str, always: bool) {
    let stored = old.get("metadata").and_then(|m| m.get(field)).filter(|v| !v.is_null()).cloned();
    let Some(meta) = metadata_mut(object) else { return };
    match stored {
        Some(value) if always || meta.get(field).is_none_or(|v| v.is_null() || v.as_str() == Some("")) => {
            meta.insert(field.to_owned(), value);
        }
        None if always => {
            meta.remove(field);
        }
        _ => {}
    }
}

/// The form the object has after a trip through storage.
fn settle(kind: &Kind, object: &mut Value) {
    let Body::Builtin(builtin) = &kind.body else { return };
    kind.schema().canonicalize(object, kind.emulated, builtin.stored_as_protobuf());
    if kind.group == "batch" {
        // Reading back sets defaults again, and a job's labels default to those it was prepared with.
        // The built-in kinds of this group have no defaults that could make them too large.
        let _ = kind.default(object);
    }
}

/// Whether an update changes nothing, so that nothing is written and the resource version stays.
#[must_use]
pub fn is_noop(new: &Value, old: &Value) -> bool {
    new == old
}

/// A precondition of a request does not hold: upstream's text of a storage error.
#[must_use]
pub fn uid_precondition_failed(
    kind: &Kind,
    namespace: &str,
    name: &str,
    wanted: &str,
    found: &str,
) -> Box<Status> {
    let key = kinds::storage_key(kind, namespace, name);
    Status::conflict(
        kind.resource_name(),
        name,
        &format!(
            "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition \
             failed: UID in precondition: {wanted}, UID in object meta: {found}"
        ),
    )
}
/// The kind that an error names: that of the object itself, which a patch of a custom resource may have changed.
fn own_kind<'a>(kind: &'a Kind, object: &'a Value) -> GroupName<'a> {
    if !kind.is_custom() {
        return kind.kind_name();
    }
    let group = object.text("apiVersion").split_once('/').map_or("", |(group, _)| group);
    GroupName::new(group, object.text("kind"))
}
