//! JSON that two readers cannot read differently.
//!
//! Container runtimes read profiles with Go's `encoding/json`: of two equal keys the last counts, a list that is there
//! twice is merged with the first, and keys match whatever their letter case. So a document in which a key is there twice
//! means something else to each reader, and has no meaning here.

use serde_json::Value;
use thiserror::Error;

use crate::json::{DUPLICATE, value_from_str};

/// Why a text is no JSON that has one meaning.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum JsonError {
    /// Not JSON.
    #[error("is not valid JSON: {0}")]
    Syntax(String),
    /// Nested deeper than a reader should follow.
    #[error("is nested too deep")]
    TooDeep,
    /// A key is there twice.
    #[error("sets the key {0:?} twice, and readers disagree about which one counts")]
    DuplicateKey(String),
}

/// Reads a text, and nothing after it.
pub fn read(text: &str) -> Result<Value, JsonError> {
    value_from_str(text).map_err(|error| {
        let message = error.to_string();
        // serde_json has no other way to distinguish these from a mistake.
        if message.starts_with("recursion limit exceeded") {
            JsonError::TooDeep
        } else if let Some(key) = message.strip_prefix(DUPLICATE) {
            let place = format!("` at line {} column {}", error.line(), error.column());
            JsonError::DuplicateKey(key.strip_suffix(&place).unwrap_or(key).to_owned())
        } else {
            JsonError::Syntax(message)
        }
    })
}

/// A key as Go compares it to the name of a field.
pub(super) fn folded(key: &str) -> String {
    key.chars()
        .map(|c| match c {
            // The two letters outside ASCII that fold to one inside.
            '\u{17f}' => 's',
            '\u{212a}' => 'k',
            c => c.to_ascii_lowercase(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_unique_at_every_depth() {
        assert_eq!(
            read(r#"{"a": [1, -1, 1.5, null, true, "x"]}"#),
            Ok(json!({"a": [1, -1, 1.5, null, true, "x"]}))
        );
        for (text, expected) in [
            (r#"{"a": 1, "a": 1}"#, "sets the key \"a\" twice, and readers disagree about which one counts"),
            (
                r#"{"a": [{"b c at line": 1, "b c at line": 2}]}"#,
                "sets the key \"b c at line\" twice, and readers disagree about which one counts",
            ),
            (
                r#"{"a": 1, "\u0061": 1}"#,
                "sets the key \"a\" twice, and readers disagree about which one counts",
            ),
            ("{} {}", "is not valid JSON: trailing characters at line 1 column 4"),
            (&"[".repeat(1000), "is nested too deep"),
        ] {
            assert_eq!(read(text).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn go_folds_two_letters_outside_ascii() {
        assert_eq!(folded("\u{17f}yscall\u{17f}"), "syscalls");
        assert_eq!(folded("DefaultAction"), "defaultaction");
    }
}
