//! Helm charts in a search: found by their Chart.yaml, rendered, and checked with findings in templates and values.
//!
//! `folder` reads the files of a chart, `judge` renders and judges them, `values` searches the keys of values.yaml that decide
//! about a finding, and proves each by rendering again. Templates are never edited.

mod apis;
mod folder;
mod judge;
mod values;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
};

use palisade_helm::merged_values;
use palisade_yaml::{Limits, parse};
use serde_json::{Map, Value};
use thiserror::Error;

pub use self::judge::{ChartAnswer, ChartMode, Overlay, check_chart, check_chart_with};
pub(crate) use self::{
    judge::edited as edited_values,
    values::{differences, is_expected, object_values, segments},
};
use crate::{failure::Failure, input::Input};

/// The values that the user passes to every chart.
#[derive(Debug, Default)]
pub struct HelmValues {
    files: Vec<ValuesFile>,
    set: Value,
}

/// A file of values.
#[derive(Debug)]
pub(crate) struct ValuesFile {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    pub(crate) values: Value,
}

impl HelmValues {
    /// Reads `--helm-values` and `--helm-set`.
    pub fn read(files: &[PathBuf], set: &[String]) -> Result<Self, Failure> {
        let mut read = Vec::new();
        for path in files {
            let problem =
                |what: String| Failure::input(format!("cannot read values {}: {what}", path.display()));
            let text = std::fs::read_to_string(path).map_err(|error| problem(error.to_string()))?;
            let values = values_of(&text).map_err(|error| problem(error.to_string()))?;
            read.push(ValuesFile { path: path.clone(), text, values });
        }
        let mut all = Value::Object(Map::new());
        for pair in set {
            let Some((path, value)) = pair.split_once('=') else {
                return Err(Failure::input(format!("--helm-set takes KEY=VALUE, not {pair:?}")));
            };
            let path: Vec<String> = path.split('.').map(str::to_owned).collect();
            let value = match value {
                "true" => Value::Bool(true),
                "false" => Value::Bool(false),
                "null" => Value::Null,
                text => text.parse::<i64>().map_or_else(|_| Value::String(text.to_owned()), Value::from),
            };
            values::put(&mut all, &path, value);
        }
        Ok(Self { files: read, set: all })
    }

    /// The values with a patch, which wins over the files and not over `--helm-set`.
    pub(crate) fn with(&self, patch: &Value) -> Value {
        let files = self.files.iter().map(|file| file.values.clone());
        let layers: Vec<Value> = files.chain([patch.clone(), self.set.clone()]).collect();
        merged_values(layers.into_iter())
    }

    /// The file that edits go to, if it is not the chart's own.
    pub(crate) fn last_file(&self) -> Option<&ValuesFile> {
        self.files.last()
    }
}

/// Why a text holds no values.
#[derive(Debug, Error)]
enum ValuesError {
    /// No YAML.
    #[error(transparent)]
    Syntax(#[from] palisade_yaml::Error),
    /// A value that no template can use.
    #[error(transparent)]
    NoJson(#[from] palisade_yaml::DeserializeError),
    /// A list or a text, which Helm rejects as well.
    #[error("values must be a mapping")]
    NoMapping,
}

/// The values of a text; an empty one has none. As in Helm, the first document counts.
fn values_of(text: &str) -> Result<Value, ValuesError> {
    let parsed = parse(text, &Limits::default());
    if let Some(error) = parsed.errors.into_iter().next() {
        return Err(error.into());
    }
    let Some(document) = parsed.documents.first() else { return Ok(Value::Object(Map::new())) };
    match document.root().to_json()? {
        Value::Null => Ok(Value::Object(Map::new())),
        values @ Value::Object(_) => Ok(values),
        _ => Err(ValuesError::NoMapping),
    }
}

fn is_chart_file(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(b"Chart.yaml")
        && path.file_name().is_some_and(|name| name == "Chart.yaml")
}

/// The paths, and for each Chart.yaml among them the `crds/` of its chart, which Helm installs with it.
#[must_use]
pub fn with_definitions(paths: &[PathBuf]) -> Vec<PathBuf> {
    let charts = paths.iter().filter(|path| is_chart_file(path));
    let folders = charts.map(|path| path.with_file_name("crds")).filter(|folder| folder.is_dir());
    let folders: Vec<PathBuf> = folders.collect();
    paths.iter().cloned().chain(folders).collect()
}

/// Replaces the files of charts by the charts. Without a Chart.yaml nothing changes.
pub fn take_charts(inputs: &mut Vec<Input>) {
    let packed = |path: &Path| path.as_os_str().as_encoded_bytes().ends_with(b".tgz");
    let mut roots = BTreeSet::new();
    for input in inputs.iter_mut() {
        let Input::File(path) = input else { continue };
        if is_chart_file(path) {
            roots.insert(path.parent().map(Path::to_owned).unwrap_or_default());
        } else if packed(path) {
            *input = Input::Chart(path.clone());
        }
    }
    if roots.is_empty() {
        return;
    }
    // A chart in `charts/` of another is a part of that.
    let outer: Vec<PathBuf> = roots
        .iter()
        .filter(|root| {
            !root.ancestors().skip(1).any(|above| {
                roots.contains(above)
                    && root.strip_prefix(above).is_ok_and(|below| below.starts_with("charts"))
            })
        })
        .cloned()
        .collect();
    inputs.retain(|input| {
        let Input::File(path) = input else { return true };
        !path.ancestors().skip(1).any(|above| outer.iter().any(|root| root == above) && belongs(above, path))
    });
    inputs.extend(outer.into_iter().map(Input::Chart));
    inputs.sort();
}

/// The chart that a file is read as a part of; of charts inside each other the outermost.
#[must_use]
pub fn chart_of(file: &Path) -> Option<PathBuf> {
    let is_chart = |folder: &&Path| belongs(folder, file) && folder.join("Chart.yaml").is_file();
    file.ancestors().skip(1).filter(is_chart).last().map(Path::to_owned)
}

/// Whether a file of a chart's folder is read as a part of the chart.
fn belongs(root: &Path, path: &Path) -> bool {
    let Ok(below) = path.strip_prefix(root) else { return false };
    below.starts_with("templates")
        || below.starts_with("charts")
        || ["Chart.yaml", "values.yaml", "requirements.yaml", "values.schema.json"]
            .iter()
            .any(|name| below == Path::new(name))
}

/// A path as the user writes it.
pub(crate) fn shown(path: &Path) -> Arc<str> {
    if path.as_os_str().is_empty() { ".".into() } else { path.to_string_lossy().as_ref().into() }
}
