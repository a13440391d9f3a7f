//! The part of object metadata that security decisions look at.

use std::{fmt, marker::PhantomData};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser::SerializeMap};

use crate::{
    json::DUPLICATE,
    reading::{list, nullable},
    text::Text,
};

/// `metadata` of a pod, a template or a namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta<'a> {
    /// The object's name; empty when it is generated.
    #[serde(borrow, deserialize_with = "nullable")]
    pub name: Text<'a>,
    /// The prefix of a name still to be made.
    #[serde(borrow, deserialize_with = "nullable")]
    pub generate_name: Text<'a>,
    /// Empty when the request or the user's context decides.
    #[serde(borrow, deserialize_with = "nullable")]
    pub namespace: Text<'a>,
    /// Labels.
    #[serde(borrow, deserialize_with = "nullable")]
    pub labels: StringMap<'a>,
    /// Annotations.
    #[serde(borrow, deserialize_with = "nullable")]
    pub annotations: StringMap<'a>,
    /// Owners; one of them may be the controller.
    #[serde(borrow, deserialize_with = "list")]
    pub owner_references: Vec<OwnerReference<'a>>,
}

impl ObjectMeta<'_> {
    /// The name to show for it.
    #[must_use]
    pub fn display_name(&self) -> &str {
        if self.name.is_empty() { &self.generate_name } else { &self.name }
    }

    /// The UID of the first owner that is the controller.
    #[must_use]
    pub fn controller_uid(&self) -> Option<&str> {
        self.owner_references
            .iter()
            .find(|owner| owner.controller == Some(true))
            .map(|owner| owner.uid.as_str())
    }
}

/// An entry of `metadata.ownerReferences`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct OwnerReference<'a> {
    /// Kind of the owner.
    #[serde(borrow, deserialize_with = "nullable")]
    pub kind: Text<'a>,
    /// Name of the owner.
    #[serde(borrow, deserialize_with = "nullable")]
    pub name: Text<'a>,
    /// Identity of the owner.
    #[serde(borrow, deserialize_with = "nullable")]
    pub uid: Text<'a>,
    /// Whether this owner manages the object.
    pub controller: Option<bool>,
}

/// A map of strings, sorted by key: labels and annotations.
///
/// Pods carry a handful of entries, for which a sorted vector beats a tree in time and in allocations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StringMap<'a>(Vec<(Text<'a>, Text<'a>)>);

impl<'a> StringMap<'a> {
    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        let position = self.position(key).ok()?; // swallowed: the key is not there
        self.0.get(position).map(|(_, value)| value.as_str())
    }

    /// Whether the key is there.
    #[must_use]
    pub fn contains(&self, key: &str) -> bool {
        self.position(key).is_ok()
    }

    /// Sets a key.
    pub fn insert(&mut self, key: impl Into<Text<'a>>, value: impl Into<Text<'a>>) {
        let (key, value) = (key.into(), value.into());
        match self.position(&key) {
            Ok(position) => {
                if let Some(entry) = self.0.get_mut(position) {
                    entry.1 = value;
                }
            }
            Err(position) => self.0.insert(position, (key, value)),
        }
    }

    /// Removes the keys for which `keep` is false.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &str) -> bool) {
        self.0.retain(|(key, value)| keep(key, value));
    }

    /// Entries in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Entries whose key begins with `prefix`, as (what follows the prefix, whole key, value).
    pub fn with_prefix<'m>(&'m self, prefix: &'m str) -> impl Iterator<Item = (&'m str, &'m str, &'m str)> {
        let start = self.0.partition_point(|(key, _)| key.as_str() < prefix);
        self.0.iter().skip(start).map_while(move |(key, value)| {
            let rest = key.strip_prefix(prefix)?;
            Some((rest, key.as_str(), value.as_str()))
        })
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn position(&self, key: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(own, _)| own.as_str().cmp(key))
    }
}

impl<'a> FromIterator<(Text<'a>, Text<'a>)> for StringMap<'a> {
    fn from_iter<I: IntoIterator<Item = (Text<'a>, Text<'a>)>>(entries: I) -> Self {
        let mut entries: Vec<_> = entries.into_iter().collect();
        // Stable, and the last of equal keys wins.
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        entries.reverse();
        entries.dedup_by(|a, b| a.0 == b.0);
        entries.reverse();
        Self(entries)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for StringMap<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<'a>(PhantomData<&'a ()>);
        impl<'de: 'a, 'a> de::Visitor<'de> for Visitor<'a> {
            type Value = StringMap<'a>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of strings")
            }
            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::with_capacity(map.size_hint().unwrap_or(0).min(64));
                while let Some(key) = map.next_key::<Text<'a>>()? {
                    let value = map.next_value::<Option<Text<'a>>>()?.unwrap_or_default();
                    entries.push((key, value));
                }
                entries.sort_by(|a, b| a.0.cmp(&b.0));
                let twice = entries.iter().zip(entries.iter().skip(1)).find(|(one, next)| one.0 == next.0);
                match twice {
                    Some(((key, _), _)) => Err(de::Error::custom(format!("{DUPLICATE}{key}`"))),
                    None => Ok(StringMap(entries)),
                }
            }
        }
        deserializer.deserialize_map(Visitor(PhantomData))
    }
}

impl Serialize for StringMap<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::StringMap;

    #[test]
    fn rejects_a_key_that_comes_twice() {
        for text in
            [r#"{"a":"1","a":"2"}"#, r#"{"b":"x","a":"1","c":"","\u0061":"1"}"#, r#"{"a":null,"a":null}"#]
        {
            let error = serde_json::from_str::<StringMap<'_>>(text).unwrap_err().to_string();
            assert!(error.starts_with("duplicate field `a`"), "{text}: {error}");
        }
    }

    #[test]
    fn keeps_the_last_of_equal_keys_and_finds_by_prefix() {
        let map: StringMap<'_> = [("b/2", "x"), ("a", "1"), ("b/1", ""), ("a", "2"), ("c", "3")]
            .map(|(key, value)| (key.into(), value.into()))
            .into_iter()
            .collect();
        assert_eq!(map.iter().collect::<Vec<_>>(), [("a", "2"), ("b/1", ""), ("b/2", "x"), ("c", "3")]);
        assert_eq!(map.with_prefix("b/").collect::<Vec<_>>(), [("1", "b/1", ""), ("2", "b/2", "x")]);
        assert_eq!(map.with_prefix("zz").count(), 0);
        assert_eq!(map.with_prefix("bb").count(), 0);
    }
}
