//! A text of manifests in, findings with places out.
//!
//! Every object goes the way it would go in an API server: read, prepared, synced, validated, evaluated. The verdict
//! is upstream's; the places are the user's. No IO here: [`crate::input`] reads, [`crate::render`] writes.

mod annotations;
mod fields;
mod forms;
mod problems;
mod standards;
mod words;

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    sync::{Arc, LazyLock},
};

use jiff::civil::Date;
use palisade_base::field_path::FieldPath;
use palisade_model::{
    compat::Compat,
    pod::Pod,
    pod_view::PodView,
    prepare::Prepared,
    validation::validate_create,
    workload::{WorkloadKind, read_template},
};
use palisade_policy::{
    exceptions::workload::{Provenance, of_pod, of_template},
    standards::{
        checks,
        evaluator::{Evaluator, rules},
        level::LevelVersion,
    },
};
use palisade_yaml::{ErrorKind, Limits};

use crate::{
    diagnostic::{Code, Diagnostic, Label, ObjectId, Severity},
    exceptions::Exceptions,
    images::Images,
    manifest::{self, Object, objects},
    source_map::{ObjectSource, Place, Source},
    suppression::{self, Scope, Suppressions, Terms, severity_of},
};

pub use self::forms::{Configured, definitions_of};

/// Kinds of definitions, found when they are needed.
pub type Definitions = LazyLock<Vec<Configured>, Box<dyn FnOnce() -> Vec<Configured> + Send + Sync>>;

/// The rules to check by.
#[derive(Debug)]
pub struct Settings {
    /// Level and version of the standards.
    pub policy: LevelVersion,
    /// Level and version of namespaces that have their own.
    pub namespaces: BTreeMap<String, LevelVersion>,
    /// The API server whose rules apply.
    pub compat: Compat,
    /// The rules.
    pub evaluator: Evaluator,
    /// Namespace of objects that name none.
    pub namespace: Option<String>,
    /// Whether objects without a pod are errors.
    pub strict: bool,
    /// Severities the user gives to codes, `None` for off; the last that names a code counts.
    pub severities: Vec<(String, Option<Severity>)>,
    /// Today, for exceptions that end.
    pub today: Date,
    /// Exceptions that apply to the objects.
    pub exceptions: Exceptions,
    /// The users of images, as far as they are known.
    pub images: Images,
    /// Kinds of which the user or a definition tells where they hold pods.
    pub forms: Vec<Configured>,
    /// Kinds that definitions define in the same search.
    pub definitions: Definitions,
}

impl Settings {
    /// The rules of a level, a version and an API server.
    #[must_use]
    pub fn new(policy: LevelVersion, compat: Compat, today: Date) -> Self {
        Self {
            policy,
            namespaces: BTreeMap::new(),
            compat,
            evaluator: Evaluator::of(&compat),
            namespace: None,
            strict: false,
            severities: Vec::new(),
            today,
            exceptions: Exceptions::default(),
            images: Images::default(),
            forms: Vec::new(),
            definitions: LazyLock::new(Box::new(Vec::new)),
        }
    }

    /// The level and version for the objects of a namespace.
    #[must_use]
    pub fn policy_of(&self, namespace: Option<&str>) -> LevelVersion {
        namespace.and_then(|name| self.namespaces.get(name)).copied().unwrap_or(self.policy)
    }

    /// Whether a finding of this code is possible in objects that were judged by these policies: a rule of the standards must be one of the level and version.
    fn in_force(&self, code: &str, verdicts: &[Verdict]) -> bool {
        let Some(check) = code.strip_prefix("pss/").filter(|check| !check.ends_with('*')) else {
            return true;
        };
        let is_rule_of = |policy: LevelVersion| {
            let version = policy.version.clamp(self.evaluator.newest());
            rules(policy.level, version).any(|(rule, _)| rule.id == check)
        };
        // A misspelt rule is never in force, and should be noticed.
        checks::check(check).is_none()
            || is_rule_of(self.policy) && self.namespaces.is_empty()
            || verdicts.iter().any(|verdict| is_rule_of(verdict.policy))
    }
}

