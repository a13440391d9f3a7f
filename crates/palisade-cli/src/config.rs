//! `palisade.toml`: the settings of a project.
//!
//! Found in the working folder or the closest parent that has one. Options on the command line win. Paths and
//! patterns are relative to the file's folder.
//!
//! ```toml
//! level = "restricted"             # privileged, baseline or restricted
//! policy-version = "v1.35"         # or "latest"
//! kubernetes-version = "v1.35"     # or "extended"
//! namespace = "shop"               # of objects that do not set one
//! strict = false                   # objects of kinds that are not checked are errors
//! exclude = ["vendor/**"]          # paths to exclude
//! output = ["human", "sarif=palisade.sarif"]
//!
//! [severity]                       # error, warning or off, for a code or a prefix such as "annotation/*"
//! "annotation/deprecated" = "off"
//!
//! [[ignore]]                       # findings that are accepted
//! paths = ["monitoring/**"]
//! codes = ["pss/hostPathVolumes"]
//! reason = "node exporter reads the node's file systems"
//! until = "2027-01-31"
//! ```

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use jiff::civil::Date;
use palisade_model::{compat::Compat, spelling::nearest};
use palisade_policy::standards::level::{Level, LevelVersion, Version};
use serde::{Deserialize, Deserializer, de};
use thiserror::Error;

use crate::{
    args::{ApiVersion, FeatureGate},
    diagnostic::{Code, Severity, codes},
    failure::Failure,
    judge::{Configured, Settings},
    render::Output,
    suppression::Terms,
};

/// The file's name.
pub const FILE_NAME: &str = "palisade.toml";

/// Why a configuration cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file named by the user cannot be read.
    #[error("cannot read {path}", path = .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is not TOML, or has unknown keys or values.
    #[error("{path} is not a valid configuration", path = .path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Why, with the place.
        #[source]
        source: Box<toml::de::Error>,
    },
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::input(error)
    }
}

/// The content of the file.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct Config {
    /// Level of the standards.
    #[serde(deserialize_with = "parsed")]
    pub level: Option<Level>,
    /// Version of the standards.
    #[serde(deserialize_with = "policy_version")]
    pub policy_version: Option<Version>,
    /// The API server.
    #[serde(deserialize_with = "parsed")]
    pub kubernetes_version: Option<ApiVersion>,
    /// Namespace of objects that name none.
    pub namespace: Option<String>,
    /// Whether objects without a pod are errors.
    pub strict: bool,
    /// Paths to leave out.
    pub exclude: Vec<String>,
    /// Output formats.
    #[serde(deserialize_with = "all_parsed")]
    pub output: Vec<Output>,
    /// Severities of codes.
    #[serde(deserialize_with = "known_codes")]
    pub severity: BTreeMap<String, SeverityOrOff>,
    /// Accepted findings.
    pub ignore: Vec<Accepted>,
    /// Kinds of the user's own, and where they hold pods.
    pub workload: Vec<Configured>,
    /// The folder the patterns are relative to.
    #[serde(skip)]
    pub folder: PathBuf,
}

/// A severity, or none at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SeverityOrOff {
    /// Decides the exit status.
    Error,
    /// Does not.
    Warning,
    /// Is not reported.
    Off,
}

impl From<SeverityOrOff> for Option<Severity> {
    fn from(severity: SeverityOrOff) -> Self {
        match severity {
            SeverityOrOff::Error => Some(Severity::Error),
            SeverityOrOff::Warning => Some(Severity::Warning),
            SeverityOrOff::Off => None,
        }
    }
}

/// An entry of `ignore`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accepted {
    /// Where; everywhere if left out.
    #[serde(default)]
    pub paths: Vec<String>,
    /// Which codes.
    pub codes: Vec<String>,
    /// Why.
    #[serde(deserialize_with = "not_empty")]
    pub reason: String,
    /// The last day it holds.
    #[serde(default, deserialize_with = "parsed")]
    pub until: Option<Date>,
}

fn parsed<'de, D: Deserializer<'de>, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(|error| de::Error::custom(format!("{text:?}: {error}")))
}

fn policy_version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Version>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let version = crate::args::policy_version(&text);
    version.map(Some).map_err(|error| de::Error::custom(format!("{text:?}: {error}")))
}

