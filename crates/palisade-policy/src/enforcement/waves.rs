//! Waves: namespaces get their enforce labels in groups, one after another.
//!
//! Implements: `PodSecurityRollout` (`palisade.dev/v1alpha1`), of which there is one, named `cluster`. A wave is chosen by the
//! labels of namespaces. It is labelled, soaks, and is done; the next begins then. If pods are rejected in it, it stops until the
//! administrator resumes it or takes it back. Namespaces of no wave come last, and then the global configuration.
//!
//! Two pure functions: [`advance`] moves the status on, and [`Rollout::enforce_labels`] reads from the stored status what a
//! namespace may have. So a wave is written down before its first label is set.

use palisade_base::{label_selector::LabelSelector, time};
use palisade_model::metadata::StringMap;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use thiserror::Error;

use super::state::{EnforceLabels, Instances};

/// The API group.
pub const GROUP: &str = "palisade.dev";
/// The version.
pub const VERSION: &str = "v1alpha1";
/// The kind.
pub const KIND: &str = "PodSecurityRollout";
/// The plural name.
pub const PLURAL: &str = "podsecurityrollouts";
/// The name of the one object there is.
pub const NAME: &str = "cluster";
/// The kind itself, as a CustomResourceDefinition.
pub const CUSTOM_RESOURCE_DEFINITION: &str = include_str!("../../manifests/crds/podsecurityrollouts.json");

/// How many rejected workloads the status of a wave names.
const MOST_REJECTED: usize = 10;

/// A group of namespaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wave {
    /// The name.
    pub name: String,
    /// Which namespaces.
    pub selector: LabelSelector,
    /// How long it must go well, in seconds.
    pub soak: i64,
}

/// What the administrator requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spec {
    /// The waves, in order.
    pub waves: Vec<Wave>,
    /// Nothing begins and nothing ends.
    pub paused: bool,
    /// This wave, and those after it, are taken back.
    pub rollback: Option<String>,
    /// When the administrator last resumed: what was rejected before does not stop a wave again.
    pub resumed_at: Option<i64>,
}

/// Why a spec is not followed. Nothing begins then.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SpecError {
    /// A field of another type: it is not known what was meant.
    #[error("spec.{0} must be {1}")]
    Type(&'static str, &'static str),
    /// A wave without a name, or with that of another.
    #[error("spec.waves[{0}].name must be set, and differ from the others")]
    Name(usize),
    /// A soak time that is none.
    #[error("spec.waves[{0}].soak {1:?} must be a duration such as 24h or 30m")]
    Soak(usize, String),
    /// A selector with an operator that does not exist.
    #[error(
        "spec.waves[{0}].namespaceSelector must be a label selector with the operators In, NotIn, Exists and DoesNotExist"
    )]
    Selector(usize),
    /// The wave to take back is not in the list.
    #[error("spec.rollback {0:?} is not the name of a wave")]
    Rollback(String),
    /// A time that is none.
    #[error("spec.resumedAt {0:?} must be a time such as 2026-01-01T00:00:00Z")]
    Resumed(String),
}

impl Spec {
    /// Reads the spec of an object.
    pub fn read(object: &Value) -> Result<Self, SpecError> {
        let spec = &object["spec"];
        let list = match &spec["waves"] {
            Value::Null => &[][..],
            Value::Array(waves) => waves,
            _ => return Err(SpecError::Type("waves", "a list")),
        };
        let mut waves: Vec<Wave> = Vec::new();
        for (index, wave) in list.iter().enumerate() {
            let name = wave["name"].as_str().unwrap_or_default();
            if name.is_empty() || waves.iter().any(|other| other.name == name) {
                return Err(SpecError::Name(index));
            }
            let soak = match &wave["soak"] {
                Value::Null => "0s",
                Value::String(soak) => soak,
                other => return Err(SpecError::Soak(index, other.to_string())),
            };
            waves.push(Wave {
                name: name.to_owned(),
                selector: selector(&wave["namespaceSelector"]).ok_or(SpecError::Selector(index))?,
                soak: duration(soak).ok_or_else(|| SpecError::Soak(index, soak.to_owned()))?,
            });
        }
        let paused = match spec["paused"] {
            Value::Null => false,
            Value::Bool(paused) => paused,
            _ => return Err(SpecError::Type("paused", "true or false")),
        };
        let rollback = text(spec, "rollback")?.map(str::to_owned);
        if let Some(name) = &rollback
            && !waves.iter().any(|wave| wave.name == *name)
        {
            return Err(SpecError::Rollback(name.clone()));
        }
        let resumed_at = match text(spec, "resumedAt")? {
            None => None,
            Some(text) => Some(seconds(text).ok_or_else(|| SpecError::Resumed(text.to_owned()))?),
        };
        Ok(Self { waves, paused, rollback, resumed_at })
    }
}

