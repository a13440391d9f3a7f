//! Configurations of admission webhooks.
//!
//! Implements: `pkg/apis/admissionregistration` and the webhook parts of `k8s.io/apiserver/pkg/util/webhook`.
//! Leaves to others: the CEL expressions of match conditions, and calling webhooks.

use palisade_base::field_error::{BadValue, FieldError};
use palisade_base::field_path::Path;
use serde_json::{Map, Value};

use super::pod::spec_selector;
use super::{Strategy, bump_generation, no_reset, set_default, set_generation};
use crate::rest::meta::{self, NameRule};
use crate::rest::names;
use crate::rest::path::{Errors, Get};
use crate::scheme::Kind;

/// Upstream's versions of `AdmissionReview` and `ConversionReview`, for its messages.
pub(crate) const REVIEW_VERSIONS: &[&str] = &["v1", "v1beta1"];
const MAX_CONDITIONS: usize = 64;

pub(crate) static CONFIGURATION: Strategy = Strategy {
    default: |object, _| {
        let mutating = object.text("kind") == "MutatingWebhookConfiguration";
        for webhook in object.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten() {
            set_default(webhook, "failurePolicy", "Fail");
            set_default(webhook, "matchPolicy", "Equivalent");
            set_default(webhook, "namespaceSelector", Value::Object(Map::new()));
            set_default(webhook, "objectSelector", Value::Object(Map::new()));
            set_default(webhook, "timeoutSeconds", 10);
            if mutating {
                set_default(webhook, "reinvocationPolicy", "Never");
            }
            for rule in webhook.get_mut("rules").and_then(Value::as_array_mut).into_iter().flatten() {
                set_default(rule, "scope", "*");
            }
            if let Some(service) = webhook.pointer_mut("/clientConfig/service").filter(|s| s.is_object()) {
                set_default(service, "port", 443);
            }
        }
    },
    prepare_create: |object, _| set_generation(object),
    prepare_update: |new, old, _, _| {
        let changed = new.get("webhooks") != old.get("webhooks");
        bump_generation(new, old, changed);
    },
    validate,
    validate_update: |new, old, _, kind, errors| {
        meta::validate_update(new, old, errors);
        validate(new, kind, errors);
    },
    reset_fields: no_reset,
};

fn validate(object: &Value, _: &Kind, errors: &mut Errors) {
    meta::validate(object, false, NameRule::Subdomain, errors);
    let list_at = Path::Root("webhooks");
    let mut seen: Vec<&str> = Vec::new();
    for (i, webhook) in object.list("webhooks").iter().enumerate() {
        let at = list_at.index(i);
        validate_webhook(webhook, &at, errors);
        validate_versions(webhook.list("admissionReviewVersions"), &at, errors);
        let name = webhook.text("name");
        if !name.is_empty() && seen.contains(&name) {
            errors.duplicate(&at.field("name"), name);
        }
        seen.push(name);
    }
}

fn validate_webhook(webhook: &Value, at: &Path<'_>, errors: &mut Errors) {
    validate_name(webhook.text("name"), &at.field("name"), errors);
    let rules_at = at.field("rules");
    for (i, rule) in webhook.list("rules").iter().enumerate() {
        validate_rule(rule, &rules_at.index(i), errors);
    }
    one_of(webhook, "failurePolicy", &["Fail", "Ignore"], at, errors);
    one_of(webhook, "matchPolicy", &["Equivalent", "Exact"], at, errors);
    if webhook.child("sideEffects").is_none() {
        errors.required(&at.field("sideEffects"), "must specify one of None, NoneOnDryRun");
    }
    one_of(webhook, "sideEffects", &["None", "NoneOnDryRun"], at, errors);
    if let Some(seconds) = webhook.int("timeoutSeconds").filter(|s| !(1..=30).contains(s)) {
        let rule = "the timeout value must be between 1 and 30 seconds";
        errors.invalid(&at.field("timeoutSeconds"), seconds, rule);
    }
    for field in ["namespaceSelector", "objectSelector"] {
        if let Some(selector) = webhook.child(field) {
            spec_selector(selector, &at.field(field), errors);
        }
    }
    one_of(webhook, "reinvocationPolicy", &["IfNeeded", "Never"], at, errors);
    let config_at = at.field("clientConfig");
    let config = webhook.get("clientConfig").unwrap_or(&Value::Null);
    match (config.child("url").and_then(Value::as_str), config.child("service")) {
        (Some(url), None) => validate_url(url, &config_at.field("url"), errors),
        (None, Some(service)) => validate_service(service, &config_at.field("service"), errors),
        _ => errors.required(&config_at, "exactly one of url or service is required"),
    }
    validate_conditions(webhook.list("matchConditions"), &at.field("matchConditions"), errors);
}

