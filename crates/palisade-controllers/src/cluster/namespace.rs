//! One namespace: its object, its workloads, and what they would violate.

use std::collections::{BTreeMap, BTreeSet};

use palisade_model::metadata::{ObjectMeta, StringMap};
use palisade_policy::{
    enforcement::{
        classify::{Class, level_to_test},
        labels::{Namespace, are_done, is_always_privileged, is_covered},
        level::{LevelSource, NamespaceLevel, namespace_level},
        managed::is_managed,
        memory::{MEMORY_ANNOTATION, Memory},
        ownership::Ownership,
        violations::Verdict,
    },
    scc::{
        allocate::Ranges,
        grants::Grants,
        namespace_ranges::{MCS, NamespaceRanges, SUPPLEMENTAL_GROUPS, UID_RANGE},
        set::ConstraintSet,
    },
    standards::{level::Level, policy::Mode},
};
use serde::Deserialize;
use serde_json::Value;

use super::{
    KINDS,
    judged::{Blocker, Judged, Standing, Undecided},
    kind_number,
    template::Template,
};

/// A namespace and all that matters in it.
#[derive(Debug, Default)]
pub struct NamespaceRecord {
    name: String,
    uid: String,
    exists: bool,
    resource_version: String,
    labels: StringMap<'static>,
    annotations: StringMap<'static>,
    ownership: Ownership,
    is_terminating: bool,
    is_managed: bool,
    /// What others have to do before its level can be known.
    awaits: Awaits,
    level: NamespaceLevel,
    /// The verdict as it was last counted.
    pub(super) last_verdict: Option<Verdict>,
    pub(super) service_accounts: BTreeSet<String>,
    /// Boxed: the nodes of the map have room for eleven, and most namespaces have one or two.
    pub(super) templates: BTreeMap<u64, Box<Template>>,
    /// Workloads without a use of their own as long as the one that controls them is there, by that one.
    pub(super) idle: BTreeMap<u64, BTreeSet<u64>>,
    judged: BTreeMap<u64, Judged>,
    /// The text of pods that violate, where exceptions count.
    pub(super) pods: BTreeMap<u64, Box<str>>,
    counts: Counts,
    /// Whether the object itself cannot be decoded.
    is_unreadable: bool,
    /// Whether the namespaces that are always privileged have to carry a label for that, because no label syncer runs.
    pub(super) needs_own_label: bool,
    /// Where its level comes from.
    source: LevelSource,
    /// Rises whenever its object was seen or something in it was judged.
    revision: u64,
    /// What its workloads need, where that decides.
    pub(super) memory: Memory,
    /// The same as the annotation to write.
    memory_text: Option<String>,
}

/// What a namespace waits for.
#[derive(Debug, Default, PartialEq, Eq)]
enum Awaits {
    /// Nothing.
    #[default]
    Nothing,
    /// Its ranges.
    Ranges,
    /// Its first service account.
    ServiceAccounts,
}

/// How many objects have which standing, by the level they comply with.
#[derive(Debug, Default)]
struct Counts {
    all: [usize; 3],
    by_user: [usize; 3],
    rejected: [usize; 3],
    short: [usize; 3],
    undecided: usize,
}

/// How many comply with less than a level.
fn below(counts: &[usize; 3], level: Level) -> usize {
    counts.iter().take(level as usize).sum()
}

/// How many comply with a level.
fn from(counts: &[usize; 3], level: Level) -> usize {
    counts.iter().skip(level as usize).sum()
}

impl Counts {
    fn change(&mut self, judged: &Judged, change: impl Fn(&mut usize)) {
        let at = |counts: &mut [usize; 3], level: Level| {
            if let Some(count) = counts.get_mut(level as usize) {
                change(count);
            }
        };
        match judged.standing {
            Standing::Complies(_) => {}
            Standing::Rejected(level) => at(&mut self.rejected, level),
            Standing::Short(level) => at(&mut self.short, level),
            Standing::Undecided => return change(&mut self.undecided),
        }
        if let Some(level) = judged.standing.level() {
            at(&mut self.all, level);
            if judged.is_by_user {
                at(&mut self.by_user, level);
            }
        }
    }
}

