//! The GitHub Action and the hooks for pre-commit, as far as they run without their services: the step with the environment that GitHub sets,
//! and the hooks by pre-commit itself.

use std::{fs, path::Path, process::Command};

use palisade_yaml::{Limits, parse};
use serde_json::Value;

use crate::support::{GOOD, PRIVILEGED, Project, Run};

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A PATH whose first folder has the binary of this test.
fn path_with_palisade() -> String {
    let folder = Path::new(env!("CARGO_BIN_EXE_palisade")).parent().unwrap();
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap())
}

/// The step of the action in a folder, with inputs.
fn action(project: &Project, inputs: &[(&str, &str)]) -> Run {
    project.file("output", "");
    let mut step = Command::new("bash");
    step.arg(root().join("deploy/action/check.sh")).current_dir(project.path(""));
    step.env("PATH", path_with_palisade()).env("GITHUB_ACTION_PATH", root());
    step.env("GITHUB_OUTPUT", project.path("output")).env("RUNNER_TEMP", project.path("temp"));
    for (name, value) in inputs {
        step.env(name, value);
    }
    Run::of(&mut step)
}

#[test]
fn the_action_annotates_files_and_returns_the_status() {
    let project = Project::with(PRIVILEGED);
    project.file("good/pod.yaml", GOOD);
    let run = action(
        &project,
        &[("INPUT_LEVEL", "baseline"), ("INPUT_SARIF", "report.sarif"), ("INPUT_PATHS", "pod.yaml\ngood")],
    );
    assert!(run.stdout.starts_with("::error file=pod.yaml,line=10,"), "{run}");
    assert_eq!((run.status, project.read("output").as_str()), (1, "status=1\n"), "{run}");
    let report: Value = serde_json::from_str(&project.read("report.sarif")).unwrap();
    assert_eq!(report["runs"][0]["results"][0]["ruleId"], "pss/privileged");
    let run = action(&project, &[("INPUT_PATHS", "good"), ("INPUT_ARGUMENTS", "--quiet --strict")]);
    assert_eq!((run.status, run.stdout.as_str(), run.stderr.as_str()), (0, "", ""), "{run}");
    // Inputs are words, never commands, options or patterns.
    let run =
        action(&project, &[("INPUT_PATHS", "$(touch${IFS}made) --fix *"), ("INPUT_ARGUMENTS", "--quiet")]);
    assert_eq!(run.status, 2, "{run}");
    assert!(!project.path("made").exists() && project.read("pod.yaml") == PRIVILEGED, "{run}");
}

#[test]
fn the_action_runs_an_archive_only_if_its_digest_is_given_and_right() {
    let project = Project::with(GOOD);
    project.file("archive/palisade", "#!/bin/sh\necho of the archive: \"$@\"\n");
    let script = "chmod +x archive/palisade && tar -czf a.tar.gz -C archive palisade && sha256sum a.tar.gz";
    let packed = Run::of(Command::new("sh").args(["-c", script]).current_dir(project.path("")));
    let digest = packed.stdout.split(' ').next().unwrap().to_owned();
    let url = format!("file://{}", project.path("a.tar.gz").display());
    for (case, digest, status) in
        [("none", "", 2), ("of something else", &*"0".repeat(64), 1), ("the right one", &*digest, 0)]
    {
        let run = action(&project, &[("INPUT_ARCHIVE", &url), ("INPUT_SHA256", digest)]);
        assert_eq!(run.status, status, "{case}: {run}");
        assert_eq!(
            run.stdout.contains("of the archive: check --output github -- ."),
            status == 0,
            "{case}: {run}"
        );
    }
}

#[test]
fn the_inputs_of_the_action_are_those_that_its_step_reads() {
    let text = fs::read_to_string(root().join("action.yml")).unwrap();
    let parsed = parse(&text, &Limits::default());
    let action = parsed.documents[0].root().to_json().unwrap();
    assert_eq!(action["runs"]["using"], "composite");
    let step = &action["runs"]["steps"][0];
    let script = fs::read_to_string(root().join("deploy/action/check.sh")).unwrap();
    for name in action["inputs"].as_object().unwrap().keys() {
        let variable = format!("INPUT_{}", name.to_uppercase());
        assert_eq!(step["env"][&variable], format!("${{{{ inputs.{name} }}}}"), "{name}");
        assert!(script.contains(&variable), "{name} is not used");
    }
    assert_eq!(step["env"].as_object().unwrap().len(), action["inputs"].as_object().unwrap().len());
}

#[test]
fn pre_commit_runs_the_hooks_and_they_stop_a_commit() {
    let project = Project::new();
    let run = |command: &mut Command| {
        let run = Run::of(command);
        assert_eq!(run.status, 0, "{command:?}: {run}");
        run
    };
    run(Command::new("python3").args(["-m", "venv"]).arg(project.path("venv")));
    let pip =
        ["-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check", "pre-commit"];
    run(Command::new(project.path("venv/bin/python")).args(pip));
    let git = |folder: &str, arguments: &[&str]| {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main"]);
        run(git.args(arguments).current_dir(project.path(folder)).env("GIT_CONFIG_GLOBAL", "/dev/null"))
            .stdout
    };
    // A repository with the hooks, as they are here.
    let hooks = fs::read_to_string(root().join(".pre-commit-hooks.yaml")).unwrap();
    project.file("hooks/.pre-commit-hooks.yaml", hooks);
    for arguments in [&["init", "-q"][..], &["add", "."], &["commit", "-qm", "hooks"]] {
        git("hooks", arguments);
    }
    let revision = git("hooks", &["rev-parse", "HEAD"]);
    let configuration = format!(
        "repos:\n  - repo: {}\n    rev: {}\n    hooks:\n      - id: palisade-fix\n      - id: palisade\n        args: [--level=restricted]\n",
        project.path("hooks").display(),
        revision.trim()
    );
    // One fix is safe; with it the pod is allowed.
    let fixable = GOOD.replace("    seccompProfile:\n      type: RuntimeDefault\n", "    runAsUser: 1000\n");
    project
        .file("app/.pre-commit-config.yaml", configuration)
        .file("app/good.yaml", GOOD)
        .file("app/notes.txt", "a");
    git("app", &["init", "-q"]);
    git("app", &["add", "."]);
    let hooks = || {
        let mut command = Command::new(project.path("venv/bin/pre-commit"));
        command.args(["run", "--all-files", "--color=never"]).current_dir(project.path("app"));
        command.env("PATH", path_with_palisade()).env("PRE_COMMIT_HOME", project.path("cache"));
        Run::of(command.env("GIT_CONFIG_GLOBAL", "/dev/null"))
    };
    let clean = hooks();
    assert_eq!((clean.status, clean.stdout.matches("Passed").count()), (0, 2), "{clean}");
    project.file("app/web.yaml", &fixable);
    git("app", &["add", "."]);
    let fixed = hooks();
    assert_eq!(fixed.status, 1, "{fixed}");
    assert!(fixed.stdout.contains("files were modified by this hook"), "{fixed}");
    assert!(project.read("app/web.yaml").contains("RuntimeDefault"), "{fixed}");
    git("app", &["add", "."]);
    assert_eq!(hooks().status, 0);
    project.file("app/web.yaml", PRIVILEGED);
    git("app", &["add", "."]);
    let refused = hooks();
    assert_eq!((refused.status, refused.stdout.matches("Failed").count()), (1, 2), "{refused}");
    assert!(refused.stdout.contains("pss/privileged"), "{refused}");
}
