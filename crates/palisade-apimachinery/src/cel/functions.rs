//! The functions of the language and of the libraries Kubernetes adds.
//!
//! Implements: Common Expression Language in Kubernetes, "CEL options, language features and libraries". The library for
//! authorisation is in [`super::authorizer`].
//! <https://kubernetes.io/docs/reference/using-api/cel/#cel-options-language-features-and-libraries>

use std::cmp::Ordering;
use std::net::IpAddr;
use std::sync::Arc;

use palisade_base::quantity::Quantity;

use super::budget::{Budget, Fault};
use super::eval::element;
use super::url::Url;
use super::value::{Key, Val};
use super::{authorizer, formats, times};

type Outcome = Result<Val, Fault>;

/// Functions of no library, by how many values they take; members count their target.
const FUNCTIONS: &[&str] = &[
    "!_",
    "-_",
    "@in",
    "_!=_",
    "_%_",
    "_&&_",
    "_*_",
    "_+_",
    "_-_",
    "_/_",
    "_<=_",
    "_<_",
    "_==_",
    "_>=_",
    "_>_",
    "_?._",
    "_?_:_",
    "_[?_]",
    "_[_]",
    "_||_",
    "@not_strictly_false",
    "add",
    "asApproximateFloat",
    "asInteger",
    "bool",
    "bytes",
    "charAt",
    "cidr",
    "compareTo",
    "contains",
    "containsCIDR",
    "containsIP",
    "distinct",
    "double",
    "duration",
    "dyn",
    "endsWith",
    "family",
    "find",
    "findAll",
    "flatten",
    "format",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getEscapedPath",
    "getFullYear",
    "getHost",
    "getHostname",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getPort",
    "getQuery",
    "getScheme",
    "getSeconds",
    "hasValue",
    "indexOf",
    "int",
    "ip",
    "isCIDR",
    "isGlobalUnicast",
    "isGreaterThan",
    "isIP",
    "isInteger",
    "isLessThan",
    "isLinkLocalMulticast",
    "isLinkLocalUnicast",
    "isLoopback",
    "isQuantity",
    "isSorted",
    "isURL",
    "isUnspecified",
    "join",
    "lastIndexOf",
    "lowerAscii",
    "masked",
    "matches",
    "max",
    "min",
    "or",
    "orValue",
    "prefixLength",
    "quantity",
    "replace",
    "reverse",
    "sign",
    "size",
    "slice",
    "sort",
    "split",
    "startsWith",
    "string",
    "sub",
    "substring",
    "sum",
    "timestamp",
    "trim",
    "type",
    "uint",
    "upperAscii",
    "url",
    "validate",
    "value",
];

/// Functions with a qualified name.
const QUALIFIED: &[&str] = &[
    "ip.isCanonical",
    "jsonpatch.escapeKey",
    "optional.none",
    "optional.of",
    "optional.ofNonZeroValue",
    "sets.contains",
    "sets.equivalent",
    "sets.intersects",
    "strings.quote",
];

pub(super) fn is_known(name: &str) -> bool {
    FUNCTIONS.contains(&name)
}

pub(super) fn is_namespace(name: &str) -> bool {
    matches!(name, "optional" | "sets" | "strings" | "ip" | "format" | "jsonpatch")
}

pub(super) fn is_known_in(space: &str, name: &str) -> bool {
    let qualified = format!("{space}.{name}");
    QUALIFIED.contains(&qualified.as_str())
        || space == "format" && (name == "named" || formats::named(name).is_some())
}

pub(super) fn type_named(name: &str) -> Option<&'static str> {
    const TYPES: &[&str] = &[
        "bool",
        "bytes",
        "double",
        "int",
        "list",
        "map",
        "null_type",
        "string",
        "type",
        "uint",
        "optional_type",
    ];
    TYPES.iter().find(|known| **known == name).copied()
}

/// Calls a function.
pub(super) fn call(name: &str, is_member: bool, values: &[Val], budget: &mut Budget) -> Outcome {
    if let Some(outcome) = operator(name, values, budget) {
        return outcome;
    }
    if name.contains('.') {
        return qualified(name, values, budget);
    }
    if !is_member {
        return global(name, values, budget);
    }
    match values {
        [Val::String(text), rest @ ..] => on_text(name, text, rest, budget),
        [Val::List(items), rest @ ..] => on_list(name, items, rest, budget),
        [Val::Map(map)] if name == "size" => Ok(count(map.len())),
        [Val::Bytes(bytes)] if name == "size" => Ok(count(bytes.len())),
        [Val::Optional(value)] => match (name, value) {
            ("hasValue", value) => Ok(Val::Bool(value.is_some())),
            ("value", Some(value)) => Ok((**value).clone()),
            ("value", None) => Fault::error("optional.none() dereference"),
            _ => Fault::overload(),
        },
        [time @ (Val::Timestamp(_) | Val::Duration(_)), rest @ ..] => times::getter(name, time, rest),
        [Val::Authorizer(value), rest @ ..] => authorizer::call(name, value, rest, budget),
        [Val::Url(url)] => on_url(name, url, budget),
        [Val::Ip(address)] => on_address(name, *address),
        [Val::Cidr(address, bits), rest @ ..] => on_cidr(name, *address, *bits, rest),
        [Val::Quantity(quantity), rest @ ..] => on_quantity(name, *quantity, rest),
        [Val::Format(format), Val::String(text)] if name == "validate" => {
            budget.traverse(text.len())?;
            Ok(formats::validate(format, text))
        }
        _ => Fault::overload(),
    }
}

