//! The resource: how it is written, and what makes it unreadable.
//!
//! Cluster-scoped, so that no role in a namespace reaches it: the aggregated roles `edit` and `admin` never contain it.

use palisade_base::{
    field_error::{BadValue, FieldError, aggregate},
    field_path::FieldPath,
    go::Quoted,
    time::{self, Time},
};
use palisade_model::json::from_value;
use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use super::{
    pattern::{FieldPattern, ImagePattern},
    workload::{KINDS, Workload, kind_of},
};
use crate::{profiles::policy::LabelSelector, standards::checks};

/// Group and version of the resource.
pub const API_VERSION: &str = "palisade.dev/v1alpha1";
/// Kind of the resource.
pub const KIND: &str = "SecurityException";
/// Name of the resource in requests.
pub const RESOURCE: &str = "securityexceptions";

/// The longest list in an exception.
const MOST: usize = 64;
/// The longest text in an exception.
const LONGEST: usize = 1024;

/// An exception that can be applied, until it ends.
#[derive(Debug, Clone, PartialEq)]
pub struct SecurityException {
    /// Its name.
    pub name: String,
    /// Namespaces by name; empty: the selector alone decides.
    pub namespaces: Vec<String>,
    /// Namespaces by label; none: the names alone decide. With both, both must hold.
    pub namespace_selector: Option<LabelSelector>,
    /// Workloads; empty: every pod of the namespaces.
    pub workloads: Vec<Workload>,
    /// Labels of the pod. They are the author's, so this narrows an exception without guarding it.
    pub pod_selector: Option<LabelSelector>,
    /// Containers by name; empty: all.
    pub containers: Vec<String>,
    /// Images; empty: all.
    pub images: Vec<ImagePattern>,
    /// What is accepted.
    pub allow: Vec<Allowance>,
    /// Why.
    pub reason: String,
    /// The person or team that answers for it.
    pub owner: String,
    /// Where it is tracked.
    pub ticket: String,
    /// The moment it stops counting.
    pub until: Time,
}

/// A finding that is accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowance {
    /// Id of the check.
    pub control: &'static str,
    /// The field.
    pub field: FieldPattern,
    /// The values; none: the field is missing, or its content is not a plain value.
    pub values: Option<Vec<String>>,
}

