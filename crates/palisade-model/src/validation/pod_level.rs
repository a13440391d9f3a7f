//! Rules that span the pod: host ports, user namespaces, Windows host processes.
//!
//! Implements: `checkHostPortConflicts`, `validateHostUsers` and `validateWindowsHostProcessPod`.

use palisade_base::field_error::FieldError;

use crate::{
    compat::Compat,
    pod_view::{ContainerKind, PodView},
};

/// Two containers of a pod cannot listen on the same port of the node.
pub(super) fn validate_host_ports(view: &PodView<'_, '_>, problems: &mut Vec<FieldError>) {
    let mut taken: Vec<String> = Vec::new();
    for container in view.containers().filter(|container| container.kind == ContainerKind::App) {
        for (index, port) in container.container.ports.iter().enumerate() {
            if port.host_port == 0 {
                continue;
            }
            let key = format!("{}/{}/{}", port.protocol, port.host_ip, port.host_port);
            if taken.contains(&key) {
                let at = container.path(view).field("ports").index(index).field("hostPort");
                problems.push(FieldError::duplicate(at, key));
            } else {
                taken.push(key);
            }
        }
    }
}

/// A volume has one source. Which of several is meant cannot be known, and the standards judge the first that they allow.
pub(super) fn validate_volume_sources(view: &PodView<'_, '_>, problems: &mut Vec<FieldError>) {
    for (index, volume) in view.spec().volumes.iter().enumerate() {
        for source in volume.sources().skip(1) {
            let at = view.path(&["spec", "volumes"]).index(index).field(source.as_str());
            problems.push(FieldError::forbidden(at, "may not specify more than 1 volume type"));
        }
    }
}

/// A user namespace of its own does not go with namespaces of the host.
pub(super) fn validate_host_users(view: &PodView<'_, '_>, problems: &mut Vec<FieldError>) {
    let spec = view.spec();
    if !spec.has_user_namespace() {
        return;
    }
    // Upstream spells two of the three fields with a capital letter.
    for (shared, field, called) in [
        (spec.host_network, "hostNetwork", "hostNetwork"),
        (spec.host_pid, "hostPID", "HostPID"),
        (spec.host_ipc, "hostIPC", "HostIPC"),
    ] {
        if shared == Some(true) {
            let called = view.path(&["spec", called]).to_string();
            let problem = FieldError::forbidden(view.path(&["spec", field]), "when `hostUsers` is false");
            problems.push(problem.called(called));
        }
    }
}

/// Windows host processes come all together or not at all, and only with the host's network.
pub(super) fn validate_windows_host_process(
    view: &PodView<'_, '_>,
    compat: &Compat,
    problems: &mut Vec<FieldError>,
) {
    if compat.api_minor() < 23 {
        return;
    }
    let of_pod = view
        .security_context()
        .and_then(|context| context.windows_options.as_ref())
        .and_then(|options| options.host_process);
    let (mut all, mut host_processes) = (0_usize, 0_usize);
    for container in view.containers() {
        all += 1;
        let own = container
            .security_context()
            .and_then(|context| context.windows_options.as_ref())
            .and_then(|options| options.host_process);
        if let (Some(of_pod), Some(own)) = (of_pod, own)
            && of_pod != own
        {
            let at = container.path(view).fields(&["securityContext", "windowsOptions", "hostProcess"]);
            let detail =
                format!("pod hostProcess value must be identical if both are specified, was {of_pod}");
            problems.push(FieldError::invalid(at, own, detail));
        }
        if own.or(of_pod) == Some(true) {
            host_processes += 1;
        }
    }
    if host_processes == 0 {
        return;
    }
    if host_processes < all {
        let detail =
            "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        problems.push(FieldError::invalid(view.path(&["spec"]), "", detail));
    }
    if view.spec().host_network != Some(true) {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        problems.push(FieldError::invalid(view.path(&["spec", "hostNetwork"]), false, detail));
    }
}