fn operator(name: &str, values: &[Val], budget: &mut Budget) -> Option<Outcome> {
    Some(match (name, values) {
        ("!_", [Val::Bool(is)]) => Ok(Val::Bool(!is)),
        ("-_", [Val::Int(number)]) => number.checked_neg().map(Val::Int).ok_or_else(overflow),
        ("-_", [Val::Double(number)]) => Ok(Val::Double(-number)),
        ("-_", [Val::Duration(nanos)]) => Ok(Val::Duration(nanos.saturating_neg())),
        ("_==_", [a, b]) => a.equals(b, budget).map(Val::Bool),
        ("_!=_", [a, b]) => a.equals(b, budget).map(|is| Val::Bool(!is)),
        ("_<_", [a, b]) => ordered(a, b, budget, Ordering::is_lt),
        ("_<=_", [a, b]) => ordered(a, b, budget, Ordering::is_le),
        ("_>_", [a, b]) => ordered(a, b, budget, Ordering::is_gt),
        ("_>=_", [a, b]) => ordered(a, b, budget, Ordering::is_ge),
        ("_[_]", [operand, at]) => element(operand, at),
        ("@in", [item, Val::List(items)]) => {
            position(items.iter(), item, budget).map(|at| Val::Bool(at.is_some()))
        }
        ("@in", [item, Val::Map(map)]) => {
            Ok(Val::Bool(Key::of(item).is_some_and(|key| map.contains_key(&key))))
        }
        ("_+_", [a, b]) => add(a, b, budget),
        ("_-_" | "_*_" | "_/_" | "_%_", [a, b]) => arithmetic(name, a, b),
        ("!_" | "-_" | "@in", _) => Fault::overload(),
        _ => return None,
    })
}

fn ordered(a: &Val, b: &Val, budget: &mut Budget, holds: fn(Ordering) -> bool) -> Outcome {
    let is_nan = |value: &Val| matches!(value, Val::Double(number) if number.is_nan());
    match a.order(b, budget)? {
        Some(order) => Ok(Val::Bool(holds(order))),
        None if is_nan(a) || is_nan(b) => Ok(Val::Bool(false)),
        None => Fault::overload(),
    }
}

fn add(a: &Val, b: &Val, budget: &mut Budget) -> Outcome {
    match (a, b) {
        (Val::String(a), Val::String(b)) => {
            budget.allocate(a.len().saturating_add(b.len()))?;
            Ok(Val::String([&**a, &**b].concat().into()))
        }
        (Val::Bytes(a), Val::Bytes(b)) => {
            budget.allocate(a.len().saturating_add(b.len()))?;
            Ok(Val::Bytes([&**a, &**b].concat().into()))
        }
        (Val::List(a), Val::List(b)) => {
            budget.allocate_values(a.len().saturating_add(b.len()))?;
            Ok(Val::list(a.iter().chain(b.iter()).cloned().collect()))
        }
        (Val::Duration(a), Val::Duration(b)) => Ok(Val::Duration(a.saturating_add(*b))),
        (Val::Timestamp(a), Val::Duration(b)) | (Val::Duration(b), Val::Timestamp(a)) => {
            times::timestamp(a.saturating_add(*b))
        }
        _ => arithmetic("_+_", a, b),
    }
}

fn overflow() -> Fault {
    Fault::Error("integer overflow".to_owned())
}

fn arithmetic(name: &str, a: &Val, b: &Val) -> Outcome {
    let zero = |is_zero: bool| match name {
        "_/_" if is_zero => Fault::error("division by zero"),
        "_%_" if is_zero => Fault::error("modulus by zero"),
        _ => Ok(()),
    };
    macro_rules! checked {
        ($a:expr, $b:expr) => {
            match name {
                "_+_" => $a.checked_add(*$b),
                "_-_" => $a.checked_sub(*$b),
                "_*_" => $a.checked_mul(*$b),
                "_/_" => $a.checked_div(*$b),
                _ => $a.checked_rem(*$b),
            }
        };
    }
    match (a, b) {
        (Val::Int(a), Val::Int(b)) => {
            zero(*b == 0)?;
            checked!(a, b).map(Val::Int).ok_or_else(overflow)
        }
        (Val::Uint(a), Val::Uint(b)) => {
            zero(*b == 0)?;
            checked!(a, b).map(Val::Uint).ok_or_else(|| Fault::Error("unsigned integer overflow".to_owned()))
        }
        (Val::Double(a), Val::Double(b)) => match name {
            "_+_" => Ok(Val::Double(a + b)),
            "_-_" => Ok(Val::Double(a - b)),
            "_*_" => Ok(Val::Double(a * b)),
            "_/_" => Ok(Val::Double(a / b)),
            _ => Fault::overload(),
        },
        (Val::Duration(a), Val::Duration(b)) if name == "_-_" => Ok(Val::Duration(a.saturating_sub(*b))),
        (Val::Timestamp(a), Val::Timestamp(b)) if name == "_-_" => Ok(Val::Duration(a.saturating_sub(*b))),
        (Val::Timestamp(a), Val::Duration(b)) if name == "_-_" => times::timestamp(a.saturating_sub(*b)),
        _ => Fault::overload(),
    }
}

