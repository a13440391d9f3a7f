//! Which ReplicaSet is the new one, and what size each one is to have. Pure.
//!
//! The hash in names and labels is 32-bit FNV-1a in upstream's alphabet, over the JSON of the template with sorted keys. Upstream hashes
//! a dump of Go structures, so that its names differ from these; a ReplicaSet is found by its template and not by its hash.

use std::{cmp::Reverse, collections::BTreeMap};

use serde_json::{Value, json};

use crate::workloads::{
    meta::{Texts, controller_reference},
    object::Object,
};

/// The label with the hash of the template.
pub const HASH: &str = "pod-template-hash";
/// How many pods the Deployment is to have, on its ReplicaSets.
pub const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
/// How many pods it may have during a rollout, on its ReplicaSets.
pub const MAX: &str = "deployment.kubernetes.io/max-replicas";
/// The number of the rollout.
pub const REVISION: &str = "deployment.kubernetes.io/revision";

/// As many pods as `replicas` can hold.
const MOST_PODS: i64 = i32::MAX as i64;

const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The ReplicaSets of a Deployment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sets<'s> {
    /// The one with the template of the Deployment.
    pub new: Option<&'s Object>,
    /// The others, from the oldest to the newest.
    pub old: Vec<&'s Object>,
}

impl<'s> Sets<'s> {
    /// Sorts the ReplicaSets of a Deployment. The oldest one with its template is the new one.
    #[must_use]
    pub fn of(deployment: &Object, all: &[&'s Object]) -> Self {
        let wanted = without_hash(deployment.at("/spec/template"));
        let mut sets = Self::default();
        let mut sorted = all.to_vec();
        sorted.sort_by_key(|set| (set.meta.created, set.meta.name.clone()));
        for set in sorted {
            if sets.new.is_none() && without_hash(set.at("/spec/template")) == wanted {
                sets.new = Some(set);
            } else {
                sets.old.push(set);
            }
        }
        sets
    }

    /// Every ReplicaSet.
    pub fn all(&self) -> impl Iterator<Item = &'s Object> + '_ {
        self.old.iter().copied().chain(self.new)
    }

    /// The ReplicaSets that are to have pods.
    #[must_use]
    pub fn active(&self) -> Vec<&'s Object> {
        self.all().filter(|set| set.replicas() > 0).collect()
    }

    /// The revision that follows those of the old ReplicaSets.
    #[must_use]
    pub fn next_revision(&self) -> i64 {
        self.old.iter().filter_map(|set| number(set, REVISION)).max().unwrap_or_default().saturating_add(1)
    }
}

fn number(set: &Object, annotation: &str) -> Option<i64> {
    set.meta.annotation(annotation).and_then(|text| text.parse().ok())
}

/// A number of pods in an annotation, which its author chooses: what no `replicas` can hold is not there.
fn pods(set: &Object, annotation: &str) -> Option<i64> {
    number(set, annotation).filter(|count| (0..=MOST_PODS).contains(count))
}

/// A template without its hash and without nulls, which mean nothing.
fn without_hash(template: &Value) -> Value {
    let mut template = template.clone();
    if let Some(metadata) = template.get_mut("metadata").and_then(Value::as_object_mut) {
        if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
            labels.remove(HASH);
        }
        metadata.retain(|_, value| !value.is_null() && value.as_object().is_none_or(|map| !map.is_empty()));
    }
    template
}

/// The hash of a template; `collisions` makes another one of it.
#[must_use]
pub fn template_hash(template: &Value, collisions: Option<i64>) -> String {
    let text = without_hash(template).to_string();
    let suffix = collisions.map(|count| count.to_string()).unwrap_or_default();
    let hash = text
        .bytes()
        .chain(suffix.bytes())
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let letter = |digit: u8| ALPHABET.get(usize::from(digit) % ALPHABET.len()).copied().unwrap_or(b'b');
    hash.to_string().bytes().map(|digit| char::from(letter(digit))).collect()
}

/// How far a rollout may go above and below the wanted number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bounds {
    /// So many pods more.
    pub surge: i64,
    /// So many pods that are not available.
    pub unavailable: i64,
}

impl Bounds {
    /// Those of a Deployment; none unless it rolls.
    #[must_use]
    pub fn of(deployment: &Object) -> Self {
        if deployment.text("/spec/strategy/type") != "RollingUpdate" {
            return Self::default();
        }
        let wanted = deployment.replicas();
        let surge = scaled(deployment.at("/spec/strategy/rollingUpdate/maxSurge"), wanted, true);
        let unavailable = scaled(deployment.at("/spec/strategy/rollingUpdate/maxUnavailable"), wanted, false);
        // Percentages may both round to zero, and then nothing could move.
        let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable };
        // A percentage has no limit; a number of pods has.
        Self { surge: surge.min((MOST_PODS - wanted).max(0)), unavailable: unavailable.min(wanted) }
    }
}

