//! Mutating reviews: what is written, and that a second call changes nothing.

use palisade_admission::{
    admission_review::Review,
    config_map_profiles::{Fault, Profiles},
    mutation::{Mutation, MutationFacts},
    profile_policies::{StoredPolicy, select},
    response::Response,
    rules::Rules,
};
use palisade_model::{compat::FeatureGates, metadata::StringMap, profile::config_map::ConfigMapProblem};
use proptest::prelude::*;
use serde_json::{Value, json};

const POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/c";
const OWN: &str = "seccomp.palisade.dev/pod";

/// What the tests' ConfigMaps hold: a profile in every key but one.
fn profiles(mutation: &Mutation<'_, '_>) -> Profiles {
    let look = |name: &str, key: &str| match key {
        "none" => Err(Fault::Unusable(ConfigMapProblem::KeyMissing {
            namespace: "ns".to_owned(),
            name: name.to_owned(),
            key: key.to_owned(),
        })),
        "away" => Err(Fault::Unavailable("etcd is away".to_owned())),
        _ => Ok("ab".repeat(32)),
    };
    let wanted = mutation.config_maps(&[]);
    wanted
        .into_iter()
        .map(|source| {
            let found = look(&source.name, &source.key);
            ((source.name, source.key), found)
        })
        .collect()
}

/// Beside a release, with every feature gate on.
fn rules(minor: u16) -> Rules {
    Rules::beside(minor).with_gates(FeatureGates { seccomp_config_maps: true, ..FeatureGates::default() })
}

fn mutate(object: &Value, kind: (&str, &str, &str), minor: u16) -> Response {
    let (group, resource, kind) = kind;
    let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "name": null, "namespace": "ns", "operation": "CREATE", "object": object, "userInfo": {"groups": null},
        "kind": {"group": group, "version": "v1", "kind": kind}, "resource": {"group": group, "version": "v1", "resource": resource}}})
    .to_string();
    let review = Review::parse(body.as_bytes()).unwrap();
    let mutation = match Mutation::of(&review, &rules(minor)) {
        Ok(Some(mutation)) => mutation,
        Ok(None) => return Response::default(),
        Err(unreadable) => return *unreadable,
    };
    let policies = [StoredPolicy::read(
        "allows",
        &json!({"metadata": {"name": "allows"}, "spec": {"seccomp": {
        "allowedProfiles": {"types": ["ConfigMap"], "configMaps": ["*"]}}}}),
    )];
    let policies = select(&policies, &StringMap::default());
    let facts = MutationFacts { profiles: profiles(&mutation), policies, ..MutationFacts::default() };
    mutation.answer(&facts)
}

fn pod(object: &Value, minor: u16) -> Response {
    mutate(object, ("", "pods", "Pod"), minor)
}

fn applied(object: &Value, response: &Response) -> Value {
    let mut object = object.clone();
    if !response.patch.is_empty() {
        let patch: json_patch::Patch = serde_json::from_slice(&response.patch).unwrap();
        json_patch::patch(&mut object, &patch).unwrap();
    }
    object
}

fn annotated(annotations: &Value) -> Value {
    json!({"metadata": {"name": "p", "annotations": annotations}, "spec": {"containers": [{"name": "c"}]}})
}

#[test]
fn annotations_become_fields_where_the_api_server_does_not_do_it() {
    let object = annotated(&json!({POD: "runtime/default"}));
    for (minor, fills) in [(24, false), (26, false), (27, true), (37, true), (38, true)] {
        let after = applied(&object, &pod(&object, minor));
        let profile = &after["spec"]["securityContext"]["seccompProfile"];
        assert_eq!(profile["type"] == "RuntimeDefault", fills, "v1.{minor}");
    }
    let armored = annotated(&json!({"container.apparmor.security.beta.kubernetes.io/c": "unconfined"}));
    for (minor, fills) in [(29, false), (37, false), (38, true)] {
        let response = pod(&armored, minor);
        let after = applied(&armored, &response);
        let profile = &after["spec"]["containers"][0]["securityContext"]["appArmorProfile"];
        assert_eq!(profile["type"] == "Unconfined", fills, "v1.{minor}");
        assert_eq!(response.warnings.len(), usize::from(fills));
    }
    let mut windows = object;
    windows["spec"]["os"] = json!({"name": "windows"});
    assert!(pod(&windows, 37).patch.is_empty(), "a Windows pod may not have the field");
}

#[test]
fn references_to_registries_are_rejected_because_no_kubelet_pulls_them() {
    let artifact = format!("oci://registry.example.com/a@sha256:{}", "0".repeat(64));
    let own = "container.seccomp.palisade.dev/c";
    for (key, value) in [
        (OWN, artifact.as_str()),
        (own, &artifact),
        (POD, &artifact),
        (CONTAINER, "OCI://x"),
        (OWN, " oci://x"),
    ] {
        let object = annotated(&json!({key: value}));
        for minor in [24, 37] {
            let refused = pod(&object, minor).refused.unwrap().message;
            assert!(refused.contains("profiles from registries need a node of Palisade"), "{key}: {refused}");
        }
        let template = json!({"metadata": {"name": "d"}, "spec": {"template": object}});
        let response = mutate(&template, ("apps", "deployments", "Deployment"), 37);
        assert!(response.refused.is_none());
        assert!(response.warnings[0].ends_with("; pods will be refused"), "{:?}", response.warnings);
    }
    let harmless = annotated(&json!({OWN: "configmap/web/a.json", "example.com/artifact": artifact}));
    assert!(pod(&harmless, 37).refused.is_none());
}

