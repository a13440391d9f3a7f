//! Strategic merge patch: merge patch in which some lists are merged by a key.
//!
//! Implements: `k8s.io/apimachinery/pkg/util/strategicpatch` and its directives `$patch`, `$retainKeys`,
//! `$setElementOrder/<list>` and `$deleteFromPrimitiveList/<list>`,
//! <https://git.k8s.io/community/contributors/devel/sig-api-machinery/strategic-merge-patch.md>.
//!
//! Crates compared: `json-patch` has RFC 6902 and RFC 7396, which replace lists as a whole; `DeepMerge` of `k8s-openapi`
//! merges lists by key, but typed objects of one release only, without the directives and without null for removal.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use palisade_base::go;
use serde_json::{Map, Value};

use crate::schema::{Field, PatchStrategy, TypeKind, TypeRef};
use crate::status::Status;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ORDER: &str = "$setElementOrder/";
const DELETE_PRIMITIVES: &str = "$deleteFromPrimitiveList/";

/// Why a patch does not apply.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Error {
    /// The patch is malformed: 400.
    Format(&'static str),
    /// The patch cannot be processed: 422.
    Unprocessable,
    /// Any other error, which upstream passes on as it is: 500.
    Other(String),
}

impl Error {
    pub(super) fn into_status(self) -> Box<Status> {
        match self {
            Self::Format(why) => Status::bad_request(why),
            Self::Unprocessable => Status::unprocessable(),
            Self::Other(why) => Status::unknown_error(why),
        }
    }
}

type Object = Map<String, Value>;

fn no_merge_key(item: &Value, key: &str) -> Error {
    Error::Other(format!("map: {} does not contain declared merge key: {key}", go::display(item)))
}

fn bad_type(expected: &str, found: &Value) -> Error {
    // The type of nil is nil, which the verb `%s` cannot print.
    let found = if found.is_null() { "%!s(<nil>)" } else { go::type_name(found) };
    Error::Other(format!("expected a {expected}, but received a {found}"))
}

/// Merges `patch` into `original`; `of` is the type of both, `None` where it is not known.
pub(super) fn merge_map(
    mut original: Object,
    mut patch: Object,
    of: Option<TypeRef<'_>>,
) -> Result<Object, Error> {
    if let Some(directive) = patch.get(PATCH) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(PATCH);
                Ok(patch)
            }
            Some("delete") => Ok(Object::new()),
            _ => Err(Error::Other(format!(
                "unknown patch type: {} in map: {}",
                go::display(directive),
                go::display(&Value::Object(patch.clone()))
            ))),
        };
    }
    apply_retain_keys(&mut original, &mut patch)?;
    apply_element_orders(&mut original, &mut patch, of)?;
    for (key, value) in patch {
        let (key, deletes) = match key.strip_prefix(DELETE_PRIMITIVES) {
            Some(list) => (list.to_owned(), true),
            None if key == DELETE_PRIMITIVES.trim_end_matches('/') => {
                return Err(Error::Format("invalid patch format of primitive list"));
            }
            None => (key, false),
        };
        if value.is_null() {
            original.remove(&key);
            continue;
        }
        let Some(current) = original.get_mut(&key) else {
            if !deletes {
                take(&mut original, key, value);
            }
            continue;
        };
        match (current, value) {
            (Value::Object(current), Value::Object(value)) => {
                let (inner, strategy, _) = lookup(of, &key)?;
                let merged =
                    if strategy.replace { value } else { merge_map(std::mem::take(current), value, inner)? };
                *current = merged;
            }
            (Value::Array(current), Value::Array(value)) => {
                let (list, strategy, merge_key) = lookup(of, &key)?;
                let merged = if strategy.merge || deletes {
                    merge_slice(
                        std::mem::take(current),
                        value,
                        list.and_then(TypeRef::item),
                        merge_key.as_deref(),
                        deletes,
                    )?
                } else {
                    value
                };
                *current = merged;
            }
            (_, value) => {
                if !deletes {
                    take(&mut original, key, value);
                }
            }
        }
    }
    Ok(original)
}

/// Puts a value in that has no counterpart: without nulls, and without anything that carries a directive.
fn take(original: &mut Object, key: String, mut value: Value) {
    discard_nulls(&mut value);
    match without_directives(value) {
        Some(value) => original.insert(key, value),
        None => original.remove(&key),
    };
}

fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, v| !v.is_null());
            map.values_mut().for_each(discard_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) => {
            if map.contains_key(PATCH) {
                return None;
            }
            let kept = map.into_iter().filter_map(|(k, v)| without_directives(v).map(|v| (k, v)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        scalar => Some(scalar),
    }
}

type Found<'a> = (Option<TypeRef<'a>>, PatchStrategy, Option<String>);

