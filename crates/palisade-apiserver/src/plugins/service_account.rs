//! Every pod runs as a service account of its namespace, and finds its token where it expects it.
//!
//! Implements: Managing Service Accounts, "ServiceAccount admission controller".
//! <https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#serviceaccount-admission-controller>
//!
//! As upstream: name, existence, image pull secrets, the projected token volume. Limiting secret references
//! (`kubernetes.io/enforce-mountable-secrets`) is deprecated upstream and left out.

use palisade_apimachinery::Status;
use serde_json::{Map, Value, json};

use crate::admission_chain::{Admission, InReview, Notes, Operation, Plugin, Request};

const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const VOLUME_PREFIX: &str = "kube-api-access-";
/// A mirror pod is the API's picture of a static pod: it stays as the node wrote it.
const MIRROR: &str = "/metadata/annotations/kubernetes.io~1config.mirror";

/// The plugin.
#[derive(Debug, Clone, Copy)]
pub struct ServiceAccount;

impl Plugin for ServiceAccount {
    fn name(&self) -> &'static str {
        "ServiceAccount"
    }

    fn admit(&self, request: &Request<'_>, object: &mut InReview, _: &mut Notes) -> Admission {
        if request.operation != Operation::Create
            || !request.is("", "pods")
            || object.pointer(MIRROR).is_some()
        {
            return Ok(());
        }
        let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
            return Err(Status::bad_request("pod cannot be decoded: spec is not an object"));
        };
        let name = match spec.get("serviceAccountName").and_then(Value::as_str) {
            Some(name) if !name.is_empty() => name.to_owned(),
            _ => "default".to_owned(),
        };
        spec.insert("serviceAccountName".to_owned(), name.as_str().into());
        spec.insert("serviceAccount".to_owned(), name.as_str().into());
        let Some(account) = request.cluster.get("serviceaccounts", request.namespace, &name) else {
            return Err(request.forbidden(&format!(
                "error looking up service account {}/{name}: serviceaccount {name:?} not found",
                request.namespace
            )));
        };
        let account = account.parse();
        if wants_token(spec, &account) {
            mount_token(spec);
        }
        let no_secrets = spec.get("imagePullSecrets").and_then(Value::as_array).is_none_or(Vec::is_empty);
        if let (true, Some(secrets)) = (no_secrets, account.get("imagePullSecrets")) {
            spec.insert("imagePullSecrets".to_owned(), secrets.clone());
        }
        Ok(())
    }
}

/// The pod's word counts more than the account's.
fn wants_token(spec: &Map<String, Value>, account: &Map<String, Value>) -> bool {
    let setting =
        |object: &Map<String, Value>| object.get("automountServiceAccountToken").and_then(Value::as_bool);
    setting(spec).or_else(|| setting(account)).unwrap_or(true)
}

fn mount_token(spec: &mut Map<String, Value>) {
    let volumes = spec.get("volumes").and_then(Value::as_array).cloned().unwrap_or_default();
    let is_token = |volume: &&Value| {
        volume.get("name").and_then(Value::as_str).is_some_and(|n| n.starts_with(VOLUME_PREFIX))
    };
    let existing = volumes.iter().find(is_token).and_then(|v| v.get("name")).and_then(Value::as_str);
    let name =
        existing.map_or_else(|| format!("{VOLUME_PREFIX}{}", crate::meta::random_suffix()), str::to_owned);
    let mut mounted = false;
    for list in ["initContainers", "containers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(container) = container.as_object_mut() else { continue };
            let mounts = container.entry("volumeMounts").or_insert_with(|| json!([]));
            if mounts.is_null() {
                *mounts = json!([]);
            }
            let Some(mounts) = mounts.as_array_mut() else { continue };
            if mounts.iter().any(|m| m.get("mountPath").and_then(Value::as_str) == Some(MOUNT_PATH)) {
                continue;
            }
            mounts.push(json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH}));
            mounted = true;
        }
    }
    if mounted && existing.is_none() {
        let mut volumes = volumes;
        volumes.push(token_volume(&name));
        spec.insert("volumes".to_owned(), volumes.into());
    }
}

/// Token, CA and namespace, as the kubelet projects them.
fn token_volume(name: &str) -> Value {
    json!({"name": name, "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [
            {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
        ]}},
    ]}})
}
