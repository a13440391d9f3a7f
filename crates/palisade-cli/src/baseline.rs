//! Findings of a day in a file, so that only newer ones fail: the ratchet of `check --baseline`.
//!
//! A baseline accepts findings about objects that could be checked, and nothing else: what could not be read or judged is
//! never recorded and never accepted. Findings are compared by [`FindingIdentity`], and counted: a second equal one is new.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    io::Write as _,
    path::{Component, Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    config::absolute,
    diagnostic::{Diagnostic, Severity},
    failure::Failure,
    identity::{FindingIdentity, objects},
    input::Input,
    judge::FileReport,
    replace::{ReplaceError, replace},
};

/// The only format there is so far.
const FORMAT: u32 = 1;

/// What is done with a baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BaselineMode {
    /// New findings fail; the file is not written.
    Compare,
    /// The same, and findings that are gone are removed from the file.
    Shrink,
    /// Every finding of today is recorded.
    Record,
}

/// Why a baseline cannot be used.
#[derive(Debug, Error)]
pub enum BaselineError {
    /// It does not exist.
    #[error("cannot read the baseline {path}: no such file; record the findings of today with --write-baseline", path = .0.display())]
    Missing(PathBuf),
    /// It cannot be read.
    #[error("cannot read the baseline {path}", path = .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is not a baseline.
    #[error("{path} is not a baseline", path = .path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// Another version of Palisade wrote it.
    #[error("the baseline {path} has format {found}, and this version reads format {FORMAT}", path = .path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// An entry is there twice, as after a merge; their sum may be more than there ever was.
    #[error("the baseline {path} has two entries for {code} in {file}; remove one of them", path = .path.display())]
    Twice {
        /// The baseline.
        path: PathBuf,
        /// The code of the entry.
        code: String,
        /// The file of the entry.
        file: String,
    },
    /// It cannot be written.
    #[error("cannot write the baseline {path}: {source}", path = .path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: ReplaceError,
    },
}

impl From<BaselineError> for Failure {
    fn from(error: BaselineError) -> Self {
        match error {
            BaselineError::Unwritable { .. } => Self::incomplete(error),
            error => Self::input(error),
        }
    }
}

/// The file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    palisade_baseline: u32,
    findings: Vec<Entry>,
}

/// A finding and how often it was there.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    file: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    code: String,
    severity: Level,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    container: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(default = "once", skip_serializing_if = "is_once")]
    count: usize,
}

impl Entry {
    fn new(file: String, known: Known, count: usize) -> Self {
        let Known { finding, severity } = known;
        let FindingIdentity { kind, namespace, name, code, path, container, value } = finding;
        Self { file, kind, namespace, name, code, severity, path, container, value, count }
    }

    fn parts(self) -> (String, Known, usize) {
        let Self { file, kind, namespace, name, code, severity, path, container, value, count } = self;
        let finding = FindingIdentity { kind, namespace, name, code, path, container, value };
        (file, Known { finding, severity }, count)
    }
}

const fn once() -> usize {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
const fn is_once(count: &usize) -> bool {
    *count == 1
}

/// A finding as a baseline knows it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Known {
    finding: FindingIdentity,
    severity: Level,
}

/// A severity, as the file writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Error,
    Warning,
}

impl From<Severity> for Level {
    fn from(severity: Severity) -> Self {
        match severity {
            Severity::Error => Self::Error,
            Severity::Warning => Self::Warning,
        }
    }
}

/// How often each finding is in a file.
type Counts = BTreeMap<Known, usize>;

/// Counts by file, relative to the folder of the baseline.
type Files = BTreeMap<String, Counts>;

/// A baseline in use.
#[derive(Debug)]
pub struct Baseline {
    path: PathBuf,
    folder: PathBuf,
    mode: BaselineMode,
    /// What was read; `None` if there is no file yet.
    bytes: Option<Vec<u8>>,
    recorded: Files,
    seen: Mutex<Seen>,
}

/// What a run has found so far.
#[derive(Debug, Default)]
struct Seen {
    found: Files,
    checked: BTreeSet<String>,
    /// Charts: everything below them was checked.
    folders: BTreeSet<String>,
    /// Files of which something could not be checked: what they had is not gone.
    uncertain: BTreeSet<String>,
}

/// What became of a baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BaselineChange {
    /// Findings that it has.
    pub recorded: usize,
    /// Findings that it had and that are gone.
    pub gone: usize,
    /// Whether the file was written.
    pub written: bool,
}

