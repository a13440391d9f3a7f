//! JSON read as an API server reads it: an object is an object, and has each key once.
//!
//! A derived reader takes a list for a struct, field by field, and an empty list for a struct without any field set: a pod
//! written as `[]` would request nothing and pass every check. A key that comes twice is merged by Go's decoder and
//! replaced by others, so that two readers see two pods. Both are errors here.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, EnumAccess, Error as _, IgnoredAny, MapAccess, SeqAccess, VariantAccess, Visitor},
};
use serde_json::{Map, Number, Value};

use crate::{pod::Pod, workload::read_template};

/// Reads a value whose structs are JSON objects.
pub fn from_str<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, serde_json::Error> {
    read(serde_json::Deserializer::from_str(text), |json| T::deserialize(json))
}

/// The same from bytes.
pub fn from_slice<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, serde_json::Error> {
    read(serde_json::Deserializer::from_slice(bytes), |json| T::deserialize(json))
}

/// The same from a value.
pub fn from_value<'a, T: Deserialize<'a>>(value: &'a Value) -> Result<T, serde_json::Error> {
    T::deserialize(Objects(value))
}

/// The pod or template at a path; `None` if there is none. See [`read_template`].
pub fn template_from_str<'a>(
    text: &'a str,
    path: &'static [&'static str],
) -> Result<Option<Pod<'a>>, serde_json::Error> {
    read(serde_json::Deserializer::from_str(text), |json| read_template(json, path))
}

/// An object as a value, without `metadata.managedFields`: no decision needs them, and they nest as deeply as users write them.
pub fn object_from_str(text: &str) -> Result<Map<String, Value>, serde_json::Error> {
    read(serde_json::Deserializer::from_str(text), |Objects(json)| json.deserialize_map(ObjectVisitor(TOP)))
}

/// Any JSON as a value.
pub fn value_from_str(text: &str) -> Result<Value, serde_json::Error> {
    read(serde_json::Deserializer::from_str(text), |Objects(json)| ValueSeed(&[]).deserialize(json))
}

/// What the error about a key that comes twice begins with.
pub(crate) const DUPLICATE: &str = "duplicate field `";

fn read<'a, R: serde_json::de::Read<'a>, T>(
    mut json: serde_json::Deserializer<R>,
    take: impl FnOnce(Objects<&mut serde_json::Deserializer<R>>) -> Result<T, serde_json::Error>,
) -> Result<T, serde_json::Error> {
    let value = take(Objects(&mut json))?;
    json.end()?;
    Ok(value)
}

/// A deserializer that takes nothing but maps for structs.
#[derive(Debug)]
struct Objects<D>(D);

macro_rules! leaves {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.0.$method(visitor)
        }
    )*};
}

