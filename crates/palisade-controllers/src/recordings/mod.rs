//! `ProfileRecording` objects: one profile of what the nodes have recorded, and the statement of what is missing.
//!
//! Each node writes what it recorded into a `NodeRecording` ([`palisade_model::profile_recording`]); here the parts are put together.
//! A recording is complete only if every pod that it selects and that ran while it did was recorded by its node, and every node has
//! reported the end: the pods that ran are watched here, because a node without a recorder reports nothing.
//!
//! The profile is written into a new ConfigMap: the controller writes over nothing, so that nobody can have it replace an object that
//! they may not write themselves.

pub mod apply;
pub mod plan;

pub use apply::{NAME, run};
