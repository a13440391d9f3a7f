//! Security context constraints, against what OpenShift's own code decided.

use std::path::Path;

use palisade_policy::scc::{built_in, choose::Malformed, constraint::Constraint, set::ConstraintSet};
use serde_json::Value;

#[path = "../../../../xtask/src/conformance_scc.rs"]
#[allow(dead_code, clippy::disallowed_methods, reason = "the chore prints more, and reads files")]
mod conformance_scc;

use conformance_scc::{Replay, constraints_of, records, run};

#[test]
fn every_record_is_answered_as_upstream_answered_it() {
    let summary = run(None).unwrap();
    let (total, equal) = summary.total();
    let shown: Vec<_> = summary.differences.iter().take(5).map(String::as_str).collect();
    assert_eq!(equal, total, "{}", shown.join("\n"));
    assert!(total > 3000, "only {total} records");
}

/// The one wanted difference: what upstream refuses because of one malformed constraint is decided by the others.
#[test]
fn a_malformed_constraint_is_skipped_as_if_it_were_not_there() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/recordings/openshift");
    let (mut skipped_somewhere, mut admitted) = (0, 0);
    for mut record in records(&folder, "scc-admission").unwrap() {
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
    let shared = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|folder| folder.join("shared/recordings/openshift"))
        .find(|folder| folder.join("builtin-sccs.jsonl").is_file());
    let Some(shared) = shared else { return };
    let upstream = records(&shared, "builtin-sccs").unwrap();
    let ours: Vec<Value> = built_in::objects().collect();
    assert_eq!(upstream.len(), ours.len());
    for theirs in &upstream {
        let name = &theirs["metadata"]["name"];
        let ours = ours.iter().find(|own| own["metadata"]["name"] == *name).unwrap();
        assert_eq!(Constraint::read(ours).unwrap(), Constraint::read(theirs).unwrap(), "{name}");
    }
}
