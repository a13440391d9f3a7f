//! Input that cannot be judged: one clear diagnostic with a place, exit status 2, never a panic.

use std::{fmt::Write as _, fs, os::unix::fs::PermissionsExt};

use crate::support::{GOOD, PRIVILEGED, Project};

fn alias_bomb() -> String {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let before = format!("*a{}", level - 1);
        let list = vec![before; 9].join(", ");
        let _ = writeln!(text, "a{level}: &a{level} [{list}]");
    }
    text
}

#[test]
fn unreadable_input_gets_one_diagnostic_and_status_2() {
    for (case, content, code) in [
        ("broken YAML", b"a: b: c\n".to_vec(), "yaml/syntax"),
        ("never closed", b"spec: {containers: [\n".to_vec(), "yaml/syntax"),
        ("tabs", b"spec:\n\tcontainers: []\n".to_vec(), "yaml/syntax"),
        ("binary", b"\x7fELF\x02\x01\x01\0\0\0\0".to_vec(), "input/binary"),
        ("Latin-1", b"name: caf\xe9\n".to_vec(), "input/encoding"),
        ("alias bomb", alias_bomb().into_bytes(), "yaml/alias-bomb"),
        ("cyclic anchor", b"a: &a [*a]\n".to_vec(), "yaml/cyclic-alias"),
        ("unknown anchor", b"a: *b\n".to_vec(), "yaml/unknown-anchor"),
        ("deep nesting", "[".repeat(100_000).into_bytes(), "yaml/too-deep"),
        (
            "deep nesting in block style",
            (0..3000).fold(String::new(), |text, depth| text + &" ".repeat(depth) + "a:\n").into_bytes(),
            "yaml/too-deep",
        ),
        (
            "a Helm template",
            b"spec:\n  {{- if .Values.x }}\n  hostPID: {{ .Values.pid }}\n  {{- end }}\n".to_vec(),
            "input/template",
        ),
        ("a tag of another language", b"a: !ruby/object:X {}\n".to_vec(), "yaml/invalid-tag"),
        ("a list as key", b"? [a]\n: b\n".to_vec(), "yaml/invalid-key"),
        (
            "a string for a number",
            b"apiVersion: v1\nkind: Pod\nspec: {securityContext: {runAsUser: root}}\n".to_vec(),
            "api/type",
        ),
    ] {
        let project = Project::new();
        project.file("x.yaml", &content);
        for arguments in
            [&["check", "x.yaml"][..], &["check", "--fix", "x.yaml"], &["check", "--strict", "."]]
        {
            let run = project.run(arguments);
            assert_eq!(run.codes(), [code], "{case}: {run}");
            assert_eq!(run.status, 2, "{case}: {run}");
            let placed = !matches!(code, "input/binary" | "input/encoding");
            assert_eq!(
                run.stdout.contains("x.yaml:"),
                placed || run.stdout.contains("x.yaml: "),
                "{case}: {run}"
            );
        }
        assert_eq!(fs::read(project.path("x.yaml")).unwrap(), content, "{case}: not a byte is written");
        let run = project.run_with_stdin(&["check", "-"], &content);
        assert_eq!((run.codes(), run.status), (vec![code.to_owned()], 2), "{case} on stdin: {run}");
        let migrated = project.run(&["migrate", "x.yaml"]);
        assert!(migrated.status == 2 || code == "api/type", "{case}: {migrated}");
        let explained = project.run(&["explain", "x.yaml"]);
        assert_eq!(explained.status, 2, "{case}: {explained}");
    }
}

