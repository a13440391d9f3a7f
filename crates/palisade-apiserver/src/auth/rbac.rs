//! Role-based access control: rules, bindings, and the decision.
//!
//! Implements: Using RBAC Authorization. <https://kubernetes.io/docs/reference/access-authn-authz/rbac/>
//!
//! Roles and bindings are read from the store into an index that is made again when one of them changed.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use serde::{Deserialize, Serialize};

use super::node::{NODES, NodeAuthorizer};
use super::{MASTERS, UserInfo};
use crate::http::RequestInfo;
use crate::storage::{Bucket, Object, Range, Store, read, write};

/// What a request does, in the terms of roles.
#[derive(Debug, Clone, Copy, Default)]
pub struct Attributes<'a> {
    /// Verb.
    pub verb: &'a str,
    /// API group.
    pub group: &'a str,
    /// API version.
    pub version: &'a str,
    /// Plural resource.
    pub resource: &'a str,
    /// Subresource.
    pub subresource: &'a str,
    /// Namespace.
    pub namespace: &'a str,
    /// Name.
    pub name: &'a str,
    /// The path, where no resource is requested.
    pub path: &'a str,
    /// The node that a field selector restricts a list to; empty where nothing does.
    pub node: &'a str,
}

impl<'a> Attributes<'a> {
    /// A verb on what a request names.
    #[must_use]
    pub fn of(verb: &'a str, info: &'a RequestInfo) -> Self {
        if !info.is_resource {
            return Self { verb, path: &info.path, ..Self::default() };
        }
        Self {
            verb,
            group: &info.group,
            version: &info.version,
            resource: &info.resource,
            subresource: &info.subresource,
            namespace: &info.namespace,
            name: &info.name,
            path: "",
            node: &info.node,
        }
    }

    /// `pods/status`.
    #[must_use]
    pub fn combined(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.to_owned()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }

    /// Upstream's sentence about who may not do what.
    #[must_use]
    pub fn refusal(&self, user: &UserInfo) -> String {
        let quote = palisade_base::go::quote;
        let who = quote(&user.name);
        if self.resource.is_empty() {
            return format!("User {who} cannot {} path {}", self.verb, quote(self.path));
        }
        let what = quote(&self.combined());
        let group = quote(self.group);
        let verb = self.verb;
        if self.namespace.is_empty() {
            format!("User {who} cannot {verb} resource {what} in API group {group} at the cluster scope")
        } else {
            let namespace = quote(self.namespace);
            format!(
                "User {who} cannot {verb} resource {what} in API group {group} in the namespace {namespace}"
            )
        }
    }
}

/// The answer of the authorizer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessDecision {
    /// Whether it is allowed.
    pub allowed: bool,
    /// By which binding, or why a kubelet is denied.
    pub reason: String,
}

/// A rule of a role.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyRule {
    /// Verbs.
    #[serde(deserialize_with = "null_as_default")]
    pub verbs: Vec<String>,
    /// API groups.
    #[serde(
        rename = "apiGroups",
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_as_default"
    )]
    pub api_groups: Vec<String>,
    /// Resources.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub resources: Vec<String>,
    /// Names; none means all.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub resource_names: Vec<String>,
    /// Paths.
    #[serde(
        rename = "nonResourceURLs",
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_as_default"
    )]
    pub non_resource_urls: Vec<String>,
}

/// Go writes an empty list as null.
fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == "*" || item == wanted)
}

impl PolicyRule {
    /// Whether the rule allows a request.
    #[must_use]
    pub fn allows(&self, attributes: &Attributes<'_>) -> bool {
        if !has(&self.verbs, attributes.verb) {
            return false;
        }
        if attributes.resource.is_empty() {
            return self.non_resource_urls.iter().any(|url| path_matches(url, attributes.path));
        }
        has(&self.api_groups, attributes.group)
            && self.names_resource(attributes)
            && (self.resource_names.is_empty() || self.resource_names.iter().any(|n| n == attributes.name))
    }

    fn names_resource(&self, attributes: &Attributes<'_>) -> bool {
        let Attributes { resource, subresource, .. } = *attributes;
        self.resources.iter().any(|rule| {
            if subresource.is_empty() {
                return rule == "*" || rule == resource;
            }
            let of = rule.strip_suffix(subresource).and_then(|of| of.strip_suffix('/'));
            rule == "*" || of.is_some_and(|of| of == "*" || of == resource)
        })
    }

    /// Go's compact print of a rule, as in messages about escalation.
    #[must_use]
    pub fn compact(&self) -> String {
        let parts = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let parts: Vec<String> = parts
            .iter()
            .filter(|(_, list)| !list.is_empty())
            .map(|(name, list)| format!("{name}:{}", quoted_list(list)))
            .collect();
        format!("{{{}}}", parts.join(", "))
    }
}

