//! What happens when things go wrong: no review is lost, none is answered wrongly, and the cluster can always come up.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use palisade_apiserver::Server;
use palisade_policy::resources;
use palisade_webhook::{
    Options, Webhook,
    certificates::{Trust, plan},
    metrics::CONFIGURATION_ERRORS,
    options::{CertificateSource, ConfigurationSource, Endpoint, Managed},
};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

use crate::{
    config_map_profiles::{allow, policy},
    support::{
        Caller, Cluster, KeepAlive, MUTATING, OWN, cluster, cluster_of, eventually, free_address, install,
        options, pod, pod_request, registered, review, start,
    },
};

fn good() -> String {
    review(&pod_request("strict", "CREATE", &pod("good", &json!({}))))
}

fn bad() -> String {
    review(&pod_request("strict", "CREATE", &pod("bad", &json!({"hostPID": true}))))
}

/// Whether a review was answered, and with what.
fn verdict(answer: &Result<(u16, String), String>) -> Option<bool> {
    let (code, text) = answer.as_ref().ok()?;
    let value: Value = serde_json::from_str(text).ok().filter(|_| *code == 200)?;
    value["response"]["allowed"].as_bool()
}

async fn server_at(address: SocketAddr, folder: &std::path::Path) -> Server {
    for _ in 0..100 {
        match Server::builder().listen(address).data_dir(folder).start().await {
            Ok(server) => return server,
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    panic!("the server does not start")
}

#[tokio::test]
async fn cold_without_an_api_server_everything_is_refused_and_nothing_lost() {
    let (folder, address) = (tempfile::tempdir().unwrap(), free_address());
    let first = cluster_of(server_at(address, folder.path()).await).await;
    first.namespace(OWN, &[]).await;
    first.namespace("strict", &[("enforce", "baseline")]).await;
    let Cluster { server, webhook_client, .. } = first;
    server.shutdown().await;

    let mut webhook = Webhook::start(options(), webhook_client).await.unwrap();
    // The certificate is not trusted yet; health can be requested all the same.
    let caller = Caller::trusting_anyone(webhook.address);
    assert!(caller.page("/readyz").await.1.starts_with("not ready: "));
    for path in ["/validate?timeout=2s", "/mutate?timeout=2s"] {
        let (code, text) = caller.post(path, good()).await;
        assert_eq!(code, 200);
        let response = serde_json::from_str::<Value>(&text).unwrap()["response"].take();
        assert_eq!(
            (&response["allowed"], &response["status"]["code"]),
            (&json!(false), &json!(500)),
            "{path}"
        );
        let message = response["status"]["message"].as_str().unwrap();
        assert!(message.starts_with("Internal error occurred: "), "{message}");
    }
    // The API server comes, and with it everything else.
    let second = cluster_of(server_at(address, folder.path()).await).await;
    webhook.ready.wait_for(|ready| *ready).await.unwrap();
    webhook.trust.wait_for(|trust| !trust.authorities.is_empty()).await.unwrap();
    let caller = Caller::of(&webhook);
    assert_eq!(caller.review("/validate", &request_in(&good())).await["allowed"], true);
    assert_eq!(caller.review("/validate", &request_in(&bad())).await["allowed"], false);

    // It goes again: what was seen stays in use, what was not is refused.
    second.server.shutdown().await;
    for _ in 0..3 {
        assert_eq!(caller.review("/validate", &request_in(&good())).await["allowed"], true);
        assert_eq!(caller.review("/validate", &request_in(&bad())).await["allowed"], false);
    }
    let unseen = pod_request("unseen", "CREATE", &pod("p", &json!({})));
    assert_eq!(caller.review("/validate?timeout=1s", &unseen).await["status"]["code"], 500);

    // And comes back: changes that were missed are seen.
    let third = cluster_of(server_at(address, folder.path()).await).await;
    let looser = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}});
    third.send("PATCH", "/api/v1/namespaces/strict", &looser).await.unwrap();
    eventually("the missed change", async || {
        caller.review("/validate", &request_in(&bad())).await["allowed"] == true
    })
    .await;
    webhook.shutdown().await;
    third.server.shutdown().await;
}

