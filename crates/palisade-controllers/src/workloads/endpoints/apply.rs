//! Writes Endpoints and EndpointSlices, each as its own controller.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::{Value, json};

use super::{
    plan::{HEADLESS, groups, has_endpoints, is_headless, mirrored, selects, subsets},
    slices::{MANAGED_BY, SERVICE, SliceOwner, change},
};
use crate::{
    api::ApiError,
    workloads::{
        context::{Context, ENDPOINT_SLICES, ENDPOINTS, unreadable},
        events::MANAGER,
        meta::{Key, Meta},
        object::{Object, is_equal},
        pod::Pod,
    },
};

const SLICES: &str = "endpointslice-controller.k8s.io";
const MIRRORING: &str = "endpointslicemirroring-controller.k8s.io";
/// Users set it to `true` on Endpoints that are not mirrored.
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
/// The leader election of old clients wrote Endpoints.
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
const MANAGED: &str = "endpoints.kubernetes.io/managed-by";

/// Adds the Services that change, and those whose pods do.
async fn follow_services(context: &Context) {
    let queue = context.queue.clone();
    context.mirrors.services.on_change(move |before, after| {
        if let Some(service) = after.or(before) {
            queue.add(service.meta.key());
        }
    });
    let (queue, mirrors) = (context.queue.clone(), Arc::downgrade(&context.mirrors));
    context.mirrors.pods.on_change(move |before, after| {
        let Some(mirrors) = mirrors.upgrade() else { return };
        let Some(pod) = after.or(before) else { return };
        let is_selected =
            |service: &Object, pod: Option<&Pod>| pod.is_some_and(|pod| selects(service, &pod.meta));
        for service in mirrors.services.in_namespace(&pod.meta.namespace) {
            if is_selected(&service, before) || is_selected(&service, after) {
                queue.add(service.meta.key());
            }
        }
    });
    context.mirrors.synced().await;
    for service in context.mirrors.services.all() {
        context.queue.add(service.meta.key());
    }
}

fn selected(context: &Context, service: &Object) -> Vec<Arc<Pod>> {
    let mut pods = context.mirrors.pods.in_namespace(&service.meta.namespace);
    pods.retain(|pod| selects(service, &pod.meta));
    pods
}

