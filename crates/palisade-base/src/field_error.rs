//! Field errors: what is wrong with which field, and the words for it.
//!
//! Implements: `field.Error` of `k8s.io/apimachinery/pkg/util/validation/field`, whose wording changed with v1.32 and
//! v1.34, and how a `Status` renders a list of them.

use std::{
    borrow::Cow,
    fmt::{self, Write as _},
};

use serde_json::Value;

use crate::{
    field_path::FieldPath,
    go::{self, Quoted},
    version::KubeVersion,
};

/// What is wrong with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldErrorKind {
    /// A value is missing.
    Required,
    /// A value is malformed.
    Invalid,
    /// A value has the wrong JSON type (custom resources).
    TypeInvalid,
    /// A value is not one of the allowed ones.
    NotSupported,
    /// A value may not be set here.
    Forbidden,
    /// A text is too long.
    TooLong,
    /// A list has too many items.
    TooMany,
    /// A list has too few items.
    TooFew,
    /// A text is too short.
    TooShort,
    /// A value must be unique and is not.
    Duplicate,
    /// A value names something that is not there.
    NotFound,
    /// Something else went wrong.
    Internal,
}

impl FieldErrorKind {
    /// The words an error begins with.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::TooFew => "Too few",
            Self::TooShort => "Too short",
            Self::Duplicate => "Duplicate value",
            Self::NotFound => "Not found",
            Self::Internal => "Internal error",
        }
    }

    /// `reason` of an entry in `details.causes`.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TooFew => "FieldValueTooFew",
            Self::TooShort => "FieldValueTooShort",
            Self::Duplicate => "FieldValueDuplicate",
            Self::NotFound => "FieldValueNotFound",
            Self::Internal => "InternalError",
        }
    }

    fn shows_value(self) -> bool {
        matches!(
            self,
            Self::Invalid
                | Self::TypeInvalid
                | Self::NotSupported
                | Self::NotFound
                | Self::Duplicate
                | Self::TooMany
                | Self::TooFew
        )
    }
}

/// The value a field error shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadValue {
    /// Not shown.
    Omitted,
    /// A Go string: `%q`.
    Text(String),
    /// A number or boolean, or text that is already rendered.
    Plain(String),
    /// Anything else: JSON (before v1.34, Go syntax; JSON is the nearest there is).
    Json(Value),
    /// A nil pointer: `"null"` up to v1.33, `null` after.
    Nil,
}

impl From<&str> for BadValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}
impl From<String> for BadValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}
impl From<Quoted<'_>> for BadValue {
    fn from(text: Quoted<'_>) -> Self {
        text.0.into()
    }
}
impl From<i64> for BadValue {
    fn from(number: i64) -> Self {
        Self::Plain(number.to_string())
    }
}
impl From<i32> for BadValue {
    fn from(number: i32) -> Self {
        i64::from(number).into()
    }
}
impl From<bool> for BadValue {
    fn from(value: bool) -> Self {
        Self::Plain(value.to_string())
    }
}
impl From<Value> for BadValue {
    fn from(value: Value) -> Self {
        Self::from(&value)
    }
}
impl From<&Value> for BadValue {
    fn from(value: &Value) -> Self {
        match value {
            Value::String(text) => Self::Text(text.clone()),
            Value::Number(number) => Self::Plain(number.to_string()),
            Value::Bool(b) => Self::Plain(b.to_string()),
            Value::Null => Self::Nil,
            other => Self::Json(other.clone()),
        }
    }
}

impl BadValue {
    /// A `metav1.LabelSelector`, its fields in upstream's order.
    #[must_use]
    pub fn selector(selector: &Value) -> Self {
        Self::ordered(selector, &["matchLabels", "matchExpressions"])
    }

    /// A structure with its fields in the order of their declaration.
    #[must_use]
    pub fn ordered(value: &Value, fields: &[&str]) -> Self {
        Self::Plain(go::ordered_json(value, fields))
    }
}

/// One broken rule: where, what, the value and the rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// Kind of the error.
    pub kind: FieldErrorKind,
    /// Where the field is.
    pub at: FieldPath,
    /// What upstream calls the place, where that differs from the truth (`spec.template.annotations[..]`).
    pub called: Option<String>,
    /// The offending value.
    pub value: BadValue,
    /// The rule.
    pub detail: Cow<'static, str>,
    /// For [`FieldErrorKind::TooLong`]: the limit, because its wording changed in v1.32.
    pub limit: Option<usize>,
}

impl FieldError {
    /// An error from its parts.
    pub fn new(
        kind: FieldErrorKind,
        at: impl Into<FieldPath>,
        value: impl Into<BadValue>,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { kind, at: at.into(), called: None, value: value.into(), detail: detail.into(), limit: None }
    }

    /// The value is missing.
    pub fn required(at: impl Into<FieldPath>, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(FieldErrorKind::Required, at, BadValue::Omitted, detail)
    }

    /// The value is malformed.
    pub fn invalid(
        at: impl Into<FieldPath>,
        value: impl Into<BadValue>,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(FieldErrorKind::Invalid, at, value, detail)
    }

    /// The value is not one of `supported`.
    pub fn not_supported(at: impl Into<FieldPath>, value: impl Into<BadValue>, supported: &[&str]) -> Self {
        let list: Vec<String> = supported.iter().map(|s| go::quote(s)).collect();
        let detail =
            if list.is_empty() { String::new() } else { format!("supported values: {}", list.join(", ")) };
        Self::new(FieldErrorKind::NotSupported, at, value, detail)
    }

