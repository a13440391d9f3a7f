//! What cannot be read, or not be looked up, is never admitted.

use palisade_admission::{
    admission_review::{Needs, PodSecurityFacts, Review},
    constraints::Constraints,
    mutation::{self, Mutation},
    pod_security::PodSecurity,
    profile_policies::{Selection, StoredPolicy, select},
    response::Response,
    rules::Rules,
    validation::{self, validate, validate_policy},
};
use palisade_model::{
    compat::Compat,
    metadata::{ObjectMeta, StringMap},
};
use palisade_policy::{
    scc::{built_in, choose::Identity, evaluate},
    standards::{
        evaluator::Evaluator,
        namespace::Limit,
        policy::{Exemptions, Policy},
    },
};
use serde_json::{Value, json};

/// Where a review is judged: in which namespace, by which rules, with constraints or without, with these policies.
struct Place<'p> {
    level: &'static str,
    rules: Rules,
    constraints: bool,
    policies: &'p [StoredPolicy],
}

fn open(policies: &[StoredPolicy]) -> Place<'_> {
    Place { level: "privileged", rules: Rules::beside(37), constraints: false, policies }
}

fn places() -> Vec<Place<'static>> {
    let mut places = Vec::new();
    for level in ["privileged", "restricted"] {
        for rules in
            [Rules::beside(37), Rules::Instead(Compat::kubernetes(24)), Rules::Instead(Compat::designs())]
        {
            for constraints in [false, true] {
                places.push(Place { level, rules, constraints, policies: &[] });
            }
        }
    }
    places
}

/// What both webhooks answer to the text of a request: (mutating, validating).
fn answers(request: &str, place: &Place<'_>) -> Option<(Response, Response)> {
    let body =
        format!(r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{request}}}"#);
    let review = Review::parse(body.as_bytes()).ok()?;
    let security = PodSecurity {
        evaluator: Evaluator::default(),
        defaults: Policy::default(),
        exemptions: Exemptions::default(),
    };
    let labels: StringMap<'_> =
        [("pod-security.kubernetes.io/enforce".into(), place.level.into()), ("team".into(), "a".into())]
            .into_iter()
            .collect();
    let namespace = ObjectMeta {
        name: "ns".into(),
        labels: labels.clone(),
        annotations: [
            ("openshift.io/sa.scc.uid-range".into(), "1000/100".into()),
            ("openshift.io/sa.scc.mcs".into(), "s0:c1,c0".into()),
            ("openshift.io/sa.scc.supplemental-groups".into(), "1000/100".into()),
        ]
        .into_iter()
        .collect(),
        ..ObjectMeta::default()
    };
    let set = built_in::constraints();
    let everything = |_: &Identity<'_>, _: &str| true;
    let constraints = || {
        let judges = Constraints { set: &set, unreadable: &[], options: evaluate::Options::default() };
        place.constraints.then_some((judges, &everything as _))
    };
    let selection = || select(place.policies, &labels);
    let mutated = match Mutation::of(&review, &place.rules) {
        Ok(None) => Response::default(),
        Err(response) => *response,
        Ok(Some(mutation)) => mutation.answer(&mutation::MutationFacts {
            policies: selection(),
            constraints: constraints(),
            namespace: Some(&namespace),
            ..mutation::MutationFacts::default()
        }),
    };
    let pod_security = match review.needs(&security) {
        Needs::Nothing => PodSecurityFacts::Nothing,
        Needs::Namespace(_) => PodSecurityFacts::Namespace(Ok(&labels)),
        Needs::Pods(..) => PodSecurityFacts::Pods(Ok(Vec::new())),
    };
    let facts = validation::ValidationFacts {
        pod_security,
        policies: selection(),
        constraints: constraints(),
        namespace: Some(&namespace),
    };
    let validated = validate(&review, &security, &place.rules, &facts, Limit::None, || false);
    Some((mutated, validated))
}

/// The text of a request about a pod, whose objects may be any text.
fn request(operation: &str, subresource: &str, object: &str, old: &str) -> String {
    format!(
        r#"{{"uid":"u","kind":{{"group":"","version":"v1","kind":"Pod"}},
        "resource":{{"group":"","version":"v1","resource":"pods"}},"requestSubResource":"{subresource}",
        "name":"p","namespace":"ns","operation":"{operation}","userInfo":{{"username":"alice"}},
        "object":{object},"oldObject":{old}}}"#
    )
}

