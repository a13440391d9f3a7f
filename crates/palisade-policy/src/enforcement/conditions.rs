//! Conditions of a rollout, to wait for and to read.
//!
//! Implements: the conventions of Kubernetes API conditions, so that `kubectl wait --for=condition=Ready` means
//! "what was requested is what every API server does".

use super::{
    mode::{Release, SpecMode},
    state::{EnforceLabels, Evaluation, Inputs, Instances, Outputs},
};
use crate::standards::level::Level;

/// A condition without its times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// `Ready`, `Progressing`, `Degraded`, `PodsRejected` or `Upgradeable`.
    pub kind: &'static str,
    /// Whether it holds.
    pub status: bool,
    /// One word for programs.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: String,
}

/// What is wrong besides the namespaces themselves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Troubles<'t> {
    /// What keeps the controllers from working.
    pub failing: Option<&'t str>,
    /// Constraints that are left out because they make no sense. Nothing waits for them, but someone should look.
    pub skipped: Option<&'t str>,
    /// Instances that do not do yet what the global configuration requests, and what they do instead.
    pub waiting_for: Option<&'t str>,
    /// The component that labels are waited for, and the namespaces that lack one.
    pub labels_by: Option<&'t str>,
    /// The state of the waves: a word and a sentence.
    pub waves: Option<(&'static str, &'t str)>,
    /// Workloads whose pods admission rejects, and the messages. Nothing waits for them.
    pub rejected: Option<&'t str>,
}

/// The conditions of a state. `violating` is the number of namespaces that violate now.
#[must_use]
pub fn conditions(
    inputs: Inputs,
    outputs: Outputs,
    violating: usize,
    troubles: Troubles<'_>,
) -> [Condition; 5] {
    let enforcing = outputs.default_enforce == Level::Restricted;
    let waiting = |what: &str| match troubles.waiting_for {
        Some(instances) => format!("{what}: {instances}"),
        None => what.to_owned(),
    };
    let moving = match outputs.enforce_labels {
        EnforceLabels::Set | EnforceLabels::Loosen if !inputs.labels_done => {
            Some(match (troubles.waves, troubles.labels_by) {
                (Some((reason, message)), _) => (reason, message.to_owned()),
                (None, Some(names)) => ("SettingLabels", names.to_owned()),
                (None, None) => {
                    ("SettingLabels", "enforce labels are being set on managed namespaces".to_owned())
                }
            })
        }
        EnforceLabels::Set | EnforceLabels::Loosen if enforcing && inputs.instances != Instances::All => {
            Some((
                "RollingOut",
                waiting("not every API server and webhook enforces restricted by default yet"),
            ))
        }
        EnforceLabels::Keep => Some((
            "RollingBack",
            waiting(
                "enforce labels stay until no API server or webhook enforces restricted by default any more",
            ),
        )),
        EnforceLabels::Set | EnforceLabels::Loosen | EnforceLabels::Remove => None,
    };
    let (ready, reason, message) = match (&moving, troubles.failing) {
        (_, Some(problem)) => (false, "Degraded", problem.to_owned()),
        (Some((reason, message)), None) => (false, *reason, message.clone()),
        (None, None) => {
            let (reason, message) = settled(inputs, enforcing, violating);
            (true, reason, message)
        }
    };
    let failing = troubles.failing.map(|message| ("ControllerFailing", message));
    let degraded = failing.or(troubles.skipped.map(|message| ("ConstraintsSkipped", message)));
    let (upgradeable, upgrade_reason, upgrade_message) = upgradeable(inputs, violating);
    let is_moving = moving.is_some();
    let (progress_reason, progress_message) = moving.unwrap_or(("AsExpected", String::new()));
    [
        Condition { kind: "Ready", status: ready, reason, message },
        Condition {
            kind: "Progressing",
            status: is_moving,
            reason: progress_reason,
            message: progress_message,
        },
        Condition {
            kind: "Degraded",
            status: degraded.is_some(),
            reason: degraded.map_or("AsExpected", |(reason, _)| reason),
            message: degraded.map_or_else(String::new, |(_, message)| message.to_owned()),
        },
        Condition {
            kind: "PodsRejected",
            status: troubles.rejected.is_some(),
            reason: troubles.rejected.map_or("AsExpected", |_| "FailedCreate"),
            message: troubles.rejected.unwrap_or_default().to_owned(),
        },
        Condition {
            kind: "Upgradeable",
            status: upgradeable,
            reason: upgrade_reason,
            message: upgrade_message,
        },
    ]
}

