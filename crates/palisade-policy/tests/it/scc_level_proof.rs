//! The level that a constraint implies, proven: no pod that it admits is rejected by the standards at that level, in any version.
//!
//! Pods are generated from what constraints govern, for containers and init containers. What constraints do not look at is in the
//! table [`ungoverned`]: no level can follow from it, and the readiness controller judges every pod itself. A pod with such a
//! setting is rejected for that setting alone, so that the table is complete and everything else is governed.

use palisade_base::version::NEWEST_MINOR;
use palisade_model::{
    compat::Compat,
    metadata::StringMap,
    pod::Pod,
    prepare::{Prepared, Subject},
};
use palisade_policy::{
    enforcement::level::namespace_level,
    scc::{
        built_in,
        choose::{Admission, Identity, Malformed, Operation, Request},
        constraint::Constraint,
        decision::ConstraintDecision,
        evaluate::Options,
        namespace_ranges::NamespaceRanges,
        set::ConstraintSet,
    },
    standards::{
        evaluator::Evaluator,
        level::{Level, LevelVersion, Version},
    },
};
use proptest::{prelude::*, sample::select, strategy::ValueTree as _};
use serde::Deserialize;
use serde_json::{Value, json};

fn annotations() -> StringMap<'static> {
    [
        ("openshift.io/sa.scc.uid-range", "1000650000/10000"),
        ("openshift.io/sa.scc.supplemental-groups", "1000650000/10000"),
        ("openshift.io/sa.scc.mcs", "s0:c26,c5"),
    ]
    .into_iter()
    .map(|(key, value)| (key.into(), value.into()))
    .collect()
}

/// The pod as the constraint leaves it; `None` if it does not admit it.
fn admitted(constraint: &Constraint, mut object: Value) -> Option<Value> {
    let compat = Compat::kubernetes(NEWEST_MINOR);
    let annotations = annotations();
    let constraints = ConstraintSet::new(vec![constraint.clone()]);
    let changes = {
        let pod = Prepared::new(Pod::deserialize(&object).unwrap(), Subject::Pod, &compat);
        let everyone = |_: &Identity<'_>, _: &str| true;
        let request = Request {
            operation: Operation::Create,
            subresource: "",
            pod: &pod,
            namespace: "team",
            namespace_annotations: Some(&annotations),
            user: "user",
            groups: &[],
            authorizer: &everyone,
        };
        let admission = Admission {
            constraints: &constraints,
            options: Options::default(),
            malformed: Malformed::Skip,
            require_standard: false,
        };
        match admission.mutate(&request).decision {
            ConstraintDecision::Admitted(admitted) => admitted.changes,
            ConstraintDecision::Ignored | ConstraintDecision::Refused(_) => return None,
        }
    };
    for change in &changes {
        change.apply(&mut object);
    }
    Some(object)
}

/// The first version whose standards reject a pod at a level by other checks than `accepted`, and which.
fn rejected(object: &Value, level: Level, accepted: &[&str]) -> Option<String> {
    let compat = Compat::kubernetes(NEWEST_MINOR);
    let evaluator = Evaluator::of(&compat);
    let pod = Prepared::stored(Pod::deserialize(object).unwrap(), &compat);
    (0..=u64::from(NEWEST_MINOR)).find_map(|minor| {
        let outcome = evaluator.evaluate(LevelVersion::new(level, Version::Minor(minor)), &pod);
        let checks = outcome.violations.iter().map(|violation| violation.check);
        let checks: Vec<&str> = checks.filter(|check| !accepted.contains(check)).collect();
        (!checks.is_empty()).then(|| format!("v1.{minor}: {}", checks.join(", ")))
    })
}

fn maybe(values: Vec<Value>) -> impl Strategy<Value = Value> {
    prop_oneof![8 => Just(Value::Null), 1 => select(values)]
}

