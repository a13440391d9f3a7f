//! Stored policies and bindings, read once into what an evaluation needs.

use std::sync::Arc;

use palisade_apimachinery::cel::{CompileError, Environment, Expression, compile_in};
use palisade_apimachinery::rest::path::Get as _;
use palisade_base::field_error::FieldError;
use palisade_base::label_selector::LabelSelector;
use serde_json::Value;

use crate::storage::Object;
use crate::webhooks::matching::Rule;

/// A policy with its bindings.
#[derive(Debug)]
pub(crate) struct Policy {
    pub(super) name: String,
    /// What fails is as good as a yes.
    pub(super) ignores_failure: bool,
    pub(super) resources: MatchResources,
    /// `apiVersion` and `kind` of parameters.
    pub(super) param_kind: Option<(String, String)>,
    pub(super) bindings: Vec<Binding>,
    /// The expressions, or the first of them that cannot be compiled.
    pub(super) expressions: Result<Expressions, CompileError>,
    /// Whether it is evaluated again when others changed the object after it.
    pub(super) reinvoked: bool,
}

#[derive(Debug, Default)]
pub(super) struct Expressions {
    /// Text and expression.
    pub(super) conditions: Vec<(String, Expression)>,
    pub(super) variables: Vec<(String, Expression)>,
    pub(super) validations: Vec<Validation>,
    /// Key, text and expression.
    pub(super) annotations: Vec<(String, String, Expression)>,
    pub(super) mutations: Vec<Mutation>,
}

#[derive(Debug)]
pub(super) struct Validation {
    pub(super) text: String,
    pub(super) expression: Expression,
    pub(super) message: String,
    pub(super) message_expression: Option<Expression>,
    pub(super) reason: String,
}

#[derive(Debug)]
pub(super) struct Mutation {
    pub(super) text: String,
    pub(super) expression: Expression,
    pub(super) is_json_patch: bool,
}

#[derive(Debug)]
pub(super) struct Binding {
    pub(super) name: String,
    pub(super) resources: Option<MatchResources>,
    pub(super) param_ref: Option<Value>,
    pub(super) actions: Vec<String>,
}

#[derive(Debug)]
pub(super) struct MatchResources {
    pub(super) rules: Vec<NamedRule>,
    pub(super) excluded: Vec<NamedRule>,
    pub(super) namespaces: LabelSelector,
    pub(super) objects: LabelSelector,
    /// Other versions of a resource count as well.
    pub(super) equivalent: bool,
}

#[derive(Debug)]
pub(super) struct NamedRule {
    pub(super) rule: Rule,
    /// Names of objects; empty: all.
    pub(super) names: Vec<String>,
}

impl MatchResources {
    fn read(resources: &Value) -> Self {
        let rules = |list: &str| {
            let read =
                |rule: &Value| NamedRule { rule: Rule::read(rule), names: texts(rule, "resourceNames") };
            resources.list(list).iter().map(read).collect()
        };
        let selector = |key: &str| resources.child(key).map(LabelSelector::from_object).unwrap_or_default();
        Self {
            rules: rules("resourceRules"),
            excluded: rules("excludeResourceRules"),
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
            equivalent: resources.text("matchPolicy") != "Exact",
        }
    }
}