/// Type, strategy and merge key of a field; a field that is not in the struct cannot be merged.
fn lookup<'a>(of: Option<TypeRef<'a>>, key: &str) -> Result<Found<'a>, Error> {
    let Some(of) = of else { return Ok((None, PatchStrategy::default(), None)) };
    match &of.ty.kind {
        TypeKind::Struct { .. } => {
            let s = of.as_struct();
            let field: Option<&Field> = s.and_then(|s| s.field(key));
            match (field, s) {
                (Some(field), _) => Ok((
                    Some(of.with(&field.ty)),
                    field.strategy,
                    field.merge_key.as_deref().map(str::to_owned),
                )),
                (None, s) => Err(Error::Other(format!(
                    "unable to find api field in struct {} for the json field {}",
                    s.map_or("", |s| s.short_name()),
                    go::quote(key)
                ))),
            }
        }
        TypeKind::Map { item, .. } => Ok((Some(of.with(item)), PatchStrategy::default(), None)),
        _ => Ok((None, PatchStrategy::default(), None)),
    }
}

fn apply_retain_keys(original: &mut Object, patch: &mut Object) -> Result<(), Error> {
    const FORMAT: Error = Error::Format("invalid patch format of retainKeys");
    let Some(keys) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let Value::Array(keys) = keys else { return Err(FORMAT) };
    let retained = |key: &str| keys.iter().any(|k| k.as_str() == Some(key));
    for (key, value) in &*patch {
        let directive = key.starts_with(DELETE_PRIMITIVES) || key.starts_with(SET_ORDER);
        if !value.is_null() && !directive && !retained(key) {
            return Err(FORMAT);
        }
    }
    original.retain(|key, _| retained(key));
    Ok(())
}

/// Merges lists that come with a `$setElementOrder` and brings them into that order.
fn apply_element_orders(
    original: &mut Object,
    patch: &mut Object,
    of: Option<TypeRef<'_>>,
) -> Result<(), Error> {
    let directives: Vec<String> =
        patch.keys().filter(|k| k.starts_with("$setElementOrder")).cloned().collect();
    for directive in directives {
        let Some(order) = patch.remove(&directive) else { continue };
        let Value::Array(order) = order else { return Err(bad_type("[]interface {}", &order)) };
        let Some(list) = directive.strip_prefix(SET_ORDER) else {
            return Err(Error::Format("invalid patch format of setElementOrder list"));
        };
        let as_list = |value: Option<&Value>| match value {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items.clone())),
            Some(other) => Err(bad_type("[]interface {}", other)),
        };
        let in_original = as_list(original.get(list))?;
        let in_patch = as_list(patch.get(list))?;
        let (found, strategy, merge_key) = lookup(of, list)?;
        check_order(in_patch.as_deref().unwrap_or_default(), &order, merge_key.as_deref())?;
        let merged = match (&in_original, &in_patch) {
            (None, None) => continue,
            (Some(original), None) => original.clone(),
            (None, Some(patch)) => match without_directives(Value::Array(patch.clone())) {
                Some(Value::Array(items)) => items,
                _ => continue,
            },
            (Some(original), Some(patch)) => {
                if strategy.merge {
                    merge_slice(
                        original.clone(),
                        patch.clone(),
                        found.and_then(TypeRef::item),
                        merge_key.as_deref(),
                        false,
                    )?
                } else {
                    patch.clone()
                }
            }
        };
        let key = merge_key.as_deref();
        let order = Order::of(&order, key);
        let server_order = Order::of(&in_original.unwrap_or_default(), key);
        let (ours, servers) = partition(merged, &order, key)?;
        let both = interleave(ours, servers, &order, &server_order);
        original.insert(list.to_owned(), Value::Array(both));
        patch.remove(list);
    }
    Ok(())
}

fn check_order(patch: &[Value], order: &[Value], merge_key: Option<&str>) -> Result<(), Error> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut kept = Vec::new();
    for item in patch {
        match (merge_key, item) {
            (Some(_), Value::Object(map)) => {
                if map.get(PATCH).and_then(Value::as_str) != Some("delete") {
                    kept.push(item);
                }
            }
            (Some(_), other) => return Err(bad_type("map[string]interface {}", other)),
            (None, item) => kept.push(item),
        }
    }
    let mut at = 0;
    for expected in order {
        while kept.get(at).is_some_and(|item| item.get(PATCH).is_some()) {
            at += 1;
        }
        let Some(item) = kept.get(at) else { break };
        let same = match merge_key {
            None => *item == expected,
            Some(key) => {
                let left = item.get(key).ok_or_else(|| no_merge_key(item, key))?;
                let right = expected.get(key).ok_or_else(|| no_merge_key(expected, key))?;
                left == right
            }
        };
        if same {
            at += 1;
        }
    }
    while kept.get(at).is_some_and(|item| item.get(PATCH).is_some()) {
        at += 1;
    }
    if at < kept.len() {
        return Err(Error::Other(format!(
            "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
            go::display(&Value::Array(patch.to_vec())),
            go::display(&Value::Array(order.to_vec()))
        )));
    }
    Ok(())
}

