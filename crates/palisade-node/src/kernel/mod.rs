//! The kernel: what it offers, and what it enforces on a process.
//!
//! Everything is read from `/proc`, `/sys` and securityfs or done through rustix' safe calls, but for those in
//! [`apparmor`], [`filters`], [`notify`], [`resident`] and [`seccomp`].

pub mod apparmor;
pub mod filters;
pub mod memfd;
pub mod notify;
pub mod probe;
pub mod process;
pub mod resident;
pub mod seccomp;
