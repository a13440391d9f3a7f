//! The bytes of a seccomp profile: is it a document at all, and which one.
//!
//! Implements: the hash of the ConfigMap profile design; what counts as a document is decided by the model.

use std::fmt::Write as _;

pub use palisade_model::profile::config_map::{DocumentError, MAX_PROFILE_BYTES, check_document};
use sha2::{Digest as _, Sha256};

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
    use super::*;

    #[test]
    fn hashes_as_sha256sum_does() {
        assert_eq!(sha256_hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
