//! `cargo xtask playground`: the page that checks a pasted manifest in a browser, with the engine in it as WebAssembly.
//!
//! One file without any other: it runs from a disk, from the documentation site, and offline. The engine is `palisade-browser`, built for
//! `wasm32-unknown-unknown`. Where the compiler does not have that target, `cargo xtask docs` writes the page without its engine,
//! which shows exactly that, and reports it.

use std::{
    env, fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use flate2::{Compression, GzBuilder};
use palisade_base::version::{NEWEST_MINOR, OLDEST_MINOR};

use crate::{
    Failure,
    image::cannot,
    process::{cargo, output, run},
    root,
};

const TARGET: &str = "wasm32-unknown-unknown";
/// Where the page is for tests and for people.
const PAGE: &str = "target/playground/index.html";
/// Another cargo, whose compiler has the target: that of a distribution, for example.
const CARGO: &str = "PALISADE_WASM_CARGO";

/// Why there is no engine.
#[derive(Debug)]
pub(crate) struct NoTarget;

impl std::fmt::Display for NoTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the compiler has no target {TARGET}: run `rustup target add {TARGET}`, or set {CARGO} to a cargo whose compiler has it"
        )
    }
}

/// Builds the page; without the target this fails.
pub(crate) fn run_playground() -> Result<(), Failure> {
    write_page(&root().join(PAGE))?.map_err(|missing| Failure(missing.to_string()))?;
    println!("\nthe page is {PAGE}");
    Ok(())
}

/// Writes the page with the engine, or without it where it cannot be built: the inner error says why.
pub(crate) fn write_page(file: &Path) -> Result<Result<(), NoTarget>, Failure> {
    let engine = engine()?;
    let (packed, result) = match engine {
        Ok(wasm) => (pack(&fs::read(&wasm).map_err(|error| cannot("read", &wasm, &error))?)?, Ok(())),
        Err(missing) => (String::new(), Err(missing)),
    };
    let folder = root().join("crates/palisade-browser/page");
    let part = |name: &str| {
        let path = folder.join(name);
        fs::read_to_string(&path).map_err(|error| cannot("read", &path, &error))
    };
    let page = page(
        &part("page.html")?,
        &[
            ("@STYLE@", &part("page.css")?),
            ("@EXAMPLE@", &escaped(&part("example.yaml")?)),
            ("@RELEASES@", &releases()),
            ("@SCRIPT@", &part("page.js")?),
            ("@ENGINE@", &packed),
        ],
    )?;
    if let Some(parent) = file.parent() {
        fs::create_dir_all(parent).map_err(|error| cannot("create", parent, &error))?;
    }
    fs::write(file, page).map_err(|error| cannot("write", file, &error))?;
    Ok(result)
}

/// Removes the page of another build, so that no test takes it for this one's.
pub(crate) fn remove_page() -> Result<(), Failure> {
    let file = root().join(PAGE);
    match fs::remove_file(&file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(cannot("remove", &file, &error)),
        _ => Ok(()),
    }
}

/// The engine, built; or that it cannot be.
fn engine() -> Result<Result<PathBuf, NoTarget>, Failure> {
    let other = env::var_os(CARGO);
    if !has_target()? {
        return Ok(Err(NoTarget));
    }
    // Another compiler must not throw away what this one built.
    let folder = root().join("target/playground-build");
    let arguments =
        ["build", "--package", "palisade-browser", "--lib", "--profile", "playground", "--target", TARGET];
    let mut command = match other {
        Some(program) => {
            let mut command = Command::new(program);
            command.current_dir(root()).env_remove("RUSTUP_TOOLCHAIN").args(arguments);
            command
        }
        None => cargo(&arguments),
    };
    run(command.arg("--target-dir").arg(&folder))?;
    Ok(Ok(folder.join(TARGET).join("playground/palisade_browser.wasm")))
}

/// Whether the engine can be built.
pub(crate) fn has_target() -> Result<bool, Failure> {
    if env::var_os(CARGO).is_some() {
        return Ok(true);
    }
    let printed = output(
        Command::new("rustc").args(["--print", "target-libdir", "--target", TARGET]).current_dir(root()),
    )?;
    Ok(Path::new(printed.trim()).is_dir())
}

/// A compressed module as text: a page that is opened from a disk may not load other files.
fn pack(wasm: &[u8]) -> Result<String, Failure> {
    let failed = |error: std::io::Error| Failure(format!("cannot compress the engine: {error}"));
    // Without a time: the same engine gives the same page.
    let mut packer = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    packer.write_all(wasm).map_err(failed)?;
    Ok(BASE64_STANDARD.encode(packer.finish().map_err(failed)?))
}

/// `["v1.37", …, "extended"]`, the newest first.
fn releases() -> String {
    let versions = (OLDEST_MINOR..=NEWEST_MINOR).rev().map(|minor| format!("v1.{minor}"));
    serde_json::json!(versions.chain(["extended".to_owned()]).collect::<Vec<_>>()).to_string()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// The page with its parts; each place must be there exactly once.
fn page(template: &str, parts: &[(&str, &str)]) -> Result<String, Failure> {
    let mut page = template.to_owned();
    for (place, part) in parts {
        if page.matches(place).count() != 1 {
            return Err(Failure(format!("the page has not exactly one {place}")));
        }
        page = page.replace(place, part);
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::{page, releases};

    #[test]
    fn a_page_has_each_part_once() {
        assert_eq!(page("a@X@b@Y@", &[("@X@", "1"), ("@Y@", "<2>")]).unwrap(), "a1b<2>");
        for template in ["a", "@X@@X@"] {
            assert!(page(template, &[("@X@", "1")]).is_err(), "{template}");
        }
        assert!(releases().starts_with("[\"v1.") && releases().ends_with("\"v1.19\",\"extended\"]"));
    }
}
