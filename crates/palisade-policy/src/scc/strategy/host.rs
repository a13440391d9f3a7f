//! What of the node a pod may share: its network, process and IPC namespaces, its ports, its users.
//!
//! Implements: `allowHostNetwork`, `allowHostPID`, `allowHostIPC`, `allowHostPorts`, `userNamespaceLevel`.
//! Upstream checks host namespaces once for the pod and again for every container, and the ports of all containers
//! again for every container; both show in its messages.

use palisade_base::{
    field_error::{BadValue, FieldError},
    field_path::FieldPath,
};
use palisade_model::{
    pod::PodSpec,
    pod_view::{ContainerRef, PodView},
};

use super::{NULL, Place};
use crate::scc::constraint::Constraint;

pub(in crate::scc) fn network(
    constraint: &Constraint,
    place: Place<'_>,
    spec: &PodSpec<'_>,
) -> Option<FieldError> {
    let used = spec.host_network == Some(true) && !constraint.allow_host_network;
    used.then(|| shared(place, "hostNetwork", "Host network is not allowed to be used"))
}

pub(in crate::scc) fn pid(
    constraint: &Constraint,
    place: Place<'_>,
    spec: &PodSpec<'_>,
) -> Option<FieldError> {
    let used = spec.host_pid == Some(true) && !constraint.allow_host_pid;
    used.then(|| shared(place, "hostPID", "Host PID is not allowed to be used"))
}

pub(in crate::scc) fn ipc(
    constraint: &Constraint,
    place: Place<'_>,
    spec: &PodSpec<'_>,
) -> Option<FieldError> {
    let used = spec.host_ipc == Some(true) && !constraint.allow_host_ipc;
    used.then(|| shared(place, "hostIPC", "Host IPC is not allowed to be used"))
}

fn shared(place: Place<'_>, field: &'static str, detail: &'static str) -> FieldError {
    FieldError::invalid(FieldPath::of(&["spec", field]), true, detail).called(place.name(field))
}

pub(in crate::scc) fn users(
    constraint: &Constraint,
    place: Place<'_>,
    spec: &PodSpec<'_>,
) -> Option<FieldError> {
    if constraint.user_namespace_level != "RequirePodLevel" || spec.host_users == Some(false) {
        return None;
    }
    let value = BadValue::Plain(spec.host_users.map_or(NULL, |_| "true").to_owned());
    let at = FieldPath::of(&["spec", "hostUsers"]);
    Some(FieldError::invalid(at, value, "Host Users must be set to false").called(place.name("hostUsers")))
}

pub(in crate::scc) fn ports(
    constraint: &Constraint,
    place: Place<'_>,
    spec: PodView<'_, '_>,
    problems: &mut Vec<FieldError>,
) {
    if constraint.allow_host_ports {
        return;
    }
    for other in spec.containers() {
        let ContainerRef { kind, index, container } = other;
        for (port_index, port) in container.ports.iter().enumerate() {
            if port.host_port > 0 {
                let at = other.path(&spec).field("ports").index(port_index).field("hostPort");
                let called = place.name(&format!("{}[{index}].hostPort", kind.field()));
                let detail = "Host ports are not allowed to be used";
                problems.push(FieldError::invalid(at, port.host_port, detail).called(called));
            }
        }
    }
}