fn merge_slice(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    item: Option<TypeRef<'_>>,
    merge_key: Option<&str>,
    deletes: bool,
) -> Result<Vec<Value>, Error> {
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    let objects = match original.iter().chain(&patch).next() {
        Some(Value::Array(_)) => return Err(Error::Unprocessable),
        first => first.is_some_and(Value::is_object),
    };
    if original.iter().chain(&patch).any(|v| v.is_object() != objects) {
        let both = Value::Array(vec![Value::Array(original), Value::Array(patch)]);
        return Err(Error::Other(format!("list element types are not identical: {}", go::display(&both))));
    }
    if !objects {
        if deletes {
            let patch = Order::of(&patch, None);
            original.retain(|v| patch.place(v).is_none());
            return Ok(original);
        }
        let (patch_order, server_order) = (Order::of(&patch, None), Order::of(&original, None));
        let mut merged = original;
        merged.extend(patch);
        let merged = deduplicate(merged);
        let (ours, servers) = partition(merged, &patch_order, None)?;
        return Ok(interleave(ours, servers, &patch_order, &server_order));
    }
    let Some(key) = merge_key else {
        let name = item.and_then(TypeRef::as_struct).map_or_else(String::new, |s| s.short_name().to_owned());
        return Err(Error::Other(format!("cannot merge lists without merge key for {name}")));
    };
    let (original, patch) = apply_special_items(original, patch, key)?;
    let (patch_order, server_order) = (Order::of(&patch, Some(key)), Order::of(&original, Some(key)));
    let mut places = server_order.places.clone();
    let mut merged = original;
    for value in patch {
        let Value::Object(map) = value else { continue };
        let Some(wanted) = map.get(key).map(Value::to_string) else {
            return Err(no_merge_key(&Value::Object(map), key));
        };
        match places.entry(wanted) {
            Entry::Occupied(place) => {
                let Some(merged) = merged.get_mut(*place.get()) else { continue };
                if let Value::Object(current) = std::mem::take(merged) {
                    *merged = Value::Object(merge_map(current, map, item)?);
                }
            }
            Entry::Vacant(place) => {
                place.insert(merged.len());
                merged.push(Value::Object(map));
            }
        }
    }
    let (ours, servers) = partition(merged, &patch_order, Some(key))?;
    Ok(interleave(ours, servers, &patch_order, &server_order))
}

/// `$patch: delete` and `$patch: replace` items of a list.
fn apply_special_items(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), Error> {
    let mut rest = Vec::new();
    let mut replace = false;
    let mut deleted = HashSet::new();
    for value in patch {
        match value.get(PATCH) {
            None => rest.push(value),
            Some(Value::String(directive)) if directive == "delete" => {
                let Some(wanted) = value.get(key) else { return Err(no_merge_key(&value, key)) };
                deleted.insert(wanted.to_string());
            }
            Some(Value::String(directive)) if directive == "replace" => replace = true,
            Some(Value::String(directive)) if directive == "merge" => {
                return Err(Error::Other("merging lists cannot yet be specified in the patch".into()));
            }
            Some(directive) => {
                return Err(Error::Other(format!(
                    "unknown patch type: {} in map: {}",
                    go::display(directive),
                    go::display(&value)
                )));
            }
        }
    }
    if !deleted.is_empty() {
        original.retain(|v| v.get(key).is_none_or(|found| !deleted.contains(&found.to_string())));
    }
    if replace { Ok((rest, Vec::new())) } else { Ok((original, rest)) }
}

/// Lists whose order after dropping repeated scalars is upstream's. It compares each item with each other one.
const MAX_IN_UPSTREAMS_ORDER: usize = 1_000;

/// Upstream's way to drop repeated scalars: the last item takes the place of the repeated one.
fn deduplicate(mut items: Vec<Value>) -> Vec<Value> {
    if items.len() > MAX_IN_UPSTREAMS_ORDER {
        let mut seen = HashSet::new();
        items.retain(|item| seen.insert(item.to_string()));
        return items;
    }
    let mut i = 0;
    while i < items.len() {
        let mut j = i + 1;
        while j < items.len() {
            if items[i] == items[j] {
                items.swap_remove(j);
            } else {
                j += 1;
            }
        }
        i += 1;
    }
    items
}

