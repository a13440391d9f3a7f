//! Answers to requests that are not in the recordings.

use palisade_apiserver::Server;
use palisade_testkit::client::Client;
use serde_json::{Value, json};

use crate::support::{admin, get, send, start};

const PODS: &str = "/api/v1/namespaces/default/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

async fn server() -> Server {
    start(Server::builder().controllers(false).disable_plugins(["ServiceAccount".to_owned()])).await
}

fn template() -> Value {
    json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"a": "b"}}, "spec": template()["spec"]})
}

async fn apply(client: &Client, path: &str, body: &Value) -> (u16, String) {
    let headers = [("content-type", "application/apply-patch+yaml".to_owned())];
    let answer = client.request("PATCH", path, &headers, body.to_string()).await.expect("an answer");
    (answer.code, answer.body["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn paths_outside_any_registered_api_get_404() {
    let server = server().await;
    let client = admin(&server);
    for (path, is_status) in [
        ("/nope", false),
        ("/apis/nope", false),
        ("/apis/nope/v1", false),
        ("/apis/nope/v1/things", false),
        ("/apis/apps/v2", true),
        ("/apis/apps/v1/things", true),
        ("/api/v2", true),
    ] {
        let answer = get(&client, path).await;
        assert_eq!(answer.code, 404, "{path}");
        assert_eq!(answer.body["kind"] == "Status", is_status, "{path}: {}", answer.body);
    }
}

#[tokio::test]
async fn an_eviction_spends_a_budget() {
    let server = server().await;
    let client = admin(&server);
    let budget = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}});
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    assert_eq!(send(&client, "POST", budgets, &budget).await.code, 201);
    assert_eq!(send(&client, "POST", PODS, &pod("p")).await.code, 201);
    let running = json!({"status": {"phase": "Running"}});
    assert_eq!(send(&client, "PATCH", &format!("{PODS}/p/status"), &running).await.code, 200);
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    let evict = format!("{PODS}/p/eviction");
    let held = send(&client, "POST", &evict, &eviction).await;
    assert_eq!(held.code, 429);
    assert_eq!(
        held.body["details"]["causes"][0]["message"],
        "The disruption budget b is still being processed by the server."
    );
    let counted = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 1}});
    assert_eq!(send(&client, "PATCH", &format!("{budgets}/b/status"), &counted).await.code, 200);
    assert_eq!(send(&client, "POST", &evict, &eviction).await.code, 201);
    let spent = get(&client, &format!("{budgets}/b")).await.body;
    assert_eq!(spent["status"]["disruptionsAllowed"], 0);
    assert!(spent["status"]["disruptedPods"]["p"].is_string(), "{spent}");
}

#[tokio::test]
async fn an_evicted_pod_shows_that_it_was_disrupted() {
    let server = server().await;
    let client = admin(&server);
    let mut held = pod("p");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    assert_eq!(send(&client, "POST", PODS, &held).await.code, 201);
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    let evict = format!("{PODS}/p/eviction");
    let disrupted = |pod: &Value| {
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        conditions.filter(|one| one["type"] == "DisruptionTarget").cloned().collect::<Vec<_>>()
    };
    assert_eq!(send(&client, "POST", &format!("{evict}?dryRun=All"), &eviction).await.code, 201);
    assert!(
        disrupted(&get(&client, &format!("{PODS}/p")).await.body).is_empty(),
        "a dry run changes nothing"
    );
    assert_eq!(send(&client, "POST", &evict, &eviction).await.code, 201);
    let left = get(&client, &format!("{PODS}/p")).await.body;
    assert!(left["metadata"]["deletionTimestamp"].is_string());
    let conditions = disrupted(&left);
    assert_eq!((conditions.len(), &conditions[0]["reason"]), (1, &json!("EvictionByEvictionAPI")));
}

