//! What git knows about the files of a folder: which it ignores, which it tracks all the same, and which changed.
//!
//! Implements: `gitignore(5)` by the crate `ignore`, and the index format, versions 2 to 4.
//! <https://git-scm.com/docs/index-format>
//! A file that is tracked is part of the repository whatever a `.gitignore` says, so it is checked. Where the index cannot be read,
//! nothing is ignored.

use std::{
    collections::{BTreeSet, HashSet},
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};
use thiserror::Error;
use walkdir::WalkDir;

use crate::failure::Failure;

/// A repository on disk.
#[derive(Debug)]
struct Repository {
    root: PathBuf,
    folder: PathBuf,
}

impl Repository {
    /// The repository whose top folder this is.
    fn at(root: &Path) -> Option<Self> {
        let dot_git = root.join(".git");
        // swallowed: a folder whose .git cannot be looked at is searched as if it had none
        let metadata = fs::metadata(&dot_git).ok()?;
        let folder = if metadata.is_dir() {
            dot_git
        } else {
            // A worktree or a submodule: the file says where the rest is.
            // swallowed: as above
            let text = fs::read_to_string(&dot_git).ok()?;
            root.join(text.strip_prefix("gitdir:")?.trim())
        };
        Some(Self { root: root.to_owned(), folder })
    }

    /// The tracked files, relative to the top folder; `None` if that cannot be told.
    fn tracked(&self) -> Option<Vec<PathBuf>> {
        match fs::read(self.folder.join("index")) {
            Ok(bytes) => read_index(&bytes),
            // Nothing was ever added.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(Vec::new()),
            Err(_) => None,
        }
    }
}

/// What applies from a folder on.
#[derive(Debug)]
enum Rules {
    /// The patterns of a `.gitignore`.
    Patterns(Box<Gitignore>),
    /// Another repository, to which the patterns of the folders above do not apply.
    Repository { is_known: bool },
}

/// The rules of the folders that a search has entered.
#[derive(Debug, Default)]
pub struct Ignored {
    rules: Vec<(PathBuf, Rules)>,
    tracked: Vec<PathBuf>,
}

impl Ignored {
    /// The rules that apply to a folder, from the top of its repository on.
    #[must_use]
    pub fn around(folder: &Path) -> Self {
        let mut ignored = Self::default();
        // swallowed: a folder that cannot be resolved is reported by the search itself
        let Ok(absolute) = folder.canonicalize() else { return ignored };
        let Some(repository) = absolute.ancestors().find_map(Repository::at) else { return ignored };
        let root = repository.root.clone();
        ignored.enter_repository(&repository);
        let Ok(below) = absolute.strip_prefix(&root) else { return ignored };
        let mut here = root.clone();
        let mut parents = vec![here.clone()];
        for name in below.components() {
            here.push(name);
            parents.push(here.clone());
        }
        // The folder itself is read when the search enters it.
        parents.pop();
        for parent in parents {
            ignored.read_patterns(&parent);
        }
        ignored
    }

    /// Reads the rules of a folder that the search enters.
    pub fn enter(&mut self, folder: &Path) {
        while self.rules.last().is_some_and(|(of, _)| !folder.starts_with(of)) {
            self.rules.pop();
        }
        let is_root =
            self.rules.iter().any(|(of, rules)| of == folder && matches!(rules, Rules::Repository { .. }));
        if !is_root && let Some(repository) = Repository::at(folder) {
            self.enter_repository(&repository);
        }
        self.read_patterns(folder);
    }

    fn enter_repository(&mut self, repository: &Repository) {
        let tracked = repository.tracked();
        self.rules.push((repository.root.clone(), Rules::Repository { is_known: tracked.is_some() }));
        self.tracked.extend(tracked.into_iter().flatten().map(|path| repository.root.join(path)));
        self.read(&repository.root, &repository.folder.join("info/exclude"));
    }

    fn read_patterns(&mut self, folder: &Path) {
        self.read(folder, &folder.join(".gitignore"));
    }

    fn read(&mut self, folder: &Path, file: &Path) {
        // Outside a repository, and where the index cannot be read, nothing is ignored.
        let applies = self
            .rules
            .iter()
            .rev()
            .find_map(|(_, rules)| match rules {
                Rules::Repository { is_known } => Some(*is_known),
                Rules::Patterns(_) => None,
            })
            .unwrap_or(false);
        if !applies || !file.is_file() {
            return;
        }
        let mut builder = GitignoreBuilder::new(folder);
        // A pattern that cannot be read ignores nothing; git does the same.
        drop(builder.add(file));
        // swallowed: as above
        if let Ok(patterns) = builder.build() {
            self.rules.push((folder.to_owned(), Rules::Patterns(Box::new(patterns))));
        }
    }