const PRIVILEGED: &str =
    r#"{"hostPID":true,"containers":[{"name":"c","image":"i","securityContext":{"privileged":true}}]}"#;
const GOOD: &str = r#"{"metadata":{"name":"p"},"spec":{"securityContext":{"runAsNonRoot":true,"runAsUser":1000,
    "fsGroup":1000,"seccompProfile":{"type":"RuntimeDefault"},"seLinuxOptions":{"level":"s0:c1,c0"}},
    "containers":[{"name":"c","image":"i","securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}}]}}"#;

fn deep(levels: usize) -> String {
    format!("{}{{}}{}", r#"{"f:a":"#.repeat(levels), "}".repeat(levels))
}

#[test]
fn depth_hides_nothing() {
    for levels in [1, 120, 126, 130, 500, 5000] {
        let metadata = |inner: &str| {
            format!(
                r#"{{"name":"p","managedFields":[{{"manager":"m","fieldsV1":{}}}]{inner}}}"#,
                deep(levels)
            )
        };
        let bad = format!(r#"{{"metadata":{},"spec":{PRIVILEGED}}}"#, metadata(""));
        let good = GOOD.replacen(r#"{"name":"p"}"#, &metadata(""), 1);
        for place in places().iter().filter(|place| place.level == "restricted") {
            let (_, validated) = answers(&request("CREATE", "", &bad, "null"), place).unwrap();
            let refused = validated.refused.unwrap();
            assert!(refused.code == 403 || refused.code == 422, "{levels}: {refused:?}");
            let (mutated, validated) = answers(&request("CREATE", "", &good, "null"), place).unwrap();
            assert_eq!(mutated.refused, None, "{levels}");
            if !place.constraints {
                assert_eq!(validated.refused, None, "{levels}");
            }
        }
    }
    // Depth elsewhere is of no interest to the standards, and cannot be parsed by any reader that needs the whole object.
    let unknown = format!(r#"{{"metadata":{{"name":"p"}},"spec":{{"x":{},"containers":[]}}}}"#, deep(130));
    for place in places().iter().filter(|place| place.constraints) {
        let (_, validated) = answers(&request("CREATE", "", &unknown, "null"), place).unwrap();
        assert!(validated.refused.is_some());
    }
}

#[test]
fn unreadable_pods_are_rejected_everywhere() {
    let pod = |spec: &str| format!(r#"{{"metadata":{{"name":"p"}},"spec":{spec}}}"#);
    let container =
        |context: &str| pod(&format!(r#"{{"containers":[{{"name":"c","securityContext":{context}}}]}}"#));
    let cases = [
        "null".to_owned(),
        "[]".to_owned(),
        "7".to_owned(),
        r#""pod""#.to_owned(),
        "true".to_owned(),
        format!(r#"[{{"name":"p"}},{PRIVILEGED}]"#),
        pod("[]"),
        pod("7"),
        pod(r#"{"containers":{}}"#),
        pod(r#"{"containers":[[]]}"#),
        pod(r#"{"containers":["c"]}"#),
        pod(r#"{"securityContext":[],"containers":[]}"#),
        pod(r#"{"hostPID":"true"}"#),
        pod(r#"{"hostPID":1}"#),
        pod(r#"{"hostPID":true,"hostPID":false}"#),
        format!(r#"{{"spec":{PRIVILEGED},"spec":{{"containers":[]}}}}"#),
        r#"{"metadata":[],"spec":{"containers":[]}}"#.to_owned(),
        r#"{"metadata":{"annotations":[]},"spec":{"containers":[]}}"#.to_owned(),
        r#"{"metadata":{"annotations":{"a":1}},"spec":{"containers":[]}}"#.to_owned(),
        r#"{"metadata":{"annotations":{"a":"\ud800"}},"spec":{"containers":[]}}"#.to_owned(),
        container(r#"{"runAsUser":18446744073709551615}"#),
        container(r#"{"runAsUser":0.0}"#),
        container(r#"{"runAsUser":1e3}"#),
        container(r#"{"runAsUser":"0"}"#),
        container(r#"{"privileged":"false"}"#),
        container(r#"{"capabilities":[]}"#),
        container(r#"{"capabilities":{"add":"ALL"}}"#),
        container(r#"{"seccompProfile":"Unconfined"}"#),
        r#"{"apiVersion":"v1","kind":"EphemeralContainers","ephemeralContainers":[]}"#.to_owned(),
        r#"{"apiVersion":"apps/v1","kind":"Pod","spec":{"containers":[]}}"#.to_owned(),
        r#"{"metadata":{"name":"p","namespace":"other"},"spec":{"containers":[]}}"#.to_owned(),
    ];
    for place in places().iter().filter(|place| place.level == "restricted" || place.constraints) {
        for case in &cases {
            for (operation, subresource, object, old) in [
                ("CREATE", "", case.as_str(), "null"),
                ("UPDATE", "", case, GOOD),
                ("UPDATE", "", GOOD, case),
                ("UPDATE", "ephemeralcontainers", case, GOOD),
                ("UPDATE", "ephemeralcontainers", GOOD, case),
                ("UPDATE", "resize", case, GOOD),
            ] {
                // Constraints do not apply to a resize, and a privileged namespace requires nothing.
                if subresource == "resize" && place.level == "privileged" {
                    continue;
                }
                let text = request(operation, subresource, object, old);
                let about =
                    format!("{operation} {subresource} {object} {old} {} {:?}", place.level, place.rules);
                let Some((mutated, validated)) = answers(&text, place) else { continue };
                assert!(mutated.refused.is_some() || validated.refused.is_some(), "{about}");
                if place.level == "restricted" {
                    let refused = validated.refused.unwrap_or_else(|| panic!("{about}"));
                    assert!(refused.code == 400 || refused.code == 422, "{about} {refused:?}");
                }
            }
        }
        let (mutated, validated) = answers(&request("UPDATE", "", GOOD, GOOD), place).unwrap();
        assert_eq!((mutated.refused, validated.refused), (None, None));
    }
}

#[test]
fn a_mutating_webhook_does_not_pass_what_it_cannot_read() {
    let place = Place { level: "privileged", rules: Rules::beside(37), constraints: false, policies: &[] };
    for object in ["null", "[]", r#"{"spec":[]}"#, r#"{"spec":{"hostPID":"x"}}"#] {
        let (mutated, _) = answers(&request("CREATE", "", object, "null"), &place).unwrap();
        assert_eq!(mutated.refused.map(|refusal| refusal.code), Some(400), "{object}");
    }
    let wrong = request("CREATE", "", GOOD, "null").replace(r#""kind":"Pod""#, r#""kind":"Binding""#);
    let (mutated, _) = answers(&wrong, &place).unwrap();
    assert_eq!(mutated.refused.map(|refusal| refusal.code), Some(400));
}

#[test]
fn a_pod_by_its_resource_is_a_pod_by_its_kind() {
    let place = Place { level: "restricted", rules: Rules::beside(37), constraints: false, policies: &[] };
    let good = request("CREATE", "", GOOD, "null");
    for kind in ["Deployment", "EphemeralContainers", "pod", ""] {
        let wrong = good.replace(r#""kind":"Pod""#, &format!(r#""kind":"{kind}""#));
        let (_, validated) = answers(&wrong, &place).unwrap();
        assert_eq!(validated.refused.map(|refusal| refusal.code), Some(400), "{kind}");
    }
    for (group, resource) in
        [("", "pod"), ("", "widgets"), ("apps", "pods"), ("apps", "deployments"), ("", "namespaces")]
    {
        let wrong = good.replace(
            r#""resource":{"group":"","version":"v1","resource":"pods"}"#,
            &format!(r#""resource":{{"group":"{group}","version":"v1","resource":"{resource}"}}"#),
        );
        assert_ne!(wrong, good);
        let (mutated, validated) = answers(&wrong, &place).unwrap();
        for refused in [mutated.refused, validated.refused] {
            assert_eq!(refused.map(|refusal| refusal.code), Some(400), "{group} {resource}");
        }
    }
    assert_eq!(answers(&good, &place).unwrap().1.refused, None);
}

#[test]
fn reviews_that_make_no_sense_are_bad_requests() {
    let good = request("CREATE", "", GOOD, "null");
    let place = Place { level: "restricted", rules: Rules::beside(37), constraints: false, policies: &[] };
    for (from, to) in [
        (r#""operation":"CREATE""#, r#""operation":"create""#),
        (r#""operation":"CREATE""#, r#""operation":null"#),
        (r#""operation":"CREATE""#, r#""operation":["CREATE"]"#),
        (r#""userInfo":{"username":"alice"}"#, r#""userInfo":[]"#),
        (r#""userInfo":{"username":"alice"}"#, r#""userInfo":{"username":7}"#),
        (r#""userInfo":{"username":"alice"}"#, r#""userInfo":{"groups":"system:nodes"}"#),
        (r#""kind":{"group":"","version":"v1","kind":"Pod"}"#, r#""kind":[]"#),
        (r#""resource":{"group":"","version":"v1","resource":"pods"}"#, r#""resource":{}"#),
        (r#""namespace":"ns""#, r#""namespace":"ns","namespace":"kube-system""#),
        (r#""oldObject":null"#, r#""oldObject":null,"object":{}"#),
    ] {
        assert!(good.contains(from));
        assert!(answers(&good.replacen(from, to, 1), &place).is_none(), "{to}");
    }
    assert!(answers("[]", &place).is_none());
    assert!(answers("null", &place).is_none());
}

#[test]
fn unusable_policies_reject_the_pods_they_are_for() {
    let stored =
        |spec: Value| vec![StoredPolicy::read("p", &json!({"metadata": {"name": "p"}, "spec": spec}))];
    let here = json!({"matchLabels": {"team": "a"}});
    let there = json!({"matchLabels": {"team": "b"}});
    let contradiction =
        json!({"defaultProfile": {"type": "Unconfined"}, "allowedProfiles": {"types": ["RuntimeDefault"]}});
    for (case, spec, rejected) in [
        ("all namespaces", json!({"seccomp": contradiction}), true),
        ("selected", json!({"namespaceSelector": here, "seccomp": contradiction}), true),
        ("not selected", json!({"namespaceSelector": there, "seccomp": contradiction}), false),
        ("unknown field", json!({"namespaceSelector": here, "seccmp": {}}), true),
        ("unknown field elsewhere", json!({"namespaceSelector": there, "seccmp": {}}), false),
        ("wrong type", json!({"seccomp": {"allowedProfiles": {"types": "RuntimeDefault"}}}), true),
        ("a list", json!([]), true),
        ("nothing", Value::Null, true),
        ("selector is a list", json!({"namespaceSelector": []}), true),
        (
            "selector with an unknown operator",
            json!({"namespaceSelector": {"matchExpressions": [{"key": "x", "operator": "in", "values": ["b"]}]}}),
            true,
        ),
        (
            "usable",
            json!({"namespaceSelector": here, "seccomp": {"allowedProfiles": {"types": ["RuntimeDefault"]}}}),
            false,
        ),
    ] {
        let policies = stored(spec);
        let (mutated, validated) = answers(&request("CREATE", "", GOOD, "null"), &open(&policies)).unwrap();
        for refused in [mutated.refused, validated.refused] {
            assert_eq!(refused.is_some(), rejected, "{case}: {refused:?}");
            if let Some(refused) = refused {
                assert!(
                    refused.message.contains("ProfilePolicy \"p\" cannot be applied: "),
                    "{}",
                    refused.message
                );
            }
        }
    }
    let unreadable = vec![StoredPolicy::unreadable("p", "it is no JSON")];
    assert!(answers(&request("CREATE", "", GOOD, "null"), &open(&unreadable)).unwrap().1.refused.is_some());
    assert!(Selection::default().refusal().is_none());
}

#[test]
fn policies_that_cannot_be_applied_are_rejected_when_written() {
    let written = |object: Value| {
        let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "name": "p", "operation": "CREATE", "object": object,
            "kind": {"group": "palisade.dev", "version": "v1alpha1", "kind": "ProfilePolicy"},
            "resource": {"group": "palisade.dev", "version": "v1alpha1", "resource": "profilepolicies"}}})
        .to_string();
        let review = Review::parse(body.as_bytes()).unwrap();
        assert!(review.is_profile_policy());
        validate_policy(&review).refused.map(|refusal| (refusal.code, refusal.message))
    };
    let rules = |types: Value| json!({"spec": {"seccomp": {"defaultProfile": {"type": "Unconfined"}, "allowedProfiles": {"types": types}}}});
    assert_eq!(written(rules(json!(["Unconfined"]))), None);
    assert_eq!(
        written(rules(json!(["RuntimeDefault"]))),
        Some((
            422,
            "ProfilePolicy.palisade.dev \"p\" is invalid: spec.seccomp.defaultProfile: Invalid value: \"Unconfined\": must be allowed by allowedProfiles, which has RuntimeDefault".to_owned()
        ))
    );
    assert_eq!(written(rules(json!("RuntimeDefault"))).unwrap().0, 422);
    assert_eq!(written(Value::Null).unwrap().0, 400);
    assert_eq!(written(json!([])).unwrap().0, 400);
}