impl Baseline {
    /// Reads a baseline. Only one that is recorded need not exist.
    pub fn open(path: &Path, mode: BaselineMode) -> Result<Self, BaselineError> {
        let bytes = match fs::read(path) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if mode != BaselineMode::Record {
                    return Err(BaselineError::Missing(path.to_owned()));
                }
                None
            }
            Err(source) => return Err(BaselineError::Unreadable { path: path.to_owned(), source }),
        };
        let recorded = bytes.as_ref().map(|bytes| read(path, bytes)).transpose()?.unwrap_or_default();
        let folder = absolute(path).parent().map(Path::to_owned).unwrap_or_default();
        Ok(Self { path: path.to_owned(), folder, mode, bytes, recorded, seen: Mutex::default() })
    }

    /// Whether this is the file of the baseline, which holds no manifests.
    #[must_use]
    pub fn is(&self, path: &Path) -> bool {
        path.file_name() == self.path.file_name() && absolute(path) == absolute(&self.path)
    }

    /// A file as the baseline names it: relative to its own folder, so that it does not matter where the check is started.
    fn file(&self, name: &str) -> String {
        if name.starts_with('<') || name.starts_with("cluster:") {
            return name.to_owned();
        }
        let path = absolute(Path::new(if name.is_empty() { "." } else { name }));
        let mut relative = PathBuf::new();
        let mut folder = self.folder.as_path();
        loop {
            if let Ok(below) = path.strip_prefix(folder) {
                return relative.join(below).to_string_lossy().into_owned();
            }
            relative.push(Component::ParentDir);
            match folder.parent() {
                Some(parent) => folder = parent,
                None => return path.to_string_lossy().into_owned(),
            }
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        // What another worker wrote is complete: each writes whole entries.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the findings of the baseline out of the reports of one input, and notes what was found.
    pub fn compare<'r>(&self, input: Option<&Input>, reports: impl IntoIterator<Item = &'r mut FileReport>) {
        let mut left = Files::new();
        let mut found = Files::new();
        let mut checked = BTreeSet::new();
        let mut uncertain = BTreeSet::new();
        for report in reports {
            let known = known(report);
            // Nearly every finding is about the file of its report.
            let own = self.file(&report.file);
            checked.insert(own.clone());
            if report.errors > 0 {
                uncertain.insert(own.clone());
            }
            let mut kept = Vec::with_capacity(report.diagnostics.len());
            for (finding, identities) in report.diagnostics.drain(..).zip(known) {
                let file = if finding.file == report.file { own.clone() } else { self.file(&finding.file) };
                if !identities.is_empty() {
                    let counts = found.entry(file.clone()).or_default();
                    for identity in &identities {
                        *counts.entry(identity.clone()).or_default() += 1;
                    }
                }
                let counts = left
                    .entry(file)
                    .or_insert_with_key(|file| self.recorded.get(file).cloned().unwrap_or_default());
                if self.mode == BaselineMode::Record && !identities.is_empty() || take(counts, &identities) {
                    report.known += 1;
                } else {
                    kept.push(finding);
                }
            }
            report.diagnostics = kept;
        }
        let mut seen = self.seen();
        match input {
            Some(Input::Chart(path)) => {
                seen.folders.insert(self.file(&path.to_string_lossy()));
            }
            Some(Input::Overlays(overlays)) => {
                seen.folders
                    .extend(overlays.iter().map(|overlay| self.file(&overlay.folder.to_string_lossy())));
            }
            _ => {}
        }
        seen.checked.append(&mut checked);
        seen.uncertain.append(&mut uncertain);
        for (file, counts) in found {
            let all = seen.found.entry(file).or_default();
            for (known, count) in counts {
                // A file that is checked under two names has its findings once.
                let most = all.entry(known).or_default();
                *most = count.max(*most);
            }
        }
    }

    /// Ends the run: writes the file if it is to be written, and counts what is gone. `cluster` are the namespaces of a cluster that
    /// were checked, empty for all.
    pub fn finish(&self, cluster: Option<&[String]>) -> Result<BaselineChange, BaselineError> {
        let seen = self.seen();
        let mut files = Files::new();
        let mut gone = 0;
        for (file, counts) in &self.recorded {
            let found = match self.state(file, &seen, cluster) {
                State::Unknown => {
                    files.insert(file.clone(), counts.clone());
                    continue;
                }
                State::Gone => None,
                State::Checked => seen.found.get(file),
            };
            for (known, &count) in counts {
                let left = found.and_then(|found| found.get(known)).map_or(0, |&found| found.min(count));
                gone += count - left;
                if left > 0 {
                    files.entry(file.clone()).or_default().insert(known.clone(), left);
                }
            }
        }
        if self.mode == BaselineMode::Record {
            for (file, counts) in &seen.found {
                if seen.uncertain.contains(file) && self.recorded.contains_key(file) {
                    // What it had before is kept beside what is known now.
                    let all = files.entry(file.clone()).or_default();
                    for (known, &count) in counts {
                        let most = all.entry(known.clone()).or_default();
                        *most = count.max(*most);
                    }
                } else {
                    files.insert(file.clone(), counts.clone());
                }
            }
        }
        let recorded = files.values().flat_map(BTreeMap::values).sum();
        let is_written = match self.mode {
            BaselineMode::Compare => false,
            BaselineMode::Shrink => gone > 0,
            BaselineMode::Record => true,
        };
        if is_written {
            self.write(files)?;
        }
        Ok(BaselineChange { recorded, gone, written: is_written })
    }

    fn state(&self, file: &str, seen: &Seen, cluster: Option<&[String]>) -> State {
        if seen.uncertain.contains(file) {
            return State::Unknown;
        }
        let in_folder = |folder: &String| folder.is_empty() || Path::new(file).starts_with(folder);
        if seen.checked.contains(file) || seen.found.contains_key(file) {
            return State::Checked;
        }
        if let Some(object) = file.strip_prefix("cluster:") {
            let namespace = object.split('/').next().unwrap_or_default();
            let was_listed =
                cluster.is_some_and(|names| names.is_empty() || names.iter().any(|name| name == namespace));
            return if was_listed { State::Gone } else { State::Unknown };
        }
        if file.starts_with('<') {
            return State::Unknown;
        }
        if seen.folders.iter().any(in_folder) && !seen.uncertain.iter().any(in_folder) {
            return State::Gone;
        }
        match self.folder.join(file).symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => State::Gone,
            _ => State::Unknown,
        }
    }

    fn write(&self, files: Files) -> Result<(), BaselineError> {
        let text = written(files);
        let failed = |source| BaselineError::Unwritable { path: self.path.clone(), source };
        match &self.bytes {
            Some(old) if *old == text.as_bytes() => Ok(()),
            Some(old) => replace(&self.path, old, text.as_bytes()).map_err(failed),
            None => {
                let file = fs::OpenOptions::new().write(true).create_new(true).open(&self.path);
                file.and_then(|mut file| file.write_all(text.as_bytes()))
                    .map_err(|error| failed(ReplaceError::Io(error)))
            }
        }
    }
}

