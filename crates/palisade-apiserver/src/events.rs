//! Events have two forms, that of the core group and that of `events.k8s.io`; each is shown as the other.
//!
//! Implements: the conversions of `pkg/apis/events/v1`. Objects are stored as the JSON clients get, so an event is stored in
//! both forms; each of the two resources contains what was written through the other.

use std::sync::Arc;

use serde_json::Value;

use crate::api::Api;
use crate::registry::Entry;

/// What a field is called in the core group, and in `events.k8s.io`.
const FIELDS: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// The other form of an event, and the resource it is stored under.
pub(crate) fn twin(api: &Api, entry: &Entry, event: &Value) -> Option<(Arc<Entry>, Value)> {
    if entry.kind.plural != "events" || entry.kind.is_custom() {
        return None;
    }
    let to_core = match entry.kind.group.as_str() {
        "events.k8s.io" => true,
        "" => false,
        _ => return None,
    };
    let served = api.registry.served();
    let other = served.find(if to_core { "" } else { "events.k8s.io" }, "v1", "events")?;
    let mut fields = event.as_object()?.clone();
    for &(core, new) in FIELDS {
        let (from, to) = if to_core { (new, core) } else { (core, new) };
        if let Some(value) = fields.remove(from) {
            fields.insert(to.to_owned(), value);
        }
    }
    let mut twin = other.typed(fields);
    other.kind.canonicalize(&mut twin);
    Some((other.clone(), twin))
}
