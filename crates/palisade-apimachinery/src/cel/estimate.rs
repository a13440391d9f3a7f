//! The most an expression can cost, given how large the values of a schema may get.
//!
//! Implements: Extend the Kubernetes API with CustomResourceDefinitions, "Resource use by validation functions", the
//! estimate of cel-go's `checker/cost.go`, and the sizes of `k8s.io/apiserver/pkg/cel/common/schemas.go`.
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#resource-use-by-validation-functions>

use std::collections::BTreeMap;

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use serde_json::Value;

use crate::rest::path::Get;

/// The most one expression may cost.
pub(crate) const PER_EXPRESSION: u64 = 10_000_000;
/// The most all expressions of a schema may cost.
pub(crate) const PER_SCHEMA: u64 = 100_000_000;
/// No request is larger.
const REQUEST: u64 = 3 * 1024 * 1024;

/// What is known about a value before it is there.
#[derive(Debug, Clone)]
enum Shape<'s> {
    /// A value of a schema.
    Schema(&'s Value),
    /// A text or bytes of at most this length, or a list of that many values.
    Sized(u64, Option<Box<Shape<'s>>>),
    /// A value whose size does not matter.
    Scalar,
}

impl Shape<'_> {
    fn size(&self) -> u64 {
        match self {
            Self::Schema(schema) => size_of(schema),
            Self::Sized(size, _) => *size,
            Self::Scalar => 1,
        }
    }

    /// An item of a list, or what a loop over a map names.
    fn item(&self) -> Self {
        match self {
            Self::Schema(schema) => match schema.child("items") {
                Some(items) => Self::Schema(items),
                // Upstream knows no length of keys; what they cost is counted when the rule runs.
                None => Self::Sized(0, None),
            },
            Self::Sized(_, Some(item)) => (**item).clone(),
            Self::Sized(_, None) | Self::Scalar => Self::Scalar,
        }
    }

    /// What an index or key finds.
    fn element(&self) -> Self {
        match self {
            Self::Schema(schema) => {
                let inner = schema.child("items").or_else(|| schema.child("additionalProperties"));
                inner.filter(|inner| inner.is_object()).map_or(Self::Scalar, Self::Schema)
            }
            other => other.item(),
        }
    }

    fn field(&self, name: &str) -> Self {
        let Self::Schema(schema) = self else { return Self::Scalar };
        let known = schema.entries("properties").find(|(field, _)| crate::crd::rules::escaped(field) == name);
        match (known, schema.child("additionalProperties")) {
            (Some((_, inner)), _) => Self::Schema(inner),
            (None, Some(inner)) if inner.is_object() => Self::Schema(inner),
            // The name in the metadata.
            _ => Self::Sized(253, None),
        }
    }
}

/// How many characters or items a value of a schema has at most.
fn size_of(schema: &Value) -> u64 {
    let limit = |field: &str| schema.get(field).and_then(Value::as_u64);
    match schema.text("type") {
        "string" => limit("maxLength").map_or_else(
            || {
                let options =
                    schema.list("enum").iter().filter_map(Value::as_str).map(|text| text.len() as u64);
                match (options.max(), schema.text("format")) {
                    (Some(longest), _) => longest,
                    (None, "date") => 12,
                    (None, "date-time" | "duration") => 32,
                    _ => REQUEST - 2,
                }
            },
            |length| length.saturating_mul(4),
        ),
        "array" => limit("maxItems").unwrap_or_else(|| {
            let item = schema.child("items").map_or(1, smallest);
            (REQUEST - 1) / (item + 1)
        }),
        "object" => limit("maxProperties").unwrap_or_else(|| match schema.child("additionalProperties") {
            Some(value) => (REQUEST - 1) / (smallest(value) + 6),
            None => 1,
        }),
        "" => REQUEST - 2,
        _ => 1,
    }
}

/// The bytes of the smallest value of a schema, as JSON.
fn smallest(schema: &Value) -> u64 {
    match schema.text("type") {
        "string" | "array" => 2,
        "boolean" => 4,
        "object" => {
            let required = schema.list("required").iter().filter_map(Value::as_str).filter_map(|name| {
                let inner = schema.get("properties")?.get(name)?;
                (inner.get("default").is_none()).then(|| smallest(inner) + name.len() as u64 + 4)
            });
            required.fold(2, u64::saturating_add)
        }
        _ => 1,
    }
}

/// How many values of a level one object has: those the lists and maps above allow, or else as many as fit a request.
pub(crate) fn cardinality(schema: &Value, bounded: Option<u64>) -> u64 {
    bounded.unwrap_or_else(|| REQUEST / (smallest(schema) + 1))
}

