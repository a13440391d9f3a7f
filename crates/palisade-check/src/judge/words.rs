//! Edits and values in words.

use palisade_base::field_path::{FieldPath, PathStep};
use palisade_model::pod_view::PodView;
use palisade_policy::standards::finding::Edit;
use serde_json::Value;

use crate::source_map::ObjectSource;

/// A value as YAML on one line.
pub(super) fn value(value: &Value) -> String {
    match value {
        Value::String(text) if is_plain(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(self::value).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => {
            let (first, rest): (Vec<_>, Vec<_>) = fields.iter().partition(|(key, _)| *key == "type");
            let fields =
                first.into_iter().chain(rest).map(|(key, item)| format!("{key}: {}", self::value(item)));
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

/// The names that the user gave to things.
pub(super) struct Words<'w, 'd, 'p, 'a> {
    pub(super) object: &'w ObjectSource<'d>,
    pub(super) view: &'w PodView<'p, 'a>,
    /// The offending value.
    pub(super) value: Option<&'w str>,
}

impl Words<'_, '_, '_, '_> {
    /// What to do, in words.
    pub(super) fn edits(&self, edits: &[Edit]) -> String {
        let mut parts: Vec<String> = Vec::new();
        for edit in edits {
            let part = self.edit(edit);
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
        parts.join(", ")
    }

    fn edit(&self, edit: &Edit) -> String {
        let (path, place) = self.split(edit.path());
        if let (Edit::Remove(_), Some(PathStep::Key(key))) = (edit, edit.path().steps().last()) {
            return format!("remove the annotation `{key}`");
        }
        match edit {
            Edit::Set(at, new) => {
                let verb = if self.object.find(at).is_some() { "set" } else { "add" };
                format!("{verb} `{path}: {}`{place}", value(new))
            }
            Edit::Append(_, new) => format!("add `{}` to `{path}`{place}", value(new)),
            Edit::Remove(at) => match (at.steps().last(), self.value, at.parent()) {
                (Some(PathStep::Index(_)), Some(item), Some(list)) => {
                    format!("remove `{item}` from `{}`{place}", self.split(&list).0)
                }
                _ => format!("remove `{path}`{place}"),
            },
        }
    }

    /// The path from the container on and which container that is, or the whole path.
    fn split(&self, path: &FieldPath) -> (String, String) {
        for container in self.view.containers() {
            let base = container.path(self.view);
            if base.contains(path) && base.steps().len() < path.steps().len() {
                let rest = path.steps().iter().skip(base.steps().len()).cloned().collect::<Vec<_>>();
                let place = format!(" in {} \"{}\"", container.kind.noun(), container.name());
                return (FieldPath::from(rest).to_string(), place);
            }
        }
        (path.to_string(), String::new())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn values_read_like_yaml_on_one_line() {
        for (value, expected) in [
            (json!(["ALL"]), "[ALL]"),
            (
                json!({"localhostProfile": "a b.json", "type": "Localhost"}),
                "{type: Localhost, localhostProfile: \"a b.json\"}",
            ),
            (json!(true), "true"),
            (json!("runtime/default"), "runtime/default"),
        ] {
            assert_eq!(super::value(&value), expected);
        }
    }
}
