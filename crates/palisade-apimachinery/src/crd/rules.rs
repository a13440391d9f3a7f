//! The rules of custom kinds that are written as expressions.
//!
//! Implements: Extend the Kubernetes API with CustomResourceDefinitions, "Validation rules", and
//! `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/validation.go`. Whether rules can be compiled is judged by
//! [`super::rule_checks`], the language is [`crate::cel`]'s.
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation-rules>

use std::collections::BTreeMap;
use std::sync::Arc;

use palisade_base::field_error::{BadValue, FieldError, FieldErrorKind};
use palisade_base::version::KubeVersion;
use serde_json::Value;

use super::JsonSchema;
use super::programs::compiled;
use super::validate::join;
use crate::cel::budget::PER_OBJECT;
use crate::cel::{CompileError, Expression, Fault, Key, RESERVED, Val, evaluate};
use crate::rest::path::{Errors, Get};

/// What rules may name.
pub(super) const VARIABLES: &[&str] = &["self", "oldSelf"];
/// Bytes of a message that was made by an expression.
const MAX_MESSAGE: usize = 5 * 1024;

/// The rules of one level of a schema and of the levels below; levels without any are left out.
#[derive(Debug, Default)]
pub(crate) struct Validator {
    rules: Vec<Rule>,
    properties: BTreeMap<String, Validator>,
    additional: Option<Box<Validator>>,
    items: Option<Box<Validator>>,
}

#[derive(Debug)]
struct Rule {
    /// Its message, or else itself: what errors call it by.
    called: String,
    message: String,
    program: Result<Arc<Expression>, CompileError>,
    message_expression: Option<Arc<Expression>>,
    reason: String,
    /// Where the error is reported, below the level of the rule.
    field_path: String,
    optional_old_self: bool,
    uses_old_self: bool,
}

impl Rule {
    fn read(rule: &Value, schema: &Value) -> Self {
        let (text, message) = (rule.text("rule").trim(), rule.text("message").trim());
        let program = compiled(text);
        let uses_old_self = program.as_ref().is_ok_and(|program| program.names("oldSelf"));
        let expression = rule.text("messageExpression");
        Self {
            called: if message.is_empty() { text } else { message }.to_owned(),
            message: if message.is_empty() { format!("failed rule: {text}") } else { message.to_owned() },
            program,
            message_expression: (!expression.is_empty()).then(|| compiled(expression).ok()).flatten(),
            reason: rule.text("reason").to_owned(),
            field_path: super::rule_checks::field_path(rule.text("fieldPath"), schema).unwrap_or_default(),
            optional_old_self: rule.flag("optionalOldSelf") == Some(true),
            uses_old_self,
        }
    }
}

impl Validator {
    /// Reads the rules of a schema; none if there are none.
    pub(super) fn read(schema: &Value) -> Option<Self> {
        let rules: Vec<Rule> =
            schema.list("x-kubernetes-validations").iter().map(|rule| Rule::read(rule, schema)).collect();
        let properties: BTreeMap<String, Self> = schema
            .entries("properties")
            .filter_map(|(name, inner)| Some((name.clone(), Self::read(inner)?)))
            .collect();
        let below = |key: &str| schema.get(key).filter(|s| s.is_object()).and_then(Self::read).map(Box::new);
        let found =
            Self { rules, properties, additional: below("additionalProperties"), items: below("items") };
        let is_empty = found.rules.is_empty()
            && found.properties.is_empty()
            && found.additional.is_none()
            && found.items.is_none();
        (!is_empty).then_some(found)
    }

    /// Judges an object. What is wrong in itself is not put to rules, which may rely on the schema.
    pub(super) fn check(
        &self,
        schema: &JsonSchema,
        object: &Value,
        old: Option<&Value>,
        errors: &mut Errors,
    ) {
        let blocks = |error: &FieldError| {
            use FieldErrorKind::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
            matches!(error.kind, NotSupported | Required | TooLong | TooMany | TypeInvalid)
        };
        if errors.list.iter().any(blocks) {
            errors.list.push(FieldError::invalid(
                "<nil>",
                BadValue::Nil,
                "some validation rules were not checked because the object was invalid; correct the existing errors to \
                 complete validation",
            ));
            return;
        }
        let mut run =
            Run { errors: Vec::new(), version: errors.version, budget: PER_OBJECT, exhausted: false };
        run.level(self, &Place { schema, value: object, old, path: "", is_root: true });
        errors.list.append(&mut run.errors);
    }
}