fn count(length: usize) -> Val {
    Val::Int(i64::try_from(length).unwrap_or(i64::MAX))
}

fn position<'v>(
    items: impl Iterator<Item = &'v Val>,
    wanted: &Val,
    budget: &mut Budget,
) -> Result<Option<usize>, Fault> {
    for (at, item) in items.enumerate() {
        if item.equals(wanted, budget)? {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

fn global(name: &str, values: &[Val], budget: &mut Budget) -> Outcome {
    let failed = |what: &str, text: &str| Fault::error(format!("{what}: {text:?}"));
    match (name, values) {
        ("dyn", [value]) => Ok(value.clone()),
        ("type", [value]) => Ok(Val::Type(value.type_name())),
        ("size", [Val::String(text)]) => on_text("size", text, &[], budget),
        ("size", [Val::List(items)]) => Ok(count(items.len())),
        ("size", [Val::Map(map)]) => Ok(count(map.len())),
        ("size", [Val::Bytes(bytes)]) => Ok(count(bytes.len())),
        ("bool" | "int" | "uint" | "double" | "string" | "bytes", [value]) => convert(name, value, budget),
        ("matches", [Val::String(text), pattern]) => {
            on_text("matches", text, std::slice::from_ref(pattern), budget)
        }
        ("duration", [Val::Duration(_)]) | ("timestamp", [Val::Timestamp(_)]) => Ok(values[0].clone()),
        ("timestamp", [Val::Int(seconds)]) => times::timestamp(i128::from(*seconds) * times::SECOND),
        (_, [Val::String(text)]) => {
            budget.traverse(text.len())?;
            match name {
                "duration" => match times::parse_duration(text) {
                    Some(nanos) => Ok(Val::Duration(nanos)),
                    None => failed("time: invalid duration", text),
                },
                "timestamp" => match times::parse_timestamp(text) {
                    Some(nanos) => times::timestamp(nanos),
                    None => failed("cannot parse timestamp", text),
                },
                "url" => match Url::parse(text) {
                    Some(url) => Ok(Val::Url(Arc::new(url))),
                    None => failed("URL parse error during conversion from string", text),
                },
                "isURL" => Ok(Val::Bool(Url::parse(text).is_some())),
                "ip" => match address(text) {
                    Some(address) => Ok(Val::Ip(address)),
                    None => failed("IP Address parse error during conversion from string", text),
                },
                "isIP" => Ok(Val::Bool(address(text).is_some())),
                "cidr" => match cidr(text) {
                    Some((address, bits)) => Ok(Val::Cidr(address, bits)),
                    None => failed("network address parse error during conversion from string", text),
                },
                "isCIDR" => Ok(Val::Bool(cidr(text).is_some())),
                "quantity" => match Quantity::parse(text) {
                    Ok(quantity) => Ok(Val::Quantity(quantity)),
                    Err(error) => Fault::error(error.to_string()),
                },
                "isQuantity" => Ok(Val::Bool(Quantity::parse(text).is_ok())),
                _ => Fault::overload(),
            }
        }
        _ => Fault::overload(),
    }
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "conversions are checked to be in range, and lose what the language specifies"
)]
fn convert(to: &str, value: &Val, budget: &mut Budget) -> Outcome {
    let range = |_| Fault::Error(format!("{to} range error"));
    match (to, value) {
        ("bool", Val::Bool(_))
        | ("int", Val::Int(_))
        | ("uint", Val::Uint(_))
        | ("double", Val::Double(_))
        | ("string", Val::String(_))
        | ("bytes", Val::Bytes(_)) => Ok(value.clone()),
        ("int", Val::Uint(number)) => i64::try_from(*number).map(Val::Int).map_err(range),
        ("int", Val::Double(number)) if number.abs() < 9.2e18 => Ok(Val::Int(*number as i64)),
        ("int", Val::Timestamp(nanos)) => {
            Ok(Val::Int(i64::try_from(nanos.div_euclid(times::SECOND)).unwrap_or(i64::MAX)))
        }
        ("uint", Val::Int(number)) => u64::try_from(*number).map(Val::Uint).map_err(range),
        ("uint", Val::Double(number)) if (0.0..1.8e19).contains(number) => Ok(Val::Uint(*number as u64)),
        ("double", Val::Int(number)) => Ok(Val::Double(*number as f64)),
        ("double", Val::Uint(number)) => Ok(Val::Double(*number as f64)),
        ("bytes", Val::String(text)) => {
            budget.allocate(text.len())?;
            Ok(Val::Bytes(text.as_bytes().into()))
        }
        ("string", Val::Bytes(bytes)) => {
            budget.allocate(bytes.len())?;
            match std::str::from_utf8(bytes) {
                Ok(text) => Ok(Val::text(text)),
                Err(_) => Fault::error("invalid UTF-8 in bytes, cannot convert to string"),
            }
        }
        (
            "string",
            Val::List(_) | Val::Map(_) | Val::Optional(_) | Val::Type(_) | Val::Null | Val::Format(_),
        ) => Fault::overload(),
        ("string", value) => Ok(Val::text(&shown(value))),
        (_, Val::String(text)) => {
            budget.traverse(text.len())?;
            let parsed = match to {
                "int" => text.parse().ok().map(Val::Int),
                "uint" => text.parse().ok().map(Val::Uint),
                "double" => text.parse().ok().map(Val::Double),
                _ => match &**text {
                    "1" | "t" | "true" | "TRUE" | "True" => Some(Val::Bool(true)),
                    "0" | "f" | "false" | "FALSE" | "False" => Some(Val::Bool(false)),
                    _ => None,
                },
            };
            parsed.ok_or_else(|| Fault::Error("type conversion error from 'string'".to_owned()))
        }
        (_, Val::Double(_)) => Err(Fault::Error(format!("{to} range error"))),
        _ => Fault::overload(),
    }
}

/// A single value as text. Lists and maps are not written out: they can be of any size.
pub(super) fn shown(value: &Val) -> String {
    match value {
        Val::Null => "null".to_owned(),
        Val::Bool(is) => is.to_string(),
        Val::Int(number) => number.to_string(),
        Val::Uint(number) => number.to_string(),
        Val::Double(number) => number.to_string(),
        Val::String(text) => text.to_string(),
        Val::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Val::Type(name) | Val::Format(name) => (*name).to_owned(),
        Val::Duration(nanos) => times::show_duration(*nanos),
        Val::Timestamp(nanos) => times::show_timestamp(*nanos),
        Val::Url(url) => url.text(),
        Val::Ip(address) => address.to_string(),
        Val::Cidr(address, bits) => format!("{address}/{bits}"),
        Val::Quantity(quantity) => quantity.to_string(),
        Val::List(_) | Val::Map(_) | Val::Optional(_) | Val::Authorizer(_) => value.type_name().to_owned(),
    }
}

/// A value as `format` writes it, lists and maps included.
fn write(value: &Val, out: &mut String, budget: &mut Budget) -> Result<(), Fault> {
    budget.charge(1)?;
    match value {
        Val::List(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { ", " });
                write(item, out, budget)?;
            }
            out.push(']');
        }
        Val::Map(map) => {
            out.push('{');
            for (at, (key, value)) in map.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { ", " });
                write(&key.value(), out, budget)?;
                out.push_str(": ");
                write(value, out, budget)?;
            }
            out.push('}');
        }
        Val::String(text) => {
            budget.allocate(text.len())?;
            out.push_str(text);
        }
        other => {
            let text = shown(other);
            budget.allocate(text.len())?;
            out.push_str(&text);
        }
    }
    Ok(())
}

