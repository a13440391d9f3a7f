//! The `paths` of the documents: which operations there are, and which parameters clients may rely on.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{Dialect, group_path, kind_name};
use crate::scheme::Kind;

/// Every path of the kinds.
pub(super) fn all(kinds: &[Arc<Kind>], dialect: Dialect) -> Map<String, Value> {
    let mut out = Map::new();
    for kind in kinds {
        let scope = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
        let collection = format!("/{}{scope}/{}", group_path(kind), kind.plural);
        let mut operations = Map::new();
        for verb in ["list", "create", "deletecollection"] {
            if kind.verbs.contains(&verb) {
                operations.insert(method(verb).into(), operation(kind, verb, dialect));
            }
        }
        if !operations.is_empty() {
            out.insert(collection.clone(), Value::Object(operations));
        }
        if kind.namespaced && kind.verbs.contains(&"list") {
            let mut list = operation(kind, "list", dialect);
            list["operationId"] = operation_id(kind, "list", "ForAllNamespaces").into();
            out.insert(format!("/{}/{}", group_path(kind), kind.plural), json!({"get": list}));
        }
        let mut operations = Map::new();
        for verb in ["get", "update", "patch", "delete"] {
            if kind.verbs.contains(&verb) {
                operations.insert(method(verb).into(), operation(kind, verb, dialect));
            }
        }
        if !operations.is_empty() {
            out.insert(format!("{collection}/{{name}}"), Value::Object(operations));
        }
    }
    out
}

fn method(verb: &str) -> &'static str {
    match verb {
        "list" | "get" => "get",
        "create" => "post",
        "update" => "put",
        "patch" => "patch",
        _ => "delete",
    }
}

fn operation(kind: &Kind, verb: &str, dialect: Dialect) -> Value {
    let mut parameters = Vec::new();
    if matches!(verb, "create" | "update" | "patch") {
        for name in ["dryRun", "fieldManager", "fieldValidation"] {
            parameters.push(query(name, "string", dialect));
        }
    }
    if verb == "patch" {
        parameters.push(query("force", "boolean", dialect));
    }
    if matches!(verb, "delete" | "deletecollection") {
        parameters.push(query("dryRun", "string", dialect));
    }
    let name = if verb == "list" { format!("{}List", kind_name(kind)) } else { kind_name(kind) };
    let reference = json!({"$ref": dialect.reference(&name)});
    let answer = match dialect {
        Dialect::V2 => json!({"description": "OK", "schema": reference}),
        Dialect::V3 => json!({"description": "OK", "content": {"application/json": {"schema": reference}}}),
    };
    let mut out = json!({
        "operationId": operation_id(kind, verb, ""),
        "parameters": parameters,
        "responses": {"200": answer},
        "x-kubernetes-action": if verb == "create" { "post" } else { verb },
        "x-kubernetes-group-version-kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
    });
    if dialect == Dialect::V2
        && let Some(map) = out.as_object_mut()
    {
        map.insert("produces".into(), json!(["application/json", "application/yaml"]));
    }
    out
}

/// `listCoreV1NamespacedPod`, `listCoreV1PodForAllNamespaces`.
fn operation_id(kind: &Kind, verb: &str, of_all: &str) -> String {
    let group = kind.group.split('.').next().filter(|group| !group.is_empty()).unwrap_or("core");
    let scope = if kind.namespaced && of_all.is_empty() { "Namespaced" } else { "" };
    format!("{verb}{}{}{scope}{}{of_all}", capital(group), capital(&kind.version), kind.kind)
}

fn query(name: &str, kind: &str, dialect: Dialect) -> Value {
    match dialect {
        Dialect::V2 => json!({"name": name, "in": "query", "type": kind, "uniqueItems": true}),
        Dialect::V3 => json!({"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": true}}),
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}