/// A number, or a percentage of `total`.
#[must_use]
pub fn scaled(value: &Value, total: i64, round_up: bool) -> i64 {
    if let Some(count) = value.as_i64() {
        return count.max(0);
    }
    let percent = value.as_str().and_then(|text| text.strip_suffix('%')).and_then(|text| text.parse().ok());
    let Some(percent) = percent.filter(|percent: &i64| *percent >= 0) else { return 0 };
    let product = percent.saturating_mul(total);
    if round_up { product.saturating_add(99) / 100 } else { product / 100 }
}

/// A ReplicaSet that is to have another size, or other annotations about the size of the Deployment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale<'s> {
    /// The ReplicaSet.
    pub set: &'s Object,
    /// Its size.
    pub to: i64,
}

/// Whether the size of the Deployment has changed since its ReplicaSets were scaled.
#[must_use]
pub fn is_scaled(deployment: &Object, sets: &Sets<'_>) -> bool {
    let active = sets.active();
    active.iter().filter_map(|set| pods(set, DESIRED)).any(|desired| desired != deployment.replicas())
}

/// The size of the new ReplicaSet: as large as the bounds allow.
#[must_use]
pub fn new_size(deployment: &Object, sets: &Sets<'_>) -> i64 {
    let wanted = deployment.replicas();
    let size = sets.new.map_or(0, Object::replicas);
    if deployment.text("/spec/strategy/type") != "RollingUpdate" || size > wanted {
        return wanted;
    }
    let total: i64 = sets.all().map(Object::replicas).sum();
    let free = (wanted + Bounds::of(deployment).surge - total).max(0);
    size + free.min(wanted - size)
}

/// A step of a rolling update: the new ReplicaSet grows, or the old ones shrink, first by what is not available.
#[must_use]
pub fn roll<'s>(deployment: &Object, sets: &Sets<'s>) -> Vec<Scale<'s>> {
    let Some(new) = sets.new else { return Vec::new() };
    let to = new_size(deployment, sets);
    if to != new.replicas() {
        return vec![Scale { set: new, to }];
    }
    let available = |set: &Object| set.count("/status/availableReplicas");
    let least = deployment.replicas() - Bounds::of(deployment).unavailable;
    let total: i64 = sets.all().map(Object::replicas).sum();
    let mut unhealthy = total - least - (new.replicas() - available(new));
    if unhealthy <= 0 {
        return Vec::new();
    }
    let mut sizes: BTreeMap<&str, i64> = BTreeMap::new();
    for set in &sets.old {
        let surplus = (set.replicas() - available(set)).clamp(0, unhealthy);
        unhealthy -= surplus;
        sizes.insert(&set.meta.name, set.replicas() - surplus);
    }
    let mut healthy = (sets.all().map(available).sum::<i64>() - least).max(0);
    for set in &sets.old {
        if let Some(size) = sizes.get_mut(&*set.meta.name) {
            let surplus = healthy.min(*size).max(0);
            healthy -= surplus;
            *size -= surplus;
        }
    }
    let size = |set: &Object| sizes.get(&*set.meta.name).copied().unwrap_or_default();
    let scales = sets.old.iter().copied().map(|set| Scale { set, to: size(set) });
    scales.filter(|scale| scale.to != scale.set.replicas()).collect()
}

