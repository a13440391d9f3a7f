//! Notes that a table of values cannot show: version skew, settings that cancel each other, containers that cannot start.
//!
//! Facts: the kubelet's profile resolution of each release, the CRI contract for privileged containers, and the
//! version skew policy of Kubernetes.

use palisade_base::version::{KubeVersion, NEWEST_MINOR};
use palisade_model::{
    compat::Compat,
    effective::EffectiveContext,
    node::{
        ImageUser, Source, honours_seccomp_annotations, non_root_violation, resolve_app_armor,
        resolve_seccomp,
    },
    pod_view::ContainerRef,
    prepare::Prepared,
    profile::ProfileRef,
};

/// The last kubelet before seccomp had fields; it reads annotations only.
const ANNOTATIONS_ONLY: u16 = 18;
/// The first release that ignores seccomp annotations everywhere.
const ANNOTATIONS_DEAD: u16 = 27;

pub(super) fn of_container(
    pod: &Prepared<'_>,
    effective: &EffectiveContext<'_>,
    compat: &Compat,
) -> Vec<String> {
    let mut notes = Vec::new();
    let container = pod
        .view()
        .containers()
        .find(|container| container.kind == effective.kind && container.name() == effective.container);
    if let Some(container) = container {
        seccomp(pod, &container, effective, compat, &mut notes);
        app_armor(pod, &container, effective, compat, &mut notes);
    }
    if effective.privileged.value {
        notes.push(
            "privileged: the runtime gives it every capability and every device, and applies no seccomp profile and no AppArmor profile except an explicit Localhost one"
                .to_owned(),
        );
    }
    non_root(effective, compat, &mut notes);
    notes
}

fn seccomp(
    pod: &Prepared<'_>,
    container: &ContainerRef<'_, '_>,
    effective: &EffectiveContext<'_>,
    compat: &Compat,
    notes: &mut Vec<String>,
) {
    let runs = match &effective.seccomp.profile {
        Ok(profile) => format!("this container runs {profile}"),
        Err(error) => {
            notes.push(format!("this container does not start: {error}"));
            "this container does not start".to_owned()
        }
    };
    let on = |minor: u16| {
        let kubelet = KubeVersion::v1(minor);
        resolve_seccomp(pod, container, &Compat { kubelet, ..*compat })
    };
    let kubelet = compat.kubelet;
    if effective.seccomp.ignored.is_some() {
        let old = on(ANNOTATIONS_ONLY);
        // Where the field is the same, the annotation makes no difference.
        if old.profile != effective.seccomp.profile {
            notes.push(format!(
                "annotation honoured by kubelet v1.{ANNOTATIONS_ONLY}, ignored by {kubelet}: {runs}"
            ));
        }
    } else if matches!(effective.seccomp.source, Source::Annotation(_))
        && honours_seccomp_annotations(kubelet)
    {
        let later = on(ANNOTATIONS_DEAD);
        if later.profile != effective.seccomp.profile {
            let then = later
                .profile
                .map_or_else(|error| format!("does not start: {error}"), |p| format!("runs {p}"));
            notes.push(format!(
                "annotation honoured by kubelet {kubelet}, ignored by v1.{ANNOTATIONS_DEAD}: after an upgrade this container {then}"
            ));
        }
    }
    if let KubeVersion::Release { minor, .. } = kubelet
        && minor <= ANNOTATIONS_ONLY
    {
        let new = on(NEWEST_MINOR);
        if new.profile != effective.seccomp.profile && new.source.path().is_some() {
            notes.push(format!("seccompProfile is not known to kubelet {kubelet}, which ignores it: {runs}"));
        }
    }
    let unset = matches!(effective.seccomp.source, Source::Default(_));
    if unset && effective.seccomp.profile == Ok(ProfileRef::Unconfined) && effective.seccomp.ignored.is_none()
    {
        notes.push("nothing sets a seccomp profile: it may make every system call, unless the kubelet has --seccomp-default".to_owned());
    }
}

fn app_armor(
    pod: &Prepared<'_>,
    container: &ContainerRef<'_, '_>,
    effective: &EffectiveContext<'_>,
    compat: &Compat,
    notes: &mut Vec<String>,
) {
    if let Some(Err(error)) = &effective.app_armor.profile {
        notes.push(format!("this container does not start: {error}"));
    }
    if compat.kubelet.minor() >= 30 {
        return;
    }
    let newest = Compat { kubelet: KubeVersion::v1(NEWEST_MINOR), ..*compat };
    let new = resolve_app_armor(pod, container, &newest);
    if new.profile != effective.app_armor.profile && new.source.path().is_some() {
        let runs = match &effective.app_armor.profile {
            Some(Ok(profile)) => format!("this container runs {profile}"),
            Some(Err(_)) => "this container does not start".to_owned(),
            None => "this container runs with the runtime's own profile".to_owned(),
        };
        notes.push(format!(
            "appArmorProfile is not known to kubelet {}, which ignores it: {runs}",
            compat.kubelet
        ));
    }
}

fn non_root(effective: &EffectiveContext<'_>, compat: &Compat, notes: &mut Vec<String>) {
    let non_root = effective.run_as_non_root.value == Some(true);
    let user = effective.run_as_user.value;
    if !non_root {
        return;
    }
    if user == Some(0) {
        let text =
            non_root_violation(true, user, &ImageUser::Uid(0), "", "", compat.kubelet).unwrap_or_default();
        let text = text.split(" (pod:").next().unwrap_or_default().to_owned();
        notes.push(format!("this container does not start: {text}"));
    } else if user.is_none() {
        notes.push("runAsNonRoot without runAsUser: the image must name a user by number other than 0, or the container does not start".to_owned());
    }
}

/// A violation of the version skew policy.
pub(super) fn skew(compat: &Compat) -> Option<String> {
    let (KubeVersion::Release { minor: api, .. }, KubeVersion::Release { minor, .. }) =
        (compat.api, compat.kubelet)
    else {
        return None;
    };
    let kubelet = compat.kubelet;
    // From v1.28 on a kubelet may be three minor versions older, before two.
    let oldest = api.saturating_sub(if api >= 28 { 3 } else { 2 });
    if minor > api {
        Some(format!(
            "kubelet {kubelet} is newer than API server v1.{api}, which Kubernetes does not support"
        ))
    } else if minor < oldest {
        Some(format!(
            "kubelet {kubelet} is too old for API server v1.{api}, which supports v1.{oldest} and newer"
        ))
    } else {
        None
    }
}
