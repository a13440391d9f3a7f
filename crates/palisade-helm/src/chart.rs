//! Charts: their files, their dependencies, and the values that each of them gets.
//!
//! Implements: Helm, "Charts" and "Subcharts and Global Values": conditions, tags, aliases, imported values, globals.
//! <https://helm.sh/docs/topics/charts/>

use std::{borrow::Cow, collections::BTreeMap, rc::Rc};

use palisade_yaml::{Limits, parse};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::{functions::semver, value::FileMap};

/// Why a folder is no chart.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub enum ChartError {
    /// There is no Chart.yaml, or it cannot be read.
    #[error("{file} cannot be read: {problem}")]
    Unreadable {
        /// The file.
        file: String,
        /// Why.
        problem: String,
    },
    /// Charts inside charts inside charts.
    #[error("{0}: charts are nested too deeply")]
    TooDeep(String),
}

/// A template of a chart.
#[derive(Debug)]
pub(crate) struct TemplateFile {
    /// Its path in the chart.
    pub(crate) path: Rc<str>,
    /// What the user knows it as.
    pub(crate) shown: Rc<str>,
    pub(crate) text: Rc<str>,
    /// Whether it is UTF-8; the text of one that is not has other letters in the place of what is none.
    pub(crate) is_text: bool,
}

/// A chart with all charts below it.
#[derive(Debug)]
pub struct Chart {
    /// Where it is, as the user knows it.
    pub folder: String,
    /// `name` of Chart.yaml.
    pub name: String,
    pub(crate) metadata: Value,
    pub(crate) values: Value,
    pub(crate) templates: Vec<TemplateFile>,
    pub(crate) files: Rc<FileMap>,
    pub(crate) charts: Vec<Chart>,
    pub(crate) requirements: Vec<Requirement>,
}

/// An entry of `dependencies`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Requirement {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) alias: Option<String>,
    pub(crate) conditions: Vec<String>,
    pub(crate) tags: Vec<String>,
    pub(crate) imports: Vec<(String, String)>,
}

/// Where a chart is found by name, and under which it gets its values.
impl Requirement {
    fn key(&self) -> &str {
        self.alias.as_deref().unwrap_or(&self.name)
    }
}

/// A dependency that is enabled and not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingDependency {
    /// Its name.
    pub name: String,
    /// The chart that needs it.
    pub of: String,
}

const MAX_CHARTS_DEPTH: usize = 8;

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

/// The first document of a file of the chart, as JSON.
fn read(file: &str, bytes: &[u8]) -> Result<Value, ChartError> {
    let fail = |problem: String| ChartError::Unreadable { file: file.to_owned(), problem };
    let text = palisade_yaml::decode(bytes).map_err(|error| fail(error.to_string()))?;
    let limits =
        Limits { max_bytes: 16 << 20, max_nodes: 500_000, max_expanded_nodes: 500_000, ..Limits::default() };
    let parsed = parse(&text, &limits);
    if let Some(error) = parsed.errors.first() {
        return Err(fail(error.to_string()));
    }
    let Some(document) = parsed.documents.first() else { return Ok(Value::Null) };
    document.root().to_json().map_err(|error| fail(error.to_string()))
}

fn text_of(value: &Value, key: &str) -> Option<String> {
    value.get(key).and_then(Value::as_str).map(str::to_owned)
}