/// How many values the level below a list or map has.
pub(crate) fn cardinality_below(schema: &Value, field: &str, bounded: Option<u64>) -> Option<u64> {
    Some(bounded?.saturating_mul(schema.get(field)?.as_u64()?))
}

/// The most an expression about a value of `schema` costs.
pub(crate) fn cost(expression: &IdedExpr, schema: &Value) -> u64 {
    let mut names = BTreeMap::new();
    names.insert("self", Shape::Schema(schema));
    names.insert("oldSelf", Shape::Schema(schema));
    of(expression, &names).0
}

type Names<'e, 's> = BTreeMap<&'e str, Shape<'s>>;

fn tenth(size: u64) -> u64 {
    size.div_ceil(10)
}

fn of<'e, 's>(expression: &'e IdedExpr, names: &Names<'e, 's>) -> (u64, Shape<'s>) {
    match &expression.expr {
        Expr::Ident(name) => (1, names.get(name.as_str()).cloned().unwrap_or(Shape::Scalar)),
        Expr::Literal(LiteralValue::String(text)) => (0, Shape::Sized(text.inner().len() as u64, None)),
        Expr::Literal(LiteralValue::Bytes(bytes)) => (0, Shape::Sized(bytes.inner().len() as u64, None)),
        Expr::Literal(_) | Expr::Unspecified => (0, Shape::Scalar),
        Expr::Select(select) => {
            let (cost, shape) = of(&select.operand, names);
            (cost.saturating_add(1), if select.test { Shape::Scalar } else { shape.field(&select.field) })
        }
        Expr::List(list) => {
            let (mut cost, mut item) = (10_u64, None);
            for element in &list.elements {
                let (more, shape) = of(element, names);
                cost = cost.saturating_add(more);
                item = Some(larger(item, shape));
            }
            (cost, Shape::Sized(list.elements.len() as u64, item.map(Box::new)))
        }
        Expr::Map(map) => {
            let (mut cost, mut item) = (30_u64, None);
            for entry in &map.entries {
                let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
                let (value_cost, shape) = of(&entry.value, names);
                cost = cost.saturating_add(of(&entry.key, names).0).saturating_add(value_cost);
                item = Some(larger(item, shape));
            }
            (cost, Shape::Sized(map.entries.len() as u64, item.map(Box::new)))
        }
        Expr::Struct(_) => (40, Shape::Scalar),
        Expr::Call(call) => of_call(call, names),
        Expr::Comprehension(it) => of_loop(it, names),
    }
}

fn larger<'s>(a: Option<Shape<'s>>, b: Shape<'s>) -> Shape<'s> {
    a.filter(|a| a.size() >= b.size()).unwrap_or(b)
}

