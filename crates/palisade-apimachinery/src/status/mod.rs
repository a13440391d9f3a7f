//! `Status` objects and field errors, with upstream's texts.
//!
//! Implements: the error constructors of `k8s.io/apimachinery/pkg/api/errors` and the rendering of
//! `k8s.io/apimachinery/pkg/util/validation/field`.
//! Leaves to others: when to return which error, and the HTTP response around it.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value, json};

use palisade_base::field_error::FieldError;
use palisade_base::go;
use palisade_base::version::KubeVersion;

/// A group and a resource or kind, printed as `resource.group`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupName<'a> {
    /// API group, empty for the core group.
    pub group: &'a str,
    /// Plural resource name or kind.
    pub name: &'a str,
}

impl<'a> GroupName<'a> {
    /// Puts the two together.
    #[must_use]
    pub const fn new(group: &'a str, name: &'a str) -> Self {
        Self { group, name }
    }
}

impl std::fmt::Display for GroupName<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        Ok(())
    }
}

/// One cause in the details of a [`Status`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cause {
    /// Machine-readable reason, such as `FieldValueInvalid`.
    pub reason: Cow<'static, str>,
    /// For people.
    pub message: String,
    /// Path of the field.
    pub field: String,
}

/// The details of a [`Status`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Details {
    /// Name of the object.
    pub name: String,
    /// API group.
    pub group: String,
    /// Resource or kind.
    pub kind: String,
    /// Uid of the object.
    pub uid: String,
    /// Single errors.
    pub causes: Vec<Cause>,
    /// When to try again.
    pub retry_after_seconds: u32,
}

/// A `v1.Status`: what the API server answers instead of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// HTTP status code; 0 is left out (success).
    pub code: u16,
    /// Machine-readable reason, may be empty; webhooks make up their own.
    pub reason: Cow<'static, str>,
    /// For people.
    pub message: String,
    /// Details; `Some` of an empty value prints as `{}`.
    pub details: Option<Details>,
    /// Where a list that has expired can go on, at the price of consistency; empty is left out.
    pub continue_token: String,
}

/// The result of operations a client can get wrong.
pub type Result<T> = std::result::Result<T, Box<Status>>;

impl Status {
    /// An error without details.
    #[must_use]
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Box<Self> {
        Box::new(Self {
            code,
            reason: Cow::Borrowed(reason),
            message: message.into(),
            details: None,
            continue_token: String::new(),
        })
    }

    fn about(
        code: u16,
        reason: &'static str,
        resource: GroupName<'_>,
        name: &str,
        message: String,
    ) -> Box<Self> {
        let details = Details {
            name: name.to_owned(),
            group: resource.group.to_owned(),
            kind: resource.name.to_owned(),
            ..Details::default()
        };
        Box::new(Self {
            code,
            reason: Cow::Borrowed(reason),
            message,
            details: Some(details),
            continue_token: String::new(),
        })
    }

    /// 404: no such object.
    #[must_use]
    pub fn not_found(resource: GroupName<'_>, name: &str) -> Box<Self> {
        let message = format!("{resource} {} not found", go::quote(name));
        Self::about(404, "NotFound", resource, name, message)
    }

    /// 404 of the generic kind: no such path or resource.
    #[must_use]
    pub fn page_not_found() -> Box<Self> {
        Self::generic(404, "NotFound", "the server could not find the requested resource")
    }

    /// 409: the name is taken.
    #[must_use]
    pub fn already_exists(resource: GroupName<'_>, name: &str) -> Box<Self> {
        let message = format!("{resource} {} already exists", go::quote(name));
        Self::about(409, "AlreadyExists", resource, name, message)
    }

    /// 409: every generated name was taken.
    #[must_use]
    pub fn generate_name_conflict(
        resource: GroupName<'_>,
        name: &str,
        retry_after_seconds: u32,
    ) -> Box<Self> {
        let message = format!(
            "{resource} {} already exists, the server was not able to generate a unique name for the object",
            go::quote(name)
        );
        let mut status = Self::about(409, "AlreadyExists", resource, name, message);
        if let Some(details) = &mut status.details {
            details.retry_after_seconds = retry_after_seconds;
        }
        status
    }

    /// 409: the operation does not fit what is stored.
    #[must_use]
    pub fn conflict(resource: GroupName<'_>, name: &str, why: &str) -> Box<Self> {
        let message = format!("Operation cannot be fulfilled on {resource} {}: {why}", go::quote(name));
        Self::about(409, "Conflict", resource, name, message)
    }

