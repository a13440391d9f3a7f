//! Values as upstream's internal Go types print them in errors: all fields, Go names, order of declaration.
//!
//! Since v1.34 field errors show such values as JSON, and changes of immutable parts as a unified diff of it.
//! `internal.txt`, which `cargo xtask gen --kubernetes DIR` makes, has the layout of the pod types; a few small ones are
//! written out here.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::LazyLock;

use palisade_base::go;
use palisade_base::version::KubeVersion;
use serde_json::Value;

use super::unified_diff;
use crate::rest::path::Get;

struct Field {
    go: &'static str,
    json: &'static str,
    ty: &'static str,
    /// First release that has the field, 0 if all have.
    since: u16,
    /// First release that no longer has it, 0 if all have.
    until: u16,
}

static LAYOUT: LazyLock<HashMap<&'static str, Vec<Field>>> = LazyLock::new(|| {
    let mut out: HashMap<&'static str, Vec<Field>> = HashMap::new();
    let mut current = "";
    for line in include_str!("internal.txt").lines() {
        if let Some(name) = line.strip_prefix('@') {
            current = name;
            out.insert(name, Vec::new());
            continue;
        }
        let mut words = line.split(' ');
        if let (Some(go), Some(json), Some(ty), Some(fields)) =
            (words.next(), words.next(), words.next(), out.get_mut(current))
        {
            let mut field = Field { go, json, ty, since: 0, until: 0 };
            for word in words {
                match word.split_at_checked(1) {
                    Some((">", minor)) => field.since = minor.parse().unwrap_or(0),
                    Some(("<", minor)) => field.until = minor.parse().unwrap_or(0),
                    _ => {}
                }
            }
            fields.push(field);
        }
    }
    out
});

/// A value of an internal type, printed with one space of indentation, or compact.
struct Printer {
    out: String,
    pretty: bool,
    version: KubeVersion,
    depth: usize,
}

impl Printer {
    fn new(pretty: bool, version: KubeVersion) -> Self {
        Self { out: String::new(), pretty, version, depth: 0 }
    }

    fn line(&mut self) {
        if self.pretty {
            self.out.push('\n');
            for _ in 0..self.depth {
                self.out.push(' ');
            }
        }
    }

    fn key(&mut self, key: &str) {
        go::json_string(&mut self.out, key);
        self.out.push_str(if self.pretty { ": " } else { ":" });
    }

    fn structure(&mut self, name: &str, value: &Value, parent: &Value) {
        let Some(fields) = LAYOUT.get(name) else {
            self.plain(value);
            return;
        };
        self.out.push('{');
        self.depth += 1;
        let version = self.version;
        let kept = |f: &&Field| version.at_least(f.since) && (f.until == 0 || !version.at_least(f.until));
        for (i, field) in fields.iter().filter(kept).enumerate() {
            if i > 0 {
                self.out.push(',');
            }
            self.line();
            self.key(field.go);
            // Some fields of the pod spec live in the security context of the internal type.
            let found = match field.json.strip_prefix('^') {
                Some(moved) => parent.get(moved),
                None => value.get(field.json),
            };
            self.field(field.ty, found.filter(|v| !v.is_null()), value);
        }
        self.depth -= 1;
        self.line();
        self.out.push('}');
    }

    fn field(&mut self, ty: &str, found: Option<&Value>, parent: &Value) {
        let empty = Value::Null;
        if let Some(name) = ty.strip_prefix('=') {
            self.structure(name, found.unwrap_or(&empty), parent);
            return;
        }
        if let Some(name) = ty.strip_prefix("[]") {
            match found.and_then(Value::as_array).filter(|items| !items.is_empty()) {
                None => self.out.push_str("null"),
                Some(items) => {
                    self.out.push('[');
                    self.depth += 1;
                    for (i, item) in items.iter().enumerate() {
                        if i > 0 {
                            self.out.push(',');
                        }
                        self.line();
                        self.structure(name, item, parent);
                    }
                    self.depth -= 1;
                    self.line();
                    self.out.push(']');
                }
            }
            return;
        }
        match (ty, found) {
            (_, Some(value)) if ty.len() > 1 => self.structure(&ty[1..], value, parent),
            (_, Some(value)) => self.plain(value),
            ("s", None) => self.out.push_str("\"\""),
            ("b", None) => self.out.push_str("false"),
            ("i", None) => self.out.push('0'),
            (_, None) => self.out.push_str("null"),
        }
    }

