//! User names and passwords of registries, as `docker login` and pull secrets hold them.
//!
//! Implements: `config.json` of Docker (`auths`), the Secret types `kubernetes.io/dockerconfigjson` and `kubernetes.io/dockercfg`, and
//! how a kubelet matches their keys: the host with its port, `*` for a whole label, and a path as a prefix.
//! <https://kubernetes.io/docs/concepts/containers/images/#config-json>
//!
//! Credential helpers are programs, and not run.

use std::{collections::BTreeMap, fmt};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use palisade_model::{json, profile::artifact::Repository};
use serde::Deserialize;
use thiserror::Error;

/// A user name and a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user.
    pub username: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("username", &self.username).finish_non_exhaustive()
    }
}

/// Why a document holds no credentials that can be used.
#[derive(Debug, Error)]
pub enum CredentialsError {
    /// Not a document of this form.
    #[error("is not a Docker configuration: {0}")]
    Form(#[from] serde_json::Error),
    /// Not base64 of a name, a colon and a password.
    #[error("auths[{0:?}].auth is not base64 of <user>:<password>")]
    Auth(String),
}

/// Everything that is known about registries.
#[derive(Debug, Clone, Default)]
pub struct Keyring {
    entries: Vec<Entry>,
    /// Registries whose credentials a program has.
    helpers: BTreeMap<String, String>,
    every_helper: Option<String>,
}

#[derive(Debug, Clone)]
struct Entry {
    host: String,
    path: String,
    credentials: Credentials,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Document {
    auths: BTreeMap<String, Auth>,
    cred_helpers: BTreeMap<String, String>,
    creds_store: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Auth {
    #[serde(rename = "auth")]
    encoded: Option<String>,
    username: Option<String>,
    password: Option<String>,
}

impl Keyring {
    /// Adds what a `config.json` holds, which is also the content of a Secret `kubernetes.io/dockerconfigjson`.
    pub fn add_config(&mut self, content: &[u8]) -> Result<(), CredentialsError> {
        let Document { auths, cred_helpers, creds_store } = json::from_slice(content)?;
        self.helpers.extend(cred_helpers);
        self.every_helper = creds_store.filter(|name| !name.is_empty()).or(self.every_helper.take());
        self.add(auths)
    }

    /// Adds what a Secret `kubernetes.io/dockercfg` holds: the same without `auths` around it.
    pub fn add_legacy_config(&mut self, content: &[u8]) -> Result<(), CredentialsError> {
        let auths = json::from_slice(content)?;
        self.add(auths)
    }

    fn add(&mut self, auths: BTreeMap<String, Auth>) -> Result<(), CredentialsError> {
        for (key, auth) in auths {
            let Some(credentials) = credentials(&key, auth)? else { continue };
            let (host, path) = place(&key);
            self.entries.push(Entry { host, path, credentials });
        }
        Ok(())
    }

    /// What may open a repository: the longest path first, in the order of the documents besides.
    #[must_use]
    pub fn matching(&self, repository: &Repository) -> Vec<Credentials> {
        let mut found: Vec<&Entry> = self
            .entries
            .iter()
            .filter(|entry| {
                hosts_match(&entry.host, &repository.registry) && is_prefix(&entry.path, &repository.path)
            })
            .collect();
        found.sort_by_key(|entry| std::cmp::Reverse(entry.path.len()));
        found.into_iter().map(|entry| entry.credentials.clone()).collect()
    }

    /// The program that has the credentials of a registry, if the documents hold none.
    #[must_use]
    pub fn helper(&self, repository: &Repository) -> Option<&str> {
        let helper = self.helpers.get(&repository.registry).or(self.every_helper.as_ref());
        helper.map(String::as_str).filter(|_| self.matching(repository).is_empty())
    }
}

/// `None` for an entry without a password: `docker login` leaves one where a helper has it.
fn credentials(key: &str, auth: Auth) -> Result<Option<Credentials>, CredentialsError> {
    let Some(encoded) = auth.encoded.filter(|encoded| !encoded.is_empty()) else {
        let both = auth.username.zip(auth.password);
        return Ok(both.map(|(username, password)| Credentials { username, password }));
    };
    let wrong = || CredentialsError::Auth(key.to_owned());
    let decoded = STANDARD.decode(encoded.trim()).map_err(|_| wrong())?;
    let text = String::from_utf8(decoded).map_err(|_| wrong())?;
    let (username, password) = text.split_once(':').ok_or_else(wrong)?;
    let password = password.trim_end_matches('\0');
    Ok(Some(Credentials { username: username.to_owned(), password: password.to_owned() }))
}

/// Host and path of a key, which may be an address of an API: `https://index.docker.io/v1/`.
fn place(key: &str) -> (String, String) {
    let rest = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let path = path.trim_matches('/');
    let path = if matches!(path, "v1" | "v2") { "" } else { path };
    let host = if host == "index.docker.io" { "docker.io" } else { host };
    (host.to_owned(), path.to_owned())
}

/// A `*` stands for one whole label, never for several.
fn hosts_match(pattern: &str, registry: &str) -> bool {
    let registry = if registry == "index.docker.io" { "docker.io" } else { registry };
    if !pattern.contains('*') {
        return pattern == registry;
    }
    let (wanted, found): (Vec<_>, Vec<_>) = (pattern.split('.').collect(), registry.split('.').collect());
    // A port is part of the last label, and must be the same.
    wanted.len() == found.len()
        && wanted
            .iter()
            .zip(&found)
            .all(|(wanted, found)| wanted == found || (*wanted == "*" && !found.contains(':')))
}

fn is_prefix(prefix: &str, path: &str) -> bool {
    prefix.is_empty()
        || path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use palisade_model::profile::artifact::PushTarget;

    use super::*;

    fn users(keyring: &Keyring, repository: &str) -> Vec<String> {
        let repository = PushTarget::parse(repository).unwrap().repository;
        keyring.matching(&repository).into_iter().map(|found| found.username).collect()
    }

    #[test]
    fn credentials_are_for_the_registry_that_they_name() {
        let entry = |user: &str| format!(r#"{{"auth":"{}"}}"#, STANDARD.encode(format!("{user}:p:w")));
        let document = format!(
            r#"{{"auths":{{"registry.example.com":{},"registry.example.com/team":{},"https://registry.example.com:5000/v2/":{},
            "*.wild.example.com":{},"https://index.docker.io/v1/":{},"plain.example.com":{{"username":"plain","password":"x"}},
            "helped.example.com":{{}}}},"credHelpers":{{"helped.example.com":"pass"}}}}"#,
            entry("whole"),
            entry("team"),
            entry("port"),
            entry("wild"),
            entry("hub"),
        );
        let mut keyring = Keyring::default();
        keyring.add_config(document.as_bytes()).unwrap();
        for (repository, expected) in [
            ("registry.example.com/a", &["whole"][..]),
            ("registry.example.com/team/a", &["team", "whole"]),
            ("registry.example.com/teammate/a", &["whole"]),
            ("registry.example.com:5000/team/a", &["port"]),
            ("registry.example.com:5001/a", &[]),
            ("registry.example.com.evil.org/a", &[]),
            ("evil.org/registry.example.com/a", &[]),
            ("a.wild.example.com/a", &["wild"]),
            ("a.b.wild.example.com/a", &[]),
            ("wild.example.com/a", &[]),
            ("docker.io/library/a", &["hub"]),
            ("plain.example.com/a", &["plain"]),
            ("helped.example.com/a", &[]),
        ] {
            assert_eq!(users(&keyring, repository), expected, "{repository}");
        }
        let helped = PushTarget::parse("helped.example.com/a").unwrap().repository;
        assert_eq!(keyring.helper(&helped), Some("pass"));
        let whole = PushTarget::parse("registry.example.com/a").unwrap().repository;
        assert_eq!(keyring.matching(&whole)[0].password, "p:w");
        assert_eq!(format!("{:?}", keyring.matching(&whole)[0]), r#"Credentials { username: "whole", .. }"#);
    }

    #[test]
    fn the_older_secret_has_no_auths() {
        let mut keyring = Keyring::default();
        keyring.add_legacy_config(br#"{"registry.example.com":{"username":"a","password":"b"}}"#).unwrap();
        assert_eq!(users(&keyring, "registry.example.com/x"), ["a"]);
    }

    #[test]
    fn documents_that_cannot_be_read_are_errors() {
        for (text, expected) in [
            ("", "is not a Docker configuration"),
            ("[]", "is not a Docker configuration"),
            (r#"{"auths":[]}"#, "is not a Docker configuration"),
            (r#"{"auths":{"a":{"auth":"%"}}}"#, r#"auths["a"].auth is not base64"#),
            (r#"{"auths":{"a":{"auth":"YQ=="}}}"#, r#"auths["a"].auth is not base64"#),
        ] {
            let error = Keyring::default().add_config(text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
