//! Links of every Markdown file: the file must exist, and so must the heading that an anchor names.
//!
//! No network: addresses of other sites are not requested. Pages of the book may not link out of `docs/`, because the site has
//! nothing there.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
    process::Command,
};

use crate::{Failure, process::output, root};

/// Every dead link, as `file:line: problem`.
pub(crate) fn problems() -> Result<Vec<String>, Failure> {
    let files = ["ls-files", "--cached", "--others", "--exclude-standard", "*.md"];
    let listed = output(Command::new("git").args(files).current_dir(root()))?;
    let mut texts = BTreeMap::new();
    for name in listed.lines() {
        // A file that is deleted and not yet committed is listed as well.
        if let Ok(text) = fs::read_to_string(root().join(name)) {
            texts.insert(PathBuf::from(name), text);
        }
    }
    let mut problems = Vec::new();
    for (file, text) in &texts {
        for (line, target) in links(text) {
            if let Some(problem) = problem(file, &target, &texts) {
                problems.push(format!("{}:{line}: {problem}", file.display()));
            }
        }
    }
    Ok(problems)
}

fn problem(file: &Path, target: &str, texts: &BTreeMap<PathBuf, String>) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let linked = if path.is_empty() {
        file.to_owned()
    } else {
        match normal(&file.parent().unwrap_or(Path::new("")).join(path)) {
            Some(linked) => linked,
            None => return Some(format!("{target} leads out of the repository")),
        }
    };
    if !root().join(&linked).exists() {
        return Some(format!("{target} does not exist"));
    }
    if file.starts_with("docs") && !linked.starts_with("docs") {
        return Some(format!("{target} leads out of the book; name the file instead of linking to it"));
    }
    let anchor = anchor?;
    let known = texts.get(&linked).is_some_and(|text| anchors(text).contains(anchor));
    (!known).then(|| format!("{target}: {} has no heading #{anchor}", linked.display()))
}

/// A path without `.` and `..`; none if it leads out of the repository.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                if !plain.pop() {
                    return None;
                }
            }
            other => plain.push(other),
        }
    }
    Some(plain)
}

/// The lines of a text that are prose, with their numbers: code blocks and what stands between backticks is left out.
fn prose(text: &str) -> impl Iterator<Item = (usize, String)> {
    let mut fence: Option<String> = None;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let marks: String = line.trim_start().chars().take_while(|mark| matches!(mark, '`' | '~')).collect();
        match &fence {
            Some(open) if marks.starts_with(open.as_str()) => fence = None,
            Some(_) => {}
            None if marks.len() >= 3 => fence = Some(marks),
            None => return Some((index + 1, line.split('`').step_by(2).collect::<Vec<_>>().join("`"))),
        }
        None
    })
}

/// The targets of `[text](target)` and `[name]: target`, with their lines.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        let inline = line.match_indices("](").filter_map(|(at, mark)| {
            let rest = line.get(at + mark.len()..)?;
            rest.split_once(')').map(|(target, _)| target)
        });
        let named = line.starts_with('[').then(|| line.split_once("]: ")).flatten().map(|(_, target)| target);
        for target in inline.chain(named) {
            let target = target.split_whitespace().next().unwrap_or_default();
            found.push((number, target.trim_matches(['<', '>']).to_owned()));
        }
    }
    found
}

/// The anchors of the headings, as GitHub and mdBook make them: lower case, blanks as `-`, no other punctuation.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut fenced = false;
    for line in text.lines() {
        fenced ^= line.trim_start().starts_with("```");
        let title = line.trim_start_matches('#');
        if fenced || title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let words = title.trim().chars().filter_map(|letter| match letter {
            ' ' => Some('-'),
            letter if letter.is_alphanumeric() || matches!(letter, '-' | '_') => Some(letter),
            _ => None,
        });
        let anchor = words.collect::<String>().to_lowercase();
        let repeated = (1..).map(|count| format!("{anchor}-{count}"));
        let free = std::iter::once(anchor.clone()).chain(repeated).find(|name| !found.contains(name));
        found.extend(free);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_links_in_prose_and_none_in_code() {
        let text =
            "See [a](a.md#x) and `[b](b.md)`.\n```\n[c](c.md)\n```\n[d]: <d.md>\n| [e](e.md \"title\") |\n";
        let expected = [(1, "a.md#x"), (5, "d.md"), (6, "e.md")].map(|(line, to)| (line, to.to_owned()));
        assert_eq!(links(text), expected);
    }

    #[test]
    fn makes_anchors_as_github_does() {
        let text =
            "# `palisade up`\n## What's new, in v1.37?\n## Same\n## Same\n```\n# not a heading\n```\n#tag\n";
        let expected = ["palisade-up", "whats-new-in-v137", "same", "same-1"].map(str::to_owned);
        assert_eq!(anchors(text), BTreeSet::from(expected));
    }

    #[test]
    fn reports_dead_files_dead_anchors_and_links_out_of_the_book() {
        let page = |text: &str| text.to_owned();
        let texts = BTreeMap::from([
            (PathBuf::from("README.md"), page("# Palisade")),
            (PathBuf::from("docs/README.md"), page("# Title")),
        ]);
        for (file, target, expected) in [
            ("README.md", "docs/README.md#title", None),
            ("README.md", "https://kubernetes.io/#x", None),
            ("README.md", "#palisade", None),
            ("README.md", "#other", Some("#other: README.md has no heading #other")),
            ("README.md", "absent.md", Some("absent.md does not exist")),
            ("README.md", "../x.md", Some("../x.md leads out of the repository")),
            (
                "docs/README.md",
                "../README.md",
                Some("../README.md leads out of the book; name the file instead of linking to it"),
            ),
        ] {
            assert_eq!(problem(Path::new(file), target, &texts).as_deref(), expected, "{file}: {target}");
        }
    }
}
