//! Objects that the server makes of what it is: an APIService for each version of a group that it serves, and the state of
//! the components.
//!
//! Implements: APIService v1 as far as a server without aggregation has it, and ComponentStatus v1, deprecated since v1.19.
//! <https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/api-service-v1/>
//!
//! They are made when a client looks at them, so that a server nobody asks keeps none.

use std::collections::BTreeMap;
use std::sync::Arc;

use palisade_apimachinery::Status;
use palisade_apimachinery::rest::path::Get as _;
use palisade_base::time;
use serde_json::{Value, json};

use crate::api::Api;
use crate::discovery;
use crate::meta;
use crate::registry::Entry;
use crate::server::bootstrap;
use crate::storage::{CommitError, Expect, Object, Range};
use crate::verbs::write;

/// Marks the APIServices that the server keeps.
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// How long the holder of a Lease counts as alive after it renewed it, if the Lease names no duration.
const LEASE_SECONDS: i64 = 15;

/// Brings the objects of a kind that the server itself makes up to date; nothing for other kinds.
pub(crate) async fn refresh(api: &Arc<Api>, entry: &Arc<Entry>) -> Result<(), Box<Status>> {
    match (entry.kind.group.as_str(), entry.kind.kind.as_str()) {
        ("apiregistration.k8s.io", "APIService") => services(api, entry).await,
        ("", "ComponentStatus") => components(api, entry).await,
        _ => Ok(()),
    }
}

/// Keeps the APIServices of a server on which a client has looked at them.
pub(crate) async fn follow(api: &Arc<Api>, seen: &mut u64) {
    let served = api.registry.served();
    let Some(entry) = served.find("apiregistration.k8s.io", "v1", "apiservices") else { return };
    if entry.bucket.is_empty() || std::mem::replace(seen, served.revision()) == served.revision() {
        return;
    }
    if let Err(status) = services(api, entry).await {
        tracing::error!(message = %status.message, "cannot update APIServices");
    }
}

async fn services(api: &Arc<Api>, entry: &Arc<Entry>) -> Result<(), Box<Status>> {
    let served = api.registry.served();
    let mut wanted = BTreeMap::new();
    let groups = discovery::group_versions(&served);
    // As upstream, the group of APIServices has none.
    for (group, versions) in groups.into_iter().filter(|(group, _)| group != "apiregistration.k8s.io") {
        for version in versions {
            let service = service(&group, &version, served.is_builtin(&group));
            wanted.insert(format!("{version}.{group}"), service);
        }
    }
    for stored in entry.bucket.list(&Range::All).objects {
        let managed = stored.label(MANAGED) == Some("true");
        if wanted.remove(stored.name()).is_none() && managed {
            replace(api, entry, &stored, Value::Object(stored.parse()), true).await?;
        }
    }
    for (_, service) in wanted {
        let status = service["status"].clone();
        let name = meta::meta_text(&service, "name").to_owned();
        bootstrap::create(api, entry, "", service).await?;
        if let Some(stored) = entry.bucket.get(&name) {
            let mut object = entry.typed(stored.parse());
            object["status"] = status;
            replace(api, entry, &stored, object, false).await?;
        }
    }
    Ok(())
}

/// Writes an object, unless another request did so meanwhile.
async fn replace(
    api: &Arc<Api>,
    entry: &Entry,
    stored: &Object,
    object: Value,
    delete: bool,
) -> Result<(), Box<Status>> {
    let expect = Expect::Revision(stored.revision);
    match write::commit(api, entry, stored.key(), expect, object, delete).await {
        Ok(_) | Err(CommitError::Conflict | CommitError::Exists) => Ok(()),
        Err(error) => Err(write::unavailable(&error)),
    }
}

fn service(group: &str, version: &str, builtin: bool) -> Value {
    let (group_priority, version_priority) = match (group, version) {
        ("", _) => (18_000, 1),
        _ if !builtin => (1000, 100),
        ("autoscaling", "v2") => (discovery::group_priority(group), 30),
        ("flowcontrol.apiserver.k8s.io" | "resource.k8s.io", _) => (discovery::group_priority(group), 21),
        _ => (discovery::group_priority(group), 15),
    };
    let managed = if builtin { "onstart" } else { "true" };
    let mut spec = json!({"version": version, "groupPriorityMinimum": group_priority, "versionPriority": version_priority});
    if !group.is_empty() {
        spec["group"] = group.into();
    }
    json!({
        "metadata": {"name": format!("{version}.{group}"), "labels": {MANAGED: managed}},
        "spec": spec,
        "status": {"conditions": [{
            "type": "Available", "status": "True", "lastTransitionTime": meta::now(), "reason": "Local",
            "message": "Local APIServices are always available",
        }]},
    })
}

async fn components(api: &Arc<Api>, entry: &Arc<Entry>) -> Result<(), Box<Status>> {
    let condition = |lease: &str| {
        let (status, field, text) = if is_renewed(api, lease) {
            ("True", "message", "ok".to_owned())
        } else {
            // The controllers of `palisade up` and a scheduler in its process hold no Lease.
            ("Unknown", "error", format!("no instance renews the Lease kube-system/{lease}"))
        };
        json!([{"type": "Healthy", "status": status, field: text}])
    };
    for (name, conditions) in [
        ("controller-manager", condition("kube-controller-manager")),
        ("etcd-0", json!([{"type": "Healthy", "status": "True", "message": "ok"}])),
        ("scheduler", condition("kube-scheduler")),
    ] {
        let Some(stored) = entry.bucket.get(name) else {
            let component = json!({"metadata": {"name": name}, "conditions": conditions});
            bootstrap::create(api, entry, "", component).await?;
            continue;
        };
        let mut component = entry.typed(stored.parse());
        if component["conditions"] != conditions {
            component["conditions"] = conditions;
            replace(api, entry, &stored, component, false).await?;
        }
    }
    Ok(())
}

/// Whether an instance of a component of Kubernetes holds and renews its Lease.
pub(crate) fn is_renewed(api: &Arc<Api>, lease: &str) -> bool {
    let key = meta::key(true, "kube-system", lease);
    let Some(lease) = api.store.bucket("leases.coordination.k8s.io").get(&key) else { return false };
    let lease = Value::Object(lease.parse());
    let empty = Value::Null;
    let spec = lease.get("spec").unwrap_or(&empty);
    let seconds = spec.int("leaseDurationSeconds").unwrap_or(LEASE_SECONDS);
    let renewed = time::parse(spec.text("renewTime"));
    !spec.text("holderIdentity").is_empty()
        && renewed.is_ok_and(|time| time.seconds.saturating_add(seconds) >= meta::unix_now())
}
