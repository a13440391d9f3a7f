//! The build: resources accumulated, transformers applied in kustomize's order.

use std::collections::{BTreeSet, HashMap, HashSet};

use palisade_yaml::{Limits, Span, parse};

use crate::{
    budget::Budget,
    error::{Problem, ProblemKind},
    generate::{Behavior, absorb, generate, hash},
    images::Image,
    json_patch, labels,
    load::{Files, Inside, KUSTOMIZATION_FILES, Located, Source, is_kustomization, is_remote, place},
    merge::merge_object,
    names,
    object::{Id, Object, is_cluster_scoped},
    replace,
    select::Selector,
    tree::{Node, Origin, Value},
};

/// What a kustomization builds.
#[derive(Debug, Default)]
pub struct Build {
    /// The texts that values come from.
    pub sources: Vec<Source>,
    /// The objects; none if there is an error besides remote resources.
    pub objects: Vec<Object>,
    /// What is wrong.
    pub problems: Vec<Problem>,
    /// Every file that was read.
    pub files: Vec<Located>,
}

const MAX_OBJECTS: usize = 20_000;
const MAX_LOADS: usize = 2_000;
/// How many kustomizations may include each other.
const MAX_DEPTH: usize = 100;

/// Fields that take part in a build.
const FIELDS: &[&str] = &[
    "apiVersion",
    "bases",
    "buildMetadata",
    "commonAnnotations",
    "commonLabels",
    "components",
    "configMapGenerator",
    "configurations",
    "generatorOptions",
    "images",
    "kind",
    "labels",
    "metadata",
    "namePrefix",
    "nameSuffix",
    "namespace",
    "patches",
    "patchesJson6902",
    "patchesStrategicMerge",
    "replacements",
    "replicas",
    "resources",
    "secretGenerator",
    "sortOptions",
    "vars",
];

/// Fields of kustomize that are not supported.
const NOT_SUPPORTED: &[&str] = &[
    "crds",
    "generators",
    "helmChartInflationGenerator",
    "helmCharts",
    "helmGlobals",
    "imageTags",
    "inventory",
    "openapi",
    "transformers",
    "validators",
];

/// Fields of files of `configurations` that change nothing that is checked.
const CONFIGURATIONS: &[&str] = &[
    "commonLabels",
    "images",
    "labels",
    "namePrefix",
    "nameReference",
    "nameSuffix",
    "namespace",
    "replicas",
    "templateLabels",
    "varReference",
];

/// Fields whose text decides nothing that is checked.
const PLAIN_FIELDS: &[&str] = &["args", "command", "data", "env", "stringData", "volumeMounts"];

/// Whether an object has fields of pods.
fn has_pod_fields(node: &Node) -> bool {
    const FIELDS: [&str; 4] = ["containers", "initContainers", "securityContext", "volumes"];
    let mut open = vec![node];
    while let Some(node) = open.pop() {
        match &node.value {
            Value::Map(entries) => {
                if entries.iter().any(|(key, _)| FIELDS.contains(&key.as_str())) {
                    return true;
                }
                open.extend(entries.iter().map(|(_, value)| value));
            }
            Value::List(items) => open.extend(items),
            Value::Scalar(_) => {}
        }
    }
    false
}

/// Builds the kustomization of a folder.
#[must_use]
pub fn build(files: &dyn Files, folder: &Located) -> Build {
    let mut builder = Builder {
        files,
        build: Build::default(),
        stack: Vec::new(),
        loads: 0,
        read: BTreeSet::new(),
        variables: Vec::new(),
        parsed: HashMap::new(),
        budget: Budget::new(),
    };
    let built = builder.layer(folder, None, None).and_then(|layer| {
        let mut objects = builder.accumulate(&layer, Vec::new())?;
        for object in objects.iter_mut().filter(|object| object.hashed) {
            object.remember();
            let name = format!("{}-{}", object.id().name, hash(&object.node));
            let origin = object.node.origin;
            object.set_text(&["metadata", "name"], &name, origin);
        }
        names::update(&mut objects);
        objects.retain(|object| {
            object.node.text(&["metadata", "annotations", "config.kubernetes.io/local-config"]) != "true"
        });
        builder.check_variables(&objects)?;
        Ok(objects)
    });
    match built {
        Ok(objects) => builder.build.objects = objects,
        Err(problem) => builder.build.problems.insert(0, *problem),
    }
    builder.build
}

