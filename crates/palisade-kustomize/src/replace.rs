//! Replacements: a field of one object, or a value, written into fields of others.
//!
//! Implements: `replacements` of a kustomization,
//! <https://kubectl.docs.kubernetes.io/references/kustomize/kustomization/replacements/>

use serde_json::Value as Json;

use crate::{
    budget::Budget,
    error::ProblemKind,
    object::{Id, Object},
    select::Selector,
    tree::{Node, Value},
};

fn failed(what: impl Into<String>) -> ProblemKind {
    ProblemKind::Replacement(what.into())
}

/// Makes a replacement.
pub(crate) fn apply(
    objects: &mut [Object],
    replacement: &Node,
    budget: &mut Budget,
) -> Result<(), ProblemKind> {
    let value = match (replacement.get("source"), replacement.get("sourceValue")) {
        (Some(source), None) => source_value(objects, source)?,
        (None, Some(value)) => value.clone(),
        _ => return Err(failed("it needs one of source and sourceValue")),
    };
    let targets = replacement.get("targets").map(Node::items).unwrap_or_default();
    if targets.is_empty() {
        return Err(failed("it has no targets"));
    }
    for target in targets {
        known_fields(target, &["select", "reject", "fieldPaths", "options"])?;
        let Some(select) = target.get("select").filter(|select| !select.is_null()) else {
            return Err(failed("a target has no select"));
        };
        let select = Selector::read(select)?;
        let rejects = target.get("reject").map(Node::items).unwrap_or_default();
        let rejects = rejects.iter().map(Selector::read).collect::<Result<Vec<_>, _>>()?;
        let default = Node::made(Json::from("metadata.name"), None);
        let paths = target.get("fieldPaths").map_or(std::slice::from_ref(&default), Node::items);
        let options = target.get("options");
        if let Some(options) = options {
            known_fields(options, &["create", "delimiter", "index", "encoding"])?;
        }
        for object in objects.iter_mut() {
            if !is_target(object, &select, &rejects) {
                continue;
            }
            for path in paths {
                let text = path.as_str().ok_or(ProblemKind::WrongType("fieldPaths"))?;
                let create = options.and_then(|options| options.get("create")).is_some_and(Node::is_true);
                if text == "metadata.name" || text == "metadata.namespace" {
                    object.remember();
                }
                let parts = parts(text);
                let count = set(&mut object.node, &parts, &value, create, options, budget)?;
                if count == 0 {
                    return Err(failed(format!("{} has no `{text}`", object.id().title())));
                }
            }
        }
    }
    Ok(())
}

fn known_fields(node: &Node, known: &[&str]) -> Result<(), ProblemKind> {
    match node.entries().iter().find(|(key, _)| !known.contains(&key.as_str())) {
        Some((key, _)) => Err(ProblemKind::UnknownField(key.clone())),
        None => Ok(()),
    }
}

/// Whether an object is written to. Selectors of targets are expressions, as those of patches, and see the names that it had before;
/// only those have a namespace where none is written.
fn is_target(object: &Object, select: &Selector, rejects: &[Selector]) -> bool {
    let (now, ids) = (object.id(), object.ids());
    let named = |selector: &Selector| {
        selector.matches_id(&now, &now.namespace)
            || ids.iter().filter(|id| **id != now).any(|id| selector.matches_id(id, id.effective_namespace()))
    };
    let is_rejected = |reject: &Selector| {
        (!reject.is_for_any_id() && named(reject)) || (reject.has_labels() && reject.matches_labels(object))
    };
    named(select) && select.matches_labels(object) && !rejects.iter().any(is_rejected)
}

/// Whether a selector without expressions means an object; what it does not name, it does not ask for.
fn selects(select: &Node, id: &Id) -> bool {
    let is = |field: &str, text: &str| {
        let wanted = select.text(&[field]);
        wanted.is_empty() || wanted == text
    };
    is("group", id.group())
        && is("version", id.version())
        && is("kind", &id.kind)
        && is("name", &id.name)
        && (is("namespace", &id.namespace) || is("namespace", id.effective_namespace()))
}

fn source_value(objects: &[Object], source: &Node) -> Result<Node, ProblemKind> {
    let mut found = objects.iter().filter(|object| object.ids().iter().any(|id| selects(source, id)));
    let (Some(object), None) = (found.next(), found.next()) else {
        return Err(failed("its source is not exactly one object"));
    };
    let path = source.get("fieldPath").and_then(Node::as_str).unwrap_or("metadata.name");
    let mut node = &object.node;
    for part in &parts(path) {
        node = step(node, part).ok_or_else(|| failed(format!("{} has no `{path}`", object.id().title())))?;
    }
    let Some(options) = source.get("options") else { return Ok(node.clone()) };
    let (delimiter, index) = delimiter(options);
    if delimiter.is_empty() {
        return Ok(node.clone());
    }
    let text = node.as_str().ok_or_else(|| failed("a delimiter needs a string"))?;
    let index = usize::try_from(index).map_err(|_| failed("the index of the source is negative"))?;
    let piece = text.split(delimiter).nth(index).ok_or_else(|| failed("the index is out of range"))?;
    Ok(Node { value: Value::Scalar(piece.into()), ..node.clone() })
}

fn delimiter(options: &Node) -> (&str, i64) {
    let index = options.get("index").and_then(|index| index.to_json().as_i64()).unwrap_or(0);
    (options.text(&["delimiter"]), index)
}

