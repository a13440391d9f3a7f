//! Properties of the algebra of profiles over random pairs: each result answers every call exactly as defined, as a document
//! that is read again, and as a program for the kernel.
//!
//! `cargo run --release -p palisade-model --example algebra -- 1000000` tries as many pairs.

use std::collections::BTreeSet;

use palisade_model::profile::{
    algebra::{AlgebraError, Strictness},
    architecture::Architecture,
    bpf::SeccompData,
    filter::{Action, Answer, Call, Filter},
    syscalls::Syscall,
};
use proptest::{prelude::*, test_runner::TestCaseError};
use serde_json::{Value, json};

const OPERATORS: &[&str] = &["NE", "LT", "LE", "EQ", "GE", "GT", "MASKED_EQ"];
const ACTIONS: &[&str] = &["KILL_PROCESS", "KILL", "TRAP", "ERRNO", "TRACE", "LOG", "ALLOW"];
const CALLS: &[&str] = &["clone", "socket", "mmap2"];

/// Small values, in which rules meet; and now and then a large one.
fn value() -> impl Strategy<Value = u64> {
    prop_oneof![12 => 0..8_u64, 1 => Just(u64::from(u32::MAX)), 1 => Just(1 << 32), 1 => Just((1 << 32) + 3), 1 => any::<u64>()]
}

fn argument() -> impl Strategy<Value = Value> {
    (0..3_u64, prop::sample::select(OPERATORS), value(), value()).prop_map(|(index, operator, value, second)| {
        json!({"index": index, "op": format!("SCMP_CMP_{operator}"), "value": value, "valueTwo": second})
    })
}

/// A profile about a few calls. Rules of one profile have one action most of the time, as those of real profiles have.
pub(crate) fn profile() -> impl Strategy<Value = Value> {
    let action = || (prop::sample::select(ACTIONS), prop::sample::select(vec![1_u64, 1, 2, 38]));
    let rule = (
        prop::sample::subsequence(CALLS, 1..3),
        prop::option::weighted(0.15, action()),
        prop::collection::vec(argument(), 0..3),
    );
    let architectures =
        prop::sample::subsequence(vec!["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"], 0..=3);
    let architectures = prop_oneof![2 => Just(vec!["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"]), 1 => architectures];
    (action(), action(), prop::collection::vec(rule, 0..4), architectures).prop_map(
        |((default, default_errno), common, rules, architectures)| {
            let rules: Vec<Value> = rules
                .into_iter()
                .map(|(names, own, arguments)| {
                    let (action, errno) = own.unwrap_or(common);
                    json!({"names": names, "action": format!("SCMP_ACT_{action}"), "errnoRet": errno, "args": arguments})
                })
                .collect();
            json!({"defaultAction": format!("SCMP_ACT_{default}"), "defaultErrnoRet": default_errno,
                   "architectures": architectures, "syscalls": rules})
        },
    )
}

/// A pair of profiles, and values of arguments beside those that the rules compare with.
pub(crate) fn pair() -> impl Strategy<Value = (Value, Value, Vec<[u64; 3]>)> {
    (profile(), profile(), prop::collection::vec([value(), value(), value()], 6))
}

/// Values at which some rule may change its mind.
fn edges(profiles: [&Value; 2]) -> Vec<u64> {
    let mut edges = BTreeSet::from([0, 7]);
    let rules = profiles.iter().filter_map(|profile| profile["syscalls"].as_array()).flatten();
    for argument in rules.filter_map(|rule| rule["args"].as_array()).flatten() {
        for value in [&argument["value"], &argument["valueTwo"]].into_iter().filter_map(Value::as_u64) {
            edges.extend([value.wrapping_sub(1), value, value.wrapping_add(1)]);
        }
    }
    edges.into_iter().collect()
}

/// What became of a pair.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Tally {
    pub(crate) calls: u64,
    pub(crate) contradictions: u64,
    pub(crate) inexpressible: u64,
    pub(crate) complex: u64,
    pub(crate) results: u64,
}

