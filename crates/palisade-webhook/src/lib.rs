//! Admission webhooks for real API servers.
//!
//! A TLS server for `AdmissionReview` v1. Verdicts are `palisade-admission`'s; here is what surrounds them: [`http`] takes
//! requests and turns bad ones away, [`facts`] keeps what verdicts depend on from watches and reads it directly while
//! they are cold, [`configuration`] follows the `PodSecurityConfiguration`, [`certificates`] keeps the authority and the
//! serving certificate that all replicas share, [`registration`] keeps the API server's webhook configurations,
//! [`fail_fast`] tries the pods of workloads, [`instance`] reports what this replica enforces, [`metrics`] counts. [`webhook`] puts them together.
//!
//! Everything goes on with its caches while the API server is away. What is not known is refused, never guessed.

pub mod answer;
pub mod calls;
pub mod certificates;
pub mod configuration;
pub mod facts;
pub mod fail_fast;
pub mod http;
pub mod instance;
pub mod metrics;
pub mod options;
pub mod registration;
mod shared;
pub mod webhook;

pub use options::Options;
pub use webhook::{StartError, Webhook};
