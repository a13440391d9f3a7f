//! The publisher against our own API server, in process: with faults, restarts and a clock that matters.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::{
    api::{core::v1::ConfigMap, core::v1::Pod, events::v1::Event},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use palisade_apiserver::{Router, Server};
use palisade_base::sha256;
use palisade_controllers::profile_publisher::{
    Options,
    apply::{published_profile, published_profiles},
    bounds::ProfileLimits,
    run,
};
use palisade_model::profile::baseline::{Baseline, published_sha256};
use palisade_policy::resources::custom_resource_definitions;
use serde_json::{Value, json};
use tokio::{sync::oneshot, task::JoinHandle};
use tower::filter::Filter;

const PROFILE: &str = r#"{ "defaultAction": "SCMP_ACT_ERRNO" }"#;
const LATE: &str = r#"{ "defaultAction": "SCMP_ACT_KILL" }"#;
const SOON: Duration = Duration::from_secs(20);

/// A server with our kinds, and no service accounts, so that pods need none.
async fn server() -> Router {
    let router = Server::builder().disable_plugins(["ServiceAccount".to_owned()]).router().unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(Client::new(router.clone(), "default"));
    for definition in custom_resource_definitions() {
        let definition = serde_json::from_value(definition).unwrap();
        definitions.create(&PostParams::default(), &definition).await.unwrap();
    }
    router
}

struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    fn start(client: Client, grace_period: Duration) -> Self {
        Self::with(client, Options { grace_period, resync: Duration::from_millis(100), ..Options::default() })
    }

    /// One that reads ConfigMaps so rarely that only its watch can count.
    fn hearing(client: Client) -> Self {
        Self::with(client, Options { resync: Duration::from_hours(9), ..Options::default() })
    }

    fn with(client: Client, options: Options) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(run(client, options, async {
            let _ = stopped.await;
        }));
        Self { stop, task }
    }

    async fn stop(self) {
        let _ = self.stop.send(());
        self.task.await.unwrap();
    }
}

async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    let looked = tokio::time::timeout(SOON, async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    looked.await.unwrap_or_else(|_| panic!("not in time: {what}"))
}

struct World {
    client: Client,
    profiles: Api<DynamicObject>,
}

impl World {
    fn new(router: &Router) -> Self {
        let client = Client::new(router.clone(), "default");
        Self { profiles: Api::all_with(client.clone(), &published_profiles()), client }
    }

    async fn put_map(&self, name: &str, text: &str) {
        let maps: Api<ConfigMap> = Api::default_namespaced(self.client.clone());
        let patch = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"p.json": text}});
        maps.patch(name, &PatchParams::apply("tests"), &Patch::Apply(patch)).await.unwrap();
    }

    async fn put_pod(&self, name: &str, map: Option<&str>, hash: &str) {
        let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i",
            "securityContext": {"seccompProfile": {"type": "Localhost",
                "localhostProfile": format!("palisade/{hash}.json")}}}]}});
        if let Some(map) = map {
            pod["metadata"]["annotations"] =
                json!({"container.seccomp.palisade.dev/c": format!("configmap/{map}/p.json@sha256:{hash}")});
        }
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    }

    fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    async fn delete_pod(&self, name: &str) {
        self.pods().delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
    }

    async fn profile(&self, hash: &str) -> Option<Value> {
        self.profiles.get_opt(hash).await.unwrap().map(|found| serde_json::to_value(found).unwrap())
    }

    async fn until_profile(&self, hash: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        until(what, || async { self.profile(hash).await.filter(&holds) }).await
    }

    async fn notes(&self) -> Vec<(String, String)> {
        let events: Api<Event> = Api::default_namespaced(self.client.clone());
        let list = events.list(&ListParams::default()).await.unwrap();
        let mut notes: Vec<_> = list
            .into_iter()
            .map(|event| (event.regarding.unwrap().name.unwrap(), event.note.unwrap()))
            .collect();
        notes.sort();
        notes
    }
}