/// Go's `%q` of a list of strings.
#[must_use]
pub fn quoted_list(list: &[String]) -> String {
    let quoted: Vec<String> = list.iter().map(|item| palisade_base::go::quote(item)).collect();
    format!("[{}]", quoted.join(" "))
}

pub(super) fn path_matches(rule: &str, path: &str) -> bool {
    rule == path || (rule.ends_with('*') && path.starts_with(rule.trim_end_matches('*')))
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
pub(crate) struct RoleRef {
    pub(crate) api_group: String,
    pub(crate) kind: String,
    pub(crate) name: String,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct Subject {
    kind: String,
    name: String,
    namespace: String,
}

#[derive(Debug)]
struct Binding {
    name: String,
    namespace: String,
    role: RoleRef,
    subjects: Vec<Subject>,
}

impl Binding {
    /// The subject that is this user, as text.
    fn subject_of(&self, user: &UserInfo) -> Option<String> {
        self.subjects.iter().find_map(|subject| match subject.kind.as_str() {
            "User" if subject.name == user.name => Some(format!("User {:?}", subject.name)),
            "Group" if user.in_group(&subject.name) => Some(format!("Group {:?}", subject.name)),
            "ServiceAccount" => {
                let namespace =
                    if subject.namespace.is_empty() { &self.namespace } else { &subject.namespace };
                let name = format!("system:serviceaccount:{namespace}:{}", subject.name);
                (!namespace.is_empty() && name == user.name)
                    .then(|| format!("ServiceAccount \"{}/{namespace}\"", subject.name))
            }
            _ => None,
        })
    }
}

/// Roles and bindings at one moment.
#[derive(Debug, Default)]
struct Index {
    made_at: [u64; 4],
    cluster_roles: HashMap<String, Arc<[PolicyRule]>>,
    roles: HashMap<String, Arc<[PolicyRule]>>,
    cluster_bindings: Vec<Binding>,
    bindings: HashMap<String, Vec<Binding>>,
}

/// Decides by the roles and bindings in the store.
#[derive(Debug)]
pub struct Authorizer {
    buckets: [Arc<Bucket>; 4],
    index: RwLock<Arc<Index>>,
    nodes: NodeAuthorizer,
}

impl Authorizer {
    /// An authorizer for the roles of a store.
    #[must_use]
    pub fn new(store: &Store) -> Self {
        let names = ["clusterroles", "roles", "clusterrolebindings", "rolebindings"];
        let buckets = names.map(|name| store.bucket(&format!("{name}.rbac.authorization.k8s.io")));
        Self { buckets, index: RwLock::default(), nodes: NodeAuthorizer::new(store) }
    }

    fn index(&self) -> Arc<Index> {
        let now = [0, 1, 2, 3].map(|i: usize| self.buckets.get(i).map_or(0, |b| b.changed_at()));
        let index = read(&self.index).clone();
        if index.made_at == now && now != [0; 4] {
            return index;
        }
        let [cluster_roles, roles, cluster_bindings, local_bindings] = &self.buckets;
        let read_roles = |bucket: &Bucket| bucket.list(&Range::All).objects.iter().map(|o| role(o)).collect();
        let mut by_namespace: HashMap<String, Vec<Binding>> = HashMap::new();
        for object in local_bindings.list(&Range::All).objects {
            by_namespace.entry(object.namespace().to_owned()).or_default().push(binding(&object));
        }
        let made = Arc::new(Index {
            made_at: now,
            cluster_roles: read_roles(cluster_roles),
            roles: read_roles(roles),
            cluster_bindings: cluster_bindings.list(&Range::All).objects.iter().map(|o| binding(o)).collect(),
            bindings: by_namespace,
        });
        *write(&self.index) = made.clone();
        made
    }

    /// May the user do this?
    #[must_use]
    pub fn authorize(&self, user: &UserInfo, attributes: &Attributes<'_>) -> AccessDecision {
        if user.in_group(MASTERS) {
            return AccessDecision { allowed: true, reason: String::new() };
        }
        let mut denied = AccessDecision::default();
        if user.in_group(NODES) {
            denied = self.nodes.authorize(user, attributes);
            if denied.allowed {
                return denied;
            }
        }
        let index = self.index();
        for (binding, subject, rules) in granted(&index, user, attributes.namespace) {
            if rules.iter().any(|rule| rule.allows(attributes)) {
                let kind = if binding.namespace.is_empty() { "ClusterRoleBinding" } else { "RoleBinding" };
                let name = if binding.namespace.is_empty() {
                    binding.name.clone()
                } else {
                    format!("{}/{}", binding.name, binding.namespace)
                };
                let reason = format!(
                    "RBAC: allowed by {kind} {name:?} of {} {:?} to {subject}",
                    binding.role.kind, binding.role.name
                );
                return AccessDecision { allowed: true, reason };
            }
        }
        denied
    }

    /// Every rule that applies to a user in a namespace.
    #[must_use]
    pub fn rules_for(&self, user: &UserInfo, namespace: &str) -> Vec<PolicyRule> {
        if user.in_group(MASTERS) {
            let all = || vec!["*".to_owned()];
            return vec![
                PolicyRule { verbs: all(), api_groups: all(), resources: all(), ..PolicyRule::default() },
                PolicyRule { verbs: all(), non_resource_urls: all(), ..PolicyRule::default() },
            ];
        }
        let index = self.index();
        granted(&index, user, namespace).flat_map(|(_, _, rules)| rules.to_vec()).collect()
    }

    /// The rules of a role a binding refers to.
    pub(crate) fn role_rules(&self, role: &RoleRef, namespace: &str) -> Option<Arc<[PolicyRule]>> {
        role_rules(&self.index(), role, namespace).cloned()
    }
}

fn role_rules<'a>(index: &'a Index, role: &RoleRef, namespace: &str) -> Option<&'a Arc<[PolicyRule]>> {
    match role.kind.as_str() {
        "ClusterRole" => index.cluster_roles.get(&role.name),
        "Role" => index.roles.get(&format!("{namespace}/{}", role.name)),
        _ => None,
    }
}