fn texts(value: &Value, key: &str) -> Vec<String> {
    value.list(key).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// A stored policy with those of the bindings that name it.
pub(super) fn policy(object: &Object, bindings: &[Arc<Object>]) -> Policy {
    let policy = Value::Object(object.parse());
    let nothing = Value::Null;
    let spec = policy.get("spec").unwrap_or(&nothing);
    let bindings = bindings.iter().filter_map(|binding| {
        let value = Value::Object(binding.parse());
        let spec = value.get("spec")?;
        (spec.text("policyName") == object.name()).then(|| Binding {
            name: binding.name().to_owned(),
            resources: spec.child("matchResources").map(MatchResources::read),
            param_ref: spec.child("paramRef").cloned(),
            actions: texts(spec, "validationActions"),
        })
    });
    Policy {
        name: object.name().to_owned(),
        ignores_failure: spec.text("failurePolicy") == "Ignore",
        resources: MatchResources::read(spec.child("matchConstraints").unwrap_or(&nothing)),
        param_kind: spec
            .child("paramKind")
            .map(|kind| (kind.text("apiVersion").to_owned(), kind.text("kind").to_owned())),
        bindings: bindings.collect(),
        expressions: compile(spec).map_err(|(_, _, error)| error),
        reinvoked: spec.text("reinvocationPolicy") == "IfNeeded",
    }
}

/// The first problem: the field, the expression, and why it cannot be compiled.
type Problem = (String, String, CompileError);

fn compile(spec: &Value) -> Result<Expressions, Problem> {
    let mut known = vec!["object", "oldObject", "request", "namespaceObject"];
    if spec.child("paramKind").is_some() {
        known.push("params");
    }
    let without_authorizer = known.clone();
    known.push("authorizer");
    let read = |field: String, text: &str, environment: &Environment<'_>| {
        compile_in(text, environment).map_err(|error| (field, text.to_owned(), error))
    };
    let mut expressions = Expressions::default();
    let plain = Environment { variables: &known, ..Environment::default() };
    for (i, condition) in spec.list("matchConditions").iter().enumerate() {
        let compiled =
            read(format!("spec.matchConditions[{i}].expression"), condition.text("expression"), &plain)?;
        expressions.conditions.push((condition.text("expression").to_owned(), compiled));
    }
    let names: Vec<&str> = spec.list("variables").iter().map(|variable| variable.text("name")).collect();
    for (i, variable) in spec.list("variables").iter().enumerate() {
        // A variable sees those before it.
        let before = names.get(..i).unwrap_or_default();
        let environment = Environment { composed: Some(before), ..plain };
        let compiled =
            read(format!("spec.variables[{i}].expression"), variable.text("expression"), &environment)?;
        expressions.variables.push((variable.text("name").to_owned(), compiled));
    }
    let composed = Environment { composed: (!names.is_empty()).then_some(names.as_slice()), ..plain };
    let messages = Environment { variables: &without_authorizer, ..composed };
    for (i, validation) in spec.list("validations").iter().enumerate() {
        let text = validation.text("expression");
        let message = validation.text("messageExpression");
        let message_expression = match message.trim() {
            "" => None,
            _ => Some(read(format!("spec.validations[{i}].messageExpression"), message, &messages)?),
        };
        expressions.validations.push(Validation {
            text: text.to_owned(),
            expression: read(format!("spec.validations[{i}].expression"), text, &composed)?,
            message: validation.text("message").trim().to_owned(),
            message_expression,
            reason: validation.text("reason").to_owned(),
        });
    }
    for (i, annotation) in spec.list("auditAnnotations").iter().enumerate() {
        let text = annotation.text("valueExpression");
        let compiled = read(format!("spec.auditAnnotations[{i}].valueExpression"), text, &composed)?;
        expressions.annotations.push((annotation.text("key").to_owned(), text.to_owned(), compiled));
    }
    let objects = Environment { objects: true, ..composed };
    for (i, mutation) in spec.list("mutations").iter().enumerate() {
        let is_json_patch = mutation.text("patchType") == "JSONPatch";
        let field = if is_json_patch { "jsonPatch" } else { "applyConfiguration" };
        let nothing = Value::Null;
        let text = mutation.child(field).unwrap_or(&nothing).text("expression");
        let compiled = read(format!("spec.mutations[{i}].{field}.expression"), text, &objects)?;
        expressions.mutations.push(Mutation { text: text.to_owned(), expression: compiled, is_json_patch });
    }
    Ok(expressions)
}

/// What is wrong with the expressions of a policy. Empty expressions are reported by validation.
pub(crate) fn compile_errors(policy: &Value) -> Vec<FieldError> {
    match policy.get("spec").map(compile) {
        Some(Err((field, text, problem))) if !text.trim().is_empty() => {
            vec![FieldError::invalid(field, text.as_str(), format!("compilation failed: {problem}"))]
        }
        _ => Vec::new(),
    }
}