pub(super) fn one_of(webhook: &Value, field: &str, supported: &[&str], at: &Path<'_>, errors: &mut Errors) {
    let given = webhook.child(field).and_then(Value::as_str);
    if let Some(given) = given.filter(|given| !supported.contains(given)) {
        errors.not_supported(&at.field(field), given, supported);
    }
}

fn validate_name(name: &str, at: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.required(at, "");
        return;
    }
    let messages = names::dns1123_subdomain(name);
    if !messages.is_empty() {
        errors.invalid(at, name, messages.join(","));
    } else if name.split('.').count() < 3 {
        errors.invalid(at, name, "should be a domain with at least three segments separated by dots");
    }
}

fn validate_versions(versions: &[Value], at: &Path<'_>, errors: &mut Errors) {
    let list_at = at.field("admissionReviewVersions");
    if versions.is_empty() {
        errors.required(&list_at, format!("must specify one of {}", REVIEW_VERSIONS.join(", ")));
        return;
    }
    recognized_versions(versions, &list_at, errors);
}

/// Checks versions of a review, which are the same for all reviews.
pub(super) fn recognized_versions(versions: &[Value], list_at: &Path<'_>, errors: &mut Errors) {
    for (i, version) in versions.iter().enumerate() {
        let text = version.as_str().unwrap_or_default();
        if versions[..i].contains(version) {
            errors.invalid(&list_at.index(i), text, "duplicate version");
        } else {
            errors.format(&list_at.index(i), text, names::dns1035_label(text));
        }
    }
    if !versions.iter().filter_map(Value::as_str).any(|v| REVIEW_VERSIONS.contains(&v)) {
        let rule = format!("must include at least one of {}", REVIEW_VERSIONS.join(", "));
        errors.invalid(list_at, BadValue::Json(Value::Array(versions.to_vec())), rule);
    }
}

pub(super) fn validate_rule(rule: &Value, at: &Path<'_>, errors: &mut Errors) {
    const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    for (field, things) in
        [("operations", "operations"), ("apiGroups", "API groups"), ("apiVersions", "API versions")]
    {
        let list = rule.list(field);
        let at = at.field(field);
        if list.is_empty() {
            errors.required(&at, "");
        }
        if list.len() > 1 && list.iter().any(|item| item == "*") {
            let shown = BadValue::Json(Value::Array(list.to_vec()));
            errors.invalid(&at, shown, format!("if '*' is present, must not specify other {things}"));
        }
        for (i, item) in list.iter().enumerate() {
            let text = item.as_str().unwrap_or_default();
            match field {
                "operations" if !OPERATIONS.contains(&text) => {
                    errors.not_supported(&at.index(i), text, OPERATIONS);
                }
                "apiVersions" if text.is_empty() => errors.required(&at.index(i), ""),
                _ => {}
            }
        }
    }
    validate_resources(rule.list("resources"), &at.field("resources"), errors);
    one_of(rule, "scope", &["*", "Cluster", "Namespaced"], at, errors);
}