#[test]
fn diagnostics_of_unreadable_input_have_a_place() {
    let project = Project::new();
    project
        .file("1.yaml", "spec:\n  containers: [\n")
        .file("2.yaml", "\0")
        .file("3.yaml", "a: &a [*a]\n")
        .file("4.yaml", "spec:\n  hostPID: {{ .Values.pid }}\n");
    insta::assert_snapshot!(project.run(&["check", "--strict", "."]), @r#"
    error[yaml/syntax]: expected a value here
     --> 1.yaml:3:1
      |
    2 |   containers: [
      |               - the bracket that is open here
    3 |
      | ^

    error[input/binary]: cannot read 2.yaml: this is a binary file: byte 0 is NUL
     --> 2.yaml

    error[yaml/cyclic-alias]: `*a` is inside the value it stands for
     --> 3.yaml:1:8
      |
    1 | a: &a [*a]
      |        ^^

    error[input/template]: 4.yaml is a template, not a manifest
     --> 4.yaml:2:12
      |
    2 |   hostPID: {{ .Values.pid }}
      |            ^^^^^^^^^^^^^^^^^ filled in by a template engine such as Helm
      = help: check the rendered manifests: helm template CHART | palisade check -

    0 objects in 4 files checked at restricted:latest: 0 allowed, 0 denied; 4 errors
    exit status: 2
    "#);
}

#[test]
fn rejects_a_file_of_100_megabytes() {
    let project = Project::new();
    let file = fs::File::create(project.path("huge.yaml")).unwrap();
    file.set_len(100 << 20).unwrap();
    let run = project.run(&["check", "huge.yaml"]);
    assert_eq!((run.codes(), run.status), (vec!["input/too-large".to_owned()], 2), "{run}");
}

#[test]
fn uses_the_last_of_duplicate_keys_as_kubernetes_does() {
    let text = PRIVILEGED
        .replace("        privileged: true\n", "        privileged: true\n        privileged: false\n");
    let run = Project::with(&text).run(&["check", "--level=baseline", "."]);
    insta::assert_snapshot!(run, @r#"
    error[yaml/duplicate-key]: the key "privileged" is set twice in the same mapping
      --> pod.yaml:11:9
       |
    10 |         privileged: true
       |         ---------- first set here
    11 |         privileged: false
       |         ^^^^^^^^^^ the last value applies
       = help: remove one of them

    1 object in 1 file checked at baseline:latest: 1 allowed, 0 denied; 1 error
    exit status: 1
    "#);
}

#[test]
fn an_error_does_not_hide_other_documents_or_files() {
    let project = Project::new();
    project
        .file("a.yaml", format!("x: [\n---\n{PRIVILEGED}---\n{GOOD}"))
        .file("b.yaml", "apiVersion kind \0")
        .file("c.yaml", GOOD);
    let run = project.run(&["check", ".", "--level=baseline", "-o", "json"]);
    let json = run.json();
    assert_eq!(json["summary"].to_string(), r#"{"allowed":2,"denied":1,"errors":2,"objects":3,"skipped":0}"#);
    assert_eq!(json["objects"][0]["document"], 1);
    assert_eq!(run.status, 1);
}

#[test]
fn unknown_kinds_are_skipped_unless_strict() {
    let text = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n---\njust: data\n---\napiVersion: example.com/v1\nkind: Gadget\n";
    let run = Project::with(&format!("{text}---\n{GOOD}")).run(&["check", "."]);
    assert_eq!((run.codes(), run.status), (vec!["input/not-an-object".to_owned()], 0), "{run}");
    assert!(
        run.stderr.contains("2 objects of kinds that are not checked, 1 document is not Kubernetes"),
        "{run}"
    );
    let run = Project::with(text).run(&["check", "."]);
    assert_eq!(run.status, 2, "nothing was checked: {run}");
    assert!(run.stderr.contains("error: nothing was checked"), "{run}");
    let run = Project::with(text).run(&["check", ".", "--strict", "-q"]);
    insta::assert_snapshot!(run, @r#"
    error[input/unknown-kind]: Service of v1 is not checked: it has no pod template that Palisade supports
     --> pod.yaml:2:7
      |
    2 | kind: Service
      |       ^^^^^^^
      = because: --strict rejects what cannot be checked

    error[input/unknown-kind]: not a Kubernetes object: apiVersion and kind are missing
     --> pod.yaml:5:1
      |
    5 | just: data
      | ^^^^^^^^^^
      = because: --strict rejects what cannot be checked

    error[input/unknown-kind]: Gadget of example.com/v1 is not checked: it has no pod template that Palisade supports
     --> pod.yaml:8:7
      |
    8 | kind: Gadget
      |       ^^^^^^
      = because: --strict rejects what cannot be checked

    exit status: 2
    "#);
}

#[test]
fn reports_unreadable_files_and_checks_the_rest() {
    let project = Project::new();
    project.file("a.yaml", GOOD).file("locked/b.yaml", GOOD);
    std::os::unix::fs::symlink("nowhere", project.path("dangling.yaml")).unwrap();
    std::os::unix::fs::symlink(".", project.path("loop")).unwrap();
    fs::set_permissions(project.path("a.yaml"), fs::Permissions::from_mode(0o000)).unwrap();
    // For root nothing is locked.
    let locked = fs::read(project.path("a.yaml")).is_err();
    let run = project.run(&["check", "."]);
    let mut expected = vec!["input/unreadable"];
    if locked {
        expected.push("input/unreadable");
    }
    assert_eq!(run.codes(), expected, "{run}");
    assert!(run.stdout.contains("cannot read dangling.yaml: no such file or folder"), "{run}");
    assert_eq!(run.status, 1, "the rest is checked: {run}");
    assert_eq!(project.run(&["check", "no-such-file.yaml"]).status, 2);
}

#[test]
fn input_without_pods_is_status_2() {
    let project = Project::new();
    project.file("README.md", "# hello");
    let run = project.run(&["check", "."]);
    assert_eq!((run.status, run.stdout.as_str()), (2, ""), "{run}");
    assert!(run.stderr.contains("no manifests found"), "{run}");
    project.file("empty.yaml", "# nothing\n---\n---\n").file("values.yaml", "replicas: 3\n");
    let run = project.run(&["check", "."]);
    assert_eq!((run.status, run.stdout.as_str()), (2, ""), "{run}");
    assert!(run.stderr.contains("error: nothing was checked"), "{run}");
    project.file("shadow", "root:*:19000:0:99999:7:::\n");
    insta::assert_snapshot!(project.run(&["check", "shadow", "empty.yaml"]), @r#"
    error[input/not-an-object]: empty.yaml has no Kubernetes object
     --> empty.yaml

    error[input/not-an-object]: not a Kubernetes object: apiVersion and kind are missing
     --> shadow:1:1
      |
    1 | root:*:19000:0:99999:7:::
      | ^^^^^^^^^^^^^^^^^^^^^^^^

    0 objects in 2 files checked at restricted:latest: 0 allowed, 0 denied; 2 errors
    exit status: 2
    "#);
}

#[test]
fn reports_unknown_fields_and_kinds() {
    let project = Project::new();
    project
        .file(
            "pod.yaml",
            "apiVersion: v1\nkind: Pod\nmetadata: {name: web, labels: {any: thing}}\nspec:\n  securityContxt: {runAsNonRoot: true}\n  hostUsers: false\n  securityContext: {containerDefaults: {}}\n  containers:\n    - name: web\n      image: nginx\n      stdin: 1\n",
        )
        .file("types.yaml", "apiVersion: v1\nkind: Pod\nspec: {hostPid: true, containers: [{name: web, ports: {}}]}\n")
        .file("kind.yaml", "apiVersion: apps/v1\nkind: Deploymnt\nmetadata: {name: web}\n")
        .file("group.yaml", "kind: CronJob\nmetadata: {name: web}\n");
    insta::assert_snapshot!(project.run(&["check", "--level=privileged", "."]), @r#"
    error[input/unknown-kind]: this CronJob has no apiVersion
     --> group.yaml:1:7
      |
    1 | kind: CronJob
      |       ^^^^^^^
      = because: an API server does not serve this kind, and the object was not checked
      = help: did you mean apiVersion: batch/v1?

    error[input/unknown-kind]: apps/v1 has no kind Deploymnt
     --> kind.yaml:2:7
      |
    2 | kind: Deploymnt
      |       ^^^^^^^^^
      = because: an API server does not serve this kind, and the object was not checked
      = help: did you mean Deployment?

    error[api/unknown-field]: unknown field "securityContxt"
     --> pod.yaml:5:3
      |
    5 |   securityContxt: {runAsNonRoot: true}
      |   ^^^^^^^^^^^^^^
      = because: an API server drops it from this Pod, and strict validation rejects it
      = help: did you mean securityContext?

    warning[api/other-release]: Kubernetes has no field "containerDefaults": it is one of Palisade's extensions
     --> pod.yaml:7:21
      |
    7 |   securityContext: {containerDefaults: {}}
      |                     ^^^^^^^^^^^^^^^^^
      = because: the API server drops it from this Pod
      = help: check with --kubernetes-version extended

    error[api/type]: spec.containers[0].stdin is a number, and must be true or false
      --> pod.yaml:11:14
       |
    11 |       stdin: 1
       |              ^
       = because: an API server cannot read this Pod

    error[api/unknown-field]: unknown field "hostPid"
     --> types.yaml:3:8
      |
    3 | spec: {hostPid: true, containers: [{name: web, ports: {}}]}
      |        ^^^^^^^
      = because: an API server drops it from this Pod, and strict validation rejects it
      = help: did you mean hostPID?

    error[api/type]: spec.containers[0].ports: expected a list, found a mapping
     --> types.yaml:3:55
      |
    3 | spec: {hostPid: true, containers: [{name: web, ports: {}}]}
      |                                                       ^^ expected a list, found a mapping
      = because: an API server cannot read this Pod

    1 object in 4 files checked at privileged:latest: 1 allowed, 0 denied; 6 errors, 1 warning
    exit status: 1
    "#);
    let older = project.run(&["check", "--level=privileged", "--kubernetes-version=v1.24", "pod.yaml"]);
    assert!(
        older.stdout.contains("v1.24 does not have the field \"hostUsers\" yet: it came with v1.25"),
        "{older}"
    );
}

#[test]
fn reports_a_file_that_is_deleted_while_running() {
    let project = Project::new();
    for number in 0..400 {
        project.file(&format!("{number:03}.yaml"), GOOD);
    }
    let mut command = project.command();
    let child = command
        .args(["check", ".", "-q"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    for number in (0..400).rev() {
        let _ = fs::remove_file(project.path(&format!("{number:03}.yaml")));
    }
    let run = crate::support::Run::from(child.wait_with_output().unwrap());
    assert!((0..=2).contains(&run.status), "{run}");
    assert!(run.codes().iter().all(|code| code == "input/unreadable"), "{run}");
}

#[test]
fn does_not_replace_a_read_only_file() {
    let project = Project::with(PRIVILEGED);
    fs::set_permissions(project.path("pod.yaml"), fs::Permissions::from_mode(0o444)).unwrap();
    let run = project.run(&["check", "--fix", "--level=baseline", "."]);
    // Root may write anything.
    if fs::OpenOptions::new().write(true).open(project.path("pod.yaml")).is_err() {
        assert_eq!(run.status, 3, "{run}");
        assert_eq!(project.read("pod.yaml"), PRIVILEGED);
    }
}

#[test]
fn keeps_the_file_if_its_folder_is_read_only() {
    let project = Project::new();
    project.file("ro/pod.yaml", PRIVILEGED);
    fs::set_permissions(project.path("ro"), fs::Permissions::from_mode(0o555)).unwrap();
    let run = project.run(&["check", "--fix", "--level=baseline", "ro/pod.yaml"]);
    let can_write = fs::File::create(project.path("ro/probe")).is_ok();
    fs::set_permissions(project.path("ro"), fs::Permissions::from_mode(0o755)).unwrap();
    if !can_write {
        assert_eq!(run.status, 3, "{run}");
        assert_eq!(project.read("ro/pod.yaml"), PRIVILEGED);
    }
}
