//! Defaults by example: what an API server writes into an object that leaves it open.
//!
//! Implements: the defaults that the reference of each kind states, <https://kubernetes.io/docs/reference/kubernetes-api/>.

use palisade_apimachinery::Scheme;
use palisade_base::version::KubeVersion;
use serde_json::{Value, json};

/// Whether every field of `part` is in `whole` with that value; lists item by item.
fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            part.iter().all(|(key, value)| whole.get(key).is_some_and(|whole| contains(whole, value)))
        }
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(whole, part)| contains(whole, part))
        }
        _ => whole == part,
    }
}

fn defaulted(api_version: &str, name: &str, object: &Value, minor: u16) -> Value {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let scheme = Scheme::new(KubeVersion::v1(minor));
    let mut object = object.clone();
    scheme.by_kind(group, version, name).unwrap().default(&mut object).unwrap();
    object
}

fn pod(container: Value) -> Value {
    json!({"spec": {"containers": [container]}})
}

#[test]
fn fields_that_are_left_open_get_their_default() {
    let template = json!({"spec": {"containers": []}});
    for (case, api_version, kind, object, expected) in [
        (
            "a pod",
            "v1",
            "Pod",
            pod(json!({"name": "c", "image": "i"})),
            json!({"spec": {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "terminationGracePeriodSeconds": 30,
                            "schedulerName": "default-scheduler", "securityContext": {}, "enableServiceLinks": true}}),
        ),
        (
            "a container",
            "v1",
            "Pod",
            pod(json!({"name": "c", "image": "i", "ports": [{"containerPort": 80}]})),
            pod(json!({"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                       "imagePullPolicy": "Always", "ports": [{"containerPort": 80, "protocol": "TCP"}]})),
        ),
        (
            "a probe",
            "v1",
            "Pod",
            pod(json!({"name": "c", "image": "i:1", "livenessProbe": {"httpGet": {"port": 80}}})),
            pod(json!({"imagePullPolicy": "IfNotPresent", "livenessProbe": {
                "httpGet": {"path": "/", "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10,
                "successThreshold": 1, "failureThreshold": 3}})),
        ),
        (
            "requests follow limits",
            "v1",
            "Pod",
            pod(
                json!({"name": "c", "image": "i@sha256:a", "resources": {"limits": {"cpu": "1", "memory": "1Gi"},
                                                                        "requests": {"cpu": "500m"}}}),
            ),
            pod(json!({"imagePullPolicy": "IfNotPresent",
                       "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}})),
        ),
        (
            "a field reference",
            "v1",
            "Pod",
            pod(
                json!({"name": "c", "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}),
            ),
            pod(json!({"env": [{"valueFrom": {"fieldRef": {"apiVersion": "v1"}}}]})),
        ),
        (
            "host ports on the host's network",
            "v1",
            "Pod",
            json!({"spec": {"hostNetwork": true, "containers": [{"name": "c", "ports": [{"containerPort": 80}]}]}}),
            pod(json!({"ports": [{"hostPort": 80}]})),
        ),
        (
            "volumes",
            "v1",
            "Pod",
            json!({"spec": {"containers": [], "volumes": [
                {"name": "a"}, {"name": "b", "secret": {"secretName": "s"}}, {"name": "c", "configMap": {"name": "c"}},
                {"name": "d", "hostPath": {"path": "/"}}, {"name": "e", "projected": {"sources": [{
                    "serviceAccountToken": {"path": "t"}}]}}, {"name": "f", "downwardAPI": {}}]}}),
            json!({"spec": {"volumes": [
                {"emptyDir": {}}, {"secret": {"defaultMode": 420}}, {"configMap": {"defaultMode": 420}},
                {"hostPath": {"type": ""}}, {"projected": {"defaultMode": 420, "sources": [{
                    "serviceAccountToken": {"expirationSeconds": 3600}}]}}, {"downwardAPI": {"defaultMode": 420}}]}}),
        ),
        (
            "a deployment",
            "apps/v1",
            "Deployment",
            json!({"spec": {"template": template}}),
            json!({"spec": {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600, "strategy": {
                "type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}}}}),
        ),
        (
            "a daemon set",
            "apps/v1",
            "DaemonSet",
            json!({"spec": {"template": template}}),
            json!({"spec": {"revisionHistoryLimit": 10, "updateStrategy": {
                "type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}}}),
        ),
        (
            "a stateful set",
            "apps/v1",
            "StatefulSet",
            json!({"spec": {"template": template}}),
            json!({"spec": {"replicas": 1, "revisionHistoryLimit": 10, "podManagementPolicy": "OrderedReady",
                            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}}}),
        ),
        (
            "a replica set",
            "apps/v1",
            "ReplicaSet",
            json!({"spec": {"template": template}}),
            json!({"spec": {"replicas": 1}}),
        ),
        (
            "a job",
            "batch/v1",
            "Job",
            json!({"spec": {"template": template}}),
            json!({"spec": {"completions": 1, "parallelism": 1, "backoffLimit": 6, "completionMode": "NonIndexed",
                            "suspend": false}}),
        ),
        (
            "a cron job",
            "batch/v1",
            "CronJob",
            json!({"spec": {"jobTemplate": {"spec": {"template": template}}}}),
            json!({"spec": {"concurrencyPolicy": "Allow", "suspend": false, "successfulJobsHistoryLimit": 3,
                            "failedJobsHistoryLimit": 1}}),
        ),
        (
            "a service",
            "v1",
            "Service",
            json!({"spec": {"ports": [{"port": 80}]}}),
            json!({"spec": {"type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
                            "ports": [{"protocol": "TCP", "targetPort": 80}]}}),
        ),
        ("a secret", "v1", "Secret", json!({}), json!({"type": "Opaque"})),
        (
            "a claim",
            "v1",
            "PersistentVolumeClaim",
            json!({"spec": {}, "status": {}}),
            json!({"spec": {"volumeMode": "Filesystem"}, "status": {"phase": "Pending"}}),
        ),
        (
            "a role binding",
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [
                {"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s"}]}),
            json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io"}, "subjects": [
                {"apiGroup": "rbac.authorization.k8s.io"}, {"kind": "ServiceAccount"}]}),
        ),
        (
            "a webhook",
            "admissionregistration.k8s.io/v1",
            "ValidatingWebhookConfiguration",
            json!({"webhooks": [{"name": "w", "clientConfig": {"service": {"name": "s", "namespace": "n"}},
                                 "rules": [{"operations": ["*"]}]}]}),
            json!({"webhooks": [{"failurePolicy": "Fail", "matchPolicy": "Equivalent", "timeoutSeconds": 10,
                                 "namespaceSelector": {}, "objectSelector": {}, "rules": [{"scope": "*"}],
                                 "clientConfig": {"service": {"port": 443}}}]}),
        ),
    ] {
        let found = defaulted(api_version, kind, &object, 37);
        assert!(contains(&found, &expected), "{case}\nexpected {expected}\nfound    {found}");
        let again = defaulted(api_version, kind, &found, 37);
        assert_eq!(again, found, "{case}: defaults are set once");
    }
}

#[test]
fn fields_that_are_set_stay() {
    for (case, api_version, kind, object) in [
        (
            "a pod",
            "v1",
            "Pod",
            json!({"spec": {"restartPolicy": "Never", "dnsPolicy": "None", "terminationGracePeriodSeconds": 0,
                            "schedulerName": "s", "enableServiceLinks": false, "containers": [{
                "name": "c", "image": "i", "imagePullPolicy": "Never", "terminationMessagePath": "/t",
                "terminationMessagePolicy": "FallbackToLogsOnError", "ports": [{"containerPort": 1, "protocol": "UDP"}],
                "livenessProbe": {"exec": {"command": ["a"]}, "timeoutSeconds": 5, "periodSeconds": 6,
                                  "successThreshold": 2, "failureThreshold": 7}}]}}),
        ),
        (
            "no replicas",
            "apps/v1",
            "Deployment",
            json!({"spec": {"replicas": 0, "revisionHistoryLimit": 0, "strategy": {"type": "Recreate"},
                            "template": {"spec": {"containers": []}}}}),
        ),
        (
            "a job that counts indexes",
            "batch/v1",
            "Job",
            json!({"spec": {"completions": 3, "parallelism": 0, "backoffLimit": 0, "completionMode": "Indexed",
                            "suspend": true, "template": {"spec": {"containers": [], "restartPolicy": "Never"}}}}),
        ),
        (
            "a service without cluster IP",
            "v1",
            "Service",
            json!({"spec": {"type": "NodePort", "sessionAffinity": "ClientIP", "ports": [
                {"port": 80, "protocol": "UDP", "targetPort": "web"}]}}),
        ),
        ("a typed secret", "v1", "Secret", json!({"type": "kubernetes.io/tls"})),
    ] {
        let found = defaulted(api_version, kind, &object, 37);
        assert!(contains(&found, &object), "{case}\nset   {object}\nfound {found}");
    }
}

#[test]
fn defaults_begin_with_the_release_that_has_the_field() {
    for (case, api_version, kind, object, pointer, minor, value) in [
        (
            "completion mode",
            "batch/v1",
            "Job",
            json!({"spec": {"template": {"spec": {}}}}),
            "/spec/completionMode",
            21,
            json!("NonIndexed"),
        ),
        (
            "suspend",
            "batch/v1",
            "Job",
            json!({"spec": {"template": {"spec": {}}}}),
            "/spec/suspend",
            21,
            json!(false),
        ),
        (
            "internal traffic policy",
            "v1",
            "Service",
            json!({"spec": {}}),
            "/spec/internalTrafficPolicy",
            22,
            json!("Cluster"),
        ),
        (
            "surge of daemon sets",
            "apps/v1",
            "DaemonSet",
            json!({"spec": {"template": {"spec": {}}}}),
            "/spec/updateStrategy/rollingUpdate/maxSurge",
            22,
            json!(0),
        ),
    ] {
        let before = defaulted(api_version, kind, &object, minor - 1);
        assert_eq!(before.pointer(pointer), None, "{case} in v1.{}", minor - 1);
        let since = defaulted(api_version, kind, &object, minor);
        assert_eq!(since.pointer(pointer), Some(&value), "{case} in v1.{minor}");
    }
}
