//! Small facts about objects: times, uids, generated names, and reading metadata.

use jiff::Timestamp;
use palisade_apimachinery::rest::GENERATED_ALPHABET;
use palisade_base::time::{rfc3339, rfc3339_micro};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde_json::{Map, Value};

/// The time now, as Kubernetes writes it.
#[must_use]
pub fn now() -> String {
    format_time(Timestamp::now())
}

/// A time in RFC 3339 with seconds.
#[must_use]
pub fn format_time(time: Timestamp) -> String {
    rfc3339(time.as_second())
}

/// A time in RFC 3339 with microseconds.
#[must_use]
pub fn format_micro_time(time: Timestamp) -> String {
    rfc3339_micro(time.as_microsecond())
}

/// Seconds since 1970.
#[must_use]
pub fn unix_now() -> i64 {
    Timestamp::now().as_second()
}

/// The time some seconds from another.
#[must_use]
pub fn time_after(from: &str, seconds: i64) -> String {
    let from: Timestamp = from.parse().unwrap_or_else(|_| Timestamp::now());
    let span = jiff::SignedDuration::from_secs(seconds);
    format_time(from.checked_add(span).unwrap_or(Timestamp::MAX))
}

/// Random bytes; without a source of randomness there is no safe way to go on, so uids would repeat and the
/// store refuses the second.
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let _ = SystemRandom::new().fill(&mut bytes);
    bytes
}

/// A random number below another one, which is more than nothing.
#[must_use]
pub fn random_below(limit: u32) -> u32 {
    u32::from_be_bytes(random()) % limit.max(1)
}

/// A random uid.
#[must_use]
pub fn new_uid() -> String {
    let mut bytes = u128::from_be_bytes(random());
    // Version 4, variant 1 (RFC 9562).
    bytes &= !(0xf000_u128 << 64 | 0xc000_u128 << 48);
    bytes |= 0x4000_u128 << 64 | 0x8000_u128 << 48;
    let hex = format!("{bytes:032x}");
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    format!("{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32))
}

/// Five random characters, as after a `generateName`.
#[must_use]
pub fn random_suffix() -> String {
    let bytes: [u8; 5] = random();
    bytes
        .iter()
        .filter_map(|byte| GENERATED_ALPHABET.get(usize::from(*byte) % GENERATED_ALPHABET.len()))
        .map(|byte| char::from(*byte))
        .collect()
}

/// A secret of 256 bits, as text.
#[must_use]
pub fn random_token() -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(random::<32>())
}

/// The object's metadata.
#[must_use]
pub fn metadata(object: &Value) -> Option<&Map<String, Value>> {
    object.get("metadata")?.as_object()
}

/// Changes the object's metadata, made if there is none.
pub fn edit_metadata(object: &mut Value, edit: impl FnOnce(&mut Map<String, Value>)) {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    if let Value::Object(object) = object {
        let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        if !metadata.is_object() {
            *metadata = Value::Object(Map::new());
        }
        if let Value::Object(metadata) = metadata {
            edit(metadata);
        }
    }
}

/// A text of the object's metadata, empty if there is none.
#[must_use]
pub fn meta_text<'a>(object: &'a Value, field: &str) -> &'a str {
    metadata(object).and_then(|m| m.get(field)).and_then(Value::as_str).unwrap_or_default()
}

/// Whether the object is being deleted.
#[must_use]
pub fn is_deleting(object: &Value) -> bool {
    !meta_text(object, "deletionTimestamp").is_empty()
}

/// The object's finalizers.
#[must_use]
pub fn finalizers(object: &Value) -> Vec<String> {
    let list = metadata(object).and_then(|m| m.get("finalizers")).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Sets the object's finalizers; an empty list is left out.
pub fn set_finalizers(object: &mut Value, finalizers: &[String]) {
    edit_metadata(object, |metadata| {
        if finalizers.is_empty() {
            metadata.remove("finalizers");
        } else {
            metadata.insert("finalizers".to_owned(), finalizers.iter().map(String::as_str).collect());
        }
    });
}

/// The key of an object in its place.
#[must_use]
pub fn key(namespaced: bool, namespace: &str, name: &str) -> String {
    if namespaced { format!("{namespace}/{name}") } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_are_version_4() {
        let uid = new_uid();
        assert_eq!(uid.len(), 36);
        assert_eq!(uid.as_bytes()[14], b'4', "{uid}");
        assert!(b"89ab".contains(&uid.as_bytes()[19]), "{uid}");
        assert_ne!(uid, new_uid());
    }

    #[test]
    fn times_have_seconds() {
        assert_eq!(time_after("2026-01-01T00:00:00Z", 30), "2026-01-01T00:00:30Z");
        assert_eq!(now().len(), 20);
    }
}
