//! Field paths that cost nothing until somebody prints them, and the list errors are collected in.

use std::borrow::Cow;
use std::fmt;

use serde_json::Value;

use super::names::Messages;
use crate::status::{BadValue, FieldError};
use crate::version::KubeVersion;

/// A path into an object, borrowed from its parent.
#[derive(Debug, Clone, Copy)]
pub enum Path<'a> {
    /// A field at the root.
    Root(&'a str),
    /// A field of the parent.
    Field(&'a Path<'a>, &'a str),
    /// An item of a list.
    Index(&'a Path<'a>, usize),
    /// A value of a map.
    Key(&'a Path<'a>, &'a str),
}

impl<'a> Path<'a> {
    /// A field below.
    #[must_use]
    pub const fn field(&'a self, name: &'a str) -> Path<'a> {
        Path::Field(self, name)
    }

    /// An item below.
    #[must_use]
    pub const fn index(&'a self, at: usize) -> Path<'a> {
        Path::Index(self, at)
    }

    /// A map value below.
    #[must_use]
    pub const fn key(&'a self, key: &'a str) -> Path<'a> {
        Path::Key(self, key)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(name) => f.write_str(name),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
            Self::Index(parent, at) => write!(f, "{parent}[{at}]"),
            Self::Key(parent, key) => write!(f, "{parent}[{key}]"),
        }
    }
}

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
        self.list.push(FieldError::required(at.to_string(), detail));
    }

    /// A value is malformed.
    pub fn invalid(
        &mut self,
        at: &Path<'_>,
        value: impl Into<BadValue>,
        detail: impl Into<Cow<'static, str>>,
    ) {
        self.list.push(FieldError::invalid(at.to_string(), value, detail));
    }

    /// A text breaks a format; one error for each message.
    pub fn format(&mut self, at: &Path<'_>, value: &str, messages: Messages) {
        for message in messages {
            self.invalid(at, value, message);
        }
    }

    /// A value is not one of those allowed.
    pub fn not_supported(&mut self, at: &Path<'_>, value: impl Into<BadValue>, supported: &[&str]) {
        self.list.push(FieldError::not_supported(at.to_string(), value, supported));
    }

    /// A value may not be there.
    pub fn forbidden(&mut self, at: &Path<'_>, detail: impl Into<Cow<'static, str>>) {
        self.list.push(FieldError::forbidden(at.to_string(), detail));
    }

    /// A value is there twice.
    pub fn duplicate(&mut self, at: &Path<'_>, value: impl Into<BadValue>) {
        self.list.push(FieldError::duplicate(at.to_string(), value));
    }

    /// A value names nothing.
    pub fn not_found(&mut self, at: &Path<'_>, value: impl Into<BadValue>) {
        self.list.push(FieldError::not_found(at.to_string(), value));
    }

    /// A text is too long.
    pub fn too_long(&mut self, at: &Path<'_>, limit: usize) {
        self.list.push(FieldError::too_long(at.to_string(), limit));
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
}
