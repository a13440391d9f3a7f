//! Whether the rules of a definition can be used: what is written beside them, whether they compile, and whether the
//! fields they name exist.
//!
//! Implements: the part of `k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation` about
//! `x-kubernetes-validations`. Types are not inferred beyond fields.

use std::collections::BTreeMap;
use std::sync::Arc;

use cel::common::ast::{Expr, IdedExpr};
use palisade_base::field_error::{BadValue, FieldError};
use palisade_base::field_path::Path;
use serde_json::{Value, json};
use thiserror::Error;

use super::programs::compiled;
use super::rules::escaped;
use crate::cel::{CompileError, Expression, estimate, find_word};
use crate::rest::path::{Errors, Get};

/// Checks the rules of one level. `adrift` is the list above in which items cannot be distinguished, if there is one.
pub(super) fn check(
    schema: &Value,
    at: &Path<'_>,
    is_root: bool,
    adrift: Option<&Path<'_>>,
    errors: &mut Errors,
) {
    let all = at.field("x-kubernetes-validations");
    for (i, rule) in schema.list("x-kubernetes-validations").iter().enumerate() {
        let at = all.index(i);
        check_texts(rule, &at, errors);
        if !rule.text("fieldPath").is_empty()
            && let Err(why) = field_path(rule.text("fieldPath"), schema)
        {
            let why = format!("fieldPath must be a valid path: {why}");
            errors.invalid(&at.field("fieldPath"), rule.text("fieldPath"), why);
        }
        for field in ["rule", "messageExpression"] {
            let expression = rule.text(field);
            if expression.trim().is_empty() {
                continue;
            }
            match (checked(expression.trim(), schema, is_root), adrift) {
                (Err(why), _) => {
                    let shown = BadValue::Plain(internal(rule));
                    errors.invalid(&at.field(field), shown, format!("compilation failed: {why}"));
                }
                (Ok(program), Some(list)) if field == "rule" && program.names("oldSelf") => {
                    let why = "oldSelf cannot be used on the uncorrelatable portion of the schema within";
                    errors.invalid(&at.field(field), expression, format!("{why} {list}"));
                }
                (Ok(_), _) => {}
            }
        }
    }
}

