//! Rejects roles and bindings that grant more than their author holds.
//!
//! Implements: Using RBAC Authorization, "Privilege escalation prevention and bootstrapping".
//! <https://kubernetes.io/docs/reference/access-authn-authz/rbac/#privilege-escalation-prevention-and-bootstrapping>

use std::collections::{BTreeMap, BTreeSet};

use palisade_apimachinery::Status;
use palisade_apimachinery::status::GroupName;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::rbac::{Attributes, Authorizer, PolicyRule, RoleRef, path_matches, quoted_list};
use super::{MASTERS, UserInfo};

const GROUP: &str = "rbac.authorization.k8s.io";

/// A write of a role or binding.
#[derive(Debug, Clone, Copy)]
pub struct RbacWrite<'a> {
    /// `roles`, `clusterroles`, `rolebindings` or `clusterrolebindings`.
    pub resource: &'a str,
    /// The namespace of the request; empty for resources of the cluster.
    pub namespace: &'a str,
    /// The name in the path: empty for a POST, so that a rule with `resourceNames` never covers one.
    pub path_name: &'a str,
    /// The object to be stored, defaulted and after mutating admission.
    pub object: &'a Value,
    /// The stored object.
    pub old: Option<&'a Value>,
}

/// Rejects a role or binding that grants more than its author holds.
pub fn check(authorizer: &Authorizer, user: &UserInfo, write: &RbacWrite<'_>) -> Result<(), Box<Status>> {
    let RbacWrite { resource, namespace, object, old, .. } = *write;
    if user.in_group(MASTERS) || old.is_some_and(|old| differs_only_for_garbage_collection(object, old)) {
        return Ok(());
    }
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    match resource {
        "roles" | "clusterroles" => check_role(authorizer, user, write, name),
        "rolebindings" | "clusterrolebindings" => {
            let role: RoleRef = read(object, "roleRef")?;
            let role_resource = match role.kind.as_str() {
                "Role" => "roles",
                "ClusterRole" => "clusterroles",
                kind => {
                    let quoted = palisade_base::go::quote(kind);
                    return Err(Status::unknown_error(format!("unsupported role reference kind: {quoted}")));
                }
            };
            let bind = Attributes {
                verb: "bind",
                group: &role.api_group,
                version: "*",
                resource: role_resource,
                namespace,
                name: &role.name,
                ..Attributes::default()
            };
            if authorizer.authorize(user, &bind).allowed {
                return Ok(());
            }
            if role_resource == "roles" && namespace.is_empty() {
                return Err(Status::bad_request("Namespace parameter required."));
            }
            let Some(rules) = authorizer.role_rules(&role, namespace) else {
                return Err(Status::not_found(GroupName::new(GROUP, role_resource), &role.name));
            };
            confirm(authorizer, user, resource, namespace, name, &rules)
        }
        // A resource of this group that is not known here could grant anything.
        _ => Err(Status::forbidden(GroupName::new(GROUP, resource), name, "unknown resource")),
    }
}

fn check_role(
    authorizer: &Authorizer,
    user: &UserInfo,
    write: &RbacWrite<'_>,
    name: &str,
) -> Result<(), Box<Status>> {
    let RbacWrite { resource, namespace, path_name, object, old } = *write;
    let escalate = Attributes {
        verb: "escalate",
        group: GROUP,
        version: "*",
        resource,
        namespace,
        name: path_name,
        ..Attributes::default()
    };
    if authorizer.authorize(user, &escalate).allowed {
        return Ok(());
    }
    let rules: Vec<PolicyRule> = read(object, "rules")?;
    confirm(authorizer, user, resource, namespace, name, &rules)?;
    // An aggregation rule gathers anything, and one that is removed no longer tightens.
    let aggregates = has_aggregation_rule(object) || old.is_some_and(has_aggregation_rule);
    let held = authorizer.rules_for(user, "");
    if resource == "clusterroles" && aggregates && !missing(&held, &full_authority()).is_empty() {
        let why = "must have cluster-admin privileges to use the aggregationRule";
        return Err(Status::forbidden(GroupName::new(GROUP, resource), name, why));
    }
    Ok(())
}

/// Reads a field of the object; what cannot be read could grant anything.
fn read<T: Default + DeserializeOwned>(object: &Value, field: &str) -> Result<T, Box<Status>> {
    match object.get(field) {
        None | Some(Value::Null) => Ok(T::default()),
        Some(value) => T::deserialize(value)
            .map_err(|error| Status::bad_request(format!("{field} cannot be decoded: {error}"))),
    }
}

/// Whether the role has selectors, or anything else than an empty list in their place.
fn has_aggregation_rule(role: &Value) -> bool {
    match role.get("aggregationRule") {
        None | Some(Value::Null) => false,
        Some(Value::Object(fields)) => match fields.get("clusterRoleSelectors") {
            None | Some(Value::Null) => false,
            Some(selectors) => selectors.as_array().is_none_or(|selectors| !selectors.is_empty()),
        },
        Some(_) => true,
    }
}

