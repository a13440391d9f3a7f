//! Exceptions: what they remove, what they leave, and what makes them count for nothing.

use palisade_base::time::{Time, parse};
use palisade_model::{
    compat::Compat,
    json::from_value,
    metadata::StringMap,
    prepare::{Prepared, Subject},
};
use palisade_policy::{
    exceptions::{
        object::{ExceptionError, SecurityException},
        review::{Breadth, breadth, review},
        set::{ExceptionSet, ExceptionSubject, Excused},
        workload::Workload,
    },
    standards::{
        evaluator::Evaluator,
        level::{Level, LevelVersion, Version},
    },
};
use proptest::prelude::*;
use serde_json::{Value, json};

fn at(text: &str) -> Time {
    parse(text).unwrap()
}

fn now() -> Time {
    at("2026-06-01T00:00:00Z")
}

fn exception(changes: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "palisade.dev/v1alpha1", "kind": "SecurityException", "metadata": {"name": "e"},
        "spec": {
            "namespaces": ["shop"],
            "workloads": [{"kind": "Deployment", "name": "web"}],
            "allow": [{
                "control": "privileged", "field": "spec.containers[*].securityContext.privileged", "values": ["true"]
            }],
            "reason": "the driver needs it", "owner": "team-a", "ticket": "SEC-1", "until": "2026-07-01T00:00:00Z"
        }
    });
    for (key, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => drop(object["spec"].as_object_mut().unwrap().remove(key)),
            value => object["spec"][key] = value.clone(),
        }
    }
    object
}

fn excuse(exceptions: &[Value], pod: &Value, level: Level, workload: &str, now: Time) -> Excused {
    let labels: StringMap<'_> = [("team".into(), "a".into())].into_iter().collect();
    let (kind, name) = workload.split_once('/').unwrap();
    let kind = palisade_policy::exceptions::workload::kind_of(kind).unwrap();
    let workloads = [Workload { kind, name: name.to_owned() }];
    let subject =
        ExceptionSubject { namespace: "shop", namespace_labels: Some(&labels), workloads: &workloads };
    let pod = Prepared::new(from_value(pod).unwrap(), Subject::Pod, &Compat::designs());
    let outcome = Evaluator::default().evaluate(LevelVersion::new(level, Version::Latest), &pod);
    ExceptionSet::read(exceptions).excuse(outcome, &pod, &subject, now)
}

fn privileged() -> Value {
    json!({
        "metadata": {"name": "web-1", "labels": {"app": "web"}},
        "spec": {"containers": [
            {"name": "a", "image": "r.example/a:1", "securityContext": {"privileged": true}},
            {"name": "b", "image": "r.example/b:1"}
        ]}
    })
}

#[test]
fn an_exception_counts_only_for_its_namespace_workload_field_value_and_time() {
    let selector = |key: &str, value: &str| json!({"matchLabels": {key: value}});
    let allow = |control: &str, field: &str, values: Value| {
        let mut allowance = json!({"control": control, "field": field});
        if !values.is_null() {
            allowance["values"] = values;
        }
        json!({"allow": [allowance]})
    };
    let field = "spec.containers[*].securityContext.privileged";
    for (case, changes, allowed) in [
        ("as written", json!({}), true),
        ("another namespace", json!({"namespaces": ["other"]}), false),
        ("one of two namespaces", json!({"namespaces": ["other", "shop"]}), true),
        ("by label", json!({"namespaces": null, "namespaceSelector": selector("team", "a")}), true),
        ("by another label", json!({"namespaces": null, "namespaceSelector": selector("team", "b")}), false),
        ("name and label must hold", json!({"namespaceSelector": selector("team", "b")}), false),
        ("another workload", json!({"workloads": [{"kind": "Deployment", "name": "api"}]}), false),
        ("another kind", json!({"workloads": [{"kind": "StatefulSet", "name": "web"}]}), false),
        ("every workload", json!({"workloads": null}), true),
        ("pod labels", json!({"podSelector": selector("app", "web")}), true),
        ("other pod labels", json!({"podSelector": selector("app", "api")}), false),
        ("its container", json!({"containers": ["a"]}), true),
        ("another container", json!({"containers": ["b"]}), false),
        ("its image", json!({"images": ["r.example/a:*"]}), true),
        ("another image", json!({"images": ["r.example/b:1"]}), false),
        ("another control", allow("hostPorts", field, json!(["true"])), false),
        (
            "another field",
            allow("privileged", "spec.initContainers[*].securityContext.privileged", json!(["true"])),
            false,
        ),
        ("another value", allow("privileged", field, json!(["false"])), false),
        ("no value", allow("privileged", field, Value::Null), false),
        ("ends now", json!({"until": "2026-06-01T00:00:00Z"}), false),
        ("ends within the second", json!({"until": "2026-06-01T00:00:00.9Z"}), false),
        ("ends in a second", json!({"until": "2026-06-01T00:00:01Z"}), true),
        ("ended", json!({"until": "2020-01-01T00:00:00Z"}), false),
        ("a zone is honoured", json!({"until": "2026-06-01T01:00:00+02:00"}), false),
    ] {
        let excused = excuse(&[exception(&changes)], &privileged(), Level::Baseline, "Deployment/web", now());
        assert_eq!(excused.outcome.allowed(), allowed, "{case}: {excused:?}");
        assert_eq!(excused.used.len(), usize::from(allowed), "{case}");
    }
}

