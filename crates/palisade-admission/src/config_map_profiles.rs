//! Seccomp profiles in ConfigMaps, for a kubelet without support for them.
//!
//! Implements: the ConfigMap profile design on a stock cluster. A released API server refuses the profile type, and the
//! annotation value as well, so a reference is rewritten before it is validated: in a pod to `Localhost
//! palisade/<sha256>.json`, with where it came from in an annotation of ours; in a template, whose pods are made later, to
//! that annotation alone. Who writes the annotation of ours directly gets the same. A pod that states what its bytes hash
//! to is believed only if the ConfigMap still holds them, so that no profile passes for another. A published file cannot be named
//! without its source: what another namespace has published is out of reach. A policy of the namespace must allow such profiles, and
//! chooses what they are combined with on the node.

use std::collections::{BTreeMap, BTreeSet};

use palisade_base::{field_error::FieldError, field_path::FieldPath, go::Quoted};
use palisade_model::{
    change::{Change, NewValue},
    pod::Pod,
    pod_view::{ContainerKind, PodView},
    profile::{
        ProfileRef,
        artifact::SCHEME,
        baseline::{Baseline, in_published_folder, published_sha256},
        config_map::{ConfigMapProblem, Source},
        kind, published, seccomp,
    },
    security_context::ProfileField,
};

/// A level of a pod that refers to a profile in a ConfigMap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// Which container; `None` for the pod as a whole.
    container: Option<(ContainerKind, usize)>,
    legacy_key: String,
    source_key: String,
    /// Where the profile's field is.
    field: FieldPath,
    /// Where the reference was found.
    found: (FieldPath, String),
    /// What is referred to.
    pub source: Source,
}

/// Why a profile cannot be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The reference is wrong until the pod or the ConfigMap changes.
    Unusable(ConfigMapProblem),
    /// The API server could not be reached.
    Unavailable(String),
}

/// Profiles by ConfigMap and key: the SHA-256 of their bytes in hexadecimal, or why they cannot be had.
pub type Profiles = BTreeMap<(String, String), Result<String, Fault>>;

/// Why a pod is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// Something is wrong in it.
    Invalid(Vec<FieldError>),
    /// It could not be found out.
    Unavailable(String),
}

/// Every reference in a pod or template: the older annotations of Kubernetes before ours, the pod before its containers.
/// Ephemeral containers have no annotations.
#[must_use]
pub fn references(view: &PodView<'_, '_>) -> Vec<Reference> {
    let mut found = Vec::new();
    let mut look = |container, legacy_key: String, source_key: String, field: FieldPath| {
        let annotations = &view.metadata().annotations;
        let at = [&legacy_key, &source_key].into_iter().find_map(|key| {
            let value = annotations.get(key)?;
            Some((view.annotation_path(key), value.to_owned(), Source::parse(value)?))
        });
        if let Some((at, value, source)) = at {
            let found_at = (at, value);
            found.push(Reference { container, legacy_key, source_key, field, found: found_at, source });
        }
    };
    let pod_field = view.path(&["spec", "securityContext", "seccompProfile"]);
    look(None, seccomp::POD_ANNOTATION.to_owned(), published::POD_ANNOTATION.to_owned(), pod_field);
    for container in view.containers().filter(|container| container.kind != ContainerKind::Ephemeral) {
        let field = container.path(view).fields(&["securityContext", "seccompProfile"]);
        let legacy = seccomp::container_annotation(container.name());
        let own = published::container_annotation(container.name());
        look(Some((container.kind, container.index)), legacy, own, field);
    }
    found
}

/// Why a reference is refused where the feature is disabled.
pub const DISABLED: &str =
    "profiles from ConfigMaps are disabled: enable the feature gate SeccompConfigMaps of the webhook";

/// The problems of a pod or template that refers to profiles in ConfigMaps where the feature is disabled: it would run
/// without them.
#[must_use]
pub fn disabled(view: &PodView<'_, '_>) -> Vec<FieldError> {
    references(view).into_iter().map(|reference| reference.problem(DISABLED.to_owned())).collect()
}

/// Why a reference to a registry is refused beside a kubelet that cannot pull it.
const REGISTRY: &str = "profiles from registries need a node of Palisade (palisade up --node): put the profile into a ConfigMap, which palisade profile pull can fetch";

