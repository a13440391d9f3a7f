//! Pods are created without a break while the installation is disturbed: none may be rejected.
//!
//! `PALISADE_LOAD_CREATES` is the number of pods for each disturbance, 500 by default.

use std::{
    collections::BTreeSet,
    env,
    error::Error,
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::PostParams};
use palisade_testkit::kubernetes::Cluster;
use rustix::process::Signal;
use serde_json::json;
use tokio::{runtime::Runtime, task::JoinHandle};

use crate::{
    install::{cluster_with_image, install},
    support::{namespace, restricted_pod},
};

const WORKERS: usize = 8;

/// What happens to the installation, and its name.
type Disturbance = (&'static str, fn(&mut Cluster));

fn wanted() -> usize {
    env::var("PALISADE_LOAD_CREATES").map_or(500, |text| text.parse().expect("a number of pods"))
}

#[derive(Default)]
struct Counted {
    begun: AtomicUsize,
    created: AtomicUsize,
    /// Connections that the API server itself refused or closed while it was restarted.
    lost: AtomicUsize,
    failed: Mutex<Vec<String>>,
    enough: AtomicBool,
}

/// Pods that are being created.
struct Load {
    counted: Arc<Counted>,
    workers: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(runtime: &Runtime, client: &Client, phase: usize) -> Self {
        let counted = Arc::new(Counted::default());
        let worker = |_| {
            let pods: Api<Pod> = Api::namespaced(client.clone(), "load");
            runtime.spawn(create_pods(pods, phase, counted.clone()))
        };
        Self { workers: (0..WORKERS).map(worker).collect(), counted: counted.clone() }
    }

    fn created(&self) -> usize {
        self.counted.created.load(Ordering::Relaxed)
    }

    /// Goes on until there are enough pods; returns how many were created, how many connections were lost, and the failures.
    fn finish(self, cluster: &Cluster, runtime: &Runtime) -> (usize, usize, Vec<String>) {
        let mut before = 0;
        while self.created() < wanted() {
            // The time for all of them depends on their number; the time for some does not.
            before = cluster.until("more pods", || Some(self.created()).filter(|now| *now > before));
        }
        self.counted.enough.store(true, Ordering::Relaxed);
        for worker in self.workers {
            runtime.block_on(worker).unwrap();
        }
        let lost = self.counted.lost.load(Ordering::Relaxed);
        let failed = self.counted.failed.lock().unwrap().clone();
        (self.counted.created.load(Ordering::Relaxed), lost, failed)
    }
}

async fn create_pods(pods: Api<Pod>, phase: usize, counted: Arc<Counted>) {
    while !counted.enough.load(Ordering::Relaxed) {
        let number = counted.begun.fetch_add(1, Ordering::Relaxed);
        let mut pod = restricted_pod(&format!("pod-{phase}-{number}"));
        // It is admitted and stored; that is all.
        pod["spec"]["schedulerName"] = json!("none");
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let mut lost = false;
        loop {
            match pods.create(&PostParams::default(), &pod).await {
                Ok(_) => counted.created.fetch_add(1, Ordering::Relaxed),
                // The request whose connection was lost had been served.
                Err(kube::Error::Api(status)) if lost && status.is_already_exists() => {
                    counted.created.fetch_add(1, Ordering::Relaxed)
                }
                Err(error) if is_lost_connection(&error) => {
                    lost = true;
                    counted.lost.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
                Err(error) => {
                    counted.failed.lock().unwrap().push(format!("{error:?}"));
                    0
                }
            };
            break;
        }
    }
}

/// Whether the API server itself was gone: it refused the connection, or closed it without a response, as it does with idle
/// connections when it is shut down. A webhook that fails is a response.
fn is_lost_connection(error: &kube::Error) -> bool {
    let mut source: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = source {
        let refused = error.downcast_ref::<io::Error>().is_some_and(|error| {
            matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset)
        });
        let closed = error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_incomplete_message);
        if refused || closed {
            return true;
        }
        source = error.source();
    }
    false
}

fn until_webhook_is_complete(cluster: &Cluster) {
    cluster.until("two ready replicas of the webhook", || {
        let status = cluster.get(&["deployment", "-n", "palisade-system", "palisade-webhook"]);
        let pods =
            cluster.get(&["pods", "-n", "palisade-system", "-l", "app.kubernetes.io/component=webhook"]);
        let spec = &status["status"];
        let current = status["metadata"]["generation"] == spec["observedGeneration"];
        let complete = spec["updatedReplicas"] == 2 && spec["readyReplicas"] == 2 && spec["replicas"] == 2;
        (current && complete && pods["items"].as_array().map(Vec::len) == Some(2)).then_some(())
    });
}

