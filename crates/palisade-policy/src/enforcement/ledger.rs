//! All violating namespaces with their times, beside a status that lists at most a hundred of them.
//!
//! Implements: "bounded status size, details on demand" of `PSAEnforcementConfig`. Once there are more entries than the
//! status shows, all of them are kept in a few ConfigMaps, so that a restart of a controller does not make a namespace look
//! as if it had begun to violate just now. A namespace always falls into the same part, so that one change rewrites one
//! part; the parts are bounded, as everything that is stored must be.
//!
//! Leaves to others: reading and writing the ConfigMaps, and what an entry contains ([`super::violations`]).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    instances::NAMESPACE,
    violations::{Entry, State},
};

/// Label of every part, with its number as the value: how they are found.
pub const LABEL: &str = "palisade.dev/pod-security-violations";
/// The key under which a part holds its entries: one JSON object in each line, as in `status.violatingNamespaces`.
pub const KEY: &str = "violatingNamespaces.jsonl";
/// How many parts there are.
pub const PARTS: usize = 16;

/// What a part may hold. API servers take a little more than a megabyte; 16 parts hold a hundred thousand entries.
const MOST_BYTES: usize = 900_000;

/// The texts of the parts that are not empty, by number. Where not all fit, those that violate now stay.
#[must_use]
pub fn parts<'e>(entries: impl IntoIterator<Item = &'e Entry>) -> BTreeMap<usize, String> {
    let mut sorted: BTreeMap<usize, Vec<&Entry>> = BTreeMap::new();
    for entry in entries {
        sorted.entry(part_of(&entry.name)).or_default().push(entry);
    }
    sorted.into_iter().map(|(part, entries)| (part, text_of(entries))).collect()
}

fn text_of(mut entries: Vec<&Entry>) -> String {
    entries.sort_by_key(|entry| (entry.state == Some(State::Previous), &entry.name));
    let mut size = 0;
    let mut lines: Vec<(&str, String)> = Vec::new();
    for entry in entries {
        let line = json!(entry).to_string();
        size += line.len() + 1;
        if size > MOST_BYTES {
            break;
        }
        lines.push((&entry.name, line));
    }
    lines.sort_unstable();
    lines.into_iter().map(|(_, line)| line + "\n").collect()
}

/// The part that a namespace falls into, now and in every later release: FNV-1a.
fn part_of(namespace: &str) -> usize {
    let hash = namespace
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash as usize % PARTS
}

/// The name of the ConfigMap of a part.
#[must_use]
pub fn name(part: usize) -> String {
    format!("pod-security-violations-{part}")
}

/// The ConfigMap to apply for a part; with the version that was looked at, so that a controller that no longer leads overwrites
/// nothing.
#[must_use]
pub fn config_map(part: usize, text: &str, stored: Option<&StoredVersion>) -> Value {
    let mut metadata = json!({
        "name": name(part),
        "namespace": NAMESPACE,
        "labels": {"app.kubernetes.io/part-of": "palisade", LABEL: part.to_string()},
    });
    if let Some(StoredVersion { uid, version }) = stored {
        metadata["uid"] = json!(uid);
        metadata["resourceVersion"] = json!(version);
    }
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {KEY: text}})
}

/// Which object a part is, and in which version: an apply that names both is rejected if the object was changed, or deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredVersion {
    uid: String,
    version: String,
}

/// Number, text and version of a part; `None` if the object is none.
#[must_use]
pub fn read_part(object: &Value) -> Option<(usize, String, StoredVersion)> {
    let metadata = &object["metadata"];
    // swallowed: an object with another label is not a part of the ledger
    let part = metadata["labels"][LABEL].as_str()?.parse().ok().filter(|part| *part < PARTS)?;
    if metadata["name"] != name(part) {
        return None;
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let stored = StoredVersion { uid: text(&metadata["uid"]), version: text(&metadata["resourceVersion"]) };
    Some((part, text(&object["data"][KEY]), stored))
}

/// The entries of a part. A line that cannot be read is left out: the next evaluation makes it anew.
pub fn entries(text: &str) -> impl Iterator<Item = Entry> {
    // swallowed: the next evaluation writes the entry again
    text.lines().filter_map(|line| serde_json::from_str(line).ok())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{
        Entry, MOST_BYTES, PARTS, State, StoredVersion, config_map, entries, part_of, parts, read_part,
        text_of,
    };

    fn entry(name: &str, state: State) -> Entry {
        let at = Some("2026-01-01T00:00:00Z".to_owned());
        let reason = Some("PSALabel: ServiceAccount with insufficient SCCs".to_owned());
        Entry { name: name.to_owned(), reason, state: Some(state), last_transition_time: at }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let all: Vec<Entry> = (0..1000).map(|n| entry(&format!("team-{n}"), State::Current)).collect();
        let mut read = BTreeMap::new();
        for (part, text) in parts(&all) {
            let stored = StoredVersion { uid: "u".to_owned(), version: "7".to_owned() };
            let mut object = config_map(part, &text, Some(&stored));
            assert_eq!(read_part(&object), Some((part, text.clone(), stored)));
            read.extend(entries(&text).map(|entry| (entry.name.clone(), entry)));
            object["metadata"]["name"] = "another".into();
            assert_eq!(read_part(&object), None);
        }
        assert_eq!(read.len(), all.len());
        assert!(all.iter().all(|entry| read[&entry.name] == *entry));
        assert_eq!(entries("nonsense\n{}\n").count(), 0);
    }

    #[test]
    fn a_change_rewrites_one_part_and_order_none() {
        let mut all: Vec<Entry> = (0..1000).map(|n| entry(&format!("team-{n}"), State::Current)).collect();
        let before = parts(&all);
        assert_eq!(before.len(), PARTS, "namespaces spread over all parts");
        all.reverse();
        assert_eq!(parts(&all), before);
        all[7].state = Some(State::Previous);
        let after = parts(&all);
        let changed: Vec<usize> = (0..PARTS).filter(|part| before[part] != after[part]).collect();
        assert_eq!(changed, [part_of(&all[7].name)]);
    }

    #[test]
    fn a_part_is_bounded_and_keeps_those_that_violate_now() {
        let long = |n: usize| format!("{n:05}-{}", "x".repeat(57));
        let state = |n: usize| if n.is_multiple_of(3) { State::Current } else { State::Previous };
        let all: Vec<Entry> = (0..6_000).map(|n| entry(&long(n), state(n))).collect();
        let text = text_of(all.iter().collect());
        assert!(text.len() <= MOST_BYTES && entries(&text).count() < 6_000);
        assert_eq!(entries(&text).filter(|entry| entry.state == Some(State::Current)).count(), 2_000);
    }

    /// The part of a namespace is where an older release put it.
    #[test]
    fn parts_are_for_ever() {
        assert_eq!(["default", "team", "kube-system"].map(part_of), [14, 12, 14]);
    }
}
