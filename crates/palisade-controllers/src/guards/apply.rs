//! Watches guards and reports of nodes, and writes the status of each guard.

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use futures::{Stream, StreamExt as _};
use jiff::Timestamp;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    runtime::{
        WatchStreamExt as _, reflector,
        watcher::{self, watcher},
    },
};
use palisade_base::{causes::root_cause, time::Time};
use palisade_model::{
    guard::{KIND, RESOURCE},
    profile::published::{GROUP, VERSION},
};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tracing::{debug, warn};

use super::plan::status;

/// Name of the controller.
pub const NAME: &str = "syscall-guards";
/// Who writes.
const FIELD_MANAGER: &str = "palisade-syscall-guards";
/// Changes come in bursts; what can wait this long is written together.
const BURST: Duration = Duration::from_millis(200);
/// How often everything is looked at although nothing changed: guards end, and reports become stale.
const RESYNC: Duration = Duration::from_secs(30);

pub(crate) fn resource(kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: GROUP.to_owned(),
        version: VERSION.to_owned(),
        api_version: format!("{GROUP}/{VERSION}"),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

pub(crate) fn reflected(
    client: &Client,
    kind: ApiResource,
    changed: &Arc<Notify>,
) -> (reflector::Store<DynamicObject>, impl Stream<Item = ()> + Unpin + use<>) {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    let writer = reflector::store::Writer::new(kind);
    let store = writer.as_reader();
    let changed = Arc::clone(changed);
    let events = watcher(api, watcher::Config::default()).default_backoff().reflect(writer);
    let stream = events.map(move |event| match event {
        Ok(_) => changed.notify_one(),
        Err(error) => debug!(error = %root_cause(&error), "watch interrupted"),
    });
    (store, stream.boxed())
}

/// Objects as JSON.
pub(crate) fn plain(objects: &[Arc<DynamicObject>]) -> Vec<Value> {
    // swallowed: what came as JSON is JSON
    objects.iter().filter_map(|object| serde_json::to_value(object.as_ref()).ok()).collect()
}

/// Keeps the status of guards until `shutdown`.
pub async fn run(client: Client, shutdown: impl Future<Output = ()>) {
    let changed = Arc::new(Notify::new());
    let (guards, mut watching_guards) = reflected(&client, resource(KIND, RESOURCE), &changed);
    let (reports, mut watching_reports) =
        reflected(&client, resource("NodeSecurityReport", "nodesecurityreports"), &changed);
    let writing = async {
        if guards.wait_until_ready().await.is_err() || reports.wait_until_ready().await.is_err() {
            return;
        }
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource(KIND, RESOURCE));
        let mut written: BTreeMap<String, Value> = BTreeMap::new();
        loop {
            let reports = plain(&reports.state());
            let guards = plain(&guards.state());
            write(&api, &guards, &reports, &mut written).await;
            let _ = tokio::time::timeout(RESYNC, changed.notified()).await;
            tokio::time::sleep(BURST).await;
        }
    };
    let watching = async {
        loop {
            tokio::select! {
                Some(()) = watching_guards.next() => {}
                Some(()) = watching_reports.next() => {}
                else => return,
            }
        }
    };
    tokio::select! {
        () = writing => {}
        () = watching => {}
        () = shutdown => {}
    }
}

async fn write(
    api: &Api<DynamicObject>,
    guards: &[Value],
    reports: &[Value],
    written: &mut BTreeMap<String, Value>,
) {
    let now = Timestamp::now();
    let now = Time { seconds: now.as_second(), micros: 0 };
    let mut present = Vec::new();
    for guard in guards {
        let name = guard.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        present.push(name.to_owned());
        let status = status(guard, reports, now);
        if written.get(name) == Some(&status) && guard.get("status").is_some() {
            continue;
        }
        let patch = json!({"apiVersion": format!("{GROUP}/{VERSION}"), "kind": KIND, "metadata": {"name": name},
            "status": status});
        let params = PatchParams::apply(FIELD_MANAGER).force();
        match api.patch_status(name, &params, &Patch::Apply(patch)).await {
            Ok(_) => drop(written.insert(name.to_owned(), status)),
            Err(kube::Error::Api(answer)) if answer.code == 404 => {}
            Err(error) => {
                warn!(guard = name, error = %root_cause(&error), "failed to write the status of a guard");
            }
        }
    }
    written.retain(|name, _| present.contains(name));
}
