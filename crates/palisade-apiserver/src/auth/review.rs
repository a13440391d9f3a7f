//! Access reviews: SubjectAccessReview and its relatives, TokenReview, SelfSubjectReview.
//!
//! Implements: Authorization Overview, "Checking API access", and Authenticating, "API access to authentication
//! information for a client". <https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access>

use palisade_apimachinery::{Status, apply};
use palisade_base::field_error::BadValue;
use palisade_base::field_error::FieldError;
use serde_json::{Map, Value, json};

use super::UserInfo;
use super::rbac::{AccessDecision, Attributes};
use crate::api::Call;
use crate::http::Reply;
use crate::meta;
use crate::options::WriteOptions;
use crate::registry::Entry;
use crate::render;
use crate::verbs::write::Writer;

/// Whether objects of this resource are questions.
#[must_use]
pub fn is_review(entry: &Entry) -> bool {
    matches!(entry.kind.group.as_str(), "authorization.k8s.io" | "authentication.k8s.io")
        && entry.kind.plural.ends_with("reviews")
}

/// Answers a question.
pub fn create(call: &Call<'_>, entry: &std::sync::Arc<Entry>) -> Result<Reply, Box<Status>> {
    let output = render::output(call, entry)?;
    let options = WriteOptions::parse(call.query, "CreateOptions", call.api.version, false)?;
    let mut writer = Writer::new(call, entry, "", options);
    let mut object = writer.decode(&entry.kind)?;
    writer.check_namespace(&mut object)?;
    entry.kind.default(&mut object)?;
    apply::on_update(&entry.kind, None, &mut object, &writer.manager());
    if entry.kind.group == "authorization.k8s.io" && entry.kind.kind != "SelfSubjectRulesReview" {
        check_metadata(call, entry, &object)?;
    }
    let review = match entry.kind.kind.as_str() {
        "SelfSubjectAccessReview" => {
            let decision = decide(call, call.user, &object, entry)?;
            with_status(object, access_status(&decision))
        }
        "SubjectAccessReview" | "LocalSubjectAccessReview" => {
            let user = reviewed_user(call, &object, entry)?;
            let decision = decide(call, &user, &object, entry)?;
            with_status(object, access_status(&decision))
        }
        "SelfSubjectRulesReview" => rules_review(call, entry, &object)?,
        "TokenReview" => {
            if object.pointer("/spec/token").and_then(Value::as_str).unwrap_or_default().is_empty() {
                return Err(Status::bad_request("token is required for TokenReview in authentication"));
            }
            token_review(call, object)
        }
        _ => {
            let metadata = json!({"creationTimestamp": meta::now()});
            entry.typed(Map::from_iter([
                ("metadata".to_owned(), metadata),
                ("status".to_owned(), json!({"userInfo": call.user.to_value()})),
            ]))
        }
    };
    let mut reply = render::value(201, entry, &review, output, call.query);
    writer.annotate(&mut reply);
    Ok(reply)
}

/// A review is not stored: metadata that would only be dropped is rejected.
fn check_metadata(call: &Call<'_>, entry: &Entry, object: &Value) -> Result<(), Box<Status>> {
    let metadata = object.get("metadata").cloned().unwrap_or_default();
    let fields = metadata.as_object().into_iter().flatten();
    let mut named = fields.filter(|(name, value)| {
        !(name.as_str() == "managedFields"
            || name.as_str() == "creationTimestamp" && value.is_null()
            || name.as_str() == "namespace" && entry.kind.namespaced)
    });
    if named.next().is_none() {
        return Ok(());
    }
    let why = if entry.kind.namespaced { "must be empty except for namespace" } else { "must be empty" };
    let shown = BadValue::Plain(metadata.to_string());
    Err(invalid(call, entry, &[FieldError::invalid("metadata", shown, why)]))
}

fn with_status(mut object: Value, status: Value) -> Value {
    if let Value::Object(object) = &mut object {
        object.insert("status".to_owned(), status);
    }
    object
}

fn access_status(decision: &AccessDecision) -> Value {
    let mut status = json!({"allowed": decision.allowed});
    if let (false, Value::Object(status)) = (decision.reason.is_empty(), &mut status) {
        status.insert("reason".to_owned(), decision.reason.as_str().into());
    }
    status
}

fn invalid(call: &Call<'_>, entry: &Entry, errors: &[FieldError]) -> Box<Status> {
    Status::invalid(entry.kind.kind_name(), "", errors, call.api.version)
}

