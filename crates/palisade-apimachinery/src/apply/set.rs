//! Sets of field paths, and their wire form `FieldsV1`.
//!
//! Implements: `sigs.k8s.io/structured-merge-diff/fieldpath`. `f:name` is a field, `k:{…}` an item of a list with keys,
//! `v:…` an item of a set, `i:n` an item by position, `.` the parent itself.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Write as _;

use palisade_base::go;
use serde_json::{Map, Value};

use crate::schema::{TypeKind, TypeRef};

/// One step of a path.
#[derive(Debug, Clone)]
pub enum Element {
    /// A field of a struct or a key of a map.
    Field(String),
    /// An item of a list with keys; sorted by key name.
    Key(Vec<(String, Value)>),
    /// An item of a set.
    Value(Value),
    /// An item by position.
    Index(i64),
}

impl Element {
    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }

    /// `f:name`, `k:{"name":"c"}`, `v:"x"`, `i:0`.
    #[must_use]
    pub fn encode(&self) -> String {
        match self {
            Self::Field(name) => ["f:", name].concat(),
            Self::Key(fields) => {
                let mut out = String::from("k:{");
                for (i, (name, value)) in fields.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    go::json_string(&mut out, name);
                    out.push(':');
                    out.push_str(&go::json(value));
                }
                out.push('}');
                out
            }
            Self::Value(value) => format!("v:{}", go::json(value)),
            Self::Index(at) => format!("i:{at}"),
        }
    }

    /// Reads the wire form.
    #[must_use]
    pub fn decode(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        match kind {
            "f" => Some(Self::Field(rest.to_owned())),
            "k" => {
                let fields: Map<String, Value> = serde_json::from_str(rest).ok()?;
                Some(Self::Key(fields.into_iter().collect()))
            }
            "v" => serde_json::from_str(rest).ok().map(Self::Value),
            "i" => rest.parse().ok().map(Self::Index),
            _ => None,
        }
    }
}

impl std::fmt::Display for Element {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                f.write_char('[')?;
                for (i, (name, value)) in fields.iter().enumerate() {
                    let comma = if i > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={}", scalar(value))?;
                }
                f.write_char(']')
            }
            Self::Value(value) => write!(f, "[={}]", scalar(value)),
            Self::Index(at) => write!(f, "[{at}]"),
        }
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => go::quote(text),
        Value::Null => "null".into(),
        other => other.to_string(),
    }
}

impl PartialEq for Element {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Element {}
impl PartialOrd for Element {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Element {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => {
                for ((an, av), (bn, bv)) in a.iter().zip(b) {
                    let order = an.cmp(bn).then_with(|| compare_values(av, bv));
                    if order != Ordering::Equal {
                        return order;
                    }
                }
                a.len().cmp(&b.len())
            }
            (Self::Value(a), Self::Value(b)) => compare_values(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

/// Whether two values are equal, numbers by their value: `80` and `80.0` are one port, `0` and `-0` are too.
pub(super) fn same_value(a: &Value, b: &Value) -> bool {
    a == b || compare_values(a, b) == Ordering::Equal
}

/// A total order of JSON values: numbers, texts, booleans, lists, objects, null.
fn compare_values(a: &Value, b: &Value) -> Ordering {
    fn rank(value: &Value) -> u8 {
        match value {
            Value::Number(_) => 0,
            Value::String(_) => 1,
            Value::Bool(_) => 2,
            Value::Array(_) => 3,
            Value::Object(_) => 4,
            Value::Null => 5,
        }
    }
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            if let (Some(a), Some(b)) = (a.as_i64(), b.as_i64()) {
                a.cmp(&b)
            } else {
                let (a, b) = (a.as_f64().unwrap_or(0.0), b.as_f64().unwrap_or(0.0));
                a.partial_cmp(&b).unwrap_or(Ordering::Equal)
            }
        }
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            for (a, b) in a.iter().zip(b) {
                let order = compare_values(a, b);
                if order != Ordering::Equal {
                    return order;
                }
            }
            a.len().cmp(&b.len())
        }
        (Value::Object(a), Value::Object(b)) => {
            for ((ak, av), (bk, bv)) in a.iter().zip(b) {
                let order = ak.cmp(bk).then_with(|| compare_values(av, bv));
                if order != Ordering::Equal {
                    return order;
                }
            }
            a.len().cmp(&b.len())
        }
        _ => rank(a).cmp(&rank(b)),
    }
}

/// A path from the root of an object.
pub(crate) type Path = Vec<Element>;

/// `.spec.containers[name="c"].image`.
#[must_use]
pub fn path_text(path: &[Element]) -> String {
    path.iter().map(Element::to_string).collect()
}

/// A set of paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSet {
    nodes: BTreeMap<Element, Node>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Node {
    /// The path that ends here is in the set.
    member: bool,
    /// Paths that go on from here.
    children: FieldSet,
}

impl FieldSet {
    /// Nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { nodes: BTreeMap::new() }
    }