fn requirements(list: Option<&Value>) -> Vec<Requirement> {
    let strings = |value: Option<&Value>| -> Vec<String> {
        let items = value.and_then(Value::as_array).into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let list = list.and_then(Value::as_array).into_iter().flatten();
    list.map(|entry| {
        let conditions = text_of(entry, "condition").unwrap_or_default();
        let imports = entry.get("import-values").and_then(Value::as_array).into_iter().flatten();
        let imports = imports.filter_map(|import| match import {
            Value::String(key) => Some((format!("exports.{key}"), ".".to_owned())),
            other => Some((text_of(other, "child")?, text_of(other, "parent")?)),
        });
        Requirement {
            name: text_of(entry, "name").unwrap_or_default(),
            version: text_of(entry, "version").unwrap_or_default(),
            alias: text_of(entry, "alias").filter(|alias| !alias.is_empty()),
            conditions: conditions
                .split(',')
                .map(|path| path.trim().to_owned())
                .filter(|path| !path.is_empty())
                .collect(),
            tags: strings(entry.get("tags")),
            imports: imports.collect(),
        }
    })
    .collect()
}

impl Chart {
    /// Reads a chart from its files, by their path in its folder. A packed chart in `charts/` is given as a folder of its name.
    pub fn load(folder: &str, files: &BTreeMap<String, Vec<u8>>) -> Result<Self, ChartError> {
        let files = files.iter().map(|(path, bytes)| (path.as_str(), bytes.as_slice())).collect();
        Self::read(folder, &files, 0)
    }

    fn read(folder: &str, files: &BTreeMap<&str, &[u8]>, depth: usize) -> Result<Self, ChartError> {
        if depth > MAX_CHARTS_DEPTH {
            return Err(ChartError::TooDeep(folder.to_owned()));
        }
        let shown = |path: &str| if folder.is_empty() { path.to_owned() } else { format!("{folder}/{path}") };
        let missing =
            |path: &str| ChartError::Unreadable { file: shown(path), problem: "no such file".to_owned() };
        let about = files.get("Chart.yaml").ok_or_else(|| missing("Chart.yaml"))?;
        let metadata = read(&shown("Chart.yaml"), about)?;
        let fail =
            |problem: &str| ChartError::Unreadable { file: shown("Chart.yaml"), problem: problem.to_owned() };
        let name = text_of(&metadata, "name").ok_or_else(|| fail("it has no name"))?;
        let values = match files.get("values.yaml") {
            Some(bytes) => match read(&shown("values.yaml"), bytes)? {
                Value::Null => Value::Object(Map::new()),
                values @ Value::Object(_) => values,
                _ => {
                    let problem = "values must be a mapping".to_owned();
                    return Err(ChartError::Unreadable { file: shown("values.yaml"), problem });
                }
            },
            None => Value::Object(Map::new()),
        };
        let required = match (metadata.get("dependencies"), files.get("requirements.yaml")) {
            (Some(list), _) => requirements(Some(list)),
            (None, Some(bytes)) => {
                requirements(read(&shown("requirements.yaml"), bytes)?.get("dependencies"))
            }
            (None, None) => Vec::new(),
        };
        let is_library = text_of(&metadata, "type").as_deref() == Some("library");
        let mut templates = Vec::new();
        let mut own = FileMap::new();
        let mut below: BTreeMap<&str, BTreeMap<&str, &[u8]>> = BTreeMap::new();
        for (path, bytes) in files {
            if let Some(rest) = path.strip_prefix("charts/") {
                if let Some((chart, inner)) =
                    rest.split_once('/').filter(|(chart, _)| !chart.starts_with(['.', '_']))
                {
                    below.entry(chart).or_default().insert(inner, bytes);
                }
            } else if path.starts_with("templates/") {
                let base = path.rsplit('/').next().unwrap_or_default();
                if is_library && !base.starts_with('_') {
                    continue;
                }
                let text = String::from_utf8_lossy(bytes);
                let is_text = matches!(text, Cow::Borrowed(_));
                let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
                templates.push(TemplateFile {
                    path: (*path).into(),
                    shown: shown(path).into(),
                    text: text.into(),
                    is_text,
                });
            } else if !matches!(
                *path,
                "Chart.yaml"
                    | "values.yaml"
                    | "values.schema.json"
                    | "requirements.yaml"
                    | "Chart.lock"
                    | "requirements.lock"
            ) {
                own.insert((*path).into(), (*bytes).into());
            }
        }
        let mut charts = Vec::new();
        for (key, inner) in below {
            if inner.contains_key("Chart.yaml") {
                charts.push(Self::read(&shown(&format!("charts/{key}")), &inner, depth + 1)?);
            }
        }
        Ok(Self {
            folder: folder.to_owned(),
            name,
            metadata,
            values,
            templates,
            files: Rc::new(own),
            charts,
            requirements: required,
        })
    }

    /// The constraint on the release of the API server, if there is one.
    #[must_use]
    pub fn kube_version(&self) -> Option<&str> {
        self.metadata.get("kubeVersion").and_then(Value::as_str)
    }

    /// Whether its templates are for other charts alone.
    #[must_use]
    pub fn is_library(&self) -> bool {
        self.metadata.get("type").and_then(Value::as_str) == Some("library")
    }

    /// Adds the values of values.yaml that are not set.
    pub fn add_defaults(&self, values: &mut Value) {
        merge_missing(values, &self.values);
        for below in &self.charts {
            if let Value::Object(values) = values {
                let own = values.entry(below.name.clone()).or_insert_with(|| Value::Object(Map::new()));
                below.add_defaults(own);
            }
        }
    }

    /// The names of the charts in its `charts/`.
    #[must_use]
    pub fn chart_names(&self) -> Vec<String> {
        self.charts.iter().map(|chart| chart.name.clone()).collect()
    }

    /// How many templates it has, those of the charts below included.
    #[must_use]
    pub fn template_count(&self) -> usize {
        self.templates.len() + self.charts.iter().map(Self::template_count).sum::<usize>()
    }

    /// Whether a template distinguishes the installation of a release from its upgrades.
    #[must_use]
    pub fn depends_on_upgrade(&self) -> bool {
        // Whatever looks at the release beyond these fields may.
        const OTHERS: [&str; 3] = [".Name", ".Namespace", ".Service"];
        let distinguishes = |file: &TemplateFile| {
            let after = file.text.split("Release").skip(1);
            after.into_iter().any(|rest| !OTHERS.iter().any(|field| rest.starts_with(field)))
                || file.text.contains("IsUpgrade")
                || file.text.contains("IsInstall")
                || file.text.contains("Revision")
        };
        self.templates.iter().any(distinguishes) || self.charts.iter().any(Self::depends_on_upgrade)
    }

    /// Whether it has the version that a requirement asks for. A version that cannot be read is taken for it.
    fn fits(&self, required: &Requirement) -> bool {
        let version = self.metadata.get("version").and_then(Value::as_str).and_then(semver::Version::parse);
        required.version.is_empty()
            || version.is_none_or(|version| semver::matches(&required.version, &version) != Some(false))
    }

    /// The charts below that a requirement means. Helm takes one if there are several, and does not say which.
    fn find<'c>(&'c self, required: &Requirement) -> Vec<&'c Self> {
        let is_it = |chart: &&Self| chart.name == required.name && chart.fits(required);
        self.charts.iter().filter(is_it).collect()
    }

    /// The files in its `crds/`, which Helm creates as they are: the names that users know, and the contents.
    pub(crate) fn definitions(&self) -> impl Iterator<Item = (Rc<str>, Rc<[u8]>)> {
        let is_manifest = |path: &str| [".yaml", ".yml", ".json"].iter().any(|end| path.ends_with(end));
        let files = self.files.iter().filter(move |(path, _)| path.starts_with("crds/") && is_manifest(path));
        files.map(|(path, bytes)| {
            let shown =
                if self.folder.is_empty() { path.to_string() } else { format!("{}/{path}", self.folder) };
            (shown.into(), Rc::clone(bytes))
        })
    }
}

