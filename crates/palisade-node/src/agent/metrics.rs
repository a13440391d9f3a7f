//! The metrics of the agent. Serving them is left to the command line.

use palisade_base::metrics::{Metric, Registry};

/// Requests to the API server that failed.
pub static API_ERRORS: Metric =
    Metric::counter("palisade_node_api_errors_total", "Requests to the API server that failed.");
/// Differences between what pods declare and what the kernel enforces.
pub static DRIFT: Metric = Metric::gauge(
    "palisade_node_drift",
    "Differences between what pods declare and what the kernel enforces.",
);
/// Containers that a system call guard does not cover.
pub static EXPOSED_CONTAINERS: Metric = Metric::gauge(
    "palisade_node_guard_exposed_containers",
    "Containers that a system call guard does not cover, summed up over all guards.",
);
/// Containers that the runtime created with an answer of the plugin.
pub static GUARDED_CONTAINERS: Metric = Metric::counter(
    "palisade_node_guard_created_containers_total",
    "Containers for which the runtime requested guards when it created them.",
);
/// How long the last answer took.
pub static GUARD_MICROSECONDS: Metric = Metric::gauge(
    "palisade_node_guard_answer_microseconds",
    "How long the last answer to the container runtime took, in microseconds.",
);
/// Containers that run a profile its ConfigMap no longer holds.
pub static OLDER_PROFILES: Metric = Metric::gauge(
    "palisade_node_older_profiles",
    "Containers that run a profile its ConfigMap no longer holds.",
);
/// Size of all profiles in place.
pub static PROFILE_BYTES: Metric =
    Metric::gauge("palisade_node_profile_bytes", "Size of all profiles in place.");
/// Profiles found deleted, changed or replaced, and files that should not be there.
pub static PROFILE_INCIDENTS: Metric = Metric::counter(
    "palisade_node_profile_incidents_total",
    "Profiles found deleted, changed or replaced, and files that should not be there.",
);
/// Profiles put in place.
pub static PROFILE_WRITES: Metric =
    Metric::counter("palisade_node_profile_writes_total", "Profiles put in place.");
/// Profiles on the node, in place or missing.
pub static PROFILES: Metric =
    Metric::gauge("palisade_node_profiles", "Profiles on the node, in place or missing.");
/// Whether every profile is in place.
pub static PROFILES_READY: Metric =
    Metric::gauge("palisade_node_profiles_ready", "Whether every profile is in place.");
/// How often the report was written.
pub static REPORT_WRITES: Metric =
    Metric::counter("palisade_node_report_writes_total", "How often the report was written.");
/// Containers that run and could not be compared with the kernel.
pub static UNVERIFIED_CONTAINERS: Metric = Metric::gauge(
    "palisade_node_unverified_containers",
    "Containers that run and could not be compared with the kernel.",
);
/// Containers that were compared with the kernel.
pub static VERIFIED_CONTAINERS: Metric =
    Metric::gauge("palisade_node_verified_containers", "Containers that were compared with the kernel.");

/// What an incident can have found.
const FOUND: [&str; 5] = ["Deleted", "Changed", "Replaced", "Unexpected", "Unmounted"];

/// Makes every series appear before anything has been counted: a counter that begins with 1 has not increased.
pub fn declare(registry: &Registry) {
    for found in FOUND {
        registry.declare(&PROFILE_INCIDENTS, &[("found", found)]);
    }
    for state in ["held", "missing"] {
        registry.declare(&PROFILES, &[("state", state)]);
    }
    for metric in [
        &API_ERRORS,
        &DRIFT,
        &EXPOSED_CONTAINERS,
        &GUARDED_CONTAINERS,
        &GUARD_MICROSECONDS,
        &OLDER_PROFILES,
        &PROFILE_BYTES,
        &PROFILE_WRITES,
        &PROFILES_READY,
        &REPORT_WRITES,
        &UNVERIFIED_CONTAINERS,
        &VERIFIED_CONTAINERS,
    ] {
        registry.declare(metric, &[]);
    }
}
