//! Which edits fix a finding in this pod, and whether the containers would still run as before.
//!
//! A check knows what its rule requires. Here the rest of the pod counts as well: an image that runs as root does not start
//! with `runAsNonRoot: true`, and from v1.35 of the standards on a user namespace takes its place. An edit is *safe* if the
//! containers behave as before, for a reason that the pod itself gives; everything else may change their behaviour.
//! docs/fixes.md has the whole list.

use std::{borrow::Cow, fmt};

use palisade_base::field_path::{FieldPath, PathStep};
use palisade_model::{
    pod_view::{ContainerRef, PodView},
    profile::{apparmor, kind, seccomp},
};
use serde_json::{Value, json};

use super::{
    checks::capabilities_baseline,
    finding::{Edit, Finding, Remedy},
};

/// The user that an image sets, for a container that sets none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageUser {
    /// A user ID; 0 also where the image sets none.
    Id(u64),
    /// A name, which the kubelet cannot tell from root.
    Name(String),
}

/// The user of an image by the reference in the manifest, if it is known.
pub type ImageUsers<'u> = &'u (dyn Fn(&str) -> Option<ImageUser> + 'u);

/// What decides about a fix, besides the pod.
#[derive(Clone, Copy)]
pub struct Situation<'s> {
    /// The version of the standards, `v1.<minor>`.
    pub policy_minor: u16,
    /// Whether the API server keeps `hostUsers`.
    pub keeps_host_users: bool,
    /// The users of images.
    pub users: ImageUsers<'s>,
}

impl fmt::Debug for Situation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Situation")
            .field("policy_minor", &self.policy_minor)
            .field("keeps_host_users", &self.keeps_host_users)
            .finish_non_exhaustive()
    }
}

/// Whether the containers run as before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// They do, and why.
    Safe(Cow<'static, str>),
    /// They may not, and how.
    MayChange(Cow<'static, str>),
}

impl Effect {
    /// Whether the containers run as before.
    #[must_use]
    pub const fn is_safe(&self) -> bool {
        matches!(self, Self::Safe(_))
    }

    /// `safe` or `may change behaviour`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        if self.is_safe() { "safe" } else { "may change behaviour" }
    }

    /// Why.
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Self::Safe(reason) | Self::MayChange(reason) => reason,
        }
    }
}

/// An edit and what it does to the containers.
#[derive(Debug, Clone, PartialEq)]
pub struct FixEdit {
    /// The edit.
    pub edit: Edit,
    /// What it does.
    pub effect: Effect,
}

