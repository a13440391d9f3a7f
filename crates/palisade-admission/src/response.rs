//! The answer to a review, and its JSON.
//!
//! Implements: `AdmissionReview` v1, the response. Upstream's Pod Security webhook sends the whole request back as well; no
//! API server reads it, so it is left out.

use std::{borrow::Cow, fmt::Write as _};

use palisade_base::{
    field_error::{FieldError, aggregate},
    go::Quoted,
};
use serde::Serialize;

use crate::{
    admission_review::API_VERSION,
    pod_security::{Counted, Verdict},
};

/// The answer to a review.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Response {
    /// Why the request is refused; none: it is allowed.
    pub refused: Option<Refusal>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// Audit annotations.
    pub audit: Vec<(Cow<'static, str>, String)>,
    /// What to count.
    pub counted: Vec<Counted>,
    /// RFC 6902 operations that change the object; nothing if it stays as it is.
    pub patch: Vec<u8>,
}

/// A refusal, as a `Status` reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP code.
    pub code: u16,
    /// Machine-readable reason.
    pub reason: &'static str,
    /// Text.
    pub message: String,
    /// Group, kind and name of what is refused, if reported.
    pub details: Option<(String, String, String)>,
    /// Fields behind an `Invalid`.
    pub causes: Vec<FieldError>,
}

impl Refusal {
    /// 403 about a pod.
    #[must_use]
    pub fn forbidden_pod(name: &str, why: &str) -> Self {
        let subject = if name.is_empty() { "pods".to_owned() } else { format!("pods {}", Quoted(name)) };
        Self {
            code: 403,
            reason: "Forbidden",
            message: format!("{subject} is forbidden: {why}"),
            details: Some((String::new(), "pods".to_owned(), name.to_owned())),
            causes: Vec::new(),
        }
    }

    /// 403 with a text of its own.
    #[must_use]
    pub fn forbidden(why: &str) -> Self {
        Self { code: 403, reason: "Forbidden", message: why.to_owned(), details: None, causes: Vec::new() }
    }

    /// 422 about fields of an object.
    #[must_use]
    pub fn invalid(group: &str, kind: &str, name: &str, causes: Vec<FieldError>) -> Self {
        let shown = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        Self {
            code: 422,
            reason: "Invalid",
            message: format!("{shown} {} is invalid: {}", Quoted(name), aggregate(&causes)),
            details: Some((group.to_owned(), kind.to_owned(), name.to_owned())),
            causes,
        }
    }

    /// 500: the question could not be looked into, so the answer is no.
    #[must_use]
    pub fn internal(why: &str) -> Self {
        Self {
            code: 500,
            reason: "InternalError",
            message: format!("Internal error occurred: {why}"),
            details: None,
            causes: Vec::new(),
        }
    }
}

impl Response {
    /// A refusal and nothing else.
    #[must_use]
    pub fn refuse(refusal: Refusal) -> Self {
        Self { refused: Some(refusal), ..Self::default() }
    }

