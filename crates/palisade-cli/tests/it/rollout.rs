//! `palisade rollout`, on the documented example.

use std::path::Path;

use serde_json::Value;

use crate::support::{GOOD, Project, Run};

fn example(arguments: &[&str]) -> Run {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/rollout/cluster");
    let folder = folder.to_str().unwrap();
    Project::new().run(&[&["rollout"], arguments, &[folder]].concat())
}

#[test]
fn status_names_every_blocker_with_its_cause() {
    insta::assert_snapshot!(example(&["status"]), @r#"
    NAMESPACE        LEVEL       COMPLIES    BLOCKERS  REASON
    by-user          restricted  baseline    1         PSALabel: ServiceAccount with insufficient SCCs
    no-syncer        restricted  privileged  1         PSAConfig: PSA label syncer disabled
    openshift-addon  restricted  privileged  1         PSAConfig: Misconfigured OpenShift Namespace
    shop             restricted  restricted  0         -

    namespace by-user, level restricted
      Pod debug, admitted by anyuid through a user, not its service account default
        spec.containers[0].securityContext.allowPrivilegeEscalation  allowPrivilegeEscalation   allowed: false
        spec.containers[0].securityContext.capabilities.drop         capabilities_restricted    allowed: a drop list with ALL
        spec.securityContext.runAsNonRoot                            runAsNonRoot               allowed: true, for the pod or for every container
        spec.containers[0].securityContext.runAsUser                 runAsUser                  allowed: any user ID but 0, or no value
        spec.securityContext.seccompProfile.type                     seccompProfile_restricted  allowed: RuntimeDefault or Localhost
      fix: change these fields, or let the pod's service account use the constraint named in the pod's annotation openshift.io/scc, or set pod-security.kubernetes.io/enforce on the namespace
        kubectl create rolebinding anyuid-default --namespace=by-user --clusterrole=system:openshift:scc:anyuid --serviceaccount=by-user:default
        kubectl label --overwrite namespace by-user pod-security.kubernetes.io/enforce=baseline

    namespace no-syncer, level restricted
      CronJob backup, admitted by hostmount-anyuid
        spec.jobTemplate.spec.template.spec.containers[0].securityContext.allowPrivilegeEscalation  allowPrivilegeEscalation   allowed: false
        spec.jobTemplate.spec.template.spec.containers[0].securityContext.capabilities.drop         capabilities_restricted    allowed: a drop list with ALL
        spec.jobTemplate.spec.template.spec.volumes[0].hostPath                                     restrictedVolumes          allowed: configMap, csi, downwardAPI, emptyDir, ephemeral, image, persistentVolumeClaim, projected or secret
        spec.jobTemplate.spec.template.spec.securityContext.runAsNonRoot                            runAsNonRoot               allowed: true, for the pod or for every container
        spec.jobTemplate.spec.template.spec.securityContext.seccompProfile.type                     seccompProfile_restricted  allowed: RuntimeDefault or Localhost
      its service accounts may use hostmount-anyuid: allowHostDirVolumePlugin, volumes
      fix: change these fields, or set security.openshift.io/scc.podSecurityLabelSync=true, or set pod-security.kubernetes.io/enforce on the namespace
        kubectl label --overwrite namespace no-syncer security.openshift.io/scc.podSecurityLabelSync=true
        kubectl label --overwrite namespace no-syncer pod-security.kubernetes.io/enforce=privileged

    namespace openshift-addon, level restricted
      Pod agent, admitted by privileged
        spec.hostNetwork                                             hostNamespaces             allowed: false, or no value
        spec.containers[0].securityContext.allowPrivilegeEscalation  allowPrivilegeEscalation   allowed: false
        spec.containers[0].securityContext.capabilities.drop         capabilities_restricted    allowed: a drop list with ALL
        spec.securityContext.runAsNonRoot                            runAsNonRoot               allowed: true, for the pod or for every container
        spec.securityContext.seccompProfile.type                     seccompProfile_restricted  allowed: RuntimeDefault or Localhost
      fix: change these fields, or give the namespace another name, or set pod-security.kubernetes.io/enforce on it
        kubectl label --overwrite namespace openshift-addon pod-security.kubernetes.io/enforce=privileged

    3 of 4 namespaces block enforcement
    note: the input belongs to OpenShift and has no SecurityContextConstraints, so that those of a new cluster are assumed
    exit status: 1
    "#);
}

#[test]
fn plan_is_a_script() {
    insta::assert_snapshot!(example(&["plan"]), @r#"
    # by-user: PSALabel: ServiceAccount with insufficient SCCs
    #   Pod debug
    #     spec.containers[0].securityContext.allowPrivilegeEscalation, allowed: false
    #     spec.containers[0].securityContext.capabilities.drop, allowed: a drop list with ALL
    #     spec.securityContext.runAsNonRoot, allowed: true, for the pod or for every container
    #     spec.containers[0].securityContext.runAsUser, allowed: any user ID but 0, or no value
    #     spec.securityContext.seccompProfile.type, allowed: RuntimeDefault or Localhost
    # better: kubectl create rolebinding anyuid-default --namespace=by-user --clusterrole=system:openshift:scc:anyuid --serviceaccount=by-user:default
    kubectl label --overwrite namespace by-user pod-security.kubernetes.io/enforce=baseline

    # no-syncer: PSAConfig: PSA label syncer disabled
    #   CronJob backup
    #     spec.jobTemplate.spec.template.spec.containers[0].securityContext.allowPrivilegeEscalation, allowed: false
    #     spec.jobTemplate.spec.template.spec.containers[0].securityContext.capabilities.drop, allowed: a drop list with ALL
    #     spec.jobTemplate.spec.template.spec.volumes[0].hostPath, allowed: configMap, csi, downwardAPI, emptyDir, ephemeral, image, persistentVolumeClaim, projected or secret
    #     spec.jobTemplate.spec.template.spec.securityContext.runAsNonRoot, allowed: true, for the pod or for every container
    #     spec.jobTemplate.spec.template.spec.securityContext.seccompProfile.type, allowed: RuntimeDefault or Localhost
    # better: kubectl label --overwrite namespace no-syncer security.openshift.io/scc.podSecurityLabelSync=true
    kubectl label --overwrite namespace no-syncer pod-security.kubernetes.io/enforce=privileged

    # openshift-addon: PSAConfig: Misconfigured OpenShift Namespace
    #   Pod agent
    #     spec.hostNetwork, allowed: false, or no value
    #     spec.containers[0].securityContext.allowPrivilegeEscalation, allowed: false
    #     spec.containers[0].securityContext.capabilities.drop, allowed: a drop list with ALL
    #     spec.securityContext.runAsNonRoot, allowed: true, for the pod or for every container
    #     spec.securityContext.seccompProfile.type, allowed: RuntimeDefault or Localhost
    kubectl label --overwrite namespace openshift-addon pod-security.kubernetes.io/enforce=privileged

    note: the input belongs to OpenShift and has no SecurityContextConstraints, so that those of a new cluster are assumed
    exit status: 1
    "#);
}

#[test]
fn json_has_the_same_facts() {
    let run = example(&["status", "-o", "json"]);
    assert_eq!(run.status, 1, "{run}");
    let json = run.json();
    assert_eq!(json["violatingNamespaceCount"], 3);
    let facts: Vec<(&str, &str, usize)> = json["namespaces"]
        .as_array()
        .unwrap()
        .iter()
        .map(|namespace| {
            let text = |key: &str| namespace[key].as_str().unwrap_or("-");
            (text("name"), text("reason"), namespace["blockers"].as_array().map_or(0, Vec::len))
        })
        .collect();
    assert_eq!(
        facts,
        [
            ("by-user", "PSALabel: ServiceAccount with insufficient SCCs", 1),
            ("no-syncer", "PSAConfig: PSA label syncer disabled", 1),
            ("openshift-addon", "PSAConfig: Misconfigured OpenShift Namespace", 1),
            ("shop", "-", 0),
        ]
    );
    let cause = &json["namespaces"][1]["blockers"][0]["causes"][0];
    assert!(cause["path"].as_str().unwrap().starts_with("spec.jobTemplate.spec.template.spec."), "{cause:#}");
    assert_eq!(json["namespaces"][3]["command"], Value::Null);
}

#[test]
fn reads_lists_from_stdin_and_objects_without_a_namespace() {
    let list = serde_json::json!({"apiVersion": "v1", "kind": "PodList", "items": [
        {"metadata": {"name": "p"}, "spec": {"hostPID": true, "containers": [{"name": "c", "image": "i"}]}},
    ]});
    let run = Project::new()
        .run_with_stdin(&["rollout", "status", "-n", "team", "-o", "json", "-"], list.to_string());
    assert_eq!(run.status, 1, "{run}");
    let namespace = &run.json()["namespaces"][0];
    assert_eq!((&namespace["name"], &namespace["complies"]), (&"team".into(), &"privileged".into()));
    assert_eq!(namespace["blockers"][0]["name"], "p");
}

/// A level that part of a namespace was not judged for is never shown as one that the namespace complies with.
#[test]
fn a_namespace_that_cannot_be_judged_complies_with_no_level() {
    let unreadable = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {template: {spec: {containers: 7}}}\n";
    for (case, other, judged) in [
        ("nothing else", String::new(), None),
        ("beside a pod that complies", format!("---\n{GOOD}"), None),
        ("alone", GOOD.to_owned(), Some("restricted")),
    ] {
        let text = if judged.is_none() { format!("{unreadable}{other}") } else { other };
        let project = Project::with(&text);
        let run = project.run(&["rollout", "status", "-n", "team", "-o", "json", "pod.yaml"]);
        assert_eq!(run.json()["namespaces"][0]["complies"], serde_json::json!(judged), "{case}: {run}");
        let table = project.run(&["rollout", "status", "-n", "team", "pod.yaml"]);
        let row =
            table.stdout.lines().find(|line| line.starts_with("team")).unwrap_or_else(|| panic!("{table}"));
        let cell = row.split_whitespace().nth(2);
        assert_eq!(cell, Some(judged.unwrap_or("undecided")), "{case}: {table}");
    }
}

#[test]
fn exit_statuses_are_as_documented() {
    let good = Project::with(GOOD).run(&["rollout", "status", "-n", "team", "pod.yaml"]);
    assert_eq!(good.status, 0, "{good}");
    for (case, text) in [
        ("nothing of interest", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"),
        ("broken YAML", "apiVersion: v1\nkind: [\n"),
        ("no pod at all", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: 7\n"),
    ] {
        let run = Project::with(text).run(&["rollout", "status", "pod.yaml"]);
        assert_eq!(run.status, 2, "{case}: {run}");
        assert!(run.stderr.starts_with("error: "), "{case}: {run}");
    }
    assert_eq!(Project::new().run(&["rollout", "plan", "nowhere.yaml"]).status, 2);
}

/// Replicas that differ only in their names are reported once, a constraint of the user's own is granted with a role of its
/// own, and one that makes no sense is named.
#[test]
fn groups_replicas_and_uses_constraints_of_the_input() {
    let pod = |name: &str, account: &str| {
        serde_json::json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "team",
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true}],
                "annotations": {"openshift.io/scc": "ours", "security.openshift.io/validated-scc-subject-type": "user"}},
            "spec": {"serviceAccountName": account, "hostPID": true, "securityContext": {"runAsNonRoot": true,
                    "seccompProfile": {"type": "RuntimeDefault"}},
                "containers": [{"name": "c", "image": "i", "securityContext": {
                    "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]}})
    };
    let constraint = |name: &str, kind: &str| {
        serde_json::json!({"apiVersion": "security.openshift.io/v1", "kind": "SecurityContextConstraints",
            "metadata": {"name": name}, "allowHostPID": true, "runAsUser": {"type": kind},
            "seLinuxContext": {"type": "RunAsAny"}, "fsGroup": {"type": "RunAsAny"},
            "supplementalGroups": {"type": "RunAsAny"}, "volumes": ["*"]})
    };
    let items = [
        pod("web-1", "runner"),
        pod("web-2", "runner"),
        pod("web-3", "runner"),
        constraint("ours", "RunAsAny"),
        constraint("broken", "MustRunAs"),
    ];
    let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items});
    let run = Project::new().run_with_stdin(&["rollout", "status", "-"], list.to_string());
    insta::assert_snapshot!(run, @r#"
    NAMESPACE  LEVEL       COMPLIES    BLOCKERS  REASON
    team       restricted  privileged  3         PSALabel: ServiceAccount with insufficient SCCs

    namespace team, level restricted
      Pod web-1 (and 2 others) of ReplicaSet web, admitted by ours through a user, not its service account runner
        spec.hostPID  hostNamespaces  allowed: false, or no value
      fix: change these fields, or let the pod's service account use the constraint named in the pod's annotation openshift.io/scc, or set pod-security.kubernetes.io/enforce on the namespace
        kubectl create role use-ours --namespace=team --verb=use --resource=securitycontextconstraints.security.openshift.io --resource-name=ours && kubectl create rolebinding ours-runner --namespace=team --role=use-ours --serviceaccount=team:runner
        kubectl label --overwrite namespace team pod-security.kubernetes.io/enforce=privileged

    SecurityContextConstraints broken admits nothing and is skipped: MustRunAs requires a UID

    1 of 1 namespace blocks enforcement
    exit status: 1
    "#);
}

/// `kubectl get` leaves managed fields out by default; what the label syncer set is unknown then.
#[test]
fn notes_a_dump_without_managed_fields() {
    let enforce = "pod-security.kubernetes.io/enforce";
    let mut namespace = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team",
        "labels": {enforce: "privileged"},
        "annotations": {"security.openshift.io/MinimallySufficientPodSecurityStandard": "privileged"}}});
    let held_to = |namespace: &Value| {
        let run =
            Project::new().run_with_stdin(&["rollout", "status", "-o", "json", "-"], namespace.to_string());
        assert_eq!(run.status, 0, "{run}");
        (run.json()["namespaces"][0]["level"].clone(), run.stderr.contains("--show-managed-fields"))
    };
    assert_eq!(held_to(&namespace), (Value::Null, true));
    namespace["metadata"]["managedFields"] = serde_json::json!([{
        "manager": "pod-security-admission-label-synchronization-controller", "operation": "Apply",
        "fieldsV1": {"f:metadata": {"f:labels": {format!("f:{enforce}"): {}}}}}]);
    assert_eq!(held_to(&namespace), ("restricted".into(), false), "the syncer's own");
}

/// What the rollout of a cluster counts, `--exceptions` counts for manifests.
#[test]
fn exceptions_in_force_count_where_they_are_given() {
    let project = Project::new();
    let spec = GOOD.split_once("spec:").map_or("", |(_, spec)| spec);
    project.file(
        "app.yaml",
        format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: web, namespace: team}}\nspec:\n  hostNetwork: true{spec}"),
    );
    let exception = |until: &str| {
        format!(
            "apiVersion: palisade.dev/v1alpha1\nkind: SecurityException\nmetadata: {{name: one}}\nspec:\n  \
             namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: team}}}}\n  \
             allow: [{{control: hostNamespaces, field: spec.hostNetwork, values: [\"true\"]}}]\n  \
             reason: r\n  owner: o\n  ticket: t\n  until: \"{until}\"\n"
        )
    };
    project
        .file("in-force.yaml", exception("2999-01-01T00:00:00Z"))
        .file("ended.yaml", exception("2020-01-01T00:00:00Z"))
        .file("unreadable.yaml", exception("never"));
    assert_eq!(project.run(&["rollout", "status", "app.yaml"]).status, 1);
    for (file, status) in [("in-force.yaml", 0), ("ended.yaml", 1), ("unreadable.yaml", 2)] {
        let run = project.run(&["rollout", "status", "app.yaml", "--exceptions", file]);
        assert_eq!(run.status, status, "{file}: {run}");
    }
}
