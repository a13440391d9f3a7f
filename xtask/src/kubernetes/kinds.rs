//! `schema/kinds.txt`: the kinds whose types are in the tables, written by hand.

use super::source::Release;
use crate::Failure;

/// A line of the list.
#[derive(Debug)]
pub(crate) struct Kind {
    /// `core.Pod`: the name in the tables.
    pub(crate) type_name: String,
    /// `k8s.io/api/core/v1`: the Go package.
    pub(crate) import_path: String,
    /// Whether clients may send it in protobuf.
    pub(crate) protobuf: bool,
    /// First release that no longer serves it, although its Go types may stay.
    until: Option<u8>,
}

impl Kind {
    /// Whether a release has it.
    pub(crate) fn is_in(&self, release: &Release) -> bool {
        let name = self.type_name.rsplit('.').next().unwrap_or_default();
        let served = self.until.is_none_or(|until| release.minor < until);
        served && release.declaration(&self.import_path, name).is_some()
    }
}

/// Reads the list.
pub(crate) fn read(text: &str) -> Result<Vec<Kind>, Failure> {
    let mut kinds = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let wrong = || Failure(format!("kinds.txt: {line:?} is not \"group.Kind package [json] [<N]\""));
        let mut words = line.split(' ');
        let (type_name, import_path) = words.next().zip(words.next()).ok_or_else(wrong)?;
        let (type_name, import_path) = (type_name.to_owned(), import_path.to_owned());
        let mut kind = Kind { type_name, import_path, protobuf: true, until: None };
        for word in words {
            match word.strip_prefix('<') {
                Some(minor) => kind.until = Some(minor.parse().map_err(|_| wrong())?),
                None if word == "json" => kind.protobuf = false,
                None => return Err(wrong()),
            }
        }
        kinds.push(kind);
    }
    Ok(kinds)
}
