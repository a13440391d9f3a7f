//! Recordings by example; `tests/system/recording.rs` of the node has the kernel and a runtime.

use super::{
    document::{combined, combined_profile},
    *,
};
use crate::profile::runtime_default::RuntimeDefault;

const MACHINE: Architecture = Architecture::COMMON;

fn runtime_default(capabilities: &[&str]) -> Filter {
    let default = RuntimeDefault::named("containerd").unwrap();
    let capabilities = capabilities.iter().map(|name| (*name).to_owned()).collect();
    Filter::read(&default.profile(&capabilities, MACHINE, Some((6, 1))).unwrap()).unwrap()
}

fn call(name: &str, arguments: Arguments) -> RecordedCall {
    let number = Syscall::named(name).unwrap().number(MACHINE).unwrap();
    RecordedCall::reported(MACHINE.audit(), number, &arguments).unwrap()
}

fn recorded(base: &Filter, calls: &[(&str, u64, u64)]) -> Recording {
    let mut recording = Recording::new(MACHINE);
    recording.begin("c", base);
    for (name, first, second) in calls {
        recording.note("c", call(name, [*first, *second, 0, 0, 0, 0]), Phase::Run);
    }
    recording
}

fn answer(filter: &Filter, name: &str, first: u64, second: u64) -> Action {
    let arguments = [first, second, 0, 0, 0, 0];
    let call = Call { architecture: MACHINE, syscall: Syscall::named(name), arguments };
    match filter.answer(&call, MACHINE) {
        Answer::Action(action) => action,
        Answer::Conflict(_) => panic!("one answer"),
    }
}

const EPERM: Action = Action::Errno(1);
const ENOSYS: Action = Action::Errno(38);

#[test]
fn a_recorded_container_is_denied_what_it_was_denied_and_the_rest_is_reported() {
    let path = "/run/palisade/recorder";
    for (case, base, expected) in [
        (
            "the runtime's default",
            runtime_default(&[]),
            [
                ("mount", 0, EPERM),
                ("clone3", 0, ENOSYS),
                ("clone", 0x1000_0000, EPERM),
                ("clone", 0x50f00, Action::Allow),
                ("openat", 0, Action::Notify),
                ("rt_sigreturn", 0, Action::Allow),
                ("write", 0, Action::Allow),
            ],
        ),
        (
            "no profile",
            unconfined(MACHINE).unwrap(),
            [
                ("mount", 0, Action::Notify),
                ("clone3", 0, Action::Notify),
                ("clone", 0x1000_0000, Action::Notify),
                ("clone", 0x50f00, Action::Allow),
                ("openat", 0, Action::Notify),
                ("rt_sigreturn", 0, Action::Allow),
                ("write", 0, Action::Allow),
            ],
        ),
    ] {
        let notifying = notifying(&base, MACHINE, path, "token").unwrap();
        for (name, first, action) in expected {
            assert_eq!(answer(&notifying, name, first, 0), action, "{case}: {name}({first:#x})");
        }
        let document = notifying.to_oci();
        assert_eq!(document["listenerPath"], path, "{case}");
        assert_eq!(document["listenerMetadata"], "token", "{case}");
        assert_eq!(notifying.at_least_as_strict_as(&base, Strictness::Access), Ok(None), "{case}");
        let x86 = Architecture::named("SCMP_ARCH_X86").unwrap();
        let old = Call { architecture: x86, syscall: Syscall::named("openat"), arguments: [0; 6] };
        assert_eq!(notifying.answer(&old, MACHINE), Answer::Action(Action::Notify), "{case}");
        // A listener of its own would not be the recorder.
        assert_eq!(
            super::notifying(&notifying, MACHINE, path, "other"),
            Err(RecordingError::Listener),
            "{case}"
        );
    }
}

