//! Recognises Helm charts and other Go templates, which look like YAML and are not.
//!
//! A template has to be rendered before it can be checked; the message for that is worth more than the syntax error
//! it would otherwise cause.

use crate::Span;

/// The first `{{ … }}` that is not inside quotes, a comment or a block scalar; `None` if this is no template.
///
/// Only a look at the lines: a text that reads well as YAML should be taken as YAML even if this finds something.
#[must_use]
pub fn looks_like_template(source: &str) -> Option<Span> {
    memchr::memmem::find(source.as_bytes(), b"{{")?;
    let mut block: Option<usize> = None;
    let mut offset = 0;
    for line in source.split_inclusive('\n') {
        let text = line.trim_end_matches(['\n', '\r']);
        let indent = text.len() - text.trim_start_matches(' ').len();
        let blank = text.trim().is_empty();
        if block.is_some_and(|parent| indent <= parent && !blank) {
            block = None;
        }
        if block.is_none() && !blank {
            if let Some(found) = find_in_line(text) {
                let start = offset + found;
                let rest = source.get(start..).unwrap_or_default();
                // An action may span lines, a comment action often does.
                if let Some(end) = rest.find("}}") {
                    return Some(Span::new(start, start + end + 2));
                }
            }
            if opens_block_scalar(text) {
                // The content is indented deeper than the key, which may follow dashes.
                block = Some(text.len() - text.trim_start_matches([' ', '-']).len() - dash_run(text));
            }
        }
        offset += line.len();
    }
    None
}

/// How much of the indentation is the last `- `: its content may stand below the key, but not left of it.
fn dash_run(text: &str) -> usize {
    let content = text.trim_start_matches([' ', '-']);
    let before = text.strip_suffix(content).unwrap_or_default();
    if content.contains(": ") || !before.ends_with(' ') {
        0
    } else {
        before.len() - before.trim_end_matches([' ', '-']).len()
    }
}

fn find_in_line(line: &str) -> Option<usize> {
    let mut quote = None;
    let mut previous = b' ';
    let bytes = line.as_bytes();
    for (at, &byte) in bytes.iter().enumerate() {
        match (quote, byte) {
            (None, b'{') if bytes.get(at + 1) == Some(&b'{') => return Some(at),
            (None, b'#') if previous == b' ' || previous == b'\t' => return None,
            // A quote opens a quoted text only where a value can begin: `it's` is plain.
            (None, b'"' | b'\'') if matches!(previous, b' ' | b'\t' | b'[' | b'{' | b',' | b':') => {
                quote = Some(byte);
            }
            (Some(b'"'), b'"') if previous != b'\\' => quote = None,
            (Some(b'\''), b'\'') => quote = None,
            _ => {}
        }
        previous = byte;
    }
    None
}

fn opens_block_scalar(line: &str) -> bool {
    let code = line.split(" #").next().unwrap_or_default().trim_end();
    let header = code.trim_end_matches(|character: char| matches!(character, '+' | '-' | '0'..='9'));
    let Some(before) = header.strip_suffix(['|', '>']) else { return false };
    before.is_empty() || before.ends_with([' ', '\t'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_templates_from_yaml_that_mentions_them() {
        for (case, source, expected) in [
            ("plain YAML", "a: 1\n", None),
            ("a value", "image: {{ .Values.image }}\n", Some("{{ .Values.image }}")),
            ("a control line", "a: 1\n{{- if .Values.x }}\nb: 2\n{{- end }}\n", Some("{{- if .Values.x }}")),
            ("a comment action over lines", "{{/*\ntext\n*/}}\na: 1\n", Some("{{/*\ntext\n*/}}")),
            ("inside double quotes", "image: \"{{ .Values.image }}\"\n", None),
            ("inside single quotes", "image: '{{ .Values.image }}'\n", None),
            ("after an apostrophe", "a: it's {{ .x }}\n", Some("{{ .x }}")),
            ("in a comment", "a: 1 # {{ x }}\n# {{ y }}\n", None),
            ("in a block scalar", "a: |\n  {{ x }}\n\n  more\nb: 1\n", None),
            ("in a folded scalar with header comment", "a: >-2 # c\n    {{ x }}\n", None),
            ("in a block scalar of a list item", "- |\n  {{ x }}\n- 1\n", None),
            ("in a block scalar of a key in a list item", "- a: |\n    {{ x }}\n  b: 1\n", None),
            ("after a block scalar", "a: |\n  x\nb: {{ y }}\n", Some("{{ y }}")),
            ("never closed", "a: {{ x\n", None),
            ("nested JSON", r#"{"a":{"b":{}}}"#, None),
        ] {
            assert_eq!(looks_like_template(source).map(|span| span.text(source)), expected, "{case}");
        }
    }
}
