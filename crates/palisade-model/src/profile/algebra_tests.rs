//! The algebra by example; `tests/it/algebra.rs` has its properties over random pairs.

use serde_json::{Value, json};

use super::*;

fn filter(profile: &Value) -> Filter {
    Filter::read(profile).unwrap()
}

fn socket(action: &str, op: &str, value: u64, default: &str) -> Value {
    json!({"defaultAction": default, "syscalls": [
        {"names": ["socket"], "action": action, "args": [{"index": 0, "op": op, "value": value}]}]})
}

const ALLOW: &str = "SCMP_ACT_ALLOW";
const ERRNO: &str = "SCMP_ACT_ERRNO";

#[test]
fn a_result_is_the_smallest_document_with_its_meaning() {
    let none = json!({"defaultAction": ERRNO});
    let all = json!({"defaultAction": ALLOW});
    for (case, result, expected) in [
        ("everything and nothing", filter(&all).intersection(&filter(&none)), none.clone()),
        ("everything or nothing", filter(&all).union(&filter(&none)), all.clone()),
        (
            "two values taken out leave three ranges",
            filter(&socket(ALLOW, "SCMP_CMP_NE", 40, ERRNO)).intersection(&filter(&socket(ERRNO, "SCMP_CMP_EQ", 38, ALLOW))),
            json!({"defaultAction": ERRNO, "syscalls": [
                {"names": ["socket"], "action": ALLOW, "args": [{"index": 0, "op": "SCMP_CMP_LE", "value": 37}]},
                {"names": ["socket"], "action": ALLOW, "args": [{"index": 0, "op": "SCMP_CMP_EQ", "value": 39}]},
                {"names": ["socket"], "action": ALLOW, "args": [{"index": 0, "op": "SCMP_CMP_GE", "value": 41}]}]}),
        ),
        (
            "a value and all others",
            filter(&socket(ALLOW, "SCMP_CMP_NE", 40, ERRNO)).union(&filter(&socket(ALLOW, "SCMP_CMP_EQ", 40, ERRNO))),
            json!({"defaultAction": ERRNO, "syscalls": [{"names": ["socket"], "action": ALLOW}]}),
        ),
        (
            "names with the same rule are together, and unknown ones are gone",
            filter(&json!({"defaultAction": ERRNO, "defaultErrnoRet": 1, "x": 1, "syscalls": [
                {"names": ["write", "nope"], "action": ALLOW}, {"names": ["read"], "action": ALLOW, "errnoRet": 5},
                {"names": ["mount"], "action": ERRNO}, {"names": ["bpf"], "action": ERRNO, "errnoRet": 38}]})).normalized(),
            json!({"defaultAction": ERRNO, "syscalls": [
                {"names": ["bpf"], "action": ERRNO, "errnoRet": 38}, {"names": ["read", "write"], "action": ALLOW}]}),
        ),
        (
            "what is taken away gets the default action",
            filter(&json!({"defaultAction": ERRNO, "defaultErrnoRet": 38, "syscalls": [{"names": ["read", "bpf"], "action": ALLOW}]}))
                .without(&filter(&json!({"defaultAction": ERRNO, "syscalls": [{"names": ["bpf"], "action": "SCMP_ACT_LOG"}]}))),
            json!({"defaultAction": ERRNO, "defaultErrnoRet": 38, "syscalls": [{"names": ["read"], "action": ALLOW}]}),
        ),
        (
            "or EPERM, if that allows",
            filter(&all).without(&filter(&json!({"defaultAction": ERRNO, "syscalls": [{"names": ["bpf"], "action": ALLOW}]}))),
            json!({"defaultAction": ALLOW, "syscalls": [{"names": ["bpf"], "action": ERRNO}]}),
        ),
    ] {
        assert_eq!(result.unwrap().to_oci(), expected, "{case}");
    }
}

#[test]
fn the_kernels_order_decides_and_the_first_number_is_kept() {
    let actions = ["KILL_PROCESS", "KILL_THREAD", "TRAP", "ERRNO", "NOTIFY", "TRACE", "LOG", "ALLOW"];
    let of = |action: &str, errno: u64| {
        filter(&json!({"defaultAction": "SCMP_ACT_KILL_PROCESS", "listenerPath": "/run/l", "syscalls": [
            {"names": ["read"], "action": format!("SCMP_ACT_{action}"), "errnoRet": errno}]}))
    };
    let read = |filter: &Filter| {
        let call =
            Call { architecture: Architecture::COMMON, syscall: Syscall::named("read"), arguments: [0; 6] };
        filter.answer(&call, Architecture::COMMON)
    };
    for (stricter, first) in actions.iter().enumerate() {
        for (looser, second) in actions.iter().enumerate() {
            let (a, b) = (of(first, 7), of(second, 9));
            let (strict, loose) = if stricter <= looser { (&a, &b) } else { (&b, &a) };
            let loose = if stricter == looser { &a } else { loose };
            assert_eq!(read(&a.intersection(&b).unwrap()), read(strict), "{first} {second}");
            assert_eq!(read(&a.union(&b).unwrap()), read(loose), "{first} {second}");
        }
    }
}

