//! Usage, help, plugins, pipes.

use std::{
    io::Read,
    os::unix::fs::symlink,
    process::{Command, Stdio},
};

use crate::support::{GOOD, PRIVILEGED, Project, Run};

#[test]
fn wrong_usage_is_status_2() {
    let project = Project::with(GOOD);
    for arguments in [
        &[][..],
        &["check"],
        &["chekc", "."],
        &["check", ".", "--level", "strict"],
        &["check", ".", "--policy-version", "1.30"],
        &["check", ".", "--kubernetes-version", "v1.12"],
        &["check", ".", "-o", "xml"],
        &["check", ".", "-o", "json="],
        &["check", ".", "--jobs", "0"],
        &["check", ".", "--feature-gates", "X=true"],
        &["man", "nothing"],
        &["explain", ".", "--kubelet", "v1.17"],
        &["explain", ".", "--kubelet", "new"],
    ] {
        let run = project.run(arguments);
        assert_eq!((run.status, run.stdout.as_str()), (2, ""), "{arguments:?}: {run}");
    }
}

#[test]
fn prints_help_version_completions_and_manual() {
    let project = Project::new();
    for (arguments, expected) in [
        (&["--help"][..], "Usage: palisade"),
        (&["check", "--help"], "Exit status: 0 clean"),
        (&["--version"], "palisade "),
        (&["version"], "Pod Security Standards v1.0 to v1.37"),
        (&["completions", "bash"], "_palisade"),
        (&["completions", "zsh"], "#compdef palisade"),
        (&["completions", "fish"], "complete -c palisade"),
        (&["man"], ".TH palisade 1"),
        (&["man", "check"], ".TH palisade-check 1"),
    ] {
        let run = project.run(arguments);
        assert!(run.status == 0 && run.stdout.contains(expected), "{arguments:?}: {run}");
        assert_eq!(run.stderr, "", "{arguments:?}");
    }
}

#[test]
fn uses_the_name_of_the_kubectl_plugin() {
    let project = Project::with(PRIVILEGED);
    let plugin = project.path("kubectl-palisade");
    symlink(env!("CARGO_BIN_EXE_palisade"), &plugin).unwrap();
    let run = Run::of(Command::new(&plugin).arg("--help"));
    assert!(run.stdout.contains("Usage: kubectl palisade"), "{run}");
    let run = Run::of(Command::new(&plugin).args(["check", "."]).current_dir(project.path(".")));
    assert_eq!(run.status, 1, "{run}");
}

#[test]
fn stops_quietly_when_stdout_is_closed() {
    let project = Project::new();
    for number in 0..300 {
        project.file(&format!("{number}.yaml"), PRIVILEGED);
    }
    let mut child =
        project.command().args(["check", "."]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let run = Run::from(child.wait_with_output().unwrap());
    assert_eq!(run.status, 1, "{run}");
    assert!(!run.stderr.contains("panic") && run.stderr.contains("300 denied"), "{run}");
}

#[test]
fn a_full_disk_is_status_3() {
    let project = Project::with(PRIVILEGED);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = project.command().args(["check", "."]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn searches_folders_for_manifests_and_reads_named_files_always() {
    let project = Project::new();
    for name in ["a.yaml", "b.yml", "c.json", "d.YAML", "e.txt", "f", ".hidden/g.yaml", "deep/er/h.yaml"] {
        project.file(name, PRIVILEGED);
    }
    let files = |arguments: &[&str]| {
        let run = project.run(&[&["check", "-o", "json"], arguments].concat());
        let files: Vec<String> = run.json()["objects"]
            .as_array()
            .unwrap()
            .iter()
            .map(|object| object["file"].as_str().unwrap().to_owned())
            .collect();
        files
    };
    assert_eq!(files(&["."]), ["a.yaml", "b.yml", "c.json", "d.YAML", "deep/er/h.yaml"]);
    assert_eq!(files(&["e.txt", "f", ".hidden", "f"]), [".hidden/g.yaml", "e.txt", "f"]);
    assert_eq!(files(&[".", "--exclude", "deep", "--exclude=*.y*ml"]), ["c.json", "d.YAML"]);
}

#[test]
fn applies_the_rules_of_the_given_release() {
    let text = GOOD.replace("    runAsNonRoot: true\n", "").replace("spec:\n", "spec:\n  hostUsers: false\n");
    let project = Project::with(&text);
    assert_eq!(project.run(&["check", "."]).status, 0, "v1.35 and later allow root in a user namespace");
    assert_eq!(project.run(&["check", ".", "--policy-version", "v1.34"]).status, 1);
    assert_eq!(project.run(&["check", ".", "--kubernetes-version", "v1.34"]).status, 1);
}

#[test]
fn profiles_from_config_maps_need_the_extensions_and_the_gate() {
    let text =
        GOOD.replace("type: RuntimeDefault", "type: ConfigMap\n      configMapProfile: profiles/web.json");
    let project = Project::with(&text);
    let designs = ["check", ".", "--kubernetes-version", "designs"];
    assert_eq!(project.run(&["check", "."]).status, 1);
    assert_eq!(project.run(&designs).status, 1, "the gate is off");
    let run = project.run(&[&designs[..], &["--feature-gates", "SeccompConfigMaps=true"]].concat());
    assert_eq!(run.status, 0, "{run}");
}
