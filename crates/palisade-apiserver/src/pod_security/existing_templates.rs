//! What a stricter level would mean for the workloads of a namespace, whether they have pods yet or not.
//!
//! Upstream looks at pods only, so that a dry run on a namespace whose workloads have not started finds nothing. Palisade's
//! extensions look at templates as well, and report them apart. A template that cannot be decoded is reported, too.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use palisade_model::compat::Compat;
use palisade_model::prepare::Prepared;
use palisade_model::workload::{WORKLOADS, WorkloadKind};
use palisade_policy::exceptions::workload::of_template;
use palisade_policy::standards::namespace::{ExistingPods, Violations};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::admission_chain::Cluster;
use crate::storage::Object;

/// Kinds whose templates become pods.
fn kinds() -> impl Iterator<Item = &'static WorkloadKind> {
    WORKLOADS.iter().filter(|kind| {
        kind.built_in && !kind.path.is_empty() && kind.kind != "PodTemplate" && kind.group != "extensions"
    })
}

fn group_resource(kind: &WorkloadKind) -> String {
    if kind.group.is_empty() { kind.resource.to_owned() } else { format!("{}.{}", kind.resource, kind.group) }
}

/// The parts of a workload that decide.
struct Workload<'a> {
    uid: Cow<'a, str>,
    /// The controller of one that makes no pods: a ReplicaSet of an old revision.
    idle_of: Option<Cow<'a, str>>,
    template: &'a str,
}

#[derive(Deserialize)]
struct Parts<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow, default)]
    uid: Cow<'a, str>,
    #[serde(borrow, default)]
    owner_references: Option<Vec<Owner<'a>>>,
}

#[derive(Deserialize)]
struct Owner<'a> {
    #[serde(borrow, default)]
    uid: Cow<'a, str>,
    #[serde(default)]
    controller: Option<bool>,
}

#[derive(Deserialize, Default)]
struct Spec {
    #[serde(default)]
    replicas: Option<i64>,
}

type Fields<'a> = BTreeMap<Cow<'a, str>, &'a RawValue>;

fn read<'a>(json: &'a [u8], path: &[&str]) -> Result<Workload<'a>, serde_json::Error> {
    let Parts { metadata, spec } = serde_json::from_slice(json)?;
    let mut template: &'a RawValue = serde_json::from_slice(json)?;
    for field in path {
        let fields: Fields<'a> = serde_json::from_str(template.get())?;
        template = fields
            .get(*field)
            .copied()
            .ok_or_else(|| serde::de::Error::custom(format_args!("{field} is missing")))?;
    }
    let controller =
        metadata.owner_references.into_iter().flatten().find(|owner| owner.controller == Some(true));
    let idle_of = controller.filter(|_| spec.replicas == Some(0)).map(|owner| owner.uid);
    Ok(Workload { uid: metadata.uid, idle_of, template: template.get() })
}

/// The warnings for the templates of a namespace.
pub(super) fn warnings(
    existing: &ExistingPods<'_>,
    cluster: &dyn Cluster,
    namespace: &str,
    compat: &Compat,
) -> Vec<String> {
    let stored: Vec<(&WorkloadKind, Vec<Arc<Object>>)> =
        kinds().map(|kind| (kind, cluster.list(&group_resource(kind), namespace))).collect();
    let all = stored.iter().flat_map(|(kind, objects)| objects.iter().map(move |object| (*kind, object)));
    let named: Vec<_> = all
        .map(|(kind, object)| {
            let shown = format!("{}/{}", group_resource(kind), object.name());
            (kind, object.name(), shown, read(&object.json, kind.path))
        })
        .collect();
    // swallowed: only those that were read have a uid; the others are reported below
    let readable = named.iter().filter_map(|(_, _, _, workload)| workload.as_ref().ok());
    let uids: BTreeSet<&str> =
        readable.map(|workload| &*workload.uid).filter(|uid| !uid.is_empty()).collect();
    let mut known: HashMap<(&[&str], &str, &str), Option<String>> = HashMap::new();
    let mut found = Violations::default();
    for (kind, own_name, name, workload) in &named {
        let workload = match workload {
            Ok(workload) => workload,
            Err(error) => {
                found.add(&undecodable(error), name, 1);
                continue;
            }
        };
        if workload.idle_of.as_deref().is_some_and(|owner| uids.contains(owner)) {
            continue;
        }
        let identity = if existing.judges_by_identity() { name.as_str() } else { "" };
        let reasons = known
            .entry((kind.path, workload.template, identity))
            .or_insert_with(|| violation(existing, kind, own_name, workload.template, compat));
        if let Some(reasons) = reasons {
            found.add(reasons, name, 1);
        }
    }
    existing.template_summary(namespace, &found)
}

/// What is reported of a template that cannot be decoded.
fn undecodable(error: &serde_json::Error) -> String {
    format!("template cannot be decoded: {error}")
}

fn violation(
    existing: &ExistingPods<'_>,
    kind: &WorkloadKind,
    name: &str,
    template: &str,
    compat: &Compat,
) -> Option<String> {
    match serde_json::from_str(template) {
        Ok(pod) => {
            let pod = Prepared::future_pod(pod, kind.subject(), compat);
            existing.template_violation(&pod, of_template(kind, name))
        }
        Err(error) => Some(undecodable(&error)),
    }
}
