//! Our reading of profiles against libseccomp's.
//!
//! The recording holds profiles, each with calls and what the filter did that libseccomp 2.5.4 made of it on x86-64, with the
//! rules added as runc adds them. Where rules contradict each other, libseccomp picks one of them or refuses the profile.
//!
//! Of 95,808 calls tried when this was recorded, 30 got another answer than ours, all with several comparisons of the same
//! argument: before 2.6.1 libseccomp merges such rules wrongly (GHSA-4q85-33p6-j5g6). None of them is in the recording.

use palisade_model::profile::{
    architecture::Architecture,
    filter::{Action, Answer, Call, Filter},
    syscalls::Syscall,
};
use serde_json::Value;

const RECORDING: &str = include_str!("../data/libseccomp-2.5.4.jsonl");

fn action(text: &str) -> Action {
    let (name, errno) = text.split_once(' ').unwrap_or((text, ""));
    Action::named(name, errno.parse().ok()).unwrap()
}

#[test]
fn every_call_gets_the_answer_that_libseccomp_gave() {
    let (mut calls, mut conflicts, mut refused) = (0, 0, 0);
    for line in RECORDING.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        let filter = Filter::read(&record["profile"]).unwrap();
        let may_conflict = |call: &Syscall| {
            let is_conflict = |answer: &Answer| matches!(answer, Answer::Conflict(_));
            filter.find_call(*call, is_conflict).unwrap().is_some()
        };
        if record.get("error").is_some() {
            assert!(filter.named_calls().any(|call| may_conflict(&call)), "{line}");
            refused += 1;
            continue;
        }
        for recorded_call in record["calls"].as_array().unwrap() {
            let arguments: [u64; 6] = serde_json::from_value(recorded_call[2].clone()).unwrap();
            let architecture = format!("SCMP_ARCH_{}", recorded_call[0].as_str().unwrap());
            let call = Call {
                architecture: Architecture::named(&architecture).unwrap(),
                syscall: Syscall::named(recorded_call[1].as_str().unwrap()),
                arguments,
            };
            let recorded = action(recorded_call[3].as_str().unwrap());
            match filter.answer(&call, Architecture::COMMON) {
                Answer::Action(action) => assert_eq!(action, recorded, "{call}: {}", record["profile"]),
                Answer::Conflict(actions) => {
                    assert!(actions.contains(&recorded), "{call}: {}", record["profile"]);
                    conflicts += 1;
                }
            }
            calls += 1;
        }
    }
    assert!(calls > 1000 && conflicts > 0 && refused > 0, "{calls} {conflicts} {refused}");
}
