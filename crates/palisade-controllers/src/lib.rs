//! What should the cluster look like?
//!
//! The controllers of the rollout to enforced Pod Security Standards. [`cluster`] holds what was observed, reduced to
//! what decides; each controller then plans in a pure function: [`range_allocator`], [`label_syncer`], [`readiness`],
//! [`config_observer`]. [`profile_publisher`] brings seccomp profiles from ConfigMaps to where nodes find them,
//! [`scheduler`] gives the pods of an embedded cluster their nodes.

pub mod cluster;
pub mod config_observer;
pub mod label_syncer;
pub mod profile_publisher;
pub mod range_allocator;
pub mod readiness;
pub mod scheduler;