impl NamespaceRecord {
    pub(super) fn new(name: &str, source: LevelSource) -> Self {
        Self { name: name.to_owned(), source, ..Self::default() }
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the object itself was seen: what is in a namespace may arrive earlier.
    pub(super) const fn exists(&self) -> bool {
        self.exists
    }

    /// The unique id of the object.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// Whether a newer version than this one was seen already.
    pub(super) fn is_newer_than(&self, object: &Value) -> bool {
        // swallowed: versions that are not numbers are not compared
        let version = |text: &str| text.parse::<u64>().ok();
        let other = object["metadata"]["resourceVersion"].as_str().and_then(version);
        self.exists && other.zip(version(&self.resource_version)).is_some_and(|(other, own)| other < own)
    }

    /// The version of the object that was seen last.
    #[must_use]
    pub fn resource_version(&self) -> &str {
        &self.resource_version
    }

    /// The labels.
    #[must_use]
    pub const fn labels(&self) -> &StringMap<'static> {
        &self.labels
    }

    /// The annotations.
    #[must_use]
    pub const fn annotations(&self) -> &StringMap<'static> {
        &self.annotations
    }

    /// The level its service accounts need, and why.
    #[must_use]
    pub const fn level(&self) -> &NamespaceLevel {
        &self.level
    }

    /// Whether it is being deleted.
    #[must_use]
    pub const fn is_terminating(&self) -> bool {
        self.is_terminating
    }

    /// As the label syncer sees it.
    #[must_use]
    pub fn view(&self) -> Namespace<'_> {
        Namespace {
            name: &self.name,
            labels: &self.labels,
            annotations: &self.annotations,
            ownership: &self.ownership,
            is_terminating: self.is_terminating,
            memory: self.memory_text.as_deref(),
        }
    }

    /// The level it would be held to if enforcement began; `None` if its owner decided, or if it is always privileged.
    #[must_use]
    pub fn level_to_test(&self) -> Option<Level> {
        if is_always_privileged(&self.name) && !self.needs_own_label {
            return None;
        }
        let inferred = self.needed();
        level_to_test(&self.labels, &self.annotations, &self.ownership, self.is_managed, inferred)
    }

    /// How many pods and templates a level would refuse.
    #[must_use]
    pub fn violating(&self, level: Level) -> usize {
        below(&self.counts.all, level)
    }

    /// The level that its own label enforces now. One that cannot be read enforces the strictest, as Pod Security
    /// Admission does.
    pub(crate) fn enforced(&self) -> Level {
        let label = self.labels.get(Mode::Enforce.level_label());
        // swallowed: what cannot be read enforces the strictest level
        label.map_or(Level::Privileged, |label| label.parse().unwrap_or(Level::Restricted))
    }

    /// How many pods and templates the level to come would refuse, or have pods that are rejected now.
    fn blocking(&self) -> usize {
        let counts = &self.counts;
        match self.level_to_test() {
            Some(level) => below(&counts.all, level) + from(&counts.rejected, level),
            // The owner decided on the level; missing pods are not a decision.
            None => from(&counts.rejected, Level::Privileged) + below(&counts.short, self.enforced()),
        }
    }

    /// How many pods and templates cannot be judged, or lack pods for no known reason.
    fn doubtful(&self) -> usize {
        let level = self.level_to_test().unwrap_or_else(|| self.enforced());
        self.counts.undecided + from(&self.counts.short, level)
    }

    /// Whether its level will be known once others have done their part. Pods that run without any service account show
    /// that none will come: then the cluster makes none.
    fn is_unsettled(&self) -> bool {
        let is_pod = |key: &u64| key & (KINDS as u64 - 1) == kind_number("", "Pod") as u64;
        match self.awaits {
            Awaits::Nothing => false,
            Awaits::Ranges => true,
            Awaits::ServiceAccounts => !self.judged.keys().any(is_pod),
        }
    }

    /// The kind of violation; `None` if there is none, or none that is certain.
    #[must_use]
    pub fn class(&self) -> Option<Class> {
        if self.is_unsettled() || self.is_terminating || self.blocking() == 0 {
            return None;
        }
        let by_user = self.level_to_test().map_or(0, |level| below(&self.counts.by_user, level));
        Some(Class::of(&self.name, &self.labels, self.source, by_user > 0))
    }

    /// What it would violate.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if let Some(class) = self.class() {
            return Verdict::Violating(class.reason());
        }
        // An opt-out that the readiness controller writes stays: no namespace is opted out on a guess.
        let uncertain =
            self.doubtful() > 0 || self.is_unreadable || (self.is_unsettled() && self.blocking() > 0);
        if uncertain && !self.is_terminating { Verdict::Inconclusive } else { Verdict::Clean }
    }

    /// Why it is not known what it would violate; `None` if that is known.
    #[must_use]
    pub fn undecided(&self) -> Option<&'static str> {
        if self.verdict() != Verdict::Inconclusive {
            return None;
        }
        Some(match self.awaits {
            _ if self.is_unreadable => "the namespace itself cannot be decoded",
            Awaits::Ranges => {
                "it has no ranges of user ids yet (annotation openshift.io/sa.scc.uid-range), so its level is not known"
            }
            Awaits::ServiceAccounts if self.is_unsettled() => {
                "it has no service account yet, so its level is not known"
            }
            Awaits::ServiceAccounts | Awaits::Nothing => "not everything in it can be judged",
        })
    }

    /// What would be refused, and whose pods are rejected now, by kind and name. What a workload controls that is listed
    /// itself is left out; a pod only if the workload has each of its causes: an owner reference proves nothing, and what the
    /// workload does not explain stays listed.
    #[must_use]
    pub fn blockers(&self) -> Vec<Blocker> {
        let level = self.level_to_test();
        let listed = |judged: &Judged| match (level, judged.standing) {
            (Some(level), _) => judged.blocker(level),
            (None, Standing::Rejected(_)) => judged.blocker(Level::Privileged),
            (None, Standing::Short(_)) => judged.blocker(self.enforced()),
            (None, Standing::Complies(_) | Standing::Undecided) => None,
        };
        without_explained(self.judged.values().filter_map(listed).collect())
    }

    /// Everything in it that any level forbids, by kind and name, without what [`Self::blockers`] leaves out too.
    #[must_use]
    pub fn findings(&self) -> Vec<Blocker> {
        without_explained(self.judged.values().filter_map(Judged::finding).collect())
    }

    /// How many pods and templates no level forbids anything in.
    #[must_use]
    pub fn compliant(&self) -> usize {
        self.judged.values().filter(|judged| judged.is_compliant()).count()
    }

    /// A number that changes with everything that [`Self::findings`] and [`Self::doubts`] depend on, while its object is the same.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// The first workload and field that violate, in a phrase: `Deployment web: spec.template.spec.hostNetwork`.
    #[must_use]
    pub fn first_cause(&self) -> Option<String> {
        let blockers = self.blockers();
        let (first, others) = blockers.split_first()?;
        let what = match (first.causes.split_first(), &first.rejection) {
            (Some((cause, [])), _) => cause.path.clone(),
            (Some((cause, more)), _) => format!("{} and {} more", cause.path, more.len()),
            (None, Some(rejection)) => rejection.clone(),
            (None, None) => return None,
        };
        let others = match others.len() {
            0 => String::new(),
            1 => ", and 1 other".to_owned(),
            count => format!(", and {count} others"),
        };
        Some(format!("{} {}: {what}{others}", first.kind, first.name))
    }

    /// What cannot be judged, and what lacks pods for no known reason, by kind and name.
    #[must_use]
    pub fn doubts(&self) -> Vec<Undecided> {
        let level = self.level_to_test().unwrap_or_else(|| self.enforced());
        let mut doubts: Vec<_> = self.judged.values().filter_map(|judged| judged.doubt(level)).collect();
        doubts.sort();
        doubts
    }

    /// Takes the object; returns whether the ranges changed, and so what admission would write.
    pub(super) fn set_object(&mut self, object: &Value) -> bool {
        // swallowed: the next line remembers that it is unreadable
        let metadata = object.get("metadata").and_then(|value| ObjectMeta::deserialize(value).ok());
        self.is_unreadable = metadata.is_none();
        let Some(metadata) = metadata else {
            self.exists = true;
            return false;
        };
        let annotations = owned(&metadata.annotations);
        let ranges = [UID_RANGE, SUPPLEMENTAL_GROUPS, MCS];
        let changed = ranges.iter().any(|key| annotations.get(key) != self.annotations.get(key));
        self.exists = true;
        self.revision += 1;
        object["metadata"]["uid"].as_str().unwrap_or_default().clone_into(&mut self.uid);
        self.labels = owned(&metadata.labels);
        self.annotations = annotations;
        self.ownership = Ownership::read(&object["metadata"]["managedFields"]);
        self.is_terminating = object["status"]["phase"] == "Terminating";
        self.is_managed = is_managed(&self.name, &self.labels, &self.ownership);
        let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        version.clone_into(&mut self.resource_version);
        changed
    }

    /// Ranges as the allocator would give them.
    pub(super) fn assume_ranges(&mut self, ranges: &Ranges) {
        for (key, value) in ranges.annotations() {
            self.annotations.insert(key, value.to_owned());
        }
    }

    /// Whether the label syncer takes care of it.
    #[must_use]
    pub const fn is_managed(&self) -> bool {
        self.is_managed
    }

    /// Its workloads that keep its level from being stricter, such as `Deployment/web`; those that are gone for the moment too.
    pub fn needing(&self) -> impl Iterator<Item = &str> {
        let level = self.memory.level();
        self.memory.needing(level)
    }

    /// Where its level comes from.
    #[must_use]
    pub const fn levels(&self) -> LevelSource {
        self.source
    }

    /// The level that the label syncer would set; `None` if that is not known, or if there is none.
    #[must_use]
    pub fn needed(&self) -> Option<Level> {
        // Without a label syncer no label follows from what workloads need.
        let follows = self.source == LevelSource::Constraints || !self.needs_own_label;
        self.level.level.filter(|_| follows)
    }

    /// The value of its enforce label.
    pub(super) fn enforce_label(&self) -> Option<String> {
        self.labels.get(Mode::Enforce.level_label()).map(str::to_owned)
    }

    /// The level that is enforced in it now; `None` if that is not known.
    pub(super) fn effective(&self, default: Option<Level>) -> Option<Level> {
        if !self.exists {
            return None;
        }
        if self.labels.contains(Mode::Enforce.level_label()) { Some(self.enforced()) } else { default }
    }

    /// Takes up what an earlier controller remembered of its workloads. What others wrote counts for nothing.
    pub(super) fn recall(&mut self, today: i64) {
        if let Some(text) = self.annotations.get(MEMORY_ANNOTATION)
            && self.source == LevelSource::Workloads
            && self.ownership.applied_annotation(MEMORY_ANNOTATION)
        {
            self.memory.recall(text, today);
        }
    }

    /// Infers the level from what its workloads need, where that decides; returns whether something changed.
    pub(super) fn infer_from_workloads(&mut self) -> bool {
        if self.source == LevelSource::Constraints {
            return false;
        }
        let level = (self.exists && !self.is_terminating).then(|| self.memory.level());
        let text = if self.memory.is_empty() { None } else { self.memory.annotation() };
        let changed = level != self.level.level || text != self.memory_text;
        if changed {
            self.level = NamespaceLevel { level, ..NamespaceLevel::default() };
            self.memory_text = text;
        }
        changed
    }

    /// Infers the level. Nothing is known yet of a namespace without ranges or service accounts.
    pub(super) fn infer(&mut self, grants: &Grants, constraints: &ConstraintSet) {
        if self.source == LevelSource::Workloads {
            self.infer_from_workloads();
            return;
        }
        let has_range = self.annotations.get(UID_RANGE).is_some_and(|range| !range.is_empty());
        self.awaits = if !self.is_managed || constraints.is_empty() {
            Awaits::Nothing
        } else if !has_range {
            Awaits::Ranges
        } else if self.service_accounts.is_empty() {
            Awaits::ServiceAccounts
        } else {
            Awaits::Nothing
        };
        if !self.exists || self.is_terminating || !has_range {
            self.level = NamespaceLevel::default();
            return;
        }
        let mut usable = BTreeMap::new();
        for account in &self.service_accounts {
            for constraint in grants.constraints_of(&self.name, account, constraints) {
                usable.insert(constraint.name(), constraint);
            }
        }
        let ranges = NamespaceRanges::new(&self.name, &self.annotations);
        self.level = namespace_level(usable.into_values(), &ranges);
    }

    /// Whether it has no ranges yet.
    pub(super) fn needs_ranges(&self) -> bool {
        self.source == LevelSource::Constraints
            && self.exists
            && !self.is_terminating
            && !self.annotations.contains(UID_RANGE)
    }

    /// Whether it has the enforce label it should have, or should have none.
    pub(super) fn has_its_label(&self, has_own_label_syncer: bool) -> bool {
        match (self.source, self.level.level) {
            _ if !self.exists => true,
            (LevelSource::Constraints, level) if has_own_label_syncer => are_done(&self.view(), level),
            (LevelSource::Constraints, None) => true,
            // Nothing that is not managed gets a label, and the global default applies to it.
            (LevelSource::Constraints, Some(_)) if !self.is_managed => true,
            (_, level) => is_covered(&self.view(), level.unwrap_or(Level::Privileged), has_own_label_syncer),
        }
    }

    /// Forgets what the newest list of a kind did not bring; returns whether there was such.
    pub(super) fn sweep(&mut self, kind: usize, list: u8, today: i64) -> bool {
        let is_of_kind = |key: u64| key & (KINDS as u64 - 1) == kind as u64;
        let stale = |(&key, own): (&u64, u8)| (is_of_kind(key) && own != list).then_some(key);
        let templates = self.templates.iter().filter_map(|(key, template)| stale((key, template.list)));
        let judged = self.judged.iter().filter_map(|(key, judged)| stale((key, judged.list)));
        let judged = judged.filter(|key| !self.templates.contains_key(key));
        let gone: BTreeSet<u64> = templates.chain(judged).collect();
        for &key in &gone {
            self.forget_template(key);
            self.set_judged(key, None, today);
        }
        !gone.is_empty()
    }

    pub(super) fn forget_template(&mut self, key: u64) {
        let owner = self.templates.remove(&key).and_then(|template| template.left_to);
        if let Some(owner) = owner
            && let Some(others) = self.idle.get_mut(&owner)
        {
            others.remove(&key);
            if others.is_empty() {
                self.idle.remove(&owner);
            }
        }
    }

    /// What an object came to when it was judged last.
    pub(super) fn judged(&self, key: u64) -> Option<&Judged> {
        self.judged.get(&key)
    }

    /// Whether its own label enforces a level that is stricter than one.
    pub(super) fn label_rejects(&self, need: Level) -> bool {
        self.labels.contains(Mode::Enforce.level_label()) && self.enforced() > need
    }

    pub(super) fn set_judged(&mut self, key: u64, judged: Option<Judged>, today: i64) {
        self.revision += 1;
        self.pods.remove(&key);
        let before = match judged {
            Some(judged) => {
                self.counts.change(&judged, |count| *count += 1);
                if let Some(workload) = judged.workload() {
                    self.memory.appear(workload, judged.need(), today);
                }
                self.judged.insert(key, judged)
            }
            None => self.judged.remove(&key),
        };
        if let Some(before) = before {
            self.counts.change(&before, |count| *count = count.saturating_sub(1));
            if let Some(workload) = before.workload() {
                self.memory.vanish(workload, before.need(), today);
            }
        }
    }
}

/// Leaves out what a listed workload controls: all but the pods that it does not explain.
fn without_explained(mut blockers: Vec<Blocker>) -> Vec<Blocker> {
    let listed: BTreeMap<(String, String), Blocker> = blockers
        .iter()
        .filter(|blocker| blocker.kind != "Pod")
        .map(|blocker| ((blocker.kind.to_string(), blocker.name.clone()), blocker.clone()))
        .collect();
    blockers.retain(|blocker| {
        let owner = blocker.owner.as_ref().and_then(|owner| listed.get(owner));
        owner.is_none_or(|owner| blocker.kind == "Pod" && !owner.explains(blocker))
    });
    blockers.sort_by(|one, other| (&one.kind, &one.name).cmp(&(&other.kind, &other.name)));
    blockers
}

fn owned(map: &StringMap<'_>) -> StringMap<'static> {
    map.iter().map(|(key, value)| (key.to_owned().into(), value.to_owned().into())).collect()
}
