//! `check --baseline` and `check --changed-since`: only what is new fails.

use std::{fs, path::Path, process::Command};

use crate::support::{GOOD, PRIVILEGED, Project, Run, Running};

const DEPLOYMENT: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
spec:
  template:
    spec:
      containers:
      - name: web
        image: nginx
        ports:
        - containerPort: 80
          hostPort: 80
        securityContext:
          capabilities:
            add: [NET_ADMIN, SYS_TIME]
      volumes:
      - name: data
        hostPath: {path: /srv}
";

fn check(project: &Project, more: &[&str]) -> Run {
    let arguments = ["check", "--level=baseline", "--baseline=known.json"];
    let named = more.first().is_some_and(|argument| !argument.starts_with('-'));
    let paths: &[&str] = if named { &[] } else { &["."] };
    project.run(&[&arguments[..], paths, more].concat())
}

fn recorded(files: &[(&str, &str)]) -> Project {
    let project = Project::new();
    for (name, text) in files {
        project.file(name, text);
    }
    let run = check(&project, &["--write-baseline"]);
    assert_eq!(run.status, 0, "{run}");
    project
}

#[test]
fn recorded_findings_pass_and_are_counted() {
    let project = Project::new();
    project.file("a.yaml", PRIVILEGED).file("deploy/web.yaml", DEPLOYMENT);
    insta::assert_snapshot!(check(&project, &["--write-baseline"]), @r"
    2 objects in 2 files checked at baseline:latest: 0 allowed, 2 denied; 5 findings of the baseline
    known.json: 5 findings recorded
    exit status: 0
    ");
    insta::assert_snapshot!(project.read("known.json"), @r#"
    {"palisade_baseline": 1, "findings": [
    {"file":"a.yaml","kind":"Pod","namespace":"shop","name":"bad","code":"pss/privileged","severity":"error","path":"spec.containers[*].securityContext.privileged","container":"web","value":"true"},
    {"file":"deploy/web.yaml","kind":"Deployment","namespace":"shop","name":"web","code":"pss/capabilities_baseline","severity":"error","path":"spec.template.spec.containers[*].securityContext.capabilities.add[*]","container":"web","value":"NET_ADMIN"},
    {"file":"deploy/web.yaml","kind":"Deployment","namespace":"shop","name":"web","code":"pss/capabilities_baseline","severity":"error","path":"spec.template.spec.containers[*].securityContext.capabilities.add[*]","container":"web","value":"SYS_TIME"},
    {"file":"deploy/web.yaml","kind":"Deployment","namespace":"shop","name":"web","code":"pss/hostPathVolumes","severity":"error","path":"spec.template.spec.volumes[*].hostPath","value":"/srv"},
    {"file":"deploy/web.yaml","kind":"Deployment","namespace":"shop","name":"web","code":"pss/hostPorts","severity":"error","path":"spec.template.spec.containers[*].ports[*].hostPort","container":"web","value":"80"}
    ]}
    "#);
    insta::assert_snapshot!(check(&project, &[]), @r"
    2 objects in 2 files checked at baseline:latest: 0 allowed, 2 denied; 5 findings of the baseline
    known.json: no finding is gone
    exit status: 0
    ");
    let elsewhere = Run::of(project.command().current_dir(project.path("deploy")).args([
        "check",
        "web.yaml",
        "--level=baseline",
        "--baseline=../known.json",
    ]));
    assert_eq!(elsewhere.status, 0, "where the check is started does not matter: {elsewhere}");
}

#[test]
fn a_missing_or_broken_baseline_accepts_nothing() {
    let project = Project::with(PRIVILEGED);
    for update in [&[][..], &["--update-baseline"]] {
        let run = check(&project, update);
        assert_eq!((run.status, run.stdout.as_str()), (2, ""), "{run}");
        assert!(
            run.stderr.contains("no such file; record the findings of today with --write-baseline"),
            "{run}"
        );
        assert!(!project.path("known.json").exists());
    }
    let entry = r#"{"file":"pod.yaml","code":"pss/privileged","severity":"error"}"#;
    for (case, text) in [
        ("empty", String::new()),
        ("not JSON", "<<<<<<< HEAD".to_owned()),
        ("another file", "{}".to_owned()),
        ("another format", r#"{"palisade_baseline":2,"findings":[]}"#.to_owned()),
        (
            "an unknown key",
            r#"{"palisade_baseline":1,"findings":[{"file":"a","code":"b","severity":"error","line":1}]}"#
                .to_owned(),
        ),
        (
            "an unknown severity",
            r#"{"palisade_baseline":1,"findings":[{"file":"a","code":"b","severity":"off"}]}"#.to_owned(),
        ),
        ("an entry twice", format!(r#"{{"palisade_baseline":1,"findings":[{entry},{entry}]}}"#)),
    ] {
        project.file("known.json", &text);
        for mode in [&[][..], &["--update-baseline"], &["--write-baseline"]] {
            let run = check(&project, mode);
            assert_eq!(run.status, 2, "{case}: {run}");
            assert_eq!(project.read("known.json"), text, "{case}");
        }
    }
}

/// A change of a manifest.
type Edit = Box<dyn Fn(&str) -> String>;

#[test]
fn findings_are_known_by_object_field_and_value_and_not_by_line() {
    let swap = |from: &'static str, to: &'static str| move |text: &str| text.replace(from, to);
    let cases: Vec<(&str, Edit, usize)> = vec![
        ("nothing changed", Box::new(str::to_owned), 0),
        ("lines above", Box::new(|text: &str| format!("# a comment\n\n{text}")), 0),
        ("another document above", Box::new(|text: &str| format!("{GOOD}---\n{text}")), 0),
        ("another style", Box::new(swap("{path: /srv}", "\n          path: \"/srv\"")), 0),
        (
            "a container above",
            Box::new(swap("containers:\n", "containers:\n      - name: first\n        image: i\n")),
            0,
        ),
        ("a capability less", Box::new(swap("NET_ADMIN, ", "")), 0),
        ("another capability", Box::new(swap("NET_ADMIN", "SYS_ADMIN")), 1),
        ("a capability more", Box::new(swap("NET_ADMIN", "NET_ADMIN, SYS_ADMIN")), 1),
        (
            "the same port again",
            Box::new(swap(
                "        - containerPort: 80",
                "        - containerPort: 81\n          hostPort: 80\n          protocol: UDP\n        - containerPort: 80",
            )),
            1,
        ),
        ("another port", Box::new(swap("hostPort: 80", "hostPort: 81")), 1),
        ("another path", Box::new(swap("/srv", "/")), 1),
        ("another container", Box::new(swap("- name: web\n", "- name: db\n")), 3),
        ("another object", Box::new(swap("name: web\n  namespace", "name: db\n  namespace")), 4),
        ("another namespace", Box::new(swap("namespace: shop", "namespace: other")), 4),
        ("another kind", Box::new(swap("kind: Deployment", "kind: ReplicaSet")), 4),
        ("the object twice", Box::new(|text: &str| format!("{text}---\n{text}")), 4),
        (
            "an invalid value",
            Box::new(swap(
                "hostPath: {path: /srv}",
                "hostPath: {path: /srv}\n      securityContext: {seccompProfile: {type: Nope}}",
            )),
            2,
        ),
    ];
    for (case, change, new) in cases {
        let project = recorded(&[("web.yaml", DEPLOYMENT)]);
        project.file("web.yaml", change(DEPLOYMENT));
        let run = check(&project, &["-o", "json"]);
        let found =
            run.json()["findings"].as_array().unwrap().iter().filter(|f| f["severity"] == "error").count();
        assert_eq!(found, new, "{case}: {run}");
        assert_eq!(run.status, i32::from(new > 0), "{case}: {run}");
    }
}

#[test]
fn a_container_that_is_mended_alone_is_progress_and_another_one_is_new() {
    let pod = |containers: &[(&str, &str)]| {
        let list = containers.iter().map(|(name, context)| {
            format!("  - {{name: {name}, image: i, securityContext: {{{context}}}}}\n")
        });
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec:\n  containers:\n{}",
            list.collect::<String>()
        )
    };
    let rest = "allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}";
    let mended = format!("{rest}, runAsNonRoot: true, seccompProfile: {{type: RuntimeDefault}}");
    let run = |containers: &[(&str, &str)]| {
        let project = Project::with(&pod(&[("a", rest), ("b", rest)]));
        let check =
            |more: &[&str]| project.run(&[&["check", "pod.yaml", "--baseline=known.json"], more].concat());
        assert_eq!(check(&["--write-baseline"]).status, 0);
        project.file("pod.yaml", pod(containers));
        check(&[])
    };
    let progress = run(&[("a", &mended), ("b", rest)]);
    assert_eq!(progress.status, 0, "{progress}");
    assert!(progress.stderr.contains("2 findings are gone"), "{progress}");
    let worse = run(&[("a", rest), ("b", rest), ("c", rest)]);
    assert_eq!(worse.status, 1, "{worse}");
}

#[test]
fn what_could_not_be_checked_is_never_accepted() {
    for (case, text) in [
        ("not YAML", "apiVersion: v1\nkind: Pod\nspec: [\n"),
        (
            "a wrong type",
            "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: 1, image: []}]}\n",
        ),
        ("no template", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {}\n"),
        ("an unknown kind", "apiVersion: apps/v1\nkind: Deploymnt\nmetadata: {name: d}\nspec: {}\n"),
        (
            "a key twice",
            "apiVersion: v1\nkind: Pod\nmetadata: {name: p, name: q}\nspec: {containers: [{name: c, image: i}]}\n",
        ),
        ("a template", "apiVersion: v1\nkind: Pod\nmetadata: {name: {{ .Values.name }}}\n"),
        ("binary", "apiVersion: v1\nkind: Pod\n\u{0}\n"),
    ] {
        let project = Project::new();
        project.file("good.yaml", PRIVILEGED).file("broken.yaml", text);
        for round in [&["--write-baseline"][..], &[], &["--update-baseline"]] {
            let run = check(&project, round);
            assert_eq!(run.status, 1, "{case}: {round:?}: {run}");
            assert!(!project.read("known.json").contains("broken.yaml"), "{case}");
        }
    }
    let project = recorded(&[("a.yaml", PRIVILEGED), ("b.yaml", PRIVILEGED)]);
    project.file("a.yaml", "apiVersion: v1\nkind: Pod\nspec: [\n");
    let run = check(&project, &["--update-baseline"]);
    assert_eq!(run.status, 1, "{run}");
    assert!(project.read("known.json").contains("a.yaml"), "what is not known to be gone stays");
    project.file("a.yaml", "").file("b.yaml", "");
    let before = project.read("known.json");
    assert_eq!(check(&project, &["--write-baseline"]).status, 2, "nothing was checked");
    assert_eq!(project.read("known.json"), before);
}

#[test]
fn what_is_gone_leaves_the_baseline_and_does_not_come_back() {
    let project = recorded(&[("a.yaml", PRIVILEGED), ("b.yaml", PRIVILEGED), ("deleted.yaml", PRIVILEGED)]);
    project.file("a.yaml", GOOD);
    fs::remove_file(project.path("deleted.yaml")).unwrap();
    insta::assert_snapshot!(check(&project, &[]), @r"
    2 objects in 2 files checked at baseline:latest: 1 allowed, 1 denied; 1 finding of the baseline
    known.json: 2 findings are gone; --update-baseline removes what is gone
    exit status: 0
    ");
    let part = check(&project, &["a.yaml", "--update-baseline"]);
    assert!(part.stderr.contains("known.json: 1 finding recorded, 2 removed"), "{part}");
    assert!(project.read("known.json").contains("b.yaml"), "a file that was not checked stays");
    project.file("a.yaml", PRIVILEGED);
    assert_eq!(check(&project, &[]).status, 1, "it is new now");
    let run = check(&project, &["--update-baseline"]);
    assert_eq!(run.status, 1, "updating accepts nothing: {run}");
    assert!(!project.read("known.json").contains("a.yaml"));
    assert_eq!(check(&project, &["a.yaml", "--write-baseline"]).status, 0);
    assert_eq!(check(&project, &[]).status, 0);
}

#[test]
fn a_warning_that_became_an_error_is_new_and_the_reverse_is_not() {
    let dead = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\n  annotations: {seccomp.security.alpha.kubernetes.io/pod: runtime/default}\nspec: {containers: [{name: c, image: i}]}\n";
    let project = recorded(&[("p.yaml", dead)]);
    project.file("palisade.toml", "[severity]\n\"annotation/*\" = \"error\"\n");
    let run = check(&project, &[]);
    assert_eq!(run.status, 1, "{run}");
    assert_eq!(check(&project, &["--write-baseline"]).status, 0);
    project.file("palisade.toml", "");
    assert_eq!(check(&project, &["--strict"]).stdout, "");
}

/// Git in a folder, as somebody with no configuration of their own.
fn git(folder: &Path, arguments: &[&str]) {
    let status = Command::new("git")
        .args([
            "-c",
            "user.name=n",
            "-c",
            "user.email=e@example.com",
            "-c",
            "protocol.file.allow=always",
            "-c",
            "init.defaultBranch=main",
        ])
        .args(arguments)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "{arguments:?}");
}

fn committed(project: &Project) {
    git(&project.path(""), &["add", "--all"]);
    git(&project.path(""), &["commit", "--quiet", "--message=c"]);
}

fn files_checked(project: &Project, arguments: &[&str]) -> Vec<String> {
    let run = project.run(&[&["check", "--level=baseline", "-o", "json"], arguments].concat());
    assert!(run.status <= 1, "{run}");
    let mut files: Vec<String> = run.json()["objects"]
        .as_array()
        .unwrap()
        .iter()
        .map(|object| object["file"].as_str().unwrap().to_owned())
        .collect();
    files.dedup();
    files
}

#[test]
fn only_files_that_changed_since_the_merge_base_are_checked() {
    let project = Project::new();
    let root = project.path("");
    git(&root, &["init", "--quiet"]);
    for name in ["kept", "edited", "staged", "committed", "renamed", "deleted", "hidden"] {
        project.file(&format!("app/{name}.yaml"), PRIVILEGED.replace("bad", name));
    }
    project.file(".gitignore", "ignored.yaml\n");
    committed(&project);
    git(&root, &["checkout", "--quiet", "-b", "feature"]);
    let touch = |name: &str| {
        project.file(name, format!("# changed\n{PRIVILEGED}"));
    };
    touch("app/committed.yaml");
    git(&root, &["mv", "app/renamed.yaml", "app/moved.yaml"]);
    git(&root, &["rm", "--quiet", "app/deleted.yaml"]);
    committed(&project);
    git(&root, &["checkout", "--quiet", "main"]);
    touch("app/kept.yaml");
    committed(&project);
    git(&root, &["checkout", "--quiet", "feature"]);
    touch("app/staged.yaml");
    git(&root, &["add", "app/staged.yaml"]);
    touch("app/edited.yaml");
    touch("app/untracked.yaml");
    touch("ignored.yaml");
    let expected =
        ["app/committed.yaml", "app/edited.yaml", "app/moved.yaml", "app/staged.yaml", "app/untracked.yaml"];
    assert_eq!(files_checked(&project, &[".", "--changed-since=main"]), expected);
    assert_eq!(files_checked(&project, &["app", "--changed-since=main"]), expected);
    assert_eq!(
        files_checked(&project, &["ignored.yaml", "--changed-since=main"]),
        ["ignored.yaml"],
        "git does not know"
    );
    assert_eq!(
        files_checked(&project, &["app/kept.yaml", "app/edited.yaml", "--changed-since=main"]),
        ["app/edited.yaml"]
    );
    git(&root, &["update-index", "--assume-unchanged", "app/hidden.yaml"]);
    touch("app/hidden.yaml");
    assert!(
        files_checked(&project, &[".", "--changed-since=main"]).contains(&"app/hidden.yaml".to_owned()),
        "git does not look at it"
    );
}

#[test]
fn nothing_changed_is_clean_and_an_unknown_commit_is_not() {
    let project = Project::with(PRIVILEGED);
    let root = project.path("");
    let run = project.run(&["check", ".", "--changed-since=HEAD"]);
    assert_eq!(run.status, 2, "{run}");
    assert!(run.stderr.contains("is not in a git repository"), "{run}");
    git(&root, &["init", "--quiet"]);
    let run = project.run(&["check", ".", "--changed-since=HEAD"]);
    assert_eq!(run.status, 2, "without a commit: {run}");
    committed(&project);
    insta::assert_snapshot!(project.run(&["check", ".", "--changed-since=HEAD"]), @r"
    0 objects in 0 files checked at restricted:latest: 0 allowed, 0 denied
    1 file did not change and was not checked
    exit status: 0
    ");
    for unknown in ["main2", "--output=x", "HEAD~1", ""] {
        let run = project.run(&["check", ".", &format!("--changed-since={unknown}")]);
        assert_eq!(run.status, 2, "{unknown}: {run}");
    }
    let run = project.run_with_stdin(&["check", "-", "--changed-since=HEAD"], PRIVILEGED);
    assert_eq!(run.status, 2, "{run}");
    project.file("notes.yaml", "a: 1\n");
    let run = project.run(&["check", ".", "--changed-since=HEAD"]);
    assert_eq!(run.status, 0, "nothing that changed is Kubernetes: {run}");
    git(&root, &["checkout", "--quiet", "--orphan", "other"]);
    committed(&project);
    let run = project.run(&["check", ".", "--changed-since=main"]);
    assert!(run.status == 2 && run.stderr.contains("no common ancestor"), "{run}");
}

#[test]
fn charts_and_submodules_are_checked_as_a_whole_when_something_in_them_changed() {
    let project = Project::new();
    let root = project.path("");
    let module = Project::with(PRIVILEGED);
    git(&module.path(""), &["init", "--quiet"]);
    committed(&module);
    git(&root, &["init", "--quiet"]);
    for name in ["one", "two", "three"] {
        let indented = PRIVILEGED.replace("image: nginx", "image: {{ .Values.image }}");
        project
            .file(&format!("{name}/Chart.yaml"), format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n"))
            .file(&format!("{name}/values.yaml"), "image: nginx\n")
            .file(&format!("{name}/templates/pod.yaml"), indented)
            .file(&format!("{name}/templates/_helpers.tpl"), "{{- define \"x\" }}x{{ end }}\n");
    }
    git(&root, &["submodule", "--quiet", "add", &module.path("").display().to_string(), "module"]);
    committed(&project);
    let none: [&str; 0] = [];
    let changed = || files_checked(&project, &[".", "--changed-since=HEAD"]);
    assert_eq!(changed(), none);
    project.file("one/values.yaml", "image: other\n");
    fs::remove_file(project.path("two/templates/_helpers.tpl")).unwrap();
    assert_eq!(changed(), ["one/templates/pod.yaml", "two/templates/pod.yaml"]);
    project.file("module/pod.yaml", GOOD);
    assert_eq!(changed(), ["module/pod.yaml", "one/templates/pod.yaml", "two/templates/pod.yaml"]);
    project.file("values-ci.yaml", "image: ci\n");
    let with_values = files_checked(&project, &[".", "--changed-since=HEAD", "--helm-values=values-ci.yaml"]);
    assert!(with_values.contains(&"three/templates/pod.yaml".to_owned()), "{with_values:?}");
}

#[test]
fn an_overlay_is_checked_when_something_that_it_is_built_of_changed() {
    let project = Project::new();
    let root = project.path("");
    git(&root, &["init", "--quiet"]);
    project
        .file("base/kustomization.yaml", "resources: [pod.yaml]\n")
        .file("base/pod.yaml", GOOD)
        .file("other/kustomization.yaml", "resources: [pod.yaml]\n")
        .file("other/pod.yaml", PRIVILEGED.replace("bad", "other"))
        .file("outer/app/kustomization.yaml", "resources: [../../base]\n")
        .file("outer/kustomization.yaml", "resources: [app]\n")
        .file("linked/kustomization.yaml", "resources: [../outer/app, ../links/current]\n")
        .file("apart/kustomization.yaml", "resources: [pod.yaml]\n")
        .file("apart/pod.yaml", GOOD.replace("good", "apart"));
    fs::create_dir(project.path("links")).unwrap();
    let link = project.path("links/current");
    std::os::unix::fs::symlink("../apart", &link).unwrap();
    committed(&project);
    let run = || project.run(&["check", "--level=baseline", ".", "--changed-since=HEAD"]);
    let clean = run();
    assert!(clean.status == 0 && clean.stderr.contains("0 objects"), "{clean}");
    // Neither kustomization of the overlay has `..`, but the one between them.
    project.file("base/pod.yaml", PRIVILEGED);
    let run_of_base = run();
    assert!(run_of_base.status == 1 && run_of_base.stdout.contains("outer"), "{run_of_base}");
    project.file("base/pod.yaml", GOOD);
    // What a link leads to is in order in git, and the link is not.
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("../other", &link).unwrap();
    let run_of_link = run();
    assert!(run_of_link.status == 1 && run_of_link.stdout.contains("linked"), "{run_of_link}");
}

#[test]
fn a_watched_folder_is_checked_again_when_something_changes() {
    let project = Project::with(PRIVILEGED);
    let running = Running::start(project.command().args([
        "check",
        ".",
        "--level=baseline",
        "--watch",
        "-o",
        "json=out.json",
    ]));
    running.line("1 object in 1 file checked at baseline:latest: 0 allowed, 1 denied");
    running.line("watching for changes");
    project.file("pod.yaml", GOOD);
    // The report is in the folder that is searched.
    running.line("1 object in 2 files checked at baseline:latest: 1 allowed");
    running.line("watching for changes");
    project.file("new/pod.yaml", PRIVILEGED);
    running.line("2 objects in 3 files checked at baseline:latest: 1 allowed, 1 denied");
    running.line("watching for changes");
    project.file("palisade.toml", "levle = 1\n");
    // There was no configuration when the watch began.
    project.file("pod.yaml", format!("{GOOD}# again\n"));
    running.line("error: palisade.toml");
    fs::remove_file(project.path("palisade.toml")).unwrap();
    project.file("pod.yaml", PRIVILEGED);
    running.line("2 objects in 3 files checked at baseline:latest: 0 allowed, 2 denied");
    for with in ["--fix", "--diff", "--cluster", "--write-baseline"] {
        assert_eq!(project.run(&["check", ".", "--watch", "--baseline=b", with]).status, 2, "{with}");
    }
    assert_eq!(project.run_with_stdin(&["check", "-", "--watch"], GOOD).status, 2);
}
