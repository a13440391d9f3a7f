//! Paths of the node itself, and paths inside a volume that must stay inside.

use std::{
    fs,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::fs::FileTypeExt as _,
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, open, openat2},
    io::Errno,
    mount::{UnmountFlags, mount_bind, unmount},
};
use serde_json::Value;

use super::VolumeProblem;

/// A `hostPath`, checked against its type.
pub(super) fn host_path(volume: &Value) -> Result<PathBuf, VolumeProblem> {
    let text = volume.get("path").and_then(Value::as_str).unwrap_or_default();
    if !text.starts_with('/') || text.split('/').any(|part| part == "..") {
        return Err(VolumeProblem::HostPath(text.to_owned()));
    }
    let path = PathBuf::from(text);
    let metadata = fs::metadata(&path).ok();
    let failed = |what| Err(VolumeProblem::HostPathType { path: text.to_owned(), what });
    let is =
        |check: fn(&fs::FileType) -> bool| metadata.as_ref().is_some_and(|found| check(&found.file_type()));
    match volume.get("type").and_then(Value::as_str).unwrap_or_default() {
        "" => {
            // The runtime makes a missing folder, as it does for the kubelet.
            if metadata.is_none() {
                fs::create_dir_all(&path)?;
            }
        }
        "DirectoryOrCreate" => fs::create_dir_all(&path)?,
        "FileOrCreate" if metadata.is_none() => {
            fs::File::create_new(&path)?;
        }
        "FileOrCreate" | "File" if !is(fs::FileType::is_file) => return failed("a file"),
        "Directory" if !is(fs::FileType::is_dir) => return failed("a directory"),
        "Socket" if !is(fs::FileType::is_socket) => return failed("a socket file"),
        "CharDevice" if !is(fs::FileType::is_char_device) => return failed("a character device"),
        "BlockDevice" if !is(fs::FileType::is_block_device) => return failed("a block device"),
        "FileOrCreate" | "File" | "Directory" | "Socket" | "CharDevice" | "BlockDevice" => {}
        other => return Err(VolumeProblem::UnknownHostPathType(other.to_owned())),
    }
    Ok(path)
}

/// A path inside a volume, made visible at `target`. The kernel keeps the way to it inside the volume, and what is
/// mounted is the very file that was found: a container that can write to the volume cannot put a link in its place
/// afterwards (CVE-2017-1002101).
pub(super) fn sub_path(volume: &Path, path: &str, target: &Path) -> Result<(), VolumeProblem> {
    let found = open_inside(volume, path)?;
    let is_dir = FileType::from_raw_mode(fstat(&found)?.st_mode) == FileType::Directory;
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent)?;
    }
    // A restarted container sees what is there now, not what its predecessor saw.
    while unmount(target, UnmountFlags::DETACH).is_ok() {}
    let made = if is_dir { fs::create_dir(target) } else { fs::File::create_new(target).map(drop) };
    match made {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error.into()),
        _ => {}
    }
    Ok(mount_bind(format!("/proc/self/fd/{}", found.as_raw_fd()), target)?)
}

fn open_inside(volume: &Path, path: &str) -> Result<OwnedFd, VolumeProblem> {
    let outside = || VolumeProblem::SubPathOutside(path.to_owned());
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if path.starts_with('/') || parts.contains(&"..") || parts.is_empty() {
        return Err(outside());
    }
    let root = open(volume, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let look = |path: &str| openat2(&root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve);
    let wanted = parts.join("/");
    match look(&wanted) {
        Ok(found) => return Ok(found),
        Err(Errno::NOENT) => {}
        Err(Errno::LOOP | Errno::XDEV) => return Err(outside()),
        Err(error) => return Err(error.into()),
    }
    // What is missing is made, one folder at a time, each below one that is inside.
    let mut made = String::new();
    for part in &parts {
        let parent = if made.is_empty() { ".".to_owned() } else { made.clone() };
        let parent = look(&parent).map_err(|_| outside())?;
        match mkdirat(&parent, *part, Mode::from_raw_mode(0o750)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        made = if made.is_empty() { (*part).to_owned() } else { format!("{made}/{part}") };
    }
    look(&wanted).map_err(|_| outside())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::open_inside;

    #[test]
    fn a_sub_path_stays_inside() {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir_all(temp.path().join("v/in")).unwrap();
        symlink("/etc", temp.path().join("v/link")).unwrap();
        symlink("in", temp.path().join("v/inner")).unwrap();
        let volume = temp.path().join("v");
        for (path, inside) in [
            ("in", true),
            ("./in/", true),
            ("inner", true),
            ("new/deep", true),
            ("../x", false),
            ("/etc", false),
            ("link", false),
            ("link/x", false),
            ("", false),
        ] {
            assert_eq!(open_inside(&volume, path).is_ok(), inside, "{path}");
        }
        assert!(volume.join("new/deep").is_dir());
    }
}
