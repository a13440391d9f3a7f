//! Whether a pod may run on this node at all.
//!
//! Implements: the kubelet's AppArmor admission (AppArmor design, failure table, row 6: Blocked; v1.31 and later: Failed),
//! its checks of `spec.os`, sysctls and `supplementalGroupsPolicy`. Whether the pod fits is [`super::allocations`]'s. This is not
//! policy: it checks what the node can do, never what is allowed.

use palisade_base::version::KubeVersion;
use palisade_model::{
    compat::Compat,
    node::resolve_app_armor,
    pod::Pod,
    pod_view::PodView,
    prepare::Prepared,
    profile::{ProfileRef, apparmor, kind},
    security_context::ProfileField,
};

use super::{observed::Observed, status::Rejection, worker::Life};
use crate::{
    kernel::{apparmor::AppArmor, probe::NodeFeatures},
    node_object,
    pod::RunPod,
};

impl Life {
    /// Why the pod cannot run here, in the kubelet's order; `None` if it can, and then it has its place.
    pub(super) async fn rejection(&mut self, pod: &RunPod, observed: &Observed) -> Option<Rejection> {
        let config = &self.node.config;
        let model = pod.prepared(&config.compat);
        let (compat, minor) = (&config.compat, config.compat.kubelet.minor());
        if let Some(rejection) = unsupported(&model, compat, &self.node.features()) {
            return Some(rejection);
        }
        // A pod that is here already was checked when it came.
        let placed = !pod.spec.node_name.is_empty() && observed.sandboxes.is_empty();
        if placed && self.reservation.is_none() {
            let read = self.node.source.read_node(&config.node_name).await;
            // Before its first heartbeat a node is known to itself alone.
            let object = read
                .ok()
                .flatten()
                .unwrap_or_else(|| node_object::node_object(&self.node, true, &[], jiff::Timestamp::now()));
            match self.node.allocations.admit(pod, &object, minor) {
                Ok(reservation) => self.reservation = Some(reservation),
                Err(unfit) => return Some(hard(&unfit.reason, &unfit.message)),
            }
        } else if self.reservation.is_none() {
            self.reservation = Some(self.node.allocations.keep(pod, minor));
        }
        app_armor_rejection(&model, compat, &self.node.app_armor)
    }
}

/// What neither the node nor any node like it can do.
fn unsupported(prepared: &Prepared<'_>, compat: &Compat, features: &NodeFeatures) -> Option<Rejection> {
    let pod = prepared.pod();
    let minor = compat.kubelet.minor();
    if let Some(error) = forbidden_sysctl(pod, minor, &features.kernel) {
        return Some(hard("SysctlForbidden", &format!("forbidden sysctl: {error}")));
    }
    // The pod's label, not its selector: upstream's own slip, kept by every release since.
    if minor >= 23 && pod.metadata.labels.get("kubernetes.io/os").is_some_and(|os| os != "linux") {
        return Some(hard(
            "PodOSSelectorNodeLabelDoesNotMatch",
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
        ));
    }
    if minor >= 25 && pod.spec.os.as_ref().is_some_and(|os| !os.name.is_empty() && os.name != "linux") {
        return Some(hard("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"));
    }
    let strict = pod
        .spec
        .security_context
        .as_ref()
        .and_then(|context| context.supplemental_groups_policy.as_deref())
        .is_some_and(|policy| policy == "Strict");
    if minor >= 33 && strict && !features.supplemental_groups_policy {
        return Some(hard(
            "SupplementalGroupsPolicyNotSupported",
            "SupplementalGroupsPolicy=Strict is not supported in this node",
        ));
    }
    None
}

fn app_armor_rejection(pod: &Prepared<'_>, compat: &Compat, app_armor: &AppArmor) -> Option<Rejection> {
    let minor = compat.kubelet.minor();
    let error = app_armor_error(pod, compat, app_armor)?;
    let message = format!("Cannot enforce AppArmor: {error}");
    // The design blocks such a pod until the host can; releases gave that up with v1.31.
    let soft = compat.kubelet == KubeVersion::Designs || minor <= 30;
    Some(if soft {
        Rejection { reason: "AppArmor".to_owned(), message, soft }
    } else {
        hard("AppArmor", &message)
    })
}

