//! One constraint and one pod: what the constraint assigns, and what it then refuses.
//!
//! Implements: OpenShift's `AssignSecurityContext`. Assignment goes first, so that validation sees what would be
//! stored; all containers must pass under the same constraint. Which constraint is tried is for [`super::choose`].

use palisade_base::{field_error::FieldError, field_path::FieldPath};
use palisade_model::{
    change::{Change, NewValue},
    pod::{Container, Pod},
    pod_view::{ContainerKind, ContainerRef, PodView},
    prepare::Prepared,
    profile::seccomp as seccomp_profile,
    security_context::{PodSecurityContext, SecurityContext},
};
use serde_json::{Value, json};

use super::{
    provider::Provider,
    strategy::{
        Place, capabilities, flex_volumes, fs_group, host, privilege_escalation, privileged,
        read_only_root_filesystem, seccomp, supplemental_groups, sysctls, volumes,
    },
};

/// What the answer depends on besides pod and constraint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Major and minor version of the nodes' kernel: newer ones have more safe sysctls.
    pub kernel: (u32, u32),
    /// Whether seccomp profiles may come from ConfigMaps; upstream has no such profiles.
    pub config_map_profiles: bool,
    /// Whether they may come from registries; no release has such profiles.
    pub oci_profiles: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { kernel: (4, 15), config_map_profiles: false, oci_profiles: false }
    }
}

/// What a constraint makes of a pod.
#[derive(Debug, Clone)]
pub struct Evaluation<'x> {
    /// Why the constraint refuses the pod; empty if it does not.
    pub problems: Vec<FieldError>,
    pod: &'x Pod<'x>,
    context: Option<PodSecurityContext<'x>>,
    seccomp_annotation: Option<String>,
    /// The contexts of all containers, in the order of [`PodView::containers`].
    containers: Vec<Option<SecurityContext<'x>>>,
}

/// Lets a constraint assign and validate.
#[must_use]
pub fn evaluate<'x>(provider: &'x Provider<'x>, pod: &'x Prepared<'x>, options: Options) -> Evaluation<'x> {
    let pod = pod.pod();
    let profiles = &provider.constraint.seccomp_profiles;
    let seccomp = seccomp::Strategy::new(profiles, options.config_map_profiles, options.oci_profiles);
    let mut evaluation = Evaluation {
        problems: Vec::new(),
        pod,
        context: pod.spec.security_context.clone(),
        seccomp_annotation: None,
        containers: Vec::with_capacity(pod.spec.init_containers.len() + pod.spec.containers.len()),
    };
    evaluation.assign_pod(provider, seccomp);
    evaluation.validate_pod(provider, seccomp, options);
    for container in PodView::of_pod(pod).containers() {
        let context = evaluation.assign_container(provider, seccomp, container.container);
        evaluation.validate_container(provider, seccomp, container, context.as_ref());
        evaluation.containers.push(context);
    }
    evaluation
}

impl<'x> Evaluation<'x> {
    /// Whether the constraint refuses nothing.
    #[must_use]
    pub const fn allowed(&self) -> bool {
        self.problems.is_empty()
    }

    fn assign_pod(&mut self, provider: &'x Provider<'x>, seccomp: seccomp::Strategy<'_>) {
        let context = self.context.as_ref();
        if context.is_none_or(|context| context.supplemental_groups.is_none())
            && let Some(group) = provider.supplemental_groups.assign()
        {
            self.context.get_or_insert_default().supplemental_groups = Some(vec![group]);
        }
        if self.context.as_ref().is_none_or(|context| context.fs_group.is_none())
            && let Some(group) = provider.fs_group.assign()
        {
            self.context.get_or_insert_default().fs_group = Some(group);
        }
        if self.context.as_ref().is_none_or(|context| context.se_linux_options.is_none())
            && let Some(label) = provider.se_linux.assign()
        {
            self.context.get_or_insert_default().se_linux_options = Some(label);
        }
        if let Some(profile) = seccomp.assign(self.pod) {
            let field = seccomp.to_field(&profile);
            if field.is_some() || self.context.is_some() {
                self.context.get_or_insert_default().seccomp_profile = field;
            }
            self.seccomp_annotation = Some(profile);
        }
    }

    fn seccomp_annotation(&self) -> Option<&str> {
        let own = || self.pod.metadata.annotations.get(seccomp_profile::POD_ANNOTATION);
        self.seccomp_annotation.as_deref().or_else(own)
    }