/// What to do about a finding.
#[derive(Debug, Clone, PartialEq)]
pub enum Advice {
    /// Edits that a machine can make, all of them or none.
    Edits(Vec<FixEdit>),
    /// No automatic fix, and why.
    Manual(Cow<'static, str>),
}

/// What to do about a finding of a check in this pod.
#[must_use]
pub fn advice(check: &str, finding: &Finding, pod: &PodView<'_, '_>, situation: &Situation<'_>) -> Advice {
    let edits = match &finding.remedy {
        Remedy::Manual(reason) => return Advice::Manual((*reason).into()),
        Remedy::Edits(edits) => edits,
    };
    if let Some(edit) = user_namespace(check, pod, situation) {
        return Advice::Edits(vec![edit]);
    }
    if let Some(reason) = edits.iter().find_map(|edit| needs_another_user(edit, pod, situation)) {
        return Advice::Manual(reason.into());
    }
    let with_effect = |edit: &Edit| FixEdit { edit: edit.clone(), effect: effect(edit, pod, situation) };
    Advice::Edits(edits.iter().map(with_effect).collect())
}

/// The one edit that lets a pod keep its root user: from v1.35 on the standards accept it in a user namespace.
fn user_namespace(check: &str, pod: &PodView<'_, '_>, situation: &Situation<'_>) -> Option<FixEdit> {
    let spec = pod.spec();
    let relaxed = situation.policy_minor >= 35 && situation.keeps_host_users;
    let shares = [spec.host_network, spec.host_pid, spec.host_ipc].contains(&Some(true));
    if !relaxed || shares || spec.is_windows() || spec.has_user_namespace() {
        return None;
    }
    let wanted = match check {
        "procMount" => true,
        "runAsNonRoot" | "runAsUser" => is_root(pod, situation),
        _ => false,
    };
    wanted.then(|| FixEdit {
        edit: Edit::Set(pod.path(&["spec", "hostUsers"]), json!(false)),
        effect: Effect::MayChange(
            "the root user of the containers becomes one without rights on the node, which needs a node and volumes that support user namespaces"
                .into(),
        ),
    })
}

/// Whether a container is known to run as root, or asks to be able to.
fn is_root(pod: &PodView<'_, '_>, situation: &Situation<'_>) -> bool {
    let allows_root = |non_root: Option<bool>| non_root == Some(false);
    allows_root(pod.security_context().and_then(|context| context.run_as_non_root))
        || pod.containers().any(|container| {
            allows_root(container.security_context().and_then(|context| context.run_as_non_root))
                || user(&container, pod, situation) == Some(ImageUser::Id(0))
        })
}

/// The user of a container, if the pod or the image tells.
fn user(
    container: &ContainerRef<'_, '_>,
    pod: &PodView<'_, '_>,
    situation: &Situation<'_>,
) -> Option<ImageUser> {
    match set_user(container, pod) {
        Some(id) => Some(ImageUser::Id(id)),
        None => (situation.users)(container.container.image.as_str()),
    }
}

fn set_user(container: &ContainerRef<'_, '_>, pod: &PodView<'_, '_>) -> Option<u64> {
    let own = container.security_context().and_then(|context| context.run_as_user);
    let id = own.or_else(|| pod.security_context().and_then(|context| context.run_as_user))?;
    // A negative one is rejected by every API server; that it counts as root makes nothing look safe.
    Some(u64::try_from(id).unwrap_or(0))
}

/// The containers for which an edit sets `runAsNonRoot: true`.
fn made_non_root<'p, 'a>(edit: &Edit, pod: &PodView<'p, 'a>) -> Vec<ContainerRef<'p, 'a>> {
    let Edit::Set(path, Value::Bool(true)) = edit else { return Vec::new() };
    let (container, field) = split(path, pod);
    match (container, field.as_slice()) {
        (Some(container), ["securityContext", "runAsNonRoot"]) => vec![container],
        (None, ["spec", "securityContext", "runAsNonRoot"]) => {
            let own = |container: &ContainerRef<'_, '_>| {
                container.security_context().and_then(|context| context.run_as_non_root)
            };
            pod.containers().filter(|container| own(container).is_none()).collect()
        }
        _ => Vec::new(),
    }
}

/// Why `runAsNonRoot: true` would keep a container from starting.
fn needs_another_user(edit: &Edit, pod: &PodView<'_, '_>, situation: &Situation<'_>) -> Option<String> {
    made_non_root(edit, pod).iter().find_map(|container| {
        // User 0 is a finding of its own, and gives way to the user of the image.
        if set_user(container, pod).is_some_and(|id| id != 0) {
            return None;
        }
        let image = container.container.image.as_str();
        match (situation.users)(image)? {
            ImageUser::Id(0) => Some(format!(
                "the image {image} of {} runs as root; set runAsUser to a user that it works with",
                called(container)
            )),
            ImageUser::Id(_) => None,
            ImageUser::Name(name) => Some(format!(
                "the image {image} of {} runs as the user {name}, and the kubelet needs its number; set runAsUser to it",
                called(container)
            )),
        }
    })
}

fn called(container: &ContainerRef<'_, '_>) -> String {
    format!("{} \"{}\"", container.kind.noun(), container.name())
}

/// What an edit does to the containers of a pod.
fn effect(edit: &Edit, pod: &PodView<'_, '_>, situation: &Situation<'_>) -> Effect {
    let safe = |reason: &'static str| Effect::Safe(reason.into());
    let may = |reason: &'static str| Effect::MayChange(reason.into());
    let (container, field) = split(edit.path(), pod);
    match (container, field.as_slice(), edit) {
        (_, [.., "localhostProfile" | "configMapProfile" | "oci"], Edit::Remove(_)) => {
            safe("nothing reads the reference of another profile type")
        }
        (_, ["metadata", "annotations", key], Edit::Remove(_)) => annotation_removed(key, pod)
            .map_or_else(|| may("the annotation selects the profile"), Effect::Safe),
        (_, ["metadata", "annotations", ..], _) => may("the container runs with another profile"),
        (_, [.., "runAsNonRoot"], _) => non_root(edit, pod, situation),
        (
            _,
            ["spec", "securityContext", "seccompProfile"] | ["securityContext", "seccompProfile"],
            Edit::Set(_, value),
        ) => confined(container, value, pod),
        (_, [.., "seccompProfile", "type"], _) => {
            may("the profile was chosen on purpose; the runtime's own blocks more system calls")
        }
        (_, [.., "appArmorProfile", "type"], _) => {
            may("the profile was chosen on purpose; the runtime's own denies more")
        }
        (Some(container), ["securityContext", "capabilities", "drop", ..], _) => {
            dropped(&container, edit, pod)
        }
        (Some(container), ["securityContext", "capabilities", "add", ..], _) => {
            if powerless(&container, pod) {
                safe(POWERLESS)
            } else {
                may("the container loses a capability that it asks for")
            }
        }
        (_, [.., "privileged"], _) => may("the container loses every right on the node"),
        (_, [.., "allowPrivilegeEscalation"], _) => may(
            "programs with a set-user-ID bit or file capabilities, such as sudo and ping, run without them",
        ),
        (_, [.., "runAsUser"], _) => may("the container runs as the user of its image instead of root"),
        (_, [.., "hostPort"], _) => may("nobody reaches the container by the address of its node any more"),
        (_, [.., "procMount"], _) => may("parts of /proc become unreadable or read-only"),
        (_, [.., "seLinuxOptions", _], _) => may("the container runs with the SELinux label of the runtime"),
        (_, ["spec", "securityContext", "sysctls", ..], _) => {
            may("the kernel setting goes back to its default")
        }
        (_, [.., "host"], _) => may("the kubelet connects to the pod instead of that host"),
        _ => may("the setting changes"),
    }
}

/// An annotation without effect can go.
fn annotation_removed(key: &str, pod: &PodView<'_, '_>) -> Option<Cow<'static, str>> {
    let of = |container: Option<&str>| match container {
        Some(name) => {
            pod.container(name).map(|container| container.security_context().cloned().unwrap_or_default())
        }
        None => None,
    };
    if let Some(name) = key.strip_prefix(apparmor::ANNOTATION_PREFIX) {
        return match of(Some(name)) {
            None => Some("the annotation names no container of the pod".into()),
            Some(context) => {
                context.app_armor_profile.is_some().then(|| "the field beside it decides".into())
            }
        };
    }
    seccomp::is_annotation(key).then(|| "the field decides".into())
}