#[tokio::test]
async fn an_applied_scale_respects_other_owners() {
    let server = server().await;
    let client = admin(&server);
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template()}});
    let path = format!("{DEPLOYMENTS}/d");
    assert_eq!(apply(&client, &format!("{path}?fieldManager=owner"), &deployment).await.0, 201);
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 3}});
    let (code, message) = apply(&client, &format!("{path}/scale?fieldManager=scaler"), &scale).await;
    assert_eq!(
        (code, message.as_str()),
        (409, "Apply failed with 1 conflict: conflict with \"owner\": .spec.replicas")
    );
    let forced = apply(&client, &format!("{path}/scale?fieldManager=scaler&force=true"), &scale).await;
    assert_eq!(forced.0, 200, "{}", forced.1);
    let found = get(&client, &path).await.body;
    assert_eq!(found["spec"]["replicas"], 3);
    let entries = found["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let scaler = entries.iter().find(|entry| entry["manager"] == "scaler").expect("an entry");
    assert_eq!((&scaler["operation"], &scaler["subresource"]), (&json!("Apply"), &json!("scale")));
    let (code, message) = apply(&client, &format!("{path}?fieldManager=owner"), &deployment).await;
    assert_eq!(
        (code, message.as_str()),
        (
            409,
            "Apply failed with 1 conflict: conflict with \"scaler\" with subresource \"scale\": .spec.replicas"
        )
    );
}

#[tokio::test]
async fn resizing_changes_resources_and_nothing_else() {
    let server = server().await;
    let client = admin(&server);
    let mut small = pod("p");
    small["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
    assert_eq!(send(&client, "POST", PODS, &small).await.code, 201);
    let patch = json!({"metadata": {"labels": {"x": "y"}},
        "spec": {"containers": [{"name": "c", "image": "other", "resources": {"requests": {"cpu": "2"}}}]}});
    let headers = [("content-type", "application/strategic-merge-patch+json".to_owned())];
    let resize = format!("{PODS}/p/resize");
    let answer = client.request("PATCH", &resize, &headers, patch.to_string()).await.expect("an answer");
    assert_eq!(answer.code, 200, "{}", answer.body);
    let container = &answer.body["spec"]["containers"][0];
    assert_eq!((&container["image"], &container["resources"]["requests"]["cpu"]), (&json!("i"), &json!("2")));
    assert_eq!(answer.body["metadata"]["labels"], json!({"a": "b"}));
}

#[tokio::test]
async fn rules_of_definitions_are_kept() {
    let server = server().await;
    let client = admin(&server);
    let schema = |rule: &str| {
        json!({"type": "object", "properties": {"spec": {"type": "object",
            "x-kubernetes-validations": [{"rule": rule, "message": "low must not be above high"},
                                         {"rule": "self.low >= oldSelf.low", "fieldPath": ".low"}],
            "properties": {"low": {"type": "integer"}, "high": {"type": "integer", "default": 9}}}}})
    };
    let definition = |rule: &str| {
        json!({"metadata": {"name": "ranges.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "ranges", "kind": "Range"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema(rule)}}]}})
    };
    let broken = send(&client, "POST", DEFINITIONS, &definition("self.lwo <= self.high")).await;
    assert_eq!(broken.code, 422);
    let message = broken.body["message"].as_str().unwrap_or_default();
    assert!(message.contains("compilation failed: ERROR: <input>:1:5: undefined field 'lwo'"), "{message}");
    assert_eq!(send(&client, "POST", DEFINITIONS, &definition("self.low <= self.high")).await.code, 201);
    let ranges = "/apis/example.com/v1/namespaces/default/ranges";
    let range = |low: i64| json!({"apiVersion": "example.com/v1", "kind": "Range", "metadata": {"name": "r"}, "spec": {"low": low}});
    let refused = send(&client, "POST", ranges, &range(10)).await;
    assert_eq!(
        refused.body["message"],
        "Range.example.com \"r\" is invalid: spec: Invalid value: low must not be above high"
    );
    assert_eq!(send(&client, "POST", ranges, &range(5)).await.code, 201);
    let sunk = send(&client, "PATCH", &format!("{ranges}/r"), &json!({"spec": {"low": 4}})).await;
    assert_eq!(
        sunk.body["message"],
        "Range.example.com \"r\" is invalid: spec.low: Invalid value: failed rule: self.low >= oldSelf.low"
    );
    assert_eq!(send(&client, "PATCH", &format!("{ranges}/r"), &json!({"spec": {"low": 6}})).await.code, 200);
}

#[tokio::test]
async fn of_names_that_are_taken_the_others_are_accepted() {
    let server = server().await;
    let client = admin(&server);
    let definition = |plural: &str| {
        json!({"metadata": {"name": format!("{plural}.example.com")}, "spec": {"group": "example.com", "scope": "Cluster",
            "names": {"plural": plural, "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}})
    };
    for plural in ["things", "others"] {
        assert_eq!(send(&client, "POST", DEFINITIONS, &definition(plural)).await.code, 201);
    }
    let status = get(&client, &format!("{DEFINITIONS}/others.example.com")).await.body["status"].clone();
    assert_eq!(status["acceptedNames"], json!({"plural": "others", "kind": ""}));
    assert_eq!(status["conditions"][0]["reason"], "ListKindConflict");
    assert_eq!(status["conditions"][0]["message"], "\"ThingList\" is already in use");
}

/// Warnings, strictness and conflicts in the words of upstream's sources.
#[tokio::test]
async fn patches_are_rejected_in_upstreams_words() {
    let server = server().await;
    let client = admin(&server);
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template()}});
    assert_eq!(send(&client, "POST", DEPLOYMENTS, &deployment).await.code, 201);
    let (merge, apply) = ("application/merge-patch+json", "application/apply-patch+yaml");
    for (case, suffix, content_type, body, code, message) in [
        (
            "an immutable selector",
            "/d",
            merge,
            json!({"spec": {"selector": {"matchLabels": {"a": "c"}}}}),
            422,
            "Deployment.apps \"d\" is invalid: [spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` \
             does not match template `labels`, spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"c\"}}: field is \
             immutable]",
        ),
        (
            "an unknown field in an applied configuration",
            "/d?fieldManager=m",
            apply,
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"foo": 1}}),
            500,
            "failed to create typed patch object (/d; apps/v1, Kind=Deployment): .spec.foo: field not declared in schema",
        ),
        (
            "several conflicts",
            "/d?fieldManager=m",
            apply,
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
                "spec": {"replicas": 3, "template": {"spec": {"containers": [{"name": "c", "image": "j"}]}}}}),
            409,
            "Apply failed with 2 conflicts: conflicts with \"unknown\" using apps/v1:\n- .spec.replicas\n- \
             .spec.template.spec.containers[name=\"c\"].image",
        ),
        (
            "a strict unknown field",
            "/d?fieldValidation=Strict",
            merge,
            json!({"spec": {"nope": 1}}),
            422,
            "strict decoding error: unknown field \"spec.nope\"",
        ),
    ] {
        let headers = [("content-type", content_type.to_owned())];
        let path = format!("{DEPLOYMENTS}{suffix}");
        let answer = client.request("PATCH", &path, &headers, body.to_string()).await.expect("an answer");
        let found = answer.body["message"].as_str().unwrap_or_default();
        assert!(answer.code == code && found.ends_with(message), "{case}: {} {found}", answer.code);
    }
    let warned = send(&client, "PATCH", &format!("{DEPLOYMENTS}/d"), &json!({"spec": {"nope": 1}})).await;
    assert_eq!((warned.code, warned.warnings), (200, vec!["unknown field \"spec.nope\"".to_owned()]));
}

