//! The admission plugins an API server cannot do without: one file each, named as upstream names them.

mod limit_ranger;
mod namespace_lifecycle;
mod pod_defaults;
pub(crate) mod quota;
mod runtime_class;
mod service_account;

use std::sync::Arc;

use crate::admission_chain::Plugin;

pub use limit_ranger::LimitRanger;
pub use namespace_lifecycle::NamespaceLifecycle;
pub use pod_defaults::{DefaultTolerationSeconds, Priority};
pub use runtime_class::RuntimeClass;
pub use service_account::ServiceAccount;

/// Names of plugins upstream has and this server accepts in its list of disabled plugins without effect.
pub const KNOWN_ELSEWHERE: &[&str] = &[
    "AlwaysPullImages",
    "CertificateApproval",
    "ClusterTrustBundleAttest",
    "DefaultIngressClass",
    "DefaultStorageClass",
    "NodeRestriction",
    "PersistentVolumeClaimResize",
    "PodTopologyLabels",
    "ResourceQuota",
    "StorageObjectInUseProtection",
    "TaintNodesByCondition",
];

/// The plugins that are on unless disabled, in upstream's order.
#[must_use]
pub fn builtin() -> Vec<Arc<dyn Plugin>> {
    vec![
        Arc::new(NamespaceLifecycle),
        Arc::new(LimitRanger),
        Arc::new(ServiceAccount),
        Arc::new(Priority),
        Arc::new(DefaultTolerationSeconds),
        Arc::new(RuntimeClass),
    ]
}