/// What was read of a file, or why it was not and where.
type Documents = Result<(usize, Vec<Node>), (ProblemKind, Option<(usize, Span)>)>;

type Fallible<T> = Result<T, Box<Problem>>;

struct Builder<'f> {
    files: &'f dyn Files,
    build: Build,
    /// The folders that are being built, outermost first.
    stack: Vec<String>,
    loads: usize,
    read: BTreeSet<String>,
    /// `$(NAME)` of every variable that a kustomization declares.
    variables: Vec<String>,
    /// Files that were parsed: one is read once, and is one source.
    parsed: HashMap<String, (usize, Vec<Node>)>,
    budget: Budget,
}

/// A kustomization.
struct Layer {
    number: usize,
    folder: Located,
    file: String,
    root: Node,
}

impl Layer {
    fn items(&self, field: &'static str) -> Fallible<&[Node]> {
        match self.root.get(field) {
            None => Ok(&[]),
            Some(node) => match &node.value {
                Value::List(items) => Ok(items),
                _ if node.is_null() => Ok(&[]),
                _ => Err(self.problem(ProblemKind::WrongType(field), node.origin)),
            },
        }
    }

    fn text(&self, field: &'static str) -> Fallible<Option<(&str, Option<Origin>)>> {
        let Some(node) = self.root.get(field).filter(|node| !node.is_null()) else { return Ok(None) };
        match node.as_str() {
            Some("") => Ok(None),
            Some(text) => Ok(Some((text, node.origin))),
            None => Err(self.problem(ProblemKind::WrongType(field), node.origin)),
        }
    }

    /// A map of strings.
    fn pairs(&self, field: &'static str) -> Fallible<Option<&Node>> {
        self.root
            .get(field)
            .filter(|node| !node.is_null())
            .map(|node| self.checked_pairs(node, field))
            .transpose()
    }

    fn checked_pairs<'n>(&self, node: &'n Node, field: &'static str) -> Fallible<&'n Node> {
        let is_text = |value: &Node| value.as_str().is_some();
        match &node.value {
            Value::Map(entries) if entries.iter().all(|(_, value)| is_text(value)) => Ok(node),
            _ => Err(self.problem(ProblemKind::WrongType(field), node.origin)),
        }
    }

    fn problem(&self, kind: ProblemKind, origin: Option<Origin>) -> Box<Problem> {
        Box::new(Problem { file: self.file.clone(), at: place(origin), kind })
    }
}

