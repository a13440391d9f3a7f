//! Paths of the node itself, and paths inside a volume that must stay inside.

use std::{
    fs,
    os::unix::fs::FileTypeExt as _,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Mode, OFlags, ResolveFlags, mkdirat, open, openat2},
    io::Errno,
};
use serde_json::Value;

/// A `hostPath`, checked against its type.
pub(super) fn host_path(volume: &Value) -> Result<PathBuf, String> {
    let text = volume.get("path").and_then(Value::as_str).unwrap_or_default();
    if !text.starts_with('/') || text.split('/').any(|part| part == "..") {
        return Err(format!("hostPath {text:?} is not an absolute path without '..'"));
    }
    let path = PathBuf::from(text);
    let metadata = fs::metadata(&path).ok();
    let failed = |what: &str| Err(format!("hostPath type check failed: {text} is not {what}"));
    let is =
        |check: fn(&fs::FileType) -> bool| metadata.as_ref().is_some_and(|found| check(&found.file_type()));
    match volume.get("type").and_then(Value::as_str).unwrap_or_default() {
        "" => {
            // The runtime makes a missing folder, as it does for the kubelet.
            if metadata.is_none() {
                fs::create_dir_all(&path).map_err(|error| error.to_string())?;
            }
        }
        "DirectoryOrCreate" => fs::create_dir_all(&path).map_err(|error| error.to_string())?,
        "FileOrCreate" if metadata.is_none() => {
            fs::File::create_new(&path).map_err(|error| error.to_string())?;
        }
        "FileOrCreate" | "File" if !is(fs::FileType::is_file) => return failed("a file"),
        "Directory" if !is(fs::FileType::is_dir) => return failed("a directory"),
        "Socket" if !is(fs::FileType::is_socket) => return failed("a socket file"),
        "CharDevice" if !is(fs::FileType::is_char_device) => return failed("a character device"),
        "BlockDevice" if !is(fs::FileType::is_block_device) => return failed("a block device"),
        "FileOrCreate" | "File" | "Directory" | "Socket" | "CharDevice" | "BlockDevice" => {}
        other => return Err(format!("unknown hostPath type {other:?}")),
    }
    Ok(path)
}

/// A path inside a volume. No symbolic link is followed: a container could have put it there.
pub(super) fn sub_path(volume: &Path, path: &str) -> Result<PathBuf, String> {
    let outside = || format!("subPath {path:?} leaves the volume");
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if path.starts_with('/') || parts.contains(&"..") {
        return Err(outside());
    }
    let root =
        open(volume, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(|error| error.to_string())?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let look = || openat2(&root, parts.join("/"), OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve);
    match look() {
        Ok(_) => {}
        Err(Errno::NOENT) => {
            let mut made = String::new();
            for part in &parts {
                made = if made.is_empty() { (*part).to_owned() } else { format!("{made}/{part}") };
                match mkdirat(&root, &made, Mode::from_raw_mode(0o750)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.to_string()),
                }
            }
            look().map_err(|_| outside())?;
        }
        Err(Errno::LOOP | Errno::XDEV) => return Err(outside()),
        Err(error) => return Err(error.to_string()),
    }
    Ok(volume.join(parts.join("/")))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::sub_path;

    #[test]
    fn a_sub_path_stays_inside() {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir_all(temp.path().join("v/in")).unwrap();
        symlink("/etc", temp.path().join("v/link")).unwrap();
        let volume = temp.path().join("v");
        for (path, inside) in [
            ("in", true),
            ("./in/", true),
            ("new/deep", true),
            ("../x", false),
            ("/etc", false),
            ("link", false),
            ("link/x", false),
        ] {
            assert_eq!(sub_path(&volume, path).is_ok(), inside, "{path}");
        }
        assert!(volume.join("new/deep").is_dir());
    }
}