/// The verdict on one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Which object of the file.
    pub id: ObjectId,
    /// API group; empty for core.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Namespace, if the object or the user names one.
    pub namespace: Option<String>,
    /// Name, or the prefix of a generated one.
    pub name: Option<String>,
    /// The level and version it was judged by.
    pub policy: LevelVersion,
    /// Whether the standards allow it.
    pub allowed: bool,
    /// Whether nothing is wrong with what is known of it, and not all is known.
    pub undecided: bool,
    /// Upstream's text; empty if it is allowed.
    pub message: String,
}

impl Verdict {
    /// `Deployment default/web`, as messages name it.
    #[must_use]
    pub fn title(&self) -> String {
        let name = self.name.as_deref().unwrap_or("(unnamed)");
        match &self.namespace {
            Some(namespace) => format!("{} {namespace}/{name}", self.kind),
            None => format!("{} {name}", self.kind),
        }
    }
}

/// What was found in one file.
#[derive(Debug, Clone)]
pub struct FileReport {
    /// The file, as the user named it.
    pub file: Arc<str>,
    /// How many files it is about.
    pub files: usize,
    /// Verdicts in the order of the file.
    pub verdicts: Vec<Verdict>,
    /// Findings from top to bottom.
    pub diagnostics: Vec<Diagnostic>,
    /// Objects that hold no pod, and documents that are no objects.
    pub skipped: usize,
    /// Documents that are no Kubernetes objects: where they begin.
    pub foreign: Vec<Label>,
    /// Of the skipped, documents that are no Kubernetes objects.
    pub not_objects: usize,
    /// Whether a template could not be checked; such files are reported by folder.
    pub is_template: bool,
    /// Documents, or whole files, that could not be checked.
    pub errors: usize,
    /// Findings that were accepted.
    pub suppressed: usize,
    /// Findings of a baseline.
    pub known: usize,
}

impl FileReport {
    /// Nothing found yet.
    #[must_use]
    pub const fn new(file: Arc<str>) -> Self {
        Self {
            file,
            files: 1,
            verdicts: Vec::new(),
            diagnostics: Vec::new(),
            skipped: 0,
            foreign: Vec::new(),
            not_objects: 0,
            is_template: false,
            errors: 0,
            suppressed: 0,
            known: 0,
        }
    }

    /// Reports documents that are not Kubernetes objects: an error where the user named the file and it holds
    /// nothing else, a warning beside objects, and nothing for files that a search found.
    pub fn name_foreign(&mut self, named: bool) {
        self.not_objects = self.not_objects.max(self.foreign.len());
        let alone = self.verdicts.is_empty() && self.errors == 0 && self.skipped == self.foreign.len();
        if alone && !named {
            return;
        }
        let empty = alone && self.foreign.is_empty();
        if empty {
            let summary = format!("{} has no Kubernetes object", self.file);
            self.diagnostics.push(Diagnostic::error(Code::of("input/not-an-object"), &self.file, summary));
        }
        for label in std::mem::take(&mut self.foreign) {
            let (code, file) = (Code::of("input/not-an-object"), &self.file);
            let finding = if alone {
                Diagnostic::error(code, file, NOT_AN_OBJECT)
            } else {
                Diagnostic::warning(code, file, NOT_AN_OBJECT)
            };
            self.diagnostics.push(finding.at(label));
        }
        if alone {
            self.errors += self.skipped.max(1);
            (self.skipped, self.not_objects) = (0, 0);
        }
        self.diagnostics.sort_by(|a, b| a.order().cmp(&b.order()));
    }

    /// Settles a file that a search found and that does not even look like Kubernetes: whatever is wrong with it, it is one
    /// of the many other files of a repository.
    pub fn set_aside(&mut self, bytes: &[u8]) {
        let is_of_text = |finding: &Diagnostic| match finding.code.as_str() {
            "input/template" | "input/binary" | "input/encoding" => true,
            code => code.starts_with("yaml/") || code.starts_with("suppression/"),
        };
        let is_suspect = self.errors > 0 || !self.diagnostics.is_empty();
        // What was found in an object that could be read is about Kubernetes.
        let is_other = self.verdicts.is_empty() && self.diagnostics.iter().all(is_of_text);
        if is_suspect && is_other && !looks_like_kubernetes(bytes) {
            self.diagnostics.clear();
            self.foreign.clear();
            self.skipped = self.skipped.max(1);
            self.not_objects = self.skipped;
            (self.errors, self.suppressed, self.is_template) = (0, 0, false);
        }
    }