/// The sizes after the Deployment was scaled, or while it is paused: each ReplicaSet keeps its share.
#[must_use]
pub fn share<'s>(deployment: &Object, sets: &Sets<'s>) -> Vec<Scale<'s>> {
    let wanted = deployment.replicas();
    let mut active = sets.active();
    if active.len() <= 1 {
        let only = active.first().copied().or(sets.new).or_else(|| sets.old.last().copied());
        let changed = only.filter(|set| set.replicas() != wanted);
        return changed.map(|set| Scale { set, to: wanted }).into_iter().collect();
    }
    let is_saturated = |new: &&Object| {
        new.replicas() == wanted
            && pods(new, DESIRED) == Some(wanted)
            && new.count("/status/availableReplicas") == wanted
    };
    if sets.new.as_ref().is_some_and(is_saturated) {
        let old = sets.old.iter().copied().filter(|set| set.replicas() > 0);
        return old.map(|set| Scale { set, to: 0 }).collect();
    }
    if deployment.text("/spec/strategy/type") != "RollingUpdate" {
        return Vec::new();
    }
    let most = wanted + Bounds::of(deployment).surge;
    let allowed = if wanted > 0 { most } else { 0 };
    let add = allowed - active.iter().map(|set| set.replicas()).sum::<i64>();
    // Of two of the same size, the newer one grows first and the older one shrinks first.
    active.sort_by_key(|set| (set.meta.created, set.meta.name.clone()));
    if add > 0 {
        active.reverse();
    }
    active.sort_by_key(|set| Reverse(set.replicas()));
    let mut left = add;
    let mut scales = Vec::new();
    for set in active {
        let part = fraction(deployment, set, most);
        let part = if add > 0 { part.min(left) } else { part.max(left) };
        let part = if left == 0 { 0 } else { part };
        left -= part;
        scales.push(Scale { set, to: set.replicas() + part });
    }
    if let Some(first) = scales.first_mut() {
        first.to = (first.to + left).max(0);
    }
    scales
}

/// By how much a ReplicaSet grows or shrinks to keep its share.
fn fraction(deployment: &Object, set: &Object, most: i64) -> i64 {
    let size = set.replicas();
    if deployment.replicas() == 0 {
        return -size;
    }
    let before = pods(set, MAX).filter(|before| *before > 0);
    let before = before.unwrap_or_else(|| deployment.count("/status/replicas"));
    if before <= 0 {
        return 0;
    }
    // Half and more is rounded up. Each factor has 31 bits, and the product with two does not fit into 63.
    let (product, divisor) = (i128::from(size) * i128::from(most) * 2, i128::from(before) * 2);
    let share = i64::try_from((product + i128::from(before)) / divisor).unwrap_or(MOST_PODS);
    share.min(MOST_PODS) - size
}

/// The old ReplicaSets beyond the history limit, without those that still have pods.
#[must_use]
pub fn expired<'s>(deployment: &Object, sets: &Sets<'s>) -> Vec<&'s Object> {
    let limit = deployment.int("/spec/revisionHistoryLimit").filter(|limit| *limit != i64::from(i32::MAX));
    let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) else { return Vec::new() };
    let mut old: Vec<&Object> = sets.old.iter().copied().filter(|set| !set.meta.is_deleting()).collect();
    old.sort_by_key(|set| number(set, REVISION));
    old.truncate(old.len().saturating_sub(limit));
    old.retain(|set| {
        let is_observed = set.meta.generation <= set.count("/status/observedGeneration");
        set.replicas() == 0 && set.count("/status/replicas") == 0 && is_observed
    });
    old
}

/// Annotations of a Deployment that its ReplicaSets do not get.
const OWN: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    "deprecated.deployment.rollback.to",
    REVISION,
    HISTORY,
    DESIRED,
    MAX,
];
/// The revisions that a ReplicaSet had before.
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// The history of revisions has at most so many characters.
const LONGEST_HISTORY: usize = 2000;

/// The new ReplicaSet with the annotations of the Deployment and its revision, if that changes it.
#[must_use]
pub fn annotations(deployment: &Object, set: &Object, revision: i64) -> Option<Value> {
    let mut texts = set.meta.annotations.clone();
    let copied = deployment.meta.annotations.iter().filter(|(key, _)| !OWN.contains(&&***key));
    texts.extend(copied.map(|(key, value)| (key.clone(), value.clone())));
    let known = set.meta.annotation(REVISION);
    // A revision that is no number is left alone, as upstream leaves it.
    let number: Option<i64> = known.map_or(Some(0), |known| known.parse().ok());
    if number.is_some_and(|number| number < revision) {
        texts.insert(REVISION.into(), revision.to_string().into());
        if let Some(known) = known {
            let mut history: Vec<&str> =
                set.meta.annotation(HISTORY).unwrap_or_default().split(',').collect();
            history.retain(|one| !one.is_empty());
            history.push(known);
            while history.len() > 1 && history.join(",").len() > LONGEST_HISTORY {
                history.remove(0);
            }
            texts.insert(HISTORY.into(), history.join(",").into());
        }
    }
    let min_ready = deployment.count("/spec/minReadySeconds");
    if texts == set.meta.annotations && min_ready == set.count("/spec/minReadySeconds") {
        return None;
    }
    let mut object = set.value.clone();
    object["metadata"]["annotations"] = json!(texts);
    object["spec"]["minReadySeconds"] = json!(min_ready);
    Some(object)
}