fn qualified(name: &str, values: &[Val], budget: &mut Budget) -> Outcome {
    match (name, values) {
        ("optional.none", []) => Ok(Val::Optional(None)),
        ("optional.of", [value]) => Ok(Val::optional(Some(value.clone()))),
        ("optional.ofNonZeroValue", [value]) => {
            let is_zero = match value {
                Val::Null | Val::Bool(false) | Val::Int(0) | Val::Uint(0) | Val::Optional(None) => true,
                Val::Double(number) => *number == 0.0,
                Val::String(text) => text.is_empty(),
                Val::Bytes(bytes) => bytes.is_empty(),
                Val::List(items) => items.is_empty(),
                Val::Map(map) => map.is_empty(),
                _ => false,
            };
            Ok(Val::optional((!is_zero).then(|| value.clone())))
        }
        ("strings.quote", [Val::String(text)]) => {
            budget.allocate(text.len().saturating_mul(6))?;
            Ok(Val::text(&palisade_base::go::quote(text)))
        }
        ("jsonpatch.escapeKey", [Val::String(text)]) => {
            budget.allocate(text.len().saturating_mul(2))?;
            Ok(Val::text(&text.replace('~', "~0").replace('/', "~1")))
        }
        ("ip.isCanonical", [Val::String(text)]) => match address(text) {
            Some(address) => Ok(Val::Bool(address.to_string() == **text)),
            None => Fault::error(format!("IP Address parse error during conversion from string: {text:?}")),
        },
        ("sets.contains", [Val::List(all), Val::List(some)]) => {
            for item in some.iter() {
                if position(all.iter(), item, budget)?.is_none() {
                    return Ok(Val::Bool(false));
                }
            }
            Ok(Val::Bool(true))
        }
        ("sets.intersects", [Val::List(a), Val::List(b)]) => {
            for item in b.iter() {
                if position(a.iter(), item, budget)?.is_some() {
                    return Ok(Val::Bool(true));
                }
            }
            Ok(Val::Bool(false))
        }
        ("sets.equivalent", [a, b]) => match qualified("sets.contains", &[a.clone(), b.clone()], budget)? {
            Val::Bool(true) => qualified("sets.contains", &[b.clone(), a.clone()], budget),
            other => Ok(other),
        },
        ("format.named", [Val::String(name)]) => Ok(Val::optional(formats::named(name).map(Val::Format))),
        (_, []) => match name.strip_prefix("format.").and_then(formats::named) {
            Some(format) => Ok(Val::Format(format)),
            None => Fault::overload(),
        },
        _ => Fault::overload(),
    }
}