/// `*` on everything: what cluster-admin holds.
fn full_authority() -> [PolicyRule; 2] {
    let all = || vec!["*".to_owned()];
    [
        PolicyRule { verbs: all(), api_groups: all(), resources: all(), ..PolicyRule::default() },
        PolicyRule { verbs: all(), non_resource_urls: all(), ..PolicyRule::default() },
    ]
}

/// Whether an update changes only what the garbage collector has to be able to change on any object.
fn differs_only_for_garbage_collection(new: &Value, old: &Value) -> bool {
    let rest = |object: &Value| {
        let mut rest = object.clone();
        if let Some(metadata) = rest.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in ["ownerReferences", "finalizers", "selfLink", "managedFields"] {
                metadata.remove(field);
            }
        }
        drop_empty(&mut rest);
        rest
    };
    rest(new) == rest(old)
}

/// Removes fields that are null or empty: Go cannot distinguish them from absent ones.
fn drop_empty(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(drop_empty);
            fields.retain(|_, value| match value {
                Value::Null => false,
                Value::Array(items) => !items.is_empty(),
                Value::Object(fields) => !fields.is_empty(),
                _ => true,
            });
        }
        Value::Array(items) => items.iter_mut().for_each(drop_empty),
        _ => {}
    }
}

fn confirm(
    authorizer: &Authorizer,
    user: &UserInfo,
    resource: &str,
    namespace: &str,
    name: &str,
    wanted: &[PolicyRule],
) -> Result<(), Box<Status>> {
    let missing = missing(&authorizer.rules_for(user, namespace), wanted);
    if missing.is_empty() {
        return Ok(());
    }
    let lines: BTreeSet<String> = compacted(missing).iter().map(PolicyRule::compact).collect();
    let lines: Vec<String> = lines.into_iter().collect();
    let message = format!(
        "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        palisade_base::go::quote(&user.name),
        quoted_list(&user.groups),
        lines.join("\n")
    );
    Err(Status::forbidden(GroupName::new(GROUP, resource), name, &message))
}

/// What is wanted and not held, as rules of one verb, one group, one resource and at most one name each.
fn missing(held: &[PolicyRule], wanted: &[PolicyRule]) -> Vec<PolicyRule> {
    let singles = wanted.iter().flat_map(single_rules);
    singles.filter(|single| !held.iter().any(|held| covers(held, single))).collect()
}

/// A rule as rules of one verb, one group, one resource and at most one name each.
fn single_rules(rule: &PolicyRule) -> Vec<PolicyRule> {
    let one = |text: &String| vec![text.clone()];
    let mut singles = Vec::new();
    for verb in &rule.verbs {
        for url in &rule.non_resource_urls {
            singles.push(PolicyRule {
                verbs: one(verb),
                non_resource_urls: one(url),
                ..PolicyRule::default()
            });
        }
        for group in &rule.api_groups {
            for resource in &rule.resources {
                let single = PolicyRule {
                    verbs: one(verb),
                    api_groups: one(group),
                    resources: one(resource),
                    ..PolicyRule::default()
                };
                if rule.resource_names.is_empty() {
                    singles.push(single.clone());
                }
                for name in &rule.resource_names {
                    singles.push(PolicyRule { resource_names: one(name), ..single.clone() });
                }
            }
        }
    }
    singles
}

fn covers(held: &PolicyRule, single: &PolicyRule) -> bool {
    let all = |held: &[String], wanted: &[String]| {
        held.iter().any(|h| h == "*") || wanted.iter().all(|w| held.contains(w))
    };
    let resources = held.resources.iter().any(|h| h == "*")
        || single.resources.iter().all(|wanted| {
            held.resources.contains(wanted)
                || wanted.split_once('/').is_some_and(|(_, sub)| held.resources.contains(&format!("*/{sub}")))
        });
    let names = held.resource_names.is_empty()
        || (!single.resource_names.is_empty()
            && single.resource_names.iter().all(|n| held.resource_names.contains(n)));
    let urls = single
        .non_resource_urls
        .iter()
        .all(|wanted| held.non_resource_urls.iter().any(|held| path_matches(held, wanted)));
    all(&held.verbs, &single.verbs) && all(&held.api_groups, &single.api_groups) && resources && names && urls
}

/// Rules about the same resource, reported together.
fn compacted(rules: Vec<PolicyRule>) -> Vec<PolicyRule> {
    let mut compact = Vec::new();
    // By groups, resources and names.
    let mut by_resource: BTreeMap<[Vec<String>; 3], PolicyRule> = BTreeMap::new();
    for rule in rules {
        if rule.resources.is_empty() {
            compact.push(rule);
            continue;
        }
        let key = [rule.api_groups.clone(), rule.resources.clone(), rule.resource_names.clone()];
        match by_resource.get_mut(&key) {
            Some(known) => known.verbs.extend(rule.verbs),
            None => {
                by_resource.insert(key, rule);
            }
        }
    }
    compact.extend(by_resource.into_values());
    compact
}