    /// Adds the response of another part of admission. The first refusal stays, and each warning is kept once.
    pub fn join(&mut self, other: Self) {
        if self.refused.is_none() {
            self.refused = other.refused;
        }
        for warning in other.warnings {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
        for (key, value) in other.audit {
            if !self.audit.iter().any(|(known, _)| *known == key) {
                self.audit.push((key, value));
            }
        }
        self.counted.extend(other.counted);
    }

    pub(crate) fn of(verdict: Verdict) -> Self {
        let audit = verdict.audit.into_iter().map(|(key, value)| (key.into(), value)).collect();
        Self { warnings: verdict.warnings, audit, counted: verdict.counted, ..Self::default() }
    }

    /// A workload that could not be judged is let through with a note.
    pub(crate) fn noted(error: String) -> Self {
        Self {
            audit: vec![("error".into(), error)],
            counted: vec![Counted::Error { fatal: true }],
            ..Self::default()
        }
    }

    pub(crate) fn unreadable((message, cause): (&'static str, Option<String>)) -> Self {
        let mut note = message.to_owned();
        if let Some(cause) = cause {
            let _ = write!(note, ": {cause}");
        }
        let refused = Refusal {
            code: 400,
            reason: "BadRequest",
            message: message.to_owned(),
            details: None,
            causes: Vec::new(),
        };
        Self {
            refused: Some(refused),
            audit: vec![("error".into(), note)],
            counted: vec![Counted::Error { fatal: true }],
            ..Self::default()
        }
    }

    /// The review that goes back over the wire.
    pub fn to_bytes(&self, uid: &str) -> Result<Vec<u8>, serde_json::Error> {
        // Enough for a response without a patch, so that it is written without growing.
        let mut bytes = Vec::with_capacity(512);
        serde_json::to_writer(&mut bytes, &wire::AdmissionReview::of(self, uid))?;
        Ok(bytes)
    }
}

/// The JSON of a response.
mod wire {
    use std::{collections::BTreeMap, fmt};

    use base64::{display::Base64Display, prelude::BASE64_STANDARD};

    use super::{API_VERSION, Refusal, Response, Serialize};

    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    pub(super) struct AdmissionReview<'r> {
        api_version: &'static str,
        kind: &'static str,
        response: Body<'r>,
    }

    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Body<'r> {
        uid: &'r str,
        allowed: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<Status<'r>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        patch: Option<Patch<'r>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        patch_type: Option<&'static str>,
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        audit_annotations: BTreeMap<&'r str, &'r str>,
        #[serde(skip_serializing_if = "<[String]>::is_empty")]
        warnings: &'r [String],
    }

    /// JSON has no bytes, so they travel in base64.
    struct Patch<'r>(&'r [u8]);

    impl fmt::Display for Patch<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            Base64Display::new(self.0, &BASE64_STANDARD).fmt(f)
        }
    }

    impl Serialize for Patch<'_> {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_str(self)
        }
    }

    #[derive(Serialize)]
    struct Status<'r> {
        #[serde(rename = "status")]
        outcome: &'static str,
        message: &'r str,
        reason: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        details: Option<Details<'r>>,
        code: u16,
    }

    #[derive(Serialize)]
    struct Details<'r> {
        #[serde(skip_serializing_if = "str::is_empty")]
        name: &'r str,
        #[serde(skip_serializing_if = "str::is_empty")]
        group: &'r str,
        kind: &'r str,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        causes: Vec<Cause>,
    }

    #[derive(Serialize)]
    struct Cause {
        reason: &'static str,
        message: String,
        field: String,
    }

    impl<'r> AdmissionReview<'r> {
        pub(super) fn of(response: &'r Response, uid: &'r str) -> Self {
            // An API server refuses a patch that comes with a refusal.
            let patched = response.refused.is_none() && !response.patch.is_empty();
            Self {
                api_version: API_VERSION,
                kind: "AdmissionReview",
                response: Body {
                    uid,
                    allowed: response.refused.is_none(),
                    status: response.refused.as_ref().map(status),
                    patch: patched.then_some(Patch(&response.patch)),
                    patch_type: patched.then_some("JSONPatch"),
                    audit_annotations: response
                        .audit
                        .iter()
                        .map(|(key, value)| (key.as_ref(), value.as_str()))
                        .collect(),
                    warnings: &response.warnings,
                },
            }
        }
    }

    fn status(refusal: &Refusal) -> Status<'_> {
        let causes = refusal.causes.iter().map(|problem| Cause {
            reason: problem.kind.reason(),
            message: problem.body(palisade_base::version::KubeVersion::LATEST),
            field: problem.field(),
        });
        Status {
            outcome: "Failure",
            message: &refusal.message,
            reason: refusal.reason,
            details: refusal.details.as_ref().map(|(group, kind, name)| Details {
                name,
                group,
                kind,
                causes: causes.collect(),
            }),
            code: refusal.code,
        }
    }
}
