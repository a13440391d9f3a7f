//! The order of things between decoding and storing: plugins that change objects, plugins that judge them, and the
//! rules about pods that upstream keeps in its pod strategy.
//!
//! Implements: Admission Control in Kubernetes. <https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/>
//!
//! Plugins are plain functions over values: what they look up comes through [`Cluster`]. The chain takes and
//! returns [`Typed`] objects, so that no plugin sees a value that the kind's decoder would reject.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use palisade_apimachinery::{Kind, Status, Typed};
use palisade_base::field_error::FieldError;
use serde_json::Value;

use crate::auth::UserInfo;
use crate::auth::rbac::Attributes;
use crate::storage::Object;

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A new object.
    Create,
    /// A change.
    Update,
    /// A deletion.
    Delete,
    /// A connection to a running container.
    Connect,
}

impl Operation {
    /// Upstream's word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// What plugins may look up.
pub trait Cluster: Send + Sync {
    /// An object by group resource (`pods`, `deployments.apps`), namespace and name.
    fn get(&self, group_resource: &str, namespace: &str, name: &str) -> Option<Arc<Object>>;
    /// The objects of a resource in a namespace, or everywhere if it is empty. [`Object::view`] keeps readings.
    fn list(&self, group_resource: &str, namespace: &str) -> Vec<Arc<Object>>;
    /// Whether a user may do something.
    fn authorized(&self, user: &UserInfo, attributes: &Attributes<'_>) -> bool;
}

/// The facts of a request.
pub struct Request<'a> {
    /// What is being done.
    pub operation: Operation,
    /// Who does it.
    pub user: &'a UserInfo,
    /// The kind of the object, or of the parent object for subresources.
    pub kind: &'a Kind,
    /// The subresource, empty for the object itself.
    pub subresource: &'a str,
    /// Namespace, empty for cluster-scoped objects.
    pub namespace: &'a str,
    /// Name; empty where it is yet to be generated.
    pub name: &'a str,
    /// The object as stored, for updates and deletions.
    pub old_object: Option<&'a Value>,
    /// Nothing will be stored.
    pub dry_run: bool,
    /// What may be looked up.
    pub cluster: &'a dyn Cluster,
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("operation", &self.operation)
            .field("user", &self.user.name)
            .field("kind", &self.kind.kind)
            .field("subresource", &self.subresource)
            .field("namespace", &self.namespace)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Request<'_> {
    /// Whether the request is about the object itself of a resource.
    #[must_use]
    pub fn is(&self, group: &str, resource: &str) -> bool {
        self.kind.group == group && self.kind.plural == resource && self.subresource.is_empty()
    }

    /// Reads an object of the request's kind.
    pub fn typed(&self, object: Value) -> Result<Typed, Box<Status>> {
        self.kind.read(object).map_err(|error| error.into_status(self.kind, self.name))
    }

    /// 403 about this request.
    #[must_use]
    pub fn forbidden(&self, why: &str) -> Box<Status> {
        Status::forbidden(self.kind.resource_name(), self.name, why)
    }
}

/// What plugins return besides their decision.
#[derive(Debug, Default)]
pub struct Notes {
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
    /// Annotations for the audit log.
    pub audit: Vec<(String, String)>,
}

/// An object that plugins may change. Taking it mutably is a change: an object that no plugin has changed is still the
/// [`Typed`] one and is not read again.
#[derive(Debug)]
pub struct InReview {
    typed: Option<Typed>,
    changed: Value,
}

impl InReview {
    fn new(object: Typed) -> Self {
        Self { typed: Some(object), changed: Value::Null }
    }
}

impl Deref for InReview {
    type Target = Value;

