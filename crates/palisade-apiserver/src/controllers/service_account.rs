//! Every namespace has a service account `default` and the CA certificate that pods trust.
//!
//! Implements: `k8s.io/kubernetes/pkg/controller/{serviceaccount,certificates/rootcacertpublisher}`.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::MANAGER;
use crate::api::Api;
use crate::meta;
use crate::registry::Entry;
use crate::server::bootstrap;
use crate::storage::{Expect, Object, Range};
use crate::system_objects;
use crate::verbs::write;

const ROOT_CA: &str = "kube-root-ca.crt";
const DESCRIPTION: &str = "kubernetes.io/description";
const ANNOTATION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
                          endpoints such as the internal service IP or kubernetes.default.svc. No other usage is \
                          guaranteed across distributions of Kubernetes clusters.";

/// Follows what must be in every namespace.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    /// When namespaces, service accounts and ConfigMaps changed last.
    seen: [u64; 3],
    /// The revision of each namespace's ConfigMap that has the right content.
    published: HashMap<Box<str>, u64>,
}

impl Keeper {
    /// Makes what is missing, and writes again what was changed.
    pub(super) async fn run(&mut self, api: &Arc<Api>) {
        let now =
            ["namespaces", "serviceaccounts", "configmaps"].map(|name| api.store.bucket(name).changed_at());
        if std::mem::replace(&mut self.seen, now) == now {
            return;
        }
        ensure(api).await;
        self.republish(api).await;
    }

    async fn republish(&mut self, api: &Arc<Api>) {
        let served = api.registry.served();
        let (Some(namespaces), Some(maps)) =
            (served.find("", "v1", "namespaces"), served.find("", "v1", "configmaps"))
        else {
            return;
        };
        if !is_enabled(api) {
            return;
        }
        let mut published = HashMap::with_capacity(self.published.len());
        for namespace in namespaces.bucket.list(&Range::All).objects {
            let Some(map) = maps.bucket.get(&maps.key(namespace.name(), ROOT_CA)) else { continue };
            if self.published.get(namespace.name()) == Some(&map.revision)
                || publish(api, maps, &namespace, &map).await
            {
                published.insert(namespace.name().into(), map.revision);
            }
        }
        self.published = published;
    }
}

/// True if the ConfigMap is as it must be. One that is written is looked at again.
async fn publish(api: &Api, maps: &Entry, namespace: &Object, map: &Object) -> bool {
    let mut object = maps.typed(map.parse());
    let data = json!({"ca.crt": api.ca});
    let described =
        object.pointer("/metadata/annotations").and_then(|annotations| annotations.get(DESCRIPTION));
    let described = described.and_then(Value::as_str).is_some_and(|text| !text.is_empty());
    if object.get("data") == Some(&data) && described {
        return true;
    }
    if meta::is_deleting(&Value::Object(namespace.parse())) {
        return false;
    }
    if let Some(fields) = object.as_object_mut() {
        fields.insert("data".to_owned(), data);
    }
    meta::edit_metadata(&mut object, |metadata| {
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.insert(DESCRIPTION.to_owned(), ANNOTATION.into());
        }
    });
    // A write that comes first changes the ConfigMap, which is then looked at again.
    if let Err(error) =
        write::commit(api, maps, map.key(), Expect::Revision(map.revision), object, false).await
    {
        tracing::debug!(namespace = namespace.name(), %error, "cannot write {ROOT_CA} again");
    }
    false
}

/// Without the admission plugin of that name, service accounts are not used.
fn is_enabled(api: &Api) -> bool {
    api.chain.names().contains(&"ServiceAccount")
}

/// Makes what is missing, unless kube-controller-manager does.
pub(crate) async fn ensure(api: &Arc<Api>) {
    if !is_enabled(api) || system_objects::is_renewed(api, MANAGER) {
        return;
    }
    let served = api.registry.served();
    let (Some(namespaces), Some(accounts), Some(maps)) = (
        served.find("", "v1", "namespaces"),
        served.find("", "v1", "serviceaccounts"),
        served.find("", "v1", "configmaps"),
    ) else {
        return;
    };
    for namespace in namespaces.bucket.list(&Range::All).objects {
        let name = namespace.name();
        let has_account = accounts.bucket.get(&accounts.key(name, "default")).is_some();
        let has_ca = maps.bucket.get(&maps.key(name, ROOT_CA)).is_some();
        if (has_account && has_ca) || meta::is_deleting(&Value::Object(namespace.parse())) {
            continue;
        }
        bootstrap::put(api, accounts, name, json!({"metadata": {"name": "default", "namespace": name}}))
            .await;
        let map = json!({
            "metadata": {
                "name": ROOT_CA,
                "namespace": name,
                "annotations": {DESCRIPTION: ANNOTATION},
            },
            "data": {"ca.crt": api.ca},
        });
        bootstrap::put(api, maps, name, map).await;
    }
}
