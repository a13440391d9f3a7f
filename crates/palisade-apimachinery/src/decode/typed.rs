//! One pass over a JSON text that checks types, drops unknown fields and builds the canonical form.
//!
//! Problems are collected in the order of the document, as Go finds them: the first type error (Go keeps the first),
//! and every unknown or duplicate field.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use base64::Engine as _;
use palisade_base::go;
use palisade_base::quantity::Quantity;
use palisade_base::time;
use palisade_base::version::KubeVersion;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::schema::{Struct, Type, TypeKind, TypeRef};

/// What was found while reading.
#[derive(Debug)]
pub(crate) struct Problems {
    /// The first type error, in Go's words.
    pub(crate) error: Option<String>,
    /// Unknown and duplicate fields.
    pub(crate) strict: Vec<String>,
    version: KubeVersion,
    path: Vec<PlaceStep>,
    /// Name of the struct whose field is being read.
    owner: Cow<'static, str>,
    /// Errors in the words of the converter from maps, not of the JSON decoder.
    unstructured: bool,
    /// How many structs were read.
    structs: usize,
    /// The first number that the converter from maps would wrap around: where, which, and the bits of its field.
    pub(crate) out_of_range: Option<(String, Number, u8)>,
}

#[derive(Debug, Clone)]
enum PlaceStep {
    Field(Cow<'static, str>),
    Key(String),
    Index(usize),
}

/// Objects inside an object that is read. An object of fifteen bytes each, which is less than any has in storage, would be
/// too large with so many; read, each takes hundreds of bytes however short its text is.
const MAX_STRUCTS: usize = 100_000;

/// Go reports strict errors only up to this many.
const MAX_STRICT: usize = 100;

impl Problems {
    pub(crate) fn new(version: KubeVersion) -> Self {
        Self {
            error: None,
            strict: Vec::new(),
            version,
            path: Vec::new(),
            owner: Cow::Borrowed(""),
            unstructured: false,
            structs: 0,
            out_of_range: None,
        }
    }

    /// For values that upstream converts without going through JSON text (strategic merge patches).
    pub(crate) fn unstructured(version: KubeVersion) -> Self {
        Self { unstructured: true, ..Self::new(version) }
    }

    fn strict(&mut self, what: &str, field: &str) {
        if self.strict.len() >= MAX_STRICT {
            return;
        }
        let mut path = self.path_text();
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(field);
        self.strict.push(format!("{what} field {}", go::quote(&path)));
    }

    fn path_text(&self) -> String {
        let mut path = String::new();
        for step in &self.path {
            match step {
                PlaceStep::Field(_) | PlaceStep::Key(_) => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(match step {
                        PlaceStep::Field(name) => name,
                        PlaceStep::Key(name) => name,
                        PlaceStep::Index(_) => "",
                    });
                }
                PlaceStep::Index(at) => {
                    let _ = write!(path, "[{at}]");
                }
            }
        }
        path
    }

    fn mismatch(&mut self, found: &str, ty: &Type, of: TypeRef<'_>) {
        if self.error.is_some() {
            return;
        }
        if self.unstructured {
            self.error = Some(conversion_error(found, ty));
            return;
        }
        let fields: Vec<&str> = self
            .path
            .iter()
            .filter_map(|step| match step {
                PlaceStep::Field(name) => Some(&**name),
                _ => None,
            })
            .collect();
        let target = ty.go(of.schema);
        self.error = Some(if fields.is_empty() {
            format!("json: cannot unmarshal {found} into Go value of type {target}")
        } else {
            format!(
                "json: cannot unmarshal {found} into Go struct field {}.{} of type {target}",
                self.owner.rsplit('.').next().unwrap_or_default(),
                fields.join(".")
            )
        });
    }

    fn refuse(&mut self, error: String) {
        self.error.get_or_insert(error);
    }
}

