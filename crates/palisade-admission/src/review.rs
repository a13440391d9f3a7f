//! What an API server does with a pod or workload before admission plugins see it.
//!
//! Implements: the pod strategy of Kubernetes as far as security goes: gated fields, annotation and field sync,
//! validation, warnings; create, update and ephemeral containers.

use palisade_base::field_error::FieldError;
use palisade_model::{
    change::Change,
    compat::Compat,
    json::from_value,
    pod::{Pod, PodSpec},
    prepare::{Prepared, Subject},
    validation::{
        immutable_spec_changes, validate_create, validate_ephemeral_containers_update, validate_update,
    },
    warnings::warnings,
    workload::{WorkloadKind, read_template},
};
use serde_json::Value;

/// What the API server makes of a written object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reviewed<'a> {
    /// What to write into the object.
    pub changes: Vec<Change>,
    /// Why to refuse it; none: it is valid.
    pub problems: Vec<FieldError>,
    /// Warnings for the user, also when the object is refused.
    pub warnings: Vec<String>,
    /// The pod or template as it would be stored; none if the workload has no template.
    pub pod: Option<Prepared<'a>>,
}

/// Reviews a new pod or a written workload.
pub fn review_create<'a>(
    object: &'a Value,
    kind: &WorkloadKind,
    compat: &Compat,
) -> Result<Reviewed<'a>, serde_json::Error> {
    let Some(pod) = read_template(object, kind.path)? else { return Ok(Reviewed::default()) };
    let pod = Prepared::new(pod, kind.subject(), compat);
    let problems = validate_create(&pod);
    let mut notices = pod.warnings().to_vec();
    if problems.is_empty() {
        notices.extend(warnings(&pod));
    }
    Ok(Reviewed { changes: pod.changes().to_vec(), problems, warnings: notices, pod: Some(pod) })
}

/// Reviews the new version of a pod.
pub fn review_update<'a>(
    new: &'a Value,
    old: &'a Value,
    compat: &Compat,
) -> Result<Reviewed<'a>, serde_json::Error> {
    let (pod, old_pod) = versions(new, old, compat)?;
    let problems = validate_update(&pod, &old_pod, &immutable_spec_changes(new, old));
    Ok(Reviewed { changes: pod.changes().to_vec(), problems, warnings: Vec::new(), pod: Some(pod) })
}

/// Reviews a write to the `ephemeralcontainers` subresource; everything else in `new` must be the stored pod's.
pub fn review_ephemeral_containers<'a>(
    new: &'a Value,
    old: &'a Value,
    compat: &Compat,
) -> Result<Reviewed<'a>, serde_json::Error> {
    let (pod, old_pod) = versions(new, old, compat)?;
    let problems = validate_ephemeral_containers_update(&pod, &old_pod);
    Ok(Reviewed { changes: pod.changes().to_vec(), problems, warnings: Vec::new(), pod: Some(pod) })
}

/// The new and the old version of a pod.
fn versions<'a>(
    new: &'a Value,
    old: &'a Value,
    compat: &Compat,
) -> Result<(Prepared<'a>, Prepared<'a>), serde_json::Error> {
    let old = from_value::<Pod<'_>>(old)?;
    let new = Prepared::changed(from_value(new)?, &old, Subject::Pod, compat);
    Ok((new, Prepared::stored(old, compat)))
}

/// Whether an update of a pod is of interest to policies. Implements: Pod Security Admission, "significant" updates: new images
/// and new containers, because an API server lets nothing else that policies look at change. Whether it does is not taken for
/// granted here: any change of what is judged is significant.
#[must_use]
pub fn is_significant_update(new: &Prepared<'_>, old: &Prepared<'_>) -> bool {
    fn rest<'a>(spec: &PodSpec<'a>) -> PodSpec<'a> {
        PodSpec { ephemeral_containers: Vec::new(), ..spec.clone() }
    }
    let (new, old) = (new.spec(), old.spec());
    if new == old {
        return false;
    }
    // One ephemeral container less is not more than there was.
    let fewer = new.ephemeral_containers.iter().all(|container| old.ephemeral_containers.contains(container));
    !fewer || rest(new) != rest(old)
}
