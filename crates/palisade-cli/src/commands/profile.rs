//! `palisade profile`: check, compare, combine, hash, push and pull seccomp profiles, and check AppArmor profiles.
//!
//! A profile is a JSON file, a key of a ConfigMap manifest (every key that ends in `.json` or whose value begins as a JSON
//! object), or the `spec` of a SeccompProfile of the Security Profiles Operator.

mod apparmor;
pub(crate) mod combine;
pub(crate) mod registry;

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Subcommand;
use combine::Combination;
use palisade_base::{
    field_path::{self, FieldPath},
    sha256,
};
use palisade_model::profile::{
    apparmor_profile,
    document::{self, KernelVersion, Lint, MAX_SIZE},
    filter::{Difference, DifferenceKind, Filter, Reach},
    json::{self as strict_json, JsonError},
    syscalls::Syscall,
};
use palisade_yaml::{Document, Kind, Limits, NodeRef, Parsed, ScalarStyle, Span, Step, View, parse};
use serde_json::{Value, json};

use super::recording;
use crate::{
    args::ValueError,
    diagnostic::{Code, Diagnostic, Label, Severity},
    failure::{Exit, Failure},
    input::Input,
    judge::{FileReport, decode, yaml_problem},
    manifest::{Object, objects},
    render::{Output, Renderer, Sinks, human},
    source_map::Source,
    terminal::Terminal,
};

/// `palisade profile …`
#[derive(Debug, Subcommand)]
pub enum ProfileCommand {
    /// Find mistakes: syntax, unknown system calls, actions and architectures, features that a kernel lacks; AppArmor profiles are checked
    /// with apparmor_parser
    Lint {
        /// Profiles (JSON), manifests of ConfigMaps or SeccompProfiles, AppArmor profiles, or manifests of AppArmorProfiles
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Kernel the profile must work on, such as 5.10
        #[arg(long, value_name = "VERSION", value_parser = kernel_version)]
        kernel: Option<KernelVersion>,
        /// Output: human, json, sarif, junit, github or name, each optionally =FILE
        #[arg(long, short, value_name = "FORMAT[=FILE]", value_delimiter = ',')]
        output: Vec<Output>,
    },
    /// Compare the action of two profiles for every system call, with an example call for each difference
    Diff {
        /// The first profile
        #[arg(value_name = "OLD")]
        old: PathBuf,
        /// The second profile
        #[arg(value_name = "NEW")]
        new: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the profile that allows a call only if both profiles do
    Intersect(combine::PairArgs),
    /// Print the profile that denies a call only if both profiles do
    Merge(combine::PairArgs),
    /// Exit with 0 if A allows no call that B does not, else with 1 and such a call
    Subset(combine::PairArgs),
    /// Print the smallest profile with the same meaning
    Minimize(combine::SingleArgs),
    /// Show the action for a system call
    ExplainCall(combine::CallArgs),
    /// Print the profile of a recording that did not end, from its journal
    Recorded {
        /// The journal that `palisade run --record` left behind
        #[arg(value_name = "JOURNAL")]
        journal: PathBuf,
    },
    /// Push a profile to a registry as an OCI artifact, and print the reference for pods
    Push(registry::PushArgs),
    /// Print the profile of an OCI artifact, which a reference names by its digest
    Pull(registry::PullArgs),
    /// Print the SHA-256 of profiles, as in the container status and as `sha256sum` prints it
    Hash {
        /// Profiles (JSON), or manifests of ConfigMaps
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
}

/// Runs the command.
pub fn run(command: &ProfileCommand, terminal: &mut Terminal) -> Result<Exit, Failure> {
    match command {
        ProfileCommand::Lint { files, kernel, output } => {
            let linted: Vec<(FileReport, usize)> = files.iter().map(|file| lint(file, *kernel)).collect();
            let judged = linted.iter().map(|(_, judged)| judged).sum();
            let reports: Vec<FileReport> = linted.into_iter().map(|(report, _)| report).collect();
            let output = if output.is_empty() { vec![Output::HUMAN] } else { output.clone() };
            print(&reports, judged, output, terminal)
        }
        ProfileCommand::Diff { old, new, json } => diff(old, new, *json, terminal),
        ProfileCommand::Intersect(args) => combine::combine(args, Combination::Intersection, terminal),
        ProfileCommand::Merge(args) => combine::combine(args, Combination::Union, terminal),
        ProfileCommand::Subset(args) => combine::subset(args, terminal),
        ProfileCommand::Minimize(args) => combine::minimize(args, terminal),
        ProfileCommand::ExplainCall(args) => combine::explain_call(args, terminal),
        ProfileCommand::Recorded { journal } => recording::recorded(journal, terminal),
        ProfileCommand::Push(args) => registry::push(args, terminal),
        ProfileCommand::Pull(args) => registry::pull(args, terminal),
        ProfileCommand::Hash { files } => hash(files, terminal),
    }
}

fn kernel_version(text: &str) -> Result<KernelVersion, ValueError> {
    let mut numbers = text.split(['.', '-']).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Ok((major, minor)),
        _ => Err(ValueError::Form("write it as 5.10")),
    }
}

/// A profile inside a file.
struct Profile<'p> {
    /// The key of the ConfigMap or the name of the object; `None` for a file that is the profile.
    name: Option<String>,
    /// Its content.
    content: Content<'p>,
}

