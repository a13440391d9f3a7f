//! `palisade profile`: look into seccomp profile documents.
//!
//! A profile is a JSON file, or a key of a ConfigMap manifest: every key whose value begins as a JSON object.

use std::{fmt::Write as _, io::Write, path::Path, sync::Arc};

use palisade_model::{
    field_path::{self, FieldPath},
    profile::document::{self, KernelVersion, Lint, MAX_SIZE},
};
use palisade_policy::standards::level::LevelVersion;
use palisade_yaml::{Document, Kind, Limits, NodeRef, ScalarStyle, Span, Step, View, parse};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    Exit,
    args::ProfileCommand,
    diagnostic::{Code, Diagnostic, Label, Severity},
    input::Input,
    judge::{FileReport, decode, yaml_problem},
    render::{Output, Renderer, Sinks, human},
    source_map::Source,
    terminal::Terminal,
};

/// Runs the command.
pub fn run(command: &ProfileCommand, terminal: &mut Terminal) -> Exit {
    match command {
        ProfileCommand::Lint { files, kernel, output } => {
            let kernel = match kernel.as_deref().map(kernel_version).transpose() {
                Ok(kernel) => kernel,
                Err(given) => {
                    terminal.say(format!("error: {given:?} is no kernel version such as 5.10"));
                    return Exit::Input;
                }
            };
            let reports = files.iter().map(|file| lint(file, kernel)).collect::<Vec<_>>();
            let output = if output.is_empty() { vec![Output::HUMAN] } else { output.clone() };
            print(&reports, output, terminal)
        }
        ProfileCommand::Diff { old, new, json } => diff(old, new, *json, terminal),
        ProfileCommand::Hash { files } => hash(files, terminal),
    }
}

fn kernel_version(text: &str) -> Result<KernelVersion, String> {
    let mut numbers = text.split(['.', '-']).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Ok((major, minor)),
        _ => Err(text.to_owned()),
    }
}

/// A profile inside a file.
struct Profile {
    /// The key of the ConfigMap; `None` for a file that is the profile.
    key: Option<String>,
    /// The JSON as it is written or stored.
    text: String,
    /// The key of the ConfigMap.
    span: Span,
    /// Where the lines of the text are in the file, if they are there as they are.
    literal: Option<Span>,
}

