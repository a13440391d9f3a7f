//! What the agent found, as the status of a `NodeSecurityReport`. Pure: time is a parameter.

use std::collections::BTreeMap;

use jiff::Timestamp;
use palisade_base::time::rfc3339;
use serde_json::{Map, Value, json};

use super::plan::{Missing, Wanted};
use crate::{guards::report::GuardRow, kernel::probe::NodeFeatures, verify::PodReport};

/// As many rows of each list as one object should hold; the counts include the rest.
const MOST_ROWS: usize = 200;
/// As many incidents as are remembered.
const MOST_INCIDENTS: usize = 50;

/// Something was not as the agent left it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incident {
    /// How often.
    pub count: u64,
    /// When it happened last.
    pub last: Timestamp,
    /// Whether it is repaired.
    pub repaired: bool,
}

/// Incidents, by what was touched and what was found there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Incidents(BTreeMap<(String, &'static str), Incident>);

impl Incidents {
    /// Something happened.
    pub fn happened(&mut self, what: &str, found: &'static str, now: Timestamp) {
        let fresh = Incident { count: 0, last: now, repaired: false };
        let incident = self.0.entry((what.to_owned(), found)).or_insert(fresh);
        incident.count = incident.count.saturating_add(1);
        incident.last = now;
        incident.repaired = false;
        if self.0.len() > MOST_INCIDENTS
            && let Some(oldest) =
                self.0.iter().min_by_key(|(_, incident)| incident.last).map(|(key, _)| key.clone())
        {
            self.0.remove(&oldest);
        }
    }

    /// What was touched is as it should be again.
    pub fn repaired(&mut self, what: &str) {
        for (_, incident) in self.0.iter_mut().filter(|((name, _), _)| name == what) {
            incident.repaired = true;
        }
    }

    /// Whether something still waits for repair.
    #[must_use]
    pub fn open(&self) -> bool {
        self.0.values().any(|incident| !incident.repaired)
    }

    fn rows(&self) -> Vec<Value> {
        let mut rows: Vec<_> = self.0.iter().collect();
        rows.sort_by_key(|(key, incident)| (std::cmp::Reverse(incident.last), (*key).clone()));
        rows.into_iter()
            .map(|((what, found), incident)| {
                json!({"sha256": what, "found": found, "repaired": incident.repaired, "count": incident.count,
                    "lastTime": seconds(incident.last)})
            })
            .collect()
    }
}

/// A container that runs a profile its ConfigMap no longer holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct OlderProfile {
    pub namespace: String,
    pub pod: String,
    pub container: String,
    pub sha256: String,
    pub source: String,
}

/// A profile in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldProfile {
    /// SHA-256 of the file: what containers run with.
    pub applied: String,
    /// SHA-256 of what the source held.
    pub source: String,
    /// Its size in bytes.
    pub size: u64,
}

/// Everything a report is made of.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    /// What kernel and runtime support.
    pub features: NodeFeatures,
    /// Whether the runtime answered.
    pub runtime_answers: bool,
    /// What should be there.
    pub wanted: Wanted,
    /// What is there.
    pub held: BTreeMap<String, HeldProfile>,
    /// What is not.
    pub missing: BTreeMap<String, Missing>,
    /// Why there is no folder to put profiles in.
    pub folder: Option<String>,
    /// What was tampered with.
    pub incidents: Incidents,
    /// What the kernel enforces on each pod's containers, by the pod's identity.
    pub verified: BTreeMap<String, PodReport>,
    /// Containers that run and were not compared, each in a sentence; none before the first comparison.
    pub unverified: Option<Vec<String>>,
    /// What each guard covers.
    pub guards: Vec<GuardRow>,
    /// The runtime that applies guards to new containers, if one does.
    pub guard_plugin: Option<String>,
    /// Containers with older profiles.
    pub older: Vec<OlderProfile>,
}

fn seconds(time: Timestamp) -> String {
    rfc3339(time.as_second())
}

impl Findings {
    /// How many differences between declaration and kernel there are.
    #[must_use]
    pub fn drift(&self) -> usize {
        self.verified
            .values()
            .flat_map(|pod| &pod.containers)
            .flat_map(|container| &container.rows)
            .filter(|row| !row.ok)
            .count()
    }

    /// How many containers were compared.
    #[must_use]
    pub fn compared(&self) -> usize {
        let containers = self.verified.values().flat_map(|pod| &pod.containers);
        containers.filter(|container| container.is_compared()).count()
    }

    /// Whether every profile that can be in place is. One that does not fit and that no pod of the node refers to gets its space when
    /// one does: what other nodes need keeps none from becoming ready.
    #[must_use]
    pub fn ready(&self) -> bool {
        let keeps_waiting = |(hash, missing): (&String, &Missing)| {
            missing.is_ours() && (*missing != Missing::Full || self.wanted.needed.contains_key(hash))
        };
        self.folder.is_none() && !self.missing.iter().any(keeps_waiting)
    }

