//! OpenAPI v2 and v3: enough for `kubectl explain`, completion, and what clients check before they write.
//!
//! Implements: <https://kubernetes.io/docs/concepts/overview/kubernetes-api/#openapi-interface-definition>. Both are
//! made from the type table, so they describe exactly what decoding accepts. Descriptions are our own and few.

mod custom;
mod describe;
mod paths;

use std::collections::BTreeMap;
use std::sync::Arc;

use palisade_base::version::KubeVersion;
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::schema::{JSON, ListType, Schema, Struct, Type, TypeKind, builtin};
use crate::scheme::{Body, Kind};

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

/// A document, ready to be written. Schemas of custom kinds are copied from the text of their definitions.
#[derive(Debug)]
pub struct Document<'k> {
    dialect: Dialect,
    version: KubeVersion,
    paths: Map<String, Value>,
    definitions: BTreeMap<String, Fragment<'k>>,
}

/// A part of a document.
#[derive(Debug)]
enum Fragment<'k> {
    Value(Value),
    Text(&'k RawValue),
    Object(BTreeMap<String, Fragment<'k>>),
}

impl Serialize for Fragment<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Value(value) => value.serialize(serializer),
            Self::Text(text) => text.serialize(serializer),
            Self::Object(map) => map.serialize(serializer),
        }
    }
}

impl Document<'_> {
    fn info(&self) -> Value {
        json!({"title": "Kubernetes", "version": self.version.git_version()})
    }

    /// The document without its definitions.
    #[must_use]
    pub fn outline(&self) -> Value {
        json!({"swagger": "2.0", "info": self.info(), "paths": self.paths})
    }

    /// The definitions, one at a time: all of them together may be large.
    pub fn definitions(&self) -> impl Iterator<Item = (&str, Value)> {
        let value = |fragment| serde_json::to_value(fragment).unwrap_or_default();
        self.definitions.iter().map(move |(name, fragment)| (name.as_str(), value(fragment)))
    }
}

impl Serialize for Document<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self.dialect {
            Dialect::V2 => map.serialize_entry("definitions", &self.definitions)?,
            Dialect::V3 => {
                map.serialize_entry("components", &BTreeMap::from([("schemas", &self.definitions)]))?;
            }
        }
        map.serialize_entry("info", &self.info())?;
        if self.dialect == Dialect::V3 {
            map.serialize_entry("openapi", "3.0.0")?;
        }
        map.serialize_entry("paths", &self.paths)?;
        if self.dialect == Dialect::V2 {
            map.serialize_entry("swagger", "2.0")?;
        }
        map.end()
    }
}

/// The OpenAPI v2 document of all kinds.
#[must_use]
pub fn v2(kinds: &[Arc<Kind>], version: KubeVersion) -> Document<'_> {
    Writer::new(Dialect::V2, version).document(kinds, Writer::custom)
}

/// The OpenAPI v3 document of the kinds of one group version.
#[must_use]
pub fn v3(kinds: &[Arc<Kind>], version: KubeVersion) -> Document<'_> {
    Writer::new(Dialect::V3, version).document(kinds, Writer::custom)
}

/// The same with something small in the place of each custom schema. Two documents differ exactly if their outlines do,
/// given that `schema` distinguishes schemas.
#[must_use]
pub fn v3_outline(
    kinds: &[Arc<Kind>],
    version: KubeVersion,
    schema: impl Fn(&Kind) -> Value,
) -> Document<'_> {
    let outline = |kind: &Kind| json!([schema(kind), kind.selectable_fields().collect::<Vec<_>>()]);
    Writer::new(Dialect::V3, version).document(kinds, |_, kind| Fragment::Value(outline(kind)))
}

