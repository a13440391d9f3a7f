//! Nobody may hand out more than they hold.
//!
//! Implements: Using RBAC Authorization, "Privilege escalation prevention and bootstrapping".
//! <https://kubernetes.io/docs/reference/access-authn-authz/rbac/#privilege-escalation-prevention-and-bootstrapping>

use std::collections::{BTreeMap, BTreeSet};

use palisade_apimachinery::Status;
use palisade_apimachinery::status::GroupName;
use serde_json::Value;

use super::rbac::{Attributes, Authorizer, PolicyRule, RoleRef, quoted_list};
use super::{MASTERS, UserInfo};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Checks a role or binding that is about to be written. `old` is what is stored.
pub fn check(
    authorizer: &Authorizer,
    user: &UserInfo,
    resource: &str,
    namespace: &str,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Box<Status>> {
    if user.in_group(MASTERS) {
        return Ok(());
    }
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    match resource {
        "roles" | "clusterroles" => {
            let unchanged = old.is_some_and(|old| {
                old.get("rules") == object.get("rules")
                    && old.get("aggregationRule") == object.get("aggregationRule")
            });
            let escalate = Attributes {
                verb: "escalate",
                group: GROUP,
                version: "v1",
                resource,
                namespace,
                name,
                ..Attributes::default()
            };
            if unchanged || authorizer.authorize(user, &escalate).allowed {
                return Ok(());
            }
            let rules = object.get("rules").cloned().unwrap_or(Value::Null);
            let rules: Vec<PolicyRule> = serde_json::from_value(rules).unwrap_or_default();
            confirm(authorizer, user, resource, namespace, name, &rules)
        }
        "rolebindings" | "clusterrolebindings" => {
            let unchanged = old.is_some_and(|old| {
                old.get("roleRef") == object.get("roleRef") && old.get("subjects") == object.get("subjects")
            });
            if unchanged {
                return Ok(());
            }
            let reference = object.get("roleRef").cloned().unwrap_or(Value::Null);
            let role: RoleRef = serde_json::from_value(reference).unwrap_or_default();
            let role_resource = if role.kind == "Role" { "roles" } else { "clusterroles" };
            let bind = Attributes {
                verb: "bind",
                group: GROUP,
                version: "v1",
                resource: role_resource,
                namespace,
                name: &role.name,
                ..Attributes::default()
            };
            if authorizer.authorize(user, &bind).allowed {
                return Ok(());
            }
            let Some(rules) = authorizer.role_rules(&role, namespace) else {
                return Err(Status::not_found(GroupName::new(GROUP, role_resource), &role.name));
            };
            confirm(authorizer, user, resource, namespace, name, &rules)
        }
        _ => Ok(()),
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
    let held = authorizer.rules_for(user, namespace);
    let missing: Vec<PolicyRule> = wanted
        .iter()
        .flat_map(single_rules)
        .filter(|single| !held.iter().any(|h| covers(h, single)))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let lines: BTreeSet<String> = compacted(missing).iter().map(PolicyRule::compact).collect();
    let lines: Vec<String> = lines.into_iter().collect();
    let message = format!(
        "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        palisade_apimachinery::go::quote(&user.name),
        quoted_list(&user.groups),
        lines.join("\n")
    );
    Err(Status::forbidden(GroupName::new(GROUP, resource), name, &message))
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
    let urls = single.non_resource_urls.iter().all(|wanted| {
        held.non_resource_urls.iter().any(|h| {
            h == "*" || h == wanted || h.strip_suffix('*').is_some_and(|prefix| wanted.starts_with(prefix))
        })
    });
    all(&held.verbs, &single.verbs) && all(&held.api_groups, &single.api_groups) && resources && names && urls
}

/// Rules about the same resource, told together.
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
