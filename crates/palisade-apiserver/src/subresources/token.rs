//! Issues a service-account token: `serviceaccounts/token`.
//!
//! Implements: TokenRequest API.
//! <https://kubernetes.io/docs/reference/kubernetes-api/authentication-resources/token-request-v1/>

use std::sync::Arc;

use palisade_apimachinery::apply::Manager;
use palisade_apimachinery::status::GroupName;
use palisade_apimachinery::{Status, kinds, rest};
use palisade_base::field_error::FieldError;
use serde_json::{Map, Value, json};

use crate::api::Call;
use crate::auth::token::{BoundObject, Claims, ISSUER, Private};
use crate::http::Reply;
use crate::meta;
use crate::options::WriteOptions;
use crate::registry::Entry;
use crate::storage::Object;
use crate::verbs::get;
use crate::verbs::write::Writer;

const KIND: GroupName<'static> = GroupName::new("authentication.k8s.io", "TokenRequest");
/// Upstream's limits.
const SHORTEST: i64 = 600;
const LONGEST: i64 = 1 << 32;
const DEFAULT: i64 = 3600;

/// Answers with the request and the token in its status.
pub(super) fn create(call: &Call<'_>, entry: &Arc<Entry>) -> Result<Reply, Box<Status>> {
    let options = WriteOptions::parse(call.query, "CreateOptions", call.api.version, false)?;
    let mut writer = Writer::new(call, entry, "token", options);
    let mut request = read(&mut writer)?;
    own_fields(&mut request, &writer.manager());
    let account = get::find(call, entry)?;
    let seconds = request.pointer("/spec/expirationSeconds").and_then(Value::as_i64).unwrap_or(DEFAULT);
    let field = "spec.expirationSeconds";
    let problem = if seconds < SHORTEST {
        Some(FieldError::invalid(field, seconds, "may not specify a duration less than 10 minutes"))
    } else if seconds > LONGEST {
        Some(FieldError::invalid(field, seconds, "may not specify a duration larger than 2^32 seconds"))
    } else {
        None
    };
    if let Some(problem) = problem {
        return Err(Status::invalid(KIND, "", &[problem], call.api.version));
    }
    let audiences = request.pointer("/spec/audiences").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut audiences: Vec<String> = audiences.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    if audiences.is_empty() {
        audiences.push(ISSUER.to_owned());
    }
    writer.admit_token(&request)?;
    let (pod, secret) = bound_objects(call, &request)?;
    let now = meta::unix_now();
    let claims = Claims {
        aud: audiences.clone(),
        exp: now.saturating_add(seconds),
        iat: now,
        iss: ISSUER.to_owned(),
        jti: meta::new_uid(),
        private: Private {
            namespace: account.namespace().to_owned(),
            node: pod.as_ref().and_then(|pod| node_of(call, account.namespace(), &pod.name)),
            pod,
            secret,
            serviceaccount: BoundObject { name: account.name().to_owned(), uid: account.uid().to_owned() },
        },
        nbf: now,
        sub: format!("system:serviceaccount:{}:{}", account.namespace(), account.name()),
    };
    let token = call.api.authenticator.key.sign(&claims).map_err(|e| Status::internal(e.to_string()))?;
    complete(&mut request, &account, &audiences, seconds);
    if let Value::Object(request) = &mut request {
        let expiry = meta::time_after(&meta::now(), seconds);
        request.insert("status".to_owned(), json!({"token": token, "expirationTimestamp": expiry}));
    }
    let mut reply = super::document(call, 201, &request);
    writer.annotate(&mut reply);
    Ok(reply)
}

/// The request in the body.
fn read(writer: &mut Writer<'_>) -> Result<Value, Box<Status>> {
    let info = writer.call.info;
    let kind = kinds::token_request_kind(writer.call.api.version);
    let mut request = writer.decode(&kind)?;
    rest::ensure_namespace(&kind, &mut request, &info.namespace)?;
    let request = kind.read(request).map_err(|error| error.into_status(&kind, &info.name))?;
    let name = meta::meta_text(&request, "name");
    if !name.is_empty() && name != info.name {
        let why = "must match the service account name if specified";
        let problem = FieldError::invalid("metadata.name", name, why);
        return Err(Status::invalid(KIND, &info.name, &[problem], kind.emulated));
    }
    let mut request = request.into_value();
    // What is unset was not requested: the answer names it, the owner of fields does not.
    if let Some(spec) = request.get_mut("spec").and_then(Value::as_object_mut) {
        spec.retain(|_, value| !value.is_null());
    }
    if let Some(request) = request.as_object_mut() {
        request.remove("status");
    }
    Ok(request)
}

