//! The table of built-in kinds, in the order of discovery.

use std::sync::{LazyLock, OnceLock};

use palisade_base::version::KubeVersion;

use super::{
    Builtin, Strategy, admission_policies, autoscaling, batch, certificates, cluster, config, definitions,
    infrastructure, no_default, no_prepare_create, no_prepare_update, no_reset, pod, policy, rbac, service,
    validate_meta_only, validate_update_meta_only, webhooks, workload,
};
use crate::scheme::{Kind, LATEST, Subresource};

const ALL: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const NO_COLLECTION: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];
const CREATE: &[&str] = &["create"];
const GET_PATCH_UPDATE: &[&str] = &["get", "patch", "update"];

const fn sub(name: &'static str, verbs: &'static [&'static str]) -> Subresource {
    Subresource { name, group: "", version: "", kind: "", verbs }
}

const STATUS: Subresource = sub("status", GET_PATCH_UPDATE);
const SCALE: Subresource = Subresource {
    name: "scale",
    group: "autoscaling",
    version: "v1",
    kind: "Scale",
    verbs: GET_PATCH_UPDATE,
};

const REQUEST_SUBRESOURCES: &[Subresource] = &[sub("approval", GET_PATCH_UPDATE), STATUS];
const NAMESPACE_SUBRESOURCES: &[Subresource] = &[sub("finalize", &["update"]), STATUS];
const fn proxy(kind: &'static str) -> Subresource {
    let verbs = &["create", "delete", "get", "patch", "update"];
    Subresource { name: "proxy", group: "", version: "", kind, verbs }
}

const NODE_SUBRESOURCES: &[Subresource] = &[proxy("NodeProxyOptions"), STATUS];
const SERVICE_SUBRESOURCES: &[Subresource] = &[proxy("ServiceProxyOptions"), STATUS];
const CREATE_GET: &[&str] = &["create", "get"];
const POD_SUBRESOURCES: &[Subresource] = &[
    Subresource { name: "attach", group: "", version: "", kind: "PodAttachOptions", verbs: CREATE_GET },
    Subresource { name: "binding", group: "", version: "", kind: "Binding", verbs: CREATE },
    sub("ephemeralcontainers", GET_PATCH_UPDATE),
    Subresource { name: "eviction", group: "policy", version: "v1", kind: "Eviction", verbs: CREATE },
    Subresource { name: "exec", group: "", version: "", kind: "PodExecOptions", verbs: CREATE_GET },
    sub("log", &["get"]),
    Subresource {
        name: "portforward",
        group: "",
        version: "",
        kind: "PodPortForwardOptions",
        verbs: CREATE_GET,
    },
    proxy("PodProxyOptions"),
    sub("resize", GET_PATCH_UPDATE),
    STATUS,
];

/// Kinds with nothing special about them.
static PLAIN: Strategy = Strategy {
    default: no_default,
    prepare_create: no_prepare_create,
    prepare_update: no_prepare_update,
    validate: validate_meta_only,
    validate_update: validate_update_meta_only,
    reset_fields: no_reset,
};

fn kind(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
    type_name: &'static str,
) -> Builtin {
    Builtin {
        group,
        version,
        kind,
        plural,
        singular,
        short_names: &[],
        categories: &[],
        namespaced: true,
        verbs: ALL,
        subresources: &[],
        type_name,
        since: 0,
        until: 0,
        extended: false,
        strategy: &PLAIN,
        ty: OnceLock::new(),
    }
}

macro_rules! kinds {
    ($( $group:literal $version:literal $kind:literal $plural:literal $singular:literal $ty:literal
        { $($field:ident : $value:expr),* $(,)? } )*) => {
        vec![$( Builtin { $($field: $value,)* ..kind($group, $version, $kind, $plural, $singular, $ty) } ),*]
    };
}

static KINDS: LazyLock<Vec<Builtin>> = LazyLock::new(|| {
    kinds! {
        "" "v1" "Binding" "bindings" "binding" "core.Binding" { verbs: CREATE }
        "" "v1" "ComponentStatus" "componentstatuses" "componentstatus" "core.ComponentStatus" {
            short_names: &["cs"], namespaced: false, verbs: &["get", "list"] }
        "" "v1" "ConfigMap" "configmaps" "configmap" "core.ConfigMap" {
            short_names: &["cm"], strategy: &config::CONFIG_MAP }
        "" "v1" "Endpoints" "endpoints" "endpoints" "core.Endpoints" {
            short_names: &["ep"], strategy: &infrastructure::ENDPOINTS }
        "" "v1" "Event" "events" "event" "core.Event" { short_names: &["ev"], strategy: &cluster::EVENT }
        "" "v1" "LimitRange" "limitranges" "limitrange" "core.LimitRange" {
            short_names: &["limits"], strategy: &config::LIMIT_RANGE }
        "" "v1" "Namespace" "namespaces" "namespace" "core.Namespace" {
            short_names: &["ns"], namespaced: false, verbs: NO_COLLECTION, strategy: &config::NAMESPACE,
            subresources: NAMESPACE_SUBRESOURCES }
        "" "v1" "Node" "nodes" "node" "core.Node" {
            short_names: &["no"], namespaced: false, strategy: &cluster::NODE,
            subresources: NODE_SUBRESOURCES }
        "" "v1" "PersistentVolumeClaim" "persistentvolumeclaims" "persistentvolumeclaim" "core.PersistentVolumeClaim" {
            short_names: &["pvc"], strategy: &config::CLAIM, subresources: &[STATUS] }
        "" "v1" "PersistentVolume" "persistentvolumes" "persistentvolume" "core.PersistentVolume" {
            short_names: &["pv"], namespaced: false, strategy: &infrastructure::VOLUME, subresources: &[STATUS] }
        "" "v1" "Pod" "pods" "pod" "core.Pod" {
            short_names: &["po"], categories: &["all"], strategy: &pod::POD,
            subresources: POD_SUBRESOURCES }
        "" "v1" "PodTemplate" "podtemplates" "podtemplate" "core.PodTemplate" { strategy: &workload::POD_TEMPLATE }
        "" "v1" "ReplicationController" "replicationcontrollers" "replicationcontroller" "core.ReplicationController" {
            short_names: &["rc"], categories: &["all"], strategy: &workload::REPLICATION_CONTROLLER,
            subresources: &[SCALE, STATUS] }
        "" "v1" "ResourceQuota" "resourcequotas" "resourcequota" "core.ResourceQuota" {
            short_names: &["quota"], strategy: &config::QUOTA, subresources: &[STATUS] }
        "" "v1" "Secret" "secrets" "secret" "core.Secret" { strategy: &config::SECRET }
        "" "v1" "ServiceAccount" "serviceaccounts" "serviceaccount" "core.ServiceAccount" {
            short_names: &["sa"], strategy: &config::SERVICE_ACCOUNT,
            subresources: &[Subresource {
                name: "token", group: "authentication.k8s.io", version: "v1", kind: "TokenRequest", verbs: CREATE }] }
        "" "v1" "Service" "services" "service" "core.Service" {
            short_names: &["svc"], categories: &["all"], strategy: &service::SERVICE,
            subresources: SERVICE_SUBRESOURCES }

        "admissionregistration.k8s.io" "v1" "MutatingAdmissionPolicy" "mutatingadmissionpolicies"
        "mutatingadmissionpolicy" "admissionregistration.MutatingAdmissionPolicy" {
            namespaced: false, categories: &["api-extensions"], since: 36, strategy: &admission_policies::POLICY }
        "admissionregistration.k8s.io" "v1" "MutatingAdmissionPolicyBinding" "mutatingadmissionpolicybindings"
        "mutatingadmissionpolicybinding" "admissionregistration.MutatingAdmissionPolicyBinding" {
            namespaced: false, categories: &["api-extensions"], since: 36, strategy: &admission_policies::BINDING }
        "admissionregistration.k8s.io" "v1" "MutatingWebhookConfiguration" "mutatingwebhookconfigurations"
        "mutatingwebhookconfiguration" "admissionregistration.MutatingWebhookConfiguration" {
            namespaced: false, categories: &["api-extensions"], strategy: &webhooks::CONFIGURATION }
        "admissionregistration.k8s.io" "v1" "ValidatingAdmissionPolicy" "validatingadmissionpolicies"
        "validatingadmissionpolicy" "admissionregistration.ValidatingAdmissionPolicy" {
            namespaced: false, categories: &["api-extensions"], since: 30, strategy: &admission_policies::POLICY,
            subresources: &[STATUS] }
        "admissionregistration.k8s.io" "v1" "ValidatingAdmissionPolicyBinding" "validatingadmissionpolicybindings"
        "validatingadmissionpolicybinding" "admissionregistration.ValidatingAdmissionPolicyBinding" {
            namespaced: false, categories: &["api-extensions"], since: 30, strategy: &admission_policies::BINDING }
        "admissionregistration.k8s.io" "v1" "ValidatingWebhookConfiguration" "validatingwebhookconfigurations"
        "validatingwebhookconfiguration" "admissionregistration.ValidatingWebhookConfiguration" {
            namespaced: false, categories: &["api-extensions"], strategy: &webhooks::CONFIGURATION }

        "apiextensions.k8s.io" "v1" "CustomResourceDefinition" "customresourcedefinitions" "customresourcedefinition"
        "apiextensions.CustomResourceDefinition" {
            short_names: &["crd", "crds"], categories: &["api-extensions"], namespaced: false,
            strategy: &definitions::DEFINITION, subresources: &[STATUS] }

        "apiregistration.k8s.io" "v1" "APIService" "apiservices" "apiservice" "apiregistration.APIService" {
            categories: &["api-extensions"], namespaced: false, strategy: &infrastructure::API_SERVICE,
            subresources: &[STATUS] }

        "apps" "v1" "ControllerRevision" "controllerrevisions" "controllerrevision" "apps.ControllerRevision" {
            strategy: &workload::CONTROLLER_REVISION }
        "apps" "v1" "DaemonSet" "daemonsets" "daemonset" "apps.DaemonSet" {
            short_names: &["ds"], categories: &["all"], strategy: &workload::DAEMON_SET, subresources: &[STATUS] }
        "apps" "v1" "Deployment" "deployments" "deployment" "apps.Deployment" {
            short_names: &["deploy"], categories: &["all"], strategy: &workload::DEPLOYMENT,
            subresources: &[SCALE, STATUS] }
        "apps" "v1" "ReplicaSet" "replicasets" "replicaset" "apps.ReplicaSet" {
            short_names: &["rs"], categories: &["all"], strategy: &workload::REPLICA_SET,
            subresources: &[SCALE, STATUS] }
        "apps" "v1" "StatefulSet" "statefulsets" "statefulset" "apps.StatefulSet" {
            short_names: &["sts"], categories: &["all"], strategy: &workload::STATEFUL_SET,
            subresources: &[SCALE, STATUS] }

        "authentication.k8s.io" "v1" "SelfSubjectReview" "selfsubjectreviews" "selfsubjectreview"
        "authentication.SelfSubjectReview" { namespaced: false, verbs: CREATE, since: 28 }
        "authentication.k8s.io" "v1" "TokenReview" "tokenreviews" "tokenreview" "authentication.TokenReview" {
            namespaced: false, verbs: CREATE }
        "authorization.k8s.io" "v1" "LocalSubjectAccessReview" "localsubjectaccessreviews" "localsubjectaccessreview"
        "authorization.LocalSubjectAccessReview" { verbs: CREATE }
        "authorization.k8s.io" "v1" "SelfSubjectAccessReview" "selfsubjectaccessreviews" "selfsubjectaccessreview"
        "authorization.SelfSubjectAccessReview" { namespaced: false, verbs: CREATE }
        "authorization.k8s.io" "v1" "SelfSubjectRulesReview" "selfsubjectrulesreviews" "selfsubjectrulesreview"
        "authorization.SelfSubjectRulesReview" { namespaced: false, verbs: CREATE }
        "authorization.k8s.io" "v1" "SubjectAccessReview" "subjectaccessreviews" "subjectaccessreview"
        "authorization.SubjectAccessReview" { namespaced: false, verbs: CREATE }

        "autoscaling" "v2" "HorizontalPodAutoscaler" "horizontalpodautoscalers" "horizontalpodautoscaler"
        "autoscalingv2.HorizontalPodAutoscaler" {
            short_names: &["hpa"], categories: &["all"], since: 23, strategy: &infrastructure::AUTOSCALER, subresources: &[STATUS] }
        "autoscaling" "v1" "HorizontalPodAutoscaler" "horizontalpodautoscalers" "horizontalpodautoscaler"
        "autoscaling.HorizontalPodAutoscaler" {
            short_names: &["hpa"], categories: &["all"], since: 23, strategy: &autoscaling::AUTOSCALER_V1, subresources: &[STATUS] }
        "batch" "v1" "CronJob" "cronjobs" "cronjob" "batch.CronJob" {
            short_names: &["cj"], categories: &["all"], strategy: &batch::CRON_JOB, subresources: &[STATUS], since: 21 }
        "batch" "v1" "Job" "jobs" "job" "batch.Job" {
            categories: &["all"], strategy: &batch::JOB, subresources: &[STATUS] }

        "certificates.k8s.io" "v1" "CertificateSigningRequest" "certificatesigningrequests"
        "certificatesigningrequest" "certificates.CertificateSigningRequest" {
            short_names: &["csr"], namespaced: false, strategy: &certificates::SIGNING_REQUEST,
            subresources: REQUEST_SUBRESOURCES }
        "certificates.k8s.io" "v1" "ClusterTrustBundle" "clustertrustbundles" "clustertrustbundle"
        "certificates.ClusterTrustBundle" {
            namespaced: false, since: 37, strategy: &certificates::TRUST_BUNDLE }
        "certificates.k8s.io" "v1" "PodCertificateRequest" "podcertificaterequests" "podcertificaterequest"
        "certificates.PodCertificateRequest" {
            since: 37, strategy: &certificates::POD_REQUEST, subresources: &[STATUS] }

        "coordination.k8s.io" "v1" "Lease" "leases" "lease" "coordination.Lease" { strategy: &cluster::LEASE }
        "discovery.k8s.io" "v1" "EndpointSlice" "endpointslices" "endpointslice"
        "discovery.EndpointSlice" {
            since: 21, strategy: &infrastructure::ENDPOINT_SLICE }
        "events.k8s.io" "v1" "Event" "events" "event" "events.Event" {
            short_names: &["ev"], strategy: &cluster::NEW_EVENT }

        "flowcontrol.apiserver.k8s.io" "v1" "FlowSchema" "flowschemas" "flowschema"
        "flowcontrol.FlowSchema" {
            namespaced: false, since: 29, strategy: &infrastructure::FLOW_SCHEMA, subresources: &[STATUS] }
        "flowcontrol.apiserver.k8s.io" "v1" "PriorityLevelConfiguration" "prioritylevelconfigurations" "prioritylevelconfiguration"
        "flowcontrol.PriorityLevelConfiguration" {
            namespaced: false, since: 29, strategy: &infrastructure::PRIORITY_LEVEL, subresources: &[STATUS] }

        "networking.k8s.io" "v1" "IngressClass" "ingressclasses" "ingressclass"
        "networking.IngressClass" {
            namespaced: false, strategy: &infrastructure::INGRESS_CLASS }
        "networking.k8s.io" "v1" "Ingress" "ingresses" "ingress"
        "networking.Ingress" {
            short_names: &["ing"], strategy: &infrastructure::INGRESS, subresources: &[STATUS] }
        "networking.k8s.io" "v1" "IPAddress" "ipaddresses" "ipaddress"
        "networking.IPAddress" {
            short_names: &["ip"], namespaced: false, since: 33, strategy: &infrastructure::IP_ADDRESS }
        "networking.k8s.io" "v1" "NetworkPolicy" "networkpolicies" "networkpolicy"
        "networking.NetworkPolicy" {
            short_names: &["netpol"], strategy: &infrastructure::NETWORK_POLICY }
        "networking.k8s.io" "v1" "ServiceCIDR" "servicecidrs" "servicecidr"
        "networking.ServiceCIDR" {
            namespaced: false, since: 33, strategy: &infrastructure::SERVICE_CIDR, subresources: &[STATUS] }

        "node.k8s.io" "v1" "RuntimeClass" "runtimeclasses" "runtimeclass" "node.RuntimeClass" {
            namespaced: false, strategy: &cluster::RUNTIME_CLASS, since: 20 }
        "policy" "v1" "PodDisruptionBudget" "poddisruptionbudgets" "poddisruptionbudget" "policy.PodDisruptionBudget" {
            short_names: &["pdb"], strategy: &config::BUDGET, subresources: &[STATUS], since: 21 }
        "policy" "v1beta1" "PodSecurityPolicy" "podsecuritypolicies" "podsecuritypolicy" "psp.PodSecurityPolicy" {
            short_names: &["psp"], namespaced: false, until: 25, extended: true,
            strategy: &policy::POD_SECURITY_POLICY }

        "rbac.authorization.k8s.io" "v1" "ClusterRoleBinding" "clusterrolebindings" "clusterrolebinding"
        "rbac.ClusterRoleBinding" { namespaced: false, strategy: &rbac::BINDING }
        "rbac.authorization.k8s.io" "v1" "ClusterRole" "clusterroles" "clusterrole" "rbac.ClusterRole" {
            namespaced: false, strategy: &rbac::ROLE }
        "rbac.authorization.k8s.io" "v1" "RoleBinding" "rolebindings" "rolebinding" "rbac.RoleBinding" {
            strategy: &rbac::BINDING }
        "rbac.authorization.k8s.io" "v1" "Role" "roles" "role" "rbac.Role" { strategy: &rbac::ROLE }

        "resource.k8s.io" "v1" "DeviceClass" "deviceclasses" "deviceclass"
        "resource.DeviceClass" {
            namespaced: false, since: 34, strategy: &infrastructure::DEVICE_CLASS }
        "resource.k8s.io" "v1" "DeviceTaintRule" "devicetaintrules" "devicetaintrule"
        "resource.DeviceTaintRule" {
            namespaced: false, since: 37, strategy: &infrastructure::DEVICE_TAINT_RULE, subresources: &[STATUS] }
        "resource.k8s.io" "v1" "ResourceClaim" "resourceclaims" "resourceclaim"
        "resource.ResourceClaim" {
            since: 34, strategy: &infrastructure::RESOURCE_CLAIM, subresources: &[STATUS] }
        "resource.k8s.io" "v1" "ResourceClaimTemplate" "resourceclaimtemplates" "resourceclaimtemplate"
        "resource.ResourceClaimTemplate" {
            since: 34, strategy: &infrastructure::RESOURCE_CLAIM_TEMPLATE }
        "resource.k8s.io" "v1" "ResourceSlice" "resourceslices" "resourceslice"
        "resource.ResourceSlice" {
            namespaced: false, since: 34, strategy: &infrastructure::RESOURCE_SLICE }

        "scheduling.k8s.io" "v1" "PriorityClass" "priorityclasses" "priorityclass"
        "scheduling.PriorityClass" {
            short_names: &["pc"], namespaced: false, strategy: &infrastructure::PRIORITY_CLASS }

        "storage.k8s.io" "v1" "CSIDriver" "csidrivers" "csidriver"
        "storage.CSIDriver" {
            namespaced: false, strategy: &infrastructure::CSI_DRIVER }
        "storage.k8s.io" "v1" "CSINode" "csinodes" "csinode"
        "storage.CSINode" {
            namespaced: false, strategy: &infrastructure::CSI_NODE, subresources: &[STATUS] }
        "storage.k8s.io" "v1" "CSIStorageCapacity" "csistoragecapacities" "csistoragecapacity"
        "storage.CSIStorageCapacity" {
            since: 24, strategy: &infrastructure::CSI_STORAGE_CAPACITY }
        "storage.k8s.io" "v1" "StorageClass" "storageclasses" "storageclass"
        "storage.StorageClass" {
            short_names: &["sc"], namespaced: false, strategy: &infrastructure::STORAGE_CLASS }
        "storage.k8s.io" "v1" "VolumeAttachment" "volumeattachments" "volumeattachment"
        "storage.VolumeAttachment" {
            namespaced: false, strategy: &infrastructure::VOLUME_ATTACHMENT, subresources: &[STATUS] }
        "storage.k8s.io" "v1" "VolumeAttributesClass" "volumeattributesclasses" "volumeattributesclass"
        "storage.VolumeAttributesClass" {
            short_names: &["vac"], namespaced: false, since: 34, strategy: &infrastructure::VOLUME_ATTRIBUTES_CLASS }
        "storagemigration.k8s.io" "v1" "StorageVersionMigration" "storageversionmigrations" "storageversionmigration"
        "storagemigration.StorageVersionMigration" {
            namespaced: false, since: 37, strategy: &infrastructure::STORAGE_VERSION_MIGRATION, subresources: &[STATUS] }
    }
});

/// What the `scale` subresources take; it is no resource of its own.
static SCALE_KIND: LazyLock<Builtin> =
    LazyLock::new(|| kind("autoscaling", "v1", "Scale", "scales", "scale", "autoscaling.Scale"));

/// The kind of scales.
pub(crate) fn scale_kind(version: KubeVersion) -> Kind {
    let builtin: &'static Builtin = &SCALE_KIND;
    builtin.to_kind(version)
}

/// What `serviceaccounts/token` takes.
static TOKEN_REQUEST: LazyLock<Builtin> = LazyLock::new(|| {
    let name = ("TokenRequest", "tokenrequests", "tokenrequest", "authentication.TokenRequest");
    kind("authentication.k8s.io", "v1", name.0, name.1, name.2, name.3)
});

/// What `pods/eviction` takes, in both versions.
static EVICTIONS: LazyLock<[Builtin; 2]> = LazyLock::new(|| {
    ["v1", "v1beta1"]
        .map(|version| kind("policy", version, "Eviction", "evictions", "eviction", "policy.Eviction"))
});

/// What connections take as their options: the subresource, the kind, and its type. Rules match them as their resource.
static CONNECT: LazyLock<[(&'static str, Builtin); 6]> = LazyLock::new(|| {
    let (pods, services, nodes) = (("pods", "pod"), ("services", "service"), ("nodes", "node"));
    [
        ("attach", pods, "PodAttachOptions", "core.PodAttachOptions"),
        ("exec", pods, "PodExecOptions", "core.PodExecOptions"),
        ("portforward", pods, "PodPortForwardOptions", "core.PodPortForwardOptions"),
        ("proxy", pods, "PodProxyOptions", "core.PodProxyOptions"),
        ("proxy", services, "ServiceProxyOptions", "core.ServiceProxyOptions"),
        ("proxy", nodes, "NodeProxyOptions", "core.NodeProxyOptions"),
    ]
    .map(|(subresource, (plural, singular), name, type_name)| {
        let namespaced = plural != "nodes";
        (subresource, Builtin { namespaced, ..kind("", "v1", name, plural, singular, type_name) })
    })
});

/// The kind of the options of a connection to a resource, under the name of the resource.
#[must_use]
pub fn connect_kind(resource: &str, subresource: &str, version: KubeVersion) -> Option<Kind> {
    let kinds: &'static [(&'static str, Builtin); 6] = &CONNECT;
    let found = kinds.iter().find(|(own, kind)| *own == subresource && kind.plural == resource);
    found.map(|(_, builtin)| builtin.to_kind(version))
}