#[test]
fn references_to_config_maps() {
    let hash = "ab".repeat(32);
    let object = annotated(&json!({POD: "configmap/web/a.json", CONTAINER: "configmap/web/b.json"}));
    for minor in [24, 37] {
        let after = applied(&object, &pod(&object, minor));
        let path = format!("palisade/{hash}.json");
        let profile = json!({"type": "Localhost", "localhostProfile": path});
        assert_eq!(after["spec"]["securityContext"]["seccompProfile"], profile);
        assert_eq!(after["spec"]["containers"][0]["securityContext"]["seccompProfile"], profile);
        assert_eq!(
            after["metadata"]["annotations"],
            json!({
                POD: format!("localhost/{path}"),
                CONTAINER: format!("localhost/{path}"),
                OWN: format!("configmap/web/a.json@sha256:{hash}"),
                "container.seccomp.palisade.dev/c": format!("configmap/web/b.json@sha256:{hash}"),
            })
        );
    }
    for (value, code, text) in [
        ("configmap/web/none", 422, "couldn't find key none in ConfigMap ns/web"),
        ("configmap/web/away", 500, "etcd is away"),
    ] {
        let refusal = pod(&annotated(&json!({POD: value})), 37).refused.unwrap();
        assert_eq!(refusal.code, code);
        assert!(refusal.message.contains(text), "{}", refusal.message);
    }
    let claimed = annotated(&json!({OWN: format!("configmap/web/a.json@sha256:{}", "cd".repeat(32))}));
    assert!(pod(&claimed, 37).refused.unwrap().message.contains("holds other bytes now"));
}

#[test]
fn templates_keep_the_reference() {
    let template = json!({"metadata": {"annotations": {POD: "configmap/web/none", "a": "b"}}, "spec": {"containers": []}});
    let object = json!({"metadata": {"name": "d"}, "spec": {"template": template}});
    let response = mutate(&object, ("apps", "deployments", "Deployment"), 37);
    assert_eq!(
        applied(&object, &response)["spec"]["template"]["metadata"]["annotations"],
        json!({OWN: "configmap/web/none", "a": "b"})
    );
    assert_eq!(response.warnings.len(), 1);
}

fn annotation() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("runtime/default".to_owned()),
        Just("docker/default".to_owned()),
        Just("unconfined".to_owned()),
        Just("localhost/a.json".to_owned()),
        Just("localhost/".to_owned()),
        Just("configmap/web/a.json".to_owned()),
        Just("configmap/web".to_owned()),
        Just(format!("configmap/web/a@sha256:{}", "ab".repeat(32))),
        "[a-z/]{0,12}",
    ]
}

fn profile() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!({"type": "RuntimeDefault"})),
        Just(json!({"type": "Localhost", "localhostProfile": "a.json"})),
        Just(json!({"type": "Localhost", "localhostProfile": format!("palisade/{}.json", "ab".repeat(32))})),
    ]
}

proptest! {
    #[test]
    fn a_second_call_changes_nothing(
        keys in prop::collection::btree_map(prop::sample::select(vec![POD, CONTAINER, OWN, "container.seccomp.palisade.dev/c"]), annotation(), 0..4),
        pod_profile in profile(),
        container_profile in profile(),
        minor in 24_u16..39,
    ) {
        let object = json!({
            "metadata": {"name": "p", "annotations": keys},
            "spec": {"securityContext": {"seccompProfile": pod_profile}, "containers": [{"name": "c", "securityContext": {"seccompProfile": container_profile}}]},
        });
        let response = pod(&object, minor);
        prop_assert!(response.refused.is_none() || response.patch.is_empty());
        if response.refused.is_none() {
            let after = applied(&object, &response);
            let again = pod(&after, minor);
            prop_assert!(again.refused.is_none(), "{:?}", again.refused);
            prop_assert!(again.patch.is_empty(), "{}", String::from_utf8_lossy(&again.patch));
        }
    }
}

#[test]
fn a_pod_that_is_applied_again_gets_back_what_was_rewritten() {
    let manifest = json!({"metadata": {"name": "p", "annotations": {POD: "configmap/profiles/web", CONTAINER: "configmap/profiles/web"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let mut stored = applied(&manifest, &pod(&manifest, 24));
    // As API servers before v1.27 store it: annotations follow fields.
    stored["metadata"]["annotations"][CONTAINER] =
        format!("localhost/palisade/{}.json", "ab".repeat(32)).into();
    let again = |change: &dyn Fn(&mut Value)| {
        let mut new = stored.clone();
        change(&mut new);
        let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "name": "p", "namespace": "ns", "operation": "UPDATE", "object": new, "oldObject": stored, "userInfo": {"groups": null},
            "kind": {"group": "", "version": "v1", "kind": "Pod"}, "resource": {"group": "", "version": "v1", "resource": "pods"}}})
        .to_string();
        let review = Review::parse(body.as_bytes()).unwrap();
        let mutation = Mutation::of(&review, &rules(24)).unwrap().unwrap();
        assert_eq!(mutation.config_maps(&[]), [], "nothing is looked up again");
        let response = mutation.answer(&MutationFacts::default());
        (new.clone(), applied(&new, &response))
    };
    for key in [POD, CONTAINER] {
        let (_, result) = again(&|new| new["metadata"]["annotations"][key] = "configmap/profiles/web".into());
        assert_eq!(result, stored, "{key}");
        let (new, result) =
            again(&|new| new["metadata"]["annotations"][key] = "configmap/profiles/other".into());
        assert_eq!(result, new, "{key}: another reference is for the API server to refuse");
    }
    let (new, result) = again(&|new| new["metadata"]["labels"] = json!({"a": "b"}));
    assert_eq!(result, new, "other changes are kept");
}
