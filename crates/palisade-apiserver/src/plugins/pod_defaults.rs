//! Two small plugins that complete pods: their priority, and how long they tolerate a lost node.
//!
//! Implements: Admission Control, "Priority" and "DefaultTolerationSeconds".
//! <https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#defaulttolerationseconds>

use palisade_apimachinery::Status;
use serde_json::{Map, Value, json};

use crate::admission_chain::{Admission, InReview, Notes, Operation, Plugin, Request};

/// The spec of a pod that is written; none of any other object.
fn spec_of_pod<'a>(
    request: &Request<'_>,
    object: &'a mut InReview,
) -> Result<Option<&'a mut Map<String, Value>>, Box<Status>> {
    if !matches!(request.operation, Operation::Create | Operation::Update) || !request.is("", "pods") {
        return Ok(None);
    }
    match object.get_mut("spec").and_then(Value::as_object_mut) {
        Some(spec) => Ok(Some(spec)),
        None => Err(Status::bad_request("pod cannot be decoded: spec is not an object")),
    }
}

/// The policy of the classes that exist.
const PREEMPTS: &str = "PreemptLowerPriority";

/// Resolves the priority class to a number. There are no PriorityClass objects here, only the two of the system.
#[derive(Debug, Clone, Copy)]
pub struct Priority;

impl Plugin for Priority {
    fn name(&self) -> &'static str {
        "Priority"
    }

    fn admit(&self, request: &Request<'_>, object: &mut InReview, _: &mut Notes) -> Admission {
        let Some(spec) = spec_of_pod(request, object)? else { return Ok(()) };
        if let Some(old) = request.old_object.filter(|_| request.operation == Operation::Update) {
            // What was set at creation stays; validation rejects any other value.
            for field in ["priority", "preemptionPolicy"] {
                let stored = old.get("spec").and_then(|spec| spec.get(field));
                if let (None, Some(stored)) = (spec.get(field), stored) {
                    spec.insert(field.to_owned(), stored.clone());
                }
            }
            return Ok(());
        }
        let class = spec.get("priorityClassName").and_then(Value::as_str).unwrap_or_default().to_owned();
        let priority = match class.as_str() {
            "" => 0,
            "system-cluster-critical" => 2_000_000_000,
            "system-node-critical" => 2_000_001_000,
            _ => {
                return Err(request.forbidden(&format!("no PriorityClass with name {class} was found")));
            }
        };
        if let Some(given) = spec.get("priority").and_then(Value::as_i64).filter(|given| *given != priority) {
            return Err(request.forbidden(&format!(
                "the integer value of priority ({given}) must not be provided in pod spec; priority admission \
                 controller computed {priority} from the given PriorityClass name"
            )));
        }
        spec.insert("priority".to_owned(), priority.into());
        let given = spec.get("preemptionPolicy").and_then(Value::as_str);
        if let Some(given) = given.filter(|given| *given != PREEMPTS) {
            return Err(request.forbidden(&format!(
                "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
                 controller computed {PREEMPTS} from the given PriorityClass name"
            )));
        }
        spec.entry("preemptionPolicy").or_insert_with(|| PREEMPTS.into());
        Ok(())
    }
}

/// Five minutes of patience with nodes that are not ready or cannot be reached.
#[derive(Debug, Clone, Copy)]
pub struct DefaultTolerationSeconds;

impl Plugin for DefaultTolerationSeconds {
    fn name(&self) -> &'static str {
        "DefaultTolerationSeconds"
    }

    fn admit(&self, request: &Request<'_>, object: &mut InReview, _: &mut Notes) -> Admission {
        let Some(spec) = spec_of_pod(request, object)? else { return Ok(()) };
        let given = spec.get("tolerations").and_then(Value::as_array).cloned().unwrap_or_default();
        let mut tolerations = given.clone();
        for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
            let tolerated = given.iter().any(|toleration| {
                let text = |name: &str| toleration.get(name).and_then(Value::as_str).unwrap_or_default();
                (text("key") == key || text("key").is_empty())
                    && (text("effect") == "NoExecute" || text("effect").is_empty())
            });
            if !tolerated {
                tolerations.push(json!({
                    "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300,
                }));
            }
        }
        if !tolerations.is_empty() {
            spec.insert("tolerations".to_owned(), tolerations.into());
        }
        Ok(())
    }
}
