//! Who may do what: escalation through roles and bindings, creation by PUT and apply, impersonation, tokens.

use http::Request;
use palisade_apiserver::auth::UserInfo;
use palisade_apiserver::{Router, Server};
use serde_json::{Value, json};
use tower::Service as _;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// A server in this process, and the user whose rights are tried.
pub(crate) struct World {
    pub(crate) router: Router,
}

pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) text: String,
}

impl World {
    /// `rules` are bound to the user `mallory` in the whole cluster, `local` in the namespace `default`.
    pub(crate) async fn new(rules: &Value, local: &Value) -> Self {
        let world = Self { router: Server::builder().router().expect("router") };
        for (resource, namespace, rules) in [("cluster", "", rules), ("", "/namespaces/default", local)] {
            let kind = if resource.is_empty() { "Role" } else { "ClusterRole" };
            let role = json!({"metadata": {"name": "hers"}, "rules": rules});
            let binding = json!({
                "metadata": {"name": "hers"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "hers"},
                "subjects": [{"kind": "User", "name": "mallory"}],
            });
            world.admin("POST", &format!("{RBAC}{namespace}/{resource}roles"), &role).await;
            world.admin("POST", &format!("{RBAC}{namespace}/{resource}rolebindings"), &binding).await;
        }
        world
    }

    pub(crate) async fn send(
        &self,
        user: UserInfo,
        method: &str,
        path: &str,
        kind: &str,
        body: &Value,
    ) -> Answer {
        self.send_with(user, method, path, &[("content-type", kind)], body).await
    }

    async fn send_with(
        &self,
        user: UserInfo,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = request.body(body).expect("request");
        let response = self.router.as_user(user).call(request).await.expect("infallible");
        let code = response.status().as_u16();
        let mut body = response.into_body();
        let mut bytes = Vec::new();
        while let Some(frame) =
            std::future::poll_fn(|cx| http_body::Body::poll_frame(std::pin::Pin::new(&mut body), cx)).await
        {
            if let Ok(data) = frame.expect("frame").into_data() {
                bytes.extend_from_slice(&data);
            }
        }
        Answer { code, text: String::from_utf8(bytes).expect("text") }
    }

    pub(crate) async fn admin(&self, method: &str, path: &str, body: &Value) {
        let answer = self.send(UserInfo::admin(), method, path, "application/json", body).await;
        assert!(answer.code < 300, "{method} {path}: {}", answer.text);
    }

    pub(crate) async fn mallory(&self, method: &str, path: &str, body: &Value) -> Answer {
        let kind = match method {
            "PATCH" => "application/merge-patch+json",
            "APPLY" => "application/apply-patch+yaml",
            _ => "application/json",
        };
        let applied =
            format!("{path}{}fieldManager=x&force=true", if path.contains('?') { "&" } else { "?" });
        let (method, path) = if method == "APPLY" { ("PATCH", applied.as_str()) } else { (method, path) };
        self.send(mallory(), method, path, kind, body).await
    }
}

fn mallory() -> UserInfo {
    UserInfo::new("mallory", &["devs", "system:authenticated"])
}

pub(crate) fn rule(verbs: &[&str], group: &str, resources: &[&str]) -> Value {
    json!({"verbs": verbs, "apiGroups": [group], "resources": resources})
}

/// Everything that may be done to roles and bindings, except `escalate` and `bind`.
fn writes_rbac() -> Value {
    let verbs = ["create", "get", "list", "watch", "update", "patch", "delete"];
    let resources = ["roles", "clusterroles", "rolebindings", "clusterrolebindings"];
    rule(&verbs, "rbac.authorization.k8s.io", &resources)
}

fn cluster_role(name: &str, rules: &Value) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules})
}

fn cluster_binding(name: &str, role: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": "mallory", "apiGroup": "rbac.authorization.k8s.io"}],
    })
}

pub(crate) fn with(mut object: Value, field: &str, value: Value) -> Value {
    object[field] = value;
    object
}

const NOT_HELD: &str = "is attempting to grant RBAC permissions not currently held";
const AGGREGATION: &str = "must have cluster-admin privileges to use the aggregationRule";

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const ROLE_X: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/x";
const STORED: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/stored";
const VIEW: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/view";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const BOUND: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/stored";

