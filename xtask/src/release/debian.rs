//! A Debian package, without Debian's tools.
//!
//! Implements: deb(5) and deb-control(5): an `ar` archive with the format's version, the control files and the content.

use std::{collections::BTreeMap, fs};

use super::archive::gzip;
use crate::{
    Failure,
    image::{
        cannot,
        layer::{Entry, layer},
    },
    root,
};

/// What a package is made of.
pub(super) struct Package<'p> {
    pub(super) version: &'p str,
    pub(super) architecture: &'p str,
    pub(super) binary: &'p [u8],
    /// By paths below `/usr`.
    pub(super) shared: &'p BTreeMap<String, Vec<u8>>,
    pub(super) epoch: u64,
}

impl Package<'_> {
    pub(super) fn file_name(&self) -> String {
        format!("palisade_{}_{}.deb", self.version, self.architecture)
    }

    pub(super) fn pack(&self) -> Result<Vec<u8>, Failure> {
        let license = root().join("LICENSE");
        let license = fs::read(&license).map_err(|error| cannot("read", &license, &error))?;
        let mut files: BTreeMap<String, (u32, &[u8])> = BTreeMap::new();
        files.insert("usr/bin/palisade".to_owned(), (0o755, self.binary));
        files.insert("usr/share/doc/palisade/copyright".to_owned(), (0o644, &license));
        for (path, content) in self.shared {
            files.insert(format!("usr/{path}"), (0o644, content));
        }
        let bytes = files.values().map(|(_, content)| content.len()).sum();
        let control = [Entry::file("control", 0o644, self.control(bytes).into_bytes())];
        let content: Vec<Entry> =
            files.iter().map(|(path, (mode, content))| Entry::file(path, *mode, content.to_vec())).collect();
        let (control, content) = (gzip(&layer(&control, self.epoch))?, gzip(&layer(&content, self.epoch))?);
        let mut package = b"!<arch>\n".to_vec();
        for (name, content) in
            [("debian-binary", &b"2.0\n"[..]), ("control.tar.gz", &control), ("data.tar.gz", &content)]
        {
            // Name, time, owner, group, mode, size, end.
            let header = format!(
                "{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n",
                self.epoch,
                0,
                0,
                "100644",
                content.len()
            );
            package.extend(header.as_bytes());
            package.extend(content);
            if content.len() % 2 == 1 {
                package.push(b'\n');
            }
        }
        Ok(package)
    }

    fn control(&self, bytes: usize) -> String {
        format!(
            "Package: palisade\n\
             Version: {}\n\
             Architecture: {}\n\
             Maintainer: The Palisade authors\n\
             Installed-Size: {}\n\
             Section: admin\n\
             Priority: optional\n\
             Description: Pod security for Kubernetes, from the manifest to the kernel\n \
             Checks, explains and fixes manifests and Helm charts by the Pod Security Standards,\n \
             serves a local API server, enforces policy on a cluster, and verifies on the node\n \
             that the kernel applies it. The binary is static and needs no library.\n",
            self.version,
            self.architecture,
            bytes.div_ceil(1024),
        )
    }
}
