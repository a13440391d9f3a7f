//! Maps: `dict`, `merge`, `set` and their like. `set`, `unset` and `merge` change their first argument, as in Go.

use std::rc::Rc;

use super::{Arguments, print::strval};
use crate::{
    error::{Failed, TemplateErrorKind},
    exec::Interpreter,
    value::{Data, Map, Value, is_true},
};

pub(super) fn call(
    run: &mut Interpreter<'_>,
    name: &str,
    arguments: &Arguments<'_>,
) -> Option<Result<Value, Failed>> {
    Some(match name {
        "dict" => dict(run, arguments),
        "get" => arguments.at(0).and_then(|map| {
            arguments.map_id(0)?;
            let found = run.field(map, arguments.str(1)?)?;
            if found.path > crate::value::ROOT {
                run.read.insert(found.path);
            }
            Ok(if found.is_nil() { Value { path: found.path, ..Value::text("") } } else { found })
        }),
        "set" => arguments.map_id(0).and_then(|id| {
            let (key, value) = (arguments.str(1)?, arguments.at(2)?.clone());
            run.charge(1, key.len())?;
            run.heap.change(id, |map| {
                map.insert(key.into(), value);
            });
            arguments.at(0).cloned()
        }),
        "unset" => arguments.map_id(0).and_then(|id| {
            let key = arguments.str(1)?;
            run.heap.change(id, |map| {
                map.remove(key);
            });
            arguments.at(0).cloned()
        }),
        "hasKey" => arguments.map(run, 0).and_then(|map| {
            let key = arguments.str(1)?;
            let path = arguments.at(0)?.path;
            let path = run.heap.child(path, key);
            if path > crate::value::ROOT {
                run.read.insert(path);
            }
            Ok(Value { deps: run.heap.with_path(0, path), ..Value::bool(map.contains_key(key)) })
        }),
        "keys" => keys(run, arguments),
        "values" => arguments.map(run, 0).map(|map| run.heap.list(map.values().cloned().collect())),
        "pick" | "omit" => chosen(run, name == "pick", arguments),
        "pluck" => plucked(run, arguments),
        "merge" | "mergeOverwrite" => merged(run, name == "mergeOverwrite", arguments),
        "deepCopy" => arguments.at(0).and_then(|value| deep_copy(run, value, 0)),
        "dig" => dig(run, arguments),
        _ => return None,
    })
}

fn dict(run: &mut Interpreter<'_>, arguments: &Arguments<'_>) -> Result<Value, Failed> {
    let mut map = Map::new();
    for pair in arguments.values.chunks(2) {
        let [key, rest @ ..] = pair else { continue };
        let key = strval(run, key)?;
        let value = rest.first().cloned().unwrap_or_else(|| Value::text(""));
        map.insert(Rc::clone(&key.text), value);
    }
    Ok(run.heap.map(map))
}

fn keys(run: &mut Interpreter<'_>, arguments: &Arguments<'_>) -> Result<Value, Failed> {
    let mut names = Vec::new();
    for index in 0..arguments.values.len() {
        names.extend(arguments.map(run, index)?.keys().map(|key| Value::text(&**key)));
    }
    Ok(run.heap.list(names))
}

fn chosen(run: &mut Interpreter<'_>, keeps: bool, arguments: &Arguments<'_>) -> Result<Value, Failed> {
    let map = arguments.map(run, 0)?;
    let mut named: Vec<Rc<str>> = Vec::new();
    for value in arguments.values.iter().skip(1) {
        match &value.data {
            Data::List(id) => {
                for item in run.heap.items(*id).iter() {
                    named.push(strval(run, item)?.text);
                }
            }
            _ => named.push(strval(run, value)?.text),
        }
    }
    let kept: Map = map
        .iter()
        .filter(|(key, _)| named.contains(key) == keeps)
        .map(|(key, value)| (Rc::clone(key), value.clone()))
        .collect();
    run.charge(map.len() as u64, 0)?;
    // Still the value that it is a part of: a missing key belongs there.
    let path = arguments.at(0)?.path;
    Ok(Value { path, ..run.heap.map(kept) })
}