/// Checks what all rules of a schema, and each of them, may cost at most.
pub(super) fn check_costs(schema: &Value, at: &Path<'_>, errors: &mut Errors) {
    let mut total = TotalCost::default();
    level_costs(schema, at, Some(1), &mut total, errors, 0);
    let TotalCost { total, mut expensive } = total;
    if total > estimate::PER_SCHEMA {
        expensive.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
        for (field, _) in expensive.into_iter().take(4) {
            let why =
                "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            errors.list.push(FieldError::forbidden(field, why));
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.forbidden(at, estimate::exceeds(what, total, estimate::PER_SCHEMA));
    }
}

/// What the rules of a schema cost together, and which of them matter.
#[derive(Debug, Default)]
struct TotalCost {
    total: u64,
    expensive: Vec<(String, u64)>,
}

/// `count` is how many values of this level an object can have, where the schema bounds it.
fn level_costs(
    schema: &Value,
    at: &Path<'_>,
    count: Option<u64>,
    total: &mut TotalCost,
    errors: &mut Errors,
    depth: usize,
) {
    // As deep as schemas are read elsewhere.
    if depth > 64 {
        return;
    }
    let all = at.field("x-kubernetes-validations");
    for (i, rule) in schema.list("x-kubernetes-validations").iter().enumerate() {
        let at = all.index(i);
        for (field, what) in
            [("rule", "estimated rule cost"), ("messageExpression", "estimated messageExpression cost")]
        {
            let expression = rule.text(field).trim();
            if expression.is_empty() {
                continue;
            }
            let Ok(program) = compiled(expression) else { continue };
            let once = estimate::cost(program.tree(), schema);
            // A message is made once, a rule is run for every value.
            let cost = if field == "rule" {
                once.saturating_mul(estimate::cardinality(schema, count))
            } else {
                once
            };
            if cost > estimate::PER_EXPRESSION {
                errors.forbidden(&at.field(field), estimate::exceeds(what, cost, estimate::PER_EXPRESSION));
            }
            total.total = total.total.saturating_add(cost);
            // A rule that contributes less than a hundredth is not named.
            if cost >= estimate::PER_SCHEMA / 100 {
                total.expensive.push((at.field(field).to_string(), cost));
            }
        }
    }
    let properties = at.field("properties");
    for (name, inner) in schema.entries("properties") {
        level_costs(inner, &properties.key(name), count, total, errors, depth + 1);
    }
    for (field, limit) in [("items", "maxItems"), ("additionalProperties", "maxProperties")] {
        if let Some(inner) = schema.child(field).filter(|inner| inner.is_object()) {
            let below = estimate::cardinality_below(schema, limit, count);
            level_costs(inner, &at.field(field), below, total, errors, depth + 1);
        }
    }
}

fn check_texts(rule: &Value, at: &Path<'_>, errors: &mut Errors) {
    let (text, message) = (rule.text("rule"), rule.text("message"));
    if text.trim().is_empty() {
        errors.required(&at.field("rule"), "rule is not specified");
    }
    if !message.is_empty() && message.trim().is_empty() {
        errors.invalid(&at.field("message"), message, "message must be non-empty if specified");
    } else if message.trim().contains('\n') {
        errors.invalid(&at.field("message"), message, "message must not contain line breaks");
    } else if text.trim().contains('\n') && message.is_empty() {
        errors.required(&at.field("message"), "message must be specified if rule contains line breaks");
    }
    let expression = rule.text("messageExpression");
    if !expression.is_empty() && expression.trim().is_empty() {
        errors.required(&at.field("messageExpression"), "messageExpression must be non-empty if specified");
    }
    if let Some(reason) = rule.child("reason").and_then(Value::as_str) {
        const REASONS: &[&str] =
            &["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
        if !REASONS.contains(&reason) {
            errors.not_supported(&at.field("reason"), reason, REASONS);
        }
    }
}

/// A rule as upstream's internal type prints it.
fn internal(rule: &Value) -> String {
    let text = |field: &str| json!(rule.text(field));
    let or_null = |field: &str| rule.get(field).cloned().unwrap_or(Value::Null);
    format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        text("rule"),
        text("message"),
        text("messageExpression"),
        or_null("reason"),
        text("fieldPath"),
        or_null("optionalOldSelf"),
    )
}

/// Why the `fieldPath` of a rule names no field, worded as upstream does.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum FieldPathError {
    /// A name is missing after a dot.
    #[error("unexpected end of JSON path")]
    End,
    /// A bracket without a name in quotes.
    #[error("expected single quoted string but got {0}")]
    NotQuoted(String),
    /// Neither a dot nor a bracket.
    #[error("expected [ or . but got: {0}")]
    NotASegment(String),
    /// A bracket where none is read.
    #[error("array notation is not allowed")]
    Brackets,
    /// The schema has no such field.
    #[error("does not refer to a valid field")]
    NoField,
}

/// A path such as `.spec.x` or `.tags['a']`, as field errors show it.
pub(super) fn field_path(path: &str, schema: &Value) -> Result<String, FieldPathError> {
    let (mut rest, mut at, mut out) = (path, schema, String::new());
    while !rest.is_empty() {
        let name;
        if let Some(tail) = rest.strip_prefix('.') {
            let end = tail.find(['.', '[', ']']).unwrap_or(tail.len());
            (name, rest) = tail.split_at(end);
            if name.is_empty() {
                return Err(if rest.is_empty() { FieldPathError::End } else { FieldPathError::NoField });
            }
        } else if let Some(tail) = rest.strip_prefix('[') {
            let quoted = tail.strip_prefix('\'').and_then(|tail| tail.split_once("']"));
            let Some((inside, tail)) = quoted else {
                return Err(FieldPathError::NotQuoted(tail.trim_end_matches(']').to_owned()));
            };
            (name, rest) = (inside, tail);
        } else {
            let end = rest.find(['.', '[', ']']).unwrap_or(rest.len()).max(1);
            return Err(FieldPathError::NotASegment(rest.get(..end).unwrap_or(rest).to_owned()));
        }
        if at.child("properties").is_some() {
            at = at.get("properties").and_then(|p| p.get(name)).ok_or(FieldPathError::NoField)?;
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(name);
        } else {
            at = at.get("additionalProperties").filter(|a| a.is_object()).ok_or(FieldPathError::NoField)?;
            out.extend(["[", name, "]"]);
        }
    }
    Ok(out)
}

