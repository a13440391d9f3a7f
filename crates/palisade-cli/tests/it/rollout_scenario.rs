//! The documented rollout: the real binary, the real kubectl, and the script that people are given.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use crate::support::{Project, Run, Running};

#[test]
fn the_documented_scenario_succeeds() {
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
    // The events, in order, each once.
    let reported: Vec<&str> = run.stdout.lines().filter_map(|line| line.split(' ').next()).collect();
    for reason in [
        "EnforcementOptedOut",
        "EnforcementLegacy",
        "EnforcementProgressing",
        "EnforcementRestricted",
        "EnforcementDisabled",
    ] {
        assert!(reported.contains(&reason), "no {reason} in\n{run}");
    }
    assert!(run.stdout.contains("violating since 2"), "no time in\n{run}");
    assert!(run.stderr.contains("violates PodSecurity \"restricted:latest\""), "nothing enforced in\n{run}");
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_mins(1), "{what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn controllers_beside_the_server_elect_a_leader_and_hand_over() {
    let project = Project::new();
    let kubeconfig = project.path("kubeconfig");
    let kubectl = |arguments: &[&str]| {
        let output = Command::new("kubectl").args(arguments).env("KUBECONFIG", &kubeconfig).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let mut up = project.command();
    up.args(["up", "--openshift", "--controllers", "none", "--kubeconfig"]).arg(&kubeconfig);
    let server = Running::start(&mut up);
    server.line("palisade is up");
    let controller = || {
        let mut command = project.command();
        command.args(["controller", "--release", "n", "--metrics-listen", "127.0.0.1:0", "--kubeconfig"]);
        let running = Running::start(command.arg(&kubeconfig));
        let address = running.line("metrics on http://").trim_end_matches("/metrics").to_owned();
        (running, address)
    };
    let (first, first_address) = controller();
    let leads = |address: &str| get(address, "/metrics").contains("palisade_controller_leader 1");
    eventually("the first leads", || leads(&first_address));
    let (_second, second_address) = controller();
    kubectl(&["create", "namespace", "team"]);
    let warn =
        ["get", "namespace", "team", "-o", "jsonpath={.metadata.labels.pod-security\\.kubernetes\\.io/warn}"];
    eventually("labels are synced", || kubectl(&warn) == "restricted");
    assert!(get(&first_address, "/readyz").starts_with("HTTP/1.1 200"));
    assert!(!leads(&second_address));
    first.stop();
    eventually("the second leads", || leads(&second_address));
    let mode = ["get", "psaenforcementconfig", "cluster", "-o", "jsonpath={.status.conditions[0].reason}"];
    eventually("the rollout is reported", || kubectl(&mode) == "Evaluated");
}
