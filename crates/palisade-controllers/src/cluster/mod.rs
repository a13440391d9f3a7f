//! What was observed of a cluster, reduced to what decides.
//!
//! Fed by watches or by a folder of manifests, read by every controller. A pod is judged once, when it is seen, and
//! kept as a handful of bytes; only what violates keeps its names and causes. So a change costs what it touches, and a
//! million pods fit into memory.

mod counted;
mod excused;
mod judged;
mod namespace;
mod observe;
mod rejections;
mod supply;
mod template;

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use palisade_model::{
    compat::Compat,
    metadata::{ObjectMeta, StringMap},
    pod::{Pod, PodSpec},
    prepare::{Prepared, Subject as PodSubject},
    text::Text,
    workload::{WORKLOADS, WorkloadKind, group_of},
};
use palisade_policy::{
    enforcement::{classify::is_by_user, level::LevelSource, state::Evaluation, violations::Verdict},
    exceptions::workload::{Provenance, of_pod},
    scc::{
        choose::VALIDATED,
        constraint::{Constraint, ReadError},
        grants::Grants,
        namespace_ranges::{MCS, NamespaceRanges, SUPPLEMENTAL_GROUPS, UID_RANGE},
        provider::Provider,
        set::ConstraintSet,
    },
    standards::level::Level,
};
use serde::Deserialize;
use serde_json::Value;

use self::{
    counted::Counted,
    judged::{Judge, Judged, Standing, Subject, Supply},
    rejections::Reports,
    template::{Held, Template},
};

pub use self::{
    excused::{Excused, ExcusedObjects},
    judged::{Blocker, Cause, Undecided},
    namespace::NamespaceRecord,
    observe::{Seen, holds_pod, is_of_openshift},
    rejections::{RejectedBy, RejectedWorkload},
};

/// Everything the rollout depends on in the cluster's objects.
#[derive(Debug)]
pub struct Cluster {
    constraints: ConstraintSet,
    unreadable_constraints: BTreeMap<String, ReadError>,
    grants: Grants,
    namespaces: BTreeMap<String, Box<NamespaceRecord>>,
    judge: Judge,
    keys: RandomState,
    unlabelled: BTreeSet<String>,
    without_ranges: BTreeSet<String>,
    /// Namespaces that are not simply clean, and how many there are of each verdict.
    not_clean: BTreeMap<String, Verdict>,
    tally: Tally,
    /// Namespaces whose labels may have to change since they were last taken.
    touched: BTreeSet<String>,
    /// How often each kind of workload has been listed: what an older list brought and the newest did not is gone.
    lists: [u8; KINDS],
    /// What cannot be judged and is in no namespace that is known.
    unplaced: BTreeMap<u64, Undecided>,
    /// Whether something sets the labels of the namespaces that are always privileged.
    has_label_syncer: bool,
    /// Where levels come from.
    levels: LevelSource,
    /// Whether Palisade's own label syncer sets labels.
    has_own_label_syncer: bool,
    /// What is enforced where there is no label; `None` as long as that is not known.
    default_enforce: Option<Level>,
    /// The day, since 1970.
    today: i64,
    /// Whether all pods are being listed: of none of them it is known that it is new.
    lists_pods: bool,
    /// Workloads whose pods are rejected, by namespace and where that was seen.
    rejections: BTreeMap<String, Reports>,
    /// The exceptions, where what they accept counts as compliant.
    counted: Option<Counted>,
}

impl Default for Cluster {
    fn default() -> Self {
        Self::new(Compat::default())
    }
}

/// How many namespaces there are of each verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// They would not violate, or their owner decided for them.
    pub clean: usize,
    /// They would violate.
    pub violating: usize,
    /// Not everything in them can be judged.
    pub inconclusive: usize,
}

