//! Whatever a file holds: no panic, and a fix never makes anything worse.

use std::{cell::Cell, fmt::Write as _, sync::Arc};

use jiff::civil::date;
use palisade_cli::{
    fix::{FixOptions, fix_text},
    judge::{FileReport, Settings, judge_bytes, judge_text},
    manifest::objects,
    render::human::{Style, diagnostics},
    server_side::{Asked, ServerSide},
};
use palisade_model::compat::Compat;
use palisade_policy::standards::level::{Level, LevelVersion, Version};
use proptest::{
    collection::vec,
    prelude::*,
    sample::{select, subsequence},
    test_runner::TestRunner,
};
use serde::Deserialize as _;

fn settings(level: Level, compat: Compat) -> Settings {
    Settings::new(LevelVersion::new(level, Version::Latest), compat, date(2026, 1, 1))
}

/// Pieces that manifests, and mistakes in them, are made of.
const PIECES: &[&str] = &[
    "apiVersion: v1\n",
    "kind: Pod\n",
    "kind: List\n",
    "items:\n",
    "- ",
    "metadata:\n",
    "  annotations:\n",
    "    seccomp.security.alpha.kubernetes.io/pod: unconfined\n",
    "spec:\n",
    "  containers:\n",
    "  - name: c\n",
    "    securityContext:\n",
    "      privileged: true\n",
    "      capabilities: {add: [NET_RAW]}\n",
    "  hostPID: true\n",
    "  securityContext: &a\n",
    "    seccompProfile: {type: Unconfined}\n",
    "    securityContext: *a\n",
    "    <<: *a\n",
    "---\n",
    "...\n",
    "# palisade:ignore pss/privileged reason=x\n",
    "# comment\n",
    "\t",
    " ",
    "\n",
    "\r\n",
    "{",
    "}",
    "[",
    "]",
    ": ",
    "|\n",
    ">-\n",
    "\"",
    "'",
    "é日",
    "\u{feff}",
    "\0",
    "null",
    "{{ x }}",
    "!!str ",
    "- - ",
    "? ",
    "&b ",
    "*b",
];

fn text() -> impl Strategy<Value = String> {
    let pieces = vec(select(PIECES), 0..60).prop_map(|pieces| pieces.concat());
    let pod = include_str!("../../../../examples/manifests/web-deployment.yaml");
    let cron = include_str!("../../../../examples/manifests/report-cronjob.yaml");
    let mutated = (select(vec![pod, cron]), any::<prop::sample::Index>(), 0..40usize, select(PIECES))
        .prop_map(|(text, at, cut, piece)| {
            let mut characters: Vec<char> = text.chars().collect();
            let at = at.index(characters.len());
            let end = (at + cut).min(characters.len());
            characters.splice(at..end, piece.chars());
            characters.into_iter().collect::<String>()
        });
    prop_oneof![pieces, mutated]
}

fn errors(report: &FileReport) -> usize {
    report.diagnostics.iter().filter(|finding| finding.fix.is_some()).count()
}

/// Fields of a pod, good ones and bad ones.
const POD_FIELDS: &[&str] = &[
    "hostNetwork: true",
    "hostPID: false # kept",
    "hostIPC: true",
    "hostUsers: false",
    "os: {name: linux}",
    "volumes: [{name: v, hostPath: {path: /}}]",
    "volumes: [{name: v, emptyDir: {}}]",
];

/// Fields of the security context of a pod.
const POD_CONTEXT: &[&str] = &[
    "runAsNonRoot: true",
    "runAsNonRoot: false",
    "runAsUser: 0",
    "runAsUser: 1000",
    "runAsUser: -1",
    "seccompProfile: {type: RuntimeDefault}",
    "seccompProfile: {type: Unconfined} # why",
    "seccompProfile: {type: Localhost, localhostProfile: a.json}",
    "seccompProfile: {type: Localhost}",
    "appArmorProfile: {type: Unconfined}",
    "seLinuxOptions: {type: spc_t, user: u}",
    "sysctls: [{name: kernel.shm_rmid_forced, value: '1'}, {name: kernel.msgmax, value: '1'}]",
    "fsGroup: 1",
];

/// Fields of the security context of a container.
const CONTEXT: &[&str] = &[
    "privileged: true",
    "privileged: false",
    "allowPrivilegeEscalation: true",
    "allowPrivilegeEscalation: false",
    "capabilities: {drop: [ALL]}",
    "capabilities: {drop: [all], add: [NET_BIND_SERVICE]}",
    "capabilities: {drop: [ALL, NET_RAW], add: [SYS_ADMIN, CHOWN]}",
    "capabilities: {add: [CAP_SYS_TIME]}",
    "runAsNonRoot: true",
    "runAsNonRoot: false",
    "runAsUser: 0",
    "runAsUser: 1000",
    "seccompProfile: {type: Unconfined}",
    "seccompProfile: {type: RuntimeDefault}",
    "procMount: Unmasked",
    "appArmorProfile: {type: Unconfined}",
    "seLinuxOptions: {role: r}",
    "windowsOptions: {hostProcess: true}",
    "readOnlyRootFilesystem: true",
];

