//! Which group owns the volumes of a pod.
//!
//! Implements: `fsGroup`. Where a constraint leaves the ranges open, only the very first id of the namespace's
//! first block will do.

use palisade_base::field_error::FieldError;

use super::{Place, groups::Strategy};
use crate::scc::{
    constraint::{Groups, IdRange},
    namespace_ranges::NamespaceRanges,
    provider::ProviderErrorKind,
};

/// The strategy of a constraint in a namespace.
pub fn strategy<'s>(
    options: &'s Groups,
    namespace: &NamespaceRanges<'_>,
) -> Result<Strategy<'s>, ProviderErrorKind> {
    Strategy::new(options, "FSGroup", || {
        let blocks = namespace.supplemental_groups().map_err(ProviderErrorKind::Group)?;
        let first = blocks.first().map(|block| i64::from(block.start));
        Ok(first.map(|id| IdRange { min: id, max: id }).into_iter().collect())
    })
}

pub(in crate::scc) fn validate(
    strategy: &Strategy<'_>,
    place: Place<'_>,
    group: Option<i64>,
    problems: &mut Vec<FieldError>,
) {
    strategy.validate(place, "fsGroup", group.as_slice(), problems);
}