    /// Gives findings the severities that the user chose; what could not be checked stays an error.
    pub fn grade(&mut self, severities: &[(String, Option<Severity>)]) {
        if severities.is_empty() {
            return;
        }
        self.diagnostics.retain_mut(|finding| match severity_of(&finding.code, severities) {
            _ if finding.is_unchecked => true,
            Some(Some(severity)) => {
                finding.severity = severity;
                true
            }
            Some(None) => false,
            None => true,
        });
    }

    /// A file of which nothing could be checked.
    #[must_use]
    pub fn unreadable(problem: Diagnostic) -> Self {
        let mut report = Self::new(Arc::clone(&problem.file));
        report.diagnostics.push(problem);
        report.errors = 1;
        report
    }
}

/// Checks the bytes of a file.
#[must_use]
pub fn judge_bytes(file: &Arc<str>, bytes: &[u8], settings: &Settings, accepted: &[Terms]) -> FileReport {
    match decode(file, bytes) {
        Ok(text) => judge_text(file, &text, settings, accepted),
        Err(problem) => FileReport::unreadable(*problem),
    }
}

/// Bytes as text.
pub fn decode<'b>(file: &Arc<str>, bytes: &'b [u8]) -> Result<Cow<'b, str>, Box<Diagnostic>> {
    palisade_yaml::decode(bytes).map_err(|error| {
        let code = match error {
            palisade_yaml::DecodeError::Binary { .. } => "input/binary",
            palisade_yaml::DecodeError::NotUtf8 { .. } | palisade_yaml::DecodeError::NotUtf16 { .. } => {
                "input/encoding"
            }
        };
        Box::new(Diagnostic::error(Code::of(code), file, format!("cannot read {file}: {error}")))
    })
}

/// Checks the documents of a text.
#[must_use]
pub fn judge_text(file: &Arc<str>, text: &str, settings: &Settings, accepted: &[Terms]) -> FileReport {
    let source = Source::new(text);
    let mut report = FileReport::new(Arc::clone(file));
    let parsed = palisade_yaml::parse(text, &Limits::default());
    if !parsed.errors.is_empty()
        && let Some(template) = template_problem(file, &source)
    {
        report.diagnostics.push(template);
        report.errors = 1;
        report.is_template = true;
        return report;
    }
    for error in &parsed.errors {
        report.diagnostics.push(yaml_problem(error, file, &source));
        report.errors += 1;
    }
    let mut suppressions = Suppressions::from_comments(parsed.comments(), file, &source);
    for terms in accepted {
        suppressions.add_configured(terms.clone());
    }
    for document in &parsed.documents {
        let is_object = objects(document).iter().any(Object::looks_like_one);
        for duplicate in document.duplicate_keys().iter().filter(|_| is_object || settings.strict) {
            let label = source.label(duplicate.second, "the last value applies");
            let first = source.label(duplicate.first, "first set here");
            report.diagnostics.push(
                Diagnostic::error(
                    Code::of("yaml/duplicate-key"),
                    file,
                    format!("the key \"{}\" is set twice in the same mapping", duplicate.key),
                )
                .at(label.related(first))
                .help("remove one of them"),
            );
        }
        let mut walk =
            Walk { file, source: &source, settings, suppressions: &mut suppressions, report: &mut report };
        for object in objects(document) {
            walk.object(&object);
        }
    }
    name_subjects(&mut report);
    report.grade(&settings.severities);
    if !suppressions.is_empty() {
        let verdicts = &report.verdicts;
        let in_force = |code: &str| settings.in_force(code, verdicts);
        report.suppressed =
            suppressions.apply(&mut report.diagnostics, settings.today, in_force, file, &source);
        // Suppressions are findings as well.
        report.grade(&settings.severities);
    }
    report.diagnostics.sort_by(|a, b| a.order().cmp(&b.order()));
    report
}