    /// Whether git ignores a path below the folders that were entered.
    #[must_use]
    pub fn ignores(&self, path: &Path, is_folder: bool) -> bool {
        for (folder, rules) in self.rules.iter().rev() {
            if !path.starts_with(folder) {
                continue;
            }
            match rules {
                Rules::Repository { .. } => return false,
                Rules::Patterns(patterns) => match patterns.matched(path, is_folder) {
                    Match::Ignore(_) => return true,
                    Match::Whitelist(_) => return false,
                    Match::None => {}
                },
            }
        }
        false
    }

    /// The tracked files of the repositories that were entered, ignored or not.
    #[must_use]
    pub fn tracked(&self) -> &[PathBuf] {
        &self.tracked
    }
}

/// Why it is not known what changed.
#[derive(Debug, Error)]
pub enum GitError {
    /// The program `git` cannot be run.
    #[error("cannot run git")]
    NotRun(#[source] io::Error),
    /// A path is in no repository.
    #[error("{path} is not in a git repository, so it is not known what changed", path = .0.display())]
    NoRepository(PathBuf),
    /// There is no such commit.
    #[error("there is no commit {reference:?} in {root}; a clone in CI may need a fetch of it", root = .root.display())]
    UnknownReference {
        /// What the user wrote.
        reference: String,
        /// The repository.
        root: PathBuf,
    },
    /// The two have no common ancestor, or it was not fetched.
    #[error("{reference:?} and HEAD have no common ancestor in {root}; a shallow clone needs `git fetch --unshallow`", root = .root.display())]
    NoMergeBase {
        /// What the user wrote.
        reference: String,
        /// The repository.
        root: PathBuf,
    },
    /// A command of git failed.
    #[error("git {command} failed: {reason}")]
    Failed {
        /// The command.
        command: String,
        /// What git printed.
        reason: String,
    },
}

impl From<GitError> for Failure {
    fn from(error: GitError) -> Self {
        match error {
            GitError::NotRun(_) | GitError::Failed { .. } => Self::incomplete(error),
            error => Self::input(error),
        }
    }
}

/// The files that did not change since a commit.
///
/// A file is left out of a check only if git tracks it and reports no difference to the merge base, in the index or on disk. So what
/// git does not track counts as changed, and so does what a link that is not tracked leads to.
#[derive(Debug)]
pub struct ChangedSince {
    repositories: Vec<RepositoryChanges>,
}

#[derive(Debug)]
struct RepositoryChanges {
    root: PathBuf,
    unchanged: HashSet<PathBuf>,
    /// Submodules at the commit of the merge base, without changes of their own.
    unchanged_modules: Vec<PathBuf>,
    /// Paths that differ, deleted ones included.
    changed: BTreeSet<PathBuf>,
}

impl ChangedSince {
    /// Asks git about the repositories of the paths.
    pub fn of(paths: &[PathBuf], reference: &str) -> Result<Self, GitError> {
        let mut roots = BTreeSet::new();
        for path in paths {
            // swallowed: a path that does not exist is reported when it is read
            let Ok(absolute) = path.canonicalize() else { continue };
            let folder =
                if absolute.is_dir() { absolute.as_path() } else { absolute.parent().unwrap_or(&absolute) };
            let output = git(folder, &["rev-parse", "--show-toplevel"])?;
            if !output.status.success() {
                return Err(GitError::NoRepository(path.clone()));
            }
            let root = output.stdout.strip_suffix(b"\n").unwrap_or(&output.stdout);
            let root = PathBuf::from(OsStr::from_bytes(root));
            roots.insert(root.canonicalize().unwrap_or(root));
        }
        let repositories = roots.into_iter().map(|root| RepositoryChanges::read(root, reference));
        Ok(Self { repositories: repositories.collect::<Result<_, _>>()? })
    }

    /// Whether a file may have changed.
    #[must_use]
    pub fn file(&self, path: &Path) -> bool {
        // swallowed: what cannot be looked at is reported when it is read
        let Ok(target) = path.canonicalize() else { return true };
        let written = crate::config::absolute(path);
        !self.is_unchanged(&target) || written.ancestors().any(|part| self.is_other_link(part))
    }