fn only(answer: &Answer) -> Result<Action, TestCaseError> {
    match answer {
        Answer::Action(action) => Ok(*action),
        Answer::Conflict(_) => Err(TestCaseError::fail("a profile without contradictions has one answer")),
    }
}

fn stricter(first: Action, second: Action) -> Action {
    if second.precedence() < first.precedence() { second } else { first }
}

fn looser(first: Action, second: Action) -> Action {
    if second.precedence() > first.precedence() { second } else { first }
}

/// Whether rules contradict each other on an architecture of any width.
fn contradicts(filter: &Filter) -> bool {
    matches!(filter.normalized(), Err(AlgebraError::Contradiction { .. }))
}

/// Where rules contradict each other only the intersection is defined, by the strictest of them.
fn contradicting(
    a: &Filter,
    b: &Filter,
    edges: &[u64],
    more: &[[u64; 3]],
    tally: Tally,
) -> Result<Tally, TestCaseError> {
    let machine = Architecture::COMMON;
    let Ok(both) = a.intersection(b) else { return Ok(tally) };
    let strictest = |answer: Answer| match answer {
        Answer::Action(action) => action,
        Answer::Conflict(actions) => actions.first().copied().unwrap(),
    };
    for [x, y, z] in more {
        let pick = |seed: u64| edges[usize::try_from(seed % edges.len() as u64).unwrap()];
        for name in CALLS {
            let arguments = [pick(*x), pick(*y), pick(*z), 0, 0, 0];
            let call = Call { architecture: machine, syscall: Syscall::named(name), arguments };
            let wanted = stricter(strictest(a.answer(&call, machine)), strictest(b.answer(&call, machine)));
            prop_assert_eq!(only(&both.answer(&call, machine))?, wanted, "{}", call);
        }
    }
    Ok(tally)
}

