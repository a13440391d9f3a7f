//! Custom resource definitions and the kinds they define.
//!
//! Implements: `k8s.io/apiextensions-apiserver` (structural schemas, pruning, defaulting, validation, subresources,
//! printer columns), <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/>.
//! Leaves to others: CEL rules (`x-kubernetes-validations` are stored and not evaluated) and conversion webhooks.

pub mod establish;
mod jsonpath;
mod openapi_schema;
mod prune;
mod rule_checks;
pub(crate) mod rules;
pub(crate) mod structural;
mod typed;
mod validate;

use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value};

use crate::apply::ResetFields;
use crate::decode::{self, Decoded, FieldValidation, Problems, read_untyped, syntax_error};
use crate::go;
use crate::rest::meta::{self, NameRule};
use crate::rest::path::{Errors, Get, Path};
use crate::schema::{Schema, Type, TypeRef};
use crate::scheme::{Body, Kind, Subresource};
use crate::status::{Result, Status};
use crate::version::KubeVersion;

pub use jsonpath::JsonPath;
pub(crate) use openapi_schema::JsonSchema;

/// A printed column of a custom kind.
#[derive(Debug, Clone)]
pub struct Column {
    /// Heading.
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub kind: String,
    /// OpenAPI format.
    pub format: String,
    /// Explanation.
    pub description: String,
    /// 0 is always shown.
    pub priority: i64,
    /// Where the value is.
    pub path: JsonPath,
}

/// A version of a custom kind.
#[derive(Debug)]
pub struct CustomKind {
    pub(crate) root: JsonSchema,
    pub(crate) raw_schema: Value,
    typed: Schema,
    ty: Type,
    has_status: bool,
    pub(crate) scale: Option<ScalePaths>,
    pub(crate) columns: Vec<Column>,
    pub(crate) selectable: Vec<JsonPath>,
    /// The rules written as expressions; read when they are needed first, because reading them takes its time.
    expressions: OnceLock<Option<rules::Validator>>,
    /// Objects are stored in another version's schema; only its name matters here.
    pub(crate) deprecation_warning: Option<String>,
}

/// Where a custom kind keeps its scale.
#[derive(Debug, Clone)]
pub(crate) struct ScalePaths {
    pub(crate) spec_replicas: String,
    pub(crate) status_replicas: String,
    pub(crate) label_selector: String,
}

const VERBS: &[&str] = &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

/// The kinds a definition defines: one for each served version, in the order of the definition.
#[must_use]
pub fn kinds(definition: &Value, version: KubeVersion) -> Vec<Arc<Kind>> {
    let empty = Value::Null;
    let spec = definition.get("spec").unwrap_or(&empty);
    let names = spec.get("names").unwrap_or(&empty);
    let list = |key: &str| names.list(key).iter().filter_map(Value::as_str).map(str::to_owned).collect();
    spec.list("versions")
        .iter()
        .filter(|v| v.flag("served") == Some(true))
        .map(|v| {
            let custom = CustomKind::new(v, spec.text("group"));
            let mut subresources = Vec::new();
            let verbs = &["get", "patch", "update"];
            if custom.scale.is_some() {
                subresources.push(Subresource {
                    name: "scale",
                    group: "autoscaling",
                    version: "v1",
                    kind: "Scale",
                    verbs,
                });
            }
            if custom.has_status {
                subresources.push(Subresource { name: "status", group: "", version: "", kind: "", verbs });
            }
            Arc::new(Kind {
                group: spec.text("group").to_owned(),
                version: v.text("name").to_owned(),
                kind: names.text("kind").to_owned(),
                list_kind: names.text("listKind").to_owned(),
                plural: names.text("plural").to_owned(),
                singular: names.text("singular").to_owned(),
                short_names: list("shortNames"),
                categories: list("categories"),
                namespaced: spec.text("scope") == "Namespaced",
                verbs: VERBS.to_vec(),
                subresources,
                emulated: version,
                body: Body::Custom(Box::new(custom)),
                zero: OnceLock::new(),
            })
        })
        .collect()
}

impl Kind {
    /// The warning clients of a deprecated custom version get with every answer.
    #[must_use]
    pub fn deprecation_warning(&self) -> Option<String> {
        match &self.body {
            Body::Custom(custom) => custom.deprecation_warning.clone(),
            Body::Builtin(_) => None,
        }
    }

    /// The OpenAPI v3 schema of a custom kind, as written in its definition.
    #[must_use]
    pub fn custom_schema(&self) -> Option<&Value> {
        match &self.body {
            Body::Custom(custom) => Some(&custom.raw_schema),
            Body::Builtin(_) => None,
        }
    }
}

