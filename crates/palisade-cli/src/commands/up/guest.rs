//! The command of `palisade up -- COMMAND…`: started when the server is ready, with `KUBECONFIG` set; the server ends with it.
//!
//! Signals as `env` and `timeout` treat them: SIGTERM is forwarded, and Ctrl-C reaches the command from the terminal, whose
//! foreground process group it shares. The exit status is that of the command, 128 and the number of a signal that ended it.

use std::{ffi::OsString, io, os::unix::process::ExitStatusExt as _, path::Path, process::ExitStatus};

use rustix::process::{Pid, Signal, kill_process};
use thiserror::Error;
use tokio::{
    process::{Child, Command},
    signal::unix::{SignalKind, signal},
};

use crate::failure::{Exit, Failure};

/// Why there is no exit status of the command.
#[derive(Debug, Error)]
pub enum GuestError {
    /// It cannot be started.
    #[error("cannot run {command:?}")]
    Start {
        /// The program.
        command: OsString,
        /// Why not.
        source: io::Error,
    },
    /// Its end cannot be waited for.
    #[error("cannot wait for the command")]
    Wait(#[source] io::Error),
}

impl From<GuestError> for Failure {
    fn from(error: GuestError) -> Self {
        match error {
            GuestError::Start { .. } => Self::input(error),
            GuestError::Wait(_) => Self::incomplete(error),
        }
    }
}

/// A command that runs.
pub(super) struct Guest(Child);

impl Guest {
    /// Starts a command; nothing if none is given.
    pub(super) fn start(command: &[OsString], kubeconfig: &Path) -> Result<Option<Self>, GuestError> {
        let [program, arguments @ ..] = command else { return Ok(None) };
        let started = Command::new(program)
            .args(arguments)
            .env("KUBECONFIG", kubeconfig)
            // The server does not outlive this process, and the command is useless without it.
            .kill_on_drop(true)
            .spawn()
            .map_err(|source| GuestError::Start { command: program.clone(), source })?;
        Ok(Some(Self(started)))
    }

    /// The exit status of the command. SIGTERM goes to the command, which decides when to end; Ctrl-C is the command's own.
    pub(super) async fn ended(mut self) -> Result<Exit, GuestError> {
        let pid = self.0.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let mut terminate = signal(SignalKind::terminate()).map_err(GuestError::Wait)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(GuestError::Wait)?;
        loop {
            tokio::select! {
                status = self.0.wait() => return status.map(exit).map_err(GuestError::Wait),
                _ = terminate.recv() => {
                    // Not reaped before `wait` returns: the number is still that of the command.
                    if let Some(pid) = pid {
                        let _ = kill_process(pid, Signal::TERM);
                    }
                }
                _ = interrupt.recv() => {}
            }
        }
    }
}

/// The exit status that a shell reports.
fn exit(status: ExitStatus) -> Exit {
    let code = status.code().or_else(|| status.signal().map(|signal| signal.saturating_add(128)));
    Exit::Command(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_exit_statuses_as_a_shell_does() {
        for (raw, expected) in [(0, 0), (7 << 8, 7), (255 << 8, 255), (9, 137), (15, 143)] {
            assert_eq!(exit(ExitStatus::from_raw(raw)), Exit::Command(expected), "{raw}");
        }
    }
}