    /// Whether there is no path in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Adds a path; the empty path is no path.
    pub fn insert(&mut self, path: &[Element]) {
        match path {
            [] => {}
            [last] => self.nodes.entry(last.clone()).or_default().member = true,
            [first, rest @ ..] => match self.nodes.get_mut(first) {
                Some(node) => node.children.insert(rest),
                None => self.nodes.entry(first.clone()).or_default().children.insert(rest),
            },
        }
    }

    /// A set of struct fields: `["metadata", "name"]`.
    #[must_use]
    pub fn of_fields(paths: &[&[&str]]) -> Self {
        let mut set = Self::new();
        for path in paths {
            let path: Path = path.iter().map(|name| Element::Field((*name).to_owned())).collect();
            set.insert(&path);
        }
        set
    }

    /// Whether the path is in the set.
    #[must_use]
    pub fn has(&self, path: &[Element]) -> bool {
        match path {
            [] => false,
            [last] => self.nodes.get(last).is_some_and(|node| node.member),
            [first, rest @ ..] => self.nodes.get(first).is_some_and(|node| node.children.has(rest)),
        }
    }

    pub(crate) fn member(&self, element: &Element) -> bool {
        self.nodes.get(element).is_some_and(|node| node.member)
    }

    /// The paths below `element`.
    pub(crate) fn below(&self, element: &Element) -> Option<&Self> {
        self.nodes.get(element).map(|node| &node.children).filter(|set| !set.is_empty())
    }

    fn with_node(mut self, element: Element, member: bool, children: Self) -> Self {
        if member || !children.is_empty() {
            self.nodes.insert(element, Node { member, children });
        }
        self
    }

    /// Adds everything of another set.
    pub fn add(&mut self, other: Self) {
        if self.nodes.is_empty() {
            self.nodes = other.nodes;
            return;
        }
        for (element, theirs) in other.nodes {
            match self.nodes.entry(element) {
                Entry::Vacant(place) => {
                    place.insert(theirs);
                }
                Entry::Occupied(mut place) => {
                    let ours = place.get_mut();
                    ours.member |= theirs.member;
                    ours.children.add(theirs.children);
                }
            }
        }
    }

    /// Takes everything out that is in `other`; what is below a path in `other` stays.
    pub fn subtract(&mut self, other: &Self) {
        if self.nodes.is_empty() {
            return;
        }
        for (element, theirs) in &other.nodes {
            let Some(ours) = self.nodes.get_mut(element) else { continue };
            ours.member &= !theirs.member;
            ours.children.subtract(&theirs.children);
            if !ours.member && ours.children.is_empty() {
                self.nodes.remove(element);
            }
        }
    }

    /// Takes a path of struct fields out, with everything below it.
    pub(super) fn remove_below(&mut self, path: &[&str]) {
        let Some((first, rest)) = path.split_first() else { return };
        let element = Element::Field((*first).to_owned());
        if rest.is_empty() {
            self.nodes.remove(&element);
        } else if let Some(node) = self.nodes.get_mut(&element) {
            node.children.remove_below(rest);
            if !node.member && node.children.is_empty() {
                self.nodes.remove(&element);
            }
        }
    }

    /// Puts a subtree in; an empty one leaves nothing behind.
    pub(super) fn put(&mut self, element: impl FnOnce() -> Element, member: bool, children: Self) {
        if member || !children.is_empty() {
            self.nodes.insert(element(), Node { member, children });
        }
    }

    /// Everything in either.
    #[must_use]
    pub fn union(mut self, other: &Self) -> Self {
        for (element, theirs) in &other.nodes {
            match self.nodes.get_mut(element) {
                Some(ours) => {
                    ours.member |= theirs.member;
                    ours.children = std::mem::take(&mut ours.children).union(&theirs.children);
                }
                None => {
                    self.nodes.insert(element.clone(), theirs.clone());
                }
            }
        }
        self
    }