fn plucked(run: &mut Interpreter<'_>, arguments: &Arguments<'_>) -> Result<Value, Failed> {
    let key = arguments.str(0)?;
    let mut found = Vec::new();
    for index in 1..arguments.values.len() {
        found.extend(arguments.map(run, index)?.get(key).cloned());
    }
    Ok(run.heap.list(found))
}

fn merged(run: &mut Interpreter<'_>, overwrites: bool, arguments: &Arguments<'_>) -> Result<Value, Failed> {
    let target = arguments.map_id(0)?;
    for index in 1..arguments.values.len() {
        if arguments.at(index)?.is_nil() {
            continue;
        }
        let source = arguments.map_id(index)?;
        merge_into(run, target, source, overwrites, 0)?;
    }
    arguments.at(0).cloned()
}

/// Where the maps merge, those of the target change; what comes from the source is copied.
fn merge_into(
    run: &mut Interpreter<'_>,
    target: u32,
    source: u32,
    overwrites: bool,
    depth: usize,
) -> Result<(), Failed> {
    if depth > 60 {
        return Err(TemplateErrorKind::Limit("60 levels of lists and maps").into());
    }
    let entries = run.heap.entries(source);
    for (key, value) in entries.iter() {
        run.charge(1, 8)?;
        let known = run.heap.entries(target).get(key).cloned();
        let copied = match (known.as_ref().map(|known| &known.data), &value.data) {
            (Some(Data::Map(inner)), Data::Map(other)) => {
                merge_into(run, *inner, *other, overwrites, depth + 1)?;
                continue;
            }
            (Some(_), _) if overwrites && is_true(&run.heap, value) => deep_copy(run, value, depth + 1)?,
            (Some(_), _) if known.as_ref().is_some_and(|known| is_true(&run.heap, known)) || overwrites => {
                continue;
            }
            _ => deep_copy(run, value, depth + 1)?,
        };
        let key = Rc::clone(key);
        run.heap.change(target, |map| {
            map.insert(key, copied);
        });
    }
    Ok(())
}

pub(super) fn deep_copy(run: &mut Interpreter<'_>, value: &Value, depth: usize) -> Result<Value, Failed> {
    if depth > 60 {
        return Err(TemplateErrorKind::Limit("60 levels of lists and maps").into());
    }
    run.charge(1, 8)?;
    let data = match &value.data {
        Data::List(id) => {
            let mut items = Vec::new();
            for item in run.heap.items(*id).iter() {
                items.push(deep_copy(run, item, depth + 1)?);
            }
            run.heap.list(items).data
        }
        Data::Map(id) => {
            let mut map = Map::new();
            for (key, item) in run.heap.entries(*id).iter() {
                map.insert(Rc::clone(key), deep_copy(run, item, depth + 1)?);
            }
            run.heap.map(map).data
        }
        other => other.clone(),
    };
    Ok(Value { data, ..*value })
}

fn dig(run: &mut Interpreter<'_>, arguments: &Arguments<'_>) -> Result<Value, Failed> {
    let [keys @ .., fallback, map] = arguments.values else {
        return Err(arguments.fail("keys, a default and a map are needed"));
    };
    let mut value = map.clone();
    for key in keys {
        let key = strval(run, key)?;
        let Data::Map(id) = value.data else {
            return Err(arguments.fail(format!("{} is in no map", key.text)));
        };
        let path = run.heap.child(value.path, &key.text);
        if path > crate::value::ROOT {
            run.read.insert(path);
        }
        match run.heap.entries(id).get(&key.text) {
            Some(found) => value = found.clone(),
            None => return Ok(Value { deps: run.heap.with_path(0, path), ..fallback.clone() }),
        }
    }
    Ok(value)
}
