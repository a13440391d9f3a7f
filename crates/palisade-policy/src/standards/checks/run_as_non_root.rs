//! Every container must be required to run as another user than root.
//!
//! Implements: Pod Security Standards, Restricted, "Running as Non-root".

use serde_json::json;

use super::super::cel::{self, CelRules, POD_CONTEXT};
use super::{
    Check, CheckVersion, Edit, Finding, Level, Options, PodView, Remedy, Violation, called, containers_where,
    message, names,
};

pub(super) static CHECK: Check = Check {
    id: "runAsNonRoot",
    level: Level::Restricted,
    title: "Running as Non-root",
    why: "root inside a container is root on the node once it gets out",
    versions: &[
        CheckVersion { since: 0, overrides: &[], run: since_v1_0, cel: cel_since_v1_0 },
        CheckVersion { since: 35, overrides: &[], run: since_v1_35, cel: cel_since_v1_35 },
    ],
};

const ALLOWED: &str = "true, for the pod or for every container";

fn since_v1_0(pod: &PodView<'_, '_>, _: Options) -> Option<Violation> {
    let of_pod = pod.security_context().and_then(|context| context.run_as_non_root);
    let own = |container: &palisade_model::pod_view::ContainerRef<'_, '_>| {
        container.security_context().and_then(|context| context.run_as_non_root)
    };
    let explicit = containers_where(pod, |container| own(container) == Some(false));
    let at_pod = || pod.path(&["spec", "securityContext", "runAsNonRoot"]);

    if of_pod == Some(false) || !explicit.is_empty() {
        let who = message::setters(of_pod == Some(false), &names(&explicit));
        let mut findings = Vec::new();
        if of_pod == Some(false) {
            findings.push(Finding {
                path: at_pod(),
                container: None,
                value: Some("false".to_owned()),
                summary: "pod may run as root".to_owned(),
                allowed: ALLOWED,
                remedy: Remedy::set(at_pod(), true),
            });
        }
        for container in &explicit {
            let path = container.path(pod).fields(&["securityContext", "runAsNonRoot"]);
            findings.push(Finding {
                path: path.clone(),
                container: Some(container.name().to_owned()),
                value: Some("false".to_owned()),
                summary: format!("{} may run as root", called(container)),
                allowed: ALLOWED,
                remedy: Remedy::set(path, true),
            });
        }
        // Containers without a value are not named by upstream here, yet would be next time.
        let silent = pod.containers().any(|container| own(&container).is_none());
        if of_pod.is_none()
            && silent
            && let Some(Finding { remedy: Remedy::Edits(edits), .. }) = findings.first_mut()
        {
            edits.push(Edit::Set(at_pod(), json!(true)));
        }
        let masked = if of_pod.is_none() && silent { vec![unset(pod)] } else { Vec::new() };
        let detail = format!("{who} must not set securityContext.runAsNonRoot=false");
        return Some(Violation { check: CHECK.id, reason: "runAsNonRoot != true", detail, findings, masked });
    }
    if of_pod == Some(true) {
        return None;
    }
    let implicit = containers_where(pod, |container| own(container).is_none());
    if implicit.is_empty() {
        return None;
    }
    let who = message::containers(&names(&implicit));
    let findings = vec![unset(pod)];
    let detail = format!("pod or {who} must set securityContext.runAsNonRoot=true");
    Some(Violation { check: CHECK.id, reason: "runAsNonRoot != true", detail, findings, masked: Vec::new() })
}

/// The finding for every container that neither has a value nor gets one from the pod.
fn unset(pod: &PodView<'_, '_>) -> Finding {
    let silent = containers_where(pod, |container| {
        container.security_context().and_then(|context| context.run_as_non_root).is_none()
    });
    let path = pod.path(&["spec", "securityContext", "runAsNonRoot"]);
    Finding {
        path: path.clone(),
        container: None,
        value: None,
        summary: format!("{} may run as root", message::containers(&names(&silent))),
        allowed: ALLOWED,
        remedy: Remedy::set(path, true),
    }
}

fn since_v1_35(pod: &PodView<'_, '_>, options: Options) -> Option<Violation> {
    if pod.spec().has_user_namespace() { None } else { since_v1_0(pod, options) }
}

fn cel_since_v1_0(rules: &mut CelRules) -> String {
    let refusing = rules.define("rootPod", format!("!{POD_CONTEXT}.?runAsNonRoot.orValue(true)"));
    let explicit = rules.names_where("rootContainers", "!c.?securityContext.?runAsNonRoot.orValue(true)");
    let implicit = rules.names_where("maybeRootContainers", "!c.?securityContext.?runAsNonRoot.hasValue()");
    let forbidden = format!(
        "{} + ' must not set securityContext.runAsNonRoot=false'",
        cel::setters(&refusing, &explicit)
    );
    let required =
        format!("'pod or ' + {} + ' must set securityContext.runAsNonRoot=true'", cel::containers(&implicit));
    let reason = "runAsNonRoot != true";
    let implicit_rule = cel::violation(
        &format!("!{POD_CONTEXT}.?runAsNonRoot.hasValue() && {}", cel::some(&implicit)),
        reason,
        &required,
    );
    let condition = format!("{refusing} || {}", cel::some(&explicit));
    cel::violation_or(&condition, reason, &forbidden, &format!("({implicit_rule})"))
}

fn cel_since_v1_35(rules: &mut CelRules) -> String {
    let rule = cel_since_v1_0(rules);
    cel::unless("variables.hasUserNamespace", &rule)
}
