//! Spec: admission over TLS: pods, controllers, namespaces, exemptions, and our own judges.

use palisade_apiserver::Server;
use palisade_policy::{resources, scc::mode::ConstraintMode};
use palisade_webhook::{Options, options::ConfigurationSource};
use serde_json::{Value, json};

use crate::support::{
    Caller, Cluster, about, cluster, install, operations, options, patched, pod, pod_request, start,
};

const LATEST: &str = "pod-security.kubernetes.io/";

async fn configured(
    cluster: &Cluster,
    configuration: &str,
) -> (palisade_webhook::Webhook, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("configuration.json");
    let text = format!(
        r#"{{"apiVersion":"pod-security.admission.config.k8s.io/v1","kind":"PodSecurityConfiguration"{configuration}}}"#
    );
    std::fs::write(&file, text).unwrap();
    let options = Options { configuration: ConfigurationSource::File(file), ..options() };
    (start(cluster, options).await, folder)
}

#[tokio::test]
async fn pods() {
    let cluster = cluster(Server::builder()).await;
    cluster
        .namespace("baseline", &[("enforce", "baseline"), ("audit", "restricted"), ("warn", "restricted")])
        .await;
    cluster.namespace("broken", &[]).await;
    let exemptions =
        r#","exemptions":{"usernames":["system:admin"],"namespaces":["exempt"],"runtimeClasses":["kata"]}"#;
    let (webhook, _folder) = configured(&cluster, exemptions).await;
    let caller = Caller::of(&webhook);
    let bad = pod("p", &json!({"hostPID": true}));
    let text = "host namespaces (hostPID=true)";

    let response = caller.review("/validate", &pod_request("baseline", "CREATE", &bad)).await;
    assert_eq!(response["allowed"], false);
    assert_eq!(
        response["status"],
        json!({"status": "Failure", "code": 403, "reason": "Forbidden", "details": {"name": "p", "kind": "pods"},
            "message": format!("pods \"p\" is forbidden: violates PodSecurity \"baseline:latest\": {text}")})
    );
    assert_eq!(response["auditAnnotations"]["enforce-policy"], "baseline:latest");
    assert!(
        response["auditAnnotations"]["audit-violations"]
            .as_str()
            .unwrap()
            .starts_with("would violate PodSecurity \"restricted:latest\": ")
    );
    assert!(response.get("warnings").is_none(), "a refused request is not warned about");
    assert!(response.get("patch").is_none());

    let mut unnamed = bad.clone();
    unnamed["metadata"] = json!({"generateName": "p-"});
    let response = caller.review("/validate", &pod_request("baseline", "CREATE", &unnamed)).await;
    assert!(
        response["status"]["message"]
            .as_str()
            .unwrap()
            .starts_with("pods is forbidden: violates PodSecurity ")
    );

    let good = pod("p", &json!({}));
    let response = caller.review("/validate", &pod_request("baseline", "CREATE", &good)).await;
    assert_eq!(
        (&response["allowed"], response["warnings"].as_array().map(Vec::len)),
        (&json!(true), Some(1))
    );

    for (case, change, expected) in [
        ("exempt namespace", json!({"namespace": "exempt"}), json!({"exempt": "namespace"})),
        ("exempt user", json!({"userInfo": {"username": "system:admin"}}), json!({"exempt": "user"})),
        (
            "runtime class",
            json!({"object": pod("p", &json!({"hostPID": true, "runtimeClassName": "kata"}))}),
            json!({"exempt": "runtimeClass"}),
        ),
        ("subresource", json!({"requestSubResource": "exec"}), Value::Null),
        ("subresource", json!({"requestSubResource": "status"}), Value::Null),
        ("privileged", json!({"namespace": "default"}), json!({"enforce-policy": "privileged:latest"})),
    ] {
        let mut request = pod_request("baseline", "CREATE", &bad);
        for (key, value) in change.as_object().unwrap() {
            request[key] = value.clone();
        }
        let response = caller.review("/validate", &request).await;
        assert_eq!(response["allowed"], true, "{case}");
        assert_eq!(response.get("auditAnnotations").cloned().unwrap_or_default(), expected, "{case}");
    }

    // Only new images and containers are of interest in an update.
    let mut update = pod_request("baseline", "UPDATE", &bad);
    update["oldObject"] = bad.clone();
    assert_eq!(caller.review("/validate", &update).await["allowed"], true);
    update["object"]["spec"]["containers"][0]["image"] = json!("other");
    assert_eq!(caller.review("/validate", &update).await["allowed"], false);
    let mut debug = pod_request("baseline", "UPDATE", &good);
    debug["oldObject"] = good.clone();
    debug["requestSubResource"] = json!("ephemeralcontainers");
    debug["object"]["spec"]["ephemeralContainers"] =
        json!([{"name": "d", "image": "x", "securityContext": {"privileged": true}}]);
    assert_eq!(caller.review("/validate", &debug).await["allowed"], false);

    for (object, message) in
        [(json!({"spec": 7}), "failed to decode object"), (Value::Null, "failed to decode pod")]
    {
        let response = caller.review("/validate", &pod_request("baseline", "CREATE", &object)).await;
        assert_eq!(
            (&response["status"]["code"], &response["status"]["message"]),
            (&json!(400), &json!(message))
        );
    }
    // What a kubelet runs on its own account cannot be refused, only hidden.
    let mut mirror = pod_request("baseline", "CREATE", &bad);
    mirror["object"]["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    assert_eq!(
        caller.review("/validate", &mirror).await["allowed"],
        false,
        "any client can write an annotation"
    );
    mirror["userInfo"] = json!({"username": "system:node:n", "groups": ["system:nodes"]});
    assert_eq!(caller.review("/validate", &mirror).await["allowed"], true);
}

