//! `palisade up -- COMMAND`: a server for one command, which ends with it.

use std::{fs, os::unix::process::ExitStatusExt as _};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Project, Running};

#[test]
fn runs_a_command_with_the_server_and_exits_with_its_status() {
    let project = Project::new();
    let run = project.run(&[
        "up",
        "--",
        "sh",
        "-c",
        "kubectl create namespace shop && kubectl get namespace shop -o name; echo $KUBECONFIG; exit 7",
    ]);
    assert_eq!(run.status, 7, "{run}");
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(lines[..2], ["namespace/shop created", "namespace/shop"], "{run}");
    assert!(run.stderr.contains("palisade is up on https://127.0.0.1:"), "{run}");
    assert!(!run.stderr.contains("Ctrl-C"), "nothing to type where a command runs\n{run}");
    // The kubeconfig holds a credential of a server that is gone.
    assert!(!fs::exists(lines[2]).unwrap(), "{run}");
    assert!(!fs::exists(project.path("palisade.kubeconfig")).unwrap(), "{run}");
}

#[test]
fn keeps_the_kubeconfig_that_is_named() {
    let project = Project::new();
    let run = project.run(&["up", "--kubeconfig", "mine", "--", "sh", "-c", "echo $KUBECONFIG"]);
    assert_eq!((run.status, run.stdout.trim()), (0, project.path("mine").to_str().unwrap()), "{run}");
    assert!(fs::exists(project.path("mine")).unwrap());
}

#[test]
fn reports_a_command_that_does_not_exist() {
    let run = Project::new().run(&["up", "--", "no-such-command"]);
    assert_eq!(run.status, 2, "{run}");
    assert!(run.stderr.contains("error: cannot run \"no-such-command\": No such file or directory"), "{run}");
}

#[test]
fn forwards_sigterm_to_the_command_and_waits_for_it() {
    let project = Project::new();
    let mut command = project.command();
    let mut up = Running::start(command.args([
        "up",
        "--",
        "sh",
        "-c",
        "trap 'kill $!; touch ended; exit 3' TERM; sleep 600 & echo started >&2; wait",
    ]));
    up.line("started");
    kill_process(Pid::from_child(&up.child), Signal::TERM).unwrap();
    let status = up.child.wait().unwrap();
    assert_eq!((status.code(), status.signal()), (Some(3), None));
    assert!(fs::exists(project.path("ended")).unwrap(), "the command ended by itself");
}
