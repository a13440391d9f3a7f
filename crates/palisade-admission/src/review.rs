//! What an API server does with a pod or workload before admission plugins see it.
//!
//! Implements: the pod strategy of Kubernetes as far as security goes: gated fields, annotation and field sync,
//! validation, warnings; create, update and ephemeral containers.

use palisade_model::{
    change::Change,
    compat::Compat,
    json::from_value,
    lower::absorb,
    pod::Pod,
    pod_view::PodView,
    prepare::{Subject, prepare_for_create, prepare_for_update},
    problem::Problem,
    sync::sync,
    validation::{
        immutable_spec_changes, validate_create, validate_ephemeral_containers_update, validate_update,
    },
    warnings::{deprecated_annotations, warnings},
    workload::{WorkloadKind, read_template},
};
use serde_json::Value;

/// What the API server makes of a written object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reviewed<'a> {
    /// What to write into the object.
    pub changes: Vec<Change>,
    /// Why to refuse it; none: it is valid.
    pub problems: Vec<Problem>,
    /// What to tell the user, also when the object is refused.
    pub warnings: Vec<String>,
    /// The pod or template as it would be stored; none if the workload has no template.
    pub pod: Option<Pod<'a>>,
}

/// Reviews a new pod or a written workload.
pub fn review_create<'a>(
    object: &'a Value,
    kind: &WorkloadKind,
    compat: &Compat,
) -> Result<Reviewed<'a>, serde_json::Error> {
    let subject = kind.subject();
    let Some(mut pod) = read_template(object, kind.path)? else { return Ok(Reviewed::default()) };
    let mut changes = prepare_for_create(&mut pod, subject, compat);
    let mut told = Vec::new();
    if subject == Subject::Pod {
        // The designs still honour annotations; whoever writes them is to hear that they are on their way out.
        if compat.is_designs() {
            told.extend(deprecated_annotations(&subject.view(&pod), compat));
        }
        let synced = sync(&mut pod, compat);
        changes.extend(synced.changes);
        told.extend(synced.warnings);
    }
    let problems = validate_create(&subject.view(&pod), compat);
    if compat.is_designs() {
        absorb(&mut pod);
    }
    let view = subject.view(&pod);
    if problems.is_empty() {
        told.extend(warnings(&view, compat));
    }
    Ok(Reviewed { changes, problems, warnings: told, pod: Some(pod) })
}

/// Reviews the new version of a pod.
pub fn review_update<'a>(
    new: &'a Value,
    old: &'a Value,
    compat: &Compat,
) -> Result<Reviewed<'a>, serde_json::Error> {
    let mut pod = from_value::<Pod<'_>>(new)?;
    let mut old_pod = from_value::<Pod<'_>>(old)?;
    let changes = prepare_for_update(&mut pod, &old_pod.clone(), Subject::Pod, compat);
    prepare_for_create(&mut old_pod, Subject::Pod, compat);
    let spec_changes = immutable_spec_changes(new, old);
    let problems = validate_update(&pod, &old_pod, &spec_changes, compat);
    Ok(Reviewed { changes, problems, warnings: Vec::new(), pod: Some(pod) })
}

/// Reviews a write to the `ephemeralcontainers` subresource; everything else in `new` must be the stored pod's.
pub fn review_ephemeral_containers<'a>(
    new: &'a Value,
    old: &'a Value,
    compat: &Compat,
) -> Result<Reviewed<'a>, serde_json::Error> {
    let mut pod = from_value::<Pod<'_>>(new)?;
    let mut old_pod = from_value::<Pod<'_>>(old)?;
    let changes = prepare_for_update(&mut pod, &old_pod.clone(), Subject::Pod, compat);
    prepare_for_create(&mut old_pod, Subject::Pod, compat);
    let problems = validate_ephemeral_containers_update(&pod, &old_pod, compat);
    Ok(Reviewed { changes, problems, warnings: Vec::new(), pod: Some(pod) })
}

/// Whether an update of a pod is of interest to policies: new images or new containers. Implements: Pod Security
/// Admission, "significant" updates.
#[must_use]
pub fn is_significant_update(new: &Pod<'_>, old: &Pod<'_>) -> bool {
    let images_differ = |new: &[palisade_model::pod::Container<'_>],
                         old: &[palisade_model::pod::Container<'_>]| {
        new.len() != old.len() || new.iter().zip(old).any(|(new, old)| new.image != old.image)
    };
    images_differ(&new.spec.containers, &old.spec.containers)
        || images_differ(&new.spec.init_containers, &old.spec.init_containers)
        || new.spec.ephemeral_containers.iter().any(|container| {
            !old.spec
                .ephemeral_containers
                .iter()
                .any(|old| old.name == container.name && old.image == container.image)
        })
}

/// The view of a reviewed pod or template.
#[must_use]
pub const fn view_of<'p, 'a>(pod: &'p Pod<'a>, kind: &WorkloadKind) -> PodView<'p, 'a> {
    kind.subject().view(pod)
}
