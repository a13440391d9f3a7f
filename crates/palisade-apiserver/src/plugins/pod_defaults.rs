//! Two small plugins that complete pods: their priority, and how long they tolerate a lost node.
//!
//! Implements: Admission Control, "Priority" and "DefaultTolerationSeconds".
//! <https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#defaulttolerationseconds>

use palisade_apimachinery::Status;
use serde_json::{Map, Value, json};

use crate::admission_chain::{Admission, InReview, Notes, Operation, Plugin, Request};
use crate::meta::meta_text;

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

const CLASSES: &str = "priorityclasses.scheduling.k8s.io";

/// What a class gives to a pod.
struct Class {
    name: String,
    priority: i64,
    preemption_policy: String,
}

impl Class {
    /// The class that a new pod names; without a name the global default, and 0 if there is none.
    fn of(request: &Request<'_>, name: &str) -> Result<Self, Box<Status>> {
        let found = if name.is_empty() {
            global_defaults(request).into_iter().min_by_key(value_of)
        } else {
            let class = request.cluster.get(CLASSES, "", name).map(|class| Value::Object(class.parse()));
            let missing = || request.forbidden(&format!("no PriorityClass with name {name} was found"));
            Some(class.ok_or_else(missing)?)
        };
        let policy = found.as_ref().and_then(|class| class.get("preemptionPolicy")).and_then(Value::as_str);
        Ok(Self {
            name: found.as_ref().map(|class| meta_text(class, "name").to_owned()).unwrap_or_default(),
            priority: found.as_ref().map_or(0, value_of),
            preemption_policy: policy.unwrap_or("PreemptLowerPriority").to_owned(),
        })
    }
}

fn value_of(class: &Value) -> i64 {
    class.get("value").and_then(Value::as_i64).unwrap_or(0)
}

fn is_global_default(class: &Value) -> bool {
    class.get("globalDefault").and_then(Value::as_bool) == Some(true)
}

fn global_defaults(request: &Request<'_>) -> Vec<Value> {
    const FIELD: &[u8] = b"globalDefault";
    let classes = request.cluster.list(CLASSES, "");
    // Nearly all classes leave the field out, and every pod without a class comes here.
    let named = classes.iter().filter(|class| class.json.windows(FIELD.len()).any(|part| part == FIELD));
    named.map(|class| Value::Object(class.parse())).filter(is_global_default).collect()
}

/// Resolves the priority class of a pod to a number. At most one class is the default of pods that name none.
#[derive(Debug, Clone, Copy)]
pub struct Priority;

impl Plugin for Priority {
    fn name(&self) -> &'static str {
        "Priority"
    }

    fn validate(&self, request: &Request<'_>, object: Option<&Value>, _: &mut Notes) -> Admission {
        let written = matches!(request.operation, Operation::Create | Operation::Update);
        let Some(class) = object.filter(|_| written && request.is("scheduling.k8s.io", "priorityclasses"))
        else {
            return Ok(());
        };
        if !is_global_default(class) {
            return Ok(());
        }
        match global_defaults(request).iter().find(|other| meta_text(other, "name") != request.name) {
            Some(other) => Err(request.forbidden(&format!(
                "PriorityClass {} is already marked as default. Only one default can exist",
                meta_text(other, "name")
            ))),
            None => Ok(()),
        }
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
        let named = spec.get("priorityClassName").and_then(Value::as_str).unwrap_or_default();
        let Class { name, priority, preemption_policy } = Class::of(request, named)?;
        if named.is_empty() && !name.is_empty() {
            spec.insert("priorityClassName".to_owned(), name.into());
        }
        if let Some(given) = spec.get("priority").and_then(Value::as_i64).filter(|given| *given != priority) {
            return Err(request.forbidden(&format!(
                "the integer value of priority ({given}) must not be provided in pod spec; priority admission \
                 controller computed {priority} from the given PriorityClass name"
            )));
        }
        spec.insert("priority".to_owned(), priority.into());
        let given = spec.get("preemptionPolicy").and_then(Value::as_str);
        if let Some(given) = given.filter(|given| *given != preemption_policy) {
            return Err(request.forbidden(&format!(
                "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
                 controller computed {preemption_policy} from the given PriorityClass name"
            )));
        }
        spec.entry("preemptionPolicy").or_insert_with(|| preemption_policy.into());
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
