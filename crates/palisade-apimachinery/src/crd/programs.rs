//! The compiled rules of definitions.
//!
//! Versions of a definition repeat each other's rules, definitions repeat those of the types they share, and each rule is
//! compiled when its definition is checked and again when the first object is. So equal ones share what was compiled.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use super::rules::VARIABLES;
use crate::cel::{CompileError, Expression, compile};

/// Rules kept; the definitions of a cluster have some hundreds.
const MAX_KEPT: usize = 1024;
/// Bytes of their texts; what was compiled is some times larger.
const MAX_BYTES: usize = 128 << 10;

#[derive(Debug, Default)]
struct Kept {
    programs: HashMap<Box<str>, Arc<Expression>>,
    bytes: usize,
}

/// Compiles a rule, or finds what was compiled before.
pub(super) fn compiled(expression: &str) -> Result<Arc<Expression>, CompileError> {
    static KEPT: LazyLock<Mutex<Kept>> = LazyLock::new(Mutex::default);
    let known = KEPT.lock().unwrap_or_else(PoisonError::into_inner).programs.get(expression).cloned();
    if let Some(known) = known {
        return Ok(known);
    }
    let program = Arc::new(compile(expression, VARIABLES)?);
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.programs.len() >= MAX_KEPT || kept.bytes + expression.len() > MAX_BYTES {
        // What is in use stays with the kinds that use it.
        *kept = Kept::default();
    }
    if expression.len() <= MAX_BYTES && kept.programs.insert(expression.into(), program.clone()).is_none() {
        kept.bytes += expression.len();
    }
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_rules_are_compiled_once() {
        let one = compiled("self.shared == 1").unwrap();
        assert!(Arc::ptr_eq(&one, &compiled("self.shared == 1").unwrap()));
        assert!(!Arc::ptr_eq(&one, &compiled("self.shared == 2").unwrap()));
        assert!(compiled("self.shared ==").is_err());
        assert!(compiled("other == 1").is_err());
    }
}
