//! `schema/types.txt`: the type trees of the served kinds.
//!
//! The Go types give fields, their order, pointers, names of types and what is left out of JSON; OpenAPI gives list
//! and map types, merge keys, required fields and defaults.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use super::go::{Declaration, Field, Type};
use super::kinds::Kind;
use super::package_alias;
use super::source::{Definitions, Release};
use super::table::{Line, Struct, Table};
use crate::Failure;

/// The oldest release that is emulated: what it has is there in all.
const OLDEST: u8 = 19;

const HEADER: &str = "\
# The type trees of the served built-in kinds: facts only (names, types, list keys, releases), no prose.
#
# Made by `cargo xtask gen --kubernetes DIR` from the Go types of k8s.io/api, k8s.io/apimachinery and
# k8s.io/apiextensions-apiserver and the OpenAPI documents of Kubernetes (all Apache-2.0); do not edit. What Palisade
# adds is in extensions.txt, which kinds there are is in kinds.txt.
#
# @package.Struct [A]          A: atomic for server-side apply
# name type flags...           type: * pointer, [] list, {} map, scalar[:Go name] or package.Struct
#   o omitempty  z omitzero  r required  A atomic  S set  K=keys of a map list  d=default
#   p=patchMergeKey  s=patchStrategy  >N new in v1.N  <N gone in v1.N
";

/// Types that are written otherwise than their Go struct.
const SPECIAL: &[(&str, &str)] = &[
    ("k8s.io/apimachinery/pkg/api/resource.Quantity", "quantity"),
    ("k8s.io/apimachinery/pkg/apis/meta/v1.Duration", "duration"),
    ("k8s.io/apimachinery/pkg/apis/meta/v1.FieldsV1", "fieldsv1"),
    ("k8s.io/apimachinery/pkg/apis/meta/v1.MicroTime", "microtime"),
    ("k8s.io/apimachinery/pkg/apis/meta/v1.Time", "time"),
    ("k8s.io/apimachinery/pkg/runtime.RawExtension", "raw"),
    ("k8s.io/apimachinery/pkg/util/intstr.IntOrString", "intstr"),
    ("k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSON", "json"),
    ("k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrArray", "schemaor"),
    ("k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrBool", "schemaor"),
    ("k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrStringArray", "json"),
];

/// The table for the releases, the newest of which decides how fields are written; `before` is the table so far.
pub(crate) fn table(before: &str, kinds: &[Kind], releases: &[Release]) -> Result<String, Failure> {
    let mut table = Table::read(before);
    for (at, release) in releases.iter().enumerate() {
        // How a field is written matters in the last release that has it.
        let next = releases.get(at + 1);
        let goes_on = |kind: &Kind| !kind.is_in(release) || next.is_some_and(|next| kind.is_in(next));
        let definitions = if kinds.iter().all(goes_on) { None } else { Some(release.openapi()?) };
        let tree = Tree {
            release,
            definitions: definitions.as_ref(),
            newest: next.is_none(),
            structs: BTreeMap::new(),
            packages: BTreeMap::new(),
        };
        table.add(tree.of(kinds)?, release.minor, OLDEST);
    }
    let newest = releases.last().map_or(OLDEST, |release| release.minor);
    let header = format!("{HEADER}# Kubernetes v1.{OLDEST} to v1.{newest}\n");
    Ok(table.reachable_from(kinds.iter().map(|kind| kind.type_name.as_str())).write(&header))
}

/// The structs of one release that the kinds lead to.
struct Tree<'a> {
    release: &'a Release,
    /// Of the newest release only: how fields are written in older ones does not matter.
    definitions: Option<&'a Definitions>,
    /// Whether OpenAPI must have every type; the documents of older releases leave out whole groups.
    newest: bool,
    structs: BTreeMap<String, Struct>,
    /// Import paths of the names in the table, to find two packages that claim one name.
    packages: BTreeMap<String, String>,
}

