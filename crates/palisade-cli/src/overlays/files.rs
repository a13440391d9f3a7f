//! The files of a build: those of the disk, with edits that are only tried.

use std::{
    collections::BTreeMap,
    path::{Component, Path, PathBuf},
};

use palisade_kustomize::{FileProblem, Files, Located};

use crate::input::Input;

/// The files of the disk, some of them with another text.
#[derive(Debug, Default)]
pub(super) struct Disk {
    /// Texts by the resolved path.
    pub(super) edited: BTreeMap<String, String>,
}

/// A path without `.` and `..`, as far as that can be done without the disk.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if matches!(plain.components().next_back(), Some(Component::Normal(_))) => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    if plain.as_os_str().is_empty() { PathBuf::from(".") } else { plain }
}

impl Files for Disk {
    fn look(&self, folder: &str, reference: &str) -> Option<Located> {
        if reference.is_empty() || Path::new(reference).is_absolute() {
            return None;
        }
        let written = Path::new(folder).join(reference);
        // swallowed: what cannot be resolved is not there
        let canonical = written.canonicalize().ok()?;
        let metadata = canonical.metadata().ok()?;
        if !metadata.is_file() && !metadata.is_dir() {
            return None;
        }
        let plain = plain(&written);
        // Through a link, `..` means another folder.
        let is_same = plain.canonicalize().is_ok_and(|resolved| resolved == canonical);
        let shown = if is_same { plain } else { written };
        Some(Located {
            shown: shown.to_str()?.to_owned(),
            canonical: canonical.to_str()?.to_owned(),
            is_folder: metadata.is_dir(),
        })
    }

    fn read(&self, file: &Located) -> Result<Vec<u8>, FileProblem> {
        if let Some(text) = self.edited.get(&file.canonical) {
            return Ok(text.clone().into_bytes());
        }
        let input = Input::File(PathBuf::from(&file.shown));
        input.read().map_err(|problem| FileProblem(problem.summary))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn paths_are_shown_without_detours() {
        for (path, expected) in [
            ("o/../base/a.yaml", "base/a.yaml"),
            ("./a/./b", "a/b"),
            ("../a", "../a"),
            ("a/..", "."),
            ("../../a/../b", "../../b"),
        ] {
            assert_eq!(super::plain(Path::new(path)), Path::new(expected), "{path}");
        }
    }
}
