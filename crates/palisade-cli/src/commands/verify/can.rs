//! `palisade verify --can CALL`: whether running containers can make a system call.

use palisade_model::profile::call_pattern::CallPattern;
use palisade_node::{
    cri::client::Runtime,
    node::NodeConfig,
    reach::{Prober, RunningContainer, Verdict, running_containers},
};
use serde_json::{Value, json};

use super::{Format, VerifyArgs};
use crate::{
    commands::{node::runtime_away, rollout::text::table},
    failure::{Exit, Failure},
    service,
    terminal::Terminal,
};

/// A container, and what it can do.
type Judged = (RunningContainer, Verdict);

/// Runs the command.
pub(super) fn run(
    args: &VerifyArgs,
    config: &NodeConfig,
    pattern: &CallPattern,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let judged = service::block_on(collect(args, config, pattern))?;
    let text = match args.output {
        Format::Json => json_text(pattern, &judged),
        Format::Human => human_text(pattern, &judged),
    };
    terminal.print(text)?;
    let closed = judged.iter().all(|(_, verdict)| matches!(verdict, Verdict::Cannot { .. }));
    // A named pod must have been evaluated; a node may have no pods.
    Ok(if closed && !(judged.is_empty() && args.pod.is_some()) { Exit::Clean } else { Exit::Findings })
}

async fn collect(
    args: &VerifyArgs,
    config: &NodeConfig,
    pattern: &CallPattern,
) -> Result<Vec<Judged>, Failure> {
    let runtime = Runtime::new(&config.runtime_endpoint, config.runtime_timeout).map_err(Failure::input)?;
    let no_answer = |error| runtime_away(format!("the container runtime does not respond: {error}"));
    runtime.version().await.map_err(no_answer)?;
    let mut containers = running_containers(&runtime).await.map_err(no_answer)?;
    if let Some(wanted) = &args.pod {
        let (namespace, name) = wanted.split_once('/').unwrap_or(("default", wanted));
        containers.retain(|container| container.pod.namespace == namespace && container.pod.name == name);
        if containers.is_empty() {
            return Err(Failure::input(format!("no pod {namespace}/{name} runs on this node")));
        }
    }
    let prober = Prober::new(&config.proc, config.host_process);
    let mut judged = Vec::new();
    for container in containers {
        let verdicts = prober.probe(&container, std::slice::from_ref(pattern)).await;
        let verdict = verdicts.into_iter().next();
        let nothing = || Verdict::Undecided { reason: "it was not evaluated".to_owned() };
        judged.push((container, verdict.unwrap_or_else(nothing)));
    }
    Ok(judged)
}

fn pod_of(container: &RunningContainer) -> String {
    if container.pod.uid.is_empty() {
        "-".to_owned()
    } else {
        format!("{}/{}", container.pod.namespace, container.pod.name)
    }
}

fn name_of(container: &RunningContainer) -> &str {
    if container.name.is_empty() { container.id.get(..12).unwrap_or(&container.id) } else { &container.name }
}

fn json_text(pattern: &CallPattern, judged: &[Judged]) -> String {
    let containers: Vec<Value> = judged
        .iter()
        .map(|(container, verdict)| {
            let mut row = json!({"namespace": container.pod.namespace, "pod": container.pod.name,
                "container": container.name, "id": container.id});
            if let (Ok(Value::Object(verdict)), Some(row)) =
                (serde_json::to_value(verdict), row.as_object_mut())
            {
                row.extend(verdict);
            }
            row
        })
        .collect();
    let count = |test: fn(&Verdict) -> bool| judged.iter().filter(|(_, verdict)| test(verdict)).count();
    let summary = json!({
        "containers": judged.len(),
        "can": count(|verdict| matches!(verdict, Verdict::Can { .. })),
        "cannot": count(|verdict| matches!(verdict, Verdict::Cannot { .. })),
        "undecided": count(|verdict| matches!(verdict, Verdict::Undecided { .. })),
    });
    format!("{:#}\n", json!({"call": pattern.to_string(), "containers": containers, "summary": summary}))
}