    /// Whether a path is a link of one of the repositories that may have led elsewhere.
    fn is_other_link(&self, path: &Path) -> bool {
        let (Some(folder), Some(name), true) = (path.parent(), path.file_name(), path.is_symlink()) else {
            return false;
        };
        // swallowed: what cannot be looked at is reported when it is read
        let Ok(folder) = folder.canonicalize() else { return true };
        let own = folder.join(name);
        self.repositories.iter().any(|repository| own.starts_with(&repository.root))
            && !self.is_unchanged(&own)
    }

    /// Whether a file of a folder may have changed, been added or deleted.
    #[must_use]
    pub fn folder(&self, path: &Path) -> bool {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        // swallowed: as for files
        let Ok(folder) = path.canonicalize() else { return true };
        let differs = |repository: &RepositoryChanges| {
            let mut after = repository.changed.range(folder.clone()..);
            after.next().is_some_and(|changed| changed.starts_with(&folder))
                || repository.changed.iter().any(|changed| folder.starts_with(changed))
        };
        self.repositories.iter().any(differs)
            || WalkDir::new(&folder).follow_links(true).into_iter().any(|entry| match entry {
                Ok(entry) => entry.file_type().is_file() && self.file(entry.path()),
                Err(_) => true,
            })
    }

    fn is_unchanged(&self, path: &Path) -> bool {
        self.repositories.iter().any(|repository| {
            path.starts_with(&repository.root)
                && (repository.unchanged.contains(path)
                    || repository.unchanged_modules.iter().any(|module| path.starts_with(module)))
        })
    }
}

impl RepositoryChanges {
    fn read(root: PathBuf, reference: &str) -> Result<Self, GitError> {
        let commit = format!("{reference}^{{commit}}");
        let verified = git(&root, &["rev-parse", "--verify", "--quiet", "--end-of-options", &commit])?;
        // A reference that begins with a dash is none.
        if !verified.status.success() || reference.starts_with('-') {
            return Err(GitError::UnknownReference { reference: reference.to_owned(), root });
        }
        let commit = String::from_utf8_lossy(&verified.stdout).trim().to_owned();
        let base = git(&root, &["merge-base", &commit, "HEAD"])?;
        if !base.status.success() {
            return Err(GitError::NoMergeBase { reference: reference.to_owned(), root });
        }
        let base = String::from_utf8_lossy(&base.stdout).trim().to_owned();
        let arguments = [
            "diff",
            "--name-only",
            "-z",
            "--no-renames",
            "--no-relative",
            "--no-ext-diff",
            "--ignore-submodules=none",
            &base,
            "--",
        ];
        let changed: BTreeSet<PathBuf> =
            names(&succeeded(&root, &arguments)?).map(|name| root.join(name)).collect();
        let mut unchanged = HashSet::new();
        let mut unchanged_modules = Vec::new();
        // `H 100644 0123… 0<tab>name`: the first letter is small, or S, for files whose changes git does not look for.
        for entry in succeeded(&root, &["ls-files", "-z", "-v", "--stage"])?.split(|&byte| byte == 0) {
            let Some(tab) = entry.iter().position(|&byte| byte == b'\t') else { continue };
            let (head, name) =
                (entry.get(..tab).unwrap_or_default(), entry.get(tab + 1..).unwrap_or_default());
            let path = root.join(OsStr::from_bytes(name));
            if !head.starts_with(b"H ") || changed.contains(&path) {
                continue;
            }
            if head.starts_with(b"H 160000 ") {
                unchanged_modules.push(path);
            } else {
                unchanged.insert(path);
            }
        }
        Ok(Self { root, unchanged, unchanged_modules, changed })
    }
}

fn names(bytes: &[u8]) -> impl Iterator<Item = OsString> {
    bytes
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| OsStr::from_bytes(name).to_owned())
}

fn succeeded(root: &Path, arguments: &[&str]) -> Result<Vec<u8>, GitError> {
    let output = git(root, arguments)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let printed = String::from_utf8_lossy(&output.stderr);
    let reason = printed.lines().next().unwrap_or("it printed nothing").to_owned();
    Err(GitError::Failed {
        command: arguments.first().map(|first| (*first).to_owned()).unwrap_or_default(),
        reason,
    })
}

