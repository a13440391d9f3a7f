//! Comparisons: `eq`, `lt` and their like, `deepEqual`, versions and regular expressions.

use super::{Arguments, semver};
use crate::{
    error::{Failed, TemplateErrorKind},
    exec::Interpreter,
    value::{Data, Value, kind_of},
};
use std::cmp::Ordering;

pub(super) fn call(
    run: &mut Interpreter<'_>,
    name: &str,
    arguments: &Arguments<'_>,
) -> Option<Result<Value, Failed>> {
    Some(match name {
        "eq" => eq(run, arguments),
        "ne" => arguments.at(1).and_then(|right| {
            let same = same(run, arguments, arguments.at(0)?, right)?;
            Ok(Value::bool(!same))
        }),
        "lt" => ordered(arguments).map(|order| Value::bool(order == Ordering::Less)),
        "le" => ordered(arguments).map(|order| Value::bool(order != Ordering::Greater)),
        "gt" => ordered(arguments).map(|order| Value::bool(order == Ordering::Greater)),
        "ge" => ordered(arguments).map(|order| Value::bool(order != Ordering::Less)),
        "deepEqual" => arguments.at(1).and_then(|right| {
            let equal = deep_equal(run, arguments.at(0)?, right, 0)?;
            Ok(Value::bool(equal))
        }),
        "semverCompare" => compare_versions(arguments),
        "semver" => version(run, arguments),
        "regexMatch"
        | "regexFind"
        | "regexFindAll"
        | "regexReplaceAll"
        | "regexReplaceAllLiteral"
        | "regexSplit" => regex(run, name, arguments),
        "regexQuoteMeta" => arguments.str(0).map(|text| Value::text(regex::escape(text))),
        _ => return None,
    })
}

fn eq(run: &mut Interpreter<'_>, arguments: &Arguments<'_>) -> Result<Value, Failed> {
    let first = arguments.at(0)?;
    arguments.at(1)?;
    for other in arguments.values.iter().skip(1) {
        if same(run, arguments, first, other)? {
            return Ok(Value::bool(true));
        }
    }
    Ok(Value::bool(false))
}

/// Whether basic values are equal. Whole numbers compare whatever their type: Helm's own differ between releases.
fn same(run: &mut Interpreter<'_>, arguments: &Arguments<'_>, a: &Value, b: &Value) -> Result<bool, Failed> {
    run.charge(1, 0)?;
    Ok(match (&a.data, &b.data) {
        (Data::Nil, Data::Nil) => true,
        (Data::Nil, _) | (_, Data::Nil) => false,
        (Data::Bool(a), Data::Bool(b)) => a == b,
        (Data::Str(a), Data::Str(b)) => a.text == b.text,
        (Data::Int(a, _), Data::Int(b, _)) => a == b,
        (Data::Float(_) | Data::Int(..), Data::Float(_) | Data::Int(..)) => {
            super::numbers::to_float(a).total_cmp(&super::numbers::to_float(b)) == Ordering::Equal
        }
        (Data::List(_) | Data::Map(_), Data::List(_) | Data::Map(_)) => {
            return Err(arguments.fail("non-comparable types"));
        }
        _ => {
            return Err(arguments.fail(format!(
                "incompatible types for comparison: {} and {}",
                kind_of(a),
                kind_of(b)
            )));
        }
    })
}

fn ordered(arguments: &Arguments<'_>) -> Result<Ordering, Failed> {
    let (a, b) = (arguments.at(0)?, arguments.at(1)?);
    match (&a.data, &b.data) {
        (Data::Str(a), Data::Str(b)) => Ok(a.text.cmp(&b.text)),
        (Data::Int(a, _), Data::Int(b, _)) => Ok(a.cmp(b)),
        (Data::Float(_) | Data::Int(..), Data::Float(_) | Data::Int(..)) => {
            Ok(super::numbers::to_float(a).total_cmp(&super::numbers::to_float(b)))
        }
        _ => Err(arguments.fail(format!(
            "incompatible types for comparison: {} and {}",
            kind_of(a),
            kind_of(b)
        ))),
    }
}

