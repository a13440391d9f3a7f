//! What a stricter level would mean for the pods of a namespace, however many there are.
//!
//! Implements: Pod Security Admission, "Applying to existing pods". Upstream stops after 3000 pods or a second; here every
//! pod is looked at. Most pods of a namespace are copies of a few: each kind of copy is read and judged once, the others
//! are only recognised, on every core and without keeping anything.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use memchr::memmem;
use palisade_model::compat::Compat;
use palisade_model::prepare::Prepared;
use palisade_policy::standards::namespace::{ExistingPods, Violations};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::storage::Object;

/// From how many pods on other cores help.
const MANY_PODS: usize = 2000;

/// Each pod's token volume has a name of its own, which does not matter for its security.
const TOKEN_VOLUME: &[u8] = b"\"name\":\"kube-api-access-";
/// Length of the part of that name that differs.
const TOKEN_SUFFIX: usize = 5;

/// The parts of a pod that a judgement may depend on.
#[derive(Deserialize)]
struct Parts<'a> {
    #[serde(borrow, default)]
    metadata: Metadata<'a>,
    #[serde(borrow)]
    spec: &'a RawValue,
}

#[derive(Deserialize, Default)]
struct Metadata<'a> {
    #[serde(borrow, default)]
    annotations: Option<&'a RawValue>,
}

/// Those parts as a key: equal keys are judged alike.
struct Likeness<'a> {
    annotations: &'a [u8],
    spec: &'a [u8],
}

impl<'a> Likeness<'a> {
    fn of(json: &'a [u8]) -> Result<Self, serde_json::Error> {
        let parts: Parts<'a> = serde_json::from_slice(json)?;
        let annotations = parts.metadata.annotations.map_or(&[][..], |raw| raw.get().as_bytes());
        Ok(Self { annotations, spec: parts.spec.get().as_bytes() })
    }

    /// The spec without the random part of the token volume's name.
    fn pieces(&self) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = Some(self.spec);
        std::iter::from_fn(move || {
            let text = rest?;
            let found = memmem::find(text, TOKEN_VOLUME).map(|at| at + TOKEN_VOLUME.len());
            match found.filter(|end| end + TOKEN_SUFFIX <= text.len()) {
                Some(end) => {
                    rest = text.get(end + TOKEN_SUFFIX..);
                    text.get(..end)
                }
                None => rest.take(),
            }
        })
    }
}

impl Hash for Likeness<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.annotations.hash(state);
        self.pieces().for_each(|piece| piece.hash(state));
    }
}

impl PartialEq for Likeness<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.annotations == other.annotations && self.pieces().eq(other.pieces())
    }
}

impl Eq for Likeness<'_> {}

/// What the pods of a namespace do that the new level does not allow.
pub(super) fn violations<'p>(
    existing: &ExistingPods<'_>,
    stored: &'p [Arc<Object>],
    compat: &Compat,
) -> Violations<'p> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if cores == 1 || stored.len() < MANY_PODS {
        return judge(existing, stored, compat);
    }
    std::thread::scope(|scope| {
        let parts: Vec<_> = stored
            .chunks(stored.len().div_ceil(cores))
            .map(|part| (part, scope.spawn(move || judge(existing, part, compat))))
            .collect();
        let mut all = Violations::default();
        for (part, thread) in parts {
            // What a thread did not finish is done here: no pod is passed over in silence.
            all.append(thread.join().unwrap_or_else(|_| judge(existing, part, compat)));
        }
        all
    })
}

fn judge<'p>(existing: &ExistingPods<'_>, stored: &'p [Arc<Object>], compat: &Compat) -> Violations<'p> {
    let mut known: HashMap<Likeness<'p>, Option<String>> = HashMap::new();
    let mut found = Violations::default();
    for object in stored {
        let likeness = match Likeness::of(&object.json) {
            Ok(likeness) => likeness,
            Err(error) => {
                found.add(&undecodable(&error), object.name(), 1);
                continue;
            }
        };
        if existing.judges_by_identity() {
            if let Some(reasons) = violation(existing, &object.json, compat) {
                found.add(&reasons, object.name(), 1);
            }
            continue;
        }
        let verdict = known.entry(likeness).or_insert_with(|| violation(existing, &object.json, compat));
        if let Some(reasons) = verdict {
            found.add(reasons, object.name(), 1);
        }
    }
    found
}

/// What is reported of a pod that cannot be decoded: its violations are unknown.
fn undecodable(error: &serde_json::Error) -> String {
    format!("pod cannot be decoded: {error}")
}

fn violation(existing: &ExistingPods<'_>, json: &[u8], compat: &Compat) -> Option<String> {
    // What cannot be read cannot be called compliant.
    match serde_json::from_slice(json) {
        Ok(pod) => existing.violation(&Prepared::stored(pod, compat)),
        Err(error) => Some(undecodable(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_alike_but_for_the_name_of_their_token_volume() {
        let pod = |suffix: &str, image: &str| {
            format!(
                r#"{{"metadata":{{"name":"{suffix}","managedFields":[{{"a":"spec"}}]}},"spec":{{"volumes":[{{"name":"kube-api-access-{suffix}"}}],"image":"{image}"}},"status":{{}}}}"#
            )
        };
        let (a, b, c) = (pod("abcde", "x"), pod("fghij", "x"), pod("abcde", "y"));
        let like =
            |json: &'_ str| Likeness::of(json.as_bytes()).map(|l| (l.spec.len(), l.annotations.len())).ok();
        assert_eq!(like(&a), like(&b));
        let key = |json| Likeness::of(json).expect("a pod");
        assert!(key(a.as_bytes()) == key(b.as_bytes()));
        assert!(key(a.as_bytes()) != key(c.as_bytes()));
        // Too short to have a random part: compared as it is.
        assert_eq!(key(br#"{"spec":{"name":"kube-api-access-a"}}"#).pieces().count(), 1);
    }
}