/// A text that is not empty, if there is one.
fn text<'v>(spec: &'v Value, field: &'static str) -> Result<Option<&'v str>, SpecError> {
    match &spec[field] {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
        _ => Err(SpecError::Type(field, "a string")),
    }
}

/// A selector without a mistake: one that could select more than was meant selects nothing.
fn selector(object: &Value) -> Option<LabelSelector> {
    let labels = object["matchLabels"].as_object().into_iter().flatten();
    let expressions = object["matchExpressions"].as_array().into_iter().flatten();
    let is_known =
        |operator: &Value| matches!(operator.as_str(), Some("In" | "NotIn" | "Exists" | "DoesNotExist"));
    let is_valid = object.is_object()
        && labels.into_iter().all(|(_, value)| value.is_string())
        && expressions.into_iter().all(|expression| {
            is_known(&expression["operator"]) && expression["key"].as_str().is_some_and(|key| !key.is_empty())
        });
    is_valid.then(|| LabelSelector::from_object(object))
}

/// `24h`, `1h30m`, `7d`, in seconds.
fn duration(text: &str) -> Option<i64> {
    let (mut total, mut number) = (0_i64, String::new());
    for letter in text.chars() {
        if letter.is_ascii_digit() {
            number.push(letter);
            continue;
        }
        let unit = match letter {
            'd' => 86_400,
            'h' => 3_600,
            'm' => 60,
            's' => 1,
            _ => return None,
        };
        // swallowed: a number that does not fit is no duration
        let count = std::mem::take(&mut number).parse::<i64>().ok()?;
        total = total.checked_add(count.checked_mul(unit)?)?;
    }
    (number.is_empty() && !text.is_empty()).then_some(total)
}

/// A time of the API, in seconds since 1970.
fn seconds(text: &str) -> Option<i64> {
    // swallowed: what is no time is `None`, and every caller decides what that means
    time::parse(text).ok().map(|time| time.seconds)
}

/// How far a wave is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaveState {
    /// Its turn has not come.
    #[default]
    Pending,
    /// Its namespaces get their labels.
    Labelling,
    /// All have them.
    Soaking,
    /// Pods are rejected in it.
    Stopped,
    /// It went well for as long as it should.
    Done,
    /// Its labels are taken back.
    RolledBack,
}

/// A workload whose pods Pod Security rejects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Rejection {
    /// The namespace.
    pub namespace: String,
    /// The kind and name of the workload, such as `Deployment/web`.
    pub workload: String,
    /// The message of the API server.
    pub message: String,
    /// Since when, RFC 3339.
    pub since: String,
}

/// `status.waves[]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WaveStatus {
    /// The name.
    pub name: String,
    /// How far it is.
    pub state: WaveState,
    /// How many namespaces it has.
    pub namespaces: usize,
    /// How many of them have their label.
    pub labelled: usize,
    /// When it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// When all had their label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labelled_at: Option<String>,
    /// When it stopped or was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// What stopped it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rejected: Vec<Rejection>,
}

/// What is observed of a wave.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WaveFacts {
    /// How many namespaces it has.
    pub namespaces: usize,
    /// How many of them lack their label.
    pub missing: usize,
    /// Workloads in it whose pods are rejected.
    pub rejected: Vec<Rejection>,
}

/// Moves the waves on, at most one step each. `active` is whether the state of the rollout sets labels at all.
#[must_use]
pub fn advance(
    spec: &Spec,
    before: &[WaveStatus],
    facts: &[WaveFacts],
    active: bool,
    now: i64,
) -> Vec<WaveStatus> {
    let taken_back =
        spec.rollback.as_ref().and_then(|name| spec.waves.iter().position(|own| own.name == *name));
    let nothing = WaveFacts::default();
    let mut may_begin = active && !spec.paused && taken_back.is_none();
    let mut after = Vec::new();
    for (index, wave) in spec.waves.iter().enumerate() {
        let known = before.iter().find(|own| own.name == wave.name).cloned().unwrap_or_default();
        let facts = facts.get(index).unwrap_or(&nothing);
        let mut next = WaveStatus {
            name: wave.name.clone(),
            namespaces: facts.namespaces,
            labelled: facts.namespaces.saturating_sub(facts.missing),
            ..known
        };
        if taken_back.is_some_and(|first| index >= first) {
            next = WaveStatus { state: WaveState::RolledBack, ..fresh(next) };
        } else if !active {
            // Opted out: when the rollout begins again, it begins with the first wave.
            next = fresh(next);
        } else if next.state != WaveState::Done && !spec.paused {
            step(&mut next, wave, spec, facts, may_begin, now);
        }
        may_begin &= next.state == WaveState::Done;
        after.push(next);
    }
    after
}

