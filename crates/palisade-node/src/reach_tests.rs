//! Which processes are a container's, and what follows from those.

use std::{fs, os::unix::fs::symlink};

use super::*;

const MACHINE: Architecture = Architecture::COMMON;

/// A process below a made-up `/proc`: its cgroup, its PID namespace, its number in that.
fn process(proc: &Path, pid: u32, cgroup: &str, namespace: &str, inner: u32) {
    let folder = proc.join(pid.to_string());
    fs::create_dir_all(folder.join("ns")).unwrap();
    symlink(format!("pid:[{namespace}]"), folder.join("ns/pid")).unwrap();
    fs::write(folder.join("cgroup"), format!("2:cpu,cpuacct:{cgroup}\n0::/\n")).unwrap();
    fs::write(folder.join("status"), format!("State:\tS (sleeping)\nNSpid:\t{pid}\t{inner}\nSeccomp:\t0\n"))
        .unwrap();
    fs::write(folder.join("stat"), format!("{pid} (a) b) S 1{} 42 0\n", " 0".repeat(17))).unwrap();
    let task = folder.join("task").join(pid.to_string());
    fs::create_dir_all(&task).unwrap();
    for file in ["status", "stat"] {
        fs::copy(folder.join(file), task.join(file)).unwrap();
    }
}

#[test]
fn processes_belong_to_a_container_by_cgroup_or_by_a_namespace_of_its_own() {
    let temp = tempfile::tempdir().unwrap();
    let proc = temp.path();
    for (pid, cgroup, namespace, inner) in [
        (1, "/system", "1", 1),
        (10, "/pods/a", "2", 1),
        (11, "/pods/a", "2", 7),
        (12, "/pods/a/nested", "3", 1),
        (13, "/pods/ab", "1", 13),
        (14, "/elsewhere", "2", 8),
        (20, "/pods/b", "4", 5),
        (21, "/pods/c", "4", 1),
        (30, "/system", "1", 30),
        (31, "/", "1", 31),
    ] {
        process(proc, pid, cgroup, namespace, inner);
    }
    fs::create_dir(proc.join("self")).unwrap();
    let members = |init: u32| processes(proc, init, 1).map(|found| found.into_iter().collect::<Vec<_>>());
    assert_eq!(members(10).unwrap(), [10, 11, 12, 14]);
    assert_eq!(members(20).unwrap(), [20], "a namespace that a pod shares");
    for init in [30, 31] {
        assert!(matches!(members(init), Err(ProcessError::Indistinct)), "{init}");
    }
    assert!(has_ended(&members(99).unwrap_err()));
    let prober = Prober::new(proc, Some(1));
    let found = prober.confinements(10).unwrap();
    assert_eq!(found.iter().map(|(pid, _)| *pid).collect::<Vec<_>>(), [10, 11, 12, 14]);
    fs::write(proc.join("11/task/11/status"), "State:\tS\n").unwrap();
    let pattern = CallPattern::parse("socket").unwrap();
    let undecided = prober.verdicts(10, std::slice::from_ref(&pattern));
    assert!(
        matches!(&undecided[..], [Verdict::Undecided { reason }] if reason.contains("no line Seccomp")),
        "{undecided:?}"
    );
    fs::write(proc.join("11/task/11/status"), "State:\tZ (zombie)\nSeccomp:\t0\n").unwrap();
    assert_eq!(prober.confinements(10).unwrap().len(), 3, "what has ended makes no calls");
    let ended = prober.verdicts(99, std::slice::from_ref(&pattern));
    assert!(matches!(&ended[..], [Verdict::Undecided { reason }] if reason.contains("ended")), "{ended:?}");
}

#[test]
fn one_thread_that_can_is_enough_and_one_that_is_not_known_prevents_a_denial() {
    let program = |profile: &str| {
        let filter = palisade_model::profile::filter::Filter::parse(profile).unwrap();
        Confinement::Filters(Arc::new(vec![filter.compile(MACHINE).unwrap().instructions]))
    };
    let denies = program(r#"{"defaultAction":"SCMP_ACT_ERRNO"}"#);
    let notifies = program(
        r#"{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{"names":["ptrace"],"action":"SCMP_ACT_NOTIFY"}]}"#,
    );
    let unknown = Confinement::Unknown("thread 7 does not stop".to_owned());
    let pattern = CallPattern::parse("ptrace(PTRACE_ATTACH)").unwrap();
    let verdict = |threads: &[&Confinement]| {
        let threads: Vec<_> = threads.iter().map(|one| (7, (*one).clone())).collect();
        match judge(&threads, &pattern, MACHINE) {
            Verdict::Can { call, .. } => format!("can {call}"),
            Verdict::Cannot { actions } => format!("cannot {}", actions.join(" ")),
            Verdict::Undecided { reason } => format!("undecided {reason}"),
        }
    };
    for (case, threads, expected) in [
        ("all deny", &[&denies, &denies][..], "cannot SCMP_ACT_KILL_THREAD SCMP_ACT_ERRNO 1"),
        ("one without a filter", &[&denies, &Confinement::None], "can ptrace(0x10) on SCMP_ARCH_X86_64"),
        ("one that is not known", &[&denies, &unknown], "undecided thread 7 does not stop"),
        (
            "one that can beside one that is not known",
            &[&unknown, &Confinement::None],
            "can ptrace(0x10) on SCMP_ARCH_X86_64",
        ),
        (
            "a listener",
            &[&denies, &notifies],
            "undecided another process decides about ptrace(0x10) on SCMP_ARCH_X86_64: SCMP_ACT_NOTIFY",
        ),
        ("strict mode", &[&Confinement::Strict], "cannot SCMP_ACT_KILL_THREAD"),
        ("no thread", &[], "undecided it ended before it was read"),
    ] {
        assert_eq!(verdict(threads), expected, "{case}");
    }
}