/// Sysctls that belong to a pod alone: their prefix for the namespace, and the kubelet and kernel that support it.
const SAFE_SYSCTLS: [(&str, u16, (u32, u32)); 12] = [
    ("kernel.shm_rmid_forced", 0, (0, 0)),
    ("net.ipv4.ip_local_port_range", 0, (0, 0)),
    ("net.ipv4.tcp_syncookies", 0, (0, 0)),
    ("net.ipv4.ping_group_range", 21, (0, 0)),
    ("net.ipv4.ip_unprivileged_port_start", 22, (0, 0)),
    ("net.ipv4.ip_local_reserved_ports", 27, (3, 16)),
    ("net.ipv4.tcp_keepalive_time", 29, (4, 5)),
    ("net.ipv4.tcp_fin_timeout", 29, (4, 6)),
    ("net.ipv4.tcp_keepalive_intvl", 29, (4, 5)),
    ("net.ipv4.tcp_keepalive_probes", 29, (4, 5)),
    ("net.ipv4.tcp_rmem", 32, (4, 15)),
    ("net.ipv4.tcp_wmem", 32, (4, 15)),
];

/// The kubelet's allowlist (`pkg/kubelet/sysctl`), without what administrators may add to it.
fn forbidden_sysctl(pod: &Pod<'_>, minor: u16, kernel: &str) -> Option<String> {
    let mut numbers = kernel.split(['.', '-']).map(|number| number.parse().unwrap_or_default());
    let kernel: (u32, u32) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let sysctls = pod.spec.security_context.as_ref().map(|context| context.sysctls.as_slice());
    sysctls.unwrap_or_default().iter().find_map(|sysctl| {
        let name = with_dots(&sysctl.name);
        let safe = SAFE_SYSCTLS
            .iter()
            .find(|(known, since, least)| *known == name && minor >= *since && kernel >= *least);
        match safe {
            None => Some(format!("{name:?} not allowlisted")),
            Some(_) if name.starts_with("kernel.") && pod.spec.host_ipc == Some(true) => {
                Some(format!("{name:?} not allowed with host IPC enabled"))
            }
            Some(_) if name.starts_with("net.") && pod.spec.host_network == Some(true) => {
                Some(format!("{name:?} not allowed with host Net enabled"))
            }
            Some(_) => None,
        }
    })
}

/// A sysctl with dots between its parts. Who writes slashes may have dots inside a part, and they change places.
pub(super) fn with_dots(sysctl: &str) -> String {
    match sysctl.find(['.', '/']) {
        Some(at) if sysctl[at..].starts_with('/') => sysctl
            .chars()
            .map(|letter| match letter {
                '/' => '.',
                '.' => '/',
                other => other,
            })
            .collect(),
        _ => sysctl.to_owned(),
    }
}

fn hard(reason: &str, message: &str) -> Rejection {
    Rejection { reason: reason.to_owned(), message: format!("Pod was rejected: {message}"), soft: false }
}

fn app_armor_error(pod: &Prepared<'_>, compat: &Compat, app_armor: &AppArmor) -> Option<String> {
    let view = pod.view();
    if !needs_app_armor(&view, compat) {
        return None;
    }
    let minor = compat.kubelet.minor();
    let gated = compat.kubelet == KubeVersion::Designs || minor <= 30;
    if gated && !compat.gates.app_armor {
        return Some("AppArmor disabled by feature-gate".to_owned());
    }
    if !app_armor.is_enabled() {
        return Some("AppArmor is not enabled on the host".to_owned());
    }
    for container in view.containers() {
        let annotation = view.metadata().annotations.get(&apparmor::annotation(container.name()));
        if minor <= 29 {
            let Some(value) = annotation else { continue };
            if !apparmor::is_valid_annotation(value) {
                return Some(format!("invalid AppArmor profile name: {value:?}"));
            }
            if value == "localhost/" && minor >= 24 {
                return Some(format!("invalid empty AppArmor profile name: {value:?}"));
            }
        }
        match resolve_app_armor(pod, &container, compat).profile {
            Some(Ok(ProfileRef::Localhost(name)))
                if minor <= 23 && app_armor.is_loaded(&name) == Some(false) =>
            {
                return Some(format!("profile {name:?} is not loaded"));
            }
            Some(Err(_)) if minor >= 30 => {
                let field = container
                    .security_context()
                    .and_then(|context| context.app_armor_profile.as_ref())
                    .or_else(|| {
                        view.security_context().and_then(|context| context.app_armor_profile.as_ref())
                    });
                if let Some(field) = field.filter(|field| field.kind.as_str() == kind::LOCALHOST) {
                    return Some(empty_name(field));
                }
            }
            _ => {}
        }
    }
    None
}

