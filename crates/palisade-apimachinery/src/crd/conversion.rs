//! What a conversion webhook is sent, and what of its response is taken.
//!
//! Implements: ConversionReview of `apiextensions.k8s.io`, Versions in CustomResourceDefinitions, "Webhook conversion".
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/#webhook-conversion>
//! Leaves to others: the call, and dropping what the schema of the new version does not have.

use palisade_base::field_path::Path;
use palisade_base::go;
use palisade_base::version::KubeVersion;
use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::kinds::REVIEW_VERSIONS;
use crate::rest::meta;
use crate::rest::path::{Errors, Get};
use crate::scheme::Kind;

/// Why objects are not converted, worded as upstream does.
#[derive(Debug, Error)]
pub enum ConversionError {
    /// The webhook cannot be reached, reports a failure, or does not respond with a review.
    #[error("conversion webhook for {from} failed: {why}")]
    Failed {
        /// What was to be converted.
        from: String,
        /// The failure.
        why: String,
    },
    /// Objects are missing, or there are too many.
    #[error("conversion webhook for {from} returned {found} objects, expected {expected}")]
    Count {
        /// What was to be converted.
        from: String,
        /// How many came back.
        found: usize,
        /// How many were sent.
        expected: usize,
    },
    /// What came back is another object, or none.
    #[error("conversion webhook for {from} returned invalid object: {why}")]
    Object {
        /// What was to be converted.
        from: String,
        /// What is wrong with it.
        why: String,
    },
    /// The version or kind is another than the one that was requested.
    #[error("conversion webhook for {from} returned invalid object at index {index}: {why}")]
    Header {
        /// What was to be converted.
        from: String,
        /// Which object.
        index: usize,
        /// What is wrong with it.
        why: String,
    },
    /// Labels or annotations that no object can have.
    #[error("conversion webhook for {from} returned invalid metadata: {why}")]
    Metadata {
        /// What was to be converted.
        from: String,
        /// What is wrong with it.
        why: String,
    },
    /// No version of ConversionReview that the webhook supports is known here.
    #[error("no supported conversion review versions")]
    ReviewVersions,
    /// The definition does not have the version.
    #[error("request to convert CR from an invalid group/version: {0}")]
    UnknownVersion(String),
    /// The object does not fit the schema of the version it was converted to.
    #[error("conversion webhook for {from} returned an object that does not fit {to}: {why}")]
    Schema {
        /// What was to be converted.
        from: String,
        /// The version that was requested.
        to: String,
        /// What does not fit.
        why: String,
    },
}

/// A request to a webhook.
#[derive(Debug)]
pub struct Review<'a> {
    version: &'static str,
    uid: &'a str,
    /// As Go prints the kind of what is converted.
    from: String,
    to: &'a Kind,
}

impl<'a> Review<'a> {
    /// A request to convert objects from one version to another, in the first form of those that the webhook reads.
    ///
    /// # Errors
    ///
    /// If it reads none that is known.
    pub fn new(
        review_versions: &[String],
        uid: &'a str,
        from: &Kind,
        to: &'a Kind,
    ) -> Result<Self, ConversionError> {
        let known = review_versions.iter().find_map(|v| REVIEW_VERSIONS.iter().find(|known| *known == v));
        let version = known.ok_or(ConversionError::ReviewVersions)?;
        let from = format!("{}, Kind={}", from.api_version(), from.kind);
        Ok(Self { version, uid, from, to })
    }

    fn api_version(&self) -> String {
        format!("apiextensions.k8s.io/{}", self.version)
    }

    /// The failure of the call.
    #[must_use]
    pub fn failed(&self, why: impl Into<String>) -> ConversionError {
        ConversionError::Failed { from: self.from.clone(), why: why.into() }
    }

    /// The body of the request.
    #[must_use]
    pub fn request(&self, objects: &[Value]) -> Value {
        json!({
            "kind": "ConversionReview",
            "apiVersion": self.api_version(),
            "request": {"uid": self.uid, "desiredAPIVersion": self.to.api_version(), "objects": objects},
            "response": {"uid": "", "convertedObjects": null, "result": {"metadata": {}}},
        })
    }