#[tokio::test]
async fn controllers_and_namespaces() {
    let cluster = cluster(Server::builder()).await;
    cluster
        .namespace("strict", &[("enforce", "restricted"), ("audit", "baseline"), ("warn", "baseline")])
        .await;
    let (webhook, _folder) = configured(&cluster, r#","exemptions":{"namespaces":["exempt"]}"#).await;
    let caller = Caller::of(&webhook);
    let object = json!({"metadata": {"name": "d"}, "spec": {"template": {"spec": {"hostIPC": true, "containers": []}}}});
    let text = "would violate PodSecurity \"baseline:latest\": host namespaces (hostIPC=true)";
    let response =
        caller.review("/validate", &about("apps", "deployments", "Deployment", "strict", &object)).await;
    assert_eq!(
        response,
        json!({"uid": response["uid"], "allowed": true, "warnings": [text], "auditAnnotations": {"audit-violations": text}})
    );
    let cron = json!({"metadata": {"name": "d"}, "spec": {"jobTemplate": {"spec": {"template": {"spec": {"hostIPC": true, "containers": []}}}}}});
    let response = caller.review("/validate", &about("batch", "cronjobs", "CronJob", "strict", &cron)).await;
    assert_eq!(response["warnings"], json!([text]));
    let widget = about("example.com", "widgets", "Widget", "strict", &object);
    let response = caller.review("/validate", &widget).await;
    assert_eq!(
        response["auditAnnotations"]["error"],
        "failed to extract pod template: unexpected object type: example.com/v1, Kind=Widget"
    );
    assert_eq!(response["allowed"], true);
    let broken = json!({"spec": {"template": 7}});
    let response =
        caller.review("/validate", &about("apps", "deployments", "Deployment", "strict", &broken)).await;
    assert!(response["auditAnnotations"]["error"].as_str().unwrap().starts_with("failed to decode object: "));

    // A namespace whose level rises gets warnings about its pods.
    cluster.namespace("shop", &[]).await;
    cluster.make("/api/v1/namespaces/shop/pods", &pod("old", &json!({"hostPID": true}))).await;
    let namespace = |name: &str, operation: &str, new: &Value, old: &Value| {
        let mut request =
            about("", "namespaces", "Namespace", name, &json!({"metadata": {"name": name, "labels": new}}));
        request["operation"] = json!(operation);
        request["oldObject"] = json!({"metadata": {"name": name, "labels": old}});
        request
    };
    let baseline = json!({format!("{LATEST}enforce"): "baseline"});
    let response = caller.review("/validate", &namespace("shop", "UPDATE", &baseline, &json!({}))).await;
    assert_eq!(
        response["warnings"],
        json!([
            "existing pods in namespace \"shop\" violate the new PodSecurity enforce level \"baseline:latest\"",
            "old: host namespaces"
        ])
    );
    let wrong = json!({format!("{LATEST}enforce"): "nope"});
    let response = caller.review("/validate", &namespace("new", "CREATE", &wrong, &Value::Null)).await;
    assert_eq!(response["status"]["code"], 422);
    assert_eq!(
        response["status"]["message"],
        "Namespace \"new\" is invalid: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"nope\": must be one of privileged, baseline, restricted"
    );
    assert_eq!(
        caller.review("/validate", &namespace("new", "UPDATE", &wrong, &wrong)).await["allowed"],
        true
    );
    let response = caller.review("/validate", &namespace("exempt", "CREATE", &baseline, &Value::Null)).await;
    assert_eq!(
        response["warnings"],
        json!([
            "namespace \"exempt\" is exempt from Pod Security, and the policy (enforce=baseline:latest) will be ignored"
        ])
    );
}

#[tokio::test]
async fn legacy_annotations_work_again_and_the_patch_is_small() {
    let cluster = cluster(Server::builder()).await;
    let webhook = start(&cluster, options()).await;
    let caller = Caller::of(&webhook);
    let mut object = pod("p", &json!({}));
    object["metadata"]["annotations"] = json!({
        "seccomp.security.alpha.kubernetes.io/pod": "runtime/default",
        "container.seccomp.security.alpha.kubernetes.io/c": "localhost/a/b.json",
    });
    let request = pod_request("default", "CREATE", &object);
    let response = caller.review("/mutate?timeout=10s", &request).await;
    assert_eq!(
        operations(&response),
        json!([
            {"op": "add", "path": "/spec/containers/0/securityContext", "value": {"seccompProfile": {"type": "Localhost", "localhostProfile": "a/b.json"}}},
            {"op": "add", "path": "/spec/securityContext", "value": {"seccompProfile": {"type": "RuntimeDefault"}}}
        ])
    );
    assert_eq!(
        response["warnings"],
        json!([
            "metadata.annotations[seccomp.security.alpha.kubernetes.io/pod]: deprecated since v1.19, support will be dropped in v1.23; use the \"seccompProfile\" field instead",
            "metadata.annotations[container.seccomp.security.alpha.kubernetes.io/c]: deprecated since v1.19, support will be dropped in v1.23; use the \"seccompProfile\" field instead"
        ])
    );
    let again =
        caller.review("/mutate", &pod_request("default", "CREATE", &patched(&object, &response))).await;
    assert_eq!(again, json!({"uid": again["uid"], "allowed": true}), "a second call changes nothing");
    let nothing = caller.review("/mutate", &pod_request("default", "CREATE", &pod("p", &json!({})))).await;
    assert_eq!(nothing, json!({"uid": nothing["uid"], "allowed": true}));
}

#[tokio::test]
async fn policies_have_defaults_and_limits() {
    let cluster = cluster(Server::builder()).await;
    install(&cluster, resources::PROFILE_POLICIES).await;
    let policy = json!({
        "apiVersion": "palisade.dev/v1alpha1", "kind": "ProfilePolicy", "metadata": {"name": "shop"},
        "spec": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "shop"}},
            "seccomp": {"defaultProfile": {"type": "RuntimeDefault"}, "allowedProfiles": {"types": ["RuntimeDefault"]}},
        },
    });
    cluster.make("/apis/palisade.dev/v1alpha1/profilepolicies", &policy).await;
    cluster.namespace("shop", &[]).await;
    let webhook = start(&cluster, options()).await;
    let caller = Caller::of(&webhook);
    let plain = pod("p", &json!({}));
    let response = caller.review("/mutate", &pod_request("shop", "CREATE", &plain)).await;
    assert_eq!(
        operations(&response),
        json!([{"op": "add", "path": "/spec/securityContext", "value": {"seccompProfile": {"type": "RuntimeDefault"}}}])
    );
    assert_eq!(
        operations(&caller.review("/mutate", &pod_request("default", "CREATE", &plain)).await),
        json!([])
    );
    let open = pod("p", &json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}));
    let response = caller.review("/validate", &pod_request("shop", "CREATE", &open)).await;
    assert_eq!(
        response["status"]["message"],
        "pods \"p\" is forbidden: spec.securityContext.seccompProfile: seccomp profile Unconfined is not allowed by ProfilePolicy \"shop\": allowed is RuntimeDefault"
    );
    assert_eq!(caller.review("/validate", &pod_request("default", "CREATE", &open)).await["allowed"], true);
}

