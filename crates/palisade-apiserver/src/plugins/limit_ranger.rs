//! Pods and claims stay within the limit ranges of their namespace, and containers get the defaults of these.
//!
//! Implements: Admission Control, "LimitRanger", and Limit Ranges.
//! <https://kubernetes.io/docs/concepts/policy/limit-range/>
//!
//! An amount that cannot be read is rejected: it may be one that exceeds a bound.

use palisade_apimachinery::Status;
use palisade_base::field_error::aggregate;
use palisade_base::quantity::Quantity;
use serde_json::{Map, Value};

use crate::admission_chain::{Admission, InReview, Notes, Operation, Plugin, Request};
use crate::meta;

/// The plugin.
#[derive(Debug, Clone, Copy)]
pub struct LimitRanger;

/// What the plugin says it has done, on the pod.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

impl Plugin for LimitRanger {
    fn name(&self) -> &'static str {
        "LimitRanger"
    }

    fn admit(&self, request: &Request<'_>, object: &mut InReview, _: &mut Notes) -> Admission {
        if !is_judged(request, object) || !request.is("", "pods") || request.operation != Operation::Create {
            return Ok(());
        }
        for range in request.cluster.list("limitranges", request.namespace) {
            let range = Value::Object(range.parse());
            let defaults = Defaults::of(&range);
            if !defaults.is_empty() {
                defaults.apply(object);
            }
        }
        Ok(())
    }

    fn validate(&self, request: &Request<'_>, object: Option<&Value>, _: &mut Notes) -> Admission {
        let Some(object) = object.filter(|object| is_judged(request, object)) else { return Ok(()) };
        for range in request.cluster.list("limitranges", request.namespace) {
            let range = Value::Object(range.parse());
            let problems = if request.kind.plural == "pods" {
                pod_problems(object, &range)
            } else {
                claim_problems(object, &range)
            };
            let problems = problems.map_err(|Unreadable(text)| {
                Status::bad_request(format!(
                    "limit range {}: {text:?} is not a quantity",
                    meta::meta_text(&range, "name")
                ))
            })?;
            if !problems.is_empty() {
                return Err(request.forbidden(&aggregate(&problems)));
            }
        }
        Ok(())
    }
}

/// Pods when they are created or resized, and claims when they are created or changed.
fn is_judged(request: &Request<'_>, object: &Value) -> bool {
    if !request.kind.group.is_empty() || request.kind.is_custom() || meta::is_deleting(object) {
        return false;
    }
    let written = matches!(request.operation, Operation::Create | Operation::Update);
    match (request.kind.plural.as_str(), request.subresource) {
        ("pods", "") => request.operation == Operation::Create,
        ("pods", "resize") => request.operation == Operation::Update,
        ("persistentvolumeclaims", "") => written,
        _ => false,
    }
}

/// A text where an amount is expected.
#[derive(Debug)]
struct Unreadable(String);

fn quantity(value: &Value) -> Result<Quantity, Unreadable> {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Quantity::parse(&text).map_err(|_| Unreadable(text))
}

type Amounts = Map<String, Value>;

fn amounts<'v>(owner: &'v Value, field: &str) -> Option<&'v Amounts> {
    owner.get(field).and_then(Value::as_object)
}

fn items(range: &Value) -> impl Iterator<Item = &Value> {
    range.pointer("/spec/limits").and_then(Value::as_array).into_iter().flatten()
}

/// What a container gets that does not say what it needs.
#[derive(Debug, Default)]
struct Defaults {
    limits: Amounts,
    requests: Amounts,
}

impl Defaults {
    fn of(range: &Value) -> Self {
        let mut defaults = Self::default();
        for item in items(range).filter(|item| item["type"] == "Container") {
            defaults.limits.extend(amounts(item, "default").cloned().unwrap_or_default());
            defaults.requests.extend(amounts(item, "defaultRequest").cloned().unwrap_or_default());
        }
        defaults
    }

    fn is_empty(&self) -> bool {
        self.limits.is_empty() && self.requests.is_empty()
    }

    fn apply(&self, pod: &mut Value) {
        let mut notes = Vec::new();
        let Some(spec) = pod.get_mut("spec") else { return };
        for (list, called) in [("containers", "container"), ("initContainers", "init container")] {
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                let name = container.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
                for (field, given, what) in
                    [("requests", &self.requests, "request"), ("limits", &self.limits, "limit")]
                {
                    let set = fill(container, field, given);
                    if !set.is_empty() {
                        notes.push(format!("{} {what} for {called} {name}", set.join(", ")));
                    }
                }
            }
        }
        if notes.is_empty() {
            return;
        }
        meta::edit_metadata(pod, |metadata| {
            let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
            if annotations.is_null() {
                *annotations = Value::Object(Map::new());
            }
            if let Some(annotations) = annotations.as_object_mut() {
                let text = format!("LimitRanger plugin set: {}", notes.join("; "));
                annotations.insert(ANNOTATION.to_owned(), text.into());
            }
        });
    }
}

/// Sets the amounts that a container leaves open; their names.
fn fill(container: &mut Value, field: &str, given: &Amounts) -> Vec<String> {
    let mut set = Vec::new();
    let Some(container) = container.as_object_mut() else { return set };
    let resources = container.entry("resources").or_insert_with(|| Value::Object(Map::new()));
    if resources.is_null() {
        *resources = Value::Object(Map::new());
    }
    let Some(resources) = resources.as_object_mut() else { return set };
    if given.is_empty() {
        return set;
    }
    let amounts = resources.entry(field).or_insert_with(|| Value::Object(Map::new()));
    if amounts.is_null() {
        *amounts = Value::Object(Map::new());
    }
    let Some(amounts) = amounts.as_object_mut() else { return set };
    for (name, amount) in given {
        if !amounts.contains_key(name) {
            amounts.insert(name.clone(), amount.clone());
            set.push(name.clone());
        }
    }
    set
}