    fn drift_rows(&self) -> Vec<Value> {
        let mut rows = Vec::new();
        for pod in self.verified.values() {
            for container in &pod.containers {
                for row in container.rows.iter().filter(|row| !row.ok) {
                    let mut fields = json!({"namespace": pod.namespace, "pod": pod.name,
                        "container": container.container, "check": row.check, "declared": row.declared,
                        "kernel": row.kernel});
                    if let (Some(note), Value::Object(fields)) = (&row.note, &mut fields) {
                        fields.insert("note".to_owned(), note.clone().into());
                    }
                    rows.push(fields);
                }
            }
        }
        rows.sort_by_cached_key(ToString::to_string);
        rows.truncate(MOST_ROWS);
        rows
    }

    fn conditions(&self, before: Option<&Value>, now: Timestamp) -> Vec<Value> {
        let known = |kind: &str| {
            before?.get("conditions")?.as_array()?.iter().find(|condition| condition["type"] == kind)
        };
        let condition_of = |kind: &str, holds: Option<bool>, reason: &str, message: String| {
            let status = match holds {
                Some(true) => "True",
                Some(false) => "False",
                None => "Unknown",
            };
            let since = known(kind)
                .filter(|condition| condition["status"] == status)
                .map_or_else(|| json!(seconds(now)), |condition| condition["lastTransitionTime"].clone());
            json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since})
        };
        let condition = |kind: &str, holds: bool, reason: &str, message: String| {
            condition_of(kind, Some(holds), reason, message)
        };
        let full = self.missing.values().filter(|missing| **missing == Missing::Full).count();
        let waiting = self.missing.values().filter(|missing| missing.is_ours()).count();
        let profiles = match &self.folder {
            Some(why) => condition("ProfilesReady", false, "NoFolder", why.clone()),
            None if full > 0 => condition(
                "ProfilesReady",
                false,
                "NoSpace",
                format!("tmpfs full: {full} profiles do not fit"),
            ),
            None if waiting > 0 => condition(
                "ProfilesReady",
                false,
                "Waiting",
                format!("{waiting} profiles are not in place yet"),
            ),
            None => condition(
                "ProfilesReady",
                true,
                "InPlace",
                format!("{} profiles are in place", self.held.len()),
            ),
        };
        let intact = if self.incidents.open() {
            condition(
                "ProfilesIntact",
                false,
                "Tampered",
                "something was touched and is not repaired yet".to_owned(),
            )
        } else {
            condition(
                "ProfilesIntact",
                true,
                "Verified",
                "every profile has the bytes that were written".to_owned(),
            )
        };
        let runtime = if self.runtime_answers {
            condition("RuntimeAnswers", true, "Answered", "the container runtime answers".to_owned())
        } else {
            let message = "the container runtime does not answer: nothing is known about containers";
            condition("RuntimeAnswers", false, "NoAnswer", message.to_owned())
        };
        let (holds, reason, message) = self.enforced();
        let enforced = condition_of("DeclarationsEnforced", holds, reason, message);
        vec![enforced, intact, profiles, runtime]
    }

    /// Whether the kernel enforces what the containers of the node declare; not known if one of them was not compared.
    fn enforced(&self) -> (Option<bool>, &'static str, String) {
        let drift = self.drift();
        match self.unverified.as_deref() {
            _ if drift > 0 => (Some(false), "Drift", format!("{drift} differences")),
            _ if !self.runtime_answers => {
                let message = "the container runtime does not respond: containers cannot be compared";
                (None, "RuntimeUnreachable", message.to_owned())
            }
            None => (None, "NotVerified", "containers have not been compared yet".to_owned()),
            Some([first, others @ ..]) => {
                let message = match others.len() {
                    0 => first.clone(),
                    more => format!("{first}, and {more} more"),
                };
                (None, "NotVerified", message)
            }
            Some([]) => {
                let message = format!("the kernel enforces what {} containers declare", self.compared());
                (Some(true), "NoDrift", message)
            }
        }
    }

    /// The status; `before` is the one it follows, for the times of conditions.
    #[must_use]
    pub fn status(&self, before: Option<&Value>, now: Timestamp) -> Value {
        let Self { features, .. } = self;
        let mut runtime = json!({"name": features.runtime_name, "version": features.runtime_version,
            "supplementalGroupsPolicy": features.supplemental_groups_policy});
        if let (Some(disabled), Value::Object(fields)) = (features.runtime_disables_app_armor, &mut runtime) {
            fields.insert("appArmor".to_owned(), (!disabled).into());
        }
        let missing: Vec<Value> = self
            .missing
            .iter()
            .take(MOST_ROWS)
            .map(|(hash, missing)| {
                let waiting = self.wanted.needed.get(hash).copied().unwrap_or_default();
                json!({"sha256": hash, "reason": missing.reason(), "neededBy": waiting})
            })
            .collect();
        let applied: Vec<Value> = self
            .held
            .iter()
            .take(MOST_ROWS)
            .map(|(name, held)| json!({"sha256": name, "source": held.source, "applied": held.applied}))
            .collect();
        let older: Vec<Value> = self
            .older
            .iter()
            .take(MOST_ROWS)
            .map(|row| {
                json!({"namespace": row.namespace, "pod": row.pod, "container": row.container,
                    "sha256": row.sha256, "source": row.source})
            })
            .collect();
        let guards: Vec<Value> = self.guards.iter().map(GuardRow::to_value).collect();
        let exposed: usize = self.guards.iter().map(|row| row.exposed.len()).sum();
        let plugin = self.guard_plugin.as_deref().unwrap_or_default();
        json!({
            "guards": guards,
            "exposedCount": exposed,
            "guardPlugin": plugin,
            "observedAt": seconds(now),
            "agentVersion": env!("CARGO_PKG_VERSION"),
            "kernel": {"release": features.kernel, "seccompActions": features.seccomp_actions,
                "appArmor": features.app_armor, "selinux": features.selinux},
            "runtime": runtime,
            "profiles": {"wanted": self.wanted.count(), "count": self.held.len(),
                "bytes": self.held.values().map(|held| held.size).sum::<u64>(),
                "held": self.held.keys().collect::<Vec<_>>(), "applied": applied, "missing": missing},
            "tampering": self.incidents.rows(),
            "verified": {"pods": self.verified.len(), "containers": self.compared()},
            "drift": self.drift_rows(),
            "driftCount": self.drift(),
            "olderProfiles": older,
            "olderProfileCount": self.older.len(),
            "conditions": self.conditions(before, now),
        })
    }
}

