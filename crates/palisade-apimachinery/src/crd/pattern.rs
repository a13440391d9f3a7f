//! The patterns of schemas: whether they can be used, and matching.
//!
//! Definitions use few patterns very often, and a compiled one takes much more memory than its text. So each is compiled
//! when the first value is put to it, and equal ones share what was compiled.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use regex::Regex;

/// Compiled patterns kept for others to use; the definitions of a cluster have some dozens.
const MAX_SHARED: usize = 256;
/// Patterns remembered as usable or not.
const MAX_JUDGED: usize = 4096;
/// Longer ones are not remembered.
const MAX_LENGTH: usize = 1024;

/// The `pattern` of a schema.
#[derive(Debug)]
pub(crate) struct Pattern {
    text: Box<str>,
    compiled: OnceLock<Option<Arc<Regex>>>,
}

impl Pattern {
    pub(super) fn new(text: &str) -> Self {
        Self { text: text.into(), compiled: OnceLock::new() }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Whether the value fits. Nothing fits a pattern that cannot be used.
    pub(super) fn matches(&self, value: &str) -> bool {
        self.compiled.get_or_init(|| shared(&self.text)).as_ref().is_some_and(|regex| regex.is_match(value))
    }
}

/// Whether a pattern can be used.
pub(super) fn is_usable(pattern: &str) -> bool {
    static JUDGED: LazyLock<Mutex<HashMap<Box<str>, bool>>> = LazyLock::new(Mutex::default);
    let known = JUDGED.lock().unwrap_or_else(PoisonError::into_inner).get(pattern).copied();
    if let Some(known) = known {
        return known;
    }
    let usable = Regex::new(pattern).is_ok();
    if pattern.len() <= MAX_LENGTH {
        let mut judged = JUDGED.lock().unwrap_or_else(PoisonError::into_inner);
        if judged.len() >= MAX_JUDGED {
            judged.clear();
        }
        judged.insert(pattern.into(), usable);
    }
    usable
}

fn shared(pattern: &str) -> Option<Arc<Regex>> {
    static SHARED: LazyLock<Mutex<HashMap<Box<str>, Arc<Regex>>>> = LazyLock::new(Mutex::default);
    let known = SHARED.lock().unwrap_or_else(PoisonError::into_inner).get(pattern).cloned();
    if known.is_some() {
        return known;
    }
    let compiled = Arc::new(Regex::new(pattern).ok()?);
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if shared.len() >= MAX_SHARED {
        // What is in use stays with the schemas that use it.
        shared.clear();
    }
    shared.insert(pattern.into(), compiled.clone());
    Some(compiled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_patterns_share_what_was_compiled() {
        let (one, two) = (Pattern::new("^shared[0-9]$"), Pattern::new("^shared[0-9]$"));
        assert!(one.matches("shared1") && two.matches("shared2") && !two.matches("shared"));
        let compiled = |pattern: &Pattern| pattern.compiled.get().cloned().flatten().map(|r| Arc::as_ptr(&r));
        assert_eq!(compiled(&one), compiled(&two));
    }

    #[test]
    fn nothing_fits_a_pattern_that_cannot_be_used() {
        assert!(!is_usable("(") && !is_usable("(") && is_usable("a"));
        assert!(!Pattern::new("(").matches("("));
    }
}