/// The problems of a pod or template that refers to a profile in a registry: nothing would pull it, and the pod would run without.
#[must_use]
pub fn of_registries(view: &PodView<'_, '_>) -> Vec<FieldError> {
    let annotations = &view.metadata().annotations;
    let is_ours = |key: &str| {
        seccomp::is_annotation(key)
            || key == published::POD_ANNOTATION
            || key.starts_with(published::CONTAINER_ANNOTATION_PREFIX)
    };
    let names_registry = |value: &str| {
        value.trim_start().get(..SCHEME.len()).is_some_and(|start| start.eq_ignore_ascii_case(SCHEME))
    };
    annotations
        .iter()
        .filter(|(key, value)| is_ours(key) && names_registry(value))
        .map(|(key, value)| FieldError::invalid(view.annotation_path(key), Quoted(value), REGISTRY))
        .collect()
}

/// Why a reference is refused in a namespace whose policies do not allow it.
pub const NOT_ALLOWED: &str = "no ProfilePolicy allows profiles from ConfigMaps in this namespace: list ConfigMap in allowedProfiles.types of one";

/// How many different profiles from ConfigMaps a pod may refer to: as many as are published for its whole namespace.
pub const MOST_PROFILES: usize = published::MOST_IN_NAMESPACE;

/// The problems of a pod or template that refers to profiles in ConfigMaps where no policy allows them.
#[must_use]
pub fn not_allowed(view: &PodView<'_, '_>) -> Vec<FieldError> {
    references(view).into_iter().map(|reference| reference.problem(NOT_ALLOWED.to_owned())).collect()
}

/// What the rewriting of a pod comes to; `baseline` is what its profiles are combined with, if policies allow them.
pub fn resolve(
    pod: &Pod<'_>,
    profiles: &Profiles,
    baseline: Option<&Baseline>,
) -> Result<Vec<Change>, Refused> {
    let view = PodView::of_pod(pod);
    let (mut changes, mut problems) = (Vec::new(), Vec::new());
    let found = references(&view);
    let Some(baseline) = baseline else {
        let problems = not_allowed(&view);
        return if problems.is_empty() { Ok(changes) } else { Err(Refused::Invalid(problems)) };
    };
    if let Some(first) = found.first() {
        let different: BTreeSet<_> =
            found.iter().map(|found| (&found.source.name, &found.source.key)).collect();
        if different.len() > MOST_PROFILES {
            let text =
                format!("refers to {} profiles in ConfigMaps, of at most {MOST_PROFILES}", different.len());
            return Err(Refused::Invalid(vec![first.problem(text)]));
        }
        changes.extend(baseline_change(&view, baseline));
    }
    for reference in found {
        let Source { name, key, hash: claimed } = &reference.source;
        let hash = match profiles.get(&(name.clone(), key.clone())) {
            Some(Ok(hash)) => hash,
            Some(Err(Fault::Unusable(problem))) => {
                problems.push(reference.problem(problem.to_string()));
                continue;
            }
            Some(Err(Fault::Unavailable(why))) => return Err(Refused::Unavailable(why.clone())),
            None => {
                return Err(Refused::Unavailable(format!("configmap/{name}/{key} was not looked up")));
            }
        };
        if claimed.as_ref().is_some_and(|claimed| claimed != hash) {
            let text = format!(
                "configmap/{name}/{key} holds other bytes now, sha256:{hash}: leave @sha256 out to run with them"
            );
            problems.push(reference.problem(text));
            continue;
        }
        match reference.field_in(pod) {
            Some(field) if !agrees(field, &published_sha256(hash, baseline), &reference.source) => {
                let at = reference.field.clone().field("type");
                problems.push(FieldError::forbidden(at, "seccomp type in annotation and field must match"));
            }
            _ => changes.extend(reference.changes(hash, baseline, &view)),
        }
    }
    if problems.is_empty() { Ok(changes) } else { Err(Refused::Invalid(problems)) }
}