/// Labels that belong to a Service, and not to what it has.
fn labels(meta: &Meta, is_headless: bool) -> BTreeMap<String, String> {
    let own = |key: &str| key == HEADLESS || key == SERVICE || key == MANAGED_BY;
    let mut labels: BTreeMap<String, String> = meta
        .labels
        .iter()
        .filter(|(key, _)| !own(key))
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect();
    if is_headless {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels
}

/// Runs the controller of Endpoints, and never returns.
pub async fn run_endpoints(context: Arc<Context>) {
    let queue = context.queue.clone();
    context.mirrors.endpoints.on_change(move |before, after| {
        if let Some(endpoints) = after.or(before) {
            queue.add(endpoints.meta.key());
        }
    });
    follow_services(&context).await;
    let context = &context;
    context.work(|key| async move { sync_endpoints(context, &key).await }).await;
}

async fn sync_endpoints(context: &Context, key: &Key) -> Result<Option<Duration>, ApiError> {
    let known = context.mirrors.endpoints.get(key);
    let path = ENDPOINTS.object(Some(&key.namespace), &key.name);
    let Some(service) = context.mirrors.services.get(key).filter(|service| !service.meta.is_deleting())
    else {
        // Those of other programs stay.
        if known.is_some_and(|known| known.meta.label(MANAGED).is_some()) {
            context.api.delete(&path).await?;
        }
        return Ok(None);
    };
    if !has_endpoints(&service) {
        return Ok(None);
    }
    let pods = selected(context, &service);
    let subsets = json!(subsets(&service, &pods.iter().map(AsRef::as_ref).collect::<Vec<_>>()));
    let mut labels = labels(&service.meta, is_headless(&service));
    labels.insert(MANAGED.to_owned(), "endpoint-controller".to_owned());
    let written = if let Some(known) = known {
        if is_equal(known.at("/subsets"), &subsets) && json!(known.meta.labels) == json!(labels) {
            return Ok(None);
        }
        let mut value = known.value.clone();
        value["subsets"] = subsets;
        value["metadata"]["labels"] = json!(labels);
        context.api.replace(&path, MANAGER, &value).await?
    } else {
        let made = json!({"apiVersion": "v1", "kind": "Endpoints", "subsets": subsets,
            "metadata": {"name": key.name, "namespace": key.namespace, "labels": labels}});
        match context.api.create(&ENDPOINTS.collection(Some(&key.namespace)), MANAGER, &made).await {
            Err(error) if error.is_terminating() => return Ok(None),
            other => other?,
        }
    };
    context.mirrors.endpoints.put(Object::of(written).map_err(unreadable)?);
    Ok(None)
}

/// Adds the owners of slices that change.
fn follow_slices(context: &Context, manager: &'static str) {
    let queue = context.queue.clone();
    context.mirrors.slices.on_change(move |before, after| {
        if let Some(slice) = after.or(before).filter(|slice| slice.meta.label(MANAGED_BY) == Some(manager))
            && let Some(service) = slice.meta.label(SERVICE)
        {
            queue.add(Key::new(&slice.meta.namespace, service));
        }
    });
}

/// Runs the controller of EndpointSlices, and never returns.
pub async fn run_slices(context: Arc<Context>) {
    follow_slices(&context, SLICES);
    follow_services(&context).await;
    let context = &context;
    context.work(|key| async move { sync_slices(context, &key).await }).await;
}

async fn sync_slices(context: &Context, key: &Key) -> Result<Option<Duration>, ApiError> {
    // The slices of a Service that is gone are garbage.
    let Some(service) = context.mirrors.services.get(key).filter(|service| !service.meta.is_deleting())
    else {
        return Ok(None);
    };
    if !has_endpoints(&service) {
        return Ok(None);
    }
    let pods = selected(context, &service);
    let pods: Vec<&Pod> = pods.iter().map(AsRef::as_ref).collect();
    let zone = |node: &str| {
        let node = context.mirrors.nodes.get(&Key::new("", node))?;
        node.meta.label("topology.kubernetes.io/zone").map(str::to_owned)
    };
    let owner = SliceOwner {
        api_version: "v1",
        kind: "Service",
        object: &service,
        manager: SLICES,
        labels: labels(&service.meta, is_headless(&service)),
    };
    write_slices(context, &owner, &groups(&service, &pods, zone)).await?;
    Ok(None)
}

/// Runs the controller that mirrors Endpoints which users write, and never returns.
pub async fn run_mirroring(context: Arc<Context>) {
    follow_slices(&context, MIRRORING);
    let queue = context.queue.clone();
    context.mirrors.endpoints.on_change(move |before, after| {
        if let Some(endpoints) = after.or(before) {
            queue.add(endpoints.meta.key());
        }
    });
    let queue = context.queue.clone();
    context.mirrors.services.on_change(move |before, after| {
        if let Some(service) = after.or(before) {
            queue.add(service.meta.key());
        }
    });
    context.mirrors.synced().await;
    for endpoints in context.mirrors.endpoints.all() {
        context.queue.add(endpoints.meta.key());
    }
    let context = &context;
    context.work(|key| async move { sync_mirrored(context, &key).await }).await;
}

async fn sync_mirrored(context: &Context, key: &Key) -> Result<Option<Duration>, ApiError> {
    let Some(endpoints) = context.mirrors.endpoints.get(key).filter(|one| !one.meta.is_deleting()) else {
        return Ok(None);
    };
    let service =
        context.mirrors.services.get(key).filter(|service| !service.at("/spec/selector").is_object());
    let is_mirrored = service.is_some()
        && endpoints.meta.label(SKIP) != Some("true")
        && endpoints.meta.annotation(LEADER).is_none();
    let owner = SliceOwner {
        api_version: "v1",
        kind: "Endpoints",
        object: &endpoints,
        manager: MIRRORING,
        labels: labels(&endpoints.meta, false),
    };
    let groups = if is_mirrored { mirrored(&endpoints) } else { Vec::new() };
    write_slices(context, &owner, &groups).await?;
    Ok(None)
}

async fn write_slices(
    context: &Context,
    owner: &SliceOwner<'_>,
    groups: &[super::slices::Group],
) -> Result<(), ApiError> {
    let meta = &owner.object.meta;
    let mut known = context.mirrors.slices.in_namespace(&meta.namespace);
    known.retain(|slice| {
        slice.meta.label(SERVICE) == Some(&meta.name) && slice.meta.label(MANAGED_BY) == Some(owner.manager)
    });
    let change = change(owner, groups, &known.iter().map(AsRef::as_ref).collect::<Vec<_>>());
    let keep = |written: Value| -> Result<(), ApiError> {
        context.mirrors.slices.put(Object::of(written).map_err(unreadable)?);
        Ok(())
    };
    for slice in &change.create {
        match context.api.create(&ENDPOINT_SLICES.collection(Some(&meta.namespace)), MANAGER, slice).await {
            Ok(made) => keep(made)?,
            Err(error) if error.is_terminating() => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    for (name, slice) in &change.replace {
        let path = ENDPOINT_SLICES.object(Some(&meta.namespace), name);
        keep(context.api.replace(&path, MANAGER, slice).await?)?;
    }
    for name in &change.delete {
        context.api.delete(&ENDPOINT_SLICES.object(Some(&meta.namespace), name)).await?;
        if let Some(slice) = known.iter().find(|slice| *slice.meta.name == **name) {
            context.mirrors.slices.forget(&slice.meta);
        }
    }
    Ok(())
}