enum Content<'p> {
    /// JSON as it is written or stored.
    Text {
        text: String,
        /// The key of the ConfigMap.
        span: Span,
        /// Where the lines of the text are in the file, if they are there as they are.
        literal: Option<Span>,
    },
    /// A SeccompProfile.
    Object(Object<'p>),
    /// An AppArmorProfile.
    AppArmor(Object<'p>),
}

/// A profile, and the base profile that the operator adds.
struct Spec {
    value: Value,
    base: Option<String>,
}

/// The spec of a SeccompProfile, without what is the operator's alone.
fn spec(object: &Object<'_>) -> Result<Spec, palisade_yaml::DeserializeError> {
    let mut value = object.node.get("spec").map_or(Ok(Value::Null), NodeRef::to_json)?;
    let mut base = None;
    if let Value::Object(fields) = &mut value {
        fields.remove("disabled");
        base = fields.remove("baseProfileName").and_then(|name| name.as_str().map(str::to_owned));
    }
    Ok(Spec { value, base: base.filter(|name| !name.is_empty()) })
}

const OPERATOR_GROUP: &str = "security-profiles-operator.x-k8s.io/";

/// The profiles of a file.
struct Profiles<'p> {
    /// None if the text is a Kubernetes object that holds no profile.
    list: Vec<Profile<'p>>,
    /// Whether the text is a manifest, rather than a profile.
    is_manifest: bool,
}

const NO_PROFILE: &str =
    "no seccomp profile found: neither a SeccompProfile nor a ConfigMap with a JSON value";

const ONLY_SECCOMP: &str = "an AppArmorProfile, and this command is for seccomp";

/// The profiles of a text; a ConfigMap may hold several.
fn profiles<'p>(text: &str, parsed: &'p Parsed<'_>) -> Profiles<'p> {
    let mut found = Vec::new();
    let mut is_manifest = false;
    for object in parsed.documents.iter().flat_map(objects) {
        is_manifest |= !object.kind.is_empty() && !object.api_version.is_empty();
        if object.kind == "SeccompProfile" && object.api_version.starts_with(OPERATOR_GROUP) {
            let name = object.name().unwrap_or_default().to_owned();
            found.push(Profile { name: Some(name), content: Content::Object(object) });
            continue;
        }
        if object.kind == apparmor_profile::KIND && object.api_version.starts_with("palisade.dev/") {
            let name = object.name().unwrap_or_default().to_owned();
            found.push(Profile { name: Some(name), content: Content::AppArmor(object) });
            continue;
        }
        is_manifest |= object.kind == "ConfigMap";
        let data = object.node.get("data").filter(|_| object.kind == "ConfigMap");
        let Some(View::Mapping(entries)) = data.map(NodeRef::view) else { continue };
        for entry in entries {
            let Some(profile) = entry.value.as_str() else { continue };
            let named = Path::new(&*entry.key).extension().is_some_and(|ending| ending == "json");
            if named || profile.trim_start().starts_with('{') {
                let content = Content::Text {
                    text: profile.to_owned(),
                    span: entry.key_node.span(),
                    literal: literal(entry.value),
                };
                found.push(Profile { name: Some(entry.key.into_owned()), content });
            }
        }
    }
    if found.is_empty() && !is_manifest {
        let content = Content::Text { text: text.to_owned(), span: Span::at(0), literal: None };
        found.push(Profile { name: None, content });
    }
    Profiles { list: found, is_manifest }
}

