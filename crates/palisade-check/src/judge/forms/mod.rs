//! Pods of custom resources that do not hold a pod template: Argo Workflows, Tekton Tasks, resources of operators.
//!
//! Each pod that such an object makes is put together from its parts, judged as a pod, and every finding moved back to the
//! part it is about. What an operator adds is not in the object: such an object is undecided, and never allowed.

mod definitions;
mod kinds;
mod pods;

use std::sync::Arc;

use palisade_base::field_path::{FieldPath, PathStep};
use palisade_kustomize::{
    Rendered,
    tree::{Node, Origin, Value},
};
use palisade_model::workload::group_of;
use palisade_policy::standards::{finding::Edit, fixes::FixEdit};
use palisade_yaml::{NodeId, NodeRef, Span};
use serde::Deserialize;

pub use self::definitions::definitions_of;
use self::{kinds::FORMS, pods::Pods};
use super::{FileReport, Settings, Verdict, judge_text};
use crate::{
    diagnostic::{Code, Diagnostic, Label},
    manifest::Object,
    source_map::{Lines, Source},
};

/// A kind and where it holds pods: an entry of `[[workload]]` in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Configured {
    /// API group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// The path of a pod template or of a pod spec, such as `spec.template`; `*` is every item of a list.
    pub path: String,
    /// Whether the schema of a definition has it there.
    #[serde(skip)]
    pub is_of_schema: bool,
}

/// What is found in an object.
pub(super) struct Found {
    pub(super) diagnostics: Vec<Diagnostic>,
    pub(super) verdict: Option<Verdict>,
    /// Pods that could not be judged.
    pub(super) errors: usize,
}

/// A pod of an object, put together.
struct Sketch {
    node: Node,
    /// Where edits of it go; the pod itself has no text.
    kind: SketchKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SketchKind {
    /// A pod that is put together.
    Pod,
    /// A whole manifest inside the object.
    Manifest,
}

/// Judges an object of a kind that holds pods in another form. `None` if it is of no such kind.
pub(super) fn judge(
    object: &Object<'_>,
    file: &Arc<str>,
    source: &Source<'_>,
    settings: &Settings,
) -> Option<Found> {
    let group = group_of(object.api_version);
    let form = FORMS.iter().find(|form| form.group == group && form.kind == object.kind);
    let is_it = |form: &&Configured| form.group == group && form.kind == object.kind;
    let mut configured: Vec<&Configured> = settings.forms.iter().filter(is_it).collect();
    // Definitions are only looked for where something looks like a pod.
    if form.is_none()
        && configured.is_empty()
        && group.contains('.')
        && object.kind != "CustomResourceDefinition"
        && has_containers(object.node)
    {
        configured = settings.definitions.iter().filter(is_it).collect();
    }
    if form.is_none() && configured.is_empty() {
        return None;
    }
    // A value that JSON does not have is of no pod that an API server takes.
    let root = Node::read(0, object.node)?;
    let mut pods = Pods::default();
    for part in form.map(|form| form.parts).unwrap_or_default() {
        pods.add(part, &root);
    }
    for configured in &configured {
        let path: Vec<&str> = configured.path.split('.').filter(|part| !part.is_empty()).collect();
        pods.add_at(&root, &path);
    }
    if let Some(reason) = form.and_then(|form| form.undecided).filter(|_| configured.is_empty()) {
        pods.undecided.insert(0, reason.to_owned());
    }
    let mut checked = Checked {
        object,
        file,
        source,
        settings,
        found: Found { diagnostics: Vec::new(), verdict: None, errors: 0 },
        messages: Vec::new(),
        is_allowed: true,
        judged: 0,
    };
    for sketch in &pods.sketches {
        checked.sketch(sketch);
    }
    for text in &pods.texts {
        checked.text(text);
    }
    let is_silent = checked.judged == 0 && checked.found.diagnostics.is_empty();
    if is_silent && form.is_some_and(|form| form.may_be_empty) && configured.is_empty() {
        // A Composition may make anything.
        return None;
    }
    let is_empty = pods.sketches.is_empty() && pods.texts.is_empty() && pods.undecided.is_empty();
    let is_of_schema = configured.iter().any(|form| form.is_of_schema);
    if is_empty && is_of_schema {
        return None;
    }
    if is_of_schema {
        pods.undecided.push("what its controller adds is not known".to_owned());
    }
    if is_empty {
        pods.undecided.push("it has no pod in a form that is known".to_owned());
    }
    Some(checked.finish(&pods.undecided))
}

struct Checked<'c, 'd, 's> {
    object: &'c Object<'d>,
    file: &'c Arc<str>,
    source: &'c Source<'s>,
    settings: &'c Settings,
    found: Found,
    messages: Vec<String>,
    is_allowed: bool,
    /// How many pods were judged, or could not be.
    judged: usize,
}

