//! The security contexts of pods and containers, as written.
//!
//! Field names and meaning: Kubernetes API, core/v1 `PodSecurityContext` and `SecurityContext`. The fields of
//! the pod-security-context proposal (`containerDefaults`, `runWithSupplementalGroups`, `hostNetwork` and
//! `hostIPC` inside the pod's context) are read as well; [`crate::lower`] turns them into v1 fields.

use serde::{Deserialize, Serialize};

use crate::{
    reading::{list, nullable},
    text::Text,
};

/// `spec.securityContext`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct PodSecurityContext<'a> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub se_linux_options: Option<SeLinuxOptions<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub windows_options: Option<WindowsOptions<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_as_user: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_as_group: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_as_non_root: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supplemental_groups: Option<Vec<i64>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub supplemental_groups_policy: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fs_group: Option<i64>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub fs_group_change_policy: Option<Text<'a>>,
    #[serde(borrow, deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub sysctls: Vec<Sysctl<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub seccomp_profile: Option<ProfileField<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub app_armor_profile: Option<ProfileField<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub se_linux_change_policy: Option<Text<'a>>,
    /// Of the proposal: what containers get unless they specify otherwise.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub container_defaults: Option<Box<SecurityContext<'a>>>,
    /// Of the proposal: the same as `spec.hostNetwork`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_network: Option<bool>,
    /// Of the proposal: the same as `spec.hostIPC`.
    #[serde(rename = "hostIPC", alias = "hostIpc", skip_serializing_if = "Option::is_none")]
    pub host_ipc: Option<bool>,
}

/// `securityContext` of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct SecurityContext<'a> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Capabilities<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub privileged: Option<bool>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub se_linux_options: Option<SeLinuxOptions<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub windows_options: Option<WindowsOptions<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_as_user: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_as_group: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_as_non_root: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only_root_filesystem: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_privilege_escalation: Option<bool>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub proc_mount: Option<Text<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub seccomp_profile: Option<ProfileField<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub app_armor_profile: Option<ProfileField<'a>>,
    /// Of the proposal: groups of this container alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_with_supplemental_groups: Option<Vec<i64>>,
}

/// A seccomp or AppArmor profile as a field: a union discriminated by `type`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProfileField<'a> {
    /// `Unconfined`, `RuntimeDefault`, `Localhost`, `ConfigMap`, or `OCI`; anything else is the user's mistake.
    #[serde(borrow, rename = "type", deserialize_with = "nullable")]
    pub kind: Text<'a>,
    /// File or profile name, for `Localhost`.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub localhost_profile: Option<Text<'a>>,
    /// `<name>/<key>`, for `ConfigMap`.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub config_map_profile: Option<Text<'a>>,
    /// The artifact, for `OCI`.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub oci: Option<Box<OciProfileField<'a>>>,
}

/// `oci` of a seccomp profile: `SecurityProfileOCIArtifact` of KEP-6061.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OciProfileField<'a> {
    /// `<registry>/<repository>@sha256:<digest>`.
    #[serde(borrow, deserialize_with = "nullable")]
    pub reference: Text<'a>,
    /// A profile of the node that the artifact is combined with besides the baseline.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub base_profile: Option<BaseProfileField<'a>>,
}

/// `baseProfile` of an artifact: `SecurityProfileOCIBase` of KEP-6061.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BaseProfileField<'a> {
    /// `RuntimeDefault` or `Localhost`; anything else is the user's mistake.
    #[serde(borrow, rename = "type", deserialize_with = "nullable")]
    pub kind: Text<'a>,
    /// The file, for `Localhost`.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub localhost_profile: Option<Text<'a>>,
}

/// `capabilities` of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct Capabilities<'a> {
    #[serde(borrow, deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<Text<'a>>,
    #[serde(borrow, deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub drop: Vec<Text<'a>>,
}

/// `seLinuxOptions`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct SeLinuxOptions<'a> {
    #[serde(borrow, deserialize_with = "nullable", skip_serializing_if = "is_empty")]
    pub user: Text<'a>,
    #[serde(borrow, deserialize_with = "nullable", skip_serializing_if = "is_empty")]
    pub role: Text<'a>,
    #[serde(borrow, rename = "type", deserialize_with = "nullable", skip_serializing_if = "is_empty")]
    pub kind: Text<'a>,
    #[serde(borrow, deserialize_with = "nullable", skip_serializing_if = "is_empty")]
    pub level: Text<'a>,
}

/// `windowsOptions`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct WindowsOptions<'a> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub gmsa_credential_spec_name: Option<Text<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub gmsa_credential_spec: Option<Text<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub run_as_user_name: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_process: Option<bool>,
}

/// An entry of `sysctls`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct Sysctl<'a> {
    #[serde(borrow, deserialize_with = "nullable")]
    pub name: Text<'a>,
    #[serde(borrow, deserialize_with = "nullable")]
    pub value: Text<'a>,
}

fn is_empty(text: &Text<'_>) -> bool {
    text.is_empty()
}
