//! Images made of a static busybox, as OCI archives for `ctr images import`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    missing_docs,
    reason = "tests fail by panicking, and this is a part of them"
)]

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use palisade_base::sha256;
use serde_json::{Value, json};

const APPLETS: [&str; 31] = [
    "sh", "sleep", "id", "mkdir", "cat", "echo", "ls", "true", "false", "touch", "chmod", "chown", "kill",
    "ps", "grep", "test", "env", "mount", "hostname", "stat", "trap", "nc", "unshare", "stty", "tar",
    "httpd", "wget", "head", "tail", "date", "rm",
];

pub fn busybox() -> PathBuf {
    ["/bin/busybox", "/usr/bin/busybox"].into_iter().map(PathBuf::from).find(|path| path.exists()).expect(
        "busybox is missing: apt-get install --no-install-recommends containerd runc busybox-static containernetworking-plugins",
    )
}

/// What is in an image besides busybox and a few users.
#[derive(Debug, Default)]
pub struct Image<'a> {
    pub name: &'a str,
    pub user: &'a str,
    pub entrypoint: &'a [&'a str],
    pub command: &'a [&'a str],
    /// Files of this machine, and where they are in the image.
    pub files: Vec<(PathBuf, PathBuf)>,
    /// Further lines of `/etc/passwd`.
    pub users: &'a str,
    /// Further lines of `/etc/group`.
    pub groups: &'a str,
}

impl Image<'_> {
    /// Adds a program of this machine with the libraries that it loads.
    pub fn add_program(&mut self, program: &Path) {
        let listed = Command::new("ldd").arg(program).output().unwrap();
        let text = String::from_utf8_lossy(&listed.stdout);
        let libraries = text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from);
        self.files.extend(libraries.chain([program.to_owned()]).map(|path| (path.clone(), path)));
    }
}

/// Writes an archive with one image: busybox, a few users, and the user and command given.
pub fn archive(folder: &Path, name: &str, user: &str, command: &[&str]) -> PathBuf {
    write(folder, &Image { name, user, command, ..Image::default() })
}

/// Writes an archive with an image.
pub fn write(folder: &Path, image: &Image<'_>) -> PathBuf {
    let Image { name, user, entrypoint, command, files, users, groups } = image;
    let work = folder.join(format!("image-{}", name.replace(['/', ':'], "_")));
    let root = work.join("root");
    for part in ["bin", "etc", "tmp", "dev", "proc", "sys"] {
        fs::create_dir_all(root.join(part)).unwrap();
    }
    fs::copy(busybox(), root.join("bin/busybox")).unwrap();
    for applet in APPLETS {
        symlink("busybox", root.join("bin").join(applet)).unwrap();
    }
    for (source, path) in files {
        let path = root.join(path.strip_prefix("/").unwrap());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::copy(source, path).unwrap();
    }
    fs::set_permissions(root.join("tmp"), std::os::unix::fs::PermissionsExt::from_mode(0o1777)).unwrap();
    let passwd = format!("root:x:0:0::/:/bin/sh\nweb:x:1234:5678::/:/bin/sh\n{users}");
    fs::write(root.join("etc/passwd"), passwd).unwrap();
    let group = format!("root:x:0:\nweb:x:5678:\nextra:x:777:web\n{groups}");
    fs::write(root.join("etc/group"), group).unwrap();

    let layout = work.join("layout");
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let layer = work.join("layer.tar");
    run(Command::new("tar")
        .args(["--owner=0", "--group=0", "--numeric-owner", "-C"])
        .arg(&root)
        .arg("-cf")
        .arg(&layer)
        .arg("."));
    let put = |content: &[u8]| {
        let digest = sha256::hex(content);
        fs::write(blobs.join(&digest), content).unwrap();
        (format!("sha256:{digest}"), content.len())
    };
    let (layer_digest, layer_size) = put(&fs::read(&layer).unwrap());
    let config = json!({"architecture": "amd64", "os": "linux",
        "config": {"User": user, "Entrypoint": entrypoint, "Cmd": command, "Env": ["PATH=/bin:/usr/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [layer_digest]}});
    let (config_digest, config_size) = put(config.to_string().as_bytes());
    let descriptor = |kind: &str, digest: &str, size: usize| -> Value {
        json!({"mediaType": format!("application/vnd.oci.image.{kind}"), "digest": digest, "size": size})
    };
    let manifest = json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("config.v1+json", &config_digest, config_size),
        "layers": [descriptor("layer.v1.tar", &layer_digest, layer_size)]});
    let (manifest_digest, manifest_size) = put(manifest.to_string().as_bytes());
    let mut entry = descriptor("manifest.v1+json", &manifest_digest, manifest_size);
    entry["annotations"] =
        json!({"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name});
    fs::write(layout.join("index.json"), json!({"schemaVersion": 2, "manifests": [entry]}).to_string())
        .unwrap();
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    let archive = work.join("image.tar");
    run(Command::new("tar").arg("-C").arg(&layout).arg("-cf").arg(&archive).arg("."));
    archive
}

pub fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
