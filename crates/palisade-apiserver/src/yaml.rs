//! YAML bodies as upstream reads them.

use palisade_apimachinery::decode;
use palisade_base::go;
use palisade_yaml::{Limits, LineIndex};
use serde_json::Value;
use thiserror::Error;

/// A body that was read.
pub(crate) struct Read {
    pub(crate) value: Value,
    /// The errors of a strict reader about keys that are there twice.
    pub(crate) duplicates: Option<String>,
}

/// Why a body cannot be read, worded as Go's parser words it as far as it has the same.
#[derive(Debug, Error)]
pub(crate) enum YamlError {
    /// Neither UTF-8 nor UTF-16.
    #[error("yaml: {0}")]
    Encoding(#[from] palisade_yaml::DecodeError),
    /// It does not follow the grammar; no line where Go counts none.
    #[error("yaml: {}{problem}", .line.map(|line| format!("line {line}: ")).unwrap_or_default())]
    Syntax { line: Option<usize>, problem: String },
    /// It has a value that JSON does not have.
    #[error("yaml: {0}")]
    Value(#[from] palisade_yaml::DeserializeError),
}

/// Reads a body that is YAML or JSON.
pub(crate) fn parse(body: &[u8]) -> Result<Read, YamlError> {
    // JSON with a key twice is read as YAML, which reports it.
    if body.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'{')
        && let Some(value) = decode::read_unique(body)
    {
        return Ok(Read { value, duplicates: None });
    }
    let text = palisade_yaml::decode(body)?;
    // Only the first document counts, and the parser below leaves empty ones out.
    match first_document(&text) {
        First::Empty => return Ok(Read { value: Value::Null, duplicates: None }),
        First::Missing => {
            let problem = "did not find expected node content".to_owned();
            return Err(YamlError::Syntax { line: None, problem });
        }
        First::Content => {}
    }
    let limits = Limits { max_bytes: crate::api::MAX_BODY, ..Limits::default() };
    let parsed = palisade_yaml::parse(&text, &limits);
    if let Some(error) = parsed.errors.first() {
        return Err(syntax_error(&text, error.span.start, &error.to_string()));
    }
    let Some(document) = parsed.documents.first() else {
        return Ok(Read { value: Value::Null, duplicates: None });
    };
    let lines = LineIndex::new(&text);
    let twice = document.duplicate_keys().iter().map(|twice| {
        let line = lines.position(twice.second.start).line;
        format!("\n  line {line}: key {} already set in map", go::quote(&twice.key))
    });
    let twice: String = twice.collect();
    let duplicates = (!twice.is_empty()).then(|| format!("yaml: unmarshal errors:{twice}"));
    let value = document.root().to_json()?;
    Ok(Read { value, duplicates })
}

/// What a stream begins with.
#[derive(Debug, PartialEq, Eq)]
enum First {
    /// A document with content, or no document at all.
    Content,
    /// A document that is opened and ends with nothing in it.
    Empty,
    /// The end of a document that was never opened.
    Missing,
}

fn first_document(text: &str) -> First {
    let marks = |line: &str, mark: &str| {
        line.strip_prefix(mark).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t']))
    };
    let is_blank = |line: &str| line.trim_start().is_empty() || line.trim_start().starts_with('#');
    let mut opened = false;
    for line in text.lines().filter(|line| !is_blank(line)) {
        match (opened, line) {
            (false, line) if marks(line, "---") && is_blank(&line[3..]) => opened = true,
            (false, line) if marks(line, "...") => return First::Missing,
            (false, line) if line.starts_with('%') => {}
            (true, line) if marks(line, "---") || marks(line, "...") => return First::Empty,
            _ => return First::Content,
        }
    }
    First::Content
}

/// Go's parser counts lines from nought where it parses, from one where it scans, and names none where it counts nought.
fn syntax_error(text: &str, at: usize, problem: &str) -> YamlError {
    let line = LineIndex::new(text).position(at).line;
    let (line, problem) = if problem.starts_with("a value cannot begin here") {
        (if line > 1 { line } else { 0 }, "mapping values are not allowed in this context")
    } else if problem == "expected a value here" {
        // The end of the text is the line after the last.
        let at_end = text.get(at..).is_some_and(|rest| rest.trim().is_empty());
        let end = text.lines().count();
        (if at_end { end } else { line - 1 }, "did not find expected node content")
    } else {
        (line, problem)
    };
    YamlError::Syntax { line: (line > 0).then_some(line), problem: problem.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_written_reads_back() {
        let document = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "labels": {"on": "yes", "1": "2"}, "finalizers": []},
            "data": {"text": "two\nlines", "colon": "a: b", "empty": ""},
            "list": [{"a": 1, "b": [true, null, [1, 2]]}, "x", {}],
        });
        let text = palisade_yaml::to_yaml(&document, 0);
        assert_eq!(parse(text.as_bytes()).expect("YAML").value, document, "{text}");
    }

    #[test]
    fn only_the_first_document_counts() {
        for (text, expected) in [
            ("a: 1", First::Content),
            ("", First::Content),
            ("---\na: 1", First::Content),
            ("# c\n\n--- # d\na: 1\n---\nb: 1", First::Content),
            ("--- {a: 1}\n---\nb: 1", First::Content),
            ("%YAML 1.1\n---\na: 1", First::Content),
            ("---\n---\na: 1", First::Empty),
            ("--- # c\n\n# d\n---\na: 1", First::Empty),
            ("---\n...\na: 1", First::Empty),
            ("...\n---\na: 1", First::Missing),
            ("---a: 1", First::Content),
        ] {
            assert_eq!(first_document(text), expected, "{text:?}");
        }
    }

    #[test]
    fn problems_are_worded_as_go_words_them() {
        for (text, expected) in [
            ("{", "yaml: line 1: did not find expected node content"),
            ("a: [\n", "yaml: line 1: did not find expected node content"),
            ("a: b: c", "yaml: mapping values are not allowed in this context"),
            ("x: y\na: b: c", "yaml: line 2: mapping values are not allowed in this context"),
        ] {
            let error = parse(text.as_bytes()).err().map(|error| error.to_string());
            assert_eq!(error.as_deref(), Some(expected), "{text}");
        }
        for (text, line) in [("a: 1\nb:\n  c: 1\n  c: 2\n", 4), (r#"{"a": 1, "b": {"c": 1, "c": 2}}"#, 1)] {
            let twice = parse(text.as_bytes()).expect("YAML").duplicates;
            let expected = format!("yaml: unmarshal errors:\n  line {line}: key \"c\" already set in map");
            assert_eq!(twice, Some(expected), "{text}");
        }
    }
}