    fn validate_pod(&mut self, provider: &Provider<'_>, seccomp: seccomp::Strategy<'_>, options: Options) {
        let constraint = provider.constraint;
        let place = Place::pod(constraint.name());
        let default = PodSecurityContext::default();
        let context = self.context.as_ref().unwrap_or(&default);
        let spec = &self.pod.spec;
        let mut problems = std::mem::take(&mut self.problems);
        fs_group::validate(&provider.fs_group, place, context.fs_group, &mut problems);
        let groups = context.supplemental_groups.as_deref().unwrap_or_default();
        supplemental_groups::validate(&provider.supplemental_groups, place, groups, &mut problems);
        seccomp.validate_pod(self.seccomp_annotation(), context.seccomp_profile.as_ref(), &mut problems);
        provider.se_linux.validate(place, context.se_linux_options.as_ref(), &mut problems);
        problems.extend(host::network(constraint, place, spec));
        problems.extend(host::pid(constraint, place, spec));
        problems.extend(host::ipc(constraint, place, spec));
        problems.extend(host::users(constraint, place, spec));
        sysctls::validate(constraint, options.kernel, &context.sysctls, &mut problems);
        volumes::validate(constraint, &spec.volumes, &mut problems);
        flex_volumes::validate(constraint, place, &spec.volumes, &mut problems);
        self.problems = problems;
    }

    fn assign_container(
        &self,
        provider: &'x Provider<'x>,
        seccomp: seccomp::Strategy<'_>,
        container: &Container<'x>,
    ) -> Option<SecurityContext<'x>> {
        let constraint = provider.constraint;
        let pod = self.context.as_ref();
        let mut context = container.security_context.clone();
        if effective(context.as_ref().and_then(|c| c.run_as_user), pod.and_then(|c| c.run_as_user)).is_none()
            && let Some(uid) = provider.run_as_user.assign()
        {
            context.get_or_insert_default().run_as_user = Some(uid);
        }
        let labelled = context.as_ref().is_some_and(|c| c.se_linux_options.is_some())
            || pod.is_some_and(|c| c.se_linux_options.is_some());
        if !labelled && let Some(label) = provider.se_linux.assign() {
            context.get_or_insert_default().se_linux_options = Some(label);
        }
        let user = effective(context.as_ref().and_then(|c| c.run_as_user), pod.and_then(|c| c.run_as_user));
        let non_root =
            effective(context.as_ref().and_then(|c| c.run_as_non_root), pod.and_then(|c| c.run_as_non_root));
        if non_root.is_none() && provider.run_as_user.assign_non_root(user) {
            context.get_or_insert_default().run_as_non_root = Some(true);
        }
        let requested = context.as_ref().and_then(|c| c.capabilities.as_ref());
        if let Some(capabilities) = capabilities::assign(constraint, requested) {
            context.get_or_insert_default().capabilities = Some(capabilities);
        }
        if context.as_ref().is_none_or(|c| c.read_only_root_filesystem.is_none())
            && let Some(read_only) = read_only_root_filesystem::assign(constraint)
        {
            context.get_or_insert_default().read_only_root_filesystem = Some(read_only);
        }
        if let Some(annotation) = seccomp::container_annotation(self.pod, &container.name) {
            let field = seccomp.to_field(annotation);
            if field.is_some() || context.is_some() {
                context.get_or_insert_default().seccomp_profile = field;
            }
        }
        if context.as_ref().is_none_or(|c| c.allow_privilege_escalation.is_none())
            && let Some(allowed) = privilege_escalation::assign(constraint, context.as_ref())
        {
            context.get_or_insert_default().allow_privilege_escalation = Some(allowed);
        }
        context
    }

    fn validate_container(
        &mut self,
        provider: &Provider<'_>,
        seccomp: seccomp::Strategy<'_>,
        container: ContainerRef<'_, '_>,
        context: Option<&SecurityContext<'_>>,
    ) {
        let constraint = provider.constraint;
        let place = Place::container(constraint.name(), container.kind, container.index);
        let pod = self.context.as_ref();
        let spec = &self.pod.spec;
        let mut problems = std::mem::take(&mut self.problems);
        provider.run_as_user.validate(
            place,
            effective(context.and_then(|c| c.run_as_user), pod.and_then(|c| c.run_as_user)),
            effective(context.and_then(|c| c.run_as_non_root), pod.and_then(|c| c.run_as_non_root)),
            &mut problems,
        );
        let label = context.and_then(|c| c.se_linux_options.as_ref());
        let label = label.or_else(|| pod.and_then(|c| c.se_linux_options.as_ref()));
        provider.se_linux.validate(place, label, &mut problems);
        seccomp.validate_container(
            self.pod,
            container.container,
            context.and_then(|c| c.seccomp_profile.as_ref()),
            pod.and_then(|c| c.seccomp_profile.as_ref()),
            self.seccomp_annotation(),
            &mut problems,
        );
        // Groups of one container are an extension; the pod's own are judged with the pod.
        if let Some(groups) = context.and_then(|c| c.run_with_supplemental_groups.as_deref()) {
            supplemental_groups::validate(&provider.supplemental_groups, place, groups, &mut problems);
        }
        problems.extend(privileged::validate(constraint, place, context));
        let capabilities = context.and_then(|c| c.capabilities.as_ref());
        capabilities::validate(constraint, place, capabilities, &mut problems);
        problems.extend(host::network(constraint, place, spec));
        host::ports(constraint, place, PodView::of_pod(self.pod), &mut problems);
        problems.extend(host::pid(constraint, place, spec));
        problems.extend(host::ipc(constraint, place, spec));
        problems.extend(read_only_root_filesystem::validate(
            constraint,
            place,
            context.and_then(|c| c.read_only_root_filesystem),
        ));
        problems.extend(privilege_escalation::validate(
            constraint,
            place,
            context.and_then(|c| c.allow_privilege_escalation),
        ));
        self.problems = problems;
    }

    /// What the constraint would write into the pod, in the order of the fields.
    #[must_use]
    pub fn changes(&self) -> Vec<Change> {
        let mut changes = Vec::new();
        let annotations = &self.pod.metadata.annotations;
        if let Some(profile) = &self.seccomp_annotation
            && annotations.get(seccomp_profile::POD_ANNOTATION) != Some(profile.as_str())
        {
            let at = FieldPath::of(&["metadata", "annotations"]).key(seccomp_profile::POD_ANNOTATION);
            changes.push(Change { at, to: NewValue::Text(profile.clone()) });
        }
        let default = PodSecurityContext::default();
        let before = self.pod.spec.security_context.as_ref().unwrap_or(&default);
        let after = self.context.as_ref().unwrap_or(&default);
        let mut write = |at: FieldPath, value: Option<Value>| {
            let to = value.map_or(NewValue::Removed, NewValue::Json);
            changes.push(Change { at, to });
        };
        let at = |field| FieldPath::of(&["spec", "securityContext", field]);
        if before.supplemental_groups != after.supplemental_groups {
            write(at("supplementalGroups"), after.supplemental_groups.as_ref().map(|groups| json!(groups)));
        }
        if before.fs_group != after.fs_group {
            write(at("fsGroup"), after.fs_group.map(|group| json!(group)));
        }
        if before.se_linux_options != after.se_linux_options {
            write(at("seLinuxOptions"), after.se_linux_options.as_ref().map(|label| json!(label)));
        }
        if before.seccomp_profile != after.seccomp_profile {
            write(at("seccompProfile"), after.seccomp_profile.as_ref().map(|profile| json!(profile)));
        }
        let view = PodView::of_pod(self.pod);
        for (container, after) in view.containers().zip(&self.containers) {
            container_changes(container, &view, after.as_ref(), &mut write);
        }
        changes
    }

    /// Whether the pod would stay as it is, apart from the containers of `free`.
    #[must_use]
    pub fn changes_nothing_but(&self, free: Option<ContainerKind>) -> bool {
        let annotation = self.pod.metadata.annotations.get(seccomp_profile::POD_ANNOTATION);
        let same_annotation =
            self.seccomp_annotation.as_deref().is_none_or(|profile| annotation == Some(profile));
        // An empty context and none at all are the same to the API server: it keeps host namespaces in there.
        let default = PodSecurityContext::default();
        let before = self.pod.spec.security_context.as_ref().unwrap_or(&default);
        let same_context = self.context.as_ref().unwrap_or(&default) == before;
        same_annotation
            && same_context
            && PodView::of_pod(self.pod).containers().zip(&self.containers).all(|(container, after)| {
                Some(container.kind) == free || container.security_context() == after.as_ref()
            })
    }
}

