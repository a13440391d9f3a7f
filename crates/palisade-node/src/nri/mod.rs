//! The Node Resource Interface of container runtimes: a plugin that adjusts containers while they are created.
//!
//! Implements: NRI v1alpha1 (`nri.pkg.api.v1alpha1`) as far as a plugin needs it that adjusts seccomp policies: registration,
//! configuration, synchronization and `CreateContainer`. containerd has it since 2.2 and CRI-O since 1.34. Two ttrpc connections, one
//! for each direction, share a Unix socket ([`frame`]).
//!
//! | module | job |
//! | --- | --- |
//! | [`frame`] | framing of both layers (pure) |
//! | [`proto`] | messages |
//! | [`plugin`] | the connection to a runtime |

pub mod frame;
pub mod plugin;
pub mod proto;
