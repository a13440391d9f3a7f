//! What real API servers answered, given by the webhook.
//!
//! Two readings of "what the emulated server would answer". A webhook that answers as a release: `/mutate` writes what the
//! release's pod strategy writes, `/validate` refuses what its validation and Pod Security refuse; together code, reason,
//! message, causes, warnings and the stored security part are the recorded ones. And a webhook beside that release:
//! registered with an API server whose own Pod Security is off, the answers to users are the recorded ones.

use palisade_apiserver::Server;
use palisade_base::version::KubeVersion;
use palisade_model::{compat::Compat, workload::workload_resource};
use palisade_testkit::{
    client::Client,
    recordings::{self, assert_enough},
    replay::{self, Record, Report, Verdict, diff, place, pods},
};
use serde_json::{Map, Value, json};

use crate::support::{Caller, Cluster, KeepAlive, cluster, emulating, patched, registered, review, start};

/// What is recorded of pods that are made, and of Pod Security.
fn read(release: &str) -> Vec<Record> {
    let mut records: Vec<Record> = recordings::of_folder(&recordings::folder().join(release)).unwrap();
    records.retain(|record| record.group.starts_with("create-") || record.group.starts_with("psa-"));
    assert_enough(records.len(), 2000);
    records
}

fn admin(cluster: &Cluster) -> Client {
    let server = &cluster.server;
    Client::new(&server.address.to_string(), &server.ca, &server.token).unwrap()
}

/// The request for a review that an API server makes of a recorded request.
fn request_of(method: &str, path: &str, body: &Value, compat: &Compat) -> Option<(Value, &'static str)> {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (group, namespace, resource) = match parts[..] {
        ["api", _, "namespaces", namespace, resource] => ("", namespace, resource),
        ["apis", group, _, "namespaces", namespace, resource] => (group, namespace, resource),
        _ => return None,
    };
    let kind = workload_resource(group, resource).filter(|_| method == "POST")?;
    let mut object = body.clone();
    // What a release does not have is gone when it has read an object.
    if !compat.has_app_armor_fields() {
        forget(&mut object, "appArmorProfile");
    }
    if !compat.keeps_host_users() {
        forget(&mut object, "hostUsers");
    }
    let request = json!({
        "uid": "u", "name": object["metadata"]["name"], "namespace": namespace, "operation": "CREATE",
        "kind": {"group": group, "version": "v1", "kind": kind.kind},
        "resource": {"group": group, "version": "v1", "resource": resource},
        "userInfo": {"username": "admin", "groups": ["system:masters"]},
        "object": object, "dryRun": query.contains("dryRun=All"),
    });
    Some((request, if kind.path.is_empty() { "pod" } else { "template" }))
}

fn forget(value: &mut Value, field: &str) {
    match value {
        Value::Object(fields) => {
            fields.remove(field);
            fields.values_mut().for_each(|value| forget(value, field));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| forget(item, field)),
        _ => {}
    }
}

/// What both webhooks together answer, in the form of the recordings.
async fn answered(connection: &mut KeepAlive, mut request: Value, shown: &str, recorded: &Value) -> Value {
    let mut warnings: Vec<Value> = Vec::new();
    let mut out = Map::new();
    for path in ["/mutate?timeout=10s", "/validate?timeout=10s"] {
        let (code, text) = connection.post(path, review(&request)).await.unwrap();
        assert_eq!(code, 200, "{text}");
        let response = serde_json::from_str::<Value>(&text).unwrap()["response"].take();
        for warning in response["warnings"].as_array().into_iter().flatten() {
            // An API server reports each warning once.
            if !warnings.contains(warning) {
                warnings.push(warning.clone());
            }
        }
        if response["allowed"] != true {
            let status = &response["status"];
            out.insert("code".to_owned(), status["code"].clone());
            for (key, pointer) in
                [("reason", "/reason"), ("message", "/message"), ("causes", "/details/causes")]
            {
                out.extend(status.pointer(pointer).map(|value| (key.to_owned(), value.clone())));
            }
            break;
        }
        request["object"] = patched(&request["object"], &response);
    }
    out.insert("warnings".to_owned(), Value::Array(warnings));
    if !out.contains_key("code") {
        out.insert("code".to_owned(), json!(201));
        if recorded.get(shown).is_some() {
            let object = &request["object"];
            let pod = if shown == "pod" { object } else { &object["spec"]["template"] };
            out.insert(shown.to_owned(), pods::security_part(pod));
        }
    }
    Value::Object(out)
}