#[tokio::test]
async fn pods_get_the_priority_of_their_class_or_of_the_global_default() {
    let server = server().await;
    let client = admin(&server);
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let class =
        |name: &str, default: bool| json!({"metadata": {"name": name}, "value": 7, "globalDefault": default});
    let of = |class: &str| {
        let mut pod = pod(&format!("p-{class}"));
        pod["spec"]["priorityClassName"] = class.into();
        pod
    };
    assert_eq!(send(&client, "POST", PODS, &of("absent")).await.code, 403);
    let system = send(&client, "POST", PODS, &of("system-node-critical")).await;
    assert_eq!(system.body["spec"]["priority"], 2_000_001_000, "{}", system.body);
    let none = send(&client, "POST", PODS, &pod("none")).await;
    assert_eq!(none.body["spec"]["priority"], 0, "{}", none.body);
    assert_eq!(send(&client, "POST", classes, &class("usual", true)).await.code, 201);
    assert_eq!(send(&client, "POST", classes, &class("other", true)).await.code, 403);
    assert_eq!(send(&client, "POST", classes, &class("other", false)).await.code, 201);
    let usual = send(&client, "POST", PODS, &pod("usual")).await;
    assert_eq!(usual.body["spec"]["priorityClassName"], "usual", "{}", usual.body);
    assert_eq!(usual.body["spec"]["priority"], 7);
    let reserved = json!({"metadata": {"name": "system-mine"}, "value": 1});
    assert_eq!(send(&client, "POST", classes, &reserved).await.code, 422);
}
