//! Custom resources in the version that a request names: read by the schema they were stored with, converted, and stored
//! in the version that the definition has for that.
//!
//! Implements: Versions in CustomResourceDefinitions.
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/>
//!
//! What may come back from a webhook is judged by `palisade-apimachinery`; built-in kinds pass through here as they are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use palisade_apimachinery::crd::conversion::{ConversionError, Review, check_schema};
use palisade_apimachinery::crd::{SchemaIdentity, Versions};
use palisade_apimachinery::kinds::autoscaling::{self, UnreadableAnnotation};
use palisade_apimachinery::rest::path::Get as _;
use palisade_apimachinery::{Kind, Status, Typed};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::api::Api;
use crate::meta;
use crate::registry::Entry;
use crate::storage::{Object, RecordError};

/// As long as upstream waits for a webhook.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Objects in one request to a webhook at most.
const OBJECTS: usize = 100;
/// Their bytes, about.
const BYTES: usize = 1 << 20;

/// Why an object cannot be sent or stored in a version.
#[derive(Debug, Error)]
pub enum FormError {
    /// Its conversion failed.
    #[error(transparent)]
    Conversion(#[from] ConversionError),
    /// Its defaults are too large.
    #[error("{}", .0.message)]
    Defaults(Box<Status>),
    /// It has no readable metadata.
    #[error(transparent)]
    Unreadable(#[from] RecordError),
    /// It was converted to something that is no object of the kind.
    #[error("converted object cannot be decoded: {0}")]
    Mistyped(#[from] palisade_apimachinery::TypeError),
    /// What an older version keeps in annotations is no JSON.
    #[error(transparent)]
    Annotation(#[from] UnreadableAnnotation),
}

impl FormError {
    /// The error that a client gets: 500, as upstream has it.
    #[must_use]
    pub fn into_status(self) -> Box<Status> {
        match self {
            Self::Defaults(status) => status,
            other => Status::unknown_error(other.to_string()),
        }
    }
}

/// A stored object in the form of its version's schema; kept with the object.
#[derive(Debug)]
struct Coerced {
    schema: Option<SchemaIdentity>,
    form: Form,
}

#[derive(Debug)]
enum Form {
    AsStored,
    Other(Arc<Object>),
    Failed,
}

/// The version that an object is stored in. Those of older data directories have none, and count as the version that is
/// stored now.
fn stored_version<'a>(versions: &'a Versions, object: &'a Object) -> &'a str {
    let storage = versions.storage();
    let known = object.fields().first().and_then(|api_version| api_version.split_once('/'));
    known.filter(|(group, _)| *group == storage.group).map_or(&storage.version, |(_, version)| version)
}

/// The kind that an object is stored as.
fn stored_kind<'a>(versions: &'a Versions, object: &Object) -> Result<&'a Arc<Kind>, ConversionError> {
    let version = stored_version(versions, object);
    let group = &versions.storage().group;
    versions.find(version).ok_or_else(|| ConversionError::UnknownVersion(format!("{group}/{version}")))
}

/// A stored object as its own version has it now: the schema may have lost fields or got defaults since.
fn coerced(kind: &Kind, object: Arc<Object>) -> Result<Arc<Object>, FormError> {
    let schema = kind.schema_identity();
    let kept = object.view(|_| coerce(kind, &object));
    let now = if kept.schema == schema { kept } else { Arc::new(coerce(kind, &object)) };
    match &now.form {
        Form::AsStored => Ok(object),
        Form::Other(other) => Ok(other.clone()),
        // The error is found again rather than kept.
        Form::Failed => {
            let mut value = Value::Object(object.parse());
            kind.coerce_stored(&mut value).map_err(FormError::Defaults)?;
            in_form(&object, value).map(Arc::new)
        }
    }
}

fn coerce(kind: &Kind, object: &Object) -> Coerced {
    let stored = Value::Object(object.parse());
    let mut value = stored.clone();
    let form = match kind.coerce_stored(&mut value) {
        Ok(()) if value == stored => Form::AsStored,
        // swallowed: reported where the object is requested
        Ok(()) => in_form(object, value).map_or(Form::Failed, |other| Form::Other(Arc::new(other))),
        Err(_) => Form::Failed,
    };
    Coerced { schema: kind.schema_identity(), form }
}

fn in_form(object: &Object, value: Value) -> Result<Object, FormError> {
    let mut fields = if let Value::Object(fields) = value { fields } else { Map::new() };
    fields.remove("apiVersion");
    fields.remove("kind");
    Ok(object.in_form(&fields)?)
}

/// Whether an object gets to a version without a webhook, and then how.
fn relabelled(from: &Kind, to: &Kind, object: Arc<Object>) -> Result<Arc<Object>, FormError> {
    if from.has_schema_of(to) {
        return Ok(object);
    }
    let stored = Value::Object(object.parse());
    let mut value = stored.clone();
    to.coerce_converted(&mut value);
    if value == stored { Ok(object) } else { in_form(&object, value).map(Arc::new) }
}

/// A built-in object in the version of a kind that is stored in another one.
fn builtin(kind: &Kind, object: &Object) -> Result<Arc<Object>, FormError> {
    let shown = autoscaling::to_v1(&Value::Object(object.parse()));
    in_form(object, kind.read(shown)?.into_value()).map(Arc::new)
}

/// A built-in object in the version that is stored.
fn builtin_to_storage(api: &Api, kind: &Kind, object: Value) -> Result<Typed, FormError> {
    let mut stored = autoscaling::to_v2(object)?;
    let served = api.registry.served();
    let entry = served.find(&kind.group, kind.stored_version(), &kind.plural);
    let unknown = || ConversionError::UnknownVersion(format!("{}/{}", kind.group, kind.stored_version()));
    let kind = &entry.ok_or_else(unknown)?.kind;
    kind.default(&mut stored).map_err(FormError::Defaults)?;
    Ok(kind.read(stored)?)
}

/// The last state of an object that goes, as it is kept for watches.
pub(crate) fn removed(api: &Api, entry: &Entry, object: Value) -> Result<Value, FormError> {
    if !entry.kind.is_stored_otherwise() {
        return Ok(object);
    }
    builtin_to_storage(api, &entry.kind, object).map(Typed::into_value)
}

/// An object as the resource's version has it, without a call: an error if a webhook would have to be called.
pub(crate) fn present_now(entry: &Entry, object: Arc<Object>) -> Result<Arc<Object>, FormError> {
    let Some(versions) = &entry.versions else {
        return if entry.kind.is_stored_otherwise() { builtin(&entry.kind, &object) } else { Ok(object) };
    };
    let from = stored_kind(versions, &object)?;
    let object = coerced(from, object)?;
    if from.version == entry.kind.version {
        return Ok(object);
    }
    if versions.webhook().is_some() {
        return Err(ConversionError::Failed {
            from: format!("{}, Kind={}", from.api_version(), from.kind),
            why: "webhooks are not called here".to_owned(),
        }
        .into());
    }
    relabelled(from, &entry.kind, object)
}

/// An object as the resource's version has it.
pub(crate) async fn present(api: &Api, entry: &Entry, object: Arc<Object>) -> Result<Arc<Object>, FormError> {
    if entry.versions.is_none() {
        return present_now(entry, object);
    }
    let presented = present_all(api, entry, vec![object.clone()]).await?;
    Ok(presented.into_iter().next().unwrap_or(object))
}

/// Objects as the resource's version has them, in their order.
pub(crate) async fn present_all(
    api: &Api,
    entry: &Entry,
    objects: Vec<Arc<Object>>,
) -> Result<Vec<Arc<Object>>, FormError> {
    let Some(versions) = &entry.versions else {
        if entry.kind.is_stored_otherwise() {
            return objects.iter().map(|object| builtin(&entry.kind, object)).collect();
        }
        return Ok(objects);
    };
    let mut presented = Vec::with_capacity(objects.len());
    // What a webhook converts, by the version that it is stored in.
    let mut others: BTreeMap<&str, (&Arc<Kind>, Vec<usize>)> = BTreeMap::new();
    for object in objects {
        let from = stored_kind(versions, &object)?;
        let object = coerced(from, object)?;
        if from.version == entry.kind.version {
            presented.push(object);
        } else if versions.webhook().is_none() {
            presented.push(relabelled(from, &entry.kind, object)?);
        } else {
            others.entry(&from.version).or_insert_with(|| (from, Vec::new())).1.push(presented.len());
            presented.push(object);
        }
    }
    for (from, places) in others.into_values() {
        let mut places = places.as_slice();
        while !places.is_empty() {
            let (now, later) = places.split_at(batch(&presented, places));
            places = later;
            let sent: Vec<Value> =
                now.iter().filter_map(|at| presented.get(*at)).map(|o| typed(from, o.parse())).collect();
            let converted = convert(api, versions, from, &entry.kind, &sent).await?;
            for (at, mut value) in now.iter().zip(converted) {
                entry.kind.coerce_converted(&mut value);
                if let Some(place) = presented.get_mut(*at) {
                    *place = Arc::new(in_form(place, value)?);
                }
            }
        }
    }
    Ok(presented)
}

/// How many of the places go into one request.
fn batch(objects: &[Arc<Object>], places: &[usize]) -> usize {
    let mut bytes = 0_usize;
    let fits = places.iter().take(OBJECTS).take_while(|at| {
        let before = bytes;
        bytes = bytes.saturating_add(objects.get(**at).map_or(0, |object| object.json.len()));
        before == 0 || bytes <= BYTES
    });
    fits.count().max(1)
}

/// An object of a kind that need not be the one of a request.
fn typed(kind: &Kind, mut object: Map<String, Value>) -> Value {
    object.insert("apiVersion".to_owned(), kind.api_version().into());
    object.insert("kind".to_owned(), kind.kind.as_str().into());
    Value::Object(object)
}

/// Calls the webhook.
async fn convert(
    api: &Api,
    versions: &Versions,
    from: &Kind,
    to: &Kind,
    sent: &[Value],
) -> Result<Vec<Value>, ConversionError> {
    let Some(webhook) = versions.webhook() else { return Ok(sent.to_vec()) };
    let uid = meta::new_uid();
    let review = Review::new(&webhook.review_versions, &uid, from, to)?;
    let failed = |why: String| review.failed(why);
    let body = serde_json::to_vec(&review.request(sent)).map_err(|error| failed(error.to_string()))?;
    let endpoint = api.webhooks.endpoint(&webhook.client_config);
    let answer = endpoint.post(body, TIMEOUT).await.map_err(|error| failed(error.cause()))?;
    let answer: Value =
        palisade_model::json::from_slice(&answer).map_err(|error| failed(error.to_string()))?;
    review.response(sent, &answer)
}

impl Entry {
    /// A stored object with the version that it is stored in, for changes of its metadata by the server itself.
    #[must_use]
    pub fn as_stored(&self, object: &Object) -> Value {
        let custom = self.versions.as_deref().map(|versions| stored_version(versions, object));
        let version = custom.or_else(|| self.kind.is_stored_otherwise().then(|| self.kind.stored_version()));
        let mut typed = self.typed(object.parse());
        if let (Some(version), Some(fields)) = (version, typed.as_object_mut()) {
            fields.insert("apiVersion".to_owned(), format!("{}/{version}", self.kind.group).into());
        }
        typed
    }

    /// The kind of an object of the resource, which may be of another version than requests for it.
    pub(crate) fn kind_of(&self, object: &Value) -> Result<&Arc<Kind>, ConversionError> {
        let Some(versions) = &self.versions else { return Ok(&self.kind) };
        let api_version = object.text("apiVersion");
        if api_version.is_empty() || api_version == self.kind.api_version() {
            return Ok(&self.kind);
        }
        let version = api_version.strip_prefix(&self.kind.group).and_then(|rest| rest.strip_prefix('/'));
        let kind = version.and_then(|version| versions.find(version));
        kind.ok_or_else(|| ConversionError::UnknownVersion(api_version.to_owned()))
    }
}

/// An object in the version that the resource is stored in. What a webhook made of it must fit the schema.
pub(crate) async fn to_storage(api: &Api, entry: &Entry, object: Typed) -> Result<Typed, FormError> {
    let Some(versions) = &entry.versions else {
        if entry.kind.is_stored_otherwise() {
            return builtin_to_storage(api, &entry.kind, object.into_value());
        }
        return Ok(object);
    };
    let (from, to) = (entry.kind_of(&object)?, versions.storage());
    if from.version == to.version {
        return Ok(object);
    }
    let sent = [object.into_value()];
    let converted = match versions.webhook() {
        Some(_) => convert(api, versions, from, to, &sent).await?,
        None => sent.to_vec(),
    };
    let Some(Value::Object(converted)) = converted.into_iter().next() else {
        return Err(ConversionError::UnknownVersion(to.api_version()).into());
    };
    let stored = to.read(typed(to, converted))?;
    if versions.webhook().is_some() {
        check_schema(from, to, &stored)?;
    }
    Ok(stored)
}
