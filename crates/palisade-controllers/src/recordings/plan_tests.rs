//! Every way in which a recording can be incomplete, and the profile of one that is not.

use palisade_base::time;
use palisade_model::profile::{
    architecture::Architecture,
    filter::Filter,
    recording::{RecordedCall, unconfined},
    syscalls::Syscall,
};

use super::*;

const MACHINE: Architecture = Architecture::COMMON;
const UNTIL: &str = "2030-01-01T00:00:00Z";

fn recording(change: impl FnOnce(&mut Value)) -> Value {
    let mut object = json!({"metadata": {"name": "web", "namespace": "shop", "uid": "u", "generation": 2},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "until": UNTIL}});
    change(&mut object);
    object
}

fn recorded(call: &str) -> Value {
    let mut recording = Recording::new(MACHINE);
    recording.begin("c", &unconfined(MACHINE).unwrap());
    let call = RecordedCall { architecture: MACHINE, syscall: Syscall::named(call).unwrap(), argument: None };
    recording.note("c", call, Phase::Run);
    recording.to_document()
}

fn part(node: &str, call: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut part = json!({"metadata": {"ownerReferences": [{"uid": "u"}]}, "node": node, "ended": true,
        "pods": [{"name": format!("web-{node}"), "uid": format!("pod-{node}")}], "lossy": [],
        "recorded": recorded(call), "denials": []});
    change(&mut part);
    part
}

fn started(node: &str) -> StartedPod {
    StartedPod { uid: format!("pod-{node}"), name: format!("web-{node}"), node: node.to_owned() }
}

fn at(seconds_after: i64) -> Time {
    let until = time::parse(UNTIL).unwrap();
    Time { seconds: until.seconds + seconds_after, micros: 0 }
}

fn condition(status: &Value, kind: &str) -> String {
    let found = list(status, "/conditions").find(|condition| text(condition, "/type") == kind);
    found.map_or_else(String::new, |found| format!("{} {}", text(found, "/status"), text(found, "/reason")))
}

#[test]
fn a_recording_is_complete_only_if_every_pod_was_recorded_to_the_end() {
    let before = |status: Value| recording(move |object| object["status"] = status);
    let plain = || recording(|_| ());
    for (case, object, parts, pods, after, expected, lossy) in [
        (
            "it records",
            plain(),
            vec![part("a", "mkdir", |part| part["ended"] = json!(false))],
            vec![started("a")],
            -10,
            "Unknown Recording",
            vec![],
        ),
        (
            "two nodes, both ended",
            plain(),
            vec![part("a", "mkdir", |_| ()), part("b", "rmdir", |_| ())],
            vec![started("a"), started("b")],
            5,
            "True Complete",
            vec![],
        ),
        (
            "at its end the watch of pods may be behind",
            plain(),
            vec![part("a", "mkdir", |_| ())],
            vec![],
            1,
            "Unknown Ending",
            vec![],
        ),
        (
            "a node has not ended yet",
            plain(),
            vec![part("a", "mkdir", |part| part["ended"] = json!(false))],
            vec![],
            60,
            "Unknown Ending",
            vec![],
        ),
        (
            "a node never ends",
            plain(),
            vec![part("a", "mkdir", |part| part["ended"] = json!(false))],
            vec![],
            120,
            "False Lossy",
            vec!["node a has not reported the end of the recording"],
        ),
        (
            "a pod on a node that records nothing",
            plain(),
            vec![part("a", "mkdir", |_| ())],
            vec![started("a"), started("b")],
            5,
            "False Lossy",
            vec!["pod web-b was not recorded: node b has no recorder, or the pod ran before"],
        ),
        (
            "such a pod, gone since",
            before(json!({"pods": [{"name": "web-b", "uid": "pod-b", "node": "b", "recorded": false}]})),
            vec![part("a", "mkdir", |_| ())],
            vec![],
            5,
            "False Lossy",
            vec!["pod web-b was not recorded: node b has no recorder, or the pod ran before"],
        ),
        (
            "one that was recorded before its node forgot it",
            before(json!({"pods": [{"name": "web-b", "uid": "pod-b", "node": "b", "recorded": true}]})),
            vec![part("a", "mkdir", |_| ())],
            vec![],
            5,
            "True Complete",
            vec![],
        ),
        (
            "a part that somebody deleted",
            before(json!({"nodes": ["a", "b"]})),
            vec![part("a", "mkdir", |_| ())],
            vec![],
            5,
            "False Lossy",
            vec!["what node b has recorded was deleted"],
        ),
        (
            "a node with a reason",
            plain(),
            vec![part("a", "mkdir", |part| part["lossy"] = json!(["it was killed"]))],
            vec![],
            5,
            "False Lossy",
            vec!["it was killed"],
        ),
        (
            "a part that cannot be read",
            plain(),
            vec![
                part("a", "mkdir", |_| ()),
                part("b", "mkdir", |part| part["recorded"]["machine"] = json!("VAX")),
            ],
            vec![],
            5,
            "False Lossy",
            vec!["what node b has recorded cannot be read: machine is missing or has no meaning"],
        ),
        (
            "the part of another recording",
            plain(),
            vec![
                part("a", "mkdir", |_| ()),
                part("b", "rmdir", |part| part["metadata"]["ownerReferences"][0]["uid"] = json!("x")),
            ],
            vec![],
            5,
            "True Complete",
            vec![],
        ),
        ("nothing ran", plain(), vec![], vec![], 5, "False NothingRecorded", vec![]),
        (
            "nothing was recorded of what ran",
            plain(),
            vec![],
            vec![started("a")],
            5,
            "False NothingRecorded",
            vec!["pod web-a was not recorded: node a has no recorder, or the pod ran before"],
        ),
    ] {
        let found = plan(&object, &parts, &pods, at(after));
        assert_eq!(condition(&found.status, "Recorded"), expected, "{case}: {:#}", found.status);
        assert_eq!(found.status["lossy"], json!(lossy), "{case}");
        assert_eq!(condition(&found.status, "Accepted"), "True Valid", "{case}");
        let writes = matches!(expected, "True Complete" | "False Lossy");
        assert_eq!(found.config_map.is_some(), writes, "{case}");
        assert_eq!(
            is_completed(&json!({"status": found.status})),
            !expected.starts_with("Unknown"),
            "{case}: what is complete stays as it is"
        );
    }
    let invalid = recording(|object| object["spec"]["until"] = json!("soon"));
    let found = plan(&invalid, &[], &[], at(5));
    assert_eq!(condition(&found.status, "Accepted"), "False Invalid");
    assert_eq!(condition(&found.status, "Recorded"), "Unknown Invalid");
}

