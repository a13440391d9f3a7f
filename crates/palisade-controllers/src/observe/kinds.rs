//! What is watched, and what a message about it changes.

use palisade_model::workload::{WORKLOADS, WorkloadKind};
use palisade_policy::enforcement::{instances, level::LevelSource, platform::Platform, resource, waves};

use super::Scope;
use super::watch::Target;
use crate::api::{CONFIG_MAPS, EVENTS, LEASES, NAMESPACES, Resource};

/// A kind that is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watched {
    Namespaces,
    Pods,
    ServiceAccounts,
    Workloads(&'static WorkloadKind),
    Roles,
    ClusterRoles,
    RoleBindings,
    ClusterRoleBindings,
    Constraints,
    Config,
    ConfigMap,
    Instances,
    Rollout,
    FeatureGates,
    KubeApiServers,
    Events,
    Exceptions,
}

impl Watched {
    /// Everything the rollout depends on.
    pub(super) fn all(scope: Scope) -> Vec<Self> {
        let workloads = WORKLOADS.iter().filter(|kind| version_of(kind).is_some()).map(Self::Workloads);
        let exceptions = (scope.reports || scope.count_exceptions).then_some(Self::Exceptions);
        if scope.workloads_only {
            let pods = scope.reports.then_some(Self::Pods);
            let few = [Self::Namespaces, Self::Events].into_iter().chain(workloads);
            return few.chain(exceptions).chain(pods).collect();
        }
        let mut all = vec![
            Self::Namespaces,
            Self::Config,
            Self::ConfigMap,
            Self::Instances,
            Self::Rollout,
            Self::FeatureGates,
            Self::Events,
        ];
        if scope.levels == LevelSource::Constraints {
            all.extend([
                Self::ServiceAccounts,
                Self::Roles,
                Self::ClusterRoles,
                Self::RoleBindings,
                Self::ClusterRoleBindings,
                Self::Constraints,
            ]);
        }
        if scope.platform == Platform::OpenShift {
            all.push(Self::KubeApiServers);
        }
        all.extend(workloads);
        all.extend(exceptions);
        all.push(Self::Pods);
        all
    }

    fn resource(self) -> Resource {
        let rbac = |plural| Resource::new("rbac.authorization.k8s.io", "v1", plural);
        match self {
            Self::Namespaces => NAMESPACES,
            Self::Pods => Resource::new("", "v1", "pods"),
            Self::ServiceAccounts => Resource::new("", "v1", "serviceaccounts"),
            Self::Workloads(kind) => {
                Resource::new(kind.group, version_of(kind).unwrap_or("v1"), kind.resource)
            }
            Self::Roles => rbac("roles"),
            Self::ClusterRoles => rbac("clusterroles"),
            Self::RoleBindings => rbac("rolebindings"),
            Self::ClusterRoleBindings => rbac("clusterrolebindings"),
            Self::Constraints => CONSTRAINTS,
            Self::Config => CONFIG,
            Self::ConfigMap => CONFIG_MAPS,
            Self::Instances => LEASES,
            Self::Rollout => ROLLOUT,
            Self::FeatureGates => FEATURE_GATES,
            Self::KubeApiServers => Resource::new("operator.openshift.io", "v1", "kubeapiservers"),
            Self::Events => EVENTS,
            Self::Exceptions => EXCEPTIONS,
        }
    }

    /// Where to look for it.
    pub(super) fn target(self) -> Target {
        let resource = self.resource();
        match self {
            Self::ConfigMap => Target {
                path: resource.collection(Some(instances::NAMESPACE)),
                field_selector: Some(format!("metadata.name={}", instances::CONFIG_MAP)),
                label_selector: None,
            },
            Self::Instances => Target {
                path: resource.collection(Some(instances::NAMESPACE)),
                label_selector: Some(instances::INSTANCE_SELECTOR.to_owned()),
                field_selector: None,
            },
            // What else happens in a cluster is of no interest, and is a lot.
            Self::Events => Target {
                path: resource.collection(None),
                field_selector: Some("reason=FailedCreate".to_owned()),
                label_selector: None,
            },
            _ => Target { path: resource.collection(None), ..Target::default() },
        }
    }