pub(super) fn deep_equal(
    run: &mut Interpreter<'_>,
    a: &Value,
    b: &Value,
    depth: usize,
) -> Result<bool, Failed> {
    if depth > 60 {
        return Err(TemplateErrorKind::Limit("60 levels of lists and maps").into());
    }
    run.charge(1, 0)?;
    Ok(match (&a.data, &b.data) {
        (Data::List(a), Data::List(b)) => {
            let (a, b) = (run.heap.items(*a), run.heap.items(*b));
            if a.len() != b.len() {
                return Ok(false);
            }
            for (a, b) in a.iter().zip(b.iter()) {
                if !deep_equal(run, a, b, depth + 1)? {
                    return Ok(false);
                }
            }
            true
        }
        (Data::Map(a), Data::Map(b)) => {
            let (a, b) = (run.heap.entries(*a), run.heap.entries(*b));
            if a.len() != b.len() {
                return Ok(false);
            }
            for ((key, a), (other, b)) in a.iter().zip(b.iter()) {
                if key != other || !deep_equal(run, a, b, depth + 1)? {
                    return Ok(false);
                }
            }
            true
        }
        (Data::Nil, Data::Nil) => true,
        (Data::Bool(a), Data::Bool(b)) => a == b,
        (Data::Str(a), Data::Str(b)) => a.text == b.text,
        (Data::Int(a, _), Data::Int(b, _)) => a == b,
        (Data::Float(a), Data::Float(b)) => a.total_cmp(b) == Ordering::Equal,
        _ => false,
    })
}

fn compare_versions(arguments: &Arguments<'_>) -> Result<Value, Failed> {
    let (constraint, version) = (arguments.str(0)?, arguments.str(1)?);
    let version = semver::Version::parse(version)
        .ok_or_else(|| arguments.fail(format!("invalid version {version:?}")))?;
    let matches = semver::matches(constraint, &version)
        .ok_or_else(|| arguments.fail(format!("invalid constraint {constraint:?}")))?;
    Ok(Value::bool(matches))
}

fn version(run: &mut Interpreter<'_>, arguments: &Arguments<'_>) -> Result<Value, Failed> {
    let text = arguments.str(0)?;
    let version =
        semver::Version::parse(text).ok_or_else(|| arguments.fail(format!("invalid version {text:?}")))?;
    let int = |value: u64| Value::int64(i64::try_from(value).unwrap_or(i64::MAX));
    let map = [
        ("Major", int(version.major)),
        ("Minor", int(version.minor)),
        ("Patch", int(version.patch)),
        ("Prerelease", Value::text(version.pre.as_str())),
        ("Metadata", Value::text(version.metadata.as_str())),
        ("Original", Value::text(text)),
    ];
    Ok(run.heap.map(map.into_iter().map(|(key, value)| (key.into(), value)).collect()))
}

/// Go's syntax is that of the crate, both being RE2's; patterns are bounded in size.
fn regex(run: &mut Interpreter<'_>, name: &str, arguments: &Arguments<'_>) -> Result<Value, Failed> {
    let pattern = arguments.str(0)?;
    let text = arguments.str(1)?;
    run.charge(10 + (text.len() as u64) / 16, pattern.len() + text.len())?;
    let regex = regex::RegexBuilder::new(pattern)
        .size_limit(1 << 20)
        .build()
        .map_err(|_| arguments.fail(format!("{pattern:?} is no regular expression")))?;
    Ok(match name {
        "regexMatch" => Value::bool(regex.is_match(text)),
        "regexFind" => Value::text(regex.find(text).map_or("", |found| found.as_str())),
        "regexReplaceAll" => {
            let replacement = arguments.str(2)?;
            run.charge(0, text.len().saturating_mul(replacement.len().max(1)).min(64 << 20))?;
            Value::text(regex.replace_all(text, replacement).as_ref())
        }
        "regexReplaceAllLiteral" => {
            let replacement = arguments.str(2)?;
            run.charge(0, text.len().saturating_mul(replacement.len().max(1)).min(64 << 20))?;
            Value::text(regex.replace_all(text, regex::NoExpand(replacement)).as_ref())
        }
        _ => {
            let most = match arguments.int(2)? {
                most if most < 0 => usize::MAX,
                most => usize::try_from(most).unwrap_or(usize::MAX),
            };
            let items: Vec<Value> = if name == "regexFindAll" {
                regex.find_iter(text).take(most).map(|found| Value::text(found.as_str())).collect()
            } else if most == usize::MAX {
                regex.split(text).map(Value::text).collect()
            } else {
                regex.splitn(text, most).map(Value::text).collect()
            };
            run.heap.list(items)
        }
    })
}