/// The error of `runtime.DefaultUnstructuredConverter` for a value of the wrong type.
fn conversion_error(found: &str, ty: &Type) -> String {
    let (kind, fraction) = match found {
        "object" => ("map", false),
        "array" => ("slice", false),
        "string" => ("string", false),
        "bool" => ("bool", false),
        number => {
            let fraction = number.contains(['.', 'e', 'E']);
            (if fraction { "float64" } else { "int64" }, fraction)
        }
    };
    match &ty.kind {
        TypeKind::Struct { .. } => format!("cannot restore struct from: {kind}"),
        TypeKind::List { .. } | TypeKind::Bytes => format!("cannot restore slice from {kind}"),
        TypeKind::Map { .. } => format!("cannot restore map from {kind}"),
        TypeKind::String if kind == "int64" => {
            let target = if ty.go_name.is_empty() { "string" } else { ty.go_name };
            format!("cannot convert int64 to {target}")
        }
        TypeKind::String => "unrecognized type: string".into(),
        TypeKind::Int(bits) if fraction => format!("cannot convert float64 to int{bits}"),
        TypeKind::Int(bits) => format!("unrecognized type: int{bits}"),
        TypeKind::Bool => "unrecognized type: bool".into(),
        _ => "unrecognized type: float64".into(),
    }
}

/// Reads a value of type `of`; the result is canonical, problems are noted on the side.
pub(crate) fn read_typed<'de, D>(
    of: TypeRef<'_>,
    input: D,
    problems: &mut Problems,
) -> Result<Value, D::Error>
where
    D: Deserializer<'de> + EndOfInput,
{
    let value = Seed { of, problems, before: Value::Null }.deserialize(input)?;
    Ok(value)
}

/// Marker for inputs that are read to their end. JSON text is: [`read_typed`] is called after the header was read from
/// the same text by a parser that insists on it.
pub(crate) trait EndOfInput {}
impl<'de, R: serde_json::de::Read<'de>> EndOfInput for &mut serde_json::Deserializer<R> {}
impl EndOfInput for Value {}

struct Seed<'t, 'p> {
    of: TypeRef<'t>,
    problems: &'p mut Problems,
    /// What the same key held before in the same object. Go decodes the second value into the first: structs and maps are
    /// merged, and so are the elements of lists. Otherwise a pod that Kubernetes rejects could be written twice and pass.
    before: Value,
}

impl Seed<'_, '_> {
    fn read_text(self, text: String) -> Value {
        match &self.of.ty.kind {
            TypeKind::String | TypeKind::Any | TypeKind::IntOrString => return Value::String(text),
            TypeKind::Bytes => {
                if let Some(at) = bad_base64(&text) {
                    let prefix = if self.problems.unstructured { "error decoding from json: " } else { "" };
                    self.problems.refuse(format!("{prefix}illegal base64 data at input byte {at}"));
                    return Value::Null;
                }
                return Value::String(text);
            }
            TypeKind::Quantity => match Quantity::parse(&text) {
                Ok(quantity) => return Value::String(quantity.to_string()),
                Err(error) => self.problems.refuse(error.to_string()),
            },
            TypeKind::Time | TypeKind::MicroTime => {
                let micro = matches!(self.of.ty.kind, TypeKind::MicroTime);
                match time::parse(&text) {
                    Ok(time) => return Value::String(time.format(micro)),
                    Err(error) => self.problems.refuse(error.to_string()),
                }
            }
            _ => self.problems.mismatch("string", self.of.ty, self.of),
        }
        Value::Null
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        // `null` leaves what is no pointer as it was.
        let plain = matches!(
            self.of.ty.kind,
            TypeKind::String | TypeKind::Bool | TypeKind::Int(_) | TypeKind::Float | TypeKind::Struct { .. }
        );
        Ok(if plain && !self.of.ty.pointer { self.before } else { Value::Null })
    }

    fn visit_bool<E>(self, b: bool) -> Result<Value, E> {
        match &self.of.ty.kind {
            TypeKind::Bool | TypeKind::Any | TypeKind::SchemaOr => return Ok(Value::Bool(b)),
            TypeKind::Quantity => self.problems.refuse(QUANTITY_FORMAT.into()),
            TypeKind::IntOrString => {
                self.problems.refuse("json: cannot unmarshal bool into Go value of type int32".into());
            }
            TypeKind::Time | TypeKind::MicroTime => {
                self.problems.refuse("json: cannot unmarshal bool into Go value of type string".into());
            }
            _ => self.problems.mismatch("bool", self.of.ty, self.of),
        }
        Ok(Value::Null)
    }

    fn visit_i64<E>(mut self, n: i64) -> Result<Value, E> {
        Ok(number(&mut self, &n.into()))
    }

    fn visit_u64<E>(mut self, n: u64) -> Result<Value, E> {
        Ok(number(&mut self, &n.into()))
    }

