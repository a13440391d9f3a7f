//! Bytes to canonical objects: type errors, unknown and duplicate fields, and Go's words for them.
//!
//! Implements: the decoding half of `k8s.io/apimachinery/pkg/runtime/serializer/json` and `sigs.k8s.io/json`, and
//! "Field validation" of <https://kubernetes.io/docs/reference/using-api/api-concepts/#field-validation>.
//! Leaves to others: YAML (the caller parses it), custom resources beyond their metadata ([`crate::crd`]).

mod syntax;
mod typed;

use std::fmt::Write as _;

use palisade_base::go;
use palisade_base::version::KubeVersion;
use serde_json::Value;
use thiserror::Error;

use crate::kinds;
use crate::schema::{Type, TypeKind, TypeRef, builtin};
use crate::scheme::{Body, Kind};
use crate::status::{Result, Status};

pub use syntax::syntax_error;
pub(crate) use typed::{Problems, is_base64, read_typed, read_untyped};

/// What to do about unknown and duplicate fields: `?fieldValidation=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FieldValidation {
    /// Drop them silently (the default before v1.25).
    Ignore,
    /// Drop them and report them in `Warning` headers (the default).
    #[default]
    Warn,
    /// Refuse the request.
    Strict,
}

impl FieldValidation {
    /// Reads the query parameter; empty means the default of the release, and none that there is no such value.
    #[must_use]
    pub fn parse(text: &str, version: KubeVersion) -> Option<Self> {
        match text {
            "" if version.at_least(25) => Some(Self::Warn),
            "" | "Ignore" => Some(Self::Ignore),
            "Warn" => Some(Self::Warn),
            "Strict" => Some(Self::Strict),
            _ => None,
        }
    }
}

/// Why a document is not a value of its type or kind, worded as upstream's decoder does.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The text is not JSON.
    #[error("{0}")]
    Syntax(String),
    /// A value has another type than its field.
    #[error("{0}")]
    Mismatch(String),
    /// The schema has no such type.
    #[error("no type {0}")]
    NoType(String),
    /// `apiVersion` and `kind` cannot be read.
    #[error("couldn't get version/kind; json parse error: {0}")]
    NoHeader(String),
    /// No kind has this name in this version.
    #[error(
        "no kind {} is registered for version {} in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
        go::quote(.kind), go::quote(.api_version)
    )]
    Unregistered {
        /// As the document has it.
        api_version: String,
        /// As the document has it.
        kind: String,
    },
    /// The document is of another kind than its resource.
    #[error(
        "converting ({}.{from}) to ({package}.{to}): unknown conversion",
        .api_version.rsplit('/').next().unwrap_or_default()
    )]
    UnknownConversion {
        /// As the document has it.
        api_version: String,
        /// The kind of the document.
        from: String,
        /// Where upstream keeps the internal type of the resource.
        package: String,
        /// The kind of the resource.
        to: String,
    },
}

/// A decoded object and what the client should be warned about.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// The object in canonical form, without defaults.
    pub object: Value,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
}

/// Reads a JSON body sent to the resource of `kind`.
pub fn decode(kind: &Kind, body: &[u8], validation: FieldValidation) -> Result<Decoded> {
    if let Body::Custom(custom) = &kind.body {
        return custom.decode(kind, body, validation);
    }
    let header = read_header(kind, body)?;
    header.check(kind)?;
    let mut problems = Problems::new(kind.emulated);
    let read = read_typed(kind.schema(), &mut serde_json::Deserializer::from_slice(body), &mut problems);
    let object = match read {
        Ok(object) => object,
        Err(error) => return Err(header.error(kind, body, &syntax_error(body, &error.to_string()))),
    };
    finish(kind, &header, object, problems, Vec::new(), validation, body)
}