/// The fields a client set belong to it, and so does the expiry it left to the default.
fn own_fields(request: &mut Value, manager: &Manager<'_>) {
    let Some(request) = request.as_object_mut() else { return };
    request.insert("apiVersion".to_owned(), "authentication.k8s.io/v1".into());
    request.insert("kind".to_owned(), KIND.name.into());
    let spec = request.entry("spec").or_insert_with(|| json!({}));
    let Some(spec) = spec.as_object_mut() else { return };
    spec.entry("expirationSeconds").or_insert_with(|| DEFAULT.into());
    let mut owned = Map::new();
    for (field, value) in spec.iter().filter(|(_, value)| !value.is_null()) {
        let inner = match value {
            Value::Object(reference) => {
                let inner = reference.keys().map(|key| (format!("f:{key}"), json!({})));
                inner.chain([(".".to_owned(), json!({}))]).collect::<Map<_, _>>().into()
            }
            _ => json!({}),
        };
        owned.insert(format!("f:{field}"), inner);
    }
    let entry = json!({
        "manager": if manager.name.is_empty() { "unknown" } else { manager.name },
        "operation": "Update",
        "apiVersion": "authentication.k8s.io/v1",
        "time": manager.now,
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": owned},
        "subresource": "token",
    });
    request.insert("metadata".to_owned(), json!({"managedFields": [entry]}));
}

fn complete(request: &mut Value, account: &Object, audiences: &[String], seconds: i64) {
    meta::edit_metadata(request, |metadata| {
        metadata.insert("name".to_owned(), account.name().into());
        metadata.insert("namespace".to_owned(), account.namespace().into());
        metadata.insert("uid".to_owned(), meta::new_uid().into());
        metadata.insert("creationTimestamp".to_owned(), meta::now().into());
    });
    if let Some(spec) = request.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("audiences".to_owned(), json!(audiences));
        spec.insert("expirationSeconds".to_owned(), seconds.into());
        spec.entry("boundObjectRef").or_insert(Value::Null);
    }
}

/// The node that the pod of a token runs on, if it has one yet.
fn node_of(call: &Call<'_>, namespace: &str, pod: &str) -> Option<BoundObject> {
    if !call.api.version.at_least(30) {
        return None;
    }
    let pod = call.api.store.bucket("pods").get(&meta::key(true, namespace, pod))?.parse();
    let name = pod.get("spec")?.get("nodeName")?.as_str().filter(|name| !name.is_empty())?.to_owned();
    let uid = call.api.store.bucket("nodes").get(&name).map(|node| node.uid().to_owned());
    Some(BoundObject { uid: uid.unwrap_or_default(), name })
}

/// The pod or secret the token is to die with.
fn bound_objects(
    call: &Call<'_>,
    request: &Value,
) -> Result<(Option<BoundObject>, Option<BoundObject>), Box<Status>> {
    let Some(reference) = request.pointer("/spec/boundObjectRef").filter(|r| r.is_object()) else {
        return Ok((None, None));
    };
    let text = |key: &str| reference.get(key).and_then(Value::as_str).unwrap_or_default();
    let resource = match (text("kind"), text("apiVersion")) {
        ("Pod", "v1" | "") => "pods",
        ("Secret", "v1" | "") => "secrets",
        (kind, api_version) => {
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            let why = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
            return Err(Status::bad_request(why));
        }
    };
    let name = text("name");
    if name.is_empty() {
        return Err(Status::bad_request("Name parameter required."));
    }
    let found = call.api.store.bucket(resource).get(&meta::key(true, &call.info.namespace, name));
    let found = found.ok_or_else(|| Status::not_found(GroupName::new("", resource), name))?;
    let uid = text("uid");
    if !uid.is_empty() && uid != found.uid() {
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been \
             deleted and then recreated"
        );
        return Err(Status::conflict(GroupName::new("", text("kind")), name, &why));
    }
    if resource == "pods" {
        let pod = Value::Object(found.parse());
        let runs_as = pod.pointer("/spec/serviceAccountName").and_then(Value::as_str).unwrap_or_default();
        if runs_as != call.info.name {
            return Err(Status::bad_request(format!(
                "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
                call.info.name
            )));
        }
    }
    let bound = Some(BoundObject { name: name.to_owned(), uid: found.uid().to_owned() });
    Ok(if resource == "pods" { (bound, None) } else { (None, bound) })
}
