//! Comparing, merging and cutting objects along their type tree.
//!
//! Implements: `sigs.k8s.io/structured-merge-diff/typed`. A value is a leaf if it is a scalar, atomic, or empty on both
//! sides; values of unknown type are taken as what they look like, with atomic lists.

use std::collections::{BTreeMap, BTreeSet};

use palisade_base::go;
use serde_json::{Map, Value};
use thiserror::Error;

use super::set::{Element, FieldSet, Path, same_value};
use crate::schema::{Field, ListType, Type, TypeKind, TypeRef};

/// What changed between two objects.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) added: FieldSet,
    pub(crate) modified: FieldSet,
    pub(crate) removed: FieldSet,
}

/// How a value is walked.
enum Shape<'a> {
    Leaf,
    List { item: TypeRef<'a>, list: &'a ListType },
    Object(ObjectShape<'a>),
}

enum ObjectShape<'a> {
    Struct(TypeRef<'a>),
    Map(TypeRef<'a>),
}

impl<'a> ObjectShape<'a> {
    fn member(&self, name: &str) -> Option<TypeRef<'a>> {
        match self {
            Self::Struct(of) => {
                let s = of.as_struct()?;
                s.field(name)
                    .map(|f| of.with(&f.ty))
                    .or_else(|| s.preserve_unknown.then(|| of.with(&DEDUCED)))
            }
            Self::Map(item) => Some(*item),
        }
    }

    fn declares(&self, name: &str) -> bool {
        match self {
            Self::Struct(of) => of.as_struct().is_some_and(|s| s.field(name).is_some()),
            Self::Map(_) => false,
        }
    }
}

/// The type of values nothing is known about.
static DEDUCED: Type = Type { pointer: false, kind: TypeKind::Any, go_name: "" };

fn shape<'a>(of: TypeRef<'a>, value: &Value) -> Shape<'a> {
    match &of.ty.kind {
        TypeKind::Struct { id, atomic } => {
            if *atomic || of.schema.get(*id).is_some_and(|s| s.atomic) {
                Shape::Leaf
            } else {
                Shape::Object(ObjectShape::Struct(of))
            }
        }
        TypeKind::Map { atomic: false, item } => Shape::Object(ObjectShape::Map(of.with(item))),
        TypeKind::List { list: ListType::Atomic, .. } => Shape::Leaf,
        TypeKind::List { item, list } => Shape::List { item: of.with(item), list },
        TypeKind::Any if value.is_object() => Shape::Object(ObjectShape::Map(of)),
        _ => Shape::Leaf,
    }
}

/// Why an item of a list has no path element, worded as structured-merge-diff does.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum ElementError {
    /// In a list with keys.
    #[error("associative list with keys may not have a null element")]
    KeyedNull,
    /// A scalar or a list, in a list with keys.
    #[error("associative list with keys may not have non-map elements")]
    KeyedScalar,
    /// An item without any of the keys.
    #[error(
        "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values \
         for any key fields)", .0.iter().map(|key| go::quote(key)).collect::<Vec<_>>().join(" ")
    )]
    NoKeys(Vec<String>),
    /// In a set.
    #[error("associative list without keys has an element that's a map type")]
    SetOfMaps,
    /// In a set.
    #[error("not supported: associative list with lists as elements")]
    SetOfLists,
    /// In a set.
    #[error("associative list without keys has an element that's an explicit null")]
    SetWithNull,
    /// The items of an atomic list have no identity.
    #[error("invalid indexing of non-associative list")]
    Atomic,
}

/// Why two objects cannot be merged.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum MergeError {
    /// An item without an identity.
    #[error("element {index}: {source}")]
    Element { index: usize, source: ElementError },
    /// Two items of the configuration with one identity.
    #[error("duplicate entries for key {0}")]
    Duplicate(Element),
}

