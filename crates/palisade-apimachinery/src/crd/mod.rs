//! Custom resource definitions and the kinds they define.
//!
//! Implements: `k8s.io/apiextensions-apiserver` (structural schemas, pruning, defaulting, validation, subresources,
//! printer columns), <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/>.
//! Leaves to others: calling conversion webhooks; [`conversion`] has what they are sent and what may come back.

pub mod conversion;
pub mod establish;
mod jsonpath;
mod openapi_schema;
mod pattern;
mod programs;
mod prune;
pub(crate) mod rule_checks;
pub(crate) mod rules;
pub(crate) mod structural;
mod typed;
mod validate;

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use palisade_base::field_path::Path;
use palisade_base::go;
use palisade_base::version::KubeVersion;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::apply::ResetFields;
use crate::decode::{self, DecodeError, Decoded, FieldValidation, Problems, read_untyped, syntax_error};
use crate::rest::meta::{self, NameRule};
use crate::rest::path::{Errors, Get};
use crate::schema::{Schema, Type, TypeRef};
use crate::scheme::{Body, Kind, Subresource};
use crate::status::{Result, Status};
use crate::stored_size::{self, MAX_STORED};
use crate::typed_object::TypeError;

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
///
/// What clients may never use costs next to nothing: the schema stays what it is, a part of the stored definition's text,
/// until the first object of the kind is written.
#[derive(Debug)]
pub struct CustomKind {
    /// The `openAPIV3Schema`, a part of the definition's text; empty if there is none.
    source: Bytes,
    schema: Arc<CustomSchema>,
    has_status: bool,
    pub(crate) scale: Option<ScalePaths>,
    pub(crate) columns: Vec<Column>,
    pub(crate) selectable: Vec<JsonPath>,
    pub(crate) deprecation_warning: Option<String>,
}

/// What is made of a schema. Revisions of a definition that do not change the schema share it.
#[derive(Debug, Default)]
struct CustomSchema {
    compiled: OnceLock<Compiled>,
    fingerprint: OnceLock<[u8; 32]>,
}

#[derive(Debug)]
struct Compiled {
    root: Arc<JsonSchema>,
    typed: Schema,
    ty: Type,
    /// The rules written as expressions.
    expressions: Option<rules::Validator>,
}

/// Where a custom kind keeps its scale.
#[derive(Debug, Clone)]
pub(crate) struct ScalePaths {
    pub(crate) spec_replicas: String,
    pub(crate) status_replicas: String,
    pub(crate) label_selector: String,
}

const VERBS: &[&str] = &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

/// A stored definition, as far as a server needs it before objects of its kinds are written.
#[derive(Debug)]
pub struct Definition {
    /// The API group.
    pub group: String,
    /// `status.acceptedNames`.
    pub accepted_names: Value,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether its kinds are to be served.
    pub established: bool,
    /// The kinds it defines, one for each served version, in its order.
    pub kinds: Vec<Arc<Kind>>,
    /// Every version, and how objects get from one to another; none if there is no version.
    pub versions: Option<Arc<Versions>>,
}

/// The versions of a definition. Objects are stored in one of them, and sent in each that is served.
#[derive(Debug)]
pub struct Versions {
    kinds: Vec<Arc<Kind>>,
    storage: Arc<Kind>,
    webhook: Option<ConversionWebhook>,
}

/// The webhook that converts objects from one version to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversionWebhook {
    /// `spec.conversion.webhook.clientConfig`.
    pub client_config: Value,
    /// `spec.conversion.webhook.conversionReviewVersions`.
    pub review_versions: Vec<String>,
}

impl Versions {
    /// The kind of a version, served or not.
    #[must_use]
    pub fn find(&self, version: &str) -> Option<&Arc<Kind>> {
        self.kinds.iter().find(|kind| kind.version == version)
    }

    /// The kind that objects are stored as.
    #[must_use]
    pub fn storage(&self) -> &Arc<Kind> {
        &self.storage
    }

    /// What converts objects; without it, only their `apiVersion` changes.
    #[must_use]
    pub fn webhook(&self) -> Option<&ConversionWebhook> {
        self.webhook.as_ref()
    }
}

/// Distinguishes schemas: equal as long as a version's schema stays the same.
#[derive(Debug, Clone)]
pub struct SchemaIdentity(Arc<CustomSchema>);

