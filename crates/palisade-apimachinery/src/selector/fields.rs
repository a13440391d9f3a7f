//! Field selectors, and the fields lists of each kind can be filtered by.

use palisade_base::go;
use serde_json::Value;
use thiserror::Error;

use crate::rest::path::Get as _;
use crate::scheme::{Body, Kind};
use crate::status::{Result, Status};

/// Why a field selector cannot be read, worded as upstream's parser does.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
enum FieldSelectorError {
    /// A term without an operator.
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    NoOperator { selector: String, term: String },
    /// A backslash before something that needs none, or at the end.
    #[error("invalid field selector: invalid escape sequence: \\{}", .0.map(String::from).unwrap_or_default())]
    Escape(Option<char>),
    /// A comma or an equals sign in a value.
    #[error("invalid field selector: unescaped character in value: {0}")]
    Unescaped(char),
}

type Parsed<T> = std::result::Result<T, FieldSelectorError>;

/// A field selector: every term must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: Vec<(String, bool, String)>,
}

impl FieldSelector {
    /// Reads `?fieldSelector=` for a kind.
    pub fn parse(kind: &Kind, text: &str) -> Result<Self> {
        let selector = Self::read(text).map_err(|error| Status::bad_request(error.to_string()))?;
        for (field, _, _) in &selector.terms {
            if !kind.supports_field(field) {
                return Err(Status::bad_request(kind.unknown_field(field)));
            }
        }
        Ok(selector)
    }

    /// The name a selector of any kind requests; none where it cannot be read.
    #[must_use]
    pub fn exact_name_in(text: &str) -> Option<String> {
        let selector = Self::read(text).ok()?;
        selector.exact_name().filter(|name| !name.is_empty()).map(str::to_owned)
    }

    /// The value that a selector of any kind requires of a field; none where it cannot be read.
    #[must_use]
    pub fn exact_value_in(text: &str, field: &str) -> Option<String> {
        let selector = Self::read(text).ok()?;
        let term = selector.terms.into_iter().find(|(name, equal, _)| name == field && *equal);
        term.map(|(_, _, value)| value).filter(|value| !value.is_empty())
    }

    fn read(text: &str) -> Parsed<Self> {
        let mut parts = split_terms(text);
        parts.sort_unstable();
        let mut terms = Vec::new();
        for part in parts.into_iter().filter(|p| !p.is_empty()) {
            let found = part.char_indices().find_map(|(at, _)| {
                let rest = &part[at..];
                ["!=", "==", "="].iter().find(|op| rest.starts_with(**op)).map(|op| (at, *op))
            });
            let Some((at, operator)) = found else {
                return Err(FieldSelectorError::NoOperator {
                    selector: text.to_owned(),
                    term: part.to_owned(),
                });
            };
            let value = unescape(&part[at + operator.len()..])?;
            terms.push((part[..at].to_owned(), operator != "!=", value));
        }
        Ok(Self { terms })
    }

    /// Whether an object fits.
    #[must_use]
    pub fn matches(&self, kind: &Kind, object: &Value) -> bool {
        self.terms.iter().all(|(field, equal, value)| (kind.field_value(object, field) == *value) == *equal)
    }

    /// Whether an object fits whose selectable fields are kept in another form.
    pub fn matches_with<'a>(&self, value_of: impl Fn(&str) -> &'a str) -> bool {
        self.terms.iter().all(|(field, equal, value)| (value_of(field) == value) == *equal)
    }

    /// The name it requests, if it requests one: a list becomes a get.
    #[must_use]
    pub fn exact_name(&self) -> Option<&str> {
        self.terms
            .iter()
            .find(|(field, equal, _)| field == "metadata.name" && *equal)
            .map(|(_, _, value)| value.as_str())
    }
}

fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn unescape(text: &str) -> Parsed<String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                other => return Err(FieldSelectorError::Escape(other)),
            },
            ',' | '=' => return Err(FieldSelectorError::Unescaped(c)),
            c => out.push(c),
        }
    }
    Ok(out)
}

