//! Server-side apply, and the managed fields every other write leaves behind.
//!
//! Implements: "Server-Side Apply", <https://kubernetes.io/docs/reference/using-api/server-side-apply/>, that is
//! `sigs.k8s.io/structured-merge-diff/merge` and `k8s.io/apimachinery/pkg/util/managedfields`.
//! Leaves to others: defaulting and validation of the result.
//!
//! Crates compared: `kube` sends apply requests and leaves the merge to the server; `DeepMerge` of `k8s-openapi` merges
//! typed objects of one release, without owners, conflicts or removal of what is no longer applied, and without custom
//! resources. No crate has the rules of structured-merge-diff for who owns which field.

// Manager, managers and managed fields are the words of the design.
#![allow(clippy::similar_names)]

mod check;
mod managed;
pub(crate) mod set;
mod typed;

use std::borrow::Cow;
use std::sync::Arc;

use palisade_base::go;
use serde_json::{Map, Value};

use crate::scheme::{Body, Kind};
use crate::status::{Cause, Result, Status};
use crate::typed_object::{TypeError, convert};

pub use managed::{Entry, Managed, Operation};
pub use set::{Element, FieldSet, path_text};
use typed::Comparison;

/// Who writes, through what, and when.
#[derive(Debug, Clone, Copy)]
pub struct Manager<'a> {
    /// `fieldManager`, or the client's name from its `User-Agent`; empty means `unknown`.
    pub name: &'a str,
    /// The subresource written through, empty for none.
    pub subresource: &'a str,
    /// The time, RFC 3339 in UTC with seconds.
    pub now: &'a str,
}

