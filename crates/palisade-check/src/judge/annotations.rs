//! Legacy annotations that have no effect on this version, or will soon have none.
//!
//! Facts: seccomp annotations became fields in v1.19, were copied into them when a pod was created up to v1.26, and
//! do nothing since v1.27. AppArmor annotations became fields in v1.30 and are still copied.

use palisade_base::field_path::FieldPath;
use palisade_model::{
    compat::SyncDirection,
    pod_view::PodView,
    prepare::Prepared,
    profile::{apparmor, seccomp},
    warnings::warnings,
};
use palisade_yaml::{NodeRef, View};

use super::Context;
use crate::diagnostic::{Code, Diagnostic};

const MIGRATE: &str = "`palisade migrate` rewrites it into the field";

/// `written` is the pod before an API server touches it.
pub(super) fn report(
    context: &Context<'_, '_>,
    node: NodeRef<'_>,
    written: &PodView<'_, '_>,
    findings: &mut Vec<Diagnostic>,
) {
    for (key, value) in written.metadata().annotations.iter() {
        let finding = if seccomp::is_annotation(key) {
            seccomp_annotation(context, written, key, value)
        } else if apparmor::is_annotation(key) {
            app_armor_annotation(context, written, key, value)
        } else {
            None
        };
        if let Some(finding) = finding {
            findings.push(place(context, finding, &written.annotation_path(key)));
        }
    }
    if !context.workload.path.is_empty() {
        misplaced(context, node, findings);
    }
}

fn place(context: &Context<'_, '_>, finding: Diagnostic, path: &FieldPath) -> Diagnostic {
    let span = context.object.place(path, None).span;
    let text = if finding.code.as_str() == "annotation/dead" { "no effect" } else { "deprecated" };
    Diagnostic { path: Some(path.to_string()), ..finding.at(context.source.label(span, text)) }
}

fn dead(context: &Context<'_, '_>, summary: String) -> Diagnostic {
    Diagnostic::warning(Code::of("annotation/dead"), context.file, summary)
}

fn seccomp_annotation(
    context: &Context<'_, '_>,
    view: &PodView<'_, '_>,
    key: &str,
    value: &str,
) -> Option<Diagnostic> {
    let api = context.settings.compat.api;
    let name = key.strip_prefix(seccomp::CONTAINER_ANNOTATION_PREFIX);
    let container = name.and_then(|name| view.container(name));
    if let (Some(name), None) = (name, container) {
        return Some(
            dead(context, format!("a seccomp annotation for container \"{name}\", which does not exist"))
                .help(format!("remove it, or correct the name; containers are {}", names(view))),
        );
    }
    let of_pod = view.security_context().and_then(|context| context.seccomp_profile.as_ref());
    let own = container.and_then(|c| c.security_context()).and_then(|c| c.seccomp_profile.as_ref());
    let field = if name.is_some() { own } else { of_pod };
    let who = match name {
        Some(name) => format!("container \"{name}\""),
        None => "the pod".to_owned(),
    };
    if context.settings.compat.seccomp_sync() == SyncDirection::None {
        let mut finding =
            dead(context, format!("the seccomp annotation \"{value}\" of {who} has no effect on {api}"));
        let really = match (field, of_pod) {
            (Some(field), _) => format!("the field applies: {}", field.kind),
            (None, Some(of_pod)) => format!("{who} runs with the pod's profile: {}", of_pod.kind),
            (None, None) if name.is_none() => {
                "containers without a profile of their own run Unconfined, unless the kubelet has --seccomp-default"
                    .to_owned()
            }
            (None, None) => format!("{who} runs Unconfined, unless the kubelet has --seccomp-default"),
        };
        finding = finding.because(format!("Kubernetes ignores seccomp annotations since v1.27; {really}"));
        finding.help = Some(match (field, seccomp::from_annotation(value)) {
            (Some(_), _) | (None, None) => "remove it".to_owned(),
            (None, Some(_)) => MIGRATE.to_owned(),
        });
        finding.container = name.map(str::to_owned);
        return Some(finding);
    }
    if field.is_some() {
        return None;
    }
    let finding = Diagnostic::warning(
        Code::of("annotation/deprecated"),
        context.file,
        format!("the seccomp annotation of {who} is deprecated since v1.19"),
    )
    .because(format!(
        "it is still copied into the field when a pod is created on {api}; v1.27 and later ignore it"
    ))
    .help(MIGRATE);
    Some(Diagnostic { container: name.map(str::to_owned), ..finding })
}

