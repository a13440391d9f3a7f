//! Validation of `metadata`: names, namespaces, labels, annotations, owners, finalizers.
//!
//! Implements: `k8s.io/apimachinery/pkg/api/validation/objectmeta.go`.

use palisade_base::field_error::BadValue;
use palisade_base::field_path::Path;
use palisade_base::go;
use serde_json::Value;

use super::names;
use super::path::{Errors, Get};

/// Which names a kind allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// DNS subdomain: most kinds.
    Subdomain,
    /// DNS label (RFC 1123): namespaces.
    Label,
    /// Whatever fits into a path: RBAC.
    PathSegment,
    /// DNS label (RFC 1035): services.
    Label1035,
    /// An IP address in its canonical form.
    Address,
}

impl NameRule {
    fn check(self, name: &str, prefix: bool) -> names::Messages {
        let masked;
        let name = if prefix && ![Self::PathSegment, Self::Address].contains(&self) {
            masked = names::masked_prefix(name);
            &masked
        } else {
            name
        };
        match self {
            Self::Subdomain => names::dns1123_subdomain(name),
            Self::Label => names::dns1123_label(name),
            Self::Label1035 => names::dns1035_label(name),
            Self::PathSegment => names::path_segment(name),
            Self::Address => names::address(name),
        }
    }
}

/// Checks the metadata of an object of a built-in kind: the general rules, and that finalizers without a domain are
/// those of Kubernetes.
pub fn validate(object: &Value, namespaced: bool, rule: NameRule, errors: &mut Errors) {
    validate_general(object, namespaced, rule, errors);
    validate_finalizer_domains(object, errors);
}

/// Checks how metadata of a built-in kind changed.
pub fn validate_update(new: &Value, old: &Value, errors: &mut Errors) {
    validate_general_update(new, old, errors);
    validate_finalizer_domains(new, errors);
}

const STANDARD_FINALIZERS: &[&str] = &["kubernetes", "orphan", "foregroundDeletion"];

fn validate_finalizer_domains(object: &Value, errors: &mut Errors) {
    let Some(meta) = object.get("metadata") else { return };
    let at = Path::Root("metadata");
    let list_at = at.field("finalizers");
    for (i, finalizer) in meta.list("finalizers").iter().enumerate() {
        let name = finalizer.as_str().unwrap_or_default();
        if !name.contains('/') && !STANDARD_FINALIZERS.contains(&name) {
            errors.invalid(
                &list_at.index(i),
                name,
                "name is neither a standard finalizer name nor is it fully qualified",
            );
        }
    }
}

/// Warnings about finalizers of custom objects that may collide with those of others; only new ones count.
#[must_use]
pub fn finalizer_warnings(object: &Value, old: Option<&Value>) -> Vec<String> {
    let list =
        |object: &Value| object.get("metadata").map_or_else(Vec::new, |m| m.list("finalizers").to_vec());
    let before = old.map_or_else(Vec::new, list);
    list(object)
        .iter()
        .filter(|f| !before.contains(f))
        .filter_map(Value::as_str)
        .filter(|name| !name.contains('/') && !STANDARD_FINALIZERS.contains(name))
        .map(|name| {
            format!(
                "metadata.finalizers: {}: prefer a domain-qualified finalizer name including a path (/) to avoid \
                 accidental conflicts with other finalizer writers",
                go::quote(name)
            )
        })
        .collect()
}

/// Checks what holds for the metadata of every object.
pub fn validate_general(object: &Value, namespaced: bool, rule: NameRule, errors: &mut Errors) {
    let empty = Value::Null;
    let meta = object.get("metadata").unwrap_or(&empty);
    let at = Path::Root("metadata");
    let prefix = meta.text("generateName");
    if !prefix.is_empty() {
        errors.format(&at.field("generateName"), prefix, rule.check(prefix, true));
    }
    let name = meta.text("name");
    if name.is_empty() {
        errors.required(&at.field("name"), "name or generateName is required");
    } else {
        errors.format(&at.field("name"), name, rule.check(name, false));
    }
    let namespace = meta.text("namespace");
    if namespaced {
        if namespace.is_empty() {
            errors.required(&at.field("namespace"), "");
        } else {
            errors.format(&at.field("namespace"), namespace, names::dns1123_label(namespace));
        }
    } else if !namespace.is_empty() {
        errors.forbidden(&at.field("namespace"), "not allowed on this type");
    }
    errors.non_negative(&at.field("generation"), meta.int("generation"));
    validate_labels(meta, "labels", &at, errors);
    validate_annotations(meta, &at, errors);
    validate_owners(meta, &at, errors);
    validate_finalizers(meta, &at, errors);
    validate_managed_fields(meta, &at, errors);
}

/// Checks what holds for changes of the metadata of every object.
pub fn validate_general_update(new: &Value, old: &Value, errors: &mut Errors) {
    let empty = Value::Null;
    let (new, old) = (new.get("metadata").unwrap_or(&empty), old.get("metadata").unwrap_or(&empty));
    let at = Path::Root("metadata");
    if old.child("deletionTimestamp").is_some() {
        let mut extra: Vec<&str> = new
            .list("finalizers")
            .iter()
            .filter(|f| !old.list("finalizers").contains(f))
            .filter_map(Value::as_str)
            .collect();
        extra.sort_unstable();
        extra.dedup();
        if !extra.is_empty() {
            let list: Vec<String> = extra.iter().map(|f| go::quote(f)).collect();
            errors.forbidden(
                &at.field("finalizers"),
                format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers \
                     []string{{{}}}",
                    list.join(", ")
                ),
            );
        }
    }
    if new.text("resourceVersion").is_empty() {
        errors.invalid(&at.field("resourceVersion"), "", "must be specified for an update");
    }
    let generation = (new.int("generation").unwrap_or(0), old.int("generation").unwrap_or(0));
    if generation.0 < generation.1 {
        errors.invalid(&at.field("generation"), generation.0, "must not be decremented");
    }
    for field in
        ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"]
    {
        errors.immutable(&at.field(field), new.get(field), old.get(field));
    }
    validate_labels(new, "labels", &at, errors);
    validate_annotations(new, &at, errors);
    validate_owners(new, &at, errors);
    validate_managed_fields(new, &at, errors);
}