/// The path element of an item, or why it has none.
pub(crate) fn item_element(of: TypeRef<'_>, list: &ListType, item: &Value) -> Result<Element, ElementError> {
    match list {
        ListType::Map(keys) => {
            let Value::Object(object) = item else {
                return Err(if item.is_null() { ElementError::KeyedNull } else { ElementError::KeyedScalar });
            };
            let mut fields = Vec::with_capacity(keys.len());
            for key in keys {
                if let Some(value) = object.get(&**key) {
                    fields.push((key.to_string(), value.clone()));
                } else if let Some(default) =
                    of.as_struct().and_then(|s| s.field(key)).and_then(Field::key_default)
                {
                    fields.push((key.to_string(), default));
                }
            }
            if fields.is_empty() {
                return Err(ElementError::NoKeys(keys.iter().map(ToString::to_string).collect()));
            }
            fields.sort_by(|a, b| a.0.cmp(&b.0));
            Ok(Element::Key(fields))
        }
        ListType::Set => match item {
            Value::Object(_) => Err(ElementError::SetOfMaps),
            Value::Array(_) => Err(ElementError::SetOfLists),
            Value::Null => Err(ElementError::SetWithNull),
            scalar => Ok(Element::Value(scalar.clone())),
        },
        ListType::Atomic => Err(ElementError::Atomic),
    }
}

fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(map)) => map.is_empty(),
        Some(_) => false,
    }
}

/// Compares two objects of a type.
pub(crate) fn compare(of: TypeRef<'_>, old: &Value, new: &Value) -> Comparison {
    let mut below = Comparison::default();
    compare_at(of, Some(old), Some(new), &mut below);
    below
}

/// What happened to a value itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    None,
    Added,
    Modified,
    Removed,
}

/// Compares two values; what changed below them goes into `below`.
fn compare_at(of: TypeRef<'_>, old: Option<&Value>, new: Option<&Value>, below: &mut Comparison) -> Change {
    let leaf = match (old, new) {
        // The two look different (only possible where the type is unknown): a change as a whole.
        (Some(old), Some(new)) if !same_shape(of, old, new) => true,
        (None, None) => return Change::None,
        _ => descend(of, old, new, below),
    };
    match (old, new) {
        (None, _) => Change::Added,
        (_, None) => Change::Removed,
        (Some(old), Some(new)) if leaf && !same_value(old, new) => Change::Modified,
        _ => Change::None,
    }
}

impl Comparison {
    /// Puts the comparison of a member or item in.
    fn put(&mut self, change: Change, below: Self, element: impl Fn() -> Element) {
        self.added.put(&element, change == Change::Added, below.added);
        self.modified.put(&element, change == Change::Modified, below.modified);
        self.removed.put(&element, change == Change::Removed, below.removed);
    }
}

fn same_shape(of: TypeRef<'_>, old: &Value, new: &Value) -> bool {
    !matches!(of.ty.kind, TypeKind::Any) || old.is_object() == new.is_object()
}

/// Walks into objects and lists; true if the value is a leaf.
fn descend(of: TypeRef<'_>, old: Option<&Value>, new: Option<&Value>, out: &mut Comparison) -> bool {
    let Some(sample) = new.filter(|v| !v.is_null()).or(old) else { return true };
    let shape = shape(of, sample);
    if matches!(shape, Shape::Leaf) || (is_empty(old) && is_empty(new)) {
        return true;
    }
    match shape {
        Shape::Leaf => true,
        Shape::Object(shape) => {
            let (old, new) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
            for key in zip_keys(old, new) {
                let Some(member) = shape.member(key) else { continue };
                let mut below = Comparison::default();
                let change = compare_at(
                    member,
                    old.and_then(|m| m.get(key)),
                    new.and_then(|m| m.get(key)),
                    &mut below,
                );
                out.put(change, below, || Element::Field(key.clone()));
            }
            false
        }
        Shape::List { item, list } => {
            let (old, new) = (old.and_then(Value::as_array), new.and_then(Value::as_array));
            compare_lists(item, list, old, new, out);
            false
        }
    }
}