fn decide(
    call: &Call<'_>,
    user: &UserInfo,
    object: &Value,
    entry: &Entry,
) -> Result<AccessDecision, Box<Status>> {
    let text =
        |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let resource = object.pointer("/spec/resourceAttributes").filter(|a| a.is_object());
    let path = object.pointer("/spec/nonResourceAttributes").filter(|a| a.is_object());
    match (resource, path) {
        (Some(_), Some(path)) => {
            let detail = "cannot be specified in combination with resourceAttributes";
            // Upstream shows its internal type.
            let (at, verb) = (Value::from(text(path, "path")), Value::from(text(path, "verb")));
            let shown = BadValue::Plain(format!("{{\"Path\":{at},\"Verb\":{verb}}}"));
            Err(invalid(call, entry, &[FieldError::invalid("spec.nonResourceAttributes", shown, detail)]))
        }
        (None, None) => {
            let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            Err(invalid(call, entry, &[FieldError::invalid("spec.resourceAttributes", &Value::Null, detail)]))
        }
        (Some(resource), None) => {
            let [verb, group, version, plural, subresource, namespace, name] =
                ["verb", "group", "version", "resource", "subresource", "namespace", "name"]
                    .map(|k| text(resource, k));
            let attributes = Attributes {
                verb: &verb,
                group: &group,
                version: &version,
                resource: &plural,
                subresource: &subresource,
                namespace: &namespace,
                name: &name,
                path: "",
                node: "",
            };
            Ok(call.api.authorizer.authorize(user, &attributes))
        }
        (None, Some(path)) => {
            let (verb, path) = (text(path, "verb"), text(path, "path"));
            let attributes = Attributes { verb: &verb, path: &path, ..Attributes::default() };
            Ok(call.api.authorizer.authorize(user, &attributes))
        }
    }
}

fn reviewed_user(call: &Call<'_>, object: &Value, entry: &Entry) -> Result<UserInfo, Box<Status>> {
    let spec = object.get("spec").cloned().unwrap_or_default();
    let list = |value: Option<&Value>| -> Vec<String> {
        let items = value.and_then(Value::as_array);
        items.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let user = UserInfo {
        name: spec.get("user").and_then(Value::as_str).unwrap_or_default().to_owned(),
        uid: spec.get("uid").and_then(Value::as_str).unwrap_or_default().to_owned(),
        groups: list(spec.get("groups")),
        ..UserInfo::default()
    };
    if user.name.is_empty() && user.groups.is_empty() {
        let detail = "at least one of user or group must be specified";
        return Err(invalid(call, entry, &[FieldError::invalid("spec.user", "", detail)]));
    }
    if entry.kind.kind == "LocalSubjectAccessReview" {
        let requested = object.pointer("/spec/resourceAttributes/namespace").and_then(Value::as_str);
        let requested = requested.unwrap_or_default();
        if requested != call.info.namespace {
            let detail = "must match metadata.namespace";
            return Err(invalid(
                call,
                entry,
                &[FieldError::invalid("spec.resourceAttributes.namespace", requested, detail)],
            ));
        }
    }
    Ok(user)
}

fn rules_review(call: &Call<'_>, entry: &Entry, object: &Value) -> Result<Value, Box<Status>> {
    let namespace = object.pointer("/spec/namespace").and_then(Value::as_str).unwrap_or_default();
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let (mut resources, mut paths) = (Vec::new(), Vec::new());
    for rule in call.api.authorizer.rules_for(call.user, namespace) {
        let rule_value = serde_json::to_value(&rule).unwrap_or_default();
        if rule.non_resource_urls.is_empty() {
            resources.push(rule_value);
        } else {
            paths.push(rule_value);
        }
    }
    Ok(entry.typed(Map::from_iter([
        ("metadata".to_owned(), json!({})),
        ("spec".to_owned(), json!({})),
        (
            "status".to_owned(),
            json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false}),
        ),
    ])))
}

fn token_review(call: &Call<'_>, object: Value) -> Value {
    let token = object.pointer("/spec/token").and_then(Value::as_str).unwrap_or_default();
    let audiences: Vec<String> = object
        .pointer("/spec/audiences")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    let wanted = (!audiences.is_empty()).then_some(audiences.as_slice());
    let status = match call.api.authenticator.user_of_token(token, wanted, meta::unix_now()) {
        Some((user, audiences)) => {
            json!({"authenticated": true, "user": user.to_value(), "audiences": audiences})
        }
        None => {
            json!({"user": {}, "error": "[invalid bearer token, service account token has been invalidated]"})
        }
    };
    with_status(object, status)
}
