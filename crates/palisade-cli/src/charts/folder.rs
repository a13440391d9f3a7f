//! The files of a chart: a folder or a packed chart, with the packed charts in `charts/`, in bounded size.

use std::{
    collections::BTreeMap,
    fs, io,
    io::Read,
    path::{Component, Path, PathBuf},
};

use flate2::read::GzDecoder;
use palisade_helm::Chart;
use thiserror::Error;
use walkdir::WalkDir;

/// The largest chart that is read, unpacked.
const MAX_BYTES: u64 = 64 << 20;
const MAX_FILES: usize = 20_000;

/// Why the files of a chart cannot be read.
#[derive(Debug, Error)]
pub(super) enum FolderError {
    #[error("{path}: {source}")]
    Io { path: String, source: io::Error },
    #[error("{0} is larger than 64 MiB or has more than 20,000 files")]
    TooLarge(String),
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
        reader.unpack(path, &bytes, "")?;
        return Ok(reader.files);
    }
    reader.folder(if path.as_os_str().is_empty() { Path::new(".") } else { path }, "")?;
    reader.local_dependencies(path)?;
    Ok(reader.files)
}

fn io_error(path: &Path, source: io::Error) -> FolderError {
    FolderError::Io { path: path.display().to_string(), source }
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
        let visible = |name: &std::ffi::OsStr| !name.as_encoded_bytes().starts_with(b".");
        let walk = WalkDir::new(folder).follow_links(true).sort_by_file_name().into_iter();
        let walk = walk.filter_entry(|entry| entry.depth() == 0 || visible(entry.file_name()));
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
            let is_packed = path.extension().is_some_and(|extension| extension == "tgz")
                && name.rsplit_once('/').is_some_and(|(at, _)| at == "charts" || at.ends_with("/charts"));
            if is_packed {
                self.unpack(path, &bytes, &format!("{name}/"))?;
            } else {
                self.add(name, bytes, folder)?;
            }
        }
        Ok(())
    }

    /// Unpacks an archive without its first folder, which has the name of the chart.
    fn unpack(&mut self, path: &Path, bytes: &[u8], prefix: &str) -> Result<(), FolderError> {
        let failed = |source| io_error(path, source);
        let limit = MAX_BYTES.saturating_sub(self.bytes) + 1;
        let mut archive = tar::Archive::new(GzDecoder::new(bytes).take(limit));
        for entry in archive.entries().map_err(failed)? {
            let mut entry = entry.map_err(failed)?;
            if !entry.header().entry_type().is_file() {
                continue;
            }
            let inner = entry.path().map_err(failed)?.into_owned();
            let mut parts = inner.components();
            parts.next();
            let inner: PathBuf = parts.collect();
            let is_plain = inner.components().all(|part| matches!(part, Component::Normal(_)));
            let Some(name) = inner.to_str().filter(|name| is_plain && !name.is_empty()) else { continue };
            let name = format!("{prefix}{name}");
            let mut content = Vec::new();
            entry.read_to_end(&mut content).map_err(failed)?;
            self.add(name, content, path)?;
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