    /// The converted objects: each is the one that was sent, in another version, with the metadata that it had but for
    /// labels and annotations. Their content is not judged here.
    ///
    /// # Errors
    ///
    /// If the response is no success, or anything in it is not what was requested.
    pub fn response(&self, sent: &[Value], review: &Value) -> Result<Vec<Value>, ConversionError> {
        let response = review.get("response").filter(|response| !response.is_null());
        if self.version == "v1" {
            let (group, kind) = (review.text("apiVersion"), review.text("kind"));
            if group != self.api_version() || kind != "ConversionReview" {
                let expected = format!("{}, Kind=ConversionReview", self.api_version());
                return Err(
                    self.failed(format!("expected webhook response of {expected}, got {group}, Kind={kind}"))
                );
            }
        }
        let response = response.ok_or_else(|| self.failed("no response provided"))?;
        let uid = response.text("uid");
        if self.version == "v1" && uid != self.uid {
            let (expected, found) = (go::quote(self.uid), go::quote(uid));
            return Err(self.failed(format!("expected response.uid={expected}, got {found}")));
        }
        let result = response.get("result").unwrap_or(&Value::Null);
        let (status, message) = (result.text("status"), result.text("message"));
        if status != "Success" {
            return Err(if message.is_empty() {
                self.failed(format!("response.result.status was '{status}', not 'Success'"))
            } else {
                self.failed(message)
            });
        }
        let objects = response.list("convertedObjects");
        if objects.len() != sent.len() {
            return Err(ConversionError::Count {
                from: self.from.clone(),
                found: objects.len(),
                expected: sent.len(),
            });
        }
        sent.iter().zip(objects).enumerate().map(|(at, pair)| self.object(at, pair)).collect()
    }

    fn object(&self, index: usize, (sent, object): (&Value, &Value)) -> Result<Value, ConversionError> {
        let header = |why| ConversionError::Header { from: self.from.clone(), index, why };
        let invalid = |why| ConversionError::Object { from: self.from.clone(), why };
        if !object.is_object() {
            return Err(invalid(format!(
                "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                go::json_type(object)
            )));
        }
        let (expected, found) = (self.to.api_version(), object.text("apiVersion"));
        if found != expected {
            return Err(header(format!("invalid groupVersion (expected {expected}, received {found})")));
        }
        if object.text("kind") != self.to.kind {
            let (expected, found) = (&self.to.kind, object.text("kind"));
            return Err(header(format!("invalid kind (expected {expected}, received {found})")));
        }
        let text = |object: &Value, field: &str| {
            object.get("metadata").map_or("", |metadata| metadata.text(field)).to_owned()
        };
        for (field, shown) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
            let (expected, found) = (text(sent, field), text(object, field));
            if expected != found {
                return Err(invalid(format!("must have the same {shown}: {expected} != {found}")));
            }
        }
        let mut converted = object.clone();
        let metadata = restored(sent, object, self.to.emulated)
            .map_err(|why| ConversionError::Metadata { from: self.from.clone(), why: why.to_string() })?;
        if let Some(fields) = converted.as_object_mut() {
            fields.insert("metadata".to_owned(), metadata);
        }
        Ok(converted)
    }
}

