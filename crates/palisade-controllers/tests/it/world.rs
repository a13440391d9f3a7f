//! A cluster small enough to hold in a hand: objects as JSON, server-side apply, instances that follow a configuration.

use std::collections::{BTreeMap, BTreeSet};

use palisade_base::time::Time;
use palisade_controllers::{
    cluster::{Cluster, Seen},
    config_observer::plan::configuration,
    label_syncer::plan::{LabelPolicy, Write, all_labels_by},
    range_allocator::plan::allocations,
    readiness::{
        plan::{Observed, ReadinessPlan, plan},
        waves,
    },
};
use palisade_model::{compat::Compat, workload::WORKLOADS};
use palisade_policy::{
    enforcement::{
        conditions::Troubles,
        instances::Configuration,
        level::LevelSource,
        mode::Release,
        render::{enforced_by_default, pod_security_configuration},
        state::Instances,
        violations::Entry,
        waves::Rollout,
    },
    exceptions::set::ExceptionSet,
    scc::built_in,
    standards::level::Level,
};
use serde_json::{Map, Value, json};

/// Everything that would be stored.
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) release: Release,
    pub(crate) gate: bool,
    pub(crate) config: Value,
    pub(crate) global: Value,
    pub(crate) running: Vec<Value>,
    pub(crate) namespaces: BTreeMap<String, Value>,
    pub(crate) remembered: Vec<Entry>,
    pub(crate) clock: u32,
    pub(crate) writes: usize,
    /// After how many more writes the controllers are killed.
    pub(crate) budget: Option<usize>,
    /// Where levels come from.
    pub(crate) levels: LevelSource,
    /// The `PodSecurityRollout`; null if there is none.
    pub(crate) rollout: Value,
    /// Objects that do not change.
    fixed: Vec<Value>,
    /// The exceptions that count, and the moment.
    counted: Option<(Vec<Value>, i64)>,
}

impl World {
    /// OpenShift's constraints, granted as OpenShift grants them, and nothing else.
    pub(crate) fn new() -> Self {
        let mut world = Self::with_levels(LevelSource::Constraints);
        for object in built_in::objects().chain(built_in::grants()) {
            world.observe(object);
        }
        world
    }

    /// A Kubernetes without constraints.
    pub(crate) fn plain() -> Self {
        Self::with_levels(LevelSource::Workloads)
    }

    fn with_levels(levels: LevelSource) -> Self {
        let privileged = pod_security_configuration(Level::Privileged);
        Self {
            cluster: Cluster::with_levels(Compat::default(), levels),
            release: Release::Introduce,
            gate: false,
            config: json!({"spec": {"enforcementMode": ""}}),
            global: privileged.clone(),
            running: vec![privileged; 3],
            namespaces: BTreeMap::new(),
            remembered: Vec::new(),
            clock: 0,
            writes: 0,
            budget: None,
            levels,
            rollout: Value::Null,
            fixed: Vec::new(),
            counted: None,
        }
    }

    /// What exceptions accept counts from now on.
    pub(crate) fn count_exceptions(&mut self, exceptions: &[Value], moment: i64) {
        let now = Time { seconds: moment, micros: 0 };
        if self.counted.is_none() {
            self.cluster.count_exceptions(now);
        }
        self.cluster.set_exceptions(ExceptionSet::read(exceptions));
        self.counted = Some((exceptions.to_vec(), moment));
        self.cluster.set_now(now);
    }

    /// A moment has come, and nothing else happens.
    pub(crate) fn clock_is(&mut self, moment: i64) {
        if let Some((_, now)) = &mut self.counted {
            *now = moment;
        }
        self.cluster.set_now(Time { seconds: moment, micros: 0 });
    }