fn human_text(pattern: &CallPattern, judged: &[Judged]) -> String {
    if judged.is_empty() {
        return "no container runs on this node\n".to_owned();
    }
    let header = ["POD", "CONTAINER", "VERDICT", "BECAUSE"].map(str::to_owned);
    let rows: Vec<[String; 4]> = judged
        .iter()
        .map(|(container, verdict)| {
            let (word, because) = match verdict {
                Verdict::Can { pid, call, action, note } => {
                    let note = note.as_ref().map(|note| format!(", {note}")).unwrap_or_default();
                    ("can", format!("process {pid}: {call} gets {action}{note}"))
                }
                Verdict::Cannot { actions } => ("cannot", actions.join(", ")),
                Verdict::Undecided { reason } => ("undecided", reason.clone()),
            };
            [pod_of(container), name_of(container).to_owned(), word.to_owned(), because]
        })
        .collect();
    let mut text = String::new();
    table(&header, &rows, &mut text);
    let count = |word: &str| rows.iter().filter(|row| row[2] == word).count();
    let plural = if rows.len() == 1 { "container" } else { "containers" };
    let (can, undecided) = (count("can"), count("undecided"));
    let of = match (can, undecided) {
        (0, 0) => "none can make the call".to_owned(),
        (can, 0) => format!("{can} can make the call"),
        (can, undecided) => format!("{can} can make the call, {undecided} undecided"),
    };
    format!("{text}\n{pattern}: {} {plural}, {of}\n", rows.len())
}

#[cfg(test)]
mod tests {
    use palisade_node::api::PodKey;

    use super::*;

    fn judged() -> Vec<Judged> {
        let container = |pod: &str, name: &str| RunningContainer {
            pod: PodKey { namespace: "shop".to_owned(), name: pod.to_owned(), uid: pod.to_owned() },
            name: name.to_owned(),
            id: "0123456789abcdef".to_owned(),
            labels: std::collections::BTreeMap::new(),
            pid: Ok(7),
        };
        let can = Verdict::Can {
            pid: 7,
            call: "socket(0x26) on SCMP_ARCH_X86_64".to_owned(),
            action: "SCMP_ACT_ALLOW".to_owned(),
            note: None,
        };
        vec![
            (container("a", "web"), can),
            (container("b", "web"), Verdict::Cannot { actions: vec!["SCMP_ACT_ERRNO 1".to_owned()] }),
            (
                container("", ""),
                Verdict::Undecided { reason: "the filter is too complex to evaluate".to_owned() },
            ),
        ]
    }

    #[test]
    fn each_container_has_a_verdict_with_its_reason() {
        let pattern = CallPattern::parse("socket(AF_ALG, *, *)").unwrap();
        let text = human_text(&pattern, &judged());
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = text.lines().map(words).collect();
        assert_eq!(
            lines,
            [
                "POD CONTAINER VERDICT BECAUSE",
                "shop/a web can process 7: socket(0x26) on SCMP_ARCH_X86_64 gets SCMP_ACT_ALLOW",
                "shop/b web cannot SCMP_ACT_ERRNO 1",
                "- 0123456789ab undecided the filter is too complex to evaluate",
                "",
                "socket(AF_ALG, *, *): 3 containers, 1 can make the call, 1 undecided",
            ]
        );
        assert_eq!(human_text(&pattern, &[]), "no container runs on this node\n");
        let value: Value = serde_json::from_str(&json_text(&pattern, &judged())).unwrap();
        assert_eq!(value["summary"], json!({"containers": 3, "can": 1, "cannot": 1, "undecided": 1}));
        assert_eq!(value["containers"][0]["verdict"], "can");
        assert_eq!(value["containers"][1]["actions"], json!(["SCMP_ACT_ERRNO 1"]));
    }
}
