//! The most an expression can cost, given how large the values of a schema may get.
//!
//! Implements: Extend the Kubernetes API with CustomResourceDefinitions, "Resource use by validation functions", the
//! estimate of cel-go's `checker/cost.go`, and the sizes of `k8s.io/apiserver/pkg/cel/common/schemas.go`.
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#resource-use-by-validation-functions>

use std::collections::BTreeMap;
use std::sync::LazyLock;

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use serde_json::{Value, json};

use crate::rest::path::Get;

/// The most one expression may cost.
pub(crate) const PER_EXPRESSION: u64 = 10_000_000;
/// The most all expressions of a schema may cost.
pub(crate) const PER_SCHEMA: u64 = 100_000_000;
/// No request is larger.
const REQUEST: u64 = 3 * 1024 * 1024;

/// A size that nothing bounds.
const UNBOUNDED: u64 = u64::MAX;

/// What is known about a value before it is there.
#[derive(Debug, Clone)]
enum Shape<'s> {
    /// A value of a schema.
    Schema(&'s Value),
    /// A text or bytes of at most this length.
    Text(u64),
    /// A list or map of at most this many values.
    List(u64, Option<Box<Shape<'s>>>),
    /// The result of a function, of a type whose size is constant.
    Scalar,
    /// A value that no schema describes.
    Unknown,
    /// A value of a kind, in a place that upstream takes for the root of the schema: it cuts the first step off a path
    /// whether or not that step is `self`, so whatever a computed list or map holds has the size of the root.
    Computed(Box<Shape<'s>>, u64),
}

/// The metadata of an object, which schemas need not declare.
static METADATA: LazyLock<Value> = LazyLock::new(
    || json!({"type": "object", "properties": {"name": {"type": "string"}, "generateName": {"type": "string"}}}),
);

impl Shape<'_> {
    fn size(&self) -> u64 {
        match self {
            Self::Schema(schema) => size_of(schema),
            Self::Text(size) | Self::List(size, _) | Self::Computed(_, size) => *size,
            Self::Scalar => 1,
            Self::Unknown => UNBOUNDED,
        }
    }

    fn is_list(&self) -> bool {
        match self {
            Self::Schema(schema) => schema.text("type") == "array",
            Self::List(..) => true,
            Self::Computed(shape, _) => shape.is_list(),
            Self::Text(_) | Self::Scalar | Self::Unknown => false,
        }
    }

    /// An object of a schema: to select a field of it costs something.
    fn is_object(&self) -> bool {
        match self {
            Self::Schema(schema) => schema.text("type") == "object",
            Self::Computed(shape, _) => shape.is_object(),
            other => matches!(other, Self::List(..)),
        }
    }

    fn is_text(&self) -> bool {
        match self {
            Self::Schema(schema) => {
                schema.text("type") == "string"
                    && !matches!(schema.text("format"), "date" | "date-time" | "duration")
            }
            Self::Text(_) => true,
            Self::Computed(shape, _) => shape.is_text(),
            Self::List(..) | Self::Scalar | Self::Unknown => false,
        }
    }

    /// What is found in this value, at the place where it is found.
    fn at(&self, inner: Self, root: &Self) -> Self {
        match self {
            Self::Schema(_) => inner,
            _ => Self::Computed(Box::new(inner), root.size()),
        }
    }

    /// What a list holds, or what a loop over a map names.
    fn item(&self) -> Self {
        match self {
            Self::Schema(schema) => match schema.child("items") {
                Some(items) => Self::Schema(items),
                // Upstream has no length of keys; what they cost is counted when the rule runs.
                None => Self::Text(0),
            },
            Self::List(_, Some(item)) => (**item).clone(),
            Self::Computed(shape, _) => shape.item(),
            Self::List(_, None) | Self::Unknown => Self::Unknown,
            Self::Text(_) | Self::Scalar => Self::Scalar,
        }
    }

    /// What an index or key finds.
    fn element(&self) -> Self {
        match self {
            Self::Schema(schema) => {
                let inner = schema.child("items").or_else(|| schema.child("additionalProperties"));
                inner.filter(|inner| inner.is_object()).map_or(Self::Unknown, Self::Schema)
            }
            other => other.item(),
        }
    }

    fn field(&self, name: &str) -> Self {
        let schema = match self {
            Self::Schema(schema) => schema,
            Self::Computed(shape, _) => return shape.field(name),
            _ => return Self::Unknown,
        };
        let known = schema.entries("properties").find(|(field, _)| crate::crd::rules::escaped(field) == name);
        match (known, schema.child("additionalProperties")) {
            (Some((_, inner)), _) => Self::Schema(inner),
            (None, Some(inner)) if inner.is_object() => Self::Schema(inner),
            // The metadata, `apiVersion` and `kind` need not be declared.
            _ if name == "metadata" => Self::Schema(&METADATA),
            _ => Self::Text(REQUEST - 2),
        }
    }
}

/// How many characters or items a value of a schema has at most. Numbers, booleans and objects with declared fields have
/// none.
fn size_of(schema: &Value) -> u64 {
    let limit = |field: &str| schema.get(field).and_then(Value::as_u64);
    if schema.get("x-kubernetes-int-or-string").and_then(Value::as_bool) == Some(true) {
        return limit("maxLength").map_or(REQUEST - 2, |length| length.saturating_mul(4));
    }
    match (schema.text("type"), schema.text("format")) {
        ("string", "byte") => limit("maxLength").unwrap_or(REQUEST - 2),
        ("string", "date") => 12,
        ("string", "date-time" | "duration") => 32,
        ("string", _) => limit("maxLength").map_or_else(
            || {
                let options = schema.list("enum").iter().filter_map(Value::as_str);
                options.map(|text| text.len() as u64).max().unwrap_or(REQUEST - 2)
            },
            |length| length.saturating_mul(4),
        ),
        ("array", _) => limit("maxItems").unwrap_or_else(|| {
            let item = schema.child("items").map_or(1, smallest);
            (REQUEST - 2) / (item + 1)
        }),
        ("object", _) => match schema.child("additionalProperties").filter(|inner| inner.is_object()) {
            Some(value) => limit("maxProperties").unwrap_or_else(|| (REQUEST - 2) / (smallest(value) + 6)),
            None => 0,
        },
        ("boolean" | "integer" | "number", _) => 0,
        _ => UNBOUNDED,
    }
}

/// The bytes of the smallest value of a schema, as JSON.
fn smallest(schema: &Value) -> u64 {
    match (schema.text("type"), schema.text("format")) {
        ("string", "duration") => 3,
        ("string", "date") => 12,
        ("string", "date-time") => 21,
        ("string" | "array", _) => 2,
        ("boolean", _) => 4,
        ("object", _) if schema.child("additionalProperties").is_some_and(Value::is_object) => 2,
        ("object", _) => {
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

fn root<'s>(names: &Names<'_, 's>) -> Shape<'s> {
    names.get("self").cloned().unwrap_or(Shape::Unknown)
}

/// A part of a size, rounded up. The product is a float, as upstream's is: seventy tenths of a unit are eight units.
fn part(size: u64, factor: f64) -> u64 {
    #[expect(clippy::cast_precision_loss, reason = "as upstream computes it")]
    let product = size as f64 * factor;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, as is wanted")]
    let whole = product.ceil() as u64;
    whole
}

/// What it costs to go through so many characters.
fn tenth(size: u64) -> u64 {
    part(size, 0.1)
}

fn of<'e, 's>(expression: &'e IdedExpr, names: &Names<'e, 's>) -> (u64, Shape<'s>) {
    match &expression.expr {
        Expr::Ident(name) => {
            let shape = names.get(name.as_str()).cloned();
            (1, shape.unwrap_or_else(|| Shape::Computed(Box::new(Shape::Scalar), root(names).size())))
        }
        Expr::Literal(LiteralValue::String(text)) => (0, Shape::Text(text.inner().chars().count() as u64)),
        Expr::Literal(LiteralValue::Bytes(bytes)) => (0, Shape::Text(bytes.inner().len() as u64)),
        Expr::Literal(_) | Expr::Unspecified => (0, Shape::Scalar),
        Expr::Select(select) => {
            let (cost, shape) = of(&select.operand, names);
            // Kubernetes does not charge for `has`.
            if select.test {
                return (cost, Shape::Scalar);
            }
            let cost = cost.saturating_add(u64::from(shape.is_object()));
            match shape {
                Shape::List(_, ref value) => {
                    let value = value.as_deref().cloned().unwrap_or(Shape::Unknown);
                    (cost, shape.at(value, &root(names)))
                }
                shape => (cost, shape.field(&select.field)),
            }
        }
        Expr::List(list) => {
            let (mut cost, mut item) = (10_u64, None);
            for element in &list.elements {
                let (more, shape) = of(element, names);
                cost = cost.saturating_add(more);
                item = Some(larger(item, shape));
            }
            (cost, Shape::List(list.elements.len() as u64, item.map(Box::new)))
        }
        Expr::Map(map) => {
            let (mut cost, mut item) = (30_u64, None);
            for entry in &map.entries {
                let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
                let (value_cost, shape) = of(&entry.value, names);
                cost = cost.saturating_add(of(&entry.key, names).0).saturating_add(value_cost);
                item = Some(larger(item, shape));
            }
            (cost, Shape::List(map.entries.len() as u64, item.map(Box::new)))
        }
        Expr::Struct(_) => (40, Shape::Scalar),
        Expr::Call(call) => of_call(call, names),
        Expr::Comprehension(it) => of_loop(it, names),
    }
}

fn larger<'s>(a: Option<Shape<'s>>, b: Shape<'s>) -> Shape<'s> {
    a.filter(|a| a.size() >= b.size()).unwrap_or(b)
}

/// The namespace of a function such as `sets.contains`, which is not a value.
fn namespace<'e>(call: &'e CallExpr, names: &Names<'e, '_>) -> Option<&'e str> {
    match &call.target.as_deref()?.expr {
        Expr::Ident(name) if !names.contains_key(name.as_str()) => Some(name),
        _ => None,
    }
}

fn of_call<'e, 's>(call: &'e CallExpr, names: &Names<'e, 's>) -> (u64, Shape<'s>) {
    let namespace = namespace(call, names);
    let target = call.target.as_deref().filter(|_| namespace.is_none());
    let parts: Vec<(u64, Shape<'s>)> =
        target.into_iter().chain(&call.args).map(|part| of(part, names)).collect();
    let name = call.func_name.as_str();
    if name == operators::CONDITIONAL
        && let [(condition, _), (yes, yes_shape), (no, no_shape)] = parts.as_slice()
    {
        let shape = larger(Some(yes_shape.clone()), no_shape.clone());
        return (condition.saturating_add(*yes.max(no)), shape);
    }
    let below = parts.iter().fold(0_u64, |sum, (cost, _)| sum.saturating_add(*cost));
    let shapes: Vec<Shape<'s>> = parts.into_iter().map(|(_, shape)| shape).collect();
    let (own, result) = match namespace {
        Some(namespace) => of_namespaced(namespace, name, &shapes),
        None => of_function(call, target.is_some(), &shapes, &root(names)),
    };
    (below.saturating_add(own), result)
}

fn of_namespaced<'s>(namespace: &str, name: &str, shapes: &[Shape<'s>]) -> (u64, Shape<'s>) {
    let size = |at: usize| shapes.get(at).map_or(0, Shape::size);
    match (namespace, name) {
        ("sets", "equivalent") => {
            (size(0).saturating_mul(size(1)).saturating_mul(2).saturating_add(1), Shape::Scalar)
        }
        ("sets", _) => (size(0).saturating_mul(size(1)).saturating_add(1), Shape::Scalar),
        ("ip", "isCanonical") => (part(size(0), 0.2), Shape::Scalar),
        ("strings", "quote") => (tenth(size(0)), Shape::Text(size(0).saturating_mul(2).saturating_add(2))),
        ("jsonpatch", _) => (tenth(size(0)), Shape::Text(size(0))),
        // `optional.of` holds its value.
        ("optional", _) => (1, shapes.first().cloned().unwrap_or(Shape::Scalar)),
        _ => (1, Shape::Scalar),
    }
}

/// A function or operator; `shapes` begin with what it is called on, if it is called on something.
fn of_function<'s>(
    call: &CallExpr,
    on_target: bool,
    shapes: &[Shape<'s>],
    root: &Shape<'s>,
) -> (u64, Shape<'s>) {
    let size = |at: usize| shapes.get(at).map_or(0, Shape::size);
    let shape = |at: usize| shapes.get(at).cloned().unwrap_or(Shape::Scalar);
    match call.func_name.as_str() {
        // The sum of the operands.
        operators::LOGICAL_AND | operators::LOGICAL_OR => (0, Shape::Scalar),
        operators::ADD => {
            let sum = size(0).saturating_add(size(1));
            if shapes.iter().any(Shape::is_list) {
                let item = larger(Some(shape(0).item()), shape(1).item());
                (1, Shape::List(sum, Some(Box::new(item))))
            } else if shapes.iter().any(Shape::is_text) {
                (tenth(sum), Shape::Text(sum))
            } else {
                (1, Shape::Scalar)
            }
        }
        "_==_" | "_!=_" => (tenth(size(0).min(size(1))), Shape::Scalar),
        "_<_" | "_<=_" | "_>_" | "_>=_" if shapes.iter().any(Shape::is_text) => {
            (tenth(size(0).min(size(1))), Shape::Scalar)
        }
        operators::IN if shape(1).is_list() => (size(1), Shape::Scalar),
        operators::INDEX | operators::OPT_INDEX => (1, shape(0).at(shape(0).element(), root)),
        "contains" => (tenth(size(0)).saturating_mul(tenth(size(1))), Shape::Scalar),
        "startsWith" | "endsWith" => (tenth(size(1)), Shape::Scalar),
        "matches" | "find" | "findAll" => {
            let cost = tenth(size(0).saturating_add(1)).saturating_mul(part(size(1), 0.25));
            let result = match call.func_name.as_str() {
                "findAll" => Shape::List(size(0), None),
                "find" => Shape::Text(size(0)),
                _ => Shape::Scalar,
            };
            (cost, result)
        }
        "lowerAscii" | "upperAscii" | "trim" | "substring" | "url" => (tenth(size(0)), Shape::Text(size(0))),
        "bytes" => (tenth(size(0)), Shape::Text(size(0).saturating_mul(4))),
        "replace" => (part(size(0), 0.2), Shape::Text(replaced(shapes))),
        "split" => {
            let limit = match call.args.get(1).map(|limit| &limit.expr) {
                Some(Expr::Literal(LiteralValue::Int(limit))) => {
                    u64::try_from(*limit.inner()).unwrap_or(UNBOUNDED)
                }
                _ => size(0),
            };
            (part(size(0), 0.2), Shape::List(limit, None))
        }
        "join" => {
            let separators = size(1).saturating_mul(size(0).saturating_sub(1));
            let result = size(0).saturating_mul(shape(0).item().size()).saturating_add(separators);
            (tenth(result), Shape::Text(result))
        }
        "ip" if on_target => (1, Shape::Scalar),
        "ip" | "cidr" | "isIP" | "isCIDR" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
            (tenth(size(0)), Shape::Scalar)
        }
        "validate" => (part(tenth(size(1)), 128.0 * 0.25), Shape::List(UNBOUNDED, None)),
        "containsIP" | "containsCIDR" => {
            let own = if call.func_name == "containsIP" { 4 } else { 7 };
            let argument = shape(1);
            (own + if argument.is_text() { tenth(argument.size()) } else { 0 }, Shape::Scalar)
        }
        "isSorted" | "sum" | "min" | "max" | "indexOf" | "lastIndexOf" | "includes" => {
            let item = shape(0).item();
            let each = 1_u64.saturating_add(if item.is_text() { tenth(item.size()) } else { 0 });
            let cost = if shape(0).is_list() { size(0).saturating_mul(each) } else { tenth(size(0)) };
            (cost, if matches!(call.func_name.as_str(), "min" | "max") { item } else { Shape::Scalar })
        }
        "slice" | "reverse" | "flatten" | "distinct" | "sort" if shape(0).is_list() => {
            of_list_function(call, &shape(0))
        }
        "format" => (tenth(size(0)), Shape::Text(UNBOUNDED)),
        "string" | "charAt" | "reverse" | "getScheme" | "getHostname" | "getHost" | "getPort"
        | "getEscapedPath" | "getQuery" => (1, Shape::Text(UNBOUNDED)),
        "orValue" => (1, larger(Some(shape(0)), shape(1))),
        operators::OPT_SELECT => match call.args.get(1).map(|field| &field.expr) {
            Some(Expr::Literal(LiteralValue::String(name))) => (1, shape(0).field(name.inner())),
            _ => (1, Shape::Unknown),
        },
        "value" | "dyn" => (1, shape(0)),
        _ => (1, Shape::Scalar),
    }
}

