//! What `palisade export policies` prints.

use std::{fmt::Write as _, process::Command};

use palisade_yaml::{Limits, parse};
use serde_json::Value;

fn run(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_palisade"))
        .args(["export", "policies"])
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn exported(arguments: &[&str]) -> Vec<Value> {
    let (code, text, errors) = run(arguments);
    assert_eq!((code, errors.as_str()), (0, ""), "{arguments:?}");
    let parsed = parse(&text, &Limits::default());
    assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);
    parsed.documents.iter().map(|document| document.root().to_json().unwrap()).collect()
}

/// Kind, version and name of each object, and what a binding does.
fn outline(objects: &[Value]) -> String {
    let mut lines = Vec::new();
    for object in objects {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let version = text("/apiVersion").rsplit('/').next().unwrap_or_default();
        let mut line = format!("{version} {} {}", text("/kind"), text("/metadata/name"));
        for pointer in ["/spec/validationActions", "/spec/matchResources/namespaceSelector"] {
            if let Some(value) = object.pointer(pointer) {
                let _ = write!(line, " {value}");
            }
        }
        lines.push(line);
    }
    lines.join("\n")
}

#[test]
fn a_policy_rejects_pods_and_another_warns_about_workloads() {
    insta::assert_snapshot!(outline(&exported(&["--level", "baseline", "--policy-version", "v1.30"])), @r#"
    v1 ValidatingAdmissionPolicy pod-security-baseline-v1.30.palisade.dev
    v1 ValidatingAdmissionPolicyBinding pod-security-baseline-v1.30.palisade.dev ["Deny"] {"matchExpressions":[{"key":"kubernetes.io/metadata.name","operator":"NotIn","values":["kube-system"]}]}
    v1 ValidatingAdmissionPolicy pod-security-baseline-v1.30-workloads.palisade.dev
    v1 ValidatingAdmissionPolicyBinding pod-security-baseline-v1.30-workloads.palisade.dev ["Warn","Audit"] {"matchExpressions":[{"key":"kubernetes.io/metadata.name","operator":"NotIn","values":["kube-system"]}]}
    "#);
}

#[test]
fn labels_are_followed_in_all_three_modes() {
    let arguments = ["--follow-labels", "--exempt-namespaces", "", "--kubernetes-version", "v1.30"];
    insta::assert_snapshot!(outline(&exported(&arguments)), @r#"
    v1 ValidatingAdmissionPolicy pod-security-labels-enforce.palisade.dev
    v1 ValidatingAdmissionPolicyBinding pod-security-labels-enforce.palisade.dev ["Deny"]
    v1 ValidatingAdmissionPolicy pod-security-labels-audit-pods.palisade.dev
    v1 ValidatingAdmissionPolicyBinding pod-security-labels-audit-pods.palisade.dev ["Audit"]
    v1 ValidatingAdmissionPolicy pod-security-labels-audit-workloads.palisade.dev
    v1 ValidatingAdmissionPolicyBinding pod-security-labels-audit-workloads.palisade.dev ["Audit"]
    v1 ValidatingAdmissionPolicy pod-security-labels-warn-pods.palisade.dev
    v1 ValidatingAdmissionPolicyBinding pod-security-labels-warn-pods.palisade.dev ["Warn"]
    v1 ValidatingAdmissionPolicy pod-security-labels-warn-workloads.palisade.dev
    v1 ValidatingAdmissionPolicyBinding pod-security-labels-warn-workloads.palisade.dev ["Warn"]
    "#);
}

#[test]
fn versions_of_the_objects_follow_the_release() {
    for (release, version) in [("v1.34", "v1beta1"), ("v1.35", "v1beta1"), ("v1.36", "v1"), ("v1.37", "v1")] {
        let objects = exported(&["--level", "restricted", "--defaults", "--kubernetes-version", release]);
        let expected = format!("admissionregistration.k8s.io/{version}");
        assert_eq!(objects[0]["apiVersion"], expected.as_str(), "{release}");
        assert_eq!(objects[2]["apiVersion"], "admissionregistration.k8s.io/v1", "{release}");
    }
    // Functions that an API server of the release does not accept in new expressions.
    for (release, expected) in [("v1.30", false), ("v1.34", false), ("v1.35", true)] {
        let text = run(&["--level", "restricted", "--kubernetes-version", release]).1;
        for function in [".distinct()", ".sort()", ".flatten()"] {
            assert_eq!(text.contains(function), expected, "{release} {function}");
        }
    }
}

#[test]
fn the_rules_of_a_version_are_in_the_policy() {
    let objects = exported(&[
        "--level",
        "baseline",
        "--policy-version",
        "v1.29",
        "--kubernetes-version",
        "v1.30",
        "--exempt-users",
        "root,system:admin",
        "--exempt-runtime-classes",
        "vm",
        "--namespace-selector",
        "team=a,!legacy",
    ]);
    insta::assert_snapshot!(palisade_yaml::to_yaml(&objects[0]["spec"], 0), @r#"
    failurePolicy: Fail
    matchConditions:
    - expression: "!(request.userInfo.username in ['root', 'system:admin'])"
      name: user-is-not-exempt
    - expression: request.operation != 'UPDATE' || object.spec.containers.map(c, c.?image.orValue('')) != oldObject.spec.containers.map(c, c.?image.orValue('')) || object.spec.?initContainers.orValue([]).map(c, c.?image.orValue('')) != oldObject.spec.?initContainers.orValue([]).map(c, c.?image.orValue('')) || !object.spec.?ephemeralContainers.orValue([]).all(c, oldObject.spec.?ephemeralContainers.orValue([]).exists(o, o.name == c.name && o.?image.orValue('') == c.?image.orValue('')))
      name: update-is-significant
    matchConstraints:
      resourceRules:
      - apiGroups:
        - ""
        apiVersions:
        - v1
        operations:
        - CREATE
        - UPDATE
        resources:
        - pods
        - pods/ephemeralcontainers
    validations:
    - expression: size(variables.violations) == 0
      message: violates PodSecurity "baseline:v1.29"
      messageExpression: "size(variables.message) > 5000 ? variables.message.substring(0, 4997) + '...' : variables.message"
      reason: Forbidden
    variables:
    - expression: dyn(object)
      name: pod
    - expression: variables.pod.?spec.orValue({})
      name: spec
    - expression: variables.spec.?securityContext.orValue({})
      name: podContext
    - expression: variables.spec.?initContainers.orValue([]) + variables.spec.?containers.orValue([]) + variables.spec.?ephemeralContainers.orValue([])
      name: containers
    - expression: variables.spec.?volumes.orValue([])
      name: volumes
    - expression: variables.pod.?metadata.?annotations.orValue({})
      name: annotations
    - expression: variables.spec.?os.?name.orValue('') == 'windows'
      name: isWindows
    - expression: "!variables.spec.?hostUsers.orValue(true)"
      name: hasUserNamespace
    - expression: variables.podContext.?appArmorProfile.optMap(p, !(p.?type.orValue('') in ['RuntimeDefault', 'Localhost'])).orValue(false)
      name: appArmorOfPod
    - expression: variables.containers.map(c, c.?securityContext.?appArmorProfile.optMap(p, !(p.?type.orValue('') in ['RuntimeDefault', 'Localhost'])).orValue(false), c.name)
      name: appArmorContainers
    - expression: variables.annotations.filter(k, k.startsWith('container.apparmor.security.beta.kubernetes.io/') && !(variables.annotations[k] in ['', 'runtime/default'] || variables.annotations[k].startsWith('localhost/')))
      name: appArmorAnnotations
    - expression: "((variables.appArmorOfPod ? [variables.podContext.appArmorProfile.?type.orValue('')] : []) + variables.containers.map(c, c.?securityContext.?appArmorProfile.optMap(p, !(p.?type.orValue('') in ['RuntimeDefault', 'Localhost'])).orValue(false), c.securityContext.appArmorProfile.?type.orValue(''))) + (variables.appArmorAnnotations.map(k, k + '=' + strings.quote(variables.annotations[k])))"
      name: appArmorValues
    - expression: "size(variables.appArmorValues) > 0 ? (size(variables.appArmorValues) == 1 ? 'forbidden AppArmor profile' : 'forbidden AppArmor profiles') + ' (' + ((variables.appArmorOfPod ? ['pod'] : []) + (size(variables.appArmorContainers) > 0 ? [(size(variables.appArmorContainers) == 1 ? 'container ' : 'containers ') + '\"' + variables.appArmorContainers.join('\", \"') + '\"'] : []) + (size(variables.appArmorAnnotations) > 0 ? [(size(variables.appArmorAnnotations) == 1 ? 'annotation' : 'annotations')] : [])).join(' and ') + ' must not set AppArmor profile type to ' + '\"' + variables.appArmorValues.join('\", \"') + '\"' + ')' : ''"
      name: appArmorProfile
    - expression: variables.containers.map(c, c.?securityContext.?capabilities.?add.orValue([]).exists(x, !(x in ['AUDIT_WRITE', 'CHOWN', 'DAC_OVERRIDE', 'FOWNER', 'FSETID', 'KILL', 'MKNOD', 'NET_BIND_SERVICE', 'SETFCAP', 'SETGID', 'SETPCAP', 'SETUID', 'SYS_CHROOT'])), c.name)
      name: addingCapabilities
    - expression: (variables.containers.map(c, c.?securityContext.?capabilities.?add.orValue([]).exists(x, !(x in ['AUDIT_WRITE', 'CHOWN', 'DAC_OVERRIDE', 'FOWNER', 'FSETID', 'KILL', 'MKNOD', 'NET_BIND_SERVICE', 'SETFCAP', 'SETGID', 'SETPCAP', 'SETUID', 'SYS_CHROOT'])), c.?securityContext.?capabilities.?add.orValue([]).filter(x, !(x in ['AUDIT_WRITE', 'CHOWN', 'DAC_OVERRIDE', 'FOWNER', 'FSETID', 'KILL', 'MKNOD', 'NET_BIND_SERVICE', 'SETFCAP', 'SETGID', 'SETPCAP', 'SETUID', 'SYS_CHROOT'])))).map(l, l.join('", "'))
      name: addedCapabilities
    - expression: "size(variables.addingCapabilities) > 0 ? 'non-default capabilities (' + (size(variables.addingCapabilities) == 1 ? 'container ' : 'containers ') + '\"' + variables.addingCapabilities.join('\", \"') + '\"' + ' must not include ' + '\"' + variables.addedCapabilities.join('\", \"') + '\"' + ' in securityContext.capabilities.add' + ')' : ''"
      name: capabilities_baseline
    - expression: "(variables.spec.?hostNetwork.orValue(false) ? ['hostNetwork=true'] : []) + (variables.spec.?hostPID.orValue(false) ? ['hostPID=true'] : []) + (variables.spec.?hostIPC.orValue(false) ? ['hostIPC=true'] : [])"
      name: hostNamespacesJoined
    - expression: "size(variables.hostNamespacesJoined) > 0 ? 'host namespaces (' + variables.hostNamespacesJoined.join(', ') + ')' : ''"
      name: hostNamespaces
    - expression: variables.volumes.map(v, has(v.hostPath), v.name)
      name: hostPathVolumeNames
    - expression: "size(variables.hostPathVolumeNames) > 0 ? 'hostPath volumes (' + (size(variables.hostPathVolumeNames) == 1 ? 'volume ' : 'volumes ') + '\"' + variables.hostPathVolumeNames.join('\", \"') + '\"' + ')' : ''"
      name: hostPathVolumes
    - expression: variables.containers.map(c, c.?ports.orValue([]).exists(p, p.?hostPort.orValue(0) != 0), c.name)
      name: hostPortContainers
    - expression: (variables.containers.map(c, c.?ports.orValue([]).exists(p, p.?hostPort.orValue(0) != 0), c.?ports.orValue([]).map(p, p.?hostPort.orValue(0) != 0, string(p.hostPort)))).map(l, l.join(', '))
      name: hostPortNumbers
    - expression: "size(variables.hostPortContainers) > 0 ? 'hostPort (' + (size(variables.hostPortContainers) == 1 ? 'container ' : 'containers ') + '\"' + variables.hostPortContainers.join('\", \"') + '\"' + (size(variables.hostPortContainers) == 1 ? ' uses ' : ' use ') + (size(variables.hostPortNumbers) == 1 ? 'hostPort ' : 'hostPorts ') + variables.hostPortNumbers.join(', ') + ')' : ''"
      name: hostPorts
    - expression: variables.containers.map(c, c.?securityContext.?privileged.orValue(false), c.name)
      name: privilegedContainers
    - expression: "size(variables.privilegedContainers) > 0 ? 'privileged (' + (size(variables.privilegedContainers) == 1 ? 'container ' : 'containers ') + '\"' + variables.privilegedContainers.join('\", \"') + '\"' + ' must not set securityContext.privileged=true' + ')' : ''"
      name: privileged
    - expression: variables.containers.map(c, c.?securityContext.?procMount.orValue('Default') != 'Default', c.name)
      name: unmaskedContainers
    - expression: "size(variables.unmaskedContainers) > 0 ? 'procMount (' + (size(variables.unmaskedContainers) == 1 ? 'container ' : 'containers ') + '\"' + variables.unmaskedContainers.join('\", \"') + '\"' + ' must not set securityContext.procMount to ' + '\"' + (variables.containers.map(c, c.?securityContext.?procMount.orValue('Default') != 'Default', c.securityContext.procMount)).join('\", \"') + '\"' + ')' : ''"
      name: procMount
    - expression: variables.podContext.?seLinuxOptions.optMap(o, !(o.?type.orValue('') in ['', 'container_t', 'container_init_t', 'container_kvm_t']) || o.?user.orValue('') != '' || o.?role.orValue('') != '').orValue(false)
      name: seLinuxPod
    - expression: variables.containers.map(c, c.?securityContext.?seLinuxOptions.optMap(o, !(o.?type.orValue('') in ['', 'container_t', 'container_init_t', 'container_kvm_t']) || o.?user.orValue('') != '' || o.?role.orValue('') != '').orValue(false), c.name)
      name: seLinuxContainers
    - expression: "(variables.podContext.?seLinuxOptions.hasValue() ? [variables.podContext.seLinuxOptions] : []) + variables.containers.map(c, c.?securityContext.?seLinuxOptions.hasValue(), c.securityContext.seLinuxOptions)"
      name: seLinuxGiven
    - expression: (variables.seLinuxGiven.map(o, !(o.?type.orValue('') in ['', 'container_t', 'container_init_t', 'container_kvm_t']), o.type))
      name: seLinuxTypes
    - expression: "variables.seLinuxPod || size(variables.seLinuxContainers) > 0 ? 'seLinuxOptions (' + ((variables.seLinuxPod ? 'pod' : '') + (variables.seLinuxPod && size(variables.seLinuxContainers) > 0 ? ' and ' : '') + (size(variables.seLinuxContainers) > 0 ? (size(variables.seLinuxContainers) == 1 ? 'container ' : 'containers ') + '\"' + variables.seLinuxContainers.join('\", \"') + '\"' : '')) + ' set forbidden securityContext.seLinuxOptions: ' + ((size(variables.seLinuxTypes) > 0 ? [(size(variables.seLinuxTypes) == 1 ? 'type ' : 'types ') + '\"' + variables.seLinuxTypes.join('\", \"') + '\"'] : []) + (variables.seLinuxGiven.exists(o, o.?user.orValue('') != '') ? ['user may not be set'] : []) + (variables.seLinuxGiven.exists(o, o.?role.orValue('') != '') ? ['role may not be set'] : [])).join('; ') + ')' : ''"
      name: seLinuxOptions
    - expression: variables.podContext.?seccompProfile.optMap(p, !(p.?type.orValue('') in ['RuntimeDefault', 'Localhost'])).orValue(false)
      name: badSeccompPod
    - expression: variables.containers.map(c, c.?securityContext.?seccompProfile.optMap(p, !(p.?type.orValue('') in ['RuntimeDefault', 'Localhost'])).orValue(false), c.name)
      name: badSeccompContainers
    - expression: "variables.badSeccompPod || size(variables.badSeccompContainers) > 0 ? 'seccompProfile (' + ((variables.badSeccompPod ? 'pod' : '') + (variables.badSeccompPod && size(variables.badSeccompContainers) > 0 ? ' and ' : '') + (size(variables.badSeccompContainers) > 0 ? (size(variables.badSeccompContainers) == 1 ? 'container ' : 'containers ') + '\"' + variables.badSeccompContainers.join('\", \"') + '\"' : '')) + ' must not set securityContext.seccompProfile.type to ' + '\"' + ((variables.badSeccompPod ? [variables.podContext.seccompProfile.?type.orValue('')] : []) + variables.containers.map(c, c.?securityContext.?seccompProfile.optMap(p, !(p.?type.orValue('') in ['RuntimeDefault', 'Localhost'])).orValue(false), c.securityContext.seccompProfile.?type.orValue(''))).join('\", \"') + '\"' + ')' : ''"
      name: seccompProfile_baseline
    - expression: variables.podContext.?sysctls.orValue([]).map(s, !(s.name in ['kernel.shm_rmid_forced', 'net.ipv4.ip_local_port_range', 'net.ipv4.tcp_syncookies', 'net.ipv4.ping_group_range', 'net.ipv4.ip_unprivileged_port_start', 'net.ipv4.ip_local_reserved_ports', 'net.ipv4.tcp_keepalive_time', 'net.ipv4.tcp_fin_timeout', 'net.ipv4.tcp_keepalive_intvl', 'net.ipv4.tcp_keepalive_probes']), s.name)
      name: forbiddenSysctls
    - expression: "size(variables.forbiddenSysctls) > 0 ? 'forbidden sysctls (' + variables.forbiddenSysctls.join(', ') + ')' : ''"
      name: sysctls
    - expression: variables.podContext.?windowsOptions.?hostProcess.orValue(false)
      name: hostProcessPod
    - expression: variables.containers.map(c, c.?securityContext.?windowsOptions.?hostProcess.orValue(false), c.name)
      name: hostProcessContainers
    - expression: "variables.hostProcessPod || size(variables.hostProcessContainers) > 0 ? 'hostProcess (' + ((variables.hostProcessPod ? 'pod' : '') + (variables.hostProcessPod && size(variables.hostProcessContainers) > 0 ? ' and ' : '') + (size(variables.hostProcessContainers) > 0 ? (size(variables.hostProcessContainers) == 1 ? 'container ' : 'containers ') + '\"' + variables.hostProcessContainers.join('\", \"') + '\"' : '')) + ' must not set securityContext.windowsOptions.hostProcess=true' + ')' : ''"
      name: windowsHostProcess
    - expression: "variables.spec.?runtimeClassName.orValue('') in ['vm'] ? [] : [variables.appArmorProfile, variables.capabilities_baseline, variables.hostNamespaces, variables.hostPathVolumes, variables.hostPorts, variables.privileged, variables.procMount, variables.seLinuxOptions, variables.seccompProfile_baseline, variables.sysctls, variables.windowsHostProcess].filter(v, v != '')"
      name: violations
    - expression: "'violates PodSecurity \"' + 'baseline:v1.29' + '\": ' + variables.violations.join(', ')"
      name: message
    "#);
    insta::assert_snapshot!(palisade_yaml::to_yaml(&objects[1]["spec"], 0), @"
    matchResources:
      namespaceSelector:
        matchExpressions:
        - key: legacy
          operator: DoesNotExist
        - key: kubernetes.io/metadata.name
          operator: NotIn
          values:
          - kube-system
        matchLabels:
          team: a
    policyName: pod-security-baseline-v1.29.palisade.dev
    validationActions:
    - Deny
    ");
}

#[test]
fn names_of_files_end_as_the_api_server_requires() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policies");
    let arguments = ["--level", "restricted", "--defaults", "--static-manifests", path.to_str().unwrap()];
    let (code, configuration, errors) = run(&arguments);
    assert_eq!((code, errors.as_str()), (0, ""));
    insta::assert_snapshot!(configuration.replace(folder.path().to_str().unwrap(), "DIR"), @"
    apiVersion: apiserver.config.k8s.io/v1
    kind: AdmissionConfiguration
    plugins:
    - configuration:
        apiVersion: apiserver.config.k8s.io/v1
        kind: ValidatingAdmissionPolicyConfiguration
        staticManifestsDir: DIR/policies/validating
      name: ValidatingAdmissionPolicy
    - configuration:
        apiVersion: apiserver.config.k8s.io/v1
        kind: MutatingAdmissionPolicyConfiguration
        staticManifestsDir: DIR/policies/mutating
      name: MutatingAdmissionPolicy
    ");
    for (plugin, file) in
        [("Validating", "validating/pod-security.yaml"), ("Mutating", "mutating/pod-security.yaml")]
    {
        let text = std::fs::read_to_string(path.join(file)).unwrap();
        for document in &parse(&text, &Limits::default()).documents {
            let object = document.root().to_json().unwrap();
            assert!(object["kind"].as_str().unwrap().starts_with(plugin), "{object}");
            assert!(object["metadata"]["name"].as_str().unwrap().ends_with(".static.k8s.io"), "{object}");
            let policy = object["spec"].get("policyName").and_then(Value::as_str);
            assert!(policy.is_none_or(|name| name.ends_with(".static.k8s.io")), "{object}");
        }
    }
    // Written again, nothing else is left in the folder.
    assert_eq!(run(&arguments).0, 0);
    assert_eq!(std::fs::read_dir(path.join("validating")).unwrap().count(), 1);
}

#[test]
fn what_cannot_be_exported_is_an_error() {
    let mut texts = String::new();
    for arguments in [
        &["--level", "privileged"][..],
        &["--level", "strict"],
        &[],
        &["--level", "baseline", "--kubernetes-version", "v1.29"],
        &["--level", "baseline", "--kubernetes-version", "extended"],
        &["--level", "baseline", "--policy-version", "v1.99"],
        &["--level", "baseline", "--defaults"],
        &["--level", "restricted", "--defaults", "--kubernetes-version", "v1.33"],
        &["--follow-labels", "--defaults"],
        &["--level", "baseline", "--static-manifests", "x", "--kubernetes-version", "v1.35"],
        &["--level", "baseline", "--namespace-selector", "a in (b)"],
    ] {
        let (code, out, errors) = run(arguments);
        assert_eq!((code, out.as_str()), (2, ""), "{arguments:?}");
        texts.push_str(errors.lines().next().unwrap_or_default());
        texts.push('\n');
    }
    insta::assert_snapshot!(texts, @"
    error: level privileged forbids nothing: choose baseline or restricted, or follow the labels of namespaces
    error: invalid value 'strict' for '--level <LEVEL>': must be one of privileged, baseline, restricted
    error: the following required arguments were not provided:
    error: Kubernetes v1.29 does not serve ValidatingAdmissionPolicy v1: supported versions are v1.30 to v1.37
    error: --kubernetes-version: policies are for releases of Kubernetes
    error: invalid value 'v1.99' for '--policy-version <VERSION>': supported versions are v1.0 to v1.37, and latest
    error: defaults are what level restricted requires: choose it, without following the labels of namespaces
    error: Kubernetes v1.33 does not serve MutatingAdmissionPolicy: defaults need v1.34 or later
    error: defaults are what level restricted requires: choose it, without following the labels of namespaces
    error: Kubernetes v1.35 does not load policies from files: that needs v1.36 or later
    error: invalid value 'a in (b)' for '--namespace-selector <LABELS>': write it as key=value, key!=value, key or !key, separated by commas
    ");
}

#[test]
fn an_exception_that_cannot_be_decided_by_expressions_is_not_exported() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("exceptions.yaml");
    let exception = |field: &str, until: &str| {
        format!(
            "apiVersion: palisade.dev/v1alpha1\nkind: SecurityException\nmetadata: {{name: first}}\nspec:\n  namespaces: [shop]\n  \
             allow: [{{control: privileged, field: '{field}', values: ['true']}}]\n  reason: r\n  owner: o\n  ticket: t\n  until: '{until}'\n"
        )
    };
    let until = "2999-01-01T00:00:00Z";
    for (field, until, expected) in [
        ("spec.containers[0].securityContext.privileged", until, "names a position in a list"),
        ("spec.containers[*].securityContext.privileged", "soon", "cannot be applied"),
    ] {
        std::fs::write(&file, exception(field, until)).unwrap();
        let (code, out, errors) = run(&["--level", "baseline", "--exceptions", file.to_str().unwrap()]);
        assert_eq!((code, out.as_str()), (2, ""), "{field} {until}");
        assert!(errors.contains(expected), "{errors}");
    }
    std::fs::write(&file, exception("spec.containers[*].securityContext.privileged", until)).unwrap();
    let text = run(&["--level", "baseline", "--exceptions", file.to_str().unwrap()]).1;
    assert!(
        text.contains("timestamp(object.metadata.creationTimestamp) < timestamp('2999-01-01T00:00:00Z')"),
        "{text}"
    );
}