impl Builder<'_> {
    /// Reads the kustomization of a folder.
    fn layer(&mut self, folder: &Located, from: Option<&Layer>, at: Option<Origin>) -> Fallible<Layer> {
        let problem = |kind: ProblemKind| match from {
            Some(layer) => layer.problem(kind, at),
            None => Box::new(Problem { file: folder.shown.clone(), at: None, kind }),
        };
        self.loads += 1;
        if self.loads > MAX_LOADS || self.stack.len() >= MAX_DEPTH {
            return Err(problem(ProblemKind::TooLarge));
        }
        if self.stack.contains(&folder.canonical) {
            return Err(problem(ProblemKind::Cycle(folder.shown.clone())));
        }
        let mut found: Vec<Located> = Vec::new();
        for name in KUSTOMIZATION_FILES {
            let file = self.files.look(&folder.shown, name).filter(|file| !file.is_folder);
            // A file system may not distinguish the names.
            found.extend(file.filter(|file| !found.iter().any(|known| known.canonical == file.canonical)));
        }
        let [file] = found.as_slice() else {
            return Err(problem(ProblemKind::NoKustomization(folder.shown.clone())));
        };
        let (source, documents) = self
            .source(file)
            .map_err(|(kind, at)| Box::new(Problem { file: file.shown.clone(), at, kind }))?;
        let mut documents = documents.into_iter();
        let root = documents.next().unwrap_or_else(|| Node::map(None));
        let layer = Layer { number: self.loads, folder: folder.clone(), file: file.shown.clone(), root };
        if !is_kustomization(&layer.root) || documents.next().is_some() {
            let at = Some((source, Span::at(0)));
            let kind = ProblemKind::NoKustomization(folder.shown.clone());
            return Err(Box::new(Problem { file: file.shown.clone(), at, kind }));
        }
        for (key, value) in layer.root.entries() {
            if let Some(field) = NOT_SUPPORTED.iter().find(|field| *field == key)
                && !value.is_null()
                && !matches!(&value.value, Value::List(items) if items.is_empty())
            {
                return Err(layer.problem(ProblemKind::NotSupported(field), value.key));
            }
            if !FIELDS.contains(&key.as_str()) && !NOT_SUPPORTED.contains(&key.as_str()) {
                return Err(layer.problem(ProblemKind::UnknownField(key.clone()), value.key));
            }
        }
        Ok(layer)
    }

    /// Reads a file: its source and its documents.
    fn source(&mut self, file: &Located) -> Documents {
        if let Some(known) = self.parsed.get(&file.canonical) {
            return Ok(known.clone());
        }
        let unreadable = |why: String| (ProblemKind::Unreadable(file.shown.clone(), why), None);
        let bytes = self.bytes(file).map_err(|kind| (kind, None))?;
        let text = palisade_yaml::decode(&bytes).map_err(|error| unreadable(error.to_string()))?;
        let source = Source { file: file.shown.clone(), text: text.into_owned(), inside: None };
        let read = self.documents(source)?;
        self.parsed.insert(file.canonical.clone(), read.clone());
        Ok(read)
    }

    fn bytes(&mut self, file: &Located) -> Result<Vec<u8>, ProblemKind> {
        if self.read.insert(file.canonical.clone()) {
            self.build.files.push(file.clone());
        }
        let bytes = self.files.read(file);
        bytes.map_err(|error| ProblemKind::Unreadable(file.shown.clone(), error.to_string()))
    }

    fn documents(&mut self, source: Source) -> Documents {
        let number = self.build.sources.len();
        let text = source.text.clone();
        self.build.sources.push(source);
        let parsed = parse(&text, &Limits::default());
        if let Some(error) = parsed.errors.first() {
            return Err((ProblemKind::Syntax(error.message.clone()), Some((number, error.span))));
        }
        let mut read = Vec::new();
        for document in &parsed.documents {
            if let Some(twice) = document.duplicate_keys().first() {
                let what = format!("the key \"{}\" is set twice in the same mapping", twice.key);
                return Err((ProblemKind::Syntax(what), Some((number, twice.second))));
            }
            let root = document.root();
            match Node::read(number, root) {
                Some(node) if node.is_null() => {}
                Some(node) => read.push(node),
                None => {
                    let what = "a value that JSON does not have".to_owned();
                    return Err((ProblemKind::Syntax(what), Some((number, root.span()))));
                }
            }
        }
        Ok((number, read))
    }

    /// A file of a kustomization, which must be in or below its folder.
    fn file(&self, layer: &Layer, reference: &str) -> Result<Located, ProblemKind> {
        let missing = || ProblemKind::Missing(reference.to_owned());
        let found = self.files.look(&layer.folder.shown, reference).ok_or_else(missing)?;
        if found.is_folder {
            return Err(missing());
        }
        let folder = layer.folder.canonical.trim_end_matches('/');
        let is_below = found.canonical.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        if is_below { Ok(found) } else { Err(ProblemKind::Outside(reference.to_owned())) }
    }

    /// The documents of a file of a kustomization.
    fn read(&mut self, layer: &Layer, reference: &str, at: Option<Origin>) -> Fallible<Vec<Node>> {
        let file = self.file(layer, reference).map_err(|kind| layer.problem(kind, at))?;
        let read = self.source(&file);
        let (_, documents) =
            read.map_err(|(kind, at)| Box::new(Problem { file: file.shown.clone(), at, kind }))?;
        for document in &documents {
            self.budget.take_copies(document, 1).map_err(|kind| layer.problem(kind, at))?;
        }
        Ok(documents)
    }

    fn accumulate(&mut self, layer: &Layer, mut objects: Vec<Object>) -> Fallible<Vec<Object>> {
        self.stack.push(layer.folder.canonical.clone());
        let bases = layer.items("bases")?;
        for item in layer.items("resources")?.iter().chain(bases) {
            let added = self.resource(layer, item)?;
            append(layer, &mut objects, added, item.origin)?;
        }
        for item in layer.items("components")? {
            let Some(found) = self.included(layer, item)? else { continue };
            let component = self.layer(&found, Some(layer), item.origin)?;
            if component.root.text(&["kind"]) != "Component" {
                let kind = ProblemKind::WrongKind(found.shown, "Kustomization");
                return Err(layer.problem(kind, item.origin));
            }
            objects = self.accumulate(&component, objects)?;
        }
        for item in layer.items("configurations")? {
            self.configuration(layer, item)?;
        }
        let declared = layer.items("vars")?.iter().map(|item| format!("$({})", item.text(&["name"])));
        self.variables.extend(declared);
        self.generate(layer, &mut objects)?;
        self.transform(layer, &mut objects)?;
        for object in &mut objects {
            object.layers.push(layer.number);
        }
        self.stack.pop();
        Ok(objects)
    }

    /// Reads a configuration of transformers. Those that are taken add fields of other kinds for names, labels, images and
    /// variables, which changes nothing that is checked.
    fn configuration(&mut self, layer: &Layer, item: &Node) -> Fallible<()> {
        let Some(reference) = item.as_str() else {
            return Err(layer.problem(ProblemKind::WrongType("configurations"), item.origin));
        };
        for document in self.read(layer, reference, item.origin)? {
            for (field, value) in document.entries() {
                let is_none =
                    value.is_null() || matches!(&value.value, Value::List(items) if items.is_empty());
                if !is_none && !CONFIGURATIONS.contains(&field.as_str()) {
                    let kind = ProblemKind::FormNotSupported("this field of a file of `configurations`");
                    return Err(layer.problem(kind, item.origin));
                }
            }
        }
        Ok(())
    }

    /// Variables are left as they are written: kustomize puts them into commands, arguments, environments and the like. One that is
    /// anywhere else in an object with containers could decide what is checked, and ends the build.
    fn check_variables(&self, objects: &[Object]) -> Fallible<()> {
        if self.variables.is_empty() {
            return Ok(());
        }
        for object in objects.iter().filter(|object| has_pod_fields(&object.node)) {
            if let Some(node) = self.variable_in(&object.node) {
                let source = node.origin.and_then(|origin| self.build.sources.get(origin.source));
                let file = source.map(|source| source.file.clone()).unwrap_or_default();
                let kind = ProblemKind::FormNotSupported("a variable of `vars` in this field");
                return Err(Box::new(Problem { file, at: place(node.origin), kind }));
            }
        }
        Ok(())
    }

    /// The first value with a variable, outside of the fields in which it decides nothing.
    fn variable_in<'n>(&self, node: &'n Node) -> Option<&'n Node> {
        match &node.value {
            Value::List(items) => items.iter().find_map(|item| self.variable_in(item)),
            Value::Map(entries) => {
                let entries = entries.iter().filter(|(key, _)| !PLAIN_FIELDS.contains(&key.as_str()));
                entries.into_iter().find_map(|(_, value)| self.variable_in(value))
            }
            Value::Scalar(_) => {
                let text = node.as_str()?;
                self.variables.iter().any(|variable| text.contains(variable.as_str())).then_some(node)
            }
        }
    }

    /// A folder or file that a kustomization includes; `None` if it is remote, which is reported.
    fn included(&mut self, layer: &Layer, item: &Node) -> Fallible<Option<Located>> {
        let Some(text) = item.as_str() else {
            return Err(layer.problem(ProblemKind::WrongType("resources"), item.origin));
        };
        if let Some(found) = self.files.look(&layer.folder.shown, text).filter(|_| !text.contains("://")) {
            return Ok(Some(found));
        }
        if is_remote(text) {
            let problem = layer.problem(ProblemKind::Remote(text.to_owned()), item.origin);
            self.build.problems.push(*problem);
            return Ok(None);
        }
        Err(layer.problem(ProblemKind::Missing(text.to_owned()), item.origin))
    }

    fn resource(&mut self, layer: &Layer, item: &Node) -> Fallible<Vec<Object>> {
        let Some(found) = self.included(layer, item)? else { return Ok(Vec::new()) };
        if found.is_folder {
            let base = self.layer(&found, Some(layer), item.origin)?;
            if base.root.text(&["kind"]) == "Component" {
                return Err(layer.problem(ProblemKind::WrongKind(found.shown, "Component"), item.origin));
            }
            return self.accumulate(&base, Vec::new());
        }
        let reference = item.as_str().unwrap_or_default();
        let documents = self.read(layer, reference, item.origin)?;
        let mut objects = Vec::new();
        for document in documents {
            expand(document, &found, &mut objects, 0)?;
        }
        Ok(objects)
    }

    fn generate(&mut self, layer: &Layer, objects: &mut Vec<Object>) -> Fallible<()> {
        for (field, kind) in [("configMapGenerator", "ConfigMap"), ("secretGenerator", "Secret")] {
            for entry in layer.items(field)? {
                let mut read = |reference: &str, _: Option<Origin>| {
                    let file = self.file(layer, reference)?;
                    self.bytes(&file)
                };
                let generated = generate(kind, entry, layer.root.get("generatorOptions"), &mut read);
                let (object, behavior) = generated.map_err(|kind| layer.problem(kind, entry.origin))?;
                let taken = self.budget.take_copies(&object.node, 1);
                taken.map_err(|kind| layer.problem(kind, entry.origin))?;
                let id = object.id();
                let same = |known: &Object| {
                    known.ids().iter().any(|known| {
                        known.kind == id.kind
                            && known.name == id.name
                            && (id.namespace.is_empty() || known.namespace == id.namespace)
                    })
                };
                match (behavior, objects.iter_mut().find(|known| same(known))) {
                    (Behavior::Create, _) => append(layer, objects, vec![object], entry.origin)?,
                    (_, Some(known)) => absorb(known, &object, behavior),
                    (_, None) => return Err(layer.problem(ProblemKind::NoMatch(id.title()), entry.origin)),
                }
            }
        }
        Ok(())
    }

    fn transform(&mut self, layer: &Layer, objects: &mut Vec<Object>) -> Fallible<()> {
        for item in layer.items("patchesStrategicMerge")? {
            let text = item.as_str().unwrap_or_default();
            let patches = if text.contains('\n') || text.contains('{') {
                self.inline(layer, item)?
            } else {
                self.read(layer, text, item.origin)?
            };
            for patch in patches {
                self.merge_unique(layer, objects, &patch, item.origin)?;
            }
        }
        for item in layer.items("patches")? {
            self.patch(layer, objects, item)?;
        }
        if let Some((namespace, origin)) = layer.text("namespace")? {
            let taken = self.budget.take(namespace.len().saturating_mul(objects.len()));
            taken.map_err(|kind| layer.problem(kind, origin))?;
            for object in objects.iter_mut() {
                set_namespace(object, namespace, origin);
            }
        }
        for (field, is_prefix) in [("namePrefix", true), ("nameSuffix", false)] {
            let Some((text, origin)) = layer.text(field)? else { continue };
            let taken = self.budget.take(text.len().saturating_mul(objects.len()));
            taken.map_err(|kind| layer.problem(kind, origin))?;
            for object in objects.iter_mut() {
                let id = object.id();
                if matches!(id.kind.as_str(), "CustomResourceDefinition" | "APIService" | "Namespace") {
                    continue;
                }
                object.remember();
                let name =
                    if is_prefix { format!("{text}{}", id.name) } else { format!("{}{text}", id.name) };
                object.set_text(&["metadata", "name"], &name, origin);
            }
        }
        // Pairs are written to objects, templates and selectors.
        for field in ["commonLabels", "labels", "commonAnnotations"] {
            if let Some(node) = layer.root.get(field) {
                let taken = self.budget.take_copies(node, objects.len().saturating_mul(4));
                taken.map_err(|kind| layer.problem(kind, node.origin))?;
            }
        }
        label(layer, objects)?;
        if let Some(pairs) = layer.pairs("commonAnnotations")? {
            for object in objects.iter_mut() {
                labels::annotate(object, pairs);
            }
        }
        for item in layer.items("patchesJson6902")? {
            self.json_patch(layer, objects, item)?;
        }
        for item in layer.items("replicas")? {
            let (name, count) = (item.text(&["name"]), item.get("count"));
            let Some(count) = count.filter(|count| count.to_json().is_u64()) else {
                return Err(layer.problem(ProblemKind::WrongType("replicas"), item.origin));
            };
            let scaled = ["Deployment", "ReplicationController", "ReplicaSet", "StatefulSet"];
            let mut found = false;
            for object in objects.iter_mut() {
                let is_it = scaled.contains(&object.node.text(&["kind"]));
                if is_it && object.ids().iter().any(|id| id.name == name) {
                    found = true;
                    if let Some(spec) = object.node.child("spec", item.origin) {
                        spec.set("replicas", count.clone());
                    }
                }
            }
            if !found && self.build.problems.is_empty() {
                return Err(layer.problem(ProblemKind::NoMatch(name.to_owned()), item.origin));
            }
        }
        for item in layer.items("images")? {
            let image = Image::new(item);
            let taken = self.budget.take_copies(item, objects.len());
            taken.map_err(|kind| layer.problem(kind, item.origin))?;
            for object in objects.iter_mut() {
                if object.node.text(&["kind"]) != "CustomResourceDefinition" {
                    image.apply(&mut object.node);
                }
            }
        }
        for item in layer.items("replacements")? {
            let path = item.text(&["path"]);
            let list =
                if path.is_empty() { vec![item.clone()] } else { self.read(layer, path, item.origin)? };
            for replacement in list {
                let many = matches!(replacement.value, Value::List(_));
                let all = if many { replacement.items() } else { std::slice::from_ref(&replacement) };
                for replacement in all {
                    let made = replace::apply(objects, replacement, &mut self.budget);
                    made.map_err(|kind| layer.problem(kind, item.origin))?;
                }
            }
        }
        Ok(())
    }

    /// The documents of a patch that is written in the kustomization.
    fn inline(&mut self, layer: &Layer, node: &Node) -> Fallible<Vec<Node>> {
        let (Some(text), Some(origin)) = (node.as_str(), node.origin) else {
            return Err(layer.problem(ProblemKind::NotAPatch, node.origin));
        };
        let outer = self.build.sources.get(origin.source).map_or("", |source| source.text.as_str());
        let inside = Inside::new(origin.source, origin.span, text, outer);
        let source = Source { file: layer.file.clone(), text: text.to_owned(), inside: Some(inside) };
        let read = self.documents(source);
        let (_, documents) =
            read.map_err(|(kind, at)| Box::new(Problem { file: layer.file.clone(), at, kind }))?;
        Ok(documents)
    }

    /// The texts of a patch, by its `patch` or `path`.
    fn patch_documents(&mut self, layer: &Layer, item: &Node, inline: &str) -> Fallible<Vec<Node>> {
        let path = item.text(&["path"]);
        let inline = item.get(inline).filter(|node| node.as_str().is_some_and(|text| !text.is_empty()));
        match (inline, path) {
            (Some(node), "") => self.inline(layer, node),
            (None, path) if !path.is_empty() => {
                self.read(layer, path, item.get("path").and_then(|n| n.origin))
            }
            _ => Err(layer.problem(ProblemKind::NotAPatch, item.origin)),
        }
    }

    fn patch(&mut self, layer: &Layer, objects: &mut Vec<Object>, item: &Node) -> Fallible<()> {
        let known = ["path", "patch", "target", "options"];
        if let Some((key, value)) = item.entries().iter().find(|(key, _)| !known.contains(&key.as_str())) {
            return Err(layer.problem(ProblemKind::UnknownField(key.clone()), value.key));
        }
        let target = item.get("target").filter(|target| !target.is_null());
        let selector = target.map(Selector::read).transpose();
        let selector = selector.map_err(|kind| layer.problem(kind, item.origin))?;
        let option = |name: &str| item.at(&["options", name]).is_some_and(Node::is_true);
        for patch in self.patch_documents(layer, item, "patch")? {
            match (&patch.value, &selector) {
                (Value::List(_), None) => return Err(layer.problem(ProblemKind::NoTarget, item.origin)),
                (Value::List(_), Some(selector)) => {
                    for object in objects.iter_mut().filter(|object| selector.matches(object)) {
                        object.remember();
                        let applied = json_patch::apply(&mut object.node, &patch, &mut self.budget);
                        applied.map_err(|kind| layer.problem(kind, item.origin))?;
                    }
                }
                (Value::Map(_), None) => self.merge_unique(layer, objects, &patch, item.origin)?,
                (Value::Map(_), Some(selector)) => {
                    let selected: Vec<usize> = (0..objects.len())
                        .filter(|&at| objects.get(at).is_some_and(|object| selector.matches(object)))
                        .collect();
                    let (names, kinds) = (option("allowNameChange"), option("allowKindChange"));
                    let taken = self.budget.take_copies(&patch, selected.len());
                    taken.map_err(|kind| layer.problem(kind, item.origin))?;
                    for at in selected.into_iter().rev() {
                        merge_at(objects, at, &patch, names, kinds)
                            .map_err(|kind| layer.problem(kind, item.origin))?;
                    }
                }
                (Value::Scalar(_), _) => return Err(layer.problem(ProblemKind::NotAPatch, item.origin)),
            }
        }
        Ok(())
    }

    /// Merges a patch into the one object that it names.
    fn merge_unique(
        &mut self,
        layer: &Layer,
        objects: &mut Vec<Object>,
        patch: &Node,
        at: Option<Origin>,
    ) -> Fallible<()> {
        let id = Id::of(patch);
        if id.kind.is_empty() || id.name.is_empty() {
            return Err(layer.problem(ProblemKind::NotAPatch, at));
        }
        let now = objects.iter().positions_of(|object| object.id().is(&id));
        let ever = || objects.iter().positions_of(|object| object.ids().iter().any(|known| known.is(&id)));
        let found = match now.as_slice() {
            [one] => Some(*one),
            _ => match ever().as_slice() {
                [one] => Some(*one),
                _ => None,
            },
        };
        let Some(found) = found else {
            // It may be for what was not fetched.
            let is_known = !self.build.problems.is_empty();
            return if is_known { Ok(()) } else { Err(layer.problem(ProblemKind::NoMatch(id.title()), at)) };
        };
        merge_at(objects, found, patch, false, false).map_err(|kind| layer.problem(kind, at))
    }

    fn json_patch(&mut self, layer: &Layer, objects: &mut [Object], item: &Node) -> Fallible<()> {
        let Some(target) = item.get("target") else {
            return Err(layer.problem(ProblemKind::NoTarget, item.origin));
        };
        let selector = Selector::read(target).map_err(|kind| layer.problem(kind, item.origin))?;
        for patch in self.patch_documents(layer, item, "patch")? {
            let mut found = false;
            for object in objects.iter_mut().filter(|object| selector.matches(object)) {
                found = true;
                object.remember();
                let applied = json_patch::apply(&mut object.node, &patch, &mut self.budget);
                applied.map_err(|kind| layer.problem(kind, item.origin))?;
            }
            if !found && self.build.problems.is_empty() {
                let name = format!("{} {}", target.text(&["kind"]), target.text(&["name"]));
                return Err(layer.problem(ProblemKind::NoMatch(name), item.origin));
            }
        }
        Ok(())
    }
}

