//! OpenAPI v2 and v3: enough for `kubectl explain`, completion, and what clients check before they write.
//!
//! Implements: <https://kubernetes.io/docs/concepts/overview/kubernetes-api/#openapi-interface-definition>. Both are
//! made from the type table, so they say exactly what decoding accepts. Descriptions are our own and few.

mod describe;
mod paths;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::schema::{JSON, ListType, Schema, Struct, Type, TypeKind, builtin};
use crate::scheme::{Body, Kind};
use crate::version::KubeVersion;

/// Which document is written: they differ in where references lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    V2,
    V3,
}

impl Dialect {
    fn reference(self, name: &str) -> String {
        match self {
            Self::V2 => format!("#/definitions/{name}"),
            Self::V3 => format!("#/components/schemas/{name}"),
        }
    }
}

/// The OpenAPI v2 document of all kinds.
#[must_use]
pub fn v2(kinds: &[Arc<Kind>], version: KubeVersion) -> Value {
    let writer = Writer::new(Dialect::V2, version);
    let definitions = writer.definitions(kinds.iter().map(AsRef::as_ref));
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": format!("{version}.0")},
        "paths": paths::all(kinds, Dialect::V2),
        "definitions": definitions,
    })
}

/// Where the OpenAPI v3 documents are: `api/v1`, `apis/apps/v1`, …
#[must_use]
pub fn v3_paths(kinds: &[Arc<Kind>]) -> Vec<String> {
    let mut out: Vec<String> = kinds.iter().map(|k| group_path(k)).collect();
    out.sort();
    out.dedup();
    out
}

pub(crate) fn group_path(kind: &Kind) -> String {
    if kind.group.is_empty() {
        format!("api/{}", kind.version)
    } else {
        format!("apis/{}/{}", kind.group, kind.version)
    }
}

/// The OpenAPI v3 document at one of [`v3_paths`].
#[must_use]
pub fn v3(kinds: &[Arc<Kind>], path: &str, version: KubeVersion) -> Option<Value> {
    let own: Vec<Arc<Kind>> = kinds.iter().filter(|k| group_path(k) == path).cloned().collect();
    if own.is_empty() {
        return None;
    }
    let writer = Writer::new(Dialect::V3, version);
    let schemas = writer.definitions(own.iter().map(AsRef::as_ref));
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": format!("{version}.0")},
        "paths": paths::all(&own, Dialect::V3),
        "components": {"schemas": schemas},
    }))
}

/// The definition name of a kind: `io.k8s.api.core.v1.Pod`, `com.example.v1.Widget`.
pub(crate) fn kind_name(kind: &Kind) -> String {
    match &kind.body {
        Body::Builtin(builtin) => struct_name(builtin.type_name),
        Body::Custom(_) => {
            let mut parts: Vec<&str> = kind.group.split('.').collect();
            parts.reverse();
            format!("{}.{}.{}", parts.join("."), kind.version, kind.kind)
        }
    }
}

/// `core.PodSpec` to `io.k8s.api.core.v1.PodSpec`.
fn struct_name(name: &str) -> String {
    let (package, short) = name.split_once('.').unwrap_or(("", name));
    match package {
        "meta" => format!("io.k8s.apimachinery.pkg.apis.meta.v1.{short}"),
        "apiextensions" => format!("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.{short}"),
        "psp" => format!("io.k8s.api.policy.v1beta1.{short}"),
        "scheduling" => format!("io.k8s.api.scheduling.v1alpha3.{short}"),
        package => format!("io.k8s.api.{package}.v1.{short}"),
    }
}

const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
const TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Time";
const MICRO_TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime";
const LIST_META: &str = "meta.ListMeta";

struct Writer {
    dialect: Dialect,
    version: KubeVersion,
    schema: &'static Schema,
}

impl Writer {
    fn new(dialect: Dialect, version: KubeVersion) -> Self {
        Self { dialect, version, schema: builtin() }
    }

