//! `palisade migrate`.

use crate::support::Project;

const LEGACY: &str = "\
apiVersion: v1
kind: Pod
metadata:
  name: p
  annotations:
    # the old way
    seccomp.security.alpha.kubernetes.io/pod: docker/default # everywhere
    container.seccomp.security.alpha.kubernetes.io/web: 'localhost/web.json'
    container.apparmor.security.beta.kubernetes.io/web: localhost/web
    other: stays
spec:
  containers:
  - name: web   # keep me
    image: nginx
";

#[test]
fn annotations_become_fields() {
    let project = Project::with(LEGACY);
    insta::assert_snapshot!(project.run(&["migrate", "pod.yaml"]), @r#"
    migrated pod.yaml: 3 settings
    3 settings in 1 file migrated
    exit status: 0
    "#);
    insta::assert_snapshot!(project.read("pod.yaml"), @r#"
    apiVersion: v1
    kind: Pod
    metadata:
      name: p
      annotations:
        # the old way
        other: stays
    spec:
      containers:
      - name: web   # keep me
        image: nginx
        securityContext:
          appArmorProfile:
            type: Localhost
            localhostProfile: web
          seccompProfile:
            type: Localhost
            localhostProfile: web.json
      securityContext:
        seccompProfile:
          type: RuntimeDefault
    "#);
    let again = project.run(&["migrate", "pod.yaml"]);
    assert_eq!(again.to_string(), "0 settings in 0 files migrated\nexit status: 0");
}

#[test]
fn check_and_diff_write_nothing() {
    let project = Project::with(LEGACY);
    let run = project.run(&["migrate", "--check", "pod.yaml"]);
    assert_eq!(run.status, 1, "{run}");
    let run = project.run(&["migrate", "--diff", "pod.yaml"]);
    assert!(
        run.status == 0 && run.stdout.contains("+          localhostProfile: web.json")
            || run.stdout.contains("localhostProfile: web.json"),
        "{run}"
    );
    assert_eq!(project.read("pod.yaml"), LEGACY);
}

#[test]
fn reports_conflicts_and_does_not_change_them() {
    let text = LEGACY
        .replace("    image: nginx\n", "    securityContext: {seccompProfile: {type: RuntimeDefault}}\n");
    let project = Project::with(&text);
    let run = project.run(&["migrate", "pod.yaml"]);
    insta::assert_snapshot!(run, @r#"
    migrated pod.yaml: 2 settings
    error[profile/conflict]: container.seccomp.security.alpha.kubernetes.io/web is Localhost web.json, but spec.containers[0].securityContext.seccompProfile is RuntimeDefault; neither is changed
     --> pod.yaml:8:57
      |
    8 |     container.seccomp.security.alpha.kubernetes.io/web: 'localhost/web.json'
      |                                                         ^^^^^^^^^^^^^^^^^^^^
      = help: keep the one that is right, and remove the other

    2 settings in 1 file migrated
    exit status: 1
    "#);
    let migrated = project.read("pod.yaml");
    assert!(
        migrated.contains("container.seccomp.security.alpha.kubernetes.io/web: 'localhost/web.json'"),
        "{migrated}"
    );
    assert!(!migrated.contains("kubernetes.io/pod"), "{migrated}");
}

#[test]
fn removes_annotations_that_equal_the_field() {
    let text = "\
apiVersion: v1
kind: Pod
metadata:
  name: p
  annotations:
    container.apparmor.security.beta.kubernetes.io/web: runtime/default
spec:
  securityContext: {appArmorProfile: {type: RuntimeDefault}}
  containers: [{name: web}]
";
    let project = Project::with(text);
    let run = project.run(&["migrate", "pod.yaml", "-q"]);
    assert_eq!(run.status, 0, "{run}");
    let expected = text.replace(
        "  annotations:\n    container.apparmor.security.beta.kubernetes.io/web: runtime/default\n",
        "",
    );
    assert_eq!(project.read("pod.yaml"), expected);
}

#[test]
fn extensions_become_v1_fields() {
    let text = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec:
  template:
    spec:
      securityContext:
        hostNetwork: true
        containerDefaults:
          runAsUser: 1000
          capabilities: {drop: [ALL]}
      containers:
        - name: a
        - name: b
          securityContext:
            capabilities: {add: [KILL]}
";
    let project = Project::with(text);
    let run = project.run(&["migrate", "pod.yaml", "-q"]);
    assert_eq!(run.status, 0, "{run}");
    insta::assert_snapshot!(project.read("pod.yaml"), @r#"
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: d}
    spec:
      template:
        spec:
          securityContext:
            runAsUser: 1000
          containers:
            - name: a
              securityContext:
                capabilities:
                  drop: [ALL]
            - name: b
              securityContext:
                capabilities: {add: [KILL]}
          hostNetwork: true
    "#);
}

#[test]
fn stdin_goes_to_stdout() {
    let run = Project::new().run_with_stdin(&["migrate", "-"], LEGACY);
    assert!(run.stdout.contains("type: RuntimeDefault") && run.status == 0, "{run}");
}

#[test]
fn does_not_write_files_without_legacy_settings() {
    let text = "# c\nkind: Service\napiVersion: v1\n";
    let project = Project::with(text);
    assert_eq!(project.run(&["migrate", "."]).status, 0);
    assert_eq!(project.read("pod.yaml"), text);
}
