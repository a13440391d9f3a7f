//! Fuzzing with libFuzzer on the pinned toolchain: coverage by LLVM's own pass, no nightly needed.

use std::{fs, process::Command};

use crate::{
    Failure,
    process::{cargo, output, run},
    root,
};

/// What cargo-fuzz passes as well, less the sanitizer, which needs a nightly compiler.
const RUSTFLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1";

/// Runs one target, or each of them, for some seconds.
pub(crate) fn run_fuzz(only: Option<&str>, seconds: u32) -> Result<(), Failure> {
    let fuzz = root().join("fuzz");
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).map_err(|error| Failure(error.to_string()))?;
    let targets: Vec<&str> = manifest
        .lines()
        .filter_map(|line| line.strip_prefix("path = \"targets/")?.strip_suffix(".rs\""))
        .filter(|target| only.is_none_or(|only| only == *target))
        .collect();
    if targets.is_empty() {
        return Err(Failure(format!("there is no fuzz target {}", only.unwrap_or_default())));
    }
    // The flags must not reach build scripts, hence the explicit target.
    let version = output(Command::new("rustc").arg("-vV"))?;
    let host =
        version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or("x86_64-unknown-linux-gnu");
    run(cargo(&["build", "--release", "--quiet", "--bins", "--target", host])
        .current_dir(&fuzz)
        .env("RUSTFLAGS", RUSTFLAGS)
        .env_remove("RUSTC_WRAPPER"))?;
    for target in targets {
        let (corpus, seeds) = (fuzz.join("corpus").join(target), fuzz.join("seeds").join(target));
        let artifacts = fuzz.join("artifacts").join(target);
        for folder in [&corpus, &seeds, &artifacts] {
            fs::create_dir_all(folder).map_err(|error| Failure(error.to_string()))?;
        }
        // libFuzzer logs much; its output matters only when it found something.
        let log_file = artifacts.join("log");
        let log = fs::File::create(&log_file).map_err(|error| Failure(error.to_string()))?;
        println!("fuzzing {target} for {seconds} s");
        let status = Command::new(fuzz.join("target").join(host).join("release").join(target))
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-artifact_prefix={}/", artifacts.display()))
            .args(["-max_len=8192", "-timeout=10", "-rss_limit_mb=2048"])
            .arg(corpus)
            .arg(seeds)
            .stderr(log)
            .status()
            .map_err(|error| Failure(format!("cannot run {target}: {error}")))?;
        let log = fs::read_to_string(&log_file).unwrap_or_default();
        let tail: Vec<&str> = log.lines().rev().take(60).collect();
        if !status.success() {
            tail.iter().rev().for_each(|line| println!("{line}"));
            return Err(Failure(format!("{target} found something, see fuzz/artifacts/{target}")));
        }
        let done = tail.iter().find(|line| line.starts_with("Done ")).copied().unwrap_or("done");
        println!("{target}: {done}");
    }
    Ok(())
}
