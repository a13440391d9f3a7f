//! A profile that is combined with a baseline allows no more than the baseline.

use std::collections::BTreeSet;

use super::*;
use crate::profile::{
    architecture::Architecture,
    filter::Answer,
    runtime_default::{RuntimeDefault, of_node},
    syscalls::Syscall,
};

/// Allows everything but one call: what a tenant writes who wants no profile.
const ALMOST_ALL: &str =
    r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["mkdir"],"action":"SCMP_ACT_ERRNO"}]}"#;

fn runtime_default(name: &str, capabilities: &BTreeSet<String>) -> Filter {
    let (runtime, version) = name.split_once('@').unwrap();
    of_node(runtime, version, capabilities, Architecture::COMMON, Some((6, 1))).unwrap()
}

fn denies(filter: &Filter, call: &str, first: u64) -> bool {
    let call = Call {
        architecture: Architecture::COMMON,
        syscall: Syscall::named(call),
        arguments: [first, 0, 0, 0, 0, 0],
    };
    filter.answer(&call, Architecture::COMMON).denies()
}

#[test]
fn a_profile_that_allows_almost_everything_allows_no_more_than_the_default() {
    let none = BTreeSet::new();
    // What a container has that sets no capabilities.
    let own = RuntimeDefault::named("docker").unwrap().default_capabilities();
    let every: BTreeSet<String> =
        own.iter().cloned().chain(["CAP_SYS_ADMIN", "CAP_SYS_TIME"].map(str::to_owned)).collect();
    for name in ["containerd@1.6.0", "containerd@2.3.4", "cri-o@1.36.3", "docker@29.4.2"] {
        for capabilities in [&none, &own, &every] {
            let bound = runtime_default(name, capabilities);
            let restricted = restrict(ALMOST_ALL, std::slice::from_ref(&bound)).unwrap();
            let filter = Filter::parse(&restricted.text).unwrap();
            assert_eq!(filter.at_least_as_strict_as(&bound, Strictness::Access).unwrap(), None, "{name}");
            assert!(denies(&filter, "mkdir", 0) && denies(&filter, "kexec_load", 0), "{name}");
            assert!(!denies(&filter, "read", 0), "{name}");
            for call in ["mount", "unshare", "chroot", "settimeofday", "bpf"] {
                assert_eq!(denies(&filter, call, 0), denies(&bound, call, 0), "{name} {call}");
            }
            let may_mount = capabilities.contains("CAP_SYS_ADMIN") || name.starts_with("cri-o");
            assert_eq!(denies(&filter, "mount", 0), !may_mount, "{name}");
            assert_eq!(restricted.sha256, sha256::hex(restricted.text.as_bytes()));
        }
    }
}

#[test]
fn the_default_without_capabilities_bounds_that_of_every_container() {
    let every: BTreeSet<String> = [
        "AUDIT_WRITE",
        "BPF",
        "CHOWN",
        "DAC_OVERRIDE",
        "DAC_READ_SEARCH",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_ADMIN",
        "NET_BIND_SERVICE",
        "NET_RAW",
        "PERFMON",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_ADMIN",
        "SYS_BOOT",
        "SYS_CHROOT",
        "SYS_MODULE",
        "SYS_NICE",
        "SYS_PACCT",
        "SYS_PTRACE",
        "SYS_RAWIO",
        "SYS_TIME",
        "SYS_TTY_CONFIG",
        "SYSLOG",
    ]
    .map(|name| format!("CAP_{name}"))
    .into();
    for name in [
        "containerd@1.6.0",
        "containerd@1.7.31",
        "containerd@2.3.4",
        "cri-o@1.24.0",
        "cri-o@1.36.3",
        "docker@29.4.2",
    ] {
        // CRI-O has rules that contradict each other: as an intersection resolves them.
        let none = runtime_default(name, &BTreeSet::new());
        let none = none.intersection(&none).unwrap();
        for capabilities in std::iter::once(&every) {
            let wider = runtime_default(name, capabilities);
            let found = none.at_least_as_strict_as(&wider, Strictness::Access).unwrap();
            assert_eq!(found, None, "{name} {capabilities:?}");
        }
    }
}

#[test]
fn what_is_no_profile_or_confines_nothing_is_rejected() {
    let bound = runtime_default("containerd@2.3.4", &BTreeSet::new());
    for (text, expected) in [
        (r#"{"defaultAction":"SCMP_ACT_ALLOW"}"#, "confines nothing"),
        (r#"{"foo":1}"#, "is not a seccomp profile"),
        (r#"{"defaultAction":"SCMP_ACT_ERRNO","listenerPath":"/run/a.sock"}"#, "listener"),
        ("{", "is not valid JSON"),
    ] {
        let error = restrict(text, std::slice::from_ref(&bound)).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn every_profile_of_a_baseline_counts() {
    let narrow = Filter::parse(
        r#"{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{"names":["read","write","mount"],"action":"SCMP_ACT_ALLOW"}]}"#,
    )
    .unwrap();
    let default = runtime_default("containerd@2.3.4", &BTreeSet::new());
    let restricted = Filter::parse(&restrict(ALMOST_ALL, &[default, narrow]).unwrap().text).unwrap();
    for (call, denied) in [("read", false), ("mount", true), ("openat", true)] {
        assert_eq!(denies(&restricted, call, 0), denied, "{call}");
    }
    assert!(matches!(
        restricted.answer(
            &Call { architecture: Architecture::COMMON, syscall: None, arguments: [0; 6] },
            Architecture::COMMON
        ),
        Answer::Action(_)
    ));
}

#[test]
fn a_baseline_reads_as_it_was_written() {
    for text in
        ["runtime/default", "localhost/team.json", "runtime/default,localhost/a/b.json,localhost/team.json"]
    {
        assert_eq!(Baseline::parse(text).unwrap().to_string(), text);
    }
    for text in [
        "",
        "unconfined",
        "localhost/",
        "localhost//etc/x",
        "localhost/../x",
        "localhost/palisade/x.json",
        "localhost/./palisade//x",
    ] {
        assert_eq!(Baseline::parse(text), None, "{text}");
    }
    assert_eq!(Baseline::of(BTreeSet::new()), Baseline::default());
    let source = sha256::hex(b"{}");
    let named = Baseline::parse("localhost/team.json").unwrap();
    assert_eq!(published_sha256(&source, &Baseline::default()), source);
    assert_ne!(published_sha256(&source, &named), source, "another baseline is another file");
    assert!(check_document(&format!("{source}\n{named}")).is_err(), "no source has the text that is hashed");
}

#[test]
fn the_folder_of_published_profiles_is_found_however_it_is_written() {
    for (path, expected) in [
        ("palisade/a.json", true),
        ("./palisade/a.json", true),
        ("palisade//a.json", true),
        (".//./palisade", true),
        ("own/palisade/a.json", false),
        ("palisade.json", false),
    ] {
        assert_eq!(in_published_folder(path), expected, "{path}");
    }
}
