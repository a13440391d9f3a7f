//! Values as upstream's internal Go types print them in errors: all fields, Go names, order of declaration.
//!
//! Since v1.34 field errors show such values as JSON, and changes of immutable parts as a unified diff of it.

use serde_json::Value;

use crate::rest::path::Get;
use crate::version::KubeVersion;

/// A `core.Toleration`.
pub(crate) fn toleration(value: &Value) -> String {
    let text = |key: &str| {
        let mut out = String::new();
        crate::go::json_string(&mut out, value.text(key));
        out
    };
    let seconds = value.int("tolerationSeconds").map_or_else(|| "null".to_owned(), |s| s.to_string());
    format!(
        "{{\"Key\":{},\"Operator\":{},\"Value\":{},\"Effect\":{},\"TolerationSeconds\":{seconds}}}",
        text("key"),
        text("operator"),
        text("value"),
        text("effect"),
    )
}

/// A `rbac.RoleRef`.
pub(crate) fn role_ref(value: &Value) -> String {
    let text = |key: &str| {
        let mut out = String::new();
        crate::go::json_string(&mut out, value.text(key));
        out
    };
    format!("{{\"APIGroup\":{},\"Kind\":{},\"Name\":{}}}", text("apiGroup"), text("kind"), text("name"))
}

/// What changed between two values of an internal type, as upstream shows it.
pub(crate) fn diff(_type_name: &str, _old: &Value, _new: &Value, _version: KubeVersion) -> String {
    String::new()
}
