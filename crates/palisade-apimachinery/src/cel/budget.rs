//! What an evaluation may cost.
//!
//! Implements: Common Expression Language in Kubernetes, "Resource constraints". Costs are counted as cel-go counts them;
//! in addition, everything an expression allocates is counted, because a cost does not bound memory.
//! <https://kubernetes.io/docs/reference/using-api/cel/#resource-constraints>

use std::collections::HashMap;

use regex::{Regex, RegexBuilder};
use thiserror::Error;

/// The cost of one call, as `PerCallLimit` of upstream.
pub const PER_CALL: u64 = 1_000_000;
/// The cost of all rules for one object, as `RuntimeCELCostBudget`.
pub const PER_OBJECT: u64 = 10_000_000;
/// The cost of the match conditions of one webhook, as `RuntimeCELCostBudgetMatchConditions`.
pub const MATCH_CONDITIONS: u64 = 2_500_000;
/// Bytes one call may allocate, freed ones included.
const MEMORY: usize = 16 << 20;
/// Bytes a compiled regular expression may have.
const REGEX_SIZE: usize = 1 << 20;
/// What a value needs in a list or map, with a margin.
const VALUE: usize = 64;

/// Why an evaluation has no result, worded as cel-go does.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Fault {
    /// The expression fails on these values.
    #[error("{0}")]
    Error(String),
    /// It costs too much. No operator turns this into a value.
    #[error("operation cancelled: actual cost limit exceeded")]
    Exhausted,
}

impl Fault {
    pub(super) fn error<T>(message: impl Into<String>) -> Result<T, Self> {
        Err(Self::Error(message.into()))
    }

    pub(super) fn overload<T>() -> Result<T, Self> {
        Self::error("no such overload")
    }
}

/// What is left to spend.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    cost: u64,
    memory: usize,
    regexes: HashMap<String, Regex>,
}

impl Budget {
    /// A budget for one call.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self { limit: limit.min(PER_CALL), cost: 0, memory: MEMORY, regexes: HashMap::new() }
    }

    /// What was spent.
    #[must_use]
    pub const fn spent(&self) -> u64 {
        self.cost
    }

    pub(super) const fn charge(&mut self, cost: u64) -> Result<(), Fault> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit { Err(Fault::Exhausted) } else { Ok(()) }
    }

    /// Reading a text costs a tenth of its length.
    pub(super) fn traverse(&mut self, length: usize) -> Result<(), Fault> {
        self.charge(u64::try_from(length.div_ceil(10)).unwrap_or(u64::MAX))
    }

    /// Allocating a text of this length, before it is made.
    pub(super) fn allocate(&mut self, bytes: usize) -> Result<(), Fault> {
        self.traverse(bytes)?;
        self.reserve(bytes)
    }

    /// Allocating a list of this many values, before it is made.
    pub(super) fn allocate_values(&mut self, count: usize) -> Result<(), Fault> {
        self.traverse(count)?;
        self.reserve(count.saturating_mul(VALUE))
    }

    fn reserve(&mut self, bytes: usize) -> Result<(), Fault> {
        self.memory = self.memory.checked_sub(bytes).ok_or(Fault::Exhausted)?;
        Ok(())
    }

    /// A compiled regular expression; searching `text` with it is charged as upstream does.
    pub(super) fn regex(&mut self, pattern: &str, text: usize) -> Result<Regex, Fault> {
        let text_cost = text.saturating_add(1).div_ceil(10);
        let pattern_cost = pattern.len().div_ceil(4).max(1);
        self.charge(u64::try_from(text_cost.saturating_mul(pattern_cost)).unwrap_or(u64::MAX))?;
        if let Some(known) = self.regexes.get(pattern) {
            return Ok(known.clone());
        }
        // The size of a program is bounded, and how many there are by the memory.
        self.reserve(pattern.len().saturating_mul(64).saturating_add(REGEX_SIZE / 4))?;
        let built = RegexBuilder::new(pattern).size_limit(REGEX_SIZE).dfa_size_limit(REGEX_SIZE).build();
        let regex = built.map_err(|_| Fault::Error(format!("error parsing regexp: {pattern}")))?;
        self.regexes.insert(pattern.to_owned(), regex.clone());
        Ok(regex)
    }
}
