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
        root_read_only: false,
        ..ProcessSecurity::default()
    };
    for (number, kind) in ["net", "pid", "ipc", "user"].into_iter().enumerate() {
        process.namespaces.insert(kind.to_owned(), 100 + number as u64);
    }
    process
}

fn host() -> ProcessSecurity {
    let mut host = kernel();
    host.cap_bounding = (1 << 41) - 1;
    for (kind, inode) in &mut host.namespaces {
        // A container has the node's users unless its pod declares otherwise.
        *inode += if kind == "user" { 0 } else { 1000 };
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
        (r#"{"type":"Localhost","localhostProfile":"mine"}"#, Some("mine (kill)"), &[]),
        (
            r#"{"type":"Localhost","localhostProfile":"mine"}"#,
            Some("mine (complain)"),
            &["appArmor: the profile is loaded in a mode that denies nothing"],
        ),
        (
            r#"{"type":"RuntimeDefault"}"#,
            Some("cri-containerd.apparmor.d (unconfined)"),
            &["appArmor: the profile is loaded in a mode that denies nothing"],
        ),
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
fn se_linux_labels_are_compared_part_by_part() {
    for (options, label, expected) in [
        (r#"{"level":"s0:c1,c2"}"#, Some("system_u:system_r:container_t:s0:c1,c2"), &[][..]),
        (r#"{"type":"spc_t"}"#, Some("system_u:system_r:container_t:s0:c1,c2"), &["seLinuxOptions"]),
        (r#"{"level":"s0:c1"}"#, Some("system_u:system_r:container_t:s0:c1,c2"), &["seLinuxOptions"]),
        (r#"{"level":"s0"}"#, None, &["seLinuxOptions: SELinux is not enabled on the node"]),
        ("{}", None, &[]),
    ] {
        let context = format!(r#"{{"seLinuxOptions":{options}}}"#);
        let found = mismatches("", &context, |kernel| kernel.se_linux = label.map(str::to_owned));
        assert_eq!(found, expected, "{options} {label:?}");
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
    for raise in [
        |kernel: &mut ProcessSecurity| kernel.cap_permitted |= 1 << 21,
        |kernel: &mut ProcessSecurity| kernel.cap_inheritable |= 1 << 21,
        |kernel: &mut ProcessSecurity| kernel.cap_ambient |= 1 << 21,
    ] {
        let more = "capEffective: more than the bounding set declares";
        assert_eq!(mismatches("", "{}", raise), [more], "what it can raise counts as well");
    }
    for drop in ["CAP_ALL", "NET_ROW", ""] {
        let unknown = format!(r#"{{"capabilities":{{"drop":["{drop}"]}}}}"#);
        let note = "capBounding: a name in capabilities.drop is not a capability and drops nothing";
        assert_eq!(mismatches("", &unknown, |_| {}), [note], "{drop:?}");
    }
    let both = r#"{"capabilities":{"drop":["ALL","NET_RAW"],"add":["NET_RAW"]}}"#;
    let nothing = |kernel: &mut ProcessSecurity| (kernel.cap_bounding, kernel.cap_effective) = (0, 0);
    assert_eq!(mismatches("", both, nothing), [""; 0], "what is added and dropped is dropped");
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
    let unknown = |kernel: &mut ProcessSecurity| {
        kernel.namespaces.remove("net");
    };
    assert_eq!(mismatches("", "{}", unknown), ["hostNetwork"], "an unknown namespace may be the node's");
    assert_eq!(mismatches(r#""hostUsers":false"#, "{}", |_| {}), ["hostUsers"]);
    let unmasked = |kernel: &mut ProcessSecurity| kernel.unmasked = vec!["/proc/kcore"];
    assert_eq!(mismatches("", "{}", unmasked), ["procMount"]);
    let privileged = r#"{"privileged":true}"#;
    assert_eq!(mismatches("", privileged, unmasked), [""; 0], "a privileged container sees all of it");
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
            id: Some("i".into()),
            pid: Some(7),
            skipped: None,
            unverified: None,
            rows: vec![Row {
                check: "seccomp",
                declared: "RuntimeDefault".into(),
                kernel: "none, 0 filters".into(),
                ok: false,
                note: None,
            }],
            seccomp_profile_hash: Some("applied".into()),
            seccomp_source_hash: Some("aa".into()),
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
        id: Some("i".into()),
        pid: Some(7),
        skipped: None,
        unverified: None,
        rows: vec![row(true), row(ok)],
        seccomp_profile_hash: None,
        seccomp_source_hash: None,
        stale_profile: stale.then(|| "gone".into()),
    };
    let idle =
        || ContainerReport { skipped: Some("not running".into()), rows: Vec::new(), ..compared(true, false) };
    let unread = || ContainerReport {
        unverified: Some("no access".into()),
        rows: Vec::new(),
        ..compared(true, false)
    };
    for (containers, expected) in [
        (vec![unread()], "1 container not compared: what the kernel enforces is not known"),
        (vec![compared(true, false), unread()], "1 container compared, 1 not"),
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
        assert_eq!(summary(&[report], 0), expected);
    }
    let report =
        PodReport { namespace: "n".into(), name: "p".into(), containers: vec![compared(true, false)] };
    assert_eq!(summary(&[report], 2), "1 container compared, 2 not", "containers of unknown pods count");
}

#[test]
fn every_running_container_is_compared_or_reported() {
    let key = |uid: &str| PodKey { namespace: "shop".into(), name: "web".into(), uid: uid.into() };
    let running = |uid: &str, name: &str, id: &str| RunningContainer {
        pod: key(uid),
        name: name.into(),
        id: id.into(),
    };
    let report = |id: &str, unverified: Option<&str>| ContainerReport {
        container: "c".into(),
        id: Some(id.into()),
        pid: None,
        skipped: None,
        unverified: unverified.map(str::to_owned),
        rows: Vec::new(),
        seccomp_profile_hash: None,
        seccomp_source_hash: None,
        stale_profile: None,
    };
    let pod = PodReport {
        namespace: "shop".into(),
        name: "web".into(),
        containers: vec![report("aa", None), report("ee", Some("no access"))],
    };
    for (case, containers, expected) in [
        ("compared", vec![running("1", "c", "aa")], &[][..]),
        ("nothing runs", vec![], &[]),
        (
            "twice, and one of them compared",
            vec![running("1", "c", "aa"), running("1", "c", "bb")],
            &["container \"c\" (bb) of pod shop/web runs and could not be compared"],
        ),
        (
            "replaced after the comparison",
            vec![running("1", "c", "bb")],
            &["container \"c\" (bb) of pod shop/web runs and could not be compared"],
        ),
        (
            "not readable",
            vec![running("1", "c", "ee")],
            &["container \"c\" (ee) of pod shop/web could not be compared: no access"],
        ),
        (
            "another node's pod",
            vec![running("2", "c", "0123456789abcdef")],
            &["container \"c\" (0123456789ab) runs for pod shop/web, which is not a known pod of this node"],
        ),
        ("without a pod", vec![running("", "", "aa")], &["container aa runs without a pod"]),
    ] {
        let found: Vec<_> =
            not_compared(containers, &[(&key("1"), &pod)]).into_iter().map(|(_, text)| text).collect();
        assert_eq!(found, expected, "{case}");
    }
    assert!(!pod.is_enforced() && !pod.has_mismatch(), "what is not compared is not enforced");
}

#[test]
fn only_the_node_that_made_a_sandbox_notes_what_it_declares() {
    let key = PodKey { namespace: "shop".into(), name: "web".into(), uid: "1".into() };
    let declared = |uid: &str| {
        format!(
            r#"{{"metadata":{{"name":"web","namespace":"shop","uid":"{uid}"}},"spec":{{"containers":[{{"name":"c"}}]}}}}"#
        )
    };
    let noted = |entries: &[(&str, &str)]| {
        let annotations =
            entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        noted_pod(&annotations, &key).is_some()
    };
    assert!(noted(&[(labels::DECLARED, &declared("1"))]));
    assert!(!noted(&[]), "nothing was noted");
    assert!(!noted(&[(labels::DECLARED, "{")]), "unreadable");
    assert!(!noted(&[(labels::DECLARED, &declared("2"))]), "another pod's declaration");
    let by_author = [(labels::DECLARED, declared("1")), (labels::MADE_BY_KUBELET, "api".to_owned())];
    let by_author: Vec<_> = by_author.iter().map(|(key, value)| (*key, value.as_str())).collect();
    assert!(!noted(&by_author), "the author of a kubelet's pod wrote it");
}

/// A process in a user namespace whose user 0 is another one on the node.
fn mapped(kernel: &mut ProcessSecurity, outside: u32, user: u32, groups: &[u32]) {
    let map = vec![IdMapLine { inside: 0, outside, length: 65_536 }];
    kernel.namespaces.insert("user".to_owned(), 7);
    (kernel.uid_map, kernel.gid_map) = (map.clone(), map);
    (kernel.uid, kernel.gid) = ([user; 4], [outside; 4]);
    kernel.groups = groups.to_vec();
}

#[test]
fn ids_are_compared_as_the_container_sees_them() {
    let own = r#""hostUsers":false"#;
    let grouped = r#""hostUsers":false,"securityContext":{"supplementalGroups":[3000]}"#;
    for (case, pod, container, outside, user, groups, expected) in [
        ("root inside", own, "{}", 131_072, 131_072, &[][..], &[][..]),
        ("not declared", "", "{}", 131_072, 131_072, &[], &[]),
        ("a user", own, r#"{"runAsUser":1000}"#, 131_072, 132_072, &[], &[]),
        ("another user", own, r#"{"runAsUser":1000}"#, 131_072, 132_073, &[], &["uid"]),
        ("the node's user", own, r#"{"runAsUser":1000}"#, 131_072, 1000, &[], &["uid"]),
        ("root of the node", own, "{}", 131_072, 0, &[], &["uid"]),
        ("a group", grouped, "{}", 131_072, 131_072, &[134_072], &[]),
        (
            "the node's group",
            grouped,
            "{}",
            131_072,
            131_072,
            &[3000],
            &["groups: a group of the node that the namespace does not map"],
        ),
        (
            "mapped to the node's users",
            own,
            "{}",
            0,
            0,
            &[],
            &["hostUsers: users of the namespace are users of the node"],
        ),
        (
            "mapped to some of the node's users",
            own,
            "{}",
            65_535,
            65_535,
            &[],
            &["hostUsers: users of the namespace are users of the node"],
        ),
    ] {
        let found = mismatches(pod, container, |kernel| mapped(kernel, outside, user, groups));
        assert_eq!(found, expected, "{case}");
    }
    let unread = mismatches(own, "{}", |kernel| {
        kernel.namespaces.insert("user".to_owned(), 7);
    });
    let reaches = "hostUsers: users of the namespace are users of the node";
    assert_eq!(unread, ["uid", "gid", reaches], "without a map nothing is known");
}
