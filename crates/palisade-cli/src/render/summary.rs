//! A line for each object with totals by rule and folder, and findings as a table.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    io::{self, Write},
    path::Path,
};

use anstyle::{AnsiColor, Style as Ansi};
use unicode_width::UnicodeWidthStr;

use super::human::{Style, clean};
use crate::{
    diagnostic::{Diagnostic, Severity},
    identity::objects,
    judge::{FileReport, Verdict},
};

const BOLD: Ansi = Ansi::new().bold();
const BAD: Ansi = AnsiColor::BrightRed.on_default().bold();
const MIDDLING: Ansi = AnsiColor::Yellow.on_default().bold();
const GOOD: Ansi = AnsiColor::Green.on_default();

/// What is counted of a rule or a folder.
#[derive(Debug, Default)]
struct Counts {
    objects: usize,
    allowed: usize,
    errors: usize,
    warnings: usize,
}

impl Counts {
    fn add(&mut self, finding: &Diagnostic) {
        match finding.severity {
            Severity::Error => self.errors += 1,
            Severity::Warning => self.warnings += 1,
        }
    }
}

/// One line for each object.
#[derive(Debug)]
pub(super) struct Summary {
    style: Style,
    rows: Vec<Vec<String>>,
    rules: BTreeMap<String, Counts>,
    folders: BTreeMap<String, Counts>,
}

impl Summary {
    pub(super) const fn new(style: Style) -> Self {
        Self { style, rows: Vec::new(), rules: BTreeMap::new(), folders: BTreeMap::new() }
    }

    pub(super) fn push(&mut self, report: &FileReport) {
        if report.verdicts.is_empty() && report.diagnostics.is_empty() {
            return;
        }
        let folder = self.folders.entry(folder(&report.file)).or_default();
        folder.objects += report.verdicts.len();
        folder.allowed += report.verdicts.iter().filter(|verdict| verdict.allowed).count();
        let mut touched = BTreeSet::new();
        for finding in &report.diagnostics {
            folder.add(finding);
            let rule = self.rules.entry(finding.code.as_str().to_owned()).or_default();
            rule.add(finding);
            if let Some(object) = &finding.object
                && touched.insert((&finding.code, object))
            {
                rule.objects += 1;
            }
        }
        for verdict in &report.verdicts {
            let own =
                || report.diagnostics.iter().filter(|finding| finding.object.as_ref() == Some(&verdict.id));
            let state = if !verdict.allowed {
                "denied"
            } else if own().any(|finding| finding.severity == Severity::Error) {
                "invalid"
            } else {
                "allowed"
            };
            self.row(state, &verdict.title(), &report.file, own());
        }
        let known = objects(report);
        let others = || {
            report
                .diagnostics
                .iter()
                .filter(|finding| finding.object.as_ref().is_none_or(|id| !known.contains_key(id)))
        };
        if others().next().is_some() {
            let state = if report.errors > 0 { "unchecked" } else { "file" };
            self.row(state, "-", &report.file, others());
        }
    }

    fn row<'f>(
        &mut self,
        state: &str,
        object: &str,
        file: &str,
        findings: impl Iterator<Item = &'f Diagnostic>,
    ) {
        let mut codes: BTreeMap<&str, usize> = BTreeMap::new();
        for finding in findings {
            *codes.entry(finding.code.as_str()).or_default() += 1;
        }
        let codes = codes
            .into_iter()
            .map(|(code, count)| if count == 1 { code.to_owned() } else { format!("{code} ({count})") });
        let codes = codes.collect::<Vec<_>>().join(", ");
        self.rows.push(vec![state.to_owned(), clean(object), clean(file), codes]);
    }

    pub(super) fn finish(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut text = String::new();
        draw(&["RESULT", "OBJECT", "FILE", "FINDINGS"], &self.rows, &[], self.style, &mut text);
        let number = |count: usize| count.to_string();
        if !self.rules.is_empty() {
            let rows = self.rules.iter().map(|(code, counts)| {
                vec![code.clone(), number(counts.errors), number(counts.warnings), number(counts.objects)]
            });
            text.push('\n');
            let head = ["RULE", "ERRORS", "WARNINGS", "OBJECTS"];
            draw(&head, &rows.collect::<Vec<_>>(), &[1, 2, 3], self.style, &mut text);
        }
        if !self.folders.is_empty() {
            let rows = self.folders.iter().map(|(folder, counts)| {
                let denied = counts.objects - counts.allowed;
                let figures = [counts.objects, counts.allowed, denied, counts.errors, counts.warnings];
                std::iter::once(clean(folder)).chain(figures.map(number)).collect()
            });
            text.push('\n');
            let head = ["FOLDER", "OBJECTS", "ALLOWED", "DENIED", "ERRORS", "WARNINGS"];
            draw(&head, &rows.collect::<Vec<_>>(), &[1, 2, 3, 4, 5], self.style, &mut text);
        }
        out.write_all(text.as_bytes())
    }
}

