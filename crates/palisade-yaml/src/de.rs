//! serde: any type that reads JSON reads these nodes, and its errors carry their place.
//!
//! Values are what [`NodeRef`] resolves them to. Floats without fraction count as integers, because upstream turns YAML
//! into JSON first and writes `1e3` as `1000` on the way. Infinities and NaN are errors, because JSON has none.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize,
    de::{
        self, DeserializeSeed, EnumAccess, Error as _, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
        VariantAccess, Visitor,
    },
    forward_to_deserialize_any,
};

use crate::{
    NodeRef, Resolved, Span,
    node_ref::{Entry, View},
    path::{DisplayPath, Step},
};

/// Why a node does not fit a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeserializeError {
    /// The node that does not fit.
    pub span: Span,
    /// What is wrong: one lower-case phrase, without the path.
    pub message: String,
    /// From the root (or the node that is read) to the node, innermost first while it is put together.
    steps: Vec<OwnedStep>,
    located: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum OwnedStep {
    Key(String),
    Index(usize),
}

impl DeserializeError {
    fn new(message: String) -> Self {
        Self { span: Span::default(), message, steps: Vec::new(), located: false }
    }

    /// The innermost node that sees an error is the one it is about.
    fn at(mut self, node: NodeRef<'_>) -> Self {
        if !self.located {
            self.span = node.span();
            self.located = true;
        }
        self
    }

    fn below(mut self, step: OwnedStep) -> Self {
        self.steps.push(step);
        self
    }

    /// The path to the node, `spec.containers[0].image`; empty for the node itself.
    #[must_use]
    pub fn path(&self) -> String {
        let steps: Vec<Step<'_>> = self
            .steps
            .iter()
            .rev()
            .map(|step| match step {
                OwnedStep::Key(key) => Step::Key(key),
                OwnedStep::Index(index) => Step::Index(*index),
            })
            .collect();
        DisplayPath(&steps).to_string()
    }
}

impl fmt::Display for DeserializeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path();
        if !path.is_empty() {
            write!(f, "{path}: ")?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for DeserializeError {}

impl de::Error for DeserializeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string())
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::new(format!("expected {}, found {}", in_our_words(&expected.to_string()), found(unexpected)))
    }

    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        let text = expected.to_string();
        match (integer_range(&text), unexpected) {
            (Some(range), Unexpected::Signed(value)) => Self::new(format!("expected {range}, found {value}")),
            (Some(range), Unexpected::Unsigned(value)) => {
                Self::new(format!("expected {range}, found {value}"))
            }
            _ => Self::invalid_type(unexpected, expected),
        }
    }

    fn invalid_length(length: usize, expected: &dyn de::Expected) -> Self {
        Self::new(format!("expected {}, found {length} items", in_our_words(&expected.to_string())))
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Self::new(format!("expected one of {}, found {variant:?}", quoted(expected)))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        if expected.is_empty() {
            return Self::new(format!("unknown field {field:?}, no fields are expected"));
        }
        Self::new(format!("unknown field {field:?}, expected one of {}", quoted(expected)))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(format!("the field {field:?} is missing"))
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::new(format!("the field {field:?} is set twice"))
    }
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}

/// serde uses Rust's terms (`i64`, `struct Pod`, `a map`); messages use YAML's.
fn in_our_words(expected: &str) -> Cow<'_, str> {
    match expected {
        "bool" => "a boolean".into(),
        "i8" | "i16" | "i32" | "i64" | "i128" | "u8" | "u16" | "u32" | "u64" | "u128" | "usize" | "isize" => {
            "an integer".into()
        }
        "f32" | "f64" => "a number".into(),
        "a map" => "a mapping".into(),
        "a sequence" => "a list".into(),
        "a borrowed string" | "string" => "a string".into(),
        _ if expected.starts_with("struct ") => "a mapping".into(),
        _ if expected.starts_with("a tuple") || expected.starts_with("tuple ") => "a list".into(),
        _ => expected.into(),
    }
}

/// What an integer type holds, for a value that is an integer but not one of these.
fn integer_range(expected: &str) -> Option<&'static str> {
    Some(match expected {
        "i8" => "an integer from -128 to 127",
        "i16" => "an integer from -32768 to 32767",
        "i32" => "an integer from -2147483648 to 2147483647",
        "i64" | "isize" => "an integer of at most 64 bits with sign",
        "u8" => "an integer from 0 to 255",
        "u16" => "an integer from 0 to 65535",
        "u32" => "an integer from 0 to 4294967295",
        "u64" | "usize" => "an integer of at most 64 bits without sign",
        _ => return None,
    })
}

