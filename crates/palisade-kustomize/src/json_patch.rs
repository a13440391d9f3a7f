//! JSON patches (RFC 6902) on values with origins.

use serde_json::Value as Json;
use thiserror::Error;

use crate::{
    budget::Budget,
    error::ProblemKind,
    tree::{Node, Value},
};

/// Why a JSON patch does not apply.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub enum JsonPatchError {
    /// An operation is malformed.
    #[error("an operation of the patch needs op, path and what op takes")]
    Malformed,
    /// A path leads nowhere.
    #[error("the patch names `{0}`, which is not there")]
    NotFound(String),
    /// A test fails.
    #[error("the test of `{0}` fails")]
    Test(String),
}

/// Applies the operations of a patch in order.
pub(crate) fn apply(object: &mut Node, operations: &Node, budget: &mut Budget) -> Result<(), ProblemKind> {
    budget.take_copies(operations, 1)?;
    let Value::List(operations) = &operations.value else { return Err(JsonPatchError::Malformed.into()) };
    for operation in operations {
        let path = operation.get("path").and_then(Node::as_str).ok_or(JsonPatchError::Malformed)?;
        let from = || operation.get("from").and_then(Node::as_str).ok_or(JsonPatchError::Malformed);
        let value = || operation.get("value").cloned().ok_or(JsonPatchError::Malformed);
        match operation.text(&["op"]) {
            "add" => add(object, path, value()?)?,
            "remove" => drop(take(object, path)?),
            "replace" => {
                let new = value()?;
                let old = find_mut(object, path)?;
                let key = new.key;
                *old = new;
                old.key = key;
            }
            "move" => {
                let taken = take(object, from()?)?;
                add(object, path, taken)?;
            }
            "copy" => {
                let copied = find_mut(object, from()?)?;
                budget.take_copies(copied, 1)?;
                let copied = copied.clone();
                add(object, path, copied)?;
            }
            "test" => {
                let found = find_mut(object, path).map_or(Json::Null, |found| found.to_json());
                if found != value()?.to_json() {
                    return Err(JsonPatchError::Test(path.to_owned()).into());
                }
            }
            _ => return Err(JsonPatchError::Malformed.into()),
        }
    }
    Ok(())
}

fn segments(path: &str) -> Vec<String> {
    path.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~")).collect()
}

fn index(part: &str, length: usize) -> Option<usize> {
    let index: i64 = part.parse().ok()?;
    let length = i64::try_from(length).ok()?;
    usize::try_from(if index < 0 { index + length } else { index }).ok()
}

fn not_found(path: &str) -> JsonPatchError {
    JsonPatchError::NotFound(path.to_owned())
}

fn find_mut<'n>(object: &'n mut Node, path: &str) -> Result<&'n mut Node, JsonPatchError> {
    segments(path).iter().try_fold(object, |node, part| step_mut(node, part)).ok_or_else(|| not_found(path))
}

fn step_mut<'n>(node: &'n mut Node, part: &str) -> Option<&'n mut Node> {
    if matches!(node.value, Value::List(_)) {
        let items = node.items_mut();
        let at = index(part, items.len())?;
        return items.get_mut(at);
    }
    node.get_mut(part)
}

/// The parent of a path, and its last part.
fn parent<'n>(object: &'n mut Node, path: &str) -> Result<(&'n mut Node, String), JsonPatchError> {
    let mut above = segments(path);
    let last = above.pop().ok_or_else(|| not_found(path))?;
    let parent = above.iter().try_fold(object, |node, part| step_mut(node, part));
    Ok((parent.ok_or_else(|| not_found(path))?, last))
}

fn add(object: &mut Node, path: &str, new: Node) -> Result<(), JsonPatchError> {
    let (parent, last) = parent(object, path)?;
    match &mut parent.value {
        Value::List(items) => {
            let at = if last == "-" { Some(items.len()) } else { index(&last, items.len()) };
            let at = at.filter(|at| *at <= items.len()).ok_or_else(|| not_found(path))?;
            items.insert(at, new);
        }
        Value::Map(_) => parent.set(&last, new),
        Value::Scalar(_) => return Err(not_found(path)),
    }
    Ok(())
}

fn take(object: &mut Node, path: &str) -> Result<Node, JsonPatchError> {
    let (parent, last) = parent(object, path)?;
    let taken = match &mut parent.value {
        Value::List(items) => {
            let at = index(&last, items.len()).filter(|at| *at < items.len());
            at.map(|at| items.remove(at))
        }
        Value::Map(_) => parent.remove(&last),
        Value::Scalar(_) => None,
    };
    taken.ok_or_else(|| not_found(path))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn copies_of_copies_have_an_end() {
        let operation = |at: usize| json!({"op": "copy", "from": "/a", "path": format!("/a/x{at}")});
        let patch = |count: usize| Node::made((0..count).map(operation).collect(), None);
        let mut object = Node::made(json!({"a": {}}), None);
        assert!(apply(&mut object, &patch(5), &mut Budget::of(1 << 20)).is_ok());
        let refused = apply(&mut object, &patch(40), &mut Budget::of(1 << 20));
        assert!(matches!(refused, Err(ProblemKind::TooLarge)), "{refused:?}");
    }
}
