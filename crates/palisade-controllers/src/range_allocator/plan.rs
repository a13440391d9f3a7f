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
    let mut allocator = Allocator::default();
    let mut without = Vec::new();
    for namespace in cluster.namespaces() {
        match namespace.annotations().get(UID_RANGE) {
            Some(range) => allocator.reserve(range),
            None if namespace.is_terminating() => {}
            None => without.push(namespace.name()),
        }
    }
    without.into_iter().map_while(|name| Some((name, allocator.allocate()?))).collect()
}
