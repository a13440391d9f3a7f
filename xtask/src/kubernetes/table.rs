//! A table of structs and their fields, each with the release it came and went in.
//!
//! The releases are carried on from the table so far; for what it does not have, the releases at hand are compared.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Structs by name.
#[derive(Debug, Default)]
pub(crate) struct Table {
    structs: BTreeMap<String, Struct>,
    /// What the table had before any release was added.
    known: BTreeSet<String>,
}

/// A struct of the table.
#[derive(Debug, Clone, Default)]
pub(crate) struct Struct {
    /// A word after the name.
    pub(crate) flag: &'static str,
    /// In the order of declaration.
    pub(crate) fields: Vec<Line>,
}

/// A field.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    /// The first word.
    pub(crate) name: String,
    /// The other words, without releases.
    pub(crate) text: String,
    since: Option<u8>,
    until: Option<u8>,
}

impl Line {
    /// A field as a release has it.
    pub(crate) fn new(name: &str, text: String) -> Self {
        Self { name: name.to_owned(), text, since: None, until: None }
    }
}

impl Table {
    /// Reads a table.
    pub(crate) fn read(text: &str) -> Self {
        let mut structs: BTreeMap<String, Struct> = BTreeMap::new();
        let mut current = String::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            if let Some(head) = line.strip_prefix('@') {
                let (name, flag) = head.split_once(' ').map_or((head, ""), |(name, _)| (name, "A"));
                name.clone_into(&mut current);
                structs.insert(current.clone(), Struct { flag, fields: Vec::new() });
            } else if let (Some((name, rest)), Some(entry)) =
                (line.split_once(' '), structs.get_mut(&current))
            {
                let release =
                    |mark: char| rest.split(' ').find_map(|word| word.strip_prefix(mark)?.parse().ok());
                let (since, until) = (release('>'), release('<'));
                let text: Vec<&str> = rest.split(' ').filter(|word| !word.starts_with(['<', '>'])).collect();
                entry.fields.push(Line { name: name.to_owned(), text: text.join(" "), since, until });
            }
        }
        let known = structs.keys().cloned().collect();
        Self { structs, known }
    }

    /// Adds what v1.`minor` has, and notes what it no longer has. What the `oldest` release has is there in all.
    pub(crate) fn add(&mut self, release: BTreeMap<String, Struct>, minor: u8, oldest: u8) {
        for (name, new) in release {
            let always = minor <= oldest && !self.known.contains(&name);
            let since = (!always).then_some(minor);
            let old = self.structs.remove(&name).map(|old| old.fields).unwrap_or_default();
            let mut fields: Vec<Line> = new
                .fields
                .into_iter()
                .map(|line| {
                    let old = old.iter().find(|old| old.name == line.name);
                    Line { since: old.map_or(since, |old| old.since), ..line }
                })
                .collect();
            // What is gone keeps its place: after the field that stood before it.
            let mut place = 0;
            for line in old {
                if let Some(at) = fields.iter().position(|field| field.name == line.name) {
                    place = at + 1;
                } else {
                    fields.insert(place, Line { until: line.until.or(Some(minor)), ..line });
                    place += 1;
                }
            }
            self.structs.insert(name, Struct { flag: new.flag, fields });
        }
    }

    /// Without the structs that only types of older releases lead to.
    pub(crate) fn reachable_from<'a>(mut self, roots: impl Iterator<Item = &'a str>) -> Self {
        let mut structs = BTreeMap::new();
        let mut next: Vec<String> = roots.map(str::to_owned).collect();
        while let Some(name) = next.pop() {
            if let Some(entry) = self.structs.remove(&name) {
                let words = entry.fields.iter().flat_map(|line| line.text.split(' '));
                let types = words.map(|word| word.trim_start_matches(['*', '[', ']', '{', '}', '=']));
                next.extend(types.filter_map(|ty| ty.split(':').next()).map(str::to_owned));
                structs.insert(name, entry);
            }
        }
        Self { structs, known: self.known }
    }

    /// The table as text, after its header.
    pub(crate) fn write(&self, header: &str) -> String {
        let mut text = header.to_owned();
        for (name, Struct { flag, fields }) in &self.structs {
            let space = if flag.is_empty() { "" } else { " " };
            let _ = writeln!(text, "@{name}{space}{flag}");
            for Line { name, text: words, since, until } in fields {
                let since = since.map(|minor| format!(" >{minor}")).unwrap_or_default();
                let until = until.map(|minor| format!(" <{minor}")).unwrap_or_default();
                let _ = writeln!(text, "{name} {words}{since}{until}");
            }
        }
        text
    }
}
