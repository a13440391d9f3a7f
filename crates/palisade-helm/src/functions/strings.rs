//! Strings. What keeps pieces of a string keeps their sources as well.

use std::{fmt::Write as _, ops::Range, rc::Rc};

use super::{Arguments, print::strval};
use crate::{
    error::Failed,
    exec::Interpreter,
    text::{Out, Text},
    value::{Data, Map, Value},
};

pub(super) fn call(
    run: &mut Interpreter<'_>,
    name: &str,
    arguments: &Arguments<'_>,
) -> Option<Result<Value, Failed>> {
    Some(match name {
        "indent" | "nindent" => indented(run, arguments, name == "nindent"),
        "trim" => arguments.text(0).map(|text| cut(text, trimmed(&text.text, char::is_whitespace))),
        "trimAll" | "trimall" => arguments.str(0).and_then(|set| {
            let text = arguments.text(1)?;
            Ok(cut(text, trimmed(&text.text, |c| set.contains(c))))
        }),
        "trimPrefix" => arguments.str(0).and_then(|prefix| {
            let text = arguments.text(1)?;
            let start = if text.text.starts_with(prefix) { prefix.len() } else { 0 };
            Ok(cut(text, start..text.text.len()))
        }),
        "trimSuffix" => arguments.str(0).and_then(|suffix| {
            let text = arguments.text(1)?;
            let end = text.text.strip_suffix(suffix).map_or(text.text.len(), str::len);
            Ok(cut(text, 0..end))
        }),
        "trunc" => truncated(arguments),
        "substr" => arguments.text(2).and_then(|text| {
            let (from, to) = (arguments.int(0)?, arguments.int(1)?);
            let start = usize::try_from(from).unwrap_or_default().min(text.text.len());
            let end = usize::try_from(to).map_or(text.text.len(), |to| to.clamp(start, text.text.len()));
            Ok(cut(text, boundary(&text.text, start)..boundary(&text.text, end)))
        }),
        "abbrev" => arguments.text(1).and_then(|text| {
            let most = arguments.size(0)?;
            if most < 4 || text.text.len() <= most {
                return Ok(Value::text(text.clone()));
            }
            let end = boundary(&text.text, most - 3);
            Ok(Value::text(format!("{}...", text.text.get(..end).unwrap_or_default())))
        }),
        "upper" => arguments.str(0).map(|text| Value::text(text.to_uppercase())),
        "lower" => arguments.str(0).map(|text| Value::text(text.to_lowercase())),
        "title" => arguments.str(0).map(|text| Value::text(capitalised(text, true))),
        "untitle" => arguments.str(0).map(|text| Value::text(capitalised(text, false))),
        "swapcase" => arguments.str(0).map(|text| {
            let swap = |c: char| {
                if c.is_uppercase() { c.to_lowercase().to_string() } else { c.to_uppercase().to_string() }
            };
            Value::text(text.chars().map(swap).collect::<String>())
        }),
        "nospace" => arguments.str(0).map(|text| Value::text(text.split_whitespace().collect::<String>())),
        "initials" => arguments.str(0).map(|text| {
            Value::text(text.split_whitespace().filter_map(|word| word.chars().next()).collect::<String>())
        }),
        "snakecase" => arguments.str(0).map(|text| Value::text(words(text).join("_"))),
        "kebabcase" => arguments.str(0).map(|text| Value::text(words(text).join("-"))),
        "camelcase" => arguments.str(0).map(|text| {
            Value::text(words(text).iter().map(|word| capitalised(word, true)).collect::<String>())
        }),
        "repeat" => arguments.text(1).and_then(|text| {
            let count = arguments.size(0)?;
            run.charge(1, text.text.len().saturating_mul(count))?;
            Ok(Value::text(text.text.repeat(count)))
        }),
        "contains" => pair(arguments, |text, part| text.contains(part)),
        "hasPrefix" => pair(arguments, |text, part| text.starts_with(part)),
        "hasSuffix" => pair(arguments, |text, part| text.ends_with(part)),
        "replace" => replaced(run, arguments),
        "quote" | "squote" => quoted(run, arguments, name == "quote"),
        "cat" => joined(run, arguments.values.iter().filter(|value| !value.is_nil()), " "),
        "join" => arguments.at(1).and_then(|list| {
            let separator = strval(run, arguments.at(0)?)?;
            let Data::List(id) = list.data else { return Ok(Value::text(strval(run, list)?)) };
            let items = run.heap.items(id);
            joined(run, items.iter().filter(|value| !value.is_nil()), &separator.text)
        }),
        "toString" => arguments.at(0).and_then(|value| Ok(Value::text(strval(run, value)?))),
        "toStrings" => arguments.list(run, 0).and_then(|items| {
            let mut texts = Vec::with_capacity(items.len());
            for item in items.iter() {
                texts.push(Value::text(strval(run, item)?));
            }
            Ok(run.heap.list(texts))
        }),
        "split" | "splitn" => split_map(run, name == "splitn", arguments),
        "splitList" => arguments.str(1).and_then(|text| {
            let separator = arguments.str(0)?;
            run.charge(text.len() as u64, 16 * text.len())?;
            let items = pieces(text, separator).into_iter().map(Value::text).collect();
            Ok(run.heap.list(items))
        }),
        "wrap" => arguments.str(1).and_then(|text| Ok(Value::text(wrapped(text, arguments.size(0)?, "\n")))),
        "wrapWith" => arguments
            .str(2)
            .and_then(|text| Ok(Value::text(wrapped(text, arguments.size(0)?, arguments.str(1)?)))),
        "plural" => arguments.int(2).and_then(|count| Ok(arguments.at(usize::from(count != 1))?.clone())),
        "randAlphaNum" | "randAlpha" | "randNumeric" | "randAscii" => arguments.size(0).and_then(|count| {
            run.charge(1, count)?;
            // Never random: the same chart gives the same findings.
            Ok(Value::text(if name == "randNumeric" { "0" } else { "x" }.repeat(count)))
        }),
        "shuffle" => arguments.text(0).map(|text| Value::text(text.clone())),
        "base" | "osBase" => arguments.str(0).map(|path| {
            let path = path.trim_end_matches('/');
            Value::text(path.rsplit('/').next().filter(|base| !base.is_empty()).unwrap_or("."))
        }),
        "dir" | "osDir" => {
            arguments.str(0).map(|path| Value::text(path.rsplit_once('/').map_or(".", |(dir, _)| dir)))
        }
        "ext" | "osExt" => arguments.str(0).map(|path| {
            let base = path.rsplit('/').next().unwrap_or_default();
            Value::text(base.rfind('.').and_then(|dot| base.get(dot..)).unwrap_or_default())
        }),
        "clean" => arguments.text(0).map(|text| Value::text(text.clone())),
        "isAbs" => arguments.str(0).map(|path| Value::bool(path.starts_with('/'))),
        _ => return None,
    })
}