#[test]
fn the_profile_allows_what_was_recorded_and_no_more_than_the_container_had() {
    let calls = [("openat", 0, 0), ("socket", 2, 1), ("ioctl", 3, 0x5401), ("prctl", 15, 0)];
    for base in [runtime_default(&[]), unconfined(MACHINE).unwrap()] {
        let profile = recorded(&base, &calls).profile().unwrap();
        for (name, first, second, action) in [
            ("openat", 9, 9, Action::Allow),
            ("socket", 2, 3, Action::Allow),
            ("socket", 38, 0, EPERM),
            ("socket", 1, 0, EPERM),
            ("ioctl", 7, 0x5401, Action::Allow),
            ("ioctl", 3, 0x5402, EPERM),
            ("clone", 0x0120_0011, 0, Action::Allow),
            // A thread.
            ("clone", 0x50f00, 0, Action::Allow),
            ("clone", 0x1000_0011, 0, EPERM),
            ("prctl", 15, 0, Action::Allow),
            ("prctl", 22, 0, EPERM),
            // The C library relies on that number.
            ("clone3", 0, 0, ENOSYS),
            ("mount", 0, 0, EPERM),
            ("write", 0, 0, Action::Allow),
            ("futex", 0, 0, Action::Allow),
            ("unlink", 0, 0, EPERM),
        ] {
            assert_eq!(answer(&profile, name, first, second), action, "{name}({first:#x}, {second:#x})");
        }
        assert_eq!(profile.at_least_as_strict_as(&base, Strictness::Access), Ok(None));
        assert_eq!(profile.normalized().unwrap().to_oci(), profile.to_oci(), "it is minimal");
        assert_eq!(profile.to_oci()["architectures"], json!(["SCMP_ARCH_X86_64"]));
        // What a tenant may bring.
        crate::profile::config_map::check_document(&profile.to_oci().to_string()).unwrap();
    }
}

#[test]
fn values_that_no_rule_can_tell_apart_are_allowed_together() {
    let base = runtime_default(&[]);
    // musl extends the sign of a request; the kernel reads the lower half.
    let wide = 0xffff_ffff_8004_5430;
    let profile = recorded(&base, &[("ioctl", 0, wide), ("ioctl", 0, 0x5401)]).profile().unwrap();
    assert_eq!(answer(&profile, "ioctl", 0, wide), Action::Allow);
    assert_eq!(answer(&profile, "ioctl", 0, 0x8004_5430), Action::Allow);
    assert_eq!(answer(&profile, "ioctl", 0, 0x5401), Action::Allow);
    assert_eq!(answer(&profile, "ioctl", 0, 0x5402), EPERM);
    // A namespace that was made, of a container that may.
    let free = unconfined(MACHINE).unwrap();
    let profile = recorded(&free, &[("clone", 0x1000_0011, 0)]).profile().unwrap();
    for (flags, action) in [(0x1000_0011, Action::Allow), (0x11, Action::Allow), (0x2000_0011, EPERM)] {
        assert_eq!(answer(&profile, "clone", flags, 0), action, "{flags:#x}");
    }
    // Too many values to list.
    let many: Vec<(&str, u64, u64)> = (0..200).map(|request| ("ioctl", 0, request)).collect();
    let recording = recorded(&base, &many);
    assert_eq!(answer(&recording.profile().unwrap(), "ioctl", 0, 5000), Action::Allow);
    assert!(recording.statement(None)["arguments"]["ioctl"].as_array().unwrap().contains(&json!("any")));
    // A family above 32 bits: the default has ranges of the same argument.
    let odd = recorded(&base, &[("socket", 0x1_0000_0002, 0)]);
    let profile = odd.profile().unwrap();
    assert_eq!(answer(&profile, "socket", 0x1_0000_0002, 0), Action::Allow);
    assert_eq!(profile.at_least_as_strict_as(&base, Strictness::Access), Ok(None));
}

#[test]
fn containers_have_one_profile_together() {
    let (plain, admin) = (runtime_default(&[]), runtime_default(&["CAP_SYS_ADMIN"]));
    let mut recording = Recording::new(MACHINE);
    recording.begin("web", &plain);
    recording.begin("mounter", &admin);
    recording.note("web", call("listen", [0; 6]), Phase::Start);
    recording.note("mounter", call("mount", [0; 6]), Phase::Init);
    let profile = recording.profile().unwrap();
    assert_eq!(answer(&profile, "listen", 0, 0), Action::Allow);
    assert_eq!(answer(&profile, "mount", 0, 0), Action::Allow);
    assert_eq!(answer(&profile, "umount2", 0, 0), EPERM);
    let beyond: Vec<String> = recording.beyond(&plain).into_iter().collect();
    assert_eq!(beyond, ["mount() on SCMP_ARCH_X86_64"]);
    let statement = recording.statement(Some(&plain));
    assert_eq!(statement["phases"], json!({"init": 1, "start": 1}));
    assert_eq!(statement["phasesNotSeen"], json!(["runtime", "run", "probe", "exec", "shutdown"]));
    assert_eq!(statement["complete"], true);
    // Another profile for the same container: what was not called then may have been denied.
    recording.begin("web", &admin);
    assert_eq!(
        recording.statement(None)["lossy"],
        json!(["container \"web\" did not have the same profile all the time"])
    );
    assert_eq!(Recording::new(MACHINE).profile(), Err(RecordingError::Empty));
}

