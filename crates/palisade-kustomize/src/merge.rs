//! Strategic merge patches as kustomize makes them.
//!
//! Implements: `merge2` of sigs.k8s.io/kustomize/kyaml, which differs from the merge of API servers: items of a patch come
//! first, and an item is only the same if all keys of its list are.
//! <https://kubectl.docs.kubernetes.io/references/kustomize/kustomization/patches/>

use palisade_apimachinery::schema::{ListType, TypeKind, TypeRef, builtin};
use serde_json::Value as Json;
use thiserror::Error;

use crate::tree::{Node, Value};

/// Why a patch cannot be merged.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub enum MergeError {
    /// A directive that kustomize does not have.
    #[error("the directive `{0}` is not supported")]
    Directive(String),
}

const PATCH: &str = "$patch";

/// The name of the type of a kind in the schema. Kinds that are not in it are merged without: their lists are replaced.
fn type_name(api_version: &str, kind: &str) -> Option<String> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let alias = match (group, version) {
        ("", "v1") => "core",
        ("apps" | "batch", "v1") => group,
        ("batch", "v1beta1") => "batch",
        ("policy", "v1" | "v1beta1") => "policy",
        ("networking.k8s.io", "v1") => "networking",
        ("admissionregistration.k8s.io", "v1") => "admissionregistration",
        ("rbac.authorization.k8s.io", "v1") => "rbac",
        _ => return None,
    };
    Some(format!("{alias}.{kind}"))
}

/// Merges a patch into an object of a kind. `None` if the patch deletes it.
pub(crate) fn merge_object(
    object: Node,
    patch: &Node,
    api_version: &str,
    kind: &str,
) -> Result<Option<Node>, MergeError> {
    let name = type_name(api_version, kind);
    let ty = name
        .and_then(|name| builtin().by_name(&name))
        .map(|(id, _)| palisade_apimachinery::schema::Type::plain(TypeKind::Struct { id, atomic: false }));
    let of = ty.as_ref().map(|ty| TypeRef { schema: builtin(), ty });
    merge(Some(object), patch, Of { ty: of, keys: None })
}

/// What is known about a value.
#[derive(Clone, Copy)]
struct Of<'t> {
    ty: Option<TypeRef<'t>>,
    /// The keys of a list that is merged; empty for one of scalars.
    keys: Option<&'t [std::borrow::Cow<'static, str>]>,
}

impl Of<'_> {
    const UNKNOWN: Self = Self { ty: None, keys: None };

    fn member(self, name: &str) -> Self {
        let Some(of) = self.ty else { return Self::UNKNOWN };
        let Some(known) = of.as_struct() else {
            return Self { ty: of.member(name), keys: None };
        };
        let Some(field) = known.field(name) else { return Self::UNKNOWN };
        let keys = field.strategy.merge.then(|| match (&field.ty.kind, &field.merge_key) {
            (TypeKind::List { list: ListType::Map(keys), .. }, _) => keys.as_slice(),
            (_, Some(key)) => std::slice::from_ref(key),
            (_, None) => &[],
        });
        Self { ty: Some(of.with(&field.ty)), keys }
    }

    fn item(self) -> Self {
        Self { ty: self.ty.and_then(TypeRef::item), keys: None }
    }
}

fn merge(dest: Option<Node>, patch: &Node, of: Of<'_>) -> Result<Option<Node>, MergeError> {
    match &patch.value {
        Value::Scalar(Json::Null) => Ok(None),
        Value::Scalar(new) => Ok(Some(match dest {
            // What a patch repeats is decided by what it patches.
            Some(dest) if matches!(&dest.value, Value::Scalar(old) if old == new) => dest,
            _ => patch.clone(),
        })),
        Value::Map(entries) => {
            let dest = match patch.text(&[PATCH]) {
                "delete" => return Ok(None),
                "replace" => None,
                "" | "merge" => dest,
                other => return Err(MergeError::Directive(format!("$patch: {other}"))),
            };
            let dest = dest.filter(|dest| matches!(dest.value, Value::Map(_)));
            let mut result =
                dest.unwrap_or(Node { value: Value::Map(Vec::new()), origin: patch.origin, key: patch.key });
            for (key, value) in entries.iter().filter(|(key, _)| key != PATCH) {
                if key.starts_with('$') {
                    return Err(MergeError::Directive(key.clone()));
                }
                let old = result.get(key).cloned();
                match merge(old, value, of.member(key))? {
                    Some(merged) => result.set(key, merged),
                    None => {
                        result.remove(key);
                    }
                }
            }
            Ok(Some(result))
        }
        Value::List(items) => merge_list(dest, patch, items, of).map(Some),
    }
}

fn merge_list(dest: Option<Node>, patch: &Node, items: &[Node], of: Of<'_>) -> Result<Node, MergeError> {
    let Some(keys) = of.keys else { return Ok(patch.clone()) };
    let is_directive = |item: &&Node| item.text(&[PATCH]) == "replace";
    let replaces = items.iter().any(|item| is_directive(&item));
    let (mut old, origin, key) = match dest {
        Some(Node { value: Value::List(old), origin, key }) if !replaces => (old, origin, key),
        _ => (Vec::new(), patch.origin, patch.key),
    };
    let mut first: Vec<Node> = Vec::new();
    for item in items.iter().filter(|item| !is_directive(item)) {
        let Some(primary) = keys.first() else {
            let json = item.to_json();
            old.retain(|known| known.to_json() != json);
            first.push(item.clone());
            continue;
        };
        let identity = |node: &Node| -> Vec<Option<Json>> {
            keys.iter().map(|key| node.get(key).filter(|value| !value.is_null()).map(Node::to_json)).collect()
        };
        let wanted = identity(item);
        let same_first =
            |node: &Node| node.get(primary).map(Node::to_json) == wanted.first().cloned().flatten();
        if item.text(&[PATCH]) == "delete" {
            // Without its other keys an item stands for those that have none.
            old.retain(|known| identity(known) != wanted);
            continue;
        }
        if let Some(at) = old.iter().position(|known| identity(known) == wanted) {
            let known = old.remove(at);
            first.extend(merge(Some(known), item, of.item())?);
        } else if let Some(at) = first.iter().position(|known| identity(known) == wanted) {
            let known = first.remove(at);
            first.extend(merge(Some(known), item, of.item())?);
        } else if wanted.first().is_some_and(Option::is_none) || old.iter().any(same_first) {
            // An item without its key, or with other keys than the one it means, has no effect.
        } else {
            first.extend(merge(None, item, of.item())?);
        }
    }
    first.append(&mut old);
    Ok(Node { value: Value::List(first), origin, key })
}