impl Checked<'_, '_, '_> {
    fn sketch(&mut self, sketch: &Sketch) {
        let rendered = Rendered::of(std::iter::once(&sketch.node));
        let report = judge_text(self.file, &rendered.text, self.settings, &[]);
        let lines = Lines::new(&rendered.text);
        for mut finding in report.diagnostics.iter().cloned() {
            // The pod that is put together has the parts that decide, and not all that a pod needs.
            let is_of_shape = matches!(
                finding.code.as_str(),
                "api/invalid" | "api/unknown-field" | "api/other-release" | "api/ports"
            );
            if is_of_shape && sketch.kind == SketchKind::Pod {
                continue;
            }
            if let Some(at) = finding.at.take() {
                finding.at = self.moved(&rendered, &lines, &at);
            }
            if finding.at.is_none() {
                finding.at = Some(self.head());
            }
            if let Some(path) = finding.path.take() {
                finding.path = Some(self.path(&sketch.node, &path).unwrap_or(path));
            }
            finding.fix = finding.fix.take().and_then(|fix| self.fix(&sketch.node, &fix));
            if finding.fix.is_none() && finding.code.as_str().starts_with("pss/") {
                let help = finding.help.take().unwrap_or_default();
                if !help.starts_with("no automatic fix") {
                    finding.help = Some(format!("no automatic fix: in the pod, {help}"));
                }
            }
            finding.annotation = None;
            self.found.diagnostics.push(finding);
        }
        self.take(&report);
    }

    /// Manifests in a text inside the object.
    fn text(&mut self, node: &Node) {
        let Some(text) = node.as_str() else { return };
        let report = judge_text(self.file, text, self.settings, &[]);
        if report.verdicts.is_empty() && report.diagnostics.is_empty() {
            return;
        }
        let at = node.origin.map(|origin| self.source.label(origin.span, "in this text"));
        for mut finding in report.diagnostics.iter().cloned() {
            if let Some(line) = finding.line() {
                finding.because.push(format!("it is on line {line} of the text"));
            }
            finding.at = Some(at.clone().unwrap_or_else(|| self.head()));
            (finding.fix, finding.annotation) = (None, None);
            self.found.diagnostics.push(finding);
        }
        self.take(&report);
    }

    fn take(&mut self, report: &FileReport) {
        self.found.errors += report.errors;
        self.judged += report.errors + report.verdicts.len();
        for verdict in &report.verdicts {
            self.is_allowed &= verdict.allowed;
            if !verdict.message.is_empty() && !self.messages.contains(&verdict.message) {
                self.messages.push(verdict.message.clone());
            }
        }
        self.is_allowed &= report.errors == 0;
    }

    fn head(&self) -> Label {
        self.source.label(self.object.source.head(), "")
    }

    fn moved(&self, rendered: &Rendered, lines: &Lines<'_>, at: &Label) -> Option<Label> {
        let offset = |label: &Label| {
            let start = lines.offset(label.line, label.column);
            Span::new(start, lines.offset(label.end_line, label.end_column).max(start))
        };
        let (_, span) = rendered.origin(offset(at))?;
        let mut moved = self.source.label(span, at.text.clone());
        if let Some(related) = &at.related
            && let Some((_, span)) = rendered.origin(offset(related))
        {
            moved = moved.related(self.source.label(span, related.text.clone()));
        }
        Some(moved)
    }

    /// The path in the object of a path in a pod that was put together.
    fn path(&self, sketch: &Node, path: &str) -> Option<String> {
        let steps = parsed_path(path)?;
        let (origin, rest) = deepest(sketch, &steps)?;
        let mut own = self.own_path(origin)?;
        own.extend(rest);
        Some(FieldPath::from(own).to_string())
    }

    fn own_path(&self, origin: Origin) -> Option<Vec<PathStep>> {
        let mut path = Vec::new();
        find(self.object.node, origin.node, &mut path).then_some(path)
    }

    /// The edits in the object; `None` if one of them is of a part that has no text.
    fn fix(&self, sketch: &Node, fix: &[FixEdit]) -> Option<Vec<FixEdit>> {
        let mut moved = Vec::new();
        for step in fix {
            let steps = step.edit.path().steps();
            let (node, depth) = reached(sketch, steps);
            let rest = steps.get(depth..).unwrap_or_default();
            if matches!(step.edit, Edit::Remove(_)) && !rest.is_empty() {
                continue;
            }
            let mut path = self.own_path(node.origin?)?;
            path.extend(rest.iter().cloned());
            let path = FieldPath::from(path);
            let edit = match &step.edit {
                Edit::Set(_, value) => Edit::Set(path, value.clone()),
                Edit::Append(_, value) => Edit::Append(path, value.clone()),
                Edit::Remove(_) => Edit::Remove(path),
            };
            moved.push(FixEdit { edit, effect: step.effect.clone() });
        }
        (!moved.is_empty()).then_some(moved)
    }

    fn finish(mut self, undecided: &[String]) -> Found {
        let object = self.object;
        let is_undecided = !undecided.is_empty();
        if is_undecided {
            let kind = object.kind;
            let name = object.name().unwrap_or("(unnamed)");
            let finding = Diagnostic::warning(
                Code::of("workload/undecided"),
                self.file,
                format!("{kind} {name} is only partly checked: {}", undecided.join("; ")),
            )
            .at(self.head())
            .because("what is not in the object is not known, so that it does not count as allowed");
            self.found.diagnostics.push(finding);
        }
        let denied = !self.is_allowed;
        let message = match (denied, is_undecided) {
            (false, true) => format!("undecided: {}", undecided.join("; ")),
            _ => self.messages.join(", "),
        };
        let namespace =
            object.metadata("namespace").map(str::to_owned).or_else(|| self.settings.namespace.clone());
        self.found.verdict = Some(Verdict {
            id: object.source.id().clone(),
            group: group_of(object.api_version).to_owned(),
            kind: object.kind.to_owned(),
            name: object.name().map(str::to_owned),
            policy: self.settings.policy_of(namespace.as_deref()),
            namespace,
            allowed: self.is_allowed && !is_undecided,
            undecided: self.is_allowed && is_undecided,
            message,
        });
        // One mistake may be in several pods, such as a context that templates share.
        let mut seen = Vec::new();
        self.found.diagnostics.retain(|finding| {
            let place = finding.at.as_ref().map(|at| (at.line, at.column));
            let key = (finding.code.clone(), finding.path.clone(), place);
            let is_new = !seen.contains(&key);
            if is_new {
                seen.push(key);
            }
            is_new
        });
        self.found
    }
}

