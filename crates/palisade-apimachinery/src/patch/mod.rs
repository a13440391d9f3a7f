//! Patches: JSON patch, merge patch and strategic merge patch, with the answers upstream gives to bad ones.
//!
//! Implements: the patch handler of `k8s.io/apiserver/pkg/endpoints/handlers`,
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#patch-and-apply>.
//! Leaves to others: server-side apply ([`crate::apply`]) and everything that happens to the patched object.

mod json;
mod merge;
mod strategic;

use palisade_base::field_error::{BadValue, FieldError};
use palisade_base::go;
use serde_json::Value;

use crate::decode::{self, Decoded, FieldValidation, Problems, read_typed, read_untyped, syntax_error};
use crate::rest::path::Get as _;
use crate::scheme::{Body, Kind};
use crate::status::{GroupName, Result, Status};

/// The kinds of patches, by content type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchType {
    /// `application/json-patch+json`, RFC 6902.
    Json,
    /// `application/merge-patch+json`, RFC 7386.
    Merge,
    /// `application/strategic-merge-patch+json`.
    Strategic,
    /// `application/apply-patch+yaml`, handled by [`crate::apply::apply`].
    Apply,
}

impl PatchType {
    /// The type of a content type, parameters ignored.
    #[must_use]
    pub fn from_content_type(text: &str) -> Option<Self> {
        match text.split(';').next().unwrap_or_default().trim() {
            "application/json-patch+json" => Some(Self::Json),
            "application/merge-patch+json" => Some(Self::Merge),
            "application/strategic-merge-patch+json" => Some(Self::Strategic),
            "application/apply-patch+yaml" => Some(Self::Apply),
            _ => None,
        }
    }

    /// The content types a kind accepts, in the order upstream lists them.
    #[must_use]
    pub fn accepted_by(kind: &Kind) -> &'static [&'static str] {
        if kind.is_custom() {
            &["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"]
        } else {
            &[
                "application/json-patch+json",
                "application/merge-patch+json",
                "application/strategic-merge-patch+json",
                "application/apply-patch+yaml",
            ]
        }
    }
}

/// Applies a patch to the live object; the result is decoded as if it had been sent, but not defaulted.
pub fn patch(
    kind: &Kind,
    live: &Value,
    patch_type: PatchType,
    body: &[u8],
    validation: FieldValidation,
) -> Result<Decoded> {
    if body.is_empty() {
        return Err(Status::bad_request("invalid JSON patch"));
    }
    match patch_type {
        PatchType::Json => {
            let (patched, strict) = json::apply(live, body, validation)?;
            from_json(kind, live, patched, strict, validation, None)
        }
        PatchType::Merge => {
            let (patch, strict) = merge::read(body, validation)?;
            let mut patched = live.clone();
            merge::apply(&mut patched, patch.clone());
            from_json(kind, live, patched, strict, validation, Some(&patch))
        }
        PatchType::Strategic if kind.is_custom() => {
            Err(Status::unsupported_media_type(PatchType::accepted_by(kind)))
        }
        PatchType::Strategic => strategic_patch(kind, live, body, validation),
        PatchType::Apply => Err(Status::internal("apply patches are not merged here")),
    }
}

/// Applies a JSON or merge patch to a document that is no kind of its own (`Scale`).
pub fn untyped(live: &Value, patch_type: PatchType, body: &[u8]) -> Result<Value> {
    if patch_type == PatchType::Json {
        json::apply(live, body, FieldValidation::Ignore).map(|(value, _)| value)
    } else {
        let (patch, _) = merge::read(body, FieldValidation::Warn)?;
        let mut patched = live.clone();
        merge::apply(&mut patched, patch);
        Ok(patched)
    }
}

/// Upstream reports errors of the patched object with an empty kind and name.
fn invalid_patch(kind: &Kind, shown: String, why: String) -> Box<Status> {
    let error = FieldError::invalid("patch", BadValue::Text(shown), why);
    Status::invalid(GroupName::default(), "", &[error], kind.emulated)
}

fn live_name(live: &Value) -> &str {
    live.at(&["metadata", "name"]).and_then(Value::as_str).unwrap_or_default()
}

