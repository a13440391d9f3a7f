//! Which namespace gets which ranges.

use palisade_policy::scc::{
    allocate::{Allocator, Ranges},
    namespace_ranges::UID_RANGE,
};

use crate::cluster::Cluster;

/// The field manager of the annotations.
pub const MANAGER: &str = "cluster-policy-controller";

/// Namespaces without ranges and what they get, by name. The same cluster always gets the same answer.
#[must_use]
pub fn allocations(cluster: &Cluster) -> Vec<(&str, Ranges)> {
    if cluster.without_ranges().len() == 0 {
        return Vec::new();
    }
    let mut allocator = Allocator::default();
    for range in cluster.namespaces().filter_map(|namespace| namespace.annotations().get(UID_RANGE)) {
        allocator.reserve(range);
    }
    cluster.without_ranges().map_while(|name| Some((name, allocator.allocate()?))).collect()
}