/// The object of a document, or those of a list.
fn expand(node: Node, file: &Located, into: &mut Vec<Object>, depth: usize) -> Fallible<()> {
    let kind = node.text(&["kind"]);
    let is_list = kind.ends_with("List")
        && node.get("items").is_some_and(|items| matches!(items.value, Value::List(_)));
    if is_list && depth < 16 {
        let api_version = node.text(&["apiVersion"]).to_owned();
        let item_kind = kind.strip_suffix("List").unwrap_or_default().to_owned();
        for item in node.items_of("items") {
            let mut item = item.clone();
            if !item_kind.is_empty() {
                for (field, implied) in [("apiVersion", &api_version), ("kind", &item_kind)] {
                    if item.get(field).is_none() {
                        let origin = item.origin;
                        item.set(field, Node::made(implied.as_str().into(), origin));
                    }
                }
            }
            expand(item, file, into, depth + 1)?;
        }
        return Ok(());
    }
    if kind.is_empty() || node.text(&["apiVersion"]).is_empty() {
        return Err(Box::new(Problem {
            file: file.shown.clone(),
            at: place(node.origin),
            kind: ProblemKind::NotAnObject(file.shown.clone()),
        }));
    }
    into.push(Object::new(node));
    Ok(())
}

fn append(layer: &Layer, objects: &mut Vec<Object>, added: Vec<Object>, at: Option<Origin>) -> Fallible<()> {
    let key = |id: Id| (id.effective_namespace().to_owned(), id.api_version, id.kind, id.name);
    let mut known: HashSet<_> = objects.iter().map(|object| key(object.id())).collect();
    for object in added {
        let id = object.id();
        let is_named = !id.name.is_empty();
        if !known.insert(key(id)) && is_named {
            return Err(layer.problem(ProblemKind::Duplicate(object.id().title()), at));
        }
        objects.push(object);
    }
    if objects.len() > MAX_OBJECTS { Err(layer.problem(ProblemKind::TooLarge, at)) } else { Ok(()) }
}

