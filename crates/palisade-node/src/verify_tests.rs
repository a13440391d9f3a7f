//! Tables for the comparison: what was declared, what the kernel enforces, and what does not match.

use palisade_model::{
    compat::Compat,
    prepare::{Prepared, Subject},
};

use super::*;

fn kernel() -> ProcessSecurity {
    let mut process = ProcessSecurity {
        cap_effective: DEFAULT_CAPABILITIES,
        cap_bounding: DEFAULT_CAPABILITIES,
        seccomp_filters: Some(0),
        root_read_only: Some(false),
        ..ProcessSecurity::default()
    };
    for (number, kind) in ["net", "pid", "ipc"].into_iter().enumerate() {
        process.namespaces.insert(kind.to_owned(), 100 + number as u64);
    }
    process
}

fn host() -> ProcessSecurity {
    let mut host = kernel();
    host.cap_bounding = (1 << 41) - 1;
    for inode in host.namespaces.values_mut() {
        *inode += 1000;
    }
    host
}

/// The checks that fail, with their notes.
fn mismatches(pod_part: &str, container: &str, change: impl FnOnce(&mut ProcessSecurity)) -> Vec<String> {
    let comma = if pod_part.is_empty() { "" } else { "," };
    let text = format!(
        r#"{{"spec":{{{pod_part}{comma}"containers":[{{"name":"c","securityContext":{container}}}]}}}}"#
    );
    let mut compat = Compat::designs();
    compat.gates.seccomp_config_maps = true;
    let pod = Prepared::new(serde_json::from_str(&text).unwrap(), Subject::Pod, &compat);
    let context = effective_context(&pod, &pod.view().containers().next().unwrap());
    let (mut process, host) = (kernel(), host());
    change(&mut process);
    let image = ImageUser::Uid(0);
    let facts = KernelFacts { process: &process, host: &host, image_user: Some(&image) };
    compare(&context, &facts)
        .into_iter()
        .filter(|row| !row.ok)
        .map(|row| match row.note {
            Some(note) => format!("{}: {note}", row.check),
            None => row.check.to_owned(),
        })
        .collect()
}

#[test]
fn an_empty_declaration_has_no_drift() {
    assert_eq!(mismatches("", "{}", |_| {}), [""; 0]);
    assert_eq!(mismatches("", "{}", |kernel| kernel.no_new_privs = true), [""; 0], "stricter is fine");
}