    fn definitions<'k>(&self, kinds: impl Iterator<Item = &'k Kind>) -> Map<String, Value> {
        let mut out = BTreeMap::new();
        for (name, schema) in [
            (QUANTITY, json!({"type": "string"})),
            (INT_OR_STRING, json!({"type": "string", "format": "int-or-string"})),
            (TIME, json!({"type": "string", "format": "date-time"})),
            (MICRO_TIME, json!({"type": "string", "format": "date-time"})),
        ] {
            out.insert(name.to_owned(), schema);
        }
        self.add_named("meta.ObjectMeta", &mut out);
        self.add_named(LIST_META, &mut out);
        self.add_named("meta.DeleteOptions", &mut out);
        self.add_named("meta.Status", &mut out);
        for kind in kinds {
            let name = kind_name(kind);
            match &kind.body {
                Body::Builtin(builtin) => self.add_named(builtin.type_name, &mut out),
                Body::Custom(custom) => {
                    out.insert(name.clone(), self.custom(&custom.raw_schema));
                }
            }
            let gvk = json!([{"group": kind.group, "version": kind.version, "kind": kind.kind}]);
            if let Some(Value::Object(definition)) = out.get_mut(&name) {
                definition.insert("x-kubernetes-group-version-kind".into(), gvk);
                if !kind.is_custom()
                    && let Some(text) = describe::kind(&kind.group, &kind.kind)
                {
                    definition.insert("description".into(), text.into());
                }
            }
            if kind.verbs.contains(&"list") {
                out.insert(format!("{name}List"), self.list(kind, &name));
            }
        }
        out.into_iter().collect()
    }

    fn list(&self, kind: &Kind, name: &str) -> Value {
        json!({
            "type": "object",
            "description": format!("A list of {} objects.", kind.kind),
            "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "metadata": self.reference(&struct_name(LIST_META)),
                "items": {"type": "array", "items": self.reference(name)},
            },
            "x-kubernetes-group-version-kind": [
                {"group": kind.group, "version": kind.version, "kind": kind.list_kind}
            ],
        })
    }

    fn reference(&self, name: &str) -> Value {
        json!({"$ref": self.dialect.reference(name)})
    }

    fn custom(&self, raw: &Value) -> Value {
        let mut schema = match raw {
            Value::Object(map) => map.clone(),
            _ => Map::from_iter([("type".to_owned(), "object".into())]),
        };
        let meta = self.reference(&struct_name("meta.ObjectMeta"));
        let properties = schema.entry("properties").or_insert_with(|| Value::Object(Map::new()));
        if let Some(properties) = properties.as_object_mut() {
            properties.entry("apiVersion").or_insert_with(|| json!({"type": "string"}));
            properties.entry("kind").or_insert_with(|| json!({"type": "string"}));
            properties.insert("metadata".into(), meta);
        }
        Value::Object(schema)
    }

    fn add_named(&self, name: &str, out: &mut BTreeMap<String, Value>) {
        if let Some((_, s)) = self.schema.by_name(name) {
            self.add(s, out);
        }
    }

    fn add(&self, s: &Struct, out: &mut BTreeMap<String, Value>) {
        let name = struct_name(&s.name);
        if out.contains_key(&name) {
            return;
        }
        // Types may contain themselves; the place is taken before the fields are looked at.
        out.insert(name.clone(), Value::Null);
        let mut properties = Map::new();
        let mut required = Vec::new();
        for field in s.fields.iter().filter(|f| f.exists_in(self.version)) {
            let mut property = self.property(&field.ty, out);
            if let Value::Object(map) = &mut property {
                if let Some(text) = describe::field(&s.name, &field.name) {
                    wrap_reference(map, self.dialect);
                    map.insert("description".into(), text.into());
                }
                if let Some(default) = &field.default {
                    map.insert("default".into(), default.clone());
                }
                Self::extensions(&field.ty, field.merge_key.as_deref(), field.strategy, map);
            }
            properties.insert(field.name.to_string(), property);
            if field.required {
                required.push(Value::from(&*field.name));
            }
        }
        let mut definition = Map::new();
        definition.insert("type".into(), "object".into());
        if let Some(text) = describe::structure(&s.name) {
            definition.insert("description".into(), text.into());
        }
        if !properties.is_empty() {
            definition.insert("properties".into(), Value::Object(properties));
        }
        if !required.is_empty() {
            definition.insert("required".into(), Value::Array(required));
        }
        if s.atomic {
            definition.insert("x-kubernetes-map-type".into(), "atomic".into());
        }
        out.insert(name, Value::Object(definition));
    }

    fn extensions(
        ty: &Type,
        merge_key: Option<&str>,
        strategy: crate::schema::PatchStrategy,
        map: &mut Map<String, Value>,
    ) {
        match &ty.kind {
            TypeKind::List { list, .. } => {
                let text = match list {
                    ListType::Atomic => "atomic",
                    ListType::Set => "set",
                    ListType::Map(keys) => {
                        map.insert(
                            "x-kubernetes-list-map-keys".into(),
                            keys.iter().map(|k| Value::from(&**k)).collect(),
                        );
                        "map"
                    }
                };
                map.insert("x-kubernetes-list-type".into(), text.into());
            }
            TypeKind::Struct { atomic: true, .. } | TypeKind::Map { atomic: true, .. } => {
                map.insert("x-kubernetes-map-type".into(), "atomic".into());
            }
            _ => {}
        }
        if let Some(key) = merge_key {
            map.insert("x-kubernetes-patch-merge-key".into(), key.into());
        }
        let strategies: Vec<&str> =
            [("merge", strategy.merge), ("retainKeys", strategy.retain_keys), ("replace", strategy.replace)]
                .into_iter()
                .filter_map(|(name, set)| set.then_some(name))
                .collect();
        if !strategies.is_empty() {
            map.insert("x-kubernetes-patch-strategy".into(), strategies.join(",").into());
        }
    }

    fn property(&self, ty: &Type, out: &mut BTreeMap<String, Value>) -> Value {
        match &ty.kind {
            TypeKind::Any if ty.go_name == JSON => json!({}),
            TypeKind::Any => json!({"type": "object"}),
            TypeKind::String => json!({"type": "string"}),
            TypeKind::Bool => json!({"type": "boolean"}),
            TypeKind::Int(bits) => json!({"type": "integer", "format": format!("int{bits}")}),
            TypeKind::Float => json!({"type": "number", "format": "double"}),
            TypeKind::Bytes => json!({"type": "string", "format": "byte"}),
            TypeKind::Quantity => self.reference(QUANTITY),
            TypeKind::IntOrString => self.reference(INT_OR_STRING),
            TypeKind::Time => self.reference(TIME),
            TypeKind::MicroTime => self.reference(MICRO_TIME),
            TypeKind::SchemaOr => json!({}),
            TypeKind::Struct { id, .. } => match self.schema.structs.get(*id) {
                Some(s) => {
                    self.add(s, out);
                    self.reference(&struct_name(&s.name))
                }
                None => json!({"type": "object"}),
            },
            TypeKind::List { item, .. } => json!({"type": "array", "items": self.property(item, out)}),
            TypeKind::Map { item, .. } => {
                json!({"type": "object", "additionalProperties": self.property(item, out)})
            }
        }
    }
}

