//! Which further groups the processes of a pod belong to.
//!
//! Implements: `supplementalGroups`. Where a constraint leaves the ranges open, all blocks of the namespace will do.

use palisade_base::field_error::FieldError;

use super::{Place, groups::Strategy};
use crate::scc::{
    constraint::Groups,
    namespace_ranges::{Block, NamespaceRanges},
    provider::ProviderErrorKind,
};

/// The strategy of a constraint in a namespace.
pub fn strategy<'s>(
    options: &'s Groups,
    namespace: &NamespaceRanges<'_>,
) -> Result<Strategy<'s>, ProviderErrorKind> {
    Strategy::new(options, "SupplementalGroups", || {
        let blocks = namespace.supplemental_groups().map_err(ProviderErrorKind::Group)?;
        Ok(blocks.into_iter().map(Block::to_range).collect())
    })
}

pub(in crate::scc) fn validate(
    strategy: &Strategy<'_>,
    place: Place<'_>,
    groups: &[i64],
    problems: &mut Vec<FieldError>,
) {
    strategy.validate(place, "supplementalGroups", groups, problems);
}