fn container_changes(
    container: ContainerRef<'_, '_>,
    view: &PodView<'_, '_>,
    after: Option<&SecurityContext<'_>>,
    write: &mut impl FnMut(FieldPath, Option<Value>),
) {
    let default = SecurityContext::default();
    let before = container.security_context().unwrap_or(&default);
    let after = after.unwrap_or(&default);
    if before == after {
        return;
    }
    let at = |field| container.path(view).fields(&["securityContext", field]);
    if before.capabilities != after.capabilities {
        write(at("capabilities"), after.capabilities.as_ref().map(|capabilities| json!(capabilities)));
    }
    if before.se_linux_options != after.se_linux_options {
        write(at("seLinuxOptions"), after.se_linux_options.as_ref().map(|label| json!(label)));
    }
    if before.run_as_user != after.run_as_user {
        write(at("runAsUser"), after.run_as_user.map(|uid| json!(uid)));
    }
    for (field, before, after) in [
        ("runAsNonRoot", before.run_as_non_root, after.run_as_non_root),
        ("readOnlyRootFilesystem", before.read_only_root_filesystem, after.read_only_root_filesystem),
        ("allowPrivilegeEscalation", before.allow_privilege_escalation, after.allow_privilege_escalation),
    ] {
        if before != after {
            write(at(field), after.map(|value| json!(value)));
        }
    }
    if before.seccomp_profile != after.seccomp_profile {
        write(at("seccompProfile"), after.seccomp_profile.as_ref().map(|profile| json!(profile)));
    }
}

/// What a container runs with: its own value, or the pod's.
fn effective<T>(container: Option<T>, pod: Option<T>) -> Option<T> {
    container.or(pod)
}
