//! The JSONPath that printer columns, scale and selectable fields use: fields, quoted keys, indices, `[*]`.
//!
//! Implements: the simple part of `k8s.io/client-go/util/jsonpath`.

use serde_json::Value;

/// A parsed path.
#[derive(Debug, Clone, Default)]
pub struct JsonPath {
    steps: Vec<JsonPathStep>,
    text: String,
}

#[derive(Debug, Clone)]
enum JsonPathStep {
    Field(String),
    Index(i64),
    All,
    /// `[?(@.field=="value")]`
    Filter(Vec<String>, Value),
}

impl JsonPath {
    /// Reads a path; what it does not understand matches nothing.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut steps = Vec::new();
        let mut rest = text.trim().trim_start_matches('{').trim_end_matches('}').trim_start_matches('$');
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('.') {
                let end = field_end(after);
                let name = unescape(&after[..end]);
                if name == "*" {
                    steps.push(JsonPathStep::All);
                } else if !name.is_empty() {
                    steps.push(JsonPathStep::Field(name));
                }
                rest = &after[end..];
            } else if let Some(after) = rest.strip_prefix('[') {
                let Some(end) = closing(after) else { break };
                let inner = &after[..end];
                steps.push(bracket(inner));
                rest = &after[end + 1..];
            } else {
                let end = field_end(rest).max(1);
                let mut at = end.min(rest.len());
                while !rest.is_char_boundary(at) {
                    at += 1;
                }
                steps.push(JsonPathStep::Field(unescape(&rest[..at])));
                rest = &rest[at..];
            }
        }
        Self { steps, text: text.to_owned() }
    }

    /// The text it was read from.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The first value it leads to.
    #[must_use]
    pub fn first<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        self.all(value).into_iter().next()
    }

    /// Every value it leads to.
    #[must_use]
    pub fn all<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        let mut found = vec![value];
        for step in &self.steps {
            found = found.into_iter().flat_map(|v| step.apply(v)).collect();
        }
        found
    }
}

impl JsonPathStep {
    fn apply<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        match self {
            Self::Field(name) => value.get(name).into_iter().collect(),
            Self::Index(at) => {
                let Some(items) = value.as_array() else { return Vec::new() };
                let len = i64::try_from(items.len()).unwrap_or(i64::MAX);
                let at = if *at < 0 { at.saturating_add(len) } else { *at };
                usize::try_from(at).ok().and_then(|at| items.get(at)).into_iter().collect()
            }
            Self::All => match value {
                Value::Array(items) => items.iter().collect(),
                Value::Object(map) => map.values().collect(),
                _ => Vec::new(),
            },
            Self::Filter(path, wanted) => {
                let Some(items) = value.as_array() else { return Vec::new() };
                items
                    .iter()
                    .filter(|item| path.iter().try_fold(*item, |v, key| v.get(key)) == Some(wanted))
                    .collect()
            }
        }
    }
}

fn field_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'.' | b'[' => break,
            _ => at += 1,
        }
    }
    at.min(bytes.len())
}

fn unescape(text: &str) -> String {
    text.replace("\\.", ".")
}

fn closing(text: &str) -> Option<usize> {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (None, ']') => return Some(at),
            (None, '\'' | '"') => quote = Some(c),
            (Some(q), c) if q == c => quote = None,
            _ => {}
        }
    }
    None
}

fn bracket(inner: &str) -> JsonPathStep {
    let trimmed = inner.trim();
    if trimmed == "*" {
        return JsonPathStep::All;
    }
    if let Ok(at) = trimmed.parse::<i64>() {
        return JsonPathStep::Index(at);
    }
    for quote in ['\'', '"'] {
        if let Some(key) = trimmed.strip_prefix(quote).and_then(|k| k.strip_suffix(quote)) {
            return JsonPathStep::Field(key.to_owned());
        }
    }
    if let Some(expression) = trimmed.strip_prefix("?(@.").and_then(|e| e.strip_suffix(')'))
        && let Some((path, wanted)) = expression.split_once("==")
    {
        let path = path.trim().split('.').map(str::to_owned).collect();
        let wanted = wanted.trim().trim_matches(['\'', '"']);
        let value = serde_json::from_str(wanted).unwrap_or_else(|_| Value::String(wanted.to_owned()));
        return JsonPathStep::Filter(path, value);
    }
    JsonPathStep::Field(trimmed.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn finds_the_values_of_columns() {
        let object = json!({"spec": {"size": 3, "a.b": 1}, "status": {"conditions": [
            {"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}]}});
        for (path, expected) in [
            (".spec.size", Some(json!(3))),
            (".spec['a.b']", Some(json!(1))),
            (".spec.a\\.b", Some(json!(1))),
            (".status.conditions[1].type", Some(json!("Other"))),
            (".status.conditions[-1].type", Some(json!("Other"))),
            (".status.conditions[?(@.type==\"Ready\")].status", Some(json!("True"))),
            ("{.spec.size}", Some(json!(3))),
            (".nope.x", None),
        ] {
            assert_eq!(JsonPath::parse(path).first(&object).cloned(), expected, "{path}");
        }
    }
}