fn request_in(body: &str) -> Value {
    serde_json::from_str::<Value>(body).unwrap()["request"].take()
}

#[tokio::test]
async fn an_api_server_that_takes_no_writes() {
    let cluster = cluster(Server::builder()).await;
    install(&cluster, resources::PROFILE_POLICIES).await;
    allow(&cluster, &policy("strict", &Value::Null)).await;
    cluster.namespace("strict", &[("enforce", "baseline")]).await;
    cluster.read_only.store(true, Ordering::Relaxed);
    let mut webhook = Webhook::start(registered(), cluster.webhook_client.clone()).await.unwrap();
    webhook.ready.wait_for(|ready| *ready).await.unwrap();
    let anyone = Caller::trusting_anyone(webhook.address);
    assert_eq!(verdict(&Ok(anyone.post("/validate", good()).await)), Some(true), "it can answer");
    assert_eq!(verdict(&Ok(anyone.post("/validate", bad()).await)), Some(false));
    eventually("an attempt to write", async || {
        cluster.calls.lock().unwrap().iter().any(|call| call.contains("secrets"))
    })
    .await;
    assert_eq!(cluster.get(MUTATING).await, None, "and is not registered");
    cluster.read_only.store(false, Ordering::Relaxed);
    webhook.trust.wait_for(|trust| !trust.authorities.is_empty()).await.unwrap();
    eventually("the registration", async || cluster.get(MUTATING).await.is_some()).await;

    // Writes fail again: reviews go on, those of pods with profiles included.
    cluster.read_only.store(true, Ordering::Relaxed);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}, "data": {"a.json": r#"{"defaultAction":"SCMP_ACT_ERRNO"}"#}});
    cluster.make("/api/v1/namespaces/strict/configmaps", &map).await;
    let mut object = pod("p", &json!({}));
    object["metadata"]["annotations"] =
        json!({"seccomp.security.alpha.kubernetes.io/pod": "configmap/web/a.json"});
    let caller = Caller::of(&webhook);
    let response = caller.review("/mutate", &pod_request("strict", "CREATE", &object)).await;
    assert_eq!((&response["allowed"], response["patch"].is_string()), (&json!(true), true));
    webhook.shutdown().await;
}

#[tokio::test]
async fn a_dead_webhook_stops_neither_itself_nor_the_system() {
    let cluster = cluster(Server::builder().disable_plugins(["ServiceAccount".to_owned()])).await;
    cluster.namespace("strict", &[("enforce", "baseline")]).await;
    let webhook = start(&cluster, registered()).await;
    let make = async |namespace: &str, name: &str| {
        cluster.send("POST", &format!("/api/v1/namespaces/{namespace}/pods"), &pod(name, &json!({}))).await
    };
    make("strict", "one").await.unwrap();
    webhook.shutdown().await;
    let refused = make("strict", "two").await.unwrap_err();
    assert!(refused.contains("failed calling webhook \"mutate.pods.palisade.dev\""), "{refused}");
    make("kube-system", "three").await.unwrap();
    make(OWN, "four").await.unwrap();
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    cluster.send("PATCH", &format!("/api/v1/namespaces/{OWN}"), &label).await.unwrap();
    cluster.send("PATCH", "/api/v1/namespaces/kube-system", &label).await.unwrap();
    // Advice stops nothing.
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}}});
    cluster.make("/apis/apps/v1/namespaces/strict/deployments", &deployment).await;
    // Another replica, and all is well again.
    let again = start(&cluster, registered()).await;
    eventually("a webhook that answers", async || make("strict", "two").await.is_ok()).await;
    again.shutdown().await;
}

/// Sends good and bad reviews until `stop`; counts answers, and every wrong one is the end.
async fn send_until(
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    mut send: impl AsyncFnMut(bool) -> Result<(u16, String), String>,
) -> Vec<String> {
    let mut failures = Vec::new();
    let mut is_good = true;
    while !stop.load(Ordering::Relaxed) {
        let answer = send(is_good).await;
        match verdict(&answer) {
            Some(allowed) if allowed == is_good => {
                answered.fetch_add(1, Ordering::Relaxed);
            }
            Some(_) => panic!("wrongly answered: {answer:?}"),
            None => failures.push(format!("{answer:?}")),
        }
        is_good = !is_good;
        tokio::task::yield_now().await;
    }
    failures
}

