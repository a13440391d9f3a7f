//! `check --cluster` and `explain --live` against the embedded server.

use std::process::{Command, Output};

use kube::{
    Api, Client, Config,
    api::{DynamicObject, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use palisade_apiserver::Server;
use palisade_base::version::KubeVersion;
use palisade_model::compat::{Compat, FeatureGates};
use serde_json::{Value, json};

fn palisade(arguments: &[&str], kubeconfig: &std::path::Path) -> String {
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_palisade"))
        .args(arguments)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}exit status: {}", text(&stdout), text(&stderr), status.code().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_and_explains_objects_of_a_cluster_like_files() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let server = Server::builder().kubeconfig(&kubeconfig).start().await.unwrap();
    let (read, options) = (Kubeconfig::read_from(&kubeconfig).unwrap(), KubeConfigOptions::default());
    let config = Config::from_custom_kubeconfig(read, &options).await.unwrap();
    let client = Client::try_from(config).unwrap();
    let put = async |group: &str, kind: &str, namespace: Option<&str>, object: Value| {
        let version = kube::core::GroupVersionKind::gvk(group, "v1", kind);
        let resource = kube::core::ApiResource::from_gvk(&version);
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
    };
    put("", "Namespace", None, json!({"metadata": {"name": "shop"}})).await;
    put(
        "",
        "Node",
        None,
        json!({"metadata": {"name": "n1"}, "status": {"nodeInfo": {"kubeletVersion": "v1.27.3"}}}),
    )
    .await;
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"hostNetwork": true,
        "containers": [{"name": "web", "image": "nginx"}]}});
    let deployment = json!({"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template}});
    put("apps", "Deployment", Some("shop"), deployment).await;
    let account = json!({"metadata": {"name": "default"}});
    let resource =
        kube::core::ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk("", "v1", "ServiceAccount"));
    let accounts: Api<DynamicObject> = Api::namespaced_with(client.clone(), "shop", &resource);
    let _ = accounts.create(&PostParams::default(), &serde_json::from_value(account).unwrap()).await;
    put("", "Pod", Some("shop"), json!({"metadata": {"name": "lone"}, "spec": {"nodeName": "n1", "securityContext": {"runAsNonRoot": true},
        "containers": [{"name": "c", "image": "i", "securityContext": {"privileged": true}}]}})).await;
    let set = json!({"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template}});
    let uid = put("apps", "ReplicaSet", Some("shop"), set).await.metadata.uid.unwrap();
    let alike = &template["spec"];
    let other = json!({"containers": [{"name": "c", "image": "i", "securityContext": {"privileged": true}}]});
    for (name, uid, spec) in
        [("web-1", uid.as_str(), alike), ("unlike", uid.as_str(), &other), ("hidden", "1", alike)]
    {
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": uid, "controller": true});
        // The garbage collector would delete a pod without its owner, sooner or later.
        let metadata = json!({"name": name, "ownerReferences": [owner], "finalizers": ["example.com/hold"]});
        let pod = json!({"metadata": metadata, "spec": spec});
        put("", "Pod", Some("shop"), pod).await;
    }

    let run = |arguments: &'static [&'static str]| {
        let kubeconfig = kubeconfig.clone();
        tokio::task::spawn_blocking(move || palisade(arguments, &kubeconfig))
    };
    let shown = run(&["check", "--cluster", "-A", "--level=baseline"]).await.unwrap();
    assert!(shown.contains("error[pss/privileged]"), "{shown}");
    assert!(shown.contains("--> cluster:shop/pod/lone:"), "{shown}");
    assert!(shown.contains("--> cluster:shop/deployment/web:"), "{shown}");
    assert!(shown.contains("--> cluster:shop/replicaset/web:"), "{shown}");
    assert!(
        shown.contains("--> cluster:shop/pod/unlike:"),
        "a pod that is not what its controller makes: {shown}"
    );
    assert!(shown.contains("--> cluster:shop/pod/hidden:"), "a controller that does not exist: {shown}");
    assert!(
        shown.contains("5 objects in 5 files checked at baseline:latest: 0 allowed, 5 denied"),
        "{shown}"
    );
    assert!(shown.ends_with("exit status: 1"), "{shown}");
    let shown = run(&["check", "--cluster", "-n", "shop", "--owned", "--level=baseline", "-q", "-o", "name"])
        .await
        .unwrap();
    assert!(shown.contains("web-1"), "{shown}");
    let shown = run(&["check", "--cluster"]).await.unwrap();
    assert_eq!(
        shown, "error: nothing was checked: no pods or workloads found\nexit status: 2",
        "the context's namespace is empty"
    );

    let shown = run(&["explain", "--live", "shop/lone", "-o", "json"]).await.unwrap();
    assert!(shown.contains("\"kubelet\": \"v1.27"), "{shown}");
    assert!(shown.contains("\"apiserver\": \"v1.37"), "{shown}");
    assert!(shown.contains("cluster:shop/pod/lone"), "{shown}");
    let shown = run(&["explain", "--live", "deploy/web", "-n", "shop"]).await.unwrap();
    assert!(shown.contains("hostNetwork"), "{shown}");
    let shown = run(&["explain", "--live", "shop/absent"]).await.unwrap();
    let absent = format!(
        "error: cannot read from {}: pods \"absent\" not found; check the name and the namespace",
        server.url()
    );
    assert_eq!(shown, absent + "\nexit status: 3");
    server.shutdown().await;
}

/// The embedded server announces its extensions and gates; an emulated release looks like the release.
#[tokio::test(flavor = "multi_thread")]
async fn uses_the_rules_that_the_server_announces() {
    for (compat, git_version, api, status) in [
        (
            Compat {
                gates: FeatureGates { seccomp_config_maps: true, ..FeatureGates::default() },
                ..Compat::designs()
            },
            "v1.37.0+palisade",
            "v1.37 with Palisade's extensions",
            0,
        ),
        (Compat::designs(), "v1.37.0+palisade", "v1.37 with Palisade's extensions", 1),
        (Compat::kubernetes(37), "v1.37.0", "v1.37", 1),
        (Compat::kubernetes(24), "v1.24.0", "v1.24", 1),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let version = KubeVersion::v1(compat.api_minor());
        let server =
            Server::builder().version(version).compat(compat).kubeconfig(&kubeconfig).start().await.unwrap();
        let client = Client::new(server.router(), "default");
        let get = async |path: &str| {
            client.request::<Value>(hyper::Request::get(path).body(Vec::new()).unwrap()).await.unwrap()
        };
        let version = get("/version").await;
        assert_eq!(version["gitVersion"], git_version);
        assert_eq!(version.get("palisade").is_some(), compat.is_designs(), "{version}");
        assert_eq!(client.apiserver_version().await.unwrap().git_version, git_version);
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
            "securityContext": {"runAsNonRoot": true, "seccompProfile": if compat.gates.seccomp_config_maps {
                json!({"type": "ConfigMap", "configMapProfile": "profiles/web.json"})
            } else {
                json!({"type": "Unconfined"})
            }},
            "containers": [{"name": "c", "image": "i", "securityContext": {
                "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]}});
        let pods: Api<DynamicObject> = Api::namespaced_with(
            client.clone(),
            "default",
            &kube::core::ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk("", "v1", "Pod")),
        );
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        let run = |arguments: &'static [&'static str]| {
            let kubeconfig = kubeconfig.clone();
            tokio::task::spawn_blocking(move || palisade(arguments, &kubeconfig))
        };
        let shown = run(&["explain", "--live", "default/p", "-o", "json"]).await.unwrap();
        assert!(shown.contains(&format!("\"apiserver\": \"{api}\"")), "{shown}");
        let shown = run(&["check", "--cluster", "-n", "default"]).await.unwrap();
        assert!(shown.ends_with(&format!("exit status: {status}")), "{api}: {shown}");
        server.shutdown().await;
    }
}

/// A cluster with a pod that baseline allows and restricted does not in each of several namespaces.
async fn labelled_cluster(folder: &std::path::Path) -> (Server, std::path::PathBuf) {
    let kubeconfig = folder.join("kubeconfig");
    let server = Server::builder().compat(Compat::designs()).kubeconfig(&kubeconfig).start().await.unwrap();
    let label = |name: &str| format!("pod-security.kubernetes.io/{name}");
    let mut objects = Vec::new();
    for (name, labels) in [
        ("strict", json!({label("enforce"): "restricted"})),
        ("based", json!({label("enforce"): "baseline", label("enforce-version"): "v1.24"})),
        ("open", json!({label("enforce"): "privileged"})),
        ("bare", json!({label("warn"): "baseline"})),
    ] {
        objects.push(
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}),
        );
        objects.push(json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": name}, "spec": {
            "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}}, "spec": {
                "hostUsers": true, "containers": [{"name": "web", "image": "i"}]}}}}));
    }
    objects.push(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "workloads"}, "rules": [
        {"apiGroups": ["", "apps", "batch"], "verbs": ["list"],
            "resources": ["pods", "podtemplates", "replicationcontrollers", "deployments", "daemonsets", "statefulsets", "replicasets", "jobs", "cronjobs"]}]}));
    objects.push(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "workloads"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "workloads"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader"}]}));
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    let path = kubeconfig.clone();
    tokio::task::spawn_blocking(move || crate::support::kubectl(&path, &["create", "-f", "-"], &list))
        .await
        .unwrap();
    (server, kubeconfig)
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_a_cluster_are_judged_by_the_labels_of_their_namespace() {
    let folder = tempfile::tempdir().unwrap();
    let (server, kubeconfig) = labelled_cluster(folder.path()).await;
    let run = |arguments: &'static [&'static str], kubeconfig: &std::path::Path| {
        let kubeconfig = kubeconfig.to_owned();
        tokio::task::spawn_blocking(move || palisade(arguments, &kubeconfig))
    };
    let judged = |shown: &str| -> Vec<String> {
        let json: Value = serde_json::from_str(shown.split_once("\nexit status").unwrap().0).unwrap();
        let objects = json["objects"].as_array().unwrap().iter();
        let objects = objects.filter(|object| object["kind"] == "Deployment");
        objects
            .map(|o| {
                format!("{} {} {} {}", o["namespace"], o["level"], o["version"], o["allowed"])
                    .replace('"', "")
            })
            .collect()
    };
    let shown = run(&["check", "--cluster", "-A", "-q", "-o", "json"], &kubeconfig).await.unwrap();
    assert!(shown.ends_with("exit status: 1"), "{shown}");
    assert_eq!(
        judged(&shown),
        [
            "bare restricted latest false",
            "based baseline v1.24 true",
            "open privileged latest true",
            "strict restricted latest false"
        ]
    );
    let shown = run(&["check", "--cluster", "-A", "-q", "-o", "json", "--level=baseline"], &kubeconfig)
        .await
        .unwrap();
    assert!(judged(&shown).iter().all(|line| line.ends_with("baseline latest true")), "{shown}");
    let shown = run(&["check", "--cluster", "-n", "based"], &kubeconfig).await.unwrap();
    assert!(shown.contains("checked at the level of each namespace"), "{shown}");
    assert!(shown.ends_with("exit status: 0"), "{shown}");
    let shown = run(&["check", "--cluster", "-n", "strict"], &kubeconfig).await.unwrap();
    assert!(!shown.contains("can be fixed"), "there is no file to fix: {shown}");
    for fix in ["--fix", "--unsafe-fixes", "--fix-partial", "--diff"] {
        let arguments: &'static [&'static str] = vec!["check", "--cluster", fix].leak();
        let shown = run(arguments, &kubeconfig).await.unwrap();
        assert!(shown.contains("cannot be used with") && shown.ends_with("exit status: 2"), "{fix}: {shown}");
    }

    // An exception of the cluster, and a user who may read neither namespaces nor exceptions.
    let exception = json!({"apiVersion": "palisade.dev/v1alpha1", "kind": "SecurityException", "metadata": {"name": "root"}, "spec": {
        "namespaces": ["strict"], "workloads": [{"kind": "Deployment", "name": "web"}], "reason": "r", "owner": "o", "ticket": "t", "until": "2999-01-01T00:00:00Z",
        "allow": [{"control": "runAsNonRoot", "field": "spec.securityContext.runAsNonRoot"}]}});
    let path = kubeconfig.clone();
    tokio::task::spawn_blocking(move || {
        crate::support::kubectl(&path, &["create", "-f", "-"], &exception.to_string())
    })
    .await
    .unwrap();
    let shown = run(&["check", "--cluster", "-n", "strict", "--owned", "-q"], &kubeconfig).await.unwrap();
    let of_deployment = |shown: &str| {
        shown.split("\n\n").filter(|part| part.contains("/deployment/")).collect::<Vec<_>>().join("\n")
    };
    assert!(!of_deployment(&shown).contains("pss/runAsNonRoot"), "{shown}");
    assert!(of_deployment(&shown).contains("pss/capabilities_restricted"), "{shown}");

    let mut limited = Kubeconfig::read_from(&kubeconfig).unwrap();
    limited.auth_infos[0].auth_info.as_mut().unwrap().impersonate = Some("reader".to_owned());
    let limited_path = folder.path().join("limited");
    std::fs::write(&limited_path, serde_json::to_string(&limited).unwrap()).unwrap();
    let shown = run(&["check", "--cluster", "-A"], &limited_path).await.unwrap();
    assert!(
        shown.contains("error[input/namespace]: the level of namespace \"based\" is not known"),
        "{shown}"
    );
    assert!(shown.contains("0 objects") && shown.ends_with("exit status: 2"), "{shown}");
    let shown = run(&["check", "--cluster", "-A", "--level=privileged"], &limited_path).await.unwrap();
    assert!(
        shown.contains("the exceptions of the cluster are not known") && shown.ends_with("exit status: 0"),
        "{shown}"
    );

    let shown =
        run(&["preview", "--cluster", "-A", "--from=v1.36", "--to=v1.36"], &kubeconfig).await.unwrap();
    assert!(
        shown.contains("0 changes from v1.36 to v1.36 for ") && shown.ends_with("exit status: 0"),
        "{shown}"
    );
    server.shutdown().await;
}
