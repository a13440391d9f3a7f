//! What policy judges, what `explain` shows and what the runtime gets are one reading of a pod.
//!
//! Pods are generated with every way to set a value: every field of a container's security context, in containers, init
//! containers, sidecars and `containerDefaults`; the fields of the pod, the host fields of the pod security context, annotations at
//! creation, and annotations and an ephemeral container that are added later.

use palisade_model::{
    compat::Compat,
    effective::{Row, effective_contexts},
    node::ImageUser,
    pod::Pod,
    prepare::{Prepared, Subject},
};
use palisade_node::{
    cri::{
        proto::{LinuxContainerSecurityContext, NamespaceMode, ProfileType, SecurityProfile},
        translate::{Circumstances, container_context},
    },
    kernel::probe::NodeFeatures,
    pod::RunPod,
};
use palisade_policy::{
    profiles::policy::ProfilePolicy,
    standards::{
        evaluator::Evaluator,
        level::{Level, LevelVersion, Version},
    },
};
use proptest::{collection::btree_map, option, prelude::*, sample::select};
use serde_json::{Map, Value, json};

const SECCOMP: &str = "container.seccomp.security.alpha.kubernetes.io/";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// A container's security context, or the defaults for one: often nothing, often all that restricted demands.
///
/// Boxed, because the generated type would otherwise fill the stack of a test.
fn context() -> BoxedStrategy<Value> {
    let compliant = json!({"runAsNonRoot": true, "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"}});
    prop_oneof![3 => Just(json!({})), 3 => Just(compliant), 2 => any_context()].boxed()
}

fn any_context() -> impl Strategy<Value = Value> {
    let profile = || {
        select(vec![
            json!({"type": "RuntimeDefault"}),
            json!({"type": "Unconfined"}),
            json!({"type": "Localhost", "localhostProfile": "p"}),
        ])
    };
    let fields = (
        option::of(any::<bool>()),
        option::of(select(vec![0_i64, 1000])),
        option::of(any::<bool>()),
        option::of(any::<bool>()),
        option::of(select(vec![json!({"drop": ["ALL"]}), json!({"add": ["SYS_ADMIN"]})])),
        option::of(profile()),
        option::of(profile()),
        option::of(select(vec![json!([]), json!([7])])),
    );
    let others = (
        option::of(select(vec![0_i64, 7])),
        option::of(any::<bool>()),
        option::of(select(vec!["Default", "Unmasked"])),
        option::of(select(vec![
            json!({"type": "container_t"}),
            json!({"user": "u"}),
            json!({"type": "spc_t"}),
        ])),
        option::of(select(vec![json!({"hostProcess": true}), json!({"runAsUserName": "n"})])),
    );
    (fields, others).prop_map(|(fields, (group, read_only, proc_mount, se_linux, windows))| {
        let (privileged, user, non_root, escalation, capabilities, seccomp, app_armor, groups) = fields;
        let mut context = Map::new();
        let mut set = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                context.insert(name.to_owned(), value);
            }
        };
        set("privileged", privileged.map(Value::Bool));
        set("runAsUser", user.map(Value::from));
        set("runAsNonRoot", non_root.map(Value::Bool));
        set("allowPrivilegeEscalation", escalation.map(Value::Bool));
        set("capabilities", capabilities);
        set("seccompProfile", seccomp);
        set("appArmorProfile", app_armor);
        set("runWithSupplementalGroups", groups);
        set("runAsGroup", group.map(Value::from));
        set("readOnlyRootFilesystem", read_only.map(Value::Bool));
        set("procMount", proc_mount.map(Value::from));
        set("seLinuxOptions", se_linux);
        set("windowsOptions", windows);
        Value::Object(context)
    })
}

/// Annotations that a client can add to a stored pod: those of AppArmor are immutable.
fn later_annotations() -> impl Strategy<Value = std::collections::BTreeMap<String, String>> {
    annotations().prop_map(|mut annotations| {
        annotations.retain(|key, _| !key.starts_with(APP_ARMOR));
        annotations
    })
}

fn annotations() -> impl Strategy<Value = std::collections::BTreeMap<String, String>> {
    let keys = ["a", "b", "d", "i"]
        .into_iter()
        .flat_map(|name| [format!("{SECCOMP}{name}"), format!("{APP_ARMOR}{name}")]);
    let keys = keys.chain(["seccomp.security.alpha.kubernetes.io/pod".to_owned()]).collect::<Vec<_>>();
    let values = vec!["runtime/default", "unconfined", "localhost/p"];
    btree_map(select(keys), select(values).prop_map(str::to_owned), 0..3)
}

