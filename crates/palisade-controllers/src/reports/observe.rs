//! What is read besides the index: the reports that are there, and the objects that exceptions are compared with.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use palisade_model::{
    compat::Compat,
    workload::{WORKLOADS, WorkloadKind},
};
use palisade_policy::exceptions::set::NamespaceExceptions;
use serde_json::Value;

use super::{
    kind::ReportKind,
    plan::{CONTENT, NAME, NOT_LISTED},
};
use crate::{
    api::{Api, ApiError, Resource, encoded},
    cluster::{Excused, ExcusedObjects},
    observe::version_of,
};

/// Reports of a page: each may have a hundred kilobytes.
const REPORTS: usize = 50;
/// Objects of a page.
const OBJECTS: usize = 500;

/// What a report contains, as far as this controller writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest(u64);

impl Digest {
    /// Of a report that is read, or that is to be written.
    #[must_use]
    pub fn of(report: &Value) -> Self {
        let mut hasher = DefaultHasher::new();
        for field in CONTENT {
            report[field].to_string().hash(&mut hasher);
        }
        report["metadata"]["annotations"][NOT_LISTED].to_string().hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// The reports that are there, by namespace.
pub(super) async fn written(api: &Api, kind: ReportKind) -> Result<BTreeMap<String, Digest>, ApiError> {
    let mut found = BTreeMap::new();
    let path = kind.resource().collection(None);
    let selector = format!("labelSelector={}", encoded("app.kubernetes.io/managed-by=palisade"));
    let query = format!("{selector}&limit={REPORTS}");
    let all = pages(api, &path, &query, |report| {
        if report["metadata"]["name"] == NAME
            && let Some(namespace) = report["metadata"]["namespace"].as_str()
        {
            found.insert(namespace.to_owned(), Digest::of(report));
        }
    });
    all.await?;
    Ok(found)
}

/// Compares exceptions with the pods and workloads of a namespace.
pub(super) async fn excused(
    api: &Api,
    compat: &Compat,
    exceptions: &NamespaceExceptions<'_>,
) -> Result<ExcusedObjects, ApiError> {
    let mut excused = ExcusedObjects::new();
    for kind in WORKLOADS {
        let Some(resource) = resource(kind) else { continue };
        let path = resource.collection(Some(exceptions.namespace));
        let query = format!("limit={OBJECTS}");
        let read = pages(api, &path, &query, |object| {
            if let Some(name) = object["metadata"]["name"].as_str()
                && let Some(found) = Excused::of_object(kind, object, compat, exceptions)
            {
                excused.insert((kind.kind.to_owned(), name.to_owned()), found);
            }
        });
        match read.await {
            Err(error) if error.is_not_found() => {}
            read => read?,
        }
    }
    Ok(excused)
}

fn resource(kind: &WorkloadKind) -> Option<Resource> {
    match (kind.group, kind.kind) {
        ("", "Pod") => Some(Resource::new("", "v1", "pods")),
        _ => version_of(kind).map(|version| Resource::new(kind.group, version, kind.resource)),
    }
}

/// Reads a list in pages.
async fn pages(api: &Api, path: &str, query: &str, mut each: impl FnMut(&Value)) -> Result<(), ApiError> {
    let mut token = String::new();
    loop {
        let bytes = api.read(&format!("{path}?{query}&continue={}", encoded(&token))).await?;
        let page: Value = serde_json::from_slice(&bytes)
            .map_err(|error| ApiError::Unreachable(Box::new(kube::Error::SerdeError(error))))?;
        page["items"].as_array().into_iter().flatten().for_each(&mut each);
        match page["metadata"]["continue"].as_str() {
            Some(next) if !next.is_empty() => next.clone_into(&mut token),
            _ => return Ok(()),
        }
    }
}
