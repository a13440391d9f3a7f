//! The one gate: everything that must hold before a change lands.
//!
//! Tests are always built for the whole workspace: for one package, Cargo chooses other features of dependencies and builds all of them again.

use std::{fs, path::Path};

use crate::{
    Failure, e2e, fuzz, generate, image, package, playground,
    process::{cargo, run},
    root, setup, tidy,
};

/// How long each fuzz target runs here; to hunt a bug, run `cargo xtask fuzz` for longer.
const FUZZ_SECONDS: u32 = 15;

/// Runs the gate. Root runs the tests on a real runtime as well; who is not must leave them out by name.
pub(crate) fn run_check(without_system: bool) -> Result<(), Failure> {
    let system = !without_system && setup::is_root();
    if system {
        setup::need_runtime()?;
    } else {
        setup::run_setup()?;
    }
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
    // The tests of the page report that they did not run where there is none.
    playground::remove_page()?;
    if playground::has_target()? {
        playground::run_playground()?;
    }
    let not_run = root().join("target/not-run.txt");
    let _ = fs::remove_file(&not_run);
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
    package::run_package()?;
    if system {
        system_tests(&[])?;
        setup::need_cluster()?;
        cluster_tests(&[])?;
        e2e::run_part_of_commit()?;
    }
    fuzz::run_fuzz(None, FUZZ_SECONDS)?;
    print_not_run(&not_run);
    if system {
        println!("\neverything holds");
        return Ok(());
    }
    println!("\nNOT RUN: tests on a real container runtime, a real kernel and a virtual machine:");
    for package in SYSTEM_PACKAGES {
        println!("  those of {package} in tests/system; as root: cargo xtask system");
    }
    println!("  Kubernetes' own end-to-end tests; as root: cargo xtask e2e");
    println!(
        "  those of {CLUSTER_PACKAGE} in tests/cluster, on a real Kubernetes; as root: cargo xtask cluster"
    );
    if without_system {
        println!("everything else holds");
        return Ok(());
    }
    Err(Failure("the gate is not complete: run it as root, or pass --without-system".to_owned()))
}

/// Lists the tests that need something which is not there, such as `../shared`; they write it down themselves.
fn print_not_run(list: &Path) {
    let text = fs::read_to_string(list).unwrap_or_default();
    if !text.is_empty() {
        println!("\nNOT RUN, because something is missing: {} tests", text.lines().count());
        text.lines().for_each(|test| println!("  {test}"));
    }
}

/// Who has tests on a real runtime.
const SYSTEM_PACKAGES: [&str; 2] = ["palisade-node", "palisade"];

/// Runs the tests on a real containerd, a real kernel and a virtual machine, or those whose names contain a filter.
pub(crate) fn run_system(filters: &[String]) -> Result<(), Failure> {
    setup::need_runtime()?;
    system_tests(filters)
}

fn system_tests(filters: &[String]) -> Result<(), Failure> {
    run(cargo(&["nextest", "run", "--workspace", "--profile", "system", "--no-fail-fast"]).args(filters))
}

/// The name of the image that tests on a real Kubernetes install.
const TEST_IMAGE: &str = "localhost/palisade:test";

/// Who has tests on a real Kubernetes.
const CLUSTER_PACKAGE: &str = "palisade";

/// Runs the tests on a real Kubernetes, or those whose names contain a filter.
pub(crate) fn run_cluster(filters: &[String]) -> Result<(), Failure> {
    setup::need_cluster()?;
    let not_run = root().join("target/not-run.txt");
    let _ = fs::remove_file(&not_run);
    cluster_tests(filters)?;
    print_not_run(&not_run);
    Ok(())
}

/// Without `../shared/kubernetes`, each test reports that it did not run.
fn cluster_tests(filters: &[String]) -> Result<(), Failure> {
    // The same binary as the tests', so that nothing is built twice.
    run(&mut cargo(&["nextest", "run", "--workspace", "--no-run", "--cargo-quiet"]))?;
    let image = root().join("target/test-image.tar");
    image::write_test_image(&root().join("target/debug/palisade"), TEST_IMAGE, &image)?;
    let command = ["nextest", "run", "--workspace", "--profile", "cluster", "--no-fail-fast"];
    run(cargo(&command).args(filters).env("PALISADE_TEST_IMAGE", &image))
}
