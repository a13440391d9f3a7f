//! Requests come in here, and what is no request is turned away.

mod body;
mod connection;
mod routes;
mod timeout;

pub use connection::{Drain, serve_plain, serve_tls};
pub use routes::Routes;
