//! The registry: every check of the standards, in the order upstream reports them.
//!
//! A new version of a check is a new [`CheckVersion`] in its file; published versions are never edited.

mod allow_privilege_escalation;
pub(super) mod app_armor_profile;
pub(crate) mod capabilities_baseline;
pub(super) mod capabilities_restricted;
pub(super) mod host_namespaces;
mod host_path_volumes;
mod host_ports;
pub(super) mod host_probes_and_host_lifecycle;
mod privileged;
pub(super) mod proc_mount;
mod proc_mount_restricted;
pub(super) mod restricted_volumes;
mod run_as_non_root;
mod run_as_user;
pub(super) mod se_linux_options;
pub(super) mod seccomp_profile_baseline;
mod seccomp_profile_restricted;
pub(crate) mod sysctls;
mod windows_host_process;

use palisade_model::pod_view::{ContainerRef, PodView};

use super::{
    evaluator::{Check, CheckVersion, Options},
    finding::{Edit, Finding, Remedy, Violation},
    level::Level,
    message,
};

/// Every check: baseline ids sorted by bytes, then restricted ids sorted by bytes.
pub static CHECKS: &[&Check] = &[
    &app_armor_profile::CHECK,
    &capabilities_baseline::CHECK,
    &host_namespaces::CHECK,
    &host_path_volumes::CHECK,
    &host_ports::CHECK,
    &host_probes_and_host_lifecycle::CHECK,
    &privileged::CHECK,
    &proc_mount::CHECK,
    &se_linux_options::CHECK,
    &seccomp_profile_baseline::CHECK,
    &sysctls::CHECK,
    &windows_host_process::CHECK,
    &allow_privilege_escalation::CHECK,
    &capabilities_restricted::CHECK,
    &proc_mount_restricted::CHECK,
    &restricted_volumes::CHECK,
    &run_as_non_root::CHECK,
    &run_as_user::CHECK,
    &seccomp_profile_restricted::CHECK,
];

/// The check of an id.
#[must_use]
pub fn check(id: &str) -> Option<&'static Check> {
    CHECKS.iter().copied().find(|check| check.id == id)
}

/// The containers that `bad` picks, in upstream's order.
fn containers_where<'p, 'a>(
    pod: &PodView<'p, 'a>,
    mut bad: impl FnMut(&ContainerRef<'p, 'a>) -> bool,
) -> Vec<ContainerRef<'p, 'a>> {
    // Internal iteration: the three lists become three plain loops, and a pod that passes allocates nothing.
    let mut found = Vec::new();
    pod.containers().for_each(|container| {
        if bad(&container) {
            found.push(container);
        }
    });
    found
}

fn names<'p>(containers: &[ContainerRef<'p, '_>]) -> Vec<&'p str> {
    containers.iter().map(ContainerRef::name).collect()
}

/// `container "web"`, as messages name it.
fn called(container: &ContainerRef<'_, '_>) -> String {
    format!("{} \"{}\"", container.kind.noun(), container.name())
}