/// What is known about a file of the baseline after a run.
enum State {
    /// It was checked.
    Checked,
    /// It does not exist any more.
    Gone,
    /// It was not checked, or could not be.
    Unknown,
}

fn read(path: &Path, bytes: &[u8]) -> Result<Files, BaselineError> {
    let document: Document = serde_json::from_slice(bytes)
        .map_err(|source| BaselineError::Invalid { path: path.to_owned(), source })?;
    if document.palisade_baseline != FORMAT {
        return Err(BaselineError::Format { path: path.to_owned(), found: document.palisade_baseline });
    }
    let mut files = Files::new();
    for entry in document.findings {
        let (file, known, count) = entry.parts();
        let counts = files.entry(file.clone()).or_default();
        let code = known.finding.code.clone();
        if counts.insert(known, count).is_some() {
            return Err(BaselineError::Twice { path: path.to_owned(), code, file });
        }
    }
    Ok(files)
}

/// One finding on each line, sorted, so that changes can be reviewed.
fn written(files: Files) -> String {
    let mut text = format!("{{\"palisade_baseline\": {FORMAT}, \"findings\": [");
    let mut separator = "\n";
    for (file, counts) in files {
        for (known, count) in counts {
            let entry = Entry::new(file.clone(), known, count);
            // Strings and numbers always become JSON.
            if let Ok(line) = serde_json::to_string(&entry) {
                text.push_str(separator);
                text.push_str(&line);
                separator = ",\n";
            }
        }
    }
    text.push_str("\n]}\n");
    text
}

/// For each finding of a report what a baseline knows it by; nothing for what no baseline accepts.
fn known(report: &FileReport) -> Vec<Vec<Known>> {
    let objects = objects(report);
    let of = |finding: &Diagnostic| {
        // Without a verdict the object was not checked.
        let object = finding.object.as_ref().and_then(|id| objects.get(id).copied());
        let code = finding.code.as_str();
        let is_about_input = ["input/", "yaml/", "chart/"].iter().any(|prefix| code.starts_with(prefix));
        if finding.is_unchecked || is_about_input || object.is_none() {
            return Vec::new();
        }
        let severity = finding.severity.into();
        let identities = FindingIdentity::of(finding, object).into_iter();
        identities.map(|finding| Known { finding, severity }).collect()
    };
    report.diagnostics.iter().map(of).collect()
}

/// Takes all of a finding's identities out of the counts, or none.
fn take(counts: &mut Counts, identities: &[Known]) -> bool {
    let mut taken = Vec::with_capacity(identities.len());
    for identity in identities {
        // An error that became a warning is no worse.
        let as_error = Known { finding: identity.finding.clone(), severity: Level::Error };
        let entry = [identity, &as_error]
            .into_iter()
            .find(|known| counts.get(known).is_some_and(|&left| left > 0))
            .cloned();
        let Some(entry) = entry else { break };
        if let Some(left) = counts.get_mut(&entry) {
            *left -= 1;
        }
        taken.push(entry);
    }
    if taken.len() == identities.len() {
        return !identities.is_empty();
    }
    for entry in taken {
        *counts.entry(entry).or_default() += 1;
    }
    false
}