fn sources(profile: &Value) -> String {
    let rows = profile["status"]["sources"].as_array().cloned().unwrap_or_default();
    let row =
        |row: &Value| format!("{}:{}", row["configMap"].as_str().unwrap(), row["state"].as_str().unwrap());
    format!("{} {}", profile["status"]["pods"], rows.iter().map(row).collect::<Vec<_>>().join(","))
}

#[tokio::test]
async fn referenced_profiles_are_published_counted_and_reported_as_old() {
    let world = World::new(&server().await);
    let hash = sha256::hex(PROFILE.as_bytes());
    world.put_map("web", PROFILE).await;
    world.put_pod("one", Some("web"), &hash).await;
    let running = Running::start(world.client.clone(), Duration::from_hours(1));
    let found = world.until_profile(&hash, "published", |found| sources(found) == "1 web:Current").await;
    assert_eq!(found["spec"]["profile"], PROFILE, "byte for byte");
    assert!(found["metadata"].get("finalizers").is_none());
    world.put_pod("two", Some("web"), &hash).await;
    world.until_profile(&hash, "counted", |found| sources(found) == "2 web:Current").await;

    // A client deletes it: it is made again.
    let uid = found["metadata"]["uid"].clone();
    world.profiles.delete(&hash, &DeleteParams::default()).await.unwrap();
    world.until_profile(&hash, "made again", |found| found["metadata"]["uid"] != uid).await;
    // A client puts other bytes under its name: they are replaced.
    let patch = Patch::Merge(json!({"spec": {"profile": "{}"}}));
    world.profiles.patch(&hash, &PatchParams::default(), &patch).await.unwrap();
    world.until_profile(&hash, "replaced", |found| found["spec"]["profile"] == PROFILE).await;

    // The ConfigMap moves on: the profile of running pods stays, and is visible as the older one.
    world.put_map("web", "{}").await;
    let aged = world.until_profile(&hash, "aged", |found| sources(found) == "2 web:Changed").await;
    assert_eq!(aged["spec"]["profile"], PROFILE);
    world
        .until_profile(&hash, "annotated", |found| {
            found["metadata"]["annotations"]["palisade.dev/changed-sources"] == "default/web/p.json"
        })
        .await;
    world.put_map("web", PROFILE).await;
    world
        .until_profile(&hash, "taken back", |found| {
            found["metadata"]["annotations"].get("palisade.dev/changed-sources").is_none()
        })
        .await;
    assert_eq!(world.notes().await, []);
    running.stop().await;
}

#[tokio::test]
async fn unpublishable_profiles_have_one_event_on_each_pod() {
    let world = World::new(&server().await);
    let hash = sha256::hex(PROFILE.as_bytes());
    world.put_map("other", "{}").await;
    world.put_pod("bare", None, &sha256::hex(b"x")).await;
    world.put_pod("changed", Some("other"), &hash).await;
    world.put_pod("missing", Some("absent"), &sha256::hex(b"y")).await;
    let running = Running::start(world.client.clone(), Duration::from_hours(1));
    let notes =
        until("three events", || async { Some(world.notes().await).filter(|notes| notes.len() == 3) }).await;
    let messages: Vec<String> =
        notes.into_iter().map(|(pod, note)| format!("{pod}: {}", note.split_once(": ").unwrap().1)).collect();
    assert_eq!(
        messages,
        [
            "bare: no annotation of the pod names its ConfigMap",
            "changed: key p.json of ConfigMap default/other holds another profile by now",
            "missing: configmap \"absent\" not found in namespace \"default\"",
        ]
    );
    // The ConfigMap comes late: published, without further action.
    world.put_map("other", PROFILE).await;
    world.until_profile(&hash, "published late", |_| true).await;
    assert_eq!(world.notes().await.len(), 3, "nothing is reported twice");
    running.stop().await;
}

