//! Writes what the standards find in each namespace as a report that other tools read, and as metrics.
//!
//! Implements: `Report` of OpenReports (`openreports.io/v1alpha1`) or, where the cluster has that one instead, `PolicyReport` of
//! the Policy Working Group (`wgpolicyk8s.io/v1alpha2`). <https://openreports.io>
//! Neither kind is installed here. The reports of a namespace end with the namespace; the metrics are there without any report.

pub mod apply;
pub mod kind;
pub mod observe;
pub mod plan;
