//! The evaluation by example, and against single runs of the programs.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::profile::{bpf::SeccompData, filter::Filter};

const MACHINE: Architecture = Architecture::COMMON;

fn program(profile: &Value) -> Vec<Instruction> {
    Filter::read(profile).unwrap().compile(MACHINE).unwrap().instructions
}

fn verdict(filters: &[Vec<Instruction>], pattern: &str) -> String {
    match reach(filters, &CallPattern::parse(pattern).unwrap(), MACHINE) {
        Ok(Reach::Can(Witness { call, action, because })) => {
            format!("{action} {call}{}", because.map(|why| format!(": {why}")).unwrap_or_default())
        }
        Ok(Reach::Delegated(Witness { call, action, .. })) => format!("delegated {action} {call}"),
        Ok(Reach::Cannot(actions)) => {
            let actions: Vec<String> = actions.iter().map(ToString::to_string).collect();
            format!("cannot {}", actions.join(", "))
        }
        Err(error) => error.to_string(),
    }
}

fn socket(op: &str, value: u64, action: &str, default: &str) -> Value {
    json!({"defaultAction": default, "syscalls": [
        {"names": ["socket"], "action": action, "args": [{"index": 0, "op": op, "value": value, "valueTwo": 38}]},
        {"names": ["io_uring_setup"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38}]})
}

const ALLOW: &str = "SCMP_ACT_ALLOW";
const ERRNO: &str = "SCMP_ACT_ERRNO";

#[test]
fn a_value_that_gets_through_is_found_wherever_it_is() {
    let eq = program(&socket("SCMP_CMP_EQ", 38, ERRNO, ALLOW));
    let masked = program(&socket("SCMP_CMP_MASKED_EQ", 0xffff_ffff, ERRNO, ALLOW));
    let only = program(&socket("SCMP_CMP_EQ", 2, ALLOW, ERRNO));
    let ring = program(
        &json!({"defaultAction": ERRNO, "syscalls": [{"names": ["io_uring_setup"], "action": ALLOW}]}),
    );
    let notify = program(
        &json!({"defaultAction": ERRNO, "syscalls": [{"names": ["socket"], "action": "SCMP_ACT_NOTIFY"}]}),
    );
    let log = program(
        &json!({"defaultAction": ERRNO, "syscalls": [{"names": ["socket"], "action": "SCMP_ACT_LOG"}]}),
    );
    let narrow =
        program(&json!({"defaultAction": ERRNO, "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"],
        "syscalls": [{"names": ["socketcall"], "action": ALLOW}]}));
    let flags = program(&json!({"defaultAction": ALLOW, "syscalls": [
        {"names": ["clone"], "action": ERRNO, "args": [{"index": 0, "op": "SCMP_CMP_GE", "value": 0x1000_0000}]},
        {"names": ["clone3"], "action": ERRNO, "errnoRet": 38}]}));
    for (case, filters, pattern, expected) in [
        ("no filter", vec![], "socket(AF_ALG)", "SCMP_ACT_ALLOW socket(0x26) on SCMP_ARCH_X86_64"),
        (
            "a filter compares 64 bits, the kernel reads 32",
            vec![eq.clone()],
            "socket(AF_ALG, *, *)",
            "SCMP_ACT_ALLOW socket(0x100000026) on SCMP_ARCH_X86_64",
        ),
        (
            "exactly this value of 64 bits, which io_uring can have",
            vec![eq.clone()],
            "socket(38/0xffffffffffffffff)",
            "cannot SCMP_ACT_KILL_THREAD, SCMP_ACT_ERRNO 1, SCMP_ACT_ERRNO 38",
        ),
        (
            "a mask of the lower half",
            vec![masked.clone()],
            "socket(AF_ALG)",
            "cannot SCMP_ACT_KILL_THREAD, SCMP_ACT_ERRNO 1, SCMP_ACT_ERRNO 38",
        ),
        (
            "another family",
            vec![masked.clone()],
            "socket(AF_INET)",
            "SCMP_ACT_ALLOW socket(0x2) on SCMP_ARCH_X86_64",
        ),
        ("any family", vec![masked.clone()], "socket", "SCMP_ACT_ALLOW socket() on SCMP_ARCH_X86_64"),
        (
            "only one family",
            vec![only.clone()],
            "socket(*, SOCK_RAW)",
            "SCMP_ACT_ALLOW socket(0x2, 0x3) on SCMP_ARCH_X86_64",
        ),
        (
            "not that one",
            vec![only.clone()],
            "socket(AF_ALG)",
            "cannot SCMP_ACT_KILL_THREAD, SCMP_ACT_ERRNO 1, SCMP_ACT_ERRNO 38",
        ),
        (
            "two filters together",
            vec![masked.clone(), only.clone()],
            "socket(2)",
            "SCMP_ACT_ALLOW socket(0x2) on SCMP_ARCH_X86_64",
        ),
        (
            "the strictest counts",
            vec![only, eq],
            "socket(AF_ALG)",
            "cannot SCMP_ACT_KILL_THREAD, SCMP_ACT_ERRNO 1, SCMP_ACT_ERRNO 38",
        ),
        (
            "another way",
            vec![ring],
            "socket(AF_ALG)",
            "SCMP_ACT_ALLOW io_uring_setup() on SCMP_ARCH_X86_64: a filter does not see what io_uring does",
        ),
        (
            "another process decides",
            vec![notify],
            "socket(AF_ALG)",
            "delegated SCMP_ACT_NOTIFY socket(0x26) on SCMP_ARCH_X86_64",
        ),
        (
            "a call that is logged is made",
            vec![log],
            "socket(AF_ALG)",
            "SCMP_ACT_LOG socket(0x26) on SCMP_ARCH_X86_64",
        ),
        (
            "a 32-bit program",
            vec![narrow],
            "socket(AF_ALG)",
            "SCMP_ACT_ALLOW socketcall(0x1) on SCMP_ARCH_X86: a 32-bit program passes the arguments in memory",
        ),
        (
            "flags",
            vec![flags.clone()],
            "clone(&CLONE_NEWUSER)",
            "cannot SCMP_ACT_KILL_THREAD, SCMP_ACT_ERRNO 1, SCMP_ACT_ERRNO 38",
        ),
        (
            "other flags",
            vec![flags],
            "clone(&CLONE_NEWNS)",
            "SCMP_ACT_ALLOW clone(0x20000) on SCMP_ARCH_X86_64",
        ),
    ] {
        assert_eq!(verdict(&filters, pattern), expected, "{case}");
    }
}