/// Whether an object has a list of containers somewhere.
fn has_containers(node: NodeRef<'_>) -> bool {
    node.items().any(has_containers)
        || node.entries().into_iter().any(|entry| {
            (entry.key == "containers" && entry.value.target().is_sequence()) || has_containers(entry.value)
        })
}

/// How far a path leads in a value.
fn reached<'n>(node: &'n Node, steps: &[PathStep]) -> (&'n Node, usize) {
    let (mut node, mut depth) = (node, 0);
    while let Some(next) = steps.get(depth).and_then(|step| match step {
        PathStep::Field(name) => node.get(name),
        PathStep::Key(key) => node.get(key),
        PathStep::Index(index) => node.items().get(*index),
    }) {
        (node, depth) = (next, depth + 1);
    }
    (node, depth)
}

/// The deepest value on a path that is written somewhere, and the rest of the path.
fn deepest(sketch: &Node, steps: &[PathStep]) -> Option<(Origin, Vec<PathStep>)> {
    let (_, depth) = reached(sketch, steps);
    (0..=depth).rev().find_map(|length| {
        let (node, _) = reached(sketch, steps.get(..length)?);
        Some((node.origin?, steps.get(length..)?.to_vec()))
    })
}

/// `spec.containers[0].securityContext` as steps.
fn parsed_path(path: &str) -> Option<Vec<PathStep>> {
    let mut steps = Vec::new();
    for part in path.split('.') {
        let (name, indices) = part.split_once('[').unwrap_or((part, ""));
        if !name.is_empty() {
            steps.push(PathStep::Field(name.to_owned().into()));
        }
        for index in indices.split('[').filter(|index| !index.is_empty()) {
            steps.push(PathStep::Index(index.strip_suffix(']')?.parse().ok()?));
        }
    }
    Some(steps)
}

fn find(node: NodeRef<'_>, wanted: NodeId, path: &mut Vec<PathStep>) -> bool {
    if node.id() == wanted || node.target().id() == wanted {
        return true;
    }
    for (index, item) in node.items().enumerate() {
        path.push(PathStep::Index(index));
        if find(item, wanted, path) {
            return true;
        }
        path.pop();
    }
    for entry in node.entries() {
        path.push(PathStep::Field(entry.key.into_owned().into()));
        if find(entry.value, wanted, path) {
            return true;
        }
        path.pop();
    }
    false
}

/// A map with entries; those that are not there are left out.
fn map(origin: Option<Origin>, entries: Vec<(&str, Option<Node>)>) -> Node {
    let entries = entries.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    Node { value: Value::Map(entries.collect()), origin, key: origin }
}

fn text(text: &str) -> Node {
    Node::made(text.into(), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_as_they_are_written() {
        for path in ["spec.containers[0].securityContext.capabilities.add[1]", "spec.hostPID", "metadata"] {
            assert_eq!(FieldPath::from(parsed_path(path).unwrap()).to_string(), path);
        }
    }
}
