//! The documented rollout: the real binary, the real kubectl, and the script that people are given.

use std::{path::Path, process::Command};

use crate::support::Run;

#[test]
fn the_documented_scenario_goes_as_it_says() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/rollout/rollout.sh");
    let run = Run::of(Command::new("sh").arg(script).env("PALISADE", env!("CARGO_BIN_EXE_palisade")));
    assert_eq!(run.status, 0, "{run}");
    for line in [
        "Current\tby-user\tPSALabel: ServiceAccount with insufficient SCCs",
        "Current\tno-syncer\tPSAConfig: PSA label syncer disabled",
        "Current\topenshift-addon\tPSAConfig: Misconfigured OpenShift Namespace",
        "kubectl label --overwrite namespace openshift-addon pod-security.kubernetes.io/enforce=privileged",
        "nothing blocks enforcement in",
        "== done",
    ] {
        assert!(run.stdout.contains(line), "no {line:?} in\n{run}");
    }
    // What was told, in order, each once.
    let told: Vec<&str> = run.stdout.lines().filter_map(|line| line.split(' ').next()).collect();
    for reason in [
        "EnforcementOptedOut",
        "EnforcementLegacy",
        "EnforcementProgressing",
        "EnforcementRestricted",
        "EnforcementDisabled",
    ] {
        assert!(told.contains(&reason), "no {reason} in\n{run}");
    }
    assert!(run.stdout.contains("violating since 2"), "no time in\n{run}");
    assert!(run.stderr.contains("violates PodSecurity \"restricted:latest\""), "nothing enforced in\n{run}");
}
