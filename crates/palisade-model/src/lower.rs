//! The pod-security-context proposal, turned into the fields that Kubernetes has.
//!
//! Implements: `containerDefaults`, `runAsGroup`, `runWithSupplementalGroups`, and `hostNetwork`/`hostIPC` inside the
//! pod's security context. What the v1 API has at pod level goes there; capabilities and `privileged` go to every
//! container that does not specify otherwise. Groups of a single container have no v1 field and are reported.

use palisade_base::field_path::{FieldPath, PathStep};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    change::{Change, NewValue},
    pod::Pod,
    pod_view::{ContainerKind, PodView},
    prepare::Subject,
    security_context::SecurityContext,
};

/// One step of the lowering.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lowering {
    /// Put this value there.
    Set(FieldPath, Value),
    /// Take this field away.
    Remove(FieldPath),
    /// This has no form in v1.
    Impossible(FieldPath, &'static str),
}

/// What must be written to have the same effect in v1 fields; empty if nothing of the proposal is used.
#[must_use]
pub fn lower(view: &PodView<'_, '_>) -> Vec<Lowering> {
    let mut steps = Vec::new();
    let Some(context) = view.security_context() else { return steps };
    let context_path = |field: &'static str| view.path(&["spec", "securityContext", field]);

    for (field, proposed, current) in [
        ("hostNetwork", context.host_network, view.spec().host_network),
        ("hostIPC", context.host_ipc, view.spec().host_ipc),
    ] {
        let Some(value) = proposed else { continue };
        if current.is_none() && value {
            steps.push(Lowering::Set(view.path(&["spec", field]), json!(value)));
        }
        steps.push(Lowering::Remove(context_path(field)));
    }

    if let Some(defaults) = context.container_defaults.as_deref() {
        for (field, value, current) in [
            ("runAsUser", defaults.run_as_user.map(|v| json!(v)), context.run_as_user.is_some()),
            ("runAsGroup", defaults.run_as_group.map(|v| json!(v)), context.run_as_group.is_some()),
            ("runAsNonRoot", defaults.run_as_non_root.map(|v| json!(v)), context.run_as_non_root.is_some()),
            (
                "seLinuxOptions",
                defaults.se_linux_options.as_ref().map(|v| json!(v)),
                context.se_linux_options.is_some(),
            ),
            (
                "supplementalGroups",
                defaults.run_with_supplemental_groups.as_ref().map(|v| json!(v)),
                context.supplemental_groups.is_some(),
            ),
        ] {
            match value {
                Some(value) if !current => steps.push(Lowering::Set(context_path(field), value)),
                Some(_) => steps.push(Lowering::Impossible(
                    context_path(field),
                    "the pod already has another value; keep one of the two",
                )),
                None => {}
            }
        }
        copy_to_containers(view, defaults, &mut steps);
        steps.push(Lowering::Remove(context_path("containerDefaults")));
    }
    for container in view.containers() {
        if container.security_context().is_some_and(|own| own.run_with_supplemental_groups.is_some()) {
            let at = container.path(view).fields(&["securityContext", "runWithSupplementalGroups"]);
            steps.push(Lowering::Impossible(at, "Kubernetes has supplementalGroups for the whole pod only"));
        }
    }
    steps
}

fn copy_to_containers(view: &PodView<'_, '_>, defaults: &SecurityContext<'_>, steps: &mut Vec<Lowering>) {
    for container in view.containers() {
        let own = container.security_context();
        for (field, value, set) in [
            (
                "capabilities",
                defaults.capabilities.as_ref().map(|v| json!(v)),
                own.is_some_and(|own| own.capabilities.is_some()),
            ),
            (
                "privileged",
                defaults.privileged.map(|v| json!(v)),
                own.is_some_and(|own| own.privileged.is_some()),
            ),
            (
                "readOnlyRootFilesystem",
                defaults.read_only_root_filesystem.map(|v| json!(v)),
                own.is_some_and(|own| own.read_only_root_filesystem.is_some()),
            ),
            (
                "allowPrivilegeEscalation",
                defaults.allow_privilege_escalation.map(|v| json!(v)),
                own.is_some_and(|own| own.allow_privilege_escalation.is_some()),
            ),
            (
                "procMount",
                defaults.proc_mount.as_ref().map(|v| json!(v)),
                own.is_some_and(|own| own.proc_mount.is_some()),
            ),
            (
                "seccompProfile",
                defaults.seccomp_profile.as_ref().map(|v| json!(v)),
                own.is_some_and(|own| own.seccomp_profile.is_some()),
            ),
            (
                "appArmorProfile",
                defaults.app_armor_profile.as_ref().map(|v| json!(v)),
                own.is_some_and(|own| own.app_armor_profile.is_some()),
            ),
            (
                "windowsOptions",
                defaults.windows_options.as_ref().map(|v| json!(v)),
                own.is_some_and(|own| own.windows_options.is_some()),
            ),
        ] {
            if let (Some(value), false) = (value, set) {
                let at = container.path(view).fields(&["securityContext", field]);
                steps.push(Lowering::Set(at, value));
            }
        }
    }
}

