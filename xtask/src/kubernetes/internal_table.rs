//! `kinds/internal.txt`: how upstream's internal types of a pod print.
//!
//! The Go types of `pkg/apis/core` give the fields in their order; they have no JSON tags, so that the fields of the
//! same Go name in `k8s.io/api/core/v1` give the JSON names.

use std::collections::BTreeMap;

use super::go::{Declaration, Field, Type};
use super::source::Release;
use super::table::{Line, Struct, Table};
use crate::Failure;

const INTERNAL: &str = "k8s.io/kubernetes/pkg/apis/core";
const V1: &str = "k8s.io/api/core/v1";

/// The types whose values field errors print; what they lead to follows each.
const ROOTS: &[&str] = &["PodSpec"];

/// Structs that print as their v1 form: no recorded error has one, and their metadata is a struct of its own.
const OPAQUE: &[&str] = &["PersistentVolumeClaimTemplate"];

/// The first release whose errors print values so.
const OLDEST: u8 = 34;

const HEADER: &str = "\
# How upstream's internal core types print: Go names in the order of declaration.
#
# Made by `cargo xtask gen --kubernetes DIR` from pkg/apis/core/types.go of Kubernetes (Apache-2.0); do not edit.
#
# GoName jsonName type      type: s text, b boolean, i number, * pointer, L list or map, =T struct, *T, []T
#   a jsonName that starts with ^ is a field of the parent (the pod spec keeps it elsewhere in the v1 type)
#   >N new in v1.N  <N gone in v1.N
";

/// The table for the releases; `before` is the table so far.
pub(crate) fn table(before: &str, releases: &[Release]) -> Result<String, Failure> {
    let mut table = Table::read(before);
    for release in releases.iter().filter(|release| release.minor >= OLDEST) {
        let mut structs = BTreeMap::new();
        for root in ROOTS {
            add(release, root, "", &mut structs)?;
        }
        table.add(structs, release.minor, OLDEST);
    }
    Ok(table.reachable_from(ROOTS.iter().copied()).write(HEADER))
}

/// Adds a struct and what its fields lead to. `parent` is the struct whose field it is.
fn add(
    release: &Release,
    name: &str,
    parent: &str,
    structs: &mut BTreeMap<String, Struct>,
) -> Result<(), Failure> {
    if structs.contains_key(name) {
        return Ok(());
    }
    let fields = release
        .fields(INTERNAL, name, |field| field.embedded)
        .ok_or_else(|| Failure(format!("{INTERNAL} has no struct {name}")))?;
    let mut lines = Vec::new();
    let mut next = Vec::new();
    for field in fields {
        let ty = type_text(release, &field.ty);
        let json = match (json_name(release, name, field), json_name(release, parent, field)) {
            (Some(json), _) => json.to_owned(),
            (None, Some(json)) => format!("^{json}"),
            (None, None) => return Err(Failure(format!("{V1}.{name} has no field {}", field.name))),
        };
        lines.push(Line::new(&field.name, format!("{json} {ty}")));
        if ty.len() > 1 {
            next.push(ty.trim_start_matches(['=', '*', '[', ']']).to_owned());
        }
    }
    structs.insert(name.to_owned(), Struct { flag: "", fields: lines });
    for inner in next {
        add(release, &inner, name, structs)?;
    }
    Ok(())
}

fn json_name<'a>(release: &'a Release, name: &str, wanted: &Field) -> Option<&'a str> {
    let fields = release.fields(V1, name, Field::inline)?;
    fields.iter().find(|field| field.name == wanted.name).and_then(|field| field.json_name())
}

fn type_text(release: &Release, ty: &Type) -> String {
    let structure = |ty: &Type| match ty {
        Type::Name(path, name) if path == INTERNAL && !OPAQUE.contains(&name.as_str()) => {
            matches!(release.declaration(path, name), Some(Declaration::Struct(_))).then(|| name.clone())
        }
        _ => None,
    };
    match ty {
        Type::Pointer(inner) => structure(inner).map_or("*".to_owned(), |name| format!("*{name}")),
        Type::List(inner) => structure(inner).map_or("L".to_owned(), |name| format!("[]{name}")),
        Type::Map(_) => "L".to_owned(),
        Type::Name(path, name) if path.is_empty() => match name.as_str() {
            "string" => "s",
            "bool" => "b",
            _ => "i",
        }
        .to_owned(),
        Type::Name(path, name) => match release.declaration(path, name) {
            Some(Declaration::Struct(_)) if path == INTERNAL => format!("={name}"),
            Some(Declaration::Named(ty) | Declaration::Alias(ty)) => type_text(release, ty),
            // Quantities, times and the like print as their own text.
            _ => "*".to_owned(),
        },
    }
}
