//! A file in memory that cannot be changed.
//!
//! Implements: "No persistence to disk" of the ConfigMap profile design, with a memory file sealed against writing,
//! growing, shrinking and unsealing (memfd_create(2), fcntl(2) `F_ADD_SEALS`).

use std::{fs::File, io, io::Write as _, os::fd::AsRawFd as _};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};

/// A sealed memory file. It lives as long as this value, or as long as another process has it open.
#[derive(Debug)]
pub struct SealedFile {
    file: File,
}

impl SealedFile {
    /// Every seal that keeps the content what it is.
    pub const SEALS: SealFlags =
        SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::WRITE);

    /// A memory file with this content. The name is for people who look at `/proc/PID/fd`.
    pub fn new(name: &str, content: &[u8]) -> io::Result<Self> {
        let mut file = File::from(memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
        file.write_all(content)?;
        fcntl_add_seals(&file, Self::SEALS)?;
        Ok(Self { file })
    }

    /// Where another process of this node, root as we are, finds the file.
    #[must_use]
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// The seals in force.
    pub fn seals(&self) -> io::Result<SealFlags> {
        Ok(fcntl_get_seals(&self.file)?)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write as _};

    use super::SealedFile;

    #[test]
    fn a_sealed_file_cannot_be_changed() {
        let sealed = SealedFile::new("profile", b"{}").unwrap();
        assert_eq!(sealed.seals().unwrap(), SealedFile::SEALS);
        assert_eq!(fs::read(sealed.path()).unwrap(), b"{}");
        // A process that opens it again, root included, cannot write.
        let mut again = fs::OpenOptions::new().write(true).open(sealed.path()).unwrap();
        assert_eq!(again.write(b"x").unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
        assert!(again.set_len(0).is_err() && again.set_len(10).is_err());
        assert_eq!(fs::read(sealed.path()).unwrap(), b"{}");
    }

    #[test]
    fn the_file_is_gone_with_its_owner() {
        let path = SealedFile::new("profile", b"{}").unwrap().path();
        let target = fs::read_link(&path).ok();
        assert!(target.is_none_or(|target| !target.to_string_lossy().contains("memfd:profile")));
    }
}