/// Where the OpenAPI v3 document with a kind is: `api/v1`, `apis/apps/v1`, …
#[must_use]
pub fn group_path(kind: &Kind) -> String {
    if kind.group.is_empty() {
        format!("api/{}", kind.version)
    } else {
        format!("apis/{}/{}", kind.group, kind.version)
    }
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
        "autoscalingv2" => format!("io.k8s.api.autoscaling.v2.{short}"),
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

const GVK: &str = "x-kubernetes-group-version-kind";
const SELECTABLE: &str = "x-kubernetes-selectable-fields";

fn group_version_kind(kind: &Kind) -> Value {
    json!([{"group": kind.group, "version": kind.version, "kind": kind.kind}])
}

/// The members of an object, each as text.
fn members(source: &[u8]) -> Option<BTreeMap<String, Fragment<'_>>> {
    let members: BTreeMap<String, &RawValue> = serde_json::from_slice(source).ok()?;
    Some(members.into_iter().map(|(name, text)| (name, Fragment::Text(text))).collect())
}

/// What clients find beside a custom schema.
fn add_extensions<'k>(kind: &'k Kind, schema: &mut BTreeMap<String, Fragment<'k>>) {
    schema.insert(GVK.to_owned(), Fragment::Value(group_version_kind(kind)));
    if let Some(fields) = selectable(kind) {
        schema.insert(SELECTABLE.to_owned(), Fragment::Value(fields));
    }
}

/// The fields that lists of a custom kind can be selected by.
fn selectable(kind: &Kind) -> Option<Value> {
    let fields = kind.selectable_fields().map(|field| json!({"fieldPath": field}));
    let fields: Vec<Value> = fields.filter(|_| kind.is_custom()).collect();
    (!fields.is_empty()).then(|| fields.into())
}

fn values<'k>(map: Map<String, Value>) -> BTreeMap<String, Fragment<'k>> {
    map.into_iter().map(|(name, value)| (name, Fragment::Value(value))).collect()
}

struct Writer {
    dialect: Dialect,
    version: KubeVersion,
    schema: &'static Schema,
}

impl Writer {
    fn new(dialect: Dialect, version: KubeVersion) -> Self {
        Self { dialect, version, schema: builtin() }
    }

