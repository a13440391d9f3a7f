//! A chart with values in, manifests out, with the source of every byte.

use std::{collections::HashMap, rc::Rc};

use serde_json::{Value as Json, json};

use crate::{
    chart::{Chart, Enabled, MissingDependency, enabled, metadata_for_templates},
    error::{Failed, NamedText, TemplateErrorKind},
    exec::{Defines, Interpreter, Limits},
    functions::semver,
    parse::{self, Range, Tree},
    text::{NO_FILE, NOT_LITERAL, ScopeId, Source, Text},
    value::{Data, Heap, Map, ROOT, Value},
};

/// What a chart is rendered for.
pub struct Target<'t> {
    /// Name of the release.
    pub release: &'t str,
    /// Namespace of the release.
    pub namespace: &'t str,
    /// Major and minor of the API server.
    pub kubernetes: (u16, u16),
    /// Whether the release exists already.
    pub is_upgrade: bool,
    /// Whether `fail` and `required` end a rendering. If not, it goes on as if the chart had accepted the values.
    pub may_refuse: bool,
    /// Whether the API server has a group and version, or also a kind.
    pub has_api: &'t dyn Fn(&str) -> bool,
    /// What it may cost.
    pub limits: Limits,
}

/// A template that could not be rendered.
#[derive(Debug, Clone)]
pub struct RenderError {
    /// Why.
    pub kind: TemplateErrorKind,
    /// Where it went wrong; the chart, if that is not known.
    pub place: Option<TemplatePlace>,
}

/// A place in a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplatePlace {
    /// The template, as the user knows it.
    pub file: Rc<str>,
    /// Its text.
    pub text: Rc<str>,
    /// First byte.
    pub start: usize,
    /// Byte after the last.
    pub end: usize,
}

/// A path in the values of the chart.
pub type ValuePath = Vec<String>;

/// Where a byte of the output comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputSource {
    /// The literal or the action that wrote it.
    pub place: TemplatePlace,
    /// Whether it is written in the template as it is, so that the bytes after it are its own as well.
    pub is_literal: bool,
    /// The values that it is made of.
    pub values: Vec<ValuePath>,
    /// The values of the conditions around it, the innermost first.
    pub conditions: Vec<ValuePath>,
}

/// The output of a template.
#[derive(Debug)]
pub struct RenderedTemplate {
    /// The template, as the user knows it.
    pub file: Rc<str>,
    /// Its path in the whole of the charts, by which it can be rendered alone.
    pub id: Rc<str>,
    output: Text,
    /// The values that it looked at.
    pub read: Vec<ValuePath>,
}

impl RenderedTemplate {
    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.output.text
    }
}

/// The output of a chart.
#[derive(Debug)]
pub struct Rendering {
    /// The templates that wrote something.
    pub templates: Vec<RenderedTemplate>,
    /// Templates that failed.
    pub errors: Vec<RenderError>,
    /// Dependencies that are enabled and not there.
    pub missing: Vec<MissingDependency>,
    /// The files in the `crds/` of the charts, which are created as they are: the names that users know, and the contents.
    pub definitions: Vec<(Rc<str>, Rc<[u8]>)>,
    /// What it cost, in steps.
    pub work: u64,
    heap: Heap,
    files: Vec<NamedText>,
}

/// A chart whose templates are parsed.
pub struct Engine<'c> {
    chart: &'c Chart,
    parsed: HashMap<*const str, Rc<Result<Tree, RenderError>>>,
}

impl<'c> Engine<'c> {
    /// Parses the templates of a chart and of the charts below it.
    #[must_use]
    pub fn new(chart: &'c Chart) -> Self {
        let mut parsed = HashMap::new();
        let mut charts = vec![chart];
        while let Some(chart) = charts.pop() {
            for file in &chart.templates {
                let error = |kind: TemplateErrorKind, at: Range| {
                    let named = NamedText { name: Rc::clone(&file.shown), text: Rc::clone(&file.text) };
                    RenderError { kind, place: Some(place_of(&named, at)) }
                };
                let tree = if file.is_text {
                    parse::parse(&file.text).map_err(|misread| error(misread.error.into(), misread.at))
                } else {
                    Err(error(TemplateErrorKind::NotText, Range { start: 0, end: 0 }))
                };
                parsed.insert(Rc::as_ptr(&file.text), Rc::new(tree));
            }
            charts.extend(&chart.charts);
        }
        Self { chart, parsed }
    }

