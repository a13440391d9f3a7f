//! The rollout on the embedded API server: the same way as in `rollout.rs`, with every write a request.

use palisade_policy::enforcement::mode::Release;
use serde_json::json;

use crate::live::{Fate, Live};

pub(crate) const SYNC: &str = "security.openshift.io/scc.podSecurityLabelSync";
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
const OPENSHIFT: &str = "PSAConfig: Misconfigured OpenShift Namespace";
const SYNCER_OFF: &str = "PSAConfig: PSA label syncer disabled";
const ACCOUNT: &str = "PSALabel: ServiceAccount with insufficient SCCs";

/// A namespace for each of the three reasons, one whose service account may do what it does, one that is fine.
pub(crate) async fn fill(live: &Live) {
    for name in ["fine", "by-account", "by-user", "openshift-guide"] {
        live.namespace(name, json!({})).await;
    }
    live.namespace("opted-out", json!({SYNC: "false"})).await;
    live.grant("by-account", "privileged").await;
    let restricted = json!({"allowPrivilegeEscalation": false, "runAsNonRoot": true,
        "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}});
    live.pod("fine", "app", restricted).await;
    for name in ["by-account", "by-user", "openshift-guide", "opted-out"] {
        live.pod(name, "agent", json!({"privileged": true})).await;
    }
}

/// What happens to a cluster, one after another: what the administrator does, and the controllers that run then.
pub(crate) const STEPS: [(&str, Release, Option<bool>); 10] = [
    ("", Release::Introduce, None),
    ("", Release::Evaluate, None),
    ("fix by-user", Release::Evaluate, None),
    ("fix openshift-guide", Release::Evaluate, None),
    ("fix opted-out", Release::Evaluate, None),
    ("", Release::Enforce, None),
    ("opt in", Release::Enforce, None),
    ("", Release::Enforce, Some(false)),
    ("", Release::Enforce, None),
    ("", Release::Evaluate, None),
];

pub(crate) async fn act(live: &Live, what: &str) {
    match what {
        "fix by-user" => live.grant("by-user", "privileged").await,
        "fix openshift-guide" => live.label("openshift-guide", ENFORCE, json!("privileged")).await,
        "fix opted-out" => {
            live.grant("opted-out", "privileged").await;
            live.label("opted-out", SYNC, json!("true")).await;
        }
        "opt in" => live.request_mode("Restricted").await,
        _ => {}
    }
}

fn pair(spec: &str, status: &str) -> (String, String) {
    (spec.to_owned(), status.to_owned())
}

#[tokio::test(start_paused = true)]
async fn the_whole_way_and_back() {
    let live = Live::start().await;
    fill(&live).await;
    let fate = Fate::default();
    for (index, (what, release, gate)) in STEPS.into_iter().enumerate() {
        act(&live, what).await;
        live.phase(release, gate, &fate).await;
        let mode = live.mode().await;
        match index {
            0 => {
                assert_eq!(mode, pair("", "<none>"));
                assert_eq!(live.enforce_label("fine").await, None);
                assert_eq!(live.enforce_label("kube-system").await.as_deref(), Some("privileged"));
                let labels = &live.get_namespace("by-account").await["metadata"]["labels"];
                assert_eq!(labels["pod-security.kubernetes.io/warn"], "privileged");
            }
            1 => {
                assert_eq!(mode, pair("Legacy", ""));
                assert_eq!(
                    live.violating().await,
                    [
                        format!("Current by-user: {ACCOUNT}"),
                        format!("Current openshift-guide: {OPENSHIFT}"),
                        format!("Current opted-out: {SYNCER_OFF}"),
                    ]
                );
                assert_eq!(live.condition("Ready").await, pair("True", "Legacy"));
            }
            4 => assert_eq!(
                live.violating().await,
                [
                    format!("Previous by-user: {ACCOUNT}"),
                    format!("Previous openshift-guide: {OPENSHIFT}"),
                    format!("Previous opted-out: {SYNCER_OFF}"),
                ]
            ),
            5 => {
                assert_eq!(mode, pair("Legacy", "Legacy"));
                assert_eq!(live.enforce_label("fine").await, None);
            }
            6 | 8 => {
                assert_eq!(mode, pair("Restricted", "Restricted"), "step {index}");
                assert_eq!(live.requested().await.as_deref(), Some("restricted"));
                assert_eq!(live.condition("Ready").await, pair("True", "Enforcing"));
                for (name, level) in
                    [("fine", "restricted"), ("by-account", "privileged"), ("by-user", "privileged")]
                {
                    assert_eq!(live.enforce_label(name).await.as_deref(), Some(level), "{name}");
                }
                assert!(live.try_pod("fine", "bad").await.is_err(), "enforced");
            }
            7 | 9 => {
                assert_eq!(mode, pair("Restricted", ""), "step {index}");
                assert_eq!(live.requested().await.as_deref(), Some("privileged"));
                assert_eq!(live.enforce_label("by-account").await, None);
                assert_eq!(live.enforce_label("openshift-guide").await.as_deref(), Some("privileged"));
            }
            _ => {}
        }
    }
    let reported = live.reported().await;
    for (name, reason) in [
        ("by-user", "PodSecurityViolation"),
        ("by-user", "PodSecurityViolationResolved"),
        ("cluster", "EnforcementOptedOut"),
        ("cluster", "EnforcementLegacy"),
        ("cluster", "EnforcementProgressing"),
        ("cluster", "EnforcementRestricted"),
        ("cluster", "EnforcementDisabled"),
    ] {
        assert!(
            reported.iter().any(|(own, why, _)| own == name && why == reason),
            "{name} {reason} in {reported:#?}"
        );
    }
}
