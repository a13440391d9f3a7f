//! The algebra of profiles against the kernel: generated profiles and their combinations, installed on a process that makes the
//! calls.

use std::{
    io::Write as _,
    os::unix::process::ExitStatusExt as _,
    process::{Command, ExitStatus, Stdio},
};

use palisade_model::profile::{
    algebra::Strictness,
    architecture::Architecture,
    filter::{Action, Answer, Call, Filter},
    syscalls::Syscall,
};
use palisade_node::kernel::seccomp::Harmless;
use proptest::{
    prelude::*,
    strategy::ValueTree as _,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use serde_json::{Value, json};

use crate::resilience::example;

/// What the process printed, and how it ended.
fn make(profile: &Value, calls: &[(&str, [u64; 6])]) -> (Vec<i32>, ExitStatus) {
    let mut child =
        Command::new(example("seccomp_calls")).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let input = json!({"profile": profile, "calls": calls}).to_string();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    (text.lines().map(|line| line.parse().unwrap()).collect(), output.status)
}

fn profile() -> impl Strategy<Value = Value> {
    let names: Vec<&str> = Harmless::ALL.iter().map(|call| call.name()).collect();
    let value = || prop_oneof![6 => 0..8_u64, 1 => Just(1 << 32), 1 => any::<u64>()];
    let operators = vec!["NE", "LT", "LE", "EQ", "GE", "GT", "MASKED_EQ"];
    let argument = (0..6_u64, prop::sample::select(operators), value(), value()).prop_map(
        |(index, operator, value, second)| json!({"index": index, "op": format!("SCMP_CMP_{operator}"), "value": value, "valueTwo": second}),
    );
    let actions =
        vec!["ALLOW", "ALLOW", "LOG", "ERRNO", "ERRNO", "ERRNO", "TRACE", "KILL", "KILL_PROCESS", "TRAP"];
    let action = move || (prop::sample::select(actions.clone()), 1..130_u64);
    let rule = (prop::sample::subsequence(names, 1..5), prop::collection::vec(argument, 0..3));
    (action(), action(), prop::collection::vec(rule, 1..5)).prop_map(|((default, default_errno), (action, errno), rules)| {
        let rules: Vec<Value> = rules
            .into_iter()
            .map(|(names, arguments)| json!({"names": names, "action": format!("SCMP_ACT_{action}"), "errnoRet": errno, "args": arguments}))
            .collect();
        json!({"defaultAction": format!("SCMP_ACT_{default}"), "defaultErrnoRet": default_errno, "syscalls": rules})
    })
}

/// What a process sees of an action; none if it ends.
fn seen(action: Action) -> Option<i32> {
    match action {
        Action::Allow | Action::Log => Some(0),
        Action::Errno(errno) => Some(i32::from(errno)),
        // ENOSYS: there is no tracer.
        Action::Trace(_) => Some(38),
        Action::KillProcess | Action::KillThread | Action::Trap | Action::Notify => None,
    }
}

fn answer(filter: &Filter, (name, arguments): (&str, [u64; 6])) -> Action {
    let architecture = Architecture::COMMON;
    let call = Call { architecture, syscall: Syscall::named(name), arguments };
    match filter.answer(&call, architecture) {
        Answer::Action(action) => action,
        Answer::Conflict(_) => panic!("a profile without contradictions"),
    }
}

#[test]
fn the_kernel_answers_as_the_algebra_does() {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let (mut calls, mut ended, mut differences) = (0, 0, 0);
    while calls < 10_000 || ended < 20 || differences < 10 {
        let mut generate = || profile().new_tree(&mut runner).unwrap().current();
        let (first, second) = (generate(), generate());
        let (a, b) = (Filter::read(&first).unwrap(), Filter::read(&second).unwrap());
        let combined = [a.normalized(), b.normalized(), a.intersection(&b), a.union(&b), a.without(&b)];
        if combined.iter().any(Result::is_err) {
            continue;
        }
        let values = prop_oneof![8 => 0..9_u64, 1 => Just((1 << 32) + 1), 1 => any::<u64>()];
        let some = prop::collection::vec(
            (prop::sample::select(Harmless::ALL.to_vec()), prop::array::uniform6(values)),
            60,
        );
        let some = some.new_tree(&mut runner).unwrap().current();
        let planned: Vec<(&str, [u64; 6])> =
            some.into_iter().map(|(call, arguments)| (call.name(), arguments)).collect();
        for filter in combined.into_iter().flatten() {
            let document = filter.to_oci();
            let (alive, deadly): (Vec<_>, Vec<_>) =
                planned.iter().copied().partition(|call| seen(answer(&filter, *call)).is_some());
            let expected: Vec<i32> = alive.iter().filter_map(|call| seen(answer(&filter, *call))).collect();
            let (found, status) = make(&document, &alive);
            assert!(status.success(), "{status} {document}");
            assert_eq!(found, expected, "{document} {alive:?}");
            calls += alive.len();
            // One process for each call that ends it.
            for call in deadly.into_iter().take(usize::from(ended < 40)) {
                let (found, status) = make(&document, &[call]);
                assert!(found.is_empty(), "{document} {call:?}");
                match answer(&filter, call) {
                    Action::KillThread => assert_eq!(status.code(), Some(3), "{document} {call:?}"),
                    _ => assert_eq!(status.signal(), Some(31), "{document} {call:?}"),
                }
                ended += 1;
            }
        }
        // A counterexample is a call that really differs.
        if let Some(found) = a.at_least_as_strict_as(&b, Strictness::Actions).unwrap()
            && let Some(name) = found.call.syscall.map(Syscall::name)
            && Harmless::ALL.iter().any(|call| call.name() == name)
            && found.call.architecture == Architecture::COMMON
        {
            let call = (name, found.call.arguments);
            let (one, other) = (seen(answer(&a, call)), seen(answer(&b, call)));
            if one != other {
                let results = [make(&first, &[call]), make(&second, &[call])];
                let [one_made, other_made] = results.map(|(found, _)| found.first().copied());
                assert_eq!((one_made, other_made), (one, other), "{first} {second} {call:?}");
                differences += 1;
            }
        }
    }
    println!("{calls} calls, {ended} calls that ended a thread or process, {differences} counterexamples");
}