/// What is wrong with a manifest as a text: what cannot be read may be a profile, and a key that is there twice may be one.
fn manifest_problems(
    profiles: &Profiles<'_>,
    parsed: &Parsed<'_>,
    file: &Arc<str>,
    source: &Source<'_>,
) -> Vec<Diagnostic> {
    if !profiles.is_manifest {
        return Vec::new();
    }
    let errors = parsed.errors.iter().map(|error| yaml_problem(error, file, source));
    let documents = parsed.documents.iter().flat_map(|document| duplicate_keys(document, file, source));
    errors.chain(documents).collect()
}

/// The span of a literal block scalar (`|`), whose lines are those of the text with indentation before them.
fn literal(value: NodeRef<'_>) -> Option<Span> {
    let node = value.target().node();
    match &node.kind {
        Kind::Scalar(scalar) if scalar.style == ScalarStyle::Literal => Some(node.span),
        _ => None,
    }
}

/// A place of the profile as a place of the file.
fn outward(label: &Label, text: &str, literal: Option<Span>, outer: &Source<'_>) -> Option<Label> {
    let header = outer.lines().position(literal?.start).line;
    let line = outer.lines().line_span(header + label.line)?;
    let inner = text.lines().nth(label.line.checked_sub(1)?)?;
    let indent = line.text(outer.text()).strip_suffix(inner)?.len();
    let start = line.start + indent + label.excerpt.start;
    let end = line.start + indent + label.excerpt.end;
    // A very long line is cut in the excerpt, which then counts otherwise.
    (label.excerpt.text == inner).then(|| outer.label(Span::new(start, end), label.text.clone()))
}

fn read(path: &Path) -> Result<(Arc<str>, String), Box<Diagnostic>> {
    let input = if path.as_os_str() == "-" { Input::Stdin } else { Input::File(path.to_owned()) };
    let bytes = input.read()?;
    let file = input.name();
    let text = decode(&file, &bytes)?.into_owned();
    Ok((file, text))
}

/// What is wrong with the profiles of a file, and how many of them could be checked.
fn lint(path: &Path, kernel: Option<KernelVersion>) -> (FileReport, usize) {
    let (file, text) = match read(path) {
        Ok(read) => read,
        Err(problem) => return (FileReport::unreadable(*problem), 0),
    };
    let mut report = FileReport::new(Arc::clone(&file));
    if apparmor::is_profile(&text) {
        let judged = usize::from(apparmor::lint_text(&text, &file, &mut report));
        return (report, judged);
    }
    let outer = Source::new(&text);
    let parsed = parse(&text, &Limits::default());
    let profiles = profiles(&text, &parsed);
    if profiles.list.is_empty() {
        report.diagnostics.push(Diagnostic::error(Code::of("profile/none"), &file, NO_PROFILE));
        report.errors = 1;
    }
    let problems = manifest_problems(&profiles, &parsed, &file, &outer);
    report.errors += problems.len();
    report.diagnostics.extend(problems);
    let mut judged = 0;
    for profile in &profiles.list {
        let first = report.diagnostics.len();
        match &profile.content {
            Content::Object(object) => {
                judged += usize::from(lint_object(object, kernel, &file, &outer, &mut report));
            }
            Content::AppArmor(object) => {
                judged += usize::from(apparmor::lint_object(object, &file, &outer, &mut report));
            }
            Content::Text { text, span, literal } => {
                judged += usize::from(lint_text(text, kernel, &file, &mut report));
                let Some(key) = &profile.name else { continue };
                for finding in report.diagnostics.iter_mut().skip(first) {
                    let inside = finding.at.take();
                    let place = inside.as_ref().and_then(|label| outward(label, text, *literal, &outer));
                    finding.at = place.or_else(|| {
                        let line = inside.map(|label| format!("line {} of ", label.line)).unwrap_or_default();
                        Some(outer.label(*span, format!("in {line}the profile")))
                    });
                    finding.path = Some(format!(
                        "data[{key}]{}",
                        finding.path.as_deref().map(|p| format!(".{p}")).unwrap_or_default()
                    ));
                }
            }
        }
    }
    (report, judged)
}