fn webhook_pod(cluster: &Cluster) -> String {
    let pods = cluster.get(&["pods", "-n", "palisade-system", "-l", "app.kubernetes.io/component=webhook"]);
    pods["items"][0]["metadata"]["name"].as_str().unwrap().to_owned()
}

fn delete_a_replica(cluster: &mut Cluster) {
    delete_webhook_pod(cluster, &["--wait=false"]);
}

/// What an administrator does with a pod that hangs.
fn delete_a_replica_by_force(cluster: &mut Cluster) {
    delete_webhook_pod(cluster, &["--force", "--grace-period=0", "--wait=false"]);
}

fn delete_webhook_pod(cluster: &Cluster, more: &[&str]) {
    let pod = webhook_pod(cluster);
    let _ =
        cluster.kubectl(&[&["delete", "pod", "-n", "palisade-system", &pod], more].concat()).expect_success();
    cluster.until("the replica gone", || {
        cluster.get(&["pod", "-n", "palisade-system", &pod]).is_null().then_some(())
    });
    until_webhook_is_complete(cluster);
}

fn delete_the_secret(cluster: &mut Cluster) {
    let name = ["-n", "palisade-system", "palisade-webhook-certificates"];
    let uid = |cluster: &Cluster| cluster.get(&[&["secret"], &name[..]].concat())["metadata"]["uid"].clone();
    let before = uid(cluster);
    let _ = cluster.kubectl(&[&["delete", "secret"], &name[..]].concat()).expect_success();
    cluster.until("another Secret", || Some(uid(cluster)).filter(|uid| uid.is_string() && *uid != before));
}

fn ca_bundle(cluster: &Cluster) -> Option<String> {
    let configuration = cluster.get(&["validatingwebhookconfiguration", "palisade"]);
    configuration["webhooks"][0]["clientConfig"]["caBundle"].as_str().map(str::to_owned)
}

/// Adds the validities with which CAs rotate while the test runs.
fn with_short_validities(manifests: &str) -> String {
    let argument = "        - --service=palisade-system/palisade-webhook:443\n";
    let validities = ["--ca-validity=150s", "--certificate-validity=60s", "--rotation-overlap=10s"];
    let more = validities.map(|validity| format!("        - {validity}\n")).concat();
    assert!(manifests.contains(argument), "the webhook has no argument {argument}");
    manifests.replace(argument, &format!("{argument}{more}"))
}

/// Waits until no CA of the present bundle is trusted any more: a new one was published, signed, and replaced the old one.
fn rotate_the_ca(cluster: &mut Cluster) {
    let certificates = |bundle: &str| -> BTreeSet<String> {
        let text = String::from_utf8(STANDARD.decode(bundle).unwrap()).unwrap();
        text.split("-----BEGIN CERTIFICATE-----").skip(1).map(str::to_owned).collect()
    };
    let before = certificates(&ca_bundle(cluster).unwrap());
    cluster.until("a bundle of other CAs", || {
        ca_bundle(cluster).filter(|bundle| certificates(bundle).is_disjoint(&before))
    });
}

fn restart_the_api_server(cluster: &mut Cluster) {
    cluster.stop_apiserver(Signal::TERM);
    cluster.start_apiserver();
}

#[test]
fn no_create_fails_while_the_installation_is_disturbed() {
    let Some(mut cluster) = cluster_with_image() else { return };
    cluster.apply(&with_short_validities(&install(&cluster, &["--components", "crds,webhook"])));
    until_webhook_is_complete(&cluster);
    cluster.apply(&namespace("load", "restricted").to_string());
    let account = ["get", "serviceaccount", "-n", "load", "default"];
    cluster.until("service account", || (cluster.kubectl(&account).code == 0).then_some(()));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let client = runtime.block_on(cluster.client());

    let disturbances: [Disturbance; 5] = [
        ("a replica is deleted", delete_a_replica),
        ("a replica is deleted by force", delete_a_replica_by_force),
        ("the Secret is deleted", delete_the_secret),
        ("the API server restarts", restart_the_api_server),
        ("the CA rotates", rotate_the_ca),
    ];
    let mut failures = Vec::new();
    for (phase, (name, disturb)) in disturbances.into_iter().enumerate() {
        let load = Load::start(&runtime, &client, phase);
        cluster.until("the first pods", || (load.created() > wanted() / 10).then_some(()));
        disturb(&mut cluster);
        let (created, lost, failed) = load.finish(&cluster, &runtime);
        println!(
            "{name}: {created} created, {} failed, {lost} connections lost with the API server",
            failed.len()
        );
        for error in failed.iter().take(5) {
            println!("  {error}");
        }
        if let Some(first) = failed.first() {
            failures.push(format!("{name}: {} of {created}: {first}", failed.len()));
        }
        if name != "the API server restarts" {
            assert_eq!(lost, 0, "{name}");
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}