/// The parts of a path: separated by dots, which brackets and `\` protect.
fn parts(path: &str) -> Vec<String> {
    let (mut parts, mut part, mut depth) = (Vec::new(), String::new(), 0_u32);
    let mut letters = path.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => part.extend(letters.next()),
            '.' if depth == 0 => parts.push(std::mem::take(&mut part)),
            _ => {
                depth = match letter {
                    '[' => depth + 1,
                    ']' => depth.saturating_sub(1),
                    _ => depth,
                };
                part.push(letter);
            }
        }
    }
    parts.push(part);
    parts.retain(|part| !part.is_empty());
    parts
}

/// `[name=web]` as a key with its value, `[app.kubernetes.io/name]` as a key.
fn bracket(part: &str) -> Option<(&str, Option<&str>)> {
    let inner = part.strip_prefix('[')?.strip_suffix(']')?;
    Some(match inner.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (inner, None),
    })
}

fn is_item(item: &Node, key: &str, value: &str) -> bool {
    let found = if key.is_empty() { Some(item) } else { item.get(key) };
    let text = found.map(Node::to_json).map(|found| match found {
        Json::String(text) => text,
        other => other.to_string(),
    });
    text.is_some_and(|text| text == value)
}

fn step<'n>(node: &'n Node, part: &str) -> Option<&'n Node> {
    match (&node.value, bracket(part)) {
        (Value::List(items), Some((key, Some(value)))) => items.iter().find(|item| is_item(item, key, value)),
        (Value::List(items), None) => items.get(part.parse::<usize>().ok()?),
        (Value::Map(_), Some((key, None))) => node.get(key),
        (Value::Map(_), None) => node.get(part),
        _ => None,
    }
}

/// Writes the value; how often.
fn set(
    node: &mut Node,
    parts: &[String],
    value: &Node,
    create: bool,
    options: Option<&Node>,
    budget: &mut Budget,
) -> Result<usize, ProblemKind> {
    let Some((part, rest)) = parts.split_first() else {
        write(node, value, options, budget)?;
        return Ok(1);
    };
    let brackets = bracket(part);
    if let Value::List(items) = &mut node.value {
        let mut count = 0;
        let length = items.len();
        let index = part.parse::<usize>().ok();
        for (at, item) in items.iter_mut().enumerate() {
            let is_it = match brackets {
                Some((key, Some(value))) => is_item(item, key, value),
                Some(_) => false,
                None => part == "*" || index == Some(at) || (part == "-" && at + 1 == length),
            };
            if is_it {
                count += set(item, rest, value, create, options, budget)?;
            }
        }
        if count == 0
            && create
            && let Some((key, Some(wanted))) = brackets
        {
            let mut item = Node::map(value.origin);
            item.set(key, Node::made(wanted.into(), value.origin));
            count += set(&mut item, rest, value, create, options, budget)?;
            items.push(item);
        }
        return Ok(count);
    }
    if matches!(node.value, Value::Scalar(_)) && !node.is_null() {
        return Ok(0);
    }
    if part == "*" {
        let Value::Map(entries) = &mut node.value else { return Ok(0) };
        let mut count = 0;
        for (_, entry) in entries {
            count += set(entry, rest, value, create, options, budget)?;
        }
        return Ok(count);
    }
    let key = match brackets {
        Some((_, Some(_))) => return Ok(0),
        Some((key, None)) => key,
        None => part.as_str(),
    };
    if node.get(key).is_none() {
        if !create {
            return Ok(0);
        }
        let is_list = rest.first().and_then(|part| bracket(part)).is_some_and(|(_, value)| value.is_some());
        let empty = if is_list { Value::List(Vec::new()) } else { Value::Map(Vec::new()) };
        let made = Node { value: empty, origin: value.origin, key: value.origin };
        if node.is_null() {
            node.value = Value::Map(Vec::new());
        }
        node.set(key, made);
    }
    match node.get_mut(key) {
        Some(next) => set(next, rest, value, create, options, budget),
        None => Ok(0),
    }
}

fn write(
    node: &mut Node,
    value: &Node,
    options: Option<&Node>,
    budget: &mut Budget,
) -> Result<(), ProblemKind> {
    budget.take_copies(value, 1)?;
    let (delimiter, index) = options.map_or(("", 0), delimiter);
    if let Some(encoding) = options.map(|options| options.text(&["encoding"])).filter(|text| !text.is_empty())
    {
        return Err(failed(format!("the encoding {encoding:?} is not supported")));
    }
    if delimiter.is_empty() {
        let key = node.key;
        *node = value.clone();
        node.key = key.or(value.key);
        return Ok(());
    }
    let old = node.as_str().ok_or_else(|| failed("a delimiter needs a string"))?;
    budget.take(old.len())?;
    let new = match value.to_json() {
        Json::String(text) => text,
        other => other.to_string(),
    };
    let mut pieces: Vec<&str> = old.split(delimiter).collect();
    match usize::try_from(index) {
        Err(_) => pieces.insert(0, &new),
        Ok(index) if index >= pieces.len() => pieces.push(&new),
        Ok(index) => {
            if let Some(piece) = pieces.get_mut(index) {
                *piece = &new;
            }
        }
    }
    let joined = pieces.join(delimiter);
    node.value = Value::Scalar(joined.into());
    node.origin = value.origin;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_in_itself_has_an_end() {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "annotations": {"a": "bbbb"}}});
        let mut objects = [Object::new(Node::made(map, None))];
        let replacement = json!({"source": {"kind": "ConfigMap", "fieldPath": "metadata.annotations.a"}, "targets": [{
            "select": {"kind": "ConfigMap"}, "fieldPaths": ["metadata.annotations.a"], "options": {"delimiter": "b", "index": 99}}]});
        let replacement = Node::made(replacement, None);
        let mut budget = Budget::of(1 << 20);
        let refused = (0..40).find_map(|_| apply(&mut objects, &replacement, &mut budget).err());
        assert!(matches!(refused, Some(ProblemKind::TooLarge)), "{refused:?}");
    }
}
