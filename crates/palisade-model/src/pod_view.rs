//! The security reading of a pod: every container with its path.

use palisade_base::field_path::FieldPath;

use crate::{
    metadata::ObjectMeta,
    pod::{Container, Pod, PodSpec},
    security_context::{PodSecurityContext, SecurityContext},
};

/// Which of the three lists a container stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContainerKind {
    /// `initContainers`.
    Init,
    /// `containers`.
    App,
    /// `ephemeralContainers`.
    Ephemeral,
}

impl ContainerKind {
    /// The name of the list.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Self::Init => "initContainers",
            Self::App => "containers",
            Self::Ephemeral => "ephemeralContainers",
        }
    }

    /// The noun for a container of this list.
    #[must_use]
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Init => "init container",
            Self::App => "container",
            Self::Ephemeral => "ephemeral container",
        }
    }
}

/// A container and where it stands.
#[derive(Debug, Clone, Copy)]
pub struct ContainerRef<'p, 'a> {
    /// Its list.
    pub kind: ContainerKind,
    /// Its place in the list.
    pub index: usize,
    /// The container.
    pub container: &'p Container<'a>,
}

impl<'p, 'a> ContainerRef<'p, 'a> {
    /// The container's name.
    #[must_use]
    pub fn name(&self) -> &'p str {
        self.container.name.as_str()
    }

    /// The container's security context, if it has one.
    #[must_use]
    pub const fn security_context(&self) -> Option<&'p SecurityContext<'a>> {
        self.container.security_context.as_ref()
    }

    /// The path of the container within the pod or template.
    #[must_use]
    pub fn path(&self, view: &PodView<'_, '_>) -> FieldPath {
        view.path(&["spec", self.kind.field()]).index(self.index)
    }
}

/// A pod, or the template inside a workload, with the path that leads to it.
#[derive(Debug, Clone, Copy)]
pub struct PodView<'p, 'a> {
    /// The pod or template.
    pub pod: &'p Pod<'a>,
    base: &'static [&'static str],
}

impl<'p, 'a> PodView<'p, 'a> {
    /// A pod that is the whole object.
    #[must_use]
    pub const fn of_pod(pod: &'p Pod<'a>) -> Self {
        Self { pod, base: &[] }
    }

    /// A template at a path inside a workload.
    #[must_use]
    pub const fn of_template(pod: &'p Pod<'a>, base: &'static [&'static str]) -> Self {
        Self { pod, base }
    }

    /// Whether this is a pod rather than a template.
    #[must_use]
    pub const fn is_pod(&self) -> bool {
        self.base.is_empty()
    }

    /// The path of the pod or template itself.
    #[must_use]
    pub fn base(&self) -> FieldPath {
        FieldPath::of(self.base)
    }

    /// The path of fields below the pod or template.
    #[must_use]
    pub fn path(&self, fields: &[&'static str]) -> FieldPath {
        self.base().fields(fields)
    }

    /// The path of an annotation.
    #[must_use]
    pub fn annotation_path(&self, key: &str) -> FieldPath {
        self.path(&["metadata", "annotations"]).key(key)
    }

    /// Name, labels and annotations.
    #[must_use]
    pub const fn metadata(&self) -> &'p ObjectMeta<'a> {
        &self.pod.metadata
    }

    /// What to run.
    #[must_use]
    pub const fn spec(&self) -> &'p PodSpec<'a> {
        &self.pod.spec
    }

    /// The pod's security context, if it has one.
    #[must_use]
    pub const fn security_context(&self) -> Option<&'p PodSecurityContext<'a>> {
        self.pod.spec.security_context.as_ref()
    }

    /// Every container: init, then app, then ephemeral ones, each in the order of its list.
    pub fn containers(&self) -> impl Iterator<Item = ContainerRef<'p, 'a>> + use<'p, 'a> {
        let spec = &self.pod.spec;
        let list = |kind, containers: &'p [Container<'a>]| {
            containers.iter().enumerate().map(move |(index, container)| ContainerRef {
                kind,
                index,
                container,
            })
        };
        list(ContainerKind::Init, &spec.init_containers)
            .chain(list(ContainerKind::App, &spec.containers))
            .chain(list(ContainerKind::Ephemeral, &spec.ephemeral_containers))
    }

    /// The container of that name, if there is one.
    #[must_use]
    pub fn container(&self, name: &str) -> Option<ContainerRef<'p, 'a>> {
        self.containers().find(|container| container.name() == name)
    }
}
