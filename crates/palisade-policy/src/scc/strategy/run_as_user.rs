//! Which user a container runs as.
//!
//! Implements: `runAsUser` with the types `MustRunAs`, `MustRunAsRange`, `MustRunAsNonRoot` and `RunAsAny`.

use palisade_base::field_error::FieldError;

use super::{Place, StrategyError};
use crate::scc::{constraint::RunAsUser, namespace_ranges::NamespaceRanges, provider::ProviderErrorKind};

/// The strategy, with what the namespace had to add.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// One user.
    MustRunAs(i64),
    /// Users of a range, both ends included.
    MustRunAsRange(i64, i64),
    /// Anyone but root.
    MustRunAsNonRoot,
    /// Anyone.
    RunAsAny,
}

impl Strategy {
    /// The strategy of a constraint in a namespace.
    pub fn new(options: &RunAsUser, namespace: &NamespaceRanges<'_>) -> Result<Self, ProviderErrorKind> {
        Ok(match options.kind.as_str() {
            "MustRunAs" => Self::MustRunAs(options.uid.ok_or(StrategyError::UidMissing)?),
            "MustRunAsRange" => match (options.uid_range_min, options.uid_range_max) {
                (None, None) => {
                    let block = namespace.uid_range().map_err(ProviderErrorKind::Uid)?.to_range();
                    Self::MustRunAsRange(block.min, block.max)
                }
                (None, Some(_)) => return Err(StrategyError::UidRangeMinMissing.into()),
                (Some(_), None) => return Err(StrategyError::UidRangeMaxMissing.into()),
                (Some(min), Some(max)) => Self::MustRunAsRange(min, max),
            },
            "MustRunAsNonRoot" => Self::MustRunAsNonRoot,
            "RunAsAny" => Self::RunAsAny,
            kind => {
                return Err(StrategyError::Unrecognized { area: "RunAsUser", kind: kind.to_owned() }.into());
            }
        })
    }

    /// The user for a container that leaves it open.
    #[must_use]
    pub const fn assign(self) -> Option<i64> {
        match self {
            Self::MustRunAs(uid) | Self::MustRunAsRange(uid, _) => Some(uid),
            Self::MustRunAsNonRoot | Self::RunAsAny => None,
        }
    }

    /// Whether a container without a user must not run as root.
    #[must_use]
    pub const fn assign_non_root(self, user: Option<i64>) -> bool {
        match user {
            Some(uid) => uid > 0,
            None => matches!(self, Self::MustRunAsNonRoot),
        }
    }

    /// What is wrong with the effective values of a container.
    pub(in crate::scc) fn validate(
        self,
        place: Place<'_>,
        user: Option<i64>,
        non_root: Option<bool>,
        problems: &mut Vec<FieldError>,
    ) {
        let invalid = |uid: i64, detail: String| place.invalid(&["runAsUser"], uid, detail);
        problems.extend(match (self, user) {
            (Self::RunAsAny, _) => None,
            (Self::MustRunAsNonRoot, user) => match (non_root, user) {
                (None, None) => Some(place.required(&["runAsNonRoot"], "must be true")),
                (Some(false), _) => Some(place.invalid(&["runAsNonRoot"], false, "must be true")),
                (_, Some(0)) => Some(invalid(0, "running with the root UID is forbidden".to_owned())),
                _ => None,
            },
            (Self::MustRunAs(_) | Self::MustRunAsRange(..), None) => Some(place.required(&["runAsUser"], "")),
            (Self::MustRunAs(uid), Some(user)) => {
                (user != uid).then(|| invalid(user, format!("must be: {uid}")))
            }
            (Self::MustRunAsRange(min, max), Some(user)) => (user < min || user > max)
                .then(|| invalid(user, format!("must be in the ranges: [{min}, {max}]"))),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{Place, Strategy};

    #[test]
    fn assigns_and_refuses() {
        use Strategy::{MustRunAs, MustRunAsNonRoot, MustRunAsRange, RunAsAny};
        let range = MustRunAsRange(5, 7);
        for (strategy, user, non_root, expected) in [
            (MustRunAs(5), Some(5), None, ""),
            (
                MustRunAs(5),
                Some(6),
                None,
                "provider x: .spec.securityContext.runAsUser: Invalid value: 6: must be: 5",
            ),
            (MustRunAs(5), None, None, "provider x: .spec.securityContext.runAsUser: Required value"),
            (range, Some(7), None, ""),
            (
                range,
                Some(8),
                None,
                "provider x: .spec.securityContext.runAsUser: Invalid value: 8: must be in the ranges: [5, 7]",
            ),
            (MustRunAsNonRoot, Some(1), None, ""),
            (MustRunAsNonRoot, None, Some(true), ""),
            (
                MustRunAsNonRoot,
                None,
                None,
                "provider x: .spec.securityContext.runAsNonRoot: Required value: must be true",
            ),
            (
                MustRunAsNonRoot,
                Some(0),
                Some(false),
                "provider x: .spec.securityContext.runAsNonRoot: Invalid value: false: must be true",
            ),
            (
                MustRunAsNonRoot,
                Some(0),
                Some(true),
                "provider x: .spec.securityContext.runAsUser: Invalid value: 0: running with the root UID is forbidden",
            ),
            (RunAsAny, Some(0), Some(false), ""),
        ] {
            let mut problems = Vec::new();
            strategy.validate(Place::pod("x"), user, non_root, &mut problems);
            let messages: Vec<_> = problems.iter().map(ToString::to_string).collect();
            assert_eq!(messages.join(";"), expected, "{strategy:?} {user:?} {non_root:?}");
        }
        assert_eq!((range.assign(), MustRunAsNonRoot.assign()), (Some(5), None));
        assert!(MustRunAsNonRoot.assign_non_root(None) && RunAsAny.assign_non_root(Some(1)));
        assert!(!RunAsAny.assign_non_root(None) && !MustRunAsNonRoot.assign_non_root(Some(0)));
    }
}
