//! The crates as a registry would have them: packed, and complete.
//!
//! `cargo package` without its build, which would compile everything a second time: what a build of the packed sources would miss is a
//! file that they include, or a crate of the workspace without a version, and both are looked for here.

use std::{
    collections::BTreeMap,
    fs,
    io::Read as _,
    path::{Component, Path, PathBuf},
};

use flate2::read::GzDecoder;

use crate::{
    Failure,
    image::cannot,
    process::{cargo, run},
    root,
};

/// What is not published: chores and helpers of tests.
const NOT_PUBLISHED: [&str; 2] = ["palisade-testkit", "xtask"];
/// What `cargo install` installs.
const PROGRAM: &str = "palisade";

/// Packs every crate into `target/package` and looks for what is missing in it.
pub(crate) fn run_package() -> Result<(), Failure> {
    let folder = root().join("target/package");
    // Packages of older versions would be looked at as well.
    if folder.is_dir() {
        fs::remove_dir_all(&folder).map_err(|error| cannot("remove", &folder, &error))?;
    }
    let mut command = cargo(&["package", "--workspace", "--no-verify", "--allow-dirty", "--quiet"]);
    for name in NOT_PUBLISHED {
        command.args(["--exclude", name]);
    }
    run(&mut command)?;
    let entries = fs::read_dir(&folder).map_err(|error| cannot("list", &folder, &error))?;
    let mut problems = Vec::new();
    let mut packed = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| cannot("list", &folder, &error))?.path();
        if path.extension().is_some_and(|extension| extension == "crate") {
            let files = unpack(&path)?;
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            problems.extend(missing(&files).into_iter().map(|problem| format!("{name}: {problem}")));
            packed.push(name);
        }
    }
    packed.sort();
    let program = format!("{PROGRAM}-{}", env!("CARGO_PKG_VERSION"));
    if !packed.contains(&program) {
        problems.push(format!("there is no {program}"));
    }
    if !problems.is_empty() {
        problems.sort();
        return Err(Failure(format!("packages are not complete:\n  {}", problems.join("\n  "))));
    }
    println!("packed and complete: {}", packed.join(", "));
    Ok(())
}

/// The files of a package by their paths in it.
fn unpack(path: &Path) -> Result<BTreeMap<PathBuf, String>, Failure> {
    let failed = |error: std::io::Error| cannot("read", path, &error);
    let mut archive = Vec::new();
    GzDecoder::new(fs::File::open(path).map_err(failed)?).read_to_end(&mut archive).map_err(failed)?;
    Ok(files(&archive))
}

/// The files of a tar archive, without their first folder.
fn files(archive: &[u8]) -> BTreeMap<PathBuf, String> {
    const BLOCK: usize = 512;
    let mut files = BTreeMap::new();
    let mut rest = archive;
    let mut long_name = None;
    while let Some((header, after)) = rest.split_at_checked(BLOCK) {
        let text = |range: std::ops::Range<usize>| {
            let field = header.get(range).unwrap_or_default();
            let field = field.split(|byte| *byte == 0).next().unwrap_or_default();
            String::from_utf8_lossy(field).into_owned()
        };
        let Ok(size) = usize::from_str_radix(text(124..136).trim(), 8) else { break };
        let Some(content) = after.get(..size) else { break };
        rest = after.get(size.next_multiple_of(BLOCK)..).unwrap_or_default();
        let content = String::from_utf8_lossy(content).into_owned();
        // GNU tar writes a name that does not fit as the content of an entry before.
        if header.get(156) == Some(&b'L') {
            long_name = Some(content.trim_end_matches('\0').to_owned());
            continue;
        }
        let prefix = text(345..500);
        let name = long_name.take().unwrap_or_else(|| text(0..100));
        let name = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
        files.insert(Path::new(&name).components().skip(1).collect(), content);
    }
    files
}

/// What a build of the files would miss.
fn missing(files: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, text) in files.iter().filter(|(path, _)| path.starts_with("src")) {
        // Tests at the end of a file are not built with the package.
        let shipped = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
        for included in included(shipped) {
            let target = plain(&path.parent().unwrap_or(Path::new("")).join(&included));
            if !files.contains_key(&target) {
                problems.push(format!("{} includes {included}, which is not packed", path.display()));
            }
        }
    }
    let manifest = files.get(Path::new("Cargo.toml")).map_or("", String::as_str);
    if manifest.is_empty() {
        problems.push("there is no Cargo.toml".to_owned());
    }
    for name in NOT_PUBLISHED {
        if manifest.contains(&format!("dependencies.{name}]")) {
            problems.push(format!("it depends on {name}, which is not published"));
        }
    }
    problems
}

/// The paths of `include_str!` and `include_bytes!`.
fn included(source: &str) -> Vec<String> {
    let lines = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    let of_line = |line: &str| {
        let parts = line.split("include_").skip(1);
        parts
            .filter_map(|part| {
                let rest = part.strip_prefix("str!(\"").or_else(|| part.strip_prefix("bytes!(\""))?;
                rest.split('"').next().map(str::to_owned)
            })
            .collect::<Vec<_>>()
    };
    lines.flat_map(of_line).collect()
}

/// A path without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::layer::{Entry, layer};

    #[test]
    fn files_that_are_included_must_be_packed() {
        let file = |path: &str, text: &str| Entry::file(path, 0o644, text.as_bytes().to_vec());
        let source = "const A: &str = include_str!(\"a.txt\"); const B: &[u8] = include_bytes!(\"../b/b.bin\");\n// include_str!(\"c\")\n";
        let manifest = "[dev-dependencies.palisade-testkit]\n";
        for (case, entries, expected) in [
            (
                "complete",
                vec![
                    file("p-1/Cargo.toml", "[package]"),
                    file("p-1/src/lib.rs", source),
                    file("p-1/src/a.txt", ""),
                    file("p-1/b/b.bin", ""),
                ],
                vec![],
            ),
            (
                "a file is missing",
                vec![
                    file("p-1/Cargo.toml", "[package]"),
                    file("p-1/src/lib.rs", source),
                    file("p-1/src/a.txt", ""),
                ],
                vec!["src/lib.rs includes ../b/b.bin, which is not packed"],
            ),
            (
                "a file of tests",
                vec![
                    file("p-1/Cargo.toml", "[package]"),
                    file(
                        "p-1/src/lib.rs",
                        "#[cfg(test)]\nmod tests { const A: &str = include_str!(\"a.txt\"); }\n",
                    ),
                ],
                vec![],
            ),
            ("not a package", vec![file("p-1/a", "")], vec!["there is no Cargo.toml"]),
            (
                "helpers of tests",
                vec![file("p-1/Cargo.toml", manifest)],
                vec!["it depends on palisade-testkit, which is not published"],
            ),
        ] {
            assert_eq!(missing(&files(&layer(&entries, 0))), expected, "{case}");
        }
    }
}
