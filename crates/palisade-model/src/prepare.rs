//! One reading of a pod: what an API server makes of it, what policy judges, and what the node runs.
//!
//! Implements: the part of `SetDefaults_PodSpec` and of the pod strategy's `PrepareForCreate` that decides the
//! outcome of security checks; the sync of annotations and fields of the seccomp and AppArmor designs; the projection of
//! the pod-security-context proposal. Palisade's extensions keep the fields of their own; a release drops what it never had.
//!
//! Everything that judges or runs a pod takes a [`Prepared`], and only this module makes one. No caller can forget a default, a
//! sync or a lowering, and no two parts of the product read a pod differently.

use palisade_base::field_path::FieldPath;

use crate::{
    change::{Change, NewValue},
    compat::Compat,
    lower::project_defaults,
    pod::{Container, Pod, PodSpec},
    pod_view::{ContainerKind, ContainerRef, PodView},
    profile::{apparmor, kind},
    security_context::{PodSecurityContext, ProfileField, SecurityContext},
    sync::{Synced, annotate_fields, fill_fields},
    text::Text,
    volume::VolumeSource,
    warnings::deprecated_annotations,
};

/// Where a pod comes from: some defaults are for pods alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// A pod of its own.
    Pod,
    /// The template inside a workload.
    Template(&'static [&'static str]),
}

impl Subject {
    /// The view of a pod or template.
    #[must_use]
    pub const fn view<'p, 'a>(self, pod: &'p Pod<'a>) -> PodView<'p, 'a> {
        match self {
            Self::Pod => PodView::of_pod(pod),
            Self::Template(base) => PodView::of_template(pod, base),
        }
    }

    /// The path of fields below the pod or template.
    #[must_use]
    pub fn path(self, fields: &[&'static str]) -> FieldPath {
        match self {
            Self::Pod => FieldPath::of(fields),
            Self::Template(base) => FieldPath::of(base).fields(fields),
        }
    }
}

/// A pod as the API server of a [`Compat`] stores it, as policy judges it, and as the node runs it.
///
/// Fields that the release does not have are dropped, defaults are set, annotations and fields are in sync, and
/// `containerDefaults` and the host fields of the pod's security context are projected onto the fields that Kubernetes has.
///
/// ```compile_fail
/// # use palisade_model::{compat::Compat, effective::effective_contexts, pod::Pod};
/// let pod = Pod::default();
/// effective_contexts(&pod); // an unprepared pod has no effective context
/// ```
///
/// ```
/// # use palisade_model::{compat::Compat, effective::effective_contexts, pod::Pod, prepare::{Prepared, Subject}};
/// let pod = Prepared::new(Pod::default(), Subject::Pod, &Compat::designs());
/// effective_contexts(&pod);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepared<'a> {
    pod: Pod<'a>,
    subject: Subject,
    compat: Compat,
    /// The same with the gates on that the stored version already uses: what the API server validates by.
    kept: Compat,
    changes: Vec<Change>,
    /// Fields that were copied from annotations, and annotations that were copied from fields.
    synced: Vec<FieldPath>,
    /// Fields of the pod or of containers that `containerDefaults` or the pod's security context decided.
    projected: Vec<FieldPath>,
    warnings: Vec<String>,
    deprecated: Vec<String>,
}

/// How much of the preparation applies.
#[derive(Clone, Copy)]
enum Stage<'o, 'p> {
    /// A pod that is being created, or a template as the API server reads it.
    Written,
    /// A template, read as the pod that it becomes.
    FuturePod,
    /// The new version of a pod or template that is already stored. What was decided at creation stays decided: no sync.
    Changed(&'o Pod<'p>),
}

impl<'a> Prepared<'a> {
    /// Prepares a pod that is being created, or the template of a workload that is being written.
    #[must_use]
    pub fn new(pod: Pod<'a>, subject: Subject, compat: &Compat) -> Self {
        Self::make(pod, subject, compat, Stage::Written)
    }

