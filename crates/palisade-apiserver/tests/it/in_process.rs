//! A `kube::Client` without a socket.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{
    DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use palisade_apiserver::auth::UserInfo;
use palisade_apiserver::{Server, Store, router};

/// Without service accounts, namespaces are empty.
fn client() -> Client {
    let builder = Server::builder().disable_plugins(["ServiceAccount".to_owned()]);
    Client::new(builder.router().expect("router"), "default")
}

fn config_map(name: &str, value: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([("k".to_owned(), value.to_owned())])),
        ..ConfigMap::default()
    }
}

#[tokio::test]
async fn reads_and_writes() {
    let maps: Api<ConfigMap> = Api::default_namespaced(client());
    let made = maps.create(&PostParams::default(), &config_map("a", "1")).await.expect("created");
    assert!(made.metadata.uid.is_some() && made.metadata.resource_version.is_some());
    let patch = Patch::Merge(serde_json::json!({"data": {"k": "2"}}));
    let patched = maps.patch("a", &PatchParams::default(), &patch).await.expect("patched");
    assert_eq!(patched.data.expect("data")["k"], "2");
    assert_eq!(maps.list(&ListParams::default()).await.expect("list").items.len(), 1);
    let apply = Patch::Apply(serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}, "data": {"x": "y"},
    }));
    maps.patch("b", &PatchParams::apply("tests"), &apply).await.expect("applied");
    maps.delete("a", &DeleteParams::default()).await.expect("deleted");
    let error = maps.get("a").await.expect_err("gone");
    assert!(matches!(error, kube::Error::Api(status) if status.code == 404));
}

#[tokio::test]
async fn dry_run_stores_nothing() {
    let maps: Api<ConfigMap> = Api::default_namespaced(client());
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    maps.create(&dry, &config_map("a", "1")).await.expect("would be created");
    assert!(maps.get_opt("a").await.expect("answer").is_none());
}

#[tokio::test]
async fn a_watch_reports_every_change_once() {
    let maps: Api<ConfigMap> = Api::default_namespaced(client());
    let start =
        maps.list(&ListParams::default()).await.expect("list").metadata.resource_version.expect("version");
    let events = maps.watch(&WatchParams::default(), &start).await.expect("watch").boxed();
    maps.create(&PostParams::default(), &config_map("a", "1")).await.expect("created");
    let patch = Patch::Merge(serde_json::json!({"data": {"k": "2"}}));
    maps.patch("a", &PatchParams::default(), &patch).await.expect("patched");
    maps.delete("a", &DeleteParams::default()).await.expect("deleted");
    let events: Vec<WatchEvent<ConfigMap>> = events.take(3).try_collect().await.expect("events");
    assert!(matches!(
        events.as_slice(),
        [WatchEvent::Added(_), WatchEvent::Modified(_), WatchEvent::Deleted(_)]
    ));
}

#[tokio::test]
async fn streaming_lists_work() {
    let maps: Api<ConfigMap> = Api::default_namespaced(client());
    for name in ["a", "b"] {
        maps.create(&PostParams::default(), &config_map(name, "1")).await.expect("created");
    }
    let stream = watcher(maps, watcher::Config::default().streaming_lists()).default_backoff();
    let seen = tokio::time::timeout(Duration::from_secs(5), async {
        let mut stream = std::pin::pin!(stream);
        let mut names = Vec::new();
        while let Some(event) = stream.try_next().await.expect("event") {
            match event {
                watcher::Event::InitApply(map) => names.push(map.metadata.name.expect("name")),
                watcher::Event::InitDone => return names,
                _ => {}
            }
        }
        names
    });
    assert_eq!(seen.await.expect("in time"), ["a", "b"]);
}

#[tokio::test]
async fn other_users_need_roles() {
    let router = router(Store::in_memory()).expect("router");
    let eve = router.as_user(UserInfo::new("eve", &["system:authenticated"]));
    let pods: Api<Pod> = Api::default_namespaced(Client::new(eve, "default"));
    let error = pods.list(&ListParams::default()).await.expect_err("refused");
    let text = error.to_string();
    assert!(
        text.contains(
            "User \"eve\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\""
        ),
        "{text}"
    );
}