/// A value, and where it stands.
#[derive(Clone, Copy)]
struct Place<'a> {
    schema: &'a JsonSchema,
    value: &'a Value,
    /// What it was before.
    old: Option<&'a Value>,
    path: &'a str,
    is_root: bool,
}

/// One judgement.
struct Run {
    errors: Vec<FieldError>,
    version: KubeVersion,
    /// What all rules together may still cost.
    budget: u64,
    exhausted: bool,
}

impl Run {
    fn level(&mut self, validator: &Validator, at: &Place<'_>) {
        let Place { schema, value, path, .. } = *at;
        // Rules about what is absent or null are those of the level above.
        if value.is_null() || self.exhausted {
            return;
        }
        let old = at.old.filter(|old| !old.is_null());
        self.rules(validator, &Place { old, ..*at });
        match value {
            Value::Object(map) => {
                for (name, value) in map {
                    let before = old.and_then(|old| old.get(name)).filter(|_| schema.map_type != "atomic");
                    let (inner, kind, path) = match (validator.properties.get(name), &validator.additional) {
                        (Some(inner), _) => (inner, schema.properties.get(name), join(path, name)),
                        (None, Some(inner)) if !schema.properties.contains_key(name) => {
                            (&**inner, schema.additional.as_deref(), format!("{path}[{name}]"))
                        }
                        _ => continue,
                    };
                    if let Some(schema) = kind {
                        self.level(inner, &Place { schema, value, old: before, path: &path, is_root: false });
                    }
                }
            }
            Value::Array(items) => {
                let (Some(inner), Some(kind)) = (&validator.items, &schema.items) else { return };
                for (i, value) in items.iter().enumerate() {
                    let old = old.and_then(|old| counterpart(schema, value, old));
                    let path = format!("{path}[{i}]");
                    self.level(inner, &Place { schema: kind, value, old, path: &path, is_root: false });
                }
            }
            _ => {}
        }
    }

    fn rules(&mut self, validator: &Validator, at: &Place<'_>) {
        let Place { schema, value, old, path, is_root } = *at;
        if validator.rules.is_empty() {
            return;
        }
        let place = if path.is_empty() { "<nil>" } else { path };
        let this = converted(schema, value, is_root);
        let before = old.map(|old| converted(schema, old, is_root));
        for rule in &validator.rules {
            let mut broken = |detail: String| {
                self.errors.push(FieldError::invalid(place, schema.kind.as_str(), detail));
            };
            let program = match &rule.program {
                Ok(program) => program,
                Err(problem) => {
                    broken(format!("rule compile error: compilation failed: {problem}"));
                    continue;
                }
            };
            if rule.uses_old_self && before.is_none() && !rule.optional_old_self {
                continue;
            }
            let before =
                if rule.optional_old_self { Some(Val::optional(before.clone())) } else { before.clone() };
            let mut variables = vec![("self", this.clone())];
            variables.extend(before.map(|before| ("oldSelf", before)));
            let (outcome, cost) = evaluate(program, &variables, PER_OBJECT);
            let is_over = cost > self.budget;
            self.budget = self.budget.saturating_sub(cost);
            if is_over {
                broken(
                    "validation failed due to running out of cost budget, no further validation rules will be run"
                        .to_owned(),
                );
                self.exhausted = true;
                return;
            }
            match outcome {
                Ok(Val::Bool(true)) => {}
                // What was wrong before and is not touched may stay.
                Ok(Val::Bool(false))
                    if !rule.uses_old_self && self.version.at_least(30) && old == Some(value) => {}
                Ok(Val::Bool(false)) => {
                    let detail = rule.message_expression.as_ref().and_then(|expression| {
                        let (outcome, cost) = evaluate(expression, &variables, self.budget);
                        self.budget = self.budget.saturating_sub(cost);
                        match outcome {
                            Ok(Val::String(text)) => Some(text.trim().to_owned()),
                            _ => None,
                        }
                    });
                    let usable =
                        |text: &String| !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n');
                    let detail = detail.filter(usable).unwrap_or_else(|| rule.message.clone());
                    self.errors.push(self.failed(rule, at, detail));
                }
                Ok(_) => {
                    broken(format!(
                        "cel expression must evaluate to a bool evaluating rule: {}",
                        rule.called
                    ));
                }
                Err(problem @ Fault::Exhausted) => {
                    broken(format!(
                        "'{problem}': no further validation rules will be run due to call cost exceeds limit for rule: {}",
                        rule.called
                    ));
                    self.exhausted = true;
                    return;
                }
                Err(Fault::Error(problem)) if problem.starts_with("no such overload") => broken(format!(
                    "'{problem}': call arguments did not match a supported operator, function or macro signature for \
                     rule: {}",
                    rule.called
                )),
                Err(Fault::Error(problem)) => broken(format!("{problem} evaluating rule: {}", rule.called)),
            }
        }
    }

