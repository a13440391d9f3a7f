//! The registration, the certificates, and every call that is made for them.

use std::{collections::BTreeSet, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use palisade_apiserver::Server;
use palisade_base::version::KubeVersion;
use palisade_policy::{resources, scc::mode::ConstraintMode};
use palisade_webhook::{
    Options, Webhook,
    calls::{CALLS, Scope},
    certificates::{authority, serving},
    fail_fast::FailFastMode,
    metrics::REGISTRATIONS,
    options::{CertificateSource, Managed},
};
use serde_json::{Value, json};

use crate::support::{
    Caller, MUTATING, OWN, VALIDATING, about, cluster, eventually, install, options, pod, pod_request,
    registered, start,
};

fn bundle(configuration: &Value) -> String {
    let text = configuration["webhooks"][0]["clientConfig"]["caBundle"].as_str().unwrap_or_default();
    String::from_utf8(BASE64_STANDARD.decode(text).unwrap()).unwrap()
}

#[tokio::test]
async fn is_made_and_put_right() {
    for minor in [24, 37] {
        let cluster = cluster(Server::builder().version(KubeVersion::v1(minor))).await;
        let options = registered();
        let address = options.listen;
        let webhook = start(&cluster, options).await;
        let (mutating, validating) =
            (cluster.get(MUTATING).await.unwrap(), cluster.get(VALIDATING).await.unwrap());
        let names = |object: &Value| -> Vec<String> {
            object["webhooks"]
                .as_array()
                .unwrap()
                .iter()
                .map(|w| w["name"].as_str().unwrap().to_owned())
                .collect()
        };
        assert_eq!(
            names(&mutating),
            ["mutate.pods.palisade.dev", "mutate.applied-pods.palisade.dev", "mutate.workloads.palisade.dev"]
        );
        assert_eq!(
            names(&validating),
            [
                "validate.pods.palisade.dev",
                "validate.namespaces.palisade.dev",
                "validate.policies.palisade.dev",
                "validate.workloads.palisade.dev"
            ]
        );
        let pods = &mutating["webhooks"][0];
        assert_eq!(pods["clientConfig"]["url"], format!("https://{address}/mutate"));
        assert_eq!((&pods["failurePolicy"], &pods["sideEffects"]), (&json!("Fail"), &json!("None")));
        assert_eq!((&pods["reinvocationPolicy"], &pods["timeoutSeconds"]), (&json!("IfNeeded"), &json!(5)));
        assert_eq!(
            pods["namespaceSelector"]["matchExpressions"],
            json!([{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", OWN]}])
        );
        assert_eq!(pods.get("matchConditions").is_some(), minor >= 28, "v1.{minor}");
        let again = &mutating["webhooks"][1];
        assert_eq!(again["rules"][0]["operations"], json!(["UPDATE"]), "pods that are applied again");
        assert_eq!(again["failurePolicy"], "Ignore", "changes of pods do not wait");
        assert_eq!(mutating["webhooks"][2]["failurePolicy"], "Ignore", "advice stops nothing");
        let trusted = webhook.trust.borrow().bundle();
        assert_eq!((bundle(&mutating), bundle(&validating)), (trusted.clone(), trusted.clone()));

        // A client edits it, and a client removes it.
        let mut edited = validating.clone();
        edited["webhooks"][0]["clientConfig"]["caBundle"] =
            json!(BASE64_STANDARD.encode("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"));
        edited["webhooks"][0]["failurePolicy"] = json!("Ignore");
        let sent = cluster.send("PUT", VALIDATING, &edited).await;
        if sent.is_ok() {
            eventually("the edit to be put right", async || {
                let live = cluster.get(VALIDATING).await.unwrap();
                bundle(&live) == trusted && live["webhooks"][0]["failurePolicy"] == "Fail"
            })
            .await;
        } else {
            edited["webhooks"][0]["clientConfig"] = validating["webhooks"][0]["clientConfig"].clone();
            cluster.send("PUT", VALIDATING, &edited).await.unwrap();
            eventually("the edit to be put right", async || {
                cluster.get(VALIDATING).await.unwrap()["webhooks"][0]["failurePolicy"] == "Fail"
            })
            .await;
        }
        cluster.send("DELETE", MUTATING, &Value::Null).await.unwrap();
        eventually("the configuration to come back", async || cluster.get(MUTATING).await.is_some()).await;
        assert!(webhook.metrics.get(&REGISTRATIONS) >= 4);
        webhook.shutdown().await;
    }
}

#[tokio::test]
async fn replicas_share_one_authority() {
    let cluster = cluster(Server::builder()).await;
    let with = |identity: &str| Options { identity: identity.to_owned(), ..options() };
    let (one, two, three) = tokio::join!(
        start(&cluster, with("one")),
        start(&cluster, with("two")),
        start(&cluster, with("three"))
    );
    eventually("agreement", async || {
        let trusts: BTreeSet<String> =
            [&one, &two, &three].iter().map(|w| w.trust.borrow().bundle()).collect();
        trusts.len() == 1
    })
    .await;
    // What one serves, the others' trust covers.
    for (trust, server) in [(&one, &two), (&two, &three), (&three, &one)] {
        let caller = Caller::trusting(server.address, &trust.trust.borrow().clone(), &[]);
        assert_eq!(caller.page("/healthz").await.0, 200);
    }
    eventually("the reports", async || {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{OWN}/leases?labelSelector=palisade.dev/pod-security-instance");
        let leases = cluster.get(&path).await.unwrap();
        leases["items"].as_array().unwrap().len() == 3
    })
    .await;
    one.shutdown().await;
    let gone = format!("/apis/coordination.k8s.io/v1/namespaces/{OWN}/leases/pod-security-webhook-one");
    assert_eq!(cluster.get(&gone).await, None, "who ends takes the report along");
}

#[tokio::test]
async fn certificate_files_are_read_again() {
    let cluster = cluster(Server::builder()).await;
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let write = || {
        let now = palisade_serve::certificate::now();
        let authority = authority(now, Duration::from_mins(10)).unwrap();
        let names = ["localhost".to_owned()];
        let serving = serving(&authority, &names, now, Duration::from_mins(10)).unwrap();
        std::fs::write(file("tls.key"), &serving.key).unwrap();
        std::fs::write(file("tls.crt"), &serving.certificate).unwrap();
        std::fs::write(file("ca.crt"), &authority.certificate).unwrap();
        authority.certificate
    };
    let first = write();
    let certificate = CertificateSource::Files {
        certificate: file("tls.crt"),
        key: file("tls.key"),
        authority: Some(file("ca.crt")),
    };
    let webhook = start(&cluster, Options { certificate, ..registered() }).await;
    assert_eq!(webhook.trust.borrow().bundle(), first);
    assert_eq!(Caller::of(&webhook).page("/healthz").await.0, 200);
    let second = write();
    eventually("the new certificate", async || {
        webhook.trust.borrow().bundle() == second && Caller::of(&webhook).connect().await.is_ok()
    })
    .await;
    eventually("the new bundle", async || bundle(&cluster.get(MUTATING).await.unwrap()) == second).await;
    let secret = format!("/api/v1/namespaces/{OWN}/secrets/palisade-webhook-certificates");
    assert_eq!(cluster.get(&secret).await, None, "no authority of our own is made");
}

/// Every call is in the list that roles are made of, and everything in the list is called.
#[tokio::test]
async fn makes_the_documented_calls_and_no_others() {
    let cluster = cluster(Server::builder().openshift(true)).await;
    install(&cluster, resources::PROFILE_POLICIES).await;
    install(&cluster, resources::SECURITY_EXCEPTIONS).await;
    cluster.namespace("shop", &[]).await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}, "data": {"a.json": r#"{"defaultAction":"SCMP_ACT_ERRNO"}"#}});
    cluster.make("/api/v1/namespaces/shop/configmaps", &map).await;
    let short = Managed {
        authority_validity: Duration::from_secs(6),
        certificate_validity: Duration::from_secs(3),
        overlap: Duration::from_secs(1),
        ..Managed::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])
    };
    let options = Options {
        constraints: ConstraintMode::Enforce,
        fail_fast: Some(FailFastMode::Warn),
        certificate: CertificateSource::Managed(short),
        ..registered()
    };
    let webhook: Webhook = start(&cluster, options).await;
    let caller = Caller::of(&webhook);
    let mut object = pod("p", &json!({"serviceAccountName": "default"}));
    object["metadata"]["annotations"] =
        json!({"seccomp.security.alpha.kubernetes.io/pod": "configmap/web/a.json"});
    caller.review("/mutate", &pod_request("shop", "CREATE", &object)).await;
    caller.review("/validate", &pod_request("nowhere", "CREATE", &object)).await;
    let workload = json!({"metadata": {"name": "d"}, "spec": {"template": {"spec": {"containers": []}}}});
    caller.review("/validate", &about("apps", "deployments", "Deployment", "shop", &workload)).await;
    let label = |level: &str| json!({"metadata": {"name": "shop", "labels": {"pod-security.kubernetes.io/enforce": level}}});
    let mut request = about("", "namespaces", "Namespace", "shop", &label("restricted"));
    request["operation"] = json!("UPDATE");
    request["oldObject"] = label("privileged");
    caller.review("/validate", &request).await;
    eventually("a rotation and a report", async || {
        let calls = cluster.calls.lock().unwrap();
        calls.contains(&format!("update /secrets {OWN}"))
            && calls.contains(&format!("patch coordination.k8s.io/leases {OWN}"))
    })
    .await;
    webhook.shutdown().await;
    let mut allowed = BTreeSet::new();
    for call in CALLS {
        for verb in call.verbs {
            allowed.insert((format!("{verb} {}/{}", call.group, call.resource), call.scope));
        }
    }
    let calls = cluster.calls.lock().unwrap().clone();
    for call in &calls {
        let (what, namespace) = call.rsplit_once(' ').unwrap();
        let granted = allowed.contains(&(what.to_owned(), Scope::Cluster))
            || (namespace == OWN && allowed.contains(&(what.to_owned(), Scope::Own)));
        assert!(granted, "{call} is not in the list");
    }
    for (what, scope) in &allowed {
        let made = calls.iter().any(|call| {
            let (made, namespace) = call.rsplit_once(' ').unwrap();
            made == what && (*scope == Scope::Cluster || namespace == OWN)
        });
        // An object that is applied is created by the same call, which needs both verbs.
        let applied = what
            .strip_prefix("create ")
            .is_some_and(|rest| calls.iter().any(|call| call.starts_with(&format!("patch {rest} "))));
        assert!(made || applied, "{what} is in the list and never called");
    }
}

/// A configuration that is removed for good stays away, and one that is removed by mistake comes back.
#[tokio::test]
async fn an_uninstalled_registration_is_not_made_again() {
    let cluster = cluster(Server::builder()).await;
    let webhook = start(&cluster, registered()).await;
    let mark = json!({"metadata": {"annotations": {"palisade.dev/uninstalling": "true"}}});
    for path in [MUTATING, VALIDATING] {
        cluster.send("PATCH", path, &mark).await.unwrap();
        cluster.send("DELETE", path, &Value::Null).await.unwrap();
    }
    // The webhook goes on looking: a change of its trust makes it look at once.
    let before = webhook.metrics.get(&REGISTRATIONS);
    cluster
        .make(
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
            &json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "palisade", "annotations": {"palisade.dev/uninstalling": "true"}}}),
        )
        .await;
    cluster.send("DELETE", MUTATING, &Value::Null).await.unwrap();
    // Made again without the mark, it is corrected: the webhook has seen everything before.
    cluster.make("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", &json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": {"name": "palisade"}})).await;
    eventually("the correction", async || webhook.metrics.get(&REGISTRATIONS) > before).await;
    assert_eq!(webhook.metrics.get(&REGISTRATIONS), before + 1, "and nothing else was made");
    assert_eq!(cluster.get(VALIDATING).await, None);
    webhook.shutdown().await;
}
