//! Which containers of the node each guard covers: rows for the report of the node.

use std::collections::BTreeMap;

use palisade_base::time::Time;
use serde_json::{Value, json};

use super::{Guards, KnownGuard};
use crate::{
    cri::client::{Runtime, RuntimeError},
    reach::{Prober, RunningContainer, Verdict, running_containers},
};

/// How many containers of a guard are listed; their number is exact.
const MOST_ROWS: usize = 1000;

/// What a guard is on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardState {
    /// It counts.
    Active,
    /// Its end has come.
    Expired,
    /// It cannot be applied at all.
    Invalid(String),
}

/// A container that a guard does not cover, and why.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Exposed {
    /// Namespace, pod and container.
    pub place: (String, String, String),
    /// The call that gets through, if one is known.
    pub call: Option<String>,
    /// Why.
    pub reason: String,
}

/// A guard and the containers of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardRow {
    /// The guard.
    pub name: String,
    /// Which version of it.
    pub generation: i64,
    /// What it is.
    pub state: GuardState,
    /// How many containers cannot make the calls.
    pub covered: usize,
    /// How many have an exception.
    pub exempt: usize,
    /// Those that can, or may.
    pub exposed: Vec<Exposed>,
}

impl GuardRow {
    /// For the status of a report.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let (state, message) = match &self.state {
            GuardState::Active => ("Active", None),
            GuardState::Expired => ("Expired", None),
            GuardState::Invalid(why) => ("Invalid", Some(why)),
        };
        let containers: Vec<Value> = self
            .exposed
            .iter()
            .take(MOST_ROWS)
            .map(|exposed| {
                let (namespace, pod, container) = &exposed.place;
                let mut row = json!({"namespace": namespace, "pod": pod, "container": container,
                    "reason": exposed.reason});
                if let (Some(call), Some(row)) = (&exposed.call, row.as_object_mut()) {
                    row.insert("call".to_owned(), call.as_str().into());
                }
                row
            })
            .collect();
        let mut row = json!({"name": self.name, "observedGeneration": self.generation, "state": state,
            "covered": self.covered, "exempt": self.exempt, "exposed": self.exposed.len(), "containers": containers});
        if let (Some(message), Some(row)) = (message, row.as_object_mut()) {
            row.insert("message".to_owned(), message.as_str().into());
        }
        row
    }
}

/// The rows of all guards, or none before they are known. Without a guard that counts, no container is looked at.
pub async fn rows(
    guards: &Guards,
    runtime: &Runtime,
    prober: &Prober,
    now: Time,
) -> Result<Option<Vec<GuardRow>>, RuntimeError> {
    let Some(known) = guards.known() else { return Ok(None) };
    let counts = |guard: &KnownGuard| guard.read.as_ref().map_or(true, |guard| guard.counts_at(now));
    let containers = if known.values().any(counts) { running_containers(runtime).await? } else { Vec::new() };
    let mut found = Vec::with_capacity(containers.len());
    for container in containers {
        let applicable = guards.applicable(&container.pod.namespace, &container.labels, now);
        let calls = applicable.calls();
        let verdicts = if calls.is_empty() { Vec::new() } else { prober.probe(&container, &calls).await };
        found.push(Probed {
            failure: guards.failure(&container.pod.uid, &container.name),
            verdicts: calls.into_iter().zip(verdicts).collect(),
            exempt: applicable.exempt,
            container,
        });
    }
    prober.forget_ended();
    Ok(Some(known.iter().map(|(name, guard)| row(name, guard, &found, now)).collect()))
}

struct Probed {
    container: RunningContainer,
    exempt: Vec<String>,
    verdicts: BTreeMap<palisade_model::profile::call_pattern::CallPattern, Verdict>,
    failure: Option<String>,
}

fn row(name: &str, known: &KnownGuard, probed: &[Probed], now: Time) -> GuardRow {
    let mut row = GuardRow {
        name: name.to_owned(),
        generation: known.generation,
        state: GuardState::Active,
        covered: 0,
        exempt: 0,
        exposed: Vec::new(),
    };
    let place = |container: &RunningContainer| {
        let name = if container.name.is_empty() { &container.id } else { &container.name };
        (container.pod.namespace.clone(), container.pod.name.clone(), name.clone())
    };
    let guard = match &known.read {
        Ok(guard) if guard.counts_at(now) => guard,
        Ok(_) => return GuardRow { state: GuardState::Expired, ..row },
        Err(why) => {
            // Nobody knows what it forbids, so that it covers nothing.
            row.exposed = probed
                .iter()
                .map(|probed| Exposed {
                    place: place(&probed.container),
                    call: None,
                    reason: "the guard cannot be applied".to_owned(),
                })
                .collect();
            return GuardRow { state: GuardState::Invalid(why.to_string()), ..row };
        }
    };
    for probed in probed {
        if probed.exempt.iter().any(|exempt| exempt == name) {
            row.exempt += 1;
            continue;
        }
        match exposure(guard.calls.iter().map(|call| probed.verdicts.get(call)), probed.failure.as_deref()) {
            None => row.covered += 1,
            Some((call, reason)) => {
                row.exposed.push(Exposed { place: place(&probed.container), call, reason });
            }
        }
    }
    row.exposed.sort();
    row
}