/// What else a container may have.
const CONTAINER_FIELDS: &[&str] = &[
    "ports: [{containerPort: 80, hostPort: 80}]",
    "ports: [{containerPort: 80}]",
    "volumeMounts: [{name: v, mountPath: /v, mountPropagation: Bidirectional}]",
    "livenessProbe: {httpGet: {port: 80, host: example.com}}",
    "restartPolicy: Always",
];

const ANNOTATIONS: &[&str] = &[
    "seccomp.security.alpha.kubernetes.io/pod: unconfined",
    "seccomp.security.alpha.kubernetes.io/pod: runtime/default",
    "container.seccomp.security.alpha.kubernetes.io/c0: unconfined",
    "container.apparmor.security.beta.kubernetes.io/c0: unconfined",
    "container.apparmor.security.beta.kubernetes.io/none: runtime/default",
];

/// Lines at an indentation, none twice of a field.
fn block(name: &str, fields: &[&str], indent: &str) -> String {
    let mut text = String::new();
    let mut known = Vec::new();
    for field in fields {
        let key = field.split(':').next().unwrap_or_default();
        // Keys of annotations have no two lines of one key in the list above.
        if !known.contains(&key) {
            known.push(key);
            let _ = writeln!(text, "{indent}  {field}");
        }
    }
    if text.is_empty() { text } else { format!("{indent}{name}:\n{text}") }
}

fn some(of: &'static [&'static str], most: usize) -> impl Strategy<Value = Vec<&'static str>> {
    subsequence(of.to_vec(), 0..=most.min(of.len())).prop_shuffle()
}

fn container() -> impl Strategy<Value = String> {
    (some(CONTEXT, 3), some(CONTAINER_FIELDS, 1)).prop_map(|(context, fields)| {
        let fields: String = fields
            .iter()
            .scan(Vec::new(), |known: &mut Vec<&str>, field| {
                let key = field.split(':').next().unwrap_or_default();
                let is_new = !known.contains(&key);
                known.push(key);
                Some(if is_new { format!("      {field}\n") } else { String::new() })
            })
            .collect();
        format!("      image: nginx\n{}{fields}", block("securityContext", &context, "      "))
    })
}

/// A workload as people write it, with the fields above in any combination.
fn workload() -> impl Strategy<Value = String> {
    let kinds = select(vec!["Pod", "Deployment", "DaemonSet", "Job", "CronJob", "PodTemplate", "Rollout"]);
    let pod = (some(POD_FIELDS, 1), some(POD_CONTEXT, 2), some(ANNOTATIONS, 1));
    (kinds, pod, vec(container(), 1..3), proptest::option::of(container())).prop_map(
        |(kind, (fields, context, annotations), containers, init)| {
            let mut spec = String::new();
            let mut known = Vec::new();
            for field in fields {
                let key = field.split(':').next().unwrap_or_default();
                if !known.contains(&key) {
                    known.push(key);
                    let _ = writeln!(spec, "  {field}");
                }
            }
            spec.push_str(&block("securityContext", &context, "  "));
            if let Some(init) = init {
                let _ = write!(spec, "  initContainers:\n    - name: i\n{init}");
            }
            spec.push_str("  containers:\n");
            for (index, container) in containers.iter().enumerate() {
                // A container that is restarted is an init container.
                let container = container.replace("      restartPolicy: Always\n", "");
                let _ = write!(spec, "    - name: c{index}\n{container}");
            }
            let policy = if matches!(kind, "Job" | "CronJob") { "  restartPolicy: Never\n" } else { "" };
            let notes = block("annotations", &annotations, "  ");
            let pod = |labels: &str| format!("metadata:\n  labels: {{app: a}}\n{labels}{notes}spec:\n{policy}{spec}");
            let indented = |depth: usize, text: &str| {
                text.lines().flat_map(|line| [" ".repeat(depth), line.to_owned(), "\n".to_owned()]).collect::<String>()
            };
            let selector = "  selector:\n    matchLabels: {app: a}\n";
            match kind {
                "Pod" => format!("apiVersion: v1\nkind: Pod\n{}", pod("  name: a\n")),
                "PodTemplate" => format!("apiVersion: v1\nkind: PodTemplate\nmetadata: {{name: a}}\ntemplate:\n{}", indented(2, &pod(""))),
                "CronJob" => format!(
                    "apiVersion: batch/v1\nkind: CronJob\nmetadata: {{name: a}}\nspec:\n  schedule: '0 0 * * *'\n  jobTemplate:\n    spec:\n      template:\n{}",
                    indented(8, &pod(""))
                ),
                "Job" => format!("apiVersion: batch/v1\nkind: Job\nmetadata: {{name: a}}\nspec:\n  template:\n{}", indented(4, &pod(""))),
                "Rollout" => format!("apiVersion: argoproj.io/v1alpha1\nkind: Rollout\nmetadata: {{name: a}}\nspec:\n{selector}  template:\n{}", indented(4, &pod(""))),
                kind => format!("apiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: a}}\nspec:\n{selector}  template:\n{}", indented(4, &pod(""))),
            }
        },
    )
}

