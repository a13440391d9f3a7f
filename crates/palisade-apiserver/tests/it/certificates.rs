//! Certificates: who may approve, sign and attest, what no one may request, and what the server signs.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use palisade_apiserver::Server;
use palisade_serve::{certificate, signing_request};
use palisade_testkit::eventually;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};

use crate::rights::{World, rule, with};
use crate::support;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const BUNDLES: &str = "/apis/certificates.k8s.io/v1/clustertrustbundles";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";

fn pem(name: &str, groups: &[&str]) -> String {
    let mut params = CertificateParams::new(Vec::<String>::new()).expect("parameters");
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    for group in groups {
        params.distinguished_name.push(DnType::OrganizationName, *group);
    }
    let key = KeyPair::generate().expect("key");
    params.serialize_request(&key).expect("request").pem().expect("pem")
}

fn request(signer: &str, groups: &[&str]) -> Value {
    json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": "one"},
        "spec": {"request": STANDARD.encode(pem("eve", groups)), "signerName": signer,
                 "usages": ["client auth", "digital signature"], "expirationSeconds": 3600,
                 "username": "admin", "groups": ["system:masters"]},
    })
}

fn approval() -> Value {
    json!({"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "r", "message": "m"}]}})
}

/// A right on signers, in addition to everything about requests and bundles.
fn rights(verb: &str, signers: &[&str]) -> Value {
    let objects = rule(
        &["*"],
        "certificates.k8s.io",
        &[
            "certificatesigningrequests",
            "certificatesigningrequests/approval",
            "certificatesigningrequests/status",
            "clustertrustbundles",
        ],
    );
    let signers = with(rule(&[verb], "certificates.k8s.io", &["signers"]), "resourceNames", json!(signers));
    json!([objects, signers])
}

#[tokio::test]
async fn approving_and_signing_need_a_right_on_the_signer() {
    let signed = json!({"status": {"conditions": [{"type": "Failed", "status": "True"}]}});
    for (case, verb, signers, subresource, code) in [
        ("no signer", "approve", &[][..], "approval", 403),
        ("another verb", "sign", &[CLIENT], "approval", 403),
        ("another signer", "approve", &["kubernetes.io/kubelet-serving"], "approval", 403),
        ("another domain", "approve", &["example.com/*"], "approval", 403),
        ("the signer", "approve", &[CLIENT], "approval", 200),
        ("its domain", "approve", &["kubernetes.io/*"], "approval", 200),
        ("approving is not signing", "approve", &[CLIENT], "status", 403),
        ("the signer signs", "sign", &[CLIENT], "status", 200),
    ] {
        // Without names a rule is about all of them.
        let signers = if signers.is_empty() { &["none"] } else { signers };
        let world = World::new(&rights(verb, signers), &json!([])).await;
        world.admin("POST", REQUESTS, &request(CLIENT, &["users"])).await;
        let body = if subresource == "approval" { approval() } else { signed.clone() };
        let answer = world.mallory("PATCH", &format!("{REQUESTS}/one/{subresource}"), &body).await;
        assert_eq!(answer.code, code, "{case}: {}", answer.text);
        assert!(code == 200 || answer.text.contains("user not permitted to"), "{case}: {}", answer.text);
    }
}

#[tokio::test]
async fn no_request_names_another_author_or_the_group_that_may_do_everything() {
    let world = World::new(&rights("approve", &[CLIENT]), &json!([])).await;
    let attack = world.mallory("POST", REQUESTS, &request(CLIENT, &["users", "system:masters"])).await;
    assert_eq!(attack.code, 403, "{}", attack.text);
    let twin = world.mallory("POST", REQUESTS, &request(CLIENT, &["users"])).await;
    assert_eq!(twin.code, 201, "{}", twin.text);
    let stored: Value = serde_json::from_str(&twin.text).expect("JSON");
    assert_eq!(stored["spec"]["username"], "mallory");
    assert!(!stored["spec"]["groups"].to_string().contains("masters"), "{}", stored["spec"]);
    let mut forged = request(CLIENT, &["users"]);
    forged["metadata"]["name"] = "two".into();
    forged["status"] = approval()["status"].clone();
    let answer = world.mallory("POST", REQUESTS, &forged).await;
    let stored: Value = serde_json::from_str(&answer.text).expect("JSON");
    assert_eq!(stored["status"], json!({}), "a request is never born approved");
}

#[tokio::test]
async fn what_cannot_be_read_is_rejected() {
    let world = World::new(&json!([]), &json!([])).await;
    for (case, change) in [
        ("no PEM", json!({"request": STANDARD.encode("hello")})),
        ("no usages", json!({"usages": []})),
        ("an unknown usage", json!({"usages": ["cook"]})),
        ("a signer without a domain", json!({"signerName": "mine"})),
        ("too short", json!({"expirationSeconds": 599})),
    ] {
        let mut object = request("example.com/mine", &["users"]);
        for (field, value) in change.as_object().expect("fields") {
            object["spec"][field] = value.clone();
        }
        let user = palisade_apiserver::auth::UserInfo::admin();
        let answer = world.send(user, "POST", REQUESTS, "application/json", &object).await;
        assert_eq!(answer.code, 422, "{case}: {}", answer.text);
    }
    world.admin("POST", REQUESTS, &request("example.com/mine", &["users"])).await;
}

#[tokio::test]
async fn attesting_needs_a_right_on_the_signer() {
    let authority =
        certificate::authority("a", certificate::now(), Duration::from_hours(1)).expect("authority");
    let bundle = json!({"metadata": {"name": "example.com:mine:one"},
        "spec": {"signerName": "example.com/mine", "trustBundle": authority.certificate}});
    for (signer, code) in [("example.com/other", 403), ("example.com/mine", 201), ("example.com/*", 201)] {
        let world = World::new(&rights("attest", &[signer]), &json!([])).await;
        let answer = world.mallory("POST", BUNDLES, &bundle).await;
        assert_eq!(answer.code, code, "{signer}: {}", answer.text);
    }
}

#[tokio::test]
async fn an_approved_request_is_signed_with_the_authority_of_the_server() {
    let server = support::start(Server::builder()).await;
    let admin = support::admin(&server);
    let made = support::send(&admin, "POST", REQUESTS, &request(CLIENT, &["users"])).await;
    assert_eq!(made.code, 201, "{:?}", made.body);
    let path = format!("{REQUESTS}/one");
    let certificate = |object: &Value| object["status"]["certificate"].as_str().map(str::to_owned);
    let mut object = made.body;
    assert_eq!(certificate(&object), None);
    object["status"] = approval()["status"].clone();
    let approved = support::send(&admin, "PUT", &format!("{path}/approval"), &object).await;
    assert_eq!(approved.code, 200, "{:?}", approved.body);
    let issued = eventually("the request is signed", || async {
        certificate(&support::get(&admin, &path).await.body)
    })
    .await;
    let pem = STANDARD.decode(issued).expect("base64");
    let facts =
        signing_request::certificate_facts(&signing_request::blocks(&pem)[0].der).expect("certificate");
    assert!(!facts.is_authority);
    assert!(facts.not_after <= certificate::now() + 3600, "no longer than requested");
    server.shutdown().await;
}
