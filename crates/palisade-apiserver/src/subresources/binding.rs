//! Assigns a pod to a node: `pods/binding`, and the older `bindings`.

use std::sync::Arc;

use palisade_apimachinery::status::GroupName;
use palisade_apimachinery::{Status, rest};
use palisade_base::go;
use serde_json::{Value, json};

use crate::admission_chain::Operation;
use crate::api::Call;
use crate::http::Reply;
use crate::meta;
use crate::options::WriteOptions;
use crate::plugins::pod_topology;
use crate::registry::Entry;
use crate::storage::{CommitError, Expect};
use crate::verbs::write::{self, Writer, unavailable};

/// `Status` of something that was made and has no body of its own.
pub(super) fn created(call: &Call<'_>) -> Reply {
    super::document(
        call,
        201,
        &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
    )
}

/// Answers with success.
pub(crate) async fn create(call: &Call<'_>, _: &Arc<Entry>) -> Result<Reply, Box<Status>> {
    let options = WriteOptions::parse(call.query, "CreateOptions", call.api.version, false)?;
    let served = call.api.registry.served();
    let kind = &served.find("", "v1", "bindings").ok_or_else(Status::page_not_found)?.kind;
    let pods = served.find("", "v1", "pods").ok_or_else(Status::page_not_found)?;
    let dry_run = options.dry_run;
    let mut writer = Writer::new(call, pods, "binding", options);
    let mut binding = writer.decode(kind)?;
    rest::ensure_namespace(kind, &mut binding, &call.info.namespace)?;
    let binding = kind.read(binding).map_err(|error| error.into_status(kind, &call.info.name))?;
    let name = meta::meta_text(&binding, "name");
    if call.info.named && call.info.name != name {
        return Err(Status::bad_request("name in URL does not match name in Binding object"));
    }
    if name.is_empty() {
        return Err(Status::bad_request("Name parameter required."));
    }
    if let Err(status) = writer.judge(Operation::Create, Some(&binding), None).await {
        return Ok(writer.error(status));
    }
    match bind(call, pods, &binding, dry_run).await {
        Ok(()) => {
            let mut reply = created(call);
            writer.annotate(&mut reply);
            Ok(reply)
        }
        Err(status) => Ok(writer.error(status)),
    }
}

/// The node of a binding, or what is wrong with it; upstream reports that as an unknown error.
fn target(binding: &Value) -> Result<&str, Box<Status>> {
    let text = |pointer: &str| binding.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let mut errors = Vec::new();
    let kind = text("/target/kind");
    if !matches!(kind, "" | "Node") {
        errors.push(format!(
            "target.kind: Unsupported value: {}: supported values: \"Node\", \"<empty>\"",
            go::quote(kind)
        ));
    }
    let node = text("/target/name");
    if node.is_empty() {
        errors.push("target.name: Required value".to_owned());
    } else {
        let problems = rest::names::dns1123_subdomain(node);
        errors.extend(
            problems.iter().map(|why| format!("target.name: Invalid value: {}: {why}", go::quote(node))),
        );
    }
    match errors.as_slice() {
        [] => Ok(node),
        [one] => Err(Status::unknown_error(one.clone())),
        many => Err(Status::unknown_error(format!("[{}]", many.join(", ")))),
    }
}

async fn bind(call: &Call<'_>, pods: &Entry, binding: &Value, dry_run: bool) -> Result<(), Box<Status>> {
    let name = meta::meta_text(binding, "name");
    let node = target(binding)?;
    let key = pods.key(&call.info.namespace, name);
    let conflict = |why: &str| Status::conflict(GroupName::new("", "pods/binding"), name, why);
    for _ in 0..16 {
        let stored = pods.bucket.get(&key);
        let stored = stored.ok_or_else(|| Status::not_found(GroupName::new("", "pods"), name))?;
        let mut pod = pods.typed(stored.parse());
        let uid = meta::meta_text(binding, "uid");
        if !uid.is_empty() && uid != stored.uid() {
            let namespace = &call.info.namespace;
            return Err(rest::uid_precondition_failed(&pods.kind, namespace, name, uid, stored.uid()));
        }
        let version = meta::meta_text(binding, "resourceVersion");
        if !version.is_empty() && version != stored.revision.to_string() {
            return Err(Status::modified(pods.kind.resource_name(), name));
        }
        if meta::is_deleting(&pod) {
            return Err(conflict(&format!("pod {name} is being deleted, cannot be assigned to a host")));
        }
        let assigned = pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default();
        if !assigned.is_empty() {
            return Err(conflict(&format!("pod {name} is already assigned to node {assigned:?}")));
        }
        let before = pod.clone();
        assign(&mut pod, node, binding);
        if call.api.version.at_least(35) && call.api.chain.has(pod_topology::NAME) {
            pod_topology::set(&mut pod, pod_topology::labels_of(&**call.api, node));
        }
        check_annotations(call, pods, &mut pod, &before)?;
        if dry_run {
            return Ok(());
        }
        match write::commit(call.api, pods, &key, Expect::Revision(stored.revision), pod, false).await {
            Ok(_) => return Ok(()),
            Err(CommitError::Conflict | CommitError::Exists) => {}
            Err(error) => return Err(unavailable(&error)),
        }
    }
    Err(Status::modified(GroupName::new("", "pods"), name))
}

/// A binding brings annotations, and upstream stores them unseen. Those that decide about profiles follow the rules of every
/// other write: a bound pod never runs with a profile that it was not admitted with.
fn check_annotations(
    call: &Call<'_>,
    pods: &Entry,
    pod: &mut Value,
    before: &Value,
) -> Result<(), Box<Status>> {
    if pod.pointer("/metadata/annotations") == before.pointer("/metadata/annotations") {
        return Ok(());
    }
    let kind = &pods.kind;
    let review = call.api.rules.review(kind, "status", pod, Some(before))?;
    if review.errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(kind.kind_name(), meta::meta_text(pod, "name"), &review.errors, kind.emulated))
}

fn assign(pod: &mut Value, node: &str, binding: &Value) {
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("nodeName".to_owned(), node.into());
    }
    if let Some(annotations) = binding.pointer("/metadata/annotations").and_then(Value::as_object) {
        meta::edit_metadata(pod, |metadata| {
            let own = metadata.entry("annotations").or_insert_with(|| json!({}));
            if let Some(own) = own.as_object_mut() {
                own.extend(annotations.clone());
            }
        });
    }
    let scheduled = json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": meta::now(),
    });
    let Some(pod) = pod.as_object_mut() else { return };
    let status = pod.entry("status").or_insert_with(|| json!({}));
    if let Some(status) = status.as_object_mut() {
        let conditions = status.entry("conditions").or_insert_with(|| json!([]));
        if let Some(conditions) = conditions.as_array_mut() {
            conditions.retain(|c| c.get("type").and_then(Value::as_str) != Some("PodScheduled"));
            conditions.push(scheduled);
        }
    }
}