/// The kind of token requests.
#[must_use]
pub fn token_request_kind(version: KubeVersion) -> Kind {
    let builtin: &'static Builtin = &TOKEN_REQUEST;
    builtin.to_kind(version)
}

/// The kind of evictions in the version that a body names; `policy/v1` for any other.
#[must_use]
pub fn eviction_kind(api_version: &str, version: KubeVersion) -> Kind {
    let [v1, v1beta1]: &'static [Builtin; 2] = &EVICTIONS;
    let builtin = if api_version == "policy/v1beta1" { v1beta1 } else { v1 };
    // Before v1.22 the type was that of policy/v1beta1, with the same fields.
    builtin.to_kind(if version.at_least(22) { version } else { KubeVersion::v1(22) })
}

/// The kinds a release serves.
pub fn registry(version: KubeVersion) -> impl Iterator<Item = &'static Builtin> {
    let kept = move |k: &Builtin| k.until == 0 || version.minor() < k.until;
    let extended = version == KubeVersion::Designs;
    KINDS.iter().filter(move |k| version.minor() >= k.since && (kept(k) || (extended && k.extended)))
}

/// API versions that are not served but still known to upstream's scheme, with the group they convert to.
const CONVERTIBLE: &[(&str, &str)] = &[
    ("extensions/v1beta1", "apps"),
    ("apps/v1beta1", "apps"),
    ("apps/v1beta2", "apps"),
    ("batch/v1beta1", "batch"),
    ("rbac.authorization.k8s.io/v1alpha1", "rbac.authorization.k8s.io"),
    ("rbac.authorization.k8s.io/v1beta1", "rbac.authorization.k8s.io"),
    ("coordination.k8s.io/v1beta1", "coordination.k8s.io"),
    ("policy/v1beta1", "policy"),
    ("events.k8s.io/v1", ""),
    ("v1", "events.k8s.io"),
];

