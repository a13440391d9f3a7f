//! Kustomizations in a search: found by their file, built, and checked with findings in bases and patches.
//!
//! `files` reads what a build asks for, `judge` builds and judges, `edits` maps the edits of a built object to the files.
//! Files that are a part of a build are not judged by themselves, and patches never are.

mod edits;
mod files;
mod judge;

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet, HashMap},
    path::{Path, PathBuf},
};

use palisade_kustomize::{Files as _, KUSTOMIZATION_FILES, Use, build, references};
use palisade_model::compat::Compat;
use palisade_yaml::{Limits, parse};

use self::files::Disk;
pub use self::judge::{OverlayAnswer, OverlayMode, check_overlays};
use crate::{
    charts::shown,
    input::{Input, Overlay},
    manifest::{Object, objects},
    server_side::{Asked, ServerSide},
};

/// The parts of searched files, without the cost of resolving each of them.
#[derive(Default)]
struct Resolved(HashMap<PathBuf, Option<PathBuf>>);

impl Resolved {
    fn folder(&mut self, path: &Path) -> Option<PathBuf> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        // swallowed: what cannot be resolved is a part of no build
        self.0.entry(path.to_owned()).or_insert_with(|| path.canonicalize().ok()).clone()
    }

    fn file(&mut self, path: &Path) -> Option<PathBuf> {
        let name = path.file_name()?;
        Some(self.folder(path.parent()?)?.join(name))
    }
}

/// A kustomization of the search.
struct Found {
    folder: PathBuf,
    file: PathBuf,
    is_component: bool,
    /// Folders that it includes.
    includes: Vec<PathBuf>,
    resources: Vec<PathBuf>,
    patches: Vec<PathBuf>,
}

fn is_kustomization_file(path: &Path) -> bool {
    let bytes = path.as_os_str().as_encoded_bytes();
    [&b"ustomization.yaml"[..], b"ustomization.yml", b"ustomization"].iter().any(|end| bytes.ends_with(end))
        && path.file_name().is_some_and(|name| KUSTOMIZATION_FILES.iter().any(|known| name == *known))
}

/// What a command that builds nothing has to say about a file: what a kustomization makes of its resources is not known to it.
#[must_use]
pub fn not_built(file: &str, text: &str) -> Option<String> {
    if !is_kustomization_file(Path::new(file)) || references(text).is_none() {
        return None;
    }
    let folder = Path::new(file).parent().map(shown)?;
    Some(format!(
        "{file} is a kustomization, which is not built here: pass the output of kubectl kustomize {folder}"
    ))
}

fn read(path: &Path, resolved: &mut Resolved) -> Option<Found> {
    // swallowed: a file that cannot be read is reported where it is judged
    let bytes = Input::File(path.to_owned()).read().ok()?;
    let text = palisade_yaml::decode(&bytes).ok()?;
    let (is_component, list) = references(&text)?;
    let folder = path.parent().map(Path::to_owned).unwrap_or_default();
    let mut found = Found {
        file: path.to_owned(),
        is_component,
        includes: Vec::new(),
        resources: Vec::new(),
        patches: Vec::new(),
        folder,
    };
    for reference in list {
        let target = found.folder.join(&reference.path);
        if target.is_dir() {
            found.includes.extend(resolved.folder(&target));
        } else if let Some(file) = resolved.file(&target) {
            match reference.used {
                Use::Patch => found.patches.push(file),
                Use::Resource | Use::Component => found.resources.push(file),
            }
        }
    }
    Some(found)
}

