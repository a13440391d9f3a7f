//! YAML bodies as upstream reads them.

use palisade_apimachinery::decode;
use palisade_base::go;
use palisade_yaml::{Limits, LineIndex};
use serde_json::Value;

/// A body that was read.
pub(crate) struct Read {
    pub(crate) value: Value,
    /// The errors of a strict reader about keys that are there twice.
    pub(crate) duplicates: Option<String>,
}

/// Reads a body that is YAML or JSON. The error is worded as Go's parser words it, as far as it has the same.
pub(crate) fn parse(body: &[u8]) -> Result<Read, String> {
    // JSON with a key twice is read as YAML, which reports it.
    if body.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'{')
        && let Some(value) = decode::read_unique(body)
    {
        return Ok(Read { value, duplicates: None });
    }
    let text = palisade_yaml::decode(body).map_err(|error| format!("yaml: {error}"))?;
    let limits = Limits { max_bytes: crate::api::MAX_BODY, ..Limits::default() };
    let parsed = palisade_yaml::parse(&text, &limits);
    if let Some(error) = parsed.errors.first() {
        return Err(worded(&text, error.span.start, &error.to_string()));
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
    let value = document.root().to_json().map_err(|error| format!("yaml: {error}"))?;
    Ok(Read { value, duplicates })
}

/// Go's parser counts lines from nought where it parses, from one where it scans, and names none where it counts nought.
fn worded(text: &str, at: usize, problem: &str) -> String {
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
    if line == 0 { format!("yaml: {problem}") } else { format!("yaml: line {line}: {problem}") }
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
    fn problems_are_worded_as_go_words_them() {
        for (text, expected) in [
            ("{", "yaml: line 1: did not find expected node content"),
            ("a: [\n", "yaml: line 1: did not find expected node content"),
            ("a: b: c", "yaml: mapping values are not allowed in this context"),
            ("x: y\na: b: c", "yaml: line 2: mapping values are not allowed in this context"),
        ] {
            assert_eq!(parse(text.as_bytes()).err().as_deref(), Some(expected), "{text}");
        }
        for (text, line) in [("a: 1\nb:\n  c: 1\n  c: 2\n", 4), (r#"{"a": 1, "b": {"c": 1, "c": 2}}"#, 1)] {
            let twice = parse(text.as_bytes()).expect("YAML").duplicates;
            let expected = format!("yaml: unmarshal errors:\n  line {line}: key \"c\" already set in map");
            assert_eq!(twice, Some(expected), "{text}");
        }
    }
}
