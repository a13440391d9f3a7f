//! `palisade.toml`.

use crate::support::{PRIVILEGED, Project, Run};

#[test]
fn is_found_in_parent_folders_and_options_override_it() {
    let project = Project::new();
    project
        .file("palisade.toml", "level = \"privileged\"\nkubernetes-version = \"v1.30\"\n")
        .file("a/b/pod.yaml", PRIVILEGED);
    let run = |arguments: &[&str]| {
        Run::of(project.command().current_dir(project.path("a/b")).arg("check").args(arguments))
    };
    assert_eq!(run(&["."]).status, 0);
    assert_eq!(run(&[".", "--level=baseline"]).status, 1);
    assert_eq!(run(&[".", "--no-config"]).status, 1);
}

#[test]
fn applies_excludes_and_suppressions_by_path() {
    let project = Project::new();
    project
        .file("palisade.toml", "level = \"baseline\"\nexclude = [\"vendor\", \"*.skip.yaml\"]\n[[ignore]]\npaths = [\"ops/**\"]\ncodes = [\"pss/privileged\"]\nreason = \"agents\"\n")
        .file("vendor/x/pod.yaml", PRIVILEGED)
        .file("a.skip.yaml", PRIVILEGED)
        .file("ops/x/pod.yaml", PRIVILEGED)
        .file("app/pod.yaml", PRIVILEGED);
    let run = project.run(&["check", ".", "-o", "json"]);
    let files: Vec<String> = run.json()["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["file"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(files, ["app/pod.yaml"]);
    assert_eq!(run.json()["summary"]["objects"], 2);
}

#[test]
fn an_expired_suppression_has_no_effect() {
    let project = Project::with(PRIVILEGED);
    project.file(
        "palisade.toml",
        "level = \"baseline\"\n[[ignore]]\ncodes = [\"pss/*\"]\nreason = \"old\"\nuntil = \"2020-01-01\"\n",
    );
    let run = project.run(&["check", "."]);
    assert!(run.status == 1 && run.stdout.contains("expired on 2020-01-01"), "{run}");
}

#[test]
fn sets_severities_and_output_formats() {
    let project = Project::with(PRIVILEGED);
    project.file(
        "palisade.toml",
        "level = \"baseline\"\noutput = [\"json\"]\n[severity]\n\"pss/*\" = \"warning\"\n",
    );
    let run = project.run(&["check", "."]);
    assert_eq!(run.json()["findings"][0]["severity"], "warning");
    assert_eq!(run.status, 0, "a warning is no failure");
    project.file("palisade.toml", "[severity]\n\"pss/*\" = \"off\"\n");
    let run = project.run(&["check", "."]);
    assert_eq!((run.stdout.as_str(), run.status), ("", 0), "{run}");
}

#[test]
fn reports_the_place_of_a_mistake() {
    let project = Project::with(PRIVILEGED);
    project.file("palisade.toml", "levle = \"baseline\"\n");
    insta::assert_snapshot!(project.run(&["check", "."]), @r#"
    error: palisade.toml is not a valid configuration: TOML parse error at line 1, column 1
      |
    1 | levle = "baseline"
      | ^^^^^
    unknown field `levle`, expected one of `level`, `policy-version`, `kubernetes-version`, `namespace`, `strict`, `exclude`, `output`, `severity`, `ignore`, `workload`
    exit status: 2
    "#);
    let run = project.run(&["check", ".", "--config", "none.toml"]);
    assert_eq!(run.status, 2, "{run}");
}