fn label(layer: &Layer, objects: &mut [Object]) -> Fallible<()> {
    if let Some(pairs) = layer.pairs("commonLabels")? {
        for object in objects.iter_mut() {
            labels::label(object, pairs);
            labels::label_templates(object, pairs);
            labels::label_selectors(object, pairs);
        }
    }
    for item in layer.items("labels")? {
        let known = ["pairs", "includeSelectors", "includeTemplates", "fields"];
        if let Some((key, value)) = item.entries().iter().find(|(key, _)| !known.contains(&key.as_str())) {
            return Err(layer.problem(ProblemKind::UnknownField(key.clone()), value.key));
        }
        let Some(pairs) = item.get("pairs") else { continue };
        let pairs = layer.checked_pairs(pairs, "labels")?;
        let is = |field: &str| item.get(field).is_some_and(Node::is_true);
        for object in objects.iter_mut() {
            labels::label(object, pairs);
            if is("includeSelectors") || is("includeTemplates") {
                labels::label_templates(object, pairs);
            }
            if is("includeSelectors") {
                labels::label_selectors(object, pairs);
            }
            for field in item.items_of("fields") {
                let id = object.id();
                let fits =
                    |name: &str, text: &str| field.text(&[name]).is_empty() || field.text(&[name]) == text;
                if fits("group", id.group()) && fits("version", id.version()) && fits("kind", &id.kind) {
                    let create = field.get("create").is_some_and(Node::is_true);
                    labels::label_field(object, field.text(&["path"]), pairs, create);
                }
            }
        }
    }
    Ok(())
}

