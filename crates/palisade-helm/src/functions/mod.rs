//! The functions of templates: Go's, Sprig's and Helm's, by name.
//!
//! Implements: Go text/template, "Functions"; Sprig 3; Helm, "Template Function List".
//! <https://helm.sh/docs/chart_template_guide/function_list/>
//!
//! Rendering is deterministic: `now` is a fixed time, random texts and certificates are placeholders. What nothing can be put in
//! the place of is not here, and a chart that calls it is not rendered.

mod compare;
mod data;
mod encoding;
mod lists;
mod maps;
mod numbers;
pub(crate) mod print;
pub(crate) mod semver;
mod strings;

use std::rc::Rc;

use crate::{
    error::{Failed, TemplateErrorKind},
    exec::Interpreter,
    parse::Range,
    text::Text,
    value::{Data, Map, Value, is_true, kind_of},
};

/// The arguments of a call.
pub(crate) struct Arguments<'a> {
    pub(crate) name: &'a str,
    pub(crate) values: &'a [Value],
}

impl<'a> Arguments<'a> {
    pub(crate) fn at(&self, index: usize) -> Result<&'a Value, Failed> {
        self.values.get(index).ok_or_else(|| self.fail(format!("argument {} is missing", index + 1)))
    }

    pub(crate) fn last(&self) -> Result<&'a Value, Failed> {
        self.values.last().ok_or_else(|| self.fail("an argument is missing"))
    }

    pub(crate) fn fail(&self, problem: impl Into<String>) -> Failed {
        Failed::call(self.name, problem)
    }

    /// A string; as Go does, nothing else is taken for one.
    pub(crate) fn str(&self, index: usize) -> Result<&'a str, Failed> {
        Ok(&self.text(index)?.text)
    }

    pub(crate) fn text(&self, index: usize) -> Result<&'a Text, Failed> {
        match &self.at(index)?.data {
            Data::Str(text) => Ok(text),
            _ => Err(self.fail(format!(
                "argument {} is a {}, not a string",
                index + 1,
                kind_of(self.at(index)?)
            ))),
        }
    }

    pub(crate) fn int(&self, index: usize) -> Result<i64, Failed> {
        Ok(numbers::to_int(self.at(index)?))
    }

    pub(crate) fn size(&self, index: usize) -> Result<usize, Failed> {
        Ok(usize::try_from(self.int(index)?).unwrap_or_default())
    }

    pub(crate) fn list(&self, run: &Interpreter<'_>, index: usize) -> Result<Rc<[Value]>, Failed> {
        match &self.at(index)?.data {
            Data::List(id) => Ok(run.heap.items(*id)),
            Data::Nil => Ok(Rc::new([])),
            _ => Err(self.fail(format!(
                "argument {} is a {}, not a list",
                index + 1,
                kind_of(self.at(index)?)
            ))),
        }
    }

    pub(crate) fn map_id(&self, index: usize) -> Result<u32, Failed> {
        match self.at(index)?.data {
            Data::Map(id) => Ok(id),
            _ => {
                Err(self.fail(format!("argument {} is a {}, not a map", index + 1, kind_of(self.at(index)?))))
            }
        }
    }

    pub(crate) fn map(&self, run: &Interpreter<'_>, index: usize) -> Result<Rc<Map>, Failed> {
        // As in Go, nil is a map without entries.
        if self.at(index)?.is_nil() {
            return Ok(Rc::default());
        }
        Ok(run.heap.entries(self.map_id(index)?))
    }
}

/// Calls a function. What a result is made of is what its arguments are made of.
pub(crate) fn call(
    run: &mut Interpreter<'_>,
    name: &str,
    values: &[Value],
    place: (u32, Range),
) -> Result<Value, Failed> {
    // `mustX` is X with errors, which every function here has.
    let plain = name.strip_prefix("must").and_then(|rest| {
        let mut letters = rest.chars();
        let first = letters.next().filter(|first| first.is_uppercase())?;
        Some(first.to_lowercase().chain(letters).collect::<String>())
    });
    let arguments = Arguments { name, values };
    let short = plain.as_deref().unwrap_or(name);
    let mut deps = 0;
    for value in values {
        let own = run.heap.deps(value);
        deps = run.heap.union(deps, own);
    }
    let found = own(run, short, &arguments, place)
        .or_else(|| strings::call(run, short, &arguments))
        .or_else(|| compare::call(run, short, &arguments))
        .or_else(|| numbers::call(run, short, &arguments))
        .or_else(|| lists::call(run, short, &arguments))
        .or_else(|| maps::call(run, short, &arguments))
        .or_else(|| data::call(run, short, &arguments))
        .or_else(|| encoding::call(run, short, &arguments));
    let mut result =
        found.unwrap_or_else(|| Err(TemplateErrorKind::UnknownFunction(name.to_owned()).into()))?;
    result.deps = run.heap.union(result.deps, deps);
    let size = match &result.data {
        Data::Str(text) => text.text.len(),
        Data::List(id) => 16 * run.heap.items(*id).len(),
        _ => 0,
    };
    run.charge(1, size)?;
    Ok(result)
}

