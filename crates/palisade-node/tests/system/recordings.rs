//! The recorded pods of a real kubelet v1.31 come out the same here.

use std::{
    collections::BTreeSet,
    io::Read as _,
    time::{Duration, Instant},
};

use palisade_model::compat::Compat;
use palisade_node::pod::RunPod;
use serde_json::{Value, json};

use crate::lab::{IMAGE, Lab};

fn recording() -> String {
    let path =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/recordings/kubelet-v1.31/pods.jsonl.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    text
}

/// Ids, paths, times and counts of back-off differ from run to run. So do the words for a process that was gone before it
/// could be started: whether runc or the shim notices first is a race between the two.
fn normal(text: &str, lab: &Lab, uid: &str) -> String {
    let text = text.replace(&lab.root.display().to_string(), "<ROOT>").replace(uid, "<UID>").replace(
        "OCI runtime start failed: cannot start a container that has stopped",
        "cannot start a stopped process",
    );
    text.split_inclusive([' ', '"', '/'])
        .map(|word| {
            let bare = word.trim_end_matches([' ', '"', '/', ':']);
            let hex = bare.len() >= 64 && bare.bytes().all(|byte| byte.is_ascii_hexdigit());
            if hex { word.replace(bare, "<ID>") } else { word.to_owned() }
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_pods_come_out_as_recorded() {
    let lab = Lab::new(Compat::kubernetes(31));
    let text = recording();
    let records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records.len(), 20);
    let mut pods = Vec::new();
    for record in &records {
        let mut spec = record["spec"].clone();
        for container in spec["containers"].as_array_mut().unwrap() {
            container["image"] = json!(IMAGE);
        }
        let object =
            json!({"metadata": {"name": record["pod"], "annotations": record["annotations"]}, "spec": spec});
        pods.push(lab.apply(object));
    }
    // The recording was made after the third restart of what fails and before the fourth, forty seconds later. When that is
    // depends on the machine, so the moment is waited for.
    let deadline = Instant::now() + Duration::from_mins(3);
    loop {
        let failures = differences(&lab, &records, &pods).await;
        if failures.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "{}", failures.join("\n"));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// What is not as recorded.
async fn differences(lab: &Lab, records: &[Value], pods: &[RunPod]) -> Vec<String> {
    let mut failures = Vec::new();
    for (record, pod) in records.iter().zip(pods) {
        let name = record["pod"].as_str().unwrap();
        let uid = pod.key.uid.as_str();
        let status = lab.status(pod);
        let mut expect = |what: &str, found: Value, expected: Value| {
            if found != expected {
                failures.push(format!("{name}: {what}: {found} instead of {expected}"));
            }
        };
        for field in ["phase", "reason", "message"] {
            expect(field, status[field].clone(), record["status"][field].clone());
        }
        let found = &status["containerStatuses"][0];
        let expected = &record["status"]["containerStatuses"][0];
        for path in [
            "/ready",
            "/started",
            "/restartCount",
            "/image",
            "/state/waiting/reason",
            "/state/waiting/message",
            "/state/terminated/reason",
            "/state/terminated/exitCode",
            "/state/terminated/message",
            "/lastState/terminated/reason",
            "/lastState/terminated/exitCode",
            "/lastState/terminated/message",
        ] {
            let text = |value: Option<&Value>| match value {
                Some(Value::String(text)) => json!(normal(text, lab, uid)),
                Some(other) => other.clone(),
                None => Value::Null,
            };
            expect(path, text(found.pointer(path)), text(expected.pointer(path)));
        }
        let is_running = |status: &Value| status.pointer("/state/running").is_some();
        expect("running", json!(is_running(found)), json!(is_running(expected)));
        let id = |status: &Value| {
            status["imageID"].as_str().map(|id| id.split(':').next().unwrap_or_default().to_owned())
        };
        expect("imageID", json!(id(found)), json!(id(expected)));

        let found: BTreeSet<_> = lab
            .events(pod)
            .into_iter()
            .map(|(kind, reason, text)| (kind, reason, normal(&text, lab, uid)))
            .collect();
        let field = |event: &Value, name: &str| event[name].as_str().unwrap_or_default().to_owned();
        let expected: BTreeSet<_> = record["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| (field(event, "type"), field(event, "reason"), field(event, "message")))
            .collect();
        expect("events", json!(found), json!(expected));

        for (container, expected) in record["kernel"].as_object().unwrap() {
            let Some(pid) = lab.find_pid(pod, container).await else {
                failures.push(format!("{name}: {container} does not run"));
                continue;
            };
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            for (key, value) in expected.as_object().unwrap() {
                let line =
                    status.lines().find_map(|line| line.strip_prefix(&format!("{key}:"))).unwrap_or_default();
                if json!(line.trim()) != *value {
                    failures.push(format!("{name}: {key}: {line} instead of {value}"));
                }
            }
        }
    }
    failures
}