/// Which fields a write through the object or a subresource does not touch, and so never owns.
#[derive(Debug, Clone, Copy)]
pub enum ResetFields {
    /// Everything below these paths is left alone.
    Exclude(&'static [&'static [&'static str]]),
    /// Nothing but what is below these paths is written.
    Include(&'static [&'static [&'static str]]),
}

impl ResetFields {
    /// Nothing is left alone.
    pub const NONE: Self = Self::Exclude(&[]);

    fn filter(self, set: &mut FieldSet) {
        match self {
            Self::Exclude(paths) => paths.iter().for_each(|path| set.remove_below(path)),
            Self::Include(prefixes) => {
                let mut out = FieldSet::new();
                set.for_each(&mut |path| {
                    let below = prefixes.iter().any(|prefix| {
                        path.len() >= prefix.len()
                            && prefix
                                .iter()
                                .zip(path)
                                .all(|(name, element)| matches!(element, Element::Field(f) if f == name))
                    });
                    // Paths on the way to a prefix are kept as well, as upstream's matcher does.
                    let towards = prefixes.iter().any(|prefix| {
                        path.len() < prefix.len()
                            && path
                                .iter()
                                .zip(*prefix)
                                .all(|(element, name)| matches!(element, Element::Field(f) if f == name))
                    });
                    if below || towards {
                        out.insert(path);
                    }
                });
                *set = out;
            }
        }
    }

    fn filter_comparison(self, comparison: &mut Comparison) {
        self.filter(&mut comparison.added);
        self.filter(&mut comparison.modified);
        self.filter(&mut comparison.removed);
    }
}

/// Fields without an owner because the server manages them.
fn stripped() -> &'static FieldSet {
    static STRIPPED: std::sync::LazyLock<FieldSet> = std::sync::LazyLock::new(|| {
        FieldSet::of_fields(&[
            &["apiVersion"],
            &["kind"],
            &["metadata"],
            &["metadata", "name"],
            &["metadata", "namespace"],
            &["metadata", "creationTimestamp"],
            &["metadata", "selfLink"],
            &["metadata", "uid"],
            &["metadata", "clusterName"],
            &["metadata", "generation"],
            &["metadata", "managedFields"],
            &["metadata", "resourceVersion"],
        ])
    });
    &STRIPPED
}

pub(crate) fn metadata_mut(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object.as_object_mut()?.entry("metadata").or_insert_with(|| Value::Object(Map::new())).as_object_mut()
}

fn without_managed_fields(object: &mut Value) -> Option<Value> {
    metadata_mut(object)?.remove("managedFields")
}

/// Records who owns what after a create, update or patch: `new` (canonical, defaulted, before admission) gets its
/// `managedFields`. `live` is the stored object, or `None` on create.
pub fn on_update(kind: &Kind, live: Option<&Value>, new: &mut Value, manager: &Manager<'_>) {
    let live_object = live.unwrap_or_else(|| kind.zero());
    let sent = without_managed_fields(new);
    let managed = starting_point(live_object, sent, manager.subresource);
    if managed.entries.is_empty() && live.is_some() {
        // This object was never tracked (or the client reset it): keep it that way until the first apply.
        return;
    }
    let managed = updated(kind, live_object, new, managed, manager);
    managed.encode(new);
}

/// The entries to start from: what the client sent back, else what is stored; an explicit reset empties them.
fn starting_point(live: &Value, sent: Option<Value>, subresource: &str) -> Managed {
    let stored = || Managed::decode(live).unwrap_or_default();
    if !subresource.is_empty() {
        return stored();
    }
    let Some(sent) = sent else { return stored() };
    let is_reset = match sent.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([only]) => only
            .as_object()
            .is_some_and(|entry| entry.values().all(|v| v.is_null() || v.as_str() == Some(""))),
        _ => false,
    };
    if is_reset {
        return Managed::default();
    }
    let mut probe = Map::new();
    probe.insert("managedFields".into(), sent);
    let mut wrapper = Map::new();
    wrapper.insert("metadata".into(), Value::Object(probe));
    match Managed::decode(&Value::Object(wrapper)) {
        Ok(managed) if !managed.entries.is_empty() => managed,
        _ => stored(),
    }
}

fn updated(kind: &Kind, live: &Value, new: &Value, mut managed: Managed, manager: &Manager<'_>) -> Managed {
    let reset = kind.reset_fields(manager.subresource);
    // The live object's own managed fields are a leaf without an owner, so there is no need to cut them out.
    let mut comparison = typed::compare(kind.schema(), live, new);
    reset.filter_comparison(&mut comparison);
    let mut changed = comparison.modified;
    changed.add(comparison.added);
    for entry in &mut managed.entries {
        entry.set.subtract(&changed);
        entry.set.subtract(&comparison.removed);
    }
    managed.drop_empty();
    let mut own = changed;
    own.subtract(stripped());
    if !own.is_empty() {
        let entry = Entry {
            manager: if manager.name.is_empty() { "unknown".into() } else { manager.name.to_owned() },
            operation: Operation::Update,
            api_version: kind.api_version(),
            subresource: manager.subresource.to_owned(),
            time: Some(manager.now.to_owned()),
            set: own,
        };
        match managed.entries.iter_mut().find(|known| known.is(&entry)) {
            Some(known) => {
                known.set.add(entry.set);
                known.time = entry.time;
            }
            None => managed.entries.push(entry),
        }
    }
    managed.cap_updaters();
    managed
}

/// Reads a configuration that is applied to something that is merged in its own way (`Scale`): a typed object.
pub fn read(kind: &Kind, config: &Value) -> Result<Value> {
    check_applied(kind, config)?;
    converted(kind, config, config.clone())
}

/// Whether a configuration may be applied at all: its kind, and its schema.
fn check_applied(kind: &Kind, config: &Value) -> Result<()> {
    check_config(kind, config)?;
    let problems = check::validate(kind.schema(), config, kind.emulated);
    if !problems.is_empty() {
        let list = match problems.as_slice() {
            [one] => one.clone(),
            many => {
                let lines: Vec<String> = many.iter().map(|p| format!("\n  {p}")).collect();
                format!("errors:{}", lines.concat())
            }
        };
        return Err(Status::unknown_error(format!(
            "failed to create typed patch object ({}/{}; {}/{}, Kind={}): {list}",
            text_at(config, "/metadata/namespace"),
            text_at(config, "/metadata/name"),
            kind.group,
            kind.version,
            kind.kind,
        )));
    }
    Ok(())
}

/// Applies a configuration: the merged object, with its managed fields, canonical but not yet defaulted.
///
/// `live` is `None` where the object does not exist yet. If nothing changes the live object comes back, entries and
/// times untouched.
pub fn apply(
    kind: &Kind,
    live: Option<&Value>,
    config: &Value,
    manager: &Manager<'_>,
    force: bool,
) -> Result<Value> {
    check_applied(kind, config)?;
    let live_object = live.unwrap_or_else(|| kind.zero());
    let managed = Managed::decode(live_object)
        .map_err(|why| Status::unknown_error(format!("failed to decode managed fields: {why}")))?;
    let mut bare = live_object.clone();
    without_managed_fields(&mut bare);
    let managed = if managed.entries.is_empty() && live.is_some() {
        let before =
            Manager { name: "before-first-apply", subresource: manager.subresource, now: manager.now };
        updated(kind, kind.zero(), &bare, managed, &before)
    } else {
        managed
    };
    match applied(kind, &bare, config, managed.clone(), manager, force) {
        Ok(object) => converted(kind, config, object),
        Err(Failure::Merge(status)) => Err(status),
        Err(Failure::Conflicts(conflicts)) => {
            let remaining = match manager.name {
                "kubectl" => not_allowed(kind, &bare, &conflicts),
                _ => conflicts,
            };
            if remaining.is_empty() {
                let object = applied(kind, &bare, config, managed, manager, true);
                return converted(kind, config, object.map_err(Failure::into_status)?);
            }
            Err(Failure::Conflicts(remaining).into_status())
        }
    }
}

/// Merges a configuration into an object as an apply does, without owners of fields: what the configuration does not have
/// stays. It may not set lists, maps and structures that are applied as a whole.
pub fn merged(kind: &Kind, live: &Value, config: &Value) -> Result<Value> {
    let failed = |why: String| Status::bad_request(why);
    if let Some(path) = typed::atomic_field(kind.schema(), config) {
        return Err(failed(format!(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {path}"
        )));
    }
    let merged = typed::merge(kind.schema(), live, config)
        .map_err(|why| failed(format!("error applying patch: {why}")))?;
    converted(kind, live, merged)
}

/// The merged object with values of the kind's types: the schema of the merge takes any number for a number.
fn converted(kind: &Kind, config: &Value, object: Value) -> Result<Value> {
    let failed = match &kind.body {
        Body::Custom(custom) => return Ok(custom.normalize(object, kind.emulated)),
        Body::Builtin(_) => match convert(kind.schema(), object, kind.emulated) {
            Ok(object) => return Ok(object),
            Err(failed) => failed,
        },
    };
    let name = text_at(config, "/metadata/name");
    match failed {
        TypeError::Mismatch(why) => {
            let of = format!("{}/{}, Kind={}", kind.group, kind.version, kind.kind);
            let namespace = text_at(config, "/metadata/namespace");
            Err(Status::unknown_error(format!(
                "failed to convert new object ({namespace}/{name}; {of}) to proper version: unable to convert unstructured \
                 object to {of}: {why}"
            )))
        }
        out_of_range @ TypeError::OutOfRange { .. } => Err(out_of_range.into_status(kind, name)),
    }
}

fn text_at<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn check_config(kind: &Kind, config: &Value) -> Result<()> {
    let (api_version, name) = (text_at(config, "/apiVersion"), text_at(config, "/kind"));
    if api_version != kind.api_version() || name != kind.kind {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        return Err(Status::bad_request(format!("invalid object type: {group}/{version}, Kind={name}")));
    }
    if config.pointer("/metadata/managedFields").is_some_and(|v| !v.is_null()) {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    Ok(())
}

enum Failure {
    Merge(Box<Status>),
    Conflicts(Vec<Conflict>),
}

/// A field, and the manager that owns it. Many conflicts share a manager.
type Conflict = (Arc<Entry>, set::Path);

impl Failure {
    fn into_status(self) -> Box<Status> {
        match self {
            Self::Merge(status) => status,
            Self::Conflicts(conflicts) => conflict_status(&conflicts),
        }
    }
}

fn applied(
    kind: &Kind,
    live: &Value,
    config: &Value,
    mut managed: Managed,
    manager: &Manager<'_>,
    force: bool,
) -> std::result::Result<Value, Failure> {
    let schema = kind.schema();
    let reset = kind.reset_fields(manager.subresource);
    let merged = typed::merge(schema, live, config)
        .map_err(|why| Failure::Merge(Status::unknown_error(format!("failed to merge config: {why}"))))?;
    let mut entry = Entry {
        manager: manager.name.to_owned(),
        operation: Operation::Apply,
        api_version: kind.api_version(),
        subresource: manager.subresource.to_owned(),
        time: None,
        set: typed::to_field_set(schema, config),
    };
    reset.filter(&mut entry.set);
    let last = managed.entries.iter().position(|known| known.is(&entry)).map(|at| managed.entries.remove(at));
    entry.time = last.as_ref().and_then(|last| last.time.clone());
    let merged = match &last {
        Some(last) if !last.set.is_empty() => prune(kind, &merged, &managed, &entry, &last.set),
        _ => merged,
    };
    // Compare with the live object for conflicts, as an update would.
    let mut comparison = typed::compare(schema, live, &merged);
    reset.filter_comparison(&mut comparison);
    let mut changed = comparison.modified;
    changed.add(comparison.added);
    let mut conflicts = Vec::new();
    for other in &managed.entries {
        let owned = other.set.intersection(&changed);
        if !owned.is_empty() {
            let other = Arc::new(other.clone());
            owned.for_each(&mut |path| conflicts.push((other.clone(), path.to_vec())));
        }
    }
    if !force && !conflicts.is_empty() {
        return Err(Failure::Conflicts(conflicts));
    }
    for other in &mut managed.entries {
        other.set.subtract(&changed);
        other.set.subtract(&comparison.removed);
    }
    entry.set.subtract(stripped());
    let mut object = merged;
    let canonical_live = {
        let mut copy = live.clone();
        kind.canonicalize(&mut copy);
        copy
    };
    kind.canonicalize(&mut object);
    if object != canonical_live || live.pointer("/metadata/uid").is_none() {
        entry.time = Some(manager.now.to_owned());
    }
    managed.entries.push(entry);
    managed.drop_empty();
    managed.encode(&mut object);
    Ok(object)
}

/// Takes out what the manager applied last time, does not apply any more, and no other manager owns.
fn prune(kind: &Kind, merged: &Value, others: &Managed, own: &Entry, last: &FieldSet) -> Value {
    let schema = kind.schema();
    let named = |set: &FieldSet| set.with_named_fields(Some(schema));
    let pruned = typed::remove_items(schema, merged, &named(last));
    // Add back what any manager (including this one, now) owns.
    let owned = others.entries.iter().fold(own.set.clone(), |all, entry| all.union(&entry.set));
    let merged_set = named(&typed::to_field_set(schema, merged));
    let pruned_set = named(&typed::to_field_set(schema, &pruned));
    let pruned = typed::remove_items(
        schema,
        merged,
        &merged_set.difference(&pruned_set.clone().union(&named(&owned))),
    );
    // Add back what was below something removed, but never applied by this manager.
    let pruned_set = named(&typed::to_field_set(schema, &pruned));
    typed::remove_items(schema, merged, &merged_set.difference(&pruned_set).intersection(&named(last)))
}

/// Conflicts that are not explained by kubectl's `last-applied-configuration`: the first server-side apply of an object
/// that kubectl applied on the client side before takes over its own fields.
fn not_allowed(kind: &Kind, live: &Value, conflicts: &[Conflict]) -> Vec<Conflict> {
    let last = live
        .pointer("/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration")
        .and_then(Value::as_str)
        .and_then(|text| serde_json::from_str::<Value>(text).ok())
        .filter(|last| text_at(last, "/apiVersion") == kind.api_version());
    let Some(last) = last else { return conflicts.to_vec() };
    if !check::validate(kind.schema(), &last, kind.emulated).is_empty() {
        return conflicts.to_vec();
    }
    let comparison = typed::compare(kind.schema(), &last, live);
    let allowed = typed::to_field_set(kind.schema(), &last)
        .difference(&comparison.modified)
        .difference(&comparison.added)
        .difference(&comparison.removed);
    conflicts.iter().filter(|(_, path)| !allowed.has(path)).cloned().collect()
}

pub(crate) fn conflict_status(conflicts: &[Conflict]) -> Box<Status> {
    let causes = conflicts
        .iter()
        .map(|(entry, path)| Cause {
            reason: Cow::Borrowed("FieldManagerConflict"),
            message: format!("conflict with {}", entry.describe()),
            field: path_text(path),
        })
        .collect();
    if let [(entry, path)] = conflicts {
        let message =
            format!("Apply failed with 1 conflict: conflict with {}: {}", entry.describe(), path_text(path));
        return Status::apply_conflict(message, causes);
    }
    let mut managers: Vec<&Entry> = Vec::new();
    for (entry, _) in conflicts {
        if !managers.iter().any(|known| known.is(entry)) {
            managers.push(entry);
        }
    }
    managers.sort_by_key(|entry| entry.identity());
    let mut lines = Vec::new();
    for manager in managers {
        lines.push(format!("conflicts with {}:", manager.describe()));
        for (_, path) in conflicts.iter().filter(|(entry, _)| entry.is(manager)) {
            lines.push(format!("- {}", path_text(path)));
        }
    }
    let message = format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"));
    Status::apply_conflict(message, causes)
}

/// The name of a manager that gave none: the client's, as upstream cuts it from the `User-Agent`.
#[must_use]
pub fn manager_from_user_agent(user_agent: &str) -> String {
    let name: String =
        user_agent.split('/').next().unwrap_or_default().chars().filter(|c| is_print(*c)).collect();
    let mut end = name.len().min(128);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].to_owned()
}

fn is_print(c: char) -> bool {
    go::quote(&c.to_string()).len() == c.len_utf8() + 2 || c == '"' || c == '\\'
}