    fn failed(&self, rule: &Rule, at: &Place<'_>, detail: String) -> FieldError {
        let Place { schema, value, path, .. } = *at;
        let place = match (path, rule.field_path.as_str()) {
            ("", "") => "<nil>".to_owned(),
            (path, "") => path.to_owned(),
            (path, below) => join(path, below),
        };
        let shown = match schema.kind.as_str() {
            kind if !self.version.at_least(34) => BadValue::Text(kind.to_owned()),
            "object" | "array" => BadValue::Omitted,
            _ => BadValue::from(value),
        };
        match rule.reason.as_str() {
            "FieldValueForbidden" => FieldError::forbidden(place, detail),
            "FieldValueRequired" => FieldError::required(place, detail),
            "FieldValueDuplicate" => FieldError::duplicate(place, shown),
            _ => FieldError::invalid(place, shown, detail),
        }
    }
}

/// The item of the old list an item of the new one was: only lists that are maps identify it.
fn counterpart<'o>(schema: &JsonSchema, item: &Value, old: &'o Value) -> Option<&'o Value> {
    if schema.list_type != "map" {
        return None;
    }
    let keys = &schema.list_map_keys;
    old.as_array()?.iter().find(|before| keys.iter().all(|key| before.get(key) == item.get(key)))
}

/// A value as expressions see it: typed by the schema, its fields under names that can be written.
fn converted(schema: &JsonSchema, value: &Value, is_root: bool) -> Val {
    match value {
        Value::Number(number) if schema.kind == "number" => Val::Double(number.as_f64().unwrap_or_default()),
        Value::String(text) if schema.kind == "string" => typed_text(&schema.format, text),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Val::from_json(value),
        Value::Array(items) => {
            let free = JsonSchema::default();
            let inner = schema.items.as_deref().unwrap_or(&free);
            Val::list(items.iter().map(|item| converted(inner, item, false)).collect())
        }
        Value::Object(map) => {
            let free = JsonSchema::default();
            let mut fields = BTreeMap::new();
            let root = is_root || schema.embedded_resource;
            for (name, value) in map {
                let (key, inner) = match schema.properties.get(name) {
                    _ if root && name == "metadata" => {
                        fields.insert(Key::text(name), metadata(value));
                        continue;
                    }
                    // Null where it is not allowed is as good as absent.
                    Some(inner) if value.is_null() && !inner.nullable => continue,
                    Some(inner) => (escaped(name), inner),
                    None if root => (name.clone(), &free),
                    None => (name.clone(), schema.additional.as_deref().unwrap_or(&free)),
                };
                fields.insert(Key::text(&key), converted(inner, value, false));
            }
            Val::map(fields)
        }
    }
}

/// A text whose format gives it a type.
fn typed_text(format: &str, text: &str) -> Val {
    match format {
        "date-time" => Val::timestamp(text),
        "date" => Val::timestamp(&format!("{text}T00:00:00Z")),
        "duration" => Val::duration(text),
        "byte" => Val::bytes(text),
        _ => None,
    }
    .unwrap_or_else(|| Val::text(text))
}

/// Of the metadata, rules see what a schema may describe.
fn metadata(value: &Value) -> Val {
    let known = ["name", "generateName"].into_iter().filter_map(|field| {
        let text = value.get(field)?.as_str()?;
        Some((Key::text(field), Val::text(text)))
    });
    Val::map(known.collect())
}

