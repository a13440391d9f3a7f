//! A controller killed at any write comes to the same end.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{
    live::{Fate, Kill, Live},
    live_rollout::{STEPS, act, fill},
};

/// Everything that was written, without times and versions.
async fn written(live: &Live) -> Value {
    let mut config = live.config().await;
    config["metadata"] = json!({});
    for list in ["violatingNamespaces", "conditions"] {
        for entry in config["status"][list].as_array_mut().into_iter().flatten() {
            entry.as_object_mut().unwrap().remove("lastTransitionTime");
        }
    }
    let namespaces = live.list(palisade_controllers::api::NAMESPACES, None).await;
    let namespaces: Vec<Value> = namespaces
        .iter()
        .map(|namespace| {
            let metadata = &namespace["metadata"];
            // In no order: entries are sorted by their times.
            let owners: BTreeSet<String> = metadata["managedFields"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|entry| json!([entry["manager"], entry["operation"], entry["fieldsV1"]]).to_string())
                .collect();
            json!([metadata["name"], metadata["labels"], metadata["annotations"], owners])
        })
        .collect();
    let reported: Vec<_> = live.reported().await.into_iter().collect();
    json!({"config": config, "namespaces": namespaces, "requested": live.requested().await, "reported": reported})
}

/// The cluster after each step, and the number of writes it took.
async fn story(kill: Option<Kill>) -> (Vec<Value>, usize) {
    let live = Live::start().await;
    fill(&live).await;
    live.settle().await;
    let fate = Fate::with(kill);
    let mut after = Vec::new();
    for (what, release, gate) in STEPS {
        act(&live, what).await;
        live.phase(release, gate, &fate).await;
        after.push(written(&live).await);
    }
    (after, fate.writes())
}

/// The lines in which two states differ.
fn differences(one: &Value, other: &Value) -> Vec<String> {
    let lines = |value: &Value| -> Vec<String> { format!("{value:#}").lines().map(str::to_owned).collect() };
    let (one, other) = (lines(one), lines(other));
    let mut differing: Vec<String> =
        one.iter().filter(|line| !other.contains(line)).map(|line| format!("+ {line}")).collect();
    differing.extend(other.iter().filter(|line| !one.contains(line)).map(|line| format!("- {line}")));
    if differing.is_empty() && one != other {
        differing.push("the same lines in another order".to_owned());
    }
    differing
}

async fn kill_everywhere(kill: impl Fn(usize) -> Kill, part: usize) {
    let (expected, writes) = story(None).await;
    assert!(writes > 50, "{writes} writes are a short story");
    for at in (part..writes).step_by(2) {
        let (after, _) = story(Some(kill(at))).await;
        for (index, (own, expected)) in after.iter().zip(&expected).enumerate() {
            assert_eq!(differences(own, expected), [""; 0], "killed {:?}, after step {index}", kill(at));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn killed_before_any_even_write() {
    kill_everywhere(Kill::Before, 0).await;
}

#[tokio::test(start_paused = true)]
async fn killed_before_any_odd_write() {
    kill_everywhere(Kill::Before, 1).await;
}

#[tokio::test(start_paused = true)]
async fn killed_after_any_even_write() {
    kill_everywhere(Kill::After, 0).await;
}

#[tokio::test(start_paused = true)]
async fn killed_after_any_odd_write() {
    kill_everywhere(Kill::After, 1).await;
}