/// A function that makes a list of another one: a unit for the call and ten for the list.
fn of_list_function<'s>(call: &CallExpr, list: &Shape<'s>) -> (u64, Shape<'s>) {
    let number = |at: usize| match call.args.get(at).map(|argument| &argument.expr) {
        // swallowed: a negative number is rejected when the rule runs
        Some(Expr::Literal(LiteralValue::Int(number))) => u64::try_from(*number.inner()).ok(),
        _ => None,
    };
    let (size, item) = (list.size(), list.item());
    let (result, factor) = match call.func_name.as_str() {
        "slice" => (number(1).unwrap_or(size).saturating_sub(number(0).unwrap_or(0)), 1.0),
        #[expect(clippy::cast_precision_loss, reason = "a depth is small")]
        "flatten" => (size, call.args.first().map_or(1.0, |_| number(0).unwrap_or(UNBOUNDED) as f64)),
        "sort" if item.is_text() => (size.saturating_mul(size), 2.1),
        "distinct" | "sort" => (size.saturating_mul(size), 2.0),
        _ => (size, 1.0),
    };
    (part(result, factor).saturating_add(11), Shape::List(result, Some(Box::new(item))))
}

/// The longest text that `replace` makes.
fn replaced(shapes: &[Shape<'_>]) -> u64 {
    let size = |at: usize| shapes.get(at).map_or(0, Shape::size);
    let (text, replacement) = (size(0), size(2));
    // Only the length of a literal is known from below; any other text may be empty, and then every place is replaced.
    let shortest = match shapes.get(1) {
        Some(Shape::Text(length)) => *length,
        _ => 0,
    };
    match shortest {
        0 => text.saturating_add(1).saturating_mul(replacement).saturating_add(text),
        shortest if replacement <= shortest => text,
        shortest => text.div_ceil(shortest).saturating_mul(replacement),
    }
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
    let root = root(names);
    let item = if it.iter_var2.is_some() { Shape::Scalar } else { range.at(range.item(), &root) };
    in_loop.insert(&it.iter_var, item);
    if let Some(second) = &it.iter_var2 {
        in_loop.insert(second, range.at(range.element(), &root));
    }
    let condition = of(&it.loop_cond, &in_loop).0;
    let step = of(&it.loop_step, &in_loop).0;
    let cost = steps.saturating_mul(condition.saturating_add(step));
    let shape = match (&it.accu_init.expr, appended(&it.loop_step)) {
        (Expr::List(_), Some(element)) if steps > 0 => {
            Shape::List(steps, Some(Box::new(of(element, &in_loop).1)))
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
