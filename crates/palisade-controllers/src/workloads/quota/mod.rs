//! ResourceQuotas: what a namespace uses.
//!
//! Implements: Resource Quotas, <https://kubernetes.io/docs/concepts/policy/resource-quotas/>. Whether a request may use more is decided
//! by admission, and not here.

mod apply;
pub mod plan;

pub use self::apply::run;