    fn visit_f64<E>(mut self, n: f64) -> Result<Value, E> {
        Ok(Number::from_f64(n).map_or(Value::Null, |n| number(&mut self, &n)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(self.read_text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(self.read_text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let item = match &self.of.ty.kind {
            TypeKind::List { item, .. } => item,
            TypeKind::Any | TypeKind::SchemaOr => {
                let mut items = Vec::new();
                while let Some(value) =
                    seq.next_element_seed(Untyped { problems: self.problems, at: Some(items.len()) })?
                {
                    items.push(value);
                }
                return Ok(Value::Array(items));
            }
            kind => {
                match kind {
                    TypeKind::Quantity => self.problems.refuse(QUANTITY_FORMAT.into()),
                    TypeKind::Time | TypeKind::MicroTime => self
                        .problems
                        .refuse("json: cannot unmarshal array into Go value of type string".into()),
                    TypeKind::IntOrString => self
                        .problems
                        .refuse("json: cannot unmarshal array into Go value of type int32".into()),
                    _ => self.problems.mismatch("array", self.of.ty, self.of),
                }
                while seq.next_element::<serde::de::IgnoredAny>()?.is_some() {}
                return Ok(Value::Null);
            }
        };
        let mut items = Vec::new();
        let mut earlier = match self.before {
            Value::Array(items) => items.into_iter(),
            _ => Vec::new().into_iter(),
        };
        loop {
            self.problems.path.push(PlaceStep::Index(items.len()));
            let before = earlier.next().unwrap_or_default();
            let next =
                seq.next_element_seed(Seed { of: self.of.with(item), problems: self.problems, before });
            self.problems.path.pop();
            match next? {
                // `null` in a list is the zero value of the item.
                Some(Value::Null) if !item.pointer => {
                    items.push(self.of.with(item).zero(self.problems.version));
                }
                Some(value) => items.push(value),
                None => break,
            }
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        match &self.of.ty.kind {
            TypeKind::Struct { .. } | TypeKind::SchemaOr => match self.of.as_struct() {
                Some(s) => read_struct(s, self.of, map, self.problems, self.before),
                None => Ok(Value::Null),
            },
            TypeKind::Map { item, .. } => {
                let mut object = Map::new();
                while let Some(key) = map.next_key::<String>()? {
                    if object.contains_key(&key) {
                        self.problems.strict("duplicate", &key);
                    }
                    self.problems.path.push(PlaceStep::Key(key.clone()));
                    let seed = Seed { of: self.of.with(item), problems: self.problems, before: Value::Null };
                    let value = map.next_value_seed(seed);
                    self.problems.path.pop();
                    let mut value = value?;
                    if value.is_null() && !item.pointer {
                        value = self.of.with(item).zero(self.problems.version);
                    }
                    object.insert(key, value);
                }
                if let Value::Object(earlier) = self.before {
                    for (key, value) in earlier {
                        object.entry(key).or_insert(value);
                    }
                }
                Ok(Value::Object(object))
            }
            TypeKind::Any => {
                let seed = Untyped { problems: self.problems, at: None };
                seed.visit_map(map)
            }
            kind => {
                match kind {
                    TypeKind::Quantity => self.problems.refuse(QUANTITY_FORMAT.into()),
                    TypeKind::Time | TypeKind::MicroTime => self
                        .problems
                        .refuse("json: cannot unmarshal object into Go value of type string".into()),
                    TypeKind::IntOrString => self
                        .problems
                        .refuse("json: cannot unmarshal object into Go value of type int32".into()),
                    _ => self.problems.mismatch("object", self.of.ty, self.of),
                }
                while map.next_entry::<serde::de::IgnoredAny, serde::de::IgnoredAny>()?.is_some() {}
                Ok(Value::Null)
            }
        }
    }
}

const QUANTITY_FORMAT: &str = "unable to parse quantity's suffix";

fn number(seed: &mut Seed<'_, '_>, n: &Number) -> Value {
    match &seed.of.ty.kind {
        TypeKind::Any | TypeKind::Float => return Value::Number(n.clone()),
        TypeKind::Int(bits) => {
            let fits = match n.as_i64() {
                Some(whole) => *bits == 64 || i32::try_from(whole).is_ok(),
                None => false,
            };
            if fits {
                return Value::Number(n.clone());
            }
            if seed.problems.unstructured {
                return converted(seed.problems, n, *bits, seed.of);
            }
            let found = format!("number {n}");
            seed.problems.mismatch(&found, seed.of.ty, seed.of);
        }
        TypeKind::IntOrString => {
            if n.as_i64().is_some_and(|whole| i32::try_from(whole).is_ok()) {
                return Value::Number(n.clone());
            }
            seed.problems.refuse(format!("json: cannot unmarshal number {n} into Go value of type int32"));
        }
        TypeKind::Quantity => match Quantity::parse(&n.to_string()) {
            Ok(quantity) => return Value::String(quantity.to_string()),
            Err(error) => seed.problems.refuse(error.to_string()),
        },
        TypeKind::Time | TypeKind::MicroTime => {
            seed.problems.refuse("json: cannot unmarshal number into Go value of type string".into());
        }
        _ => seed.problems.mismatch("number", seed.of.ty, seed.of),
    }
    Value::Null
}

/// A number that is no whole number of the right size yet. Upstream's converter takes a float without a fraction, and wraps
/// around what is too large; that is rejected here.
fn converted(problems: &mut Problems, n: &Number, bits: u8, of: TypeRef<'_>) -> Value {
    // Every whole number below this is exact in a float.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let float = n.as_f64().unwrap_or(f64::INFINITY);
    if float.fract() != 0.0 {
        problems.mismatch(&format!("number {n}"), of.ty, of);
        return Value::Null;
    }
    #[expect(clippy::cast_possible_truncation, reason = "whole, and checked to be small enough")]
    let whole = (float.abs() <= EXACT).then_some(float as i64);
    if let Some(whole) = whole.filter(|whole| bits == 64 || i32::try_from(*whole).is_ok()) {
        return whole.into();
    }
    if problems.out_of_range.is_none() {
        problems.out_of_range = Some((problems.path_text(), n.clone(), bits));
    }
    // Readers that only look at the error must not take it either.
    problems.refuse(format!("number {n} does not fit into int{bits}"));
    Value::Null
}

fn read_struct<'de, A: MapAccess<'de>>(
    s: &Struct,
    of: TypeRef<'_>,
    mut map: A,
    problems: &mut Problems,
    before: Value,
) -> Result<Value, A::Error> {
    problems.structs += 1;
    if problems.structs > MAX_STRUCTS {
        return Err(serde::de::Error::custom(format_args!(
            "more than {MAX_STRUCTS} objects inside the object"
        )));
    }
    let version = problems.version;
    let (mut object, merges) = match before {
        Value::Object(object) => (object, true),
        _ => (Map::new(), false),
    };
    // Which fields were seen, for duplicates; structs have fewer than 128 fields.
    let mut seen: u128 = 0;
    while let Some(key) = map.next_key_seed(KeySeed { s, version })? {
        let at = match key {
            Key::Known(at) => at,
            Key::Unknown(key) => {
                problems.strict("unknown", &key);
                map.next_value::<serde::de::IgnoredAny>()?;
                continue;
            }
        };
        let field = &s.fields[at];
        let mut twice = false;
        if at < 128 {
            twice = seen & (1 << at) != 0;
            if twice {
                problems.strict("duplicate", &field.name);
            }
            seen |= 1 << at;
        }
        let before = if twice || merges { object.remove(&*field.name) } else { None }.unwrap_or_default();
        problems.path.push(PlaceStep::Field(field.name.clone()));
        let outer = std::mem::replace(&mut problems.owner, s.name.clone());
        let value = map.next_value_seed(Seed { of: of.with(&field.ty), problems, before });
        problems.owner = outer;
        problems.path.pop();
        let value = value?;
        if value.is_null() || field.omits(&value) {
            object.remove(&*field.name);
            continue;
        }
        object.insert(field.name.to_string(), value);
    }
    for field in s.written_unset() {
        if !object.contains_key(&*field.name)
            && let Some(zero) = field.zero_value(of, version)
        {
            object.insert(field.name.to_string(), zero);
        }
    }
    Ok(Value::Object(object))
}

/// The key of a struct: its field, or a name that is none.
enum Key {
    Known(usize),
    Unknown(String),
}

struct KeySeed<'s> {
    s: &'s Struct,
    version: KubeVersion,
}

impl<'de> DeserializeSeed<'de> for KeySeed<'_> {
    type Value = Key;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Key, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed<'_> {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name")
    }

    fn visit_str<E>(self, text: &str) -> Result<Key, E> {
        Ok(match self.s.position(text).filter(|at| self.s.fields[*at].exists_in(self.version)) {
            Some(at) => Key::Known(at),
            None => Key::Unknown(text.to_owned()),
        })
    }
}

/// Reads any JSON, noting duplicate fields.
struct Untyped<'p> {
    problems: &'p mut Problems,
    at: Option<usize>,
}

/// Reads any JSON value; duplicate fields are noted, the last one counts.
pub(crate) fn read_untyped<'de, D: Deserializer<'de>>(
    input: D,
    problems: &mut Problems,
) -> Result<Value, D::Error> {
    Untyped { problems, at: None }.deserialize(input)
}

impl<'de> DeserializeSeed<'de> for Untyped<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self.at {
            Some(at) => {
                self.problems.path.push(PlaceStep::Index(at));
                let result = deserializer.deserialize_any(Untyped { problems: self.problems, at: None });
                self.problems.path.pop();
                result
            }
            None => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Untyped<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E>(self, b: bool) -> Result<Value, E> {
        Ok(Value::Bool(b))
    }
    fn visit_i64<E>(self, n: i64) -> Result<Value, E> {
        Ok(n.into())
    }
    fn visit_u64<E>(self, n: u64) -> Result<Value, E> {
        Ok(n.into())
    }
    fn visit_f64<E>(self, n: f64) -> Result<Value, E> {
        Ok(Number::from_f64(n).map_or(Value::Null, Value::Number))
    }
    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }
    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) =
            seq.next_element_seed(Untyped { problems: &mut *self.problems, at: Some(items.len()) })?
        {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if object.contains_key(&key) {
                self.problems.strict("duplicate", &key);
            }
            self.problems.path.push(PlaceStep::Key(key));
            let value = map.next_value_seed(Untyped { problems: &mut *self.problems, at: None })?;
            if let Some(PlaceStep::Key(key)) = self.problems.path.pop() {
                object.insert(key, value);
            }
        }
        Ok(Value::Object(object))
    }
}

