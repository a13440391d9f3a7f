//! Admission policies in the embedded API server. `cargo xtask cluster` compares more of them with a real one.

use palisade_apiserver::Server;
use palisade_testkit::client::{Answer, Client};
use serde_json::{Value, json};

use crate::support::{admin, config_map, get, send, start};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

fn matched() -> Value {
    json!({"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE", "DELETE"],
        "resources": ["configmaps"]}]})
}

/// Creates a policy about ConfigMaps and its binding; the first answer that is not a yes.
async fn make(client: &Client, plural: &str, name: &str, spec: Value, binding: Value) -> Answer {
    let (mut spec, mut binding) = (spec, binding);
    spec["matchConstraints"] = matched();
    binding["policyName"] = json!(name);
    let policy = json!({"metadata": {"name": name}, "spec": spec});
    let answer = send(client, "POST", &format!("{GROUP}/{plural}admissionpolicies"), &policy).await;
    if answer.code != 201 {
        return answer;
    }
    let binding = json!({"metadata": {"name": name}, "spec": binding});
    send(client, "POST", &format!("{GROUP}/{plural}admissionpolicybindings"), &binding).await
}

#[tokio::test]
async fn a_policy_denies_warns_and_ends_with_its_binding() {
    let server = start(Server::builder().controllers(false)).await;
    let client = admin(&server);
    let spec = json!({"validations": [{"expression": "object == null || object.data.k != 'bad'",
        "messageExpression": "object.metadata.name + ' is bad'", "reason": "Forbidden"}]});
    let made = make(&client, "validating", "a", spec.clone(), json!({"validationActions": ["Deny"]})).await;
    assert_eq!(made.code, 201, "{made:?}");
    let made = make(&client, "validating", "b", spec, json!({"validationActions": ["Warn"]})).await;
    assert_eq!(made.code, 201, "{made:?}");

    let denied = send(&client, "POST", MAPS, &config_map("m", "bad")).await;
    let message = r#"configmaps "m" is forbidden: ValidatingAdmissionPolicy 'a' with binding 'a' denied request: m is bad"#;
    assert_eq!((denied.code, denied.body["message"].as_str()), (403, Some(message)));
    assert_eq!(send(&client, "POST", MAPS, &config_map("m", "good")).await.code, 201);
    // An update and a deletion are judged as well.
    let patch = json!({"data": {"k": "bad"}});
    assert_eq!(send(&client, "PATCH", &format!("{MAPS}/m"), &patch).await.code, 403);

    let binding = format!("{GROUP}/validatingadmissionpolicybindings/a");
    assert_eq!(send(&client, "DELETE", &binding, &Value::Null).await.code, 200);
    let changed = send(&client, "PATCH", &format!("{MAPS}/m"), &patch).await;
    let warning = "Validation failed for ValidatingAdmissionPolicy 'b' with binding 'b': m is bad";
    assert_eq!((changed.code, changed.warnings.as_slice()), (200, &[warning.to_owned()][..]));
    assert_eq!(send(&client, "DELETE", &format!("{MAPS}/m"), &Value::Null).await.code, 200);
}

#[tokio::test]
async fn a_policy_that_cannot_be_evaluated_denies_unless_it_ignores_failures() {
    let server = start(Server::builder().controllers(false)).await;
    let client = admin(&server);
    let deny = || json!({"validationActions": ["Deny"]});
    let failing = |policy: &str| json!({"failurePolicy": policy, "validations": [{"expression": "object.data.x == ''"}]});
    assert_eq!(make(&client, "validating", "ignored", failing("Ignore"), deny()).await.code, 201);
    assert_eq!(send(&client, "POST", MAPS, &config_map("m", "v")).await.code, 201);
    for (name, spec) in [
        ("fails", failing("Fail")),
        // Each step is charged, and no operator turns exhaustion into a yes.
        (
            "costs",
            json!({"validations": [{"expression": format!("['{}']{}.size() > 0 || true", "x".repeat(100), ".map(v, v + v)".repeat(30))}]}),
        ),
        (
            "condition",
            json!({"matchConditions": [{"name": "c", "expression": "object.data.x == ''"}], "validations": [{"expression": "true"}]}),
        ),
        (
            "params",
            json!({"paramKind": {"apiVersion": "example.com/v1", "kind": "Missing"}, "validations": [{"expression": "true"}]}),
        ),
    ] {
        let mut binding = deny();
        if name == "params" {
            binding["paramRef"] = json!({"name": "p", "parameterNotFoundAction": "Allow"});
        }
        assert_eq!(make(&client, "validating", name, spec, binding).await.code, 201, "{name}");
        let denied = send(&client, "POST", &format!("{MAPS}?dryRun=All"), &config_map("n", "v")).await;
        assert_eq!(denied.code, 422, "{name}: {denied:?}");
        // What decides about admission stays editable.
        let policy = format!("{GROUP}/validatingadmissionpolicies/{name}");
        assert_eq!(send(&client, "DELETE", &policy, &Value::Null).await.code, 200);
        assert_eq!(
            send(&client, "POST", &format!("{MAPS}?dryRun=All"), &config_map("n", "v")).await.code,
            201,
            "{name}"
        );
    }
}