fn from_json(
    kind: &Kind,
    live: &Value,
    patched: Value,
    mut strict: Vec<String>,
    validation: FieldValidation,
    merge: Option<&Value>,
) -> Result<Decoded> {
    if let Body::Custom(custom) = &kind.body {
        return custom.decode_patched(kind, patched, strict, validation);
    }
    if patched.is_object() && patched.child("apiVersion").is_none_or(|version| version == "") {
        // Upstream decodes it as the internal type, which has no field of these names.
        let name = live_name(live);
        return Err(Status::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )));
    }
    let show = || go_ordered::render(kind, &patched, merge);
    decode::check_header(kind, &patched).map_err(|why| invalid_patch(kind, show(), why.to_string()))?;
    let mut problems = Problems::new(kind.emulated);
    let read = read_typed(kind.schema(), patched.clone(), &mut problems);
    let mut object = read.map_err(|error| invalid_patch(kind, show(), error.to_string()))?;
    if let Some(error) = problems.error {
        return Err(invalid_patch(kind, show(), error));
    }
    strict.extend(problems.strict);
    decode::set_type_meta(kind, &mut object);
    let warnings = decode::settle(&strict, validation, |list| {
        invalid_patch(kind, show(), format!("strict decoding error: {}", list.join(", ")))
    })?;
    Ok(Decoded { object, warnings })
}

fn strategic_patch(kind: &Kind, live: &Value, body: &[u8], validation: FieldValidation) -> Result<Decoded> {
    let (patch, strict) = read_object(body, validation, |why| Status::bad_request(why.to_owned()))?;
    let shown = go::display(&patch);
    let (Value::Object(patch), Value::Object(original)) = (patch, live.clone()) else {
        return Err(Status::bad_request("invalid JSON document"));
    };
    let patched =
        strategic::merge_map(original, patch, Some(kind.schema())).map_err(strategic::Error::into_status)?;
    let mut problems = Problems::unstructured(kind.emulated);
    let mut object = read_typed(kind.schema(), Value::Object(patched), &mut problems)
        .map_err(|error| invalid_patch(kind, shown.clone(), error.to_string()))?;
    if let Some(error) = problems.error {
        return Err(invalid_patch(kind, shown, error));
    }
    problems.strict.sort();
    let mut strict = strict;
    strict.extend(problems.strict);
    decode::set_type_meta(kind, &mut object);
    let warnings = decode::settle(&strict, validation, |list| {
        invalid_patch(kind, shown, format!("strict decoding error: {}", list.join(", ")))
    })?;
    Ok(Decoded { object, warnings })
}

/// Reads a body that must be a JSON object, noting duplicate fields if requested.
fn read_object(
    body: &[u8],
    validation: FieldValidation,
    error: impl Fn(&str) -> Box<Status>,
) -> Result<(Value, Vec<String>)> {
    let mut problems = Problems::new(palisade_base::version::KubeVersion::LATEST);
    let mut input = serde_json::Deserializer::from_slice(body);
    let value = read_untyped(&mut input, &mut problems)
        .and_then(|value| input.end().map(|()| value))
        .map_err(|e| error(&syntax_error(body, &e.to_string())))?;
    let value = match value {
        Value::Null => Value::Object(serde_json::Map::new()),
        Value::Object(_) => value,
        other => {
            return Err(error(&format!(
                "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                go::json_type(&other)
            )));
        }
    };
    let strict = if validation == FieldValidation::Ignore { Vec::new() } else { problems.strict };
    Ok((value, strict))
}

mod go_ordered {
    //! JSON text in the order Go's encoder writes struct fields, for the error that shows the patched document.
    //! Objects a patch has opened are maps by then and sorted by key; the rest is in order of declaration.

    use serde_json::Value;

    use crate::schema::{TypeKind, TypeRef};
    use crate::scheme::Kind;
    use palisade_base::go;

    pub(super) fn render(kind: &Kind, value: &Value, merge: Option<&Value>) -> String {
        let mut out = String::new();
        // A JSON patch opens at least the root.
        let root = Value::Object(serde_json::Map::new());
        write(&mut out, Some(kind.schema()), value, Some(merge.unwrap_or(&root)));
        out
    }

    fn write(out: &mut String, of: Option<TypeRef<'_>>, value: &Value, opened: Option<&Value>) {
        match value {
            Value::Object(map) => {
                let opened_map = opened.and_then(Value::as_object);
                let mut keys: Vec<&String> = map.keys().collect();
                keys.sort();
                if let (None, Some(s)) = (opened_map, of.and_then(TypeRef::as_struct)) {
                    keys.sort_by_key(|key| s.position(key).unwrap_or(usize::MAX));
                }
                out.push('{');
                for (i, key) in keys.into_iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    go::json_string(out, key);
                    out.push(':');
                    let inner = of.and_then(|of| of.member(key));
                    if let Some(value) = map.get(key) {
                        write(out, inner, value, opened_map.and_then(|m| m.get(key)));
                    }
                }
                out.push('}');
            }
            Value::Array(items) => {
                let item =
                    of.filter(|of| matches!(of.ty.kind, TypeKind::List { .. })).and_then(TypeRef::item);
                out.push('[');
                for (i, value) in items.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    write(out, item, value, None);
                }
                out.push(']');
            }
            scalar => out.push_str(&go::json(scalar)),
        }
    }
}
