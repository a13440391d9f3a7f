//! The status of `SyscallGuard` objects: whether each can be applied, and which containers of the cluster it does not cover.
//!
//! Nodes prove from the kernel which of their containers are covered, and list the others in their report; here the reports are put
//! together. A guard that cannot be read is not accepted, one whose end has come is expired, and both are in the status. A node that has
//! not reported about the present version of a guard is one on which nothing is known.

pub mod apply;
pub mod plan;

pub use apply::{NAME, run};
