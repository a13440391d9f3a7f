//! Which webhooks match a request: rules, selectors, and other versions of the same resource.
//!
//! Implements: Dynamic Admission Control, "Matching requests".
//! <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#matching-requests-rules>

use palisade_apimachinery::rest::path::Get as _;
use palisade_apimachinery::status::GroupName;
use palisade_apimachinery::{Kind, Status};
use palisade_base::label_selector::LabelSelector;
use serde_json::Value;

use super::config::Hook;
use crate::admission_chain::{Operation, Request};
use crate::registry::Served;

/// One rule of a webhook.
#[derive(Debug)]
pub(crate) struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<(String, String)>,
    scope: Scope,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    All,
    Cluster,
    Namespaced,
}

impl Rule {
    pub(crate) fn read(rule: &Value) -> Self {
        let texts = |key: &str| -> Vec<String> {
            rule.list(key).iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let resources = texts("resources")
            .into_iter()
            .map(|resource| match resource.split_once('/') {
                Some((resource, sub)) => (resource.to_owned(), sub.to_owned()),
                None => (resource, String::new()),
            })
            .collect();
        let scope = match rule.text("scope") {
            "Cluster" => Scope::Cluster,
            "Namespaced" => Scope::Namespaced,
            _ => Scope::All,
        };
        Self {
            operations: texts("operations"),
            groups: texts("apiGroups"),
            versions: texts("apiVersions"),
            resources,
            scope,
        }
    }

    pub(crate) fn matches(&self, request: &Request<'_>, kind: &Kind) -> bool {
        let any = |list: &[String], wanted: &str| list.iter().any(|item| item == "*" || item == wanted);
        // A namespace lives in no namespace, although requests about it carry its name as one.
        let in_namespace = kind.namespaced && !request.namespace.is_empty();
        let scope = match self.scope {
            Scope::All => true,
            Scope::Cluster => !in_namespace,
            Scope::Namespaced => in_namespace,
        };
        scope
            && any(&self.operations, request.operation.as_str())
            && any(&self.groups, &kind.group)
            && any(&self.versions, &kind.version)
            && self.resources.iter().any(|(resource, sub)| {
                (resource == "*" || *resource == kind.plural) && (sub == "*" || sub == request.subresource)
            })
    }
}

/// The resource a webhook gets: the one of the request, or another version of it.
#[derive(Debug, Clone)]
pub(crate) struct Matched {
    /// The version of the resource's group that the rule names.
    pub(crate) version: String,
}

/// Whether a webhook matches a request. Conditions are evaluated later, they need the whole review.
pub(super) fn matched(
    hook: &Hook,
    request: &Request<'_>,
    object: Option<&Value>,
    served: &Served,
) -> Result<Option<Matched>, Box<Status>> {
    // A namespace that is missing only matters to webhooks that would be called.
    let namespace = in_namespace(&hook.namespaces, request, object);
    if matches!(namespace, Ok(false)) || !has_labels(&hook.objects, object, request.old_object) {
        return Ok(None);
    }
    let mut found = hook
        .rules
        .iter()
        .any(|rule| rule.matches(request, request.kind))
        .then(|| Matched { version: request.kind.version.clone() });
    if found.is_none() && hook.equivalent {
        let others = || {
            let kind = request.kind;
            served.entries.iter().map(|entry| &entry.kind).filter(move |other| {
                other.group == kind.group && other.plural == kind.plural && other.version != kind.version
            })
        };
        // Rules come before versions, as upstream has it.
        found = hook.rules.iter().find_map(|rule| {
            let other = others().find(|other| rule.matches(request, other))?;
            Some(Matched { version: other.version.clone() })
        });
    }
    match (found, namespace) {
        (Some(_), Err(status)) => Err(status),
        (found, _) => Ok(found),
    }
}

pub(crate) fn in_namespace(
    selector: &LabelSelector,
    request: &Request<'_>,
    object: Option<&Value>,
) -> Result<bool, Box<Status>> {
    let is_namespace = request.kind.group.is_empty() && request.kind.plural == "namespaces";
    if selector.is_empty() || (!request.kind.namespaced && !is_namespace) {
        return Ok(true);
    }
    let changes = matches!(request.operation, Operation::Create | Operation::Update);
    if is_namespace && request.subresource.is_empty() && changes {
        return Ok(object.is_some_and(|namespace| selector.matches(namespace)));
    }
    let name = if is_namespace { request.name } else { request.namespace };
    match request.cluster.get("namespaces", "", name) {
        Some(namespace) => Ok(selector.matches_with(|key| namespace.label(key))),
        None => Err(Status::not_found(GroupName::new("", "namespaces"), name)),
    }
}

pub(crate) fn has_labels(selector: &LabelSelector, object: Option<&Value>, old: Option<&Value>) -> bool {
    selector.is_empty() || [object, old].into_iter().flatten().any(|object| selector.matches(object))
}