fn fresh(wave: WaveStatus) -> WaveStatus {
    WaveStatus {
        name: wave.name,
        namespaces: wave.namespaces,
        labelled: wave.labelled,
        ..WaveStatus::default()
    }
}

fn step(next: &mut WaveStatus, wave: &Wave, spec: &Spec, facts: &WaveFacts, may_begin: bool, now: i64) {
    let at = |text: &Option<String>| text.as_deref().and_then(seconds);
    let now_text = || Some(time::rfc3339(now));
    match next.state {
        WaveState::Pending | WaveState::RolledBack => {
            if may_begin {
                next.state = WaveState::Labelling;
                next.started_at = now_text();
            } else {
                next.state = WaveState::Pending;
            }
        }
        WaveState::Stopped => {
            if spec.resumed_at > at(&next.ended_at) {
                next.state = WaveState::Labelling;
                (next.ended_at, next.labelled_at, next.rejected) = (None, None, Vec::new());
            }
        }
        WaveState::Labelling | WaveState::Soaking => {
            let began = at(&next.started_at);
            let counts = |rejection: &&Rejection| {
                // Without a time it counts: what cannot be judged never lets a wave go on.
                seconds(&rejection.since)
                    .is_none_or(|since| Some(since) >= began && Some(since) > spec.resumed_at)
            };
            let mut rejected: Vec<Rejection> = facts.rejected.iter().filter(counts).cloned().collect();
            if !rejected.is_empty() {
                rejected.sort();
                rejected.truncate(MOST_REJECTED);
                (next.state, next.rejected, next.ended_at) = (WaveState::Stopped, rejected, now_text());
            } else if facts.missing > 0 {
                // A namespace that is new in it gets its label while the others soak.
            } else if let Some(labelled) = at(&next.labelled_at) {
                if now.saturating_sub(labelled) >= wave.soak {
                    (next.state, next.ended_at) = (WaveState::Done, now_text());
                }
            } else {
                (next.state, next.labelled_at) = (WaveState::Soaking, now_text());
            }
        }
        WaveState::Done => {}
    }
}

/// The object as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rollout {
    /// The spec, or why it is not followed.
    pub spec: Result<Spec, SpecError>,
    /// The waves as they were last written.
    pub waves: Vec<WaveStatus>,
}

impl Rollout {
    /// Reads an object.
    #[must_use]
    pub fn read(object: &Value) -> Self {
        let waves = object.pointer("/status/waves").and_then(Value::as_array).into_iter().flatten();
        // swallowed: a wave whose status cannot be read is pending, and sets no label
        let waves = waves.filter_map(|wave| WaveStatus::deserialize(wave).ok()).collect();
        Self { spec: Spec::read(object), waves }
    }

    /// The number of the wave of a namespace, the first that selects it; `None` if none does.
    #[must_use]
    pub fn wave_of(&self, labels: &StringMap<'_>) -> Option<usize> {
        // swallowed: without a readable specification no namespace is in a wave, and labels are kept
        let spec = self.spec.as_ref().ok()?;
        spec.waves.iter().position(|wave| wave.selector.matches_with(|key| labels.get(key)))
    }

    fn state(&self, wave: &Wave) -> WaveState {
        self.waves.iter().find(|own| own.name == wave.name).map(|own| own.state).unwrap_or_default()
    }

