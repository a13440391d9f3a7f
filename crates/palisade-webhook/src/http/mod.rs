//! Requests of the API server.

mod routes;
mod timeout;

pub use routes::Routes;