/// Whether text is standard base64.
pub(crate) fn is_base64(text: &str) -> bool {
    bad_base64(text).is_none()
}

/// The offset Go reports for text that is not standard base64, or `None` if it is.
fn bad_base64(text: &str) -> Option<usize> {
    if base64::engine::general_purpose::STANDARD.decode(text).is_ok() {
        return None;
    }
    let bytes = text.as_bytes();
    let is_digit = |b: u8| b.is_ascii_alphanumeric() || b == b'+' || b == b'/';
    // Go skips line breaks, then stops at the first byte that cannot be there.
    let at = bytes.iter().position(|b| !is_digit(*b) && !matches!(b, b'=' | b'\n' | b'\r'));
    Some(at.unwrap_or_else(|| {
        let digits = bytes.iter().position(|b| *b == b'=').unwrap_or(bytes.len());
        if digits == bytes.len() { digits - digits % 4 } else { digits }
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::decode::{FieldValidation, decode};
    use crate::scheme::LATEST;

    #[test]
    fn a_key_that_is_there_twice_is_decoded_into_what_it_held() {
        let kind = LATEST.by_kind("", "v1", "Pod").expect("a kind");
        for (case, spec, expected) in [
            ("a scalar is replaced", r#""hostPID": true, "hostPID": false"#, json!({"containers": null})),
            (
                "null leaves what is no pointer",
                r#""hostPID": true, "hostPID": null"#,
                json!({"containers": null, "hostPID": true}),
            ),
            (
                "null unsets a pointer",
                r#""hostUsers": false, "hostUsers": null, "securityContext": {}, "securityContext": null"#,
                json!({"containers": null}),
            ),
            (
                "structs are merged",
                r#""securityContext": {"runAsUser": 0}, "securityContext": {"runAsGroup": 1}"#,
                json!({"containers": null, "securityContext": {"runAsUser": 0, "runAsGroup": 1}}),
            ),
            (
                "maps are merged",
                r#""nodeSelector": {"a": "1", "b": "1"}, "nodeSelector": {"b": "2"}"#,
                json!({"containers": null, "nodeSelector": {"a": "1", "b": "2"}}),
            ),
            (
                "lists keep as many elements as the last has, and merge those",
                r#""containers": [{"name": "a", "image": "i"}, {"name": "b"}], "containers": [{"name": "c"}]"#,
                json!({"containers": [{"name": "c", "image": "i", "resources": {}}]}),
            ),
        ] {
            let body = format!(r#"{{"spec": {{{spec}}}}}"#);
            let decoded = decode(kind, body.as_bytes(), FieldValidation::Warn).expect("a pod");
            assert_eq!(decoded.object["spec"], expected, "{case}");
            assert!(decoded.warnings.iter().all(|w| w.contains("duplicate field")), "{case}");
            decode(kind, body.as_bytes(), FieldValidation::Strict).expect_err(case);
        }
    }
}
