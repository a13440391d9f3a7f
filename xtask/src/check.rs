//! The one gate: everything that must hold before a change lands.

use std::{path::Path, process::Command};

use crate::{Failure, conformance, fuzz, generate, process::run, root, setup, tidy};

/// How long each fuzz target runs here; whoever hunts a bug runs `cargo xtask fuzz` for longer.
const FUZZ_SECONDS: u32 = 15;

/// Runs the gate.
pub(crate) fn run_check() -> Result<(), Failure> {
    setup::run_setup()?;
    run(&mut cargo(&["fmt", "--all", "--check"]))?;
    tidy::run_tidy()?;
    run(&mut cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]))?;
    run(&mut cargo(&[
        "deny",
        "--all-features",
        "--log-level",
        "error",
        "check",
        "licenses",
        "bans",
        "sources",
    ]))?;
    run(&mut cargo(&[
        "nextest",
        "run",
        "--workspace",
        "--no-fail-fast",
        "--status-level",
        "slow",
        "--final-status-level",
        "fail",
    ]))?;
    run(&mut cargo(&["test", "--doc", "--workspace", "--quiet"]))?;
    run(cargo(&["doc", "--workspace", "--no-deps", "--quiet"]).env("RUSTDOCFLAGS", "-D warnings"))?;
    generate::run_generate(generate::Mode::Check)?;
    conformance::run_all(&root().join("tests/data/recordings"))?;
    fuzz::run_fuzz(None, FUZZ_SECONDS)?;
    println!("\nNOT RUN: the node's tests on a real runtime and kernel; as root: cargo xtask system");
    println!("everything else holds");
    Ok(())
}

/// Runs the node's tests on a real containerd, a real kernel and a virtual machine.
pub(crate) fn run_system() -> Result<(), Failure> {
    setup::need_runtime()?;
    let arguments = ["nextest", "run", "--profile", "system", "--package", "palisade-node", "--no-fail-fast"];
    run(&mut cargo(&arguments))
}

/// Upstream's fixture pods, where they are at hand: beside the checkout.
pub(crate) fn shared_fixtures() -> std::path::PathBuf {
    root().parent().unwrap_or(Path::new("/")).join("shared/fixtures/pod-security-standards")
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(arguments).current_dir(root());
    command
}