/// In a file of several objects a place alone is ambiguous.
fn name_subjects(report: &mut FileReport) {
    if report.verdicts.len() < 2 {
        return;
    }
    // A list may hold a whole cluster.
    let titles: HashMap<&ObjectId, String> =
        report.verdicts.iter().map(|verdict| (&verdict.id, verdict.title())).collect();
    for finding in &mut report.diagnostics {
        finding.subject = finding.object.as_ref().and_then(|object| titles.get(object).cloned());
    }
}

/// The finding for a text that is a template of another program.
#[must_use]
pub fn template_problem(file: &Arc<str>, source: &Source<'_>) -> Option<Diagnostic> {
    let span = palisade_yaml::looks_like_template(source.text())?;
    Some(
        Diagnostic::unchecked(
            Code::of("input/template"),
            file,
            format!("{file} is a template, not a manifest"),
        )
        .at(source.label(span, "filled in by a template engine such as Helm"))
        .help("check the rendered manifests: helm template CHART | palisade check -"),
    )
}

/// The finding for a text that is not YAML.
#[must_use]
pub fn yaml_problem(error: &palisade_yaml::Error, file: &Arc<str>, source: &Source<'_>) -> Diagnostic {
    let code = match error.kind {
        ErrorKind::AliasBomb => "yaml/alias-bomb",
        ErrorKind::CyclicAlias => "yaml/cyclic-alias",
        ErrorKind::UnknownAnchor => "yaml/unknown-anchor",
        ErrorKind::TooDeep => "yaml/too-deep",
        ErrorKind::TooLarge => "input/too-large",
        ErrorKind::InvalidKey => "yaml/invalid-key",
        ErrorKind::InvalidTag => "yaml/invalid-tag",
        ErrorKind::InvalidMerge => "yaml/invalid-merge",
        _ => "yaml/syntax",
    };
    let mut label = source.label(error.span, "");
    if let Some((span, text)) = &error.related {
        label = label.related(source.label(*span, text.clone()));
    }
    Diagnostic::unchecked(Code::of(code), file, error.message.clone()).at(label)
}

/// Whether a text that cannot be read may hold a Kubernetes object: it has the words, or escapes that may be letters of them.
#[must_use]
pub fn looks_like_kubernetes(bytes: &[u8]) -> bool {
    // UTF-16 of these words is the words with zeros in between.
    let plain: Cow<'_, [u8]> = if bytes.contains(&0) {
        bytes.iter().copied().filter(|&byte| byte != 0).collect()
    } else {
        Cow::Borrowed(bytes)
    };
    let has = |word: &[u8]| memchr::memmem::find(&plain, word).is_some();
    let mut escapes = memchr::memmem::find_iter(&plain, b"\\").filter_map(|at| plain.get(at + 1..));
    let mut hides_letters = || {
        escapes.any(|rest| match rest {
            [b'\n' | b'\r', ..] | [b'x', b'4'..=b'7', ..] | [b'u', b'0', b'0', b'4'..=b'7', ..] => true,
            [b'U', rest @ ..] => rest.starts_with(b"000000"),
            _ => false,
        })
    };
    (has(b"apiVersion") && has(b"kind")) || hides_letters()
}

const NOT_AN_OBJECT: &str = "not a Kubernetes object: apiVersion and kind are missing";

struct Walk<'w, 's> {
    file: &'w Arc<str>,
    source: &'w Source<'s>,
    settings: &'w Settings,
    suppressions: &'w mut Suppressions,
    report: &'w mut FileReport,
}

impl<'w, 's> Walk<'w, 's> {
    fn object(&mut self, object: &Object<'_>) {
        let Some(workload) = object.workload else {
            if !self.in_another_form(object) {
                self.skip(object);
            }
            return;
        };
        let before = self.report.diagnostics.len();
        self.workload(object, workload);
        for finding in self.report.diagnostics.iter_mut().skip(before) {
            finding.object = Some(object.source.id().clone());
        }
    }

