//! How Kubernetes objects are described, patched, merged, defaulted, validated, selected and printed.
//!
//! Everything an API server needs for objects and nothing about serving them: no IO, no clock (time is a
//! parameter), no async, no logging. Objects are [`serde_json::Value`]s in the form upstream's Go types would encode
//! them to ("canonical form": see [`schema`]); every function that takes an object from a client makes it so.
//!
//! # The way of a request
//!
//! ```text
//! create  bytes ─Kind::decode─► Kind::default ─rest::on_create_request─► apply::on_update ─► (mutating admission)
//!               ─rest::before_create─► (validating admission) ─► store
//! update  bytes ─Kind::decode─► Kind::default ─apply::on_update─► (mutating admission) ─rest::before_update─► store
//! patch   live + bytes ─patch::patch─► Decoded ─Kind::default─► apply::on_update ─► as update
//! apply   live + bytes ─apply::apply─► object ─Kind::default─► (mutating admission) ─rest::before_update─► store
//! list    selector::LabelSelector and selector::FieldSelector, table::table for `as=Table`
//! ```
//!
//! Upstream records managed fields *before* mutating admission, so what admission adds has no owner; keep the
//! order above. `on_update` and `apply` leave `metadata.managedFields` in the object they return.
//!
//! # Signatures, in short
//!
//! ```text
//! Scheme::new(KubeVersion) -> Scheme;  .kinds() .by_resource(group, version, plural) .by_kind(group, version, kind)
//! crd::Definition::read(&Bytes, KubeVersion, before) -> Definition     one Kind for each served version
//! crd::establish::establish(&Kind, definition, now) -> Value           what the CRD controllers do
//! Kind::decode(&[u8], FieldValidation) -> Result<Decoded { object, warnings }>
//! Kind::decode_value(Value, duplicates, FieldValidation)               the same from YAML
//! Kind::default(&mut Value);  Kind::zero() -> &Value
//! patch::patch(&Kind, live, PatchType, body, FieldValidation) -> Result<Decoded>;  patch::untyped(live, PatchType, body)
//! apply::on_update(&Kind, live: Option<&Value>, new: &mut Value, &Manager { name, subresource, now })
//! apply::apply(&Kind, live: Option<&Value>, config: &Value, &Manager, force) -> Result<Value>
//! rest::on_create_request(&Kind, &mut Value, namespace);  rest::check_name(&Value, name, namespace)
//! rest::before_create(&Kind, &mut Value, &CreateContext, &Extra) -> Result<Vec<String>>            (warnings)
//! rest::before_update(&Kind, &mut Value, old, subresource, &Extra) -> Result<Vec<String>>
//! selector::parse_labels(&str) -> LabelSelector;  .matches(&object)   selector::FieldSelector::parse(&Kind, &str);  .matches(..)
//! table::table(&Kind, &[Value], now_seconds) -> Table { columns, rows }
//! scale::get(&Kind, &Value) -> Value;  scale::set(&Kind, &Value, &scale, &Manager) -> Result<Value>;  scale::apply(.., force)
//! cel::compile(&str, variables) -> Result<Expression, CompileError>;  cel::evaluate(&Program, &Context)   rules and conditions
//! openapi::v2(kinds, version) -> Document;  openapi::v3(kinds of a group version, version) -> Document
//! ```
//!
//! # Modules
//!
//! | module | answers |
//! | --- | --- |
//! | [`status`] | `Status` objects and field errors, with upstream's texts |
//! | [`scheme`] | which kinds there are ([`Scheme`], [`Kind`]) |
//! | [`schema`] | the type tree of a kind: fields, list types, merge keys |
//! | [`decode`] | bytes to canonical objects: type errors, unknown and duplicate fields |
//! | [`patch`] | JSON patch, merge patch, strategic merge patch |
//! | [`apply`] | server-side apply and managed fields |
//! | [`rest`] | what happens around create and update: metadata, names, strategies, validation |
//! | [`kinds`] | defaulting, preparation and validation of each built-in kind |
//! | [`crd`] | custom resource definitions and the kinds they define |
//! | [`scale`] | the `scale` subresource |
//! | [`selector`] | label and field selectors |
//! | [`table`] | printed columns |
//! | [`openapi`] | OpenAPI v2 and v3 documents |
//!
//! The security part of pods (profiles, security contexts, Pod Security) is not here: the caller passes those field
//! errors and warnings to [`rest`] through [`rest::Extra`].
#![warn(clippy::disallowed_types, clippy::disallowed_methods)]

pub mod apply;
pub mod cel;
pub mod crd;
pub mod decode;
pub mod kinds;
pub mod openapi;
pub mod patch;
pub mod rest;
pub mod scale;
pub mod schema;
pub mod scheme;
pub mod selector;
pub mod status;
pub mod stored_size;
pub mod table;
mod typed_object;

pub use decode::{Decoded, FieldValidation};
pub use scheme::{Kind, Scheme};
pub use status::Status;
pub use typed_object::{TypeError, Typed};
