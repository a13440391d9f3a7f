//! Every namespace is given its user ids, groups and SELinux label.
//!
//! Implements: OpenShift's namespace allocation (`palisade_policy::scc::allocate`). OpenShift leaves it to a controller,
//! and refuses pods that come before it; here a new namespace has its ranges when it is answered for.

use std::sync::{Arc, Mutex};

use palisade_policy::scc::allocate::{Allocator, Ranges};
use palisade_policy::scc::namespace_ranges::UID_RANGE;
use serde_json::{Map, Value};

use crate::admission_chain::{Admission, Cluster, InReview, Notes, Operation, Plugin, Request};
use crate::api::Api;
use crate::meta;
use crate::storage::{Expect, lock};
use crate::verbs::write;

/// The plugin. Blocks of deleted namespaces are given away again when there are no others, or after a restart.
#[derive(Debug, Default)]
pub struct NamespaceSecurityAllocation {
    blocks: Mutex<Option<Allocator>>,
}

impl NamespaceSecurityAllocation {
    fn allocate(&self, cluster: &dyn Cluster) -> Option<Ranges> {
        let mut blocks = lock(&self.blocks);
        let free = blocks.get_or_insert_with(|| taken(cluster)).allocate();
        if free.is_some() {
            return free;
        }
        blocks.insert(taken(cluster)).allocate()
    }

    fn reserve(&self, uid_range: &str) {
        if let Some(blocks) = &mut *lock(&self.blocks) {
            blocks.reserve(uid_range);
        }
    }
}

impl Plugin for NamespaceSecurityAllocation {
    fn name(&self) -> &'static str {
        "security.openshift.io/NamespaceSecurityAllocation"
    }

    fn admit(&self, request: &Request<'_>, object: &mut InReview, _: &mut Notes) -> Admission {
        if !request.is("", "namespaces")
            || !matches!(request.operation, Operation::Create | Operation::Update)
        {
            return Ok(());
        }
        if let Some(own) = uid_range(object) {
            // A range that a namespace already has is never allocated a second time.
            self.reserve(own);
        } else if request.operation == Operation::Create
            && let Some(ranges) = self.allocate(request.cluster)
        {
            if request.dry_run
                && let Some(blocks) = &mut *lock(&self.blocks)
            {
                blocks.release(&ranges.ids);
            }
            annotate(object, &ranges);
        }
        Ok(())
    }
}

/// Gives ranges to namespaces that were stored without the plugins: the system's own, and those of dumps.
pub(crate) async fn fill(api: &Arc<Api>) {
    let served = api.registry.served();
    let Some(entry) = served.find("", "v1", "namespaces") else { return };
    let mut blocks = taken(&**api);
    for stored in api.list("namespaces", "") {
        let mut object = entry.typed(stored.parse());
        if uid_range(&object).is_some() {
            continue;
        }
        let Some(ranges) = blocks.allocate() else { return };
        annotate(&mut object, &ranges);
        let expect = Expect::Revision(stored.revision);
        if let Err(error) = write::commit(api, entry, stored.key(), expect, object, false).await {
            tracing::error!(namespace = stored.name(), %error, "cannot give a namespace its ranges");
        }
    }
}

fn uid_range(namespace: &Value) -> Option<&str> {
    let annotations = namespace.get("metadata").and_then(|metadata| metadata.get("annotations"));
    annotations?.get(UID_RANGE).and_then(Value::as_str).filter(|range| !range.is_empty())
}

/// Every block that a stored namespace has.
fn taken(cluster: &dyn Cluster) -> Allocator {
    let mut blocks = Allocator::default();
    for stored in cluster.list("namespaces", "") {
        if let Some(range) = uid_range(&Value::Object(stored.parse())) {
            blocks.reserve(range);
        }
    }
    blocks
}

fn annotate(namespace: &mut Value, ranges: &Ranges) {
    meta::edit_metadata(namespace, |metadata| {
        let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
        if annotations.is_null() {
            *annotations = Value::Object(Map::new());
        }
        if let Some(annotations) = annotations.as_object_mut() {
            for (key, value) in ranges.annotations() {
                annotations.entry(key).or_insert_with(|| value.into());
            }
        }
    });
}
