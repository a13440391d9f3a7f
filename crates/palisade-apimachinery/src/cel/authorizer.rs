//! The library for authorisation: expressions of admission policies may check what the user of the request, or a service
//! account, may do.
//!
//! Implements: Common Expression Language in Kubernetes, "Kubernetes authorizer library".
//! <https://kubernetes.io/docs/reference/using-api/cel/#kubernetes-authorizer-library>

use std::fmt;
use std::sync::Arc;

use super::budget::{Budget, Fault};
use super::value::Val;

/// What one check costs, as upstream counts it.
const CHECK: u64 = 350_000;

/// Functions of this library.
pub(super) const FUNCTIONS: &[&str] = &[
    "allowed",
    "check",
    "error",
    "errored",
    "fieldSelector",
    "group",
    "labelSelector",
    "name",
    "namespace",
    "path",
    "reason",
    "resource",
    "serviceAccount",
    "subresource",
];

/// Who decides.
pub trait Authorize: Send + Sync {
    /// Whether the access is allowed, and why.
    fn authorize(&self, access: &Access) -> (bool, String);
}

/// What is checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// Namespace and name of a service account; without one, the user of the request.
    pub service_account: Option<(String, String)>,
    /// The path, where it is about no resource.
    pub path: Option<String>,
    /// API group.
    pub group: String,
    /// Plural resource.
    pub resource: String,
    /// Subresource.
    pub subresource: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Verb.
    pub verb: String,
}

/// A value of one of the types of the library.
#[derive(Clone)]
pub struct AuthorizerValue {
    authorizer: Arc<dyn Authorize>,
    /// The resource of the request.
    request: Arc<Access>,
    stage: Stage,
    access: Access,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Stage {
    Authorizer,
    Path,
    Group,
    Resource,
    Decision(bool, String),
}

impl fmt::Debug for AuthorizerValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthorizerValue")
            .field("stage", &self.stage)
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}

impl Val {
    /// The variable `authorizer`; `request` is what the request does.
    #[must_use]
    pub fn authorizer(authorizer: Arc<dyn Authorize>, request: Access) -> Self {
        let access = Access::default();
        Self::Authorizer(Arc::new(AuthorizerValue {
            authorizer,
            request: Arc::new(request),
            stage: Stage::Authorizer,
            access,
        }))
    }
}

impl AuthorizerValue {
    pub(super) const fn type_name(&self) -> &'static str {
        match self.stage {
            Stage::Authorizer => "kubernetes.authorization.Authorizer",
            Stage::Path => "kubernetes.authorization.PathCheck",
            Stage::Group => "kubernetes.authorization.GroupCheck",
            Stage::Resource => "kubernetes.authorization.ResourceCheck",
            Stage::Decision(..) => "kubernetes.authorization.Decision",
        }
    }

    fn at(&self, stage: Stage, change: impl FnOnce(&mut Access)) -> Val {
        let mut next = Self { stage, ..self.clone() };
        change(&mut next.access);
        Val::Authorizer(Arc::new(next))
    }

    /// `authorizer.requestResource`.
    pub(super) fn field(&self, name: &str) -> Result<Val, Fault> {
        if name == "requestResource" && self.stage == Stage::Authorizer {
            let request = (*self.request).clone();
            return Ok(self.at(Stage::Resource, |access| {
                *access = Access { service_account: access.service_account.take(), ..request };
            }));
        }
        Fault::error(format!("no such key: {name}"))
    }
}

/// Calls a function of the library.
pub(super) fn call(
    name: &str,
    value: &AuthorizerValue,
    arguments: &[Val],
    budget: &mut Budget,
) -> Result<Val, Fault> {
    let mut texts = Vec::with_capacity(arguments.len());
    for argument in arguments {
        let Val::String(text) = argument else { return Fault::overload() };
        texts.push(text.to_string());
    }
    Ok(match (&value.stage, name, texts.as_slice()) {
        (Stage::Authorizer, "path", [path]) => {
            if path.trim().is_empty() {
                return Fault::error("path must not be empty");
            }
            value.at(Stage::Path, |access| access.path = Some(path.clone()))
        }
        (Stage::Authorizer, "group", [group]) => {
            value.at(Stage::Group, |access| access.group.clone_from(group))
        }
        (Stage::Authorizer, "serviceAccount", [namespace, name]) => value.at(Stage::Authorizer, |access| {
            access.service_account = Some((namespace.clone(), name.clone()));
        }),
        (Stage::Group, "resource", [resource]) => {
            if resource.trim().is_empty() {
                return Fault::error("resource must not be empty");
            }
            value.at(Stage::Resource, |access| access.resource.clone_from(resource))
        }
        (Stage::Resource, "subresource", [text]) => {
            value.at(Stage::Resource, |access| access.subresource.clone_from(text))
        }
        (Stage::Resource, "namespace", [text]) => {
            value.at(Stage::Resource, |access| access.namespace.clone_from(text))
        }
        (Stage::Resource, "name", [text]) => value.at(Stage::Resource, |access| access.name.clone_from(text)),
        // A selector narrows what is requested; who may do more may do that as well.
        (Stage::Resource, "fieldSelector" | "labelSelector", [_]) => value.at(Stage::Resource, |_| {}),
        (Stage::Path | Stage::Resource, "check", [verb]) => {
            budget.charge(CHECK)?;
            let mut access = value.access.clone();
            access.verb.clone_from(verb);
            let (allowed, reason) = value.authorizer.authorize(&access);
            value.at(Stage::Decision(allowed, reason), |_| {})
        }
        (Stage::Decision(allowed, _), "allowed", []) => Val::Bool(*allowed),
        (Stage::Decision(_, reason), "reason", []) => Val::text(reason),
        // RBAC decides from memory: it never fails.
        (Stage::Decision(..), "errored", []) => Val::Bool(false),
        (Stage::Decision(..), "error", []) => Val::text(""),
        _ => return Fault::overload(),
    })
}