    /// Renders the chart, or one of its templates.
    #[must_use]
    pub fn render(&self, values: &Json, target: &Target<'_>, only: Option<&str>) -> Rendering {
        let (root, missing) = enabled(self.chart, values.clone());
        let mut errors = Vec::new();
        let mut files = Vec::new();
        let mut trees = Vec::new();
        let mut definitions = Vec::new();
        let mut charts = vec![&root];
        while let Some(node) = charts.pop() {
            definitions.extend(node.chart.definitions());
            charts.extend(&node.below);
        }
        self.collect(&root, &root.name, &mut files, &mut trees, &mut errors);
        // Definitions of the outer charts win over those of the inner.
        let mut order: Vec<usize> = (0..trees.len()).collect();
        order.sort_by_key(|&index| {
            let id: &str = trees.get(index).map_or("", |tree: &Parsed<'_, '_>| &*tree.id);
            (std::cmp::Reverse(id.matches('/').count()), id.to_owned())
        });
        let mut defines = Defines::new();
        for &index in &order {
            let Some(parsed) = trees.get(index) else { continue };
            let Ok(tree) = &*parsed.tree else { continue };
            let file = u32::try_from(index).unwrap_or(NO_FILE);
            defines.insert(Rc::clone(&parsed.id), (file, Rc::clone(&tree.body)));
            for define in &tree.defines {
                let is_empty = define.body.is_empty();
                if !(is_empty && defines.contains_key(&define.name)) {
                    defines.insert(Rc::clone(&define.name), (file, Rc::clone(define)));
                }
            }
        }
        let mut run = Interpreter::new(&files, Rc::new(defines), target.has_api, target.limits);
        run.may_refuse = target.may_refuse;
        let values = chart_values(&mut run.heap, &root, ROOT);
        let mut dots = HashMap::new();
        dot(&mut run, &root, &values, true, target, &mut dots);
        let mut templates = Vec::new();
        for (index, parsed) in trees.iter().enumerate() {
            let base = parsed.id.rsplit('/').next().unwrap_or_default();
            let is_other = only.is_some_and(|only| only != &*parsed.id);
            if base.starts_with('_') || base == "NOTES.txt" || is_other {
                continue;
            }
            let Ok(tree) = &*parsed.tree else { continue };
            let Some(dot) = dots.get(&std::ptr::from_ref(parsed.chart)).cloned() else { continue };
            let about = [
                ("Name", Value::text(&*parsed.id)),
                ("BasePath", Value::text(parsed.id.split_inclusive("/templates").next().unwrap_or_default())),
            ];
            let about = run.heap.map(about.into_iter().map(|(key, value)| (key.into(), value)).collect());
            let mut dot = dot;
            dot.insert("Template".into(), about);
            let dot = run.map_value(dot);
            run.read.clear();
            let file = u32::try_from(index).unwrap_or(NO_FILE);
            match run.run_file(file, tree, &dot) {
                Ok(output) if output.text.trim().is_empty() => {}
                Ok(output) => {
                    let read = std::mem::take(&mut run.read);
                    let read = read.into_iter().map(|path| run.heap.path(path)).collect();
                    let shown = run.files.get(index).map_or_else(|| "".into(), |file| Rc::clone(&file.name));
                    let output = output.separated();
                    templates.push(RenderedTemplate { file: shown, id: Rc::clone(&parsed.id), output, read });
                }
                Err(error) => errors.push(located(&files, &error)),
            }
        }
        let work = run.steps + run.bytes / 256 + run.heap.size();
        let heap = run.heap;
        Rendering { templates, errors, missing, definitions, work, heap, files }
    }

    fn collect<'e>(
        &self,
        node: &'e Enabled<'c>,
        id: &str,
        files: &mut Vec<NamedText>,
        trees: &mut Vec<Parsed<'e, 'c>>,
        errors: &mut Vec<RenderError>,
    ) {
        for file in &node.chart.templates {
            let Some(tree) = self.parsed.get(&Rc::as_ptr(&file.text)) else { continue };
            if let Err(error) = &**tree {
                errors.push(error.clone());
            }
            files.push(NamedText { name: Rc::clone(&file.shown), text: Rc::clone(&file.text) });
            trees.push(Parsed {
                id: format!("{id}/{}", file.path).into(),
                tree: Rc::clone(tree),
                chart: node,
            });
        }
        for below in &node.below {
            self.collect(below, &format!("{id}/charts/{}", below.name), files, trees, errors);
        }
    }

    /// Why the chart does not fit the release of the API server.
    #[must_use]
    pub fn refuses(&self, (major, minor): (u16, u16)) -> Option<String> {
        let constraint = self.chart.kube_version()?;
        let version = semver::Version::parse(&format!("{major}.{minor}.0"))?;
        (semver::matches(constraint, &version) == Some(false)).then(|| {
            format!("the chart requires kubeVersion {constraint}, which v{major}.{minor}.0 does not fulfil")
        })
    }
}

struct Parsed<'e, 'c> {
    id: Rc<str>,
    tree: Rc<Result<Tree, RenderError>>,
    chart: &'e Enabled<'c>,
}

fn place_of(file: &NamedText, at: Range) -> TemplatePlace {
    TemplatePlace {
        file: Rc::clone(&file.name),
        text: Rc::clone(&file.text),
        start: at.start as usize,
        end: at.end as usize,
    }
}

