//! Writes the usage of ResourceQuotas.

use std::{sync::Arc, time::Duration};

use serde_json::Value;

use super::plan::{Usage, counted, status};
use crate::{
    api::ApiError,
    workloads::{
        context::{CLAIMS, Context, Mirrors, PODS, QUOTAS, SERVICES},
        meta::Key,
        mirror::{Mirror, Mirrored},
        object::{is_equal, list},
    },
};

/// How often objects are counted that are not watched.
const RESYNC: Duration = Duration::from_secs(5);
/// Changes come in bursts; what comes within this time is counted together.
const BURST: Duration = Duration::from_millis(100);

/// Runs the controller, and never returns.
pub async fn run(context: Arc<Context>) {
    let queue = context.queue.clone();
    context.mirrors.quotas.on_change(move |before, after| {
        if let Some(quota) = after.or(before) {
            queue.add(quota.meta.key());
        }
    });
    follow(&context, |mirrors| &mirrors.pods);
    follow(&context, |mirrors| &mirrors.services);
    follow(&context, |mirrors| &mirrors.claims);
    follow(&context, |mirrors| &mirrors.replication_controllers);
    context.mirrors.synced().await;
    for quota in context.mirrors.quotas.all() {
        context.queue.add(quota.meta.key());
    }
    let context = &context;
    context.work(|key| async move { sync(context, &key).await }).await;
}

/// Counts again when objects of a kind change.
fn follow<K: Mirrored>(context: &Context, mirror: fn(&Mirrors) -> &Mirror<K>) {
    let (queue, mirrors) = (context.queue.clone(), Arc::downgrade(&context.mirrors));
    mirror(&context.mirrors).on_change(move |before, after| {
        let (Some(object), Some(mirrors)) = (after.or(before), mirrors.upgrade()) else { return };
        for quota in mirrors.quotas.in_namespace(&object.meta().namespace) {
            queue.add_after(quota.meta.key(), BURST);
        }
    });
}

async fn sync(context: &Context, key: &Key) -> Result<Option<Duration>, ApiError> {
    let Some(quota) = context.mirrors.quotas.get(key) else { return Ok(None) };
    let namespace = Some(&*key.namespace);
    let items = async |path: String| -> Result<Vec<Value>, ApiError> {
        let found = context.api.get(&path).await?;
        Ok(found.map(|found| list(&found["items"]).to_vec()).unwrap_or_default())
    };
    let mut usage = Usage {
        pods: items(PODS.collection(namespace)).await?,
        services: items(SERVICES.collection(namespace)).await?,
        claims: items(CLAIMS.collection(namespace)).await?,
        ..Usage::default()
    };
    let mut is_polled = false;
    for entry in quota.at("/spec/hard").as_object().into_iter().flat_map(|hard| hard.keys()) {
        let Some(resource) = counted(entry) else { continue };
        is_polled = true;
        let Some(path) = collection(context, &key.namespace, resource).await? else { continue };
        let count = i64::try_from(items(path).await?.len()).unwrap_or(i64::MAX);
        usage.counts.insert(resource.to_owned(), count);
    }
    let status = status(&quota, &usage);
    if !is_equal(&status, quota.at("/status")) {
        let path = format!("{}/status", QUOTAS.object(namespace, &key.name));
        context.replace(&context.mirrors.quotas, &path, &quota.with_status(status)).await?;
    }
    Ok(is_polled.then_some(RESYNC))
}

/// The path of the objects of a resource, `plural` or `plural.group`, if it is served.
async fn collection(context: &Context, namespace: &str, resource: &str) -> Result<Option<String>, ApiError> {
    let Some((plural, group)) = resource.split_once('.') else {
        return Ok(Some(format!("/api/v1/namespaces/{namespace}/{resource}")));
    };
    let served = context.api.get(&format!("/apis/{group}")).await?;
    let version = served.as_ref().and_then(|served| served["preferredVersion"]["groupVersion"].as_str());
    Ok(version.map(|version| format!("/apis/{version}/namespaces/{namespace}/{plural}")))
}
