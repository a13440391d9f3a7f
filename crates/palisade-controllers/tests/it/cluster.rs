//! What the in-memory state makes of single changes.

use palisade_controllers::cluster::{Cluster, Seen};
use palisade_model::compat::Compat;
use palisade_policy::{enforcement::violations::Verdict, standards::level::Level};
use serde_json::{Value, json};

use crate::world::World;

fn template(spec: Value) -> Value {
    json!({"metadata": {"labels": {"app": "x"}}, "spec": spec})
}

fn blockers(cluster: &Cluster, namespace: &str) -> Vec<String> {
    let record = cluster.namespace(namespace).unwrap();
    record.blockers().iter().map(|blocker| format!("{}/{}", blocker.kind, blocker.name)).collect()
}

#[test]
fn templates_without_pods_are_judged_as_admission_would_make_them() {
    let mut world = World::new();
    world.namespace("team", json!({}));
    world.namespace("opted-out", json!({"security.openshift.io/scc.podSecurityLabelSync": "false"}));
    world.settle();
    let plain = json!({"containers": [{"name": "app", "image": "i", "env": [{"name": "A", "value": "b"}]}]});
    let deployment = |namespace: &str, name: &str, spec: &Value| {
        json!({"metadata": {"name": name, "namespace": namespace},
               "spec": {"replicas": 0, "template": template(spec.clone())}})
    };
    world.workload("apps/v1", "Deployment", deployment("team", "plain", &plain));
    assert_eq!(blockers(&world.cluster, "team"), [""; 0], "restricted-v2 fills in what is missing");

    // No service account of the namespace may use a constraint that allows this: its pods are rejected.
    let root = json!({"containers": [{"name": "app", "image": "i", "securityContext": {"runAsUser": 0}}]});
    world.workload("apps/v1", "Deployment", deployment("opted-out", "root", &root));
    assert_eq!(blockers(&world.cluster, "opted-out"), ["Deployment/root"]);
    let rejection =
        |world: &World| world.cluster.namespace("opted-out").unwrap().blockers()[0].rejection.clone();
    assert!(rejection(&world).unwrap().contains("no SecurityContextConstraints"));

    // Now one may, and the label syncer is switched off.
    world.grant_account("opted-out", "anyuid");
    assert_eq!(blockers(&world.cluster, "opted-out"), ["Deployment/root"]);
    assert_eq!(rejection(&world), None);
    let record = world.cluster.namespace("opted-out").unwrap();
    let causes = &record.blockers()[0].causes;
    assert!(
        causes.iter().any(|cause| cause.path.starts_with("spec.template.spec.containers[0].securityContext")),
        "{causes:?}"
    );

    let cron_job = json!({"metadata": {"name": "nightly", "namespace": "opted-out"},
        "spec": {"jobTemplate": {"spec": {"template": template(root.clone())}}}});
    world.workload("batch/v1", "CronJob", cron_job.clone());
    assert_eq!(blockers(&world.cluster, "opted-out"), ["CronJob/nightly", "Deployment/root"]);

    // A ReplicaSet that a Deployment controls is the Deployment's business.
    let mut replica_set = deployment("opted-out", "root-1", &root);
    replica_set["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "root", "uid": "u", "controller": true}]);
    world.workload("apps/v1", "ReplicaSet", replica_set);
    assert_eq!(blockers(&world.cluster, "opted-out").len(), 2);

    let kind = palisade_model::workload::workload_kind("batch/v1", "CronJob").unwrap();
    world.cluster.remove_workload(kind, "opted-out", "nightly");
    assert_eq!(blockers(&world.cluster, "opted-out"), ["Deployment/root"]);
}

#[test]
fn pods_come_change_end_and_go() {
    let mut world = World::new();
    world.namespace("team", json!({}));
    world.settle();
    let verdict = |world: &World| world.cluster.namespace("team").unwrap().verdict();
    let spec = |privileged: bool| json!({"containers": [{"name": "a", "image": "i", "securityContext": {"privileged": privileged}}]});
    world.pod("team", "p", json!({}), spec(true));
    assert!(matches!(verdict(&world), Verdict::Violating(Some(_))));
    assert_eq!(world.cluster.namespace("team").unwrap().violating(Level::Baseline), 1);
    world.pod("team", "p", json!({}), spec(false));
    let record = world.cluster.namespace("team").unwrap();
    assert_eq!((record.violating(Level::Baseline), record.violating(Level::Restricted)), (0, 1));
    world.cluster.remove_pod("team", "p");
    assert_eq!(verdict(&world), Verdict::Clean);
    world.cluster.remove_pod("team", "p");

    world.cluster.set_undecided("v1", "Pod", "team", "odd", "it cannot be decoded");
    assert_eq!(verdict(&world), Verdict::Inconclusive);
    world.cluster.remove_pod("team", "odd");
    assert_eq!(verdict(&world), Verdict::Clean);

    let done = json!({"metadata": {"name": "job", "namespace": "team"}, "spec": spec(true),
                      "status": {"phase": "Succeeded"}});
    world.cluster.set_pod(&done.to_string()).unwrap();
    assert_eq!(verdict(&world), Verdict::Clean, "what ran to its end is not admitted again");
    world.cluster.remove_namespace("team");
    assert!(world.cluster.namespace("team").is_none());
}

#[test]
fn the_order_of_arrival_does_not_matter() {
    let mut world = World::new();
    let spec = json!({"containers": [{"name": "a", "image": "i", "securityContext": {"privileged": true}}]});
    world.pod("late", "p", json!({}), spec);
    assert!(world.cluster.namespace("late").is_none());
    assert_eq!(world.cluster.not_clean().len(), 0);
    world.namespace("late", json!({}));
    assert_eq!(world.cluster.not_clean()["late"], Verdict::Inconclusive, "it has no ranges yet");
    world.settle();
    assert!(matches!(world.cluster.not_clean()["late"], Verdict::Violating(_)));
}

#[test]
fn pods_in_a_cluster_that_makes_no_service_accounts_count() {
    let mut world = World::new();
    world.namespace("bare", json!({}));
    world.settle();
    world.cluster.remove_service_account("bare", "default");
    let spec = json!({"containers": [{"name": "a", "image": "i", "securityContext": {"privileged": true}}]});
    world.pod("bare", "p", json!({}), spec);
    assert!(matches!(world.cluster.namespace("bare").unwrap().verdict(), Verdict::Violating(Some(_))));
    world.cluster.remove_pod("bare", "p");
    assert_eq!(world.cluster.namespace("bare").unwrap().verdict(), Verdict::Clean);
}

#[test]
fn manifests_alone_are_enough() {
    let mut cluster = Cluster::default();
    cluster.add_openshift_defaults();
    let pod = |namespace: &str, spec: Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": namespace}, "spec": spec});
    let spec = json!({"containers": [{"name": "a", "image": "i", "securityContext": {"privileged": true}}]});
    assert_eq!(cluster.observe(&pod("team", spec)), Seen::Used);
    assert_eq!(cluster.observe(&pod("team", json!("?"))), Seen::Unreadable);
    assert_eq!(cluster.observe(&json!({"apiVersion": "v1", "kind": "ConfigMap"})), Seen::Irrelevant);
    cluster.observe(&pod("other", json!({"containers": []})));
    assert!(cluster.namespace("team").is_none());
    cluster.assume_what_manifests_leave_out();
    let team = cluster.namespace("team").unwrap();
    assert_eq!(team.level().level, Some(Level::Restricted), "what everyone may use");
    assert_eq!(
        team.verdict(),
        Verdict::Inconclusive,
        "the pod of that name could not be read the second time"
    );
    assert_ne!(
        team.annotations().get("openshift.io/sa.scc.uid-range"),
        cluster.namespace("other").unwrap().annotations().get("openshift.io/sa.scc.uid-range")
    );
}

/// The twin of a workload that was refused: what is true of it comes out in every order.
#[test]
fn what_nothing_admits_violates_and_what_cannot_be_judged_is_undecided() {
    let mut world = World::new();
    for name in ["team", "labelled"] {
        world.namespace(name, json!({}));
    }
    world.settle();
    let verdict = |world: &World, name: &str| world.cluster.namespace(name).unwrap().verdict();
    let is_violating = |world: &World, name: &str| matches!(verdict(world, name), Verdict::Violating(_));
    let host = json!({"hostNetwork": true, "hostPID": true, "containers": [{"name": "a", "image": "i"}],
        "volumes": [{"name": "root", "hostPath": {"path": "/"}}]});
    let plain = json!({"containers": [{"name": "a", "image": "i"}]});
    let daemon_set = |namespace: &str, spec: &Value, status: Value| {
        json!({"metadata": {"name": "agent", "namespace": namespace, "generation": 1},
            "spec": {"template": template(spec.clone())}, "status": status})
    };
    world.workload("apps/v1", "DaemonSet", daemon_set("team", &host, json!({})));
    assert!(is_violating(&world, "team"), "no constraint admits it");
    world.grant_account("team", "privileged");
    assert_eq!(verdict(&world, "team"), Verdict::Clean, "the label follows the grant");

    // The owner's label decides on the level, not that pods are rejected.
    world.label("labelled", "pod-security.kubernetes.io/enforce", "restricted");
    world.settle();
    let complete = json!({"observedGeneration": 1, "desiredNumberScheduled": 2, "currentNumberScheduled": 2});
    world.workload("apps/v1", "DaemonSet", daemon_set("labelled", &plain, complete));
    assert_eq!(verdict(&world, "labelled"), Verdict::Clean);
    let short = json!({"observedGeneration": 1, "desiredNumberScheduled": 2, "currentNumberScheduled": 0});
    world.workload("apps/v1", "DaemonSet", daemon_set("labelled", &plain, short));
    assert_eq!(verdict(&world, "labelled"), Verdict::Inconclusive, "nothing reports why pods are missing");
    let failing = json!({"metadata": {"name": "web", "namespace": "labelled"}, "spec": {"template": template(plain.clone())},
        "status": {"conditions": [{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate",
            "message": "pods \"web-\" is forbidden"}]}});
    world.workload("apps/v1", "Deployment", failing);
    assert!(is_violating(&world, "labelled"), "rejected, as the workload reports");
    let rejections: Vec<_> = world.cluster.namespace("labelled").unwrap().blockers();
    assert!(rejections[0].rejection.as_ref().unwrap().contains("is forbidden"), "{rejections:?}");

    for (case, api_version, kind, spec) in [
        ("no template", "apps/v1", "Deployment", json!({})),
        (
            "a template that cannot be decoded",
            "apps/v1",
            "Deployment",
            json!({"template": {"spec": {"containers": 7}}}),
        ),
        (
            "an unknown kind",
            "example.com/v1",
            "Farm",
            json!({"workers": [{"pod": {"containers": [{"image": "i"}]}}]}),
        ),
    ] {
        let mut world = World::new();
        world.namespace("team", json!({}));
        world.settle();
        assert_eq!(verdict(&world, "team"), Verdict::Clean);
        world.cluster.observe(&json!({"apiVersion": api_version, "kind": kind,
            "metadata": {"name": "odd", "namespace": "team"}, "spec": spec}));
        assert_eq!(verdict(&world, "team"), Verdict::Inconclusive, "{case}");
        assert_eq!(world.cluster.namespace("team").unwrap().doubts().len(), 1, "{case}");
    }
}

/// Old revisions make no pods, as long as the workload that they belong to is there.
#[test]
fn a_controller_that_does_not_exist_hides_nothing() {
    let mut world = World::new();
    world.namespace("team", json!({}));
    world.settle();
    let workload = |name: &str, replicas: u32, owner: Option<&str>, spec: &Value| {
        let owners = owner.map_or(json!([]), |owner| {
            json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": owner, "uid": "u", "controller": true}])
        });
        json!({"metadata": {"name": name, "namespace": "team", "ownerReferences": owners},
            "spec": {"replicas": replicas, "template": template(spec.clone())}})
    };
    let host = json!({"hostNetwork": true, "containers": [{"name": "a", "image": "i"}]});
    let plain = json!({"containers": [{"name": "a", "image": "i"}]});
    world.workload("apps/v1", "ReplicaSet", workload("old", 0, Some("web"), &host));
    assert_eq!(blockers(&world.cluster, "team"), ["ReplicaSet/old"]);
    world.workload("apps/v1", "Deployment", workload("web", 1, None, &plain));
    assert_eq!(blockers(&world.cluster, "team"), [""; 0], "an old revision");
    world.workload("apps/v1", "ReplicaSet", workload("made-up", 1, Some("web"), &host));
    assert_eq!(blockers(&world.cluster, "team"), ["ReplicaSet/made-up"], "it makes pods");
    let kind = palisade_model::workload::workload_kind("apps/v1", "Deployment").unwrap();
    world.cluster.remove_workload(kind, "team", "web");
    assert_eq!(blockers(&world.cluster, "team"), ["ReplicaSet/made-up", "ReplicaSet/old"]);
}

/// The node runs the fields of Palisade's extensions, so readiness counts them: in pods and in templates, and only where the
/// API server has them.
#[test]
fn fields_of_the_extensions_are_judged_as_the_node_runs_them() {
    let restricted = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    for (case, context) in [
        ("nothing", json!({})),
        ("privileged by default", json!({"containerDefaults": {"privileged": true}})),
        ("the network of the node", json!({"hostNetwork": true})),
        ("IPC of the node", json!({"hostIPC": true})),
    ] {
        let mut context = context;
        context["runAsNonRoot"] = json!(true);
        context["seccompProfile"] = json!({"type": "RuntimeDefault"});
        let spec = json!({"securityContext": context, "containers": [{"name": "a", "image": "i", "securityContext": restricted}]});
        for compat in [Compat::designs(), Compat::kubernetes(37)] {
            let expected = usize::from(case != "nothing" && compat.is_designs());
            for (kind, object) in [
                (
                    "Pod",
                    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "team", "uid": "u"}, "spec": spec}),
                ),
                (
                    "Pod",
                    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "team"}, "spec": spec}),
                ),
                (
                    "Deployment",
                    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "p", "namespace": "team"},
                    "spec": {"template": template(spec.clone())}}),
                ),
            ] {
                let mut cluster = Cluster::new(compat);
                cluster.observe(&object);
                cluster.assume_what_manifests_leave_out();
                let record = cluster.namespace("team").unwrap();
                assert_eq!(record.violating(Level::Baseline), expected, "{kind}: {case}, {}", compat.api);
                assert_eq!(record.class().is_some(), expected > 0, "{kind}: {case}, {}", compat.api);
            }
        }
    }
}
