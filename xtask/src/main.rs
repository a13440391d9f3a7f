//! Every chore of the project, in Rust.
fn main() {}
