//! Where exceptions count, what they accept needs nothing, and needs it again from the moment they end.

use palisade_base::time;
use palisade_controllers::{api::Resource, crds, readiness::report::report, runner::Options};
use palisade_policy::enforcement::{level::LevelSource, mode::Release};
use serde_json::{Value, json};

use crate::{
    live::{Fate, Live},
    plain::spec,
    world::World,
};

const UNTIL: &str = "2026-03-01T12:00:00Z";

/// The moment of [`UNTIL`], and some seconds more.
fn end(plus: i64) -> i64 {
    time::parse(UNTIL).unwrap().seconds + plus
}

fn exception(name: &str, spec: &Value) -> Value {
    let mut whole = json!({
        "namespaces": ["team"],
        "allow": [{"control": "hostNamespaces", "field": "spec.hostNetwork", "values": ["true"]}],
        "reason": "r", "owner": "o", "ticket": "t", "until": UNTIL,
    });
    for (key, value) in spec.as_object().unwrap() {
        whole[key] = value.clone();
        if value.is_null() {
            whole.as_object_mut().unwrap().remove(key);
        }
    }
    json!({"apiVersion": "palisade.dev/v1alpha1", "kind": "SecurityException", "metadata": {"name": name}, "spec": whole})
}

/// A pod that violates nothing but with hostNetwork, which is its only need of `privileged`.
fn host_network() -> Value {
    let mut whole = spec("restricted");
    whole["hostNetwork"] = json!(true);
    whole
}

/// A Deployment, its ReplicaSet and its pod, as a cluster has them.
fn deploy(world: &mut World, name: &str, spec: &Value) {
    let template = json!({"metadata": {"labels": {"app": name, "pod-template-hash": "7d9f"}}, "spec": spec});
    let set = format!("{name}-7d9f");
    let owned_by = |kind: &str, owner: &str| json!([{"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": owner, "controller": true}]);
    let made =
        json!({"metadata": {"name": name, "namespace": "team", "uid": name}, "spec": {"template": template}});
    world.workload("apps/v1", "Deployment", made);
    let made = json!({"metadata": {"name": set, "namespace": "team", "uid": set, "ownerReferences": owned_by("Deployment", name)},
        "spec": {"replicas": 1, "template": template}});
    world.workload("apps/v1", "ReplicaSet", made);
    let made = json!({"metadata": {"name": format!("{set}-1"), "namespace": "team", "uid": format!("{set}-1"),
        "labels": template["metadata"]["labels"], "ownerReferences": owned_by("ReplicaSet", &set)},
        "spec": spec, "status": {"phase": "Running"}});
    world.workload("v1", "Pod", made);
}

/// The level that the namespace needs.
fn needed(world: &World) -> String {
    world.cluster.namespace("team").unwrap().needed().map(|level| level.to_string()).unwrap()
}

fn blockers(world: &World) -> usize {
    report(&world.cluster).find(|own| own.name == "team").unwrap().blockers.len()
}

/// A cluster in which exceptions count.
fn world(labels: Value) -> World {
    let mut world = World::plain();
    world.count_exceptions(&[], end(-100));
    world.namespace("team", labels);
    world
}

#[test]
fn only_what_an_exception_in_force_names_needs_nothing() {
    let web = json!([{"kind": "Deployment", "name": "web"}]);
    for (case, labels, own, expected) in [
        ("for the namespace", json!({}), json!({}), "restricted"),
        ("for the workload", json!({}), json!({"workloads": web}), "restricted"),
        (
            "for another workload",
            json!({}),
            json!({"workloads": [{"kind": "Deployment", "name": "db"}]}),
            "privileged",
        ),
        ("for another namespace", json!({}), json!({"namespaces": ["shop"]}), "privileged"),
        (
            "by labels of the namespace",
            json!({"tier": "edge"}),
            json!({"namespaces": null, "namespaceSelector": {"matchLabels": {"tier": "edge"}}}),
            "restricted",
        ),
        (
            "by labels that it does not have",
            json!({"tier": "core"}),
            json!({"namespaces": null, "namespaceSelector": {"matchLabels": {"tier": "edge"}}}),
            "privileged",
        ),
        (
            "by labels of the pod",
            json!({}),
            json!({"podSelector": {"matchLabels": {"app": "web"}}}),
            "restricted",
        ),
        (
            "by other labels of the pod",
            json!({}),
            json!({"podSelector": {"matchLabels": {"app": "db"}}}),
            "privileged",
        ),
        (
            "for another field",
            json!({}),
            json!({"allow": [{"control": "hostNamespaces", "field": "spec.hostPID", "values": ["true"]}]}),
            "privileged",
        ),
        (
            "for another value",
            json!({}),
            json!({"allow": [{"control": "hostNamespaces", "field": "spec.hostNetwork", "values": ["false"]}]}),
            "privileged",
        ),
        (
            "unreadable: a time without a zone",
            json!({}),
            json!({"until": "2026-03-01T12:00:00"}),
            "privileged",
        ),
        ("unreadable: an unknown field", json!({}), json!({"forever": true}), "privileged"),
        ("unreadable: a pattern for a name", json!({}), json!({"namespaces": ["te*"]}), "privileged"),
        ("ended", json!({}), json!({"until": "2026-02-28T12:00:00Z"}), "privileged"),
    ] {
        let exceptions = [exception("one", &own)];
        // Whatever is seen first.
        for is_first in [true, false] {
            let mut world = World::plain();
            if is_first {
                world.count_exceptions(&exceptions, end(-1));
            } else {
                world.count_exceptions(&[], end(-1));
            }
            world.namespace("team", labels.clone());
            deploy(&mut world, "web", &host_network());
            world.turn();
            world.count_exceptions(&exceptions, end(-1));
            assert_eq!(needed(&world), expected, "{case}, first: {is_first}");
            world.restart();
            assert_eq!(needed(&world), expected, "{case}, after a restart");
        }
    }
}