/// Runs git in a folder, in no other repository than that of the folder.
fn git(folder: &Path, arguments: &[&str]) -> Result<Output, GitError> {
    let mut command = Command::new("git");
    // A hook of git sets these for its own repository.
    for variable in
        ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_NAMESPACE"]
    {
        command.env_remove(variable);
    }
    let quiet = ["-c", "core.fsmonitor=false", "-c", "core.quotePath=false", "--no-optional-locks", "-C"];
    command.args(quiet).arg(folder).args(arguments).env("LC_ALL", "C");
    command.output().map_err(GitError::NotRun)
}

/// The paths of an index; `None` for forms that are not read.
fn read_index(bytes: &[u8]) -> Option<Vec<PathBuf>> {
    // The length of an object's name depends on the hash of the repository, which the index does not say.
    read_entries(bytes, 20).or_else(|| read_entries(bytes, 32))
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at + 4)?;
    // swallowed: four bytes are four bytes
    Some(u32::from_be_bytes(four.try_into().ok()?))
}

fn read_entries(bytes: &[u8], hash: usize) -> Option<Vec<PathBuf>> {
    if bytes.get(..4)? != b"DIRC" {
        return None;
    }
    let version = number(bytes, 4)?;
    if !(2..=4).contains(&version) {
        return None;
    }
    let count = usize::try_from(number(bytes, 8)?).ok()?;
    let mut paths: Vec<PathBuf> = Vec::new();
    let mut name: Vec<u8> = Vec::new();
    let mut at = 12;
    for _ in 0..count {
        let begin = at;
        let mode = number(bytes, at + 24)?;
        if !matches!(mode, 0o100_644 | 0o100_755 | 0o120_000 | 0o160_000 | 0o040_000) {
            return None;
        }
        let flags = bytes.get(at + 40 + hash)?;
        let is_extended = version >= 3 && flags & 0x40 != 0;
        at += 40 + hash + 2 + if is_extended { 2 } else { 0 };
        if version == 4 {
            let (kept, next) = strip_length(bytes, at)?;
            at = next;
            name.truncate(name.len().checked_sub(kept)?);
        } else {
            name.clear();
        }
        let rest = bytes.get(at..)?;
        let end = rest.iter().position(|&byte| byte == 0)?;
        name.extend_from_slice(rest.get(..end)?);
        at += end + 1;
        if version < 4 {
            // Filled up with zeros to a multiple of eight, with at least one.
            at = begin + (at - begin).next_multiple_of(8);
        }
        if name.is_empty() {
            return None;
        }
        paths.push(PathBuf::from(OsStr::from_bytes(&name)));
    }
    // What follows are extensions and the checksum. A split index has its entries elsewhere.
    while at + hash + 8 <= bytes.len() {
        if bytes.get(at..at + 4)? == b"link" {
            return None;
        }
        at = at.checked_add(8 + usize::try_from(number(bytes, at + 4)?).ok()?)?;
    }
    (at + hash == bytes.len()).then_some(paths)
}

/// How many bytes of the name before are cut off, in git's variable length.
fn strip_length(bytes: &[u8], mut at: usize) -> Option<(usize, usize)> {
    let mut byte = *bytes.get(at)?;
    let mut value = usize::from(byte & 0x7f);
    while byte & 0x80 != 0 {
        at += 1;
        byte = *bytes.get(at)?;
        value = value.checked_add(1)?.checked_mul(128)?.checked_add(usize::from(byte & 0x7f))?;
    }
    Some((value, at + 1))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn git(folder: &Path, arguments: &[&str]) {
        let status = Command::new("git").args(arguments).current_dir(folder).status().unwrap();
        assert!(status.success(), "{arguments:?}");
    }

    #[test]
    fn the_index_of_each_version_is_read() {
        for version in ["2", "3", "4"] {
            let folder = tempfile::tempdir().unwrap();
            git(folder.path(), &["init", "--quiet"]);
            let names = ["a.yaml", "deploy/a.yaml", "deploy/b.yaml", "deploy/very/deep/c.yaml"];
            for name in names {
                let path = folder.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, "a: 1\n").unwrap();
            }
            git(folder.path(), &["add", "."]);
            git(folder.path(), &["update-index", "--index-version", version]);
            let tracked = Repository::at(folder.path()).unwrap().tracked().unwrap();
            assert_eq!(tracked, names.map(PathBuf::from), "version {version}");
        }
    }

    #[test]
    fn what_is_no_index_says_nothing() {
        for bytes in [&b""[..], b"DIRC", b"DIRC\0\0\0\x09\0\0\0\0", b"DIRC\0\0\0\x02\0\0\0\x05abc"] {
            assert_eq!(read_index(bytes), None, "{bytes:?}");
        }
    }
}
