//! Edits and values in words.

use palisade_model::field_path::{FieldPath, Step};
use palisade_policy::standards::finding::Edit;
use serde_json::Value;

/// A value as a person would write it into YAML on one line.
pub(super) fn value(value: &Value) -> String {
    match value {
        Value::String(text) if is_plain(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(self::value).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, item)| format!("{key}: {}", self::value(item)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

fn is_plain(text: &str) -> bool {
    let first_is_letter = text.starts_with(|c: char| c.is_ascii_alphabetic());
    first_is_letter
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'/'))
}

/// The path from the container or pod on, and what it is a part of: `securityContext.privileged`, `containers[0]`.
fn split(path: &FieldPath) -> (String, Option<usize>) {
    let steps = path.steps();
    let is_list = |step: &Step| {
        matches!(step, Step::Field(field)
            if matches!(&**field, "containers" | "initContainers" | "ephemeralContainers"))
    };
    if let Some(list) = steps.iter().position(is_list)
        && matches!(steps.get(list + 1), Some(Step::Index(_)))
        && steps.len() > list + 2
    {
        let rest = steps.iter().skip(list + 2).cloned().collect::<Vec<_>>();
        return (FieldPath::from(rest).to_string(), Some(list));
    }
    (path.to_string(), None)
}

/// What to do, in words; `container` is the name of the one the edits are about.
pub(super) fn edits(edits: &[Edit], container: Option<&str>, exists: impl Fn(&FieldPath) -> bool) -> String {
    let mut parts: Vec<String> = Vec::new();
    for edit in edits {
        let (path, in_container) = split(edit.path());
        let place = match (in_container, container) {
            (Some(_), Some(name)) => format!(" in container \"{name}\""),
            (Some(_), None) => format!(" at `{}`", edit.path()),
            _ => String::new(),
        };
        let part = match edit {
            Edit::Set(at, new) => {
                let verb = if exists(at) { "set" } else { "add" };
                format!("{verb} `{path}: {}`{place}", value(new))
            }
            Edit::Append(_, new) => format!("add `{}` to `{path}`{place}", value(new)),
            Edit::Remove(_) => format!("remove `{path}`{place}"),
        };
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use palisade_model::field_path::FieldPath;
    use palisade_policy::standards::finding::Edit;
    use serde_json::json;

    #[test]
    fn edits_read_like_advice() {
        let container = FieldPath::of(&["spec", "template", "spec", "containers"]).index(1);
        let drop = container.clone().fields(&["securityContext", "capabilities", "drop"]);
        let profile = FieldPath::of(&["spec", "securityContext", "seccompProfile"]);
        for (edit, exists, expected) in [
            (
                Edit::Set(drop.clone(), json!(["ALL"])),
                false,
                "add `securityContext.capabilities.drop: [ALL]` in container \"web\"",
            ),
            (
                Edit::Append(drop, json!("ALL")),
                true,
                "add `ALL` to `securityContext.capabilities.drop` in container \"web\"",
            ),
            (
                Edit::Set(profile.clone(), json!({"type": "Localhost", "localhostProfile": "a b.json"})),
                true,
                "set `spec.securityContext.seccompProfile: {localhostProfile: \"a b.json\", type: Localhost}`",
            ),
            (Edit::Remove(profile), true, "remove `spec.securityContext.seccompProfile`"),
        ] {
            assert_eq!(super::edits(&[edit], Some("web"), |_| exists), expected);
        }
    }
}