#[test]
fn what_a_program_does_otherwise_is_followed_or_undecided() {
    let i = |code, jt, jf, k| Instruction { code, jt, jf, k };
    let (allow, deny) = (i(0x06, 0, 0, 0x7fff_0000), i(0x06, 0, 0, 0x0005_0001));
    for (case, program, expected) in [
        ("a bit of the first argument", vec![i(0x20, 0, 0, 16), i(0x45, 0, 1, 4), deny, allow], "cannot"),
        (
            "memory and the index register",
            vec![
                i(0x20, 0, 0, 16),
                i(0x02, 0, 0, 3),
                i(0x01, 0, 0, 38),
                i(0x60, 0, 0, 3),
                i(0x1d, 0, 1, 0),
                deny,
                allow,
            ],
            "cannot",
        ),
        (
            "a mask, then an order",
            vec![i(0x20, 0, 0, 16), i(0x54, 0, 0, 0xf0), i(0x25, 0, 1, 0x1f), deny, allow],
            "cannot",
        ),
        (
            "arithmetic with constants",
            vec![i(0x00, 0, 0, 6), i(0x24, 0, 0, 7), i(0x15, 0, 1, 42), deny, allow],
            "cannot",
        ),
        (
            "the return of the accumulator",
            vec![i(0x00, 0, 0, 0x7fff_0000), i(0x16, 0, 0, 0)],
            "SCMP_ACT_ALLOW socket(0x26)",
        ),
        ("a division by zero", vec![i(0x00, 0, 0, 6), i(0x34, 0, 0, 0), allow], "cannot"),
        (
            "the instruction pointer",
            vec![i(0x20, 0, 0, 8), i(0x15, 0, 1, 1), deny, allow],
            "instruction 1 of the filter computes",
        ),
        (
            "arithmetic with an argument",
            vec![i(0x20, 0, 0, 16), i(0x04, 0, 0, 1), i(0x15, 0, 1, 1), deny, allow],
            "instruction 2 of",
        ),
        (
            "an unknown instruction",
            vec![i(0x28, 0, 0, 0), allow],
            "instruction 0 of the filter has the unknown code 0x28",
        ),
        ("an odd offset", vec![i(0x20, 0, 0, 17), allow], "instruction 0 of the filter has the unknown code"),
        ("no return", vec![i(0x20, 0, 0, 16)], "the filter ends without a return"),
        ("a jump behind the end", vec![i(0x05, 0, 0, u32::MAX)], "the filter ends without a return"),
        ("nothing", vec![], "the filter ends without a return"),
    ] {
        // io_uring and other conventions are closed by a filter of their own.
        let found = verdict(&[program, program_of_machine()], "socket(AF_ALG)");
        assert!(found.starts_with(expected), "{case}: {found}");
    }
}

