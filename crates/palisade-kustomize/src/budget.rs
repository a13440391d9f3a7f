//! What a build may make: a line that doubles a value, or one value for every object, makes more than any machine has.

use crate::{
    error::ProblemKind,
    tree::{Node, Value},
};

/// The most that a build makes in all, in bytes of memory.
const MOST: usize = 512 << 20;
/// About what a value takes besides its text.
const VALUE: usize = 160;

/// What is left.
#[derive(Debug)]
pub(crate) struct Budget(usize);

impl Budget {
    pub(crate) const fn new() -> Self {
        Self(MOST)
    }

    #[cfg(test)]
    pub(crate) const fn of(bytes: usize) -> Self {
        Self(bytes)
    }

    /// Takes bytes.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<(), ProblemKind> {
        self.0 = self.0.checked_sub(bytes).ok_or(ProblemKind::TooLarge)?;
        Ok(())
    }

    /// Takes what copies of a value need.
    pub(crate) fn take_copies(&mut self, node: &Node, copies: usize) -> Result<(), ProblemKind> {
        self.take(weight(node).saturating_mul(copies))
    }
}

/// About what a value takes in memory.
fn weight(node: &Node) -> usize {
    let inner = match &node.value {
        Value::Scalar(scalar) => scalar.as_str().map_or(0, str::len),
        Value::List(items) => items.iter().map(weight).sum(),
        Value::Map(entries) => entries.iter().map(|(key, value)| key.len() + weight(value)).sum(),
    };
    VALUE + inner
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_weighs_what_is_in_it() {
        let node = |json| Node::made(json, None);
        assert_eq!(weight(&node(json!(1))), VALUE);
        assert_eq!(weight(&node(json!({"abc": ["de", null]}))), 4 * VALUE + 5);
        let mut budget = Budget::of(1000);
        assert!(budget.take_copies(&node(json!("x")), 6).is_ok());
        assert!(budget.take_copies(&node(json!("x")), 1).is_err());
    }
}