#[test]
fn what_an_exception_does_not_name_stays() {
    let mut pod = privileged();
    pod["spec"]["hostPID"] = json!(true);
    pod["spec"]["containers"][1]["securityContext"] = json!({"privileged": true});
    let excused =
        excuse(&[exception(&json!({"containers": ["a"]}))], &pod, Level::Baseline, "Deployment/web", now());
    assert_eq!(
        excused.outcome.details(),
        "host namespaces (hostPID=true), privileged (container \"b\" is privileged)"
    );
    assert_eq!(excused.used.len(), 1);
}

/// Upstream does not report a missing value beside a forbidden one. Accepting the forbidden one must not hide the missing one.
#[test]
fn accepting_one_container_brings_out_what_it_masked() {
    let compliant = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    let pod = |own: Value, rest: Value| {
        let mut first = compliant.clone();
        first.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
        json!({"metadata": {"name": "p"}, "spec": {"securityContext": rest, "containers": [
            {"name": "a", "image": "i", "securityContext": first},
            {"name": "b", "image": "i", "securityContext": compliant}
        ]}})
    };
    let seccomp = json!({"seccompProfile": {"type": "RuntimeDefault"}});
    let root = exception(&json!({"allow": [{
        "control": "runAsNonRoot", "field": "spec.containers[*].securityContext.runAsNonRoot", "values": ["false"]
    }]}));
    let unconfined = exception(&json!({"allow": [{
        "control": "seccompProfile_restricted", "field": "spec.containers[*].securityContext.seccompProfile.type",
        "values": ["Unconfined"]
    }]}));
    let judge = |exception: &Value, pod: &Value| {
        excuse(std::slice::from_ref(exception), pod, Level::Restricted, "Deployment/web", now())
            .outcome
            .details()
    };
    assert_eq!(
        judge(&root, &pod(json!({"runAsNonRoot": false}), seccomp.clone())),
        "runAsNonRoot != true (container \"b\" may run as root)"
    );
    let both = json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
    assert_eq!(judge(&root, &pod(json!({"runAsNonRoot": false}), both)), "");
    let non_root = json!({"runAsNonRoot": true});
    let own = json!({"seccompProfile": {"type": "Unconfined"}});
    assert_eq!(
        judge(&unconfined, &pod(own.clone(), non_root)),
        "seccompProfile (container \"b\" may run without a seccomp profile)"
    );
    let confined = json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
    assert_eq!(judge(&unconfined, &pod(own, confined)), "");
}

#[test]
fn a_host_path_is_accepted_by_its_path() {
    let pod = json!({"metadata": {"name": "p"}, "spec": {
        "volumes": [{"name": "logs", "hostPath": {"path": "/var/log"}}],
        "containers": [{"name": "a", "image": "i"}]
    }});
    let allowed = |path: &str| {
        let exception = exception(&json!({"allow": [
            {"control": "hostPathVolumes", "field": "spec.volumes[*].hostPath", "values": [path]}
        ]}));
        excuse(&[exception], &pod, Level::Baseline, "Deployment/web", now()).outcome.allowed()
    };
    assert!(allowed("/var/log"));
    for other in ["/", "/var", "/var/log/", "/var/log/pods", ""] {
        assert!(!allowed(other), "{other:?}");
    }
}