/// `runAsNonRoot: true` has no effect on a container that does not run as root.
fn non_root(edit: &Edit, pod: &PodView<'_, '_>, situation: &Situation<'_>) -> Effect {
    let containers = made_non_root(edit, pod);
    let mut reasons = Vec::new();
    for container in &containers {
        match (set_user(container, pod), user(container, pod, situation)) {
            (Some(0), _) | (None, Some(ImageUser::Id(0))) => {
                return Effect::MayChange(format!("{} runs as root", called(container)).into());
            }
            (Some(id), _) => reasons.push(format!("{} runs as user {id}", called(container))),
            (None, Some(ImageUser::Id(id))) => {
                reasons.push(format!("the image of {} runs as user {id}", called(container)));
            }
            (None, Some(ImageUser::Name(_)) | None) => {
                return Effect::MayChange(
                    format!(
                        "which user the image of {} runs as is not known (--image-layout tells); with root it would not start",
                        called(container)
                    )
                    .into(),
                );
            }
        }
    }
    if reasons.is_empty() {
        return Effect::MayChange("a container that runs as root would not start".into());
    }
    Effect::Safe(reasons.join(", ").into())
}

/// The runtime's profile where nothing was chosen.
fn confined(container: Option<ContainerRef<'_, '_>>, value: &Value, pod: &PodView<'_, '_>) -> Effect {
    if value.get("type").and_then(Value::as_str) != Some(kind::RUNTIME_DEFAULT) {
        return Effect::MayChange("the profile that the annotation names takes effect".into());
    }
    let own = |container: &ContainerRef<'_, '_>| {
        container.security_context().is_some_and(|context| context.seccomp_profile.is_some())
    };
    let confined: Vec<ContainerRef<'_, '_>> = match container {
        Some(container) => vec![container],
        None => pod.containers().filter(|container| !own(container)).collect(),
    };
    if let Some(container) = confined.iter().find(|container| has_rights(container)) {
        return Effect::MayChange(
            format!("{} has rights that the runtime's profile takes away in part", called(container)).into(),
        );
    }
    Effect::Safe(
        "no profile was chosen, and the runtime's own blocks what the container has no capability for, and little else".into(),
    )
}