fn on_text(name: &str, text: &Arc<str>, rest: &[Val], budget: &mut Budget) -> Outcome {
    budget.traverse(text.len())?;
    let index = |value: &Val| match value {
        Val::Int(at) => usize::try_from(*at).map_err(|_| Fault::Error(format!("index out of range: {at}"))),
        _ => Fault::overload(),
    };
    match (name, rest) {
        ("size", []) => Ok(count(text.chars().count())),
        ("contains", [Val::String(part)]) => {
            // Searching compares the part at every place in the worst case.
            budget.traverse(part.len())?;
            Ok(Val::Bool(text.contains(&**part)))
        }
        ("startsWith", [Val::String(part)]) => Ok(Val::Bool(text.starts_with(&**part))),
        ("endsWith", [Val::String(part)]) => Ok(Val::Bool(text.ends_with(&**part))),
        ("matches", [Val::String(pattern)]) => {
            Ok(Val::Bool(budget.regex(pattern, text.len())?.is_match(text)))
        }
        ("find", [Val::String(pattern)]) => {
            let found = budget.regex(pattern, text.len())?;
            Ok(Val::text(found.find(text).map_or("", |found| found.as_str())))
        }
        ("findAll", [Val::String(pattern), limit @ ..]) => {
            let most = match limit {
                [] => usize::MAX,
                [Val::Int(most)] => usize::try_from(*most).unwrap_or(usize::MAX),
                _ => return Fault::overload(),
            };
            let regex = budget.regex(pattern, text.len())?;
            let mut items = Vec::new();
            for found in regex.find_iter(text).take(most) {
                budget.allocate_values(1)?;
                budget.allocate(found.as_str().len())?;
                items.push(Val::text(found.as_str()));
            }
            Ok(Val::list(items))
        }
        ("charAt", [at]) => {
            let at = index(at)?;
            let mut characters = text.chars();
            match characters.nth(at) {
                Some(c) => Ok(Val::text(c.encode_utf8(&mut [0; 4]))),
                None if at == text.chars().count() => Ok(Val::text("")),
                None => Fault::error(format!("index out of range: {at}")),
            }
        }
        ("substring", [from, to @ ..]) => {
            let from = index(from)?;
            let length = text.chars().count();
            let to = match to {
                [] => length,
                [to] => index(to)?,
                _ => return Fault::overload(),
            };
            if from > to || to > length {
                return Fault::error(format!("invalid substring range. start: {from}, end: {to}"));
            }
            budget.allocate(to - from)?;
            let part: String = text.chars().skip(from).take(to - from).collect();
            Ok(Val::String(part.into()))
        }
        ("indexOf" | "lastIndexOf", [Val::String(part), from @ ..]) => {
            let characters = |upto: usize| text.get(..upto).map_or(0, |before| before.chars().count());
            budget.traverse(part.len())?;
            let from = match from {
                [] => None,
                [from] => Some(index(from)?),
                _ => return Fault::overload(),
            };
            let length = text.chars().count();
            if from.is_some_and(|from| from > length) {
                return Fault::error(format!("index out of range: {}", from.unwrap_or_default()));
            }
            let byte_at = |at: usize| text.char_indices().nth(at).map_or(text.len(), |(byte, _)| byte);
            let found = if name == "indexOf" {
                let start = from.map_or(0, byte_at);
                text.get(start..).and_then(|rest| rest.find(&**part)).map(|at| at + start)
            } else {
                let end =
                    from.map_or(text.len(), |from| byte_at(from).saturating_add(part.len()).min(text.len()));
                text.get(..end).and_then(|rest| rest.rfind(&**part))
            };
            Ok(found.map_or(Val::Int(-1), |at| count(characters(at))))
        }
        ("lowerAscii" | "upperAscii" | "trim" | "reverse", []) => {
            budget.allocate(text.len())?;
            Ok(match name {
                "lowerAscii" => Val::String(text.to_ascii_lowercase().into()),
                "upperAscii" => Val::String(text.to_ascii_uppercase().into()),
                "trim" => Val::text(text.trim()),
                _ => Val::String(text.chars().rev().collect::<String>().into()),
            })
        }
        ("replace", [Val::String(old), Val::String(new), most @ ..]) => {
            let most = match most {
                [] => usize::MAX,
                [Val::Int(most)] => usize::try_from(*most).unwrap_or(usize::MAX),
                _ => return Fault::overload(),
            };
            // An empty text is found before every character and at the end.
            let found = text.matches(&**old).take(most).count();
            budget.allocate(text.len().saturating_add(found.saturating_mul(new.len())))?;
            Ok(Val::String(text.replacen(&**old, new, most).into()))
        }
        ("split", [Val::String(by), most @ ..]) => {
            let most = match most {
                [] => usize::MAX,
                [Val::Int(most)] => usize::try_from(*most).unwrap_or(usize::MAX),
                _ => return Fault::overload(),
            };
            budget.allocate(text.len())?;
            let mut items = Vec::new();
            if most == 0 {
                return Ok(Val::list(items));
            }
            let mut piece = |piece: &str| -> Result<(), Fault> {
                budget.allocate_values(1)?;
                items.push(Val::text(piece));
                Ok(())
            };
            if by.is_empty() {
                let (mut left, mut pieces) = (&**text, 0);
                while let Some(c) = left.chars().next() {
                    pieces += 1;
                    let (head, tail) = left.split_at(if pieces == most { left.len() } else { c.len_utf8() });
                    piece(head)?;
                    left = tail;
                }
            } else {
                for part in text.splitn(most, &**by) {
                    piece(part)?;
                }
            }
            Ok(Val::list(items))
        }
        ("format", [Val::List(values)]) => formatted(text, values, budget),
        _ => Fault::overload(),
    }
}