impl Tally {
    fn of(&mut self, verdict: Verdict) -> &mut usize {
        match verdict {
            Verdict::Clean => &mut self.clean,
            Verdict::Violating(_) => &mut self.violating,
            Verdict::Inconclusive => &mut self.inconclusive,
        }
    }
}

/// More kinds of workloads than there are; the number of one fits into the lowest bits of a key.
const KINDS: usize = 32;

/// A pod as a watch brings it: without what does not decide, borrowed from the message.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct WatchedPod<'a> {
    #[serde(borrow)]
    pub metadata: ObjectMeta<'a>,
    #[serde(borrow)]
    pub spec: PodSpec<'a>,
    #[serde(borrow)]
    pub status: PodStatus<'a>,
}

/// `status` of a pod.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct PodStatus<'a> {
    #[serde(borrow)]
    pub phase: Option<Text<'a>>,
}

impl PodStatus<'_> {
    /// Whether the pod ran to its end: it will not be admitted again.
    fn is_over(&self) -> bool {
        matches!(self.phase.as_deref(), Some("Succeeded" | "Failed"))
    }
}

impl Cluster {
    /// An empty cluster, judged by the rules of its API server, in which constraints decide about levels.
    #[must_use]
    pub fn new(compat: Compat) -> Self {
        Self::with_levels(compat, LevelSource::Constraints)
    }

    /// An empty cluster, judged by the rules of its API server.
    #[must_use]
    pub fn with_levels(compat: Compat, levels: LevelSource) -> Self {
        Self {
            constraints: ConstraintSet::default(),
            unreadable_constraints: BTreeMap::new(),
            grants: Grants::default(),
            namespaces: BTreeMap::new(),
            judge: Judge::new(compat),
            keys: RandomState::new(),
            unlabelled: BTreeSet::new(),
            without_ranges: BTreeSet::new(),
            not_clean: BTreeMap::new(),
            tally: Tally::default(),
            touched: BTreeSet::new(),
            lists: [0; KINDS],
            unplaced: BTreeMap::new(),
            has_label_syncer: true,
            levels,
            has_own_label_syncer: true,
            default_enforce: Some(Level::Privileged),
            today: 0,
            lists_pods: false,
            rejections: BTreeMap::new(),
            counted: None,
        }
    }

    /// Whose reading of pods is judged.
    #[must_use]
    pub const fn compat(&self) -> Compat {
        self.judge.compat
    }

    /// Where levels come from.
    #[must_use]
    pub const fn levels(&self) -> LevelSource {
        self.levels
    }

    /// What is enforced where there is no label; `None` as long as that is not known. A template whose pods are rejected already
    /// is not what a namespace needs: otherwise a workload would loosen the label that rejects it.
    pub fn set_default_enforce(&mut self, level: Option<Level>) {
        if self.default_enforce != level {
            self.default_enforce = level;
            if self.levels == LevelSource::Workloads {
                self.refresh_all();
            }
        }
    }

    /// A day has come, since 1970: workloads that are gone for long are forgotten.
    pub fn set_today(&mut self, today: i64) {
        if self.today == today {
            return;
        }
        self.today = today;
        let changed: Vec<String> = self
            .namespaces
            .values_mut()
            .filter_map(|record| record.memory.expire(today).then(|| record.name().to_owned()))
            .collect();
        for name in changed {
            self.settle(&name);
        }
    }

    /// Others than Palisade's label syncer set the labels, if anything does.
    pub fn without_own_label_syncer(&mut self) {
        self.has_own_label_syncer = false;
        self.refresh_all();
    }

    /// Nothing sets labels in this cluster: a namespace that is to be privileged has to carry the label itself.
    pub fn without_label_syncer(&mut self) {
        self.has_label_syncer = false;
        for record in self.namespaces.values_mut() {
            record.needs_own_label = true;
        }
        self.refresh_all();
    }

    /// What cannot be judged and is in no namespace that is known.
    #[must_use]
    pub fn unplaced(&self) -> impl ExactSizeIterator<Item = &Undecided> {
        self.unplaced.values()
    }

