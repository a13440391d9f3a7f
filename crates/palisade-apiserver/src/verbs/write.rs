//! What create, update, patch and delete share: reading bodies, the way through admission and validation, and
//! the commit with its retries.

use std::sync::Arc;

use palisade_apimachinery::apply::{self, Manager};
use palisade_apimachinery::{Decoded, FieldError, FieldValidation, Kind, Status, go, rest};
use serde_json::{Map, Value, json};

use crate::admission_chain::{Notes, Operation, Request};
use crate::api::Call;
use crate::auth::escalation;
use crate::events;
use crate::http::{Reply, negotiate, protobuf};
use crate::meta;
use crate::options::WriteOptions;
use crate::registry::Entry;
use crate::render;
use crate::selection;
use crate::storage::{CommitError, Draft, Expect, Object, Write};
use crate::strategy;
use crate::webhooks;

/// How often a write without a precondition is tried again when others write the same object.
const RETRIES: usize = 64;

/// Media types bodies may have.
const BUILTIN_TYPES: &[&str] =
    &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
const CUSTOM_TYPES: &[&str] = &["application/json", "application/yaml"];

/// A write in the making.
#[derive(Debug)]
pub struct Writer<'a> {
    /// The request.
    pub call: &'a Call<'a>,
    /// The resource.
    pub entry: &'a Arc<Entry>,
    /// The subresource written through, empty for the object itself.
    pub subresource: &'a str,
    /// Options.
    pub options: WriteOptions,
    /// What admission said.
    pub notes: Notes,
    /// The time of this write.
    pub now: String,
    manager: String,
}

/// What a write left: a stored object, or one that a dry run would have stored.
#[derive(Debug)]
pub enum Written {
    /// Stored, or found unchanged.
    Stored(Arc<Object>),
    /// Not stored.
    Dry(Value),
    /// The last finalizer went and the object with it.
    Deleted(Value),
}

impl Written {
    /// The object with `apiVersion` and `kind`.
    #[must_use]
    pub fn value(&self, entry: &Entry) -> Value {
        match self {
            Self::Stored(object) => entry.typed(object.parse()),
            Self::Dry(value) | Self::Deleted(value) => value.clone(),
        }
    }
}

impl<'a> Writer<'a> {
    /// A write through a resource or subresource.
    #[must_use]
    pub fn new(
        call: &'a Call<'a>,
        entry: &'a Arc<Entry>,
        subresource: &'a str,
        options: WriteOptions,
    ) -> Self {
        let manager = if options.field_manager.is_empty() {
            // swallowed: a user agent that is no text names no manager
            let agent = call.parts.headers.get(http::header::USER_AGENT).and_then(|a| a.to_str().ok());
            apply::manager_from_user_agent(agent.unwrap_or_default())
        } else {
            options.field_manager.clone()
        };
        Self { call, entry, subresource, options, notes: Notes::default(), now: meta::now(), manager }
    }