fn granted<'a>(
    index: &'a Index,
    user: &'a UserInfo,
    namespace: &str,
) -> impl Iterator<Item = (&'a Binding, String, &'a [PolicyRule])> {
    let local = index.bindings.get(namespace).into_iter().flatten();
    index.cluster_bindings.iter().chain(local).filter_map(move |binding| {
        let subject = binding.subject_of(user)?;
        let rules = role_rules(index, &binding.role, &binding.namespace)?;
        Some((binding, subject, &**rules))
    })
}

fn role(object: &Object) -> (String, Arc<[PolicyRule]>) {
    #[derive(Deserialize)]
    struct Role {
        #[serde(default, deserialize_with = "null_as_default")]
        rules: Vec<PolicyRule>,
    }
    let rules = serde_json::from_slice::<Role>(&object.json).map(|role| role.rules).unwrap_or_default();
    (object.key().to_owned(), rules.into())
}

fn binding(object: &Object) -> Binding {
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Raw {
        role_ref: RoleRef,
        #[serde(deserialize_with = "null_as_default")]
        subjects: Vec<Subject>,
    }
    let raw: Raw = serde_json::from_slice(&object.json).unwrap_or_default();
    Binding {
        name: object.name().to_owned(),
        namespace: object.namespace().to_owned(),
        role: raw.role_ref,
        subjects: raw.subjects,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(json: &str) -> PolicyRule {
        serde_json::from_str(json).expect("rule")
    }

    #[test]
    fn rules_match_as_upstream_documents() {
        let pods = r#"{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}"#;
        let named = r#"{"verbs":["get"],"apiGroups":[""],"resources":["pods"],"resourceNames":["a"]}"#;
        let scale = r#"{"verbs":["*"],"apiGroups":["*"],"resources":["*/scale"]}"#;
        let all = r#"{"verbs":["*"],"apiGroups":["*"],"resources":["*"]}"#;
        let empty_sub = r#"{"verbs":["get"],"apiGroups":[""],"resources":["pods/"]}"#;
        let any_empty_sub = r#"{"verbs":["get"],"apiGroups":[""],"resources":["*/"]}"#;
        let url = r#"{"verbs":["get"],"nonResourceURLs":["/healthz/*"]}"#;
        let pod = Attributes { verb: "get", resource: "pods", name: "a", ..Attributes::default() };
        let status = Attributes { subresource: "status", ..pod };
        let other = Attributes { name: "b", ..pod };
        let scaled = Attributes { resource: "deployments", group: "apps", subresource: "scale", ..pod };
        let health = Attributes { verb: "get", path: "/healthz/ping", ..Attributes::default() };
        for (case, rule_text, attributes, expected) in [
            ("plain", pods, pod, true),
            ("subresources are not included", pods, status, false),
            ("a name that is listed", named, pod, true),
            ("a name that is not", named, other, false),
            ("any resource's scale", scale, scaled, true),
            ("only scale", scale, pod, false),
            ("everything", all, status, true),
            ("everything is not paths", all, health, false),
            ("a path prefix", url, health, true),
            ("an empty subresource is not the resource", empty_sub, pod, false),
            ("an empty subresource is not a subresource", empty_sub, status, false),
            ("any resource with an empty subresource", any_empty_sub, pod, false),
        ] {
            assert_eq!(rule(rule_text).allows(&attributes), expected, "{case}");
        }
    }
}