fn found(unexpected: Unexpected<'_>) -> String {
    match unexpected {
        Unexpected::Bool(value) => format!("the boolean {value}"),
        Unexpected::Unsigned(value) => format!("the integer {value}"),
        Unexpected::Signed(value) => format!("the integer {value}"),
        Unexpected::Float(value) => format!("the number {value}"),
        Unexpected::Str(text) => format!("the string {:?}", shorten(text)),
        Unexpected::Unit | Unexpected::Option => "null".into(),
        Unexpected::Seq => "a list".into(),
        Unexpected::Map => "a mapping".into(),
        other => other.to_string(),
    }
}

fn unexpected(scalar: Resolved<'_>) -> Unexpected<'_> {
    match scalar {
        Resolved::Null => Unexpected::Unit,
        Resolved::Bool(value) => Unexpected::Bool(value),
        Resolved::Int(value) => Unexpected::Signed(value),
        Resolved::UInt(value) => Unexpected::Unsigned(value),
        Resolved::Float(value) => Unexpected::Float(value),
        Resolved::Str(text) => Unexpected::Str(text),
    }
}

/// Messages show only the beginning of a long text.
fn shorten(text: &str) -> Cow<'_, str> {
    const LONG: usize = 60;
    match text.char_indices().nth(LONG) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()).into(),
        None => text.into(),
    }
}

impl NodeRef<'_> {
    /// The value as JSON.
    pub fn to_json(self) -> Result<serde_json::Value, DeserializeError> {
        serde_json::Value::deserialize(self)
    }
}

impl<'de> NodeRef<'de> {
    fn visit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        let result = match self.view() {
            View::Scalar(Resolved::Null) => visitor.visit_unit(),
            View::Scalar(Resolved::Bool(value)) => visitor.visit_bool(value),
            View::Scalar(Resolved::Int(value)) => visitor.visit_i64(value),
            View::Scalar(Resolved::UInt(value)) => visitor.visit_u64(value),
            View::Scalar(Resolved::Float(value)) => match whole(value) {
                Some(value) => visitor.visit_i64(value),
                None if value.is_finite() => visitor.visit_f64(value),
                None => {
                    let text = self.target().span().text(self.document().source());
                    Err(de::Error::custom(format_args!("`{text}` is not a number that JSON can hold")))
                }
            },
            View::Scalar(Resolved::Str(text)) => visitor.visit_borrowed_str(text),
            View::Sequence(items) => {
                let mut access = Items { items: items.into_iter().enumerate() };
                visitor.visit_seq(&mut access)
            }
            View::Mapping(entries) => {
                visitor.visit_map(Entries { entries: entries.into_iter(), value: None })
            }
        };
        result.map_err(|error: DeserializeError| error.at(self))
    }
}

/// The integer that Go would write for this float.
pub(crate) fn whole(value: f64) -> Option<i64> {
    // Beyond 2^63 there is no i64, and upstream's integers end there as well.
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    // Negative zero stays a float: `-0` is what Go writes.
    let fits = value.trunc().to_bits() == value.to_bits() && value.abs() < LIMIT;
    #[allow(clippy::cast_possible_truncation)]
    (fits && !(value == 0.0 && value.is_sign_negative())).then_some(value as i64)
}

impl<'de> de::Deserializer<'de> for NodeRef<'de> {
    type Error = DeserializeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        self.visit(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        if self.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        let result = match self.view() {
            View::Scalar(Resolved::Str(variant)) => {
                visitor.visit_enum(Variant { name: Cow::Borrowed(variant), value: None })
            }
            View::Mapping(entries) => match <[Entry<'_>; 1]>::try_from(entries) {
                Ok([entry]) => visitor.visit_enum(Variant { name: entry.key, value: Some(entry.value) }),
                Err(_) => Err(de::Error::custom(format_args!("expected one of {}", quoted(variants)))),
            },
            View::Scalar(other) => Err(de::Error::custom(format_args!(
                "expected one of {}, found {}",
                quoted(variants),
                found(unexpected(other))
            ))),
            View::Sequence(_) => {
                Err(de::Error::custom(format_args!("expected one of {}, found a list", quoted(variants))))
            }
        };
        result.map_err(|error: DeserializeError| error.at(self))
    }

    /// serde's derived structs would take a list for their fields in order; no manifest means that.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        if self.is_sequence() {
            return Err(Self::Error::invalid_type(Unexpected::Seq, &visitor).at(self));
        }
        self.visit(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier
    }
}

