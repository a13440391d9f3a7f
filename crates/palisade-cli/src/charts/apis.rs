//! Which groups and versions a release of the API server has, for `.Capabilities.APIVersions.Has`.

/// Group and version, the first minor that serves it by default, and the first that does not any more.
const SERVED: &[(&str, u16, u16)] = &[
    ("v1", 0, u16::MAX),
    ("admissionregistration.k8s.io/v1", 16, u16::MAX),
    ("admissionregistration.k8s.io/v1beta1", 9, 22),
    ("apiextensions.k8s.io/v1", 16, u16::MAX),
    ("apiextensions.k8s.io/v1beta1", 7, 22),
    ("apiregistration.k8s.io/v1", 10, u16::MAX),
    ("apiregistration.k8s.io/v1beta1", 7, 22),
    ("apps/v1", 9, u16::MAX),
    ("apps/v1beta1", 6, 16),
    ("apps/v1beta2", 8, 16),
    ("authentication.k8s.io/v1", 6, u16::MAX),
    ("authorization.k8s.io/v1", 6, u16::MAX),
    ("autoscaling/v1", 2, u16::MAX),
    ("autoscaling/v2", 23, u16::MAX),
    ("autoscaling/v2beta1", 8, 25),
    ("autoscaling/v2beta2", 12, 26),
    ("batch/v1", 2, u16::MAX),
    ("batch/v1beta1", 8, 25),
    ("certificates.k8s.io/v1", 19, u16::MAX),
    ("certificates.k8s.io/v1beta1", 4, 22),
    ("coordination.k8s.io/v1", 14, u16::MAX),
    ("discovery.k8s.io/v1", 21, u16::MAX),
    ("discovery.k8s.io/v1beta1", 17, 25),
    ("events.k8s.io/v1", 19, u16::MAX),
    ("extensions/v1beta1", 1, 22),
    ("flowcontrol.apiserver.k8s.io/v1", 29, u16::MAX),
    ("flowcontrol.apiserver.k8s.io/v1beta3", 26, 32),
    ("networking.k8s.io/v1", 7, u16::MAX),
    ("networking.k8s.io/v1beta1", 14, 22),
    ("node.k8s.io/v1", 20, u16::MAX),
    ("policy/v1", 21, u16::MAX),
    ("policy/v1beta1", 5, 25),
    ("rbac.authorization.k8s.io/v1", 8, u16::MAX),
    ("rbac.authorization.k8s.io/v1beta1", 6, 22),
    ("resource.k8s.io/v1", 34, u16::MAX),
    ("scheduling.k8s.io/v1", 14, u16::MAX),
    ("storage.k8s.io/v1", 6, u16::MAX),
    ("storage.k8s.io/v1beta1", 4, 22),
];

/// Whether a release has a group and version; a kind after them is taken to be one of its kinds.
pub(super) fn has(minor: u16, wanted: &str) -> bool {
    SERVED.iter().any(|(served, since, until)| {
        let of_group = wanted == *served
            || wanted.strip_prefix(served).is_some_and(|kind| {
                kind.starts_with('/') && !kind.get(1..).is_some_and(|kind| kind.contains('/'))
            });
        // `networking.k8s.io/v1/Ingress` came later than its group.
        let since = if wanted == "networking.k8s.io/v1/Ingress" {
            19
        } else if wanted == "batch/v1/CronJob" {
            21
        } else {
            *since
        };
        // `extensions/v1beta1/Deployment` is no `v1`.
        of_group
            && !(*served == "v1" && wanted.matches('/').count() > 1)
            && (since..*until).contains(&minor)
            && (*served != "v1" || !wanted.starts_with("v1/v"))
    })
}

#[cfg(test)]
mod tests {
    use super::has;

    #[test]
    fn groups_come_and_go_with_releases() {
        for (minor, wanted, expected) in [
            (37, "apps/v1", true),
            (37, "apps/v1/Deployment", true),
            (37, "v1/Secret", true),
            (37, "policy/v1beta1", false),
            (24, "policy/v1beta1/PodSecurityPolicy", true),
            (25, "policy/v1beta1/PodSecurityPolicy", false),
            (37, "networking.k8s.io/v1/Ingress", true),
            (18, "networking.k8s.io/v1/Ingress", false),
            (37, "monitoring.coreos.com/v1", false),
            (37, "security.openshift.io/v1", false),
        ] {
            assert_eq!(has(minor, wanted), expected, "v1.{minor} {wanted}");
        }
    }
}