prop_compose! {
    fn pod()(
        of_pod in context(),
        defaults in option::of(context()),
        (network, ipc) in (option::of(any::<bool>()), option::of(any::<bool>())),
        (proposed_network, proposed_ipc) in (option::of(any::<bool>()), option::of(any::<bool>())),
        (pid, shared) in (option::of(any::<bool>()), option::of(any::<bool>())),
        first in context(),
        second in option::of(context()),
        before in option::of((context(), any::<bool>())),
        annotations in annotations(),
    ) -> Value {
        let mut security = of_pod.as_object().cloned().unwrap_or_default();
        let of_pods = ["runAsUser", "runAsGroup", "runAsNonRoot", "seccompProfile", "appArmorProfile", "seLinuxOptions", "windowsOptions"];
        security.retain(|key, _| of_pods.contains(&key.as_str()));
        for (key, value) in [("hostNetwork", proposed_network), ("hostIPC", proposed_ipc)] {
            if let Some(value) = value {
                security.insert(key.to_owned(), json!(value));
            }
        }
        if let Some(defaults) = defaults {
            security.insert("containerDefaults".to_owned(), defaults);
        }
        let mut spec = json!({"securityContext": security, "containers": [
            {"name": "a", "image": "i", "securityContext": first}, {"name": "b", "image": "i"}]});
        if let Some(second) = second {
            spec["containers"][1]["securityContext"] = second;
        }
        if let Some((context, sidecar)) = before {
            spec["initContainers"] = json!([{"name": "i", "image": "i", "securityContext": context}]);
            if sidecar {
                spec["initContainers"][0]["restartPolicy"] = json!("Always");
            }
        }
        let of_pod = [("hostNetwork", network), ("hostIPC", ipc), ("hostPID", pid), ("shareProcessNamespace", shared)];
        for (key, value) in of_pod {
            if let Some(value) = value {
                spec[key] = json!(value);
            }
        }
        json!({"metadata": {"name": "p", "namespace": "n", "uid": "u", "annotations": annotations}, "spec": spec})
    }
}

fn rows(pod: &Prepared<'_>) -> Vec<Vec<(&'static str, Value)>> {
    let values = |row: Row| (row.field, row.json);
    effective_contexts(pod).iter().map(|context| context.rows().into_iter().map(values).collect()).collect()
}

/// What the runtime gets for each container, and the user that the pod names for it.
fn runtime_contexts(
    pod: &Prepared<'_>,
    compat: &Compat,
) -> Vec<(LinuxContainerSecurityContext, Option<i64>)> {
    let features = NodeFeatures::default();
    let around = Circumstances {
        compat,
        features: &features,
        image_user: &ImageUser::Uid(0),
        seccomp_path: None,
        is_recorded: false,
        target: None,
        ids: None,
    };
    let contexts = effective_contexts(pod);
    let translated = contexts.iter().map(|context| container_context(context, &around).unwrap());
    translated.zip(contexts.iter().map(|context| context.run_as_user.value)).collect()
}

/// What the level promises, read off what the runtime gets.
fn breaks_restricted(
    (context, requested_user): &(LinuxContainerSecurityContext, Option<i64>),
) -> Option<&'static str> {
    let requested_user = *requested_user;
    let namespaces = context.namespace_options.clone().unwrap();
    let dropped = context
        .capabilities
        .as_ref()
        .is_some_and(|list| list.drop_capabilities.iter().any(|name| name == "ALL"));
    let added = context.capabilities.as_ref().is_some_and(|list| !list.add_capabilities.is_empty());
    [
        (context.privileged, "privileged"),
        (namespaces.network() == NamespaceMode::Node, "the node's network"),
        (namespaces.ipc() == NamespaceMode::Node, "the node's IPC namespace"),
        (namespaces.pid() == NamespaceMode::Node, "the node's processes"),
        (context.masked_paths.is_empty() || context.readonly_paths.is_empty(), "all of /proc"),
        (
            context
                .selinux_options
                .as_ref()
                .is_some_and(|label| !label.user.is_empty() || label.r#type == "spc_t"),
            "an SELinux label",
        ),
        // Without a user the node takes the image's, and compares it with runAsNonRoot itself.
        (requested_user == Some(0), "root"),
        (
            context.seccomp.as_ref().is_none_or(|profile| profile.profile_type() == ProfileType::Unconfined),
            "no seccomp profile",
        ),
        (
            context
                .apparmor
                .as_ref()
                .is_some_and(|profile| profile.profile_type() == ProfileType::Unconfined),
            "no AppArmor profile",
        ),
        (!context.no_new_privs, "may gain privileges"),
        (!dropped || added, "capabilities"),
    ]
    .into_iter()
    .find_map(|(broken, what)| broken.then_some(what))
}

