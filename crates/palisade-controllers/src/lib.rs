//! Controllers that keep a cluster in its declared state.
//!
//! The controllers of the rollout to enforced Pod Security Standards. Each has three parts:
//!
//! ```text
//!  watches ─► observe ─► cluster ─► <controller>::plan ─► <controller>::apply ─► API server
//!             bytes      what        pure                  can be killed
//!                        decides                           at any call
//! ```
//!
//! [`range_allocator`] gives namespaces their ranges, [`label_syncer`] their labels, [`readiness`] reports who would violate
//! and drives the state machine, [`config_observer`] writes the global configuration, which every [`instance`] applies
//! and reports. [`rejected_pods`] reports workloads whose pods are rejected,
//! [`reports`] what the standards find in each namespace. [`runner`] runs them, and others that are hosted, on the one process that leads ([`leader`]).
//! [`profile_publisher`] brings seccomp profiles from ConfigMaps to where nodes find them,
//! [`guards`] reports which containers system call guards do not cover, [`recordings`] makes profiles of what nodes recorded,
//! [`scheduler`] gives the pods of an embedded cluster their nodes, [`workloads`] makes the pods of ReplicaSets.

pub mod api;
mod backoff;
pub mod cluster;
pub mod config_observer;
pub mod context;
pub mod crds;
mod event_recorder;
pub mod guards;
pub mod instance;
pub mod label_syncer;
pub mod leader;
pub mod metrics;
pub mod observe;
pub mod profile_publisher;
pub mod range_allocator;
pub mod readiness;
pub mod recordings;
pub mod rejected_pods;
pub mod reports;
pub mod runner;
pub mod scheduler;
pub mod time;
pub mod workloads;
