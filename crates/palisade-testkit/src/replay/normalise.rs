//! Takes out of an answer what differs from run to run, as the recordings do.

use serde_json::{Value, json};

use crate::client::Answer;

/// An answer in the form of the recordings.
pub(super) fn answer(answer: &Answer, namespace: &str) -> Value {
    let mut body = answer.body.clone();
    table(&mut body);
    rules_review(&mut body);
    value("", &mut body, namespace);
    let warnings: Vec<String> = answer.warnings.iter().map(|w| text(w, namespace)).collect();
    json!({"code": answer.code, "contentType": answer.content_type, "body": body, "warnings": warnings})
}

/// A watch event in the form of the recordings.
pub(super) fn event(mut event: Value, namespace: &str) -> Value {
    if let Some(metadata) = event.pointer_mut("/object/metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    value("", &mut event, namespace);
    event
}

fn value(key: &str, node: &mut Value, namespace: &str) {
    match node {
        Value::String(string) => {
            *string = match key {
                "uid" if !string.is_empty() => "<UID>".to_owned(),
                "resourceVersion" if !string.is_empty() => "<RV>".to_owned(),
                "token" if string.len() > 20 => "<TOKEN>".to_owned(),
                "continue" if !string.is_empty() => "<CONTINUE>".to_owned(),
                _ => text(string, namespace),
            };
        }
        Value::Array(items) => items.iter_mut().for_each(|item| value(key, item, namespace)),
        Value::Object(map) => {
            let renamed: Vec<String> = map.keys().filter(|k| k.contains(namespace)).cloned().collect();
            for old in renamed {
                if let Some(inner) = map.remove(&old) {
                    map.insert(old.replace(namespace, "<NS>"), inner);
                }
            }
            for (key, inner) in map.iter_mut() {
                value(key, inner, namespace);
            }
        }
        _ => {}
    }
}

/// Namespace, uids, times and generated suffixes in a text.
fn text(input: &str, namespace: &str) -> String {
    let input = input.replace(namespace, "<NS>");
    let mut out = String::with_capacity(input.len());
    let mut rest = input.as_str();
    while !rest.is_empty() {
        let boundary = out.chars().next_back().is_none_or(|c| !c.is_ascii_alphanumeric());
        if boundary && let Some(length) = uuid(rest) {
            out.push_str("<UID>");
            rest = rest.get(length..).unwrap_or_default();
        } else if boundary && let Some(length) = time(rest) {
            out.push_str("<TIME>");
            rest = rest.get(length..).unwrap_or_default();
        } else if let Some(after) = rest.strip_prefix("gen-")
            && let Some(suffix) = after.get(..5).filter(|s| s.bytes().all(|b| b.is_ascii_alphanumeric()))
        {
            out.push_str("gen-<RAND>");
            rest = after.get(suffix.len()..).unwrap_or_default();
        } else {
            let mut chars = rest.chars();
            out.extend(chars.next());
            rest = chars.as_str();
        }
    }
    out
}

fn uuid(text: &str) -> Option<usize> {
    let candidate = text.get(..36)?;
    let fits = candidate.bytes().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    });
    fits.then_some(36)
}

fn time(text: &str) -> Option<usize> {
    let pattern = b"0000-00-00T00:00:00";
    let candidate = text.get(..pattern.len())?;
    let fits = candidate.bytes().zip(pattern).all(|(byte, pattern)| match pattern {
        b'0' => byte.is_ascii_digit(),
        other => byte == *other,
    });
    if !fits {
        return None;
    }
    let end = text.get(pattern.len()..)?.find('Z')?;
    (end <= 10).then_some(pattern.len() + end + 1)
}

/// Ages and the prose of columns.
fn table(body: &mut Value) {
    if body.get("kind").and_then(Value::as_str) != Some("Table") {
        return;
    }
    let mut ages = Vec::new();
    for column in body.get_mut("columnDefinitions").and_then(Value::as_array_mut).into_iter().flatten() {
        let name = column.get("name").and_then(Value::as_str).unwrap_or_default();
        ages.push(matches!(name, "Age" | "Last Seen" | "First Seen" | "Duration" | "Last Schedule"));
        if let Some(column) = column.as_object_mut() {
            column.remove("description");
        }
    }
    for row in body.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten() {
        let cells = row.get_mut("cells").and_then(Value::as_array_mut).into_iter().flatten();
        for (cell, is_age) in cells.zip(&ages) {
            let shown = cell.as_str().unwrap_or_default();
            if *is_age
                && shown.ends_with(['s', 'm', 'h', 'd', 'y'])
                && shown.starts_with(|c: char| c.is_ascii_digit())
            {
                *cell = "<AGE>".into();
            }
        }
    }
}

fn rules_review(body: &mut Value) {
    if body.get("kind").and_then(Value::as_str) != Some("SelfSubjectRulesReview") {
        return;
    }
    for list in ["/status/resourceRules", "/status/nonResourceRules"] {
        if let Some(rules) = body.pointer_mut(list).and_then(Value::as_array_mut) {
            rules.sort_by_key(ToString::to_string);
        }
    }
}

/// Discovery need only agree on what is served here: leaves out what the other side does not have, and addresses.
pub(super) fn keep_common_resources(expected: &mut Value, actual: &mut Value) {
    let names = |answer: &Value| -> Vec<String> {
        let resources = answer.pointer("/body/resources").and_then(Value::as_array);
        let names = resources.into_iter().flatten().filter_map(|r| r.get("name")?.as_str());
        names.map(str::to_owned).collect()
    };
    let served = names(actual);
    if let Some(resources) = expected.pointer_mut("/body/resources").and_then(Value::as_array_mut) {
        resources
            .retain(|r| r.get("name").and_then(Value::as_str).is_some_and(|n| served.iter().any(|s| s == n)));
    }
    for answer in [expected, actual] {
        if let Some(body) = answer.get_mut("body").and_then(Value::as_object_mut) {
            body.remove("serverAddressByClientCIDRs");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn takes_out_what_differs_from_run_to_run() {
        for (input, expected) in [
            ("UID: 11111111-2222-3333-4444-555555555555, x", "UID: <UID>, x"),
            ("2026-01-01T00:00:00Z", "<TIME>"),
            ("2026-01-01T00:00:00.123456Z and 2026-01-01", "<TIME> and 2026-01-01"),
            ("gen-abc12", "gen-<RAND>"),
            ("gen-", "gen-"),
            ("in rec-x now", "in <NS> now"),
        ] {
            assert_eq!(text(input, "rec-x"), expected);
        }
    }
}