macro_rules! nodes {
    ($($method:ident($($name:ident: $type:ty),*))*) => {$(
        fn $method<V: Visitor<'de>>(self, $($name: $type,)* visitor: V) -> Result<V::Value, D::Error> {
            self.0.$method($($name,)* Objects(visitor))
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Objects<D> {
    type Error = D::Error;

    leaves! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32
        deserialize_f64 deserialize_char deserialize_str deserialize_string deserialize_bytes
        deserialize_byte_buf deserialize_unit deserialize_identifier deserialize_ignored_any
    }

    nodes! {
        deserialize_any()
        deserialize_option()
        deserialize_seq()
        deserialize_map()
        deserialize_unit_struct(name: &'static str)
        deserialize_newtype_struct(name: &'static str)
        deserialize_tuple(len: usize)
        deserialize_tuple_struct(name: &'static str, len: usize)
        deserialize_enum(name: &'static str, variants: &'static [&'static str])
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(Objects(visitor))
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

macro_rules! values {
    ($($method:ident: $type:ty)*) => {$(
        fn $method<E: serde::de::Error>(self, value: $type) -> Result<V::Value, E> {
            self.0.$method(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Objects<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    values! {
        visit_bool: bool visit_i8: i8 visit_i16: i16 visit_i32: i32 visit_i64: i64 visit_i128: i128
        visit_u8: u8 visit_u16: u16 visit_u32: u32 visit_u64: u64 visit_u128: u128 visit_f32: f32
        visit_f64: f64 visit_char: char visit_str: &str visit_borrowed_str: &'de str
        visit_string: String visit_bytes: &[u8] visit_borrowed_bytes: &'de [u8] visit_byte_buf: Vec<u8>
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.0.visit_none()
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.0.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.0.visit_some(Objects(deserializer))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.0.visit_newtype_struct(Objects(deserializer))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<V::Value, A::Error> {
        self.0.visit_seq(Objects(seq))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(Objects(map))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<V::Value, A::Error> {
        self.0.visit_enum(Objects(data))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Objects<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(Objects(deserializer))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Objects<A> {
    type Error = A::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, A::Error> {
        self.0.next_element_seed(Objects(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Objects<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        self.0.next_key_seed(seed)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, A::Error> {
        self.0.next_value_seed(Objects(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: EnumAccess<'de>> EnumAccess<'de> for Objects<A> {
    type Error = A::Error;
    type Variant = Objects<A::Variant>;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self::Variant), A::Error> {
        let (value, variant) = self.0.variant_seed(seed)?;
        Ok((value, Objects(variant)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Objects<A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.0.unit_variant()
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, A::Error> {
        self.0.newtype_variant_seed(Objects(seed))
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.0.tuple_variant(len, Objects(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.0.struct_variant(fields, Objects(visitor))
    }
}

/// Where a value is: what lies at the end of the path is left out.
type Omitted = &'static [&'static str];
const TOP: Omitted = &["metadata", "managedFields"];

/// Makes a value of which every map has each of its keys once.
#[derive(Clone, Copy)]
struct ValueSeed(Omitted);

impl<'de> DeserializeSeed<'de> for ValueSeed {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("the number is out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(Self(&[]))? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Value, A::Error> {
        ObjectVisitor(self.0).visit_map(map).map(Value::Object)
    }
}

struct ObjectVisitor(Omitted);

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let below: Omitted = match self.0.split_first() {
                Some((first, [])) if *first == key => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                Some((first, rest)) if *first == key => rest,
                _ => &[],
            };
            if object.contains_key(&key) {
                return Err(A::Error::custom(format!("{DUPLICATE}{key}`")));
            }
            let value = map.next_value_seed(ValueSeed(below))?;
            object.insert(key, value);
        }
        Ok(object)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{from_str, from_value, object_from_str, template_from_str};
    use crate::pod::Pod;

    #[test]
    fn reads_pods_as_the_derived_reader_does() {
        let text = r#"{"metadata":{"name":"p","labels":{"a":null},"managedFields":[{}]},"spec":{"hostPID":true,
            "securityContext":{"supplementalGroups":[1,2],"seccompProfile":{"type":"Localhost","localhostProfile":"a"}},
            "volumes":[{"name":"v","hostPath":{"path":"/"}},null],"containers":[{"name":"c","ports":null,
            "securityContext":{"capabilities":{"add":["NET_RAW"]}},"lifecycle":{"preStop":{"httpGet":{"host":"h"}}}}]}}"#;
        assert_eq!(from_str::<Pod<'_>>(text).unwrap(), serde_json::from_str(text).unwrap());
    }

    #[test]
    fn rejects_lists_in_place_of_objects() {
        for text in [
            "[]",
            r#"[{"name":"p"},{}]"#,
            r#"{"spec":[]}"#,
            r#"{"metadata":[]}"#,
            r#"{"spec":{"securityContext":[]}}"#,
            r#"{"spec":{"containers":[[]]}}"#,
            r#"{"spec":{"containers":[{"securityContext":[true]}]}}"#,
            r#"{"spec":{"containers":[{"securityContext":{"capabilities":[]}}]}}"#,
            r#"{"spec":{"volumes":[[]]}}"#,
            r#""pod""#,
            "7",
            "null",
            "{} {}",
        ] {
            assert!(from_str::<Pod<'_>>(text).is_err(), "{text}");
            let value: Value = serde_json::from_str(text).unwrap_or_default();
            assert!(from_value::<Pod<'_>>(&value).is_err(), "{text}");
        }
        for text in [r#"{"spec":{"template":[]}}"#, r#"{"spec":{"template":{"spec":[]}}}"#, r#"{"spec":[]}"#]
        {
            assert!(template_from_str(text, &["spec", "template"]).is_err(), "{text}");
        }
    }

    #[test]
    fn rejects_keys_that_come_twice() {
        let text = r#"{"spec":{"hostPID":true,"hostPID":false}}"#;
        assert!(from_str::<Pod<'_>>(text).is_err());
        assert!(object_from_str(text).unwrap_err().to_string().starts_with("duplicate field `hostPID`"));
        for text in [
            r#"{"spec":{"template":{"spec":{"hostPID":true}}},"spec":{}}"#,
            r#"{"spec":{"template":{"spec":{"hostPID":true}},"template":{}}}"#,
        ] {
            assert!(template_from_str(text, &["spec", "template"]).is_err(), "{text}");
        }
        assert!(object_from_str(r#"{"a":{"b":1},"c":[{"d":1,"d":1}]}"#).is_err());
    }

    #[test]
    fn managed_fields_are_left_out_however_deep_they_are() {
        let deep = |levels: usize| {
            format!("{}{}", r#"{"f:a":"#.repeat(levels), "{}".to_owned() + &"}".repeat(levels))
        };
        let text = format!(
            r#"{{"metadata":{{"name":"p","managedFields":[{{"fieldsV1":{}}}]}},"spec":{{"hostPID":true}}}}"#,
            deep(4000)
        );
        let object = Value::Object(object_from_str(&text).unwrap());
        assert_eq!(object, json!({"metadata": {"name": "p"}, "spec": {"hostPID": true}}));
        assert_eq!(from_str::<Pod<'_>>(&text).unwrap().spec.host_pid, Some(true));
        let elsewhere = format!(r#"{{"spec":{{"managedFields":{}}}}}"#, deep(130));
        assert!(object_from_str(&elsewhere).is_err());
        assert!(object_from_str("[]").is_err());
    }
}
