//! `AppArmorProfile` objects that nodes would not load, and pods that name one of another namespace: both are rejected.

use palisade_admission::app_armor_profiles::{of_other_namespaces, problems};
use palisade_apimachinery::Status;
use palisade_model::compat::Compat;
use serde_json::Value;

use crate::admission_chain::{Admission, Notes, Operation, Plugin, Request};

/// The plugin.
#[derive(Debug, Clone, Copy)]
pub struct AppArmorProfilePlugin {
    /// Whether there are such profiles: an emulated release has none.
    pub compat: Compat,
}

impl Plugin for AppArmorProfilePlugin {
    fn name(&self) -> &'static str {
        "AppArmorProfile"
    }

    fn validate(&self, request: &Request<'_>, object: Option<&Value>, _: &mut Notes) -> Admission {
        let Some(object) = object.filter(|_| self.compat.is_designs()) else { return Ok(()) };
        let is_pod = request.kind.group.is_empty() && request.kind.plural == "pods";
        let found = match (request.operation, request.subresource) {
            (Operation::Create | Operation::Update, "") if request.is("palisade.dev", "apparmorprofiles") => {
                problems(object)
            }
            (Operation::Create, "") if is_pod => of_other_namespaces(object, request.namespace, false),
            (Operation::Update, "ephemeralcontainers") if is_pod => {
                of_other_namespaces(object, request.namespace, true)
            }
            _ => return Ok(()),
        };
        if found.is_empty() {
            return Ok(());
        }
        Err(Status::invalid(request.kind.kind_name(), request.name, &found, request.kind.emulated))
    }
}
