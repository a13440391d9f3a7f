//! Authentication and authorization.
//!
//! Implements: Authenticating, <https://kubernetes.io/docs/reference/access-authn-authz/authentication/>, and
//! Using RBAC Authorization, <https://kubernetes.io/docs/reference/access-authn-authz/rbac/>.

pub mod authenticate;
pub mod bootstrap;
pub mod escalation;
pub mod impersonate;
pub(crate) mod node;
mod node_denials;
pub mod rbac;
pub mod review;
pub mod token;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// Members may do everything.
pub const MASTERS: &str = "system:masters";
/// Every authenticated user.
pub const AUTHENTICATED: &str = "system:authenticated";
/// Every other user.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The name of every other user.
pub const ANONYMOUS: &str = "system:anonymous";

/// Who makes a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserInfo {
    /// User name.
    pub name: String,
    /// Unique id, if the authenticator has one.
    pub uid: String,
    /// Groups.
    pub groups: Vec<String>,
    /// Other attributes from the authenticator.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// A user in groups.
    #[must_use]
    pub fn new(name: &str, groups: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            groups: groups.iter().map(|g| (*g).to_owned()).collect(),
            ..Self::default()
        }
    }

    /// The administrator: what in-process clients are.
    #[must_use]
    pub fn admin() -> Self {
        Self::new("kubernetes-admin", &[MASTERS, AUTHENTICATED])
    }

    /// A service account.
    #[must_use]
    pub fn service_account(namespace: &str, name: &str, uid: &str) -> Self {
        Self {
            name: format!("system:serviceaccount:{namespace}:{name}"),
            uid: uid.to_owned(),
            groups: vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                AUTHENTICATED.to_owned(),
            ],
            extra: BTreeMap::new(),
        }
    }

    /// Whether the user is in a group.
    #[must_use]
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }

    /// The `userInfo` of reviews and audit events.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut object = Map::new();
        object.insert("username".to_owned(), self.name.as_str().into());
        if !self.uid.is_empty() {
            object.insert("uid".to_owned(), self.uid.as_str().into());
        }
        if !self.groups.is_empty() {
            object.insert("groups".to_owned(), json!(self.groups));
        }
        if !self.extra.is_empty() {
            object.insert("extra".to_owned(), json!(self.extra));
        }
        Value::Object(object)
    }
}
