//! What create, update, patch and delete share: reading bodies, the way through admission and validation, and
//! the commit with its retries.

use std::sync::Arc;

use palisade_apimachinery::apply::{self, Manager};
use palisade_apimachinery::{Decoded, FieldValidation, Kind, Status, Typed, decode, rest, stored_size};
use palisade_base::{field_error::FieldError, go};
use serde_json::{Value, json};

use crate::admission_chain::{Notes, Operation, Request};
use crate::admission_policies::Evaluation;
use crate::api::Call;
use crate::auth::escalation;
use crate::auth::rbac::Attributes;
use crate::conversion::{self, FormError};
use crate::events;
use crate::http::{Reply, negotiate, protobuf};
use crate::meta;
use crate::options::WriteOptions;
use crate::plugins::quota;
use crate::registry::Entry;
use crate::render;
use crate::selection;
use crate::services;
use crate::storage::{CommitError, Expect, Object, Part, Write};
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
    /// Warnings and audit annotations of admission.
    pub notes: Notes,
    /// The time of this write.
    pub now: String,
    manager: String,
    /// What the object counts as until it is stored.
    quota: Option<quota::Claim>,
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
        Self {
            call,
            entry,
            subresource,
            options,
            notes: Notes::default(),
            now: meta::now(),
            manager,
            quota: None,
        }
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

    /// Reads an object of the resource.
    fn typed(&self, object: Value) -> Result<Typed, Box<Status>> {
        let name = self.name_of(&object);
        self.kind().read(object).map_err(|error| error.into_status(self.kind(), &name))
    }

    /// Lets plugins and webhooks change the object.
    async fn admit(
        &mut self,
        operation: Operation,
        object: Value,
        old: Option<&Value>,
    ) -> Result<Typed, Box<Status>> {
        let name = self.name_of(&object);
        let object = self.typed(object)?;
        let mut notes = std::mem::take(&mut self.notes);
        let request = self.admission(operation, &name, old);
        let result = self.admitted(&request, object, &mut notes).await;
        self.notes = notes;
        result
    }

    async fn admitted(
        &self,
        request: &Request<'_>,
        object: Typed,
        notes: &mut Notes,
    ) -> Result<Typed, Box<Status>> {
        let api = self.call.api;
        let object = api.chain.admit(request, object, notes)?;
        let (policies, hooks) = (api.policies.mutating(), api.webhooks.mutating());
        if policies.is_empty() && hooks.is_none() {
            return Ok(object);
        }
        let options = self.options_for(request.operation)?;
        let mut object = object.into_value();
        let dispatch = self.dispatch(request, &options);
        let evaluation = Evaluation { api, dispatch: &dispatch };
        evaluation.mutate(&policies, &mut object, false)?;
        let Some(hooks) = hooks else { return request.typed(object) };
        let builtin = |object: &mut Value, notes: &mut Notes| {
            let typed = request.typed(object.take())?;
            *object = api.chain.admit(request, typed, notes)?.into_value();
            evaluation.mutate(&policies, object, true)
        };
        dispatch.mutate(&hooks, &mut Some(&mut object), notes, builtin).await?;
        request.typed(object)
    }

    /// Runs the validating plugins, and then the validating webhooks.
    pub async fn judge(
        &mut self,
        operation: Operation,
        object: Option<&Typed>,
        old: Option<&Value>,
    ) -> Result<(), Box<Status>> {
        let name = object.map_or_else(|| self.call.info.name.clone(), |object| self.name_of(object));
        let mut notes = std::mem::take(&mut self.notes);
        let request = self.admission(operation, &name, old);
        let mut result = self.judged(&request, object, &mut notes).await;
        let api = self.call.api;
        // The last plugin, as upstream: what another one rejects uses nothing.
        let claim = if result.is_ok() && api.enforces_quotas {
            quota::admit(api, &request, object.map(|object| &**object))
        } else {
            Ok(None)
        };
        match claim {
            Ok(claim) => self.quota = claim,
            Err(status) => result = Err(status),
        }
        self.notes = notes;
        result
    }

    /// Runs admission for a deletion. Mutating webhooks are called as well, as upstream does.
    pub async fn admit_delete(&mut self, name: &str, old: &Value) -> Result<(), Box<Status>> {
        let options = self.options_for(Operation::Delete)?;
        let mut notes = std::mem::take(&mut self.notes);
        let request = self.admission(Operation::Delete, name, Some(old));
        let mut result = Ok(());
        if let Some(hooks) = self.call.api.webhooks.mutating() {
            let dispatch = self.dispatch(&request, &options);
            result = dispatch.mutate(&hooks, &mut None, &mut notes, |_, _| Ok(())).await;
        }
        if result.is_ok() {
            result = self.judged(&request, None, &mut notes).await;
        }
        self.notes = notes;
        result
    }

    /// Runs admission for a connection; returns its options as the mutating part leaves them, which the other part judged.
    pub async fn admit_connect(&mut self, kind: &Kind, options: Value) -> Result<Typed, Box<Status>> {
        let name = self.call.info.name.as_str();
        let options = kind.read(options).map_err(|error| error.into_status(kind, name))?;
        let mut notes = std::mem::take(&mut self.notes);
        let request = Request { kind, ..self.admission(Operation::Connect, name, None) };
        let result = match self.admitted(&request, options, &mut notes).await {
            Ok(options) => self.judged(&request, Some(&options), &mut notes).await.map(|()| options),
            Err(status) => Err(status),
        };
        self.notes = notes;
        result
    }

    /// Lets the plugins judge the request for a token.
    pub fn admit_token(&mut self, token_request: &Value) -> Result<(), Box<Status>> {
        let mut notes = std::mem::take(&mut self.notes);
        let request = self.admission(Operation::Create, &self.call.info.name, None);
        let result = self.call.api.chain.judge(&request, token_request, &mut notes);
        self.notes = notes;
        result
    }

    async fn judged(
        &self,
        request: &Request<'_>,
        object: Option<&Typed>,
        notes: &mut Notes,
    ) -> Result<(), Box<Status>> {
        let api = self.call.api;
        api.chain.validate(request, object, notes)?;
        let (policies, hooks) = (api.policies.validating(), api.webhooks.validating());
        if policies.is_empty() && hooks.is_none() {
            return Ok(());
        }
        let options = self.options_for(request.operation)?;
        let object = object.map(|object| &**object);
        let dispatch = self.dispatch(request, &options);
        Evaluation { api, dispatch: &dispatch }.validate(&policies, object, notes)?;
        match hooks {
            Some(hooks) => dispatch.validate(&hooks, object, notes).await,
            None => Ok(()),
        }
    }

    fn dispatch<'d>(&'d self, request: &'d Request<'d>, options: &'d Value) -> webhooks::Dispatch<'d> {
        let api = self.call.api;
        webhooks::Dispatch { webhooks: &api.webhooks, request, served: api.registry.served(), options }
    }

    /// The options of the request, as webhooks get them.
    fn options_for(&self, operation: Operation) -> Result<Value, Box<Status>> {
        let mut given = match operation {
            Operation::Delete if !self.call.body.is_empty() => delete_options(self.call)?,
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
        Ok(webhooks::options(operation, given))
    }

    fn name_of(&self, object: &Value) -> String {
        let name = meta::meta_text(object, "name");
        if name.is_empty() { self.call.info.name.clone() } else { name.to_owned() }
    }

    fn check_escalation(&self, object: &Value, old: Option<&Value>) -> Result<(), Box<Status>> {
        if self.kind().group != "rbac.authorization.k8s.io" || self.kind().is_custom() {
            return Ok(());
        }
        let namespace = if self.kind().namespaced { self.call.info.namespace.as_str() } else { "" };
        let authorizer = &self.call.api.authorizer;
        let resource = self.kind().plural.as_str();
        let path_name = self.call.info.name.as_str();
        let write = escalation::RbacWrite { resource, namespace, path_name, object, old };
        escalation::check(authorizer, self.call.user, &write)
    }

    /// Rejects a PUT or PATCH that creates an object for a user who may not `create`.
    fn authorize_create(&self) -> Result<(), Box<Status>> {
        let create = Attributes::of("create", self.call.info);
        self.call.api.authorize(self.call.user, &create).map(|_| ())
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
        kind.default(&mut object)?;
        apply::on_update(kind, None, &mut object, &self.manager());
        self.finish_create(object).await
    }

    /// Puts a new object, managed fields included, through admission, validation and into the store.
    pub async fn finish_create(&mut self, mut object: Value) -> Result<Written, Box<Status>> {
        let kind = self.kind();
        object = self.admit(Operation::Create, object, None).await?.into_value();
        self.check_escalation(&object, None)?;
        // Upstream looks at the version of what is posted, if it is one, and not of what an apply or a PUT creates.
        let version = meta::meta_text(&object, "resourceVersion").parse::<u64>();
        let versioned = self.call.info.verb == "create" && version.is_ok_and(|version| version != 0);
        let generated = meta::meta_text(&object, "name").is_empty();
        let unnamed = generated.then(|| object.clone());
        let base = meta::meta_text(&object, "generateName").to_owned();
        for attempt in 0..8 {
            if let (true, Some(unnamed)) = (attempt > 0, &unnamed) {
                object.clone_from(unnamed);
            }
            // Warnings of the first attempt are not repeated.
            let mut notices = Vec::new();
            let prepared = strategy::before_create(self.call, kind, &mut object, &self.now, &mut notices);
            if attempt == 0 {
                self.notes.warnings.append(&mut notices);
            }
            let warnings = prepared?;
            let _claim = services::allocate(self.call.api, kind, &mut object, None)?;
            let object = self.typed(std::mem::take(&mut object))?;
            if self.call.info.verb != "create" {
                self.authorize_create()?;
            }
            if attempt == 0 {
                // Upstream warns before the validating plugins run, and so also where they reject.
                self.notes.warnings.extend(warnings);
                self.judge(Operation::Create, Some(&object), None).await?;
            }
            let name = meta::meta_text(&object, "name").to_owned();
            let key = self.entry.key(&self.call.info.namespace, &name);
            if self.options.dry_run {
                if self.entry.bucket.get(&key).is_some() {
                    return Err(Status::already_exists(kind.resource_name(), &name));
                }
                return Ok(Written::Dry(object.into_value()));
            }
            if versioned {
                return Err(Status::unknown_error(
                    "resourceVersion should not be set on objects to be created",
                ));
            }
            match self.commit(&key, Expect::Absent, object, false).await {
                Ok(stored) => return Ok(Written::Stored(stored)),
                Err(CommitError::Exists) if generated => {}
                Err(CommitError::Exists) => {
                    return Err(Status::already_exists(kind.resource_name(), &name));
                }
                Err(error) => return Err(unavailable(&error)),
            }
        }
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
            let stored = conversion::present(self.call.api, self.entry, stored).await;
            let stored = stored.map_err(FormError::into_status)?;
            let live = self.entry.typed(stored.parse());
            let noted = self.notes.warnings.len();
            let mut object = transform(self, &live)?;
            rest::check_name(&object, name, &self.call.info.namespace)?;
            self.check_namespace(&mut object)?;
            self.check_preconditions(&mut object, &stored)?;
            object = self.admit(Operation::Update, object, Some(&live)).await?.into_value();
            self.check_escalation(&object, Some(&live))?;
            let warnings = strategy::before_update(
                self.call,
                kind,
                self.subresource,
                &mut object,
                &live,
                &mut self.notes.warnings,
            )?;
            let _claim = if self.subresource.is_empty() {
                services::allocate(self.call.api, kind, &mut object, Some(&live))?
            } else {
                None
            };
            let object = self.typed(object)?;
            self.notes.warnings.extend(warnings);
            self.judge(Operation::Update, Some(&object), Some(&live)).await?;
            if rest::is_noop(&object, &live) {
                return Ok(Written::Stored(stored));
            }
            let goes = deleted_by_update(&object);
            if self.options.dry_run {
                let object = object.into_value();
                return Ok(if goes { Written::Deleted(object) } else { Written::Dry(object) });
            }
            match self.commit(&key, Expect::Revision(stored.revision), object, goes).await {
                Ok(stored) if goes => return Ok(Written::Deleted(self.entry.typed(stored.parse()))),
                Ok(stored) => return Ok(Written::Stored(stored)),
                // Another write came first. A client that named a version gets the conflict in the next round.
                Err(CommitError::Conflict | CommitError::Exists) => self.notes.warnings.truncate(noted),
                Err(error) => return Err(unavailable(&error)),
            }
        }
        Err(Status::modified(kind.resource_name(), name))
    }

    /// Whether the request changes a part of the object, and does not apply one.
    fn merges(&self) -> bool {
        let media_type = negotiate::content_type(&self.call.parts.headers);
        self.call.info.verb == "patch" && media_type != "application/apply-patch+yaml"
    }

    /// The client's preconditions: the UID and the resource version.
    fn check_preconditions(&self, object: &mut Value, stored: &Object) -> Result<(), Box<Status>> {
        let kind = self.kind();
        let uid = meta::meta_text(object, "uid").to_owned();
        // A patch has no preconditions: a changed UID is an error of validation.
        if !uid.is_empty() && uid != stored.uid() && !self.merges() {
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

    /// Commits an object; returns it in the version of the request.
    pub async fn commit(
        &self,
        key: &str,
        expect: Expect,
        object: Typed,
        delete: bool,
    ) -> Result<Arc<Object>, CommitError> {
        let api = self.call.api;
        let stored = commit_typed(api, self.entry, key, expect, object, delete).await?;
        Ok(conversion::present(api, self.entry, stored).await?)
    }

    /// The answer: the object, with the warnings of admission.
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

    /// Adds the warnings of admission to an answer.
    pub fn annotate(self, reply: &mut Reply) {
        reply.warnings.extend(self.notes.warnings);
        reply.audit.extend(self.notes.audit);
    }

    /// An error, with the warnings of admission before it.
    #[must_use]
    pub fn error(self, status: Box<Status>) -> Reply {
        let mut reply = Reply::error(status);
        self.annotate(&mut reply);
        reply
    }
}

/// Commits an object that the server made or changed: it is read as its kind first. One that goes need not be readable.
pub async fn commit(
    api: &crate::api::Api,
    entry: &Entry,
    key: &str,
    expect: Expect,
    object: Value,
    delete: bool,
) -> Result<Arc<Object>, CommitError> {
    if delete {
        return remove(api, entry, key, expect, object).await;
    }
    let kind = entry.kind_of(&object).map_err(FormError::from)?;
    commit_typed(api, entry, key, expect, kind.read(object)?, false).await
}

/// Commits a new state of a stored object that keeps a part of it unread. What is around that part is read as the kind.
pub async fn commit_around(
    api: &crate::api::Api,
    entry: &Entry,
    stored: &Object,
    object: Value,
    part: Part,
) -> Result<Arc<Object>, CommitError> {
    let object = entry.kind.read(object)?;
    let fields = selection::selectable_values(&entry.kind, &object);
    api.store.commit(Write::store_around(entry.bucket.clone(), stored, object, part, fields)).await
}

/// Commits an object of a resource; an event in both its forms.
async fn commit_typed(
    api: &crate::api::Api,
    entry: &Entry,
    key: &str,
    expect: Expect,
    object: Typed,
    delete: bool,
) -> Result<Arc<Object>, CommitError> {
    if delete {
        return remove(api, entry, key, expect, object.into_value()).await;
    }
    let twin = events::twin(api, entry, &object);
    let object = conversion::to_storage(api, entry, object).await?;
    let stored = store(api, entry, key, expect, object).await?;
    if let Some((other, twin)) = twin {
        let expect = other.bucket.get(key).map(|known| Expect::Revision(known.revision));
        let twin = other.kind.read(twin)?;
        // A concurrent write of the other form is newer, and is written here in turn.
        let _ = store(api, &other, key, expect.unwrap_or(Expect::Absent), twin).await;
    }
    Ok(stored)
}

async fn store(
    api: &crate::api::Api,
    entry: &Entry,
    key: &str,
    expect: Expect,
    object: Typed,
) -> Result<Arc<Object>, CommitError> {
    let fields = selection::selectable_values(&entry.kind, &object);
    let write = Write::store(entry.bucket.clone(), key, expect, object, fields);
    api.store.commit(write.measured_as(entry.kind.clone())).await
}

async fn remove(
    api: &crate::api::Api,
    entry: &Entry,
    key: &str,
    expect: Expect,
    object: Value,
) -> Result<Arc<Object>, CommitError> {
    let remove = async |entry: &Entry, expect: Expect, object: Value| {
        let fields = selection::selectable_values(&entry.kind, &object);
        api.store.commit(Write::remove(entry.bucket.clone(), key, expect, object, fields)).await
    };
    let object = conversion::removed(api, entry, object)?;
    let twin = events::twin(api, entry, &object);
    let last = remove(entry, expect, object).await?;
    if let Some((other, twin)) = twin
        && let Some(known) = other.bucket.get(key)
    {
        // See above.
        let _ = remove(&other, Expect::Revision(known.revision), twin).await;
    }
    Ok(last)
}

/// 500: the disk. An object that could not be read again is the client's mistake.
#[must_use]
pub fn unavailable(error: &CommitError) -> Box<Status> {
    match error {
        CommitError::Unreadable(_) | CommitError::Unstorable(_) => Status::bad_request(error.to_string()),
        CommitError::TooLarge => stored_size::too_large(),
        CommitError::Conversion(error) => Status::unknown_error(error.to_string()),
        _ => Status::internal(error.to_string()),
    }
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
                    decode::summarize(&call.body)
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
            let problem = decode::syntax_error(&call.body, &error.to_string());
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

/// Reads a body of delete options.
pub fn delete_options(call: &Call<'_>) -> Result<Value, Box<Status>> {
    let body = untyped_body(call)?;
    if !matches!(body, Value::Object(_) | Value::Null) {
        return Err(Status::bad_request(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct {{ \
             APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
            go::json_type(&body)
        )));
    }
    let text = |field: &str| body.get(field).and_then(Value::as_str).unwrap_or_default();
    if !matches!(text("kind"), "" | "DeleteOptions") {
        return Err(Status::bad_request(format!(
            "no kind {} is registered for version {} in scheme \
             \"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27\"",
            go::quote(text("kind")),
            go::quote(text("apiVersion"))
        )));
    }
    let read = decode::read_as("meta.DeleteOptions", body, call.api.version)
        .map_err(|error| Status::bad_request(error.to_string()))?;
    Ok(if read.is_null() { json!({}) } else { read })
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