/// A case: its name, mallory's rules beside writing RBAC objects, the request, the code and part of the text.
type Case = (&'static str, Value, (&'static str, &'static str, Value), u16, &'static str);

fn cluster_cases() -> Vec<Case> {
    let everything = || json!([rule(&["*"], "*", &["*"]), {"verbs": ["*"], "nonResourceURLs": ["*"]}]);
    let pods = || json!([rule(&["get"], "", &["pods"])]);
    let named =
        || json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}]);
    let url = |path: &str| json!([{"verbs": ["get"], "nonResourceURLs": [path]}]);
    let escalate = || json!([rule(&["escalate"], "rbac.authorization.k8s.io", &["clusterroles"])]);
    let escalate_named = || {
        json!([{"verbs": ["escalate"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"],
            "resourceNames": ["x"]}])
    };
    let aggregating = |object: Value| {
        with(object, "aggregationRule", json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}))
    };
    let role = |rules: Value| cluster_role("x", &rules);
    let bind = || json!([rule(&["bind"], "rbac.authorization.k8s.io", &["clusterroles"])]);
    let bind_named = |name: &str| {
        json!([{"verbs": ["bind"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"],
            "resourceNames": [name]}])
    };
    vec![
        ("rules that are held", pods(), ("POST", ROLES, role(pods())), 201, ""),
        ("rules that are not", json!([]), ("POST", ROLES, role(pods())), 403, NOT_HELD),
        ("by PUT", json!([]), ("PUT", ROLE_X, role(pods())), 403, NOT_HELD),
        ("by PUT, held", pods(), ("PUT", ROLE_X, role(pods())), 201, ""),
        ("by apply", json!([]), ("APPLY", ROLE_X, role(pods())), 403, NOT_HELD),
        ("by apply, held", pods(), ("APPLY", ROLE_X, role(pods())), 201, ""),
        ("no rules at all", json!([]), ("POST", ROLES, role(json!([]))), 201, ""),
        ("everything", json!([]), ("POST", ROLES, role(everything())), 403, NOT_HELD),
        ("a name out of all", pods(), ("POST", ROLES, role(named())), 201, ""),
        ("all out of a name", named(), ("POST", ROLES, role(pods())), 403, NOT_HELD),
        (
            "a wildcard out of one verb",
            pods(),
            ("POST", ROLES, role(json!([rule(&["*"], "", &["pods"])]))),
            403,
            NOT_HELD,
        ),
        (
            "a subresource out of the resource",
            pods(),
            ("POST", ROLES, role(json!([rule(&["get"], "", &["pods/log"])]))),
            403,
            NOT_HELD,
        ),
        (
            "a subresource out of */subresource",
            json!([rule(&["get"], "", &["*/log"])]),
            ("POST", ROLES, role(json!([rule(&["get"], "", &["pods/log"])]))),
            201,
            "",
        ),
        ("a path", json!([]), ("POST", ROLES, role(url("/secret"))), 403, NOT_HELD),
        ("a path under a prefix", url("/secret/*"), ("POST", ROLES, role(url("/secret/a"))), 201, ""),
        ("a prefix out of a path", url("/secret/a"), ("POST", ROLES, role(url("/secret/*"))), 403, NOT_HELD),
        (
            "all resources are not paths",
            json!([rule(&["get"], "*", &["*"])]),
            ("POST", ROLES, role(url("/secret"))),
            403,
            NOT_HELD,
        ),
        (
            "another user's group is listed in full",
            json!([]),
            ("POST", ROLES, role(pods())),
            403,
            "user \\\"mallory\\\" (groups=[\\\"devs\\\" \\\"system:authenticated\\\"])",
        ),
        ("escalate", escalate(), ("POST", ROLES, role(everything())), 201, ""),
        ("escalate on a name, on POST", escalate_named(), ("POST", ROLES, role(everything())), 403, NOT_HELD),
        ("escalate on a name, on PUT", escalate_named(), ("PUT", ROLE_X, role(everything())), 201, ""),
        ("escalate lets aggregate", escalate(), ("POST", ROLES, aggregating(role(json!(null)))), 201, ""),
        ("aggregation", json!([]), ("POST", ROLES, aggregating(role(json!(null)))), 403, AGGREGATION),
        (
            "aggregation by apply",
            json!([]),
            ("APPLY", ROLE_X, aggregating(cluster_role("x", &json!([])))),
            403,
            AGGREGATION,
        ),
        (
            "aggregation with an empty selector",
            json!([]),
            (
                "POST",
                ROLES,
                with(role(json!(null)), "aggregationRule", json!({"clusterRoleSelectors": [{}]})),
            ),
            403,
            AGGREGATION,
        ),
        (
            "every verb on everything includes escalate",
            json!([rule(&["*"], "*", &["*"])]),
            ("POST", ROLES, aggregating(role(json!(null)))),
            201,
            "",
        ),
        (
            "aggregation by who holds everything",
            everything(),
            ("POST", ROLES, aggregating(role(json!(null)))),
            201,
            "",
        ),
        (
            "aggregation added by a patch",
            pods(),
            (
                "PATCH",
                STORED,
                json!({"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}),
            ),
            403,
            NOT_HELD,
        ),
        (
            "a label that lets a role be aggregated",
            json!([]),
            (
                "PATCH",
                STORED,
                json!({"metadata": {"labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}}),
            ),
            403,
            NOT_HELD,
        ),
        (
            "an annotation of a role that is not held",
            json!([]),
            ("PATCH", STORED, json!({"metadata": {"annotations": {"a": "b"}}})),
            403,
            NOT_HELD,
        ),
        (
            "only what the garbage collector changes",
            json!([]),
            ("PATCH", STORED, json!({"metadata": {"finalizers": ["example.com/a"]}})),
            200,
            "",
        ),
        ("fewer rules", json!([]), ("PATCH", STORED, json!({"rules": []})), 200, ""),
        (
            "an aggregated role",
            json!([]),
            ("PATCH", VIEW, json!({"rules": [], "metadata": {"labels": {"a": "b"}}})),
            403,
            AGGREGATION,
        ),
        (
            "an aggregation rule that is removed",
            json!([]),
            ("PATCH", VIEW, json!({"rules": [], "aggregationRule": null})),
            403,
            AGGREGATION,
        ),
        (
            "a role that is not held",
            json!([]),
            ("POST", BINDINGS, cluster_binding("x", "cluster-admin")),
            403,
            NOT_HELD,
        ),
        (
            "a role that is not there",
            json!([]),
            ("POST", BINDINGS, cluster_binding("x", "missing")),
            404,
            "not found",
        ),
        ("bind", bind(), ("POST", BINDINGS, cluster_binding("x", "cluster-admin")), 201, ""),
        (
            "bind on that role",
            bind_named("cluster-admin"),
            ("POST", BINDINGS, cluster_binding("x", "cluster-admin")),
            201,
            "",
        ),
        (
            "bind on another role",
            bind_named("view"),
            ("POST", BINDINGS, cluster_binding("x", "cluster-admin")),
            403,
            NOT_HELD,
        ),
        (
            "a role that is held",
            json!([rule(&["list"], "", &["nodes"])]),
            ("POST", BINDINGS, cluster_binding("x", "stored")),
            201,
            "",
        ),
        (
            "a namespaced role in the whole cluster",
            json!([]),
            (
                "POST",
                BINDINGS,
                with(
                    cluster_binding("x", "hers"),
                    "roleRef",
                    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "hers"}),
                ),
            ),
            400,
            "Namespace parameter required",
        ),
        (
            "another kind of role",
            json!([]),
            (
                "POST",
                BINDINGS,
                with(
                    cluster_binding("x", "hers"),
                    "roleRef",
                    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Rule", "name": "hers"}),
                ),
            ),
            500,
            "unsupported role reference kind",
        ),
        (
            "a subject more",
            json!([]),
            ("PATCH", BOUND, json!({"subjects": [{"kind": "User", "name": "mallory"}]})),
            403,
            NOT_HELD,
        ),
        (
            "a subject more by apply",
            json!([]),
            ("APPLY", BOUND, cluster_binding("stored", "stored")),
            403,
            NOT_HELD,
        ),
        (
            "a subject more, held",
            json!([rule(&["list"], "", &["nodes"])]),
            ("PATCH", BOUND, json!({"subjects": [{"kind": "User", "name": "mallory"}]})),
            200,
            "",
        ),
        (
            "a label of a binding that is not held",
            json!([]),
            ("PATCH", BOUND, json!({"metadata": {"labels": {"a": "b"}}})),
            403,
            NOT_HELD,
        ),
        (
            "another role",
            everything(),
            ("PATCH", BOUND, json!({"roleRef": {"name": "cluster-admin"}})),
            422,
            "roleRef",
        ),
        (
            "another role, with bind",
            bind(),
            ("PATCH", BOUND, json!({"roleRef": {"name": "cluster-admin"}})),
            422,
            "roleRef",
        ),
    ]
}

#[tokio::test]
async fn rejects_grants_beyond_the_users_own_rights() {
    for (case, rules, (method, path, body), code, text) in cluster_cases() {
        let mut all = vec![writes_rbac()];
        all.extend(rules.as_array().cloned().expect("rules"));
        let world = World::new(&Value::Array(all), &json!([])).await;
        let stored = cluster_role("stored", &json!([rule(&["list"], "", &["nodes"])]));
        world.admin("POST", &format!("{RBAC}/clusterroles"), &stored).await;
        let bound =
            with(cluster_binding("stored", "stored"), "subjects", json!([{"kind": "User", "name": "alice"}]));
        world.admin("POST", &format!("{RBAC}/clusterrolebindings"), &bound).await;
        let answer = world.mallory(method, path, &body).await;
        assert_eq!(answer.code, code, "{case}: {}", answer.text);
        assert!(answer.text.contains(text), "{case}: {}", answer.text);
    }
}

#[tokio::test]
async fn roles_of_a_namespace_count_in_that_namespace_only() {
    let pods = json!([rule(&["get"], "", &["pods"])]);
    let bind = rule(&["bind"], "rbac.authorization.k8s.io", &["clusterroles", "roles"]);
    let role = json!({"metadata": {"name": "x"}, "rules": pods});
    let binding = |kind: &str, name: &str| {
        json!({
            "metadata": {"name": "x"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
            "subjects": [{"kind": "User", "name": "mallory"}],
        })
    };
    let here = format!("{RBAC}/namespaces/default");
    let there = format!("{RBAC}/namespaces/kube-system");
    for (case, local, path, body, code) in [
        ("held here", pods.clone(), format!("{here}/roles"), role.clone(), 201),
        ("held elsewhere", pods.clone(), format!("{there}/roles"), role.clone(), 403),
        (
            "held here, for the cluster",
            pods.clone(),
            format!("{RBAC}/clusterroles"),
            cluster_role("x", &pods),
            403,
        ),
        (
            "cluster-admin here",
            json!([]),
            format!("{here}/rolebindings"),
            binding("ClusterRole", "cluster-admin"),
            403,
        ),
        (
            "bind here",
            json!([bind]),
            format!("{here}/rolebindings"),
            binding("ClusterRole", "cluster-admin"),
            201,
        ),
        (
            "bind elsewhere",
            json!([bind]),
            format!("{there}/rolebindings"),
            binding("ClusterRole", "cluster-admin"),
            403,
        ),
        (
            "bind here is not bind in the cluster",
            json!([bind]),
            format!("{RBAC}/clusterrolebindings"),
            binding("ClusterRole", "cluster-admin"),
            403,
        ),
        ("a role of the namespace", json!([]), format!("{here}/rolebindings"), binding("Role", "hers"), 201),
        ("the same name elsewhere", json!([]), format!("{there}/rolebindings"), binding("Role", "hers"), 404),
    ] {
        let world = World::new(&json!([writes_rbac()]), &local).await;
        let answer = world.mallory("POST", &path, &body).await;
        assert_eq!(answer.code, code, "{case}: {}", answer.text);
    }
}

#[tokio::test]
async fn masters_and_clients_in_the_process_are_exempt() {
    let world = World::new(&json!([]), &json!([])).await;
    let role = cluster_role("x", &json!([rule(&["*"], "*", &["*"])]));
    let role = with(role, "aggregationRule", json!({"clusterRoleSelectors": [{}]}));
    world.admin("POST", &format!("{RBAC}/clusterroles"), &role).await;
}

#[tokio::test]
async fn what_creates_needs_the_verb_create() {
    let object = |kind: &str, version: &str, extra: Value| {
        let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}});
        for (field, value) in extra.as_object().expect("fields") {
            object[field] = value.clone();
        }
        object
    };
    let ports = json!({"spec": {"ports": [{"port": 80}]}});
    let rows = [
        (
            "APPLY",
            "",
            "configmaps",
            "/api/v1/namespaces/default/configmaps/x",
            object("ConfigMap", "v1", json!({})),
        ),
        ("APPLY", "", "namespaces", "/api/v1/namespaces/x", object("Namespace", "v1", json!({}))),
        (
            "APPLY",
            "",
            "services",
            "/api/v1/namespaces/default/services/x",
            object("Service", "v1", ports.clone()),
        ),
        ("PUT", "", "services", "/api/v1/namespaces/default/services/x", object("Service", "v1", ports)),
        (
            "PUT",
            "",
            "endpoints",
            "/api/v1/namespaces/default/endpoints/x",
            object("Endpoints", "v1", json!({})),
        ),
        (
            "PUT",
            "coordination.k8s.io",
            "leases",
            "/apis/coordination.k8s.io/v1/namespaces/default/leases/x",
            object("Lease", "coordination.k8s.io/v1", json!({})),
        ),
        (
            "PUT",
            "rbac.authorization.k8s.io",
            "clusterroles",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/x",
            cluster_role("x", &json!([])),
        ),
        (
            "APPLY",
            "rbac.authorization.k8s.io",
            "clusterroles",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/x",
            cluster_role("x", &json!([])),
        ),
    ];
    for (method, group, resource, path, body) in rows {
        for (verbs, code) in [(&["update", "patch"][..], 403), (&["update", "patch", "create"][..], 201)] {
            let world = World::new(&json!([rule(verbs, group, &[resource])]), &json!([])).await;
            for dry_run in ["?dryRun=All", ""] {
                let answer = world.mallory(method, &format!("{path}{dry_run}"), &body).await;
                assert_eq!(answer.code, code, "{method} {path} {verbs:?}: {}", answer.text);
                if code == 403 {
                    let refused = format!("cannot create resource \\\"{resource}\\\"");
                    assert!(answer.text.contains(&refused), "{}", answer.text);
                }
            }
        }
    }
}

#[tokio::test]
async fn a_definition_never_takes_the_place_of_a_built_in_resource() {
    let rules = json!([rule(&["*"], "apiextensions.k8s.io", &["customresourcedefinitions"]), writes_rbac(),]);
    for (version, scope) in [("v1", "Cluster"), ("v2", "Cluster"), ("v2", "Namespaced")] {
        let world = World::new(&rules, &json!([])).await;
        let definition = json!({
            "metadata": {
                "name": "clusterrolebindings.rbac.authorization.k8s.io",
                "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/1"},
            },
            "spec": {
                "group": "rbac.authorization.k8s.io", "scope": scope,
                "names": {"plural": "clusterrolebindings", "kind": "ClusterRoleBinding"},
                "versions": [{"name": version, "served": true, "storage": true, "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
            },
        });
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        world.mallory("POST", path, &definition).await;
        let mut binding = cluster_binding("x", "cluster-admin");
        binding["apiVersion"] = format!("rbac.authorization.k8s.io/{version}").into();
        let namespace = if scope == "Cluster" { "" } else { "/namespaces/default" };
        let path = format!("/apis/rbac.authorization.k8s.io/{version}{namespace}/clusterrolebindings");
        let answer = world.mallory("POST", &path, &binding).await;
        assert!(answer.code >= 400, "{version} {scope}: {}", answer.text);
        let secrets = world.mallory("GET", "/api/v1/secrets", &Value::Null).await;
        assert_eq!(secrets.code, 403, "{version} {scope}");
    }
}

#[tokio::test]
async fn a_list_is_authorized_by_the_name_it_selects() {
    let rules = json!([{"verbs": ["list", "deletecollection"], "apiGroups": [""], "resources": ["configmaps"],
        "resourceNames": ["a"]}]);
    let world = World::new(&rules, &json!([])).await;
    let path = "/api/v1/namespaces/default/configmaps?fieldSelector=";
    for (selector, code) in [
        ("metadata.name%3Da", 200),
        ("metadata.name%3D%3Da", 200),
        ("metadata.name%3Db", 403),
        ("metadata.name!%3Da", 403),
        ("metadata.namespace!%3D%5C,metadata.name%3Da", 403),
        ("metadata.namespace!%3Dx%5C%2Cmetadata.name%3Da", 403),
    ] {
        for method in ["GET", "DELETE"] {
            let answer = world.mallory(method, &format!("{path}{selector}"), &Value::Null).await;
            assert_eq!(answer.code, code, "{method} {selector}: {}", answer.text);
        }
    }
}

#[tokio::test]
async fn every_part_of_an_impersonated_user_needs_its_own_right() {
    let core = |resource: &str, name: &str| json!({"verbs": ["impersonate"], "apiGroups": [""], "resources": [resource], "resourceNames": [name]});
    let other = |resource: &str, name: &str| {
        json!({"verbs": ["impersonate"], "apiGroups": ["authentication.k8s.io"], "resources": [resource],
            "resourceNames": [name]})
    };
    let alice = ("impersonate-user", "alice");
    let account = ("impersonate-user", "system:serviceaccount:default:robot");
    let group = ("impersonate-group", "ops");
    let masters = ("impersonate-group", "system:masters");
    let uid = ("impersonate-uid", "42");
    let extra = ("impersonate-extra-scopes", "view");
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    for (case, rules, headers, code) in [
        ("nothing held", json!([]), vec![alice], 403),
        ("a user", json!([core("users", "alice")]), vec![alice], 201),
        ("another user", json!([core("users", "bob")]), vec![alice], 403),
        ("a group without the right", json!([core("users", "alice")]), vec![alice, group], 403),
        ("a group", json!([core("users", "alice"), core("groups", "ops")]), vec![alice, group], 201),
        ("masters", json!([core("users", "alice"), core("groups", "ops")]), vec![alice, group, masters], 403),
        ("a uid without the right", json!([core("users", "alice")]), vec![alice, uid], 403),
        (
            "a uid of the core group",
            json!([core("users", "alice"), core("uids", "42")]),
            vec![alice, uid],
            403,
        ),
        ("a uid", json!([core("users", "alice"), other("uids", "42")]), vec![alice, uid], 201),
        ("an extra without the right", json!([core("users", "alice")]), vec![alice, extra], 403),
        (
            "an extra",
            json!([core("users", "alice"), other("userextras/scopes", "view")]),
            vec![alice, extra],
            201,
        ),
        (
            "another extra",
            json!([core("users", "alice"), other("userextras/roles", "view")]),
            vec![alice, extra],
            403,
        ),
        ("a service account by the right on users", json!([core("users", account.1)]), vec![account], 403),
        ("a service account", json!([core("serviceaccounts", "robot")]), vec![account], 201),
        (
            "what only looks like a service account",
            json!([core("serviceaccounts", "robot")]),
            vec![("impersonate-user", "system:serviceaccount:Default:robot")],
            403,
        ),
        ("a group alone", json!([core("groups", "ops")]), vec![group], 400),
    ] {
        let world = World::new(&rules, &json!([])).await;
        let mut headers = headers;
        headers.push(("content-type", "application/json"));
        let answer = world.send_with(mallory(), "POST", path, &headers, &json!({})).await;
        assert_eq!(answer.code, code, "{case}: {}", answer.text);
    }
}

#[tokio::test]
async fn tokens_need_the_right_on_the_subresource() {
    let path = "/api/v1/namespaces/default/serviceaccounts/robot/token";
    let token = rule(&["create"], "", &["serviceaccounts/token"]);
    let named = |name: &str| with(token.clone(), "resourceNames", json!([name]));
    for (case, rules, code) in [
        ("nothing held", json!([]), 403),
        ("accounts themselves", json!([rule(&["*"], "", &["serviceaccounts"])]), 403),
        ("tokens", json!([token]), 201),
        ("tokens of this account", json!([named("robot")]), 201),
        ("tokens of another account", json!([named("default")]), 403),
        ("tokens of anything", json!([rule(&["create"], "", &["*/token"])]), 201),
    ] {
        let world = World::new(&json!([]), &rules).await;
        let account = json!({"metadata": {"name": "robot"}});
        world.admin("POST", "/api/v1/namespaces/default/serviceaccounts", &account).await;
        let answer = world.mallory("POST", path, &json!({"spec": {}})).await;
        assert_eq!(answer.code, code, "{case}: {}", answer.text);
    }
}
