//! The documentation site: a book made of `docs/` by mdBook, with every link checked first.

pub(crate) mod links;

use std::{fs, path::PathBuf, process::Command};

use crate::{
    Failure, playground,
    process::{exists, run},
    root,
};

/// The version of mdBook that builds the book. A newer one may draw it differently.
const MDBOOK: &str = "0.5.4";

/// Builds the book into `target/book`.
pub(crate) fn run_docs() -> Result<(), Failure> {
    let mut problems = links::problems()?;
    problems.extend(unlisted_pages()?);
    if !problems.is_empty() {
        return Err(Failure(format!("the documentation is not in order:\n  {}", problems.join("\n  "))));
    }
    run(Command::new(mdbook()?).args(["build", "docs"]).current_dir(root()))?;
    let playground = playground::write_page(&root().join("target/book/playground/index.html"))?;
    println!("\nthe book is in target/book: open target/book/index.html");
    if let Err(missing) = playground {
        println!("\nLEFT OUT: the engine of the page that checks a manifest in the browser: {missing}");
    }
    Ok(())
}

/// Where mdBook is; installs it below `target` if it is missing, so that nothing of the machine changes.
fn mdbook() -> Result<PathBuf, Failure> {
    if exists("mdbook") {
        return Ok(PathBuf::from("mdbook"));
    }
    let folder = root().join("target/tools");
    let program = folder.join("bin/mdbook");
    if !program.is_file() {
        // Without its web server and file watcher, which pull in half of its dependencies.
        let features = ["--no-default-features", "--features", "search"];
        run(Command::new("cargo")
            .args(["install", "--locked", "mdbook", "--version", MDBOOK])
            .args(features)
            .arg("--root")
            .arg(&folder))?;
    }
    Ok(program)
}

/// Pages that the table of contents leaves out: mdBook would not build them.
fn unlisted_pages() -> Result<Vec<String>, Failure> {
    let folder = root().join("docs");
    let failed = |error: std::io::Error| Failure(format!("docs: {error}"));
    let contents = fs::read_to_string(folder.join("SUMMARY.md")).map_err(failed)?;
    let mut missing = Vec::new();
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_page = path.extension().is_some_and(|ending| ending == "md");
        if is_page && name != "SUMMARY.md" && !contents.contains(&format!("]({name})")) {
            missing.push(format!("docs/{name} is not listed in docs/SUMMARY.md"));
        }
    }
    missing.sort();
    Ok(missing)
}
