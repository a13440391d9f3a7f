//! `check --fix`: only what is needed, atomically, and proven.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
};

use crate::support::{GOOD, PRIVILEGED, Project};

/// Everything that makes a file hard to edit.
const NASTY: &str = concat!(
    "\u{feff}# Head comment, with a tab:\there\r\n",
    "%YAML 1.2\r\n",
    "---   # first document\r\n",
    "apiVersion:   v1\r\n",
    "kind: \"Pod\"\r\n",
    "metadata:\r\n",
    "   name: 'p'   # odd indentation: three\r\n",
    "   annotations: { \"note\": \"a\\tb\", empty: \"\" }\r\n",
    "spec:\r\n",
    "   containers:\r\n",
    "   -   name: web\t# tab before a comment\r\n",
    "       image: >-\r\n",
    "         registry.example.com/\r\n",
    "         web\r\n",
    "       command: [ \"sh\",   \"-c\" ,'x' ]\r\n",
    "       env: &env\r\n",
    "       - {name: A, value: \"1\"}\r\n",
    "       args:\r\n",
    "       - |\r\n",
    "         privileged: true\r\n",
    "         \ttabbed\r\n",
    "\r\n",
    "       securityContext:\r\n",
    "\r\n",
    "          # why it is so\r\n",
    "          privileged:    true   # must go\r\n",
    "   -   name: side\r\n",
    "       env: *env\r\n",
    "       image: nginx\r\n",
    "       securityContext: {runAsUser: 7,   privileged: yes}\r\n",
    "...\r\n",
    "---\r\n",
    "# second document, not a pod\r\n",
    "kind: ConfigMap\r\n",
    "apiVersion: v1\r\n",
    "data: {a: b,\r\n",
    " c: [d]}\r\n",
    "---\r\n",
    "broken: [\r\n",
);

#[test]
fn keeps_every_byte_that_it_does_not_need() {
    // The last document is broken on purpose; it must not keep the first from being fixed, nor be touched.
    let project = Project::with(NASTY);
    let run = project.run(&["check", "--unsafe-fixes", "--level=baseline", "pod.yaml", "-q"]);
    let fixed = project.read("pod.yaml");
    let expected = NASTY
        .replace("privileged:    true   # must go", "privileged:    false   # must go")
        .replace("privileged: yes}", "privileged: false}");
    assert_eq!(fixed, expected, "{run}");
    assert_eq!(run.status, 1, "{run}");
}

#[test]
fn adds_in_the_style_of_the_file() {
    let project = Project::with(NASTY);
    project.run(&["check", "--unsafe-fixes", "--level=restricted", "pod.yaml", "-q"]);
    let fixed = project.read("pod.yaml");
    assert!(fixed.lines().all(|line| fixed.contains(&format!("{line}\r\n"))), "every line ends as before");
    let old: Vec<&str> = NASTY.split("\r\n").filter(|line| !line.contains("privileged: ")).collect();
    let mut rest = fixed.as_str();
    for line in old {
        let at = rest.find(line).unwrap_or_else(|| panic!("{line:?} is gone from {fixed}"));
        rest = &rest[at + line.len()..];
    }
    let run = project.run(&["check", "--level=restricted", "pod.yaml", "-o", "json"]);
    assert_eq!(run.json()["objects"][0]["allowed"], true, "{fixed}{run}");
}

