//! A structural schema as a type tree, for server-side apply.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use palisade_base::version::KubeVersion;
use serde_json::Value;

use super::JsonSchema;
use crate::decode::{Problems, read_typed};
use crate::schema::{Field, ListType, PatchStrategy, Schema, Struct, Type, TypeKind, TypeRef, builtin};
use crate::typed_object::{TypeError, convert};

/// Builds the tree; the root gets the fields every object has.
pub(super) fn from_structural(root: &Arc<JsonSchema>) -> (Schema, Type) {
    let mut builder = Builder::default();
    let ty = builder.object_type(root, true);
    (builder.schema, ty)
}

fn field(name: &str, ty: Type, default: Option<Value>) -> Field {
    Field {
        name: Cow::Owned(name.to_owned()),
        ty,
        omit_empty: true,
        omit_zero: false,
        required: false,
        merge_key: None,
        strategy: PatchStrategy::default(),
        default,
        since: 0,
        until: 0,
    }
}

#[derive(Default)]
struct Builder {
    schema: Schema,
    /// Levels that are shared become one struct.
    known: HashMap<*const JsonSchema, usize>,
}

impl Builder {
    fn object_type(&mut self, level: &Arc<JsonSchema>, is_resource: bool) -> Type {
        let known = self.known.get(&Arc::as_ptr(level)).filter(|_| !is_resource);
        if let Some(id) = known {
            return Type::plain(TypeKind::Struct { id: *id, atomic: false });
        }
        let mut fields: Vec<Field> = level
            .properties
            .iter()
            .filter(|(name, _)| !(is_resource && matches!(*name, "apiVersion" | "kind" | "metadata")))
            .map(|(name, inner)| field(name, self.type_of(inner), inner.default.clone()))
            .collect();
        if is_resource {
            for name in ["apiVersion", "kind"] {
                fields.push(field(name, Type::plain(TypeKind::String), None));
            }
            let meta = import("meta.ObjectMeta", &mut self.schema);
            fields.push(field("metadata", meta, None));
        }
        let mut new = Struct::new(Cow::Borrowed(""), level.map_type == "atomic", fields);
        new.preserve_unknown = level.preserve_unknown || level.additional_allowed;
        let id = self.schema.push(new);
        if !is_resource {
            self.known.insert(Arc::as_ptr(level), id);
        }
        Type::plain(TypeKind::Struct { id, atomic: false })
    }

    fn type_of(&mut self, level: &Arc<JsonSchema>) -> Type {
        if level.int_or_string {
            return Type::plain(TypeKind::IntOrString);
        }
        match level.kind.as_str() {
            "object" => {
                if level.embedded_resource {
                    return self.object_type(level, true);
                }
                if level.properties.is_empty()
                    && let Some(additional) = &level.additional
                {
                    let item = self.type_of(additional);
                    return Type::plain(TypeKind::Map {
                        item: Box::new(item),
                        atomic: level.map_type == "atomic",
                    });
                }
                if level.properties.is_empty() && level.map_type != "atomic" {
                    return Type::plain(TypeKind::Any);
                }
                self.object_type(level, false)
            }
            "array" => {
                let item =
                    level.items.as_ref().map_or(Type::plain(TypeKind::Any), |items| self.type_of(items));
                let list = match level.list_type.as_str() {
                    "set" => ListType::Set,
                    "map" => ListType::Map(level.list_map_keys.iter().cloned().map(Cow::Owned).collect()),
                    _ => ListType::Atomic,
                };
                Type::plain(TypeKind::List { item: Box::new(item), list })
            }
            "string" => Type::plain(TypeKind::String),
            "boolean" => Type::plain(TypeKind::Bool),
            "integer" => Type::plain(TypeKind::Int(64)),
            "number" => Type::plain(TypeKind::Float),
            _ => Type::plain(TypeKind::Any),
        }
    }
}

/// Copies a built-in struct, and those it refers to, into another schema.
fn import(name: &str, schema: &mut Schema) -> Type {
    if let Some((id, _)) = schema.by_name(name) {
        return Type::plain(TypeKind::Struct { id, atomic: false });
    }
    let Some((_, source)) = builtin().by_name(name) else { return Type::plain(TypeKind::Any) };
    let fields = source
        .fields
        .iter()
        .map(|f| Field {
            name: f.name.clone(),
            ty: import_type(&f.ty, schema),
            omit_empty: f.omit_empty,
            omit_zero: f.omit_zero,
            required: f.required,
            merge_key: f.merge_key.clone(),
            strategy: f.strategy,
            default: f.default.clone(),
            since: f.since,
            until: f.until,
        })
        .collect();
    let id = schema.push(Struct::new(source.name.clone(), source.atomic, fields));
    Type::plain(TypeKind::Struct { id, atomic: false })
}

fn import_type(ty: &Type, schema: &mut Schema) -> Type {
    let kind = match &ty.kind {
        TypeKind::Struct { id, atomic } => {
            let name = builtin().get(*id).map_or("", |s| &s.name);
            match import(name, schema).kind {
                TypeKind::Struct { id, .. } => TypeKind::Struct { id, atomic: *atomic },
                other => other,
            }
        }
        TypeKind::List { item, list } => {
            TypeKind::List { item: Box::new(import_type(item, schema)), list: list.clone() }
        }
        TypeKind::Map { item, atomic } => {
            TypeKind::Map { item: Box::new(import_type(item, schema)), atomic: *atomic }
        }
        other => other.clone(),
    };
    Type { pointer: ty.pointer, kind, go_name: ty.go_name }
}

/// The type of metadata.
static OBJECT_META: LazyLock<Option<Type>> = LazyLock::new(|| {
    let (id, _) = builtin().by_name("meta.ObjectMeta")?;
    Some(Type::plain(TypeKind::Struct { id, atomic: false }))
});

/// Metadata that was read.
pub(super) struct Metadata {
    /// In Go's form, without what is malformed.
    pub(super) value: Value,
    /// The first malformed field, in the words of Go's JSON decoder.
    pub(super) error: Option<String>,
}

/// Reads metadata as Go would; unknown fields are noted.
pub(super) fn read_metadata(
    value: Value,
    path: &str,
    version: KubeVersion,
    strict: &mut Vec<String>,
) -> Metadata {
    let Some(ty) = &*OBJECT_META else { return Metadata { value, error: None } };
    let of = TypeRef { schema: builtin(), ty };
    let mut problems = Problems::new(version);
    let (read, failed) = match read_typed(of, value, &mut problems) {
        Ok(read) => (read, None),
        Err(error) => (Value::Null, Some(error.to_string())),
    };
    strict.extend(problems.strict.into_iter().map(|text| text.replacen('"', &format!("\"{path}."), 1)));
    let value = if read.is_object() { read } else { Value::Object(serde_json::Map::new()) };
    Metadata { value, error: failed.or(problems.error) }
}

/// Metadata that must be in order.
pub(super) fn convert_metadata(value: Value, version: KubeVersion) -> Result<Value, TypeError> {
    let Some(ty) = &*OBJECT_META else { return Ok(value) };
    let read = convert(TypeRef { schema: builtin(), ty }, value, version)?;
    Ok(if read.is_object() { read } else { Value::Object(serde_json::Map::new()) })
}