    /// Prepares a pod that is being created, or, for a template, the pod that a controller will create from it.
    #[must_use]
    pub fn future_pod(pod: Pod<'a>, subject: Subject, compat: &Compat) -> Self {
        Self::make(pod, subject, compat, Stage::FuturePod)
    }

    /// Prepares the new version of a pod or template. Fields behind a feature gate stay if the old version uses them.
    #[must_use]
    pub fn changed(pod: Pod<'a>, old: &Pod<'_>, subject: Subject, compat: &Compat) -> Self {
        Self::make(pod, subject, compat, Stage::Changed(old))
    }

    /// Prepares a pod that is already stored, as the node and those who look at existing pods read it.
    #[must_use]
    pub fn stored(pod: Pod<'a>, compat: &Compat) -> Self {
        let in_use = gates_in_use(&pod);
        Self::change(pod, Subject::Pod, compat, in_use, None)
    }

    /// [`Prepared::new`] without an old version, [`Prepared::changed`] with one.
    #[must_use]
    pub fn written(pod: Pod<'a>, old: Option<&Pod<'_>>, subject: Subject, compat: &Compat) -> Self {
        match old {
            None => Self::new(pod, subject, compat),
            Some(old) => Self::changed(pod, old, subject, compat),
        }
    }

    fn make(pod: Pod<'a>, subject: Subject, compat: &Compat, stage: Stage<'_, '_>) -> Self {
        // Releases judge a template without the sync that its pods will go through; the extensions do not.
        let syncs = match stage {
            Stage::Changed(old) if subject == Subject::Pod => {
                return Self::change(pod, subject, compat, gates_in_use(old), Some(old));
            }
            Stage::Changed(_) | Stage::Written => subject == Subject::Pod || compat.is_designs(),
            Stage::FuturePod => true,
        };
        let in_use = match stage {
            Stage::Changed(old) => gates_in_use(old),
            Stage::Written | Stage::FuturePod => GatesInUse::default(),
        };
        let mut prepared = Self::drop_and_default(pod, subject, compat, in_use, stage);
        let Self { pod, kept: compat, changes, synced, projected, warnings, deprecated, .. } = &mut prepared;
        if compat.is_designs() {
            *deprecated = deprecated_annotations(&subject.view(pod), compat);
        }
        let mut written = Synced::default();
        if syncs {
            fill_fields(pod, subject, compat, &mut written);
        }
        project(pod, subject, compat, &mut written.changes, projected);
        if syncs {
            annotate_fields(pod, subject, compat, &mut written.changes);
        }
        synced.extend(written.changes.iter().map(|change| change.at.clone()));
        synced.retain(|path| !projected.contains(path));
        if subject == Subject::Pod {
            changes.append(&mut written.changes);
            warnings.append(deprecated);
            warnings.append(&mut written.warnings);
        }
        prepared
    }

    fn change(
        pod: Pod<'a>,
        subject: Subject,
        compat: &Compat,
        in_use: GatesInUse,
        old: Option<&Pod<'_>>,
    ) -> Self {
        let stage = Stage::Written;
        let mut prepared = Self::drop_and_default(pod, subject, compat, in_use, stage);
        let Self { pod, compat, changes, projected, .. } = &mut prepared;
        project(pod, subject, compat, changes, projected);
        if let Some(old) = old.filter(|_| !projected.is_empty()) {
            // A pod that was stored without the projection is read with it and stays as it is: its spec may not change.
            let mut before = Vec::new();
            project(&mut old.clone(), subject, compat, &mut before, &mut Vec::new());
            changes.retain(|change| before.iter().all(|known| known.at != change.at));
        }
        prepared
    }