#[test]
fn without_the_choice_exceptions_count_for_nothing() {
    let mut world = World::plain();
    world.namespace("team", json!({}));
    world.cluster.set_exceptions(palisade_policy::exceptions::set::ExceptionSet::read(&[exception(
        "one",
        &json!({}),
    )]));
    deploy(&mut world, "web", &host_network());
    world.turn();
    assert_eq!(needed(&world), "privileged");
    assert_eq!(world.config["status"].get("exceptions"), None);
}

#[test]
fn what_has_ended_counts_again_at_that_moment_and_without_another_event() {
    let mut world = world(json!({}));
    deploy(&mut world, "web", &host_network());
    world.count_exceptions(&[exception("one", &json!({}))], end(-100));
    world.turn();
    for (moment, expected) in [(-100, "restricted"), (-1, "restricted"), (0, "privileged"), (1, "privileged")]
    {
        world.clock_is(end(moment));
        assert_eq!(needed(&world), expected, "{moment} s");
    }
    assert_eq!(world.cluster.next_end(), None);
    // A clock that is set back is believed, as the webhook believes it.
    world.clock_is(end(-50));
    assert_eq!((needed(&world).as_str(), world.cluster.next_end()), ("restricted", Some(end(0))));
}

/// The exception was for a workload, and its end does not open the namespace for all.
#[test]
fn an_exception_that_ends_does_not_loosen_a_label_that_is_enforced() {
    for (case, is_deleted, restarts) in [
        ("ended", false, false),
        ("ended, and a restart", false, true),
        ("deleted", true, false),
        ("deleted, and a restart", true, true),
    ] {
        let mut world = world(json!({}));
        (world.release, world.gate) = (Release::Enforce, true);
        deploy(&mut world, "web", &host_network());
        let exceptions = [exception("one", &json!({}))];
        world.count_exceptions(&exceptions, end(-100));
        world.settle();
        assert_eq!(
            (world.mode().1, world.enforce_label("team")),
            ("Restricted", Some("restricted")),
            "{case}"
        );
        assert_eq!(world.config["status"]["exceptions"], "Counted", "{case}");
        assert_eq!(blockers(&world), 0, "{case}");
        if is_deleted {
            world.count_exceptions(&[], end(-90));
        } else {
            world.clock_is(end(0));
        }
        if restarts {
            world.restart();
        }
        world.settle();
        assert_eq!(world.enforce_label("team"), Some("restricted"), "{case}: stays");
        assert_eq!(blockers(&world), 1, "{case}: and is reported");
        assert!(world.cluster.not_clean().contains_key("team"), "{case}");
    }
}

#[test]
fn the_same_violation_beside_an_exempted_one_counts() {
    let mut world = world(json!({}));
    deploy(&mut world, "web", &host_network());
    let web = exception("one", &json!({"workloads": [{"kind": "Deployment", "name": "web"}]}));
    world.count_exceptions(&[web], end(-100));
    world.turn();
    assert_eq!(needed(&world), "restricted");
    deploy(&mut world, "other", &host_network());
    assert_eq!(needed(&world), "privileged");
    let findings = world.cluster.namespace("team").unwrap().findings();
    let found: Vec<_> = findings.iter().map(|own| own.name.as_str()).collect();
    assert_eq!(found, ["other", "web"], "reports list what is accepted, too");
}

/// An owner reference that a manifest declares is not the controller's.
#[test]
fn a_pod_of_a_manifest_belongs_to_no_workload() {
    let mut world = world(json!({}));
    let web = exception("one", &json!({"workloads": [{"kind": "Deployment", "name": "web"}]}));
    world.count_exceptions(&[web], end(-100));
    let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d9f", "uid": "u", "controller": true}]);
    world.workload(
        "v1",
        "Pod",
        json!({"metadata": {"name": "p", "namespace": "team", "ownerReferences": owner,
        "labels": {"pod-template-hash": "7d9f"}}, "spec": host_network(), "status": {}}),
    );
    assert_eq!(needed(&world), "privileged");
}

/// On a running API server: the status and the annotation change although nothing is written.
#[tokio::test(start_paused = true)]
async fn controllers_notice_the_end_by_themselves() {
    const LEVEL: &str = "security.openshift.io/MinimallySufficientPodSecurityStandard";
    let live = Live::plain().await;
    crds::install(&live.api, false).await.unwrap();
    live.settle().await;
    live.namespace("team", json!({})).await;
    let web = json!({"metadata": {"name": "web"}, "spec": host_network()});
    live.create(Resource::new("", "v1", "pods"), Some("team"), web).await;
    let soon = jiff::Timestamp::now().as_second() + 3;
    let own = exception("one", &json!({"until": time::rfc3339(soon)}));
    live.create(Resource::new("palisade.dev", "v1alpha1", "securityexceptions"), None, own).await;
    let options = Options {
        release: Release::Evaluate,
        levels: LevelSource::Workloads,
        count_exceptions: true,
        ..Options::default()
    };
    let _controllers = live.run(options, &Fate::default());
    let level = async || live.get_namespace("team").await["metadata"]["annotations"][LEVEL].clone();
    while level().await != "restricted" {
        assert!(jiff::Timestamp::now().as_second() < soon, "never counted");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    while level().await != "privileged" {
        assert!(jiff::Timestamp::now().as_second() < soon + 60, "counts after its end");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert!(jiff::Timestamp::now().as_second() >= soon, "counts until its end");
}