fn empty_name(field: &ProfileField<'_>) -> String {
    let name = if field.localhost_profile.is_some() { "*" } else { "nil" };
    format!(
        "invalid empty AppArmor profile name: \"&AppArmorProfile{{Type:Localhost,LocalhostProfile:{name},}}\""
    )
}

/// Whether the pod requests AppArmor: a field other than `Unconfined`, or the first annotation met.
fn needs_app_armor(view: &PodView<'_, '_>, compat: &Compat) -> bool {
    let confines = |field: &ProfileField<'_>| field.kind.as_str() != kind::UNCONFINED;
    if compat.kubelet.minor() >= 30 {
        let of_pod = view.security_context().and_then(|context| context.app_armor_profile.as_ref());
        let of_containers = view
            .containers()
            .filter_map(|container| container.security_context()?.app_armor_profile.as_ref());
        if of_pod.into_iter().chain(of_containers).any(confines) {
            return true;
        }
    }
    // The design's kubelet reads fields alone.
    if compat.kubelet == KubeVersion::Designs {
        return false;
    }
    view.metadata()
        .annotations
        .with_prefix(apparmor::ANNOTATION_PREFIX)
        .next()
        .is_some_and(|(_, _, value)| value != "unconfined")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use palisade_model::compat::Compat;

    use super::*;

    fn rejection(
        pod: &Prepared<'_>,
        compat: &Compat,
        features: &NodeFeatures,
        app_armor: &AppArmor,
    ) -> Option<Rejection> {
        unsupported(pod, compat, features).or_else(|| app_armor_rejection(pod, compat, app_armor))
    }

    fn rejection_of(pod: &str, compat: &Compat, app_armor: &AppArmor) -> Option<(String, bool)> {
        let pod = Prepared::stored(serde_json::from_str(pod).unwrap(), compat);
        rejection(&pod, compat, &NodeFeatures::default(), app_armor).map(|found| (found.message, found.soft))
    }

    #[test]
    fn a_host_without_app_armor_blocks_or_fails_by_release() {
        let temp = tempfile::tempdir().unwrap();
        let host = AppArmor::below(temp.path());
        let field = |kind: &str| {
            format!(
                r#"{{"spec":{{"containers":[{{"name":"c","securityContext":{{"appArmorProfile":{{"type":"{kind}","localhostProfile":"x"}}}}}}]}}}}"#
            )
        };
        let blocked = Some(("Cannot enforce AppArmor: AppArmor is not enabled on the host".to_owned(), true));
        let failed = Some((
            "Pod was rejected: Cannot enforce AppArmor: AppArmor is not enabled on the host".to_owned(),
            false,
        ));
        for (case, pod, compat, expected) in [
            ("designs", field("RuntimeDefault"), Compat::designs(), &blocked),
            ("v1.30", field("Localhost"), Compat::kubernetes(30), &blocked),
            ("v1.31", field("Localhost"), Compat::kubernetes(31), &failed),
            ("v1.37", field("RuntimeDefault"), Compat::kubernetes(37), &failed),
            ("unconfined needs nothing", field("Unconfined"), Compat::kubernetes(31), &None),
            ("v1.29 has no fields", field("RuntimeDefault"), Compat::kubernetes(29), &None),
            (
                "annotation",
                r#"{"metadata":{"annotations":{"container.apparmor.security.beta.kubernetes.io/c":"runtime/default"}},"spec":{"containers":[{"name":"c"}]}}"#.to_owned(),
                Compat::kubernetes(29),
                &blocked,
            ),
        ] {
            assert_eq!(&rejection_of(&pod, &compat, &host), expected, "{case}");
        }
    }

    #[test]
    fn a_host_with_app_armor_looks_closer() {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir_all(temp.path().join("kernel/security/apparmor")).unwrap();
        fs::create_dir_all(temp.path().join("module/apparmor/parameters")).unwrap();
        fs::write(temp.path().join("module/apparmor/parameters/enabled"), "Y\n").unwrap();
        fs::write(temp.path().join("kernel/security/apparmor/profiles"), "known (enforce)\n").unwrap();
        let host = AppArmor::below(temp.path());
        let annotated = |value: &str| {
            format!(
                r#"{{"metadata":{{"annotations":{{"container.apparmor.security.beta.kubernetes.io/c":"{value}"}}}},"spec":{{"containers":[{{"name":"c"}}]}}}}"#
            )
        };
        let prefix = "Cannot enforce AppArmor: ";
        for (value, minor, expected) in [
            ("localhost/known", 23, None),
            ("localhost/absent", 23, Some("profile \"absent\" is not loaded")),
            ("localhost/absent", 24, None),
            ("localhost/", 24, Some("invalid empty AppArmor profile name: \"localhost/\"")),
            ("nonsense", 24, Some("invalid AppArmor profile name: \"nonsense\"")),
        ] {
            let found = rejection_of(&annotated(value), &Compat::kubernetes(minor), &host)
                .map(|(message, _)| message);
            assert_eq!(found, expected.map(|text| format!("{prefix}{text}")), "{value} on v1.{minor}");
        }
        let mut gated = Compat::designs();
        gated.gates.app_armor = false;
        let field = r#"{"spec":{"containers":[{"name":"c","securityContext":{"appArmorProfile":{"type":"RuntimeDefault"}}}]}}"#;
        let found = rejection_of(field, &gated, &host).unwrap();
        assert_eq!(found.0, "Cannot enforce AppArmor: AppArmor disabled by feature-gate");
    }

    #[test]
    fn sysctls_of_the_node_are_not_a_pods() {
        let host = AppArmor::below("/nonexistent");
        let features = NodeFeatures { kernel: "6.1.0-18-cloud".into(), ..NodeFeatures::default() };
        let refused = |name: &str, more: &str, minor: u16| {
            let pod = format!(
                r#"{{"spec":{{{more}"securityContext":{{"sysctls":[{{"name":"{name}","value":"1"}}]}},"containers":[{{"name":"c"}}]}}}}"#
            );
            let pod = Prepared::stored(serde_json::from_str(&pod).unwrap(), &Compat::kubernetes(minor));
            rejection(&pod, &Compat::kubernetes(minor), &features, &host).map(|found| found.message)
        };
        let text = |why: &str| Some(format!("Pod was rejected: forbidden sysctl: {why}"));
        for (name, more, minor, expected) in [
            ("kernel.shm_rmid_forced", "", 31, None),
            ("net/ipv4/tcp_syncookies", "", 31, None),
            (
                "net/ipv4/conf/eth0.1/rp_filter",
                "",
                31,
                text("\"net.ipv4.conf.eth0/1.rp_filter\" not allowlisted"),
            ),
            ("net.ipv4.tcp_rmem", "", 31, text("\"net.ipv4.tcp_rmem\" not allowlisted")),
            ("net.ipv4.tcp_rmem", "", 32, None),
            ("kernel.msgmax", "", 31, text("\"kernel.msgmax\" not allowlisted")),
            (
                "kernel.shm_rmid_forced",
                "\"hostIPC\":true,",
                31,
                text("\"kernel.shm_rmid_forced\" not allowed with host IPC enabled"),
            ),
            (
                "net.ipv4.tcp_syncookies",
                "\"hostNetwork\":true,",
                31,
                text("\"net.ipv4.tcp_syncookies\" not allowed with host Net enabled"),
            ),
        ] {
            assert_eq!(refused(name, more, minor), expected, "{name} {more} v1.{minor}");
        }
    }

    #[test]
    fn other_reasons_to_refuse() {
        let host = AppArmor::below("/nonexistent");
        let windows = r#"{"spec":{"os":{"name":"windows"},"containers":[{"name":"c"}]}}"#;
        assert_eq!(
            rejection_of(windows, &Compat::designs(), &host).unwrap().0,
            "Pod was rejected: Failed to admit pod as the OS field doesn't match node OS"
        );
        let labelled =
            r#"{"metadata":{"labels":{"kubernetes.io/os":"windows"}},"spec":{"containers":[{"name":"c"}]}}"#;
        assert_eq!(
            rejection_of(labelled, &Compat::designs(), &host).unwrap().0,
            "Pod was rejected: Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"
        );
        let strict = r#"{"spec":{"securityContext":{"supplementalGroupsPolicy":"Strict"},"containers":[{"name":"c"}]}}"#;
        assert!(rejection_of(strict, &Compat::designs(), &host).is_some());
        assert!(rejection_of(strict, &Compat::kubernetes(32), &host).is_none());
    }
}