    /// The value may not be set.
    pub fn forbidden(at: impl Into<FieldPath>, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(FieldErrorKind::Forbidden, at, BadValue::Omitted, detail)
    }

    /// The value is there twice.
    pub fn duplicate(at: impl Into<FieldPath>, value: impl Into<BadValue>) -> Self {
        Self::new(FieldErrorKind::Duplicate, at, value, "")
    }

    /// The value names nothing.
    pub fn not_found(at: impl Into<FieldPath>, value: impl Into<BadValue>) -> Self {
        Self::new(FieldErrorKind::NotFound, at, value, "")
    }

    /// The text is longer than `limit` bytes.
    pub fn too_long(at: impl Into<FieldPath>, limit: usize) -> Self {
        let mut error = Self::new(FieldErrorKind::TooLong, at, BadValue::Omitted, "");
        error.limit = Some(limit);
        error
    }

    /// The list has `actual` items and may have `limit`.
    pub fn too_many(at: impl Into<FieldPath>, actual: usize, limit: usize) -> Self {
        let items = if limit == 1 { "item" } else { "items" };
        Self::new(
            FieldErrorKind::TooMany,
            at,
            BadValue::Plain(actual.to_string()),
            format!("must have at most {limit} {items}"),
        )
    }

    /// The same error under upstream's name for the place.
    #[must_use]
    pub fn called(mut self, name: impl Into<String>) -> Self {
        self.called = Some(name.into());
        self
    }

    /// `field` of the cause: `spec.containers[0].name`.
    #[must_use]
    pub fn field(&self) -> String {
        self.called.clone().unwrap_or_else(|| self.at.to_string())
    }

    /// The value as it is shown; `None` for the kinds that show none.
    #[must_use]
    pub fn shown_value(&self, version: KubeVersion) -> Option<String> {
        if !self.kind.shows_value() {
            return None;
        }
        Some(match &self.value {
            BadValue::Omitted => return None,
            BadValue::Text(text) => go::quote(text),
            BadValue::Plain(text) => text.clone(),
            BadValue::Json(value) => go::json(value),
            BadValue::Nil if version.at_least(34) => "null".to_owned(),
            BadValue::Nil => "\"null\"".to_owned(),
        })
    }

    /// `message` of the cause, the part after the path: `Invalid value: "x": must not …`.
    #[must_use]
    pub fn body(&self, version: KubeVersion) -> String {
        let mut out = String::from(self.kind.text());
        if let Some(value) = self.shown_value(version) {
            let _ = write!(out, ": {value}");
        }
        if let Some(limit) = self.limit {
            let _ = match (version.at_least(32), limit) {
                (true, 1) => write!(out, ": may not be more than 1 byte"),
                (true, limit) => write!(out, ": may not be more than {limit} bytes"),
                (false, limit) => write!(out, ": may not be longer than {limit}"),
            };
        } else if !self.detail.is_empty() {
            let _ = write!(out, ": {}", self.detail);
        }
        out
    }
}

impl fmt::Display for FieldError {
    /// As the newest release words it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (field, body) = (self.field(), self.body(KubeVersion::LATEST));
        if field.is_empty() { f.write_str(&body) } else { write!(f, "{field}: {body}") }
    }
}

/// A list of errors in one line: one error stands bare, several stand in brackets, equal texts appear once.
#[must_use]
pub fn aggregate<T: fmt::Display>(errors: &[T]) -> String {
    let mut texts: Vec<String> = Vec::with_capacity(errors.len());
    for error in errors {
        let text = error.to_string();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.as_slice() {
        [one] => one.clone(),
        _ => format!("[{}]", texts.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wording_follows_the_release() {
        let long = FieldError::too_long("data", 10);
        assert_eq!(long.body(KubeVersion::v1(31)), "Too long: may not be longer than 10");
        assert_eq!(long.body(KubeVersion::v1(32)), "Too long: may not be more than 10 bytes");
        let nil = FieldError::invalid("spec.x", BadValue::Nil, "no");
        assert_eq!(nil.body(KubeVersion::v1(33)), "Invalid value: \"null\": no");
        assert_eq!(nil.body(KubeVersion::v1(34)), "Invalid value: null: no");
    }

    #[test]
    fn renders_as_upstream() {
        let at = FieldPath::of(&["spec", "x"]);
        for (error, expected) in [
            (FieldError::required(at.clone(), "why"), "spec.x: Required value: why"),
            (FieldError::invalid(at.clone(), "v", "why"), "spec.x: Invalid value: \"v\": why"),
            (
                FieldError::not_supported(at.clone(), "v", &["a", "b"]),
                "spec.x: Unsupported value: \"v\": supported values: \"a\", \"b\"",
            ),
            (FieldError::duplicate(at.clone(), "v"), "spec.x: Duplicate value: \"v\""),
            (FieldError::forbidden(FieldPath::root(), "no"), "Forbidden: no"),
            (FieldError::forbidden(at.clone(), "no").called("y"), "y: Forbidden: no"),
        ] {
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn several_errors_stand_in_brackets_and_repeat_nothing() {
        let error = |detail: &'static str| FieldError::forbidden("f", detail);
        assert_eq!(aggregate(&[error("a"), error("a")]), "f: Forbidden: a");
        assert_eq!(aggregate(&[error("a"), error("b")]), "[f: Forbidden: a, f: Forbidden: b]");
    }
}