/// Where items are in a list: by their merge key, or by themselves. Lists may be as long as a request, so that no item is
/// compared with each other one.
struct Order<'k> {
    merge_key: Option<&'k str>,
    /// The first place of each item, by its text.
    places: HashMap<String, usize>,
}

impl<'k> Order<'k> {
    fn of(items: &[Value], merge_key: Option<&'k str>) -> Self {
        let mut order = Self { merge_key, places: HashMap::with_capacity(items.len()) };
        for (at, item) in items.iter().enumerate() {
            if let Some(text) = order.text(item) {
                order.places.entry(text).or_insert(at);
            }
        }
        order
    }

    fn text(&self, item: &Value) -> Option<String> {
        match self.merge_key {
            None => Some(item.to_string()),
            Some(key) => item.get(key).map(Value::to_string),
        }
    }

    fn place(&self, item: &Value) -> Option<usize> {
        self.places.get(&self.text(item)?).copied()
    }
}

/// Splits into items that are in `by` and items that are not.
fn partition(
    items: Vec<Value>,
    by: &Order<'_>,
    merge_key: Option<&str>,
) -> Result<(Vec<Value>, Vec<Value>), Error> {
    let mut ours = Vec::new();
    let mut servers = Vec::new();
    for item in items {
        if let Some(key) = merge_key.filter(|key| item.get(key).is_none()) {
            return Err(no_merge_key(&item, key));
        }
        if by.place(&item).is_some() { ours.push(item) } else { servers.push(item) }
    }
    Ok((ours, servers))
}

/// Puts the patch's items and the server's together: each in its own order, mixed by the order on the server.
fn interleave(
    mut ours: Vec<Value>,
    mut servers: Vec<Value>,
    patch_order: &Order<'_>,
    server_order: &Order<'_>,
) -> Vec<Value> {
    ours.sort_by_cached_key(|item| patch_order.place(item));
    servers.sort_by_cached_key(|item| server_order.place(item));
    let mut out = Vec::with_capacity(ours.len() + servers.len());
    let mut ours = ours.into_iter().peekable();
    let mut servers = servers.into_iter().peekable();
    loop {
        let server_first = match (servers.peek(), ours.peek()) {
            (None, None) => return out,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(server), Some(our)) => match (server_order.place(server), server_order.place(our)) {
                (Some(server), Some(our)) => server < our,
                _ => false,
            },
        };
        out.extend(if server_first { servers.next() } else { ours.next() });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::scheme::LATEST;

    fn run(original: Value, patch: Value) -> Result<Value, Error> {
        let kind = LATEST.by_kind("", "v1", "Pod").unwrap();
        let (Value::Object(original), Value::Object(patch)) = (original, patch) else { panic!("objects") };
        merge_map(original, patch, Some(kind.schema())).map(Value::Object)
    }

    #[test]
    fn merges_lists_by_key_and_keeps_orders() {
        let pod = json!({"spec": {"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}]}, {"name": "b"}]}});
        for (case, patch, expected) in [
            (
                "new items come first",
                json!({"spec": {"containers": [{"name": "c"}]}}),
                json!(["c", "a", "b"]),
            ),
            (
                "an order can be requested",
                json!({"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": [{"name": "a"}]}}),
                json!(["b", "a"]),
            ),
            (
                "items can be deleted",
                json!({"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}),
                json!(["b"]),
            ),
            (
                "lists can be replaced",
                json!({"spec": {"containers": [{"$patch": "replace"}, {"name": "z"}]}}),
                json!(["z"]),
            ),
        ] {
            let merged = run(pod.clone(), patch).unwrap();
            let names: Vec<&Value> =
                merged["spec"]["containers"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
            assert_eq!(json!(names), expected, "{case}");
        }
    }

    #[test]
    fn primitive_lists_are_sets() {
        let original = json!({"metadata": {"finalizers": ["x"]}});
        let added = run(original.clone(), json!({"metadata": {"finalizers": ["y"]}})).unwrap();
        assert_eq!(added["metadata"]["finalizers"], json!(["y", "x"]));
        let removed =
            run(added, json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["x"]}})).unwrap();
        assert_eq!(removed["metadata"]["finalizers"], json!(["y"]));
    }

    #[test]
    fn a_missing_merge_key_is_an_error() {
        let error = run(
            json!({"spec": {"containers": [{"name": "a"}]}}),
            json!({"spec": {"containers": [{"image": "x"}]}}),
        );
        assert_eq!(
            error,
            Err(Error::Other("map: map[image:x] does not contain declared merge key: name".into()))
        );
    }
}
