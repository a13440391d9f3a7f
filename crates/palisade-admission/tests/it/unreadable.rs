//! What cannot be read, or not be looked up, is never admitted.

use palisade_admission::{
    admission_review::{Needs, PodSecurityFacts, Review},
    constraints::Constraints,
    mutation::{self, Mutation},
    pod_security::{ExceptionFacts, PodSecurity},
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
        let judges = Constraints {
            set: &set,
            unreadable: &[],
            options: evaluate::Options::default(),
            mode: palisade_policy::scc::mode::ConstraintMode::Enforce,
        };
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
        exceptions: ExceptionFacts::NONE,
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

fn beside(level: &'static str) -> Place<'static> {
    Place { level, rules: Rules::beside(37), constraints: false, policies: &[] }
}

/// What the validating webhook answers: nothing, or the code of the refusal.
fn refused(request: &str, place: &Place<'_>) -> Option<u16> {
    answers(request, place).map_or(Some(400), |(_, validated)| validated.refused.map(|refusal| refusal.code))
}

#[test]
fn an_object_is_what_its_request_says() {
    let good = request("CREATE", "", GOOD, "null");
    let bad = format!(r#"{{"metadata":{{"name":"p"}},"spec":{PRIVILEGED}}}"#);
    for place in [beside("privileged"), beside("restricted")] {
        for (case, object) in [
            (
                "another namespace",
                r#"{"metadata":{"name":"p","namespace":"other"},"spec":{"containers":[]}}"#,
            ),
            ("another name", r#"{"metadata":{"name":"q"},"spec":{"containers":[]}}"#),
            ("no spec", r#"{"metadata":{"name":"p"}}"#),
            ("a spec by another name", &bad.replace(r#""spec""#, r#""Spec""#)),
            ("nothing", "{}"),
            ("no object", "[]"),
            (
                "a key twice",
                r#"{"metadata":{"name":"p","annotations":{"a":"1","a":"1"}},"spec":{"containers":[]}}"#,
            ),
            (
                "two sources",
                r#"{"spec":{"containers":[],"volumes":[{"name":"v","emptyDir":{},"hostPath":{}}]}}"#,
            ),
            (
                "a source beside another",
                r#"{"spec":{"containers":[],"volumes":[{"name":"v","emptyDir":{},"future":{}}]}}"#,
            ),
            (
                "a source twice",
                r#"{"spec":{"containers":[],"volumes":[{"name":"v","hostPath":{},"hostPath":null}]}}"#,
            ),
        ] {
            for (operation, old) in [("CREATE", "null"), ("UPDATE", GOOD)] {
                let text = request(operation, "", object, old);
                assert_eq!(refused(&text, &place), Some(400), "{case} {operation} {}", place.level);
            }
        }
        assert_eq!(refused(&good, &place), None);
        assert_eq!(
            refused(&good.replace(r#""name":"p","namespace""#, r#""name":"","namespace""#), &place),
            None
        );
    }
    // Two subresources are one too many; the one that is ignored would decide.
    let status = request("UPDATE", "status", &bad, GOOD);
    let two = |registered: &str| {
        status.replacen(r#""name":"p""#, &format!(r#""subResource":"{registered}","name":"p""#), 1)
    };
    assert_eq!(refused(&two("ephemeralcontainers"), &beside("restricted")), Some(400));
    assert_eq!(refused(&two("status"), &beside("restricted")), None);

    let namespace = |name: &str| {
        good.replace(r#""kind":"Pod""#, r#""kind":"Namespace""#)
            .replace(r#""resource":"pods""#, r#""resource":"namespaces""#)
            .replace(GOOD, &format!(r#"{{"metadata":{{"name":"{name}"}}}}"#))
    };
    assert_eq!(refused(&namespace("p"), &beside("restricted")), None);
    assert_eq!(refused(&namespace("victim"), &beside("restricted")), Some(400));
}

#[test]
fn an_update_is_judged_if_anything_changes_that_is_judged() {
    let restricted = beside("restricted");
    let bad = format!(r#"{{"metadata":{{"name":"p"}},"spec":{PRIVILEGED}}}"#);
    let labelled = bad.replacen(r#""name":"p""#, r#""name":"p","labels":{"a":"b"}"#, 1);
    // Of a pod that was there before the level was, everything else may change.
    assert_eq!(refused(&request("UPDATE", "", &labelled, &bad), &restricted), None);
    let debugged = |context: &str, more: &str| {
        GOOD.replacen(
            r#""containers""#,
            &format!(r#"{more}"ephemeralContainers":[{{"name":"d","image":"i","securityContext":{context}}}],"containers""#),
            1,
        )
    };
    let confined = r#"{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}"#;
    for (case, subresource, new, old) in [
        ("the images stay", "", bad.as_str(), &bad.replace(r#""privileged":true"#, r#""privileged":false"#)),
        ("by a resize", "resize", &bad, &bad.replace(r#""hostPID":true"#, r#""hostPID":false"#)),
        (
            "a debugger",
            "ephemeralcontainers",
            &debugged(r#"{"privileged":true}"#, ""),
            &debugged(confined, ""),
        ),
        (
            "beside a debugger",
            "ephemeralcontainers",
            &debugged(confined, r#""hostNetwork":true,"#),
            &debugged(confined, ""),
        ),
    ] {
        assert_eq!(refused(&request("UPDATE", subresource, new, old), &restricted), Some(403), "{case}");
    }
    let added = request("UPDATE", "ephemeralcontainers", &debugged(confined, ""), GOOD);
    assert_eq!(refused(&added, &restricted), None);
}

#[test]
fn only_a_kubelet_mirrors_pods_and_only_its_own() {
    let pod = |node: &str| {
        let spec = PRIVILEGED.replacen('{', &format!(r#"{{"nodeName":"{node}","#), 1);
        format!(
            r#"{{"metadata":{{"name":"p","annotations":{{"kubernetes.io/config.mirror":"x"}}}},"spec":{spec}}}"#
        )
    };
    let by = |user: &str, groups: &str, node: &str| {
        let user = format!(r#""userInfo":{{"username":"{user}","groups":[{groups}]}}"#);
        request("CREATE", "", &pod(node), "null").replace(r#""userInfo":{"username":"alice"}"#, &user)
    };
    let nodes = r#""system:nodes""#;
    for (user, groups, node, expected) in [
        ("system:node:n", nodes, "n", None),
        ("system:node:n", nodes, "m", Some(403)),
        ("system:node:n", "", "n", Some(403)),
        ("system:node:", nodes, "", Some(403)),
        ("alice", nodes, "n", Some(403)),
        ("system:serviceaccount:a:b", nodes, "n", Some(403)),
    ] {
        assert_eq!(
            refused(&by(user, groups, node), &beside("restricted")),
            expected,
            "{user} {groups} {node}"
        );
    }
}

#[test]
fn no_setting_is_ignored_beside_a_release() {
    // An API server sends these fields only if its release has them, and then its nodes have them.
    let with = |fields: &str| {
        GOOD.replacen(r#""runAsNonRoot":true"#, &format!(r#""runAsNonRoot":true,{fields}"#), 1)
    };
    for fields in [
        r#""hostNetwork":true"#,
        r#""hostIPC":true"#,
        r#""containerDefaults":{"privileged":true}"#,
        r#""containerDefaults":{"runAsUser":0}"#,
        r#""containerDefaults":{"procMount":"Unmasked"}"#,
        r#""containerDefaults":{"seccompProfile":{"type":"Unconfined"}}"#,
        r#""containerDefaults":{"appArmorProfile":{"type":"Unconfined"}}"#,
        r#""containerDefaults":{"seLinuxOptions":{"type":"spc_t"}}"#,
        r#""containerDefaults":{"windowsOptions":{"hostProcess":true}}"#,
    ] {
        let text = request("CREATE", "", &with(fields), "null");
        assert_eq!(refused(&text, &beside("restricted")), Some(403), "{fields}");
    }
    for fields in [
        r#""hostNetwork":false"#,
        r#""containerDefaults":{"privileged":false,"runAsUser":7,"seccompProfile":{"type":"RuntimeDefault"}}"#,
    ] {
        assert_eq!(refused(&request("CREATE", "", &with(fields), "null"), &beside("restricted")), None);
    }
}

#[test]
fn the_source_of_a_profile_cannot_be_hidden() {
    let named = |key: &str| {
        let annotation = format!(r#"{{"name":"p","annotations":{{"{key}":"configmap/a/b"}}}}"#);
        request("CREATE", "", &GOOD.replacen(r#"{"name":"p"}"#, &annotation, 1), "null")
    };
    for key in ["seccomp.palisade.dev/pod", r"seccomp.palisade.dev\/pod", r"\u0073eccomp.palisade.dev/pod"] {
        assert_eq!(refused(&named(key), &beside("restricted")), Some(422), "{key}");
    }
    assert_eq!(refused(&named(r"example.com\/pod"), &beside("restricted")), None);
}

#[test]
fn a_published_file_is_named_only_with_its_source() {
    let hash = "a".repeat(64);
    let file = format!("palisade/{hash}.json");
    let field = |path: &str| format!(r#"{{"type":"Localhost","localhostProfile":"{path}"}}"#);
    let pod = |annotations: &Value, of_pod: &str, of_container: &str, ephemeral: &str| {
        GOOD.replacen(r#"{"name":"p"}"#, &json!({"name": "p", "annotations": annotations}).to_string(), 1)
            .replacen(r#"{"type":"RuntimeDefault"}"#, of_pod, 1)
            .replacen(
                r#""securityContext":{"allow"#,
                &format!(r#""securityContext":{{{of_container}"allow"#),
                1,
            )
            .replacen(r#""spec":{"#, &format!(r#""spec":{{{ephemeral}"#), 1)
    };
    let policies = [StoredPolicy::read(
        "p",
        &json!({"metadata": {"name": "p"}, "spec": {"seccomp": {"allowedProfiles": {
        "types": ["ConfigMap", "Localhost", "RuntimeDefault"], "configMaps": ["*"], "localhostProfiles": ["*"]}}}}),
    )];
    let allowing = || Place { policies: &policies, ..beside("restricted") };
    let source = format!("configmap/a/b@sha256:{hash}");
    let (none, named) = (json!({}), json!({"seccomp.palisade.dev/pod": source}));
    let own = json!({"container.seccomp.palisade.dev/c": source});
    let default = r#"{"type":"RuntimeDefault"}"#;
    let container = format!(r#""seccompProfile":{},"#, field(&file));
    for (case, object, expected) in [
        ("no source", pod(&none, &field(&file), "", ""), Some(422)),
        ("another spelling", pod(&none, &field(&format!("./palisade//{hash}.json")), "", ""), Some(422)),
        ("escaped", pod(&none, &field(&format!(r"p\u0061lisade\/{hash}.json")), "", ""), Some(422)),
        ("the source of the pod for a container", pod(&named, default, &container, ""), Some(422)),
        ("the source of a container for the pod", pod(&own, &field(&file), "", ""), Some(422)),
        (
            "another file",
            pod(&named, &field(&format!("palisade/{}.json", "b".repeat(64))), "", ""),
            Some(422),
        ),
        (
            "an annotation of older releases",
            pod(
                &json!({"container.seccomp.security.alpha.kubernetes.io/c": format!("localhost/{file}")}),
                default,
                "",
                "",
            ),
            Some(422),
        ),
        ("the pod with its source", pod(&named, &field(&file), "", ""), None),
        ("the container with its source", pod(&own, default, &container, ""), None),
        ("a file of the administrator", pod(&none, &field("palisade.json"), "", ""), None),
        ("a folder of the administrator", pod(&none, &field("web/palisade/a.json"), "", ""), None),
    ] {
        let text = request("CREATE", "", &object, "null");
        assert_eq!(refused(&text, &allowing()), expected, "{case}");
        let without = if case.contains("with its source") { Some(422) } else { expected };
        assert_eq!(refused(&text, &beside("restricted")), without, "{case}, without a policy");
    }
    let debugger = |path: &str| {
        let profile = field(path);
        format!(
            r#""ephemeralContainers":[{{"name":"d","image":"i","securityContext":{{"allowPrivilegeEscalation":false,
            "capabilities":{{"drop":["ALL"]}},"seccompProfile":{profile}}}}}],"#
        )
    };
    let other = format!("palisade/{}.json", "b".repeat(64));
    for (case, path, expected) in
        [("the file of the pod", &file, None), ("the file of another namespace", &other, Some(422))]
    {
        let (old, new) =
            (pod(&named, &field(&file), "", ""), pod(&named, &field(&file), "", &debugger(path)));
        let text = request("UPDATE", "ephemeralcontainers", &new, &old);
        assert_eq!(refused(&text, &beside("restricted")), expected, "{case}");
    }
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
    assert_eq!(written(json!({"kind": 7, "spec": {}})).unwrap().0, 400);
    assert_eq!(
        written(json!({"spec": {"namespaceSelector": {"matchLabels": {"team": "a "}}}})).unwrap().0,
        422
    );
}
