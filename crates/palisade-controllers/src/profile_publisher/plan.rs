//! What to publish, mark and remove. Pure: time is a parameter.

use std::{collections::BTreeSet, time::Duration};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{
    bounds::{ProfileLimits, excess_unreferenced},
    observe::{Index, NamedSource, ProfileRecord, SourceState},
};

/// How long a new profile waits for its first pod before it counts as unreferenced: an
/// administrator may publish one before its pods.
const SETTLING: Duration = Duration::from_mins(1);

/// One thing to do. Every one can be repeated, and none depends on another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PublishStep {
    /// Publish a profile from one of these sources, whichever still holds it.
    Publish {
        /// The profile.
        sha256: String,
        /// Where it may be found.
        sources: Vec<NamedSource>,
        /// Whether an object of that name is there with other bytes.
        replace: bool,
    },
    /// Mark a profile as unreferenced.
    Mark {
        /// The profile.
        sha256: String,
        /// Since when.
        since: Timestamp,
    },
    /// Take that back.
    Unmark {
        /// The profile.
        sha256: String,
    },
    /// Remove a profile that has been unreferenced for the grace period, or that is one of too many.
    Delete {
        /// The profile.
        sha256: String,
        /// Its identity.
        uid: String,
        /// The version that was looked at.
        resource_version: String,
    },
    /// Write which sources hold another profile by now.
    Annotate {
        /// The profile.
        sha256: String,
        /// The annotation's value; none takes it away.
        changed_sources: Option<String>,
    },
    /// Write who refers to it.
    Status {
        /// The profile.
        sha256: String,
        /// The whole status.
        status: Value,
    },
}

/// What to do now, and when to look again even if nothing happens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PublishPlan {
    /// In the order they should be tried: what pods wait for comes first.
    pub steps: Vec<PublishStep>,
    /// The next time something falls due.
    pub again_at: Option<Timestamp>,
}

/// Decides.
#[must_use]
pub fn plan(index: &Index, now: Timestamp, grace_period: Duration, limits: &ProfileLimits) -> PublishPlan {
    let referenced = index.referenced();
    let mut plan = PublishPlan::default();
    let after = |time: Timestamp, wait: Duration| {
        SignedDuration::try_from(wait).ok().and_then(|wait| time.checked_add(wait).ok())
    };
    for (&sha256, (_, sources)) in &referenced {
        let found = index.profiles.get(sha256);
        if found.is_none_or(|profile| !profile.intact) {
            plan.steps.push(PublishStep::Publish {
                sha256: sha256.to_owned(),
                sources: sources.iter().copied().cloned().collect(),
                replace: found.is_some(),
            });
        }
    }
    let too_many = excess_unreferenced(index, limits);
    for (sha256, profile) in &index.profiles {
        let sha256 = sha256.clone();
        let Some((pods, sources)) = referenced.get(sha256.as_str()) else {
            let due = match profile.unreferenced_since {
                Some(since) => after(since, grace_period),
                None => profile.created.and_then(|created| after(created, SETTLING)),
            };
            let is_excess = too_many.contains(&sha256);
            if let Some(due) = due.filter(|&due| due > now && !is_excess) {
                plan.again_at = Some(plan.again_at.map_or(due, |again| again.min(due)));
            } else if is_excess || profile.unreferenced_since.is_some() {
                let (uid, resource_version) = (profile.uid.clone(), profile.resource_version.clone());
                plan.steps.push(PublishStep::Delete { sha256, uid, resource_version });
                continue;
            } else {
                plan.steps.push(PublishStep::Mark { sha256: sha256.clone(), since: now });
                let due = after(now, grace_period);
                plan.again_at = plan.again_at.into_iter().chain(due).min();
            }
            describe(&sha256, profile, 0, &BTreeSet::new(), index, &mut plan.steps);
            continue;
        };
        if profile.unreferenced_since.is_some() {
            plan.steps.push(PublishStep::Unmark { sha256: sha256.clone() });
        }
        describe(&sha256, profile, *pods, sources, index, &mut plan.steps);
    }
    plan
}

