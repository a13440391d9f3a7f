//! Repositories as they are: most files in them are not Kubernetes.

use std::process::Command;

use crate::support::{GOOD, PRIVILEGED, Project};

/// Files of other tools that `check` meets in repositories.
const OTHERS: &[(&str, &str)] = &[
    (
        "stack.yaml",
        "AWSTemplateFormatVersion: '2010-09-09'\nResources:\n  A: {Type: X, Name: !Sub '${B}-c', D: !GetAtt [A, B]}\n",
    ),
    ("mkdocs.yml", "site_name: x\nmarkdown_extensions:\n- toc: {slugify: !!python/name:x.y }\n"),
    ("site.yml", "- hosts: all\n  tasks:\n  - name: \"{{ x }}\"\n    debug: msg={{ y }}\n  - {{ z }}\n"),
    ("tsconfig.json", "{\n  // a comment\n  \"compilerOptions\": {\"strict\": true,},\n}\n"),
    ("events.json", "{\"a\": 1, \"kind\": \"x\"}\n{\"a\": 2}\n"),
    ("twice.yaml", "a: 1\na: 2\n"),
    ("settings/values.yaml", "kind: Deployment\nreplicas: 1\n"),
    ("skaffold.yaml", "apiVersion: skaffold/v4beta11\nkind: Config\nmetadata: {name: x}\n"),
    ("datasource.yaml", "apiVersion: 1\ndatasources: []\n"),
    ("openapi.yaml", "openapi: 3.0.0\ncomponents: {x: {kind: Pod}}\n"),
    ("binary.json", "\0\u{1}\u{2}{{{"),
    ("page.yaml", "title: {{ .Title }}\n{{ range .x }}\n- a\n{{ end }}\n"),
];

