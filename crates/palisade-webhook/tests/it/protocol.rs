//! Spec: the server of a Pod Security webhook, over TLS: what is answered, what is turned away, and in which order.

use std::time::{Duration, Instant};

use palisade_apiserver::Server;
use palisade_webhook::{Options, certificates::authority, metrics::REFUSED_CONNECTIONS, options::Limits};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::support::{
    Caller, cluster, eventually, free_address, options, pod, pod_request, post, review, start,
};

#[tokio::test]
async fn refuses_what_is_no_review_in_upstreams_words_and_order() {
    let cluster = cluster(Server::builder()).await;
    let limits = Limits { body: 2000, ..Limits::default() };
    let webhook = start(&cluster, Options { limits, ..options() }).await;
    let caller = Caller::of(&webhook);
    let valid = review(&pod_request("default", "CREATE", &pod("p", &json!({}))));
    let large = format!("{valid}{}", " ".repeat(2000 - valid.len()));
    let fits = format!("{valid}{}", " ".repeat(1999 - valid.len()));
    for (case, kind, body, code, text) in [
        ("no body", "application/json", "", 400, "request body is empty\n"),
        ("no body comes before the type", "text/plain", "", 400, "request body is empty\n"),
        (
            "as large as the limit",
            "application/json",
            &large,
            413,
            "request entity is too large; limit is 2000 bytes\n",
        ),
        (
            "size comes before the type",
            "text/plain",
            &large,
            413,
            "request entity is too large; limit is 2000 bytes\n",
        ),
        ("a byte less", "application/json", &fits, 200, ""),
        (
            "another type",
            "text/plain",
            &valid,
            400,
            "unable to process a request with a non-json content type\n",
        ),
        (
            "a parameter",
            "application/json; charset=utf-8",
            &valid,
            400,
            "unable to process a request with a non-json content type\n",
        ),
        ("no JSON", "application/json", "{", 400, "unable to decode the request\n"),
        ("a list", "application/json", "[]", 400, "unable to decode the request\n"),
        (
            "another kind",
            "application/json",
            r#"{"apiVersion":"v1","kind":"Pod"}"#,
            400,
            "unexpected AdmissionReview kind: /v1, Kind=Pod\n",
        ),
        (
            "an older version",
            "application/json",
            r#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview"}"#,
            400,
            "unexpected AdmissionReview kind: admission.k8s.io/v1beta1, Kind=AdmissionReview\n",
        ),
        (
            "no request",
            "application/json",
            r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#,
            400,
            "the AdmissionReview has no request\n",
        ),
    ] {
        for path in ["/mutate", "/validate", "/", "/anything?timeout=5s"] {
            let (given, answer) = caller.send(post(path, kind, body.to_owned())).await.unwrap();
            assert_eq!(given, code, "{case} at {path}: {answer}");
            if code != 200 {
                assert_eq!(answer, text, "{case} at {path}");
            }
        }
    }
}

#[tokio::test]
async fn health_readiness_and_metrics() {
    let cluster = cluster(Server::builder()).await;
    let webhook = start(&cluster, Options { metrics_listen: Some(free_address()), ..options() }).await;
    let caller = Caller::of(&webhook);
    for path in ["/healthz", "/healthz/ping", "/readyz", "/readyz/informer-sync"] {
        assert_eq!(caller.page(path).await, (200, "ok".to_owned()), "{path}");
    }
    cluster.namespace("strict", &[("enforce", "restricted"), ("enforce-version", "v1.99")]).await;
    let request = pod_request("strict", "CREATE", &pod("p", &json!({})));
    assert_eq!(caller.review("/validate", &request).await["allowed"], false);
    let (code, metrics) = caller.page("/metrics").await;
    assert_eq!(code, 200);
    for line in [
        r#"pod_security_evaluations_total{decision="deny",mode="enforce",policy_level="restricted",policy_version="future",request_operation="create",resource="pod",subresource=""} 1"#,
        r#"pod_security_evaluations_total{decision="allow",mode="enforce",policy_level="privileged",policy_version="latest",request_operation="update",resource="pod",subresource=""} 0"#,
        r#"pod_security_exemptions_total{request_operation="create",resource="controller",subresource=""} 0"#,
        r#"palisade_webhook_reviews_total{answer="denied",webhook="validate"} 1"#,
        "palisade_webhook_ready 1",
        "palisade_webhook_review_duration_seconds_count{webhook=\"validate\"} 1",
        "# TYPE palisade_webhook_certificate_expiry_seconds gauge",
    ] {
        assert!(metrics.lines().any(|given| given == line), "{line} is not in\n{metrics}");
    }
    let expiry =
        metrics.lines().find_map(|line| line.strip_prefix("palisade_webhook_certificate_expiry_seconds "));
    assert!(expiry.unwrap().parse::<i64>().unwrap() > 1_700_000_000);
    // In plain HTTP there are no reviews.
    let address = webhook.metrics_address.unwrap();
    for (path, status) in [("/metrics", "200"), ("/readyz", "200"), ("/validate", "404")] {
        let answer = plain(address, path).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {answer}");
    }
}