/// A status without the time at which it was written.
#[must_use]
pub fn without_time(status: &Value) -> Map<String, Value> {
    let mut fields = status.as_object().cloned().unwrap_or_default();
    fields.remove("observedAt");
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_follow_from_what_was_found_and_keep_their_times() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let row = |status: &Value| -> Vec<String> {
            let conditions = status["conditions"].as_array().unwrap();
            conditions
                .iter()
                .map(|c| {
                    format!(
                        "{}={} {}",
                        c["type"].as_str().unwrap(),
                        c["status"].as_str().unwrap(),
                        c["reason"].as_str().unwrap()
                    )
                })
                .collect()
        };
        let mut findings = Findings { runtime_answers: true, ..Findings::default() };
        assert_eq!(row(&findings.status(None, at(0)))[0], "DeclarationsEnforced=Unknown NotVerified");
        findings.unverified = Some(vec!["a".to_owned(), "b".to_owned()]);
        let unverified = findings.status(None, at(0));
        assert_eq!(row(&unverified)[0], "DeclarationsEnforced=Unknown NotVerified");
        assert_eq!(unverified["conditions"][0]["message"], "a, and 1 more");
        findings.unverified = Some(Vec::new());
        let unreachable = Findings { runtime_answers: false, ..findings.clone() };
        assert_eq!(
            row(&unreachable.status(None, at(0)))[0],
            "DeclarationsEnforced=Unknown RuntimeUnreachable",
            "what held before may not hold now"
        );
        let held = HeldProfile { applied: "b".repeat(64), source: "a".repeat(64), size: 2 };
        findings.held.insert("a".repeat(64), held);
        let first = findings.status(None, at(0));
        assert_eq!(
            row(&first),
            [
                "DeclarationsEnforced=True NoDrift",
                "ProfilesIntact=True Verified",
                "ProfilesReady=True InPlace",
                "RuntimeAnswers=True Answered"
            ]
        );
        findings.missing.insert("b".repeat(64), Missing::Unpublished);
        assert!(findings.ready(), "an unpublished profile does not count against the node");
        findings.missing.insert("c".repeat(64), Missing::Full);
        assert!(findings.ready(), "a profile that only other nodes need does not count against this one");
        findings.wanted.needed.insert("c".repeat(64), 1);
        findings.incidents.happened(&"a".repeat(64), "Deleted", at(5));
        let second = findings.status(Some(&first), at(10));
        assert!(!findings.ready());
        assert_eq!(row(&second)[1..3], ["ProfilesIntact=False Tampered", "ProfilesReady=False NoSpace"]);
        assert_eq!(second["conditions"][0]["lastTransitionTime"], "1970-01-01T00:00:00Z");
        assert_eq!(second["conditions"][1]["lastTransitionTime"], "1970-01-01T00:00:10Z");
        findings.incidents.repaired(&"a".repeat(64));
        let third = findings.status(Some(&second), at(20));
        assert_eq!(third["tampering"][0]["repaired"], true);
        assert_eq!(row(&third)[1], "ProfilesIntact=True Verified");
    }

    #[test]
    fn incidents_are_counted_and_bounded() {
        let mut incidents = Incidents::default();
        for second in 0..200 {
            let now = Timestamp::from_second(second).unwrap();
            incidents.happened(&format!("f{second}"), "Unexpected", now);
            incidents.happened("again", "Deleted", now);
        }
        let rows = incidents.rows();
        assert_eq!(rows.len(), MOST_INCIDENTS);
        let again = rows.iter().find(|row| row["sha256"] == "again").unwrap();
        assert_eq!(again["count"], 200);
    }
}