    /// Whether every wave is done, so that the global configuration may follow.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.spec.as_ref().is_ok_and(|spec| {
            !spec.paused
                && spec.rollback.is_none()
                && spec.waves.iter().all(|wave| self.state(wave) == WaveState::Done)
        })
    }

    /// Whether the administrator takes waves back, so that the global configuration must not enforce.
    #[must_use]
    pub fn is_rolled_back(&self) -> bool {
        self.spec.as_ref().is_ok_and(|spec| spec.rollback.is_some())
    }

    /// What to do with the enforce label of a namespace, where the state of the rollout is to set them.
    #[must_use]
    pub fn enforce_labels(
        &self,
        labels: &StringMap<'_>,
        instances: Instances,
        requested: bool,
    ) -> EnforceLabels {
        // swallowed: a specification that cannot be read is reported in a condition; labels stay as they are
        let Ok(spec) = &self.spec else { return EnforceLabels::Keep };
        let own = self.wave_of(labels);
        let is_taken_back = spec.rollback.as_ref().is_some_and(|name| {
            let first = spec.waves.iter().position(|wave| wave.name == *name);
            own.is_none() || own >= first
        });
        if is_taken_back {
            // As on the way out: what still enforces `restricted` where there is no label must be gone first.
            return if instances == Instances::None && !requested {
                EnforceLabels::Remove
            } else {
                EnforceLabels::Keep
            };
        }
        let Some(wave) = own.and_then(|index| spec.waves.get(index)) else {
            return if self.is_done() { EnforceLabels::Set } else { EnforceLabels::Keep };
        };
        match self.state(wave) {
            WaveState::Done => EnforceLabels::Set,
            WaveState::Labelling | WaveState::Soaking if !spec.paused => EnforceLabels::Set,
            _ => EnforceLabels::Keep,
        }
    }

    /// The state in a phrase, for `Progressing`; `None` if nothing is left to do.
    #[must_use]
    pub fn describe(&self) -> Option<(&'static str, String)> {
        let spec = match &self.spec {
            Ok(spec) => spec,
            Err(error) => {
                return Some(("WavesInvalid", format!("PodSecurityRollout {NAME} is not followed: {error}")));
            }
        };
        if let Some(wave) = &spec.rollback {
            return Some(("WavesRolledBack", format!("wave {wave:?} and those after it are taken back")));
        }
        let wave = spec.waves.iter().find(|wave| self.state(wave) != WaveState::Done)?;
        let status = self.waves.iter().find(|own| own.name == wave.name);
        let (namespaces, labelled) = status.map_or((0, 0), |own| (own.namespaces, own.labelled));
        let name = &wave.name;
        if spec.paused {
            return Some(("WavesPaused", format!("paused at wave {name:?}")));
        }
        Some(match (self.state(wave), status.and_then(|own| own.rejected.first())) {
            (WaveState::Stopped, Some(Rejection { namespace, workload, message, .. })) => (
                "WaveStopped",
                format!(
                    "wave {name:?} is stopped: pods of {workload} in namespace {namespace} are rejected: {message}; \
                     resume it with \"palisade rollout resume\", or take it back with \"palisade rollout rollback\""
                ),
            ),
            (WaveState::Soaking, _) => {
                ("WaveSoaking", format!("wave {name:?} soaks: {labelled} of {namespaces} namespaces"))
            }
            _ => (
                "WaveLabelling",
                format!("wave {name:?}: {labelled} of {namespaces} namespaces have their label"),
            ),
        })
    }
}

/// The status to write: the waves, the one that is at work, and the conditions.
#[must_use]
pub fn status(
    rollout: &Rollout,
    waves: &[WaveStatus],
    before: &Value,
    generation: &Value,
    now: &str,
) -> Value {
    let shown = Rollout { spec: rollout.spec.clone(), waves: waves.to_vec() };
    let (reason, message) = shown.describe().unwrap_or(("Complete", "every wave is done".to_owned()));
    let is_stopped = matches!(reason, "WaveStopped" | "WavesInvalid");
    let condition = |kind: &str, holds: bool| {
        let status = if holds { "True" } else { "False" };
        let known = before["conditions"].as_array().into_iter().flatten().find(|own| own["type"] == kind);
        let since =
            known.filter(|own| own["status"] == status).and_then(|own| own["lastTransitionTime"].as_str());
        let mut condition = json!({"type": kind, "status": status, "reason": reason, "message": message,
                                   "lastTransitionTime": since.unwrap_or(now)});
        if generation.is_i64() {
            condition["observedGeneration"] = generation.clone();
        }
        condition
    };
    let current = waves.iter().find(|wave| wave.state != WaveState::Done);
    json!({
        "currentWave": current.map(|wave| wave.name.as_str()).unwrap_or_default(),
        "waves": waves,
        "conditions": [condition("Complete", reason == "Complete"), condition("Stopped", is_stopped)],
    })
}

#[cfg(test)]
#[path = "waves_tests.rs"]
mod tests;
