//! AppArmor on this host: whether it is there, which profiles are loaded, and how to load one.
//!
//! Implements: the kubelet's host check and its check of loaded profiles (`pkg/security/apparmor/validate.go`, which had
//! the latter until v1.23). Compiling is left to `apparmor_parser`, which compiles for the kernel it runs on.

#![allow(unsafe_code, reason = "no safe call changes the root or the limits of a process before it begins")]

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::CString,
    fs,
    io::{self, Write as _},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
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
    /// The parser took longer than a profile needs.
    #[error("apparmor_parser took longer than {} s", COMPILES_WITHIN.as_secs())]
    Slow,
    /// What the profile compiles to is larger than the kernel is to hold.
    #[error("the compiled profile has {size} bytes, more than {MAX_POLICY}")]
    Large {
        /// Its size.
        size: usize,
    },
}

/// How long a profile may take to compile.
const COMPILES_WITHIN: Duration = Duration::from_secs(30);
/// How many seconds of a processor, and how much memory, compiling may take.
const COMPILER_LIMITS: (libc::rlim_t, libc::rlim_t) = (5, 1 << 30);
/// The largest compiled profile.
const MAX_POLICY: usize = 1 << 20;

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

    /// The loaded profiles with their modes.
    pub fn modes(&self) -> io::Result<BTreeMap<String, String>> {
        let text = fs::read_to_string(self.sys.join("kernel/security/apparmor/profiles"))?;
        Ok(text.lines().filter_map(|line| Some((profile_name(line)?, mode(line).to_owned()))).collect())
    }

    /// Loads a compiled profile, in place of one of the same name: processes that run with that go on with this one.
    pub fn replace(&self, policy: &[u8]) -> io::Result<()> {
        let mut file =
            fs::File::options().write(true).open(self.sys.join("kernel/security/apparmor/.replace"))?;
        // The kernel takes a policy in one piece.
        match file.write(policy)? {
            written if written == policy.len() => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    /// Removes a profile. Processes that run with it are unconfined from then on.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        fs::write(self.sys.join("kernel/security/apparmor/.remove"), name)
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

fn mode(line: &str) -> &str {
    line.rsplit_once('(').map_or("", |(_, mode)| mode.trim_end().trim_end_matches(')'))
}

/// The profiles of every process, and those that it is about to change to.
pub fn profiles_of_processes(proc: &Path) -> io::Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(proc)? {
        let entry = entry?;
        if !entry.file_name().as_bytes().iter().all(u8::is_ascii_digit) {
            continue;
        }
        for file in ["attr/apparmor/current", "attr/apparmor/exec", "attr/current", "attr/exec"] {
            let label = match fs::read(entry.path().join(file)) {
                Ok(label) => label,
                // It has ended, or the kernel does not have the file, or the attribute belongs to another module.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::EINVAL)) => continue,
                Err(error) => return Err(error),
            };
            let label = String::from_utf8_lossy(&label);
            let stacked = label.trim_end_matches(['\n', '\0']).split("//&");
            found.extend(stacked.filter_map(profile_name));
        }
    }
    Ok(found)
}

/// `apparmor_parser`, which compiles a profile without loading it.
#[derive(Debug, Clone)]
pub struct Parser {
    /// The root of the file system that has it, with its libraries and settings; ours if not set.
    root: Option<PathBuf>,
}

impl Parser {
    /// The parser of a file system: of the node, for an agent that runs in a container.
    #[must_use]
    pub const fn below(root: Option<PathBuf>) -> Self {
        Self { root }
    }

    /// Compiles a profile for the kernel of this machine. The text may be made to take long, so time and memory are limited.
    pub async fn compile(&self, text: &str) -> Result<Vec<u8>, LoadError> {
        let root = match &self.root {
            None => None,
            Some(root) => {
                let root = CString::new(root.as_os_str().as_bytes())
                    .map_err(|error| LoadError::Run(error.into()))?;
                Some(root)
            }
        };
        let mut command = Command::new("apparmor_parser");
        command
            .args(["--stdout", "--skip-cache", "--quiet"])
            .env_clear()
            .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
        // SAFETY: the closure runs in the child between fork and exec, and makes nothing but system calls: it allocates no memory
        // and takes no lock. What it refers to was made before the fork.
        unsafe {
            command.pre_exec(move || confine(root.as_deref()));
        }
        let policy = tokio::time::timeout(COMPILES_WITHIN, output_of(command, text))
            .await
            .map_err(|_| LoadError::Slow)??;
        match policy.len() {
            0 => Err(LoadError::Refused("it compiles to nothing".to_owned())),
            size if size > MAX_POLICY => Err(LoadError::Large { size }),
            _ => Ok(policy),
        }
    }
}

/// Changes the root of this process, and limits it.
fn confine(root: Option<&std::ffi::CStr>) -> io::Result<()> {
    let (seconds, memory) = COMPILER_LIMITS;
    for (resource, most) in [
        (libc::RLIMIT_CPU, seconds),
        (libc::RLIMIT_AS, memory),
        (libc::RLIMIT_CORE, 0),
        (libc::RLIMIT_FSIZE, 0),
    ] {
        let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
        // SAFETY: the pointer is to a value on the stack that outlives the call.
        if unsafe { libc::setrlimit(resource, &raw const limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    if let Some(root) = root {
        // SAFETY: both are pointers to strings that end with a zero and outlive the calls.
        if unsafe { libc::chroot(root.as_ptr()) != 0 || libc::chdir(c"/".as_ptr()) != 0 } {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Loads the profiles in a text, replacing those of the same names.
pub async fn load_profile(text: &str) -> Result<(), LoadError> {
    run_parser(Path::new("apparmor_parser"), text).await
}

async fn run_parser(parser: &Path, text: &str) -> Result<(), LoadError> {
    let mut command = Command::new(parser);
    command.args(["--replace", "--skip-cache", "--quiet"]);
    output_of(command, text).await.map(drop)
}

/// What a parser writes for a text.
async fn output_of(mut command: Command, text: &str) -> Result<Vec<u8>, LoadError> {
    let mut child = command
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
        return Ok(output.stdout);
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(LoadError::Refused(if message.is_empty() { output.status.to_string() } else { message }))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{AppArmor, LoadError, Parser, profiles_of_processes, run_parser};

    #[test]
    fn finds_the_profiles_of_processes() {
        let proc = tempfile::tempdir().unwrap();
        for (process, file, label) in [
            ("1", "attr/current", "unconfined\n"),
            ("2", "attr/apparmor/current", "palisade/shop/web (enforce)\n"),
            ("3", "attr/apparmor/exec", "palisade/shop/next (complain)"),
            ("4", "attr/current", "a//&palisade/shop/both (enforce)\n"),
            ("self", "attr/current", "palisade/shop/other (enforce)\n"),
        ] {
            let path = proc.path().join(process).join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, label).unwrap();
        }
        let found = profiles_of_processes(proc.path()).unwrap();
        let found: Vec<&str> = found.iter().map(String::as_str).collect();
        assert_eq!(
            found,
            ["a", "palisade/shop/both", "palisade/shop/next", "palisade/shop/web", "unconfined"]
        );
        fs::create_dir_all(proc.path().join("5/attr/current")).unwrap();
        assert!(profiles_of_processes(proc.path()).is_err(), "a label that cannot be read is not none");
    }

    #[tokio::test]
    async fn a_root_without_a_parser_compiles_nothing() {
        let root = tempfile::tempdir().unwrap();
        let parser = Parser::below(Some(root.path().to_owned()));
        let error = parser.compile("profile x {}").await.unwrap_err();
        assert!(matches!(error, LoadError::Run(_)), "{error}");
    }

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
