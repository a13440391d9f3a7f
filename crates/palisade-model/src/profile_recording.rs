//! `ProfileRecording`, our namespaced resource: which pods are recorded, until when, and what becomes of it.
//!
//! A recording in mode `Record` makes a profile of the system calls of the pods it selects; one in mode `Complain` lets the pods run
//! as they do and counts the calls that a profile would deny. Neither allows a pod anything. What cannot be read records nothing.

use std::collections::BTreeMap;

use palisade_base::{
    label_selector::LabelSelector,
    time::{self, Time, TimeError},
};
use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use crate::{
    guard::{GuardObjectError, selector},
    json::from_value,
};

/// Group and version of the resource.
pub const API_VERSION: &str = "palisade.dev/v1alpha1";
/// Kind of the resource.
pub const KIND: &str = "ProfileRecording";
/// Name of the resource in requests.
pub const RESOURCE: &str = "profilerecordings";
/// Kind of what one node has recorded.
pub const PART_KIND: &str = "NodeRecording";
/// Name of that resource in requests.
pub const PART_RESOURCE: &str = "noderecordings";

/// The longest name: those of what nodes write begin with it.
const LONGEST_NAME: usize = 200;

/// What is recorded, and what becomes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// A profile, in a new ConfigMap of this name.
    Profile {
        /// The ConfigMap.
        config_map: String,
    },
    /// The calls that a profile would deny.
    Complain {
        /// The ConfigMap that has the profile.
        config_map: String,
        /// Its key.
        key: String,
    },
}

/// A recording that was requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileRecording {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its identity: one of the same name made anew is another one.
    pub uid: String,
    /// Which pods of the namespace.
    pub selector: LabelSelector,
    /// The moment it ends.
    pub until: Time,
    /// What becomes of it.
    pub purpose: Purpose,
}

