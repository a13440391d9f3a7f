//! Guards on the profiles that containers have, judged by the programs that follow from them.

use serde_json::{Value, json};

use super::*;
use crate::profile::runtime_default::RuntimeDefault;

const MACHINE: Architecture = Architecture::COMMON;

fn patterns(texts: &[&str]) -> Vec<CallPattern> {
    texts.iter().map(|text| CallPattern::parse(text).unwrap()).collect()
}

/// Whether the call itself is made, for some arguments that the pattern means; not the other ways in which it can be.
fn can(document: &Value, pattern: &str) -> bool {
    let pattern = CallPattern::parse(pattern).unwrap();
    let way = Way { syscall: pattern.syscall(), arguments: *pattern.arguments(), because: None };
    let filter = Filter::read(document).unwrap();
    filter.check_denied(&BTreeMap::from([(way.syscall, vec![way])]), MACHINE).is_err()
}

fn runtime_default(name: &str, extra: &[&str]) -> Value {
    let profile = RuntimeDefault::named(name).unwrap();
    let mut capabilities = profile.default_capabilities();
    capabilities.extend(extra.iter().map(ToString::to_string));
    profile.profile(&capabilities, MACHINE, Some((6, 1))).unwrap()
}

#[test]
fn what_is_forbidden_is_denied_in_every_profile_and_nothing_else_changes() {
    let profiles = [
        ("containerd 1.6", runtime_default("containerd@1.6.20", &[])),
        (
            "containerd 1.6, all capabilities",
            runtime_default("containerd@1.6.20", &["CAP_SYS_ADMIN", "CAP_BPF"]),
        ),
        ("containerd 1.7", runtime_default("containerd@1.7.32", &[])),
        ("containerd 2.3", runtime_default("containerd@2.3.4", &[])),
        ("CRI-O", runtime_default("cri-o@1.36.3", &[])),
        ("Docker", runtime_default("docker@29.4.2", &[])),
        ("everything", json!({"defaultAction": "SCMP_ACT_ALLOW"})),
        ("nothing", json!({"defaultAction": "SCMP_ACT_ERRNO"})),
        (
            "a listener",
            json!({"defaultAction": "SCMP_ACT_ALLOW", "listenerPath": "/l",
                "syscalls": [{"names": ["socket", "ptrace"], "action": "SCMP_ACT_NOTIFY"}]}),
        ),
    ];
    let guards: [(&[&str], &[&str]); 6] = [
        (
            &["socket(AF_ALG, *, *)"],
            &["socket(AF_INET)", "socket(AF_UNIX, SOCK_STREAM)", "socket(39)", "bind"],
        ),
        (
            &["socket(AF_NETLINK, *, NETLINK_XFRM)"],
            &["socket(AF_NETLINK, *, NETLINK_ROUTE)", "socket(AF_INET, *, NETLINK_XFRM)"],
        ),
        (&["socket(AF_ALG)", "socket(AF_VSOCK)", "socket(AF_TIPC)"], &["socket(AF_INET6)", "socket(31)"]),
        (
            &["clone(&CLONE_NEWUSER)", "unshare(&CLONE_NEWUSER)"],
            &["clone(0)", "unshare(CLONE_NEWNS)", "openat"],
        ),
        (&["keyctl", "add_key(*)", "shmget(*, *, *)"], &["shmctl", "socket(AF_INET)", "socketcall"]),
        (&["ioctl(*, TIOCSTI)"], &["ioctl(*, 1)", "ioctl(0, 0x80000000)"]),
    ];
    for (name, profile) in &profiles {
        for (texts, others) in &guards {
            let found = guarded(Some(profile), &patterns(texts), MACHINE);
            let document = found.unwrap_or_else(|error| panic!("{name} {texts:?}: {error}"));
            for text in *texts {
                assert!(!can(&document, text), "{name}: {text}");
                for way in CallPattern::parse(text).unwrap().other_ways() {
                    assert!(
                        !can(&document, way.syscall.name()),
                        "{name}: {text} through {}",
                        way.syscall.name()
                    );
                }
            }
            for other in *others {
                assert_eq!(can(&document, other), can(profile, other), "{name} {texts:?}: {other}");
            }
            assert!(document["syscalls"].as_array().unwrap().len() < 400, "{name} {texts:?}");
            assert_eq!(document.get("listenerPath"), profile.get("listenerPath"));
        }
    }
}

#[test]
fn a_container_without_a_profile_gets_one_that_allows_all_else_to_programs_of_every_convention() {
    let guard = patterns(&["socket(AF_ALG, *, *)"]);
    let expected = guarded(None, &guard, MACHINE).unwrap();
    assert_eq!(expected["defaultAction"], "SCMP_ACT_ALLOW");
    assert_eq!(expected["architectures"], json!(["SCMP_ARCH_X32", "SCMP_ARCH_X86", "SCMP_ARCH_X86_64"]));
    let rule = |names: &[&str], errno: Option<u16>, value: Option<Value>| {
        let mut rule = json!({"names": names, "action": "SCMP_ACT_ERRNO"});
        if let Some(errno) = errno {
            rule["errnoRet"] = errno.into();
        }
        if let Some(value) = value {
            rule["args"] = json!([{"index": 0, "value": 0xffff_ffff_u64, "op": "SCMP_CMP_MASKED_EQ", "valueTwo": value}]);
        }
        rule
    };
    let mut found = expected["syscalls"].as_array().unwrap().clone();
    found.sort_by_key(|rule| rule["names"][0].as_str().unwrap().to_owned());
    assert_eq!(
        found,
        [
            rule(&["io_uring_setup"], Some(38), None),
            rule(&["socket"], None, Some(json!(38))),
            rule(&["socketcall"], Some(38), None),
        ]
    );
    assert_eq!(
        guarded(Some(&json!({})), &guard, MACHINE).unwrap(),
        expected,
        "runtimes take it for no profile"
    );
    assert!(can(&expected, "mount") && can(&expected, "socket(AF_INET)"));
}

#[test]
fn what_is_not_understood_stays_as_it_is_or_is_an_error() {
    let guard = patterns(&["ptrace"]);
    let profile = json!({"defaultAction": "SCMP_ACT_ALLOW", "flags": ["SECCOMP_FILTER_FLAG_LOG"], "syscalls": [
        {"names": ["not_yet_known", "ptrace"], "action": "SCMP_ACT_ERRNO", "errnoRet": 5}, {"names": ["ptrace"], "action": "SCMP_ACT_LOG"}]});
    let document = guarded(Some(&profile), &guard, MACHINE).unwrap();
    assert_eq!(
        document["syscalls"][0],
        json!({"names": ["not_yet_known"], "action": "SCMP_ACT_ERRNO", "errnoRet": 5})
    );
    assert_eq!(document["flags"], profile["flags"]);
    assert!(!can(&document, "ptrace"));
    for profile in
        [json!({"defaultAction": "SCMP_ACT_NOPE"}), json!([]), json!({"syscalls": [{"names": ["read"]}]})]
    {
        assert!(matches!(guarded(Some(&profile), &guard, MACHINE), Err(GuardError::Filter(_))), "{profile}");
    }
}
