//! What was observed of a cluster, reduced to what decides.
//!
//! Fed by watches or by a folder of manifests, asked by every controller. A pod is judged once, when it is seen, and
//! kept as a handful of bytes; only what violates keeps its names and causes. So a change costs what it touches, and a
//! million pods fit into memory.

mod judged;
mod namespace;
mod observe;
mod template;

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher, RandomState},
};

use palisade_model::{
    metadata::ObjectMeta,
    pod::{Pod, PodSpec},
    pod_view::PodView,
    text::Text,
    workload::WorkloadKind,
};
use palisade_policy::{
    enforcement::{classify::is_by_user, state::Evaluation, violations::Verdict},
    scc::{
        choose::VALIDATED,
        constraint::{Constraint, ReadError},
        grants::Grants,
        set::ConstraintSet,
    },
    standards::evaluator::Evaluator,
};
use serde::Deserialize;
use serde_json::Value;

use self::{
    judged::{Judge, Subject},
    template::Template,
};

pub use self::{
    judged::{Blocker, Cause},
    namespace::NamespaceRecord,
    observe::Seen,
};

/// Everything the rollout depends on in the cluster's objects.
#[derive(Debug, Default)]
pub struct Cluster {
    constraints: ConstraintSet,
    unreadable_constraints: BTreeMap<String, ReadError>,
    grants: Grants,
    namespaces: BTreeMap<String, NamespaceRecord>,
    judge: Judge,
    keys: RandomState,
    unlabelled: BTreeSet<String>,
}

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
    /// An empty cluster, judged by an edition of the standards.
    #[must_use]
    pub fn new(evaluator: Evaluator) -> Self {
        Self { judge: Judge::new(evaluator), ..Self::default() }
    }

    /// The constraints in force.
    #[must_use]
    pub const fn constraints(&self) -> &ConstraintSet {
        &self.constraints
    }

    /// Constraint objects that could not be read.
    #[must_use]
    pub fn unreadable_constraints(&self) -> impl ExactSizeIterator<Item = &ReadError> {
        self.unreadable_constraints.values()
    }

    /// A namespace that exists.
    #[must_use]
    pub fn namespace(&self, name: &str) -> Option<&NamespaceRecord> {
        self.namespaces.get(name).filter(|record| record.exists())
    }

    /// All namespaces that exist, by name.
    pub fn namespaces(&self) -> impl Iterator<Item = &NamespaceRecord> {
        self.namespaces.values().filter(|record| record.exists())
    }

    /// Namespaces that still lack an enforce label they should have; none means that labels are done.
    pub fn unlabelled(&self) -> impl ExactSizeIterator<Item = &str> {
        self.unlabelled.iter().map(String::as_str)
    }

    /// All constraints, as objects of the API. Everything that follows from them is judged anew.
    pub fn set_constraints<'v>(&mut self, objects: impl IntoIterator<Item = &'v Value>) {
        let (constraints, errors) = ConstraintSet::read(objects);
        self.constraints = constraints;
        self.unreadable_constraints = errors.into_iter().map(|error| (error.name.clone(), error)).collect();
        self.refresh_all();
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

    /// A namespace was seen.
    pub fn set_namespace(&mut self, object: &Value) {
        let Some(name) = object.pointer("/metadata/name").and_then(Value::as_str) else { return };
        let new_ranges = self.record(name).set_object(object);
        self.refresh(name, new_ranges);
    }

    /// A namespace is gone, and with it all that was in it.
    pub fn remove_namespace(&mut self, name: &str) {
        self.namespaces.remove(name);
        self.unlabelled.remove(name);
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

    /// A pod was seen.
    pub fn set_pod(&mut self, pod: WatchedPod<'_>) {
        let WatchedPod { metadata, spec, status } = pod;
        let pod = Pod { metadata, spec };
        let key = self.key("Pod", &pod.metadata.name);
        let judged = (!status.is_over()).then(|| {
            let Pod { metadata, .. } = &pod;
            let owner = metadata.owner_references.iter().find(|owner| owner.controller == Some(true));
            let subject = Subject {
                kind: "Pod",
                name: &metadata.name,
                owner: owner.map(|owner| (owner.kind.as_str(), owner.name.as_str())),
                constraint: metadata.annotations.get(VALIDATED),
                is_by_user: is_by_user(&metadata.annotations),
            };
            self.judge.judge(&PodView::of_pod(&pod), &subject)
        });
        self.record(&pod.metadata.namespace).set_judged(key, judged);
    }

    /// A pod was seen that cannot be read: nobody can say what it asks for.
    pub fn set_unreadable(&mut self, kind: &str, namespace: &str, name: &str) {
        let key = self.key(kind, name);
        let record = self.record(namespace);
        record.set_judged(key, None);
        record.unreadable.insert(key);
    }

    /// A pod is gone.
    pub fn remove_pod(&mut self, namespace: &str, name: &str) {
        self.remove(namespace, "Pod", name);
    }

    /// A workload with a template was seen. One that another workload controls is left to that one.
    pub fn set_workload(&mut self, kind: &'static WorkloadKind, object: &Value) {
        let Some(metadata) = object.get("metadata").and_then(|value| ObjectMeta::deserialize(value).ok())
        else {
            return;
        };
        let (namespace, name) = (metadata.namespace.as_str(), metadata.name.as_str());
        let template = Template::read(kind, name, object).filter(|_| metadata.controller_uid().is_none());
        let Some(template) = template else { return self.remove(namespace, kind.kind, name) };
        let key = self.key(kind.kind, name);
        self.record(namespace).templates.insert(key, template);
        self.judge_template(namespace, key);
    }

    /// A workload is gone.
    pub fn remove_workload(&mut self, kind: &WorkloadKind, namespace: &str, name: &str) {
        self.remove(namespace, kind.kind, name);
    }

    /// What each namespace would suffer, by name.
    #[must_use]
    pub fn verdicts(&self) -> BTreeMap<&str, Verdict> {
        self.namespaces().map(|record| (record.name(), record.verdict())).collect()
    }

    /// All verdicts together.
    #[must_use]
    pub fn evaluation(&self) -> Evaluation {
        let mut seen = Evaluation::NotEvaluated;
        for record in self.namespaces() {
            match record.verdict() {
                Verdict::Violating(_) => return Evaluation::Violations,
                Verdict::Clean => seen = Evaluation::Clean,
                Verdict::Inconclusive => {}
            }
        }
        seen
    }

    /// Within a namespace an object is known by a hash of its kind and name: the names themselves would be most of
    /// what a million pods take, and are of interest only where something is wrong.
    fn key(&self, kind: &str, name: &str) -> u64 {
        self.keys.hash_one((kind, name))
    }

    fn record(&mut self, name: &str) -> &mut NamespaceRecord {
        self.namespaces.entry(name.to_owned()).or_insert_with(|| NamespaceRecord::new(name))
    }

    fn remove(&mut self, namespace: &str, kind: &str, name: &str) {
        let key = self.key(kind, name);
        if let Some(record) = self.namespaces.get_mut(namespace) {
            record.templates.remove(&key);
            record.set_judged(key, None);
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
        let Some(record) = self.namespaces.get_mut(name) else { return };
        record.infer(&self.grants, &self.constraints);
        let keys: Vec<u64> = record.templates.keys().copied().filter(|_| admission_changed).collect();
        if record.has_its_label() {
            self.unlabelled.remove(name);
        } else {
            self.unlabelled.insert(name.to_owned());
        }
        for key in keys {
            self.judge_template(name, key);
        }
    }

    /// A template becomes the pod that admission would make of it, and is judged as that.
    fn judge_template(&mut self, namespace: &str, key: u64) {
        let Some(record) = self.namespaces.get_mut(namespace) else { return };
        let Some(template) = record.templates.get(&key) else { return };
        let judged = template.judge(&mut self.judge, record, &self.grants, &self.constraints);
        record.set_judged(key, judged);
    }
}
