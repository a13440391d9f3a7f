//! Profiles as files named by their content, on a tmpfs.
//!
//! A file is written whole or not at all, cannot be written to, and is believed only while its bytes have the hash that they had when
//! it was written. Everything happens relative to an open folder, so that it cannot be replaced in between.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd, AsRawFd as _, OwnedFd},
        unix::fs::{MetadataExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
};

use palisade_base::sha256;
use palisade_base::sha256::is_hex;
use palisade_model::profile::published::FOLDER;
use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, fstatfs, mkdirat, openat, renameat, unlinkat},
    io::Errno,
    mount::{MountFlags, mount},
};
use thiserror::Error;

use crate::profiles::MAX_PROFILE_BYTES;

const TMPFS_MAGIC: i64 = 0x0102_1994;
const READ_ONLY: u32 = 0o444;

/// Where profiles go.
#[derive(Debug, Clone)]
pub struct Place {
    /// The folder of the node's seccomp profiles, `<root-dir>/seccomp`.
    pub seccomp_root: PathBuf,
    /// How large the tmpfs may become, in bytes.
    pub size: u64,
}

/// Why there is no folder to write to.
#[derive(Debug, Error)]
pub enum FolderError {
    /// It is not on a tmpfs, and we may not mount one.
    #[error("{path} is not on a tmpfs, and none can be mounted there: {source}")]
    NotMounted {
        /// The folder.
        path: String,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The system refused.
    #[error("{path}: {source}")]
    Io {
        /// The folder.
        path: String,
        /// The error of the system.
        source: io::Error,
    },
}

/// What stands where a profile should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Found {
    /// The profile, unchanged.
    Intact,
    /// Nothing.
    Deleted,
    /// A file with other bytes, or one that can be written to.
    Changed,
    /// A link, a folder, or anything else that is no file.
    Replaced,
}

impl Place {
    /// The folder that belongs to us.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.seccomp_root.join(FOLDER)
    }

    /// Opens the folder; makes it, and mounts the tmpfs, where that is still to be done.
    pub fn open(&self) -> Result<Folder, FolderError> {
        let path = self.path();
        let failed = |source: io::Error| FolderError::Io { path: path.display().to_string(), source };
        fs::create_dir_all(&self.seccomp_root).map_err(failed)?;
        let folder = self.open_existing().map_err(failed)?;
        if on_tmpfs(&folder).map_err(failed)? {
            return Ok(Folder { fd: folder, fresh: false });
        }
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        let options = std::ffi::CString::new(format!("mode=0755,size={}", self.size)).unwrap_or_default();
        mount("palisade", &path, "tmpfs", flags, options.as_c_str()).map_err(|error| {
            FolderError::NotMounted { path: path.display().to_string(), source: error.into() }
        })?;
        Ok(Folder { fd: self.open_existing().map_err(failed)?, fresh: true })
    }

    fn open_existing(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, &self.seccomp_root, flags, Mode::empty())?;
        let open = || openat(&root, FOLDER, flags | OFlags::NOFOLLOW, Mode::empty());
        match open() {
            Ok(folder) => return Ok(folder),
            Err(Errno::NOENT) => {}
            // A link or a file where our folder should be: it must not decide where profiles go.
            Err(Errno::LOOP | Errno::NOTDIR) => unlinkat(&root, FOLDER, AtFlags::empty())?,
            Err(error) => return Err(error.into()),
        }
        mkdirat(&root, FOLDER, Mode::from_raw_mode(0o755))?;
        Ok(open()?)
    }
}

fn on_tmpfs(folder: &OwnedFd) -> io::Result<bool> {
    Ok(fstatfs(folder)?.f_type == TMPFS_MAGIC)
}

/// The open folder.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    /// Whether the tmpfs was mounted just now, and so is empty.
    pub fresh: bool,
}

impl AsFd for Folder {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Folder {
    /// A path to it for those system calls that take nothing else.
    #[must_use]
    pub fn proc_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.fd.as_raw_fd()))
    }

    /// Which folder this is, whatever it is called.
    pub fn identity(&self) -> io::Result<(u64, u64)> {
        let found = rustix::fs::fstat(&self.fd)?;
        Ok((found.st_dev, found.st_ino))
    }

    /// Every name in it.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let mut names: Vec<String> = fs::read_dir(self.proc_path())?
            .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
            .collect::<io::Result<_>>()?;
        names.sort();
        Ok(names)
    }

    /// Puts a profile in place, under what it is published as.
    pub fn write(&self, published: &str, content: &[u8]) -> io::Result<()> {
        let fresh = format!(".{}", uuid::Uuid::new_v4().simple());
        let written =
            self.write_aside(&fresh, content).and_then(|()| self.rename(&fresh, &file_name(published)));
        if written.is_err() {
            // A file half written has a temporary name, and does not stay.
            unlinkat(&self.fd, &fresh, AtFlags::empty()).ok();
        }
        written
    }

    fn write_aside(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(READ_ONLY);
        let mut file = File::from(openat(&self.fd, name, flags, mode)?);
        file.write_all(content)?;
        // Whatever the process' mask takes away or leaves.
        file.set_permissions(fs::Permissions::from_mode(READ_ONLY))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        match renameat(&self.fd, from, &self.fd, to) {
            Err(Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST) => {
                self.remove(to)?;
                Ok(renameat(&self.fd, from, &self.fd, to)?)
            }
            result => Ok(result?),
        }
    }

    /// Removes whatever has this name; that it is gone already is fine.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.fd, name, AtFlags::empty()) {
            Err(Errno::ISDIR) => fs::remove_dir_all(self.proc_path().join(name)),
            Err(Errno::NOENT) => Ok(()),
            result => Ok(result?),
        }
    }

    /// Looks whether a profile is as it was written: with the bytes that have this hash.
    pub fn inspect(&self, published: &str, applied: &str) -> io::Result<Found> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match openat(&self.fd, file_name(published), flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(Found::Deleted),
            // A link, a socket, a device without a driver.
            Err(Errno::LOOP | Errno::NXIO | Errno::NODEV) => return Ok(Found::Replaced),
            Err(error) => return Err(error.into()),
        };
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Ok(Found::Replaced);
        }
        let ours = metadata.uid() == rustix::process::geteuid().as_raw();
        if !ours || metadata.mode() & 0o7777 != READ_ONLY || metadata.nlink() != 1 {
            return Ok(Found::Changed);
        }
        let mut content = Vec::new();
        file.take(MAX_PROFILE_BYTES as u64 + 1).read_to_end(&mut content)?;
        Ok(if sha256::hex(&content) == applied { Found::Intact } else { Found::Changed })
    }
}

