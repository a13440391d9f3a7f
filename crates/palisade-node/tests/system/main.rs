//! Real pods on a real containerd and a real kernel.
//!
//! Every test starts its own containerd with its own root, state and socket, and builds its images from the node's static
//! busybox. They need root and the packages containerd, runc and busybox-static.

mod images;
mod lab;
mod recordings;
mod smoke;
