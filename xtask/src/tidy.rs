//! Habits that a compiler does not check: the edges between crates, unused dependencies, where unsafe code may stand, what every
//! file opens with, what must never be in the repository, dead links, failed reads that judging code does not report, and texts as errors.

use std::{fs, path::Path, process::Command};

use serde_json::Value;

use crate::{Failure, architecture, dependencies, docs, process::output, root, string_errors, swallowed};

/// Who may depend on whom inside the workspace. The pure crates may use nothing else that does anything.
pub(crate) const EDGES: &[(&str, &[&str])] = &[
    ("palisade-base", &[]),
    ("palisade-yaml", &[]),
    ("palisade-helm", &["palisade-yaml"]),
    ("palisade-kustomize", &["palisade-apimachinery", "palisade-base", "palisade-yaml"]),
    ("palisade-model", &["palisade-base"]),
    ("palisade-policy", &["palisade-base", "palisade-model"]),
    ("palisade-apimachinery", &["palisade-base"]),
    ("palisade-admission", &["palisade-base", "palisade-model", "palisade-policy"]),
    ("palisade-controllers", &["palisade-base", "palisade-model", "palisade-policy"]),
    (
        "palisade-apiserver",
        &[
            "palisade-admission",
            "palisade-apimachinery",
            "palisade-base",
            "palisade-model",
            "palisade-policy",
            "palisade-serve",
            "palisade-yaml",
        ],
    ),
    (
        "palisade-webhook",
        &["palisade-admission", "palisade-base", "palisade-model", "palisade-policy", "palisade-serve"],
    ),
    (
        "palisade-check",
        &[
            "palisade-admission",
            "palisade-apimachinery",
            "palisade-base",
            "palisade-kustomize",
            "palisade-model",
            "palisade-policy",
            "palisade-yaml",
        ],
    ),
    ("palisade-browser", &["palisade-base", "palisade-check", "palisade-model", "palisade-policy"]),
    ("palisade-serve", &[]),
    ("palisade-registry", &["palisade-base", "palisade-model"]),
    ("palisade-node", &["palisade-base", "palisade-model", "palisade-registry"]),
    ("palisade-testkit", &["palisade-apiserver", "palisade-base", "palisade-node", "palisade-policy"]),
];

/// What the pure crates may use from outside.
const PURE: &[(&str, &[&str])] = &[
    ("palisade-base", &["serde_json", "sha2", "thiserror"]),
    ("palisade-yaml", &["memchr", "serde", "serde_json", "thiserror"]),
    ("palisade-helm", &["base64", "regex", "serde_json", "sha2", "thiserror"]),
    ("palisade-kustomize", &["base64", "regex", "serde_json", "thiserror"]),
    ("palisade-model", &["serde", "serde_json", "thiserror"]),
    ("palisade-policy", &["serde", "serde_json", "thiserror"]),
    ("palisade-browser", &["jiff", "serde", "serde_json", "thiserror"]),
    ("palisade-check", &["jiff", "memchr", "serde", "serde_json", "similar", "thiserror"]),
];

/// Runs every check.
pub(crate) fn run_tidy() -> Result<(), Failure> {
    let mut problems = Vec::new();
    let metadata = metadata()?;
    let listed = output(
        Command::new("git")
            .args(["ls-files", "--cached", "--others", "--exclude-standard"])
            .current_dir(root()),
    )?;
    let files: Vec<&str> = listed.lines().collect();
    edges(&metadata, &mut problems);
    dependencies::unused(&metadata, &files, &mut problems)?;
    sources(&files, &mut problems);
    architecture::names(&files, &mut problems)?;
    problems.extend(docs::links::problems()?);
    if problems.is_empty() {
        println!(
            "\ntidy: edges, dependencies, module docs, unsafe code, names, links, failed reads and errors are in order"
        );
        return Ok(());
    }
    problems.sort();
    Err(Failure(format!("untidy:\n  {}", problems.join("\n  "))))
}

fn metadata() -> Result<Value, Failure> {
    let text = output(
        Command::new("cargo")
            .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
            .current_dir(root()),
    )?;
    serde_json::from_str(&text).map_err(|error| Failure(error.to_string()))
}

fn edges(metadata: &Value, problems: &mut Vec<String>) {
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let uses: Vec<&str> = package["dependencies"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|dependency| dependency["kind"].is_null())
            .filter_map(|dependency| dependency["name"].as_str())
            .collect();
        if let Some((_, allowed)) = EDGES.iter().find(|(crate_name, _)| *crate_name == name) {
            for used in uses.iter().filter(|used| used.starts_with("palisade-") && !allowed.contains(used)) {
                problems.push(format!("{name} must not depend on {used}"));
            }
        }
        if let Some((_, allowed)) = PURE.iter().find(|(crate_name, _)| *crate_name == name) {
            for used in uses.iter().filter(|used| !used.starts_with("palisade-") && !allowed.contains(used)) {
                problems.push(format!("{name} is pure and must not use {used}"));
            }
        }
    }
}

fn sources(files: &[&str], problems: &mut Vec<String>) {
    for name in files {
        let path = root().join(name);
        let Ok(text) = fs::read_to_string(&path) else { continue };
        // A path of one developer's machine does not exist elsewhere. (Written in two parts to pass itself.)
        for hint in [
            concat!("/work", "/main"),
            concat!("/work", "/shared"),
            concat!("/home", "/"),
            concat!("/root", "/."),
        ] {
            if text.contains(hint) && !name.starts_with("tests/data/") {
                problems.push(format!("{name} names a path of a machine: {hint}"));
            }
        }
        if Path::new(name).extension().is_some_and(|extension| extension == "rs") {
            source(name, &text, problems);
            if swallowed::is_judging(name) {
                problems.extend(swallowed::findings(name, &text));
            }
            if string_errors::is_source(name) {
                problems.extend(string_errors::findings(name, &text));
            }
        }
    }
}

fn source(name: &str, text: &str, problems: &mut Vec<String>) {
    if !text.trim_start_matches("#![no_main]").trim_start().starts_with("//!") {
        problems.push(format!("{name} does not open with its job (//! …)"));
    }
    let kernel = name.starts_with("crates/palisade-node/src/kernel/") || name.starts_with("xtask/src/bench");
    if !kernel
        && text
            .lines()
            .any(|line| line.contains(concat!("unsafe", " {")) && !line.trim_start().starts_with("//"))
    {
        problems.push(format!("{name} has unsafe code outside palisade-node/src/kernel"));
    }
    for marker in [
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
        concat!("#[", "ignore"),
        concat!("FIX", "ME"),
        concat!("TO", "DO"),
    ] {
        if text.contains(marker) {
            problems.push(format!("{name} has unfinished work: {marker}"));
        }
    }
}
