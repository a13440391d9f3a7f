//! What do we answer to a request to admit a pod?
//!
//! Request and facts in, verdict out, and nothing else: no client, no clock. The embedded API server and the
//! webhook both ask here. [`review`] is the API server's own part (prepare, sync, validate, warn), [`pod_security`]
//! is Pod Security Admission, [`configuration`] its `PodSecurityConfiguration`, [`admission_review`] the protocol.

pub mod admission_review;
pub mod configuration;
pub mod pod_security;
pub mod review;