#[test]
fn a_journal_is_the_recording_and_shows_whether_it_ended() {
    let base = runtime_default(&[]);
    let mut recording = Recording::new(MACHINE);
    let mut journal: Vec<String> = recording.begin("c", &base).1.into_iter().collect();
    let mut note = |call: RecordedCall, phase: Phase| journal.extend(recording.note("c", call, phase));
    note(call("socket", [2, 1, 0, 0, 0, 0]), Phase::Start);
    note(call("socket", [2, 5, 0, 0, 0, 0]), Phase::Start);
    note(call("socket", [2, 5, 0, 0, 0, 0]), Phase::Run);
    note(call("read", [0; 6]), Phase::Run);
    assert_eq!(journal.len(), 4, "what is known is not written again: {journal:#?}");
    let text = journal.join("\n") + "\n";
    let whole = format!("{text}{}\n", recording.end());
    assert_eq!(Recording::replay(&whole).unwrap(), recording);
    let early = "the recorder ended before the containers did: their later calls failed with ENOSYS";
    for (case, text) in [
        ("killed", text.clone()),
        ("killed while it wrote", format!("{text}{{\"container\":\"c\",\"ca")),
        ("killed within the last line", whole.trim_end().get(..whole.len() - 3).unwrap().to_owned()),
    ] {
        let replayed = Recording::replay(&text).unwrap();
        assert!(!replayed.is_complete(), "{case}");
        assert_eq!(replayed.statement(None)["lossy"], json!([early]), "{case}");
        assert_eq!(replayed.profile().unwrap(), recording.profile().unwrap(), "{case}");
    }
    for (text, expected) in [
        ("", "the journal is empty"),
        ("{\"end\":true,\"interrupted\":0}\n", "line 1 is not an entry of a recording"),
        ("nonsense\n", "line 1 is not valid JSON"),
        (&format!("{text}{{\"call\":\"nope\"}}\n"), "line 5 is not an entry of a recording"),
        (&text.replace("\"start\"", "\"dawn\""), "line 2 is not an entry of a recording"),
        (&text.replace("SCMP_ACT_ALLOW", "SCMP_ACT_NOPE"), "line 1: the profile"),
        (
            &text.replacen("\"container\":\"c\",\"phase\"", "\"container\":\"d\",\"phase\"", 1),
            "line 2 is not an entry of a recording",
        ),
    ] {
        let error = Recording::replay(text).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn a_profile_that_is_tried_out_allows_what_it_allows_and_leaves_the_rest_to_the_listener() {
    let base = runtime_default(&[]);
    let candidate = |architectures: &[&str]| {
        Filter::read(&json!({"defaultAction": "SCMP_ACT_ERRNO", "architectures": architectures,
        "syscalls": [{"names": ["read", "openat", "mount"], "action": "SCMP_ACT_ALLOW"},
            {"names": ["socket"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 0, "op": "SCMP_CMP_EQ", "value": 2}]},
            {"names": ["mkdir"], "action": "SCMP_ACT_KILL_PROCESS"}]}))
        .unwrap()
    };
    let same = candidate(&["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"]);
    let tried = complaining(&base, &same, MACHINE, "/run/l", "token").unwrap();
    for (name, first, action) in [
        ("openat", 0, Action::Allow),
        ("socket", 2, Action::Allow),
        ("socket", 1, Action::Notify),
        ("mkdir", 0, Action::Notify),
        ("getdents64", 0, Action::Notify),
        ("futex", 0, Action::Allow),
        // The candidate allows it, and the container was never allowed to make it.
        ("mount", 0, EPERM),
        ("umount2", 0, EPERM),
    ] {
        assert_eq!(answer(&tried, name, first, 0), action, "{name}({first})");
    }
    assert_eq!(tried.at_least_as_strict_as(&base, Strictness::Access), Ok(None));
    // One that covers fewer architectures: the listener decides.
    let narrow = complaining(&base, &candidate(&["SCMP_ARCH_X86_64"]), MACHINE, "/run/l", "token").unwrap();
    for (name, action) in
        [("openat", Action::Notify), ("mkdir", Action::Notify), ("mount", EPERM), ("write", Action::Allow)]
    {
        assert_eq!(answer(&narrow, name, 0, 0), action, "{name}");
    }
    assert_eq!(narrow.at_least_as_strict_as(&base, Strictness::Access), Ok(None));
    let unseen = unseen(&base, &same, MACHINE);
    assert!(unseen.contains("write") && unseen.contains("futex") && !unseen.contains("read"), "{unseen:?}");
}

#[test]
fn what_a_tenant_repeats_takes_no_more_space() {
    let (base, other) = (runtime_default(&[]), runtime_default(&["CAP_SYS_ADMIN"]));
    let mut recording = Recording::new(MACHINE);
    assert!(recording.begin("c", &base).1.is_some());
    assert_eq!(recording.begin("c", &base), (true, None), "a restart");
    assert!(recording.begin("c", &other).1.is_some(), "another profile is a loss");
    assert_eq!(recording.begin("c", &other), (true, None), "which is written once");
    let lines = (0..10_000).filter(|index| recording.lose(&format!("reason {index}")).is_some()).count();
    assert!(lines < MAX_LOSSES && recording.losses().count() == MAX_LOSSES);
    assert!(recording.losses().any(|reason| reason == "there are further reasons"));
    let begun = (0..1000).filter(|index| recording.begin(&format!("c{index}"), &base).0).count();
    assert_eq!(begun, MAX_CONTAINERS - 1);
}

#[test]
fn parts_of_nodes_are_put_together() {
    let (plain, admin) = (runtime_default(&[]), runtime_default(&["CAP_SYS_ADMIN"]));
    let first = recorded(&plain, &[("listen", 0, 0), ("socket", 2, 0)]);
    let mut second = recorded(&admin, &[("mount", 0, 0), ("ioctl", 0, 0xffff_ffff_ffff_fff0)]);
    second.lose("something");
    second.interrupt();
    for part in [&first, &second] {
        assert_eq!(Recording::from_document(&part.to_document()).as_ref(), Ok(part), "as it was");
        let mut resumed = Recording::replay(&part.journal()).unwrap();
        assert!(!resumed.is_complete(), "a journal without an end is a loss");
        resumed.losses.clone_from(&part.losses);
        assert_eq!(&resumed, part);
    }
    let all = [first, second];
    let together = combined(&all).unwrap();
    assert_eq!(together.calls(), ["ioctl", "listen", "mount", "socket"].into());
    assert_eq!(together.losses().collect::<Vec<_>>(), ["something"]);
    // Each node's containers are bounded by the profile that they had there.
    let profile = combined_profile(&all).unwrap();
    for (name, action) in [("listen", Action::Allow), ("mount", Action::Allow), ("umount2", EPERM)] {
        assert_eq!(answer(&profile, name, 0, 0), action, "{name}");
    }
    assert_eq!(combined_profile(&[]), Err(RecordingError::Empty));
    assert_eq!(combined(&[]), None);
    let document = all[0].to_document();
    for (case, path, value) in [
        ("a machine that is not known", "/machine", json!("VAX")),
        ("a call that is not known", "/containers/0/calls/0/name", json!("listenn")),
        ("a phase that is not known", "/containers/0/calls/0/phases/0", json!("dawn")),
        ("an argument that is a number", "/containers/0/calls/1/argument", json!(2)),
        ("a profile that is none", "/containers/0/base", json!("{}")),
        ("no losses", "/lossy", json!(null)),
    ] {
        let mut document = document.clone();
        *document.pointer_mut(path).unwrap() = value;
        assert!(Recording::from_document(&document).is_err(), "{case}");
    }
}