    /// What is in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.nodes.iter().fold(Self::new(), |out, (element, ours)| match other.nodes.get(element) {
            None => out,
            Some(theirs) => {
                let children = ours.children.intersection(&theirs.children);
                out.with_node(element.clone(), ours.member && theirs.member, children)
            }
        })
    }

    /// What is in `self` and not in `other`; a path in `other` does not take its children along.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.nodes.iter().fold(Self::new(), |out, (element, ours)| match other.nodes.get(element) {
            None => out.with_node(element.clone(), ours.member, ours.children.clone()),
            Some(theirs) => {
                let children = ours.children.difference(&theirs.children);
                out.with_node(element.clone(), ours.member && !theirs.member, children)
            }
        })
    }

    /// The same, but a path in `other` takes everything below it along.
    #[must_use]
    pub fn recursive_difference(&self, other: &Self) -> Self {
        self.nodes.iter().fold(Self::new(), |out, (element, ours)| match other.nodes.get(element) {
            None => out.with_node(element.clone(), ours.member, ours.children.clone()),
            Some(theirs) if theirs.member => out,
            Some(theirs) => {
                let children = ours.children.recursive_difference(&theirs.children);
                out.with_node(element.clone(), ours.member, children)
            }
        })
    }

    /// Makes every struct field that has something below it a member itself.
    #[must_use]
    pub(crate) fn with_named_fields(&self, of: Option<TypeRef<'_>>) -> Self {
        let mut out = Self::new();
        for (element, node) in &self.nodes {
            let mut member = node.member;
            let inner = of.and_then(|of| child_type(of, element));
            if !node.children.is_empty()
                && let (Element::Field(name), Some(of)) = (element, of)
                && of.as_struct().is_some_and(|s| s.field(name).is_some())
            {
                member = true;
            }
            out = out.with_node(element.clone(), member, node.children.with_named_fields(inner));
        }
        out
    }

    /// Calls `visit` with every path: the members of a level first, then what is below.
    pub fn for_each(&self, visit: &mut impl FnMut(&[Element])) {
        let mut path = Vec::new();
        self.visit_below(&mut path, visit);
    }

    fn visit_below(&self, path: &mut Path, visit: &mut impl FnMut(&[Element])) {
        for (element, _) in self.nodes.iter().filter(|(_, node)| node.member) {
            path.push(element.clone());
            visit(path);
            path.pop();
        }
        for (element, node) in self.nodes.iter().filter(|(_, node)| !node.children.is_empty()) {
            path.push(element.clone());
            node.children.visit_below(path, visit);
            path.pop();
        }
    }

    /// The wire form.
    #[must_use]
    pub fn encode(&self) -> Value {
        let mut out = Map::new();
        for (element, node) in &self.nodes {
            let mut inner = match node.children.encode() {
                Value::Object(inner) => inner,
                _ => Map::new(),
            };
            if node.member && !inner.is_empty() {
                inner.insert(".".into(), Value::Object(Map::new()));
            }
            out.insert(element.encode(), Value::Object(inner));
        }
        Value::Object(out)
    }

    /// Reads the wire form.
    #[must_use]
    pub fn decode(value: &Value) -> Option<Self> {
        let mut out = Self::new();
        for (key, inner) in value.as_object()? {
            if key == "." {
                continue;
            }
            let element = Element::decode(key)?;
            let inner_map = inner.as_object()?;
            let member = inner_map.is_empty() || inner_map.contains_key(".");
            let children = Self::decode(inner)?;
            out = out.with_node(element, member, children);
        }
        Some(out)
    }
}

/// The type of what an element leads to.
pub(crate) fn child_type<'a>(of: TypeRef<'a>, element: &Element) -> Option<TypeRef<'a>> {
    match (&of.ty.kind, element) {
        (TypeKind::Struct { .. } | TypeKind::Map { .. }, Element::Field(name)) => of.member(name),
        (TypeKind::List { .. }, _) => of.item(),
        (TypeKind::Any, _) => Some(of),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(value: &Value) -> FieldSet {
        FieldSet::decode(value).unwrap()
    }

    #[test]
    fn the_wire_form_survives_a_round_trip() {
        let wire = json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}, "f:finalizers": {"v:\"x\"": {}}},
                          "f:spec": {"f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}}}}});
        assert_eq!(set(&wire).encode(), wire);
    }

    #[test]
    fn differences_leave_or_take_children() {
        let all = set(&json!({"f:a": {".": {}, "f:b": {}}, "f:c": {}}));
        let a = set(&json!({"f:a": {}}));
        assert_eq!(all.difference(&a).encode(), json!({"f:a": {"f:b": {}}, "f:c": {}}));
        assert_eq!(all.recursive_difference(&a).encode(), json!({"f:c": {}}));
        assert_eq!(all.intersection(&a).encode(), json!({"f:a": {}}));
        assert_eq!(a.clone().union(&all), all);
    }

    #[test]
    fn paths_are_printed_as_upstream_does() {
        let mut out = Vec::new();
        set(&json!({"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {"f:image": {}}}}, "f:x": {"v:\"y\"": {}}}))
            .for_each(&mut |path| out.push(path_text(path)));
        assert_eq!(out, [r#".spec.containers[name="c"].image"#, r#".x[="y"]"#]);
    }
}