#[test]
fn a_runtime_that_ignores_a_profile_is_found_out() {
    let confined = |kernel: &mut ProcessSecurity| {
        kernel.seccomp_mode = 2;
        kernel.seccomp_filters = Some(1);
    };
    for profile in [
        r#"{"type":"RuntimeDefault"}"#,
        r#"{"type":"Localhost","localhostProfile":"p"}"#,
        r#"{"type":"ConfigMap","configMapProfile":"m/k"}"#,
    ] {
        let context = format!(r#"{{"seccompProfile":{profile}}}"#);
        assert_eq!(mismatches("", &context, |_| {}), ["seccomp: the runtime ignored the profile"]);
        assert_eq!(mismatches("", &context, confined), [""; 0]);
    }
    let privileged = r#"{"privileged":true,"seccompProfile":{"type":"RuntimeDefault"}}"#;
    assert_eq!(
        mismatches("", privileged, |_| {}),
        ["seccomp: runtimes apply no seccomp profile to privileged containers"]
    );
}

#[test]
fn app_armor_labels_are_compared_by_name() {
    for (profile, label, expected) in [
        (r#"{"type":"RuntimeDefault"}"#, Some("cri-containerd.apparmor.d (enforce)"), &[][..]),
        (r#"{"type":"RuntimeDefault"}"#, Some("unconfined"), &["appArmor: the runtime ignored the profile"]),
        (r#"{"type":"RuntimeDefault"}"#, None, &["appArmor: the runtime ignored the profile"]),
        (r#"{"type":"Localhost","localhostProfile":"mine"}"#, Some("mine (enforce)"), &[]),
        (r#"{"type":"Localhost","localhostProfile":"mine"}"#, Some("other (enforce)"), &["appArmor"]),
        (r#"{"type":"Unconfined"}"#, Some("unconfined"), &[]),
        (r#"{"type":"Unconfined"}"#, None, &[]),
    ] {
        let context = format!(r#"{{"appArmorProfile":{profile}}}"#);
        let found = mismatches("", &context, |kernel| kernel.app_armor = label.map(str::to_owned));
        assert_eq!(found, expected, "{profile} {label:?}");
    }
}

#[test]
fn identity_is_compared_number_by_number() {
    let pod = r#""securityContext":{"runAsUser":1000,"runAsGroup":2000,"fsGroup":4000,"supplementalGroups":[3000]}"#;
    let right = |kernel: &mut ProcessSecurity| {
        kernel.uid = [1000; 4];
        kernel.gid = [2000; 4];
        kernel.groups = vec![2000, 3000, 4000];
        kernel.cap_effective = 0;
    };
    assert_eq!(mismatches(pod, "{}", right), [""; 0]);
    assert_eq!(mismatches(pod, "{}", |_| {}), ["uid", "gid", "groups"]);
    let strict = r#""securityContext":{"supplementalGroupsPolicy":"Strict"}"#;
    assert_eq!(
        mismatches(strict, "{}", |kernel| kernel.groups = vec![0, 7]),
        ["groups: the policy is Strict"]
    );
}

#[test]
fn more_capabilities_than_declared_are_a_mismatch_fewer_are_not() {
    let drop_all = r#"{"capabilities":{"drop":["ALL"],"add":["NET_BIND_SERVICE"]}}"#;
    assert_eq!(
        mismatches("", drop_all, |_| {}),
        ["capBounding", "capEffective: more than the bounding set declares"]
    );
    let exact = |kernel: &mut ProcessSecurity| {
        kernel.cap_bounding = 1 << 10;
        kernel.cap_effective = 1 << 10;
    };
    assert_eq!(mismatches("", drop_all, exact), [""; 0]);
    assert_eq!(mismatches("", "{}", exact), [""; 0]);
    let missing = r#"{"capabilities":{"add":["SYS_TIME"]}}"#;
    assert_eq!(mismatches("", missing, |_| {}), ["capBounding"], "what was added must be there");
}

#[test]
fn namespaces_and_root_are_compared() {
    assert_eq!(mismatches(r#""hostNetwork":true"#, "{}", |_| {}), ["hostNetwork"]);
    let joined = |kernel: &mut ProcessSecurity| {
        kernel.namespaces.insert("pid".to_owned(), 1101);
    };
    assert_eq!(mismatches("", "{}", joined), ["hostPID"], "joining unasked is a mismatch too");
    assert_eq!(mismatches("", r#"{"readOnlyRootFilesystem":true}"#, |_| {}), ["readOnlyRootFilesystem"]);
    assert_eq!(mismatches("", r#"{"allowPrivilegeEscalation":false}"#, |_| {}), ["noNewPrivs"]);
}

#[test]
fn people_read_lines_and_machines_read_json() {
    let report = PodReport {
        namespace: "default".into(),
        name: "web".into(),
        containers: vec![ContainerReport {
            container: "c".into(),
            pid: Some(7),
            skipped: None,
            rows: vec![Row {
                check: "seccomp",
                declared: "RuntimeDefault".into(),
                kernel: "none, 0 filters".into(),
                ok: false,
                note: None,
            }],
            seccomp_profile_hash: Some("aa".into()),
            stale_profile: Some("bb".into()),
        }],
    };
    assert!(report.has_mismatch());
    let lines: Vec<_> = report.lines().iter().map(|line| line.join(" | ")).collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    default/web | c | seccomp | RuntimeDefault | none, 0 filters | MISMATCH
    default/web | c | seccompProfileHash | bb | aa | older profile: restart to apply
    ");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["containers"][0]["rows"][0]["ok"], false);
    assert_eq!(json["containers"][0]["staleProfile"], "bb");
}

#[test]
fn summarizes_in_one_sentence() {
    let row = |ok| Row {
        check: "seccomp",
        declared: "RuntimeDefault".into(),
        kernel: "none".into(),
        ok,
        note: None,
    };
    let compared = |ok, stale: bool| ContainerReport {
        container: "c".into(),
        pid: Some(7),
        skipped: None,
        rows: vec![row(true), row(ok)],
        seccomp_profile_hash: None,
        stale_profile: stale.then(|| "gone".into()),
    };
    let idle =
        || ContainerReport { skipped: Some("not running".into()), rows: Vec::new(), ..compared(true, false) };
    for (containers, expected) in [
        (vec![], "no container runs, so there is nothing to compare"),
        (vec![idle()], "no container runs, so there is nothing to compare"),
        (vec![compared(true, false)], "1 container compared: everything declared is enforced"),
        (
            vec![compared(true, true), compared(true, false), idle()],
            "2 containers compared: everything declared is enforced, 1 with an older profile, 1 not running",
        ),
        (
            vec![compared(true, false), compared(false, false)],
            "2 containers compared: 1 without something declared",
        ),
    ] {
        let report = PodReport { namespace: "n".into(), name: "p".into(), containers };
        assert_eq!(summary(&[report]), expected);
    }
}
