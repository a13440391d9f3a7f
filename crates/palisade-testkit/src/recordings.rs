//! Recordings of real servers: one JSON record a line, in plain or compressed files.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use thiserror::Error;

/// Why recordings cannot be read.
#[derive(Debug, Error)]
pub enum RecordingError {
    /// A file or folder.
    #[error("{path}")]
    File {
        /// Which.
        path: PathBuf,
        /// What the system reported.
        #[source]
        source: std::io::Error,
    },
    /// A line.
    #[error("{path}:{line}")]
    Record {
        /// Which file.
        path: PathBuf,
        /// Which line.
        line: usize,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// There are no records.
    #[error("no recordings in {0}")]
    Empty(PathBuf),
}

/// The repository's copy of the recordings, or the folder that `PALISADE_RECORDINGS` names.
#[must_use]
pub fn folder() -> PathBuf {
    given().unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/recordings"))
}

fn given() -> Option<PathBuf> {
    std::env::var_os("PALISADE_RECORDINGS").map(PathBuf::from)
}

/// Fails if there was too little to replay: nothing replayed proves nothing. Of the repository's copy it is known how
/// much there is at least.
///
/// # Panics
///
/// If there is less.
pub fn assert_enough(found: usize, known: usize) {
    let least = if given().is_some() { 1 } else { known };
    assert!(found >= least, "{found} of at least {least} to replay");
}

/// The records of every `.jsonl` and `.jsonl.gz` file of a folder, in order of their names.
pub fn of_folder<T: DeserializeOwned>(folder: &Path) -> Result<Vec<T>, RecordingError> {
    let failed = |source| RecordingError::File { path: folder.to_owned(), source };
    let entries =
        std::fs::read_dir(folder).map_err(failed)?.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    let mut files: Vec<PathBuf> = entries.iter().map(std::fs::DirEntry::path).collect();
    files.retain(|file| {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        Path::new(name.trim_end_matches(".gz")).extension().is_some_and(|kind| kind == "jsonl")
    });
    files.sort();
    let mut records = Vec::new();
    for file in files {
        records.extend(of_file(&file)?);
    }
    if records.is_empty() { Err(RecordingError::Empty(folder.to_owned())) } else { Ok(records) }
}

/// The records of `name.jsonl` or `name.jsonl.gz` in a folder.
pub fn named<T: DeserializeOwned>(folder: &Path, name: &str) -> Result<Vec<T>, RecordingError> {
    let plain = folder.join(format!("{name}.jsonl"));
    of_file(&if plain.is_file() { plain } else { folder.join(format!("{name}.jsonl.gz")) })
}

fn of_file<T: DeserializeOwned>(file: &Path) -> Result<Vec<T>, RecordingError> {
    let failed = |source| RecordingError::File { path: file.to_owned(), source };
    let bytes = std::fs::read(file).map_err(failed)?;
    let mut text = String::new();
    let read = if file.extension().is_some_and(|kind| kind == "gz") {
        flate2::read::GzDecoder::new(bytes.as_slice()).read_to_string(&mut text)
    } else {
        bytes.as_slice().read_to_string(&mut text)
    };
    read.map_err(failed)?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(line, record)| {
            serde_json::from_str(record).map_err(|source| RecordingError::Record {
                path: file.to_owned(),
                line: line + 1,
                source,
            })
        })
        .collect()
}