async fn plain(address: std::net::SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn serves_both_versions_of_http_and_nothing_without_tls() {
    let cluster = cluster(Server::builder()).await;
    let webhook = start(&cluster, options()).await;
    let trust = webhook.trust.borrow().clone();
    let request = pod_request("default", "CREATE", &pod("p", &json!({})));
    for protocol in [&b"h2"[..], b"http/1.1"] {
        let caller = Caller::trusting(webhook.address, &trust, &[protocol]);
        let stream = caller.connect().await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol));
        drop(stream);
        assert_eq!(caller.review("/validate?timeout=2s", &request).await["allowed"], true);
    }
    let answer = plain(webhook.address, "/validate").await;
    assert_eq!(answer, "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n");
    // A client with another certificate authority is rejected.
    let stranger = authority(palisade_serve::certificate::now(), Duration::from_mins(1));
    let strange = palisade_webhook::certificates::Trust {
        authorities: vec![stranger.unwrap().certificate],
        signer: None,
    };
    assert!(Caller::trusting(webhook.address, &strange, &[]).connect().await.is_err());
    assert!(webhook.metrics.get(&REFUSED_CONNECTIONS) > 0);
}

#[tokio::test]
async fn slow_clients_are_cut_off() {
    let cluster = cluster(Server::builder()).await;
    let short = Duration::from_millis(300);
    let connection = palisade_serve::Limits { handshake: short, headers: short, ..Default::default() };
    let limits = Limits { connection, body_time: short, ..Limits::default() };
    let webhook = start(&cluster, Options { limits, ..options() }).await;
    let caller = Caller::of(&webhook);
    let ends = |mut stream: tokio_rustls::client::TlsStream<TcpStream>| async move {
        let (began, mut answer) = (Instant::now(), Vec::new());
        let _ = stream.read_to_end(&mut answer).await;
        assert!(began.elapsed() < Duration::from_secs(5), "not cut off");
        String::from_utf8_lossy(&answer).into_owned()
    };
    let mut stream = caller.connect().await.unwrap();
    let head = "POST /validate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{";
    stream.write_all(head.as_bytes()).await.unwrap();
    let answer = ends(stream).await;
    assert!(answer.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{answer}");
    assert!(answer.ends_with("the body did not come in time\n"), "{answer}");
    // A chunked body that never ends is cut off at the limit, however fast it comes.
    let mut stream = caller.connect().await.unwrap();
    stream
        .write_all(b"POST /validate HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        .await
        .unwrap();
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    for _ in 0..49 {
        if stream.write_all(chunk.as_bytes()).await.is_err() {
            break;
        }
    }
    let answer = ends(stream).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 413 Payload Too Large\r\n"), "{answer}");
    // Half a line of headers, and a connection without a handshake.
    let mut stream = caller.connect().await.unwrap();
    stream.write_all(b"POST /vali").await.unwrap();
    ends(stream).await;
    let mut silent = TcpStream::connect(webhook.address).await.unwrap();
    let mut nothing = Vec::new();
    tokio::time::timeout(Duration::from_secs(5), silent.read_to_end(&mut nothing)).await.unwrap().unwrap();
    assert!(nothing.is_empty());
}

#[tokio::test]
async fn the_timeout_of_the_request_is_kept() {
    let cluster = cluster(Server::builder()).await;
    let webhook = start(&cluster, options()).await;
    let caller = Caller::of(&webhook);
    // The API server is gone: a namespace that is not cached must be read, in the time there is.
    cluster.server.shutdown().await;
    let request = pod_request("unseen", "CREATE", &pod("p", &json!({})));
    let began = Instant::now();
    let response = caller.review("/validate?timeout=1s", &request).await;
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(response["allowed"], false);
    assert_eq!(response["status"]["code"], 500);
    assert_eq!(response["status"]["reason"], "InternalError");
    assert_eq!(
        response["status"]["message"],
        "Internal error occurred: failed to lookup namespace \"unseen\""
    );
    let noted = response["auditAnnotations"]["error"].as_str().unwrap();
    assert!(noted.starts_with("failed to lookup namespace \"unseen\": "), "{noted}");
    // A time that cannot be read is ignored, and what is known is answered.
    let known = pod_request("default", "CREATE", &pod("p", &json!({})));
    assert_eq!(caller.review("/validate?timeout=soon", &known).await["allowed"], true);
}

#[tokio::test]
async fn a_graceful_end_finishes_what_has_begun() {
    let cluster = cluster(Server::builder()).await;
    let delay = Duration::from_secs(1);
    let webhook = start(&cluster, Options { shutdown_delay: delay, ..options() }).await;
    let caller = Caller::of(&webhook);
    let body = review(&pod_request("default", "CREATE", &pod("p", &json!({}))));
    // A request of which half has come.
    let mut half = caller.connect().await.unwrap();
    let head = format!(
        "POST /validate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    half.write_all(head.as_bytes()).await.unwrap();
    half.write_all(&body.as_bytes()[..100]).await.unwrap();
    half.flush().await.unwrap();
    let ending = tokio::spawn(webhook.shutdown());
    let stopping = (500, "not ready: the webhook is stopping\n".to_owned());
    eventually("readiness fails", async || caller.page("/readyz").await == stopping).await;
    assert_eq!(caller.page("/healthz").await.0, 200);
    assert_eq!(caller.post("/validate", body.clone()).await.0, 200, "who still comes is still served");
    eventually("no connection is accepted", async || caller.connect().await.is_err()).await;
    half.write_all(&body.as_bytes()[100..]).await.unwrap();
    let mut answer = String::new();
    half.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    let sent: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!(sent["response"]["allowed"], true);
    ending.await.unwrap();
    assert!(caller.connect().await.is_err(), "the port is closed");
}

#[tokio::test]
async fn with_client_authorities_only_named_certificates_send_reviews() {
    let cluster = cluster(Server::builder()).await;
    cluster.namespace("strict", &[("enforce", "baseline")]).await;
    let now = palisade_serve::certificate::now();
    let (own, other) =
        (authority(now, Duration::from_mins(10)).unwrap(), authority(now, Duration::from_mins(10)).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("clients.crt");
    std::fs::write(&file, &own.certificate).unwrap();
    let names = vec!["kube-apiserver".to_owned()];
    let clients = Some(palisade_webhook::options::Clients { authorities: file, names });
    let webhook = start(&cluster, Options { clients, ..options() }).await;
    let body = review(&pod_request("strict", "CREATE", &pod("p", &json!({}))));
    let anonymous = Caller::of(&webhook);
    assert_eq!(anonymous.page("/healthz").await.0, 200, "kubelets have no certificate");
    for path in ["/mutate", "/validate"] {
        assert_eq!(anonymous.post(path, body.clone()).await.0, 403, "{path}");
    }
    for (case, signer, name, expected) in [
        ("the API server", &own, "kube-apiserver", Some(200)),
        ("another name", &own, "somebody", Some(403)),
        ("another authority", &other, "kube-apiserver", None),
    ] {
        let pair =
            palisade_serve::certificate::client(signer, name, &[], now, Duration::from_mins(5)).unwrap();
        let caller = Caller::with_certificate(&webhook, &pair);
        let answer = caller.send(post("/validate", "application/json", body.clone())).await;
        // swallowed: a handshake that fails has no status
        assert_eq!(answer.ok().map(|(code, _)| code), expected, "{case}");
    }
}