/// Whether a container has more capabilities than runtimes give by default.
fn has_rights(container: &ContainerRef<'_, '_>) -> bool {
    container.security_context().is_some_and(|context| {
        context.privileged == Some(true)
            || context.capabilities.as_ref().is_some_and(|capabilities| {
                capabilities.add.iter().any(|name| !capabilities_baseline::ALLOWED.contains(&name.as_str()))
            })
    })
}

const POWERLESS: &str = "the container runs as another user than root and cannot gain privileges, and so has no capabilities to lose";

/// Whether no process of the container can have a capability: none starts as root, and none can become it.
fn powerless(container: &ContainerRef<'_, '_>, pod: &PodView<'_, '_>) -> bool {
    let own = container.security_context();
    let of_pod = pod.security_context();
    let non_root = own
        .and_then(|context| context.run_as_non_root)
        .or_else(|| of_pod.and_then(|context| context.run_as_non_root));
    let is_other = set_user(container, pod).map_or(non_root == Some(true), |id| id != 0);
    is_other
        && own.is_some_and(|context| {
            context.allow_privilege_escalation == Some(false) && context.privileged != Some(true)
        })
}

fn dropped(container: &ContainerRef<'_, '_>, edit: &Edit, pod: &PodView<'_, '_>) -> Effect {
    let drops = container.security_context().and_then(|context| context.capabilities.as_ref());
    let says_all = drops.is_some_and(|capabilities| {
        capabilities.drop.iter().any(|name| name.as_str().eq_ignore_ascii_case("ALL"))
    });
    match edit {
        Edit::Set(..) if says_all => {
            Effect::Safe("runtimes read the name in any case; the standards only in capitals".into())
        }
        _ if powerless(container, pod) => Effect::Safe(POWERLESS.into()),
        _ => {
            Effect::MayChange("what the container does with a default capability of the runtime fails".into())
        }
    }
}

/// The container of a path and the fields below it, or the fields below the pod.
fn split<'p, 'a, 'f>(
    path: &'f FieldPath,
    pod: &PodView<'p, 'a>,
) -> (Option<ContainerRef<'p, 'a>>, Vec<&'f str>) {
    let names = |skip: usize| {
        path.steps()
            .iter()
            .skip(skip)
            .map(|step| match step {
                PathStep::Field(name) => &**name,
                PathStep::Key(key) => key.as_str(),
                PathStep::Index(_) => "[]",
            })
            .collect::<Vec<_>>()
    };
    for container in pod.containers() {
        let base = container.path(pod);
        if base.contains(path) {
            return (Some(container), names(base.steps().len()));
        }
    }
    (None, names(pod.base().steps().len()))
}