/// The writes that make of a template's pod what [`resolve`] will make of it, without looking anything up: each reference
/// without a field gets one. `as_referred` keeps the reference, for policies, which judge what the user chose.
#[must_use]
pub fn assume_resolved(pod: &Pod<'_>, as_referred: bool) -> Vec<Change> {
    /// Which bytes the ConfigMap will hold then is not known now.
    const LATER: &str = "later";
    references(&PodView::of_pod(pod))
        .into_iter()
        .filter(|reference| reference.field_in(pod).is_none())
        .map(|reference| {
            let referred = reference.source.reference().to_field();
            let to = if as_referred { referred } else { localhost(LATER) };
            Change { at: reference.field, to: NewValue::Profile(to) }
        })
        .collect()
}

/// The writes that give a pod back what was rewritten in it when it was created: applying the manifest again writes the
/// reference to the ConfigMap again, which API servers that still look at these annotations refuse.
#[must_use]
pub fn rewrite_again(pod: &Pod<'_>, stored: &Pod<'_>) -> Vec<Change> {
    let view = PodView::of_pod(pod);
    let stored = &stored.metadata.annotations;
    let same = |a: &Source, b: &Source| a.name == b.name && a.key == b.key;
    references(&view)
        .into_iter()
        .filter(|reference| {
            let recorded = stored.get(&reference.source_key).and_then(Source::parse);
            view.metadata().annotations.get(&reference.legacy_key) == Some(reference.found.1.as_str())
                && recorded.is_some_and(|recorded| same(&recorded, &reference.source))
        })
        .filter_map(|reference| {
            let before = stored.get(&reference.legacy_key).filter(|value| Source::parse(value).is_none())?;
            let at = view.annotation_path(&reference.legacy_key);
            Some(Change { at, to: NewValue::Text(before.to_owned()) })
        })
        .collect()
}

/// The writes that make a default profile out of a ConfigMap usable; the field holds a reference already.
pub fn resolve_default(
    source: &Source,
    profiles: &Profiles,
    baseline: &Baseline,
    pod: &Pod<'_>,
) -> Result<Vec<Change>, Refused> {
    let Source { name, key, .. } = source;
    let at = FieldPath::of(&["spec", "securityContext", "seccompProfile"]);
    match profiles.get(&(name.clone(), key.clone())) {
        Some(Ok(hash)) => {
            let noted = Source { hash: Some(hash.clone()), ..source.clone() };
            let mut changes = vec![
                Change { at, to: NewValue::Profile(localhost(&published_sha256(hash, baseline))) },
                Change {
                    at: FieldPath::of(&["metadata", "annotations"]).key(published::POD_ANNOTATION),
                    to: NewValue::Text(noted.to_string()),
                },
            ];
            changes.extend(baseline_change(&PodView::of_pod(pod), baseline));
            Ok(changes)
        }
        Some(Err(Fault::Unusable(problem))) => Err(Refused::Invalid(vec![FieldError::invalid(
            at,
            Quoted(&format!("configmap/{name}/{key}")),
            problem.to_string(),
        )])),
        Some(Err(Fault::Unavailable(why))) => Err(Refused::Unavailable(why.clone())),
        None => Err(Refused::Unavailable(format!("configmap/{name}/{key} was not looked up"))),
    }
}

/// The write that notes on a pod what its profiles are combined with, where that is not the default of the runtime.
fn baseline_change(view: &PodView<'_, '_>, baseline: &Baseline) -> Option<Change> {
    let stated = view.metadata().annotations.get(published::BASELINE_ANNOTATION);
    let wanted = (!baseline.is_default()).then(|| baseline.to_string());
    let to = match wanted {
        Some(text) if stated != Some(text.as_str()) => NewValue::Text(text),
        None if stated.is_some() => NewValue::Removed,
        _ => return None,
    };
    Some(Change { at: view.annotation_path(published::BASELINE_ANNOTATION), to })
}

/// The writes that let an API server accept a template: the reference moves to an annotation that it does not interpret.
#[must_use]
pub fn move_in_template(view: &PodView<'_, '_>) -> Vec<Change> {
    let mut changes = Vec::new();
    for reference in references(view) {
        if view.metadata().annotations.get(&reference.legacy_key) != Some(reference.found.1.as_str()) {
            continue;
        }
        let own = view.annotation_path(&reference.source_key);
        changes.push(Change { at: own, to: NewValue::Text(reference.source.to_string()) });
        changes.push(Change { at: view.annotation_path(&reference.legacy_key), to: NewValue::Removed });
    }
    changes
}