#[tokio::test]
async fn a_policy_changes_objects_before_they_are_judged() {
    let server = start(Server::builder().controllers(false)).await;
    let client = admin(&server);
    let spec = json!({"reinvocationPolicy": "IfNeeded", "mutations": [
        {"patchType": "JSONPatch", "jsonPatch": {"expression":
            "has(object.data) && 'c' in object.data ? [] : [JSONPatch{op: 'add', path: '/data/c', value: 'd'}]"}},
        {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression":
            "Object{metadata: Object.metadata{labels: {'c': object.data.c}}}"}}]});
    assert_eq!(make(&client, "mutating", "m", spec, json!({})).await.code, 201);
    let judge = json!({"validations": [{"expression": "object == null || object.data.c == object.metadata.labels.c"}]});
    assert_eq!(
        make(&client, "validating", "v", judge, json!({"validationActions": ["Deny"]})).await.code,
        201
    );
    let made = send(&client, "POST", MAPS, &config_map("m", "v")).await;
    assert_eq!((made.code, &made.body["data"]), (201, &json!({"k": "v", "c": "d"})), "{made:?}");
    assert_eq!(get(&client, &format!("{MAPS}/m")).await.body["metadata"]["labels"], json!({"c": "d"}));
    // Lists and structures that are applied as a whole cannot be merged.
    let spec = json!({"reinvocationPolicy": "Never", "mutations": [{"patchType": "ApplyConfiguration",
        "applyConfiguration": {"expression": "Object{metadata: Object.metadata{finalizers: ['a.b/c']}}"}}]});
    assert_eq!(make(&client, "mutating", "n", spec, json!({})).await.code, 201);
    assert_eq!(send(&client, "POST", MAPS, &config_map("n", "v")).await.code, 201);
}

#[tokio::test]
async fn a_policy_that_cannot_be_compiled_is_rejected_when_it_is_written() {
    let server = start(Server::builder().controllers(false)).await;
    let client = admin(&server);
    for (case, expression, expected) in [
        ("unknown name", "nothing == 1", "undeclared reference to 'nothing'"),
        ("unknown variable", "variables.b == 1", "undefined field 'b'"),
        ("a later variable", "variables.a == variables.c", "undefined field 'c'"),
        ("an object", "Object{} == Object{}", "undeclared reference to 'Object'"),
    ] {
        let spec = json!({"variables": [{"name": "a", "expression": "1"}], "validations": [{"expression": expression}]});
        let rejected = make(&client, "validating", "p", spec, json!({})).await;
        let message = rejected.body["message"].as_str().unwrap_or_default();
        assert!(rejected.code == 422 && message.contains(expected), "{case}: {rejected:?}");
    }
    let later = json!({"variables": [{"name": "a", "expression": "variables.b"}, {"name": "b", "expression": "1"}],
        "validations": [{"expression": "true"}]});
    assert_eq!(make(&client, "validating", "p", later, json!({})).await.code, 422);
    let reserved = make(
        &client,
        "validating",
        "p.static.k8s.io",
        json!({"validations": [{"expression": "true"}]}),
        json!({}),
    )
    .await;
    assert_eq!(reserved.code, 422, "{reserved:?}");
}
