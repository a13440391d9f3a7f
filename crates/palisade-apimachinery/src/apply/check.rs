//! Whether an applied configuration fits the schema, in upstream's words.
//!
//! Implements: the validation half of `sigs.k8s.io/structured-merge-diff/typed`.

use std::collections::BTreeSet;

use palisade_base::version::KubeVersion;
use serde_json::Value;

use super::set::{Element, Path};
use super::typed::item_element;
use crate::schema::{ListType, TypeKind, TypeRef};

/// Checks an applied object against the schema; errors are upstream's, `.path: why`.
pub(crate) fn validate(of: TypeRef<'_>, value: &Value, version: KubeVersion) -> Vec<String> {
    let mut errors = Vec::new();
    let mut path = Path::new();
    validate_at(of, value, version, &mut path, &mut errors);
    errors
}

fn validate_at(
    of: TypeRef<'_>,
    value: &Value,
    version: KubeVersion,
    path: &mut Path,
    errors: &mut Vec<String>,
) {
    let mut fail = |path: &Path, why: String| errors.push(format!("{}: {why}", super::set::path_text(path)));
    match (&of.ty.kind, value) {
        (_, Value::Null) | (TypeKind::Any | TypeKind::SchemaOr, _) => {}
        (TypeKind::Struct { .. }, Value::Object(map)) => {
            let Some(s) = of.as_struct() else { return };
            for (key, value) in map {
                path.push(Element::Field(key.clone()));
                match s.field(key).filter(|field| field.exists_in(version)) {
                    Some(field) => validate_at(of.with(&field.ty), value, version, path, errors),
                    None if s.preserve_unknown => {}
                    None => {
                        errors.push(format!("{}: field not declared in schema", super::set::path_text(path)));
                        path.pop();
                        return;
                    }
                }
                path.pop();
            }
        }
        (TypeKind::Map { item, .. }, Value::Object(map)) => {
            for (key, value) in map {
                path.push(Element::Field(key.clone()));
                validate_at(of.with(item), value, version, path, errors);
                path.pop();
            }
        }
        (TypeKind::List { item, list }, Value::Array(items)) => {
            let item = of.with(item);
            let mut seen: BTreeSet<Element> = BTreeSet::new();
            for (at, value) in (0i64..).zip(items) {
                let element = if *list == ListType::Atomic {
                    Element::Index(at)
                } else {
                    match item_element(item, list, value) {
                        Ok(element) => element,
                        Err(why) => {
                            errors.push(format!("{}: element {at}: {why}", super::set::path_text(path)));
                            return;
                        }
                    }
                };
                if *list != ListType::Atomic && !seen.insert(element.clone()) {
                    errors.push(format!(
                        "{}: duplicate entries for key {element}",
                        super::set::path_text(path)
                    ));
                }
                path.push(element);
                validate_at(item, value, version, path, errors);
                path.pop();
            }
        }
        (TypeKind::Struct { .. } | TypeKind::Map { .. }, other) => {
            fail(path, format!("expected map, got &{{{}}}", palisade_base::go::display(other)));
        }
        (TypeKind::List { .. }, other) => {
            fail(path, format!("expected list, got &{{{}}}", palisade_base::go::display(other)));
        }
        (TypeKind::String | TypeKind::Bytes, other) => {
            if !other.is_string() {
                fail(
                    path,
                    format!("expected string, got &value.valueUnstructured{{Value:{}}}", go_syntax(other)),
                );
            }
        }
        (TypeKind::Bool, other) => {
            if !other.is_boolean() {
                fail(path, format!("expected boolean, got &{{{}}}", palisade_base::go::display(other)));
            }
        }
        (TypeKind::Int(_) | TypeKind::Float, other) => {
            if !other.is_number() {
                fail(
                    path,
                    format!("expected numeric (int or float), got {}", palisade_base::go::type_name(other)),
                );
            }
        }
        (TypeKind::Quantity | TypeKind::IntOrString | TypeKind::Time | TypeKind::MicroTime, other) => {
            if other.is_array() || other.is_object() {
                fail(path, format!("expected any scalar, got &{{{}}}", palisade_base::go::display(other)));
            }
        }
    }
}

fn go_syntax(value: &Value) -> String {
    match value {
        Value::String(text) => palisade_base::go::quote(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(map) => {
            let items: Vec<String> = map
                .iter()
                .map(|(k, v)| format!("{}:{}", palisade_base::go::quote(k), go_syntax(v)))
                .collect();
            format!("map[string]interface {{}}{{{}}}", items.join(", "))
        }
        other => other.to_string(),
    }
}