async fn replay_directly(release: &str, minor: u16) {
    let records = read(release);
    let builder = Server::builder().version(KubeVersion::v1(minor)).controllers(false);
    let cluster = cluster(builder).await;
    pods::prepare(&records, &admin(&cluster)).await.unwrap();
    let webhook = start(&cluster, emulating(minor)).await;
    let compat = Compat::kubernetes(minor);
    let mut connection = KeepAlive::open(&Caller::of(&webhook)).await.unwrap();
    let mut report = Report::default();
    for record in &records {
        for (index, step) in record.steps.iter().enumerate() {
            let body = step.request.body.clone().unwrap_or_default();
            let (request, shown) = request_of(&step.request.method, &step.request.path, &body, &compat)
                .unwrap_or_else(|| panic!("{} cannot be replayed", place(record, index)));
            let given = answered(&mut connection, request, shown, &step.answer).await;
            let (expected, given) = (pods::comparable(step.answer.clone()), pods::comparable(given));
            let verdict = if expected == given { Verdict::Equal } else { Verdict::Different };
            report.add(&record.group, place(record, index), verdict, diff(&expected, &given));
        }
    }
    println!("{release} through /mutate and /validate\n{}", report.render(5));
    let (steps, equal) = report.totals();
    assert_eq!(steps, equal, "{}", report.render(10));
}

#[tokio::test]
async fn the_webhook_answers_as_v1_24_did() {
    replay_directly("v1.24", 24).await;
}

#[tokio::test]
async fn the_webhook_answers_as_v1_37_did() {
    replay_directly("v1.37", 37).await;
}

/// The webhook beside an API server that judges nothing itself: users read what they read from the recorded server.
async fn replay_beside(release: &str, minor: u16) {
    let mut records = read(release);
    let off = ["ServiceAccount", "PodSecurity"].map(str::to_owned);
    let builder = Server::builder().version(KubeVersion::v1(minor)).controllers(false).disable_plugins(off);
    let cluster = cluster(builder).await;
    let _webhook = start(&cluster, registered()).await;
    // What legacy annotations and references to ConfigMaps do is what the webhook is there to change.
    let changed = |record: &Record| {
        record.steps.iter().any(|step| {
            let body = step.request.body.as_ref().map(Value::to_string).unwrap_or_default();
            let legacy = minor >= 27 && body.contains("seccomp.security.alpha.kubernetes.io/");
            legacy || body.contains(":\"configmap/")
        })
    };
    records.retain(|record| !changed(record));
    for record in &mut records {
        for step in &mut record.steps {
            // A refusal by a webhook names it.
            if step.answer["code"] == 403 {
                let text = step.answer["message"].as_str().unwrap_or_default();
                let text =
                    format!("admission webhook \"validate.pods.palisade.dev\" denied the request: {text}");
                step.answer["message"] = text.into();
            }
        }
    }
    let report = replay::replay(&records, &admin(&cluster)).await.unwrap();
    println!("{release} beside\n{}", report.render(5));
    let (steps, equal) = report.totals();
    assert_enough(steps, 1000);
    assert_eq!(steps, equal, "{}", report.render(10));
}

#[tokio::test]
async fn users_of_v1_24_read_what_they_read_before() {
    replay_beside("v1.24", 24).await;
}

#[tokio::test]
async fn users_of_v1_37_read_what_they_read_before() {
    replay_beside("v1.37", 37).await;
}
