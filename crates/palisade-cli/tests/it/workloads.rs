//! Custom resources that hold pods in forms of their own: what is found, where, and what stays undecided.

use std::fmt::Write as _;

use crate::support::{Project, Run};

struct Case {
    name: &'static str,
    text: &'static str,
    /// `code | line` of each finding of the standards, then whether it is undecided.
    expected: &'static [&'static str],
    undecided: bool,
}

const CASES: &[Case] = &[
    Case {
        name: "a Workflow",
        text: "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {generateName: w-}\nspec:\n  securityContext: {runAsNonRoot: true}\n  templates:\n  - name: main\n    container:\n      image: a\n      securityContext: {privileged: true}\n  - name: script\n    securityContext: {hostProcess: true}\n    script: {image: a, source: x}\n    sidecars:\n    - {name: docker, image: dind, securityContext: {procMount: Unmasked}}\n  - name: set\n    containerSet:\n      containers:\n      - {name: a, image: a, ports: [{containerPort: 1, hostPort: 1}]}\n  - name: steps\n    steps:\n    - - {name: x, template: main}\n",
        expected: &[
            "pss/privileged | securityContext: {privileged: true}",
            "pss/procMount | - {name: docker, image: dind, securityContext: {procMount: Unmasked}}",
            "pss/hostPorts | - {name: a, image: a, ports: [{containerPort: 1, hostPort: 1}]}",
        ],
        undecided: true,
    },
    Case {
        name: "a CronWorkflow",
        text: "apiVersion: argoproj.io/v1alpha1\nkind: CronWorkflow\nmetadata: {name: w}\nspec:\n  workflowSpec:\n    hostNetwork: true\n    templates:\n    - name: main\n      container: {image: a}\n",
        expected: &["pss/hostNamespaces | hostNetwork: true"],
        undecided: true,
    },
    Case {
        name: "a WorkflowTemplate with nothing wrong",
        text: "apiVersion: argoproj.io/v1alpha1\nkind: WorkflowTemplate\nmetadata: {name: w}\nspec:\n  templates:\n  - name: main\n    container: {image: a}\n",
        expected: &[],
        undecided: true,
    },
    Case {
        name: "a Rollout that names its workload",
        text: "apiVersion: argoproj.io/v1alpha1\nkind: Rollout\nmetadata: {name: r}\nspec:\n  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: web}\n",
        expected: &[],
        undecided: true,
    },
    Case {
        name: "a Task",
        text: "apiVersion: tekton.dev/v1\nkind: Task\nmetadata: {name: t}\nspec:\n  stepTemplate:\n    securityContext:\n      privileged: true\n  steps:\n  - {name: a, image: a, script: x}\n  - name: b\n    image: b\n    securityContext:\n      privileged: false\n  sidecars:\n  - {name: s, image: s, securityContext: {capabilities: {add: [SYS_ADMIN]}}}\n  volumes:\n  - {name: v, hostPath: {path: /}}\n",
        expected: &[
            "pss/privileged | privileged: true",
            "pss/capabilities_baseline | - {name: s, image: s, securityContext: {capabilities: {add: [SYS_ADMIN]}}}",
            "pss/hostPathVolumes | - {name: v, hostPath: {path: /}}",
        ],
        undecided: true,
    },
    Case {
        name: "a TaskRun with a pod template",
        text: "apiVersion: tekton.dev/v1\nkind: TaskRun\nmetadata: {name: t}\nspec:\n  podTemplate:\n    hostNetwork: true\n  taskSpec:\n    steps:\n    - {name: a, image: a}\n",
        expected: &["pss/hostNamespaces | hostNetwork: true"],
        undecided: true,
    },
    Case {
        name: "a Pipeline",
        text: "apiVersion: tekton.dev/v1\nkind: Pipeline\nmetadata: {name: p}\nspec:\n  tasks:\n  - name: a\n    taskRef: {name: x}\n  - name: b\n    taskSpec:\n      steps:\n      - {name: a, image: a, securityContext: {privileged: true}}\n",
        expected: &["pss/privileged | - {name: a, image: a, securityContext: {privileged: true}}"],
        undecided: true,
    },
    Case {
        name: "a Prometheus",
        text: "apiVersion: monitoring.coreos.com/v1\nkind: Prometheus\nmetadata: {name: p}\nspec:\n  hostNetwork: true\n  containers:\n  - name: prometheus\n    args: [a]\n  - name: proxy\n    image: proxy\n    securityContext: {privileged: true}\n",
        expected: &[
            "pss/hostNamespaces | hostNetwork: true",
            "pss/privileged | securityContext: {privileged: true}",
        ],
        undecided: true,
    },
    Case {
        name: "a VirtualMachine",
        text: "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {name: v}\nspec: {running: true, template: {spec: {domain: {devices: {}}}}}\n",
        expected: &[],
        undecided: true,
    },
    Case {
        name: "a SparkApplication",
        text: "apiVersion: sparkoperator.k8s.io/v1beta2\nkind: SparkApplication\nmetadata: {name: s}\nspec:\n  driver:\n    securityContext: {privileged: true}\n  executor:\n    podSecurityContext: {sysctls: [{name: kernel.msgmax, value: '1'}]}\n    initContainers:\n    - {name: i, image: i, securityContext: {capabilities: {add: [NET_RAW]}}}\n",
        expected: &[
            "pss/privileged | securityContext: {privileged: true}",
            "pss/sysctls | podSecurityContext: {sysctls: [{name: kernel.msgmax, value: '1'}]}",
            "pss/capabilities_baseline | - {name: i, image: i, securityContext: {capabilities: {add: [NET_RAW]}}}",
        ],
        undecided: true,
    },
    Case {
        name: "a FlinkDeployment",
        text: "apiVersion: flink.apache.org/v1beta1\nkind: FlinkDeployment\nmetadata: {name: f}\nspec:\n  podTemplate:\n    spec:\n      containers:\n      - name: flink-main-container\n        volumeMounts: [{name: v, mountPath: /v}]\n      volumes:\n      - {name: v, hostPath: {path: /v}}\n  taskManager:\n    podTemplate:\n      spec:\n        containers:\n        - name: flink-main-container\n          securityContext: {privileged: true}\n",
        expected: &[
            "pss/hostPathVolumes | - {name: v, hostPath: {path: /v}}",
            "pss/privileged | securityContext: {privileged: true}",
        ],
        undecided: true,
    },
    Case {
        name: "a Kafka",
        text: "apiVersion: kafka.strimzi.io/v1beta2\nkind: Kafka\nmetadata: {name: k}\nspec:\n  kafka:\n    template:\n      pod:\n        securityContext: {seccompProfile: {type: Unconfined}}\n      kafkaContainer:\n        securityContext: {privileged: true}\n  entityOperator:\n    template: {pod: {metadata: {labels: {a: b}}}}\n",
        expected: &[
            "pss/seccompProfile_baseline | securityContext: {seccompProfile: {type: Unconfined}}",
            "pss/privileged | securityContext: {privileged: true}",
        ],
        undecided: true,
    },
    Case {
        name: "a Composition",
        text: "apiVersion: apiextensions.crossplane.io/v1\nkind: Composition\nmetadata: {name: c}\nspec:\n  pipeline:\n  - step: a\n    input:\n      apiVersion: pt.fn.crossplane.io/v1beta1\n      kind: Resources\n      resources:\n      - name: x\n        base:\n          apiVersion: kubernetes.crossplane.io/v1alpha2\n          kind: Object\n          spec:\n            forProvider:\n              manifest:\n                apiVersion: v1\n                kind: Pod\n                metadata: {name: p}\n                spec:\n                  hostPID: true\n                  containers: [{name: c, image: c}]\n",
        expected: &["pss/hostNamespaces | hostPID: true"],
        undecided: true,
    },
    Case {
        name: "a KubeadmConfigTemplate",
        text: "apiVersion: bootstrap.cluster.x-k8s.io/v1beta1\nkind: KubeadmConfigTemplate\nmetadata: {name: k}\nspec:\n  template:\n    spec:\n      files:\n      - path: /etc/kubernetes/manifests/vip.yaml\n        content: |\n          apiVersion: v1\n          kind: Pod\n          metadata: {name: vip}\n          spec: {hostNetwork: true, containers: [{name: c, image: c}]}\n      - path: /etc/motd\n        content: hello\n",
        expected: &["pss/hostNamespaces | content: |"],
        undecided: false,
    },
    Case {
        name: "an Object without pods",
        text: "apiVersion: kubernetes.crossplane.io/v1alpha2\nkind: Object\nmetadata: {name: o}\nspec: {forProvider: {manifest: {apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: c}]}}}}\n",
        expected: &[],
        undecided: false,
    },
];

