//! A recording as it grows, in a file: a line for each new thing, written before the call continues.
//!
//! A process that is killed loses nothing that it has written; the last line of a recording that ended says so.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use super::RecorderError;

/// The journal of one recording.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
}

impl Journal {
    /// A new file, for its owner alone. One that is there was left by a recorder that did not end.
    pub(super) fn create(path: &Path) -> Result<Self, RecorderError> {
        let shown = || path.display().to_string();
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
            Ok(file) => Ok(Self { file }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(RecorderError::Unfinished { path: shown() })
            }
            Err(source) => Err(RecorderError::Journal { path: shown(), source }),
        }
    }

    /// Writes a line, in one piece.
    pub(super) fn append(&mut self, line: &str) -> io::Result<()> {
        self.file.write_all(format!("{line}\n").as_bytes())
    }
}