/// Holds a pair to everything that the algebra promises.
pub(crate) fn check(first: &Value, second: &Value, more: &[[u64; 3]]) -> Result<Tally, TestCaseError> {
    let machine = Architecture::COMMON;
    let (a, b) = (Filter::read(first).unwrap(), Filter::read(second).unwrap());
    let mut tally = Tally::default();
    if [&a, &b].iter().any(|filter| !filter.conflicts().unwrap().is_empty() || contradicts(filter)) {
        tally.contradictions = 1;
        return contradicting(&a, &b, &edges([first, second]), more, tally);
    }
    let intersection = a.intersection(&b);
    let union = a.union(&b);
    let without = a.without(&b);
    let normalized = a.normalized();
    for result in [&intersection, &union, &without, &normalized] {
        match result {
            Ok(_) => {}
            Err(AlgebraError::Inexpressible { .. }) => tally.inexpressible += 1,
            // More rules than a program has room for: ranges and masks of the same argument, times those of another.
            Err(AlgebraError::TooComplex) => tally.complex += 1,
            // Of narrow architectures alone, found after what the reading of the profile itself found.
            Err(AlgebraError::Contradiction { call, .. }) if call.architecture.bits() == 32 => {
                tally.contradictions = 1;
                return contradicting(&a, &b, &edges([first, second]), more, tally);
            }
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        }
    }
    // Only values wider than 32 bits, and masks beside ranges of the same argument, make an intersection impossible to write
    // down for wide and narrow architectures at once.
    let edges = edges([first, second]);
    let has_masks = [first, second].iter().any(|profile| profile.to_string().contains("MASKED"));
    if edges.iter().all(|edge| *edge < u64::from(u32::MAX)) && !has_masks {
        let fits = |result: &Result<Filter, AlgebraError>| {
            !matches!(result, Err(AlgebraError::Inexpressible { .. }))
        };
        prop_assert!(fits(&intersection) && fits(&normalized), "{first} {second}");
    }
    let denial = |action: Action| if action.denies() { action } else { Action::Errno(1) };
    let default =
        only(&a.answer(&Call { architecture: machine, syscall: None, arguments: [0; 6] }, machine))?;
    let expected = |kind: usize, first: Action, second: Action| match kind {
        0 => stricter(first, second),
        1 => looser(first, second),
        2 if second.denies() => first,
        2 => stricter(first, denial(default)),
        _ => first,
    };
    let results: Vec<(usize, &Filter)> = [&intersection, &union, &without, &normalized]
        .into_iter()
        .enumerate()
        .filter_map(|(kind, result)| Some((kind, result.as_ref().ok()?)))
        .collect();
    let mut programs = Vec::new();
    for (kind, filter) in &results {
        let written = filter.to_oci();
        let read = Filter::read(&written).unwrap();
        // Hundreds of rules are more than a comparison takes; their answers are compared below.
        prop_assert!(read.equal(filter).unwrap_or(true), "{written}");
        if let Ok(again) = read.normalized() {
            prop_assert_eq!(&again.to_oci(), &written, "a result is minimal");
        }
        tally.results += 1;
        // As many rules as a document may have can be more than the kernel accepts.
        programs.push((*kind, read, filter.compile(machine).ok()));
    }
    let pick = |seed: u64| edges[usize::try_from(seed % edges.len() as u64).unwrap()];
    let arguments = more.iter().flat_map(|[x, y, z]| {
        [
            [pick(*x), pick(y + 1), pick(z + 2), 0, 0, 0],
            [*x, *y, *z, 0, 0, 0],
            [pick(x / 7), pick(y / 5), *z, 0, 0, 0],
        ]
    });
    for arguments in arguments {
        for name in CALLS.iter().chain(&["getpid"]) {
            for token in ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"] {
                let architecture = Architecture::named(token).unwrap();
                let syscall = Syscall::named(name).unwrap();
                let call = Call { architecture, syscall: Some(syscall), arguments };
                let (in_a, in_b) = (only(&a.answer(&call, machine))?, only(&b.answer(&call, machine))?);
                for (kind, filter, program) in &programs {
                    tally.calls += 1;
                    let found = only(&filter.answer(&call, machine))?;
                    let wanted = expected(*kind, in_a, in_b);
                    // The runtime ends the thread for an architecture that is not listed, whatever the rules of either are.
                    let is_killed =
                        matches!(*kind, 0 | 2) && architecture != machine && found == Action::KillThread;
                    prop_assert!(
                        found == wanted || (is_killed && wanted.denies()),
                        "{kind} {call}: {found}, not {wanted}"
                    );
                    if let (Some(program), Some(data)) =
                        (program, SeccompData::of(syscall, architecture, arguments))
                    {
                        prop_assert_eq!(program.run(&data).unwrap(), found, "the program for {}", call);
                    }
                }
            }
        }
    }
    for (kind, filter) in results {
        let orders = match kind {
            0 => vec![(filter, &a), (filter, &b)],
            1 => vec![(&a, filter), (&b, filter)],
            2 => vec![(filter, &a)],
            _ => vec![(filter, &a), (&a, filter)],
        };
        for (strict, lax) in orders {
            let Ok(found) = strict.at_least_as_strict_as(lax, Strictness::Actions) else { continue };
            let is_killed = found
                .as_ref()
                .is_some_and(|found| found.call.architecture != machine && found.answer.denies());
            prop_assert!(found.is_none() || (kind == 0 && is_killed), "{found:?}");
        }
    }
    for strictness in [Strictness::Actions, Strictness::Access] {
        if let Some(found) = a.at_least_as_strict_as(&b, strictness).unwrap() {
            let host = found.call.architecture.host().unwrap_or(found.call.architecture);
            let (in_a, in_b) = (only(&a.answer(&found.call, host))?, only(&b.answer(&found.call, host))?);
            prop_assert!(in_a.precedence() > in_b.precedence(), "{found:?}");
            prop_assert_eq!((Answer::Action(in_a), Answer::Action(in_b)), (found.answer, found.bound));
        }
    }
    if a.equal(&b).unwrap_or(false) {
        prop_assert!(a.at_least_as_strict_as(&b, Strictness::Actions).unwrap().is_none());
    }
    Ok(tally)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn results_are_exact((first, second, more) in pair()) {
        check(&first, &second, &more)?;
    }
}