fn all_parsed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Output>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts
        .iter()
        .map(|text| text.parse().map_err(|error| de::Error::custom(format!("{text:?}: {error}"))))
        .collect()
}

/// A code that does not exist changes nothing, and should be noticed.
fn known_codes<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, SeverityOrOff>, D::Error> {
    let severities = BTreeMap::<String, SeverityOrOff>::deserialize(deserializer)?;
    let known: Vec<Code> = codes().collect();
    match severities.keys().find(|pattern| !known.iter().any(|code| code.matches(pattern))) {
        None => Ok(severities),
        Some(unknown) => {
            let near = nearest(unknown, known.iter().map(Code::as_str));
            let near = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
            Err(de::Error::custom(format!("there is no code {unknown:?}{near}")))
        }
    }
}

fn not_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.trim().is_empty() { Err(de::Error::custom("a reason is required")) } else { Ok(text) }
}

/// What the command line chooses; it wins over the file.
#[derive(Debug, Clone, Default)]
pub struct Chosen {
    /// Level of the standards.
    pub level: Option<Level>,
    /// Version of the standards.
    pub policy_version: Option<Version>,
    /// The API server.
    pub kubernetes_version: Option<ApiVersion>,
    /// Its feature gates.
    pub feature_gates: Vec<FeatureGate>,
    /// Namespace of objects that name none.
    pub namespace: Option<String>,
    /// Whether objects without a pod are errors.
    pub strict: bool,
}

impl Config {
    /// The rules: the command line wins over the file, and both over what a cluster announces.
    #[must_use]
    pub fn settings(&self, chosen: &Chosen, announced: Option<Compat>, today: Date) -> Settings {
        let level = chosen.level.or(self.level).unwrap_or(Level::Restricted);
        let version = chosen.policy_version.or(self.policy_version).unwrap_or(Version::Latest);
        let ApiVersion(compat) = chosen
            .kubernetes_version
            .or(self.kubernetes_version)
            .or(announced.map(ApiVersion))
            .unwrap_or_default();
        let compat = FeatureGate::apply(&chosen.feature_gates, compat);
        let mut settings = Settings::new(LevelVersion::new(level, version), compat, today);
        settings.namespace = chosen.namespace.clone().or_else(|| self.namespace.clone());
        settings.strict = chosen.strict || self.strict;
        settings.severities =
            self.severity.iter().map(|(code, &severity)| (code.clone(), severity.into())).collect();
        settings
    }

    /// The file named by the user, or the closest one; nothing set if there is none.
    pub fn find(named: Option<&Path>) -> Result<Self, ConfigError> {
        let path = match named {
            Some(path) => path.to_owned(),
            None => match closest() {
                Some(path) => path,
                None => return Ok(Self::default()),
            },
        };
        let text = fs::read_to_string(&path)
            .map_err(|source| ConfigError::Unreadable { path: path.clone(), source })?;
        let mut config: Self = toml::from_str(&text)
            .map_err(|source| ConfigError::Invalid { path: path.clone(), source: Box::new(source) })?;
        config.folder = absolute(&path).parent().map(Path::to_owned).unwrap_or_default();
        Ok(config)
    }

    /// Whether a path is left out.
    #[must_use]
    pub fn excludes(&self, path: &Path) -> bool {
        !self.exclude.is_empty() && self.matches(&self.exclude, path)
    }

    /// What is accepted in a file.
    #[must_use]
    pub fn accepted_in(&self, path: &Path) -> Vec<Terms> {
        self.ignore
            .iter()
            .filter(|entry| entry.paths.is_empty() || self.matches(&entry.paths, path))
            .map(|entry| Terms {
                codes: entry.codes.clone(),
                reason: entry.reason.clone(),
                until: entry.until,
            })
            .collect()
    }

    fn matches(&self, patterns: &[String], path: &Path) -> bool {
        let absolute = absolute(path);
        let relative = absolute.strip_prefix(&self.folder).unwrap_or(&absolute);
        patterns.iter().any(|pattern| glob_matches(pattern, relative))
    }
}