/// Merges a patch into an object; a patch that deletes it removes it.
fn merge_at(
    objects: &mut Vec<Object>,
    at: usize,
    patch: &Node,
    allow_name: bool,
    allow_kind: bool,
) -> Result<(), ProblemKind> {
    let Some(object) = objects.get_mut(at) else { return Ok(()) };
    let old = object.node.clone();
    let (api_version, kind) = (old.text(&["apiVersion"]).to_owned(), old.text(&["kind"]).to_owned());
    let Some(mut merged) = merge_object(old.clone(), patch, &api_version, &kind)? else {
        objects.remove(at);
        return Ok(());
    };
    if allow_name || allow_kind {
        object.remember();
    }
    // A patch names its object and does not rename it.
    let kept = [
        ("kind", &[][..], allow_kind),
        ("name", &["metadata"], allow_name),
        ("namespace", &["metadata"], false),
    ];
    for (field, parents, allowed) in kept {
        if allowed {
            continue;
        }
        let known = old.at(parents).and_then(|parent| parent.get(field)).cloned();
        let Some(parent) = merged.descend(parents, None) else { continue };
        match known {
            Some(known) => parent.set(field, known),
            None => drop(parent.remove(field)),
        }
    }
    object.node = merged;
    Ok(())
}

fn set_namespace(object: &mut Object, namespace: &str, origin: Option<Origin>) {
    object.remember();
    let kind = object.node.text(&["kind"]).to_owned();
    if kind == "Namespace" {
        object.set_text(&["metadata", "name"], namespace, origin);
        return;
    }
    if !is_cluster_scoped(&kind) {
        object.set_text(&["metadata", "namespace"], namespace, origin);
    }
    match kind.as_str() {
        "RoleBinding" | "ClusterRoleBinding" => {
            let subjects = object.node.get_mut("subjects").map(Node::items_mut).unwrap_or_default();
            for subject in subjects {
                if subject.text(&["kind"]) == "ServiceAccount" && subject.text(&["name"]) == "default" {
                    subject.set("namespace", Node::made(namespace.into(), origin));
                }
            }
        }
        "APIService" => {
            if let Some(service) = object.node.at_mut(&["spec", "service"]) {
                service.set("namespace", Node::made(namespace.into(), origin));
            }
        }
        "CustomResourceDefinition" => {
            let service = ["spec", "conversion", "webhook", "clientConfig", "service"];
            if let Some(service) = object.node.at_mut(&service) {
                service.set("namespace", Node::made(namespace.into(), origin));
            }
        }
        _ => {}
    }
}

/// The positions of what fulfils a condition.
trait Positions<'o>: Iterator<Item = &'o Object> + Sized {
    fn positions_of(self, is: impl Fn(&Object) -> bool) -> Vec<usize> {
        self.enumerate().filter(|(_, object)| is(object)).map(|(at, _)| at).collect()
    }
}

impl<'o, I: Iterator<Item = &'o Object>> Positions<'o> for I {}