/// The keys of both maps, each once, in order.
fn zip_keys<'v>(
    old: Option<&'v Map<String, Value>>,
    new: Option<&'v Map<String, Value>>,
) -> impl Iterator<Item = &'v String> {
    let mut old = old.into_iter().flat_map(Map::keys).peekable();
    let mut new = new.into_iter().flat_map(Map::keys).peekable();
    std::iter::from_fn(move || match (old.peek(), new.peek()) {
        (Some(a), Some(b)) if a == b => {
            new.next();
            old.next()
        }
        (Some(a), Some(b)) if a < b => old.next(),
        (Some(_), None) => old.next(),
        _ => new.next(),
    })
}

fn compare_lists(
    item: TypeRef<'_>,
    list: &ListType,
    old: Option<&Vec<Value>>,
    new: Option<&Vec<Value>>,
    out: &mut Comparison,
) {
    let (left, right) = (ItemIndex::of(item, list, old), ItemIndex::of(item, list, new));
    let only_right = right.elements.iter().filter(|element| !left.items.contains_key(element));
    for element in left.elements.iter().chain(only_right) {
        let (l, r) = (left.get(element), right.get(element));
        let mut below = Comparison::default();
        let change = match (l, r) {
            ([] | [_], [] | [_]) => compare_at(item, l.first().copied(), r.first().copied(), &mut below),
            ([_, _, ..], [_, _, ..]) => {
                if l.len() == r.len() && l.iter().zip(r).all(|(l, r)| same_value(l, r)) {
                    Change::None
                } else {
                    Change::Modified
                }
            }
            ([_, _, ..], rest) => {
                // The repeated items go, and a single one comes in their place.
                if let Some(value) = rest.first() {
                    compare_at(item, None, Some(value), &mut below);
                    out.added.put(|| element.clone(), true, std::mem::take(&mut below.added));
                }
                Change::Removed
            }
            (rest, _) => {
                if let Some(value) = rest.first() {
                    compare_at(item, Some(value), None, &mut below);
                    out.removed.put(|| element.clone(), true, std::mem::take(&mut below.removed));
                }
                Change::Added
            }
        };
        out.put(change, below, || element.clone());
    }
}

/// The items of a list by their element; an element that is there twice has several. Lists may be as long as a request:
/// nothing here compares each item with each other one.
#[derive(Default)]
struct ItemIndex<'v> {
    /// In the order of the list, each once.
    elements: Vec<Element>,
    items: BTreeMap<Element, Vec<&'v Value>>,
}

impl<'v> ItemIndex<'v> {
    fn of(item: TypeRef<'_>, list: &ListType, values: Option<&'v Vec<Value>>) -> Self {
        let mut index = Self::default();
        for value in values.into_iter().flatten() {
            let Ok(element) = item_element(item, list, value) else { continue };
            if !index.items.contains_key(&element) {
                index.elements.push(element.clone());
            }
            index.items.entry(element).or_default().push(value);
        }
        index
    }

    fn get(&self, element: &Element) -> &[&'v Value] {
        self.items.get(element).map_or(&[], Vec::as_slice)
    }
}

/// Every field an object sets.
pub(crate) fn to_field_set(of: TypeRef<'_>, value: &Value) -> FieldSet {
    let mut out = FieldSet::new();
    let mut path = Path::new();
    collect(of, value, &mut path, &mut out);
    out
}

fn collect(of: TypeRef<'_>, value: &Value, path: &mut Path, out: &mut FieldSet) {
    match (shape(of, value), value) {
        (Shape::Leaf, _) => out.insert(path),
        (Shape::Object(shape), Value::Object(map)) => {
            for (key, value) in map {
                let Some(member) = shape.member(key) else { continue };
                path.push(Element::Field(key.clone()));
                collect(member, value, path, out);
                let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                if empty || !shape.declares(key) {
                    out.insert(path);
                }
                path.pop();
            }
        }
        (Shape::List { item, list }, Value::Array(items)) => {
            let elements: Vec<Option<Element>> =
                items.iter().map(|value| item_element(item, list, value).ok()).collect();
            let mut counts: BTreeMap<&Element, usize> = BTreeMap::new();
            for element in elements.iter().flatten() {
                *counts.entry(element).or_default() += 1;
            }
            for (value, element) in items.iter().zip(&elements) {
                let Some(element) = element else { continue };
                let twice = counts.get(element).is_some_and(|count| *count > 1);
                path.push(element.clone());
                if !twice {
                    collect(item, value, path, out);
                }
                out.insert(path);
                path.pop();
            }
        }
        _ => {}
    }
}