/// A SeccompProfile, whose places are places of the file.
fn lint_object(
    object: &Object<'_>,
    kernel: Option<KernelVersion>,
    file: &Arc<str>,
    source: &Source<'_>,
    report: &mut FileReport,
) -> bool {
    if !object.node.document().duplicate_keys().is_empty() {
        // Reported with the manifest.
        return false;
    }
    let read = spec(object).map_err(|error| {
        Diagnostic::error(Code::of("profile/not-a-profile"), file, error.to_string())
            .at(source.label(error.span, error.message.clone()))
    });
    let spec = match read {
        Ok(spec) => spec,
        Err(problem) => {
            report.diagnostics.push(problem);
            report.errors += 1;
            return false;
        }
    };
    let here = FieldPath::root().field("spec");
    if let Some(base) = &spec.base {
        let message =
            format!("the operator adds the rules of the base profile {base:?}, which are not checked here");
        let problem = Diagnostic::warning(Code::of("profile/base-profile"), file, message);
        let label = source.label(object.source.place(&here.clone().field("baseProfileName"), None).span, "");
        report.diagnostics.push(problem.at(label));
    }
    for lint in document::lint(&spec.value, kernel) {
        let path = FieldPath::from([here.steps(), lint.at.steps()].concat());
        let label = source.label(object.source.place(&path, None).span, "");
        report.diagnostics.push(finding(Lint { at: path, ..lint }, Some(label), file));
    }
    report.diagnostics.sort_by(|a, b| a.order().cmp(&b.order()));
    true
}

fn duplicate_keys(document: &Document<'_>, file: &Arc<str>, source: &Source<'_>) -> Vec<Diagnostic> {
    let duplicates = document.duplicate_keys().iter();
    duplicates
        .map(|duplicate| {
            Diagnostic::error(
                Code::of("profile/duplicate-key"),
                file,
                format!(
                    "the key \"{}\" is set twice, and runtimes disagree about which one applies",
                    duplicate.key
                ),
            )
            .at(source.label(duplicate.second, "").related(source.label(duplicate.first, "first set here")))
            .because("the meaning of the profile is ambiguous, and Palisade does not use it")
            .help("remove one of them")
        })
        .collect()
}

fn lint_text(text: &str, kernel: Option<KernelVersion>, file: &Arc<str>, report: &mut FileReport) -> bool {
    let source = Source::new(text);
    let first = report.diagnostics.len();
    if text.len() > MAX_SIZE {
        let problem = Diagnostic::error(
            Code::of("profile/too-large"),
            file,
            format!("the profile has {} bytes; a ConfigMap holds at most {MAX_SIZE}", text.len()),
        );
        report.diagnostics.push(problem);
    }
    // The same text read with places.
    let parsed = parse(text, &Limits::default());
    let document = parsed.documents.first();
    let value = match strict_json::read(text) {
        Ok(value) => value,
        Err(JsonError::DuplicateKey(key)) => {
            let found = document.map(|document| duplicate_keys(document, file, &source)).unwrap_or_default();
            if found.is_empty() {
                let message =
                    format!("the key {key:?} is set twice, and runtimes disagree about which one applies");
                report.diagnostics.push(Diagnostic::error(Code::of("profile/duplicate-key"), file, message));
            }
            report.diagnostics.extend(found);
            report.errors += 1;
            return false;
        }
        Err(JsonError::Syntax(_) | JsonError::TooDeep) => {
            let problem = match serde_json::from_str::<Value>(text) {
                Err(error) => not_json(&error, file, &source),
                Ok(_) => Diagnostic::error(Code::of("profile/not-json"), file, "not JSON"),
            };
            report.diagnostics.push(problem);
            report.errors += 1;
            return false;
        }
    };
    for error in &parsed.errors {
        report
            .diagnostics
            .push(Diagnostic { severity: Severity::Warning, ..yaml_problem(error, file, &source) });
    }
    for lint in document::lint(&value, kernel) {
        let label = document.map(|document| source.label(place(document, &lint.at), ""));
        report.diagnostics.push(finding(lint, label, file));
    }
    if let Some(found) = report.diagnostics.get_mut(first..) {
        found.sort_by(|a, b| a.order().cmp(&b.order()));
    }
    true
}

fn finding(lint: Lint, at: Option<Label>, file: &Arc<str>) -> Diagnostic {
    let code = Code(format!("profile/{}", lint.rule).into());
    let because = lint.because();
    let mut finding = match lint.severity {
        document::Severity::Error => Diagnostic::error(code, file, lint.message),
        document::Severity::Warning => Diagnostic::warning(code, file, lint.message),
    }
    .because(because);
    finding.at = at;
    let path = lint.at.to_string();
    finding.path = (!path.is_empty()).then_some(path);
    finding.help = lint.help;
    finding
}