    /// Its name in messages.
    pub(super) fn name(self) -> &'static str {
        self.resource().plural
    }
}

/// `PSAEnforcementConfig`.
pub(crate) const CONFIG: Resource = Resource::new(resource::GROUP, resource::VERSION, resource::PLURAL);
/// `PodSecurityRollout`.
pub const ROLLOUT: Resource = Resource::new(waves::GROUP, waves::VERSION, waves::PLURAL);
/// `SecurityException`.
pub(crate) const EXCEPTIONS: Resource = Resource::new("palisade.dev", "v1alpha1", "securityexceptions");
/// OpenShift's `FeatureGate`.
pub(crate) const FEATURE_GATES: Resource = Resource::new("config.openshift.io", "v1", "featuregates");
/// `SecurityContextConstraints`.
pub(crate) const CONSTRAINTS: Resource =
    Resource::new("security.openshift.io", "v1", "securitycontextconstraints");

/// The version in which a kind of workload is watched; `None` for those that are not. What has no pods of its own kind
/// (pods) or makes none (pod templates) is not a workload here, and of the custom ones only OpenShift's own is.
pub(crate) fn version_of(kind: &WorkloadKind) -> Option<&'static str> {
    match (kind.group, kind.kind) {
        (_, "Pod" | "PodTemplate") => None,
        ("" | "apps" | "batch" | "apps.openshift.io", _) => Some("v1"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{LevelSource, Platform, Scope, Watched};

    #[test]
    fn everything_that_decides_is_watched() {
        let scope =
            Scope { levels: LevelSource::Constraints, platform: Platform::OpenShift, ..Scope::default() };
        let paths: Vec<String> = Watched::all(scope).iter().map(|watched| watched.target().path).collect();
        for expected in [
            "/api/v1/namespaces",
            "/api/v1/pods",
            "/api/v1/serviceaccounts",
            "/api/v1/replicationcontrollers",
            "/apis/apps/v1/deployments",
            "/apis/apps/v1/daemonsets",
            "/apis/apps/v1/statefulsets",
            "/apis/apps/v1/replicasets",
            "/apis/batch/v1/jobs",
            "/apis/batch/v1/cronjobs",
            "/apis/apps.openshift.io/v1/deploymentconfigs",
            "/apis/rbac.authorization.k8s.io/v1/roles",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            "/apis/rbac.authorization.k8s.io/v1/rolebindings",
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            "/apis/security.openshift.io/v1/securitycontextconstraints",
            "/apis/config.openshift.io/v1alpha1/psaenforcementconfigs",
            "/api/v1/namespaces/palisade-system/configmaps",
            "/apis/coordination.k8s.io/v1/namespaces/palisade-system/leases",
            "/apis/palisade.dev/v1alpha1/podsecurityrollouts",
            "/apis/config.openshift.io/v1/featuregates",
            "/apis/operator.openshift.io/v1/kubeapiservers",
            "/api/v1/events",
        ] {
            assert!(paths.iter().any(|path| path == expected), "{expected} in {paths:?}");
        }
        assert_eq!(paths.len(), 23);
        let plain = Watched::all(Scope::default());
        let is_of_constraints = |watched: &Watched| {
            let path = watched.target().path;
            ["rbac.", "security.openshift.io", "serviceaccounts", "operator."]
                .iter()
                .any(|part| path.contains(part))
        };
        assert!(!plain.iter().any(is_of_constraints), "{plain:?}");
        assert_eq!(plain.len(), 16);
        let few = Watched::all(Scope { workloads_only: true, ..scope });
        let paths: Vec<String> = few.iter().map(|watched| watched.target().path).collect();
        assert!(!paths.iter().any(|path| path.contains("palisade") || path.contains("config.")), "{paths:?}");
        assert_eq!(paths.len(), 10, "{paths:?}");
        let reported = Watched::all(Scope { workloads_only: true, reports: true, ..scope });
        let paths: Vec<String> = reported.iter().map(|watched| watched.target().path).collect();
        for more in ["/api/v1/pods", "/apis/palisade.dev/v1alpha1/securityexceptions"] {
            assert!(paths.iter().any(|path| path == more), "{more} in {paths:?}");
        }
        assert_eq!(paths.len(), 12, "{paths:?}");
    }
}