/// Why the metadata of a converted object is not taken.
#[derive(Debug, Error)]
enum MetadataError {
    #[error("missing metadata in converted object")]
    Missing,
    #[error("invalid {field} of type {found} in converted object")]
    Type { field: String, found: &'static str },
    #[error("metadata.{field}[{key}] must be a string, but is {found} in converted object")]
    NotText { field: &'static str, key: String, found: &'static str },
    /// Field errors, as Go lists several of them.
    #[error("{}", match .0.as_slice() { [one] => one.clone(), all => format!("[{}]", all.join(", ")) })]
    Invalid(Vec<String>),
}

/// The metadata that was sent, with the labels and annotations that came back.
fn restored(sent: &Value, object: &Value, version: KubeVersion) -> Result<Value, MetadataError> {
    let given = object.get("metadata").ok_or(MetadataError::Missing)?;
    let given = given
        .as_object()
        .ok_or_else(|| MetadataError::Type { field: "metadata".to_owned(), found: go_type(given) })?;
    let mut metadata = sent.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        let Some(texts) = given.get(field).filter(|texts| !texts.is_null()) else {
            metadata.remove(field);
            continue;
        };
        let texts = texts.as_object().ok_or_else(|| MetadataError::Type {
            field: format!("metadata.{field}"),
            found: go_type(texts),
        })?;
        if let Some((key, value)) = texts.iter().find(|(_, value)| !value.is_string()) {
            return Err(MetadataError::NotText { field, key: key.clone(), found: go_type(value) });
        }
        if metadata.get(field).and_then(Value::as_object) != Some(texts) {
            validate(field, texts, version)?;
        }
        metadata.insert(field.to_owned(), Value::Object(texts.clone()));
    }
    Ok(Value::Object(metadata))
}

fn validate(field: &str, texts: &Map<String, Value>, version: KubeVersion) -> Result<(), MetadataError> {
    let mut errors = Errors::new(version);
    let owner = json!({field: texts});
    let at = Path::Root("metadata");
    if field == "labels" {
        meta::validate_labels(&owner, field, &at, &mut errors);
    } else {
        meta::validate_annotations(&owner, &at, &mut errors);
    }
    if errors.list.is_empty() { Ok(()) } else { Err(MetadataError::Invalid(shown(&errors))) }
}

/// Field errors as Go prints them.
fn shown(errors: &Errors) -> Vec<String> {
    errors.list.iter().map(|error| format!("{}: {}", error.field(), error.body(errors.version))).collect()
}

/// Judges an object that is to be stored as it was converted.
///
/// # Errors
///
/// If it does not fit the schema.
pub fn check_schema(from: &Kind, to: &Kind, object: &Value) -> Result<(), ConversionError> {
    let mut errors = Errors::new(to.emulated);
    to.check_schema(object, &mut errors);
    if errors.list.is_empty() {
        return Ok(());
    }
    Err(ConversionError::Schema {
        from: format!("{}, Kind={}", from.api_version(), from.kind),
        to: to.api_version(),
        why: shown(&errors).join(", "),
    })
}

