//! The first thing a newcomer sees: the example manifests, checked and explained.

use std::process::Command;

use crate::{
    Failure,
    process::{cargo, run},
    root, setup,
};

/// Checks and explains the bundled example manifests.
pub(crate) fn run_demo() -> Result<(), Failure> {
    setup::need_compiler()?;
    run(&mut cargo(&["build", "--quiet", "--bin", "palisade"]))?;
    let palisade = root().join("target/debug/palisade");
    for arguments in [&["check", "examples/manifests"][..], &["explain", "examples/manifests"]] {
        println!("\n$ palisade {}", arguments.join(" "));
        let status = Command::new(&palisade)
            .args(arguments)
            .current_dir(root())
            .status()
            .map_err(|error| Failure(format!("cannot run palisade: {error}")))?;
        // The examples are there to be found fault with: findings are what the demonstration is about.
        if !matches!(status.code(), Some(0 | 1)) {
            return Err(Failure(format!("palisade ended with {status}")));
        }
    }
    println!("\nNext: cargo run --bin palisade -- check --diff --fix examples/manifests");
    Ok(())
}