/// Kinds each of those versions has.
const OLD_KINDS: &[(&str, &[&str])] = &[
    ("extensions/v1beta1", &["Deployment", "DaemonSet", "ReplicaSet", "Ingress", "NetworkPolicy", "Scale"]),
    ("apps/v1beta1", &["Deployment", "StatefulSet", "ControllerRevision", "Scale"]),
    (
        "apps/v1beta2",
        &["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ControllerRevision", "Scale"],
    ),
    ("batch/v1beta1", &["CronJob"]),
    ("rbac.authorization.k8s.io/v1alpha1", &["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"]),
    ("rbac.authorization.k8s.io/v1beta1", &["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"]),
    ("coordination.k8s.io/v1beta1", &["Lease"]),
    ("policy/v1beta1", &["PodDisruptionBudget", "Eviction"]),
    ("policy/v1", &["Eviction"]),
    ("autoscaling/v1", &["Scale", "HorizontalPodAutoscaler"]),
    ("autoscaling/v2", &["HorizontalPodAutoscaler"]),
    ("networking.k8s.io/v1", &["NetworkPolicy", "Ingress", "IngressClass"]),
    (
        "storage.k8s.io/v1",
        &["StorageClass", "VolumeAttachment", "CSIDriver", "CSINode", "CSIStorageCapacity"],
    ),
    ("scheduling.k8s.io/v1", &["PriorityClass"]),
    ("node.k8s.io/v1", &["RuntimeClass"]),
    ("discovery.k8s.io/v1", &["EndpointSlice"]),
    ("certificates.k8s.io/v1", &["CertificateSigningRequest"]),
    ("authentication.k8s.io/v1", &["TokenRequest"]),
    ("v1", &["PersistentVolume", "ComponentStatus", "List", "Status", "RangeAllocation"]),
];