    fn deref(&self) -> &Value {
        self.typed.as_deref().unwrap_or(&self.changed)
    }
}

impl DerefMut for InReview {
    fn deref_mut(&mut self) -> &mut Value {
        if let Some(typed) = self.typed.take() {
            self.changed = typed.into_value();
        }
        &mut self.changed
    }
}

/// The end of an admission plugin: the request goes on, or is rejected.
pub type Admission = Result<(), Box<Status>>;

/// One admission plugin.
pub trait Plugin: Send + Sync {
    /// Upstream's name, for `--disable-admission-plugins`.
    fn name(&self) -> &'static str;

    /// Changes the object. Runs before defaulting of what it adds, validation and the judging plugins.
    fn admit(&self, _: &Request<'_>, _: &mut InReview, _: &mut Notes) -> Admission {
        Ok(())
    }

    /// Judges the object; for deletions, `object` is absent.
    fn validate(&self, _: &Request<'_>, _: Option<&Value>, _: &mut Notes) -> Admission {
        Ok(())
    }

    /// Adds metrics in Prometheus' text format.
    fn metrics(&self, _: &mut String) {}
}

/// Rules about objects that are part of storing them, not of admission: they cannot be switched off. Upstream
/// keeps them in the strategies of pods and of the kinds with pod templates.
pub trait ObjectRules: Send + Sync {
    /// Completes an object, such as copying between annotations and fields, and validates it. An object that cannot be read is
    /// rejected.
    fn review(
        &self,
        _: &Kind,
        _subresource: &str,
        _object: &mut Value,
        _old: Option<&Value>,
    ) -> Result<RuleReview, Box<Status>> {
        Ok(RuleReview::default())
    }
}

/// What the rules report about an object.
#[derive(Debug, Default)]
pub struct RuleReview {
    /// Warnings that are sent even if the object is rejected.
    pub notices: Vec<String>,
    /// Why the object is rejected.
    pub errors: Vec<FieldError>,
    /// Warnings about an accepted object.
    pub warnings: Vec<String>,
}

/// No further rules.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoRules;

impl ObjectRules for NoRules {}

/// The plugins of a server, in order.
#[derive(Clone, Default)]
pub struct Chain {
    plugins: Vec<Arc<dyn Plugin>>,
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.plugins.iter().map(|p| p.name())).finish()
    }
}

impl Chain {
    /// A chain of plugins, without the disabled ones.
    #[must_use]
    pub fn new(plugins: Vec<Arc<dyn Plugin>>, disabled: &[String]) -> Self {
        let plugins = plugins.into_iter().filter(|p| !disabled.iter().any(|d| d == p.name())).collect();
        Self { plugins }
    }

    /// Lets every plugin change the object; what they change is read again.
    pub fn admit(
        &self,
        request: &Request<'_>,
        object: Typed,
        notes: &mut Notes,
    ) -> Result<Typed, Box<Status>> {
        let mut object = InReview::new(object);
        for plugin in &self.plugins {
            plugin.admit(request, &mut object, notes)?;
        }
        match object {
            InReview { typed: Some(unchanged), .. } => Ok(unchanged),
            InReview { changed, .. } => request.typed(changed),
        }
    }

    /// Lets every plugin judge the object.
    pub fn validate(
        &self,
        request: &Request<'_>,
        object: Option<&Typed>,
        notes: &mut Notes,
    ) -> Result<(), Box<Status>> {
        let object = object.map(|object| &**object);
        self.plugins.iter().try_for_each(|plugin| plugin.validate(request, object, notes))
    }

    /// Lets every plugin judge what is not an object of the request's kind, such as the request for a token.
    pub fn judge(&self, request: &Request<'_>, object: &Value, notes: &mut Notes) -> Result<(), Box<Status>> {
        self.plugins.iter().try_for_each(|plugin| plugin.validate(request, Some(object), notes))
    }

    /// The plugins' metrics.
    pub fn metrics(&self, out: &mut String) {
        self.plugins.iter().for_each(|plugin| plugin.metrics(out));
    }

    /// Whether a plugin is on.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.plugins.iter().any(|plugin| plugin.name() == name)
    }

    /// The names of the plugins, in order.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        self.plugins.iter().map(|p| p.name()).collect()
    }
}