fn app_armor_annotation(
    context: &Context<'_, '_>,
    view: &PodView<'_, '_>,
    key: &str,
    value: &str,
) -> Option<Diagnostic> {
    let compat = &context.settings.compat;
    let name = key.strip_prefix(apparmor::ANNOTATION_PREFIX)?;
    // Validation reports an annotation for a container that does not exist.
    let container = view.container(name)?;
    let own = |finding: Diagnostic| Some(Diagnostic { container: Some(name.to_owned()), ..finding });
    if view.spec().is_windows() {
        return own(dead(context, format!("the AppArmor annotation of container \"{name}\" has no effect"))
            .because("Windows nodes have no AppArmor")
            .help("remove it"));
    }
    if value.is_empty() && !compat.is_designs() {
        return own(dead(
            context,
            format!("the empty AppArmor annotation of container \"{name}\" has no effect"),
        )
        .because(
            "an empty value names no profile: the container runs with the profile of the pod or of the runtime",
        )
        .help("remove it"));
    }
    let field = container.security_context().and_then(|context| context.app_armor_profile.as_ref());
    if !compat.has_app_armor_fields() || field.is_some() || apparmor::from_annotation(value).is_none() {
        return None;
    }
    own(Diagnostic::warning(
        Code::of("annotation/deprecated"),
        context.file,
        format!("the AppArmor annotation of container \"{name}\" is deprecated since v1.30"),
    )
    .because(format!("it is still copied into the field when a pod is created on {}", compat.api))
    .help(MIGRATE))
}

/// The annotations of a workload are not those of its pods: a frequent and silent mistake.
fn misplaced(context: &Context<'_, '_>, node: NodeRef<'_>, findings: &mut Vec<Diagnostic>) {
    let annotations = node.get("metadata").and_then(|metadata| metadata.get("annotations"));
    let Some(View::Mapping(entries)) = annotations.map(NodeRef::view) else { return };
    for entry in entries {
        if !(seccomp::is_annotation(&entry.key) || apparmor::is_annotation(&entry.key)) {
            continue;
        }
        let template = FieldPath::of(context.workload.path).fields(&["metadata", "annotations"]);
        let kind = context.workload.kind;
        let finding = dead(context, format!("{} on the {kind} itself has no effect", entry.key))
            .because(format!("only the annotations of the pod template apply, at {template}"))
            .help("set the profile as a field of the template's securityContext, and remove the annotation");
        let path = FieldPath::of(&["metadata", "annotations"]).key(entry.key);
        findings.push(place(context, finding, &path));
    }
}

/// What an API server warns of besides annotations: ports that are defined twice.
pub(super) fn ports(context: &Context<'_, '_>, pod: &Prepared<'_>, findings: &mut Vec<Diagnostic>) {
    let view = &pod.view();
    for warning in warnings(pod) {
        let Some((path, text)) =
            warning.split_once(": ").filter(|(_, text)| text.contains("port definition with"))
        else {
            continue;
        };
        let ports = view.containers().flat_map(|container| {
            let list = container.path(view).field("ports");
            (0..container.container.ports.len()).map(move |port| (list.clone().index(port), container.name()))
        });
        let Some((at, container)) = ports.into_iter().find(|(at, _)| at.to_string() == path) else {
            continue;
        };
        let span = context.object.place(&at, None).span;
        let mut finding = Diagnostic::warning(Code::of("api/ports"), context.file, warning.clone())
            .at(context.source.label(span, text.split(" with ").next().unwrap_or_default()))
            .because(format!("an API server of {} warns about it", context.settings.compat.api));
        finding.path = Some(at.to_string());
        finding.container = Some(container.to_owned());
        findings.push(finding);
    }
}

fn names(view: &PodView<'_, '_>) -> String {
    view.containers().map(|container| container.name()).collect::<Vec<_>>().join(", ")
}