/// Names that mean something else in expressions, or cannot be written there.
pub(crate) fn escaped(name: &str) -> String {
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    name.replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn judged(schema: &Value, object: &Value, old: Option<&Value>) -> Vec<String> {
        let validator = Validator::read(schema).expect("rules");
        let mut errors = Errors::new(KubeVersion::LATEST);
        validator.check(&JsonSchema::read(schema), object, old, &mut errors);
        errors
            .list
            .iter()
            .map(|error| format!("{}: {}", error.field(), error.body(KubeVersion::LATEST)))
            .collect()
    }

    fn spec(rules: &Value) -> Value {
        json!({"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-validations": rules, "properties": {
            "min": {"type": "integer"}, "max": {"type": "integer"}, "my-name": {"type": "string"}, "ratio": {"type": "number"},
            "either": {"x-kubernetes-int-or-string": true}, "tags": {"type": "object", "additionalProperties": {"type": "string"}},
            "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items":
                {"type": "object", "properties": {"k": {"type": "string"},
                    "v": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf", "message": "v must not shrink"}]}}}}}}}})
    }

    #[test]
    fn rules_judge_new_objects() {
        let object = json!({"spec": {"min": 3, "max": 2, "my-name": "a", "ratio": 1, "either": "x", "tags": {"a": "b"}}});
        for (rule, expected) in [
            (
                json!({"rule": "self.min > 1 && self.ratio * 2.0 == 2.0 && self.my__dash__name == 'a'"}),
                &[][..],
            ),
            (json!({"rule": "has(self.tags) && self.tags.all(k, k == 'a') && self.tags['a'] == 'b'"}), &[]),
            (
                json!({"rule": "self.min + 1 <= self.max"}),
                &["spec: Invalid value: failed rule: self.min + 1 <= self.max"],
            ),
            (
                json!({"rule": "self.min <= self.max", "message": " min above max "}),
                &["spec: Invalid value: min above max"],
            ),
            (
                json!({"rule": "self.min <= self.max", "messageExpression": "string(self.min) + ' > ' + string(self.max)"}),
                &["spec: Invalid value: 3 > 2"],
            ),
            (
                json!({"rule": "false", "message": "no", "reason": "FieldValueForbidden", "fieldPath": ".min"}),
                &["spec.min: Forbidden: no"],
            ),
            (
                json!({"rule": "false", "message": "no", "reason": "FieldValueRequired"}),
                &["spec: Required value: no"],
            ),
            (json!({"rule": "self.max == oldSelf.max"}), &[]),
            (
                json!({"rule": "oldSelf.hasValue() || self.min == 4", "optionalOldSelf": true}),
                &["spec: Invalid value: failed rule: oldSelf.hasValue() || self.min == 4"],
            ),
            (
                json!({"rule": "self.min / 0 == 1"}),
                &["spec: Invalid value: \"object\": division by zero evaluating rule: self.min / 0 == 1"],
            ),
        ] {
            assert_eq!(judged(&spec(&json!([rule])), &object, None), expected, "{rule}");
        }
    }

    #[test]
    fn transition_rules_apply_where_items_have_an_identity() {
        let with = |v: i64, max: i64| json!({"spec": {"max": max, "items": [{"k": "b", "v": 7}, {"k": "a", "v": v}]}});
        let old = json!({"spec": {"max": 5, "items": [{"k": "a", "v": 4}]}});
        let schema = spec(&json!([{"rule": "self.max == oldSelf.max", "message": "max is immutable"}]));
        assert_eq!(judged(&schema, &with(4, 5), Some(&old)), [""; 0]);
        assert_eq!(
            judged(&schema, &with(3, 6), Some(&old)),
            ["spec: Invalid value: max is immutable", "spec.items[1].v: Invalid value: 3: v must not shrink"]
        );
        // A rule that came later does not hold up changes elsewhere.
        let late = spec(&json!([{"rule": "self.max > 100"}]));
        assert_eq!(judged(&late, &old, Some(&old)), [""; 0]);
    }

    #[test]
    fn what_is_wrong_in_itself_is_not_put_to_rules() {
        let schema = spec(&json!([{"rule": "false"}]));
        let mut errors = Errors::new(KubeVersion::LATEST);
        errors.list.push(FieldError::required("spec.x", ""));
        let validator = Validator::read(&schema).expect("rules");
        validator.check(&JsonSchema::read(&schema), &json!({"spec": {}}), None, &mut errors);
        assert_eq!(errors.list.len(), 2);
        assert!(
            errors.list[1]
                .body(KubeVersion::LATEST)
                .starts_with("Invalid value: null: some validation rules")
        );
    }

    #[test]
    fn loops_are_bounded() {
        let schema = json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "integer"}}},
            "x-kubernetes-validations": [{"rule": "self.l.all(a, self.l.all(b, self.l.all(c, a + b + c > 0)))"}]});
        let long = json!({"l": vec![1; 10_000]});
        let found = judged(&schema, &long, None);
        assert!(found[0].contains("cost limit exceeded"), "{found:?}");
        assert_eq!(judged(&schema, &json!({"l": vec![1; 20]}), None), [""; 0]);
    }
}
