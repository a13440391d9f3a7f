//! `/palisade/set-aside`: records of the data directory that the server does not serve, for administrators.
//!
//! A record is there because it cannot be read, or because no kind of this server is stored in its place (its definition
//! has gone, or the server was started as another release). Neither stops the server and neither is lost. The path is a
//! non-resource URL: `cluster-admin` has it, no other built-in role does.

use std::sync::Arc;

use http::Method;
use palisade_apimachinery::Status;
use palisade_base::metrics::Metric;
use serde_json::{Value, json};

use crate::api::{Api, Call};
use crate::http::{Reply, reply};
use crate::registry::Served;
use crate::storage::{Expect, Object, Range, SetAside, Write, set_aside_id};
use crate::verbs::write::unavailable;

/// Where the records are listed, read and removed.
pub(crate) const PATH: &str = "/palisade/set-aside";

/// A record that is not served.
enum Record {
    /// It cannot be read.
    Unreadable(Arc<SetAside>),
    /// No kind is stored in its place.
    Unserved { resource: Arc<str>, object: Arc<Object> },
}

impl Record {
    fn id(&self) -> String {
        match self {
            Self::Unreadable(record) => record.id.clone(),
            Self::Unserved { resource, object } => set_aside_id(resource, object.key(), &object.json),
        }
    }

    fn describe(&self) -> Value {
        let (state, resource, key, reason, bytes) = match self {
            Self::Unreadable(record) => {
                ("Unreadable", &*record.resource, &*record.key, &*record.reason, record.record.len())
            }
            Self::Unserved { resource, object } => (
                "Unserved",
                &**resource,
                object.key(),
                "no kind is stored under this resource",
                object.json.len(),
            ),
        };
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        json!({"id": self.id(), "state": state, "resource": resource, "namespace": namespace, "name": name,
            "reason": reason, "bytes": bytes})
    }

    fn content(&self) -> Vec<u8> {
        match self {
            Self::Unreadable(record) => record.record.clone(),
            Self::Unserved { object, .. } => object.json.to_vec(),
        }
    }
}

/// Objects of places that no kind is stored in.
fn unserved(api: &Api, served: &Served) -> Vec<Record> {
    let places: std::collections::HashSet<&str> =
        served.entries.iter().map(|entry| &**entry.bucket.name()).collect();
    let buckets = api.store.buckets().into_iter().filter(|bucket| !places.contains(&**bucket.name()));
    buckets
        .flat_map(|bucket| {
            let resource = bucket.name().clone();
            let objects = bucket.list(&Range::All).objects.into_iter();
            objects.map(move |object| Record::Unserved { resource: resource.clone(), object })
        })
        .collect()
}

fn records(api: &Api) -> Vec<Record> {
    let mut records: Vec<Record> = api.store.set_aside().into_iter().map(Record::Unreadable).collect();
    records.extend(unserved(api, &api.registry.served()));
    records
}

/// Answers below the path.
pub(crate) async fn answer(call: &Call<'_>, id: Option<&str>) -> Result<Reply, Box<Status>> {
    let api = call.api;
    let Some(id) = id else {
        if !matches!(call.parts.method, Method::GET | Method::HEAD) {
            return Err(Status::method_not_allowed());
        }
        let items: Vec<Value> = records(api).iter().map(Record::describe).collect();
        return Ok(document(&json!({"items": items})));
    };
    let record = records(api).into_iter().find(|record| record.id() == id);
    let record = record.ok_or_else(Status::page_not_found)?;
    match call.parts.method {
        Method::GET | Method::HEAD => Ok(Reply::bytes(200, "application/octet-stream", record.content())),
        Method::DELETE => {
            remove(api, &record).await?;
            tracing::warn!(id, user = call.user.name, "a record was removed");
            Ok(document(&json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})))
        }
        _ => Err(Status::method_not_allowed()),
    }
}

async fn remove(api: &Api, record: &Record) -> Result<(), Box<Status>> {
    match record {
        Record::Unreadable(record) => {
            api.store.discard(&record.id).await.map_err(|error| unavailable(&error))?;
        }
        Record::Unserved { resource, object } => {
            let (bucket, expect) = (api.store.bucket(resource), Expect::Revision(object.revision));
            let last = Value::Object(object.parse());
            let write = Write::remove(bucket, object.key(), expect, last, Vec::new());
            api.store.commit(write).await.map_err(|error| unavailable(&error))?;
        }
    }
    Ok(())
}

fn document(value: &Value) -> Reply {
    Reply::bytes(200, reply::JSON, format!("{value:#}\n").into_bytes())
}

/// How many records there are, of both states.
fn counts(api: &Api) -> (usize, usize) {
    (api.store.set_aside().len(), unserved(api, &api.registry.served()).len())
}

/// What `/readyz?verbose` reports; nothing where every record is served.
pub(crate) fn health_note(api: &Api) -> Option<String> {
    let (unreadable, unserved) = counts(api);
    (unreadable + unserved > 0).then(|| {
        format!(
            "[+]set-aside-records ok: {unreadable} unreadable, {unserved} of kinds not served, see {PATH}\n"
        )
    })
}

static RECORDS: Metric =
    Metric::gauge("palisade_storage_set_aside_records", "Records of the data directory that are not served.");

/// Measures how many there are.
pub(crate) fn measure(api: &Api) {
    let (unreadable, unserved) = counts(api);
    api.metrics.registry.set(&RECORDS, &[("state", "Unreadable")], unreadable);
    api.metrics.registry.set(&RECORDS, &[("state", "Unserved")], unserved);
}

/// Reports at start the records that no kind serves; those that cannot be read were reported when they were found.
pub(crate) fn report_unserved(api: &Api) {
    for record in unserved(api, &api.registry.served()) {
        if let Record::Unserved { resource, object } = &record {
            tracing::warn!(%resource, key = object.key(), id = record.id(), "a record of a kind that is not served");
        }
    }
}
