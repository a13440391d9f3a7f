//! A constraint made ready for one namespace.
//!
//! Implements: OpenShift's `CreateProviderFromConstraint`: the gaps of a constraint are filled from the namespace's
//! annotations, then its strategies must make sense.

use std::fmt;

use thiserror::Error;

use super::{
    constraint::Constraint,
    namespace_ranges::{NamespaceRanges, RangeError},
    strategy::{StrategyError, fs_group, groups, run_as_user, se_linux, supplemental_groups},
};

/// A constraint whose strategies are complete. Cheap to make: it borrows from the constraint.
#[derive(Debug, Clone)]
pub struct Provider<'s> {
    pub(super) constraint: &'s Constraint,
    pub(super) run_as_user: run_as_user::Strategy,
    pub(super) se_linux: se_linux::Strategy<'s>,
    pub(super) fs_group: groups::Strategy<'s>,
    pub(super) supplemental_groups: groups::Strategy<'s>,
}

/// Why a constraint is of no use in a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderError {
    /// The constraint.
    pub constraint: String,
    /// The namespace.
    pub namespace: String,
    /// What is missing or wrong.
    pub kind: ProviderErrorKind,
}

/// What is missing or wrong.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProviderErrorKind {
    /// The user ids of the namespace are needed and cannot be had.
    #[error(transparent)]
    Uid(RangeError),
    /// The SELinux level of the namespace is needed and cannot be had.
    #[error(transparent)]
    Mcs(RangeError),
    /// The group ids of the namespace are needed and cannot be had.
    #[error(transparent)]
    Group(RangeError),
    /// The constraint itself is incomplete.
    #[error(transparent)]
    Strategy(#[from] StrategyError),
}

impl std::error::Error for ProviderError {}

impl fmt::Display for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { constraint, namespace, kind } = self;
        let what = match kind {
            ProviderErrorKind::Uid(_) => "uid",
            ProviderErrorKind::Mcs(_) => "mcs",
            ProviderErrorKind::Group(_) => "group",
            ProviderErrorKind::Strategy(error) => {
                return write!(
                    f,
                    "error creating provider for SCC {constraint} in namespace {namespace}: {error}"
                );
            }
        };
        write!(
            f,
            "unable to find pre-allocated {what} annotation for namespace {namespace} while trying to configure \
             SCC {constraint}: {kind}"
        )
    }
}

impl<'s> Provider<'s> {
    /// Makes a constraint ready for a namespace.
    pub fn new(constraint: &'s Constraint, namespace: &NamespaceRanges<'s>) -> Result<Self, ProviderError> {
        let run_as_user = run_as_user::Strategy::new(&constraint.run_as_user, namespace);
        let se_linux = se_linux::Strategy::new(&constraint.se_linux_context, namespace);
        let fs_group = fs_group::strategy(&constraint.fs_group, namespace);
        let supplemental_groups = supplemental_groups::strategy(&constraint.supplemental_groups, namespace);
        let fail = |kind| ProviderError {
            constraint: constraint.name().to_owned(),
            namespace: namespace.name.to_owned(),
            kind,
        };
        // Upstream reads everything from the namespace before it looks at any strategy.
        let errors = [
            run_as_user.as_ref().err(),
            se_linux.as_ref().err(),
            fs_group.as_ref().err(),
            supplemental_groups.as_ref().err(),
        ];
        let of_namespace = |kind: &&ProviderErrorKind| !matches!(kind, ProviderErrorKind::Strategy(_));
        if let Some(kind) = errors.into_iter().flatten().find(of_namespace) {
            return Err(fail(kind.clone()));
        }
        Ok(Self {
            constraint,
            run_as_user: run_as_user.map_err(fail)?,
            se_linux: se_linux.map_err(fail)?,
            fs_group: fs_group.map_err(fail)?,
            supplemental_groups: supplemental_groups.map_err(fail)?,
        })
    }

    /// The constraint.
    #[must_use]
    pub const fn constraint(&self) -> &'s Constraint {
        self.constraint
    }
}

#[cfg(test)]
mod tests {
    use palisade_model::metadata::StringMap;
    use serde_json::json;

    use super::{Constraint, NamespaceRanges, Provider};

    #[test]
    fn the_namespace_is_read_before_any_strategy() {
        let namespace: StringMap<'_> =
            serde_json::from_str(r#"{"openshift.io/sa.scc.uid-range":"1/x","openshift.io/sa.scc.mcs":""}"#)
                .unwrap();
        let any = json!({"type": "RunAsAny"});
        for (run_as_user, se_linux, fs_group, expected) in [
            (
                json!({"type": "MustRunAs"}),
                json!({"type": "MustRunAs"}),
                any.clone(),
                "unable to find pre-allocated mcs annotation for namespace ns while trying to configure SCC c: \
                 found annotation openshift.io/sa.scc.mcs but it was empty",
            ),
            (
                json!({"type": "MustRunAsRange"}),
                any.clone(),
                any.clone(),
                "unable to find pre-allocated uid annotation for namespace ns while trying to configure SCC c: \
                 expected integer",
            ),
            (
                any.clone(),
                any.clone(),
                json!({"type": "MustRunAs"}),
                "unable to find pre-allocated group annotation for namespace ns while trying to configure SCC c: \
                 expected integer",
            ),
            (
                json!({"type": "MustRunAsRange", "uidRangeMin": 1}),
                json!({"type": "Some"}),
                any.clone(),
                "error creating provider for SCC c in namespace ns: MustRunAsRange requires a UIDRangeMax",
            ),
            (
                any.clone(),
                any.clone(),
                json!({"type": "MayRunAs"}),
                "error creating provider for SCC c in namespace ns: Unrecognized FSGroup strategy type MayRunAs",
            ),
        ] {
            let constraint = Constraint::read(&json!({
                "metadata": {"name": "c"}, "runAsUser": run_as_user, "seLinuxContext": se_linux,
                "fsGroup": fs_group, "supplementalGroups": any,
            }))
            .unwrap();
            let error = Provider::new(&constraint, &NamespaceRanges::new("ns", &namespace)).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }
}
