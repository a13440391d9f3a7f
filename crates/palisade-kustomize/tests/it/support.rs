//! Files of a test: in a folder of their own, read as the command line reads them.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

use palisade_kustomize::{Build, FileProblem, Files, Located, build};
use serde_json::Value;

/// A folder with files.
pub(crate) struct Folder(pub(crate) tempfile::TempDir);

impl Folder {
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        for (name, text) in files {
            let path = folder.0.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    pub(crate) fn build(&self, root: &str) -> Build {
        let files = Disk(self.0.path().to_owned());
        build(&files, &files.look("", root).unwrap())
    }
}

struct Disk(PathBuf);

impl Files for Disk {
    fn look(&self, folder: &str, reference: &str) -> Option<Located> {
        let mut shown = PathBuf::new();
        for part in Path::new(folder).join(reference).components() {
            match part {
                Component::ParentDir => drop(shown.pop()),
                Component::CurDir => {}
                part => shown.push(part),
            }
        }
        let canonical = self.0.join(folder).join(reference).canonicalize().ok()?;
        Some(Located {
            shown: shown.to_str()?.to_owned(),
            is_folder: canonical.is_dir(),
            canonical: canonical.to_str()?.to_owned(),
        })
    }

    fn read(&self, file: &Located) -> Result<Vec<u8>, FileProblem> {
        fs::read(&file.canonical).map_err(|error| FileProblem(error.to_string()))
    }
}

/// Objects by what identifies them.
pub(crate) fn sorted(mut objects: Vec<Value>) -> Vec<Value> {
    let key = |object: &Value| {
        let text = |at: &str| object.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
        (text("/apiVersion"), text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
    };
    objects.sort_by_key(key);
    objects
}