/// A policy that allows nothing but the runtime's own profiles.
fn runtime_default_alone() -> ProfilePolicy {
    let rules = json!({"allowedProfiles": {"types": ["RuntimeDefault"]}});
    let policy = json!({"metadata": {"name": "p"}, "spec": {"seccomp": rules, "appArmor": rules}});
    serde_json::from_value(policy).unwrap()
}

/// What such a policy promises, read off what the runtime gets.
fn breaks_policy((context, _): &(LinuxContainerSecurityContext, Option<i64>)) -> Option<&'static str> {
    let is_default = |profile: &SecurityProfile| profile.profile_type() == ProfileType::RuntimeDefault;
    if !context.seccomp.as_ref().is_some_and(is_default) {
        return Some("another seccomp profile");
    }
    (!context.apparmor.as_ref().is_none_or(is_default)).then_some("another AppArmor profile")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn policy_explain_and_the_node_read_the_same_pod(
        manifest in pod(),
        later in later_annotations(),
        debugger in context(),
    ) {
        let compat = Compat::designs();
        let text = manifest.to_string();
        let written: Pod<'_> = serde_json::from_str(&text).unwrap();

        // What the API server judges and what `explain` shows of the manifest.
        let created = Prepared::new(written.clone(), Subject::Pod, &compat);
        let explained = Prepared::future_pod(written, Subject::Template(&["spec", "template"]), &compat);
        prop_assert_eq!(rows(&created), rows(&explained));

        // What is stored, after a client has annotated it, and what the node makes of it.
        let mut stored = manifest.clone();
        created.changes().iter().for_each(|change| change.apply(&mut stored));
        for (key, value) in &later {
            stored["metadata"]["annotations"][key] = json!(value);
        }
        let run = RunPod::from_stored(stored.clone(), &compat).unwrap();
        let on_node = run.prepared(&compat);
        prop_assert_eq!(rows(&created), rows(&on_node));
        prop_assert_eq!(on_node.changes(), &[]);

        let level = LevelVersion::new(Level::Restricted, Version::Latest);
        let evaluator = Evaluator::of(&compat);
        let admitted = evaluator.evaluate(level, &created);
        prop_assert_eq!(admitted.details(), evaluator.evaluate(level, &on_node).details());
        let policy = runtime_default_alone();
        for context in runtime_contexts(&on_node, &compat) {
            if admitted.allowed() {
                prop_assert_eq!(breaks_restricted(&context), None);
            }
            if policy.violations(&created).is_empty() {
                prop_assert_eq!(breaks_policy(&context), None);
            }
        }

        // An ephemeral container that is added later, by the same rules and without any annotation.
        let before = stored.to_string();
        let mut with_debugger = stored;
        with_debugger["spec"]["ephemeralContainers"] =
            json!([{"name": "d", "image": "i", "securityContext": debugger}]);
        let after = with_debugger.to_string();
        let (old, new): (Pod<'_>, Pod<'_>) =
            (serde_json::from_str(&before).unwrap(), serde_json::from_str(&after).unwrap());
        let judged = Prepared::changed(new, &old, Subject::Pod, &compat);
        judged.changes().iter().for_each(|change| change.apply(&mut with_debugger));
        let run = RunPod::from_stored(with_debugger, &compat).unwrap();
        let on_node = run.prepared(&compat);
        prop_assert_eq!(rows(&judged), rows(&on_node));
        let allowed = evaluator.evaluate(level, &judged).allowed();
        for context in runtime_contexts(&on_node, &compat) {
            if allowed {
                prop_assert_eq!(breaks_restricted(&context), None);
            }
            if policy.violations(&judged).is_empty() {
                prop_assert_eq!(breaks_policy(&context), None);
            }
        }
    }
}