/// What an API server answers to a create of the one object of a text.
fn rejections(text: &str, compat: Compat) -> Vec<String> {
    let parsed = palisade_yaml::parse(text, &palisade_yaml::Limits::default());
    let object = objects(&parsed.documents[0]).remove(0);
    let value = serde_json::Value::deserialize(object.node).unwrap();
    let workload = object.workload.unwrap();
    let asked = Asked { object: &value, api_version: object.api_version, workload, namespace: "default" };
    ServerSide::new(compat).rejections(&asked)
}

/// Every touched object is valid for an API server and allowed; the others keep every byte; a second run changes nothing.
#[test]
fn what_is_fixed_is_allowed_and_valid() {
    let touched = Cell::new(0);
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let levels = select(vec![Level::Baseline, Level::Restricted]);
    let input = (vec(workload(), 1..4), levels, select(vec![24, 30, 35, 37]), any::<bool>());
    let tried = runner.run(&input, |(texts, level, minor, may_change)| {
        let compat = Compat::kubernetes(minor);
        let settings = settings(level, compat);
        let file: Arc<str> = Arc::from("x.yaml");
        let text = texts.join("---\n");
        let options = FixOptions { may_change, partial: false };
        let before = judge_text(&file, &text, &settings, &[]);
        prop_assert_eq!(before.verdicts.len(), texts.len(), "{}", text);
        let fixed = fix_text(&file, &text, &settings, &[], options);
        let Some(new) = fixed.text else { return Ok(()) };
        let after = judge_text(&file, &new, &settings, &[]);
        let documents: Vec<&str> = new.split("---\n").collect();
        prop_assert_eq!(documents.len(), texts.len(), "{}", new);
        for (index, (old, new)) in texts.iter().zip(&documents).enumerate() {
            if old == new {
                continue;
            }
            touched.set(touched.get() + 1);
            prop_assert!(after.verdicts[index].allowed, "{}\n---\n{}", old, new);
            // Of a kind that the API server does not have only the template is validated, and nothing in it may be worse.
            let is_custom = new.contains("argoproj.io");
            let known = rejections(old, compat);
            let mut rejected = rejections(new, compat);
            rejected.retain(|reason| !(is_custom && known.contains(reason)));
            prop_assert!(rejected.is_empty(), "{:?}\n{}\n---\n{}", rejected, old, new);
        }
        let again = fix_text(&file, &new, &settings, &[], options);
        prop_assert!(again.text.is_none(), "{}\n---\n{}", new, again.text.unwrap_or_default());
        Ok(())
    });
    tried.unwrap_or_else(|error| panic!("{error}"));
    assert!(touched.get() > 30, "only {} objects were fixed", touched.get());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_checked_or_rejected(bytes in vec(any::<u8>(), 0..300)) {
        let report = judge_bytes(&Arc::from("x"), &bytes, &settings(Level::Restricted, Compat::designs()), &[]);
        let mut drawn = String::new();
        diagnostics(&report.diagnostics, Style { color: true, width: Some(40) }, &mut drawn);
    }

    #[test]
    fn a_fix_never_makes_anything_worse(text in text(), designs in any::<bool>(), may_change in any::<bool>(), partial in any::<bool>()) {
        let options = FixOptions { may_change, partial };
        let compat = if designs { Compat::designs() } else { Compat::kubernetes(37) };
        let settings = settings(Level::Restricted, compat);
        let file: Arc<str> = Arc::from("x.yaml");
        let before = judge_text(&file, &text, &settings, &[]);
        let mut drawn = String::new();
        diagnostics(&before.diagnostics, Style::PLAIN, &mut drawn);
        let fixed = fix_text(&file, &text, &settings, &[], options);
        let Some(new) = fixed.text else { return Ok(()) };
        let after = judge_text(&file, &new, &settings, &[]);
        prop_assert_eq!(before.verdicts.len(), after.verdicts.len(), "{}", new);
        for (old, new) in before.verdicts.iter().zip(&after.verdicts) {
            prop_assert!(new.allowed || !old.allowed);
        }
        prop_assert!(errors(&after) < errors(&before), "{}", new);
        let again = fix_text(&file, &new, &settings, &[], options);
        prop_assert!(again.text.is_none(), "{}\n---\n{}", new, again.text.unwrap_or_default());
    }
}