fn located(files: &[NamedText], error: &Failed) -> RenderError {
    let place = error.at.and_then(|(file, span)| Some(place_of(files.get(file as usize)?, span)));
    RenderError { kind: (*error.kind).clone(), place }
}

/// The values of a chart: those of the charts below are the same objects, and globals are those of the root.
fn chart_values(heap: &mut Heap, node: &Enabled<'_>, path: u32) -> Value {
    let mut map = Map::new();
    for (key, value) in node.values.as_object().into_iter().flatten() {
        let child = if let Some(below) = node.below.iter().find(|below| below.name == *key) {
            let path = heap.child(path, key);
            chart_values(heap, below, path)
        } else {
            let path = heap.child(if key == "global" { ROOT } else { path }, key);
            heap.values(value, path)
        };
        map.insert(key.as_str().into(), child);
    }
    Value { path, ..heap.map(map) }
}

type Dots<'e, 'c> = HashMap<*const Enabled<'c>, Map>;

/// What `.` is in the templates of a chart.
fn dot<'e, 'c>(
    run: &mut Interpreter<'_>,
    node: &'e Enabled<'c>,
    values: &Value,
    is_root: bool,
    target: &Target<'_>,
    dots: &mut Dots<'e, 'c>,
) -> Value {
    let mut below = Map::new();
    for child in &node.below {
        let values = run.field(values, &child.name).unwrap_or(Value::NIL);
        let dot = dot(run, child, &values, false, target, dots);
        below.insert(child.name.as_str().into(), dot);
    }
    let (major, minor) = target.kubernetes;
    let version = format!("v{major}.{minor}.0");
    let mut metadata = metadata_for_templates(node.chart, is_root);
    metadata.insert("Name".to_owned(), json!(node.name));
    let about = run.heap.values(&Json::Object(metadata), 0);
    let release = json!({
        "Name": target.release, "Namespace": target.namespace, "Service": "Helm",
        "Revision": if target.is_upgrade { 2 } else { 1 },
        "IsInstall": !target.is_upgrade, "IsUpgrade": target.is_upgrade,
    });
    let release = run.heap.values(&release, 0);
    let kube = json!({
        "Version": version, "GitVersion": version, "Major": major.to_string(), "Minor": minor.to_string(),
    });
    let kube = run.heap.values(&kube, 0);
    let helm = run.heap.values(
        &json!({"Version": "v3.19.0", "GitCommit": "", "GitTreeState": "clean", "GoVersion": "go1.24"}),
        0,
    );
    let capabilities =
        [("KubeVersion", kube), ("HelmVersion", helm), ("APIVersions", Value::of(Data::ApiVersions))];
    let capabilities =
        run.heap.map(capabilities.into_iter().map(|(key, value)| (key.into(), value)).collect());
    let subcharts = run.heap.map(below);
    let map: Map = [
        ("Values", values.clone()),
        ("Chart", about),
        ("Release", release),
        ("Capabilities", capabilities),
        ("Files", Value::of(Data::Files(Rc::clone(&node.chart.files)))),
        ("Subcharts", subcharts),
    ]
    .into_iter()
    .map(|(key, value)| (key.into(), value))
    .collect();
    dots.insert(std::ptr::from_ref(node), map.clone());
    run.heap.map(map)
}

impl Rendering {
    /// Where the byte at an offset of the output of a template comes from.
    #[must_use]
    pub fn source(&self, template: &RenderedTemplate, offset: usize) -> Option<OutputSource> {
        let marks = &template.output.marks;
        let index = marks.partition_point(|mark| mark.end as usize <= offset);
        let mark = marks.get(index)?;
        let begin =
            index.checked_sub(1).and_then(|before| marks.get(before)).map_or(0, |mark| mark.end as usize);
        let source: &Source = self.heap.sources.get(mark.source as usize)?;
        let file = self.files.get(source.file as usize)?;
        let place = if mark.at == NOT_LITERAL {
            place_of(file, source.span)
        } else {
            let at = mark.at as usize;
            let (start, end) = (at + (offset - begin), at + (mark.end as usize - begin));
            TemplatePlace { file: Rc::clone(&file.name), text: Rc::clone(&file.text), start, end }
        };
        let values = self.heap.paths_of(source.data).iter().map(|&path| self.heap.path(path)).collect();
        let is_literal = mark.at != NOT_LITERAL;
        Some(OutputSource { place, is_literal, values, conditions: self.conditions(source.scope) })
    }

    fn conditions(&self, mut scope: ScopeId) -> Vec<ValuePath> {
        let mut found: Vec<ValuePath> = Vec::new();
        while scope > 0 {
            let Some(&(outer, set)) = self.heap.scopes.get(scope as usize) else { break };
            for &path in self.heap.paths_of(set) {
                let path = self.heap.path(path);
                if !found.contains(&path) {
                    found.push(path);
                }
            }
            scope = outer;
        }
        found
    }
}
