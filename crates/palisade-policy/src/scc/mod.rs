//! OpenShift's security context constraints: what a pod may do depends on who runs it.
//!
//! [`constraint`] reads the objects, [`strategy`] holds one file for each area, [`evaluate`] lets one constraint assign
//! and validate, [`choose`] finds the constraint that admits a pod, [`to_standard`] returns which Pod Security level a
//! constraint implies. Where this differs from upstream on purpose, `docs/openshift-differences.md` lists it.

pub mod allocate;
pub mod audit;
pub mod built_in;
pub mod choose;
pub mod constraint;
pub mod decision;
pub mod evaluate;
pub mod grants;
pub mod mode;
pub mod namespace_ranges;
pub mod object;
pub mod order;
pub mod provider;
pub mod run_level;
pub mod set;
pub mod strategy;
pub mod to_standard;
pub mod update;
