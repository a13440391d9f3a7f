//! Exceptions in exported policies, on a real API server and on `palisade up`, compared with what the webhook decides.

use std::{collections::BTreeSet, fmt::Write as _, path::Path};

use palisade_base::version::NEWEST_MINOR;
use palisade_model::{
    compat::Compat,
    json::from_value,
    prepare::{Prepared, Subject},
};
use palisade_policy::{
    exceptions::set::{ExceptionSet, ExceptionSubject},
    standards::{
        evaluator::Evaluator,
        level::{Level, LevelVersion, Version},
    },
};
use palisade_testkit::kubernetes::{Cluster, Parts};
use serde_json::{Value, json};

use crate::policies::{Api, exported, fixtures, pod_with};

/// The embedded API server, which evaluates policies by itself.
fn embedded() -> Api {
    let router = palisade_apiserver::Server::builder()
        .version(palisade_base::version::KubeVersion::LATEST)
        .compat(Compat::kubernetes(NEWEST_MINOR))
        .disable_plugins(["ServiceAccount".to_owned()])
        .router()
        .unwrap();
    Api { client: kube::Client::new(router, "default") }
}

fn exception(name: &str, spec: Value) -> Value {
    let mut object = json!({"apiVersion": "palisade.dev/v1alpha1", "kind": "SecurityException", "metadata": {"name": name},
        "spec": {"reason": "r", "owner": "o", "ticket": "t", "until": "2999-01-01T00:00:00Z"}});
    for (field, value) in spec.as_object().unwrap() {
        object["spec"][field] = value.clone();
    }
    object
}

fn export(exceptions: &[Value], folder: &Path, arguments: &[&str]) -> Vec<Value> {
    let file = folder.join("exceptions.json");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": exceptions});
    std::fs::write(&file, list.to_string()).unwrap();
    let mut all = vec!["--exceptions", file.to_str().unwrap()];
    all.extend(arguments);
    exported(&all)
}

/// The path of a finding with every position left open.
fn open(path: &str) -> String {
    let mut parts = path.split('[');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (inside, rest) = part.split_once(']').unwrap();
        let is_position = inside.bytes().all(|byte| byte.is_ascii_digit());
        let _ = write!(text, "[{}]{rest}", if is_position { "*" } else { inside });
    }
    text
}

#[tokio::test]
async fn exported_exceptions_accept_what_the_webhook_accepts() {
    let Some(cluster) = Cluster::start(Parts::Api) else { return };
    let Some(pods) = fixtures() else { return };
    let folder = tempfile::tempdir().unwrap();
    let compat = Compat::kubernetes(NEWEST_MINOR);
    let evaluator = Evaluator::of(&compat);
    let servers = [("kube-apiserver", Api { client: cluster.client().await }), ("palisade up", embedded())];
    let mut differences = Vec::new();
    for (level, minor) in [
        (Level::Baseline, 0_u64),
        (Level::Restricted, 18),
        (Level::Restricted, 24),
        (Level::Baseline, 37),
        (Level::Restricted, 37),
    ] {
        let policy = LevelVersion::new(level, Version::Minor(minor));
        let judged = |pod: &Value| {
            let pod = Prepared::new(from_value(pod).unwrap(), Subject::Pod, &compat);
            evaluator.evaluate(policy, &pod)
        };
        // Every third finding is accepted in any container, every seventh in the container "container1" alone.
        let mut findings = BTreeSet::new();
        for (_, pod) in pods.0.values() {
            for violation in judged(pod).violations {
                for finding in violation.findings.iter().chain(&violation.masked) {
                    findings.insert((
                        violation.check,
                        open(&finding.path.to_string()),
                        finding.value.clone(),
                    ));
                }
            }
        }
        let entry = |(control, field, value): &(&str, String, Option<String>)| {
            let mut entry = json!({"control": control, "field": field});
            if let Some(value) = value {
                entry["values"] = json!([value]);
            }
            entry
        };
        let picked = |every: usize, at: usize| -> Vec<Value> {
            findings
                .iter()
                .enumerate()
                .filter(|(index, _)| index % every == at)
                .map(|(_, found)| entry(found))
                .collect()
        };
        let mut exceptions = Vec::new();
        for (name, allow, containers) in [
            ("a", picked(3, 0), None),
            ("b", picked(3, 1), Some(json!(["container1"]))),
            ("c", picked(7, 2), None),
        ] {
            for (index, allow) in allow.chunks(60).enumerate() {
                let mut spec = json!({"namespaces": ["ours"], "allow": allow});
                if let Some(containers) = &containers {
                    spec["containers"] = containers.clone();
                }
                exceptions.push(exception(&format!("{name}{index}"), spec));
            }
        }
        let set = ExceptionSet::read(&exceptions);
        assert_eq!(set.unreadable(), [], "{policy}");
        let tag = policy.to_string().replace([':', '.'], "-");
        let selector = format!("policies={tag}");
        let namespace = format!("ours-{tag}");
        for exception in &mut exceptions {
            exception["spec"]["namespaces"] = json!([namespace]);
        }
        let version = format!("v1.{minor}");
        let arguments =
            ["--level", level.as_str(), "--policy-version", &version, "--namespace-selector", &selector];
        let policies = export(&exceptions, folder.path(), &arguments);
        let (mut total, mut accepted, mut rejected) = (0, 0, 0);
        for (server, api) in &servers {
            api.namespace(&namespace, json!({"policies": tag})).await;
            api.make_policies(&policies).await;
            for (from, pod) in pods.0.values() {
                let outcome = judged(pod);
                let before = outcome.allowed();
                let prepared = Prepared::new(from_value(pod).unwrap(), Subject::Pod, &compat);
                let subject = ExceptionSubject { namespace: "ours", namespace_labels: None, workloads: &[] };
                let now = palisade_base::time::parse("2026-01-01T00:00:00Z").unwrap();
                let expected = set.excuse(outcome, &prepared, &subject, now).outcome.allowed();
                let answer = api.dry_run(&namespace, pod).await;
                // Some fixtures are invalid in the newest release.
                if answer.code == 422 {
                    continue;
                }
                total += 1;
                accepted += usize::from(expected && !before);
                rejected += usize::from(!expected);
                if (answer.code == 201) != expected || !matches!(answer.code, 201 | 403) {
                    differences.push(format!("{server} {policy} {from}: {expected} / {}", answer.message()));
                }
            }
        }
        println!("{policy}: {total} compared, {accepted} accepted by exceptions, {rejected} rejected");
        assert!(accepted > 20 && rejected > 20, "{policy}: {accepted} {rejected}");
    }
    assert!(differences.is_empty(), "{}: {}", differences.len(), differences.join("\n"));
}

