//! What the pod strategy of an API server does about security: annotations and fields are brought together, profiles
//! and security contexts validated, users warned.
//!
//! Implements: `palisade_model`'s reading of the seccomp and AppArmor designs and of every release, for pods and for
//! the templates of workloads.

use palisade_apimachinery::{FieldError, Kind};
use palisade_model::change::Change;
use palisade_model::compat::Compat;
use palisade_model::pod::Pod;
use palisade_model::prepare::{Subject, prepare_for_create, prepare_for_update};
use palisade_model::problem::Problem;
use palisade_model::sync::sync;
use palisade_model::validation::{
    Scope, validate_create_in, validate_ephemeral_security_contexts, validate_update_security_contexts,
};
use palisade_model::warnings::{deprecated_annotations, warnings};
use palisade_model::workload::{WorkloadKind, read_template, workload_resource};
use serde::Deserialize;
use serde_json::Value;

use super::{field_error, psp};
use crate::admission_chain::ObjectRules;

/// The rules, for one release or the designs.
#[derive(Debug, Clone, Copy)]
pub struct PodRules {
    /// Whose rules.
    pub compat: Compat,
}

impl PodRules {
    fn workload(kind: &Kind, subresource: &str) -> Option<&'static WorkloadKind> {
        let workload = workload_resource(&kind.group, &kind.plural).filter(|workload| workload.built_in)?;
        // Through `status` nothing of what runs can change.
        (subresource.is_empty() || (workload.path.is_empty() && subresource == "ephemeralcontainers"))
            .then_some(workload)
    }

    /// The pod or template as it is judged: unknown fields forgotten, defaults set.
    fn read<'v>(&self, object: &'v Value, workload: &WorkloadKind) -> Option<Pod<'v>> {
        let mut pod = read_template(object, workload.path).ok()??;
        prepare_for_create(&mut pod, workload.subject(), &self.compat);
        Some(pod)
    }

    fn problems(
        &self,
        workload: &WorkloadKind,
        subresource: &str,
        object: &Value,
        old: Option<&Value>,
    ) -> Vec<Problem> {
        let Some(pod) = self.read(object, workload) else { return Vec::new() };
        let old = old.filter(|_| workload.path.is_empty()).and_then(|old| self.read(old, workload));
        match old {
            None => validate_create_in(Scope::SecurityContexts, &workload.subject().view(&pod), &self.compat),
            Some(_) if subresource == "ephemeralcontainers" => {
                validate_ephemeral_security_contexts(&pod, &self.compat)
            }
            Some(old) => validate_update_security_contexts(&pod, &old, &self.compat),
        }
    }
}

impl ObjectRules for PodRules {
    fn prepare(
        &self,
        kind: &Kind,
        subresource: &str,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Vec<String> {
        let Some(workload) = Self::workload(kind, subresource) else { return Vec::new() };
        let subject = workload.subject();
        let (changes, told): (Vec<Change>, Vec<String>) = {
            let Ok(Some(mut pod)) = read_template(&*object, workload.path) else { return Vec::new() };
            let old = old.and_then(|old| read_template(old, workload.path).ok().flatten());
            if let Some(old) = old {
                (prepare_for_update(&mut pod, &old, subject, &self.compat), Vec::new())
            } else {
                let mut changes = prepare_for_create(&mut pod, subject, &self.compat);
                let mut told = Vec::new();
                if subject == Subject::Pod {
                    if self.compat.is_designs() {
                        told.extend(deprecated_annotations(&subject.view(&pod), &self.compat));
                    }
                    let synced = sync(&mut pod, &self.compat);
                    changes.extend(synced.changes);
                    told.extend(synced.warnings);
                }
                (changes, told)
            }
        };
        for change in &changes {
            change.apply(object);
        }
        told
    }

    fn validate(
        &self,
        kind: &Kind,
        subresource: &str,
        object: &Value,
        old: Option<&Value>,
    ) -> Vec<FieldError> {
        if psp::is_policy(kind) && subresource.is_empty() {
            return psp::problems(object, &self.compat).iter().map(field_error).collect();
        }
        let Some(workload) = Self::workload(kind, subresource) else { return Vec::new() };
        self.problems(workload, subresource, object, old).iter().map(field_error).collect()
    }

    fn warnings(&self, kind: &Kind, subresource: &str, object: &Value, old: Option<&Value>) -> Vec<String> {
        if psp::is_policy(kind) && self.compat.is_designs() {
            return psp::warnings(object, old);
        }
        let Some(workload) = Self::workload(kind, subresource) else { return Vec::new() };
        // Pods are warned about when they are made; workloads whenever their specification changes.
        let unchanged = old.is_some_and(|old| old.get("spec") == object.get("spec"));
        if (workload.path.is_empty() && old.is_some()) || unchanged {
            return Vec::new();
        }
        self.read(object, workload)
            .map(|pod| warnings(&workload.subject().view(&pod), &self.compat))
            .unwrap_or_default()
    }
}

/// Reads a pod out of a stored object.
pub(super) fn read_pod<'v>(object: &'v Value, compat: &Compat) -> Option<Pod<'v>> {
    let mut pod = Pod::deserialize(object).ok()?;
    prepare_for_create(&mut pod, Subject::Pod, compat);
    Some(pod)
}
