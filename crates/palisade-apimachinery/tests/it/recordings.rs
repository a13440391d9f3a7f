//! Replays what a real API server v1.37 answered, as far as it can be judged without one.

use std::io::Read as _;
use std::path::Path;

use palisade_base::version::KubeVersion;
use serde_json::Value;

use crate::replay::{NAMESPACE, NOW, Server};

fn read(name: &str) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/recordings/api-v1.37");
    let file = std::fs::File::open(folder.join(format!("{name}.jsonl.gz"))).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    // Any name will do for the scenario's own namespace, as long as it is one.
    text.lines().map(|line| serde_json::from_str(&line.replace("<NS>", NAMESPACE)).unwrap()).collect()
}

/// The places where two documents differ.
fn differences(expected: &Value, found: &Value, path: &str, out: &mut Vec<String>) {
    match (expected, found) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys().filter(|k| !a.contains_key(*k))) {
                let null = Value::Null;
                let sides = (a.get(key).unwrap_or(&null), b.get(key).unwrap_or(&null));
                differences(sides.0, sides.1, &format!("{path}/{key}"), out);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (at, (a, b)) in a.iter().zip(b).enumerate() {
                differences(a, b, &format!("{path}/{at}"), out);
            }
        }
        (a, b) if a == b => {}
        (a, b) => out.push(format!("    {path}: expected {a}, answered {b}")),
    }
}

/// The recordings' own normalisation, applied to our answers.
fn normalise(value: &mut Value, key: &str) {
    match value {
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                normalise(value, key);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|v| normalise(v, key)),
        Value::String(text) => {
            if key == "uid" {
                *text = "<UID>".into();
            } else if key == "resourceVersion" {
                *text = "<RV>".into();
            } else if text == NOW {
                *text = "<TIME>".into();
            } else if key == "cells" && text == "0s" {
                *text = "<AGE>".into();
            } else {
                while let Some(at) = text.find("00000000-0000-4000-8000-") {
                    text.replace_range(at..at + 36, "<UID>");
                }
                *text = text.replace("11111111-1111-1111-1111-111111111111", "<UID>");
                if let Some(at) = text.find("gen-bcdfg") {
                    text.replace_range(at + 4..at + 9, "<RAND>");
                }
            }
        }
        _ => {}
    }
}

fn strip_descriptions(body: &mut Value) {
    if let Some(columns) = body.get_mut("columnDefinitions").and_then(Value::as_array_mut) {
        for column in columns {
            if let Some(map) = column.as_object_mut() {
                map.remove("description");
            }
        }
    }
}

/// Steps that follow something only a server does: (scenario, step).
const LEFT_OUT: &[(&str, usize)] = &[("subresource-9f6ceb0a1d", 2)];

fn replay(group: &str) {
    let mut compared = 0;
    let mut failures = Vec::new();
    for record in read(group) {
        let mut server = Server::new(KubeVersion::v1(37));
        server.create_namespace();
        let id = record["id"].as_str().unwrap();
        for (at, step) in record["steps"].as_array().unwrap().iter().enumerate() {
            let Some(mut answer) = server.answer(&step["request"]) else { continue };
            if LEFT_OUT.contains(&(id, at)) || step.get("answer").is_none() {
                continue;
            }
            compared += 1;
            normalise(&mut answer.body, "");
            strip_descriptions(&mut answer.body);
            let expected = &step["answer"];
            let same = expected["body"] == answer.body
                && expected["code"] == answer.code
                && expected["warnings"] == Value::from(answer.warnings.clone());
            if !same {
                let mut places = Vec::new();
                differences(&expected["code"], &answer.code.into(), "code", &mut places);
                differences(&expected["warnings"], &answer.warnings.into(), "warnings", &mut places);
                differences(&expected["body"], &answer.body, "", &mut places);
                failures.push(format!(
                    "{id} ({}) step {at}: {}\n{}",
                    record["title"],
                    step["request"],
                    places.join("\n")
                ));
            }
        }
    }
    assert!(compared > 0, "{group}: nothing compared");
    assert!(failures.is_empty(), "{group}: {} of {compared} differ\n{}", failures.len(), failures.join("\n"));
}

macro_rules! groups {
    ($($name:ident),*) => { $( #[test] fn $name() { replay(stringify!($name)); } )* };
}

groups!(apply, create, crd, errors, list, patch, rbac, subresource, table, update);

/// What the recordings do not show: warnings, strictness and conflicts in the words of upstream's sources.
#[test]
fn answers_beyond_the_recordings() {
    let deployment = serde_json::json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let path = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments");
    let merge = "application/merge-patch+json";
    let apply = "application/apply-patch+yaml";
    let mut server = Server::new(KubeVersion::v1(37));
    server.create_namespace();
    let mut send = |method: &str, suffix: &str, content_type: &str, body: Value| {
        let request = serde_json::json!({"method": method, "path": format!("{path}{suffix}"),
                                         "contentType": content_type, "body": body});
        let answer = server.answer(&request).unwrap();
        (answer.code, answer.body["message"].as_str().unwrap_or_default().to_owned(), answer.warnings)
    };
    assert_eq!(send("POST", "", "application/json", deployment).0, 201);
    for (case, suffix, content_type, body, code, message) in [
        (
            "an immutable selector",
            "/d",
            merge,
            serde_json::json!({"spec": {"selector": {"matchLabels": {"a": "c"}}}}),
            422,
            "Deployment.apps \"d\" is invalid: [spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` \
             does not match template `labels`, spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"c\"}}: field is \
             immutable]",
        ),
        (
            "an unknown field in an applied configuration",
            "/d?fieldManager=m",
            apply,
            Value::from(
                r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"foo":1}}"#,
            ),
            500,
            "failed to create typed patch object (/d; apps/v1, Kind=Deployment): .spec.foo: field not declared in schema",
        ),
        (
            "several conflicts",
            "/d?fieldManager=m",
            apply,
            Value::from(
                r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"replicas":3,"template":{"spec":{"containers":[{"name":"c","image":"j"}]}}}}"#,
            ),
            409,
            "Apply failed with 2 conflicts: conflicts with \"unknown\" using apps/v1:\n- .spec.replicas\n- \
             .spec.template.spec.containers[name=\"c\"].image",
        ),
        (
            "a strict unknown field",
            "/d?fieldValidation=Strict",
            merge,
            serde_json::json!({"spec": {"nope": 1}}),
            422,
            "strict decoding error: unknown field \"spec.nope\"",
        ),
    ] {
        let answer = send("PATCH", suffix, content_type, body);
        assert_eq!(answer.0, code, "{case}: {}", answer.1);
        assert!(answer.1.ends_with(message), "{case}: {}", answer.1);
    }
    let warned = send("PATCH", "/d", merge, serde_json::json!({"spec": {"nope": 1}}));
    assert_eq!((warned.0, warned.2), (200, vec!["unknown field \"spec.nope\"".to_owned()]));
}
