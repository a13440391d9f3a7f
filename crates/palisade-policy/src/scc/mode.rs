//! Whether constraints are in force: never by default, and not all at once.

use std::{fmt, str::FromStr};

use thiserror::Error;

/// What constraints do with pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum ConstraintMode {
    /// Nothing.
    #[default]
    Off,
    /// They report what they would do, and neither change nor reject anything.
    Audit,
    /// They admit, change and reject.
    Enforce,
}

impl ConstraintMode {
    /// The name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Audit => "audit",
            Self::Enforce => "enforce",
        }
    }
}

impl fmt::Display for ConstraintMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Not a mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("must be one of off, audit, enforce")]
pub struct ConstraintModeError;

impl FromStr for ConstraintMode {
    type Err = ConstraintModeError;
    fn from_str(text: &str) -> Result<Self, ConstraintModeError> {
        [Self::Off, Self::Audit, Self::Enforce]
            .into_iter()
            .find(|mode| mode.as_str() == text)
            .ok_or(ConstraintModeError)
    }
}
