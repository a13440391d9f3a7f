//! The numbers and labels a namespace was given: annotations that constraints fill their gaps from.
//!
//! Implements: OpenShift, the annotations `openshift.io/sa.scc.{uid-range,supplemental-groups,mcs}`, and how Go's
//! `Sscanf` reads a block (what follows the second number is ignored). Allocating them is a controller's work.

use std::num::ParseIntError;

use palisade_model::metadata::StringMap;
use thiserror::Error;

use super::constraint::IdRange;

/// One block of user ids.
pub const UID_RANGE: &str = "openshift.io/sa.scc.uid-range";
/// Blocks of group ids, separated by commas.
pub const SUPPLEMENTAL_GROUPS: &str = "openshift.io/sa.scc.supplemental-groups";
/// The level of the SELinux label.
pub const MCS: &str = "openshift.io/sa.scc.mcs";

/// A block of ids, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// The first id.
    pub start: u32,
    /// The last id.
    pub end: u32,
}

impl Block {
    /// As the range of a strategy.
    #[must_use]
    pub fn to_range(self) -> IdRange {
        IdRange { min: self.start.into(), max: self.end.into() }
    }
}

/// Text that is not a block; the words are those of Go's `fmt` package.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BlockError {
    /// It ends where a number should begin.
    #[error("EOF")]
    NumberMissing,
    /// It ends where the separator should be.
    #[error("unexpected EOF")]
    SeparatorMissing,
    /// Something else stands where a number should begin.
    #[error("expected integer")]
    NotANumber,
    /// Something else stands where the separator should be.
    #[error("input does not match format")]
    NotTheSeparator,
    /// A line ends where a number should begin.
    #[error("unexpected newline")]
    Newline,
    /// It holds no ids. Upstream has no such error.
    #[error("the block holds no ids")]
    Empty,
    /// More than 32 bits.
    #[error("unsigned integer overflow on token {token}")]
    Overflow {
        /// The digits.
        token: String,
    },
    /// More than 64 bits.
    #[error("strconv.ParseUint: parsing \"{token}\": value out of range")]
    OutOfRange {
        /// The digits.
        token: String,
    },
}

/// Reads `<start>/<size>` or `<start>-<end>`.
pub fn parse_block(text: &str) -> Result<Block, BlockError> {
    let is_sized = text.contains('/');
    let (start, rest) = scan_number(text)?;
    let separator = if is_sized { '/' } else { '-' };
    let mut chars = rest.chars();
    match chars.next() {
        None => return Err(BlockError::SeparatorMissing),
        Some(c) if c != separator => return Err(BlockError::NotTheSeparator),
        Some(_) => {}
    }
    let (second, _) = scan_number(chars.as_str())?;
    // Upstream computes in 32 bits, and so wraps: mostly to a block that holds nothing, but `0/0` would hold every id, root included.
    if is_sized && (start, second) == (0, 0) {
        return Err(BlockError::Empty);
    }
    let end = if is_sized { start.wrapping_add(second).wrapping_sub(1) } else { second };
    Ok(Block { start, end })
}

/// A decimal number after white space, and what follows it.
fn scan_number(text: &str) -> Result<(u32, &str), BlockError> {
    let mut text = text;
    loop {
        let mut chars = text.chars();
        match chars.next() {
            None => return Err(BlockError::NumberMissing),
            Some('\n') => return Err(BlockError::Newline),
            Some(c) if c.is_whitespace() => text = chars.as_str(),
            Some(_) => break,
        }
    }
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (token, rest) = text.split_at(digits);
    if token.is_empty() {
        return Err(BlockError::NotANumber);
    }
    let out_of_range = |_: ParseIntError| BlockError::OutOfRange { token: token.to_owned() };
    let number: u64 = token.parse().map_err(out_of_range)?;
    let number = u32::try_from(number).map_err(|_| BlockError::Overflow { token: token.to_owned() })?;
    Ok((number, rest))
}

/// Why a namespace cannot fill the gap of a constraint.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RangeError {
    /// There is no such annotation.
    #[error("unable to find annotation {key}")]
    Missing {
        /// The annotation.
        key: &'static str,
    },
    /// The annotation is empty.
    #[error("found annotation {key} but it was empty")]
    Empty {
        /// The annotation.
        key: &'static str,
    },
    /// Neither of the two annotations that may give groups has a value.
    #[error("unable to find groups using {SUPPLEMENTAL_GROUPS} and {UID_RANGE} annotations")]
    NoGroups,
    /// Neither of the two annotations that may give groups is there.
    #[error("unable to find supplemental group or uid annotation for namespace {namespace}")]
    GroupsMissing {
        /// The namespace.
        namespace: String,
    },
    /// A block cannot be read.
    #[error(transparent)]
    Block(#[from] BlockError),
}

/// A namespace as constraints see it.
#[derive(Debug, Clone, Copy)]
pub struct NamespaceRanges<'n> {
    /// The name.
    pub name: &'n str,
    annotations: &'n StringMap<'n>,
}

