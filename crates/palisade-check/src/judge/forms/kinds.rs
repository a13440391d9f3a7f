//! The kinds that hold pods in a form of their own.

/// A kind and its parts that make pods.
pub(super) struct Form {
    pub(super) group: &'static str,
    pub(super) kind: &'static str,
    pub(super) parts: &'static [Part],
    /// What its operator adds.
    pub(super) undecided: Option<&'static str>,
    /// Whether one without a pod is no workload.
    pub(super) may_be_empty: bool,
}

/// A part of an object that makes pods. In paths, `*` is every item of a list or map.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    /// A specification with fields of a pod's: `containers`, `securityContext`, `volumes`. Containers that the operator makes
    /// itself have the values that are named.
    Operator(&'static [&'static str], &'static [&'static str]),
    /// A `WorkflowSpec` of Argo.
    Workflow(&'static [&'static str]),
    /// Tasks of Tekton, and the pod template of the run, if there is one.
    Tasks(&'static [&'static str], &'static [&'static [&'static str]]),
    /// A driver or executor of Spark, in the specification at a path.
    Spark(&'static [&'static str], &'static str),
    /// A pod of Flink: the common template and its own.
    Flink(&'static str),
    /// A component of Strimzi, with its template.
    Strimzi(&'static [&'static str]),
    /// Whole manifests.
    Manifests(&'static [&'static str]),
    /// Texts with manifests.
    Texts(&'static [&'static str]),
    /// Something at a path that changes what the other parts make, and how it does.
    Changes(&'static [&'static str], &'static str),
}

const fn form(
    group: &'static str,
    kind: &'static str,
    parts: &'static [Part],
    undecided: Option<&'static str>,
) -> Form {
    Form { group, kind, parts, undecided, may_be_empty: false }
}

const fn holder(group: &'static str, kind: &'static str, parts: &'static [Part]) -> Form {
    Form { group, kind, parts, undecided: None, may_be_empty: true }
}

const ARGO: Option<&str> = Some("Argo adds the containers init and wait");
const TEKTON: Option<&str> = Some("Tekton adds containers to its pods");
const PROMETHEUS: Option<&str> = Some("the Prometheus operator makes the containers");
const KUBEVIRT: Option<&str> = Some("KubeVirt makes the pod that runs the virtual machine");
const SPARK: Option<&str> = Some("Spark makes the pods, also from its own configuration");
const FLINK: Option<&str> = Some("the Flink operator makes the pods, also from Flink's configuration");
const STRIMZI: Option<&str> = Some("Strimzi makes the containers");

