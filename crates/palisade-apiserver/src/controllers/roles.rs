//! Aggregated cluster roles: the rules of every role their selectors match.
//!
//! Implements: Using RBAC Authorization, "Aggregated ClusterRoles".
//! <https://kubernetes.io/docs/reference/access-authn-authz/rbac/#aggregated-clusterroles>

use std::sync::Arc;

use palisade_base::label_selector::LabelSelector;
use serde_json::Value;

use crate::api::Api;
use crate::meta;
use crate::storage::{Expect, Object, Range};
use crate::verbs::write;

/// Brings aggregated roles up to date. `seen` is the newest change that was looked at.
pub(super) async fn aggregate(api: &Arc<Api>, seen: &mut u64) {
    let served = api.registry.served();
    let Some(entry) = served.find("rbac.authorization.k8s.io", "v1", "clusterroles") else { return };
    let changed = entry.bucket.changed_at();
    if std::mem::replace(seen, changed) == changed {
        return;
    }
    let roles = entry.bucket.list(&Range::All).objects;
    for stored in &roles {
        let mut role = entry.typed(stored.parse());
        let Some(selectors) = role.pointer("/aggregationRule/clusterRoleSelectors").cloned() else {
            continue;
        };
        let wanted = union(&roles, stored, &selectors);
        if role.get("rules") == Some(&wanted) || meta::is_deleting(&role) {
            continue;
        }
        if let Some(role) = role.as_object_mut() {
            role.insert("rules".to_owned(), wanted);
        }
        // A change meanwhile brings us back here.
        let _ = write::commit(api, entry, stored.key(), Expect::Revision(stored.revision), role, false).await;
    }
}

fn union(roles: &[Arc<Object>], own: &Object, selectors: &Value) -> Value {
    let mut all: Vec<Value> = Vec::new();
    for selector in selectors.as_array().into_iter().flatten() {
        let selector = LabelSelector::from_object(selector);
        for role in roles.iter().filter(|r| r.key() != own.key() && selector.matches_with(|key| r.label(key)))
        {
            for rule in role.parse().get("rules").and_then(Value::as_array).into_iter().flatten() {
                if !all.contains(rule) {
                    all.push(rule.clone());
                }
            }
        }
    }
    if all.is_empty() { Value::Null } else { all.into() }
}
