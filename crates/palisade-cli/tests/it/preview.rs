//! `palisade preview`, and the recordings of real API servers before and after.

use palisade_cli::{
    preview::{answer_changes, security_part},
    server_side::{Asked, Reason, Refusal, ServerAnswer, ServerSide},
};
use palisade_model::{compat::Compat, json::from_value, metadata::ObjectMeta, workload::workload_resource};
use palisade_policy::standards::policy::Policy;
use palisade_testkit::{
    recordings::{self, assert_enough},
    replay::{Record, pods},
};
use serde_json::{Value, json};

use crate::support::{GOOD, Project, Run};

/// A pod of which each part changes somewhere between the releases.
const OLD: &str = "\
apiVersion: v1
kind: Pod
metadata:
  name: old
  namespace: shop
  annotations:
    seccomp.security.alpha.kubernetes.io/pod: runtime/default
spec:
  hostUsers: false
  containers:
  - name: web
    image: nginx
    securityContext:
      appArmorProfile: {type: RuntimeDefault}
";

fn preview(text: &str, from: &str, to: &str, more: &[&str]) -> Run {
    let (from, to) = (format!("--from={from}"), format!("--to={to}"));
    Project::with(text).run(&[&["preview", "pod.yaml", &from, &to], more].concat())
}

#[test]
fn lists_what_an_upgrade_changes_with_its_place() {
    insta::assert_snapshot!(preview(OLD, "v1.24", "v1.37", &["--level=baseline"]), @r#"
    warning[preview/setting]: container "web": maskedPaths changes: +/proc/asound +/proc/interrupts +/sys/devices/virtual/powercap
     --> pod.yaml:2:7
      |
    2 | kind: Pod
      |       ^^^
      = in: Pod shop/old
      = because: v1.24: the kubelet's list
      = because: v1.37: the kubelet's list

    warning[preview/setting]: container "web": readonlyPaths changes: -/proc/asound
     --> pod.yaml:2:7
      |
    2 | kind: Pod
      |       ^^^
      = in: Pod shop/old
      = because: v1.24: the kubelet's list
      = because: v1.37: the kubelet's list

    warning[preview/warning]: an API server of v1.37 warns: metadata.annotations[seccomp.security.alpha.kubernetes.io/pod]: non-functional in v1.27+; use the "seccompProfile" field instead
     --> pod.yaml:2:7
      |
    2 | kind: Pod
      |       ^^^
      = in: Pod shop/old

    warning[annotation/dead]: the seccomp annotation "runtime/default" of the pod has no effect on v1.37
     --> pod.yaml:7:47
      |
    7 |     seccomp.security.alpha.kubernetes.io/pod: runtime/default
      |                                               ^^^^^^^^^^^^^^^ no effect
      = in: Pod shop/old
      = because: Kubernetes ignores seccomp annotations since v1.27; containers without a profile of their own run Unconfined, unless the kubelet has --seccomp-default
      = because: v1.24 does not report it
      = help: `palisade migrate` rewrites it into the field

    warning[annotation/deprecated]: no longer on v1.37: the seccomp annotation of the pod is deprecated since v1.19
     --> pod.yaml:7:47
      |
    7 |     seccomp.security.alpha.kubernetes.io/pod: runtime/default
      |                                               ^^^^^^^^^^^^^^^ deprecated
      = in: Pod shop/old

    warning[preview/setting]: container "web": seccompProfile changes from RuntimeDefault to Unconfined
     --> pod.yaml:7:47
      |
    7 |     seccomp.security.alpha.kubernetes.io/pod: runtime/default
      |                                               ^^^^^^^^^^^^^^^
      = in: Pod shop/old
      = because: v1.24: spec.securityContext.seccompProfile
      = because: v1.37: nothing set: a kubelet leaves the container unconfined

    warning[preview/stored]: an API server of v1.37 stores nothing in spec.securityContext.seccompProfile, one of v1.24 {"type":"RuntimeDefault"}
     --> pod.yaml:7:47
      |
    7 |     seccomp.security.alpha.kubernetes.io/pod: runtime/default
      |                                               ^^^^^^^^^^^^^^^
      = in: Pod shop/old

    warning[api/other-release]: no longer on v1.37: v1.24 does not have the field "hostUsers" yet: it came with v1.25
     --> pod.yaml:9:3
      |
    9 |   hostUsers: false
      |   ^^^^^^^^^
      = in: Pod shop/old

    warning[preview/setting]: container "web": hostUsers changes from true to false
     --> pod.yaml:9:14
      |
    9 |   hostUsers: false
      |              ^^^^^
      = in: Pod shop/old
      = because: v1.24: not set: users are those of the node
      = because: v1.37: spec.hostUsers

    warning[preview/stored]: an API server of v1.37 stores false in spec.hostUsers, one of v1.24 nothing
     --> pod.yaml:9:14
      |
    9 |   hostUsers: false
      |              ^^^^^
      = in: Pod shop/old

    warning[api/other-release]: no longer on v1.37: v1.24 does not have the field "appArmorProfile" yet: it came with v1.30
      --> pod.yaml:14:7
       |
    14 |       appArmorProfile: {type: RuntimeDefault}
       |       ^^^^^^^^^^^^^^^
       = in: Pod shop/old

    warning[preview/setting]: container "web": appArmorProfile changes from - to RuntimeDefault
      --> pod.yaml:14:7
       |
    14 |       appArmorProfile: {type: RuntimeDefault}
       |       ^^^^^^^^^^^^^^^
       = in: Pod shop/old
       = because: v1.24: nothing set: the runtime applies its own profile where the host has AppArmor
       = because: v1.37: spec.containers[0].securityContext.appArmorProfile

    warning[preview/stored]: an API server of v1.37 stores {"type":"RuntimeDefault"} in spec.containers[0].securityContext.appArmorProfile, one of v1.24 nothing
      --> pod.yaml:14:7
       |
    14 |       appArmorProfile: {type: RuntimeDefault}
       |       ^^^^^^^^^^^^^^^
       = in: Pod shop/old

    13 changes from v1.24 to v1.37 for 1 object
    exit status: 1
    "#);
}

#[test]
fn nothing_changes_without_a_difference() {
    for (from, to) in [("v1.37", "v1.37"), ("v1.24", "v1.24")] {
        let run = preview(OLD, from, to, &[]);
        assert_eq!((run.status, run.stdout.as_str()), (0, ""), "{run}");
        assert!(run.stderr.contains("0 changes from"), "{run}");
    }
    let run = preview(GOOD, "v1.35", "v1.36", &[]);
    assert_eq!(run.status, 0, "{run}");
}

#[test]
fn each_part_of_an_upgrade_can_be_previewed_alone() {
    let pod = |spec: &str, annotations: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p, annotations: {{{annotations}}}}}\nspec: {{{spec}}}\n"
        )
    };
    let annotated =
        pod("containers: [{name: c, image: i}]", "seccomp.security.alpha.kubernetes.io/pod: runtime/default");
    let confined = pod(
        "securityContext: {seccompProfile: {type: RuntimeDefault}}, containers: [{name: c, image: i}]",
        "",
    );
    let mounted = pod(
        "volumes: [{name: s, hostPath: {path: /}}], containers: [{name: c, image: i, securityContext: {procMount: Unmasked}}], hostUsers: false",
        "",
    );
    for (case, text, from, to, more, expected) in [
        (
            "API server: the field is copied no longer",
            &annotated,
            "v1.24",
            "v1.27",
            &["--from-kubelet=v1.24", "--to-kubelet=v1.24"][..],
            Some("stores nothing in spec.securityContext.seccompProfile"),
        ),
        (
            "kubelet alone",
            &annotated,
            "v1.27",
            "v1.27",
            &["--from-kubelet=v1.18", "--to-kubelet=v1.27"],
            Some("seccompProfile changes from RuntimeDefault to Unconfined"),
        ),
        (
            "version of the standards alone",
            &mounted,
            "v1.37",
            "v1.37",
            &["--level=baseline", "--from-policy-version=v1.37", "--to-policy-version=v1.20"],
            Some("pss/procMount"),
        ),
        (
            "runtime alone",
            &confined,
            "v1.37",
            "v1.37",
            &["--from-runtime=containerd@1.6.0", "--to-runtime=containerd@2.3.4"],
            Some("may no longer call"),
        ),
        (
            "the same runtime",
            &confined,
            "v1.37",
            "v1.37",
            &["--from-runtime=containerd@2.3.4", "--to-runtime=containerd@2.3.4"],
            None,
        ),
        (
            "a gate alone",
            &pod(
                "containers: [{name: c, image: i, securityContext: {appArmorProfile: {type: Unconfined}}}]",
                "",
            ),
            "v1.30",
            "v1.30",
            &["--from-feature-gates=AppArmor=false"],
            Some("appArmorProfile"),
        ),
        (
            "a field that the release gets",
            &pod("hostUsers: false, containers: [{name: c, image: i}]", ""),
            "v1.28",
            "v1.37",
            &[],
            Some("hostUsers"),
        ),
    ] {
        let run = preview(text, from, to, more);
        assert_eq!(run.status, i32::from(expected.is_some()), "{case}: {run}");
        if let Some(expected) = expected {
            assert!(run.stdout.contains(expected), "{case}: {run}");
        }
    }
    let cron = "apiVersion: batch/v1beta1\nkind: CronJob\nmetadata: {name: j}\nspec: {schedule: '* * * * *', jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}}\n";
    let run = preview(cron, "v1.24", "v1.25", &["-o", "json"]);
    let objects = run.json()["objects"].clone();
    assert!(objects.to_string().contains("does not serve CronJob of batch/v1beta1"), "{run}");
}

