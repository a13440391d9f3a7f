//! The built-in kinds: names, discovery facts, strategies.
//!
//! A kind is an entry of [`registry`]: a table row with a handful of functions. The functions live in a file per family.
//!
//! Implements: `k8s.io/kubernetes/pkg/registry/*/strategy.go`, `pkg/apis/*/v1/defaults.go` and `pkg/apis/*/validation`.

mod admission_policies;
mod amounts;
pub mod autoscaling;
mod batch;
mod certificates;
mod cluster;
mod config;
mod definitions;
mod infrastructure;
mod internal;
pub mod pod;
mod policy;
mod rbac;
mod registry;
pub mod service;
mod unified_diff;
mod webhooks;
mod workload;

use palisade_base::version::KubeVersion;
use serde_json::Value;

use crate::apply::ResetFields;
use crate::rest::meta::{self, NameRule};
use crate::rest::path::Errors;
use crate::schema::{Type, TypeKind, TypeRef, builtin};
use crate::scheme::{Body, Kind, Subresource};

pub use registry::{connect_kind, eviction_kind, registry, token_request_kind};
pub(crate) use registry::{converts_to, internal_package, is_registered, scale_kind};
pub(crate) use webhooks::REVIEW_VERSIONS;

/// A built-in kind.
#[derive(Debug)]
pub struct Builtin {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) singular: &'static str,
    pub(crate) short_names: &'static [&'static str],
    pub(crate) categories: &'static [&'static str],
    pub(crate) namespaced: bool,
    pub(crate) verbs: &'static [&'static str],
    pub(crate) subresources: &'static [Subresource],
    /// Name in the type table.
    pub(crate) type_name: &'static str,
    /// First release that serves it.
    pub(crate) since: u16,
    /// First release that does not serve it any more, 0 if all do.
    pub(crate) until: u16,
    /// Whether Palisade's extensions serve it after its last release.
    pub(crate) extended: bool,
    pub(crate) strategy: &'static Strategy,
    pub(crate) ty: std::sync::OnceLock<Type>,
}

type Defaults = fn(&mut Value, KubeVersion);
type PrepareCreate = fn(&mut Value, KubeVersion);
type PrepareUpdate = fn(&mut Value, &Value, &str, KubeVersion);
type Validate = fn(&Value, &Kind, &mut Errors);
type ValidateUpdate = fn(&Value, &Value, &str, &Kind, &mut Errors);

/// What is done with objects of a kind.
pub(crate) struct Strategy {
    pub(crate) default: Defaults,
    pub(crate) prepare_create: PrepareCreate,
    pub(crate) prepare_update: PrepareUpdate,
    pub(crate) validate: Validate,
    pub(crate) validate_update: ValidateUpdate,
    pub(crate) reset_fields: fn(&str) -> ResetFields,
}

impl std::fmt::Debug for Strategy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Strategy")
    }
}

impl Builtin {
    pub(crate) fn schema(&'static self) -> TypeRef<'static> {
        let ty = self.ty.get_or_init(|| {
            let id = builtin().by_name(self.type_name).map_or(usize::MAX, |(id, _)| id);
            Type::plain(TypeKind::Struct { id, atomic: false })
        });
        TypeRef { schema: builtin(), ty }
    }

    pub(crate) fn stored_as_protobuf(&self) -> bool {
        self.group != "apiextensions.k8s.io"
    }

    pub(crate) fn to_kind(&'static self, version: KubeVersion) -> Kind {
        let owned = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
        Kind {
            group: self.group.into(),
            version: self.version.into(),
            kind: self.kind.into(),
            list_kind: format!("{}List", self.kind),
            plural: self.plural.into(),
            singular: self.singular.into(),
            short_names: owned(self.short_names),
            categories: owned(self.categories),
            namespaced: self.namespaced,
            verbs: self.verbs.to_vec(),
            // Pods are resized in place by default since v1.33.
            subresources: self
                .subresources
                .iter()
                .filter(|subresource| subresource.name != "resize" || version.at_least(33))
                .cloned()
                .collect(),
            emulated: version,
            body: Body::Builtin(self),
            zero: std::sync::OnceLock::new(),
        }
    }
}

impl Kind {
    /// Which fields a write through the object or a subresource never owns.
    #[must_use]
    pub fn reset_fields(&self, subresource: &str) -> ResetFields {
        match &self.body {
            Body::Builtin(builtin) => (builtin.strategy.reset_fields)(subresource),
            Body::Custom(custom) => custom.reset_fields(subresource),
        }
    }