/// Checks a map of labels.
pub fn validate_labels(owner: &Value, field: &str, at: &Path<'_>, errors: &mut Errors) {
    for (key, value) in owner.entries(field) {
        let version = errors.version;
        errors.format(&at.field(field), key, names::qualified_name(key, version));
        let value = value.as_str().unwrap_or_default();
        errors.format(&at.field(field), value, names::label_value(value, version));
    }
}

/// The most bytes all annotations of an object may have together.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;

/// Checks annotations: keys are compared in lower case, values are free.
pub fn validate_annotations(owner: &Value, at: &Path<'_>, errors: &mut Errors) {
    let mut size = 0usize;
    for (key, value) in owner.entries("annotations") {
        let version = errors.version;
        let messages = names::qualified_name(&key.to_lowercase(), version);
        errors.format(&at.field("annotations"), key, messages);
        size = size.saturating_add(key.len() + value.as_str().map_or(0, str::len));
    }
    if size > ANNOTATIONS_LIMIT {
        errors.too_long(&at.field("annotations"), ANNOTATIONS_LIMIT);
    }
}

fn validate_owners(meta: &Value, at: &Path<'_>, errors: &mut Errors) {
    let at = at.field("ownerReferences");
    let owners = meta.list("ownerReferences");
    let mut controller: Option<String> = None;
    for owner in owners {
        let api_version = owner.text("apiVersion");
        let version = api_version.rsplit('/').next().unwrap_or_default();
        if version.is_empty() {
            errors.invalid(&at.field("apiVersion"), api_version, "version must not be empty");
        }
        for field in ["kind", "name", "uid"] {
            if owner.text(field).is_empty() {
                errors.invalid(&at.field(field), "", "must not be empty");
            }
        }
        if api_version == "v1" && owner.text("kind") == "Event" {
            errors.invalid(
                &at,
                BadValue::ordered(owner, OWNER_FIELDS),
                "/v1, Kind=Event is disallowed from being an owner",
            );
        }
        if owner.flag("controller") == Some(true) {
            let this = format!("{}/{}", owner.text("kind"), owner.text("name"));
            match &controller {
                Some(first) => errors.invalid(
                    &at,
                    shown_owners(owners),
                    format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for \
                         {first} and {this}"
                    ),
                ),
                None => controller = Some(this),
            }
        }
    }
}

const OWNER_FIELDS: &[&str] = &["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];

/// Owner references with their fields in upstream's order.
fn shown_owners(owners: &[Value]) -> BadValue {
    let shown: Vec<String> = owners.iter().map(|owner| go::ordered_json(owner, OWNER_FIELDS)).collect();
    BadValue::Plain(format!("[{}]", shown.join(",")))
}

fn validate_finalizers(meta: &Value, at: &Path<'_>, errors: &mut Errors) {
    let at = at.field("finalizers");
    let finalizers = meta.list("finalizers");
    for finalizer in finalizers {
        let text = finalizer.as_str().unwrap_or_default();
        let version = errors.version;
        errors.format(&at, text, names::qualified_name(text, version));
    }
    let has = |name: &str| finalizers.iter().any(|f| f.as_str() == Some(name));
    if has("orphan") && has("foregroundDeletion") {
        errors.invalid(
            &at,
            BadValue::Json(Value::Array(finalizers.to_vec())),
            "finalizer orphan and foregroundDeletion cannot be both set",
        );
    }
}

fn validate_managed_fields(meta: &Value, at: &Path<'_>, errors: &mut Errors) {
    let at = at.field("managedFields");
    for (i, entry) in meta.list("managedFields").iter().enumerate() {
        let at = at.index(i);
        let operation = entry.text("operation");
        if operation != "Apply" && operation != "Update" {
            errors.invalid(&at.field("operation"), operation, "must be `Apply` or `Update`");
        }
        let fields_type = entry.text("fieldsType");
        if !fields_type.is_empty() && fields_type != "FieldsV1" {
            errors.invalid(&at.field("fieldsType"), fields_type, "must be `FieldsV1`");
        }
        validate_field_manager(entry.text("manager"), &at.field("manager"), errors);
        if entry.text("subresource").len() > 256 {
            errors.too_long(&at.field("subresource"), 256);
        }
    }
}

/// Checks a manager's name: the `fieldManager` parameter.
pub fn validate_field_manager(name: &str, at: &Path<'_>, errors: &mut Errors) {
    if name.len() > 128 {
        errors.too_long(at, 128);
    }
    for (position, c) in name.char_indices() {
        if c == ' ' || c.is_ascii_graphic() {
            continue;
        }
        let quoted = go::quote(&c.to_string());
        if quoted.contains("\\x") || quoted.contains("\\u") || (c.is_control()) {
            let value = u32::from(c);
            errors.invalid(at, name, format!("invalid character U+{value:04X} (at position {position})"));
        }
    }
}