/// Reads a body that was parsed already, from YAML; `duplicates` are the paths of fields that were there twice.
pub fn decode_value(
    kind: &Kind,
    body: Value,
    duplicates: Vec<String>,
    validation: FieldValidation,
) -> Result<Decoded> {
    if let Body::Custom(custom) = &kind.body {
        return custom.decode_value(kind, body, &duplicates, validation);
    }
    let header = Header::of(&body);
    header.check(kind)?;
    let mut problems = Problems::new(kind.emulated);
    let text = body.to_string();
    let object = read_typed(kind.schema(), body, &mut problems)
        .map_err(|error| header.error(kind, text.as_bytes(), &error.to_string()))?;
    finish(kind, &header, object, problems, duplicates, validation, text.as_bytes())
}

/// Reads one object of a type (options, subresources) without checking `apiVersion` and `kind`.
pub fn decode_type(
    ty: TypeRef<'_>,
    version: KubeVersion,
    body: &[u8],
) -> std::result::Result<Value, DecodeError> {
    let mut problems = Problems::new(version);
    let read = read_typed(ty, &mut serde_json::Deserializer::from_slice(body), &mut problems);
    let object = read.map_err(|error| DecodeError::Syntax(syntax_error(body, &error.to_string())))?;
    match problems.error {
        Some(error) => Err(DecodeError::Mismatch(error)),
        None => Ok(object),
    }
}

/// Reads a parsed document as a built-in type that is no kind, such as `meta.DeleteOptions`.
pub fn read_as(
    type_name: &str,
    document: Value,
    version: KubeVersion,
) -> std::result::Result<Value, DecodeError> {
    let Some((id, _)) = builtin().by_name(type_name) else {
        return Err(DecodeError::NoType(type_name.to_owned()));
    };
    let ty = Type::plain(TypeKind::Struct { id, atomic: false });
    let mut problems = Problems::new(version);
    let read = read_typed(TypeRef { schema: builtin(), ty: &ty }, document, &mut problems);
    match (read, problems.error) {
        (Err(error), _) => Err(DecodeError::Syntax(error.to_string())),
        (_, Some(error)) => Err(DecodeError::Mismatch(error)),
        (Ok(object), None) => Ok(object),
    }
}

/// Reads JSON whose objects have each key once; `None` if it is something else.
#[must_use]
pub fn read_unique(body: &[u8]) -> Option<Value> {
    let mut problems = Problems::new(KubeVersion::LATEST);
    let mut input = serde_json::Deserializer::from_slice(body);
    // swallowed: the caller has another reader for what this one does not take
    let value = read_untyped(&mut input, &mut problems).ok()?;
    (input.end().is_ok() && problems.strict.is_empty()).then_some(value)
}

/// Whether a patched document is still of its kind: a patch may reach `apiVersion` and `kind` as well.
pub(crate) fn check_header(kind: &Kind, document: &Value) -> std::result::Result<(), DecodeError> {
    if !matches!(document, Value::Object(_) | Value::Null) {
        return Err(DecodeError::NoHeader(format!(
            "json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \
             \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
            go::json_type(document)
        )));
    }
    for field in ["apiVersion", "kind"] {
        if let Some(found) = document.get(field).filter(|value| !value.is_string() && !value.is_null()) {
            return Err(DecodeError::NoHeader(format!(
                "json: cannot unmarshal {} into Go struct field .{field} of type string",
                go::json_type(found)
            )));
        }
    }
    let header = Header::of(document);
    if header.matches(kind) {
        return Ok(());
    }
    let (api_version, name) = (header.api_version_or(kind), header.kind_or(kind));
    if !kinds::is_registered(&api_version, name) {
        return Err(unregistered(&api_version, name));
    }
    if name == kind.kind && kinds::converts_to(&api_version, &kind.group) {
        return Ok(());
    }
    Err(unknown_conversion(&api_version, name, kind))
}

fn unregistered(api_version: &str, name: &str) -> DecodeError {
    DecodeError::Unregistered { api_version: api_version.to_owned(), kind: name.to_owned() }
}

fn unknown_conversion(api_version: &str, name: &str, kind: &Kind) -> DecodeError {
    DecodeError::UnknownConversion {
        api_version: api_version.to_owned(),
        from: name.to_owned(),
        package: kinds::internal_package(&kind.group).into(),
        to: kind.kind.clone(),
    }
}

