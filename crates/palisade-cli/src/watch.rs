//! Waiting until files change: `check --watch`.
//!
//! By looking at times and sizes, not by inotify, as `palisade-serve` does for single files: network file systems and mounted folders
//! report nothing. A folder is looked at as a whole, because files come and go.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    thread,
    time::{Duration, SystemTime},
};

use walkdir::WalkDir;

use crate::config::absolute;

/// How often files are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// When each file was last written, and how long it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stamps(BTreeMap<PathBuf, (Option<SystemTime>, u64)>);

impl Stamps {
    /// The files at and below the paths. What cannot be looked at has no stamp, and changes when it can be.
    #[must_use]
    pub fn of<'p>(paths: impl IntoIterator<Item = &'p Path>) -> Self {
        let mut stamps = BTreeMap::new();
        for path in paths {
            let is_searched = |name: &[u8]| !name.starts_with(b".");
            let walk = WalkDir::new(path).follow_links(true).into_iter();
            let walk = walk.filter_entry(|entry| {
                entry.depth() == 0 || is_searched(entry.file_name().as_encoded_bytes())
            });
            for entry in walk.flatten().filter(|entry| entry.file_type().is_file()) {
                // swallowed: a file that is gone meanwhile has no stamp
                let Ok(metadata) = entry.metadata() else { continue };
                // swallowed: a file system without times still has sizes
                stamps.insert(entry.into_path(), (metadata.modified().ok(), metadata.len()));
            }
        }
        Self(stamps)
    }

    /// All but some files.
    #[must_use]
    pub fn without<'p>(&self, files: impl IntoIterator<Item = &'p Path>) -> Self {
        let left_out: Vec<PathBuf> = files.into_iter().map(absolute).collect();
        let kept =
            self.0.iter().filter(|(path, _)| left_out.is_empty() || !left_out.contains(&absolute(path)));
        Self(kept.map(|(path, stamp)| (path.clone(), *stamp)).collect())
    }
}

/// The files a moment later.
#[must_use]
pub fn next_look(paths: &[PathBuf]) -> Stamps {
    thread::sleep(LOOK_EVERY);
    Stamps::of(paths.iter().map(PathBuf::as_path))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::Stamps;

    #[test]
    fn files_that_come_go_or_change_are_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let stamps = || Stamps::of([folder.path(), Path::new("absent.yaml")]);
        let mut before = stamps();
        let mut notices = |what: &str, expected: bool| {
            let now = stamps();
            assert_eq!(now != before, expected, "{what}");
            before = now;
        };
        write("a.yaml", "a");
        notices("a new file", true);
        notices("nothing", false);
        write("a.yaml", "longer");
        notices("another size", true);
        write("deep/er/b.yaml", "b");
        notices("a file in a new folder", true);
        write(".git/index", "x");
        notices("a hidden folder", false);
        fs::remove_file(folder.path().join("a.yaml")).unwrap();
        notices("a file that is gone", true);
    }
}