    fn drop_and_default(
        mut pod: Pod<'a>,
        subject: Subject,
        compat: &Compat,
        in_use: GatesInUse,
        stage: Stage<'_, '_>,
    ) -> Self {
        let mut kept = *compat;
        // A gate that was switched off stays on for what already uses it.
        kept.gates.seccomp_config_maps |= compat.is_designs() && in_use.config_map_profiles;
        kept.gates.security_profile_oci_artifact |= compat.is_designs() && in_use.oci_profiles;
        drop_unknown_fields(&mut pod, &kept);
        let fills_host_ports = subject == Subject::Pod || matches!(stage, Stage::FuturePod);
        set_defaults(&mut pod, fills_host_ports, compat);
        let mut changes = Vec::new();
        if !in_use.app_armor {
            drop_app_armor(&mut pod, subject, compat, &mut changes);
        }
        if !in_use.proc_mount {
            reset_proc_mount(&mut pod, subject, compat, &mut changes);
        }
        Self {
            pod,
            subject,
            compat: *compat,
            kept,
            changes,
            synced: Vec::new(),
            projected: Vec::new(),
            warnings: Vec::new(),
            deprecated: Vec::new(),
        }
    }

    /// The pod with the path that leads to it.
    #[must_use]
    pub const fn view(&self) -> PodView<'_, 'a> {
        self.subject.view(&self.pod)
    }

    /// The pod.
    #[must_use]
    pub const fn pod(&self) -> &Pod<'a> {
        &self.pod
    }

    /// What the pod runs.
    #[must_use]
    pub const fn spec(&self) -> &PodSpec<'a> {
        &self.pod.spec
    }

    /// The rules it was prepared by.
    #[must_use]
    pub const fn compat(&self) -> &Compat {
        &self.compat
    }

    /// The rules it is validated by: with the gates on that the stored version already uses.
    pub(crate) const fn kept(&self) -> &Compat {
        &self.kept
    }

    /// What the API server writes into the stored object.
    #[must_use]
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// What the API server reports about the sync, also if it then rejects the object.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Annotations that should be fields, found before the sync and not part of [`Prepared::warnings`].
    pub(crate) fn deprecated(&self) -> &[String] {
        &self.deprecated
    }

    /// The paths that the sync wrote: fields that annotations decided, and the other way round.
    #[must_use]
    pub fn synced(&self) -> &[FieldPath] {
        &self.synced
    }

    /// The setting of the extensions behind a field of a container or the pod, if one decided it.
    #[must_use]
    pub fn projected_from(&self, path: &FieldPath) -> Option<FieldPath> {
        let projected = self.projected.iter().any(|projected| projected.contains(path));
        projected.then(|| crate::lower::origin(&self.view(), path)).flatten()
    }
}

/// Projects the extensions onto the fields that Kubernetes has, and records what that wrote.
fn project(
    pod: &mut Pod<'_>,
    subject: Subject,
    compat: &Compat,
    changes: &mut Vec<Change>,
    projected: &mut Vec<FieldPath>,
) {
    if !compat.has_extensions() {
        return;
    }
    let first = changes.len();
    let joined = pod.spec.host_network;
    project_defaults(pod, subject, changes);
    projected.extend(changes.iter().skip(first).map(|change| change.at.clone()));
    if pod.spec.host_network == Some(true) && joined != Some(true) {
        fill_host_ports(pod, subject, changes);
    }
}

/// Which gated features a stored pod already uses; upstream keeps them whatever the gate is now.
#[derive(Debug, Clone, Copy, Default)]
struct GatesInUse {
    app_armor: bool,
    proc_mount: bool,
    config_map_profiles: bool,
    oci_profiles: bool,
}

fn gates_in_use(old: &Pod<'_>) -> GatesInUse {
    GatesInUse {
        app_armor: uses_app_armor(old),
        proc_mount: uses_proc_mount(old),
        config_map_profiles: uses_profiles(old, kind::CONFIG_MAP),
        oci_profiles: uses_profiles(old, kind::OCI),
    }
}