/// A chart that is rendered, with its values.
#[derive(Debug)]
pub(crate) struct Enabled<'c> {
    pub(crate) chart: &'c Chart,
    /// The name under which it has its values.
    pub(crate) name: String,
    pub(crate) values: Value,
    pub(crate) below: Vec<Enabled<'c>>,
}

/// A chart below, the name of its values, and what the parent imports from them.
type Child<'c> = (&'c Chart, String, &'c [(String, String)]);

/// The charts that are enabled with these values, and those that are missing.
pub(crate) fn enabled(chart: &Chart, values: Value) -> (Enabled<'_>, Vec<MissingDependency>) {
    let mut missing = Vec::new();
    let mut all = values.clone();
    merge_missing(&mut all, &chart.values);
    let tags = all.get("tags").cloned().unwrap_or(Value::Null);
    let root = build(chart, chart.name.clone(), values, &tags, &mut missing);
    (root, missing)
}

fn build<'c>(
    chart: &'c Chart,
    name: String,
    mut values: Value,
    tags: &Value,
    missing: &mut Vec<MissingDependency>,
) -> Enabled<'c> {
    merge_missing(&mut values, &chart.values);
    let mut children: Vec<Child<'c>> = Vec::new();
    let mut disabled: Vec<&str> = Vec::new();
    for required in &chart.requirements {
        let found = chart.find(required);
        if !is_enabled(required, &values, found.first().copied(), tags) {
            disabled.push(required.key());
            continue;
        }
        // Helm renders one of another version, see below.
        if found.is_empty() && !chart.charts.iter().any(|below| below.name == required.name) {
            missing.push(MissingDependency { name: required.name.clone(), of: chart.folder.clone() });
        }
        children
            .extend(found.into_iter().map(|found| (found, required.key().to_owned(), &*required.imports)));
    }
    // What is there and not required is rendered, and so is what has a version that is not required.
    for below in &chart.charts {
        let is_required = |required: &Requirement| required.name == below.name && below.fits(required);
        if !chart.requirements.iter().any(is_required) && !disabled.contains(&below.name.as_str()) {
            children.push((below, below.name.clone(), &[]));
        }
    }
    let mut enabled = Vec::new();
    for (child, key, imports) in children {
        let mut own = match values.get(&key) {
            Some(Value::Object(own)) => Value::Object(own.clone()),
            _ => Value::Object(Map::new()),
        };
        if let (Some(globals), Value::Object(own)) = (values.get("global"), &mut own) {
            // What the parent sets for all wins over what the chart has.
            let mut merged = globals.clone();
            if let Some(known) = own.get("global") {
                merge_missing(&mut merged, known);
            }
            own.insert("global".to_owned(), merged);
        }
        let node = build(child, key.clone(), own, tags, missing);
        for (from, to) in imports {
            if let Some(imported) = lookup(&node.values, from) {
                let at_path = to
                    .split('.')
                    .filter(|part| !part.is_empty())
                    .rev()
                    .fold(imported.clone(), |value, part| {
                        Value::Object(Map::from_iter([(part.to_owned(), value)]))
                    });
                merge_missing(&mut values, &at_path);
            }
        }
        if let Value::Object(values) = &mut values {
            values.insert(key, node.values.clone());
        }
        enabled.push(node);
    }
    Enabled { chart, name, values, below: enabled }
}

