//! JSON that two readers cannot read differently.
//!
//! Container runtimes read profiles with Go's `encoding/json`: of two equal keys the last counts, a list that is there
//! twice is merged with the first, and keys match whatever their letter case. So a document in which a key is there twice
//! means something else to each reader, and has no meaning here.

use std::fmt;

use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};
use thiserror::Error;

/// Why a text is no JSON that has one meaning.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum JsonError {
    /// Not JSON.
    #[error("is not valid JSON: {0}")]
    Syntax(String),
    /// Nested deeper than a reader should follow.
    #[error("is nested too deep")]
    TooDeep,
    /// A key is there twice.
    #[error("sets the key {0:?} twice, and readers disagree about which one counts")]
    DuplicateKey(String),
}

const DUPLICATE: &str = "duplicate key ";

/// Reads a text, and nothing after it.
pub fn read(text: &str) -> Result<Value, JsonError> {
    serde_json::from_str::<Unique>(text).map(|Unique(value)| value).map_err(|error| {
        let message = error.to_string();
        // serde_json has no other way to tell these from a mistake.
        if message.starts_with("recursion limit exceeded") {
            JsonError::TooDeep
        } else if let Some(key) = message.strip_prefix(DUPLICATE) {
            let place = format!(" at line {} column {}", error.line(), error.column());
            JsonError::DuplicateKey(key.strip_suffix(&place).unwrap_or(key).to_owned())
        } else {
            JsonError::Syntax(message)
        }
    })
}

/// A key as Go compares it to the name of a field.
pub(super) fn folded(key: &str) -> String {
    key.chars()
        .map(|c| match c {
            // The two letters outside ASCII that fold to one inside.
            '\u{17f}' => 's',
            '\u{212a}' => 'k',
            c => c.to_ascii_lowercase(),
        })
        .collect()
}

struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Seed.deserialize(deserializer).map(Self)
    }
}

struct Seed;

impl<'de> DeserializeSeed<'de> for Seed {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Seed)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if fields.contains_key(&key) {
                return Err(A::Error::custom(format!("{DUPLICATE}{key}")));
            }
            fields.insert(key, entries.next_value_seed(Seed)?);
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_unique_at_every_depth() {
        assert_eq!(
            read(r#"{"a": [1, -1, 1.5, null, true, "x"]}"#),
            Ok(json!({"a": [1, -1, 1.5, null, true, "x"]}))
        );
        for (text, expected) in [
            (r#"{"a": 1, "a": 1}"#, "sets the key \"a\" twice, and readers disagree about which one counts"),
            (
                r#"{"a": [{"b c at line": 1, "b c at line": 2}]}"#,
                "sets the key \"b c at line\" twice, and readers disagree about which one counts",
            ),
            (
                r#"{"a": 1, "\u0061": 1}"#,
                "sets the key \"a\" twice, and readers disagree about which one counts",
            ),
            ("{} {}", "is not valid JSON: trailing characters at line 1 column 4"),
            (&"[".repeat(1000), "is nested too deep"),
        ] {
            assert_eq!(read(text).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn go_folds_two_letters_outside_ascii() {
        assert_eq!(folded("\u{17f}yscall\u{17f}"), "syscalls");
        assert_eq!(folded("DefaultAction"), "defaultaction");
    }
}
