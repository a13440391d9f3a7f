//! `SecurityException` objects: rejected when they are written and cannot be read, and read when a pod violates something.

use std::sync::Arc;

use palisade_apimachinery::Status;
use palisade_base::time::Time;
use palisade_policy::exceptions::object::{API_VERSION, KIND, SecurityException};
use palisade_policy::exceptions::set::ExceptionSet;
use serde_json::Value;

use crate::admission_chain::{Admission, Notes, Operation, Plugin, Request};
use crate::storage::Object;

/// Where exceptions are stored.
const RESOURCE: &str = "securityexceptions.palisade.dev";

/// The moment at which exceptions are applied.
pub(super) fn now() -> Time {
    Time { seconds: palisade_serve::certificate::now(), micros: 0 }
}

/// The exceptions of the server.
pub(super) fn stored(request: &Request<'_>) -> ExceptionSet {
    let read = |object: Arc<Object>| {
        // swallowed: what is not JSON is no exception, and counts for nothing
        let mut value: Value = serde_json::from_slice(&object.json).unwrap_or(Value::Null);
        // Storage keeps objects without the kind that they are stored by.
        if let Value::Object(fields) = &mut value {
            fields.entry("apiVersion").or_insert_with(|| API_VERSION.into());
            fields.entry("kind").or_insert_with(|| KIND.into());
        }
        value
    };
    let objects: Vec<Value> = request.cluster.list(RESOURCE, "").into_iter().map(read).collect();
    ExceptionSet::read(&objects)
}

/// Rejects exceptions that could not be applied.
#[derive(Debug, Clone, Copy)]
pub struct SecurityExceptionPlugin;

impl Plugin for SecurityExceptionPlugin {
    fn name(&self) -> &'static str {
        "SecurityException"
    }

    fn validate(&self, request: &Request<'_>, object: Option<&Value>, _: &mut Notes) -> Admission {
        let Some(object) = object else { return Ok(()) };
        let is_write = matches!(request.operation, Operation::Create | Operation::Update);
        if !is_write || !request.is("palisade.dev", "securityexceptions") {
            return Ok(());
        }
        SecurityException::read(object).map(drop).map_err(|error| {
            let problems = error.problems(object);
            Status::invalid(request.kind.kind_name(), request.name, &problems, request.kind.emulated)
        })
    }
}
