//! Gives every new namespace its user ids, group ids and SELinux level.
//!
//! Implements: OpenShift's namespace SCC allocation controller. Acts only on namespaces without a uid range.

pub mod apply;
pub mod plan;