fn finish(
    kind: &Kind,
    header: &Header,
    object: Value,
    problems: Problems,
    duplicates: Vec<String>,
    validation: FieldValidation,
    body: &[u8],
) -> Result<Decoded> {
    if let Some(error) = problems.error {
        return Err(header.error(kind, body, &error));
    }
    let mut strict = duplicates;
    strict.extend(problems.strict);
    // `null` decodes to an object with nothing set.
    let mut object = if object.is_null() { kind.zero().clone() } else { object };
    header.conversion(kind)?;
    set_type_meta(kind, &mut object);
    let warnings = settle(&strict, validation, |list| {
        header.error(kind, body, &format!("strict decoding error: {}", list.join(", ")))
    })?;
    Ok(Decoded { object, warnings })
}

/// Turns strict problems into warnings, silence or an error.
pub(crate) fn settle(
    strict: &[String],
    validation: FieldValidation,
    error: impl FnOnce(&[String]) -> Box<Status>,
) -> Result<Vec<String>> {
    match validation {
        _ if strict.is_empty() => Ok(Vec::new()),
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Warn => Ok(strict.iter().flat_map(|problem| one_by_one(problem)).collect()),
        FieldValidation::Strict => Err(error(strict)),
    }
}

/// The errors of a YAML parser about several places, place by place; anything else as it is.
#[must_use]
pub fn one_by_one(problem: &str) -> Vec<String> {
    let prefixes = ["yaml: unmarshal errors:\n", "error converting YAML to JSON: yaml: unmarshal errors:\n"];
    match prefixes.iter().find_map(|prefix| problem.strip_prefix(prefix)) {
        Some(places) => places.lines().map(|line| line.trim().to_owned()).collect(),
        None => vec![problem.to_owned()],
    }
}

/// Sets `apiVersion` and `kind` to those of the kind.
pub(crate) fn set_type_meta(kind: &Kind, object: &mut Value) {
    if let Value::Object(map) = object {
        map.insert("apiVersion".into(), kind.api_version().into());
        map.insert("kind".into(), kind.kind.as_str().into());
    }
}

/// `apiVersion` and `kind` of a body.
#[derive(Debug, Default)]
struct Header {
    api_version: String,
    kind: String,
}

fn read_header(kind: &Kind, body: &[u8]) -> Result<Header> {
    let unrecognized = |why: &str| {
        Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse \
             error: {why} ({})",
            kind.kind,
            summarize(body)
        ))
    };
    if body.iter().copied().find(|b| !b.is_ascii_whitespace()) != Some(b'{') {
        let value: Value =
            serde_json::from_slice(body).map_err(|e| unrecognized(&syntax_error(body, &e.to_string())))?;
        if value.is_null() {
            return Ok(Header::default());
        }
        return Err(unrecognized(&format!(
            "json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \
             \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
            go::json_type(&value)
        )));
    }
    let text = |value: Option<Value>, field: &str| match value {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(unrecognized(&format!(
            "json: cannot unmarshal {} into Go struct field .{field} of type string",
            go::json_type(&other)
        ))),
    };
    let raw: RawHeader =
        serde_json::from_slice(body).map_err(|e| unrecognized(&syntax_error(body, &e.to_string())))?;
    Ok(Header { api_version: text(raw.api_version, "apiVersion")?, kind: text(raw.kind, "kind")? })
}

/// `apiVersion` and `kind` as the text has them. Go reads these two by a decoder that ignores case, the last one counts;
/// a body must not be one kind to it and another to this server.
#[derive(Debug, Default)]
struct RawHeader {
    api_version: Option<Value>,
    kind: Option<Value>,
}

impl<'de> serde::Deserialize<'de> for RawHeader {
    fn deserialize<D: serde::Deserializer<'de>>(input: D) -> std::result::Result<Self, D::Error> {
        struct Fields;

