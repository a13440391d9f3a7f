//! `print`, `println`, `printf`: values as Go writes them.
//!
//! Implements: Go, package fmt, "Printing". <https://pkg.go.dev/fmt>

use std::{fmt::Write as _, rc::Rc};

use super::Arguments;
use crate::{
    error::{Failed, TemplateErrorKind},
    exec::Interpreter,
    text::{Out, Text},
    value::{Data, Value, type_of},
};

/// Levels of lists and maps.
const MAX_DEPTH: usize = 60;

/// A value as `%v` writes it.
pub(crate) fn display(run: &mut Interpreter<'_>, value: &Value) -> Result<String, Failed> {
    let mut text = String::new();
    write_value(run, value, &mut text, 0)?;
    Ok(text)
}

/// A value as Sprig's `strval` writes it.
pub(crate) fn strval(run: &mut Interpreter<'_>, value: &Value) -> Result<Text, Failed> {
    match &value.data {
        Data::Str(text) => Ok(text.clone()),
        _ => display(run, value).map(Text::from),
    }
}

fn write_value(
    run: &mut Interpreter<'_>,
    value: &Value,
    text: &mut String,
    depth: usize,
) -> Result<(), Failed> {
    if depth > MAX_DEPTH {
        return Err(TemplateErrorKind::Limit("60 levels of lists and maps").into());
    }
    run.charge(1, 0)?;
    match &value.data {
        Data::Nil => text.push_str(if depth == 0 { "<no value>" } else { "<nil>" }),
        Data::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
        Data::Int(value, _) => {
            let _ = write!(text, "{value}");
        }
        Data::Float(value) => text.push_str(&float(*value)),
        Data::Str(string) => {
            run.charge(0, string.text.len())?;
            text.push_str(&string.text);
        }
        Data::List(id) => {
            text.push('[');
            for (index, item) in run.heap.items(*id).iter().enumerate() {
                if index > 0 {
                    text.push(' ');
                }
                write_value(run, item, text, depth + 1)?;
            }
            text.push(']');
        }
        Data::Map(id) => {
            text.push_str("map[");
            for (index, (key, item)) in run.heap.entries(*id).iter().enumerate() {
                if index > 0 {
                    text.push(' ');
                }
                run.charge(0, key.len())?;
                text.push_str(key);
                text.push(':');
                write_value(run, item, text, depth + 1)?;
            }
            text.push(']');
        }
        Data::Files(_) => text.push_str("map[]"),
        Data::ApiVersions => text.push_str("[]"),
    }
    Ok(())
}