#[test]
fn the_profile_allows_what_any_node_recorded_and_the_statement_is_beside_it() {
    let parts = [part("a", "mkdir", |_| ()), part("b", "rmdir", |_| ())];
    let found = plan(&recording(|_| ()), &parts, &[], at(5));
    let map = found.config_map.unwrap();
    assert_eq!(
        (text(&map, "/metadata/namespace"), text(&map, "/metadata/name")),
        ("shop", "web"),
        "where nothing else is named"
    );
    let profile = Filter::parse(map["data"]["profile.json"].as_str().unwrap()).unwrap().to_oci().to_string();
    for (call, is_allowed) in [("mkdir", true), ("rmdir", true), ("unlink", false)] {
        assert_eq!(profile.contains(&format!("\"{call}\"")), is_allowed, "{call}");
    }
    let statement: Value = serde_json::from_str(map["data"]["statement.json"].as_str().unwrap()).unwrap();
    assert_eq!((&statement["complete"], &statement["phases"]), (&json!(true), &json!({"run": 2})));
    assert_eq!(found.status["calls"], 2);
    assert_eq!(found.status["nodes"], json!(["a", "b"]));
    let written = completed(found.status.clone(), "web", Ok(()), at(5));
    assert_eq!(written["configMap"], "web");
    let failed = completed(found.status, "web", Err(NotWritten::Exists { name: "web".to_owned() }), at(5));
    assert_eq!(condition(&failed, "Recorded"), "False NotWritten");
}

#[test]
fn a_profile_is_enforceable_if_it_would_have_denied_nothing_that_could_be_seen() {
    let complaint = || {
        recording(|object| {
            object["spec"]["mode"] = json!("Complain");
            object["spec"]["profile"] = json!("web/profile.json");
        })
    };
    let denial = |call: &str, count: u64, owner: Value| json!({"pod": "web-a", "uid": "pod-a", "container": "c", "call": call, "count": count, "owner": owner});
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "r"});
    let denied = part("a", "mkdir", |part| {
        part["denials"] = json!([denial("mkdir", 3, owner.clone()), denial("socket(0x1)", 7, Value::Null)]);
        let rows = part["denials"].as_array_mut().unwrap();
        rows[1].as_object_mut().unwrap().remove("owner");
    });
    let lossy = part("a", "mkdir", |part| part["lossy"] = json!(["it was killed"]));
    for (case, part, after, expected) in [
        ("nothing denied", part("a", "mkdir", |_| ()), 5, "True NoDenials"),
        ("while it records", denied.clone(), -5, "Unknown Recording"),
        ("denied", denied.clone(), 5, "False Denials"),
        ("calls may be missing", lossy, 5, "Unknown Lossy"),
    ] {
        let found = plan(&complaint(), &[part], &[], at(after));
        assert_eq!(condition(&found.status, "Enforceable"), expected, "{case}");
        assert_eq!(found.config_map, None, "{case}");
    }
    let found = plan(&complaint(), &[denied], &[], at(-5));
    let events: Vec<(&str, &str, u64)> = found
        .events
        .iter()
        .map(|event| (text(&event.owner, "/kind"), event.message.as_str(), event.count))
        .collect();
    assert_eq!(
        events,
        [
            (
                "Pod",
                "profile web/profile.json would deny socket(0x1) to container \"c\" of pod web-a: 7 calls",
                7
            ),
            (
                "ReplicaSet",
                "profile web/profile.json would deny mkdir to container \"c\" of pod web-a: 3 calls",
                3
            ),
        ]
    );
}
