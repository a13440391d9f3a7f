//! The level a namespace needs: what the constraints of its service accounts let through.
//!
//! Implements: the label syncer's inference. A constraint that no pod can be admitted by does not count, and is
//! reported; upstream gives up on the whole namespace then.

use crate::{
    scc::{
        constraint::Constraint,
        namespace_ranges::NamespaceRanges,
        provider::{Provider, ProviderError},
        to_standard::{Cause, ImplyError, ImplyErrorKind, proven_level},
    },
    standards::level::Level,
};

/// Where the level of a namespace comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum LevelSource {
    /// From what its workloads need, on any Kubernetes, see [`super::memory`].
    #[default]
    Workloads,
    /// From the constraints that its service accounts may use, where constraints are enforced.
    Constraints,
}

/// The level a namespace needs, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamespaceLevel {
    /// The level; `None` if no service account can use any constraint.
    pub level: Option<Level>,
    /// The constraints that keep it from being stricter, with what in them does.
    pub because: Vec<(String, Vec<Cause>)>,
    /// Constraints that cannot be used here.
    pub unusable: Vec<ProviderError>,
    /// Constraints of which a part could not be understood.
    pub unclear: Vec<ImplyError>,
}

/// Infers the level from the constraints that the service accounts of a namespace can use.
pub fn namespace_level<'c>(
    constraints: impl IntoIterator<Item = &'c Constraint>,
    namespace: &NamespaceRanges<'_>,
) -> NamespaceLevel {
    let mut found = NamespaceLevel::default();
    for constraint in constraints {
        if let Err(error) = Provider::new(constraint, namespace) {
            found.unusable.push(error);
            continue;
        }
        let implied = proven_level(constraint, namespace).or_else(|error| {
            let without = without_unknown_volumes(constraint, &error);
            found.unclear.push(error);
            proven_level(&without, namespace)
        });
        // swallowed: the constraint is in `unclear` already
        let Ok(implied) = implied else { continue };
        if found.level.is_none_or(|level| implied.level < level) {
            found.level = Some(implied.level);
            found.because.clear();
        }
        if found.level == Some(implied.level) && implied.level != Level::Restricted {
            let causes = implied.causes.into_iter().filter(|cause| cause.level == implied.level).collect();
            found.because.push((constraint.name().to_owned(), causes));
        }
    }
    found
}

/// An unknown volume type admits no volume.
fn without_unknown_volumes(constraint: &Constraint, error: &ImplyError) -> Constraint {
    let mut known = constraint.clone();
    if let (ImplyErrorKind::UnknownVolumes(unknown), Some(volumes)) = (&error.kind, &mut known.volumes) {
        volumes.retain(|volume| !unknown.contains(volume));
    }
    known
}

#[cfg(test)]
mod tests {
    use palisade_model::metadata::StringMap;
    use serde_json::json;

    use super::{Constraint, Level, NamespaceRanges, namespace_level};
    use crate::scc::built_in;

    #[test]
    fn the_most_privileged_constraint_decides() {
        let annotations: StringMap<'_> = serde_json::from_str(
            r#"{"openshift.io/sa.scc.uid-range":"1000650000/10000","openshift.io/sa.scc.mcs":"s0:c26,c5"}"#,
        )
        .unwrap();
        let namespace = NamespaceRanges::new("ns", &annotations);
        let all = built_in::constraints();
        let level = |names: &[&str]| {
            let found = namespace_level(names.iter().filter_map(|name| all.get(name)), &namespace);
            (found.level, found.because.into_iter().map(|(name, _)| name).collect::<Vec<_>>())
        };
        assert_eq!(level(&[]), (None, vec![]));
        assert_eq!(level(&["restricted-v2", "restricted-v3"]), (Some(Level::Restricted), vec![]));
        assert_eq!(
            level(&["restricted-v2", "nonroot", "anyuid"]),
            (Some(Level::Baseline), vec!["nonroot".to_owned(), "anyuid".to_owned()])
        );
        assert_eq!(
            level(&["anyuid", "privileged"]),
            (Some(Level::Privileged), vec!["privileged".to_owned()])
        );
    }

    #[test]
    fn unknown_levels_take_nothing_away() {
        let annotations: StringMap<'_> =
            serde_json::from_str(r#"{"openshift.io/sa.scc.uid-range":"1/2","openshift.io/sa.scc.mcs":"s0"}"#)
                .unwrap();
        let namespace = NamespaceRanges::new("ns", &annotations);
        let all = built_in::constraints();
        let mut odd = all.get("restricted-v2").unwrap().clone();
        odd.volumes =
            Some(vec!["secret".to_owned(), "floppy".to_owned(), "nfs".to_owned(), "tape".to_owned()]);
        let broken =
            Constraint::read(&json!({"metadata": {"name": "broken"}, "allowPrivilegedContainer": true}))
                .unwrap();
        let found = namespace_level([&odd, &broken], &namespace);
        assert_eq!(found.level, Some(Level::Baseline), "nfs is baseline");
        assert_eq!((found.unclear.len(), found.unusable.len()), (1, 1));
    }
}