    /// Judges an object that holds pods in a form of its own; whether it does.
    fn in_another_form(&mut self, object: &Object<'_>) -> bool {
        let found = forms::judge(object, self.file, self.source, self.settings);
        let Some(forms::Found { mut diagnostics, verdict, errors }) = found else { return false };
        for finding in &mut diagnostics {
            finding.object = Some(object.source.id().clone());
        }
        let own = FieldPath::of(&["metadata", "annotations"]).key(suppression::ANNOTATION);
        if let Some((span, text)) = object.source.text(&own) {
            let scope = Scope::Object(object.source.id().clone());
            self.suppressions.add(text, scope, span, self.file, self.source);
        }
        self.report.diagnostics.append(&mut diagnostics);
        self.report.verdicts.extend(verdict);
        self.report.errors += errors;
        true
    }

    fn skip(&mut self, manifest: &Object<'_>) {
        let Object { source: object, api_version, kind, .. } = manifest;
        let (api_version, kind) = (*api_version, *kind);
        let misnamed = manifest::misnamed(api_version, kind).filter(|_| {
            // Many other formats have one of the two keys.
            (!api_version.is_empty() && !kind.is_empty()) || manifest.has_body()
        });
        if let Some((what, help)) = misnamed {
            let mut finding = Diagnostic::unchecked(Code::of("input/unknown-kind"), self.file, what)
                .at(self.source.label(object.head(), ""))
                .because("an API server does not serve this kind, and the object was not checked");
            finding.help = help;
            self.report.diagnostics.push(finding);
            self.report.errors += 1;
            return;
        }
        let is_item = !object.id().items.is_empty();
        if let Some(what) = manifest.list_problem().or_else(|| manifest.item_problem().filter(|_| is_item)) {
            let finding = Diagnostic::unchecked(Code::of("api/type"), self.file, what)
                .at(self.source.label(object.head(), ""))
                .because("an API server cannot read this list");
            self.report.diagnostics.push(finding);
            self.report.errors += 1;
            return;
        }
        if !self.settings.strict {
            self.report.skipped += 1;
            if (api_version.is_empty() || kind.is_empty()) && !manifest.has_body() {
                self.report.foreign.push(self.source.label(object.head(), ""));
            }
            return;
        }
        let what = match (api_version, kind) {
            ("", "") => NOT_AN_OBJECT.to_owned(),
            (_, "") => "this object has no kind".to_owned(),
            ("", kind) => format!("this {kind} has no apiVersion"),
            (api_version, kind) => {
                format!(
                    "{kind} of {api_version} is not checked: it has no pod template that Palisade supports"
                )
            }
        };
        let finding = Diagnostic::error(Code::of("input/unknown-kind"), self.file, what)
            .at(self.source.label(object.head(), ""))
            .because("--strict rejects what cannot be checked");
        self.report.diagnostics.push(finding);
        self.report.errors += 1;
    }

    fn workload(&mut self, manifest: &Object<'_>, workload: &'static WorkloadKind) {
        let (node, object) = (manifest.node, &manifest.source);
        let pod: Option<Pod<'_>> = match read_template(node, workload.path) {
            Ok(pod) => pod,
            Err(error) => {
                let finding = Diagnostic::unchecked(Code::of("api/type"), self.file, error.to_string())
                    .at(self.source.label(error.span, error.message.clone()))
                    .because(format!("an API server cannot read this {}", workload.kind));
                self.report.diagnostics.push(finding);
                self.report.errors += 1;
                // One mistake does not hide the others; the type at fault is named already.
                let mut others = Vec::new();
                fields::report(&self.context(object, workload), node, &mut others);
                others.retain(|other| other.code.as_str() != "api/type");
                self.report.diagnostics.append(&mut others);
                return;
            }
        };
        // A Rollout may name the workload whose template it takes.
        let refers = (workload.group, workload.kind) == ("argoproj.io", "Rollout")
            && node.get("spec").is_some_and(|spec| spec.get("workloadRef").is_some());
        if pod.is_none() && refers {
            self.in_another_form(manifest);
            return;
        }
        let Some(pod) = pod else {
            let path = FieldPath::of(workload.path);
            let place = object.place(&path, None);
            let finding = Diagnostic::unchecked(
                Code::of("api/invalid"),
                self.file,
                format!("{} has no pod template at {path}", workload.kind),
            )
            .at(self.source.label(place.span, "the template is missing here"));
            self.report.diagnostics.push(Diagnostic { path: Some(path.to_string()), ..finding });
            self.report.errors += 1;
            return;
        };

