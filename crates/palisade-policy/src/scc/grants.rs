//! Who may use which constraint, by roles and bindings.
//!
//! Implements: Kubernetes RBAC, reduced to the verb `use` on `securitycontextconstraints`, and the identity that
//! OpenShift's label syncer gives a service account: unlike in admission, it belongs to `system:authenticated`. A
//! binding to a service account by its user name counts as well; upstream's syncer does not see those.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::{constraint::Constraint, set::ConstraintSet};

const GROUP: &str = "security.openshift.io";
const RESOURCE: &str = "securitycontextconstraints";
const RBAC: &str = "rbac.authorization.k8s.io";

/// The constraints that a role grants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Role {
    all: bool,
    names: Vec<String>,
}

impl Role {
    fn read(rules: &Value) -> Self {
        let mut role = Self::default();
        // swallowed: a role whose rules cannot be read grants nothing
        let rules = Option::<Vec<Rule>>::deserialize(rules).ok().flatten().unwrap_or_default();
        let has = |list: &Option<Vec<String>>, wanted: &str| {
            list.iter().flatten().any(|item| item == "*" || item == wanted)
        };
        for rule in rules {
            if !has(&rule.verbs, "use") || !has(&rule.api_groups, GROUP) || !has(&rule.resources, RESOURCE) {
                continue;
            }
            match rule.resource_names {
                Some(names) if !names.is_empty() => role.names.extend(names),
                _ => role.all = true,
            }
        }
        role.names.sort_unstable();
        role.names.dedup();
        role
    }

    fn is_empty(&self) -> bool {
        !self.all && self.names.is_empty()
    }

    fn grants(&self, constraint: &str) -> bool {
        self.all || self.names.iter().any(|name| name == constraint)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Rule {
    verbs: Option<Vec<String>>,
    api_groups: Option<Vec<String>>,
    resources: Option<Vec<String>>,
    resource_names: Option<Vec<String>>,
}

/// Where a role or binding is: in a namespace, or everywhere.
type Scope = Option<String>;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Binding {
    role: (Scope, String),
    users: Vec<String>,
    groups: Vec<String>,
}

impl Binding {
    /// Reads a binding; `None` if it refers to something that is not RBAC's.
    fn read(namespace: Option<&str>, object: &Value) -> Option<Self> {
        let role = &object["roleRef"];
        if role["apiGroup"].as_str() != Some(RBAC) {
            return None;
        }
        let scope = match role["kind"].as_str()? {
            "ClusterRole" => None,
            "Role" => Some(namespace?.to_owned()),
            _ => return None,
        };
        let mut binding =
            Self { role: (scope, role["name"].as_str()?.to_owned()), users: Vec::new(), groups: Vec::new() };
        for subject in object["subjects"].as_array().into_iter().flatten() {
            let Some(name) = subject["name"].as_str() else { continue };
            let api_group = subject["apiGroup"].as_str().unwrap_or_default();
            match (subject["kind"].as_str(), api_group) {
                (Some("ServiceAccount"), "") => {
                    let own = subject["namespace"].as_str().filter(|namespace| !namespace.is_empty());
                    if let Some(namespace) = own.or(namespace) {
                        binding.users.push(user_name(namespace, name));
                    }
                }
                (Some("User"), RBAC) => binding.users.push(name.to_owned()),
                (Some("Group"), RBAC) => binding.groups.push(name.to_owned()),
                _ => {}
            }
        }
        Some(binding)
    }

    fn is_for(&self, user: &str, groups: &[String]) -> bool {
        self.users.iter().any(|own| own == user) || self.groups.iter().any(|own| groups.contains(own))
    }
}

/// The user name of a service account.
#[must_use]
pub fn user_name(namespace: &str, service_account: &str) -> String {
    format!("system:serviceaccount:{namespace}:{service_account}")
}

/// The groups of a service account.
#[must_use]
pub fn groups_of(namespace: &str) -> [String; 3] {
    [
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
        "system:authenticated".to_owned(),
    ]
}

/// Roles and bindings, as far as they are about constraints.
#[derive(Debug, Clone, Default)]
pub struct Grants {
    roles: BTreeMap<(Scope, String), Role>,
    bindings: BTreeMap<Scope, BTreeMap<String, Binding>>,
}

impl Grants {
    /// Takes note of a Role, or of a ClusterRole if there is no namespace. Returns whether any grant may have changed.
    pub fn set_role(&mut self, namespace: Option<&str>, name: &str, object: &Value) -> bool {
        let key = (namespace.map(str::to_owned), name.to_owned());
        let role = Role::read(&object["rules"]);
        if role.is_empty() {
            return self.roles.remove(&key).is_some();
        }
        let changed = self.roles.get(&key) != Some(&role);
        self.roles.insert(key, role);
        changed
    }

    /// Forgets a Role or ClusterRole. Returns whether any grant may have changed.
    pub fn remove_role(&mut self, namespace: Option<&str>, name: &str) -> bool {
        self.roles.remove(&(namespace.map(str::to_owned), name.to_owned())).is_some()
    }

    /// Takes note of a RoleBinding, or of a ClusterRoleBinding if there is no namespace. Returns whether any grant may
    /// have changed.
    pub fn set_binding(&mut self, namespace: Option<&str>, name: &str, object: &Value) -> bool {
        let Some(binding) = Binding::read(namespace, object) else {
            return self.remove_binding(namespace, name);
        };
        let of_scope = self.bindings.entry(namespace.map(str::to_owned)).or_default();
        let before = of_scope.insert(name.to_owned(), binding.clone());
        let grants = |binding: &Binding| self.roles.contains_key(&binding.role);
        before.as_ref() != Some(&binding) && (grants(&binding) || before.as_ref().is_some_and(grants))
    }

    /// Forgets a RoleBinding or ClusterRoleBinding. Returns whether any grant may have changed.
    pub fn remove_binding(&mut self, namespace: Option<&str>, name: &str) -> bool {
        let scope = namespace.map(str::to_owned);
        let Some(of_scope) = self.bindings.get_mut(&scope) else { return false };
        let before = of_scope.remove(name);
        if of_scope.is_empty() {
            self.bindings.remove(&scope);
        }
        before.is_some_and(|binding| self.roles.contains_key(&binding.role))
    }

    /// Whether someone may use a constraint in a namespace, by roles alone.
    #[must_use]
    pub fn may_use(&self, user: &str, groups: &[String], namespace: &str, constraint: &str) -> bool {
        self.roles_of(user, groups, namespace).any(|role| role.grants(constraint))
    }

    /// The constraints that a service account may use, in order.
    #[must_use]
    pub fn constraints_of<'s>(
        &self,
        namespace: &str,
        service_account: &str,
        constraints: &'s ConstraintSet,
    ) -> Vec<&'s Constraint> {
        let (user, groups) = (user_name(namespace, service_account), groups_of(namespace));
        let roles: Vec<_> = self.roles_of(&user, &groups, namespace).collect();
        constraints
            .iter()
            .filter(|constraint| {
                constraint.users.contains(&user)
                    || constraint.groups.iter().any(|group| groups.contains(group))
                    || roles.iter().any(|role| role.grants(constraint.name()))
            })
            .collect()
    }

