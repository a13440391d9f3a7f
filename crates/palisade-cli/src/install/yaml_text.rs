//! JSON as YAML in block style: for manifests, and for objects of a cluster that are checked like files.

use std::fmt::Write as _;

use serde_json::Value;

/// Writes a value at an indentation, each line with its end.
pub fn block(value: &Value, indent: usize, out: &mut String) {
    let pad = " ".repeat(indent);
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (key, value) in fields {
                let _ = write!(out, "{pad}{}:", scalar_text(key));
                field(value, indent, out);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                let mut text = String::new();
                block(item, indent + 2, &mut text);
                // The first line goes beside the dash.
                let _ = write!(out, "{pad}- {}", text.trim_start());
            }
        }
        scalar => {
            let _ = writeln!(out, "{pad}{}", flow(scalar));
        }
    }
}

fn field(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            out.push('\n');
            block(value, indent + 2, out);
        }
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            block(value, indent, out);
        }
        scalar => {
            let _ = writeln!(out, " {}", flow(scalar));
        }
    }
}

fn flow(value: &Value) -> String {
    match value {
        Value::String(text) => scalar_text(text),
        other => other.to_string(),
    }
}

/// A string as plain text where it is unambiguous, and quoted as in JSON otherwise.
fn scalar_text(text: &str) -> String {
    let first = text.as_bytes().first().copied().unwrap_or_default();
    let plain = (first.is_ascii_alphabetic() || matches!(first, b'/' | b'.' | b'_'))
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b" ._/@()$=+,;-".contains(&byte) || byte == b':')
        && !text.contains(": ")
        && !text.ends_with([':', ' '])
        && !matches!(
            text.to_ascii_lowercase().as_str(),
            "true" | "false" | "null" | "yes" | "no" | "on" | "off" | "y" | "n" | ".inf" | ".nan"
        )
        && text.parse::<f64>().is_err();
    if plain { text.to_owned() } else { Value::String(text.to_owned()).to_string() }
}

#[cfg(test)]
mod tests {
    use palisade_yaml::{Limits, parse};
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn writes_block_style() {
        let mut text = String::new();
        let value =
            json!({"a": [{"b": "x", "c": []}, "w", ["z"]], "d": {"e": "true", "f": "1", "g": null, "h": {}}});
        block(&value, 0, &mut text);
        assert_eq!(
            text,
            "a:\n- b: x\n  c: []\n- w\n- - z\nd:\n  e: \"true\"\n  f: \"1\"\n  g: null\n  h: {}\n"
        );
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[ -~]{0,12}".prop_map(Value::from),
            "(yes|no|0x1|1e3|~|a: b|- x|# c|[.]nan|2001-01-01|a\nb)".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map("[ -~]{1,8}", inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn reads_back_as_what_it_was(value in any_json()) {
            let mut text = String::new();
            block(&value, 0, &mut text);
            let parsed = parse(&text, &Limits::default());
            prop_assert!(parsed.errors.is_empty(), "{text}");
            let back = parsed.documents[0].root().to_json().unwrap();
            prop_assert_eq!(back, value, "{}", text);
        }
    }
}
