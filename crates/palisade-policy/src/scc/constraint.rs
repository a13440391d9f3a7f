//! A `SecurityContextConstraints` object, as stored.
//!
//! Implements: OpenShift `security.openshift.io/v1`, `SecurityContextConstraints`. Strategy types and volume types
//! stay strings: [`super::strategy`] interprets them, and an unknown one has to be named in an error.
//! Defaults and the refusal of objects are in [`super::object`].

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use thiserror::Error;

/// Stands for every volume type in `volumes`, every capability in `allowedCapabilities`, every profile in
/// `seccompProfiles`.
pub const ANY: &str = "*";

/// A constraint. Only what decides something; unknown fields are ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct Constraint {
    #[serde(deserialize_with = "nullable")]
    pub metadata: Metadata,
    pub priority: Option<i32>,
    #[serde(deserialize_with = "nullable")]
    pub allow_privileged_container: bool,
    #[serde(deserialize_with = "nullable")]
    pub default_add_capabilities: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub required_drop_capabilities: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub allowed_capabilities: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub allow_host_dir_volume_plugin: bool,
    /// Null and empty mean the same to admission: no volume at all.
    pub volumes: Option<Vec<String>>,
    #[serde(deserialize_with = "nullable")]
    pub allowed_flex_volumes: Vec<AllowedFlexVolume>,
    #[serde(deserialize_with = "nullable")]
    pub allow_host_network: bool,
    #[serde(deserialize_with = "nullable")]
    pub allow_host_ports: bool,
    #[serde(rename = "allowHostPID", deserialize_with = "nullable")]
    pub allow_host_pid: bool,
    #[serde(rename = "allowHostIPC", deserialize_with = "nullable")]
    pub allow_host_ipc: bool,
    #[serde(deserialize_with = "nullable")]
    pub user_namespace_level: String,
    pub default_allow_privilege_escalation: Option<bool>,
    pub allow_privilege_escalation: Option<bool>,
    #[serde(rename = "seLinuxContext", deserialize_with = "nullable")]
    pub se_linux_context: SeLinuxContext,
    #[serde(deserialize_with = "nullable")]
    pub run_as_user: RunAsUser,
    #[serde(deserialize_with = "nullable")]
    pub supplemental_groups: Groups,
    #[serde(deserialize_with = "nullable")]
    pub fs_group: Groups,
    #[serde(deserialize_with = "nullable")]
    pub read_only_root_filesystem: bool,
    #[serde(deserialize_with = "nullable")]
    pub users: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub groups: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub seccomp_profiles: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub allowed_unsafe_sysctls: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub forbidden_sysctls: Vec<String>,
}

/// `metadata`, reduced to the name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct Metadata {
    #[serde(deserialize_with = "nullable")]
    pub name: String,
}

/// An entry of `allowedFlexVolumes`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct AllowedFlexVolume {
    #[serde(deserialize_with = "nullable")]
    pub driver: String,
}

/// `seLinuxContext`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct SeLinuxContext {
    #[serde(rename = "type", deserialize_with = "nullable")]
    pub kind: String,
    #[serde(rename = "seLinuxOptions", skip_serializing_if = "Option::is_none")]
    pub se_linux_options: Option<SeLinuxLabel>,
}

/// `seLinuxContext.seLinuxOptions`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct SeLinuxLabel {
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub user: String,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub role: String,
    #[serde(rename = "type", deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub kind: String,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub level: String,
}

/// `runAsUser`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct RunAsUser {
    #[serde(rename = "type", deserialize_with = "nullable")]
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid_range_min: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid_range_max: Option<i64>,
}

/// `supplementalGroups` or `fsGroup`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct Groups {
    #[serde(rename = "type", deserialize_with = "nullable")]
    pub kind: String,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<IdRange>,
}

/// Numbers from `min` to `max`, both included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct IdRange {
    #[serde(deserialize_with = "nullable")]
    pub min: i64,
    #[serde(deserialize_with = "nullable")]
    pub max: i64,
}

impl IdRange {
    /// Whether the number lies inside.
    #[must_use]
    pub const fn contains(self, id: i64) -> bool {
        self.min <= id && id <= self.max
    }
}

/// The object does not have the shape of a constraint.
#[derive(Debug, Error)]
#[error("SecurityContextConstraints {name:?} cannot be read")]
pub struct ReadError {
    /// The object's name, as far as it has one.
    pub name: String,
    /// What is wrong with it.
    #[source]
    pub source: serde_json::Error,
}

impl Constraint {
    /// Reads an object of the API.
    pub fn read(object: &Value) -> Result<Self, ReadError> {
        Self::deserialize(object).map_err(|source| {
            let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
            ReadError { name: name.to_owned(), source }
        })
    }

    /// The object's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// The volume types listed.
    #[must_use]
    pub fn volumes(&self) -> &[String] {
        self.volumes.as_deref().unwrap_or_default()
    }

    /// Whether every volume type is allowed.
    #[must_use]
    pub fn allows_all_volumes(&self) -> bool {
        self.volumes().iter().any(|volume| volume == ANY)
    }

    /// Whether a volume type is allowed.
    #[must_use]
    pub fn allows_volume(&self, kind: &str) -> bool {
        self.volumes().iter().any(|volume| volume == ANY || volume == kind)
    }
}

/// A field whose null means its default.
fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Constraint, IdRange};

    #[test]
    fn null_is_absent_and_unknown_fields_do_not_matter() {
        let read = Constraint::read(&json!({
            "kind": "SecurityContextConstraints", "metadata": {"name": "x", "labels": {}}, "priority": null,
            "allowedCapabilities": null, "runAsUser": null, "fsGroup": {"type": "MustRunAs", "ranges": [{"max": 7}]},
            "allowHostPID": true, "fieldOfTheFuture": 1,
        }))
        .unwrap();
        assert_eq!(read.name(), "x");
        assert!(read.allow_host_pid && !read.allow_host_ipc && read.volumes().is_empty());
        assert_eq!(read.fs_group.ranges, [IdRange { min: 0, max: 7 }]);
    }

    #[test]
    fn an_object_of_another_shape_is_named() {
        let error = Constraint::read(&json!({"metadata": {"name": "x"}, "volumes": "all"})).unwrap_err();
        assert_eq!(error.to_string(), "SecurityContextConstraints \"x\" cannot be read");
        assert_eq!(error.name, "x");
    }
}
