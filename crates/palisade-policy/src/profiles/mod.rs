//! Which seccomp and AppArmor profiles an administrator allows, and which one a pod gets that names none.
//!
//! Implements: "PodSecurityPolicy Enforcement" of the seccomp design, freed from PodSecurityPolicy: the same rules come
//! from a [`ProfilePolicy`](policy::ProfilePolicy), from `spec.seccomp` of a PodSecurityPolicy, or from its older
//! annotations. Annotations **and** fields are checked, because which of them counts depends on the node; only
//! fields are set.

pub mod pod_security_policy;
pub mod policy;
pub mod rules;
