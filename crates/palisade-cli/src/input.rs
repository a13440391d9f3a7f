//! Which files, and their bytes.
//!
//! Folders are searched for manifests; a file named by the user is read whatever it is called. Nothing here fails
//! as a whole: what cannot be read becomes a diagnostic, and the rest goes on.

use std::{
    collections::HashSet,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use walkdir::WalkDir;

use crate::{
    diagnostic::{Code, Diagnostic},
    git::Ignored,
};

/// The largest manifest that is read. An API server takes 3 MiB in one request; a file holds many objects.
pub const MAX_BYTES: usize = 64 << 20;

/// Something to read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Input {
    /// A file.
    File(PathBuf),
    /// A chart: its folder, or a packed one.
    Chart(PathBuf),
    /// Overlays that are built and checked together.
    Overlays(Vec<Overlay>),
    /// Standard input.
    Stdin,
    /// An object of a cluster, as it was read.
    Live {
        /// The name.
        name: Arc<str>,
        /// The text.
        text: Arc<str>,
    },
}

/// A folder with a kustomization.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Overlay {
    /// The folder.
    pub folder: PathBuf,
    /// Its kustomization.
    pub file: PathBuf,
    /// How many files of the search it is made of.
    pub files: usize,
}

impl Input {
    /// The name as the user writes it.
    #[must_use]
    pub fn name(&self) -> Arc<str> {
        match self {
            Self::File(path) | Self::Chart(path) => path.to_string_lossy().as_ref().into(),
            Self::Overlays(overlays) => overlays
                .first()
                .map_or_else(|| "".into(), |first| first.file.to_string_lossy().as_ref().into()),
            Self::Stdin => "<stdin>".into(),
            Self::Live { name, .. } => Arc::clone(name),
        }
    }

    /// Its bytes.
    pub fn read(&self) -> Result<Vec<u8>, Box<Diagnostic>> {
        match self {
            Self::File(path) | Self::Chart(path) => {
                read_file(path).map_err(|error| Box::new(self.unreadable(&error)))
            }
            // They are read by the build.
            Self::Overlays(_) => Ok(Vec::new()),
            Self::Stdin => {
                let mut bytes = Vec::new();
                let limit = MAX_BYTES as u64 + 1;
                io::stdin()
                    .lock()
                    .take(limit)
                    .read_to_end(&mut bytes)
                    .map_err(|error| Box::new(self.unreadable(&error)))?;
                Ok(bytes)
            }
            Self::Live { text, .. } => Ok(text.as_bytes().to_vec()),
        }
        .and_then(|bytes| {
            if bytes.len() > MAX_BYTES { Err(Box::new(too_large(&self.name(), None))) } else { Ok(bytes) }
        })
    }

    fn unreadable(&self, error: &io::Error) -> Diagnostic {
        let name = self.name();
        if error.kind() == io::ErrorKind::FileTooLarge {
            let size = match self {
                Self::File(path) | Self::Chart(path) => path.metadata().ok().map(|metadata| metadata.len()),
                Self::Overlays(_) | Self::Stdin | Self::Live { .. } => None,
            };
            return too_large(&name, size);
        }
        unreadable(&name, error)
    }
}

