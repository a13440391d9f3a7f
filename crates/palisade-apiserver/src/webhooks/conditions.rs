//! CEL expressions that narrow down which requests a webhook is called for.
//!
//! Implements: Dynamic Admission Control, "Matching requests: matchConditions". Expressions see `object`, `oldObject` and
//! `request`; `authorizer` is not offered, and an expression that names it is refused where it is written.
//! <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#matching-requests-matchconditions>

use palisade_apimachinery::cel::budget::MATCH_CONDITIONS;
use palisade_apimachinery::cel::{CompileError, Expression, Fault, Val, compile, evaluate};
use palisade_apimachinery::rest::path::Get as _;
use palisade_base::field_error::{FieldError, aggregate};
use serde_json::Value;
use thiserror::Error;

/// What expressions may name.
const VARIABLES: &[&str] = &["object", "oldObject", "request"];

/// The conditions of a webhook.
#[derive(Debug, Default)]
pub(crate) struct Conditions(Vec<(String, Result<Expression, CompileError>)>);

/// Why a condition is neither true nor false, worded as upstream does.
#[derive(Debug, Error)]
enum Undecided {
    /// It cannot be read.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// It fails on this request.
    #[error(transparent)]
    Evaluate(#[from] Fault),
    /// It has a result of another type.
    #[error("cel evaluation did not return a bool")]
    NotABool,
}

/// The condition of a name, and why it is undecided.
#[derive(Debug, Error)]
#[error("{name}: {why}")]
struct UndecidedCondition {
    name: String,
    why: Undecided,
}

/// The conditions of a webhook that are undecided while none is false.
#[derive(Debug, Error)]
#[error("{}", aggregate(.0))]
pub(super) struct UndecidedConditions(Vec<UndecidedCondition>);

impl Conditions {
    pub(super) fn read(conditions: &[Value]) -> Self {
        let read = |condition: &Value| {
            (condition.text("name").to_owned(), compile(condition.text("expression"), VARIABLES))
        };
        Self(conditions.iter().map(read).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all are true. One that is false decides; otherwise those that cannot be evaluated are an error.
    pub(super) fn hold(
        &self,
        request: &Value,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<bool, UndecidedConditions> {
        let value = |value: Option<&Value>| value.map_or(Val::Null, Val::from_json);
        let variables =
            [("request", value(Some(request))), ("object", value(object)), ("oldObject", value(old))];
        let mut budget = MATCH_CONDITIONS;
        let mut problems = Vec::new();
        for (name, program) in &self.0 {
            let outcome = match program {
                Ok(program) => holds(program, &variables, &mut budget),
                Err(error) => Err(error.clone().into()),
            };
            match outcome {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(why) => problems.push(UndecidedCondition { name: name.clone(), why }),
            }
        }
        if problems.is_empty() { Ok(true) } else { Err(UndecidedConditions(problems)) }
    }
}

/// `budget` is what all conditions of a webhook together may still cost.
fn holds(program: &Expression, variables: &[(&str, Val)], budget: &mut u64) -> Result<bool, Undecided> {
    let (outcome, cost) = evaluate(program, variables, *budget);
    *budget = budget.saturating_sub(cost);
    match outcome? {
        Val::Bool(holds) => Ok(holds),
        _ => Err(Undecided::NotABool),
    }
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
            if let Err(problem) = compile(expression, VARIABLES) {
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
        conditions.hold(&request, Some(&pod), None).map_err(|error| error.to_string())
    }

    #[test]
    fn evaluates_common_match_conditions() {
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
    fn conditions_share_a_budget() {
        let bomb = format!("[object.metadata.name]{}.size() > 0", ".map(v, v + v)".repeat(40));
        assert!(holds(&bomb).unwrap_err().contains("actual cost limit exceeded"));
        let item = "object.spec.containers.all(c, c.image != '')";
        assert_eq!(holds(item), Ok(true));
    }

    #[test]
    fn undecidable_conditions_are_errors() {
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