fn folder(file: &str) -> String {
    if let Some(object) = file.strip_prefix("cluster:") {
        let namespace = object.split('/').next().unwrap_or_default();
        return format!("cluster:{namespace}");
    }
    let parent = Path::new(file).parent().map(|parent| parent.to_string_lossy().into_owned());
    parent.filter(|parent| !parent.is_empty()).unwrap_or_else(|| ".".to_owned())
}

/// One line for each finding.
#[derive(Debug)]
pub(super) struct Table {
    style: Style,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) const fn new(style: Style) -> Self {
        Self { style, rows: Vec::new() }
    }

    pub(super) fn push(&mut self, report: &FileReport) {
        let objects = objects(report);
        for finding in &report.diagnostics {
            let object =
                finding.object.as_ref().and_then(|id| objects.get(id)).map(|verdict| Verdict::title(verdict));
            let place = finding.at.as_ref().map_or_else(
                || finding.file.to_string(),
                |label| format!("{}:{}:{}", finding.file, label.line, label.column),
            );
            self.rows.push(vec![
                finding.severity.as_str().to_owned(),
                finding.code.as_str().to_owned(),
                clean(object.as_deref().unwrap_or("-")),
                clean(finding.container.as_deref().unwrap_or("-")),
                clean(&place),
                clean(&finding.summary),
            ]);
        }
    }

    pub(super) fn finish(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut text = String::new();
        if !self.rows.is_empty() {
            let head = ["SEVERITY", "CODE", "OBJECT", "CONTAINER", "PLACE", "MESSAGE"];
            draw(&head, &self.rows, &[], self.style, &mut text);
        }
        out.write_all(text.as_bytes())
    }
}

/// Columns with a head; some are figures, which end below each other.
fn draw(head: &[&str], rows: &[Vec<String>], figures: &[usize], style: Style, text: &mut String) {
    let paint = |ansi: Ansi| if style.color { ansi } else { Ansi::new() };
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.width());
        cells.chain(head.get(column).map(|name| name.width())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut line = |cells: &mut dyn Iterator<Item = &str>, of: &dyn Fn(&str) -> Ansi| {
        let mut drawn = String::new();
        for ((column, cell), width) in cells.enumerate().zip(&widths) {
            let pad = " ".repeat(width.saturating_sub(cell.width()));
            let gap = if column > 0 { "  " } else { "" };
            let ansi = paint(of(cell));
            let _ = if figures.contains(&column) {
                write!(drawn, "{gap}{pad}{ansi}{cell}{ansi:#}")
            } else {
                write!(drawn, "{gap}{ansi}{cell}{ansi:#}{pad}")
            };
        }
        text.push_str(drawn.trim_end());
        text.push('\n');
    };
    line(&mut head.iter().copied(), &|_| BOLD);
    for row in rows {
        line(&mut row.iter().map(String::as_str), &|cell| match cell {
            "denied" | "error" | "unchecked" | "invalid" => BAD,
            "warning" => MIDDLING,
            "allowed" => GOOD,
            _ => Ansi::new(),
        });
    }
}
