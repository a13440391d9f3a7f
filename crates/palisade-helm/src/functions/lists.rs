//! Lists, and what lists, maps and strings have in common: `len`, `index`, `slice`.

use super::{Arguments, compare::deep_equal, numbers::to_int, print::strval};
use crate::{
    error::Failed,
    exec::Interpreter,
    value::{Data, Value, is_true, kind_of},
};

pub(super) fn call(
    run: &mut Interpreter<'_>,
    name: &str,
    arguments: &Arguments<'_>,
) -> Option<Result<Value, Failed>> {
    Some(match name {
        "list" | "tuple" => Ok(run.heap.list(arguments.values.to_vec())),
        "len" => length(run, arguments),
        "index" => index(run, arguments),
        "slice" => slice(run, arguments),
        "first" => arguments.list(run, 0).map(|items| items.first().cloned().unwrap_or(Value::NIL)),
        "last" => arguments.list(run, 0).map(|items| items.last().cloned().unwrap_or(Value::NIL)),
        "rest" => arguments.list(run, 0).map(|items| run.heap.list(items.iter().skip(1).cloned().collect())),
        "initial" => arguments
            .list(run, 0)
            .map(|items| run.heap.list(items.iter().take(items.len().saturating_sub(1)).cloned().collect())),
        "append" | "push" => arguments.list(run, 0).and_then(|items| {
            let mut items = items.to_vec();
            items.push(arguments.at(1)?.clone());
            Ok(run.heap.list(items))
        }),
        "prepend" => arguments.list(run, 0).and_then(|items| {
            let mut result = vec![arguments.at(1)?.clone()];
            result.extend(items.iter().cloned());
            Ok(run.heap.list(result))
        }),
        "concat" => concatenated(run, arguments),
        "reverse" => arguments.list(run, 0).map(|items| run.heap.list(items.iter().rev().cloned().collect())),
        "compact" => arguments.list(run, 0).map(|items| {
            let kept = items.iter().filter(|item| is_true(&run.heap, item)).cloned().collect();
            run.heap.list(kept)
        }),
        "uniq" => unique(run, arguments),
        "without" => without(run, arguments),
        "has" => arguments.list(run, 1).and_then(|items| {
            let wanted = arguments.at(0)?;
            for item in items.iter() {
                if deep_equal(run, item, wanted, 0)? {
                    return Ok(Value::bool(true));
                }
            }
            Ok(Value::bool(false))
        }),
        "sortAlpha" => sorted(run, arguments),
        "chunk" => arguments.list(run, 1).and_then(|items| {
            let size = arguments.size(0)?.max(1);
            let chunks = items.chunks(size).map(|chunk| run.heap.list(chunk.to_vec())).collect();
            Ok(run.heap.list(chunks))
        }),
        _ => return None,
    })
}

fn length(run: &mut Interpreter<'_>, arguments: &Arguments<'_>) -> Result<Value, Failed> {
    let value = arguments.at(0)?;
    let length = match &value.data {
        Data::Str(text) => text.text.len(),
        Data::List(id) => run.heap.items(*id).len(),
        Data::Map(id) => run.heap.entries(*id).len(),
        Data::Files(files) => files.len(),
        _ => return Err(arguments.fail(format!("a {} has no length", kind_of(value)))),
    };
    Ok(Value::int(i64::try_from(length).unwrap_or(i64::MAX)))
}

fn index(run: &mut Interpreter<'_>, arguments: &Arguments<'_>) -> Result<Value, Failed> {
    let mut value = arguments.at(0)?.clone();
    for key in arguments.values.iter().skip(1) {
        value = match (&value.data, &key.data) {
            (Data::Map(_), Data::Str(text)) => {
                let found = run.field(&value, &text.text)?;
                if found.path > crate::value::ROOT {
                    run.read.insert(found.path);
                }
                found
            }
            (Data::Files(files), Data::Str(text)) => {
                let bytes = files.get(&text.text);
                Value::text(
                    bytes.map_or_else(String::new, |bytes| String::from_utf8_lossy(bytes).into_owned()),
                )
            }
            (Data::List(id), _) => {
                let at = usize::try_from(to_int(key)).unwrap_or(usize::MAX);
                run.heap.items(*id).get(at).cloned().ok_or_else(|| arguments.fail("index out of range"))?
            }
            (Data::Str(text), _) => {
                let at = usize::try_from(to_int(key)).unwrap_or(usize::MAX);
                let byte = text.text.as_bytes().get(at).copied();
                Value::int(i64::from(byte.ok_or_else(|| arguments.fail("index out of range"))?))
            }
            (Data::Nil, _) => return Err(arguments.fail("index of untyped nil")),
            _ => return Err(arguments.fail(format!("cannot index a {}", kind_of(&value)))),
        };
    }
    Ok(value)
}

fn slice(run: &mut Interpreter<'_>, arguments: &Arguments<'_>) -> Result<Value, Failed> {
    let from = if arguments.values.len() > 1 { arguments.size(1)? } else { 0 };
    let to = if arguments.values.len() > 2 { arguments.size(2)? } else { usize::MAX };
    if let Data::Str(text) = &arguments.at(0)?.data {
        let part = text.text.get(from..to.min(text.text.len()));
        return part.map(Value::text).ok_or_else(|| arguments.fail("index out of range"));
    }
    let items = arguments.list(run, 0)?;
    let part = items.get(from..to.min(items.len())).ok_or_else(|| arguments.fail("index out of range"))?;
    Ok(run.heap.list(part.to_vec()))
}

fn concatenated(run: &mut Interpreter<'_>, arguments: &Arguments<'_>) -> Result<Value, Failed> {
    let mut all = Vec::new();
    for index in 0..arguments.values.len() {
        all.extend(arguments.list(run, index)?.iter().cloned());
    }
    Ok(run.heap.list(all))
}

fn unique(run: &mut Interpreter<'_>, arguments: &Arguments<'_>) -> Result<Value, Failed> {
    let mut kept: Vec<Value> = Vec::new();
    'items: for item in arguments.list(run, 0)?.iter() {
        for known in &kept {
            if deep_equal(run, known, item, 0)? {
                continue 'items;
            }
        }
        kept.push(item.clone());
    }
    Ok(run.heap.list(kept))
}

fn without(run: &mut Interpreter<'_>, arguments: &Arguments<'_>) -> Result<Value, Failed> {
    let mut kept = Vec::new();
    'items: for item in arguments.list(run, 0)?.iter() {
        for unwanted in arguments.values.iter().skip(1) {
            if deep_equal(run, unwanted, item, 0)? {
                continue 'items;
            }
        }
        kept.push(item.clone());
    }
    Ok(run.heap.list(kept))
}

fn sorted(run: &mut Interpreter<'_>, arguments: &Arguments<'_>) -> Result<Value, Failed> {
    let mut texts = Vec::new();
    for item in arguments.list(run, 0)?.iter() {
        texts.push(strval(run, item)?);
    }
    texts.sort_by(|a, b| a.text.cmp(&b.text));
    let items = texts.into_iter().map(Value::text).collect();
    Ok(run.heap.list(items))
}