fn security_context(is_pod: bool, users_of_pods: bool) -> impl Strategy<Value = Value> {
    let users = vec![json!(0), json!(1000), json!(1_000_650_000), json!(1_000_650_001)];
    let seccomp = vec![
        json!({"type": "RuntimeDefault"}),
        json!({"type": "Unconfined"}),
        json!({"type": "Localhost", "localhostProfile": "p.json"}),
    ];
    let labels =
        vec![json!({"level": "s0:c26,c5"}), json!({"type": "spc_t"}), json!({"user": "u", "role": "r"})];
    let flags = vec![json!(true), json!(false)];
    let capabilities = vec![
        json!({"drop": ["ALL"]}),
        json!({"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]}),
        json!({"add": ["SYS_ADMIN"]}),
        json!({"add": ["CHOWN"]}),
    ];
    let sysctls = vec![
        json!([{"name": "kernel.shm_rmid_forced", "value": "1"}]),
        json!([{"name": "kernel.msgmax", "value": "1"}]),
    ];
    (
        maybe(users),
        maybe(vec![json!(true)]),
        maybe(seccomp),
        maybe(labels),
        maybe(flags.clone()),
        maybe(flags),
        maybe(capabilities),
        maybe(sysctls),
    )
        .prop_map(
            move |(user, non_root, seccomp, labels, escalation, privileged, capabilities, sysctls)| {
                let mut fields =
                    vec![("runAsNonRoot", non_root), ("seccompProfile", seccomp), ("seLinuxOptions", labels)];
                // The user of a pod counts only where a container has none.
                if is_pod == users_of_pods {
                    fields.push(("runAsUser", user));
                }
                if is_pod {
                    fields.push(("sysctls", sysctls));
                } else {
                    fields.extend([
                        ("allowPrivilegeEscalation", escalation),
                        ("privileged", privileged),
                        ("capabilities", capabilities),
                    ]);
                }
                let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
                fields.map(|(key, value)| (key.to_owned(), value)).collect::<serde_json::Map<_, _>>().into()
            },
        )
}

fn pod() -> impl Strategy<Value = Value> {
    any::<bool>().prop_flat_map(pod_with)
}

fn pod_with(users_of_pods: bool) -> impl Strategy<Value = Value> {
    let volumes = vec![
        json!([{"name": "v", "emptyDir": {}}]),
        json!([{"name": "v", "hostPath": {"path": "/"}}]),
        json!([{"name": "v", "nfs": {"server": "s", "path": "/"}}]),
        json!([{"name": "v", "csi": {"driver": "d"}}]),
    ];
    let flags = || maybe(vec![json!(true)]);
    let ports = maybe(vec![json!([{"containerPort": 80, "hostPort": 80}]), json!([{"containerPort": 80}])]);
    (
        security_context(true, users_of_pods),
        security_context(false, users_of_pods),
        prop::option::of((any::<bool>(), security_context(false, users_of_pods))),
        maybe(volumes),
        flags(),
        flags(),
        flags(),
        ports,
        any::<bool>(),
    )
        .prop_map(|(pod, container, other, volumes, network, pid, ipc, ports, own_users)| {
            let mut object = json!({"metadata": {"name": "p", "namespace": "team"}, "spec": {
                "serviceAccountName": "default", "securityContext": pod,
                "containers": [{"name": "c", "image": "i", "securityContext": container}]}});
            for (field, value) in
                [("volumes", volumes), ("hostNetwork", network), ("hostPID", pid), ("hostIPC", ipc)]
            {
                if !value.is_null() {
                    object["spec"][field] = value;
                }
            }
            if let Some((is_init, context)) = other {
                let other = json!({"name": "o", "image": "i", "securityContext": context});
                if is_init {
                    object["spec"]["initContainers"] = json!([other]);
                } else if let Some(containers) = object["spec"]["containers"].as_array_mut() {
                    containers.push(other);
                }
            }
            if own_users {
                object["spec"]["hostUsers"] = json!(false);
            }
            if !ports.is_null() {
                object["spec"]["containers"][0]["ports"] = ports;
            }
            object
        })
}

/// Settings that no constraint looks at: where, the value, and the checks that reject it.
fn ungoverned() -> Vec<(&'static str, Value, &'static [&'static str])> {
    let profile = |value: &str| json!({"container.apparmor.security.beta.kubernetes.io/c": value});
    let keep_alive = json!([{"name": "net.ipv4.tcp_keepalive_time", "value": "1"}]);
    let probe = || json!({"httpGet": {"host": "10.0.0.1", "port": 80}});
    let mounts: &[&str] = &["procMount", "procMount_restricted"];
    vec![
        ("/metadata/annotations", profile("unconfined"), &["appArmorProfile"]),
        ("/spec/securityContext/appArmorProfile", json!({"type": "Unconfined"}), &["appArmorProfile"]),
        ("/spec/containers/0/securityContext/procMount", json!("Unmasked"), mounts),
        ("/spec/containers/0/livenessProbe", probe(), &["hostProbesAndHostLifecycle"]),
        ("/spec/containers/0/lifecycle", json!({"preStop": probe()}), &["hostProbesAndHostLifecycle"]),
        ("/spec/securityContext/windowsOptions", json!({"hostProcess": true}), &["windowsHostProcess"]),
        ("/spec/securityContext/runAsNonRoot", json!(false), &["runAsNonRoot"]),
        ("/spec/containers/0/securityContext/runAsNonRoot", json!(false), &["runAsNonRoot"]),
        ("/spec/securityContext/runAsUser", json!(0), &["runAsUser"]),
        ("/spec/securityContext/sysctls", keep_alive, &["sysctls"]),
    ]
}

/// Sets a field whose parent exists.
fn set(object: &mut Value, pointer: &str, value: Value) {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[field] = value;
}

/// A constraint that none of the built-in ones may be: each with some fields changed.
fn constraint() -> impl Strategy<Value = Value> {
    let lists = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        prop::collection::vec(select(names), 0..3).prop_map(|chosen| json!(chosen))
    };
    let change = prop_oneof![
        select(vec![
            "allowHostDirVolumePlugin",
            "allowHostIPC",
            "allowHostNetwork",
            "allowHostPID",
            "allowHostPorts",
            "allowPrivilegedContainer",
            "allowPrivilegeEscalation",
            "defaultAllowPrivilegeEscalation",
            "readOnlyRootFilesystem",
        ])
        .prop_flat_map(|field| any::<bool>().prop_map(move |on| (field, json!(on)))),
        lists(&["SYS_ADMIN", "CHOWN", "NET_BIND_SERVICE", "*"])
            .prop_map(|list| ("allowedCapabilities", list)),
        lists(&["SYS_ADMIN", "CHOWN", "NET_BIND_SERVICE"]).prop_map(|list| ("defaultAddCapabilities", list)),
        lists(&["ALL", "KILL"]).prop_map(|list| ("requiredDropCapabilities", list)),
        lists(&["emptyDir", "hostPath", "nfs", "*", "csi", "none"]).prop_map(|list| ("volumes", list)),
        lists(&["runtime/default", "unconfined", "localhost/p.json", "*"])
            .prop_map(|list| ("seccompProfiles", list)),
        lists(&["kernel.msgmax", "net.ipv4.tcp_rmem", "*", "kernel.*"])
            .prop_map(|list| ("allowedUnsafeSysctls", list)),
        select(vec![
            json!({"type": "RunAsAny"}),
            json!({"type": "MustRunAsNonRoot"}),
            json!({"type": "MustRunAsRange"}),
            json!({"type": "MustRunAs", "uid": 0}),
            json!({"type": "MustRunAs", "uid": 7}),
            json!({"type": "MustRunAsRange", "uidRangeMin": 0, "uidRangeMax": 9}),
        ])
        .prop_map(|strategy| ("runAsUser", strategy)),
        select(vec![
            json!({"type": "RunAsAny"}),
            json!({"type": "MustRunAs"}),
            json!({"type": "MustRunAs", "seLinuxOptions": {"type": "spc_t"}}),
        ])
        .prop_map(|strategy| ("seLinuxContext", strategy)),
    ];
    let bases: Vec<Value> = built_in::objects().collect();
    (select(bases), prop::collection::vec(change, 0..4)).prop_map(|(mut object, changes)| {
        for (field, value) in changes {
            object[field] = value;
        }
        object
    })
}

fn check(object: &Value, pods: Vec<Value>, accepted: &[&str]) -> Result<(), TestCaseError> {
    let Ok(constraint) = Constraint::read(object) else { return Ok(()) };
    let annotations = annotations();
    let namespace = NamespaceRanges::new("team", &annotations);
    let Some(level) = namespace_level([&constraint], &namespace).level else { return Ok(()) };
    for pod in pods {
        let Some(pod) = admitted(&constraint, pod) else { continue };
        let rejected = rejected(&pod, level, accepted);
        prop_assert!(
            rejected.is_none(),
            "{} implies {level}, and admits {pod:#}: {rejected:?}\n{object:#}",
            constraint.name()
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pods_of_built_in_constraints_keep_to_the_level_that_is_inferred(pods in prop::collection::vec(pod(), 8)) {
        for object in built_in::objects() {
            check(&object, pods.clone(), &[])?;
        }
    }

    #[test]
    fn pods_of_any_constraint_keep_to_the_level_that_is_inferred(object in constraint(), pods in prop::collection::vec(pod(), 20)) {
        check(&object, pods, &[])?;
    }

    #[test]
    fn what_no_constraint_governs_is_rejected_for_itself_alone(
        object in constraint(),
        pods in prop::collection::vec(pod(), 10),
        (pointer, value, checks) in select(ungoverned()),
    ) {
        let with = |mut pod: Value| {
            set(&mut pod, pointer, value.clone());
            pod
        };
        check(&object, pods.into_iter().map(with).collect(), checks)?;
    }
}

/// A setting that the standards do not reject, or that a constraint rejects, is out of place in the table.
#[test]
fn what_is_left_out_is_admitted_by_a_constraint_and_rejected_by_the_standards() {
    let restricted =
        built_in::objects().find(|object| object["metadata"]["name"] == "restricted-v2").unwrap();
    let constraint = Constraint::read(&restricted).unwrap();
    for (pointer, value, checks) in ungoverned() {
        let mut pod = json!({"metadata": {"name": "p", "namespace": "team"}, "spec": {
            "serviceAccountName": "default", "securityContext": {},
            "containers": [{"name": "c", "image": "i", "securityContext": {"runAsUser": 1_000_650_000}}]}});
        set(&mut pod, pointer, value);
        let pod = admitted(&constraint, pod).unwrap_or_else(|| panic!("{pointer} is not admitted"));
        assert!(rejected(&pod, Level::Restricted, &[]).is_some(), "{pointer} is not rejected");
        assert_eq!(rejected(&pod, Level::Restricted, checks), None, "{pointer}");
    }
}

/// The generator is worth something only if constraints admit what it makes.
#[test]
fn built_in_constraints_admit_generated_pods() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let pods: Vec<Value> = (0..400).map(|_| pod().new_tree(&mut runner).unwrap().current()).collect();
    for object in built_in::objects() {
        let constraint = Constraint::read(&object).unwrap();
        let count = pods.iter().filter(|pod| admitted(&constraint, (*pod).clone()).is_some()).count();
        assert!(count >= 1, "{} admits {count} of {}", constraint.name(), pods.len());
    }
}