/// Fields that the release does not have are never stored, and so never judged.
fn drop_unknown_fields(pod: &mut Pod<'_>, compat: &Compat) {
    let extended = compat.has_extensions();
    let forget_profile = |profile: &mut Option<ProfileField<'_>>| {
        let Some(profile) = profile else { return };
        if !compat.has_config_map_profiles() {
            profile.config_map_profile = None;
        }
        if !compat.has_oci_profiles() {
            profile.oci = None;
        }
    };
    if let Some(context) = &mut pod.spec.security_context {
        if !compat.has_app_armor_fields() {
            context.app_armor_profile = None;
        }
        forget_profile(&mut context.seccomp_profile);
        if compat.api_minor() < 33 {
            // The gate SupplementalGroupsPolicy is on by default since v1.33.
            context.supplemental_groups_policy = None;
        }
        if compat.api_minor() < 33 {
            // The gate SELinuxChangePolicy is on by default since v1.33.
            context.se_linux_change_policy = None;
        }
        if !extended {
            context.container_defaults = None;
            context.host_network = None;
            context.host_ipc = None;
        }
        if let Some(defaults) = &mut context.container_defaults {
            forget_profile(&mut defaults.seccomp_profile);
        }
    }
    if !compat.keeps_host_users() {
        pod.spec.host_users = None;
    }
    if compat.api_minor() < 24 {
        // The gate IdentifyPodOS is on by default since v1.24.
        pod.spec.os = None;
    }
    if compat.api_minor() < 31 {
        for volume in &mut pod.spec.volumes {
            volume.forget(VolumeSource::Image);
        }
    }
    if compat.api_minor() < 23 {
        pod.spec.ephemeral_containers.clear();
    }
    for container in all_containers(pod) {
        if let Some(context) = &mut container.security_context {
            if !compat.has_app_armor_fields() {
                context.app_armor_profile = None;
            }
            forget_profile(&mut context.seccomp_profile);
            if !extended {
                context.run_with_supplemental_groups = None;
            }
        }
    }
}

fn set_defaults(pod: &mut Pod<'_>, is_pod: bool, compat: &Compat) {
    for volume in &mut pod.spec.volumes {
        volume.set_default_source();
    }
    pod.spec.security_context.get_or_insert_default();
    for container in all_containers(pod) {
        for port in &mut container.ports {
            if port.protocol.is_empty() {
                port.protocol = Text::borrowed("TCP");
            }
        }
    }
    // Templates had their host ports filled in as well until v1.28.
    if pod.spec.host_network == Some(true) && (is_pod || compat.api_minor() < 28) {
        for_missing_host_ports(pod, |_, _, _, _| {});
    }
}

/// The ports of a pod that turned out to share the node's network, which the API server's own defaulting did not see.
fn fill_host_ports(pod: &mut Pod<'_>, subject: Subject, changes: &mut Vec<Change>) {
    for_missing_host_ports(pod, |kind, container, index, port| {
        let at = subject.path(&["spec", kind.field()]).index(container).field("ports").index(index);
        changes.push(Change { at: at.field("hostPort"), to: NewValue::Json(port.into()) });
    });
}

fn for_missing_host_ports(pod: &mut Pod<'_>, mut filled: impl FnMut(ContainerKind, usize, usize, i32)) {
    let lists = [
        (ContainerKind::Init, &mut pod.spec.init_containers),
        (ContainerKind::App, &mut pod.spec.containers),
    ];
    for (kind, list) in lists {
        for (container, entry) in list.iter_mut().enumerate() {
            for (index, port) in entry.ports.iter_mut().enumerate() {
                if port.host_port == 0 && port.container_port != 0 {
                    port.host_port = port.container_port;
                    filled(kind, container, index, port.host_port);
                }
            }
        }
    }
}

