//! The expressions clients may leave with us: the language, and the bounds within which strangers' expressions are read
//! and run.
//!
//! Implements: Common Expression Language in Kubernetes, without the libraries for URLs, addresses, quantities and
//! authorisation, and without times. <https://kubernetes.io/docs/reference/using-api/cel/>

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use cel::common::ast::{EntryExpr, Expr, IdedExpr};
use cel::{Context, Env, ExecutionError, Program, extensions};

/// Brackets inside brackets.
const MAX_DEPTH: usize = 32;
/// Operators in one expression.
const MAX_OPERATORS: usize = 400;
/// What the parser needs for that, and a lot more.
const STACK: usize = 64 << 20;

/// The language, with the additions Kubernetes has.
static LANGUAGE: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut language = Env::stdlib().with_optional_support(true);
    for extension in [extensions::strings, extensions::lists] {
        // An extension that cannot be declared is one whose functions expressions are then told they do not exist.
        let _ = language.add_extension(extension);
    }
    Arc::new(language)
});

/// A place for variables.
#[must_use]
pub fn context<'p, 'v>() -> Context<'p, 'v> {
    Context::with_env(LANGUAGE.clone())
}

/// Reads an expression that may name the given variables; the error is worded as upstream's compiler does.
pub fn compile(expression: &str, variables: &[&str]) -> Result<Program, String> {
    if is_too_deep(expression) {
        return Err("ERROR: <input>:1:1: expression recursion limit exceeded".to_owned());
    }
    let program = parse(expression)?;
    let mut unknown: Vec<String> = program
        .references()
        .variables()
        .into_iter()
        // The interpreter's own names for the accumulators of macros.
        .filter(|name| !variables.contains(name) && !name.starts_with('@') && !name.starts_with("__"))
        .map(str::to_owned)
        .collect();
    unknown.retain(|name| !is_bound(expression, name));
    unknown.sort_unstable();
    match unknown.first() {
        Some(name) => {
            let at = find_word(expression, name).unwrap_or(0);
            let problem = format!("undeclared reference to '{name}' (in container '')");
            Err(pointed(expression, at, &problem))
        }
        None => Ok(program),
    }
}

/// Runs an expression. The interpreter is not ours: whatever it stumbles over must not take the request with it.
pub fn evaluate(program: &Program, context: &Context<'_, '_>) -> Result<cel::Value, String> {
    match catch_unwind(AssertUnwindSafe(|| program.execute(context))) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(worded(&error)),
        Err(_) => Err("cel evaluation failed".to_owned()),
    }
}

/// The runtime errors Kubernetes' users know, in its words.
fn worded(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::NoSuchOverload(_)
        | ExecutionError::UnsupportedBinaryOperator(..)
        | ExecutionError::ValuesNotComparable(..) => "no such overload".to_owned(),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::IndexOutOfBounds(cel::Value::Int(at)) => format!("index out of bounds: {at}"),
        other => other.to_string(),
    }
}

/// An error with the place it is about.
pub(crate) fn pointed(expression: &str, at: usize, problem: &str) -> String {
    let before = expression.get(..at).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count();
    let shown = expression.lines().nth(line - 1).unwrap_or_default();
    format!("ERROR: <input>:{line}:{}: {problem}\n | {shown}\n | {}^", column + 1, ".".repeat(column))
}

/// Where a name stands alone.
pub(crate) fn find_word(expression: &str, name: &str) -> Option<usize> {
    let part_of_name = |c: char| c.is_alphanumeric() || c == '_';
    expression.match_indices(name).map(|(at, _)| at).find(|&at| {
        let before = expression.get(..at).and_then(|text| text.chars().next_back());
        let after = expression.get(at + name.len()..).and_then(|text| text.chars().next());
        !before.is_some_and(part_of_name) && !after.is_some_and(part_of_name)
    })
}

/// Loops inside loops.
#[must_use]
pub(crate) fn nesting(expression: &IdedExpr) -> u32 {
    let deepest = |parts: &mut dyn Iterator<Item = &IdedExpr>| parts.map(nesting).max().unwrap_or(0);
    let of_entries = |entries: &[cel::common::ast::IdedEntryExpr]| {
        let parts = entries.iter().map(|entry| match &entry.expr {
            EntryExpr::StructField(field) => nesting(&field.value),
            EntryExpr::MapEntry(entry) => nesting(&entry.key).max(nesting(&entry.value)),
        });
        parts.max().unwrap_or(0)
    };
    match &expression.expr {
        Expr::Call(call) => deepest(&mut call.target.as_deref().into_iter().chain(&call.args)),
        Expr::Select(select) => nesting(&select.operand),
        Expr::List(list) => deepest(&mut list.elements.iter()),
        Expr::Map(map) => of_entries(&map.entries),
        Expr::Struct(structure) => of_entries(&structure.entries),
        Expr::Comprehension(it) => {
            let inside = nesting(&it.loop_step).max(nesting(&it.loop_cond));
            nesting(&it.iter_range).max(inside.saturating_add(1)).max(nesting(&it.result))
        }
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => 0,
    }
}

/// Whether the interpreter could run out of stack: it recurses for every bracket and operator.
fn is_too_deep(expression: &str) -> bool {
    let (mut depth, mut deepest, mut operators) = (0_usize, 0, 0_usize);
    let mut quote = None;
    let mut characters = expression.chars();
    while let Some(c) = characters.next() {
        match (quote, c) {
            (Some(_), '\\') => {
                characters.next();
            }
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '(' | '[' | '{') => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            (None, ')' | ']' | '}') => depth = depth.saturating_sub(1),
            (None, '.' | '?' | '!' | '-' | '+' | '*' | '/' | '%' | '|' | '&' | '=' | '<' | '>') => {
                operators += 1;
            }
            _ => {}
        }
    }
    deepest > MAX_DEPTH || operators > MAX_OPERATORS
}

/// Reads an expression where there is stack enough for it, and where a parser that gives up harms nobody.
fn parse(expression: &str) -> Result<Program, String> {
    let parsed = std::thread::scope(|scope| {
        let parser = std::thread::Builder::new().name("cel".to_owned()).stack_size(STACK);
        let thread = parser.spawn_scoped(scope, || LANGUAGE.compile(expression).map_err(|e| e.to_string()));
        thread.map(std::thread::ScopedJoinHandle::join)
    });
    match parsed {
        Ok(Ok(parsed)) => parsed,
        _ => Err("ERROR: <input>:1:1: the expression cannot be read".to_owned()),
    }
}

/// Whether a macro such as `exists(x, ...)` gives the name its meaning.
fn is_bound(expression: &str, name: &str) -> bool {
    let macros = ["all", "exists", "exists_one", "existsOne", "map", "filter"];
    macros.iter().any(|called| {
        expression.match_indices(&format!(".{called}(")).any(|(at, call)| {
            let rest = expression.get(at + call.len()..).unwrap_or_default().trim_start();
            rest.strip_prefix(name).is_some_and(|rest| rest.trim_start().starts_with(','))
        })
    })
}
