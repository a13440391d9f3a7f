//! Real pods on a real containerd and a real kernel.
//!
//! Every test starts its own containerd with its own root, state and socket, and builds its images from the node's static
//! busybox. They need root and the packages containerd, runc, busybox-static and containernetworking-plugins.

mod contexts;
mod failures;
mod images;
mod lab;
mod lifecycle;
mod profiles;
mod recordings;
mod resilience;
mod vm;