fn drop_app_armor(pod: &mut Pod<'_>, subject: Subject, compat: &Compat, changes: &mut Vec<Change>) {
    if compat.keeps_app_armor() {
        return;
    }
    let view = subject.view(pod);
    for (_, key, _) in view.metadata().annotations.with_prefix(apparmor::ANNOTATION_PREFIX) {
        changes.push(Change { at: view.annotation_path(key), to: NewValue::Removed });
    }
    if let Some(context) = view.security_context() {
        let defaults = context.container_defaults.as_deref();
        if context.app_armor_profile.is_some() {
            let at = view.path(&["spec", "securityContext", "appArmorProfile"]);
            changes.push(Change { at, to: NewValue::Removed });
        }
        if defaults.is_some_and(|defaults| defaults.app_armor_profile.is_some()) {
            let at = view.path(&["spec", "securityContext", "containerDefaults", "appArmorProfile"]);
            changes.push(Change { at, to: NewValue::Removed });
        }
    }
    for container in view.containers() {
        if container.security_context().is_some_and(|context| context.app_armor_profile.is_some()) {
            let at = container.path(&view).fields(&["securityContext", "appArmorProfile"]);
            changes.push(Change { at, to: NewValue::Removed });
        }
    }
    pod.metadata.annotations.retain(|key, _| !apparmor::is_annotation(key));
    if let Some(context) = &mut pod.spec.security_context {
        context.app_armor_profile = None;
        if let Some(defaults) = &mut context.container_defaults {
            defaults.app_armor_profile = None;
        }
    }
    for container in all_containers(pod) {
        if let Some(context) = &mut container.security_context {
            context.app_armor_profile = None;
        }
    }
}

fn reset_proc_mount(pod: &mut Pod<'_>, subject: Subject, compat: &Compat, changes: &mut Vec<Change>) {
    if compat.keeps_proc_mount() {
        return;
    }
    let view = subject.view(pod);
    for container in view.containers() {
        let set = container.security_context().and_then(|context| context.proc_mount.as_ref());
        if set.is_some_and(|value| *value != "Default") {
            let at = container.path(&view).fields(&["securityContext", "procMount"]);
            changes.push(Change { at, to: NewValue::Text("Default".to_owned()) });
        }
    }
    for container in all_containers(pod) {
        if let Some(value) =
            container.security_context.as_mut().and_then(|context| context.proc_mount.as_mut())
        {
            *value = Text::borrowed("Default");
        }
    }
}

/// Whether a security context of the pod, of its containers or of `containerDefaults` has a property.
fn any_context(
    pod: &Pod<'_>,
    of_pod: impl Fn(&PodSecurityContext<'_>) -> bool,
    of_container: impl Fn(&SecurityContext<'_>) -> bool,
) -> bool {
    let context = pod.spec.security_context.as_ref();
    let defaults = context.and_then(|context| context.container_defaults.as_deref());
    context.is_some_and(of_pod)
        || defaults.is_some_and(&of_container)
        || PodView::of_pod(pod)
            .containers()
            .any(|container: ContainerRef<'_, '_>| container.security_context().is_some_and(&of_container))
}

fn uses_app_armor(pod: &Pod<'_>) -> bool {
    pod.metadata.annotations.iter().any(|(key, _)| apparmor::is_annotation(key))
        || any_context(pod, |c| c.app_armor_profile.is_some(), |c| c.app_armor_profile.is_some())
}

fn uses_proc_mount(pod: &Pod<'_>) -> bool {
    let unusual = |c: &SecurityContext<'_>| c.proc_mount.as_ref().is_some_and(|value| *value != "Default");
    any_context(pod, |_| false, unusual)
}

fn uses_profiles(pod: &Pod<'_>, kind: &str) -> bool {
    let is_used = |profile: &Option<ProfileField<'_>>| profile.as_ref().is_some_and(|p| p.kind == kind);
    any_context(pod, |c| is_used(&c.seccomp_profile), |c| is_used(&c.seccomp_profile))
}

pub(crate) fn all_containers<'p, 'a>(pod: &'p mut Pod<'a>) -> impl Iterator<Item = &'p mut Container<'a>> {
    let spec = &mut pod.spec;
    spec.init_containers.iter_mut().chain(&mut spec.containers).chain(&mut spec.ephemeral_containers)
}

pub(crate) fn container_mut<'p, 'a>(
    pod: &'p mut Pod<'a>,
    kind: ContainerKind,
    index: usize,
) -> Option<&'p mut Container<'a>> {
    let list = match kind {
        ContainerKind::Init => &mut pod.spec.init_containers,
        ContainerKind::App => &mut pod.spec.containers,
        ContainerKind::Ephemeral => &mut pod.spec.ephemeral_containers,
    };
    list.get_mut(index)
}