/// `'%s is %d'.format([…])`.
fn formatted(text: &str, values: &[Val], budget: &mut Budget) -> Outcome {
    let mut out = String::new();
    let mut values = values.iter();
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        out.push_str(rest.get(..at).unwrap_or_default());
        rest = rest.get(at + 1..).unwrap_or_default();
        let mut precision = None;
        if let Some(tail) = rest.strip_prefix('.') {
            let digits = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
            let (number, tail) = tail.split_at(digits);
            precision = number.parse::<usize>().ok().filter(|digits| *digits <= 100);
            if precision.is_none() {
                return Fault::error("could not parse precision");
            }
            rest = tail;
        }
        let Some(verb) = rest.chars().next() else { return Fault::error("unexpected end of string") };
        rest = rest.get(verb.len_utf8()..).unwrap_or_default();
        if verb == '%' {
            out.push('%');
            continue;
        }
        let Some(value) = values.next() else { return Fault::error("index out of range") };
        let digits = precision.unwrap_or(6);
        #[allow(clippy::cast_precision_loss, reason = "as Go does")]
        let piece = match (verb, value) {
            ('s', value) => {
                write(value, &mut out, budget)?;
                continue;
            }
            ('d', Val::Int(_) | Val::Uint(_)) => shown(value),
            ('f', Val::Double(number)) => format!("{number:.digits$}"),
            ('f', Val::Int(number)) => format!("{:.digits$}", *number as f64),
            ('e', Val::Double(number)) => format!("{number:.digits$e}"),
            ('b', Val::Bool(is)) => i32::from(*is).to_string(),
            ('b', Val::Int(number)) => format!("{number:b}"),
            ('b', Val::Uint(number)) => format!("{number:b}"),
            ('o', Val::Int(number)) => format!("{number:o}"),
            ('o', Val::Uint(number)) => format!("{number:o}"),
            ('x', Val::Int(number)) => format!("{number:x}"),
            ('X', Val::Int(number)) => format!("{number:X}"),
            ('x', Val::Uint(number)) => format!("{number:x}"),
            ('X', Val::Uint(number)) => format!("{number:X}"),
            _ => {
                return Fault::error(format!(
                    "could not format value: clause %{verb} does not fit the value"
                ));
            }
        };
        budget.allocate(piece.len())?;
        out.push_str(&piece);
    }
    budget.allocate(out.len().saturating_add(rest.len()))?;
    out.push_str(rest);
    Ok(Val::String(out.into()))
}

