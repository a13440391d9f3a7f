//! Objects that the typed decoder of their kind has read, as a type.
//!
//! Whatever made an object (a body, a patch, a merge, a plugin, a webhook, a controller), [`Kind::read`] is the only way to
//! a [`Typed`], and admission and storage take nothing else. So no write path can store or judge a value of a wrong type.
//!
//! Leaves to others: defaults, validation, and the decoding of bodies with their warnings ([`crate::decode`]).

use std::fmt;
use std::ops::Deref;

use palisade_base::field_error::{BadValue, FieldError};
use palisade_base::go;
use palisade_base::quantity::Quantity;
use palisade_base::time;
use palisade_base::version::KubeVersion;
use serde_json::{Number, Value};

use crate::decode::{self, Problems, is_base64, read_typed};
use crate::schema::{TypeKind, TypeRef};
use crate::scheme::{Body, Kind};
use crate::status::Status;

/// An object of a kind, every value of the type that the kind declares. Only [`Kind::read`] makes one.
#[derive(Debug, Clone, PartialEq)]
pub struct Typed(Value);

impl Typed {
    /// The object, to be changed: afterwards it has to be read again.
    #[must_use]
    pub fn into_value(self) -> Value {
        self.0
    }
}

impl Deref for Typed {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.0
    }
}

/// Why an object cannot be read as its kind.
#[derive(Debug, Clone, PartialEq)]
pub enum TypeError {
    /// A value of another type, in the words of upstream's converter.
    Mismatch(String),
    /// A number that its field cannot hold. Upstream wraps it around.
    OutOfRange {
        /// The field.
        path: String,
        /// The number.
        value: Number,
        /// The size of the field.
        bits: u8,
    },
}

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mismatch(why) => f.write_str(why),
            Self::OutOfRange { path, value, bits } => {
                write!(f, "{path}: number {value} does not fit into int{bits}")
            }
        }
    }
}

impl std::error::Error for TypeError {}

impl TypeError {
    /// The error that a client gets for an object of its own.
    #[must_use]
    pub fn into_status(self, kind: &Kind, name: &str) -> Box<Status> {
        match self {
            Self::Mismatch(why) => Status::bad_request(format!(
                "{} in version {} cannot be handled as a {}: {why}",
                kind.kind,
                go::quote(&kind.version),
                kind.kind
            )),
            Self::OutOfRange { path, value, bits } => {
                let why = format!("must fit into int{bits}");
                let error = FieldError::invalid(&path, BadValue::Plain(value.to_string()), why);
                Status::invalid(kind.kind_name(), name, &[error], kind.emulated)
            }
        }
    }
}

impl Kind {
    /// Reads an object of this kind, wherever it comes from.
    pub fn read(&self, object: Value) -> Result<Typed, TypeError> {
        match &self.body {
            Body::Custom(custom) => custom.read(object, self.emulated).map(Typed),
            Body::Builtin(_) => {
                let mut object = convert(self.schema(), object, self.emulated)?;
                if object.is_null() {
                    object = self.zero().clone();
                }
                decode::set_type_meta(self, &mut object);
                Ok(Typed(object))
            }
        }
    }
}

/// A value as its type requires it: as it is if nothing is to be done, else in canonical form.
pub(crate) fn convert(of: TypeRef<'_>, value: Value, version: KubeVersion) -> Result<Value, TypeError> {
    if is_typed(of, &value, version) {
        return Ok(value);
    }
    let mut problems = Problems::unstructured(version);
    let read =
        read_typed(of, value, &mut problems).map_err(|error| TypeError::Mismatch(error.to_string()))?;
    if let Some((path, value, bits)) = problems.out_of_range {
        return Err(TypeError::OutOfRange { path, value, bits });
    }
    match problems.error {
        Some(why) => Err(TypeError::Mismatch(why)),
        None => Ok(read),
    }
}