impl Tree<'_> {
    fn of(mut self, kinds: &[Kind]) -> Result<BTreeMap<String, Struct>, Failure> {
        for kind in kinds.iter().filter(|kind| kind.is_in(self.release)) {
            let (alias, name) = kind.type_name.split_once('.').unwrap_or(("", &kind.type_name));
            self.add(alias, &kind.import_path, name)?;
        }
        Ok(self.structs)
    }

    /// Adds a struct and what its fields lead to; its name in the table.
    fn add(&mut self, alias: &str, import_path: &str, name: &str) -> Result<String, Failure> {
        let full = format!("{alias}.{name}");
        if let Some(path) = self.packages.insert(full.clone(), import_path.to_owned()) {
            if path == import_path {
                return Ok(full);
            }
            return Err(Failure(format!("{full} is a type of {path} and of {import_path}")));
        }
        let Some(fields) = self.release.fields(import_path, name, Field::inline) else { return Ok(full) };
        let model = model_name(import_path, name);
        let definition = match self.definitions.map(|definitions| definitions.get(&model)) {
            Some(Some(definition)) => definition,
            Some(None) if self.newest => return Err(Failure(format!("OpenAPI has no {model}"))),
            _ => &Value::Null,
        };
        let mut lines = Vec::new();
        for field in fields {
            let Some(json) = field.json_name() else { continue };
            let ty = self.type_text(&field.ty, alias, import_path)?;
            lines.push(Line::new(json, format!("{ty}{}", flags(field, json, definition))));
        }
        let flag = if definition["x-kubernetes-map-type"] == "atomic" { "A" } else { "" };
        self.structs.insert(full.clone(), Struct { flag, fields: lines });
        Ok(full)
    }

    /// How the table writes a type. `alias` is what the package at `import_path` is called.
    fn type_text(&mut self, ty: &Type, alias: &str, import_path: &str) -> Result<String, Failure> {
        Ok(match ty {
            Type::Pointer(inner) => format!("*{}", self.type_text(inner, alias, import_path)?),
            Type::List(inner) if **inner == Type::Name(String::new(), "byte".to_owned()) => {
                "bytes".to_owned()
            }
            Type::List(inner) => format!("[]{}", self.type_text(inner, alias, import_path)?),
            Type::Map(inner) => format!("{{}}{}", self.type_text(inner, alias, import_path)?),
            Type::Name(path, name) if path.is_empty() => name.clone(),
            Type::Name(path, name) => {
                let full = format!("{path}.{name}");
                if let Some((_, special)) = SPECIAL.iter().find(|(special, _)| *special == full) {
                    return Ok((*special).to_owned());
                }
                let own_alias = if path == import_path { alias } else { package_alias(path) };
                match self.release.declaration(path, name) {
                    Some(Declaration::Struct(_)) => self.add(own_alias, path, name)?,
                    Some(Declaration::Alias(ty)) => self.type_text(ty, own_alias, path)?,
                    Some(Declaration::Named(ty)) => {
                        let package = path.rsplit('/').next().unwrap_or(path);
                        format!("{}:{package}.{name}", self.type_text(ty, own_alias, path)?)
                    }
                    None => return Err(Failure(format!("v1.{}: no type {full}", self.release.minor))),
                }
            }
        })
    }
}

/// `io.k8s.api.core.v1.Pod`
fn model_name(import_path: &str, name: &str) -> String {
    format!("io.{}.{name}", import_path.replacen("k8s.io", "k8s", 1).replace('/', "."))
}

/// The flags of a field, each after a space.
fn flags(field: &Field, json: &str, definition: &Value) -> String {
    let property = &definition["properties"][json];
    let mut flags = String::new();
    let optional = field.has_option("omitempty");
    if optional {
        flags.push_str(" o");
    }
    if field.has_option("omitzero") {
        flags.push_str(" z");
    }
    if definition["required"].as_array().is_some_and(|required| required.iter().any(|name| name == json)) {
        flags.push_str(" r");
    }
    if property["x-kubernetes-map-type"] == "atomic" {
        flags.push_str(" A");
    }
    match property["x-kubernetes-list-type"].as_str() {
        Some("set") => flags.push_str(" S"),
        Some("map") => {
            let keys = property["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
            let keys: Vec<&str> = keys.filter_map(Value::as_str).collect();
            let _ = write!(flags, " K={}", keys.join(","));
        }
        _ => {}
    }
    // A field that is always written has Go's zero value for a default in OpenAPI, which carries no information.
    let default = &property["default"];
    let always_written = !optional && !matches!(field.ty, Type::Pointer(_));
    if !default.is_null() && !default.as_object().is_some_and(serde_json::Map::is_empty) && !always_written {
        let _ = write!(flags, " d={default}");
    }
    if let Some(key) = property["x-kubernetes-patch-merge-key"].as_str() {
        let _ = write!(flags, " p={key}");
    }
    if let Some(strategy) = property["x-kubernetes-patch-strategy"].as_str() {
        let _ = write!(flags, " s={strategy}");
    }
    flags
}