/// What runs templates, chooses and fails.
fn own(
    run: &mut Interpreter<'_>,
    name: &str,
    arguments: &Arguments<'_>,
    place: (u32, Range),
) -> Option<Result<Value, Failed>> {
    Some(match name {
        "include" => include(run, arguments),
        "tpl" => tpl(run, arguments, place),
        "required" => required(run, arguments),
        "fail" => fail(run, arguments),
        // Without a cluster, nothing exists.
        "lookup" => Ok(run.heap.map(Map::new())),
        "getHostByName" => Ok(Value::text("")),
        "default" => default(run, arguments),
        "coalesce" => {
            Ok(arguments.values.iter().find(|value| is_true(&run.heap, value)).cloned().unwrap_or(Value::NIL))
        }
        "empty" => arguments.at(0).map(|value| Value::bool(!is_true(&run.heap, value))),
        "all" => Ok(Value::bool(arguments.values.iter().all(|value| is_true(&run.heap, value)))),
        "any" => Ok(Value::bool(arguments.values.iter().any(|value| is_true(&run.heap, value)))),
        "ternary" => ternary(arguments),
        "not" => arguments.at(0).map(|value| Value::bool(!is_true(&run.heap, value))),
        // With one argument in a pipe.
        "and" | "or" => arguments.last().cloned(),
        "kindOf" => arguments.at(0).map(|value| Value::text(kind_of(value))),
        "kindIs" => arguments.str(0).and_then(|kind| Ok(Value::bool(kind_of(arguments.at(1)?) == kind))),
        "typeOf" => arguments.at(0).map(|value| Value::text(crate::value::type_of(value))),
        "typeIs" | "typeIsLike" => {
            arguments.str(0).and_then(|name| Ok(Value::bool(crate::value::type_of(arguments.at(1)?) == name)))
        }
        "print" | "println" | "printf" | "html" | "js" | "urlquery" => print::call(run, name, arguments),
        _ => return None,
    })
}

fn include(run: &mut Interpreter<'_>, arguments: &Arguments<'_>) -> Result<Value, Failed> {
    let dot = arguments.values.get(1).cloned().unwrap_or(Value::NIL);
    Ok(Value::text(run.include(arguments.str(0)?, &dot)?))
}

fn tpl(run: &mut Interpreter<'_>, arguments: &Arguments<'_>, place: (u32, Range)) -> Result<Value, Failed> {
    let dot = arguments.values.get(1).cloned().unwrap_or(Value::NIL);
    Ok(Value::text(run.tpl(arguments.at(0)?, &dot, place)?))
}

fn required(run: &mut Interpreter<'_>, arguments: &Arguments<'_>) -> Result<Value, Failed> {
    let value = arguments.at(1)?;
    if value.is_nil() || value.as_str() == Some("") {
        if value.path > crate::value::ROOT {
            run.read.insert(value.path);
        }
        let message = arguments.str(0)?.to_owned();
        if run.may_refuse {
            return Err(TemplateErrorKind::Fail(message).into());
        }
    }
    Ok(value.clone())
}

fn fail(run: &mut Interpreter<'_>, arguments: &Arguments<'_>) -> Result<Value, Failed> {
    let message = print::display(run, arguments.at(0)?)?;
    if run.may_refuse { Err(TemplateErrorKind::Fail(message).into()) } else { Ok(Value::text("")) }
}

fn default(run: &mut Interpreter<'_>, arguments: &Arguments<'_>) -> Result<Value, Failed> {
    let fallback = arguments.at(0)?;
    Ok(match arguments.values.get(1) {
        Some(value) if is_true(&run.heap, value) => value.clone(),
        _ => fallback.clone(),
    })
}

fn ternary(arguments: &Arguments<'_>) -> Result<Value, Failed> {
    match arguments.at(2)?.data {
        Data::Bool(true) => arguments.at(0).cloned(),
        Data::Bool(false) => arguments.at(1).cloned(),
        _ => Err(arguments.fail("the condition is no boolean")),
    }
}

