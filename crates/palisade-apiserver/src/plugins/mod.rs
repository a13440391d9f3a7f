//! The admission plugins an API server cannot do without: one file each, named as upstream names them.

mod certificates;
pub(crate) mod defaults;
mod limit_ranger;
mod namespace_lifecycle;
mod node_restriction;
mod pod_defaults;
pub(crate) mod pod_topology;
pub(crate) mod quota;
mod runtime_class;
mod service_account;

use std::sync::Arc;

use crate::admission_chain::Plugin;

pub use certificates::{
    CertificateApproval, CertificateSigning, CertificateSubjectRestriction, ClusterTrustBundleAttest,
};
pub use defaults::{DefaultIngressClass, DefaultStorageClass, StorageObjectInUseProtection};
pub use limit_ranger::LimitRanger;
pub use namespace_lifecycle::NamespaceLifecycle;
pub use node_restriction::NodeRestriction;
pub use pod_defaults::{DefaultTolerationSeconds, Priority};
pub use pod_topology::PodTopologyLabels;
pub use runtime_class::RuntimeClass;
pub use service_account::ServiceAccount;

/// Names of plugins upstream has and this server accepts in its list of disabled plugins without effect.
pub const KNOWN_ELSEWHERE: &[&str] =
    &["AlwaysPullImages", "PersistentVolumeClaimResize", "ResourceQuota", "TaintNodesByCondition"];

/// The plugins that are on unless disabled, in upstream's order.
#[must_use]
pub fn builtin() -> Vec<Arc<dyn Plugin>> {
    vec![
        Arc::new(NamespaceLifecycle),
        Arc::new(LimitRanger),
        Arc::new(ServiceAccount),
        Arc::new(NodeRestriction),
        Arc::new(PodTopologyLabels),
        Arc::new(Priority),
        Arc::new(DefaultTolerationSeconds),
        Arc::new(DefaultStorageClass),
        Arc::new(StorageObjectInUseProtection),
        Arc::new(RuntimeClass),
        Arc::new(CertificateApproval),
        Arc::new(CertificateSigning),
        Arc::new(ClusterTrustBundleAttest),
        Arc::new(CertificateSubjectRestriction),
        Arc::new(DefaultIngressClass),
    ]
}
