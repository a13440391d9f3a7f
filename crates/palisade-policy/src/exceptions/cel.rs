//! Exceptions in an exported policy: what a check finds besides what exceptions accept, in CEL.
//!
//! An API server gives no time to the expressions of a policy. It does set `metadata.creationTimestamp` of a new object before
//! it evaluates policies, whatever the request has there, so an exception ends in a policy at the moment of `until`, without anything
//! that removes it. An update has no such moment: it is judged without exceptions.
//!
//! Leaves to others: the rules of the checks (`standards`), and reading exceptions from files.

use std::collections::BTreeMap;

use thiserror::Error;

use super::{
    object::{Allowance, SecurityException},
    pattern::ImagePattern,
    workload::{self, Workload},
};
use crate::{
    profiles::policy::LabelSelector,
    standards::{
        cel::{self, CONTAINERS, CelRules},
        evaluator::{Check, CheckVersion},
        places::{Place, Scope, places},
    },
};

/// Why an exception cannot be exported.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ExceptionExportError {
    /// Expressions see the elements of a list, not where they are.
    #[error(
        "SecurityException {name:?} cannot be exported: field {field:?} names a position in a list, use \"[*]\" with containers or values"
    )]
    Position {
        /// The exception.
        name: String,
        /// The field of one of its entries.
        field: String,
    },
}

/// The lists of containers.
const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// The exceptions of a policy, and whether it judges templates.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CelExceptions<'e> {
    pub(crate) exceptions: &'e [SecurityException],
    pub(crate) templates: bool,
}

impl CelExceptions<'_> {
    /// Whether a check finds what no exception accepts, an expression of a boolean; `None` if no exception names the check.
    pub(crate) fn remaining(
        &self,
        rules: &mut CelRules,
        check: &Check,
        version: &CheckVersion,
    ) -> Result<Option<String>, ExceptionExportError> {
        let mut candidates = Vec::new();
        for exception in self.exceptions {
            let own: Vec<&Allowance> = exception.allow.iter().filter(|own| own.is_for(check.id)).collect();
            if !own.is_empty() {
                candidates.push(Candidate { name: &exception.name, exception, own, subject: String::new() });
            }
        }
        if candidates.is_empty() {
            return Ok(None);
        }
        for candidate in &mut candidates {
            let condition = self.subject(rules, candidate.exception);
            candidate.subject = rules.define("exception", condition);
        }
        let places = places(check.id, version.since, rules.options());
        let found = places.iter().map(|place| remaining_of(place, &candidates));
        Ok(Some(found.collect::<Result<Vec<String>, _>>()?.join(" || ")))
    }

    /// Whether an exception is in force for the request: moment, namespace, workload and labels.
    fn subject(&self, rules: &mut CelRules, exception: &SecurityException) -> String {
        let until = exception.until.format(false);
        let mut conditions = vec![
            "request.operation == 'CREATE'".to_owned(),
            format!("timestamp(object.metadata.creationTimestamp) < timestamp({})", cel::text(&until)),
        ];
        if !exception.namespaces.is_empty() {
            conditions.push(format!("request.namespace in {}", texts(&exception.namespaces)));
        }
        if let Some(selector) = &exception.namespace_selector {
            conditions.extend(selected(selector, "namespaceObject.metadata.?labels.orValue({})"));
        }
        if !exception.workloads.is_empty() {
            let own = exception.workloads.iter().filter_map(|workload| self.is_of(rules, workload));
            let own: Vec<String> = own.collect();
            conditions.push(if own.is_empty() { "false".to_owned() } else { any(&own) });
        }
        if let Some(selector) = &exception.pod_selector {
            conditions.extend(selected(selector, "variables.pod.?metadata.?labels.orValue({})"));
        }
        conditions.join(" && ")
    }

    /// Whether the pod or template belongs to a workload, as [`workload::of_pod`] and [`workload::of_template`] decide it.
    fn is_of(&self, rules: &mut CelRules, Workload { kind, name }: &Workload) -> Option<String> {
        let named = format!("object.metadata.?name.orValue('') == {}", cel::text(name));
        if self.templates {
            return (*kind != "Pod")
                .then(|| format!("(request.kind.kind == {} && {named})", cel::text(kind)));
        }
        let (owner, is_named) = match *kind {
            "Pod" => return Some(named),
            "Deployment" => (
                "ReplicaSet",
                format!(
                    "{TEMPLATE_HASH} in {LABELS} && {OWNER}.name == {} + {LABELS}[{TEMPLATE_HASH}]",
                    cel::text(&format!("{name}-"))
                ),
            ),
            "CronJob" => {
                let start = format!("{name}-");
                let rest = format!("{OWNER}.name.substring({})", start.chars().count());
                (
                    "Job",
                    format!(
                        "{OWNER}.name.startsWith({}) && {rest}.matches('^[0-9]{{8,}}$')",
                        cel::text(&start)
                    ),
                )
            }
            kind => (kind, format!("{OWNER}.name == {}", cel::text(name))),
        };
        let users = workload::requesters(owner)?;
        rules.define(
            "controllers",
            "object.metadata.?ownerReferences.orValue([]).filter(o, o.?controller.orValue(false))".to_owned(),
        );
        Some(format!(
            "(size({OWNERS}) > 0 && {OWNER}.kind == {} && {is_named} && request.userInfo.username in {})",
            cel::text(owner),
            texts(&users)
        ))
    }
}

