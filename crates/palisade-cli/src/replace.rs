//! A file gets a new content: all of it or none, with the same mode and owner.
//!
//! The text is written to a temporary file in the same folder, brought to disk, and renamed over the old one. A link
//! is followed to the file it names, so that it stays a link.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use thiserror::Error;

/// Why a file was left as it is.
#[derive(Debug, Error)]
pub enum ReplaceError {
    /// It has changed since it was read.
    #[error("the file has changed since it was read")]
    Changed,
    /// Only UTF-8 is written.
    #[error("the file is in UTF-16, and only UTF-8 is written")]
    Utf16,
    /// It cannot be written.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Replaces the content of a file that was `old` when it was read.
pub fn replace(path: &Path, old: &[u8], new: &[u8]) -> Result<(), ReplaceError> {
    let target: PathBuf = path.canonicalize()?;
    // A rename needs only the folder to be writable; a file that is read-only is so for a reason.
    rustix::fs::access(&target, rustix::fs::Access::WRITE_OK).map_err(io::Error::from)?;
    let metadata = fs::metadata(&target)?;
    let folder = target.parent().unwrap_or(Path::new("/"));
    let mut temporary = tempfile::Builder::new().prefix(".palisade-").tempfile_in(folder)?;
    temporary.write_all(new)?;
    let file = temporary.as_file();
    let made = file.metadata()?;
    if (made.uid(), made.gid()) != (metadata.uid(), metadata.gid()) {
        std::os::unix::fs::fchown(file, Some(metadata.uid()), Some(metadata.gid()))?;
    }
    // After the owner, because changing that clears bits of the mode.
    file.set_permissions(metadata.permissions())?;
    file.sync_all()?;
    if fs::read(&target)? != old {
        return Err(ReplaceError::Changed);
    }
    temporary.persist(&target).map_err(|error| error.error)?;
    // The rename is on disk once its folder is; not every file system supports this.
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::{ReplaceError, replace};

    #[test]
    fn keeps_mode_and_link_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("real.yaml");
        let link = folder.path().join("link.yaml");
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("real.yaml", &link).unwrap();

        replace(&link, b"old", b"new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o640);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn does_not_overwrite_concurrent_changes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.yaml");
        fs::write(&file, "theirs").unwrap();
        assert!(matches!(replace(&file, b"ours", b"new"), Err(ReplaceError::Changed)));
        assert_eq!(fs::read_to_string(&file).unwrap(), "theirs");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