fn on_list(name: &str, items: &Arc<Vec<Val>>, rest: &[Val], budget: &mut Budget) -> Outcome {
    budget.charge(u64::try_from(items.len()).unwrap_or(u64::MAX))?;
    match (name, rest) {
        ("size", []) => Ok(count(items.len())),
        ("indexOf", [wanted]) => Ok(position(items.iter(), wanted, budget)?.map_or(Val::Int(-1), count)),
        ("lastIndexOf", [wanted]) => {
            let from_end = position(items.iter().rev(), wanted, budget)?;
            Ok(from_end.map_or(Val::Int(-1), |at| count(items.len() - 1 - at)))
        }
        ("isSorted", []) => {
            for pair in items.windows(2) {
                let [a, b] = pair else { continue };
                match a.order(b, budget)? {
                    Some(Ordering::Greater) => return Ok(Val::Bool(false)),
                    Some(_) => {}
                    None => return Fault::overload(),
                }
            }
            Ok(Val::Bool(true))
        }
        ("sum", []) => {
            let mut values = items.iter();
            let Some(first) = values.next() else { return Ok(Val::Int(0)) };
            let mut sum = first.clone();
            for value in values {
                sum = match (&sum, value) {
                    (Val::Duration(a), Val::Duration(b)) => Val::Duration(a.saturating_add(*b)),
                    (a, b) => arithmetic("_+_", a, b)?,
                };
            }
            Ok(sum)
        }
        ("min" | "max", []) => {
            let wanted = if name == "min" { Ordering::Less } else { Ordering::Greater };
            let mut values = items.iter();
            let Some(mut best) = values.next() else {
                return Fault::error(format!("{name} called on empty list"));
            };
            for value in values {
                match value.order(best, budget)? {
                    Some(order) if order == wanted => best = value,
                    Some(_) => {}
                    None => return Fault::overload(),
                }
            }
            Ok(best.clone())
        }
        ("join", by) => {
            let by = match by {
                [] => "",
                [Val::String(by)] => by,
                _ => return Fault::overload(),
            };
            let mut parts: Vec<&str> = Vec::with_capacity(items.len());
            let mut length = 0_usize;
            for item in items.iter() {
                let Val::String(text) = item else { return Fault::overload() };
                length = length.saturating_add(text.len()).saturating_add(by.len());
                parts.push(text);
            }
            budget.allocate(length)?;
            Ok(Val::String(parts.join(by).into()))
        }
        ("slice", [Val::Int(from), Val::Int(to)]) => {
            let range = usize::try_from(*from).ok().zip(usize::try_from(*to).ok());
            match range.and_then(|(from, to)| items.get(from..to)) {
                Some(part) => {
                    budget.allocate_values(part.len())?;
                    Ok(Val::list(part.to_vec()))
                }
                None => Fault::error(format!("cannot slice({from}, {to}), list is length {}", items.len())),
            }
        }
        ("flatten", []) => {
            let mut flat = Vec::new();
            for item in items.iter() {
                match item {
                    Val::List(inner) => {
                        budget.allocate_values(inner.len())?;
                        flat.extend(inner.iter().cloned());
                    }
                    other => {
                        budget.allocate_values(1)?;
                        flat.push(other.clone());
                    }
                }
            }
            Ok(Val::list(flat))
        }
        ("distinct", []) => {
            budget.allocate_values(items.len())?;
            let mut seen: Vec<Val> = Vec::new();
            for item in items.iter() {
                if position(seen.iter(), item, budget)?.is_none() {
                    seen.push(item.clone());
                }
            }
            Ok(Val::list(seen))
        }
        ("reverse", []) => {
            budget.allocate_values(items.len())?;
            Ok(Val::list(items.iter().rev().cloned().collect()))
        }
        ("sort", []) => {
            budget.allocate_values(items.len())?;
            sorted(items.to_vec(), budget).map(Val::list)
        }
        _ => Fault::overload(),
    }
}

/// Merge sort, because comparing can fail.
fn sorted(mut items: Vec<Val>, budget: &mut Budget) -> Result<Vec<Val>, Fault> {
    if items.len() < 2 {
        return Ok(items);
    }
    let upper = items.split_off(items.len() / 2);
    let (lower, upper) = (sorted(items, budget)?, sorted(upper, budget)?);
    let mut merged = Vec::with_capacity(lower.len() + upper.len());
    let (mut lower, mut upper) = (lower.into_iter().peekable(), upper.into_iter().peekable());
    while let (Some(a), Some(b)) = (lower.peek(), upper.peek()) {
        budget.charge(1)?;
        match a.order(b, budget)? {
            Some(Ordering::Greater) => merged.extend(upper.next()),
            Some(_) => merged.extend(lower.next()),
            None => return Fault::overload(),
        }
    }
    merged.extend(lower);
    merged.extend(upper);
    Ok(merged)
}

fn on_url(name: &str, url: &Url, budget: &mut Budget) -> Outcome {
    Ok(match name {
        "getScheme" => Val::text(&url.scheme),
        "getHost" => Val::text(&url.host),
        "getHostname" => Val::text(url.hostname()),
        "getPort" => Val::text(url.port()),
        "getEscapedPath" => Val::text(&url.path),
        "getQuery" => {
            budget.allocate(url.query.len())?;
            let query = url.query();
            budget.allocate_values(query.values().map(|values| values.len() + 1).sum())?;
            let texts =
                |values: Vec<String>| Val::list(values.iter().map(|value| Val::text(value)).collect());
            Val::map(query.into_iter().map(|(key, values)| (Key::text(&key), texts(values))).collect())
        }
        _ => return Fault::overload(),
    })
}