/// Puts references back in the place of what they were rewritten to, so that policies judge what the user chose.
pub fn restore(pod: &mut Pod<'_>) {
    // One that cannot be read restores nothing: policies then judge the file.
    let Some(baseline) = stated_baseline(pod) else { return };
    for reference in references(&PodView::of_pod(pod)) {
        let Some(hash) = reference.source.hash.clone() else { continue };
        let hash = published_sha256(&hash, &baseline);
        if !reference.field_in(pod).is_some_and(|field| is_localhost(field, &hash)) {
            continue;
        }
        let original = reference.source.reference();
        if pod.metadata.annotations.contains(&reference.legacy_key) {
            pod.metadata.annotations.insert(reference.legacy_key.clone(), original.to_annotation());
        }
        let field = Some(original.to_field());
        match reference.container {
            None => pod.spec.security_context.get_or_insert_default().seccomp_profile = field,
            Some((kind, index)) => {
                let list = match kind {
                    ContainerKind::Init => &mut pod.spec.init_containers,
                    ContainerKind::App | ContainerKind::Ephemeral => &mut pod.spec.containers,
                };
                if let Some(container) = list.get_mut(index) {
                    container.security_context.get_or_insert_default().seccomp_profile = field;
                }
            }
        }
    }
}

/// What a pod states that its profiles are combined with; `None` if that cannot be read.
fn stated_baseline(pod: &Pod<'_>) -> Option<Baseline> {
    let stated = pod.metadata.annotations.get(published::BASELINE_ANNOTATION);
    stated.map_or_else(|| Some(Baseline::default()), Baseline::parse)
}

/// Every profile that a new pod was given out of a ConfigMap and that its annotations describe wrongly, and every published file that
/// it names without a source in its namespace. `baseline` is what policies require; without one they allow no such profiles.
#[must_use]
pub fn contradictions(pod: &Pod<'_>, baseline: Option<&Baseline>) -> Vec<FieldError> {
    let view = PodView::of_pod(pod);
    let Some(baseline) = baseline else {
        let mut problems = not_allowed(&view);
        problems.extend(published_files(&view).into_iter().map(PublishedFile::without_source));
        return problems;
    };
    let is_stated = stated_baseline(pod).as_ref() == Some(baseline);
    let (sourced, misdescribed): (Vec<_>, Vec<_>) = references(&view).into_iter().partition(|reference| {
        let name = reference.source.hash.as_ref().map(|hash| published_sha256(hash, baseline));
        let applies = |name: String| reference.field_in(pod).is_some_and(|field| is_localhost(field, &name));
        is_stated && name.is_some_and(applies)
    });
    let mut problems: Vec<FieldError> = misdescribed
        .iter()
        .map(|reference| {
            let text = "names a profile that the pod does not run with: it was not admitted with it";
            reference.problem(text.to_owned())
        })
        .collect();
    let named = published_files(&view).into_iter();
    problems.extend(
        named
            .filter(|file| !sourced.iter().any(|reference| reference.container == file.container))
            .map(PublishedFile::without_source),
    );
    problems
}

/// Every published file that a template names where it refers to no ConfigMap: its pods will be rejected.
#[must_use]
pub fn without_source(view: &PodView<'_, '_>) -> Vec<FieldError> {
    let references = references(view);
    let named = published_files(view).into_iter();
    named
        .filter(|file| !references.iter().any(|reference| reference.container == file.container))
        .map(PublishedFile::without_source)
        .collect()
}

/// Every published file that an ephemeral container names and the pod does not: what was decided when the pod was created is all
/// that can be used in it. Annotations do not count, because they can change.
#[must_use]
pub fn ephemeral_without_source(pod: &Pod<'_>) -> Vec<FieldError> {
    let is_ephemeral =
        |file: &PublishedFile| file.container.is_some_and(|(kind, _)| kind == ContainerKind::Ephemeral);
    let (ephemeral, created): (Vec<_>, Vec<_>) =
        published_files(&PodView::of_pod(pod)).into_iter().partition(is_ephemeral);
    ephemeral
        .into_iter()
        .filter(|file| !created.iter().any(|known| known.path == file.path))
        .map(PublishedFile::without_source)
        .collect()
}

