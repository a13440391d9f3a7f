//! `palisade exceptions`, and the same verdict about exceptions from every judge.

use palisade_admission::{
    admission_review::{PodSecurityFacts, Review, ReviewFacts},
    pod_security::{ExceptionFacts, PodSecurity},
};
use palisade_check::exceptions::Exceptions;
use palisade_cli::{
    exceptions::now,
    judge::{Settings, judge_text},
};
use palisade_model::{compat::Compat, metadata::StringMap};
use palisade_policy::{
    exceptions::set::ExceptionSet,
    standards::{
        evaluator::Evaluator,
        level::{Level, LevelVersion, Version},
        namespace::Limit,
        policy::{Exemptions, Policy},
    },
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::Project;

const DEPLOYMENT: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  template:
    spec:
      hostPID: true
      containers: [{name: c, image: i}]
";

fn exception(name: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: palisade.dev/v1alpha1\nkind: SecurityException\nmetadata: {{name: {name}}}\nspec:\n  reason: r\n  owner: team-a\n  ticket: SEC-1\n{spec}"
    )
}

#[test]
fn reports_the_state_of_every_exception() {
    let used = "  namespaces: [shop]\n  workloads: [{kind: Deployment, name: web}]\n  allow: [{control: hostNamespaces, field: spec.hostPID, values: ['true']}]\n";
    let unused = "  namespaces: [shop]\n  workloads: [{kind: Deployment, name: api}]\n  allow: [{control: hostNamespaces, field: spec.hostPID, values: ['true']}]\n";
    let broad = "  namespaceSelector: {}\n  allow: [{control: hostNamespaces, field: spec.hostIPC, values: ['true']}]\n";
    let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(24);
    let until = format!("  until: \"{soon:.0}\"\n");
    let project = Project::new();
    project.file("workloads.yaml", DEPLOYMENT);
    project.file(
        "exceptions.yaml",
        [
            exception("a-used", &format!("{used}{until}")),
            exception("b-unused", &format!("{unused}{until}")),
            exception("c-expired", &format!("{used}  until: \"2020-01-01T00:00:00Z\"\n")),
            exception("d-broad", &format!("{broad}{until}")),
        ]
        .concat(),
    );
    let run = crate::support::Run::of(project.command().args(["exceptions", "-o", "json", "."]));
    assert_eq!(run.status, 1, "{run}");
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    let states: Vec<_> = report["exceptions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|found| {
            (
                found["name"].as_str().unwrap(),
                found["state"].as_str().unwrap(),
                found["used"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        states,
        [
            ("a-used", "used", 1),
            ("b-unused", "unused", 0),
            ("c-expired", "expired", 0),
            ("d-broad", "unused", 0)
        ]
    );
    assert_eq!(report["exceptions"][3]["broad"][0], "selects every namespace");

    project.file("only/workloads.yaml", DEPLOYMENT);
    project.file("only/exception.yaml", exception("a-used", &format!("{used}{until}")));
    let run = crate::support::Run::of(project.command().args(["exceptions", "only"]));
    assert_eq!(run.status, 0, "{run}");
    assert!(
        run.stdout.ends_with("1 exceptions: 1 used, 0 unused, 0 expired, 0 too broad, 0 unreadable\n"),
        "{run}"
    );
}

/// A field of a pod that may violate something, and the entry that accepts it.
const FIELDS: &[(&str, &str, &str, &str)] = &[
    ("/hostPID", "hostNamespaces", "spec.hostPID", "true"),
    ("/hostNetwork", "hostNamespaces", "spec.hostNetwork", "true"),
    (
        "/containers/0/securityContext/privileged",
        "privileged",
        "spec.containers[*].securityContext.privileged",
        "true",
    ),
    (
        "/containers/1/securityContext/privileged",
        "privileged",
        "spec.containers[1].securityContext.privileged",
        "true",
    ),
    ("/volumes/0/hostPath", "hostPathVolumes", "spec.volumes[*].hostPath", "/var/log"),
];

fn pod(chosen: &[bool]) -> Value {
    let mut spec = json!({"containers": [
        {"name": "a", "image": "r.example/a:1", "securityContext": {}}, {"name": "b", "image": "r.example/b:1", "securityContext": {}}
    ], "volumes": [{"name": "v"}]});
    for ((place, ..), chosen) in FIELDS.iter().zip(chosen) {
        let (parent, field) = place.rsplit_once('/').unwrap();
        if *chosen {
            let value = if field == "hostPath" { json!({"path": "/var/log"}) } else { json!(true) };
            spec.pointer_mut(parent).unwrap()[field] = value;
        }
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "shop", "labels": {"app": "web"}}, "spec": spec})
}

fn policy() -> LevelVersion {
    LevelVersion::new(Level::Baseline, Version::Latest)
}

fn allowed_by_check(pod: &Value, objects: &[Value]) -> bool {
    let mut settings = Settings::new(policy(), Compat::designs(), jiff::civil::date(2026, 1, 1));
    settings.exceptions = Exceptions::of_objects(objects, now());
    let report = judge_text(&"pod.yaml".into(), &pod.to_string(), &settings, &[]);
    report.verdicts[0].allowed
}

