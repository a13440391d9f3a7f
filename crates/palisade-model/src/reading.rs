//! How fields are read: an explicit null is the same as an absent field, as in Go's decoder.

use serde::{Deserialize, Deserializer};

/// A field whose null means its default.
pub(crate) fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// A list whose null means empty, and whose null elements mean empty elements.
pub(crate) fn list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    let items = Option::<Vec<Nullable<T>>>::deserialize(deserializer)?.unwrap_or_default();
    Ok(items.into_iter().map(|Nullable(item)| item).collect())
}

struct Nullable<T>(T);

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for Nullable<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        nullable(deserializer).map(Self)
    }
}
