//! The files of a chart: a folder or a packed chart, with the packed charts in `charts/`, in bounded size.

use std::{
    collections::BTreeMap,
    fs, io,
    io::Read,
    path::{Component, Path},
};

use flate2::read::MultiGzDecoder;
use palisade_helm::Chart;
use tar::EntryType;
use thiserror::Error;
use walkdir::WalkDir;

/// The largest chart that is read, unpacked.
const MAX_BYTES: u64 = 64 << 20;
const MAX_FILES: usize = 20_000;
/// How deep packed charts are packed into each other.
const MAX_PACKED: usize = 8;

/// Why the files of a chart cannot be read.
#[derive(Debug, Error)]
pub(super) enum FolderError {
    #[error("{path}: {source}")]
    Io { path: String, source: io::Error },
    #[error("{0} is larger than 64 MiB or has more than 20,000 files")]
    TooLarge(String),
    /// Helm takes one of them; which one depends on its release.
    #[error("{archive} has the file {name:?} twice")]
    Twice { archive: String, name: String },
    /// Links, devices, files with holes.
    #[error("{archive} has {name:?}, which is neither a file nor a folder")]
    NoFile { archive: String, name: String },
    /// Helm rejects such a chart, or reads the file under another name.
    #[error("{archive} has the file {name:?}, which is not below the folder of its chart")]
    Outside { archive: String, name: String },
    #[error("{0}: packed charts are nested too deeply")]
    TooDeep(String),
}

/// Files by their path in the chart.
pub(super) type Files = BTreeMap<String, Vec<u8>>;

struct Reader {
    files: Files,
    bytes: u64,
}

/// Reads the files of a chart.
pub(super) fn read_chart(path: &Path) -> Result<Files, FolderError> {
    let mut reader = Reader { files: Files::new(), bytes: 0 };
    if path.extension().is_some_and(|extension| extension == "tgz") && path.is_file() {
        let bytes = fs::read(path).map_err(|source| io_error(path, source))?;
        reader.unpack(path, &bytes, "", 0)?;
        return Ok(reader.files);
    }
    reader.folder(if path.as_os_str().is_empty() { Path::new(".") } else { path }, "")?;
    reader.local_dependencies(path)?;
    Ok(reader.files)
}

fn io_error(path: &Path, source: io::Error) -> FolderError {
    FolderError::Io { path: path.display().to_string(), source }
}

/// Whether a file is a packed chart in the `charts/` of a chart.
fn is_packed(name: &str) -> bool {
    name.strip_suffix(".tgz")
        .and_then(|name| name.rsplit_once('/'))
        .is_some_and(|(at, _)| at == "charts" || at.ends_with("/charts"))
}