/// Replaces the files of kustomizations by the overlays that are built of them. Without a kustomization nothing changes.
/// A base is built by the overlays that include it, and by itself if the user named it or nothing includes it.
/// Returns how many files were left out because they are patches of kustomizations that are not built.
///
/// A patch that an API server would take as it is stays among the inputs: what it patches says nothing about who applies it.
pub fn take_overlays(inputs: &mut Vec<Input>, named: &[PathBuf], together: bool, compat: Compat) -> usize {
    let mut resolved = Resolved::default();
    let mut all: BTreeMap<PathBuf, Found> = BTreeMap::new();
    let mut patches: BTreeSet<PathBuf> = BTreeSet::new();
    for input in inputs.iter() {
        let Input::File(path) = input else { continue };
        if is_kustomization_file(path) {
            let folder = resolved.folder(path.parent().unwrap_or(Path::new("")));
            if let (Some(folder), Some(found)) = (folder, read(path, &mut resolved)) {
                all.entry(folder).or_insert(found);
            }
        }
    }
    // The user may name a patch, as tools do that pass changed files.
    let mut asked: BTreeSet<&Path> = BTreeSet::new();
    for path in named {
        let Some(folder) = path.parent().filter(|folder| path.is_file() && asked.insert(folder)) else {
            continue;
        };
        let beside = KUSTOMIZATION_FILES.iter().map(|name| folder.join(name)).find(|file| file.is_file());
        if let Some(found) = beside.and_then(|file| read(&file, &mut resolved)) {
            patches.extend(found.patches);
        }
    }
    if all.is_empty() && patches.is_empty() {
        return 0;
    }
    let order = roots(&all, named);
    patches.extend(all.values().flat_map(|found| found.patches.iter().cloned()));
    let mut taken: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for (index, root) in order.iter().enumerate() {
        for folder in reached(&all, root) {
            let Some(found) = all.get(&folder) else { continue };
            for file in found.resources.iter().chain(&found.patches) {
                taken.entry(file.clone()).or_insert(index);
            }
            if let Some(file) = resolved.file(&found.file) {
                taken.entry(file).or_insert(index);
            }
        }
    }
    let own: BTreeSet<PathBuf> = all.values().filter_map(|found| resolved.file(&found.file)).collect();
    let (mut counts, mut left_out) = (vec![0_usize; order.len()], 0);
    let server = OnceCell::new();
    inputs.retain(|input| {
        let Input::File(path) = input else { return true };
        let Some(file) = resolved.file(path) else { return true };
        if patches.contains(&file)
            && holds_a_whole_object(path, server.get_or_init(|| ServerSide::new(compat)))
        {
            return true;
        }
        if let Some(count) = taken.get(&file).and_then(|index| counts.get_mut(*index)) {
            // A file that the user names is checked as it is, unless it is a patch.
            if named.contains(path) && !patches.contains(&file) && !own.contains(&file) {
                return true;
            }
            *count += 1;
            return false;
        }
        let is_part = patches.contains(&file) || own.contains(&file);
        left_out += usize::from(is_part);
        !is_part
    });
    let overlays = order.iter().zip(counts).filter_map(|(root, files)| {
        let found = all.get(root)?;
        Some(Overlay { folder: found.folder.clone(), file: found.file.clone(), files: files.max(1) })
    });
    if together {
        let overlays: Vec<Overlay> = overlays.collect();
        if !overlays.is_empty() {
            inputs.push(Input::Overlays(overlays));
        }
    } else {
        inputs.extend(overlays.map(|overlay| Input::Overlays(vec![overlay])));
    }
    inputs.sort();
    left_out
}

/// Whether an API server would create an object of a file as it is written there.
fn holds_a_whole_object(path: &Path, server: &ServerSide) -> bool {
    // swallowed: a file that cannot be read is reported by the build that patches with it
    let Ok(bytes) = Input::File(path.to_owned()).read() else { return false };
    let Ok(text) = palisade_yaml::decode(&bytes) else { return false };
    let parsed = parse(&text, &Limits::default());
    let is_whole = |object: &Object<'_>| {
        let (Some(workload), Ok(value)) = (object.workload, object.node.to_json()) else { return false };
        let asked = Asked { object: &value, api_version: object.api_version, workload, namespace: "default" };
        server.serves(&asked) && server.rejections(&asked).is_empty()
    };
    parsed.documents.iter().any(|document| objects(document).iter().any(is_whole))
}

/// The files that an overlay is built of; `None` if it cannot be built.
#[must_use]
pub fn files_of(overlay: &Overlay) -> Option<Vec<PathBuf>> {
    let disk = Disk::default();
    let build = build(&disk, &disk.look("", &shown(&overlay.folder))?);
    let files = build.files.iter().map(|file| PathBuf::from(&file.shown)).collect();
    build.problems.is_empty().then_some(files)
}

/// The kustomizations to build: those that the user named, those that nothing includes, and one of each circle.
fn roots(all: &BTreeMap<PathBuf, Found>, named: &[PathBuf]) -> Vec<PathBuf> {
    let included: BTreeSet<&PathBuf> = all.values().flat_map(|found| &found.includes).collect();
    let is_named = |found: &Found| {
        named.iter().any(|path| *path == found.file || (*path == found.folder && path.as_os_str() != "."))
    };
    let mut order: Vec<PathBuf> = all
        .iter()
        .filter(|(folder, found)| !found.is_component && (is_named(found) || !included.contains(folder)))
        .map(|(folder, _)| folder.clone())
        .collect();
    let mut known: BTreeSet<PathBuf> = order.iter().flat_map(|root| reached(all, root)).collect();
    for (folder, found) in all {
        if !found.is_component && !known.contains(folder) {
            known.extend(reached(all, folder));
            order.push(folder.clone());
        }
    }
    order
}

/// A kustomization and all that it includes.
fn reached(all: &BTreeMap<PathBuf, Found>, root: &Path) -> BTreeSet<PathBuf> {
    let mut seen = BTreeSet::from([root.to_owned()]);
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        for next in all.get(&folder).map(|found| found.includes.as_slice()).unwrap_or_default() {
            if seen.insert(next.clone()) {
                open.push(next.clone());
            }
        }
    }
    seen
}