    /// Who manages the fields written.
    #[must_use]
    pub fn manager(&self) -> Manager<'_> {
        Manager { name: &self.manager, subresource: self.subresource, now: &self.now }
    }

    fn kind(&self) -> &'a Kind {
        &self.entry.kind
    }

    /// Reads the body as an object of a kind.
    pub fn decode(&mut self, kind: &Kind) -> Result<Value, Box<Status>> {
        let Decoded { object, warnings } = decode_body(self.call, kind, self.options.validation)?;
        self.notes.warnings.extend(warnings);
        Ok(object)
    }

    /// The namespace of the object must be the one of the path, or unsaid.
    pub fn check_namespace(&self, object: &mut Value) -> Result<(), Box<Status>> {
        rest::ensure_namespace(self.kind(), object, &self.call.info.namespace)
    }

    fn admission<'r>(&'r self, operation: Operation, name: &'r str, old: Option<&'r Value>) -> Request<'r> {
        Request {
            operation,
            user: self.call.user,
            kind: self.kind(),
            subresource: self.subresource,
            namespace: &self.call.info.namespace,
            name,
            old_object: old,
            dry_run: self.options.dry_run,
            cluster: &**self.call.api,
        }
    }

    /// Lets plugins and webhooks change the object.
    async fn admit(
        &mut self,
        operation: Operation,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Box<Status>> {
        let api = self.call.api;
        let name = self.name_of(object);
        let mut notes = std::mem::take(&mut self.notes);
        let request = self.admission(operation, &name, old);
        let mut result = api.chain.admit(&request, object, &mut notes);
        if result.is_ok()
            && let Some(hooks) = api.webhooks.mutating()
        {
            let options = self.options_for(operation);
            let dispatch = self.dispatch(&request, &options);
            let builtin = |object: &mut Value, notes: &mut Notes| api.chain.admit(&request, object, notes);
            result = dispatch.mutate(&hooks, &mut Some(object), &mut notes, builtin).await;
        }
        self.notes = notes;
        result
    }

    /// Lets the judging plugins, and then the judging webhooks, have their say.
    pub async fn judge(
        &mut self,
        operation: Operation,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Box<Status>> {
        let name = object.map_or_else(|| self.call.info.name.clone(), |object| self.name_of(object));
        let mut notes = std::mem::take(&mut self.notes);
        let request = self.admission(operation, &name, old);
        let result = self.judged(&request, object, &mut notes).await;
        self.notes = notes;
        result
    }

    /// Lets everybody have their say about a deletion. Webhooks that change objects are asked as well, as upstream does.
    pub async fn admit_delete(&mut self, name: &str, old: &Value) -> Result<(), Box<Status>> {
        let mut notes = std::mem::take(&mut self.notes);
        let request = self.admission(Operation::Delete, name, Some(old));
        let mut result = Ok(());
        if let Some(hooks) = self.call.api.webhooks.mutating() {
            let options = self.options_for(Operation::Delete);
            let dispatch = self.dispatch(&request, &options);
            result = dispatch.mutate(&hooks, &mut None, &mut notes, |_, _| Ok(())).await;
        }
        if result.is_ok() {
            result = self.judged(&request, None, &mut notes).await;
        }
        self.notes = notes;
        result
    }

    async fn judged(
        &self,
        request: &Request<'_>,
        object: Option<&Value>,
        notes: &mut Notes,
    ) -> Result<(), Box<Status>> {
        let api = self.call.api;
        api.chain.validate(request, object, notes)?;
        let Some(hooks) = api.webhooks.validating() else { return Ok(()) };
        let options = self.options_for(request.operation);
        self.dispatch(request, &options).validate(&hooks, object, notes).await
    }

    fn dispatch<'d>(&'d self, request: &'d Request<'d>, options: &'d Value) -> webhooks::Dispatch<'d> {
        let api = self.call.api;
        webhooks::Dispatch { webhooks: &api.webhooks, request, served: api.registry.served(), options }
    }

    /// The options of the request, as webhooks get them.
    fn options_for(&self, operation: Operation) -> Value {
        let mut given = match operation {
            Operation::Delete => untyped_body(self.call).unwrap_or_else(|_| json!({})),
            _ => json!({}),
        };
        if let Some(fields) = given.as_object_mut() {
            for key in ["fieldManager", "fieldValidation", "propagationPolicy"] {
                if let Some(text) = self.call.query.get(key).filter(|text| !text.is_empty()) {
                    fields.insert(key.to_owned(), text.into());
                }
            }
            if self.options.dry_run {
                fields.insert("dryRun".to_owned(), json!(["All"]));
            }
        }
        webhooks::options(operation, given)
    }

    fn name_of(&self, object: &Value) -> String {
        let name = meta::meta_text(object, "name");
        if name.is_empty() { self.call.info.name.clone() } else { name.to_owned() }
    }

    fn check_escalation(&self, object: &Value, old: Option<&Value>) -> Result<(), Box<Status>> {
        if self.kind().group != "rbac.authorization.k8s.io" {
            return Ok(());
        }
        let namespace = if self.kind().namespaced { self.call.info.namespace.as_str() } else { "" };
        let authorizer = &self.call.api.authorizer;
        escalation::check(authorizer, self.call.user, &self.kind().plural, namespace, object, old)
    }

    /// Puts a new object through everything up to the store. The object is decoded, not yet defaulted.
    pub async fn create(&mut self, mut object: Value) -> Result<Written, Box<Status>> {
        let kind = self.kind();
        if self.entry.terminating {
            return Err(Status::method_not_supported(kind.resource_name(), "create"));
        }
        // A body of `null` is an empty object.
        meta::edit_metadata(&mut object, |_| {});
        rest::on_create_request(kind, &mut object, &self.call.info.namespace)?;
        kind.default(&mut object);
        apply::on_update(kind, None, &mut object, &self.manager());
        self.finish_create(object).await
    }

    /// Puts a new object, managed fields included, through admission, validation and into the store.
    pub async fn finish_create(&mut self, mut object: Value) -> Result<Written, Box<Status>> {
        let kind = self.kind();
        self.admit(Operation::Create, &mut object, None).await?;
        let versioned = !matches!(meta::meta_text(&object, "resourceVersion"), "" | "0");
        let generated = meta::meta_text(&object, "name").is_empty();
        let unnamed = generated.then(|| object.clone());
        for attempt in 0..8 {
            if let (true, Some(unnamed)) = (attempt > 0, &unnamed) {
                object.clone_from(unnamed);
            }
            // What was told at the first attempt need not be told again.
            let mut told = Vec::new();
            let prepared = strategy::before_create(self.call, kind, &mut object, &self.now, &mut told);
            if attempt == 0 {
                self.notes.warnings.append(&mut told);
            }
            let warnings = prepared?;
            self.check_escalation(&object, None)?;
            if attempt == 0 {
                // Upstream warns before the judging plugins have their say, and so also where they refuse.
                self.notes.warnings.extend(warnings);
                self.judge(Operation::Create, Some(&object), None).await?;
            }
            let name = meta::meta_text(&object, "name").to_owned();
            let key = self.entry.key(&self.call.info.namespace, &name);
            if self.options.dry_run {
                if self.entry.bucket.get(&key).is_some() {
                    return Err(Status::already_exists(kind.resource_name(), &name));
                }
                return Ok(Written::Dry(object));
            }
            if versioned {
                return Err(Status::unknown_error(
                    "resourceVersion should not be set on objects to be created",
                ));
            }
            match self.commit(&key, Expect::Absent, &object, false).await {
                Ok(stored) => return Ok(Written::Stored(stored)),
                Err(CommitError::Exists) if generated => {}
                Err(CommitError::Exists) => {
                    return Err(Status::already_exists(kind.resource_name(), &name));
                }
                Err(error) => return Err(unavailable(&error)),
            }
        }
        let base = meta::meta_text(&object, "generateName").to_owned();
        Err(Status::generate_name_conflict(kind.resource_name(), &base, 1))
    }

    /// Changes a stored object: `transform` makes the new one (decoded, with managed fields) from the live one.
    pub async fn update(
        &mut self,
        name: &str,
        mut transform: impl FnMut(&mut Self, &Value) -> Result<Value, Box<Status>>,
    ) -> Result<Written, Box<Status>> {
        let kind = self.kind();
        let key = self.entry.key(&self.call.info.namespace, name);
        for _ in 0..RETRIES {
            let Some(stored) = self.entry.bucket.get(&key) else {
                return Err(Status::not_found(kind.resource_name(), name));
            };
            let live = self.entry.typed(stored.parse());
            let noted = self.notes.warnings.len();
            let mut object = transform(self, &live)?;
            rest::check_name(&object, name, &self.call.info.namespace)?;
            self.check_preconditions(&mut object, &stored)?;
            self.admit(Operation::Update, &mut object, Some(&live)).await?;
            let warnings = strategy::before_update(
                self.call,
                kind,
                self.subresource,
                &mut object,
                &live,
                &mut self.notes.warnings,
            )?;
            self.check_escalation(&object, Some(&live))?;
            self.notes.warnings.extend(warnings);
            self.judge(Operation::Update, Some(&object), Some(&live)).await?;
            if rest::is_noop(&object, &live) {
                return Ok(Written::Stored(stored));
            }
            let goes = deleted_by_update(&object);
            if self.options.dry_run {
                return Ok(if goes { Written::Deleted(object) } else { Written::Dry(object) });
            }
            match self.commit(&key, Expect::Revision(stored.revision), &object, goes).await {
                Ok(stored) if goes => return Ok(Written::Deleted(self.entry.typed(stored.parse()))),
                Ok(stored) => return Ok(Written::Stored(stored)),
                // Somebody was faster. Who named a version is told so in the next round.
                Err(CommitError::Conflict | CommitError::Exists) => self.notes.warnings.truncate(noted),
                Err(error) => return Err(unavailable(&error)),
            }
        }
        Err(Status::modified(kind.resource_name(), name))
    }

    /// The client's wishes about which object, and which version of it, it means.
    fn check_preconditions(&self, object: &mut Value, stored: &Object) -> Result<(), Box<Status>> {
        let kind = self.kind();
        let uid = meta::meta_text(object, "uid").to_owned();
        if !uid.is_empty() && uid != stored.uid() {
            let (namespace, name, found) = (stored.namespace(), stored.name(), stored.uid());
            return Err(rest::uid_precondition_failed(kind, namespace, name, &uid, found));
        }
        let current = stored.revision.to_string();
        let version = meta::meta_text(object, "resourceVersion");
        if version.is_empty() || version == "0" {
            if !strategy::needs_resource_version(kind) {
                meta::edit_metadata(object, |metadata| {
                    metadata.insert("resourceVersion".to_owned(), current.into());
                });
            }
            return Ok(());
        }
        if version == current {
            return Ok(());
        }
        if version.parse::<u64>().is_err() {
            let why = format!("strconv.ParseUint: parsing {}: invalid syntax", go::quote(version));
            let error = FieldError::invalid("resourceVersion", version, why);
            // The storage names the resource where validation would name the kind.
            return Err(Status::invalid(kind.resource_name(), stored.name(), &[error], kind.emulated));
        }
        Err(Status::modified(kind.resource_name(), stored.name()))
    }

    /// Commits an object.
    pub async fn commit(
        &self,
        key: &str,
        expect: Expect,
        object: &Value,
        delete: bool,
    ) -> Result<Arc<Object>, CommitError> {
        commit(self.call.api, self.entry, key, expect, object, delete).await
    }

    /// The answer: the object, with what admission said.
    #[must_use]
    pub fn reply(self, code: u16, written: &Written, output: negotiate::Output) -> Reply {
        let query = self.call.query;
        let mut reply = match written {
            Written::Stored(object) => render::object(code, self.entry, object, output, query),
            Written::Dry(value) | Written::Deleted(value) => {
                render::value(code, self.entry, value, output, query)
            }
        };
        self.annotate(&mut reply);
        reply
    }

    /// Adds what admission said to an answer.
    pub fn annotate(self, reply: &mut Reply) {
        reply.warnings.extend(self.notes.warnings);
        reply.audit.extend(self.notes.audit);
    }

    /// An error, with what admission said before.
    #[must_use]
    pub fn error(self, status: Box<Status>) -> Reply {
        let mut reply = Reply::error(status);
        self.annotate(&mut reply);
        reply
    }
}

/// Commits an object of a resource; an event in both its forms.
pub async fn commit(
    api: &crate::api::Api,
    entry: &Entry,
    key: &str,
    expect: Expect,
    object: &Value,
    delete: bool,
) -> Result<Arc<Object>, CommitError> {
    let stored = commit_one(api, entry, key, expect, object, delete).await?;
    if let Some((other, twin)) = events::twin(api, entry, object) {
        let expect = other.bucket.get(key).map(|known| Expect::Revision(known.revision));
        if !delete || expect.is_some() {
            // Somebody who writes the other form at this moment is newer, and theirs is written here in turn.
            let _ = commit_one(api, &other, key, expect.unwrap_or(Expect::Absent), &twin, delete).await;
        }
    }
    Ok(stored)
}

async fn commit_one(
    api: &crate::api::Api,
    entry: &Entry,
    key: &str,
    expect: Expect,
    object: &Value,
    delete: bool,
) -> Result<Arc<Object>, CommitError> {
    let fields = selection::selectable_values(&entry.kind, object);
    let mut value: Map<String, Value> = object.as_object().cloned().unwrap_or_default();
    value.remove("apiVersion");
    value.remove("kind");
    let write = Write {
        bucket: entry.bucket.clone(),
        key: key.to_owned(),
        expect,
        draft: Draft { value, fields },
        delete,
    };
    api.store.commit(write).await
}

/// 500: the disk.
#[must_use]
pub fn unavailable(error: &CommitError) -> Box<Status> {
    Status::internal(error.to_string())
}

/// An object on its way out whose last finalizer has gone is gone.
fn deleted_by_update(object: &Value) -> bool {
    let grace = object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64);
    let namespace_content = object.get("kind").and_then(Value::as_str) == Some("Namespace")
        && object.pointer("/spec/finalizers").and_then(Value::as_array).is_some_and(|f| !f.is_empty());
    meta::is_deleting(object)
        && meta::finalizers(object).is_empty()
        && grace.is_none_or(|seconds| seconds == 0)
        && !namespace_content
}

