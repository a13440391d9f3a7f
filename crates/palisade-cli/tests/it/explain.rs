//! `palisade explain`.

use crate::support::Project;

const POD: &str = "\
apiVersion: v1
kind: Pod
metadata:
  name: p
  namespace: shop
  annotations:
    seccomp.security.alpha.kubernetes.io/pod: runtime/default
    container.apparmor.security.beta.kubernetes.io/web: localhost/web
spec:
  hostUsers: false
  securityContext:
    runAsUser: 1000
    runAsNonRoot: true
    fsGroup: 2000
    supplementalGroups: [3000, 4000]
  initContainers:
  - name: setup
    securityContext: {privileged: true, runAsUser: 0}
  containers:
  - name: web
    securityContext:
      runAsUser: 1001
      allowPrivilegeEscalation: false
      capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}
";

fn explain(text: &str, arguments: &[&str]) -> crate::support::Run {
    let mut all = vec!["explain", "pod.yaml"];
    all.extend(arguments);
    Project::with(text).run(&all)
}

#[test]
fn shows_every_field_of_every_container_with_its_source() {
    insta::assert_snapshot!(explain(POD, &[]), @r#"
    Pod shop/p (pod.yaml:2) on API server v1.37, kubelet v1.37

    init container setup
      FIELD                     VALUE           FROM
      runAsUser                 0               container's securityContext.runAsUser (line 18)
      runAsGroup                -               not set
      runAsNonRoot              true            pod's securityContext.runAsNonRoot (line 13)
      supplementalGroups        2000 3000 4000  pod's securityContext.supplementalGroups (line 15)
      supplementalGroupsPolicy  -               not set
      fsGroup                   2000            pod's securityContext.fsGroup (line 14)
      fsGroupChangePolicy       -               not set
      privileged                true            container's securityContext.privileged (line 18)
      capabilities              -               not set: the runtime's default capabilities
      effectiveCapabilities     all             container's securityContext.privileged (line 18)
      allowPrivilegeEscalation  true            not set: programs may gain privileges
      noNewPrivs                false           set only where allowPrivilegeEscalation is false
      readOnlyRootFilesystem    false           not set
      procMount                 Default         not set
      seccompProfile            Unconfined      nothing set: a kubelet leaves the container unconfined
      appArmorProfile           -               nothing set: the runtime applies its own profile where the host has AppArmor
      seLinuxOptions            -               not set
      seLinuxChangePolicy       -               not set
      sysctls                   -               not set
      hostNetwork               false           not set
      hostPID                   false           not set
      hostIPC                   false           not set
      hostUsers                 false           pod's hostUsers (line 10)
      shareProcessNamespace     false           not set
      maskedPaths               -               container's securityContext.privileged (line 18)
      readonlyPaths             -               container's securityContext.privileged (line 18)
      note: annotation honoured by kubelet v1.18, ignored by v1.37: this container runs Unconfined
      note: privileged: the runtime gives it every capability and every device, and applies no seccomp profile and no AppArmor profile except an explicit Localhost one
      note: this container does not start: container's runAsUser breaks non-root policy

    container web
      FIELD                     VALUE                          FROM
      runAsUser                 1001                           container's securityContext.runAsUser (line 22)
      runAsGroup                -                              not set
      runAsNonRoot              true                           pod's securityContext.runAsNonRoot (line 13)
      supplementalGroups        2000 3000 4000                 pod's securityContext.supplementalGroups (line 15)
      supplementalGroupsPolicy  -                              not set
      fsGroup                   2000                           pod's securityContext.fsGroup (line 14)
      fsGroupChangePolicy       -                              not set
      privileged                false                          not set
      capabilities              add=NET_BIND_SERVICE drop=ALL  container's securityContext.capabilities (line 24)
      effectiveCapabilities     NET_BIND_SERVICE               container's securityContext.capabilities (line 24)
      allowPrivilegeEscalation  false                          container's securityContext.allowPrivilegeEscalation (line 23)
      noNewPrivs                true                           container's securityContext.allowPrivilegeEscalation (line 23)
      readOnlyRootFilesystem    false                          not set
      procMount                 Default                        not set
      seccompProfile            Unconfined                     nothing set: a kubelet leaves the container unconfined
      appArmorProfile           Localhost web                  annotation container.apparmor.security.beta.kubernetes.io/web, copied by the API server (line 8)
      seLinuxOptions            -                              not set
      seLinuxChangePolicy       -                              not set
      sysctls                   -                              not set
      hostNetwork               false                          not set
      hostPID                   false                          not set
      hostIPC                   false                          not set
      hostUsers                 false                          pod's hostUsers (line 10)
      shareProcessNamespace     false                          not set
      maskedPaths               12 paths                       procMount is Default
      readonlyPaths             5 paths                        procMount is Default
      note: annotation honoured by kubelet v1.18, ignored by v1.37: this container runs Unconfined

    warning[annotation/dead]: the seccomp annotation "runtime/default" of the pod has no effect on v1.37
     --> pod.yaml:7:47
      |
    7 |     seccomp.security.alpha.kubernetes.io/pod: runtime/default
      |                                               ^^^^^^^^^^^^^^^ no effect
      = because: Kubernetes ignores seccomp annotations since v1.27; containers without a profile of their own run Unconfined, unless the kubelet has --seccomp-default
      = help: `palisade migrate` rewrites it into the field

    warning[annotation/deprecated]: the AppArmor annotation of container "web" is deprecated since v1.30
     --> pod.yaml:8:57
      |
    8 |     container.apparmor.security.beta.kubernetes.io/web: localhost/web
      |                                                         ^^^^^^^^^^^^^ deprecated
      = because: it is still copied into the field when a pod is created on v1.37
      = help: `palisade migrate` rewrites it into the field

    exit status: 0
    "#);
}

#[test]
fn warns_about_version_skew() {
    for (case, arguments, sentence) in [
        (
            "a new pair ignores the annotation",
            &["--apiserver=v1.27", "--kubelet=v1.27"][..],
            "annotation honoured by kubelet v1.18, ignored by v1.27: this container runs Unconfined",
        ),
        (
            "an old kubelet honours it, for now",
            &["--apiserver=v1.27", "--kubelet=v1.18"],
            "annotation honoured by kubelet v1.18, ignored by v1.27: after an upgrade this container runs Unconfined",
        ),
        (
            "the kubelet is too old for the server",
            &["--apiserver=v1.30", "--kubelet=v1.18"],
            "kubelet v1.18 is too old for API server v1.30, which supports v1.27 and newer",
        ),
        (
            "the kubelet is newer than the server",
            &["--apiserver=v1.25", "--kubelet=v1.28"],
            "kubelet v1.28 is newer than API server v1.25",
        ),
        (
            "an old server copies it into the field",
            &["--apiserver=v1.24", "--kubelet=v1.24"],
            "annotation seccomp.security.alpha.kubernetes.io/pod, copied by the API server (line 7)",
        ),
        (
            "the kubelet's own default",
            &["--apiserver=v1.30", "--seccomp-default"],
            "the kubelet runs with --seccomp-default",
        ),
    ] {
        let run = explain(POD, &[&["--container=web"], arguments].concat());
        assert!(run.to_string().contains(sentence), "{case}: {run}");
    }
}

#[test]
fn a_template_is_explained_by_the_pods_it_makes() {
    let text = "\
apiVersion: batch/v1
kind: CronJob
metadata: {name: j}
spec:
  jobTemplate:
    spec:
      template:
        metadata:
          annotations:
            container.apparmor.security.beta.kubernetes.io/c: unconfined
        spec:
          containers: [{name: c}]
";
    let run = explain(text, &["--apiserver=v1.34"]);
    assert!(
        run.stdout.contains(
            "annotation container.apparmor.security.beta.kubernetes.io/c, copied by the API server (line 10)"
        ),
        "{run}"
    );
}

#[test]
fn prints_the_same_as_json() {
    let run = explain(POD, &["-o", "json", "--container", "web"]);
    let json = run.json();
    assert_eq!(json["kubelet"], "v1.37");
    let containers = json["objects"][0]["containers"].as_array().unwrap();
    assert_eq!(containers.len(), 1);
    let fields = containers[0]["fields"].as_array().unwrap();
    assert!(fields.len() >= 26, "{}", fields.len());
    let field = |name: &str| fields.iter().find(|field| field["field"] == name).unwrap();
    assert_eq!(field("runAsUser")["value"], 1001);
    assert_eq!(field("runAsUser")["line"], 22);
    assert_eq!(field("runAsNonRoot")["path"], "spec.securityContext.runAsNonRoot");
    assert_eq!(field("supplementalGroups")["value"].to_string(), "[2000,3000,4000]");
    assert_eq!(field("hostPID")["set"], false);
    assert!(field("maskedPaths")["value"].as_array().unwrap().len() > 5);
}

#[test]
fn missing_containers_and_pods_are_status_2() {
    let run = explain(POD, &["--container=absent"]);
    assert_eq!(run.status, 2, "{run}");
    let run = explain("kind: Service\napiVersion: v1\n", &[]);
    assert_eq!(run.status, 2, "{run}");
}

#[test]
fn a_container_that_cannot_start_is_named() {
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: c\n    securityContext: {runAsNonRoot: true, runAsUser: 0, seccompProfile: {type: Localhost, localhostProfile: ''}}\n";
    let run = explain(text, &[]);
    assert!(
        run.stdout.contains("this container does not start: container's runAsUser breaks non-root policy"),
        "{run}"
    );
    assert!(run.stdout.contains("this container does not start: localhostProfile must be set"), "{run}");
}

#[test]
fn names_the_capabilities_that_each_container_ends_up_with() {
    for (context, shown, count) in [
        ("{}", "default", 14),
        ("{capabilities: {drop: [ALL]}}", "none", 0),
        ("{capabilities: {drop: [all], add: [NET_BIND_SERVICE]}}", "NET_BIND_SERVICE", 1),
        ("{capabilities: {add: [SYS_TIME], drop: [CHOWN]}}", "default +SYS_TIME -CHOWN", 14),
        ("{capabilities: {add: [SYS_TIME], drop: [SYS_TIME]}}", "default", 14),
        ("{capabilities: {add: [ALL]}}", "all", 41),
        ("{privileged: true, capabilities: {drop: [ALL]}}", "all", 41),
    ] {
        let pod = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {{containers: [{{name: c, securityContext: {context}}}]}}\n"
        );
        let json = explain(&pod, &["-o", "json"]).json();
        let fields = json["objects"][0]["containers"][0]["fields"].as_array().unwrap().clone();
        let field = fields.iter().find(|field| field["field"] == "effectiveCapabilities").unwrap();
        assert_eq!(field["value"].as_array().unwrap().len(), count, "{context}: {field}");
        let table = explain(&pod, &[]).stdout;
        let line = table.lines().find(|line| line.contains("effectiveCapabilities")).unwrap().trim();
        let value = line.trim_start_matches("effectiveCapabilities").trim_start();
        assert!(value.starts_with(shown), "{context}: {line}");
    }
}

#[test]
fn shows_only_what_is_set() {
    let run = explain(POD, &["--set-only", "--container=web"]);
    let table = run.stdout.split("\n\n").nth(1).unwrap();
    assert!(
        table.contains("runAsUser") && table.contains("effectiveCapabilities") && !table.contains("hostPID"),
        "{run}"
    );
    assert!(!table.contains("not set"), "{run}");
    let bare = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c}]}\n";
    let run = explain(bare, &["--set-only"]);
    assert!(run.stdout.contains("container c\n  nothing is set\n"), "{run}");
    let json = explain(bare, &["--set-only", "-o", "json"]).json();
    assert_eq!(json["objects"][0]["containers"][0]["fields"], serde_json::json!([]));
}