/// Why a container is exposed; none if it can make none of the calls. What is undecided is exposed.
fn exposure<'v>(
    verdicts: impl Iterator<Item = Option<&'v Verdict>>,
    failure: Option<&str>,
) -> Option<(Option<String>, String)> {
    let mut undecided = None;
    for verdict in verdicts {
        match verdict {
            Some(Verdict::Cannot { .. }) => {}
            Some(Verdict::Can { call, note, .. }) => {
                let why = failure.map_or_else(
                    || "it runs without the guard: restart it".to_owned(),
                    |failure| format!("the guard could not be applied: {failure}"),
                );
                let note = note.as_deref().map(|note| format!(" ({note})")).unwrap_or_default();
                return Some((Some(call.clone()), format!("{why}{note}")));
            }
            Some(Verdict::Undecided { reason }) => {
                undecided.get_or_insert_with(|| format!("undecided: {reason}"));
            }
            None => {
                undecided.get_or_insert_with(|| "undecided: it was not evaluated".to_owned());
            }
        }
    }
    undecided.map(|reason| (None, reason))
}

#[cfg(test)]
mod tests {
    use palisade_model::{guard::SyscallGuard, profile::call_pattern::CallPattern};

    use super::*;
    use crate::api::PodKey;

    fn guard(until: &str) -> KnownGuard {
        let object = json!({"metadata": {"name": "g"}, "spec": {"calls": ["ptrace", "socket(AF_ALG)"], "reason": "r",
            "until": until}});
        KnownGuard { generation: 3, read: Ok(SyscallGuard::read(&object).unwrap()) }
    }

    fn probed(name: &str, verdicts: [Option<Verdict>; 2], failure: Option<&str>) -> Probed {
        let calls = ["ptrace", "socket(AF_ALG)"].map(|call| CallPattern::parse(call).unwrap());
        Probed {
            container: RunningContainer {
                pod: PodKey { namespace: "n".to_owned(), name: name.to_owned(), uid: name.to_owned() },
                name: "c".to_owned(),
                id: "id".to_owned(),
                labels: BTreeMap::new(),
                pid: Ok(1),
            },
            exempt: if name == "exempt" { vec!["g".to_owned()] } else { Vec::new() },
            verdicts: calls
                .into_iter()
                .zip(verdicts)
                .filter_map(|(call, verdict)| Some((call, verdict?)))
                .collect(),
            failure: failure.map(str::to_owned),
        }
    }

    #[test]
    fn every_container_is_covered_exempt_or_listed() {
        let cannot = || Some(Verdict::Cannot { actions: vec!["SCMP_ACT_ERRNO 1".to_owned()] });
        let can = || {
            Some(Verdict::Can {
                pid: 1,
                call: "socket(0x26)".to_owned(),
                action: "SCMP_ACT_ALLOW".to_owned(),
                note: None,
            })
        };
        let undecided = || Some(Verdict::Undecided { reason: "too complex".to_owned() });
        let all = [
            probed("covered", [cannot(), cannot()], None),
            probed("exempt", [None, None], None),
            probed("one-of-two", [cannot(), can()], None),
            probed("undecided", [undecided(), cannot()], None),
            probed("both", [undecided(), can()], Some("no profile")),
            probed("unevaluated", [cannot(), None], None),
        ];
        let at = palisade_base::time::parse("2026-01-01T00:00:00Z").unwrap();
        let value = row("g", &guard("2030-01-01T00:00:00Z"), &all, at).to_value();
        assert_eq!(
            (&value["covered"], &value["exempt"], &value["exposed"]),
            (&json!(1), &json!(1), &json!(4))
        );
        assert_eq!((&value["state"], &value["observedGeneration"]), (&json!("Active"), &json!(3)));
        let listed: Vec<String> = value["containers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| {
                format!(
                    "{} {}: {}",
                    row["pod"].as_str().unwrap(),
                    row["call"],
                    row["reason"].as_str().unwrap()
                )
            })
            .collect();
        assert_eq!(
            listed,
            [
                "both \"socket(0x26)\": the guard could not be applied: no profile",
                "one-of-two \"socket(0x26)\": it runs without the guard: restart it",
                "undecided null: undecided: too complex",
                "unevaluated null: undecided: it was not evaluated",
            ]
        );
        let expired = row("g", &guard("2020-01-01T00:00:00Z"), &all, at).to_value();
        assert_eq!((&expired["state"], &expired["exposed"]), (&json!("Expired"), &json!(0)));
        let broken = KnownGuard {
            generation: 1,
            read: Err(crate::guards::UnreadableGuard("spec.calls: is required".to_owned())),
        };
        let invalid = row("g", &broken, &all, at).to_value();
        assert_eq!((&invalid["state"], &invalid["exposed"]), (&json!("Invalid"), &json!(6)));
        assert_eq!(invalid["message"], "spec.calls: is required");
    }
}
