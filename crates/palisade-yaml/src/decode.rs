//! Bytes to text: the encodings a manifest may come in, and a clear word about everything else.
//!
//! Implements the byte order mark table of YAML 1.2.2, section 5.2 (UTF-32 is not supported).
//! <https://yaml.org/spec/1.2.2/#52-character-encodings>

use std::borrow::Cow;

use thiserror::Error;

/// Why bytes are not a text.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum DecodeError {
    /// A NUL byte: an archive, an image or some other program's data.
    #[error("this is a binary file: byte {offset} is NUL")]
    Binary {
        /// Where the NUL is.
        offset: usize,
    },
    /// Neither UTF-8 nor marked as UTF-16.
    #[error("the text is not UTF-8: byte {offset} (0x{byte:02x}) does not fit")]
    NotUtf8 {
        /// The first byte that does not fit.
        offset: usize,
        /// That byte.
        byte: u8,
    },
    /// Marked as UTF-16 by its byte order mark, and broken.
    #[error("the text begins as UTF-16, but the unit at byte {offset} does not fit")]
    NotUtf16 {
        /// The first unit that does not fit.
        offset: usize,
    },
}

/// Decodes UTF-8 (with or without byte order mark) and UTF-16 (with byte order mark).
///
/// The result is borrowed if and only if its bytes are the input's bytes: a UTF-8 byte order mark stays, so that
/// an edited text can be written back as it was. UTF-16 comes back as UTF-8 without a mark; a caller who writes
/// files should leave those alone.
pub fn decode(bytes: &[u8]) -> Result<Cow<'_, str>, DecodeError> {
    match bytes {
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes).map(Cow::Owned),
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes).map(Cow::Owned),
        _ => {
            if let Some(offset) = memchr::memchr(0, bytes) {
                return Err(DecodeError::Binary { offset });
            }
            std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(|error| {
                let offset = error.valid_up_to();
                DecodeError::NotUtf8 { offset, byte: bytes.get(offset).copied().unwrap_or_default() }
            })
        }
    }
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Result<String, DecodeError> {
    const MARK: usize = 2;
    let (pairs, rest) = bytes.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(DecodeError::NotUtf16 { offset: MARK + bytes.len() - rest.len() });
    }
    let mut text = String::with_capacity(pairs.len());
    let mut offset = MARK;
    for decoded in char::decode_utf16(pairs.iter().map(|&pair| unit(pair))) {
        match decoded {
            Ok('\0') => return Err(DecodeError::Binary { offset }),
            Ok(character) => {
                offset += 2 * character.len_utf16();
                text.push(character);
            }
            Err(_) => return Err(DecodeError::NotUtf16 { offset }),
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_yaml_may_be_encoded_in() {
        for (case, bytes, expected) in [
            ("plain", &b"a: 1"[..], Ok("a: 1")),
            ("UTF-8 mark stays", b"\xef\xbb\xbfa", Ok("\u{feff}a")),
            ("UTF-16 little endian", b"\xff\xfea\0\xe9\0", Ok("aé")),
            ("UTF-16 big endian", b"\xfe\xff\0a\xd8\x3d\xde\x00", Ok("a😀")),
            (
                "half a unit",
                b"\xff\xfea",
                Err("the text begins as UTF-16, but the unit at byte 2 does not fit"),
            ),
            (
                "half a pair",
                b"\xfe\xff\xd8\x3d",
                Err("the text begins as UTF-16, but the unit at byte 2 does not fit"),
            ),
            ("gzip", b"\x1f\x8b\x08\0", Err("this is a binary file: byte 3 is NUL")),
            ("Latin-1", b"n: \xe9t\xe9", Err("the text is not UTF-8: byte 3 (0xe9) does not fit")),
        ] {
            let actual = decode(bytes);
            assert_eq!(
                actual.as_deref().map_err(ToString::to_string),
                expected.map_err(str::to_owned),
                "{case}"
            );
        }
    }
}