/// A namespace must not have to be stricter to admit more.
#[test]
fn what_is_accepted_at_restricted_is_accepted_at_baseline() {
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [
        {"name": "a", "image": "i", "securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}}
    ]}});
    for (control, baseline) in [("capabilities_restricted", true), ("capabilities_baseline", true)] {
        let exception = exception(&json!({"allow": [{
            "control": control, "field": "spec.containers[*].securityContext.capabilities.add[*]",
            "values": ["NET_ADMIN"]
        }]}));
        let excused = excuse(&[exception], &pod, Level::Baseline, "Deployment/web", now());
        assert_eq!(excused.outcome.allowed(), baseline, "{control}");
    }
}

#[test]
fn what_cannot_be_read_counts_for_nothing() {
    let allowance = |changes: Value| {
        let mut allowance = json!({
            "control": "privileged", "field": "spec.containers[*].securityContext.privileged", "values": ["true"]
        });
        allowance.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        json!({"allow": [allowance]})
    };
    for (changes, problem) in [
        (json!({"namespaces": null}), "spec.namespaces: Required value"),
        (json!({"namespaces": ["*"]}), "must be a name, not a pattern"),
        (json!({"namespaces": [""]}), "spec.namespaces[0]: Required value"),
        (json!({"namespaces": "shop"}), "invalid type"),
        (
            json!({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Matches"}]}}),
            "not a valid selector operator",
        ),
        (json!({"namespaceSelector": {"matchLabel": {"a": "b"}}}), "unknown field"),
        (json!({"podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}), "must be specified"),
        (json!({"workloads": [{"kind": "*", "name": "web"}]}), "Unsupported value: \"*\""),
        (json!({"workloads": [{"kind": "Deployment"}]}), "missing field `name`"),
        (json!({"workloads": [{"kind": "Deployment", "name": "we*"}]}), "must be a name, not a pattern"),
        (json!({"images": ["*"]}), "only at the end"),
        (allowance(json!({"control": "*"})), "Unsupported value: \"*\""),
        (allowance(json!({"control": "Privileged"})), "Unsupported value"),
        (allowance(json!({"field": "spec.containers[*].*"})), "only as \"[*]\""),
        (allowance(json!({"values": []})), "Required value"),
        (allowance(json!({"values": [true]})), "invalid type"),
        (allowance(json!({"value": "true"})), "unknown field"),
        (
            json!({"allow": [{"control": "capabilities_baseline", "field": "spec.containers[*].securityContext.capabilities.add[*]"}]}),
            "for an element of a list",
        ),
        (json!({"allow": []}), "at least one finding"),
        (json!({"allow": null}), "missing field `allow`"),
        (json!({"reason": " "}), "spec.reason: Required value"),
        (json!({"owner": null}), "missing field `owner`"),
        (json!({"ticket": ""}), "spec.ticket: Required value"),
        (json!({"until": null}), "missing field `until`"),
        (json!({"until": "2026-07-01"}), "spec.until: Invalid value"),
        (json!({"until": "never"}), "spec.until: Invalid value"),
        (json!({"levels": ["restricted"]}), "unknown field"),
    ] {
        let object = exception(&changes);
        let error = SecurityException::read(&object).unwrap_err();
        assert!(error.to_string().contains(problem), "{changes}: {error}");
        let set = ExceptionSet::read([&object]);
        assert_eq!((set.readable().len(), set.unreadable().len()), (0, 1), "{changes}");
        let excused = excuse(&[object], &privileged(), Level::Baseline, "Deployment/web", now());
        assert!(!excused.outcome.allowed(), "{changes}");
    }
    let other = json!({"apiVersion": "palisade.dev/v2", "kind": "SecurityException", "metadata": {"name": "e"},
                       "spec": exception(&json!({}))["spec"]});
    assert!(matches!(SecurityException::read(&other), Err(ExceptionError::Invalid(_))));
}

#[test]
fn reports_expired_unused_and_broad_exceptions() {
    let named = |name: &str, changes: Value| {
        let mut object = exception(&changes);
        object["metadata"]["name"] = json!(name);
        object
    };
    let narrow =
        json!([{"control": "hostPorts", "field": "spec.containers[*].ports[*].hostPort", "values": ["80"]}]);
    let objects = [
        named("d-unreadable", json!({"until": "soon"})),
        named("c-unused", json!({"allow": narrow})),
        named("b-expired", json!({"allow": narrow, "until": "2026-05-01T00:00:00Z"})),
        named("a-used", json!({})),
    ];
    let excused = excuse(&objects, &privileged(), Level::Baseline, "Deployment/web", now());
    let set = ExceptionSet::read(&objects);
    let states: Vec<_> = review(&set, &excused.used, now())
        .iter()
        .map(|review| {
            (review.name.to_owned(), review.read.is_ok(), review.expired, review.used, review.is_unused())
        })
        .collect();
    assert_eq!(
        states,
        [
            ("a-used".to_owned(), true, false, 1, false),
            ("b-expired".to_owned(), true, true, 0, false),
            ("c-unused".to_owned(), true, false, 0, true),
            ("d-unreadable".to_owned(), false, false, 0, false),
        ]
    );

    let wide = |changes: Value| breadth(&SecurityException::read(&exception(&changes)).unwrap(), now());
    let node = Breadth::Node("privileged \"true\"".to_owned());
    for (changes, expected) in [
        (json!({}), vec![node.clone()]),
        (json!({"allow": narrow}), vec![]),
        (json!({"allow": narrow, "workloads": null}), vec![Breadth::EveryPod]),
        (
            json!({"allow": narrow, "workloads": null, "podSelector": {"matchLabels": {"a": "b"}}}),
            vec![Breadth::PodLabels],
        ),
        (
            json!({"allow": narrow, "namespaces": null, "namespaceSelector": {}}),
            vec![Breadth::EveryNamespace],
        ),
        (
            json!({"allow": narrow, "namespaces": null, "namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}}),
            vec![Breadth::OtherNamespaces],
        ),
        (json!({"allow": narrow, "until": "2028-01-01T00:00:00Z"}), vec![Breadth::FarEnd]),
    ] {
        assert_eq!(wide(changes.clone()), expected, "{changes}");
    }
}

proptest! {
    /// Whatever the pod, exceptions only ever remove findings that they name, and a pod is allowed only if each was named.
    #[test]
    fn only_named_findings_are_removed(
        privileged in prop::collection::vec(any::<Option<bool>>(), 1..4),
        non_root in prop::collection::vec(prop::option::of(any::<bool>()), 4),
        host in any::<bool>(),
        named in prop::sample::subsequence(vec![0_usize, 1, 2, 3], 0..4),
    ) {
        let containers: Vec<Value> = privileged.iter().zip(&non_root).enumerate().map(|(index, (privileged, non_root))| {
            let mut context = json!({});
            if let Some(value) = privileged { context["privileged"] = json!(value); }
            if let Some(value) = non_root { context["runAsNonRoot"] = json!(value); }
            json!({"name": format!("c{index}"), "image": "i", "securityContext": context})
        }).collect();
        let pod = json!({"metadata": {"name": "p"}, "spec": {"hostPID": host, "containers": containers}});
        let names: Vec<_> = named.iter().map(|index| format!("c{index}")).collect();
        let exceptions: Vec<Value> = if names.is_empty() { Vec::new() } else { vec![exception(&json!({
            "containers": names, "allow": [
                {"control": "privileged", "field": "spec.containers[*].securityContext.privileged", "values": ["true"]},
                {"control": "runAsNonRoot", "field": "spec.containers[*].securityContext.runAsNonRoot", "values": ["false"]},
            ]
        }))] };
        let excused = excuse(&exceptions, &pod, Level::Restricted, "Deployment/web", now());
        for (index, value) in privileged.iter().enumerate() {
            let path = format!("spec.containers[{index}].securityContext.privileged");
            let remains = excused.outcome.violations.iter().flat_map(|v| &v.findings).any(|f| f.path.to_string() == path);
            prop_assert_eq!(remains, *value == Some(true) && !named.contains(&index));
        }
        let non_root = non_root.get(..privileged.len()).unwrap();
        let bad = non_root.iter().enumerate().any(|(index, value)| {
            value.is_none() || (*value == Some(false) && !named.contains(&index))
        });
        prop_assert_eq!(excused.outcome.violations.iter().any(|v| v.check == "runAsNonRoot"), bad);
        prop_assert_eq!(excused.outcome.violations.iter().any(|v| v.check == "hostNamespaces"), host);
    }
}
