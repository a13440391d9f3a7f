//! The values of expressions. Copies share their content, so that a variable costs nothing to use.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use palisade_base::quantity::Quantity;

use super::authorizer::AuthorizerValue;
use super::budget::{Budget, Fault};
use super::url::Url;

/// A value.
#[derive(Debug, Clone)]
pub enum Val {
    /// `null`.
    Null,
    /// `bool`.
    Bool(bool),
    /// `int`.
    Int(i64),
    /// `uint`.
    Uint(u64),
    /// `double`.
    Double(f64),
    /// `string`.
    String(Arc<str>),
    /// `bytes`.
    Bytes(Arc<[u8]>),
    /// `list`.
    List(Arc<Vec<Val>>),
    /// `map`, or an object.
    Map(Arc<BTreeMap<Key, Val>>),
    /// `optional_type`.
    Optional(Option<Arc<Val>>),
    /// A type.
    Type(&'static str),
    /// `google.protobuf.Duration`, in nanoseconds.
    Duration(i128),
    /// `google.protobuf.Timestamp`, in nanoseconds since 1970.
    Timestamp(i128),
    /// `kubernetes.URL`.
    Url(Arc<Url>),
    /// `net.IP`.
    Ip(IpAddr),
    /// `net.CIDR`.
    Cidr(IpAddr, u8),
    /// `kubernetes.Quantity`.
    Quantity(Quantity),
    /// `kubernetes.NamedFormat`.
    Format(&'static str),
    /// The types of the library for authorisation.
    Authorizer(Arc<AuthorizerValue>),
}

/// A key of a map.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// `bool`.
    Bool(bool),
    /// `int` and `uint`.
    Int(i128),
    /// `string`.
    String(Arc<str>),
}

impl Key {
    /// A text as a key.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::String(text.into())
    }

    pub(super) fn of(value: &Val) -> Option<Self> {
        match value {
            Val::Bool(is) => Some(Self::Bool(*is)),
            Val::Int(number) => Some(Self::Int(i128::from(*number))),
            Val::Uint(number) => Some(Self::Int(i128::from(*number))),
            #[allow(clippy::cast_possible_truncation, reason = "checked to be whole and in range")]
            Val::Double(number) if number.fract() == 0.0 && number.abs() < 9e15 => {
                Some(Self::Int(*number as i128))
            }
            Val::String(text) => Some(Self::String(text.clone())),
            _ => None,
        }
    }

    pub(super) fn value(&self) -> Val {
        match self {
            Self::Bool(is) => Val::Bool(*is),
            Self::Int(number) => i64::try_from(*number)
                .map_or_else(|_| Val::Uint(u64::try_from(*number).unwrap_or(u64::MAX)), Val::Int),
            Self::String(text) => Val::String(text.clone()),
        }
    }
}