impl<'n> NamespaceRanges<'n> {
    /// The ranges in the annotations of a namespace.
    #[must_use]
    pub const fn new(name: &'n str, annotations: &'n StringMap<'n>) -> Self {
        Self { name, annotations }
    }

    /// The first annotation without which upstream refuses to go on, whatever the constraints need.
    #[must_use]
    pub fn missing(&self) -> Option<&'static str> {
        [UID_RANGE, MCS].into_iter().find(|key| !self.annotations.contains(key))
    }

    /// The block of user ids.
    pub fn uid_range(&self) -> Result<Block, RangeError> {
        Ok(parse_block(self.value(UID_RANGE)?)?)
    }

    /// The level of the SELinux label.
    pub fn mcs(&self) -> Result<&'n str, RangeError> {
        self.value(MCS)
    }

    /// The blocks of group ids; without an annotation of their own they are those of user ids.
    pub fn supplemental_groups(&self) -> Result<Vec<Block>, RangeError> {
        let groups = self.annotations.get(SUPPLEMENTAL_GROUPS).or_else(|| self.annotations.get(UID_RANGE));
        match groups {
            None => Err(RangeError::GroupsMissing { namespace: self.name.to_owned() }),
            Some("") => Err(RangeError::NoGroups),
            Some(groups) => Ok(groups.split(',').map(parse_block).collect::<Result<_, _>>()?),
        }
    }

    fn value(&self, key: &'static str) -> Result<&'n str, RangeError> {
        match self.annotations.get(key) {
            None => Err(RangeError::Missing { key }),
            Some("") => Err(RangeError::Empty { key }),
            Some(value) => Ok(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use palisade_model::metadata::StringMap;

    use super::{Block, NamespaceRanges, parse_block};

    #[test]
    fn reads_blocks_as_go_scans_them() {
        for (text, expected) in [
            ("1000/10", Ok((1000, 1009))),
            ("1000-2000", Ok((1000, 2000))),
            (" 1000/\t10 trailing", Ok((1000, 1009))),
            ("1000/10,2000/10", Ok((1000, 1009))),
            ("00/5", Ok((0, 4))),
            ("10-5", Ok((10, 5))),
            ("0/0", Err("the block holds no ids")),
            ("00/0", Err("the block holds no ids")),
            ("1000/0", Ok((1000, 999))),
            ("4294967295/2", Ok((u32::MAX, 0))),
            ("", Err("EOF")),
            ("1000/", Err("EOF")),
            ("1000-", Err("EOF")),
            ("1000", Err("unexpected EOF")),
            ("abc", Err("expected integer")),
            ("/1000", Err("expected integer")),
            ("+7/3", Err("expected integer")),
            ("1000/-5", Err("expected integer")),
            ("1000 / 10", Err("input does not match format")),
            ("1_000/10", Err("input does not match format")),
            ("1000.5/10", Err("input does not match format")),
            ("1000\u{e9}", Err("input does not match format")),
            ("\n1/2", Err("unexpected newline")),
            ("4294967296/1", Err("unsigned integer overflow on token 4294967296")),
            (
                "18446744073709551616-1",
                Err("strconv.ParseUint: parsing \"18446744073709551616\": value out of range"),
            ),
        ] {
            let read = parse_block(text).map_err(|error| error.to_string());
            let expected = expected.map(|(start, end)| Block { start, end }).map_err(str::to_owned);
            assert_eq!(read, expected, "{text:?}");
        }
    }

    #[test]
    fn groups_fall_back_to_users() {
        let ranges = |annotations: &str| -> Result<Vec<(u32, u32)>, String> {
            let annotations: StringMap<'_> = serde_json::from_str(annotations).unwrap();
            let blocks = NamespaceRanges::new("ns", &annotations).supplemental_groups();
            blocks.map(|b| b.iter().map(|b| (b.start, b.end)).collect()).map_err(|error| error.to_string())
        };
        assert_eq!(ranges(r#"{"openshift.io/sa.scc.uid-range": "5/2"}"#), Ok(vec![(5, 6)]));
        assert_eq!(
            ranges(
                r#"{"openshift.io/sa.scc.supplemental-groups": "1/1,7-9", "openshift.io/sa.scc.uid-range": "x"}"#
            ),
            Ok(vec![(1, 1), (7, 9)])
        );
        assert_eq!(
            ranges(r#"{"openshift.io/sa.scc.supplemental-groups": ""}"#).unwrap_err(),
            "unable to find groups using openshift.io/sa.scc.supplemental-groups and openshift.io/sa.scc.uid-range annotations"
        );
        assert_eq!(ranges(r#"{"openshift.io/sa.scc.supplemental-groups": "1/1,"}"#).unwrap_err(), "EOF");
        assert_eq!(
            ranges("{}").unwrap_err(),
            "unable to find supplemental group or uid annotation for namespace ns"
        );
    }
}