/// Whether every value has its type already. A decoded object is looked at without copying anything.
fn is_typed(of: TypeRef<'_>, value: &Value, version: KubeVersion) -> bool {
    match (&of.ty.kind, value) {
        (TypeKind::Any, _)
        | (TypeKind::Bool | TypeKind::SchemaOr, Value::Bool(_))
        | (TypeKind::SchemaOr, Value::Array(_))
        | (TypeKind::String | TypeKind::IntOrString, Value::String(_))
        | (TypeKind::Float, Value::Number(_)) => true,
        (TypeKind::Bytes, Value::String(text)) => is_base64(text),
        (TypeKind::Quantity, Value::String(text)) => {
            Quantity::parse(text).is_ok_and(|quantity| go::displays_as(&quantity, text))
        }
        (TypeKind::Time | TypeKind::MicroTime, Value::String(text)) => {
            let micro = matches!(of.ty.kind, TypeKind::MicroTime);
            time::parse(text).is_ok_and(|time| time.is_written_as(text, micro))
        }
        (TypeKind::Int(bits), Value::Number(number)) => {
            number.as_i64().is_some_and(|whole| *bits == 64 || i32::try_from(whole).is_ok())
        }
        (TypeKind::IntOrString, Value::Number(number)) => {
            number.as_i64().is_some_and(|whole| i32::try_from(whole).is_ok())
        }
        (TypeKind::List { item, .. }, Value::Array(items)) => {
            items.iter().all(|inner| is_item(of.with(item), inner, version))
        }
        (TypeKind::Map { item, .. }, Value::Object(map)) => {
            map.values().all(|inner| is_item(of.with(item), inner, version))
        }
        (TypeKind::Struct { .. } | TypeKind::SchemaOr, Value::Object(map)) => {
            let Some(s) = of.as_struct() else { return false };
            map.iter().all(|(key, inner)| {
                let field = s.field(key).filter(|field| field.exists_in(version));
                field.is_some_and(|field| {
                    // A list that Go writes as null has its type.
                    (inner.is_null() && field.zero_value(of, version) == Some(Value::Null))
                        || is_typed(of.with(&field.ty), inner, version)
                })
            })
        }
        _ => false,
    }
}

fn is_item(of: TypeRef<'_>, value: &Value, version: KubeVersion) -> bool {
    if value.is_null() { of.ty.pointer } else { is_typed(of, value, version) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::scheme::LATEST;

    fn read(kind: &str, object: Value) -> Result<Value, String> {
        let kind = LATEST.by_kind("", "v1", kind).or_else(|| LATEST.by_kind("apps", "v1", kind));
        let read = kind.expect("a kind").read(object);
        read.map(Typed::into_value).map_err(|error| error.to_string())
    }

    #[test]
    fn values_get_the_type_of_their_field_or_are_rejected() {
        let pod = |context: Value| json!({"spec": {"containers": [], "securityContext": context}});
        for (case, context, expected) in [
            ("whole", json!({"runAsUser": 7}), Ok(json!({"runAsUser": 7}))),
            ("whole float", json!({"runAsUser": 7.0}), Ok(json!({"runAsUser": 7}))),
            ("fraction", json!({"runAsUser": 1.5}), Err("cannot convert float64 to int64")),
            (
                "beyond the field",
                json!({"runAsUser": u64::MAX}),
                Err("spec.securityContext.runAsUser: number 18446744073709551615 does not fit into int64"),
            ),
            (
                "beyond every field",
                json!({"runAsUser": 1e300}),
                Err("spec.securityContext.runAsUser: number 1e+300 does not fit into int64"),
            ),
            ("text", json!({"runAsUser": "7"}), Err("unrecognized type: int64")),
            ("null", json!({"runAsUser": null}), Ok(json!({}))),
            ("null in a list", json!({"supplementalGroups": [null]}), Ok(json!({"supplementalGroups": [0]}))),
            ("unknown field", json!({"nope": 1}), Ok(json!({}))),
        ] {
            let found = read("Pod", pod(context)).map(|pod| pod["spec"]["securityContext"].clone());
            assert_eq!(found, expected.map_err(str::to_owned), "{case}");
        }
    }

    #[test]
    fn metadata_and_data_are_typed_in_every_kind() {
        for (case, kind, object, expected) in [
            (
                "null labels",
                "ConfigMap",
                json!({"metadata": {"name": "a", "labels": null}}),
                Ok(json!({"name": "a"})),
            ),
            (
                "null label",
                "ConfigMap",
                json!({"metadata": {"labels": {"a": null}}}),
                Ok(json!({"labels": {"a": ""}})),
            ),
            (
                "generation",
                "ConfigMap",
                json!({"metadata": {"generation": 1.5}}),
                Err("cannot convert float64 to int64"),
            ),
            (
                "a Secret's data",
                "Secret",
                json!({"data": {"a": "not base64!"}}),
                Err("error decoding from json: illegal base64 data at input byte 3"),
            ),
            (
                "replicas",
                "Deployment",
                json!({"spec": {"replicas": 1.5}}),
                Err("cannot convert float64 to int32"),
            ),
            (
                "replicas that wrap around",
                "Deployment",
                json!({"spec": {"replicas": 4_294_967_297_u64}}),
                Err("spec.replicas: number 4294967297 does not fit into int32"),
            ),
            ("no object", "ConfigMap", json!([1]), Err("cannot restore struct from: slice")),
        ] {
            let found = read(kind, object).map(|object| {
                let mut metadata = object["metadata"].clone();
                if let Some(fields) = metadata.as_object_mut() {
                    fields.remove("creationTimestamp");
                }
                metadata
            });
            assert_eq!(found, expected.map_err(str::to_owned), "{case}");
        }
    }
}