        self.read_suppressions(object, workload);

        let subject = workload.subject();
        let compat = &self.settings.compat;
        let namespace =
            manifest.metadata("namespace").map(str::to_owned).or_else(|| self.settings.namespace.clone());
        let mut context = self.context(object, workload);
        context.policy = self.settings.policy_of(namespace.as_deref());
        let findings = &mut self.report.diagnostics;
        if let Some((what, help)) = manifest::unknown_version(manifest.api_version) {
            let finding = Diagnostic::error(Code::of("input/unknown-kind"), self.file, what)
                .at(self.source.label(object.head(), ""))
                .because(format!("an API server does not serve this {}", workload.kind));
            findings.push(Diagnostic { help, ..finding });
        }
        fields::report(&context, node, findings);
        annotations::report(&context, node, &subject.view(&pod), findings);
        // An API server validates a template as it is written; policy decides about the pods that it becomes.
        let future = Prepared::future_pod(pod.clone(), subject, compat);
        let written = Prepared::new(pod, subject, compat);
        context.filled = written.synced().to_vec();
        problems::report(&context, &written.view(), &validate_create(&written), findings);
        annotations::ports(&context, &written, findings);
        context.filled = future.synced().to_vec();
        let outcome = self.settings.evaluator.evaluate(context.policy, &future);
        let workloads = if workload.path.is_empty() {
            of_pod(&future.pod().metadata, Provenance::Unknown)
        } else {
            of_template(workload, manifest.metadata("name").unwrap_or_default())
        };
        let outcome =
            self.settings.exceptions.excuse(outcome, &future, namespace.as_deref(), &workloads).outcome;
        standards::report(&context, &future, &outcome, findings);

        self.report.verdicts.push(Verdict {
            id: object.id().clone(),
            group: workload.group.to_owned(),
            kind: workload.kind.to_owned(),
            namespace,
            name: manifest.name().map(str::to_owned),
            policy: context.policy,
            allowed: outcome.allowed(),
            undecided: false,
            message: if outcome.allowed() { String::new() } else { outcome.details() },
        });
    }

    const fn context<'c>(
        &self,
        object: &'c ObjectSource<'c>,
        workload: &'static WorkloadKind,
    ) -> Context<'c, 's>
    where
        'w: 'c,
    {
        let (file, source, settings) = (self.file, self.source, self.settings);
        Context { file, source, settings, policy: settings.policy, object, workload, filled: Vec::new() }
    }

    fn read_suppressions(&mut self, object: &ObjectSource<'_>, workload: &WorkloadKind) {
        let own = FieldPath::of(&["metadata", "annotations"]).key(suppression::ANNOTATION);
        let template =
            FieldPath::of(workload.path).fields(&["metadata", "annotations"]).key(suppression::ANNOTATION);
        let both = [Some(own), (!workload.path.is_empty()).then_some(template)];
        for path in both.into_iter().flatten() {
            if let Some((span, text)) = object.text(&path) {
                let scope = Scope::Object(object.id().clone());
                self.suppressions.add(text, scope, span, self.file, self.source);
            }
        }
    }
}

/// What the reporters need about an object.
struct Context<'c, 's> {
    file: &'c Arc<str>,
    source: &'c Source<'s>,
    settings: &'c Settings,
    policy: LevelVersion,
    object: &'c ObjectSource<'c>,
    workload: &'static WorkloadKind,
    /// What the API server copied between annotations and fields.
    filled: Vec<FieldPath>,
}

impl Context<'_, '_> {
    /// Where a field is in the file; one that the API server filled in is where its annotation is.
    fn place(&self, path: &FieldPath, view: &PodView<'_, '_>) -> Place {
        let filled = self.filled.iter().any(|filled| filled.contains(path));
        self.object.place(path, filled.then_some(view))
    }
}

/// `apps/Deployment` as kubectl names it: `deployment.apps`.
#[must_use]
pub fn kubectl_kind(group: &str, kind: &str) -> String {
    let kind = kind.to_lowercase();
    if group.is_empty() { kind } else { format!("{kind}.{group}") }
}
