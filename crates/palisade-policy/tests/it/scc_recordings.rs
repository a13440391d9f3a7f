//! Security context constraints, against what OpenShift's own code decided.

use palisade_policy::scc::{built_in, choose::Malformed, constraint::Constraint, set::ConstraintSet};
use palisade_testkit::{recordings, shared};
use serde_json::Value;

use crate::scc_replay::{Replay, constraints_of, run};

#[test]
fn every_record_is_answered_as_upstream_answered_it() {
    let summary = run(&recordings::folder().join("openshift"));
    println!("{}", summary.render());
    let (total, equal) = summary.total();
    let shown: Vec<_> = summary.differences.iter().take(5).map(String::as_str).collect();
    assert_eq!(equal, total, "{}", shown.join("\n"));
    recordings::assert_enough(total, 3000);
}

/// The one wanted difference: what upstream refuses because of one malformed constraint is decided by the others.
#[test]
fn a_malformed_constraint_is_skipped_as_if_it_were_not_there() {
    let folder = recordings::folder().join("openshift");
    let (mut skipped_somewhere, mut admitted) = (0, 0);
    for mut record in recordings::named::<Value>(&folder, "scc-admission").unwrap() {
        // Taking a constraint away must not look like a cache that is still empty.
        record["requireStandardSCCs"] = Value::Bool(false);
        let replayed = Replay::of(&record).unwrap().answer(Malformed::Skip).unwrap();
        if replayed.skipped.is_empty() {
            let strict = Replay::of(&record).unwrap().answer(Malformed::RefuseAll).unwrap();
            assert_eq!(replayed.to_json(), strict.to_json(), "{}", record["id"]);
            continue;
        }
        skipped_somewhere += 1;
        let is_skipped = |constraint: &&Constraint| replayed.skipped.contains(&constraint.metadata.name);
        let rest: Vec<_> = constraints_of(&record).iter().filter(|c| !is_skipped(c)).cloned().collect();
        // Ranges of a namespace that cannot be read are the namespace's fault: still refused.
        let by_namespace =
            replayed.to_json()["error"].as_str().is_some_and(|error| error.contains("pre-allocated"));
        if by_namespace
            || rest.is_empty()
            || record["pod"]["metadata"]["annotations"].get("openshift.io/required-scc").is_some()
        {
            assert!(!replayed.to_json()["allowed"].as_bool().unwrap(), "{}", record["id"]);
            continue;
        }
        let without = Replay::of(&record).unwrap().with_constraints(ConstraintSet::new(rest));
        let (with, without) = (replayed.to_json(), without.answer(Malformed::RefuseAll).unwrap().to_json());
        assert_eq!(with["allowed"], without["allowed"], "{}", record["id"]);
        assert_eq!(with.get("pod"), without.get("pod"), "{}", record["id"]);
        admitted += usize::from(with["allowed"] == Value::Bool(true));
        if with["allowed"] == Value::Bool(false) {
            let error = with["error"].as_str().unwrap();
            assert!(
                replayed
                    .skipped
                    .iter()
                    .all(|name| error.contains(&format!("provider \"{name}\": Forbidden: skipped"))),
                "{error}"
            );
        }
    }
    assert!(skipped_somewhere > 20 && admitted > 3, "{skipped_somewhere} {admitted}");
}

/// Our manifests carry the values of OpenShift's own, where these are at hand.
#[test]
fn built_in_constraints_have_the_values_of_upstream() {
    let Some(shared) = shared("recordings/openshift") else { return };
    let upstream: Vec<Value> = recordings::named(&shared, "builtin-sccs").unwrap();
    let ours: Vec<Value> = built_in::objects().collect();
    assert_eq!(upstream.len(), ours.len());
    for theirs in &upstream {
        let name = &theirs["metadata"]["name"];
        let ours = ours.iter().find(|own| own["metadata"]["name"] == *name).unwrap();
        assert_eq!(Constraint::read(ours).unwrap(), Constraint::read(theirs).unwrap(), "{name}");
    }
}