    /// 409: the object changed since it was read.
    #[must_use]
    pub fn modified(resource: GroupName<'_>, name: &str) -> Box<Self> {
        Self::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 409 of server-side apply: other managers own the fields.
    #[must_use]
    pub fn apply_conflict(message: String, causes: Vec<Cause>) -> Box<Self> {
        let details = Details { causes, ..Details::default() };
        Box::new(Self {
            code: 409,
            reason: Cow::Borrowed("Conflict"),
            message,
            details: Some(details),
            continue_token: String::new(),
        })
    }

    /// 403 for a resource.
    #[must_use]
    pub fn forbidden(resource: GroupName<'_>, name: &str, why: &str) -> Box<Self> {
        let message = match (resource.name.is_empty() && resource.group.is_empty(), name) {
            (true, _) => format!("forbidden: {why}"),
            (false, "") => format!("{resource} is forbidden: {why}"),
            (false, _) => format!("{resource} {} is forbidden: {why}", go::quote(name)),
        };
        Self::about(403, "Forbidden", resource, name, message)
    }

    /// 422: the object breaks rules.
    #[must_use]
    pub fn invalid(
        kind: GroupName<'_>,
        name: &str,
        errors: &[FieldError],
        version: KubeVersion,
    ) -> Box<Self> {
        let mut message = format!("{kind} {} is invalid", go::quote(name));
        let mut causes = Vec::with_capacity(errors.len());
        let mut texts: Vec<String> = Vec::with_capacity(errors.len());
        for error in errors {
            let body = error.body(version);
            let text = format!("{}: {body}", error.field());
            if !texts.contains(&text) {
                texts.push(text);
            }
            causes.push(Cause {
                reason: Cow::Borrowed(error.kind.reason()),
                message: body,
                field: error.field(),
            });
        }
        match texts.as_slice() {
            [] => {}
            [one] => {
                let _ = write!(message, ": {one}");
            }
            many => {
                let _ = write!(message, ": [{}]", many.join(", "));
            }
        }
        let mut status = Self::about(422, "Invalid", kind, name, message);
        if let Some(details) = &mut status.details {
            details.causes = causes;
        }
        status
    }

    /// 400.
    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Box<Self> {
        Self::new(400, "BadRequest", message)
    }

    /// 401.
    #[must_use]
    pub fn unauthorized() -> Box<Self> {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 410: a watch or list requested something already compacted.
    #[must_use]
    pub fn expired(message: impl Into<String>) -> Box<Self> {
        Self::new(410, "Expired", message)
    }

    /// 415 of a body in an unknown format.
    #[must_use]
    pub fn unsupported_media_type(accepted: &[&str]) -> Box<Self> {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// 405 of a path that exists with other methods.
    #[must_use]
    pub fn method_not_allowed() -> Box<Self> {
        Self::generic(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
    }

    /// 405 of a verb the resource does not have.
    #[must_use]
    pub fn method_not_supported(resource: GroupName<'_>, action: &str) -> Box<Self> {
        let message =
            format!("{action} is not supported on resources of kind {}", go::quote(&resource.to_string()));
        Self::about(405, "MethodNotAllowed", resource, "", message)
    }

    /// 413.
    #[must_use]
    pub fn request_entity_too_large(what: &str) -> Box<Self> {
        Self::new(413, "RequestEntityTooLarge", format!("Request entity too large: {what}"))
    }

    /// 429.
    #[must_use]
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Box<Self> {
        let mut status = Self::generic(429, "TooManyRequests", message);
        if let Some(details) = &mut status.details {
            details.retry_after_seconds = retry_after_seconds;
        }
        status
    }

    /// 422 without an object, as the patch handler answers where a JSON patch does not apply.
    #[must_use]
    pub fn unprocessable() -> Box<Self> {
        Self::generic(422, "Invalid", "the server rejected our request due to an error in our request")
    }

    /// 500 with a cause.
    #[must_use]
    pub fn internal(why: impl Into<String>) -> Box<Self> {
        let why = why.into();
        let message = format!("Internal error occurred: {why}");
        let cause = Cause { reason: Cow::Borrowed(""), message: why, field: String::new() };
        let details = Details { causes: vec![cause], ..Details::default() };
        Box::new(Self {
            code: 500,
            reason: Cow::Borrowed("InternalError"),
            message,
            details: Some(details),
            continue_token: String::new(),
        })
    }

    /// 500 of a plain Go error that reached the response writer: neither reason nor details.
    #[must_use]
    pub fn unknown_error(message: impl Into<String>) -> Box<Self> {
        Self::new(500, "", message)
    }

    /// 504.
    #[must_use]
    pub fn timeout(what: &str, retry_after_seconds: u32) -> Box<Self> {
        let mut status = Self::generic(504, "Timeout", format!("Timeout: {what}"));
        if let Some(details) = &mut status.details {
            details.retry_after_seconds = retry_after_seconds;
        }
        status
    }

    /// An error with empty details, as upstream's `NewGenericServerResponse` builds.
    #[must_use]
    pub fn generic(code: u16, reason: &'static str, message: impl Into<String>) -> Box<Self> {
        let details = Some(Details::default());
        Box::new(Self {
            code,
            reason: Cow::Borrowed(reason),
            message: message.into(),
            details,
            continue_token: String::new(),
        })
    }

    /// The answer to a successful delete: `Success` with the object's name and uid.
    #[must_use]
    pub fn deleted(resource: GroupName<'_>, name: &str, uid: &str) -> Success {
        Success(Details {
            name: name.to_owned(),
            group: resource.group.to_owned(),
            kind: resource.name.to_owned(),
            uid: uid.to_owned(),
            ..Details::default()
        })
    }

    /// The object as the server sends it.
    #[must_use]
    pub fn to_value(&self) -> Value {
        json!(self)
    }
}

/// A `Status` of success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Success(Details);

// Fields are written in the order of Go's structs, as clients compare the text.

impl Serialize for Status {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let continue_token = Some(&self.continue_token).filter(|token| !token.is_empty());
        map.serialize_entry("kind", "Status")?;
        map.serialize_entry("apiVersion", "v1")?;
        map.serialize_entry(
            "metadata",
            &Map::from_iter(continue_token.map(|token| ("continue".to_owned(), json!(token)))),
        )?;
        map.serialize_entry("status", "Failure")?;
        text(&mut map, "message", &self.message)?;
        text(&mut map, "reason", &self.reason)?;
        if let Some(details) = &self.details {
            map.serialize_entry("details", details)?;
        }
        map.serialize_entry("code", &self.code)?;
        map.end()
    }
}

impl Serialize for Success {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("kind", "Status")?;
        map.serialize_entry("apiVersion", "v1")?;
        map.serialize_entry("metadata", &Map::new())?;
        map.serialize_entry("status", "Success")?;
        map.serialize_entry("details", &self.0)?;
        map.end()
    }
}

impl Serialize for Details {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (key, value) in
            [("name", &self.name), ("group", &self.group), ("kind", &self.kind), ("uid", &self.uid)]
        {
            text(&mut map, key, value)?;
        }
        if !self.causes.is_empty() {
            map.serialize_entry("causes", &self.causes)?;
        }
        if self.retry_after_seconds != 0 {
            map.serialize_entry("retryAfterSeconds", &self.retry_after_seconds)?;
        }
        map.end()
    }
}

impl Serialize for Cause {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (key, value) in [("reason", &*self.reason), ("message", &self.message), ("field", &self.field)] {
            text(&mut map, key, value)?;
        }
        map.end()
    }
}

