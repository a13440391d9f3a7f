//! Dependencies that are declared and not used: of a crate, by its sources; of the workspace, by its crates.
//!
//! `cargo machete` does the first with the same kind of search, and not the second; it takes minutes to install.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::Value;

use crate::{Failure, root};

/// Dependencies that are declared for their features: `kube` needs a release of the API to be chosen.
const FEATURES_ONLY: &[&str] = &["k8s-openapi"];

/// Finds unused dependencies in what `cargo metadata` returns; `files` are the sources, relative to the root.
pub(crate) fn unused(metadata: &Value, files: &[&str], problems: &mut Vec<String>) -> Result<(), Failure> {
    let mut declared = BTreeSet::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let (name, manifest) = (text(&package["name"]), Path::new(text(&package["manifest_path"])));
        let folder = manifest.parent().and_then(|folder| folder.strip_prefix(root()).ok());
        let Some(folder) = folder else {
            return Err(Failure(format!("{} is not in the workspace", manifest.display())));
        };
        let sources: Vec<(bool, String)> = files
            .iter()
            .filter(|file| Path::new(file).starts_with(folder))
            .map(|file| (Path::new(file).starts_with(folder.join("src")), file))
            .filter_map(|(shipped, file)| Some((shipped, fs::read_to_string(root().join(file)).ok()?)))
            .collect();
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let (used, is_dev) = (text(&dependency["name"]), dependency["kind"] == "dev");
            declared.insert(used.to_owned());
            let word = used.replace('-', "_");
            let is_named =
                sources.iter().any(|(shipped, text)| (*shipped || is_dev) && names_crate(text, &word));
            if !(is_named || FEATURES_ONLY.contains(&used)) {
                problems.push(format!("{name} does not use its dependency {used}"));
            }
        }
    }
    let manifest = root().join("Cargo.toml");
    let text = fs::read_to_string(&manifest)
        .map_err(|error| Failure(format!("cannot read {}: {error}", manifest.display())))?;
    for unused in workspace_dependencies(&text).filter(|name| !declared.contains(*name)) {
        problems.push(format!("no crate uses the workspace's dependency {unused}"));
    }
    Ok(())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Whether a source has a path that begins with the name of a crate: `name::item`, `use name as other`.
fn names_crate(source: &str, name: &str) -> bool {
    source.lines().filter(|line| !line.trim_start().starts_with("//")).any(|line| {
        line.match_indices(name).any(|(at, _)| {
            let (before, after) = line.split_at(at);
            let begins = !before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
            let after = after.strip_prefix(name).unwrap_or_default();
            begins && (after.starts_with("::") || (before.ends_with("use ") && after.starts_with([' ', ';'])))
        })
    })
}

fn workspace_dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    manifest
        .lines()
        .skip_while(|line| *line != "[workspace.dependencies]")
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split_once('=').map(|(name, _)| name.trim()))
}

#[cfg(test)]
mod tests {
    use super::{names_crate, workspace_dependencies};

    #[test]
    fn finds_paths_into_a_crate_and_nothing_else() {
        for (source, expected) in [
            ("use http::Request;", true),
            ("fn f() -> http::Request {", true),
            ("use http as web;", true),
            ("use crate::http::Request;", false),
            ("// see http::Request", false),
            ("let my_http::x", false),
            ("mod http;", false),
        ] {
            assert_eq!(names_crate(source, "http"), expected, "{source}");
        }
    }

    #[test]
    fn reads_the_names_in_the_workspace_manifest() {
        let manifest =
            "a = 0\n[workspace.dependencies]\nb = \"1\"\nc-d = { path = \"x\" }\n\n[other]\ne = 1\n";
        assert_eq!(workspace_dependencies(manifest).collect::<Vec<_>>(), ["b", "c-d"]);
    }
}
