//! How commands end: with an exit status, or with the one failure type that carries one.
//!
//! Findings are not failures: a command that finds something ends with [`Exit::Findings`].

use std::{error::Error, fmt, io, path::Path, process::ExitCode};

use palisade_check::diagnostic::Diagnostic;
use thiserror::Error;

/// The exit status of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// No findings.
    Clean,
    /// Findings.
    Findings,
    /// Wrong usage, or input that cannot be used.
    Input,
    /// Something outside the input stopped the command: the cluster, the runtime, the disk.
    Incomplete,
    /// The exit status of the command that `palisade up -- COMMAND` ran, or that a protocol prescribes.
    Command(u8),
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Clean => 0,
            Exit::Findings => 1,
            Exit::Input => 2,
            Exit::Incomplete => 3,
            Exit::Command(status) => status,
        })
    }
}

type BoxError = Box<dyn Error + Send + Sync>;

/// Why a command could not complete: an error, and the exit status it leads to.
#[derive(Debug)]
pub struct Failure {
    /// The exit status.
    pub exit: Exit,
    source: BoxError,
}

impl Failure {
    /// Wrong usage, or input that cannot be used.
    pub fn input(error: impl Into<BoxError>) -> Self {
        Self { exit: Exit::Input, source: error.into() }
    }

    /// Something outside the input stopped the command.
    pub fn incomplete(error: impl Into<BoxError>) -> Self {
        Self { exit: Exit::Incomplete, source: error.into() }
    }

    /// A file that the user names cannot be used.
    #[must_use]
    pub fn file(path: &Path, error: impl fmt::Display) -> Self {
        Self::input(format!("{}: {error}", path.display()))
    }

    /// The output cannot be written.
    #[must_use]
    pub fn output(error: io::Error) -> Self {
        Self::incomplete(OutputError(error))
    }
}

/// The error and its causes in one line, each text once: some libraries repeat the cause in their own message.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.source.to_string();
        let mut source = self.source.source();
        while let Some(cause) = source {
            let added = cause.to_string();
            if !text.ends_with(&added) {
                text = format!("{text}: {added}");
            }
            source = cause.source();
        }
        f.write_str(text.trim_end())
    }
}

impl From<Box<Diagnostic>> for Failure {
    fn from(problem: Box<Diagnostic>) -> Self {
        Self::input(problem.summary)
    }
}

#[derive(Debug, Error)]
#[error("cannot write the output")]
struct OutputError(#[source] io::Error);

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Error)]
    #[error("cannot read x: {0}")]
    struct Repeating(#[source] OutputError);

    #[test]
    fn prints_each_cause_once() {
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let failure = Failure::output(full());
        assert_eq!(failure.exit, Exit::Incomplete);
        assert_eq!(failure.to_string(), "cannot write the output: no storage space");
        let failure = Failure::input(Repeating(OutputError(full())));
        assert_eq!(failure.to_string(), "cannot read x: cannot write the output: no storage space");
    }
}
