//! Field errors: what is wrong with which field, and the words for it.
//!
//! Implements: `k8s.io/apimachinery/pkg/util/validation/field`, whose wording changed with v1.32 and v1.34.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde_json::Value;

use crate::go;
use crate::version::KubeVersion;

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
    fn text(self) -> &'static str {
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

    pub(super) fn reason(self) -> &'static str {
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
#[derive(Debug, Clone, PartialEq)]
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
impl From<i64> for BadValue {
    fn from(number: i64) -> Self {
        Self::Plain(number.to_string())
    }
}
impl From<bool> for BadValue {
    fn from(value: bool) -> Self {
        Self::Plain(value.to_string())
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
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    /// Kind of the error.
    pub kind: FieldErrorKind,
    /// Path of the field, `spec.containers[0].name`.
    pub field: String,
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
        field: impl Into<String>,
        value: impl Into<BadValue>,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { kind, field: field.into(), value: value.into(), detail: detail.into(), limit: None }
    }

    /// The value is missing.
    pub fn required(field: impl Into<String>, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(FieldErrorKind::Required, field, BadValue::Omitted, detail)
    }

    /// The value is malformed.
    pub fn invalid(
        field: impl Into<String>,
        value: impl Into<BadValue>,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(FieldErrorKind::Invalid, field, value, detail)
    }

    /// The value is not one of `supported`.
    pub fn not_supported(field: impl Into<String>, value: impl Into<BadValue>, supported: &[&str]) -> Self {
        let list: Vec<String> = supported.iter().map(|s| go::quote(s)).collect();
        let detail =
            if list.is_empty() { String::new() } else { format!("supported values: {}", list.join(", ")) };
        Self::new(FieldErrorKind::NotSupported, field, value, detail)
    }

    /// The value may not be set.
    pub fn forbidden(field: impl Into<String>, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(FieldErrorKind::Forbidden, field, BadValue::Omitted, detail)
    }

    /// The value is there twice.
    pub fn duplicate(field: impl Into<String>, value: impl Into<BadValue>) -> Self {
        Self::new(FieldErrorKind::Duplicate, field, value, "")
    }

    /// The value names nothing.
    pub fn not_found(field: impl Into<String>, value: impl Into<BadValue>) -> Self {
        Self::new(FieldErrorKind::NotFound, field, value, "")
    }

    /// The text is longer than `limit` bytes.
    pub fn too_long(field: impl Into<String>, limit: usize) -> Self {
        let mut error = Self::new(FieldErrorKind::TooLong, field, BadValue::Omitted, "");
        error.limit = Some(limit);
        error
    }

    /// The list has `actual` items and may have `limit`.
    pub fn too_many(field: impl Into<String>, actual: usize, limit: usize) -> Self {
        let items = if limit == 1 { "item" } else { "items" };
        Self::new(
            FieldErrorKind::TooMany,
            field,
            BadValue::Plain(actual.to_string()),
            format!("must have at most {limit} {items}"),
        )
    }

    /// The part after the path: `Invalid value: "x": must not …`.
    #[must_use]
    pub fn body(&self, version: KubeVersion) -> String {
        let mut out = String::from(self.kind.text());
        if self.kind.shows_value() {
            match &self.value {
                BadValue::Omitted => {}
                BadValue::Text(text) => {
                    let _ = write!(out, ": {}", go::quote(text));
                }
                BadValue::Plain(text) => {
                    let _ = write!(out, ": {text}");
                }
                BadValue::Json(value) => {
                    let _ = write!(out, ": {}", go::json(value));
                }
                BadValue::Nil => out.push_str(if version.at_least(34) { ": null" } else { ": \"null\"" }),
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wording_follows_the_release() {
        let long = FieldError::too_long("data", 10);
        assert_eq!(long.body(KubeVersion::minor(31)), "Too long: may not be longer than 10");
        assert_eq!(long.body(KubeVersion::minor(32)), "Too long: may not be more than 10 bytes");
        let nil = FieldError::invalid("spec.x", BadValue::Nil, "no");
        assert_eq!(nil.body(KubeVersion::minor(33)), "Invalid value: \"null\": no");
        assert_eq!(nil.body(KubeVersion::minor(34)), "Invalid value: null: no");
    }
}
