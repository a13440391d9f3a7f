//! The programs of Kubernetes, unpacked once for all tests.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Programs of Kubernetes' releases, packed in a folder.
pub struct Binaries {
    packed: PathBuf,
    unpacked: PathBuf,
}

impl Binaries {
    /// Those of a folder with `NAME.xz`, unpacked below `target` or in `KUBERNETES_BINARIES`.
    pub fn new(packed: PathBuf) -> Self {
        let target = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/kubernetes");
        let unpacked = env::var_os("KUBERNETES_BINARIES").map_or_else(target, PathBuf::from);
        fs::create_dir_all(&unpacked).unwrap();
        Self { packed, unpacked: unpacked.canonicalize().unwrap() }
    }

    /// The folder with the unpacked programs, for `PATH`.
    pub fn folder(&self) -> &Path {
        &self.unpacked
    }

    /// Where a program is; it is unpacked if it is not there yet, or older than its archive.
    pub fn path(&self, name: &str) -> PathBuf {
        let path = self.unpacked.join(name);
        let archive = self.packed.join(format!("{name}.xz"));
        if is_current(&path, &archive) {
            return path;
        }
        // Tests run side by side; one of them unpacks.
        let lock = fs::File::create(self.unpacked.join(format!(".{name}.lock"))).unwrap();
        lock.lock().unwrap();
        if !is_current(&path, &archive) {
            let part = self.unpacked.join(format!("{name}.part"));
            let file = fs::File::create(&part).unwrap();
            let unpacked =
                Command::new("xz").arg("-dc").arg(&archive).stdin(Stdio::null()).stdout(file).status();
            assert!(unpacked.unwrap().success(), "{} cannot be unpacked", archive.display());
            fs::set_permissions(&part, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
            fs::rename(&part, &path).unwrap();
        }
        path
    }
}

fn is_current(path: &Path, archive: &Path) -> bool {
    let changed = |path: &Path| path.metadata().and_then(|metadata| metadata.modified());
    match (changed(path), changed(archive)) {
        (Ok(path), Ok(archive)) => path >= archive,
        (path, _) => path.is_ok(),
    }
}