fn lookup<'v>(values: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(values, |value, part| value.get(part))
}

fn is_enabled(required: &Requirement, values: &Value, chart: Option<&Chart>, tags: &Value) -> bool {
    for condition in &required.conditions {
        let own = || {
            let inner = condition.strip_prefix(required.key())?.strip_prefix('.')?;
            lookup(&chart?.values, inner)
        };
        if let Some(Value::Bool(enabled)) = lookup(values, condition).or_else(own) {
            return *enabled;
        }
    }
    let chosen: Vec<bool> = required.tags.iter().filter_map(|tag| tags.get(tag)?.as_bool()).collect();
    chosen.is_empty() || chosen.contains(&true)
}

/// Adds what is missing. A null takes the default away.
pub(crate) fn merge_missing(target: &mut Value, defaults: &Value) {
    let (Value::Object(target), Value::Object(defaults)) = (target, defaults) else { return };
    for (key, value) in defaults {
        match target.get_mut(key) {
            None => {
                target.insert(key.clone(), value.clone());
            }
            Some(Value::Null) => {
                if !value.is_null() {
                    target.remove(key);
                }
            }
            Some(known) => merge_missing(known, value),
        }
    }
}

/// Values of several files and options as one: the later win.
#[must_use]
pub fn merged_values(files: impl DoubleEndedIterator<Item = Value>) -> Value {
    let mut all = Value::Object(Map::new());
    for file in files.rev() {
        keep_and_add(&mut all, &file);
    }
    all
}

/// Like [`merge_missing`], but a null stays, to take the chart's default away.
fn keep_and_add(target: &mut Value, others: &Value) {
    let (Value::Object(target), Value::Object(others)) = (target, others) else { return };
    for (key, value) in others {
        match target.get_mut(key) {
            None => {
                target.insert(key.clone(), value.clone());
            }
            Some(known) => keep_and_add(known, value),
        }
    }
}

/// The parts of Chart.yaml under the names that templates use.
pub(crate) fn metadata_for_templates(chart: &Chart, is_root: bool) -> Map<String, Value> {
    let mut fields: Map<String, Value> = object(&chart.metadata)
        .into_iter()
        .map(|(key, value)| {
            let mut letters = key.chars();
            let key = letters.next().map(|first| first.to_uppercase().chain(letters).collect::<String>());
            // Versions are strings, whatever they look like.
            let value = match value {
                Value::Number(number) => Value::String(number.to_string()),
                other => other,
            };
            let key = key.unwrap_or_default();
            (if key == "ApiVersion" { "APIVersion".to_owned() } else { key }, value)
        })
        .collect();
    fields.insert("IsRoot".to_owned(), Value::Bool(is_root));
    fields
}
