//! A recording as it grows, in a file: a line for each new thing, written before the call continues.
//!
//! A process that is killed loses nothing that it has written; the last line of a recording that ended says so.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
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

    /// What is in a file; none if there is none.
    pub(super) fn read(path: &Path) -> Result<Option<String>, RecorderError> {
        match fs::read(path) {
            // What is no text is no entry, and is reported as such.
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(RecorderError::Journal { path: path.display().to_string(), source }),
        }
    }

    /// A file with this text in place of what was there, replaced in one step.
    pub(super) fn rewrite(path: &Path, text: &str) -> Result<Self, RecorderError> {
        let failed = |source| RecorderError::Journal { path: path.display().to_string(), source };
        if let Some(folder) = path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        }
        let fresh = path.with_extension("fresh");
        let opened = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh);
        let mut file = opened.map_err(failed)?;
        file.write_all(text.as_bytes()).map_err(failed)?;
        fs::rename(&fresh, path).map_err(failed)?;
        Ok(Self { file })
    }

    /// Writes a line, in one piece.
    pub(super) fn append(&mut self, line: &str) -> io::Result<()> {
        self.file.write_all(format!("{line}\n").as_bytes())
    }
}
