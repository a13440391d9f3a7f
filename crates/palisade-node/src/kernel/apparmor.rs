//! AppArmor on this host: whether it is there, which profiles are loaded, and how to load one.
//!
//! Implements: the kubelet's host check and its check of loaded profiles (`pkg/security/apparmor/validate.go`, which had
//! the latter until v1.23). Loading is left to `apparmor_parser`, which compiles for the kernel it runs on.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Stdio,
};

use thiserror::Error;
use tokio::{io::AsyncWriteExt as _, process::Command};

/// AppArmor, seen through sysfs and securityfs.
#[derive(Debug, Clone)]
pub struct AppArmor {
    sys: PathBuf,
}

/// Why a profile was not loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    /// There is no parser, or it could not be run.
    #[error("apparmor_parser could not be run")]
    Run(#[source] io::Error),
    /// The parser or the kernel refused the profile.
    #[error("apparmor_parser refused the profile: {0}")]
    Refused(String),
}

impl Default for AppArmor {
    fn default() -> Self {
        Self::below("/sys")
    }
}

impl AppArmor {
    /// AppArmor below a sysfs.
    pub fn below(sys: impl Into<PathBuf>) -> Self {
        Self { sys: sys.into() }
    }

    /// Whether the host enforces AppArmor: the kubelet's own test.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        let there = self.sys.join("kernel/security/apparmor").exists();
        let switch = fs::read(self.sys.join("module/apparmor/parameters/enabled")).unwrap_or_default();
        there && switch.len() > 1 && switch.first() == Some(&b'Y')
    }

    /// The names of the loaded profiles, sorted.
    pub fn loaded_profiles(&self) -> io::Result<Vec<String>> {
        let text = fs::read_to_string(self.sys.join("kernel/security/apparmor/profiles"))?;
        let mut names: Vec<_> = text.lines().filter_map(profile_name).collect();
        names.sort();
        Ok(names)
    }

    /// Whether a profile is loaded; `None` if the kernel does not report it.
    #[must_use]
    pub fn is_loaded(&self, name: &str) -> Option<bool> {
        self.loaded_profiles()
            .ok()
            .map(|names| names.binary_search_by(|known| known.as_str().cmp(name)).is_ok())
    }
}

/// A line is `name (mode)`; as for the kubelet, the name ends at the first parenthesis.
fn profile_name(line: &str) -> Option<String> {
    let name = line.split('(').next().unwrap_or(line).trim();
    (!name.is_empty()).then(|| name.to_owned())
}

/// Loads the profiles in a text, replacing those of the same names.
pub async fn load_profile(text: &str) -> Result<(), LoadError> {
    run_parser(Path::new("apparmor_parser"), text).await
}

async fn run_parser(parser: &Path, text: &str) -> Result<(), LoadError> {
    let mut child = Command::new(parser)
        .args(["--replace", "--skip-cache", "--quiet"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(LoadError::Run)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A parser that stops reading has the reason on its standard error.
        stdin.write_all(text.as_bytes()).await.ok();
    }
    let output = child.wait_with_output().await.map_err(LoadError::Run)?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(LoadError::Refused(if message.is_empty() { output.status.to_string() } else { message }))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{AppArmor, run_parser};

    #[test]
    fn is_enabled_only_with_both_signs() {
        for (case, folder, switch, expected) in [
            ("nothing", false, None, false),
            ("switch alone", false, Some("Y\n"), false),
            ("folder alone", true, None, false),
            ("switched off", true, Some("N\n"), false),
            ("one byte is not an answer", true, Some("Y"), false),
            ("on", true, Some("Y\n"), true),
        ] {
            let sys = tempfile::tempdir().unwrap();
            if folder {
                fs::create_dir_all(sys.path().join("kernel/security/apparmor")).unwrap();
            }
            if let Some(switch) = switch {
                fs::create_dir_all(sys.path().join("module/apparmor/parameters")).unwrap();
                fs::write(sys.path().join("module/apparmor/parameters/enabled"), switch).unwrap();
            }
            assert_eq!(AppArmor::below(sys.path()).is_enabled(), expected, "{case}");
        }
    }

    #[test]
    fn lists_loaded_profiles_by_name() {
        let sys = tempfile::tempdir().unwrap();
        let app_armor = AppArmor::below(sys.path());
        assert_eq!(app_armor.is_loaded("x"), None, "no file, no answer");
        fs::create_dir_all(sys.path().join("kernel/security/apparmor")).unwrap();
        let text = "snap.x (complain)\n/usr/sbin/ntpd (enforce)\n:ns://p (enforce)\n\n";
        fs::write(sys.path().join("kernel/security/apparmor/profiles"), text).unwrap();
        assert_eq!(app_armor.loaded_profiles().unwrap(), ["/usr/sbin/ntpd", ":ns://p", "snap.x"]);
        assert_eq!(app_armor.is_loaded("/usr/sbin/ntpd"), Some(true));
        assert_eq!(app_armor.is_loaded("snap"), Some(false));
    }

    #[tokio::test]
    async fn reports_the_message_of_the_parser() {
        let folder = tempfile::tempdir().unwrap();
        let parser = folder.path().join("parser");
        fs::write(&parser, "#!/bin/sh\ncat >/dev/null\necho 'syntax error' >&2\nexit 1\n").unwrap();
        let mut mode = fs::metadata(&parser).unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
        fs::set_permissions(&parser, mode).unwrap();
        let error = run_parser(&parser, "profile x {}").await.unwrap_err();
        assert_eq!(error.to_string(), "apparmor_parser refused the profile: syntax error");
        let error = run_parser(&folder.path().join("absent"), "").await.unwrap_err();
        assert_eq!(error.to_string(), "apparmor_parser could not be run");
    }
}