/// Projects the proposal's settings onto the fields that Kubernetes has, in place, and records what was written. The settings
/// themselves stay. What the pod or a container sets for itself wins.
pub(crate) fn project_defaults(pod: &mut Pod<'_>, subject: Subject, changes: &mut Vec<Change>) {
    let Some(context) = &pod.spec.security_context else { return };
    let defaults = context.container_defaults.clone();
    for (field, own, proposed) in [
        ("hostNetwork", &mut pod.spec.host_network, context.host_network),
        ("hostIPC", &mut pod.spec.host_ipc, context.host_ipc),
    ] {
        if let (None, Some(value)) = (&own, proposed) {
            *own = Some(value);
            let to = NewValue::Json(json!(value));
            changes.push(Change { at: subject.path(&["spec", field]), to });
        }
    }
    let Some(defaults) = defaults else { return };
    let lists = [
        (ContainerKind::Init, &mut pod.spec.init_containers),
        (ContainerKind::App, &mut pod.spec.containers),
        (ContainerKind::Ephemeral, &mut pod.spec.ephemeral_containers),
    ];
    for (kind, list) in lists {
        for (index, container) in list.iter_mut().enumerate() {
            let own = container.security_context.get_or_insert_default();
            let path = subject.path(&["spec", kind.field()]).index(index).field("securityContext");
            let mut wrote = |field: &'static str, value: Value| {
                changes.push(Change { at: path.clone().field(field), to: NewValue::Json(value) });
            };
            // One line for each field of a container's security context; `every_setting_is_projected` counts them.
            inherit(&mut own.capabilities, defaults.capabilities.as_ref(), "capabilities", &mut wrote);
            inherit(&mut own.privileged, defaults.privileged.as_ref(), "privileged", &mut wrote);
            inherit(
                &mut own.se_linux_options,
                defaults.se_linux_options.as_ref(),
                "seLinuxOptions",
                &mut wrote,
            );
            inherit(&mut own.run_as_user, defaults.run_as_user.as_ref(), "runAsUser", &mut wrote);
            inherit(&mut own.run_as_group, defaults.run_as_group.as_ref(), "runAsGroup", &mut wrote);
            inherit(&mut own.run_as_non_root, defaults.run_as_non_root.as_ref(), "runAsNonRoot", &mut wrote);
            inherit(
                &mut own.read_only_root_filesystem,
                defaults.read_only_root_filesystem.as_ref(),
                "readOnlyRootFilesystem",
                &mut wrote,
            );
            inherit(
                &mut own.allow_privilege_escalation,
                defaults.allow_privilege_escalation.as_ref(),
                "allowPrivilegeEscalation",
                &mut wrote,
            );
            inherit(&mut own.proc_mount, defaults.proc_mount.as_ref(), "procMount", &mut wrote);
            inherit(
                &mut own.seccomp_profile,
                defaults.seccomp_profile.as_ref(),
                "seccompProfile",
                &mut wrote,
            );
            inherit(
                &mut own.app_armor_profile,
                defaults.app_armor_profile.as_ref(),
                "appArmorProfile",
                &mut wrote,
            );
            inherit(
                &mut own.run_with_supplemental_groups,
                defaults.run_with_supplemental_groups.as_ref(),
                "runWithSupplementalGroups",
                &mut wrote,
            );
            let Some(windows) = &defaults.windows_options else { continue };
            // Windows options are overridden field by field, as a pod's are by its containers.
            let own = own.windows_options.get_or_insert_default();
            let at = path.field("windowsOptions");
            let mut wrote = |field: &'static str, value: Value| {
                changes.push(Change { at: at.clone().field(field), to: NewValue::Json(value) });
            };
            let (name, spec) =
                (windows.gmsa_credential_spec_name.as_ref(), windows.gmsa_credential_spec.as_ref());
            // Name and text of the credential spec belong together.
            if own.gmsa_credential_spec_name.is_none() && own.gmsa_credential_spec.is_none() {
                inherit(&mut own.gmsa_credential_spec_name, name, "gmsaCredentialSpecName", &mut wrote);
                inherit(&mut own.gmsa_credential_spec, spec, "gmsaCredentialSpec", &mut wrote);
            }
            inherit(
                &mut own.run_as_user_name,
                windows.run_as_user_name.as_ref(),
                "runAsUserName",
                &mut wrote,
            );
            inherit(&mut own.host_process, windows.host_process.as_ref(), "hostProcess", &mut wrote);
        }
    }
}

