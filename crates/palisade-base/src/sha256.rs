//! SHA-256 as lower-case hexadecimal, the form in which profiles and documents are named.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// The SHA-256 of a content.
#[must_use]
pub fn digest(content: &[u8]) -> [u8; 32] {
    Sha256::digest(content).into()
}

/// The SHA-256 of a content as 64 hexadecimal digits.
#[must_use]
pub fn hex(content: &[u8]) -> String {
    to_hex(&digest(content))
}

/// Bytes as lower-case hexadecimal digits.
#[must_use]
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Whether a text has the form of [`hex`].
#[must_use]
pub fn is_hex(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_lower_case_hexadecimal() {
        assert_eq!(hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert!(is_hex(&hex(b"")));
        for text in ["", "ab", &hex(b"").to_uppercase(), &"g".repeat(64)] {
            assert!(!is_hex(text), "{text}");
        }
    }
}