#[tokio::test]
async fn constraints_write_and_judge_where_they_are_in_force() {
    let cluster = cluster(
        Server::builder()
            .openshift(true)
            .disable_plugins(["security.openshift.io/SecurityContextConstraint".to_owned()]),
    )
    .await;
    cluster.namespace("shop", &[]).await;
    let webhook = start(&cluster, Options { constraints: ConstraintMode::Enforce, ..options() }).await;
    let caller = Caller::of(&webhook);
    let plain = pod("p", &json!({"serviceAccountName": "default"}));
    let response = caller.review("/mutate", &pod_request("shop", "CREATE", &plain)).await;
    assert_eq!(response["allowed"], true, "{response}");
    let written = patched(&plain, &response);
    assert_eq!(written["metadata"]["annotations"]["openshift.io/scc"], "restricted-v2");
    assert_eq!(written["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"], false);
    assert!(
        written["spec"]["containers"][0]["securityContext"]["runAsUser"].as_i64().unwrap() >= 1_000_000_000
    );
    let again = caller.review("/mutate", &pod_request("shop", "CREATE", &written)).await;
    assert_eq!(operations(&again), json!([]), "a second call changes nothing");
    let response = caller.review("/validate", &pod_request("shop", "CREATE", &written)).await;
    assert_eq!(response["allowed"], true, "{response}");
    let root = pod("p", &json!({"serviceAccountName": "default", "securityContext": {"runAsUser": 0}}));
    let response = caller.review("/mutate", &pod_request("shop", "CREATE", &root)).await;
    let message = response["status"]["message"].as_str().unwrap();
    assert!(
        message.starts_with(
            "pods \"p\" is forbidden: unable to validate against any security context constraint: "
        ),
        "{message}"
    );
    assert!(response.get("patch").is_none());
    let response = caller.review("/validate", &pod_request("shop", "CREATE", &root)).await;
    assert_eq!(response["allowed"], false);
}

