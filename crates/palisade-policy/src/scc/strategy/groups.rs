//! Which groups a pod may belong to: what `fsGroup` and `supplementalGroups` have in common.
//!
//! Implements: the group strategies `MustRunAs` and `RunAsAny`.

use std::borrow::Cow;

use palisade_base::field_error::FieldError;

use super::{Place, StrategyError};
use crate::scc::{
    constraint::{Groups, IdRange},
    provider::ProviderErrorKind,
};

/// The strategy, with what the namespace had to add.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Strategy<'s> {
    /// Groups of these ranges; never empty.
    MustRunAs(Cow<'s, [IdRange]>),
    /// Any group.
    RunAsAny,
}

impl<'s> Strategy<'s> {
    /// The strategy of a constraint; `from_namespace` gives the ranges the constraint leaves open.
    pub(super) fn new(
        options: &'s Groups,
        area: &'static str,
        from_namespace: impl FnOnce() -> Result<Vec<IdRange>, ProviderErrorKind>,
    ) -> Result<Self, ProviderErrorKind> {
        match options.kind.as_str() {
            "MustRunAs" if options.ranges.is_empty() => Ok(Self::MustRunAs(Cow::Owned(from_namespace()?))),
            "MustRunAs" => Ok(Self::MustRunAs(Cow::Borrowed(&options.ranges))),
            "RunAsAny" => Ok(Self::RunAsAny),
            kind => Err(StrategyError::Unrecognized { area, kind: kind.to_owned() }.into()),
        }
    }

    /// The group for a pod that leaves it open.
    #[must_use]
    pub fn assign(&self) -> Option<i64> {
        match self {
            Self::MustRunAs(ranges) => ranges.first().map(|range| range.min),
            Self::RunAsAny => None,
        }
    }

    /// What is wrong with the groups of a pod.
    pub(super) fn validate(
        &self,
        place: Place<'_>,
        field: &'static str,
        groups: &[i64],
        problems: &mut Vec<FieldError>,
    ) {
        let Self::MustRunAs(ranges) = self else { return };
        let invalid = |detail: String| place.invalid(&[field], go_slice(groups), detail);
        if groups.is_empty() {
            problems.push(invalid("unable to validate empty groups against required ranges".to_owned()));
        }
        for &group in groups {
            if !ranges.iter().any(|range| range.contains(group)) {
                problems.push(invalid(format!("{group} is not an allowed group")));
            }
        }
    }
}

/// Go's `%#v` of a slice of integers.
fn go_slice(groups: &[i64]) -> String {
    let list = groups.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    format!("[]int64{{{list}}}")
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::{IdRange, Place, Strategy};

    #[test]
    fn every_group_needs_a_range() {
        let strategy =
            Strategy::MustRunAs(Cow::Owned(vec![IdRange { min: 5, max: 7 }, IdRange { min: 10, max: 10 }]));
        let problems_of = |groups: &[i64]| -> Vec<String> {
            let mut problems = Vec::new();
            strategy.validate(Place::pod("x"), "supplementalGroups", groups, &mut problems);
            problems.iter().map(ToString::to_string).collect()
        };
        assert_eq!(problems_of(&[6, 10]), [""; 0]);
        let prefix = "provider x: .spec.securityContext.supplementalGroups: Invalid value: ";
        assert_eq!(problems_of(&[8, 7]), [format!("{prefix}[]int64{{8, 7}}: 8 is not an allowed group")]);
        assert_eq!(
            problems_of(&[]),
            [format!("{prefix}[]int64{{}}: unable to validate empty groups against required ranges")]
        );
        assert_eq!((strategy.assign(), Strategy::RunAsAny.assign()), (Some(5), None));
    }
}
