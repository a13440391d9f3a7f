//! The roles and bindings every cluster starts with, read from `bootstrap.txt`,
//! which `cargo xtask gen --kubernetes DIR` makes.
//!
//! Implements: Using RBAC Authorization, "Default roles and role bindings".
//! <https://kubernetes.io/docs/reference/access-authn-authz/rbac/#default-roles-and-role-bindings>

use serde_json::{Value, json};

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

/// A role as the table has it: which roles it is part of, and which are part of it.
#[derive(Default)]
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
            _ if line.starts_with(' ') => {
                if let (Some(role), Some(rule)) = (roles.last_mut(), rule(line)) {
                    role.rules.push(rule);
                }
            }
            ["clusterrole", name, ref options @ ..] => {
                let option = |key: &str| {
                    let found = options.iter().find_map(|o| o.strip_prefix(key)?.strip_prefix('='));
                    found.map(str::to_owned)
                };
                let (aggregate, union) = (option("aggregate"), option("union"));
                roles.push(Role { name: name.to_owned(), aggregate, union, ..Role::default() });
            }
            // The role of a controller, which acts as a service account of that name.
            ["controller", name] => {
                let role = format!("system:controller:{name}");
                made.push(binding("", &role, &role, &format!("ServiceAccount/{name}")));
                roles.push(Role { name: role, ..Role::default() });
            }
            ["role", namespace, name] => {
                let (namespace, name) = (namespace.to_owned(), name.to_owned());
                roles.push(Role { namespace, name, ..Role::default() });
            }
            ["clusterrolebinding", name, role] => made.push(binding("", name, role, "")),
            ["clusterrolebinding", name, role, subjects] => made.push(binding("", name, role, subjects)),
            ["rolebinding", namespace, name, role, subjects] => {
                made.push(binding(namespace, name, role, subjects));
            }
            _ => {}
        }
    }
    made.extend(roles.iter().map(|role| role_object(role, &roles)));
    made
}

/// The rules of a role and of those that are part of it, as the controller of upstream puts them together.
fn all_rules(role: &Role, roles: &[Role]) -> Vec<PolicyRule> {
    let mut all = role.rules.clone();
    let parts = roles.iter().filter(|part| role.union.is_some() && part.aggregate == role.union);
    for rule in parts.flat_map(|part| all_rules(part, roles)) {
        if !all.contains(&rule) {
            all.push(rule);
        }
    }
    all
}

fn rule(line: &str) -> Option<PolicyRule> {
    let mut columns = line.split('|').map(str::trim);
    let (verbs, groups, resources) = (columns.next()?, columns.next()?, columns.next()?);
    let (resources, names) = resources.split_once(" : ").unwrap_or((resources, ""));
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let verbs = words(verbs);
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

fn metadata(name: &str) -> Value {
    json!({
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    })
}

fn role_object(role: &Role, roles: &[Role]) -> Bootstrap {
    let label = |to: &str| format!("rbac.authorization.k8s.io/aggregate-to-{to}");
    let mut object = json!({"metadata": metadata(&role.name), "rules": all_rules(role, roles)});
    if let Some(to) = &role.aggregate {
        object["metadata"]["labels"][label(to)] = "true".into();
    }
    if let Some(from) = &role.union {
        let selectors = json!([{"matchLabels": {label(from): "true"}}]);
        object["aggregationRule"] = json!({"clusterRoleSelectors": selectors});
    }
    let resource = if role.namespace.is_empty() { "clusterroles" } else { "roles" };
    Bootstrap { resource, namespace: role.namespace.clone(), name: role.name.clone(), object }
}

/// `subjects` is `User/a,ServiceAccount/b`.
fn binding(namespace: &str, name: &str, role: &str, subjects: &str) -> Bootstrap {
    let group = "rbac.authorization.k8s.io";
    let role_kind = if namespace.is_empty() { "ClusterRole" } else { "Role" };
    let subject = |(kind, name): (&str, &str)| {
        if kind == "ServiceAccount" {
            json!({"kind": kind, "name": name, "namespace": "kube-system"})
        } else {
            json!({"apiGroup": group, "kind": kind, "name": name})
        }
    };
    let subjects: Vec<Value> =
        subjects.split(',').filter_map(|subject| subject.split_once('/')).map(subject).collect();
    let mut object = json!({
        "metadata": metadata(name),
        "roleRef": {"apiGroup": group, "kind": role_kind, "name": role},
    });
    if !subjects.is_empty() {
        object["subjects"] = subjects.into();
    }
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
