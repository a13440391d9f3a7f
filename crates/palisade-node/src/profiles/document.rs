//! The bytes of a seccomp profile: is it a document at all, and which one.
//!
//! Implements: "is a valid json" and the hash of the ConfigMap profile design, with bounds that the design takes for
//! granted: size, depth, and no NUL, which a C library behind the runtime would take for the end of a name.

use std::fmt::Write as _;

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

/// The largest profile taken: what a ConfigMap can hold.
pub const MAX_PROFILE_BYTES: usize = 1 << 20;

/// Why a text is no profile.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DocumentError {
    /// Larger than any ConfigMap.
    #[error("has {size} bytes, more than the {MAX_PROFILE_BYTES} a profile may have")]
    TooLarge {
        /// How large.
        size: usize,
    },
    /// Not JSON, or nested deeper than any profile.
    #[error("is not valid JSON: {0}")]
    NotJson(String),
    /// A string with a NUL in it.
    #[error("has a string with a NUL character")]
    Nul,
}

/// Checks that a text is JSON within bounds. Nothing else about it is looked at: the runtime validates further.
pub fn check_document(text: &str) -> Result<(), DocumentError> {
    if text.len() > MAX_PROFILE_BYTES {
        return Err(DocumentError::TooLarge { size: text.len() });
    }
    // serde_json gives up at a depth of 128, where a profile has five.
    let value: Value =
        serde_json::from_str(text).map_err(|error| DocumentError::NotJson(error.to_string()))?;
    if has_nul(&value) { Err(DocumentError::Nul) } else { Ok(()) }
}

fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_nul),
        Value::Object(fields) => fields.iter().any(|(key, value)| key.contains('\0') || has_nul(value)),
        _ => false,
    }
}

/// SHA-256 in lower-case hexadecimal, as `sha256sum` prints it.
#[must_use]
pub fn sha256_hex(content: &[u8]) -> String {
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(content) {
        // Writing to a string cannot fail.
        write!(text, "{byte:02x}").ok();
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn takes_json_within_bounds_and_nothing_else() {
        let large = format!("\"{}\"", "x".repeat(MAX_PROFILE_BYTES - 2));
        let too_large = format!("{large} ");
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        for (case, text, expected) in [
            ("a profile", r#"{"defaultAction":"SCMP_ACT_ALLOW"}"#, "ok"),
            ("an unknown action is the runtime's business", r#"{"defaultAction":"NOPE"}"#, "ok"),
            ("1 MiB", &large, "ok"),
            ("1 MiB and a byte", &too_large, "has 1048577 bytes, more than the 1048576 a profile may have"),
            ("empty", "", "is not valid JSON: EOF while parsing a value at line 1 column 0"),
            ("YAML", "defaultAction: SCMP_ACT_ALLOW", "is not valid JSON: expected value at line 1 column 1"),
            ("two documents", "{} {}", "is not valid JSON: trailing characters at line 1 column 4"),
            ("NUL", "{\0}", "is not valid JSON: key must be a string at line 1 column 2"),
            ("NUL in a name", r#"{"names":["mkdir\u0000x"]}"#, "has a string with a NUL character"),
            ("NUL in a key", r#"{"\u0000":1}"#, "has a string with a NUL character"),
            ("deep", &nested(100_000), "is not valid JSON: recursion limit exceeded at line 1 column 128"),
        ] {
            let found = check_document(text).map_or_else(|error| error.to_string(), |()| "ok".to_owned());
            assert_eq!(found, expected, "{case}");
        }
    }

    #[test]
    fn hashes_as_sha256sum_does() {
        assert_eq!(sha256_hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,200}") {
            let _ = check_document(&text);
        }
    }
}