        impl<'de> serde::de::Visitor<'de> for Fields {
            type Value = RawHeader;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> std::result::Result<RawHeader, A::Error> {
                let mut header = RawHeader::default();
                while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
                    match folded(&key).as_str() {
                        "apiversion" => header.api_version = Some(map.next_value()?),
                        "kind" => header.kind = Some(map.next_value()?),
                        _ => {
                            map.next_value::<serde::de::IgnoredAny>()?;
                        }
                    }
                }
                Ok(header)
            }
        }

        input.deserialize_map(Fields)
    }
}

/// A key as Go's decoder compares it: without case, and with the two letters that Unicode folds into ASCII.
fn folded(key: &str) -> String {
    let fold = |c: char| match c {
        '\u{212a}' => 'k',
        '\u{17f}' => 's',
        c => c.to_ascii_lowercase(),
    };
    key.chars().take("apiversion".len() + 1).map(fold).collect()
}

impl Header {
    fn of(body: &Value) -> Self {
        let mut header = Self::default();
        for (key, value) in body.as_object().into_iter().flatten() {
            let text = || value.as_str().unwrap_or_default().to_owned();
            match folded(key).as_str() {
                "apiversion" => header.api_version = text(),
                "kind" => header.kind = text(),
                _ => {}
            }
        }
        header
    }

    fn version(&self) -> &str {
        self.api_version.rsplit('/').next().unwrap_or_default()
    }

    /// Both are filled in where they are missing; an unknown pair cannot be decoded at all.
    fn check(&self, kind: &Kind) -> Result<()> {
        if self.matches(kind) || kinds::is_registered(&self.api_version_or(kind), self.kind_or(kind)) {
            return Ok(());
        }
        let why = unregistered(&self.api_version_or(kind), self.kind_or(kind));
        Err(self.error(kind, b"", &why.to_string()))
    }

    fn api_version_or(&self, kind: &Kind) -> String {
        if self.api_version.is_empty() { kind.api_version() } else { self.api_version.clone() }
    }

    fn kind_or<'a>(&'a self, kind: &'a Kind) -> &'a str {
        if self.kind.is_empty() { &kind.kind } else { &self.kind }
    }

    fn matches(&self, kind: &Kind) -> bool {
        (self.kind.is_empty() || self.kind == kind.kind)
            && (self.api_version.is_empty() || self.api_version == kind.api_version())
    }

    /// A registered object of another kind decodes, but cannot become what the path requests.
    fn conversion(&self, kind: &Kind) -> Result<()> {
        if self.matches(kind) {
            return Ok(());
        }
        let api_version = self.api_version_or(kind);
        let name = self.kind_or(kind);
        if name == kind.kind && kinds::converts_to(&api_version, &kind.group) {
            return Err(Status::bad_request(format!(
                "the API version in the data ({api_version}) does not match the expected API version ({})",
                kind.api_version()
            )));
        }
        Err(self.error(kind, b"", &unknown_conversion(&api_version, name, kind).to_string()))
    }

    /// Upstream's `transformDecodeError`.
    fn error(&self, kind: &Kind, body: &[u8], why: &str) -> Box<Status> {
        let known = self.kind_or(kind);
        if known.is_empty() {
            return Status::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): {why} ({})",
                kind.kind,
                summarize(body)
            ));
        }
        let version = if self.api_version.is_empty() { kind.version.as_str() } else { self.version() };
        Status::bad_request(format!(
            "{known} in version {} cannot be handled as a {}: {why}",
            go::quote(version),
            kind.kind
        ))
    }
}

/// The beginning of a body that could not be read: as text if it looks like JSON, else in hexadecimal.
#[must_use]
pub fn summarize(body: &[u8]) -> String {
    const SHOWN: usize = 30;
    let head = &body[..body.len().min(SHOWN)];
    let more = if body.len() > SHOWN { " ..." } else { "" };
    match body.first() {
        None => "<empty>".into(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(head)),
        Some(_) => {
            let mut hex = String::with_capacity(2 * head.len() + more.len());
            for byte in head {
                let _ = write!(hex, "{byte:02x}");
            }
            hex + more
        }
    }
}