    fn roles_of<'g>(
        &'g self,
        user: &'g str,
        groups: &'g [String],
        namespace: &str,
    ) -> impl Iterator<Item = &'g Role> {
        let everywhere = self.bindings.get(&None);
        let here = self.bindings.get(&Some(namespace.to_owned()));
        everywhere
            .into_iter()
            .chain(here)
            .flat_map(BTreeMap::values)
            .filter(|binding| binding.is_for(user, groups))
            .filter_map(|binding| self.roles.get(&binding.role))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Grants;
    use crate::scc::{built_in, constraint::Constraint};

    fn role(resource: &str, names: &Value) -> Value {
        json!({"rules": [{"verbs": ["use"], "apiGroups": ["security.openshift.io"], "resources": [resource],
                          "resourceNames": names}]})
    }

    fn binding(kind: &str, role: &str, subjects: &Value) -> Value {
        json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}, "subjects": subjects})
    }

    fn names(grants: &Grants, namespace: &str, account: &str) -> Vec<String> {
        let constraints = built_in::constraints();
        let found = grants.constraints_of(namespace, account, &constraints);
        found.into_iter().map(Constraint::name).map(str::to_owned).collect()
    }

    #[test]
    fn every_kind_of_subject_and_scope() {
        let mut grants = Grants::default();
        let scc = "securitycontextconstraints";
        assert!(grants.set_role(None, "any", &role(scc, &json!(["anyuid"]))));
        assert!(!grants.set_role(None, "any", &role(scc, &json!(["anyuid"]))), "nothing changed");
        assert!(!grants.set_role(None, "pods", &role("pods", &json!([]))), "not about constraints");
        assert!(grants.set_role(Some("a"), "local", &role("*", &json!(["nonroot"]))));
        let group =
            |name: &str| json!([{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": name}]);
        let account = |namespace: Option<&str>| json!([{"kind": "ServiceAccount", "name": "x", "namespace": namespace}]);
        assert!(grants.set_binding(Some("a"), "one", &binding("Role", "local", &account(None))));
        assert_eq!(names(&grants, "a", "x"), ["nonroot"]);
        assert_eq!(names(&grants, "a", "y"), [""; 0]);
        assert_eq!(names(&grants, "b", "x"), [""; 0]);

        assert!(grants.set_binding(Some("b"), "two", &binding("ClusterRole", "any", &account(Some("a")))));
        assert_eq!(names(&grants, "a", "x"), ["nonroot"], "the binding counts in b only");
        assert!(grants.may_use("system:serviceaccount:a:x", &[], "b", "anyuid"));

        assert!(grants.set_binding(
            None,
            "three",
            &binding("ClusterRole", "any", &group("system:authenticated"))
        ));
        assert_eq!(names(&grants, "a", "x"), ["anyuid", "nonroot"]);
        assert_eq!(names(&grants, "c", "y"), ["anyuid"]);

        let user = json!([{"kind": "User", "apiGroup": "rbac.authorization.k8s.io",
                           "name": "system:serviceaccount:a:y"}]);
        grants.set_role(
            None,
            "all",
            &json!({"rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]}),
        );
        assert!(grants.set_binding(None, "four", &binding("ClusterRole", "all", &user)));
        assert_eq!(names(&grants, "a", "y").len(), 13);

        assert!(!grants.set_binding(None, "five", &binding("ClusterRole", "gone", &account(Some("a")))));
        assert!(grants.remove_binding(None, "three") && grants.remove_role(None, "all"));
        assert_eq!(
            (names(&grants, "a", "x"), names(&grants, "a", "y")),
            (vec!["nonroot".to_owned()], vec![])
        );
    }

    #[test]
    fn the_lists_of_a_constraint_count_as_well() {
        let grants = Grants::default();
        assert_eq!(names(&grants, "openshift-infra", "pv-recycler-controller"), ["hostmount-anyuid"]);
    }
}
