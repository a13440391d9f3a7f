//! What the Pod Security Standards forbid, as diagnostics.

use palisade_base::field_path::{FieldPath, PathStep};
use palisade_model::{pod_view::PodView, prepare::Prepared};
use palisade_policy::standards::{
    checks,
    evaluator::StandardsOutcome,
    finding::{Edit, Finding},
    fixes::{Advice, Effect, FixEdit, Situation, advice},
};

use super::{Context, words};
use crate::diagnostic::{Code, Diagnostic};

pub(super) fn report(
    context: &Context<'_, '_>,
    pod: &Prepared<'_>,
    outcome: &StandardsOutcome,
    findings: &mut Vec<Diagnostic>,
) {
    for violation in &outcome.violations {
        for finding in &violation.findings {
            findings.push(diagnostic(context, pod, violation.check, finding));
        }
    }
}

fn diagnostic(context: &Context<'_, '_>, pod: &Prepared<'_>, check: &str, finding: &Finding) -> Diagnostic {
    let settings = context.settings;
    let view = &pod.view();
    let origin = pod.projected_from(&finding.path);
    let path = origin.as_ref().unwrap_or(&finding.path);
    let place = context.place(path, view);
    let rule = checks::check(check);
    let level = rule.map_or(context.policy.level, |rule| rule.level);
    let text = match (&place.missing, finding.value.is_some()) {
        (Some(missing), false) => format!("no {missing} here; {level} requires {}", finding.allowed),
        // A value that is not in the file comes from a default.
        _ => format!("{level} allows {}", finding.allowed),
    };
    let mut diagnostic = Diagnostic::error(Code::standard(check), context.file, finding.summary.clone())
        .at(context.source.label(place.span, text));
    if let Some(rule) = rule {
        let version = context.policy.version.clamp(settings.evaluator.newest());
        let level = capitalised(rule.level.as_str());
        diagnostic = diagnostic.because(format!(
            "Pod Security Standards v1.{version}, {level}, \"{}\": {}",
            rule.title, rule.why
        ));
    }
    if let Some(annotation) = place.annotation {
        diagnostic =
            diagnostic.because(format!("an API server copies the annotation {annotation} into the field"));
    }
    if let Some(origin) = &origin {
        diagnostic = diagnostic.because(format!("{origin} applies to {}", finding.path));
    }
    diagnostic.path = Some(path.to_string());
    diagnostic.container.clone_from(&finding.container);
    diagnostic.containers = without_value(finding, view);
    diagnostic.value.clone_from(&finding.value);
    let version = context.policy.version.clamp(settings.evaluator.newest());
    let users = |image: &str| settings.images.user(image);
    let situation = Situation {
        policy_minor: version,
        keeps_host_users: settings.compat.keeps_host_users(),
        users: &users,
    };
    match advice(check, finding, view, &situation) {
        Advice::Edits(_) if check == "privileged" && propagates_to_node(context, &finding.path) => {
            diagnostic.help = Some(format!("no automatic fix: {PROPAGATES}"));
        }
        Advice::Edits(mut fix) => {
            clear_union(context, &mut fix);
            let words = words::Words { object: context.object, view, value: finding.value.as_deref() };
            let edits: Vec<Edit> = fix.iter().map(|step| step.edit.clone()).collect();
            diagnostic.help = Some(words.edits(&edits));
            diagnostic.fix = Some(fix);
        }
        Advice::Manual(reason) => diagnostic.help = Some(format!("no automatic fix: {reason}")),
    }
    diagnostic
}

/// The containers without a value of their own for a field that the pod does not have either.
fn without_value(finding: &Finding, view: &PodView<'_, '_>) -> Vec<String> {
    if finding.value.is_some() || finding.container.is_some() {
        return Vec::new();
    }
    let is_about = |name: &str| {
        finding.path.steps().iter().any(|step| matches!(step, PathStep::Field(field) if field == name))
    };
    let (non_root, seccomp) = (is_about("runAsNonRoot"), is_about("seccompProfile"));
    let silent = view.containers().filter(|container| {
        container.security_context().is_none_or(|own| {
            (non_root && own.run_as_non_root.is_none()) || (seccomp && own.seccomp_profile.is_none())
        })
    });
    if non_root || seccomp {
        silent.map(|container| container.name().to_owned()).collect()
    } else {
        Vec::new()
    }
}

const PROPAGATES: &str = "it has a volume with mountPropagation: Bidirectional, which API servers accept in privileged containers alone";

/// Whether the container of a path mounts into the node, which only a privileged one may.
fn propagates_to_node(context: &Context<'_, '_>, path: &FieldPath) -> bool {
    // `<container>.securityContext.privileged`
    let Some(container) = path.parent().and_then(|path| path.parent()) else { return false };
    let mounts = (0..).map(|index| container.clone().field("volumeMounts").index(index));
    mounts.take_while(|mount| context.object.find(mount).is_some()).any(|mount| {
        context
            .object
            .text(&mount.field("mountPropagation"))
            .is_some_and(|(_, value)| value == "Bidirectional")
    })
}

/// A profile of another type must not keep the reference to a ConfigMap or a registry, which a release does not even see.
fn clear_union(context: &Context<'_, '_>, fix: &mut Vec<FixEdit>) {
    let stale: Vec<FixEdit> = fix
        .iter()
        .filter_map(|step| match &step.edit {
            Edit::Set(path, _) if path.to_string().ends_with("seccompProfile.type") => path.parent(),
            _ => None,
        })
        .flat_map(|profile| ["configMapProfile", "oci"].map(|field| profile.clone().field(field)))
        .filter(|path| context.object.find(path).is_some())
        .map(|path| FixEdit {
            edit: Edit::Remove(path),
            effect: Effect::Safe("nothing reads the reference of another profile type".into()),
        })
        .collect();
    fix.extend(stale);
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
