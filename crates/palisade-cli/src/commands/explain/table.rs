//! An explanation as a table.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use palisade_model::compat::Compat;
use unicode_width::UnicodeWidthStr;

use super::{Explained, Setting};

const TITLE: Style = Style::new().bold();
const HEAD: Style = AnsiColor::BrightBlue.on_default().bold();
const UNSET: Style = Style::new().dimmed();
const NOTE: Style = AnsiColor::Yellow.on_default().bold();

/// A value longer than this has a line of its own.
const WIDEST_VALUE: usize = 36;

pub(super) fn draw(object: &Explained, compat: &Compat, color: bool, text: &mut String) {
    let paint = |style: Style| if color { style } else { Style::new() };
    let (title, head, unset, note) = (paint(TITLE), paint(HEAD), paint(UNSET), paint(NOTE));
    let name = object.name.as_deref().unwrap_or("(unnamed)");
    let namespace = object.namespace.as_ref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    let _ = writeln!(
        text,
        "{title}{} {namespace}{name}{title:#} ({}:{}) on API server {}, kubelet {}",
        object.kind, object.file, object.line, compat.api, compat.kubelet
    );
    for container in &object.containers {
        let _ = writeln!(text, "\n{title}{} {}{title:#}", container.kind.noun(), container.name);
        let rows: Vec<&Setting> = container
            .rows
            .iter()
            .filter(|row| object.windows || row.set || !row.field.starts_with("windows"))
            .collect();
        let width = |of: fn(&Setting) -> &str, least: usize| {
            rows.iter()
                .map(|row| of(row).width())
                .filter(|width| *width <= WIDEST_VALUE)
                .max()
                .unwrap_or(0)
                .max(least)
        };
        let (fields, values) = (width(|row| row.field, 5), width(|row| &row.value, 5));
        if rows.is_empty() {
            let _ = writeln!(text, "  {unset}nothing is set{unset:#}");
        } else {
            let _ = writeln!(text, "  {head}{:fields$}  {:values$}  FROM{head:#}", "FIELD", "VALUE");
        }
        for row in rows {
            let style = if row.set { Style::new() } else { unset };
            let line = row.line.map(|line| format!(" (line {line})")).unwrap_or_default();
            let pad = values.saturating_sub(row.value.width());
            let _ = writeln!(
                text,
                "  {style}{:fields$}  {}{:pad$}  {}{line}{style:#}",
                row.field, row.value, "", row.from
            );
        }
        for line in &container.notes {
            let _ = writeln!(text, "  {note}note{note:#}: {line}");
        }
    }
    text.push('\n');
}