    /// An object is gone.
    pub(crate) fn remove(&mut self, kind: &str, namespace: &str, name: &str) {
        let text = |object: &Value, pointer: &str| {
            object.pointer(pointer).and_then(Value::as_str).map(str::to_owned)
        };
        self.fixed.retain(|object| {
            let own = ["/kind", "/metadata/namespace", "/metadata/name"].map(|pointer| text(object, pointer));
            own != [kind, namespace, name].map(|part| Some(part.to_owned()))
        });
        match WORKLOADS.iter().find(|workload| workload.kind == kind && kind != "Pod") {
            Some(workload) => self.cluster.remove_workload(workload, namespace, name),
            None => self.cluster.remove_pod(namespace, name),
        }
    }

    fn instances(&self) -> Instances {
        Instances::of(self.running.iter().map(enforced_by_default))
    }

    /// The index learns what is enforced where there is no label.
    fn catch_up(&mut self) {
        let requested = enforced_by_default(&self.global) == Some(Level::Restricted);
        let enforces = requested || self.instances() != Instances::None;
        self.cluster.set_default_enforce(Some(if enforces { Level::Restricted } else { Level::Privileged }));
    }

    pub(crate) fn grant(&mut self, namespace: Option<&str>, constraint: &str, subject: Value) {
        let kind = if namespace.is_some() { "RoleBinding" } else { "ClusterRoleBinding" };
        self.observe(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
            "metadata": {"name": constraint, "namespace": namespace}, "subjects": [subject],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                        "name": built_in::cluster_role(constraint)}}));
    }

    pub(crate) fn grant_account(&mut self, namespace: &str, constraint: &str) {
        let subject = json!({"kind": "ServiceAccount", "name": "default", "namespace": namespace});
        self.grant(Some(namespace), constraint, subject);
    }

    pub(crate) fn namespace(&mut self, name: &str, labels: Value) {
        let object = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "labels": labels, "annotations": {}, "managedFields": []}});
        self.store(name, object);
        self.observe(json!({"apiVersion": "v1", "kind": "ServiceAccount",
                            "metadata": {"name": "default", "namespace": name}}));
    }

    pub(crate) fn pod(&mut self, namespace: &str, name: &str, annotations: Value, spec: Value) {
        self.observe(json!({"apiVersion": "v1", "kind": "Pod", "spec": spec, "status": {"phase": "Running"},
            "metadata": {"name": name, "namespace": namespace, "annotations": annotations}}));
    }

    fn observe(&mut self, object: Value) {
        assert_eq!(self.cluster.observe(&object), Seen::Used, "{object}");
        let identity = |object: &Value| {
            ["/kind", "/metadata/namespace", "/metadata/name"].map(|at| object.pointer(at).cloned())
        };
        let own = identity(&object);
        self.fixed.retain(|other| identity(other) != own);
        self.fixed.push(object);
    }

    /// Controllers start anew and see everything that is stored, in no particular order.
    pub(crate) fn restart(&mut self) {
        self.budget = None;
        self.cluster = Cluster::with_levels(Compat::default(), self.levels);
        self.cluster.set_default_enforce(None);
        if let Some((_, moment)) = &self.counted {
            self.cluster.count_exceptions(Time { seconds: *moment, micros: 0 });
        }
        self.cluster.begin_list("", "Pod");
        for object in self.fixed.iter().rev().chain(self.namespaces.values()) {
            self.cluster.observe(object);
        }
        self.cluster.end_list("", "Pod");
        // The order in which watches begin is not known.
        if let Some((exceptions, _)) = &self.counted {
            self.cluster.set_exceptions(ExceptionSet::read(exceptions));
        }
        self.catch_up();
    }

    /// Whether the next write still happens.
    fn may_write(&mut self) -> bool {
        match &mut self.budget {
            Some(0) => return false,
            Some(left) => *left -= 1,
            None => {}
        }
        self.writes += 1;
        true
    }

    pub(crate) fn workload(&mut self, api_version: &str, kind: &str, mut object: Value) {
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        self.observe(object);
    }

    /// What `kubectl label` does.
    pub(crate) fn label(&mut self, namespace: &str, key: &str, value: &str) {
        let mut object = self.namespaces[namespace].clone();
        object["metadata"]["labels"][key] = json!(value);
        forget_owners(&mut object, &[key], None);
        own(&mut object, "kubectl-label", "Update", "f:labels", &[key]);
        self.store(namespace, object);
    }

    fn store(&mut self, name: &str, mut object: Value) {
        let version = object["metadata"]["resourceVersion"].as_str().unwrap_or("0").parse::<u32>().unwrap();
        object["metadata"]["resourceVersion"] = json!((version + 1).to_string());
        self.cluster.observe(&object);
        self.namespaces.insert(name.to_owned(), object);
    }

    fn apply(&mut self, write: &Write) {
        let mut object = self.namespaces[&write.namespace].clone();
        assert_eq!(object["metadata"]["resourceVersion"], write.resource_version.as_str());
        let applied = write.to_object();
        for (map, fields) in [("labels", "f:labels"), ("annotations", "f:annotations")] {
            let wanted = applied["metadata"][map].as_object().cloned().unwrap_or_default();
            let mut gone = owned_by(&object, write.manager, fields);
            gone.retain(|key| !wanted.contains_key(key));
            let gone: Vec<&str> = gone.iter().map(String::as_str).collect();
            forget_owners(&mut object, &gone, Some(write.manager));
            for key in gone {
                if !is_owned(&object, fields, key) {
                    object["metadata"][map].as_object_mut().unwrap().remove(key);
                }
            }
            for (key, value) in &wanted {
                if object["metadata"][map].get(key) != Some(value) {
                    forget_owners(&mut object, &[key.as_str()], None);
                    object["metadata"][map][key] = value.clone();
                }
            }
            let keys: Vec<&str> = wanted.keys().map(String::as_str).collect();
            own(&mut object, write.manager, "Apply", fields, &keys);
        }
        self.store(&write.namespace.clone(), object);
    }

    pub(crate) fn now(&self) -> String {
        format!("2026-01-01T00:00:{:02}Z", self.clock)
    }

    pub(crate) fn plan(&self) -> ReadinessPlan {
        let rollout = (!self.rollout.is_null()).then(|| Rollout::read(&self.rollout));
        let waves = rollout.as_ref().and_then(Rollout::describe);
        let waves = waves.as_ref().map(|(reason, message)| (*reason, message.as_str()));
        plan(
            &Observed {
                release: self.release,
                gate: self.gate,
                config: &self.config,
                instances: self.instances(),
                rollout: rollout.as_ref(),
                requested: enforced_by_default(&self.global).unwrap(),
                has_synced: true,
                is_config_served: true,
                remembered: &self.remembered,
                troubles: Troubles { waves, ..Troubles::default() },
                now: &self.now(),
            },
            &self.cluster,
        )
    }

    /// One turn of every controller.
    pub(crate) fn turn(&mut self) -> bool {
        let before = self.writes;
        self.catch_up();
        let allocated: Vec<_> =
            allocations(&self.cluster).into_iter().map(|(name, ranges)| (name.to_owned(), ranges)).collect();
        for (name, ranges) in allocated {
            let mut object = self.namespaces[&name].clone();
            for (key, value) in ranges.annotations() {
                object["metadata"]["annotations"][key] = json!(value);
            }
            if self.may_write() {
                self.store(&name, object);
            }
        }
        let plan = self.plan();
        self.remembered.clone_from(&plan.remembered);
        if let Some(mode) = plan.spec
            && self.may_write()
        {
            self.config["spec"]["enforcementMode"] = json!(mode.as_str());
        }
        if let Some(status) = plan.status
            && self.may_write()
        {
            self.config["status"] = status;
        }
        if let Some(global) = configuration(plan.outputs, Some(&Configuration::new(self.global.clone())))
            && self.may_write()
        {
            self.global = global.value;
        }
        let outputs = self.plan().outputs;
        if !self.rollout.is_null()
            && let Some(status) = waves::plan(&self.rollout, outputs, &self.cluster, i64::from(self.clock))
            && self.may_write()
        {
            self.rollout["status"] = status;
        }
        let rollout = (!self.rollout.is_null()).then(|| Rollout::read(&self.rollout));
        let requested = enforced_by_default(&self.global).unwrap();
        let policy = LabelPolicy::new(self.plan().outputs, self.levels, self.instances(), requested, rollout);
        let writes: Vec<_> = all_labels_by(&self.cluster, &policy).collect();
        for write in &writes {
            if self.may_write() {
                self.apply(write);
            }
        }
        self.writes != before
    }

    /// Controllers take turns and API servers follow, until nothing moves.
    pub(crate) fn settle(&mut self) {
        for _ in 0..20 {
            let moved = self.turn();
            let followed = self.running.iter().all(|running| *running == self.global);
            let global = self.global.clone();
            self.running.fill(global);
            if !moved && followed {
                return;
            }
        }
        assert!(self.budget.is_some(), "never settles");
    }

    pub(crate) fn mode(&self) -> (&str, &str) {
        let text = |pointer: &str| self.config.pointer(pointer).and_then(Value::as_str).unwrap_or("<none>");
        (text("/spec/enforcementMode"), text("/status/enforcementMode"))
    }

    pub(crate) fn violating(&self) -> Vec<(String, String, String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        self.config["status"]["violatingNamespaces"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|entry| {
                (
                    text(&entry["name"]),
                    text(&entry["reason"]),
                    text(&entry["state"]),
                    text(&entry["lastTransitionTime"]),
                )
            })
            .collect()
    }

    pub(crate) fn enforce_label(&self, namespace: &str) -> Option<&str> {
        self.namespaces[namespace]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"].as_str()
    }

    pub(crate) fn condition(&self, kind: &str) -> (String, String) {
        let conditions = self.config["status"]["conditions"].as_array().unwrap();
        let found = conditions.iter().find(|condition| condition["type"] == kind).unwrap();
        (found["status"].as_str().unwrap().to_owned(), found["reason"].as_str().unwrap().to_owned())
    }
}