#[test]
fn what_no_profile_expresses_is_an_error() {
    let on = |architectures: Value, names: Value| {
        filter(
            &json!({"defaultAction": ERRNO, "architectures": architectures, "syscalls": [{"names": names, "action": ALLOW}]}),
        )
    };
    let both = on(json!(["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"]), json!(["read"]));
    let wide = on(json!(["SCMP_ARCH_X86_64"]), json!(["write"]));
    assert_eq!(
        both.union(&wide).unwrap_err().to_string(),
        "no profile can express the result: write() on SCMP_ARCH_X86 needs a rule of its own, and the rules of a profile apply to every architecture that it lists"
    );
    // What both allow everywhere is expressible, and so is every intersection.
    assert!(both.union(&on(json!(["SCMP_ARCH_X86_64"]), json!(["read"]))).is_ok());
    assert_eq!(both.intersection(&wide).unwrap().to_oci()["architectures"], json!(["SCMP_ARCH_X86_64"]));
    let contradicting = filter(&json!({"defaultAction": ERRNO, "syscalls": [
        {"names": ["clone"], "action": ALLOW, "args": [{"index": 0, "op": "SCMP_CMP_LE", "value": 5}]},
        {"names": ["clone"], "action": "SCMP_ACT_KILL", "args": [{"index": 1, "op": "SCMP_CMP_EQ", "value": 3}]}]}));
    assert_eq!(
        contradicting.normalized().unwrap_err().to_string(),
        "rules of one profile contradict each other: clone(0x0, 0x3) on SCMP_ARCH_AARCH64 gets either SCMP_ACT_KILL_THREAD or SCMP_ACT_ALLOW"
    );
    let listening = |path: &str| {
        filter(
            &json!({"defaultAction": ERRNO, "listenerPath": path, "syscalls": [{"names": ["bpf"], "action": "SCMP_ACT_NOTIFY"}]}),
        )
    };
    assert_eq!(
        listening("/a").intersection(&listening("/b")).unwrap_err().to_string(),
        "both profiles leave calls to a listener, at \"/a\" and at \"/b\": a profile has only one"
    );
    assert_eq!(
        listening("/a").union(&filter(&json!({"defaultAction": ERRNO}))).unwrap().to_oci()["listenerPath"],
        "/a"
    );
}

#[test]
fn a_counterexample_is_a_call() {
    for (case, a, b, strictness, expected) in [
        (
            "equal",
            json!({"defaultAction": ERRNO}),
            json!({"defaultAction": ERRNO, "defaultErrnoRet": 9}),
            Strictness::Actions,
            None,
        ),
        (
            "one value",
            socket(ALLOW, "SCMP_CMP_NE", 40, ERRNO),
            json!({"defaultAction": ERRNO, "syscalls": [
                {"names": ["socket"], "action": ALLOW, "args": [{"index": 0, "op": "SCMP_CMP_LT", "value": 38}]},
                {"names": ["socket"], "action": ALLOW, "args": [{"index": 0, "op": "SCMP_CMP_GT", "value": 38}]}]}),
            Strictness::Access,
            Some("socket(0x26) on SCMP_ARCH_X86_64: SCMP_ACT_ALLOW, SCMP_ACT_ERRNO 1"),
        ),
        (
            "logged is made too",
            json!({"defaultAction": ALLOW}),
            json!({"defaultAction": "SCMP_ACT_LOG"}),
            Strictness::Access,
            None,
        ),
        (
            "but is not as lax",
            json!({"defaultAction": ALLOW}),
            json!({"defaultAction": "SCMP_ACT_LOG"}),
            Strictness::Actions,
            Some("_sysctl() on SCMP_ARCH_X86_64: SCMP_ACT_ALLOW, SCMP_ACT_LOG"),
        ),
        (
            "an architecture",
            json!({"defaultAction": ALLOW, "architectures": ["SCMP_ARCH_X32"]}),
            json!({"defaultAction": ALLOW}),
            Strictness::Access,
            Some("accept() on SCMP_ARCH_X32: SCMP_ACT_ALLOW, SCMP_ACT_KILL_THREAD"),
        ),
    ] {
        let found = filter(&a).at_least_as_strict_as(&filter(&b), strictness).unwrap();
        let shown = found.map(|found| format!("{}: {}, {}", found.call, found.answer, found.bound));
        assert_eq!(shown.as_deref(), expected, "{case}");
    }
}

#[test]
fn the_flag_that_lifts_a_mitigation_needs_both() {
    let with = |flags: Value| filter(&json!({"defaultAction": ERRNO, "flags": flags}));
    let spec = "SECCOMP_FILTER_FLAG_SPEC_ALLOW";
    let log = "SECCOMP_FILTER_FLAG_LOG";
    for (a, b, both, either) in [
        (json!(null), json!(null), json!(null), json!(null)),
        (json!([]), json!([spec]), json!([]), json!([spec])),
        (json!([]), json!(null), json!([]), json!([spec])),
        (json!([spec, log]), json!([spec]), json!([log, spec]), json!([log, spec])),
    ] {
        let (a, b) = (with(a), with(b));
        let flags = |filter: Filter| filter.to_oci().get("flags").cloned().unwrap_or_default();
        assert_eq!(flags(a.intersection(&b).unwrap()), both);
        assert_eq!(flags(a.union(&b).unwrap()), either);
    }
}
