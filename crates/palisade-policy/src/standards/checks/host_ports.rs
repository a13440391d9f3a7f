//! A container may not listen on a port of the node.
//!
//! Implements: Pod Security Standards, Baseline, "Host Ports".

use super::super::cel::{self, CONTAINERS, CelRules};
use super::{Check, CheckVersion, Finding, Level, Options, PodView, Remedy, Violation, called, message};

pub(super) static CHECK: Check = Check {
    id: "hostPorts",
    level: Level::Baseline,
    title: "Host Ports",
    why: "a port of the node bypasses network policies and can take the place of a node's service",
    versions: &[CheckVersion { since: 0, overrides: &[], run: since_v1_0, cel: cel_since_v1_0 }],
};

fn since_v1_0(pod: &PodView<'_, '_>, _: Options) -> Option<Violation> {
    let mut names: Vec<&str> = Vec::new();
    let mut ports = Vec::new();
    let mut findings = Vec::new();
    for container in pod.containers() {
        let mut offends = false;
        for (index, port) in container.container.ports.iter().enumerate() {
            if port.host_port == 0 {
                continue;
            }
            offends = true;
            ports.push(port.host_port.to_string());
            let path = container.path(pod).field("ports").index(index).field("hostPort");
            // With the node's network every port of the pod is one of the node: the namespace must go first.
            let remedy = if pod.spec().host_network == Some(true) {
                Remedy::Manual("the pod shares the node's network, which makes its ports the node's")
            } else {
                Remedy::remove(path.clone())
            };
            findings.push(Finding {
                path,
                container: Some(container.name().to_owned()),
                value: Some(port.host_port.to_string()),
                summary: format!("{} uses port {} of the node", called(&container), port.host_port),
                allowed: "no hostPort; publish it with a Service",
                remedy,
            });
        }
        if offends {
            names.push(container.name());
        }
    }
    if names.is_empty() {
        return None;
    }
    let ports = message::sorted_unique(ports);
    let detail = format!(
        "{} {} {} {}",
        message::containers(&names),
        message::plural("uses", "use", names.len()),
        message::plural("hostPort", "hostPorts", ports.len()),
        ports.join(", ")
    );
    Some(Violation { check: CHECK.id, reason: "hostPort", detail, findings, masked: Vec::new() })
}

fn cel_since_v1_0(rules: &mut CelRules) -> String {
    const PORTS: &str = "c.?ports.orValue([])";
    const BAD: &str = "p.?hostPort.orValue(0) != 0";
    let names = rules.names_where("hostPortContainers", &format!("{PORTS}.exists(p, {BAD})"));
    let ports = rules.flat(
        &format!("{CONTAINERS}.map(c, {PORTS}.exists(p, {BAD}), {PORTS}.map(p, {BAD}, string(p.hostPort)))"),
        ", ",
    );
    let ports = rules.define("hostPortNumbers", ports);
    let detail = format!(
        "{} + {} + {} + {ports}.join(', ')",
        cel::containers(&names),
        cel::plural(" uses ", " use ", &names),
        cel::plural("hostPort ", "hostPorts ", &ports)
    );
    cel::violation(&cel::some(&names), "hostPort", &detail)
}