/// What the API server trusts at this moment.
async fn registered_trust(cluster: &Cluster) -> Trust {
    let live = cluster.get(MUTATING).await.unwrap();
    let text = live["webhooks"][0]["clientConfig"]["caBundle"].as_str().unwrap();
    let pem = String::from_utf8(BASE64_STANDARD.decode(text).unwrap()).unwrap();
    let authorities = pem.split_inclusive("-----END CERTIFICATE-----\n").map(str::to_owned).collect();
    Trust { authorities, signer: None }
}

/// A Secret with an authority that no running replica has, as a replica without memory makes it.
fn secret_made_anew(options: &Managed) -> (Value, String) {
    let now = palisade_serve::certificate::now();
    let mut state = plan::State::default();
    while let Some(step) = plan::next(&state, options, now, &|_| true) {
        state = plan::take(state, step, options, now).unwrap();
    }
    let text = BASE64_STANDARD.encode(serde_json::to_string(&state).unwrap());
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": options.secret}, "data": {"state.json": text}});
    (secret, state.trust().bundle())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_secret_is_deleted_damaged_and_made_anew_under_load() {
    let cluster = cluster(Server::builder()).await;
    cluster.namespace("strict", &[("enforce", "baseline")]).await;
    let managed = Managed {
        overlap: Duration::from_secs(1),
        ..Managed::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])
    };
    let template = Options { certificate: CertificateSource::Managed(managed.clone()), ..registered() };
    let replica = |identity: &str| Options {
        listen: free_address(),
        identity: identity.to_owned(),
        ..template.clone()
    };
    let (one, two) = tokio::join!(start(&cluster, replica("one")), start(&cluster, replica("two")));
    let addresses = [one.address, two.address];
    for address in addresses {
        eventually("a replica that is ready", async || {
            Caller::trusting_anyone(address).page("/readyz").await.0 == 200
        })
        .await;
    }
    let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let turn = AtomicUsize::new(0);
    let send = async |is_good: bool| {
        let address = addresses[turn.fetch_add(1, Ordering::Relaxed) % addresses.len()];
        let caller = Caller::trusting(address, &registered_trust(&cluster).await, &[]);
        let mut connection = KeepAlive::open(&caller).await?;
        connection.post("/validate?timeout=5s", if is_good { good() } else { bad() }).await
    };
    let incidents = async {
        let secrets = format!("/api/v1/namespaces/{OWN}/secrets");
        let path = format!("{secrets}/{}", managed.secret);
        let authorities = async || {
            let secret = cluster.get(&path).await?;
            let text = BASE64_STANDARD.decode(secret["data"]["ca.crt"].as_str()?).ok()?;
            String::from_utf8(text).ok()
        };
        let first = authorities().await.unwrap();
        let restored = async |what: &str| {
            eventually(what, async || authorities().await.as_ref() == Some(&first)).await;
            assert_eq!(registered_trust(&cluster).await.bundle(), first, "{what}: trust has not changed");
        };
        cluster.send("DELETE", &path, &Value::Null).await.unwrap();
        restored("a deleted Secret").await;
        for damage in
            [json!({"state.json": "eA=="}), json!({"state.json": null}), json!({"state.json": "e30="})]
        {
            // `ca.crt` is only a copy: that it changes and comes back shows that the Secret was written.
            let mut data = damage;
            data["ca.crt"] = json!("eA==");
            cluster.send("PATCH", &path, &json!({"data": data})).await.unwrap();
            restored("a damaged Secret").await;
        }
        let (secret, newer) = secret_made_anew(&managed);
        cluster.send("DELETE", &path, &Value::Null).await.unwrap();
        if cluster.send("POST", &secrets, &secret).await.is_ok() {
            eventually("both authorities", async || {
                authorities().await.is_some_and(|all| all.contains(&first) && all.contains(&newer))
            })
            .await;
            eventually("the rotation to the newer one", async || {
                authorities().await.as_ref() == Some(&newer)
                    && registered_trust(&cluster).await.bundle() == newer
            })
            .await;
        } else {
            restored("a deleted Secret").await;
        }
        let enough = answered.load(Ordering::Relaxed) + 100;
        eventually("reviews after that", async || answered.load(Ordering::Relaxed) > enough).await;
        stop.store(true, Ordering::Relaxed);
    };
    let (failures, ()) = tokio::join!(send_until(stop.clone(), answered.clone(), send), incidents);
    assert_eq!(failures, [""; 0], "lost reviews");
    one.shutdown().await;
    two.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_rotated_under_load() {
    let cluster = cluster(Server::builder()).await;
    cluster.namespace("strict", &[("enforce", "baseline")]).await;
    let short = Managed {
        authority_validity: Duration::from_secs(9),
        certificate_validity: Duration::from_secs(3),
        overlap: Duration::from_secs(1),
        ..Managed::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])
    };
    let options = Options { certificate: CertificateSource::Managed(short), ..registered() };
    let webhook = start(&cluster, options).await;
    let first = webhook.trust.borrow().clone();
    let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    // Each caller connects anew and trusts what the API server trusts at that moment.
    let address = webhook.address;
    let send = async |is_good: bool| {
        let caller = Caller::trusting(address, &registered_trust(&cluster).await, &[]);
        let mut connection = KeepAlive::open(&caller).await?;
        connection.post("/validate?timeout=5s", if is_good { good() } else { bad() }).await
    };
    let ending = {
        let (stop, mut trust, first) = (stop.clone(), webhook.trust.clone(), first.clone());
        tokio::spawn(async move {
            let is_gone = |now: &Trust| !now.authorities.iter().any(|own| first.authorities.contains(own));
            trust.wait_for(is_gone).await.unwrap();
            stop.store(true, Ordering::Relaxed);
        })
    };
    let failures = send_until(stop, answered.clone(), send).await;
    ending.await.unwrap();
    assert_eq!(failures, [""; 0], "lost reviews");
    assert!(answered.load(Ordering::Relaxed) > 100, "{answered:?}");
    let last = webhook.trust.borrow().clone();
    assert!(
        !last.authorities.iter().any(|authority| first.authorities.contains(authority)),
        "the first authority is gone"
    );
    webhook.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_configuration_is_reloaded_under_load() {
    let cluster = cluster(Server::builder()).await;
    cluster.namespace("plain", &[]).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.json");
    let write = |text: &str| {
        // In one step, as a mounted ConfigMap changes.
        std::fs::write(file.with_extension("new"), text).unwrap();
        std::fs::rename(file.with_extension("new"), &file).unwrap();
    };
    let enforce = |level: &str| {
        format!(
            r#"{{"apiVersion":"pod-security.admission.config.k8s.io/v1","kind":"PodSecurityConfiguration","defaults":{{"enforce":"{level}"}}}}"#
        )
    };
    write(&enforce("baseline"));
    let webhook =
        start(&cluster, Options { configuration: ConfigurationSource::File(file.clone()), ..options() })
            .await;
    let caller = Arc::new(Caller::of(&webhook));
    let (stop, lost) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let in_plain = |spec: &Value| review(&pod_request("plain", "CREATE", &pod("p", spec)));
    let (harmless, harmful) = (in_plain(&json!({})), in_plain(&json!({"hostPID": true})));
    let load: Vec<_> = (0..4)
        .map(|_| {
            let (caller, stop, lost, harmless) =
                (caller.clone(), stop.clone(), lost.clone(), harmless.clone());
            tokio::spawn(async move {
                let mut connection = KeepAlive::open(&caller).await.unwrap();
                let mut sent = 0;
                while !stop.load(Ordering::Relaxed) {
                    // Allowed by both configurations, so there is only one right answer.
                    if verdict(&connection.post("/validate", harmless.clone()).await) != Some(true) {
                        lost.fetch_add(1, Ordering::Relaxed);
                    }
                    sent += 1;
                }
                sent
            })
        })
        .collect();
    let expect = async |allowed: bool| {
        let began = Instant::now();
        eventually("the new configuration", async || {
            verdict(&Ok(caller.post("/validate", harmful.clone()).await)) == Some(allowed)
        })
        .await;
        assert!(began.elapsed() < Duration::from_secs(5));
    };
    expect(false).await;
    write(&enforce("privileged"));
    expect(true).await;
    write("{ this is not one");
    eventually("the complaint", async || webhook.metrics.get(&CONFIGURATION_ERRORS) > 0).await;
    expect(true).await;
    write(&enforce("restricted").replace("restricted", "baseline"));
    expect(false).await;
    stop.store(true, Ordering::Relaxed);
    let mut sent = 0;
    for task in load {
        sent += task.await.unwrap();
    }
    assert_eq!(lost.load(Ordering::Relaxed), 0, "of {sent}");
    assert!(sent > 100);
    webhook.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_is_killed_under_load() {
    let cluster = cluster(Server::builder()).await;
    cluster.namespace("strict", &[("enforce", "baseline")]).await;
    // What a Service does: connections go to those who listen.
    let front = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = front.local_addr().unwrap();
    let mut template = registered();
    if let Some(registration) = &mut template.registration {
        registration.endpoint = Endpoint::Url(format!("https://{address}"));
    }
    let replica = |identity: &str| Options {
        listen: free_address(),
        identity: identity.to_owned(),
        ..template.clone()
    };
    // The one that is killed has a runtime of its own, which takes everything with it.
    let doomed_options = replica("doomed");
    let doomed_address = doomed_options.listen;
    let doomed = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let client = cluster.webhook_client.clone();
    doomed.spawn(async move {
        let webhook = Webhook::start(doomed_options, client).await.unwrap();
        std::future::pending::<()>().await;
        drop(webhook);
    });
    let survivor = start(&cluster, replica("survivor")).await;
    let backends = [doomed_address, survivor.address];
    let next = Arc::new(AtomicUsize::new(0));
    tokio::spawn(async move {
        while let Ok((mut from, _)) = front.accept().await {
            let turn = next.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                for offset in 0..backends.len() {
                    let backend = backends[(turn + offset) % backends.len()];
                    if let Ok(mut to) = TcpStream::connect(backend).await {
                        let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
                        return;
                    }
                }
            });
        }
    });
    eventually("both replicas", async || TcpStream::connect(doomed_address).await.is_ok()).await;
    let trust = survivor.trust.borrow().clone();
    eventually("both certificates", async || {
        Caller::trusting(doomed_address, &trust, &[]).connect().await.is_ok()
    })
    .await;
    let caller = Caller::trusting(address, &trust, &[]);
    let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let retried = AtomicU64::new(0);
    let send = async |is_good: bool| {
        let body = if is_good { good() } else { bad() };
        // A connection that breaks is an error to the API server, which rejects; the client retries.
        for _ in 0..3 {
            let once = async {
                let mut connection = KeepAlive::open(&caller).await?;
                connection.post("/validate?timeout=5s", body.clone()).await
            };
            match once.await {
                Ok(answer) => return Ok(answer),
                Err(_) => retried.fetch_add(1, Ordering::Relaxed),
            };
        }
        Err("three times in a row".to_owned())
    };
    let ending = {
        let (stop, answered) = (stop.clone(), answered.clone());
        std::thread::spawn(move || {
            let until = |count: u64| {
                let began = Instant::now();
                while answered.load(Ordering::Relaxed) < count && began.elapsed() < Duration::from_secs(20) {
                    std::thread::yield_now();
                }
                answered.load(Ordering::Relaxed)
            };
            let before = until(50);
            doomed.shutdown_background();
            let after = until(before + 50);
            stop.store(true, Ordering::Relaxed);
            after - before
        })
    };
    let failures = send_until(stop, answered.clone(), send).await;
    assert_eq!(failures, [""; 0], "lost reviews");
    assert!(ending.join().unwrap() > 20, "the survivor goes on");
    assert!(retried.load(Ordering::Relaxed) <= 4, "{retried:?} of {answered:?}");
    survivor.shutdown().await;
}
