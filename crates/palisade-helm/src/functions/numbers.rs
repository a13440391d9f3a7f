//! Numbers: conversions and arithmetic as Sprig does them, with overflow that wraps.

use super::Arguments;
use crate::{
    error::Failed,
    exec::Interpreter,
    value::{Data, Value},
};

#[expect(clippy::cast_possible_truncation, reason = "Go converts so")]
pub(crate) fn to_int(value: &Value) -> i64 {
    match &value.data {
        Data::Int(value, _) => *value,
        Data::Float(value) => *value as i64,
        Data::Bool(value) => i64::from(*value),
        Data::Str(text) => {
            let text = text.text.trim();
            let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
            let parsed = match digits.strip_prefix("0x") {
                Some(hex) => i64::from_str_radix(hex, 16),
                None => digits.parse(),
            };
            // What is no number is 0 to Sprig's cast.
            parsed.map_or_else(
                |_| digits.parse::<f64>().map_or(0, |float| sign * (float as i64)),
                |value| sign * value,
            )
        }
        _ => 0,
    }
}

#[expect(clippy::cast_precision_loss, reason = "Go converts so")]
pub(crate) fn to_float(value: &Value) -> f64 {
    match &value.data {
        Data::Int(value, _) => *value as f64,
        Data::Float(value) => *value,
        Data::Bool(value) => f64::from(u8::from(*value)),
        Data::Str(text) => text.text.trim().parse().unwrap_or(0.0),
        _ => 0.0,
    }
}

fn fold(arguments: &Arguments<'_>, step: impl Fn(i64, i64) -> i64) -> Result<Value, Failed> {
    let first = arguments.int(0)?;
    Ok(Value::int64(arguments.values.iter().skip(1).map(to_int).fold(first, step)))
}

fn fold_float(arguments: &Arguments<'_>, step: impl Fn(f64, f64) -> f64) -> Result<Value, Failed> {
    let first = to_float(arguments.at(0)?);
    Ok(Value::of(Data::Float(arguments.values.iter().skip(1).map(to_float).fold(first, step))))
}

pub(super) fn call(
    run: &mut Interpreter<'_>,
    name: &str,
    arguments: &Arguments<'_>,
) -> Option<Result<Value, Failed>> {
    Some(match name {
        // Never random: the same chart gives the same findings.
        "int" | "atoi" | "randInt" => arguments.int(0).map(Value::int),
        "int64" => arguments.int(0).map(Value::int64),
        "float64" => arguments.at(0).map(|value| Value::of(Data::Float(to_float(value)))),
        "toDecimal" => arguments.at(0).map(|value| {
            let digits = value.as_str().map_or_else(|| to_int(value).to_string(), str::to_owned);
            Value::int64(i64::from_str_radix(&digits, 8).unwrap_or_default())
        }),
        "add" => fold(arguments, i64::wrapping_add),
        "add1" => arguments.int(0).map(|value| Value::int64(value.wrapping_add(1))),
        "sub" => fold(arguments, i64::wrapping_sub),
        "mul" => fold(arguments, i64::wrapping_mul),
        "div" | "mod" => arguments.int(1).and_then(|by| {
            let of = arguments.int(0)?;
            let result = if name == "div" { of.checked_div(by) } else { of.checked_rem(by) };
            result.map(Value::int64).ok_or_else(|| arguments.fail("division by zero"))
        }),
        "max" | "biggest" => fold(arguments, i64::max),
        "min" => fold(arguments, i64::min),
        "maxf" => fold_float(arguments, f64::max),
        "minf" => fold_float(arguments, f64::min),
        "addf" => fold_float(arguments, |a, b| a + b),
        "add1f" => arguments.at(0).map(|value| Value::of(Data::Float(to_float(value) + 1.0))),
        "subf" => fold_float(arguments, |a, b| a - b),
        "mulf" => fold_float(arguments, |a, b| a * b),
        "divf" => fold_float(arguments, |a, b| a / b),
        "ceil" => arguments.at(0).map(|value| Value::of(Data::Float(to_float(value).ceil()))),
        "floor" => arguments.at(0).map(|value| Value::of(Data::Float(to_float(value).floor()))),
        "round" => arguments.int(1).map(|places| {
            let scale = 10_f64.powi(i32::try_from(places.clamp(-300, 300)).unwrap_or_default());
            let value = arguments.values.first().map_or(0.0, to_float);
            Value::of(Data::Float((value * scale).round() / scale))
        }),
        "until" => arguments.int(0).and_then(|end| steps(run, 0, end, if end < 0 { -1 } else { 1 })),
        "untilStep" => {
            arguments.int(2).and_then(|step| steps(run, arguments.int(0)?, arguments.int(1)?, step))
        }
        "seq" => sequence(run, arguments),
        _ => return None,
    })
}

fn steps(run: &mut Interpreter<'_>, from: i64, to: i64, step: i64) -> Result<Value, Failed> {
    let mut items = Vec::new();
    let mut at = from;
    while (step > 0 && at < to) || (step < 0 && at > to) {
        run.charge(1, 16)?;
        items.push(Value::int(at));
        let Some(next) = at.checked_add(step) else { break };
        at = next;
    }
    Ok(run.heap.list(items))
}

/// `seq` as a text of numbers.
fn sequence(run: &mut Interpreter<'_>, arguments: &Arguments<'_>) -> Result<Value, Failed> {
    let (from, step, to) = match arguments.values.len() {
        1 => (1, None, arguments.int(0)?),
        2 => (arguments.int(0)?, None, arguments.int(1)?),
        _ => (arguments.int(0)?, Some(arguments.int(1)?), arguments.int(2)?),
    };
    let step = step.unwrap_or(if to < from { -1 } else { 1 });
    let mut numbers = Vec::new();
    let mut at = from;
    while (step > 0 && at <= to) || (step < 0 && at >= to) {
        run.charge(1, 16)?;
        numbers.push(at.to_string());
        let Some(next) = at.checked_add(step) else { break };
        at = next;
    }
    Ok(Value::text(numbers.join(" ")))
}
