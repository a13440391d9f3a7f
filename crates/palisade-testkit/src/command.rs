//! A program run to its end, and what it printed.
#![allow(
    clippy::missing_panics_doc,
    clippy::panic,
    missing_docs,
    reason = "tests fail by panicking, and this is a part of them"
)]

use std::{
    io::Write as _,
    process::{Command, Output, Stdio},
};

/// What a command printed, and its exit status; -1 if a signal ended it.
#[derive(Debug)]
pub struct CommandOutput {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl CommandOutput {
    /// What it printed on stdout.
    ///
    /// # Panics
    ///
    /// If it failed.
    #[must_use]
    #[track_caller]
    pub fn expect_success(self) -> String {
        assert_eq!(self.code, 0, "{}\n{}", self.out, self.err);
        self.out
    }
}

impl From<Output> for CommandOutput {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs a command without input.
pub fn output(command: &mut Command) -> CommandOutput {
    let output = command.stdin(Stdio::null()).output();
    output.unwrap_or_else(|error| panic!("{command:?}: {error}")).into()
}

/// Runs a command that reads `input`.
pub fn output_with_input(command: &mut Command, input: &str) -> CommandOutput {
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    // Written beside the reading: either pipe can be full.
    let writer = child.stdin.take().map(|mut pipe| {
        let input = input.to_owned();
        std::thread::spawn(move || pipe.write_all(input.as_bytes()))
    });
    let output = child.wait_with_output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    // A program may end without reading everything; its exit status decides.
    let _ = writer.map(std::thread::JoinHandle::join);
    output.into()
}
