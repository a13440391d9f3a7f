//! Black-box tests of the API server.
#![allow(clippy::expect_used, reason = "a test that cannot go on stops with its reason")]

mod admission_policies;
mod answers;
mod bad_input;
mod certificates;
mod conformance;
mod connections;
mod controllers;
mod conversion;
mod crash;
mod in_process;
mod kubectl;
mod kubelets;
mod limits;
mod logs;
mod namespace_labels;
mod openshift;
mod policies;
mod protobuf;
mod proxy;
mod python;
mod refusals;
mod rights;
mod services;
mod set_aside;
mod sizes;
mod slow_watches;
mod snapshots;
mod storage;
mod streaming;
mod support;
mod watchers;
mod webhooks;