fn fields_of<'o>(entry: &'o Value, fields: &str) -> Option<&'o Map<String, Value>> {
    entry["fieldsV1"]["f:metadata"][fields].as_object()
}

fn owned_by(object: &Value, manager: &str, fields: &str) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let own = entries.iter().filter(|entry| entry["manager"] == manager);
    own.filter_map(|entry| fields_of(entry, fields))
        .flat_map(|fields| fields.keys().map(|key| key.trim_start_matches("f:").to_owned()))
        .collect()
}

fn is_owned(object: &Value, fields: &str, key: &str) -> bool {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    entries
        .iter()
        .any(|entry| fields_of(entry, fields).is_some_and(|fields| fields.contains_key(&format!("f:{key}"))))
}

fn forget_owners(object: &mut Value, keys: &[&str], manager: Option<&str>) {
    let keys: BTreeSet<String> = keys.iter().map(|key| format!("f:{key}")).collect();
    for entry in object["metadata"]["managedFields"].as_array_mut().unwrap() {
        if manager.is_some_and(|manager| entry["manager"] != manager) {
            continue;
        }
        for fields in ["f:labels", "f:annotations"] {
            if let Some(fields) = entry["fieldsV1"]["f:metadata"][fields].as_object_mut() {
                fields.retain(|key, _| !keys.contains(key));
            }
        }
    }
}

fn own(object: &mut Value, manager: &str, operation: &str, fields: &str, keys: &[&str]) {
    let entries = object["metadata"]["managedFields"].as_array_mut().unwrap();
    if !entries.iter().any(|entry| entry["manager"] == manager) {
        entries.push(json!({"manager": manager, "operation": operation, "fieldsV1": {"f:metadata": {}}}));
    }
    let entry = entries.iter_mut().find(|entry| entry["manager"] == manager).unwrap();
    for key in keys {
        entry["fieldsV1"]["f:metadata"][fields][format!("f:{key}")] = json!({});
    }
}