/// The name of a profile's file.
#[must_use]
pub fn file_name(sha256: &str) -> String {
    format!("{sha256}.json")
}

/// The profile a file's name stands for.
#[must_use]
pub fn profile_of(name: &str) -> Option<&str> {
    name.strip_suffix(".json").filter(|hash| is_hex(hash))
}

/// Whether a name is one of those files are written under: an agent that was killed leaves one.
#[must_use]
pub fn is_leftover(name: &str) -> bool {
    name.strip_prefix('.')
        .is_some_and(|rest| rest.len() == 32 && rest.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Whether a failure means that the file system is full.
#[must_use]
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Prepares the folder, in the init container that may mount.
pub fn prepare(seccomp_root: &Path, size: u64) -> Result<(), FolderError> {
    Place { seccomp_root: seccomp_root.to_owned(), size }.open().map(drop)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn folder(path: &Path) -> Folder {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Folder { fd: openat(CWD, path, flags, Mode::empty()).unwrap(), fresh: false }
    }

    #[test]
    fn files_are_replaced_whole_and_cannot_be_written() {
        let temp = tempfile::tempdir().unwrap();
        let folder = folder(temp.path());
        let hash = sha256::hex(b"{}");
        folder.write(&hash, b"{}").unwrap();
        folder.write(&hash, b"{}").unwrap();
        let path = temp.path().join(file_name(&hash));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o444);
        assert_eq!(fs::read(&path).unwrap(), b"{}");
        assert_eq!(folder.names().unwrap(), [file_name(&hash)], "and nothing beside them");
        assert_eq!(folder.inspect(&hash, &hash).unwrap(), Found::Intact);
        let applied = sha256::hex(b"[]");
        assert_eq!(folder.inspect(&hash, &applied).unwrap(), Found::Changed, "made of another baseline");
        folder.write(&hash, b"[]").unwrap();
        assert_eq!(folder.inspect(&hash, &applied).unwrap(), Found::Intact);
    }

    #[test]
    fn whatever_stands_in_its_place_is_found_out_and_replaced() {
        let temp = tempfile::tempdir().unwrap();
        let folder = folder(temp.path());
        let hash = sha256::hex(b"{}");
        let path = temp.path().join(file_name(&hash));
        let elsewhere = temp.path().join("elsewhere");
        fs::write(&elsewhere, "{}").unwrap();
        let tampers: [(&str, &dyn Fn(), Found); 8] = [
            ("deleted", &|| (), Found::Deleted),
            ("other bytes", &|| fs::write(&path, "{ }").unwrap(), Found::Changed),
            (
                "more bytes than a profile may have",
                &|| fs::write(&path, vec![b' '; MAX_PROFILE_BYTES + 2]).unwrap(),
                Found::Changed,
            ),
            ("can be written to", &|| fs::write(&path, "{}").unwrap(), Found::Changed),
            ("a link to the same bytes", &|| symlink(&elsewhere, &path).unwrap(), Found::Replaced),
            ("another name for a file", &|| fs::hard_link(&elsewhere, &path).unwrap(), Found::Changed),
            ("a folder", &|| fs::create_dir_all(path.join("x")).unwrap(), Found::Replaced),
            (
                "a pipe, which must not be waited for",
                &|| assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success()),
                Found::Replaced,
            ),
        ];
        for (case, tamper, expected) in tampers {
            folder.write(&hash, b"{}").unwrap();
            folder.remove(&file_name(&hash)).unwrap();
            tamper();
            assert_eq!(folder.inspect(&hash, &hash).unwrap(), expected, "{case}");
            folder.write(&hash, b"{}").unwrap();
            assert_eq!(folder.inspect(&hash, &hash).unwrap(), Found::Intact, "{case}, repaired");
            assert_eq!(fs::read(&elsewhere).unwrap(), b"{}", "{case}: nothing was written through it");
        }
    }

    #[test]
    fn a_link_where_the_folder_should_be_leads_nowhere() {
        let temp = tempfile::tempdir().unwrap();
        let place = Place { seccomp_root: temp.path().join("seccomp"), size: 1 << 20 };
        fs::create_dir_all(&place.seccomp_root).unwrap();
        let trap = temp.path().join("trap");
        fs::create_dir(&trap).unwrap();
        symlink(&trap, place.path()).unwrap();
        place.open_existing().unwrap();
        assert!(place.path().symlink_metadata().unwrap().is_dir());
        assert!(trap.exists());
    }
}