/// Calls a method of the files of a chart, or of the versions of the API server.
pub(crate) fn method(
    run: &mut Interpreter<'_>,
    value: &Value,
    name: &str,
    values: &[Value],
) -> Result<Value, Failed> {
    let arguments = Arguments { name, values };
    let Data::Files(files) = &value.data else {
        return match name {
            "Has" => {
                let has = (run.api_versions)(arguments.str(0)?);
                Ok(Value::bool(has))
            }
            _ => {
                Err(TemplateErrorKind::NoField { field: name.to_owned(), kind: "chartutil.VersionSet" }
                    .into())
            }
        };
    };
    let content = |name: &str| {
        let bytes = files.get(name);
        bytes.map_or_else(String::new, |bytes| String::from_utf8_lossy(bytes).into_owned())
    };
    Ok(match name {
        "Get" | "GetBytes" => {
            let text = content(arguments.str(0)?);
            run.charge(1, text.len())?;
            Value::text(text)
        }
        "Lines" => {
            let text = content(arguments.str(0)?);
            run.charge(1, text.len())?;
            let lines = text.lines().map(Value::text).collect();
            run.heap.list(lines)
        }
        "Glob" => {
            let pattern = arguments.str(0)?;
            let mut found = crate::value::FileMap::new();
            for (path, bytes) in files.iter() {
                run.charge(1 + path.len() as u64, 0)?;
                if glob(pattern.as_bytes(), path.as_bytes(), &mut 10_000) {
                    found.insert(Rc::clone(path), Rc::clone(bytes));
                }
            }
            Value::of(Data::Files(Rc::new(found)))
        }
        "AsConfig" | "AsSecrets" => {
            let mut map = Map::new();
            for (path, bytes) in files.iter() {
                let base: Rc<str> = path.rsplit('/').next().unwrap_or(path).into();
                let text = if name == "AsConfig" {
                    String::from_utf8_lossy(bytes).into_owned()
                } else {
                    encoding::base64(bytes)
                };
                run.charge(1, text.len())?;
                map.insert(base, Value::text(text));
            }
            let map = run.heap.map(map);
            Value::text(data::to_yaml(run, &map)?)
        }
        // A file by its name, as an entry of the map.
        path => Value::text(content(path)),
    })
}

/// Whether a path matches `*`, `**`, `?`, `[…]` and `{a,b}`, in bounded work.
fn glob(pattern: &[u8], path: &[u8], budget: &mut u32) -> bool {
    *budget = budget.saturating_sub(1);
    if *budget == 0 {
        return false;
    }
    match (pattern, path) {
        ([], []) => true,
        ([b'*', b'*', rest @ ..], _) => {
            let rest = rest.strip_prefix(b"/").unwrap_or(rest);
            (0..=path.len()).any(|at| path.get(at..).is_some_and(|path| glob(rest, path, budget)))
        }
        ([b'*', rest @ ..], _) => {
            let reach = path.iter().position(|byte| *byte == b'/').unwrap_or(path.len());
            (0..=reach).any(|at| path.get(at..).is_some_and(|path| glob(rest, path, budget)))
        }
        ([b'?', rest @ ..], [byte, path @ ..]) if *byte != b'/' => glob(rest, path, budget),
        ([b'{', rest @ ..], _) => {
            let Some(close) = rest.iter().position(|byte| *byte == b'}') else { return false };
            let (choices, after) = rest.split_at(close);
            let after = after.get(1..).unwrap_or_default();
            choices.split(|byte| *byte == b',').any(|choice| {
                path.strip_prefix(choice).is_some_and(|path| glob(after, path, budget))
                    || (choice.contains(&b'*') && glob(&[choice, after].concat(), path, budget))
            })
        }
        ([b'[', rest @ ..], [byte, path @ ..]) => {
            let Some(close) = rest.iter().position(|byte| *byte == b']') else { return false };
            let (class, after) = rest.split_at(close);
            let negated = class.first().is_some_and(|first| matches!(first, b'^' | b'!'));
            let class = if negated { class.get(1..).unwrap_or_default() } else { class };
            let mut inside = false;
            let mut at = 0;
            while let Some(&low) = class.get(at) {
                if class.get(at + 1) == Some(&b'-') && class.get(at + 2).is_some() {
                    inside |= low <= *byte && class.get(at + 2).is_some_and(|high| byte <= high);
                    at += 3;
                } else {
                    inside |= low == *byte;
                    at += 1;
                }
            }
            inside != negated && glob(after.get(1..).unwrap_or_default(), path, budget)
        }
        ([b'\\', byte, rest @ ..] | [byte, rest @ ..], [first, path @ ..]) if byte == first => {
            glob(rest, path, budget)
        }
        _ => false,
    }
}