struct Items<'de> {
    items: std::iter::Enumerate<std::vec::IntoIter<NodeRef<'de>>>,
}

impl<'de> SeqAccess<'de> for &mut Items<'de> {
    type Error = DeserializeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Self::Error> {
        let Some((index, item)) = self.items.next() else { return Ok(None) };
        seed.deserialize(item).map(Some).map_err(|error| error.at(item).below(OwnedStep::Index(index)))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

struct Entries<'de> {
    entries: std::vec::IntoIter<Entry<'de>>,
    value: Option<(Cow<'de, str>, NodeRef<'de>)>,
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = DeserializeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Self::Error> {
        let Some(entry) = self.entries.next() else { return Ok(None) };
        let key = seed.deserialize(Key(entry.key.clone())).map_err(|error| error.at(entry.key_node))?;
        self.value = Some((entry.key, entry.value));
        Ok(Some(key))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Self::Error> {
        let Some((key, value)) = self.value.take() else {
            return Err(de::Error::custom("a value was read before its key"));
        };
        seed.deserialize(value).map_err(|error| error.at(value).below(OwnedStep::Key(key.into_owned())))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.entries.len())
    }
}

/// A mapping key: always a string, except for types that take it as a number or boolean.
struct Key<'de>(Cow<'de, str>);

macro_rules! parse_key {
    ($($method:ident $visit:ident $type:ty),* $(,)?) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
            match self.0.parse::<$type>() {
                Ok(value) => visitor.$visit(value),
                Err(_) => self.deserialize_any(visitor),
            }
        }
    )*};
}

impl<'de> de::Deserializer<'de> for Key<'de> {
    type Error = DeserializeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match self.0 {
            Cow::Borrowed(key) => visitor.visit_borrowed_str(key),
            Cow::Owned(key) => visitor.visit_string(key),
        }
    }

    parse_key! {
        deserialize_bool visit_bool bool, deserialize_i8 visit_i8 i8, deserialize_i16 visit_i16 i16,
        deserialize_i32 visit_i32 i32, deserialize_i64 visit_i64 i64, deserialize_u8 visit_u8 u8,
        deserialize_u16 visit_u16 u16, deserialize_u32 visit_u32 u32, deserialize_u64 visit_u64 u64,
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        visitor.visit_enum(Variant { name: self.0, value: None })
    }

    forward_to_deserialize_any! {
        i128 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier
        ignored_any
    }
}

struct Variant<'de> {
    name: Cow<'de, str>,
    value: Option<NodeRef<'de>>,
}

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = DeserializeError;
    type Variant = VariantValue<'de>;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, Self::Variant), Self::Error> {
        let name = seed.deserialize(self.name.clone().into_deserializer())?;
        Ok((name, VariantValue { name: self.name, value: self.value }))
    }
}

struct VariantValue<'de> {
    name: Cow<'de, str>,
    value: Option<NodeRef<'de>>,
}

impl<'de> VariantValue<'de> {
    fn value<T>(
        self,
        read: impl FnOnce(NodeRef<'de>) -> Result<T, DeserializeError>,
    ) -> Result<T, DeserializeError> {
        match self.value {
            Some(value) => {
                read(value).map_err(|error| error.at(value).below(OwnedStep::Key(self.name.into_owned())))
            }
            None => Err(de::Error::custom(format_args!("expected a mapping with the key {:?}", self.name))),
        }
    }
}

impl<'de> VariantAccess<'de> for VariantValue<'de> {
    type Error = DeserializeError;

    fn unit_variant(self) -> Result<(), Self::Error> {
        match self.value {
            None => Ok(()),
            Some(_) => self.value(<()>::deserialize),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Self::Error> {
        self.value(|value| seed.deserialize(value))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, Self::Error> {
        self.value(|value| value.visit(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.value(|value| value.visit(visitor))
    }
}

impl crate::Document<'_> {
    /// Reads the document into a type that borrows from it.
    pub fn deserialize<'de, T: Deserialize<'de>>(&'de self) -> Result<T, DeserializeError> {
        T::deserialize(self.root())
    }
}