    fn plain(&mut self, value: &Value) {
        match value {
            Value::Object(map) if map.is_empty() => self.out.push_str("{}"),
            Value::Object(map) => {
                self.out.push('{');
                self.depth += 1;
                for (i, (key, value)) in map.iter().enumerate() {
                    if i > 0 {
                        self.out.push(',');
                    }
                    self.line();
                    self.key(key);
                    self.plain(value);
                }
                self.depth -= 1;
                self.line();
                self.out.push('}');
            }
            Value::Array(items) if items.is_empty() => self.out.push_str("null"),
            Value::Array(items) => {
                self.out.push('[');
                self.depth += 1;
                for (i, value) in items.iter().enumerate() {
                    if i > 0 {
                        self.out.push(',');
                    }
                    self.line();
                    self.plain(value);
                }
                self.depth -= 1;
                self.line();
                self.out.push(']');
            }
            scalar => self.out.push_str(&go::json(scalar)),
        }
    }
}

pub(crate) fn print(type_name: &str, value: &Value, pretty: bool, version: KubeVersion) -> String {
    let mut printer = Printer::new(pretty, version);
    printer.structure(type_name, value, value);
    printer.out
}

/// A `core.PodTemplateSpec`, for the immutable template of a job: metadata keeps its JSON names.
pub(crate) fn pod_template(value: &Value, version: KubeVersion) -> String {
    let mut out = String::from("{");
    for (key, value) in value.entries("metadata") {
        go::json_string(&mut out, key);
        let _ = write!(out, ":{},", go::json(value));
    }
    let empty = Value::Null;
    out.push_str("\"Spec\":");
    out.push_str(&print("PodSpec", value.get("spec").unwrap_or(&empty), false, version));
    out.push('}');
    out
}

/// A `core.Toleration`.
pub(crate) fn toleration(value: &Value, version: KubeVersion) -> String {
    print("Toleration", value, false, version)
}

/// A `rbac.RoleRef`.
pub(crate) fn role_ref(value: &Value) -> String {
    let text = |key: &str| {
        let mut out = String::new();
        go::json_string(&mut out, value.text(key));
        out
    };
    format!("{{\"APIGroup\":{},\"Kind\":{},\"Name\":{}}}", text("apiGroup"), text("kind"), text("name"))
}

/// What changed between two values of an internal type, as upstream shows it since v1.34. Before, it is the dump of a
/// Go value, which no client can rely on and which is left out.
pub(crate) fn diff(type_name: &str, old: &Value, new: &Value, version: KubeVersion) -> String {
    if !version.at_least(34) {
        return String::new();
    }
    unified_diff::unified(&print(type_name, old, true, version), &print(type_name, new, true, version))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn prints_go_names_in_order() {
        assert_eq!(
            toleration(&json!({"key": "a", "operator": "Exists", "value": "b"}), KubeVersion::LATEST),
            r#"{"Key":"a","Operator":"Exists","Value":"b","Effect":"","TolerationSeconds":null}"#
        );
    }

    #[test]
    fn host_namespaces_were_in_the_security_context_before_v1_37() {
        for (minor, expected) in [
            (36, r#""SecurityContext":{"HostNetwork":true,"HostPID":false"#),
            (
                37,
                r#""HostNetwork":true,"HostPID":false,"HostIPC":false,"ShareProcessNamespace":null,"SecurityContext":{"#,
            ),
        ] {
            let pod = json!({"hostNetwork": true, "securityContext": {}});
            let text = print("PodSpec", &pod, false, KubeVersion::v1(minor));
            assert!(text.contains(expected), "v1.{minor}: {text}");
        }
    }
}
