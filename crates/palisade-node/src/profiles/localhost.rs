//! Profiles that an administrator put on the node.
//!
//! Implements: "LocalhostProfile" of the seccomp design: a file below `<root-dir>/seccomp`. The kernel itself makes
//! sure that no path and no symbolic link leads out of that folder (openat2(2), `RESOLVE_BENEATH`).

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use palisade_model::node::join_clean;
use rustix::{
    fs::{Mode, OFlags, ResolveFlags, open, openat2},
    io::Errno,
};

use palisade_model::profile::config_map::ConfigMapProblem;

use super::{DocumentError, MAX_PROFILE_BYTES, ProfileError};

/// The folder of the node's own seccomp profiles.
#[derive(Debug, Clone)]
pub struct ProfileFolder {
    root: PathBuf,
}

impl ProfileFolder {
    /// `<root-dir>/seccomp`, or the folder of the deprecated `--seccomp-profile-root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The path a kubelet hands to the runtime.
    #[must_use]
    pub fn joined(&self, path: &str) -> String {
        join_clean(&self.root.to_string_lossy(), path)
    }

    /// The content of a profile, from inside the folder only.
    pub fn read(&self, path: &str) -> Result<Vec<u8>, ProfileError> {
        let shown = self.joined(path);
        let unreadable = |reason: String| ProfileError::Unreadable { path: shown.clone(), reason };
        let failed = |verb: &str, error: Errno| unreadable(format!("{verb} {shown}: {}", in_go(error)));

        let folder = open(&self.root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| failed("open", error))?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let escapes = || ProfileError::Escapes { path: path.to_owned() };
        if path.starts_with('/') || path.contains('\0') {
            return Err(escapes());
        }
        let file = match openat2(&folder, path, flags, Mode::empty(), resolve) {
            Ok(file) => File::from(file),
            // EXDEV is the kernel's word for a path that leaves the folder.
            Err(Errno::XDEV | Errno::LOOP) => return Err(escapes()),
            Err(error) => return Err(failed("open", error)),
        };
        let metadata = file.metadata().map_err(|error| unreadable(error.to_string()))?;
        if metadata.is_dir() {
            return Err(failed("read", Errno::ISDIR));
        }
        if !metadata.is_file() {
            return Err(unreadable(format!("read {shown}: not a regular file")));
        }
        let mut content = Vec::new();
        file.take(MAX_PROFILE_BYTES as u64 + 1)
            .read_to_end(&mut content)
            .map_err(|error| unreadable(error.to_string()))?;
        if content.len() > MAX_PROFILE_BYTES {
            let source = DocumentError::TooLarge { size: content.len() };
            return Err(ConfigMapProblem::Document { profile: shown, source }.into());
        }
        Ok(content)
    }
}

/// The system's errors as runtimes print them.
fn in_go(error: Errno) -> String {
    match error {
        Errno::NOENT => "no such file or directory".to_owned(),
        Errno::ISDIR => "is a directory".to_owned(),
        Errno::NOTDIR => "not a directory".to_owned(),
        Errno::ACCESS => "permission denied".to_owned(),
        Errno::NAMETOOLONG => "file name too long".to_owned(),
        other => std::io::Error::from(other).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::ProfileFolder;

    #[test]
    fn reads_inside_the_folder_and_nowhere_else() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("seccomp");
        fs::create_dir_all(root.join("sub/folder")).unwrap();
        fs::write(temp.path().join("outside.json"), "secret").unwrap();
        fs::write(root.join("in.json"), "{}").unwrap();
        fs::write(root.join("large.json"), vec![b' '; (1 << 20) + 1]).unwrap();
        symlink("in.json", root.join("inner-link.json")).unwrap();
        symlink("../in.json", root.join("sub/up-link.json")).unwrap();
        symlink("../outside.json", root.join("relative-escape.json")).unwrap();
        symlink(temp.path().join("outside.json"), root.join("absolute-escape.json")).unwrap();
        symlink("/", root.join("everything")).unwrap();
        symlink("loop.json", root.join("loop.json")).unwrap();
        let folder = ProfileFolder::new(&root);
        let shown = root.display().to_string();
        let escape = |path: &str| format!("seccomp profile {path:?} leaves the profile directory");
        for (path, expected) in [
            ("in.json", "{}".to_owned()),
            ("./sub/../in.json", "{}".to_owned()),
            ("inner-link.json", "{}".to_owned()),
            ("sub/up-link.json", "{}".to_owned()),
            ("relative-escape.json", escape("relative-escape.json")),
            ("absolute-escape.json", escape("absolute-escape.json")),
            ("everything/etc/passwd", escape("everything/etc/passwd")),
            ("../outside.json", escape("../outside.json")),
            ("sub/../../outside.json", escape("sub/../../outside.json")),
            ("/etc/passwd", escape("/etc/passwd")),
            ("loop.json", escape("loop.json")),
            (
                "absent.json",
                format!(
                    "cannot load seccomp profile \"{shown}/absent.json\": open {shown}/absent.json: no such file or directory"
                ),
            ),
            (
                "sub/folder",
                format!(
                    "cannot load seccomp profile \"{shown}/sub/folder\": read {shown}/sub/folder: is a directory"
                ),
            ),
            (
                "large.json",
                format!(
                    "seccomp profile {shown}/large.json has 1048577 bytes, more than the 1048576 a profile may have"
                ),
            ),
        ] {
            let found = match folder.read(path) {
                Ok(content) => String::from_utf8(content).unwrap(),
                Err(error) => error.to_string(),
            };
            assert_eq!(found, expected, "{path}");
        }
    }
}