fn place(document: &Document<'_>, path: &FieldPath) -> Span {
    let steps: Vec<Step<'_>> = path
        .steps()
        .iter()
        .map(|step| match step {
            field_path::PathStep::Field(name) => Step::Key(name),
            field_path::PathStep::Key(key) => Step::Key(key.as_str()),
            field_path::PathStep::Index(index) => Step::Index(*index),
        })
        .collect();
    let found = match document.find(&steps) {
        Ok(found) => found,
        Err(missing) => missing.ancestor,
    };
    let span = found.span();
    if found.value.as_scalar().is_some() {
        return span;
    }
    // A mapping or list is shown by its key, or by its opening bracket.
    found.key.unwrap_or_else(|| Span::new(span.start, (span.start + 1).min(span.end)))
}

fn not_json(error: &serde_json::Error, file: &Arc<str>, source: &Source<'_>) -> Diagnostic {
    let text = error.to_string();
    let message = text.split(" at line ").next().unwrap_or(&text).to_owned();
    let line = source.lines().line_span(error.line()).unwrap_or(Span::at(0));
    let at = (line.start + error.column().saturating_sub(1)).min(line.end);
    Diagnostic::error(Code::of("profile/not-json"), file, format!("not JSON: {message}"))
        .at(source.label(Span::new(at, (at + 1).min(source.text().len())), ""))
        .because("a container with this profile does not start")
}

fn print(
    reports: &[FileReport],
    judged: usize,
    outputs: Vec<Output>,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let style = human::Style { color: terminal.out_color, width: Terminal::width() };
    let renderers: Vec<Renderer> =
        outputs.into_iter().map(|output| Renderer::new(output, "privileged", style)).collect();
    let mut sinks = Sinks::open(&renderers, &mut terminal.out).map_err(Failure::output)?;
    for report in reports {
        let fragments: Vec<_> = renderers.iter().map(|renderer| renderer.fragment(report, None)).collect();
        sinks.push(report, &fragments, &mut terminal.out);
    }
    let totals = sinks.finish(&mut terminal.out).map_err(Failure::output)?;
    Ok(if judged == 0 {
        Exit::Input
    } else if totals.error_findings > 0 {
        Exit::Findings
    } else {
        Exit::Clean
    })
}

/// The meaning of the one profile of a file, for commands that compare.
fn single(path: &Path) -> Result<Filter, Failure> {
    let value = document(path)?;
    Filter::read(&value)
        .map_err(|error| Failure::input(format!("{} cannot be compared: {error}", path.display())))
}

/// The one profile of a file.
fn document(path: &Path) -> Result<Value, Failure> {
    let (file, text) = read(path)?;
    let parsed = parse(&text, &Limits::default());
    let mut profiles = profiles(&text, &parsed);
    let unusable = |problem: &dyn std::fmt::Display| Failure::input(format!("{file}{problem}"));
    if let Some(problem) = manifest_problems(&profiles, &parsed, &file, &Source::new(&text)).first() {
        return Err(unusable(&format_args!(": {}", problem.summary)));
    }
    match (profiles.list.pop().map(|profile| profile.content), profiles.list.is_empty()) {
        (None, _) => Err(unusable(&" has no seccomp profile")),
        (Some(_), false) => Err(unusable(&" has several profiles: write the one to compare to a file")),
        (Some(Content::Text { text, .. }), true) => {
            strict_json::read(&text).map_err(|error| unusable(&format_args!(" {error}")))
        }
        (Some(Content::AppArmor(_)), true) => Err(unusable(&format_args!(": {ONLY_SECCOMP}"))),
        (Some(Content::Object(object)), true) => {
            let spec = spec(&object).map_err(|error| unusable(&format_args!(": {error}")))?;
            if let Some(base) = spec.base {
                let problem = format_args!(" has the base profile {base:?}, whose rules are not in the file");
                return Err(unusable(&problem));
            }
            Ok(spec.value)
        }
    }
}

fn diff(old: &Path, new: &Path, as_json: bool, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let (before, after) = (single(old), single(new));
    for error in [&before, &after].into_iter().filter_map(|read| read.as_ref().err()) {
        terminal.report(format!("error: {error}"));
    }
    let (Ok(before), Ok(after)) = (before, after) else { return Ok(Exit::Input) };
    let differences = before
        .differences(&after)
        .map_err(|_| Failure::incomplete("the rules are too complex to compare"))?;
    let of_calls = |kind: DifferenceKind| {
        differences.iter().filter(move |found| found.reach == Reach::Call && found.kind == kind)
    };
    let [gained, lost, changed] = [DifferenceKind::Gained, DifferenceKind::Lost, DifferenceKind::Changed]
        .map(|kind| of_calls(kind).count());
    let mut text = String::new();
    if as_json {
        let _ = writeln!(text, "{:#}", diff_json(&differences));
    } else {
        for found in &differences {
            let _ = writeln!(text, "{}", diff_line(found));
        }
        terminal.report(if differences.is_empty() {
            "the profiles are equal: every system call has the same action, whatever its arguments".to_owned()
        } else {
            format!("{gained} gained, {lost} lost, {changed} changed")
        });
    }
    terminal.print(text)?;
    Ok(if differences.is_empty() { Exit::Clean } else { Exit::Findings })
}