    fn document<'k>(
        &self,
        kinds: &'k [Arc<Kind>],
        custom: impl Fn(&Self, &'k Kind) -> Fragment<'k>,
    ) -> Document<'k> {
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
        let mut own = BTreeMap::new();
        for kind in kinds {
            let name = kind_name(kind);
            match &kind.body {
                Body::Builtin(builtin) => {
                    self.add_named(builtin.type_name, &mut out);
                    if let Some(Value::Object(definition)) = out.get_mut(&name) {
                        definition.insert(GVK.into(), group_version_kind(kind));
                        if let Some(text) = describe::kind(&kind.group, &kind.kind) {
                            definition.insert("description".into(), text.into());
                        }
                    }
                }
                Body::Custom(_) => {
                    own.insert(name.clone(), custom(self, kind));
                }
            }
            if kind.verbs.contains(&"list") {
                out.insert(format!("{name}List"), self.list(kind, &name));
            }
        }
        let mut definitions: BTreeMap<String, Fragment<'k>> =
            out.into_iter().map(|(name, value)| (name, Fragment::Value(value))).collect();
        definitions.extend(own);
        let paths = paths::all(kinds, self.dialect);
        Document { dialect: self.dialect, version: self.version, paths, definitions }
    }

    fn list(&self, kind: &Kind, name: &str) -> Value {
        let mut list = json!({
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
        });
        if let Some(fields) = selectable(kind) {
            list[SELECTABLE] = fields;
        }
        list
    }

    fn reference(&self, name: &str) -> Value {
        json!({"$ref": self.dialect.reference(name)})
    }

    /// The schema of a custom kind: its text, with the fields every object has.
    fn custom<'k>(&self, kind: &'k Kind) -> Fragment<'k> {
        let source = match &kind.body {
            Body::Custom(custom) => custom.source(),
            Body::Builtin(_) => &[],
        };
        let plain = || BTreeMap::from([("type".to_owned(), Fragment::Value("object".into()))]);
        let mut schema: BTreeMap<String, Fragment<'k>> = members(source).unwrap_or_else(plain);
        // Clients of v2 would reject every field that is not listed.
        let free = self.dialect == Dialect::V2
            && matches!(schema.get("x-kubernetes-preserve-unknown-fields"), Some(Fragment::Text(text)) if text.get() == "true");
        if free || source.is_empty() {
            let mut schema = plain();
            add_extensions(kind, &mut schema);
            return Fragment::Object(schema);
        }
        if let Some(Value::Object(published)) = custom::published(self.dialect, source) {
            schema = values(published);
        }
        let given = match schema.remove("properties") {
            Some(Fragment::Text(text)) => members(text.get().as_bytes()),
            Some(Fragment::Value(Value::Object(map))) => Some(values(map)),
            _ => None,
        };
        let mut properties = given.unwrap_or_default();
        properties.extend(custom::header(self.dialect).map(|(name, value)| (name, Fragment::Value(value))));
        schema.insert("properties".to_owned(), Fragment::Object(properties));
        add_extensions(kind, &mut schema);
        Fragment::Object(schema)
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
            TypeKind::Struct { id, .. } => match self.schema.get(*id) {
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

    fn custom() -> Vec<Arc<Kind>> {
        let schema = json!({"type": "object", "description": "what people read", "properties": {
            "metadata": {"type": "object"}, "spec": {"type": "object", "properties": {"a": {"type": "string"}}}}});
        let definition = json!({"spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "schema": {"openAPIV3Schema": schema}},
                         {"name": "v2", "served": true}]}});
        let text = definition.to_string().into();
        crate::crd::Definition::read(&text, KubeVersion::LATEST, None).unwrap().kinds
    }

    #[test]
    fn custom_schemas_get_the_fields_every_object_has() {
        let kinds = custom();
        let document = serde_json::to_value(v2(&kinds, KubeVersion::LATEST)).unwrap();
        let described = |field: &str| describe::field("", field).unwrap();
        let text = |field: &str| json!({"type": "string", "description": described(field)});
        let meta = "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
        let meta = json!({"$ref": meta, "description": described("metadata")});
        let common = json!({"apiVersion": text("apiVersion"), "kind": text("kind"), "metadata": meta});
        let mut with_spec = common.clone();
        with_spec["spec"] = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        let gvk = |version: &str| json!([{"group": "example.com", "version": version, "kind": "Widget"}]);
        for (version, expected) in [
            (
                "v1",
                json!({"type": "object", "description": "what people read", "properties": with_spec, GVK: gvk("v1")}),
            ),
            ("v2", json!({"type": "object", GVK: gvk("v2")})),
        ] {
            assert_eq!(document["definitions"][format!("com.example.{version}.Widget")], expected);
        }
    }

    #[test]
    fn outlines_differ_exactly_where_documents_do() {
        let kinds = custom();
        let text = |kinds: &[Arc<Kind>], mark: &str| {
            serde_json::to_string(&v3_outline(kinds, KubeVersion::LATEST, |_| mark.into())).unwrap()
        };
        assert_eq!(text(&kinds[..1], "a"), text(&custom()[..1], "a"));
        assert_ne!(text(&kinds[..1], "a"), text(&kinds[..1], "b"));
        assert_ne!(text(&kinds[..1], "a"), text(&kinds[1..], "a"));
        assert_ne!(text(&kinds, "a"), text(&kinds[1..], "a"));
    }

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
        let value = |document: Document<'_>| serde_json::to_value(document).unwrap();
        let mut documents = vec![("v2".to_owned(), value(v2(LATEST.kinds(), KubeVersion::LATEST)))];
        let mut groups: BTreeMap<String, Vec<Arc<Kind>>> = BTreeMap::new();
        for kind in LATEST.kinds().iter().cloned().chain(custom()) {
            groups.entry(group_path(&kind)).or_default().push(kind);
        }
        for (path, kinds) in groups {
            documents.push((path, value(v3(&kinds, KubeVersion::LATEST))));
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
        let document = serde_json::to_value(v2(LATEST.kinds(), KubeVersion::v1(29))).unwrap();
        let context = &document["definitions"]["io.k8s.api.core.v1.SecurityContext"]["properties"];
        assert!(context.get("seccompProfile").is_some());
        assert!(context.get("appArmorProfile").is_none(), "came with v1.30");
    }
}