fn validate_resources(resources: &[Value], at: &Path<'_>, errors: &mut Errors) {
    if resources.is_empty() {
        errors.required(at, "");
    }
    let (mut all_of, mut of_all): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    // Upstream remembers only the last entry without a subresource.
    let mut plain = false;
    for (i, resource) in resources.iter().enumerate() {
        let text = resource.as_str().unwrap_or_default();
        let at = at.index(i);
        if text.is_empty() {
            errors.required(&at, "");
            continue;
        }
        let Some((name, sub)) = text.split_once('/') else {
            plain = text != "*";
            continue;
        };
        if all_of.contains(&name) {
            errors.invalid(&at, text, format!("if '{name}/*' is present, must not specify {text}"));
        }
        if of_all.contains(&sub) {
            errors.invalid(&at, text, format!("if '*/{sub}' is present, must not specify {text}"));
        }
        if sub == "*" {
            all_of.push(name);
        }
        if name == "*" {
            of_all.push(sub);
        }
    }
    let has = |wanted: &str| resources.iter().any(|r| r == wanted);
    let shown = || BadValue::Json(Value::Array(resources.to_vec()));
    if resources.len() > 1 && has("*/*") {
        errors.invalid(at, shown(), "if '*/*' is present, must not specify other resources");
    }
    if has("*") && plain {
        let rule = "if '*' is present, must not specify other resources without subresources";
        errors.invalid(at, shown(), rule);
    }
}