/// The name of a file of an archive in its chart: without the first folder, which has the name of the chart. As in Helm, a name with a
/// backslash is divided by backslashes.
fn name_in_chart(name: &str) -> Option<String> {
    let delimiter = if name.contains('\\') { '\\' } else { '/' };
    let (_, inner) = name.split_once(delimiter)?;
    let inner = inner.replace(delimiter, "/");
    let mut parts = Vec::new();
    for part in Path::new(&inner).components() {
        match part {
            Component::Normal(part) => parts.push(part.to_str()?),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}

impl Reader {
    fn add(&mut self, name: String, bytes: Vec<u8>, of: &Path) -> Result<(), FolderError> {
        self.bytes += bytes.len() as u64;
        if self.bytes > MAX_BYTES || self.files.len() >= MAX_FILES {
            return Err(FolderError::TooLarge(of.display().to_string()));
        }
        self.files.insert(name, bytes);
        Ok(())
    }

    fn folder(&mut self, folder: &Path, prefix: &str) -> Result<(), FolderError> {
        // Helm leaves out what is hidden in the templates of the chart itself, and there alone. A repository is no part of a chart.
        let is_read = |path: &Path| {
            let name = path.file_name().unwrap_or_default().as_encoded_bytes();
            let of_templates = path.parent() == Some(&folder.join("templates"));
            name != b".git" && !(name.starts_with(b".") && of_templates)
        };
        let walk = WalkDir::new(folder).follow_links(true).sort_by_file_name().into_iter();
        let walk = walk.filter_entry(|entry| entry.depth() == 0 || is_read(entry.path()));
        for entry in walk {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) if error.loop_ancestor().is_some() => continue,
                Err(error) => {
                    let path = error.path().unwrap_or(folder).to_owned();
                    // A dangling link is no file of the chart.
                    if path.is_symlink() {
                        continue;
                    }
                    let source = error.into_io_error().unwrap_or_else(|| io::ErrorKind::Other.into());
                    return Err(io_error(&path, source));
                }
            };
            if !entry.file_type().is_file() {
                continue;
            }
            let path = entry.path();
            let Some(name) = path.strip_prefix(folder).ok().and_then(Path::to_str) else { continue };
            let name = format!("{prefix}{}", name.replace('\\', "/"));
            let size = entry.metadata().map_or(u64::MAX, |metadata| metadata.len());
            if self.bytes.saturating_add(size) > MAX_BYTES {
                return Err(FolderError::TooLarge(folder.display().to_string()));
            }
            let bytes = fs::read(path).map_err(|source| io_error(path, source))?;
            if is_packed(&name) {
                self.unpack(path, &bytes, &format!("{name}/"), 0)?;
            } else {
                self.add(name, bytes, folder)?;
            }
        }
        Ok(())
    }

    /// Unpacks an archive, and the packed charts in its `charts/`. What Helm would read and this does not is an error.
    fn unpack(&mut self, path: &Path, bytes: &[u8], prefix: &str, depth: usize) -> Result<(), FolderError> {
        let failed = |source| io_error(path, source);
        let archive = || path.display().to_string();
        if depth > MAX_PACKED {
            return Err(FolderError::TooDeep(archive()));
        }
        let limit = MAX_BYTES.saturating_sub(self.bytes) + 1;
        // Helm reads all members of a compressed file as one.
        let mut tar = tar::Archive::new(MultiGzDecoder::new(bytes).take(limit));
        for entry in tar.entries().map_err(failed)? {
            let mut entry = entry.map_err(failed)?;
            let written = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            match entry.header().entry_type() {
                EntryType::Directory | EntryType::XGlobalHeader | EntryType::XHeader => continue,
                EntryType::Regular | EntryType::Continuous => {}
                _ => return Err(FolderError::NoFile { archive: archive(), name: written }),
            }
            // swallowed: a name that is no text is the name of no file of a chart
            let name = std::str::from_utf8(&entry.path_bytes()).ok().and_then(name_in_chart);
            let Some(name) = name else {
                return Err(FolderError::Outside { archive: archive(), name: written });
            };
            let name = format!("{prefix}{name}");
            let mut content = Vec::new();
            entry.read_to_end(&mut content).map_err(failed)?;
            if is_packed(&name) {
                self.unpack(path, &content, &format!("{name}/"), depth + 1)?;
            } else if self.files.contains_key(&name) {
                return Err(FolderError::Twice { archive: archive(), name: written });
            } else {
                self.add(name, content, path)?;
            }
        }
        Ok(())
    }

    /// Dependencies with `repository: file://…` that are not in `charts/` are read where they are.
    fn local_dependencies(&mut self, root: &Path) -> Result<(), FolderError> {
        let Some(about) = self.files.get("Chart.yaml") else { return Ok(()) };
        // What is wrong with it is reported when the chart is loaded.
        let parsed = palisade_yaml::decode(about).map(|text| {
            let parsed = palisade_yaml::parse(&text, &palisade_yaml::Limits::default());
            parsed.documents.first().and_then(|document| document.root().to_json().ok())
        });
        let Ok(Some(metadata)) = parsed else { return Ok(()) };
        let present = Chart::load("", &self.files).map(|chart| chart.chart_names()).unwrap_or_default();
        let list = metadata.get("dependencies").and_then(serde_json::Value::as_array);
        for entry in list.into_iter().flatten() {
            let text = |key: &str| entry.get(key).and_then(serde_json::Value::as_str);
            let (Some(name), Some(repository)) = (text("name"), text("repository")) else { continue };
            let Some(local) = repository.strip_prefix("file://") else { continue };
            let folder = root.join(local);
            let is_nameable = !name.contains(['/', '.']) && !present.iter().any(|known| known == name);
            if is_nameable && folder.join("Chart.yaml").is_file() && !local.starts_with('/') {
                self.folder(&folder, &format!("charts/{name}/"))?;
            }
        }
        Ok(())
    }
}