/// The schema of the field that a path without brackets leads to, such as `.spec.x`.
pub(crate) fn field_schema<'s>(path: &str, schema: &'s Value) -> Result<&'s Value, FieldPathError> {
    if path.contains('[') {
        return Err(FieldPathError::Brackets);
    }
    field_path(path, schema)?;
    path.split('.').filter(|name| !name.is_empty()).try_fold(schema, |at, name| {
        let properties = at.child("properties").and_then(|properties| properties.get(name));
        properties.or_else(|| at.child("additionalProperties")).ok_or(FieldPathError::NoField)
    })
}

/// Compiles an expression against the schema of the level it stands at.
fn checked(expression: &str, schema: &Value, is_root: bool) -> Result<Arc<Expression>, CompileError> {
    let program = compiled(expression)?;
    let mut fields = Fields { expression, is_root, root: schema, problem: None };
    let mut names = BTreeMap::new();
    names.insert("self".to_owned(), schema);
    fields.of(program.tree(), &names);
    match fields.problem {
        Some(problem) => Err(problem),
        None => Ok(program),
    }
}

/// The search for fields that do not exist.
struct Fields<'s> {
    expression: &'s str,
    is_root: bool,
    root: &'s Value,
    problem: Option<CompileError>,
}

type Names<'s> = BTreeMap<String, &'s Value>;

