//! The roles and bindings every cluster starts with, read from `bootstrap.txt`.
//!
//! Implements: Using RBAC Authorization, "Default roles and role bindings".
//! <https://kubernetes.io/docs/reference/access-authn-authz/rbac/#default-roles-and-role-bindings>

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::rbac::PolicyRule;

/// A default object: its resource, its name, and the object without `apiVersion` and `kind`.
#[derive(Debug, Clone)]
pub struct Bootstrap {
    /// `clusterroles`, `clusterrolebindings`, `roles` or `rolebindings`.
    pub resource: &'static str,
    /// Namespace of roles and their bindings.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// The object.
    pub object: Value,
}

/// A role as the table has it: what it is part of, and what is part of it.
struct Role {
    namespace: String,
    name: String,
    aggregate: Option<String>,
    union: Option<String>,
    rules: Vec<PolicyRule>,
}

/// Every default role and binding.
#[must_use]
pub fn objects() -> Vec<Bootstrap> {
    let mut roles: Vec<Role> = Vec::new();
    let mut made = Vec::new();
    for line in include_str!("bootstrap.txt").lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match *words.as_slice() {
            ["clusterrole", name, ref options @ ..] => {
                let option = |key: &str| {
                    let found = options.iter().find_map(|o| o.strip_prefix(key)?.strip_prefix('='));
                    found.map(str::to_owned)
                };
                roles.push(Role {
                    namespace: String::new(),
                    name: name.to_owned(),
                    aggregate: option("aggregate"),
                    union: option("union"),
                    rules: Vec::new(),
                });
            }
            // The role of a controller, which acts as a service account of that name.
            ["controller", name] => {
                let role = format!("system:controller:{name}");
                made.push(binding("", &role, &role, "ServiceAccount", name));
                roles.push(Role {
                    namespace: String::new(),
                    name: role,
                    aggregate: None,
                    union: None,
                    rules: Vec::new(),
                });
            }
            ["role", namespace, name] => roles.push(Role {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                aggregate: None,
                union: None,
                rules: Vec::new(),
            }),
            ["clusterrolebinding", name, role, kind, subjects] => {
                made.push(binding("", name, role, kind, subjects));
            }
            ["rolebinding", namespace, name, role, kind, subjects] => {
                made.push(binding(namespace, name, role, kind, subjects));
            }
            _ if line.starts_with(' ') => {
                if let (Some(role), Some(rule)) = (roles.last_mut(), rule(line)) {
                    role.rules.push(rule);
                }
            }
            _ => {}
        }
    }
    let aggregated: BTreeMap<String, Vec<PolicyRule>> =
        roles.iter().filter_map(|role| Some((role.aggregate.clone()?, role.rules.clone()))).collect();
    for Role { namespace, name, aggregate, union, mut rules } in roles {
        let parts: Vec<&str> = union.as_deref().map(|u| u.split(',').collect()).unwrap_or_default();
        rules.extend(parts.iter().filter_map(|part| aggregated.get(*part)).flatten().cloned());
        made.push(role(&namespace, &name, aggregate.as_deref(), parts.first().copied(), &rules));
    }
    made
}

fn rule(line: &str) -> Option<PolicyRule> {
    let mut columns = line.split('|').map(str::trim);
    let (verbs, groups, resources) = (columns.next()?, columns.next()?, columns.next()?);
    let (resources, names) = resources.split_once(" : ").unwrap_or((resources, ""));
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let verbs = match verbs {
        "r" => words("get list watch"),
        "w" => words("create delete deletecollection patch update"),
        "rw" => words("create delete deletecollection get list patch update watch"),
        other => words(other),
    };
    if groups == "url" {
        return Some(PolicyRule { verbs, non_resource_urls: words(resources), ..PolicyRule::default() });
    }
    let api_groups = groups.split(',').map(|g| if g == "core" { "" } else { g }.to_owned()).collect();
    let resource_names = words(names);
    Some(PolicyRule {
        verbs,
        api_groups,
        resources: words(resources),
        resource_names,
        ..PolicyRule::default()
    })
}

fn metadata(name: &str, extra: Option<(String, &str)>) -> Value {
    let mut labels = Map::new();
    labels.insert("kubernetes.io/bootstrapping".to_owned(), "rbac-defaults".into());
    if let Some((key, value)) = extra {
        labels.insert(key, value.into());
    }
    json!({
        "name": name,
        "labels": labels,
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    })
}

fn role(
    namespace: &str,
    name: &str,
    aggregate: Option<&str>,
    union: Option<&str>,
    rules: &[PolicyRule],
) -> Bootstrap {
    let label = |to: &str| format!("rbac.authorization.k8s.io/aggregate-to-{to}");
    // edit is part of admin, and view is part of edit.
    let extra = match (aggregate, name) {
        (Some(to), _) => Some((label(to), "true")),
        (None, "edit") => Some((label("admin"), "true")),
        (None, "view") => Some((label("edit"), "true")),
        _ => None,
    };
    let mut object = json!({"metadata": metadata(name, extra), "rules": rules});
    if let (Some(first), Value::Object(object)) = (union, &mut object) {
        let selectors = json!([{"matchLabels": {label(first): "true"}}]);
        object.insert("aggregationRule".to_owned(), json!({"clusterRoleSelectors": selectors}));
    }
    let resource = if namespace.is_empty() { "clusterroles" } else { "roles" };
    Bootstrap { resource, namespace: namespace.to_owned(), name: name.to_owned(), object }
}

fn binding(namespace: &str, name: &str, role: &str, kind: &str, subjects: &str) -> Bootstrap {
    let group = "rbac.authorization.k8s.io";
    let role_kind = if namespace.is_empty() { "ClusterRole" } else { "Role" };
    let subject = |name: &str| {
        if kind == "ServiceAccount" {
            json!({"kind": kind, "name": name, "namespace": "kube-system"})
        } else {
            json!({"apiGroup": group, "kind": kind, "name": name})
        }
    };
    let object = json!({
        "metadata": metadata(name, None),
        "roleRef": {"apiGroup": group, "kind": role_kind, "name": role},
        "subjects": subjects.split(',').map(subject).collect::<Vec<_>>(),
    });
    let resource = if namespace.is_empty() { "clusterrolebindings" } else { "rolebindings" };
    Bootstrap { resource, namespace: namespace.to_owned(), name: name.to_owned(), object }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_understood() {
        let objects = objects();
        let lines = include_str!("bootstrap.txt").lines();
        let made = |line: &str| match line.split(' ').next() {
            Some("clusterrole" | "clusterrolebinding" | "role" | "rolebinding") => 1,
            Some("controller") => 2,
            _ => 0,
        };
        let expected: usize = lines.map(made).sum();
        assert_eq!(objects.len(), expected);
        for object in &objects {
            let empty = object.object["rules"].as_array().is_some_and(Vec::is_empty);
            assert!(!empty, "{} has rules", object.name);
        }
        let view = objects.iter().find(|o| o.name == "view").expect("view");
        assert!(!view.object["rules"].to_string().contains("secrets"), "viewers see no secrets");
    }
}