fn found(text: &str, run: &Run) -> Vec<String> {
    let json = run.json();
    let findings = json["findings"].as_array().unwrap().clone();
    let of_standards = findings
        .iter()
        .filter(|finding| finding["code"].as_str().is_some_and(|code| code.starts_with("pss/")));
    of_standards
        .map(|finding| {
            let line =
                usize::try_from(finding["line"].as_u64().expect("every finding has its line")).unwrap();
            let text = text.lines().nth(line - 1).unwrap().trim();
            format!("{} | {text}", finding["code"].as_str().unwrap())
        })
        .collect()
}

#[test]
fn parts_are_judged_and_the_rest_is_undecided() {
    let mut wrong = String::new();
    for case in CASES {
        let project = Project::with(case.text);
        let run = project.run(&["check", "--level=baseline", "-o", "json", "pod.yaml"]);
        let findings = found(case.text, &run);
        let json = run.json();
        let is_undecided = json["findings"]
            .as_array()
            .unwrap()
            .iter()
            .any(|finding| finding["code"] == "workload/undecided");
        let allowed = &json["objects"][0]["allowed"];
        let expected_allowed = case.expected.is_empty() && !case.undecided;
        if findings != case.expected || is_undecided != case.undecided || *allowed != expected_allowed {
            let _ = writeln!(
                wrong,
                "{}: {findings:#?} undecided {is_undecided}, allowed {allowed}\n{run}",
                case.name
            );
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn an_undecided_object_is_a_warning_and_neither_allowed_nor_denied() {
    let project = Project::with(CASES[2].text);
    insta::assert_snapshot!(project.run(&["check", "--level=baseline", "pod.yaml"]), @"
    warning[workload/undecided]: WorkflowTemplate w is only partly checked: Argo adds the containers init and wait
     --> pod.yaml:2:7
      |
    2 | kind: WorkflowTemplate
      |       ^^^^^^^^^^^^^^^^
      = because: what is not in the object is not known, so that it does not count as allowed

    1 object in 1 file checked at baseline:latest: 0 allowed, 0 denied, 1 undecided; 1 warning
    exit status: 0
    ");
}

#[test]
fn parts_are_fixed_where_they_are_written() {
    let text = "apiVersion: tekton.dev/v1\nkind: Task\nmetadata: {name: t}\nspec:\n  stepTemplate:\n    securityContext:\n      privileged: true\n  steps:\n  - name: a\n    image: a\n  - name: b\n    image: b\n";
    let project = Project::with(text);
    let run =
        project.run(&["check", "--level=baseline", "--fix", "--fix-partial", "--unsafe-fixes", "pod.yaml"]);
    assert!(project.read("pod.yaml").contains("      privileged: false\n  steps:"), "{run}");
    assert!(project.read("pod.yaml").contains("  - name: a\n    image: a\n"), "{run}");
}

#[test]
fn kinds_of_the_configuration_are_decided_by_their_path() {
    let worker = |spec: &str| {
        format!(
            "apiVersion: example.com/v1\nkind: Worker\nmetadata: {{name: w}}\nspec:\n  groups:\n  - template:\n      spec:\n        containers:\n        - {{name: a, image: a{spec}}}\n"
        )
    };
    for (case, text, status) in
        [("allowed", worker(""), 0), ("denied", worker(", securityContext: {privileged: true}"), 1)]
    {
        let project = Project::with(&text);
        project.file("palisade.toml", "level = \"baseline\"\n[[workload]]\ngroup = \"example.com\"\nkind = \"Worker\"\npath = \"spec.groups.*.template\"\n");
        let run = project.run(&["check", "-o", "json", "."]);
        assert_eq!(run.status, status, "{case}: {run}");
        assert_eq!(run.json()["objects"][0]["allowed"], status == 0, "{case}: {run}");
    }
}

#[test]
fn kinds_of_definitions_in_the_same_search_are_found() {
    let definition = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: workers.example.com}\nspec:\n  group: example.com\n  names: {kind: Worker, plural: workers}\n  scope: Namespaced\n  versions:\n  - name: v1\n    served: true\n    storage: true\n    schema:\n      openAPIV3Schema:\n        type: object\n        properties:\n          spec:\n            type: object\n            properties:\n              pod:\n                type: object\n                properties:\n                  containers:\n                    type: array\n                    items:\n                      type: object\n                      properties: {name: {type: string}, image: {type: string}, securityContext: {type: object}}\n";
    let project = Project::new();
    project.file("crds/worker.yaml", definition).file(
        "worker.yaml",
        "apiVersion: example.com/v1\nkind: Worker\nmetadata: {name: w}\nspec:\n  pod:\n    containers:\n    - name: a\n      image: a\n      securityContext:\n        privileged: true\n",
    );
    insta::assert_snapshot!(project.run(&["check", "--level=baseline", "."]), @r#"
    warning[workload/undecided]: Worker w is only partly checked: what its controller adds is not known
     --> worker.yaml:2:7
      |
    2 | kind: Worker
      |       ^^^^^^
      = because: what is not in the object is not known, so that it does not count as allowed

    error[pss/privileged]: container "a" is privileged
      --> worker.yaml:10:21
       |
    10 |         privileged: true
       |                     ^^^^ baseline allows false, or no value
       = because: Pod Security Standards v1.37, Baseline, "Privileged Containers": a privileged container is root on the node
       = help: set `securityContext.privileged: false` in container "a"

    1 object in 2 files checked at baseline:latest: 0 allowed, 1 denied; 1 error, 1 warning, 1 object of kinds that are not checked
    1 finding can be fixed with --unsafe-fixes; --diff shows what would change
    exit status: 1
    "#);
}