/// Whether the next release may come. After n+1 there is no `Legacy` any more, and a release n that has evaluated nothing yet
/// would be followed by one that enforces unchecked.
fn upgradeable(inputs: Inputs, violating: usize) -> (bool, &'static str, String) {
    match (inputs.release, inputs.spec) {
        (Release::Enforce, SpecMode::Legacy) => (
            false,
            "Legacy",
            format!(
                "spec.enforcementMode is Legacy, which the next release does not have; {}: fix what violates, then \
                 set it to Restricted",
                namespaces(violating)
            ),
        ),
        (Release::Evaluate, SpecMode::Unset) if inputs.evaluation == Evaluation::NotEvaluated => (
            false,
            "NotEvaluated",
            "namespaces have not been evaluated yet, and the next release enforces".to_owned(),
        ),
        _ => (true, "AsExpected", String::new()),
    }
}

fn namespaces(violating: usize) -> String {
    match violating {
        0 => "no namespace violates".to_owned(),
        1 => "1 namespace violates".to_owned(),
        count => format!("{count} namespaces violate"),
    }
}

fn settled(inputs: Inputs, enforcing: bool, violating: usize) -> (&'static str, String) {
    let namespaces = namespaces(violating);
    if enforcing {
        return ("Enforcing", "every API server and webhook enforces restricted by default".to_owned());
    }
    match (inputs.release, inputs.spec, inputs.gate) {
        (_, SpecMode::Legacy, _) => ("Legacy", format!("enforcement is opted out of; {namespaces}")),
        (Release::Enforce, _, false) => {
            ("GateOff", format!("the feature gate OpenShiftPodSecurityAdmission is off; {namespaces}"))
        }
        _ if inputs.evaluation == Evaluation::NotEvaluated => {
            ("NotEvaluated", "namespaces have not been evaluated yet".to_owned())
        }
        _ if inputs.evaluation == Evaluation::Undecided => (
            "Undecided",
            format!(
                "enforcement has not begun in this release; {namespaces}, but not every namespace can be judged"
            ),
        ),
        _ => ("Evaluated", format!("enforcement has not begun in this release; {namespaces}")),
    }
}

#[cfg(test)]
mod tests {
    use super::{Evaluation, Inputs, Instances, Release, SpecMode, Troubles, conditions};
    use crate::enforcement::state::decide;

    #[test]
    fn ready_means_that_the_requested_mode_is_in_force() {
        let base = Inputs { release: Release::Enforce, gate: true, ..Inputs::default() };
        let done = Inputs { labels_done: true, instances: Instances::All, ..base };
        for (case, inputs, degraded, expected) in [
            ("labels first", base, None, [("False", "SettingLabels"), ("True", "SettingLabels")]),
            (
                "then servers",
                Inputs { labels_done: true, ..base },
                None,
                [("False", "RollingOut"), ("True", "RollingOut")],
            ),
            ("all done", done, None, [("True", "Enforcing"), ("False", "AsExpected")]),
            (
                "opting out",
                Inputs { spec: SpecMode::Legacy, ..done },
                None,
                [("False", "RollingBack"), ("True", "RollingBack")],
            ),
            (
                "opted out",
                Inputs { spec: SpecMode::Legacy, ..base },
                None,
                [("True", "Legacy"), ("False", "AsExpected")],
            ),
            (
                "break-glass",
                Inputs { gate: false, ..base },
                None,
                [("True", "GateOff"), ("False", "AsExpected")],
            ),
            ("cannot work", done, Some("no access"), [("False", "Degraded"), ("False", "AsExpected")]),
        ] {
            let [ready, progressing, broken, ..] =
                conditions(inputs, decide(inputs), 2, Troubles { failing: degraded, ..Troubles::default() });
            let shown = |status: bool| if status { "True" } else { "False" };
            assert_eq!(
                [(shown(ready.status), ready.reason), (shown(progressing.status), progressing.reason)],
                expected,
                "{case}"
            );
            assert_eq!(broken.status, degraded.is_some(), "{case}");
        }
    }