#[tokio::test]
async fn a_document_that_is_no_profile_is_not_published_whatever_a_pod_claims() {
    let world = World::new(&server().await);
    let texts = [
        ("other", r#"{"foo":1}"#),
        ("list", "[]"),
        ("open", r#"{"defaultAction":"SCMP_ACT_ALLOW"}"#),
        ("listener", r#"{"defaultAction":"SCMP_ACT_ERRNO","listenerPath":"/run/a.sock"}"#),
    ];
    for (name, text) in texts {
        world.put_map(name, text).await;
        world.put_pod(name, Some(name), &sha256::hex(text.as_bytes())).await;
    }
    world.put_map("twin", PROFILE).await;
    world.put_pod("twin", Some("twin"), &sha256::hex(PROFILE.as_bytes())).await;
    let running = Running::start(world.client.clone(), Duration::from_hours(1));
    world.until_profile(&sha256::hex(PROFILE.as_bytes()), "the twin is published", |_| true).await;
    let notes =
        until("four events", || async { Some(world.notes().await).filter(|notes| notes.len() == 4) }).await;
    assert!(notes.iter().all(|(pod, _)| pod != "twin"), "{notes:?}");
    let list = world.profiles.list(&ListParams::default()).await.unwrap();
    assert_eq!(list.items.len(), 1, "nothing but the twin");
    running.stop().await;
}

#[tokio::test]
async fn the_grace_period_outlives_a_restart_and_a_pod_that_comes_back_stops_it() {
    let world = World::new(&server().await);
    let hash = sha256::hex(PROFILE.as_bytes());
    world.put_map("web", PROFILE).await;
    world.put_pod("one", Some("web"), &hash).await;
    let running = Running::start(world.client.clone(), Duration::from_hours(1));
    world.until_profile(&hash, "published", |_| true).await;
    // As old as it must be to count: a new one is given time for its pod to appear.
    let since = |found: &Value| found["metadata"]["annotations"]["palisade.dev/unreferenced-since"].clone();
    running.stop().await;
    world.delete_pod("one").await;
    let mark = |time: &str| {
        Patch::Merge(json!({"metadata": {"annotations": {"palisade.dev/unreferenced-since": time}}}))
    };
    let now = jiff::Timestamp::now();
    let before = |hours: i64| (now - jiff::SignedDuration::from_hours(hours)).strftime("%FT%TZ").to_string();
    world.profiles.patch(&hash, &PatchParams::default(), &mark(&before(1))).await.unwrap();

    // Another controller, a longer period: it stays, and the mark with it.
    let running = Running::start(world.client.clone(), Duration::from_hours(2));
    world.until_profile(&hash, "counted", |found| found["status"]["pods"] == 0).await;
    assert_eq!(since(&world.profile(&hash).await.unwrap()), before(1));
    world.put_pod("two", Some("web"), &hash).await;
    world.until_profile(&hash, "unmarked", |found| since(found).is_null()).await;
    running.stop().await;

    world.delete_pod("two").await;
    world.profiles.patch(&hash, &PatchParams::default(), &mark(&before(3))).await.unwrap();
    let running = Running::start(world.client.clone(), Duration::from_hours(2));
    until("removed", || async { world.profile(&hash).await.is_none().then_some(()) }).await;
    running.stop().await;
}

#[tokio::test]
async fn a_new_profile_is_not_marked_before_its_pod_can_appear() {
    let world = World::new(&server().await);
    let hash = sha256::hex(PROFILE.as_bytes());
    let object = serde_json::from_value(published_profile(&hash, PROFILE)).unwrap();
    world.profiles.create(&PostParams::default(), &object).await.unwrap();
    let running = Running::start(world.client.clone(), Duration::ZERO);
    world.until_profile(&hash, "counted", |found| found["status"]["pods"] == 0).await;
    assert!(world.profile(&hash).await.unwrap()["metadata"].get("annotations").is_none());
    running.stop().await;
}

#[tokio::test]
async fn a_changed_config_map_is_reported_at_once() {
    let world = World::new(&server().await);
    let (hash, late) = (sha256::hex(PROFILE.as_bytes()), sha256::hex(LATE.as_bytes()));
    world.put_map("web", PROFILE).await;
    world.put_pod("one", Some("web"), &hash).await;
    let running = Running::hearing(world.client.clone());
    world.until_profile(&hash, "published", |found| sources(found) == "1 web:Current").await;
    world.put_map("web", "{}").await;
    world.until_profile(&hash, "aged", |found| sources(found) == "1 web:Changed").await;
    let maps: Api<ConfigMap> = Api::default_namespaced(world.client.clone());
    maps.delete("web", &DeleteParams::default()).await.unwrap();
    world.until_profile(&hash, "gone", |found| sources(found) == "1 web:Gone").await;
    world.put_map("web", PROFILE).await;
    world.until_profile(&hash, "back", |found| sources(found) == "1 web:Current").await;
    // One that comes after its pod.
    world.put_pod("two", Some("late"), &late).await;
    until("an event", || async { (!world.notes().await.is_empty()).then_some(()) }).await;
    world.put_map("late", LATE).await;
    world.until_profile(&late, "published late", |found| sources(found) == "1 late:Current").await;
    running.stop().await;
}

#[tokio::test]
async fn without_a_watch_config_maps_are_read_at_an_interval() {
    let router = server().await;
    let world = World::new(&router);
    let hash = sha256::hex(PROFILE.as_bytes());
    world.put_map("web", PROFILE).await;
    world.put_pod("one", Some("web"), &hash).await;
    let client = unlucky(router, Arc::default(), |_, path| path.ends_with("/configmaps"));
    let running = Running::start(client, Duration::from_hours(1));
    world.until_profile(&hash, "published", |found| sources(found) == "1 web:Current").await;
    world.put_map("web", "{}").await;
    world.until_profile(&hash, "aged", |found| sources(found) == "1 web:Changed").await;
    running.stop().await;
}

#[tokio::test]
async fn a_profile_with_a_baseline_is_published_under_a_name_of_its_own() {
    let world = World::new(&server().await);
    let source = sha256::hex(PROFILE.as_bytes());
    let baseline = "localhost/team/base.json";
    let name = published_sha256(&source, &Baseline::parse(baseline).unwrap());
    world.put_map("web", PROFILE).await;
    let put = async |pod: &str, file: &str, baseline: Option<&str>| {
        let mut pod = json!({"metadata": {"name": pod, "annotations": {
                "seccomp.palisade.dev/pod": format!("configmap/web/p.json@sha256:{source}")}},
            "spec": {"containers": [{"name": "c", "image": "i"}], "securityContext": {"seccompProfile": {
                "type": "Localhost", "localhostProfile": format!("palisade/{file}.json")}}}});
        if let Some(baseline) = baseline {
            pod["metadata"]["annotations"]["seccomp.palisade.dev/baseline"] = json!(baseline);
        }
        world.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    };
    // Without its baseline, and with another one, the file has no source.
    put("without", &name, None).await;
    put("other", &name, Some("localhost/other.json")).await;
    let running = Running::start(world.client.clone(), Duration::from_hours(1));
    let notes =
        until("events", || async { Some(world.notes().await).filter(|notes| notes.len() == 2) }).await;
    assert!(
        notes.iter().all(|(_, note)| note.contains("no annotation of the pod names its ConfigMap")),
        "{notes:?}"
    );
    assert_eq!(world.profile(&name).await, None);

    put("bounded", &name, Some(baseline)).await;
    let found = world.until_profile(&name, "published", |found| sources(found) == "3 web:Current").await;
    assert_eq!(found["spec"], json!({"profile": PROFILE, "baseline": baseline}));
    // A client takes the baseline away: it is put back.
    let patch = Patch::Merge(json!({"spec": {"baseline": "runtime/default"}}));
    world.profiles.patch(&name, &PatchParams::default(), &patch).await.unwrap();
    world.until_profile(&name, "repaired", |found| found["spec"]["baseline"] == baseline).await;
    running.stop().await;
}

/// Annotations can be added to a pod that was admitted without them.
#[tokio::test]
async fn an_annotation_alone_publishes_nothing() {
    let world = World::new(&server().await);
    let (hash, twin) = (sha256::hex(PROFILE.as_bytes()), sha256::hex(LATE.as_bytes()));
    world.put_map("web", PROFILE).await;
    world.put_map("twin", LATE).await;
    world.put_pod("runs", Some("twin"), &twin).await;
    let annotations: Value = (0..100)
        .map(|n| {
            (
                format!("container.seccomp.palisade.dev/c{n}"),
                format!("configmap/web/p.json@sha256:{hash}").into(),
            )
        })
        .collect::<serde_json::Map<_, _>>()
        .into();
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    world.pods().patch("runs", &PatchParams::default(), &patch).await.unwrap();
    let running = Running::start(world.client.clone(), Duration::from_hours(1));
    world.until_profile(&twin, "the twin is published", |found| sources(found) == "1 twin:Current").await;
    assert_eq!(world.profile(&hash).await, None);
    running.stop().await;
}

#[tokio::test]
async fn a_namespace_gets_no_more_profiles_than_it_may_have() {
    let world = World::new(&server().await);
    let limits = ProfileLimits { per_namespace: 3, unreferenced: 1, ..ProfileLimits::default() };
    let texts: Vec<String> = (0..5).map(|n| format!("{}{PROFILE}", " ".repeat(n))).collect();
    for (n, text) in texts.iter().enumerate() {
        world.put_map(&format!("m{n}"), text).await;
        world.put_pod(&format!("p{n}"), Some(&format!("m{n}")), &sha256::hex(text.as_bytes())).await;
    }
    let options =
        Options { grace_period: Duration::from_hours(1), resync: Duration::from_millis(100), limits };
    let running = Running::with(world.client.clone(), options);
    let published = async || world.profiles.list(&ListParams::default()).await.unwrap().items;
    let notes =
        until("two events", || async { Some(world.notes().await).filter(|notes| notes.len() == 2) }).await;
    let problem = "the pods of namespace default have 3 profiles of at most 3";
    assert!(notes.iter().all(|(_, note)| note.ends_with(problem)), "{notes:?}");
    assert_eq!(published().await.len(), 3);
    // The pods that have theirs go: the others get room, and of what is left behind one profile stays.
    let waiting: Vec<String> = notes.into_iter().map(|(pod, _)| pod).collect();
    for pod in (0..5).map(|n| format!("p{n}")).filter(|pod| !waiting.contains(pod)) {
        world.delete_pod(&pod).await;
    }
    until("both, and one that was left behind", || async {
        let items = published().await;
        let counted = |count: u64| items.iter().filter(|item| item.data["status"]["pods"] == count).count();
        (items.len() == 3 && counted(1) == 2 && counted(0) == 1).then_some(())
    })
    .await;
    running.stop().await;
}

/// A client some of whose requests never arrive: those that break, by their number and path.
fn unlucky(router: Router, count: Arc<AtomicUsize>, breaks: fn(usize, &str) -> bool) -> Client {
    let arrives = move |request: http::Request<kube::client::Body>| {
        if breaks(count.fetch_add(1, Ordering::Relaxed), request.uri().path()) {
            return Err(std::io::Error::other("the connection broke"));
        }
        Ok(request)
    };
    Client::new(Filter::new(router, arrives), "default")
}

/// A third, scattered, so that no round of calls meets the same fault at the same place for ever.
fn a_third(number: usize, _: &str) -> bool {
    (number.wrapping_mul(2_654_435_761) >> 16).is_multiple_of(3)
}

#[tokio::test]
async fn an_api_server_that_fails_now_and_then_only_costs_time() {
    let router = server().await;
    let world = World::new(&router);
    for number in 0..20 {
        let text = format!("{{\"defaultAction\": \"SCMP_ACT_ERRNO\", \"comment\": \"{number}\"}}");
        world.put_map(&format!("m{number}"), &text).await;
        world
            .put_pod(&format!("p{number}"), Some(&format!("m{number}")), &sha256::hex(text.as_bytes()))
            .await;
    }
    let count = Arc::new(AtomicUsize::new(0));
    let running = Running::start(unlucky(router, count.clone(), a_third), Duration::from_hours(1));
    until("all published", || async {
        let list = world.profiles.list(&ListParams::default()).await.unwrap();
        let described = |profile: &DynamicObject| profile.data["status"]["sources"][0]["state"] == "Current";
        (list.items.len() == 20 && list.items.iter().all(described)).then_some(())
    })
    .await;
    assert!(count.load(Ordering::Relaxed) > 60);
    running.stop().await;
}
