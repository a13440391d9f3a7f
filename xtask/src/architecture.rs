//! Whether ARCHITECTURE.md is true: every crate, file, folder, type and function that it names in code must exist.
//!
//! A name in backticks, or in a block of code, is checked if it has one of these forms: `palisade-x` (a crate), `x/src/…`
//! (a file or folder of `palisade-x`), `name()` or `Type::name` (an item of the sources). Names in braces stand for several
//! files: `model/src/{prepare,lower}.rs`.

use std::{collections::BTreeSet, fs};

use crate::{Failure, root, tidy::EDGES};

/// Adds a problem for every name that nothing has.
pub(crate) fn names(files: &[&str], problems: &mut Vec<String>) -> Result<(), Failure> {
    let text =
        fs::read_to_string(root().join("ARCHITECTURE.md")).map_err(|error| Failure(error.to_string()))?;
    let mut items = BTreeSet::new();
    for file in files
        .iter()
        .filter(|file| file.rsplit_once('.').is_some_and(|(_, end)| end == "rs") && !file.contains("/tests/"))
    {
        // A file that was deleted but is still in the index has nothing to add.
        if let Ok(source) = fs::read_to_string(root().join(file)) {
            items.extend(defined(&source).map(str::to_owned));
        }
    }
    problems.extend(missing(&text, files, &items));
    problems.extend(edges(&text));
    Ok(())
}

fn missing(text: &str, files: &[&str], items: &BTreeSet<String>) -> Vec<String> {
    let mut problems = Vec::new();
    for word in
        code(text).flat_map(|span| span.split(|c: char| c.is_whitespace() || "│┌└├┐┘┤─►▼◄▲+⇄·⇒→".contains(c)))
    {
        let word = word.trim_matches(|c: char| ",;:.".contains(c) || c == '(' && !word.contains("()"));
        for name in expanded(word) {
            if !exists(&name, files, items) {
                problems.push(format!("ARCHITECTURE.md: there is no {name}"));
            }
        }
    }
    problems
}

/// Whether the table of crates has the edges that the compiler is held to.
fn edges(text: &str) -> Vec<String> {
    let row = |krate: &str| {
        let row = text.lines().find(|line| line.starts_with(&format!("| `{krate}` |")))?;
        let cell = row.trim_end_matches('|').rsplit('|').next()?;
        let names = cell.split(',').map(str::trim).filter(|name| !name.is_empty());
        Some(names.map(|name| format!("palisade-{name}")).collect::<BTreeSet<String>>())
    };
    let differing = EDGES.iter().filter(|(krate, allowed)| {
        let allowed: BTreeSet<String> = allowed.iter().map(|name| (*name).to_owned()).collect();
        row(krate).as_ref() != Some(&allowed)
    });
    differing
        .map(|(krate, _)| format!("ARCHITECTURE.md: the row of {krate} is not what xtask/src/tidy.rs allows"))
        .collect()
}

/// The spans and blocks of code.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.split("```").enumerate().flat_map(|(i, part)| -> Vec<&str> {
        if i % 2 == 1 { part.lines().collect() } else { part.split('`').skip(1).step_by(2).collect() }
    })
}

/// `a/{b,c}.rs` as `a/b.rs` and `a/c.rs`.
fn expanded(word: &str) -> Vec<String> {
    match word.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?))) {
        Some((before, (inner, after))) if !before.is_empty() => {
            inner.split(',').map(|name| format!("{before}{}{after}", name.trim())).collect()
        }
        _ => vec![word.to_owned()],
    }
}

fn exists(name: &str, files: &[&str], items: &BTreeSet<String>) -> bool {
    if let Some((krate, _)) = name.split_once("/src").filter(|(krate, _)| !krate.contains('/')) {
        let path = if krate == "xtask" { name.to_owned() } else { format!("crates/palisade-{name}") };
        return files
            .iter()
            .any(|file| *file == path || file.starts_with(&format!("{}/", path.trim_end_matches('/'))));
    }
    if let Some(krate) =
        name.strip_prefix("palisade-").filter(|rest| rest.chars().all(|c| c.is_ascii_lowercase()))
    {
        // The namespace of the cluster has a name of the same form.
        return krate == "system" || files.contains(&format!("crates/palisade-{krate}/Cargo.toml").as_str());
    }
    let item = |name: &str| name.chars().all(|c| c.is_alphanumeric() || c == '_') && !name.is_empty();
    if let Some(function) = name.strip_suffix("()") {
        return function.split("::").all(|part| !item(part) || items.contains(part));
    }
    match name.split_once("::") {
        Some((first, rest)) if item(first) && rest.split("::").all(item) => {
            let modules = !first.starts_with(char::is_uppercase);
            (modules || items.contains(first))
                && rest.rsplit("::").next().is_some_and(|last| items.contains(last))
        }
        _ => true,
    }
}

/// What a source defines: functions, types, traits, constants and variants are found by the word before them.
fn defined(source: &str) -> impl Iterator<Item = &str> {
    source.lines().flat_map(|line| {
        let line = line.trim_start();
        let words: Vec<&str> = line
            .split(|c: char| !(c.is_alphanumeric() || c == '_'))
            .filter(|word| !word.is_empty())
            .collect();
        let mut found = Vec::new();
        for pair in words.windows(2) {
            if matches!(
                pair[0],
                "fn" | "struct" | "enum" | "trait" | "const" | "static" | "type" | "mod" | "macro_rules"
            ) {
                found.push(pair[1]);
            }
        }
        // A variant stands alone on its line.
        if let Some(first) = words.first().filter(|word| word.starts_with(char::is_uppercase)) {
            found.push(first);
        }
        found
    })
}

#[cfg(test)]
mod tests {
    use super::{BTreeSet, defined, missing};

    #[test]
    fn names_that_do_not_exist_are_found() {
        let items: BTreeSet<String> = defined(
            "pub struct Pod {\n    pub(crate) async fn read(&self) {}\n}\nenum E {\n    Stored(u8),\n}",
        )
        .map(str::to_owned)
        .collect();
        let files = [
            "crates/palisade-model/Cargo.toml",
            "crates/palisade-model/src/pod.rs",
            "crates/palisade-model/src/a/b.rs",
        ];
        for (text, expected) in [
            (
                "`palisade-model`, `model/src/pod.rs`, `model/src/a`, `Pod::read`, `read()`, `E::Stored`, `spec.template`",
                &[][..],
            ),
            ("`palisade-gone`", &["palisade-gone"]),
            ("`model/src/{pod,gone}.rs`", &["model/src/gone.rs"]),
            ("`Pod::gone` and `gone()`", &["Pod::gone", "gone()"]),
            ("```\n Gone::read ─► model/src/gone\n```", &["Gone::read", "model/src/gone"]),
            ("Pod::gone outside of code", &[]),
        ] {
            let found = missing(text, &files, &items);
            let expected: Vec<String> =
                expected.iter().map(|name| format!("ARCHITECTURE.md: there is no {name}")).collect();
            assert_eq!(found, expected, "{text}");
        }
    }
}