/// A text that is left out if it is empty.
fn text<M: SerializeMap>(map: &mut M, key: &str, value: &str) -> std::result::Result<(), M::Error> {
    if value.is_empty() { Ok(()) } else { map.serialize_entry(key, value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_errors_become_a_list_without_repeated_texts() {
        let errors = [
            FieldError::required("spec.containers", ""),
            FieldError::required("spec.containers", ""),
            FieldError::not_supported("spec.restartPolicy", "Nope", &["Always", "Never"]),
        ];
        let status = Status::invalid(GroupName::new("apps", "Deployment"), "d", &errors, KubeVersion::LATEST);
        assert_eq!(
            status.message,
            "Deployment.apps \"d\" is invalid: [spec.containers: Required value, spec.restartPolicy: \
             Unsupported value: \"Nope\": supported values: \"Always\", \"Never\"]"
        );
        assert_eq!(status.details.map(|d| d.causes.len()), Some(3));
    }

    #[test]
    fn prints_only_what_is_set() {
        let status = Status::bad_request("no");
        assert_eq!(
            status.to_value(),
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "no",
                   "reason": "BadRequest", "code": 400})
        );
        assert_eq!(Status::method_not_allowed().to_value()["details"], json!({}));
    }

    #[test]
    fn fields_have_the_order_of_go() {
        let errors = [FieldError::required("spec.a", "")];
        let status = Status::invalid(GroupName::new("apps", "Deployment"), "d", &errors, KubeVersion::LATEST);
        assert_eq!(
            serde_json::to_string(&*status).unwrap(),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Deployment.apps \"d\" is invalid: spec.a: Required value","reason":"Invalid","details":{"name":"d","group":"apps","kind":"Deployment","causes":[{"reason":"FieldValueRequired","message":"Required value","field":"spec.a"}]},"code":422}"#
        );
        assert_eq!(
            serde_json::to_string(&Status::deleted(GroupName::new("", "pods"), "p", "u")).unwrap(),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","details":{"name":"p","kind":"pods","uid":"u"}}"#
        );
    }
}
