//! Reviews, from bytes to bytes.

use palisade_admission::{
    admission_review::{Needs, PodSecurityFacts, Review, ReviewFacts, Unavailable},
    pod_security::{ExceptionFacts, PodSecurity},
};
use palisade_model::{compat::Compat, metadata::StringMap, pod::Pod, prepare::Prepared};
use palisade_policy::standards::{
    evaluator::Evaluator,
    namespace::Limit,
    policy::{Exemptions, Policy},
};
use serde::Deserialize;
use serde_json::{Value, json};

fn security(exemptions: Exemptions) -> PodSecurity {
    PodSecurity { evaluator: Evaluator::default(), defaults: Policy::default(), exemptions }
}

/// Answers a request in a namespace with labels.
fn answer(request: &Value, labels: Result<&[(&str, &str)], &str>, exemptions: Exemptions) -> Value {
    let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
        .to_string();
    let security = security(exemptions);
    let review = Review::parse(body.as_bytes()).unwrap();
    let map: StringMap<'_> = labels
        .unwrap_or_default()
        .iter()
        .map(|(key, value)| (format!("pod-security.kubernetes.io/{key}").into(), (*value).into()))
        .collect();
    let facts = match review.needs(&security) {
        Needs::Nothing => PodSecurityFacts::Nothing,
        Needs::Namespace(_) => {
            PodSecurityFacts::Namespace(labels.map(|_| &map).map_err(|why| Unavailable(why.to_owned())))
        }
        Needs::Pods(_, _) => PodSecurityFacts::Pods(Ok(vec![Prepared::stored(
            Pod::deserialize(json!({"metadata": {"name": "old"}, "spec": {"hostPID": true}})).unwrap(),
            &Compat::kubernetes(37),
        )])),
    };
    let facts = ReviewFacts { pod_security: &facts, future: None, exceptions: ExceptionFacts::NONE };
    let response = review.answer(&security, &Compat::kubernetes(37), facts, Limit::None, || false);
    let answered: Value = serde_json::from_slice(&response.to_bytes(&review.uid).unwrap()).unwrap();
    assert_eq!(answered["apiVersion"], "admission.k8s.io/v1");
    answered["response"].clone()
}

