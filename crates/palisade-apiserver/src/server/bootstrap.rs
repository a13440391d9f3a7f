//! What is there before the first request: the system's namespaces and priority classes, the Service of the API server, the
//! default roles.

use std::sync::Arc;

use palisade_apimachinery::Status;
use palisade_apimachinery::rest::{self, CreateContext, Extra};
use serde_json::{Value, json};

use crate::api::Api;
use crate::auth::bootstrap;
use crate::controllers::service_account;
use crate::crd;
use crate::meta;
use crate::openshift;
use crate::registry::Entry;
use crate::services;
use crate::storage::{CommitError, Expect};
use crate::verbs::write;

const NAMESPACES: &[&str] = &["default", "kube-node-lease", "kube-public", "kube-system"];

/// The priority classes of the system: name, value, description.
const PRIORITY_CLASSES: &[(&str, i64, &str)] = &[
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
];

/// Makes what is missing. Roles that are there are left as they are.
pub(crate) async fn run(api: &Arc<Api>) {
    let served = api.registry.served();
    if let Some(entry) = served.find("", "v1", "namespaces") {
        for name in NAMESPACES {
            put(api, entry, "", json!({"metadata": {"name": name}})).await;
        }
    }
    if let Some(entry) = served.find("scheduling.k8s.io", "v1", "priorityclasses") {
        for (name, value, description) in PRIORITY_CLASSES {
            let class = json!({"metadata": {"name": name}, "value": value, "description": description});
            put(api, entry, "", class).await;
        }
    }
    services::install(api).await;
    for role in bootstrap::objects() {
        if let Some(entry) = served.find("rbac.authorization.k8s.io", "v1", role.resource) {
            put(api, entry, &role.namespace, role.object).await;
        }
    }
    if api.openshift {
        openshift::install(api).await;
    }
    service_account::ensure(api).await;
    api.health.set_started();
}

/// Stores an object of the server's own, unless it is there.
pub(crate) async fn put(api: &Arc<Api>, entry: &Entry, namespace: &str, object: Value) {
    let name = meta::meta_text(&object, "name").to_owned();
    if let Err(status) = create(api, entry, namespace, object).await {
        tracing::error!(resource = %entry.kind.plural, name, message = %status.message, "cannot make an object");
    }
}

/// Creates an object without admission, unless it is there.
pub(crate) async fn create(
    api: &Arc<Api>,
    entry: &Entry,
    namespace: &str,
    object: Value,
) -> Result<(), Box<Status>> {
    let name = meta::meta_text(&object, "name").to_owned();
    let key = entry.key(namespace, &name);
    if entry.bucket.get(&key).is_some() {
        return Ok(());
    }
    let Value::Object(object) = object else { return Ok(()) };
    let mut object = entry.typed(object);
    entry.kind.default(&mut object)?;
    let uid = meta::new_uid();
    let context = CreateContext { namespace, now: &meta::now(), uid: &uid, suffix: "" };
    rest::before_create(&entry.kind, &mut object, &context, &Extra::default())?;
    let _claim = services::allocate(api, &entry.kind, &mut object, None)?;
    match write::commit(api, entry, &key, Expect::Absent, object, false).await {
        // Existing by now is just as good.
        Ok(_) | Err(CommitError::Exists) => {}
        Err(error) => return Err(write::unavailable(&error)),
    }
    crd::after_bootstrap(api, entry, &key).await;
    Ok(())
}
