//! A container may not lift the masks of /proc, user namespace or not.
//!
//! Implements: Pod Security Standards, Restricted, "/proc Mount Type". Keeps the restricted level strict after
//! the baseline check was relaxed for user namespaces.

use super::{Check, CheckVersion, Level, Options, PodView, Violation, proc_mount};

pub(super) static CHECK: Check = Check {
    id: "procMount_restricted",
    level: Level::Restricted,
    title: "/proc Mount Type",
    why: "parts of /proc reach into the kernel of the node",
    versions: &[CheckVersion {
        since: 35,
        overrides: &["procMount"],
        run: since_v1_35,
        cel: proc_mount::cel_unmasked,
    }],
};

fn since_v1_35(pod: &PodView<'_, '_>, _: Options) -> Option<Violation> {
    proc_mount::unmasked(pod, CHECK.id)
}
