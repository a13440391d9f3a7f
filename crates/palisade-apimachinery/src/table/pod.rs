//! The row of a pod.

use palisade_base::time;
use serde_json::{Value, json};

use super::Clock;
use crate::rest::path::Get;

/// Conditions of the row of a pod that is done.
pub(super) fn conditions(pod: &Value) -> Option<Value> {
    let (reason, message) = match pod.pointer("/status/phase").and_then(Value::as_str)? {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

fn state<'v>(status: &'v Value, kind: &str) -> Option<&'v Value> {
    status.get("state").and_then(|s| s.get(kind)).filter(|v| !v.is_null())
}

fn exit_text(terminated: &Value) -> String {
    match terminated.int("signal").unwrap_or(0) {
        0 => format!("ExitCode:{}", terminated.int("exitCode").unwrap_or(0)),
        signal => format!("Signal:{signal}"),
    }
}

pub(super) fn cells(pod: &Value, clock: Clock) -> Vec<Value> {
    let empty = Value::Null;
    let spec = pod.get("spec").unwrap_or(&empty);
    let status = pod.get("status").unwrap_or(&empty);
    let meta = pod.get("metadata").unwrap_or(&empty);
    let is_sidecar = |name: &str| {
        spec.list("initContainers")
            .iter()
            .any(|c| c.text("name") == name && c.text("restartPolicy") == "Always")
    };
    let sidecars = spec.list("initContainers").iter().filter(|c| c.text("restartPolicy") == "Always").count();
    let total = spec.list("containers").len() + sidecars;
    let mut reason = status.text("phase").to_owned();
    if !status.text("reason").is_empty() {
        status.text("reason").clone_into(&mut reason);
    }
    if let Some(scheduled) = status.list("conditions").iter().find(|c| c.text("type") == "PodScheduled")
        && scheduled.text("reason") == "SchedulingGated"
    {
        reason = "SchedulingGated".into();
    }
    let (mut restarts, mut sidecar_restarts) = (0i64, 0i64);
    let mut last_restart: Option<i64> = None;
    let mut last_sidecar_restart: Option<i64> = None;
    let finished = |s: &Value| {
        s.pointer("/lastState/terminated/finishedAt")
            .and_then(Value::as_str)
            .and_then(|t| time::parse(t).ok())
            .map(|t| t.seconds)
    };
    let mut ready = 0usize;
    let mut initializing = false;
    for (i, container) in status.list("initContainerStatuses").iter().enumerate() {
        let count = container.int("restartCount").unwrap_or(0);
        restarts += count;
        last_restart = last_restart.max(finished(container));
        let sidecar = is_sidecar(container.text("name"));
        if sidecar {
            sidecar_restarts += count;
            last_sidecar_restart = last_sidecar_restart.max(finished(container));
        }
        let terminated = state(container, "terminated");
        if terminated.is_some_and(|t| t.int("exitCode").unwrap_or(0) == 0) {
            continue;
        }
        if sidecar && container.flag("started") == Some(true) {
            ready += usize::from(container.flag("ready") == Some(true));
            continue;
        }
        let waiting = state(container, "waiting").map_or("", |w| w.text("reason"));
        reason = match terminated {
            Some(t) if t.text("reason").is_empty() => format!("Init:{}", exit_text(t)),
            Some(t) => format!("Init:{}", t.text("reason")),
            None if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
            None => format!("Init:{i}/{}", spec.list("initContainers").len()),
        };
        initializing = true;
        break;
    }
    let initialized = status
        .list("conditions")
        .iter()
        .any(|c| c.text("type") == "Initialized" && c.text("status") == "True");
    if !initializing || initialized {
        restarts = sidecar_restarts;
        last_restart = last_sidecar_restart;
        let mut running = false;
        for container in status.list("containerStatuses").iter().rev() {
            restarts += container.int("restartCount").unwrap_or(0);
            last_restart = last_restart.max(finished(container));
            let waiting = state(container, "waiting").map_or("", |w| w.text("reason"));
            if !waiting.is_empty() {
                waiting.clone_into(&mut reason);
            } else if let Some(terminated) = state(container, "terminated") {
                reason = match terminated.text("reason") {
                    "" => exit_text(terminated),
                    text => text.to_owned(),
                };
            } else if container.flag("ready") == Some(true) && state(container, "running").is_some() {
                running = true;
                ready += 1;
            }
        }
        if reason == "Completed" && running {
            let is_ready = status
                .list("conditions")
                .iter()
                .any(|c| c.text("type") == "Ready" && c.text("status") == "True");
            reason = if is_ready { "Running".into() } else { "NotReady".into() };
        }
    }
    if meta.child("deletionTimestamp").is_some() {
        let done = matches!(status.text("phase"), "Succeeded" | "Failed");
        if status.text("reason") == "NodeLost" {
            reason = "Unknown".into();
        } else if !done {
            reason = "Terminating".into();
        }
    }
    let restarts = match last_restart {
        Some(at) if restarts != 0 => {
            format!("{restarts} ({} ago)", time::human_duration(clock.0.saturating_sub(at)))
        }
        _ => restarts.to_string(),
    };
    let or_none = |text: &str| if text.is_empty() { "<none>".to_owned() } else { text.to_owned() };
    let gates = spec.list("readinessGates");
    let gates = if gates.is_empty() {
        "<none>".to_owned()
    } else {
        let met = gates
            .iter()
            .filter(|gate| {
                status
                    .list("conditions")
                    .iter()
                    .any(|c| c.text("type") == gate.text("conditionType") && c.text("status") == "True")
            })
            .count();
        format!("{met}/{}", gates.len())
    };
    vec![
        meta.text("name").into(),
        format!("{ready}/{total}").into(),
        reason.into(),
        restarts.into(),
        clock.since(meta.get("creationTimestamp")).into(),
        or_none(status.list("podIPs").first().map_or("", |ip| ip.text("ip"))).into(),
        or_none(spec.text("nodeName")).into(),
        or_none(status.text("nominatedNodeName")).into(),
        gates.into(),
    ]
}
