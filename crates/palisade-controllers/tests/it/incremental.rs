//! What is known after many single changes is what would be known from the objects that are left, seen at once.

use std::collections::BTreeMap;

use palisade_controllers::{cluster::Cluster, label_syncer::plan::all_labels, readiness::report::report};
use palisade_model::workload::workload_kind;
use palisade_policy::{enforcement::state::EnforceLabels, scc::built_in};
use proptest::prelude::*;
use serde_json::{Value, json};

fn namespaces() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "openshift-x"])
}

fn pod_spec() -> impl Strategy<Value = Value> {
    let restricted = json!({"securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "c", "image": "i", "securityContext": {"allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]}}}]});
    prop::sample::select(vec![
        restricted,
        json!({"containers": [{"name": "c", "image": "i"}]}),
        json!({"containers": [{"name": "c", "image": "i", "securityContext": {"runAsUser": 0}}]}),
        json!({"hostPID": true, "containers": [{"name": "c", "image": "i"}]}),
        json!({"serviceAccountName": "x", "containers": [{"name": "c", "image": "i",
               "securityContext": {"privileged": true}}]}),
    ])
}

fn object() -> impl Strategy<Value = Value> {
    let namespace = (namespaces(), 0..4_usize).prop_map(|(name, variant)| {
        let labels = match variant {
            0 => json!({"security.openshift.io/scc.podSecurityLabelSync": "false"}),
            1 => json!({"pod-security.kubernetes.io/enforce": "baseline"}),
            _ => json!({}),
        };
        let annotations = match variant {
            3 => json!({}),
            _ => json!({"openshift.io/sa.scc.uid-range": "1000650000/10000", "openshift.io/sa.scc.mcs": "s0:c1,c0"}),
        };
        json!({"apiVersion": "v1", "kind": "Namespace",
               "metadata": {"name": name, "labels": labels, "annotations": annotations}})
    });
    let account = (namespaces(), prop::sample::select(vec!["default", "x"])).prop_map(|(namespace, name)| {
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}})
    });
    let pod = (namespaces(), 0..3_usize, pod_spec(), prop::sample::select(vec!["Running", "Succeeded"])).prop_map(
        |(namespace, name, spec, phase)| {
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p{name}"), "namespace": namespace},
                   "spec": spec, "status": {"phase": phase}})
        },
    );
    let deployment = (namespaces(), 0..2_usize, pod_spec()).prop_map(|(namespace, name, spec)| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment",
               "metadata": {"name": format!("d{name}"), "namespace": namespace}, "spec": {"template": {"spec": spec}}})
    });
    let role = prop::sample::select(vec!["anyuid", "privileged", "restricted-v2"]).prop_map(|constraint| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "role"},
               "rules": [{"verbs": ["use"], "apiGroups": ["security.openshift.io"],
                          "resources": ["securitycontextconstraints"], "resourceNames": [constraint]}]})
    });
    let binding =
        (namespaces(), prop::sample::select(vec!["default", "x"])).prop_map(|(namespace, account)| {
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
               "metadata": {"name": "binding", "namespace": namespace},
               "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "role"},
               "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}]})
        });
    let constraint = (prop::sample::select(built_in::objects().collect::<Vec<_>>()), any::<bool>()).prop_map(
        |(mut object, broken)| {
            if broken {
                object["volumes"] = json!("all");
            }
            object
        },
    );
    prop_oneof![3 => namespace, 2 => account, 4 => pod, 3 => deployment, 1 => role, 2 => binding, 2 => constraint]
}

/// Everything that is read from a cluster.
fn answers(cluster: &Cluster) -> String {
    let reports: Vec<_> = report(cluster).collect();
    let labels: Vec<_> = all_labels(cluster, EnforceLabels::Set).collect();
    let unlabelled: Vec<_> = cluster.unlabelled().collect();
    let broken: Vec<_> = cluster.skipped_constraints().into_keys().collect();
    format!("{reports:#?} {:?} {labels:?} {unlabelled:?} {broken:?}", (cluster.not_clean(), cluster.tally()))
}

fn remove(cluster: &mut Cluster, kind: &str, namespace: &str, name: &str) {
    match kind {
        "ServiceAccount" => cluster.remove_service_account(namespace, name),
        "Pod" => cluster.remove_pod(namespace, name),
        "ClusterRole" => cluster.set_role(None, name, None),
        "RoleBinding" => cluster.set_binding(Some(namespace), name, None),
        "SecurityContextConstraints" => cluster.remove_constraint(name),
        _ => cluster.remove_workload(workload_kind("apps/v1", kind).unwrap(), namespace, name),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn single_changes_add_up(events in prop::collection::vec((object(), any::<bool>()), 1..60)) {
        let mut cluster = Cluster::default();
        let mut left: BTreeMap<(String, String, String), Value> = BTreeMap::new();
        for (object, is_gone) in events {
            let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
            let key = (text("/kind"), text("/metadata/namespace"), text("/metadata/name"));
            // A namespace takes along what is in it; deleting it first is not what a cluster does.
            let is_gone = is_gone && key.0 != "Namespace";
            if is_gone {
                remove(&mut cluster, &key.0, &key.1, &key.2);
                left.remove(&key);
            } else {
                cluster.observe(&object);
                left.insert(key, object);
            }
        }
        // A full pass finds nothing that single changes have not.
        let before = answers(&cluster);
        cluster.take_touched();
        cluster.evaluate_anew();
        prop_assert_eq!(answers(&cluster), before);
        prop_assert_eq!(cluster.take_touched().len(), cluster.namespaces().count(), "and leaves none out");
        for objects in [left.values().collect::<Vec<_>>(), left.values().rev().collect()] {
            let mut fresh = Cluster::default();
            for object in objects {
                fresh.observe(object);
            }
            prop_assert_eq!(answers(&cluster), answers(&fresh));
        }
    }
}
