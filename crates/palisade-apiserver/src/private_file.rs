//! Files with secrets: keys, kubeconfigs, the database.
//!
//! A secret is written to a new file with a random name in the same folder (`O_EXCL`, mode 0600), brought to disk, and
//! renamed. A file, link or hard link that another user prepared at the target or at a guessed temporary name is
//! replaced or never touched, but never written to and never followed.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;
use tempfile::NamedTempFile;

const OWNER_ONLY: u32 = 0o600;

/// Writes a file that only its owner may read, replacing an older one in one step.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut temporary = create_beside(path)?;
    temporary.write_all(content)?;
    replace(temporary, path)
}

/// An empty file in the folder of `path`, under a name that cannot be guessed.
pub(crate) fn create_beside(path: &Path) -> io::Result<NamedTempFile> {
    let temporary = tempfile::Builder::new().prefix(".palisade-").tempfile_in(folder_of(path))?;
    // By descriptor: the name may mean another file by now.
    temporary.as_file().set_permissions(Permissions::from_mode(OWNER_ONLY))?;
    Ok(temporary)
}

/// Brings a file made by [`create_beside`] to disk and to its name.
pub(crate) fn replace(temporary: NamedTempFile, path: &Path) -> io::Result<()> {
    temporary.as_file().sync_all()?;
    temporary.persist(path).map_err(|error| error.error)?;
    // The rename is durable once its folder is; not every file system can sync one.
    if let Ok(folder) = File::open(folder_of(path)) {
        let _ = folder.sync_all();
    }
    Ok(())
}

/// Reads a file with a secret; `None` if there is none. A link, or a file that another user owns or may open, is
/// rejected: its content could be theirs.
pub fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match OpenOptions::new().read(true).custom_flags(no_follow()).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    check(&file)?;
    let mut content = Vec::new();
    { file }.read_to_end(&mut content)?;
    Ok(Some(content))
}

/// Opens a file for reading and writing, made with mode 0600 if it is missing, and keeps its content.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.mode(OWNER_ONLY).custom_flags(no_follow()).open(path)
}

/// Rejects a file that is not a regular one, or that others own or may open.
fn check(file: &File) -> io::Result<()> {
    let found = file.metadata()?;
    let denied = |why: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    if !found.is_file() {
        return denied("not a regular file".to_owned());
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return denied(format!("owned by another user (uid {})", found.uid()));
    }
    let mode = found.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return denied(format!("accessible to other users (mode {mode:04o}); remove it or set mode 0600"));
    }
    Ok(())
}

fn no_follow() -> i32 {
    // The flag fits: it is a C int.
    i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or_default()
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn writes_and_overwrites_its_own_file_with_mode_0600() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        for content in ["first", "second and longer", "3"] {
            write(&path, content.as_bytes()).unwrap();
            assert_eq!(read(&path).unwrap().unwrap(), content.as_bytes());
            assert_eq!(mode(&path), 0o600);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
        assert_eq!(read(&folder.path().join("missing")).unwrap(), None);
    }

    #[test]
    fn replaces_a_file_that_was_prepared_with_a_wide_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        for prepared in ["secret", "secret.new"] {
            let prepared = folder.path().join(prepared);
            fs::write(&prepared, "theirs").unwrap();
            fs::set_permissions(&prepared, Permissions::from_mode(0o666)).unwrap();
        }
        let held_open = File::open(&path).unwrap();
        write(&path, b"ours").unwrap();
        assert_eq!(mode(&path), 0o600);
        assert_eq!(io::read_to_string(held_open).unwrap(), "theirs", "an open descriptor sees the old file");
        assert_eq!(fs::read_to_string(folder.path().join("secret.new")).unwrap(), "theirs");
    }

    #[test]
    fn follows_no_link_at_the_target_or_at_the_old_temporary_name() {
        let folder = tempfile::tempdir().unwrap();
        let victim = folder.path().join("victim");
        fs::write(&victim, "untouched").unwrap();
        for (case, name) in [("target", "secret"), ("temporary name", "secret.new")] {
            let link = folder.path().join(name);
            let _ = fs::remove_file(&link);
            symlink(&victim, &link).unwrap();
            write(&folder.path().join("secret"), b"ours").unwrap();
            assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched", "{case}");
            assert!(fs::symlink_metadata(folder.path().join("secret")).unwrap().is_file(), "{case}");
        }
        let dangling = folder.path().join("dangling");
        symlink(folder.path().join("elsewhere"), &dangling).unwrap();
        write(&dangling, b"ours").unwrap();
        assert!(!folder.path().join("elsewhere").exists());
    }

    #[test]
    fn a_hard_link_to_the_target_never_shares_the_secret() {
        let folder = tempfile::tempdir().unwrap();
        let (path, theirs) = (folder.path().join("secret"), folder.path().join("theirs"));
        fs::write(&theirs, "old").unwrap();
        fs::hard_link(&theirs, &path).unwrap();
        write(&path, b"ours").unwrap();
        assert_eq!(fs::read_to_string(&theirs).unwrap(), "old");
    }

    #[test]
    fn reads_no_secret_that_others_may_have_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        write(&path, b"ours").unwrap();
        let link = folder.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(read(&link).is_err(), "a link");
        for wide in [0o644, 0o660, 0o602] {
            fs::set_permissions(&path, Permissions::from_mode(wide)).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains("accessible to other users"), "{error}");
        }
        assert!(read(folder.path()).is_err(), "a folder");
    }

    #[test]
    fn opens_no_link() {
        let folder = tempfile::tempdir().unwrap();
        let (victim, link) = (folder.path().join("victim"), folder.path().join("lock"));
        fs::write(&victim, "untouched").unwrap();
        symlink(&victim, &link).unwrap();
        assert!(open(&link).is_err());
        assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
        assert_eq!(
            mode(&{
                let path = folder.path().join("new");
                open(&path).unwrap();
                path
            }),
            0o600
        );
    }
}