/// One system call to open, one for the size, as few as possible to read.
fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    let limit = MAX_BYTES as u64;
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if metadata.len() > limit {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or_default() + 1);
    // A pipe has no size, and a file may grow while it is read.
    file.take(limit + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn too_large(name: &Arc<str>, size: Option<u64>) -> Diagnostic {
    let size = size.map_or_else(String::new, |size| format!(" ({} MiB)", size >> 20));
    Diagnostic::unchecked(
        Code::of("input/too-large"),
        name,
        format!("{name} is too large{size}: at most {} MiB are read", MAX_BYTES >> 20),
    )
    .help("split it into smaller files, or exclude it with --exclude")
}

fn unreadable(name: &Arc<str>, error: &io::Error) -> Diagnostic {
    let reason = match error.kind() {
        io::ErrorKind::NotFound => "no such file or folder".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::IsADirectory => "is a folder".to_owned(),
        _ => error.to_string(),
    };
    Diagnostic::unchecked(Code::of("input/unreadable"), name, format!("cannot read {name}: {reason}"))
}

/// What a search found.
#[derive(Debug, Default)]
pub struct Found {
    /// What to read, sorted, each once.
    pub inputs: Vec<Input>,
    /// What could not be searched.
    pub problems: Vec<Diagnostic>,
}

/// Finds the manifests below the given paths; `excluded` leaves paths out, also those named by the user, so that
/// a tool that passes changed files respects the configuration. What git ignores and does not track is left out of searches.
pub fn discover(paths: &[PathBuf], excluded: impl Fn(&Path) -> bool) -> Found {
    discover_in(paths, true, excluded)
}

/// The same, with or without what git ignores.
pub fn discover_in(paths: &[PathBuf], honour_gitignore: bool, excluded: impl Fn(&Path) -> bool) -> Found {
    let mut found = Found::default();
    for path in paths {
        if path.as_os_str() == "-" {
            found.inputs.push(Input::Stdin);
            continue;
        }
        match path.metadata() {
            Ok(metadata) if metadata.is_dir() => search(path, honour_gitignore, &excluded, &mut found),
            // A file that cannot be looked at is reported when it is read.
            _ if !excluded(path) => found.inputs.push(Input::File(path.clone())),
            _ => {}
        }
    }
    found.inputs.sort();
    found.inputs.dedup();
    found.problems.sort_by(|a, b| a.file.cmp(&b.file));
    found
}

fn search(folder: &Path, honour_gitignore: bool, excluded: &impl Fn(&Path) -> bool, found: &mut Found) {
    // A search of `.` names what it finds as the user would.
    let named = |path: &Path| {
        let here = folder.as_os_str() == ".";
        path.strip_prefix(".")
            .ok()
            .filter(|rest| here && !rest.as_os_str().is_empty())
            .unwrap_or(path)
            .to_owned()
    };
    // git knows absolute paths; a folder that cannot be resolved is reported by the walk.
    let absolute = folder.canonicalize().ok().filter(|_| honour_gitignore);
    let mut ignored = absolute.as_ref().map(|_| Ignored::around(folder)).unwrap_or_default();
    let walk = WalkDir::new(folder).follow_links(true).into_iter().filter_entry(|entry| {
        let is_root = entry.depth() == 0;
        if !is_root && (is_hidden(entry.file_name().as_encoded_bytes()) || excluded(entry.path())) {
            return false;
        }
        let Some(absolute) = &absolute else { return true };
        // swallowed: the walk goes below its folder alone
        let Ok(below) = entry.path().strip_prefix(folder) else { return true };
        let is_folder = entry.file_type().is_dir();
        if !is_folder && !is_manifest(entry.path()) {
            return true;
        }
        let path = if is_root { absolute.clone() } else { absolute.join(below) };
        if !is_root && ignored.ignores(&path, is_folder) {
            return false;
        }
        if is_folder {
            ignored.enter(&path);
        }
        true
    });
    for entry in walk {
        match entry {
            Ok(entry) if entry.file_type().is_file() => {
                if is_manifest(entry.path()) {
                    found.inputs.push(Input::File(named(entry.path())));
                }
            }
            Ok(_) => {}
            // A link that leads back up: everything below is visited anyway.
            Err(error) if error.loop_ancestor().is_some() => {}
            Err(error) => {
                let path = error.path().unwrap_or(folder);
                // A dangling link is only of interest if it is called like a manifest.
                if path.is_symlink() && !is_manifest(path) {
                    continue;
                }
                let name = Input::File(named(path)).name();
                let error = error.into_io_error().unwrap_or_else(|| io::ErrorKind::Other.into());
                found.problems.push(unreadable(&name, &error));
            }
        }
    }
    if let Some(absolute) = absolute {
        let tracked = ignored.tracked().iter().filter_map(|path| path.strip_prefix(&absolute).ok());
        add_tracked(folder, tracked, excluded, found, named);
    }
}

/// Adds tracked files that the walk left out because a `.gitignore` names them.
fn add_tracked<'t>(
    folder: &Path,
    tracked: impl Iterator<Item = &'t Path>,
    excluded: &impl Fn(&Path) -> bool,
    found: &mut Found,
    named: impl Fn(&Path) -> PathBuf,
) {
    let manifests = tracked.filter(|path| is_manifest(path));
    let visible = manifests
        .filter(|path| path.components().all(|name| !is_hidden(name.as_os_str().as_encoded_bytes())));
    let known: HashSet<PathBuf> = found
        .inputs
        .iter()
        .filter_map(|input| match input {
            Input::File(path) => Some(path.clone()),
            Input::Stdin | Input::Chart(_) | Input::Overlays(_) | Input::Live { .. } => None,
        })
        .collect();
    let added = visible
        .map(|path| folder.join(path))
        .filter(|path| !known.contains(&named(path)))
        .filter(|path| {
            !path.ancestors().any(|above| above != folder && above.starts_with(folder) && excluded(above))
        })
        .filter(|path| path.is_file());
    let added: Vec<Input> = added.map(|path| Input::File(named(&path))).collect();
    found.inputs.extend(added);
}

/// `.git` and its like hold no manifests; a hidden folder can be named explicitly.
fn is_hidden(name: &[u8]) -> bool {
    name.starts_with(b".")
}

fn is_manifest(path: &Path) -> bool {
    match path.extension() {
        Some(extension) => ["yaml", "yml", "json"].iter().any(|known| extension.eq_ignore_ascii_case(known)),
        None => path.file_name().is_some_and(|name| name == "Kustomization"),
    }
}