impl CustomKind {
    fn new(version: &Value, group: &str) -> Self {
        let empty = Value::Null;
        let raw_schema = version.pointer("/schema/openAPIV3Schema").cloned().unwrap_or(Value::Null);
        let root = JsonSchema::read(&raw_schema);
        let (typed, ty) = typed::from_structural(&root);
        let subresources = version.get("subresources").unwrap_or(&empty);
        let scale = subresources.child("scale").map(|s| ScalePaths {
            spec_replicas: s.text("specReplicasPath").to_owned(),
            status_replicas: s.text("statusReplicasPath").to_owned(),
            label_selector: s.text("labelSelectorPath").to_owned(),
        });
        let columns: Vec<Column> = version
            .list("additionalPrinterColumns")
            .iter()
            .map(|c| Column {
                name: c.text("name").to_owned(),
                kind: c.text("type").to_owned(),
                format: c.text("format").to_owned(),
                description: c.text("description").to_owned(),
                priority: c.int("priority").unwrap_or(0),
                path: JsonPath::parse(c.text("jsonPath")),
            })
            .collect();
        let selectable =
            version.list("selectableFields").iter().map(|f| JsonPath::parse(f.text("jsonPath"))).collect();
        let deprecation_warning = (version.flag("deprecated") == Some(true)).then(|| {
            let own = version.text("deprecationWarning");
            if own.is_empty() {
                format!("{group}/{} is deprecated", version.text("name"))
            } else {
                own.to_owned()
            }
        });
        Self {
            root,
            raw_schema,
            typed,
            ty,
            has_status: subresources.child("status").is_some(),
            scale,
            columns,
            selectable,
            expressions: OnceLock::new(),
            deprecation_warning,
        }
    }

