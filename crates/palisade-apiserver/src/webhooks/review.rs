//! The question and the answer: `AdmissionReview`.
//!
//! Implements: Dynamic Admission Control, "Request" and "Response", and what upstream checks in an answer.
//! <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#webhook-request-and-response>

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use palisade_apimachinery::status::{Cause, Details, Status};
use palisade_base::go;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The question.
#[derive(Debug, Serialize)]
pub(super) struct Review<'a> {
    pub(super) kind: &'static str,
    #[serde(rename = "apiVersion")]
    pub(super) api_version: String,
    pub(super) request: &'a Question<'a>,
}

/// `AdmissionRequest`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Question<'a> {
    pub(super) uid: String,
    pub(super) kind: GroupVersionKind<'a>,
    pub(super) resource: GroupVersionResource<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) sub_resource: &'a str,
    pub(super) request_kind: GroupVersionKind<'a>,
    pub(super) request_resource: GroupVersionResource<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) request_sub_resource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) namespace: &'a str,
    pub(super) operation: &'static str,
    pub(super) user_info: Value,
    pub(super) object: Option<Cow<'a, Value>>,
    pub(super) old_object: Option<Cow<'a, Value>>,
    pub(super) dry_run: bool,
    pub(super) options: &'a Value,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct GroupVersionKind<'a> {
    pub(super) group: &'a str,
    pub(super) version: &'a str,
    pub(super) kind: &'a str,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct GroupVersionResource<'a> {
    pub(super) group: &'a str,
    pub(super) version: &'a str,
    pub(super) resource: &'a str,
}

/// An answer that was checked.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) allowed: bool,
    pub(super) refusal: Refusal,
    /// A JSON patch; empty if there is none.
    pub(super) patch: Vec<u8>,
    pub(super) patch_type: String,
    pub(super) audit: Vec<(String, String)>,
    pub(super) warnings: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Reply {
    kind: String,
    api_version: String,
    response: Option<Response>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Response {
    uid: String,
    allowed: bool,
    status: Option<Refusal>,
    patch: Option<String>,
    patch_type: Option<String>,
    audit_annotations: Option<std::collections::BTreeMap<String, String>>,
    warnings: Option<Vec<String>>,
}

/// The `Status` of a no.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Refusal {
    message: String,
    reason: String,
    code: i64,
    details: Option<RefusalDetails>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RefusalDetails {
    name: String,
    group: String,
    kind: String,
    uid: String,
    causes: Vec<RefusalCause>,
    retry_after_seconds: u32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RefusalCause {
    reason: String,
    message: String,
    field: String,
}

/// Reads an answer; what is wrong with it is reported in upstream's words.
pub(super) fn read(body: &[u8], uid: &str, version: &str, mutating: bool) -> Result<Answer, Problem> {
    let reply: Reply = serde_json::from_slice(body).map_err(|error| {
        let problem = palisade_apimachinery::decode::syntax_error(body, &error.to_string());
        Problem::Unreadable(format!("couldn't get version/kind; json parse error: {problem}"))
    })?;
    let invalid = |why: String| Err(Problem::Invalid(why));
    let Some(response) = reply.response else { return invalid("webhook response was absent".to_owned()) };
    let strict = version == "v1";
    if strict && response.uid != uid {
        return invalid(format!(
            "expected response.uid={}, got {}",
            go::quote(uid),
            go::quote(&response.uid)
        ));
    }
    if strict && (reply.api_version != "admission.k8s.io/v1" || reply.kind != "AdmissionReview") {
        let (group, version) = reply.api_version.split_once('/').unwrap_or(("", &reply.api_version));
        return invalid(format!(
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {group}/{version}, Kind={}",
            reply.kind
        ));
    }
    let patch = response.patch.unwrap_or_default();
    let patch = STANDARD
        .decode(&patch)
        .map_err(|error| Problem::Unreadable(format!("illegal base64 data in response.patch: {error}")))?;
    if strict && mutating {
        match &response.patch_type {
            None if !patch.is_empty() => {
                return invalid("webhook returned response.patch but not response.patchType".to_owned());
            }
            Some(_) if patch.is_empty() => {
                return invalid("webhook returned response.patchType but not response.patch".to_owned());
            }
            Some(patch_type) if patch_type.is_empty() => {
                return invalid("webhook returned invalid response.patchType of \"\"".to_owned());
            }
            _ => {}
        }
    }
    if strict && !mutating && !patch.is_empty() {
        return invalid("validating webhook may not return response.patch".to_owned());
    }
    if strict && !mutating && response.patch_type.is_some() {
        return invalid("validating webhook may not return response.patchType".to_owned());
    }
    Ok(Answer {
        allowed: response.allowed,
        refusal: response.status.unwrap_or_default(),
        patch: if mutating { patch } else { Vec::new() },
        // The older version of the review has only one type.
        patch_type: if strict { response.patch_type.unwrap_or_default() } else { "JSONPatch".to_owned() },
        audit: response.audit_annotations.unwrap_or_default().into_iter().collect(),
        warnings: response.warnings.unwrap_or_default(),
    })
}

/// What is wrong with an answer.
#[derive(Debug)]
pub(super) enum Problem {
    /// It cannot be read at all.
    Unreadable(String),
    /// It contains what it may not contain.
    Invalid(String),
}

impl Refusal {
    /// The error that the client gets.
    pub(super) fn into_status(self, webhook: &str) -> Box<Status> {
        let denied = format!("admission webhook {} denied the request", go::quote(webhook));
        let message = match (self.message.as_str(), self.reason.as_str()) {
            ("", "") => format!("{denied} without explanation"),
            ("", reason) => format!("{denied}: {reason}"),
            (message, _) => format!("{denied}: {message}"),
        };
        // A no may not look like a yes.
        let code = u16::try_from(self.code).ok().filter(|code| (400..1000).contains(code)).unwrap_or(400);
        let details = self.details.map(|details| Details {
            name: details.name,
            group: details.group,
            kind: details.kind,
            uid: details.uid,
            causes: details
                .causes
                .into_iter()
                .map(|cause| Cause {
                    reason: Cow::Owned(cause.reason),
                    message: cause.message,
                    field: cause.field,
                })
                .collect(),
            retry_after_seconds: details.retry_after_seconds,
        });
        Box::new(Status {
            code,
            reason: Cow::Owned(self.reason),
            message,
            details,
            continue_token: String::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(body: &str, mutating: bool) -> String {
        match read(body.as_bytes(), "u", "v1", mutating) {
            Ok(_) => String::new(),
            Err(Problem::Unreadable(why) | Problem::Invalid(why)) => why,
        }
    }

    #[test]
    fn answers_that_are_none() {
        let head = r#""apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview""#;
        for (case, body, mutating, expected) in [
            ("nothing", format!("{{{head}}}"), true, "webhook response was absent"),
            (
                "another question's",
                format!(r#"{{{head},"response":{{"uid":"v"}}}}"#),
                true,
                r#"expected response.uid="u", got "v""#,
            ),
            (
                "of no type",
                r#"{"response":{"uid":"u"}}"#.to_owned(),
                true,
                "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=",
            ),
            (
                "a patch of no type",
                format!(r#"{{{head},"response":{{"uid":"u","patch":"W10="}}}}"#),
                true,
                "webhook returned response.patch but not response.patchType",
            ),
            (
                "a patch by a judge",
                format!(r#"{{{head},"response":{{"uid":"u","patch":"W10="}}}}"#),
                false,
                "validating webhook may not return response.patch",
            ),
            ("fine", format!(r#"{{{head},"response":{{"uid":"u","allowed":true}}}}"#), false, ""),
        ] {
            assert_eq!(problem(&body, mutating), expected, "{case}");
        }
    }

    #[test]
    fn a_no_has_a_code_and_a_message() {
        for (status, code, message) in [
            ("{}", 400, r#"admission webhook "w" denied the request without explanation"#),
            (r#"{"code":200,"reason":"Nope"}"#, 400, r#"admission webhook "w" denied the request: Nope"#),
            (r#"{"code":403,"message":"no"}"#, 403, r#"admission webhook "w" denied the request: no"#),
        ] {
            let refusal: Refusal = serde_json::from_str(status).expect("a status");
            let refused = refusal.into_status("w");
            assert_eq!((refused.code, refused.message.as_str()), (code, message), "{status}");
        }
    }
}