impl PartialEq for SchemaIdentity {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

#[derive(Deserialize)]
struct Stored<'a> {
    #[serde(default)]
    metadata: StoredMetadata,
    #[serde(borrow)]
    spec: StoredSpec<'a>,
    #[serde(default)]
    status: Value,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct StoredMetadata {
    #[serde(default)]
    deletion_timestamp: Option<String>,
}

#[derive(Deserialize)]
struct StoredSpec<'a> {
    group: String,
    names: Value,
    scope: String,
    #[serde(borrow)]
    versions: Vec<StoredVersion<'a>>,
    #[serde(default)]
    conversion: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredVersion<'a> {
    name: String,
    served: bool,
    #[serde(default)]
    storage: bool,
    #[serde(default)]
    deprecated: Option<bool>,
    #[serde(default)]
    deprecation_warning: Option<String>,
    #[serde(default, borrow)]
    schema: Option<StoredSchema<'a>>,
    #[serde(default)]
    subresources: Value,
    #[serde(default)]
    additional_printer_columns: Option<Vec<Value>>,
    #[serde(default)]
    selectable_fields: Option<Vec<Value>>,
}

#[derive(Deserialize)]
struct StoredSchema<'a> {
    #[serde(default, borrow, rename = "openAPIV3Schema")]
    open_api_v3_schema: Option<&'a RawValue>,
}

impl Definition {
    /// Reads a definition in its stored form. `before` is what the definition was in an earlier revision: what was made
    /// of schemas that did not change is taken over.
    ///
    /// # Errors
    ///
    /// If the text is no definition.
    pub fn read(
        json: &Bytes,
        version: KubeVersion,
        before: Option<&Self>,
    ) -> std::result::Result<Self, serde_json::Error> {
        let Stored { metadata, spec, mut status } = serde_json::from_slice(json)?;
        let established = establish::is_established(&status);
        let before = before.and_then(|before| before.versions.as_deref());
        let kinds = spec.versions.iter().map(|v| {
            let known = before.and_then(|before| before.find(&v.name));
            let custom = CustomKind::new(json, v, &spec.group, known);
            Arc::new(custom.into_kind(&spec, v, version))
        });
        let all: Vec<Arc<Kind>> = kinds.collect();
        let served = spec.versions.iter().zip(&all).filter(|(version, _)| version.served);
        let kinds = served.map(|(_, kind)| kind.clone()).collect();
        let storage = spec.versions.iter().position(|version| version.storage).unwrap_or(0);
        let webhook = ConversionWebhook::read(&spec.conversion);
        let storage = all.get(storage).cloned();
        let versions = storage.map(|storage| Arc::new(Versions { kinds: all, storage, webhook }));
        let accepted_names = status.get_mut("acceptedNames").map(Value::take).unwrap_or_default();
        let deleting = metadata.deletion_timestamp.is_some();
        Ok(Self { group: spec.group, accepted_names, deleting, established, kinds, versions })
    }
}

impl ConversionWebhook {
    fn read(conversion: &Value) -> Option<Self> {
        let webhook = conversion.get("webhook").filter(|_| conversion.text("strategy") == "Webhook")?;
        let versions = webhook.list("conversionReviewVersions").iter().filter_map(Value::as_str);
        Some(Self {
            client_config: webhook.get("clientConfig").cloned().unwrap_or_default(),
            review_versions: versions.map(str::to_owned).collect(),
        })
    }
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

    /// Which schema a custom kind has.
    #[must_use]
    pub fn schema_identity(&self) -> Option<SchemaIdentity> {
        match &self.body {
            Body::Custom(custom) => Some(SchemaIdentity(custom.schema.clone())),
            Body::Builtin(_) => None,
        }
    }

    /// Brings an object that was stored as this kind into the form of its schema, which may have changed since: unknown
    /// fields go, and defaults are set. Built-in kinds stay as they are.
    ///
    /// # Errors
    ///
    /// If its defaults are too large.
    pub fn coerce_stored(&self, object: &mut Value) -> Result<()> {
        match &self.body {
            Body::Custom(custom) => {
                custom.prune(object);
                custom.default(object)
            }
            Body::Builtin(_) => Ok(()),
        }
    }

    /// Whether two versions of a custom kind have the same schema.
    #[must_use]
    pub fn has_schema_of(&self, other: &Self) -> bool {
        match (&self.body, &other.body) {
            (Body::Custom(own), Body::Custom(other)) => own.source == other.source,
            _ => true,
        }
    }

    /// Judges an object by the schema of a custom kind, without its rules.
    pub(crate) fn check_schema(&self, object: &Value, errors: &mut Errors) {
        if let Body::Custom(custom) = &self.body {
            validate::validate(custom.root(), object, errors);
            validate::list_types(custom.root(), object, errors);
        }
    }

    /// Drops what the schema of a custom kind does not have from an object that was converted to it.
    pub fn coerce_converted(&self, object: &mut Value) {
        if let Body::Custom(custom) = &self.body {
            custom.prune(object);
        }
    }

