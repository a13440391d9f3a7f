//! What an API server writes into an object before it stores it.

use palisade_base::field_path::{FieldPath, PathStep};
use serde_json::{Map, Value, json};

use crate::security_context::ProfileField;

/// One write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Where.
    pub at: FieldPath,
    /// What.
    pub to: NewValue,
}

/// What a [`Change`] puts in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewValue {
    /// A string: an annotation, or a plain field.
    Text(String),
    /// A seccomp or AppArmor profile.
    Profile(ProfileField<'static>),
    /// Any other value, as JSON.
    Json(Value),
    /// Nothing: the field goes.
    Removed,
}

impl NewValue {
    /// As JSON; `None` for a removal.
    #[must_use]
    pub fn to_json(&self) -> Option<Value> {
        match self {
            Self::Text(text) => Some(Value::String(text.clone())),
            Self::Profile(profile) => {
                let mut object = Map::new();
                object.insert("type".to_owned(), json!(profile.kind.as_str()));
                for (name, value) in [
                    ("localhostProfile", &profile.localhost_profile),
                    ("configMapProfile", &profile.config_map_profile),
                ] {
                    if let Some(value) = value {
                        object.insert(name.to_owned(), json!(value.as_str()));
                    }
                }
                if let Some(oci) = &profile.oci {
                    object.insert("oci".to_owned(), json!(oci));
                }
                Some(Value::Object(object))
            }
            Self::Json(value) => Some(value.clone()),
            Self::Removed => None,
        }
    }
}

impl Change {
    /// Makes the write in a JSON object; parents that are missing are created, as for a removal nothing is.
    pub fn apply(&self, object: &mut Value) {
        let Some((last, parents)) = self.at.steps().split_last() else { return };
        let value = self.to.to_json();
        let mut here = object;
        for step in parents {
            here = match step {
                PathStep::Index(index) => match here.get_mut(*index) {
                    Some(item) => item,
                    None => return,
                },
                PathStep::Field(_) | PathStep::Key(_) => {
                    let name = name_of(step);
                    if here.is_null() && value.is_some() {
                        *here = Value::Object(Map::new());
                    }
                    let Some(map) = here.as_object_mut() else { return };
                    if value.is_none() && !map.contains_key(name) {
                        return;
                    }
                    map.entry(name).or_insert(Value::Null)
                }
            };
        }
        match (last, value) {
            (PathStep::Index(index), Some(value)) => {
                if let Some(item) = here.get_mut(*index) {
                    *item = value;
                }
            }
            (PathStep::Index(_), None) => {}
            (step, Some(value)) => {
                if here.is_null() {
                    *here = Value::Object(Map::new());
                }
                if let Some(map) = here.as_object_mut() {
                    map.insert(name_of(step).to_owned(), value);
                }
            }
            (step, None) => {
                if let Some(map) = here.as_object_mut() {
                    map.remove(name_of(step));
                }
            }
        }
    }
}

fn name_of(step: &PathStep) -> &str {
    match step {
        PathStep::Field(name) => name,
        PathStep::Key(key) => key,
        PathStep::Index(_) => "",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Change, NewValue};
    use palisade_base::field_path::FieldPath;

    #[test]
    fn creates_the_parents_it_needs_and_only_those() {
        let at = FieldPath::of(&["spec", "containers"]).index(1).fields(&["securityContext", "procMount"]);
        let mut pod = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}});
        Change { at: at.clone(), to: NewValue::Removed }.apply(&mut pod);
        assert_eq!(pod, json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}));
        Change { at: at.clone(), to: NewValue::Text("Default".into()) }.apply(&mut pod);
        assert_eq!(
            pod["spec"]["containers"][1],
            json!({"name": "b", "securityContext": {"procMount": "Default"}})
        );
        Change { at, to: NewValue::Removed }.apply(&mut pod);
        assert_eq!(pod["spec"]["containers"][1], json!({"name": "b", "securityContext": {}}));
    }

    #[test]
    fn an_element_that_is_not_there_is_left_alone() {
        let mut pod = json!({"spec": {"containers": []}});
        let at = FieldPath::of(&["spec", "containers"]).index(7).field("image");
        Change { at, to: NewValue::Text("x".into()) }.apply(&mut pod);
        assert_eq!(pod, json!({"spec": {"containers": []}}));
    }
}