/// What broke when the rollout brought constraints along: none of it may happen while they are off, or only report.
#[tokio::test]
async fn constraints_that_are_off_or_only_report_break_no_pod() {
    for (mode, is_openshift) in [
        (ConstraintMode::Off, true),
        (ConstraintMode::Audit, true),
        // No constraint is installed, and not even their kind.
        (ConstraintMode::Audit, false),
    ] {
        let plugin = "security.openshift.io/SecurityContextConstraint".to_owned();
        let cluster = cluster(Server::builder().openshift(is_openshift).disable_plugins([plugin])).await;
        cluster.namespace("shop", &[]).await;
        let webhook = start(&cluster, Options { constraints: mode, ..options() }).await;
        let caller = Caller::of(&webhook);
        let compliant =
            json!({"runAsUser": 1000, "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
        for (case, would, spec) in [
            ("a pod of a hostNetwork Deployment", "would reject the pod", json!({"hostNetwork": true})),
            (
                "a compliant pod with its own user",
                "would reject the pod",
                json!({"securityContext": compliant}),
            ),
            ("a pod whose image runs as root", "would change", json!({})),
        ] {
            let mut spec = spec;
            spec["serviceAccountName"] = json!("default");
            let object = pod("p", &spec);
            let response = caller.review("/mutate", &pod_request("shop", "CREATE", &object)).await;
            assert_eq!(response["allowed"], true, "{mode} {case}: {response}");
            assert_eq!(operations(&response), json!([]), "{mode} {case}");
            let warned = response["warnings"].to_string();
            let is_reported = mode == ConstraintMode::Audit && is_openshift;
            assert_eq!(warned.contains(would), is_reported, "{mode} {case}: {warned}");
            let response = caller.review("/validate", &pod_request("shop", "CREATE", &object)).await;
            assert_eq!(response["allowed"], true, "{mode} {case}: {response}");
        }
        webhook.shutdown().await;
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_rejected_by_both_webhooks() {
    let cluster = cluster(Server::builder()).await;
    cluster.namespace("strict", &[("enforce", "restricted")]).await;
    let webhook = start(&cluster, options()).await;
    let caller = Caller::of(&webhook);
    for object in [
        json!([]),
        json!("pod"),
        json!({"spec": []}),
        json!({"spec": {"containers": [{"name": "c", "securityContext": {"runAsUser": 0.5}}]}}),
        json!({"kind": "EphemeralContainers", "apiVersion": "v1"}),
        Value::Null,
    ] {
        for path in ["/mutate", "/validate"] {
            let response = caller.review(path, &pod_request("strict", "CREATE", &object)).await;
            assert_eq!(
                (&response["allowed"], &response["status"]["code"]),
                (&json!(false), &json!(400)),
                "{path} {object}"
            );
        }
    }
    let mut managed = json!({});
    for _ in 0..100 {
        managed = json!({"f:a": managed});
    }
    let mut bad = pod("p", &json!({"hostPID": true}));
    bad["metadata"]["managedFields"] = json!([{"fieldsV1": managed}]);
    let response = caller.review("/validate", &pod_request("strict", "CREATE", &bad)).await;
    assert_eq!((&response["allowed"], &response["status"]["code"]), (&json!(false), &json!(403)));
}

#[tokio::test]
async fn policies_that_cannot_be_applied_are_rejected_and_reject_pods() {
    // An API server without this rule of its own.
    let cluster = cluster(Server::builder().disable_plugins(["ProfilePolicy".to_owned()])).await;
    install(&cluster, resources::PROFILE_POLICIES).await;
    let policy = |types: Value| {
        json!({
            "apiVersion": "palisade.dev/v1alpha1", "kind": "ProfilePolicy", "metadata": {"name": "shop"},
            "spec": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "shop"}},
                "seccomp": {"defaultProfile": {"type": "Unconfined"}, "allowedProfiles": {"types": types}},
            },
        })
    };
    cluster.make("/apis/palisade.dev/v1alpha1/profilepolicies", &policy(json!(["RuntimeDefault"]))).await;
    cluster.namespace("shop", &[]).await;
    let webhook = start(&cluster, options()).await;
    let caller = Caller::of(&webhook);
    let written = |object: &Value| {
        let mut request = about("palisade.dev", "profilepolicies", "ProfilePolicy", "", object);
        request["kind"]["version"] = json!("v1alpha1");
        request
    };
    let response = caller.review("/validate", &written(&policy(json!(["RuntimeDefault"])))).await;
    assert_eq!(
        (&response["allowed"], &response["status"]["code"]),
        (&json!(false), &json!(422)),
        "{response}"
    );
    let response = caller.review("/validate", &written(&policy(json!(["Unconfined"])))).await;
    assert_eq!(response["allowed"], true, "{response}");
    for (namespace, allowed) in [("shop", false), ("default", true)] {
        for path in ["/mutate", "/validate"] {
            let request = pod_request(namespace, "CREATE", &pod("p", &json!({})));
            let response = caller.review(path, &request).await;
            assert_eq!(response["allowed"], allowed, "{namespace} {path} {response}");
            if !allowed {
                let message = response["status"]["message"].as_str().unwrap();
                assert!(message.contains("ProfilePolicy \"shop\" cannot be applied: "), "{message}");
            }
        }
    }
}

/// The warning about a workload and the verdict about its pod agree, whatever the mutating webhook does in between.
#[tokio::test]
async fn a_workload_is_warned_about_what_its_pods_will_meet() {
    let cluster = cluster(Server::builder()).await;
    install(&cluster, resources::PROFILE_POLICIES).await;
    let policy = json!({"apiVersion": "palisade.dev/v1alpha1", "kind": "ProfilePolicy", "metadata": {"name": "defaults"},
        "spec": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "with-policy"}},
            "seccomp": {"defaultProfile": {"type": "RuntimeDefault"}, "allowedProfiles": {"types": ["RuntimeDefault"]}}}});
    cluster.make("/apis/palisade.dev/v1alpha1/profilepolicies", &policy).await;
    let policy = json!({"apiVersion": "palisade.dev/v1alpha1", "kind": "ProfilePolicy", "metadata": {"name": "config-maps"},
        "spec": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "plain"}},
            "seccomp": {"allowedProfiles": {"types": ["ConfigMap", "RuntimeDefault", "Unconfined"], "configMaps": ["web"]}}}});
    cluster.make("/apis/palisade.dev/v1alpha1/profilepolicies", &policy).await;
    for namespace in ["plain", "with-policy", "without-policy"] {
        cluster.namespace(namespace, &[("enforce", "restricted"), ("warn", "restricted")]).await;
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}, "data": {"a.json": r#"{"defaultAction":"SCMP_ACT_ERRNO"}"#}});
        cluster.make(&format!("/api/v1/namespaces/{namespace}/configmaps"), &map).await;
    }
    let (pod_key, container_key) =
        ("seccomp.security.alpha.kubernetes.io/pod", "container.seccomp.security.alpha.kubernetes.io/c");
    let webhook = start(&cluster, options()).await;
    let caller = Caller::of(&webhook);
    for (case, annotations, plain, with_policy) in [
        ("no profile", json!({}), false, true),
        ("a profile of the pod", json!({pod_key: "runtime/default"}), true, true),
        ("a profile of the container", json!({container_key: "docker/default"}), true, true),
        ("unconfined", json!({pod_key: "unconfined"}), false, false),
        (
            "a profile in a ConfigMap",
            json!({"seccomp.palisade.dev/pod": "configmap/web/a.json"}),
            true,
            false,
        ),
        ("another annotation", json!({"seccomp.example.com/x": "runtime/default"}), false, true),
    ] {
        let without_policy = plain && case != "a profile in a ConfigMap";
        for (namespace, admitted) in
            [("plain", plain), ("with-policy", with_policy), ("without-policy", without_policy)]
        {
            let mut object = pod("p", &json!({"securityContext": {"runAsNonRoot": true}}));
            object["spec"]["containers"][0]["securityContext"] =
                json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
            object["metadata"]["annotations"] = annotations.clone();
            let template = json!({"metadata": {"annotations": annotations}, "spec": object["spec"]});
            let deployment = json!({"metadata": {"name": "d"}, "spec": {"template": template}});
            let request = about("apps", "deployments", "Deployment", namespace, &deployment);
            let warned = caller.review("/validate", &request).await;
            assert_eq!(warned["allowed"], true, "{case}: {warned}");
            let mutated = caller.review("/mutate", &pod_request(namespace, "CREATE", &object)).await;
            let judged = match mutated["allowed"].as_bool() {
                Some(true) => {
                    let object = patched(&object, &mutated);
                    caller.review("/validate", &pod_request(namespace, "CREATE", &object)).await
                }
                _ => mutated,
            };
            assert_eq!(judged["allowed"], admitted, "{case} in {namespace}: {judged}");
            assert_eq!(warned["warnings"].is_null(), admitted, "{case} in {namespace}: {warned} {judged}");
        }
    }
}
