//! The texts of `kubectl explain`: short descriptions of kinds and of the fields this product is about.

/// A kind, in a sentence.
pub(super) fn kind(group: &str, kind: &str) -> Option<&'static str> {
    Some(match (group, kind) {
        ("", "Pod") => "A group of containers that share a network and storage and run on one node.",
        ("", "Namespace") => {
            "A scope for names; its labels set the Pod Security level that its pods must meet."
        }
        ("", "ConfigMap") => "Configuration that pods read; with SeccompConfigMaps also seccomp profiles.",
        ("", "Secret") => "Confidential data that pods read.",
        ("", "ServiceAccount") => "An identity for the processes of a pod.",
        ("", "Node") => "A machine that runs pods.",
        ("" | "events.k8s.io", "Event") => "Something that happened to an object.",
        ("", "PodTemplate") => "A pattern for pods.",
        ("", "ReplicationController") => "Keeps a number of pods running; ReplicaSets replaced it.",
        ("", "Binding") => "Assigns a pod to a node.",
        ("", "Service") => "A name and address for a set of pods.",
        ("", "Endpoints") => "The addresses behind a Service.",
        ("", "PersistentVolumeClaim") => "A request for storage.",
        ("", "LimitRange") => "Limits and defaults for the resources of a namespace.",
        ("", "ResourceQuota") => "The most a namespace may use.",
        ("apps", "Deployment") => "Declares pods and rolls changes of them out step by step.",
        ("apps", "ReplicaSet") => "Keeps a number of equal pods running.",
        ("apps", "StatefulSet") => "Pods with stable names and storage of their own.",
        ("apps", "DaemonSet") => "One pod on each matching node.",
        ("apps", "ControllerRevision") => "A snapshot of a controller's state, for rolling back.",
        ("batch", "Job") => "Runs pods until enough of them succeeded.",
        ("batch", "CronJob") => "Makes jobs on a schedule.",
        ("rbac.authorization.k8s.io", "Role") => "Permissions inside a namespace.",
        ("rbac.authorization.k8s.io", "ClusterRole") => {
            "Permissions in the whole cluster, or to be bound per namespace."
        }
        ("rbac.authorization.k8s.io", "RoleBinding") => "Grants a role inside a namespace.",
        ("rbac.authorization.k8s.io", "ClusterRoleBinding") => "Grants a cluster role everywhere.",
        ("coordination.k8s.io", "Lease") => "A lock with an expiry, for electing leaders.",
        ("node.k8s.io", "RuntimeClass") => "Which handler of the container runtime runs a pod.",
        ("policy", "PodSecurityPolicy") => {
            "Which seccomp and AppArmor profiles the pods of those who may use it can name."
        }
        ("policy", "PodDisruptionBudget") => "How many pods may be down at the same time on purpose.",
        ("apiextensions.k8s.io", "CustomResourceDefinition") => "Adds a kind to this API server.",
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => {
            "Expressions by which this API server judges objects itself."
        }
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding") => {
            "Where a ValidatingAdmissionPolicy applies, and what it does there."
        }
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy") => {
            "Expressions by which this API server changes objects itself."
        }
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding") => {
            "Where a MutatingAdmissionPolicy applies."
        }
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration") => {
            "Webhooks that may change objects."
        }
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration") => {
            "Webhooks that may refuse objects."
        }
        ("authorization.k8s.io", _) => "Checks whether an action is allowed.",
        ("authentication.k8s.io", _) => "Checks who a user is.",
        _ => return None,
    })
}

/// A type inside kinds, in a sentence.
pub(super) fn structure(name: &str) -> Option<&'static str> {
    Some(match name {
        "core.PodSecurityContext" => {
            "Security settings of the whole pod; those of a container win where both are set."
        }
        "core.SecurityContext" => "Security settings of one container; they win over those of the pod.",
        "core.SeccompProfile" => "Which system calls are allowed: a seccomp profile, by type.",
        "core.AppArmorProfile" => "Which AppArmor profile confines the processes, by type.",
        "core.Capabilities" => "Linux capabilities added to and dropped from those the runtime grants.",
        "core.SELinuxOptions" => "The SELinux context of the processes.",
        "core.WindowsSecurityContextOptions" => "Security settings for Windows only.",
        "core.Sysctl" => "A kernel parameter of the pod's namespaces.",
        "meta.ObjectMeta" => {
            "Standard object's metadata: name, labels, owners and what the server keeps about the object."
        }
        "core.PodSpec" => "What should run, and how.",
        "core.PodStatus" => "What is running, as far as is known.",
        "core.Container" => "One process tree from one image.",
        "core.PodTemplateSpec" => "The pods a controller makes.",
        "psp.SeccompStrategyOptions" => "Which seccomp profile pods get, and which ones they may name.",
        "psp.SeccompProfileSet" => "A set of seccomp profiles; a type that is not listed is not in it.",
        _ => return None,
    })
}