#[test]
fn what_cannot_be_compared_is_never_unchanged() {
    for (case, text) in [
        ("not YAML", "apiVersion: v1\nkind: Pod\nspec: [\n"),
        (
            "a wrong type",
            "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: []}]}\n",
        ),
        ("no template", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {}\n"),
        ("no object", "a: 1\n"),
        ("nothing", ""),
        ("another kind", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n"),
    ] {
        let run = preview(text, "v1.24", "v1.37", &[]);
        assert_eq!(run.status, 2, "{case}: {run}");
    }
    let project = Project::with(GOOD);
    for arguments in [
        &["preview", "pod.yaml"][..],
        &["preview", "pod.yaml", "--from=v1.28"],
        &["preview", "pod.yaml", "--from=v1.28", "--to=v1.99"],
        &["preview", "--from=v1.28", "--to=v1.37"],
        &["preview", "pod.yaml", "--cluster", "--from=v1.28", "--to=v1.37"],
        &["preview", "pod.yaml", "--from=v1.28", "--to=v1.37", "--to-runtime=containerd@2.0"],
        &[
            "preview",
            "pod.yaml",
            "--from=v1.28",
            "--to=v1.37",
            "--from-runtime=rkt@1",
            "--to-runtime=containerd@2.0",
        ],
        &["preview", "absent.yaml", "--from=v1.28", "--to=v1.37"],
    ] {
        let run = project.run(arguments);
        assert_eq!(run.status, 2, "{arguments:?}: {run}");
    }
}

/// The policy of a namespace of the recordings, which is in its name.
fn policy(path: &str) -> Policy {
    let namespace =
        path.split("/namespaces/").nth(1).and_then(|rest| rest.split('/').next()).unwrap_or_default();
    let metadata = json!({"labels": pods::labels_of(namespace)});
    let labels = from_value::<ObjectMeta<'_>>(&metadata).unwrap().labels;
    Policy::from_labels(&labels, &Policy::default()).0
}

/// A recorded answer as an answer of this program.
fn recorded(answer: &Value) -> ServerAnswer {
    let answer = pods::comparable(answer.clone());
    let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let causes = answer["causes"].as_array().into_iter().flatten();
    let refusal = (answer["code"].as_u64() >= Some(400)).then(|| Refusal {
        code: u16::try_from(answer["code"].as_u64().unwrap()).unwrap(),
        reason: text(&answer, "reason"),
        message: text(&answer, "message"),
        causes: causes
            .map(|cause| Reason {
                field: text(cause, "field"),
                reason: text(cause, "reason"),
                message: text(cause, "message"),
            })
            .collect(),
    });
    let warnings = answer["warnings"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|warning| warning.as_str().unwrap().to_owned());
    let stored = ["pod", "template"].iter().find_map(|name| answer.get(*name)).map(|part| {
        // The recordings keep the security part in a shape of their own.
        let mut spec = part.clone();
        let annotations = spec.as_object_mut().unwrap().remove("annotations");
        json!({"metadata": {"annotations": annotations}, "spec": spec})
    });
    ServerAnswer { refusal, warnings: warnings.collect(), stored }
}

/// For every pod that was sent to v1.24 and to v1.37: what the preview finds is the difference of what the two really answered.
#[test]
fn the_preview_of_every_recorded_pod_is_the_difference_of_the_recorded_answers() {
    let read = |release: &str| -> Vec<Record> {
        recordings::of_folder(&recordings::folder().join(release)).unwrap()
    };
    let [old, new] = [24, 37].map(|minor| ServerSide::new(Compat::kubernetes(minor)));
    let after: std::collections::BTreeMap<String, Value> = read("v1.37")
        .into_iter()
        .flat_map(|record| record.steps)
        .map(|step| {
            (json!([step.request.method, step.request.path, step.request.body]).to_string(), step.answer)
        })
        .collect();
    let (mut compared, mut changed) = (0, 0);
    for record in read("v1.24")
        .iter()
        .filter(|record| record.group.starts_with("create-") || record.group.starts_with("psa-"))
    {
        for step in &record.steps {
            let request = json!([step.request.method, step.request.path, step.request.body]).to_string();
            let (Some(later), Some(object)) = (after.get(&request), &step.request.body) else { continue };
            let path = step.request.path.split('?').next().unwrap();
            let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
            let (group, resource) = match parts[..] {
                ["api", _, "namespaces", _, resource] => ("", resource),
                ["apis", group, _, "namespaces", _, resource] => (group, resource),
                _ => panic!("{path}"),
            };
            let workload = workload_resource(group, resource).unwrap();
            let asked = Asked {
                object,
                api_version: object["apiVersion"].as_str().unwrap(),
                workload,
                namespace: "default",
            };
            let policy = policy(path);
            let reduced = |answer: ServerAnswer| ServerAnswer {
                stored: answer.stored.as_ref().map(security_part),
                ..answer
            };
            let mut pair = [reduced(old.answer(&asked, &policy)), reduced(new.answer(&asked, &policy))];
            let recorded = [recorded(&step.answer), recorded(later)];
            // Not every record keeps the object.
            for (own, real) in pair.iter_mut().zip(&recorded) {
                if real.stored.is_none() {
                    own.stored = None;
                }
            }
            let [before, after] = &pair;
            let previewed = answer_changes(before, after);
            let expected = answer_changes(&recorded[0], &recorded[1]);
            assert_eq!(previewed, expected, "{}: {request}", record.id);
            compared += 1;
            changed += usize::from(!expected.is_empty());
        }
    }
    println!("{compared} recorded objects compared, {changed} of them change from v1.24 to v1.37");
    assert_enough(compared, 2000);
    assert!(changed > 100, "{changed}");
}