    /// The hash of the text of a custom kind's schema, computed once.
    pub fn schema_fingerprint(&self, hash: impl FnOnce(&[u8]) -> [u8; 32]) -> Option<&[u8; 32]> {
        match &self.body {
            Body::Custom(custom) => Some(custom.schema.fingerprint.get_or_init(|| hash(&custom.source))),
            Body::Builtin(_) => None,
        }
    }
}

impl CustomKind {
    fn new(json: &Bytes, version: &StoredVersion<'_>, group: &str, known: Option<&Arc<Kind>>) -> Self {
        let source = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema);
        let source = source.map_or_else(Bytes::new, |text| json.slice_ref(text.get().as_bytes()));
        let schema = match known.map(|kind| &kind.body) {
            Some(Body::Custom(known)) if known.source == source => known.schema.clone(),
            _ => Arc::default(),
        };
        let scale = version.subresources.child("scale").map(|s| ScalePaths {
            spec_replicas: s.text("specReplicasPath").to_owned(),
            status_replicas: s.text("statusReplicasPath").to_owned(),
            label_selector: s.text("labelSelectorPath").to_owned(),
        });
        let columns = version.additional_printer_columns.iter().flatten().map(|c| Column {
            name: c.text("name").to_owned(),
            kind: c.text("type").to_owned(),
            format: c.text("format").to_owned(),
            description: c.text("description").to_owned(),
            priority: c.int("priority").unwrap_or(0),
            path: JsonPath::parse(c.text("jsonPath")),
        });
        let selectable = version.selectable_fields.iter().flatten();
        let deprecation_warning = (version.deprecated == Some(true)).then(|| {
            let own = version.deprecation_warning.as_deref().filter(|own| !own.is_empty());
            own.map_or_else(|| format!("{group}/{} is deprecated", version.name), str::to_owned)
        });
        Self {
            source,
            schema,
            has_status: version.subresources.child("status").is_some(),
            scale,
            columns: columns.collect(),
            selectable: selectable.map(|f| JsonPath::parse(f.text("jsonPath"))).collect(),
            deprecation_warning,
        }
    }

    fn into_kind(self, spec: &StoredSpec<'_>, version: &StoredVersion<'_>, emulated: KubeVersion) -> Kind {
        let verbs = &["get", "patch", "update"];
        let mut subresources = Vec::new();
        if self.scale.is_some() {
            let (group, version, kind) = ("autoscaling", "v1", "Scale");
            subresources.push(Subresource { name: "scale", group, version, kind, verbs });
        }
        if self.has_status {
            subresources.push(Subresource { name: "status", group: "", version: "", kind: "", verbs });
        }
        let names = &spec.names;
        let list = |key: &str| names.list(key).iter().filter_map(Value::as_str).map(str::to_owned).collect();
        Kind {
            group: spec.group.clone(),
            version: version.name.clone(),
            kind: names.text("kind").to_owned(),
            list_kind: names.text("listKind").to_owned(),
            plural: names.text("plural").to_owned(),
            singular: names.text("singular").to_owned(),
            short_names: list("shortNames"),
            categories: list("categories"),
            namespaced: spec.scope == "Namespaced",
            verbs: VERBS.to_vec(),
            subresources,
            emulated,
            body: Body::Custom(Box::new(self)),
            zero: OnceLock::new(),
        }
    }

    /// The schema as its definition has it, for documents.
    pub(crate) fn source(&self) -> &[u8] {
        &self.source
    }

    fn compiled(&self) -> &Compiled {
        self.schema.compiled.get_or_init(|| {
            let raw = match &*self.source {
                [] => Value::Null,
                // A part of a text that was read is a text that can be read. If it were not, no object would fit it.
                source => serde_json::from_slice(source).unwrap_or_else(|_| json!({"type": "unreadable"})),
            };
            let root = JsonSchema::read(&raw);
            let (typed, ty) = typed::from_structural(&root);
            Compiled { expressions: rules::Validator::read(&raw), root, typed, ty }
        })
    }

    fn root(&self) -> &JsonSchema {
        &self.compiled().root
    }

    pub(crate) fn schema(&self) -> TypeRef<'_> {
        let Compiled { typed, ty, .. } = self.compiled();
        TypeRef { schema: typed, ty }
    }

    pub(crate) fn default(&self, object: &mut Value) -> Result<()> {
        let mut defaults = prune::Defaults { left: MAX_STORED };
        if defaults.set(self.root(), object) { Ok(()) } else { Err(stored_size::too_large()) }
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
        if value.is_null() {
            let why = "Object 'Kind' is missing in 'null'";
            return Err(match validation {
                FieldValidation::Ignore => Status::bad_request(format!(
                    "{} in version {} cannot be handled as a {}: {why}",
                    kind.kind,
                    go::quote(&kind.version),
                    kind.kind
                )),
                FieldValidation::Strict | FieldValidation::Warn => Status::bad_request(format!(
                    "the object provided is unrecognized (must be of type {}): {why} ({})",
                    kind.kind,
                    decode::summarize(body)
                )),
            });
        }
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
        let version = kind.version.as_str();
        if let Err(why) = self.clean(&mut object, &mut strict, kind.emulated) {
            return Err(Status::bad_request(format!(
                "{name} in version {} cannot be handled as a {}: {why}",
                go::quote(version),
                kind.kind
            )));
        }
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
        let invalid = |shown: String, why: String| {
            let error = palisade_base::field_error::FieldError::invalid("patch", shown, why);
            Status::invalid(crate::status::GroupName::default(), "", &[error], kind.emulated)
        };
        if !object.is_object() {
            let why = format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct {{ \
                 APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
                go::json_type(&object)
            );
            return Err(invalid(shown, why));
        }
        for field in ["kind", "apiVersion"] {
            if let Some(value) = object.child(field).filter(|value| !value.is_string()) {
                let why = format!(
                    "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go struct field .{field} \
                     of type string",
                    go::json_type(value)
                );
                return Err(invalid(shown, why));
            }
        }
        if object.text("kind").is_empty() {
            return Err(invalid(shown.clone(), format!("Object 'Kind' is missing in '{shown}'")));
        }
        if object.text("apiVersion").is_empty() {
            let why = "Object 'apiVersion' is missing in 'object has no apiVersion field'";
            return Err(Status::internal(why));
        }
        if let Err(why) = self.clean(&mut object, &mut strict, kind.emulated) {
            return Err(invalid(shown, why.to_string()));
        }
        let warnings = decode::settle(&strict, validation, |list| {
            invalid(shown, format!("strict decoding error: {}", list.join(", ")))
        })?;
        Ok(Decoded { object, warnings })
    }

    /// Brings the metadata into Go's form and drops unknown fields; an error is about malformed metadata.
    fn clean(
        &self,
        object: &mut Value,
        strict: &mut Vec<String>,
        version: KubeVersion,
    ) -> std::result::Result<(), DecodeError> {
        if let Some(meta) = object.get_mut("metadata") {
            let typed::Metadata { value, error } =
                typed::read_metadata(meta.take(), "metadata", version, strict);
            if let Some(why) = error {
                return Err(DecodeError::Mismatch(why));
            }
            *meta = value;
        }
        let mut unknown = self.prune(object);
        unknown.sort();
        strict.extend(unknown.into_iter().map(|path| format!("unknown field {}", go::quote(&path))));
        Ok(())
    }

    /// Drops what the schema does not declare: the paths of what was dropped.
    fn prune(&self, object: &mut Value) -> Vec<String> {
        whole_numbers(object);
        let mut unknown = Vec::new();
        prune::prune(self.root(), object, &mut unknown);
        unknown
    }

    /// An object that was merged by server-side apply: as upstream, malformed metadata is dropped.
    pub(crate) fn normalize(&self, mut object: Value, version: KubeVersion) -> Value {
        if let Some(meta) = object.get_mut("metadata") {
            *meta = typed::read_metadata(meta.take(), "metadata", version, &mut Vec::new()).value;
        }
        self.prune(&mut object);
        object
    }

    /// See [`Kind::read`]. Values are checked against the schema by validation.
    pub(crate) fn read(
        &self,
        mut object: Value,
        version: KubeVersion,
    ) -> std::result::Result<Value, TypeError> {
        let found = go::json_type(&object);
        let Value::Object(map) = &mut object else {
            return Err(TypeError::Mismatch(format!("cannot restore object from: {found}")));
        };
        let meta = map.entry("metadata").or_insert(Value::Null);
        *meta = typed::convert_metadata(meta.take(), version)?;
        self.prune(&mut object);
        Ok(object)
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
        validate::validate(self.root(), object, errors);
        validate::list_types(self.root(), object, errors);
        self.validate_scale(object, errors);
        self.validate_expressions(object, None, errors);
    }

    fn validate_expressions(&self, object: &Value, old: Option<&Value>, errors: &mut Errors) {
        // Upstream has them since v1.25, where they were put into service.
        if !errors.version.at_least(25) {
            return;
        }
        if let Some(validator) = &self.compiled().expressions {
            validator.check(self.root(), object, old, errors);
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
        validate::validate(self.root(), new, errors);
        validate::list_types(self.root(), new, errors);
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