/// A file in the folder of published profiles that a pod names, however its path is written.
struct PublishedFile {
    container: Option<(ContainerKind, usize)>,
    at: FieldPath,
    path: String,
}

impl PublishedFile {
    fn without_source(self) -> FieldError {
        let text = format!(
            "{:?} is a published profile: refer to the ConfigMap that it is from, with the annotation {}",
            self.path,
            published::POD_ANNOTATION
        );
        FieldError::forbidden(self.at, text)
    }
}

/// Every published file that a pod names, in fields and in the annotations that older API servers turn into fields.
fn published_files(view: &PodView<'_, '_>) -> Vec<PublishedFile> {
    let mut found = Vec::new();
    let mut look = |container, field: Option<&ProfileField<'_>>, at: FieldPath, annotation: &str| {
        let mut add = |at, path: &str| {
            if in_published_folder(path) {
                found.push(PublishedFile { container, at, path: path.to_owned() });
            }
        };
        if let Some(path) = field.and_then(|field| field.localhost_profile.as_deref()) {
            add(at.field("localhostProfile"), path);
        }
        if let Some(ProfileRef::Localhost(path)) =
            view.metadata().annotations.get(annotation).and_then(seccomp::from_annotation)
        {
            add(view.annotation_path(annotation), &path);
        }
    };
    let of_pod = view.security_context().and_then(|context| context.seccomp_profile.as_ref());
    look(None, of_pod, view.path(&["spec", "securityContext", "seccompProfile"]), seccomp::POD_ANNOTATION);
    for container in view.containers() {
        let field = container.security_context().and_then(|context| context.seccomp_profile.as_ref());
        let at = container.path(view).fields(&["securityContext", "seccompProfile"]);
        let annotation = seccomp::container_annotation(container.name());
        look(Some((container.kind, container.index)), field, at, &annotation);
    }
    found
}

impl Reference {
    fn problem(&self, text: String) -> FieldError {
        let (at, value) = &self.found;
        FieldError::invalid(at.clone(), Quoted(value), text)
    }

    fn field_in<'p, 'a>(&self, pod: &'p Pod<'a>) -> Option<&'p ProfileField<'a>> {
        match self.container {
            None => pod.spec.security_context.as_ref()?.seccomp_profile.as_ref(),
            Some((kind, index)) => {
                let view = PodView::of_pod(pod);
                let container = view.containers().find(|c| c.kind == kind && c.index == index)?;
                container.security_context()?.seccomp_profile.as_ref()
            }
        }
    }

    fn changes(&self, hash: &str, baseline: &Baseline, view: &PodView<'_, '_>) -> Vec<Change> {
        let name = published_sha256(hash, baseline);
        let path = published::published_name(&name);
        let mut changes = vec![Change { at: self.field.clone(), to: NewValue::Profile(localhost(&name)) }];
        if view.metadata().annotations.contains(&self.legacy_key) {
            // Field and annotation must agree, in every release.
            let value = ProfileRef::Localhost(path.into()).to_annotation();
            changes.push(Change { at: view.annotation_path(&self.legacy_key), to: NewValue::Text(value) });
        }
        let source = Source { hash: Some(hash.to_owned()), ..self.source.clone() };
        let at = view.annotation_path(&self.source_key);
        changes.push(Change { at, to: NewValue::Text(source.to_string()) });
        changes
    }
}

fn localhost(hash: &str) -> ProfileField<'static> {
    ProfileRef::Localhost(published::published_name(hash).into()).to_field()
}

fn is_localhost(field: &ProfileField<'_>, hash: &str) -> bool {
    field.kind.as_str() == kind::LOCALHOST
        && field.localhost_profile.as_deref() == Some(published::published_name(hash).as_str())
}

/// Whether a field agrees with its annotation: the rewritten form, or the same reference in the form of Palisade's extensions.
fn agrees(field: &ProfileField<'_>, published: &str, source: &Source) -> bool {
    is_localhost(field, published) || field.reference() == Some(source.reference())
}
