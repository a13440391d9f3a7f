//! Endpoints and EndpointSlices: the addresses of the pods that a Service selects.
//!
//! Implements: EndpointSlices, <https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/>, with the mirroring of Endpoints
//! that users write.
//!
//! | module | is about |
//! | --- | --- |
//! | [`plan`] | what a Service has: endpoints, addresses, ports |
//! | [`slices`] | which slices to write, so that few change |

mod apply;
pub mod plan;
pub mod slices;

pub use self::apply::{run_endpoints, run_mirroring, run_slices};