fn program_of_machine() -> Vec<Instruction> {
    program(&json!({"defaultAction": ERRNO, "syscalls": [{"names": ["socket"], "action": ALLOW}]}))
}

#[test]
fn strict_mode_lets_four_calls_through() {
    let strict =
        |text: &str| matches!(reach_strict(&CallPattern::parse(text).unwrap(), MACHINE), Reach::Can(_));
    assert!(strict("read(0)") && strict("exit"));
    assert!(!strict("socket(AF_ALG)") && !strict("openat"));
}

fn profile() -> impl Strategy<Value = Value> {
    let operators = vec![
        "SCMP_CMP_NE",
        "SCMP_CMP_LT",
        "SCMP_CMP_LE",
        "SCMP_CMP_EQ",
        "SCMP_CMP_GE",
        "SCMP_CMP_GT",
        "SCMP_CMP_MASKED_EQ",
    ];
    let value = prop_oneof![0..8_u64, Just(1 << 32), Just(u64::MAX)];
    let argument = (0..2_u64, prop::sample::select(operators), value.clone(), value).prop_map(
        |(index, op, value, second)| json!({"index": index, "op": op, "value": value, "valueTwo": second}),
    );
    let action = prop::sample::select(vec![ALLOW, ERRNO, "SCMP_ACT_KILL", "SCMP_ACT_LOG"]);
    let rule = (action.clone(), prop::collection::vec(argument, 0..3))
        .prop_map(|(action, args)| json!({"names": ["getpid"], "action": action, "args": args}));
    (action, prop::collection::vec(rule, 0..4))
        .prop_map(|(default, rules)| json!({"defaultAction": default, "syscalls": rules}))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// What the evaluation of all values says is what runs with single values show.
    #[test]
    fn the_evaluation_is_that_of_every_single_call(
        first in profile(), second in profile(),
        mask in prop_oneof![Just(0xffff_ffff_u64), Just(3), Just(u64::MAX)], value in 0..8_u64,
    ) {
        let compiled: Vec<_> = [&first, &second].iter().filter_map(|profile| Filter::read(profile).unwrap().compile(MACHINE).ok()).collect();
        let filters: Vec<_> = compiled.iter().map(|program| program.instructions.clone()).collect();
        let getpid = Syscall::named("getpid").unwrap();
        let value = value & mask;
        let mut arguments = [None; 6];
        arguments[0] = Some(ValuePattern { mask, value });
        let way = Way { syscall: getpid, arguments, because: None };
        let answer = |arguments: Arguments| {
            let data = SeccompData::of(getpid, MACHINE, arguments).unwrap();
            compiled.iter().map(|program| program.run(&data).unwrap()).min_by_key(|action| action.precedence()).unwrap_or(Action::Allow)
        };
        let values = [0, 1, 2, 3, 4, 5, 6, 7, 8, 1 << 32, (1 << 32) + 1, (1 << 32) + 4, u64::MAX, u64::MAX - 7];
        let tried: Vec<Action> = values.iter().filter(|first| **first & mask == value)
            .flat_map(|first| values.iter().map(|second| answer([*first, *second, 0, 0, 0, 0]))).collect();
        match reach_by(&filters, &way, MACHINE).unwrap() {
            Reach::Can(Witness { call, action, .. }) => {
                prop_assert_eq!(call.arguments[0] & mask, value);
                prop_assert_eq!(answer(call.arguments), action);
            }
            Reach::Cannot(actions) => prop_assert!(tried.iter().all(|action| actions.contains(action)), "{tried:?} {actions:?}"),
            Reach::Delegated(_) => prop_assert!(false),
        }
    }
}