fn boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn cut(text: &Text, range: Range<usize>) -> Value {
    if text.marks.is_empty() {
        return Value::text(text.text.get(range).unwrap_or_default());
    }
    Value::text(text.slice(range))
}

fn trimmed(text: &str, is_cut: impl Fn(char) -> bool) -> Range<usize> {
    let start = text.len() - text.trim_start_matches(&is_cut).len();
    let end = text.trim_end_matches(&is_cut).len();
    start.min(end)..end
}

fn pair(arguments: &Arguments<'_>, test: impl Fn(&str, &str) -> bool) -> Result<Value, Failed> {
    Ok(Value::bool(test(arguments.str(1)?, arguments.str(0)?)))
}

fn indented(
    run: &mut Interpreter<'_>,
    arguments: &Arguments<'_>,
    on_new_line: bool,
) -> Result<Value, Failed> {
    let width = arguments.size(0)?.min(10_000);
    let text = arguments.text(1)?;
    let lines = text.text.matches('\n').count() + 1;
    run.charge(1 + lines as u64, text.text.len().saturating_add(lines.saturating_mul(width)))?;
    let pad = " ".repeat(width);
    let mut out = Out::default();
    if on_new_line {
        out.push_str("\n", text.source_at(0));
    }
    let mut at = 0;
    for line in text.text.split_inclusive('\n') {
        out.push_str(&pad, text.source_at(at));
        out.push(text, at..at + line.len());
        at += line.len();
    }
    if text.text.is_empty() || text.text.ends_with('\n') {
        out.push_str(&pad, text.source_at(at.saturating_sub(1)));
    }
    Ok(Value::text(out.finish()))
}

fn truncated(arguments: &Arguments<'_>) -> Result<Value, Failed> {
    let (most, text) = (arguments.int(0)?, arguments.text(1)?);
    let length = text.text.len();
    let size = usize::try_from(most.unsigned_abs()).unwrap_or(usize::MAX);
    Ok(if most >= 0 {
        cut(text, 0..boundary(&text.text, size.min(length)))
    } else {
        cut(text, boundary(&text.text, length.saturating_sub(size))..length)
    })
}

