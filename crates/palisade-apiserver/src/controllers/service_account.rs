//! Every namespace has a service account `default` and the CA certificate pods trust.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::Api;
use crate::meta;
use crate::server::bootstrap;
use crate::storage::Range;

/// Makes what is missing. Without the admission plugin of that name it is not used.
pub(crate) async fn ensure(api: &Arc<Api>) {
    if !api.chain.names().contains(&"ServiceAccount") {
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
        let has_ca = maps.bucket.get(&maps.key(name, "kube-root-ca.crt")).is_some();
        if (has_account && has_ca) || meta::is_deleting(&Value::Object(namespace.parse())) {
            continue;
        }
        bootstrap::put(api, accounts, name, json!({"metadata": {"name": "default", "namespace": name}}))
            .await;
        let annotation = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
                          endpoints such as the internal service IP or kubernetes.default.svc. No other usage is \
                          guaranteed across distributions of Kubernetes clusters.";
        let map = json!({
            "metadata": {
                "name": "kube-root-ca.crt",
                "namespace": name,
                "annotations": {"kubernetes.io/description": annotation},
            },
            "data": {"ca.crt": api.ca},
        });
        bootstrap::put(api, maps, name, map).await;
    }
}