#[test]
fn files_of_other_tools_are_counted_and_no_errors() {
    let project = Project::new();
    project.file("good.yaml", GOOD);
    for (name, text) in OTHERS {
        project.file(name, text);
    }
    insta::assert_snapshot!(project.run(&["check", "."]), @r#"
    1 object in 13 files checked at restricted:latest: 1 allowed, 0 denied; 1 object of kinds that are not checked, 11 documents are not Kubernetes
    exit status: 0
    "#);
    let strict = project.run(&["check", "--strict", "."]);
    assert_eq!(strict.status, 1, "{strict}");
    for (name, _) in OTHERS {
        assert!(strict.stdout.contains(name), "--strict reports {name}: {strict}");
        let named = project.run(&["check", name]);
        assert_eq!(named.status, 2, "a file that is named is not passed over: {named}");
    }
}

#[test]
fn what_looks_like_kubernetes_and_cannot_be_read_is_an_error() {
    let broken = PRIVILEGED.replace("privileged: true", "privileged: [true");
    for (case, text) in [
        ("a syntax error", broken.clone()),
        ("an unknown tag", PRIVILEGED.replace("true", "!Ref x")),
        (
            "a key twice",
            PRIVILEGED.replace("      image: nginx\n", "      image: nginx\n      image: nginx\n"),
        ),
        (
            "escapes in the keys",
            "{\"api\\u0056ersion\": \"v1\", \"\\u006bind\": \"Pod\", \"spec\": {]".to_owned(),
        ),
        ("no apiVersion", PRIVILEGED.replace("apiVersion: v1\n", "")),
        ("no kind", PRIVILEGED.replace("kind: Pod\n", "")),
        ("a template", PRIVILEGED.replace("name: bad", "name: {{ .Release.Name }}\n  {{- x }}")),
        (
            "a misspelt group",
            PRIVILEGED.replace("apiVersion: v1\nkind: Pod", "apiVersion: app/v1\nkind: Deployment"),
        ),
    ] {
        let project = Project::new();
        project.file("good.yaml", GOOD).file("sub/file.yaml", &text);
        let run = project.run(&["check", "."]);
        assert!(run.status == 1 && run.stdout.contains("error["), "{case}: {run}");
    }
    // In UTF-16 as well.
    let project = Project::new();
    let utf16: Vec<u8> = broken.encode_utf16().flat_map(u16::to_be_bytes).collect();
    project.file("good.yaml", GOOD).file("sub/file.yaml", utf16);
    assert_eq!(project.run(&["check", "."]).status, 1);
}

#[test]
fn a_repository_without_anything_to_judge_is_not_clean() {
    let project = Project::new();
    for (name, text) in OTHERS {
        project.file(name, text);
    }
    let run = project.run(&["check", "."]);
    assert!(run.status == 2 && run.stderr.contains("nothing was checked"), "{run}");
}

#[test]
fn templates_are_one_finding_for_each_folder() {
    let project = Project::new();
    let template = PRIVILEGED.replace("name: bad", "name: {{ .Release.Name }}");
    project.file("good.yaml", GOOD);
    for name in ["a/templates/x.yaml", "a/templates/y.yaml", "a/templates/z.yaml", "b/w.yaml"] {
        project.file(name, &template);
    }
    insta::assert_snapshot!(project.run(&["check", "."]), @r#"
    error[input/template]: 3 files are templates, and cannot be checked before they are rendered
     --> a/templates
      = help: check the rendered manifests: helm template CHART | palisade check -; or exclude the folder with --exclude

    error[input/template]: 1 file is a template, and cannot be checked before they are rendered
     --> b
      = help: check the rendered manifests: helm template CHART | palisade check -; or exclude the folder with --exclude

    1 object in 5 files checked at restricted:latest: 1 allowed, 0 denied; 2 errors
    exit status: 1
    "#);
    let named = project.run(&["check", "b/w.yaml", "good.yaml"]);
    assert!(named.stdout.contains("b/w.yaml:4:9"), "{named}");
}

fn git(project: &Project, arguments: &[&str]) {
    let mut git = Command::new("git");
    git.args(arguments).current_dir(project.path("."));
    assert!(git.status().unwrap().success(), "{arguments:?}");
}

#[test]
fn what_git_ignores_is_left_out_unless_it_is_tracked() {
    let project = Project::new();
    project.file("good.yaml", GOOD).file("out/pod.yaml", PRIVILEGED).file("sub/a.gen.yaml", PRIVILEGED);
    project.file(".gitignore", "out/\n").file("sub/.gitignore", "*.gen.yaml\n!kept.gen.yaml\n");
    let files = |arguments: &[&str]| -> Vec<String> {
        let run = project.run(&[&["check", "-o", "json", "--level=baseline"][..], arguments].concat());
        let json = run.json();
        let objects = json["objects"].as_array().unwrap().clone();
        objects.iter().map(|object| object["file"].as_str().unwrap().to_owned()).collect()
    };
    // Without a repository a .gitignore means nothing.
    assert_eq!(files(&["."]), ["good.yaml", "out/pod.yaml", "sub/a.gen.yaml"]);
    git(&project, &["init", "--quiet"]);
    assert_eq!(files(&["."]), ["good.yaml"]);
    assert_eq!(files(&["--no-ignore", "."]), ["good.yaml", "out/pod.yaml", "sub/a.gen.yaml"]);
    assert_eq!(files(&["out"]), ["out/pod.yaml"], "a folder that is named is searched");
    assert_eq!(files(&["sub/a.gen.yaml", "good.yaml"]), ["good.yaml", "sub/a.gen.yaml"]);
    project.file("sub/kept.gen.yaml", GOOD);
    assert_eq!(files(&["."]), ["good.yaml", "sub/kept.gen.yaml"]);
    // The attack: a manifest that is part of the repository, and a .gitignore that names it.
    git(&project, &["add", "--force", "out/pod.yaml"]);
    assert_eq!(files(&["."]), ["good.yaml", "out/pod.yaml", "sub/kept.gen.yaml"]);
    assert_eq!(files(&["--exclude", "out", "."]), ["good.yaml", "sub/kept.gen.yaml"]);
    // An index that cannot be read: nothing is ignored.
    project.file(".git/index", "DIRC");
    assert_eq!(files(&["."]).len(), 4);
}

#[test]
fn a_large_mixed_repository_is_silent_about_other_files() {
    let project = Project::new();
    for number in 0..10_000 {
        let folder = number % 100;
        let (name, text) = if number % 20 == 0 {
            (format!("{folder}/{number}.yaml"), GOOD)
        } else {
            let (name, text) = OTHERS[number % OTHERS.len()];
            (format!("{folder}/{number}-{}", name.replace('/', "-")), text)
        };
        project.file(&name, text);
    }
    insta::assert_snapshot!(project.run(&["check", "."]), @r#"
    500 objects in 10000 files checked at restricted:latest: 500 allowed, 0 denied; 833 objects of kinds that are not checked, 8667 documents are not Kubernetes
    exit status: 0
    "#);
}

#[test]
fn severities_apply_to_every_code() {
    let project = Project::new();
    project.file("good.yaml", format!("# palisade:ignore pss/privileged reason=\"x\"\n{GOOD}"));
    let run = |severity: &str| {
        project.file("palisade.toml", format!("[severity]\n\"{severity}\n"));
        project.run(&["check", "."])
    };
    assert!(run("suppression/unused\" = \"error\"").stdout.contains("error[suppression/unused]"));
    assert_eq!(run("suppression/*\" = \"off\"").stdout, "");
    insta::assert_snapshot!(run("suppression/unsued\" = \"off\""), @r#"
    error: palisade.toml is not a valid configuration: TOML parse error at line 1, column 1
      |
    1 | [severity]
      | ^^^^^^^^^^
    there is no code "suppression/unsued"; did you mean suppression/unused?
    exit status: 2
    "#);
}