impl Val {
    /// A text.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::String(text.into())
    }

    /// JSON without a schema, as `dyn`.
    #[must_use]
    pub fn from_json(value: &serde_json::Value) -> Self {
        match value {
            serde_json::Value::Null => Self::Null,
            serde_json::Value::Bool(is) => Self::Bool(*is),
            serde_json::Value::Number(number) => {
                number.as_i64().map_or_else(|| Self::Double(number.as_f64().unwrap_or_default()), Self::Int)
            }
            serde_json::Value::String(text) => Self::text(text),
            serde_json::Value::Array(items) => Self::list(items.iter().map(Self::from_json).collect()),
            serde_json::Value::Object(map) => {
                Self::map(map.iter().map(|(k, v)| (Key::text(k), Self::from_json(v))).collect())
            }
        }
    }

    /// As JSON; `None` for values that JSON does not have.
    #[must_use]
    pub fn to_json(&self) -> Option<serde_json::Value> {
        use serde_json::Value;
        Some(match self {
            Self::Null => Value::Null,
            Self::Bool(is) => Value::Bool(*is),
            Self::Int(number) => Value::from(*number),
            Self::Uint(number) => Value::from(*number),
            Self::Double(number) => serde_json::Number::from_f64(*number).map(Value::Number)?,
            Self::String(text) => Value::String(text.to_string()),
            Self::List(items) => Value::Array(items.iter().map(Self::to_json).collect::<Option<_>>()?),
            Self::Map(map) => {
                let entry = |(key, value): (&Key, &Self)| match key {
                    Key::String(key) => Some((key.to_string(), value.to_json()?)),
                    _ => None,
                };
                Value::Object(map.iter().map(entry).collect::<Option<_>>()?)
            }
            _ => return None,
        })
    }

    /// RFC 3339 text as a timestamp.
    #[must_use]
    pub fn timestamp(text: &str) -> Option<Self> {
        super::times::parse_timestamp(text).map(Self::Timestamp)
    }

    /// Go's text as a duration.
    #[must_use]
    pub fn duration(text: &str) -> Option<Self> {
        super::times::parse_duration(text).map(Self::Duration)
    }

    /// Base64 as bytes.
    #[must_use]
    pub fn bytes(text: &str) -> Option<Self> {
        use base64::Engine as _;
        let bytes = base64::engine::general_purpose::STANDARD.decode(text).ok()?;
        Some(Self::Bytes(bytes.into()))
    }

    /// A list.
    #[must_use]
    pub fn list(items: Vec<Self>) -> Self {
        Self::List(Arc::new(items))
    }

    /// A map.
    #[must_use]
    pub fn map(entries: BTreeMap<Key, Self>) -> Self {
        Self::Map(Arc::new(entries))
    }

    /// An optional value.
    #[must_use]
    pub fn optional(value: Option<Self>) -> Self {
        Self::Optional(value.map(Arc::new))
    }

    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Optional(_) => "optional_type",
            Self::Type(_) => "type",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Url(_) => "kubernetes.URL",
            Self::Ip(_) => "net.IP",
            Self::Cidr(..) => "net.CIDR",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Authorizer(value) => value.type_name(),
        }
    }

    /// Whether two values are the same. Every value that is looked at costs: small values that refer to each other can be
    /// of any size when they are written out.
    pub(super) fn equals(&self, other: &Self, budget: &mut Budget) -> Result<bool, Fault> {
        budget.charge(1)?;
        Ok(match (self, other) {
            (Self::Null, Self::Null) | (Self::Optional(None), Self::Optional(None)) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::String(a), Self::String(b)) => {
                budget.traverse(a.len().min(b.len()))?;
                a == b
            }
            (Self::Bytes(a), Self::Bytes(b)) => {
                budget.traverse(a.len().min(b.len()))?;
                a == b
            }
            (Self::List(a), Self::List(b)) => {
                if a.len() != b.len() {
                    return Ok(false);
                }
                for (a, b) in a.iter().zip(b.iter()) {
                    if !a.equals(b, budget)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Self::Map(a), Self::Map(b)) => {
                if a.len() != b.len() {
                    return Ok(false);
                }
                for ((key_a, a), (key_b, b)) in a.iter().zip(b.iter()) {
                    if key_a != key_b || !a.equals(b, budget)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Self::Optional(Some(a)), Self::Optional(Some(b))) => a.equals(b, budget)?,
            (Self::Type(a), Self::Type(b)) | (Self::Format(a), Self::Format(b)) => a == b,
            (Self::Url(a), Self::Url(b)) => a == b,
            (Self::Ip(a), Self::Ip(b)) => a == b,
            (Self::Cidr(a, bits_a), Self::Cidr(b, bits_b)) => a == b && bits_a == bits_b,
            (a, b) => a.number_order(b) == Some(Ordering::Equal),
        })
    }

    /// The order of two values that have one.
    pub(super) fn order(&self, other: &Self, budget: &mut Budget) -> Result<Option<Ordering>, Fault> {
        Ok(match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => Some(a.cmp(b)),
            (Self::String(a), Self::String(b)) => {
                budget.traverse(a.len().min(b.len()))?;
                Some(a.cmp(b))
            }
            (Self::Bytes(a), Self::Bytes(b)) => {
                budget.traverse(a.len().min(b.len()))?;
                Some(a.cmp(b))
            }
            (a, b) => a.number_order(b),
        })
    }

    #[allow(clippy::cast_precision_loss, reason = "as the language defines comparisons across types")]
    fn number_order(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => Some(a.cmp(b)),
            (Self::Uint(a), Self::Uint(b)) => Some(a.cmp(b)),
            (Self::Int(a), Self::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (Self::Uint(a), Self::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (Self::Double(a), Self::Double(b)) => a.partial_cmp(b),
            (Self::Int(a), Self::Double(b)) => (*a as f64).partial_cmp(b),
            (Self::Double(a), Self::Int(b)) => a.partial_cmp(&(*b as f64)),
            (Self::Uint(a), Self::Double(b)) => (*a as f64).partial_cmp(b),
            (Self::Double(a), Self::Uint(b)) => a.partial_cmp(&(*b as f64)),
            (Self::Duration(a), Self::Duration(b)) | (Self::Timestamp(a), Self::Timestamp(b)) => {
                Some(a.cmp(b))
            }
            (Self::Quantity(a), Self::Quantity(b)) => Some(a.cmp(b)),
            _ => None,
        }
    }
}