    #[test]
    fn who_holds_the_rollout_up_is_named() {
        let base = Inputs { release: Release::Enforce, gate: true, labels_done: true, ..Inputs::default() };
        let troubles = Troubles { waiting_for: Some("webhook a enforces privileged"), ..Troubles::default() };
        let shown = |inputs: Inputs| {
            let [ready, progressing, ..] = conditions(inputs, decide(inputs), 0, troubles);
            assert_eq!(ready.message, progressing.message);
            progressing.message
        };
        let rolling_out = shown(Inputs { instances: Instances::Mixed, ..base });
        assert!(rolling_out.ends_with("yet: webhook a enforces privileged"), "{rolling_out}");
        let rolling_back = shown(Inputs { instances: Instances::Mixed, gate: false, ..base });
        assert!(rolling_back.ends_with("any more: webhook a enforces privileged"), "{rolling_back}");
    }

    #[test]
    fn a_skipped_constraint_is_reported_and_stops_nothing() {
        let inputs = Inputs { labels_done: true, instances: Instances::All, ..Inputs::default() };
        let troubles = Troubles { skipped: Some("scc x"), ..Troubles::default() };
        let [ready, _, degraded, ..] = conditions(inputs, decide(inputs), 0, troubles);
        assert!(ready.status || ready.reason != "Degraded");
        assert_eq!((degraded.status, degraded.reason), (true, "ConstraintsSkipped"));
        assert_eq!(degraded.message, "scc x");
    }

    #[test]
    fn legacy_blocks_the_release_that_has_none() {
        let evaluated = |release, spec, evaluation| Inputs { release, spec, evaluation, ..Inputs::default() };
        for (case, inputs, expected) in [
            (
                "n, evaluated",
                evaluated(Release::Evaluate, SpecMode::Unset, Evaluation::Clean),
                (true, "AsExpected"),
            ),
            (
                "n, not yet",
                evaluated(Release::Evaluate, SpecMode::Unset, Evaluation::NotEvaluated),
                (false, "NotEvaluated"),
            ),
            (
                "n, opted out",
                evaluated(Release::Evaluate, SpecMode::Legacy, Evaluation::Violations),
                (true, "AsExpected"),
            ),
            (
                "n+1, opted out",
                evaluated(Release::Enforce, SpecMode::Legacy, Evaluation::Violations),
                (false, "Legacy"),
            ),
            ("n+1", evaluated(Release::Enforce, SpecMode::Unset, Evaluation::Clean), (true, "AsExpected")),
        ] {
            let [.., upgradeable] = conditions(inputs, decide(inputs), 2, Troubles::default());
            assert_eq!((upgradeable.status, upgradeable.reason), expected, "{case}");
            assert_eq!(
                upgradeable.message.contains("2 namespaces violate"),
                expected.1 == "Legacy",
                "{case}"
            );
        }
    }

    #[test]
    fn who_is_to_set_labels_is_named() {
        let inputs = Inputs { release: Release::Enforce, gate: true, ..Inputs::default() };
        let troubles = Troubles { labels_by: Some("waiting for OpenShift: a, b"), ..Troubles::default() };
        let [_, progressing, ..] = conditions(inputs, decide(inputs), 0, troubles);
        assert_eq!(
            (progressing.reason, progressing.message.as_str()),
            ("SettingLabels", "waiting for OpenShift: a, b")
        );
        let troubles = Troubles { waves: Some(("WaveStopped", "wave x is stopped")), ..troubles };
        let [_, progressing, ..] = conditions(inputs, decide(inputs), 0, troubles);
        assert_eq!((progressing.reason, progressing.message.as_str()), ("WaveStopped", "wave x is stopped"));
    }

    #[test]
    fn rejected_pods_are_a_condition_and_nothing_waits_for_them() {
        let inputs = Inputs::default();
        let rejected = "the pods of 1 workload are rejected: Deployment web in namespace team: no";
        let [quiet_ready, .., quiet, _] = conditions(inputs, decide(inputs), 0, Troubles::default());
        assert_eq!((quiet.kind, quiet.status, quiet.reason), ("PodsRejected", false, "AsExpected"));
        let troubles = Troubles { rejected: Some(rejected), ..Troubles::default() };
        let [ready, .., found, _] = conditions(inputs, decide(inputs), 0, troubles);
        assert_eq!((found.status, found.reason, found.message.as_str()), (true, "FailedCreate", rejected));
        assert_eq!(ready, quiet_ready);
    }
}