/// A field, in a sentence: those that decide what a container may do.
pub(super) fn field(owner: &str, field: &str) -> Option<&'static str> {
    Some(match (owner, field) {
        ("core.SeccompProfile", "type") => {
            "Unconfined, RuntimeDefault (the runtime's own profile) or Localhost (a file on the node)."
        }
        ("core.SeccompProfile" | "core.SecurityProfileOCIBase", "localhostProfile") => {
            "Path of the profile below the kubelet's seccomp folder; only for type Localhost."
        }
        ("core.SeccompProfile", "configMapProfile") => {
            "Name and key of a ConfigMap of the same namespace that holds the profile, <name>/<key>; only for type \
             ConfigMap, with the feature gate SeccompConfigMaps."
        }
        ("core.SeccompProfile", "oci") => {
            "A profile in a registry, and a profile of the node that it is combined with; only for type OCI, with the \
             feature gate SecurityProfileOCIArtifact."
        }
        ("core.SecurityProfileOCIArtifact", "reference") => {
            "The artifact by its digest, <registry>/<repository>@sha256:<digest>."
        }
        ("core.SecurityProfileOCIArtifact", "baseProfile") => {
            "A profile of the node that the artifact is combined with, besides the baseline."
        }
        ("core.SecurityProfileOCIBase", "type") => "RuntimeDefault or Localhost.",
        ("psp.SeccompProfileSet", "ociRepositories") => {
            "Repositories of profiles in registries; a trailing * means a prefix."
        }
        ("psp.PodSecurityPolicySpec", "seccomp") => "Default and allowed seccomp profiles.",
        ("psp.SeccompStrategyOptions", "defaultProfile") => {
            "Given to pods that name none; must be allowed by allowedProfiles."
        }
        ("psp.SeccompStrategyOptions", "allowedProfiles") => "What pods may name; anything if left out.",
        ("psp.SeccompProfileSet", "types") => "Unconfined, RuntimeDefault, Localhost, ConfigMap or OCI.",
        ("psp.SeccompProfileSet", "localhostProfiles") => {
            "Paths of localhost profiles; a trailing * means a prefix."
        }
        ("psp.SeccompProfileSet", "configMaps") => "Names of ConfigMaps; a trailing * means a prefix.",
        ("core.PodSecurityContext", "containerDefaults") => {
            "Security settings of every container that does not set its own."
        }
        ("core.SecurityContext", "runWithSupplementalGroups") => {
            "Groups the processes of this container have besides the primary one."
        }
        (_, "seccompProfileHash") => "SHA-256 of the seccomp profile that was applied to the container.",
        (_, "seccompProfileSourceHash") => {
            "SHA-256 of what the ConfigMap or the artifact held that the applied seccomp profile was made of."
        }
        ("core.AppArmorProfile", "type") => {
            "Unconfined, RuntimeDefault or Localhost (a profile loaded on the node)."
        }
        ("core.AppArmorProfile", "localhostProfile") => {
            "Name of the loaded profile; only for type Localhost."
        }
        ("core.PodSecurityContext" | "core.SecurityContext", "seccompProfile") => {
            "The seccomp profile that filters system calls."
        }
        ("core.PodSecurityContext" | "core.SecurityContext", "appArmorProfile") => {
            "The AppArmor profile that confines the processes."
        }
        ("core.PodSecurityContext" | "core.SecurityContext", "runAsNonRoot") => {
            "If true, a container that would run as root is not started."
        }
        ("core.PodSecurityContext" | "core.SecurityContext", "runAsUser") => {
            "The user id the processes run as."
        }
        ("core.PodSecurityContext" | "core.SecurityContext", "runAsGroup") => "The primary group id.",
        ("core.PodSecurityContext" | "core.SecurityContext", "seLinuxOptions") => "The SELinux context.",
        ("core.PodSecurityContext", "supplementalGroups") => {
            "Groups the processes have besides the primary one."
        }
        ("core.PodSecurityContext", "fsGroup") => "The group that owns the pod's volumes.",
        ("core.PodSecurityContext", "sysctls") => "Kernel parameters of the pod's namespaces.",
        ("core.SecurityContext", "privileged") => "Runs the container with everything the host may do.",
        ("core.SecurityContext", "allowPrivilegeEscalation") => {
            "If false, processes cannot gain more privileges than their parent (no_new_privs)."
        }
        ("core.SecurityContext", "capabilities") => "Linux capabilities to add and drop.",
        ("core.SecurityContext", "readOnlyRootFilesystem") => "Mounts the root of the container read-only.",
        ("core.SecurityContext", "procMount") => {
            "How /proc is mounted: Default hides parts of it, Unmasked does not."
        }
        ("core.Capabilities", "add") => "Capabilities added to those of the runtime.",
        ("core.Capabilities", "drop") => "Capabilities taken away; ALL takes all of them.",
        ("core.PodSpec" | "core.PodSecurityContext", "hostNetwork") => "Joins the node's network namespace.",
        ("core.PodSpec", "hostPID") => "Joins the node's process namespace.",
        ("core.PodSpec" | "core.PodSecurityContext", "hostIPC") => "Joins the node's IPC namespace.",
        ("core.PodSpec", "hostUsers") => "If false, the pod gets a user namespace of its own.",
        ("core.PodSpec", "securityContext") => "Security settings of all containers.",
        ("core.PodSpec", "containers") => "The containers; at least one.",
        ("core.PodSpec", "initContainers") => "Containers that run first, one after the other.",
        ("core.PodSpec", "volumes") => "Storage the containers can mount.",
        ("core.PodSpec", "nodeName") => "The node the pod is bound to.",
        ("core.PodSpec", "serviceAccountName") => "The identity of the pod's processes.",
        ("core.PodSpec", "restartPolicy") => "When containers are started again: Always, OnFailure or Never.",
        ("core.Container", "securityContext") => {
            "Security settings of this container; they win over the pod's."
        }
        ("core.Container", "image") => "The image to run.",
        ("core.Container", "name") => "A name that is unique in the pod.",
        ("core.Pod" | "apps.Deployment", "spec") => "What is wanted.",
        ("core.Pod" | "apps.Deployment", "status") => "What is.",
        (_, "apiVersion") => "APIVersion defines the version of the schema that this object is written in.",
        (_, "kind") => "Kind is the name of the type of this object.",
        (_, "metadata") => {
            "Standard object's metadata: its name, its labels and what the server keeps about it."
        }
        ("meta.ObjectMeta", "creationTimestamp") => {
            "CreationTimestamp is a timestamp of the server: when it stored the object first."
        }
        _ => return None,
    })
}