pub(super) static FORMS: &[Form] = &[
    // One with a template of its own is in the table of workloads.
    form("argoproj.io", "Rollout", &[], Some("its pods are those of the workload that workloadRef names")),
    form("argoproj.io", "Workflow", &[Part::Workflow(&["spec"])], ARGO),
    form("argoproj.io", "WorkflowTemplate", &[Part::Workflow(&["spec"])], ARGO),
    form("argoproj.io", "ClusterWorkflowTemplate", &[Part::Workflow(&["spec"])], ARGO),
    form("argoproj.io", "CronWorkflow", &[Part::Workflow(&["spec", "workflowSpec"])], ARGO),
    form("tekton.dev", "Task", &[Part::Tasks(&["spec"], &[])], TEKTON),
    form("tekton.dev", "ClusterTask", &[Part::Tasks(&["spec"], &[])], TEKTON),
    form(
        "tekton.dev",
        "Pipeline",
        &[
            Part::Tasks(&["spec", "tasks", "*", "taskSpec"], &[]),
            Part::Tasks(&["spec", "finally", "*", "taskSpec"], &[]),
        ],
        TEKTON,
    ),
    form("tekton.dev", "TaskRun", &[Part::Tasks(&["spec", "taskSpec"], &[&["spec", "podTemplate"]])], TEKTON),
    form(
        "tekton.dev",
        "PipelineRun",
        &[
            Part::Tasks(&["spec", "pipelineSpec", "tasks", "*", "taskSpec"], RUN),
            Part::Tasks(&["spec", "pipelineSpec", "finally", "*", "taskSpec"], RUN),
        ],
        TEKTON,
    ),
    form(
        "monitoring.coreos.com",
        "Prometheus",
        &[Part::Operator(&["spec"], PROMETHEUS_CONTAINERS)],
        PROMETHEUS,
    ),
    form(
        "monitoring.coreos.com",
        "PrometheusAgent",
        &[Part::Operator(&["spec"], PROMETHEUS_CONTAINERS)],
        PROMETHEUS,
    ),
    form(
        "monitoring.coreos.com",
        "Alertmanager",
        &[Part::Operator(&["spec"], PROMETHEUS_CONTAINERS)],
        PROMETHEUS,
    ),
    form(
        "monitoring.coreos.com",
        "ThanosRuler",
        &[Part::Operator(&["spec"], PROMETHEUS_CONTAINERS)],
        PROMETHEUS,
    ),
    form("kubevirt.io", "VirtualMachine", &[], KUBEVIRT),
    form("kubevirt.io", "VirtualMachineInstance", &[], KUBEVIRT),
    form("kubevirt.io", "VirtualMachineInstanceReplicaSet", &[], KUBEVIRT),
    form("pool.kubevirt.io", "VirtualMachinePool", &[], KUBEVIRT),
    form(
        "sparkoperator.k8s.io",
        "SparkApplication",
        &[Part::Spark(&["spec"], "driver"), Part::Spark(&["spec"], "executor")],
        SPARK,
    ),
    form(
        "sparkoperator.k8s.io",
        "ScheduledSparkApplication",
        &[Part::Spark(&["spec", "template"], "driver"), Part::Spark(&["spec", "template"], "executor")],
        SPARK,
    ),
    form(
        "flink.apache.org",
        "FlinkDeployment",
        &[Part::Flink("jobManager"), Part::Flink("taskManager")],
        FLINK,
    ),
    form("kafka.strimzi.io", "Kafka", STRIMZI_KAFKA, STRIMZI),
    form("kafka.strimzi.io", "KafkaBridge", &[Part::Strimzi(&["spec"])], STRIMZI),
    form("kafka.strimzi.io", "KafkaConnect", &[Part::Strimzi(&["spec"])], STRIMZI),
    form("kafka.strimzi.io", "KafkaMirrorMaker", &[Part::Strimzi(&["spec"])], STRIMZI),
    form("kafka.strimzi.io", "KafkaMirrorMaker2", &[Part::Strimzi(&["spec"])], STRIMZI),
    form("kafka.strimzi.io", "KafkaNodePool", &[Part::Strimzi(&["spec"])], STRIMZI),
    holder(
        "apiextensions.crossplane.io",
        "Composition",
        &[
            Part::Manifests(&["spec", "resources", "*", "base"]),
            Part::Manifests(&["spec", "pipeline", "*", "input", "resources", "*", "base"]),
            Part::Changes(&["spec", "resources", "*", "patches"], "its patches change what it makes"),
            Part::Changes(&["spec", "pipeline"], "the functions of its pipeline change what it makes"),
        ],
    ),
    holder(
        "kubernetes.crossplane.io",
        "Object",
        &[
            Part::Manifests(&["spec", "forProvider", "manifest"]),
            Part::Changes(
                &["spec", "references", "*", "patchesFrom"],
                "what it refers to patches its manifest",
            ),
        ],
    ),
    holder("bootstrap.cluster.x-k8s.io", "KubeadmConfig", &[Part::Texts(&["spec", "files", "*", "content"])]),
    holder(
        "bootstrap.cluster.x-k8s.io",
        "KubeadmConfigTemplate",
        &[Part::Texts(&["spec", "template", "spec", "files", "*", "content"])],
    ),
    holder(
        "controlplane.cluster.x-k8s.io",
        "KubeadmControlPlane",
        &[Part::Texts(&["spec", "kubeadmConfigSpec", "files", "*", "content"])],
    ),
    holder(
        "controlplane.cluster.x-k8s.io",
        "KubeadmControlPlaneTemplate",
        &[Part::Texts(&["spec", "template", "spec", "kubeadmConfigSpec", "files", "*", "content"])],
    ),
];

const RUN: &[&[&str]] = &[&["spec", "taskRunTemplate", "podTemplate"], &["spec", "podTemplate"]];

const PROMETHEUS_CONTAINERS: &[&str] = &[
    "prometheus",
    "config-reloader",
    "init-config-reloader",
    "thanos-sidecar",
    "alertmanager",
    "thanos-ruler",
];

const STRIMZI_KAFKA: &[Part] = &[
    Part::Strimzi(&["spec", "kafka"]),
    Part::Strimzi(&["spec", "zookeeper"]),
    Part::Strimzi(&["spec", "entityOperator"]),
    Part::Strimzi(&["spec", "cruiseControl"]),
    Part::Strimzi(&["spec", "kafkaExporter"]),
];