    /// The constraints in force.
    #[must_use]
    pub const fn constraints(&self) -> &ConstraintSet {
        &self.constraints
    }

    /// Constraints that are left out because they make no sense, and why.
    #[must_use]
    pub fn skipped_constraints(&self) -> BTreeMap<&str, String> {
        let unreadable = self.unreadable_constraints.values();
        let mut skipped: BTreeMap<&str, String> =
            unreadable.map(|error| (error.name.as_str(), error.source.to_string())).collect();
        // Any ranges will do: only what is wrong with the constraint itself counts.
        let annotations: StringMap<'_> =
            [(UID_RANGE, "1/1"), (SUPPLEMENTAL_GROUPS, "1/1"), (MCS, "s0:c1,c0")]
                .into_iter()
                .map(|(key, value)| (key.into(), value.into()))
                .collect();
        let ranges = NamespaceRanges::new("", &annotations);
        for constraint in self.constraints.iter() {
            if let Err(error) = Provider::new(constraint, &ranges) {
                skipped.insert(constraint.name(), error.kind.to_string());
            }
        }
        skipped
    }

    /// Namespaces that have no ranges yet, by name.
    pub fn without_ranges(&self) -> impl ExactSizeIterator<Item = &str> {
        self.without_ranges.iter().map(String::as_str)
    }

    /// A namespace that exists.
    #[must_use]
    pub fn namespace(&self, name: &str) -> Option<&NamespaceRecord> {
        self.namespaces.get(name).map(Box::as_ref).filter(|record| record.exists())
    }

    /// All namespaces that exist, by name.
    pub fn namespaces(&self) -> impl Iterator<Item = &NamespaceRecord> {
        self.namespaces.values().map(Box::as_ref).filter(|record| record.exists())
    }

    /// Namespaces that still lack an enforce label they should have; none means that labels are done.
    pub fn unlabelled(&self) -> impl ExactSizeIterator<Item = &str> {
        self.unlabelled.iter().map(String::as_str)
    }

    /// Whether a namespace has the enforce label that it should have, or needs none.
    #[must_use]
    pub fn has_label(&self, name: &str) -> bool {
        !self.unlabelled.contains(name)
    }

    /// A constraint was seen. What is no constraint any more is left out, and kept in mind.
    pub fn set_constraint(&mut self, object: &Value) {
        match Constraint::read(object) {
            Ok(constraint) => {
                self.unreadable_constraints.remove(constraint.name());
                if self.constraints.get(constraint.name()) == Some(&constraint) {
                    return;
                }
                let name = constraint.name().to_owned();
                self.replace_constraint(&name, Some(constraint));
            }
            Err(error) => {
                let name = error.name.clone();
                self.replace_constraint(&name, None);
                self.unreadable_constraints.insert(name, error);
            }
        }
    }

    /// A constraint is gone.
    pub fn remove_constraint(&mut self, name: &str) {
        self.unreadable_constraints.remove(name);
        self.replace_constraint(name, None);
    }

    fn replace_constraint(&mut self, name: &str, constraint: Option<Constraint>) {
        let others = self.constraints.iter().filter(|own| own.name() != name).cloned();
        self.constraints = ConstraintSet::new(others.chain(constraint).collect());
        self.refresh_all();
    }

    /// A namespace was seen. An older version than the one that is known changes nothing: answers to writes overtake
    /// watches.
    pub fn set_namespace(&mut self, object: &Value) {
        let Some(name) = object.pointer("/metadata/name").and_then(Value::as_str) else { return };
        let (today, selects) = (self.today, self.counted.is_some());
        let record = self.record(name);
        if record.is_newer_than(object) {
            return;
        }
        let (was_there, enforced) = (record.exists(), record.enforce_label());
        let labels = selects.then(|| record.labels().clone());
        let new_ranges = record.set_object(object);
        if !was_there {
            record.recall(today);
        }
        // What its label rejects already is not what it needs, so templates count anew. Its labels select exceptions.
        let is_news = !was_there || record.enforce_label() != enforced;
        let is_selected_anew = labels.is_some_and(|labels| !was_there || labels != *record.labels());
        let by_workloads = is_news && self.levels == LevelSource::Workloads;
        self.refresh(name, new_ranges || by_workloads || is_selected_anew);
    }