fn allowed_by_webhook(pod: &Value, objects: &[Value]) -> bool {
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": "p", "namespace": "shop", "operation": "CREATE", "userInfo": {"username": "jane"}, "object": pod,
    }})
    .to_string();
    let compat = Compat::designs();
    let security = PodSecurity {
        evaluator: Evaluator::of(&compat),
        defaults: Policy::default(),
        exemptions: Exemptions::default(),
    };
    let labels: StringMap<'_> =
        [("pod-security.kubernetes.io/enforce".into(), "baseline".into())].into_iter().collect();
    let set = ExceptionSet::read(objects);
    let facts = PodSecurityFacts::Namespace(Ok(&labels));
    let exceptions = ExceptionFacts { set: &set, now: now() };
    let review = Review::parse(review.as_bytes()).unwrap();
    let facts = ReviewFacts { pod_security: &facts, future: None, exceptions };
    review.answer(&security, &compat, facts, Limit::None, || false).refused.is_none()
}

fn exceptions_for(entries: &[(usize, u8)]) -> Vec<Value> {
    entries
        .iter()
        .enumerate()
        .map(|(number, (field, flaw))| {
            let (_, control, path, value) = FIELDS[*field];
            let mut spec = json!({
                "namespaces": ["shop"], "workloads": [{"kind": "Pod", "name": "p"}],
                "allow": [{"control": control, "field": path, "values": [value]}],
                "reason": "r", "owner": "o", "ticket": "t", "until": "2999-01-01T00:00:00Z",
            });
            match flaw {
                1 => spec["until"] = json!("2020-01-01T00:00:00Z"),
                2 => spec["namespaces"] = json!(["other"]),
                3 => spec["allow"][0]["values"] = json!(["other"]),
                4 => spec["workloads"][0]["kind"] = json!("Deployment"),
                5 => spec["allow"][0]["control"] = json!("*"),
                6 => spec["podSelector"] = json!({"matchLabels": {"app": "other"}}),
                7 => spec["containers"] = json!(["a"]),
                _ => {}
            }
            json!({"apiVersion": "palisade.dev/v1alpha1", "kind": "SecurityException",
                   "metadata": {"name": format!("e{number}")}, "spec": spec})
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    /// `check` and the webhook agree, and admit a pod only if every finding is named by an exception without a flaw.
    #[test]
    fn check_and_webhook_give_the_same_verdict(
        chosen in prop::collection::vec(any::<bool>(), FIELDS.len()),
        entries in prop::collection::vec((0..FIELDS.len(), 0_u8..10), 0..8),
    ) {
        let (pod, objects) = (pod(&chosen), exceptions_for(&entries));
        let by_check = allowed_by_check(&pod, &objects);
        prop_assert_eq!(by_check, allowed_by_webhook(&pod, &objects));
        let expected = chosen.iter().enumerate().filter(|(_, chosen)| **chosen).all(|(field, _)| {
            entries.iter().any(|(entry, flaw)| {
                // The entry of the first container leaves the position open, and so covers the second.
                let names = *entry == field || (field == 3 && *entry == 2);
                names && match flaw {
                    1..=6 => false,
                    7 => field == 2,
                    _ => true,
                }
            })
        });
        prop_assert_eq!(by_check, expected);
    }
}

/// The embedded server with the same pods and exceptions.
#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_server_gives_the_same_verdict() {
    for (number, (chosen, entries)) in [
        ([true, false, false, false, false], vec![(0, 0)]),
        ([true, true, false, false, false], vec![(0, 0)]),
        ([true, true, false, false, false], vec![(0, 0), (1, 0)]),
        ([false, false, true, true, false], vec![(2, 0)]),
        ([false, false, true, true, false], vec![(3, 0)]),
        ([false, false, true, false, true], vec![(2, 7), (4, 0)]),
        ([false, false, false, false, true], vec![(4, 3)]),
        ([true, false, false, false, false], vec![(0, 1)]),
        ([true, false, false, false, false], vec![(0, 2)]),
        ([true, false, false, false, false], vec![(0, 4)]),
        ([true, false, false, false, false], vec![(0, 6)]),
    ]
    .into_iter()
    .enumerate()
    {
        let (pod, objects) = (pod(&chosen), exceptions_for(&entries));
        let server = palisade_apiserver::Server::builder().compat(Compat::designs()).start().await.unwrap();
        let client =
            kube::Client::new(server.router().as_user(palisade_apiserver::auth::UserInfo::admin()), "shop");
        let send = async |path: &str, object: &Value| {
            let request = hyper::Request::post(path)
                .header("content-type", "application/json")
                .body(object.to_string().into_bytes())
                .unwrap();
            client.request::<Value>(request).await
        };
        let labels = json!({"pod-security.kubernetes.io/enforce": "baseline"});
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": labels}});
        send("/api/v1/namespaces", &namespace).await.unwrap();
        let account = "/api/v1/namespaces/shop/serviceaccounts/default";
        let mut ready = false;
        for _ in 0..500 {
            ready =
                client.request::<Value>(hyper::Request::get(account).body(Vec::new()).unwrap()).await.is_ok();
            if ready {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert!(ready, "no service account");
        for object in &objects {
            send("/apis/palisade.dev/v1alpha1/securityexceptions", object).await.unwrap();
        }
        let admitted = send("/api/v1/namespaces/shop/pods", &pod).await.is_ok();
        assert_eq!(admitted, allowed_by_check(&pod, &objects), "{number}: {chosen:?} {entries:?}");
        server.shutdown().await;
    }
}
