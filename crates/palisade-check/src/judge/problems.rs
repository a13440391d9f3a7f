//! What an API server would reject, as diagnostics.

use palisade_base::{
    field_error::FieldError,
    field_path::{FieldPath, PathStep},
    version::KubeVersion,
};
use palisade_model::pod_view::PodView;

use super::Context;
use crate::{
    diagnostic::{Code, Diagnostic},
    source_map::annotation_behind,
};

pub(super) fn report(
    context: &Context<'_, '_>,
    view: &PodView<'_, '_>,
    problems: &[FieldError],
    findings: &mut Vec<Diagnostic>,
) {
    let mut reported: Vec<String> = Vec::new();
    for problem in problems {
        let text = problem.to_string();
        // Upstream reports some problems twice.
        if !reported.contains(&text) {
            findings.push(diagnostic(context, view, problem));
            reported.push(text);
        }
    }
    if view.spec().containers.is_empty() {
        let at = view.path(&["spec", "containers"]);
        findings.push(diagnostic(context, view, &FieldError::required(at, "")));
    }
}

fn diagnostic(context: &Context<'_, '_>, view: &PodView<'_, '_>, problem: &FieldError) -> Diagnostic {
    let place = context.place(&problem.at, view);
    let label = match &place.missing {
        Some(missing) => format!("no {missing} here"),
        None if problem.detail.is_empty() => problem.kind.text().to_owned(),
        None => problem.detail.clone().into_owned(),
    };
    let code = code(&problem.at, &problem.detail);
    let mut diagnostic = Diagnostic::error(Code::of(code), context.file, problem.to_string())
        .at(context.source.label(place.span, label))
        .because(format!(
            "an API server of {} rejects this {}",
            context.settings.compat.api, context.workload.kind
        ));
    if let Some(annotation) = place.annotation {
        diagnostic = diagnostic.because(format!("it copies the annotation {annotation} into the field"));
    }
    diagnostic.path = Some(problem.at.to_string());
    diagnostic.container = container_of(&problem.at, view);
    if code == "profile/conflict" {
        let key = annotation_behind(&problem.at, view);
        diagnostic.annotation = key.map(|key| view.annotation_path(&key));
        diagnostic.help = Some(match &diagnostic.annotation {
            Some(annotation) => {
                format!("keep the one that is right and remove the other: this field, or {annotation}")
            }
            None => "keep the one that is right and remove the other".to_owned(),
        });
    }
    if code == "profile/seccomp-type" {
        diagnostic.help = match problem.shown_value(KubeVersion::LATEST).as_deref() {
            Some("\"ConfigMap\"") => Some(extension("profiles from ConfigMaps", "SeccompConfigMaps")),
            Some("\"OCI\"") => Some(extension("profiles from registries", "SecurityProfileOCIArtifact")),
            _ => diagnostic.help,
        };
    }
    diagnostic
}

fn extension(what: &str, gate: &str) -> String {
    format!(
        "{what} are one of Palisade's extensions: check with --kubernetes-version extended --feature-gates {gate}=true"
    )
}

fn code(at: &FieldPath, detail: &str) -> &'static str {
    let has =
        |name: &str| at.steps().iter().any(|step| matches!(step, PathStep::Field(field) if field == name));
    let last = match at.steps().last() {
        Some(PathStep::Field(field)) => &**field,
        _ => "",
    };
    if detail.ends_with("in annotation and field must match") {
        "profile/conflict"
    } else if has("annotations") {
        "profile/annotation"
    } else if detail.ends_with("for a windows pod") || detail.ends_with("for a linux pod") {
        "api/invalid"
    } else if has("seccompProfile") {
        if last == "type" { "profile/seccomp-type" } else { "profile/seccomp-file" }
    } else if has("appArmorProfile") {
        if last == "type" { "profile/apparmor-type" } else { "profile/apparmor-name" }
    } else {
        "api/invalid"
    }
}

fn container_of(at: &FieldPath, view: &PodView<'_, '_>) -> Option<String> {
    view.containers()
        .find(|container| container.path(view).contains(at))
        .map(|container| container.name().to_owned())
}
