//! A probe or lifecycle handler may not name a host: the kubelet would connect to it.
//!
//! Implements: Pod Security Standards, Baseline, "Host Probes / Lifecycle Hooks".

use palisade_model::pod::Handler;

use super::super::cel::{self, CONTAINERS, CelRules};
use super::{Check, CheckVersion, Finding, Level, Options, PodView, Remedy, Violation, called, message};

pub(super) static CHECK: Check = Check {
    id: "hostProbesAndHostLifecycle",
    level: Level::Baseline,
    title: "Host Probes / Lifecycle Hooks",
    why: "the kubelet connects to the named host from the node's network",
    versions: &[CheckVersion { since: 34, overrides: &[], run: since_v1_34, cel: cel_since_v1_34 }],
};

/// Where handlers are, and what in them names a host.
pub(in crate::standards) const HANDLERS: [&[&str]; 5] = [
    &["livenessProbe"],
    &["readinessProbe"],
    &["startupProbe"],
    &["lifecycle", "postStart"],
    &["lifecycle", "preStop"],
];
pub(in crate::standards) const ACTIONS: [&str; 2] = ["httpGet", "tcpSocket"];

fn since_v1_34(pod: &PodView<'_, '_>, _: Options) -> Option<Violation> {
    let mut names: Vec<&str> = Vec::new();
    let mut hosts: Vec<&str> = Vec::new();
    let mut findings = Vec::new();
    for container in pod.containers() {
        let spec = container.container;
        let lifecycle = spec.lifecycle.as_ref();
        let handlers: [Option<&Handler<'_>>; 5] = [
            spec.liveness_probe.as_ref(),
            spec.readiness_probe.as_ref(),
            spec.startup_probe.as_ref(),
            lifecycle.and_then(|lifecycle| lifecycle.post_start.as_ref()),
            lifecycle.and_then(|lifecycle| lifecycle.pre_stop.as_ref()),
        ];
        for (fields, handler) in HANDLERS.into_iter().zip(handlers) {
            let Some(handler) = handler else { continue };
            for (action, target) in ACTIONS.into_iter().zip([&handler.http_get, &handler.tcp_socket]) {
                let Some(host) = target.as_ref().map(|target| target.host.as_str()) else { continue };
                if host.is_empty() {
                    continue;
                }
                names.push(container.name());
                hosts.push(host);
                let path = container.path(pod).fields(fields).field(action).field("host");
                findings.push(Finding {
                    path: path.clone(),
                    container: Some(container.name().to_owned()),
                    value: Some(host.to_owned()),
                    summary: format!("{} has the node connect to host \"{host}\"", called(&container)),
                    allowed: "no host: the pod itself is meant",
                    remedy: Remedy::remove(path),
                });
            }
        }
    }
    if findings.is_empty() {
        return None;
    }
    let (names, hosts) = (message::sorted_unique(names), message::sorted_unique(hosts));
    let detail = format!(
        "{} {} {} {}",
        message::containers(&names),
        message::plural("uses", "use", names.len()),
        message::plural("probe or lifecycle host", "probe or lifecycle hosts", hosts.len()),
        message::quoted(&hosts)
    );
    Some(Violation {
        check: CHECK.id,
        reason: "probe or lifecycle host",
        detail,
        findings,
        masked: Vec::new(),
    })
}

fn cel_since_v1_34(rules: &mut CelRules) -> String {
    let places = HANDLERS.iter().flat_map(|fields| {
        ACTIONS.map(|action| format!("c.?{}.?{action}.?host.orValue('')", fields.join(".?")))
    });
    let hosts = format!("[{}]", places.collect::<Vec<_>>().join(", "));
    let names = rules.names_where("hostProbeContainers", &format!("{hosts}.exists(h, h != '')"));
    let names = rules.sorted_unique(&names);
    let names = rules.define("hostProbeNames", names);
    let found = rules.flat(
        &format!("{CONTAINERS}.map(c, {hosts}.exists(h, h != ''), {hosts}.filter(h, h != ''))"),
        cel::BETWEEN_QUOTED,
    );
    let found = rules.define("probeHosts", found);
    let detail = format!(
        "{} + {} + {} + {}",
        cel::containers(&names),
        cel::plural(" uses ", " use ", &names),
        cel::plural("probe or lifecycle host ", "probe or lifecycle hosts ", &found),
        cel::quoted(&found)
    );
    cel::violation(&cel::some(&names), "probe or lifecycle host", &detail)
}
