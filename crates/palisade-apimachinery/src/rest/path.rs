//! The list that field errors are collected in, and short ways into JSON objects.

use std::borrow::Cow;

use palisade_base::field_error::{BadValue, FieldError};
use palisade_base::field_path::Path;
use palisade_base::version::KubeVersion;
use serde_json::Value;

use super::names::Messages;

/// Collected field errors.
#[derive(Debug)]
pub struct Errors {
    /// The errors, in the order found.
    pub list: Vec<FieldError>,
    /// The release whose rules apply.
    pub version: KubeVersion,
}

impl Errors {
    /// None yet.
    #[must_use]
    pub fn new(version: KubeVersion) -> Self {
        Self { list: Vec::new(), version }
    }

    /// A value is missing.
    pub fn required(&mut self, at: &Path<'_>, detail: impl Into<Cow<'static, str>>) {
        self.list.push(FieldError::required(at, detail));
    }

    /// A value is malformed.
    pub fn invalid(
        &mut self,
        at: &Path<'_>,
        value: impl Into<BadValue>,
        detail: impl Into<Cow<'static, str>>,
    ) {
        self.list.push(FieldError::invalid(at, value, detail));
    }

    /// A text breaks a format; one error for each message.
    pub fn format(&mut self, at: &Path<'_>, value: &str, messages: Messages) {
        for message in messages {
            self.invalid(at, value, message);
        }
    }

    /// A value is not one of those allowed.
    pub fn not_supported(&mut self, at: &Path<'_>, value: impl Into<BadValue>, supported: &[&str]) {
        self.list.push(FieldError::not_supported(at, value, supported));
    }

    /// A value may not be there.
    pub fn forbidden(&mut self, at: &Path<'_>, detail: impl Into<Cow<'static, str>>) {
        self.list.push(FieldError::forbidden(at, detail));
    }

    /// A value is there twice.
    pub fn duplicate(&mut self, at: &Path<'_>, value: impl Into<BadValue>) {
        self.list.push(FieldError::duplicate(at, value));
    }

    /// A value names nothing.
    pub fn not_found(&mut self, at: &Path<'_>, value: impl Into<BadValue>) {
        self.list.push(FieldError::not_found(at, value));
    }

    /// A text is too long.
    pub fn too_long(&mut self, at: &Path<'_>, limit: usize) {
        self.list.push(FieldError::too_long(at, limit));
    }

    /// A number must not be negative.
    pub fn non_negative(&mut self, at: &Path<'_>, value: Option<i64>) {
        if let Some(value) = value.filter(|v| *v < 0) {
            self.invalid(at, value, "must be greater than or equal to 0");
        }
    }

    /// A field must not change.
    pub fn immutable(&mut self, at: &Path<'_>, new: Option<&Value>, old: Option<&Value>) {
        let empty = |v: Option<&Value>| match v {
            None | Some(Value::Null) => true,
            Some(Value::String(s)) => s.is_empty(),
            Some(Value::Array(a)) => a.is_empty(),
            Some(Value::Object(o)) => o.is_empty(),
            Some(_) => false,
        };
        if new != old && !(empty(new) && empty(old)) {
            let value = new.map_or(BadValue::Nil, BadValue::from);
            self.invalid(at, value, "field is immutable");
        }
    }
}

/// Short ways into JSON objects; absent and wrongly typed values read as empty.
pub trait Get {
    /// A text field, `""` if absent.
    fn text(&self, key: &str) -> &str;
    /// A list field, empty if absent.
    fn list(&self, key: &str) -> &[Value];
    /// A number field.
    fn int(&self, key: &str) -> Option<i64>;
    /// A boolean field.
    fn flag(&self, key: &str) -> Option<bool>;
    /// A field that is set and not null.
    fn child(&self, key: &str) -> Option<&Value>;
    /// The entries of an object field.
    fn entries(&self, key: &str) -> impl Iterator<Item = (&String, &Value)>;
    /// What the keys lead to. Unlike a JSON pointer it is found without copying them.
    fn at(&self, path: &[&str]) -> Option<&Value>;
}

impl Get for Value {
    fn text(&self, key: &str) -> &str {
        self.get(key).and_then(Value::as_str).unwrap_or_default()
    }
    fn list(&self, key: &str) -> &[Value] {
        self.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }
    fn int(&self, key: &str) -> Option<i64> {
        self.get(key).and_then(Value::as_i64)
    }
    fn flag(&self, key: &str) -> Option<bool> {
        self.get(key).and_then(Value::as_bool)
    }
    fn child(&self, key: &str) -> Option<&Value> {
        self.get(key).filter(|v| !v.is_null())
    }
    fn entries(&self, key: &str) -> impl Iterator<Item = (&String, &Value)> {
        self.get(key).and_then(Value::as_object).into_iter().flatten()
    }
    fn at(&self, path: &[&str]) -> Option<&Value> {
        path.iter().try_fold(self, |value, key| value.get(key))
    }
}