/// The type that Go's decoder gives to a value.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::crd::Definition;

    fn versions() -> Vec<Arc<Kind>> {
        let schema = |field: &str| json!({"openAPIV3Schema": {"type": "object", "properties": {field: {"type": "string"}}}});
        let definition = json!({"spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": schema("one")},
                {"name": "v2", "served": true, "storage": false, "schema": schema("two")},
            ],
        }});
        Definition::read(&definition.to_string().into(), KubeVersion::LATEST, None).unwrap().kinds
    }

    fn sent() -> Value {
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "one": "x",
               "metadata": {"name": "w", "namespace": "n", "uid": "u", "labels": {"a": "b"}, "generation": 1}})
    }

    #[test]
    fn nothing_but_the_object_that_was_sent_is_taken() {
        let kinds = versions();
        let converted = json!({"apiVersion": "example.com/v2", "kind": "Widget", "two": "x",
                               "metadata": {"name": "w", "namespace": "n", "uid": "u", "labels": {"a": "c"}, "generation": 9}});
        let change = |pointer: &str, value: Value| {
            let mut object = converted.clone();
            *object.pointer_mut(pointer).unwrap() = value;
            object
        };
        let answer = |objects: Vec<Value>| {
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
                   "response": {"uid": "r", "result": {"status": "Success"}, "convertedObjects": objects}})
        };
        let with = |pointer: &str, value: Value| {
            let mut review = answer(vec![converted.clone()]);
            *review.pointer_mut(pointer).unwrap() = value;
            review
        };
        let whole = "conversion webhook for example.com/v1, Kind=Widget ";
        for (case, review, expected) in [
            (
                "another version of the review",
                with("/apiVersion", "apiextensions.k8s.io/v1beta1".into()),
                "failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got apiextensions.k8s.io/v1beta1, Kind=ConversionReview",
            ),
            ("no response", with("/response", Value::Null), "failed: no response provided"),
            (
                "the response to another request",
                with("/response/uid", "x".into()),
                "failed: expected response.uid=\"r\", got \"x\"",
            ),
            (
                "a failure",
                with("/response/result", json!({"status": "Failure", "message": "no"})),
                "failed: no",
            ),
            (
                "no result",
                with("/response/result", json!({})),
                "failed: response.result.status was '', not 'Success'",
            ),
            ("no object", answer(vec![]), "returned 0 objects, expected 1"),
            (
                "two objects",
                answer(vec![converted.clone(), converted.clone()]),
                "returned 2 objects, expected 1",
            ),
            (
                "a list",
                answer(vec![json!([])]),
                "returned invalid object: json: cannot unmarshal array into Go value of type map[string]interface {}",
            ),
            (
                "not converted",
                answer(vec![sent()]),
                "returned invalid object at index 0: invalid groupVersion (expected example.com/v2, received example.com/v1)",
            ),
            (
                "another kind",
                answer(vec![change("/kind", "Other".into())]),
                "returned invalid object at index 0: invalid kind (expected Widget, received Other)",
            ),
            (
                "another name",
                answer(vec![change("/metadata/name", "x".into())]),
                "returned invalid object: must have the same name: w != x",
            ),
            (
                "another namespace",
                answer(vec![change("/metadata/namespace", "x".into())]),
                "returned invalid object: must have the same namespace: n != x",
            ),
            (
                "another UID",
                answer(vec![change("/metadata/uid", "x".into())]),
                "returned invalid object: must have the same UID: u != x",
            ),
            (
                "a label that is a number",
                answer(vec![change("/metadata/labels", json!({"a": 1}))]),
                "returned invalid metadata: metadata.labels[a] must be a string, but is int64 in converted object",
            ),
            (
                "a list of labels",
                answer(vec![change("/metadata/labels", json!([]))]),
                "returned invalid metadata: invalid metadata.labels of type []interface {} in converted object",
            ),
        ] {
            let review_request = Review::new(&["v2".into(), "v1".into()], "r", &kinds[0], &kinds[1]).unwrap();
            let error = review_request.response(&[sent()], &review).expect_err(case).to_string();
            assert_eq!(error, format!("{whole}{expected}"), "{case}");
        }
        let bad_label = answer(vec![change("/metadata/labels", json!({"a b": "c"}))]);
        let review = Review::new(&["v1".into()], "r", &kinds[0], &kinds[1]).unwrap();
        assert!(review.response(&[sent()], &bad_label).is_err());
        let taken = review.response(&[sent()], &answer(vec![converted])).unwrap();
        assert_eq!(taken[0]["metadata"]["labels"]["a"], "c", "labels may change");
        assert_eq!(taken[0]["metadata"]["generation"], 1, "nothing else of the metadata may");
        assert_eq!(taken[0]["two"], "x");
    }

    #[test]
    fn the_first_known_form_of_the_review_is_sent() {
        let kinds = versions();
        let review =
            Review::new(&["v9".into(), "v1beta1".into(), "v1".into()], "r", &kinds[0], &kinds[1]).unwrap();
        assert_eq!(review.request(&[sent()])["apiVersion"], "apiextensions.k8s.io/v1beta1");
        assert_eq!(review.request(&[sent()])["request"]["desiredAPIVersion"], "example.com/v2");
        let error = Review::new(&["v9".into()], "r", &kinds[0], &kinds[1]).unwrap_err();
        assert_eq!(error.to_string(), "no supported conversion review versions");
    }
}