/// Why an object is no exception that can be applied.
#[derive(Debug, Error)]
pub enum ExceptionError {
    /// Not of the shape of the resource.
    #[error("cannot be decoded: {0}")]
    Undecodable(#[source] serde_json::Error),
    /// Of its shape, with values that make no sense.
    #[error("{}", aggregate(.0))]
    Invalid(Vec<FieldError>),
}

impl ExceptionError {
    /// The problems by field, as the API reports them.
    #[must_use]
    pub fn problems(self, object: &Value) -> Vec<FieldError> {
        match self {
            Self::Invalid(problems) => problems,
            Self::Undecodable(error) => {
                let shown = BadValue::Plain(object.get("spec").unwrap_or(&Value::Null).to_string());
                vec![FieldError::invalid(FieldPath::of(&["spec"]), shown, error.to_string())]
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Object {
    api_version: String,
    kind: String,
    metadata: Metadata,
    spec: Spec,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Spec {
    #[serde(default)]
    namespaces: Vec<String>,
    namespace_selector: Option<LabelSelector>,
    #[serde(default)]
    workloads: Vec<SpecWorkload>,
    pod_selector: Option<LabelSelector>,
    #[serde(default)]
    containers: Vec<String>,
    #[serde(default)]
    images: Vec<String>,
    allow: Vec<SpecAllowance>,
    reason: String,
    owner: String,
    ticket: String,
    until: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SpecWorkload {
    kind: String,
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SpecAllowance {
    control: String,
    field: String,
    values: Option<Vec<String>>,
}

/// Whether an object declares itself an exception, readable or not.
#[must_use]
pub fn is_exception(object: &Value) -> bool {
    let field = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    field("kind") == KIND && field("apiVersion").split('/').next() == API_VERSION.split('/').next()
}

impl SecurityException {
    /// Reads an object of the API or of a manifest.
    pub fn read(object: &Value) -> Result<Self, ExceptionError> {
        let Object { api_version, kind, metadata, spec } =
            from_value(object).map_err(ExceptionError::Undecodable)?;
        let mut problems = Problems::default();
        if api_version != API_VERSION {
            problems.add(FieldError::not_supported("apiVersion", Quoted(&api_version), &[API_VERSION]));
        }
        if kind != KIND {
            problems.add(FieldError::not_supported("kind", Quoted(&kind), &[KIND]));
        }
        problems.text(FieldPath::of(&["metadata", "name"]), &metadata.name);
        let at = |field: &'static str| FieldPath::of(&["spec", field]);
        if spec.namespaces.is_empty() && spec.namespace_selector.is_none() {
            problems.add(FieldError::required(at("namespaces"), "or namespaceSelector must be set"));
        }
        problems.names(&at("namespaces"), &spec.namespaces);
        problems.names(&at("containers"), &spec.containers);
        for (field, selector) in
            [("namespaceSelector", &spec.namespace_selector), ("podSelector", &spec.pod_selector)]
        {
            if let Some(selector) = selector {
                selector.problems(&at(field), &mut problems.0);
            }
        }
        let workloads = problems.workloads(&at("workloads"), spec.workloads);
        let images = problems.images(&at("images"), &spec.images);
        let allow = problems.allowances(&at("allow"), spec.allow);
        for (field, text) in [("reason", &spec.reason), ("owner", &spec.owner), ("ticket", &spec.ticket)] {
            problems.text(at(field), text);
        }
        let until = time::parse(&spec.until).map_err(|error| {
            problems.add(FieldError::invalid(at("until"), Quoted(&spec.until), error.to_string()));
        });
        let Problems(problems) = problems;
        match until {
            Ok(until) if problems.is_empty() => Ok(Self {
                name: metadata.name,
                namespaces: spec.namespaces,
                namespace_selector: spec.namespace_selector,
                workloads,
                pod_selector: spec.pod_selector,
                containers: spec.containers,
                images,
                allow,
                reason: spec.reason,
                owner: spec.owner,
                ticket: spec.ticket,
                until,
            }),
            _ => Err(ExceptionError::Invalid(problems)),
        }
    }

    /// Whether the exception counts at a moment. It ends with `until`: at that very moment it does not count any more. Seconds
    /// decide, because an API server knows no more of the moment of a request; with a fraction it ends a little earlier.
    #[must_use]
    pub const fn counts_at(&self, now: Time) -> bool {
        now.seconds < self.until.seconds
    }
}

/// What is wrong with an exception, collected.
#[derive(Default)]
struct Problems(Vec<FieldError>);

impl Problems {
    fn add(&mut self, problem: FieldError) {
        self.0.push(problem);
    }

    fn text(&mut self, at: FieldPath, text: &str) {
        if text.trim().is_empty() {
            self.add(FieldError::required(at, ""));
        } else if text.len() > LONGEST {
            self.add(FieldError::too_long(at, LONGEST));
        }
    }

    fn count(&mut self, at: &FieldPath, count: usize) {
        if count > MOST {
            self.add(FieldError::too_many(at.clone(), count, MOST));
        }
    }

    /// A pattern in the place of a name would be taken for a name, and the exception for one that is in force.
    fn name(&mut self, at: FieldPath, name: &str) {
        if name.contains('*') {
            self.add(FieldError::invalid(at, Quoted(name), "must be a name, not a pattern"));
        } else {
            self.text(at, name);
        }
    }

    fn names(&mut self, at: &FieldPath, names: &[String]) {
        self.count(at, names.len());
        for (index, name) in names.iter().enumerate() {
            self.name(at.clone().index(index), name);
        }
    }

    fn workloads(&mut self, at: &FieldPath, workloads: Vec<SpecWorkload>) -> Vec<Workload> {
        self.count(at, workloads.len());
        let mut read = Vec::with_capacity(workloads.len());
        for (index, SpecWorkload { kind, name }) in workloads.into_iter().enumerate() {
            let at = at.clone().index(index);
            self.name(at.clone().field("name"), &name);
            match kind_of(&kind) {
                Some(kind) => read.push(Workload { kind, name }),
                None => self.add(FieldError::not_supported(at.field("kind"), Quoted(&kind), KINDS)),
            }
        }
        read
    }

    fn images(&mut self, at: &FieldPath, images: &[String]) -> Vec<ImagePattern> {
        self.count(at, images.len());
        let mut read = Vec::with_capacity(images.len());
        for (index, image) in images.iter().enumerate() {
            match ImagePattern::parse(image) {
                Ok(pattern) => read.push(pattern),
                Err(error) => {
                    self.add(FieldError::invalid(at.clone().index(index), Quoted(image), error.to_string()));
                }
            }
        }
        read
    }

    fn allowances(&mut self, at: &FieldPath, allow: Vec<SpecAllowance>) -> Vec<Allowance> {
        if allow.is_empty() {
            self.add(FieldError::required(at.clone(), "at least one finding must be named"));
        }
        self.count(at, allow.len());
        let mut read = Vec::with_capacity(allow.len());
        for (index, SpecAllowance { control, field, values }) in allow.into_iter().enumerate() {
            let at = at.clone().index(index);
            let check = checks::check(&control);
            if check.is_none() {
                let ids: Vec<_> = checks::CHECKS.iter().map(|check| check.id).collect();
                self.add(FieldError::not_supported(at.clone().field("control"), Quoted(&control), &ids));
            }
            let pattern = FieldPattern::parse(&field).map_err(|error| {
                self.add(FieldError::invalid(at.clone().field("field"), Quoted(&field), error.to_string()));
            });
            let at_values = at.field("values");
            match &values {
                Some(values) if values.is_empty() => {
                    self.add(FieldError::required(at_values, "or leave it out, for a field without a value"));
                }
                Some(values) => {
                    self.count(&at_values, values.len());
                    for (index, value) in values.iter().enumerate().filter(|(_, value)| value.len() > LONGEST)
                    {
                        self.add(FieldError::too_long(at_values.clone().index(index), value.len()));
                    }
                }
                None if pattern.as_ref().is_ok_and(FieldPattern::ends_with_any_element) => {
                    self.add(FieldError::required(at_values, "for an element of a list"));
                }
                None => {}
            }
            // swallowed: the problem is recorded above
            if let (Some(check), Ok(field)) = (check, pattern) {
                read.push(Allowance { control: check.id, field, values });
            }
        }
        read
    }
}