/// Reads a body as an object of a kind.
pub fn decode_body(
    call: &Call<'_>,
    kind: &Kind,
    validation: FieldValidation,
) -> Result<Decoded, Box<Status>> {
    match negotiate::content_type(&call.parts.headers) {
        "application/json" => kind.decode(&call.body, validation),
        "application/yaml" => {
            let read = crate::yaml::parse(&call.body).map_err(|why| {
                Status::bad_request(format!(
                    "the object provided is unrecognized (must be of type {}): {why} ({})",
                    kind.kind,
                    palisade_apimachinery::decode::summarize(&call.body)
                ))
            })?;
            kind.decode_value(read.value, read.duplicates.into_iter().collect(), validation)
        }
        protobuf::MEDIA_TYPE if !kind.is_custom() => {
            kind.decode_value(read_protobuf(call, kind)?, Vec::new(), validation)
        }
        _ => Err(Status::unsupported_media_type(if kind.is_custom() { CUSTOM_TYPES } else { BUILTIN_TYPES })),
    }
}

fn read_protobuf(call: &Call<'_>, kind: &Kind) -> Result<Value, Box<Status>> {
    protobuf::decode(&call.body).map_err(|error| {
        Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {error}",
            kind.kind
        ))
    })
}

/// Reads a body that is not an object of a served kind, such as options.
pub fn untyped_body(call: &Call<'_>) -> Result<Value, Box<Status>> {
    match negotiate::content_type(&call.parts.headers) {
        "application/json" => serde_json::from_slice(&call.body).map_err(|error| {
            let problem = palisade_apimachinery::decode::syntax_error(&call.body, &error.to_string());
            Status::bad_request(format!("couldn't get version/kind; json parse error: {problem}"))
        }),
        "application/yaml" | "application/apply-patch+yaml" => {
            let read = crate::yaml::parse(&call.body);
            Ok(read
                .map_err(|why| Status::bad_request(format!("error converting YAML to JSON: {why}")))?
                .value)
        }
        protobuf::MEDIA_TYPE => {
            protobuf::decode(&call.body).map_err(|error| Status::bad_request(error.to_string()))
        }
        _ => Err(Status::unsupported_media_type(BUILTIN_TYPES)),
    }
}

/// What is wrong with a name in a path.
pub fn check_path_name(name: &str) -> Result<(), Box<Status>> {
    match crate::http::request_info::invalid_path_segment(name) {
        None => Ok(()),
        Some(problem) => {
            let quoted = go::quote(name);
            Err(Status::bad_request(format!("Name parameter invalid: {quoted}: {problem}")))
        }
    }
}