const OWNERS: &str = "variables.controllers";
const OWNER: &str = "variables.controllers[0]";
const LABELS: &str = "object.metadata.?labels.orValue({})";
const TEMPLATE_HASH: &str = "'pod-template-hash'";

/// An exception with the entries that are for a check.
struct Candidate<'e> {
    name: &'e str,
    exception: &'e SecurityException,
    own: Vec<&'e Allowance>,
    /// Whether it is in force for the request.
    subject: String,
}

fn texts(texts: &[String]) -> String {
    cel::list(&texts.iter().map(String::as_str).collect::<Vec<_>>())
}

fn any(conditions: &[String]) -> String {
    format!("({})", conditions.join(" || "))
}

/// The demands of a selector on a map of labels.
fn selected(selector: &LabelSelector, labels: &str) -> Vec<String> {
    let is_one_of =
        |key: &str, values: &[String]| format!("({key} in {labels} && {labels}[{key}] in {})", texts(values));
    let exact = selector.match_labels.iter();
    let mut conditions: Vec<String> =
        exact.map(|(key, value)| is_one_of(&cel::text(key), std::slice::from_ref(value))).collect();
    conditions.extend(selector.match_expressions.iter().map(|requirement| {
        let key = cel::text(&requirement.key);
        match requirement.operator.as_str() {
            "In" => is_one_of(&key, &requirement.values),
            "NotIn" => format!("!{}", is_one_of(&key, &requirement.values)),
            "Exists" => format!("{key} in {labels}"),
            "DoesNotExist" => format!("!({key} in {labels})"),
            _ => "false".to_owned(),
        }
    }));
    conditions
}

