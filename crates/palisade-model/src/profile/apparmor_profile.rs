//! `AppArmorProfile`: a profile that the users of a namespace write for its pods, and the name under which nodes load it.
//!
//! The kernel has one space of names. So the name follows from the namespace and the name of the object, and begins with a word
//! that no profile of a node has: an object can neither replace nor shadow a profile of the node or of another namespace.

use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use super::{
    apparmor_rules::{AppArmorMode, AppArmorRules, RulesError},
    published::{GROUP, VERSION},
};
use crate::json::from_value;

/// Kind of the resource.
pub const KIND: &str = "AppArmorProfile";
/// Name of the resource in requests.
pub const RESOURCE: &str = "apparmorprofiles";
/// What the kernel's names of these profiles begin with.
pub const PREFIX: &str = "palisade/";
/// The label of a namespace whose profiles may have the mode `Complain`.
pub const COMPLAIN_LABEL: &str = "palisade.dev/apparmor-complain";
/// Its value.
pub const COMPLAIN_ALLOWED: &str = "allowed";

/// A profile that nodes can load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppArmorProfile {
    /// The namespace.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// What it does with an access that it does not allow.
    pub mode: AppArmorMode,
    rules: AppArmorRules,
}

/// Why an object is no profile that nodes can load.
#[derive(Debug, Error)]
pub enum AppArmorProfileError {
    /// Not of the shape of the resource.
    #[error("cannot be decoded: {0}")]
    Undecodable(#[source] serde_json::Error),
    /// Another kind, or another version of it.
    #[error("is a {kind} of {api_version}, not an AppArmorProfile of palisade.dev/v1alpha1")]
    OtherKind {
        /// Its kind.
        kind: String,
        /// Its version.
        api_version: String,
    },
    /// A name that the API server would not take.
    #[error("{0:?} is not a name of a namespace or of an object in it")]
    Name(String),
    /// A mode that does not exist.
    #[error("spec.mode: {0:?} is neither Enforce nor Complain")]
    Mode(String),
    /// Rules that are not applied.
    #[error("spec.rules: {0}")]
    Rules(#[source] RulesError),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Object {
    api_version: String,
    kind: String,
    metadata: Metadata,
    spec: Spec,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    #[serde(default)]
    namespace: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    rules: String,
    mode: Option<String>,
}

/// Whether an object declares itself such a profile, readable or not.
#[must_use]
pub fn is_app_armor_profile(object: &Value) -> bool {
    let field = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    field("kind") == KIND && field("apiVersion").split('/').next() == Some(GROUP)
}

/// The name under which nodes load the profile of a namespace.
#[must_use]
pub fn kernel_name(namespace: &str, name: &str) -> String {
    format!("{PREFIX}{namespace}/{name}")
}

/// Whether a pod of a namespace may refer to a profile of the node by this name. Those of nodes are for all; those of a namespace are
/// for its own pods: another namespace could be allowed modes that this one is not, and its users change them as they like.
#[must_use]
pub fn is_usable(profile: &str, namespace: &str) -> bool {
    let Some(own) = profile.strip_prefix(PREFIX) else {
        // In no other form does a name reach one of these.
        return !profile.contains(PREFIX);
    };
    own.strip_prefix(namespace).and_then(|rest| rest.strip_prefix('/')).is_some_and(is_object_name)
}

impl AppArmorProfile {
    /// Reads an object of the API or of a manifest.
    pub fn read(object: &Value) -> Result<Self, AppArmorProfileError> {
        let Object { api_version, kind, metadata: Metadata { name, namespace }, spec } =
            from_value(object).map_err(AppArmorProfileError::Undecodable)?;
        if kind != KIND || api_version != format!("{GROUP}/{VERSION}") {
            return Err(AppArmorProfileError::OtherKind { kind, api_version });
        }
        if !is_label(&namespace) {
            return Err(AppArmorProfileError::Name(namespace));
        }
        if !is_object_name(&name) {
            return Err(AppArmorProfileError::Name(name));
        }
        let mode = match spec.mode.as_deref() {
            None | Some("Enforce") => AppArmorMode::Enforce,
            Some("Complain") => AppArmorMode::Complain,
            Some(other) => return Err(AppArmorProfileError::Mode(other.to_owned())),
        };
        let rules = AppArmorRules::parse(&spec.rules).map_err(AppArmorProfileError::Rules)?;
        Ok(Self { namespace, name, mode, rules })
    }

    /// The name under which nodes load it.
    #[must_use]
    pub fn kernel_name(&self) -> String {
        kernel_name(&self.namespace, &self.name)
    }

    /// The text that nodes load, which has nothing of the object but the values of its rules.
    #[must_use]
    pub fn text(&self) -> String {
        self.rules.profile(&self.kernel_name(), self.mode)
    }
}

fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn is_object_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(inner) && !part.starts_with('-') && !part.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(is_part)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{AppArmorProfile, is_usable};

    fn object(metadata: &Value, spec: &Value) -> Value {
        json!({"apiVersion": "palisade.dev/v1alpha1", "kind": "AppArmorProfile", "metadata": metadata, "spec": spec})
    }

    #[test]
    fn the_name_of_a_profile_is_that_of_its_namespace() {
        let own = json!({"namespace": "shop", "name": "web.v2"});
        let profile = AppArmorProfile::read(&object(&own, &json!({"rules": "file,"}))).unwrap();
        assert_eq!(profile.kernel_name(), "palisade/shop/web.v2");
        assert!(profile.text().starts_with("profile \"palisade/shop/web.v2\" "));
    }

    #[test]
    fn what_is_not_such_an_object_is_rejected() {
        let own = json!({"namespace": "shop", "name": "web"});
        for (case, metadata, spec, reason) in [
            ("no namespace", json!({"name": "web"}), json!({"rules": ""}), "is not a name"),
            (
                "a name that is a path",
                json!({"namespace": "shop", "name": "a/b"}),
                json!({"rules": ""}),
                "is not a name",
            ),
            (
                "a name that ends a string",
                json!({"namespace": "shop", "name": "a\" {"}),
                json!({"rules": ""}),
                "is not a name",
            ),
            (
                "a namespace that is a path",
                json!({"namespace": "a/b", "name": "c"}),
                json!({"rules": ""}),
                "is not a name",
            ),
            ("no rules", own.clone(), json!({}), "missing field"),
            ("an unknown field", own.clone(), json!({"rules": "", "flags": "unconfined"}), "unknown field"),
            (
                "an unknown mode",
                own.clone(),
                json!({"rules": "", "mode": "Unconfined"}),
                "neither Enforce nor Complain",
            ),
            (
                "a mode in lower case",
                own.clone(),
                json!({"rules": "", "mode": "complain"}),
                "neither Enforce nor Complain",
            ),
            ("a rule", own, json!({"rules": "file,\nptrace,"}), "spec.rules: line 2: ptrace"),
        ] {
            let error = AppArmorProfile::read(&object(&metadata, &spec)).unwrap_err().to_string();
            assert!(error.contains(reason), "{case}: {error}");
        }
    }

    #[test]
    fn pods_use_profiles_of_their_own_namespace_and_of_the_node() {
        for (profile, expected) in [
            ("palisade/shop/web", true),
            ("k8s-default", true),
            ("/usr/sbin/ntpd", true),
            ("palisade/other/web", false),
            ("palisade/shop/web//child", false),
            ("palisade/shop/", false),
            ("palisade/shop", false),
            ("palisade/shopping/web", false),
            (":root:palisade/other/web", false),
            ("x//&palisade/other/web", false),
        ] {
            assert_eq!(is_usable(profile, "shop"), expected, "{profile}");
        }
    }
}
