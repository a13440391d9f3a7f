//! CEL expressions that narrow down which requests a webhook is called for.
//!
//! Implements: Dynamic Admission Control, "Matching requests: matchConditions". Expressions see `object`, `oldObject` and
//! `request`; `authorizer` is not offered, and an expression that names it is refused where it is written.
//! <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#matching-requests-matchconditions>

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use cel::{Context, Env, Program, extensions};
use palisade_apimachinery::FieldError;
use palisade_apimachinery::rest::path::Get as _;
use serde_json::Value;

/// What expressions may name.
const VARIABLES: &[&str] = &["object", "oldObject", "request"];

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
        if let Err(error) = language.add_extension(extension) {
            tracing::error!(%error, "an extension of CEL is missing");
        }
    }
    Arc::new(language)
});

/// The conditions of a webhook.
#[derive(Debug, Default)]
pub(crate) struct Conditions(Vec<(String, Result<Program, String>)>);

impl Conditions {
    pub(super) fn read(conditions: &[Value]) -> Self {
        let read =
            |condition: &Value| (condition.text("name").to_owned(), compile(condition.text("expression")));
        Self(conditions.iter().map(read).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all are true. One that is false decides; otherwise those that cannot be told are an error.
    pub(super) fn hold(
        &self,
        request: &Value,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<bool, String> {
        let mut context = Context::with_env(LANGUAGE.clone());
        let variables = [("request", Some(request)), ("object", object), ("oldObject", old)];
        for (name, value) in variables {
            let value = cel::to_value(value).map_err(|error| error.to_string())?;
            context.add_variable_from_value(name, value);
        }
        let mut problems = Vec::new();
        for (name, program) in &self.0 {
            let outcome = match program {
                Ok(program) => evaluate(program, &context),
                Err(problem) => Err(problem.clone()),
            };
            match outcome {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(problem) => problems.push(format!("{name}: {problem}")),
            }
        }
        match problems.as_slice() {
            [] => Ok(true),
            [problem] => Err(problem.clone()),
            problems => Err(format!("[{}]", problems.join(", "))),
        }
    }
}

fn evaluate(program: &Program, context: &Context<'_, '_>) -> Result<bool, String> {
    // The interpreter is not ours: whatever it stumbles over must not take the request with it.
    match catch_unwind(AssertUnwindSafe(|| program.execute(context))) {
        Ok(Ok(cel::Value::Bool(holds))) => Ok(holds),
        Ok(Ok(_)) => Err("cel evaluation did not return a bool".to_owned()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("cel evaluation failed".to_owned()),
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

fn compile(expression: &str) -> Result<Program, String> {
    if is_too_deep(expression) {
        return Err("ERROR: <input>:1:1: expression recursion limit exceeded".to_owned());
    }
    let program = parse(expression)?;
    let mut unknown: Vec<String> = program
        .references()
        .variables()
        .into_iter()
        // The interpreter's own names for the accumulators of macros.
        .filter(|name| !VARIABLES.contains(name) && !name.starts_with('@') && !name.starts_with("__"))
        .map(str::to_owned)
        .collect();
    unknown.retain(|name| !is_bound(expression, name));
    unknown.sort_unstable();
    match unknown.first() {
        Some(name) => Err(format!("ERROR: <input>: undeclared reference to '{name}' (in container '')")),
        None => Ok(program),
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

/// What is wrong with the expressions of a webhook configuration.
pub(crate) fn compile_errors(configuration: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (i, webhook) in configuration.list("webhooks").iter().enumerate() {
        for (j, condition) in webhook.list("matchConditions").iter().enumerate() {
            let expression = condition.text("expression");
            if expression.trim().is_empty() {
                continue;
            }
            if let Err(problem) = compile(expression) {
                let field = format!("webhooks[{i}].matchConditions[{j}].expression");
                errors.push(FieldError::invalid(field, expression, format!("compilation failed: {problem}")));
            }
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn holds(expression: &str) -> Result<bool, String> {
        let conditions = Conditions::read(&[json!({"name": "c", "expression": expression})]);
        let request =
            json!({"operation": "CREATE", "userInfo": {"username": "u", "groups": ["system:nodes"]}});
        let pod = json!({"metadata": {"name": "p", "annotations": {"kubernetes.io/config.mirror": "x"}},
                         "spec": {"containers": [{"image": "a"}, {"image": "b"}]}});
        conditions.hold(&request, Some(&pod), None)
    }

    #[test]
    fn what_webhooks_usually_ask() {
        for (expression, expected) in [
            ("true", true),
            ("request.operation == 'CREATE'", true),
            ("!('system:nodes' in request.userInfo.groups)", false),
            ("request.userInfo.groups.exists(g, g.startsWith('system:'))", true),
            (
                "has(object.metadata.annotations) && 'kubernetes.io/config.mirror' in object.metadata.annotations",
                true,
            ),
            ("has(object.metadata.labels) && 'a' in object.metadata.labels", false),
            ("object.spec.containers.all(c, c.image != 'b')", false),
            ("oldObject == null", true),
            ("object.metadata.?labels[?'x'].orValue('') == ''", true),
            ("object.metadata.name.matches('^p$')", true),
        ] {
            assert_eq!(holds(expression), Ok(expected), "{expression}");
        }
    }

    #[test]
    fn what_cannot_be_told_is_an_error() {
        for expression in ["object.spec.nope == 1", "oldObject.metadata.name == 'x'", "1 + 1", "object.("] {
            assert!(holds(expression).is_err(), "{expression}");
        }
    }

    #[test]
    fn expressions_are_checked_where_they_are_written() {
        let with = |expression: &str| json!({"webhooks": [{"matchConditions": [{"name": "c", "expression": expression}]}]});
        assert_eq!(compile_errors(&with("object.metadata.name == request.name")), []);
        for expression in
            ["object.(", "authorizer.group('').resource('pods').check('get').allowed()", "nope == 1"]
        {
            assert_eq!(compile_errors(&with(expression)).len(), 1, "{expression}");
        }
        for (open, close) in
            [("(", ")"), ("[", "]"), ("!", ""), ("-", ""), ("request.", ""), ("true ? false : ", "")]
        {
            let deep = format!("{}true{}", open.repeat(10_000), close.repeat(10_000));
            assert_eq!(compile_errors(&with(&deep)).len(), 1, "{open}");
            // What is allowed does not overflow the stack.
            let allowed = format!("{}true{}", open.repeat(30), close.repeat(30));
            let _ = holds(&allowed);
        }
        let _ = holds(&format!("request{}", ".a".repeat(400)));
        let _ = holds(&format!("{}true", "!".repeat(400)));
        let _ = holds(&format!("{}true", "true || ".repeat(200)));
    }
}
