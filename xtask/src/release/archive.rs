//! A compressed archive with the binary, its licence, and its completions and manual pages.

use std::{collections::BTreeMap, fs, io::Write as _};

use flate2::{Compression, write::GzEncoder};

use crate::{
    Failure,
    image::{
        cannot,
        layer::{Entry, layer},
    },
    root,
};

/// Packs the files: the binary at the top, so that krew and people find it.
pub(super) fn pack(
    binary: &[u8],
    shared: &BTreeMap<String, Vec<u8>>,
    epoch: u64,
) -> Result<Vec<u8>, Failure> {
    let mut entries = vec![Entry::file("palisade", 0o755, binary.to_vec())];
    for name in ["LICENSE", "README.md"] {
        let path = root().join(name);
        let content = fs::read(&path).map_err(|error| cannot("read", &path, &error))?;
        entries.push(Entry::file(name, 0o644, content));
    }
    entries.extend(shared.iter().map(|(path, content)| Entry::file(path, 0o644, content.clone())));
    gzip(&layer(&entries, epoch))
}

/// Compresses, without a name and a time.
pub(super) fn gzip(content: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let packed = encoder.write_all(content).and_then(|()| encoder.finish());
    packed.map_err(|error| Failure(format!("cannot compress: {error}")))
}