fn of_call<'e, 's>(call: &'e CallExpr, names: &Names<'e, 's>) -> (u64, Shape<'s>) {
    let parts: Vec<(u64, Shape<'s>)> =
        call.target.as_deref().into_iter().chain(&call.args).map(|part| of(part, names)).collect();
    let name = call.func_name.as_str();
    if name == operators::CONDITIONAL
        && let [(condition, _), (yes, yes_shape), (no, no_shape)] = parts.as_slice()
    {
        let shape = larger(Some(yes_shape.clone()), no_shape.clone());
        return (condition.saturating_add(*yes.max(no)), shape);
    }
    let below = parts.iter().fold(0_u64, |sum, (cost, _)| sum.saturating_add(*cost));
    let size = |at: usize| parts.get(at).map_or(0, |(_, shape)| shape.size());
    let shape = |at: usize| parts.get(at).map_or(Shape::Scalar, |(_, shape)| shape.clone());
    let (own, result) = match name {
        operators::ADD => {
            let sum = size(0).saturating_add(size(1));
            let item = Some(Box::new(larger(Some(shape(0).item()), shape(1).item())));
            match (shape(0), shape(1)) {
                (Shape::Scalar, Shape::Scalar) => (1, Shape::Scalar),
                _ => (tenth(sum), Shape::Sized(sum, item)),
            }
        }
        "_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" => (tenth(size(0).min(size(1))), Shape::Scalar),
        operators::IN => (
            if matches!(shape(1), Shape::Schema(s) if s.text("type") == "object") { 1 } else { size(1) },
            Shape::Scalar,
        ),
        operators::INDEX => (1, shape(0).element()),
        "contains" => (tenth(size(0)).saturating_mul(tenth(size(1)).max(1)), Shape::Scalar),
        "startsWith" | "endsWith" => (tenth(size(1)), Shape::Scalar),
        "matches" | "find" | "findAll" => {
            let cost = tenth(size(0).saturating_add(1)).saturating_mul(size(1).div_ceil(4).max(1));
            (cost, Shape::Sized(size(0), Some(Box::new(Shape::Sized(size(0), None)))))
        }
        "lowerAscii" | "upperAscii" | "trim" | "reverse" | "substring" | "string" | "bytes" | "charAt" => {
            (tenth(size(0)), Shape::Sized(size(0), None))
        }
        "replace" => {
            let result = size(0).saturating_mul(size(2).max(1)).saturating_add(size(2));
            (tenth(result), Shape::Sized(result, None))
        }
        "split" => (tenth(size(0)), Shape::Sized(size(0), Some(Box::new(Shape::Sized(size(0), None))))),
        "join" => {
            let result = size(0).saturating_mul(shape(0).item().size().saturating_add(size(1)));
            let result = result.min(REQUEST.saturating_mul(2));
            (tenth(result), Shape::Sized(result, None))
        }
        "url" | "isURL" | "ip" | "isIP" | "cidr" | "isCIDR" | "quantity" | "isQuantity" | "validate"
        | "quote" => (tenth(size(0).max(size(1))), Shape::Scalar),
        "isSorted" | "sum" | "min" | "max" | "indexOf" | "lastIndexOf" => (size(0), shape(0).item()),
        "sort" | "distinct" | "flatten" | "slice" => (size(0), shape(0)),
        "equivalent" | "intersects" => (size(1).saturating_mul(size(2)), Shape::Scalar),
        "orValue" => (1, larger(Some(shape(0)), shape(1))),
        operators::OPT_INDEX => (1, shape(0).element()),
        operators::OPT_SELECT => {
            let field = call.args.get(1).map(|field| &field.expr);
            match field {
                Some(Expr::Literal(LiteralValue::String(name))) => (1, shape(0).field(name.inner())),
                _ => (1, Shape::Scalar),
            }
        }
        "value" | "of" | "dyn" => (1, parts.last().map_or(Shape::Scalar, |(_, shape)| shape.clone())),
        _ => (1, Shape::Scalar),
    };
    (below.saturating_add(own), result)
}

fn of_loop<'e, 's>(it: &'e ComprehensionExpr, names: &Names<'e, 's>) -> (u64, Shape<'s>) {
    let (range_cost, range) = of(&it.iter_range, names);
    let (init_cost, init) = of(&it.accu_init, names);
    let mut inside = names.clone();
    // `bind` has no steps; its variable is the accumulator.
    let steps = match &it.iter_range.expr {
        Expr::List(list) if list.elements.is_empty() => 0,
        _ => range.size(),
    };
    inside.insert(&it.accu_var, init.clone());
    let mut in_loop = inside.clone();
    in_loop.insert(&it.accu_var, Shape::Scalar);
    in_loop.insert(&it.iter_var, if it.iter_var2.is_some() { Shape::Scalar } else { range.item() });
    if let Some(second) = &it.iter_var2 {
        in_loop.insert(second, range.element());
    }
    let condition = of(&it.loop_cond, &in_loop).0;
    let step = of(&it.loop_step, &in_loop).0;
    let cost = steps.saturating_mul(condition.saturating_add(step));
    let shape = match (&it.accu_init.expr, appended(&it.loop_step)) {
        (Expr::List(_), Some(element)) if steps > 0 => {
            Shape::Sized(steps, Some(Box::new(of(element, &in_loop).1)))
        }
        _ if steps == 0 => init,
        _ => Shape::Scalar,
    };
    inside.insert(&it.accu_var, shape);
    let (result_cost, result) = of(&it.result, &inside);
    (range_cost.saturating_add(init_cost).saturating_add(cost).saturating_add(result_cost), result)
}

/// What a step of `map` or `filter` appends.
fn appended(step: &IdedExpr) -> Option<&IdedExpr> {
    let Expr::Call(call) = &step.expr else { return None };
    match (call.func_name.as_str(), call.args.as_slice()) {
        (operators::CONDITIONAL, [_, then, _]) => appended(then),
        (operators::ADD, [_, added]) => match &added.expr {
            Expr::List(list) => list.elements.first(),
            _ => None,
        },
        _ => None,
    }
}

/// By how much a cost is above a limit, in upstream's words.
pub(crate) fn exceeds(what: &str, cost: u64, limit: u64) -> String {
    #[allow(clippy::cast_precision_loss, reason = "a factor for people")]
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}
