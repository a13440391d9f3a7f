//! Black-box tests of the API server.

mod bad_input;
mod conformance;
mod crash;
mod in_process;
mod kubectl;
mod storage;
mod support;
mod watchers;