impl<'s> Fields<'s> {
    /// The schema of what an expression yields, where that is plain to see.
    fn of(&mut self, expression: &IdedExpr, names: &Names<'s>) -> Option<&'s Value> {
        match &expression.expr {
            Expr::Ident(name) => names.get(name).copied(),
            Expr::Select(select) => {
                let schema = self.of(&select.operand, names)?;
                self.field(schema, &select.field)
            }
            Expr::Call(call) => {
                let target = call.target.as_deref().and_then(|target| self.of(target, names));
                let found: Vec<Option<&Value>> = call.args.iter().map(|arg| self.of(arg, names)).collect();
                match (call.func_name.as_str(), target.or_else(|| found.first().copied().flatten())) {
                    ("_[_]", Some(schema)) => {
                        schema.child("items").or_else(|| schema.child("additionalProperties"))
                    }
                    _ => None,
                }
            }
            Expr::List(list) => {
                for element in &list.elements {
                    self.of(element, names);
                }
                None
            }
            Expr::Comprehension(it) => {
                let range = self.of(&it.iter_range, names);
                let mut inside = names.clone();
                inside.remove(&it.iter_var);
                inside.remove(&it.accu_var);
                if it.iter_var2.is_none()
                    && let Some(items) = range.and_then(|range| range.child("items"))
                {
                    inside.insert(it.iter_var.clone(), items);
                }
                for part in [&it.accu_init, &it.loop_cond, &it.loop_step, &it.result] {
                    self.of(part, &inside);
                }
                None
            }
            Expr::Unspecified | Expr::Literal(_) | Expr::Map(_) | Expr::Struct(_) => None,
        }
    }

    fn field(&mut self, schema: &'s Value, name: &str) -> Option<&'s Value> {
        let known = schema.entries("properties").find(|(field, _)| escaped(field) == name);
        if let Some((_, inner)) = known {
            return Some(inner);
        }
        if let Some(inner) = schema.child("additionalProperties") {
            return Some(inner).filter(|inner| inner.is_object());
        }
        let implied = self.is_root
            && std::ptr::eq(schema, self.root)
            && matches!(name, "apiVersion" | "kind" | "metadata");
        let embedded = schema.flag("x-kubernetes-embedded-resource") == Some(true);
        if !implied && !embedded && schema.text("type") == "object" && self.problem.is_none() {
            let at = find_word(self.expression, name).map_or(0, |at| at.saturating_sub(1));
            self.problem = Some(CompileError::at(self.expression, at, format!("undefined field '{name}'")));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_base::version::KubeVersion;

    fn problems(rule: &Value) -> Vec<String> {
        let schema = json!({"type": "object", "x-kubernetes-validations": [rule], "properties": {
            "a": {"type": "integer"}, "list": {"type": "array", "items": {"type": "object", "properties": {"b": {"type": "string"}}}},
            "free": {"x-kubernetes-preserve-unknown-fields": true}, "tags": {"type": "object", "additionalProperties": {"type": "string"}}}});
        let mut errors = Errors::new(KubeVersion::LATEST);
        check(&schema, &Path::Root("s"), true, None, &mut errors);
        errors
            .list
            .iter()
            .map(|error| format!("{}: {}", error.field(), error.body(KubeVersion::LATEST)))
            .collect()
    }

    #[test]
    fn rules_are_checked_where_they_are_written() {
        for good in [
            "self.a > 1",
            "self.list.all(x, x.b != '')",
            "self.free.whatever == 1",
            "self.tags.a == 'b' && self.metadata.name != ''",
            "oldSelf.a == self.a",
        ] {
            assert_eq!(problems(&json!({"rule": good})), [""; 0], "{good}");
        }
        let shown = |rule: &str| {
            format!(
                "{{\"Rule\":{},\"Message\":\"\",\"MessageExpression\":\"\",\"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}}",
                json!(rule)
            )
        };
        for (rule, expected) in [
            ("self.nope > 1", "ERROR: <input>:1:5: undefined field 'nope'\n | self.nope > 1\n | ....^"),
            (
                "self.list.exists(x, x.c == '')",
                "ERROR: <input>:1:22: undefined field 'c'\n | self.list.exists(x, x.c == '')\n | .....................^",
            ),
            (
                "other == 1",
                "ERROR: <input>:1:1: undeclared reference to 'other' (in container '')\n | other == 1\n | ^",
            ),
        ] {
            let at = "s.x-kubernetes-validations[0].rule: Invalid value";
            let expected = format!("{at}: {}: compilation failed: {expected}", shown(rule));
            assert_eq!(problems(&json!({"rule": rule})), [expected], "{rule}");
        }
        for (rule, expected) in [
            (json!({}), "s.x-kubernetes-validations[0].rule: Required value: rule is not specified"),
            (
                json!({"rule": "true", "message": " "}),
                "s.x-kubernetes-validations[0].message: Invalid value: \" \": message must be non-empty if specified",
            ),
            (
                json!({"rule": "true ||\n false"}),
                "s.x-kubernetes-validations[0].message: Required value: message must be specified if rule contains line \
                 breaks",
            ),
            (
                json!({"rule": "true", "reason": "Nope"}),
                "s.x-kubernetes-validations[0].reason: Unsupported value: \"Nope\": supported values: \
                 \"FieldValueDuplicate\", \"FieldValueForbidden\", \"FieldValueInvalid\", \"FieldValueRequired\"",
            ),
            (
                json!({"rule": "true", "fieldPath": ".zz"}),
                "s.x-kubernetes-validations[0].fieldPath: Invalid value: \".zz\": fieldPath must be a valid path: does not \
                 refer to a valid field",
            ),
        ] {
            assert_eq!(problems(&rule), [expected], "{rule}");
        }
    }

    fn costs(schema: &Value) -> Vec<String> {
        let mut errors = Errors::new(KubeVersion::LATEST);
        crate::crd::structural::validate(schema, &Path::Root("s"), &mut errors);
        let shown = |error: &FieldError| format!("{}: {}", error.field(), error.body(KubeVersion::LATEST));
        errors.list.iter().map(shown).collect()
    }

    #[test]
    fn rules_that_may_cost_too_much_are_rejected_when_written() {
        let schema = |rule: &str, list: Value, text: Value| {
            let mut list = list;
            list["type"] = "array".into();
            list["items"] = text;
            list["items"]["type"] = "string".into();
            json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"l": list},
                "x-kubernetes-validations": [{"rule": rule}]}}})
        };
        let bounded = || (json!({"maxItems": 16}), json!({"maxLength": 64}));
        let bomb = format!("self.l{}.size() > 0", ".map(v, v + v)".repeat(30));
        let nested = "self.l.all(a, self.l.all(b, a != b || a == ''))";
        let deep = "self.l.all(a, self.l.all(b, self.l.all(c, self.l.all(d, self.l.all(e, self.l.all(f, a + b != c + d + e + f))))))";
        for (case, rule, (list, text), rejected) in [
            ("a bounded loop", "self.l.all(a, a.startsWith('x'))", bounded(), false),
            ("a loop in a loop, bounded", nested, bounded(), false),
            ("a loop in a loop, unbounded", nested, (json!({}), json!({"maxLength": 64})), true),
            ("an unbounded loop", "self.l.all(a, a == 'x')", (json!({}), json!({})), false),
            (
                "a regular expression on unbounded texts",
                "self.l.all(a, a.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'))",
                (json!({}), json!({})),
                true,
            ),
            // As upstream has it: what a computed list holds has no size in the estimate. The budget of the evaluation ends it.
            ("texts that grow", &bomb, bounded(), false),
            ("six loops in each other", deep, bounded(), true),
        ] {
            let found = costs(&schema(rule, list, text));
            assert_eq!(!found.is_empty(), rejected, "{case}: {found:?}");
            if rejected {
                assert!(
                    found[0].starts_with(
                        "s.properties[spec].x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by \
                         factor of "
                    ),
                    "{case}: {found:?}"
                );
            }
        }
    }

    #[test]
    fn rules_together_may_cost_too_much() {
        let rule = json!({"rule": "self.all(a, self.exists(b, a != b))"});
        let rules: Vec<Value> = vec![rule; 40];
        let schema = json!({"type": "object", "properties": {"l": {"type": "array", "maxItems": 700,
            "items": {"type": "string", "maxLength": 8}, "x-kubernetes-validations": rules}}});
        let found = costs(&schema);
        assert_eq!(found.len(), 5, "{found:?}");
        let contributed =
            "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
        assert!(found[..4].iter().all(|error| error.ends_with(contributed)), "{found:?}");
        assert!(found[4].starts_with(
            "s: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of"
        ), "{found:?}");
    }

    #[test]
    fn rules_of_real_definitions_are_accepted() {
        // As in cert-manager and Gateway API.
        let name = json!({"type": "string", "minLength": 1, "maxLength": 253});
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object",
        "x-kubernetes-validations": [
            {"rule": "self.listeners.all(l1, self.listeners.exists_one(l2, l1.name == l2.name))", "message": "unique"},
            {"rule": "self.listeners.all(l, l.protocol in ['HTTP', 'TLS'] ? !has(l.tls) || size(l.tls) > 0 : true)"},
            {"rule": "!has(self.duration) || duration(self.duration) > duration('1s')"},
            {"rule": "self.addresses.all(a1, a1.type == 'IPAddress' ? isIP(a1.value) : true)"},
        ],
        "properties": {
            "duration": {"type": "string", "maxLength": 20},
            "addresses": {"type": "array", "maxItems": 16, "items": {"type": "object", "required": ["type", "value"],
                "properties": {"type": name, "value": name}}},
            "listeners": {"type": "array", "maxItems": 64, "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"], "items": {"type": "object", "required": ["name"],
                "properties": {"name": name, "protocol": name, "tls": {"type": "object", "additionalProperties": name}}}},
            "class": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "immutable"}]},
        }}}});
        assert_eq!(costs(&schema), [""; 0]);
    }

    #[test]
    fn items_without_identity_have_no_old_value() {
        let rule = json!([{"rule": "self == oldSelf"}]);
        let list = |kind: &str| {
            json!({"type": "object", "properties": {"l": {"type": "array", "maxItems": 10, "x-kubernetes-list-type": kind,
            "x-kubernetes-list-map-keys": if kind == "map" { json!(["k"]) } else { json!([]) }, "items": {"type": "object",
            "required": ["k"], "properties": {"k": {"type": "string", "maxLength": 20, "x-kubernetes-validations": rule}}}}}})
        };
        for (kind, expected) in [
            ("map", &[][..]),
            (
                "atomic",
                &[
                    "s.properties[l].items.properties[k].x-kubernetes-validations[0].rule: Invalid value: \"self == oldSelf\": \
                   oldSelf cannot be used on the uncorrelatable portion of the schema within s.properties[l]",
                ],
            ),
        ] {
            let mut errors = Errors::new(KubeVersion::LATEST);
            crate::crd::structural::validate(&list(kind), &Path::Root("s"), &mut errors);
            let found: Vec<String> = errors
                .list
                .iter()
                .map(|error| format!("{}: {}", error.field(), error.body(KubeVersion::LATEST)))
                .collect();
            assert_eq!(found, expected, "{kind}");
        }
    }
}