fn describe(
    sha256: &str,
    profile: &ProfileRecord,
    pods: usize,
    sources: &BTreeSet<&NamedSource>,
    index: &Index,
    steps: &mut Vec<PublishStep>,
) {
    let mut changed = Vec::new();
    let mut rows = Vec::new();
    for NamedSource { source, sha256: held, .. } in sources {
        // Not read yet: nothing is reported.
        let Some(state) = index.sources.get(source) else { continue };
        let state = match state {
            SourceState::Holds(hash) if hash == held => "Current",
            SourceState::Holds(_) => "Changed",
            SourceState::Gone => "Gone",
        };
        if state == "Changed" {
            changed.push(source.to_string());
        }
        rows.push(json!({"namespace": source.namespace, "configMap": source.config_map, "key": source.key,
            "state": state}));
    }
    let status = json!({"pods": pods, "sources": rows});
    if profile.status != status {
        steps.push(PublishStep::Status { sha256: sha256.to_owned(), status });
    }
    let changed = changed.join(",");
    if profile.changed_sources != changed {
        let changed_sources = (!changed.is_empty()).then_some(changed);
        steps.push(PublishStep::Annotate { sha256: sha256.to_owned(), changed_sources });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use palisade_base::sha256;

    use super::super::observe::SourceKey;
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn at(text: &str) -> Timestamp {
        format!("2026-01-01T{text}Z").parse().unwrap()
    }

    fn index(pods: usize, profile: Option<(&str, Option<&str>)>) -> (Index, String) {
        let hash = sha256::hex(b"{}");
        let mut index = Index::default();
        for number in 0..pods {
            index.set_pod(
                &json!({"metadata": {"namespace": "n", "name": format!("p{number}"), "annotations": {
                    "seccomp.palisade.dev/pod": format!("configmap/m/k@sha256:{hash}")}},
                    "spec": {"securityContext": {"seccompProfile": {"type": "Localhost",
                        "localhostProfile": format!("palisade/{hash}.json")}}}}),
            );
        }
        if let Some((content, since)) = profile {
            index.set_profile(&json!({"metadata": {"name": hash, "uid": "u", "resourceVersion": "7",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "annotations": {"palisade.dev/unreferenced-since": since}}, "spec": {"profile": content},
                "status": {"pods": pods, "sources": []}}));
        }
        (index, hash)
    }

    #[test]
    fn steps_follow_from_who_refers_to_what() {
        for (case, pods, profile, now, expected) in [
            ("nothing there", 0, None, "05:00:00", "[] None"),
            ("a pod waits", 1, None, "05:00:00", "[Publish from 1] None"),
            ("published", 2, Some(("{}", None)), "05:00:00", "[] None"),
            ("other bytes", 1, Some(("[]", None)), "05:00:00", "[Replace from 1] None"),
            ("new, its pod is on the way", 0, Some(("{}", None)), "00:00:30", "[] 00:01:00"),
            ("still unreferenced", 0, Some(("{}", None)), "00:02:00", "[Mark] 01:02:00"),
            ("marked", 0, Some(("{}", Some("2026-01-01T02:00:00Z"))), "02:30:00", "[] 03:00:00"),
            ("mark unreadable", 0, Some(("{}", Some("yesterday"))), "02:30:00", "[Mark] 03:30:00"),
            ("referenced again", 1, Some(("{}", Some("2026-01-01T02:00:00Z"))), "02:30:00", "[Unmark] None"),
            ("grace period over", 0, Some(("{}", Some("2026-01-01T02:00:00Z"))), "03:00:00", "[Delete] None"),
            (
                "marked in the future",
                0,
                Some(("{}", Some("2026-01-01T09:00:00Z"))),
                "03:00:00",
                "[] 10:00:00",
            ),
        ] {
            let (index, _) = index(pods, profile);
            let plan = plan(&index, at(now), HOUR, &ProfileLimits::default());
            let steps: Vec<String> = plan
                .steps
                .iter()
                .map(|step| match step {
                    PublishStep::Publish { sources, replace: false, .. } => {
                        format!("Publish from {}", sources.len())
                    }
                    PublishStep::Publish { sources, .. } => format!("Replace from {}", sources.len()),
                    other => format!("{other:?}").split([' ', '{']).next().unwrap().to_owned(),
                })
                .collect();
            let again =
                plan.again_at.map_or_else(|| "None".to_owned(), |time| time.strftime("%T").to_string());
            assert_eq!(format!("[{}] {again}", steps.join(", ")), expected, "{case}");
        }
    }

    #[test]
    fn a_changed_source_is_reported_and_cleared() {
        let (mut index, hash) = index(1, Some(("{}", None)));
        let source = SourceKey { namespace: "n".into(), config_map: "m".into(), key: "k".into() };
        let mut planned = |state: SourceState, changed: &str| {
            index.sources.insert(source.clone(), state);
            index.profiles.get_mut(&hash).unwrap().changed_sources = changed.to_owned();
            let steps = plan(&index, at("05:00:00"), HOUR, &ProfileLimits::default()).steps;
            let annotated: Vec<_> = steps
                .iter()
                .filter_map(|step| match step {
                    PublishStep::Annotate { changed_sources, .. } => Some(changed_sources.clone()),
                    _ => None,
                })
                .collect();
            let state = steps.iter().find_map(|step| match step {
                PublishStep::Status { status, .. } => Some(status["sources"][0]["state"].clone()),
                _ => None,
            });
            (annotated, state.unwrap())
        };
        assert_eq!(planned(SourceState::Holds(hash.clone()), ""), (vec![], json!("Current")));
        let other = SourceState::Holds("f".repeat(64));
        assert_eq!(planned(other.clone(), ""), (vec![Some("n/m/k".to_owned())], json!("Changed")));
        assert_eq!(planned(other, "n/m/k"), (vec![], json!("Changed")));
        assert_eq!(planned(SourceState::Gone, "n/m/k"), (vec![None], json!("Gone")));
    }
}
