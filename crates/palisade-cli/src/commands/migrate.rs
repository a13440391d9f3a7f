//! `palisade migrate`: legacy annotations become fields, and Palisade's extensions become v1 fields.
//!
//! What a container runs with must be the same before and after, read with Palisade's extensions (annotations are honored);
//! otherwise nothing is written. A conflict between field and annotation is reported and has no automatic fix.

use std::{
    borrow::Cow,
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Args;
use palisade_model::{
    compat::Compat,
    effective::effective_contexts,
    lower::{Lowering, lower},
    pod_view::PodView,
    prepare::{Prepared, Subject},
    profile::{ProfileRef, apparmor, seccomp},
    security_context::ProfileField,
    workload::read_template,
};
use palisade_policy::standards::finding::Edit;
use palisade_yaml::{Limits, parse};

use crate::{
    config::glob_matches,
    diagnostic::{Code, Diagnostic, ObjectId, Severity},
    failure::{Exit, Failure},
    fix::{Change, apply, unified_diff},
    input::{Input, discover},
    judge::{decode, template_problem, yaml_problem},
    manifest::{Object, misnamed, objects},
    render::human,
    replace::{ReplaceError, replace},
    source_map::Source,
    terminal::Terminal,
};

/// `palisade migrate`
#[derive(Debug, Args)]
pub struct MigrateArgs {
    /// Files, folders (searched for .yaml, .yml and .json), or - for stdin
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Exclude paths that match, such as `vendor/**` or `*.tmpl.yaml`; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub exclude: Vec<String>,
    /// Print the changes as a unified diff, and write nothing
    #[arg(long)]
    pub diff: bool,
    /// Write nothing; exit with 1 if something would change
    #[arg(long)]
    pub check: bool,
    /// Print no summary
    #[arg(long, short)]
    pub quiet: bool,
}

/// Runs the command.
pub fn run(args: &MigrateArgs, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let excluded = |path: &Path| args.exclude.iter().any(|pattern| glob_matches(pattern, path));
    let found = discover(&args.paths, excluded);
    if found.inputs.is_empty() && found.problems.is_empty() {
        return Err(Failure::input(
            "no manifests found: folders are searched for .yaml, .yml and .json files",
        ));
    }
    let mut problems = found.problems;
    let mut totals = Totals::default();
    for input in &found.inputs {
        let mut migrated = match migrate(input) {
            Ok(migrated) => migrated,
            Err(problem) => {
                problems.push(*problem);
                continue;
            }
        };
        problems.append(&mut migrated.problems);
        totals.objects += migrated.objects;
        write(input, &migrated, args, &mut totals, terminal)?;
    }
    let style = human::Style { color: terminal.err_color, width: None };
    let mut text = String::new();
    human::diagnostics(&problems, style, &mut text);
    terminal.report_text(&text);
    terminal.out.flush().map_err(Failure::output)?;
    if !args.quiet {
        let would = if args.check || args.diff { "would be " } else { "" };
        terminal.report(format!(
            "{} in {} {would}migrated",
            plural(totals.moved, "setting"),
            plural(totals.changed, "file")
        ));
    }
    if totals.objects == 0 && problems.is_empty() {
        terminal.report("error: nothing was migrated: the input has no Kubernetes objects");
    }
    Ok(if totals.failed {
        Exit::Incomplete
    } else if totals.objects == 0 {
        Exit::Input
    } else if problems.iter().any(|problem| problem.severity == Severity::Error)
        || (args.check && totals.changed > 0)
    {
        Exit::Findings
    } else {
        Exit::Clean
    })
}

#[derive(Default)]
struct Totals {
    moved: usize,
    changed: usize,
    /// Kubernetes objects, whether or not they hold a pod.
    objects: usize,
    failed: bool,
}

fn plural(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

fn write(
    input: &Input,
    migrated: &Migrated,
    args: &MigrateArgs,
    totals: &mut Totals,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let file = input.name();
    let print = |terminal: &mut Terminal, text: &str| {
        terminal.out.write_all(text.as_bytes()).map_err(Failure::output)
    };
    let Some(new) = &migrated.text else {
        if *input == Input::Stdin && !args.diff && !args.check {
            print(terminal, &migrated.old)?;
        }
        return Ok(());
    };
    totals.changed += 1;
    totals.moved += migrated.moved;
    if args.diff {
        return print(terminal, &unified_diff(&file, &migrated.old, new));
    }
    if args.check {
        terminal.report(format!("would migrate {file}"));
        return Ok(());
    }
    let Input::File(path) = input else { return print(terminal, new) };
    let written = if migrated.utf16 {
        Err(ReplaceError::Utf16)
    } else {
        replace(path, migrated.old.as_bytes(), new.as_bytes())
    };
    match written {
        Ok(()) if args.quiet => {}
        Ok(()) => terminal.report(format!("migrated {file}: {}", plural(migrated.moved, "setting"))),
        Err(reason) => {
            terminal.report(format!("error: cannot migrate {file}: {reason}"));
            totals.failed = true;
        }
    }
    Ok(())
}

struct Migrated {
    old: String,
    /// The new text; `None` if it stays as it is.
    text: Option<String>,
    moved: usize,
    objects: usize,
    problems: Vec<Diagnostic>,
    utf16: bool,
}

fn migrate(input: &Input) -> Result<Migrated, Box<Diagnostic>> {
    let file = input.name();
    let bytes = input.read()?;
    let text = decode(&file, &bytes)?;
    let utf16 = matches!(text, Cow::Owned(_));
    let source = Source::new(&text);
    let parsed = parse(&text, &Limits::default());
    if !parsed.errors.is_empty()
        && let Some(template) = template_problem(&file, &source)
    {
        return Err(Box::new(template));
    }
    let mut problems: Vec<Diagnostic> =
        parsed.errors.iter().map(|error| yaml_problem(error, &file, &source)).collect();
    if parsed.documents.is_empty() && !problems.is_empty() {
        return Err(Box::new(problems.remove(0)));
    }
    let objects: Vec<Object<'_>> = parsed.documents.iter().flat_map(objects).collect();
    let mut planned = Vec::new();
    for object in &objects {
        let Some(workload) = object.workload else {
            if let Some((what, help)) = misnamed(object.api_version, object.kind) {
                let problem = Diagnostic::error(Code::of("input/unknown-kind"), &file, what)
                    .at(source.label(object.source.head(), ""))
                    .because("an API server does not serve this kind, and the object is not changed");
                problems.push(Diagnostic { help, ..problem });
            }
            continue;
        };
        match read_template(object.node, workload.path) {
            Ok(Some(pod)) => {
                let mut plan =
                    Plan { object, file: &file, source: &source, edits: Vec::new(), problems: &mut problems };
                plan.annotations(&workload.subject().view(&pod));
                plan.proposal(&workload.subject().view(&pod));
                for edits in plan.edits {
                    planned.push((object.source.id(), edits));
                }
            }
            Ok(None) => {}
            Err(error) => problems.push(
                Diagnostic::error(Code::of("api/type"), &file, error.to_string())
                    .at(source.label(error.span, error.message.clone())),
            ),
        }
    }
    let changes: Vec<Change<'_>> =
        planned.iter().map(|(object, edits)| Change { object, edits: edits.clone() }).collect();
    let applied = apply(&text, &changes);
    for reason in &applied.refused {
        problems.push(Diagnostic::error(
            Code::of("migrate/refused"),
            &file,
            format!("cannot edit the manifest: {reason}"),
        ));
    }
    let moved = changes.len() - applied.refused.len();
    let new = applied.text.filter(|new| {
        let same = meaning(&text) == meaning(new);
        if !same {
            problems.push(Diagnostic::error(
                Code::of("migrate/refused"),
                &file,
                "the migrated manifest would change what containers run with; the file is not changed",
            ));
        }
        same
    });
    let moved = if new.is_some() { moved } else { 0 };
    let is_object = |object: &&Object<'_>| !object.api_version.is_empty() || !object.kind.is_empty();
    let objects = objects.iter().filter(is_object).count();
    Ok(Migrated { text: new, moved, objects, problems, utf16, old: text.into_owned() })
}

/// What every container of a text runs with, read with Palisade's extensions: field before annotation, container before pod.
fn meaning(text: &str) -> Vec<(ObjectId, Vec<(String, String)>)> {
    let mut compat = Compat::designs();
    compat.gates.seccomp_config_maps = true;
    compat.gates.security_profile_oci_artifact = true;
    let parsed = parse(text, &Limits::default());
    let mut all = Vec::new();
    for object in parsed.documents.iter().flat_map(objects) {
        let Some(workload) = object.workload else { continue };
        let Ok(Some(pod)) = read_template(object.node, workload.path) else { continue };
        let pod = Prepared::new(pod, Subject::Pod, &compat);
        all.push((object.source.id().clone(), settings(&pod)));
    }
    all
}

fn settings(pod: &Prepared<'_>) -> Vec<(String, String)> {
    let rows = effective_contexts(pod).into_iter().flat_map(|context| {
        let name = context.container.to_owned();
        context.rows().into_iter().map(move |row| (format!("{name} {}", row.field), row.json.to_string()))
    });
    rows.collect()
}

struct Plan<'p, 's> {
    object: &'p Object<'p>,
    file: &'p Arc<str>,
    source: &'p Source<'s>,
    /// Each entry is made together or not at all.
    edits: Vec<Vec<Edit>>,
    problems: &'p mut Vec<Diagnostic>,
}

impl Plan<'_, '_> {
    fn annotations(&mut self, view: &PodView<'_, '_>) {
        let of_pod = view.security_context();
        for (key, value) in view.metadata().annotations.iter() {
            if key == seccomp::POD_ANNOTATION {
                let field = of_pod.and_then(|context| context.seccomp_profile.as_ref());
                let path = view.path(&["spec", "securityContext", "seccompProfile"]);
                self.profile(view, key, seccomp::from_annotation(value), field, None, path);
            } else if let Some(name) = key.strip_prefix(seccomp::CONTAINER_ANNOTATION_PREFIX) {
                let Some(container) = view.container(name) else {
                    self.without_container(view, key, name);
                    continue;
                };
                let field = container.security_context().and_then(|context| context.seccomp_profile.as_ref());
                let path = container.path(view).fields(&["securityContext", "seccompProfile"]);
                self.profile(view, key, seccomp::from_annotation(value), field, None, path);
            } else if let Some(name) = key.strip_prefix(apparmor::ANNOTATION_PREFIX) {
                let Some(container) = view.container(name) else {
                    self.without_container(view, key, name);
                    continue;
                };
                let field =
                    container.security_context().and_then(|context| context.app_armor_profile.as_ref());
                let inherited = of_pod.and_then(|context| context.app_armor_profile.as_ref());
                let path = container.path(view).fields(&["securityContext", "appArmorProfile"]);
                // With the extensions the empty value means the runtime's default.
                let reference = if value.is_empty() {
                    Some(ProfileRef::RuntimeDefault)
                } else {
                    apparmor::from_annotation(value)
                };
                self.profile(view, key, reference, field, inherited, path);
            }
        }
    }

    fn profile(
        &mut self,
        view: &PodView<'_, '_>,
        key: &str,
        reference: Option<ProfileRef<'_>>,
        field: Option<&ProfileField<'_>>,
        inherited: Option<&ProfileField<'_>>,
        path: palisade_base::field_path::FieldPath,
    ) {
        let annotation = view.annotation_path(key);
        let Some(reference) = reference else {
            self.problem(
                "profile/annotation",
                &annotation,
                format!("{key} does not name a profile, and is not changed"),
                "correct or remove it",
            );
            return;
        };
        let wanted = reference.to_field();
        match field.or(inherited.filter(|inherited| **inherited == wanted)) {
            None => {
                let value = serde_json::to_value(&wanted).unwrap_or_default();
                self.edits.push(vec![Edit::Set(path, value), Edit::Remove(annotation)]);
            }
            Some(field) if *field == wanted => self.edits.push(vec![Edit::Remove(annotation)]),
            Some(field) => {
                let has = field.reference().map_or_else(|| field.kind.as_str().to_owned(), |r| r.to_string());
                let message = format!("{key} is {reference}, but {path} is {has}; neither is changed");
                self.problem(
                    "profile/conflict",
                    &annotation,
                    message,
                    "keep the one that is right, and remove the other",
                );
            }
        }
    }

    fn without_container(&mut self, view: &PodView<'_, '_>, key: &str, name: &str) {
        let message = format!("{key} is for container \"{name}\", which does not exist; it is not changed");
        self.problem(
            "annotation/dead",
            &view.annotation_path(key),
            message,
            "correct the name, or remove it",
        );
    }

    fn proposal(&mut self, view: &PodView<'_, '_>) {
        let mut edits = Vec::new();
        for step in lower(view) {
            match step {
                Lowering::Set(path, value) => edits.push(Edit::Set(path, value)),
                Lowering::Remove(path) => edits.push(Edit::Remove(path)),
                Lowering::Impossible(path, reason) => {
                    let message = format!("{path} has no v1 form: {reason}");
                    self.problem("migrate/impossible", &path, message, "rewrite it by hand with v1 fields");
                    return;
                }
            }
        }
        if !edits.is_empty() {
            self.edits.push(edits);
        }
    }

    fn problem(
        &mut self,
        code: &'static str,
        path: &palisade_base::field_path::FieldPath,
        message: String,
        help: &str,
    ) {
        let place = self.object.source.place(path, None);
        let problem = Diagnostic::error(Code::of(code), self.file, message)
            .at(self.source.label(place.span, ""))
            .help(help);
        self.problems.push(Diagnostic { path: Some(path.to_string()), ..problem });
    }
}
