//! Reading recordings: what real servers answered, one JSON record a line, plain or gzipped.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_json::Value;

use crate::Failure;

/// A request, or a short sequence of requests, and what was answered.
#[derive(Debug, Deserialize)]
pub(crate) struct Record {
    pub(crate) id: String,
    pub(crate) group: String,
    pub(crate) server: String,
    pub(crate) steps: Vec<Step>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Step {
    pub(crate) request: Request,
    pub(crate) answer: Answer,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) body: Value,
}

/// The part of an answer that is compared.
#[derive(Debug, Default, Deserialize, PartialEq)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    #[serde(default)]
    pub(crate) reason: Option<String>,
    #[serde(default)]
    pub(crate) message: Option<String>,
    #[serde(default)]
    pub(crate) causes: Vec<Cause>,
    #[serde(default)]
    pub(crate) warnings: Vec<String>,
    #[serde(default)]
    pub(crate) pod: Option<Value>,
    #[serde(default)]
    pub(crate) template: Option<Value>,
    #[serde(default)]
    pub(crate) labels: Option<Value>,
}

#[derive(Debug, Clone, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cause {
    pub(crate) field: String,
    pub(crate) message: String,
    pub(crate) reason: String,
}

/// The files below a folder whose name ends in `.jsonl` or `.jsonl.gz`, sorted.
pub(crate) fn files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    for entry in walkdir::WalkDir::new(folder).sort_by_file_name() {
        let entry = entry.map_err(|error| Failure(format!("cannot list {}: {error}", folder.display())))?;
        let name = entry.file_name().to_string_lossy();
        if name.ends_with(".jsonl") || name.ends_with(".jsonl.gz") {
            found.push(entry.into_path());
        }
    }
    Ok(found)
}

/// The records of one file.
pub(crate) fn read<T: for<'de> Deserialize<'de>>(file: &Path) -> Result<Vec<T>, Failure> {
    let fail = |error: &dyn std::fmt::Display| Failure(format!("cannot read {}: {error}", file.display()));
    let opened = fs::File::open(file).map_err(|error| fail(&error))?;
    let reader: Box<dyn Read> = if file.extension().is_some_and(|extension| extension == "gz") {
        Box::new(flate2::read::GzDecoder::new(opened))
    } else {
        Box::new(opened)
    };
    let mut records = Vec::new();
    for line in BufReader::new(reader).lines() {
        let line = line.map_err(|error| fail(&error))?;
        if !line.trim().is_empty() {
            records.push(serde_json::from_str(&line).map_err(|error| fail(&error))?);
        }
    }
    Ok(records)
}
