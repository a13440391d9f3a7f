//! Exceptions that count: what they accept is compliant until they end, and a violation again from that moment.
//!
//! The webhook of Palisade applies exceptions, the plugin that is built into kube-apiserver does not. So they count only where the
//! administrator states that nothing else enforces; otherwise a namespace would get a label that rejects what runs in it.
//!
//! Whether an exception is for a pod depends on values, labels and images, which the index does not keep. So it keeps the part of
//! the text that decides, of pods that violate only, and judges that again when an exception begins, changes or ends.

use palisade_base::time::Time;
use palisade_policy::exceptions::{
    object::SecurityException,
    set::{ExceptionSet, NamespaceExceptions},
};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{Cluster, NamespaceRecord, WatchedPod, template::what_decides};

/// The exceptions of a cluster, at a moment.
#[derive(Debug)]
pub(super) struct Counted {
    set: ExceptionSet,
    now: Time,
}

impl Counted {
    /// Those for a namespace. As long as it was not seen, no label selects it.
    pub(super) fn of<'e>(
        &'e self,
        namespace: &'e str,
        record: Option<&'e NamespaceRecord>,
    ) -> NamespaceExceptions<'e> {
        let labels = record.filter(|record| record.exists()).map(NamespaceRecord::labels);
        NamespaceExceptions { set: &self.set, namespace, labels, now: self.now }
    }
}

impl Cluster {
    /// From now on, what exceptions accept is compliant. To be called before anything was seen.
    pub fn count_exceptions(&mut self, now: Time) {
        self.counted = Some(Counted { set: ExceptionSet::default(), now });
    }

    /// Whether what exceptions accept is compliant.
    #[must_use]
    pub const fn counts_exceptions(&self) -> bool {
        self.counted.is_some()
    }

    /// The exceptions of the cluster, where they count. Those that cannot be read accept nothing.
    pub fn set_exceptions(&mut self, set: ExceptionSet) {
        let Some(counted) = &mut self.counted else { return };
        let before = std::mem::replace(&mut counted.set, set);
        let is_in = |set: &ExceptionSet, own: &SecurityException| set.readable().contains(own);
        let gone = before.readable().iter().filter(|own| !is_in(&counted.set, own));
        let new = counted.set.readable().iter().filter(|own| !is_in(&before, own));
        let changed: Vec<SecurityException> = gone.chain(new).cloned().collect();
        self.reconsider(&changed);
    }

    /// A moment has come: exceptions end without any other event. Returns whether one did.
    pub fn set_now(&mut self, now: Time) -> bool {
        let Some(counted) = &mut self.counted else { return false };
        let before = std::mem::replace(&mut counted.now, now);
        let has_changed = |own: &&SecurityException| own.counts_at(before) != own.counts_at(now);
        let changed: Vec<SecurityException> =
            counted.set.readable().iter().filter(has_changed).cloned().collect();
        self.reconsider(&changed);
        !changed.is_empty()
    }

    /// The moment at which the next exception ends, in seconds since 1970.
    #[must_use]
    pub fn next_end(&self) -> Option<i64> {
        let counted = self.counted.as_ref()?;
        let in_force = counted.set.readable().iter().filter(|own| own.counts_at(counted.now));
        in_force.map(|own| own.until.seconds).min()
    }

    /// Judges what exceptions may be for.
    fn reconsider(&mut self, changed: &[SecurityException]) {
        let is_selected = |record: &NamespaceRecord| {
            changed.iter().any(|own| own.selects_namespace(record.name(), Some(record.labels())))
        };
        let names: Vec<String> =
            self.namespaces().filter(|record| is_selected(record)).map(|own| own.name().to_owned()).collect();
        for name in names {
            self.refresh(&name, true);
        }
    }

    /// Judges a pod again whose text was kept.
    pub(super) fn judge_kept_pod(&mut self, namespace: &str, key: u64) {
        let Some(record) = self.namespaces.get(namespace) else { return };
        let Some((text, judged)) = record.pods.get(&key).cloned().zip(record.judged(key)) else { return };
        let list = judged.list;
        // swallowed: it was decoded when it was kept; what was judged then stays
        let Ok(object) = serde_json::from_str::<Value>(&text) else { return };
        // swallowed: as above
        let Ok(pod) = WatchedPod::deserialize(&object) else { return };
        let is_new = object["metadata"].get("uid").is_none();
        self.judge_pod(pod, is_new, list, || text.clone());
    }
}

/// The part of a pod that can decide something, from its JSON.
pub(super) fn pod_text(text: &str) -> Box<str> {
    // swallowed: what has no part to be taken is kept whole, and decides as its part does
    serde_json::from_str(text).map_or_else(|_| text.into(), |object| what_decides_of_pod(&object))
}

/// The part of a pod that can decide something.
pub(super) fn what_decides_of_pod(object: &Value) -> Box<str> {
    const METADATA: [&str; 6] = ["annotations", "labels", "name", "namespace", "ownerReferences", "uid"];
    let mut kept = json!({"metadata": {}, "status": {}});
    for field in METADATA {
        if let Some(value) = object["metadata"].get(field) {
            kept["metadata"][field] = value.clone();
        }
    }
    if let Some(spec) = object["spec"].as_object() {
        kept["spec"] = what_decides(spec).into();
    }
    if let Some(phase) = object["status"].get("phase") {
        kept["status"]["phase"] = phase.clone();
    }
    kept.to_string().into()
}
