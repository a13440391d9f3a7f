//! Seccomp profiles in OCI registries: pulled by digest, and pushed.
//!
//! Implements: the OCI Distribution Specification v1.1, "Pulling manifests", "Pulling blobs" and "Pushing", the token
//! authentication of distribution, and `config.json` of Docker.
//! <https://github.com/opencontainers/distribution-spec/blob/main/spec.md>
//!
//! A registry is chosen by whoever writes a pod, so nothing that it sends is trusted: bodies are read within limits, content counts
//! only with the digest that was asked for, and credentials go to the registry that they are for. [`client`] has the
//! rules of redirects. What an artifact must be is `palisade_model::profile::artifact`'s.

pub mod client;
pub mod credentials;

mod challenge;
mod resolver;
mod transport;

pub use client::{Client, RegistryError};
pub use credentials::{Credentials, CredentialsError, Keyring};
pub use transport::{Transport, is_loopback};