fn inherit<T: Clone + Serialize>(
    own: &mut Option<T>,
    default: Option<&T>,
    field: &'static str,
    wrote: &mut impl FnMut(&'static str, Value),
) {
    if let (None, Some(value)) = (&own, default) {
        wrote(field, json!(value));
        *own = Some(value.clone());
    }
}

/// The setting of the proposal that decides a projected field.
pub(crate) fn origin(view: &PodView<'_, '_>, path: &FieldPath) -> Option<FieldPath> {
    let is = |step: &PathStep, name: &str| matches!(step, PathStep::Field(field) if field == name);
    let last = path.steps().last()?;
    if is(last, "hostNetwork") || is(last, "hostIPC") {
        return Some(FieldPath::from(
            [view.path(&["spec", "securityContext"]).steps(), std::slice::from_ref(last)].concat(),
        ));
    }
    let context = path.steps().iter().rposition(|step| is(step, "securityContext"))?;
    let below = path.steps().get(context + 1..)?;
    let defaults = view.path(&["spec", "securityContext", "containerDefaults"]);
    Some(FieldPath::from([defaults.steps(), below].concat()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use serde::Deserialize as _;

    use super::project_defaults;
    use crate::{pod::Pod, prepare::Subject, security_context::SecurityContext};

    /// Every field a container's security context may have, each with a value.
    fn everything() -> serde_json::Value {
        json!({"capabilities": {"add": ["A"], "drop": ["B"]}, "privileged": true, "seLinuxOptions": {"type": "t"},
            "windowsOptions": {"hostProcess": true}, "runAsUser": 1, "runAsGroup": 2, "runAsNonRoot": true,
            "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": true, "procMount": "Unmasked",
            "seccompProfile": {"type": "Unconfined"}, "appArmorProfile": {"type": "Unconfined"},
            "runWithSupplementalGroups": [3]})
    }

    #[test]
    fn every_setting_is_projected() {
        let pod = json!({"spec": {"securityContext": {"containerDefaults": everything()},
            "initContainers": [{"name": "i"}], "containers": [{"name": "c"}], "ephemeralContainers": [{"name": "e"}]}});
        let mut pod = Pod::deserialize(&pod).unwrap();
        let mut changes = Vec::new();
        project_defaults(&mut pod, Subject::Pod, &mut changes);
        for container in
            [&pod.spec.init_containers[0], &pod.spec.containers[0], &pod.spec.ephemeral_containers[0]]
        {
            assert_eq!(serde_json::to_value(container.security_context.as_ref()).unwrap(), everything());
        }
        let fields = everything().as_object().unwrap().len();
        assert_eq!(changes.len(), 3 * fields);
        // A field that is added to the type must be added above, and so to the projection.
        let default = format!("{:?}", SecurityContext::default());
        assert_eq!(default.matches(": ").count(), fields, "{default}");
    }

    #[test]
    fn what_a_container_sets_for_itself_wins() {
        let pod = json!({"spec": {"hostIPC": false, "securityContext": {"hostIPC": true, "hostNetwork": true,
            "containerDefaults": {"privileged": true, "runAsUser": 0}},
            "containers": [{"name": "c", "securityContext": {"privileged": false}}]}});
        let mut pod = Pod::deserialize(&pod).unwrap();
        project_defaults(&mut pod, Subject::Pod, &mut Vec::new());
        let own = pod.spec.containers[0].security_context.clone().unwrap();
        assert_eq!((own.privileged, own.run_as_user), (Some(false), Some(0)));
        assert_eq!((pod.spec.host_network, pod.spec.host_ipc), (Some(true), Some(false)));
    }
}