/// An address in the strict form: no zone, no leading zeros, no IPv4 in IPv6.
fn address(text: &str) -> Option<IpAddr> {
    let address: IpAddr = text.parse().ok()?;
    match address {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => None,
        other => Some(other),
    }
}

fn cidr(text: &str) -> Option<(IpAddr, u8)> {
    let (network, bits) = text.split_once('/')?;
    let network = address(network)?;
    let most = if network.is_ipv4() { 32 } else { 128 };
    let plain = bits.chars().all(|c| c.is_ascii_digit()) && (bits == "0" || !bits.starts_with('0'));
    let bits: u8 = bits.parse().ok()?;
    (plain && bits <= most).then_some((network, bits))
}

fn on_address(name: &str, address: IpAddr) -> Outcome {
    let is = |is: bool| Ok(Val::Bool(is));
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.segments()[0] & 0xffc0 == 0xfe80,
    };
    let link_local_multicast = match address {
        IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
        IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
    };
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    match name {
        "family" => Ok(Val::Int(if address.is_ipv4() { 4 } else { 6 })),
        "isUnspecified" => is(address.is_unspecified()),
        "isLoopback" => is(address.is_loopback()),
        "isLinkLocalMulticast" => is(link_local_multicast),
        "isLinkLocalUnicast" => is(link_local),
        "isGlobalUnicast" => is(!(address.is_unspecified()
            || address.is_loopback()
            || address.is_multicast()
            || link_local
            || broadcast)),
        _ => Fault::overload(),
    }
}

/// The first bits of an address; the rest is zero.
fn masked(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0);
            IpAddr::V4((u32::from(v4) & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0);
            IpAddr::V6((u128::from(v6) & mask).into())
        }
    }
}

fn on_cidr(name: &str, network: IpAddr, bits: u8, rest: &[Val]) -> Outcome {
    let contains =
        |other: IpAddr| other.is_ipv4() == network.is_ipv4() && masked(other, bits) == masked(network, bits);
    match (name, rest) {
        ("ip", []) => Ok(Val::Ip(network)),
        ("masked", []) => Ok(Val::Cidr(masked(network, bits), bits)),
        ("prefixLength", []) => Ok(Val::Int(i64::from(bits))),
        ("containsIP", [Val::Ip(other)]) => Ok(Val::Bool(contains(*other))),
        ("containsIP", [Val::String(other)]) => match address(other) {
            Some(other) => Ok(Val::Bool(contains(other))),
            None => Fault::error(format!("IP Address parse error during conversion from string: {other:?}")),
        },
        ("containsCIDR", [Val::Cidr(other, more)]) => Ok(Val::Bool(*more >= bits && contains(*other))),
        ("containsCIDR", [Val::String(other)]) => match cidr(other) {
            Some((other, more)) => Ok(Val::Bool(more >= bits && contains(other))),
            None => {
                Fault::error(format!("network address parse error during conversion from string: {other:?}"))
            }
        },
        _ => Fault::overload(),
    }
}

fn on_quantity(name: &str, quantity: Quantity, rest: &[Val]) -> Outcome {
    let other = |value: &Val| match value {
        Val::Quantity(other) => Ok(*other),
        Val::Int(number) => {
            Quantity::parse(&number.to_string()).map_err(|error| Fault::Error(error.to_string()))
        }
        _ => Fault::overload(),
    };
    #[allow(clippy::cast_precision_loss, reason = "approximate by name")]
    match (name, rest) {
        ("isInteger", []) => Ok(Val::Bool(quantity.is_multiple_of(0))),
        ("asInteger", []) if quantity.is_multiple_of(0) => Ok(Val::Int(quantity.whole())),
        ("asInteger", []) => Fault::error("cannot convert value to integer"),
        ("asApproximateFloat", []) => Ok(Val::Double(quantity.nanos() as f64 / 1e9)),
        ("sign", []) => Ok(Val::Int(if quantity.is_zero() {
            0
        } else if quantity.is_negative() {
            -1
        } else {
            1
        })),
        ("add", [value]) => Ok(Val::Quantity(quantity.plus(other(value)?))),
        ("sub", [value]) => Ok(Val::Quantity(quantity.minus(other(value)?))),
        ("isGreaterThan", [Val::Quantity(than)]) => Ok(Val::Bool(quantity > *than)),
        ("isLessThan", [Val::Quantity(than)]) => Ok(Val::Bool(quantity < *than)),
        ("compareTo", [Val::Quantity(than)]) => Ok(Val::Int(match quantity.cmp(than) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        })),
        _ => Fault::overload(),
    }
}