/// The profiles of a text; a ConfigMap may hold several.
fn profiles(text: &str) -> Vec<Profile> {
    let parsed = parse(text, &Limits::default());
    let mut found = Vec::new();
    for document in &parsed.documents {
        let root = document.root();
        if root.get("kind").and_then(NodeRef::as_str) != Some("ConfigMap") {
            continue;
        }
        let Some(View::Mapping(entries)) = root.get("data").map(NodeRef::view) else { continue };
        for entry in entries {
            if let Some(profile) = entry.value.as_str().filter(|text| text.trim_start().starts_with('{')) {
                found.push(Profile {
                    key: Some(entry.key.into_owned()),
                    text: profile.to_owned(),
                    span: entry.key_node.span(),
                    literal: literal(entry.value),
                });
            }
        }
    }
    let is_config_map = parsed
        .documents
        .iter()
        .any(|document| document.root().get("kind").and_then(NodeRef::as_str) == Some("ConfigMap"));
    if found.is_empty() && !is_config_map {
        found.push(Profile { key: None, text: text.to_owned(), span: Span::at(0), literal: None });
    }
    found
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
fn outward(label: &Label, profile: &Profile, outer: &Source<'_>) -> Option<Label> {
    let header = outer.lines().position(profile.literal?.start).line;
    let line = outer.lines().line_span(header + label.line)?;
    let inner = profile.text.lines().nth(label.line.checked_sub(1)?)?;
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

fn lint(path: &Path, kernel: Option<KernelVersion>) -> FileReport {
    let (file, text) = match read(path) {
        Ok(read) => read,
        Err(problem) => return FileReport::unreadable(*problem),
    };
    let mut report = FileReport::new(Arc::clone(&file));
    let outer = Source::new(&text);
    let profiles = profiles(&text);
    if profiles.is_empty() {
        let problem = Diagnostic::error(
            Code::of("profile/none"),
            &file,
            "this ConfigMap holds no seccomp profile: no value begins as a JSON object",
        );
        report.diagnostics.push(problem);
        report.errors = 1;
    }
    for profile in &profiles {
        let first = report.diagnostics.len();
        lint_profile(profile, kernel, &file, &mut report);
        if let Some(key) = &profile.key {
            for finding in report.diagnostics.iter_mut().skip(first) {
                let inside = finding.at.take();
                finding.at =
                    inside.as_ref().and_then(|label| outward(label, profile, &outer)).or_else(|| {
                        let line = inside.map(|label| format!("line {} of ", label.line)).unwrap_or_default();
                        Some(outer.label(profile.span, format!("in {line}the profile")))
                    });
                finding.path = Some(format!(
                    "data[{key}]{}",
                    finding.path.as_deref().map(|p| format!(".{p}")).unwrap_or_default()
                ));
            }
        }
    }
    report
}

fn lint_profile(profile: &Profile, kernel: Option<KernelVersion>, file: &Arc<str>, report: &mut FileReport) {
    let source = Source::new(&profile.text);
    if profile.text.len() > MAX_SIZE {
        let problem = Diagnostic::error(
            Code::of("profile/too-large"),
            file,
            format!("the profile has {} bytes; a ConfigMap holds at most {MAX_SIZE}", profile.text.len()),
        );
        report.diagnostics.push(problem);
    }
    let value: Value = match serde_json::from_str(&profile.text) {
        Ok(value) => value,
        Err(error) => {
            report.diagnostics.push(not_json(&error, file, &source));
            report.errors += 1;
            return;
        }
    };
    // The same text read with places; runtimes take the last of two equal keys, so that is only a warning here.
    let parsed = parse(&profile.text, &Limits::default());
    for error in &parsed.errors {
        report
            .diagnostics
            .push(Diagnostic { severity: Severity::Warning, ..yaml_problem(error, file, &source) });
    }
    let document = parsed.documents.first();
    for duplicate in document.into_iter().flat_map(Document::duplicate_keys) {
        report.diagnostics.push(
            Diagnostic::warning(
                Code::of("profile/duplicate-key"),
                file,
                format!("the key \"{}\" is set twice; the last one counts", duplicate.key),
            )
            .at(source.label(duplicate.second, "")),
        );
    }
    for lint in document::lint(&value, kernel) {
        report.diagnostics.push(finding(lint, document, file, &source));
    }
    report.diagnostics.sort_by(|a, b| a.order().cmp(&b.order()));
}

fn finding(lint: Lint, document: Option<&Document<'_>>, file: &Arc<str>, source: &Source<'_>) -> Diagnostic {
    let code = Code(format!("profile/{}", lint.rule).into());
    let mut finding = match lint.severity {
        document::Severity::Error => Diagnostic::error(code, file, lint.message)
            .because("a container with this profile will not start"),
        document::Severity::Warning => Diagnostic::warning(code, file, lint.message)
            .because("the runtime takes it, but not as it was meant"),
    };
    finding.at = document.map(|document| source.label(place(document, &lint.at), ""));
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
            field_path::Step::Field(name) => Step::Key(name),
            field_path::Step::Key(key) => Step::Key(key.as_str()),
            field_path::Step::Index(index) => Step::Index(*index),
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
    Diagnostic::error(Code::of("profile/not-json"), file, format!("this is not JSON: {message}"))
        .at(source.label(Span::new(at, (at + 1).min(source.text().len())), ""))
        .because("a container with this profile will not start")
}

fn print(reports: &[FileReport], outputs: Vec<Output>, terminal: &mut Terminal) -> Exit {
    let style = human::Style { color: terminal.out_color, width: Terminal::width() };
    let renderers: Vec<Renderer> =
        outputs.into_iter().map(|output| Renderer::new(output, LevelVersion::PRIVILEGED, style)).collect();
    let mut sinks = match Sinks::open(&renderers, &mut terminal.out) {
        Ok(sinks) => sinks,
        Err(error) => return terminal.cannot_write(&error),
    };
    for report in reports {
        let fragments: Vec<_> = renderers.iter().map(|renderer| renderer.fragment(report)).collect();
        sinks.push(report, &fragments, &mut terminal.out);
    }
    match sinks.finish(&mut terminal.out) {
        Err(error) => terminal.cannot_write(&error),
        Ok(totals) if totals.errors == reports.len() => Exit::Input,
        Ok(totals) if totals.error_findings > 0 => Exit::Findings,
        Ok(_) => Exit::Clean,
    }
}

/// The one profile of a file, for commands that compare.
fn single(path: &Path, terminal: &Terminal) -> Option<Value> {
    let fail = |message: String| {
        terminal.say(format!("error: {message}"));
        None
    };
    let (file, text) = match read(path) {
        Ok(read) => read,
        Err(problem) => return fail(problem.summary),
    };
    let mut profiles = profiles(&text);
    match (profiles.pop(), profiles.is_empty()) {
        (Some(profile), true) => match serde_json::from_str(&profile.text) {
            Ok(value) => Some(value),
            Err(error) => fail(format!("{file} is not JSON: {error}")),
        },
        (Some(_), false) => {
            fail(format!("{file} holds several profiles; put the one to compare into a file"))
        }
        (None, _) => fail(format!("{file} holds no seccomp profile")),
    }
}

fn diff(old: &Path, new: &Path, as_json: bool, terminal: &mut Terminal) -> Exit {
    let (Some(before), Some(after)) = (single(old, terminal), single(new, terminal)) else {
        return Exit::Input;
    };
    let diff = document::diff(&before, &after);
    let mut text = String::new();
    if as_json {
        let changed: Vec<Value> = diff
            .changed
            .iter()
            .map(|(call, before, after)| json!({"syscall": call, "before": before, "after": after}))
            .collect();
        let default =
            diff.default_action.as_ref().map(|(before, after)| json!({"before": before, "after": after}));
        let value = json!({
            "defaultAction": default, "gained": diff.gained, "lost": diff.lost, "changed": changed,
        });
        let _ = writeln!(text, "{value:#}");
    } else {
        if let Some((before, after)) = &diff.default_action {
            let _ = writeln!(text, "! default action: {before} -> {after}");
        }
        for call in &diff.gained {
            let _ = writeln!(text, "+ {call}");
        }
        for call in &diff.lost {
            let _ = writeln!(text, "- {call}");
        }
        for (call, before, after) in &diff.changed {
            let _ = writeln!(text, "~ {call}: {before} -> {after}");
        }
        let words =
            format!("{} gained, {} lost, {} changed", diff.gained.len(), diff.lost.len(), diff.changed.len());
        terminal.say(if diff.is_empty() { "both profiles do the same".to_owned() } else { words });
    }
    match terminal.out.write_all(text.as_bytes()).and_then(|()| terminal.out.flush()) {
        Err(error) => terminal.cannot_write(&error),
        Ok(()) if diff.is_empty() => Exit::Clean,
        Ok(()) => Exit::Findings,
    }
}

fn hash(files: &[std::path::PathBuf], terminal: &mut Terminal) -> Exit {
    let mut text = String::new();
    let mut exit = Exit::Clean;
    for path in files {
        let (file, content) = match read(path) {
            Ok(read) => read,
            Err(problem) => {
                terminal.say(format!("error: {}", problem.summary));
                exit = Exit::Input;
                continue;
            }
        };
        for profile in profiles(&content) {
            for byte in Sha256::digest(profile.text.as_bytes()) {
                let _ = write!(text, "{byte:02x}");
            }
            let key = profile.key.map(|key| format!("/{key}")).unwrap_or_default();
            let _ = writeln!(text, "  {file}{key}");
        }
    }
    match terminal.out.write_all(text.as_bytes()).and_then(|()| terminal.out.flush()) {
        Ok(()) => exit,
        Err(error) => terminal.cannot_write(&error),
    }
}
