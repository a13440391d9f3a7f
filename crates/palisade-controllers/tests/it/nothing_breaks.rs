//! Whatever happens in whatever order: a pod that ran before is not rejected while the status is not `Restricted`.
//!
//! Workloads come, go, are changed, scaled and made again, some of them through a webhook that adds what needs a lower
//! level; users label namespaces; modes, releases and waves change; controllers are killed at any write and start anew;
//! API servers follow the configuration when they do. After each of these, everything that ran is tried again.

use std::collections::{BTreeMap, BTreeSet};

use palisade_policy::enforcement::mode::Release;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    plain::{spec, workload},
    world::World,
};

const NAMESPACES: [&str; 3] = ["a", "b", "openshift-c"];
const LEVELS: [&str; 3] = ["privileged", "baseline", "restricted"];
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";

#[derive(Debug, Clone)]
enum Step {
    Deploy { namespace: usize, kind: usize, name: usize, level: usize },
    Delete { which: usize },
    ScaleToZero { which: usize },
    MakeAgain { which: usize },
    UserLabel { namespace: usize, level: usize },
    Sync { namespace: usize, on: bool },
    Spec(usize),
    Release(usize, bool),
    Waves(usize),
    Restart,
    Turn { writes: Option<usize> },
    Follow,
    Later(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let index = || 0..8_usize;
    prop_oneof![
        6 => (0..3_usize, 0..6_usize, 0..2_usize, 0..3_usize)
            .prop_map(|(namespace, kind, name, level)| Step::Deploy { namespace, kind, name, level }),
        3 => index().prop_map(|which| Step::Delete { which }),
        2 => index().prop_map(|which| Step::ScaleToZero { which }),
        4 => index().prop_map(|which| Step::MakeAgain { which }),
        1 => (0..3_usize, 0..3_usize).prop_map(|(namespace, level)| Step::UserLabel { namespace, level }),
        1 => (0..3_usize, any::<bool>()).prop_map(|(namespace, on)| Step::Sync { namespace, on }),
        2 => (0..3_usize).prop_map(Step::Spec),
        1 => (0..3_usize, any::<bool>()).prop_map(|(release, gate)| Step::Release(release, gate)),
        1 => (0..4_usize).prop_map(Step::Waves),
        1 => Just(Step::Restart),
        6 => prop_oneof![Just(None), (0..4_usize).prop_map(Some)].prop_map(|writes| Step::Turn { writes }),
        3 => Just(Step::Follow),
        2 => (1..40_u32).prop_map(Step::Later),
    ]
}

type Key = (&'static str, &'static str, &'static str);

struct Sim {
    world: World,
    /// What each workload last ran with.
    ran: BTreeMap<Key, &'static str>,
    /// The same when the controllers last had their turn: what came and went since then dies with them.
    recorded: BTreeMap<Key, &'static str>,
    /// Workloads that have a pod.
    live: BTreeSet<Key>,
}

fn rank(level: &str) -> usize {
    LEVELS.iter().position(|own| *own == level).unwrap()
}

impl Sim {
    fn new() -> Self {
        let mut world = World::plain();
        for namespace in NAMESPACES {
            world.namespace(namespace, json!({"tier": namespace}));
        }
        world.release = Release::Enforce;
        world.gate = true;
        Self { world, ran: BTreeMap::new(), recorded: BTreeMap::new(), live: BTreeSet::new() }
    }

    /// What a server enforces in a namespace, or will enforce once it follows: what is requested counts from then on, because a pod
    /// that starts between the two starts under what is about to be enforced.
    fn enforced(&self, namespace: &str) -> &str {
        let default = |running: &Value| running["defaults"]["enforce"] == "restricted";
        let is_default = self.world.running.iter().any(default) || default(&self.world.global);
        self.world.enforce_label(namespace).unwrap_or(if is_default { "restricted" } else { "privileged" })
    }

    /// Whether the owner of a namespace decided for it.
    fn is_decided(&self, namespace: &str) -> bool {
        let object = &self.world.namespaces[namespace];
        let entries = object["metadata"]["managedFields"].as_array().unwrap();
        entries.iter().any(|entry| {
            entry["manager"] == "kubectl-label"
                && entry["fieldsV1"]["f:metadata"]["f:labels"].get(format!("f:{ENFORCE}")).is_some()
        })
    }

    fn deploy(&mut self, key: Key, level: &'static str) {
        let (namespace, kind, name) = key;
        if kind != "Pod" {
            // A webhook adds to the pods of one of them what their template does not show.
            let shown = if name == "mesh" { "restricted" } else { level };
            let (api_version, object) = workload(kind, namespace, name, shown);
            self.world.workload(api_version, kind, object);
        }
        if rank(level) < rank(self.enforced(namespace)) {
            return;
        }
        let pod = format!("{name}-{kind}");
        let mut object = json!({"metadata": {"name": pod, "namespace": namespace, "uid": pod}, "spec": spec(level),
                                "status": {"phase": "Running"}});
        match kind {
            "Pod" => {}
            "Deployment" => {
                let (api_version, mut set) = workload("ReplicaSet", namespace, &pod, level);
                set["metadata"]["ownerReferences"] = owner("apps/v1", kind, name);
                self.world.workload(api_version, "ReplicaSet", set);
                object["metadata"]["ownerReferences"] = owner("apps/v1", "ReplicaSet", &pod);
            }
            "Job" | "CronJob" => object["metadata"]["ownerReferences"] = owner("batch/v1", kind, name),
            _ => object["metadata"]["ownerReferences"] = owner("apps/v1", kind, name),
        }
        self.world.workload("v1", "Pod", object);
        self.ran.insert(key, level);
        self.live.insert(key);
    }

    /// The controllers start anew.
    fn restart(&mut self) {
        self.world.restart();
        let (recorded, live) = (&self.recorded, &self.live);
        self.ran.retain(|key, level| {
            if !live.contains(key) {
                match recorded.get(key) {
                    Some(known) => *level = known,
                    None => return false,
                }
            }
            true
        });
    }

    fn stop(&mut self, key: Key, is_deleted: bool) {
        let (namespace, kind, name) = key;
        let pod = format!("{name}-{kind}");
        self.live.remove(&key);
        self.world.remove("Pod", namespace, &pod);
        if is_deleted {
            self.world.remove("ReplicaSet", namespace, &pod);
            if kind != "Pod" {
                self.world.remove(kind, namespace, name);
            }
        }
    }

    fn which(&self, which: usize) -> Option<(Key, &'static str)> {
        let count = self.ran.len();
        self.ran.iter().nth(which % count.max(1)).map(|(key, level)| (*key, *level))
    }

    fn take(&mut self, step: &Step) {
        let world = &mut self.world;
        match *step {
            Step::Deploy { namespace, kind, name, level } => {
                let kind = ["Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob", "Pod"][kind];
                self.deploy((NAMESPACES[namespace], kind, ["web", "mesh"][name]), LEVELS[level]);
            }
            Step::Delete { which } => {
                if let Some((key, _)) = self.which(which) {
                    self.stop(key, true);
                }
            }
            Step::ScaleToZero { which } => {
                if let Some((key, _)) = self.which(which) {
                    self.stop(key, false);
                }
            }
            Step::MakeAgain { which } => {
                if let Some((key, level)) = self.which(which) {
                    self.deploy(key, level);
                }
            }
            Step::UserLabel { namespace, level } => {
                world.label(NAMESPACES[namespace], ENFORCE, LEVELS[level]);
            }
            Step::Sync { namespace, on } => {
                let key = "security.openshift.io/scc.podSecurityLabelSync";
                world.label(NAMESPACES[namespace], key, if on { "true" } else { "false" });
            }
            Step::Spec(mode) => {
                world.config["spec"]["enforcementMode"] = json!(["", "Restricted", "Legacy"][mode]);
            }
            Step::Release(release, gate) => (world.release, world.gate) = (Release::ALL[release], gate),
            Step::Waves(which) => {
                let wave = |name: &str| json!({"name": name, "soak": "20s", "namespaceSelector": {"matchLabels": {"tier": name}}});
                let status = world.rollout["status"].clone();
                world.rollout = match which {
                    0 => Value::Null,
                    which => json!({"metadata": {"name": "cluster"}, "status": status, "spec": {
                        "waves": [wave("b"), wave("a")], "paused": which == 2, "rollback": if which == 3 { "a" } else { "" }}}),
                };
            }
            Step::Restart => self.restart(),
            Step::Turn { writes } => {
                world.budget = writes;
                world.turn();
                if writes.is_some() {
                    self.restart();
                } else {
                    self.recorded = self.ran.clone();
                }
            }
            Step::Follow => {
                let global = world.global.clone();
                world.running.fill(global);
            }
            Step::Later(seconds) => world.clock += seconds,
        }
    }

    /// What ran before and would be rejected now.
    fn broken(&self) -> Vec<String> {
        if self.world.mode().1 == "Restricted" {
            return Vec::new();
        }
        let rejected = self.ran.iter().filter(|((namespace, ..), level)| {
            !self.is_decided(namespace) && rank(level) < rank(self.enforced(namespace))
        });
        rejected
            .map(|(key, level)| format!("{key:?} ran with {level}, now {}", self.enforced(key.0)))
            .collect()
    }
}

fn owner(api_version: &str, kind: &str, name: &str) -> Value {
    json!([{"apiVersion": api_version, "kind": kind, "name": name, "controller": true}])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_pod_that_ran_before_is_rejected_before_restricted(steps in prop::collection::vec(step(), 1..60)) {
        let mut sim = Sim::new();
        for (number, step) in steps.iter().enumerate() {
            sim.take(step);
            let broken = sim.broken();
            prop_assert!(broken.is_empty(), "after step {} ({:?}): {:?}", number, step, broken);
        }
        // Left alone, the controllers come to rest, and still nothing is broken.
        sim.world.budget = None;
        sim.world.settle();
        prop_assert_eq!(sim.broken(), Vec::<String>::new());
    }
}