/// The path from the root, by its components alone, without access to the disk: this is done for every file.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).components() {
        match component {
            std::path::Component::ParentDir => {
                plain.pop();
            }
            std::path::Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

/// The configuration in a folder, or in the closest parent that has one.
#[must_use]
pub fn closest_to(folder: &Path) -> Option<PathBuf> {
    folder.ancestors().map(|above| above.join(FILE_NAME)).find(|path| path.is_file())
}

/// The closest `palisade.toml`.
pub(crate) fn closest() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    // Relative, so that messages name it as the user would.
    let mut up = PathBuf::new();
    for _ in here.ancestors() {
        let path = up.join(FILE_NAME);
        if path.is_file() {
            return Some(path);
        }
        up.push("..");
    }
    None
}

/// Whether a pattern names a path or one of its parents: `*` and `?` stay within a name, `**` spans folders, and a
/// pattern without a slash is looked for at any depth.
#[must_use]
pub fn glob_matches(pattern: &str, path: &Path) -> bool {
    let names: Vec<_> = path
        .components()
        .filter_map(|component| match component {
            std::path::Component::Normal(name) => Some(name.to_string_lossy()),
            _ => None,
        })
        .collect();
    let anchored = pattern.trim_end_matches('/').contains('/');
    let mut parts: Vec<&str> = pattern.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if !anchored {
        parts.insert(0, "**");
    }
    // A folder that matches takes along what is in it.
    (1..=names.len()).any(|end| parts_match(&parts, names.get(..end).unwrap_or_default()))
}

fn parts_match(parts: &[&str], names: &[std::borrow::Cow<'_, str>]) -> bool {
    match (parts.split_first(), names.split_first()) {
        (None, None) => true,
        (Some((&"**", rest)), _) => {
            parts_match(rest, names)
                || names.split_first().is_some_and(|(_, below)| parts_match(parts, below))
        }
        (Some((part, rest)), Some((name, below))) => {
            name_matches(part.as_bytes(), name.as_bytes()) && parts_match(rest, below)
        }
        _ => false,
    }
}

fn name_matches(pattern: &[u8], name: &[u8]) -> bool {
    // The classic walk: remember the last star, and go back to it.
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(&b) if b == b'?' || Some(&b) == name.get(n) => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    p = at + 1;
                    n = from + 1;
                    star = Some((at, from + 1));
                }
                None => return false,
            },
        }
    }
    pattern.get(p..).unwrap_or_default().iter().all(|&b| b == b'*')
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Config, glob_matches};

    #[test]
    fn patterns_match_paths_and_everything_below() {
        for (pattern, path, expected) in [
            ("vendor/**", "vendor/a/b.yaml", true),
            ("vendor", "vendor/a/b.yaml", true),
            ("vendor", "x/vendor/a.yaml", true),
            ("/vendor", "x/vendor/a.yaml", false),
            ("./vendor", "vendor/a.yaml", true),
            ("*.tmpl.yaml", "a/b/c.tmpl.yaml", true),
            ("a/*.yaml", "a/b/c.yaml", false),
            ("a/**/*.yaml", "a/b/c.yaml", true),
            ("a/**/*.yaml", "a/c.yaml", true),
            ("a?c.yaml", "abc.yaml", true),
            ("*a*b*c", "xxaxxbxxc", true),
            ("*a*b*c", "xxaxxbxx", false),
        ] {
            assert_eq!(glob_matches(pattern, Path::new(path)), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn the_documented_example_is_valid() {
        let source = include_str!("config.rs");
        let example: String = source
            .lines()
            .skip_while(|line| *line != "//! ```toml")
            .skip(1)
            .take_while(|line| *line != "//! ```")
            .flat_map(|line| [line.trim_start_matches("//!"), "\n"])
            .collect();
        let config: Config = toml::from_str(&example).unwrap();
        assert_eq!(config.ignore.len(), 1);
        assert_eq!(config.output.len(), 2);
    }

    #[test]
    fn rejects_unknown_keys_and_missing_reasons() {
        for text in [
            "levle = \"baseline\"",
            "level = \"strict\"",
            "[[ignore]]\ncodes = [\"pss/*\"]",
            "[[ignore]]\ncodes = [\"pss/*\"]\nreason = \" \"",
            "[severity]\n\"pss/*\" = \"fatal\"",
            "[severity]\n\"pss/privilegd\" = \"off\"",
            "[severity]\n\"annotations/*\" = \"off\"",
            "output = [\"xml\"]",
        ] {
            assert!(toml::from_str::<Config>(text).is_err(), "{text}");
        }
    }
}
