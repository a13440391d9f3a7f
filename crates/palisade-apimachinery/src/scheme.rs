//! Which kinds there are: the registry of built-in kinds for one emulated release, and what a kind is.
//!
//! Leaves to others: what is done with objects of a kind; the methods here only lead there.

use std::sync::{Arc, LazyLock, OnceLock};

use palisade_base::version::KubeVersion;
use serde_json::Value;

use crate::crd::CustomKind;
use crate::decode::{self, Decoded, FieldValidation};
use crate::kinds::{self, Builtin};
use crate::schema::TypeRef;
use crate::status::{GroupName, Result};

/// A kind of object: its names, its scope, what can be done with it, its type.
///
/// Built-in kinds come from [`Scheme`], custom ones from [`crate::crd::Definition`].
#[derive(Debug)]
pub struct Kind {
    /// API group, empty for the core group.
    pub group: String,
    /// API version, `v1`.
    pub version: String,
    /// Kind, `Pod`.
    pub kind: String,
    /// Kind of the list, `PodList`.
    pub list_kind: String,
    /// Plural resource name, `pods`.
    pub plural: String,
    /// Singular resource name, `pod`.
    pub singular: String,
    /// Short names, `po`.
    pub short_names: Vec<String>,
    /// Categories, `all`.
    pub categories: Vec<String>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Verbs, in the order discovery prints them.
    pub verbs: Vec<&'static str>,
    /// Subresources served besides the object itself.
    pub subresources: Vec<Subresource>,
    /// The release rules come from.
    pub emulated: KubeVersion,
    pub(crate) body: Body,
    /// What [`Kind::zero`] returns, made once.
    pub(crate) zero: OnceLock<Value>,
}

/// Where a kind's rules come from.
#[derive(Debug)]
pub(crate) enum Body {
    /// A built-in kind.
    Builtin(&'static Builtin),
    /// A version of a custom resource definition.
    Custom(Box<CustomKind>),
}

/// A subresource as discovery prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subresource {
    /// Name after the slash, `status`.
    pub name: &'static str,
    /// Group of the kind it takes, where it differs from the parent's (`autoscaling` for `scale`).
    pub group: &'static str,
    /// Version of that kind; empty if it is the parent's kind.
    pub version: &'static str,
    /// The kind it takes; empty if it is the parent's.
    pub kind: &'static str,
    /// Verbs, in the order discovery prints them.
    pub verbs: &'static [&'static str],
}

impl Kind {
    /// `group/version`, or the version alone for the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `pods`, `deployments.apps`: for most errors.
    #[must_use]
    pub fn resource_name(&self) -> GroupName<'_> {
        GroupName::new(&self.group, &self.plural)
    }

    /// `Pod`, `Deployment.apps`: for validation errors.
    #[must_use]
    pub fn kind_name(&self) -> GroupName<'_> {
        GroupName::new(&self.group, &self.kind)
    }

    /// Whether the kind comes from a custom resource definition.
    #[must_use]
    pub fn is_custom(&self) -> bool {
        matches!(self.body, Body::Custom(_))
    }

    /// The type of its objects.
    #[must_use]
    pub fn schema(&self) -> TypeRef<'_> {
        match &self.body {
            Body::Builtin(builtin) => builtin.schema(),
            Body::Custom(custom) => custom.schema(),
        }
    }

    /// Reads a JSON body into a canonical object of this kind; see [`decode::decode`].
    pub fn decode(&self, body: &[u8], validation: FieldValidation) -> Result<Decoded> {
        decode::decode(self, body, validation)
    }

    /// Reads an already parsed body (from YAML), with the duplicate fields its parser saw.
    pub fn decode_value(
        &self,
        body: Value,
        duplicates: Vec<String>,
        validation: FieldValidation,
    ) -> Result<Decoded> {
        decode::decode_value(self, body, duplicates, validation)
    }

    /// Sets the defaults of the kind, as upstream does after decoding and when reading from storage. An object that its
    /// defaults make too large to be stored is rejected before it has them all.
    pub fn default(&self, object: &mut Value) -> Result<()> {
        match &self.body {
            Body::Builtin(builtin) => kinds::default(builtin, object, self.emulated),
            Body::Custom(custom) => custom.default(object)?,
        }
        Ok(())
    }

    /// An object with nothing set, as Go encodes it: what a create is compared with for managed fields.
    #[must_use]
    pub fn zero(&self) -> &Value {
        self.zero.get_or_init(|| match &self.body {
            Body::Builtin(builtin) => builtin.schema().zero(self.emulated),
            Body::Custom(_) => Value::Object(serde_json::Map::new()),
        })
    }
}

/// The built-in kinds of one release.
#[derive(Debug)]
pub struct Scheme {
    version: KubeVersion,
    kinds: Vec<Arc<Kind>>,
}

impl Scheme {
    /// The kinds served when emulating `version`.
    #[must_use]
    pub fn new(version: KubeVersion) -> Self {
        let kinds = kinds::registry(version).map(|k| Arc::new(k.to_kind(version))).collect();
        Self { version, kinds }
    }

    /// The emulated release.
    #[must_use]
    pub fn version(&self) -> KubeVersion {
        self.version
    }

    /// Every built-in kind, in the order of discovery.
    #[must_use]
    pub fn kinds(&self) -> &[Arc<Kind>] {
        &self.kinds
    }

    /// The kind behind `/apis/<group>/<version>/<plural>`.
    #[must_use]
    pub fn by_resource(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.kinds.iter().find(|k| k.group == group && k.version == version && k.plural == plural)
    }

    /// The kind of an object by its `apiVersion` and `kind`.
    #[must_use]
    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Kind>> {
        self.kinds.iter().find(|k| k.group == group && k.version == version && k.kind == kind)
    }
}

/// The kinds of the latest release, for tools that need no emulation.
pub static LATEST: LazyLock<Scheme> = LazyLock::new(|| Scheme::new(KubeVersion::LATEST));