/// The ReplicaSet of a Deployment's template.
#[must_use]
pub fn new_set(deployment: &Object, sets: &Sets<'_>) -> Value {
    let mut template = deployment.at("/spec/template").clone();
    let hash = template_hash(&template, deployment.int("/status/collisionCount"));
    template["metadata"]["labels"][HASH] = json!(hash);
    let mut selector = deployment.at("/spec/selector").clone();
    selector["matchLabels"][HASH] = json!(hash);
    let wanted = deployment.replicas();
    let copied = deployment.meta.annotations.iter().filter(|(key, _)| !OWN.contains(&&***key));
    let mut annotations: Texts = copied.map(|(key, value)| (key.clone(), value.clone())).collect();
    annotations.insert(REVISION.into(), sets.next_revision().to_string().into());
    annotations.insert(DESIRED.into(), wanted.to_string().into());
    annotations.insert(MAX.into(), (wanted + Bounds::of(deployment).surge).to_string().into());
    // A name has at most 253 characters; it is ASCII.
    let longest = 252_usize.saturating_sub(hash.len());
    let prefix = deployment.meta.name.get(..longest).unwrap_or(&deployment.meta.name);
    json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": format!("{prefix}-{hash}"),
        "namespace": deployment.meta.namespace, "labels": template["metadata"]["labels"], "annotations": annotations,
        "ownerReferences": [controller_reference("apps/v1", "Deployment", &deployment.meta)]},
        "spec": {"replicas": new_size(deployment, sets), "minReadySeconds": deployment.count("/spec/minReadySeconds"),
        "selector": selector, "template": template}})
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Bounds, Scale, Sets, expired, new_size, roll, share, template_hash};
    use crate::workloads::object::Object;

    fn deployment(replicas: i64, surge: &Value, unavailable: &Value, image: &str) -> Object {
        Object::of(json!({"metadata": {"name": "web"}, "spec": {"replicas": replicas, "revisionHistoryLimit": 1,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"image": image}}}}))
        .unwrap()
    }

    /// A ReplicaSet, whose image is its name.
    fn set(name: &str, age: u32, replicas: i64, available: i64, annotations: &Value) -> Object {
        Object::of(json!({"metadata": {"name": name, "creationTimestamp": format!("2026-01-01T00:00:{:02}Z", 59 - age),
            "annotations": annotations}, "spec": {"replicas": replicas, "template": {"metadata": {"creationTimestamp": null,
            "labels": {"app": "web", "pod-template-hash": name}}, "spec": {"image": name}}},
            "status": {"replicas": replicas, "availableReplicas": available}}))
        .unwrap()
    }

    fn sizes(scales: &[Scale<'_>]) -> Vec<(String, i64)> {
        scales.iter().map(|scale| (scale.set.meta.name.to_string(), scale.to)).collect()
    }

    #[test]
    fn percentages_round_so_that_something_can_move() {
        for (case, replicas, surge, unavailable, expected) in [
            ("numbers", 10, json!(3), json!(2), (3, 2)),
            ("surge up, unavailable down", 10, json!("25%"), json!("25%"), (3, 2)),
            ("both round to zero", 2, json!(0), json!("1%"), (0, 1)),
            ("no more than there are", 2, json!(0), json!(5), (0, 2)),
            ("scaled to zero", 0, json!("25%"), json!("25%"), (0, 0)),
        ] {
            let bounds = Bounds::of(&deployment(replicas, &surge, &unavailable, "b"));
            assert_eq!((bounds.surge, bounds.unavailable), expected, "{case}");
        }
    }

    #[test]
    fn a_rolling_update_stays_within_its_bounds() {
        let rolling = deployment(10, &json!(3), &json!(2), "b");
        for (case, old, new, expected) in [
            ("the new one grows by the surge", (10, 10), (0, 0), vec![("b".to_owned(), 3)]),
            ("the old one shrinks to the minimum", (10, 10), (3, 0), vec![("a".to_owned(), 8)]),
            ("nothing while the new pods are not available", (8, 8), (5, 0), vec![]),
            ("what is not available goes first", (8, 3), (5, 5), vec![("a".to_owned(), 3)]),
            ("the end", (0, 0), (10, 10), vec![]),
        ] {
            let (old, new) = (set("a", 9, old.0, old.1, &json!({})), set("b", 1, new.0, new.1, &json!({})));
            let sets = Sets::of(&rolling, &[&old, &new]);
            assert_eq!(sets.new.map(|set| &*set.meta.name), Some("b"), "{case}");
            assert_eq!(sizes(&roll(&rolling, &sets)), expected, "{case}");
        }
    }

    #[test]
    fn the_first_rollout_begins_at_full_size_and_a_later_one_with_the_surge() {
        let rolling = deployment(10, &json!(3), &json!(2), "b");
        assert_eq!(new_size(&rolling, &Sets::default()), 10);
        let old = set("a", 9, 10, 10, &json!({}));
        assert_eq!(new_size(&rolling, &Sets::of(&rolling, &[&old])), 3);
    }

    #[test]
    fn each_replica_set_keeps_its_share_when_a_rollout_is_scaled() {
        let max = json!({"deployment.kubernetes.io/max-replicas": "13", "deployment.kubernetes.io/desired-replicas": "10"});
        let (old, new) = (set("a", 9, 8, 8, &max), set("b", 1, 5, 0, &max));
        for (case, replicas, expected) in [
            ("twice as many", 20, vec![("a".to_owned(), 14), ("b".to_owned(), 9)]),
            ("none", 0, vec![("a".to_owned(), 0), ("b".to_owned(), 0)]),
        ] {
            let scaled = deployment(replicas, &json!(3), &json!(2), "b");
            assert_eq!(sizes(&share(&scaled, &Sets::of(&scaled, &[&old, &new]))), expected, "{case}");
        }
        let scaled = deployment(4, &json!(3), &json!(2), "b");
        let only = set("b", 1, 10, 10, &max);
        assert_eq!(sizes(&share(&scaled, &Sets::of(&scaled, &[&only]))), [("b".to_owned(), 4)]);
    }

    #[test]
    fn numbers_of_pods_have_a_limit_whatever_percentages_and_annotations_claim() {
        let claim = |max: &str| json!({"deployment.kubernetes.io/max-replicas": max, "deployment.kubernetes.io/desired-replicas": max});
        let largest = i64::from(i32::MAX);
        for (case, surge, annotation) in [
            ("a huge percentage", json!("9223372036854775807%"), "13"),
            ("a huge annotation", json!(3), "9223372036854775807"),
            ("an annotation whose double is too large", json!(3), "4611686018427387904"),
            ("a negative annotation", json!(3), "-1"),
            ("both", json!("9223372036854775807%"), "1"),
        ] {
            let claim = claim(annotation);
            let (old, new) = (set("a", 9, largest, 8, &claim), set("b", 1, 500, 0, &claim));
            for replicas in [0, 1, 900, largest] {
                let scaled = deployment(replicas, &surge, &json!(0), "b");
                let sets = Sets::of(&scaled, &[&old, &new]);
                let bounds = Bounds::of(&scaled);
                assert!((0..=largest - replicas).contains(&bounds.surge), "{case}: {bounds:?}");
                let planned = share(&scaled, &sets).into_iter().chain(roll(&scaled, &sets));
                for scale in planned {
                    assert!((0..=largest).contains(&scale.to), "{case}, {replicas}: {scale:?}");
                }
            }
        }
    }

    #[test]
    fn history_beyond_the_limit_expires_unless_it_has_pods() {
        let revision = |number: &str| json!({"deployment.kubernetes.io/revision": number});
        let (first, second) = (set("x", 9, 0, 0, &revision("1")), set("y", 8, 0, 0, &revision("2")));
        let rolling = deployment(1, &json!(1), &json!(0), "b");
        let sets = Sets::of(&rolling, &[&second, &first]);
        assert_eq!(sets.next_revision(), 3);
        assert_eq!(expired(&rolling, &sets), [&first]);
        let busy = set("x", 9, 1, 1, &revision("1"));
        assert!(expired(&rolling, &Sets::of(&rolling, &[&second, &busy])).is_empty());
    }

    #[test]
    fn the_hash_depends_on_the_template_and_on_collisions_alone() {
        let (a, b) = (set("a", 1, 0, 0, &json!({})), set("b", 1, 0, 0, &json!({})));
        let plain = deployment(1, &json!(1), &json!(0), "a");
        let hash = template_hash(plain.at("/spec/template"), None);
        assert_eq!(hash, template_hash(a.at("/spec/template"), None), "its own label does not count");
        assert_ne!(hash, template_hash(b.at("/spec/template"), None));
        assert_ne!(hash, template_hash(plain.at("/spec/template"), Some(1)));
        assert!(hash.bytes().all(|letter| super::ALPHABET.contains(&letter)), "{hash}");
    }
}
