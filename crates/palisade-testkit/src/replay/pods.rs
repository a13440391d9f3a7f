//! The recordings about pod security: code, reason, message, causes, warnings, and the security part of the object.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{Record, Report, Verdict, diff, place, send};
use crate::client::{Answer, Client, ClientError};

/// Makes the namespaces the records expect, with the labels in their names.
pub async fn prepare(records: &[Record], client: &Client) -> Result<(), ClientError> {
    let mut namespaces = BTreeSet::new();
    for record in records.iter().filter(|r| r.group.starts_with("psa-")) {
        for step in &record.steps {
            let namespace =
                step.request.path.split("/namespaces/").nth(1).and_then(|rest| rest.split('/').next());
            namespaces.extend(namespace.map(str::to_owned));
        }
    }
    for namespace in namespaces {
        let labels = labels_of(&namespace);
        let body = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels},
        });
        let headers = [("content-type", "application/json".to_owned())];
        client.request("POST", "/api/v1/namespaces", &headers, body.to_string()).await?;
    }
    Ok(())
}

/// The labels of a namespace of the recordings, which are in its name.
#[must_use]
pub fn labels_of(namespace: &str) -> Value {
    let label = |name: &str| format!("pod-security.kubernetes.io/{name}");
    match namespace {
        "warned" => json!({label("warn"): "restricted"}),
        "mixed" => json!({
            label("enforce"): "baseline",
            label("warn"): "restricted",
            label("warn-version"): "v1.22",
            label("audit"): "restricted",
        }),
        _ => match namespace.split_once('-') {
            Some((level, version)) => json!({
                label("enforce"): level,
                label("enforce-version"): version.replace('-', "."),
            }),
            None => json!({}),
        },
    }
}

/// Replays one record.
pub(super) async fn replay(record: &Record, client: &Client, report: &mut Report) -> Result<(), ClientError> {
    for (index, step) in record.steps.iter().enumerate() {
        let answer = patient(client, record, index).await?;
        let expected = comparable(step.answer.clone());
        let actual = comparable(summary(&answer, &step.answer));
        let verdict = if expected == actual {
            Verdict::Equal
        } else if expected.get("code") == actual.get("code") && expected.get("reason") == actual.get("reason")
        {
            Verdict::CodeAndReason
        } else {
            Verdict::Different
        };
        report.add(&record.group, place(record, index), verdict, diff(&expected, &actual));
    }
    Ok(())
}

async fn patient(client: &Client, record: &Record, index: usize) -> Result<Answer, ClientError> {
    match record.steps.get(index) {
        Some(step) => send(client, &step.request, "", &std::collections::BTreeMap::new()).await,
        None => Err(ClientError::Certificate),
    }
}

/// The answer in the form of the recordings.
fn summary(answer: &Answer, recorded: &Value) -> Value {
    let body = &answer.body;
    let mut out = Map::new();
    out.insert("code".to_owned(), answer.code.into());
    out.insert("warnings".to_owned(), json!(answer.warnings));
    if body.get("kind").and_then(Value::as_str) == Some("Status") {
        for (key, pointer) in [("reason", "/reason"), ("message", "/message"), ("causes", "/details/causes")]
        {
            if let Some(value) = body.pointer(pointer) {
                out.insert(key.to_owned(), value.clone());
            }
        }
        return Value::Object(out);
    }
    match body.get("kind").and_then(Value::as_str) {
        Some("Pod") => {
            out.insert("pod".to_owned(), security_part(body));
        }
        Some("Namespace") => {
            let labels = body.pointer("/metadata/labels").cloned().unwrap_or_else(|| json!({}));
            out.insert("labels".to_owned(), labels);
        }
        _ => {
            let template = body.pointer("/spec/template").cloned().unwrap_or_default();
            out.insert("template".to_owned(), security_part(&template));
        }
    }
    // Not every record keeps the object.
    out.retain(|key, _| {
        !matches!(key.as_str(), "pod" | "template" | "labels") || recorded.get(key).is_some()
    });
    Value::Object(out)
}

pub fn security_part(pod: &Value) -> Value {
    let mut out = Map::new();
    let annotations = pod.pointer("/metadata/annotations").cloned().unwrap_or_else(|| json!({}));
    out.insert("annotations".to_owned(), annotations);
    let spec = pod.get("spec").cloned().unwrap_or_default();
    out.insert(
        "securityContext".to_owned(),
        spec.get("securityContext").cloned().unwrap_or_else(|| json!({})),
    );
    for field in ["hostNetwork", "hostPID", "hostIPC", "hostUsers"] {
        if let Some(value) = spec.get(field).filter(|v| !v.is_null()) {
            out.insert(field.to_owned(), value.clone());
        }
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        let Some(containers) = spec.get(list).and_then(Value::as_array) else { continue };
        let containers: Vec<Value> = containers
            .iter()
            .map(|container| {
                let security = container.get("securityContext").cloned().unwrap_or(Value::Null);
                json!({"name": container.get("name"), "securityContext": security})
            })
            .collect();
        if !containers.is_empty() {
            out.insert(list.to_owned(), containers.into());
        }
    }
    Value::Object(out)
}

/// Order and prose that vary from run to run are taken out on both sides.
pub fn comparable(mut answer: Value) -> Value {
    let Some(fields) = answer.as_object_mut() else { return answer };
    let mut causes = 0;
    for list in ["causes", "warnings"] {
        if let Some(items) = fields.get_mut(list).and_then(Value::as_array_mut) {
            if list == "causes" {
                causes = items.len();
                for cause in items.iter_mut() {
                    cause.get_mut("message").into_iter().for_each(first_line);
                }
            }
            items.sort_by_key(ToString::to_string);
        }
    }
    if let Some(Value::String(message)) = fields.get_mut("message")
        && causes > 1
        && let Some((start, _)) = message.split_once(": [")
    {
        *message = start.to_owned();
    }
    fields.get_mut("message").into_iter().for_each(first_line);
    answer
}

/// What follows the first line of this message is a diff of Go structs.
fn first_line(message: &mut Value) {
    if let Value::String(message) = message
        && message.contains("pod updates may not change fields other than")
        && let Some((line, _)) = message.split_once('\n')
    {
        *message = line.to_owned();
    }
}
