//! An embedded Kubernetes API server: storage, watch, REST, authentication, authorisation.
//!
//! Implements: Kubernetes API Concepts. <https://kubernetes.io/docs/reference/using-api/api-concepts/>
//!
//! ```text
//!  connection ─► api (who? may they?) ─► dispatch ─► verbs ─► admission_chain ─► strategy ─► storage ─► watch
//! ```
//!
//! | module | answers |
//! | --- | --- |
//! | [`server`] | starting it, and what clients need to connect |
//! | [`api`], `dispatch` | the way of a request |
//! | [`http`] | bytes, TLS, negotiation, headers |
//! | [`auth`] | authentication and authorization |
//! | [`verbs`], `subresources` | the verbs of the API |
//! | [`admission_chain`], [`plugins`], [`admission_policies`], [`webhooks`] | admission |
//! | [`log_source`], [`stream_source`] | where the logs of pods and the streams into them come from |
//! | [`streaming`] | `exec`, `attach`, `portforward` |
//! | [`storage`] | objects, revisions, logs |
//! | `conversion` | versions of custom resources |
//! | `services` | addresses and ports of Services |
//! | [`openshift`] | what OpenShift adds |
//! | `controllers` | garbage collection and other built-in controllers |
//!
//! What an object of a kind must look like is `palisade-apimachinery`'s, what a pod may do is
//! `palisade-policy`'s; this crate decides neither.

pub mod admission_chain;
pub mod admission_policies;
pub mod api;
pub mod audit;
pub mod auth;
mod certificates;
mod controllers;
mod conversion;
mod crd;
pub mod discovery;
mod dispatch;
mod events;
pub mod health;
pub mod http;
pub mod log_source;
pub mod meta;
pub mod metrics;
mod openapi;
mod openapi_proto;
pub mod openshift;
pub mod options;
pub mod plugins;
pub mod pod_security;
pub mod private_file;
pub mod registry;
pub mod render;
mod router;
pub mod selection;
pub mod server;
mod services;
mod set_aside;
pub mod storage;
mod strategy;
pub mod stream_source;
pub mod streaming;
mod subresources;
mod system_objects;
pub mod verbs;
pub mod webhooks;
mod yaml;

pub use router::Router;
pub use server::{Builder, Server, StartError};
pub use storage::Store;

/// The server as a service in this process, over a store: what tests of controllers need.
///
/// ```no_run
/// let router = palisade_apiserver::router(palisade_apiserver::Store::in_memory())?;
/// // let client = kube::Client::new(router, "default");
/// # Ok::<(), palisade_apiserver::StartError>(())
/// ```
pub fn router(store: Store) -> Result<Router, StartError> {
    Builder::default().store(store).router()
}
