//! A registry of the test's own, on a loopback address: Debian's `docker-registry`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    missing_docs,
    reason = "tests fail by panicking, and this is a part of them"
)]

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, Command, Stdio},
};

/// The user of a registry that wants one.
pub const USER: &str = "tenant";
/// The user's password.
pub const PASSWORD: &str = "secret";
/// The same as the registry reads it; it takes no other form than bcrypt.
const HTPASSWD: &str = "tenant:$2b$04$hBHTT5LIWziENlV8pJ4P7unGnPvlHngn8Ttd.Y9u8B9jG8sJCvsKe\n";

/// Whether a registry wants to know who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Anybody,
    /// [`USER`] with [`PASSWORD`].
    WithPassword,
}

/// A registry that ends with the test.
#[derive(Debug)]
pub struct DockerRegistry {
    /// Host and port, as in references.
    pub name: String,
    child: Child,
    _folder: tempfile::TempDir,
}

impl DockerRegistry {
    #[must_use]
    pub fn start(access: Access) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let users = folder.path().join("htpasswd");
        fs::write(&users, HTPASSWD).unwrap();
        let auth = match access {
            Access::Anybody => String::new(),
            Access::WithPassword => {
                format!("auth: {{htpasswd: {{realm: test, path: {}}}}}\n", users.display())
            }
        };
        let settings = folder.path().join("config.yml");
        let text = format!(
            "version: 0.1\nlog: {{level: info}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: '127.0.0.1:0'}}\n{auth}",
            folder.path().join("data").display()
        );
        fs::write(&settings, text).unwrap();
        let mut child = Command::new("docker-registry")
            .arg("serve")
            .arg(&settings)
            .env("OTEL_TRACES_EXPORTER", "none")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("docker-registry, of the package of the same name");
        // It logs the port that the system gave it.
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut log = Vec::new();
        let name = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let name = line.split_once("listening on ").map(|(_, rest)| {
                rest.chars().take_while(|c| c.is_ascii_digit() || matches!(c, '.' | ':')).collect::<String>()
            });
            log.push(line);
            name
        });
        let name = name.unwrap_or_else(|| panic!("docker-registry does not listen:\n{}", log.join("\n")));
        // What it logs later must not stop it.
        std::thread::spawn(move || lines.for_each(drop));
        Self { name, child, _folder: folder }
    }

    /// The `config.json` with which it can be used.
    #[must_use]
    pub fn docker_config(&self) -> String {
        format!(r#"{{"auths":{{"{}":{{"username":"{USER}","password":"{PASSWORD}"}}}}}}"#, self.name)
    }
}

impl DockerRegistry {
    /// Puts any manifest into a repository that has its blobs; its digest.
    #[must_use]
    pub fn put_manifest(&self, repository: &str, manifest: &str) -> String {
        let mut stream = TcpStream::connect(&self.name).unwrap();
        let head = format!(
            "PUT /v2/{repository}/manifests/any HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n\
             Content-Type: application/vnd.oci.image.manifest.v1+json\r\n\r\n",
            self.name,
            manifest.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(manifest.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let digest = answer.lines().find_map(|line| line.strip_prefix("Docker-Content-Digest: "));
        digest.unwrap_or_else(|| panic!("the registry takes no manifest: {answer}")).trim().to_owned()
    }
}

impl Drop for DockerRegistry {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
