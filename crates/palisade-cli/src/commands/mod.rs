//! One file for each command.

pub mod check;
pub mod completions;
pub mod man;
pub mod version;