/// What a limit range says about the amounts of something: `Pod`, `Container` or `PersistentVolumeClaim`.
fn problems_of(
    item: &Value,
    called: &str,
    requests: &Amounts,
    limits: &Amounts,
    problems: &mut Vec<String>,
) -> Result<(), Unreadable> {
    let missing = |why: &str, name: &str, bound: &Value| {
        format!("{why} {name} usage per {called} is {}.  No {{}} is specified", plain(bound))
    };
    for (name, bound) in amounts(item, "min").into_iter().flatten() {
        let Some(request) = requests.get(name) else {
            problems.push(missing("minimum", name, bound).replace("{}", "request"));
            continue;
        };
        for (amount, what) in [(Some(request), "request"), (limits.get(name), "limit")] {
            if let Some(amount) = amount
                && quantity(amount)? < quantity(bound)?
            {
                let (bound, amount) = (plain(bound), plain(amount));
                problems
                    .push(format!("minimum {name} usage per {called} is {bound}, but {what} is {amount}"));
                break;
            }
        }
    }
    for (name, bound) in amounts(item, "max").into_iter().flatten() {
        let limit = limits.get(name);
        let Some(limit) = limit.or_else(|| requests.get(name).filter(|_| called == "PersistentVolumeClaim"))
        else {
            problems.push(missing("maximum", name, bound).replace("{}", "limit"));
            continue;
        };
        for (amount, what) in [(Some(limit), "limit"), (requests.get(name), "request")] {
            if let Some(amount) = amount
                && quantity(amount)? > quantity(bound)?
            {
                let what = if called == "PersistentVolumeClaim" { "request" } else { what };
                let (bound, amount) = (plain(bound), plain(amount));
                problems
                    .push(format!("maximum {name} usage per {called} is {bound}, but {what} is {amount}"));
                break;
            }
        }
    }
    for (name, bound) in amounts(item, "maxLimitRequestRatio").into_iter().flatten() {
        let pair = (requests.get(name), limits.get(name));
        let most = quantity(bound)?;
        match pair {
            (Some(request), Some(limit)) => {
                let (request, limit) = (quantity(request)?, quantity(limit)?);
                // limit / request > most, without a division.
                let allowed = request.nanos().saturating_mul(most.nanos());
                if request.is_zero() || limit.nanos().saturating_mul(1_000_000_000) > allowed {
                    problems.push(format!(
                        "{name} max limit to request ratio per {called} is {}, but provided ratio is {}",
                        plain(bound),
                        ratio(limit, request)
                    ));
                }
            }
            (None, _) => problems.push(format!(
                "{name} max limit to request ratio per {called} is {}, but no request is specified or request is 0",
                plain(bound)
            )),
            (_, None) => problems.push(format!(
                "{name} max limit to request ratio per {called} is {}, but no limit is specified or limit is 0",
                plain(bound)
            )),
        }
    }
    Ok(())
}

fn plain(amount: &Value) -> String {
    amount.as_str().map_or_else(|| amount.to_string(), str::to_owned)
}

/// `2.000000`
fn ratio(limit: Quantity, request: Quantity) -> String {
    let millionths = limit.nanos().saturating_mul(1_000_000).checked_div(request.nanos()).unwrap_or(0);
    format!("{}.{:06}", millionths / 1_000_000, millionths % 1_000_000)
}

fn pod_problems(pod: &Value, range: &Value) -> Result<Vec<String>, Unreadable> {
    let mut problems = Vec::new();
    let empty = Amounts::new();
    let list =
        |field: &str| pod.pointer(&format!("/spec/{field}")).and_then(Value::as_array).into_iter().flatten();
    for item in items(range) {
        match item["type"].as_str().unwrap_or_default() {
            "Container" => {
                for container in list("containers").chain(list("initContainers")) {
                    let resources = container.get("resources").unwrap_or(&Value::Null);
                    let requests = amounts(resources, "requests").unwrap_or(&empty);
                    let limits = amounts(resources, "limits").unwrap_or(&empty);
                    problems_of(item, "Container", requests, limits, &mut problems)?;
                }
            }
            "Pod" => {
                let requests = pod_total(pod, "requests")?;
                let limits = pod_total(pod, "limits")?;
                problems_of(item, "Pod", &requests, &limits, &mut problems)?;
            }
            _ => {}
        }
    }
    Ok(problems)
}

/// What a pod needs at most at one time: its containers together with the init containers that go on, or the largest of those
/// that run before them.
fn pod_total(pod: &Value, field: &str) -> Result<Amounts, Unreadable> {
    let total = super::quota::pod_amounts(pod, field).map_err(|error| Unreadable(error.0))?;
    Ok(total.into_iter().map(|(name, amount)| (name, amount.to_string().into())).collect())
}

fn claim_problems(claim: &Value, range: &Value) -> Result<Vec<String>, Unreadable> {
    let mut problems = Vec::new();
    let empty = Amounts::new();
    let resources = claim.pointer("/spec/resources").unwrap_or(&Value::Null);
    let requests = amounts(resources, "requests").unwrap_or(&empty);
    for item in items(range).filter(|item| item["type"] == "PersistentVolumeClaim") {
        problems_of(item, "PersistentVolumeClaim", requests, &empty, &mut problems)?;
    }
    Ok(problems)
}
