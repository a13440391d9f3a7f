//! The node's API client, seen from the server.

mod api;
