//! The webhook from outside.
