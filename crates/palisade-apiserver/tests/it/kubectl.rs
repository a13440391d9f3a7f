//! Real kubectl against the server.
