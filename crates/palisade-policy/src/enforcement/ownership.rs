//! Who owns the labels and annotations of a namespace.
//!
//! Implements: `metadata.managedFields` of server-side apply, as far as the label syncer needs it.

use std::collections::BTreeMap;

use serde_json::Value;

/// The label syncer's field manager.
pub const SYNCER: &str = "pod-security-admission-label-synchronization-controller";
/// The field manager under which the label syncer wrote before it had a name of its own.
pub const FORMER_SYNCER: &str = "cluster-policy-controller";

/// Whether a manager wrote a field by applying it or by an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// Server-side apply: leaving the field out next time removes it.
    Apply,
    /// Anything else.
    Update,
}

/// The owners of every label and annotation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ownership {
    labels: BTreeMap<String, Vec<(String, How)>>,
    annotations: BTreeMap<String, Vec<(String, How)>>,
    /// Whether an entry could not be read: then the owners are unknown.
    pub is_malformed: bool,
}

impl Ownership {
    /// Reads `metadata.managedFields`.
    #[must_use]
    pub fn read(managed_fields: &Value) -> Self {
        let mut ownership = Self::default();
        let entries = match managed_fields {
            Value::Null => return ownership,
            Value::Array(entries) => entries,
            _ => return Self { is_malformed: true, ..ownership },
        };
        for entry in entries {
            let (manager, how) = match (entry["manager"].as_str(), entry["operation"].as_str()) {
                (Some(manager), Some("Apply")) => (manager, How::Apply),
                (Some(manager), _) => (manager, How::Update),
                (None, _) => continue,
            };
            let metadata = match &entry["fieldsV1"] {
                Value::Null => continue,
                Value::Object(fields) => fields.get("f:metadata").unwrap_or(&Value::Null),
                _ => return Self { is_malformed: true, ..Self::default() },
            };
            for (map, fields) in [
                (&mut ownership.labels, &metadata["f:labels"]),
                (&mut ownership.annotations, &metadata["f:annotations"]),
            ] {
                for key in fields.as_object().into_iter().flat_map(|fields| fields.keys()) {
                    if let Some(key) = key.strip_prefix("f:") {
                        map.entry(key.to_owned()).or_default().push((manager.to_owned(), how));
                    }
                }
            }
        }
        ownership
    }

    /// The owners of a label.
    #[must_use]
    pub fn label(&self, key: &str) -> &[(String, How)] {
        self.labels.get(key).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether a label is owned by someone who is not the syncer. Upstream takes any one of several owners.
    #[must_use]
    pub fn is_foreign(&self, key: &str) -> bool {
        self.label(key).iter().any(|(manager, _)| manager != SYNCER && manager != FORMER_SYNCER)
    }

    /// Whether the syncer owns a label in a way that lets it take the label away.
    #[must_use]
    pub fn applied_label(&self, key: &str) -> bool {
        self.label(key).iter().any(is_applied)
    }

    /// Whether the syncer owns an annotation in a way that lets it take the annotation away.
    #[must_use]
    pub fn applied_annotation(&self, key: &str) -> bool {
        self.annotations.get(key).is_some_and(|owners| owners.iter().any(is_applied))
    }

    /// Whether a label still belongs to the syncer's former self.
    #[must_use]
    pub fn is_former(&self, key: &str) -> bool {
        self.label(key).iter().any(|(manager, _)| manager == FORMER_SYNCER)
    }
}

fn is_applied((manager, how): &(String, How)) -> bool {
    manager == SYNCER && *how == How::Apply
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{FORMER_SYNCER, Ownership, SYNCER};

    #[test]
    fn finds_owners_and_knows_when_it_cannot() {
        let labels = |keys: &[&str]| {
            let fields: serde_json::Map<_, _> =
                keys.iter().map(|key| (format!("f:{key}"), json!({}))).collect();
            json!({"f:metadata": {"f:labels": fields}})
        };
        let read = Ownership::read(&json!([
            {"manager": SYNCER, "operation": "Apply", "fieldsV1": labels(&["a", "b"])},
            {"manager": "kubectl", "operation": "Update", "fieldsV1": labels(&["b"])},
            {"manager": FORMER_SYNCER, "operation": "Update", "fieldsV1": labels(&["c"])},
            {"manager": SYNCER, "operation": "Update", "fieldsV1": labels(&["d"])},
        ]));
        let shown: Vec<_> =
            ["a", "b", "c", "d", "e"].map(|key| (read.is_foreign(key), read.applied_label(key))).into();
        assert_eq!(shown, [(false, true), (true, true), (false, false), (false, false), (false, false)]);
        assert!(read.is_former("c") && !read.is_former("a"));
        assert!(Ownership::read(&json!([{"manager": "x", "fieldsV1": "?"}])).is_malformed);
        assert_eq!(Ownership::read(&json!(null)), Ownership::default());
    }
}