/// Fields besides name and namespace that lists of a kind can be filtered by.
fn extra_fields(group: &str, kind: &str) -> &'static [&'static str] {
    match (group, kind) {
        ("", "Pod") => &[
            // An old name of `spec.nodeName`.
            "spec.host",
            "spec.hostNetwork",
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.nominatedNodeName",
            "status.phase",
            "status.podIP",
            "status.podIPs",
        ],
        ("", "Event") => &[
            "involvedObject.apiVersion",
            "involvedObject.fieldPath",
            "involvedObject.kind",
            "involvedObject.name",
            "involvedObject.namespace",
            "involvedObject.resourceVersion",
            "involvedObject.uid",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("events.k8s.io", "Event") => &[
            "reason",
            "regarding.apiVersion",
            "regarding.fieldPath",
            "regarding.kind",
            "regarding.name",
            "regarding.namespace",
            "regarding.resourceVersion",
            "regarding.uid",
            "reportingController",
            "type",
        ],
        ("", "Namespace") => &["status.phase"],
        ("", "Node") => &["spec.unschedulable"],
        ("", "Secret") => &["type"],
        ("", "Service") => &["spec.clusterIP", "spec.type"],
        ("", "ReplicationController") | ("apps", "ReplicaSet") => &["status.replicas"],
        ("batch", "Job") => &["status.successful"],
        ("certificates.k8s.io", "CertificateSigningRequest" | "ClusterTrustBundle") => &["spec.signerName"],
        ("certificates.k8s.io", "PodCertificateRequest") => {
            &["spec.nodeName", "spec.podName", "spec.signerName"]
        }
        _ => &[],
    }
}

impl Kind {
    /// Whether lists can be filtered by the field.
    #[must_use]
    pub fn supports_field(&self, field: &str) -> bool {
        // Cluster-wide kinds with fields of their own have no namespace.
        let namespaced = self.namespaced || extra_fields(&self.group, &self.kind).is_empty();
        field == "metadata.name"
            || (field == "metadata.namespace" && namespaced)
            || extra_fields(&self.group, &self.kind).contains(&field)
            || match &self.body {
                Body::Custom(custom) => {
                    custom.selectable.iter().any(|p| p.text().trim_start_matches('.') == field)
                }
                Body::Builtin(_) => false,
            }
    }

    /// The fields besides name and namespace that lists can be filtered by.
    pub fn selectable_fields(&self) -> impl Iterator<Item = &str> {
        let custom = match &self.body {
            Body::Custom(custom) => custom.selectable.as_slice(),
            Body::Builtin(_) => &[],
        };
        let custom = custom.iter().map(|path| path.text().trim_start_matches('.'));
        extra_fields(&self.group, &self.kind).iter().copied().chain(custom)
    }

    /// Kinds with fields of their own report less about the ones they do not have.
    fn unknown_field(&self, field: &str) -> String {
        let own = !extra_fields(&self.group, &self.kind).is_empty();
        if self.group == "batch" && self.kind == "Job" {
            format!("field label {} not supported for batchv1.Job", go::quote(field))
        } else if own || self.is_custom() {
            format!("field label not supported: {field}")
        } else {
            format!(
                "{} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
                go::quote(field)
            )
        }
    }

    /// The value of a selectable field, as selectors compare it.
    #[must_use]
    pub fn field_value(&self, object: &Value, field: &str) -> String {
        let text = |value: Option<&Value>| match value {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Null) | None => String::new(),
            Some(other) => other.to_string(),
        };
        let found = field.split('.').try_fold(object, |value, key| value.get(key));
        match field {
            "spec.hostNetwork" | "spec.unschedulable" => {
                found.and_then(Value::as_bool).unwrap_or(false).to_string()
            }
            "status.replicas" => found.and_then(Value::as_i64).unwrap_or(0).to_string(),
            "status.successful" => {
                object.at(&["status", "succeeded"]).and_then(Value::as_i64).unwrap_or(0).to_string()
            }
            "source" => {
                let component = text(object.at(&["source", "component"]));
                if component.is_empty() { text(object.get("reportingComponent")) } else { component }
            }
            "spec.host" => text(object.at(&["spec", "nodeName"])),
            "status.podIPs" => text(object.pointer("/status/podIPs/0/ip")),
            _ => text(found),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::scheme::LATEST;

    #[test]
    fn selects_by_fields() {
        let kind = LATEST.by_kind("", "v1", "Pod").unwrap();
        let pod =
            json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}});
        for (text, expected) in [
            ("metadata.name=p", true),
            ("spec.nodeName!=n", false),
            ("status.phase==Running,metadata.name=p", true),
        ] {
            assert_eq!(FieldSelector::parse(kind, text).unwrap().matches(kind, &pod), expected, "{text}");
        }
        let error = FieldSelector::parse(kind, "spec.nope=1").unwrap_err();
        assert_eq!(error.message, "field label not supported: spec.nope");
        assert_eq!(
            FieldSelector::parse(kind, "nonsense").unwrap_err().message,
            "invalid selector: 'nonsense'; can't understand 'nonsense'"
        );
    }
}