/// Whether upstream's scheme has the kind, served or not.
pub(crate) fn is_registered(api_version: &str, kind: &str) -> bool {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    LATEST.by_kind(group, version, kind).is_some()
        || OLD_KINDS.iter().any(|(v, kinds)| *v == api_version && kinds.contains(&kind))
}

/// Whether objects of that version convert to the internal type of `group`.
pub(crate) fn converts_to(api_version: &str, group: &str) -> bool {
    CONVERTIBLE.contains(&(api_version, group))
}

/// The Go package of a group's internal types.
pub(crate) fn internal_package(group: &str) -> &str {
    match group {
        "" | "events.k8s.io" => "core",
        other => other.split('.').next().unwrap_or(other),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use palisade_base::version::KubeVersion;

    use crate::scheme::Scheme;

    /// The lines of `discovery-v1.37.txt` for the kinds of that release.
    fn served() -> BTreeSet<String> {
        let mut lines = BTreeSet::new();
        for kind in Scheme::new(KubeVersion::v1(37)).kinds() {
            let resource = format!("{} {}", kind.api_version(), kind.plural);
            let scope = if kind.namespaced { "Namespaced" } else { "Cluster" };
            let (verbs, short, categories) =
                (kind.verbs.join(","), kind.short_names.join(","), kind.categories.join(","));
            lines.insert(format!(
                "{resource} {} {} {scope} {verbs} [{short}] [{categories}]",
                kind.kind, kind.singular
            ));
            for subresource in &kind.subresources {
                let kind = if subresource.kind.is_empty() { kind.kind.as_str() } else { subresource.kind };
                lines.insert(format!(
                    "{resource}/{} {kind} {}",
                    subresource.name,
                    subresource.verbs.join(",")
                ));
            }
        }
        lines
    }

    #[test]
    fn pods_are_resized_since_v1_33() {
        for (version, expected) in [
            (KubeVersion::v1(24), false),
            (KubeVersion::v1(32), false),
            (KubeVersion::v1(33), true),
            (KubeVersion::Designs, true),
        ] {
            let scheme = Scheme::new(version);
            let pods = scheme.by_kind("", "v1", "Pod").unwrap();
            assert_eq!(pods.subresources.iter().any(|s| s.name == "resize"), expected, "{version:?}");
        }
    }

    #[test]
    fn serves_what_a_real_server_lists_in_discovery() {
        let recorded = include_str!("discovery-v1.37.txt").lines().filter(|line| !line.starts_with('#'));
        let expected: BTreeSet<String> = recorded.map(str::to_owned).collect();
        let served = served();
        let differences: Vec<_> = expected.symmetric_difference(&served).collect();
        assert!(differences.is_empty(), "{differences:#?}");
    }
}