#[tokio::test]
async fn an_exported_exception_is_for_its_subject_until_it_ends() {
    let Some(cluster) = Cluster::start(Parts::Api) else { return };
    let folder = tempfile::tempdir().unwrap();
    for (server, api) in
        [("kube-apiserver", Api { client: cluster.client().await }), ("palisade up", embedded())]
    {
        api.namespace("shop", json!({"team": "a"})).await;
        api.namespace("other", json!({"team": "b"})).await;
        let privileged = json!([{
            "control": "privileged", "field": "spec.containers[*].securityContext.privileged", "values": ["true"]
        }]);
        let host_pid = json!([{"control": "hostNamespaces", "field": "spec.hostPID", "values": ["true"]}]);
        let until = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(20);
        let exceptions = [
            exception(
                "deployment",
                json!({"namespaces": ["shop"], "workloads": [
                {"kind": "Deployment", "name": "web"}, {"kind": "CronJob", "name": "backup"},
                {"kind": "DaemonSet", "name": "agent"}, {"kind": "Pod", "name": "alone"}], "allow": privileged}),
            ),
            exception(
                "ends",
                json!({"namespaceSelector": {"matchLabels": {"team": "a"},
                "matchExpressions": [{"key": "absent", "operator": "NotIn", "values": ["x"]}]},
                "podSelector": {"matchLabels": {"app": "soon"}}, "allow": host_pid, "until": until.to_string()}),
            ),
            exception(
                "ended",
                json!({"namespaces": ["shop"], "allow": [
                {"control": "hostNamespaces", "field": "spec.hostIPC", "values": ["true"]}],
                "until": "2020-01-01T00:00:00Z"}),
            ),
            exception(
                "image",
                json!({"namespaces": ["shop"], "images": ["r.example/team/*", "r.example/one:*"],
                "allow": [{"control": "capabilities_baseline", "field": "spec.containers[*].securityContext.capabilities.add[*]",
                    "values": ["NET_ADMIN"]}]}),
            ),
        ];
        api.make_policies(&export(&exceptions, folder.path(), &["--level", "baseline"])).await;
        let owned = |kind: &str, name: &str, hash: &str| {
            let mut pod = pod_with(
                json!({"containers": [{"name": "c", "image": "a", "securityContext": {"privileged": true}}]}),
            );
            pod["metadata"] = json!({"name": "p", "labels": {"pod-template-hash": hash}, "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": kind, "name": name, "controller": true,
                 "uid": "705ab4f5-6393-11e8-b7cc-42010a800002"}]});
            pod
        };
        let named = |name: &str| {
            let mut pod = owned("DaemonSet", "x", "h");
            pod["metadata"] = json!({"name": name});
            pod
        };
        let capable = |image: &str, capability: &str| {
            pod_with(json!({"containers": [{"name": "c", "image": image,
                "securityContext": {"capabilities": {"add": [capability]}}}]}))
        };
        let labelled = |app: &str, spec: Value| {
            let mut pod = pod_with(spec);
            pod["metadata"]["labels"] = json!({"app": app});
            pod
        };
        let sa = |controller: &str| format!("system:serviceaccount:kube-system:{controller}");
        let (replica_sets, daemon_sets, jobs) =
            (sa("replicaset-controller"), sa("daemon-set-controller"), sa("job-controller"));
        let manager = "system:kube-controller-manager".to_owned();
        let mut forged = labelled("soon", json!({"hostIPC": true}));
        forged["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
        for (case, user, namespace, pod, expected) in [
            ("of the Deployment", &replica_sets, "shop", owned("ReplicaSet", "web-7d9f", "7d9f"), true),
            ("by shared credentials", &manager, "shop", owned("ReplicaSet", "web-7d9f", "7d9f"), true),
            ("elsewhere", &replica_sets, "other", owned("ReplicaSet", "web-7d9f", "7d9f"), false),
            ("another Deployment", &replica_sets, "shop", owned("ReplicaSet", "web-2-7d9f", "7d9f"), false),
            ("another hash", &replica_sets, "shop", owned("ReplicaSet", "web-7d9f", "8d9f"), false),
            ("by a user", &"jane".to_owned(), "shop", owned("ReplicaSet", "web-7d9f", "7d9f"), false),
            ("by another controller", &jobs, "shop", owned("ReplicaSet", "web-7d9f", "7d9f"), false),
            ("of the DaemonSet", &daemon_sets, "shop", owned("DaemonSet", "agent", "h"), true),
            ("of the CronJob", &jobs, "shop", owned("Job", "backup-29000000", "h"), true),
            ("of a Job with few digits", &jobs, "shop", owned("Job", "backup-2900000", "h"), false),
            ("of a Job with more", &jobs, "shop", owned("Job", "backup-x-29000000", "h"), false),
            ("the Pod", &"jane".to_owned(), "shop", named("alone"), true),
            ("another Pod", &"jane".to_owned(), "shop", named("alone-2"), false),
            ("its label", &"jane".to_owned(), "shop", labelled("soon", json!({"hostPID": true})), true),
            ("another label", &"jane".to_owned(), "shop", labelled("later", json!({"hostPID": true})), false),
            (
                "another namespace label",
                &"jane".to_owned(),
                "other",
                labelled("soon", json!({"hostPID": true})),
                false,
            ),
            (
                "more than named",
                &"jane".to_owned(),
                "shop",
                labelled("soon", json!({"hostPID": true, "hostNetwork": true})),
                false,
            ),
            ("an ended exception, with a time made up", &"jane".to_owned(), "shop", forged, false),
            ("its image", &"jane".to_owned(), "shop", capable("r.example/team/x:1", "NET_ADMIN"), true),
            ("a tag of its image", &"jane".to_owned(), "shop", capable("r.example/one:2", "NET_ADMIN"), true),
            (
                "another registry",
                &"jane".to_owned(),
                "shop",
                capable("r.example/one:2/x", "NET_ADMIN"),
                false,
            ),
            ("another image", &"jane".to_owned(), "shop", capable("r.example/teams/x", "NET_ADMIN"), false),
            ("another value", &"jane".to_owned(), "shop", capable("r.example/team/x:1", "SYS_ADMIN"), false),
        ] {
            let path = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
            let answer = api.send_as(Some(user), "POST", &path, &pod, "application/json").await;
            let expected = if expected { 201 } else { 403 };
            assert_eq!(answer.code, expected, "{server}: {case}: {}", answer.message());
            assert!(
                expected == 201 || answer.message().contains("violates PodSecurity"),
                "{case}: {answer:?}"
            );
        }

        // A change of a pod is judged without exceptions.
        let pods = "/api/v1/namespaces/shop/pods";
        api.make(pods, &labelled("soon", json!({"hostPID": true}))).await;
        let image = json!({"spec": {"containers": [{"name": "c", "image": "b"}]}});
        let changed =
            api.send("PATCH", &format!("{pods}/p"), &image, "application/strategic-merge-patch+json").await;
        assert_eq!(changed.code, 403, "{server}: {changed:?}");
        let label = json!({"metadata": {"labels": {"x": "y"}}});
        let changed = api.send("PATCH", &format!("{pods}/p"), &label, "application/merge-patch+json").await;
        assert_eq!(changed.code, 200, "{server}: {changed:?}");

        // Workloads are warned about as long as their pods would be rejected.
        let daemon_set = |name: &str| {
            let template = owned("DaemonSet", "x", "h")["spec"].clone();
            json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name}, "spec": {
                "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": template}}})
        };
        for (name, warned) in [("agent", 0), ("agent-2", 1)] {
            let answer =
                api.post("/apis/apps/v1/namespaces/shop/daemonsets?dryRun=All", &daemon_set(name)).await;
            let found = answer.warnings.iter().filter(|text| text.contains("privileged")).count();
            assert_eq!((answer.code, found.min(1)), (201, warned), "{server} {name}: {answer:?}");
        }

        // The exception ends by itself, and not before.
        let mut pod = labelled("soon", json!({"hostPID": true}));
        pod["metadata"]["name"] = json!("q");
        loop {
            let before = jiff::Timestamp::now();
            let answer = api.dry_run("shop", &pod).await;
            if answer.code == 403 {
                let after = jiff::Timestamp::now();
                assert!(after.as_second() >= until.as_second(), "{server}: {after} {until}");
                break;
            }
            assert!(
                answer.code == 201 && before.as_second() < until.as_second(),
                "{server}: {before} {until} {answer:?}"
            );
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    }
}
