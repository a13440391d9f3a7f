//! Requests of a page and the responses to them: the same rules as on the command line, and never a verdict by mistake.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests may fail as well")]

use palisade_browser::{
    exchange::{palisade_read, palisade_run, palisade_start, palisade_write},
    response,
};
use serde_json::{Value, json};

const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - name: web\n    image: nginx # kept\n";
const GOOD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: good}\nspec:\n  securityContext: {runAsNonRoot: true, runAsUser: 1000, seccompProfile: {type: RuntimeDefault}}\n  containers:\n  - name: web\n    image: nginx\n    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}\n";

fn ask(text: &str, changes: &Value) -> Value {
    let mut request = json!({"text": text, "level": "restricted", "policyVersion": "latest", "kubernetesVersion": "v1.37", "today": "2026-01-01"});
    for (key, value) in changes.as_object().unwrap() {
        request[key] = value.clone();
    }
    serde_json::from_str(&response(&request.to_string())).unwrap()
}

#[test]
fn only_a_text_of_allowed_objects_is_clean() {
    let spark = "apiVersion: sparkoperator.k8s.io/v1beta2\nkind: SparkApplication\nmetadata: {name: s}\nspec: {driver: {}, executor: {}}\n";
    for (case, text, level, expected) in [
        ("an allowed pod", GOOD, "restricted", "clean"),
        ("a denied pod", POD, "restricted", "findings"),
        ("the same at a lower level", POD, "baseline", "clean"),
        ("nothing", "", "restricted", "findings"),
        ("not an object", "a: 1", "restricted", "findings"),
        ("no pods", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", "restricted", "nothing"),
        ("not YAML", "a: [", "restricted", "findings"),
        ("an allowed pod, and what is not YAML", &format!("{GOOD}---\na: [\n"), "restricted", "findings"),
        ("a template", &format!("{GOOD}{{{{ end }}}}\n"), "restricted", "findings"),
        ("a kind that does not exist", &GOOD.replace("Pod", "Pud"), "restricted", "findings"),
        ("a part of which is unknown", spark, "baseline", "undecided"),
    ] {
        let response = ask(text, &json!({"level": level}));
        assert_eq!(response["outcome"], expected, "{case}: {response:#}");
    }
}

#[test]
fn a_request_that_cannot_be_read_has_no_verdict() {
    for (case, changes) in [
        ("level", json!({"level": "strict"})),
        ("version of the standards", json!({"policyVersion": "v1.99"})),
        ("release", json!({"kubernetesVersion": "v1.99"})),
        ("release without a number", json!({"kubernetesVersion": "newest"})),
        ("date", json!({"today": "tomorrow"})),
        ("fixes", json!({"fix": "some"})),
        ("another key", json!({"lvl": "restricted"})),
    ] {
        let response = ask(GOOD, &changes);
        assert!(response["error"].is_string() && response["outcome"].is_null(), "{case}: {response}");
    }
    let response: Value = serde_json::from_str(&response("{")).unwrap();
    assert!(response["error"].is_string());
}

#[test]
fn findings_have_places_reasons_and_verified_fixes() {
    let response = ask(POD, &json!({}));
    assert_eq!(
        response["objects"],
        json!([{"title": "Pod web", "verdict": "denied", "message": response["objects"][0]["message"]}])
    );
    assert_eq!(
        response["canFix"],
        json!({"safe": false, "all": true}),
        "alone, the safe fix would leave it refused"
    );
    let codes: Vec<&str> =
        response["findings"].as_array().unwrap().iter().map(|f| f["code"].as_str().unwrap()).collect();
    assert_eq!(
        codes,
        [
            "pss/runAsNonRoot",
            "pss/seccompProfile_restricted",
            "pss/allowPrivilegeEscalation",
            "pss/capabilities_restricted"
        ]
    );
    for finding in response["findings"].as_array().unwrap() {
        assert!(finding["line"].as_u64() > Some(0) && finding["endLine"].is_u64(), "{finding}");
        assert!(finding["because"].as_array().is_some_and(|reasons| !reasons.is_empty()), "{finding}");
    }
    let fixed = ask(POD, &json!({"fix": "all"}));
    assert_eq!(fixed["outcome"], "clean", "{fixed:#}");
    let text = fixed["fixed"].as_str().unwrap();
    assert!(text.contains("# kept") && text.contains("type: RuntimeDefault"), "{text}");
    let again = ask(text, &json!({"fix": "all"}));
    assert_eq!((&again["outcome"], &again["fixed"]), (&json!("clean"), &Value::Null));
}

#[test]
fn the_release_and_accepted_findings_apply() {
    let old = ask(POD, &json!({"policyVersion": "v1.18", "level": "restricted"}));
    assert_eq!(old["findings"].as_array().unwrap().len(), 2, "{old:#}");
    let annotated = POD.replace(
        "{name: web}\nspec",
        "{name: web, annotations: {palisade.dev/ignore: \"pss/*; reason=x; until=2026-06-30\"}}\nspec",
    );
    assert_eq!(ask(&annotated, &json!({}))["suppressed"], 4);
    assert_eq!(ask(&annotated, &json!({"today": "2026-07-01"}))["suppressed"], 0);
}

fn through(request: &[u8]) -> Vec<u8> {
    palisade_start();
    for chunk in request.chunks(4) {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        let count = u32::try_from(chunk.len()).unwrap();
        assert_eq!(palisade_write(u32::from_le_bytes(word), count), count);
    }
    let length = palisade_run() as usize;
    let words = (0..u32::try_from(length.div_ceil(4)).unwrap()).map(|at| palisade_read(at));
    let mut bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
    bytes.truncate(length);
    assert_eq!(palisade_read(u32::MAX), 0);
    bytes
}

/// One test: there is one exchange in a module.
#[test]
fn texts_cross_whole_and_bad_ones_get_no_verdict() {
    for text in ["", "é", "{\"text\": \"日本語\"}", "abcd", "abcde"] {
        assert_eq!(through(text.as_bytes()), response(text).into_bytes(), "{text}");
    }
    assert_eq!(through(&[0xff, 0xfe]), b"{\"error\":\"the request is not UTF-8\"}");
    palisade_start();
    let taken: usize = (0..=(16 << 20) / 4).map(|_| palisade_write(0x2020_2020, 4) as usize).sum();
    assert_eq!(taken, 16 << 20, "a request has an end");
}