/// Nothing may stand beside a `$ref` in v3, so it moves into `allOf`.
fn wrap_reference(map: &mut Map<String, Value>, dialect: Dialect) {
    if dialect == Dialect::V3
        && let Some(reference) = map.remove("$ref")
    {
        map.insert("allOf".into(), json!([{"$ref": reference}]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::LATEST;

    #[test]
    fn every_reference_leads_somewhere() {
        fn references(value: &Value, out: &mut Vec<String>) {
            match value {
                Value::Object(map) => {
                    if let Some(Value::String(text)) = map.get("$ref") {
                        out.push(text.clone());
                    }
                    map.values().for_each(|v| references(v, out));
                }
                Value::Array(items) => items.iter().for_each(|v| references(v, out)),
                _ => {}
            }
        }
        let mut documents = vec![("v2".to_owned(), v2(LATEST.kinds(), KubeVersion::LATEST))];
        for path in v3_paths(LATEST.kinds()) {
            let document = v3(LATEST.kinds(), &path, KubeVersion::LATEST).unwrap();
            documents.push((path, document));
        }
        for (name, document) in documents {
            let mut all = Vec::new();
            references(&document, &mut all);
            assert!(!all.is_empty(), "{name}");
            for reference in all {
                let pointer = reference.trim_start_matches('#');
                assert!(document.pointer(pointer).is_some_and(Value::is_object), "{name}: {reference}");
            }
        }
    }

    #[test]
    fn fields_follow_the_release() {
        let document = v2(LATEST.kinds(), KubeVersion::minor(29));
        let context = &document["definitions"]["io.k8s.api.core.v1.SecurityContext"]["properties"];
        assert!(context.get("seccompProfile").is_some());
        assert!(context.get("appArmorProfile").is_none(), "came with v1.30");
    }
}