#[test]
fn reports_what_is_fixed_and_what_is_left() {
    let project = Project::with(&PRIVILEGED.replace("spec:\n", "spec:\n  hostPID: true\n"));
    insta::assert_snapshot!(project.run(&["check", "--unsafe-fixes", "--fix-partial", "--level=baseline", "."]), @r#"
    error[pss/hostNamespaces]: pod sets hostPID
     --> pod.yaml:7:12
      |
    7 |   hostPID: true
      |            ^^^^ baseline allows false, or no value
      = because: Pod Security Standards v1.37, Baseline, "Host Namespaces": sharing one lets a container see or disturb everything else on the node
      = help: no automatic fix: remove `hostPID` only if the workload does not need the node's processes

    fixed pod.yaml: 1 finding fixed, 1 left
    1 object in 1 file checked at baseline:latest: 0 allowed, 1 denied; 1 error
    exit status: 1
    "#);
    insta::assert_snapshot!(project.read("pod.yaml"), @r#"
    apiVersion: v1
    kind: Pod
    metadata:
      name: bad
      namespace: shop
    spec:
      hostPID: true
      containers:
        - name: web
          securityContext:
            privileged: false
          image: nginx
    "#);
}

#[test]
fn a_diff_writes_nothing() {
    let project = Project::with(PRIVILEGED);
    for arguments in
        [&["check", "--diff", "pod.yaml"][..], &["check", "--unsafe-fixes", "--fix", "--diff", "pod.yaml"]]
    {
        let run = project.run(arguments);
        insta::allow_duplicates! {
            insta::assert_snapshot!(run, @r#"
            # Pod shop/bad
            #   may change behaviour: add `spec.securityContext.runAsNonRoot: true`; which user the image of container "web" runs as is not known (--image-layout tells); with root it would not start
            #   may change behaviour: add `spec.securityContext.seccompProfile: {type: RuntimeDefault}`; container "web" has rights that the runtime's profile takes away in part
            #   may change behaviour: add `securityContext.allowPrivilegeEscalation: false` in container "web"; programs with a set-user-ID bit or file capabilities, such as sudo and ping, run without them
            #   may change behaviour: add `securityContext.capabilities.drop: [ALL]` in container "web"; what the container does with a default capability of the runtime fails
            #   may change behaviour: set `securityContext.privileged: false` in container "web"; the container loses every right on the node
            --- a/pod.yaml
            +++ b/pod.yaml
            @@ -7,5 +7,13 @@
               containers:
                 - name: web
                   securityContext:
            -        privileged: true
            +        privileged: false
            +        allowPrivilegeEscalation: false
            +        capabilities:
            +          drop:
            +            - ALL
                   image: nginx
            +  securityContext:
            +    runAsNonRoot: true
            +    seccompProfile:
            +      type: RuntimeDefault
            1 object in 1 file checked at restricted:latest: 0 allowed, 1 denied; 5 errors
            exit status: 1
            "#);
        }
        assert_eq!(project.read("pod.yaml"), PRIVILEGED);
    }
    let run = project.run(&["check", "--diff", "pod.yaml", "-o", "json"]);
    assert_eq!(run.status, 2, "stdout is taken: {run}");
}

#[test]
fn stdin_goes_to_stdout() {
    let project = Project::new();
    let run = project.run_with_stdin(&["check", "--unsafe-fixes", "--level=baseline", "-"], PRIVILEGED);
    assert_eq!(run.stdout, PRIVILEGED.replace("privileged: true", "privileged: false"));
    assert_eq!(run.status, 0, "{run}");
    let run = project.run_with_stdin(&["check", "--unsafe-fixes", "-"], GOOD);
    assert_eq!((run.stdout.as_str(), run.status), (GOOD, 0));
}

#[test]
fn a_clean_file_is_not_written() {
    let project = Project::with(GOOD);
    let before = fs::metadata(project.path("pod.yaml")).unwrap();
    let run = project.run(&["check", "--unsafe-fixes", "."]);
    assert_eq!(run.status, 0, "{run}");
    assert_eq!(fs::metadata(project.path("pod.yaml")).unwrap().ino(), before.ino());
}

#[test]
fn keeps_mode_and_links() {
    let project = Project::new();
    project.file("real/pod.yaml", PRIVILEGED);
    let real = project.path("real/pod.yaml");
    fs::set_permissions(&real, fs::Permissions::from_mode(0o604)).unwrap();
    std::os::unix::fs::symlink("real/pod.yaml", project.path("link.yaml")).unwrap();
    let run = project.run(&["check", "--unsafe-fixes", "--level=baseline", "link.yaml"]);
    assert_eq!(run.status, 0, "{run}");
    assert!(project.path("link.yaml").is_symlink());
    assert!(project.read("real/pod.yaml").contains("privileged: false"));
    assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o7777, 0o604);
    assert_eq!(fs::read_dir(project.path("real")).unwrap().count(), 1, "no temporary file is left");
}

#[test]
fn a_file_that_several_links_lead_to_is_fixed_once() {
    let project = Project::with(PRIVILEGED);
    for number in 0..20 {
        std::os::unix::fs::symlink("pod.yaml", project.path(&format!("{number}.yaml"))).unwrap();
    }
    let run = project.run(&["check", "--unsafe-fixes", "--level=baseline", "."]);
    assert_eq!(run.status, 0, "{run}");
}

#[test]
fn accepted_findings_are_not_fixed() {
    let text = PRIVILEGED
        .replace("privileged: true", "privileged: true # palisade:ignore pss/privileged reason=\"needed\"");
    let project = Project::with(&text);
    let run = project.run(&["check", "--unsafe-fixes", "--level=baseline", "."]);
    assert_eq!(project.read("pod.yaml"), text);
    assert_eq!(run.status, 0, "{run}");
}

#[test]
fn removes_annotations_that_contradict_the_fix() {
    let text = "\
apiVersion: v1
kind: Pod
metadata:
  name: p
  annotations:
    keep: me
    seccomp.security.alpha.kubernetes.io/pod: unconfined # old
    container.seccomp.security.alpha.kubernetes.io/web: unconfined
    container.apparmor.security.beta.kubernetes.io/web: unconfined
spec:
  securityContext:
    seccompProfile: {type: Unconfined}
  containers:
  - name: web
    image: nginx
    securityContext:
      seccompProfile: {type: Unconfined}
";
    for version in ["v1.24", "v1.29", "v1.33", "v1.37", "designs"] {
        let project = Project::with(text);
        let run = project.run(&["check", "--unsafe-fixes", "--kubernetes-version", version, "pod.yaml"]);
        let fixed = project.read("pod.yaml");
        assert_eq!(run.status, 0, "{version}: {run}{fixed}");
        assert!(
            fixed.contains("    keep: me\n") && !fixed.contains("seccomp.security"),
            "{version}: {fixed}"
        );
    }
}

#[test]
fn fixes_items_of_lists_and_json() {
    let project = Project::new();
    project.file("a.json", "{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": [{\"apiVersion\": \"v1\", \"kind\": \"Pod\",\n  \"spec\": {\"containers\": [{\"name\": \"c\", \"image\": \"nginx\"}]}, \"metadata\": {\"name\": \"p\"}}]}\n");
    let run = project.run(&["check", "--unsafe-fixes", "a.json"]);
    let fixed = project.read("a.json");
    assert_eq!(run.status, 0, "{run}{fixed}");
    serde_json::from_str::<serde_json::Value>(&fixed).expect("still JSON");
}

#[test]
fn shared_values_of_aliases_keep_their_meaning_elsewhere() {
    let text = "\
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers:
  - name: a
    image: nginx
    securityContext: &shared
      privileged: true
  - name: b
    image: nginx
    securityContext: *shared
";
    let project = Project::with(text);
    let run = project.run(&["check", "--unsafe-fixes", "."]);
    assert_eq!(run.status, 0, "{run}{}", project.read("pod.yaml"));
}