/// Why an object is no recording.
#[derive(Debug, Error)]
pub enum RecordingObjectError {
    /// Not of the shape of the resource.
    #[error("cannot be decoded: {0}")]
    Undecodable(#[source] serde_json::Error),
    /// A name that leaves no space for what is made of it.
    #[error("metadata.name: must have at most {LONGEST_NAME} characters")]
    LongName,
    /// The end is no time.
    #[error("spec.until: {0}")]
    Until(#[from] TimeError),
    /// The selector cannot be read.
    #[error(transparent)]
    Selector(Box<GuardObjectError>),
    /// It would record every pod of the namespace.
    #[error("spec.selector: must have requirements")]
    Everything,
    /// A mode that there is not.
    #[error("spec.mode: {0:?} is neither Record nor Complain")]
    Mode(String),
    /// A field that belongs to the other mode, or is missing in this one.
    #[error("spec.{field}: {why} in mode {mode}")]
    Field {
        /// Which one.
        field: &'static str,
        /// The mode.
        mode: &'static str,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Not the name of a ConfigMap and its key.
    #[error("spec.profile: {0:?} is not <ConfigMap>/<key>")]
    Profile(String),
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
    spec: Spec,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    uid: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Spec {
    selector: Value,
    until: String,
    mode: Option<String>,
    config_map: Option<String>,
    profile: Option<String>,
}

impl ProfileRecording {
    /// Reads an object of the API.
    pub fn read(object: &Value) -> Result<Self, RecordingObjectError> {
        let Object { metadata, spec } = from_value(object).map_err(RecordingObjectError::Undecodable)?;
        if metadata.name.len() > LONGEST_NAME {
            return Err(RecordingObjectError::LongName);
        }
        let selector = selector("spec.selector", Some(&spec.selector))
            .map_err(|error| RecordingObjectError::Selector(Box::new(error)))?
            .filter(|selector| !selector.is_empty())
            .ok_or(RecordingObjectError::Everything)?;
        let until = time::parse(&spec.until)?;
        let field = |field, mode, why| Err(RecordingObjectError::Field { field, mode, why });
        let purpose = match (spec.mode.as_deref().unwrap_or("Record"), spec.config_map, spec.profile) {
            ("Record", _, Some(_)) => return field("profile", "Record", "must not be set"),
            ("Record", name, None) => {
                Purpose::Profile { config_map: name.unwrap_or_else(|| metadata.name.clone()) }
            }
            ("Complain", Some(_), _) => return field("configMap", "Complain", "must not be set"),
            ("Complain", None, None) => return field("profile", "Complain", "is required"),
            ("Complain", None, Some(profile)) => match profile.split_once('/') {
                Some((name, key)) if !name.is_empty() && !key.is_empty() && !key.contains('/') => {
                    Purpose::Complain { config_map: name.to_owned(), key: key.to_owned() }
                }
                _ => return Err(RecordingObjectError::Profile(profile)),
            },
            (mode, ..) => return Err(RecordingObjectError::Mode(mode.to_owned())),
        };
        let Metadata { name, namespace, uid } = metadata;
        Ok(Self { namespace, name, uid, selector, until, purpose })
    }

    /// Whether it records at a moment. At its end it does not any more.
    #[must_use]
    pub fn counts_at(&self, now: Time) -> bool {
        now < self.until
    }

    /// Whether it is for a pod.
    #[must_use]
    pub fn selects(&self, namespace: &str, labels: &BTreeMap<String, String>) -> bool {
        self.namespace == namespace && self.selector.matches_with(|key| labels.get(key).map(String::as_str))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(change: impl FnOnce(&mut Value)) -> Value {
        let mut object = json!({"apiVersion": API_VERSION, "kind": KIND,
            "metadata": {"name": "web", "namespace": "shop", "uid": "u"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "until": "2030-01-01T00:00:00Z"}});
        change(&mut object);
        object
    }

    #[test]
    fn a_recording_is_for_the_pods_of_its_namespace_that_it_selects_until_its_end() {
        let recording = ProfileRecording::read(&object(|_| ())).unwrap();
        assert_eq!(recording.purpose, Purpose::Profile { config_map: "web".to_owned() });
        let labels = |app: &str| BTreeMap::from([("app".to_owned(), app.to_owned())]);
        for (case, namespace, labels, expected) in [
            ("selected", "shop", labels("web"), true),
            ("another label", "shop", labels("db"), false),
            ("no label", "shop", BTreeMap::new(), false),
            ("another namespace", "bank", labels("web"), false),
        ] {
            assert_eq!(recording.selects(namespace, &labels), expected, "{case}");
        }
        let end = time::parse("2030-01-01T00:00:00Z").unwrap();
        assert!(!recording.counts_at(end) && recording.counts_at(Time { seconds: end.seconds - 1, ..end }));
        let complaining = object(|object| {
            object["spec"]["mode"] = json!("Complain");
            object["spec"]["profile"] = json!("web/profile.json");
        });
        assert_eq!(
            ProfileRecording::read(&complaining).unwrap().purpose,
            Purpose::Complain { config_map: "web".to_owned(), key: "profile.json".to_owned() }
        );
    }

    #[test]
    fn what_has_no_meaning_is_an_error() {
        for (expected, field, value) in [
            ("cannot be decoded: unknown field `pods`", "pods", json!([])),
            ("spec.until: parsing time \"soon\"", "until", json!("soon")),
            ("spec.selector: must have requirements", "selector", json!({})),
            ("cannot be decoded: unknown field `matchLabel`", "selector", json!({"matchLabel": {}})),
            ("spec.mode: \"Enforce\" is neither Record nor Complain", "mode", json!("Enforce")),
            ("spec.profile: is required in mode Complain", "mode", json!("Complain")),
            ("spec.profile: must not be set in mode Record", "profile", json!("web/p.json")),
        ] {
            let error = ProfileRecording::read(&object(|object| object["spec"][field] = value)).unwrap_err();
            assert!(error.to_string().starts_with(expected), "{expected}: {error}");
        }
        for (expected, profile) in [
            ("spec.profile: \"web\" is not <ConfigMap>/<key>", json!({"profile": "web"})),
            ("spec.profile: \"/p\" is not <ConfigMap>/<key>", json!({"profile": "/p"})),
            ("spec.configMap: must not be set in mode Complain", json!({"profile": "a/b", "configMap": "c"})),
        ] {
            let object = object(|object| {
                let spec = object["spec"].as_object_mut().unwrap();
                spec.insert("mode".to_owned(), json!("Complain"));
                spec.extend(profile.as_object().unwrap().clone());
            });
            assert_eq!(ProfileRecording::read(&object).unwrap_err().to_string(), expected);
        }
        let long = object(|object| object["metadata"]["name"] = json!("n".repeat(201)));
        assert!(ProfileRecording::read(&long).is_err());
    }
}
