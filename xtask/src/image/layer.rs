//! A tar archive whose bytes depend on its entries alone (POSIX.1-1988, "ustar").

use std::collections::BTreeMap;

/// The size of a header, and what content is padded to.
const BLOCK: usize = 512;

/// A file or folder of an archive.
pub(crate) struct Entry {
    path: String,
    mode: u32,
    /// None for a folder.
    content: Option<Vec<u8>>,
}

impl Entry {
    pub(crate) fn file(path: &str, mode: u32, content: Vec<u8>) -> Self {
        Self { path: path.to_owned(), mode, content: Some(content) }
    }

    pub(crate) fn folder(path: &str, mode: u32) -> Self {
        Self { path: path.to_owned(), mode, content: None }
    }
}

/// The archive, sorted, owned by root, with one time for all; folders that are not listed are added.
pub(crate) fn layer(entries: &[Entry], epoch: u64) -> Vec<u8> {
    let mut sorted: BTreeMap<String, (u32, Option<&[u8]>)> = BTreeMap::new();
    for entry in entries {
        for (at, _) in entry.path.match_indices('/') {
            let parent = entry.path.get(..at).unwrap_or_default();
            sorted.entry(format!("{parent}/")).or_insert((0o755, None));
        }
        let path = if entry.content.is_some() { entry.path.clone() } else { format!("{}/", entry.path) };
        sorted.insert(path, (entry.mode, entry.content.as_deref()));
    }
    let mut archive = Vec::new();
    for (path, (mode, content)) in &sorted {
        let size = content.map_or(0, <[u8]>::len);
        archive.extend(header(path, *mode, size, content.is_none(), epoch));
        archive.extend(content.unwrap_or_default());
        archive.resize(archive.len().next_multiple_of(BLOCK), 0);
    }
    // Two empty blocks end an archive.
    archive.resize(archive.len() + 2 * BLOCK, 0);
    archive
}

fn header(path: &str, mode: u32, size: usize, folder: bool, epoch: u64) -> Vec<u8> {
    // Name, mode, owner, group, size, time, checksum (spaces until it is known), type, link, magic.
    let field = |text: &str, width: usize| {
        let mut bytes = text.as_bytes().to_vec();
        bytes.resize(width, 0);
        bytes
    };
    let mut header: Vec<u8> = [
        field(path, 100),
        field(&format!("{mode:07o}"), 8),
        field("0000000", 8),
        field("0000000", 8),
        field(&format!("{size:011o}"), 12),
        field(&format!("{epoch:011o}"), 12),
        b"        ".to_vec(),
        vec![if folder { b'5' } else { b'0' }],
        field("", 100),
        b"ustar\x0000".to_vec(),
    ]
    .concat();
    header.resize(BLOCK, 0);
    let sum: u32 = header.iter().copied().map(u32::from).sum();
    header.splice(148..156, field(&format!("{sum:06o}\0 "), 8));
    header
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use super::{Entry, layer};

    #[test]
    fn tar_reads_it_in_any_order_of_entries() {
        let entries = || {
            vec![
                Entry::file("usr/bin/a", 0o755, vec![7; 600]),
                Entry::folder("tmp", 0o1777),
                Entry::file("etc/b", 0o644, b"b\n".to_vec()),
            ]
        };
        let mut reversed = entries();
        reversed.reverse();
        let archive = layer(&entries(), 86_400);
        assert!(archive == layer(&reversed, 86_400), "the order of entries matters");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("layer.tar");
        fs::write(&path, archive).unwrap();
        let listed =
            Command::new("tar").args(["--utc", "--numeric-owner", "-tvf"]).arg(path).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        let words: Vec<Vec<_>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            words,
            [
                ["drwxr-xr-x", "0/0", "0", "1970-01-02", "00:00", "etc/"],
                ["-rw-r--r--", "0/0", "2", "1970-01-02", "00:00", "etc/b"],
                ["drwxrwxrwt", "0/0", "0", "1970-01-02", "00:00", "tmp/"],
                ["drwxr-xr-x", "0/0", "0", "1970-01-02", "00:00", "usr/"],
                ["drwxr-xr-x", "0/0", "0", "1970-01-02", "00:00", "usr/bin/"],
                ["-rwxr-xr-x", "0/0", "600", "1970-01-02", "00:00", "usr/bin/a"],
            ]
        );
    }
}
