//! Every kind of finding, as a person reads it.

use crate::support::{PRIVILEGED, Project};

fn check(text: &str, arguments: &[&str]) -> String {
    let mut all = vec!["check", "pod.yaml", "--quiet"];
    all.extend(arguments);
    Project::with(text).run(&all).to_string()
}

/// A pod whose only mistake is in what `rest` adds to its spec.
fn pod(rest: &str) -> String {
    format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec:\n{rest}")
}

#[test]
fn points_at_the_privileged_line() {
    insta::assert_snapshot!(check(PRIVILEGED, &["--level=baseline", "--policy-version=v1.35"]), @r#"
    error[pss/privileged]: container "web" is privileged
      --> pod.yaml:10:21
       |
    10 |         privileged: true
       |                     ^^^^ baseline allows false, or no value
       = because: Pod Security Standards v1.35, Baseline, "Privileged Containers": a privileged container is root on the node
       = help: set `securityContext.privileged: false` in container "web"

    exit status: 1
    "#);
}

#[test]
fn points_at_the_parent_of_a_missing_field() {
    insta::assert_snapshot!(check(PRIVILEGED, &[]), @r#"
    error[pss/runAsNonRoot]: container "web" may run as root
     --> pod.yaml:6:1
      |
    6 | spec:
      | ^^^^ no securityContext.runAsNonRoot here; restricted requires true, for the pod or for every container
      = because: Pod Security Standards v1.37, Restricted, "Running as Non-root": root inside a container is root on the node once it gets out
      = help: add `spec.securityContext.runAsNonRoot: true`

    error[pss/seccompProfile_restricted]: container "web" may run without a seccomp profile
     --> pod.yaml:6:1
      |
    6 | spec:
      | ^^^^ no securityContext.seccompProfile.type here; restricted requires RuntimeDefault or Localhost
      = because: Pod Security Standards v1.37, Restricted, "Seccomp": without a profile a container can call everything the kernel offers
      = help: add `spec.securityContext.seccompProfile: {type: RuntimeDefault}`

    error[pss/allowPrivilegeEscalation]: container "web" may gain privileges
     --> pod.yaml:9:7
      |
    9 |       securityContext:
      |       ^^^^^^^^^^^^^^^ no allowPrivilegeEscalation here; restricted requires false
      = because: Pod Security Standards v1.37, Restricted, "Privilege Escalation": without it a set-user-ID program inside the image makes its caller root
      = help: add `securityContext.allowPrivilegeEscalation: false` in container "web"

    error[pss/capabilities_restricted]: container "web" does not drop all capabilities
     --> pod.yaml:9:7
      |
    9 |       securityContext:
      |       ^^^^^^^^^^^^^^^ no capabilities.drop here; restricted requires a drop list with ALL
      = because: Pod Security Standards v1.37, Restricted, "Capabilities": a process without capabilities cannot use root's powers even if it becomes root
      = help: add `securityContext.capabilities.drop: [ALL]` in container "web"

    error[pss/privileged]: container "web" is privileged
      --> pod.yaml:10:21
       |
    10 |         privileged: true
       |                     ^^^^ baseline allows false, or no value
       = because: Pod Security Standards v1.37, Baseline, "Privileged Containers": a privileged container is root on the node
       = help: set `securityContext.privileged: false` in container "web"

    exit status: 1
    "#);
}

#[test]
fn reports_everything_that_restricted_requires() {
    let text = pod("  containers:\n  - name: web\n    image: nginx\n");
    insta::assert_snapshot!(check(&text, &["--policy-version=v1.18"]), @r#"
    error[pss/runAsNonRoot]: container "web" may run as root
     --> pod.yaml:4:1
      |
    4 | spec:
      | ^^^^ no securityContext.runAsNonRoot here; restricted requires true, for the pod or for every container
      = because: Pod Security Standards v1.18, Restricted, "Running as Non-root": root inside a container is root on the node once it gets out
      = help: add `spec.securityContext.runAsNonRoot: true`

    error[pss/allowPrivilegeEscalation]: container "web" may gain privileges
     --> pod.yaml:6:5
      |
    6 |   - name: web
      |     ^^^^^^^^^ no securityContext.allowPrivilegeEscalation here; restricted requires false
      = because: Pod Security Standards v1.18, Restricted, "Privilege Escalation": without it a set-user-ID program inside the image makes its caller root
      = help: add `securityContext.allowPrivilegeEscalation: false` in container "web"

    exit status: 1
    "#);
}

#[test]
fn names_every_baseline_mistake() {
    let text = pod(concat!(
        "  hostPID: true\n",
        "  securityContext:\n",
        "    seLinuxOptions: {type: spc_t, user: root}\n",
        "    sysctls: [{name: kernel.msgmax, value: '1'}]\n",
        "    seccompProfile: {type: Unconfined}\n",
        "  volumes:\n",
        "  - name: host\n",
        "    hostPath: {path: /etc}\n",
        "  containers:\n",
        "  - name: web\n",
        "    ports: [{containerPort: 80, hostPort: 80}]\n",
        "    securityContext:\n",
        "      procMount: Unmasked\n",
        "      capabilities: {add: [SYS_ADMIN, KILL]}\n",
        "      appArmorProfile: {type: Unconfined}\n",
        "    livenessProbe: {httpGet: {host: example.com, port: 80}}\n",
    ));
    insta::assert_snapshot!(check(&text, &["--level=baseline"]), @r#"
    error[pss/hostNamespaces]: pod sets hostPID
     --> pod.yaml:5:12
      |
    5 |   hostPID: true
      |            ^^^^ baseline allows false, or no value
      = because: Pod Security Standards v1.37, Baseline, "Host Namespaces": sharing one lets a container see or disturb everything else on the node
      = help: no automatic fix: remove `hostPID` only if the workload does not need the node's processes

    error[pss/seLinuxOptions]: pod sets the SELinux type spc_t
     --> pod.yaml:7:28
      |
    7 |     seLinuxOptions: {type: spc_t, user: root}
      |                            ^^^^^ baseline allows container_t, container_init_t, container_kvm_t (from v1.31 on container_engine_t), or no value
      = because: Pod Security Standards v1.37, Baseline, "SELinux": other types, users and roles are confined less than containers are
      = help: remove `spec.securityContext.seLinuxOptions.type`

    error[pss/seLinuxOptions]: pod sets the SELinux user root
     --> pod.yaml:7:41
      |
    7 |     seLinuxOptions: {type: spc_t, user: root}
      |                                         ^^^^ baseline allows no value
      = because: Pod Security Standards v1.37, Baseline, "SELinux": other types, users and roles are confined less than containers are
      = help: remove `spec.securityContext.seLinuxOptions.user`

    error[pss/sysctls]: pod sets the sysctl kernel.msgmax
     --> pod.yaml:8:22
      |
    8 |     sysctls: [{name: kernel.msgmax, value: '1'}]
      |                      ^^^^^^^^^^^^^ baseline allows a sysctl of the safe list of this policy version
      = because: Pod Security Standards v1.37, Baseline, "Sysctls": a sysctl outside the pod's namespaces changes the whole node
      = help: remove `kernel.msgmax` from `spec.securityContext.sysctls`

    error[pss/seccompProfile_baseline]: pod requests the seccomp profile type "Unconfined"
     --> pod.yaml:9:28
      |
    9 |     seccompProfile: {type: Unconfined}
      |                            ^^^^^^^^^^ baseline allows RuntimeDefault or Localhost
      = because: Pod Security Standards v1.37, Baseline, "Seccomp": an unconfined container can call everything the kernel offers
      = help: set `spec.securityContext.seccompProfile.type: RuntimeDefault`

    error[pss/hostPathVolumes]: volume "host" is a hostPath volume
      --> pod.yaml:12:5
       |
    12 |     hostPath: {path: /etc}
       |     ^^^^^^^^ baseline allows any other volume type
       = because: Pod Security Standards v1.37, Baseline, "HostPath Volumes": a folder of the node is a way out of the container
       = help: no automatic fix: what the workload reads or writes on the node must be provided another way

    error[pss/hostPorts]: container "web" uses port 80 of the node
      --> pod.yaml:15:43
       |
    15 |     ports: [{containerPort: 80, hostPort: 80}]
       |                                           ^^ baseline allows no hostPort; publish it with a Service
       = because: Pod Security Standards v1.37, Baseline, "Host Ports": a port of the node bypasses network policies and can take the place of a node's service
       = help: remove `ports[0].hostPort` in container "web"

    error[api/invalid]: spec.containers[0].securityContext.procMount: Invalid value: "Unmasked": `hostUsers` must be false to use `Unmasked`
      --> pod.yaml:17:18
       |
    17 |       procMount: Unmasked
       |                  ^^^^^^^^ `hostUsers` must be false to use `Unmasked`
       = because: an API server of v1.37 rejects this Pod

    error[pss/procMount]: container "web" sees an unmasked /proc
      --> pod.yaml:17:18
       |
    17 |       procMount: Unmasked
       |                  ^^^^^^^^ baseline allows Default, or no value
       = because: Pod Security Standards v1.37, Baseline, "/proc Mount Type": parts of /proc reach into the kernel of the node
       = help: set `securityContext.procMount: Default` in container "web"

    error[pss/capabilities_baseline]: container "web" adds the capability SYS_ADMIN
      --> pod.yaml:18:28
       |
    18 |       capabilities: {add: [SYS_ADMIN, KILL]}
       |                            ^^^^^^^^^ baseline allows AUDIT_WRITE, CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, MKNOD, NET_BIND_SERVICE, SETFCAP, SETGID, SETPCAP, SETUID or SYS_CHROOT
       = because: Pod Security Standards v1.37, Baseline, "Capabilities": most capabilities beyond the runtime's defaults lead out of the container
       = help: remove `SYS_ADMIN` from `securityContext.capabilities.add` in container "web"

    error[pss/appArmorProfile]: container "web" requests the AppArmor profile type "Unconfined"
      --> pod.yaml:19:31
       |
    19 |       appArmorProfile: {type: Unconfined}
       |                               ^^^^^^^^^^ baseline allows RuntimeDefault or Localhost, or no profile
       = because: Pod Security Standards v1.37, Baseline, "AppArmor": the runtime's profile keeps containers from files and calls that lead to the node
       = help: set `securityContext.appArmorProfile.type: RuntimeDefault` in container "web"

    error[pss/hostProbesAndHostLifecycle]: container "web" has the node connect to host "example.com"
      --> pod.yaml:20:37
       |
    20 |     livenessProbe: {httpGet: {host: example.com, port: 80}}
       |                                     ^^^^^^^^^^^ baseline allows no host: the pod itself is meant
       = because: Pod Security Standards v1.37, Baseline, "Host Probes / Lifecycle Hooks": the kubelet connects to the named host from the node's network
       = help: remove `livenessProbe.httpGet.host` in container "web"

    exit status: 1
    "#);
}

#[test]
fn does_not_suggest_linux_settings_for_windows_pods() {
    let text = pod(concat!(
        "  os: {name: windows}\n",
        "  containers:\n",
        "  - name: web\n",
        "    securityContext: {windowsOptions: {hostProcess: true}, capabilities: {drop: [ALL]}}\n",
    ));
    insta::assert_snapshot!(check(&text, &[]), @r#"
    error[api/invalid]: spec.hostNetwork: Invalid value: false: hostNetwork must be true if pod contains any hostProcess containers
     --> pod.yaml:4:1
      |
    4 | spec:
      | ^^^^ no hostNetwork here
      = because: an API server of v1.37 rejects this Pod

    error[pss/runAsNonRoot]: container "web" may run as root
     --> pod.yaml:4:1
      |
    4 | spec:
      | ^^^^ no securityContext.runAsNonRoot here; restricted requires true, for the pod or for every container
      = because: Pod Security Standards v1.37, Restricted, "Running as Non-root": root inside a container is root on the node once it gets out
      = help: add `spec.securityContext.runAsNonRoot: true`

    error[pss/windowsHostProcess]: container "web" runs as a process of the Windows host
     --> pod.yaml:8:53
      |
    8 |     securityContext: {windowsOptions: {hostProcess: true}, capabilities: {drop: [ALL]}}
      |                                                     ^^^^ baseline allows false, or no value
      = because: Pod Security Standards v1.37, Baseline, "HostProcess": a host process has the privileges of the Windows node
      = help: no automatic fix: a host process exists to manage the node; it cannot do so as a plain container

    error[api/invalid]: spec.containers[0].securityContext.capabilities: Forbidden: cannot be set for a windows pod
     --> pod.yaml:8:60
      |
    8 |     securityContext: {windowsOptions: {hostProcess: true}, capabilities: {drop: [ALL]}}
      |                                                            ^^^^^^^^^^^^ cannot be set for a windows pod
      = because: an API server of v1.37 rejects this Pod

    exit status: 1
    "#);
}

#[test]
fn reports_what_an_api_server_rejects() {
    let text = pod(concat!(
        "  securityContext:\n",
        "    runAsUser: -1\n",
        "    seccompProfile: {type: Localhost, localhostProfile: ../../etc/passwd}\n",
        "    appArmorProfile: {type: RuntimeDefault, localhostProfile: x}\n",
        "  containers:\n",
        "  - name: web\n",
        "    ports: [{containerPort: 80}, {containerPort: 80}]\n",
    ));
    insta::assert_snapshot!(check(&text, &["--level=privileged"]), @r#"
    error[api/invalid]: spec.securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive
     --> pod.yaml:6:16
      |
    6 |     runAsUser: -1
      |                ^^ must be between 0 and 2147483647, inclusive
      = because: an API server of v1.37 rejects this Pod

    error[profile/seccomp-file]: spec.securityContext.seccompProfile.localhostProfile: Invalid value: "../../etc/passwd": must not contain '..'
     --> pod.yaml:7:57
      |
    7 |     seccompProfile: {type: Localhost, localhostProfile: ../../etc/passwd}
      |                                                         ^^^^^^^^^^^^^^^^ must not contain '..'
      = because: an API server of v1.37 rejects this Pod

    error[profile/apparmor-name]: spec.securityContext.appArmorProfile.localhostProfile: Invalid value: "x": can only be set when AppArmor type is Localhost
     --> pod.yaml:8:63
      |
    8 |     appArmorProfile: {type: RuntimeDefault, localhostProfile: x}
      |                                                               ^ can only be set when AppArmor type is Localhost
      = because: an API server of v1.37 rejects this Pod

    warning[api/ports]: spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]
      --> pod.yaml:11:35
       |
    11 |     ports: [{containerPort: 80}, {containerPort: 80}]
       |                                   ^^^^^^^^^^^^^^^^^ duplicate port definition
       = because: an API server of v1.37 warns about it

    exit status: 1
    "#);
}

#[test]
fn reports_missing_containers_and_templates() {
    let text = "apiVersion: v1\nkind: Pod\nspec: {}\n---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec:\n  replicas: 1\n";
    insta::assert_snapshot!(check(text, &[]), @r#"
    error[api/invalid]: spec.containers: Required value
     --> pod.yaml:3:1
      |
    3 | spec: {}
      | ^^^^ no containers here
      = because: an API server of v1.37 rejects this Pod

    error[api/invalid]: Deployment has no pod template at spec.template
     --> pod.yaml:8:1
      |
    8 | spec:
      | ^^^^ the template is missing here

    exit status: 1
    "#);
}

#[test]
fn reports_values_of_a_wrong_type() {
    let text = pod("  hostNetwork: \"yes please\"\n  containers: []\n");
    insta::assert_snapshot!(check(&text, &[]), @r#"
    error[api/type]: spec.hostNetwork: expected a boolean, found the string "yes please"
     --> pod.yaml:5:16
      |
    5 |   hostNetwork: "yes please"
      |                ^^^^^^^^^^^^ expected a boolean, found the string "yes please"
      = because: an API server cannot read this Pod

    exit status: 2
    "#);
}

const ANNOTATED: &str = "\
apiVersion: v1
kind: Pod
metadata:
  name: p
  annotations:
    seccomp.security.alpha.kubernetes.io/pod: runtime/default
    container.seccomp.security.alpha.kubernetes.io/gone: unconfined
    container.apparmor.security.beta.kubernetes.io/web: localhost/web
spec:
  containers:
  - name: web
";

#[test]
fn reports_annotations_without_effect_and_what_applies_instead() {
    insta::assert_snapshot!(check(ANNOTATED, &["--level=privileged"]), @r#"
    warning[annotation/dead]: the seccomp annotation "runtime/default" of the pod has no effect on v1.37
     --> pod.yaml:6:47
      |
    6 |     seccomp.security.alpha.kubernetes.io/pod: runtime/default
      |                                               ^^^^^^^^^^^^^^^ no effect
      = because: Kubernetes ignores seccomp annotations since v1.27; containers without a profile of their own run Unconfined, unless the kubelet has --seccomp-default
      = help: `palisade migrate` rewrites it into the field

    warning[annotation/dead]: a seccomp annotation for container "gone", which does not exist
     --> pod.yaml:7:58
      |
    7 |     container.seccomp.security.alpha.kubernetes.io/gone: unconfined
      |                                                          ^^^^^^^^^^ no effect
      = help: remove it, or correct the name; containers are web

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
fn the_same_annotations_still_work_on_an_old_release() {
    insta::assert_snapshot!(check(ANNOTATED, &["--level=privileged", "--kubernetes-version=v1.24"]), @r#"
    warning[annotation/deprecated]: the seccomp annotation of the pod is deprecated since v1.19
     --> pod.yaml:6:47
      |
    6 |     seccomp.security.alpha.kubernetes.io/pod: runtime/default
      |                                               ^^^^^^^^^^^^^^^ deprecated
      = because: it is still copied into the field when a pod is created on v1.24; v1.27 and later ignore it
      = help: `palisade migrate` rewrites it into the field

    warning[annotation/dead]: a seccomp annotation for container "gone", which does not exist
     --> pod.yaml:7:58
      |
    7 |     container.seccomp.security.alpha.kubernetes.io/gone: unconfined
      |                                                          ^^^^^^^^^^ no effect
      = help: remove it, or correct the name; containers are web

    exit status: 0
    "#);
}

#[test]
fn a_value_that_comes_from_an_annotation_points_at_it() {
    let text = "\
apiVersion: v1
kind: Pod
metadata:
  name: p
  annotations:
    container.apparmor.security.beta.kubernetes.io/web: unconfined
spec:
  containers:
  - name: web
";
    insta::assert_snapshot!(check(text, &["--level=baseline"]), @r#"
    warning[annotation/deprecated]: the AppArmor annotation of container "web" is deprecated since v1.30
     --> pod.yaml:6:57
      |
    6 |     container.apparmor.security.beta.kubernetes.io/web: unconfined
      |                                                         ^^^^^^^^^^ deprecated
      = because: it is still copied into the field when a pod is created on v1.37
      = help: `palisade migrate` rewrites it into the field

    error[pss/appArmorProfile]: container "web" requests the AppArmor profile type "Unconfined"
     --> pod.yaml:6:57
      |
    6 |     container.apparmor.security.beta.kubernetes.io/web: unconfined
      |                                                         ^^^^^^^^^^ baseline allows RuntimeDefault or Localhost, or no profile
      = because: Pod Security Standards v1.37, Baseline, "AppArmor": the runtime's profile keeps containers from files and calls that lead to the node
      = because: an API server copies the annotation container.apparmor.security.beta.kubernetes.io/web into the field
      = help: add `securityContext.appArmorProfile.type: RuntimeDefault` in container "web"

    error[pss/appArmorProfile]: annotation requests the AppArmor profile "unconfined" for container "web"
     --> pod.yaml:6:57
      |
    6 |     container.apparmor.security.beta.kubernetes.io/web: unconfined
      |                                                         ^^^^^^^^^^ baseline allows runtime/default or localhost/<profile>
      = because: Pod Security Standards v1.37, Baseline, "AppArmor": the runtime's profile keeps containers from files and calls that lead to the node
      = help: remove the annotation `container.apparmor.security.beta.kubernetes.io/web`

    exit status: 1
    "#);
}

#[test]
fn reports_a_conflict_of_annotation_and_field() {
    let text = "\
apiVersion: v1
kind: Pod
metadata:
  name: p
  annotations:
    seccomp.security.alpha.kubernetes.io/pod: unconfined
spec:
  securityContext:
    seccompProfile:
      type: RuntimeDefault
  containers:
  - name: web
";
    insta::assert_snapshot!(check(text, &["--level=privileged"]), @r#"
    warning[annotation/dead]: the seccomp annotation "unconfined" of the pod has no effect on v1.37
     --> pod.yaml:6:47
      |
    6 |     seccomp.security.alpha.kubernetes.io/pod: unconfined
      |                                               ^^^^^^^^^^ no effect
      = because: Kubernetes ignores seccomp annotations since v1.27; the field applies: RuntimeDefault
      = help: remove it

    error[profile/conflict]: spec.securityContext.seccompProfile.type: Forbidden: seccomp type in annotation and field must match
      --> pod.yaml:10:13
       |
    10 |       type: RuntimeDefault
       |             ^^^^^^^^^^^^^^ seccomp type in annotation and field must match
       = because: an API server of v1.37 rejects this Pod
       = help: keep the one that is right and remove the other: this field, or metadata.annotations[seccomp.security.alpha.kubernetes.io/pod]

    exit status: 1
    "#);
}

#[test]
fn reports_annotations_of_the_workload_instead_of_its_template() {
    let text = "\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: d
  annotations:
    seccomp.security.alpha.kubernetes.io/pod: runtime/default
spec:
  template:
    spec:
      containers: [{name: web}]
";
    insta::assert_snapshot!(check(text, &["--level=privileged"]), @r#"
    warning[annotation/dead]: seccomp.security.alpha.kubernetes.io/pod on the Deployment itself has no effect
     --> pod.yaml:6:47
      |
    6 |     seccomp.security.alpha.kubernetes.io/pod: runtime/default
      |                                               ^^^^^^^^^^^^^^^ no effect
      = because: only the annotations of the pod template apply, at spec.template.metadata.annotations
      = help: set the profile as a field of the template's securityContext, and remove the annotation

    exit status: 0
    "#);
}

#[test]
fn aliases_and_merge_keys_are_followed_to_where_the_value_is_written() {
    let text = "\
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: a}
  spec: &spec
    hostIPC: true
    containers: [{name: web}]
- apiVersion: v1
  kind: Pod
  metadata: {name: b}
  spec:
    <<: *spec
    hostPID: true
";
    insta::assert_snapshot!(check(text, &["--level=baseline"]), @r#"
    error[pss/hostNamespaces]: pod sets hostIPC
     --> pod.yaml:8:14
      |
    8 |     hostIPC: true
      |              ^^^^ baseline allows false, or no value
      = in: Pod a
      = because: Pod Security Standards v1.37, Baseline, "Host Namespaces": sharing one lets a container see or disturb everything else on the node
      = help: no automatic fix: remove `hostIPC` only if the workload does not need the node's IPC objects

    error[pss/hostNamespaces]: pod sets hostIPC
     --> pod.yaml:8:14
      |
    8 |     hostIPC: true
      |              ^^^^ baseline allows false, or no value
      = in: Pod b
      = because: Pod Security Standards v1.37, Baseline, "Host Namespaces": sharing one lets a container see or disturb everything else on the node
      = help: no automatic fix: remove `hostIPC` only if the workload does not need the node's IPC objects

    error[pss/hostNamespaces]: pod sets hostPID
      --> pod.yaml:15:14
       |
    15 |     hostPID: true
       |              ^^^^ baseline allows false, or no value
       = in: Pod b
       = because: Pod Security Standards v1.37, Baseline, "Host Namespaces": sharing one lets a container see or disturb everything else on the node
       = help: no automatic fix: remove `hostPID` only if the workload does not need the node's processes

    exit status: 1
    "#);
}

#[test]
fn handles_wide_characters_tabs_and_terminal_codes() {
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - {name: \"\\e[31m日本\\tx\", \"日本\": 1, securityContext: {privileged: true}}\n";
    insta::assert_snapshot!(check(text, &["--level=baseline"]), @r#"
    error[api/unknown-field]: unknown field "日本"
     --> pod.yaml:6:27
      |
    6 |   - {name: "\e[31m日本\tx", "日本": 1, securityContext: {privileged: true}}
      |                             ^^^^^^
      = because: an API server drops it from this Pod, and strict validation rejects it

    error[pss/privileged]: container "�[31m日本    x" is privileged
     --> pod.yaml:6:66
      |
    6 |   - {name: "\e[31m日本\tx", "日本": 1, securityContext: {privileged: true}}
      |                                                                      ^^^^ baseline allows false, or no value
      = because: Pod Security Standards v1.37, Baseline, "Privileged Containers": a privileged container is root on the node
      = help: set `securityContext.privileged: false` in container "�[31m日本    x"

    exit status: 1
    "#);
}

#[test]
fn a_very_long_line_is_cut_around_the_place() {
    let filler = format!("\"{}\"", "x".repeat(2000));
    let text = format!(
        "{{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"a\": {filler}, \"spec\": {{\"hostPID\": true, \"containers\": [{{\"name\": \"c\"}}], \"b\": {filler}}}}}"
    );
    insta::assert_snapshot!(check(&text, &["--level=baseline"]), @r#"
    error[api/unknown-field]: unknown field "a"
     --> pod.yaml:1:37
      |
    1 | {"apiVersion": "v1", "kind": "Pod", "a": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx …
      |                                     ^^^
      = because: an API server drops it from this Pod, and strict validation rejects it

    error[pss/hostNamespaces]: pod sets hostPID
     --> pod.yaml:1:2066
      |
    1 | … xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "spec": {"hostPID": true, "containers": [{"name": "c"}], "b": "xxxxxxxxxxxxxxxxxxxxx …
      |                                                               ^^^^ baseline allows false, or no value
      = because: Pod Security Standards v1.37, Baseline, "Host Namespaces": sharing one lets a container see or disturb everything else on the node
      = help: no automatic fix: remove `hostPID` only if the workload does not need the node's processes

    error[api/unknown-field]: unknown field "b"
     --> pod.yaml:1:2103
      |
    1 | … ", "spec": {"hostPID": true, "containers": [{"name": "c"}], "b": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx …
      |                                                               ^^^
      = because: an API server drops it from this Pod, and strict validation rejects it

    exit status: 1
    "#);
}

#[test]
fn uses_colors_only_where_they_are_enabled() {
    let project = Project::with(PRIVILEGED);
    let check = ["check", "pod.yaml"];
    assert!(!project.run(&check).stdout.contains('\u{1b}'), "no terminal");
    assert!(project.run(&["check", "pod.yaml", "--color=always"]).stdout.contains("\u{1b}["), "requested");
    let run = crate::support::Run::of(project.command().args(check).env("NO_COLOR", "1"));
    assert!(!run.stdout.contains('\u{1b}'), "NO_COLOR");
}