/// Puts `config` over `live`.
pub(crate) fn merge(of: TypeRef<'_>, live: &Value, config: &Value) -> Result<Value, MergeError> {
    let mut path = Path::new();
    Ok(merge_at(of, Some(live), Some(config), &mut path)?.unwrap_or(Value::Object(Map::new())))
}

fn merge_at(
    of: TypeRef<'_>,
    live: Option<&Value>,
    config: Option<&Value>,
    path: &mut Path,
) -> Result<Option<Value>, MergeError> {
    let sample = match (live, config) {
        (None, None) => return Ok(None),
        (Some(value), None) | (None, Some(value)) => value,
        (Some(live), Some(config)) => {
            if config.is_null() {
                live
            } else {
                config
            }
        }
    };
    let keep = || config.or(live).cloned();
    let mixed = matches!((live, config), (Some(l), Some(c)) if !same_shape(of, l, c));
    let shape = shape(of, sample);
    if mixed || matches!(shape, Shape::Leaf) || (is_empty(live) && is_empty(config)) {
        return Ok(keep());
    }
    match shape {
        Shape::Leaf => Ok(keep()),
        Shape::Object(shape) => {
            let (live, config) = (live.and_then(Value::as_object), config.and_then(Value::as_object));
            let mut out = Map::new();
            for key in zip_keys(live, config) {
                let Some(member) = shape.member(key) else { continue };
                path.push(Element::Field(key.clone()));
                let merged =
                    merge_at(member, live.and_then(|m| m.get(key)), config.and_then(|m| m.get(key)), path)?;
                path.pop();
                if let Some(value) = merged {
                    out.insert(key.clone(), value);
                }
            }
            Ok((!out.is_empty()).then_some(Value::Object(out)))
        }
        Shape::List { item, list } => {
            let (live, config) = (live.and_then(Value::as_array), config.and_then(Value::as_array));
            merge_lists(item, list, live, config, path)
        }
    }
}

/// Merges two lists so that the order of both is kept as far as possible, the config's first.
fn merge_lists(
    item: TypeRef<'_>,
    list: &ListType,
    live: Option<&Vec<Value>>,
    config: Option<&Vec<Value>>,
    path: &mut Path,
) -> Result<Option<Value>, MergeError> {
    let empty = Vec::new();
    let (live, config) = (live.unwrap_or(&empty), config.unwrap_or(&empty));
    let elements = |values: &[Value]| -> Result<Vec<Element>, MergeError> {
        values
            .iter()
            .enumerate()
            .map(|(index, v)| {
                item_element(item, list, v).map_err(|source| MergeError::Element { index, source })
            })
            .collect()
    };
    let (left, right) = (elements(live)?, elements(config)?);
    let mut in_right = BTreeSet::new();
    for element in &right {
        if !in_right.insert(element) {
            return Err(MergeError::Duplicate(element.clone()));
        }
    }
    // Where each live element is; none if it is there twice.
    let mut in_left: BTreeMap<&Element, Option<usize>> = BTreeMap::new();
    for (at, element) in left.iter().enumerate() {
        in_left.entry(element).and_modify(|place| *place = None).or_insert(Some(at));
    }
    let mut shared = right.iter().filter(|e| in_left.contains_key(e));
    let mut next_shared = shared.next();
    let mut merged: BTreeSet<&Element> = BTreeSet::new();
    let mut out = Vec::with_capacity(left.len().max(right.len()));
    let mut emit = |element: &Element, l: Option<&Value>, r: Option<&Value>| -> Result<(), MergeError> {
        path.push(element.clone());
        let value = merge_at(item, l, r, path)?;
        path.pop();
        out.extend(value);
        Ok(())
    };
    // A live item that is there twice cannot be merged with; upstream takes it as null.
    let null = Value::Null;
    let live_of = |element: &Element| -> Option<&Value> {
        in_left.get(element)?.map_or(Some(&null), |at| live.get(at))
    };
    let (mut l, mut r) = (0, 0);
    while l < left.len() || r < right.len() {
        if l < left.len() && r < right.len() {
            if left[l] == right[r] {
                merged.insert(&right[r]);
                emit(&right[r], live_of(&right[r]), config.get(r))?;
                l += 1;
                r += 1;
                next_shared = shared.next();
                continue;
            }
            if in_right.contains(&left[l]) && next_shared.is_some_and(|next| *next != left[l]) {
                l += 1;
                continue;
            }
        }
        if l < left.len() {
            if !in_right.contains(&left[l]) {
                emit(&left[l], live.get(l), None)?;
                l += 1;
                continue;
            } else if merged.contains(&left[l]) {
                l += 1;
            }
        }
        if r < right.len() {
            merged.insert(&right[r]);
            emit(&right[r], live_of(&right[r]), config.get(r))?;
            if next_shared == Some(&right[r]) {
                next_shared = shared.next();
            }
            r += 1;
        }
    }
    Ok((!out.is_empty()).then_some(Value::Array(out)))
}