/// A float as Go's `%v` writes it.
pub(crate) fn float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..21).contains(&exponent) {
        return format!("{value}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

pub(super) fn call(
    run: &mut Interpreter<'_>,
    name: &str,
    arguments: &Arguments<'_>,
) -> Result<Value, Failed> {
    match name {
        "printf" => {
            let (format, rest) = (arguments.text(0)?, arguments.values.get(1..).unwrap_or_default());
            Ok(Value::text(printf(run, format, rest)?))
        }
        "print" | "println" => {
            let mut out = Out::default();
            let mut was_string = true;
            for (index, value) in arguments.values.iter().enumerate() {
                let is_string = matches!(value.data, Data::Str(_));
                if index > 0 && (name == "println" || (!is_string && !was_string)) {
                    out.push_str(" ", 0);
                }
                was_string = is_string;
                let text = shown(run, value)?;
                out.push_whole(&text);
            }
            if name == "println" {
                out.push_str("\n", 0);
            }
            Ok(Value::text(out.finish()))
        }
        _ => {
            let text = strval(run, arguments.at(0)?)?;
            let mut escaped = String::new();
            for c in text.text.chars() {
                match (name, c) {
                    ("html", '<') => escaped.push_str("&lt;"),
                    ("html", '>') => escaped.push_str("&gt;"),
                    ("html", '&') => escaped.push_str("&amp;"),
                    ("html", '"') => escaped.push_str("&#34;"),
                    ("html", '\'') => escaped.push_str("&#39;"),
                    ("js", '"' | '\'' | '\\') => {
                        escaped.push('\\');
                        escaped.push(c);
                    }
                    ("urlquery", ' ') => escaped.push('+'),
                    ("urlquery", c) if !(c.is_ascii_alphanumeric() || "-_.~".contains(c)) => {
                        let mut bytes = [0; 4];
                        for byte in c.encode_utf8(&mut bytes).bytes() {
                            let _ = write!(escaped, "%{byte:02X}");
                        }
                    }
                    (_, c) => escaped.push(c),
                }
            }
            Ok(Value::text(escaped))
        }
    }
}

/// As `%v` writes it, with the marks of a string.
fn shown(run: &mut Interpreter<'_>, value: &Value) -> Result<Text, Failed> {
    match &value.data {
        Data::Nil => Ok(Text::from("<nil>")),
        _ => strval(run, value),
    }
}

#[derive(Default)]
struct Flags {
    minus: bool,
    plus: bool,
    zero: bool,
    space: bool,
    sharp: bool,
    width: Option<usize>,
    precision: Option<usize>,
}

/// The widest field; wider ones are only written to waste memory.
const MAX_WIDTH: usize = 10_000;

fn printf(run: &mut Interpreter<'_>, format: &Text, values: &[Value]) -> Result<Text, Failed> {
    let mut out = Out::default();
    let source: Rc<str> = Rc::clone(&format.text);
    let mut rest = source.char_indices().peekable();
    let mut next = 0;
    let mut plain = 0;
    while let Some((at, c)) = rest.next() {
        if c != '%' {
            continue;
        }
        out.push(format, plain..at);
        let mut flags = Flags::default();
        let mut verb = None;
        for (_, c) in rest.by_ref() {
            match c {
                '-' => flags.minus = true,
                '+' => flags.plus = true,
                '#' => flags.sharp = true,
                ' ' => flags.space = true,
                '0' if flags.width.is_none() && flags.precision.is_none() => flags.zero = true,
                '0'..='9' => {
                    let digit = c.to_digit(10).unwrap_or_default() as usize;
                    let slot =
                        if flags.precision.is_some() { &mut flags.precision } else { &mut flags.width };
                    *slot = Some((slot.unwrap_or_default() * 10 + digit).min(MAX_WIDTH));
                }
                '*' => {
                    let width = values.get(next).map_or(0, super::numbers::to_int);
                    next += 1;
                    let width = usize::try_from(width).unwrap_or_default().min(MAX_WIDTH);
                    let slot =
                        if flags.precision.is_some() { &mut flags.precision } else { &mut flags.width };
                    *slot = Some(width);
                }
                '.' => flags.precision = Some(0),
                c => {
                    verb = Some(c);
                    break;
                }
            }
        }
        plain = rest.peek().map_or(source.len(), |(at, _)| *at);
        match verb {
            None => out.push_str("%!(NOVERB)", 0),
            Some('%') => out.push_str("%", 0),
            Some(verb) => match values.get(next) {
                None => out.push_str(&format!("%!{verb}(MISSING)"), 0),
                Some(value) => {
                    next += 1;
                    let text = formatted(run, verb, &flags, value)?;
                    run.charge(1, text.text.len() + flags.width.unwrap_or_default())?;
                    let length = text.text.chars().count();
                    let pad = flags.width.unwrap_or_default().saturating_sub(length);
                    if pad > 0 && !flags.minus {
                        let zero = flags.zero && !matches!(verb, 's' | 'q' | 'v' | 't' | 'T');
                        if let Some(digits) = text.text.strip_prefix('-').filter(|_| zero) {
                            out.push_str(&format!("-{}{digits}", "0".repeat(pad)), 0);
                        } else {
                            out.push_str(&if zero { "0" } else { " " }.repeat(pad), 0);
                            out.push_whole(&text);
                        }
                    } else {
                        out.push_whole(&text);
                        out.push_str(&" ".repeat(pad), 0);
                    }
                }
            },
        }
    }
    out.push(format, plain..source.len());
    if next < values.len() {
        let mut extra = String::from("%!(EXTRA ");
        for (index, value) in values.iter().enumerate().skip(next) {
            let shown = shown(run, value)?;
            let comma = if index > next { ", " } else { "" };
            let _ = write!(extra, "{comma}{}={}", type_of(value), shown.text);
        }
        extra.push(')');
        out.push_str(&extra, 0);
    }
    Ok(out.finish())
}

fn formatted(run: &mut Interpreter<'_>, verb: char, flags: &Flags, value: &Value) -> Result<Text, Failed> {
    let text = match (verb, &value.data) {
        ('v', _) | ('s', Data::List(_) | Data::Map(_)) | ('d', Data::List(_)) => return shown(run, value),
        ('T', _) => type_of(value).to_owned(),
        ('s', Data::Str(text)) => {
            return Ok(match flags.precision {
                Some(most) => {
                    let end = text.text.char_indices().nth(most).map_or(text.text.len(), |(at, _)| at);
                    text.slice(0..end)
                }
                None => text.clone(),
            });
        }
        ('s' | 'd' | 'q', Data::Nil) => format!("%!{verb}(<nil>)"),
        ('q', Data::Str(text)) => super::strings::go_quoted(&text.text),
        ('d', Data::Int(value, _)) if flags.plus && *value >= 0 => format!("+{value}"),
        ('d', Data::Int(value, _)) | ('g', Data::Int(value, crate::value::IntKind::Yaml)) => {
            value.to_string()
        }
        ('x', Data::Int(value, _)) => format!("{value:x}"),
        ('X', Data::Int(value, _)) => format!("{value:X}"),
        ('o', Data::Int(value, _)) => format!("{value:o}"),
        ('b', Data::Int(value, _)) => format!("{value:b}"),
        ('c', Data::Int(value, _)) => {
            let code = u32::try_from(*value).unwrap_or(0xfffd);
            char::from_u32(code).unwrap_or('\u{fffd}').to_string()
        }
        ('x', Data::Str(text)) => text.text.bytes().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        }),
        ('f' | 'F', Data::Float(value)) => format!("{value:.*}", flags.precision.unwrap_or(6).min(100)),
        // A number of YAML is a float64.
        #[expect(clippy::cast_precision_loss, reason = "Go computes with float64 here")]
        ('f' | 'F', Data::Int(value, crate::value::IntKind::Yaml)) => {
            format!("{:.*}", flags.precision.unwrap_or(6).min(100), *value as f64)
        }
        ('g', Data::Float(value)) => float(*value),
        ('t', Data::Bool(value)) => value.to_string(),
        (verb, _) => {
            let shown = shown(run, value)?;
            format!("%!{verb}({}={})", type_of(value), shown.text)
        }
    };
    Ok(text.into())
}
