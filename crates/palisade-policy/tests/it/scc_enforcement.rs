//! The rollout as a whole: random events on a small cluster, with every controller's step taken in any order.
//!
//! Promised whatever happens: existing workloads of a managed namespace are never held to a stricter level than their
//! service accounts need; a cluster that opts out ends without an owned enforce label and with a privileged default; nothing
//! goes back and forth.

use std::collections::{BTreeMap, BTreeSet};

use palisade_model::metadata::StringMap;
use palisade_policy::{
    enforcement::{
        labels::{Apply, LEVEL_ANNOTATION, Namespace, are_done, plan},
        mode::{Release, SpecMode, StatusMode},
        ownership::{Ownership, SYNCER},
        state::{EnforceLabels, Evaluation, Inputs, Instances, Outputs, decide},
    },
    standards::{level::Level, policy::Mode},
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

const ENFORCE: &str = "pod-security.kubernetes.io/enforce";

#[derive(Debug, Clone)]
enum Event {
    SetRelease(Release),
    SetGate(bool),
    SetSpec(SpecMode),
    Evaluate(Evaluation),
    AddNamespace(usize, Level),
    RemoveNamespace(usize),
    GrantConstraint(usize, Level),
    Deploy(usize),
    UserSetsEnforce(usize, Level),
    UserEditsAnnotation(usize),
    Sync(usize),
    Reconcile,
    RollOut(usize),
    AddInstance,
    LoseInstance(usize),
}

#[derive(Debug, Clone, Default)]
struct SimulatedNamespace {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    owners: BTreeMap<String, BTreeSet<String>>,
    /// What its service accounts need.
    level: Option<Level>,
    /// The levels its running workloads need.
    workloads: Vec<Level>,
}

impl SimulatedNamespace {
    fn view<T>(&self, name: &str, look: impl FnOnce(&Namespace<'_>) -> T) -> T {
        let map = |own: &BTreeMap<String, String>| -> StringMap<'static> {
            own.iter().map(|(key, value)| (key.clone().into(), value.clone().into())).collect()
        };
        let (labels, annotations) = (map(&self.labels), map(&self.annotations));
        let ownership = Ownership::read(&self.managed_fields());
        look(&Namespace {
            name,
            labels: &labels,
            annotations: &annotations,
            ownership: &ownership,
            is_terminating: false,
            memory: None,
        })
    }

    fn managed_fields(&self) -> Value {
        let mut entries: BTreeMap<&str, [Map<String, Value>; 2]> = BTreeMap::new();
        for (key, managers) in &self.owners {
            for manager in managers {
                let [labels, annotations] = entries.entry(manager).or_default();
                let fields = if key == LEVEL_ANNOTATION { annotations } else { labels };
                fields.insert(format!("f:{key}"), json!({}));
            }
        }
        entries
            .into_iter()
            .map(|(manager, [labels, annotations])| {
                let operation = if manager == SYNCER { "Apply" } else { "Update" };
                json!({"manager": manager, "operation": operation,
                       "fieldsV1": {"f:metadata": {"f:labels": labels, "f:annotations": annotations}}})
            })
            .collect()
    }

    /// Server-side apply, by force.
    fn apply(&mut self, wanted: &Apply) {
        let kept: BTreeSet<&str> = wanted.labels.keys().chain(wanted.annotations.keys()).copied().collect();
        let mut orphans = Vec::new();
        for (key, managers) in &mut self.owners {
            if !kept.contains(key.as_str()) && managers.remove(SYNCER) && managers.is_empty() {
                orphans.push(key.clone());
            }
        }
        for key in orphans {
            self.owners.remove(&key);
            self.labels.remove(&key);
            self.annotations.remove(&key);
        }
        for (target, values) in
            [(&mut self.labels, &wanted.labels), (&mut self.annotations, &wanted.annotations)]
        {
            for (&key, value) in values {
                let owners = self.owners.entry(key.to_owned()).or_default();
                if target.get(key) != Some(value) {
                    owners.clear();
                }
                owners.insert(SYNCER.to_owned());
                target.insert(key.to_owned(), value.clone());
            }
        }
    }

    /// What `kubectl label` or `kubectl annotate` does.
    fn user_sets(&mut self, key: &str, value: &str) {
        let target = if key == LEVEL_ANNOTATION { &mut self.annotations } else { &mut self.labels };
        let changed = target.insert(key.to_owned(), value.to_owned()).as_deref() != Some(value);
        let owners = self.owners.entry(key.to_owned()).or_default();
        if changed {
            owners.clear();
            owners.insert("kubectl-label".to_owned());
        }
    }

    fn owned_enforce(&self) -> Option<&String> {
        let ours = self.owners.get(ENFORCE).is_some_and(|owners| owners.contains(SYNCER));
        self.labels.get(ENFORCE).filter(|_| ours)
    }

    fn enforced_on(&self, default: Level) -> Level {
        self.labels.get(ENFORCE).and_then(|level| level.parse().ok()).unwrap_or(default)
    }
}

#[derive(Debug, Clone)]
struct Cluster {
    release: Release,
    gate: bool,
    spec: SpecMode,
    status: StatusMode,
    evaluation: Evaluation,
    requested: Level,
    instances: Vec<Level>,
    namespaces: BTreeMap<String, SimulatedNamespace>,
}

impl Cluster {
    fn new() -> Self {
        Self {
            release: Release::Introduce,
            gate: false,
            spec: SpecMode::Unset,
            status: StatusMode::NotEnabled,
            evaluation: Evaluation::NotEvaluated,
            requested: Level::Privileged,
            instances: vec![Level::Privileged; 3],
            namespaces: BTreeMap::new(),
        }
    }

    fn decision(&self) -> Outputs {
        decide(self.inputs())
    }

    fn inputs(&self) -> Inputs {
        Inputs {
            release: self.release,
            gate: self.gate,
            spec: self.spec,
            status: self.status,
            evaluation: self.evaluation,
            labels_done: self
                .namespaces
                .iter()
                .all(|(name, namespace)| namespace.view(name, |view| are_done(view, namespace.level))),
            instances: Instances::of(self.instances.iter().map(|&level| Some(level))),
            restricted_requested: self.requested == Level::Restricted,
            rollback: false,
        }
    }

    fn name(index: usize) -> String {
        format!("team-{}", index % 4)
    }

    fn sync(&mut self, name: &str) {
        let enforce = self.decision().enforce_labels;
        if let Some(namespace) = self.namespaces.get_mut(name)
            && let Some(apply) = namespace.view(name, |view| plan(view, namespace.level, enforce))
        {
            namespace.apply(&apply);
        }
    }

    fn reconcile(&mut self) {
        let decision = self.decision();
        self.spec = decision.spec_write.unwrap_or(self.spec);
        self.status = decision.status.unwrap_or(self.status);
        self.requested = decision.default_enforce;
    }

    fn step(&mut self, event: &Event) {
        match *event {
            Event::SetRelease(release) => self.release = release,
            Event::SetGate(gate) => self.gate = gate,
            Event::SetSpec(spec) => self.spec = spec,
            Event::Evaluate(evaluation) => self.evaluation = evaluation,
            Event::AddNamespace(index, level) => {
                let fresh = SimulatedNamespace { level: Some(level), ..SimulatedNamespace::default() };
                self.namespaces.entry(Self::name(index)).or_insert(fresh);
            }
            Event::RemoveNamespace(index) => {
                self.namespaces.remove(&Self::name(index));
            }
            Event::GrantConstraint(index, level) => {
                if let Some(namespace) = self.namespaces.get_mut(&Self::name(index)) {
                    namespace.level = namespace.level.min(Some(level));
                }
            }
            Event::Deploy(index) => {
                // The window that the design leaves: a namespace made while a rollout runs is without a label until
                // the syncer's next step. What is deployed in between, no order of steps could protect.
                let (instances, rollout) = (self.instances.clone(), self.requested == Level::Restricted);
                if let Some(namespace) = self.namespaces.get_mut(&Self::name(index))
                    && let Some(needed) = namespace.level
                    && (!rollout || namespace.labels.contains_key(ENFORCE))
                    && instances.iter().all(|&default| namespace.enforced_on(default) <= needed)
                {
                    namespace.workloads.push(needed);
                }
            }
            Event::UserSetsEnforce(index, level) => {
                if let Some(namespace) = self.namespaces.get_mut(&Self::name(index)) {
                    namespace.user_sets(ENFORCE, level.as_str());
                }
            }
            Event::UserEditsAnnotation(index) => {
                if let Some(namespace) = self.namespaces.get_mut(&Self::name(index)) {
                    namespace.user_sets(LEVEL_ANNOTATION, "nonsense");
                }
            }
            Event::Sync(index) => self.sync(&Self::name(index)),
            Event::Reconcile => self.reconcile(),
            Event::RollOut(index) => {
                let count = self.instances.len();
                self.instances[index % count] = self.requested;
            }
            Event::AddInstance => {
                // A new instance starts with what is requested at that time.
                if self.instances.len() < 5 {
                    self.instances.push(self.requested);
                }
            }
            Event::LoseInstance(index) => {
                if self.instances.len() > 1 && index < self.instances.len() {
                    self.instances.remove(index);
                }
            }
        }
    }

    /// Every controller works until none has anything to do; returns what was requested and reported on the way.
    fn settle(&mut self, order: &[usize]) -> Trace {
        let mut trace = Trace::new(self);
        for round in 0..12 {
            let before = self.snapshot();
            for &who in order {
                match who % 3 {
                    0 => self.reconcile(),
                    1 => {
                        for name in self.namespaces.keys().cloned().collect::<Vec<_>>() {
                            self.sync(&name);
                            trace.note(self);
                        }
                    }
                    _ => {
                        let index = round % self.instances.len();
                        self.instances[index] = self.requested;
                    }
                }
                trace.note(self);
            }
            self.reconcile();
            for name in self.namespaces.keys().cloned().collect::<Vec<_>>() {
                self.sync(&name);
                trace.note(self);
            }
            let requested = self.requested;
            self.instances.iter_mut().for_each(|instance| *instance = requested);
            trace.note(self);
            if self.snapshot() == before {
                trace.settled = true;
                break;
            }
        }
        trace
    }

    fn snapshot(&self) -> String {
        let Self { spec, status, requested, instances, .. } = self;
        let labels: Vec<_> =
            self.namespaces.values().map(|ns| (&ns.labels, &ns.annotations, &ns.owners)).collect();
        format!("{spec:?} {status:?} {requested:?} {instances:?} {labels:?}")
    }

    /// The promise: what runs may go on running.
    fn check(&self) -> Result<(), TestCaseError> {
        for (name, namespace) in &self.namespaces {
            let by_user = namespace.labels.contains_key(ENFORCE) && namespace.owned_enforce().is_none();
            for &default in &self.instances {
                let enforced = namespace.enforced_on(default);
                let fits = namespace.workloads.iter().all(|&needed| enforced <= needed);
                prop_assert!(
                    fits || by_user || self.status == StatusMode::Restricted,
                    "{name} is held to {enforced} with workloads {:?}: {self:?}",
                    namespace.workloads
                );
            }
        }
        Ok(())
    }
}

/// How things changed while everyone worked.
#[derive(Debug, Default)]
struct Trace {
    requested: Vec<Level>,
    status: Vec<StatusMode>,
    labels: BTreeMap<String, Vec<Option<String>>>,
    settled: bool,
}

impl Trace {
    fn new(cluster: &Cluster) -> Self {
        let mut trace = Self::default();
        trace.note(cluster);
        trace
    }

    fn note(&mut self, cluster: &Cluster) {
        fn push<T: PartialEq>(list: &mut Vec<T>, value: T) {
            if list.last() != Some(&value) {
                list.push(value);
            }
        }
        push(&mut self.requested, cluster.requested);
        push(&mut self.status, cluster.status);
        for (name, namespace) in &cluster.namespaces {
            push(self.labels.entry(name.clone()).or_default(), namespace.labels.get(ENFORCE).cloned());
        }
    }

    /// Nothing was taken back that had been done since.
    fn check(&self) -> Result<(), TestCaseError> {
        prop_assert!(self.settled, "never settles: {self:?}");
        prop_assert!(self.requested.len() <= 2, "the default flaps: {:?}", self.requested);
        let distinct: BTreeSet<_> = self.status.iter().map(|status| status.as_str()).collect();
        prop_assert_eq!(distinct.len(), self.status.len(), "the status flaps: {:?}", &self.status);
        for (name, labels) in &self.labels {
            let distinct: BTreeSet<_> = labels.iter().collect();
            prop_assert_eq!(distinct.len(), labels.len(), "the label of {} flaps: {:?}", name, labels);
        }
        Ok(())
    }
}

fn level() -> impl Strategy<Value = Level> {
    prop_oneof![Just(Level::Privileged), Just(Level::Baseline), Just(Level::Restricted)]
}

fn event() -> impl Strategy<Value = Event> {
    let spec = prop_oneof![Just(SpecMode::Unset), Just(SpecMode::Restricted), Just(SpecMode::Legacy)];
    let evaluation =
        prop_oneof![Just(Evaluation::Clean), Just(Evaluation::Violations), Just(Evaluation::NotEvaluated)];
    prop_oneof![
        1 => prop::sample::select(&Release::ALL[..]).prop_map(Event::SetRelease),
        1 => any::<bool>().prop_map(Event::SetGate),
        1 => spec.prop_map(Event::SetSpec),
        1 => evaluation.prop_map(Event::Evaluate),
        3 => (0..4_usize, level()).prop_map(|(index, level)| Event::AddNamespace(index, level)),
        1 => (0..4_usize).prop_map(Event::RemoveNamespace),
        1 => (0..4_usize, level()).prop_map(|(index, level)| Event::GrantConstraint(index, level)),
        5 => (0..4_usize).prop_map(Event::Deploy),
        1 => (0..4_usize, level()).prop_map(|(index, level)| Event::UserSetsEnforce(index, level)),
        1 => (0..4_usize).prop_map(Event::UserEditsAnnotation),
        6 => (0..4_usize).prop_map(Event::Sync),
        6 => Just(Event::Reconcile),
        6 => (0..5_usize).prop_map(Event::RollOut),
        1 => Just(Event::AddInstance),
        1 => (0..5_usize).prop_map(Event::LoseInstance),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_that_runs_is_refused_before_the_mode_is_restricted(
        events in prop::collection::vec(event(), 1..80),
    ) {
        let mut cluster = Cluster::new();
        for event in &events {
            cluster.step(event);
            cluster.check()?;
        }
    }

    #[test]
    fn every_way_back_ends_where_it_began(
        events in prop::collection::vec(event(), 1..60),
        by_gate in any::<bool>(),
        order in prop::collection::vec(0..3_usize, 1..6),
    ) {
        let mut cluster = Cluster::new();
        for event in &events {
            cluster.step(event);
        }
        if by_gate {
            cluster.gate = false;
        } else {
            cluster.release = Release::Enforce;
            cluster.spec = SpecMode::Legacy;
        }
        cluster.settle(&order).check()?;
        prop_assert_eq!(cluster.requested, Level::Privileged);
        prop_assert!(cluster.instances.iter().all(|&level| level == Level::Privileged));
        for (name, namespace) in &cluster.namespaces {
            prop_assert_eq!(namespace.owned_enforce(), None, "{}", name);
        }
        let status = if by_gate && cluster.spec != SpecMode::Legacy { StatusMode::NotEnabled } else { StatusMode::Legacy };
        if cluster.release == Release::Enforce {
            prop_assert_eq!(cluster.status, status);
        }
    }

    #[test]
    fn left_alone_everything_settles_and_nothing_flaps(
        events in prop::collection::vec(event(), 1..60),
        order in prop::collection::vec(0..3_usize, 1..6),
    ) {
        let mut cluster = Cluster::new();
        for event in &events {
            cluster.step(event);
        }
        cluster.settle(&order).check()?;
        let settled = cluster.snapshot();
        cluster.settle(&order).check()?;
        prop_assert_eq!(cluster.snapshot(), settled);
        // And it is what was requested.
        let decision = cluster.decision();
        if decision.enforce_labels == EnforceLabels::Set {
            prop_assert_eq!(cluster.requested, Level::Restricted);
            for namespace in cluster.namespaces.values() {
                prop_assert!(namespace.labels.contains_key(ENFORCE));
            }
            if cluster.release == Release::Enforce {
                prop_assert_eq!(cluster.status, StatusMode::Restricted);
            }
        }
        for namespace in cluster.namespaces.values() {
            let level = namespace.level.map(Level::as_str);
            prop_assert_eq!(namespace.annotations.get(LEVEL_ANNOTATION).map(String::as_str), level);
            prop_assert_eq!(namespace.labels.get(Mode::Warn.level_label()).map(String::as_str), level);
        }
    }
}

#[test]
fn a_whole_rollout_and_back() {
    let mut cluster = Cluster::new();
    let add = |index, level| Event::AddNamespace(index, level);
    for event in [add(0, Level::Baseline), add(1, Level::Restricted), Event::Deploy(0), Event::Deploy(1)] {
        cluster.step(&event);
    }
    cluster.release = Release::Evaluate;
    cluster.evaluation = Evaluation::Violations;
    cluster.settle(&[0]);
    assert_eq!((cluster.spec, cluster.status), (SpecMode::Legacy, StatusMode::NotEnabled));

    cluster.release = Release::Enforce;
    cluster.gate = true;
    cluster.settle(&[0]);
    assert_eq!(cluster.status, StatusMode::Legacy);

    cluster.spec = SpecMode::Restricted;
    cluster.reconcile();
    assert_eq!((cluster.status, cluster.requested), (StatusMode::Progressing, Level::Privileged));
    cluster.sync("team-0");
    cluster.reconcile();
    assert_eq!(cluster.requested, Level::Privileged, "team-1 has no label yet");
    cluster.sync("team-1");
    cluster.reconcile();
    assert_eq!((cluster.status, cluster.requested), (StatusMode::Progressing, Level::Restricted));
    cluster.instances = vec![Level::Restricted; 3];
    cluster.reconcile();
    assert_eq!(cluster.status, StatusMode::Restricted);
    assert_eq!(cluster.namespaces["team-0"].labels[ENFORCE], "baseline");

    cluster.gate = false;
    cluster.reconcile();
    cluster.sync("team-0");
    assert!(cluster.namespaces["team-0"].labels.contains_key(ENFORCE), "servers still enforce restricted");
    cluster.instances = vec![Level::Privileged; 3];
    cluster.sync("team-0");
    assert!(!cluster.namespaces["team-0"].labels.contains_key(ENFORCE));
    assert_eq!(cluster.status, StatusMode::NotEnabled);
}
