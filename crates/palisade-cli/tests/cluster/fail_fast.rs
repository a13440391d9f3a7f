//! A workload is answered with what its pods would meet, in the real admission of a cluster with other webhooks in it.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http_body_util::{BodyExt as _, Full};
use palisade_serve::{
    Service, certificate, serve,
    status::{Reply, reply},
    tls::Resolver,
};
use palisade_testkit::kubernetes::{Cluster, Parts};
use serde_json::{Value, json};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{pki_types::CertificateDer, server::WebPkiClientVerifier},
};

use crate::support::{namespace, palisade, start_webhook};

/// A mutating webhook that makes one change in every pod.
struct Mutator {
    patch: Value,
}

impl Service for Mutator {
    type Peer = ();
    type Body = Full<hyper::body::Bytes>;

    fn peer(&self, _: Option<SocketAddr>, _: &[CertificateDer<'_>]) {}

    async fn respond(self: &Arc<Self>, request: http::Request<hyper::body::Incoming>, (): &()) -> Reply {
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let review: Value = serde_json::from_slice(&body).unwrap();
        let patch = BASE64_STANDARD.encode(self.patch.to_string());
        let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {
            "uid": review["request"]["uid"], "allowed": true, "patchType": "JSONPatch", "patch": patch}});
        reply(http::StatusCode::OK, "application/json", answer.to_string())
    }
}

/// Starts a mutating webhook and returns the configuration that registers it.
async fn mutator(cluster: &Cluster, name: &str, patch: Value) -> Value {
    let address = cluster.address().to_string();
    let listener = tokio::net::TcpListener::bind((address.as_str(), 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (now, valid) = (certificate::now(), Duration::from_hours(1));
    let authority = certificate::authority("mutator", now, valid).unwrap();
    let pair =
        certificate::serving(&authority, "mutator", std::slice::from_ref(&address), now, valid).unwrap();
    let resolver = Arc::new(Resolver::new(&pair).unwrap());
    let config = resolver.server_config(WebPkiClientVerifier::no_client_auth()).unwrap();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    tokio::spawn(async move {
        let acceptor = Some(TlsAcceptor::from(Arc::new(config)));
        serve(listener, acceptor, palisade_serve::Limits::default(), Arc::new(Mutator { patch }), stopped)
            .await;
        drop(stop);
    });
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": {"name": name},
        "webhooks": [{"name": format!("{name}.example.com"), "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"url": format!("https://{address}:{port}/"), "caBundle": BASE64_STANDARD.encode(&authority.certificate)},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "shop"}},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]}]})
}

fn deployment(name: &str, spec: Value) -> String {
    let mut template = json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "localhost/busybox:1"}]}});
    for (key, value) in spec.as_object().unwrap() {
        template["spec"][key] = value.clone();
    }
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "shop"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template}})
    .to_string()
}

#[test]
fn three_mutating_webhooks_cause_no_false_refusal() {
    // The webhook evaluates instead of the API server's own plugin: its own dry runs come back to it.
    let flags = ["--disable-admission-plugins=PodSecurity"];
    let Some(mut cluster) = Cluster::start_with(Parts::Controllers, &flags) else { return };
    let crds =
        palisade_testkit::command::output(&mut palisade(&cluster, &["install", "--components", "crds"]));
    cluster.apply(&crds.expect_success());
    start_webhook(&mut cluster, 8443, &["--fail-fast=off"]);
    let mut shop = namespace("shop", "restricted");
    shop["metadata"]["labels"]["palisade.dev/fail-fast"] = json!("refuse");
    cluster.apply(&shop.to_string());
    cluster.until("a service account", || {
        (!cluster.get(&["serviceaccount", "default", "-n", "shop"]).is_null()).then_some(())
    });
    // Each alone leaves the pod in violation, and the last depends on the one before.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let patches = [
        (
            "a-pod",
            json!([{"op": "add", "path": "/spec/securityContext", "value": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}}}]),
        ),
        (
            "b-container",
            json!([{"op": "add", "path": "/spec/containers/0/securityContext", "value": {"allowPrivilegeEscalation": false}}]),
        ),
        (
            "c-capabilities",
            json!([{"op": "add", "path": "/spec/containers/0/securityContext/capabilities", "value": {"drop": ["ALL"]}}]),
        ),
    ];
    let create = |text: &str| cluster.kubectl_with_input(&["create", "-f", "-"], text);
    cluster.until("a refusal while nothing corrects the pods", || {
        let refused = create(&deployment("web", json!({})));
        if refused.code == 0 {
            let _ = cluster.kubectl(&["delete", "deployment", "web", "-n", "shop"]).expect_success();
            return None;
        }
        assert!(refused.err.contains("pods of this Deployment would be rejected"), "{}", refused.err);
        assert!(refused.err.contains("violates PodSecurity \"restricted:latest\""), "{}", refused.err);
        Some(())
    });
    for (name, patch) in patches {
        cluster.apply(&runtime.block_on(mutator(&cluster, name, patch)).to_string());
    }
    cluster.until("the Deployment, with three webhooks that correct its pods", || {
        (create(&deployment("web", json!({}))).code == 0).then_some(())
    });
    cluster.until("its pod", || {
        let pods = cluster.get(&["pods", "-n", "shop"]);
        (pods["items"].as_array().is_some_and(|items| items.len() == 1)).then_some(())
    });
    // What they do not correct is still rejected, by the component that rejects it, and nothing is created for it.
    for _ in 0..3 {
        let refused = create(&deployment("host", json!({"hostPID": true})));
        assert!(refused.err.contains("host namespaces (hostPID=true)"), "{}", refused.err);
    }
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full", "namespace": "shop"}, "spec": {"hard": {"pods": "1"}}});
    cluster.apply(&quota.to_string());
    cluster.until("a quota that is used up", || {
        (cluster.get(&["resourcequota", "full", "-n", "shop"])["status"]["used"]["pods"] == "1").then_some(())
    });
    // Quota comes and goes: a warning, and no refusal.
    let warned = create(&deployment("more", json!({})));
    assert_eq!(warned.code, 0, "{}", warned.err);
    assert!(
        warned.err.contains("would be rejected now") && warned.err.contains("exceeded quota"),
        "{}",
        warned.err
    );
    assert_eq!(cluster.get(&["pods", "-n", "shop"])["items"].as_array().unwrap().len(), 1);
}