/// Whether a place has a finding that no exception accepts.
fn remaining_of(place: &Place, candidates: &[Candidate<'_>]) -> Result<String, ExceptionExportError> {
    let Place { scope, elements, bad, .. } = place;
    let finds = |accepted: &[String]| {
        let own =
            if accepted.is_empty() { format!("({bad})") } else { format!("({bad}) && !{}", any(accepted)) };
        elements.as_ref().map_or_else(|| format!("({own})"), |list| format!("({list}).exists(x, {own})"))
    };
    match scope {
        Scope::Pod => Ok(finds(&accepted(place, str::to_owned, candidates)?)),
        Scope::Annotations { keys, .. } => {
            let accepted = accepted(place, |_| String::new(), candidates)?;
            Ok(format!("({keys}).exists(k, {})", finds(&accepted)))
        }
        Scope::Containers => {
            let mut lists = Vec::with_capacity(LISTS.len());
            for list in LISTS {
                let accepted = accepted(place, |path| format!("spec.{list}[*].{path}"), candidates)?;
                lists.push((list, accepted));
            }
            if lists.iter().all(|(_, accepted)| accepted.is_empty()) {
                return Ok(format!("{CONTAINERS}.exists(c, {})", finds(&[])));
            }
            let each = lists.iter().map(|(list, accepted)| {
                format!("variables.spec.?{list}.orValue([]).exists(c, {})", finds(accepted))
            });
            Ok(each.collect::<Vec<_>>().join(" || "))
        }
    }
}

/// When exceptions accept a finding of a place.
fn accepted(
    place: &Place,
    path: impl Fn(&str) -> String,
    candidates: &[Candidate<'_>],
) -> Result<Vec<String>, ExceptionExportError> {
    let mut accepted = Vec::new();
    for Candidate { name, exception, own, subject } in candidates {
        for variant in &place.variants {
            let path = path(&variant.path);
            // The values of all entries for the same field, or of the same annotation.
            let mut entries: BTreeMap<Option<&str>, Vec<&str>> = BTreeMap::new();
            for allowance in own {
                let key = match &place.scope {
                    Scope::Annotations { .. } => match allowance.field.annotation() {
                        Some(key) => Some(key),
                        None => continue,
                    },
                    _ if allowance.field.is_for_any_position_of(&path) => None,
                    _ if allowance.field.is_for_some_position_of(&path) => {
                        let field = allowance.field.to_string();
                        return Err(ExceptionExportError::Position { name: (*name).to_owned(), field });
                    }
                    _ => continue,
                };
                match (&allowance.values, &variant.value) {
                    (Some(values), Some(_)) => {
                        entries.entry(key).or_default().extend(values.iter().map(String::as_str));
                    }
                    (None, None) => drop(entries.entry(key).or_default()),
                    _ => {}
                }
            }
            for (key, values) in entries {
                let mut conditions = vec![subject.clone()];
                conditions.extend(key.map(|key| format!("k == {}", cel::text(key))));
                conditions.extend(variant.guard.clone());
                conditions.extend(
                    variant.value.as_ref().map(|value| format!("({value}) in {}", cel::list(&values))),
                );
                conditions.extend(concerned(exception, &place.scope, key));
                accepted.push(conditions.join(" && "));
            }
        }
    }
    Ok(accepted)
}

/// The demand on the containers that a finding concerns.
fn concerned(exception: &SecurityException, scope: &Scope, key: Option<&str>) -> Option<String> {
    if exception.containers.is_empty() && exception.images.is_empty() {
        return None;
    }
    let all = format!("(size({CONTAINERS}) > 0 && {CONTAINERS}.all(d, {}))", is_own(exception, "d"));
    Some(match scope {
        Scope::Containers => is_own(exception, "c"),
        Scope::Pod => all,
        Scope::Annotations { prefix, .. } => {
            let Some(name) = key.and_then(|key| key.strip_prefix(prefix)) else { return Some(all) };
            let named = format!("{CONTAINERS}.filter(d, d.name == {})", cel::text(name));
            format!("(size({named}) > 0 ? {named}.all(d, {}) : {all})", is_own(exception, "d"))
        }
    })
}

/// Whether a container is one of the exception's.
fn is_own(exception: &SecurityException, container: &str) -> String {
    let mut conditions = Vec::new();
    if !exception.containers.is_empty() {
        conditions.push(format!("{container}.name in {}", texts(&exception.containers)));
    }
    if !exception.images.is_empty() {
        let image = format!("{container}.?image.orValue('')");
        let images: Vec<String> =
            exception.images.iter().map(|pattern| matches_image(pattern, &image)).collect();
        conditions.push(any(&images));
    }
    format!("({})", conditions.join(" && "))
}

/// As [`ImagePattern::matches`] compares an image.
fn matches_image(pattern: &ImagePattern, image: &str) -> String {
    let Some(start) = pattern.open_after() else {
        return format!("{image} == {}", cel::text(&pattern.to_string()));
    };
    let length = start.chars().count();
    let begins = format!("{image}.startsWith({}) && size({image}) > {length}", cel::text(start));
    if start.ends_with('/') {
        format!("({begins})")
    } else {
        format!("({begins} && !{image}.substring({length}).contains('/'))")
    }
}