    /// Brings an edited object into canonical form.
    pub fn canonicalize(&self, object: &mut Value) {
        if let Body::Builtin(_) = &self.body {
            self.schema().canonicalize(object, self.emulated, false);
        }
    }
}

pub(crate) fn default(builtin: &Builtin, object: &mut Value, version: KubeVersion) {
    (builtin.strategy.default)(object, version);
}

/// Warnings a write gives about the object itself, apart from the security rules of pods.
pub(crate) fn warnings(kind: &Kind, object: &Value, old: Option<&Value>) -> Vec<String> {
    if kind.is_custom() && kind.emulated.at_least(31) {
        return meta::finalizer_warnings(object, old);
    }
    let of = |pointer: &str, named_after: bool| {
        pod::warnings::of_workload(object, old, pointer, named_after, kind.emulated)
    };
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Pod") => pod::warnings::of_pod(object, old, kind.emulated),
        ("", "PodTemplate") => of("/template", false),
        ("", "ReplicationController") | ("apps", "Deployment" | "ReplicaSet") | ("batch", "Job") => {
            of("/spec/template", true)
        }
        ("apps", "StatefulSet" | "DaemonSet") => of("/spec/template", false),
        ("batch", "CronJob") => of("/spec/jobTemplate/spec/template", true),
        _ => Vec::new(),
    }
}

/// The key upstream stores an object under; it shows in some errors.
#[must_use]
pub fn storage_key(kind: &Kind, namespace: &str, name: &str) -> String {
    let resource = match (kind.group.as_str(), kind.plural.as_str()) {
        ("", "nodes") => "minions".to_owned(),
        ("", "endpoints") => "services/endpoints".to_owned(),
        ("", "services") => "services/specs".to_owned(),
        ("", "replicationcontrollers") => "controllers".to_owned(),
        ("" | "apps" | "batch" | "rbac.authorization.k8s.io" | "coordination.k8s.io", plural) => {
            plural.to_owned()
        }
        ("events.k8s.io", _) => "events".to_owned(),
        (group, plural) => format!("{group}/{plural}"),
    };
    if kind.namespaced {
        format!("/registry/{resource}/{namespace}/{name}")
    } else {
        format!("/registry/{resource}/{name}")
    }
}

// Building blocks most strategies share.

pub(crate) fn no_default(_: &mut Value, _: KubeVersion) {}
pub(crate) fn no_prepare_create(_: &mut Value, _: KubeVersion) {}
pub(crate) fn no_prepare_update(_: &mut Value, _: &Value, _: &str, _: KubeVersion) {}
pub(crate) fn no_reset(_: &str) -> ResetFields {
    ResetFields::NONE
}

/// Metadata with DNS subdomain names, nothing else to check.
pub(crate) fn validate_meta_only(object: &Value, kind: &Kind, errors: &mut Errors) {
    meta::validate(object, kind.namespaced, NameRule::Subdomain, errors);
}

pub(crate) fn validate_update_meta_only(new: &Value, old: &Value, _: &str, _: &Kind, errors: &mut Errors) {
    meta::validate_update(new, old, errors);
}

/// Takes a top-level field from the old object.
pub(crate) fn keep(new: &mut Value, old: &Value, field: &str) {
    let Some(map) = new.as_object_mut() else { return };
    match old.get(field) {
        Some(value) => {
            map.insert(field.to_owned(), value.clone());
        }
        None => {
            map.remove(field);
        }
    }
}

/// Raises the generation where the given part of the object changed.
pub(crate) fn bump_generation(new: &mut Value, old: &Value, changed: bool) {
    if !changed {
        return;
    }
    let generation = old.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(0);
    if let Some(meta) = crate::apply::metadata_mut(new) {
        meta.insert("generation".into(), (generation.saturating_add(1)).into());
    }
}

/// The update of a kind with a spec and a status: each is written through its own path, and a new spec is a new generation.
pub(crate) fn update_spec_or_status(new: &mut Value, old: &Value, subresource: &str, _: KubeVersion) {
    if subresource == "status" {
        keep(new, old, "spec");
        return;
    }
    keep(new, old, "status");
    let changed = new.get("spec") != old.get("spec");
    bump_generation(new, old, changed);
}

pub(crate) fn set_generation(object: &mut Value) {
    if let Some(meta) = crate::apply::metadata_mut(object) {
        meta.insert("generation".into(), 1.into());
    }
}

/// A field of an object, made if it is missing.
pub(crate) fn section<'v>(value: &'v mut Value, key: &str) -> Option<&'v mut Value> {
    let map = value.as_object_mut()?;
    let entry = map.entry(key).or_insert_with(|| Value::Object(serde_json::Map::new()));
    if entry.is_null() {
        *entry = Value::Object(serde_json::Map::new());
    }
    Some(entry)
}

/// Sets a field that is missing or null.
pub(crate) fn set_default(value: &mut Value, key: &str, default: impl Into<Value>) {
    if let Some(map) = value.as_object_mut()
        && map.get(key).is_none_or(Value::is_null)
    {
        map.insert(key.to_owned(), default.into());
    }
}