    /// A namespace is gone, and with it all that was in it.
    pub fn remove_namespace(&mut self, name: &str) {
        let record = self.namespaces.remove(name);
        self.count(name, record.and_then(|record| record.last_verdict), None);
        self.unlabelled.remove(name);
        self.without_ranges.remove(name);
        self.touched.remove(name);
        self.rejections.remove(name);
    }

    /// Namespaces whose labels may have to change since the last call.
    pub fn take_touched(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.touched)
    }

    /// A namespace is to be looked at again.
    pub fn touch(&mut self, name: &str) {
        if self.namespace(name).is_some() {
            self.touched.insert(name.to_owned());
        }
    }

    /// All namespaces are to be looked at again.
    pub fn touch_all(&mut self) {
        self.touched =
            self.namespaces.values().filter(|record| record.exists()).map(|r| r.name().to_owned()).collect();
    }

    /// All pods, or all workloads of a kind, are about to be seen.
    pub fn begin_list(&mut self, group: &str, kind: &str) {
        if let Some(lists) = self.lists.get_mut(kind_number(group, kind)) {
            *lists = lists.wrapping_add(1);
        }
        self.lists_pods |= (group, kind) == ("", "Pod");
    }

    /// All pods, or all workloads of a kind, have been seen: what was not is gone.
    pub fn end_list(&mut self, group: &str, kind: &str) {
        self.lists_pods &= (group, kind) != ("", "Pod");
        let (number, list, today) = (kind_number(group, kind), self.list_of(group, kind), self.today);
        let changed: Vec<String> = self
            .namespaces
            .values_mut()
            .filter_map(|record| record.sweep(number, list, today).then(|| record.name().to_owned()))
            .collect();
        for name in changed {
            let record = self.namespaces.get(&name);
            let idle: Vec<u64> =
                record.into_iter().flat_map(|record| record.idle.values().flatten()).copied().collect();
            for key in idle {
                self.judge_template(&name, key);
            }
            self.settle(&name);
        }
    }

    fn list_of(&self, group: &str, kind: &str) -> u8 {
        self.lists.get(kind_number(group, kind)).copied().unwrap_or_default()
    }

    /// A service account was seen.
    pub fn set_service_account(&mut self, namespace: &str, name: &str) {
        if self.record(namespace).service_accounts.insert(name.to_owned()) {
            self.refresh(namespace, false);
        }
    }

    /// A service account is gone.
    pub fn remove_service_account(&mut self, namespace: &str, name: &str) {
        if self.namespaces.get_mut(namespace).is_some_and(|record| record.service_accounts.remove(name)) {
            self.refresh(namespace, false);
        }
    }

    /// A Role, or without a namespace a ClusterRole, was seen; without an object it is gone.
    pub fn set_role(&mut self, namespace: Option<&str>, name: &str, object: Option<&Value>) {
        let changed = match object {
            Some(object) => self.grants.set_role(namespace, name, object),
            None => self.grants.remove_role(namespace, name),
        };
        self.refresh_scope(changed, namespace);
    }

    /// A RoleBinding, or without a namespace a ClusterRoleBinding, was seen; without an object it is gone.
    pub fn set_binding(&mut self, namespace: Option<&str>, name: &str, object: Option<&Value>) {
        let changed = match object {
            Some(object) => self.grants.set_binding(namespace, name, object),
            None => self.grants.remove_binding(namespace, name),
        };
        self.refresh_scope(changed, namespace);
    }

    /// A pod was seen, as JSON.
    pub fn set_pod(&mut self, text: &str) -> Result<(), serde_json::Error> {
        let pod = serde_json::from_str::<WatchedPod<'_>>(text)?;
        let list = self.list_of("", "Pod");
        self.judge_pod(pod, false, list, || counted::pod_text(text));
        Ok(())
    }

    /// Judges a pod. `text` is kept where exceptions can change what it comes to.
    fn judge_pod(&mut self, pod: WatchedPod<'_>, is_new: bool, list: u8, text: impl FnOnce() -> Box<str>) {
        let WatchedPod { metadata, spec, status } = pod;
        let pod = Pod { metadata, spec };
        // What was decided when a pod was created stays decided; one that is only written down is still to be created.
        let pod = if is_new {
            Prepared::new(pod, PodSubject::Pod, &self.judge.compat)
        } else {
            Prepared::stored(pod, &self.judge.compat)
        };
        let metadata = &pod.pod().metadata;
        let key = self.key("", "Pod", &metadata.name);
        // The API server drops the status of a pod that is created.
        let judged = (is_new || !status.is_over()).then(|| {
            let owner = metadata.owner_references.iter().find(|owner| owner.controller == Some(true));
            let record = self.namespaces.get(&*metadata.namespace);
            let exceptions =
                self.counted.as_ref().map(|counted| counted.of(&metadata.namespace, record.map(Box::as_ref)));
            let workloads = match exceptions {
                Some(_) if is_new => of_pod(metadata, Provenance::Unknown),
                Some(_) => of_pod(metadata, Provenance::Stored),
                None => Vec::new(),
            };
            let subject = Subject {
                kind: "Pod",
                name: &metadata.name,
                owner: owner.map(|owner| (owner.kind.as_str(), owner.name.as_str())),
                service_account: pod.spec().service_account(),
                constraint: metadata.annotations.get(VALIDATED),
                is_by_user: is_by_user(&metadata.annotations),
                list,
                workloads: &workloads,
            };
            self.judge.judge(&pod, &subject, &Supply::Enough, exceptions.as_ref())
        });
        let is_kept = self.counted.is_some() && judged.as_ref().is_some_and(Judged::depends_on_exceptions);
        let owner = metadata.owner_references.iter().find(|owner| owner.controller == Some(true));
        let (kind, name) =
            owner.map_or(("Pod", &*metadata.name), |owner| (owner.kind.as_str(), owner.name.as_str()));
        self.record(&metadata.namespace).forget_template(key);
        self.keep(&metadata.namespace, key, judged, Source::Pod, (kind, name));
        if is_kept {
            self.record(&metadata.namespace).pods.insert(key, text());
        }
        self.settle(&metadata.namespace);
    }

    /// Keeps what was judged: its counts, and what its workload needs.
    fn keep(
        &mut self,
        namespace: &str,
        key: u64,
        mut judged: Option<Judged>,
        source: Source,
        owner: (&str, &str),
    ) {
        let (today, default, lists_pods) = (self.today, self.default_enforce, self.lists_pods);
        let has_exceptions = self.counted.is_some();
        if self.levels == LevelSource::Workloads
            && let Some(judged) = &mut judged
        {
            let need = judged.need();
            let record = self.record(namespace);
            let is_pod = source == Source::Pod;
            let before = record.judged(key);
            judged.is_excusable |= is_pod && before.is_some_and(|before| before.is_excusable);
            // What an exception accepted, a pod was not admitted with, and when that has ended its namespace is not loosened for it.
            // A pod that its namespace rejects by now is taken for such a one, because an exception may be gone without a trace.
            let is_known =
                record.exists() && (default == Some(Level::Privileged) || !record.label_rejects(need));
            let is_by_exception = judged.is_excusable
                || (has_exceptions && judged.standing != Standing::Undecided && !is_known);
            let complies_now = is_pod && (judged.is_excused || (!lists_pods && before.is_none()));
            // What would be rejected now does not run, and what does not run needs nothing.
            let counts = need < Level::Restricted
                && ((is_pod && !is_by_exception)
                    || record.effective(default).is_some_and(|level| need >= level));
            if counts || (complies_now && !record.memory.is_empty()) {
                let workload = self.workload_of(namespace, owner.0, owner.1);
                let record = self.record(namespace);
                if complies_now {
                    record.memory.comply(&workload, need, today);
                }
                if counts {
                    judged.remember(workload);
                }
            }
        }
        self.record(namespace).set_judged(key, judged, today);
    }

    /// The workload that something belongs to in the end, such as the Deployment of a ReplicaSet: `Deployment/web`.
    fn workload_of(&self, namespace: &str, kind: &str, name: &str) -> Arc<str> {
        let record = self.namespaces.get(namespace);
        let (mut kind, mut name) = (kind, name);
        // No chain of owners is longer.
        for _ in 0..3 {
            let known = WORKLOADS.iter().find(|workload| workload.kind == kind);
            let template = known.zip(record).and_then(|(workload, record)| {
                record.templates.get(&self.key(workload.group, workload.kind, name))
            });
            let Some(owner) = template.and_then(|template| template.owner()) else { break };
            (kind, name) = (owner.kind.kind, &owner.name);
        }
        format!("{kind}/{name}").into()
    }

    /// An object was seen that cannot be judged.
    pub fn set_undecided(
        &mut self,
        api_version: &str,
        kind: &str,
        namespace: &str,
        name: &str,
        reason: &str,
    ) {
        let group = group_of(api_version);
        let (key, list) = (self.key(group, kind, name), self.list_of(group, kind));
        if namespace.is_empty() {
            let kind = kind.to_owned().into();
            let undecided = Undecided { kind, name: name.to_owned(), reason: reason.to_owned() };
            self.unplaced.insert(key, undecided);
            return;
        }
        let judged = Judged::undecided(kind.to_owned(), name, reason, list);
        self.forget_template(namespace, key);
        let source = if kind == "Pod" { Source::Pod } else { Source::Template };
        self.keep(namespace, key, Some(judged), source, (kind, name));
        self.settle(namespace);
    }

    /// An object that could not be judged can be now, or is gone.
    pub fn remove_undecided(&mut self, api_version: &str, kind: &str, namespace: &str, name: &str) {
        let group = group_of(api_version);
        let key = self.key(group, kind, name);
        if namespace.is_empty() {
            self.unplaced.remove(&key);
        } else {
            self.remove(namespace, group, kind, name);
        }
    }

    /// A pod is gone.
    pub fn remove_pod(&mut self, namespace: &str, name: &str) {
        self.remove(namespace, "", "Pod", name);
    }

    /// A workload with a template was seen, or a pod that does not exist yet. Returns whether it can be judged.
    pub fn set_workload(&mut self, kind: &'static WorkloadKind, object: &Value) -> bool {
        let text = |field: &str| object.get("metadata")?.get(field)?.as_str();
        let (namespace, name) = (text("namespace").unwrap_or_default(), text("name").unwrap_or_default());
        let list = self.list_of(kind.group, kind.kind);
        let unreadable = match Template::read(kind, name, object, list) {
            Held::Nothing => {
                self.remove(namespace, kind.group, kind.kind, name);
                return true;
            }
            Held::Template(_) if namespace.is_empty() || name.is_empty() => {
                "it has no readable name and namespace"
            }
            Held::Template(mut template) => {
                let key = self.key(kind.group, kind.kind, name);
                self.forget_template(namespace, key);
                let owner = template.owner().filter(|_| template.is_idle);
                template.left_to =
                    owner.map(|owner| self.key(owner.kind.group, owner.kind.kind, &owner.name));
                let record = self.record(namespace);
                if let Some(owner) = template.left_to {
                    record.idle.entry(owner).or_default().insert(key);
                }
                let has_owner = template.owner().is_some();
                record.templates.insert(key, Box::new(template));
                if has_owner && self.levels == LevelSource::Workloads {
                    let owner = self.workload_of(namespace, kind.kind, name);
                    let own = format!("{}/{name}", kind.kind).into();
                    self.record(namespace).memory.rename(&own, &owner);
                }
                self.set_rejection(kind, namespace, name, object);
                self.judge_template(namespace, key);
                self.judge_idle(namespace, key);
                return true;
            }
            Held::Unreadable(reason) => reason,
        };
        let api_version = format!("{}/", kind.group);
        self.set_undecided(&api_version, kind.kind, namespace, name, unreadable);
        false
    }

    /// A workload is gone.
    pub fn remove_workload(&mut self, kind: &WorkloadKind, namespace: &str, name: &str) {
        self.remove(namespace, kind.group, kind.kind, name);
    }

    /// Namespaces that would violate, or of which it is not known, by name. All others that exist are clean.
    #[must_use]
    pub const fn not_clean(&self) -> &BTreeMap<String, Verdict> {
        &self.not_clean
    }

    /// How many namespaces would violate.
    #[must_use]
    pub const fn tally(&self) -> Tally {
        self.tally
    }

    /// All verdicts together.
    #[must_use]
    pub fn evaluation(&self) -> Evaluation {
        match self.tally {
            Tally { violating: 1.., .. } => Evaluation::Violations,
            Tally { inconclusive: 1.., .. } => Evaluation::Undecided,
            Tally { .. } if !self.unplaced.is_empty() => Evaluation::Undecided,
            Tally { clean: 1.., .. } => Evaluation::Clean,
            Tally { .. } => Evaluation::NotEvaluated,
        }
    }

    /// Evaluates every namespace anew: levels, templates, verdicts. After single changes all of that is right already; this
    /// is for what no change has covered.
    pub fn evaluate_anew(&mut self) {
        self.refresh_all();
    }

    /// Something in a namespace changed: its verdict is the sum of what is known.
    fn settle(&mut self, name: &str) {
        let has_syncer = self.has_own_label_syncer;
        let Some(record) = self.namespaces.get_mut(name) else { return };
        if record.infer_from_workloads() && record.exists() {
            self.touched.insert(name.to_owned());
            if record.has_its_label(has_syncer) {
                self.unlabelled.remove(name);
            } else {
                self.unlabelled.insert(name.to_owned());
            }
        }
        let now = record.exists().then(|| record.verdict());
        let before = std::mem::replace(&mut record.last_verdict, now);
        self.count(name, before, now);
    }

    fn count(&mut self, name: &str, before: Option<Verdict>, now: Option<Verdict>) {
        if before == now {
            return;
        }
        if let Some(before) = before {
            let count = self.tally.of(before);
            *count = count.saturating_sub(1);
        }
        if let Some(now) = now {
            *self.tally.of(now) += 1;
        }
        match now {
            Some(verdict) if verdict != Verdict::Clean => {
                self.not_clean.insert(name.to_owned(), verdict);
            }
            _ => {
                self.not_clean.remove(name);
            }
        }
    }

    /// Within a namespace an object is known by a hash of its kind and name: the names themselves would be most of
    /// what a million pods take, and are of interest only where something is wrong. The lowest bits are the kind.
    fn key(&self, group: &str, kind: &str, name: &str) -> u64 {
        self.keys.hash_one((group, kind, name)) & !(KINDS as u64 - 1) | kind_number(group, kind) as u64
    }

    fn record(&mut self, name: &str) -> &mut NamespaceRecord {
        let (needs_own_label, levels) = (!self.has_label_syncer, self.levels);
        self.namespaces.entry(name.to_owned()).or_insert_with(|| {
            let mut record = NamespaceRecord::new(name, levels);
            record.needs_own_label = needs_own_label;
            Box::new(record)
        })
    }

    fn remove(&mut self, namespace: &str, group: &str, kind: &str, name: &str) {
        let key = self.key(group, kind, name);
        if self.namespaces.contains_key(namespace) {
            self.forget_template(namespace, key);
            self.remove_rejection(namespace, kind, name);
            self.keep(namespace, key, None, Source::Template, (kind, name));
            self.judge_idle(namespace, key);
            self.settle(namespace);
        }
    }

    fn forget_template(&mut self, namespace: &str, key: u64) {
        if let Some(record) = self.namespaces.get_mut(namespace) {
            record.forget_template(key);
        }
    }

    /// The workload that controls others came or went: those that make no pods count only without it.
    fn judge_idle(&mut self, namespace: &str, owner: u64) {
        let idle = self.namespaces.get(namespace).and_then(|record| record.idle.get(&owner));
        for key in idle.cloned().unwrap_or_default() {
            self.judge_template(namespace, key);
        }
    }

    fn refresh_scope(&mut self, changed: bool, namespace: Option<&str>) {
        match (changed, namespace) {
            (false, _) => {}
            (true, Some(namespace)) => self.refresh(namespace, true),
            (true, None) => self.refresh_all(),
        }
    }

    fn refresh_all(&mut self) {
        for name in self.namespaces.keys().cloned().collect::<Vec<_>>() {
            self.refresh(&name, true);
        }
    }

    /// Infers the level of a namespace again, and all that follows from it. Templates are judged anew only where
    /// admission may have changed its mind about them.
    fn refresh(&mut self, name: &str, admission_changed: bool) {
        let has_syncer = self.has_own_label_syncer;
        let Some(record) = self.namespaces.get_mut(name) else { return };
        record.infer(&self.grants, &self.constraints);
        let keys: Vec<u64> = record.templates.keys().copied().filter(|_| admission_changed).collect();
        let pods: Vec<u64> = record.pods.keys().copied().filter(|_| admission_changed).collect();
        if record.has_its_label(has_syncer) {
            self.unlabelled.remove(name);
        } else {
            self.unlabelled.insert(name.to_owned());
        }
        if record.exists() {
            self.touched.insert(name.to_owned());
        }
        if record.needs_ranges() {
            self.without_ranges.insert(name.to_owned());
        } else {
            self.without_ranges.remove(name);
        }
        for key in keys {
            self.judge_template(name, key);
        }
        for key in pods {
            self.judge_kept_pod(name, key);
        }
        self.settle(name);
    }

    /// A template becomes the pod that admission would make of it, and is judged as that.
    fn judge_template(&mut self, namespace: &str, key: u64) {
        let Some(record) = self.namespaces.get(namespace) else { return };
        let Some(template) = record.templates.get(&key) else { return };
        let is_left_to_owner = template.left_to.is_some_and(|owner| record.templates.contains_key(&owner));
        let exceptions = self.counted.as_ref().map(|counted| counted.of(namespace, Some(record)));
        let judged = (!is_left_to_owner).then(|| {
            template.judge(&mut self.judge, record, &self.grants, &self.constraints, exceptions.as_ref())
        });
        let (kind, name) = (template.kind.kind, template.name.clone());
        self.keep(namespace, key, judged, Source::Template, (kind, &name));
        self.settle(namespace);
    }
}

/// What was judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// A pod that exists: whatever it needs, it was admitted with.
    Pod,
    /// What makes pods.
    Template,
}

/// The number of a kind of workload.
fn kind_number(group: &str, kind: &str) -> usize {
    let is_it = |workload: &WorkloadKind| workload.kind == kind && workload.group == group;
    WORKLOADS.iter().position(is_it).unwrap_or(KINDS - 1)
}