fn pod_request(operation: &str, object: Value, old: Value) -> Value {
    json!({"uid": "u1", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": "p", "namespace": "ns", "operation": operation, "userInfo": {"username": "alice"}, "object": object, "oldObject": old})
}

const BASELINE: Result<&[(&str, &str)], &str> = Ok(&[("enforce", "baseline")]);

#[test]
fn a_violating_pod_is_refused_in_upstreams_words() {
    let response = answer(
        &pod_request("CREATE", json!({"spec": {"hostPID": true}}), Value::Null),
        BASELINE,
        Exemptions::default(),
    );
    assert_eq!(
        response,
        json!({"uid": "u1", "allowed": false,
            "auditAnnotations": {"enforce-policy": "baseline:latest"},
            "status": {"status": "Failure", "code": 403, "reason": "Forbidden", "details": {"name": "p", "kind": "pods"},
                "message": "pods \"p\" is forbidden: violates PodSecurity \"baseline:latest\": host namespaces (hostPID=true)"}})
    );
}

#[test]
fn only_significant_updates_are_judged() {
    let with =
        |image: &str| json!({"spec": {"hostPID": true, "containers": [{"name": "c", "image": image}]}});
    let allowed = |new: Value, old: Value| {
        answer(&pod_request("UPDATE", new, old), BASELINE, Exemptions::default())["allowed"]
            .as_bool()
            .unwrap()
    };
    assert!(allowed(with("a"), with("a")));
    assert!(!allowed(with("b"), with("a")));
    let mut debugged = with("a");
    debugged["spec"]["ephemeralContainers"] = json!([{"name": "d", "image": "x"}]);
    assert!(!allowed(debugged.clone(), with("a")));
    assert!(allowed(with("a"), debugged.clone()), "removal is not significant");
    assert!(allowed(debugged.clone(), debugged));
}

#[test]
fn exemptions_and_ignored_subresources_need_nothing() {
    let exempt = Exemptions {
        usernames: vec!["alice".to_owned()],
        namespaces: vec!["kube-system".to_owned()],
        runtime_classes: vec!["kata".to_owned()],
    };
    let bad = json!({"spec": {"hostPID": true}});
    let response = answer(&pod_request("CREATE", bad.clone(), Value::Null), Err("down"), exempt.clone());
    assert_eq!(response, json!({"uid": "u1", "allowed": true, "auditAnnotations": {"exempt": "user"}}));
    let mut request = pod_request("CREATE", bad.clone(), Value::Null);
    request["namespace"] = json!("kube-system");
    assert_eq!(answer(&request, Err("down"), exempt.clone())["auditAnnotations"]["exempt"], "namespace");
    let mut request = pod_request("CREATE", bad, Value::Null);
    request["requestSubResource"] = json!("exec");
    assert_eq!(answer(&request, Err("down"), Exemptions::default()), json!({"uid": "u1", "allowed": true}));
    let kata = json!({"spec": {"hostPID": true, "runtimeClassName": "kata"}});
    let mut request = pod_request("CREATE", kata, Value::Null);
    request["userInfo"]["username"] = json!("bob");
    assert_eq!(answer(&request, BASELINE, exempt)["auditAnnotations"]["exempt"], "runtimeClass");
}

#[test]
fn an_unknown_namespace_refuses_pods_and_notes_workloads() {
    let response =
        answer(&pod_request("CREATE", json!({}), Value::Null), Err("etcd is away"), Exemptions::default());
    assert_eq!(response["status"]["code"], 500);
    assert_eq!(response["status"]["message"], "Internal error occurred: failed to lookup namespace \"ns\"");
    assert_eq!(response["auditAnnotations"]["error"], "failed to lookup namespace \"ns\": etcd is away");
    let response = answer(&deployment(json!({})), Err("etcd is away"), Exemptions::default());
    assert_eq!(response["allowed"], true);
    assert_eq!(response["auditAnnotations"]["error"], "failed to lookup namespace \"ns\": etcd is away");
}

fn deployment(object: Value) -> Value {
    json!({"uid": "u1", "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
        "resource": {"group": "apps", "version": "v1", "resource": "deployments"}, "name": "d", "namespace": "ns",
        "operation": "CREATE", "object": object})
}

#[test]
fn workloads_are_warned_about_and_never_refused() {
    let object = json!({"spec": {"template": {"spec": {"hostIPC": true}}}});
    let labels: Result<&[(&str, &str)], &str> = Ok(&[("enforce", "baseline"), ("audit", "baseline")]);
    let text = "would violate PodSecurity \"baseline:latest\": host namespaces (hostIPC=true)";
    assert_eq!(
        answer(&deployment(object), labels, Exemptions::default()),
        json!({"uid": "u1", "allowed": true, "warnings": [text], "auditAnnotations": {"audit-violations": text}})
    );
    let broken = answer(&deployment(json!({"spec": {"template": 7}})), labels, Exemptions::default());
    assert_eq!(broken["allowed"], true);
    assert!(broken["auditAnnotations"]["error"].as_str().unwrap().starts_with("failed to decode object: "));
}

#[test]
fn undecodable_pods_are_refused() {
    for (object, message) in
        [(json!({"spec": 7}), "failed to decode object"), (Value::Null, "failed to decode pod")]
    {
        let response = answer(&pod_request("CREATE", object, Value::Null), BASELINE, Exemptions::default());
        assert_eq!(
            (&response["status"]["code"], &response["status"]["message"]),
            (&json!(400), &json!(message))
        );
    }
}

#[test]
fn unreadable_labels_fail_closed_and_are_noted() {
    let labels: Result<&[(&str, &str)], &str> = Ok(&[("enforce", "nope")]);
    let response = answer(
        &pod_request("CREATE", json!({"spec": {"hostPID": true}}), Value::Null),
        labels,
        Exemptions::default(),
    );
    assert_eq!(response["allowed"], false);
    assert_eq!(
        response["auditAnnotations"]["error"],
        "Failed to parse policy: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"nope\": must be one of privileged, baseline, restricted"
    );
}

fn namespace(operation: &str, new: Value, old: Value) -> Value {
    json!({"uid": "u1", "kind": {"group": "", "version": "v1", "kind": "Namespace"}, "resource": {"group": "", "version": "v1", "resource": "namespaces"},
        "name": "ns", "namespace": "ns", "operation": operation, "object": {"metadata": {"labels": new}}, "oldObject": {"metadata": {"labels": old}}})
}

#[test]
fn namespace_updates_warn_about_existing_pods() {
    let enforce = |level: &str| json!({"pod-security.kubernetes.io/enforce": level});
    let response =
        answer(&namespace("UPDATE", enforce("baseline"), json!({})), Ok(&[]), Exemptions::default());
    assert_eq!(
        response["warnings"],
        json!([
            "existing pods in namespace \"ns\" violate the new PodSecurity enforce level \"baseline:latest\"",
            "old: host namespaces"
        ])
    );
    let response = answer(&namespace("CREATE", enforce("nope"), json!({})), Ok(&[]), Exemptions::default());
    assert_eq!(response["status"]["code"], 422);
    assert_eq!(
        response["status"]["details"],
        json!({"name": "ns", "kind": "Namespace", "causes": [{"reason": "FieldValueInvalid",
            "message": "Invalid value: \"nope\": must be one of privileged, baseline, restricted",
            "field": "metadata.labels[pod-security.kubernetes.io/enforce]"}]})
    );
    assert_eq!(
        answer(&namespace("UPDATE", enforce("nope"), enforce("nope")), Ok(&[]), Exemptions::default())["allowed"],
        true
    );
}

#[test]
fn what_is_not_a_review_is_an_error() {
    for (body, expected) in [
        ("{", "unable to decode the request"),
        ("[]", "unable to decode the request"),
        (
            r#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview"}"#,
            "unexpected AdmissionReview kind: admission.k8s.io/v1beta1, Kind=AdmissionReview",
        ),
        (r#"{"apiVersion":"v1","kind":"Pod"}"#, "unexpected AdmissionReview kind: /v1, Kind=Pod"),
        (
            r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#,
            "the AdmissionReview has no request",
        ),
    ] {
        assert_eq!(Review::parse(body.as_bytes()).unwrap_err().to_string(), expected, "{body}");
    }
}