    pub(crate) fn schema(&self) -> TypeRef<'_> {
        TypeRef { schema: &self.typed, ty: &self.ty }
    }

    pub(crate) fn default(&self, object: &mut Value) {
        prune::default(&self.root, object);
    }

    pub(crate) fn reset_fields(&self, subresource: &str) -> ResetFields {
        match (self.has_status, subresource) {
            (true, "") => ResetFields::Exclude(&[&["status"]]),
            (true, "status") => ResetFields::Exclude(&[&["spec"], &["metadata"]]),
            _ => ResetFields::NONE,
        }
    }

    pub(crate) fn decode(&self, kind: &Kind, body: &[u8], validation: FieldValidation) -> Result<Decoded> {
        let unrecognized = |why: &str| {
            Status::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error: \
                 {why} ({})",
                kind.kind,
                decode::summarize(body)
            ))
        };
        let mut problems = Problems::new(kind.emulated);
        let mut input = serde_json::Deserializer::from_slice(body);
        let value = read_untyped(&mut input, &mut problems)
            .and_then(|value| input.end().map(|()| value))
            .map_err(|e| unrecognized(&syntax_error(body, &e.to_string())))?;
        let Value::Object(_) = value else {
            return Err(unrecognized(&format!(
                "json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \
                 \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
                go::json_type(&value)
            )));
        };
        self.finish(kind, value, problems.strict, validation, body)
    }

    pub(crate) fn decode_value(
        &self,
        kind: &Kind,
        body: Value,
        duplicates: &[String],
        validation: FieldValidation,
    ) -> Result<Decoded> {
        let strict = duplicates.to_vec();
        let text = body.to_string();
        self.finish(kind, body, strict, validation, text.as_bytes())
    }

    fn finish(
        &self,
        kind: &Kind,
        mut object: Value,
        mut strict: Vec<String>,
        validation: FieldValidation,
        body: &[u8],
    ) -> Result<Decoded> {
        let (api_version, name) = (object.text("apiVersion").to_owned(), object.text("kind").to_owned());
        if name.is_empty() || api_version.is_empty() {
            let field = if name.is_empty() { "Kind" } else { "apiVersion" };
            return Err(Status::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): Object '{field}' is missing in '{}' ({})",
                kind.kind,
                String::from_utf8_lossy(body),
                decode::summarize(body)
            )));
        }
        if api_version != kind.api_version() {
            return Err(Status::bad_request(format!(
                "the API version in the data ({api_version}) does not match the expected API version ({})",
                kind.api_version()
            )));
        }
        self.clean(&mut object, &mut strict, kind.emulated);
        let version = kind.version.as_str();
        let warnings = decode::settle(&strict, validation, |list| {
            Status::bad_request(format!(
                "{name} in version {} cannot be handled as a {}: strict decoding error: {}",
                go::quote(version),
                kind.kind,
                list.join(", ")
            ))
        })?;
        Ok(Decoded { object, warnings })
    }

    /// A patched object: the same cleaning, without the header checks.
    pub(crate) fn decode_patched(
        &self,
        kind: &Kind,
        mut object: Value,
        mut strict: Vec<String>,
        validation: FieldValidation,
    ) -> Result<Decoded> {
        let shown = object.to_string();
        self.clean(&mut object, &mut strict, kind.emulated);
        let warnings = decode::settle(&strict, validation, |list| {
            let error = crate::status::FieldError::invalid(
                "patch",
                shown,
                format!("strict decoding error: {}", list.join(", ")),
            );
            Status::invalid(crate::status::GroupName::default(), "", &[error], kind.emulated)
        })?;
        Ok(Decoded { object, warnings })
    }

    /// Brings the metadata into Go's form and drops unknown fields.
    fn clean(&self, object: &mut Value, strict: &mut Vec<String>, version: KubeVersion) {
        if let Some(meta) = object.get_mut("metadata") {
            let taken = meta.take();
            *meta = typed::clean_metadata(taken, "metadata", version, strict);
        }
        whole_numbers(object);
        let mut unknown = Vec::new();
        prune::prune(&self.root, object, &mut unknown);
        unknown.sort();
        strict.extend(unknown.into_iter().map(|path| format!("unknown field {}", go::quote(&path))));
    }

    pub(crate) fn prepare_create(&self, object: &mut Value) {
        if self.has_status
            && let Some(map) = object.as_object_mut()
        {
            map.remove("status");
        }
        crate::kinds::set_generation(object);
    }

    pub(crate) fn prepare_update(&self, new: &mut Value, old: &Value, subresource: &str) {
        if subresource == "status" {
            // Only the status may change: everything else is taken from the old object.
            let status = new.get("status").cloned();
            let managed = new.pointer("/metadata/managedFields").cloned();
            let resource_version = new.pointer("/metadata/resourceVersion").cloned();
            let (api_version, kind) = (new.get("apiVersion").cloned(), new.get("kind").cloned());
            *new = old.clone();
            if let Some(map) = new.as_object_mut() {
                map.remove("status");
                for (key, value) in [("status", status), ("apiVersion", api_version), ("kind", kind)] {
                    if let Some(value) = value {
                        map.insert(key.to_owned(), value);
                    }
                }
            }
            if let Some(meta) = crate::apply::metadata_mut(new) {
                meta.remove("managedFields");
                if let Some(managed) = managed {
                    meta.insert("managedFields".into(), managed);
                }
                if let Some(resource_version) = resource_version {
                    meta.insert("resourceVersion".into(), resource_version);
                }
            }
            return;
        }
        if self.has_status {
            crate::kinds::keep(new, old, "status");
        }
        let without = |value: &Value| -> Map<String, Value> {
            let mut map = value.as_object().cloned().unwrap_or_default();
            map.remove("metadata");
            if self.has_status {
                map.remove("status");
            }
            map
        };
        let changed = without(new) != without(old);
        crate::kinds::bump_generation(new, old, changed);
    }

    pub(crate) fn validate(&self, kind: &Kind, object: &Value, errors: &mut Errors) {
        Self::validate_header(kind, object, errors);
        meta::validate_general(object, kind.namespaced, NameRule::Subdomain, errors);
        validate::validate(&self.root, object, errors);
        validate::list_types(&self.root, object, errors);
        self.validate_scale(object, errors);
        self.validate_expressions(object, None, errors);
    }

    fn validate_expressions(&self, object: &Value, old: Option<&Value>, errors: &mut Errors) {
        // Upstream knows them since v1.25, where they were put into service.
        if !errors.version.at_least(25) {
            return;
        }
        let validator = self.expressions.get_or_init(|| rules::Validator::read(&self.raw_schema));
        if let Some(validator) = validator {
            validator.check(&self.root, object, old, errors);
        }
    }

    pub(crate) fn validate_update(
        &self,
        kind: &Kind,
        new: &Value,
        old: &Value,
        _subresource: &str,
        errors: &mut Errors,
    ) {
        Self::validate_header(kind, new, errors);
        meta::validate_general_update(new, old, errors);
        validate::validate(&self.root, new, errors);
        validate::list_types(&self.root, new, errors);
        self.validate_scale(new, errors);
        self.validate_expressions(new, Some(old), errors);
    }

    fn validate_header(kind: &Kind, object: &Value, errors: &mut Errors) {
        let (api_version, name) = (object.text("apiVersion"), object.text("kind"));
        if name != kind.kind {
            errors.invalid(&Path::Root("kind"), name, format!("must be {}", kind.kind));
        }
        if api_version != kind.api_version() {
            errors.invalid(&Path::Root("apiVersion"), api_version, format!("must be {}", kind.api_version()));
        }
    }

    fn validate_scale(&self, object: &Value, errors: &mut Errors) {
        let Some(scale) = &self.scale else { return };
        let replicas = JsonPath::parse(&scale.spec_replicas).first(object).and_then(Value::as_i64);
        if let Some(count) = replicas.filter(|c| *c < 0) {
            errors.invalid(&Path::Root(&scale.spec_replicas), count, "should be a non-negative integer");
        }
    }
}

/// Go writes numbers without a fraction as whole ones.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let whole = number.as_f64().filter(|n| n.fract() == 0.0 && n.abs() < 1e15);
            if let Some(whole) = whole.and_then(|n| format!("{n:.0}").parse::<i64>().ok()) {
                *value = whole.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(map) => map.values_mut().for_each(whole_numbers),
        _ => {}
    }
}
