//! Expressions with names, which other expressions use as `variables.NAME`.
//!
//! Implements: Validating Admission Policy, "Variable composition". Each is evaluated when it is first used, and once; what it
//! costs is charged to the budget of the whole policy.
//! <https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/#variable-composition>

use std::cell::{Cell, RefCell};

use super::Expression;
use super::budget::{Budget, Fault};
use super::eval;
use super::value::Val;

/// The variable that holds them.
pub(super) const VARIABLES: &str = "variables";
/// Variables inside variables: each level needs stack.
const MAX_NESTING: usize = 64;

/// The variables of one evaluation, and what it may still cost.
#[derive(Debug)]
pub struct Composition<'c> {
    expressions: &'c [(String, Expression)],
    inputs: &'c [(&'c str, Val)],
    results: RefCell<Vec<Option<Result<Val, Fault>>>>,
    left: Cell<u64>,
    nesting: Cell<usize>,
}

impl<'c> Composition<'c> {
    /// `inputs` are what every expression may name besides `variables`; `limit` is what all together may cost.
    #[must_use]
    pub fn new(expressions: &'c [(String, Expression)], inputs: &'c [(&'c str, Val)], limit: u64) -> Self {
        let results = RefCell::new(vec![None; expressions.len()]);
        Self { expressions, inputs, results, left: Cell::new(limit), nesting: Cell::new(0) }
    }

    /// What is left of the budget.
    #[must_use]
    pub const fn left(&self) -> u64 {
        self.left.get()
    }

    /// Runs an expression.
    pub fn evaluate(&self, expression: &Expression) -> Result<Val, Fault> {
        let mut budget = Budget::new(self.left.get());
        let outcome = eval::run(expression.tree(), self.inputs, Some(self), &mut budget);
        self.left.set(self.left.get().saturating_sub(budget.spent()));
        outcome
    }

    pub(super) fn defines(&self, name: &str) -> bool {
        self.expressions.iter().any(|(known, _)| known == name)
    }

    pub(super) fn value(&self, name: &str) -> Result<Val, Fault> {
        // The last of a name wins; validation rejects names that occur twice.
        let found = self.expressions.iter().enumerate().rev().find(|(_, (known, _))| known == name);
        let Some((at, (_, expression))) = found else {
            return Fault::error(format!("no such key: {name}"));
        };
        if let Some(Some(known)) = self.results.borrow().get(at) {
            return known.clone();
        }
        if self.nesting.get() >= MAX_NESTING {
            return Fault::error("variables are nested too deeply");
        }
        self.nesting.set(self.nesting.get() + 1);
        let outcome = self.evaluate(expression).map_err(|fault| match fault {
            Fault::Error(why) => {
                Fault::Error(format!("composited variable \"{name}\" fails to evaluate: {why}"))
            }
            Fault::Exhausted => Fault::Exhausted,
        });
        self.nesting.set(self.nesting.get() - 1);
        if let Some(place) = self.results.borrow_mut().get_mut(at) {
            *place = Some(outcome.clone());
        }
        outcome
    }
}