pub(super) fn validate_url(url: &str, at: &Path<'_>, errors: &mut Errors) {
    const FORM: &str = "; desired format: https://host[/path]";
    let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (scheme, rest) = match rest.split_once("://") {
        Some((scheme, rest)) => (scheme, rest),
        None => ("", ""),
    };
    let authority = rest.split('/').next().unwrap_or_default();
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    if scheme != "https" {
        errors.invalid(at, scheme, format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if host.is_empty() {
        errors.invalid(at, host, format!("host must be specified{FORM}"));
    }
    if let Some(user) = user {
        errors.invalid(at, user, "user information is not permitted in the URL");
    }
    if !fragment.is_empty() {
        errors.invalid(at, fragment, "fragments are not permitted in the URL");
    }
    if !query.is_empty() {
        errors.invalid(at, query, "query parameters are not permitted in the URL");
    }
}

pub(super) fn validate_service(service: &Value, at: &Path<'_>, errors: &mut Errors) {
    if service.text("name").is_empty() {
        errors.required(&at.field("name"), "");
    }
    if service.text("namespace").is_empty() {
        errors.required(&at.field("namespace"), "");
    }
    let port = service.int("port").unwrap_or_default();
    let messages = names::port_number(port);
    if !messages.is_empty() {
        errors.invalid(&at.field("port"), port, format!("port is not valid: {}", messages.join(", ")));
    }
    let path = service.text("path");
    let at = at.field("path");
    if path.is_empty() || path == "/" {
        return;
    }
    if path == "//" {
        errors.invalid(&at, path, "segment[0] may not be empty");
        return;
    }
    if !path.starts_with('/') {
        errors.invalid(&at, path, "must start with a '/'");
    }
    let mut inside = path.chars();
    inside.next();
    let inside = inside.as_str();
    for (i, step) in inside.strip_suffix('/').unwrap_or(inside).split('/').enumerate() {
        if step.is_empty() {
            errors.invalid(&at, path, format!("segment[{i}] may not be empty"));
            continue;
        }
        for message in names::dns1123_subdomain(step) {
            errors.invalid(&at, path, format!("segment[{i}]: {message}"));
        }
    }
}

pub(super) fn validate_conditions(conditions: &[Value], at: &Path<'_>, errors: &mut Errors) {
    if conditions.len() > MAX_CONDITIONS {
        errors.list.push(FieldError::too_many(at, conditions.len(), MAX_CONDITIONS));
    }
    for (i, condition) in conditions.iter().enumerate() {
        let at = at.index(i);
        if condition.text("expression").trim().is_empty() {
            errors.required(&at.field("expression"), "");
        }
        let name = condition.text("name");
        let name_at = at.field("name");
        if name.is_empty() {
            errors.required(&name_at, "");
        } else {
            let messages = names::qualified_name(name, errors.version);
            errors.format(&name_at, name, messages);
            if conditions[..i].iter().any(|other| other.text("name") == name) {
                errors.duplicate(&name_at, name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use palisade_base::version::KubeVersion;

    fn problems(change: &Value) -> Vec<String> {
        let mut webhook = json!({
            "name": "a.b.c",
            "clientConfig": {"url": "https://h/p"},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        });
        for (key, value) in change.as_object().into_iter().flatten() {
            webhook[key] = value.clone();
        }
        let mut errors = Errors::new(KubeVersion::LATEST);
        let at = Path::Root("w");
        validate_webhook(&webhook, &at, &mut errors);
        validate_versions(webhook.list("admissionReviewVersions"), &at, &mut errors);
        errors.list.iter().map(|e| format!("{}: {}", e.field(), e.body(KubeVersion::LATEST))).collect()
    }

    #[test]
    fn each_rule_has_upstreams_text() {
        let rule = |change: Value| {
            let mut rule =
                json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]});
            for (key, value) in change.as_object().into_iter().flatten() {
                rule[key] = value.clone();
            }
            json!({"rules": [rule]})
        };
        for (change, expected) in [
            (json!({}), vec![]),
            (
                json!({"name": "a"}),
                vec![
                    "w.name: Invalid value: \"a\": should be a domain with at least three segments separated by dots",
                ],
            ),
            (
                json!({"clientConfig": {"url": "http://u@h?q=1#f"}}),
                vec![
                    "w.clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]",
                    "w.clientConfig.url: Invalid value: \"u\": user information is not permitted in the URL",
                    "w.clientConfig.url: Invalid value: \"f\": fragments are not permitted in the URL",
                    "w.clientConfig.url: Invalid value: \"q=1\": query parameters are not permitted in the URL",
                ],
            ),
            (
                json!({"clientConfig": {}}),
                vec!["w.clientConfig: Required value: exactly one of url or service is required"],
            ),
            (
                json!({"clientConfig": {"service": {"name": "s", "port": 0, "path": "a"}}}),
                vec![
                    "w.clientConfig.service.namespace: Required value",
                    "w.clientConfig.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive",
                    "w.clientConfig.service.path: Invalid value: \"a\": must start with a '/'",
                    "w.clientConfig.service.path: Invalid value: \"a\": segment[0] may not be empty",
                ],
            ),
            (
                rule(json!({"operations": ["*", "NOPE"]})),
                vec![
                    "w.rules[0].operations: Invalid value: [\"*\",\"NOPE\"]: if '*' is present, must not specify other operations",
                    "w.rules[0].operations[1]: Unsupported value: \"NOPE\": supported values: \"*\", \"CONNECT\", \"CREATE\", \"DELETE\", \"UPDATE\"",
                ],
            ),
            (
                rule(json!({"resources": ["pods/*", "pods/x", "*", "a"]})),
                vec![
                    "w.rules[0].resources[1]: Invalid value: \"pods/x\": if 'pods/*' is present, must not specify pods/x",
                    "w.rules[0].resources: Invalid value: [\"pods/*\",\"pods/x\",\"*\",\"a\"]: if '*' is present, must not specify other resources without subresources",
                ],
            ),
            (
                json!({"admissionReviewVersions": ["v2", "v2"]}),
                vec![
                    "w.admissionReviewVersions[1]: Invalid value: \"v2\": duplicate version",
                    "w.admissionReviewVersions: Invalid value: [\"v2\",\"v2\"]: must include at least one of v1, v1beta1",
                ],
            ),
            (
                json!({"sideEffects": "Some", "timeoutSeconds": 31, "failurePolicy": "No"}),
                vec![
                    "w.failurePolicy: Unsupported value: \"No\": supported values: \"Fail\", \"Ignore\"",
                    "w.sideEffects: Unsupported value: \"Some\": supported values: \"None\", \"NoneOnDryRun\"",
                    "w.timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
                ],
            ),
            (
                json!({"matchConditions": [{"name": "a", "expression": "true"}, {"name": "a", "expression": " "}]}),
                vec![
                    "w.matchConditions[1].expression: Required value",
                    "w.matchConditions[1].name: Duplicate value: \"a\"",
                ],
            ),
        ] {
            assert_eq!(problems(&change), expected, "{change}");
        }
    }
}