fn capitalised(text: &str, upper: bool) -> String {
    let mut start = true;
    let mut result = String::with_capacity(text.len());
    for c in text.chars() {
        if start && upper {
            result.extend(c.to_uppercase());
        } else if start {
            result.extend(c.to_lowercase());
        } else {
            result.push(c);
        }
        start = c.is_whitespace();
    }
    result
}

/// The words of a name, in lower case.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut before = ' ';
    for c in text.chars() {
        let separates = c.is_whitespace() || matches!(c, '_' | '-' | '.');
        if separates {
            before = ' ';
            continue;
        }
        let begins = before == ' ' || (c.is_uppercase() && !before.is_uppercase());
        match words.last_mut().filter(|_| !begins) {
            Some(word) => word.extend(c.to_lowercase()),
            None => words.push(c.to_lowercase().collect()),
        }
        before = c;
    }
    words
}

fn pieces(text: &str, separator: &str) -> Vec<String> {
    if separator.is_empty() {
        return text.chars().map(String::from).collect();
    }
    text.split(separator).map(str::to_owned).collect()
}

fn split_map(run: &mut Interpreter<'_>, counted: bool, arguments: &Arguments<'_>) -> Result<Value, Failed> {
    let separator = arguments.str(0)?;
    let text = arguments.str(if counted { 2 } else { 1 })?;
    run.charge(text.len() as u64, 16 * text.len())?;
    let parts: Vec<String> = if counted && !separator.is_empty() {
        text.splitn(arguments.size(1)?.max(1), separator).map(str::to_owned).collect()
    } else {
        pieces(text, separator)
    };
    let map: Map = parts
        .into_iter()
        .enumerate()
        .map(|(index, part)| (Rc::from(format!("_{index}")), Value::text(part)))
        .collect();
    Ok(run.heap.map(map))
}

fn replaced(run: &mut Interpreter<'_>, arguments: &Arguments<'_>) -> Result<Value, Failed> {
    let (old, new, text) = (arguments.str(0)?, arguments.str(1)?, arguments.text(2)?);
    let count = text.text.matches(old).count();
    run.charge(1 + count as u64, text.text.len().saturating_add(count.saturating_mul(new.len())))?;
    if old.is_empty() {
        return Ok(Value::text(text.text.replace(old, new)));
    }
    let mut out = Out::default();
    let mut at = 0;
    for (found, _) in text.text.match_indices(old) {
        out.push(text, at..found);
        out.push_str(new, text.source_at(found));
        at = found + old.len();
    }
    out.push(text, at..text.text.len());
    Ok(Value::text(out.finish()))
}

fn joined<'v>(
    run: &mut Interpreter<'_>,
    values: impl Iterator<Item = &'v Value>,
    separator: &str,
) -> Result<Value, Failed> {
    let mut out = Out::default();
    let mut deps = 0;
    for (index, value) in values.enumerate() {
        if index > 0 {
            out.push_str(separator, 0);
        }
        let own = run.heap.deps(value);
        deps = run.heap.union(deps, own);
        let text = strval(run, value)?;
        run.charge(1, text.text.len() + separator.len())?;
        out.push_whole(&text);
    }
    Ok(Value { deps, ..Value::text(out.finish()) })
}

/// A string as Go's `%q` writes it.
pub(super) fn go_quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                quoted.push('\\');
                quoted.push(c);
            }
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            c if c.is_control() => {
                let _ = write!(quoted, "\\x{:02x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn quoted(run: &mut Interpreter<'_>, arguments: &Arguments<'_>, double: bool) -> Result<Value, Failed> {
    let mut parts = Vec::new();
    for value in arguments.values.iter().filter(|value| !value.is_nil()) {
        let text = strval(run, value)?;
        run.charge(1, text.text.len())?;
        parts.push(if double { go_quoted(&text.text) } else { format!("'{}'", text.text) });
    }
    Ok(Value::text(parts.join(" ")))
}

fn wrapped(text: &str, width: usize, line_break: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut column = 0;
    for word in text.split_whitespace() {
        if column > 0 && column + 1 + word.len() > width {
            result.push_str(line_break);
            column = 0;
        } else if column > 0 {
            result.push(' ');
            column += 1;
        }
        result.push_str(word);
        column += word.len();
    }
    result
}