/// The first field of a value that is applied as a whole although it is a list, a map or a structure.
pub(crate) fn atomic_field(of: TypeRef<'_>, value: &Value) -> Option<String> {
    match (shape(of, value), value) {
        (Shape::Leaf, Value::Array(_) | Value::Object(_)) => Some(String::new()),
        (Shape::Object(shape), Value::Object(map)) => map.iter().find_map(|(key, value)| {
            let below = atomic_field(shape.member(key)?, value)?;
            Some(format!(".{key}{below}"))
        }),
        (Shape::List { item, .. }, Value::Array(items)) => {
            items.iter().find_map(|value| atomic_field(item, value).map(|below| format!("[]{below}")))
        }
        _ => None,
    }
}

/// Takes the paths in `remove` out of a value.
pub(crate) fn remove_items(of: TypeRef<'_>, value: &Value, remove: &FieldSet) -> Value {
    match (shape(of, value), value) {
        (Shape::Leaf, value) => match value {
            // A cut inside an atomic list or map: nothing is left of it.
            Value::Array(_) | Value::Object(_) => Value::Null,
            scalar => scalar.clone(),
        },
        (Shape::Object(shape), Value::Object(map)) => {
            let mut out = Map::new();
            for (key, value) in map {
                let element = Element::Field(key.clone());
                if remove.member(&element) {
                    continue;
                }
                let kept = match (remove.below(&element), shape.member(key)) {
                    (Some(below), Some(member)) => remove_items(member, value, below),
                    _ => value.clone(),
                };
                out.insert(key.clone(), kept);
            }
            if out.is_empty() { Value::Null } else { Value::Object(out) }
        }
        (Shape::List { item, list }, Value::Array(items)) => {
            let mut out = Vec::with_capacity(items.len());
            for value in items {
                let Ok(element) = item_element(item, list, value) else {
                    out.push(value.clone());
                    continue;
                };
                if remove.member(&element) {
                    continue;
                }
                out.push(match remove.below(&element) {
                    // An item stays until it is removed itself: without its fields it may still be identified by the
                    // defaults of its keys, and a null has no identity.
                    Some(below) if value.is_object() => match remove_items(item, value, below) {
                        Value::Null => Value::Object(Map::new()),
                        kept => kept,
                    },
                    Some(below) => remove_items(item, value, below),
                    None => value.clone(),
                });
            }
            if out.is_empty() { Value::Null } else { Value::Array(out) }
        }
        _ => Value::Null,
    }
}