fn syscall_name(found: &Difference) -> &'static str {
    found.call.syscall.map_or("", Syscall::name)
}

fn diff_line(found: &Difference) -> String {
    let Difference { call, before, after, .. } = found;
    let change = if before == after {
        format!("{before}: the rules of both contradict each other, and are not the same in the same order")
    } else {
        format!("{before} -> {after}")
    };
    match (found.reach, found.kind) {
        (Reach::Default, _) => format!("! default action: {change}, such as for {call}"),
        (Reach::Architecture, _) => {
            format!("! {}: {change}, such as for {call}", call.architecture.token())
        }
        (Reach::Call, DifferenceKind::Gained) => format!("+ {}: {call}: {change}", syscall_name(found)),
        (Reach::Call, DifferenceKind::Lost) => format!("- {}: {call}: {change}", syscall_name(found)),
        (Reach::Call, DifferenceKind::Changed) => format!("~ {}: {call}: {change}", syscall_name(found)),
    }
}

fn diff_json(differences: &[Difference]) -> Value {
    let change = |found: &Difference| {
        let arguments: Vec<String> = found.call.arguments.iter().map(|value| format!("{value:#x}")).collect();
        json!({
            "syscall": found.call.syscall.map(Syscall::name), "architecture": found.call.architecture.token(),
            "arguments": arguments, "before": found.before.to_string(), "after": found.after.to_string(),
        })
    };
    let calls = |kind: DifferenceKind| {
        differences.iter().filter(move |found| found.reach == Reach::Call && found.kind == kind)
    };
    let names = |kind: DifferenceKind| calls(kind).map(syscall_name).collect::<Vec<_>>();
    let default = differences.iter().find(|found| found.reach == Reach::Default);
    let architectures = differences.iter().filter(|found| found.reach == Reach::Architecture);
    json!({
        "equal": differences.is_empty(),
        "defaultAction": default.map(|found| json!({"before": found.before.to_string(), "after": found.after.to_string()})),
        "gained": names(DifferenceKind::Gained),
        "lost": names(DifferenceKind::Lost),
        "changed": calls(DifferenceKind::Changed).map(change).collect::<Vec<_>>(),
        "architectures": architectures.map(change).collect::<Vec<_>>(),
        "examples": differences.iter().map(change).collect::<Vec<_>>(),
    })
}

fn hash(files: &[PathBuf], terminal: &mut Terminal) -> Result<Exit, Failure> {
    let mut text = String::new();
    let mut exit = Exit::Clean;
    for path in files {
        let (file, content) = match read(path) {
            Ok(read) => read,
            Err(problem) => {
                terminal.report(format!("error: {}", problem.summary));
                exit = Exit::Input;
                continue;
            }
        };
        let parsed = parse(&content, &Limits::default());
        let profiles = profiles(&content, &parsed);
        let problems = manifest_problems(&profiles, &parsed, &file, &Source::new(&content));
        let none = profiles.list.is_empty().then_some(NO_PROFILE);
        for problem in problems.iter().map(|problem| problem.summary.as_str()).chain(none) {
            terminal.report(format!("error: {file}: {problem}"));
            exit = Exit::Input;
        }
        for profile in profiles.list {
            let Content::Text { text: document, .. } = &profile.content else {
                let why = match &profile.content {
                    Content::AppArmor(_) => ONLY_SECCOMP,
                    _ => "the operator generates the file of a SeccompProfile, so that its hash is not known",
                };
                terminal.report(format!("error: {file}: {why}"));
                exit = Exit::Input;
                continue;
            };
            let hash = sha256::hex(document.as_bytes());
            let key = profile.name.map(|key| format!("/{key}")).unwrap_or_default();
            let _ = writeln!(text, "{hash}  {file}{key}");
        }
    }
    terminal.print(text)?;
    Ok(exit)
}
