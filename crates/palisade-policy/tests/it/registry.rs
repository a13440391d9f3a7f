//! The registry held to account.

use std::{collections::BTreeSet, fs, path::Path};

use palisade_model::{compat::Compat, prepare::Prepared};
use palisade_policy::standards::{
    checks::CHECKS,
    evaluator::{Evaluator, rules},
    level::{Level, LevelVersion, Version},
};

use crate::pod;

/// For every check: the oldest version it exists in, a pod that it forbids, and a part of its message.
const FAILING: &[(&str, u64, &str)] = &[
    (
        "appArmorProfile",
        0,
        r#"{"spec":{"containers":[{"name":"c","securityContext":{"appArmorProfile":{"type":"Unconfined"}}}]}}"#,
    ),
    (
        "capabilities_baseline",
        0,
        r#"{"spec":{"containers":[{"name":"c","securityContext":{"capabilities":{"add":["NET_RAW"]}}}]}}"#,
    ),
    ("hostNamespaces", 0, r#"{"spec":{"hostIPC":true}}"#),
    ("hostPathVolumes", 0, r#"{"spec":{"volumes":[{"name":"v","hostPath":{}}]}}"#),
    ("hostPorts", 0, r#"{"spec":{"containers":[{"name":"c","ports":[{"containerPort":1,"hostPort":2}]}]}}"#),
    (
        "hostProbesAndHostLifecycle",
        34,
        r#"{"spec":{"containers":[{"name":"c","lifecycle":{"preStop":{"tcpSocket":{"host":"h"}}}}]}}"#,
    ),
    (
        "privileged",
        0,
        r#"{"spec":{"ephemeralContainers":[{"name":"c","securityContext":{"privileged":true}}]}}"#,
    ),
    ("procMount", 0, r#"{"spec":{"containers":[{"name":"c","securityContext":{"procMount":"Unmasked"}}]}}"#),
    ("seLinuxOptions", 0, r#"{"spec":{"securityContext":{"seLinuxOptions":{"user":"u"}}}}"#),
    (
        "seccompProfile_baseline",
        19,
        r#"{"spec":{"securityContext":{"seccompProfile":{"type":"Unconfined"}}}}"#,
    ),
    ("sysctls", 0, r#"{"spec":{"securityContext":{"sysctls":[{"name":"kernel.msgmax","value":"1"}]}}}"#),
    ("windowsHostProcess", 0, r#"{"spec":{"securityContext":{"windowsOptions":{"hostProcess":true}}}}"#),
    ("allowPrivilegeEscalation", 8, r#"{"spec":{"containers":[{"name":"c"}]}}"#),
    ("capabilities_restricted", 22, r#"{"spec":{"containers":[{"name":"c"}]}}"#),
    (
        "procMount_restricted",
        35,
        r#"{"spec":{"hostUsers":false,"containers":[{"name":"c","securityContext":{"procMount":"Unmasked"}}]}}"#,
    ),
    ("restrictedVolumes", 0, r#"{"spec":{"volumes":[{"name":"v","nfs":{}}]}}"#),
    ("runAsNonRoot", 0, r#"{"spec":{"containers":[{"name":"c"}]}}"#),
    ("runAsUser", 23, r#"{"spec":{"securityContext":{"runAsUser":0}}}"#),
    ("seccompProfile_restricted", 19, r#"{"spec":{"containers":[{"name":"c"}]}}"#),
];

const PASSING: &str = r#"{"spec":{"securityContext":{"runAsNonRoot":true,"seccompProfile":{"type":"RuntimeDefault"}},
    "volumes":[{"name":"v","emptyDir":{}}],
    "containers":[{"name":"c","ports":[{"containerPort":80}],"securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}}]}}"#;

#[test]
fn every_file_is_listed_under_the_name_of_its_check() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/standards/checks");
    let files: BTreeSet<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().trim_end_matches(".rs").to_owned())
        .filter(|name| name != "mod")
        .collect();
    let snake = |id: &str| {
        let mut name = String::new();
        for c in id.chars() {
            if c.is_ascii_uppercase() {
                name.push('_');
            }
            name.push(c.to_ascii_lowercase());
        }
        name
    };
    let ids: BTreeSet<String> = CHECKS.iter().map(|check| snake(check.id)).collect();
    assert_eq!(files, ids);
}

#[test]
fn checks_stand_in_upstreams_order() {
    let key = |level: Level, id: &'static str| (level, id);
    let listed: Vec<_> = CHECKS.iter().map(|check| key(check.level, check.id)).collect();
    let mut sorted = listed.clone();
    sorted.sort_unstable();
    assert_eq!(listed, sorted);
}

#[test]
fn versions_rise_and_override_what_exists() {
    for check in CHECKS {
        assert!(check.versions.is_sorted_by(|a, b| a.since < b.since), "{}", check.id);
        for id in check.versions.iter().flat_map(|version| version.overrides) {
            let overridden = CHECKS.iter().find(|other| other.id == *id).unwrap();
            assert_eq!((check.level, overridden.level), (Level::Restricted, Level::Baseline));
        }
    }
}

#[test]
fn as_many_checks_run_as_upstream_runs() {
    for (level, minors, count) in [
        (Level::Baseline, 0..=33, 11),
        (Level::Baseline, 34..=37, 12),
        (Level::Restricted, 0..=7, 12),
        (Level::Restricted, 8..=22, 13),
        (Level::Restricted, 23..=33, 14),
        (Level::Restricted, 34..=37, 15),
        (Level::Privileged, 0..=37, 0),
    ] {
        for minor in minors {
            assert_eq!(rules(level, minor).count(), count, "{level} v1.{minor}");
        }
    }
}

#[test]
fn every_check_forbids_its_failing_pod_from_its_first_version_on() {
    let evaluator = Evaluator::default();
    let ids: Vec<_> = CHECKS.iter().map(|check| check.id).collect();
    assert_eq!(
        FAILING.iter().map(|(id, _, _)| *id).collect::<Vec<_>>(),
        ids,
        "one failing pod for every check"
    );
    for (check, &(id, since, json)) in CHECKS.iter().zip(FAILING) {
        let pod = Prepared::stored(pod(json), &Compat::kubernetes(37));
        let forbids = |minor: u64| {
            let policy = LevelVersion::new(check.level, Version::v1(minor));
            let outcome = evaluator.evaluate(policy, &pod);
            outcome.violations.iter().any(|violation| violation.check == id && !violation.findings.is_empty())
        };
        assert!(forbids(since), "{id} at v1.{since}");
        assert!(since == 0 || !forbids(since - 1), "{id} before v1.{since}");
    }
}

#[test]
fn a_careful_pod_passes_everything() {
    let pod = Prepared::stored(pod(PASSING), &Compat::kubernetes(37));
    let evaluator = Evaluator::default();
    for minor in 0..=37 {
        for level in [Level::Baseline, Level::Restricted] {
            let outcome = evaluator.evaluate(LevelVersion::new(level, Version::v1(minor)), &pod);
            assert_eq!(outcome.details(), "", "{level} v1.{minor}");
        }
    }
}
